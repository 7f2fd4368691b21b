"""Storms: ten thousand alerts in one body, and as many groups as come one after the other.

Every alert is stored and handled, none is lost and none is handled twice; what limits acts holds; the engine stays
small and goes on answering. ``REMEDIATOR_TEST_STORM`` sets the number of groups: 10000 for the whole storm, which
takes minutes.
"""

from __future__ import annotations

import http.client
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from acceptance.conftest import EngineFactory
from acceptance.delivery import delivery
from acceptance.engine import ATTEMPT_TIMEOUT, Engine
from acceptance.storm import restarts
from acceptance.story import DockerStarts
from conftest_docker import Trainer
from realparts.docker_engine import DockerEngine
from realparts.process import wait_until

N_IN_ONE_BODY = 10_000
N_GROUPS = int(os.environ.get("REMEDIATOR_TEST_STORM", "400"))
N_SENDERS = 4
N_PLANS = 60
"""Of the second playbook: each alert is a subject of its own there, and all but one per container must wait."""

MAX_CONCURRENT_RUNS = 2
MEMORY_LIMIT_MB = 300
"""Under 200 is what is aimed at; between the two stands what the allocator keeps on a busy machine."""

HANDLED_WITHIN_S = 180.0 + N_GROUPS / 10
ANSWERED_WITHIN_S = 20.0
LOOK_EVERY_S = 3.0

RESTART = f"""
  - name: restart
    action: docker.restart
    params: {{container: "{{{{ labels.container_name }}}}", stop_timeout: 1s}}
    timeout: {ATTEMPT_TIMEOUT}
"""

PLAYBOOKS = f"""
playbook: by-container
match: [alertname = Leak, kind = many]
per: [host, container_name]
guard: {{cooldown: 1h}}
steps:{RESTART}
---
playbook: by-alert
match: [alertname = Leak, kind = each]
guard: {{cooldown: 1h}}
steps:{RESTART}
---
policy: site
max_concurrent_runs: {MAX_CONCURRENT_RUNS}
"""

Labels = dict[str, str]


def storm_of(n: int, boxes: Sequence[str]) -> list[Labels]:
    """So many label sets, no two alike: most are nobody's, some are leaks of the same few containers."""
    found = []
    for number in range(n):
        box = boxes[number % len(boxes)]
        labels = {"n": str(number), "hostname": "gpu-07", "severity": "critical", "job": "dcgm", "gpu": str(number % 8)}
        if number < N_PLANS:
            labels |= {"alertname": "Leak", "kind": "each", "container_name": box}
        elif number < 2 * N_PLANS:
            labels |= {"alertname": "Leak", "kind": "many", "container_name": box}
        else:
            labels |= {"alertname": "Noise"}
        found.append(labels)
    return found[::2] + found[1::2]


