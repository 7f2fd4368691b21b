"""How big the fleets are of which limits are shares: the settings say it, or a Prometheus is asked.

Takes a policy's fleets → a ``FleetSize`` each, asked before the guard's transaction. It must never raise and never
guess: what is not known refuses whatever asks for a share of it.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable
from datetime import datetime, timedelta

from remediator.core.condition import Comparison, Condition, Reading
from remediator.core.guard import FleetSize
from remediator.core.plan import Plan
from remediator.core.policy import Fleet, Policy, Share
from remediator.engine.conditions import Conditions

KEPT_FOR = timedelta(seconds=30)
"""A size that was asked so lately is used again: in a storm thousands of plans ask for one share within seconds."""


class Fleets:
    """Knows the sizes of fleets. Thread-safe.

    Args:
        server: the Prometheus that fleets' queries are asked of, "" when there is none or not the one.
    """

    def __init__(self, conditions: Conditions, server: str) -> None:
        self._conditions = conditions
        self._server = server
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[datetime, FleetSize]] = {}

    def sizes(self, plan: Plan, rung: int, policy: Policy, now: datetime) -> dict[str, FleetSize]:
        """The sizes of those fleets of which a limit on this rung is a share: by name, without those that the settings
        do not name. Raises nothing."""
        if not plan.acts_of(rung):
            return {}
        wanted = plan.guard.max_targets
        shares = [wanted.limit] if wanted is not None and isinstance(wanted.limit, Share) else []
        shares += [breaker.share for breaker in policy.breakers]
        names = sorted({share.of for share in shares} & policy.fleets.keys())
        return self.of([policy.fleets[name] for name in names], now)

    def of(self, fleets: Iterable[Fleet], now: datetime) -> dict[str, FleetSize]:
        """The sizes of these, by name. Raises nothing."""
        found: dict[str, FleetSize] = {}
        to_ask: list[Fleet] = []
        with self._lock:
            for fleet in fleets:
                at, kept = self._kept.get(fleet.query, (now, None))
                if fleet.size is not None:
                    found[fleet.name] = FleetSize(size=fleet.size)
                elif kept is not None and at <= now < at + KEPT_FOR:
                    found[fleet.name] = kept
                else:
                    to_ask.append(fleet)
        if not self._server:
            why = "its query is asked of the only Prometheus, and there are several or none; give it a size"
            return found | {fleet.name: FleetSize(problem=why) for fleet in to_ask}
        readings = self._conditions.ask(self._server, [_question(fleet) for fleet in to_ask])
        for fleet, reading in zip(to_ask, readings, strict=True):
            found[fleet.name] = size_of(reading)
            if found[fleet.name].size is not None:
                with self._lock:
                    self._kept[fleet.query] = (now, found[fleet.name])
        return found


def condition_name(fleet: str) -> str:
    """Under which name a fleet's size is asked for."""
    return f"fleet {fleet}"


def _question(fleet: Fleet) -> Condition:
    return Condition(name=condition_name(fleet.name), query=fleet.query, comparison=Comparison.ABOVE, bound="0")


def size_of(reading: Reading) -> FleetSize:
    """What a Prometheus' answer says of a size: one number, at least 1."""
    if reading.problem:
        return FleetSize(problem=reading.problem)
    if len(reading.values) != 1:
        return FleetSize(problem=f"its query gives {len(reading.values) or 'no'} values where one is meant")
    value = reading.values[0]
    if not math.isfinite(value) or value < 1:
        return FleetSize(problem=f"its query gives {value:g}")
    return FleetSize(size=int(value))
