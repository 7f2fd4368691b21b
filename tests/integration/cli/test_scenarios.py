"""``remediator test`` on real files, played by the real engine."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import structlog
from click.testing import CliRunner, Result

from remediator.cli import cli, scenario_jobs

PLAYBOOK = """\
playbook: leak
match: [alertname = Leak]
per: [hostname, container_name]
hold: 10m
guard: {cooldown: 2h}
steps:
  - {name: restart, action: docker.restart, params: {container: "{{ labels.container_name }}"}}
report: {to: [ml-platform]}
escalate: {to: [oncall]}
"""
HEAD = """\
playbooks: [leak.yaml]
alerts:
  leak: {labels: {alertname: Leak, hostname: gpu-07, container_name: trainer-0}}
world:
  docker: {gpu-07: {trainer-0: {status: running}}}
scenarios:
"""
GOOD = """\
  - name: restarts once
    story:
      - {at: 0s, fires: leak}
      - {at: 20m, resolves: leak}
    expect:
      - {at: 10m, does: docker.restart, target: docker:gpu-07/trainer-0}
      - {at: 10m, ends: succeeded}
      - {at: 10m, tells: ml-platform, about: report}
"""
NOTHING_EXPECTED = """\
  - name: expects nothing
    story:
      - {at: 0s, fires: leak}
      - {at: 20m, resolves: leak}
    expect: []
"""
TOO_SHORT = """\
  - name: ends in its hold
    story:
      - {at: 0s, fires: leak}
      - {at: 5m, resolves: leak}
    expect: [{at: 5m, ends: cancelled, reason: resolved}]
"""


@pytest.fixture(autouse=True)
def logs() -> Iterator[None]:
    """The command decides what the process logs; afterwards it is as it was."""
    root, ours = logging.getLogger(), logging.getLogger("remediator")
    before = (root.handlers, root.level, ours.level)
    yield
    root.handlers, level, our_level = before
    root.setLevel(level)
    ours.setLevel(our_level)
    structlog.reset_defaults()


@pytest.fixture
def folder(site: Path) -> Path:
    """The settings' default folder, with a playbook and one good test."""
    playbooks = site / "playbooks"
    playbooks.mkdir()
    (playbooks / "leak.yaml").write_text(PLAYBOOK)
    (playbooks / "leak.test.yaml").write_text(HEAD + GOOD)
    return playbooks


def run(*arguments: str) -> Result:
    """``remediator test …`` in this process."""
    return CliRunner().invoke(cli, ["test", *arguments], catch_exceptions=False)


def test_test_when_all_is_as_expected_then_has_a_line_for_each_file_and_ends_with_0(folder: Path) -> None:
    (folder / "other.test.yaml").write_text(HEAD + GOOD + TOO_SHORT)

    result = run("playbooks")

    lines = [line.rpartition("  ")[0] for line in result.stdout.splitlines()[:2]]
    assert result.exit_code == 0
    assert lines == ["ok    playbooks/leak.test.yaml  1 scenario", "ok    playbooks/other.test.yaml  2 scenarios"]
    assert result.stdout.splitlines()[2].startswith("3 passed in ")
    assert result.stderr == ""


def test_test_when_given_no_path_then_plays_what_is_in_the_settings_folders(folder: Path, site: Path) -> None:
    (site / "remediator.toml").write_text('playbooks = ["playbooks"]\n')

    assert run().stdout.startswith("ok    playbooks/leak.test.yaml  1 scenario")


def test_test_when_verbose_then_names_each_scenario(folder: Path) -> None:
    assert "\n      ok    restarts once  " in run("playbooks", "-v").stdout


def test_test_when_verbose_then_tells_of_alerts_that_no_playbook_matches(folder: Path) -> None:
    file = folder / "leak.test.yaml"
    file.write_text((HEAD + NOTHING_EXPECTED).replace("alertname: Leak", "alertname: Leek"))

    assert "expects nothing" not in run("playbooks").stdout
    assert " s  (no playbook matches what fires)\n" in run("playbooks", "-v").stdout
    file.write_text(HEAD + TOO_SHORT)
    assert "no playbook matches" not in run("playbooks", "-v").stdout


def test_test_when_many_scenarios_fail_then_the_first_three_are_told_with_their_logs(folder: Path) -> None:
    failing = [NOTHING_EXPECTED.replace("expects nothing", f"expects nothing {n}") for n in range(5)]
    (folder / "leak.test.yaml").write_text(HEAD + "".join(failing[:2]))
    (folder / "more.test.yaml").write_text(HEAD + "".join(failing[2:]))

    short, long = run("playbooks").stdout, run("playbooks", "-v").stdout

    assert (short.count("does docker.restart\n"), long.count("does docker.restart\n")) == (5, 5)
    assert (short.count("  The audit log:\n"), short.count("  The audit log: -v, or -k and its name\n")) == (3, 2)
    assert long.count("  The audit log:\n") == 5


