"""``run.summary`` of every ending, word for word: what people read first in a message, and templates can use."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from plans import NOW, a_plan, a_run, a_situation, a_step, ended
from remediator.core.condition import Check, Comparison, Condition, Seen
from remediator.core.guard import Word
from remediator.core.move import Finish, Situation, next_move
from remediator.core.outcome import Outcome, RunOutcome
from remediator.core.playbook import Approval
from remediator.core.policy import Mode
from remediator.core.run import Answer, Question, Run
from remediator.core.verification import Watched
from remediator.errors import Reason

TEMP = Check(
    condition=Condition(name="temp_c", query="t", comparison=Comparison.BELOW, bound="82"),
    within=timedelta(minutes=5),
)
RESOLVED = Check(within=timedelta(minutes=30))
DONE = {"steps.restart": ended(Outcome.SUCCEEDED)}
LADDER = {
    "steps": (a_step("mild", rung=1), a_step("hard", rung=2)),
    "ladder": timedelta(hours=6),
    "verify": (TEMP,),
}
TELLING = (a_step("mild", rung=1), a_step("tell", rung=2, is_message=True))
MILD = {"steps.mild": ended(Outcome.SUCCEEDED)}
ASKED = Approval(ask=("oncall", "ops"), expires=timedelta(minutes=30))


def at_work(plan: dict[str, Any], **run: Any) -> Run:
    return a_run(a_plan(**plan), judged_at=NOW, **run)


def asked(**answer: Any) -> Run:
    question = Question(asked_at=NOW - timedelta(hours=1), ask=ASKED.ask, expires=ASKED.expires, **answer)
    return a_run(a_plan(approval=ASKED), questions={"rung.0": question})


def over(reason: str = "resolved", **more: Any) -> Situation:
    return a_situation(is_open=False, close_reason=reason, closed_at=NOW, n_alerts=0, opener_fires=False, **more)


FIRES = a_situation()

ENDINGS = {
    "all was done and nothing is verified": (
        at_work({}, steps=DONE), FIRES, "succeeded", "none", "all steps were done",
    ),
    "all was done and helped": (
        at_work(
            {"verify": (TEMP,)}, steps=DONE, verification=Outcome.SUCCEEDED,
            verification_detail="temp_c is 75, must be below 82",
        ),
        FIRES, "succeeded", "none", "all steps were done and temp_c is 75, must be below 82",
    ),
    "a rung helped": (
        at_work(
            LADDER, rung=1, steps=MILD, verification=Outcome.SUCCEEDED, verification_detail="temp_c is 75",
        ),
        FIRES, "succeeded", "none", "all steps were done after rung 1 of 2 and temp_c is 75",
    ),
    "there was nothing to change": (
        at_work({}, steps={"steps.restart": ended(Outcome.UNCHANGED, Reason.ALREADY_SO)}),
        FIRES, "unchanged", "already_so", "there was nothing to change",
    ),
    "a step failed": (
        at_work({}, steps={"steps.restart": ended(Outcome.FAILED, Reason.CONFLICT, "it is paused")}),
        FIRES, "failed", "conflict", "step restart failed: it is paused",
    ),
    "a step did not do what it should": (
        at_work({}, steps={"steps.restart": replace(
            ended(Outcome.FAILED, Reason.NOT_VERIFIED, "age is 5000"), verification=Outcome.FAILED
        )}),
        FIRES, "failed", "not_verified", "step restart failed: age is 5000",
    ),
    "nobody knows what a step did": (
        at_work({}, steps={"steps.restart": ended(Outcome.UNKNOWN, Reason.UNKNOWN_EFFECT, "no answer came")}),
        FIRES, "unknown", "unknown_effect", "step restart: no answer came",
    ),
    "it did not help": (
        at_work(
            {"verify": (TEMP,)}, steps=DONE, verification=Outcome.FAILED,
            verification_detail="temp_c is 88, must be below 82",
        ),
        FIRES, "ineffective", "did_not_help", "it did not help: temp_c is 88, must be below 82",
    ),
    "the alert fires on": (
        at_work(
            {"verify": (RESOLVED,)}, steps=DONE, verification=Outcome.FAILED,
            verification_detail="the alert still fires",
        ),
        FIRES, "ineffective", "still_firing", "it did not help: the alert still fires",
    ),
    "the last rung only told people": (
        at_work({**LADDER, "steps": TELLING}, rung=2, steps={**MILD, "steps.tell": ended(Outcome.SUCCEEDED)}),
        FIRES, "ineffective", "did_not_help", "no rung helped after rung 2 of 2, which only tells people",
    ),
    "nobody knows whether it helped": (
        at_work(
            {"verify": (TEMP,)}, steps=DONE, verification=Outcome.UNKNOWN,
            verification_detail="temp_c has no value, must be below 82",
        ),
        FIRES, "unverified", "no_value", "whether it helped could not be seen: temp_c has no value, must be below 82",
    ),
    "nobody knows whether a step did what it should": (
        at_work(
            {},
            steps={"steps.restart": replace(ended(Outcome.SUCCEEDED), verification=Outcome.UNKNOWN)},
            watched={"steps.restart": (Watched(seen=Seen.NO_VALUE, detail="age has no value"),)},
        ),
        FIRES, "unverified", "no_value", "whether step restart did what it should could not be seen: age has no value",
    ),
    "people said no": (
        asked(answer=Answer.DENIED, by="mia", reason="not today", answered_at=NOW),
        FIRES, "refused", "denied", "mia said no: not today",
    ),
    "nobody answered": (
        asked(), FIRES, "expired", "approval_expired", "nobody answered within 30m (asked: oncall, ops)",
    ),
    "it was resolved before anything was done": (
        a_run(), over(), "cancelled", "resolved", "the alert was resolved before anything was done",
    ),
    "it was resolved before the next step": (
        at_work({"steps": (a_step(), a_step("more")), "stop_on_resolve": True}, steps=DONE),
        over(), "cancelled", "resolved", "the alert was resolved before the next step",
    ),
    "it was resolved before the next rung": (
        a_run(a_plan(**LADDER), rung=2, steps=MILD),
        over(), "cancelled", "resolved", "the alert was resolved before rung 2",
    ),
    "a person ended it": (
        a_run(cancelled_by="mia"), FIRES, "cancelled", "cancelled_by_person", "cancelled by mia",
    ),
    "its playbook was removed": (
        a_run(), a_situation(mode=None), "cancelled", "playbook_gone", "its playbook was removed",
    ),
    "its playbook was disabled": (
        a_run(), a_situation(mode=Mode.DISABLED), "cancelled", "playbook_disabled", "its playbook was disabled",
    ),
    "its policy was set to observe": (
        a_run(), a_situation(mode=Mode.OBSERVE),
        "cancelled", "mode_observe", "its playbook or policy was set to observe",
    ),
    "the alert expired": (
        a_run(), over("expired"), "stale", "expired", "nothing more was heard of the alert before its turn came",
    ),
    "it only observes": (
        a_run(a_plan(mode=Mode.OBSERVE), would_be=Word.WAIT), a_situation(mode=Mode.OBSERVE),
        "observed", "mode_observe", "mode is observe; the verdict was wait",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("run", "now", "outcome", "reason", "summary"), ENDINGS.values(), ids=list(ENDINGS))
def test_summary_when_a_run_ends_so_then_says_this(
    run: Run, now: Situation, outcome: str, reason: str, summary: str
) -> None:
    end = next_move(run, now)
    assert end == Finish(RunOutcome(outcome), Reason(reason), summary)
    context = replace(run, outcome=end.outcome, reason=end.reason, detail=end.detail).context(1)
    assert context["run"] == {**run.plan.context["run"], "outcome": outcome, "reason": reason, "summary": summary}  # type: ignore[dict-item]


def test_summary_table_has_every_ending() -> None:
    assert {RunOutcome(row[2]) for row in ENDINGS.values()} == set(RunOutcome)
