"""Whether it helped: ``Check``s, what was seen so far, and a new look → what is known now. Pure.

``engine.verify`` asks, this decides. Times count from the end of the step, and only while the engine was up. A look is
kept only where it says something new, so the log has a line for each change and none for each look.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from remediator.core.condition import Check, Seen
from remediator.core.outcome import Outcome

LOOK_EVERY = timedelta(seconds=15)
"""Between two looks: a scrape interval."""

_LONGEST = timedelta(days=1)
"""Between two looks at most; a multiple of ``LOOK_EVERY``, from which the times of looks are counted on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What is known of one check.

    Attributes:
        seen: at the last look, None before the first.
        met_since: since when it is met without a break, None when it is not.
        detail: of the last look, for people.
        is_done: it was met as long as it had to be: not looked at again.
        is_over: its time is over, or what it waits for cannot come any more.
    """

    seen: Seen | None = None
    met_since: datetime | None = None
    detail: str = ""
    is_done: bool = False
    is_over: bool = False

    @property
    def is_decided(self) -> bool:
        """Nothing more can change."""
        return self.is_done or self.is_over


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One look at one check.

    Attributes:
        detail: for people: ``memory_ratio is 1.03, must be below 0.8``.
        is_final: what it says can never change again (the subject was resolved, or ended otherwise).
    """

    seen: Seen
    detail: str
    is_final: bool = False


Elapsed = Callable[[datetime], timedelta]
"""How long ago a moment was, without the time in which the engine was away."""


def is_settled(check: Check, ended_at: datetime, elapsed: Elapsed) -> bool:
    """Whether it is looked at by now."""
    return elapsed(ended_at) >= check.settle


def after_look(
    check: Check, before: Watched, look: Look, ended_at: datetime, now: datetime, elapsed: Elapsed
) -> Watched:
    """What is known after one more look.

    Args:
        ended_at: of the step that this verifies; for a run, of its last step.
    """
    is_met = look.seen is Seen.MET
    met_since = (before.met_since or now) if is_met else None
    # A look may come late: what held after its time does not count.
    late = max(elapsed(ended_at) - check.within, timedelta(0))
    is_done = met_since is not None and (look.is_final or max(elapsed(met_since) - late, timedelta(0)) >= check.holds)
    is_over = not is_done and (look.is_final or elapsed(ended_at) >= check.within)
    return Watched(seen=look.seen, met_since=met_since, detail=look.detail, is_done=is_done, is_over=is_over)


def says_something_new(before: Watched, after: Watched) -> bool:
    """Whether a look is worth a line in the log."""
    return (before.seen, before.is_done, before.is_over) != (after.seen, after.is_done, after.is_over)


def conclude(watched: Sequence[Watched]) -> Outcome | None:
    """How the verification ended: all were met, one was not, or nobody knows; None = it goes on.

    Not knowing outranks not having helped, and is never good. What has not been looked at yet says neither.
    """
    if all(one.is_done for one in watched):
        return Outcome.SUCCEEDED
    if not any(one.is_over for one in watched):
        return None
    is_unknown = any(not one.is_done and one.seen is Seen.NO_VALUE for one in watched)
    return Outcome.UNKNOWN if is_unknown else Outcome.FAILED


def look_every(now: datetime, steady_until: datetime | None) -> timedelta:
    """How long to wait for the next look that can see something new: a multiple of ``LOOK_EVERY``.

    Args:
        steady_until: no condition changes before; None = none will ever.
    """
    if steady_until is None:
        return _LONGEST
    return max(1, -((now - steady_until) // LOOK_EVERY)) * LOOK_EVERY


def next_look_at(
    checks: Sequence[Check],
    watched: Sequence[Watched],
    ended_at: datetime,
    now: datetime,
    elapsed: Elapsed,
    every: timedelta = LOOK_EVERY,
) -> datetime:
    """When to look again. The subject's end wakes the run by itself: only its time is waited for.

    Args:
        every: so often a condition is asked, beside the times at which it decides something (``look_every``).
    """
    waits = [_LONGEST]
    gone = elapsed(ended_at)
    for check, one in zip(checks, watched, strict=True):
        if one.is_decided:
            continue
        if gone < check.settle:
            waits.append(check.settle - gone)
            continue
        waits.append(check.within - gone)
        if check.condition is not None:
            waits.append(every)
        if one.met_since is not None:
            waits.append(check.holds - elapsed(one.met_since))
    return now + max(min(waits), timedelta(milliseconds=1))
