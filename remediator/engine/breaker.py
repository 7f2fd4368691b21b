"""Breakers, for people: which are tripped, how near the others are, and resetting one.

``engine.reserve`` trips them, in the transaction of the verdict that would have been one act too many. Only a person
resets one: it must never close by itself, since what it stopped would then go on.
"""

from __future__ import annotations

from typing import Any

from remediator.core.event import Event, EventType, utc_text
from remediator.core.guard import is_of_kind
from remediator.core.policy import Breaker, Policy
from remediator.core.units import print_duration
from remediator.engine.clock import Clock
from remediator.engine.dispatch import Dispatch
from remediator.engine.record import Recorder
from remediator.engine.reload import Reloader
from remediator.engine.reserve import breaker_state
from remediator.errors import RequestError
from remediator.store import Connection, breakers, runs
from remediator.store.engine import Store
from remediator.store.writer import Tx


class Breakers:
    """The breakers of the policies in force, and those of older policies that tripped."""

    def __init__(self, store: Store, recorder: Recorder, reloader: Reloader, clock: Clock, dispatch: Dispatch) -> None:
        self._store = store
        self._recorder = recorder
        self._reloader = reloader
        self._clock = clock
        self._dispatch = dispatch

    def list_all(self) -> list[dict[str, Any]]:
        """Each breaker, by name: whether it is tripped and why, else what it counts."""
        policy = self._reloader.now.playbooks.policy
        in_force = {breaker.name: breaker for breaker in policy.breakers}
        with self._store.read() as conn:
            rows = {row.name: row for row in breakers.all_breakers(conn)}
            return [
                _shown(rows.get(name), name) | self._counted(conn, in_force.get(name), policy)
                for name in sorted(in_force.keys() | rows.keys())
            ]

    def _counted(self, conn: Connection, breaker: Breaker | None, policy: Policy) -> dict[str, Any]:
        if breaker is None:
            return {"in_force": False, "limit": "", "n_changed": 0, "n_failures": 0}
        state = breaker_state(conn, breaker, self._clock.now())
        fleet = policy.fleets.get(breaker.share.of)
        changed = [ref for ref in state.changed if fleet is None or is_of_kind(ref, fleet.kind)]
        failures = "" if breaker.or_failures is None else f", or {breaker.or_failures} runs without a fix,"
        share = f"{breaker.share.percent} % of {breaker.share.of} changed"
        return {
            "in_force": True,
            "limit": f"{share}{failures} within {print_duration(breaker.within)}",
            "n_changed": len(changed),
            "n_failures": state.n_failures,
        }

    def reset(self, name: str, actor: str, reason: str) -> dict[str, Any]:
        """Let acts go on; it counts from zero, and what waited for it is judged anew, oldest first.

        Raises:
            RequestError: 404 there is no such breaker; 409 it is not tripped.
        """
        now = self._clock.now()
        in_force = {breaker.name for breaker in self._reloader.now.playbooks.policy.breakers}

        def work(tx: Tx) -> list[str]:
            row = breakers.get_breaker(tx.conn, name)
            if row is None and name not in in_force:
                known = ", ".join(sorted(in_force)) or "none"
                raise RequestError(f"there is no breaker {name!r} (there are: {known})", http_status=404)
            if row is None or row.tripped_at is None:
                raise RequestError(f"breaker {name} is not tripped", http_status=409)
            breakers.reset(tx.conn, name, now)
            data = {"breaker": name, "reason": reason, "tripped_at": utc_text(row.tripped_at), "why": row.why}
            self._recorder.append(tx, Event(type=EventType.BREAKER_RESET, at=now, actor=actor, data=data))
            return runs.waiting_for_breaker(tx.conn)

        woken = self._store.write(work)
        for run_id in woken:
            self._dispatch.wake(run_id)
        return {"breaker": name, "reset_by": actor, "woken": len(woken)}


def _shown(row: breakers.BreakerRow | None, name: str) -> dict[str, Any]:
    tripped_at = row.tripped_at if row is not None else None
    reset_at = row.counts_from if row is not None else None
    return {
        "name": name,
        "tripped": tripped_at is not None,
        "tripped_at": utc_text(tripped_at) if tripped_at is not None else "",
        "why": row.why if row is not None and tripped_at is not None else "",
        "reset_at": utc_text(reset_at) if reset_at is not None else "",
    }
