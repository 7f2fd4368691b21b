from collections.abc import Callable
from typing import Any

import pytest
from flask.testing import FlaskClient

from recording_app import RecordingApp
from remediator.errors import DecodeError, RequestError, StoreUnavailableError
from remediator.telemetry import add_secrets

Bearer = Callable[[str], dict[str, str]]


@pytest.mark.parametrize(
    ("path", "body", "call"),
    [
        (
            "/api/v1/runs",
            {"playbook": "p", "labels": {"a": "1"}},
            ("run_by_hand", "p", {"a": "1"}, {}, "operate-bot"),
        ),
        (
            "/api/v1/runs",
            {"playbook": "p", "labels": {}, "annotations": {"b": "2"}, "by": " alice "},
            ("run_by_hand", "p", {}, {"b": "2"}, "alice (token operate-bot)"),
        ),
        ("/api/v1/runs/r1/cancel", {"reason": "no"}, ("cancel", "r1", "operate-bot", "no")),
        (
            "/api/v1/runs/r1/settle",
            {"happened": True, "reason": "seen", "by": "bob"},
            ("settle", "r1", True, "bob (token operate-bot)", "seen"),
        ),
        ("/api/v1/runs/r1/settle", {"happened": False, "reason": "x"}, ("settle", "r1", False, "operate-bot", "x")),
        ("/api/v1/runs/r1/undo", {"reason": "no"}, ("undo", "r1", "", "operate-bot", "no")),
        (
            "/api/v1/runs/r1/undo",
            {"step": "cap", "reason": "no", "by": "bob"},
            ("undo", "r1", "cap", "bob (token operate-bot)", "no"),
        ),
        ("/api/v1/runs/r1/approve", {"reason": "yes"}, ("approve", "r1", "operate-bot", "yes", 0)),
        (
            "/api/v1/runs/r1/deny",
            {"reason": "no", "question": 7.0, "by": "bob"},
            ("deny", "r1", "bob (token operate-bot)", "no", 7),
        ),
        (
            "/api/v1/runs/r1/note",
            {"text": "a\n\x1b[2Jb "},
            ("note", "r1", "operate-bot", "a\n\x1b[2Jb"),
        ),
        ("/api/v1/pause", {"reason": "works"}, ("pause", "operate-bot", "works")),
        ("/api/v1/resume", {}, ("resume", "operate-bot", "")),
        ("/api/v1/breakers/site/reset", {"reason": "known"}, ("reset_breaker", "site", "operate-bot", "known")),
        ("/api/v1/resume", {"reason": "done", "by": "eve"}, ("resume", "eve (token operate-bot)", "done")),
    ],
)
def test_change_when_asked_then_the_engine_gets_it_with_the_actor(
    path: str, body: dict[str, Any], call: tuple[Any, ...], client: FlaskClient, engine: RecordingApp, bearer: Bearer
) -> None:
    answer = client.post(path, json=body, headers=bearer("operate"))

    assert answer.status_code == 200
    assert engine.calls == [call]


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("/api/v1/runs", {"labels": {}}, "playbook: Field required"),
        ("/api/v1/runs", {"playbook": "p", "labels": {"a": 1}}, "labels.a: Input should be a valid string"),
        ("/api/v1/runs", {"playbook": "p", "labels": {}, "lables": {}}, "lables: Extra inputs are not permitted"),
        ("/api/v1/runs/r1/cancel", {"reason": " \x1c\ufeff"}, "reason: say why; it must not be empty"),
        ("/api/v1/runs/r1/cancel", {"reason": "x" * 1001}, "reason: String should have at most 1000 characters"),
        ("/api/v1/runs/r1/settle", {"reason": "x", "happened": "yes"}, "happened: Input should be a valid boolean"),
        ("/api/v1/runs/r1/approve", {}, "reason: Field required"),
        ("/api/v1/runs/r1/deny", {"reason": "x", "question": -1}, "question: Input should be greater than or equal to"),
        ("/api/v1/runs/r1/deny", {"reason": "x", "question": "7"}, "question: Input should be a valid integer"),
        ("/api/v1/runs/r1/deny", {"reason": "x", "question": 7.5}, "question: Input should be a valid integer"),
        ("/api/v1/runs/r1/note", {"text": "\n "}, "text: a note must not be empty"),
        ("/api/v1/runs/r1/note", {"text": "x" * 4001}, "text: String should have at most 4000 characters"),
        ("/api/v1/pause", [], "body: Input should be an object"),
        ("/api/v1/pause", {"reason": "x", "by": "a\nb"}, "by: String should match pattern"),
    ],
)
def test_change_when_the_body_does_not_fit_then_422_says_where(
    path: str, body: Any, says: str, client: FlaskClient, engine: RecordingApp, bearer: Bearer
) -> None:
    answer = client.post(path, json=body, headers=bearer("operate"))

    assert answer.status_code == 422
    assert answer.json["error"][: len(says)] == says
    assert engine.calls == []


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'{"reason": "\\ud800"}', b"[" * 100_000, b"{} {}"])
def test_change_when_the_body_is_not_json_then_400(body: bytes, client: FlaskClient, bearer: Bearer) -> None:
    answer = client.post("/api/v1/pause", data=body, headers=bearer("operate"), content_type="application/json")

    assert (answer.status_code, answer.json) == (400, {"error": "the body is not JSON"})


