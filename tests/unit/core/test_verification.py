"""Whether it helped, look by look: each rule of it, and what holds for any story."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remediator.core.condition import Check, Comparison, Condition, Seen
from remediator.core.outcome import Outcome
from remediator.core.verification import (
    LOOK_EVERY,
    Look,
    Watched,
    after_look,
    conclude,
    is_settled,
    look_every,
    next_look_at,
    says_something_new,
)

END = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
NUMBER = Condition(name="x", query="q", comparison=Comparison.BELOW, bound="1")

Sees = Callable[[float], Seen]
"""What a look says, by the seconds that the engine was up since the end of the step."""


@dataclass(frozen=True)
class Told:
    """A verification from its beginning to its end.

    Attributes:
        outcome: how it ended.
        looks: of each check, the seconds and what was seen.
        ended_s: seconds up, at its end.
    """

    outcome: Outcome
    looks: tuple[tuple[tuple[float, Seen], ...], ...]
    ended_s: float


@dataclass(frozen=True)
class Clock:
    """Time with a gap in which the engine was away.

    Attributes:
        away_at, away_for: seconds after the end of the step, and how many.
        late: a look comes so many seconds after it was due.
    """

    away_at: float = 0
    away_for: float = 0
    late: float = 0

    def up_s(self, moment: datetime) -> float:
        """Seconds up between the end of the step and a moment."""
        gone = (moment - END).total_seconds()
        return gone if gone <= self.away_at else max(self.away_at, gone - self.away_for)

    def woken(self, due: datetime) -> datetime:
        """When a look that is due then really is."""
        moment = due + timedelta(seconds=self.late)
        away_ends = END + timedelta(seconds=self.away_at + self.away_for)
        is_away = END + timedelta(seconds=self.away_at) <= moment < away_ends
        return away_ends if is_away else moment


def watch(checks: Sequence[Check], sees: Sequence[Sees], clock: Clock = Clock()) -> Told:
    """Do as the engine does, until it is concluded."""
    watched = [Watched() for _ in checks]
    looks: list[list[tuple[float, Seen]]] = [[] for _ in checks]
    now = clock.woken(END)
    for _ in range(10_000):

        def elapsed(moment: datetime, now: datetime = now) -> timedelta:
            return timedelta(seconds=clock.up_s(now) - clock.up_s(moment))

        for index, check in enumerate(checks):
            if watched[index].is_decided or not is_settled(check, END, elapsed):
                continue
            seen = sees[index](clock.up_s(now))
            looks[index].append((clock.up_s(now), seen))
            watched[index] = after_look(check, watched[index], Look(seen=seen, detail=""), END, now, elapsed)
        outcome = conclude(watched)
        if outcome is not None:
            return Told(outcome, tuple(tuple(each) for each in looks), clock.up_s(now))
        later = next_look_at(checks, watched, END, now, elapsed)
        assert later > now
        now = clock.woken(later)
    raise AssertionError("it never ends")


def check(settle: float = 0, holds: float = 0, within: float = 300) -> Check:
    seconds = [timedelta(seconds=value) for value in (settle, holds, within)]
    return Check(condition=NUMBER, settle=seconds[0], holds=seconds[1], within=seconds[2])


def story(*parts: tuple[float, Seen]) -> Sees:
    """``(0, NOT_MET), (60, MET)``: not met, and met from the 60th second on."""

    def at(second: float) -> Seen:
        return [seen for since, seen in parts if since <= second][-1]

    return at


MET, NOT, NONE = Seen.MET, Seen.NOT_MET, Seen.NO_VALUE

TABLE = {
    "met at once, where nothing has to hold, helps at once": (check(), [(0, MET)], Outcome.SUCCEEDED, 0),
    "nothing is looked at before it has settled": (check(settle=100), [(0, NOT), (100, MET)], Outcome.SUCCEEDED, 100),
    "what was good before it settled does not count": (
        check(settle=100, within=200), [(0, MET), (100, NOT)], Outcome.FAILED, 200,
    ),
    "it helps as soon as it has held long enough": (check(holds=40), [(0, MET)], Outcome.SUCCEEDED, 40),
    "a stretch that is broken begins anew": (
        check(holds=60), [(0, MET), (45, NOT), (60, MET)], Outcome.SUCCEEDED, 120,
    ),
    "a missing value breaks a stretch": (check(holds=60), [(0, MET), (45, NONE), (60, MET)], Outcome.SUCCEEDED, 120),
    "what would hold until after its time did not help": (
        check(holds=60, within=100), [(0, NOT), (45, MET)], Outcome.FAILED, 100,
    ),
    "what holds until the very end of its time helps": (
        check(holds=60, within=120), [(0, NOT), (60, MET)], Outcome.SUCCEEDED, 120,
    ),
    "never so did not help": (check(within=60), [(0, NOT)], Outcome.FAILED, 60),
    "never a value is not known": (check(within=60), [(0, NONE)], Outcome.UNKNOWN, 60),
    "a value at last decides, where there was none before": (
        check(within=60), [(0, NONE), (59, NOT)], Outcome.FAILED, 60,
    ),
    "no value at last decides, where there was a bad one before": (
        check(within=60), [(0, NOT), (59, NONE)], Outcome.UNKNOWN, 60,
    ),
    "good for a while and gone at last is not known": (
        check(holds=60, within=60), [(0, MET), (50, NONE)], Outcome.UNKNOWN, 60,
    ),
    "good only at last helps, where nothing has to hold": (
        check(within=60), [(0, NOT), (60, MET)], Outcome.SUCCEEDED, 60,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("one", "seen", "outcome", "ended_s"), TABLE.values(), ids=TABLE)
def test_watch_when_it_is_seen_so_then_it_ends_so(
    one: Check, seen: list[tuple[float, Seen]], outcome: Outcome, ended_s: float
) -> None:
    told = watch([one], [story(*seen)])
    assert (told.outcome, told.ended_s) == (outcome, ended_s)


@pytest.mark.parametrize(("one", "seen", "outcome", "ended_s"), TABLE.values(), ids=TABLE)
@pytest.mark.parametrize("away_at", [0, 30, 45])
def test_watch_when_the_engine_was_away_for_an_hour_then_it_ends_as_without(
    one: Check, seen: list[tuple[float, Seen]], outcome: Outcome, ended_s: float, away_at: float
) -> None:
    told = watch([one], [story(*seen)], Clock(away_at=away_at, away_for=3600))
    assert (told.outcome, told.ended_s) == (outcome, ended_s)


def test_watch_when_nothing_changes_then_looks_are_15_seconds_apart() -> None:
    told = watch([check(within=60)], [story((0, NOT))])
    assert [second for second, _ in told.looks[0]] == [0, 15, 30, 45, 60]


def test_watch_when_one_is_met_then_it_is_not_looked_at_again_and_the_others_are() -> None:
    told = watch([check(), check()], [story((0, MET), (1, NOT)), story((0, NOT), (30, MET))])
    assert told.outcome is Outcome.SUCCEEDED
    assert [len(looks) for looks in told.looks] == [1, 3]


@pytest.mark.parametrize(
    ("other", "outcome"),
    [
        (story((0, MET)), Outcome.FAILED),
        (story((0, NOT)), Outcome.FAILED),
        (story((0, NONE)), Outcome.UNKNOWN),
    ],
    ids=["met", "not met", "of no value"],
)
def test_watch_when_one_did_not_come_in_its_time_then_it_ends_and_what_is_not_known_outranks(
    other: Sees, outcome: Outcome
) -> None:
    told = watch([check(within=60), check(within=600, holds=500)], [story((0, NOT)), other])
    assert (told.outcome, told.ended_s) == (outcome, 60)


def test_watch_when_one_did_not_come_and_another_has_not_settled_then_it_did_not_help() -> None:
    told = watch([check(within=60), check(settle=120, within=600)], [story((0, NOT)), story((0, MET))])
    assert (told.outcome, told.ended_s) == (Outcome.FAILED, 60)


@pytest.mark.parametrize(
    ("late", "holds", "met_at", "outcome"),
    [
        (0, 60, 30, Outcome.SUCCEEDED),
        (0, 60, 45, Outcome.FAILED),
        (30, 60, 0, Outcome.SUCCEEDED),
        (30, 60, 60, Outcome.FAILED),
        (500, 0, 0, Outcome.SUCCEEDED),
        (500, 1, 0, Outcome.FAILED),
    ],
    ids=[
        "in time, it holds",
        "in time, it does not hold long enough",
        "late, it held within its time",
        "late, it did not hold within its time",
        "the first look is after its time, and it is met",
        "the first look is after its time, and nobody knows for how long it was met",
    ],
)
def test_watch_when_looks_are_late_then_only_what_held_within_its_time_counts(
    late: float, holds: float, met_at: float, outcome: Outcome
) -> None:
    told = watch([check(holds=holds, within=100)], [story((0, NOT), (met_at, MET))], Clock(late=late))
    assert told.outcome is outcome


@pytest.mark.parametrize(("seen", "outcome"), [(MET, "succeeded"), (NOT, "failed"), (NONE, "unknown")])
def test_after_look_when_it_is_final_then_it_is_decided_at_once(seen: Seen, outcome: str) -> None:
    one = Check(within=timedelta(hours=1))
    after = after_look(
        one, Watched(), Look(seen=seen, detail="d", is_final=True), END, END, lambda moment: END - moment
    )
    assert (conclude([after]), after.detail) == (Outcome(outcome), "d")


def test_next_look_when_the_alert_alone_is_waited_for_then_nobody_looks_before_its_time_is_over() -> None:
    one = Check(within=timedelta(minutes=30))
    later = next_look_at([one], [Watched(seen=NOT)], END, END, lambda moment: END - moment)
    assert later == END + timedelta(minutes=30)


@pytest.mark.parametrize(
    ("change", "is_new"),
    [
        ({}, False),
        ({"detail": "another number"}, False),
        ({"seen": NONE}, True),
        ({"is_done": True}, True),
        ({"is_over": True}, True),
    ],
    ids=str,
)
def test_says_something_new_when_this_changes_then(change: dict[str, object], is_new: bool) -> None:
    before = Watched(seen=NOT, detail="a number")
    assert says_something_new(before, dataclasses.replace(before, **change)) is is_new  # type: ignore[arg-type]


# -- any story

SECONDS = st.sampled_from([0, 1, 15, 20, 40, 60, 90])
CHECKS = st.builds(
    lambda settle, holds, more: check(settle, holds, max(1, settle + holds + more)), SECONDS, SECONDS, SECONDS
)
STORIES = st.lists(st.tuples(st.integers(0, 250), st.sampled_from(Seen)), max_size=6).map(
    lambda parts: ((0.0, NOT), *sorted(parts, key=lambda part: part[0]))
)
WATCHES = st.lists(st.tuples(CHECKS, STORIES), min_size=1, max_size=3)
CLOCKS = st.builds(
    Clock, away_at=st.integers(0, 200), away_for=st.sampled_from([0, 1, 3600]), late=st.sampled_from([0, 0, 1, 20, 300])
)


def told_of(given_: Sequence[tuple[Check, tuple[tuple[float, Seen], ...]]], clock: Clock = Clock()) -> Told:
    return watch([one for one, _ in given_], [story(*parts) for _, parts in given_], clock)


def held_within(one: Check, looks: Sequence[tuple[float, Seen]]) -> bool:
    """Whether the looks show it: an unbroken stretch of ``holds``, after ``settle``, complete inside ``within``."""
    since: float | None = None
    for second, seen in looks:
        assert second >= one.settle.total_seconds()
        since = (second if since is None else since) if seen is MET else None
        inside = max(0.0, min(second, max(one.within.total_seconds(), since or 0)) - since) if since is not None else -1
        if inside >= one.holds.total_seconds():
            return True
    return False


@settings(deadline=None, max_examples=300)
@given(WATCHES, CLOCKS)
def test_watch_when_it_helped_then_every_check_held_its_time_within_its_time(
    watched: list[tuple[Check, tuple[tuple[float, Seen], ...]]], clock: Clock
) -> None:
    told = told_of(watched, clock)
    held = [held_within(one, looks) for (one, _), looks in zip(watched, told.looks, strict=True)]
    assert (told.outcome is Outcome.SUCCEEDED) is all(held)


@settings(deadline=None, max_examples=300)
@given(WATCHES, CLOCKS)
def test_watch_when_it_did_not_help_then_the_last_looks_say_which_it_is(
    watched: list[tuple[Check, tuple[tuple[float, Seen], ...]]], clock: Clock
) -> None:
    told = told_of(watched, clock)
    if told.outcome is Outcome.SUCCEEDED:
        return
    missing = [
        looks[-1][1]
        for (one, _), looks in zip(watched, told.looks, strict=True)
        if looks and not held_within(one, looks)
    ]
    assert told.outcome is (Outcome.UNKNOWN if NONE in missing else Outcome.FAILED)


@settings(deadline=None, max_examples=200)
@given(WATCHES, CLOCKS, st.randoms(use_true_random=False))
def test_watch_when_the_checks_stand_in_another_order_then_it_ends_the_same(
    watched: list[tuple[Check, tuple[tuple[float, Seen], ...]]], clock: Clock, random: object
) -> None:
    shuffled = list(watched)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = told_of(watched, clock), told_of(shuffled, clock)
    assert (one.outcome, one.ended_s) == (other.outcome, other.ended_s)


@settings(deadline=None, max_examples=200)
@given(WATCHES, st.integers(0, 200), st.sampled_from([1, 60, 86_400]))
def test_watch_when_the_engine_was_away_then_that_time_does_not_count(
    watched: list[tuple[Check, tuple[tuple[float, Seen], ...]]], away_at: int, away_for: float
) -> None:
    calm = told_of(watched)
    gap = told_of(watched, Clock(away_at=away_at, away_for=away_for))
    longest = max(one.within.total_seconds() for one, _ in watched)
    assert gap.ended_s <= longest
    if away_at >= calm.ended_s:
        assert gap == calm


@settings(deadline=None, max_examples=200)
@given(WATCHES, CLOCKS)
def test_watch_when_one_check_never_has_a_value_then_it_never_helped(
    watched: list[tuple[Check, tuple[tuple[float, Seen], ...]]], clock: Clock
) -> None:
    silent = [(watched[0][0], ((0.0, NONE),)), *watched[1:]]
    assert told_of(silent, clock).outcome in (Outcome.UNKNOWN, Outcome.FAILED)


STATES = st.builds(Watched, seen=st.sampled_from([None, *Seen]), is_done=st.booleans(), is_over=st.booleans())


@given(st.lists(STATES, min_size=1, max_size=4))
def test_conclude_when_given_any_states_then_order_does_not_count_and_unknown_is_never_good(
    states: list[Watched],
) -> None:
    outcome = conclude(states)
    assert outcome is conclude(list(reversed(states)))
    assert (outcome is Outcome.SUCCEEDED) is all(one.is_done for one in states)


@given(CHECKS, STATES, st.sampled_from(Seen), st.integers(0, 400))
def test_after_look_when_there_is_no_value_or_a_bad_one_then_it_is_not_done(
    one: Check, before: Watched, seen: Seen, second: int
) -> None:
    now = END + timedelta(seconds=second)
    after = after_look(one, before, Look(seen=seen, detail=""), END, now, lambda moment: now - moment)
    assert after.is_done <= (seen is MET)
    assert not (after.is_done and after.is_over)
    assert (after.met_since is not None) is (seen is MET)


def test_look_every_when_read_then_it_is_a_scrape_interval() -> None:
    assert timedelta(seconds=15) == LOOK_EVERY


@pytest.mark.parametrize(
    ("steady_s", "every_s"),
    [
        pytest.param(-3600, 15, id="it may have changed already"),
        pytest.param(0, 15, id="it may change now"),
        pytest.param(15, 15, id="at the next look"),
        pytest.param(16, 30, id="just after the next look: the one after that sees it"),
        pytest.param(600, 600, id="at a later look"),
        pytest.param(601, 615, id="between two"),
        pytest.param(None, 86_400, id="never"),
    ],
)
def test_look_every_when_nothing_changes_before_a_moment_then_the_first_look_after_it_is_next(
    steady_s: int | None, every_s: int
) -> None:
    until = None if steady_s is None else END + timedelta(seconds=steady_s)

    assert look_every(END, until) == timedelta(seconds=every_s)


def test_look_every_when_anything_may_change_at_any_time_then_is_a_scrape_interval() -> None:
    assert look_every(END, datetime.min.replace(tzinfo=UTC)) == LOOK_EVERY


def test_next_look_when_little_is_looked_at_then_what_decides_something_is_looked_at_all_the_same() -> None:
    check = Check(condition=NUMBER, holds=timedelta(minutes=2), within=timedelta(minutes=9))

    def next_after(one: Watched) -> timedelta:
        return next_look_at([check], [one], END, END, lambda moment: END - moment, timedelta(hours=1)) - END

    assert next_after(Watched(seen=NOT)) == check.within
    assert next_after(Watched(seen=MET, met_since=END)) == check.holds
