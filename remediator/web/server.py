"""Runs the engine behind HTTP: bind, start, serve, stop.

Takes a wired ``App`` → returns once it has stopped. The address is bound first, so that a port in use is said before
anything starts; the engine starts before the first call is taken. SIGTERM and SIGINT stop: nothing new is taken (503,
then no connection), what is being answered is finished, then the engine stops. SIGHUP loads the playbooks again.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
from types import TracebackType
from typing import TYPE_CHECKING

from remediator.errors import StoreError
from remediator.listening.address import address_of, bind, raise_file_limit
from remediator.listening.loop_errors import LoopErrors
from remediator.listening.serving import QuietServer, uvicorn_config
from remediator.listening.tls import RenewedCertificate
from remediator.telemetry import get_logger
from remediator.web.app import create_app
from remediator.web.auth import Authenticator
from remediator.web.door import Door

if TYPE_CHECKING:
    from remediator.app import App

_log = get_logger(__name__)

# For answers under way at a stop; a commit takes milliseconds, and the engine's own grace comes after it.
_LAST_ANSWERS_S = 5
# Python looks for garbage in circles after every 700 new objects, which one delivery makes, and holds everything up: at
# 300 deliveries a second the slowest hundredth then waits 70 ms for its answer, and so 10 ms. Nearly all garbage goes
# without it.
COLLECT_AFTER = (20_000, 20, 20)


def serve(app: App) -> None:
    """Start the engine, serve until SIGTERM or SIGINT, stop it. For the main thread.

    Raises:
        SettingsError: the address cannot be bound, or a token or TLS file cannot be read.
        StoreError: from ``app.start``.
    """
    with _Listening(app, app.settings.listen_port) as listening:
        raise_file_limit()
        gc.set_threshold(*COLLECT_AFTER)
        app.start()
        try:
            asyncio.run(listening.run(with_signals=True))
        finally:
            app.stop()


def start_in_thread(app: App, port: int = 0) -> Running:
    """Start the engine and serve it from a thread, without signals.

    Args:
        port: 0 = any free one, whatever the settings say.

    Returns:
        Once it answers.

    Raises:
        As ``serve``.
    """
    return Running(app, port)


class Running:
    """An engine that serves from a thread; a context manager.

    Attributes:
        address: "127.0.0.1:43121".
        url: with its scheme, without a slash at the end.
    """

    def __init__(self, app: App, port: int) -> None:
        self._app = app
        self._listening = _Listening(app, port)
        self.address = self._listening.address
        self.url = f"{self._listening.scheme}://{self.address}"
        try:
            app.start()
        except BaseException:
            self._listening.close()
            raise
        self._thread = threading.Thread(target=lambda: asyncio.run(self._listening.run()), name="web")
        self._thread.start()
        self._listening.is_running.wait()

    def stop(self) -> None:
        """As SIGTERM does."""
        self._listening.stop()
        self._thread.join()
        self._listening.close()
        self._app.stop()

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class _Listening:
    """A bound address and the server on it."""

    def __init__(self, app: App, port: int) -> None:
        settings = app.settings
        self._app = app
        self._draining = threading.Event()
        authenticator = Authenticator(settings)
        flask_app = create_app(app, authenticator=authenticator, draining=self._draining)
        self._door = Door(flask_app, authenticator=authenticator, max_body=settings.max_body)
        certificate = RenewedCertificate.of(settings.tls_cert, settings.tls_key, settings.tls_client_ca)
        self._server = QuietServer(uvicorn_config(self._door, certificate, last_answers_s=_LAST_ANSWERS_S))
        self._socket = bind(settings.listen_host, port)
        self._loop: asyncio.AbstractEventLoop | None = None
        self.is_running = threading.Event()
        self.address = address_of(self._socket)
        self.scheme = "https" if settings.tls_cert else "http"
        self._has_auth = not authenticator.is_open

    async def run(self, *, with_signals: bool = False) -> None:
        """Serve until ``stop``."""
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(LoopErrors())
        if with_signals:
            for number in (signal.SIGTERM, signal.SIGINT):
                self._loop.add_signal_handler(number, self._stop_now, signal.Signals(number).name)
            self._loop.add_signal_handler(signal.SIGHUP, self._reload)
        _log.info("listening", address=self.address, scheme=self.scheme)
        if not self._has_auth:
            _log.warning("no token is configured: everybody on this machine may do everything; see the setting auth")
        self._loop.call_soon(self.is_running.set)
        await self._server.serve(sockets=[self._socket])

    def stop(self) -> None:
        """From any thread: take nothing more, finish what is being answered."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._stop_now, "stop")

    def _stop_now(self, cause: str) -> None:
        if self._server.should_exit:
            self._server.force_exit = True
            return
        _log.info("stopping", cause=cause)
        self._draining.set()
        self._door.stop_reading()
        self._server.should_exit = True

    def _reload(self) -> None:
        # In a thread: it reads files. What it finds, the engine logs, counts and audits.
        def reload() -> None:
            try:
                self._app.reload("SIGHUP")
            except StoreError as error:
                _log.error("playbooks not reloaded: the store is away", problem=str(error))

        threading.Thread(target=reload, name="reload", daemon=True).start()

    def close(self) -> None:
        self._socket.close()
        self._door.close()

    def __enter__(self) -> _Listening:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()
