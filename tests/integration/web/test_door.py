import http.client
import json
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from remediator.errors import DecodeError, StoreUnavailableError
from remediator.listening.head import HeadDeadline
from remediator.web.door import LONG_BODY, Door

URL = "/api/v1/alertmanager"
BODY = b'{"version":"4","alerts":[]}'
HEAD = b"POST /api/v1/alertmanager HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
N_CLIENTS = 20
Serve = Callable[..., Any]


def _status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def _deliver(address: str, body: bytes = BODY, **headers: str) -> tuple[int, float]:
    """Status, and seconds it took."""
    connection = http.client.HTTPConnection(address, timeout=20)
    started = time.monotonic()
    connection.request("POST", URL, body, {"Content-Type": "application/json", **headers})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status, time.monotonic() - started


@pytest.fixture
def short_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    """10 s in earnest; here a second."""
    monkeypatch.setattr(HeadDeadline, "head_deadline_s", 1.0)
    monkeypatch.setitem(Door.__init__.__kwdefaults__, "body_deadline_s", 1.0)


@pytest.mark.parametrize(
    "stalls_after",
    [b"", HEAD[:20], HEAD, HEAD + b"Content-Length: 27\r\n\r\n", HEAD + b"Content-Length: 27\r\n\r\n" + BODY[:5]],
    ids=["the connection", "half a line", "half a head", "the head", "half a body"],
)
def test_delivery_when_many_clients_stall_then_it_is_not_delayed(stalls_after: bytes, serve: Serve) -> None:
    served = serve()
    with ExitStack() as stack:
        for _ in range(N_CLIENTS):
            stack.enter_context(served.connect()).sendall(stalls_after)
        time.sleep(0.2)

        answers = [_deliver(served.running.address) for _ in range(10)]

    assert [status for status, _ in answers] == [200] * 10
    assert max(seconds for _, seconds in answers) < 5, "half of the deadline that others use up"


