"""``remediator run``: start a playbook by hand, through the running engine and the same guards."""

from __future__ import annotations

import time
from typing import Any

import click

from remediator.cli.alert_options import PAIR, Pair, alert_options, as_map
from remediator.cli.api_client import Access, EngineClient, engine_options, path_of_run
from remediator.cli.invocation import Invocation
from remediator.cli.person import by_option
from remediator.cli.runs import ID_SHOWN, RUN_NAMES, run_state
from remediator.cli.terminal import json_option, print_json, say

POLL_S = 1.0
"""How often ``--wait`` looks: a person watches, and the engine answers from an index."""

GOOD_ENDS = ("succeeded", "unchanged")


@click.command()
@click.argument("playbook")
@click.argument("more", nargs=-1, type=PAIR, metavar="[LABEL=VALUE]...")
@alert_options
@by_option
@click.option("--wait", is_flag=True, help="Wait for the end; exit 0 only if it succeeded or nothing had to change.")
@engine_options
@json_option
@click.pass_context
def run(
    ctx: click.Context,
    playbook: str,
    more: tuple[Pair, ...],
    alert: tuple[Pair, ...],
    annotation: tuple[Pair, ...],
    by: str,
    wait: bool,
    access: Access,
    as_json: bool,
) -> None:
    """Start PLAYBOOK by hand, as if an alert with these labels fired.

    \b
      remediator run restart-on-leak --alert hostname=gpu-07 container_name=trainer-0

    The same guards judge it; it does not wait for the playbook's hold. The audit log names you.
    """
    labels = as_map([*alert, *more], "--alert")
    if not labels:
        raise click.UsageError("give the alert's labels: --alert LABEL=VALUE")
    invocation: Invocation = ctx.obj
    client = EngineClient.of(invocation, access)
    annotations = as_map(annotation, "--annotation")
    if wait:
        client.get("/api/v1/status", has=["ready"])  # a token that may not look must be told before it starts anything
    answer = client.post(
        "/api/v1/runs", {"playbook": playbook, "labels": labels, "annotations": annotations, "by": by}, has=["run_id"]
    )
    refused = answer.get("refused")
    if not as_json:
        started = f"started run {answer['run_id']}"
        look = "" if wait else f"  (remediator incident {str(answer['run_id'])[:ID_SHOWN]})"
        say(f"refused ({refused['reason']}): {refused['detail']}" if refused else started + look)
    if wait and not refused:
        answer = _wait(client, str(answer["run_id"]), is_quiet=as_json)
    if as_json:
        print_json(answer)
    ctx.exit(1 if refused or answer.get("outcome", "succeeded") not in GOOD_ENDS else 0)


def _wait(client: EngineClient, run_id: str, *, is_quiet: bool) -> dict[str, Any]:
    """Look until it has ended; say each change of phase once."""
    said = ""
    while True:
        now = client.get(path_of_run(run_id), has=RUN_NAMES)
        text = run_state(now)
        if text != said and not is_quiet:
            say(text)
        said = text
        if now["ended_at"]:
            return now
        time.sleep(POLL_S)
