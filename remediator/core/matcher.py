"""One Alertmanager matcher: ``label op value``. (Parsing and matching: see functions below.)"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from remediator.core.alert import Labels


class MatchOp(StrEnum):
    """Alertmanager's four operators."""

    EQUAL = "="
    NOT_EQUAL = "!="
    REGEX = "=~"
    NOT_REGEX = "!~"


@dataclass(frozen=True, slots=True, kw_only=True)
class Matcher:
    """One matcher. Regexes are RE2 and fully anchored; an absent label is "".

    Attributes:
        label: exact name, case kept.
        value: unquoted.
    """

    label: str
    op: MatchOp
    value: str

    def matches(self, labels: Labels) -> bool:
        """Whether it holds for these labels."""
        raise NotImplementedError
