"""What comes next for a run: ``next_move`` over its state and the ``Situation`` around it. Pure.

``engine.pipeline`` asks for the next move and makes it, until the run sleeps or is closed. One pass from top to bottom,
in the order of a run's life: hold → its turn → verdict → approval → verdict → steps → verify → next rung, or end →
messages → ``resolved`` steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from remediator.core.guard import Pause
from remediator.core.outcome import Outcome, RunOutcome
from remediator.core.plan import Plan, PlannedStep, Runs, holds
from remediator.core.playbook import OnFailure
from remediator.core.policy import Mode
from remediator.core.run import Answer, MessageKind, Phase, Question, Run, StepState, message_key, rung_key
from remediator.core.units import print_duration
from remediator.errors import MissingValueError, Reason, TemplateError

HEARD_WITHIN = timedelta(minutes=30)
"""A delivery younger than this says that its alerts fire, even across a restart of the engine."""

LATCH_LIMIT = timedelta(hours=12)
"""A latched subject is held to fire this long after its last word: long enough for a drain that waits for a PDB."""

LOOK_AT_PAUSE = timedelta(minutes=1)
"""A pause by a file ends without an event."""

TELL_AT_LEAST = timedelta(minutes=30)
"""People are told of one ending at most this often, however short the cooldown."""

TELL_MISSING = timedelta(hours=1)
"""… and of a label that a playbook misses, this often."""


# -- what is going on around the run ---------------------------------------------------------------------------------


class Heard(StrEnum):
    """What the Alertmanagers say of a subject when they are asked now."""

    FIRES = "fires"
    SILENCED = "silenced"
    INHIBITED = "inhibited"
    ABSENT = "absent"
    NO_ANSWER = "no_answer"


WHY_NOT = {
    Heard.SILENCED: Reason.SILENCED,
    Heard.INHIBITED: Reason.INHIBITED,
    Heard.ABSENT: Reason.NOT_KNOWN_TO_FIRE,
    Heard.NO_ANSWER: Reason.ALERTMANAGER_AWAY,
}
"""What a run then waits for."""

RESOLVED_BY = frozenset({"resolved", "absent"})
"""Ends of a subject that mean that it is over: somebody said so, or no Alertmanager has it any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What ``next_move`` has to know beside the run itself, all of one moment.

    Attributes:
        is_open: its subject still fires, as far as deliveries say.
        close_reason: resolved, absent, expired, "" while it is open.
        opened_at, closed_at: of the subject.
        opener_fires: the alert that the plan was made from has not ended.
        last_word_at: of the newest delivery that said that the subject fires.
        n_alerts: how many of its alerts fire.
        mode: of its playbook and policy now, the stricter; None when the playbook is gone.
        heard: what the Alertmanagers say now; None where none is configured, or it is not its turn.
        up_since: since when the engine is up without a gap of five minutes.
        gap_ended_at: end of the last such gap, None = none known.
        away: how long the engine was down in total since each moment, as a function.
        pause: a person stopped all acts.
        has_told: message kinds whose ending people were told of lately, so that they are not told again.
        is_reopened: the same values fired again after it, as another subject.
        others_to_tell: whom the settings name for escalations, beside those whom the plan names.
        is_quiet: what people are told is told elsewhere; what is asked here is what else comes next.
        start_rung: where a run begins on its ladder, by how the last one for the same values went; 0 = no ladder.
    """

    now: datetime
    is_open: bool
    close_reason: str
    opened_at: datetime
    closed_at: datetime | None
    opener_fires: bool
    last_word_at: datetime
    n_alerts: int
    mode: Mode | None
    up_since: datetime
    gap_ended_at: datetime | None = None
    gaps: tuple[tuple[datetime, datetime], ...] = ()
    pause: Pause | None = None
    heard: Heard | None = None
    has_told: frozenset[MessageKind] = frozenset()
    is_reopened: bool = False
    others_to_tell: tuple[str, ...] = ()
    is_quiet: bool = False
    start_rung: int = 0

    def away_since(self, moment: datetime) -> timedelta:
        """How long the engine was down between ``moment`` and now: that time does not count."""
        return time_away(self.gaps, moment, self.now)


def time_away(gaps: Sequence[tuple[datetime, datetime]], since: datetime, now: datetime) -> timedelta:
    """How much of the time from ``since`` to ``now`` lies in gaps."""
    spans = (min(end, now) - max(start, since) for start, end in gaps)
    return sum((span for span in spans if span > timedelta(0)), timedelta(0))


def start_rung(plan: Plan, last: tuple[datetime, int] | None, turn_at: datetime) -> int:
    """Where a run begins when its turn comes: one rung above the last one for the same values, if that was lately.

    Args:
        last: when that one ended, and the highest rung that it reached; None when none acted.

    Returns:
        The rung, the last one where there is none above; 0 without a ladder.
    """
    if plan.ladder is None:
        return 0
    if last is None or turn_at - last[0] > plan.ladder:
        return 1
    return min(last[1] + 1, plan.top_rung)


def is_judged_before(run: Run, gap_ended_at: datetime | None, now: datetime) -> bool:
    """Whether a long gap ended after this run was allowed to act: its next act is judged anew.

    A gap that ends in the future was measured by a clock that has been set back since.
    """
    return run.judged_at is not None and gap_ended_at is not None and run.judged_at < gap_ended_at <= now


# -- moves -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sleep:
    """Nothing to do until ``until``; None = until an event wakes the run."""

    until: datetime | None


@dataclass(frozen=True, slots=True)
class Close:
    """Nothing will ever have to be done for this run again."""


@dataclass(frozen=True, slots=True)
class Replan:
    """The alert that the plan was made from has ended before the first act: plan anew from the oldest that fires."""


@dataclass(frozen=True, slots=True)
class WaitForWord:
    """Its turn has come and its subject is not known to fire."""

    why: Reason


@dataclass(frozen=True, slots=True)
class Judge:
    """Its turn has come: ask the targets, judge, and reserve or, where people are to be asked first, ask them."""

    rung: int
    asks: bool = False


@dataclass(frozen=True, slots=True)
class Ask:
    """It is the turn of a step that people are asked for: ask, unless it has nothing to change."""

    step: PlannedStep


@dataclass(frozen=True, slots=True)
class Try:
    """Begin an attempt of this step."""

    step: PlannedStep
    number: int


@dataclass(frozen=True, slots=True)
class Look:
    """This step's attempt has no end: look what it did."""

    step_key: str


