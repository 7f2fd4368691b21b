"""The store goes away under a running engine: everybody is told, and it comes back by itself."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy import func, select

from realparts.process import wait_until
from remediator.core.alert import RawDelivery
from remediator.core.event import Event
from remediator.errors import StoreUnavailableError
from remediator.store import audit, connection, engine, inbox, writer
from remediator.store.engine import Store, open_store
from remediator.store.tables import delivery


@pytest.fixture(autouse=True)
def _fresh_health(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "HEALTH_MAX_AGE_S", 0.0)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with 2 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a small disk: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def n_deliveries(store: Store) -> int:
    with store.read() as conn:
        return int(conn.execute(select(func.count()).select_from(delivery)).scalar_one())


def write_until_refused(store: Store, work: Callable[[writer.Tx], None]) -> int:
    """How often it was kept before."""
    for n in range(1000):
        try:
            store.write(work)
        except StoreUnavailableError:
            return n
    raise AssertionError("it never was")


def fill_up(file: Path) -> None:
    with file.open("ab", buffering=0) as opened, suppress(OSError):
        while True:
            opened.write(b"x" * 4096)


@pytest.mark.system
def test_write_when_the_disk_is_full_then_says_so_and_works_again_when_there_is_room(
    small_disk: Path, event: Callable[..., Event], raw: Callable[..., RawDelivery]
) -> None:
    store = open_store(f"sqlite:///{small_disk}/x.db")

    def keep(tx: writer.Tx) -> None:
        tx.append(event(delivery_id=inbox.store_delivery(tx, raw(os.urandom(20_000)))))

    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 1_200_000)
    n_kept = write_until_refused(store, keep)
    assert n_deliveries(store) == n_kept
    fill_up(ballast)
    for _ in range(200):  # a WAL that was written back has room of its own for some probes
        if store.is_ok() != "ok":
            break
    assert "disk is full" in store.is_ok()
    n_kept += write_until_refused(store, keep)

    ballast.unlink()
    store.write(keep)

    assert (store.is_ok(), n_deliveries(store)) == ("ok", n_kept + 1)
    with store.read() as conn:
        assert audit.verify(conn).n_events == n_kept + 1
    store.close()


def test_write_when_a_statement_finds_no_room_then_only_its_caller_is_told(store: Store) -> None:
    def fill(tx: writer.Tx) -> None:
        n_pages = tx.conn.exec_driver_sql("PRAGMA page_count").scalar_one()
        tx.conn.exec_driver_sql(f"PRAGMA max_page_count={n_pages}")
        tx.conn.exec_driver_sql("INSERT INTO control VALUES ('big', zeroblob(1000000))")

    with pytest.raises(StoreUnavailableError, match="disk is full"):
        store.write(fill)
    store.write(lambda tx: tx.conn.exec_driver_sql("PRAGMA max_page_count=1073741823"))

    assert store.is_ok() == "ok"


def test_write_when_the_database_is_read_only_then_says_so_and_recovers(
    store: Store, event: Callable[..., Event]
) -> None:
    store.write(lambda tx: tx.conn.exec_driver_sql("PRAGMA query_only=ON"))

    with pytest.raises(StoreUnavailableError, match="read-only"):
        store.write(lambda tx: tx.append(event()))

    assert store.write(lambda tx: tx.append(event())).seq == 1


def test_write_when_another_process_holds_a_lock_then_says_so_and_recovers(
    url: str, path: Path, event: Callable[..., Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "BUSY_TIMEOUT_MS", 100)
    monkeypatch.setattr(writer, "BUSY_TIMEOUT_MS", 100)
    store = open_store(url)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(StoreUnavailableError, match="another process holds a lock"):
        store.write(lambda tx: tx.append(event()))
    assert "another process holds a lock" in store.is_ok()

    other.rollback()
    other.close()
    assert store.write(lambda tx: tx.append(event())).seq == 1
    store.close()


def test_write_when_the_file_is_gone_then_says_so_and_recovers_when_it_is_back(
    store: Store, path: Path, event: Callable[..., Event]
) -> None:
    store.write(lambda tx: tx.append(event()))
    aside = path.with_name("aside")
    path.rename(aside)

    with pytest.raises(StoreUnavailableError, match="cannot be found"):
        store.write(lambda tx: tx.append(event()))
    assert not path.exists()

    aside.rename(path)
    assert store.write(lambda tx: tx.append(event())).seq == 2


def test_write_when_the_file_was_replaced_by_a_foreign_one_then_leaves_it_alone(
    store: Store, path: Path, event: Callable[..., Event]
) -> None:
    store.write(lambda tx: tx.append(event()))
    for file in list(path.parent.iterdir()):
        if file.name != "remediator.db.lock":
            file.unlink()
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE theirs (a)")
    other.close()

    with pytest.raises(StoreUnavailableError, match=r"replaced.*another program"):
        store.write(lambda tx: tx.append(event()))
    path.unlink()


def test_write_when_the_file_was_replaced_by_a_backup_then_goes_on_from_there(
    store: Store, path: Path, event: Callable[..., Event]
) -> None:
    store.write(lambda tx: tx.append(event()))
    backup = path.with_name("backup")
    with sqlite3.connect(path) as other:
        other.execute("VACUUM INTO ?", (str(backup),))
    other.close()
    store.write(lambda tx: tx.append(event()))
    for name in ("remediator.db-wal", "remediator.db-shm"):
        path.with_name(name).unlink()
    backup.rename(path)

    assert store.write(lambda tx: tx.append(event())).seq == 2
    with store.read() as conn:
        assert audit.verify(conn).ok


def test_read_when_the_file_is_gone_then_says_so(url: str, path: Path) -> None:
    store = open_store(url)
    path.rename(path.with_name("aside"))

    with pytest.raises(StoreUnavailableError, match="cannot be opened"), store.read() as conn:
        conn.exec_driver_sql("SELECT 1")
    store.close()


WRITE = """
import os, sys, threading
from datetime import UTC, datetime
from remediator.core.alert import RawDelivery
from remediator.core.event import Event, EventType
from remediator.store import inbox
from remediator.store.engine import open_store
store = open_store(sys.argv[1])
def work(tx):
    now = datetime.now(UTC)
    row = inbox.store_delivery(tx, RawDelivery(received_at=now, source="x", body=b"x" * 1500))
    tx.append(Event(type=EventType.DELIVERY_RECEIVED, at=now, delivery_id=row))
    return row
