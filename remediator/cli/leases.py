"""``remediator leases``: changes that are still to be taken back.

Takes the store's file, opened read-only, whether an engine runs or not: what was lent must be found also where the
engine that lent it is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from remediator.cli.invocation import Invocation
from remediator.cli.store_options import reading, store_option
from remediator.cli.terminal import fold, json_option, moment_text, print_json, say, value_text
from remediator.engine.leases import lease_dict
from remediator.store.leases import list_leases

STYLES = {"kept": "yellow", "drifted": "red", "reverted": "red"}


@click.command()
@click.option("--all", "is_all", is_flag=True, help="Those too that are over.")
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="At most so many.")
@store_option
@json_option
@click.pass_obj
def leases(invocation: Invocation, /, is_all: bool, limit: int, store_url: str | None, as_json: bool) -> None:
    """List changes that are still to be taken back, newest first."""
    with reading(invocation, store_url) as conn:
        found = [lease_dict(row) for row in list_leases(conn, limit, is_all=is_all)]
    if as_json:
        print_json(found)
    elif not found:
        say("nothing was ever lent" if is_all else "nothing is to be taken back")
    else:
        for lease in found:
            _print_lease(lease)


def _print_lease(lease: Mapping[str, Any]) -> None:
    state = lease["state"]
    say(f"{lease['action']} {lease['target']}  {state}", STYLES.get(state, ""))
    fold(f"run {lease['run_id']}, step {lease['step']}", 4)
    fold(f"{lease['playbook']}: {value_text(lease['per'])}", 4)
    changes = {
        name: f"{value_text(was)} → {value_text(lease['after'].get(name, ''))}"
        for name, was in lease["before"].items()
        if lease["after"].get(name) != was
    }
    for name, change in changes.items():
        fold(f"{name.replace('_', ' ')} {change}", 4)
    fold(f"since {moment_text(lease['opened_at'])}, {_until(lease)}", 4, "dim")


def _until(lease: Mapping[str, Any]) -> str:
    """How it ended, or when it will."""
    if lease["closed_at"]:
        return f"{lease['state']} at {moment_text(lease['closed_at'])}" + (
            f": {lease['detail']}" if lease["detail"] else ""
        )
    if lease["retry_at"]:
        return f"an undo failed; tried again at {moment_text(lease['retry_at'])}"
    if lease["state"] == "released":
        return "its time has come: it goes with the younger one on the same target"
    if lease["requested_by"]:
        return f"{lease['requested_by']} asked for its undo"
    if lease["kept_at"]:
        since = moment_text(lease["kept_at"])
        return f"kept since {since}: goes {lease['after_resolve']} after a resolve, or by remediator undo"
    by_itself = f"{lease['after_resolve']} after a resolve" if lease["goes_at_resolve"] else "by remediator undo"
    return f"goes {by_itself}" + (
        f", at the latest at {moment_text(lease['at_most_at'])}" if lease["at_most_at"] else ""
    )
