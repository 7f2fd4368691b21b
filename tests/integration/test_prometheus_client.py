"""The adapter of Prometheus' API, on a socket that answers as a Prometheus would, or as one should not."""

from __future__ import annotations

import base64
import contextlib
import gzip
import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from ruamel.yaml import YAML

from remediator import errors
from remediator.clients import prometheus
from remediator.clients.http import Login
from remediator.clients.prometheus import Prometheus
from remediator.errors import AccessDeniedError, ActionError, InvalidTargetError, TransientActionError
from remediator.settings import read_secret_file

ROWS: list[dict[str, Any]] = YAML(typ="safe").load(Path(__file__).parents[1] / "data" / "prometheus_answers.yaml")
ONE = b'{"status":"success","data":{"resultType":"scalar","result":[1,"1"]}}'


class Server:
    """Answers each connection with the same parts, with a pause before each, and keeps what it was asked."""

    def __init__(self, *parts: bytes, pause_s: float = 0.0) -> None:
        self.questions: list[bytes] = []
        self._parts = parts
        self._pause_s = pause_s
        self._is_over = threading.Event()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.settimeout(0.1)
        self._thread = threading.Thread(target=self._serve)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(10)
        self._socket.close()

    def _serve(self) -> None:
        while not self._is_over.is_set():
            with contextlib.suppress(OSError), self._socket.accept()[0] as connection:
                connection.settimeout(5)
                self.questions.append(_whole_request(connection))
                for part in self._parts:
                    self._is_over.wait(self._pause_s)
                    connection.sendall(part)

    @property
    def head(self) -> dict[str, str]:
        """Of the last question, with the names of its headers in lower case."""
        lines = self.questions[-1].partition(b"\r\n\r\n")[0].decode("latin-1").splitlines()[1:]
        return {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}

    @property
    def form(self) -> dict[str, list[str]]:
        """Of the last question."""
        return parse_qs(self.questions[-1].partition(b"\r\n\r\n")[2].decode())


