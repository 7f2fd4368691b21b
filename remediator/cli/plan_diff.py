"""``remediator plan --diff``: what other playbooks would change for a delivery, for people.

Takes → gives: what ``engine.difference`` found → what is new (+), gone (-) and different (~), each in a line or two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remediator.cli.plan_alert import print_alerts, print_assumptions, print_moment
from remediator.cli.terminal import fold, fold_beside, print_change, say, value_text


def print_difference(answer: Mapping[str, Any]) -> None:
    """The differences for people.

    Args:
        answer: what ``DryApp.difference`` gives.
    """
    print_moment(answer)
    print_alerts(answer, _print_alert)
    print_assumptions(answer)
    say()
    if answer["differs"]:
        fold("the playbooks given differ from the running set (what the settings' folders hold)", 0, "yellow")
    else:
        fold("no difference", 0, "green")


def _print_alert(item: Mapping[str, Any]) -> None:
    for match in item["new"]:
        say()
        fold(f"+ {_name(match)}: new", 2, "bold green")
        _print_new(match)
    for match in item["gone"]:
        say()
        fold(f"- {_name(match)}: gone", 2, "bold red")
        fold(f"subject {value_text(match['per'])}", 4, "dim")
        for why in match["why"]:
            fold(why, 4)
    for match in item["different"]:
        say()
        fold(f"~ {_name(match)}: different", 2, "bold yellow")
        fold(f"subject {value_text(match['per'])}", 4, "dim")
        for change in match["changes"]:
            print_change(change["what"], _text(change["was"]), _text(change["would_be"]))
    if item["n_same"]:
        say()
        fold(f"= {item['n_same']} the same", 2, "dim")


def _name(match: Mapping[str, Any]) -> str:
    return f"{match['playbook']}, case {match['case']}" if match["case"] else str(match["playbook"])


def _print_new(match: Mapping[str, Any]) -> None:
    fold(f"subject {value_text(match['per'])}", 4, "dim")
    if refused := match.get("refused"):
        fold(f"refused ({refused['reason']}): {refused['detail']}", 4, "red")
        return
    fold(f"mode {match['mode']}, hold {match['hold']}, verdict: {match['verdict']['word']}", 4)
    for number, step in enumerate(match["steps"], start=1):
        rung = f"rung {step['rung']}, " if step["rung"] else ""
        fold_beside(f"    {number}. ", f"{rung}{step['name']}: {step['describes']}")


def _text(value: object) -> str:
    match value:
        case None:
            return "(none)"
        case {"describes": str(describes)}:
            return describes
        case {"word": word, "rules": _}:
            return value_text(word)
        case _:
            return value_text(value) or "(empty)"
