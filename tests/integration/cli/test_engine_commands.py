"""The commands that go through the engine's API, against a real HTTP server that answers as it is told."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from remediator.cli import api_client, cli, run, runs
from remediator.core.move import WITHOUT_A_FIX
from remediator.settings import load_settings

RUN = {
    "run_id": "4f1d",
    "playbook": "restart-on-leak",
    "case": "",
    "per": {"host": "gpu-07"},
    "phase": "waiting",
    "outcome": "",
    "reason": "",
    "waits_for": ["cooldown:cooldown"],
    "created_at": "2026-11-30T08:00:00.000000Z",
    "ended_at": "",
}
ENDED = {
    **RUN,
    "phase": "ended",
    "outcome": "succeeded",
    "reason": "none",
    "waits_for": [],
    "ended_at": "2026-11-30T08:01:00Z",
}
STATUS: dict[str, Any] = {
    "version": "0.1.0",
    "ready": True,
    "checks": {"store": "ok", "playbooks": "ok"},
    "up_since": "2026-11-30T08:00:00.000000Z",
    "mode": "enforce",
    "paused": None,
    "tripped_breakers": [],
    "playbooks": ["restart-on-leak"],
    "open_alerts": 1,
    "open_subjects": 1,
    "adopted_subjects": 0,
    "deliveries_waiting": 0,
    "open_leases": 2,
    "runs_by_phase": {},
    "waiting_for": {},
    "ended_lately": [],
    "open_runs": [],
    "unsettled_runs": [],
    "audit": {"seq": 7, "hash": "ab"},
}


@dataclass
class Engine:
    """What the server answers, and what it was asked."""

    url: str = ""
    answers: list[tuple[int, Any, dict[str, str]]] = field(default_factory=list)
    asked: list[tuple[str, str, Any, str | None]] = field(default_factory=list)

    def answers_with(self, body: Any, status: int = 200, **headers: str) -> None:
        """The next answer; the last one is repeated."""
        self.answers.append((status, body, headers))


@pytest.fixture
def engine() -> Iterator[Engine]:
    """A server on a free port of loopback."""
    told = Engine()

    class Answer(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            told.asked.append(
                (self.command, self.path, json.loads(body) if body else None, self.headers.get("Authorization"))
            )
            status, content, headers = told.answers.pop(0) if len(told.answers) > 1 else told.answers[0]
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = answer

        def log_message(self, *_: object) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    told.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield told
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def call(engine: Engine, *arguments: str, **environment: str) -> Result:
    """The command, against this engine."""
    return CliRunner().invoke(cli, [*arguments, "--url", engine.url], env=environment)


@pytest.mark.parametrize(
    ("arguments", "answer", "path", "body"),
    [
        pytest.param(
            ["pause", "--reason", "maintenance"],
            {"paused": True},
            "/api/v1/pause",
            {"reason": "maintenance", "by": "alice"},
            id="pause",
        ),
        pytest.param(["resume"], {"paused": False}, "/api/v1/resume", {"reason": "", "by": "alice"}, id="resume"),
        pytest.param(
            ["resume", "--reason", "done", "--by", "bob"],
            {"paused": False},
            "/api/v1/resume",
            {"reason": "done", "by": "bob"},
            id="resume by another, with a reason",
        ),
        pytest.param(
            ["breaker", "reset", "a/b", "--reason", "mended"],
            {"breaker": "a/b", "woken": 3},
            "/api/v1/breakers/a%2Fb/reset",
            {"reason": "mended", "by": "alice"},
            id="breaker reset, whatever its name",
        ),
        pytest.param(
            ["cancel", "4f1d", "--reason", "wrong"],
            {"run_id": "4f1d"},
            "/api/v1/runs/4f1d/cancel",
            {"reason": "wrong", "by": "alice"},
            id="cancel",
        ),
        pytest.param(
            ["cancel", "../../-/reload?x", "--reason", "wrong"],
            {"run_id": ""},
            "/api/v1/runs/..%2F..%2F-%2Freload%3Fx/cancel",
            {"reason": "wrong", "by": "alice"},
            id="a run's id stays one part of the path",
        ),
        pytest.param(
            ["undo", "4f1d", "--reason", "the job needs it"],
            {"run_id": "4f1d", "leases": []},
            "/api/v1/runs/4f1d/undo",
            {"step": "", "reason": "the job needs it", "by": "alice"},
            id="undo",
        ),
        pytest.param(
            ["undo", "4f1d", "--step", "cap", "--reason", "x", "--by", "bob"],
            {"run_id": "4f1d", "leases": []},
            "/api/v1/runs/4f1d/undo",
            {"step": "cap", "reason": "x", "by": "bob"},
            id="undo of one step",
        ),
        pytest.param(
            ["approve", "4f1d", "--reason", "a quiet hour"],
            {"run_id": "4f1d", "key": "rung.0"},
            "/api/v1/runs/4f1d/approve",
            {"reason": "a quiet hour", "question": 0, "by": "alice"},
            id="approve",
        ),
        pytest.param(
            ["deny", "4f1d", "--reason", "not now", "--question", "71", "--by", "bob"],
            {"run_id": "4f1d", "key": "steps.drain"},
            "/api/v1/runs/4f1d/deny",
            {"reason": "not now", "question": 71, "by": "bob"},
            id="deny one question",
        ),
        pytest.param(
            ["note", "4f1d", "the fan is broken"],
            {"run_id": "4f1d"},
            "/api/v1/runs/4f1d/note",
            {"text": "the fan is broken", "by": "alice"},
            id="note",
        ),
        pytest.param(
            ["settle", "4f1d", "happened", "--reason", "looked"],
            {"run_id": "4f1d"},
            "/api/v1/runs/4f1d/settle",
            {"happened": True, "reason": "looked", "by": "alice"},
            id="settle happened",
        ),
        pytest.param(
            ["settle", "4f1d", "did-not-happen", "--reason", "looked"],
            {"run_id": "4f1d"},
            "/api/v1/runs/4f1d/settle",
            {"happened": False, "reason": "looked", "by": "alice"},
            id="settle did-not-happen",
        ),
        pytest.param(
            ["run", "restart", "--alert", "host=gpu-07", "query=a=b", "--annotation", "x="],
            {"run_id": "4f1d"},
            "/api/v1/runs",
            {
                "playbook": "restart",
                "labels": {"host": "gpu-07", "query": "a=b"},
                "annotations": {"x": ""},
                "by": "alice",
            },
            id="run",
        ),
        pytest.param(
            ["reload"], {"ok": True, "playbooks": 2, "adopted": 1, "problems": []}, "/-/reload", {}, id="reload"
        ),
    ],
)
def test_command_when_it_changes_something_then_posts_it_with_the_name_of_the_person(
    arguments: list[str], answer: dict[str, Any], path: str, body: dict[str, Any], engine: Engine
) -> None:
    engine.answers_with(answer)

    result = call(engine, *arguments)

    assert (result.exit_code, result.stderr) == (0, "")
    assert len(result.stdout.splitlines()) == 1
    assert engine.asked == [("POST", path, body, None)]


@pytest.mark.parametrize(
    ("arguments", "path", "answer"),
    [
        pytest.param(["status"], "/api/v1/status", STATUS, id="status"),
        pytest.param(["runs"], "/api/v1/runs?state=open&limit=50", [RUN], id="open runs"),
        pytest.param(
            ["runs", "--state", "all", "--limit", "7"], "/api/v1/runs?state=all&limit=7", [RUN], id="all runs"
        ),
    ],
)
def test_command_when_asked_for_json_then_prints_the_engine_s_answer(
    arguments: list[str], path: str, answer: Any, engine: Engine
) -> None:
    engine.answers_with(answer)

    result = call(engine, *arguments, "--json")

    assert json.loads(result.stdout) == answer
    assert engine.asked == [("GET", path, None, None)]


def test_runs_when_listed_then_says_where_each_stands(engine: Engine) -> None:
    engine.answers_with([RUN, ENDED, {**ENDED, "outcome": "failed", "reason": "transient"}])

    lines = call(engine, "runs").stdout.splitlines()

    assert [lines[0], lines[2], lines[4], lines[7]] == [
        "4f1d  waiting",
        "    waits for the cooldown",
        "4f1d  succeeded",
        "4f1d  failed (transient)",
    ]
    assert lines[1] == "    restart-on-leak: host=gpu-07"


def test_runs_when_it_is_known_when_they_go_on_then_says_so(engine: Engine) -> None:
    due = "2026-11-30T08:30:00.000000Z"
    holding = {**RUN, "phase": "holding", "waits_for": [], "due_at": due}
    engine.answers_with([{**RUN, "due_at": due}, holding, {**ENDED, "due_at": due}])

    lines = call(engine, "runs").stdout.splitlines()

    assert [line.strip() for line in lines if "08:30" in line] == [
        "waits for the cooldown, next look at 2026-11-30 08:30:00 UTC",
        "next look at 2026-11-30 08:30:00 UTC",
    ]


def test_runs_when_a_target_is_busy_then_it_is_named_once(engine: Engine) -> None:
    waits_for = ["busy:docker:gpu-07/a", "cooldown:cooldown", "reservation:busy_target"]
    engine.answers_with([{**RUN, "waits_for": waits_for}])

    output = " ".join(call(engine, "runs").stdout.split())

    assert "waits for the cooldown; another run that has its target (docker:gpu-07/a) since" in output


@pytest.mark.parametrize("outcome", sorted(WITHOUT_A_FIX))
def test_runs_when_a_run_left_things_as_bad_as_they_were_then_it_is_red(
    outcome: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[tuple[str, str]] = []
    monkeypatch.setattr(runs, "say", lambda text="", style="": said.append((text, style)))
    engine.answers_with([{**ENDED, "outcome": outcome}])

    call(engine, "runs")

    assert said == [(f"4f1d  {outcome}", "red")]


def test_runs_when_there_is_none_then_says_so(engine: Engine) -> None:
    engine.answers_with([])

    assert call(engine, "runs").stdout == "no open runs\n"


def test_runs_when_a_label_steers_the_terminal_then_shows_it(engine: Engine) -> None:
    engine.answers_with([{**RUN, "per": {"host": "\x1b[2J"}}])

    output = call(engine, "runs").stdout

    assert "\x1b" not in output
    assert "host=\\x1b[2J" in output


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        pytest.param("succeeded", 0, id="it worked"),
        pytest.param("unchanged", 0, id="nothing had to change"),
        pytest.param("failed", 1, id="it failed"),
        pytest.param("unknown", 1, id="nobody knows"),
        pytest.param("refused", 1, id="it was refused"),
    ],
)
def test_run_when_told_to_wait_then_ends_as_the_run_does(
    outcome: str, code: int, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "POLL_S", 0)
    engine.answers_with(STATUS)
    engine.answers_with({"run_id": "4f1d"})
    engine.answers_with(RUN)
    engine.answers_with(RUN)
    engine.answers_with({**ENDED, "outcome": outcome})

    result = call(engine, "run", "restart", "--alert", "host=gpu-07", "--wait")

    assert result.exit_code == code
    assert result.stdout.splitlines() == ["started run 4f1d", "waiting for the cooldown", outcome]
    looks = ["/api/v1/runs/4f1d"] * 3
    assert [path for _, path, _, _ in engine.asked] == ["/api/v1/status", "/api/v1/runs", *looks]


def test_run_when_it_does_not_wait_then_says_where_to_look(engine: Engine) -> None:
    engine.answers_with({"run_id": "4f1d9a52-0000"})

    assert call(engine, "run", "restart", "--alert", "host=gpu-07").stdout.splitlines() == [
        "started run 4f1d9a52-0000  (remediator incident 4f1d9a52)"
    ]


def test_run_when_told_to_wait_with_a_token_that_may_not_look_then_starts_nothing(engine: Engine) -> None:
    engine.answers_with({"error": "needs role view"}, status=403)

    result = call(engine, "run", "restart", "--alert", "host=gpu-07", "--wait")

    assert (result.exit_code, [path for _, path, _, _ in engine.asked]) == (1, ["/api/v1/status"])


def test_run_when_told_to_wait_and_for_json_then_prints_the_end_alone(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "POLL_S", 0)
    engine.answers_with(STATUS)
    engine.answers_with({"run_id": "4f1d"})
    engine.answers_with(RUN)
    engine.answers_with(ENDED)

    assert json.loads(call(engine, "run", "restart", "--alert", "host=gpu-07", "--wait", "--json").stdout) == ENDED


def test_token_file_when_given_then_its_first_token_is_sent_and_never_shown(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret-new\ns3cret-old\n")
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login other password other\n")
    engine.answers_with({"error": "no"}, status=403)

    result = call(engine, "status", REMEDIATOR_TOKEN_FILE=str(tmp_path / "token"), HOME=str(tmp_path))

    assert [authorization for *_, authorization in engine.asked] == ["Bearer s3cret-new"]
    assert "s3cret" not in result.output


@pytest.mark.parametrize(
    ("content", "code", "text"),
    [
        pytest.param(None, 3, "cannot be read", id="a file that is not there"),
        pytest.param(b"", 3, "is empty", id="an empty file"),
        pytest.param("tökän".encode(), 2, "visible ASCII", id="a token with other letters"),
        pytest.param(b"two words", 2, "visible ASCII", id="a token with a space"),
        pytest.param(b"\xff\xfe", 3, "not UTF-8", id="no text at all"),
    ],
)
def test_token_file_when_it_holds_no_token_then_says_so_and_asks_nobody(
    content: bytes | None, code: int, text: str, engine: Engine, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "token").write_bytes(content)

    result = call(engine, "status", "--token-file", str(tmp_path / "token"))

    assert (result.exit_code, engine.asked) == (code, [])
    assert text in result.stderr


@pytest.mark.parametrize(
    ("status", "body", "headers", "code", "text"),
    [
        pytest.param(401, {"error": "no token"}, {}, 1, "asks for a token: give a file", id="no token"),
        pytest.param(
            403,
            {"error": "needs role operate"},
            {},
            1,
            "may not do that: needs role operate",
            id="a token without the role",
        ),
        pytest.param(404, {"error": "no run 4f1d"}, {}, 1, "no run 4f1d", id="a run that is not there"),
        pytest.param(409, {"error": "is paused already"}, {}, 1, "is paused already", id="not in this state"),
        pytest.param(
            422,
            {"error": "the old set stays", "problems": ["a.yaml:1:2: bad", "b.yaml:3:4: worse"]},
            {},
            1,
            "the old set stays\n  a.yaml:1:2: bad\n  b.yaml:3:4: worse",
            id="a reload with problems",
        ),
        pytest.param(
            503, {"error": "the store is away"}, {}, 3, "(HTTP 503): the store is away", id="the store is away"
        ),
        pytest.param(
            302, b"", {"Location": "https://sso/login"}, 3, "redirects to https://sso/login", id="a login page"
        ),
        pytest.param(
            307,
            b"",
            {"Location": "https://other/"},
            3,
            "redirects to https://other/",
            id="a redirect that keeps the method",
        ),
        pytest.param(404, b"<html>not found</html>", {}, 3, "but is no remediator engine", id="another web server"),
        pytest.param(200, b"<html>hello</html>", {}, 3, "but is no remediator engine", id="a page with 200"),
        pytest.param(404, {"message": "not here"}, {}, 3, "but is no remediator engine", id="another API"),
        pytest.param(502, b"\x1b[31mBad gateway", {}, 3, "\\x1b[31mBad gateway", id="a proxy's own error, made safe"),
    ],
)
def test_command_when_the_engine_says_no_then_one_message_and_the_right_code(
    status: int, body: Any, headers: dict[str, str], code: int, text: str, engine: Engine
) -> None:
    engine.answers_with(body, status, **headers)

    result = call(engine, "pause", "--reason", "x")

    assert (result.exit_code, result.stdout) == (code, "")
    assert text in result.stderr
    assert len(engine.asked) == 1


@pytest.mark.parametrize(
    "body",
    [
        pytest.param([1], id="a list"),
        pytest.param({"status": "success", "data": {}}, id="another map"),
        pytest.param("ready", id="a text"),
        pytest.param(b"<html>a web page</html>", id="a page"),
    ],
)
@pytest.mark.parametrize(
    "arguments",
    [
        ["status"],
        ["runs"],
        ["reload"],
        ["pause", "--reason", "x"],
        ["resume"],
        ["cancel", "4f1d", "--reason", "x"],
        ["settle", "4f1d", "happened", "--reason", "x"],
        ["run", "p", "--alert", "a=b"],
        ["run", "p", "--alert", "a=b", "--wait"],
    ],
    ids=" ".join,
)
def test_command_when_another_program_answers_then_one_line_says_so(
    arguments: list[str], body: Any, engine: Engine
) -> None:
    engine.answers_with(body)

    result = call(engine, *arguments)

    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr == (
        f"remediator: {engine.url} answers (HTTP 200), but is no remediator engine: point --url at the engine itself\n"
    )


@pytest.mark.parametrize("status", [404, 502])
def test_command_when_a_web_page_comes_then_it_is_not_shown(status: int, engine: Engine) -> None:
    engine.answers_with(b"<!doctype html><p>a page", status)

    result = call(engine, "status")

    assert (result.exit_code, len(result.stderr.splitlines()), "<" in result.stderr) == (3, 1, False)


@pytest.mark.parametrize(
    ("url", "code", "text"),
    [
        pytest.param(
            "http://127.0.0.1:1", 3, "(Connection refused). Start it with remediator serve", id="nobody listens"
        ),
        pytest.param("http://nosuch.invalid", 3, "no engine answers at http://nosuch.invalid", id="no such name"),
        pytest.param("127.0.0.1:9095", 2, "is no address of an engine", id="no scheme"),
        pytest.param("http://", 2, "is no address of an engine", id="no host"),
        pytest.param("http://alice:s3cret@127.0.0.1:1", 3, "at http://127.0.0.1:1 (", id="a password in it"),
        pytest.param("ftp://engine", 2, "is no address of an engine", id="another scheme"),
    ],
)
def test_command_when_no_engine_is_there_then_says_what_to_do(url: str, code: int, text: str) -> None:
    result = CliRunner().invoke(cli, ["status", "--url", url])

    assert (result.exit_code, result.stdout) == (code, "")
    assert text in result.stderr
    assert "s3cret" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "says_so"),
    [
        pytest.param(["pause", "--reason", "x"], True, id="a change may have been made"),
        pytest.param(["status"], False, id="a question changes nothing"),
    ],
)
def test_command_when_the_answer_does_not_come_then_says_whether_it_may_be_done(
    arguments: list[str], says_so: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_client, "ANSWER_TIMEOUT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"

        result = CliRunner().invoke(cli, [*arguments, "--url", url])

    assert result.exit_code == 3
    assert "did not answer within" in result.stderr
    assert ("may have been done" in result.stderr) is says_so


@pytest.mark.parametrize(
    ("listen", "url"),
    [
        pytest.param("127.0.0.1:9095", "http://127.0.0.1:9095", id="loopback"),
        pytest.param("[::1]:9095", "http://[::1]:9095", id="IPv6 loopback"),
        pytest.param("localhost:9095", "http://localhost:9095", id="a name"),
    ],
)
def test_address_when_not_given_then_is_where_the_settings_listen(
    listen: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(api_client.EngineClient, "get", lambda self, path, has: asked.append(self.url + path) or {})

    CliRunner().invoke(cli, ["status"], env={"REMEDIATOR_LISTEN": listen})

    assert asked == [f"{url}/api/v1/status"]


def test_address_when_the_settings_leave_the_port_open_then_asks_for_it() -> None:
    result = CliRunner().invoke(cli, ["status"], env={"REMEDIATOR_LISTEN": "127.0.0.1:0"})

    assert result.exit_code == 2
    assert "give the engine's address with --url" in result.stderr


def test_variables_of_commands_when_set_then_are_no_unknown_settings(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t0ken-of-alice")
    engine.answers_with([])
    environment = {"REMEDIATOR_URL": engine.url, "REMEDIATOR_TOKEN_FILE": str(tmp_path / "token")}

    assert CliRunner().invoke(cli, ["runs"], env=environment).exit_code == 0
    assert load_settings(environ=environment).listen == "127.0.0.1:9095"


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        pytest.param({"SUDO_USER": "carol", "USER": "root"}, "carol", id="behind sudo"),
        pytest.param({"USER": "carol"}, "carol", id="the user"),
        pytest.param({"USER": "", "LOGNAME": "dave"}, "dave", id="the login name"),
    ],
)
def test_by_when_not_given_then_is_the_person_at_the_keyboard(
    environment: dict[str, str], name: str, engine: Engine
) -> None:
    engine.answers_with({"paused": True})

    call(engine, "pause", "--reason", "x", **environment)

    assert [body["by"] for _, _, body, _ in engine.asked] == [name]


BREAKER = {
    "name": "site",
    "tripped": False,
    "tripped_at": "",
    "why": "",
    "reset_at": "2026-11-30T08:00:00Z",
    "in_force": True,
    "limit": "20 % of gpus changed within 10m",
    "n_changed": 2,
    "n_failures": 1,
}
TRIPPED = {**BREAKER, "tripped": True, "tripped_at": "08:00", "why": "3 targets changed", "reset_at": ""}


@pytest.mark.parametrize(
    ("answer", "lines"),
    [
        pytest.param([], ["no policy has a breaker"], id="there is none"),
        pytest.param(
            [BREAKER],
            [
                "site  not tripped",
                "  trips at     20 % of gpus changed within 10m",
                "  counted now  targets changed: 2, runs without a fix: 1",
                "  last reset   2026-11-30 08:00:00 UTC",
            ],
            id="it is not tripped",
        ),
        pytest.param(
            [TRIPPED],
            [
                "site  TRIPPED since 08:00: 3 targets changed",
                "  once you know why: remediator breaker reset site --reason TEXT",
                "  trips at  20 % of gpus changed within 10m",
            ],
            id="it has tripped",
        ),
        pytest.param(
            [{**TRIPPED, "in_force": False, "limit": ""}],
            [
                "site  TRIPPED since 08:00: 3 targets changed",
                "  once you know why: remediator breaker reset site --reason TEXT",
                "  trips at  in no policy in force",
            ],
            id="its policy is gone",
        ),
    ],
)
def test_breaker_list_when_the_engine_answers_then_says_which_hold(
    answer: list[dict[str, Any]], lines: list[str], engine: Engine
) -> None:
    engine.answers_with(answer)

    assert call(engine, "breaker", "list").stdout.splitlines() == lines
    assert engine.asked[0][:2] == ("GET", "/api/v1/breakers")


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        pytest.param({}, "ready", id="all is well"),
        pytest.param(
            {"tripped_breakers": [TRIPPED]}, "site  TRIPPED since 08:00: 3 targets changed", id="a breaker has tripped"
        ),
        pytest.param({"ready": False}, "NOT READY", id="it is not ready"),
        pytest.param({"checks": {"playbooks": "a.yaml:1:1: bad"}}, "  playbooks: a.yaml:1:1: bad", id="a check fails"),
        pytest.param(
            {"paused": {"by": "alice", "reason": "work", "at": "08:00"}},
            "PAUSED by alice since 08:00: work",
            id="it is paused",
        ),
        pytest.param({"open_runs": [RUN]}, "    waits for the cooldown", id="a run is open"),
        pytest.param({"unsettled_runs": ["9c2e"]}, "  9c2e", id="a run is unknown"),
        pytest.param(
            {"runs_by_phase": {"waiting": 3, "asking": 1, "ended": 2}},
            "runs now                        3 waiting, 1 asking",
            id="runs are counted by what they are at",
        ),
        pytest.param(
            {"waiting_for": {"cooldown": 1, "busy_target": 2}},
            "they wait for                   2 for another run that has its target; 1 for the",
            id="what runs wait for, the most first",
        ),
        pytest.param(
            {
                "ended_lately": [
                    {"outcome": "refused", "reason": "cooldown", "n": 1},
                    {"outcome": "refused", "reason": "protected", "n": 2},
                    {"outcome": "succeeded", "reason": "none", "n": 4},
                ]
            },
            "runs of the last 24h            3 refused (1 cooldown, 2 protected), 4 succeeded",
            id="how runs ended lately",
        ),
        pytest.param(
            {"open_runs": [{**RUN, "phase": "asking", "waits_for": [], "asks": ["oncall"], "expires_at": "08:30"}]},
            "    asks oncall whether it may act; no answer until 08:30 is a no:",
            id="a run asks",
        ),
        pytest.param(
            {"open_runs": [{**RUN, "phase": "asking", "asks": ["oncall"], "question": 7, "expires_at": "08:30"}]},
            "      remediator approve|deny 4f1d --question 7 --reason TEXT",
            id="how to answer",
        ),
        pytest.param(
            {"checks": {"playbooks": "a.yaml:1:1: bad"}},
            "    the old set stays in force",
            id="bad files, in the old set",
        ),
        pytest.param(
            {"adopted_subjects": 2}, "adopted subjects, not acted on  2", id="some fired before they could be acted on"
        ),
        pytest.param(
            {}, "not away for 5m since           2026-11-30 08:00:00 UTC", id="since when it is up, as it counts it"
        ),
        pytest.param({}, "audit head                      7:ab", id="the head of the audit, to keep elsewhere"),
    ],
)
def test_status_when_printed_then_says_what_matters_first(changes: dict[str, Any], line: str, engine: Engine) -> None:
    engine.answers_with({**STATUS, **changes})

    result = call(engine, "status")

    assert (result.exit_code, result.stderr) == (0, "")
    assert line in result.stdout.splitlines()


def test_run_when_no_plan_can_be_made_then_says_why_and_ends_with_1(engine: Engine) -> None:
    engine.answers_with(STATUS)
    engine.answers_with({"run_id": "4f1d", "refused": {"reason": "missing_label", "detail": "labels.pod is missing"}})

    result = call(engine, "run", "restart", "--alert", "host=gpu-07", "--wait")

    assert (result.exit_code, result.stdout) == (1, "refused (missing_label): labels.pod is missing\n")
    assert len(engine.asked) == 2
