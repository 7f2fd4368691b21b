"""The engine's process stands still for most of a minute, under load, with an act under way and one that falls due.

As a machine does that is suspended, or whose disk hangs. 50 s are longer than three of the engine's beats (45 s), from
which it counts the time as time away; ``make soak`` takes the whole minute.
"""

from __future__ import annotations

import json
import os
import signal
import time
from datetime import datetime

import pytest

from acceptance.conftest import EngineFactory
from acceptance.delivery import delivery
from acceptance.engine import RESTART
from acceptance.faults import (
    SLOW_RESTART,
    STOPS_IN_S,
    WITHIN_S,
    Boxes,
    check_nothing_lost_or_done_twice,
    leak,
    settle,
    slow,
)
from acceptance.storm import Storm
from realparts.docker_engine import DockerEngine
from realparts.process import wait_until

pytestmark = pytest.mark.docker

STANDS_STILL_S = float(os.environ.get("REMEDIATOR_TEST_STANDSTILL_S") or 50)

ON_ITS_WAY_S = 5
"""What was answered before the engine stood still has been read by then."""

HELD = RESTART.replace("playbook: restart", "playbook: held").replace("= Leak", "= HeldLeak") + "hold: 20s\n"


def test_engine_when_it_stands_still_then_nothing_is_lost_or_done_twice_and_what_was_due_is_caught_up(
    engine_factory: EngineFactory, docker_engine: DockerEngine, boxes: Boxes
) -> None:
    under_way, held, later = (boxes.make(docker_engine, slow(STOPS_IN_S) if n == 0 else slow(0)) for n in range(3))
    engine = engine_factory({"restart.yaml": SLOW_RESTART, "held.yaml": HELD}, docker_url=docker_engine.url)
    engine.start()
    storm = Storm(engine, (), seed=1)
    with storm.posting():
        wait_until(lambda: len(storm.answered) > 20, "there is load", WITHIN_S)
        assert engine.deliver(delivery(leak(held, alertname="HeldLeak"))) == 200
        assert engine.deliver(delivery(leak(under_way))) == 200
        wait_until(lambda: boxes.is_stopping(under_way), "Docker has been asked to restart it", WITHIN_S)
        engine.signal(signal.SIGSTOP)
        time.sleep(ON_ITS_WAY_S)
        n_answered = len(storm.answered)
        time.sleep(STANDS_STILL_S)
        assert boxes.n_restarts(under_way) == 1, "Docker did not stand still"
        assert (len(storm.answered) - n_answered, boxes.n_restarts(held)) == (0, 0)
        engine.signal(signal.SIGCONT)

        wait_until(lambda: boxes.n_restarts(held) == 1, "what was due is done", WITHIN_S)
        assert engine.deliver(delivery(leak(later))) == 200
        wait_until(lambda: len(storm.answered) > n_answered, "the others are answered as well", WITHIN_S)
    settle(engine)
    assert {run["outcome"] for run in engine.runs()} == {"succeeded"}
    assert [boxes.n_restarts(box) for box in (under_way, held, later)] == [1, 1, 1]
    ((life,),) = engine.query("SELECT value FROM control WHERE key = 'life'")
    n_long = sum(
        (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds() >= STANDS_STILL_S - 1
        for start, end in json.loads(life)["gaps"]
    )
    assert n_long == 1, f"the time was counted as time away: {life}"
    check_nothing_lost_or_done_twice(engine, boxes, storm)