def test_test_when_a_scenario_fails_then_what_it_says_to_paste_makes_it_good(folder: Path) -> None:
    file = folder / "leak.test.yaml"
    file.write_text(HEAD + GOOD + NOTHING_EXPECTED)

    failed = run("playbooks")

    assert failed.exit_code == 1
    assert failed.stdout.startswith("FAIL  playbooks/leak.test.yaml  1 of 2 scenarios failed  ")
    assert "\nplaybooks/leak.test.yaml:15: failed: expects nothing\n" in failed.stdout
    assert "\n +                                       │ 10m0s  does docker.restart\n" in failed.stdout
    assert "\n    +10m00s  attempt_started    docker.restart docker:gpu-07/trainer-0" in failed.stdout
    pasted = [line for line in failed.stdout.splitlines() if line.startswith("      - {")]
    assert len(pasted) == 3
    file.write_text(HEAD + GOOD + NOTHING_EXPECTED.replace("expect: []", "\n".join(["expect:", *pasted])))
    assert run("playbooks").exit_code == 0


def test_test_when_files_are_wrong_then_prints_every_problem_and_plays_nothing(folder: Path) -> None:
    (folder / "bad.test.yaml").write_text(HEAD + GOOD.replace("fires: leak", "fires: leek").replace("ends:", "endz:"))

    result = run("playbooks")

    places = [line.split(":")[:2] for line in result.stdout.splitlines()]
    assert result.exit_code == 2
    assert places == [["playbooks/bad.test.yaml", line] for line in ("9", "10", "13")]


def test_test_when_a_playbook_is_wrong_then_prints_every_problem_and_ends_with_2(folder: Path) -> None:
    (folder / "leak.yaml").write_text(PLAYBOOK.replace("hold: 10m", "hold: 10").replace("2h", "2"))
    (folder / "leak.test.yaml").write_text(HEAD + GOOD + TOO_SHORT)

    result = run("playbooks")

    assert result.exit_code == 2
    assert result.stdout.count("playbooks/leak.yaml:4:") == 3  # once for the file, once for each scenario at the end
    assert result.stdout.count("playbooks/leak.yaml:5:") == 1
    assert "\n2 failed in " in result.stdout


def test_junit_when_it_cannot_be_written_then_says_so_and_ends_with_3(folder: Path) -> None:
    result = run("playbooks", "--junit", "nowhere/junit.xml")

    assert (result.exit_code, result.stderr) == (
        3,
        "remediator: cannot write nowhere/junit.xml: No such file or directory\n",
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["nowhere"], "nowhere:1:1: cannot be read", id="a path that is not there"),
        pytest.param(["empty"], "empty:1:1: holds no *.test.yaml", id="a folder without tests"),
        pytest.param(["playbooks", "-k", "leek"], "none of 1 scenario fits -k", id="nothing fits"),
        pytest.param(
            ["playbooks", "-k", "leak and"], "-k 'leak and': a text is missing at its end", id="no expression"
        ),
        pytest.param(["playbooks", "--watch", "--json"], "--watch goes without --json", id="what does not go together"),
        pytest.param(["playbooks", "--jobs", "0"], "0 is not in the range", id="no process at all"),
    ],
)
def test_test_when_there_is_nothing_to_play_then_says_why_and_ends_with_2(
    arguments: list[str], said: str, folder: Path, site: Path
) -> None:
    (site / "empty").mkdir()

    result = run(*arguments)

    assert result.exit_code == 2
    assert said in result.output


def test_test_when_some_are_picked_then_plays_these_alone(folder: Path) -> None:
    (folder / "leak.test.yaml").write_text(HEAD + GOOD + NOTHING_EXPECTED)

    assert (run("playbooks", "-k", "restarts once").exit_code, run("playbooks", "-k", "nothing").exit_code) == (0, 1)


def test_test_when_it_is_to_end_at_the_first_failure_then_says_what_it_left_out(folder: Path) -> None:
    (folder / "a.test.yaml").write_text(HEAD + NOTHING_EXPECTED)

    result = run("playbooks", "-x")

    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1].startswith("1 failed, 1 not played in ")