@dataclass(frozen=True, slots=True)
class Skip:
    """Do not do this step, or not go on with it."""

    step_key: str
    reason: Reason
    detail: str
    outcome: Outcome = Outcome.SKIPPED


@dataclass(frozen=True, slots=True)
class Verify:
    """Look whether a step did what its ``verify`` asks for, or (key "") whether the rung helped."""

    step_key: str


@dataclass(frozen=True, slots=True)
class Climb:
    """The rung did not help: go on with the next."""

    to: int


@dataclass(frozen=True, slots=True)
class Finish:
    """The run ends."""

    outcome: RunOutcome
    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True)
class Tell:
    """Tell people, in the engine's own words."""

    kind: MessageKind
    number: int
    about: str = ""


Move = Sleep | Close | Replan | WaitForWord | Judge | Ask | Try | Look | Skip | Verify | Climb | Finish | Tell


def next_move(run: Run, now: Situation) -> Move:
    """What is to be done next for this run. Raises nothing.

    One pass from top to bottom, in the order of PLAYBOOK.md: hold → its turn → verdict → ask → verdict → steps →
    verify → next rung, or end → messages → ``resolved`` steps.
    """
    for key, state in run.steps.items():
        if state.open_attempt is not None:
            return Look(key)
    if run.outcome is not None:
        return _after_end(run, now)
    if not run.is_admitted:
        return _before_turn(run, now)
    return _at_work(run, now)


def is_known_to_fire(run: Run, now: Situation) -> bool:
    """Whether the subject is known to fire now: by the Alertmanagers' answer, else by deliveries alone.

    By deliveries: it is open (no ``resolved`` since the last one), and that one is young, or the engine was up since
    then and would have heard. A run by hand always fires; a latched subject for ``LATCH_LIMIT`` after its last word.
    """
    if run.plan.is_by_hand:
        return True
    if run.plan.latched:
        return now.now < now.last_word_at + LATCH_LIMIT
    if now.heard is not None:
        return now.is_open and now.heard is Heard.FIRES
    return now.is_open and (now.now - now.last_word_at < HEARD_WITHIN or now.up_since <= now.last_word_at)


