"""Deliveries as Alertmanager writes them, for tests that post themselves."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import count

ZERO_TIME = "0001-01-01T00:00:00Z"
"""How Alertmanager writes that an alert has no end."""

_numbers = count(1)


def delivery(*label_sets: Mapping[str, str], starts_at: datetime | None = None) -> bytes:
    """A body in which these fire, unlike every other one that was made here, whatever the labels."""
    began = (starts_at or datetime.now(UTC)).isoformat().replace("+00:00", "Z")
    alerts = [
        {
            "status": "firing",
            "labels": dict(labels),
            "annotations": {},
            "startsAt": began,
            "endsAt": ZERO_TIME,
            "generatorURL": "",
        }
        for labels in label_sets
    ]
    body = {
        "version": "4",
        "receiver": "remediator",
        "status": "firing",
        "groupKey": f"{{}}:{next(_numbers)}",
        "alerts": alerts,
        "groupLabels": {},
        "commonLabels": {},
        "commonAnnotations": {},
        "externalURL": "http://alertmanager.invalid",
        "truncatedAlerts": 0,
    }
    return json.dumps(body).encode()
