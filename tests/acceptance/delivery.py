"""Deliveries as Alertmanager writes them, for tests that post themselves."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count

ZERO_TIME = "0001-01-01T00:00:00Z"
"""How Alertmanager writes that an alert has no end."""

_numbers = count(1)


def delivery(*label_sets: Mapping[str, str], starts_at: datetime | None = None) -> bytes:
    """A body in which these fire, unlike every other one that was made here, whatever the labels."""
    return _body("firing", label_sets, starts_at or datetime.now(UTC), None)


def resolved(*label_sets: Mapping[str, str]) -> bytes:
    """A body in which these are over."""
    now = datetime.now(UTC)
    return _body("resolved", label_sets, now - timedelta(seconds=1), now)


def _body(status: str, label_sets: Sequence[Mapping[str, str]], starts_at: datetime, ends_at: datetime | None) -> bytes:
    alerts = [
        {
            "status": status,
            "labels": dict(labels),
            "annotations": {},
            "startsAt": _written(starts_at),
            "endsAt": ZERO_TIME if ends_at is None else _written(ends_at),
            "generatorURL": "",
        }
        for labels in label_sets
    ]
    body = {
        "version": "4",
        "receiver": "remediator",
        "status": status,
        "groupKey": f"{{}}:{next(_numbers)}",
        "alerts": alerts,
        "groupLabels": {},
        "commonLabels": {},
        "commonAnnotations": {},
        "externalURL": "http://alertmanager.invalid",
        "truncatedAlerts": 0,
    }
    return json.dumps(body).encode()


def _written(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")
