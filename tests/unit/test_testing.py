"""The kit for authors of actions."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from remediator.core.alert import AlertStatus
from remediator.core.decode import decode
from remediator.testing import alert


def test_alert_when_built_then_it_is_what_decode_gives() -> None:
    labels, annotations = {"alertname": "GPUMemoryLeakSlope", "host.name": "gpu-07"}, {"checkpoint_signal": "USR1"}
    member = {
        "status": "resolved", "labels": labels, "annotations": annotations,
        "startsAt": "2026-01-01T00:00:00+00:00", "endsAt": "2026-01-01T00:01:00+00:00",
    }  # fmt: skip
    body = json.dumps({"version": "4", "alerts": [member]}).encode()
    (decoded,) = decode(body, datetime(2026, 1, 1, tzinfo=UTC)).alerts
    assert alert(labels, annotations=annotations, status=AlertStatus.RESOLVED) == decoded
