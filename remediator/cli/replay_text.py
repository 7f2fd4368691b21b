"""What ``remediator replay`` found, for people.

Takes → gives: what ``app.replay_deliveries`` gives → counts by playbook, each run that is new (+), gone (-) or
different (~), what people did, and what nobody can know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from remediator.cli.terminal import console, fold, fold_beside, moment_text, print_change, printable, say, value_text

_SIGNS = {"new": ("+", "green"), "gone": ("-", "red"), "different": ("~", "yellow")}

_WHAT = {
    "acts": "acts",
    "acts_after": "acts after",
    "asks": "asks",
    "tells": "tells",
    "waits": "waits for",
    "rungs": "rungs",
    "undoes": "takes back",
    "ends": "ends",
    "case": "case",
    "run": "run",
}


_NOTHING = "(nothing)"


def print_replay(answer: Mapping[str, Any], limit: int) -> None:
    """All of it.

    Args:
        limit: of runs that differ, print so many.
    """
    _print_head(answer)
    if answer["by_playbook"]:
        say()
        _print_counts(answer["by_playbook"])
    for one in answer["differences"][:limit]:
        say()
        _print_difference(one)
    n_more = len(answer["differences"]) - limit
    if n_more > 0:
        say()
        fold(f"… and {n_more} more: --limit {len(answer['differences'])}, or --json", 0, "dim")
    _print_people(answer["people"])
    _print_unknown(answer)
    say()
    _print_end(answer["runs"])


def _print_head(answer: Mapping[str, Any]) -> None:
    deliveries = answer["deliveries"]
    fold(f"replayed {moment_text(answer['since'])} to {moment_text(answer['until'])}", 0, "bold")
    fold(_counted(deliveries["decided"], "delivery", "deliveries"), 2)
    if deliveries["warm_up"]:
        fold(
            f"before it {_counted(deliveries['warm_up'], 'delivery', 'deliveries')}, from"
            f" {moment_text(answer['begins'])} on: what these started is not compared",
            2,
        )
    if deliveries["refused"]:
        fold(f"{deliveries['refused']:,} deliveries were refused when they came, and are not stored", 2)
    for note in answer["notes"]:
        fold_beside("  note: ", note, "yellow")


def _print_counts(counts: Sequence[Mapping[str, Any]]) -> None:
    table = Table(box=None, pad_edge=False)
    table.add_column("playbook", overflow="fold")
    for kind in ("same", *_SIGNS):
        table.add_column(kind, justify="right")
    for one in counts:
        table.add_row(printable(one["playbook"]), *(f"{one[kind]:,}" for kind in ("same", *_SIGNS)))
    console().print(table)


def _print_difference(one: Mapping[str, Any]) -> None:
    sign, style = _SIGNS[one["kind"]]
    case = f", case {one['case']}" if one["case"] else ""
    fold(f"{sign} {one['playbook']}{case}: {one['kind']}, {moment_text(one['at'])}", 0, f"bold {style}")
    fold(f"subject {value_text(one['per'])}", 4, "dim")
    if one["targets"]:
        fold(f"on {value_text(one['targets'])}", 4)
    for change in one["what"]:
        if change["what"] == "acts":
            _print_acts(one["was"]["acts"], one["would_be"]["acts"])
            continue
        print_change(_WHAT[change["what"]], change["was"] or _NOTHING, change["would_be"] or _NOTHING)
    if one["kind"] != "different":
        _print_decision(one["was"] or one["would_be"], "was" if one["was"] else "would be")
    elif any(change["what"] == "ends" and change["would_be"] != "acted" for change in one["what"]):
        fold_beside("    why: ", one["would_be"]["why"])
    if one["rests_on"]:
        fold(f"rests on what nobody knows: {value_text(one['rests_on'])}", 4, "dim")
    fold(one["incident"], 4, "dim")
    if one["url"]:
        fold(one["url"], 4, "dim")


def _print_acts(was: Sequence[str], would_be: Sequence[str]) -> None:
    """Each on a line of its own: with its params one fills it."""
    fold("acts:", 4)
    for sign, style, acts in (("-", "red", was), ("+", "green", would_be)):
        for act in acts or [_NOTHING]:
            fold_beside(f"      {sign} ", act, style)


def _print_decision(decision: Mapping[str, Any], word: str) -> None:
    for act in decision["acts"]:
        fold_beside(f"    {word}: ", act)
    is_act = bool(decision["acts"])  # what it did says more than how it went, which may be assumed
    why = f": {decision['why']}" if decision["why"] and not is_act else ""
    fold_beside(f"    {word}: ", f"{decision['ends']}{why}")


def _print_people(people: Sequence[Mapping[str, Any]]) -> None:
    if not people:
        return
    nothing = [one for one in people if not one["means"]]
    say()
    left = "; what means nothing here:" if nothing else ""
    fold(f"what people did: {len(people) - len(nothing):,} of {len(people):,} done again{left}")
    for one in nothing:
        run = f" {one['run_id'][:8]}" if one["run_id"] else ""
        fold_beside(f"  {one['did']}{run}: ", f"{one['by']}, {moment_text(one['at'])}: {one['why']}")


def _print_unknown(answer: Mapping[str, Any]) -> None:
    say()
    fold("what a replay cannot know", 0, "bold")
    for line in answer["cannot_know"]:
        fold_beside("  - ", line)
    if not answer["assumed"]:
        fold("nothing had to be assumed: all that was asked had been asked then", 2)
        return
    fold("assumed, where nobody had been asked:", 2)
    for one in answer["assumed"]:
        fold_beside(
            "  - ",
            f"{one['means']}: {_counted(one['times'], 'time')}, in {_counted(len(one['runs']), 'run')} ({one['kind']})",
        )


def _print_end(runs: Mapping[str, int]) -> None:
    found = [f"{runs[kind]:,} {kind}" for kind in _SIGNS if runs[kind]]
    if found:
        fold(f"of {_counted(runs['recorded'], 'run')} {runs['same']:,} the same; {', '.join(found)}", 0, "yellow")
    else:
        fold(f"no difference: {_counted(runs['same'], 'run')} the same", 0, "green")


def _counted(count: int, one: str, several: str = "") -> str:
    """``1 run``, ``2 runs``."""
    return f"{count:,} {one if count == 1 else several or f'{one}s'}"
