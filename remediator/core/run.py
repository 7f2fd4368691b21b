"""A run's state is ``fold`` over its events. Pure; what comes next is ``core.move``'s.

Takes the events of one run, in the log's order → ``Run``. There is no other state of a run: a crash between any two
events loses nothing, since the next look folds the same ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from remediator.core.action import JsonValue
from remediator.core.condition import Seen
from remediator.core.event import Event, EventType, utc_time
from remediator.core.guard import Word
from remediator.core.outcome import Outcome, RunOutcome
from remediator.core.plan import Plan, PlannedStep, unpack_plan
from remediator.core.playbook import Approval
from remediator.core.policy import Mode
from remediator.core.render import Context
from remediator.core.verification import Watched
from remediator.errors import Reason


class Phase(StrEnum):
    """Where a run is, for lists and metrics."""

    HOLDING = "holding"
    WAITING = "waiting"
    ASKING = "asking"
    ACTING = "acting"
    VERIFYING = "verifying"
    ENDED = "ended"
    CLOSED = "closed"


class MessageKind(StrEnum):
    """The engine's own texts."""

    WAITING = "waiting"
    APPROVAL = "approval"
    """Whether it may act; about each rung or step that is asked for."""
    BREAKER = "breaker"
    """That this run tripped one; about each."""
    REPORT = "report"
    ESCALATE = "escalate"
    STILL_FIRING = "still_firing"
    LEASE_KEPT = "lease_kept"
    UNDO_FAILED = "undo_failed"
    DRIFTED = "drifted"


def message_key(kind: MessageKind, about: str = "") -> str:
    """The step key of one of the engine's own texts: ``message.escalate``, ``message.approval.rung.1``."""
    return f"message.{kind.value}.{about}" if about else f"message.{kind.value}"


def message_of(step_key: str) -> tuple[MessageKind, str]:
    """Kind, and what it is about, of a ``message_key``."""
    kind, _, about = step_key.removeprefix("message.").partition(".")
    return MessageKind(kind), about


def rung_key(rung: int) -> str:
    """What a playbook's approval is asked for: each of its rungs; ``rung.0`` is a whole plan without a ladder."""
    return f"rung.{rung}"


def question_data(key: str, approval: Approval, rung: int) -> dict[str, JsonValue]:
    """What ``approval_asked`` says.

    Args:
        key: ``rung_key`` or the key of the step that people are asked for.
    """
    expires_ms = int(approval.expires.total_seconds() * 1000)
    return {"key": key, "ask": list(approval.ask), "expires_ms": expires_ms, "rung": rung}


