"""``REMEDIATOR_REQUIRE`` turns the skip of a required part into a failure, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

SKIPPING = """
import pytest

@pytest.fixture
def engine():
    pytest.skip("no engine here")

@pytest.mark.docker
def test_marked_and_skipped_by_a_fixture(engine): ...

@pytest.mark.docker
@pytest.mark.skipif(True, reason="no engine here")
def test_marked_and_skipped_by_a_mark(): ...

@pytest.mark.docker
@pytest.mark.xfail(reason="known")
def test_marked_and_expected_to_fail():
    assert False

def test_not_marked(engine): ...
"""


def run(folder: Path, require: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(SKIPPING)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n  docker: needs a Docker engine\n")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "conftest", "-p", "no:randomly", "-p", "no:cacheprovider", "-q"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(TESTS), "REMEDIATOR_REQUIRE": require},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("require", "summary"),
    [
        ("", "3 skipped, 1 xfailed"),
        ("alertmanager", "3 skipped, 1 xfailed"),
        ("docker", "1 skipped, 1 xfailed, 2 errors"),
        ("docker,alertmanager,nvml,system", "1 skipped, 1 xfailed, 2 errors"),
    ],
)
def test_skip_when_its_part_is_required_then_it_is_a_failure(tmp_path: Path, require: str, summary: str) -> None:
    done = run(tmp_path, require)
    assert summary in done.stdout, done.stdout
    assert done.returncode == (1 if "errors" in summary else 0)


def test_require_when_it_names_no_part_then_the_run_is_refused(tmp_path: Path) -> None:
    done = run(tmp_path, "dokcer")
    assert (done.returncode, "REMEDIATOR_REQUIRE names dokcer" in done.stderr) == (4, True)
