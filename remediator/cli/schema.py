"""``remediator schema``: JSON Schema of what people write, for their editors."""

from __future__ import annotations

from typing import Literal

import click

from remediator.cli.terminal import print_json


@click.command()
@click.argument("what", type=click.Choice(["playbook", "policy"]))
def schema(what: Literal["playbook", "policy"]) -> None:
    """Print the JSON Schema of the playbook or policy format.

    An editor with a YAML language server completes and checks with it; remediator check finds more.
    """
    from remediator.loading import json_schema

    print_json(json_schema(what))