def test_test_when_asked_for_json_then_gives_both_sides_and_the_trail(folder: Path) -> None:
    (folder / "leak.test.yaml").write_text(HEAD + GOOD + NOTHING_EXPECTED)

    result = run("playbooks", "--json", "--coverage")

    told = json.loads(result.stdout)
    good, bad = told["scenarios"]
    assert (result.exit_code, told["passed"], told["failed"], told["problems"]) == (1, 1, 1, [])
    assert (good["file"], good["line"], good["name"], good["ok"], good["trail"]) == (
        "playbooks/leak.test.yaml",
        7,
        "restarts once",
        True,
        [],
    )
    act = good["lines"][0]
    assert act["expected"] == {
        "at_s": 600.0,
        "kind": "does",
        "value": "docker.restart",
        "details": {"target": "docker:gpu-07/trainer-0"},
        "within_s": 60.0,
        "line": 12,
    }
    assert (act["ok"], act["happened"]["details"]["attempts"], act["forbidden"]) == (True, 1, False)
    assert [line["expected"] for line in bad["lines"]] == [None] * 3
    assert bad["trail"][0] == {"at": "+0s", "event": "engine_started", "about": bad["trail"][0]["about"]}
    assert told["coverage"]["n"] == 4
    assert [missed["what"] for missed in told["coverage"]["missed"]] == ["hold", "guard.cooldown"]


def test_test_when_files_are_wrong_and_json_is_asked_for_then_gives_the_problems(folder: Path) -> None:
    (folder / "leak.test.yaml").write_text(HEAD + GOOD.replace("fires: leak", "fires: leek"))

    result = run("playbooks", "--json")

    problem = json.loads(result.stdout)["problems"][0]
    assert result.exit_code == 2
    assert (problem["file"], problem["line"]) == ("playbooks/leak.test.yaml", 9)


def test_test_when_asked_for_junit_then_writes_it(folder: Path, site: Path) -> None:
    (folder / "leak.test.yaml").write_text(HEAD + GOOD + NOTHING_EXPECTED)

    run("playbooks", "--junit", "junit.xml")

    root = ElementTree.parse(site / "junit.xml").getroot()
    assert (root.attrib["tests"], root.attrib["failures"]) == ("2", "1")


def test_coverage_when_a_playbook_has_no_test_then_is_missed_whole(folder: Path) -> None:
    (folder / "leak.test.yaml").write_text(HEAD + GOOD + TOO_SHORT)
    (folder / "other.yaml").write_text("playbook: other\nmatch: [alertname = Other]\nsteps: [{action: noop}]\n")

    result = run("playbooks", "--coverage")

    assert result.exit_code == 0
    assert result.stdout.splitlines()[-4:] == [
        "playbooks/leak.yaml:5:9: playbook leak: guard.cooldown: it never held anything back",
        "playbooks/other.yaml:1:1: playbook other: the playbook: no alert came to it",
        "playbooks/other.yaml:3:9: playbook other: step step_1: it was never tried",
        "coverage: 50 %, 3 of 6",
    ]
    assert [run("playbooks", "--fail-under", limit).exit_code for limit in ("50", "51")] == [0, 1]


ASKING = """\
playbook: asking
match: [alertname = Leak]
per: [hostname, container_name]
guard: {cooldown: 0s, tell_after: 30m, require: [{name: up, query: up, equals: 1}]}
approval: {ask: [oncall]}
steps:
  - name: restart
    action: docker.restart
    params: {container: "{{ labels.container_name }}"}
    verify: [{name: is_up, query: is_up, equals: 1, within: 5m}]
  - {name: stop, action: docker.stop, params: {container: "{{ labels.container_name }}"}, approval: {ask: [boss]}}
escalate: {to: [oncall]}
"""
ASKED = """\
  - name: waits, asks twice and is allowed to
    story:
      - {at: 0s, fires: leak, sees: {up: nothing, is_up: 1}}
      - {at: 1h, sees: {up: 1}}
      - {at: 1h2m, approves: alice}
      - {at: 1h4m, approves: alice}
      - {at: 2h, resolves: leak}
    expect: []
"""


def test_coverage_when_the_engine_asks_waits_and_looks_then_its_log_shows_it(folder: Path) -> None:
    (folder / "leak.yaml").write_text(ASKING)
    (folder / "leak.test.yaml").write_text(HEAD + ASKED)

    told = json.loads(run("playbooks", "--json", "--coverage").stdout)

    assert told["scenarios"][0]["problem"] == ""
    assert told["coverage"] == {"percent": 100.0, "n": 8, "missed": []}


# -- processes beside each other ---------------------------------------------------------------------------------------


@pytest.fixture
def many(folder: Path) -> Path:
    """Enough scenarios for two processes, in two files; the eleventh fails."""
    for name, n in (("a", 10), ("b", 8)):
        scenarios = [TOO_SHORT.replace("ends in its hold", f"{name} {number}") for number in range(n)]
        more = NOTHING_EXPECTED if name == "b" else ""
        (folder / f"{name}.test.yaml").write_text(HEAD + more + "".join(scenarios))
    (folder / "leak.test.yaml").unlink()
    return folder


