"""``remediator replay``: decide the stored deliveries anew with other playbooks, and compare with what happened.

Takes → gives: a window and playbooks → the runs that would be new, gone or different, an exit code. ``replay_text``
prints them.

Must never: ask or touch a neighbour, or write to the store: all of it happens in memory and on a scratch store.
"""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from remediator.cli.invocation import Invocation
from remediator.cli.replay_text import print_replay
from remediator.cli.store_options import moment_option, store_option
from remediator.cli.terminal import json_option, print_json

EXIT_DIFFERS = 1

LAST_WEEK = timedelta(days=7)

PATIENCE_S = 2.0
"""What takes longer shows how far it is."""

KINDS = ("new", "gone", "different")


class _HowFar:
    """How many deliveries are decided, on a terminal, once it takes a while."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._progress: Progress | None = None
        self._task = TaskID(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def step(self, n_done: int, n_all: int) -> None:
        """So many of so many."""
        if not sys.stderr.isatty() or time.monotonic() - self._began < PATIENCE_S:
            return
        if self._progress is None:
            columns = (BarColumn(20), TextColumn("{task.completed:,} of {task.total:,} deliveries"))
            self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._progress.add_task("", total=n_all)
            self._progress.start()
        self._progress.update(self._task, completed=n_done)


@click.command()
@click.option(
    "--since",
    metavar="WHEN",
    callback=moment_option,
    help="Compare runs from then on: 7d is seven days ago; or a time.  [default: 7d]",
)
@click.option("--until", metavar="WHEN", callback=moment_option, help="… and up to then.  [default: now]")
@click.option(
    "--playbooks",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Decide with these files and folders, policies too, instead of the settings'; repeatable.",
)
@click.option(
    "--fail-on", multiple=True, type=click.Choice(KINDS), help="Exit with 1 where a run differs so; repeatable."
)
@click.option(
    "--limit", type=click.IntRange(min=0), default=50, show_default=True, metavar="N", help="Print N differences."
)
@click.option("--log", "has_log", is_flag=True, help="Print the engine's own log to stderr.")
@store_option
@json_option
@click.pass_context
def replay(
    ctx: click.Context,
    since: datetime | None,
    until: datetime | None,
    playbooks: tuple[Path, ...],
    fail_on: tuple[str, ...],
    limit: int,
    has_log: bool,
    store_url: str | None,
    as_json: bool,
) -> None:
    """Decide the stored deliveries anew with other playbooks: what would differ?

    The engine itself decides them, each at its own time, on clients in memory that answer as the log has it. Nothing
    is asked or touched, and the store is only read, whether an engine runs or not:

    \b
      remediator replay --since 7d --playbooks new/
      remediator replay --playbooks new/ --fail-on gone --json

    It says which runs would be new, gone or different, and in what; where the incident of each is to be read; what
    people did and whether that would still mean something; and what it assumed where nobody had been asked.

    Exit code 0: replayed; 1: a run differs in a way that --fail-on names, or the playbooks have problems; 3: there is
    no store, or it cannot be read.
    """
    now = datetime.now(UTC)
    begins, ends = since or now - LAST_WEEK, min(until or now, now)
    if begins >= ends:
        raise click.UsageError("--since must lie before --until, and before now")
    # Only now: they load everything, and wrong usage is said at once.
    from remediator.app import replay_deliveries
    from remediator.telemetry import configure_logging

    configure_logging(level="info" if has_log else "critical", log_format="text")
    invocation: Invocation = ctx.obj
    settings = invocation.settings_of_here()
    if store_url is not None:
        settings = settings.model_copy(update={"store_url": store_url})
    with _HowFar() as how_far:
        answer = replay_deliveries(settings, playbooks, since=begins, until=ends, on_progress=how_far.step)
    if as_json:
        print_json(answer)
    else:
        print_replay(answer, limit)
    ctx.exit(EXIT_DIFFERS if any(answer["runs"][kind] for kind in fail_on) else 0)
