"""What became of a scenario, for people: expected and happened side by side, what to write, and the audit trail.

Takes → gives: a ``Result`` → lines of a given width. Signs and colours say the same, so that nothing is lost without
colour.

Must never: let what a label holds steer the terminal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import zip_longest
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from remediator.cli.event_line import about
from remediator.cli.scenario_lines import expectation_line, worth_saying
from remediator.cli.terminal import console, printable
from remediator.core.action import JsonValue
from remediator.core.event import EventType
from remediator.core.scenario import ACTS, AT_ANOTHER_TIME, IN_ANOTHER_ORDER, Expectation, Happening, Line
from remediator.core.units import cut
from remediator.loading.scenario_write import at_text, flow

if TYPE_CHECKING:
    from remediator.engine.playtest import Result

SECOND = timedelta(seconds=1)

SAME, MISSING, EXTRA, OTHER = " ", "-", "+", "~"
"""As expected; expected and did not happen; happened and was not expected; happened otherwise."""

STYLES = {SAME: "", MISSING: "red", EXTRA: "magenta", OTHER: "yellow"}
MEANING = {MISSING: "did not happen", EXTRA: "not expected", OTHER: "happened otherwise"}

_GUTTER = 4
_DIVIDER = " │ "
_NARROWEST = 16
"""Columns of a cell at least, however narrow the terminal."""

_TEXT_SHOWN = 300
"""Characters of a message's text; the audit has it whole."""

_UNMATCHED = (
    "No playbook matches what fires here: remediator plan LABEL=VALUE …, with its labels, says which matcher fails."
)

_RULER = Console(color_system=None, markup=False, emoji=False, highlight=False)
"""Folds lines; prints nothing."""


def print_failure(result: Result, *, has_log: bool) -> None:
    """A scenario that did not go as expected, as wide as the terminal; its audit log is longer than all else of it."""
    out = console()
    for line in failure_text(result, out.width, has_log=has_log):
        out.print(line, soft_wrap=True)


def failure_text(result: Result, width: int, *, has_log: bool = True) -> Iterator[Text]:
    """The same as lines. The first, with the place for editors, is never folded."""
    yield Text(f"{place(result)}: failed: {printable(result.scenario.name)}", "bold red")
    for problem in result.problem.splitlines():
        yield from _folded("  ", problem, width, "red")
    if result.lines:
        yield Text()
        yield from side_by_side(result.lines, width)
        yield from _advice(result, width)
    if is_unmatched(result):
        yield Text()
        yield from _folded("  ", _UNMATCHED, width)
    lines = trail(result)
    if lines and not has_log:
        yield Text()
        yield Text("  The audit log: -v, or -k and its name", "dim")
    elif lines:
        yield Text()
        yield Text("  The audit log:")
        yield from _trail(lines, width)


def is_unmatched(result: Result) -> bool:
    """Whether alerts fired, and nothing was planned for any since no playbook matches them."""
    types = {recorded.event.type for recorded in result.events}
    return EventType.ALERT_UNMATCHED in types and types.isdisjoint({EventType.PLAN_MADE, EventType.PLAN_REFUSED})


def place(result: Result) -> str:
    """``file:line`` of a scenario."""
    return f"{printable(result.file.file)}:{result.scenario.line}"


def summary(result: Result) -> str:
    """``1 did not happen, 2 happened otherwise``; what is wrong with a scenario, on one line."""
    if result.problem:
        return result.problem.partition("\n")[0]
    rows = [_sign(line, "") for line in result.lines if not line.is_ok]
    signs = [OTHER if sign == SAME else sign for sign in rows]
    return ", ".join(f"{signs.count(sign)} {what}" for sign, what in MEANING.items() if sign in signs)


# -- side by side ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Row:
    """One thing said of an expectation, and of what happened.

    Attributes:
        times: in front of each.
        is_detail: of the row above.
    """

    sign: str
    left: str
    right: str
    times: tuple[str, str] = ("", "")
    is_detail: bool = False


