"""Shows the newest samples over HTTP: ``/metrics``, ``/healthz``, ``/readyz``.

Takes a ``Sampler`` → serves until it is stopped. All is answered on one event loop from what is in memory: a page is
made in milliseconds, no client holds a thread, and nothing here can wait for the driver. Bodies are not read.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from prometheus_client import ProcessCollector
from prometheus_client.exposition import choose_encoder, generate_latest
from prometheus_client.metrics_core import Metric

from remediator.exporter.collect import families
from remediator.exporter.sampler import Sampler
from remediator.listening.address import address_of, bind, raise_file_limit
from remediator.listening.loop_errors import LoopErrors
from remediator.listening.serving import QuietServer, uvicorn_config
from remediator.listening.tls import RenewedCertificate
from remediator.telemetry import METRICS_CONTENT_TYPE, get_logger

_log = get_logger(__name__)

Scope = dict[str, Any]
Send = Callable[[dict[str, Any]], Awaitable[None]]

_LAST_ANSWERS_S: Final = 1
"""For answers under way at a stop: they are in memory already."""

_GZIP_LEVEL: Final = 1
"""Half of a millisecond for a page, and a ninth of its size; the highest level takes four times as long for a tenth."""

_TEXT: Final = "text/plain; charset=utf-8"


class _Families:
    """What ``generate_latest`` asks of a registry: every metric, as it is now."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    def collect(self) -> Iterable[Metric]:
        return families(self._sampler.snapshot())


def text_of(sampler: Sampler) -> bytes:
    """The GPUs' metrics alone, as text for people and ``promtool``."""
    return generate_latest(_Families(sampler))


class Pages:
    """ASGI application: one page for each path."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._process = ProcessCollector(registry=None)
        self._pages = {"/": _index, "/metrics": self._metrics, "/healthz": _healthz, "/readyz": self._readyz}

    def collect(self) -> Iterator[Metric]:
        """Every metric now, this process' own too: what ``generate_latest`` asks of a registry."""
        yield from _Families(self._sampler).collect()
        yield from self._process.collect()

    async def __call__(self, scope: Scope, receive: object, send: Send) -> None:
        """One call, answered at once."""
        del receive
        page = self._pages.get(scope["path"])
        if page is None:
            status, content_type, body = 404, _TEXT, b"there is /metrics, /healthz and /readyz\n"
        elif scope["method"] not in ("GET", "HEAD"):
            status, content_type, body = 405, _TEXT, b"only GET\n"
        else:
            status, content_type, body = page(scope)
        headers = [(b"content-type", content_type.encode("latin-1")), (b"vary", b"accept, accept-encoding")]
        if status == 200 and _takes_gzip(scope):
            body = gzip.compress(body, _GZIP_LEVEL)
            headers.append((b"content-encoding", b"gzip"))
        headers.append((b"content-length", b"%d" % len(body)))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _metrics(self, scope: Scope) -> tuple[int, str, bytes]:
        self._sampler.scraped(scope["client"])
        try:
            encode, content_type = choose_encoder(_header(scope, b"accept"))
        except (ValueError, TypeError):  # what it raises for a version that is no number
            encode, content_type = generate_latest, METRICS_CONTENT_TYPE
        return 200, content_type, encode(self)

    def _readyz(self, _scope: Scope) -> tuple[int, str, bytes]:
        problem = self._sampler.problem
        return (503, _TEXT, f"{problem}\n".encode()) if problem else (200, _TEXT, b"ready\n")


def _healthz(_scope: Scope) -> tuple[int, str, bytes]:
    return 200, _TEXT, b"ok\n"


def _index(_scope: Scope) -> tuple[int, str, bytes]:
    return 200, _TEXT, b"remediator exporter: /metrics, /healthz, /readyz\n"


class Server:
    """A bound address and the pages on it.

    Attributes:
        address: "127.0.0.1:9096".
        url: with its scheme, without a slash at the end.
    """

    def __init__(
        self,
        sampler: Sampler,
        *,
        host: str,
        port: int,
        tls_cert: Path | None = None,
        tls_key: Path | None = None,
        tls_client_ca: Path | None = None,
    ) -> None:
        """Bind the address; nothing is answered before ``run``.

        Args:
            host: "" = every address of this host.
            port: 0 = any free one.
            tls_cert, tls_key: PEM files, both or neither; renewed ones are taken up.
            tls_client_ca: callers must show a certificate of this CA; None = they need none.

        Raises:
            SettingsError: the address cannot be bound, or the TLS files cannot be used.
        """
        certificate = RenewedCertificate.of(tls_cert, tls_key, tls_client_ca)
        self._server = QuietServer(uvicorn_config(Pages(sampler), certificate, last_answers_s=_LAST_ANSWERS_S))
        self._socket = bind(host, port)
        self._loop: asyncio.AbstractEventLoop | None = None
        self.address = address_of(self._socket)
        self.url = f"{'https' if certificate else 'http'}://{self.address}"

    def run(self, *, signals: Iterable[int] = ()) -> None:
        """Answer until ``stop``, or one of these signals; in the main thread where there are any."""
        raise_file_limit()
        try:
            asyncio.run(self._serve(signals))
        finally:
            self._socket.close()

    def stop(self) -> None:
        """From any thread, while it runs."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stop_now)

    async def _serve(self, signals: Iterable[int]) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(LoopErrors())
        for number in signals:
            self._loop.add_signal_handler(number, self._stop_now)
        _log.info("listening", url=self.url)
        await self._server.serve(sockets=[self._socket])

    def _stop_now(self) -> None:
        self._server.force_exit = self._server.should_exit  # asked twice: nobody is waited for
        self._server.should_exit = True


def _header(scope: Scope, wanted: bytes) -> str:
    return ",".join(value.decode("latin-1") for name, value in scope["headers"] if name == wanted)


def _takes_gzip(scope: Scope) -> bool:
    """Whether the caller said so: ``gzip``, ``gzip;q=0.5``, and not ``gzip;q=0``."""
    for part in _header(scope, b"accept-encoding").split(","):
        coding, _, quality = part.replace(" ", "").lower().partition(";q=")
        if coding == "gzip":
            return quality.rstrip("0.") != "" if quality else True
    return False
