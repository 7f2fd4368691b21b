"""Rules from thresholds: PromQL whatever a series looks like; what they mean is played by promtool elsewhere."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from remediator.core.threshold import GPU, WORKLOAD, ByStage, Grade, Severity, Signal, Stages, Thresholds, rule_groups
from remediator.loading.promql import gives_series, labels_of

BY_STAGE = ByStage(early=95, middle=90, late=85, unknown=90)


def signal(**changed: Any) -> Signal:
    limit = changed.pop("limit", 85.0)
    grade = Grade(severity=Severity.WARNING, limit=limit, clears=changed.pop("clears", 2.0), hold=timedelta(minutes=2))
    return Signal(
        **{
            "name": "x",
            "unit": "celsius",
            "series": "gpu:x:celsius",
            "by": GPU,
            "alert": "X",
            "grades": (grade,),
            **changed,
        }
    )


STAGES = Stages()


def rules_of(*signals: Signal, stages: Stages = STAGES) -> list[dict[str, Any]]:
    """Every rule, in order."""
    return [rule for group in rule_groups(Thresholds(signals=signals, stages=stages)) for rule in group["rules"]]


def alert_of(one: Signal) -> str:
    """The expression of its alert."""
    return str(rules_of(one)[-1]["expr"])


SERIES = [
    pytest.param("gpu:x:celsius", id="a name"),
    pytest.param('gpu:x:celsius{modelName=~"A.*|(H)"}', id="with a matcher"),
    pytest.param("avg_over_time(gpu:x:celsius[5m])", id="a function"),
    pytest.param("gpu:x:celsius or gpu:y:celsius", id="two that would be torn apart"),
    pytest.param("gpu:x:celsius # in degrees", id="with a comment behind it"),
    pytest.param("max by (UUID) (\n  gpu:x:celsius  # in degrees\n)", id="on several lines"),
    pytest.param("-gpu:x:celsius", id="with a sign"),
]


@pytest.mark.parametrize("series", SERIES)
@pytest.mark.parametrize("by", [GPU, WORKLOAD])
@pytest.mark.parametrize("limit", [85.0, BY_STAGE])
def test_rules_when_rendered_then_are_all_promql(series: str, by: tuple[str, ...], limit: float | ByStage) -> None:
    rules = rules_of(signal(series=series, by=by, limit=limit, unless=series))
    assert (len(rules), all(gives_series(rule["expr"]) for rule in rules)) == (5, True)


def test_alert_when_its_value_clears_where_it_fires_then_does_not_look_at_the_past() -> None:
    assert alert_of(signal(series="workload:x:celsius", by=WORKLOAD, clears=0.0)) == "workload:x:celsius > 85"


def test_alert_when_it_fires_below_then_clears_above() -> None:
    expression = alert_of(signal(series="workload:x:celsius", by=WORKLOAD, is_above=False))
    assert ("workload:x:celsius < 85\n" in expression, "workload:x:celsius < 87\n" in expression) == (True, True)


def test_alert_of_a_gpu_when_rendered_then_says_what_the_gpu_works_for() -> None:
    gpu, workload = (labels_of(alert_of(signal(by=by))) for by in (GPU, WORKLOAD))
    assert ("workload" in gpu.known, "workload" in workload.known) == (True, False)


def test_alerts_when_two_entries_have_one_name_then_differ_in_a_label() -> None:
    labels = [rule["labels"] for rule in rules_of(signal(), signal(name="y", unless="up")) if "alert" in rule]
    assert labels == [{"severity": "warning", "threshold": "x"}, {"severity": "warning", "threshold": "y"}]


def test_goal_when_there_is_no_grade_then_is_a_series_and_no_alert() -> None:
    rules = rules_of(signal(alert="", grades=(), goal=5.0))[3:]
    assert rules == [{"record": "threshold:x:celsius", "expr": "vector(5)", "labels": {"severity": "goal"}}]


def test_boundaries_when_rendered_then_are_as_people_write_them() -> None:
    # 0.3 - 0.1 is 0.19999999999999998 to a computer.
    stage = rules_of(signal(), stages=Stages(middle_from=0.3, late_from=0.8, back_by=0.1))[2]["expr"]
    assert [word for word in stage.replace(")", "").split() if word.startswith("0.")] == ["0.2", "0.7", "0.3", "0.8"]


def test_rules_when_a_grade_has_no_hold_then_have_no_for() -> None:
    (_, _, _, _, alert) = rules_of(signal(grades=(Grade(severity=Severity.INFO, limit=1.0),)))
    assert "for" not in alert
