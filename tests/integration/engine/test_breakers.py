"""Breakers over time: what trips one, that it stays tripped, who is told, and what a reset lets go on."""

from __future__ import annotations

from typing import Any

import pytest

from remediator.core.scenario import Failure
from remediator.core.units import parse_duration
from remediator.errors import RequestError

PLAYBOOK = """
playbook: restart
match: [alertname = Stuck]
per: [container_name]
guard: {cooldown: 0s}
MORE
steps: [{name: restart, action: docker.restart, params: {container: "{{ labels.container_name }}"}, RETRY}]
escalate: {to: [oncall]}
"""
NO_RETRY = "retry: {attempts: 1}"
SHARE = "breaker: {percent: 20, of: trainers, within: 10m}"
FAILURES = "breaker: {percent: 100, of: trainers, within: 10m, or_failures: 2}"
FLEET = {"trainers": {"kind": "container", "size": 10}}
TRIPPED = ["breaker:breaker"]


def begin(bench: Any, breaker: str, *, more: str = "", n: int = 8, fleets: Any = None) -> Any:
    bench.playbook(PLAYBOOK.replace("MORE", more).replace("RETRY", NO_RETRY))
    bench.playbook(f"policy: site\n{breaker}\nmax_concurrent_runs: 100\n", "site.policy.yaml")
    for number in range(n):
        bench.world.add_container("gpu-07", f"c{number}")
    bench.fleets = FLEET if fleets is None else fleets
    bench.start(fleets=bench.fleets)
    bench.after("1m")
    return bench


def stuck(bench: Any, number: int) -> dict[str, Any]:
    alert: dict[str, Any] = bench.fires({"alertname": "Stuck", "container_name": f"c{number}"})
    return alert


def waiting(bench: Any) -> list[list[str]]:
    """What each run that has not ended waits for."""
    return [row["waits_for"] for row in bench.runs() if row["phase"] not in ("ended", "closed")]


def again_later(bench: Any, away: str) -> None:
    """A restart of the engine, with the same settings."""
    bench.stop()
    bench.clock.moment += parse_duration(away)
    bench.start(fleets=bench.fleets)
    bench.engine.work()


def gauge(bench: Any) -> float:
    value: float = bench.engine.metrics.registry.get_sample_value("remediator_breaker_tripped", {"breaker": "site"})
    return value


def test_breaker_when_the_next_act_would_change_too_much_then_it_trips_and_one_message_says_so(bench: Any) -> None:
    begin(bench, SHARE)
    assert gauge(bench) == 0
    bench.deliver(*(stuck(bench, number) for number in range(8)))
    bench.after("1s")
    assert len(bench.acts()) == 2
    assert waiting(bench) == [TRIPPED] * 6
    assert len(bench.events("breaker_tripped")) == 1
    assert bench.events("breaker_tripped")[0].data["breaker"] == "site"
    assert len(bench.told()) == 1
    assert "breaker" in bench.told()[0]
    assert gauge(bench) == 1
    [shown] = bench.engine.status()["tripped_breakers"]
    assert (shown["name"], shown["why"]) == ("site", bench.events("breaker_tripped")[0].data["detail"])


def test_breaker_when_the_window_has_passed_and_the_engine_restarted_then_it_is_still_tripped(bench: Any) -> None:
    begin(bench, SHARE)
    bench.deliver(*(stuck(bench, number) for number in range(3)))
    assert len(bench.acts()) == 2
    again_later(bench, "20m")
    bench.deliver(stuck(bench, 2), stuck(bench, 3))
    bench.after("30m")
    assert len(bench.acts()) == 2
    assert waiting(bench) == [TRIPPED] * 2
    assert gauge(bench) == 1
    assert [line for line in bench.told() if "breaker" in line] == bench.told()[:1]


