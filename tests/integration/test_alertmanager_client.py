"""The adapter of Alertmanager's API, on real Alertmanagers."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from remediator.clients import alertmanager
from remediator.clients.alertmanager import Alertmanager, SilencingAlertmanager
from remediator.clients.http import Login
from remediator.errors import (
    AccessDeniedError,
    ActionError,
    InvalidTargetError,
    TransientActionError,
    UnknownEffectError,
)
from remediator.settings import read_secret_file

NOBODY = "http://127.0.0.1:9/nobody"


@pytest.fixture(params=[pytest.param(version, marks=pytest.mark.alertmanager) for version in ("0.25", "0.31")])
def real(request: pytest.FixtureRequest, alertmanager_factory: Any) -> Any:
    return alertmanager_factory(NOBODY, version=request.param)


def wait_for(look: Callable[[], Any]) -> Any:
    until = datetime.now(UTC) + timedelta(seconds=20)
    while not (found := look()) and datetime.now(UTC) < until:
        pass
    return found


def test_alerts_when_one_fires_then_it_is_active_with_its_receivers(real: Any) -> None:
    real.push({"alertname": "X", "hostname": "gpu-07"}, {"summary": "hot"})
    client = Alertmanager(real.url)
    (alert,) = wait_for(lambda: [alert for alert in client.alerts() if alert.is_active])
    assert dict(alert.labels) == {"alertname": "X", "hostname": "gpu-07"}
    assert (dict(alert.annotations), alert.silenced_by, alert.receivers) == ({"summary": "hot"}, (), ("remediator",))
    assert len(alert.fingerprint) == 16


def test_alerts_when_one_is_silenced_then_it_is_listed_as_muted(real: Any) -> None:
    real.push({"alertname": "X"})
    silence_id = real.silence({"alertname": "X"})
    client = Alertmanager(real.url)
    (alert,) = wait_for(lambda: [alert for alert in client.alerts() if alert.silenced_by])
    assert (alert.is_active, alert.silenced_by, alert.is_inhibited) == (False, (silence_id,), False)


def test_alerts_when_one_is_resolved_then_it_is_gone(real: Any) -> None:
    client = Alertmanager(real.url)
    real.push({"alertname": "X"})
    assert wait_for(client.alerts)
    real.resolve({"alertname": "X"})
    assert wait_for(lambda: client.alerts() == ())


def test_started_at_when_asked_then_is_a_moment_ago(real: Any) -> None:
    age = datetime.now(UTC) - Alertmanager(real.url).started_at()
    assert timedelta(0) <= age < timedelta(minutes=5)


def test_alerts_when_nobody_listens_then_transient() -> None:
    with pytest.raises(TransientActionError, match="cannot be reached"):
        Alertmanager("http://127.0.0.1:9").alerts()


def test_alerts_when_what_answers_is_no_alertmanager_then_transient(real: Any) -> None:
    with pytest.raises(TransientActionError, match="no proper answer"):
        Alertmanager(f"{real.url}/somewhere").alerts()


def test_alerts_when_our_own_token_cannot_be_read_then_access_denied(real: Any, tmp_path: Path) -> None:
    client = Alertmanager(real.url, Login(token=lambda: read_secret_file(tmp_path / "gone")[0]))
    with pytest.raises(AccessDeniedError, match="cannot be read"):
        client.alerts()


@contextlib.contextmanager
def answers(*parts: bytes, pause_s: float = 0.0) -> Iterator[str]:
    """The URL of a server that answers each question with these parts, with a pause before each."""
    is_over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)

        def serve() -> None:
            while not is_over.is_set():
                with contextlib.suppress(OSError), server.accept()[0] as connection:
                    connection.recv(65536)
                    for part in parts:
                        is_over.wait(pause_s)
                        connection.sendall(part)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            is_over.set()
            thread.join(10)


WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("parts", [(WHOLE, *[b" "] * 200), (CHUNKED, *[b"1\r\n \r\n"] * 200)], ids=["plain", "chunked"])
def test_alerts_when_the_answer_drips_then_it_is_given_up_in_time(
    parts: tuple[bytes, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alertmanager, "CONNECT_S", 0.2)
    monkeypatch.setattr(alertmanager, "ANSWER_S", 0.3)
    begun = time.monotonic()
    with answers(*parts, pause_s=0.05) as url, pytest.raises(TransientActionError, match="not whole after"):
        Alertmanager(url).alerts()
    assert time.monotonic() - begun < 5


def test_alerts_when_the_answer_has_no_end_then_no_more_of_it_is_read_than_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(alertmanager, "MAX_BYTES", 2**20)
    endless = (b"HTTP/1.1 200 OK\r\n\r\n", *[b" " * 65536] * 1000)
    with answers(*endless) as url, pytest.raises(TransientActionError, match="more than 1 MiB"):
        Alertmanager(url).alerts()


def test_alerts_when_nothing_is_said_then_it_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alertmanager, "ANSWER_S", 0.2)
    with answers(b"HTTP/1.1 200 OK\r\n", pause_s=2) as url, pytest.raises(TransientActionError, match="in time"):
        Alertmanager(url).alerts()


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n", AccessDeniedError, "does not let us in"),
        (b"HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n", TransientActionError, "HTTP 302"),
        (b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", TransientActionError, "cannot be reached .HTTP 503"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n[]", TransientActionError, "no proper answer .ProtocolError"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n<ht>", TransientActionError, "no JSON"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n[42]", TransientActionError, "no list of alerts"),
        (b"SSH-2.0-OpenSSH\r\n", TransientActionError, "cannot be reached"),
    ],
    ids=["401", "a redirect", "503 of a proxy", "cut off", "a page", "other JSON", "no HTTP"],
)
def test_alerts_when_the_answer_is_not_what_it_should_be_then_says_so(
    answer: bytes, kind: type[ActionError], words: str
) -> None:
    with answers(answer) as url, pytest.raises(kind, match=words):
        Alertmanager(url).alerts()


def test_alerts_when_the_file_of_the_ca_is_absent_then_says_that_the_settings_are_wrong(tmp_path: Path) -> None:
    with pytest.raises(TransientActionError, match="tls_ca"):
        Alertmanager("https://127.0.0.1:9", Login(tls_ca=str(tmp_path / "gone"))).alerts()


def answered(status: str, body: bytes = b"") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        pytest.param(answered("400 No", b'"bad matcher"'), InvalidTargetError, 'HTTP 400.: "bad matcher"', id="400"),
        pytest.param(answered("403 No"), AccessDeniedError, "does not let us in .HTTP 403", id="403"),
        pytest.param(answered("404 No"), InvalidTargetError, "refuses it .HTTP 404", id="a wrong path"),
        pytest.param(answered("302 No"), TransientActionError, "HTTP 302", id="a redirect, not followed"),
        pytest.param(answered("429 No"), TransientActionError, "HTTP 429", id="turned away for now"),
        pytest.param(answered("500 No"), UnknownEffectError, "HTTP 500", id="500, it had begun"),
        pytest.param(answered("502 No"), UnknownEffectError, "HTTP 502", id="a proxy that passed it on"),
        pytest.param(answered("504 No"), UnknownEffectError, "HTTP 504", id="a proxy that stopped waiting"),
        pytest.param(answered("200 Yes", b"{}"), UnknownEffectError, "no id", id="200 without an id"),
        pytest.param(answered("200 Yes", b"<html>"), UnknownEffectError, "no id", id="a page"),
        pytest.param(b"HTTP/1.1 200 Yes\r\nContent-Length: 9\r\n\r\n{}", UnknownEffectError, "Protocol", id="cut off"),
        pytest.param(b"SSH-2.0-OpenSSH\r\n", UnknownEffectError, "cannot be reached", id="no HTTP"),
        pytest.param(b"", UnknownEffectError, "cannot be reached", id="hung up"),
    ],
)
def test_create_silence_when_the_answer_is_not_what_it_should_be_then_says_whether_it_may_be_there(
    answer: bytes, kind: type[ActionError], words: str
) -> None:
    with answers(answer) as url, pytest.raises(kind, match=words) as caught:
        silence(url)
    assert type(caught.value) is kind


def test_create_silence_when_no_answer_comes_then_nobody_knows_whether_it_is_there() -> None:
    with answers(b"HTTP/1.1 200", pause_s=5) as url, pytest.raises(UnknownEffectError, match="in time"):
        silence(url, deadline_s=1.0)


def test_create_silence_when_it_was_never_sent_then_transient(tmp_path: Path) -> None:
    for url, login in (
        ("http://127.0.0.1:9", Login()),
        ("http://nowhere.invalid", Login()),
        ("https://127.0.0.1:9", Login(tls_ca=str(tmp_path / "gone"))),
    ):
        with pytest.raises(TransientActionError):
            silence(url, login)


def test_create_silence_when_it_is_refused_then_no_secret_is_in_what_is_said(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("canary-of-the-token\n")
    login = Login(token=lambda: read_secret_file(token)[0])
    tells = b"not for Bearer canary-of-the-token"
    for answer in (answered("400 No", tells), answered("403 No", tells), answered("500 No", tells), b""):
        with answers(answer) as url, pytest.raises(ActionError) as caught:
            silence(url, login)
        assert "canary" not in "".join(traceback.format_exception(caught.value))


def silence(url: str, login: Login | None = None, *, deadline_s: float = 10.0) -> None:
    SilencingAlertmanager(url, login).create_silence(
        {"alertname": "X"}, duration=timedelta(hours=1), created_by="me", comment="c", deadline_s=deadline_s
    )
