"""What the scenarios of playbook tests never reached.

Takes → gives: the playbooks and policies as they are written, and the audit logs of the scenarios that were played →
``Place``s of these files, and which of them something in a log shows.

Must never: count a line that cannot do anything (a limit of zero, a playbook that is disabled), nor one that a default
filled in: only what somebody wrote is theirs to test.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any

from remediator.core.event import Event, EventType
from remediator.core.guard import Word
from remediator.core.run import MessageKind, message_key
from remediator.core.units import parse_duration
from remediator.errors import Reason
from remediator.loading.document import Document, Node, entries_of, items_of
from remediator.loading.format import default_name


class PlaceKind(StrEnum):
    """What can be reached."""

    CASE = "case"
    RUNG = "rung"
    STEP = "step"
    IF = "if"
    HOLD = "hold"
    GUARD = "guard"
    APPROVAL = "approval"
    VERIFY = "verify"
    UNDO = "undo"
    POLICY = "policy"


NEVER: Mapping[PlaceKind, str] = {
    PlaceKind.CASE: "no alert came to it",
    PlaceKind.RUNG: "it was never begun",
    PlaceKind.STEP: "it was never tried",
    PlaceKind.IF: "it was never false",
    PlaceKind.HOLD: "no alert ended within it",
    PlaceKind.GUARD: "it never held anything back",
    PlaceKind.APPROVAL: "nobody was asked",
    PlaceKind.VERIFY: "it was never looked at",
    PlaceKind.UNDO: "nothing was taken back",
    PlaceKind.POLICY: "it never held anything back",
}
"""What no scenario did, where a place is missed; what it takes to reach one is the opposite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Something written in a playbook or policy.

    Attributes:
        of: ``playbook restart-on-leak``, ``policy site``.
        what: ``step restart``, ``guard.cooldown``.
        file, line, column: where it stands.
    """

    kind: PlaceKind
    of: str
    what: str
    file: str
    line: int
    column: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """What was reached of what there is.

    Attributes:
        places: all, in the order of files and lines.
        missed: those that nothing reached, likewise.
    """

    places: tuple[Place, ...]
    missed: tuple[Place, ...]

    @property
    def pct(self) -> float:
        """The share that was reached, 0 to 100; 100 where there is nothing to reach."""
        return 100.0 * (1 - len(self.missed) / len(self.places)) if self.places else 100.0


Mark = tuple[str, ...]
"""What a log shows of a place: playbook, case and which of its parts; or "" and a part of the policies."""


def measure(
    files: Mapping[str, Sequence[Document]], played: Iterable[tuple[Sequence[str], Iterable[Event]]]
) -> Coverage:
    """Hold the logs of scenarios against what is written.

    Args:
        files: all that count, by name.
        played: of each scenario the names of the files that it was played with, and its audit log.
    """
    marks: dict[str, set[Mark]] = {name: set() for name in files}
    for names, events in played:
        found = marks_of(events)
        for name in names:
            marks.setdefault(name, set()).update(found)
    places, missed = [], []
    for name, documents in files.items():
        for document in documents:
            for place, shown_by in sorted(places_of(document).items(), key=_position):
                places.append(place)
                if shown_by.isdisjoint(marks[name]):
                    missed.append(place)
    return Coverage(places=tuple(places), missed=tuple(missed))


def _position(entry: tuple[Place, object]) -> tuple[int, int]:
    return entry[0].line, entry[0].column


# -- what is written ---------------------------------------------------------------------------------------------------


def places_of(document: Document) -> dict[Place, set[Mark]]:
    """Each place of a document, and the marks of which any one shows that it was reached.

    What stands above several cases is one place, reached by any of them that it holds for.
    """
    found: dict[Place, set[Mark]] = {}
    root = document.root
    if "playbook" in entries_of(root):
        of, parts = f"playbook {entries_of(root)['playbook'].text}", _of_playbook(root)
    else:
        of, parts = f"policy {_text(entries_of(root).get('policy'))}", _of_policy(root)
    for kind, what, node, mark in parts:
        place = Place(kind=kind, of=of, what=what, file=document.file, line=node.line, column=node.column)
        found.setdefault(place, set()).add(mark)
    return found


Part = tuple[PlaceKind, str, Node, Mark]


def _of_policy(root: Node) -> Iterator[Part]:
    keys = entries_of(root)
    for node in items_of(keys.get("protect")):
        yield PlaceKind.POLICY, f"protect {node.text}", node, ("", "line", node.text)
    if "require_label" in keys:
        node = keys["require_label"]
        yield PlaceKind.POLICY, f"require_label {node.text}", node, ("", "line", node.text)
    for key in ("max_concurrent_runs", "max_disruptive_acts"):
        if key in keys:
            yield PlaceKind.POLICY, key, keys[key], ("", key)
    if "breaker" in keys:
        yield PlaceKind.POLICY, "breaker", keys["breaker"], ("", "breaker", _text(keys.get("policy")))


def _of_playbook(root: Node) -> Iterator[Part]:
    name, cases = _text(entries_of(root).get("playbook")), items_of(entries_of(root).get("cases"))
    if not cases:
        yield from _of_case(_Case(name, "", root, {}))
    for node in cases:
        yield from _of_case(_Case(name, _text(entries_of(node).get("name")), node, entries_of(root)))


@dataclass(frozen=True, slots=True)
class _Case:
    """A case with what stands above it.

    Attributes:
        node: of the case itself; of the whole playbook where it has no cases.
        above: keys of the playbook, which hold where the case has none of its own.
    """

    playbook: str
    name: str
    node: Node
    above: Mapping[str, Node]

    def get(self, key: str) -> Node | None:
        return entries_of(self.node).get(key) or self.above.get(key)

    def guard(self) -> dict[str, Node]:
        """Key by key."""
        return {**entries_of(self.above.get("guard")), **entries_of(entries_of(self.node).get("guard"))}

    def mark(self, *part: str) -> Mark:
        return (self.playbook, self.name, *part)


def _of_case(case: _Case) -> Iterator[Part]:
    mode = _text(case.get("mode")) or "enforce"
    if mode == "disabled":
        return
    yield PlaceKind.CASE, f"case {case.name}" if case.name else "the playbook", case.node, case.mark("case")
    if "ignore" in entries_of(case.node):
        return
    yield from _of_guard(case)
    if mode != "enforce":
        return  # it acts never
    steps = items_of(case.get("steps"))
    rungs: dict[str, Node] = {}
    for step in steps:
        if rung := _text(entries_of(step).get("rung")):
            rungs.setdefault(rung, step)
    for rung, node in rungs.items():
        yield PlaceKind.RUNG, f"rung {rung}", node, case.mark("rung", rung)
    yield from _of_steps(case, "steps", steps)
    yield from _of_checks(case, "", case.get("verify"))
    if approval := case.get("approval"):
        yield PlaceKind.APPROVAL, "approval", approval, case.mark("approval", "rung")
    if (undo := case.get("undo")) and _is_undone(undo):
        for index, step in enumerate(steps):
            yield PlaceKind.UNDO, "undo", undo, case.mark("undo", f"steps.{_name_of(step, index)}")
    yield from _of_steps(case, "resolved", items_of(case.get("resolved")))


def _of_guard(case: _Case) -> Iterator[Part]:
    if (hold := case.get("hold")) and _is_time(hold):
        yield PlaceKind.HOLD, "hold", hold, case.mark("hold")
    for key, node in case.guard().items():
        if key == "require":
            for index, entry in enumerate(items_of(node)):
                name = _text(entries_of(entry).get("name")) or default_name("require", index)
                yield PlaceKind.GUARD, f"guard.require {name}", entry, case.mark("require", str(index))
        elif key != "cooldown" or _is_time(node):
            yield PlaceKind.GUARD, f"guard.{key}", node, case.mark("guard", key)


def _of_steps(case: _Case, phase: str, steps: Sequence[Node]) -> Iterator[Part]:
    for index, node in enumerate(steps):
        keys, name = entries_of(node), _name_of(node, index)
        key, of = f"{phase}.{name}", f"of {'' if phase == 'steps' else 'resolved '}step {name}"
        yield PlaceKind.STEP, of.removeprefix("of "), node, case.mark("step", key)
        if "if" in keys:
            yield PlaceKind.IF, f"if {of}", keys["if"], case.mark("if", key)
        yield from _of_checks(case, key, keys.get("verify"))
        if "approval" in keys:
            yield PlaceKind.APPROVAL, f"approval {of}", keys["approval"], case.mark("approval", key)
        if "undo" in keys and _is_undone(keys["undo"]):
            yield PlaceKind.UNDO, f"undo {of}", keys["undo"], case.mark("undo", key)


def _of_checks(case: _Case, key: str, checks: Node | None) -> Iterator[Part]:
    for index, node in enumerate(items_of(checks)):
        keys = entries_of(node)
        name = "alert" if "alert" in keys else _text(keys.get("name")) or default_name("verify", index)
        of = f" of step {key.partition('.')[2]}" if key else ""
        yield PlaceKind.VERIFY, f"verify {name}{of}", node, case.mark("verify", key, str(index))


def _name_of(step: Node, index: int) -> str:
    return _text(entries_of(step).get("name")) or default_name("step", index)


def _is_undone(undo: Node) -> bool:
    return _text(entries_of(undo).get("when")) != "never"


def _is_time(node: Node) -> bool:
    """Whether it is a time longer than none. What is no time at all, ``check`` tells."""
    try:
        return parse_duration(node.text) > timedelta(0)
    except ValueError:
        return False


def _text(node: Node | None) -> str:
    return "" if node is None else node.text


# -- what happened -----------------------------------------------------------------------------------------------------

_LINE = re.compile(r"""(?:is protected by policy line|does not bear) ('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""")
"""A policy's line, as the guard names it when it refuses."""


def marks_of(events: Iterable[Event]) -> set[Mark]:
    """What a log shows to have been reached."""
    seen = _Seen()
    for event in events:
        seen.take(event)
    return seen.marks


@dataclass(slots=True)
class _Seen:
    """Reads a log from its beginning.

    Attributes:
        cases: run → its playbook and case.
        judged: runs that came out of their hold.
    """

    marks: set[Mark] = field(default_factory=set)
    cases: dict[str, tuple[str, str]] = field(default_factory=dict)
    judged: set[str] = field(default_factory=set)

    def take(self, event: Event) -> None:
        data: Mapping[str, Any] = event.data
        match event.type:
            case EventType.ALERT_IGNORED:
                self.marks.add((event.playbook, data["case"], "case"))
            case EventType.PLAN_MADE | EventType.PLAN_REFUSED:
                self.cases[event.run_id] = (event.playbook, data["plan"]["case"])
                self._add(event, "case")
            case EventType.TURN_WAITED:
                self.judged.add(event.run_id)
            case EventType.VERDICT_GIVEN:
                self.judged.add(event.run_id)
                self._take_verdict(event, data)
            case EventType.STEP_SKIPPED if data["reason"] == Reason.CONDITION:
                self._add(event, "if", data["step"])
            case EventType.ATTEMPT_STARTED if data["step"] == message_key(MessageKind.WAITING):
                self._add(event, "guard", "tell_after")
            case EventType.ATTEMPT_STARTED:
                self._add(event, "step", data["step"])
            case EventType.VERIFICATION_LOOKED:
                for index, check in enumerate(data["checks"]):
                    if check["seen"]:
                        self._add(event, "verify", data["step"], str(index))
            case EventType.APPROVAL_ASKED:
                self._add(event, "approval", "rung" if data["key"].startswith("rung.") else data["key"])
            case EventType.UNDO_STARTED:
                self._add(event, "undo", data["step"])
            case EventType.BREAKER_TRIPPED:
                self.marks.add(("", "breaker", data["breaker"]))
            case EventType.RUN_FINISHED:
                if event.run_id not in self.judged and data["reason"] == Reason.RESOLVED:
                    self._add(event, "hold")
                self._take_lines(data["detail"])
            case _:
                pass

    def _add(self, event: Event, *part: str) -> None:
        self.marks.add((*self.cases[event.run_id], *part))

    def _take_verdict(self, event: Event, data: Mapping[str, Any]) -> None:
        if data["word"] == Word.ALLOW and not data["asks"]:
            self._add(event, "rung", str(data["rung"]))
        required = [answer for answer in data["answers"] if answer["rule"] == "require"]
        for index, answer in enumerate(required):
            if answer["word"] != Word.ALLOW:
                self._add(event, "require", str(index))
        for answer in data["reasons"]:
            self._add(event, "guard", answer["rule"])
            self.marks.add(("", answer["rule"]))
            self._take_lines(answer["detail"])

    def _take_lines(self, detail: str) -> None:
        for quoted in _LINE.findall(detail):
            self.marks.add(("", "line", _unquoted(quoted)))


def _unquoted(text: str) -> str:
    """What ``repr`` has quoted."""
    return str(ast.literal_eval(text))