def _gone(run: Run, now: Situation) -> Finish | None:
    """The end of a run that waits, holds or asks, and whose subject is over."""
    if run.plan.is_by_hand:
        return None
    if run.plan.latched:
        if now.now < now.last_word_at + LATCH_LIMIT:
            return None
        return Finish(RunOutcome.STALE, Reason.NOT_KNOWN_TO_FIRE, "no word for 12 hours")
    if now.is_open:
        return None
    what_next = f"before rung {run.rung}" if run.rung else "before its next step"
    before = what_next if run.has_acted else "before anything was done"
    if now.close_reason in RESOLVED_BY:
        return Finish(RunOutcome.CANCELLED, Reason.RESOLVED, f"the alert was resolved {before}")
    return Finish(RunOutcome.STALE, Reason.EXPIRED, "nothing more was heard of the alert before its turn came")


def _before_turn(run: Run, now: Situation) -> Move:
    """Before the first act, or before the next rung."""
    over = _cancelled(run) or _gone(run, now)
    if over is not None:
        return over
    not_now = _mode_forbids(run, now)
    if not_now is not None:
        return not_now
    hold_until = now.opened_at + run.plan.hold
    if now.now < hold_until:
        return Sleep(hold_until)
    if not run.has_attempted and _has_lost_its_opener(run, now):
        return Replan()
    if run.plan.mode is Mode.OBSERVE and run.would_be is not None:
        return Finish(RunOutcome.OBSERVED, Reason.MODE_OBSERVE, f"mode is observe; the verdict was {run.would_be}")
    return _turn(run, now)


def _turn(run: Run, now: Situation) -> Move:
    """Its turn, or still not; after ``tell_after`` people are told that it waits."""
    told = _tell_of_breakers(run, now)
    if isinstance(told, Tell) and not now.is_quiet:
        return told
    tell_at = tell_waiting_at(run)
    if tell_at is not None and now.now >= tell_at and not now.is_quiet:
        about = _waits_on(run)
        key = message_key(MessageKind.WAITING, about)
        n_tries = len(run.step(key).attempts)
        if MessageKind.WAITING in now.has_told and not n_tries:
            return Skip(key, Reason.COOLDOWN, "people were told a moment ago that a plan for the same values waits")
        return Tell(MessageKind.WAITING, n_tries + 1, about)
    rung = run.rung or now.start_rung
    question = run.questions.get(rung_key(rung))
    if question is not None and (unanswered := _unanswered(run, rung_key(rung), question, now)):
        return unanswered
    if is_known_to_fire(run, now):
        return Judge(rung, asks=question is None and _is_asked_for(run, rung))
    return WaitForWord(WHY_NOT.get(now.heard or Heard.ABSENT, Reason.NOT_KNOWN_TO_FIRE))


def _is_asked_for(run: Run, rung: int) -> bool:
    """Whether people are asked before the steps of a rung; a rung of messages alone asks nobody."""
    return run.plan.approval is not None and run.plan.mode is Mode.ENFORCE and bool(run.plan.acts_of(rung))


def _unanswered(run: Run, key: str, question: Question, now: Situation) -> Move | None:
    """What a run does that asks, or was told no; None when it was told yes."""
    match question.answer:
        case Answer.GIVEN:
            return None
        case Answer.DENIED:
            return Finish(RunOutcome.REFUSED, Reason.DENIED, f"{question.by} said no: {question.reason}")
    expires_at = question.expires_at(now.away_since(question.asked_at))
    if now.now >= expires_at:
        asked = ", ".join(question.ask)
        detail = f"nobody answered within {print_duration(question.expires)} (asked: {asked})"
        return Finish(RunOutcome.EXPIRED, Reason.APPROVAL_EXPIRED, detail)
    if not now.is_quiet and run.step(message_key(MessageKind.APPROVAL, key)).outcome is None:
        told = _tell(run, MessageKind.APPROVAL, now.now, key)
        if isinstance(told, Tell):
            return told
        assert told.until is not None
        return Sleep(min(told.until, expires_at))
    return Sleep(expires_at)


