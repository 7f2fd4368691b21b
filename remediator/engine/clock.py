"""Time, as the engine sees it: one port, so that tests and replays bring their own."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Tells the time."""

    def now(self) -> datetime:
        """Aware UTC."""
        ...


class StoryClock:
    """A clock that stands still until it is moved: for stories that take days, told in milliseconds."""

    def __init__(self, begins: datetime) -> None:
        """Stands at ``begins``, aware UTC."""
        self.moment = begins

    def now(self) -> datetime:
        """Where it stands."""
        return self.moment


class SystemClock:
    """The machine's."""

    def now(self) -> datetime:
        """Aware UTC."""
        return datetime.now(UTC)
