"""The private Docker engine itself: it is gone when whoever started it is, however that ended."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from realparts import docker_engine
from realparts.process import wait_until

pytestmark = pytest.mark.docker

STARTS_AND_DIES = """
import os, pathlib, signal, sys
from realparts import docker_engine
docker_engine.start(pathlib.Path(sys.argv[1])).run("trainer-0")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_engine_when_the_process_that_started_it_is_killed_then_it_ends_with_its_containers() -> None:
    if why := docker_engine.missing():
        pytest.skip(why)
    folder = Path(tempfile.mkdtemp(prefix="dockerd-"))
    try:
        tests = Path(docker_engine.__file__).parents[1]
        started = subprocess.run(
            [sys.executable, "-c", STARTS_AND_DIES, str(folder)],
            cwd=tests,
            env={**os.environ, "PYTHONPATH": str(tests)},
        )
        assert started.returncode == -9
        wait_until(lambda: not folder.exists(), "the engine has ended and its folder is gone", 60)
        assert _processes_that_name(folder) == []
    finally:
        docker_engine.stop(folder)


def _processes_that_name(folder: Path) -> list[str]:
    listed = subprocess.run(["ps", "-eww", "-o", "args"], check=True, capture_output=True, text=True).stdout
    return [line for line in listed.splitlines() if f"{folder}/" in line]