def _tell_of_breakers(run: Run, now: Situation) -> Tell | Sleep | None:
    """The one message about each breaker that this run's verdict tripped."""
    if not run.plan.escalate_to:
        return None
    pending = [name for name in run.tripped if run.step(message_key(MessageKind.BREAKER, name)).outcome is None]
    told = [_tell(run, MessageKind.BREAKER, now.now, name) for name in pending]
    return next((move for move in told if isinstance(move, Tell)), told[0] if told else None)


def _has_lost_its_opener(run: Run, now: Situation) -> bool:
    """The alert that the plan was made from has ended, and others of its subject fire on."""
    return not now.opener_fires and now.n_alerts > 0 and not run.plan.is_by_hand and not run.plan.latched


def tell_waiting_at(run: Run) -> datetime | None:
    """When people are to be told that this plan waits; None when they were, nobody is named, or it does not wait.

    What a breaker holds is not told one by one: its own message has said it of all.
    """
    if run.waits_since is None or not run.waits_for or not run.plan.escalate_to or run.plan.mode is not Mode.ENFORCE:
        return None
    if any(what.startswith("breaker:") for what in run.waits_for):
        return None
    told = run.step(message_key(MessageKind.WAITING, _waits_on(run)))
    if told.outcome is not None:
        return None
    return told.attempts[-1].retry_at if told.attempts else run.waits_since + run.plan.guard.tell_after


def _waits_on(run: Run) -> str:
    """What people are told once that it waits: the plan, and each rung that it has climbed to."""
    return rung_key(run.rung) if _has_climbed(run) else ""


def _has_climbed(run: Run) -> bool:
    """Whether it did not begin on the rung where it is."""
    return any(run.step(step.key).outcome is not None for step in run.plan.steps if step.rung < run.rung)


def tell_next_at(run: Run) -> datetime | None:
    """When people are next to be told something while this plan waits; None when nothing is pending."""
    tripped = [run.step(message_key(MessageKind.BREAKER, name)) for name in run.tripped if run.plan.escalate_to]
    retries = [
        state.attempts[-1].retry_at if state.attempts else run.waits_since for state in tripped if state.outcome is None
    ]
    return min((at for at in (tell_waiting_at(run), *retries) if at is not None), default=None)


def _mode_forbids(run: Run, now: Situation) -> Finish | None:
    """The end of a run whose playbook may not act any more."""
    if now.mode is None:
        return Finish(RunOutcome.CANCELLED, Reason.PLAYBOOK_GONE, "its playbook was removed")
    if now.mode is Mode.DISABLED:
        return Finish(RunOutcome.CANCELLED, Reason.PLAYBOOK_DISABLED, "its playbook was disabled")
    if now.mode is Mode.OBSERVE and run.plan.mode is Mode.ENFORCE:
        return Finish(RunOutcome.CANCELLED, Reason.MODE_OBSERVE, "its playbook or policy was set to observe")
    return None


def _at_work(run: Run, now: Situation) -> Move:
    for step in run.current_steps:
        state = run.step(step.key)
        if state.outcome is Outcome.UNKNOWN:
            return Finish(RunOutcome.UNKNOWN, state.reason, f"step {step.name}: {state.detail}")
        if state.verification is Outcome.UNKNOWN:
            detail = f"whether step {step.name} did what it should could not be seen: {_watched_text(run, step.key)}"
            return Finish(RunOutcome.UNVERIFIED, Reason.NO_VALUE, detail)
        if state.outcome is Outcome.FAILED and step.on_failure is OnFailure.STOP:
            return Finish(RunOutcome.FAILED, state.reason, f"step {step.name} failed: {state.detail}")
        if state.outcome is None:
            return _next_attempt(run, step, state, now)
        if step.verify and state.verification is None and state.outcome in (Outcome.SUCCEEDED, Outcome.UNCHANGED):
            return _cancelled(run) or Verify(step.key)
    return _verify(run, now)


def _watched_text(run: Run, key: str) -> str:
    """What the checks of a verification said last that were not met as long as they had to be."""
    return "; ".join(one.detail for one in run.watched.get(key, ()) if not one.is_done)


def _cancelled(run: Run) -> Finish | None:
    if not run.cancelled_by:
        return None
    return Finish(RunOutcome.CANCELLED, Reason.CANCELLED_BY_PERSON, f"cancelled by {run.cancelled_by}")


