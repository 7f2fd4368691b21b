"""``tests/data/inputs.yaml``: each input that broke others has its proof here, and each proof exists."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[2]
TABLE: dict[str, list[dict[str, Any]]] = YAML(typ="safe").load(ROOT / "tests" / "data" / "inputs.yaml")
ROWS = [row for rows in TABLE.values() for row in rows]


@cache
def defined_in(file: str) -> frozenset[str]:
    """The test functions that a file defines; none when it is not there."""
    path = ROOT / file
    if not path.is_file():
        return frozenset()
    defined = (node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef))
    return frozenset(name for name in defined if name.startswith("test_"))


@cache
def rows_in(file: str) -> tuple[str, ...]:
    """The ids of a table's rows, at whatever depth; none when it is not there."""
    path = ROOT / file
    if not path.is_file():
        return ()

    def ids(value: object) -> list[str]:
        if isinstance(value, dict):
            own = [str(value["id"])] if "id" in value else []
            return own + [found for member in value.values() for found in ids(member)]
        return [found for member in value for found in ids(member)] if isinstance(value, list) else []

    return tuple(ids(YAML(typ="safe").load(path)))


def exists(proof: str) -> bool:
    """Whether a test, or a table's row, is there."""
    if "::" in proof:
        file, _, name = proof.partition("::")
        return name in defined_in(file)
    file, _, row = proof.partition("#")
    return row in rows_in(file)


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_input_when_it_has_broken_others_then_its_proofs_exist(row: dict[str, Any]) -> None:
    assert [proof for proof in row["proof"] if not exists(proof)] == []
    assert row["proof"] or row.get("later"), "say what proves it, or why nothing does yet"


def test_inputs_when_counted_then_none_was_dropped() -> None:
    assert {group: len(rows) for group, rows in TABLE.items()} == {"broken_by": 25, "traps": 16}
    assert len({row["id"] for row in ROWS}) == len(ROWS)
    assert all(set(row) <= {"id", "seen", "proof", "later"} for row in ROWS)


@pytest.mark.parametrize(
    "proof",
    [
        "tests/shape/test_inputs.py::test_of_nothing",
        "tests/shape/test_nowhere.py::test_inputs_when_counted_then_none_was_dropped",
        "tests/data/decode.yaml#a row of nothing",
        "tests/data/nowhere.yaml#labels absent",
        "tests/shape/test_inputs.py::exists",
        "words",
    ],
)
def test_proof_when_it_is_not_there_then_is_noticed(proof: str) -> None:
    assert not exists(proof)
