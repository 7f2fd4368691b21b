"""Opening: whose file it is, of which version, whole or not; and reading it while an engine runs, or none."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy.exc import IntegrityError

from remediator.core.alert import RawDelivery
from remediator.core.event import Event
from remediator.errors import SchemaVersionError, SettingsError, StoreUnavailableError
from remediator.store import audit, inbox, schema
from remediator.store.connection import WRITER_PRAGMAS, store_path
from remediator.store.engine import Store, open_readonly, open_store

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Another user may go in there, unlike the folders that pytest makes."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def as_nobody(store_function: str, url: str) -> str:
    """Open the store as another user; what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, store_function, url], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.strip()


# The user is changed after the imports: the interpreter may lie where only root can read.
AS_NOBODY = """
import os, sys
from remediator.errors import StoreError
from remediator.store import audit, engine
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
try:
    with getattr(engine, sys.argv[1])(sys.argv[2]).read() as conn:
        print("last", audit.last_seq(conn))
except StoreError as error:
    print(type(error).__name__, error)
"""


def run_sql(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param("remediator.db", id="no scheme"),
        pytest.param("postgresql://host/db", id="another database"),
        pytest.param("sqlite://", id="no file"),
        pytest.param("sqlite:///:memory:", id="nothing that lasts"),
        pytest.param("sqlite:////a/b.db?mode=ro", id="options"),
        pytest.param("sqlite://b.db", id="two slashes"),
    ],
)
def test_store_path_when_the_url_names_no_file_then_says_what_to_write(wrong: str) -> None:
    with pytest.raises(SettingsError, match="write sqlite:////absolute"):
        store_path(wrong)


def test_open_store_when_new_then_only_its_owner_can_read_it(store: Store, path: Path) -> None:
    store.write(lambda tx: None)

    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in [path.parent, *path.parent.iterdir()]}
    assert modes.pop(path.parent.name) == 0o700
    assert set(modes.values()) == {0o600}


def test_open_store_sets_what_durability_rests_on(store: Store) -> None:
    found = store.write(
        lambda tx: {name: tx.conn.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in WRITER_PRAGMAS}
    )

    assert found == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "recursive_triggers": 1}


def test_open_store_when_the_folder_name_is_odd_then_works(tmp_path: Path) -> None:
    path = tmp_path / "a b#d%20é" / "x.db"
    store = open_store(f"sqlite:///{path}")
    store.close()

    assert path.exists()


def test_open_store_again_then_what_was_kept_is_there(url: str, event: Callable[..., Event]) -> None:
    store = open_store(url)
    first = store.write(lambda tx: tx.append(event()))
    store.close()
    store = open_store(url)
    second = store.write(lambda tx: tx.append(event()))
    store.close()

    assert (second.seq, second.prev_hash) == (2, first.hash)


def test_open_store_when_the_file_is_empty_then_begins_it(path: Path, url: str) -> None:
    path.parent.mkdir()
    path.touch()

    store = open_store(url)
    assert store.is_ok() == "ok"
    store.close()


def test_open_store_when_the_database_is_another_programs_then_leaves_it_as_it_is(path: Path, url: str) -> None:
    path.parent.mkdir()
    run_sql(path, "CREATE TABLE theirs (a)")
    before = path.read_bytes()

    with pytest.raises(SchemaVersionError, match="another program"):
        open_store(url)
    with pytest.raises(SchemaVersionError, match="another program"):
        open_readonly(url)
    assert path.read_bytes() == before


def test_open_store_when_the_file_is_no_database_then_says_so(path: Path, url: str) -> None:
    path.parent.mkdir()
    path.write_text("a letter to a friend, long enough to be read as a header of a database\n" * 99)

    with pytest.raises(StoreUnavailableError, match="not a database"):
        open_store(url)
    with pytest.raises(StoreUnavailableError, match="not a database"):
        open_readonly(url)


def test_open_store_when_a_newer_version_wrote_it_then_says_what_to_install(path: Path, url: str) -> None:
    open_store(url).close()
    run_sql(path, "UPDATE alembic_version SET version_num = '0999'")

    with pytest.raises(SchemaVersionError, match=r"newer version.*0999"):
        open_store(url)
    with pytest.raises(SchemaVersionError, match=r"newer version.*0999"):
        open_readonly(url)


@pytest.mark.parametrize("trigger", sorted(schema.TRIGGERS))
def test_open_store_when_a_trigger_was_dropped_then_refuses(path: Path, url: str, trigger: str) -> None:
    open_store(url).close()
    run_sql(path, f"DROP TRIGGER {trigger}")

    with pytest.raises(StoreUnavailableError, match=trigger):
        open_store(url)


def test_open_store_when_a_trigger_was_made_harmless_then_refuses(path: Path, url: str) -> None:
    open_store(url).close()
    run_sql(
        path,
        "DROP TRIGGER audit_no_update",
        "CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit BEGIN SELECT 1; END",
    )

    with pytest.raises(StoreUnavailableError, match="audit_no_update"):
        open_store(url)


