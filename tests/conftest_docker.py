"""Fixtures that give tests a real Docker engine and containers in it. A plugin of ``conftest.py``.

Without ``REMEDIATOR_TEST_DOCKER_HOST`` the engine is a private one below ``$REMEDIATOR_TEST_DIR`` or a new folder in
``/tmp``. An engine that was there before is used only where that variable names it, and only containers made here are
removed from it.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from realparts import docker_engine as engines
from realparts.docker_engine import DockerEngine

Trainer = Callable[..., str]
"""``trainer(script, **options)`` makes a container as ``DockerEngine.run`` does, and gives its name."""


def _new_folder() -> Path:
    """A folder whose path is short enough for a socket in it."""
    base = os.environ.get("REMEDIATOR_TEST_DIR") or tempfile.gettempdir()
    Path(base).mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="dockerd-", dir=base))


def _private() -> Iterator[DockerEngine]:
    why = engines.missing()
    if why:
        pytest.skip(why)
    folder = _new_folder()
    try:
        with contextlib.closing(engines.start(folder)) as engine:
            yield engine
    finally:
        engines.stop(folder)


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[DockerEngine]:
    """A real Docker engine, shared: give containers names of their own, as ``trainer`` does."""
    url = os.environ.get("REMEDIATOR_TEST_DOCKER_HOST", "")
    if not url:
        yield from _private()
        return
    with contextlib.closing(DockerEngine(url)) as engine:
        yield engine


@pytest.fixture
def private_docker_engine() -> Iterator[DockerEngine]:
    """A real Docker engine of the test's own, to freeze and to kill."""
    yield from _private()


@pytest.fixture
def trainer(docker_engine: DockerEngine) -> Iterator[Trainer]:
    """Makes containers in the shared engine, removed after the test."""
    made: list[str] = []

    def make(script: str = engines.IDLE, **options: Any) -> str:
        made.append(f"trainer-{uuid.uuid4().hex[:10]}")
        docker_engine.run(made[-1], script, **options)
        return made[-1]

    yield make
    docker_engine.remove(*made)
