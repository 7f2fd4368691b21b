import http.client
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from certificates import make_certificates
from recording_app import RecordingApp
from remediator.errors import SettingsError, StoreInUseError
from remediator.listening.tls import RenewedCertificate
from remediator.settings import load_settings
from remediator.web.server import start_in_thread

URL = "/api/v1/alertmanager"
JSON = {"Content-Type": "application/json"}
Serve = Callable[..., Any]

# A server in a process of its own, for signals. It says what the engine was asked.
_SERVER = """
import sys
from certificates import make_certificates
from recording_app import RecordingApp
from remediator.settings import load_settings
from remediator.web.server import serve

class Talking(RecordingApp):
    def start(self): print("start", flush=True)
    def stop(self): print("stop", flush=True)
    def reload(self, actor): print("reload", actor, flush=True)

serve(Talking(load_settings(environ={}, overrides={"listen": "127.0.0.1:" + sys.argv[1]})))
print("end", flush=True)
"""


def _posts(address: str, n: int, context: ssl.SSLContext | None = None) -> list[int]:
    """Statuses of deliveries over one connection."""
    connection = (
        http.client.HTTPSConnection(address, context=context, timeout=10)
        if context
        else http.client.HTTPConnection(address, timeout=10)
    )
    statuses = []
    with closing(connection):
        for _ in range(n):
            connection.request("POST", URL, b"{}", JSON)
            answer = connection.getresponse()
            answer.read()
            statuses.append(answer.status)
    return statuses


def test_server_when_started_and_stopped_then_the_engine_is_too(serve: Serve) -> None:
    engine = RecordingApp(load_settings(environ={}))

    with start_in_thread(engine) as running:  # type: ignore[arg-type]
        statuses = _posts(running.address, 1)

    assert statuses == [200]
    assert [name for name, *_ in engine.calls] == ["start", "submit", "stop"]
    host, _, port = running.address.rpartition(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)))


def test_server_when_the_engine_cannot_start_then_the_port_is_free_again() -> None:
    engine = RecordingApp(load_settings(environ={}))
    engine.start = lambda: (_ for _ in ()).throw(StoreInUseError("held by 7", pid=7))  # type: ignore[method-assign]
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]

    with pytest.raises(StoreInUseError):
        start_in_thread(engine, port)  # type: ignore[arg-type]

    socket.create_server(("127.0.0.1", port)).close()


