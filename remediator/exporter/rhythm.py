"""When to sample: at least once an interval, and where it can be shortly before each scrape. Pure: the time is given.

Takes → gives: when who scraped, when the last sample was taken → when the next is due.

A sample of a fixed rhythm is up to an interval old when it is scraped, and shorter intervals cost the driver's time for
values that nobody reads. A Prometheus scrapes on a rhythm of its own, steady to milliseconds: so it is learned.

Must never: leave two samples further apart than ``MOST_STRETCH`` intervals, or closer than ``LEAST_GAP_S``, whatever
comes in: anybody can scrape.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

LEAD_S: Final = 0.5
"""A sample begins so long before the scrape that it is for: eight GPUs answer in a tenth of a second, slow ones in a
few."""

LEAST_GAP_S: Final = 1.0
"""What is sampled more often than once a second says nothing new: the driver's own values are means over as long."""

MOST_STRETCH: Final = 1.25
"""The next sample may wait so many intervals for a scrape: then it is one sample, instead of two close together."""

_SAME_GAP_S: Final = 0.25
"""Two gaps between scrapes are one rhythm when they differ by no more."""

_MOST_SCRAPERS: Final = 8
"""Two Prometheus of a pair, and some more while they are replaced. The one longest silent is forgotten first."""


@dataclass(slots=True)
class _Scraper:
    last_s: float
    gap_s: float = 0.0
    is_regular: bool = False


class Rhythm:
    """When the next sample is due. For one thread at a time."""

    def __init__(self, interval_s: float) -> None:
        """Know nobody yet.

        Args:
            interval_s: seconds, at least 1: at most so long between two samples, but for ``MOST_STRETCH``. Who scrapes
                more often than this is given the same sample several times.
        """
        self._interval_s = interval_s
        self._scrapers: dict[Hashable, _Scraper] = {}

    def scraped(self, scraper: Hashable, at_s: float) -> None:
        """Somebody scrapes now.

        Args:
            scraper: the connection, as servers keep one open. Two of one host are two rhythms.
            at_s: on the clock of ``next_s``.
        """
        known = self._scrapers.pop(scraper, None)
        gap_s = at_s - known.last_s if known else 0.0
        self._scrapers[scraper] = _Scraper(
            last_s=at_s, gap_s=gap_s, is_regular=known is not None and abs(gap_s - known.gap_s) <= _SAME_GAP_S
        )
        if len(self._scrapers) > _MOST_SCRAPERS:
            del self._scrapers[next(iter(self._scrapers))]

    def next_s(self, last_s: float) -> float:
        """When the next sample is due.

        Args:
            last_s: when the last was.
        """
        due_s = last_s + self._interval_s
        latest_s = last_s + MOST_STRETCH * self._interval_s
        wanted = (
            scraper.last_s + scraper.gap_s - LEAD_S
            for scraper in self._scrapers.values()
            # Half a second off counts as the interval: two clocks never agree.
            if scraper.is_regular and scraper.gap_s >= self._interval_s - LEAD_S
        )
        return min((each for each in wanted if last_s + LEAST_GAP_S <= each <= latest_s), default=due_s)
