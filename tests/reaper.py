"""Kills an engine in the middle of what it does, and starts the next one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from remediator.errors import StoreUnavailableError


class Killed(BaseException):
    """The process is gone: nothing may catch it."""


class Reaper:
    """Kills at the n-th of the calls that it stands before (or behind)."""

    def __init__(self, error: Callable[[], BaseException] = Killed) -> None:
        self.error = error
        self.left = 0
        self.has_killed = False
        self.again_after = self.again = 0

    def arm(self, n: int) -> None:
        self.left, self.has_killed, self.again = n, False, self.again_after

    def pass_by(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.has_killed = True
            self.left, self.again = self.again, 0
            raise self.error()

    def before(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def killed_before(*args: Any, **more: Any) -> Any:
            self.pass_by()
            return call(*args, **more)

        return killed_before

    def behind(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def killed_behind(*args: Any, **more: Any) -> Any:
            answer = call(*args, **more)
            self.pass_by()
            return answer

        return killed_behind


def begin(bench: Any) -> None:
    """Start an engine; where the store is away, there is none afterwards."""
    try:
        bench.start()
    except StoreUnavailableError:
        bench.stop()
        raise


def live(bench: Any, do: Callable[[], Any]) -> None:
    """Do it; where the engine is killed over it, start the next one, and do it again as a sender would."""
    for _ in range(3):
        try:
            if bench.app is None:
                begin(bench)
                bench.engine.work()
            do()
        except Killed:
            bench.stop()
        except StoreUnavailableError:
            bench.clock.moment += timedelta(seconds=10)
        else:
            return