def _next_attempt(run: Run, step: PlannedStep, state: StepState, now: Situation) -> Move:
    """The step's next attempt, or what has to be done instead."""
    instead: Move | None = _cancelled(run)
    if instead is None:
        instead = _instead_of_retry(run, step, state, now) if state.attempts else _instead_of_first(run, step, now)
    if instead is None and not step.is_message:
        # Nothing is judged while people think: that is for what comes after their yes.
        instead = _while_asked(run, step, now) or _instead_of_act(run, now)
        if instead is None and step.approval is not None and step.key not in run.questions:
            instead = Ask(step)
    return instead or Try(step, len(state.attempts) + 1)


def _while_asked(run: Run, step: PlannedStep, now: Situation) -> Move | None:
    """What a step does that people were asked for, until it is judged once more after their yes; None = no longer."""
    question = run.questions.get(step.key)
    if question is None or question.is_judged:
        return None
    gone = _gone(run, now) if question.answer is not Answer.DENIED else None
    return _mode_forbids(run, now) or gone or _unanswered(run, step.key, question, now) or _turn(run, now)


def _instead_of_first(run: Run, step: PlannedStep, now: Situation) -> Move | None:
    over = _resolved_meanwhile(run, now) or _skipped(run, step, now)
    if over is None and not run.has_attempted and _has_lost_its_opener(run, now):
        return _mode_forbids(run, now) or Replan()
    return over


def _instead_of_retry(run: Run, step: PlannedStep, state: StepState, now: Situation) -> Move | None:
    # What failed without effect has not begun to mend anything: over is over.
    if not run.has_acted and not step.is_message and (gone := _gone(run, now)):
        return gone
    return _not_again(step, state, now)


def _not_again(step: PlannedStep, state: StepState, now: Situation) -> Sleep | Skip | None:
    """Why a step is not tried again now, None when it is."""
    last, budget = state.attempts[-1], step.retry.budget
    if last.retry_at is not None and last.retry_at > now.now:
        return Sleep(last.retry_at)
    # A pause or an absence may have let the due time pass by more than the budget allows.
    if budget is not None and now.now > state.attempts[0].started_at + budget:
        return Skip(step.key, last.reason, f"no attempt after its budget; the last one: {last.detail}", Outcome.FAILED)
    return None


def _instead_of_act(run: Run, now: Situation) -> Move | None:
    not_now = _mode_forbids(run, now)
    if not_now is not None:
        return not_now
    if now.pause is not None:
        return Sleep(now.now + LOOK_AT_PAUSE)
    return _judge_anew(run, now) if is_judged_before(run, now.gap_ended_at, now.now) else None


def _resolved_meanwhile(run: Run, now: Situation) -> Finish | None:
    if not run.has_attempted:
        return _gone(run, now)
    if now.is_open or run.plan.is_by_hand or run.plan.latched:
        return None
    if run.plan.stop_on_resolve and now.close_reason in RESOLVED_BY:
        return Finish(RunOutcome.CANCELLED, Reason.RESOLVED, "the alert was resolved before the next step")
    return None


def _judge_anew(run: Run, now: Situation) -> Move:
    """The engine was away: the next act is judged anew, and its subject must be known to fire."""
    if not run.has_acted or run.plan.latched:
        gone = _gone(run, now)
        if gone is not None:
            return gone
    elif not now.is_open and not run.plan.latched and not run.plan.is_by_hand:
        if now.close_reason in RESOLVED_BY:
            return Finish(RunOutcome.CANCELLED, Reason.RESOLVED, "the alert was resolved while the engine was away")
        return Finish(RunOutcome.STALE, Reason.EXPIRED, "nothing more was heard of the alert before its next step")
    return _turn(run, now)


def _skipped(run: Run, step: PlannedStep, now: Situation) -> Skip | None:
    if step.runs is Runs.NO:
        return Skip(step.key, Reason.CONDITION, "its `if` is false")
    if step.runs is not Runs.LATE:
        return None
    try:
        is_true = holds(step, run.context(now.n_alerts))
    except (TemplateError, MissingValueError) as error:
        return Skip(step.key, Reason.BAD_PARAMS, f"its `if` cannot be decided: {error}", Outcome.FAILED)
    return None if is_true else Skip(step.key, Reason.CONDITION, "its `if` is false")


