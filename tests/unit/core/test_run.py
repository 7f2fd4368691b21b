"""A run's state is ``fold`` over its events, and ``next_move`` says what comes next: on every prefix, always."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plans import NOW, a_plan, a_run, a_situation, a_step, an_attempt, ended
from remediator.core.condition import Check
from remediator.core.event import Event, EventType, utc_text
from remediator.core.guard import Pause, Word
from remediator.core.move import (
    WAITING_FOR,
    WHY_NOT,
    Ask,
    Climb,
    Close,
    Finish,
    Heard,
    Judge,
    Look,
    Replan,
    Situation,
    Skip,
    Sleep,
    Tell,
    Try,
    Verify,
    WaitForWord,
    is_known_to_fire,
    is_to_escalate,
    next_move,
    phase_of,
    tell_gap,
    tell_next_at,
    waiting_text,
)
from remediator.core.outcome import Outcome, RunOutcome
from remediator.core.plan import Plan, Runs, pack_plan
from remediator.core.playbook import Approval
from remediator.core.policy import Mode
from remediator.core.run import (
    Answer,
    MessageKind,
    Phase,
    Question,
    Run,
    StepState,
    _after,
    fold,
    message_key,
    message_of,
    question_data,
    rung_key,
)
from remediator.errors import Reason

MINUTE = timedelta(minutes=1)
PAUSE = Pause(by="alice", reason="maintenance", at="")
RESOLVED = {"is_open": False, "close_reason": "resolved", "closed_at": NOW, "n_alerts": 0, "opener_fires": False}
EXPIRED = {**RESOLVED, "close_reason": "expired"}
TWO = a_plan(steps=(a_step("one"), a_step("two")))
AT_WORK = {"judged_at": NOW}
HOUR = timedelta(hours=1)


def an_end(outcome: str, reason: str, detail: str) -> dict[str, Any]:
    """What ``run_finished`` holds."""
    return {"outcome": outcome, "reason": reason, "detail": detail, "still_fires": True}


def a_start(step: str, **more: Any) -> dict[str, Any]:
    """What ``attempt_started`` holds."""
    return {"step": step, "attempt": 1, "timeout_ms": 1000, "before": {}, "targets": ["a"], **more}


def a_finish(step: str, **more: Any) -> dict[str, Any]:
    """What ``attempt_finished`` holds."""
    done = {"step": step, "attempt": 1, "outcome": "succeeded", "reason": "none", "detail": "", "changed": True}
    return {**done, "after": {}, "retry_at": "", **more}


def fold_climb(run: Run, rung: int) -> Run:
    """The run after it has climbed."""
    return _after(run, Event(type=EventType.RUNG_CLIMBED, at=NOW, n=9, data={"from": run.rung, "to": rung}))


def a_verdict(word: str = "allow", **more: Any) -> dict[str, Any]:
    """What ``verdict_given`` holds."""
    return {"word": word, "waits_for": [], "targets": [], "rung": 0, "asks": False, "tripped": [], **more}


def move(run: Any, **situation: Any) -> Any:
    return next_move(run, a_situation(**situation))


# -- fold


def test_fold_when_the_log_does_not_begin_with_a_plan_then_it_is_refused() -> None:
    with pytest.raises(ValueError, match="begins with plan_made"):
        fold([])
    with pytest.raises(ValueError, match="begins with plan_made"):
        fold([Event(type=EventType.RUN_FINISHED, at=NOW)])


def test_fold_when_an_event_is_of_no_run_then_it_is_refused() -> None:
    made = Event(type=EventType.PLAN_MADE, at=NOW, n=1, data={"plan": pack_plan(a_plan())})
    with pytest.raises(ValueError, match="is not an event of a run"):
        fold([made, Event(type=EventType.PAUSED, at=NOW)])


def test_fold_when_planned_anew_then_the_verdict_before_counts_no_more() -> None:
    target = {"ref": "a", "uid": "b", "owner": ""}
    events = [
        Event(type=EventType.PLAN_MADE, at=NOW, n=1, data={"plan": pack_plan(a_plan())}),
        Event(type=EventType.VERDICT_GIVEN, at=NOW, n=2, data=a_verdict(targets=[target])),
    ]
    assert fold(events).planned_targets == {"a": ("b", "")}
    run = fold([*events, Event(type=EventType.PLAN_MADE, at=NOW, n=3, data={"plan": pack_plan(a_plan(owner="x"))})])
    assert (run.is_admitted, run.planned_targets, run.plan.owner, run.n_events) == (False, {}, "x", 3)


def test_fold_when_a_person_adds_an_event_then_the_engines_count_stays() -> None:
    made = Event(type=EventType.PLAN_MADE, at=NOW, n=1, data={"plan": pack_plan(a_plan())})
    run = fold([made, Event(type=EventType.CANCEL_REQUESTED, at=NOW, n=-1, actor="alice")])
    assert (run.n_events, run.cancelled_by) == (1, "alice")


# -- next_move: before its turn


@pytest.mark.parametrize(
    ("plan", "situation", "expected"),
    [
        (a_plan(), {}, Judge(0)),
        (a_plan(hold=MINUTE), {}, Sleep(NOW + MINUTE)),
        (a_plan(hold=MINUTE), {"now": NOW + MINUTE}, Judge(0)),
        (a_plan(), {"opener_fires": False}, Replan()),
        (a_plan(latched=True), {"opener_fires": False}, Judge(0)),
        (a_plan(is_by_hand=True), {"opener_fires": False}, Judge(0)),
        (a_plan(), {"up_since": NOW + MINUTE, "now": NOW + 29 * MINUTE}, Judge(0)),
        (a_plan(), {"up_since": NOW + MINUTE, "now": NOW + 30 * MINUTE}, WaitForWord(Reason.NOT_KNOWN_TO_FIRE)),
        (a_plan(is_by_hand=True), {"up_since": NOW + MINUTE, "now": NOW + 30 * MINUTE}, Judge(0)),
        (a_plan(latched=True), {"up_since": NOW + MINUTE, "now": NOW + 700 * MINUTE}, Judge(0)),
    ],
)
def test_next_move_when_its_turn_has_not_come_or_has(plan: Plan, situation: dict[str, Any], expected: Any) -> None:
    assert move(a_run(plan), **situation) == expected


@pytest.mark.parametrize(
    ("plan", "situation", "outcome", "reason"),
    [
        (a_plan(), RESOLVED, RunOutcome.CANCELLED, Reason.RESOLVED),
        (a_plan(), EXPIRED, RunOutcome.STALE, Reason.EXPIRED),
        (a_plan(), {"mode": None}, RunOutcome.CANCELLED, Reason.PLAYBOOK_GONE),
        (a_plan(), {"mode": Mode.DISABLED}, RunOutcome.CANCELLED, Reason.PLAYBOOK_DISABLED),
        (a_plan(), {"mode": Mode.OBSERVE}, RunOutcome.CANCELLED, Reason.MODE_OBSERVE),
        (a_plan(latched=True), {"now": NOW + 720 * MINUTE}, RunOutcome.STALE, Reason.NOT_KNOWN_TO_FIRE),
    ],
)
def test_next_move_when_the_subject_or_the_playbook_is_gone_then_the_run_ends_also_after_its_verdict(
    plan: Plan, situation: dict[str, Any], outcome: RunOutcome, reason: Reason
) -> None:
    for run in (a_run(plan), a_run(plan, **AT_WORK)):
        end = move(run, **situation)
        assert isinstance(end, Finish)
        assert (end.outcome, end.reason) == (outcome, reason)


def test_next_move_when_it_observes_then_it_ends_with_the_verdict_it_would_have_had() -> None:
    plan = a_plan(mode=Mode.OBSERVE)
    assert move(a_run(plan), mode=Mode.OBSERVE) == Judge(0)
    end = move(a_run(plan, would_be=Word.WAIT), mode=Mode.OBSERVE)
    assert (end.outcome, end.detail) == (RunOutcome.OBSERVED, "mode is observe; the verdict was wait")


def test_next_move_when_it_has_waited_for_tell_after_then_people_are_told_and_again_where_that_failed() -> None:
    run = a_run(waits_since=NOW, waits_for=("cooldown:cooldown",))
    assert move(run, now=NOW + 59 * MINUTE) == Judge(0)
    assert move(run, now=NOW + 60 * MINUTE) == Tell(MessageKind.WAITING, 1)
    failed = an_attempt(outcome=Outcome.FAILED, retry_at=NOW + 61 * MINUTE)
    run = replace(run, steps={"message.waiting": StepState(attempts=(failed,))})
    assert move(run, now=NOW + 60 * MINUTE) == Judge(0)
    assert move(run, now=NOW + 61 * MINUTE) == Tell(MessageKind.WAITING, 2)


def test_next_move_when_people_were_told_a_moment_ago_that_such_a_plan_waits_then_they_are_not_again() -> None:
    run = a_run(waits_since=NOW, waits_for=("cooldown:cooldown",))
    skipped = move(run, now=NOW + HOUR, has_told=frozenset({MessageKind.WAITING}))
    assert isinstance(skipped, Skip)
    assert (skipped.step_key, skipped.reason) == ("message.waiting", Reason.COOLDOWN)


def test_next_move_when_a_breaker_holds_it_then_nobody_is_told_of_each_plan() -> None:
    held = a_run(waits_since=NOW, waits_for=("breaker:breaker", "cooldown:cooldown"))
    assert move(held, now=NOW + 9 * HOUR) == Judge(0)
    assert tell_next_at(held) is None


def test_next_move_when_a_rung_waits_too_then_people_are_told_once_more() -> None:
    told = {"message.waiting": ended(Outcome.SUCCEEDED)}
    waits = {"waits_since": NOW, "waits_for": ("pause:paused",)}
    first = a_run(RUNGS, **waits, steps=told)
    assert move(first, now=NOW + HOUR, start_rung=1) == Judge(1)
    climbed = replace(fold_climb(on_rung(1, verification=Outcome.FAILED), 2), **waits)
    climbed = replace(climbed, steps={**climbed.steps, **told})
    assert move(climbed, now=NOW + 59 * MINUTE) == Judge(2)
    assert move(climbed, now=NOW + HOUR) == Tell(MessageKind.WAITING, 1, "rung.2")


# -- next_move: at work


@pytest.mark.parametrize(
    ("run", "situation", "expected"),
    [
        (a_run(TWO, **AT_WORK), {}, Try(TWO.steps[0], 1)),
        (a_run(TWO, **AT_WORK), {"pause": PAUSE}, Sleep(NOW + MINUTE)),
        (a_run(TWO, **AT_WORK), {"opener_fires": False}, Replan()),
        (a_run(TWO, judged_at=NOW - 2 * MINUTE), {"gap_ended_at": NOW - MINUTE}, Judge(0)),
        (a_run(TWO, **AT_WORK), {"gap_ended_at": NOW + MINUTE}, Try(TWO.steps[0], 1)),
        (a_run(TWO, **AT_WORK, steps={"steps.one": StepState(attempts=(an_attempt(),))}), {}, Look("steps.one")),
        (a_run(TWO, **AT_WORK, steps={"steps.one": ended(Outcome.SUCCEEDED)}), {}, Try(TWO.steps[1], 1)),
        (a_run(TWO, **AT_WORK, steps={"steps.one": ended(Outcome.UNCHANGED)}), RESOLVED, Try(TWO.steps[1], 1)),
        (a_run(TWO, **AT_WORK, steps={"steps.one": ended(Outcome.SUCCEEDED)}), EXPIRED, Try(TWO.steps[1], 1)),
    ],
)
def test_next_move_when_at_work(run: Any, situation: dict[str, Any], expected: Any) -> None:
    assert move(run, **situation) == expected


def test_next_move_when_a_message_is_next_then_a_pause_does_not_hold_it() -> None:
    step = a_step("tell", is_message=True)
    assert move(a_run(a_plan(steps=(step,)), **AT_WORK), pause=PAUSE) == Try(step, 1)


@pytest.mark.parametrize("closed", [RESOLVED, EXPIRED], ids=["resolved", "expired"])
def test_next_move_when_the_subject_ended_while_the_engine_was_away_then_no_further_act(closed: Any) -> None:
    run = a_run(TWO, judged_at=NOW - 2 * MINUTE, steps={"steps.one": ended(Outcome.SUCCEEDED)})
    end = move(run, **closed, gap_ended_at=NOW - MINUTE)
    assert isinstance(end, Finish)
    assert end.reason.value == closed["close_reason"]


def test_next_move_when_a_latched_run_that_acted_hears_nothing_for_too_long_after_an_absence_then_it_ends_stale() -> (
    None
):
    plan = replace(TWO, latched=True)
    run = a_run(plan, judged_at=NOW - 14 * HOUR, steps={"steps.one": ended(Outcome.SUCCEEDED)})
    end = move(run, gap_ended_at=NOW - MINUTE, last_word_at=NOW - 13 * HOUR)
    assert isinstance(end, Finish)
    assert end.outcome is RunOutcome.STALE


def test_next_move_when_a_late_if_cannot_be_decided_then_the_step_has_failed() -> None:
    step = a_step("two", runs=Runs.LATE, condition="steps.one.after.status | int > 3")
    done = ended(Outcome.SUCCEEDED)
    done = replace(done, attempts=(replace(done.attempts[0], after={"status": "running"}),))
    end = move(a_run(a_plan(steps=(a_step("one"), step)), **AT_WORK, steps={"steps.one": done}))
    assert isinstance(end, Skip)
    assert (end.step_key, end.reason, end.outcome) == ("steps.two", Reason.BAD_PARAMS, Outcome.FAILED)


def test_next_move_when_a_retry_is_due_after_its_budget_then_the_step_has_failed() -> None:
    failed = an_attempt(outcome=Outcome.FAILED, reason=Reason.TRANSIENT, retry_at=NOW + 2 * MINUTE)
    run = a_run(**AT_WORK, steps={"steps.restart": StepState(attempts=(failed,))})
    assert move(run) == Sleep(NOW + 2 * MINUTE)
    assert move(run, now=NOW + 10 * MINUTE) == Try(run.plan.steps[0], 2)
    end = move(run, now=NOW + 11 * MINUTE)
    assert isinstance(end, Skip)
    assert (end.reason, end.outcome) == (Reason.TRANSIENT, Outcome.FAILED)


# -- next_move: verification and end

CHECKED = a_plan(verify=(Check(within=10 * MINUTE), Check(within=30 * MINUTE)))


@pytest.mark.parametrize(
    ("plan", "situation", "expected"),
    [
        (CHECKED, {}, Verify("")),
        (CHECKED, RESOLVED, Verify("")),
        (CHECKED, EXPIRED, Verify("")),
        (CHECKED, {"mode": None, "pause": PAUSE}, Verify("")),
        (replace(CHECKED, is_by_hand=True), {}, Verify("")),
    ],
)
def test_next_move_when_all_steps_are_done_then_it_is_verified(
    plan: Plan, situation: dict[str, Any], expected: Any
) -> None:
    assert move(a_run(plan, **AT_WORK, steps={"steps.restart": ended(Outcome.SUCCEEDED)}), **situation) == expected


def test_next_move_when_nothing_was_changed_then_there_is_nothing_to_verify() -> None:
    end = move(a_run(CHECKED, **AT_WORK, steps={"steps.restart": ended(Outcome.UNCHANGED)}))
    assert (end.outcome, end.reason) == (RunOutcome.UNCHANGED, Reason.ALREADY_SO)


def test_next_move_when_cancelled_while_it_is_verified_then_the_run_ends() -> None:
    run = a_run(CHECKED, **AT_WORK, steps={"steps.restart": ended(Outcome.SUCCEEDED)}, cancelled_by="alice")
    end = move(run)
    assert isinstance(end, Finish)
    assert (end.outcome, end.reason) == (RunOutcome.CANCELLED, Reason.CANCELLED_BY_PERSON)


@pytest.mark.parametrize(
    ("verification", "outcome"),
    [
        (None, RunOutcome.SUCCEEDED),
        (Outcome.SUCCEEDED, RunOutcome.SUCCEEDED),
        (Outcome.FAILED, RunOutcome.INEFFECTIVE),
        (Outcome.UNKNOWN, RunOutcome.UNVERIFIED),
    ],
)
def test_next_move_when_the_looking_is_over_then_the_run_ends_so(
    verification: Outcome | None, outcome: RunOutcome
) -> None:
    plan = CHECKED if verification else a_plan()
    steps = {"steps.restart": ended(Outcome.SUCCEEDED)}
    end = move(a_run(plan, **AT_WORK, steps=steps, verification=verification))
    assert isinstance(end, Finish)
    assert end.outcome is outcome


def test_next_move_when_unknown_then_people_are_told_and_it_sleeps_until_somebody_settles_it() -> None:
    steps = {"steps.restart": ended(Outcome.UNKNOWN)}
    run = a_run(**AT_WORK, steps=steps, outcome=RunOutcome.UNKNOWN, ended_at=NOW)
    assert move(run) == Tell(MessageKind.ESCALATE, 1)
    told = {**steps, "message.escalate": ended(Outcome.SUCCEEDED), "message.report": ended(Outcome.SUCCEEDED)}
    assert move(replace(run, steps=told)) == Sleep(None)


def test_next_move_when_nothing_is_left_then_the_run_is_closed() -> None:
    run = a_run(a_plan(escalate_to=(), report_to=()), outcome=RunOutcome.FAILED, ended_at=NOW)
    assert move(run) == Close()


# -- next_move: the verification of a step

CHECKPOINT = a_step("checkpoint", verify=(Check(within=10 * MINUTE),))
THEN_RESTART = a_plan(steps=(CHECKPOINT, a_step("restart")))


def test_next_move_when_a_step_has_a_verification_then_the_next_waits_for_it() -> None:
    run = a_run(THEN_RESTART, **AT_WORK, steps={CHECKPOINT.key: ended(Outcome.SUCCEEDED)})
    assert move(run) == Verify(CHECKPOINT.key)
    seen = replace(run.steps[CHECKPOINT.key], verification=Outcome.SUCCEEDED)
    assert move(replace(run, steps={CHECKPOINT.key: seen})) == Try(THEN_RESTART.steps[1], 1)


@pytest.mark.parametrize(
    ("word", "outcome", "reason"),
    [
        ("failed", RunOutcome.FAILED, Reason.NOT_VERIFIED),
        ("unknown", RunOutcome.UNVERIFIED, Reason.NO_VALUE),
    ],
)
def test_next_move_when_a_step_was_not_seen_to_do_what_it_should_then_the_run_stops(
    word: str, outcome: RunOutcome, reason: Reason
) -> None:
    events = [
        Event(type=EventType.PLAN_MADE, at=NOW, n=1, data={"plan": pack_plan(THEN_RESTART)}),
        Event(type=EventType.VERDICT_GIVEN, at=NOW, n=2, data=a_verdict()),
        Event(type=EventType.ATTEMPT_STARTED, at=NOW, n=3, data=a_start(CHECKPOINT.key)),
        Event(type=EventType.ATTEMPT_FINISHED, at=NOW, n=4, data=a_finish(CHECKPOINT.key)),
        Event(
            type=EventType.VERIFICATION_FINISHED,
            at=NOW,
            n=5,
            data={"step": CHECKPOINT.key, "rung": 0, "outcome": word, "detail": "age is 5000, must be below 120"},
        ),
    ]
    run = fold(events)
    end = move(run)
    assert isinstance(end, Finish)
    assert (end.outcome, end.reason) == (outcome, reason)
    assert run.verification is None, "only the step was looked at"


# -- next_move: ladders

RUNGS = a_plan(
    steps=(a_step("one", rung=1), a_step("two", rung=2), a_step("tell", rung=3, is_message=True)),
    verify=(Check(within=10 * MINUTE),),
    ladder=6 * HOUR,
)


def on_rung(rung: int, **more: Any) -> Any:
    done = {step.key: ended(Outcome.SUCCEEDED) for step in RUNGS.steps if step.rung <= rung}
    return a_run(RUNGS, **({"judged_at": NOW, "rung": rung, "steps": done} | more))


def test_next_move_when_a_ladder_begins_then_where_the_last_run_leaves_it() -> None:
    assert move(a_run(RUNGS), start_rung=1) == Judge(1)
    assert move(a_run(RUNGS), start_rung=3) == Judge(3)
    assert move(a_run(RUNGS, **AT_WORK, rung=2)) == Try(RUNGS.steps[1], 1), "lower rungs are left out"


def test_next_move_when_a_rung_did_not_help_then_the_next_is_judged_anew() -> None:
    run = on_rung(1, verification=Outcome.FAILED)
    assert move(run) == Climb(2)
    climbed = fold_climb(run, 2)
    assert not climbed.is_admitted
    assert climbed.verification is None
    assert move(climbed) == Judge(2)
    assert move(climbed, start_rung=1) == Judge(2), "it does not begin again"


@pytest.mark.parametrize("verification", [Outcome.UNKNOWN, Outcome.SUCCEEDED])
def test_next_move_when_a_rung_was_not_seen_to_fail_then_there_is_no_climbing(verification: Outcome) -> None:
    assert isinstance(move(on_rung(1, verification=verification)), Finish)


def test_next_move_when_the_subject_ended_then_no_rung_starts() -> None:
    end = move(on_rung(1, verification=Outcome.FAILED), **RESOLVED)
    assert (end.outcome, end.reason) == (RunOutcome.INEFFECTIVE, Reason.STILL_FIRING)
    waiting = move(fold_climb(on_rung(1, verification=Outcome.FAILED), 2), **RESOLVED)
    assert (waiting.outcome, waiting.detail) == (RunOutcome.CANCELLED, "the alert was resolved before rung 2")


def test_next_move_when_the_last_rung_only_tells_people_then_it_is_not_verified_and_did_not_help() -> None:
    so = {step.key: ended(Outcome.UNCHANGED) for step in RUNGS.steps[:2]} | {"steps.tell": ended(Outcome.SUCCEEDED)}
    for run in (on_rung(3), on_rung(3, steps=so)):
        end = move(run)
        assert (end.outcome, end.reason) == (RunOutcome.INEFFECTIVE, Reason.DID_NOT_HELP)


def test_next_move_when_a_rung_has_nothing_to_change_then_it_is_looked_at_all_the_same_and_climbs() -> None:
    so = {"steps.one": ended(Outcome.UNCHANGED)}
    run = a_run(RUNGS, **AT_WORK, rung=1, steps=so)
    assert move(run) == Verify("")
    assert move(replace(run, verification=Outcome.FAILED)) == Climb(2)
    fine = move(replace(run, verification=Outcome.SUCCEEDED))
    assert (fine.outcome, fine.detail) == (RunOutcome.UNCHANGED, "there was nothing to change")


def test_next_move_when_a_run_begins_on_a_rung_of_messages_then_it_is_done_when_they_are_sent() -> None:
    sent = ended(Outcome.SUCCEEDED)
    end = move(a_run(RUNGS, **AT_WORK, rung=3, steps={"steps.tell": sent}))
    assert end.outcome is RunOutcome.SUCCEEDED


# -- next_move: approval

ASKING = a_plan(approval=Approval(ask=("oncall",), expires=30 * MINUTE))
STEP_ASKED = a_step("drain", approval=Approval(ask=("oncall",), expires=30 * MINUTE))
STEP_ASKS = a_plan(steps=(a_step("one"), STEP_ASKED))
QUESTION = Question(asked_at=NOW, ask=("oncall",), expires=30 * MINUTE)
YES = replace(QUESTION, answer=Answer.GIVEN, by="alice", reason="ok", answered_at=NOW + MINUTE)
NO = replace(YES, answer=Answer.DENIED, reason="not now")
ASKED_ALREADY = {"message.approval.rung.0": ended(Outcome.SUCCEEDED)}


def test_next_move_when_people_are_to_be_asked_then_it_is_judged_first_and_again_after_their_yes() -> None:
    assert move(a_run(ASKING)) == Judge(0, asks=True)
    asks = a_run(ASKING, questions={"rung.0": QUESTION})
    assert move(asks) == Tell(MessageKind.APPROVAL, 1, "rung.0")
    told = replace(asks, steps=ASKED_ALREADY)
    assert move(told) == Sleep(NOW + 30 * MINUTE)
    assert phase_of(told, a_situation()) is Phase.ASKING
    assert move(replace(told, questions={"rung.0": YES})) == Judge(0)


def test_next_move_when_it_observes_then_nobody_is_asked() -> None:
    assert move(a_run(replace(ASKING, mode=Mode.OBSERVE)), mode=Mode.OBSERVE) == Judge(0)


@pytest.mark.parametrize(
    ("question", "situation", "outcome", "reason"),
    [
        (NO, {}, RunOutcome.REFUSED, Reason.DENIED),
        (QUESTION, {"now": NOW + 30 * MINUTE}, RunOutcome.EXPIRED, Reason.APPROVAL_EXPIRED),
        (QUESTION, RESOLVED, RunOutcome.CANCELLED, Reason.RESOLVED),
        (QUESTION, {"mode": Mode.DISABLED}, RunOutcome.CANCELLED, Reason.PLAYBOOK_DISABLED),
        (YES, RESOLVED, RunOutcome.CANCELLED, Reason.RESOLVED),
    ],
)
def test_next_move_when_asking_ends_without_a_yes_then_so_does_the_run(
    question: Question, situation: dict[str, Any], outcome: RunOutcome, reason: Reason
) -> None:
    whole = a_run(ASKING, questions={"rung.0": question}, steps=ASKED_ALREADY)
    one = {"steps.one": ended(Outcome.SUCCEEDED), "message.approval.steps.drain": ended(Outcome.SUCCEEDED)}
    step = a_run(STEP_ASKS, judged_at=NOW, questions={STEP_ASKED.key: question}, steps=one)
    for run in (whole, step):
        end = move(run, **situation)
        assert isinstance(end, Finish), end
        assert (end.outcome, end.reason) == (outcome, reason)
        assert is_to_escalate(replace(run, outcome=outcome, reason=reason)) is (
            outcome is not RunOutcome.CANCELLED or reason is Reason.PLAYBOOK_DISABLED
        )


def test_next_move_when_the_engine_was_away_then_the_question_stays_open_for_longer() -> None:
    run = a_run(ASKING, questions={"rung.0": QUESTION}, steps=ASKED_ALREADY)
    away = ((NOW + MINUTE, NOW + 11 * MINUTE),)
    assert move(run, now=NOW + 35 * MINUTE, gaps=away) == Sleep(NOW + 40 * MINUTE)


def test_next_move_when_a_step_is_asked_for_then_at_its_turn_and_judged_after_the_yes() -> None:
    run = a_run(STEP_ASKS, judged_at=NOW, steps={"steps.one": ended(Outcome.SUCCEEDED)})
    assert move(run) == Ask(STEP_ASKED)
    asks = replace(run, questions={STEP_ASKED.key: QUESTION})
    assert move(asks) == Tell(MessageKind.APPROVAL, 1, STEP_ASKED.key)
    yes = replace(run, questions={STEP_ASKED.key: YES})
    assert move(yes) == Judge(0)
    assert move(yes, heard=Heard.SILENCED) == WaitForWord(Reason.SILENCED)
    judged = replace(run, questions={STEP_ASKED.key: replace(YES, is_judged=True)})
    assert move(judged) == Try(STEP_ASKED, 1)


def test_fold_when_people_are_asked_and_answer_then_the_targets_of_then_are_kept_until_the_next_rung() -> None:
    target = {"ref": "a", "uid": "b", "owner": ""}
    events = [
        Event(type=EventType.PLAN_MADE, at=NOW, n=1, data={"plan": pack_plan(ASKING)}),
        Event(type=EventType.TURN_WAITED, at=NOW, n=2, data={"waits_for": ["turn:silenced"]}),
        Event(type=EventType.VERDICT_GIVEN, at=NOW, n=3, data=a_verdict(asks=True, targets=[target])),
        Event(
            type=EventType.APPROVAL_ASKED,
            at=NOW,
            n=4,
            data=question_data("rung.0", ASKING.approval or Approval(ask=(), expires=MINUTE), 0),
        ),
    ]
    asks = fold(events)
    assert (asks.is_admitted, asks.open_question, asks.asked_targets) == (False, "rung.0", {"a": ("b", "")})
    assert (asks.waits_since, asks.waits_for) == (None, ()), "asking does not count as waiting"
    data = {"key": "rung.0", "reason": "looks right"}
    yes = Event(type=EventType.APPROVAL_GIVEN, at=NOW + MINUTE, n=-1, actor="alice", data=data)
    answered = fold([*events, yes])
    assert (answered.open_question, answered.questions["rung.0"].by) == (None, "alice")
    judged = fold([*events, yes, Event(type=EventType.VERDICT_GIVEN, at=NOW, n=5, data=a_verdict(targets=[target]))])
    assert (judged.is_admitted, judged.asked_targets) == (True, {"a": ("b", "")}), "for when it is judged once more"
    climbed = fold([*events, yes, Event(type=EventType.RUNG_CLIMBED, at=NOW, n=5, data={"to": 2})])
    assert climbed.asked_targets is None, "of that rung people saw nothing yet"


# -- next_move: breakers and leases


def test_next_move_when_its_verdict_tripped_a_breaker_then_people_are_told_of_it_once() -> None:
    run = a_run(waits_since=NOW, waits_for=("breaker:breaker",), tripped=("site",))
    assert move(run) == Tell(MessageKind.BREAKER, 1, "site")
    assert move(run, is_quiet=True) == Judge(0)
    assert tell_next_at(run) == NOW
    failed = an_attempt(outcome=Outcome.FAILED, retry_at=NOW + MINUTE)
    again = replace(run, steps={"message.breaker.site": StepState(attempts=(failed,))})
    assert move(again) == Judge(0), "a message that waits for its next attempt holds nothing up"
    assert tell_next_at(again) == NOW + MINUTE
    told = replace(run, steps={"message.breaker.site": ended(Outcome.SUCCEEDED)})
    assert move(told) == Judge(0)
    gone = replace(run, outcome=RunOutcome.CANCELLED, reason=Reason.RESOLVED, ended_at=NOW)
    assert move(gone, **RESOLVED) == Tell(MessageKind.BREAKER, 1, "site"), "also when it ended meanwhile"


@pytest.mark.parametrize(
    ("kind", "data", "expected"),
    [
        (EventType.LEASE_KEPT, {"target": "t", "detail": "hot"}, MessageKind.LEASE_KEPT),
        (EventType.UNDO_FINISHED, {"target": "t", "outcome": "failed", "detail": "no"}, MessageKind.UNDO_FAILED),
        (EventType.UNDO_FINISHED, {"target": "t", "outcome": "unknown", "detail": "no"}, MessageKind.UNDO_FAILED),
        (EventType.UNDO_FINISHED, {"target": "t", "outcome": "succeeded", "detail": ""}, None),
        (EventType.LEASE_CLOSED, {"target": "t", "how": "drifted", "detail": "by others"}, MessageKind.DRIFTED),
        (EventType.LEASE_CLOSED, {"target": "t", "how": "reverted", "detail": "reboot"}, MessageKind.DRIFTED),
        (EventType.LEASE_CLOSED, {"how": "undone", "step": "steps.restart", "detail": ""}, None),
    ],
)
def test_next_move_when_something_becomes_of_a_lease_then_people_are_told_once(
    kind: EventType, data: dict[str, Any], expected: MessageKind | None
) -> None:
    events = [
        Event(type=EventType.PLAN_MADE, at=NOW, n=1, data={"plan": pack_plan(a_plan(report_to=()))}),
        Event(type=EventType.RUN_FINISHED, at=NOW, n=2, data=an_end("succeeded", "none", "")),
        Event(type=kind, at=NOW, n=-1, data=data),
    ]
    assert move(fold(events)) == (Close() if expected is None else Tell(expected, 1, "t"))
    sent = [
        Event(type=EventType.ATTEMPT_STARTED, at=NOW, n=3, data=a_start(f"message.{expected}.t")),
        Event(type=EventType.ATTEMPT_FINISHED, at=NOW, n=4, data=a_finish(f"message.{expected}.t")),
    ]
    told = [*events, *sent, Event(type=kind, at=NOW, n=-2, data=data)]
    assert move(fold(told)) == Close()
    if expected is not None:
        other = Event(type=kind, at=NOW, n=-3, data={**data, "target": "u"})
        assert move(fold([*told, other])) == Tell(expected, 1, "u"), "another target is news"


@pytest.mark.parametrize("kind", MessageKind)
def test_message_key_when_read_again_then_it_is_the_same(kind: MessageKind) -> None:
    for about in ("", "rung.1", "steps.drain", "site.one"):
        assert message_of(message_key(kind, about)) == (kind, about)


# -- small


@pytest.mark.parametrize(
    ("run", "fired_at_end", "expected"),
    [
        (a_run(outcome=RunOutcome.FAILED), True, True),
        (a_run(outcome=RunOutcome.FAILED), False, False),
        (a_run(a_plan(latched=True), outcome=RunOutcome.FAILED), False, True),
        (a_run(outcome=RunOutcome.FAILED, steps={"steps.restart": ended(Outcome.SUCCEEDED)}), False, True),
        (a_run(outcome=RunOutcome.SUCCEEDED), True, False),
        (a_run(outcome=RunOutcome.CANCELLED, reason=Reason.RESOLVED), True, False),
        (a_run(outcome=RunOutcome.CANCELLED, reason=Reason.PLAYBOOK_GONE), False, True),
        (a_run(a_plan(mode=Mode.OBSERVE), outcome=RunOutcome.REFUSED), True, False),
        (a_run(a_plan(escalate_to=()), outcome=RunOutcome.FAILED), True, False),
        (a_run(a_plan(steps=(a_step(is_message=True),)), outcome=RunOutcome.REFUSED), True, False),
        (a_run(a_plan(steps=()), outcome=RunOutcome.REFUSED), True, True),
    ],
)
def test_is_to_escalate_when_it_ended_so(run: Any, fired_at_end: bool, expected: bool) -> None:
    assert is_to_escalate(replace(run, fired_at_end=fired_at_end)) is expected


def test_tell_gap_when_the_cooldown_is_short_then_it_is_half_an_hour_and_an_hour_for_a_missing_label() -> None:
    short = replace(a_plan().guard, cooldown=timedelta(0))
    assert tell_gap(a_run(a_plan(guard=short), outcome=RunOutcome.FAILED)) == timedelta(minutes=30)
    refused = a_run(a_plan(guard=short), outcome=RunOutcome.REFUSED, reason=Reason.MISSING_LABEL)
    assert tell_gap(refused) == timedelta(hours=1)


def test_is_known_to_fire_when_the_subject_is_closed_then_not() -> None:
    assert not is_known_to_fire(a_run(), a_situation(**RESOLVED))


def test_phase_of_when_it_goes_its_way() -> None:
    holding = a_run(a_plan(hold=MINUTE))
    done = {"steps.restart": ended(Outcome.SUCCEEDED)}
    phases = [
        phase_of(holding, a_situation()),
        phase_of(holding, a_situation(now=NOW + MINUTE)),
        phase_of(a_run(**AT_WORK), a_situation()),
        phase_of(a_run(**AT_WORK, steps=done), a_situation()),
        phase_of(a_run(outcome=RunOutcome.FAILED), a_situation()),
    ]
    assert phases == [Phase.HOLDING, Phase.WAITING, Phase.ACTING, Phase.VERIFYING, Phase.ENDED]


@pytest.mark.parametrize(
    ("heard", "expected"),
    [
        (Heard.FIRES, Judge(0)),
        (Heard.SILENCED, WaitForWord(Reason.SILENCED)),
        (Heard.INHIBITED, WaitForWord(Reason.INHIBITED)),
        (Heard.ABSENT, WaitForWord(Reason.NOT_KNOWN_TO_FIRE)),
        (Heard.NO_ANSWER, WaitForWord(Reason.ALERTMANAGER_AWAY)),
    ],
)
def test_next_move_when_the_alertmanagers_were_asked_then_their_answer_decides(heard: Heard, expected: Any) -> None:
    assert move(a_run(), heard=heard) == expected
    assert move(a_run(a_plan(is_by_hand=True)), heard=heard) == Judge(0)


def test_waiting_text_has_a_text_for_all_that_a_plan_can_wait_for() -> None:
    assert set(WHY_NOT.values()) <= WAITING_FOR.keys()


def test_waiting_text_when_a_target_is_busy_then_it_is_named_once() -> None:
    waits_for = ("busy:docker:gpu-07/a", "busy:docker:gpu-07/b", "cooldown:cooldown", "reservation:busy_target")
    assert waiting_text(waits_for) == "the cooldown; another run that has its target (docker:gpu-07/a, docker:gpu-07/b)"


# -- every log that the moves make


APPROVAL = Approval(ask=("oncall",), expires=5 * MINUTE)
CHECKS = ((), (Check(within=10 * MINUTE),))

plans = st.builds(
    lambda acts, checks, asks, is_ladder, n_resolved, **more: a_plan(
        steps=tuple(
            a_step(
                f"s{i}",
                is_message=not act,
                verify=check,
                approval=APPROVAL if ask else None,
                rung=i + 1 if is_ladder else 0,
            )
            for i, (act, check, ask) in enumerate(zip(acts, checks, asks, strict=False))
        ),
        ladder=HOUR if is_ladder else None,
        resolved=tuple(a_step("r", key=f"resolved.r{i}", is_message=True) for i in range(n_resolved)),
        **more,
    ),
    acts=st.lists(st.booleans(), min_size=1, max_size=3),
    checks=st.lists(st.sampled_from(CHECKS), min_size=3, max_size=3),
    asks=st.lists(st.sampled_from([False, False, True]), min_size=3, max_size=3),
    is_ladder=st.booleans(),
    approval=st.sampled_from([None, None, APPROVAL]),
    n_resolved=st.integers(0, 2),
    hold=st.sampled_from([timedelta(0), MINUTE]),
    latched=st.booleans(),
    stop_on_resolve=st.booleans(),
    is_by_hand=st.booleans(),
    mode=st.sampled_from([Mode.ENFORCE, Mode.ENFORCE, Mode.OBSERVE]),
    verify=st.sampled_from(CHECKS),
)

situations = st.builds(
    lambda closed, **more: a_situation(**{**more, **(closed or {})}),
    closed=st.sampled_from([None, None, None, RESOLVED, EXPIRED]),
    opener_fires=st.booleans(),
    mode=st.sampled_from([Mode.ENFORCE, Mode.ENFORCE, Mode.ENFORCE, Mode.OBSERVE, Mode.DISABLED, None]),
    pause=st.sampled_from([None, None, PAUSE]),
    gap_ended_at=st.sampled_from([None, None, NOW - MINUTE, NOW + 5 * MINUTE]),
    heard=st.sampled_from([None, None, *Heard]),
    has_told=st.sets(st.sampled_from(list(MessageKind)), max_size=2).map(frozenset),
    is_reopened=st.booleans(),
    start_rung=st.integers(1, 3),
)


class Story:
    """Makes the moves of one run as the engine would, with what the world answers drawn."""

    def __init__(self, plan: Plan, draw: Callable[[Any], Any]) -> None:
        self.draw = draw
        self.now = NOW
        self.events: list[Event] = []
        self.note(EventType.PLAN_MADE, plan=pack_plan(plan))

    def note(self, kind: EventType, **data: Any) -> None:
        self.events.append(Event(type=kind, at=self.now, n=len(self.events) + 1, data=data))

    def go_on(self, situation: Situation) -> bool:
        """Make the next move; False when the run is closed."""
        run = fold(self.events)
        start_rung = min(situation.start_rung or 1, run.plan.top_rung)
        wanted = next_move(run, replace(situation, now=self.now, last_word_at=self.now, start_rung=start_rung))
        match wanted:
            case Close():
                return False
            case Sleep(until):
                assert until is None or until > self.now, "it would be looked at again at once, for ever"
                self.now = until or self.now + MINUTE
            case WaitForWord(why):
                self.note(EventType.TURN_WAITED, waits_for=[f"turn:{why.value}"])
                self.now += MINUTE
            case Replan():
                self.note(EventType.PLAN_MADE, plan=pack_plan(run.plan))
            case Judge(rung, asks):
                assert run.outcome is None
                assert rung == 0 or run.plan.of_rung(rung)
                word = self.draw(st.sampled_from([Word.ALLOW, Word.ALLOW, Word.WAIT, Word.REFUSE]))
                tripped = ["site"] if word is Word.WAIT and self.draw(st.booleans()) else []
                data = a_verdict(word.value, waits_for=["cooldown:cooldown"], rung=rung, asks=asks, tripped=tripped)
                self.note(EventType.VERDICT_GIVEN, **data)
                if word is Word.ALLOW and asks:
                    self.ask(rung_key(rung))
                if word is Word.REFUSE and run.plan.mode is Mode.ENFORCE:
                    self.note(EventType.RUN_FINISHED, **an_end("refused", "protected", ""))
                self.now += MINUTE
            case Try(step, number):
                assert not (run.outcome is not None and step.key.startswith("steps."))
                self.attempt(step.key, number)
            case Ask(step):
                self.ask(step.key)
            case Tell(kind, number, about):
                self.attempt(message_key(kind, about), number)
            case Look(step_key):
                self.finish(step_key, run.step(step_key).attempts[-1].number)
            case Skip(step_key, reason, detail, outcome):
                self.note(EventType.STEP_SKIPPED, step=step_key, outcome=outcome, reason=reason, detail=detail)
            case Verify(step_key):
                word = self.draw(st.sampled_from([Outcome.SUCCEEDED, Outcome.FAILED, Outcome.UNKNOWN]))
                data = {"step": step_key, "rung": run.rung, "outcome": word.value, "detail": "seen"}
                self.note(EventType.VERIFICATION_FINISHED, **data)
            case Climb(rung):
                assert rung == run.rung + 1
                self.note(EventType.RUNG_CLIMBED, **{"from": run.rung, "to": rung})
            case Finish(ending, reason, detail):
                assert run.outcome is None
                self.note(EventType.RUN_FINISHED, **an_end(ending.value, reason.value, detail))
        return True

    def ask(self, key: str) -> None:
        assert key not in fold(self.events).questions, "nobody is asked twice"
        self.note(EventType.APPROVAL_ASKED, **question_data(key, APPROVAL, 0))
        if self.draw(st.booleans()):
            word = self.draw(st.sampled_from([EventType.APPROVAL_GIVEN, EventType.APPROVAL_DENIED]))
            self.note(word, key=key, reason="because")

    def attempt(self, step_key: str, number: int) -> None:
        if step_key.startswith("steps."):
            run = fold(self.events)
            step = run.find(step_key)
            assert step is not None
            if not step.is_message:
                asked = [rung_key(run.rung)] if run.plan.approval is not None else []
                asked += [step_key] if step.approval is not None else []
                is_yes = all(run.questions[key].answer is Answer.GIVEN for key in asked)
                assert is_yes, "nothing is done without the yes that it needs"
                assert step.rung == run.rung
        self.note(EventType.ATTEMPT_STARTED, step=step_key, attempt=number, timeout_ms=1000, before={}, targets=["a"])
        if self.draw(st.sampled_from([True, True, False])):
            self.finish(step_key, number)

    def finish(self, step_key: str, number: int) -> None:
        outcome = self.draw(st.sampled_from([Outcome.SUCCEEDED, Outcome.SUCCEEDED, Outcome.FAILED, Outcome.UNKNOWN]))
        is_again = outcome is Outcome.FAILED and number < 3 and self.draw(st.booleans())
        self.note(
            EventType.ATTEMPT_FINISHED, step=step_key, attempt=number, outcome=outcome.value, reason="none", detail="",
            changed=outcome is not Outcome.FAILED, after={}, retry_at=utc_text(self.now + MINUTE) if is_again else "",
        )  # fmt: skip


@given(data=st.data(), plan=plans)
def test_next_move_whatever_happens_then_it_raises_nothing_and_never_acts_twice(data: Any, plan: Plan) -> None:
    story = Story(plan, data.draw)
    for _ in range(30):
        if not story.go_on(data.draw(situations)):
            break
    for length in range(1, len(story.events) + 1):
        run = fold(story.events[:length])
        next_move(run, a_situation())
        next_move(run, a_situation(**RESOLVED))
    for step in plan.steps:
        outcomes = [attempt.outcome for attempt in run.step(step.key).attempts]
        assert outcomes.count(Outcome.SUCCEEDED) <= 1


@given(data=st.data(), plan=plans)
def test_next_move_when_the_world_is_calm_and_the_alert_is_resolved_then_the_run_comes_to_its_end(
    data: Any, plan: Plan
) -> None:
    story = Story(plan, lambda choices: data.draw(choices))
    calm = a_situation(**RESOLVED) if data.draw(st.booleans()) else a_situation()
    for _ in range(80):
        if not story.go_on(calm):
            break
        if fold(story.events).outcome is not None:
            calm = a_situation(**RESOLVED)
    run = fold(story.events)
    assert run.outcome is not None or run.waits_for
