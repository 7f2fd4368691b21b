"""From the answer to the act: how long until the first attempt, and until a real container runs again."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from datetime import datetime
from pathlib import Path

import docker.models.containers

from bench.child import Engine
from bench.deliveries import ALERT, body_of, now_text
from bench.result import Section, median, percentile
from bench.session import Session
from realparts import docker_engine

NAME = "reaction"

N_ATTEMPTS = 100
N_RESTARTS = 20
FIRST_ATTEMPT_MS = 20
MOST_OF_COMMAND = 1.1

NOOP = f"""
playbook: noop
match: [alertname = {ALERT}]
steps:
  - {{name: nothing, action: noop}}
"""

RESTART = f"""
playbook: restart
match: [alertname = {ALERT}]
per: [host, container_name, round]
guard: {{cooldown: 0s}}
steps:
  - name: restart
    action: docker.restart
    params: {{container: "{{{{ labels.container_name }}}}", stop_timeout: 1s}}
    timeout: 31s
"""

ENDS_AT_ONCE = "trap 'exit 0' TERM; sleep 1000000 & wait"
"""Runs, and ends with SIGTERM without a moment's delay: what is left is Docker's own time."""


def measure(session: Session) -> Section:
    """Measure both."""
    n_attempts = N_ATTEMPTS // 5 if session.is_quick else N_ATTEMPTS
    n_restarts = N_RESTARTS // 4 if session.is_quick else N_RESTARTS
    section = Section(
        name=NAME,
        title="From the answer to the act",
        about=(
            f"One alert at a time, nothing holds it. First attempt: from the answer until the engine begins the act"
            f" (attempt_started in its log), {n_attempts} times. Restart: a container that ends at once on SIGTERM, on"
            " a real Docker engine, from sending the POST until the time at which Docker started it again,"
            f" {n_restarts} times, in turns with the same restart through Docker's API alone."
        ),
        columns=("what", "p50 ms", "p99 ms"),
    )
    for name, playbook, module in (("noop", NOOP, "remediator"), ("fake docker.restart", RESTART, "bench.fake_engine")):
        session.say(f"first attempt, {name}")
        with Engine(session.folder / name.replace(" ", "-"), playbook, module=module) as engine:
            _add(section, f"answer to first attempt, {name}", _first_attempts(engine, n_attempts))
    for name in ("noop", "fake_docker_restart"):
        p50 = float(section.figures[f"answer_to_first_attempt_{name}.p50_ms"])
        section.aim(
            f"first attempt ({name}) at most {FIRST_ATTEMPT_MS} ms after the answer, median", f"{p50:.1f} ms",
            is_reached=p50 <= FIRST_ATTEMPT_MS,
        )  # fmt: skip
    section.limits.append(
        "To the first attempt: the transactions in between, each with its sync (the episode with its plan, the verdict"
        " with the reservation, attempt_started), and reading the run from its events before each."
    )
    if why := docker_engine.missing():
        section.limits.append(f"The restart is left out: {why}.")
        return section
    session.say("a real Docker engine")
    folder = Path(tempfile.mkdtemp(prefix="dockerd-"))
    try:
        with contextlib.closing(docker_engine.start(folder)) as docker:
            _measure_restarts(session, section, docker, n_restarts)
    finally:
        docker_engine.stop(folder)
        shutil.rmtree(folder, ignore_errors=True)
    return section


def _measure_restarts(session: Session, section: Section, docker: docker_engine.DockerEngine, n: int) -> None:
    container = docker.run("trainer", ENDS_AT_ONCE)
    alone, engines = [], []
    with Engine(session.folder / "real", RESTART, docker_url=docker.url) as engine:
        for number in range(n + 1):
            session.say(f"restart {number} of {n}")
            before = _started_at(container)
            began = time.time()
            container.restart(timeout=1)
            command_ms = (_started_at(container, after=before) - began) * 1000
            before = _started_at(container)
            began = time.time()
            engine.post(_alert(number))
            engine_ms = (_started_at(container, after=before) - began) * 1000
            _wait_until_over(engine, number + 1)
            if number:  # the first of each finds nothing in any cache
                alone.append(command_ms)
                engines.append(engine_ms)
    _add(section, "docker restart alone", alone)
    _add(section, "POST to running again", engines)
    ratio = median(engines) / median(alone)
    section.figures["restart.times_the_command"] = round(ratio, 3)
    section.aim(
        f"POST to running again at most {MOST_OF_COMMAND} times the command alone", f"{ratio:.2f} times",
        is_reached=ratio <= MOST_OF_COMMAND,
    )  # fmt: skip
    section.limits.append(
        "To running again: Docker's stop and start; the engine looks at the container before the act and after it, and"
        " commits the plan, the reservation and the attempt before Docker is asked. What would lift it: one look for"
        " the target and for its state before the act; a faster disk."
    )


def _first_attempts(engine: Engine, n: int) -> list[float]:
    taken = []
    for number in range(n):
        (answered_at,) = engine.post(_alert(number))
        while not (rows := engine.query("SELECT at FROM audit WHERE type = 'attempt_started' ORDER BY seq")[number:]):
            time.sleep(0.05)  # long enough to be no part of what is measured
        taken.append((datetime.fromisoformat(rows[0][0]).timestamp() - answered_at) * 1000)
        _wait_until_over(engine, number + 1)
    return taken


def _wait_until_over(engine: Engine, n_runs: int) -> None:
    while engine.query("SELECT count(*) FROM run WHERE ended_at IS NOT NULL")[0][0] < n_runs:
        time.sleep(0.05)


def _alert(number: int) -> bytes:
    group = {"hostname": "gpu-001", "container_name": "trainer", "round": str(number)}
    return body_of([{"gpu": "0"}], starts_at=now_text(), group=group)


def _started_at(container: docker.models.containers.Container, after: float = 0.0) -> float:
    """When Docker started it, as a time later than ``after``, waited for."""
    while True:
        container.reload()
        # Nanoseconds are more than a datetime holds.
        started_at = datetime.fromisoformat(container.attrs["State"]["StartedAt"][:26] + "+00:00").timestamp()
        if started_at > after and container.attrs["State"]["Running"]:
            return started_at
        time.sleep(0.02)


def _add(section: Section, name: str, taken_ms: list[float]) -> None:
    p50, p99 = median(taken_ms), percentile(taken_ms, 99)
    section.rows.append((f"{name} ({len(taken_ms)})", f"{p50:.1f}", f"{p99:.1f}"))
    place = name.replace(",", "").replace(".", " ").replace(" ", "_")
    section.figures |= {f"{place}.p50_ms": round(p50, 2), f"{place}.p99_ms": round(p99, 2)}
