"""Files of thresholds: every mistake has its place and says what to write; what is right is read as it is meant."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from remediator.core.threshold import GPU, WORKLOAD, ByStage, Grade, Severity, Signal, Stages
from remediator.loading.thresholds import load_thresholds

ROOT = Path(__file__).resolve().parents[3]
ERRORS = YAML(typ="safe", pure=True).load((ROOT / "tests" / "data" / "threshold_errors.yaml").read_text("utf-8"))


@pytest.mark.parametrize("row", ERRORS, ids=lambda row: row["id"])
def test_file_when_it_is_wrong_then_every_problem_is_told_with_its_place(row: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "thresholds.yaml"
    file.write_text(row["text"])

    loaded = load_thresholds(file)

    said = [{"at": f"{problem.line}:{problem.column}", "says": problem.message} for problem in loaded.problems]
    assert (said, loaded.thresholds) == (row["problems"], None)
    assert {problem.file for problem in loaded.problems} == {str(file)}


def test_file_when_it_is_not_there_then_that_is_the_problem(tmp_path: Path) -> None:
    loaded = load_thresholds(tmp_path / "none.yaml")
    assert [problem.message for problem in loaded.problems] == ["cannot be read: No such file or directory"]


def test_file_when_it_is_right_then_says_what_was_meant(tmp_path: Path) -> None:
    file = tmp_path / "thresholds.yaml"
    file.write_text(
        "stages: {late_from: 0.9, back_by: 0, stale_after: 10m}\n"
        "signals:\n"
        "  - signal: memory\n"
        "    unit: percent\n"
        "    series: avg_over_time(workload:memory:percent[5m])\n"
        "    alert: Memory\n"
        "    grades:\n"
        "      critical: {above: 98, for: 0}\n"  # in any order
        "      warning: {above: {early: 95, middle: 90, late: 85, unknown: 91}, clears: 2.5, for: 2m}\n"
        "    unless: up == 0\n"
        "    annotations: {summary: '{{ $value }}', description: d, checkpoint_signal: SIGUSR1}\n"
        "  - {signal: heat, unit: celsius, series: max(gpu:heat:celsius), goal: 60}\n"
        "  - {signal: load, unit: processes, series: node_load1, by: [cluster, hostname], goal: 5}\n"
    )

    loaded = load_thresholds(file)

    assert loaded.problems == ()
    assert loaded.thresholds is not None
    assert loaded.thresholds.stages == Stages(
        middle_from=0.2, late_from=0.9, back_by=0, stale_after=timedelta(minutes=10)
    )
    assert loaded.thresholds.signals == (
        Signal(
            name="memory",
            unit="percent",
            series="avg_over_time(workload:memory:percent[5m])",
            by=WORKLOAD,
            alert="Memory",
            is_above=True,
            grades=(
                Grade(
                    severity=Severity.WARNING,
                    limit=ByStage(early=95, middle=90, late=85, unknown=91),
                    clears=2.5,
                    hold=timedelta(minutes=2),
                ),
                Grade(severity=Severity.CRITICAL, limit=98),
            ),
            unless="up == 0",
            annotations={"summary": "{{ $value }}", "description": "d", "checkpoint_signal": "SIGUSR1"},
        ),
        Signal(name="heat", unit="celsius", series="max(gpu:heat:celsius)", by=GPU, goal=60),
        Signal(name="load", unit="processes", series="node_load1", by=("cluster", "hostname"), goal=5),
    )


def test_shipped_file_when_read_then_has_every_threshold_that_was_asked_for() -> None:
    loaded = load_thresholds(ROOT / "deploy" / "prometheus" / "thresholds.yaml")

    assert loaded.thresholds is not None
    found = {
        (signal.threshold, grade.severity.value): grade.limit
        for signal in loaded.thresholds.signals
        for grade in signal.grades
    }
    assert found == {
        ("threshold:gpu_utilization:percent", "info"): 95,
        ("threshold:gpu_sm_active:percent", "info"): 95,
        ("threshold:gpu_memory_used:percent", "warning"): ByStage(early=95, middle=90, late=85, unknown=90),
        ("threshold:gpu_memory_used:percent", "critical"): 98,
        ("threshold:gpu_ecc_correctable:increase1h", "warning"): 10,
        ("threshold:gpu_temperature_margin:celsius", "warning"): 6,
        ("threshold:gpu_temperature:celsius", "warning"): 85,
        ("threshold:gpu_power:percent_of_default", "info"): 90,
        ("threshold:gpu_nvlink:percent_of_peers", "warning"): 30,
        ("threshold:gpu_utilization_spread:percent", "warning"): 20,
    }
    goals = {signal.threshold: signal.goal for signal in loaded.thresholds.signals if signal.goal is not None}
    assert goals == {"threshold:gpu_utilization_spread:percent": 5}
    assert (loaded.thresholds.stages.middle_from, loaded.thresholds.stages.late_from) == (0.2, 0.8)
