"""The clock of the engine's machine jumps by an hour while it works, and is set right again later.

The process runs under libfaketime, whose offset lies in a file. Only the wall clock jumps: what is measured by the
monotonic clock goes on, as on a machine whose clock is set.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from acceptance.conftest import EngineFactory
from acceptance.delivery import delivery
from acceptance.engine import ATTEMPT_TIMEOUT, RESTART, Engine
from acceptance.faults import QUICK, WITHIN_S, Boxes, check_nothing_lost_or_done_twice, is_begun, leak, settle, slow
from realparts.docker_engine import DockerEngine
from realparts.process import wait_until

pytestmark = [pytest.mark.docker, pytest.mark.system]

HOUR = timedelta(hours=1)

HELD = RESTART.replace("playbook: restart", "playbook: held").replace("= Leak", "= HeldLeak") + "hold: 10m\n"

PATIENT = RESTART.replace("stop_timeout: 1s", "stop_timeout: 20s").replace(ATTEMPT_TIMEOUT, "60s")

READS_FILE_EVERY_S = 1
"""How often libfaketime looks at the file."""


class MovedClock:
    """The clock of one process."""

    def __init__(self, folder: Path) -> None:
        library = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
        if library is None:
            pytest.skip("faketime is not installed (Debian: faketime)")
        folder.mkdir()
        self._file = folder / "clock"
        self.set(timedelta(0))
        self.environ = {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": str(READS_FILE_EVERY_S),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def set(self, offset: timedelta) -> None:
        """So far from the true time."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{offset.total_seconds():+.0f}\n")
        os.replace(new, self._file)


def offset_of(engine: Engine) -> timedelta:
    """How far its clock is from the true one, by the write with which it probes its store."""
    assert engine.checks()["store"] == "ok"
    ((probe,),) = engine.query("SELECT value FROM control WHERE key = 'probe'")
    return datetime.fromisoformat(json.loads(probe)["at"]) - datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What one jump happens to."""

    clock: MovedClock
    engine: Engine
    boxes: Boxes


@pytest.fixture
def worlds(
    tmp_path: Path, engine_factory: EngineFactory, docker_engine: DockerEngine
) -> Iterator[dict[timedelta, World]]:
    """An engine for each jump, started, with five containers, of which the second is slow to stop."""
    made = {}
    for jump, name in ((HOUR, "forward"), (-HOUR, "back")):
        clock, boxes = MovedClock(tmp_path / name), Boxes(tmp_path / name / "ledgers")
        engine = engine_factory(
            {"restart.yaml": PATIENT, "held.yaml": HELD}, docker_url=docker_engine.url, environ=clock.environ
        )
        made[jump] = World(clock=clock, engine=engine, boxes=boxes)
        for n in range(5):
            boxes.make(docker_engine, slow(8) if n == 1 else QUICK)
        engine.start()
    yield made
    for world in made.values():
        world.boxes.remove()


def test_clock_when_it_jumps_by_an_hour_and_back_then_nothing_is_lost_or_done_twice_and_runs_go_on(
    worlds: dict[timedelta, World],
) -> None:
    with ThreadPoolExecutor() as stories:
        for story in [stories.submit(jump_and_back, world, jump) for jump, world in worlds.items()]:
            story.result()


def jump_and_back(world: World, jump: timedelta) -> None:
    """One world's story."""
    clock, engine, boxes = world.clock, world.engine, world.boxes
    done, under_way, held, fresh, last = boxes.names
    began = datetime.now(UTC)
    n_answered = 0

    def outcomes() -> dict[str, str]:
        return {run["per"]["container_name"]: run["outcome"] for run in engine.runs()}

    def fires(box: str, **more: str) -> None:
        nonlocal n_answered
        assert engine.deliver(delivery(leak(box, **more), starts_at=began)) == 200
        n_answered += 1

    fires(done)
    wait_until(lambda: outcomes().get(done) == "succeeded", "one is done", WITHIN_S)
    fires(held, alertname="HeldLeak")
    fires(under_way)
    wait_until(lambda: is_begun(engine, under_way), "one is under way", WITHIN_S)

    clock.set(jump)
    wait_until(lambda: abs(offset_of(engine) - jump) < timedelta(minutes=2), "its clock has jumped", WITHIN_S)
    assert boxes.n_restarts(under_way) == 0, "the act ended before the clock jumped"
    for box in (done, fresh, under_way):
        fires(box)
    fires(held, alertname="HeldLeak")  # its word is an hour old else
    wait_until(lambda: outcomes().get(under_way) == "succeeded", "what was under way ends", WITHIN_S)
    wait_until(lambda: outcomes().get(fresh) == "succeeded", "what is new is done", WITHIN_S)
    if jump > timedelta(0):
        wait_until(lambda: outcomes()[held] == "succeeded", "its hold is over", WITHIN_S)
    else:
        assert boxes.n_restarts(held) == 0
    assert engine.is_ready()

    clock.set(timedelta(0))
    wait_until(lambda: abs(offset_of(engine)) < timedelta(minutes=2), "its clock is right again", WITHIN_S)
    for box in (done, fresh, under_way, last):
        fires(box)
    fires(held, alertname="HeldLeak")
    wait_until(lambda: outcomes().get(last) == "succeeded", "what is new is done", WITHIN_S)
    time.sleep(2)  # for what would be done again
    expected = [1, 1, 1 if jump > timedelta(0) else 0, 1, 1]
    assert [boxes.n_restarts(box) for box in (done, under_way, held, fresh, last)] == expected
    if not expected[2]:
        (run,) = [run for run in engine.runs() if run["per"]["container_name"] == held]
        assert engine.command("cancel", run["run_id"], "--reason", "its hold is long").code == 0
    settle(engine)
    assert engine.query("SELECT count(*) FROM delivery") == [(n_answered,)]
    check_nothing_lost_or_done_twice(engine, boxes, is_clock_true=False)
