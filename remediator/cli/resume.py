"""``remediator resume``: end a pause, through the running engine."""

from __future__ import annotations

import click

from remediator.cli.api_client import Access, EngineClient, engine_options
from remediator.cli.invocation import Invocation
from remediator.cli.person import by_option
from remediator.cli.terminal import json_option, print_json, say


@click.command()
@click.option("--reason", default="", help="Why, for the audit log.")
@by_option
@engine_options
@json_option
@click.pass_obj
def resume(invocation: Invocation, reason: str, by: str, access: Access, as_json: bool) -> None:
    """End a pause. Plans that waited are judged anew, oldest first."""
    answer = EngineClient.of(invocation, access).post("/api/v1/resume", {"reason": reason, "by": by}, has=["paused"])
    if as_json:
        print_json(answer)
    else:
        say("resumed: what waited is judged anew")
