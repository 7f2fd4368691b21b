"""``python -m fuzz``: try to break a door, or all of them, for so many inputs or seconds; or play inputs again.

In the folder of the project, with ``PYTHONPATH=tests``:

    python -m fuzz decode --seconds 300      one door, with all that libFuzzer prints
    python -m fuzz --all --seconds 300       every door, one after another, each so long; one line for each
    python -m fuzz decode INPUT...           only these inputs

Exits 0 where nothing was found. What breaks a door is left in ``.cache/fuzz``, or in the folder of ``--found``.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

try:
    from fuzz.loop import fuzz
except ModuleNotFoundError as error:
    if error.name != "atheris":
        raise
    sys.exit("atheris is not installed: it is made for Linux on x86_64, Python 3.11 to 3.13")

from fuzz.doors import DOORS, Door


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description="Try to break what text comes in by.")
    parser.add_argument("door", nargs="?", choices=[*DOORS])
    parser.add_argument("inputs", nargs="*", type=Path, metavar="INPUT", help="only play these again")
    parser.add_argument("--all", action="store_true", help="every door, one after another")
    parser.add_argument("--runs", type=int, default=0, metavar="N", help="inputs for each door")
    parser.add_argument("--seconds", type=int, default=0, metavar="S", help="for each door")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="to do the same again; 0 = another each time")
    parser.add_argument(
        "--found", type=Path, default=Path(".cache/fuzz"), metavar="FOLDER", help="for what breaks a door"
    )
    asked = parser.parse_args()
    if asked.all == bool(asked.door):
        parser.error("name a door, or --all")
    if asked.inputs:
        for file in asked.inputs:
            DOORS[asked.door].check(file.read_bytes())
            print(f"{file}: holds")
        return 0
    if not asked.runs and not asked.seconds:
        parser.error("say how long: --runs or --seconds")
    asked.found = asked.found.resolve()
    asked.found.mkdir(parents=True, exist_ok=True)
    doors = list(DOORS.values()) if asked.all else [DOORS[asked.door]]
    return max([run(door, asked) for door in doors])


def run(door: Door, asked: argparse.Namespace) -> int:
    """One door in a process of its own, made from this one: to be watched, its code takes seconds to be read."""
    # Nothing that tidies up by itself: the child ends by SystemExit where it finds something, and may not be caught, or
    # libFuzzer does not write down what it was.
    folder = Path(tempfile.mkdtemp(prefix="remediator-fuzz-"))
    log, scratch = folder / "log", folder / "scratch"
    log.touch()
    scratch.mkdir()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        if asked.all:
            output = os.open(log, os.O_WRONLY)
            os.dup2(output, 1)
            os.dup2(output, 2)
        fuzz(door, runs=asked.runs, seconds=asked.seconds, seed=asked.seed, found=asked.found, scratch=scratch)
    _, status = os.waitpid(child, 0)
    code = abs(os.waitstatus_to_exitcode(status))
    if asked.all:
        report(door.name, code, log.read_text("utf-8", "replace"))
    shutil.rmtree(folder)
    return code


def report(name: str, code: int, printed: str) -> None:
    """One line, and all that was printed where something was found."""
    tried = re.search(r"stat::number_of_executed_units: (\d+)", printed)
    n_tried = f"{int(tried[1]):,} inputs" if tried else "stopped"
    print(f"{name:<10}{n_tried:>20}   {'holds' if code == 0 else 'BROKEN'}", flush=True)
    if code:
        print(printed[-10_000:], flush=True)


if __name__ == "__main__":
    sys.exit(main())
