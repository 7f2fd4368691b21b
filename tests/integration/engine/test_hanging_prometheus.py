"""A Prometheus that hangs: a few wait for it for a moment, and all other runs go on."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from remediator.engine import conditions

if TYPE_CHECKING:
    from conftest import Bench

N_ASKING = 40
"""Many times as many as there are workers."""

ASKS = """
playbook: asks
match: [alertname = Asks]
per: [n]
guard:
  cooldown: 0s
  require: [{name: exporter_up, query: 'up{n="{{ labels.n }}"}', equals: 1}]
steps: [{action: docker.restart, params: {host: gpu-07, container: trainer-1}}]
"""


@pytest.fixture
def hung(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What a Prometheus was asked that never answers."""
    asked: list[str] = []
    over = threading.Event()

    def hang(promql: str, name: str) -> tuple[float, ...]:
        asked.append(promql)
        over.wait(60)
        return (1.0,)

    monkeypatch.setattr(bench.world, "query", hang)
    monkeypatch.setattr(conditions, "ASK_S", 2.0)
    yield asked
    over.set()


def wait_for(is_so: Any) -> None:
    until = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < until, "not so within a minute"
        time.sleep(0.05)


def test_prometheus_when_it_hangs_then_few_wait_for_it_and_runs_that_do_not_ask_go_on(
    bench: Bench, hung: list[str]
) -> None:
    bench.playbook(ASKS, "asks.yaml")
    bench.restarts().start(workers=2)
    bench.deliver_later(*(bench.fires({"alertname": "Asks", "n": str(n)}) for n in range(N_ASKING)))
    bench.deliver_later(bench.fires(bench.leak()))
    bench.engine._dispatch.start()

    wait_for(lambda: bench.acts() == ["docker.restart docker:gpu-07/trainer-0"])
    wait_for(lambda: len([one for one in bench.events("verdict_given") if one.data["word"] == "wait"]) == N_ASKING)

    assert len(hung) <= 2, "each worker waited once; who came after that was told at once"
    answers = [answer for one in bench.events("verdict_given") for answer in one.data["answers"]]
    (detail,) = {answer["detail"] for answer in answers if answer["reason"] == "require_unknown"}
    assert "exporter_up has no answer: Prometheus prometheus has not answered within 2 s" in detail
    assert bench.engine._dispatch.stop(timedelta(seconds=30))
