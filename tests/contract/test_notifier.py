"""The real notifier, to a real HTTP service on loopback."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from remediator.clients.notifier import BODY_LIMIT, TITLE_LIMIT, AppriseNotifier
from remediator.errors import PermanentActionError, Reason, SettingsError, TransientActionError

SECRET = "hunter2"


class Service:
    """An HTTP service that keeps what it gets."""

    def __init__(self, status: int = 200) -> None:
        self.received: list[dict[str, Any]] = []
        received = self.received

        class Keep(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Keep)
        self.url = f"json://user:{SECRET}@127.0.0.1:{self._server.server_port}/{SECRET}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    def __enter__(self) -> Service:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@contextmanager
def silent_service() -> Iterator[str]:
    """Takes connections and never says anything, until the end of the test."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"json://user:{SECRET}@127.0.0.1:{server.getsockname()[1]}/?rto=5"


def test_send_when_the_service_takes_it_then_the_text_arrives_as_it_is() -> None:
    title, body = "Xid 79 on <b>gpu-07</b>", "*not bold* <script>x</script> :smile: \\n {{ labels }} 温度"
    with Service() as one, Service() as other:
        AppriseNotifier({"oncall": [one.url, other.url]}).send("oncall", title=title, body=body, timeout_s=10)
        for service in (one, other):
            assert [(message["title"], message["message"]) for message in service.received] == [(title, body)]


def test_send_when_the_text_holds_controls_then_the_title_is_one_line_and_they_are_written_out() -> None:
    with Service() as service:
        AppriseNotifier({"oncall": [service.url]}).send(
            "oncall", title="a\r\nBcc: b\x1b[31m", body="a\r\n\tb\x1b[31m\0\x9b", timeout_s=10
        )
        (message,) = service.received
    assert (message["title"], message["message"]) == ("a Bcc: b [31m", "a\n\tb\\x1b[31m\\x00\\x9b")


def test_send_when_title_and_body_are_long_then_they_are_cut() -> None:
    with Service() as service:
        AppriseNotifier({"oncall": [service.url]}).send("oncall", title="t" * 999, body="b" * 99_999, timeout_s=10)
        (message,) = service.received
    assert (len(message["title"]), len(message["message"])) == (TITLE_LIMIT, BODY_LIMIT)


def test_send_when_the_body_is_empty_then_the_title_arrives() -> None:
    with Service() as service:
        AppriseNotifier({"oncall": [service.url]}).send("oncall", title="it is over", body="", timeout_s=10)
        assert "it is over" in json.dumps(service.received)


def test_send_when_the_service_refuses_then_transient_for_the_cause_notify() -> None:
    with Service(status=500) as bad, Service() as good:
        with pytest.raises(TransientActionError, match="1 of 2 did not take") as caught:
            AppriseNotifier({"oncall": [bad.url, good.url]}).send("oncall", title="t", body="b", timeout_s=10)
        assert len(good.received) == 1
    assert (caught.value.reason, SECRET in str(caught.value)) == (Reason.NOTIFY, False)


def test_send_when_nobody_listens_then_transient() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(TransientActionError, match="did not take the message"):
        AppriseNotifier({"oncall": [f"json://127.0.0.1:{port}/"]}).send("oncall", title="t", body="b", timeout_s=10)


def test_send_when_the_service_hangs_then_it_holds_no_longer_than_asked_and_counts_as_failed() -> None:
    began = time.monotonic()
    with silent_service() as url, pytest.raises(PermanentActionError, match="may or may not have arrived") as caught:
        AppriseNotifier({"oncall": [url]}).send("oncall", title="t", body="b", timeout_s=0.5)
    assert (caught.value.reason, SECRET in str(caught.value)) == (Reason.NOTIFY, False)
    assert time.monotonic() - began < 3


def test_send_when_the_target_is_not_configured_then_permanent_and_those_that_are_are_named() -> None:
    with pytest.raises(PermanentActionError, match=r"'nobody'.*configured: oncall") as caught:
        AppriseNotifier({"oncall": ["json://127.0.0.1:1/"]}).send("nobody", title="t", body="b", timeout_s=1)
    assert caught.value.reason is Reason.NOTIFY


@pytest.mark.parametrize("url", [f"nosuchservice://{SECRET}", SECRET, "", f"slack://{SECRET}"])
def test_notifier_when_a_url_is_not_understood_then_the_error_tells_its_place_and_not_its_text(url: str) -> None:
    with pytest.raises(SettingsError, match="notification target oncall: URL 2 is not one") as caught:
        AppriseNotifier({"oncall": ["json://127.0.0.1:1/", url]})
    assert SECRET not in str(caught.value)


def test_send_when_logging_is_at_its_loudest_then_no_secret_is_in_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with Service(status=500) as service, pytest.raises(TransientActionError):
        AppriseNotifier({"oncall": [service.url]}).send("oncall", title="t", body="b", timeout_s=10)
    assert SECRET not in caplog.text


def test_send_when_a_services_code_fails_then_nothing_it_says_gets_out(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(*args: Any, **kwargs: Any) -> bool:
        raise RuntimeError(f"cannot reach json://{SECRET}")

    notifier = AppriseNotifier({"oncall": ["json://127.0.0.1:1/"]})
    monkeypatch.setattr("apprise.Apprise.notify", broken)
    with pytest.raises(TransientActionError) as caught:
        notifier.send("oncall", title="t", body="b", timeout_s=5)
    assert (SECRET in str(caught.value), SECRET in "".join(capfd.readouterr())) == (False, False)
