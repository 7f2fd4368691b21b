"""The schema that the migrations make, and an upgrade that goes wrong."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine
from sqlalchemy.exc import OperationalError

from remediator.core.event import Event
from remediator.errors import SchemaVersionError, StoreUnavailableError
from remediator.store import schema
from remediator.store.connection import writing_engine
from remediator.store.engine import open_store
from remediator.store.tables import metadata

NEXT = """
from alembic import op
revision = "0002"
down_revision = "0001"
def upgrade():
    op.execute("CREATE TABLE added (a)")
    {more}
"""


def objects(connection: sqlite3.Connection) -> dict[str, str]:
    """Name → SQL, with all white space alike."""
    rows = connection.execute(
        "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'"
    ).fetchall()
    return {name: " ".join(sql.split()).replace(" ,", ",").replace("( ", "(").replace(" )", ")") for name, sql in rows}


@pytest.fixture
def old(url: str, path: Path, event: Callable[..., Event]) -> Path:
    """A store of this version with an event in it."""
    store = open_store(url)
    store.write(lambda tx: tx.append(event()))
    store.close()
    return path


@pytest.fixture
def upgrade(tmp_path: Path, old: Path) -> Callable[..., None]:
    """Runs a next migration on it."""

    def run(more: str = "") -> None:
        folder = tmp_path / "migrations"
        shutil.copytree(schema.MIGRATIONS, folder)
        (folder / "versions" / "0002_next.py").write_text(NEXT.format(more=more))
        with writing_engine(old).connect() as connection:
            schema.migrate(connection, old, folder=folder, to="0002")

    return run


def test_migrations_make_what_the_tables_say(url: str, path: Path) -> None:
    open_store(url).close()
    with closing(sqlite3.connect(path)) as migrated:
        found = objects(migrated)
    wanted_engine = create_engine("sqlite://")
    with wanted_engine.connect() as connection:
        metadata.create_all(connection)
        driver = connection.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        wanted = objects(driver)

    assert {name: sql for name, sql in found.items() if name not in {*schema.TRIGGERS, "alembic_version"}} == wanted


def test_scratch_store_is_what_the_migrations_make(url: str, path: Path, tmp_path: Path) -> None:
    open_store(url).close()
    scratch = tmp_path / "scratch.db"
    open_store(f"sqlite:///{scratch}", is_scratch=True).close()
    with closing(sqlite3.connect(path)) as migrated, closing(sqlite3.connect(scratch)) as made:
        assert _whole(made) == _whole(migrated)
        assert len(made.execute("SELECT value FROM meta WHERE key = 'log_id'").fetchone()[0]) == 64


def _whole(connection: sqlite3.Connection) -> tuple[object, ...]:
    """All but the log's own id."""
    one = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "journal_mode")]
    versions = connection.execute("SELECT * FROM alembic_version").fetchall()
    keys = connection.execute("SELECT key FROM meta").fetchall()
    return one, versions, keys, objects(connection)


def test_revision_is_the_newest_migration() -> None:
    config = Config()
    config.set_main_option("script_location", str(schema.MIGRATIONS))

    assert ScriptDirectory.from_config(config).get_heads() == [schema.REVISION]


def test_migrate_when_new_then_gives_every_store_its_own_log_id(tmp_path: Path) -> None:
    found = set()
    for name in ("a.db", "b.db"):
        open_store(f"sqlite:///{tmp_path}/{name}").close()
        with closing(sqlite3.connect(tmp_path / name)) as connection:
            found.add(connection.execute("SELECT value FROM meta WHERE key = 'log_id'").fetchone()[0])

    assert sorted(len(log_id) for log_id in found) == [64, 64]


def test_migrate_when_new_then_makes_no_backup(url: str, path: Path) -> None:
    open_store(url).close()

    assert list(path.parent.glob("*.backup-*")) == []


def test_migrate_when_the_store_is_older_then_backs_it_up_first(old: Path, upgrade: Callable[..., None]) -> None:
    upgrade()

    [backup] = old.parent.glob("remediator.db.backup-0001-*Z")
    assert backup.stat().st_mode & 0o777 == 0o600
    with closing(sqlite3.connect(backup)) as copy, closing(sqlite3.connect(old)) as upgraded:
        assert copy.execute("SELECT count(*) FROM audit").fetchone() == (1,)
        assert "added" not in objects(copy)
        assert schema.TRIGGERS.keys() <= objects(copy).keys()
        assert "added" in objects(upgraded)
        assert upgraded.execute("SELECT version_num FROM alembic_version").fetchone() == ("0002",)


def test_migrate_when_it_fails_then_the_store_is_as_it_was(url: str, old: Path, upgrade: Callable[..., None]) -> None:
    with closing(sqlite3.connect(old)) as connection:
        before = list(connection.iterdump())

    with pytest.raises(OperationalError, match="no such table"):
        upgrade('op.execute("UPDATE nowhere SET a = 1")')

    with closing(sqlite3.connect(old)) as connection:
        assert list(connection.iterdump()) == before
    open_store(url).close()


def test_migrate_when_it_loses_a_trigger_then_is_taken_back(url: str, old: Path, upgrade: Callable[..., None]) -> None:
    with pytest.raises(StoreUnavailableError, match="audit_no_delete"):
        upgrade('op.execute("DROP TRIGGER audit_no_delete")')

    open_store(url).close()


def test_open_store_after_a_downgrade_names_the_version_and_the_backup(url: str, upgrade: Callable[..., None]) -> None:
    upgrade()

    with pytest.raises(SchemaVersionError, match=r"schema 0002.*backup"):
        open_store(url)
