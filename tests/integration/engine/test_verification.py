"""Whether it helped: conditions asked of a Prometheus over time, for runs and for steps, on a moved clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Bench

MEMORY = """
verify:
  - name: memory_ratio
    query: 'max(DCGM_FI_DEV_FB_USED{container_name="{{ labels.container_name }}"})'
    below: 0.8
    settle: 3m
    holds: 5m
    within: 20m
"""

CHECKPOINT = """
steps:
  - name: checkpoint
    action: docker.signal
    params: {container: "{{ labels.container_name }}", signal: SIGUSR1}
    verify:
      - {name: age, query: 'time() - checkpoint{name="{{ labels.container_name }}"}', below: 120, within: 10m}
  - {name: restart, action: docker.restart, params: {container: "{{ labels.container_name }}"}}
escalate: {to: [oncall]}
"""

SIGNALLED, RESTARTED = "docker.signal docker:gpu-07/trainer-0", "docker.restart docker:gpu-07/trainer-0"


def ended_at_minute(bench: Bench) -> float:
    (end,) = bench.events("run_finished")
    (begun,) = bench.events("plan_made")
    return (end.at - begun.at).total_seconds() / 60


def test_verification_when_the_condition_holds_long_enough_then_it_is_confirmed_at_that_moment(bench: Bench) -> None:
    bench.restarts(MEMORY).start()
    bench.sees("memory_ratio", 1.0)
    bench.deliver(bench.fires(bench.leak()))
    bench.after("4m")
    bench.sees("memory_ratio", 0.5)
    bench.after("1h")
    run = bench.run()
    assert (run["outcome"], run["reason"]) == ("succeeded", "none")
    assert (
        bench.events("run_finished")[0].data["detail"]
        == "all steps were done and memory_ratio is 0.5, must be below 0.8"
    )
    assert ended_at_minute(bench) == pytest.approx(9, abs=0.3), "seen good at 4m or the look after it, for 5m"
    seen = [one.data["checks"][0]["seen"] for one in bench.events("verification_looked")]
    assert seen == ["not_met", "met", "met"], "a look that says nothing new is not kept"


def test_verification_when_it_is_never_so_then_it_did_not_help_and_people_read_the_number(bench: Bench) -> None:
    bench.restarts(MEMORY).start()
    bench.sees("memory_ratio", 0.97)
    bench.deliver(bench.fires(bench.leak()))
    bench.after("21m")
    assert bench.ended() == ("ineffective", "did_not_help")
    assert ended_at_minute(bench) == pytest.approx(20, abs=0.01)
    assert bench.acts() == [RESTARTED]
    (message,) = [write for write in bench.world.writes if write.target == "oncall"]
    assert "memory_ratio is 0.97, must be below 0.8" in message.args["body"]


@pytest.mark.parametrize("values", [(), (0.5, 0.5), (float("nan"),)], ids=["no series", "several", "NaN"])
def test_verification_when_there_is_no_one_value_then_nobody_knows(bench: Bench, values: tuple[float, ...]) -> None:
    bench.restarts(MEMORY).start()
    bench.sees("memory_ratio", *values)
    bench.deliver(bench.fires(bench.leak()))
    bench.after("21m")
    assert bench.ended() == ("unverified", "no_value")
    assert any(line.startswith("oncall: ") for line in bench.told())


def test_verification_when_the_alert_is_resolved_and_the_number_is_bad_then_resolved_is_not_believed(
    bench: Bench,
) -> None:
    bench.restarts(MEMORY).start()
    bench.sees("memory_ratio", 0.97)
    bench.deliver(bench.fires(bench.leak()))
    bench.after("2m")
    bench.deliver(bench.resolved(bench.leak()))
    bench.after("21m")
    assert bench.ended() == ("ineffective", "did_not_help")


def test_verification_when_the_value_is_lost_at_last_then_what_was_seen_before_does_not_count(bench: Bench) -> None:
    bench.restarts(MEMORY).start()
    bench.sees("memory_ratio", 0.97)
    bench.deliver(bench.fires(bench.leak()))
    bench.after("19m")
    bench.sees("memory_ratio")
    bench.after("2m")
    assert bench.ended() == ("unverified", "no_value")


def test_verification_when_it_is_met_too_late_to_hold_then_it_did_not_help(bench: Bench) -> None:
    bench.restarts(MEMORY).start()
    bench.sees("memory_ratio", 0.97)
    bench.deliver(bench.fires(bench.leak()))
    bench.after("16m")
    bench.sees("memory_ratio", 0.5)
    bench.after("5m")
    assert bench.ended() == ("ineffective", "did_not_help")


def test_verification_when_it_is_broken_off_then_it_has_to_hold_from_the_beginning(bench: Bench) -> None:
    bench.restarts(MEMORY).start()
    bench.sees("memory_ratio", 0.5)
    bench.deliver(bench.fires(bench.leak()))
    bench.after("7m")
    bench.sees("memory_ratio", 0.9)
    bench.after("1m")
    bench.sees("memory_ratio", 0.5)
    bench.after("4m")
    assert bench.run()["outcome"] == ""
    bench.after("2m")
    assert bench.ended() == ("succeeded", "none")


def test_verification_when_prometheus_is_away_then_it_is_asked_again_inside_within(bench: Bench) -> None:
    bench.restarts(MEMORY).start()
    bench.sees("memory_ratio", 0.5)
    bench.world.prometheus_away(True)
    bench.deliver(bench.fires(bench.leak()))
    bench.after("10m")
    assert bench.run()["outcome"] == ""
    bench.world.prometheus_away(False)
    bench.after("6m")
    assert bench.ended() == ("succeeded", "none")


def test_verification_when_prometheus_stays_away_then_nobody_knows(bench: Bench) -> None:
    bench.restarts(MEMORY).start()
    bench.world.prometheus_away(True)
    bench.deliver(bench.fires(bench.leak()))
    bench.after("21m")
    assert bench.ended() == ("unverified", "no_value")


def test_verification_when_the_engine_was_away_then_that_time_does_not_count(bench: Bench) -> None:
    bench.restarts(MEMORY).start()
    bench.sees("memory_ratio", 0.97)
    bench.deliver(bench.fires(bench.leak()))
    bench.after("10m")
    bench.away("1h")
    bench.after("9m")
    assert bench.run()["outcome"] == "", "19 minutes of its 20 have counted"
    bench.after("2m")
    assert bench.ended() == ("ineffective", "did_not_help")


def test_verification_when_the_target_is_verified_then_it_stays_reserved(bench: Bench) -> None:
    bench.restarts(MEMORY).start()
    bench.sees("memory_ratio", 0.97)
    bench.deliver(bench.fires(bench.leak()))
    bench.after("19m")
    assert bench.reserved() == ["docker:gpu-07/trainer-0"]
    bench.after("2m")
    assert bench.reserved() == []


def test_verification_when_there_are_a_number_and_the_alert_then_both_must_be_good(bench: Bench) -> None:
    both = MEMORY + "  - {alert: resolved, within: 30m}\n"
    bench.restarts(both).start()
    bench.sees("memory_ratio", 0.5)
    bench.deliver(bench.fires(bench.leak()))
    bench.after("25m")
    assert bench.run()["outcome"] == ""
    bench.deliver(bench.resolved(bench.leak()))
    assert bench.ended() == ("succeeded", "none")


def test_step_verification_when_it_comes_then_the_next_step_follows(bench: Bench) -> None:
    bench.restarts(steps=CHECKPOINT).start()
    bench.sees("age", 5000)
    bench.deliver(bench.fires(bench.leak()))
    bench.after("3m")
    assert bench.acts() == [SIGNALLED]
    bench.sees("age", 4)
    bench.after("1m")
    assert bench.acts() == [SIGNALLED, RESTARTED]
    assert bench.ended() == ("succeeded", "none")


@pytest.mark.parametrize(
    ("values", "ending"),
    [((5000,), ("failed", "not_verified")), ((), ("unverified", "no_value"))],
    ids=["false", "none"],
)
def test_step_verification_when_it_does_not_come_then_the_run_stops_there(
    bench: Bench, values: Any, ending: tuple[str, str]
) -> None:
    bench.restarts(steps=CHECKPOINT).start()
    bench.sees("age", *values)
    bench.deliver(bench.fires(bench.leak()))
    bench.after("11m")
    assert bench.acts() == [SIGNALLED]
    assert bench.ended() == ending
    assert any(line.startswith("oncall: ") for line in bench.told())


def test_step_verification_when_the_engine_is_killed_while_it_looks_then_it_goes_on(bench: Bench) -> None:
    bench.restarts(steps=CHECKPOINT).start()
    bench.sees("age", 5000)
    bench.deliver(bench.fires(bench.leak()))
    bench.after("3m")
    bench.away("2m")
    bench.sees("age", 4)
    bench.after("1m")
    assert bench.acts() == [SIGNALLED, RESTARTED]


def test_readiness_when_prometheus_is_away_then_it_says_so_and_the_engine_stays_ready(bench: Bench) -> None:
    bench.restarts(MEMORY).start()
    bench.sees("memory_ratio", 0.9)
    assert bench.engine.readiness().checks["prometheus"] == "ok"
    bench.world.prometheus_away(True)
    bench.deliver(bench.fires(bench.leak()))
    bench.after("4m")
    readiness = bench.engine.readiness()
    assert readiness.checks["prometheus"].startswith("no answer from prometheus: ")
    bench.world.prometheus_away(False)
    bench.after("1m")
    assert bench.engine.readiness().checks["prometheus"] == "ok"
