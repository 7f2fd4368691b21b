"""The one writing connection, owned by one thread.

Takes pieces of work from any thread → runs those that wait together in one transaction, each in a savepoint of its own,
syncs, and only then answers each caller. Many writing connections starve each other, and SQLite before 3.51.3 can lose
pages when two of them checkpoint at once; one of them with group commit is faster too.

It must never answer before the sync, and its thread must never end before ``close``: every failure goes to the callers.
"""

from __future__ import annotations

import os
import queue
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import structlog
from sqlalchemy import Connection
from sqlalchemy.engine import Engine
from sqlalchemy.exc import SQLAlchemyError

from remediator.core.event import Event, RecordedEvent
from remediator.errors import SchemaVersionError, StoreUnavailableError
from remediator.store import audit, schema
from remediator.store.connection import BUSY_TIMEOUT_MS, is_in_transaction, set_writer_pragmas
from remediator.store.prepared import driver
from remediator.store.problems import is_damage, unavailable

T = TypeVar("T")

BATCH_MAX = 200
"""Callers per transaction. Beyond it the commit's cost is shared well enough, and the first would only wait longer."""

QUEUE_MAX = 2000
"""Waiting callers: about a second of work. More than that is better sent again later (503)."""

IDLE_S = 0.5
"""Quiet time after which the WAL is written back and cut to nothing."""

WAL_MAX_BYTES = 64 * 1024 * 1024
"""A WAL that readers kept from being reused is cut at this size, though it costs the writer a short wait."""

WAL_LOOK_EVERY = 16
"""Transactions between two looks at its size."""

WAL_WAIT_MS = 200
"""How long cutting it may wait for readers."""

log = structlog.get_logger(__name__)


class Tx:
    """One caller's part of a transaction. Valid only while its work runs.

    Attributes:
        conn: for statements. Never commit or roll it back: the writer does.
        head: seq and hash of the audit log's last event as this transaction has it, None until it wrote one.
    """

    def __init__(self, conn: Connection, head: tuple[int, str] | None = None) -> None:
        self.conn = conn
        self.head = head
        self.hooks: list[Callable[[], None]] = []

    def append(self, event: Event) -> RecordedEvent:
        """Add an event at the end of the audit log.

        Raises:
            RunLostError: the run has an event of this ``n`` already.
            ValueError: a value that cannot be written canonically.
        """
        recorded = audit.append(self.conn, event, self.head)
        self.head = (recorded.seq, recorded.hash)
        return recorded

    def after_commit(self, hook: Callable[[], None]) -> None:
        """Call this, in the writer's thread, once the transaction is synced and before the caller is answered.

        It must be short and must not write to the store. What it raises is logged.
        """
        self.hooks.append(hook)


@dataclass(slots=True, kw_only=True)
class _Job:
    work: Callable[[Tx], Any]
    answer: Future[Any] = field(default_factory=Future)
    hooks: list[Callable[[], None]] = field(default_factory=list)