def test_jobs_when_there_are_two_then_all_is_told_in_the_order_of_files_and_lines(many: Path) -> None:
    one, two = (json.loads(run("playbooks", "--json", "--jobs", jobs).stdout) for jobs in ("1", "2"))

    def without_times(told: dict[str, object]) -> object:
        return json.loads(json.dumps(told), object_hook=lambda pairs: {**pairs, "duration_s": 0})

    assert without_times(one) == without_times(two)
    assert [scenario["name"] for scenario in two["scenarios"]][9:12] == ["a 9", "expects nothing", "b 0"]


def test_jobs_when_a_process_dies_then_its_scenarios_have_failed(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parent, play = os.getpid(), scenario_jobs.play_file

    def die(*arguments: object) -> object:
        if os.getpid() == parent:
            pytest.fail("it is to be played in another process")
        os.kill(os.getpid(), signal.SIGKILL)
        return play(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(scenario_jobs, "play_file", die)

    result = run("playbooks", "--jobs", "2")

    assert result.exit_code == 2
    assert "a process that plays scenarios died" in result.stdout
    assert "passed" not in result.stdout.splitlines()[-1]


def test_jobs_when_a_process_dies_while_they_are_handed_out_then_the_rest_has_failed_too(
    many: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Breaking(ProcessPoolExecutor):
        def submit(self, *_: object, **__: object) -> Future[Any]:
            raise BrokenProcessPool("a child process terminated abruptly")

    monkeypatch.setattr(scenario_jobs, "ProcessPoolExecutor", Breaking)

    result = run("playbooks", "--jobs", "2", "--json")

    scenarios = json.loads(result.stdout)["scenarios"]
    assert result.exit_code == 2
    assert len(scenarios) == 19
    assert all("a process that plays scenarios died" in scenario["problem"] for scenario in scenarios)


def test_jobs_when_a_process_dies_then_its_stores_go_too(
    many: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> object:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    stores = tmp_path / "stores"
    stores.mkdir()
    monkeypatch.setattr(scenario_jobs, "MEMORY", tmp_path / "none")
    monkeypatch.setattr("tempfile.tempdir", str(stores))
    monkeypatch.setattr(scenario_jobs, "play_file", die)

    assert run("playbooks", "--jobs", "2").exit_code == 2

    assert list(stores.iterdir()) == []


def test_test_when_no_store_can_be_made_then_says_where_and_ends_with_3(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scenario_jobs, "MEMORY", tmp_path / "none")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))

    result = run("playbooks")

    assert result.exit_code == 3
    assert f"{tmp_path / 'gone'}" in result.stderr
    assert "No such file or directory" in result.stderr
    assert "TMPDIR" in result.stderr


# -- the real process --------------------------------------------------------------------------------------------------


def wait_until(what: str, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, f"waited for: {what}"
        time.sleep(0.05)


def _heeds_ctrl_c() -> None:
    """A shell that runs the tests in its background lets them ignore it, and with them all that they start."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def watching(folder: Path, site: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """``remediator test --watch`` under way, and what it prints."""
    printed = site / "printed.txt"
    with printed.open("w") as out:
        command = [sys.executable, "-m", "remediator", "test", "playbooks", "--watch"]
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, text=True, cwd=site, preexec_fn=_heeds_ctrl_c
        )
    try:
        wait_until("it watches", lambda: "Ctrl-C ends it" in printed.read_text())
        yield process, printed
    finally:
        process.kill()
        process.wait()


def test_watch_when_a_file_changes_then_plays_what_it_concerns_and_ctrl_c_ends_it(
    watching: tuple[subprocess.Popen[str], Path], folder: Path
) -> None:
    process, printed = watching

    def said(text: str, n: int) -> None:
        wait_until(f"{text!r} {n} times", lambda: printed.read_text().count(text) >= n)

    assert printed.read_text().count("1 passed") == 1
    said("watching", 1)
    (folder / "leak.yaml").write_text(PLAYBOOK.replace("hold: 10m", "hold: 11m"))
    said("1 failed", 1)
    said("watching", 2)
    (folder / "leak.yaml").write_text(PLAYBOOK.replace("hold: 10m", "hold: 10"))
    said("1 failed", 2)
    said("watching", 3)
    (folder / "leak.yaml").write_text(PLAYBOOK)
    said("1 passed", 2)
    said("watching", 4)
    (folder / "new.test.yaml").write_text(HEAD + TOO_SHORT)
    said("ok    playbooks/new.test.yaml", 1)
    assert printed.read_text().count("leak.test.yaml  1 scenario ") == 2

    said("watching", 5)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 0
    assert "Traceback" not in printed.read_text()
