"""Every call of ``clients.ports``, in memory and on real neighbours: the same answers, and the same errors.

One table: what is asked, of what, and what comes of it. A call of a port without its rows fails a test, and so does a
failure that stories can script and nobody has seen a real neighbour make.
"""

from __future__ import annotations

import contextlib
import http.client
import inspect
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol

import pytest

from conftest_docker import Trainer
from conftest_realparts import do_without, need_alertmanager
from realparts import docker_engine as engines
from realparts.alertmanager import Alertmanager as RealAlertmanager
from realparts.alertmanager import webhook_config
from realparts.docker_engine import DockerEngine
from realparts.process import wait_until
from realparts.prometheus import Prometheus as RealPrometheus
from remediator.clients import ports
from remediator.clients.alertmanager import SilencingAlertmanager
from remediator.clients.dockerd import Dockerd
from remediator.clients.fake import PROMETHEUS, FakeWorld
from remediator.clients.notifier import AppriseNotifier
from remediator.clients.ports import CpuLimit, DockerHost
from remediator.clients.prometheus import Prometheus
from remediator.core.alert import fingerprint
from remediator.core.scenario import Failure
from remediator.errors import ActionError

HOST = "gpu-07"
NOBODY = "f" * 64
OK = "ok"

Call = Callable[[Any, str], Any]
"""A call of a port, of the thing with this id or name."""


def outcome(call: Callable[[], Any]) -> str:
    """``ok``, or the error's class."""
    try:
        call()
    except ActionError as error:
        return type(error).__name__
    return OK


# -- Docker

DOCKER: dict[str, tuple[Call, Mapping[str, str]]] = {
    "inspect": (
        lambda docker, it: docker.inspect(it),
        {"running": OK, "exited": OK, "created": OK, "paused": OK, "nobody": "TargetNotFoundError"},
    ),
    "version": (lambda docker, _: docker.version(), {"running": OK}),
    "restart": (
        lambda docker, it: docker.restart(it, stop_timeout_s=1, deadline_s=60),
        {
            "running": "ok: running, anew",
            "exited": "ok: running, anew",
            "created": "ok: running, anew",
            "paused": "ok: running, anew",
            "nobody": "TargetNotFoundError",
        },
    ),
    "stop": (
        lambda docker, it: docker.stop(it, stop_timeout_s=1, deadline_s=60),
        {
            "running": "ok: exited",
            "exited": "ok: exited",
            "created": "ok: created",
            "paused": "ok: exited",
            "nobody": "TargetNotFoundError",
        },
    ),
    "start": (
        lambda docker, it: docker.start(it, deadline_s=60),
        {
            "running": "ok: running",
            "exited": "ok: running, anew",
            "created": "ok: running, anew",
            "paused": "ConflictError: paused",
            "nobody": "TargetNotFoundError",
        },
    ),
    "signal": (
        lambda docker, it: docker.signal(it, "SIGUSR1", deadline_s=60),
        {
            "running": "ok: running",
            "exited": "ConflictError: exited",
            "created": "ConflictError: created",
            "paused": "ok: running",
            "nobody": "TargetNotFoundError",
        },
    ),
    "limit_cpu": (
        lambda docker, it: docker.limit_cpu(it, CpuLimit(quota_us=50_000), deadline_s=60),
        {
            "running": "ok: running, limited",
            "exited": "ok: exited, limited",
            "created": "ok: created, limited",
            "paused": "ok: paused, limited",
            "nobody": "TargetNotFoundError",
        },
    ),
}
"""Method → the call, and by the state that the container is in: what comes of it, and how it is afterwards."""

HAPPENED = {
    "restart": "running, anew",
    "stop": "exited",
    "start": "running",
    "signal": "running",
    "limit_cpu": "running, limited",
}
"""How a running container is after each act."""

FAILURES: dict[Failure, tuple[str, bool]] = {
    Failure.TRANSIENT: ("TransientActionError", False),
    Failure.PERMANENT: ("PermanentActionError", False),
    Failure.TIMEOUT_AFTER_EFFECT: ("UnknownEffectError", True),
    Failure.UNKNOWN: ("UnknownEffectError", False),
}
"""A failure that stories script → what the caller gets, and whether the act is seen to have happened."""


