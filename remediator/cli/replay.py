"""``remediator replay``: decide the stored deliveries anew with other playbooks, and compare with what happened.

Takes → gives: a window and playbooks → the runs that would be new, gone or different, an exit code. ``replay_text``
prints them.

Must never: ask or touch a neighbour, or write to the store: all of it happens in memory and on a scratch store.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
from rich.console import Console

from remediator.cli.invocation import Invocation
from remediator.cli.meter import Meter
from remediator.cli.replay_text import print_replay
from remediator.cli.store_options import moment_option, store_option
from remediator.cli.terminal import json_option, print_json

EXIT_DIFFERS = 1

LAST_WEEK = timedelta(days=7)

KINDS = ("new", "gone", "different")


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
    with Meter("deliveries", Console(stderr=True)) as meter:
        answer = replay_deliveries(settings, playbooks, since=begins, until=ends, on_progress=meter.show)
    if as_json:
        print_json(answer)
    else:
        print_replay(answer, limit)
    ctx.exit(EXIT_DIFFERS if any(answer["runs"][kind] for kind in fail_on) else 0)
