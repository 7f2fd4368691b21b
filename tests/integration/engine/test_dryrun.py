"""A dry run over a real store: the whole ladder, what each condition says, and the verdict the engine would give."""

from __future__ import annotations

import json
from typing import Any

import jsonschema

from remediator.actions import LOOKING
from remediator.app import fleets_of
from remediator.core.scenario import Failure
from remediator.engine.dryrun import Wiring, dry_run
from remediator.web.openapi import openapi_document

PLAYBOOK = """
playbook: climb
match: [alertname = Stuck]
per: [container_name]
ladder: {within: 6h}
approval: {ask: [oncall], expires: 4h}
guard: {cooldown: 0s, max_targets: {percent: 10, of: trainers, per: 1h}, require: [{name: up, query: up, equals: 1}]}
steps:
  - {rung: 1, name: restart, action: docker.restart, params: {container: "{{ labels.container_name }}"}}
  - rung: 2
    name: limit
    action: docker.limit
    params: {container: "{{ labels.container_name }}", cpus: 2}
    verify: [{name: slow, query: speed, below: 3, within: 5m}]
    undo: {after: 20m, require: [{name: cool, query: temp, below: 80}]}
  - {rung: 2, name: stop, action: docker.stop, params: {container: trainer-1}, approval: {ask: [ml-platform]}}
verify: [{name: helped, query: ratio, below: 0.5, settle: 1m, holds: 2m, within: 10m}]
escalate: {to: [oncall]}
"""
POLICY = "policy: site\nbreaker: {percent: 100, of: trainers, within: 10m, or_failures: 1}\n"


def begin(bench: Any) -> Any:
    bench.playbook(PLAYBOOK)
    bench.playbook(POLICY, "site.policy.yaml")
    bench.sees("up", 1.0)
    bench.sees("slow", 7.0)
    bench.sees("fleet trainers", 20.0)
    bench.start(fleets={"trainers": {"kind": "container", "query": "count(up)"}})
    bench.after("1m")
    return bench


def ask(bench: Any) -> dict[str, Any]:
    """What a dry run says of one alert; it fits the API's description."""
    app = bench.engine
    wiring = Wiring(
        playbooks=app._reloader.now.playbooks,
        actions=LOOKING,
        clients=bench.world.read_only(),
        conditions=app.conditions,
        fleets=fleets_of(app.conditions, app.settings),
        now=bench.clock.now(),
        read=app._store.read,
        pause=app._pause,
    )
    alert = bench.fires({"alertname": "Stuck", "container_name": "trainer-0"})
    answer = dry_run(json.dumps({"version": "4", "alerts": [alert]}).encode(), wiring)
    document = openapi_document()
    jsonschema.validate(answer, {"$ref": "#/components/schemas/DryRun", "components": document["components"]})
    [match] = answer["alerts"][0]["matches"]
    return dict(match)


def test_dry_run_when_nothing_was_done_then_it_shows_every_rung_and_begins_on_the_first(bench: Any) -> None:
    shown = ask(begin(bench))
    assert shown["ladder"] == {"within": "6h", "starts_at": 1, "rungs": [1, 2]}
    assert shown["verdict"]["word"] == "allow"
    assert [(step["rung"], step["name"], [one["ref"] for one in step["targets"]]) for step in shown["steps"]] == [
        (1, "restart", ["docker:gpu-07/trainer-0"]),
        (2, "limit", ["docker:gpu-07/trainer-0"]),
        (2, "stop", ["docker:gpu-07/trainer-1"]),
    ]
    assert [step["approval"] for step in shown["steps"]] == [None, None, {"ask": ["ml-platform"], "expires": "30m"}]
    assert (shown["approval"], shown["prometheus"]) == ({"ask": ["oncall"], "expires": "4h"}, "prometheus")
    assert shown["fleets"] == [{"name": "trainers", "size": 20, "problem": ""}]


def test_dry_run_when_conditions_are_asked_then_each_says_what_it_is_now(bench: Any) -> None:
    shown = ask(begin(bench))
    limit = shown["steps"][1]
    said = [*shown["require"], *limit["verify"], *limit["undo"]["require"], *shown["verify"]]
    assert [one["now"] for one in said] == [
        "up is 1, must be 1",
        "slow is 7, must be below 3",
        "cool has no value, must be below 80",
        "helped has no value, must be below 0.5",
    ]
    assert (limit["undo"]["when"], limit["undo"]["after"], limit["undo"]["at_most"]) == ("resolved", "20m", "12h")


def test_dry_run_when_a_run_acted_lately_then_it_begins_a_rung_higher_and_every_rule_speaks(bench: Any) -> None:
    begin(bench)
    bench.deliver(bench.fires({"alertname": "Stuck", "container_name": "trainer-0"}))
    bench.engine.approve(bench.run()["run_id"], "alice", "yes")
    bench.engine.work()
    bench.sees("helped", 0.1)
    bench.after("5m")
    bench.deliver(bench.resolved({"alertname": "Stuck", "container_name": "trainer-0"}))
    assert bench.ended() == ("succeeded", "none")
    shown = ask(bench)
    assert shown["ladder"]["starts_at"] == 2
    by_rule = {answer["rule"]: answer["detail"] for answer in shown["verdict"]["answers"]}
    assert by_rule["max_targets"].startswith("1 of 2 (10 % of trainers) targets in 1h, 2 with this plan's")
    assert bench.events("verdict_given")[-1].data["targets"][0]["ref"] == "docker:gpu-07/trainer-0"


def test_dry_run_when_the_act_would_trip_a_breaker_then_it_says_so_and_trips_nothing(bench: Any) -> None:
    begin(bench)
    bench.world.fail("docker.restart", Failure.PERMANENT)
    bench.deliver(bench.fires({"alertname": "Stuck", "container_name": "trainer-0"}))
    bench.engine.approve(bench.run()["run_id"], "alice", "yes")
    bench.engine.work()
    assert bench.ended()[0] == "failed"
    shown = ask(bench)
    assert (shown["verdict"]["word"], shown["verdict"]["trips"]) == ("wait", ["site"])
    assert bench.events("breaker_tripped") == []


def test_dry_run_when_prometheus_is_away_then_it_says_what_cannot_be_known(bench: Any) -> None:
    begin(bench)
    bench.world.prometheus_away(True)
    shown = ask(bench)
    reasons = {answer["rule"]: answer["reason"] for answer in shown["verdict"]["reasons"]}
    assert reasons == {"max_targets": "fleet_unknown", "breaker": "fleet_unknown", "require": "require_unknown"}
    assert shown["fleets"][0]["size"] == 0
    assert "cannot be reached" in shown["fleets"][0]["problem"]


def test_dry_run_when_the_running_engine_is_asked_then_it_counts_from_its_store(bench: Any) -> None:
    begin(bench)
    bench.deliver(bench.fires({"alertname": "Stuck", "container_name": "trainer-0"}))
    bench.engine.approve(bench.run()["run_id"], "alice", "yes")
    bench.engine.work()
    alert = bench.fires({"alertname": "Stuck", "container_name": "trainer-1"})

    answer = bench.engine.dry_run(json.dumps({"version": "4", "alerts": [alert]}).encode())
    (match,) = answer["alerts"][0]["matches"]
    by_rule = {one["rule"]: one["detail"] for one in match["verdict"]["answers"]}
    assert by_rule["max_concurrent_runs"] == "1 of 4 runs at work"
    assert match["guard"] == {
        "cooldown": "0s",
        "tell_after": "1h",
        "max_runs": {"count": 3, "per": "1d"},
        "max_targets": {"percent": 10, "of": "trainers", "per": "1h"},
    }