class Containers(Protocol):
    """A Docker engine, and what a test does to its containers."""

    docker: Any

    def make(self, status: str) -> str:
        """The id of a new one in this state."""
        ...

    def failing(self, how: Failure, method: str, container_id: str) -> contextlib.AbstractContextManager[Any]:
        """Meanwhile an act of this method fails so; gives the port to act through."""
        ...

    def away(self) -> Any:
        """A port to an engine that is away."""
        ...


class InMemory:
    def __init__(self) -> None:
        self.world = FakeWorld(lambda: datetime(2026, 1, 1, tzinfo=UTC))
        self.world.add_host(HOST)
        self.docker = self.world.clients().docker(HOST)

    def make(self, status: str) -> str:
        return self.world.add_container(HOST, "trainer-0", status=status).id

    @contextlib.contextmanager
    def failing(self, how: Failure, method: str, container_id: str) -> Iterator[Any]:
        self.world.fail("docker.limit" if method == "limit_cpu" else f"docker.{method}", how)
        yield self.docker

    def away(self) -> Any:
        self.world.set_away(HOST, is_away=True)
        return self.docker


class Real:
    def __init__(self, engine: DockerEngine, trainer: Trainer, folder: Path) -> None:
        self._engine = engine
        self._trainer = trainer
        self._folder = folder
        self.docker = Dockerd(DockerHost(name=HOST, url=engine.url))

    def make(self, status: str) -> str:
        name = self._trainer(engines.CHECKPOINTING, starts=status != "created")
        container = self._engine.client.containers.get(name)
        if status == "exited":
            container.stop(timeout=1)
        elif status in ("running", "paused"):
            wait_until(lambda: _has_trap(container), "the trainer has its trap", 20)
            if status == "paused":
                container.pause()
        return str(container.id)

    @contextlib.contextmanager
    def failing(self, how: Failure, method: str, container_id: str) -> Iterator[Any]:
        if how is Failure.TRANSIENT:
            yield self.away()
            return

        def made_anew() -> None:
            container = self._engine.client.containers.get(container_id)
            name = str(container.name)
            self._engine.remove(name)
            self._engine.run(name)

        after = made_anew if how is Failure.UNKNOWN else None
        with proxy(self._engine.url, refuses=how is Failure.PERMANENT, after=after) as url:
            yield Dockerd(DockerHost(name=HOST, url=url))

    def away(self) -> Any:
        return Dockerd(DockerHost(name=HOST, url=f"unix://{self._folder}/nobody.sock"))


def _has_trap(container: Any) -> bool:
    """Whether its shell handles SIGUSR1 (bit 10 of the mask of caught signals)."""
    status = container.exec_run(["sh", "-c", "grep SigCgt /proc/1/status"]).output.decode()
    return bool(int(status.split()[-1], 16) & 1 << 9)


@contextlib.contextmanager
def proxy(engine_url: str, *, refuses: bool, after: Callable[[], None] | None) -> Iterator[str]:
    """Before a real engine: looks go through, an act is refused (400), or done, and its answer lost."""

    class Between(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = forwarded(engine_url, self.command, self.path, b"", {})
            self.answer(status, headers, body)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if refuses:
                self.answer(400, {}, b'{"message": "not like this"}')
                return
            forwarded(engine_url, self.command, self.path, body, {"Content-Type": "application/json"})
            if after is not None:
                after()
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)

        def answer(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
            self.send_response(status)
            for name in {"api-version"} & headers.keys():
                self.send_header(name, headers[name])
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Between) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        serving.start()
        try:
            yield f"tcp://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            serving.join()


def forwarded(
    engine_url: str, method: str, path: str, body: bytes, headers: Mapping[str, str]
) -> tuple[int, dict[str, str], bytes]:
    """What an engine on a Unix socket answers."""
    connection = http.client.HTTPConnection("engine")
    connection.sock = socket.socket(socket.AF_UNIX)
    with contextlib.closing(connection.sock):
        connection.sock.connect(engine_url.removeprefix("unix://"))
        connection.request(method, path, body=body or None, headers=dict(headers))
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()


