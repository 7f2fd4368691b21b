"""Scenarios are played, in processes beside each other.

Takes → gives: ``Chosen`` scenarios → their ``Result``s, as they come.

Must never: take a scenario whose process died for one that went well.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remediator.app import story_workshop
from remediator.core.event import RecordedEvent
from remediator.core.scenario import Line, TestFile
from remediator.engine.playtest import Result, play_file
from remediator.errors import UnreachableError

FEW = 8
"""Scenarios that are played before two processes would be up: so many are played in this one."""

LONGEST_TASK = 16
"""Scenarios of one task: a file's playbooks are loaded for each task, and progress is told after each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Scenarios of one file that are to be played.

    Attributes:
        places: of them among the file's, in order, not empty.
    """

    file: TestFile
    places: tuple[int, ...]


MEMORY = Path("/dev/shm")  # noqa: S108 a folder with a random name is made in it
"""A file system without a disk, where there is one: stores of stories are nobody's afterwards."""

MEMORY_BYTES = 64 * 2**20
"""Free there for each process, or the usual place is taken: containers often have no more of it in all."""

Answer = tuple[int, int, Result]
"""Place of the ``Chosen``, and of the scenario among its own; and what became of it."""


def n_cpus() -> int:
    """CPUs that this process may use; not every system says."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def play(chosen: Sequence[Chosen], jobs: int) -> Generator[Answer, None, None]:
    """Play them all.

    Args:
        jobs: processes, >= 1; few scenarios are played in this one.

    Yields:
        Each result as soon as it is there. Raises nothing for what is wrong in files; a scenario whose process died is
        a result with that problem.
    """
    n = sum(len(one.places) for one in chosen)
    jobs = min(jobs, n // FEW)
    tasks = _tasks(chosen, max(1, min(LONGEST_TASK, n // max(1, jobs * 4))))
    with _scratch() as folder:
        if jobs < 2:
            for task in tasks:
                yield from _played(chosen, task, folder)
        else:
            yield from _played_beside(chosen, tasks, jobs, folder)


def _played_beside(
    chosen: Sequence[Chosen], tasks: Sequence[_Task], jobs: int, folder: Path
) -> Generator[Answer, None, None]:
    """Play them in other processes."""
    # Forked: what was imported here is there, and nothing has been started that a fork would lose.
    fork = multiprocessing.get_context("fork")
    pool = ProcessPoolExecutor(jobs, mp_context=fork, initializer=_begin, initargs=(chosen, folder))
    try:
        futures, unasked = _asked(pool, tasks)
        for task in unasked:
            yield from _lost(chosen, task)
        for future in as_completed(futures):
            task = futures[future]
            try:
                told = future.result()
            except BrokenProcessPool:
                yield from _lost(chosen, task)
                continue
            for place, lines, problem, events, duration_s in told:
                known = {"lines": lines, "problem": problem, "events": events, "duration_s": duration_s}
                yield task.chosen, place, _result(chosen[task.chosen], place, **known)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _asked(pool: ProcessPoolExecutor, tasks: Sequence[_Task]) -> tuple[dict[Future[_Told], _Task], Sequence[_Task]]:
    """Give them to the pool.

    Returns:
        What was given, and what was not: a pool whose process died while it was filled takes no more.
    """
    futures: dict[Future[_Told], _Task] = {}
    for number, task in enumerate(tasks):
        try:
            futures[pool.submit(_play_task, task)] = task
        except BrokenProcessPool:
            return futures, tasks[number:]
    return futures, ()


@dataclass(frozen=True, slots=True)
class _Task:
    """A stretch of one file's scenarios."""

    chosen: int
    first: int
    last: int


def _tasks(chosen: Sequence[Chosen], size: int) -> list[_Task]:
    return [
        _Task(number, first, min(first + size, len(one.places)))
        for number, one in enumerate(chosen)
        for first in range(0, len(one.places), size)
    ]


def _place() -> Path | None:
    """Where stores are made; None = the usual place."""
    try:
        is_roomy = shutil.disk_usage(MEMORY).free >= MEMORY_BYTES * n_cpus()
    except OSError:
        return None
    return MEMORY if is_roomy and os.access(MEMORY, os.W_OK) else None


@contextmanager
def _scratch() -> Iterator[Path]:
    """A folder for all stores, and none afterwards, whatever becomes of the processes.

    Raises:
        UnreachableError: nothing can be written.
    """
    try:
        found = tempfile.TemporaryDirectory(prefix="remediator-test-", dir=_place())
    except OSError as error:
        wanted = "stories need a folder for a while; TMPDIR names another place"
        raise UnreachableError(
            f"cannot make a folder: {error.filename or error}: {error.strerror}: {wanted}"
        ) from error
    with found as folder:
        yield Path(folder)


def _played(chosen: Sequence[Chosen], task: _Task, folder: Path) -> Iterator[Answer]:
    """Play one task here."""
    one = chosen[task.chosen]
    places = range(task.first, task.last)
    scenarios = [one.file.scenarios[one.places[place]] for place in places]
    with tempfile.TemporaryDirectory(dir=folder) as own:
        results = play_file(one.file, scenarios, story_workshop(), Path(own))
        for place, result in zip(places, results, strict=True):
            yield task.chosen, place, result


# -- in another process ------------------------------------------------------------------------------------------------

_Told = list[tuple[int, tuple[Line, ...], str, tuple[RecordedEvent, ...], float]]
"""Place, lines, problem, events and duration of each: the rest of a result is known on the other side."""

_given: tuple[Sequence[Chosen], Path] = ((), Path())
"""What this process plays from and where, where it is one that plays."""


def _begin(chosen: Sequence[Chosen], folder: Path) -> None:
    """What such a process does first."""
    global _given
    _given = chosen, folder
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for the one that started it, which ends it
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Not even a kill of the one that started it leaves it behind."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _play_task(task: _Task) -> _Told:
    chosen, folder = _given
    answers = _played(chosen, task, folder)
    return [(place, one.lines, one.problem, one.events, one.duration_s) for _, place, one in answers]


def _result(one: Chosen, place: int, **known: Any) -> Result:
    return Result(file=one.file, scenario=one.file.scenarios[one.places[place]], **known)


def _lost(chosen: Sequence[Chosen], task: _Task) -> Iterator[Answer]:
    """The process died, by this task or by one beside it: nobody knows how any of these would have gone."""
    one = chosen[task.chosen]
    for place in range(task.first, task.last):
        line = f"{one.file.file}:{one.file.scenarios[one.places[place]].line}"
        problem = f"{line}: was not played: a process that plays scenarios died; --jobs 1 shows by which it dies"
        yield task.chosen, place, _result(one, place, problem=problem)
