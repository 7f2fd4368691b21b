"""Stage 6, execute: ``PlannedStep`` → ``Outcome`` after 1..n attempts, each recorded before and after.

The one place that calls ``apply``, and with ``clients/*`` the only one that catches broadly: what an action raises
becomes an outcome, and after it nobody asks the action what happened. An attempt whose fate is unclear keeps no end: it
is looked at (``look``) against what ``attempt_started`` kept, now or by the engine that starts after a crash.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, cast

from pydantic import ValidationError
from tenacity import DoSleep, RetryCallState, RetryError, Retrying, retry_if_exception_type, wait_exponential

from remediator.core.action import (
    Action,
    ActionParams,
    Change,
    JsonValue,
    LookingActions,
    Standing,
    Targeting,
    UndoableAction,
)
from remediator.core.event import EventType, utc_text
from remediator.core.guard import Word, may_touch
from remediator.core.lease import How, Lease
from remediator.core.move import Finish
from remediator.core.outcome import Effect, Outcome, RunOutcome
from remediator.core.plan import Actions, PlannedStep, params_of
from remediator.core.policy import Policy
from remediator.core.render import Context
from remediator.core.retry import RetryPolicy
from remediator.core.run import Attempt, MessageKind, Run, message_key
from remediator.engine.clock import Clock
from remediator.engine.lending import close, kept_text, new_lease, open_lease
from remediator.engine.record import Recorder
from remediator.errors import (
    ActionError,
    MissingValueError,
    Reason,
    StoreError,
    TemplateError,
    TransientActionError,
    UnknownEffectError,
)
from remediator.store import leases, runs
from remediator.store.engine import Store
from remediator.store.writer import Tx
from remediator.telemetry import get_logger

log = get_logger(__name__)

UNHEARD = "unheard"
"""Key in ``control``: the last escalation, where it reached nobody and no message has arrived since."""

LOOK_AGAIN = timedelta(seconds=5)
"""An attempt of unclear fate is looked at so often."""

LOOK_AFTER_START = timedelta(minutes=1)
"""After a start of the engine a system that cannot be asked has this long to answer, before people are called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tried:
    """One attempt: of which step, on what and as it was, since when; ``n`` is the place of its ``attempt_started``."""

    run: Run
    step: PlannedStep
    number: int
    refs: tuple[str, ...]
    started_at: datetime
    n: int
    before: Mapping[str, JsonValue] = field(default_factory=dict)
    params: ActionParams | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    """How it ended; ``retry_at`` is None when it is the step's last attempt."""

    outcome: Outcome
    reason: Reason = Reason.NONE
    detail: str = ""
    has_changed: bool
    after: Mapping[str, JsonValue] = field(default_factory=dict)
    retry_at: datetime | None = None


