"""The Docker adapter over TLS and ssh, to a real engine behind a real TLS and a real ssh server on loopback."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import paramiko
import pytest

from certificates import make_certificate
from conftest_docker import Trainer
from realparts.docker_engine import DockerEngine
from remediator import errors
from remediator.clients.dockerd import Dockerd
from remediator.clients.ports import DockerHost

pytestmark = pytest.mark.docker


def pump(take: Callable[[int], bytes], give: Callable[[bytes], Any]) -> None:
    """Carry bytes one way until either end is closed."""
    with contextlib.suppress(OSError):
        while data := take(65_536):
            give(data)


def to_engine(engine: DockerEngine, peer: Any) -> None:
    """Carry bytes between a peer and the engine's socket until the peer hangs up, or the engine does."""
    with socket.socket(socket.AF_UNIX) as inner:
        inner.connect(engine.url.removeprefix("unix://"))
        back = threading.Thread(target=pump, args=(inner.recv, peer.sendall))
        back.start()
        pump(peer.recv, inner.sendall)
        inner.shutdown(socket.SHUT_RDWR)
        back.join()


@contextlib.contextmanager
def serving(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """A TCP server on loopback, a thread per connection; gives its port."""
    threads: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    threads.append(threading.Thread(target=serve, args=(connection,)))
                    threads[-1].start()

        accepting = threading.Thread(target=accept)
        accepting.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        accepting.join()
        for thread in threads:
            thread.join(10)


class Authority:
    """A certificate authority, and certificates of it, below one folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._certificate = make_certificate(folder, "ca")
        self.ca = self._certificate.pem

    def make(self, name: str) -> tuple[Path, Path]:
        """Files of a certificate for 127.0.0.1 and of its key."""
        made = make_certificate(self._folder, name, self._certificate)
        return made.pem, made.key


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


@pytest.fixture
def tls_port(docker_engine: DockerEngine, authority: Authority) -> Iterator[int]:
    """The engine behind TLS that asks for a certificate of the same authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.make("server"))
    context.load_verify_locations(authority.ca)
    context.verify_mode = ssl.CERT_REQUIRED

    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError), context.wrap_socket(connection, server_side=True) as peer:
            to_engine(docker_engine, peer)

    with serving(serve) as port:
        yield port