def _verify(run: Run, now: Situation) -> Move:
    ended_at = run.steps_ended_at
    # A rung that had nothing to change may not be enough all the same: the ladder goes on from there.
    may_have_helped = run.has_acted or run.plan.ladder is not None
    is_to_be_seen = bool(run.plan.verify) and may_have_helped and bool(run.plan.acts_of(run.rung))
    if is_to_be_seen and run.verification is None and ended_at is not None:
        if run.cancelled_by:
            detail = f"cancelled by {run.cancelled_by} after the last step, before it was seen whether it helped"
            return Finish(RunOutcome.CANCELLED, Reason.CANCELLED_BY_PERSON, detail)
        return Verify("")
    has_next = run.verification is Outcome.FAILED and run.rung < run.plan.top_rung
    if has_next and (now.is_open or run.plan.is_by_hand or run.plan.latched):
        return _cancelled(run) or Climb(run.rung + 1)
    return _conclude(run)


def _conclude(run: Run) -> Finish:
    after = f" after rung {run.rung} of {run.plan.top_rung}" if run.rung else ""
    if run.verification is Outcome.FAILED:
        by_alert = all(check.condition is None for check in run.plan.verify)
        reason = Reason.STILL_FIRING if by_alert else Reason.DID_NOT_HELP
        return Finish(RunOutcome.INEFFECTIVE, reason, f"it did not help{after}: {run.verification_detail}")
    if run.verification is Outcome.UNKNOWN:
        detail = f"whether it helped could not be seen{after}: {run.verification_detail}"
        return Finish(RunOutcome.UNVERIFIED, Reason.NO_VALUE, detail)
    if _has_climbed(run) and not run.plan.acts_of(run.rung):
        # The rungs before did not help, or there would be no climbing to one that only tells people.
        return Finish(RunOutcome.INEFFECTIVE, Reason.DID_NOT_HELP, f"no rung helped{after}, which only tells people")
    counted = run.plan.acts_of(run.rung) or run.current_steps
    states = [(step, run.step(step.key)) for step in counted]
    done = [state for _, state in states if state.outcome is Outcome.SUCCEEDED]
    failed = [(step, state) for step, state in states if state.outcome is Outcome.FAILED]
    has_helped = run.verification is Outcome.SUCCEEDED and run.has_acted and not failed  # by a rung before this one
    if done or has_helped:
        what = f"done, but for step {failed[0][0].name}, which failed" if failed else f"all steps were done{after}"
        helped = f" and {run.verification_detail}" if run.verification is Outcome.SUCCEEDED else ""
        return Finish(RunOutcome.SUCCEEDED, Reason.NONE, f"{what}{helped}")
    if failed:
        step, state = failed[0]
        return Finish(RunOutcome.FAILED, state.reason, f"step {step.name} failed: {state.detail}")
    reason = next((state.reason for _, state in states if state.reason is not Reason.NONE), Reason.ALREADY_SO)
    return Finish(RunOutcome.UNCHANGED, reason, "there was nothing to change")


WITHOUT_A_FIX = frozenset(
    {
        RunOutcome.FAILED,
        RunOutcome.UNKNOWN,
        RunOutcome.UNVERIFIED,
        RunOutcome.INEFFECTIVE,
        RunOutcome.REFUSED,
        RunOutcome.EXPIRED,
        RunOutcome.STALE,
    }
)
"""Endings that people are told of through ``escalate``."""

TAKEN_AWAY = frozenset({Reason.PLAYBOOK_GONE, Reason.PLAYBOOK_EDITED, Reason.PLAYBOOK_DISABLED, Reason.MODE_OBSERVE})
"""Reasons of a cancelled run that people are told of too: nobody else will act now."""


def is_to_escalate(run: Run) -> bool:
    """Whether this ending is told through ``escalate``; what holds is how things were when the run ended."""
    if not run.plan.escalate_to or run.plan.mode is not Mode.ENFORCE:
        return False
    if run.outcome is RunOutcome.CANCELLED:
        return run.reason in TAKEN_AWAY
    if run.outcome not in WITHOUT_A_FIX:
        return False
    if run.plan.is_messages_alone and run.plan.steps and run.outcome is RunOutcome.REFUSED:
        return False  # it only wanted to say again what was said a moment ago
    return run.fired_at_end or run.plan.latched or run.has_acted


