"""``remediator runs``: the runs that the engine has, newest first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from remediator.cli.api_client import EngineClient, engine_options
from remediator.cli.invocation import Invocation
from remediator.cli.terminal import fold, json_option, print_json, say, value_text

_BAD_ENDS = ("failed", "unknown", "ineffective", "unverified", "refused")


@click.command()
@click.option(
    "--state", type=click.Choice(["open", "ended", "all"]), default="open", show_default=True, help="Which runs."
)
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="At most so many.")
@engine_options
@json_option
@click.pass_obj
def runs(
    invocation: Invocation, state: str, limit: int, url: str | None, token_file: Path | None, as_json: bool
) -> None:
    """List runs, newest first."""
    found: list[dict[str, Any]] = EngineClient.of(invocation, url, token_file).get(
        "/api/v1/runs", state=state, limit=limit
    )
    if as_json:
        print_json(found)
    elif not found:
        say("no runs" if state == "all" else f"no {state} runs")
    else:
        for run in found:
            print_run(run)


def print_run(run: Mapping[str, Any]) -> None:
    """A run on three lines.

    Args:
        run: as the API gives it.
    """
    say(f"{run['run_id']}  {run_state(run)}", "red" if run["outcome"] in _BAD_ENDS else "")
    case = f", case {run['case']}" if run["case"] else ""
    until = f", ended {run['ended_at']}" if run["ended_at"] else ""
    fold(f"{run['playbook']}{case}: {value_text(run['per'])}", 4)
    fold(f"since {run['created_at']}{until}", 4, "dim")


def run_state(run: Mapping[str, Any]) -> str:
    """Where a run stands, in a few words: ``succeeded``, ``failed (transient)``, ``waiting for cooldown``.

    Args:
        run: as the API gives it.
    """
    if run["outcome"]:
        return str(run["outcome"]) + (f" ({run['reason']})" if run["reason"] not in ("", "none") else "")
    return str(run["phase"]) + (f" for {waits_text(run['waits_for'])}" if run["waits_for"] else "")


def waits_text(waits_for: Sequence[str]) -> str:
    """What a plan waits for: ``cooldown:cooldown`` → ``cooldown``, ``busy:TARGET`` → ``busy TARGET``."""
    pairs = [each.partition(":") for each in waits_for]
    return ", ".join(f"busy {what}" if rule == "busy" else what.replace("_", " ") for rule, _, what in pairs)
