"""``remediator plan``, the real command, before a real Docker engine: it looks, and changes nothing.

Three witnesses: the engine's own event stream, a relay before its socket that notes each request, and the files of the
site. Prometheus, Alertmanager and the receiver of messages are one server that notes what it is asked.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from conftest_docker import Trainer
from realparts.docker_engine import DockerEngine
from realparts.process import wait_until
from remediator.actions import REGISTRY
from remediator.clients.dockerd import Dockerd
from remediator.clients.fake import FakeWorld
from remediator.clients.ports import Clients, DockerHost
from remediator.store.engine import open_store

pytestmark = pytest.mark.docker

REQUEST = re.compile(rb"^([A-Z]+) (\S+) HTTP/1\.[01]\r?$", re.MULTILINE)

PLAYBOOK = """
playbook: restart
match: [alertname = Leak]
guard: {require: [{name: held, query: "held{name='{{ labels.name }}'}", above: 0}]}
steps:
  - {name: quiet, action: alertmanager.silence, params: {duration: 1h}}
  - {name: save, action: docker.signal, params: {container: "{{ labels.name }}", signal: SIGUSR1}}
  - {name: slow, action: docker.limit, params: {container: "{{ labels.name }}", cpus: 1}}
  - {name: restart, action: docker.restart, params: {container: "{{ labels.name }}"}}
  - {name: tell, action: notify.send, params: {to: [oncall], title: restarted, body: again}}
verify: [{name: helped, query: ratio, below: 2, within: 5m}]
escalate: {to: [oncall]}
"""


class Relay:
    """A socket before a Docker engine's, which notes the method and path of each request that passes."""

    def __init__(self, engine: DockerEngine, folder: Path) -> None:
        self.requests: list[tuple[str, str]] = []
        self._engine = engine.url.removeprefix("unix://")
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(folder / "relay.sock"))
        self._socket.listen()
        self.url = f"unix://{folder / 'relay.sock'}"
        self._threads = [threading.Thread(target=self._serve)]
        self._threads[0].start()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)  # wakes who accepts
        for thread in self._threads:
            thread.join()
        self._socket.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                engine = socket.socket(socket.AF_UNIX)
                engine.connect(self._engine)
                ends = ((client, engine, True), (engine, client, False))
                made = [threading.Thread(target=self._pass_on, args=end) for end in ends]
                for thread in made:
                    thread.start()
                self._threads += made

    def _pass_on(self, come_from: socket.socket, to: socket.socket, is_asked: bool) -> None:
        seen = b""
        with contextlib.suppress(OSError):
            while data := come_from.recv(65536):
                if is_asked:  # heads are far smaller than what one read takes, and bodies are JSON
                    self.requests += [(method.decode(), path.decode()) for method, path in REQUEST.findall(data)]
                    seen += data
                to.sendall(data)
        with contextlib.suppress(OSError):
            to.shutdown(socket.SHUT_WR)
        if not is_asked:  # the answer is whole
            come_from.close()
            to.close()


@pytest.fixture
def relay(docker_engine: DockerEngine) -> Iterator[Relay]:
    if not docker_engine.url.startswith("unix://"):
        pytest.skip("a relay is put before a Unix socket")
    with tempfile.TemporaryDirectory(prefix="relay-") as folder:  # its path must be short
        made = Relay(docker_engine, Path(folder))
        yield made
        made.close()


@pytest.fixture
def others() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Prometheus, Alertmanager and a receiver of messages at one address, and what they were asked."""
    asked: list[tuple[str, str]] = []
    vector = {"resultType": "vector", "result": [{"metric": {}, "value": [0, "1"]}]}
    said = {
        "/api/v1/query": {"status": "success", "data": vector},
        "/api/v2/status": {"uptime": "2026-01-01T00:00:00Z"},
    }

    class Answering(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            path = self.path.partition("?")[0]
            asked.append((self.command, path))
            body = json.dumps(said.get(path, [])).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_DELETE = answer

        def log_message(self, *_: Any) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield f"127.0.0.1:{server.server_port}", asked
    server.shutdown()
    thread.join()
    server.server_close()


class Events:
    """A container's events, from a stream that is open."""

    def __init__(self, engine: DockerEngine, container: str) -> None:
        self.seen: list[str] = []
        self._stream = engine.client.events(decode=True, filters={"container": container})
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        self._container = engine.client.containers.get(container)

    def _read(self) -> None:
        with contextlib.suppress(Exception):  # whatever a stream that is closed says
            for event in self._stream:
                self.seen.append(str(event["Action"]))

    def until_marked(self) -> list[str]:
        """What has been seen; the stream is known to be alive, since it shows a mark that is made now."""
        for name in (f"{self._container.name}-marked", str(self._container.name)):
            self._container.rename(name)
        wait_until(lambda: "rename" in self.seen, "the event stream shows the mark", 60)
        self._stream.close()
        return self.seen[: self.seen.index("rename")]


