"""A real HTTP server with fixed answers, and a folder without settings from the machine that runs the tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

Routes = Mapping[tuple[str, str], tuple[int, Mapping[str, str], bytes]]


@pytest.fixture
def serving() -> Iterator[Callable[..., str]]:
    """Starts a server on loopback that answers (method, path) with (status, headers, body), 404 for any other.

    A header ``Date`` replaces the server's own. Who does not send ``authorization`` is answered 401. Gives the server's
    address.
    """
    servers: list[tuple[ThreadingHTTPServer, threading.Thread]] = []

    def start(routes: Routes, authorization: str = "") -> str:
        class Answer(BaseHTTPRequestHandler):
            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                status, headers, body = routes.get((self.command, self.path), (404, {}, b""))
                if authorization and self.headers.get("Authorization") != authorization:
                    status, headers, body = 401, {}, b""
                self.send_response_only(status)
                for name, value in {"Date": self.date_time_string(), **headers, "Content-Length": len(body)}.items():
                    self.send_header(name, str(value))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = answer

            def log_message(self, *_: Any) -> None:
                """Silent."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(autouse=True)
def site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty working directory; nothing in the environment says what to do."""
    for name in ("REMEDIATOR_URL", "REMEDIATOR_TOKEN_FILE", "SUDO_USER", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("USER", "alice")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    return tmp_path
