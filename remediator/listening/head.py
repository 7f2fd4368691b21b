"""The head of each call within a deadline and a size: uvicorn waits for it without end, whatever its size.

Takes bytes of a connection → hands them to uvicorn's own protocol, or closes. It holds no thread, and decides nothing.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_DEADLINE_S = 10.0
# Ours are below 1 KiB. Proxies add cookies and tokens; the usual limit of servers is 8 to 64 KiB.
MAX_HEAD_BYTES = 64 * 1024


class HeadDeadline(HttpToolsProtocol):
    """uvicorn's protocol with a deadline and a size limit for the head of each call, one call at a time."""

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
        if self.cycle is not None and not self.cycle.response_complete:
            # uvicorn would queue what comes before the last answer, thousands of calls with each read: 20 strangers
            # cost 400 MB and 18 s of everybody's time. Alertmanager, browsers and proxies wait for the answer.
            self.transport.abort()
            raise ValueError("a call before the answer to the last one")
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
