"""Kills an engine in the middle of what it does, and starts the next one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from remediator.clients.fake import FakeWorld
from remediator.errors import StoreUnavailableError
from remediator.store.engine import Store


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


ANYWHERE = pytest.mark.parametrize(
    ("where", "first", "step"),
    # What is behind one write is before the next: each is passed on one side of it.
    [("before a write", 1, 2), ("behind a write", 2, 2), ("before an act", 1, 1), ("behind an act", 1, 1)],
)
"""For ``kill_at_each``: all places of a story in which an engine can be killed."""


def kill_at_each(
    where: str,
    first: int,
    step: int,
    monkeypatch: pytest.MonkeyPatch,
    new_bench: Callable[[Path], Any],
    folder: Path,
    play: Callable[[Any], None],
    check: Callable[[Any], None],
) -> None:
    """Play a story again and again, killed one place later each time, until it ends without a kill; check each end."""
    reaper = Reaper()
    wrap = reaper.before if where.startswith("before") else reaper.behind
    if where.endswith("write"):
        monkeypatch.setattr(Store, "write", wrap(Store.write))
    else:
        monkeypatch.setattr(FakeWorld, "act", wrap(FakeWorld.act))
        monkeypatch.setattr(FakeWorld, "tell", wrap(FakeWorld.tell))
    n = first - step
    while n < first or reaper.has_killed:
        n += step
        (folder / str(n)).mkdir()
        bench = new_bench(folder / str(n))
        reaper.arm(n)
        play(bench)
        reaper.left = 0
        check(bench)
        bench.stop()
    assert n > (30 if where.endswith("write") else 4)