def test_delivery_when_many_clients_drip_then_it_is_not_delayed(serve: Serve) -> None:
    served = serve()
    stop = threading.Event()

    def drip() -> None:
        with served.connect() as connection:
            connection.sendall(HEAD + b"Content-Length: 1000\r\n\r\n")
            while not stop.wait(0.05):
                connection.sendall(b"x")

    threads = [threading.Thread(target=drip) for _ in range(N_CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        answers = [_deliver(served.running.address) for _ in range(20)]
    finally:
        stop.set()
        for thread in threads:
            thread.join()

    assert [status for status, _ in answers] == [200] * 20
    assert max(seconds for _, seconds in answers) < 5, "half of the deadline that others use up"


@pytest.mark.usefixtures("short_deadlines")
def test_body_when_it_drips_beyond_the_deadline_then_503_and_closed(serve: Serve) -> None:
    served = serve()
    started = time.monotonic()
    with served.connect() as connection:
        connection.sendall(HEAD + b"Content-Length: 1000\r\n\r\n")
        connection.settimeout(0.1)
        answer = b""
        while not answer and time.monotonic() - started < 5:
            connection.sendall(b"x")
            try:
                answer = connection.recv(65536)
            except TimeoutError:
                continue
        connection.settimeout(5)
        # Ends only because the server closes; by a reset where a drop was on its way.
        with suppress(ConnectionResetError):
            while part := connection.recv(65536):
                answer += part

    assert _status(answer) == 503  # Alertmanager tries it again; a 4xx it would give up
    assert b"connection: close" in answer
    assert answer.endswith(b'{"error":"the body took more than 1 s; send it again"}\n')
    assert time.monotonic() - started > 0.9
    assert served.engine.rejected == []  # the audit has what the sender will not try again


@pytest.mark.usefixtures("short_deadlines")
@pytest.mark.parametrize("begins", [b"", HEAD], ids=["nothing", "half a head"])
def test_head_when_it_stalls_beyond_the_deadline_then_closed(begins: bytes, serve: Serve) -> None:
    started = time.monotonic()

    assert serve().exchange(begins) == b""
    assert 0.9 < time.monotonic() - started < 8, "the deadline in earnest is 10 s"


@pytest.mark.usefixtures("short_deadlines")
def test_connection_when_it_idles_between_calls_then_it_stays(serve: Serve) -> None:
    served = serve()
    connection = http.client.HTTPConnection(served.running.address, timeout=5)
    statuses = []
    for _ in range(2):
        connection.request("POST", URL, BODY, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        statuses.append(answer.status)
        sock = connection.sock
        time.sleep(1.5)

    assert statuses == [200, 200]
    assert connection.sock is sock
    connection.close()


def test_head_when_it_is_huge_then_400_and_closed(serve: Serve) -> None:
    served = serve()
    answer = served.exchange(HEAD + b"X: " + b"a" * 200_000)

    assert _status(answer) == 400
    assert served.engine.calls == [("start",)]


@pytest.mark.parametrize("n_bytes", [2048, 5_000_000])
@pytest.mark.parametrize("is_chunked", [False, True], ids=["with a length", "in chunks"])
def test_body_when_above_the_limit_then_413_and_audited(n_bytes: int, is_chunked: bool, serve: Serve) -> None:
    served = serve(max_body=1024)
    body = b"x" * n_bytes
    if is_chunked:
        raw = HEAD + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (n_bytes, body)
    else:
        raw = HEAD + b"Content-Length: %d\r\n\r\n" % n_bytes + body
    with served.connect() as connection:
        connection.settimeout(20)
        sender = threading.Thread(target=_send_anyway, args=(connection, raw))
        sender.start()
        answer = connection.recv(65536)
        sender.join()

    assert _status(answer) == 413
    ((_, status, says, _),) = served.engine.rejected
    assert (status, says) == (413, "the body is above 1024 bytes (setting max_body)")
    assert served.engine.calls == [("start",)]


def _send_anyway(connection: socket.socket, raw: bytes) -> None:
    try:
        connection.sendall(raw)
    except OSError:
        return


def test_body_when_exactly_at_the_limit_then_200(serve: Serve) -> None:
    assert _deliver(serve(max_body=1024).running.address, b"x" * 1024)[0] == 200


def test_body_when_in_chunks_then_the_engine_has_it_whole(serve: Serve) -> None:
    served = serve()
    raw = HEAD + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    raw += b"".join(b"1\r\n%c\r\n" % byte for byte in BODY) + b"0\r\n\r\n"

    assert _status(served.exchange(raw)) == 200
    assert served.engine.calls[1][1].body == BODY


def test_body_when_large_then_the_engine_has_it_whole(serve: Serve) -> None:
    served = serve()
    body = json.dumps({"pad": "é" * 2_000_000}).encode()

    assert _deliver(served.running.address, body)[0] == 200
    assert served.engine.calls[1][1].body == body


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: 27\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 27\r\n",
        b"Content-Length: 27\r\nContent-Length: 28\r\n",
        b"Content-Length: 27\r\nContent-Length: 27\r\n",
        b"Content-Length: -1\r\n",
        b"Content-Length: 1e3\r\n",
        b"Content-Length: 99999999999999999999999999\r\n",
        b"Transfer-Encoding: gzip\r\n",
        b"Transfer-Encoding: chunked, identity\r\n",
        b" folded: x\r\n",
        b"no colon\r\n",
    ],
)
def test_head_when_proxies_could_read_it_otherwise_then_400(head: bytes, serve: Serve) -> None:
    served = serve()

    assert _status(served.exchange(HEAD + head + b"\r\n" + BODY)) == 400
    assert served.engine.calls == [("start",)]


@pytest.mark.parametrize(
    "raw",
    [
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
        b"\r\n\r\n\r\nnonsense\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /healthz?\xff HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET /api/v1/runs?state=\xc3\xa9 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET /%ff%00 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET http://evil.example/healthz HTTP/1.1\r\nHost: a b\r\nConnection: close\r\n\r\n",
        HEAD.replace(b"localhost", b"[::") + b"Connection: close\r\n\r\n",
        HEAD.replace(b"Host: localhost\r\n", b"") + b"Connection: close\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade, close\r\nUpgrade: websocket\r\n\r\n",
        b"CONNECT localhost:1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET /healthz HTTP/1.0\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nAuthorization: \xff\xfe\r\nConnection: close\r\n\r\n",
    ],
)
def test_anything_when_sent_then_never_500_and_never_a_redirect(raw: bytes, serve: Serve) -> None:
    served = serve()

    answer = served.exchange(raw)

    assert _status(answer) in (200, 400, 403, 404, 405, 415, 422)
    assert _deliver(served.running.address)[0] == 200


@pytest.mark.parametrize("path", [f"/{URL}", f"{URL}/", f"{URL}//", f"/.{URL}", "/", "/login"])
def test_delivery_when_the_path_is_odd_then_never_a_redirect(path: str, serve: Serve) -> None:
    raw = HEAD.replace(URL.encode(), path.encode()) + b"Connection: close\r\nContent-Length: 27\r\n\r\n" + BODY

    answer = serve().exchange(raw)

    assert _status(answer) in (200, 404)
    assert b"\r\nlocation:" not in answer.lower()


def test_delivery_when_json_is_deep_then_the_decoders_400_and_no_500(serve: Serve) -> None:
    served = serve()
    served.engine.answers["submit"] = DecodeError("nested too deeply")

    assert _deliver(served.running.address, b"[" * 1_000_000)[0] == 400


def test_stranger_when_sending_a_large_body_then_401_and_it_is_thrown_away(tmp_path: Path, serve: Serve) -> None:
    (tmp_path / "t").write_text("token-1234567")
    served = serve(auth={"tokens": [{"name": "am", "roles": ["deliver"], "file": tmp_path / "t"}]})
    body = b"x" * 3_000_000

    assert _deliver(served.running.address, body, Authorization="Bearer wrong")[0] == 401
    assert _deliver(served.running.address, body, Authorization="Bearer token-1234567")[0] == 200
    assert [name for name, *_ in served.engine.calls] == ["start", "submit"]


def test_token_when_its_file_is_edited_then_the_running_server_takes_the_new_one(tmp_path: Path, serve: Serve) -> None:
    file = tmp_path / "t"
    file.write_text("token-old\n")
    served = serve(auth={"tokens": [{"name": "am", "roles": ["deliver"], "file": file}]})

    def statuses() -> list[int]:
        return [_deliver(served.running.address, Authorization=f"Bearer token-{age}")[0] for age in ("old", "new")]

    before = statuses()
    file.write_text("token-old\ntoken-new\n")
    both = statuses()
    file.write_text("token-new\n")
    after = statuses()

    assert (before, both, after) == ([200, 401], [200, 200], [401, 200])


def test_delivery_when_every_api_thread_is_busy_then_it_is_not_delayed(serve: Serve) -> None:
    served = serve()
    release = threading.Event()
    served.engine.dry_run = lambda body: {"done": release.wait(20)}

    def plan() -> None:
        connection = http.client.HTTPConnection(served.running.address, timeout=20)
        connection.request("POST", "/api/v1/plan", b"{}", {"Content-Type": "application/json"})
        connection.getresponse().read()
        connection.close()

    threads = [threading.Thread(target=plan) for _ in range(N_CLIENTS)]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    try:
        status, seconds = _deliver(served.running.address)
    finally:
        release.set()
        for thread in threads:
            thread.join()

    assert status == 200
    assert seconds < 5


def test_delivery_when_its_commit_fails_then_503_without_details(serve: Serve) -> None:
    served = serve()
    commit: Future[Any] = Future()
    commit.set_exception(StoreUnavailableError("disk full at /secret/path"))
    served.engine.submit = lambda raw: commit

    answer = served.exchange(HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY)

    assert _status(answer) == 503
    assert answer.endswith(b'{"error":"the store is away; send it again"}\n')
    count = served.engine.metrics.registry.get_sample_value
    assert count("remediator_deliveries_total", {"http_status": "503"}) == 1
    assert count("remediator_deliveries_total", {"http_status": "200"}) is None
    assert count("remediator_unexpected_errors_total", {"where": "web"}) is None


def test_delivery_when_the_store_does_not_get_to_it_then_503_and_it_is_not_done_later(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remediator.web.door.COMMIT_DEADLINE_S", 0.1)
    served = serve()
    commit: Future[Any] = Future()
    served.engine.submit = lambda raw: commit

    assert _deliver(served.running.address)[0] == 503
    assert commit.cancelled()


def test_delivery_when_its_commit_is_slow_but_has_begun_then_it_is_waited_for(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remediator.web.door.COMMIT_DEADLINE_S", 0.1)
    served = serve()
    commit: Future[Any] = Future()
    commit.set_running_or_notify_cancel()
    served.engine.submit = lambda raw: commit
    threading.Timer(0.5, commit.set_result, [SimpleNamespace(delivery_id=7, n_alerts=2, n_bad_alerts=1)]).start()

    assert _deliver(served.running.address)[0] == 200


def test_delivery_when_many_wait_for_one_commit_then_each_is_answered(serve: Serve) -> None:
    served = serve()
    commit: Future[Any] = Future()
    under_way = threading.Semaphore(0)

    def submit(_raw: Any) -> Future[Any]:
        under_way.release()
        return commit

    served.engine.submit = submit
    statuses: list[int] = []
    callers = [
        threading.Thread(target=lambda: statuses.append(_deliver(served.running.address)[0])) for _ in range(N_CLIENTS)
    ]
    for caller in callers:
        caller.start()
    for _ in callers:
        assert under_way.acquire(timeout=10)
    assert statuses == []

    commit.set_result(SimpleNamespace(delivery_id=7, n_alerts=2, n_bad_alerts=1))
    for caller in callers:
        caller.join()

    assert statuses == [200] * N_CLIENTS


def test_delivery_when_its_body_is_long_then_it_is_read_in_a_thread(serve: Serve) -> None:
    served = serve()
    threads = []
    submit = served.engine.submit

    def noted(raw: Any) -> Future[Any]:
        threads.append(threading.current_thread().name)
        return submit(raw)

    served.engine.submit = noted
    for size in (10, LONG_BODY + 1):
        assert _deliver(served.running.address, b"x" * size)[0] == 200

    assert [name.startswith("web-quick") for name in threads] == [False, True]


def test_delivery_when_its_refusal_cannot_be_recorded_in_time_then_503_and_nobody_waits_longer(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remediator.web.door.COMMIT_DEADLINE_S", 0.1)
    served = serve()
    recorded: Future[None] = Future()
    served.engine.answers["submit"] = DecodeError("the body is not JSON")
    served.engine.reject = lambda *_: recorded

    assert _deliver(served.running.address)[0] == 503
    assert recorded.cancelled()


def test_delivery_when_a_header_is_named_as_the_doors_own_word_then_the_caller_stays_a_stranger(
    serve: Serve, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("tok-deliver-1234567")
    served = serve(auth={"tokens": [{"name": "am", "roles": ["deliver"], "file": tmp_path / "token"}]})

    for name in ("remediator.caller", "Remediator-Caller", "Remediator_Caller"):
        assert _deliver(served.running.address, **{name: "am"})[0] == 401


@pytest.mark.parametrize("path", [URL, f"{URL}/", f"/{URL}", f"/{URL}/"])
def test_delivery_when_its_path_has_slashes_too_many_then_it_holds_no_thread(
    path: str, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    in_thread = Door._in

    def seen(pool: Any, call: Any) -> Any:
        threads.append(pool._thread_name_prefix)
        return in_thread(pool, call)

    monkeypatch.setattr(Door, "_in", staticmethod(seen))
    served = serve()
    with served.connect() as connection:
        connection.sendall(HEAD.replace(URL.encode(), path.encode()) + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY)
        assert _status(connection.recv(1000)) == 200

    assert threads == []
