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
    Verified,
    WaitForWord,
    is_known_to_fire,
    is_to_escalate,
    next_move,
    phase_of,
    tell_gap,
    waiting_text,
)
from remediator.core.outcome import Outcome, RunOutcome
from remediator.core.plan import Plan, Runs, pack_plan
from remediator.core.policy import Mode
from remediator.core.run import MessageKind, Phase, StepState, fold
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
        Event(type=EventType.VERDICT_GIVEN, at=NOW, n=2, data={"word": "allow", "waits_for": [], "targets": [target]}),
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
        (a_plan(), {}, Judge()),
        (a_plan(hold=MINUTE), {}, Sleep(NOW + MINUTE)),
        (a_plan(hold=MINUTE), {"now": NOW + MINUTE}, Judge()),
        (a_plan(), {"opener_fires": False}, Replan()),
        (a_plan(latched=True), {"opener_fires": False}, Judge()),
        (a_plan(is_by_hand=True), {"opener_fires": False}, Judge()),
        (a_plan(), {"up_since": NOW + MINUTE, "now": NOW + 29 * MINUTE}, Judge()),
        (a_plan(), {"up_since": NOW + MINUTE, "now": NOW + 30 * MINUTE}, WaitForWord(Reason.NOT_KNOWN_TO_FIRE)),
        (a_plan(is_by_hand=True), {"up_since": NOW + MINUTE, "now": NOW + 30 * MINUTE}, Judge()),
        (a_plan(latched=True), {"up_since": NOW + MINUTE, "now": NOW + 700 * MINUTE}, Judge()),
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
    assert move(a_run(plan), mode=Mode.OBSERVE) == Judge()
    end = move(a_run(plan, would_be=Word.WAIT), mode=Mode.OBSERVE)
    assert (end.outcome, end.detail) == (RunOutcome.OBSERVED, "mode is observe; the verdict was wait")


def test_next_move_when_it_has_waited_for_tell_after_then_people_are_told_and_again_where_that_failed() -> None:
    run = a_run(waits_since=NOW, waits_for=("cooldown:cooldown",))
    assert move(run, now=NOW + 59 * MINUTE) == Judge()
    assert move(run, now=NOW + 60 * MINUTE) == Tell(MessageKind.WAITING, 1)
    failed = an_attempt(outcome=Outcome.FAILED, retry_at=NOW + 61 * MINUTE)
    run = replace(run, steps={"message.waiting": StepState(attempts=(failed,))})
    assert move(run, now=NOW + 60 * MINUTE) == Judge()
    assert move(run, now=NOW + 61 * MINUTE) == Tell(MessageKind.WAITING, 2)


# -- next_move: at work


@pytest.mark.parametrize(
    ("run", "situation", "expected"),
    [
        (a_run(TWO, **AT_WORK), {}, Try(TWO.steps[0], 1)),
        (a_run(TWO, **AT_WORK), {"pause": PAUSE}, Sleep(NOW + MINUTE)),
        (a_run(TWO, **AT_WORK), {"opener_fires": False}, Replan()),
        (a_run(TWO, judged_at=NOW - 2 * MINUTE), {"gap_ended_at": NOW - MINUTE}, Judge()),
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
        (CHECKED, {}, Sleep(NOW + 10 * MINUTE)),
        (CHECKED, RESOLVED, Verified(Outcome.SUCCEEDED, "the alert was resolved")),
        (CHECKED, EXPIRED, Verified(Outcome.UNKNOWN, "the alert ended without being resolved (expired)")),
        (CHECKED, {"now": NOW + 10 * MINUTE}, Verified(Outcome.FAILED, "the alert still fires")),
        (
            CHECKED,
            {"now": NOW + 10 * MINUTE, "gaps": ((NOW - MINUTE, NOW + 4 * MINUTE),)},
            Sleep(NOW + 14 * MINUTE),
        ),
        (
            replace(CHECKED, is_by_hand=True),
            {},
            Verified(Outcome.UNKNOWN, "a run by hand has no alert to be resolved"),
        ),
    ],
)
def test_next_move_when_all_steps_are_done_then_it_is_verified(
    plan: Plan, situation: dict[str, Any], expected: Any
) -> None:
    assert move(a_run(plan, **AT_WORK, steps={"steps.restart": ended(Outcome.SUCCEEDED)}), **situation) == expected


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
        (Heard.FIRES, Judge()),
        (Heard.SILENCED, WaitForWord(Reason.SILENCED)),
        (Heard.INHIBITED, WaitForWord(Reason.INHIBITED)),
        (Heard.ABSENT, WaitForWord(Reason.NOT_KNOWN_TO_FIRE)),
        (Heard.NO_ANSWER, WaitForWord(Reason.ALERTMANAGER_AWAY)),
    ],
)
def test_next_move_when_the_alertmanagers_were_asked_then_their_answer_decides(heard: Heard, expected: Any) -> None:
    assert move(a_run(), heard=heard) == expected
    assert move(a_run(a_plan(is_by_hand=True)), heard=heard) == Judge()


