"""``remediator note``: keep what a person has to say about a run, through the running engine."""

from __future__ import annotations

import click

from remediator.cli.api_client import Access, EngineClient, engine_options, path_of_run
from remediator.cli.invocation import Invocation
from remediator.cli.person import by_option
from remediator.cli.terminal import json_option, print_json, say


@click.command()
@click.argument("run")
@click.argument("text")
@by_option
@engine_options
@json_option
@click.pass_obj
def note(invocation: Invocation, run: str, text: str, by: str, access: Access, as_json: bool) -> None:
    """Keep TEXT beside RUN, ended or not; the audit log has it, with your name.

    RUN is a run's id, as remediator runs shows it, or at least its first 8 characters where no other run begins so.
    """
    client = EngineClient.of(invocation, access)
    answer = client.post(path_of_run(run, "note"), {"text": text, "by": by}, has=["run_id"])
    if as_json:
        print_json(answer)
    else:
        say(f"run {run}: noted")
