"""The exporter: what it costs at its usual interval, how old its values are when they are scraped, and its memory."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from bench.result import Section, median, percentile
from bench.session import Session
from realparts.exporter import Exporter, Page
from realparts.nvml import GIB, FakeDriver, built
from realparts.process import wait_until

NAME = "exporter"

INTERVAL_S = 5.0
N_GPUS = 8
N_PROCESSES = 16
SECONDS = 120.0
MOST_CORE_PCT = 1.0
MOST_AGE_S = 2.0

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_LEARNED_AFTER = 4
"""Scrapes until one who scrapes is known; see ``Rhythm``."""


def measure(session: Session) -> Section:
    """Scrape it as one Prometheus does, as two do, and while a GPU hangs."""
    seconds = SECONDS / 4 if session.is_quick else SECONDS
    section = Section(
        name=NAME,
        title="The GPU exporter",
        about=(
            f"remediator exporter on {N_GPUS} GPUs with {N_PROCESSES} processes, every {INTERVAL_S:g} s, as a process"
            " of its own on a library that stands in for the driver (the bindings are the real ones); scraped every"
            f" {INTERVAL_S:g} s, packed, over a connection that is kept. CPU: of the whole process, over"
            f" {seconds:g} s. Age: from the moment at which the driver was asked to the moment of the scrape, of every"
            f" GPU at every scrape after the first {_LEARNED_AFTER}. Two scrape at different times, as a pair does."
        ),
        columns=("scraped by", "% of a core", "age p50 s", "age max s", "scrape p50 ms", "memory MiB"),
    )
    if shutil.which("gcc") is None:
        section.limits.append("Left out: the library that stands in for the driver needs gcc.")
        return section
    built()
    for name, phases_s, hangs in (
        ("one", (0.0,), False),
        ("two, 2.3 s apart", (0.0, 2.3), False),
        ("one, a GPU hangs", (0.0,), True),
    ):
        session.say(name)
        _add(section, name, _run(session.folder / name.replace(" ", "-"), phases_s, seconds, hangs=hangs))
    share = float(section.figures["one.core_pct"])
    section.aim(f"below {MOST_CORE_PCT:g} % of a core", f"{share:.2f} %", is_reached=share < MOST_CORE_PCT)
    age_s = float(section.figures["one.age_max_s"])
    section.aim(f"no value older than {MOST_AGE_S:g} s when scraped", f"{age_s:.2f} s", is_reached=age_s < MOST_AGE_S)
    section.limits.append(
        "The time of a real driver's own calls is not in these figures: those are what the exporter adds to it, for"
        " reading the answers and writing the page. What hangs looks for its end 500 times a second here, which"
        " no driver does."
    )
    section.limits.append(
        "The age holds for who scrapes steadily, over a connection that is kept, no more often than the interval: a"
        " sample is taken half a second before. Others may see values that are a whole interval old."
    )
    return section


class _Measured:
    """What one run came to."""

    def __init__(self) -> None:
        self.core_pct = 0.0
        self.memory_mib = 0.0
        self.ages_s: list[float] = []
        self.scrapes_ms: list[float] = []


def _run(folder: Path, phases_s: tuple[float, ...], seconds: float, *, hangs: bool) -> _Measured:
    driver = FakeDriver(folder / "driver", N_GPUS)
    measured = _Measured()
    with _processes() as pids, contextlib.ExitStack() as exits:
        for gpu in range(N_GPUS):
            driver.set(gpu, utilization=97, temperature=64, power=632_000)
            driver.run(gpu, dict.fromkeys(pids[gpu::N_GPUS], 30 * GIB))
        exporter = Exporter(folder, driver).start()
        exits.callback(exporter.kill)
        exits.callback(driver.release)
        wait_until(lambda: len(exporter.page().values("remediator_gpu_up")) == N_GPUS, "all GPUs are seen", 60)
        if hangs:
            driver.hang(0)
        pid = exporter.process.pid
        began_s, began_ticks = time.monotonic(), _ticks(pid)
        scrapers = [
            threading.Thread(target=_scrape, args=(exporter.port, phase_s, seconds, measured)) for phase_s in phases_s
        ]
        for scraper in scrapers:
            scraper.start()
        for scraper in scrapers:
            scraper.join()
        taken_s = time.monotonic() - began_s
        measured.core_pct = 100 * (_ticks(pid) - began_ticks) / _TICKS_PER_S / taken_s
        status = Path(f"/proc/{pid}/status").read_text()
        measured.memory_mib = int(status.split("VmHWM:")[1].split()[0]) / 1024
    return measured


def _scrape(port: int, phase_s: float, seconds: float, measured: _Measured) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {
        "Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5",
        "Accept-Encoding": "gzip",
    }
    began_s = time.monotonic() + phase_s
    with contextlib.closing(connection):
        for n in range(int(seconds / INTERVAL_S)):
            time.sleep(max(0.0, began_s + n * INTERVAL_S - time.monotonic()))
            at_s = time.perf_counter()
            connection.request("GET", "/metrics", headers=headers)
            body = connection.getresponse().read()
            measured.scrapes_ms.append((time.perf_counter() - at_s) * 1000)
            if n >= _LEARNED_AFTER:
                measured.ages_s += _ages(body)


def _ages(body: bytes) -> list[float]:
    """Of the GPUs that are up."""
    page = Page(gzip.decompress(body).decode().removesuffix("# EOF\n"))
    up = {each["UUID"] for each in page.labels("remediator_gpu_memory_used_bytes")}
    return [page.values("remediator_gpu_sample_age_seconds", UUID=uuid)[0] for uuid in up]


def _ticks(pid: int) -> int:
    """User and system time so far; source: proc(5), /proc/PID/stat, fields 14 and 15."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


@contextlib.contextmanager
def _processes() -> Iterator[list[int]]:
    """Pids that are looked up in /proc, as those of trainers are."""
    started = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100000)"]) for _ in range(N_PROCESSES)]
    try:
        yield [each.pid for each in started]
    finally:
        for each in started:
            each.kill()
        for each in started:
            each.wait()


def _add(section: Section, name: str, measured: _Measured) -> None:
    age_p50_s, age_max_s = median(measured.ages_s), max(measured.ages_s)
    scrape_ms = median(measured.scrapes_ms)
    section.rows.append(
        (
            name,
            f"{measured.core_pct:.2f}",
            f"{age_p50_s:.2f}",
            f"{age_max_s:.2f}",
            f"{scrape_ms:.1f}",
            f"{measured.memory_mib:.0f}",
        )
    )
    place = name.replace(",", "").replace(" ", "_").replace(".", "_")
    section.figures |= {
        f"{place}.core_pct": round(measured.core_pct, 3),
        f"{place}.age_p50_s": round(age_p50_s, 3),
        f"{place}.age_p99_s": round(percentile(measured.ages_s, 99), 3),
        f"{place}.age_max_s": round(age_max_s, 3),
        f"{place}.scrape_p50_ms": round(scrape_ms, 2),
        f"{place}.memory_mib": round(measured.memory_mib, 1),
    }
