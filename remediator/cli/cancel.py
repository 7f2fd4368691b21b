"""``remediator cancel``: end a run that waits, or stop one after its step, through the running engine."""

from __future__ import annotations

import click

from remediator.cli.api_client import Access, EngineClient, engine_options, path_of_run
from remediator.cli.invocation import Invocation
from remediator.cli.person import by_option, reason_option
from remediator.cli.terminal import json_option, print_json, say


@click.command()
@click.argument("run")
@reason_option
@by_option
@engine_options
@json_option
@click.pass_obj
def cancel(invocation: Invocation, run: str, reason: str, by: str, access: Access, as_json: bool) -> None:
    """End RUN if it waits; if it acts, stop it after the step under way.

    RUN is a run's id, as remediator runs shows it, or at least its first 8 characters where no other run begins so.
    """
    client = EngineClient.of(invocation, access)
    answer = client.post(path_of_run(run, "cancel"), {"reason": reason, "by": by}, has=["run_id"])
    if as_json:
        print_json(answer)
    else:
        say(f"run {run}: cancelled, or stopping after the step under way; see remediator runs")
