"""Looking back in a snapshot: nothing is written, and nothing of it stays."""

from __future__ import annotations

import hashlib
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import insert

from remediator.core.event import utc_text
from remediator.store import Connection, past, runs
from remediator.store.engine import ReadStore, Store, open_readonly
from remediator.store.prepared import driver
from remediator.store.tables import lease, metadata, run, subject
from remediator.store.writer import Tx

AT = datetime(2026, 1, 31, 14, 0, 0, tzinfo=UTC)

AS_IT_IS = {"meta", "delivery", "audit", "episode", "subject_episode", "due", "told", "able"}
"""Tables that no guard counts on, or that are never written over: a moment of the past sees them as they are now."""


def after(minutes: int) -> datetime:
    return AT + timedelta(minutes=minutes)


def shadowed(conn: Connection) -> set[str]:
    return {name for (name,) in driver(conn).execute("SELECT name FROM sqlite_temp_master")}


def fill(tx: Tx) -> None:
    """A run whose change was lent at 1, began to be taken back at 3, and was back at 5."""
    then = {name: utc_text(after(minutes)) for name, minutes in (("opened", 1), ("undo", 3), ("closed", 5))}
    tx.conn.execute(
        insert(subject).values(
            id="s", playbook="p", case_name="", per_key="k", per="{}", opened_at=then["opened"], opened_by_episode="e",
            is_adopted=0, is_by_hand=0, is_latched=0,
        )
    )  # fmt: skip
    tx.conn.execute(
        insert(run).values(
            id="r", subject_id="s", playbook="p", case_name="", per_key="k", created_at=then["opened"], phase="closed",
            ended_at=then["opened"], outcome="succeeded",
        )
    )  # fmt: skip
    text = dict.fromkeys(("step", "action", "params", "before", "left", "undo", "prometheus"), "")
    tx.conn.execute(
        insert(lease).values(
            number=1, id="l", run_id="r", playbook="p", per_key="k", target="docker:gpu-07/a", timeout_ms=1,
            is_by_hand=0, is_latched=0, opened_at=then["opened"], undo_started_at=then["undo"],
            closed_at=then["closed"], how="undone", **text,
        )
    )  # fmt: skip


@pytest.mark.parametrize(
    ("minutes", "taken"),
    [
        pytest.param(0, {}, id="before it was lent"),
        pytest.param(2, {}, id="while it was lent"),
        pytest.param(3, {"docker:gpu-07/a": "r"}, id="at the moment at which its undo began"),
        pytest.param(4, {"docker:gpu-07/a": "r"}, id="while it was taken back"),
        pytest.param(6, {}, id="when it was back"),
    ],
)
def test_look_back_when_a_change_was_being_taken_back_then_its_target_was_taken(
    store: Store, url: str, minutes: int, taken: dict[str, str]
) -> None:
    store.write(fill)

    reader = open_readonly(url)
    try:
        with reader.read() as conn:
            past.look_back(conn, after(minutes))
            assert runs.taken(conn, {"docker:gpu-07/a": True}, "another") == taken
    finally:
        reader.close()


@pytest.fixture
def reader(store: Store, url: str, path: Path) -> ReadStore:
    store.write(fill)
    store.close()  # nothing is left in the WAL: the file is the whole store
    assert path.exists()
    return open_readonly(url)


def test_look_back_when_the_snapshot_ends_then_the_next_one_shows_the_present(reader: ReadStore) -> None:
    for _ in range(2):  # on one connection of the pool
        with reader.read() as conn:
            past.look_back(conn, AT)
            assert runs.get_run(conn, "r") is None
        with reader.read() as conn:
            assert shadowed(conn) == set()
            found = runs.get_run(conn, "r")
            assert found is not None
            assert found.outcome == "succeeded"
    reader.close()


def test_look_back_when_looked_back_then_the_file_is_as_it_was_and_cannot_be_written(
    reader: ReadStore, path: Path
) -> None:
    before = hashlib.sha256(path.read_bytes()).hexdigest()

    with reader.read() as conn:
        past.look_back(conn, after(2))
        for statement in ("DELETE FROM main.run", "INSERT INTO main.meta VALUES ('a', 'b')", "DROP VIEW temp.act"):
            with pytest.raises(sqlite3.OperationalError, match="readonly"):
                driver(conn).execute(statement)
    reader.close()
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before


def test_look_back_when_a_table_is_added_then_somebody_says_what_it_was_in_the_past(reader: ReadStore) -> None:
    with reader.read() as conn:
        past.look_back(conn, AT)
        assert shadowed(conn) & set(metadata.tables) == set(metadata.tables) - AS_IT_IS
    reader.close()


def test_log_begins_when_nothing_was_recorded_then_there_is_no_moment(reader: ReadStore) -> None:
    with reader.read() as conn:
        assert past.log_begins(conn) is None
    reader.close()
