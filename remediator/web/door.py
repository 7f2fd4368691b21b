"""The door: reads a whole body before any thread is taken, so that no slow client can hold one.

Takes an ASGI call → Flask, called with the whole body → its answer, sent whole. It decides nothing:
what it finds wrong (too large, too slow) goes along in the environ as ``remediator.problem`` and is raised by
``auth.needs`` after the caller is known, so that every answer, count and audit event is made in one place. The body of
a stranger is thrown away while it comes: only known callers can fill memory, each at most ``max_body``. The one page
signs people in by its form, so that its bodies are kept of anybody, and are small.

Health and metrics have threads of their own: a plan that asks ten Docker engines delays no probe. A delivery needs
none: its call is a fraction of a millisecond of the interpreter's time, whoever spends it, and its commit is waited for
here, so that a batch of commits wakes one thread instead of one for each. Long bodies are decoded in a thread.

Body and answer are whole, so that Flask is called directly: a2wsgi streams both, which costs six hops between threads,
and threads that wait for an event loop which a stop may have closed. Of a2wsgi only the environ is left.

``listening.head`` does the same for headers.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from a2wsgi.wsgi import build_environ
from werkzeug.exceptions import BadRequest, ServiceUnavailable

from remediator.errors import PayloadTooLargeError, StoreUnavailableError
from remediator.web import webhook
from remediator.web.approval import MAX_FORM, is_page
from remediator.web.auth import CALLER_KEY, Authenticator, Caller

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication, WSGIEnvironment

Scope = dict[str, Any]
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

# Alertmanager sends megabytes in well under a second; its own patience ends at 10 s or later.
BODY_DEADLINE_S = 10.0
# Bodies above this are decoded in a thread, which gives way to others every few ms.
LONG_BODY = 16 * 1024
COMMIT_DEADLINE_S = 8.0
# Long deliveries, health and metrics.
QUICK_THREADS = 8
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
        self._quick = ThreadPoolExecutor(QUICK_THREADS, "web-quick")
        self._slow = ThreadPoolExecutor(API_THREADS, "web-api")
        self._committed = _Committed()
        self._reading: set[asyncio.Timeout] = set()
        self._is_closing = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        read = _BodyReader(scope, max_body=self._max_body, caller=self._authenticator.identify(_authorization(scope)))
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
        try:
            answer = await self._answer(read)
        except asyncio.CancelledError:
            # uvicorn's patience with a stop is over, and its own answer would be 500. What runs ends by itself.
            answer = _STOPPING
        closes = () if read.is_whole else ((b"connection", b"close"),)
        await send(
            {"type": "http.response.start", "status": answer.status, "headers": [*answer.headers, *closes]},
        )
        await send({"type": "http.response.body", "body": answer.body})

    async def _answer(self, read: _BodyReader) -> _Answer:
        path = "/" + read.path.strip("/")  # as Flask finds it
        threads = self._quick if path in _QUICK_PATHS else self._slow
        if path != webhook.PATH:
            return (await self._in(threads, _Call(self._flask_app, read.environ()))).answer()
        environ = {**read.environ(), webhook.COMMIT_KEY: None}
        if read.n_bytes > LONG_BODY:
            call = await self._in(threads, _Call(self._flask_app, environ))
        else:
            call = _Call(self._flask_app, environ).run()
        commit: Future[object] | None = environ[webhook.COMMIT_KEY]
        if commit is None:
            return call.answer()
        try:
            await self._committed.wait(commit)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001  whatever the commit raised, the same call again says so
            read.problem = error
            return _Call(self._flask_app, read.environ()).run().answer()
        return call.answer()

    @staticmethod
    async def _in(threads: ThreadPoolExecutor, call: _Call) -> _Call:
        return await asyncio.get_running_loop().run_in_executor(threads, call.run)

    def stop_reading(self) -> None:
        """From the event loop: bodies under way are answered with 503 now, so that a stop waits for nobody."""
        self._is_closing = True
        for deadline in self._reading:
            deadline.reschedule(0)

    def close(self) -> None:
        """Let go of the threads; those at work end by themselves."""
        for threads in (self._quick, self._slow):
            threads.shutdown(wait=False)


class _Call:
    """One call of Flask."""

    def __init__(self, flask_app: WSGIApplication, environ: WSGIEnvironment) -> None:
        self._flask_app = flask_app
        self._environ = environ
        self._status = ""
        self._headers: list[tuple[str, str]] = []
        self._written: list[bytes] = []
        self._parts: Iterable[bytes] = ()

    def run(self) -> _Call:
        """Everything but the body, which may be a generator."""
        self._parts = self._flask_app(self._environ, self._start_response)
        return self

    def answer(self) -> _Answer:
        """With the whole body."""
        try:
            body = b"".join([*self._written, *self._parts])
        finally:
            getattr(self._parts, "close", lambda: None)()
        headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in self._headers]
        if not any(name == b"content-length" for name, _ in headers):
            headers.append((b"content-length", b"%d" % len(body)))
        return _Answer(status=int(self._status[:3]), headers=tuple(headers), body=body)

    def _start_response(
        self, status: str, headers: list[tuple[str, str]], _exc_info: object = None
    ) -> Callable[..., object]:
        self._status, self._headers = status, headers
        return self._written.append


class _Committed:
    """Lets the event loop wait for commits. Those of one batch wake it once."""

    def __init__(self) -> None:
        self._done: deque[asyncio.Future[None]] = deque()
        self._is_waking = False

    async def wait(self, commit: Future[object]) -> None:
        """Until it is committed.

        Raises:
            StoreUnavailableError: it has not begun within ``COMMIT_DEADLINE_S``, and is not done any more.
            Exception: what it raised.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def tell(_: object) -> None:  # in the writer's thread, or in this one when it is done already
            self._done.append(done)
            if not self._is_waking:  # two may find it so: the second waking finds nothing
                self._is_waking = True
                with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                    loop.call_soon_threadsafe(self._wake)

        commit.add_done_callback(tell)
        # One that has begun is not cancelled by this, and waited for: whether it was kept must be known.
        late = loop.call_later(COMMIT_DEADLINE_S, commit.cancel)
        try:
            await done
        finally:
            late.cancel()
        if commit.cancelled():
            raise StoreUnavailableError(
                f"The store did not get to this in {COMMIT_DEADLINE_S:g} s: it is overloaded or its disk hangs"
            )
        commit.result()

    def _wake(self) -> None:
        self._is_waking = False  # before it looks: who comes later wakes anew
        while self._done:
            done = self._done.popleft()
            if not done.done():
                done.set_result(None)


class _BodyReader:
    """One body, read to its end or to the limit."""

    def __init__(self, scope: Scope, *, max_body: int, caller: Caller | None) -> None:
        self._scope = scope
        self.path: str = scope["path"]
        is_form = is_page(self.path)
        self._max_body = max_body = min(max_body, MAX_FORM) if is_form else max_body
        self._limit = "the form's limit" if is_form else "setting max_body"
        self._body = bytearray()
        self._caller = caller
        self._keep = is_form or caller is not None
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
        self.problem = PayloadTooLargeError(f"the body is above {self._max_body} bytes ({self._limit})")

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
        return {
            **environ,
            CALLER_KEY: self._caller,
            "remediator.problem": self.problem,
            "remediator.n_bytes": self.n_bytes,
        }


def _authorization(scope: Scope) -> str | None:
    """As WSGI gives it to Flask: several become one with commas, which fits no token."""
    values = [value.decode("latin-1") for name, value in scope["headers"] if name == b"authorization"]
    return ",".join(values) if values else None


def _content_length(scope: Scope) -> int:
    """0 when absent: then the bytes are counted as they come. The parser has refused what is no number."""
    return next((int(value) for name, value in scope["headers"] if name == b"content-length"), 0)
