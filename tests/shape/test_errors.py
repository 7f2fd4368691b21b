"""``errors.py`` draws every exception of the project, and holds every one."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

from remediator import errors

PACKAGE = Path(errors.__file__).parent
CLASSES = {
    name for name, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.RemediatorError)
}


def test_error_tree_when_read_then_names_every_class_and_no_other() -> None:
    drawn = set(re.findall(r"\b[A-Z][A-Za-z]*Error\b", inspect.getdoc(errors) or ""))

    assert drawn == CLASSES


def test_public_error_classes_when_looked_for_then_stand_in_one_module() -> None:
    elsewhere = [
        f"{source.relative_to(PACKAGE)}: {node.name}"
        for source in PACKAGE.rglob("*.py")
        if source != PACKAGE / "errors.py"
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.ClassDef) and node.name.endswith("Error") and not node.name.startswith("_")
    ]

    assert elsewhere == []
