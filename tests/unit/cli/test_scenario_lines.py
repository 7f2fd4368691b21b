"""A happening as the line that expects it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from remediator.cli.scenario_lines import expectation_line
from remediator.core.scenario import Happening, Kind

TARGET = "docker:gpu-07/trainer-0"


@pytest.mark.parametrize(
    ("kind", "value", "details", "line"),
    [
        pytest.param(
            Kind.DOES,
            "docker.restart",
            {"target": TARGET, "params": {"host": "gpu-07"}, "attempts": 1, "outcome": "succeeded", "playbook": "leak"},
            f"{{at: 13m, does: docker.restart, target: {TARGET}}}",
            id="an act as it is taken to be",
        ),
        pytest.param(
            Kind.DOES,
            "docker.restart",
            {"target": TARGET, "attempts": 3, "outcome": "failed"},
            f"{{at: 13m, does: docker.restart, target: {TARGET}, attempts: 3, outcome: failed}}",
            id="an act that went otherwise",
        ),
        pytest.param(
            Kind.UNDOES,
            "docker.limit",
            {"target": TARGET, "attempts": 2, "outcome": "succeeded"},
            f"{{at: 13m, undoes: docker.limit, target: {TARGET}, attempts: 2}}",
            id="an undo",
        ),
        pytest.param(
            Kind.ENDS,
            "failed",
            {"reason": "step_failed", "says": "step restart failed"},
            "{at: 13m, ends: failed, reason: step_failed}",
            id="an end with a reason",
        ),
        pytest.param(Kind.ENDS, "succeeded", {"reason": "none"}, "{at: 13m, ends: succeeded}", id="an end without"),
        pytest.param(Kind.RUNG, "2", {}, "{at: 13m, rung: 2}", id="a rung is a number"),
        pytest.param(Kind.WAITS, "cooldown", {"playbook": "leak"}, "{at: 13m, waits: cooldown}", id="a wait"),
        pytest.param(
            Kind.TELLS,
            "oncall",
            {"about": "escalate", "says": "it failed"},
            "{at: 13m, tells: oncall, about: escalate}",
            id="a message",
        ),
    ],
)
def test_expectation_when_made_of_what_happened_then_says_what_tells_it_from_others(
    kind: Kind, value: str, details: dict[str, Any], line: str
) -> None:
    assert expectation_line(Happening(at=timedelta(minutes=13), kind=kind, value=value, details=details)) == line
