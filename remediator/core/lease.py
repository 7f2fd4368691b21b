"""Leases: changes that end. The open leases on one target → what is to be done with them next. Pure.

Leases of one action on one target form a stack over runs and playbooks, by the order of their opening, since each was
made over the state that the one below had left. ``engine.leases`` asks what comes next and does it. Only the top is
undone, together with those right below it whose time has come as well; nothing is undone while it fires.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from remediator.core.action import State, UndoWhen
from remediator.core.plan import Undo
from remediator.core.units import print_duration

ASK_EVERY = timedelta(minutes=1)
"""Between two looks at ``undo.require``."""

LOOK_AGAIN = timedelta(minutes=1)
"""A pause by a file ends without an event, and so may what holds a target."""

RETRY_AT_LEAST = timedelta(minutes=1)
"""Between two tries of one undo, however short its ``after``."""

PREFIX = "lease:"
"""Of the ids under which stacks are woken and due."""


OPEN_STATES = ("open", "released", "kept")
"""Of a lease that is not closed."""


class How(StrEnum):
    """How a lease was closed."""

    UNDONE = "undone"
    DRIFTED = "drifted"
    """Others changed the target: nothing was restored."""
    REVERTED = "reverted"
    """A reboot, a reset or a new incarnation took the change away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """One change that ends.

    Attributes:
        id: of the run, the step and the attempt that made it: one attempt opens one lease.
        step: the step's key in its run.
        target: the ref that it was made on; what the system calls it, for what has no target (``alertmanager:<id>``).
        params: as the action took them.
        before: what an undo brings back.
        left: the state that was last left here: after the act, or after the undo of the lease above it.
        undo: when it is taken back.
        prometheus: of whom ``undo.require`` is asked.
        timeout: of the undo; the step's.
        is_by_hand, is_latched: of its run's plan; such a one goes at ``at_most`` or by hand alone.
        ends_at: where the change ends by itself; such a one is never kept.
        released_at: its time came while a younger one stood above it.
        kept_at: it had to end, and what it guards against went on.
        requested_at, requested_by: a person asked for its undo.
        undo_started_at: an undo of it has begun and has no end.
        retry_at: after an undo that failed, not before then.
        closed_at, how, detail: None and "" while it is open.
    """

    id: str
    run_id: str
    playbook: str
    per_key: str
    step: str
    action: str
    target: str
    params: Mapping[str, Any]
    before: State
    left: State
    undo: Undo
    prometheus: str
    timeout: timedelta
    is_by_hand: bool
    is_latched: bool
    opened_at: datetime
    ends_at: datetime | None = None
    released_at: datetime | None = None
    kept_at: datetime | None = None
    requested_at: datetime | None = None
    requested_by: str = ""
    undo_started_at: datetime | None = None
    retry_at: datetime | None = None
    closed_at: datetime | None = None
    how: str = ""
    detail: str = ""

    @property
    def stack_id(self) -> str:
        """Of the stack that it belongs to."""
        return stack_id(self.action, self.target)

    @property
    def at_most_at(self) -> datetime | None:
        """When it has to end; None where nothing but a person ends it."""
        if self.undo.when is UndoWhen.NEVER:
            return self.ends_at
        latest = self.opened_at + self.undo.at_most
        return latest if self.ends_at is None else min(latest, self.ends_at)

    @property
    def state(self) -> str:
        """For lists and metrics: open, released, kept, or how it was closed."""
        if self.closed_at is not None:
            return self.how
        if self.released_at is not None:
            return "released"
        return "kept" if self.kept_at is not None else "open"


def stack_id(action: str, target: str) -> str:
    """``lease:docker.limit|docker:gpu-07/trainer-0``."""
    return f"{PREFIX}{action}|{target}"


def split_stack_id(stack: str) -> tuple[str, str]:
    """The action and the target."""
    action, _, target = stack.removeprefix(PREFIX).partition("|")
    return action, target


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What is known around one lease.

    Attributes:
        fires: something fires with its ``per`` values, whichever case.
        resolved_at: when they last ended, if by a resolve and nothing of them fires; else None.
        younger_closed_at: when the last younger lease of its run on this target was closed, None when none was.
        required: what ``undo.require`` says now, and the numbers for people; None = not asked.
    """

    fires: bool
    resolved_at: datetime | None = None
    younger_closed_at: datetime | None = None
    required: tuple[bool, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What is known around a stack, all of one moment.

    Attributes:
        around: by the lease's id.
        is_paused: a person holds all acts, and with them every undo that nobody asked for.
        taken_by: a run that has the target, "" when none has.
    """

    now: datetime
    around: Mapping[str, Around] = field(default_factory=dict)
    is_paused: bool = False
    taken_by: str = ""


# -- moves -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing to do until ``until``; None = until an event wakes the stack."""

    until: datetime | None


@dataclass(frozen=True, slots=True)
class AskRequire:
    """Ask what ``undo.require`` of this lease says now, and come again with it."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class Release:
    """Its time has come and it is not the top: it goes with what is above it."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class Keep:
    """It had to end now and does not; people are told."""

    lease: Lease
    why: str


