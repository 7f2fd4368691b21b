"""What only a real Docker engine shows: slow containers, and an engine that hangs, dies and comes back."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from docker.transport.unixconn import UnixHTTPConnection

from conftest_docker import Trainer
from realparts import docker_engine as engines
from realparts.docker_engine import DockerEngine
from remediator import errors
from remediator.actions import REGISTRY
from remediator.clients import dockerd
from remediator.clients.dockerd import Dockerd, DockerdReader
from remediator.clients.fake import FakeWorld
from remediator.clients.ports import Clients, DockerHost, ReadOnlyClients
from remediator.core.outcome import Effect

pytestmark = pytest.mark.docker

RESTART = REGISTRY["docker.restart"]


def host_of(engine: DockerEngine) -> DockerHost:
    return DockerHost(name="gpu-07", url=engine.url)


def clients_of(engine: DockerEngine) -> Clients:
    notifier = FakeWorld(lambda: pytest.fail("no message is sent here")).clients().notifier
    return Clients(dockers={"gpu-07": Dockerd(host_of(engine))}, notifier=notifier)


def wait_until(is_so: Callable[[], bool], within_s: float) -> None:
    ends = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < ends, f"not so within {within_s} s"
        time.sleep(0.1)


def restart_params(container: str) -> Any:
    return RESTART.params_model.model_validate({"container": container, "host": "gpu-07", "stop_timeout": "30s"})


def test_restart_when_the_container_stops_slower_than_we_wait_then_unknown_and_a_look_shows_that_it_happened(
    docker_engine: DockerEngine, trainer: Trainer
) -> None:
    name = trainer(engines.stubborn(7))
    engine = Dockerd(host_of(docker_engine))
    clients = ReadOnlyClients(dockers={"gpu-07": engine})
    params = restart_params(name)
    before = RESTART.observe(params, clients)

    with pytest.raises(errors.UnknownEffectError):
        engine.restart(str(before["id"]), stop_timeout_s=30, deadline_s=5)
    assert RESTART.effect(params, before, RESTART.observe(params, clients)) is Effect.AS_BEFORE

    wait_until(lambda: RESTART.effect(params, before, RESTART.observe(params, clients)) is Effect.HAPPENED, within_s=20)


def test_restart_when_the_container_needs_its_whole_grace_then_it_is_waited_for(
    docker_engine: DockerEngine, trainer: Trainer
) -> None:
    name = trainer(engines.stubborn(12))
    clients = clients_of(docker_engine)
    params = restart_params(name)
    change = RESTART.apply(params, clients, RESTART.observe(params, clients), timedelta(minutes=2))
    assert (change.changed, change.before["id"] == change.after["id"]) == (True, True)


def test_restart_when_the_container_ignores_its_stop_signal_then_it_is_killed_after_its_grace(
    docker_engine: DockerEngine, trainer: Trainer
) -> None:
    name = trainer("trap '' TERM; while :; do sleep 0.1; done")
    engine = Dockerd(host_of(docker_engine))
    before, began = engine.inspect(name), time.monotonic()
    engine.restart(before.id, stop_timeout_s=2, deadline_s=30)
    assert (engine.inspect(name).started_at > before.started_at, time.monotonic() - began >= 2) == (True, True)


def test_restart_when_the_process_ends_at_once_then_the_audit_says_so(
    docker_engine: DockerEngine, trainer: Trainer
) -> None:
    name = trainer(engines.ENDING)
    clients = clients_of(docker_engine)
    params = restart_params(name)
    wait_until(lambda: clients.docker("gpu-07").inspect(name).status == "exited", within_s=10)
    change = RESTART.apply(params, clients, RESTART.observe(params, clients), timedelta(minutes=2))
    assert (change.changed, change.detail.startswith("it was exited before")) == (True, True)


def test_stop_when_the_container_removes_itself_then_gone_is_stopped(
    docker_engine: DockerEngine, trainer: Trainer
) -> None:
    name = trainer(removes_itself=True)
    clients = clients_of(docker_engine)
    stop = REGISTRY["docker.stop"]
    params = stop.params_model.model_validate({"container": name, "host": "gpu-07"})
    change = stop.apply(params, clients, stop.observe(params, clients), timedelta(minutes=2))
    assert change.changed
    assert change.after["status"] in ("exited", "removing", "removed")


def test_stop_when_a_restart_policy_would_bring_it_back_then_it_stays_stopped(
    docker_engine: DockerEngine, trainer: Trainer
) -> None:
    name = trainer(restart_policy="always")
    clients = clients_of(docker_engine)
    stop = REGISTRY["docker.stop"]
    params = stop.params_model.model_validate({"container": name, "host": "gpu-07"})
    change = stop.apply(params, clients, stop.observe(params, clients), timedelta(minutes=2))
    time.sleep(1)
    assert (change.changed, clients.docker("gpu-07").inspect(name).status) == (True, "exited")


def test_signal_when_the_trainer_traps_it_then_it_writes_its_checkpoint(
    docker_engine: DockerEngine, trainer: Trainer
) -> None:
    name = trainer(engines.CHECKPOINTING)
    clients = clients_of(docker_engine)
    action = REGISTRY["docker.signal"]
    params = action.params_model.model_validate({"container": name, "host": "gpu-07", "signal": "USR1"})
    time.sleep(0.5)  # until the shell has set its trap
    assert action.apply(params, clients, action.observe(params, clients), timedelta(minutes=1)).changed
    container = docker_engine.client.containers.get(name)
    wait_until(lambda: container.exec_run("cat /tmp/checkpoint").exit_code == 0, within_s=5)


def test_engine_when_it_hangs_then_it_is_found_out_before_an_act_is_sent(private_docker_engine: DockerEngine) -> None:
    container = private_docker_engine.run("trainer-0")
    engine = Dockerd(host_of(private_docker_engine))
    with private_docker_engine.frozen():
        with pytest.raises(errors.TransientActionError):
            engine.inspect("trainer-0")
        with pytest.raises(errors.TransientActionError):
            engine.restart(str(container.id), stop_timeout_s=1, deadline_s=30)
    container.reload()
    assert engine.inspect("trainer-0").started_at.startswith(container.attrs["State"]["StartedAt"][:20])


def test_engine_when_it_hangs_in_the_middle_of_an_act_then_the_effect_is_unknown(
    private_docker_engine: DockerEngine,
) -> None:
    container = private_docker_engine.run("trainer-0", engines.stubborn(3))
    engine = Dockerd(host_of(private_docker_engine))
    time.sleep(0.5)
    with _soon(1, lambda: os.kill(private_docker_engine.pid, signal.SIGSTOP)):
        try:
            with pytest.raises(errors.UnknownEffectError):
                engine.restart(str(container.id), stop_timeout_s=20, deadline_s=6)
        finally:
            os.kill(private_docker_engine.pid, signal.SIGCONT)


def test_engine_when_it_dies_in_the_middle_of_an_act_then_unknown_and_it_heals_when_the_engine_is_back(
    private_docker_engine: DockerEngine,
) -> None:
    folder = private_docker_engine.folder
    assert folder is not None
    container = private_docker_engine.run("trainer-0", engines.stubborn(3))
    engine = Dockerd(host_of(private_docker_engine))
    time.sleep(0.5)
    with (
        _soon(1, lambda: os.kill(private_docker_engine.pid, signal.SIGKILL)),
        pytest.raises(errors.UnknownEffectError),
    ):
        engine.restart(str(container.id), stop_timeout_s=20, deadline_s=30)
    engines.kill(folder)
    with pytest.raises(errors.TransientActionError, match="cannot be reached"):
        engine.inspect("trainer-0")
    with contextlib.closing(engines.start(folder)):
        assert engine.inspect("trainer-0").name == "trainer-0"


@contextlib.contextmanager
def _soon(after_s: float, do: Callable[[], None]) -> Iterator[None]:
    timer = threading.Timer(after_s, do)
    timer.start()
    yield
    timer.join()


def test_engine_when_its_socket_is_absent_then_transient_and_the_text_says_why(tmp_path: Path) -> None:
    engine = DockerdReader(DockerHost(name="gpu-07", url=f"unix://{tmp_path}/docker.sock"))
    with pytest.raises(errors.TransientActionError, match=r"gpu-07 cannot be reached .*No such file"):
        engine.version()


def test_engine_when_nobody_listens_on_its_port_then_transient() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(errors.TransientActionError, match="cannot be reached"):
        DockerdReader(DockerHost(name="gpu-07", url=f"tcp://127.0.0.1:{port}")).version()


def test_engine_when_its_name_does_not_resolve_then_transient() -> None:
    with pytest.raises(errors.TransientActionError, match="cannot be reached"):
        DockerdReader(DockerHost(name="gpu-07", url="tcp://gpu-07.invalid:2375")).version()


@contextlib.contextmanager
def answering(status: int, body: bytes, headers: dict[str, str]) -> Iterator[tuple[DockerHost, list[str]]]:
    """A server that answers everything so; gives it as a Docker host, and what it was asked for."""
    asked: list[str] = []

    class Other(BaseHTTPRequestHandler):
        def answer(self) -> None:
            asked.append(f"{self.command} {self.path}")
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = answer

        def log_message(self, *args: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Other) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        serving.start()
        try:
            yield DockerHost(name="h", url=f"tcp://127.0.0.1:{server.server_port}"), asked
        finally:
            server.shutdown()
            serving.join()


@pytest.mark.parametrize(
    ("status", "body"),
    [(404, b"not here"), (200, b"<html>"), (200, b"{}"), (200, b"[]"), (302, b""), (501, b"no GET here")],
)
def test_engine_when_something_else_answers_there_then_permanent_and_no_act_is_sent(status: int, body: bytes) -> None:
    with answering(status, body, {"Location": "/elsewhere"}) as (host, asked):
        with pytest.raises(errors.PermanentActionError) as caught:
            Dockerd(host).start("a" * 64, deadline_s=9)
        assert asked == ["GET /_ping"]
    assert not isinstance(caught.value, errors.TargetNotFoundError)


@pytest.mark.parametrize("body", [b"<html>", b"{}", b"[]"])
def test_version_when_the_engine_tells_none_then_permanent(body: bytes) -> None:
    with answering(200, body, {"Api-Version": "1.41"}) as (host, _), pytest.raises(errors.PermanentActionError):
        DockerdReader(host).version()


def test_act_then_pings_first_and_speaks_the_version_that_it_was_told() -> None:
    with answering(200, b"OK", {"Api-Version": "1.43"}) as (host, asked):
        Dockerd(host).restart("a" * 64, stop_timeout_s=7, deadline_s=9)
    assert asked == ["GET /_ping", f"POST /v1.43/containers/{'a' * 64}/restart?t=7"]


def test_engine_when_a_certificate_file_is_absent_then_permanent_and_named() -> None:
    host = DockerHost(name="gpu-07", url="tcp://127.0.0.1:2376", tls_ca="/nowhere/ca.pem")
    with pytest.raises(errors.PermanentActionError, match=r"/nowhere/ca\.pem"):
        DockerdReader(host).version()


def test_inspect_when_many_threads_look_at_once_then_all_see_the_same(
    docker_engine: DockerEngine, trainer: Trainer
) -> None:
    name = trainer()
    engine = DockerdReader(host_of(docker_engine))
    seen: list[str] = []
    threads = [threading.Thread(target=lambda: seen.append(engine.inspect(name).id)) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [engine.inspect(name).id] * 16


def test_inspect_then_asks_on_the_connection_that_answered_the_ping(
    docker_engine: DockerEngine, trainer: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = trainer()
    opened: list[object] = []
    connect = UnixHTTPConnection.connect
    monkeypatch.setattr(UnixHTTPConnection, "connect", lambda self: (opened.append(self), connect(self)))
    DockerdReader(host_of(docker_engine)).inspect(name)
    assert len(opened) == 1


def test_version_when_asked_then_it_names_the_engine_and_its_api(docker_engine: DockerEngine) -> None:
    version = DockerdReader(host_of(docker_engine)).version()
    assert version == f"{docker_engine.client.version()['Version']}, API {docker_engine.client.version()['ApiVersion']}"


def test_inspect_when_the_engine_tells_its_environment_then_none_of_it_is_kept(
    docker_engine: DockerEngine, trainer: Trainer
) -> None:
    state = dockerd.DockerdReader(host_of(docker_engine)).inspect(trainer())
    assert "PATH" not in repr(state)
