"""Deliver at one pace for long, and watch what must not grow: memory, file descriptors, threads, the WAL.

Minutes and a rate → a line each minute, and a verdict. Alerts fire, repeat and resolve, some are new, and every few
seconds one makes a playbook act on a Docker engine of memory. The database itself grows all the while: nothing is
pruned from it, so its size is shown and judged by nobody.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from acceptance.delivery import delivery
from acceptance.engine import RESTART, Engine
from realparts.process import wait_until
from soak.fake_docker import FakeDocker
from soak.report import Verdict, say

ENDINGS = "SELECT outcome, reason, count(*) FROM run GROUP BY outcome, reason"

N_SENDERS = 4

N_ALERTS = 400
"""Of each sender; each fires, is repeated, and resolves when the others have had their turn."""

LEAK_EVERY_S = 5.0

SAMPLE_EVERY_S = 5.0

WARM_UP = 0.25
"""Share of the time that is not judged: caches fill."""

RSS_GROWTH_MIB_PER_H = 16.0
"""About zero: Python's allocator and SQLite's caches move by some MiB."""

SHORT_GROWTH_MIB = 16.0
"""Of a run that is too short for a slope."""

SLOPE_FROM_MIN = 30.0

FILES_SLACK = 8
"""Connections to Docker and readers of the store come and go."""

SETTLES_WITHIN_S = 120.0
"""What came last is handled in milliseconds, and an act ends in under a second."""

WAL_MIB = 80.0
"""The engine cuts it at 64 MiB, after the commit that passed them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The process at one moment; sizes in MiB."""

    at_s: float
    rss: float
    n_files: int
    n_threads: int
    wal: float
    database: float


@dataclass
class Senders:
    """Post at a pace; each answer's time counts from when its post was due, not from when it could begin."""

    engine: Engine
    rate: float
    latencies_ms: list[float] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)
    n_broken: int = 0

    def __post_init__(self) -> None:
        self.is_over = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._send, args=(number,)) for number in range(N_SENDERS)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self.is_over.set()
        for thread in self._threads:
            thread.join()

    def take_latencies(self) -> list[float]:
        """Those since the last look, sorted."""
        with self._lock:
            taken, self.latencies_ms = self.latencies_ms, []
        return sorted(taken)

    def _send(self, number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.engine.port, timeout=60)
        headers = {"Authorization": f"Bearer {self.engine.tokens['deliver']}", "Content-Type": "application/json"}
        gap_s, began, n = N_SENDERS / self.rate, time.monotonic() + number / self.rate, 0
        while not self.is_over.is_set():
            due = began + n * gap_s
            if due > time.monotonic() and self.is_over.wait(due - time.monotonic()):
                break
            body = _body(number, n)
            n += 1
            try:
                connection.request("POST", "/api/v1/alertmanager", body, headers)
                answer = connection.getresponse()
                answer.read()
            except (OSError, http.client.HTTPException):
                connection.close()
                self.n_broken += 1
                continue
            with self._lock:
                self.statuses[answer.status] = self.statuses.get(answer.status, 0) + 1
                self.latencies_ms.append((time.monotonic() - due) * 1000)
        connection.close()