def test_open_store_when_a_page_is_damaged_then_says_to_restore_a_backup(
    path: Path, url: str, event: Callable[..., Event]
) -> None:
    store = open_store(url)
    for _ in range(5):
        store.write(lambda tx: [tx.append(event(target="x" * 500)) for _ in range(50)])
    store.close()
    with closing(sqlite3.connect(path)) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'audit'").fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    with path.open("r+b") as file:
        file.seek((page - 1) * size)  # pages count from 1
        file.write(b"\xff" * size)

    with pytest.raises(StoreUnavailableError, match="damaged"):
        open_store(url)
    with pytest.raises(StoreUnavailableError, match="damaged"), open_readonly(url).read() as conn:
        audit.verify(conn)


def test_open_store_when_pages_are_checked_then_the_file_was_read_through_before(
    path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def n_read() -> int:
        return int(Path("/proc/self/io").read_text().split()[1])

    open_store(url).close()
    n_bytes = 32 * 2**20
    run_sql(path, "CREATE TABLE large (value)", f"INSERT INTO large VALUES (zeroblob({n_bytes}))")
    before = n_read()
    seen: list[int] = []
    monkeypatch.setattr(schema, "check_pages", lambda _: seen.append(n_read() - before))

    open_store(url).close()
    assert len(seen) == 1
    assert seen[0] >= n_bytes


def test_open_store_when_it_is_a_folder_then_says_so(path: Path, url: str) -> None:
    path.mkdir(parents=True)

    with pytest.raises(StoreUnavailableError, match="Is a directory"):
        open_store(url)


@pytest.mark.parametrize(
    "statement",
    [
        pytest.param("UPDATE audit SET actor = 'x'", id="an edit"),
        pytest.param("DELETE FROM audit", id="a deletion"),
        pytest.param("INSERT OR REPLACE INTO audit SELECT * FROM audit WHERE seq = 1", id="a replacement"),
        pytest.param("UPDATE delivery SET body = x'00'", id="an edit of a delivery"),
        pytest.param("UPDATE delivery SET received_at = ''", id="an edit of a delivery's time"),
    ],
)
def test_triggers_when_our_own_code_has_a_bug_then_stop(
    store: Store, event: Callable[..., Event], raw: Callable[..., RawDelivery], statement: str
) -> None:
    store.write(lambda tx: (tx.append(event()), inbox.store_delivery(tx, raw())))

    with pytest.raises(IntegrityError, match=r"append-only|as it came"):
        store.write(lambda tx: tx.conn.exec_driver_sql(statement))


def test_open_readonly_when_there_is_no_file_then_makes_none(path: Path, url: str) -> None:
    with pytest.raises(StoreUnavailableError, match="There is no store at"):
        open_readonly(url)
    assert not path.parent.exists()


def test_open_readonly_while_an_engine_runs_sees_what_it_writes(
    store: Store, url: str, event: Callable[..., Event]
) -> None:
    reader = open_readonly(url)
    store.write(lambda tx: tx.append(event()))
    with reader.read() as conn:
        first = audit.last_seq(conn)
    store.write(lambda tx: tx.append(event()))
    with reader.read() as conn:
        second = audit.last_seq(conn)
    reader.close()

    assert (first, second) == (1, 2)


def test_open_readonly_after_the_engine_stopped_reads_and_leaves_the_file_as_it_is(
    path: Path, url: str, event: Callable[..., Event]
) -> None:
    store = open_store(url)
    store.write(lambda tx: tx.append(event()))
    store.close()
    before = path.read_bytes()

    reader = open_readonly(url)
    with reader.read() as conn:
        assert audit.last_seq(conn) == 1
    reader.close()
    assert path.read_bytes() == before


@pytest.mark.system
@needs_root
def test_open_readonly_in_a_folder_that_one_cannot_write_reads_all_the_same(
    open_folder: Path, event: Callable[..., Event]
) -> None:
    url = f"sqlite:///{open_folder}/x.db"
    store = open_store(url)
    store.write(lambda tx: tx.append(event()))
    store.close()
    (open_folder / "x.db").chmod(0o644)

    assert as_nobody("open_readonly", url) == "last 1"
    assert sorted(file.name for file in open_folder.iterdir()) == ["x.db", "x.db.lock"]


@pytest.mark.system
@needs_root
def test_open_readonly_in_a_folder_that_one_cannot_write_while_the_engine_runs_reads_what_is_new(
    open_folder: Path, event: Callable[..., Event]
) -> None:
    url = f"sqlite:///{open_folder}/x.db"
    store = open_store(url)
    store.write(lambda tx: tx.append(event()))
    for file in open_folder.iterdir():
        file.chmod(0o644)

    found = as_nobody("open_readonly", url)
    store.close()
    assert found == "last 1"


@pytest.mark.system
@needs_root
def test_open_readonly_when_one_may_not_read_it_then_says_so(open_folder: Path) -> None:
    url = f"sqlite:///{open_folder}/x.db"
    open_store(url).close()

    assert as_nobody("open_readonly", url).startswith(
        "StoreUnavailableError The store is not available: the file cannot be opened"
    )


@pytest.mark.system
@needs_root
def test_open_store_when_one_may_not_write_it_then_says_so(open_folder: Path) -> None:
    url = f"sqlite:///{open_folder}/x.db"
    open_store(url).close()

    assert as_nobody("open_store", url).startswith(
        f"StoreUnavailableError Cannot open {open_folder}/x.db.lock: Permission"
    )
