"""The Docker engine is killed in the middle of a restart and started again: the act has a known end, or is handed to
people as unknown; it is never done twice, and other hosts' containers do not wait."""

from __future__ import annotations

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
from realparts import docker_engine as engines
from realparts.docker_engine import DockerEngine
from realparts.process import wait_until

pytestmark = pytest.mark.docker


@pytest.mark.timeout(300)
def test_docker_when_killed_in_mid_restart_and_started_again_then_the_act_is_looked_at_and_done_once(
    engine_factory: EngineFactory, private_docker_engine: DockerEngine, docker_engine: DockerEngine, boxes: Boxes
) -> None:
    engine = engine_factory(
        {"restart.yaml": SLOW_RESTART}, docker_url=private_docker_engine.url, tables=second_host(docker_engine.url)
    )
    engine.start()
    box, other = begin_restart(engine, boxes, private_docker_engine), boxes.make(docker_engine)
    assert private_docker_engine.folder is not None

    engines.kill(private_docker_engine.folder)
    assert ends_of(engine, box) == []
    assert engine.deliver(delivery(leak(other) | {"hostname": "gpu-08"})) == 200
    wait_until(lambda: ends_of(engine, other) == [("succeeded", "none")], "the other host's is restarted", WITHIN_S)
    assert ends_of(engine, box) == [], "with Docker away nobody knows"
    engines.start(private_docker_engine.folder).close()

    after = boxes.make(private_docker_engine)
    assert engine.deliver(delivery(leak(after))) == 200
    settle(engine)
    assert ends_of(engine, after) == [("succeeded", "none")], "it is acted on again, without a hand"
    # Docker had started it again; or it had not even stopped it: then that was seen, and it was tried anew; or it was
    # killed between the two: then people are asked, since nobody can say who stopped it.
    ends = ends_of(engine, box)
    assert ends in (
        [("succeeded", "none")],
        [("failed", "did_not_happen"), ("succeeded", "none")],
        [("unknown", "unknown_effect")],
    )
    assert boxes.n_restarts(box) == (0 if ends[-1][0] == "unknown" else 1)
    check_nothing_lost_or_done_twice(engine, boxes)
