import re
from collections.abc import Callable

import pytest
from flask import Flask
from flask.testing import FlaskClient

from recording_app import RecordingApp
from remediator.settings import Role

OPEN = {("GET", "/healthz"), ("GET", "/readyz"), ("GET", "/api/v1/openapi.json")}
ROLES = {
    ("POST", "/api/v1/alertmanager"): Role.DELIVER,
    ("GET", "/metrics"): Role.VIEW,
    ("GET", "/api/v1/status"): Role.VIEW,
    ("GET", "/api/v1/runs"): Role.VIEW,
    ("GET", "/api/v1/runs/<run_id>"): Role.VIEW,
    ("POST", "/api/v1/plan"): Role.VIEW,
    ("POST", "/api/v1/runs"): Role.OPERATE,
    ("POST", "/api/v1/runs/<run_id>/approve"): Role.OPERATE,
    ("POST", "/api/v1/runs/<run_id>/cancel"): Role.OPERATE,
    ("POST", "/api/v1/runs/<run_id>/deny"): Role.OPERATE,
    ("POST", "/api/v1/runs/<run_id>/note"): Role.OPERATE,
    ("POST", "/api/v1/runs/<run_id>/settle"): Role.OPERATE,
    ("POST", "/api/v1/runs/<run_id>/undo"): Role.OPERATE,
    ("GET", "/api/v1/leases"): Role.VIEW,
    ("GET", "/api/v1/breakers"): Role.VIEW,
    ("POST", "/api/v1/breakers/<name>/reset"): Role.OPERATE,
    ("POST", "/api/v1/pause"): Role.OPERATE,
    ("POST", "/api/v1/resume"): Role.OPERATE,
    ("POST", "/-/reload"): Role.OPERATE,
}
PAGE = "/runs/<run_id>/approval"
ROUTES = sorted(OPEN | ROLES.keys() | {("GET", PAGE), ("POST", PAGE)})
Bearer = Callable[[str], dict[str, str]]


def _routes(flask_app: Flask) -> list[tuple[str, str]]:
    return sorted(
        (method, rule.rule)
        for rule in flask_app.url_map.iter_rules()
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
    )


def test_routes_when_listed_then_they_are_those_of_this_table(flask_app: Flask) -> None:
    assert _routes(flask_app) == ROUTES


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_route_when_no_credentials_then_only_the_open_ones_answer(method: str, path: str, client: FlaskClient) -> None:
    answer = client.open(re.sub("<.*?>", "r1", path), method=method)

    assert answer.status_code == (200 if (method, path) in OPEN | {("GET", PAGE)} else 401)


@pytest.mark.parametrize(
    ("method", "path", "role"),
    [(method, path, role) for (method, path), needed in sorted(ROLES.items()) for role in Role if role != needed],
)
def test_route_when_the_token_has_another_role_then_403_and_nothing_happens(
    method: str, path: str, role: str, client: FlaskClient, engine: RecordingApp, bearer: Bearer
) -> None:
    answer = client.open(re.sub("<.*?>", "r1", path), method=method, headers=bearer(role))

    assert answer.status_code == 403
    assert engine.calls == []


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_answer_when_given_then_no_cache_keeps_it_and_no_page_can_use_it(
    method: str, path: str, client: FlaskClient
) -> None:
    headers = client.open(re.sub("<.*?>", "r1", path), method=method).headers

    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "PROPFIND"])
@pytest.mark.parametrize(
    "path",
    [
        "/",
        "//",
        "/api/v1/alertmanager",
        "/api/v1/alertmanager/",
        "//api/v1/alertmanager",
        "/api//v1/alertmanager",
        "/api/v1/../v1/alertmanager",
        "/api/v1/alertmanager/extra",
        "/api/v1/runs/",
        "/api/v1/runs//cancel",
        "/api/v1/runs/%2e%2e/cancel",
        "/healthz/",
        "/readyz?x=//y",
        "/metrics/",
        "/-/reload/",
        "/%00",
        "/static/x",
        "/api/v1/runs/%0d%0aLocation:x",
    ],
)
def test_any_path_and_method_when_called_then_never_a_redirect_and_never_500(
    method: str, path: str, client: FlaskClient, bearer: Bearer
) -> None:
    for headers in ({}, bearer("deliver"), bearer("operate")):
        answer = client.open(path, method=method, headers=headers, data=b"{}", content_type="application/json")

        assert answer.status_code in (200, 400, 401, 403, 404, 405, 415, 422)
        assert "Location" not in answer.headers


@pytest.mark.parametrize("path", ["/api/v1/alertmanager/", "/api/v1/alertmanager"])
def test_webhook_when_a_slash_follows_then_it_is_the_same_route(path: str, client: FlaskClient, bearer: Bearer) -> None:
    assert client.post(path, data=b"{}", headers=bearer("deliver")).status_code == 200


def test_error_when_the_path_is_unknown_then_json(client: FlaskClient) -> None:
    answer = client.get("/nope")

    assert answer.status_code == 404
    assert list(answer.json) == ["error"]


def test_error_when_the_method_is_wrong_then_json_and_allow(client: FlaskClient) -> None:
    answer = client.get("/api/v1/alertmanager")

    assert answer.status_code == 405
    assert answer.headers["Allow"] == "POST"
    assert list(answer.json) == ["error"]
