"""The durable answer: how many deliveries a second are committed, synced and answered, how fast, and handled by when.

The engine and, in the same run, what it can be held against: the machine's synced commits, a bare Flask handler behind
the same door, ansible-rulebook's webhook source, and an echo that shows what the load itself can do.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.child import Child, Engine
from bench.load import KNOWN_GROUPS, NEW_EVERY, Load, Report, run_load
from bench.machine import synced_commits
from bench.peer import VERSION, NoPeerError, peer
from bench.result import Section, median
from bench.session import Session

NAME = "answers"

CLOSED = (1, 16, 64)
OPEN = (300, 1000)
MOST = 64
"""Clients of the loop that is repeated, because two aims are about it."""

ROUNDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """One load on one server.

    Attributes:
        cores: that the server used while it was loaded.
        cpu_ms: of a core for each delivery, until it was handled.
        lag_s: after the last answer, until all is handled; 0 for who handles nothing later.
    """

    report: Report
    cores: float
    cpu_ms: float
    lag_s: float


def measure(session: Session) -> Section:
    """Run all loads on all servers."""
    seconds = 2.0 if session.is_quick else 10.0
    rounds = 1 if session.is_quick else ROUNDS
    section = Section(
        name=NAME,
        title="The durable answer",
        about=(
            f"POST of 3 alerts (2 kB), a token, {seconds:g} s for each load. Of {NEW_EVERY} deliveries {NEW_EVERY - 1}"
            f" repeat one of {KNOWN_GROUPS} groups that fire already; one brings 3 new label sets, which open a subject"
            " and make a plan. Each load meets a new store. Closed loop: each client sends when it has its answer. Open"
            " loop: sent at fixed times, latency from the time that was due. CPU: of a core, for each delivery until it"
            " is handled. Lag: from the last answer until the inbox is empty. Flask: a bare handler behind the same"
            " door, without a store. Echo: as little as can answer. Rulebook: ansible-rulebook's webhook source."
            + (f" {MOST} clients: the median of {rounds} rounds." if rounds > 1 else "")
        ),
        columns=("load", "answers/s", "p50 ms", "p99 ms", "p99.9 ms", "errors", "CPU ms", "lag s"),
    )
    figures = section.figures
    for rows, name in ((1, "one row"), (16, "16 rows")):
        session.say(f"synced commits of {name}")
        figures[f"machine.synced_commits_of_{rows}_per_s"] = round(
            median([synced_commits(session.folder, rows=rows, seconds=1.0) for _ in range(3)])
        )

    servers: dict[str, Callable[[], contextlib.AbstractContextManager[Child]]] = {
        "engine": lambda: _engine(session.folder),
        "Flask": lambda: _bare(session.folder, "flask"),
        "echo": lambda: _bare(session.folder, "echo"),
    }
    try:
        session.say(f"installing ansible-rulebook {VERSION}, the first time")
        peer(session.folder / "peer")
        servers["rulebook"] = lambda: _peer(session.folder)
    except NoPeerError as error:
        section.limits.append(f"ansible-rulebook is left out: {error}.")
    loads = [(f"{n} client{'s' * (n > 1)}", n, 0) for n in CLOSED] + [(f"{rate:,}/s", MOST, rate) for rate in OPEN]
    found: dict[tuple[str, str], _Measured] = {}
    for label, n_clients, rate in loads:
        n_rounds = rounds if n_clients == MOST and not rate else 1
        # Round by round, so that what else the machine does falls on all of them.
        taken: dict[str, list[_Measured]] = {name: [] for name in servers}
        for number in range(n_rounds):
            for name, make in servers.items():
                if name == "echo" and rate not in (0, OPEN[-1]):
                    continue
                session.say(f"{name}, {label}" + (f", round {number + 1} of {n_rounds}" if n_rounds > 1 else ""))
                with make() as child:
                    taken[name].append(_load(child, seconds, n_clients, rate))
        for name, all_of_it in taken.items():
            if all_of_it:
                middle = median([one.report.per_s for one in all_of_it])
                found[name, label] = next(one for one in all_of_it if one.report.per_s == middle)
    for name in servers:
        for label, _, _ in loads:
            if (name, label) in found:
                _add_row(section, name, label, found[name, label])
    _judge(section, found)
    return section


def _load(child: Child, seconds: float, n_clients: int, rate: int) -> _Measured:
    if isinstance(child, Engine):
        child.tell_known_groups()
    cpu_before = child.cpu_s()
    report = run_load(
        Load(port=child.port, token=child.token, path=child.path, seconds=seconds, n_clients=n_clients, rate=rate)
    )
    cores = (child.cpu_s() - cpu_before) / report.seconds
    lag_s = child.wait_handled() if isinstance(child, Engine) else 0.0
    cpu_ms = (child.cpu_s() - cpu_before) / max(report.n_ok, 1) * 1000
    return _Measured(report=report, cores=cores, cpu_ms=cpu_ms, lag_s=lag_s)


@contextlib.contextmanager
def _engine(folder: Path) -> Iterator[Child]:
    with _new_folder(folder) as own, Engine(own) as engine:
        yield engine


@contextlib.contextmanager
def _bare(folder: Path, kind: str) -> Iterator[Child]:
    def command(port: int, token: str) -> list[str]:
        return [sys.executable, "-m", "bench.bare", kind, str(port), token]

    with _new_folder(folder) as own, Child(own, command, name=kind) as child:
        yield child


@contextlib.contextmanager
def _peer(folder: Path) -> Iterator[Child]:
    with _new_folder(folder) as own, peer(own) as child:
        yield child


@contextlib.contextmanager
def _new_folder(folder: Path) -> Iterator[Path]:
    own = Path(tempfile.mkdtemp(dir=folder))
    try:
        yield own
    finally:
        shutil.rmtree(own)


def _add_row(section: Section, name: str, label: str, measured: _Measured) -> None:
    report = measured.report
    section.rows.append(
        (
            f"{name}, {label}",
            f"{report.per_s:,.0f}",
            f"{report.p50_ms:.1f}",
            f"{report.p99_ms:.1f}",
            f"{report.p999_ms:.1f}",
            str(report.n_errors),
            f"{measured.cpu_ms:.1f}",
            f"{measured.lag_s:.1f}" if name == "engine" else "",
        )
    )
    place = f"{name}.{label}".replace(",", "").replace(" ", "_").replace("/", "_per_")
    section.figures |= {
        f"{place}.per_s": round(report.per_s, 1),
        f"{place}.p50_ms": round(report.p50_ms, 3),
        f"{place}.p99_ms": round(report.p99_ms, 3),
        f"{place}.p999_ms": round(report.p999_ms, 3),
        f"{place}.max_ms": round(report.max_ms, 3),
        f"{place}.errors": report.n_errors,
        f"{place}.late_p99_ms": round(report.p99_late_ms, 3),
        f"{place}.server_cores": round(measured.cores, 3),
        f"{place}.server_cpu_ms": round(measured.cpu_ms, 3),
        f"{place}.load_cores": round(report.cpu, 3),
    }
    if name == "engine":
        handled_per_s = report.n_ok / (report.seconds + measured.lag_s)
        section.figures |= {
            f"{place}.handled_after_s": round(measured.lag_s, 2),
            f"{place}.handled_per_s": round(handled_per_s, 1),
        }


def _judge(section: Section, found: dict[tuple[str, str], _Measured]) -> None:
    most = f"{MOST} clients"
    engine, bare, echo = (found[name, most].report for name in ("engine", "Flask", "echo"))
    share = engine.per_s / bare.per_s * 100
    section.figures["engine.share_of_bare_handler_pct"] = round(share, 1)
    section.aim(f"at {most} at least 80 % of the bare handler", f"{share:.0f} %", is_reached=share >= 80)
    section.aim(f"at {most} at least 3,000/s", f"{engine.per_s:,.0f}/s", is_reached=engine.per_s >= 3000)
    for rate, most_ms in ((OPEN[0], 20), (OPEN[1], 60)):
        report = found["engine", f"{rate:,}/s"].report
        section.aim(
            f"at {rate:,}/s p99 at most {most_ms} ms, no error",
            f"{report.p99_ms:.1f} ms, {report.n_errors} errors",
            is_reached=report.p99_ms <= most_ms and not report.n_errors,
        )
    commits = section.figures["machine.synced_commits_of_1_per_s"]
    rows = section.figures["machine.synced_commits_of_16_per_s"]
    section.limits += [
        f"The disk: {commits:,} synced commits/s of one 2 kB row, {rows:,} of 16 rows, by one writer alone. At 64"
        " clients the engine commits what waits together, so this does not limit it.",
        "The interpreter's lock, which answering, storing and handling share: at 64 clients the engine used"
        f" {found['engine', most].cores:.2f} cores, the bare handler {found['Flask', most].cores:.2f}. The bare"
        " handler is the most that Flask behind this door can do here.",
        "What would lift it: Python without that lock; a door that is a process of its own; several engines on one"
        " database. Of the engine's time for an answer about a third is Flask's call, a third decoding the body and"
        " waiting for the commit, a third the two rows that are written.",
        f"The load shares the cores: its process used {engine.cpu:.2f} of one against the engine, and got"
        f" {echo.per_s:,.0f}/s from the echo, which is its own limit.",
    ]
    with contextlib.suppress(KeyError):
        theirs = found["rulebook", most].report
        section.limits.append(
            f"ansible-rulebook {VERSION} ({theirs.per_s:,.0f}/s at 64 clients) keeps events in memory alone: what it"
            " has answered is gone when it ends."
        )
