"""Since when the engine is up, and when it was away. A beat in the store tells the next start how long it was gone."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta

from remediator.core.event import utc_text, utc_time
from remediator.engine.clock import Clock
from remediator.store import runs
from remediator.store.engine import Store

BEAT = timedelta(seconds=15)
LONG_GAP = timedelta(minutes=5)
"""After so long away the next act of any run is judged anew."""

KEEP_GAPS = timedelta(days=7)
"""Longer than anything that is measured in time that counts only while the engine is up."""


class Life:
    """Beats, and remembers gaps: of stops, crashes, and of a machine that stood still."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()
        self._alive_at = clock.now()
        self._up_since = self._alive_at
        self._gaps: list[tuple[datetime, datetime]] = []

    def start(self) -> None:
        """Read what the last engine left, and beat once."""
        with self._store.read() as conn:
            left = runs.get_control(conn, "life")
        if left is not None:
            with self._lock:
                self._alive_at = utc_time(left["alive_at"])
                self._up_since = utc_time(left["up_since"])
                self._gaps = [(utc_time(start), utc_time(end)) for start, end in left["gaps"]]
        self.beat(is_start=True)

    def beat(self, *, is_start: bool = False) -> None:
        """Say that the engine is alive. Between two beats too far apart it was away.

        Raises:
            StoreUnavailableError: the store is away; the beat is lost, and the gap shows.
        """
        now = self._clock.now()
        with self._lock:
            silence = now - self._alive_at
            if is_start or silence > 3 * BEAT:
                if silence > timedelta(0):
                    self._gaps.append((self._alive_at, now))
                if silence >= LONG_GAP or silence < timedelta(0):  # set back: nobody knows how long it was away
                    self._up_since = now
            # A clock that was ahead and is set back has measured what cannot be: time to come in which no time counts.
            self._gaps = [(start, min(end, now)) for start, end in self._gaps if start < now and end > now - KEEP_GAPS]
            self._up_since = min(self._up_since, now)
            self._alive_at = now
            value = {
                "alive_at": utc_text(now),
                "up_since": utc_text(self._up_since),
                "gaps": [[utc_text(start), utc_text(end)] for start, end in self._gaps],
            }
        self._store.write(lambda tx: runs.set_control(tx.conn, "life", value))

    def note_alive(self) -> None:
        """As if it had beaten all the time until now, without a write each 15 seconds: for a clock that is moved."""
        with self._lock:
            self._alive_at = self._clock.now()

    @property
    def up_since(self) -> datetime:
        """Since when the engine is up without a long gap."""
        with self._lock:
            return self._up_since

    @property
    def gaps(self) -> tuple[tuple[datetime, datetime], ...]:
        """When it was away, oldest first."""
        with self._lock:
            return tuple(self._gaps)

    @property
    def long_gap_ended_at(self) -> datetime | None:
        """End of the newest long gap."""
        ends = [end for start, end in self.gaps if end - start >= LONG_GAP]
        return max(ends, default=None)
