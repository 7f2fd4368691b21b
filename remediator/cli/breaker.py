"""``remediator breaker …``: list the breakers and reset one, through the running engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import click

from remediator.cli.api_client import Access, EngineClient, engine_options
from remediator.cli.invocation import Invocation
from remediator.cli.person import by_option, reason_option
from remediator.cli.terminal import fold, json_option, moment_text, print_fields, print_json, say


@click.group()
def breaker() -> None:
    """List the breakers of the policies, and reset one that tripped.

    A breaker trips when the next act would change too much of a fleet, or after too many runs without a fix. From then
    on no plan acts, until a person who knows why resets it. Messages and undo pass.
    """


@breaker.command("list")
@engine_options
@json_option
@click.pass_obj
def list_breakers(invocation: Invocation, access: Access, as_json: bool) -> None:
    """Which breakers there are, which are tripped and why."""
    answer = EngineClient.of(invocation, access).get_list("/api/v1/breakers", has=["name", "tripped", "limit"])
    if as_json:
        print_json(answer)
        return
    if not answer:
        say("no policy has a breaker")
    for one in answer:
        print_breaker(one)


def print_breaker(one: Mapping[str, Any]) -> None:
    """A breaker as the API gives it, for people."""
    if one["tripped"]:
        fold(f"{one['name']}  TRIPPED since {moment_text(one['tripped_at'])}: {one['why']}", 0, "red")
        fold(f"once you know why: remediator breaker reset {one['name']} --reason TEXT", 2)
    else:
        say(f"{one['name']}  not tripped", "green")
    counted = f"targets changed: {one['n_changed']}, runs without a fix: {one['n_failures']}"
    print_fields(
        {
            "trips at": one["limit"] or "in no policy in force",
            "counted now": counted if one["in_force"] and not one["tripped"] else "",
            "last reset": moment_text(one["reset_at"]),
        },
        2,
    )


@breaker.command("reset")
@click.argument("name")
@reason_option
@by_option
@engine_options
@json_option
@click.pass_obj
def reset(invocation: Invocation, name: str, reason: str, by: str, access: Access, as_json: bool) -> None:
    """Let acts go on after the breaker NAME tripped.

    It counts from zero. Plans that waited for it are judged anew, oldest first.
    """
    path = f"/api/v1/breakers/{quote(name, safe='')}/reset"
    answer = EngineClient.of(invocation, access).post(path, {"reason": reason, "by": by}, has=["breaker", "woken"])
    if as_json:
        print_json(answer)
    else:
        say(f"breaker {name} is reset: it counts from zero, and {answer['woken']} plans that waited are judged anew")
