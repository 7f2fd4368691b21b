"""``remediator runs``: the runs that the engine has, newest first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from remediator.cli.api_client import Access, EngineClient, engine_options
from remediator.cli.invocation import Invocation
from remediator.cli.terminal import fold, json_option, moment_text, print_json, say, value_text
from remediator.core.move import WITHOUT_A_FIX, waiting_text

RUN_NAMES = ("run_id", "playbook", "case", "per", "phase", "outcome", "reason", "waits_for", "created_at", "ended_at")
"""What every run of the API has and people are shown."""

ID_SHOWN = 8
"""Characters of a run's id that commands take for the whole."""


@click.command()
@click.option(
    "--state", type=click.Choice(["open", "ended", "all"]), default="open", show_default=True, help="Which runs."
)
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="At most so many.")
@engine_options
@json_option
@click.pass_obj
def runs(invocation: Invocation, state: str, limit: int, access: Access, as_json: bool) -> None:
    """List runs, newest first."""
    found = EngineClient.of(invocation, access).get_list("/api/v1/runs", has=RUN_NAMES, state=state, limit=limit)
    if as_json:
        print_json(found)
    elif not found:
        say("no runs" if state == "all" else f"no {state} runs")
    else:
        for run in found:
            print_run(run)


def print_run(run: Mapping[str, Any]) -> None:
    """A run on three lines, and one for what it waits for or when it goes on.

    Args:
        run: as the API gives it.
    """
    say(f"{run['run_id']}  {_end(run) or run['phase']}", "red" if run["outcome"] in WITHOUT_A_FIX else "")
    case = f", case {run['case']}" if run["case"] else ""
    until = f", ended {moment_text(run['ended_at'])}" if run["ended_at"] else ""
    fold(f"{run['playbook']}{case}: {value_text(run['per'])}", 4)
    if asks := run.get("asks"):
        expires = moment_text(str(run.get("expires_at")))
        fold(f"asks {value_text(asks)} whether it may act; no answer until {expires} is a no:", 4, "yellow")
        which = f"{str(run['run_id'])[:ID_SHOWN]} --question {run.get('question', 0)}"
        fold(f"remediator approve|deny {which} --reason TEXT", 6, "yellow")
    waits = f"waits for {waiting_text(run['waits_for'])}" if run["waits_for"] else ""
    look = f"next look at {moment_text(run['due_at'])}" if run.get("due_at") and not run["ended_at"] else ""
    if waits or look:
        fold(", ".join(filter(None, (waits, look))), 4)
    fold(f"since {moment_text(run['created_at'])}{until}", 4, "dim")


def run_state(run: Mapping[str, Any]) -> str:
    """Where a run stands, on one line: ``succeeded``, ``failed (transient)``, ``waiting for the cooldown``.

    Args:
        run: as the API gives it.
    """
    if asks := run.get("asks"):
        return f"asking {value_text(asks)} whether it may act"
    return _end(run) or str(run["phase"]) + (f" for {waiting_text(run['waits_for'])}" if run["waits_for"] else "")


def _end(run: Mapping[str, Any]) -> str:
    """How it ended, "" while it has not."""
    return str(run["outcome"]) + (f" ({run['reason']})" if run["reason"] not in ("", "none") else "")
