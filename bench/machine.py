"""What it all runs on: facts for the head of the results, and how many synced commits a second the disk can do."""

from __future__ import annotations

import os
import platform
import sqlite3
import time
from pathlib import Path

from bench.result import Figure

SYNCED = ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL")
"""As the store has it: a commit returns when the WAL is on the disk."""

_ROW = os.urandom(2048)


def facts(folder: Path) -> dict[str, Figure]:
    """The machine in words; the load average is that of now, before anything is measured."""
    memory = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
    return {
        "processor": _processor(),
        "cores": os.cpu_count() or 0,
        "memory_gib": round(int(memory.split()[1]) / 2**20, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "file_system": _file_system(folder),
        "load_average_before": round(os.getloadavg()[0], 2),
    }


def synced_commits(folder: Path, *, rows: int, seconds: float) -> float:
    """Commits a second of one writer alone, each with ``rows`` rows of 2 kB and a sync."""
    path = folder / f"commits-{rows}.sqlite"
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        for pragma in SYNCED:
            connection.execute(pragma)
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, body BLOB)")
        n_commits, began = 0, time.perf_counter()
        while (now := time.perf_counter()) < began + seconds:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT INTO t (body) VALUES (?)", [(_ROW,)] * rows)
            connection.execute("COMMIT")
            n_commits += 1
        return n_commits / (now - began)
    finally:
        connection.close()
        path.unlink()


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _file_system(folder: Path) -> str:
    """The kind that holds the folder: figures from memory (tmpfs) say nothing about a disk."""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    place = folder.resolve()
    return max((point, kind) for point, kind in mounts if place.is_relative_to(point))[1]