@pytest.fixture(params=["in memory", pytest.param("docker", marks=pytest.mark.docker)])
def containers(request: pytest.FixtureRequest, tmp_path: Path) -> Containers:
    if request.param == "in memory":
        return InMemory()
    return Real(request.getfixturevalue("docker_engine"), request.getfixturevalue("trainer"), tmp_path)


def seen(containers: Containers, container_id: str, started_at: str) -> str:
    """How a container is now: ``running, anew, limited``."""
    state = containers.docker.inspect(container_id)
    is_anew = state.is_running and state.started_at != started_at
    words = [state.status, "anew" if is_anew else "", "limited" if state.cpu.quota_us == 50_000 else ""]
    return ", ".join(word for word in words if word)


@pytest.mark.parametrize(
    ("method", "status"), [(method, status) for method, (_, by_status) in DOCKER.items() for status in by_status]
)
def test_docker_when_asked_this_of_a_container_in_this_state_then_fake_and_real_do_the_same(
    containers: Containers, method: str, status: str
) -> None:
    call, by_status = DOCKER[method]
    if status == "nobody":
        assert outcome(lambda: call(containers.docker, NOBODY)) == by_status[status]
        return
    container_id = containers.make(status)
    before = containers.docker.inspect(container_id)
    found = outcome(lambda: call(containers.docker, container_id))
    if method in HAPPENED:
        found += f": {seen(containers, container_id, before.started_at)}"
    assert found == by_status[status]


@pytest.mark.parametrize("method", DOCKER)
def test_docker_when_the_engine_is_away_then_transient(containers: Containers, method: str) -> None:
    call, _ = DOCKER[method]
    container_id = containers.make("running")
    assert outcome(lambda: call(containers.away(), container_id)) == "TransientActionError"


@pytest.mark.parametrize("how", Failure)
@pytest.mark.parametrize("method", HAPPENED)
def test_docker_when_an_act_fails_so_then_fake_and_real_say_and_leave_the_same(
    containers: Containers, method: str, how: Failure
) -> None:
    call, _ = DOCKER[method]
    expected, has_happened = FAILURES[how]
    container_id = containers.make("running")
    before = containers.docker.inspect(container_id)
    with containers.failing(how, method, container_id) as docker:
        assert outcome(lambda: call(docker, container_id)) == expected
    if how is Failure.UNKNOWN:
        assert containers.docker.inspect(before.name).id != container_id
    else:
        assert seen(containers, container_id, before.started_at) == (HAPPENED[method] if has_happened else "running")


# -- Alertmanager

AM = "http://am-1:9093"
CLOSED = "http://127.0.0.1:9"


def create(port: Any, _: str) -> Any:
    return port.create_silence(
        {"alertname": "GPUHot"}, duration=timedelta(hours=1), created_by="remediator", comment="x", deadline_s=2
    )


ALERTMANAGER: dict[str, Call] = {
    "alerts": lambda port, _: port.alerts(),
    "started_at": lambda port, _: port.started_at(),
    "silences": lambda port, _: port.silences(),
    "create_silence": create,
    "expire_silence": lambda port, it: port.expire_silence(it, deadline_s=2),
}
SCRIPTED = {"create_silence": "alertmanager.silence", "expire_silence": "alertmanager.expire"}
REFUSED = "InvalidTargetError"


