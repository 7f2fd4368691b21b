"""The store as the rest sees it: open it to write (one engine), or to read (any command, while the engine runs or not).

Takes a store URL → ``Store`` or ``ReadStore``. What is wrong with the file is said here, at start, before work begins.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TypeAlias, TypeVar

from sqlalchemy import Connection
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.engine import Engine

from remediator.core.event import utc_text
from remediator.errors import StoreUnavailableError
from remediator.store import schema
from remediator.store.connection import reading_engine, set_writer_pragmas, store_path, writing_engine
from remediator.store.lock import StoreLock
from remediator.store.prepared import driver
from remediator.store.problems import unavailable
from remediator.store.tables import control
from remediator.store.writer import Tx, Writer

T = TypeVar("T")

Snapshot: TypeAlias = Connection
"""What ``read`` gives: a read-only connection that sees one moment. Callers outside the store name it so."""

WRITE_TIMEOUT_S = 30.0
"""How long work waits to begin. Far above what a full queue takes (seconds): who still waits then is behind a disk that
hangs, and has to be told."""

HEALTH_MAX_AGE_S = 1.0
"""How long an answer of ``is_ok`` is good: a probe is a synced write, and anybody may ask."""

READ_THROUGH_BYTES = 2**20
"""At a time; the disk's own read-ahead is of this order."""

HEALTH_WAIT_S = 5.0
"""A probe that has no answer by then is the answer: above the wait for another process' lock."""


class Store:
    """The engine's store: one writer, many readers, and the lock that keeps a second engine away."""

    def __init__(self, path: Path, lock: StoreLock, engine: Engine, *, is_scratch: bool = False) -> None:
        self._lock = lock
        self._reading = reading_engine(path)
        self._is_scratch = is_scratch
        self._kept: Connection | None = None
        """The one reader of a scratch store, where nobody reads with it: one thread alone needs no more."""
        self._writer = Writer(engine, path, on_reopen=self._reading.dispose, is_scratch=is_scratch)
        self._health_gate = threading.Lock()
        self._health = "ok"
        self._health_until = 0.0

    def write(self, work: Callable[[Tx], T], *, timeout_s: float = WRITE_TIMEOUT_S) -> T:
        """Run work in a transaction; return what it returned once that is committed **and synced**.

        Others' work may share the transaction; each has a savepoint, so that one failure takes nobody along.

        Args:
            work: called once, in the writer's thread. Short, no I/O but the store.
            timeout_s: give up after so long if the work has not begun (it will not be done later); once it has begun,
                its answer is waited for.

        Raises:
            StoreUnavailableError: not committed: the disk is full, read-only, locked, damaged; too many wait; closed.
            Exception: what the work raised; nothing of it is kept.
        """
        return self._writer.write(work, timeout_s=timeout_s)

    def submit(self, work: Callable[[Tx], T]) -> Future[T]:
        """As ``write``, without waiting: the future has what ``work`` returned once it is committed and synced.

        Cancelling it works until the work has begun; then it is never done.

        Raises:
            StoreUnavailableError: too many wait, or the store is closed.
        """
        return self._writer.submit(work)

    @contextmanager
    def read(self) -> Iterator[Snapshot]:
        """A read-only connection that sees one moment of the store for the whole block.

        Raises:
            StoreUnavailableError: the file cannot be read.
        """
        if self._is_scratch:
            kept, self._kept = self._kept or self._reading.connect(), None
            begin = driver(kept).execute("BEGIN")
            try:
                yield kept
            finally:
                begin.execute("ROLLBACK")
                self._keep(kept)
            return
        with _snapshot(self._reading) as connection:
            yield connection

    def _keep(self, reader: Connection) -> None:
        if self._kept is None:
            self._kept = reader
        else:
            reader.close()

    def is_ok(self) -> str:
        """ "ok", or what is wrong: whether a small write can be committed and synced now."""
        with self._health_gate:
            if time.monotonic() >= self._health_until:
                self._health = self._probe()
                self._health_until = time.monotonic() + HEALTH_MAX_AGE_S
            return self._health

    def close(self) -> None:
        """Finish what waits, close, let the lock go. Later writes are refused; a second closing changes nothing."""
        if self._kept is not None:
            self._kept.close()
        self._reading.dispose()  # the connection that closes last removes the WAL, and a reader may not
        self._writer.close()
        self._reading.dispose()
        self._lock.release()

    def _probe(self) -> str:
        try:
            answer = self._writer.submit(_write_probe)
            try:
                answer.result(HEALTH_WAIT_S)
            except FutureTimeoutError:
                answer.cancel()
                return f"The store has not answered for {HEALTH_WAIT_S:g} s: it is overloaded or its disk hangs"
        except StoreUnavailableError as error:
            return str(error)
        return "ok"


