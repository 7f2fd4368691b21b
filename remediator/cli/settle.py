"""``remediator settle``: a person says what became of an act that nobody else can tell, through the running engine."""

from __future__ import annotations

import click

from remediator.cli.api_client import Access, EngineClient, engine_options, path_of_run
from remediator.cli.invocation import Invocation
from remediator.cli.person import by_option, reason_option
from remediator.cli.terminal import json_option, print_json, say

HAPPENED = "happened"
DID_NOT_HAPPEN = "did-not-happen"


@click.command()
@click.argument("run")
@click.argument("what", type=click.Choice([HAPPENED, DID_NOT_HAPPEN]))
@reason_option
@by_option
@engine_options
@json_option
@click.pass_obj
def settle(
    invocation: Invocation,
    run: str,
    what: str,
    reason: str,
    by: str,
    access: Access,
    as_json: bool,
) -> None:
    """Say what became of the act of RUN, whose outcome is unknown.

    RUN is a run's id, or at least its first 8 characters where no other run begins so.

    Its target stays reserved until then. The run ends unverified if it happened, failed if it did not; no further step
    is carried out.
    """
    client = EngineClient.of(invocation, access)
    answer = client.post(
        path_of_run(run, "settle"), {"happened": what == HAPPENED, "reason": reason, "by": by}, has=["run_id"]
    )
    if as_json:
        print_json(answer)
    else:
        say(f"run {run}: settled, its act {what.replace('-', ' ')}; its target is free again")