def test_server_when_the_port_is_in_use_then_says_so_before_the_engine_starts() -> None:
    engine = RecordingApp(load_settings(environ={}))
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]

        with pytest.raises(SettingsError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use"):
            start_in_thread(engine, port)  # type: ignore[arg-type]

    assert engine.calls == []


def test_server_when_stopping_then_what_is_being_answered_is_finished(serve: Serve) -> None:
    served = serve()
    under_way, statuses = threading.Event(), []
    submit = served.engine.submit
    commit: Future[Any] = Future()

    def slow(raw: Any) -> Future[Any]:
        under_way.set()
        submit(raw)
        return commit

    served.engine.submit = slow
    caller = threading.Thread(target=lambda: statuses.extend(_posts(served.running.address, 1)))
    caller.start()
    under_way.wait(10)

    stopper = threading.Thread(target=served.running.stop)
    stopper.start()
    time.sleep(0.3)
    assert "stop" not in [name for name, *_ in served.engine.calls]
    commit.set_result(SimpleNamespace(delivery_id=7, n_alerts=2, n_bad_alerts=1))
    stopper.join()
    caller.join()

    assert statuses == [200]
    assert [name for name, *_ in served.engine.calls] == ["start", "submit", "stop"]
    served.running.stop = lambda: None


def test_server_when_stopping_then_a_body_under_way_is_answered_with_503_at_once(serve: Serve) -> None:
    served = serve()
    with served.connect() as connection:
        connection.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{" % URL.encode())
        time.sleep(0.2)

        started = time.monotonic()
        served.running.stop()
        seconds = time.monotonic() - started
        answer = connection.recv(65536)

    assert answer.startswith(b"HTTP/1.1 503 ")
    assert seconds < 3
    assert [name for name, *_ in served.engine.calls] == ["start", "stop"]
    served.running.stop = lambda: None


@pytest.mark.parametrize("stalled", [b"", b"POST / HT"], ids=["an idle connection", "half a head"])
def test_server_when_stopping_then_stalled_clients_do_not_hold_it(stalled: bytes, serve: Serve) -> None:
    served = serve()
    with served.connect() as connection:
        connection.sendall(stalled)
        time.sleep(0.2)
        started = time.monotonic()
        served.running.stop()

    assert time.monotonic() - started < 3
    served.running.stop = lambda: None


def test_server_when_on_ipv6_then_answers(serve: Serve) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")

    served = serve(listen="[::1]:0")

    assert served.running.address.startswith("[::1]:")
    assert _posts(served.running.address, 1) == [200]


def test_server_when_answering_then_it_does_not_say_what_it_is_made_of(serve: Serve) -> None:
    answer = serve().exchange(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"\r\nserver:" not in answer.lower()


def test_answer_when_on_one_connection_then_it_does_not_wait_for_acknowledgements(serve: Serve) -> None:
    address = serve().running.address
    tries = []
    for _ in range(5):
        started = time.monotonic()
        _posts(address, 20)
        tries.append(time.monotonic() - started)

    assert min(tries) < 0.6, "with Nagle's algorithm each of the 20 takes 40 ms, however quiet the machine is"


@pytest.fixture
def process(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    tests = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-c", _SERVER, str(port)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tests}{os.pathsep}{tests.parent}"},
    ) as child:
        address = f"127.0.0.1:{port}"
        for _ in range(200):
            try:
                _posts(address, 1)
                break
            except OSError:
                time.sleep(0.05)
        yield child, address
        child.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_process_when_told_to_stop_then_the_engine_stops_and_it_ends_with_0(
    number: signal.Signals, process: tuple[subprocess.Popen[str], str]
) -> None:
    child, address = process
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port))):
        child.send_signal(number)
        out, _ = child.communicate(timeout=10)

    said = [line for line in out.splitlines() if line in ("start", "stop", "end")]
    assert (said, child.returncode) == (["start", "stop", "end"], 0)


def test_process_when_sighup_then_playbooks_are_loaded_again_and_it_goes_on(
    process: tuple[subprocess.Popen[str], str],
) -> None:
    child, address = process

    child.send_signal(signal.SIGHUP)
    time.sleep(0.3)
    statuses = _posts(address, 1)
    child.send_signal(signal.SIGTERM)

    out, _ = child.communicate(timeout=10)
    assert statuses == [200]
    assert "reload SIGHUP" in out.splitlines()
    assert child.returncode == 0


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("tls"))


def test_tls_when_configured_then_https_answers(certificates: Path, serve: Serve) -> None:
    served = serve(tls_cert=certificates / "server.pem", tls_key=certificates / "server.key")
    context = ssl.create_default_context(cafile=str(certificates / "ca.pem"))

    assert served.running.url == f"https://{served.running.address}"
    assert _posts(served.running.address, 1, context) == [200]


def test_tls_when_client_certificates_are_needed_then_only_who_has_one_gets_an_answer(
    certificates: Path, serve: Serve
) -> None:
    served = serve(
        tls_cert=certificates / "server.pem",
        tls_key=certificates / "server.key",
        tls_client_ca=certificates / "ca.pem",
    )
    without = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
    with_one = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
    with_one.load_cert_chain(certificates / "client.pem", certificates / "client.key")

    assert _posts(served.running.address, 1, with_one) == [200]
    with pytest.raises((ssl.SSLError, ConnectionError)):
        _posts(served.running.address, 1, without)


def test_tls_when_files_do_not_belong_together_then_says_so(certificates: Path) -> None:
    settings = load_settings(
        environ={}, overrides={"tls_cert": certificates / "server.pem", "tls_key": certificates / "client.key"}
    )

    with pytest.raises(SettingsError, match="tls_cert, tls_key or tls_client_ca cannot be used"):
        start_in_thread(RecordingApp(settings))  # type: ignore[arg-type]


