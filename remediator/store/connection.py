"""Connections to the one SQLite file, and the settings that durability rests on.

Takes a store URL → a writing connection (one per engine, ``writer``) or read-only ones. The driver's own transactions
are switched off (``isolation_level=None``): they begin late, so that two deciders both read before either writes. Here
every transaction is begun by an explicit statement.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Connection, create_engine
from sqlalchemy.engine import Engine
from sqlalchemy.pool import NullPool, QueuePool

from remediator.errors import SettingsError, StoreUnavailableError

BUSY_TIMEOUT_MS = 3000
"""How long a statement waits for another process' lock. Below the 10 s that senders commonly wait for an answer."""

WRITER_PRAGMAS = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "recursive_triggers": 1}
"""Asserted after they were set. ``synchronous`` 2 (FULL): a commit returns after the WAL is synced.
``recursive_triggers``: without it ``INSERT OR REPLACE`` deletes rows without firing the append-only triggers."""

N_READERS = 20
"""Read connections at most: more than web and engine threads that read at one time."""

READER_WAIT_S = 10.0
"""How long a thread waits for one of them. They are held for milliseconds, so that a longer wait means that something
hangs: an error is better then than a thread that waits with it."""


def store_path(url: str) -> Path:
    """The file of a store URL.

    Args:
        url: ``sqlite:////absolute/path.db``.

    Raises:
        SettingsError: another kind of URL, or one without a file.
    """
    path = url.removeprefix("sqlite:///")
    # The URL is not repeated in the message: one of another kind may hold a password.
    if path == url or not path or path == ":memory:" or "?" in path:
        raise SettingsError("The store URL names no SQLite file: write sqlite:////absolute/path.db")
    return Path(path).absolute()


def writing_engine(path: Path) -> Engine:
    """For the one writing connection. The file must exist: one that vanished is never silently begun anew."""

    def connect() -> sqlite3.Connection:
        connection = _connect(path, "mode=rw")
        connection.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
        return connection

    return create_engine("sqlite://", creator=connect, poolclass=NullPool)


def reading_engine(path: Path, *, is_immutable: bool = False) -> Engine:
    """A pool of read-only connections. They never checkpoint.

    Args:
        is_immutable: read without locks and without a WAL; only right while nobody writes.
    """

    def connect() -> sqlite3.Connection:
        connection = _connect(path, "mode=ro&immutable=1" if is_immutable else "mode=ro")
        connection.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
        connection.execute("PRAGMA query_only=ON")
        # Text that is not UTF-8 is somebody else's: it must show as a difference, not break the reading.
        connection.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
        return connection

    return create_engine(
        "sqlite://",
        creator=connect,
        poolclass=QueuePool,
        pool_size=N_READERS,
        max_overflow=0,
        pool_timeout=READER_WAIT_S,
    )


def set_writer_pragmas(connection: Connection, *, is_scratch: bool = False) -> None:
    """Set what durability and the append-only triggers rest on, and read it back.

    Args:
        is_scratch: of a store that nobody needs after this process: nothing is synced.

    Raises:
        StoreUnavailableError: a setting did not take (an odd build, or a file system that cannot do WAL).
    """
    pragmas = {**WRITER_PRAGMAS, "synchronous": 0} if is_scratch else WRITER_PRAGMAS
    for name, wanted in pragmas.items():
        connection.exec_driver_sql(f"PRAGMA {name}={wanted}")
    for name, wanted in pragmas.items():
        actual = connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
        if actual != wanted:
            raise StoreUnavailableError(
                f"SQLite did not take PRAGMA {name}={wanted} (it says {actual}): "
                "the database must lie on a local disk that it can write"
            )


def is_in_transaction(connection: Connection) -> bool:
    """Whether SQLite itself still has a transaction open; some errors (disk full, I/O) end it wholly."""
    driver = connection.connection.driver_connection
    return isinstance(driver, sqlite3.Connection) and driver.in_transaction


def _connect(path: Path, options: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"file:{quote(str(path))}?{options}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )
