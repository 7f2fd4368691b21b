"""Whether a file is our store, of which version, and bringing it to this one.

Takes the writing connection → the schema of this version, with the append-only triggers in place, or an error that says
what to do. A migration happens in one transaction, after a backup; when it fails the file is as it was.
"""

from __future__ import annotations

import os
import secrets
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Connection

from remediator.errors import SchemaVersionError, StoreUnavailableError
from remediator.store.tables import meta, metadata

APPLICATION_ID = 0x52454D31
"""In the header of every store ("REM1"), so that another program's database is never taken for ours."""

REVISION = "0001"
"""The newest migration: what this version reads and writes."""

MIGRATIONS = Path(__file__).with_name("migrations")

TRIGGERS = {
    "audit_no_update": (
        "CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit "
        "BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END"
    ),
    "audit_no_delete": (
        "CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit "
        "BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END"
    ),
    "delivery_no_edit": (
        "CREATE TRIGGER delivery_no_edit BEFORE UPDATE OF id, received_at, source, body, body_sha256 ON delivery "
        "BEGIN SELECT RAISE(ABORT, 'a delivery is kept as it came'); END"
    ),
}
"""By name, exactly as the file must hold them."""

_VERSION_TABLE = (
    "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL,"
    " CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
)
"""As Alembic makes it."""


def revision(connection: Connection) -> str:
    """The schema version of this file, "" for one without tables.

    Raises:
        SchemaVersionError: a database that is not ours.
    """
    tables = set(connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'table'").scalars())
    application_id = connection.exec_driver_sql("PRAGMA application_id").scalar_one()
    if not tables and application_id == 0:
        return ""
    if application_id != APPLICATION_ID or "alembic_version" not in tables:
        raise SchemaVersionError(
            "This database belongs to another program (it is not a remediator store): "
            "check the store URL; nothing was changed"
        )
    return str(connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar_one())


def check_readable(connection: Connection) -> None:
    """Refuse what this version cannot read.

    Raises:
        SchemaVersionError: not ours, newer, or older than this version (an engine must bring it up first).
    """
    found = revision(connection)
    if found == REVISION:
        return
    if found and found > REVISION:
        raise SchemaVersionError(_newer(found))
    raise SchemaVersionError(
        f"The store has schema {found or 'none'} and this version reads {REVISION}: start the engine once, it upgrades"
    )


def check_triggers(connection: Connection) -> None:
    """Refuse a file whose append-only triggers were dropped or changed.

    Raises:
        StoreUnavailableError: which trigger, and what to do.
    """
    rows = connection.exec_driver_sql("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
    found = {row.name: row.sql for row in rows}
    for name in sorted(TRIGGERS.keys() | found.keys()):
        if found.get(name) != TRIGGERS.get(name):
            raise StoreUnavailableError(
                f"The store's trigger {name} is not as the engine made it: somebody changed the database. "
                "Run 'remediator audit verify', then restore a backup or put the trigger back"
            )


def check_pages(connection: Connection) -> None:
    """Refuse a damaged file (``PRAGMA quick_check``: every page is read, about two seconds per GB).

    Raises:
        StoreUnavailableError: damaged.
    """
    answer = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one()
    if answer != "ok":
        raise StoreUnavailableError(f"The database is damaged ({answer}): keep the file and restore the latest backup")


def migrate(connection: Connection, path: Path, *, folder: Path = MIGRATIONS, to: str = REVISION) -> None:
    """Bring the file to this version, in one transaction, after a backup of what was there.

    Args:
        connection: the writing one, outside a transaction.
        path: of the database; the backup is ``<path>.backup-<revision>-<utc>``.
        folder: of the migrations.
        to: the revision wanted.

    Raises:
        SchemaVersionError: not ours, or written by a newer version.
        StoreUnavailableError: a trigger is not in place afterwards; nothing was changed.
    """
    found = revision(connection)
    if found == to:
        return
    if found > to:
        raise SchemaVersionError(_newer(found))
    if found:
        _back_up(connection, path, found)
    from alembic import command  # most commands open a store that needs no migration
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    config.attributes["connection"] = connection
    connection.exec_driver_sql("BEGIN IMMEDIATE")
    try:
        command.upgrade(config, to)
        check_triggers(connection)
    except BaseException:
        connection.rollback()
        raise
    connection.commit()


def make_scratch(connection: Connection) -> None:
    """What ``migrate`` makes of a new file, at once and the same (a test compares): for stores of stories.

    Args:
        connection: the writing one, outside a transaction.
    """
    connection.exec_driver_sql("BEGIN IMMEDIATE")
    metadata.create_all(connection)
    for trigger in TRIGGERS.values():
        connection.exec_driver_sql(trigger)
    connection.exec_driver_sql(_VERSION_TABLE)
    connection.exec_driver_sql("INSERT INTO alembic_version VALUES (?)", (REVISION,))
    connection.execute(meta.insert().values(key="log_id", value=secrets.token_hex(32)))
    connection.exec_driver_sql(f"PRAGMA application_id={APPLICATION_ID}")
    connection.commit()


def _newer(found: str) -> str:
    return (
        f"The store was written by a newer version (schema {found}; this one knows up to {REVISION}): "
        "install that version, or restore the backup that it made beside the database when it upgraded"
    )


def _back_up(connection: Connection, path: Path, found: str) -> None:
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    backup = path.with_name(f"{path.name}.backup-{found}-{now}")
    # VACUUM INTO takes an empty file: made first, so that nobody else can read the copy.
    fd = os.open(backup, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    try:
        connection.exec_driver_sql("VACUUM INTO ?", (str(backup),))
        os.fsync(fd)
    finally:
        os.close(fd)