def test_tls_when_a_file_is_not_there_then_says_which(certificates: Path) -> None:
    with pytest.raises(SettingsError, match=r"cannot be used: \S+nowhere\.pem: No such file"):
        RenewedCertificate(certificates / "server.pem", certificates / "server.key", certificates / "nowhere.pem")


@pytest.fixture
def generations(tmp_path: Path) -> dict[str, Path]:
    """Certificates of two CAs, and those in use, which begin as the old ones."""
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        make_certificates(tmp_path / name)
    shutil.copytree(tmp_path / "old", tmp_path / "used")
    return {name: tmp_path / name for name in ("old", "new", "used")}


def trusting(folder: Path, *, client: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    if client is not None:
        context.load_cert_chain(client / "client.pem", client / "client.key")
    return context


def test_tls_when_the_certificate_is_renewed_then_new_connections_get_it_and_the_old_goes_on(
    generations: dict[str, Path], serve: Serve
) -> None:
    old, new, used = generations.values()
    served = serve(tls_cert=used / "server.pem", tls_key=used / "server.key")
    context = trusting(old)
    with closing(http.client.HTTPSConnection(served.running.address, context=context, timeout=10)) as connection:
        connection.request("POST", URL, b"{}", JSON)
        connection.getresponse().read()
        # One after the other, as a program renews them: between the two they do not belong together.
        shutil.copy(new / "server.pem", used)
        assert _posts(served.running.address, 1, trusting(old)) == [200]
        shutil.copy(new / "server.key", used)
        assert _posts(served.running.address, 1, trusting(new)) == [200]
        with pytest.raises(ssl.SSLCertVerificationError):
            _posts(served.running.address, 1, trusting(old))
        connection.request("POST", URL, b"{}", JSON)
        assert connection.getresponse().status == 200


def test_tls_when_its_files_are_gone_then_the_last_certificate_stays_in_use(
    generations: dict[str, Path], serve: Serve
) -> None:
    old, _, used = generations.values()
    served = serve(tls_cert=used / "server.pem", tls_key=used / "server.key")
    (used / "server.pem").unlink()

    assert _posts(served.running.address, 1, trusting(old)) == [200]


def test_tls_when_the_clients_ca_is_renewed_then_certificates_of_the_old_one_are_refused(
    generations: dict[str, Path], serve: Serve
) -> None:
    old, new, used = generations.values()
    served = serve(tls_cert=used / "server.pem", tls_key=used / "server.key", tls_client_ca=used / "ca.pem")
    assert _posts(served.running.address, 1, trusting(old, client=old)) == [200]

    shutil.copy(new / "ca.pem", used)

    assert _posts(served.running.address, 1, trusting(old, client=new)) == [200]
    with pytest.raises((ssl.SSLError, ConnectionError)):
        _posts(served.running.address, 1, trusting(old, client=old))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_when_the_clients_ca_is_renewed_then_a_session_of_the_old_one_is_not_taken_up_again(
    generations: dict[str, Path], serve: Serve, version: ssl.TLSVersion
) -> None:
    old, new, used = generations.values()
    served = serve(tls_cert=used / "server.pem", tls_key=used / "server.key", tls_client_ca=used / "ca.pem")
    context = trusting(old, client=old)
    context.maximum_version = version
    host, port = served.running.address.split(":")

    def session_of(earlier: ssl.SSLSession | None) -> ssl.SSLSession | None:
        with (
            socket.create_connection((host, int(port)), timeout=10) as raw,
            context.wrap_socket(raw, server_hostname=host, session=earlier) as tls,
        ):
            tls.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n" % URL.encode())
            if not tls.recv(1000):
                raise ConnectionError("no answer")
            return tls.session

    session = session_of(None)
    shutil.copy(new / "ca.pem", used)

    with pytest.raises((ssl.SSLError, ConnectionError)):
        session_of(session)