def files_of(folder: Path) -> dict[str, str]:
    """File → hash; without what SQLite's readers lay beside a store: an empty WAL, and the memory that they share."""
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.stat().st_size and not file.name.endswith("-shm")
    }


def lay_out(site: Path, docker_url: str, others: str, container: str) -> None:
    """Settings with everything that could be acted on, a store, playbooks, and a delivery."""
    (site / "playbooks").mkdir()
    (site / "playbooks" / "restart.yaml").write_text(PLAYBOOK)
    (site / "new").mkdir()
    (site / "new" / "restart.yaml").write_text(PLAYBOOK.replace("cpus: 1", "cpus: 2"))
    (site / "remediator.toml").write_text(
        f"""
store_url = "sqlite:///{site}/r.db"
playbooks = ["{site}/playbooks"]
docker.hosts.gpu-07.url = "{docker_url}"
notify.oncall.urls = ["json://{others}/message"]
prometheus.servers.main.url = "http://{others}"
alertmanager.urls = ["http://{others}"]
"""
    )
    open_store(f"sqlite:///{site}/r.db").close()
    alert = {"status": "firing", "labels": {"alertname": "Leak", "hostname": "gpu-07", "name": container}}
    (site / "delivery.json").write_text(json.dumps({"version": "4", "alerts": [alert]}))


@pytest.mark.parametrize(
    ("options", "code", "shows"),
    [
        pytest.param([], 0, "now running", id="now"),
        pytest.param(
            ["--playbooks", "new", "--diff", "--at", "1h"],
            1,
            "steps.slow.params.cpus: 1 → 2",
            id="what others would have changed an hour ago",
        ),
    ],
)
def test_plan_when_it_would_restart_a_container_then_three_witnesses_see_no_write(
    options: list[str],
    code: int,
    shows: str,
    docker_engine: DockerEngine,
    trainer: Trainer,
    relay: Relay,
    others: tuple[str, list[tuple[str, str]]],
    site: Path,
) -> None:
    container = trainer()
    lay_out(site, relay.url, others[0], container)
    before, was = files_of(site), docker_engine.client.api.inspect_container(container)
    events = Events(docker_engine, container)

    done = subprocess.run(
        [sys.executable, "-m", "remediator", "plan", "delivery.json", *options],
        cwd=site, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (code, "")
    assert shows in done.stdout
    assert events.until_marked() == []
    now = docker_engine.client.api.inspect_container(container)
    assert now == was
    assert ("GET", f"/containers/{container}/json") in {
        (method, re.sub(r"^/v[0-9.]+", "", path)) for method, path in relay.requests
    }
    assert {method for method, _ in relay.requests} == {"GET"}
    # A query is sent as a form, which may be long; it changes nothing.
    assert set(others[1]) - {("POST", "/api/v1/query")} <= {("GET", "/api/v2/silences"), ("GET", "/api/v2/alerts")}
    assert files_of(site) == before


def test_witnesses_when_an_action_is_applied_then_each_of_them_sees_it(
    docker_engine: DockerEngine, trainer: Trainer, relay: Relay
) -> None:
    container = trainer()
    was = docker_engine.client.api.inspect_container(container)
    events = Events(docker_engine, container)
    restart = REGISTRY["docker.restart"]
    params = restart.params_model.model_validate({"host": "gpu-07", "container": container, "stop_timeout": "30s"})
    notifier = FakeWorld(lambda: pytest.fail("no message is sent here")).clients().notifier
    clients = Clients(dockers={"gpu-07": Dockerd(DockerHost(name="gpu-07", url=relay.url))}, notifier=notifier)

    restart.apply(params, clients, restart.observe(params, clients), timedelta(minutes=5))

    assert {"die", "start", "restart"} <= set(events.until_marked())
    now = docker_engine.client.api.inspect_container(container)
    assert now["State"]["StartedAt"] != was["State"]["StartedAt"]
    assert [method for method, path in relay.requests if path.endswith("restart") or "/restart?" in path] == ["POST"]
