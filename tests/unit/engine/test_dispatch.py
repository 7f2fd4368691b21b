"""Never two workers at one run, whatever their duties, and no wish to look at it is lost."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from remediator.engine.dispatch import Dispatch, Duty

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


class StandingClock:
    def now(self) -> datetime:
        return NOW


def make(advance: Callable[[str, Duty], datetime | None], n_workers: int = 2) -> Dispatch:
    return Dispatch(advance, StandingClock(), n_workers, note_bug=lambda where: pytest.fail(where))


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline, "not so within 30 s"
        time.sleep(0.01)


def test_worker_when_a_run_is_wanted_for_both_duties_at_once_then_one_comes_after_the_other() -> None:
    at_it: Counter[str] = Counter()
    most: list[int] = []
    seen: Counter[tuple[str, Duty]] = Counter()
    lock = threading.Lock()

    def advance(run_id: str, duty: Duty) -> None:
        with lock:
            at_it[run_id] += 1
            most.append(at_it[run_id])
        time.sleep(0.002)
        with lock:
            at_it[run_id] -= 1
            seen[run_id, duty] += 1

    dispatch = make(advance)
    dispatch.start()
    for _ in range(20):
        for run_id in ("a", "b"):
            dispatch.wake(run_id)
            dispatch.tell(run_id)
        time.sleep(0.001)
    wait_for(lambda: dispatch.counts() == (0, 0) and dispatch.n_running() == 0)
    assert dispatch.stop(timedelta(seconds=30))
    assert max(most) == 1
    assert set(seen) == {(run_id, duty) for run_id in ("a", "b") for duty in Duty}


@pytest.mark.parametrize("duty", Duty)
def test_worker_when_a_run_is_wanted_while_another_is_at_it_then_it_is_looked_at_once_more_afterwards(
    duty: Duty,
) -> None:
    looks: list[Duty] = []
    is_begun, may_end = threading.Event(), threading.Event()

    def advance(_: str, of: Duty) -> None:
        looks.append(of)
        is_begun.set()
        may_end.wait(30)

    dispatch = make(advance)
    dispatch.start()
    dispatch.tell("a")
    assert is_begun.wait(30)
    for _ in range(3):
        (dispatch.wake if duty is Duty.ACT else dispatch.tell)("a")
    may_end.set()
    wait_for(lambda: len(looks) == 2 and dispatch.n_running() == 0)
    assert dispatch.stop(timedelta(seconds=30))
    assert looks == [Duty.TELL, duty]


def test_worker_when_all_of_one_duty_are_held_then_those_of_the_other_work() -> None:
    acted, may_end = threading.Event(), threading.Event()

    def advance(_: str, duty: Duty) -> None:
        if duty is Duty.ACT:
            acted.set()
        else:
            may_end.wait(30)

    dispatch = make(advance)
    dispatch.start()
    for number in range(4):
        dispatch.tell(f"told-{number}")
    wait_for(lambda: dispatch.n_running() == 2)
    dispatch.wake("a")
    assert acted.wait(30)
    assert dispatch.counts() == (2, 2), "two wait to be told"
    may_end.set()
    wait_for(lambda: dispatch.counts() == (0, 0))
    assert dispatch.stop(timedelta(seconds=30))


def test_run_due_when_a_message_is_due_and_a_time_is_set_then_both_are_kept() -> None:
    looks: list[Duty] = []
    later = NOW + timedelta(minutes=1)

    def advance(run_id: str, duty: Duty) -> datetime | None:
        looks.append(duty)
        if duty is Duty.ACT:
            dispatch.tell(run_id)
            return later
        return later

    dispatch = make(advance)
    dispatch.wake("a")
    assert dispatch.run_due() == later
    assert looks == [Duty.ACT, Duty.TELL]
