"""What is known of the labels that an expression leaves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from remediator.loading.promql import MAX_LENGTH, labels_of

ROWS = YAML(typ="safe", pure=True).load((Path(__file__).parents[2] / "data" / "promql_labels.yaml").read_text("utf-8"))


@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in ROWS])
def test_labels_of_when_an_expression_is_so_then_these_are_known(row: dict[str, Any]) -> None:
    found = labels_of(row["expr"])
    known = {label: "?" if values is None else sorted(values) for label, values in found.known.items()}
    # What is not named is said by `open` alone, so a label that is known to be unknown need not stand there.
    expected = row["known"]
    assert {
        label: value for label, value in known.items() if label in expected or value != "?" or not found.is_open
    } == (expected)
    assert found.is_open is row["open"]


@pytest.mark.parametrize(
    "expression",
    [
        pytest.param("max by (host (up)", id="not closed"),
        pytest.param("up >> 1", id="an operator that there is not"),
        pytest.param("no_such_function(up)", id="a function that there is not"),
        pytest.param("", id="nothing"),
        pytest.param("(" * 61 + "up" + ")" * 61, id="nested too deep"),
        pytest.param("-" * 401 + "up", id="too many signs"),
        pytest.param("up" + " + up" * 401, id="too many operators"),
        pytest.param("up" + " or up" * 401, id="too many words"),
        pytest.param(f'up{{a="{"x" * MAX_LENGTH}"}}', id="too long"),
    ],
)
def test_labels_of_when_it_cannot_be_read_then_says_so(expression: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        labels_of(expression)


@pytest.mark.parametrize(
    "expression",
    [
        pytest.param("(" * 60 + "up" + ")" * 60, id="nested as deep as may be"),
        pytest.param("up" + " + up" * 400, id="as many operators as may be"),
        pytest.param(f"# {'-(' * 450}\nup{{a='{'-(' * 450}'}}", id="signs in a comment and in a text"),
        pytest.param("abs(" * 60 + "-" * 300 + "up" + ")" * 60, id="both"),
    ],
)
def test_labels_of_when_it_is_as_large_as_may_be_then_is_read(expression: str) -> None:
    assert labels_of(expression).is_open


def test_parser_when_no_rules_are_given_then_is_not_loaded() -> None:
    program = "import sys, remediator.cli.check; sys.exit('promql_parser' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
