"""Real files in a folder of the test's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from remediator.core.alert import RawDelivery
from remediator.core.event import Event, EventType
from remediator.store.engine import Store, open_store

AT = datetime(2026, 1, 31, 14, 0, 0, tzinfo=UTC)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "remediator.db"


@pytest.fixture
def url(path: Path) -> str:
    return f"sqlite:///{path}"


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    opened = open_store(url)
    yield opened
    opened.close()


@pytest.fixture
def event() -> Callable[..., Event]:
    def build(**fields: Any) -> Event:
        return Event(**{"type": EventType.DELIVERY_RECEIVED, "at": AT, **fields})

    return build


@pytest.fixture
def raw() -> Callable[..., RawDelivery]:
    def build(body: bytes = b"{}", source: str = "10.0.0.5") -> RawDelivery:
        return RawDelivery(received_at=AT, source=source, body=body)

    return build
