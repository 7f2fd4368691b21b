"""What an engine did, read from its audit log: the other side of a playbook test's expectations.

Takes → gives: events in the order of the log → ``Happening``s. What the log says is all that counts: nothing here looks
at an engine or its world.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from remediator.core.action import JsonValue
from remediator.core.event import Event, EventType
from remediator.core.outcome import Outcome, RunOutcome
from remediator.core.plan import Plan, unpack_plan
from remediator.core.policy import Mode
from remediator.core.run import MessageKind, message_of
from remediator.core.scenario import Happening, Kind
from remediator.errors import Reason

_MESSAGE = "message."
"""Begins the step keys of the engine's own texts (``core.run.message_key``)."""


def happenings(events: Sequence[Event], begins: datetime, alerts: Mapping[str, Mapping[str, str]]) -> list[Happening]:
    """What was done, waited for, asked and told.

    Args:
        events: in the order of the log, from its beginning.
        begins: the moment that times are counted from.
        alerts: labels by the name of their alert.

    Returns:
        In the order in which it happened; an act at its first attempt.
    """
    log = _Log(begins, alerts)
    for event in events:
        log.take(event)
    return [one for one in log.found if one is not None]


@dataclass(slots=True, kw_only=True)
class _KnownRun:
    """What is known of one run so far."""

    plan: Plan
    waits_for: frozenset[str] = frozenset()
    rungs: set[int] = field(default_factory=set)
    sent: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """Step key → the data of its newest ``attempt_started``."""