def _body(sender: int, n: int) -> bytes:
    """The ``n``-th: an alert fires, fires again two posts later, and resolves after the others' turn; then anew."""
    turn, kind = divmod(n, 3)
    alert = turn % N_ALERTS if kind < 2 else (turn + N_ALERTS // 2) % N_ALERTS
    body = delivery({"alertname": "Noise", "sender": str(sender), "n": str(alert)})
    return body if kind < 2 else resolved(body)


def resolved(body: bytes) -> bytes:
    """The same delivery, saying that its alerts are over."""
    told: dict[str, Any] = json.loads(body)
    ended = {"status": "resolved", "endsAt": datetime.now(UTC).isoformat()}
    return json.dumps(told | {"status": "resolved", "alerts": [alert | ended for alert in told["alerts"]]}).encode()


def load(folder: Path, *, minutes: float, rate: float, seed: int) -> Verdict:
    """Play it."""
    found = Verdict(stage="load")
    docker = FakeDocker(folder / "docker", 8, seed)
    engine = Engine(folder / "engine", {"restart.yaml": RESTART.partition("report:")[0]}, docker_url=docker.url)
    engine.start()
    senders = Senders(engine, rate)
    samples: list[Sample] = []
    try:
        senders.start()
        _watch(engine, docker, senders, samples, minutes)
        senders.stop()
        for table, column in (("delivery", "handled_at"), ("run", "ended_at")):
            left = f"SELECT count(*) FROM {table} WHERE {column} IS NULL"
            with contextlib.suppress(TimeoutError):
                wait_until(lambda left=left: engine.query(left) == [(0,)], "none is left", SETTLES_WITHIN_S)
            found.want(engine.query(left) == [(0,)], f"{engine.query(left)[0][0]} of {table} are stuck")
        _judge(found, samples, minutes)
        n_stored = engine.query("SELECT count(*) FROM delivery")[0][0]
        found.want(set(senders.statuses) == {200}, f"answers other than 200: {senders.statuses}")
        found.want(not senders.n_broken, f"{senders.n_broken} connections broke")
        ended = {f"{outcome} ({reason})": n for outcome, reason, n in engine.query(ENDINGS)}
        found.want(set(ended) <= {"succeeded (none)"}, f"runs that did not succeed: {ended}")
        n_acts = sum(len(docker.done(name)) for name in docker.names)
        found.want(n_acts == ended.get("succeeded (none)", 0), f"{n_acts} acts for {ended}")
        levels = [json.loads(line)["level"] for line in engine.log_lines()]
        found.want(levels.count("error") == 0, f"{levels.count('error')} errors in the log")
        found.want(engine.command("audit", "verify").code == 0, "the audit log does not verify")
        found.want(engine.terminate() == 0, "it did not stop in order")
        found.figures |= {"minutes": minutes, "deliveries per s": rate, "stored": n_stored, "acts": n_acts}
    finally:
        senders.stop()
        engine.kill()
        docker.close()
    return found


def _watch(engine: Engine, docker: FakeDocker, senders: Senders, samples: list[Sample], minutes: float) -> None:
    began = time.monotonic()
    next_sample, next_line, next_leak, n_leaks = began, began + 60, began, 0
    say("load: min   RSS MiB  files  threads  WAL MiB  database MiB  answers    p50 ms    p99 ms    max ms")
    while (now := time.monotonic()) < began + minutes * 60:
        if now >= next_sample:
            samples.append(_sample(engine, now - began))
            next_sample += SAMPLE_EVERY_S
        if now >= next_leak:
            _leak(engine, docker.names[n_leaks % len(docker.names)], n_leaks)
            n_leaks, next_leak = n_leaks + 1, next_leak + LEAK_EVERY_S
        if now >= next_line:
            say(_line(samples[-1], senders.take_latencies()))
            next_line += 60
        time.sleep(max(0.0, min(next_sample, next_leak, next_line) - time.monotonic()))


def _leak(engine: Engine, container: str, n: int) -> None:
    """One fires, to be acted on; the one before it is over."""

    def labels(number: int) -> dict[str, str]:
        return {"alertname": "Leak", "hostname": "gpu-07", "container_name": container, "n": str(number)}

    engine.deliver(resolved(delivery(labels(n - 8))))
    engine.deliver(delivery(labels(n)))


def _sample(engine: Engine, at_s: float) -> Sample:
    process = Path(f"/proc/{engine.pid}")
    status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    wal = engine.store.with_name(engine.store.name + "-wal")
    return Sample(
        at_s=at_s,
        rss=int(status["VmRSS"].split()[0]) / 1024,
        n_files=len([*(process / "fd").iterdir()]),
        n_threads=int(status["Threads"]),
        wal=wal.stat().st_size / 2**20 if wal.exists() else 0.0,
        database=engine.store.stat().st_size / 2**20,
    )


def _line(sample: Sample, latencies: list[float]) -> str:
    def at(share: float) -> float:
        return latencies[min(len(latencies) - 1, int(share * len(latencies)))] if latencies else 0.0

    return (
        f"load: {sample.at_s / 60:3.0f}  {sample.rss:8.1f}  {sample.n_files:5}  {sample.n_threads:7}  {sample.wal:7.1f}"
        f"  {sample.database:12.1f}  {len(latencies):7}  {at(0.5):8.1f}  {at(0.99):8.1f}  {at(1.0):8.1f}"
    )


def _judge(found: Verdict, samples: list[Sample], minutes: float) -> None:
    kept = [sample for sample in samples if sample.at_s >= WARM_UP * minutes * 60]
    third = max(1, len(kept) // 3)

    def mean(of: list[Sample], what: Callable[[Sample], float]) -> float:
        return statistics.fmean(what(sample) for sample in of)

    growth = mean(kept[-third:], lambda one: one.rss) - mean(kept[:third], lambda one: one.rss)
    per_hour = statistics.linear_regression([one.at_s / 3600 for one in kept], [one.rss for one in kept]).slope
    if minutes >= SLOPE_FROM_MIN:
        found.want(per_hour <= RSS_GROWTH_MIB_PER_H, f"memory grows by {per_hour:.1f} MiB an hour")
    else:
        found.want(growth <= SHORT_GROWTH_MIB, f"memory grew by {growth:.1f} MiB in {minutes:g} min")
    files = [one.n_files for one in kept]
    found.want(
        max(files[-third:]) <= max(files[:third]) + FILES_SLACK,
        f"file descriptors: {max(files[:third])} at most at first, {max(files[-third:])} at the end",
    )
    threads = [one.n_threads for one in kept]
    found.want(max(threads[-third:]) <= max(threads[:third]) + FILES_SLACK, f"threads: {threads[0]} … {threads[-1]}")
    wal = max(one.wal for one in samples)
    found.want(wal <= WAL_MIB, f"the WAL has grown to {wal:.0f} MiB")
    found.figures |= {
        "memory, MiB (first, last, most)": f"{kept[0].rss:.1f}, {kept[-1].rss:.1f}, {max(s.rss for s in samples):.1f}",
        "memory's slope, MiB an hour": round(per_hour, 1) if minutes >= SLOPE_FROM_MIN else "too short to say",
        "file descriptors (first, last, most)": f"{files[0]}, {files[-1]}, {max(files)}",
        "threads (first, last, most)": f"{threads[0]}, {threads[-1]}, {max(threads)}",
        "WAL at most, MiB": round(wal, 1),
        "database, MiB (nothing is pruned: it grows)": f"{samples[0].database:.1f} to {samples[-1].database:.1f}",
    }
