"""Conditions: a query that gives one number, and what the number is compared with. Pure.

Absent is never good: no value, several series, NaN and no answer all mean that nobody knows.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

_EXACT = 2**53
"""Whole numbers above are not told apart by a float; they are said with an exponent."""


class Comparison(StrEnum):
    """How a number is compared with the bound."""

    BELOW = "below"
    ABOVE = "above"
    EQUALS = "equals"


class Seen(StrEnum):
    """What one look at a condition says."""

    MET = "met"
    NOT_MET = "not_met"
    NO_VALUE = "no_value"
    """No series, several, NaN, or no answer: never good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A rendered condition.

    Attributes:
        name: what tests and messages call it; ``verify_1`` and so on where the file names none.
        query: PromQL, label values quoted.
        bound: the number as written, since the audit holds no floats.
    """

    name: str
    query: str
    comparison: Comparison
    bound: str

    def is_met(self, value: float) -> bool:
        """Whether the number is as it should be; NaN never is."""
        bound = float(self.bound)
        match self.comparison:
            case Comparison.BELOW:
                return value < bound
            case Comparison.ABOVE:
                return value > bound
            case Comparison.EQUALS:
                return value == bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a Prometheus answered to one query.

    Attributes:
        values: of all series, () when there is none.
        problem: why there was no answer, "" when there was one.
    """

    values: tuple[float, ...] = ()
    problem: str = ""


def look(condition: Condition, reading: Reading) -> tuple[Seen, str]:
    """What a reading says of a condition, and one line for people: ``memory_ratio is 1.03, must be below 0.8``."""
    how = "" if condition.comparison is Comparison.EQUALS else f"{condition.comparison.value} "
    wanted = f"must be {how}{condition.bound}"
    if reading.problem:
        return Seen.NO_VALUE, f"{condition.name} has no answer: {reading.problem}"
    if not reading.values:
        return Seen.NO_VALUE, f"{condition.name} has no value, {wanted}"
    if len(reading.values) > 1:
        return Seen.NO_VALUE, f"{condition.name} has {len(reading.values)} values where one is meant, {wanted}"
    value = reading.values[0]
    if math.isnan(value):
        return Seen.NO_VALUE, f"{condition.name} is NaN, {wanted}"
    seen = Seen.MET if condition.is_met(value) else Seen.NOT_MET
    return seen, f"{condition.name} is {_number(value, condition)}, {wanted}"


def _number(value: float, condition: Condition) -> str:
    """Short for people, and never so short that it would belie what was seen: 0.8000001 is not below 0.8."""
    if float(value).is_integer() and abs(value) < _EXACT:
        return str(int(value))
    short = f"{value:g}"
    return short if condition.is_met(float(short)) is condition.is_met(value) else repr(value)


def read_back(condition: Condition, seen: Seen | None, detail: str) -> Reading | None:
    """The reading of which ``look`` said this: the log keeps its words, and no numbers.

    Args:
        seen: what the look said, where that is known.
        detail: as ``look`` writes it, maybe among others.

    Returns:
        The number, or why there was none. Of several series how many there were: 1.0, 2.0 and so on. Where the words
        hold nothing (they are cut), a number that says ``seen`` again; None where neither is there.
    """
    found = re.search(rf"(?<!\w){re.escape(condition.name)} {_SAID}", detail, re.DOTALL)
    if found is not None and found["number"] is not None:
        return Reading(values=(float(found["number"]),))
    if found is not None and found["n"] is not None:
        return Reading(values=tuple(float(n) for n in range(1, int(found["n"]) + 1)))
    if found is not None or seen is Seen.NO_VALUE:
        return Reading(problem=found["why"] or "" if found is not None else "")
    return None if seen is None else Reading(values=(number_that(condition, is_met=seen is Seen.MET),))


_SAID = (
    r"(?:is (?P<number>NaN|[-+]?(?:inf|[\d.]+(?:e[-+]?\d+)?)), must be "
    r"|has (?P<n>\d+) values |has no value|has no answer: (?P<why>.*))"
)
"""What ``look`` writes behind a condition's name."""


def number_that(condition: Condition, *, is_met: bool) -> float:
    """A number with which the condition is met, or is not."""
    bound = float(condition.bound)
    step = max(abs(bound) / 10, 1.0)
    match condition.comparison:
        case Comparison.BELOW:
            return bound - step if is_met else bound + step
        case Comparison.ABOVE:
            return bound + step if is_met else bound - step
        case Comparison.EQUALS:
            return bound if is_met else bound + step


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One entry of ``verify``: a condition over time, or that the alert is resolved.

    Attributes:
        within: after the end of the step; the last look in it decides.
        condition: None = the subject must be resolved.
        settle: no look before this.
        holds: the condition must be met this long without a break, inside ``within``.
    """

    within: timedelta
    condition: Condition | None = None
    settle: timedelta = timedelta(0)
    holds: timedelta = timedelta(0)
