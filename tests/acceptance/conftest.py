"""Engines of the tests' own, Docker's events, and people who listen."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from acceptance.engine import Engine
from acceptance.faults import Boxes
from acceptance.story import DockerStarts
from realparts.docker_engine import DockerEngine
from realparts.loopback import WebhookReceiver


class EngineFactory(Protocol):
    """Makes an engine; see ``Engine``. It is not started."""

    def __call__(self, playbooks: dict[str, str] | None = None, **how: Any) -> Engine: ...


@pytest.fixture
def engine_factory(tmp_path: Path) -> Iterator[EngineFactory]:
    """Engines, killed after the test. Whatever happened to one that was up, each line of its log is JSON."""
    made: list[Engine] = []

    def make(playbooks: dict[str, str] | None = None, **how: Any) -> Engine:
        made.append(Engine(tmp_path / f"engine-{len(made)}", playbooks or {}, **how))
        return made[-1]

    yield make
    for engine in made:
        engine.kill()
    for line in (line for engine in made if engine.was_up for line in engine.log_lines()):
        assert isinstance(json.loads(line), dict), line


@pytest.fixture(scope="session")
def docker_starts(docker_engine: DockerEngine) -> Iterator[DockerStarts]:
    """Every start of every container from now on."""
    with DockerStarts(docker_engine) as starts:
        yield starts


@pytest.fixture(scope="session")
def people() -> Iterator[WebhookReceiver]:
    """Where the engines' messages go."""
    with WebhookReceiver() as receiver:
        yield receiver


@pytest.fixture
def heard() -> Iterator[WebhookReceiver]:
    """Where the messages of one test's engines go."""
    with WebhookReceiver() as receiver:
        yield receiver


@pytest.fixture
def boxes(tmp_path: Path) -> Iterator[Boxes]:
    """Containers that keep a ledger of their starts, removed after the test."""
    made = Boxes(tmp_path / "ledgers")
    yield made
    made.remove()
