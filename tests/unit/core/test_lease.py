"""Leases, decided: one lease by its times, stacks by their order, and what holds whatever happens to a stack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plans import NOW, a_lease, an_undo
from remediator.core.action import UndoWhen
from remediator.core.condition import Comparison, Condition
from remediator.core.lease import (
    Around,
    AskRequire,
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

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
COOL = Condition(name="temp_c", query="temp_c", comparison=Comparison.BELOW, bound="78")
HOT = (False, "temp_c is 85, must be below 78")


REQUIRES = {"undo": an_undo(require=(COOL,))}
FIRES = Around(fires=True)
QUIET = Around(fires=False)


def resolved(minutes: int, **more: Any) -> Around:
    """So many minutes after the opening."""
    return Around(fires=False, resolved_at=NOW + minutes * MINUTE, **more)


def decide(lease: Lease, around: Around, after: timedelta, **more: Any) -> LeaseMove:
    return next_lease_move([lease], Surroundings(now=NOW + after, around={lease.id: around}, **more))


BACK = "taken back"
KEPT = "kept"
ASKED = "require is asked"


@pytest.mark.parametrize(
    ("more", "around", "after", "expected"),
    [
        pytest.param({}, FIRES, HOUR, 12 * HOUR, id="fires: looked at when it has to end"),
        pytest.param({}, FIRES, 12 * HOUR, KEPT, id="fires at at_most: kept"),
        pytest.param({"kept_at": NOW + 12 * HOUR}, FIRES, 13 * HOUR, None, id="fires on, kept before: not kept again"),
        pytest.param({}, resolved(5), 14 * MINUTE, 15 * MINUTE, id="resolved, a minute before its time"),
        pytest.param({}, resolved(5), 15 * MINUTE, BACK, id="resolved, so long after"),
        pytest.param({"kept_at": NOW}, resolved(5), 15 * MINUTE, BACK, id="kept, then resolved"),
        pytest.param({"kept_at": NOW}, QUIET, 20 * HOUR, None, id="kept, then expired: a person's"),
        pytest.param({"is_latched": True}, resolved(5), HOUR, 12 * HOUR, id="latched: a resolve says nothing"),
        pytest.param({"is_latched": True}, resolved(5), 12 * HOUR, BACK, id="latched, at at_most"),
        pytest.param({"is_by_hand": True}, resolved(5), HOUR, 12 * HOUR, id="by hand: a resolve says nothing"),
        pytest.param({"is_by_hand": True}, FIRES, 12 * HOUR, KEPT, id="by hand, the same fires at at_most"),
        pytest.param({"is_latched": True, "kept_at": NOW}, resolved(5), 15 * MINUTE, BACK, id="latched, kept: goes"),
        pytest.param({"is_by_hand": True, "kept_at": NOW}, resolved(5), 15 * MINUTE, BACK, id="by hand, kept: goes"),
        pytest.param(
            REQUIRES | {"is_by_hand": True, "kept_at": NOW}, QUIET, HOUR, ASKED, id="by hand, kept: require is asked on"
        ),
        pytest.param({}, QUIET, HOUR, 12 * HOUR, id="expired: not a resolve"),
        pytest.param({}, QUIET, 12 * HOUR, BACK, id="expired, at at_most"),
        pytest.param({"undo": an_undo(when=UndoWhen.NEVER)}, resolved(5), 99 * HOUR, None, id="never: not by itself"),
        pytest.param(
            {"undo": an_undo(when=UndoWhen.NEVER), "requested_at": NOW}, FIRES, HOUR, BACK, id="never, but asked for"
        ),
        pytest.param({"requested_at": NOW}, FIRES, HOUR, BACK, id="asked for while it fires"),
        pytest.param(REQUIRES, resolved(5), 15 * MINUTE, ASKED, id="its time: require is asked"),
        pytest.param(
            REQUIRES, resolved(5, required=HOT), 15 * MINUTE, 16 * MINUTE,
            id="require is false: again in a minute",
        ),
        pytest.param(
            REQUIRES, resolved(5, required=(True, "")), 15 * MINUTE, BACK, id="require holds"
        ),
        pytest.param(
            REQUIRES, resolved(5, required=HOT), 12 * HOUR, KEPT, id="require false at at_most"
        ),
        pytest.param(REQUIRES, QUIET, 12 * HOUR, ASKED, id="expired at at_most: require first"),
        pytest.param(
            REQUIRES | {"kept_at": NOW}, resolved(5, required=HOT), 13 * HOUR, 13 * HOUR + MINUTE,
            id="kept: require is asked on",
        ),
        pytest.param(REQUIRES | {"requested_at": NOW}, FIRES, HOUR, BACK, id="asked: no require"),
        pytest.param({"ends_at": NOW + 2 * HOUR}, FIRES, HOUR, 2 * HOUR, id="ends by itself, looked at then"),
        pytest.param({"ends_at": NOW + 2 * HOUR}, FIRES, 2 * HOUR, BACK, id="ends by itself, whatever fires"),
        pytest.param({"ends_at": NOW + 20 * HOUR}, FIRES, 12 * HOUR, BACK, id="ends by itself: never kept at at_most"),
        pytest.param({"ends_at": NOW + 2 * HOUR}, resolved(5), 15 * MINUTE, BACK, id="ends by itself, resolved before"),
        pytest.param(
            {"ends_at": NOW + 2 * HOUR, "undo": an_undo(when=UndoWhen.NEVER)}, resolved(5), HOUR, 2 * HOUR,
            id="never, and ends by itself",
        ),
        pytest.param({"retry_at": NOW + 30 * MINUTE}, resolved(5), 20 * MINUTE, 30 * MINUTE, id="failed: not yet"),
        pytest.param({"retry_at": NOW + 30 * MINUTE}, resolved(5), 30 * MINUTE, BACK, id="failed: again"),
        pytest.param({"undo_started_at": NOW}, FIRES, MINUTE, BACK, id="begun and never ended: looked at first"),
    ],
)  # fmt: skip
def test_lease_by_its_times(more: dict[str, Any], around: Around, after: timedelta, expected: Any) -> None:
    lease = a_lease(**more)

    move = decide(lease, around, after)

    if expected == BACK:
        assert move == TakeBack((lease,), is_begun=lease.undo_started_at is not None)
    elif expected == KEPT:
        assert isinstance(move, Keep)
    elif expected == ASKED:
        assert move == AskRequire(lease)
    else:
        until = None if expected is None else NOW + expected
        assert move == Rest(until)


def test_keep_when_require_is_false_then_says_the_number() -> None:
    move = decide(a_lease(undo=an_undo(require=(COOL,))), resolved(5, required=HOT), 12 * HOUR)

    assert isinstance(move, Keep)
    assert move.why == ("it was to end after 12h, and it is not safe to take it back: temp_c is 85, must be below 78")


def test_pause_when_a_lease_is_due_then_holds_it_unless_a_person_asked() -> None:
    lease = a_lease()

    assert decide(lease, resolved(5), HOUR, is_paused=True) == Rest(NOW + HOUR + MINUTE)
    asked = replace(lease, requested_at=NOW)
    assert decide(asked, resolved(5), HOUR, is_paused=True) == TakeBack((asked,))


def test_pause_when_an_undo_was_begun_by_an_engine_that_was_killed_then_holds_it_as_well() -> None:
    begun = a_lease(undo_started_at=NOW)

    assert decide(begun, resolved(5), HOUR, is_paused=True) == Rest(NOW + HOUR + MINUTE)
    asked = replace(begun, requested_at=NOW)
    assert decide(asked, resolved(5), HOUR, is_paused=True) == TakeBack((asked,), is_begun=True)


def test_target_when_a_run_has_it_then_the_undo_waits() -> None:
    for lease in (a_lease(), a_lease(requested_at=NOW)):
        assert decide(lease, resolved(5), HOUR, taken_by="run-b") == Rest(NOW + HOUR + MINUTE)


@pytest.mark.parametrize(("after", "expected"), [(10 * MINUTE, 10), (MINUTE, 1), (timedelta(0), 1)])
def test_retry_when_an_undo_failed_then_comes_after_after_and_never_at_once(after: timedelta, expected: int) -> None:
    assert retry_at(a_lease(undo=an_undo(after=after)), NOW) == NOW + expected * MINUTE


def test_stack_id_when_the_target_has_any_sign_in_it_then_is_read_back() -> None:
    lease = a_lease(target="alertmanager:a|b:c")

    assert split_stack_id(lease.stack_id) == ("docker.limit", "alertmanager:a|b:c")


# -- stacks ------------------------------------------------------------------------------------------------------------


def stack_move(stack: Sequence[Lease], after: timedelta = HOUR, **around: Around) -> LeaseMove:
    return next_lease_move(stack, Surroundings(now=NOW + after, around=around))


def test_stack_when_a_lower_one_is_due_then_is_released_once_and_waits_for_the_top() -> None:
    lower, upper = a_lease("a"), a_lease("b", per_key="other")

    assert stack_move([lower, upper], a=resolved(5), b=FIRES) == Release(lower)
    released = replace(lower, released_at=NOW + HOUR)
    assert stack_move([released, upper], a=resolved(5), b=FIRES) == Rest(NOW + 12 * HOUR)


def test_stack_when_the_top_is_due_then_released_ones_right_below_go_with_it_and_no_further() -> None:
    bottom = a_lease("a", released_at=NOW + HOUR, before={"cpus": 8})
    middle = a_lease("b", before={"cpus": 4})
    top = a_lease("c", before={"cpus": 3})

    assert stack_move([bottom, middle, top], a=resolved(5), b=FIRES, c=resolved(5)) == TakeBack((top,))
    lent = replace(middle, released_at=NOW + HOUR)
    move = stack_move([bottom, lent, top], a=resolved(5), b=resolved(5), c=resolved(5))
    assert isinstance(move, TakeBack)
    assert (move.leases, move.restore) == ((top, lent, bottom), {"cpus": 8})


def test_stack_when_a_released_one_fires_again_then_it_does_not_go_with_the_top() -> None:
    lower = a_lease("a", released_at=NOW + 20 * MINUTE)
    top = a_lease("b")

    assert stack_move([lower, top], a=FIRES, b=resolved(5)) == TakeBack((top,))


def test_stack_when_a_released_one_fired_and_resolved_again_then_its_time_starts_anew() -> None:
    lower = a_lease("a", released_at=NOW + 20 * MINUTE)
    top = a_lease("b")

    assert stack_move([lower, top], a=resolved(55), b=resolved(5)) == TakeBack((top,))
    assert stack_move([lower, top], 65 * MINUTE, a=resolved(55), b=resolved(5)) == TakeBack((top, lower))


def test_rungs_of_one_run_when_due_then_go_newest_first_each_so_long_after_the_other() -> None:
    first, second = a_lease("a", run_id="run"), a_lease("b", run_id="run")

    assert stack_move([first, second], a=resolved(5), b=resolved(5)) == TakeBack((second,))
    closed = resolved(5, younger_closed_at=NOW + 60 * MINUTE)
    assert stack_move([first], 69 * MINUTE, a=closed) == Rest(NOW + 70 * MINUTE)
    assert stack_move([first], 70 * MINUTE, a=closed) == TakeBack((first,))


def test_rungs_of_one_run_when_a_person_asks_for_all_then_go_at_once() -> None:
    first, second = (a_lease(name, run_id="run", requested_at=NOW) for name in "ab")

    assert stack_move([first, second], a=FIRES, b=FIRES) == Release(first)
    released = replace(first, released_at=NOW)
    assert stack_move([released, second], a=FIRES, b=FIRES) == TakeBack((second, released))


def test_stack_when_nothing_is_open_then_nothing_is_to_be_done() -> None:
    assert stack_move([]) == Rest(None)


# -- whatever happens --------------------------------------------------------------------------------------------------


@dataclass
class World:
    """A target with one number on it, the leases on it, and what fires."""

    value: int = 100
    now: int = 0
    stack: list[Lease] = field(default_factory=list)
    fires: dict[str, bool] = field(default_factory=dict)
    resolved_at: dict[str, int] = field(default_factory=dict)
    closed_at: dict[str, int] = field(default_factory=dict)
    n: int = 0

    def at(self, minutes: int) -> Any:
        return NOW + minutes * MINUTE

    def around(self, lease: Lease) -> Around:
        key, fires = lease.per_key, self.fires.get(lease.per_key, False)
        ended = self.resolved_at.get(key)
        younger = self.closed_at.get(f"{lease.run_id}")
        return Around(
            fires=fires,
            resolved_at=None if fires or ended is None else self.at(ended),
            younger_closed_at=None if younger is None else self.at(younger),
        )

    def open(self, key: str, run: str) -> None:
        """A run acts: its alert fires, and it leaves another number."""
        self.fires[key] = True
        self.n += 1
        before = self.value
        self.value = 100 - self.n
        self.stack.append(
            a_lease(
                f"lease-{self.n}", run_id=f"{key}-{run}", per_key=key, before={"cpus": before},
                left={"cpus": self.value}, opened_at=self.at(self.now),
            )
        )  # fmt: skip

    def resolve(self, key: str) -> None:
        if self.fires.get(key):
            self.fires[key] = False
            self.resolved_at[key] = self.now

    def ask(self, key: str) -> None:
        self.stack = [
            replace(lease, requested_at=self.at(self.now)) if lease.per_key == key else lease for lease in self.stack
        ]

    def drift(self) -> None:
        self.value = 1000 + self.now

    def settle(self) -> None:
        """Make every move that can be made now."""
        for _ in range(100):
            surroundings = Surroundings(
                now=self.at(self.now), around={lease.id: self.around(lease) for lease in self.stack}
            )
            move = next_lease_move(self.stack, surroundings)
            match move:
                case Rest(until):
                    assert until is None or until > surroundings.now
                    return
                case Release(lease):
                    self._change(lease, released_at=surroundings.now)
                case Keep(lease):
                    assert self.fires[lease.per_key]
                    self._change(lease, kept_at=surroundings.now)
                case TakeBack():
                    self._take_back(move)
                case _:
                    pytest.fail(f"{move} was not asked for")
        pytest.fail("it never comes to rest")

    def _change(self, lease: Lease, **more: Any) -> None:
        self.stack[self.stack.index(lease)] = replace(lease, **more)

    def _take_back(self, move: TakeBack) -> None:
        n = len(move.leases)
        assert move.leases == tuple(reversed(self.stack[-n:])), "only the top, and what lies right below it"
        for lease in move.leases:
            assert not self.fires[lease.per_key] or lease.requested_at is not None, "it fires"
        assert move.top.left == self.stack[-1].left
        if self.value != move.top.left["cpus"]:  # drifted: all of it closes
            self.stack = []
            return
        lowest = move.leases[-1].before["cpus"]
        assert isinstance(lowest, int)
        self.value = lowest
        self.stack = self.stack[:-n]
        for lease in move.leases:
            self.closed_at[lease.run_id] = self.now
        if self.stack:
            assert self.stack[-1].left == {"cpus": self.value}, "as the one below had left it"


STEPS = st.one_of(
    st.tuples(st.just("open"), st.sampled_from("xyz"), st.sampled_from("12")),
    st.tuples(st.sampled_from(["resolve", "ask"]), st.sampled_from("xyz")),
    st.tuples(st.just("wait"), st.integers(1, 800)),
)


@given(st.lists(STEPS, max_size=25))
def test_stack_whatever_opens_resolves_and_fires_again_then_ends_where_it_began(steps: list[tuple[Any, ...]]) -> None:
    world = World()
    for what, *args in steps:
        if what == "wait":
            world.now += args[0]
        else:
            getattr(world, what)(*args)
        world.settle()
    for key in "xyz":
        world.resolve(key)
    for _ in range(40):
        world.now += 10
        world.settle()
    assert (world.stack, world.value) == ([], 100)


@given(st.lists(STEPS, max_size=15), st.integers(0, 14))
def test_stack_when_others_change_the_target_then_nothing_is_ever_put_over_it(
    steps: list[tuple[Any, ...]], when: int
) -> None:
    world = World()
    drifted: int | None = None
    for place, (what, *args) in enumerate(steps):
        if place == when:
            world.drift()
            drifted = world.value
        if what == "wait":
            world.now += args[0]
        elif what != "open" or drifted is None:  # before each act the engine looks, and would have refused it
            getattr(world, what)(*args)
        world.settle()
    for key in "xyz":
        world.resolve(key)
    for _ in range(40):
        world.now += 10
        world.settle()
    assert (world.stack, world.value) == ([], 100 if drifted is None else drifted)