class Executor:
    """Makes attempts and looks at what they did.

    Args:
        jitter: a random number in [-1, 1]; tests pass one that is always 0.
    """

    def __init__(
        self,
        store: Store,
        recorder: Recorder,
        actions: Actions,
        clients: Any,
        clock: Clock,
        *,
        jitter: Callable[[], float] = lambda: random.uniform(-1, 1),  # noqa: S311 spreads load, guards nothing
    ) -> None:
        self._store = store
        self._recorder = recorder
        self._actions = actions
        self._clients = clients
        self._clock = clock
        self._jitter = jitter
        self._started_at = clock.now()
        self._wake: Callable[[str], None] = lambda _: None

    def attach(self, wake: Callable[[str], None]) -> None:
        """Who lets a run, or the leases on a target, be looked at."""
        self._wake = wake

    # -- one attempt

    def attempt(
        self, run: Run, step: PlannedStep, number: int, n_alerts: int, policy: Policy, told: MessageKind | None = None
    ) -> Finish | None:
        """Make one attempt: look again, record, act, record.

        Args:
            n_alerts: how many of the subject's alerts fire, for late values.
            policy: in force now.
            told: the kind, where the step is one of the engine's own messages.

        Returns:
            The run's end where the targets are not what was judged; else None, and the log says what happened.

        Raises:
            StoreError: before the act: nothing was done. After it: the attempt has no end, and is looked at.
        """
        action = self._actions[step.action]
        try:
            params = params_of(step, action, run.context(n_alerts))
            targeting = Targeting() if step.is_message else action.targets(params, self._clients)
            refused = _look_at_targets(run, step, targeting, policy)
            if refused is not None:
                return refused
            if replaced := _replaced(run, targeting):
                self.skip(run, step.key, Outcome.UNCHANGED, Reason.REPLACED, replaced)
                return None
            before = action.observe(params, self._clients)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 what an action raises becomes an outcome
            self._begin_and_fail(run, step, number, as_action_error(error))
            return None
        refs = tuple(target.ref for target in targeting.targets)
        drifted = self._drifted(run, step, params, refs, before)
        if drifted is not None:
            return drifted
        tried = _Tried(
            run=run, step=step, number=number, refs=refs, started_at=self._clock.now(), n=run.n_events + 1,
            before=before, params=params,
        )  # fmt: skip
        taken = self._store.write(lambda tx: self._start(tx, tried))
        if taken:
            return Finish(RunOutcome.REFUSED, Reason.BUSY_TARGET, taken)
        try:
            change = action.apply(params, self._clients, before, step.timeout)
        except UnknownEffectError as error:
            log.warning("attempt of unclear fate", run_id=run.plan.run_id, step=step.name, problem=str(error))
            return None
        except Exception as error:  # noqa: BLE001 as above
            result = self._failure(tried, as_action_error(error))
        else:
            result = _success(change)
        self._store.write(lambda tx: self._finish(tx, tried, result, told))
        return None

    def would_change(self, run: Run, step: PlannedStep) -> bool:
        """Whether a step would change anything, as its target is now; True where that cannot be seen. Read-only."""
        action = self._actions[step.action]
        try:
            params = params_of(step, action, run.context(1))
            return action.would_change(params, action.observe(params, self._clients))
        except Exception as error:  # noqa: BLE001 what an action raises here is seen again when it acts
            as_action_error(error)
            return True

    def skip(self, run: Run, step_key: str, outcome: Outcome, reason: Reason, detail: str) -> None:
        """Record that a step is not carried out, or not gone on with. Raises StoreError."""
        data = {"step": step_key, "outcome": outcome.value, "reason": reason.value, "detail": detail}
        n, now = run.n_events + 1, self._clock.now()
        self._store.write(
            lambda tx: self._recorder.append_to_run(
                tx, run.plan, n, EventType.STEP_SKIPPED, now, data, outcome=outcome.value
            )
        )

    def _begin_and_fail(self, run: Run, step: PlannedStep, number: int, error: ActionError) -> None:
        """An attempt that failed while it only looked: nothing was sent."""
        refs = (error.target,) if error.target else ()
        tried = _Tried(run=run, step=step, number=number, refs=refs, started_at=self._clock.now(), n=run.n_events + 1)
        failure = error
        if isinstance(error, UnknownEffectError):
            failure = TransientActionError(str(error), target=error.target)
        result = self._failure(tried, failure)

        def both(tx: Tx) -> None:
            self._record_start(tx, tried)
            self._finish(tx, tried, result)

        self._store.write(both)

    def _drifted(
        self,
        run: Run,
        step: PlannedStep,
        params: ActionParams,
        refs: tuple[str, ...],
        seen: Mapping[str, JsonValue],
    ) -> Finish | None:
        """The run's end where others have changed what was last left on its target: all that is lent there is closed.

        What the step would do is not done: its undo would bring back what nobody here had ever left.
        """
        if step.undo is None or self._changed_before(run, step, params, seen) is not None:
            return None
        action = cast("UndoableAction[Any]", self._actions[step.action])
        for ref in refs:
            with self._store.read() as conn:
                stack = leases.stack(conn, action.name, ref)
            standing = action.standing(stack[-1].left, seen) if stack else Standing.AS_LEFT
            if standing is not Standing.AS_LEFT:
                how = How.DRIFTED if standing is Standing.DRIFTED else How.REVERTED
                detail = f"{ref} is not as it was left ({how.value}): nothing is done to it, and nothing is taken back"
                self._store.write(partial(self._close_stack, stack=stack, how=how, detail=detail))
                return Finish(RunOutcome.REFUSED, Reason.DRIFTED, detail)
        return None

    def _close_stack(self, tx: Tx, stack: Sequence[Lease], how: How, detail: str) -> None:
        told = close(tx, self._recorder, tuple(reversed(stack)), how, detail, self._clock.now())
        self._wake_later(tx, [*told, stack[-1].stack_id])

    def _wake_later(self, tx: Tx, ids: Sequence[str]) -> None:
        for one in ids:
            tx.after_commit(partial(self._wake, one))

    # -- what is recorded

    def _start(self, tx: Tx, tried: _Tried) -> str:
        """Record the start; a step after the run's end, whose reservation has gone, takes its target first.

        Returns:
            Who has the target, where it cannot be had; then nothing is recorded.
        """
        run = tried.run
        if run.outcome is not None and tried.refs:
            wanted = dict.fromkeys(tried.refs, True)
            found = runs.taken(tx.conn, wanted, run.plan.run_id)
            if found:
                return "; ".join(f"{ref} is taken by run {other}" for ref, other in sorted(found.items()))
            runs.hold(tx.conn, run.plan.run_id, wanted, tried.started_at)
        self._record_start(tx, tried)
        return ""

    def _record_start(self, tx: Tx, tried: _Tried) -> None:
        step = tried.step
        data: dict[str, JsonValue] = {
            "step": step.key,
            "attempt": tried.number,
            "action": step.action,
            "describes": step.describes,
            "params": dict(step.params),
            "targets": list(tried.refs),
            "before": dict(tried.before),
            "timeout_ms": int(step.timeout.total_seconds() * 1000),
        }
        self._recorder.append_to_run(
            tx,
            tried.run.plan,
            tried.n,
            EventType.ATTEMPT_STARTED,
            tried.started_at,
            data,
            target=", ".join(tried.refs),
        )

    def _finish(self, tx: Tx, tried: _Tried, result: _Result, told: MessageKind | None = None) -> None:
        """Record the end, and what the guards count of it."""
        run, step, plan, now = tried.run, tried.step, tried.run.plan, self._clock.now()
        data: dict[str, JsonValue] = {
            "step": step.key,
            "attempt": tried.number,
            "action": step.action,
            "outcome": result.outcome.value,
            "reason": result.reason.value,
            "detail": kept_text(result.detail),
            "changed": result.has_changed,
            "after": dict(result.after),
            "duration_ms": max(0, int((now - tried.started_at).total_seconds() * 1000)),
            "retry_at": utc_text(result.retry_at) if result.retry_at is not None else "",
        }
        self._recorder.append_to_run(
            tx,
            plan,
            tried.n + 1,
            EventType.ATTEMPT_FINISHED,
            now,
            data,
            target=", ".join(tried.refs),
            outcome=result.outcome.value,
        )
        self._lend(tx, tried, result, now)
        if result.has_changed and not step.is_message:
            runs.note_act(tx.conn, plan, tried.refs, now, is_disruptive=step.is_disruptive)
        elif result.outcome is Outcome.SUCCEEDED and step in plan.steps and plan.is_messages_alone:
            runs.note_act(tx.conn, plan, (), now, is_disruptive=False)
        if run.outcome is not None and result.retry_at is None and tried.refs:
            runs.release(tx.conn, plan.run_id)
        is_once_a_while = run.outcome is not None or told is MessageKind.WAITING
        if told is not None and is_once_a_while and result.outcome is Outcome.SUCCEEDED:
            runs.note_told(tx.conn, plan.playbook, plan.per_key, ending_of(told, run), now)
        if step.is_message:
            self._note_reach(tx, tried, result, now)

    def _note_reach(self, tx: Tx, tried: _Tried, result: _Result, now: datetime) -> None:
        """Keep that an escalation reached nobody, until the next message arrives."""
        run, key = tried.run, tried.step.key
        tries = [result.after, *(attempt.after for attempt in run.step(key).attempts[: tried.number - 1])]
        if result.outcome is Outcome.SUCCEEDED or any(after.get("told") for after in tries):
            if runs.get_control(tx.conn, UNHEARD) is not None:
                runs.set_control(tx.conn, UNHEARD, None)
        elif result.retry_at is None and key.startswith(message_key(MessageKind.ESCALATE)):
            runs.set_control(tx.conn, UNHEARD, {"run_id": run.plan.run_id, "at": utc_text(now)})
            tx.after_commit(lambda: self._recorder.note_unheard(run.plan.run_id, tried.step.describes, result.detail))

    def _lend(self, tx: Tx, tried: _Tried, result: _Result, now: datetime) -> None:
        """What was changed and can be taken back is a lease from now on."""
        plan, step = tried.run.plan, tried.step
        if tried.params is None or step.undo is None:
            return
        before: Mapping[str, JsonValue] | None = None
        if result.outcome is Outcome.SUCCEEDED and result.has_changed:
            before = tried.before
        elif result.outcome is Outcome.UNCHANGED:
            before = self._changed_before(tried.run, step, tried.params, result.after)
        if before is None:
            return
        lease = new_lease(plan, step, tried.number, tried.params, tried.refs, before, result.after, now)
        if lease is not None:
            open_lease(tx, self._recorder, plan, tried.n + 2, lease)
            self._wake_later(tx, [lease.stack_id])

    def _changed_before(
        self, run: Run, step: PlannedStep, params: ActionParams, seen: Mapping[str, JsonValue]
    ) -> Mapping[str, JsonValue] | None:
        """As the target was before an attempt of unclear fate, where what is seen shows that it happened; else None.

        The next attempt finds nothing left to change then, and what this run changed is lent all the same.
        """
        action = self._actions[step.action]
        for attempt in run.step(step.key).attempts:
            if attempt.has_changed and action.effect(params, attempt.before, seen) is Effect.HAPPENED:
                return attempt.before
        return None

    def _failure(self, tried: _Tried, error: ActionError, *, has_changed: bool = False) -> _Result:
        attempts = tried.run.step(tried.step.key).attempts
        first = attempts[0].started_at if attempts else tried.started_at
        return _Result(
            outcome=Outcome.FAILED,
            reason=error.reason,
            detail=str(error),
            has_changed=has_changed,
            after=error.after,
            retry_at=decide_retry(tried.step.retry, tried.number, error, first, self._clock.now(), self._jitter),
        )

    # -- an attempt without an end

    def look(self, run: Run, step: PlannedStep) -> datetime | None:
        """Find out what an attempt without an end did, and record its end where that is clear.

        "It happened" needs evidence. "It did not happen" is concluded only when the attempt's time-out has passed since
        its start and the target is as before; it counts as a transient failure. While unclear, an idempotent action is
        tried again, and any other becomes ``unknown`` once its time-out has passed.

        Returns:
            When to look again; None when the end is recorded.

        Raises:
            StoreError: look again.
        """
        attempt = run.step(step.key).open_attempt
        assert attempt is not None
        tried = _Tried(
            run=run,
            step=step,
            number=attempt.number,
            refs=attempt.targets,
            started_at=attempt.started_at,
            n=run.n_events,
            before=attempt.before,
            params=self._params(run, step),
        )
        again_at, result = self._seen(tried, attempt)
        if result is not None:
            self._store.write(lambda tx: self._finish(tx, tried, result))
        return again_at

    def _params(self, run: Run, step: PlannedStep) -> ActionParams | None:
        try:
            return params_of(step, self._actions[step.action], run.context(1))
        except (MissingValueError, TemplateError, ValidationError):
            return None  # the look says so, and nothing is lent

    def _seen(self, tried: _Tried, attempt: Attempt) -> tuple[datetime | None, _Result | None]:
        """When to look again, or how the attempt ended."""
        if tried.step.is_message:
            return None, self._failure(tried, ActionError("nobody knows whether it was sent", reason=Reason.NOTIFY))
        now, over_at = self._clock.now(), attempt.started_at + attempt.timeout
        effect, state, why = self._effect(tried, attempt)
        if effect is Effect.HAPPENED:
            detail = "no answer came; the target shows that it happened"
            return None, _Result(outcome=Outcome.SUCCEEDED, detail=detail, has_changed=True, after=state)
        if effect is None:  # the system could not be asked
            over_at = max(over_at, self._started_at + LOOK_AFTER_START)
        if now < over_at:
            return min(now + LOOK_AGAIN, over_at), None
        if effect is Effect.AS_BEFORE:
            lost = TransientActionError("no answer came, and the target is as before", reason=Reason.DID_NOT_HAPPEN)
            return None, replace(self._failure(tried, lost), after=state)
        unclear = TransientActionError(f"nobody knows whether it happened: {why}", reason=Reason.UNKNOWN_EFFECT)
        result = replace(self._failure(tried, unclear, has_changed=True), after=state)
        if not tried.step.is_idempotent:
            result = replace(result, outcome=Outcome.UNKNOWN, retry_at=None)
        return None, result

    def _effect(self, tried: _Tried, attempt: Attempt) -> tuple[Effect | None, Mapping[str, JsonValue], str]:
        action: Action[Any] = self._actions[tried.step.action]
        try:
            params: ActionParams = params_of(tried.step, action, tried.run.context(1))
            state = action.observe(params, self._clients)
            return action.effect(params, attempt.before, state), state, "the target does not tell"
        except TransientActionError as error:
            return None, {}, str(error)
        except Exception as error:  # noqa: BLE001 as above
            return Effect.UNCLEAR, {}, str(as_action_error(error))