@dataclass(frozen=True, slots=True)
class TakeBack:
    """Undo these, the top first, back to the state before the last of them.

    Attributes:
        is_begun: the start is in the log and no end: whoever began it was killed.
    """

    leases: tuple[Lease, ...]
    is_begun: bool = False

    @property
    def top(self) -> Lease:
        """Whose ``left`` is what the target must be in."""
        return self.leases[0]

    @property
    def restore(self) -> State:
        """What the target is brought back to."""
        return self.leases[-1].before


LeaseMove = Rest | AskRequire | Release | Keep | TakeBack


# -- decisions -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Due:
    """Its time has come."""


def next_lease_move(stack: Sequence[Lease], now: Surroundings) -> LeaseMove:
    """What is to be done next with the open leases on one target. Raises nothing.

    Args:
        stack: by the order of their opening, the top last.
        now: with an ``Around`` for each.
    """
    begun = tuple(lease for lease in reversed(stack) if lease.undo_started_at is not None)
    if begun:
        # Whoever began it was killed: to go on with it is an act as any other.
        is_held = now.is_paused and begun[0].requested_at is None
        return Rest(now.now + LOOK_AGAIN) if is_held else TakeBack(begun, is_begun=True)
    wakes: list[datetime] = []
    due: set[str] = set()
    for place, lease in reversed(list(enumerate(stack))):
        above = stack[place + 1 :]
        word = _say(lease, above, now)
        if isinstance(word, AskRequire | Keep):
            return word
        if isinstance(word, _Due):
            if above and lease.released_at is None:
                return Release(lease)
            due.add(lease.id)
        elif word is not None:
            wakes.append(word)
    going = _going(stack, due, now)
    if not going:
        is_held = bool(stack) and stack[-1].id in due  # by a pause
        return Rest(min([*wakes, now.now + LOOK_AGAIN] if is_held else wakes, default=None))
    if going[0].retry_at is not None and now.now < going[0].retry_at:
        return Rest(min([*wakes, going[0].retry_at]))
    if now.taken_by:
        return Rest(min([*wakes, now.now + LOOK_AGAIN]))
    return TakeBack(going)


def _going(stack: Sequence[Lease], due: set[str], now: Surroundings) -> tuple[Lease, ...]:
    """The top and those right below it whose time has come, the top first."""
    going: list[Lease] = []
    for lease in reversed(stack):
        if lease.id not in due or (now.is_paused and lease.requested_at is None):
            break
        going.append(lease)
    return tuple(going)


def _say(lease: Lease, above: Sequence[Lease], now: Surroundings) -> _Due | AskRequire | Keep | datetime | None:
    """Whether its time has come; else when to look again, None = an event says."""
    around = now.around[lease.id]
    if lease.requested_at is not None or _has_ended(lease, now.now):
        return _Due()
    if lease.undo.when is UndoWhen.NEVER:
        return lease.at_most_at
    if _is_released(lease, around):
        return _Due()
    must_end_at = lease.at_most_at if lease.kept_at is None else None
    if around.fires:
        if must_end_at is not None and now.now >= must_end_at and lease.ends_at is None:
            return Keep(lease, f"{_lasted(lease)}, and the alert still fires")
        return must_end_at
    if any(other.run_id == lease.run_id for other in above):
        return None  # newest first: the close of that one looks here again
    return _after_the_fire(lease, around, must_end_at, now.now)


def _after_the_fire(
    lease: Lease, around: Around, must_end_at: datetime | None, now: datetime
) -> _Due | AskRequire | Keep | datetime | None:
    """Nothing of it fires: ``after`` the resolve, at ``at_most`` else, and only while ``require`` holds."""
    after_younger = around.younger_closed_at
    ends: list[datetime] = []
    # Their resolve says nothing before ``at_most``; what was kept then goes as all else that was kept.
    waits_for_at_most = (lease.is_by_hand or lease.is_latched) and lease.kept_at is None
    if around.resolved_at is not None and not waits_for_at_most:
        ends.append(max(around.resolved_at, after_younger or around.resolved_at) + lease.undo.after)
    elif lease.is_by_hand and lease.kept_at is not None:  # no alert of it that could be resolved
        ends.append(lease.kept_at)
    if must_end_at is not None:
        ends.append(max(must_end_at, after_younger + lease.undo.after) if after_younger else must_end_at)
    if not ends:
        return None
    if now < min(ends):
        return min(ends)
    if lease.undo.require and around.required is None:
        return AskRequire(lease)
    holds, detail = around.required or (True, "")
    if holds:
        return _Due()
    if must_end_at is not None and now >= must_end_at and lease.ends_at is None:
        return Keep(lease, f"{_lasted(lease)}, and it is not safe to take it back: {detail}")
    return now + ASK_EVERY


def _lasted(lease: Lease) -> str:
    return f"it was to end after {print_duration(lease.undo.at_most)}"


def _has_ended(lease: Lease, now: datetime) -> bool:
    """What ends by itself ends whatever fires."""
    return lease.ends_at is not None and lease.at_most_at is not None and now >= lease.at_most_at


def _is_released(lease: Lease, around: Around) -> bool:
    """Its time came before, and nothing of it has fired since."""
    if lease.released_at is None or around.fires:
        return False
    return around.resolved_at is None or around.resolved_at <= lease.released_at


def retry_at(lease: Lease, now: datetime) -> datetime:
    """When an undo that has just failed is tried again."""
    return now + max(lease.undo.after, RETRY_AT_LEAST)
