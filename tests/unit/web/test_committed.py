"""The event loop hears of every commit, whoever ends it and however many end at one moment."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from concurrent.futures import Future
from typing import Any

import pytest

from remediator.web import door


class _SlowLength(deque[Any]):
    """Lets two threads append before either goes on, as the interpreter may."""

    def __init__(self, gate: threading.Barrier) -> None:
        super().__init__()
        self._gate = gate

    def append(self, item: Any) -> None:
        super().append(item)
        self._gate.wait(10)


def test_wait_when_two_commits_end_in_two_threads_at_one_moment_then_both_are_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(door, "COMMIT_DEADLINE_S", 30.0)
    commits: list[Future[object]] = [Future(), Future()]

    async def wait_for_both() -> None:
        committed = door._Committed()
        committed._done = _SlowLength(threading.Barrier(2))
        waits = [asyncio.create_task(committed.wait(commit)) for commit in commits]
        await asyncio.sleep(0)
        threads = [threading.Thread(target=commit.set_result, args=(None,)) for commit in commits]
        for thread in threads:
            thread.start()
        await asyncio.wait_for(asyncio.gather(*waits), 10)
        for thread in threads:
            thread.join()

    asyncio.run(wait_for_both())


def test_wait_when_many_commits_end_one_after_the_other_then_each_is_heard() -> None:
    commits: list[Future[object]] = [Future() for _ in range(500)]

    async def wait_for_all() -> None:
        committed = door._Committed()
        waits = [asyncio.create_task(committed.wait(commit)) for commit in commits]
        await asyncio.sleep(0)
        ending = threading.Thread(target=lambda: [commit.set_result(None) for commit in commits])
        ending.start()
        await asyncio.wait_for(asyncio.gather(*waits), 30)
        ending.join()

    asyncio.run(wait_for_all())
