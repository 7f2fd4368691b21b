"""What was decided about one run, and how two such decisions differ. Pure.

Takes → gives: the events of a run → a ``Decision``; the same run as it was and as it would be → its ``Change``s. What
is compared is what the engine decided: what it would do, after how long, whom it asks and tells, why it refuses. How
the world answered is luck: attempts, outcomes of acts, and whether they helped are shown and not compared.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from remediator.core.event import Event, EventType
from remediator.core.happening import happenings
from remediator.core.plan import Plan, unpack_plan
from remediator.core.run import MessageKind
from remediator.core.scenario import Happening, Kind
from remediator.core.units import print_duration
from remediator.errors import Reason

AT_ONCE = timedelta(minutes=1)
"""Two acts of one run so close to each other are at one time: a real act takes its time, one in memory takes none."""

IN_LINE = timedelta(minutes=10)
"""… and who waits for others' acts waits for their time too."""

_OF_OTHERS = frozenset({Reason.BUSY_TARGET.value, Reason.CONCURRENCY.value})
"""What a run waits for only while others act."""

_LUCK = frozenset(
    kind.value
    for kind in (MessageKind.LEASE_KEPT, MessageKind.UNDO_FAILED, MessageKind.DRIFTED, MessageKind.STILL_FIRING)
)
"""Messages about how the world answered, or went on."""

_ACTED = frozenset({"succeeded", "unchanged", "failed", "ineffective", "unverified", "unknown"})
"""Ends of a run that did what it had decided."""


