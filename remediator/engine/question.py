"""What people are asked about a run, read from its log: for the API, the approval page, and whoever checks an answer.

Takes the recorded events of one run → ``Asked``. It only reads: an answer is checked and recorded by ``engine.people``,
from a look of its own inside the transaction that records it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from remediator.core.event import EventType, RecordedEvent, utc_text
from remediator.core.move import time_away
from remediator.core.plan import PlannedStep, Runs
from remediator.core.run import Answer, Question, Run, fold
from remediator.errors import Reason

Gaps = Sequence[tuple[datetime, datetime]]
"""When the engine was away: that time does not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One question about a run, answered or open: the newest that there is.

    Attributes:
        number: of the question in its run; see ``core.run.Question``.
        key: what it is about, a ``core.run.rung_key`` or a step's key.
        rung: where the run was on its ladder; 0 without one.
        expires_at: as far as is known now; time in which the engine is away moves it on.
        targets, affects: as the log has them, of the verdict before people were asked.
    """

    run: Run
    number: int
    key: str
    rung: int
    question: Question
    expires_at: datetime
    targets: tuple[Mapping[str, Any], ...]
    affects: tuple[Mapping[str, Any], ...]

    @property
    def is_open(self) -> bool:
        """Nobody has answered, and the run has not ended. It may have expired all the same."""
        return self.question.answer is Answer.OPEN and self.run.outcome is None

    @property
    def steps(self) -> tuple[PlannedStep, ...]:
        """What a yes lets it do: the step that is asked for, else the steps of the rung that may run."""
        step = self.run.find(self.key)
        asked = (step,) if step is not None else self.run.plan.of_rung(self.rung)
        return tuple(one for one in asked if one.runs is not Runs.NO)


def newest_question(recorded: Sequence[RecordedEvent], gaps: Gaps, now: datetime) -> tuple[Run, Asked | None]:
    """The run, and what people were last asked about it.

    Args:
        recorded: the run's events, in the log's order.

    Returns:
        None for the question when nobody was asked since the plan was made (anew).
    """
    run = fold([one.event for one in recorded])
    asking = next((one for one in reversed(recorded) if one.event.type is EventType.APPROVAL_ASKED), None)
    asked: Mapping[str, Any] = asking.event.data if asking is not None else {}
    question = run.questions.get(asked.get("key", ""))
    if asking is None or question is None:
        return run, None
    before = (one.event for one in reversed(recorded) if one.seq < asking.seq)
    verdict: Mapping[str, Any] = next((event.data for event in before if event.type is EventType.VERDICT_GIVEN), {})
    return run, Asked(
        run=run,
        number=question.number,
        key=asked["key"],
        rung=asked["rung"],
        question=question,
        expires_at=question.expires_at(time_away(gaps, question.asked_at, now)),
        targets=tuple(verdict.get("targets", ())),
        affects=tuple(verdict.get("affects", ())),
    )


def why_not(run: Run, asked: Asked | None, now: datetime, number: int = 0) -> str:
    """Why no answer can be given, ``asks nobody…``, to follow "run ID"; "" when it can.

    Args:
        number: of the question that is meant; 0 = whichever is open.
    """
    if asked is None:
        if run.outcome is not None:
            return f"has ended already ({run.outcome}); it asked nobody"
        return "asks nobody; see remediator runs for what it does"
    if number not in (0, asked.number):
        return f"does not ask question {number} any more: look at what it asks now"
    question = asked.question
    if question.answered_at is not None:
        said = "approved" if question.answer is Answer.GIVEN else "denied"
        return f"was already {said} by {question.by} at {utc_text(question.answered_at)}: {question.reason}"
    if run.reason is Reason.APPROVAL_EXPIRED or (asked.is_open and now >= asked.expires_at):
        return f"asks no more: its question expired at {utc_text(asked.expires_at)}"
    if run.outcome is not None:
        return f"has ended already ({run.outcome}): {run.detail}"
    return f"is to end: cancelled by {run.cancelled_by}" if run.cancelled_by else ""
