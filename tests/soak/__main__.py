"""``make soak``: what takes hours to believe. Kills, load, whole storms, long stories and fuzzing, each with a verdict.

In the folder of the project, with ``PYTHONPATH=tests``:

    python -m soak                                     all of it: some five hours
    python -m soak --only kills,load --minutes 2 --kills 10 --deliveries 3000
    python -m soak --control                           with an engine that answers too early: must find what it loses

Progress goes to stderr, the summary to stdout, with --json each figure to a file as well. Exits 1 if anything that is
promised did not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from soak.kills import kills
from soak.load import load
from soak.report import Verdict, say, table

PROJECT = Path(__file__).parents[2]

STANDSTILL_S = 60
"""The minute that ``make test`` shortens."""

WHOLE = {
    "tests/acceptance/test_storm.py": ("REMEDIATOR_TEST_STORM", 10_000),
    "tests/acceptance/test_flapping.py": ("REMEDIATOR_TEST_STORM_OF_THREE", 5000),
    "tests/integration/test_playbook_folder.py": ("REMEDIATOR_TEST_PLAYBOOKS", 10_000),
    "tests/integration/web/test_attack.py": ("REMEDIATOR_TEST_ATTACK_EXAMPLES", 1_000),
    "tests/integration/store/test_audit_exports.py": ("REMEDIATOR_TEST_FLIP_EVERY", 1),
}
"""Of what ``make test`` does a part, the file, and the variable that makes it do all: groups of a storm, alerts of
which three may act, files in a folder, random calls of each operation, and each bit of an audit export."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m soak", description="Wear the engine down, and say what broke.")
    stages = ("kills", "load", "standstill", "whole", "stories", "fuzz")
    parser.add_argument("--only", default=",".join(stages), metavar="STAGES", help=f"of {', '.join(stages)}")
    parser.add_argument("--kills", type=int, default=200, metavar="N", help="at least")
    parser.add_argument("--deliveries", type=int, default=100_000, metavar="N", help="answered with 200, at least")
    parser.add_argument(
        "--minutes", type=float, default=float(os.environ.get("SOAK_MINUTES") or 60), help="of load; or SOAK_MINUTES"
    )
    parser.add_argument("--rate", type=float, default=50.0, help="deliveries a second, of the load")
    parser.add_argument("--fuzz-seconds", type=int, default=600, metavar="S", help="for each door")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32), help="of the kills' moments")
    parser.add_argument(
        "--control", action="store_true", help="kills alone, of an engine that answers before it commits"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there")
    asked = parser.parse_args()
    chosen = ["kills"] if asked.control else asked.only.split(",")
    if unknown := set(chosen) - {*stages}:
        parser.error(f"no such stage: {', '.join(sorted(unknown))}")
    verdicts = [_play(name, asked) for name in stages if name in chosen]
    print(table(verdicts))
    if asked.json is not None:
        asked.json.write_text(json.dumps([one.to_json() for one in verdicts], indent=1) + "\n")
    is_ok = not any(one.breaches for one in verdicts)
    if asked.control:
        is_found = any("are lost" in breach for one in verdicts for breach in one.breaches)
        print("the loss was found, as it must be" if is_found else "NO LOSS WAS FOUND: the kills prove nothing")
    return 0 if is_ok else 1


def _play(name: str, asked: argparse.Namespace) -> Verdict:
    say(f"{name} begins")
    stages: Mapping[str, Callable[[Path], Verdict]] = {
        "kills": lambda folder: kills(
            folder,
            n_kills=asked.kills,
            n_deliveries=asked.deliveries,
            seed=asked.seed,
            is_control=asked.control,
        ),
        "load": lambda folder: load(folder, minutes=asked.minutes, rate=asked.rate, seed=asked.seed),
        "standstill": lambda folder: _run(
            "standstill",
            [*_pytest(folder), "tests/acceptance/test_faults_standstill.py"],
            {"REMEDIATOR_TEST_STANDSTILL_S": str(STANDSTILL_S), "REMEDIATOR_REQUIRE": "docker"},
        ),
        "whole": lambda folder: _run(
            "whole",
            [*_pytest(folder), *WHOLE],
            {**{name: str(value) for name, value in WHOLE.values()}, "REMEDIATOR_REQUIRE": "docker"},
        ),
        "stories": lambda folder: _run(
            "stories",
            [
                *_pytest(folder),
                "--hypothesis-profile=soak",
                "--timeout=14400",
                "tests/integration/engine/test_machine.py",
            ],
        ),
        "fuzz": lambda _: _run("fuzz", [sys.executable, "-m", "fuzz", "--all", "--seconds", str(asked.fuzz_seconds)]),
    }
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:  # short: sockets lie in it
        began = time.monotonic()
        try:
            verdict = stages[name](Path(folder))
        except Exception as error:  # noqa: BLE001  the other stages are worth their hours
            verdict = Verdict(stage=name)
            verdict.want(False, f"could not be played to its end: {type(error).__name__}: {error}")
        verdict.figures["took, s"] = round(time.monotonic() - began)
    return verdict


def _pytest(folder: Path) -> list[str]:
    return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={folder}/t"]


def _run(stage: str, command: list[str], environ: Mapping[str, str] | None = None) -> Verdict:
    """A program of the tests' own; what it prints is progress, and its exit code the verdict."""
    found = Verdict(stage=stage)
    done = subprocess.run(command, cwd=PROJECT, env=os.environ | dict(environ or {}), stdout=sys.stderr, check=False)
    found.want(done.returncode == 0, f"it ended with {done.returncode}; see above")
    return found


if __name__ == "__main__":
    sys.exit(main())