def test_waiting_text_has_a_text_for_all_that_a_plan_can_wait_for() -> None:
    assert set(WHY_NOT.values()) <= WAITING_FOR.keys()


def test_waiting_text_when_a_target_is_busy_then_it_is_named_once() -> None:
    waits_for = ("busy:docker:gpu-07/a", "busy:docker:gpu-07/b", "cooldown:cooldown", "reservation:busy_target")
    assert waiting_text(waits_for) == "the cooldown; another run that has its target (docker:gpu-07/a, docker:gpu-07/b)"


# -- every log that the moves make


plans = st.builds(
    lambda acts, n_resolved, **more: a_plan(
        steps=tuple(a_step(f"s{i}", is_message=not act) for i, act in enumerate(acts)),
        resolved=tuple(a_step("r", key=f"resolved.r{i}", is_message=True) for i in range(n_resolved)),
        **more,
    ),
    acts=st.lists(st.booleans(), min_size=1, max_size=3),
    n_resolved=st.integers(0, 2),
    hold=st.sampled_from([timedelta(0), MINUTE]),
    latched=st.booleans(),
    stop_on_resolve=st.booleans(),
    is_by_hand=st.booleans(),
    mode=st.sampled_from([Mode.ENFORCE, Mode.ENFORCE, Mode.OBSERVE]),
    verify=st.sampled_from([(), (Check(within=10 * MINUTE),)]),
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
        wanted = next_move(run, replace(situation, now=self.now, last_word_at=self.now))
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
            case Judge():
                assert run.outcome is None
                word = self.draw(st.sampled_from([Word.ALLOW, Word.ALLOW, Word.WAIT, Word.REFUSE]))
                self.note(EventType.VERDICT_GIVEN, word=word.value, waits_for=["cooldown:cooldown"], targets=[])
                if word is Word.REFUSE and run.plan.mode is Mode.ENFORCE:
                    self.note(EventType.RUN_FINISHED, **an_end("refused", "protected", ""))
                self.now += MINUTE
            case Try(step, number):
                assert not (run.outcome is not None and step.key.startswith("steps."))
                self.attempt(step.key, number)
            case Tell(kind, number):
                self.attempt(f"message.{kind}", number)
            case Look(step_key):
                self.finish(step_key, run.step(step_key).attempts[-1].number)
            case Skip(step_key, reason, detail, outcome):
                self.note(EventType.STEP_SKIPPED, step=step_key, outcome=outcome, reason=reason, detail=detail)
            case Verified(outcome, detail):
                self.note(EventType.VERIFICATION_FINISHED, outcome=outcome.value, detail=detail)
            case Finish(ending, reason, detail):
                assert run.outcome is None
                self.note(EventType.RUN_FINISHED, **an_end(ending.value, reason.value, detail))
        return True

    def attempt(self, step_key: str, number: int) -> None:
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
