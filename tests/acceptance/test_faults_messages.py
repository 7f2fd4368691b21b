"""The notification service takes every message and answers none: acts go on, and people are told when it answers
again, or it shows that they were not."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from acceptance.conftest import EngineFactory
from acceptance.delivery import delivery
from acceptance.engine import RESTART, Engine
from acceptance.faults import WITHIN_S, Boxes, check_nothing_lost_or_done_twice, leak, settle
from realparts.docker_engine import DockerEngine
from realparts.loopback import WebhookReceiver
from realparts.process import wait_until

pytestmark = pytest.mark.docker

N_WORKERS = 2

N_STUCK = 5
"""More messages than there are workers."""

HANGS_S = 100.0
"""Longer than the minute that a message may take."""


@pytest.fixture
def service() -> Iterator[WebhookReceiver]:
    with WebhookReceiver() as receiver:
        receiver.delay_s = HANGS_S
        yield receiver


def messages(engine: Engine, kind: str = "attempt_finished") -> list[str]:
    """What became of each message."""
    return [
        event["data"].get("detail", "") for event in engine.events(kind) if event["data"]["action"] == "notify.send"
    ]


def failed(engine: Engine) -> float:
    found = re.search(
        r'^remediator_attempts_total{action="notify.send",outcome="failed"} (\S+)$', engine.metrics(), re.MULTILINE
    )
    return float(found[1]) if found else 0.0


def test_service_when_it_takes_messages_and_never_answers_then_acts_go_on_and_it_is_loud(
    engine_factory: EngineFactory,
    docker_engine: DockerEngine,
    boxes: Boxes,
    service: WebhookReceiver,
) -> None:
    engine = engine_factory(
        {"restart.yaml": RESTART},
        docker_url=docker_engine.url,
        notify_url=service.url.replace("http://", "json://") + "/?rto=300",  # apprise itself would give up after 4 s
        settings=f"workers = {N_WORKERS}",
    )
    engine.start()
    first, second = boxes.make(docker_engine), boxes.make(docker_engine)
    absent = [leak(f"absent-{number}") for number in range(N_STUCK)]

    def outcome(box: str) -> list[str]:
        return [run["outcome"] for run in engine.runs() if run["per"]["container_name"] == box]

    assert engine.deliver(delivery(*absent)) == 200
    wait_until(lambda: len(service.received) >= N_WORKERS, "messages hang", WITHIN_S)
    for box in (first, second):
        assert engine.deliver(delivery(leak(box))) == 200
        wait_until(lambda box=box: outcome(box) == ["succeeded"], "acts go on", WITHIN_S)
    assert messages(engine) == [], "a message has ended: none hangs, and nothing is proven"
    service.delay_s = 0.0  # it answers what comes now; what it has taken hangs on
    wait_until(lambda: any("did not answer within" in detail for detail in messages(engine)), "it shows in the log", 90)
    wait_until(lambda: failed(engine) > 0, "and in the metrics", WITHIN_S)
    assert engine.is_ready()

    n_heard = len(service.received)
    assert engine.deliver(delivery(leak("absent-last"))) == 200
    wait_until(
        lambda: any("absent-last" in got.payload["title"] for got in service.received[n_heard:]),
        "people are told again",
        120,
    )
    settle(engine)
    assert [boxes.n_restarts(box) for box in (first, second)] == [1, 1]
    check_nothing_lost_or_done_twice(engine, boxes)
