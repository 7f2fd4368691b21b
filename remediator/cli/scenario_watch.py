"""``--watch``: play again what a change to test files, playbooks and policies concerns, until Ctrl-C.

Takes → gives: changes of files, as the file system tells them → the scenarios of the test files that have to do with
them, played and told anew.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import click
import watchfiles

from remediator.cli.scenario_report import Asked
from remediator.cli.terminal import say
from remediator.core.scenario import Posts, TestFile

Play = Callable[[Asked], Sequence[TestFile]]
"""Plays what is asked for and tells of it; gives the files that it could read."""


TICK_MS = 200
"""So often it looks whether there was a Ctrl-C."""


def watch(asked: Asked, play: Play) -> None:
    """Play all, and then what changes, until Ctrl-C.

    Raises:
        click.UsageError: nothing of what is asked for is there.
    """
    known: dict[str, TestFile] = {}
    paths = asked.paths
    try:
        while True:
            folders = _folders(asked.paths, known.values())
            if not folders:
                raise click.UsageError(f"there is nothing to watch: {', '.join(map(str, asked.paths))}")
            changes = watchfiles.watch(*folders, raise_interrupt=True, yield_on_timeout=True, rust_timeout=TICK_MS)
            next(changes)  # it watches from here on: what is saved while scenarios are played comes next
            while _folders(asked.paths, known.values()) == folders:
                if paths:
                    known |= {_real(file.file): file for file in play(replace(asked, paths=paths))}
                    say(f"watching {', '.join(os.path.relpath(folder) for folder in folders)}; Ctrl-C ends it", "dim")
                    say()
                paths = _concerned(asked, known, {_real(path) for _, path in next(changes)})
    except KeyboardInterrupt:
        say()


def _real(path: str | Path) -> str:
    return os.path.realpath(path)


def _folders(paths: Iterable[Path], files: Iterable[TestFile]) -> list[Path]:
    """Where something may change: what was asked for, and what the tests name; none below another."""
    wanted = {_folder(path) for path in paths}
    for file in files:
        wanted |= {_folder(path) for path in (Path(file.file), *file.paths, *_recorded(file))}
    return sorted(folder for folder in wanted if folder.is_dir() and not wanted.intersection(folder.parents))


def _folder(path: Path) -> Path:
    real = Path(_real(path))
    return real if real.is_dir() else real.parent


def _recorded(file: TestFile) -> list[Path]:
    """The bodies that its stories deliver."""
    events = (event for scenario in file.scenarios for event in scenario.story)
    return [Path(file.file).parent / event.what.file for event in events if isinstance(event.what, Posts)]


def _concerned(asked: Asked, known: dict[str, TestFile], changed: set[str]) -> tuple[Path, ...]:
    """The test files that have to do with what changed, those that are new among them."""
    found = [
        Path(file.file)
        for name, file in known.items()
        if name in changed or any(_has_changed(path, changed) for path in (*file.paths, *_recorded(file)))
    ]
    names = {_real(path) for path in found}
    new = [Path(os.path.relpath(name)) for name in sorted(changed - names) if _is_test(asked, name)]
    return tuple(path for path in (*found, *new) if path.exists())


def _has_changed(path: Path, changed: set[str]) -> bool:
    """Whether it, or, where it is a folder, a file in it is among them."""
    real = _real(path)
    return real in changed or any(os.path.dirname(name) == real for name in changed)


def _is_test(asked: Asked, name: str) -> bool:
    """Whether it is a test file that was asked for: by its own name, or in a folder."""
    for path in map(_real, asked.paths):
        if name == path or (name.startswith(path + os.sep) and name.endswith((".test.yaml", ".test.yml"))):
            return True
    return False
