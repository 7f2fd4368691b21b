"""The corpus, played again; a short attempt at every door, always the same; and that an attempt finds what is there."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz.doors import DATA, DOORS, ROOT, Door

# Not "where it is not installed": where it can be, a run without it must not be green.
needs_atheris = pytest.mark.skipif(
    not (sys.platform == "linux" and platform.machine() == "x86_64" and sys.version_info < (3, 14)),
    reason="atheris has wheels for Linux on x86_64, Python 3.11 to 3.13",
)


def python(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Python in the project's folder, as CONTRIBUTING.md says; the hash seed, too, decides what is tried."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "tests", "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        errors="replace",
        timeout=280,
        check=False,
    )


@pytest.mark.parametrize("door", DOORS.values(), ids=lambda door: door.name)
def test_corpus_when_played_again_then_the_door_holds(door: Door) -> None:
    corpus = door.corpus()

    assert corpus
    for data in corpus.values():
        door.check(data)


def test_corpus_when_listed_then_each_folder_is_of_a_door_and_has_its_words() -> None:
    folders = {folder.name for folder in (DATA / "fuzz").iterdir() if folder.is_dir()}

    assert folders <= {*DOORS}
    assert {file.stem for file in (DATA / "fuzz").glob("*.dict")} == {*DOORS}


@needs_atheris
def test_doors_when_attacked_then_all_hold(tmp_path: Path) -> None:
    attempt = python("-m", "fuzz", "--all", "--runs", "1000", "--seed", "1", "--found", tmp_path)

    assert attempt.returncode == 0, attempt.stdout
    assert re.findall(r"^(\w+) +([\d,]+) inputs +holds$", attempt.stdout, re.MULTILINE) == [
        (name, "1,000") for name in DOORS
    ]
    assert [*tmp_path.iterdir()] == []


PLANTED = """
import sys
from dataclasses import replace
from pathlib import Path

from fuzz.loop import fuzz
from fuzz.doors import DOORS, NOW, DecodeError, decode

def check(data):
    try:
        group = decode(data, NOW)
    except DecodeError:
        return
    if group.n_truncated > 9:
        {}[group.n_truncated]

found, scratch = map(Path, sys.argv[1:])
fuzz(replace(DOORS["decode"], check=check), runs=20_000, seconds=0, seed=1, found=found, scratch=scratch)
"""


@needs_atheris
def test_attack_when_a_door_raises_for_one_key_then_it_is_found(tmp_path: Path) -> None:
    found, scratch = tmp_path / "found", tmp_path / "scratch"
    found.mkdir()
    scratch.mkdir()
    (tmp_path / "planted.py").write_text(PLANTED)

    attempt = python(tmp_path / "planted.py", found, scratch)

    assert attempt.returncode != 0
    assert "KeyError" in attempt.stdout + attempt.stderr
    (broken,) = found.iterdir()
    assert broken.read_bytes() not in DOORS["decode"].corpus().values()
