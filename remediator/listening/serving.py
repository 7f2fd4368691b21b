"""uvicorn as every server here wants it.

Takes an ASGI application → gives uvicorn's configuration for it, and a server that leaves signals to who runs it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import uvicorn

from remediator.listening.address import BACKLOG
from remediator.listening.head import HeadDeadline
from remediator.listening.tls import RenewedCertificate

# Alertmanager and Prometheus keep idle connections for 5 minutes: they should be the ones to close them, or a delivery
# now and then meets a connection that closes under it. By its connection the exporter knows a scraper's rhythm, too.
_KEEP_ALIVE_S = 310


class QuietServer(uvicorn.Server):
    """uvicorn without its own signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave them to who runs it."""
        yield


def uvicorn_config(
    application: Callable[..., Awaitable[Any]], certificate: RenewedCertificate | None, *, last_answers_s: int
) -> uvicorn.Config:
    """Its configuration, loaded.

    Args:
        application: ASGI 3.
        certificate: HTTPS is served with it; None = HTTP.
        last_answers_s: seconds for answers under way at a stop.
    """
    config = uvicorn.Config(
        application,
        interface="asgi3",
        # One loop everywhere, whatever else is installed.
        loop="asyncio",
        http=HeadDeadline,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        # The peer is who connected: a header could claim anything.
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=last_answers_s,
    )
    config.load()
    config.ssl = certificate.context if certificate else None
    return config
