"""A run's state is ``fold`` over its events. Pure; what comes next is ``core.move``'s.

Takes the events of one run, in the log's order → ``Run``. There is no other state of a run: a crash between any two
events loses nothing, since the next look folds the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from remediator.core.event import Event, EventType, utc_time
from remediator.core.guard import Word
from remediator.core.outcome import Outcome, RunOutcome
from remediator.core.plan import Plan, PlannedStep, unpack_plan
from remediator.core.policy import Mode
from remediator.core.render import Context
from remediator.errors import Reason


class Phase(StrEnum):
    """Where a run is, for lists and metrics."""

    HOLDING = "holding"
    WAITING = "waiting"
    ACTING = "acting"
    VERIFYING = "verifying"
    ENDED = "ended"
    CLOSED = "closed"


class MessageKind(StrEnum):
    """The engine's own texts. The step key is ``message.<kind>``."""

    WAITING = "waiting"
    REPORT = "report"
    ESCALATE = "escalate"
    STILL_FIRING = "still_firing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try of one step.

    Attributes:
        number: from 1.
        before: what ``observe`` saw just before.
        outcome: None while it has no end.
        retry_at: when the next one is due; None when this was the last.
    """

    number: int
    started_at: datetime
    timeout: timedelta
    before: Mapping[str, Any]
    targets: tuple[str, ...]
    outcome: Outcome | None = None
    reason: Reason = Reason.NONE
    detail: str = ""
    has_changed: bool = False
    after: Mapping[str, Any] = field(default_factory=dict)
    finished_at: datetime | None = None
    retry_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepState:
    """How far one step is.

    Attributes:
        attempts: in order.
        outcome: None until the step has ended.
    """

    attempts: tuple[Attempt, ...] = ()
    outcome: Outcome | None = None
    reason: Reason = Reason.NONE
    detail: str = ""
    ended_at: datetime | None = None

    @property
    def open_attempt(self) -> Attempt | None:
        """The attempt that has begun and has no end."""
        return self.attempts[-1] if self.attempts and self.attempts[-1].outcome is None else None

    @property
    def has_changed(self) -> bool:
        """Whether the world was changed, or may have been."""
        return any(attempt.has_changed for attempt in self.attempts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """``fold`` of a run's events.

    Attributes:
        n_events: of the engine's own; its next one is ``n_events + 1``.
        waits_since: when its turn first came and it had to wait; None when it did not.
        waits_for: what it waits for now, as last recorded: ``rule:reason`` each, () when nothing.
        judged_at: of the newest verdict that allowed it.
        planned_targets: ref → (uid, owner), as the allowing verdict saw them.
        fired_at_end: whether its subject still fired when it ended.
        outcome: None until it has ended; a settled run bears the outcome that settling gave it.
    """

    plan: Plan
    n_events: int
    created_at: datetime
    waits_since: datetime | None = None
    waits_for: tuple[str, ...] = ()
    judged_at: datetime | None = None
    would_be: Word | None = None
    planned_targets: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    steps: Mapping[str, StepState] = field(default_factory=dict)
    verification: Outcome | None = None
    cancelled_by: str = ""
    outcome: RunOutcome | None = None
    reason: Reason = Reason.NONE
    detail: str = ""
    ended_at: datetime | None = None
    fired_at_end: bool = True

    def step(self, key: str) -> StepState:
        """How far a step is; the empty state for one that has not begun."""
        return self.steps.get(key, StepState())

    @property
    def is_admitted(self) -> bool:
        """It was allowed to act."""
        return self.judged_at is not None

    @property
    def has_acted(self) -> bool:
        """It changed the world, or may have."""
        return any(self.step(step.key).has_changed for step in self.plan.steps if not step.is_message)

    @property
    def has_done_something(self) -> bool:
        """Any of its steps was carried out, messages too."""
        return any(
            self.step(step.key).outcome is Outcome.SUCCEEDED or self.step(step.key).has_changed
            for step in self.plan.steps
        )

    @property
    def has_attempted(self) -> bool:
        """A step has begun."""
        return any(self.step(step.key).attempts for step in self.plan.steps)

    @property
    def steps_ended_at(self) -> datetime | None:
        """When the last step ended."""
        ends = [moment for step in self.plan.steps if (moment := self.step(step.key).ended_at) is not None]
        return max(ends, default=None)

    def find(self, key: str) -> PlannedStep | None:
        """The planned step of this key."""
        return next((step for step in (*self.plan.steps, *self.plan.resolved) if step.key == key), None)

    def context(self, n_alerts: int) -> Context:
        """What late templates see: the plan's frozen context, and what has happened since."""
        frozen_run = self.plan.context.get("run", {})
        assert isinstance(frozen_run, Mapping)
        done = {
            step.name: {
                "outcome": (state.outcome or Outcome.SKIPPED).value if state.outcome else "",
                "before": dict(state.attempts[-1].before) if state.attempts else {},
                "after": dict(state.attempts[-1].after) if state.attempts else {},
            }
            for step in self.plan.steps
            for state in (self.step(step.key),)
        }
        return {
            **self.plan.context,
            "alerts": n_alerts,
            "steps": done,
            "run": {
                **frozen_run,
                "outcome": self.outcome.value if self.outcome else "",
                "reason": self.reason.value,
                "summary": self.detail,
            },
        }


