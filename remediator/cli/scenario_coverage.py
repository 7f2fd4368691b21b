"""``--coverage``: what of the playbooks and policies no scenario reached.

Takes → gives: the test files, what became of their scenarios → ``Coverage``; as lines with their place, or as a map.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from remediator.cli.terminal import say
from remediator.core.scenario import TestFile
from remediator.engine.coverage import NEVER, Coverage, measure
from remediator.engine.playtest import Result
from remediator.loading import documents_of


def coverage_of(files: Sequence[TestFile], results: Sequence[Result], paths: Sequence[Path]) -> Coverage:
    """What was reached of the files that the tests name, and of the playbooks in the folders that were asked for.

    Args:
        files: all that were found, whether their scenarios were chosen or not.
        paths: as they were asked for; a playbook beside which there is no test is missed whole.
    """
    of_tests = {file.file: documents_of([_shown(path) for path in file.paths]) for file in files}
    found = documents_of([_shown(path) for path in paths if path.is_dir()])
    for documents in of_tests.values():
        found |= documents
    played = (
        ([str(path) for path in of_tests[result.file.file]], (recorded.event for recorded in result.events))
        for result in results
    )
    return measure({str(path): found[path] for path in sorted(found)}, played)


def _shown(path: Path) -> Path:
    """One name for each file; those below the working directory as people type them."""
    real = os.path.realpath(path)
    below = os.path.relpath(real)
    return Path(real if below.startswith(os.pardir) else below)


def print_coverage(coverage: Coverage) -> None:
    """What was missed, each with its place, and the share that was reached."""
    say()
    for missed in coverage.missed:
        say(f"{missed.file}:{missed.line}:{missed.column}: {missed.of}: {missed.what}: {NEVER[missed.kind]}", "yellow")
    n = len(coverage.places)
    say(f"coverage: {int(coverage.pct)} %, {n - len(coverage.missed)} of {n}", "bold")


def coverage_data(coverage: Coverage) -> dict[str, Any]:
    """For ``--json``."""
    return {
        "percent": round(coverage.pct, 1),
        "n": len(coverage.places),
        "missed": [
            {
                "file": missed.file,
                "line": missed.line,
                "column": missed.column,
                "of": missed.of,
                "kind": missed.kind.value,
                "what": missed.what,
                "why": NEVER[missed.kind],
            }
            for missed in coverage.missed
        ],
    }
