"""A Docker engine that fails on purpose: a Unix socket that hands on to the real one, but for the first restarts.

A status and a number → the first so many ``POST …/restart`` of each container are answered with that status and not
handed on; everything else is the real engine's answer.
"""

from __future__ import annotations

import re
import socket
import threading
from collections import Counter
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer

RESTART = re.compile(r"/(?:v[\d.]+/)?containers/([^/]+)/restart\b")
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}


class _ToEngine(HTTPConnection):
    def __init__(self, socket_path: str) -> None:
        super().__init__("docker", timeout=120)
        self._socket_path = socket_path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._socket_path)


class _Server(ThreadingMixIn, UnixStreamServer):
    daemon_threads = True


class BusyProxy:
    """Listens on ``listen`` until ``close``.

    Attributes:
        refused: container id → how many restarts were refused.
    """

    def __init__(self, engine_url: str, listen: Path, *, status: int, n_refused: int = 1) -> None:
        self.refused: Counter[str] = Counter()
        self.url = f"unix://{listen}"
        lock = threading.Lock()
        outer = self

        class Answering(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def hand_on(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                found = RESTART.match(self.path)
                if found is not None:
                    with lock:
                        is_refused = outer.refused[found[1]] < n_refused
                        outer.refused[found[1]] += is_refused
                    if is_refused:
                        self.answer(status, {"Content-Type": "application/json"}, b'{"message": "too busy"}')
                        return
                connection = _ToEngine(engine_url.removeprefix("unix://"))
                try:
                    connection.request(self.command, self.path, body or None, dict(self.headers))
                    answer = connection.getresponse()
                    headers = {name: value for name, value in answer.getheaders() if name.lower() not in HOP_BY_HOP}
                    self.answer(answer.status, headers, answer.read())
                finally:
                    connection.close()

            def answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                if status != 204:
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = hand_on

            def address_string(self) -> str:
                """A Unix socket's peer has no address."""
                return "local"

            def log_message(self, format: str, *args: object) -> None:
                """Says nothing."""

        self._server = _Server(str(listen), Answering)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
