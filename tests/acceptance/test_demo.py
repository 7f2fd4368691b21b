"""``make demo``: it shows what it says it shows, says so when it does not, and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from realparts.docker_engine import DockerEngine

DEMO = Path(__file__).resolve().parents[2] / "deploy" / "demo" / "demo.py"

pytestmark = [pytest.mark.docker, pytest.mark.alertmanager]


def play(docker_url: str, **more: str) -> subprocess.CompletedProcess[str]:
    """The demo, on an engine that is there already; as a user whose terminal is a pipe."""
    return subprocess.run(
        [sys.executable, str(DEMO)],
        env=os.environ | {"DOCKER_HOST": docker_url, **more},
        capture_output=True,
        text=True,
        timeout=180,
    )


def test_demo_when_played_then_one_restart_is_shown_and_verified_and_nothing_is_left(
    docker_engine: DockerEngine,
) -> None:
    before = {container.name for container in docker_engine.client.containers.list(all=True)}
    done = play(docker_engine.url)
    after = {container.name for container in docker_engine.client.containers.list(all=True)}
    assert (done.returncode, "intact: " in done.stdout, "✗" in done.stdout, done.stderr, after - before) == (
        0,
        True,
        False,
        "",
        set(),
    ), done.stdout + done.stderr


def test_demo_when_its_container_name_is_taken_then_it_says_so_and_leaves_that_container_alone(
    docker_engine: DockerEngine,
) -> None:
    taken = docker_engine.run("remediator-demo-trainer")
    try:
        done = play(docker_engine.url)
        taken.reload()
        assert (done.returncode, "already in use" in done.stdout, taken.status) == (1, True, "running"), done.stdout
    finally:
        docker_engine.remove("remediator-demo-trainer")
