"""``remediator pause``: hold all acting, through the running engine."""

from __future__ import annotations

import click

from remediator.cli.api_client import Access, EngineClient, engine_options
from remediator.cli.invocation import Invocation
from remediator.cli.person import by_option, reason_option
from remediator.cli.terminal import json_option, print_json, say


@click.command()
@reason_option
@by_option
@engine_options
@json_option
@click.pass_obj
def pause(invocation: Invocation, reason: str, by: str, access: Access, as_json: bool) -> None:
    """Hold all acting until resume.

    Deliveries are still taken, plans are made and wait. A step under way is finished.
    """
    answer = EngineClient.of(invocation, access).post("/api/v1/pause", {"reason": reason, "by": by}, has=["paused"])
    if as_json:
        print_json(answer)
    else:
        say("paused: nothing will act until remediator resume")
