"""No answer before the sync: seen from outside, in the order of the system calls. A kill cannot show this."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

N = 20

ANSWER = """
import os, sys
from remediator.store import connection
from remediator.store.engine import open_store
from remediator.store.tables import control
connection.WRITER_PRAGMAS["synchronous"] = int(sys.argv[2])
store = open_store(sys.argv[1])
for n in range(int(sys.argv[3])):
    store.write(lambda tx: tx.conn.execute(control.insert().values(key=str(n), value="")))
    os.write(1, b"answered")
os._exit(0)
"""


def can_trace() -> bool:
    if shutil.which("strace") is None:
        return False
    return subprocess.run(["strace", "-f", "true"], capture_output=True, check=False).returncode == 0


needs_strace = pytest.mark.skipif(not can_trace(), reason="needs strace, and the right to trace")


def n_synced_answers(url: str, synchronous: int) -> int:
    """How many of N answers came after a sync of their own."""
    strace = ["strace", "-f", "-e", "trace=fdatasync,fsync,write", "-e", "signal=none"]
    traced = subprocess.run(
        [*strace, sys.executable, "-c", ANSWER, url, str(synchronous), str(N)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    n_synced, is_synced = 0, False
    for line in traced.stderr.splitlines():
        if "fdatasync(" in line or "fsync(" in line:
            is_synced = True
        elif 'write(1, "answered"' in line:
            n_synced, is_synced = n_synced + is_synced, False
    return n_synced


@pytest.mark.system
@needs_strace
def test_write_is_answered_after_its_sync(url: str) -> None:
    assert n_synced_answers(url, synchronous=2) == N


@pytest.mark.system
@needs_strace
def test_write_without_syncing_is_noticed_by_the_test_above(url: str) -> None:
    assert n_synced_answers(url, synchronous=0) < N / 2
