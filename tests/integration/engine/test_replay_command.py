"""``remediator replay`` on a store that an engine has left, as people type it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pages import reader
from remediator.cli import cli

PAGE = Path(__file__).resolve().parents[3] / "docs" / "howto" / "replay-last-week.md"

PLAYBOOK = """
playbook: restart-on-leak
match: [alertname = GPUMemoryLeakSlope, container_name != ""]
per: [host, container_name]
steps:
  - {action: docker.restart, params: {container: "{{ labels.container_name }}"}}
escalate: {to: [oncall]}
"""

WEEK = ["replay", "--since", "2026-03-01", "--until", "2026-03-08"]


@pytest.fixture
def week(tmp_path: Path, make_bench: Callable[[Path], Any], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: settings, a playbook, and a store with what it did in a week."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    bench = make_bench(tmp_path)
    bench.playbook(PLAYBOOK, "restart-on-leak.yaml")
    bench.start()
    for container, lasts in (("trainer-0", "2h"), ("trainer-1", "10m")):
        bench.deliver(bench.fires(bench.leak(container)))
        bench.after("5m")
        bench.deliver(bench.fires(bench.leak(container), ago="5m"))
        bench.after(lasts)
        bench.deliver(bench.resolved(bench.leak(container)))
        bench.after("1m")
    bench.stop()
    (tmp_path / "remediator.toml").write_text(
        f'store_url = "sqlite:///{tmp_path}/r.db"\nplaybooks = ["{tmp_path}/playbooks"]\n'
        'public_url = "https://remediator.example"\n'
        '[docker.hosts.gpu-07]\nurl = "unix:///nowhere"\n[notify.oncall]\nurls = ["json://localhost"]\n'
    )
    return tmp_path


def other(week: Path, text: str) -> str:
    folder = week / "other"
    folder.mkdir()
    (folder / "a.yaml").write_text(text)
    return str(folder)


def test_replay_when_by_the_settings_playbooks_then_nothing_differs(week: Path) -> None:
    done = CliRunner().invoke(cli, [*WEEK, "--fail-on", "new", "--fail-on", "gone", "--fail-on", "different"])
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "no difference: 2 runs the same"


@pytest.mark.parametrize(
    ("fail_on", "code"), [([], 0), (["new"], 0), (["gone"], 1), (["new", "gone"], 1), (["different"], 0)]
)
def test_replay_when_runs_are_gone_then_fail_on_says_whether_that_fails(
    week: Path, fail_on: list[str], code: int
) -> None:
    folder = other(week, PLAYBOOK.replace("GPUMemoryLeakSlope", "Another"))
    options = [word for kind in fail_on for word in ("--fail-on", kind)]
    assert CliRunner().invoke(cli, [*WEEK, "--playbooks", folder, *options]).exit_code == code


def test_replay_when_asked_for_json_then_it_is_the_same_each_time_and_links(week: Path) -> None:
    folder = other(week, PLAYBOOK.replace("GPUMemoryLeakSlope", "Another"))
    first, second = (CliRunner().invoke(cli, [*WEEK, "--playbooks", folder, "--json"]).stdout for _ in range(2))
    assert first == second
    answer = json.loads(first)
    run_id = answer["differences"][0]["run_id"]
    assert answer["differences"][0]["url"] == f"https://remediator.example/api/v1/runs/{run_id}"
    assert answer["runs"] == {"recorded": 2, "replayed": 0, "same": 0, "new": 0, "gone": 2, "different": 0}


def test_replay_when_more_differ_than_are_printed_then_says_how_many(week: Path) -> None:
    folder = other(week, PLAYBOOK.replace("GPUMemoryLeakSlope", "Another"))
    said = CliRunner().invoke(cli, [*WEEK, "--playbooks", folder, "--limit", "1"]).stdout
    assert said.count("\n- restart-on-leak") == 1
    assert "and 1 more" in said


def test_replay_when_printed_then_no_line_is_wider_than_80_columns(week: Path) -> None:
    folder = other(week, PLAYBOOK.replace("restart-on-leak", "restart-what-leaks-and-says-so-in-a-very-long-name"))
    said = CliRunner(env={"COLUMNS": "80"}).invoke(cli, [*WEEK, "--playbooks", folder]).stdout
    assert max(map(len, said.splitlines())) <= 80


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--store", "sqlite:////nowhere/r.db"], 3, "There is no store"),
        (["--since", "2026-03-08", "--until", "2026-03-01"], 2, "--since must lie before --until"),
        (["--since", "soon"], 2, "write how long ago"),
        (["--playbooks", "broken"], 1, "run 'remediator check'"),
    ],
    ids=["no store", "a window that ends before it begins", "no time", "a playbook with a problem"],
)
def test_replay_when_it_cannot_be_then_says_why(week: Path, words: list[str], code: int, says: str) -> None:
    (week / "broken").mkdir()
    (week / "broken" / "a.yaml").write_text("playbook: a\n")
    done = CliRunner().invoke(cli, ["replay", *words])
    assert done.exit_code == code
    assert says in done.stderr


def test_howto_when_followed_command_by_command_then_all_is_as_it_says(week: Path) -> None:
    env = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "80"}
    with reader(week, {}, env) as person:
        assert person.read(PAGE.read_text("utf-8")) == 2
