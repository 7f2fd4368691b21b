"""Stage 7, verify: a run and what it did → whether that helped, or whether a step did what it should.

Conditions are asked of the Prometheus that the plan names, and ``alert: resolved`` of the subject. What they say is
judged by ``core.verification``; a look that says something new is recorded, and the end is. Never believes an answer
that is not there.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from remediator.core.action import JsonValue
from remediator.core.condition import Check, Reading, Seen, look
from remediator.core.event import EventType, utc_text
from remediator.core.move import RESOLVED_BY, Situation
from remediator.core.outcome import Outcome
from remediator.core.run import Run
from remediator.core.units import cut
from remediator.core.verification import (
    Look,
    Watched,
    after_look,
    conclude,
    is_settled,
    look_every,
    next_look_at,
    says_something_new,
)
from remediator.engine.conditions import Conditions
from remediator.engine.lending import DETAIL_LIMIT
from remediator.engine.record import Recorder
from remediator.store.engine import Store
from remediator.store.writer import Tx


class Verifier:
    """Looks whether it helped."""

    def __init__(self, store: Store, recorder: Recorder, conditions: Conditions) -> None:
        self._store = store
        self._recorder = recorder
        self._conditions = conditions

    def look(self, run: Run, step_key: str, now: Situation) -> datetime | None:
        """Look once at all checks of a step's, or (key "") the rung's, verification that are not decided yet.

        Returns:
            When to look again; None when its end is recorded.

        Raises:
            StoreError: look again.
        """
        step = run.find(step_key) if step_key else None
        checks = step.verify if step is not None else run.plan.verify
        ended_at = run.step(step_key).ended_at if step is not None else run.steps_ended_at
        assert ended_at is not None
        since = ended_at

        def elapsed(moment: datetime) -> timedelta:
            return now.now - moment - now.away_since(moment)

        before = run.watched.get(step_key, tuple(Watched() for _ in checks))
        due = [
            not one.is_decided and is_settled(check, since, elapsed) for check, one in zip(checks, before, strict=True)
        ]
        looks = self._looks(run, [check for check, is_due in zip(checks, due, strict=True) if is_due], now)
        after = tuple(
            after_look(check, one, looks.pop(0), since, now.now, elapsed) if is_due else one
            for check, one, is_due in zip(checks, before, due, strict=True)
        )
        outcome = conclude(after)
        every = look_every(now.now, self._conditions.steady_until)
        # What the alert says stands in its deliveries.
        is_news = any(
            check.condition is not None and says_something_new(*pair)
            for check, *pair in zip(checks, before, after, strict=True)
        )
        if is_news or outcome is not None:
            self._store.write(lambda tx: self._record(tx, run, step_key, after, outcome, now.now))
        return None if outcome is not None else next_look_at(checks, after, since, now.now, elapsed, every)

    def _looks(self, run: Run, checks: Sequence[Check], now: Situation) -> list[Look]:
        conditions = [check.condition for check in checks if check.condition is not None]
        readings = list(self._conditions.ask(run.plan.prometheus, conditions)) if conditions else []
        return [_look_at_alert(run, now) if check.condition is None else _look_at(check, readings) for check in checks]

    def _record(
        self, tx: Tx, run: Run, step_key: str, watched: Sequence[Watched], outcome: Outcome | None, now: datetime
    ) -> None:
        data: dict[str, JsonValue] = {
            "step": step_key,
            "rung": run.rung,
            "checks": [_watched_data(one) for one in watched],
        }
        n = run.n_events + 1
        self._recorder.append_to_run(tx, run.plan, n, EventType.VERIFICATION_LOOKED, now, data)
        if outcome is None:
            return
        wanted = [one for one in watched if outcome is Outcome.SUCCEEDED or not one.is_done]
        data = {
            "step": step_key,
            "rung": run.rung,
            "outcome": outcome.value,
            "detail": cut("; ".join(one.detail for one in wanted if one.detail), DETAIL_LIMIT),
        }
        self._recorder.append_to_run(
            tx, run.plan, n + 1, EventType.VERIFICATION_FINISHED, now, data, outcome=outcome.value
        )


def _look_at(check: Check, readings: list[Reading]) -> Look:
    assert check.condition is not None
    seen, detail = look(check.condition, readings.pop(0))
    return Look(seen=seen, detail=detail)


def _look_at_alert(run: Run, now: Situation) -> Look:
    if run.plan.is_by_hand:
        return Look(seen=Seen.NO_VALUE, detail="a run by hand has no alert to be resolved", is_final=True)
    if now.is_open:
        return Look(seen=Seen.NOT_MET, detail="the alert still fires")
    if now.close_reason in RESOLVED_BY:
        return Look(seen=Seen.MET, detail="the alert was resolved", is_final=True)
    return Look(
        seen=Seen.NO_VALUE, detail=f"the alert ended without being resolved ({now.close_reason})", is_final=True
    )


def _watched_data(one: Watched) -> dict[str, JsonValue]:
    return {
        "seen": one.seen.value if one.seen is not None else "",
        "met_since": utc_text(one.met_since) if one.met_since is not None else "",
        "detail": cut(one.detail, DETAIL_LIMIT),
        "is_done": one.is_done,
        "is_over": one.is_over,
    }
