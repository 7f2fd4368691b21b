"""What must be so after every fault: nothing answered is lost, nothing is done twice, no act is without its event.

An engine and containers that keep a ledger of their own starts → words that wait until all is settled, and that compare
what the engine's log says with what the containers wrote. The ledger is a file outside, a line at each start: it
outlives a killed Docker engine, whose own events do not.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

from acceptance.delivery import delivery
from acceptance.engine import ATTEMPT_TIMEOUT, RESTART, Engine
from acceptance.storm import Storm, restarts
from realparts.docker_engine import DockerEngine
from realparts.process import wait_until

WITHIN_S = 60.0
"""For what happens in well under a second when nobody else uses the machine."""

QUICK = "trap 'exit 0' TERM; sleep 1000000 & wait"
"""Stops at once when asked, and takes no processor time from what is tested."""


def slow(seconds: float) -> str:
    """A script that takes so long to stop, says when it has been asked to, and takes no processor time."""
    return f"trap 'touch /ledger/$box.stopping; sleep {seconds}; exit 0' TERM; sleep 1000000 & wait"


def leak(container: str, **more: str) -> dict[str, str]:
    """The alert that ``acceptance.engine.RESTART`` restarts a container for."""
    return {"alertname": "Leak", "hostname": "gpu-07", "container_name": container} | more


STOPS_IN_S = 6
"""What the container of ``begin_restart`` takes to stop; ``SLOW_RESTART`` lets it take 8 s, the whole attempt 38 s."""

SLOW_RESTART = RESTART.replace("stop_timeout: 1s", "stop_timeout: 8s").replace(ATTEMPT_TIMEOUT, "38s")


class Boxes:
    """Containers that write down each of their starts.

    Args:
        folder: where the ledgers lie, one file for each container.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: list[str] = []
        self._numbers = count()
        self._docker: dict[str, DockerEngine] = {}
        folder.mkdir(parents=True)

    def make(self, docker: DockerEngine, script: str = QUICK, limits: Mapping[str, Any] | None = None) -> str:
        """A running container, with limits as docker-py calls them; its name."""
        name = f"box-{os.getpid()}-{self.folder.parent.name[-24:]}-{next(self._numbers)}"
        self.names.append(name)
        self._docker[name] = docker
        keeps_ledger = f"box={name}; date +%s >>/ledger/$box; {script}"
        docker.run(name, keeps_ledger, volumes={str(self.folder): "/ledger"}, limits=limits)
        wait_until(lambda: len(self.starts(name)) == 1, f"{name} has begun", WITHIN_S)
        return name

    def starts(self, name: str) -> list[int]:
        """When it was started, in whole seconds, the first time included."""
        ledger = self.folder / name
        return [int(line) for line in ledger.read_text().split()] if ledger.exists() else []

    def n_restarts(self, name: str) -> int:
        """How often it was started anew."""
        return len(self.starts(name)) - 1

    def is_stopping(self, name: str) -> bool:
        """Whether Docker has asked a container with a ``slow`` script to stop."""
        return (self.folder / f"{name}.stopping").exists()

    def remove(self) -> None:
        """Remove them all."""
        for name, docker in self._docker.items():
            docker.remove(name)


def second_host(docker_url: str) -> str:
    """Settings of a Docker host ``gpu-08``."""
    return f'[docker.hosts.gpu-08]\nurl = "{docker_url}"\n'


def is_begun(engine: Engine, box: str) -> bool:
    """Whether an attempt at a container has begun."""
    return any(box in event["target"] for event in engine.events("attempt_started"))


def begin_restart(engine: Engine, boxes: Boxes, docker: DockerEngine) -> str:
    """A container that is stopping because the engine, which has ``SLOW_RESTART``, restarts it."""
    box = boxes.make(docker, slow(STOPS_IN_S))
    assert engine.deliver(delivery(leak(box))) == 200
    wait_until(lambda: boxes.is_stopping(box), "Docker has been asked to restart it", WITHIN_S)
    return box


def ends_of(engine: Engine, box: str) -> list[tuple[str, str]]:
    """How the attempts at a container ended: outcome and reason."""
    return [
        (event["outcome"], event["data"]["reason"])
        for event in engine.events("attempt_finished")
        if box in event["target"]
    ]


def settle(engine: Engine, within_s: float = 120.0) -> None:
    """Wait until each delivery is handled and each run has ended."""
    for what, table, column in (
        ("delivery is handled", "delivery", "handled_at"),
        ("run has ended", "run", "ended_at"),
    ):
        statement = f"SELECT count(*) FROM {table} WHERE {column} IS NULL"
        wait_until(lambda asked=statement: engine.query(asked) == [(0,)], f"every {what}", within_s)


def check_nothing_lost_or_done_twice(
    engine: Engine, boxes: Boxes, storm: Storm | None = None, *, is_clock_true: bool = True
) -> None:
    """Compare the engine's log with the ledgers and with what was answered, and see that the log is whole.

    Args:
        is_clock_true: whether the engine's clock was always the machine's, so that its events can be dated by it.
    """
    if storm is not None:
        assert storm.lost() == set()
        assert set(storm.refused) <= {503}, storm.refused
    attempts = restarts(engine)
    acted = [attempt for attempt in attempts if attempt.outcome in ("succeeded", "unknown")]
    assert {run: n for run, n in Counter(attempt.run_id for attempt in acted).items() if n > 1} == {}
    for box in boxes.names:
        of_box = [attempt for attempt in acted if attempt.container == box]
        n_sure = sum(attempt.outcome == "succeeded" for attempt in of_box)
        assert n_sure <= boxes.n_restarts(box) <= len(of_box), (box, attempts)
        if is_clock_true:
            _check_each_start_has_its_event(boxes.starts(box)[1:], _begun_at(engine, box), box)
    verified = engine.command("audit", "verify")
    assert verified.code == 0, verified
    assert engine.query("PRAGMA integrity_check") == [("ok",)]


def _begun_at(engine: Engine, box: str) -> list[float]:
    """When its attempts were written down."""
    return [
        datetime.fromisoformat(event["at"]).timestamp()
        for event in engine.events("attempt_started")
        if event["data"]["params"].get("container") == box
    ]


def _check_each_start_has_its_event(starts: Sequence[int], begun_at: Sequence[float], box: str) -> None:
    for n, start in enumerate(starts, start=1):
        n_before = sum(int(at) <= start for at in begun_at)
        assert n_before >= n, f"{box} was started at {starts}, and its attempts began at {begun_at}"