def side_by_side(lines: Sequence[Line], width: int) -> Iterator[Text]:
    """Expected and happened beside each other, a sign before each line that does not agree."""
    rows = [row for line in lines for row in _rows(line)]
    cell = max((width - _GUTTER - len(_DIVIDER)) // 2, _NARROWEST)
    n_times = tuple(max(len(row.times[side]) for row in rows) for side in (0, 1))
    yield _joined(SAME, Text("expected"), Text("happened"), cell, "bold")
    for row in rows:
        heads = ["    " if row.is_detail else f"{row.times[side]:<{n_times[side]}}  " for side in (0, 1)]
        cells = [_folded(head, text, cell) for head, text in zip(heads, (row.left, row.right), strict=True)]
        for left, right in zip_longest(*cells, fillvalue=Text()):
            yield _joined(row.sign, left, right, cell, STYLES[row.sign])
    signs = {row.sign for row in rows}
    told = "   ".join(f"{sign} {text}" for sign, text in MEANING.items() if sign in signs)
    yield from _folded(" " * _GUTTER, told, width, "dim")


def _joined(sign: str, left: Text, right: Text, cell: int, style: str) -> Text:
    """One line of the table."""
    gap = " " * max(cell - left.cell_len, 0)
    joined = Text(f"{sign:>2}".ljust(_GUTTER), style).append_text(left).append(gap).append(_DIVIDER, "dim")
    joined.append_text(right).rstrip()
    return joined


def _rows(line: Line) -> Iterator[_Row]:
    """What happened, and below it each detail."""
    expected, happened = line.expected, line.happened
    times = (
        at_text(expected.at, expected.within) if expected is not None else "",
        at_text(happened.at, SECOND) if happened is not None else "",
    )
    yield _Row(_sign(line, ""), _what(expected), _what(happened), times)
    left, right = _details(line)
    for key in dict.fromkeys([*left, *right]):
        shown = [f"{key}: {_detail(key, side[key])}" if key in side else "" for side in (left, right)]
        yield _Row(_sign(line, key), shown[0], shown[1], is_detail=True)
    if IN_ANOTHER_ORDER in line.differences:
        yield _Row(OTHER, "", IN_ANOTHER_ORDER, is_detail=True)
    if line.forbidden and happened is not None:
        yield _Row(EXTRA, "", f"never: [{happened.value}]", is_detail=True)


def _sign(line: Line, key: str) -> str:
    """Of one detail; "" = of what happened at all, and when."""
    if line.happened is None:
        return MISSING
    if line.expected is None or (line.forbidden and not key):
        return EXTRA
    head = {AT_ANOTHER_TIME, IN_ANOTHER_ORDER, f"{line.happened.kind.value} {line.happened.value}"}
    is_other = key in _differing(line) if key else not head.isdisjoint(line.differences)
    return OTHER if is_other else SAME


def _differing(line: Line) -> set[str]:
    """The details that are not as expected."""
    return {difference.partition(": ")[0] for difference in line.differences}


def _what(side: Expectation | Happening | None) -> str:
    return "" if side is None else f"{side.kind.value} {side.value}"


def _details(line: Line) -> tuple[Mapping[str, JsonValue], Mapping[str, JsonValue]]:
    """Of both sides what is worth a line: what is expected, and of the other what was asked for or is not as usual."""
    expected, happened = line.expected, line.happened
    wanted: Mapping[str, JsonValue] = {} if expected is None else expected.details
    if happened is None:
        return wanted, {}
    found = {key: happened.details.get(key, "") for key in wanted} | worth_saying(happened)
    params, asked = found.get("params"), wanted.get("params")
    if isinstance(params, Mapping) and isinstance(asked, Mapping):
        found["params"] = {name: params.get(name, "") for name in asked}
    if "says" in wanted and "says" not in _differing(line):
        found["says"] = wanted["says"]
    return wanted, found


def _detail(key: str, value: JsonValue) -> str:
    if key == "says":
        return cut(" ".join(str(value).split()), _TEXT_SHOWN)
    return "none" if value == "" else flow(value)


def _folded(head: str, text: str, width: int, style: str = "") -> list[Text]:
    """A text in as many lines as it needs, all behind ``head``."""
    if not text:
        return []
    lines = Text(printable(text), style).wrap(_RULER, max(width - len(head), _NARROWEST), overflow="fold")
    for line in lines:
        line.rstrip()
    return [Text(head if not number else " " * len(head)).append_text(line) for number, line in enumerate(lines)]


# -- what to write -----------------------------------------------------------------------------------------------------


def _advice(result: Result, width: int) -> Iterator[Text]:
    """The lines that expect what happened: a test is written by pasting them."""
    anew = _anew(result.lines)
    new = [(line.happened, _kept(line)) for line in anew if line.happened is not None]
    old = sorted({line.expected.line for line in anew if line.expected is not None})
    if not new:
        return
    yield Text()
    if result.scenario.expect:
        out = f"take out line{'s' if len(old) > 1 else ''} {', '.join(map(str, old))} and " if old else ""
        yield from _folded("  ", f"To expect what happened, {out}put into `expect`, by their time:", width)
    else:
        yield Text("  To expect what happened, write instead of `expect: []`:")
        yield Text("    expect:")
    for happening, kept in new:
        yield Text(f"      - {expectation_line(happening, kept)}")


def _anew(lines: Sequence[Line]) -> list[Line]:
    """What is to be written anew, in the order in which it happened.

    All that is wrong; with it what stands on a line that is taken out, and the acts of a minute in which another act is
    wrong: these come in order.
    """
    wrong = [line for line in lines if not line.is_ok and not line.forbidden]
    taken_out = {line.expected.line for line in wrong if line.expected is not None}
    minutes = {at_text(line.happened.at) for line in wrong if line.happened is not None and line.happened.kind in ACTS}
    for line in lines:
        if not line.is_ok or line.expected is None or line.happened is None:
            continue
        is_beside = line.happened.kind in ACTS and at_text(line.happened.at) in minutes
        if is_beside or line.expected.line in taken_out:
            wrong.append(line)
    return sorted(wrong, key=lambda line: line.place)


def _kept(line: Line) -> dict[str, JsonValue]:
    """What the expectation says beside its value, as it really was; of a text nobody knows which part is meant."""
    if line.expected is None:
        return {}
    _, found = _details(line)
    lost = _differing(line) & {"says"}
    return {key: found[key] for key in line.expected.details if found[key] != "" and key not in lost}


# -- the audit trail ---------------------------------------------------------------------------------------------------


def trail(result: Result) -> list[tuple[str, str, str]]:
    """The audit log of a scenario: since when, what, about what. What comes again at once is counted, not repeated."""
    found: list[tuple[str, str, str]] = []
    before, n_more, last = ("", ""), 0, ""

    def count() -> None:
        if n_more:
            found.append((last, "", f"… {n_more} more like it"))

    for recorded in result.events:
        event = recorded.event
        since, this = since_text(event.at - result.file.begins), (event.type.value, about(event))
        if this == before:
            n_more, last = n_more + 1, since
            continue
        count()
        before, n_more = this, 0
        found.append((since, *this))
    count()
    return found


def since_text(elapsed: timedelta) -> str:
    """``+13m02s`` after the begin; ``+1h00m05s``, ``+2s``."""
    minutes, seconds = divmod(elapsed // SECOND, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"+{hours}h{minutes:02}m{seconds:02}s"
    return f"+{minutes}m{seconds:02}s" if minutes else f"+{seconds}s"


def _trail(lines: Sequence[tuple[str, str, str]], width: int) -> Iterator[Text]:
    n_since, n_type = (max(len(line[column]) for line in lines) for column in (0, 1))
    for since, kind, text in lines:
        head = f"    {since:>{n_since}}  {kind:<{n_type}}  "
        yield from _folded(head, text, width) or [Text(head.rstrip())]
