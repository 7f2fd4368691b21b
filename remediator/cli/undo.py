"""``remediator undo``: take back now what a run changed, through the running engine."""

from __future__ import annotations

import click

from remediator.cli.api_client import Access, EngineClient, engine_options, path_of_run
from remediator.cli.invocation import Invocation
from remediator.cli.person import by_option, reason_option
from remediator.cli.terminal import fold, json_option, print_json


@click.command()
@click.argument("run")
@click.option("--step", default="", help="What this step changed alone, by its name.  [default: all]")
@reason_option
@by_option
@engine_options
@json_option
@click.pass_obj
def undo(invocation: Invocation, run: str, step: str, reason: str, by: str, access: Access, as_json: bool) -> None:
    """Take back now what RUN changed, whether its alert fires or not; also while the engine is paused.

    RUN is a run's id, as remediator leases shows it, or at least its first 8 characters where no other run begins so.
    What others changed since is left to them.
    """
    client = EngineClient.of(invocation, access)
    body = {"step": step, "reason": reason, "by": by}
    answer = client.post(path_of_run(run, "undo"), body, has=["run_id", "leases"])
    if as_json:
        print_json(answer)
        return
    for lease in answer["leases"]:
        waits = f"waits for {lease['waits_for']}" if lease["waits_for"] else "is taken back now"
        fold(f"{lease['action']} {lease['target']} (step {lease['step']}): {waits}")
    fold("see remediator leases --all for what came of it")
