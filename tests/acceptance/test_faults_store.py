"""Another process holds the database locked for half a minute, under load, with an act under way and one that falls
due."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from acceptance.conftest import EngineFactory
from acceptance.delivery import delivery
from acceptance.engine import ATTEMPT_TIMEOUT, RESTART
from acceptance.faults import WITHIN_S, Boxes, check_nothing_lost_or_done_twice, is_begun, leak, settle, slow
from acceptance.storm import Storm
from realparts.docker_engine import DockerEngine
from realparts.process import wait_until

pytestmark = pytest.mark.docker

LOCKED_S = 30.0

HELD = RESTART.replace("playbook: restart", "playbook: held").replace("= Leak", "= HeldLeak") + "hold: 15s\n"

LOG_LINES_PER_S = 20
"""While it is locked: each client and each run may say that it was turned away, and nobody may say it in a loop."""

LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
connection.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def locked(database: Path) -> Iterator[None]:
    """A process of its own holds the database."""
    with subprocess.Popen(
        [sys.executable, "-c", LOCK, str(database)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        yield
        other.communicate()


def test_store_when_locked_by_another_process_for_half_a_minute_then_503_and_all_goes_on_by_itself(
    engine_factory: EngineFactory, docker_engine: DockerEngine, boxes: Boxes
) -> None:
    under_way, held, later = boxes.make(docker_engine, slow(6)), boxes.make(docker_engine), boxes.make(docker_engine)
    patient = RESTART.replace("stop_timeout: 1s", "stop_timeout: 20s").replace(ATTEMPT_TIMEOUT, "60s")
    engine = engine_factory({"restart.yaml": patient, "held.yaml": HELD}, docker_url=docker_engine.url)
    engine.start()
    storm = Storm(engine, (), seed=1)
    with storm.posting():
        assert engine.deliver(delivery(leak(held, alertname="HeldLeak"))) == 200
        assert engine.deliver(delivery(leak(under_way))) == 200
        wait_until(lambda: is_begun(engine, under_way), "the restart has begun", WITHIN_S)
        with locked(engine.store):
            until = time.monotonic() + LOCKED_S
            n_events = engine.query("SELECT count(*) FROM audit")[0][0]
            n_lines = len(engine.log_lines())
            said = {(engine.deliver(delivery(leak(later))), engine.checks()["store"])}
            while time.monotonic() < until:
                said.add((engine.deliver(delivery(leak(later))), engine.checks()["store"]))
                time.sleep(0.5)
            assert not engine.is_ready()
            assert engine.query("SELECT count(*) FROM audit")[0][0] == n_events, "nothing was recorded"
            assert len(engine.log_lines()) - n_lines < LOCKED_S * LOG_LINES_PER_S
            assert (boxes.n_restarts(under_way), boxes.n_restarts(held)) == (1, 0)
        assert {status for status, _ in said} == {503}
        for _, store in said:
            assert "another process holds a lock on the database" in store or "has not answered" in store

        wait_until(engine.is_ready, "it is ready again", WITHIN_S)
        n_answered = len(storm.answered)
        wait_until(lambda: engine.deliver(delivery(leak(later))) == 200, "deliveries are taken", WITHIN_S)
        wait_until(lambda: len(storm.answered) > n_answered, "the others are answered as well", WITHIN_S)
    settle(engine)
    assert {run["per"]["container_name"]: run["outcome"] for run in engine.runs()} == {
        under_way: "succeeded",
        held: "succeeded",
        later: "succeeded",
    }
    assert [boxes.n_restarts(box) for box in (under_way, held, later)] == [1, 1, 1]
    check_nothing_lost_or_done_twice(engine, boxes, storm)
