"""What a stage of the soak found: figures, and every promise that did not hold."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

_BEGAN = time.monotonic()


@dataclass(kw_only=True)
class Verdict:
    """Of one stage.

    Attributes:
        figures: what was measured, by words with their unit.
        breaches: what should not be; empty = all held.
    """

    stage: str
    figures: dict[str, float | int | str] = field(default_factory=dict)
    breaches: list[str] = field(default_factory=list)

    def want(self, holds: bool, breach: str) -> None:
        """Note a breach unless this holds."""
        if not holds:
            self.breaches.append(breach)
            say(f"BREACH {self.stage}: {breach}")

    def to_json(self) -> Mapping[str, object]:
        return {"stage": self.stage, "ok": not self.breaches, "figures": self.figures, "breaches": self.breaches}


def say(line: str) -> None:
    """A line of progress, with the time since the start."""
    seconds = int(time.monotonic() - _BEGAN)
    print(f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}  {line}", file=sys.stderr, flush=True)


def table(verdicts: list[Verdict]) -> str:
    """All of them, for people."""
    rows = [(one.stage, name, str(value)) for one in verdicts for name, value in one.figures.items()]
    rows += [(one.stage, "verdict", "; ".join(one.breaches) or "all held") for one in verdicts]
    rows.sort(key=lambda row: [one.stage for one in verdicts].index(row[0]))
    widths = [max(len(row[place]) for row in rows) for place in (0, 1)]
    return "\n".join(f"{stage:<{widths[0]}}  {name:<{widths[1]}}  {value}" for stage, name, value in rows)
