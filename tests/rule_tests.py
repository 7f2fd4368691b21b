"""The rule tests of deploy/prometheus, read: what they say of each alert."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from remediator.core.units import parse_duration

FOLDER = Path(__file__).resolve().parents[1] / "deploy" / "prometheus" / "tests"

TESTS: list[list[dict[str, Any]]] = [
    test.get("alert_rule_test", [])
    for file in sorted(FOLDER.glob("*.yml"))
    for test in YAML(typ="safe").load(file)["tests"]
]
"""The alert rows of each test."""


def seen_of(alert: str) -> set[str]:
    """In which of these it is seen, in one test or another: ``silent`` before it fires, ``fires``, ``ends``."""
    seen = set()
    for rows in TESTS:
        fired: set[str] = set()
        mine = [row for row in rows if row["alertname"] == alert]
        for row in sorted(mine, key=lambda row: parse_duration(row["eval_time"])):
            fires = {json.dumps(alert["exp_labels"], sort_keys=True) for alert in row["exp_alerts"]}
            seen |= {"fires"} if fires else {"ends"} if fired else {"silent"}
            seen |= {"ends"} if fired - fires else set()
            fired |= fires
    return seen
