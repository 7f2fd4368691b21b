"""What is known of the labels that expressions leave, held against what a real Prometheus leaves of them."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from realparts.promtool import ask
from remediator.loading.promql import labels_of

ROWS: list[dict[str, Any]] = [
    row
    for row in YAML(typ="safe", pure=True).load(
        (Path(__file__).parents[1] / "data" / "promql_labels.yaml").read_text("utf-8")
    )
    if not row.get("newer")  # than the Prometheus of Debian 12
]
SERIES = [
    *(f'up{{job="{job}",host="{host}",gpu="{gpu}"}}' for job, host, gpu in product(("node", "dcgm"), "ab", "01")),
    *(f'info{{host="{host}",model="h100"}}' for host in "ab"),
    *(f'latency_bucket{{host="{host}",le="{le}"}}' for host, le in product("ab", ("1", "+Inf"))),
]
_RESULT = re.compile(r'expr: (?P<expr>"(?:\\.|[^"\\])*"), time: 30m,\s+exp: .*?\n\s+got: (?P<got>[^\n]*)', re.DOTALL)
_LABELS = re.compile(r'\{(?P<labels>(?:\w+="(?:\\.|[^"\\])*"(?:, )?)*)\} ')


@lru_cache(maxsize=1)  # one start of promtool for all rows
def left_by(promtool: Path) -> dict[str, list[dict[str, str]]]:
    """Expression → the labels of each series that it gives: expected is what there is not, so promtool tells all."""
    wanted = [{"labels": "never", "value": -99}]
    questions = [{"expr": row["expr"], "eval_time": "30m", "exp_samples": wanted} for row in ROWS]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "test.yml"
        series = [(name, "1+1x60") for name in SERIES]
        said = ask(promtool, file, series, questions, scrape_s=60, evaluate_s=60, rule_files=())
    text = said.stdout + said.stderr
    return {
        json.loads(found["expr"]): [
            dict(re.findall(r'(\w+)="((?:\\.|[^"\\])*)"', series)) for series in _LABELS.findall(found["got"] + " ")
        ]
        for found in _RESULT.finditer(text)
    }


@pytest.mark.alertmanager
@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in ROWS])
def test_labels_of_when_prometheus_evaluates_the_expression_then_nothing_else_is_left(
    row: dict[str, Any], find_tool: Callable[[str], Path]
) -> None:
    known = labels_of(row["expr"])
    series = left_by(find_tool("promtool"))[row["expr"]]
    assert bool(series) is not row.get("none", False)
    for labels in series:
        labels.pop("__name__", None)
        for label in {*labels, *known.known}:
            values = known.values(label)
            assert values is None or labels.get(label, "") in values, (label, labels)
