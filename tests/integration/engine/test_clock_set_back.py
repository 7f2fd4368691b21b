"""A clock that is far ahead for a moment and set back: what waits, asks or verifies must not stand still for it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from remediator.engine.recover import recover

if TYPE_CHECKING:
    from conftest import Bench

YEARS = timedelta(days=3650)

VERIFIES = "verify: [{name: helps, query: up, below: 1, within: 5m}]"
ASKS = "approval: {ask: [ml-platform], expires: 30m}"


def jumps_and_returns(bench: Bench) -> None:
    """Wrong for the time of a beat, as after a bad answer of a time server."""
    right = bench.clock.moment
    bench.clock.moment += YEARS
    bench.engine._life.beat()
    bench.engine.work()
    bench.clock.moment = right + timedelta(seconds=15)
    bench.engine._life.beat()
    recover(bench.engine._store, bench.engine._dispatch)  # as the keeper does every ten minutes
    bench.engine.work()


def test_clock_when_it_was_years_ahead_for_a_moment_then_what_verifies_ends_by_its_own_time(bench: Bench) -> None:
    bench.restarts(VERIFIES).start()
    bench.sees("helps", 5)
    bench.after("1m")
    bench.deliver(bench.fires(bench.leak()))
    jumps_and_returns(bench)
    bench.deliver(bench.fires(bench.leak("trainer-1")))
    bench.after("6m")
    assert [row["outcome"] for row in bench.runs()] == ["ineffective"] * 2


def test_clock_when_it_was_years_ahead_before_people_were_asked_then_the_question_expires(bench: Bench) -> None:
    bench.restarts(ASKS).start()
    bench.after("1m")
    jumps_and_returns(bench)
    bench.deliver(bench.fires(bench.leak()))
    bench.after("29m")
    assert bench.run()["phase"] == "asking"
    bench.after("2m")
    assert bench.ended() == ("expired", "approval_expired")


def test_clock_when_it_was_set_back_while_the_engine_was_down_then_old_words_are_not_taken_for_new(
    bench: Bench,
) -> None:
    bench.restarts("guard: {cooldown: 0s}\nhold: 50m").start()
    bench.after("1h")
    bench.deliver(bench.fires(bench.leak()))
    bench.after("40m")
    bench.stop()  # for hours, and the clock is set back meanwhile
    bench.clock.moment -= timedelta(minutes=5)
    bench.start()
    bench.after("20m")
    assert bench.acts() == []
    assert bench.run()["waits_for"] == ["turn:not_known_to_fire"]
    bench.deliver(bench.fires(bench.leak()))
    assert bench.acts() == ["docker.restart docker:gpu-07/trainer-0"]
