"""The Docker socket proxy of ``deploy/docker``: a real HAProxy before a real Docker engine.

What the engine's own client asks for goes through and is done; every row of ``socket_proxy.yaml`` is refused.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from conftest_docker import Trainer
from conftest_realparts import do_without
from realparts.docker_engine import IDLE, DockerEngine
from realparts.process import Process, answers, free_port, wait_until
from remediator.cli.doctor_network import check_docker
from remediator.clients.dockerd import Dockerd
from remediator.clients.ports import CpuLimit, DockerHost
from remediator.errors import AccessDeniedError, TargetNotFoundError
from remediator.settings import load_settings

pytestmark = [pytest.mark.docker, pytest.mark.system]

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "deploy" / "docker" / "docker-socket-proxy.cfg"
REFUSED: list[dict[str, Any]] = YAML(typ="safe").load(ROOT / "tests" / "data" / "socket_proxy.yaml")

Proxy = Callable[..., str]
"""``proxy(**variables)`` starts one with these environment variables and gives ``host:port``."""


@pytest.fixture
def proxy(docker_engine: DockerEngine, tmp_path: Path) -> Iterator[Proxy]:
    """Proxies as they are shipped, but for where they listen and where the socket is."""
    if shutil.which("haproxy") is None:
        do_without("system", "haproxy is not installed")
    with contextlib.ExitStack() as stack:

        def start(**variables: str) -> str:
            address = f"127.0.0.1:{free_port()}"
            shipped = CONFIG.read_text()
            here = shipped.replace("bind :2375", f"bind {address}").replace(
                "/var/run/docker.sock", docker_engine.url.removeprefix("unix://")
            )
            assert here.count(address) == 1
            file = tmp_path / "haproxy.cfg"
            file.write_text(here)
            process = Process(
                ["haproxy", "-db", "-f", str(file)],
                tmp_path,
                is_up=lambda: answers(f"http://{address}/version"),
                env=variables,
            )
            process.start()
            stack.callback(process.stop)
            return address

        yield start


def through(address: str) -> Dockerd:
    """The engine's own Docker client, by way of the proxy."""
    return Dockerd(DockerHost(name="gpu-07", url=f"tcp://{address}"))


def asked(peer: socket.socket, ask: str, headers: dict[str, str], body: str = "") -> int:
    """The status of the answer to these very bytes; 0 for a connection that is closed without one."""
    lengths = {} if {"content-length", "transfer-encoding"} & {name.lower() for name in headers} else {"Content-Length"}
    lines = [f"{ask} HTTP/1.1", "Host: docker", *(f"{name}: {value}" for name, value in headers.items())]
    lines += [f"{name}: {len(body)}" for name in lengths if body]
    peer.settimeout(20)
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        peer.sendall(("\r\n".join(lines) + "\r\n\r\n" + body).encode())
        found = re.match(rb"HTTP/1\.[01] (\d{3}) ", peer.recv(4096))
        return int(found[1]) if found else 0
    return 0


def test_proxy_when_the_engine_acts_through_it_then_each_act_is_done(proxy: Proxy, trainer: Trainer) -> None:
    engine, name = through(proxy()), trainer(IDLE)
    before = engine.inspect(name)

    engine.restart(before.id, stop_timeout_s=10, deadline_s=60)
    restarted = engine.inspect(name)
    engine.signal(before.id, "SIGKILL", deadline_s=30)
    engine.start(before.id, deadline_s=30)
    started = engine.inspect(before.id)
    engine.stop(before.id, stop_timeout_s=10, deadline_s=60)
    engine.limit_cpu(before.id, CpuLimit(quota_us=50_000), back=before.cpu, deadline_s=30)
    limited = engine.inspect(name).cpu
    engine.limit_cpu(before.id, before.cpu, deadline_s=30)

    assert (limited.quota_us, engine.inspect(name).cpu.quota_us) == (50_000, -1)
    assert before.started_at < restarted.started_at < started.started_at
    assert (started.is_running, engine.inspect(name).is_running) == (True, False)


@pytest.mark.parametrize("nano_cpus", [10_000_000, 1_234_567_891])
def test_proxy_when_a_container_has_cpus_then_the_engine_may_set_others_and_set_them_back(
    nano_cpus: int, proxy: Proxy, trainer: Trainer
) -> None:
    engine = through(proxy())
    before = engine.inspect(trainer(IDLE, limits={"nano_cpus": nano_cpus}))

    engine.limit_cpu(before.id, CpuLimit(nano_cpus=500_000_000), back=before.cpu, deadline_s=30)
    limited = engine.inspect(before.id).cpu
    engine.limit_cpu(before.id, before.cpu, deadline_s=30)

    assert (limited.nano_cpus, engine.inspect(before.id).cpu) == (500_000_000, before.cpu)


@pytest.mark.parametrize("signal", ["SIGUSR2", "10", "SIGRTMIN+3", "SIGRTMAX-3"])
def test_proxy_when_a_signal_is_sent_by_any_way_of_writing_it_then_it_is_let_through(
    signal: str, proxy: Proxy, trainer: Trainer
) -> None:
    engine = through(proxy())
    engine.signal(engine.inspect(trainer(IDLE)).id, signal, deadline_s=30)


