"""``remediator reload``: the running engine loads its playbooks and policies anew."""

from __future__ import annotations

import click

from remediator.cli.api_client import Access, EngineClient, engine_options
from remediator.cli.invocation import Invocation
from remediator.cli.terminal import json_option, print_json, say


@click.command()
@engine_options
@json_option
@click.pass_obj
def reload(invocation: Invocation, access: Access, as_json: bool) -> None:
    """Load the playbooks and policies anew.

    All or nothing: with one bad file the whole old set stays in force. What already fires when a playbook becomes able
    to act on it is adopted: shown, not acted on until it fires anew or by remediator run.
    """
    answer = EngineClient.of(invocation, access).post("/-/reload", {}, has=["playbooks", "adopted"])
    if as_json:
        print_json(answer)
    else:
        adopted = f"; {answer['adopted']} that fire already are adopted, not acted on" if answer["adopted"] else ""
        say(f"loaded {answer['playbooks']} playbooks{adopted}")
