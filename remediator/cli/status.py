"""``remediator status``: what the running engine is doing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from remediator.cli.api_client import Access, EngineClient, engine_options
from remediator.cli.breaker import print_breaker
from remediator.cli.invocation import Invocation
from remediator.cli.runs import print_run
from remediator.cli.terminal import fold, json_option, moment_text, print_fields, print_json, say, value_text
from remediator.core.move import waiting_text

STATUS_NAMES = (
    "ready",
    "checks",
    "paused",
    "tripped_breakers",
    "version",
    "up_since",
    "mode",
    "playbooks",
    "open_alerts",
    "open_subjects",
    "adopted_subjects",
    "deliveries_waiting",
    "open_leases",
    "runs_by_phase",
    "waiting_for",
    "ended_lately",
    "audit",
    "unsettled_runs",
    "open_runs",
)
"""What the API's status has and people are shown."""


OPEN = ("holding", "waiting", "asking", "acting", "verifying")
"""Phases of runs that have not ended."""


@click.command()
@engine_options
@json_option
@click.pass_obj
def status(invocation: Invocation, access: Access, as_json: bool) -> None:
    """What the running engine is doing: ready or not, paused, tripped breakers, playbooks in force, runs open."""
    answer = EngineClient.of(invocation, access).get("/api/v1/status", has=STATUS_NAMES)
    if as_json:
        print_json(answer)
    else:
        print_status(answer)


def print_status(status: Mapping[str, Any]) -> None:
    """What a person wants to see first.

    Args:
        status: as the API gives it.
    """
    say("ready" if status["ready"] else "NOT READY", "green" if status["ready"] else "red")
    for name, text in status["checks"].items():
        if text != "ok":
            fold(f"{name}: {text}", 2, "red")
            if name == "playbooks":
                fold("the old set stays in force", 4)
    if paused := status["paused"]:
        since = f" since {moment_text(paused['at'])}" if paused["at"] else ""
        fold(f"PAUSED by {paused['by']}{since}: {paused['reason']}", 0, "yellow")
    for breaker in status["tripped_breakers"]:
        print_breaker(breaker)
    print_fields(
        {
            "version": status["version"],
            "not away for 5m since": moment_text(status["up_since"]),
            "mode": status["mode"],
            "playbooks": status["playbooks"],
            "open alerts": status["open_alerts"],
            "open subjects": status["open_subjects"],
            "adopted subjects, not acted on": status["adopted_subjects"],
            "deliveries waiting": status["deliveries_waiting"],
            "changes to be taken back": status["open_leases"],
            "runs now": ", ".join(f"{n} {phase}" for phase, n in status["runs_by_phase"].items() if phase in OPEN),
            "they wait for": "; ".join(_waiting(status["waiting_for"])),
            "runs of the last 24h": ", ".join(_ended(status["ended_lately"])),
            "audit head": f"{status['audit']['seq']}:{status['audit']['hash']}",
        }
    )
    if unsettled := status["unsettled_runs"]:
        say()
        fold("unknown, their targets are held: look, then remediator settle RUN happened|did-not-happen", 0, "red")
        for run in unsettled:
            fold(value_text(run), 2)
    if status["open_runs"]:
        say()
        for run in status["open_runs"]:
            print_run(run)


def _waiting(counts: Mapping[str, int]) -> list[str]:
    """``3 for the cooldown``, the most first."""
    most = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return [f"{n} for {waiting_text([f':{reason}'])}" for reason, n in most]


def _ended(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """``2 refused (1 cooldown, 1 protected)``: each outcome once, with its reasons."""
    by_outcome: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_outcome.setdefault(row["outcome"], []).append(row)
    said = []
    for outcome, of_it in by_outcome.items():
        reasons = ", ".join(f"{row['n']} {row['reason']}" for row in of_it if row["reason"] not in ("", "none"))
        said.append(f"{sum(row['n'] for row in of_it)} {outcome}" + (f" ({reasons})" if reasons else ""))
    return said
