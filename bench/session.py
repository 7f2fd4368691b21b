"""One run of the benchmarks: where its files are, how long it may take, and how it says what it does now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What every benchmark is given.

    Attributes:
        folder: of this run, removed after it.
        is_quick: a fraction of the work, to see that it works; its figures are no results.
        say: shows what is measured now.
    """

    folder: Path
    is_quick: bool
    say: Callable[[str], None]
