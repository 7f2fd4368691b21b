"""A retry policy is finite, or it is not made."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from remediator.core.retry import RetryPolicy

WAITS: dict[str, Any] = {"wait": timedelta(seconds=2), "max_wait": timedelta(seconds=30), "jitter_pct": 20}


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        pytest.param({"attempts": None, "budget": None}, "needs attempts or a budget", id="no limit at all"),
        pytest.param({"attempts": 0, "budget": None}, "count from 1", id="no attempt at all"),
        pytest.param({"attempts": -1, "budget": timedelta(1)}, "count from 1", id="fewer than none"),
    ],
)
def test_policy_when_its_limits_mean_nothing_then_is_refused(limits: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        RetryPolicy(**WAITS, **limits)


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param({"attempts": 1, "budget": None}, id="attempts alone"),
        pytest.param({"attempts": None, "budget": timedelta(minutes=1)}, id="a budget alone"),
    ],
)
def test_policy_when_one_limit_is_set_then_that_is_enough(limits: dict[str, Any]) -> None:
    made = RetryPolicy(**WAITS, **limits)

    assert (made.attempts, made.budget) == (limits["attempts"], limits["budget"])


def test_default_is_what_its_docstring_says() -> None:
    assert RetryPolicy.default() == RetryPolicy(attempts=3, budget=timedelta(minutes=10), **WAITS)
