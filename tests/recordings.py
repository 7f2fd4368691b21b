"""What real Alertmanagers sent (recorded by ``realparts.golden``), and what people expect of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from remediator.core.alert import AlertGroup, fingerprint

FOLDER = Path(__file__).parent / "data" / "golden"
EXPECTED: Mapping[str, Any] = YAML(typ="safe").load(FOLDER / "expected.yaml")
VERSIONS = tuple(sorted(folder.name for folder in FOLDER.iterdir() if folder.is_dir()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Golden:
    """One recorded delivery.

    Attributes:
        version: of the Alertmanager, "0.25".
        name: its row in ``expected.yaml``.
        at: when it came in.
        path: to which it was posted, query and all.
        headers: that came with it.
        body: byte for byte.
    """

    version: str
    name: str
    at: datetime
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def payload(self) -> dict[str, Any]:
        """The body as JSON, for what ``decode`` does not keep."""
        parsed: dict[str, Any] = json.loads(self.body)
        return parsed

    @property
    def row(self) -> Mapping[str, Any]:
        """What people expect of it."""
        row: Mapping[str, Any] = EXPECTED["bodies"][self.name]
        return row


def recorded(version: str, begins: str = "") -> list[Golden]:
    """The deliveries of one version whose names begin so, in the order in which they came."""
    return [
        Golden(
            version=version,
            name=row["body"].removesuffix(".json"),
            at=datetime.fromisoformat(row["at"]),
            path=row["path"],
            headers=row["headers"],
            body=(FOLDER / version / row["body"]).read_bytes(),
        )
        for row in json.loads((FOLDER / version / "deliveries.json").read_text())
        if row["body"].startswith(begins)
    ]


def said(group: AlertGroup) -> dict[str, Any]:
    """What ``decode`` made of a body, as a row of ``expected.yaml`` puts it."""
    first = group.alerts[0]
    return {
        "alerts": [(alert.labels["container_name"], alert.status.value) for alert in group.alerts],
        "labels": first.labels,
        "annotations": first.annotations,
        "receiver": group.receiver,
        "n_truncated": group.n_truncated,
        "own_fingerprints": [alert.fingerprint for alert in group.alerts],
        "ends": [alert.ends_at is not None for alert in group.alerts],
    }


def expected(row: Mapping[str, Any], group: AlertGroup) -> dict[str, Any]:
    """What a row says that ``said`` is to be; fingerprints are computed from the labels that came."""
    first_container = next(iter(row["alerts"]))
    plain = {"alertname": "GPUMemoryLeakSlope", "hostname": "gpu-07", "container_name": first_container}
    return {
        "alerts": list(row["alerts"].items()),
        "labels": row.get("labels", plain),
        "annotations": row.get("annotations", {}),
        "receiver": row.get("receiver", EXPECTED["receiver"]),
        "n_truncated": row.get("n_truncated", 0),
        "own_fingerprints": [fingerprint(alert.labels) for alert in group.alerts],
        "ends": [status == "resolved" for status in row["alerts"].values()],
    }
