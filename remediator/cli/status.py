"""``remediator status``: what the running engine is doing."""

from __future__ import annotations

from pathlib import Path

import click

from remediator.cli.api_client import EngineClient, engine_options
from remediator.cli.invocation import Invocation
from remediator.cli.terminal import json_option, print_fields, print_json


@click.command()
@engine_options
@json_option
@click.pass_obj
def status(invocation: Invocation, url: str | None, token_file: Path | None, as_json: bool) -> None:
    """What the running engine is doing: ready or not, paused, playbooks in force, runs open."""
    answer = EngineClient.of(invocation, url, token_file).get("/api/v1/status")
    if as_json:
        print_json(answer)
    else:
        print_fields(answer)