def test_breaker_when_a_person_resets_it_then_what_waits_is_judged_anew_from_zero(bench: Any) -> None:
    begin(bench, SHARE)
    bench.deliver(*(stuck(bench, number) for number in range(5)))
    bench.after("1m")
    answer = bench.engine.reset_breaker("site", "alice", "a bad rollout, it is over")
    bench.engine.work()
    assert answer == {"breaker": "site", "reset_by": "alice", "woken": 3}
    assert len(bench.acts()) == 4
    assert waiting(bench) == [TRIPPED]
    [event] = bench.events("breaker_reset")
    assert (event.actor, event.data["reason"]) == ("alice", "a bad rollout, it is over")
    assert len(bench.events("breaker_tripped")) == 2


def test_breaker_when_it_was_reset_then_the_oldest_plan_goes_first(bench: Any) -> None:
    begin(bench, SHARE)
    for number in range(6):
        bench.deliver(stuck(bench, number))
        bench.after("1s")
    bench.engine.reset_breaker("site", "alice", "known")
    bench.engine.work()
    assert bench.acts() == [f"docker.restart docker:gpu-07/c{number}" for number in range(4)]


def test_breaker_when_the_changes_have_left_the_window_then_it_does_not_trip(bench: Any) -> None:
    begin(bench, SHARE)
    for number in range(6):
        bench.deliver(stuck(bench, number))
        bench.after("5m")
    assert len(bench.acts()) == 6
    assert bench.events("breaker_tripped") == []


def test_breaker_when_so_many_runs_failed_then_it_trips_for_the_next(bench: Any) -> None:
    begin(bench, FAILURES)
    bench.world.fail("docker.restart", Failure.PERMANENT, times=2)
    for number in range(2):
        bench.deliver(stuck(bench, number))
    assert bench.events("breaker_tripped") == []
    bench.deliver(stuck(bench, 2), stuck(bench, 3))
    assert len(bench.acts()) == 2
    assert waiting(bench) == [TRIPPED] * 2
    bench.after("1s")
    bench.engine.reset_breaker("site", "alice", "mended")
    bench.engine.work()
    assert len(bench.acts()) == 4


def test_breaker_when_runs_did_not_help_then_they_count_as_failures(bench: Any) -> None:
    begin(bench, FAILURES, more="verify: [{alert: resolved, within: 1m}]")
    bench.deliver(stuck(bench, 0), stuck(bench, 1))
    bench.after("2m")
    assert [row["outcome"] for row in bench.runs()] == ["ineffective"] * 2
    bench.deliver(stuck(bench, 2))
    assert waiting(bench) == [TRIPPED]


def test_breaker_when_only_messages_are_sent_then_it_holds_nothing(bench: Any) -> None:
    begin(bench, SHARE)
    steps = "steps: [{action: notify.send, params: {to: [ml-platform], title: odd}}]"
    bench.playbook(f"playbook: tell\nmatch: [alertname = Odd]\n{steps}\n", "tell.yaml")
    bench.reload()
    bench.deliver(*(stuck(bench, number) for number in range(3)))
    bench.after("1m")
    bench.deliver(bench.fires({"alertname": "Odd"}))
    assert "ml-platform: odd" in bench.told()


def test_breaker_when_a_plan_would_only_ask_then_it_trips_after_the_yes(bench: Any) -> None:
    begin(bench, SHARE, more="approval: {ask: [ml-platform]}")
    for number in range(3):
        bench.deliver(stuck(bench, number))
    runs = bench.runs()
    assert {row["phase"] for row in runs} == {"asking"}
    assert bench.events("breaker_tripped") == []
    for row in reversed(runs):
        bench.engine.approve(row["run_id"], "alice", "look at it")
        bench.engine.work()
    assert len(bench.acts()) == 2
    assert waiting(bench) == [TRIPPED]
    assert len(bench.events("breaker_tripped")) == 1


def test_breaker_when_messages_cannot_be_sent_then_that_stops_no_repair(bench: Any) -> None:
    begin(bench, FAILURES)
    steps = "steps: [{action: notify.send, params: {to: [ml-platform], title: odd}, on_failure: stop}]"
    bench.playbook(f"playbook: tell\nmatch: [alertname = Odd]\n{steps}\n", "tell.yaml")
    bench.reload()
    bench.world.fail("notify.send", Failure.PERMANENT, times=9)
    for number in range(3):
        bench.deliver(bench.fires({"alertname": "Odd", "number": str(number)}))
    assert [row["outcome"] for row in bench.runs()] == ["failed"] * 3
    bench.deliver(stuck(bench, 0))
    assert len(bench.acts()) == 1