def test_proxy_when_asked_for_what_is_not_there_then_the_answer_is_dockers_own(proxy: Proxy) -> None:
    with pytest.raises(TargetNotFoundError):
        through(proxy()).inspect("nobody-is-called-so")


@pytest.mark.parametrize("number", range(8))
def test_proxy_when_asked_for_anything_else_then_it_refuses(number: int, proxy: Proxy, trainer: Trainer) -> None:
    # Eight heaps and not one test a row: each needs a proxy and a container of its own.
    rows = REFUSED[number::8]
    address, name = proxy(), trainer(IDLE)
    state = through(address).inspect(name)
    answered = {}
    for row in rows:
        host, port = address.split(":")
        with socket.create_connection((host, int(port)), timeout=20) as peer:
            ask = row["ask"].format(id=state.id, name=name)
            answered[row["id"]] = asked(peer, ask, row.get("headers", {}), row.get("body", ""))

    # Refused by the proxy: Docker's own answer would be another.
    assert answered == {row["id"]: row.get("status", 403) for row in rows}
    assert through(address).inspect(name) == state


def test_proxy_when_spoken_to_in_http_2_then_it_does_not_understand(proxy: Proxy) -> None:
    host, port = proxy().split(":")
    empty_settings = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])

    with socket.create_connection((host, int(port)), timeout=20) as peer:
        peer.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + empty_settings)
        answer = peer.recv(4096)

    assert answer.startswith(b"HTTP/1.1 400 ")


def test_start_of_an_old_version_when_its_body_gives_rights_then_docker_would_obey_and_the_proxy_refuses(
    docker_engine: DockerEngine, proxy: Proxy, trainer: Trainer
) -> None:
    api = docker_engine.client.api
    # Newer ones speak no API below 1.24 and refuse by themselves.
    obeys = tuple(map(int, api.version()["MinAPIVersion"].split("."))) <= (1, 23)
    body = json.dumps({"Privileged": True, "NetworkMode": "none"})
    is_privileged, statuses = [], []
    host, port = proxy().split(":")
    for connect in (
        lambda: socket.create_connection((host, int(port)), timeout=20),
        lambda: unix(docker_engine.url.removeprefix("unix://")),
    ):
        made = api.inspect_container(trainer(IDLE, starts=False))
        with connect() as peer:
            headers = {"Content-Type": "application/json"}
            statuses.append(asked(peer, f"POST /v1.23/containers/{made['Id']}/start", headers, body))
        is_privileged.append(api.inspect_container(made["Id"])["HostConfig"]["Privileged"])

    # What the container is given counts; whether this image starts with it does not.
    assert (statuses[0], is_privileged) == (403, [False, obeys])


def unix(path: str) -> socket.socket:
    """A connection to a Unix socket."""
    peer = socket.socket(socket.AF_UNIX)
    peer.connect(path)
    return peer


def test_proxy_when_containers_are_named_then_others_can_neither_be_seen_nor_acted_on(
    docker_engine: DockerEngine, proxy: Proxy, trainer: Trainer
) -> None:
    ours, other = trainer(IDLE), trainer(IDLE)
    other_id = docker_engine.client.api.inspect_container(other)["Id"]
    # A list that lets slashes and question marks through by itself.
    address = proxy(CONTAINERS=f"{ours}|web-.*")
    engine = through(address)

    seen = engine.inspect(ours)
    engine.restart(seen.id, stop_timeout_s=10, deadline_s=60)

    assert engine.inspect(seen.id).started_at > seen.started_at
    for name in (other, other_id[:12], f"x{ours}", f"{ours}x"):
        with pytest.raises(AccessDeniedError):
            engine.inspect(name)
    with pytest.raises(AccessDeniedError):
        engine.inspect("web-1/logs?x=")
    hosts = {"hosts": {"gpu-07": {"url": f"tcp://{address}"}}}
    assert [finding.level for finding in check_docker(load_settings(environ={}, overrides={"docker": hosts}))] == ["ok"]


def test_proxy_when_something_is_asked_then_its_own_log_names_it(
    proxy: Proxy, trainer: Trainer, tmp_path: Path
) -> None:
    engine, name = through(proxy()), trainer(IDLE)
    container_id = engine.inspect(name).id

    engine.restart(container_id, stop_timeout_s=10, deadline_s=60)

    def log() -> str:
        return re.sub(r"/v1\.\d+/", "/v1.41/", (tmp_path / "haproxy.log").read_text())

    # A line comes after the answer.
    wait_until(lambda: f"POST /v1.41/containers/{container_id}/restart?t=10" in log(), "the proxy's log names it", 30)


def test_inspect_when_a_container_has_secrets_in_its_environment_then_none_is_kept(
    docker_engine: DockerEngine, trainer: Trainer
) -> None:
    api, name = docker_engine.client.api, trainer(IDLE)
    made = api.create_container(
        api.inspect_container(name)["Config"]["Image"],
        ["/bin/sh", "-c", "echo canary-argument"],
        name=f"{name}-env",
        environment={"PASSWORD": "canary-value"},
    )
    try:
        told = json.dumps(api.inspect_container(made["Id"]))
        state = Dockerd(DockerHost(name="gpu-07", url=docker_engine.url)).inspect(f"{name}-env")
    finally:
        docker_engine.remove(f"{name}-env")

    assert ("canary-value" in told, "canary-argument" in told, "canary" in repr(state)) == (True, True, False)