@pytest.mark.parametrize("path", ["/api/v1/pause", "/api/v1/runs", "/api/v1/runs/r1/cancel"])
@pytest.mark.parametrize("content_type", [None, "text/plain", "application/x-www-form-urlencoded"])
def test_change_when_a_web_page_could_have_sent_it_then_415(
    path: str, content_type: str | None, client: FlaskClient, engine: RecordingApp, bearer: Bearer
) -> None:
    answer = client.post(path, data=b'{"reason":"x"}', content_type=content_type, headers=bearer("operate"))

    assert answer.status_code == 415
    assert engine.calls == []


@pytest.mark.parametrize("path", ["/api/v1/pause", "/-/reload", "/api/v1/plan", "/api/v1/runs/r/cancel"])
def test_open_change_when_the_host_is_a_strangers_then_403(
    path: str, open_client: FlaskClient, open_engine: RecordingApp
) -> None:
    answer = open_client.post(path, json={"reason": "x"}, headers={"Host": "rebound.example"})

    assert answer.status_code == 403
    assert open_engine.calls == []


def test_open_change_when_from_this_machine_then_the_actor_says_that_it_is_anybody(
    open_client: FlaskClient, open_engine: RecordingApp
) -> None:
    open_client.post("/api/v1/pause", json={"reason": "x"})
    open_client.post("/api/v1/pause", json={"reason": "x", "by": "alice"})

    assert open_engine.calls == [("pause", "local", "x"), ("pause", "alice (no token)", "x")]


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [
        (RequestError("there is no run r1", http_status=404), 404, "there is no run r1"),
        (RequestError("it has ended", http_status=409), 409, "it has ended"),
        (StoreUnavailableError("disk full"), 503, "the store is away: disk full"),
        (RuntimeError("secret detail"), 500, "internal error; the engine's log has it"),
    ],
)
def test_call_when_the_engine_refuses_then_its_status_and_words(
    error: Exception, status: int, says: str, client: FlaskClient, engine: RecordingApp, bearer: Bearer
) -> None:
    engine.answers["run"] = error

    answer = client.get("/api/v1/runs/r1", headers=bearer("view"))

    assert (answer.status_code, answer.json) == (status, {"error": says})
    n_bugs = engine.metrics.registry.get_sample_value("remediator_unexpected_errors_total", {"where": "web"})
    assert n_bugs == (1 if status == 500 else None)