def test_breaker_when_a_playbook_observes_then_it_trips_nothing_and_counts_in_nothing(bench: Any) -> None:
    begin(bench, SHARE)
    bench.playbook(
        PLAYBOOK.replace("restart\n", "watch\n", 1)
        .replace("Stuck", "Odd")
        .replace("MORE", "mode: observe")
        .replace("RETRY", NO_RETRY),
        "watch.yaml",
    )
    bench.reload()
    bench.deliver(*(bench.fires({"alertname": "Odd", "container_name": f"c{number}"}) for number in range(5)))
    assert {row["outcome"] for row in bench.runs()} == {"observed"}
    bench.after("1m")
    bench.deliver(stuck(bench, 5), stuck(bench, 6))
    assert len(bench.acts()) == 2
    bench.deliver(bench.fires({"alertname": "Odd", "container_name": "c7"}))
    assert bench.events("breaker_tripped") == []


def test_breaker_when_the_size_of_its_fleet_is_asked_then_prometheus_says_it(bench: Any) -> None:
    bench.sees("fleet trainers", 15.0)
    begin(bench, SHARE, fleets={"trainers": {"kind": "container", "query": "count(trainer_up)"}})
    bench.deliver(*(stuck(bench, number) for number in range(8)))
    assert len(bench.acts()) == 3


@pytest.mark.parametrize("values", [(), (1.0, 2.0), (0.0,), (float("nan"),), (float("inf"),)])
def test_fleet_when_prometheus_does_not_give_its_size_then_what_asks_for_a_share_is_refused(
    bench: Any, values: tuple[float, ...]
) -> None:
    bench.sees("fleet trainers", *values)
    begin(bench, SHARE, fleets={"trainers": {"kind": "container", "query": "count(trainer_up)"}})
    bench.deliver(stuck(bench, 0))
    assert bench.ended() == ("refused", "fleet_unknown")
    assert bench.acts() == []


def test_fleet_when_its_size_was_asked_a_moment_ago_then_an_outage_does_not_matter_yet(bench: Any) -> None:
    bench.sees("fleet trainers", 10.0)
    begin(bench, SHARE, fleets={"trainers": {"kind": "container", "query": "count(trainer_up)"}})
    bench.deliver(stuck(bench, 0))
    bench.world.prometheus_away(True)
    bench.after("10s")
    bench.deliver(stuck(bench, 1))
    assert len(bench.acts()) == 2
    bench.after("30s")
    bench.deliver(stuck(bench, 2))
    assert bench.newest()["reason"] == "fleet_unknown"


# -- what people ask


def test_reset_when_it_is_not_tripped_or_there_is_none_then_it_is_refused(bench: Any) -> None:
    begin(bench, SHARE)
    for name, status in (("site", 409), ("nowhere", 404)):
        with pytest.raises(RequestError) as caught:
            bench.engine.reset_breaker(name, "alice", "why not")
        assert caught.value.http_status == status


def test_list_when_it_is_asked_then_it_says_what_is_counted_and_keeps_breakers_of_older_policies(bench: Any) -> None:
    begin(bench, FAILURES.replace("100", "20"))
    bench.deliver(stuck(bench, 0))
    [shown] = bench.engine.breakers()
    assert (shown["tripped"], shown["n_changed"], shown["n_failures"], shown["in_force"]) == (False, 1, 0, True)
    assert shown["limit"] == "20 % of trainers changed, or 2 runs without a fix, within 10m"
    bench.deliver(stuck(bench, 1), stuck(bench, 2))
    bench.playbook("policy: other\n", "site.policy.yaml")
    bench.reload()
    [shown] = bench.engine.breakers()
    assert (shown["name"], shown["tripped"], shown["in_force"]) == ("site", True, False)
    assert bench.engine.status()["tripped_breakers"] == []
    assert len(bench.acts()) == 3
