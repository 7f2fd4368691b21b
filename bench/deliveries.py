"""Deliveries as Alertmanager sends them, made fast: the same bytes with other numbers in them.

A group's number → a body of about 2 kB with three alerts: the GPUs of one container, with one playbook to match them.
The same number gives the same label sets again, which is a repeat to the engine; a new one gives three new ones.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

ALERT = "GPUMemoryLeakSlope"
PATH = "/api/v1/alertmanager"

HELD = f"""
playbook: restart-on-leak
match: [alertname = {ALERT}, container_name != ""]
per: [host, container_name]
hold: 8h
steps:
  - name: restart
    action: docker.restart
    params: {{container: "{{{{ labels.container_name }}}}", stop_timeout: 5m}}
    timeout: 8m
verify:
  - {{alert: resolved, within: 30m}}
"""
"""Plans a restart for each container and holds it for longer than any benchmark takes."""

_GROUP = "4242424242"
"""Stands for the group's number, in as many digits, so that every body has one length."""


def body_of(labels: list[dict[str, str]], *, starts_at: str, group: dict[str, str]) -> bytes:
    """A webhook body (version 4) with one firing alert for each label set."""
    annotations = {
        "summary": f"The GPU memory of {group.get('container_name', 'it')} grows and never falls back",
        "description": "It grew by more than 64 MiB in each of the last 6 windows of 10 minutes.",
        "runbook_url": "https://runbooks.example.com/gpu-memory-leak",
    }
    common = {"alertname": ALERT, "severity": "warning", **group}
    alerts: list[dict[str, Any]] = [
        {
            "status": "firing",
            "labels": common | each,
            "annotations": annotations,
            "startsAt": starts_at,
            "endsAt": "0001-01-01T00:00:00Z",
            "generatorURL": "http://prometheus.example.com/graph?g0.expr=gpu_memory_leak_slope",
            # Alertmanager always sends one; no episode is told by it.
            "fingerprint": f"{number:016x}",
        }
        for number, each in enumerate(labels)
    ]
    payload = {
        "receiver": "remediator",
        "status": "firing",
        "alerts": alerts,
        "groupLabels": {"alertname": ALERT, **group},
        "commonLabels": common,
        "commonAnnotations": {},
        "externalURL": "http://alertmanager.example.com",
        "version": "4",
        "groupKey": f"{{}}:{json.dumps({'alertname': ALERT, **group})}",
        "truncatedAlerts": 0,
    }
    return json.dumps(payload, separators=(",", ":")).encode()


def now_text() -> str:
    """Now, as ``startsAt``. What began before the engine knew its playbooks is adopted, not acted on."""
    return datetime.now(UTC).isoformat()


class Groups:
    """Bodies by number."""

    def __init__(self, n_alerts: int = 3) -> None:
        group = {"hostname": f"gpu-{_GROUP[-3:]}", "container_name": f"trainer-{_GROUP}"}
        labels = [{"gpu": str(gpu), "UUID": f"GPU-{gpu}-{_GROUP}"} for gpu in range(n_alerts)]
        self._template = body_of(labels, starts_at=now_text(), group=group)

    def body(self, number: int) -> bytes:
        """The body of one group."""
        return self._template.replace(_GROUP.encode(), b"%010d" % number)


def storm(n_alerts: int) -> bytes:
    """One body with so many alerts, each of a container of its own."""
    labels = [{"container_name": f"storm-{number:06d}", "gpu": "0"} for number in range(n_alerts)]
    return body_of(labels, starts_at=now_text(), group={"hostname": "gpu-001"})
