"""The start on a long history: from the process' start until it is ready, with a million events and open runs.

The history is the events of one real run, repeated with other ids and chained anew as the store chains them. It is made
once and kept in the cache folder; each measurement takes a copy, opens runs in it, and kills the engine.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import shutil
import sqlite3
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from bench.child import Engine
from bench.deliveries import Groups, body_of, now_text
from bench.reaction import NOOP
from bench.result import Section, median
from bench.session import Session
from realparts.alertmanager import cache_folder
from remediator.core.event import Event, RecordedEvent
from remediator.store import audit, schema
from remediator.store.engine import Snapshot, open_readonly

NAME = "recovery"

N_EVENTS = 1_000_000
N_QUICK = 50_000
N_OPEN = 100
ROUNDS = 3
MOST_S = 5.0
VERSION = 1
"""Of how the history is made: another one is made anew."""


def measure(session: Session) -> Section:
    """Start on an empty store, and on the history as it is in memory and as it is only on the disk."""
    n_events = N_QUICK if session.is_quick else N_EVENTS
    history = _history(session, n_events)
    size_mib = history.stat().st_size / 2**20
    rounds = 1 if session.is_quick else ROUNDS
    section = Section(
        name=NAME,
        title="Start and recovery",
        about=(
            f"From the process' start to /readyz with 200, after a kill with {N_OPEN} runs open; {n_events:,} events"
            f" ({size_mib:,.0f} MiB; without the deliveries' bodies). Warm: the file is in the page cache. Cold: it was"
            f" put out of it before, as after a reboot. Median of {rounds}; looked every 50 ms."
        ),
        columns=("start", "ready after", "runs taken up after", "memory MiB"),
    )
    for name, source in (("empty store", None), ("warm", history), ("cold", history)):
        ready, taken_up, memory = [], [], []
        for number in range(rounds):
            session.say(f"{name}, round {number + 1} of {rounds}")
            folder = session.folder / f"start-{name.replace(' ', '-')}-{number}"
            ready_s, taken_up_s, memory_mib = _start(folder, source, is_cold=name == "cold")
            shutil.rmtree(folder)
            ready.append(ready_s)
            taken_up.append(taken_up_s)
            memory.append(memory_mib)
        section.rows.append((name, f"{median(ready):.2f} s", f"{median(taken_up):.2f} s", f"{median(memory):.0f}"))
        place = name.replace(" ", "_")
        section.figures |= {
            f"{place}.ready_after_s": round(median(ready), 2),
            f"{place}.taken_up_after_s": round(median(taken_up), 2),
            f"{place}.memory_mib": round(median(memory), 1),
        }
    section.figures |= {"events": n_events, "file_mib": round(size_mib)}
    for name in ("warm", "cold"):
        taken = float(section.figures[f"{name}.taken_up_after_s"])
        section.aim(
            f"{n_events:,} events, {N_OPEN} open runs, {name}: below {MOST_S:g} s until ready and all runs taken up",
            f"{taken:.2f} s", is_reached=taken < MOST_S,
        )  # fmt: skip
    section.limits.append(
        "Importing the program (the empty store shows it), then the check of every page (PRAGMA quick_check), which"
        " grows with the file; the events of open runs alone are read. Cold, the disk: the file is read through before"
        " the check."
    )
    return section


def _start(folder: Path, history: Path | None, *, is_cold: bool) -> tuple[float, float, float]:
    """Seconds until ready, seconds until each open run was looked at, memory then."""
    engine = Engine(folder)
    engine.store.parent.mkdir(mode=0o700)
    if history is not None:
        shutil.copy(history, engine.store)
    with engine:
        groups = Groups()
        engine.post(*(groups.body(number) for number in range(N_OPEN)))
        engine.wait_handled()
        _wait_taken_up(engine)
    if is_cold:
        _drop_from_page_cache(engine.store.parent)
    began = time.perf_counter()
    with engine:
        ready_s = time.perf_counter() - began
        _wait_taken_up(engine)
        return ready_s, time.perf_counter() - began, engine.memory_mib()


def _wait_taken_up(engine: Engine) -> None:
    """Until each open run was looked at: all wait for their due time, and no worker has one."""
    while (engine.metric("remediator_due_runs"), engine.metric("remediator_overdue_runs")) != (N_OPEN, 0):
        time.sleep(0.02)


def _drop_from_page_cache(folder: Path) -> None:
    for path in folder.iterdir():
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def _history(session: Session, n_events: int) -> Path:
    """The file with the history, from the cache or made now."""
    path = cache_folder() / f"bench-history-{n_events}-{schema.REVISION}-{VERSION}.sqlite"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            session.say(f"making a history of {n_events:,} events, once (some minutes)")
            half_made = path.with_suffix(".new")
            half_made.unlink(missing_ok=True)
            shutil.copy(_one_run(session.folder / "one-run"), half_made)
            _repeat(half_made, n_events)
            half_made.rename(path)
    return path


def _one_run(folder: Path) -> Path:
    """A store with one run of a real engine, which has ended."""
    with Engine(folder, NOOP) as engine:
        engine.post(body_of([{"gpu": "0"}], starts_at=now_text(), group={"hostname": "gpu-001"}))
        while not engine.query("SELECT 1 FROM run WHERE phase = 'closed'"):
            time.sleep(0.05)
        engine.process.stop()
    return engine.store


def _repeat(path: Path, n_events: int) -> None:
    """Go on with the chain: that run's events over and over, each time with other ids."""
    with _reading(path) as conn:
        run = [one.event for one in audit.list_events(conn) if one.event.fingerprint or one.event.delivery_id]
        seq, head = audit.head(conn)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        # Half made, it is made anew; and what is copied must be one file, without a WAL.
        connection.execute("PRAGMA journal_mode=DELETE")
        connection.execute("PRAGMA journal_mode=OFF")
        connection.execute("PRAGMA synchronous=OFF")
        names = [name for _, name, *_ in connection.execute("PRAGMA table_info(audit)")]
        connection.execute("BEGIN")
        connection.executemany(
            f"INSERT INTO audit ({', '.join(names)}) VALUES ({', '.join(f':{name}' for name in names)})",  # noqa: S608
            _rows(run, n_events - seq, seq, head),
        )
        connection.execute("COMMIT")
    with _reading(path) as conn:
        verified = audit.verify(conn)
    if not verified.ok or verified.n_events != n_events:
        raise RuntimeError(f"the history is no legal chain: {verified}")


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[Snapshot]:
    with contextlib.closing(open_readonly(f"sqlite:///{path}")) as store, store.read() as conn:
        yield conn


def _rows(run: list[Event], n: int, seq: int, head: str) -> Iterator[dict[str, object]]:
    events = (
        replace(
            event,
            delivery_id=number,
            run_id=event.run_id and other_id,
            episode_id=event.episode_id and other_id,
            subject_id=event.subject_id and other_id,
            fingerprint=event.fingerprint and other_id[:16],
        )
        for number in itertools.count(2)
        for other_id in [str(uuid.UUID(int=number))]
        for event in run
    )
    for event in itertools.islice(events, n):
        seq += 1
        body = audit.canonical_body(seq, head, event)
        digest = audit.chain_hash(head, body)
        recorded = RecordedEvent(seq=seq, prev_hash=head, hash=digest, event=event)
        yield audit.as_dict(recorded) | {"body": body}
        head = digest
