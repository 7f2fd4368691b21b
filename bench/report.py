"""Sections → a table on the terminal, ``RESULTS.md`` and JSON: the same figures in each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from bench.result import Figure, Section


def as_json(machine: Mapping[str, Figure], sections: Sequence[Section]) -> str:
    """All figures of one run."""
    return json.dumps(
        {
            "machine": dict(machine),
            "figures": {section.name: section.figures for section in sections},
            "aims": [
                {"section": section.name, "wanted": aim.wanted, "got": aim.got, "is_reached": aim.is_reached}
                for section in sections
                for aim in section.aims
            ],
        },
        indent=2,
    )


def show(console: Console, machine: Mapping[str, Figure], sections: Sequence[Section]) -> None:
    """Everything, for people."""
    console.print(_one_line(machine), style="dim")
    for section in sections:
        console.print(f"\n{section.title}", style="bold")
        console.print(section.about, style="dim")
        if section.rows:
            table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
            for number, column in enumerate(section.columns):
                table.add_column(column, justify="left" if not number else "right", overflow="fold")
            for row in section.rows:
                table.add_row(*row)
            console.print(table)
        for aim in section.aims:
            mark, style = ("reached", "green") if aim.is_reached else ("missed ", "red")
            console.print(f"{mark}  {aim.wanted}: {aim.got}", style=style)
        for limit in section.limits:
            console.print(f"- {limit}")


def write_results(path: Path, machine: Mapping[str, Figure], sections: Sequence[Section], written_by: str) -> None:
    """``RESULTS.md``, or the same of some sections.

    Args:
        written_by: the command, and where else its figures are.
    """
    lines = [
        "# Results",
        "",
        f"Written by {written_by}.",
        "",
        _one_line(machine),
        "",
    ]
    for section in sections:
        lines += [f"## {section.title}", "", section.about, ""]
        if section.rows:
            lines += [_row(section.columns), _row(["---", *["---:"] * (len(section.columns) - 1)])]
            lines += [_row(row) for row in section.rows]
            lines.append("")
        if section.aims:
            lines += [_row(("aim", "measured", "reached")), _row(("---", "---", "---"))]
            lines += [_row((aim.wanted, aim.got, "yes" if aim.is_reached else "**no**")) for aim in section.aims]
            lines.append("")
        lines += [f"- {limit}" for limit in section.limits]
        lines += [""] if section.limits else []
    path.write_text("\n".join(lines))


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _one_line(machine: Mapping[str, Figure]) -> str:
    return (
        f"{machine['cores']} cores ({machine['processor']}), {machine['memory_gib']} GiB, Linux {machine['kernel']},"
        f" {machine['file_system']}, Python {machine['python']}, SQLite {machine['sqlite']};"
        f" load average before: {machine['load_average_before']}."
    )
