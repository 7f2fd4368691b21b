"""What ``doctor`` found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad it is. Only a problem makes the exit code 1."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing tried.

    Attributes:
        check: what was tried (``store``, ``docker gpu-07``).
        text: what was seen.
        advice: what to do about it, "" when it is ok.
    """

    check: str
    level: Level
    text: str
    advice: str = ""


def ok(check: str, text: str) -> Finding:
    """It is as it should be."""
    return Finding(check=check, level=Level.OK, text=text)


def warning(check: str, text: str, advice: str) -> Finding:
    """It works, and somebody should look at it."""
    return Finding(check=check, level=Level.WARNING, text=text, advice=advice)


def problem(check: str, text: str, advice: str) -> Finding:
    """It does not work, or alerts or acts will be lost."""
    return Finding(check=check, level=Level.PROBLEM, text=text, advice=advice)
