"""A loop that cannot accept is heard once in a while; whatever else it says, each time."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from structlog.testing import capture_logs

from remediator.listening.loop_errors import SAY_AGAIN_S, LoopErrors


class Loop:
    """As much of an event loop as is asked."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.handed_on: list[dict[str, Any]] = []

    def time(self) -> float:
        return self.now

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.handed_on.append(context)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
def test_complaint_when_a_resource_is_used_up_then_it_is_logged_once_in_a_while(number: int) -> None:
    loop, complain = Loop(), LoopErrors()
    with capture_logs() as logs:
        for moment in (0.0, 0.1, SAY_AGAIN_S - 0.1, SAY_AGAIN_S):
            loop.now = 1000.0 + moment
            for _ in range(100):
                complain(loop, {"message": "socket.accept() out of", "exception": OSError(number, "")})  # type: ignore[arg-type]
    assert [line["event"] for line in logs] == ["no connection can be taken"] * 2
    assert loop.handed_on == []


@pytest.mark.parametrize(
    "context", [{"message": "?"}, {"exception": OSError(errno.EIO, "")}, {"exception": KeyError()}]
)
def test_complaint_when_it_is_another_then_the_loop_says_it_as_ever(context: dict[str, Any]) -> None:
    loop, complain = Loop(), LoopErrors()
    for _ in range(2):
        complain(loop, context)  # type: ignore[arg-type]
    assert loop.handed_on == [context, context]
