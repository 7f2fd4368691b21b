"""Rendered thresholds against a model of a few lines: promtool plays random limits on random values, and both agree."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from remediator.core.threshold import WORKLOAD, ByStage, Grade, Severity, Signal, Stages, Thresholds, rule_groups
from remediator.loading.rule_write import write_rules

STEP = timedelta(seconds=15)
N_STEPS = 40
N_JOBS = 12

VALUES = st.lists(st.integers(0, 20), min_size=N_STEPS, max_size=N_STEPS)
PROGRESS = st.lists(st.none() | st.integers(0, 20), min_size=N_STEPS, max_size=N_STEPS)
"""In twentieths; None = nothing is reported."""


@dataclass(frozen=True)
class Job:
    values: list[int]
    progress: list[int | None]


@st.composite
def thresholds(draw: st.DrawFn) -> Thresholds:
    middle = draw(st.integers(2, 10))
    late = draw(st.integers(middle + 2, 18))
    shortest = min(middle, late - middle)
    grade = Grade(
        severity=Severity.WARNING,
        limit=ByStage(**{stage: draw(st.integers(5, 15)) for stage in ("early", "middle", "late", "unknown")}),
        clears=draw(st.integers(0, 5)),
        hold=STEP * draw(st.integers(0, 4)),
    )
    signal = Signal(
        name="x",
        unit="points",
        series="workload:x:points",
        by=WORKLOAD,
        alert="X",
        is_above=draw(st.booleans()),
        grades=(grade,),
    )
    # Half a twentieth, so that no rounding decides.
    stages = Stages(
        middle_from=middle / 20, late_from=late / 20, back_by=(draw(st.integers(0, shortest - 1)) + 0.5) / 20
    )
    return Thresholds(signals=(signal,), stages=stages)


JOBS = st.lists(st.builds(Job, VALUES, PROGRESS), min_size=N_JOBS, max_size=N_JOBS)


def fires(of: Thresholds, job: Job) -> list[bool]:
    """What the rules mean, at each step."""
    (signal,) = of.signals
    (grade,) = signal.grades
    stages = of.stages
    assert isinstance(grade.limit, ByStage)
    limits = [grade.limit.early, grade.limit.middle, grade.limit.late]
    begins = [stages.middle_from, stages.late_from]
    stage = 0  # None was seen, so none is left
    beyond_for: int | None = None
    firing: list[bool] = []
    for value, twentieths in zip(job.values, job.progress, strict=True):
        limit = grade.limit.unknown
        if twentieths is not None:
            # A boundary is behind, or only just not any more for one that was behind it.
            done = twentieths / 20
            stage = sum(
                done >= begin or (stage > n and done >= begin - stages.back_by) for n, begin in enumerate(begins)
            )
            limit = limits[stage]
        clears = grade.clears if firing and firing[-1] else 0
        is_beyond = value > limit - clears if signal.is_above else value < limit + clears
        beyond_for = (0 if beyond_for is None else beyond_for + 1) if is_beyond else None
        firing.append(beyond_for is not None and STEP * beyond_for >= grade.hold)
    return firing


def played(of: Thresholds, jobs: Sequence[Job]) -> dict[str, Any]:
    """A file for promtool that expects at every step just what the model says."""
    series = [
        {"series": f'{name}{{workload="{n}",training_job="{n}"}}', "values": " ".join(values)}
        for n, job in enumerate(jobs)
        for name, values in (
            ("gpu:workload:info", ["1"] * N_STEPS),
            ("workload:x:points", [str(value) for value in job.values]),
            # Else the value before is seen for five minutes.
            ("training_progress_ratio", ["stale" if done is None else str(done / 20) for done in job.progress]),
        )
    ]
    expected = [fires(of, job) for job in jobs]
    looks = [
        {
            "expr": 'count by (workload) (ALERTS{alertname="X",alertstate="firing"})',
            "eval_time": f"{step * STEP.seconds}s",
            "exp_samples": [
                {"labels": f'{{workload="{n}"}}', "value": 1} for n, firing in enumerate(expected) if firing[step]
            ],
        }
        for step in range(N_STEPS)
    ]
    test = {"interval": "15s", "input_series": series, "promql_expr_test": looks}
    order = [group["name"] for group in rule_groups(of)]
    return {"rule_files": ["rules.yml"], "evaluation_interval": "15s", "group_eval_order": order, "tests": [test]}


@pytest.mark.alertmanager
@given(of=thresholds(), jobs=JOBS)
# Each example is a process: to shrink one that fails would take minutes.
@settings(
    max_examples=6,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_rules_when_played_on_random_values_then_fire_as_the_model_says(
    of: Thresholds, jobs: list[Job], find_tool: Callable[[str], Path], tmp_path: Path
) -> None:
    (tmp_path / "rules.yml").write_text(write_rules(rule_groups(of), []))
    (tmp_path / "test.yml").write_text(json.dumps(played(of, jobs)))
    for command in ("check", "test"):
        file = tmp_path / ("rules.yml" if command == "check" else "test.yml")
        done = subprocess.run(
            [find_tool("promtool"), command, "rules", file], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stdout + done.stderr
