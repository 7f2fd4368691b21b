"""The two ends of a test's world that we play ourselves, on real sockets: a webhook receiver and a metrics page."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One POST as it came in."""

    at: datetime
    path: str
    headers: Mapping[str, str]
    body: bytes
    answered: int

    @property
    def payload(self) -> dict[str, Any]:
        """The body as JSON."""
        parsed: dict[str, Any] = json.loads(self.body)
        return parsed


class _Server:
    """An HTTP server on a free loopback port, in a thread, until ``close``."""

    def __init__(self, answering: type[BaseHTTPRequestHandler]) -> None:
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), answering)
        self._http.daemon_threads = True
        self.address = f"127.0.0.1:{self._http.server_port}"
        self.url = f"http://{self.address}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class WebhookReceiver(_Server):
    """Keeps every POST and answers as told: set ``status`` and ``delay_s`` to be a receiver in trouble."""

    def __init__(self) -> None:
        self.status = 200
        self.delay_s = 0.0
        self.received: list[Received] = []
        outer = self

        class Answering(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = outer.status
                outer.received.append(
                    Received(
                        at=datetime.now(UTC), path=self.path, headers=dict(self.headers), body=body, answered=status
                    )
                )
                time.sleep(outer.delay_s)
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Says nothing: what came is in ``received``."""

        super().__init__(Answering)

    def seen(self, **labels: str) -> list[str]:
        """The statuses (``firing``, ``resolved``) in which alerts with these labels came, oldest first."""
        return [
            alert["status"]
            for received in self.received
            for alert in received.payload["alerts"]
            if labels.items() <= alert["labels"].items()
        ]


class MetricsPage(_Server):
    """A Prometheus target whose page is ``text``: set it to move the world."""

    def __init__(self, text: str = "") -> None:
        self.text = text
        outer = self

        class Answering(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page = outer.text.encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(page)))
                self.end_headers()
                self.wfile.write(page)

            def log_message(self, format: str, *args: object) -> None:
                """Says nothing."""

        super().__init__(Answering)
