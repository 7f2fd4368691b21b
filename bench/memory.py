"""Memory in a storm: 10,000 alerts in one body, and 10,000 bodies in a minute, each alert with a plan of its own."""

from __future__ import annotations

import time

from bench.child import Engine
from bench.deliveries import storm
from bench.load import Load, run_load
from bench.result import Section
from bench.session import Session

NAME = "memory"

N = 10_000
BODIES_WITHIN_S = 60
MOST_MIB = 200


def measure(session: Session) -> Section:
    """Send both storms to a new engine each."""
    n = N // 20 if session.is_quick else N
    section = Section(
        name=NAME,
        title="Memory in a storm",
        about=(
            f"Resident memory of the engine before, at the most, and after all is handled. {n:,} alerts in one body,"
            f" each of a container of its own: as many subjects and plans. {n:,} bodies of 3 new alerts (one container)"
            f" at {N // BODIES_WITHIN_S}/s. Its own engine and store for each."
        ),
        columns=("storm", "before MiB", "peak MiB", "after MiB", "answered after", "handled after"),
    )
    session.say(f"{n:,} alerts in one body")
    with Engine(session.folder / "one-body") as engine:
        engine.tell_known_groups()  # what is loaded at the first use is not the storm's
        before, began = engine.memory_mib(), time.perf_counter()
        engine.post(storm(n))
        answered_s = time.perf_counter() - began
        engine.wait_handled()
        _add(section, "one body", engine, before, answered_s, time.perf_counter() - began)
    session.say(f"{n:,} bodies")
    with Engine(session.folder / "many-bodies") as engine:
        engine.tell_known_groups()  # what is loaded at the first use is not the storm's
        before, began = engine.memory_mib(), time.perf_counter()
        rate = N // BODIES_WITHIN_S
        report = run_load(
            Load(
                port=engine.port, token=engine.token, seconds=n / rate, n_clients=16, rate=rate, n_most=n, new_every=1
            )
        )  # fmt: skip
        engine.wait_handled()
        _add(section, "many bodies", engine, before, report.seconds, time.perf_counter() - began)
    section.figures["many_bodies.errors"] = report.n_errors
    section.aim("no body refused", f"{report.n_errors} errors", is_reached=not report.n_errors)
    peak = max(float(section.figures[f"{name}.peak_mib"]) for name in ("one_body", "many_bodies"))
    section.aim(f"below {MOST_MIB} MiB at the most", f"{peak:.0f} MiB", is_reached=peak < MOST_MIB)
    section.limits.append(
        "What is imported, before anything happens; then one decoded body at a time (the largest decides) and a few"
        " hundred bytes for each run that has a due time. The storm waits in the store, not in memory."
    )
    return section


def _add(section: Section, name: str, engine: Engine, before: float, answered_s: float, handled_s: float) -> None:
    after, peak = engine.memory_mib(), engine.memory_mib("VmHWM")
    section.rows.append(
        (name, f"{before:.0f}", f"{peak:.0f}", f"{after:.0f}", f"{answered_s:.1f} s", f"{handled_s:.1f} s")
    )
    place = name.replace(" ", "_")
    section.figures |= {
        f"{place}.before_mib": round(before, 1),
        f"{place}.peak_mib": round(peak, 1),
        f"{place}.after_mib": round(after, 1),
        f"{place}.answered_after_s": round(answered_s, 2),
        f"{place}.handled_after_s": round(handled_s, 2),
    }
