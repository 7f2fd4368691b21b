"""What SQLite's errors mean for us: which ones say "the store is away", and what a person does about each.

Takes an error of the driver or of SQLAlchemy → a ``StoreUnavailableError`` with what to do, or None when the error is
not about the store's health (a broken constraint, a bug in a statement) and must reach its caller as it is.
"""

from __future__ import annotations

import sqlite3

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from remediator.errors import StoreUnavailableError

ADVICE: dict[int, str] = {
    sqlite3.SQLITE_FULL: "the disk is full: free space; the engine goes on by itself",
    sqlite3.SQLITE_READONLY: "the database is read-only: check the file's owner and mode and the mount",
    sqlite3.SQLITE_BUSY: "another process holds a lock on the database: end it (fuser shows which)",
    sqlite3.SQLITE_LOCKED: "another connection holds a lock on the database",
    sqlite3.SQLITE_PROTOCOL: "locking failed: the database must lie on a local disk, not on NFS or SMB",
    sqlite3.SQLITE_NOLFS: "the file system cannot hold a file of this size: move the database",
    sqlite3.SQLITE_IOERR: "reading or writing the disk failed: look at the kernel log (dmesg) and the disk's health",
    sqlite3.SQLITE_CORRUPT: "the database is damaged: stop the engine, keep the file, restore the latest backup",
    sqlite3.SQLITE_NOTADB: "the file is not a database or its header is damaged: check the URL, or restore a backup",
    sqlite3.SQLITE_FORMAT: "the database is damaged: stop the engine, keep the file, restore the latest backup",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened: check that its folder exists and who may read and write it",
    sqlite3.SQLITE_PERM: "access was refused: check the file's owner and mode",
    sqlite3.SQLITE_AUTH: "access was refused: check the file's owner and mode",
    sqlite3.SQLITE_NOMEM: "no memory is left: look for what uses it; the engine goes on by itself",
    sqlite3.SQLITE_INTERRUPT: "the statement was interrupted: try again",
}
"""By primary result code (https://www.sqlite.org/rescode.html). Codes of ``NOT_OURS`` are left to the caller."""

DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT})
"""What no waiting mends."""

NOT_OURS = frozenset(
    {
        sqlite3.SQLITE_OK,
        sqlite3.SQLITE_ERROR,
        sqlite3.SQLITE_INTERNAL,
        sqlite3.SQLITE_ABORT,
        sqlite3.SQLITE_NOTFOUND,
        sqlite3.SQLITE_EMPTY,
        sqlite3.SQLITE_SCHEMA,
        sqlite3.SQLITE_TOOBIG,
        sqlite3.SQLITE_CONSTRAINT,
        sqlite3.SQLITE_MISMATCH,
        sqlite3.SQLITE_MISUSE,
        sqlite3.SQLITE_RANGE,
        sqlite3.SQLITE_NOTICE,
        sqlite3.SQLITE_WARNING,
        sqlite3.SQLITE_ROW,
        sqlite3.SQLITE_DONE,
    }
)
"""A wrong statement or value: bugs and broken constraints, not the store's health."""


def unavailable(error: BaseException) -> StoreUnavailableError | None:
    """What this error means for the store.

    Args:
        error: from ``sqlite3`` or SQLAlchemy (its ``orig`` is looked at).

    Returns:
        The error to raise instead, with what to do; None when it does not say that the store is away.
    """
    if isinstance(error, StoreUnavailableError):
        return error
    if isinstance(error, PoolTimeoutError):
        return StoreUnavailableError("Too many readers wait for the store: try again")
    cause = error.orig if isinstance(error, DBAPIError) else error
    advice = ADVICE.get(_code(error))
    if advice is None:
        return None
    name = getattr(cause, "sqlite_errorname", "")
    return StoreUnavailableError(f"The store is not available: {advice} ({name}: {cause})")


def is_damage(error: BaseException) -> bool:
    """Whether an error of ``sqlite3`` or SQLAlchemy says that the file is damaged."""
    return _code(error) in DAMAGE


def _code(error: BaseException) -> int:
    """The primary result code; ``SQLITE_OK`` for what has none."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    return int(getattr(cause, "sqlite_errorcode", sqlite3.SQLITE_OK)) & 0xFF if isinstance(cause, sqlite3.Error) else 0
