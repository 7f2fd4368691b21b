"""What holds the engine back, with real parts: breakers, cooldowns, people's answers.

Each test has an engine of its own, since a breaker or a limit is about all of it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from acceptance.conftest import EngineFactory
from acceptance.delivery import delivery
from acceptance.engine import RESTART, Engine
from acceptance.faults import WITHIN_S, Boxes, leak
from acceptance.story import titles
from realparts.docker_engine import DockerEngine
from realparts.loopback import WebhookReceiver
from realparts.process import wait_until

pytestmark = pytest.mark.docker

FLEET = '[fleets.containers]\nkind = "container"\nsize = 10\n'

BREAKER = """
policy: site
max_concurrent_runs: 20
breaker: {percent: 20, of: containers, within: 10m, or_failures: 3}
"""

COOLDOWN_S = 20


def new_engine(
    engine_factory: EngineFactory, docker: DockerEngine, people: WebhookReceiver, playbooks: dict[str, str], **how: Any
) -> Engine:
    notify_url = people.url.replace("http://", "json://")
    return engine_factory(playbooks, docker_url=docker.url, notify_url=notify_url, **how)


def waits(engine: Engine) -> Counter[str]:
    """What open runs wait for."""
    return Counter("; ".join(run["waits_for"]) for run in engine.runs() if not run["outcome"])


def held_by_breaker(engine: Engine) -> int:
    """Open runs, where a breaker holds each of them; else -1."""
    found = waits(engine)
    return found.total() if all("breaker:breaker" in what for what in found) else -1


def restarts_of(boxes: Boxes, names: Sequence[str]) -> int:
    return sum(boxes.n_restarts(name) for name in names)


def test_breaker_when_too_much_is_changed_then_it_holds_all_over_a_restart_until_a_person_resets_it(
    engine_factory: EngineFactory, docker_engine: DockerEngine, boxes: Boxes, heard: WebhookReceiver
) -> None:
    names = [boxes.make(docker_engine) for _ in range(5)]
    playbooks = {"restart.yaml": RESTART, "site.policy.yaml": BREAKER}
    engine = new_engine(engine_factory, docker_engine, heard, playbooks, tables=FLEET)
    engine.start()
    for name in names:
        assert engine.deliver(delivery(leak(name))) == 200
    wait_until(lambda: held_by_breaker(engine) == 3, "two are done and three wait", WITHIN_S)
    assert restarts_of(boxes, names) == 2, "a fifth of ten"
    assert 'remediator_breaker_tripped{breaker="site"} 1.0' in engine.metrics()
    assert "site" in engine.command("breaker", "list").out
    wait_until(lambda: any("breaker" in title for title in titles(heard)), "people are told", WITHIN_S)

    engine.kill()
    engine.start()
    assert engine.deliver(delivery(*(leak(name) for name in names))) == 200
    time.sleep(2)
    assert restarts_of(boxes, names) == 2
    assert sum("breaker" in title for title in titles(heard)) == 1, "one message, not one for each alert"

    no_reason = engine.command("breaker", "reset", "site")
    assert no_reason.code == 2, no_reason
    reset = engine.command("breaker", "reset", "site", "--reason", "looked at them all")
    assert reset.code == 0, reset
    wait_until(lambda: held_by_breaker(engine) == 1, "it counts from zero: two more", WITHIN_S)
    assert restarts_of(boxes, names) == 4
    (event,) = engine.events("breaker_reset")
    assert (event["actor"].split()[0] != "", event["data"]["reason"]) == (True, "looked at them all")


def test_breaker_when_acts_fail_then_it_trips(
    engine_factory: EngineFactory, docker_engine: DockerEngine, boxes: Boxes, heard: WebhookReceiver
) -> None:
    playbook = RESTART.replace("action: docker.restart", "action: docker.signal").replace(
        ", stop_timeout: 1s}", ", signal: SIGUSR1}"
    )
    exited = [boxes.make(docker_engine, "exit 0") for _ in range(3)]
    sound = boxes.make(docker_engine)
    engine = new_engine(
        engine_factory, docker_engine, heard, {"a.yaml": playbook, "site.policy.yaml": BREAKER}, tables=FLEET
    )
    engine.start()
    for n, name in enumerate(exited):
        assert engine.deliver(delivery(leak(name))) == 200
        wait_until(lambda n=n: sum(bool(run["outcome"]) for run in engine.runs()) == n + 1, "it ended", WITHIN_S)
    assert {run["outcome"] for run in engine.runs()} == {"failed"}
    assert engine.deliver(delivery(leak(sound))) == 200
    wait_until(lambda: waits(engine) == Counter({"breaker:breaker": 1}), "the fourth waits", WITHIN_S)


def test_cooldown_when_the_engine_is_killed_then_it_is_kept(
    engine_factory: EngineFactory, docker_engine: DockerEngine, boxes: Boxes, heard: WebhookReceiver
) -> None:
    box = boxes.make(docker_engine)
    playbook = RESTART.replace("cooldown: 0s", f"cooldown: {COOLDOWN_S}s").replace(
        "per: [host, container_name]", "per: [host, container_name, fault]"
    )
    engine = new_engine(engine_factory, docker_engine, heard, {"restart.yaml": playbook})
    engine.start()
    assert engine.deliver(delivery(leak(box, fault="one"))) == 200
    wait_until(lambda: [run["outcome"] for run in engine.runs()] == ["succeeded"], "it is restarted", WITHIN_S)
    engine.kill()
    engine.start()
    assert engine.deliver(delivery(leak(box, fault="two"))) == 200
    wait_until(lambda: waits(engine) == Counter({"cooldown:cooldown": 1}), "the second waits", WITHIN_S)
    wait_until(lambda: [run["outcome"] for run in engine.runs()] == ["succeeded"] * 2, "and then comes", WITHIN_S)
    first, second = (
        datetime.fromisoformat(event["at"])
        for event in engine.events("attempt_finished")
        if event["data"]["action"] == "docker.restart"
    )
    assert second - first >= timedelta(seconds=COOLDOWN_S)


def test_approval_when_a_person_says_yes_over_a_kill_then_it_acts_once(
    engine_factory: EngineFactory, docker_engine: DockerEngine, boxes: Boxes, heard: WebhookReceiver
) -> None:
    yes, no, gone = (boxes.make(docker_engine) for _ in range(3))
    playbook = RESTART + "approval: {ask: [people], expires: 1h}\n"
    settings = 'public_url = "https://remediator.example"'
    engine = new_engine(engine_factory, docker_engine, heard, {"restart.yaml": playbook}, settings=settings)
    engine.start()
    for name in (yes, no, gone):
        assert engine.deliver(delivery(leak(name))) == 200
    wait_until(lambda: len(heard.received) == 3, "people are asked", WITHIN_S)
    ids = {run["per"]["container_name"]: run["run_id"] for run in engine.runs()}
    assert {run["phase"] for run in engine.runs()} == {"asking"}
    asked = next(body for got in heard.received if yes in (body := got.body.decode()))
    assert f"https://remediator.example/runs/{ids[yes]}/approval" in asked
    shown = engine.ask("GET", f"/runs/{ids[yes]}/approval", "")
    assert shown.status_code == 200
    assert yes not in shown.text, "nothing is shown without a sign-in"

    engine.kill()
    engine.start()
    assert engine.command("approve", ids[yes], "--reason", "look", role="view").code != 0
    docker_engine.remove(gone)
    boxes_before = boxes.n_restarts(gone)
    assert engine.command("approve", ids[yes], "--reason", "looks right").code == 0
    assert engine.command("deny", ids[no], "--reason", "we are in a demo").code == 0
    assert engine.command("approve", ids[gone], "--reason", "looks right").code == 0
    wait_until(lambda: all(run["outcome"] for run in engine.runs()), "all have ended", WITHIN_S)
    outcomes = {run["per"]["container_name"]: (run["outcome"], run["reason"]) for run in engine.runs()}
    assert outcomes == {
        yes: ("succeeded", "none"),
        no: ("refused", "denied"),
        gone: ("refused", "no_target"),
    }
    assert [boxes.n_restarts(name) for name in (yes, no)] == [1, 0]
    assert boxes.n_restarts(gone) == boxes_before
    assert engine.command("approve", ids[yes], "--reason", "again").code != 0
    answers = [(event["type"], event["data"]["reason"]) for event in engine.events() if "reason" in event["data"]]
    assert ("approval_given", "looks right") in answers
    assert ("approval_denied", "we are in a demo") in answers
    assert engine.command("audit", "verify").code == 0