def fold(events: Sequence[Event]) -> Run:
    """The run that these events, in the log's order, make. The first is ``plan_made`` or ``plan_refused``.

    Raises:
        ValueError: the log is not one that the engine writes.
    """
    if not events or events[0].type not in (EventType.PLAN_MADE, EventType.PLAN_REFUSED):
        raise ValueError("a run's log begins with plan_made or plan_refused")
    run = Run(plan=unpack_plan(_map(events[0].data["plan"])), n_events=0, created_at=events[0].at)
    for event in events:
        run = replace(_after(run, event), n_events=run.n_events + (event.n > 0))
    return run


def _after(run: Run, event: Event) -> Run:
    data: Mapping[str, Any] = event.data
    match event.type:
        case EventType.PLAN_MADE:  # a second one: planned anew, and to be judged anew
            return replace(run, plan=unpack_plan(data["plan"]), judged_at=None, planned_targets={})
        case EventType.PLAN_REFUSED:
            return replace(
                run,
                outcome=RunOutcome.REFUSED,
                reason=Reason(data["reason"]),
                detail=data["detail"],
                ended_at=event.at,
            )
        case EventType.TURN_WAITED:
            return replace(run, waits_since=run.waits_since or event.at, waits_for=tuple(data["waits_for"]))
        case EventType.VERDICT_GIVEN:
            return _after_verdict(run, event.at, data)
        case EventType.STEP_SKIPPED:
            state = replace(
                run.step(data["step"]),
                outcome=Outcome(data["outcome"]),
                reason=Reason(data["reason"]),
                detail=data["detail"],
                ended_at=event.at,
            )
            return _with_step(run, data["step"], state)
        case EventType.ATTEMPT_STARTED:
            before = run.step(data["step"])
            attempt = Attempt(
                number=data["attempt"],
                started_at=event.at,
                timeout=timedelta(milliseconds=data["timeout_ms"]),
                before=data["before"],
                targets=tuple(data["targets"]),
            )
            return _with_step(run, data["step"], replace(before, attempts=(*before.attempts, attempt)))
        case EventType.ATTEMPT_FINISHED:
            return _after_attempt(run, event.at, data)
        case EventType.VERIFICATION_FINISHED:
            return replace(run, verification=Outcome(data["outcome"]))
        case EventType.CANCEL_REQUESTED:
            return replace(run, cancelled_by=event.actor)
        case EventType.RUN_FINISHED:
            return replace(
                run,
                outcome=RunOutcome(data["outcome"]),
                reason=Reason(data["reason"]),
                detail=data["detail"],
                ended_at=event.at,
                fired_at_end=data["still_fires"],
            )
        case EventType.RUN_SETTLED:
            return replace(
                run,
                outcome=RunOutcome(data["outcome"]),
                reason=Reason.SETTLED_BY_PERSON,
                detail=data["detail"],
            )
        case _:
            raise ValueError(f"{event.type} is not an event of a run")


def _after_verdict(run: Run, at: datetime, data: Mapping[str, Any]) -> Run:
    word = Word(data["word"])
    if word is Word.WAIT:
        return replace(run, waits_since=run.waits_since or at, waits_for=tuple(data["waits_for"]), would_be=word)
    if word is Word.ALLOW:
        targets = {target["ref"]: (target["uid"], target["owner"]) for target in data["targets"]}
        return replace(
            run,
            judged_at=at if run.plan.mode is Mode.ENFORCE else None,
            would_be=word,
            waits_for=(),
            planned_targets=targets,
        )
    return replace(run, would_be=word)


def _after_attempt(run: Run, at: datetime, data: Mapping[str, Any]) -> Run:
    state = run.step(data["step"])
    retry_at = utc_time(data["retry_at"]) if data["retry_at"] else None
    last = replace(
        state.attempts[-1],
        outcome=Outcome(data["outcome"]),
        reason=Reason(data["reason"]),
        detail=data["detail"],
        has_changed=data["changed"],
        after=data["after"],
        finished_at=at,
        retry_at=retry_at,
    )
    state = replace(state, attempts=(*state.attempts[:-1], last))
    if retry_at is None:
        state = replace(state, outcome=last.outcome, reason=last.reason, detail=last.detail, ended_at=at)
    return _with_step(run, data["step"], state)


def _with_step(run: Run, key: str, state: StepState) -> Run:
    return replace(run, steps={**run.steps, key: state})


def _map(value: Any) -> Mapping[str, Any]:
    assert isinstance(value, Mapping)
    return value