class ReadStore:
    """A store opened by a command that only reads. Changes nothing, and needs no running engine."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_immutable = False
        self._engine = reading_engine(path)

    @contextmanager
    def read(self) -> Iterator[Snapshot]:
        """As ``Store.read``."""
        before = _stamp(self._path) if self._is_immutable else None
        with _snapshot(self._engine) as connection:
            yield connection
        if self._is_immutable and _stamp(self._path) != before:
            raise StoreUnavailableError(f"{self._path} changed while it was read: try again")

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    def check(self) -> None:
        """See that the file can be read, and is ours.

        Raises:
            StoreUnavailableError, SchemaVersionError: what is wrong.
        """
        try:
            self._check()
        except StoreUnavailableError:
            # In a folder that we cannot write SQLite cannot make the -shm file that it coordinates by. Without a WAL
            # nobody writes, and the file by itself is the whole truth.
            if os.access(self._path.parent, os.W_OK) or _has_wal(self._path) or not os.access(self._path, os.R_OK):
                raise
            self._engine.dispose()
            self._engine = reading_engine(self._path, is_immutable=True)
            self._is_immutable = True
            self._check()

    def _check(self) -> None:
        with self.read() as connection:
            schema.check_readable(connection)


def open_store(url: str, *, is_scratch: bool = False) -> Store:
    """Open the store to write: make or upgrade it, and see that it is whole.

    Args:
        url: ``sqlite:////absolute/path.db``. Made, with its folder, when it is not there (modes 0600, 0700).
        is_scratch: nobody needs it after this process: nothing is synced, and one thread alone writes, without a
            writer's thread beside it. For stories, of which each needs a store of its own within milliseconds.

    Raises:
        SettingsError: not such a URL.
        StoreInUseError: another engine has it.
        SchemaVersionError: not ours, or of a newer version.
        StoreUnavailableError: cannot be opened, or damaged.
    """
    path = store_path(url)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = path.resolve()
    except OSError as error:
        raise StoreUnavailableError(f"Cannot make the folder {path.parent}: {error.strerror}") from error
    lock = StoreLock(path)
    try:
        return _open(path, lock, is_scratch=is_scratch)
    except BaseException as error:
        lock.release()
        problem = unavailable(error)
        if problem is None or problem is error:
            raise
        raise StoreUnavailableError(f"{path}: {problem}") from error


def open_readonly(url: str) -> ReadStore:
    """Open the store to read, whether an engine runs or not.

    Raises:
        SettingsError: not a store URL.
        StoreUnavailableError: no such file, or it cannot be read.
        SchemaVersionError: not ours, or of another version.
    """
    path = store_path(url)
    if not path.exists():
        raise StoreUnavailableError(
            f"There is no store at {path}: give the engine's own --config or store URL, or start it once"
        )
    store = ReadStore(path.resolve())
    try:
        store.check()
    except BaseException:
        store.close()
        raise
    return store


def _open(path: Path, lock: StoreLock, *, is_scratch: bool) -> Store:
    if is_scratch and not path.exists():
        path.write_bytes(_empty_store())
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise StoreUnavailableError(f"Cannot open {path}: {error.strerror}") from error
    engine = writing_engine(path)
    if is_scratch:
        return Store(path, lock, engine, is_scratch=True)
    with engine.connect() as connection:
        schema.revision(connection)  # before anything is set: another program's file must stay as it is
        set_writer_pragmas(connection)
        schema.migrate(connection, path)
        _read_through(path)
        schema.check_pages(connection)
    return Store(path, lock, engine)


@cache
def _empty_store() -> bytes:
    """The file of a store in which nothing has happened yet; the migrations take longer than a whole story."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "empty.db"
        path.touch()
        with writing_engine(path).connect() as connection:
            set_writer_pragmas(connection, is_scratch=True)
            schema.make_scratch(connection)
        return path.read_bytes()


def _read_through(path: Path) -> None:
    """Read the file from its beginning to its end, so that the kernel has its pages.

    The check of the pages goes from one to the next as the tables and indexes do, all over the file: from a disk that
    is half a minute for 1.4 GB, and four seconds after this. (In a thread beside the check it takes longer, where the
    disk is slow: the check's own reads come in between.)
    """
    with suppress(OSError), path.open("rb", buffering=0) as file:  # the check meets the same error, and says it
        while file.read(READ_THROUGH_BYTES):
            pass


@contextmanager
def _snapshot(engine: Engine) -> Iterator[Snapshot]:
    try:
        with engine.connect() as connection:
            driver(connection).execute("BEGIN")  # SQLAlchemy's own way takes as long as all the rest of it
            try:
                yield connection
            finally:
                connection.rollback()
    except Exception as error:
        problem = unavailable(error)
        if problem is None or problem is error:
            raise
        engine.dispose()
        raise problem from error


def _write_probe(tx: Tx) -> None:
    value = f'{{"at":"{utc_text(datetime.now(UTC))}"}}'
    statement = insert(control).values(key="probe", value=value)
    tx.conn.execute(statement.on_conflict_do_update(index_elements=[control.c.key], set_={"value": value}))


def _has_wal(path: Path) -> bool:
    try:
        return os.stat(f"{path}-wal").st_size > 0
    except OSError:
        return False


def _stamp(path: Path) -> tuple[int, int, bool]:
    found = os.stat(path)
    return found.st_mtime_ns, found.st_size, _has_wal(path)