def _whole_request(connection: socket.socket) -> bytes:
    request = b""
    while b"\r\n\r\n" not in request:
        request += connection.recv(65536)
    head, _, body = request.partition(b"\r\n\r\n")
    length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def http(body: bytes, status: int = 200, **headers: str) -> bytes:
    """A whole answer."""
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *(f"{n}: {v}" for n, v in headers.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_query_when_this_is_answered_then_it_is_understood_so(row: Mapping[str, Any]) -> None:
    body = row["body"].replace("LONG", "x" * 5000).replace("NESTED", "[" * 200_000)
    with Server(http(body.encode(), row.get("status", 200))) as server:
        client = Prometheus("a", server.url)
        if "values" in row:
            assert [str(value) for value in client.query("up")] == [str(float(value)) for value in row["values"]]
            return
        with pytest.raises(ActionError) as caught:
            client.query("up")
    kind = getattr(errors, f"{row['kind']}Error", None) or getattr(errors, f"{row['kind']}ActionError")
    assert type(caught.value) is kind
    assert row["says"] in str(caught.value)
    assert len(str(caught.value)) < 500


def test_query_when_it_is_long_then_it_is_posted_whole_as_a_form_with_its_time_limit() -> None:
    query = 'max(x{y="ü&=+%"}) ' + "# " * 50_000
    with Server(http(ONE)) as server:
        assert Prometheus("a", f"{server.url}/prefix/").query(query) == (1.0,)
    assert server.questions[-1].startswith(b"POST /prefix/api/v1/query HTTP/1.1\r\n")
    assert server.form["query"] == [query]
    assert server.form["timeout"] == ["4500ms"]


def test_query_when_what_answers_can_give_half_an_answer_then_it_is_told_not_to() -> None:
    with Server(http(ONE)) as server:
        Prometheus("a", server.url).query("up")
    assert (server.form["partial_response"], server.form["deny_partial_response"]) == (["false"], ["1"])


@pytest.mark.parametrize(
    ("login", "header"),
    [
        (Login(token=lambda: "s3cr3t-token"), "Bearer s3cr3t-token"),
        (
            Login(username="me", password=lambda: "s3cr3t-word"),
            "Basic " + base64.b64encode(b"me:s3cr3t-word").decode(),
        ),
        (Login(), None),
    ],
    ids=["token", "password", "none"],
)
def test_query_when_there_is_a_login_then_it_is_shown_and_no_other(
    login: Login, header: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".netrc").write_text("default login other password netrc-word\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    with Server(http(ONE)) as server:
        Prometheus("a", server.url, login).query("up")
    assert server.head.get("authorization") == header


@pytest.mark.parametrize(
    "login",
    [Login(token=lambda: "s3cr3t\ntoken"), Login(username="me", password=lambda: "s3cr3t-€")],
    ids=["a line break in a token", "a letter that HTTP basic has not"],
)
def test_query_when_a_secret_cannot_be_sent_then_it_is_not_said(login: Login) -> None:
    with pytest.raises(TransientActionError, match=r"prometheus\.servers\.a") as caught:
        Prometheus("a", "http://127.0.0.1:9", login).query("up")
    assert "s3cr3t" not in str(caught.value)


def test_query_when_our_own_token_cannot_be_read_then_access_denied(tmp_path: Path) -> None:
    client = Prometheus("a", "http://127.0.0.1:9", Login(token=lambda: read_secret_file(tmp_path / "gone")[0]))
    with pytest.raises(AccessDeniedError, match="cannot be read"):
        client.query("up")


def test_query_when_it_is_redirected_then_it_does_not_go_there() -> None:
    with (
        Server(http(ONE)) as elsewhere,
        Server(http(b"", 302, Location=f"{elsewhere.url}/login")) as server,
        pytest.raises(TransientActionError, match=r"no proper answer .HTTP 302"),
    ):
        Prometheus("a", server.url, Login(token=lambda: "s3cr3t-token")).query("up")
    assert elsewhere.questions == []


def test_query_when_the_answer_is_a_bomb_of_gzip_then_it_is_not_unpacked() -> None:
    packed = gzip.compress(b" " * 50_000_000)
    with (
        Server(http(packed, 200, **{"Content-Encoding": "gzip"})) as server,
        pytest.raises(TransientActionError, match="not as Prometheus answers"),
    ):
        Prometheus("a", server.url).query("up")
    assert server.head["accept-encoding"] == "identity"


@pytest.mark.parametrize("status", [200, 500])
def test_query_when_the_answer_has_no_end_then_no_more_of_it_is_read_than_is_taken(status: int) -> None:
    endless = (f"HTTP/1.1 {status} X\r\n\r\n".encode(), *[b" " * 65536] * 1000)
    with Server(*endless) as server, pytest.raises(TransientActionError, match="more than 8 MiB"):
        Prometheus("a", server.url).query("up")


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ((HEAD, *[b" "] * 200), "not whole after"),
        ((CHUNKED, *[b"1\r\n \r\n"] * 200), "not whole after"),
        ((b"HTTP/1.1 200 OK\r\nX: ", *[b"a"] * 200), "not whole after"),
        ((b"HTTP/1.1 100 Continue\r\n\r\n",) * 200, "not whole after"),
        ((CHUNKED, *[b"0"] * 200), "not whole after"),
        ((b"HTTP/1.1 200 OK\r\n",), "did not answer in time|ReadTimeout"),
    ],
    ids=[
        "drips",
        "drips in chunks",
        "drips in its head",
        "promises for ever",
        "drips in a chunk's length",
        "says nothing",
    ],
)
def test_query_when_the_answer_does_not_come_then_it_is_given_up_in_time(
    parts: tuple[bytes, ...], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prometheus, "CONNECT_S", 0.3)
    monkeypatch.setattr(prometheus, "ANSWER_S", 0.3)
    begun = time.monotonic()
    with Server(*parts, pause_s=0.05 if len(parts) > 1 else 2) as server:
        client = Prometheus("a", server.url)
        with pytest.raises(TransientActionError, match=words):
            client.query("up")
    assert time.monotonic() - begun < 8


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"SSH-2.0-OpenSSH\r\n", "cannot be reached"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{}", "gives no proper answer"),
        (b"", "cannot be reached"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "gives no proper answer"),
        (b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(2000)) + b"\r\n", "cannot be reached"),
    ],
    ids=["no HTTP", "cut off", "closed at once", "a chunk of no length", "headers without end"],
)
def test_query_when_what_comes_is_no_answer_then_transient(answer: bytes, words: str) -> None:
    with Server(answer) as server, pytest.raises(TransientActionError, match=words):
        Prometheus("a", server.url).query("up")


def test_query_when_nobody_listens_then_transient() -> None:
    with pytest.raises(TransientActionError, match=r"Prometheus a at http://127\.0\.0\.1:9 cannot be reached"):
        Prometheus("a", "http://127.0.0.1:9").query("up")


def test_query_when_the_file_of_the_ca_is_absent_then_says_that_the_settings_are_wrong(tmp_path: Path) -> None:
    with pytest.raises(TransientActionError, match=r"tls_ca of prometheus\.servers\.a"):
        Prometheus("a", "https://127.0.0.1:9", Login(tls_ca=str(tmp_path / "gone"))).query("up")


@pytest.mark.parametrize(
    ("login", "secret"),
    [
        (Login(token=lambda: "s3cr3t"), "s3cr3t"),
        (Login(username="me", password=lambda: "s3cr3t"), "s3cr3t"),
        (Login(username="me", password=lambda: "s3cr3t"), base64.b64encode(b"me:s3cr3t").decode()),
    ],
    ids=["a token", "a password", "a password as it is sent"],
)
def test_query_when_the_error_repeats_what_it_was_asked_with_then_the_secret_is_struck_out(
    login: Login, secret: str
) -> None:
    refusal = f'{{"status":"error","errorType":"bad_data","error":"no query for {secret}!"}}'
    with Server(http(refusal.encode(), 400)) as server, pytest.raises(InvalidTargetError) as caught:
        Prometheus("a", server.url, login).query("up")
    assert str(caught.value).endswith("no query for [redacted]!")
