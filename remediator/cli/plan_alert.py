"""What every answer of a dry run says first and last: as of when, about which alert, and what it takes for granted.

Takes → gives: the answer → lines around what ``plan`` or ``plan --diff`` has to say of each alert.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from remediator.cli.terminal import fold, fold_beside, label_text, moment_text, say


def print_moment(answer: Mapping[str, Any]) -> None:
    """As of when, where it was asked for another moment than now."""
    if "at" in answer:
        fold(f"as of {moment_text(answer['at'])}", 0, "bold")
        say()


def print_alerts(answer: Mapping[str, Any], print_one: Callable[[Mapping[str, Any]], None]) -> None:
    """Each alert: its labels, what is wrong with it, and what there is to say of it."""
    for bad in answer["bad_alerts"]:
        fold(f"alert {bad['index'] + 1} of the delivery is no alert: {bad['problem']}", 0, "red")
    if not answer["alerts"] and not answer["bad_alerts"]:
        fold("the delivery holds no alert", 0, "yellow")
    for number, item in enumerate(answer["alerts"]):
        if number:
            say()
        labels = item["labels"]
        say(f"{labels.get('alertname', '(no alertname)')}  {item['status']}  {item['fingerprint']}", "bold")
        fold(label_text(labels), 2, "dim")
        if item.get("problem"):
            fold(str(item["problem"]), 2, "red")
        print_one(item)


def print_assumptions(answer: Mapping[str, Any]) -> None:
    """What cannot be known of that moment."""
    if answer.get("assumes"):
        say()
        fold("taken for granted:", 0, "dim")
        for assumed in answer["assumes"]:
            fold_beside("  - ", assumed, "dim")
