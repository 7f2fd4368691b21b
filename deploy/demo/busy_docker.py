"""A Docker engine that is busy once: the demo's failure on purpose, on the real path.

Takes HTTP on a Unix socket → hands it to the real engine's socket and its answer back, but for the first request to
restart a container, which is answered with 429 and not handed on. What calls it sees a real engine with a real failure.
"""

from __future__ import annotations

import json
import re
import socket
import threading
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from types import TracebackType
from typing import Self

RESTART = re.compile(r"/(v[\d.]+/)?containers/[^/]+/restart\b")
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}


class _EngineConnection(HTTPConnection):
    def __init__(self, socket_path: Path) -> None:
        # The name goes into the Host header alone. A restart waits for the container to stop, hence the time-out.
        super().__init__("docker", timeout=120)
        self._socket_path = socket_path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._socket_path))


class _UnixHTTPServer(ThreadingMixIn, UnixStreamServer):
    daemon_threads = True


class BusyDocker:
    """Listens on ``listen`` and hands on to ``engine``; ``n_refused`` counts what it refused (at most 1)."""

    def __init__(self, engine: Path, listen: Path) -> None:
        self.n_refused = 0
        self._lock = threading.Lock()
        outer = self

        class Answering(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def hand_on(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if self.command == "POST" and RESTART.match(self.path) and outer._refuses():
                    self.answer(429, {"Content-Type": "application/json"}, json.dumps({"message": "too busy"}).encode())
                    return
                connection = _EngineConnection(engine)
                try:
                    connection.request(self.command, self.path, body or None, dict(self.headers))
                    answer = connection.getresponse()
                    headers = {name: value for name, value in answer.getheaders() if name.lower() not in HOP_BY_HOP}
                    status, text = answer.status, answer.read()
                except OSError as error:
                    status, headers, text = 502, {}, str(error).encode()
                finally:
                    connection.close()
                self.answer(status, headers, text)

            def answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                if status != 204:
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                # Who has read the head of a 204 may have gone, and writing nothing to nobody is an error too.
                if body:
                    self.wfile.write(body)

            def address_string(self) -> str:
                """A Unix socket's peer has no address."""
                return "local"

            def log_message(self, format: str, *args: object) -> None:
                """Says nothing."""

            do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = hand_on

        self._server = _UnixHTTPServer(str(listen), Answering)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)
        self._thread.start()

    def _refuses(self) -> bool:
        with self._lock:
            if self.n_refused:
                return False
            self.n_refused += 1
            return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
