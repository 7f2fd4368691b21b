"""The pinned versions: complete, and silent about where packages come from."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINES = (ROOT / "constraints.txt").read_text().splitlines()


def normalised(requirement: str) -> str:
    """The package name of a requirement, as indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^A-Za-z0-9._-]", requirement)[0]).lower()


def test_constraints_when_read_then_every_line_is_one_name_and_one_version() -> None:
    assert [line for line in LINES if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.+!]*", line)] == []


def test_constraints_when_compared_with_pyproject_then_every_dependency_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {normalised(line) for line in [*project["dependencies"], *project["optional-dependencies"]["dev"]]}
    assert wanted - {normalised(line) for line in LINES} == set()