class Writer:
    """The thread, its queue and its connection."""

    def __init__(self, engine: Engine, path: Path, *, on_reopen: Callable[[], None], is_scratch: bool = False) -> None:
        """Take over a store whose schema is in order, and start the thread.

        Args:
            engine: opens writing connections.
            path: of the database; watched for being removed or replaced.
            on_reopen: called when the file was opened anew (readers may still hold the old one).
            is_scratch: no thread: who submits commits, unsynced. For one thread alone.
        """
        self._is_scratch = is_scratch
        self._engine = engine
        self._path = path
        self._on_reopen = on_reopen
        self._queue: queue.Queue[_Job | None] = queue.Queue(QUEUE_MAX)
        self._gate = threading.Lock()
        self._is_closed = False
        self._is_wal_dirty = True
        self._n_commits = 0
        self._damage = ""
        self._conn: Connection | None = self._open()
        self._inode = os.stat(path).st_ino
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        if not is_scratch:
            self._thread.start()

    def write(self, work: Callable[[Tx], T], *, timeout_s: float) -> T:
        """As ``Store.write``."""
        answer = self.submit(work)
        try:
            return answer.result(timeout_s)
        except FutureTimeoutError:
            if answer.cancel():
                raise StoreUnavailableError(
                    f"The store did not get to this in {timeout_s:g} s: it is overloaded or its disk hangs; try again"
                ) from None
            return answer.result()  # begun: whether it was kept must be known

    def submit(self, work: Callable[[Tx], T]) -> Future[T]:
        """Queue work; its answer comes once it is synced. Cancelling works until it has begun.

        Raises:
            StoreUnavailableError: closed, or too many wait.
        """
        if threading.current_thread() is self._thread:
            raise RuntimeError("work and hooks run in the writer's thread: writing from there would wait for itself")
        job = _Job(work=work)
        with self._gate:
            if self._is_closed:
                raise StoreUnavailableError("The store is closed: the engine is stopping")
            if self._damage:
                raise StoreUnavailableError(self._damage)
            if self._is_scratch:
                self._commit([job])
                return job.answer
            try:
                self._queue.put_nowait(job)
            except queue.Full:
                raise StoreUnavailableError(
                    f"{QUEUE_MAX} writes wait for the store: it is overloaded or its disk is slow; try again"
                ) from None
        return job.answer

    def close(self) -> None:
        """Finish what waits, write the WAL back, close. Later writes are refused."""
        with self._gate:
            if self._is_closed:
                return
            self._is_closed = True
        if self._is_scratch:
            self._disconnect()
            return
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        is_open = True
        while is_open:
            batch, is_open = self._next_batch()
            if batch:
                self._commit(batch)
            else:
                self._checkpoint()
        self._checkpoint()
        self._disconnect()

    def _next_batch(self) -> tuple[list[_Job], bool]:
        """What waits, and whether more may come. Nothing, while more may come: it has been quiet."""
        batch: list[_Job] = []
        try:
            job = self._queue.get(timeout=IDLE_S if self._is_wal_dirty else None)
            while job is not None:
                batch.append(job)
                if len(batch) == BATCH_MAX:
                    return batch, True
                job = self._queue.get_nowait()
        except queue.Empty:
            return batch, True
        return batch, False

    def _commit(self, batch: list[_Job]) -> None:
        jobs = [job for job in batch if job.answer.set_running_or_notify_cancel()]
        if not jobs:
            return
        answers: dict[int, Any] = {}
        failures: dict[int, BaseException] = {}
        try:
            conn = self._connected()
            conn.begin()  # SQLAlchemy's own, which says nothing to the driver
            driver(conn).execute("BEGIN IMMEDIATE")
            head: tuple[int, str] | None = None
            for place, job in enumerate(jobs):
                head = self._run_job(conn, job, place, head, answers, failures)
            conn.commit()
        except BaseException as error:  # noqa: BLE001  the thread's top: every failure is its callers'
            self._disconnect()  # the next batch opens anew, with all that was open here forgotten
            problem = unavailable(error)
            self._note_damage(error)
            if problem is None:
                _log("store_commit_failed", error)
                problem = StoreUnavailableError(f"The store failed unexpectedly ({type(error).__name__}: {error})")
            for place, job in enumerate(jobs):
                job.answer.set_exception(failures.get(place) or _because(str(problem), error))
            return
        self._is_wal_dirty = True
        for place in answers:
            for hook in jobs[place].hooks:
                try:
                    hook()
                except Exception as error:  # noqa: BLE001  whoever hooked in must not keep others from their answers
                    _log("store_hook_failed", error)
        for place, job in enumerate(jobs):
            if place in failures:
                job.answer.set_exception(failures[place])
            else:
                job.answer.set_result(answers[place])
        self._bound_wal()

    def _run_job(
        self,
        conn: Connection,
        job: _Job,
        place: int,
        head: tuple[int, str] | None,
        answers: dict[int, Any],
        failures: dict[int, BaseException],
    ) -> tuple[int, str] | None:
        """The audit log's head after it, None when this transaction has written no event."""
        tx = Tx(conn, head)
        driver(conn).execute("SAVEPOINT job")
        try:
            answers[place] = job.work(tx)
        except BaseException as error:
            if not is_in_transaction(conn):
                raise  # SQLite has ended the whole transaction: nobody's work is left
            driver(conn).execute("ROLLBACK TO job")
            problem = unavailable(error)
            self._note_damage(error)
            failures[place] = error if problem is None else _because(str(problem), error)
            tx.head = head
        driver(conn).execute("RELEASE job")
        job.hooks = tx.hooks
        return tx.head

    def _note_damage(self, error: BaseException) -> None:
        """After the first damaged page nothing is written any more, or acts would go on by what the others still say.

        The next start looks at every page.
        """
        if is_damage(error) and not self._damage:
            self._damage = f"{unavailable(error)}; nothing is taken or done until the engine is started anew"
            _log("store_damaged", error)

    def _connected(self) -> Connection:
        try:
            inode = os.stat(self._path).st_ino
        except OSError as error:
            self._disconnect()
            raise StoreUnavailableError(
                f"{self._path} cannot be found ({error.strerror}): put the file back, or restore a backup"
            ) from error
        if inode != self._inode:
            self._disconnect()
        if self._conn is None:
            try:
                self._conn = self._open()
            except SchemaVersionError as error:
                raise StoreUnavailableError(f"{self._path} was replaced by another file. {error}") from error
            self._inode = inode
            self._on_reopen()
        return self._conn

    def _open(self) -> Connection:
        conn = self._engine.connect()
        try:
            schema.check_readable(conn)
            set_writer_pragmas(conn, is_scratch=self._is_scratch)
            schema.check_triggers(conn)
            conn.commit()
        except BaseException:
            conn.close()
            raise
        return conn

    def _disconnect(self) -> None:
        conn, self._conn = self._conn, None
        if conn is None:
            return
        try:
            conn.close()
        except (SQLAlchemyError, sqlite3.Error) as error:
            _log("store_close_failed", error)

    def _bound_wal(self) -> None:
        self._n_commits += 1
        if self._n_commits % WAL_LOOK_EVERY:
            return
        try:
            size = os.stat(f"{self._path}-wal").st_size
        except OSError:
            return
        if size > WAL_MAX_BYTES:
            self._checkpoint(WAL_WAIT_MS)

    def _checkpoint(self, wait_ms: int = 0) -> None:
        """Write the WAL back and cut it to nothing, unless readers are in the way for longer than ``wait_ms``."""
        self._is_wal_dirty = False
        if self._conn is None:
            return
        try:
            self._conn.exec_driver_sql(f"PRAGMA busy_timeout={wait_ms}")
            is_busy = self._conn.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()[0]
            self._conn.exec_driver_sql(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
            self._conn.commit()
        except (SQLAlchemyError, sqlite3.Error) as error:
            _log("store_checkpoint_failed", error)
            self._disconnect()
            return
        self._is_wal_dirty = bool(is_busy)


def _log(event: str, error: BaseException) -> None:
    # A log that cannot be written (its disk is full as well) must not end the thread.
    with suppress(Exception):
        log.error(event, problem=str(unavailable(error) or error), exc_info=error)


def _because(text: str, cause: BaseException) -> StoreUnavailableError:
    """An error of its own for each caller: one raised in several threads would mix their tracebacks."""
    error = StoreUnavailableError(text)
    error.__cause__ = cause
    return error
