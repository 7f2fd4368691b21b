"""Columns of metrics, and the page that an exporter makes of them.

Renderers give ``Column``s: one series each, over all times that were asked for. A live page is the columns of one time,
a history the columns of many, so that both say the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from simulator.noise import Values

Labels = tuple[tuple[str, str], ...]
"""In the order in which the exporter writes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One series.

    Attributes:
        kind: ``gauge``, ``counter`` or another word after ``# TYPE``.
        help: of its metric.
        values: over the times; NaN where the exporter does not write it.
    """

    name: str
    kind: str
    help: str
    labels: Labels
    values: Values


NUMBER = "%.15g"
"""Exact for what exporters print, and the same in every kind of output."""


def text(columns: Iterable[Column], at: int = 0) -> str:
    """The page at the ``at``th of the times, in Prometheus' text format 0.0.4."""
    by_name: dict[str, list[Column]] = {}
    for column in columns:
        if not np.isnan(column.values[at]):
            by_name.setdefault(column.name, []).append(column)
    lines = []
    for name, same in by_name.items():
        lines += [f"# HELP {name} {same[0].help}", f"# TYPE {name} {same[0].kind}"]
        lines += [f"{name}{braced(column.labels)} {NUMBER % column.values[at]}" for column in same]
    return "".join(line + "\n" for line in lines)


def braced(labels: Iterable[tuple[str, str]]) -> str:
    """``{name="value",…}``; "" for none."""
    inner = ",".join(f'{name}="{escaped(value)}"' for name, value in labels)
    return f"{{{inner}}}" if inner else ""


def escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