def memory_mb(engine: Engine) -> float:
    """The most that it ever held."""
    status = Path(f"/proc/{engine.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def n_unhandled(engine: Engine) -> int:
    return int(engine.query("SELECT count(*) FROM delivery WHERE handled_at IS NULL")[0][0])


class _Asking:
    """People who look while it storms, one call after the other."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._is_over = threading.Event()
        self.seconds: dict[str, list[float]] = {}
        self.refused: list[str] = []

    def _time(self, name: str, ask: Callable[[], bool]) -> None:
        started = time.monotonic()
        is_fine = ask()
        self.seconds.setdefault(name, []).append(time.monotonic() - started)
        if not is_fine:
            self.refused.append(name)

    def _look(self) -> None:
        engine = self._engine
        calls: dict[str, Callable[[], bool]] = {
            "/healthz": lambda: engine.ask("GET", "/healthz", "").status_code == 200,
            "/metrics": lambda: engine.ask("GET", "/metrics").status_code == 200,
            "status": lambda: engine.command("status").code == 0,
            "audit list": lambda: engine.command("audit", "list", "--limit", "5").code == 0,
            "a delivery": lambda: engine.deliver(delivery({"alertname": "Beside"})) == 200,
        }
        while True:
            for name, ask in calls.items():
                self._time(name, ask)
            if self._is_over.wait(LOOK_EVERY_S):
                return

    @contextmanager
    def beside(self) -> Iterator[None]:
        thread = threading.Thread(target=self._look)
        thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            thread.join()


def assert_every_alert_was_handled_once(engine: Engine, storm: Sequence[Labels]) -> None:
    opened = engine.query("SELECT episode_id, body FROM audit WHERE type = 'episode_opened'")
    labels_of = {episode_id: json.loads(body)["data"]["labels"] for episode_id, body in opened}
    number_of = {episode_id: labels["n"] for episode_id, labels in labels_of.items() if "n" in labels}

    def numbers(rows: Sequence[tuple[str]]) -> Counter[str]:
        """How often each alert of the storm is among these episodes; others were delivered beside it."""
        return Counter(number_of[episode_id] for (episode_id,) in rows if episode_id in number_of)

    unmatched = numbers(engine.query("SELECT episode_id FROM audit WHERE type = 'alert_unmatched'"))
    joined = numbers(engine.query("SELECT episode_id FROM subject_episode"))
    assert Counter(number_of.values()) == Counter(labels["n"] for labels in storm)
    assert len(opened) == len(labels_of)
    assert unmatched == Counter(labels["n"] for labels in storm if labels["alertname"] == "Noise")
    assert joined == Counter(labels["n"] for labels in storm if labels["alertname"] == "Leak")


def assert_limits_held(engine: Engine, boxes: Sequence[str], starts: DockerStarts, began: float) -> None:
    """One act per container, whichever playbook came first: the cooldown holds all others."""
    assert {box: len(starts.of(box, after=began)) for box in boxes} == dict.fromkeys(boxes, 1)
    assert Counter(attempt.container for attempt in restarts(engine)) == Counter(boxes)
    under_way, most = 0, 0
    for event in engine.events():
        under_way += {"attempt_started": 1, "attempt_finished": -1}.get(event["type"], 0)
        most = max(most, under_way)
    assert 1 <= most <= MAX_CONCURRENT_RUNS


def finish(
    engine: Engine, storm: Sequence[Labels], boxes: Sequence[str], starts: DockerStarts, began: float, asking: _Asking
) -> None:
    """What must be so after any storm."""
    settled = "SELECT count(*) FROM run WHERE ended_at IS NOT NULL OR waits_for LIKE '%cooldown%'"
    wait_until(
        lambda: engine.query(settled) == [(N_PLANS + len(boxes),)],
        "every run has ended, or waits for a cooldown",
        HANDLED_WITHIN_S,
    )
    slowest = {name: f"{max(seconds):.1f} s of {len(seconds)}" for name, seconds in asking.seconds.items()}
    print(f"{len(storm)} alerts handled in {time.time() - began:.0f} s, {memory_mb(engine):.0f} MB; slowest: {slowest}")
    assert memory_mb(engine) < MEMORY_LIMIT_MB
    assert asking.refused == []
    assert set(asking.seconds) >= {"/healthz", "/metrics", "status", "audit list", "a delivery"}
    assert max(asking.seconds["/healthz"] + asking.seconds["a delivery"]) < ANSWERED_WITHIN_S
    assert_every_alert_was_handled_once(engine, storm)
    assert_limits_held(engine, boxes, starts, began)
    verified = engine.command("audit", "verify")
    assert verified.code == 0, verified.err


@pytest.mark.docker
def test_storm_when_ten_thousand_alerts_come_in_one_body_then_each_is_handled_once_and_limits_hold(
    engine_factory: EngineFactory, docker_engine: DockerEngine, docker_starts: DockerStarts, trainer: Trainer
) -> None:
    boxes = [trainer() for _ in range(3)]
    engine = engine_factory({"storm.yaml": PLAYBOOKS}, docker_url=docker_engine.url)
    engine.start()
    storm = storm_of(N_IN_ONE_BODY, boxes)
    body = delivery(*storm)
    began = time.time()
    asking = _Asking(engine)
    with asking.beside():
        assert engine.deliver(body, timeout_s=ANSWERED_WITHIN_S) == 200
        wait_until(lambda: n_unhandled(engine) == 0, "all is handled", HANDLED_WITHIN_S)
    assert engine.deliver(body) == 200, "as Alertmanager repeats it"
    wait_until(lambda: n_unhandled(engine) == 0, "the repeat is handled", HANDLED_WITHIN_S)
    finish(engine, storm, boxes, docker_starts, began, asking)


@pytest.mark.docker
@pytest.mark.timeout(300 + N_GROUPS)
def test_storm_when_groups_come_without_a_pause_then_each_is_handled_once_and_limits_hold(
    engine_factory: EngineFactory, docker_engine: DockerEngine, docker_starts: DockerStarts, trainer: Trainer
) -> None:
    boxes = [trainer() for _ in range(3)]
    engine = engine_factory({"storm.yaml": PLAYBOOKS}, docker_url=docker_engine.url)
    engine.start()
    storm = storm_of(N_GROUPS, boxes)
    bodies = [delivery(labels) for labels in storm]
    bodies += [json.dumps(json.loads(body) | {"externalURL": "http://peer"}).encode() for body in bodies[::5]]
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {engine.tokens['deliver']}"}

    def post(share: Sequence[bytes]) -> Counter[int]:
        """One Alertmanager: one connection, and an answer before the next body."""
        connection = http.client.HTTPConnection("127.0.0.1", engine.port, timeout=60)
        answers: Counter[int] = Counter()
        for body in share:
            connection.request("POST", "/api/v1/alertmanager", body, headers)
            answer = connection.getresponse()
            answer.read()
            answers[answer.status] += 1
        connection.close()
        return answers

    began = time.time()
    asking = _Asking(engine)
    with asking.beside():
        with ThreadPoolExecutor(N_SENDERS) as senders:
            answers = sum(senders.map(post, [bodies[start::N_SENDERS] for start in range(N_SENDERS)]), Counter[int]())
        print(f"{len(bodies)} groups answered in {time.time() - began:.0f} s")
        wait_until(lambda: n_unhandled(engine) == 0, "all is handled", HANDLED_WITHIN_S)
    assert answers == {200: len(bodies)}
    finish(engine, storm, boxes, docker_starts, began, asking)