def write():
    while True:
        row = store.write(work)
        os.write(1, b"%d\\n" % row)
for _ in range(8):
    threading.Thread(target=write).start()
"""


def test_write_when_the_engine_is_killed_then_all_that_was_answered_is_there(url: str) -> None:
    seed = random.Random()
    n_answered = 0
    for _ in range(6):
        with subprocess.Popen([sys.executable, "-c", WRITE, url], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            first = process.stdout.readline()
            time.sleep(seed.uniform(0.05, 0.4))
            process.send_signal(signal.SIGKILL)
            answered = {int(line) for line in [first, *process.stdout] if line.endswith(b"\n")}
        n_answered += len(answered)
        store = open_store(url)
        with store.read() as conn:
            kept = set(conn.execute(select(delivery.c.id)).scalars())
            assert answered - kept == set()
            assert conn.exec_driver_sql("PRAGMA integrity_check").scalar_one() == "ok"
            found = audit.verify(conn)
            assert (found.ok, found.n_events) == (True, len(kept))
        store.close()
    assert n_answered > 100


def test_write_when_the_file_is_damaged_under_the_store_then_nothing_is_taken_until_a_restart(
    store: Store, path: Path, event: Callable[..., Event]
) -> None:
    def write_somewhere(tx: writer.Tx) -> None:
        for _ in range(200):
            tx.append(event(target=random.randbytes(100).hex()))

    for _ in range(40):
        store.write(write_somewhere)
    wait_until(lambda: os.stat(f"{path}-wal").st_size == 0, "all is written back", 30)
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(size // 4)
        file.write(b"\xff" * (size // 2))

    write_until_refused(store, write_somewhere)

    assert "damaged" in store.is_ok()
    with pytest.raises(StoreUnavailableError, match="until the engine is started anew"):
        store.write(lambda tx: None)
