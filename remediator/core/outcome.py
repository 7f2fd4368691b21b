"""How a step or a run ended. Unknown is an outcome."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """Of one attempt or step."""

    SUCCEEDED = "succeeded"
    UNCHANGED = "unchanged"
    FAILED = "failed"
    UNKNOWN = "unknown"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"


class RunOutcome(StrEnum):
    """Of a run. ``succeeded``: its steps were done and, where it asked, it was seen to help."""

    SUCCEEDED = "succeeded"
    UNCHANGED = "unchanged"
    FAILED = "failed"
    UNKNOWN = "unknown"
    CANCELLED = "cancelled"
    INEFFECTIVE = "ineffective"
    UNVERIFIED = "unverified"
    REFUSED = "refused"
    EXPIRED = "expired"
    STALE = "stale"
    OBSERVED = "observed"


class Effect(StrEnum):
    """What a look at the target says about an attempt that gave no answer."""

    HAPPENED = "happened"
    AS_BEFORE = "as_before"
    UNCLEAR = "unclear"
