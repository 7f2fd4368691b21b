"""When to sample, learned from who scrapes."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remediator.exporter.rhythm import LEAD_S, LEAST_GAP_S, MOST_STRETCH, Rhythm

INTERVAL_S = 5.0


def ages(scrapers: Mapping[str, tuple[float, float]], *, until_s: float = 600.0) -> tuple[dict[str, list[float]], int]:
    """Plays scrapes on a rhythm: scraper → (first, period) → ages of the samples that each saw, and their number."""
    rhythm = Rhythm(INTERVAL_S)
    seen: dict[str, list[float]] = {name: [] for name in scrapers}
    scrapes = sorted(
        (first_s + n * period_s, name)
        for name, (first_s, period_s) in scrapers.items()
        for n in range(int((until_s - first_s) / period_s))
    )
    last_s, n_samples = 0.0, 1
    for at_s, name in scrapes:
        while (due_s := rhythm.next_s(last_s)) <= at_s:
            last_s, n_samples = due_s, n_samples + 1
        seen[name].append(at_s - last_s)
        rhythm.scraped(name, at_s)
    return seen, n_samples


@pytest.mark.parametrize("first_s", [0.1, 1.3, 2.5, 3.7, 4.9])
@pytest.mark.parametrize("period_s", [5.0, 5.0007, 4.9993, 7.0, 10.0, 15.0, 30.0, 60.0])
def test_rhythm_when_somebody_scrapes_steadily_then_a_sample_is_taken_just_before(
    first_s: float, period_s: float
) -> None:
    seen, n_samples = ages({"prometheus": (first_s, period_s)})

    # Three scrapes are two gaps: then it is known. The sample that was taken before may be the nearer one for a while.
    assert max(seen["prometheus"][3:]) <= LEAD_S + LEAST_GAP_S + 0.01
    assert n_samples <= 600 / INTERVAL_S + 600 / period_s


def test_rhythm_when_scraped_at_its_own_interval_then_takes_one_sample_for_each_scrape() -> None:
    seen, n_samples = ages({"prometheus": (2.2, 5.0)})

    assert max(seen["prometheus"][4:]) == pytest.approx(LEAD_S, abs=0.01)
    assert n_samples <= 122


def test_rhythm_when_two_scrape_at_different_times_then_each_has_a_sample_of_his_own() -> None:
    seen, n_samples = ages({"one": (1.0, 5.0), "other": (3.4, 5.0)})

    assert max(max(each[4:]) for each in seen.values()) <= LEAD_S + 0.01
    assert n_samples <= 242


def test_rhythm_when_scraped_more_often_than_its_interval_then_samples_no_more_often() -> None:
    _, n_samples = ages({"impatient": (0.3, 1.0)})

    assert n_samples == 120


def test_rhythm_when_nobody_scrapes_then_keeps_its_interval() -> None:
    assert Rhythm(INTERVAL_S).next_s(100.0) == 105.0


def test_rhythm_when_a_scraper_is_gone_then_keeps_its_interval() -> None:
    rhythm = Rhythm(INTERVAL_S)
    for n in range(5):
        rhythm.scraped("gone", 2.0 + 5.0 * n)

    assert rhythm.next_s(500.0) == 505.0


def test_rhythm_when_strangers_scrape_by_the_thousand_then_remembers_a_few() -> None:
    rhythm = Rhythm(INTERVAL_S)
    for n in range(3):
        for name in range(1000):
            rhythm.scraped(name, 5.0 * n + name / 1000)

    assert len(rhythm._scrapers) < 10


@given(
    scrapes=st.lists(st.tuples(st.integers(0, 12), st.floats(0, 20)), max_size=60),
    last_s=st.floats(0, 30),
    first=st.floats(0, 30),
)
def test_rhythm_when_anybody_scrapes_in_any_way_then_samples_are_neither_too_close_nor_too_far(
    scrapes: list[tuple[int, float]], last_s: float, first: float
) -> None:
    rhythm = Rhythm(INTERVAL_S)
    at_s = first
    for name, gap_s in scrapes:
        at_s += gap_s
        rhythm.scraped(name, at_s)

    gap_s = rhythm.next_s(last_s) - last_s

    assert LEAST_GAP_S - 1e-9 <= gap_s <= MOST_STRETCH * INTERVAL_S + 1e-9
