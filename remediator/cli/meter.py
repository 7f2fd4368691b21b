"""How far something is that takes a while, for a person who watches a terminal.

Takes → gives: how many of how many are done → a line that goes away again.

Must never: write where nobody watches: into a pipe, or a file.
"""

from __future__ import annotations

import time
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

PATIENCE_S = 2.0
"""What takes longer shows how far it is."""


class Meter:
    """One such line. Begins to count its patience when it is made."""

    def __init__(self, what: str, out: Console | None) -> None:
        """Show nothing yet.

        Args:
            what: is counted, in the plural.
            out: where; None = nowhere. Nothing is shown where it is no terminal.
        """
        self._what = what
        self._out = out if out is not None and out.is_terminal else None
        self._began = time.monotonic()
        self._progress: Progress | None = None
        self._task = TaskID(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.hide()

    def show(self, n_done: int, n_all: int) -> None:
        """So many of so many."""
        if self._out is None or time.monotonic() - self._began < PATIENCE_S:
            return
        if self._progress is None:
            columns = (BarColumn(20), TextColumn(f"{{task.completed:,}} of {{task.total:,}} {self._what}"))
            self._progress = Progress(*columns, console=self._out, transient=True)
            self._task = self._progress.add_task("", total=n_all, completed=n_done)
            self._progress.start()
        self._progress.update(self._task, completed=n_done)

    def hide(self) -> None:
        """Before something else is printed, and at the end."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