class Answer(StrEnum):
    """What people said."""

    OPEN = ""
    GIVEN = "given"
    DENIED = "denied"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """People were asked whether it may act.

    Attributes:
        ask: names of notification targets.
        number: what people call it by: its place in the run's log, which no other question of the run has.
        expires: of time in which the engine was up.
        by, reason, answered_at: of the answer; "" and None while it is open.
        is_judged: a verdict has let the run act since the answer. By the log's order: a clock may be set back.
    """

    asked_at: datetime
    ask: tuple[str, ...]
    expires: timedelta
    number: int = 1
    answer: Answer = Answer.OPEN
    by: str = ""
    reason: str = ""
    answered_at: datetime | None = None
    is_judged: bool = False

    def expires_at(self, away: timedelta) -> datetime:
        """Until when people may answer, where the engine was away for so long since it was asked."""
        return self.asked_at + self.expires + away


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
        verification: how its own ``verify`` ended; a false one makes the step failed.
    """

    attempts: tuple[Attempt, ...] = ()
    outcome: Outcome | None = None
    reason: Reason = Reason.NONE
    detail: str = ""
    ended_at: datetime | None = None
    verification: Outcome | None = None

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
        rung: where it is on its ladder; 0 without one, and before its first verdict.
        planned_targets: ref → (uid, owner), as the allowing verdict saw them.
        asked_targets: as they were when people were last asked on this rung; None when nobody was.
        questions: ``rung_key`` or step key → what people were asked and said.
        tripped: breakers that its verdict tripped.
        why_tripped: breaker → what it counted, for people.
        watched: what is known of each check of the verification of a step (by its key) or of the rung ("").
        taken_back: keys of steps whose change was undone.
        lease_news: what became of what it changed, that people are told: kind → target → detail.
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
    rung: int = 0
    planned_targets: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    asked_targets: Mapping[str, tuple[str, str]] | None = None
    questions: Mapping[str, Question] = field(default_factory=dict)
    tripped: tuple[str, ...] = ()
    why_tripped: Mapping[str, str] = field(default_factory=dict)
    steps: Mapping[str, StepState] = field(default_factory=dict)
    watched: Mapping[str, tuple[Watched, ...]] = field(default_factory=dict)
    verification: Outcome | None = None
    verification_detail: str = ""
    taken_back: frozenset[str] = frozenset()
    lease_news: Mapping[MessageKind, Mapping[str, str]] = field(default_factory=dict)
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
        """It was allowed to act, on the rung where it is."""
        return self.judged_at is not None

    @property
    def current_steps(self) -> tuple[PlannedStep, ...]:
        """The steps of the rung where it is; all without a ladder."""
        return self.plan.of_rung(self.rung)

    @property
    def open_question(self) -> str | None:
        """The ``rung_key`` or step key that people are asked for and have not answered."""
        return next((key for key, question in self.questions.items() if question.answer is Answer.OPEN), None)

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
        """When the last step of its rung ended."""
        ends = [moment for step in self.current_steps if (moment := self.step(step.key).ended_at) is not None]
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
    return fold_on(run, events)


def fold_on(run: Run, events: Iterable[Event]) -> Run:
    """What later events make of a run: ``fold`` of some and this of the others is ``fold`` of them all.

    Raises:
        ValueError: as ``fold``.
    """
    for event in events:
        run = replace(_after(run, event), n_events=run.n_events + (event.n > 0))
    return run


def _after(run: Run, event: Event) -> Run:
    data: Mapping[str, Any] = event.data
    match event.type:
        case EventType.PLAN_MADE:  # a second one: planned anew, and to be judged and asked for anew
            asked = message_key(MessageKind.APPROVAL)
            return replace(
                run,
                plan=unpack_plan(data["plan"]),
                judged_at=None,
                planned_targets={},
                asked_targets=None,
                questions={},
                steps={key: state for key, state in run.steps.items() if not key.startswith(asked)},
            )
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
        case EventType.VERIFICATION_LOOKED:
            return replace(run, watched={**run.watched, data["step"]: tuple(_watched(one) for one in data["checks"])})
        case EventType.VERIFICATION_FINISHED:
            return _after_verification(run, data)
        case EventType.RUNG_CLIMBED:
            return _after_climb(run, data["to"])
        case EventType.APPROVAL_ASKED:
            question = Question(
                asked_at=event.at,
                ask=tuple(data["ask"]),
                expires=timedelta(milliseconds=data["expires_ms"]),
                number=event.n,
            )
            # Asking is no waiting, of which people are told.
            return replace(
                run,
                questions={**run.questions, data["key"]: question},
                asked_targets=run.planned_targets,
                waits_since=None,
                waits_for=(),
            )
        case EventType.APPROVAL_GIVEN | EventType.APPROVAL_DENIED:
            answered = replace(
                run.questions[data["key"]],
                answer=Answer.GIVEN if event.type is EventType.APPROVAL_GIVEN else Answer.DENIED,
                by=event.actor,
                reason=data["reason"],
                answered_at=event.at,
            )
            return replace(run, questions={**run.questions, data["key"]: answered})
        case EventType.LEASE_KEPT:
            return _with_lease_news(run, MessageKind.LEASE_KEPT, data)
        case EventType.UNDO_FINISHED if data["outcome"] in (Outcome.FAILED, Outcome.UNKNOWN):
            return _with_lease_news(run, MessageKind.UNDO_FAILED, data)
        case EventType.LEASE_CLOSED if data["how"] != "undone":
            return _with_lease_news(run, MessageKind.DRIFTED, data)
        case EventType.LEASE_CLOSED:
            return replace(run, taken_back=run.taken_back | {data["step"]})
        case (
            EventType.LEASE_OPENED
            | EventType.LEASE_RELEASED
            | EventType.UNDO_REQUESTED
            | EventType.UNDO_STARTED
            | EventType.UNDO_FINISHED
            | EventType.NOTE_ADDED
        ):
            return run  # leases have a store of their own, and notes are for people
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


def _watched(data: Mapping[str, Any]) -> Watched:
    return Watched(
        seen=Seen(data["seen"]) if data["seen"] else None,
        met_since=utc_time(data["met_since"]) if data["met_since"] else None,
        detail=data["detail"],
        is_done=data["is_done"],
        is_over=data["is_over"],
    )


def _after_verification(run: Run, data: Mapping[str, Any]) -> Run:
    outcome, detail = Outcome(data["outcome"]), data["detail"]
    if not data["step"]:
        return replace(run, verification=outcome, verification_detail=detail)
    state = replace(run.step(data["step"]), verification=outcome)
    if outcome is Outcome.FAILED:
        state = replace(state, outcome=Outcome.FAILED, reason=Reason.NOT_VERIFIED, detail=detail)
    return _with_step(run, data["step"], state)


def _after_climb(run: Run, rung: int) -> Run:
    """On the next rung: judged, asked for and verified anew."""
    watched = {key: seen for key, seen in run.watched.items() if key}
    return replace(
        run, rung=rung, judged_at=None, asked_targets=None, waits_since=None, waits_for=(), watched=watched,
        verification=None, verification_detail="",
    )  # fmt: skip


def _with_lease_news(run: Run, kind: MessageKind, data: Mapping[str, Any]) -> Run:
    news = {**run.lease_news.get(kind, {}), data["target"]: data["detail"]}
    return replace(run, lease_news={**run.lease_news, kind: news})


def _after_verdict(run: Run, at: datetime, data: Mapping[str, Any]) -> Run:
    word = Word(data["word"])
    run = replace(
        run,
        tripped=(*run.tripped, *(name for name in data["tripped"] if name not in run.tripped)),
        why_tripped={
            **run.why_tripped,
            **{one["trips"]: one["detail"] for one in data.get("reasons", ()) if "trips" in one},
        },
    )
    if word is Word.WAIT:
        return replace(run, waits_since=run.waits_since or at, waits_for=tuple(data["waits_for"]), would_be=word)
    if word is Word.ALLOW:
        targets = {target["ref"]: (target["uid"], target["owner"]) for target in data["targets"]}
        is_admitted = run.plan.mode is Mode.ENFORCE and not data["asks"]
        questions = {
            key: replace(question, is_judged=(is_admitted and question.answer is not Answer.OPEN) or question.is_judged)
            for key, question in run.questions.items()
        }
        return replace(
            run,
            questions=questions,
            judged_at=at if is_admitted else run.judged_at,
            rung=data["rung"],
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
