"""An alert made on the command line, for ``plan`` and ``run``.

Takes → gives: ``--alert alertname=Leak host=gpu-07`` → labels, annotations, a webhook body as Alertmanager writes it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from remediator.core.alert import fingerprint

F = TypeVar("F", bound=Callable[..., Any])
Pair = tuple[str, str]

_ZERO_TIME = "0001-01-01T00:00:00Z"
"""How Alertmanager writes that an alert has no end."""


class PairType(click.ParamType[Pair]):
    """``name=value``; the value may be empty and may hold further ``=``."""

    name = "LABEL=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Pair:
        """Split at the first ``=``."""
        if isinstance(value, tuple):
            return value
        name, equals, text = str(value).partition("=")
        if not name or not equals:
            self.fail(f"{value!r} is not of the form LABEL=VALUE", param, ctx)
        return name, text


PAIR = PairType()


def alert_options(command: F) -> F:
    """``--alert`` and ``--annotation``, handed on as ``alert`` and ``annotation``: tuples of pairs."""
    command = click.option("--annotation", type=PAIR, multiple=True, help="An annotation of the alert; repeatable.")(
        command
    )
    return click.option(
        "--alert",
        type=PAIR,
        multiple=True,
        help="A label of the alert; repeatable, and further LABEL=VALUE may follow it.",
    )(command)


def as_map(pairs: Iterable[Pair], option: str) -> dict[str, str]:
    """The pairs as a map.

    Raises:
        click.BadParameter: one name twice.
    """
    values: dict[str, str] = {}
    for name, value in pairs:
        if name in values:
            raise click.BadParameter(f"{name} is given twice", param_hint=option)
        values[name] = value
    return values


def webhook_body(labels: dict[str, str], annotations: dict[str, str]) -> bytes:
    """One firing alert, started now, as a delivery.

    Source: Alertmanager webhook, version 4.
    """
    alert = {
        "status": "firing",
        "labels": labels,
        "annotations": annotations,
        "startsAt": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
        "endsAt": _ZERO_TIME,
        "generatorURL": "",
        "fingerprint": fingerprint(labels),
    }
    body = {
        "receiver": "cli",
        "status": "firing",
        "alerts": [alert],
        "groupLabels": {},
        "commonLabels": labels,
        "commonAnnotations": annotations,
        "externalURL": "",
        "version": "4",
        "groupKey": "cli",
        "truncatedAlerts": 0,
    }
    return json.dumps(body).encode()