class Neighbour(BaseHTTPRequestHandler):
    """Takes what comes, and answers it with one status, or not at all (0)."""

    status = 0

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if not self.status:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self.send_response(self.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_DELETE = do_POST

    def log_message(self, *args: Any) -> None:
        pass


@contextlib.contextmanager
def answering(status: int) -> Iterator[str]:
    handler = type("Answering", (Neighbour,), {"status": status})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        serving.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            serving.join()


@pytest.fixture(params=["in memory", pytest.param("real", marks=pytest.mark.alertmanager)])
def alertmanager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "in memory":
        world = FakeWorld(lambda: datetime.now(UTC))
        world.add_alertmanager(AM)
        world.list_alert({"alertname": "GPUHot"})
        yield world.clients().alertmanagers[AM]
        return
    need_alertmanager("0.31")
    real = RealAlertmanager(tmp_path, webhook_config(f"{CLOSED}/nobody"))
    real.start()
    try:
        real.push({"alertname": "GPUHot"})
        yield SilencingAlertmanager(real.url)
    finally:
        real.kill()


def test_alertmanager_when_all_its_calls_are_made_in_turn_then_fake_and_real_say_the_same(alertmanager: Any) -> None:
    began = datetime.now(UTC)
    wait_until(lambda: len(alertmanager.alerts()) == 1, "the alert is listed", 30)
    (alert,) = alertmanager.alerts()
    assert (dict(alert.labels), alert.silenced_by, alert.is_inhibited) == ({"alertname": "GPUHot"}, (), False)
    assert alert.fingerprint == fingerprint(alert.labels)
    assert datetime.fromisoformat(alert.starts_at).tzinfo is not None
    assert began - timedelta(hours=2) < alertmanager.started_at() <= datetime.now(UTC)
    assert alertmanager.silences() == ()
    made = ALERTMANAGER["create_silence"](alertmanager, "")
    assert [(one.id, one.is_alive, one.created_by) for one in alertmanager.silences()] == [
        (made.id, True, "remediator")
    ]
    assert outcome(lambda: ALERTMANAGER["expire_silence"](alertmanager, made.id)) == OK
    assert [one.status for one in alertmanager.silences()] == ["expired"]
    assert outcome(lambda: ALERTMANAGER["expire_silence"](alertmanager, made.id)) == OK
    nobody = "00000000-0000-4000-8000-000000000000"
    assert outcome(lambda: ALERTMANAGER["expire_silence"](alertmanager, nobody)) == "TargetNotFoundError"


@pytest.mark.parametrize("method", ALERTMANAGER)
def test_alertmanager_when_it_is_away_then_transient(method: str) -> None:
    world = FakeWorld(lambda: datetime.now(UTC))
    world.add_alertmanager(AM)
    fake = world.clients().alertmanagers[AM]
    made = create(fake, "")
    world.set_away(AM, is_away=True)
    call = ALERTMANAGER[method]
    assert [outcome(lambda port=port: call(port, made.id)) for port in (fake, SilencingAlertmanager(CLOSED))] == [
        "TransientActionError",
        "TransientActionError",
    ]


@pytest.mark.parametrize(
    ("how", "status", "expected"),
    [
        (Failure.TRANSIENT, None, "TransientActionError"),
        (Failure.PERMANENT, 400, REFUSED),
        (Failure.TIMEOUT_AFTER_EFFECT, 0, "UnknownEffectError"),
        (Failure.UNKNOWN, 0, "UnknownEffectError"),
    ],
)
@pytest.mark.parametrize("method", SCRIPTED)
def test_alertmanager_when_an_act_fails_so_then_fake_and_real_say_the_same(
    method: str, how: Failure, status: int | None, expected: str
) -> None:
    world = FakeWorld(lambda: datetime.now(UTC))
    world.add_alertmanager(AM)
    fake = world.clients().alertmanagers[AM]
    made = create(fake, "")
    world.fail(SCRIPTED[method], how)
    call = ALERTMANAGER[method]
    with answering(status or 0) as address:
        real = SilencingAlertmanager(CLOSED if status is None else f"http://{address}")
        assert [outcome(lambda port=port: call(port, made.id)) for port in (fake, real)] == [expected, expected]


# -- messages

NOTIFIER: dict[str, Call] = {"send": lambda port, to: port.send(to, title="t", body="b", timeout_s=0.5)}


@pytest.mark.parametrize(
    ("how", "status", "to", "expected"),
    [
        (None, 200, "oncall", OK),
        (None, 200, "nobody", "PermanentActionError"),
        (Failure.TRANSIENT, 500, "oncall", "TransientActionError"),
        (Failure.PERMANENT, None, "oncall", "PermanentActionError"),
        (Failure.TIMEOUT_AFTER_EFFECT, None, "oncall", "PermanentActionError"),
        (Failure.UNKNOWN, None, "oncall", "PermanentActionError"),
    ],
)
def test_notifier_when_a_message_fares_so_then_fake_and_real_say_the_same(
    how: Failure | None, status: int | None, to: str, expected: str
) -> None:
    world = FakeWorld(lambda: datetime.now(UTC))
    world.add_notify_target("oncall")
    if how is not None:
        world.fail("notify.send", how)
    with answering(status or 200) as address, socket.create_server(("127.0.0.1", 0)) as hangs:
        url = f"127.0.0.1:{hangs.getsockname()[1]}/?rto=5" if status is None else address
        real = AppriseNotifier({"oncall": [f"json://{url}"]})
        found = [outcome(lambda port=port: NOTIFIER["send"](port, to)) for port in (world.clients().notifier, real)]
    assert found == [expected, expected]


# -- Prometheus

QUERIES = {"half": "vector(0.5)", "none": "absent_series"}
PROMETHEUS_CALLS: dict[str, Call] = {"query": lambda port, it: port.query(QUERIES[it], name=it)}


@pytest.fixture(params=["in memory", pytest.param("real", marks=pytest.mark.alertmanager)])
def prometheus(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Any, Any]]:
    """One that answers, and one that is away."""
    if request.param == "in memory":
        here, away = FakeWorld(lambda: datetime.now(UTC)), FakeWorld(lambda: datetime.now(UTC))
        here.sees("half", 0.5)
        away.prometheus_away(True)
        yield here.clients().prometheus[PROMETHEUS], away.clients().prometheus[PROMETHEUS]
        return
    try:
        real = RealPrometheus(tmp_path, rules={"groups": []}, targets={}, alertmanager_urls=[])
    except FileNotFoundError as error:
        do_without("alertmanager", str(error))
    real.start()
    yield Prometheus(PROMETHEUS, real.url), Prometheus(PROMETHEUS, CLOSED)
    real.kill()


