"""Alerts that flap, and thousands at once, through a real Alertmanager: what acts is one, or as many as are allowed."""

from __future__ import annotations

import os
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import requests

from acceptance.conftest import EngineFactory
from acceptance.engine import RESTART, Engine
from acceptance.faults import WITHIN_S, Boxes, leak
from acceptance.story import titles
from conftest_realparts import need_alertmanager
from realparts.alertmanager import VERSIONS, Alertmanager, webhook_config
from realparts.docker_engine import DockerEngine
from realparts.loopback import WebhookReceiver
from realparts.process import wait_until

pytestmark = [pytest.mark.docker, pytest.mark.alertmanager]

THREE_AN_HOUR = """
policy: site
max_concurrent_runs: 20
max_disruptive_acts: {count: 3, per: 1h}
"""

N_STORM = int(os.environ.get("REMEDIATOR_TEST_STORM_OF_THREE", "1000"))
"""``make soak`` takes 5000."""

N_FLIPS = 20


def start_alertmanager(folder: Path, engine: Engine) -> Alertmanager:
    route = {"group_by": ["team"], "group_wait": "100ms", "group_interval": "1s", "repeat_interval": "1h"}
    config = webhook_config(engine.webhook, token_file=engine.token_file("deliver"), route=route)
    alertmanager = Alertmanager(folder / "alertmanager", config, version=VERSIONS[-1])
    alertmanager.start()
    return alertmanager


def test_flapping_when_an_alert_comes_and_goes_then_one_run_acts_and_people_hear_of_it_once(
    engine_factory: EngineFactory,
    docker_engine: DockerEngine,
    boxes: Boxes,
    heard: WebhookReceiver,
    tmp_path: Path,
) -> None:
    need_alertmanager(VERSIONS[-1])
    box = boxes.make(docker_engine)
    playbook = RESTART.replace("cooldown: 0s", "cooldown: 30m")
    engine = engine_factory(
        {"restart.yaml": playbook}, docker_url=docker_engine.url, notify_url=heard.url.replace("http://", "json://")
    )
    engine.start()
    alertmanager = start_alertmanager(tmp_path, engine)
    labels = {**leak(box), "team": box}
    try:
        for _ in range(N_FLIPS):
            alertmanager.push(labels)
            time.sleep(1.6)
            alertmanager.resolve(labels)
            time.sleep(1.4)
        wait_until(lambda: all(run["outcome"] for run in engine.runs()), "all runs have ended", WITHIN_S)
    finally:
        alertmanager.kill()
    outcomes = Counter(run["outcome"] for run in engine.runs())
    assert outcomes["succeeded"] == 1
    assert outcomes.keys() <= {"succeeded", "cancelled", "refused"}
    assert outcomes.total() >= 5, f"it flapped: {outcomes}"
    assert boxes.n_restarts(box) == 1
    assert [title.split(":")[0] for title in titles(heard)] == ["done"]


@pytest.mark.timeout(400)
def test_storm_when_thousands_fire_and_three_are_allowed_then_three_act(
    engine_factory: EngineFactory,
    docker_engine: DockerEngine,
    boxes: Boxes,
    heard: WebhookReceiver,
    tmp_path: Path,
) -> None:
    need_alertmanager(VERSIONS[-1])
    names = [boxes.make(docker_engine) for _ in range(8)]
    playbook = RESTART.replace("per: [host, container_name]", "per: [host, container_name, fault]")
    playbooks = {"restart.yaml": playbook, "site.policy.yaml": THREE_AN_HOUR}
    engine = engine_factory(playbooks, docker_url=docker_engine.url, notify_url=heard.url.replace("http://", "json://"))
    engine.start()
    alertmanager = start_alertmanager(tmp_path, engine)
    now = datetime.now(UTC)
    alerts = [
        {
            "labels": {**leak(names[n % len(names)], fault=str(n)), "team": "all"},
            "endsAt": (now + timedelta(days=1)).isoformat(),
        }
        for n in range(N_STORM)
    ]
    try:
        requests.post(f"{alertmanager.url}/api/v2/alerts", json=alerts, timeout=60).raise_for_status()
        wait_until(
            lambda: (
                engine.query("SELECT count(*) FROM run WHERE phase = 'waiting' AND waits_for <> '[]'")[0][0]
                == N_STORM - 3
            ),
            "all but three wait",
            300,
        )
    finally:
        alertmanager.kill()
    assert sum(boxes.n_restarts(name) for name in names) == 3
    assert engine.query("SELECT outcome, count(*) FROM run WHERE outcome <> '' GROUP BY outcome") == [("succeeded", 3)]
    started = time.monotonic()
    assert engine.command("status").code == 0, "it can be asked meanwhile"
    print(f"status took {time.monotonic() - started:.1f} s")
    assert engine.command("audit", "verify").code == 0
