"""Words that are kept out of names, because each stands for an idea that this project calls otherwise or has not."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "remediator"
SOURCES = sorted(PACKAGE.rglob("*.py"))

FORBIDDEN_WORDS = ("Workflow", "Ticket", "Rollback", "Handler", "Occurrence", "Manager", "Util")
FORBIDDEN_MODULES = {"utils", "util", "helpers", "helper", "common", "manager", "base", "misc"}


NEIGHBOUR = re.compile("alertmanager", re.IGNORECASE)
"""A neighbour's own name."""


def has_forbidden_word(name: str) -> bool:
    """Whether a name holds one of the words, neighbours' own names left out."""
    ours = NEIGHBOUR.sub("", name).lower()
    return any(word.lower() in ours for word in FORBIDDEN_WORDS)


def class_names(source: Path) -> list[str]:
    """Every class that a file defines."""
    return [node.name for node in ast.walk(ast.parse(source.read_text())) if isinstance(node, ast.ClassDef)]


def test_class_names_when_read_then_hold_no_forbidden_word() -> None:
    named = [f"{source.relative_to(ROOT)}: {name}" for source in SOURCES for name in class_names(source)]

    found = [name for name in named if has_forbidden_word(name.rpartition(": ")[2])]

    assert found == []
    assert len(named) > 50


def test_module_names_when_read_then_hold_no_forbidden_word() -> None:
    names = [source.stem if source.stem != "__init__" else source.parent.name for source in SOURCES]

    found = [name for name in names if name in FORBIDDEN_MODULES or has_forbidden_word(name)]

    assert found == []


def test_modules_when_read_then_each_says_what_it_is_for() -> None:
    silent = [
        str(source.relative_to(ROOT)) for source in SOURCES if not ast.get_docstring(ast.parse(source.read_text()))
    ]

    assert silent == []


def test_sources_when_read_then_hold_no_unfinished_work() -> None:
    mark = re.compile(r"\b(TODO|FIXME|XXX)\b|raise NotImplementedError")

    found = [str(source.relative_to(ROOT)) for source in SOURCES if mark.search(source.read_text())]

    assert found == []


def test_test_folders_when_read_then_are_no_packages() -> None:
    # Two test files of one name in two packages would hide one another; importlib mode needs none.
    assert sorted((ROOT / "tests").rglob("__init__.py")) == []
