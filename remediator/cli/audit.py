"""``remediator audit …``: read, check and export the audit log, whether an engine runs or not.

Takes the store's file, opened read-only → tables for people, JSON for scripts, exit codes.

Must never: write to the store, or let a label value steer the terminal (``terminal``).
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import IO, Any, TypeVar

import click

from remediator.cli.event_line import about
from remediator.cli.event_text import print_data
from remediator.cli.invocation import Invocation
from remediator.cli.store_options import moment_option, reading, store_option
from remediator.cli.terminal import complain, console, fold, fold_beside, json_option, print_fields, print_json, say
from remediator.core.event import EventType, RecordedEvent
from remediator.core.outcome import Outcome, RunOutcome
from remediator.errors import RequestError, StoreUnavailableError
from remediator.store import audit as log
from remediator.store.audit import AuditFilter
from remediator.store.engine import Snapshot

F = TypeVar("F", bound=Callable[..., Any])

EXIT_TAMPERED = 1

PROGRESS_AFTER_S = 2.0
"""A check that takes longer says how far it is."""

_OUTCOMES = tuple(dict.fromkeys(one.value for one in (*RunOutcome, *Outcome)))

_SEQ = re.compile(r"[0-9]{1,16}")
_HEAD = re.compile(r"([1-9][0-9]{0,15}):([0-9a-f]{64})")


def _head(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, str] | None:
    """``SEQ:HASH`` as ``export`` and ``verify`` print it."""
    if value is None:
        return None
    found = _HEAD.fullmatch(value.strip())
    if found is None:
        raise click.BadParameter("write SEQ:HASH as 'remediator audit export' printed it", ctx, param)
    return int(found[1]), found[2]


def _filter_options(command: F) -> F:
    """The options that choose events, handed on as the fields of ``AuditFilter``."""
    for option in (
        click.option(
            "--type",
            "type",
            type=click.Choice([t.value for t in EventType]),
            metavar="TYPE",
            help="As attempt_started.",
        ),
        click.option("--run", "run_id", default="", metavar="ID", help="Of this run (the first characters will do)."),
        click.option("--fingerprint", default="", help="About this alert."),
        click.option("--outcome", default="", help="That ended so: succeeded, failed, …"),
        click.option("--target", default="", help="On this target, as docker:gpu-07/trainer-0."),
        click.option("--playbook", default="", help="Of this playbook."),
        click.option("--until", callback=moment_option, metavar="TIME", help="Before then."),
        click.option(
            "--since", callback=moment_option, metavar="TIME", help="From then on: 7d ago, or 2026-01-31T14:00Z."
        ),
    ):
        command = option(command)
    return command


@click.group()
def audit() -> None:
    """Read, verify and export the audit log."""


@audit.command("list")
@_filter_options
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="The newest so many.")
@store_option
@json_option
@click.pass_obj
def list_(invocation: Invocation, /, limit: int, store_url: str | None, as_json: bool, **chosen: Any) -> None:
    """List events, the newest last."""
    with reading(invocation, store_url) as conn:
        found = log.list_events(conn, _filters(conn, limit=limit, **chosen), newest_first=True)[::-1]
        hints = [] if found else _hints(conn, playbook=chosen["playbook"], outcome=chosen["outcome"])
    if as_json:
        for event in found:
            click.echo(json.dumps(log.as_dict(event)))
    elif found:
        _print_list(found)
    else:
        say("no events")
    for hint in hints:
        complain(hint)


@audit.command()
@click.argument("which", metavar="SEQ|RUN")
@store_option
@json_option
@click.pass_obj
def show(invocation: Invocation, /, which: str, store_url: str | None, as_json: bool) -> None:
    """Show one event, or all that a run did (the first characters of its id will do)."""
    with reading(invocation, store_url) as conn:
        found = [_event(conn, int(which))] if _SEQ.fullmatch(which) else _events_of_run(conn, which)
    if as_json:
        print_json([log.as_dict(event) for event in found])
        return
    if len(found) == 1:
        _print_event(log.as_dict(found[0]))
    else:
        _print_run(found)


@audit.command()
@click.argument("file", required=False, type=click.Path(path_type=Path, dir_okay=False, allow_dash=True))
@click.option(
    "--head", callback=_head, metavar="SEQ:HASH", help="An event kept elsewhere: finds a cut or rewritten tail."
)
@store_option
@json_option
@click.pass_obj
def verify(
    invocation: Invocation, /, file: Path | None, head: tuple[int, str] | None, store_url: str | None, as_json: bool
) -> None:
    """Check the whole chain, of the store or of a whole export (FILE, - for stdin).

    Exit code 0: intact; 1: changed, the first event that does not fit is named; 3: it cannot be read, or is no whole
    export.
    """
    progress = _Progress()
    if file is not None:
        with _lines(file) as lines:
            found = log.verify(_whole_export(lines), head, on_progress=progress.show)
    else:
        with reading(invocation, store_url) as conn:
            found = log.verify(conn, head, on_progress=progress.show)
    progress.clear()
    if as_json:
        print_json(
            {
                "ok": found.ok,
                "n_events": found.n_events,
                "head_seq": found.head_seq,
                "head_hash": found.head_hash,
                "first_bad_seq": found.first_bad_seq,
                "problem": found.problem,
            }
        )
    elif found.ok:
        fold(f"intact: {found.n_events} events")
        say(f"head {found.head_seq}:{found.head_hash}")
        if head is None:
            fold(
                "Only a head that is kept elsewhere (--head) shows that no tail was cut off or written anew.",
                style="dim",
            )
    else:
        fold(f"CHANGED: event {found.first_bad_seq}: {found.problem}", style="bold red")
        fold(f"{found.n_events} events before it fit.")
    if not found.ok:
        raise click.exceptions.Exit(EXIT_TAMPERED)


@audit.command()
@_filter_options
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="File.  [default: stdout]")
@click.option("--force", is_flag=True, help="Replace the file if it is there.")
@store_option
@click.pass_obj
def export(invocation: Invocation, /, output: Path | None, force: bool, store_url: str | None, **chosen: Any) -> None:
    """Write events as JSON Lines that can be verified without the store; print the head to keep on stderr.

    Each line holds the exact bytes ("body") that its hash covers. An export without filters is the whole chain.
    """
    if output is not None and output.exists() and not force:
        raise click.UsageError(f"{output} is there already: choose another name, or replace it with --force")
    with reading(invocation, store_url) as conn:
        seq, digest = log.head(conn)
        lines = map(log.export_line, log.export(conn, _filters(conn, **chosen)))
        if output is None:
            for line in map(_shown, lines) if sys.stdout.isatty() else lines:
                sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
        else:
            _write(output, lines)
    click.echo(f"head {seq}:{digest}", err=True)


def _shown(line: bytes) -> bytes:
    """The same JSON in ASCII: on a terminal the exact characters of a label could be obeyed."""
    return json.dumps(json.loads(line)).encode() + b"\n"


@contextmanager
def _lines(file: Path) -> Iterator[IO[bytes]]:
    try:
        with click.open_file(str(file), "rb") as opened:
            yield opened
    except OSError as error:
        raise StoreUnavailableError(f"Cannot read {file}: {error.strerror}") from error


def _whole_export(lines: IO[bytes]) -> Iterator[bytes]:
    """The lines, once the first shows that they can be the whole chain.

    Raises:
        StoreUnavailableError: they are no export, or one with filters.
    """
    first = lines.readline()
    try:
        row = json.loads(first)
        seq = json.loads(row["body"])["seq"] if row.keys() == {"body", "hash"} else None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        seq = None
    if type(seq) is not int:
        raise StoreUnavailableError("this is not an export of the audit log (for a database use --store)")
    if seq > 1:
        raise StoreUnavailableError(f"this export begins at event {seq}: only a whole one can be verified")
    return chain([first], lines)


def _write(output: Path, lines: Iterable[bytes]) -> None:
    """Whole or not at all: half an export would look like a log whose tail was cut off."""
    part = output.with_name(output.name + ".part")
    try:
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as opened:
            opened.writelines(lines)
        part.replace(output)
    except OSError as error:
        raise StoreUnavailableError(f"Cannot write {output}: {error.strerror}") from error


def _filters(conn: Snapshot, *, run_id: str, type: str | None, limit: int | None = None, **same: Any) -> AuditFilter:
    return AuditFilter(
        run_id=_run_id(conn, run_id) if run_id else "",
        type=EventType(type) if type is not None else None,
        limit=limit,
        **same,
    )


def _hints(conn: Snapshot, *, playbook: str, outcome: str) -> list[str]:
    """Why nothing was found, where a filter is none that the log could ever have met."""
    hints = []
    if playbook and not log.list_events(conn, AuditFilter(playbook=playbook, limit=1)):
        hints.append(f"no event of this log is about a playbook {playbook!r}; see remediator check --effective")
    if outcome and outcome not in _OUTCOMES:
        hints.append(f"there is no outcome {outcome!r}; there are: {', '.join(_OUTCOMES)}")
    return hints


def _run_id(conn: Snapshot, prefix: str) -> str:
    found = log.run_ids(conn, prefix, limit=2)
    if not found:
        raise RequestError(f"there is no run {prefix!r} in the audit log", http_status=404)
    if len(found) > 1 and prefix not in found:
        raise RequestError(f"several runs begin with {prefix!r}: write more of the id", http_status=404)
    return found[0]


def _events_of_run(conn: Snapshot, prefix: str) -> list[RecordedEvent]:
    """As they were written: what people and leases do to a run is numbered beside its own events."""
    return log.log_of_run(conn, _run_id(conn, prefix))


def _event(conn: Snapshot, seq: int) -> RecordedEvent:
    found = log.list_events(conn, AuditFilter(after_seq=seq - 1, limit=1))
    if not found or found[0].seq != seq:
        raise RequestError(f"there is no event {seq}: the log ends at {log.last_seq(conn)}", http_status=404)
    return found[0]


def _print_list(events: list[RecordedEvent]) -> None:
    """A line for each event; on a terminal folded, so that the columns stand."""
    is_terminal = console().is_terminal
    n_digits = max(len("seq"), len(str(events[-1].seq)))
    n_type = max(len(recorded.event.type) for recorded in events)
    say(f"{'seq':>{n_digits}}  {'time (UTC)':<19}  {'event':<{n_type}}  about")
    for recorded in events:
        event = recorded.event
        head = f"{recorded.seq:>{n_digits}}  {event.at:%Y-%m-%d %H:%M:%S}  {event.type.value:<{n_type}}  "
        text = about(event)
        if is_terminal and text:
            fold_beside(head, text)
        else:
            say((head + text).rstrip())


def _print_event(shown: dict[str, Any]) -> None:
    """One event, whole."""
    data = shown.pop("data")
    say(f"{shown.pop('seq')}  {shown.pop('at')}  {shown.pop('type')}", style="bold")
    print_fields({name: value for name, value in shown.items() if value not in ("", 0)}, indent=2)
    print_data(data, is_whole=True)


def _print_run(events: list[RecordedEvent]) -> None:
    """What a run is about, then its events one after the other: of each attempt what it changed."""
    first = events[0].event
    print_fields({"run": first.run_id, "playbook": first.playbook, "subject": first.subject_id})
    befores: dict[Any, Mapping[str, Any]] = {}
    finished = {_attempt(each) for each in events if each.event.type is EventType.ATTEMPT_FINISHED}
    for recorded in events:
        event = recorded.event
        data: dict[str, Any] = dict(event.data)
        say()
        by = f"  by {event.actor}" if event.actor != "engine" else ""
        said = f"  {event.outcome}" if event.outcome else ""
        say(f"{recorded.seq}  {event.at:%Y-%m-%d %H:%M:%S}  {event.type.value}{said}{by}", style="bold")
        if event.type is EventType.ATTEMPT_STARTED and _attempt(recorded) in finished:
            # What it was before is told with what became of it; without an end it is all that is known.
            befores[_attempt(recorded)] = data.pop("before", {})
        print_data(data, before=befores.get(_attempt(recorded)), is_whole=False)


def _attempt(recorded: RecordedEvent) -> tuple[Any, Any]:
    return recorded.event.data.get("step"), recorded.event.data.get("attempt")


class _Progress:
    """How far a long check is, on stderr, for a person who watches."""

    def __init__(self) -> None:
        self._show_from = time.monotonic() + PROGRESS_AFTER_S
        self._is_shown = False

    def show(self, n_events: int) -> None:
        if time.monotonic() >= self._show_from and sys.stderr.isatty():
            click.echo(f"\r{n_events:,} events fit so far", nl=False, err=True)
            self._is_shown = True
            self._show_from = time.monotonic() + 0.2

    def clear(self) -> None:
        if self._is_shown:
            click.echo("\r\x1b[K", nl=False, err=True)
