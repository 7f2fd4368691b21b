"""``remediator approve``: say yes to what a run asks, through the running engine."""

from __future__ import annotations

import click

from remediator.cli.api_client import Access, EngineClient, engine_options, path_of_run
from remediator.cli.invocation import Invocation
from remediator.cli.person import by_option, question_option, reason_option
from remediator.cli.terminal import json_option, print_json, say


@click.command()
@click.argument("run")
@reason_option
@question_option
@by_option
@engine_options
@json_option
@click.pass_obj
def approve(
    invocation: Invocation, run: str, reason: str, question: int, by: str, access: Access, as_json: bool
) -> None:
    """Say yes to what RUN asks.

    RUN is a run's id, as remediator runs shows it, or at least its first 8 characters where no other run begins so.

    It is judged again and its targets are looked at again: if they are others than people were asked about, it is
    refused.
    """
    client = EngineClient.of(invocation, access)
    body = {"reason": reason, "question": question, "by": by}
    answer = client.post(path_of_run(run, "approve"), body, has=["run_id", "key"])
    if as_json:
        print_json(answer)
    else:
        say(f"run {run}: approved ({answer['key']}); it is judged again before it acts, see remediator runs")
