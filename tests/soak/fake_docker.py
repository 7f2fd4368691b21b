"""A Docker engine on a Unix socket that does nothing but remember, and that no kill of ours touches.

A number of containers → the few calls that ``docker.restart`` makes, answered as Docker answers them. Each restart is a
line in a file of its own, synced before the container counts as started: what the engine under test did is told by
somebody else than the engine under test.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import threading
import time
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from typing import Any

_CALL = re.compile(r"/v1\.41/containers/([^/?]+)/(json|restart)\b")

_STOPS_S = (0.0, 0.4)
"""How long a container takes to stop: long enough for kills in the middle of it."""


class _Server(ThreadingMixIn, UnixStreamServer):
    daemon_threads = True
    request_queue_size = 128


class FakeDocker:
    """Listens until ``close``.

    Attributes:
        names: of its containers.
        acts: the file with what was done, JSON Lines: ``container``, ``before`` and ``after`` (its StartedAt).
    """

    def __init__(self, folder: Path, n_containers: int, seed: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.url = f"unix://{folder / 'docker.sock'}"
        self.acts = folder / "acts.jsonl"
        self.names = [f"trainer-{number}" for number in range(n_containers)]
        self._random = random.Random(seed)
        self._started = {name: _now() for name in self.names}
        self.first_start = dict(self._started)
        self._locks = {name: threading.Lock() for name in self.names}
        self._file_lock = threading.Lock()
        self._server = _Server(str(folder / "docker.sock"), self._answering())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def done(self, name: str) -> list[dict[str, str]]:
        """What was done to a container, oldest first."""
        if not self.acts.exists():
            return []
        return [act for act in map(json.loads, self.acts.read_text().splitlines()) if act["container"] == name]

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _restart(self, name: str) -> None:
        with self._locks[name]:
            time.sleep(self._random.uniform(*_STOPS_S))
            act = {"container": name, "before": self._started[name], "after": _now()}
            with self._file_lock, self.acts.open("a") as file:
                file.write(json.dumps(act) + "\n")
                file.flush()
                os.fsync(file.fileno())
            self._started[name] = act["after"]

    def _container(self, name: str) -> dict[str, Any]:
        return {
            "Id": _id_of(name),
            "Name": f"/{name}",
            "State": {
                "Status": "running",
                "Pid": 4242,
                "StartedAt": self._started[name],
                "FinishedAt": "0001-01-01T00:00:00Z",
                "ExitCode": 0,
            },
            "Config": {"Labels": {}, "StopTimeout": None},
            "HostConfig": {"AutoRemove": False},
        }

    def _answering(self) -> type[BaseHTTPRequestHandler]:
        outer = self
        by_id = {_id_of(name): name for name in self.names} | {name: name for name in self.names}

        class Answering(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                found = _CALL.match(self.path)
                if self.path in ("/_ping", "/version", "/v1.41/version"):
                    self._say(200, {"Version": "none", "ApiVersion": "1.41"})
                elif found is not None and found[1] in by_id:
                    self._say(200, outer._container(by_id[found[1]]))
                else:
                    self._say(404, {"message": "No such container"})

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                found = _CALL.match(self.path)
                if found is None or found[1] not in by_id or found[2] != "restart":
                    self._say(404, {"message": "No such container"})
                    return
                outer._restart(by_id[found[1]])
                self._say(204, None)

            def _say(self, status: int, what: object) -> None:
                body = b"" if what is None else json.dumps(what).encode()
                self.send_response(status)
                self.send_header("Api-Version", "1.41")
                self.send_header("Content-Type", "application/json")
                if status != 204:
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except (BrokenPipeError, ConnectionResetError):  # whoever asked was killed
                    self.close_connection = True

            def address_string(self) -> str:
                return "local"

            def log_message(self, format: str, *args: object) -> None:
                """Says nothing."""

        return Answering


def _id_of(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def _now() -> str:
    """Now, as Docker writes it, and never the same twice."""
    time.sleep(0.000_001)
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "") + "000Z"