def test_prometheus_when_it_is_asked_then_fake_and_real_say_the_same(prometheus: tuple[Any, Any]) -> None:
    here, away = prometheus
    call = PROMETHEUS_CALLS["query"]
    assert (call(here, "half"), call(here, "none")) == ((0.5,), ())
    assert outcome(lambda: call(away, "half")) == "TransientActionError"


# -- nothing is missing


TABLES = {
    ports.DockerReader: DOCKER,
    ports.Docker: DOCKER,
    ports.AlertmanagerReader: ALERTMANAGER,
    ports.AlertmanagerWriter: ALERTMANAGER,
    ports.Notifier: NOTIFIER,
    ports.PrometheusReader: PROMETHEUS_CALLS,
}


def calls_of(port: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(port, inspect.isfunction) if not name.startswith("_")}


def test_ports_when_they_have_a_call_then_it_has_rows_here() -> None:
    found = {f"{port.__name__}.{call}" for port in TABLES for call in calls_of(port)}
    covered = {f"{port.__name__}.{call}" for port, table in TABLES.items() for call in table.keys() & calls_of(port)}
    assert found == covered
    bundles = {ports.Clients, ports.ReadOnlyClients, ports.LookingClients}  # what the ports are got from
    protocols = {one for _, one in inspect.getmembers(ports, inspect.isclass) if getattr(one, "_is_protocol", False)}
    without_fake = {ports.GpuReader}  # no playbook reaches it: test_nvml.py holds it to the real bindings alone
    assert protocols - {Protocol} - bundles - without_fake == {*TABLES}
    asked = (Path(__file__).parent / "test_nvml.py").read_text()
    assert [call for call in calls_of(ports.GpuReader) if f"reader.{call}(" not in asked] == []


def test_ports_when_they_act_then_each_failure_that_can_be_scripted_is_held_to_a_real_one() -> None:
    acts = (calls_of(ports.Docker) - calls_of(ports.DockerReader)) | (
        calls_of(ports.AlertmanagerWriter) - calls_of(ports.AlertmanagerReader)
    )
    assert acts == HAPPENED.keys() | SCRIPTED.keys()
    assert FAILURES.keys() == {*Failure}
