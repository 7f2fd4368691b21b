"""The percentiles that the benchmarks' figures are."""

from __future__ import annotations

import random

import pytest

from bench.result import median, percentile


@pytest.mark.parametrize(
    ("n_values", "pct", "expected"),
    [
        pytest.param(1, 99.9, 1, id="of one value every percentile is that value"),
        pytest.param(2, 50, 1, id="the median of two is the lower one, which was measured"),
        pytest.param(3, 50, 2, id="the median of three is the middle one"),
        pytest.param(100, 99, 99, id="99 % of 100 is the 99th"),
        pytest.param(101, 99, 100, id="99 % of 101 needs one more"),
        pytest.param(1000, 99.9, 999, id="99.9 % of 1,000 is the 999th, not the 1,000th by a rounding"),
        pytest.param(20, 99, 20, id="a high percentile of few values is the largest"),
        pytest.param(20, 100, 20, id="100 % is the largest"),
    ],
)
def test_percentile_of_1_to_n_in_any_order_is_the_nearest_rank(n_values: int, pct: float, expected: int) -> None:
    values = list(range(1, n_values + 1))
    random.shuffle(values)
    assert percentile(values, pct) == expected


def test_median_is_the_50th_percentile() -> None:
    assert median([9.0, 1.0, 5.0]) == 5.0


@pytest.mark.parametrize(("values", "pct"), [([], 50), ([1.0], 0), ([1.0], 100.1)])
def test_percentile_of_nothing_or_beyond_all_is_refused(values: list[float], pct: float) -> None:
    with pytest.raises(ValueError, match="percentage above 0"):
        percentile(values, pct)