class Differs(StrEnum):
    """How a run that would be is to one that was."""

    NEW = "new"
    GONE = "gone"
    DIFFERENT = "different"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """All that one run decided.

    Attributes:
        at: when it was planned.
        targets: refs that it touched, or was judged to touch.
        acts: action, target and params of each step done, in order; without messages.
        undoes: what it took back, sorted.
        acts_after: from the plan to the first act, None without one.
        asks: whom it asked, in order.
        tells: ``about: whom``, sorted.
        waits: reasons for which it waited.
        rungs: above the first, in order.
        outcome, reason, why: of its end; "" while it is open.
        is_luck: what it lent did not end as it was to.
    """

    run_id: str
    playbook: str
    case: str
    per: Mapping[str, str]
    labels: Mapping[str, str]
    fingerprint: str
    is_by_hand: bool
    at: datetime
    targets: tuple[str, ...]
    acts: tuple[str, ...]
    undoes: tuple[str, ...]
    acts_after: timedelta | None
    asks: tuple[str, ...]
    tells: tuple[str, ...]
    waits: frozenset[str]
    rungs: tuple[str, ...]
    outcome: str
    reason: str
    why: str
    is_luck: bool

    @property
    def end(self) -> str:
        """How it ended, for people."""
        if not self.outcome:
            return "open"
        return f"{self.outcome} ({self.reason})" if self.reason not in ("", Reason.NONE.value) else self.outcome

    @property
    def decided(self) -> str:
        """How it ended, as far as that was decided and not luck."""
        return "acted" if self.outcome in _ACTED else self.end


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing in which a run would differ.

    Attributes:
        what: ``acts``, ``acts_after``, ``asks``, ``tells``, ``waits``, ``rungs``, ``undoes`` or ``ends``.
        was, would_be: for people, "" for nothing.
    """

    what: str
    was: str
    would_be: str


def decision(events: Sequence[Event]) -> Decision:
    """What a run decided.

    Args:
        events: all of one run, in the log's order; the first is its plan.
    """
    first = events[0]
    plan: Plan = unpack_plan(_map(first.data["plan"]))
    happened = happenings(events, first.at, {})
    by_kind: dict[Kind, list[Happening]] = {kind: [] for kind in Kind}
    for one in happened:
        by_kind[one.kind].append(one)
    ends = [*by_kind[Kind.ENDS], *by_kind[Kind.REFUSES]]
    last = max(ends, key=lambda one: one.at, default=None)
    outcome = "" if last is None else last.value if last.kind is Kind.ENDS else "refused"
    return Decision(
        run_id=first.run_id,
        playbook=plan.playbook,
        case=plan.case,
        per=plan.per,
        labels=plan.labels,
        fingerprint=plan.fingerprint,
        is_by_hand=plan.is_by_hand,
        at=first.at,
        targets=_targets(events),
        acts=tuple(_act_text(one) for one in by_kind[Kind.DOES]),
        undoes=tuple(sorted(f"{one.value} {one.details['target']}" for one in by_kind[Kind.UNDOES])),
        acts_after=by_kind[Kind.DOES][0].at if by_kind[Kind.DOES] else None,
        asks=tuple(one.value for one in by_kind[Kind.ASKS]),
        tells=tuple(sorted({f"{one.details['about']}: {one.value}" for one in by_kind[Kind.TELLS]})),
        waits=frozenset(one.value for one in by_kind[Kind.WAITS]),
        rungs=tuple(one.value for one in by_kind[Kind.RUNG]),
        outcome=outcome,
        reason="" if last is None else str(last.details.get("reason", last.value)),
        why="" if last is None else str(last.details.get("says", "")),
        is_luck=any(_is_luck(event) for event in events),
    )


def differences(was: Decision, would_be: Decision) -> list[Change]:
    """In what a run would differ from what it was; [] where it would be the same."""
    changes = [
        *_change("acts", "; ".join(was.acts), "; ".join(would_be.acts)),
        *_acts_after(was, would_be),
        *_change("asks", ", ".join(was.asks), ", ".join(would_be.asks)),
        *_change("waits", _waits_text(was), _waits_text(would_be)),
        *_change("rungs", ", ".join(was.rungs), ", ".join(would_be.rungs)),
    ]
    is_one_open = bool(was.outcome) is not bool(would_be.outcome)
    if not is_one_open or changes or not {was.outcome, would_be.outcome} & {*_ACTED, "observed"}:
        changes += _change("ends", was.decided, would_be.decided)
    if was.outcome == would_be.outcome:  # who is told of an end depends on it
        changes += _change("tells", _tells_text(was), _tells_text(would_be))
        if not was.is_luck and not would_be.is_luck:
            changes += _change("undoes", "; ".join(was.undoes), "; ".join(would_be.undoes))
    return changes


def _change(what: str, was: str, would_be: str) -> list[Change]:
    return [] if was == would_be else [Change(what=what, was=was, would_be=would_be)]


def _acts_after(was: Decision, would_be: Decision) -> list[Change]:
    if was.acts_after is None or would_be.acts_after is None:
        return []
    slack = IN_LINE if _OF_OTHERS & (was.waits | would_be.waits) else AT_ONCE
    if abs(was.acts_after - would_be.acts_after) <= slack:
        return []
    return _change("acts_after", _after_text(was.acts_after), _after_text(would_be.acts_after))


def _after_text(after: timedelta) -> str:
    return print_duration(timedelta(seconds=round(after.total_seconds())))


def _waits_text(one: Decision) -> str:
    return ", ".join(sorted(one.waits - _OF_OTHERS))


def _tells_text(one: Decision) -> str:
    return "; ".join(told for told in one.tells if told.partition(":")[0] not in _LUCK)


def _act_text(one: Happening) -> str:
    params = one.details["params"]
    return f"{one.value} {one.details['target']} {json.dumps(params, sort_keys=True)}"


def _targets(events: Sequence[Event]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for event in events:
        if event.type in (EventType.VERDICT_GIVEN, EventType.ATTEMPT_STARTED) and event.target:
            found |= dict.fromkeys(event.target.split(", "))
    return tuple(sorted(found))


def _is_luck(event: Event) -> bool:
    data: Mapping[str, Any] = event.data
    match event.type:
        case EventType.LEASE_CLOSED:
            return bool(data["how"] != "undone")
        case EventType.UNDO_FINISHED:
            return event.outcome not in ("succeeded", "unchanged")
        case EventType.LEASE_KEPT:
            return True
        case _:
            return False


def _map(value: Any) -> Mapping[str, Any]:
    assert isinstance(value, Mapping)
    return value