def _success(change: Change) -> _Result:
    return _Result(
        outcome=Outcome.SUCCEEDED if change.changed else Outcome.UNCHANGED,
        reason=Reason.NONE if change.changed else Reason.ALREADY_SO,
        detail=change.detail,
        has_changed=change.changed,
        after=change.after,
    )


def _look_at_targets(run: Run, step: PlannedStep, targeting: Targeting, policy: Policy) -> Finish | None:
    """Right before the act: the policy in force, and whether the targets still belong to whom they did."""
    answer = may_touch(targeting, policy)
    if answer.word is Word.REFUSE:
        return Finish(RunOutcome.REFUSED, answer.reason, answer.detail)
    for target in targeting.targets:
        planned = run.planned_targets.get(target.ref)
        if planned is None and step in run.plan.steps:
            detail = f"{target.ref} is not what was judged ({', '.join(run.planned_targets)})"
            return Finish(RunOutcome.REFUSED, Reason.TARGET_CHANGED, detail)
        if planned is not None and planned[1] != target.owner:
            detail = f"{target.ref} has another owner now: {target.owner or 'none'}, was {planned[1] or 'none'}"
            return Finish(RunOutcome.REFUSED, Reason.TARGET_CHANGED, detail)
    return None


def _replaced(run: Run, targeting: Targeting) -> str:
    """Which target was made anew since the verdict, "" when none: what was to be mended is gone with the old one."""
    for target in targeting.targets:
        planned = run.planned_targets.get(target.ref)
        if planned is not None and planned[0] != target.uid:
            return f"{target.ref} was replaced since it was judged ({planned[0][:12]} → {target.uid[:12]})"
    return ""


