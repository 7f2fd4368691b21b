"""``remediator audit`` on a real file: what people see, what scripts get, and the exit codes."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from remediator.cli import audit as command
from remediator.cli import cli
from remediator.core.event import Event, EventType
from remediator.store.engine import open_store

RUN = "1f0c9a52-8d57-5b0e-9d52-6f3c2b1a0d4e"


@pytest.fixture
def head(url: str, event: Callable[..., Event]) -> str:
    """A store with four events; the last as SEQ:HASH."""
    store = open_store(url)
    now = datetime.now(UTC)
    for fields in (
        {"type": EventType.ENGINE_STARTED, "at": now - timedelta(days=9)},
        {"type": EventType.PLAN_MADE, "run_id": RUN, "n": 1, "playbook": "leak", "data": {"steps": ["restart"]}},
        {
            "type": EventType.ATTEMPT_FINISHED,
            "run_id": RUN,
            "n": 2,
            "playbook": "leak",
            "target": "docker:gpu-07/\x1b[31m\u202etrainer",
            "outcome": "succeeded",
        },
        {"type": EventType.PAUSED, "actor": "mia", "data": {"reason": "[bold]maintenance[/bold]"}},
    ):
        last = store.write(lambda tx, fields=fields: tx.append(event(**{"at": now, **fields})))
    store.close()
    return f"{last.seq}:{last.hash}"


@pytest.fixture
def run(url: str, head: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Result]]:
    monkeypatch.setenv("REMEDIATOR_STORE_URL", url)
    monkeypatch.setenv("COLUMNS", "80")

    def call(*arguments: str, data: bytes | None = None) -> Result:
        return CliRunner().invoke(cli, ["audit", *arguments], input=data)

    return call


def tamper(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TRIGGER IF EXISTS audit_no_update")
        connection.execute("DROP TRIGGER IF EXISTS audit_no_delete")
        connection.execute(statement)
        connection.commit()


def test_list_on_a_terminal_shows_the_newest_last_within_80_columns(
    run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    result = run("list")

    lines = result.output.splitlines()
    assert result.exit_code == 0
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines if line.strip()[:1].isdigit()] == ["1", "2", "3", "4"]


def test_list_in_a_pipe_has_a_whole_line_for_each_event_without_padding(run: Callable[..., Result]) -> None:
    lines = run("list").output.splitlines()

    assert len(lines) == 5
    assert lines == [line.rstrip() for line in lines]
    assert lines[3].endswith(f"docker:gpu-07/\\x1b[31m\\u202etrainer: succeeded  {RUN[:8]}")
    assert lines[4].endswith("  paused            [bold]maintenance[/bold]  by mia")


def test_list_when_a_label_value_would_steer_the_terminal_then_writes_it_out(run: Callable[..., Result]) -> None:
    output = run("list").output

    assert "\x1b" not in output
    assert "\u202e" not in output
    assert r"\x1b[31m\u202e" in output.replace("\n", "").replace(" ", "")


def test_list_with_json_gives_a_line_for_each_event(run: Callable[..., Result]) -> None:
    events = [json.loads(line) for line in run("list", "--json").output.splitlines()]

    assert [event["seq"] for event in events] == [1, 2, 3, 4]
    assert events[1]["data"] == {"steps": ["restart"]}


@pytest.mark.parametrize(
    ("options", "seqs"),
    [
        pytest.param(["--since", "7d"], [2, 3, 4], id="of the last seven days"),
        pytest.param(["--until", "7d"], [1], id="before them"),
        pytest.param(["--since", "2020-01-01", "--limit", "1"], [4], id="the newest one since a date"),
        pytest.param(["--playbook", "leak", "--outcome", "succeeded"], [3], id="of a playbook with an outcome"),
        pytest.param(["--run", RUN[:6]], [2, 3], id="of a run by the beginning of its id"),
        pytest.param(["--type", "paused"], [4], id="of a type"),
        pytest.param(["--target", "none"], [], id="none"),
    ],
)
def test_list_with_filters_gives_only_those(run: Callable[..., Result], options: list[str], seqs: list[int]) -> None:
    output = run("list", "--json", *options).output

    assert [json.loads(line)["seq"] for line in output.splitlines()] == seqs


def test_show_of_a_seq_shows_all_of_it(run: Callable[..., Result], head: str) -> None:
    output = run("show", "4").output

    assert "mia" in output
    assert "[bold]maintenance[/bold]" in output
    assert head.partition(":")[2] in output


def test_show_of_a_run_shows_its_events_in_order(run: Callable[..., Result]) -> None:
    output = run("show", RUN[:8]).output

    assert output.index("plan_made") < output.index("attempt_finished")
    assert "paused" not in output


def test_show_of_a_run_shows_what_people_did_to_it_where_it_happened(
    run: Callable[..., Result], url: str, event: Callable[..., Event]
) -> None:
    other = "2" + RUN[1:]
    store = open_store(url)
    for n, kind in ((1, EventType.PLAN_MADE), (-1, EventType.NOTE_ADDED), (2, EventType.RUN_FINISHED)):
        store.write(lambda tx, k=kind, n=n: tx.append(event(type=k, run_id=other, n=n)))
    store.close()

    output = run("show", other[:8]).output
    assert output.index("plan_made") < output.index("note_added") < output.index("run_finished")


def test_show_of_a_run_tells_the_state_before_with_what_became_of_it(
    run: Callable[..., Result], url: str, event: Callable[..., Event]
) -> None:
    other = "2" + RUN[1:]
    store = open_store(url)
    for n, (kind, data) in enumerate(
        [
            (EventType.ATTEMPT_STARTED, {"step": "steps.a", "attempt": 1, "before": {"pid": 1, "status": "running"}}),
            (EventType.ATTEMPT_FINISHED, {"step": "steps.a", "attempt": 1, "after": {"pid": 2, "status": "running"}}),
            (EventType.ATTEMPT_STARTED, {"step": "steps.a", "attempt": 2, "before": {"pid": 3}}),
        ],
        1,
    ):
        store.write(lambda tx, k=kind, d=data, n=n: tx.append(event(type=k, run_id=other, n=n, data=d)))
    store.close()

    lines = [" ".join(line.split()) for line in run("show", other[:8]).output.splitlines()]

    assert "status running" not in lines
    assert lines[-8:] == [
        "6 2026-01-31 14:00:00 attempt_finished",
        "attempt 1 of a",
        "pid 1 → 2",
        "",
        "7 2026-01-31 14:00:00 attempt_started",
        "attempt 2 of a",
        "before",  # nobody knows what became of it
        "pid 3",
    ]


@pytest.mark.parametrize("which", ["99", "0", "nope"])
def test_show_of_what_is_not_there_says_so(run: Callable[..., Result], which: str) -> None:
    result = run("show", which)

    assert (result.exit_code, result.stdout) == (1, "")
    assert "there is no" in result.stderr


def test_verify_when_intact_then_is_0_and_prints_the_head(run: Callable[..., Result], head: str) -> None:
    result = run("verify")

    assert result.exit_code == 0
    assert "intact: 4 events" in result.output
    assert f"head {head}" in result.output


def test_verify_when_an_event_was_changed_then_is_1_and_names_it(run: Callable[..., Result], path: Path) -> None:
    tamper(path, "UPDATE audit SET outcome = 'failed' WHERE seq = 3")
    result = run("verify")

    assert result.exit_code == 1
    assert "event 3: its column outcome differs from its bytes" in " ".join(result.output.split())


def test_verify_when_the_tail_was_cut_then_only_a_kept_head_shows_it(
    run: Callable[..., Result], path: Path, head: str
) -> None:
    tamper(path, "DELETE FROM audit WHERE seq = 4")

    assert run("verify").exit_code == 0
    result = run("verify", "--head", head)
    assert result.exit_code == 1
    assert "its tail was cut off" in result.output


def test_verify_with_json_gives_an_object(run: Callable[..., Result], head: str) -> None:
    assert json.loads(run("verify", "--json").output) == {
        "ok": True,
        "n_events": 4,
        "head_seq": 4,
        "head_hash": head.partition(":")[2],
        "first_bad_seq": None,
        "problem": "",
    }


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        pytest.param(["verify", "--store", "sqlite:////nowhere/x.db"], 3, "There is no store at", id="no store"),
        pytest.param(["list", "--store", "sqlite:////nowhere/x.db"], 3, "There is no store at", id="no store to list"),
        pytest.param(["verify", "/nowhere.jsonl"], 3, "Cannot read /nowhere.jsonl", id="no export"),
        pytest.param(["export", "-o", "/nowhere/x.jsonl"], 3, "Cannot write", id="nowhere to write"),
        pytest.param(["verify", "--head", "4:zz"], 2, "write SEQ:HASH", id="a head that is none"),
        pytest.param(["list", "--since", "yesterday"], 2, "write how long ago", id="a time that is none"),
        pytest.param(["list", "--store", "postgresql://u:secret@h/d"], 2, "write sqlite:", id="another store"),
    ],
)
def test_audit_when_it_cannot_then_says_why_with_its_exit_code(
    run: Callable[..., Result], arguments: list[str], code: int, text: str
) -> None:
    result = run(*arguments)

    assert result.exit_code == code
    assert text in result.stderr
    assert "secret" not in result.stderr
    assert "Traceback" not in result.output


def test_export_to_a_file_then_verifies_without_the_store(
    run: Callable[..., Result], tmp_path: Path, path: Path, head: str
) -> None:
    file = tmp_path / "audit.jsonl"
    exported = run("export", "-o", str(file))
    path.unlink()

    assert exported.stderr == f"head {head}\n"
    assert file.stat().st_mode & 0o777 == 0o600
    assert run("verify", str(file), "--head", head).exit_code == 0
    assert run("verify", "-", "--head", head, data=file.read_bytes()).exit_code == 0
    assert run("verify", "-", "--head", head, data=file.read_bytes()[:-1000]).exit_code == 1


def test_export_to_stdout_is_what_the_file_is(run: Callable[..., Result], tmp_path: Path) -> None:
    run("export", "-o", str(tmp_path / "x.jsonl"))

    assert run("export").stdout_bytes == (tmp_path / "x.jsonl").read_bytes()


def test_export_when_it_fails_then_leaves_the_old_file(run: Callable[..., Result], tmp_path: Path, path: Path) -> None:
    file = tmp_path / "x.jsonl"
    file.write_bytes(b"old")
    with path.open("r+b") as opened:
        opened.seek(4096)
        opened.write(os.urandom(path.stat().st_size - 4096))

    assert run("export", "--force", "-o", str(file)).exit_code == 3
    assert file.read_bytes() == b"old"


def test_export_when_the_file_is_there_then_only_force_replaces_it(
    run: Callable[..., Result], tmp_path: Path, head: str
) -> None:
    file = tmp_path / "x.jsonl"
    file.write_bytes(b"old")

    refused = run("export", "-o", str(file))

    assert (refused.exit_code, file.read_bytes()) == (2, b"old")
    assert "--force" in refused.stderr
    assert run("export", "-o", str(file), "--force").exit_code == 0
    assert run("verify", str(file), "--head", head).exit_code == 0


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"SQLite format 3\x00\xff\n\x01", id="a database"),
        pytest.param(b"kind: playbook\n", id="text"),
        pytest.param(b"[1]\n", id="JSON"),
        pytest.param(b'{"seq": 1, "at": "x"}\n', id="what list prints as JSON"),
    ],
)
def test_verify_of_what_is_no_export_says_so_with_3(run: Callable[..., Result], data: bytes) -> None:
    result = run("verify", "-", data=data)

    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr == "remediator: this is not an export of the audit log (for a database use --store)\n"


def test_verify_of_an_export_with_filters_says_so_with_3(run: Callable[..., Result]) -> None:
    result = run("verify", "-", data=run("export", "--run", RUN).stdout_bytes)

    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr == "remediator: this export begins at event 2: only a whole one can be verified\n"


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        pytest.param(["--playbook", "laek"], "is about a playbook 'laek'", id="a playbook that never was"),
        pytest.param(["--outcome", "success"], "no outcome 'success'; there are: succeeded, ", id="no outcome"),
        pytest.param(["--outcome", "failed"], "", id="an outcome that did not happen"),
        pytest.param(["--playbook", "leak", "--type", "paused"], "", id="a playbook that had none such"),
    ],
)
def test_list_when_a_filter_can_find_nothing_then_hints_at_it(
    run: Callable[..., Result], options: list[str], hint: str
) -> None:
    result = run("list", *options)

    assert (result.exit_code, result.stdout) == (0, "no events\n")
    assert hint in result.stderr
    assert bool(result.stderr) is bool(hint)


def test_verify_when_it_takes_long_on_a_terminal_then_shows_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "PROGRESS_AFTER_S", 0.0)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    progress = command._Progress()
    progress.show(12_000)
    progress.clear()

    assert "12,000 events fit so far" in capsys.readouterr().err


def test_audit_takes_the_store_from_the_settings(
    run: Callable[..., Result], tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REMEDIATOR_STORE_URL")
    (tmp_path / "remediator.toml").write_text(f'store_url = "{url}"\n')
    result = CliRunner().invoke(cli, ["--config", str(tmp_path / "remediator.toml"), "audit", "verify"])

    assert (result.exit_code, "intact: 4 events" in result.output) == (0, True)
