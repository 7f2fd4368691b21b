"""``decide_retry``: tenacity's answer to one failure, row by row. A release of it that answers otherwise fails here."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from plans import NOW
from remediator.core.retry import RetryPolicy
from remediator.core.units import parse_duration
from remediator.engine.execute import decide_retry
from remediator.errors import ActionError, PermanentActionError, Reason, TransientActionError, UnknownEffectError

ROWS: list[dict[str, Any]] = YAML(typ="safe").load(Path(__file__).parents[2] / "data" / "retry.yaml")


def policy_of(row: dict[str, Any]) -> RetryPolicy:
    given = row["policy"]
    return RetryPolicy(
        attempts=given.get("attempts"),
        wait=parse_duration(given["wait"]),
        max_wait=parse_duration(given["max_wait"]),
        jitter_pct=given.get("jitter_pct", 0),
        budget=parse_duration(given["budget"]) if "budget" in given else None,
    )


def error_of(row: dict[str, Any]) -> ActionError:
    match row.get("error", {}):
        case "permanent":
            return PermanentActionError("no such container", reason=Reason.NO_TARGET)
        case "unknown":
            return UnknownEffectError("no answer")
        case given:
            return TransientActionError("try again", **given)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_decide_retry_when_an_attempt_failed_then(row: dict[str, Any]) -> None:
    first_started_at = NOW - parse_duration(row.get("after", "0s"))

    retry_at = decide_retry(
        policy_of(row), row["number"], error_of(row), first_started_at, NOW, lambda: row.get("jitter", 0.0)
    )

    expected = row["again_in"]
    assert retry_at == (None if expected is None else NOW + parse_duration(expected))


def test_decide_retry_when_asked_then_it_sleeps_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: pytest.fail("it slept"))
    policy = RetryPolicy(attempts=2, wait=timedelta(hours=1), max_wait=timedelta(hours=1), jitter_pct=0, budget=None)

    assert decide_retry(policy, 1, TransientActionError("x"), NOW, NOW, lambda: 0.0) == NOW + timedelta(hours=1)
