import base64
import json
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from flask.testing import FlaskClient

from recording_app import RecordingApp
from recordings import recorded
from remediator.errors import DecodeError, StoreUnavailableError, UnsupportedVersionError
from remediator.web.app import create_app

URL = "/api/v1/alertmanager"
BODY = b'{"version":"4","alerts":[]}'
Bearer = Callable[[str], dict[str, str]]


def _count(engine: RecordingApp, status: int) -> float:
    value = engine.metrics.registry.get_sample_value("remediator_deliveries_total", {"http_status": str(status)})
    return value or 0


def test_delivery_when_accepted_then_200_and_the_engine_has_it_as_it_came(
    client: FlaskClient, engine: RecordingApp, bearer: Bearer
) -> None:
    answer = client.post(URL, data=BODY, headers=bearer("deliver"))

    assert (answer.status_code, answer.json) == (200, {"delivery_id": 7, "alerts": 2, "bad_alerts": 1})
    ((name, raw),) = engine.calls
    assert (name, raw.body, raw.source) == ("submit", BODY, "127.0.0.1")
    assert raw.received_at.tzinfo is UTC
    assert datetime.now(UTC) - raw.received_at < timedelta(seconds=30)
    assert _count(engine, 200) == 1
    assert engine.metrics.registry.get_sample_value("remediator_delivery_answer_seconds_count") == 1


def test_time_of_the_last_delivery_when_one_is_refused_then_stays(
    client: FlaskClient, engine: RecordingApp, bearer: Bearer
) -> None:
    def last() -> float:
        return engine.metrics.registry.get_sample_value("remediator_last_delivery_timestamp_seconds") or 0

    client.post(URL, data=BODY)
    refused = last()
    client.post(URL, data=BODY, headers=bearer("deliver"))

    assert (refused, last() == pytest.approx(time.time(), abs=30)) == (0, True)


def test_delivery_when_alertmanager_was_given_an_address_with_a_template_then_its_query_is_no_hindrance(
    client: FlaskClient, engine: RecordingApp, bearer: Bearer
) -> None:
    (one,) = recorded("0.34", "templated-url")
    assert one.path.startswith(f"{URL}?")

    answer = client.post(one.path, data=one.body, headers=dict(one.headers) | bearer("deliver"))

    assert answer.status_code == 200
    ((_, raw),) = engine.calls
    assert raw.body == one.body


@pytest.mark.parametrize("content_type", ["application/json", "application/json; charset=utf-8", "text/plain", None])
def test_delivery_when_a_token_is_known_then_any_content_type_is_taken(
    content_type: str | None, client: FlaskClient, bearer: Bearer
) -> None:
    assert client.post(URL, data=BODY, content_type=content_type, headers=bearer("deliver")).status_code == 200


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [
        (DecodeError("the body is not JSON"), 400, "the body is not JSON"),
        (UnsupportedVersionError('version is "5"'), 400, 'version is "5"'),
    ],
)
def test_delivery_when_a_retry_cannot_mend_it_then_4xx_counted_and_audited(
    error: Exception, status: int, says: str, client: FlaskClient, engine: RecordingApp, bearer: Bearer
) -> None:
    engine.answers["submit"] = error

    answer = client.post(URL, data=BODY, headers=bearer("deliver"))

    assert (answer.status_code, answer.json) == (status, {"error": says})
    assert engine.rejected == [("127.0.0.1", status, says, len(BODY))]
    assert _count(engine, status) == 1


@pytest.mark.parametrize("error", [DecodeError("x"), StoreUnavailableError("x"), RuntimeError("x")])
def test_delivery_when_refused_then_never_429_and_no_word_of_when_to_try_again(
    error: Exception, client: FlaskClient, engine: RecordingApp, bearer: Bearer
) -> None:
    # Alertmanager takes 429 for "never", and does not read Retry-After.
    engine.answers["submit"] = error

    answer = client.post(URL, data=BODY, headers=bearer("deliver"))

    assert answer.status_code in (400, 503)
    assert "Retry-After" not in answer.headers


@pytest.mark.parametrize(
    "error",
    [StoreUnavailableError("disk full at /secret/path"), RuntimeError("label=x"), RecursionError(), KeyError("a")],
)
def test_delivery_when_the_engine_cannot_take_it_now_then_503_without_details(
    error: Exception, client: FlaskClient, engine: RecordingApp, bearer: Bearer
) -> None:
    engine.answers["submit"] = error

    answer = client.post(URL, data=BODY, headers=bearer("deliver"))

    assert answer.status_code == 503
    assert answer.json["error"].endswith("; send it again")
    assert "secret" not in answer.text
    assert "label" not in answer.text
    assert _count(engine, 503) == 1
    n_bugs = engine.metrics.registry.get_sample_value("remediator_unexpected_errors_total", {"where": "web"})
    assert n_bugs == (None if isinstance(error, StoreUnavailableError) else 1)


