"""When which run is looked at: a timer, a few workers, and never two of them on one run.

Nothing waits in a worker: ``advance(run_id)`` does what can be done now and says when to come again. What is due
survives in the log: a start wakes all that is not closed, and each finds its own next move (the store's ``due`` table
only shows it). A second adapter for several engines is a later decision.

Messages have workers of their own. A service that takes minutes to answer would hold one worker after the other, and
with them every act: a storm of endings that people are told of would then stop the engine.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from enum import StrEnum

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


class Duty(StrEnum):
    """What a worker is there for."""

    ACT = "act"
    """Everything but messages."""
    TELL = "tell"
    """Messages that no act of their run waits for."""


class _Queue:
    """Runs that wait for a worker of one duty."""

    def __init__(self, lock: threading.Lock) -> None:
        self.filled = threading.Condition(lock)
        self.waiting: dict[str, None] = {}
        """In the order in which they came."""
        self.again: set[str] = set()
        """Wanted while another worker is at them: they come in when that one has done."""


class Dispatch:
    """Workers and timer.

    Args:
        advance: does what a run can do now, as far as the duty goes; returns when it is due next, None = when an event
            wakes it.
        n_workers: threads of each duty; an act or a message holds one for as long as it takes.
        note_bug: counts an error that nobody foresaw, by where it was.
    """

    def __init__(
        self,
        advance: Callable[[str, Duty], datetime | None],
        clock: Clock,
        n_workers: int,
        note_bug: Callable[[str], None],
    ) -> None:
        self._advance = advance
        self._note_bug = note_bug
        self._clock = clock
        self._n_workers = n_workers
        self._lock = threading.Lock()
        self._due_changed = threading.Condition(self._lock)
        self._due: dict[str, datetime] = {}
        self._heap: list[tuple[datetime, int, str]] = []
        self._n_set = 0
        self._queues = {duty: _Queue(self._lock) for duty in Duty}
        self._running: set[str] = set()
        self._is_stopping = False
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start the threads."""
        self._threads = [threading.Thread(target=self._time, name="timer", daemon=True)]
        self._threads += [
            threading.Thread(target=self._work, args=(duty,), name=f"{duty}-{number}", daemon=True)
            for duty in Duty
            for number in range(1, self._n_workers + 1)
        ]
        for thread in self._threads:
            thread.start()

    def wake(self, run_id: str) -> None:
        """Look at this run as soon as a worker is free; once more when it is being looked at now."""
        with self._lock:
            self._due.pop(run_id, None)
            self._enqueue(run_id, Duty.ACT)

    def tell(self, run_id: str) -> None:
        """Let a worker for messages look at this run; what else is due for it goes on."""
        with self._lock:
            self._enqueue(run_id, Duty.TELL)

    def counts(self) -> tuple[int, int]:
        """Runs with a due time; those whose time has passed and that no worker has taken."""
        now = self._clock.now()
        with self._lock:
            waiting = {run_id for queue in self._queues.values() for run_id in queue.waiting}
            overdue = waiting | {run_id for run_id, at in self._due.items() if at <= now}
            return len(waiting | self._due.keys()), len(overdue)

    def dues(self) -> dict[str, datetime]:
        """Run → when it is looked at next, of those that have a due time."""
        with self._lock:
            return dict(self._due)

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
                duty = next((duty for duty in Duty if self._queues[duty].waiting), None)
                run_id = self._take(duty) if duty is not None else None
                if duty is None or run_id is None:
                    return min(self._due.values(), default=None)
            self._done(run_id, self._look_at(run_id, duty))

    def stop(self, grace: timedelta) -> bool:
        """Take no new work, and wait for what runs.

        Returns:
            Whether all of it ended in time. What did not is found by the next start, as an attempt without an end.
        """
        with self._lock:
            self._is_stopping = True
            for waiting in (self._due_changed, *(queue.filled for queue in self._queues.values())):
                waiting.notify_all()
        until = time.monotonic() + grace.total_seconds()
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    @property
    def is_alive(self) -> bool:
        """Whether all threads run."""
        return bool(self._threads) and all(thread.is_alive() for thread in self._threads)

    def _enqueue(self, run_id: str, duty: Duty) -> None:
        queue = self._queues[duty]
        if run_id in self._running:
            queue.again.add(run_id)
        elif run_id not in queue.waiting:
            queue.waiting[run_id] = None
            queue.filled.notify()

    def _set_due(self, run_id: str, at: datetime | None) -> None:
        self._due.pop(run_id, None)
        if at is not None and run_id not in self._queues[Duty.ACT].waiting:
            self._due[run_id] = at
            # Of those that are due at one moment the first to be judged was the oldest, and is so again.
            self._n_set += 1
            heapq.heappush(self._heap, (at, self._n_set, run_id))
            if self._heap[0][2] == run_id:
                self._due_changed.notify()

    def _time(self) -> None:
        with self._lock:
            while not self._is_stopping:
                now = self._clock.now()
                self._queue_due(now)
                wait_s = LONGEST_WAIT_S
                if self._heap:
                    wait_s = min(wait_s, max(0.001, (self._heap[0][0] - now).total_seconds()))
                self._due_changed.wait(wait_s)

    def _work(self, duty: Duty) -> None:
        while True:
            with self._lock:
                run_id = None
                while not self._is_stopping and (run_id := self._take(duty)) is None:
                    self._queues[duty].filled.wait()
                if run_id is None:
                    return
            self._done(run_id, self._look_at(run_id, duty))

    def _queue_due(self, now: datetime) -> None:
        while self._heap and self._heap[0][0] <= now:
            at, _, run_id = heapq.heappop(self._heap)
            if self._due.get(run_id) == at:
                del self._due[run_id]
                self._enqueue(run_id, Duty.ACT)

    def _take(self, duty: Duty) -> str | None:
        queue = self._queues[duty]
        while queue.waiting:
            run_id = next(iter(queue.waiting))
            del queue.waiting[run_id]
            if run_id not in self._running:
                self._running.add(run_id)
                return run_id
            queue.again.add(run_id)
        return None

    def _done(self, run_id: str, next_at: datetime | None) -> None:
        with self._lock:
            self._running.discard(run_id)
            wanted = [duty for duty, queue in self._queues.items() if run_id in queue.again]
            for duty in wanted:
                self._queues[duty].again.discard(run_id)
                self._enqueue(run_id, duty)
            if Duty.ACT not in wanted:
                self._set_due(run_id, next_at)

    def _look_at(self, run_id: str, duty: Duty) -> datetime | None:
        try:
            return self._advance(run_id, duty)
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
