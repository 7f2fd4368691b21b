"""Changes that end, driven: ``advance(stack)`` takes the leases on one target as far as they can go now.

It reads the stack, looks at what is around it, asks the pure ``core.lease.next_lease_move`` and makes that move; each
move ends in an event, so that the next look finds the next one. ``engine.dispatch`` wakes it as it wakes runs. Before
it restores anything it looks whether the target is as it was last left: what others changed is left to them.

It needs no playbook and asks no mode: what was lent is taken back whatever became of who lent it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, assert_never, cast

from remediator.core.action import Action, ActionParams, JsonValue, Standing, State, UndoableAction, UndoWhen
from remediator.core.condition import Condition, Reading, Seen, look
from remediator.core.event import EventType, utc_text
from remediator.core.lease import (
    Around,
    AskRequire,
    How,
    Keep,
    Lease,
    LeaseMove,
    Release,
    Rest,
    Surroundings,
    TakeBack,
    next_lease_move,
    retry_at,
    split_stack_id,
)
from remediator.core.move import RESOLVED_BY
from remediator.core.outcome import Outcome
from remediator.core.plan import Actions
from remediator.core.units import print_duration
from remediator.engine.clock import Clock
from remediator.engine.execute import as_action_error
from remediator.engine.lending import about, close, kept_text, let_tell
from remediator.engine.people import find_run
from remediator.engine.record import Recorder
from remediator.engine.reserve import PauseSource
from remediator.errors import ConflictError, RequestError, StoreError, TargetNotFoundError, UnknownEffectError
from remediator.store import Connection, leases, runs
from remediator.store.engine import Store
from remediator.store.leases import LeaseRow
from remediator.store.writer import Tx
from remediator.telemetry import get_logger

log = get_logger(__name__)

Ask = Callable[[str, Sequence[Condition]], tuple[Reading, ...]]
"""Asks a Prometheus by its name; see ``engine.conditions.Conditions.ask``."""

ALREADY_SO = "the target was as before the change already"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ended:
    """How a try of an undo ended.

    Attributes:
        state: of the target, as it was left or seen last.
        how: how the leases are closed with it; None = they stay open.
    """

    outcome: Outcome
    detail: str
    state: State
    how: How | None


class Leases:
    """Advances stacks. Each is advanced by one thread at a time (``engine.dispatch``).

    Args:
        ask: for ``undo.require``.
        n_places: ``max_concurrent_runs`` as it is in force now.
        wake: lets a run or a stack be looked at.
    """

    def __init__(
        self,
        store: Store,
        recorder: Recorder,
        actions: Actions,
        clients: Any,
        clock: Clock,
        pause: PauseSource,
        *,
        ask: Ask,
        n_places: Callable[[], int],
        wake: Callable[[str], None],
    ) -> None:
        self._store = store
        self._recorder = recorder
        self._actions = actions
        self._clients = clients
        self._clock = clock
        self._pause = pause
        self._ask = ask
        self._n_places = n_places
        self._wake = wake

    def advance(self, stack: str) -> datetime | None:
        """Do all that can be done now.

        Returns:
            When to come again; None = an event wakes the stack, or nothing of it is open.

        Raises:
            StoreError: nothing was half done; come again.
        """
        required: dict[str, tuple[bool, str]] = {}
        while True:
            with self._store.read() as conn:
                move = self._next(conn, stack, required)
            match move:
                case Rest(until):
                    self._store.write(partial(_set_due, stack=stack, at=until))
                    return until
                case AskRequire(lease):
                    required[lease.id] = self._ask_require(lease)
                case Release() | Keep():
                    self._store.write(partial(self._note, move=move, required=required))
                case TakeBack():
                    self._take_back(move, required)
                case _:
                    assert_never(move)

    def wake_all(self) -> None:
        """Let every stack be looked at: after a pause."""
        with self._store.read() as conn:
            found = leases.stacks(conn)
        for stack in found:
            self._wake(stack)

    # -- what is known

    def _next(self, conn: Connection, stack: str, required: dict[str, tuple[bool, str]]) -> LeaseMove:
        action, target = split_stack_id(stack)
        found = leases.stack(conn, action, target)
        around: dict[str, Around] = {}
        for lease in found:
            fires, closed_at, reason = leases.word_of_values(conn, lease.playbook, lease.per_key)
            around[lease.id] = Around(
                fires=fires,
                resolved_at=closed_at if not fires and reason in RESOLVED_BY else None,
                younger_closed_at=leases.younger_closed_at(conn, lease),
                required=required.get(lease.id),
            )
        return next_lease_move(
            found,
            Surroundings(
                now=self._clock.now(),
                around=around,
                is_paused=self._pause(conn) is not None,
                taken_by=runs.taken(conn, {target: True}, "").get(target, ""),
            ),
        )

    def _is_still(self, tx: Tx, move: LeaseMove, of: Lease, required: dict[str, tuple[bool, str]]) -> bool:
        """Whether a move is still the next one, in the transaction that makes it."""
        return self._next(tx.conn, of.stack_id, required) == move

    def _ask_require(self, lease: Lease) -> tuple[bool, str]:
        readings = self._ask(lease.prometheus, lease.undo.require)
        looks = [look(condition, reading) for condition, reading in zip(lease.undo.require, readings, strict=True)]
        not_met = [detail for seen, detail in looks if seen is not Seen.MET]
        return not not_met, kept_text("; ".join(not_met))

    # -- moves

    def _note(self, tx: Tx, move: Release | Keep, required: dict[str, tuple[bool, str]]) -> None:
        lease, now = move.lease, self._clock.now()
        if not self._is_still(tx, move, lease, required):
            return
        if isinstance(move, Release):
            leases.release(tx.conn, lease.id, now)
            self._recorder.append_beside_run(
                tx, lease.run_id, EventType.LEASE_RELEASED, now, about(lease), target=lease.target
            )
            return
        leases.keep(tx.conn, lease.id, now)
        data = {**about(lease), "detail": f"{lease.target}: {move.why}"}
        self._recorder.append_beside_run(tx, lease.run_id, EventType.LEASE_KEPT, now, data, target=lease.target)
        self._wake_later(tx, let_tell(tx, [lease]))

    def _take_back(self, move: TakeBack, required: dict[str, tuple[bool, str]]) -> None:
        """Look, and undo what is as it was left."""
        top = move.top
        try:
            action, params = self._action_of(top)
            seen = action.observe(params, self._clients)
            ended = _without_an_act(action, move, seen)
            if ended is not None and ended.how is How.UNDONE and move.is_begun:
                ended = _has_happened(ended)
        except StoreError:
            raise
        except TargetNotFoundError as error:
            ended = _gone(move, str(error))
        except Exception as error:  # noqa: BLE001 what an action raises becomes an outcome
            ended = _failed(error)
        if ended is not None:
            self._store.write(partial(self._end_unbegun, move=move, ended=ended, required=required))
        elif move.is_begun or self._store.write(partial(self._start, move=move, required=required)):
            self._store.write(partial(self._finish, move=move, ended=self._undo(action, params, move)))

    def _action_of(self, lease: Lease) -> tuple[UndoableAction[Any], ActionParams]:
        action: Action[Any] = self._actions[lease.action]
        return cast("UndoableAction[Any]", action), action.params_model.model_validate(lease.params)

    def _undo(self, action: UndoableAction[Any], params: ActionParams, move: TakeBack) -> _Ended:
        """The act itself, and what became of it."""
        top = move.top
        try:
            change = action.undo(params, self._clients, top.left, move.restore, top.timeout)
        except (UnknownEffectError, ConflictError) as error:
            return self._looked_after(action, params, move, error)
        except Exception as error:  # noqa: BLE001 as above
            return _failed(error)
        outcome = Outcome.SUCCEEDED if change.changed else Outcome.UNCHANGED
        detail = change.detail or ("" if change.changed else ALREADY_SO)
        return _Ended(outcome=outcome, detail=detail, state=change.after, how=How.UNDONE)

    def _looked_after(
        self,
        action: UndoableAction[Any],
        params: ActionParams,
        move: TakeBack,
        error: UnknownEffectError | ConflictError,
    ) -> _Ended:
        """No answer came, or the target is not as it was left: what a look says."""
        outcome = Outcome.UNKNOWN if isinstance(error, UnknownEffectError) else Outcome.FAILED
        try:
            found = _without_an_act(action, move, action.observe(params, self._clients))
        except Exception as blind:  # noqa: BLE001 as above
            detail = f"{error}; and it cannot be looked at: {as_action_error(blind)}"
            return _Ended(outcome=outcome, detail=detail, state={}, how=None)
        if found is None:  # as it was left
            return _Ended(outcome=outcome, detail=str(error), state={}, how=None)
        if found.how is How.UNDONE and outcome is Outcome.UNKNOWN:
            return _has_happened(found)
        return found

    # -- what is recorded

    def _start(self, tx: Tx, move: TakeBack, required: dict[str, tuple[bool, str]]) -> bool:
        """Record that it begins, from which on nobody else gets the target; False where it is not the next any more."""
        if not self._is_still(tx, move, move.top, required):
            return False
        self._record_start(tx, move)
        return True

    def _record_start(self, tx: Tx, move: TakeBack) -> None:
        top, now = move.top, self._clock.now()
        for lease in move.leases:
            leases.start_undo(tx.conn, lease.id, now)
        data: dict[str, JsonValue] = {
            **about(top),
            "action": top.action,
            "left": dict(top.left),
            "restore": dict(move.restore),
            "leases": [lease.id for lease in move.leases],
            "requested_by": top.requested_by,
        }
        self._recorder.append_beside_run(tx, top.run_id, EventType.UNDO_STARTED, now, data, target=top.target)

    def _end_unbegun(self, tx: Tx, move: TakeBack, ended: _Ended, required: dict[str, tuple[bool, str]]) -> None:
        """Record what a look before the act brought; one that failed is a try, as one of the act is."""
        if move.is_begun:
            self._finish(tx, move, ended)
        elif self._is_still(tx, move, move.top, required):
            if ended.how is None:
                self._record_start(tx, move)
                self._finish(tx, move, ended)
            else:
                self._close(tx, move, ended)

    def _finish(self, tx: Tx, move: TakeBack, ended: _Ended) -> None:
        top, now = move.top, self._clock.now()
        detail = kept_text(ended.detail)
        data = {**about(top), "action": top.action, "outcome": ended.outcome.value, "detail": detail}
        self._recorder.append_beside_run(
            tx, top.run_id, EventType.UNDO_FINISHED, now, data, outcome=ended.outcome.value, target=top.target
        )
        if ended.how is not None:
            self._close(tx, move, ended)
            return
        again = retry_at(top, now)
        log.warning("an undo did not succeed", run_id=top.run_id, target=top.target, problem=detail)
        for lease in move.leases:
            leases.stop_undo(tx.conn, lease.id, again)
        told = let_tell(tx, [top]) if top.retry_at is None else []  # once: tries may go on for days
        self._wake_later(tx, [*told, *self._may_go_on(tx)])

    def _close(self, tx: Tx, move: TakeBack, ended: _Ended) -> None:
        """Undone: these leases; drifted or reverted: the whole stack, since nobody knows what is right any more."""
        assert ended.how is not None
        stack = leases.stack(tx.conn, move.top.action, move.top.target)
        closing = move.leases if ended.how is How.UNDONE else tuple(reversed(stack))
        told = close(tx, self._recorder, closing, ended.how, ended.detail, self._clock.now())
        below = stack[: len(stack) - len(closing)]
        if below:
            leases.leave(tx.conn, below[-1].id, ended.state)
        self._wake_later(tx, [*told, *self._may_go_on(tx)])

    def _may_go_on(self, tx: Tx) -> list[str]:
        """Runs that may have waited for the target."""
        return runs.may_go_on(tx.conn, self._n_places())

    def _wake_later(self, tx: Tx, ids: Sequence[str]) -> None:
        def wake() -> None:
            for one in ids:
                self._wake(one)

        tx.after_commit(wake)

    # -- people

    def undo(self, run_id: str, step: str, actor: str, reason: str) -> dict[str, Any]:
        """Take back now what a run changed, whether it fires or not; also while the engine is paused.

        Args:
            step: by its name; "" = all that is open of the run.

        Raises:
            RequestError: 404 no such run or step; 409 nothing of it is to be taken back.
        """

        def work(tx: Tx) -> tuple[str, list[dict[str, Any]]]:
            row, now = find_run(tx.conn, run_id), self._clock.now()
            wanted = _wanted(leases.of_run(tx.conn, row.id), row.id, step)
            for lease in reversed(wanted):
                leases.request(tx.conn, lease.id, now, actor)
                data = {**about(lease), "reason": reason}
                self._recorder.append_beside_run(
                    tx, lease.run_id, EventType.UNDO_REQUESTED, now, data, actor=actor, target=lease.target
                )
            self._wake_later(tx, list(dict.fromkeys(lease.stack_id for lease in wanted)))
            return row.id, [_asked(tx.conn, lease) for lease in reversed(wanted)]

        found_id, asked = self._store.write(work)
        return {"run_id": found_id, "requested_by": actor, "leases": asked}

    def list(self, limit: int, *, is_all: bool) -> list[dict[str, Any]]:
        """The leases that are open, the youngest first; closed ones too where ``is_all``."""
        with self._store.read() as conn:
            return [lease_dict(row) for row in leases.list_leases(conn, limit, is_all=is_all)]


def _without_an_act(action: UndoableAction[Any], move: TakeBack, seen: State) -> _Ended | None:
    """How it ends by what is seen alone; None where the target is as it was left, and is to be brought back."""
    standing = action.standing(move.top.left, seen)
    if standing is Standing.AS_LEFT:
        return None
    if action.standing(move.restore, seen) is Standing.AS_LEFT:
        return _Ended(outcome=Outcome.UNCHANGED, detail=ALREADY_SO, state=seen, how=How.UNDONE)
    target = move.top.target
    if standing is Standing.DRIFTED:
        detail = f"{target} is not as it was left: others have changed it, so it is left to them"
        return _Ended(outcome=Outcome.UNCHANGED, detail=detail, state=seen, how=How.DRIFTED)
    if move.top.ends_at is not None:
        return _Ended(outcome=Outcome.UNCHANGED, detail="it has ended by itself", state=seen, how=How.UNDONE)
    detail = f"{target} was made anew or started anew, and with that the change was gone"
    return _Ended(outcome=Outcome.UNCHANGED, detail=detail, state=seen, how=How.REVERTED)


def _has_happened(found: _Ended) -> _Ended:
    """An undo of which nobody heard the end, and the target is as it was to be."""
    detail = "no answer came; the target shows that it was taken back"
    return replace(found, outcome=Outcome.SUCCEEDED, detail=detail)


def _gone(move: TakeBack, detail: str) -> _Ended:
    how = How.REVERTED if move.top.ends_at is None else How.UNDONE
    return _Ended(outcome=Outcome.UNCHANGED, detail=detail, state={}, how=how)


def _failed(error: Exception) -> _Ended:
    return _Ended(outcome=Outcome.FAILED, detail=str(as_action_error(error)), state={}, how=None)


def _set_due(tx: Tx, stack: str, at: datetime | None) -> None:
    leases.set_due(tx.conn, stack, at)


def _wanted(found: Sequence[Lease], run_id: str, step: str) -> list[Lease]:
    """The leases that a person means.

    Raises:
        RequestError: 404 no such step; 409 nothing of it is to be taken back.
    """
    if not found:
        raise RequestError(f"run {run_id} changed nothing that can be taken back", http_status=409)
    meant = [lease for lease in found if step in ("", _step_name(lease))]
    if not meant:
        known = ", ".join(dict.fromkeys(map(_step_name, found)))
        raise RequestError(
            f"run {run_id} has no step {step!r} whose change can be taken back (there is: {known})", http_status=404
        )
    wanted = [lease for lease in meant if lease.closed_at is None]
    if not wanted:
        last = meant[-1]
        assert last.closed_at is not None
        raise RequestError(
            f"nothing of run {run_id} is left to be taken back: {last.target} is {last.how} since"
            f" {utc_text(last.closed_at)}",
            http_status=409,
        )
    return wanted


def _step_name(lease: Lease) -> str:
    return lease.step.partition(".")[2]


def _asked(conn: Connection, lease: Lease) -> dict[str, Any]:
    """What a person is told of a lease whose undo was just asked for."""
    stack = leases.stack(conn, lease.action, lease.target)
    above = [other for other in stack[[one.id for one in stack].index(lease.id) :] if other.requested_at is None]
    taken_by = runs.taken(conn, {lease.target: True}, "").get(lease.target, "")
    waits_for = ""
    if above:
        waits_for = f"the younger lease of run {above[-1].run_id} on the same target"
    elif taken_by:
        waits_for = f"run {taken_by}, which has the target"
    return {
        "lease_id": lease.id,
        "step": _step_name(lease),
        "action": lease.action,
        "target": lease.target,
        "waits_for": waits_for,
    }


def lease_dict(row: LeaseRow) -> dict[str, Any]:
    """A lease as lists and the API show it."""
    lease = row.lease
    return {
        "lease_id": lease.id,
        "run_id": lease.run_id,
        "playbook": lease.playbook,
        "per": dict(row.per),
        "step": _step_name(lease),
        "action": lease.action,
        "target": lease.target,
        "state": lease.state,
        "before": dict(lease.before),
        "after": dict(lease.left),
        "when": lease.undo.when.value,
        "after_resolve": print_duration(lease.undo.after),
        "goes_at_resolve": lease.undo.when is UndoWhen.RESOLVED and not (lease.is_by_hand or lease.is_latched),
        "opened_at": utc_text(lease.opened_at),
        "at_most_at": _text(lease.at_most_at),
        "due_at": _text(row.due_at),
        "kept_at": _text(lease.kept_at),
        "requested_by": lease.requested_by,
        "retry_at": _text(lease.retry_at),
        "closed_at": _text(lease.closed_at),
        "detail": lease.detail,
    }


def _text(moment: datetime | None) -> str:
    return utc_text(moment) if moment is not None else ""
