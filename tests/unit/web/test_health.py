import threading
from collections.abc import Callable
from types import SimpleNamespace

from flask.testing import FlaskClient

from recording_app import RecordingApp
from remediator.web.app import create_app

Bearer = Callable[[str], dict[str, str]]


def test_healthz_when_nothing_is_ready_then_still_ok(client: FlaskClient, engine: RecordingApp) -> None:
    engine.answers["readiness"] = RuntimeError("all is lost")

    assert client.get("/healthz").status_code == 200


def test_readyz_when_ready_then_200_with_checks(client: FlaskClient) -> None:
    answer = client.get("/readyz")

    assert (answer.status_code, answer.json) == (200, {"ready": True, "checks": {"store": "ok"}})


def test_readyz_when_a_check_fails_then_503_says_which(client: FlaskClient, engine: RecordingApp) -> None:
    engine.answers["readiness"] = SimpleNamespace(is_ready=False, checks={"store": "disk full", "playbooks": "ok"})

    answer = client.get("/readyz")

    assert (answer.status_code, answer.json) == (
        503,
        {"ready": False, "checks": {"store": "disk full", "playbooks": "ok"}},
    )


def test_readyz_when_draining_then_503(engine: RecordingApp) -> None:
    draining = threading.Event()
    draining.set()

    answer = create_app(engine, draining=draining).test_client().get("/readyz")  # type: ignore[arg-type]

    assert (answer.status_code, answer.json) == (503, {"ready": False, "checks": {"store": "ok", "engine": "stopping"}})


def test_metrics_when_asked_with_the_role_then_prometheus_text(client: FlaskClient, bearer: Bearer) -> None:
    answer = client.get("/metrics", headers=bearer("view"))

    assert answer.status_code == 200
    assert answer.content_type == "text/plain; version=0.0.4; charset=utf-8"
    assert "remediator_build_info{" in answer.text


def test_metrics_when_no_token_is_configured_then_open(open_client: FlaskClient) -> None:
    assert open_client.get("/metrics").status_code == 200
