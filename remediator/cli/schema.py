"""``remediator schema``: JSON Schema of what people write, for their editors."""

from __future__ import annotations

import click

from remediator.actions import LOOKING
from remediator.cli.terminal import print_json
from remediator.loading.schema import SchemaKind, json_schema


@click.command()
@click.argument("what", type=click.Choice([kind.value for kind in SchemaKind]))
def schema(what: str) -> None:
    """Print the JSON Schema of playbooks, policies, their tests, thresholds or the settings.

    An editor with a language server for YAML or TOML completes and checks with it; remediator check finds more.
    """
    print_json(json_schema(SchemaKind(what), LOOKING))
