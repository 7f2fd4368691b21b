"""Strangers take every file descriptor that the engine may have: it neither dies nor forgets, and works on when they
are gone."""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from acceptance.conftest import EngineFactory
from acceptance.delivery import delivery
from acceptance.engine import RESTART, Engine
from acceptance.faults import WITHIN_S, Boxes, check_nothing_lost_or_done_twice, leak, settle
from acceptance.storm import Storm
from realparts.docker_engine import DockerEngine
from realparts.process import wait_until

pytestmark = pytest.mark.docker

N_FILES = 72
"""Its own threads, store and sockets take less than half."""

N_STRANGERS = 150

TAKEN_S = 12.0
"""Longer than a connection may be silent before the engine closes it, and the next one takes its place."""

COMPLAINTS_PER_S = 30
"""Each delivery may say that it was turned away, and nobody may say it in a loop."""


@contextlib.contextmanager
def strangers(port: int) -> Iterator[None]:
    """So many connections that say nothing; one that is closed is opened again."""
    is_over = threading.Event()

    def connect() -> socket.socket:
        made = socket.socket()
        made.setblocking(False)
        made.connect_ex(("127.0.0.1", port))
        return made

    def keep() -> None:
        with selectors.DefaultSelector() as selector:
            for _ in range(N_STRANGERS):
                selector.register(connect(), selectors.EVENT_READ)
            while not is_over.is_set():
                for key, _ in selector.select(0.2):
                    selector.unregister(key.fileobj)
                    key.fileobj.close()  # type: ignore[union-attr]
                    selector.register(connect(), selectors.EVENT_READ)
            for key in [*selector.get_map().values()]:
                key.fileobj.close()  # type: ignore[union-attr]

    thread = threading.Thread(target=keep)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def n_files(engine: Engine) -> int:
    return len([*Path(f"/proc/{engine.pid}/fd").iterdir()])


def n_complaints(engine: Engine) -> int:
    """Lines of its log that are about trouble."""
    return sum(json.loads(line)["level"] in ("warning", "error") for line in engine.log_lines())


def test_files_when_strangers_take_all_then_the_engine_lives_and_works_on_when_they_are_gone(
    engine_factory: EngineFactory, docker_engine: DockerEngine, boxes: Boxes
) -> None:
    held = RESTART + "hold: 5s\n"
    engine = engine_factory(
        {"restart.yaml": held},
        docker_url=docker_engine.url,
        command=("prlimit", f"--nofile={N_FILES}:{N_FILES}", sys.executable, "-m", "remediator"),
    )
    engine.start()
    pid, n_before = engine.pid, n_files(engine)
    due, later = boxes.make(docker_engine), boxes.make(docker_engine)
    storm = Storm(engine, (), seed=1)
    with storm.posting():
        wait_until(lambda: len(storm.answered) > 20, "there is load", WITHIN_S)
        assert engine.deliver(delivery(leak(due))) == 200
        n_said = n_complaints(engine)
        began = time.monotonic()
        with strangers(engine.port):
            wait_until(lambda: n_files(engine) >= N_FILES - 1, "all are taken", WITHIN_S)
            time.sleep(TAKEN_S)  # its turn comes meanwhile
            taken_s = time.monotonic() - began
            assert n_files(engine) >= N_FILES - 1
        assert 0 < n_complaints(engine) - n_said < taken_s * COMPLAINTS_PER_S
        wait_until(engine.is_ready, "it is ready", WITHIN_S)
        n_answered = len(storm.answered)
        wait_until(lambda: len(storm.answered) > n_answered + 20, "it answers as before", WITHIN_S)
        assert engine.deliver(delivery(leak(later))) == 200
    settle(engine)
    assert [run["outcome"] for run in engine.runs()] == ["succeeded", "succeeded"]
    assert [boxes.n_restarts(box) for box in (due, later)] == [1, 1]
    check_nothing_lost_or_done_twice(engine, boxes, storm)
    assert engine.pid == pid
    assert not engine.has_ended()
    wait_until(lambda: n_files(engine) < n_before + 20, "the descriptors are given back", WITHIN_S)
