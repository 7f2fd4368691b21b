"""One engine per store, whatever became of the last one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from remediator.errors import StoreInUseError
from remediator.store.engine import open_readonly, open_store

HOLD = """
import sys
from remediator.store.engine import open_store
store = open_store(sys.argv[1])
print("open", flush=True)
sys.stdin.read()
store.close()
"""


@pytest.fixture
def holder(url: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        yield process
        if process.poll() is None:
            process.communicate("")


def test_open_store_when_another_process_has_it_then_names_its_pid(holder: subprocess.Popen[str], url: str) -> None:
    with pytest.raises(StoreInUseError, match=f"process {holder.pid}") as caught:
        open_store(url)
    assert caught.value.pid == holder.pid


def test_open_store_when_this_process_has_it_then_is_refused_too(url: str) -> None:
    store = open_store(url)
    with pytest.raises(StoreInUseError) as caught:
        open_store(url)
    store.close()
    assert caught.value.pid == os.getpid()


def test_open_store_by_another_name_of_the_folder_then_is_the_same_store(url: str, path: Path) -> None:
    store = open_store(url)
    (path.parent.parent / "link").symlink_to(path.parent)
    with pytest.raises(StoreInUseError):
        open_store(f"sqlite:///{path.parent.parent}/link/{path.name}")
    store.close()


def test_open_store_when_the_last_engine_was_killed_then_opens(holder: subprocess.Popen[str], url: str) -> None:
    holder.send_signal(signal.SIGKILL)
    holder.wait()

    open_store(url).close()


def test_open_readonly_when_another_process_has_it_then_reads(holder: subprocess.Popen[str], url: str) -> None:
    reader = open_readonly(url)
    with reader.read() as conn:
        assert conn.exec_driver_sql("SELECT count(*) FROM meta").scalar_one() == 1
    reader.close()


def test_open_store_when_opening_fails_then_lets_the_lock_go(url: str, path: Path) -> None:
    path.parent.mkdir()
    path.write_text("not a database, and long enough to be taken for one's header by whoever reads it" * 9)
    for _ in range(2):
        with pytest.raises(Exception, match="not a database"):
            open_store(url)
    path.unlink()

    open_store(url).close()
