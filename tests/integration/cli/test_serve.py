"""``serve`` as a process: what it prints, what stops it, what keeps it from starting."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from click.testing import CliRunner

from remediator.cli import cli

PLAYBOOK = "playbook: try\nmatch: [alertname = X]\nper: [host]\nsteps: [{action: noop}]\n"


def start(*arguments: str) -> subprocess.Popen[str]:
    """``remediator …`` in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "remediator", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def free_port() -> int:
    """A port that nobody has now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@pytest.fixture
def port(site: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Settings for an engine on a free port, with one playbook."""
    (site / "playbooks").mkdir()
    (site / "playbooks" / "try.yaml").write_text(PLAYBOOK)
    port = free_port()
    (site / "remediator.toml").write_text(f'listen = "127.0.0.1:{port}"\n')
    # The tests run from here, the package does not.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    return port


@pytest.fixture
def engine(port: int, site: Path) -> Iterator[subprocess.Popen[str]]:
    """A running engine."""
    # Into a file: nobody reads a pipe while the test runs, and a full one would stop the engine.
    with (site / "err").open("w") as err, (site / "out").open("w") as out:
        process = subprocess.Popen([sys.executable, "-m", "remediator", "serve"], stdout=out, stderr=err, text=True)
        try:
            wait_until_ready(process, port)
            yield process
        finally:
            process.kill()
            process.wait()


def wait_until_ready(process: subprocess.Popen[str], port: int) -> None:
    """Until it answers that it is ready; fails when it has ended or does not in time."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if requests.get(f"http://127.0.0.1:{port}/readyz", timeout=1).status_code == 200:
                return
        except requests.RequestException:
            pass
        time.sleep(0.1)
    pytest.fail(f"the engine is not ready: {Path('err').read_text()[-2000:]}")


def test_serve_when_started_and_stopped_then_greets_and_ends_with_0(
    engine: subprocess.Popen[str], port: int, site: Path
) -> None:
    engine.send_signal(signal.SIGTERM)

    assert engine.wait(timeout=40) == 0
    assert (site / "out").read_text().splitlines()[1:] == [
        f"will listen  http://127.0.0.1:{port}",
        f"store        {site}/remediator.db",
        "playbooks    playbooks",
        "auth         no token configured: reachable on loopback only",
    ]
    assert "Traceback" not in (site / "err").read_text()
    assert "defaults are used" not in (site / "err").read_text()


@pytest.mark.parametrize("mode", [0o755, 0o777])
def test_serve_when_everybody_may_write_playbooks_then_its_log_warns(mode: int, port: int, site: Path) -> None:
    (site / "playbooks").chmod(mode)

    process = start("serve")
    try:
        wait_until_ready(process, port)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=40)
    finally:
        process.kill()

    assert ("a file is open to others" in err, "everybody may write playbooks (0777)" in err) == (mode == 0o777,) * 2


def test_commands_when_the_engine_runs_then_reach_it_by_the_settings(engine: subprocess.Popen[str]) -> None:
    done = [
        CliRunner().invoke(cli, words)
        for words in (
            ["status"],
            ["run", "try", "--alert", "alertname=X", "hostname=gpu-07", "--wait"],
            ["runs", "--state", "ended"],
            ["plan", "--alert", "alertname=X", "hostname=gpu-08"],
            ["pause", "--reason", "test"],
            ["pause", "--reason", "again"],
            ["resume"],
            ["reload"],
            ["cancel", "none", "--reason", "test"],
            ["settle", "none", "happened", "--reason", "test"],
            ["run", "nothing", "--alert", "a=b"],
            ["audit", "verify"],
        )
    ]

    assert [(result.exit_code, result.stderr) for result in done if "Traceback" in result.output] == []
    assert [result.exit_code for result in done] == [0, 0, 0, 0, 0, 1, 0, 0, 1, 1, 1, 0]
    assert done[1].stdout.splitlines()[-1] == "unchanged (already_so)"
    assert "alice" in done[5].stderr


def test_serve_when_another_engine_has_the_store_then_names_it_and_ends_with_3(
    engine: subprocess.Popen[str],
) -> None:
    second = start("serve")
    out, err = second.communicate(timeout=30)

    assert (second.returncode, out) == (3, "")
    assert f"is in use by process {engine.pid}" in err
    assert len(err.splitlines()) == 1


def test_serve_when_the_port_is_taken_then_says_so_and_ends_with_2(port: int) -> None:
    with socket.create_server(("127.0.0.1", port)):
        process = start("serve")
        _, err = process.communicate(timeout=30)

    assert process.returncode == 2
    assert str(port) in err.splitlines()[-1]
    assert "Traceback" not in err


def test_serve_when_a_playbook_is_wrong_then_prints_where_and_ends_with_1(port: int, site: Path) -> None:
    (site / "playbooks" / "bad.yaml").write_text("playbook: bad\nmatch: [a = b]\nstepz: []\n")

    process = start("serve")
    _, err = process.communicate(timeout=30)

    assert process.returncode == 1
    assert "playbooks/bad.yaml:3:1: " in err
    assert "Traceback" not in err


def test_doctor_when_the_engine_runs_then_finds_it(engine: subprocess.Popen[str], port: int) -> None:
    result = CliRunner().invoke(cli, ["doctor"])

    assert result.exit_code == 0
    assert f"engine http://127.0.0.1:{port}: answers; refuses an empty POST" in result.stdout