def test_tls_when_both_certificates_fit_then_it_looks_and_acts(
    tls_port: int, authority: Authority, trainer: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/nowhere/ca.pem")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    cert, key = authority.make("client")
    host = DockerHost(
        name="gpu-07",
        url=f"tcp://127.0.0.1:{tls_port}",
        tls_ca=str(authority.ca),
        tls_cert=str(cert),
        tls_key=str(key),
    )
    engine, name = Dockerd(host), trainer()
    before = engine.inspect(name)
    engine.restart(before.id, stop_timeout_s=5, deadline_s=30)
    assert engine.inspect(name).started_at > before.started_at


def test_tls_when_the_engines_certificate_is_of_another_authority_then_nothing_is_sent_and_it_is_permanent(
    tls_port: int, authority: Authority, tmp_path: Path
) -> None:
    other = Authority(tmp_path / "other")
    cert, key = authority.make("client")
    host = DockerHost(
        name="gpu-07",
        url=f"tcp://127.0.0.1:{tls_port}",
        tls_ca=str(other.ca),
        tls_cert=str(cert),
        tls_key=str(key),
    )
    with pytest.raises(errors.PermanentActionError, match="certificate") as caught:
        Dockerd(host).restart("a" * 64, stop_timeout_s=1, deadline_s=30)
    assert caught.value.reason is errors.Reason.UNREACHABLE


def test_tls_when_we_have_no_certificate_then_it_does_not_act(tls_port: int, authority: Authority) -> None:
    host = DockerHost(name="gpu-07", url=f"tcp://127.0.0.1:{tls_port}", tls_ca=str(authority.ca))
    with pytest.raises(errors.ActionError) as caught:
        Dockerd(host).restart("a" * 64, stop_timeout_s=1, deadline_s=30)
    assert not isinstance(caught.value, errors.UnknownEffectError)


class Login(paramiko.ServerInterface):
    """Lets one key in, to run ``docker system dial-stdio``."""

    def __init__(self, engine: DockerEngine, key: paramiko.PKey) -> None:
        self._engine = engine
        self._key = key
        self._threads: list[threading.Thread] = []

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        is_known = username == "ops" and key == self._key
        return paramiko.common.AUTH_SUCCESSFUL if is_known else paramiko.common.AUTH_FAILED

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.common.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        if command != b"docker system dial-stdio":
            return False
        self._threads.append(threading.Thread(target=to_engine, args=(self._engine, channel)))
        self._threads[-1].start()
        return True


class SshPlace:
    """A home folder for ssh, and the server that it knows."""

    def __init__(self, home: Path) -> None:
        (home / ".ssh").mkdir(parents=True)
        self._ssh = home / ".ssh"
        self.host_key = paramiko.ECDSAKey.generate()
        self.user_key = paramiko.ECDSAKey.generate()
        self.user_key.write_private_key_file(str(self._ssh / "id_ecdsa"))

    def know(self, port: int, key: paramiko.PKey) -> None:
        (self._ssh / "known_hosts").write_text(f"[127.0.0.1]:{port} {key.get_name()} {key.get_base64()}\n")


@pytest.fixture
def ssh_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SshPlace:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return SshPlace(tmp_path)


@pytest.fixture
def ssh_port(docker_engine: DockerEngine, ssh_place: SshPlace) -> Iterator[int]:
    """The engine behind an ssh server that lets the user ``ops`` in."""

    def serve(connection: socket.socket) -> None:
        transport = paramiko.Transport(connection)
        transport.add_server_key(ssh_place.host_key)
        with contextlib.suppress(paramiko.SSHException, EOFError, ConnectionError):
            transport.start_server(server=Login(docker_engine, ssh_place.user_key))
        transport.join(30)
        transport.close()
        connection.close()

    with serving(serve) as port:
        yield port


def test_ssh_when_the_key_and_the_host_are_known_then_it_looks_and_acts(
    ssh_port: int, ssh_place: SshPlace, trainer: Trainer
) -> None:
    ssh_place.know(ssh_port, ssh_place.host_key)
    engine, name = Dockerd(DockerHost(name="gpu-07", url=f"ssh://ops@127.0.0.1:{ssh_port}")), trainer()
    before = engine.inspect(name)
    engine.restart(before.id, stop_timeout_s=5, deadline_s=30)
    assert engine.inspect(name).started_at > before.started_at


def test_ssh_when_the_user_is_not_let_in_then_access_is_denied(ssh_port: int, ssh_place: SshPlace) -> None:
    ssh_place.know(ssh_port, ssh_place.host_key)
    with pytest.raises(errors.AccessDeniedError, match="check the user's rights"):
        Dockerd(DockerHost(name="gpu-07", url=f"ssh://mallory@127.0.0.1:{ssh_port}")).version()


def test_ssh_when_the_host_shows_another_key_then_access_is_denied(ssh_port: int, ssh_place: SshPlace) -> None:
    ssh_place.know(ssh_port, paramiko.ECDSAKey.generate())
    with pytest.raises(errors.AccessDeniedError, match="Host key"):
        Dockerd(DockerHost(name="gpu-07", url=f"ssh://ops@127.0.0.1:{ssh_port}")).version()


def test_ssh_when_the_host_is_not_known_then_it_is_not_trusted(ssh_port: int) -> None:
    with pytest.raises(errors.ActionError, match="known_hosts"):
        Dockerd(DockerHost(name="gpu-07", url=f"ssh://ops@127.0.0.1:{ssh_port}")).version()