def decide_retry(
    policy: RetryPolicy,
    number: int,
    error: ActionError,
    first_started_at: datetime,
    now: datetime,
    jitter: Callable[[], float],
) -> datetime | None:
    """When to try again after the ``number``-th attempt failed with ``error``; None = never.

    tenacity decides, one failure at a time, and its sleep becomes a due time: it survives a restart and holds no
    thread. The stop condition is a callable on our clock, since tenacity reads its own.

    Args:
        jitter: a random number in [-1, 1].
    """

    def wait(state: RetryCallState) -> float:
        base = wait_exponential(multiplier=policy.wait.total_seconds(), max=policy.max_wait.total_seconds())(state)
        spread = base * (1 + jitter() * policy.jitter_pct / 100)
        asked_for = error.retry_after_s if isinstance(error, TransientActionError) else None
        return max(spread, asked_for or 0.0)

    def stop(state: RetryCallState) -> bool:
        if policy.attempts is not None and state.attempt_number >= policy.attempts:
            return True
        next_at = now + timedelta(seconds=state.upcoming_sleep)
        return policy.budget is not None and next_at > first_started_at + policy.budget

    retrying = Retrying(retry=retry_if_exception_type(TransientActionError), wait=wait, stop=stop)
    retrying.begin()
    state = RetryCallState(retrying, None, (), {})
    state.attempt_number = number
    state.set_exception((type(error), error, None))
    try:
        pause_s = retrying.iter(state)
    except (RetryError, ActionError):  # it gives up: out of attempts or budget, or not worth another
        return None
    assert isinstance(pause_s, DoSleep)
    return now + timedelta(seconds=pause_s)


def targets_of(step: PlannedStep, actions: LookingActions, clients: Any, context: Context) -> Targeting:
    """What one step touches now. Read-only.

    Raises:
        ActionError: it could not be answered, or a value does not fit (``Reason.BAD_PARAMS``).
    """
    action = actions[step.action]
    try:
        return action.targets(params_of(step, action, context), clients)
    except Exception as error:
        raise as_action_error(error) from error


def as_action_error(error: Exception) -> ActionError:
    """What an action raised, as one of the errors that it may raise; any other is a bug: logged, never retried."""
    if isinstance(error, ActionError):
        return error
    if isinstance(error, (MissingValueError, TemplateError, ValidationError)):
        return ActionError(str(error), reason=Reason.BAD_PARAMS)
    log.error("unexpected error in an action", exc_info=error)
    return ActionError(f"{type(error).__name__}: {error}", reason=Reason.UNEXPECTED)


def ending_of(kind: MessageKind, run: Run) -> str:
    """What people are told once per ``tell_gap``: a kind of message about one kind of ending."""
    return f"{kind.value}:{run.outcome.value if run.outcome is not None else ''}"
