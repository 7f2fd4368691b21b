"""Charts are what promtool says of the shipped rules: values at their times, and alerts when they fire."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest_realparts import do_without
from realparts.prometheus import find_program
from simulator.backfill import BackfillError
from simulator.charts import Chart, Fires, Line, Panel, evaluate

pytestmark = pytest.mark.alertmanager


@pytest.fixture(autouse=True)
def _promtool() -> None:
    try:
        find_program("promtool")
    except FileNotFoundError as error:
        do_without("alertmanager", str(error))


def test_story_when_evaluated_then_values_and_alerts_are_those_of_the_rules() -> None:
    # 11 errors were corrected before the story began; a GPU that needs a new one alerts at once.
    lines = (
        Line("corrected", 'max(gpu:ecc_errors:total{type="corrected"})'),
        Line("limit", "max(threshold:gpu_ecc_correctable:increase1h)"),
        Line("nothing", "max(no_such_series)"),
    )
    fires = (Fires("GPUECCCorrectableRate", "warning"), Fires("GPUMetricMissing", "warning"))
    chart = Chart("c", "ecc", (0, 0.1), (Panel("", (0, 1, 1), lines, fires),), ("dcgm",), step_s=120)

    found = evaluate(chart)

    assert found[lines[0].expr] == {0: 11, 120: 11, 240: 11, 360: 11}
    assert found[lines[1].expr] == {0: 10, 120: 10, 240: 10, 360: 10}
    assert [found[one.expr] for one in (lines[2], *fires)] == [{}, {}, {}]


def test_story_when_an_alert_fires_in_it_then_that_is_found(tmp_path: Path) -> None:
    (tmp_path / "remap.yaml").write_text(
        """
about: A remap that has failed for four minutes.
duration: 10m
nodes: [{count: 1, gpus: 2}]
faults: [{kind: row-remap-failure, where: "gpu-01:1", at: 110s, lasts: 4m}]
"""
    )
    rows = [Fires("GPURowRemapFailure", "critical", "gpu", gpu) for gpu in "01"]
    panel = Panel("", (0, 1, 1), (), tuple(rows))

    found = evaluate(Chart("c", str(tmp_path / "remap.yaml"), (0, 0.1), (panel,), ("dcgm",), step_s=60))

    assert [found[row.expr] for row in rows] == [{}, {120: 1, 180: 1, 240: 1, 300: 1}]


def test_expression_when_promtool_refuses_it_then_its_words_are_told() -> None:
    chart = Chart("c", "idle", (0, 0.02), (Panel("", (0, 1, 1), (Line("", "max(("),)),), ("dcgm",), step_s=60)
    with pytest.raises(BackfillError, match="parse error"):
        evaluate(chart)
