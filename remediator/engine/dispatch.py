"""When which run is looked at: a timer, a few workers, and never two workers on one run.

Nothing waits in a worker: ``advance(run_id)`` does what can be done now and says when to come again. What is due
survives in the log: a start wakes all that is not closed, and each finds its own next move (the store's ``due`` table
only shows it). A second adapter for several engines is a later decision.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import datetime, timedelta

from remediator.engine.clock import Clock
from remediator.errors import RunLostError, StoreUnavailableError
from remediator.telemetry import get_logger

log = get_logger(__name__)

STORE_AGAIN = timedelta(seconds=2)
"""The store is away: soon again, since disks are freed by people and locks by the second."""

BUG_AGAIN = timedelta(minutes=5)
"""An error that nobody foresaw: the run is not lost, and its log line does not flood."""

LONGEST_WAIT_S = 1.0
"""The timer wakes at least this often: the clock may be set, and a due time may have passed while the machine slept."""


class Dispatch:
    """Workers and timer.

    Args:
        advance: does what a run can do now; returns when it is due next, None = when an event wakes it.
        n_workers: threads; an act holds one for as long as it takes.
        note_bug: counts an error that nobody foresaw, by where it was.
    """

    def __init__(
        self,
        advance: Callable[[str], datetime | None],
        clock: Clock,
        n_workers: int,
        note_bug: Callable[[str], None],
    ) -> None:
        self._advance = advance
        self._note_bug = note_bug
        self._clock = clock
        self._n_workers = n_workers
        self._lock = threading.Condition()
        self._due: dict[str, datetime] = {}
        self._heap: list[tuple[datetime, str]] = []
        self._ready: deque[str] = deque()
        self._queued: set[str] = set()
        self._running: set[str] = set()
        self._again: set[str] = set()
        self._is_stopping = False
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start the threads."""
        names = ["timer", *(f"worker-{number}" for number in range(1, self._n_workers + 1))]
        for name in names:
            target = self._time if name == "timer" else self._work
            thread = threading.Thread(target=target, name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def wake(self, run_id: str) -> None:
        """Look at this run as soon as a worker is free; once more when it is being looked at now."""
        with self._lock:
            self._enqueue(run_id)

    def counts(self) -> tuple[int, int]:
        """Runs with a due time; those whose time has passed and that no worker has taken."""
        now = self._clock.now()
        with self._lock:
            overdue = sum(1 for at in self._due.values() if at <= now) + len(self._ready)
            return len(self._due) + len(self._ready), overdue

    def n_running(self) -> int:
        """Runs that a worker is at."""
        with self._lock:
            return len(self._running)

    def run_due(self) -> datetime | None:
        """Look at all that is due, in this thread: for tests, which move the clock themselves and start no threads.

        Returns:
            When something is due next, None when nothing is.
        """
        while True:
            with self._lock:
                self._queue_due(self._clock.now())
                if not self._ready:
                    return min(self._due.values(), default=None)
                run_id = self._take()
            self._done(run_id, self._look_at(run_id))

    def stop(self, grace: timedelta) -> bool:
        """Take no new work, and wait for what runs.

        Returns:
            Whether all of it ended in time. What did not is found by the next start, as an attempt without an end.
        """
        with self._lock:
            self._is_stopping = True
            self._lock.notify_all()
        until = time.monotonic() + grace.total_seconds()
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    @property
    def is_alive(self) -> bool:
        """Whether all threads run."""
        return bool(self._threads) and all(thread.is_alive() for thread in self._threads)

    def _enqueue(self, run_id: str) -> None:
        self._due.pop(run_id, None)
        if run_id in self._running:
            self._again.add(run_id)
        elif run_id not in self._queued:
            self._queued.add(run_id)
            self._ready.append(run_id)
            self._lock.notify_all()

    def _set_due(self, run_id: str, at: datetime | None) -> None:
        self._due.pop(run_id, None)
        if at is not None and run_id not in self._queued:
            self._due[run_id] = at
            heapq.heappush(self._heap, (at, run_id))
            self._lock.notify_all()

    def _time(self) -> None:
        with self._lock:
            while not self._is_stopping:
                now = self._clock.now()
                self._queue_due(now)
                wait_s = LONGEST_WAIT_S
                if self._heap:
                    wait_s = min(wait_s, max(0.001, (self._heap[0][0] - now).total_seconds()))
                self._lock.wait(wait_s)

    def _work(self) -> None:
        while True:
            with self._lock:
                while not self._ready and not self._is_stopping:
                    self._lock.wait()
                if self._is_stopping:
                    return
                run_id = self._take()
            self._done(run_id, self._look_at(run_id))

    def _queue_due(self, now: datetime) -> None:
        while self._heap and self._heap[0][0] <= now:
            at, run_id = heapq.heappop(self._heap)
            if self._due.get(run_id) == at:
                self._enqueue(run_id)

    def _take(self) -> str:
        run_id = self._ready.popleft()
        self._queued.discard(run_id)
        self._running.add(run_id)
        return run_id

    def _done(self, run_id: str, next_at: datetime | None) -> None:
        with self._lock:
            self._running.discard(run_id)
            if run_id in self._again:
                self._again.discard(run_id)
                self._enqueue(run_id)
            else:
                self._set_due(run_id, next_at)

    def _look_at(self, run_id: str) -> datetime | None:
        try:
            return self._advance(run_id)
        except RunLostError:
            log.warning("run lost to another writer", run_id=run_id)
            return None
        except StoreUnavailableError as error:
            log.warning("store away, run waits", run_id=run_id, problem=str(error))
            return self._clock.now() + STORE_AGAIN
        except Exception:
            log.exception("unexpected error in a run", run_id=run_id)
            self._note_bug("run")
            return self._clock.now() + BUG_AGAIN