def tell_gap(run: Run) -> timedelta:
    """How long one ending of one playbook's values is not told again."""
    if run.outcome is RunOutcome.REFUSED and run.reason is Reason.MISSING_LABEL:
        return max(run.plan.guard.cooldown, TELL_MISSING)
    return max(run.plan.guard.cooldown, TELL_AT_LEAST)


def _after_end(run: Run, now: Situation) -> Move:
    wakes: list[datetime] = []
    for told in (
        _message(run, MessageKind.ESCALATE, now) if is_to_escalate(run) else None,
        _tell_others(run, now),
        _message(run, MessageKind.REPORT, now) if is_to_report(run) else None,
        _tell_of_breakers(run, now),
        *_lease_messages(run, now),
    ):
        if isinstance(told, Sleep):
            assert told.until is not None
            wakes.append(told.until)
        elif told is not None:
            return told
    if run.outcome is RunOutcome.UNKNOWN:
        return Sleep(min(wakes, default=None))  # a person settles it
    move = _resolved_steps(run, now)
    if move is not None and not isinstance(move, Sleep):
        return move
    still = _still_firing(run, now)
    if still is not None and not isinstance(still, Sleep):
        return still
    wakes += [sleep.until for sleep in (move, still) if isinstance(sleep, Sleep) and sleep.until is not None]
    if wakes:
        return Sleep(min(wakes))
    return Close() if move is None and still is None else Sleep(None)


def is_to_report(run: Run) -> bool:
    """Whether ``report`` is told how it ended."""
    return bool(run.plan.report_to) and run.has_acted and run.plan.mode is Mode.ENFORCE


def is_lease_news_told(run: Run, kind: MessageKind) -> bool:
    """Whether people are told what became of what it changed; a run that ended for it has said so already."""
    if not run.plan.escalate_to:
        return False
    return kind is not MessageKind.DRIFTED or run.reason is not Reason.DRIFTED


def _lease_messages(run: Run, now: Situation) -> list[Tell | Sleep]:
    """What became of what it changed, told once for each target."""
    return [
        _tell(run, kind, now.now, target)
        for kind, news in run.lease_news.items()
        if is_lease_news_told(run, kind)
        for target in news
        if run.step(message_key(kind, target)).outcome is None
    ]


def _message(run: Run, kind: MessageKind, now: Situation) -> Tell | Skip | Sleep | None:
    state = run.step(message_key(kind))
    if state.outcome is not None:
        return None
    if kind is not MessageKind.REPORT and kind in now.has_told and not state.attempts:
        return Skip(message_key(kind), Reason.COOLDOWN, "people were told of this a moment ago")
    return _tell(run, kind, now.now)


OTHERS = "next"
"""What the escalation to those others is about."""


def _tell_others(run: Run, now: Situation) -> Tell | Sleep | None:
    """The escalation reached none of those whom the plan names: those whom the settings name beside them, once."""
    if not has_reached_nobody(run, message_key(MessageKind.ESCALATE)) or not now.others_to_tell:
        return None
    if run.step(message_key(MessageKind.ESCALATE, OTHERS)).outcome is not None:
        return None
    return _tell(run, MessageKind.ESCALATE, now.now, OTHERS)


def has_reached_nobody(run: Run, step_key: str) -> bool:
    """Whether a message was given up and none of its tries is known to have reached anybody."""
    state = run.step(step_key)
    return state.outcome is Outcome.FAILED and not any(attempt.after.get("told") for attempt in state.attempts)


def _tell(run: Run, kind: MessageKind, now: datetime, about: str = "") -> Tell | Sleep:
    attempts = run.step(message_key(kind, about)).attempts
    if attempts and attempts[-1].retry_at is not None and attempts[-1].retry_at > now:
        return Sleep(attempts[-1].retry_at)
    return Tell(kind, len(attempts) + 1, about)


