"""``remediator test --record`` beside a running engine: what it writes, where, and how it ends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from integration.engine.conftest import Bench
from remediator.cli import cli

PLAYBOOK = """
playbook: restart
match: [alertname = GPUMemoryLeakSlope]
per: [host, container_name]
hold: 10m
steps: [{action: docker.restart, params: {container: "{{ labels.container_name }}"}}]
escalate: {to: [oncall]}
"""

SETTINGS = """
store_url = "sqlite:///{folder}/r.db"
playbooks = ["{folder}/playbooks"]
[docker.hosts.gpu-07]
url = "unix:///nowhere"
[notify.oncall]
urls = ["json://localhost"]
"""

Command = Callable[..., Result]


@pytest.fixture
def command(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Command:
    """``remediator test …`` in the folder of an engine whose newest run restarted a container."""
    bench.playbook(PLAYBOOK, "restart.yaml")
    (bench.folder / "remediator.toml").write_text(SETTINGS.format(folder=bench.folder))
    monkeypatch.chdir(bench.folder)
    bench.start()
    bench.deliver(bench.fires(bench.leak(), annotations={"summary": "trainer-0 leaks"}))
    bench.after("20m")
    bench.deliver(bench.resolved(bench.leak()))
    bench.after("1h")
    return lambda *words: CliRunner().invoke(cli, ["test", *words])


def run_id(bench: Bench) -> str:
    return str(bench.run()["run_id"])


def test_record_when_a_file_is_named_then_writes_it_and_says_how_to_play_it(bench: Bench, command: Command) -> None:
    result = command("--record", run_id(bench)[:8], "--out", "playbooks/leak.test.yaml")

    assert (result.exit_code, result.stdout) == (
        0,
        "written: playbooks/leak.test.yaml; play it: remediator test playbooks/leak.test.yaml\n",
    )
    assert "playbooks: [restart.yaml]\n" in (bench.folder / "playbooks" / "leak.test.yaml").read_text()
    played = command()
    assert (played.exit_code, "1 passed" in played.stdout) == (0, True)


def test_record_when_no_file_is_named_then_prints_what_can_be_kept(bench: Bench, command: Command) -> None:
    result = command("--record", run_id(bench))

    assert result.exit_code == 0
    kept = bench.folder / "kept.test.yaml"
    kept.write_text(result.stdout)
    assert command(str(kept)).exit_code == 0


def test_record_when_anonymised_then_neither_the_file_nor_what_is_said_has_a_name(
    bench: Bench, command: Command
) -> None:
    result = command("--record", run_id(bench), "--anonymise")

    assert result.exit_code == 0
    for name in ("gpu-07", "trainer-0", run_id(bench)):
        assert name not in result.output


def test_record_when_the_file_is_there_then_leaves_it(bench: Bench, command: Command) -> None:
    mine = bench.folder / "mine.test.yaml"
    mine.write_text("mine")

    result = command("--record", run_id(bench), "--out", "mine.test.yaml")

    assert (result.exit_code, mine.read_text()) == (1, "mine")
    assert "mine.test.yaml is there already" in result.stderr


def test_record_when_its_folder_is_not_there_then_says_so(bench: Bench, command: Command) -> None:
    result = command("--record", run_id(bench), "--out", "no/such/leak.test.yaml")

    assert result.exit_code == 1
    assert result.stderr.startswith("remediator: no/such/leak.test.yaml cannot be written: ")


def test_record_when_it_does_not_come_out_as_it_was_then_writes_it_says_so_and_ends_with_1(
    bench: Bench, command: Command
) -> None:
    other = bench.folder / "other.yaml"
    other.write_text(PLAYBOOK.replace("hold: 10m", "hold: 40m"))

    result = command(str(other), "--record", run_id(bench), "--out", "leak.test.yaml")

    assert (result.exit_code, Path("leak.test.yaml").exists()) == (1, True)
    assert "does not come out as it was" in result.stderr
    assert command("leak.test.yaml").exit_code == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(["--record", "0000000000"], "there is no run 0000000000", id="no such run"),
        pytest.param(["--record", "x", "--store", "sqlite:////nowhere.db"], "nowhere.db", id="no store"),
        pytest.param(["--anonymise"], "go with --record", id="anonymise alone"),
        pytest.param(["--out", "x"], "go with --record", id="out alone"),
        pytest.param(["--record", "x", "--json"], "--record goes with", id="with what plays"),
    ],
)
def test_record_when_it_cannot_be_then_says_why(words: list[str], said: str, command: Command) -> None:
    result = command(*words)

    assert result.exit_code != 0
    assert said in result.stderr
    assert "Traceback" not in result.output
