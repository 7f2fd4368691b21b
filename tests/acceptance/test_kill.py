"""Killed again and again at random moments, while deliveries come and containers restart: nothing answered is lost, and
nothing is done twice.

``REMEDIATOR_TEST_SEED`` sets the moments; the seed of a failure stands in its output.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from acceptance.conftest import EngineFactory
from acceptance.storm import Restart, Storm, restarts, restarts_each_leak
from acceptance.story import DockerStarts
from realparts.docker_engine import DockerEngine
from realparts.process import wait_until

pytestmark = pytest.mark.docker

N_KILLS = 30
N_CONTAINERS = 12
LEAKS_PER_LIFE = 4

SETTLES_WITHIN_S = 240.0
"""What was killed before Docker was asked is tried again only when the attempt's time is over, 31 s later; and so is a
second time."""

QUICK = "trap 'exit 0' TERM; sleep 1000000 & wait"
"""Stops at once when asked, and takes no processor time from what is tested."""

PLAYBOOK = restarts_each_leak(N_CONTAINERS, cooldown="1s")


@pytest.fixture
def seed() -> int:
    chosen = int(os.environ.get("REMEDIATOR_TEST_SEED") or random.randrange(2**32))
    print(f"REMEDIATOR_TEST_SEED={chosen}")
    return chosen


@pytest.fixture
def boxes(docker_engine: DockerEngine) -> Iterator[list[str]]:
    names = [f"killed-{os.getpid()}-{number}" for number in range(N_CONTAINERS)]
    try:
        for name in names:
            docker_engine.run(name, QUICK)
        yield names
    finally:
        docker_engine.remove(*names)


@pytest.mark.timeout(600)
def test_kill_when_it_comes_at_any_moment_then_nothing_answered_is_lost_and_nothing_is_done_twice(
    engine_factory: EngineFactory,
    docker_engine: DockerEngine,
    docker_starts: DockerStarts,
    boxes: list[str],
    seed: int,
) -> None:
    first_start = {box: docker_starts.started_at(box) for box in boxes}
    began = time.time()
    engine = engine_factory({"restart.yaml": PLAYBOOK}, docker_url=docker_engine.url)
    engine.start()  # once: what fired before there was a playbook would be adopted, and not acted on
    engine.kill()
    storm = Storm(engine, boxes, seed)

    storm.rage(N_KILLS, LEAKS_PER_LIFE)
    wait_until(
        lambda: engine.query("SELECT count(*) FROM delivery WHERE handled_at IS NULL") == [(0,)],
        "every delivery is handled",
        60,
    )
    wait_until(
        lambda: engine.query("SELECT count(*) FROM run WHERE ended_at IS NULL") == [(0,)],
        "every run has ended",
        SETTLES_WITHIN_S,
    )

    assert storm.lost() == set()
    assert set(storm.refused) <= {503}, storm.refused
    outcomes = dict(engine.query("SELECT id, outcome FROM run"))
    _check_each_leak_has_one_run(engine.query("SELECT s.per FROM run r JOIN subject s ON s.id = r.subject_id"), storm)
    attempts = restarts(engine)
    _check_every_attempt_has_an_end(attempts, outcomes)
    for box in boxes:
        n_starts = len(docker_starts.of(box, after=began))
        of_box = [attempt for attempt in attempts if attempt.container == box]
        _check_every_start_has_its_attempt(of_box, n_starts, first_start[box], docker_starts.started_at(box))
    verified = engine.command("audit", "verify")
    assert verified.code == 0, verified
    assert engine.query("PRAGMA integrity_check") == [("ok",)]
    # And it was a test: kills have hit acts, and most of the acts have happened.
    started = engine.events("engine_started")
    interrupted = [attempt for attempt in attempts if attempt.reason == "did_not_happen"]
    cut_off = [event for event in engine.events("attempt_finished") if "no answer came" in event["data"]["detail"]]
    counts = Counter(outcomes.values())
    print(
        f"{len(started)} starts, {len(storm.answered)} answered, {len(outcomes)} runs {dict(counts)},"
        f" {len(attempts)} attempts, {len(cut_off)} cut off, {len(interrupted)} of them before Docker was asked"
    )
    assert len(started) > N_KILLS // 2
    assert len(storm.answered) > N_KILLS * 2
    assert cut_off
    assert counts["succeeded"] > len(outcomes) * 0.8, counts


def test_kill_when_an_engine_answers_before_it_commits_then_the_loss_is_found(
    engine_factory: EngineFactory, seed: int
) -> None:
    wrapper = Path(__file__).with_name("answers_first.py")
    engine = engine_factory({"restart.yaml": PLAYBOOK}, command=(sys.executable, str(wrapper)))
    storm = Storm(engine, (), seed)
    engine.start()
    engine.kill()
    storm.rage(20, is_enough=lambda: bool(storm.lost()))
    assert storm.lost()


def _check_each_leak_has_one_run(pers: list[tuple[str]], storm: Storm) -> None:
    faults = Counter(fault for (per,) in pers for fault in [_fault(per)])
    assert {fault: n for fault, n in faults.items() if n != 1} == {}
    assert storm.leaks.keys() <= faults.keys()


def _fault(per: str) -> str:
    return str(json.loads(per)["fault"])


def _check_every_attempt_has_an_end(attempts: list[Restart], outcomes: dict[str, str]) -> None:
    open_ended = [attempt for attempt in attempts if not attempt.outcome and outcomes[attempt.run_id] != "unknown"]
    assert open_ended == []


def _check_every_start_has_its_attempt(
    attempts: list[Restart], n_starts: int, first_start: str, last_start: str
) -> None:
    """Each start of the container belongs to one attempt, and no run has two."""
    done = [attempt for attempt in attempts if attempt.outcome == "succeeded"]
    unclear = [attempt for attempt in attempts if attempt.outcome == "unknown"]
    acted = Counter(attempt.run_id for attempt in [*done, *unclear])
    assert {run: n for run, n in acted.items() if n > 1} == {}
    assert len(done) <= n_starts <= len(done) + len(unclear), attempts
    if not unclear:
        chain = [first_start, *(attempt.after for attempt in done)]
        assert [attempt.before for attempt in done] == chain[:-1]
        assert chain[-1] == last_start