class _Log:
    """Reads one event after the other."""

    def __init__(self, begins: datetime, alerts: Mapping[str, Mapping[str, str]]) -> None:
        self.found: list[Happening | None] = []
        self._begins = begins
        self._names = {frozenset(labels.items()): name for name, labels in alerts.items()}
        self._runs: dict[str, _KnownRun] = {}
        self._acts: dict[tuple[str, str], int] = {}
        """Run and step key, or run and lease id → place of its act among ``found``."""

    def take(self, event: Event) -> None:
        """Note what one event says."""
        data: Mapping[str, Any] = event.data
        if event.type in (EventType.PLAN_MADE, EventType.PLAN_REFUSED):
            known = self._runs.get(event.run_id)
            plan = unpack_plan(data["plan"])
            self._runs[event.run_id] = _KnownRun(plan=plan) if known is None else replace(known, plan=plan)
        run = self._runs.get(event.run_id)
        if run is None:
            return
        match event.type:
            case EventType.PLAN_REFUSED:
                says = {"reason": str(data["reason"]), "says": str(data["detail"])}
                self._add(event, Kind.REFUSES, str(data["reason"]), {**self._of(run), **says})
            case EventType.VERDICT_GIVEN:
                self._verdict(event, run)
            case EventType.TURN_WAITED:
                self._waits(event, run, {str(one).rpartition(":")[2] for one in data["waits_for"]})
            case EventType.RUNG_CLIMBED:
                self._rung(event, run, int(data["to"]))
            case EventType.APPROVAL_ASKED:
                for name in data["ask"]:
                    self._add(event, Kind.ASKS, str(name), self._of(run))
            case EventType.ATTEMPT_STARTED:
                self._started(event, run)
            case EventType.ATTEMPT_FINISHED:
                self._finished(event, run)
            case EventType.UNDO_STARTED:
                details: dict[str, JsonValue] = {"target": event.target, "outcome": Outcome.UNKNOWN.value}
                self._act(event, Kind.UNDOES, str(data["action"]), str(data["lease_id"]), {**self._of(run), **details})
            case EventType.UNDO_FINISHED:
                self._ended(event, str(data["lease_id"]))
            case EventType.RUN_FINISHED | EventType.RUN_SETTLED:
                self._end(event, run)

    def _add(self, event: Event, kind: Kind, value: str, details: Mapping[str, JsonValue]) -> None:
        known = {"playbook": event.playbook, **details}
        self.found.append(Happening(at=event.at - self._begins, kind=kind, value=value, details=known))

    def _of(self, run: _KnownRun) -> dict[str, JsonValue]:
        found: dict[str, JsonValue] = {"playbook": run.plan.playbook, "case": run.plan.case}
        alert = self._names.get(frozenset(run.plan.labels.items()), "")
        return {**found, "alert": alert} if alert else found

    def _verdict(self, event: Event, run: _KnownRun) -> None:
        data: Mapping[str, Any] = event.data
        if run.plan.mode is not Mode.ENFORCE:
            return
        if data["word"] == "allow" and data["rung"] > 1:  # it begins there
            self._rung(event, run, int(data["rung"]))
        is_waiting = data["word"] == "wait"
        self._waits(event, run, {str(one["reason"]) for one in data["reasons"]} if is_waiting else set())

    def _waits(self, event: Event, run: _KnownRun, reasons: set[str]) -> None:
        for reason in sorted(reasons - run.waits_for):
            self._add(event, Kind.WAITS, reason, self._of(run))
        run.waits_for = frozenset(reasons)

    def _rung(self, event: Event, run: _KnownRun, rung: int) -> None:
        if rung not in run.rungs:
            run.rungs.add(rung)
            self._add(event, Kind.RUNG, str(rung), self._of(run))

    def _started(self, event: Event, run: _KnownRun) -> None:
        data: Mapping[str, Any] = event.data
        key = str(data["step"])
        run.sent[key] = data
        step = next((one for one in (*run.plan.steps, *run.plan.resolved) if one.key == key), None)
        if key.startswith(_MESSAGE) or (step is not None and step.is_message):
            return
        details: dict[str, JsonValue] = {
            "target": event.target,
            "params": data["params"],
            "outcome": Outcome.UNKNOWN.value,
        }
        self._act(event, Kind.DOES, str(data["action"]), key, {**self._of(run), **details})

    def _finished(self, event: Event, run: _KnownRun) -> None:
        data: Mapping[str, Any] = event.data
        key = str(data["step"])
        if (event.run_id, key) in self._acts:
            self._ended(event, key)
            return
        own = key.startswith(_MESSAGE)
        about = message_of(key)[0] if own else None
        if about is MessageKind.APPROVAL:
            return  # the question itself is what happened
        sent: Mapping[str, Any] = run.sent.get(key, {}).get("params", {})
        says = f"{sent.get('title', '')}\n{sent.get('body', '')}"
        for name in data["after"].get("told", []):
            details: dict[str, JsonValue] = {"about": about.value if about else "step", "says": says}
            self._add(event, Kind.TELLS, str(name), {**self._of(run), **details})

    def _act(self, event: Event, kind: Kind, action: str, key: str, details: Mapping[str, JsonValue]) -> None:
        place = self._acts.get((event.run_id, key))
        before = self.found[place] if place is not None else None
        if place is None or before is None:
            self._acts[event.run_id, key] = len(self.found)
            self._add(event, kind, action, {**details, "attempts": 1})
            return
        n_attempts = before.details["attempts"]
        assert isinstance(n_attempts, int)
        self.found[place] = replace(before, details={**before.details, "attempts": n_attempts + 1})

    def _ended(self, event: Event, key: str) -> None:
        place = self._acts.get((event.run_id, key))
        before = self.found[place] if place is not None else None
        if place is None or before is None:
            return
        if event.outcome == Outcome.UNCHANGED.value:
            self.found[place] = None  # nothing was done
            return
        self.found[place] = replace(before, details={**before.details, "outcome": event.outcome})

    def _end(self, event: Event, run: _KnownRun) -> None:
        data: Mapping[str, Any] = event.data
        is_settled = event.type is EventType.RUN_SETTLED  # its reason is that person's
        reason = Reason.SETTLED_BY_PERSON.value if is_settled else str(data["reason"])
        details = {**self._of(run), "reason": reason, "says": str(data["detail"])}
        if event.outcome == RunOutcome.REFUSED.value:
            self._add(event, Kind.REFUSES, str(data["reason"]), details)
        else:
            self._add(event, Kind.ENDS, event.outcome, details)
