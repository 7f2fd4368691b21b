"""What a benchmark gives: a table for people, figures for programs, aims with what came of them, and what limits it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

Figure = float | int | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """What was wanted, with the measured value in words, and whether it was reached."""

    wanted: str
    got: str
    is_reached: bool


@dataclass(slots=True, kw_only=True)
class Section:
    """One benchmark's answer.

    Attributes:
        name: as ``--only`` takes it.
        about: how it was measured.
        rows: cells of ``columns``, as text; the first is the row's name.
        limits: what limits the figures, one sentence each.
        figures: by dotted name, with the unit at its end.
    """

    name: str
    title: str
    about: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)
    aims: list[Aim] = field(default_factory=list)
    limits: list[str] = field(default_factory=list)
    figures: dict[str, Figure] = field(default_factory=dict)

    def aim(self, wanted: str, got: str, *, is_reached: bool) -> None:
        """Add an aim."""
        self.aims.append(Aim(wanted=wanted, got=got, is_reached=is_reached))


def percentile(values: Sequence[float], pct: float) -> float:
    """The smallest value that at least ``pct`` percent of all are not above (nearest rank).

    Nothing is interpolated: what it gives was measured. For few values a high percentile is the largest of them.

    Args:
        values: any order, at least one.
        pct: above 0, up to 100.

    Raises:
        ValueError: no value, or such a percentage.
    """
    if not values or not 0 < pct <= 100:
        raise ValueError("a percentile needs values, and a percentage above 0 and up to 100")
    # In whole thousandths of a percent, so that 99.9 % of 1,000 is 999 and not the 1,000th by a rounding.
    rank = -(-len(values) * round(pct * 1000) // 100_000)
    return sorted(values)[rank - 1]


def median(values: Sequence[float]) -> float:
    """The 50th percentile."""
    return percentile(values, 50)
