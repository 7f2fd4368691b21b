"""Time, as the engine sees it: one port, so that tests and replays bring their own."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Tells the time."""

    def now(self) -> datetime:
        """Aware UTC."""
        ...


class SystemClock:
    """The machine's."""

    def now(self) -> datetime:
        """Aware UTC."""
        return datetime.now(UTC)