def test_error_when_its_text_holds_a_secret_then_it_is_struck_out(
    client: FlaskClient, engine: RecordingApp, bearer: Bearer
) -> None:
    add_secrets(["canary-in-vendor-text"])
    engine.answers["run"] = RequestError("url was slack://canary-in-vendor-text")

    assert client.get("/api/v1/runs/r1", headers=bearer("view")).json == {"error": "url was slack://[redacted]"}


@pytest.mark.parametrize(
    ("query", "call"),
    [
        ("", ("runs", 100, "all")),
        ("?state=open&limit=1", ("runs", 1, "open")),
        ("?limit=1000&state=ended", ("runs", 1000, "ended")),
    ],
)
def test_runs_when_listed_then_state_and_limit_reach_the_engine(
    query: str, call: tuple[Any, ...], client: FlaskClient, engine: RecordingApp, bearer: Bearer
) -> None:
    answer = client.get(f"/api/v1/runs{query}", headers=bearer("view"))

    assert answer.json == [{"run_id": "r1"}]
    assert engine.calls == [call]


@pytest.mark.parametrize("query", ["?state=closed", "?limit=0", "?limit=1001", "?limit=x", "?limit=", "?stat=open"])
def test_runs_when_the_query_does_not_fit_then_422(
    query: str, client: FlaskClient, engine: RecordingApp, bearer: Bearer
) -> None:
    assert client.get(f"/api/v1/runs{query}", headers=bearer("view")).status_code == 422
    assert engine.calls == []


@pytest.mark.parametrize(("query", "call"), [("", ("leases", 100, False)), ("?state=all&limit=1", ("leases", 1, True))])
def test_leases_when_listed_then_state_and_limit_reach_the_engine(
    query: str, call: tuple[Any, ...], client: FlaskClient, engine: RecordingApp, bearer: Bearer
) -> None:
    answer = client.get(f"/api/v1/leases{query}", headers=bearer("view"))

    assert answer.json == [{"lease_id": "l1"}]
    assert engine.calls == [call]
    assert client.get("/api/v1/leases?state=closed", headers=bearer("view")).status_code == 422


def test_status_when_asked_then_the_engines(client: FlaskClient, bearer: Bearer) -> None:
    assert client.get("/api/v1/status", headers=bearer("view")).json == {"mode": "enforce"}


def test_reload_when_it_works_then_200(client: FlaskClient, engine: RecordingApp, bearer: Bearer) -> None:
    answer = client.post("/-/reload", headers=bearer("operate"))

    assert answer.status_code == 200
    assert engine.calls == [("reload", "operate-bot")]


def test_reload_when_a_file_is_bad_then_422_with_the_problems(
    client: FlaskClient, engine: RecordingApp, bearer: Bearer
) -> None:
    engine.answers["reload"] = {"ok": False, "playbooks": 3, "adopted": 0, "problems": ["a.yaml:1:2: no"]}

    answer = client.post("/-/reload", headers=bearer("operate"))

    assert answer.status_code == 422
    assert answer.json == {
        "error": "the playbooks have problems; the set before stays in force",
        **engine.answers["reload"],
    }


def test_plan_when_asked_then_the_engine_gets_the_body_as_it_came(
    client: FlaskClient, engine: RecordingApp, bearer: Bearer
) -> None:
    answer = client.post("/api/v1/plan", data=b'{"x": 1}', content_type="application/json", headers=bearer("view"))

    assert answer.status_code == 200
    assert engine.calls == [("dry_run", b'{"x": 1}')]


def test_plan_when_the_body_is_no_delivery_then_400(client: FlaskClient, engine: RecordingApp, bearer: Bearer) -> None:
    engine.answers["dry_run"] = DecodeError("version is missing")

    answer = client.post("/api/v1/plan", json={}, headers=bearer("view"))

    assert (answer.status_code, answer.json) == (400, {"error": "version is missing"})
