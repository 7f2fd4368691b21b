"""``remediator incident``: what happened to an alert, and what was done about it, as one timeline.

Takes the store's file, opened read-only, whether an engine runs or not → a timeline for people, JSON for scripts.

Must never: write to the store, or let a label value steer the terminal (``terminal``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from remediator.cli.invocation import Invocation
from remediator.cli.store_options import moment_option, reading, store_option
from remediator.cli.terminal import (
    complain,
    fold,
    fold_beside,
    json_option,
    label_text,
    print_json,
    say,
    value_text,
)
from remediator.core.event import utc_time
from remediator.core.units import print_duration
from remediator.engine.incident import SHORTEST, Found, describe, find, summary
from remediator.errors import PlaybooksRefusedError, RequestError

if TYPE_CHECKING:
    from remediator.core.playbook import PlaybookSet

MOST = 50
"""Incidents in a list."""

LABELS_SINCE = timedelta(days=7)
"""Labels are not indexed: without ``--since`` or ``--all`` what ended before that is not looked through."""

LATE = timedelta(minutes=5)
"""What began so long before it was heard of is shown with both times. Less is how Alertmanager groups."""

ID_SHOWN = 8
"""Characters of an episode's or a run's id."""

STYLES = {"good": "green", "bad": "red", "waits": "yellow"}


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="FINGERPRINT|RUN|LABEL=VALUE...")
@click.option("--all", "is_all", is_flag=True, help="List every episode that matches, however old.")
@click.option(
    "--since", callback=moment_option, metavar="TIME", help="What was open then or began later: 7d ago, or 2026-01-31."
)
@store_option
@json_option
@click.pass_obj
def incident(
    invocation: Invocation,
    /,
    words: tuple[str, ...],
    is_all: bool,
    since: datetime | None,
    store_url: str | None,
    as_json: bool,
) -> None:
    """Show what happened to an alert and what was done about it, as one timeline.

    Give a fingerprint, the id of a run or an episode (the first characters will do), or labels:

    \b
      remediator incident c8d2f0a1b2c3d4e5
      remediator incident alertname=GPUMemoryLeakSlope hostname=gpu-07

    The newest episode of an alert is shown; --all lists the others. Where several alerts match, they are listed. Labels
    are looked for in what fires and in the last 7 days, unless --since or --all says otherwise.

    Exit code 0: found, or listed; 1: nothing matches; 3: the store is not there or cannot be read.
    """
    which = _which(words)
    if isinstance(which, Mapping) and since is None and not is_all:
        since = datetime.now(UTC) - LABELS_SINCE
    with reading(invocation, store_url) as conn:
        found = find(conn, which, since, MOST + 1)
        if not found:
            raise RequestError(_nothing(words, which), http_status=404)
        is_one = len({one.alert for one in found}) == 1 and not is_all
        told = describe(conn, found[0], lambda: _playbooks(invocation)) if is_one else None
    if as_json:
        print_json({"matches": [summary(one) for one in found[:MOST]], "incident": told})
    elif told is None:
        _print_list(found, is_all=is_all)
    else:
        _print_incident(told, n_older=len(found) - 1)


def _which(words: Sequence[str]) -> str | dict[str, str]:
    """What is asked for.

    Raises:
        click.UsageError: it can be nothing of the kind.
    """
    pairs = [[part.strip() for part in word.partition("=")] for word in words]
    if all(name and separator for name, separator, _ in pairs):
        return {name: value for name, _, value in pairs}
    if len(words) > 1:
        raise click.UsageError("give one FINGERPRINT or RUN, or labels as LABEL=VALUE")
    if len(words[0]) < SHORTEST:
        raise click.UsageError(f"give at least {SHORTEST} characters of a fingerprint or an id")
    return words[0].lower()


def _nothing(words: Sequence[str], which: str | Mapping[str, str]) -> str:
    if isinstance(which, str):
        return f"no alert, run or episode begins with {words[0]!r}; labels are written as LABEL=VALUE"
    return f"no alert with {' '.join(words)} was delivered here in that time; --all looks through everything"


def _playbooks(invocation: Invocation) -> PlaybookSet:
    from remediator.app import load_playbooks  # only where no playbook matched: it loads everything

    loaded = load_playbooks(invocation.settings())
    if loaded.problems:
        raise PlaybooksRefusedError([str(problem) for problem in loaded.problems])
    return loaded.playbook_set


# -- for people --------------------------------------------------------------------------------------------------------


def _print_list(found: Sequence[Found], *, is_all: bool) -> None:
    if not is_all:
        fold("Several alerts match. Say which, by fingerprint or by the id of an episode:")
    say(f"{'id':<{ID_SHOWN}}  {'began (UTC)':<19}  {'ended':<19}  fingerprint")
    for one in found[:MOST]:
        row = summary(one)
        began, ended = _time(row["opened_at"]), _time(row["ended_at"]) or ("fires" if one.episode else "")
        shown = row["episode_id"][:ID_SHOWN] or row["run_id"][:ID_SHOWN]
        text = label_text(row["labels"]) if row["labels"] else value_text(row["per"])
        say(f"{shown:<{ID_SHOWN}}  {began:<19}  {ended:<19}  {row['fingerprint'] or 'by hand'}")
        fold(text, ID_SHOWN + 2, "dim")
    if len(found) > MOST:
        complain(f"only the newest {MOST} are listed: narrow it by more labels or --since")


def _print_incident(told: Mapping[str, Any], *, n_older: int) -> None:
    """One incident.

    Args:
        told: as ``engine.incident.describe`` gives it.
        n_older: how many older episodes of the same alert match too.
    """
    labels = told["labels"]
    name = labels.get("alertname") or (", ".join(one["playbook"] for one in told["subjects"])) or "alert"
    say("  ".join(filter(None, (name, told["fingerprint"]))), "bold")
    if labels:
        fold(label_text(labels), 2, "dim")
    for annotation in ("summary", "description"):
        if text := told["annotations"].get(annotation):
            fold_beside(f"  {annotation}  ", " ".join(text.split()))
    fold(_span(told), 2)
    for subject in told["subjects"]:
        _print_subject(subject)
    if told["nothing_done"]:
        say()
        is_open = any(one["run_id"] and not one["outcome"] for one in told["subjects"])
        say("nothing was done yet" if is_open else "nothing was done", "bold yellow")
        for reason in told["nothing_done"]:
            fold(": ".join(filter(None, (reason["playbook"], reason["why"]))), 2)
            for line in reason["more"]:
                fold(line, 4, "dim")
    _print_timeline(told["timeline"], has_several=len({one["playbook"] for one in told["subjects"]}) > 1)
    if n_older:
        say()
        episodes = "one older episode of this alert matches" if n_older == 1 else f"{n_older} older episodes match"
        fold(f"{episodes} too: --all lists them", 0, "dim")


def _span(told: Mapping[str, Any]) -> str:
    """``the alert was resolved at …, after 41m; 14 deliveries``."""
    began, ended = told["opened_at"], told["ended_at"]
    if not told["fingerprint"]:
        return str(told["end"])
    parts = [str(told["end"]) + (f" at {_time(ended)} UTC" if ended else "")]
    if began and ended:
        seconds = int((utc_time(ended) - utc_time(began)).total_seconds())
        parts.append(f"after {print_duration(timedelta(seconds=max(0, seconds)))}")
    elif began:
        parts.append(f"since {_time(began)} UTC")
    started = told["starts_at"]
    if began and started and utc_time(began) - utc_time(started) > LATE:
        parts.append(f"by its own word since {_time(started)} UTC")
    n = told["n_deliveries"]
    return ", ".join(parts) + (f"; {n} {'delivery' if n == 1 else 'deliveries'}" if n else "")


def _print_subject(subject: Mapping[str, Any]) -> None:
    case = f", case {subject['case']}" if subject["case"] else ""
    others = f", with {subject['n_alerts'] - 1} other alerts" if subject["n_alerts"] > 1 else ""
    run = f", run {subject['run_id'][:ID_SHOWN]}" if subject["run_id"] else ""
    state = subject["outcome"] or subject["phase"] or "adopted"
    reason = f" ({subject['reason']})" if subject["reason"] not in ("", "none") else ""
    fold(f"playbook {subject['playbook']}{case}: {state}{reason}{run}{others}", 2)


def _print_timeline(entries: Sequence[Mapping[str, Any]], *, has_several: bool) -> None:
    day = ""
    for entry in entries:
        if entry["at"][:10] != day:
            day = entry["at"][:10]
            say()
            say(f"{day} (UTC)", "dim")
        of = f"{entry['playbook']}: " if has_several and entry["run_id"] else ""
        fold_beside(f"  {entry['at'][11:19]}  ", of + entry["text"], STYLES.get(entry["tone"], ""))
        for line in entry["more"]:
            fold(line, 14, "dim")


def _time(text: str) -> str:
    return text[:19].replace("T", " ")
