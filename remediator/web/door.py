"""The door: reads a whole body before any thread is taken, so that no slow client can hold one.

Takes an ASGI call → Flask, called with the whole body in a thread pool → its answer, sent whole. It decides nothing:
what it finds wrong (too large, too slow) goes along in the environ as ``remediator.problem`` and is raised by
``auth.needs`` after the caller is known, so that every answer, count and audit event is made in one place. The body of
a stranger is thrown away while it comes: only known callers can fill memory, each at most ``max_body``.

Deliveries, health and metrics have threads of their own: a plan that asks ten Docker engines delays no alert.

One hop to a thread and one back, since body and answer are whole: a2wsgi streams both, which costs six hops, half of
the answers per second, and threads that wait for an event loop which a stop may have closed. Of
a2wsgi only the environ is left.

``HeadDeadline`` does the same for headers. uvicorn waits for those without end, and without a limit on their size.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from a2wsgi.wsgi import build_environ
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from werkzeug.exceptions import BadRequest, ServiceUnavailable

from remediator.errors import PayloadTooLargeError
from remediator.web import webhook
from remediator.web.auth import Authenticator

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication, WSGIEnvironment

Scope = dict[str, Any]
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

# Alertmanager sends megabytes in well under a second; its own patience ends at 10 s or later.
BODY_DEADLINE_S = 10.0
HEAD_DEADLINE_S = 10.0
# Ours are below 1 KiB. Proxies add cookies and tokens; the usual limit of servers is 8 to 64 KiB.
MAX_HEAD_BYTES = 64 * 1024
# Each holds a delivery for one commit, a few ms; group commit gets better with more of them, to about here.
DELIVERY_THREADS = 32
# People and scripts; each may ask Docker engines for seconds.
API_THREADS = 8

_QUICK_PATHS = frozenset({webhook.PATH, "/healthz", "/readyz", "/metrics"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


_STOPPING_BODY = b'{"error":"stopping; send it again"}\n'
_STOPPING = _Answer(
    status=503,
    headers=(
        (b"content-type", b"application/json"),
        (b"content-length", str(len(_STOPPING_BODY)).encode()),
        (b"connection", b"close"),
    ),
    body=_STOPPING_BODY,
)


class Door:
    """ASGI application before Flask."""

    def __init__(
        self,
        flask_app: WSGIApplication,
        *,
        authenticator: Authenticator,
        max_body: int,
        body_deadline_s: float = BODY_DEADLINE_S,
    ) -> None:
        self._authenticator = authenticator
        self._max_body = max_body
        self._body_deadline_s = body_deadline_s
        self._flask_app = flask_app
        self._quick = ThreadPoolExecutor(DELIVERY_THREADS, "web-delivery")
        self._slow = ThreadPoolExecutor(API_THREADS, "web-api")
        self._reading: set[asyncio.Timeout] = set()
        self._is_closing = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        read = _BodyReader(
            scope, max_body=self._max_body, keep=self._authenticator.identify(_authorization(scope)) is not None
        )
        try:
            async with asyncio.timeout(0 if self._is_closing else self._body_deadline_s) as deadline:
                self._reading.add(deadline)
                await read.all(receive)
        except TimeoutError:
            # Never 408, though that is its name: Alertmanager tries only 5xx again, and a slow network can recover.
            read.problem = ServiceUnavailable(
                "stopping; send it again"
                if self._is_closing
                else f"the body took more than {self._body_deadline_s:g} s; send it again"
            )
        finally:
            self._reading.discard(deadline)
        if read.is_disconnected:
            return
        threads = self._quick if scope["path"].rstrip("/") in _QUICK_PATHS else self._slow
        try:
            answer = await asyncio.get_running_loop().run_in_executor(threads, self._call, read.environ())
        except asyncio.CancelledError:
            # uvicorn's patience with a stop is over, and its own answer would be 500. The thread ends by itself.
            answer = _STOPPING
        closes = () if read.is_whole else ((b"connection", b"close"),)
        await send(
            {"type": "http.response.start", "status": answer.status, "headers": [*answer.headers, *closes]},
        )
        await send({"type": "http.response.body", "body": answer.body})

    def _call(self, environ: WSGIEnvironment) -> _Answer:
        """Flask's answer, in one of the threads."""
        started: list[tuple[str, list[tuple[str, str]]]] = []
        written: list[bytes] = []

        def start_response(
            status: str, headers: list[tuple[str, str]], _exc_info: object = None
        ) -> Callable[..., object]:
            started.append((status, headers))
            return written.append

        parts = self._flask_app(environ, start_response)
        try:
            body = b"".join([*written, *parts])
        finally:
            getattr(parts, "close", lambda: None)()
        status, headers = started[-1]
        return _Answer(
            status=int(status[:3]),
            headers=tuple((name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers),
            body=body,
        )

    def stop_reading(self) -> None:
        """From the event loop: bodies under way are answered with 503 now, so that a stop waits for nobody."""
        self._is_closing = True
        for deadline in self._reading:
            deadline.reschedule(0)

    def close(self) -> None:
        """Let go of the threads; those at work end by themselves."""
        for threads in (self._quick, self._slow):
            threads.shutdown(wait=False)


class _BodyReader:
    """One body, read to its end or to the limit."""

    def __init__(self, scope: Scope, *, max_body: int, keep: bool) -> None:
        self._scope = scope
        self._max_body = max_body
        self._body = bytearray()
        self._keep = keep
        self.n_bytes = 0
        self.is_whole = False
        self.is_disconnected = False
        self.problem: Exception | None = None
        if not scope["query_string"].isascii():
            self.problem = BadRequest("the query is not ASCII")
        if _content_length(scope) > max_body:
            self._refuse_size()

    async def all(self, receive: Receive) -> None:
        """Read on even when it is refused already: a client that still sends may never look at an answer."""
        while not self.is_whole:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.is_disconnected = True
                return
            part = message.get("body", b"")
            self.n_bytes += len(part)
            if self.n_bytes > self._max_body:
                self._refuse_size()
                return
            if self._keep:
                self._body += part
            self.is_whole = not message.get("more_body", False)

    def _refuse_size(self) -> None:
        self._keep = False
        self._body.clear()
        self.problem = PayloadTooLargeError(f"the body is above {self._max_body} bytes (setting max_body)")

    def environ(self) -> WSGIEnvironment:
        """The call for Flask: the length is what there is, and a body in chunks is one no more."""
        body = b"" if self.problem is not None else bytes(self._body)
        query = self._scope["query_string"]
        headers = [
            (name, value)
            for name, value in self._scope["headers"]
            if name not in (b"content-length", b"transfer-encoding")
        ]
        scope = {
            **self._scope,
            "query_string": query if query.isascii() else b"",
            "headers": [*headers, (b"content-length", str(len(body)).encode())],
        }
        environ = cast("WSGIEnvironment", build_environ(cast("Any", scope), cast("Any", io.BytesIO(body))))
        return {**environ, "remediator.problem": self.problem, "remediator.n_bytes": self.n_bytes}


class HeadDeadline(HttpToolsProtocol):
    """uvicorn's protocol with a deadline and a size limit for the head of each call."""

    head_deadline_s = HEAD_DEADLINE_S

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head_timer: asyncio.TimerHandle | None = None
        self._n_head_bytes = 0
        self._start_head_timer()

    def data_received(self, data: bytes) -> None:
        if self._head_timer is not None:
            self._n_head_bytes += len(data)
        super().data_received(data)
        if self._head_timer is not None and self._n_head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("The head of the call is too large.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._head_timer is None:
            self._start_head_timer()

    def on_headers_complete(self) -> None:
        self._stop_head_timer()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        super().connection_lost(exc)

    def _start_head_timer(self) -> None:
        self._n_head_bytes = 0
        self._head_timer = self.loop.call_later(self.head_deadline_s, self.transport.close)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


def _authorization(scope: Scope) -> str | None:
    """As WSGI gives it to Flask: several become one with commas, which fits no token."""
    values = [value.decode("latin-1") for name, value in scope["headers"] if name == b"authorization"]
    return ",".join(values) if values else None


def _content_length(scope: Scope) -> int:
    """0 when absent: then the bytes are counted as they come. The parser has refused what is no number."""
    return next((int(value) for name, value in scope["headers"] if name == b"content-length"), 0)
