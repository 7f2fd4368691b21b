"""When a transient failure is worth another attempt."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Finite by construction: attempts or a budget, always.

    Attributes:
        attempts: most attempts in all, >= 1; None when only the budget limits.
        wait: before the second attempt; doubles after each.
        max_wait: the longest wait between two attempts.
        jitter_pct: 0-100; each wait is changed by up to this share, either way.
        budget: no attempt starts later than this after the first; None when only ``attempts`` limits.
    """

    attempts: int | None
    wait: timedelta
    max_wait: timedelta
    jitter_pct: int
    budget: timedelta | None

    def __post_init__(self) -> None:
        if self.attempts is None and self.budget is None:
            raise ValueError("a retry policy needs attempts or a budget")
        if self.attempts is not None and self.attempts < 1:
            raise ValueError("attempts count from 1")

    @classmethod
    def default(cls) -> RetryPolicy:
        """What a step has that sets none: 3 attempts, 2 s → 30 s, 20 %, 10 minutes in all."""
        return cls(
            attempts=3,
            wait=timedelta(seconds=2),
            max_wait=timedelta(seconds=30),
            jitter_pct=20,
            budget=timedelta(minutes=10),
        )
