"""What playbook tests cost: 200 scenarios on the command line, in one process and in as many as there are CPUs."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from ruamel.yaml import YAML

from bench.result import Section, median
from bench.session import Session

NAME = "scenarios"

N_SCENARIOS = 200
AT_MOST_S = 5.0
ROUNDS = 3
SHIPPED = Path(__file__).resolve().parent.parent / "playbooks"


def measure(session: Session) -> Section:
    """Play the shipped playbooks' own tests, over and over again under other names."""
    n = 20 if session.is_quick else N_SCENARIOS
    n_cpus = len(os.sched_getaffinity(0))
    section = Section(
        name=NAME,
        title="Playbook tests",
        about=(
            f"`remediator test` on {n} scenarios: the shipped playbooks' own tests, in copies. From the process' start"
            f" to its end, all of them green. Median of {ROUNDS}; before it, one scenario alone: what starting costs."
        ),
        columns=("processes", "scenarios", "wall s", "scenarios/s"),
    )
    folder = session.folder / "playbook-tests"
    _write(folder, n)
    yaml = YAML(typ="safe")
    first = yaml.load(next(iter(sorted(folder.glob("0/*.test.yaml")))))["scenarios"][0]["name"]
    walls = {}
    for jobs, n_played, more in ((1, 1, ("-k", f'"{first}"')), (1, n, ()), (n_cpus, n, ())):
        session.say(f"{n_played} scenarios, {jobs} processes")
        rounds = []
        for _ in range(1 if session.is_quick else ROUNDS):
            wall_s, text = _played(folder, "--jobs", str(jobs), *more)
            told = json.loads(text)
            if (told["passed"], told["failed"]) != (n_played, 0):
                raise RuntimeError(f"{told['passed']} passed, {told['failed']} failed, of {n_played}")
            rounds.append(wall_s)
        wall_s = walls[jobs, n_played] = median(rounds)
        section.rows.append((str(jobs), str(n_played), f"{wall_s:.2f}", f"{n_played / wall_s:.0f}"))
        place = f"{jobs}_jobs.{n_played}"
        section.figures |= {f"{place}.wall_s": round(wall_s, 3), f"{place}.per_s": round(n_played / wall_s, 1)}
    best_s = walls[n_cpus, n]
    section.aim(f"{n} scenarios in less than {AT_MOST_S:g} s", f"{best_s:.1f} s", is_reached=best_s < AT_MOST_S)
    each_ms = (walls[1, n] - walls[1, 1]) / (n - 1) * 1000
    section.figures["each_ms"] = round(each_ms, 1)
    section.limits.append(
        "Each scenario is an engine of its own with a store of its own, in memory, and every step of it the real one:"
        f" {each_ms:.0f} ms in one process, a third of them to start it, the rest a transaction for each step. Many"
        " runs at once and days of waiting cost most. More CPUs lift it; importing the program is paid once."
    )
    return section


def _write(folder: Path, n: int) -> None:
    """Copies of the shipped playbooks, with so many scenarios in all."""
    yaml = YAML()
    left = n
    for number in itertools.count():
        copy = folder / str(number)
        shutil.copytree(SHIPPED, copy, ignore=shutil.ignore_patterns("*.test.yaml"))
        for file in sorted(SHIPPED.glob("*.test.yaml")):
            tests = yaml.load(file)
            del tests["scenarios"][left:]
            for scenario in tests["scenarios"]:
                scenario["name"] = f"{number} {scenario['name']}"
            left -= len(tests["scenarios"])
            yaml.dump(tests, copy / file.name)
            if not left:
                return


def _played(folder: Path, *options: str) -> tuple[float, str]:
    """How long one call took, and what it printed."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "remediator", "test", str(folder), "--json", *options],
        capture_output=True,
        text=True,
        check=False,
    )
    return time.perf_counter() - began, done.stdout
