"""The Docker engine of one host hangs: what it was asked is looked at and then told to people as unknown, and other
hosts' containers do not wait."""

from __future__ import annotations

import time

import pytest

from acceptance.conftest import EngineFactory
from acceptance.delivery import delivery
from acceptance.faults import (
    SLOW_RESTART,
    WITHIN_S,
    Boxes,
    begin_restart,
    check_nothing_lost_or_done_twice,
    ends_of,
    leak,
    second_host,
    settle,
)
from realparts.docker_engine import DockerEngine
from realparts.process import wait_until

pytestmark = pytest.mark.docker

N_STUCK = 20
"""More alerts for the host that hangs than the engine has workers."""


@pytest.mark.timeout(300)
def test_docker_when_it_hangs_then_other_hosts_are_acted_on_and_what_is_unclear_is_looked_at_or_told(
    engine_factory: EngineFactory, private_docker_engine: DockerEngine, docker_engine: DockerEngine, boxes: Boxes
) -> None:
    engine = engine_factory(
        {"restart.yaml": SLOW_RESTART}, docker_url=private_docker_engine.url, tables=second_host(docker_engine.url)
    )
    engine.start()
    waiting, other = boxes.make(private_docker_engine), boxes.make(docker_engine)
    under_way = begin_restart(engine, boxes, private_docker_engine)
    with private_docker_engine.frozen():
        began = time.monotonic()
        stuck = [leak(f"absent-{number}") for number in range(N_STUCK)]
        assert engine.deliver(delivery(*stuck, leak(waiting))) == 200
        assert engine.deliver(delivery(leak(other) | {"hostname": "gpu-08"})) == 200
        wait_until(lambda: ends_of(engine, other) == [("succeeded", "none")], "the other host's is restarted", WITHIN_S)
        # The attempt's time is over, and so is the minute that a system which cannot be asked has after a start.
        wait_until(lambda: ends_of(engine, under_way) == [("unknown", "unknown_effect")], "its end is unknown", 120)
        assert time.monotonic() - began > 30, "the attempt had its time"
        assert boxes.n_restarts(waiting) == 0
    wait_until(lambda: ends_of(engine, waiting) == [("succeeded", "none")], "what waited is restarted", 120)
    settle(engine)
    outcomes = {run["per"]["container_name"]: (run["outcome"], run["reason"]) for run in engine.runs()}
    assert outcomes.pop(under_way) == ("unknown", "unknown_effect")
    assert (outcomes.pop(waiting), outcomes.pop(other)) == (("succeeded", "none"), ("succeeded", "none"))
    assert set(outcomes.values()) == {("refused", "no_target")}
    # What Docker did with the request when it went on is for people to see and to say; it is not sent again.
    (unsettled,) = engine.get("/api/v1/status")["unsettled_runs"]
    said = engine.command("settle", unsettled, "happened", "--reason", "its start time shows it")
    assert said.code == 0, said
    wait_until(lambda: boxes.n_restarts(under_way) == 1, "Docker has finished what it had begun", WITHIN_S)
    check_nothing_lost_or_done_twice(engine, boxes)
