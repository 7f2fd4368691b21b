"""What asyncio itself complains of, said so that people can read it.

Without a free file descriptor it fails to accept as often as the listening socket has places, each second, and logs
each failure with its traceback: thousands of lines a second, which would fill the disk that the store needs.
"""

from __future__ import annotations

import asyncio
import errno
from typing import Any, Final

from remediator.telemetry import get_logger

_log = get_logger(__name__)

SAY_AGAIN_S: Final = 10.0
"""How long the same trouble is not logged again."""

_USED_UP: Final = {
    errno.EMFILE: "no file descriptor is left: see who holds connections (ss -tnp); LimitNOFILE raises it",
    errno.ENFILE: "the machine has no file descriptor left: see who holds them (lsof); sysctl fs.file-max raises it",
    errno.ENOBUFS: "the machine has no memory left for sockets",
    errno.ENOMEM: "the machine has no memory left",
}


class LoopErrors:
    """An exception handler for an event loop; ``loop.set_exception_handler`` takes it."""

    def __init__(self) -> None:
        self._quiet_until: dict[int, float] = {}

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log one complaint; those about a resource that is used up once in ``SAY_AGAIN_S`` seconds."""
        error = context.get("exception")
        number = error.errno if isinstance(error, OSError) else None
        if number not in _USED_UP:
            loop.default_exception_handler(context)
            return
        if loop.time() >= self._quiet_until.get(number, 0.0):
            self._quiet_until[number] = loop.time() + SAY_AGAIN_S
            _log.error("no connection can be taken", problem=f"{_USED_UP[number]}; it goes on by itself")