def _resolved_steps(run: Run, now: Situation) -> Move | None:
    """``resolved`` steps come after the end, once, when the subject is resolved and has stayed so for ``hold``."""
    pending = [step for step in run.plan.resolved if run.step(step.key).outcome is None]
    if not pending or not run.has_done_something or run.plan.is_by_hand or run.reason is Reason.SETTLED_BY_PERSON:
        return None
    if now.is_open:
        return Sleep(None)
    step = pending[0]
    if now.close_reason not in RESOLVED_BY or now.closed_at is None:
        return None
    state = run.step(step.key)
    if not state.attempts and now.is_reopened:
        return Skip(step.key, Reason.FIRED_AGAIN, "it fires again")
    until = now.closed_at + run.plan.hold
    if now.now < until:
        return Sleep(until)
    previous = run.plan.resolved[: run.plan.resolved.index(step)]
    if any(run.step(done.key).outcome is Outcome.FAILED and done.on_failure is OnFailure.STOP for done in previous):
        return Skip(step.key, Reason.STEP_FAILED, "a step before it failed")
    skip = _skipped(run, step, now) if not state.attempts else None
    if skip is not None:
        return skip
    later = _not_again(step, state, now) if state.attempts else None
    if later is not None:
        return later
    not_now = None if step.is_message else _mode_forbids(run, now)
    if not_now is not None:
        return Skip(step.key, not_now.reason, not_now.detail)
    if not step.is_message and now.pause is not None:
        return Sleep(now.now + LOOK_AT_PAUSE)
    return Try(step, len(state.attempts) + 1)


def _still_firing(run: Run, now: Situation) -> Move | None:
    """A subject that fires on long after its run succeeded is told once; there is no second run."""
    if run.outcome is not RunOutcome.SUCCEEDED or not run.has_acted or not run.plan.escalate_to:
        return None
    if not now.is_open or run.plan.is_by_hand or run.ended_at is None:
        return None
    until = run.ended_at + tell_gap(run)
    if now.now < until:
        return Sleep(until)
    return _message(run, MessageKind.STILL_FIRING, now)


def phase_of(run: Run, now: Situation) -> Phase:
    """Where the run is, for lists and metrics."""
    if run.outcome is not None:
        return Phase.ENDED
    if run.open_question is not None:
        return Phase.ASKING
    if run.is_admitted:
        pending = any(run.step(step.key).outcome is None for step in run.current_steps)
        return Phase.ACTING if pending else Phase.VERIFYING
    return Phase.HOLDING if now.now < now.opened_at + run.plan.hold else Phase.WAITING


WAITING_FOR = {
    Reason.COOLDOWN: "the cooldown",
    Reason.MAX_RUNS: "its limit max_runs",
    Reason.CONCURRENCY: "a place among the runs at work (max_concurrent_runs)",
    Reason.BUSY_TARGET: "another run that has its target",
    Reason.PAUSED: "the end of the pause",
    Reason.UNREACHABLE: "its target's system to answer",
    Reason.NOT_KNOWN_TO_FIRE: "a word that the alert still fires",
    Reason.SILENCED: "the end of a silence on its alert",
    Reason.INHIBITED: "the end of what inhibits its alert",
    Reason.ALERTMANAGER_AWAY: "an Alertmanager to answer whether it fires",
    Reason.BREAKER: "a person to reset a breaker",
    Reason.MAX_TARGETS: "its limit max_targets",
    Reason.MAX_DISRUPTIVE_ACTS: "the policy's limit max_disruptive_acts",
    Reason.REQUIRE_UNKNOWN: "a value of a condition that must hold (require)",
}


def waiting_text(waits_for: Sequence[str]) -> str:
    """``waits_for`` for people: ``the cooldown; another run that has its target (docker:gpu-07/trainer-0)``."""
    pairs = [what.partition(":")[::2] for what in waits_for]
    busy = ", ".join(ref for rule, ref in pairs if rule == "busy")
    known = {reason.value: text for reason, text in WAITING_FOR.items()}
    texts = [known.get(reason, reason.replace("_", " ")) for rule, reason in pairs if rule != "busy"]
    return "; ".join(f"{text} ({busy})" if busy and text == WAITING_FOR[Reason.BUSY_TARGET] else text for text in texts)


def needs_word(run: Run, opened_at: datetime, gap_ended_at: datetime | None, now: datetime) -> bool:
    """Whether it can be this run's turn now, so that the Alertmanagers are asked whether its subject fires."""
    if run.outcome is not None or run.plan.is_by_hand or run.open_question is not None:
        return False
    if not run.is_admitted:
        return now >= opened_at + run.plan.hold
    answered = (question for question in run.questions.values() if question.answer is not Answer.OPEN)
    return is_judged_before(run, gap_ended_at, now) or any(not question.is_judged for question in answered)