def test_delivery_when_draining_then_503_and_nothing_is_taken(engine: RecordingApp, bearer: Bearer) -> None:
    draining = threading.Event()
    draining.set()
    client = create_app(engine, draining=draining).test_client()  # type: ignore[arg-type]

    answer = client.post(URL, data=BODY, headers=bearer("deliver"))

    assert (answer.status_code, answer.json) == (503, {"error": "stopping; send it again"})
    assert engine.calls == []


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        "Basic",
        "Basic !!!",
        "Basic " + base64.b64encode(b"am:wrong").decode(),
        "Basic " + base64.b64encode(b"other:pa:ss w\xc3\xb6rd").decode(),
        "Digest abc",
        "Bearer tok-deliver-1234567,Bearer tok-deliver-1234567",
        "tok-deliver-1234567",
        "Bearer \u00ff\u00fe",
    ],
)
def test_delivery_when_credentials_are_not_known_then_401_with_challenges_and_only_counted(
    authorization: str | None, client: FlaskClient, engine: RecordingApp
) -> None:
    answer = client.post(URL, data=BODY, headers={} if authorization is None else {"Authorization": authorization})

    assert answer.status_code == 401
    assert answer.headers.getlist("WWW-Authenticate") == [
        'Bearer realm="remediator"',
        'Basic realm="remediator", charset="UTF-8"',
    ]
    assert engine.calls == engine.rejected == []
    assert _count(engine, 401) == 1
    assert (
        engine.metrics.registry.get_sample_value("remediator_auth_failures_total", {"reason": "unauthenticated"}) == 1
    )


def test_delivery_when_basic_credentials_then_200(client: FlaskClient) -> None:
    pair = base64.b64encode("am:pa:ss wörd".encode()).decode()

    assert client.post(URL, data=BODY, headers={"Authorization": f"basic {pair}"}).status_code == 200


@pytest.mark.parametrize("role", ["view", "operate"])
def test_delivery_when_the_role_is_missing_then_403_counted_and_audited(
    role: str, client: FlaskClient, engine: RecordingApp, bearer: Bearer
) -> None:
    answer = client.post(URL, data=BODY, headers=bearer(role))

    says = f"{role}-bot may not do this: it needs the role deliver"
    assert (answer.status_code, answer.json) == (403, {"error": says})
    assert engine.calls == []
    assert engine.rejected == [("127.0.0.1", 403, says, len(BODY))]
    assert engine.metrics.registry.get_sample_value("remediator_auth_failures_total", {"reason": "forbidden"}) == 1


@pytest.mark.parametrize("host", ["localhost", "localhost:9095", "127.0.0.1:9095", "127.0.0.1", "[::1]:9095"])
def test_open_delivery_when_from_this_machine_then_200(host: str, open_client: FlaskClient) -> None:
    answer = open_client.post(URL, data=BODY, headers={"Host": host}, content_type="application/json")

    assert answer.status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example:9095", "10.0.0.1", "127.0.0.1.nip.example"])
def test_open_delivery_when_the_host_is_a_strangers_then_403(
    host: str, open_client: FlaskClient, open_engine: RecordingApp
) -> None:
    answer = open_client.post(URL, data=BODY, headers={"Host": host}, content_type="application/json")

    assert answer.status_code == 403
    assert open_engine.calls == []


@pytest.mark.parametrize(
    "content_type", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]
)
def test_open_delivery_when_a_web_page_could_have_sent_it_then_415(
    content_type: str | None, open_client: FlaskClient, open_engine: RecordingApp
) -> None:
    answer = open_client.post(URL, data=BODY, content_type=content_type)

    assert answer.status_code == 415
    assert open_engine.calls == []


def test_delivery_when_refused_then_the_answer_repeats_nothing_of_the_body(
    client: FlaskClient, engine: RecordingApp, bearer: Bearer
) -> None:
    engine.answers["submit"] = DecodeError("alerts is no list")
    body: dict[str, Any] = {"version": "4", "alerts": {"canary-label": "<img src=x>"}}

    answer = client.post(URL, data=json.dumps(body), headers=bearer("deliver"))

    assert "canary" not in answer.text
    assert len(answer.data) < 200
