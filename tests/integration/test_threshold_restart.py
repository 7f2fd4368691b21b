"""What rendered thresholds remember, over a crash of a real Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from realparts.loopback import MetricsPage
from realparts.process import wait_until
from realparts.prometheus import Prometheus
from remediator.core.threshold import WORKLOAD, Grade, Severity, Signal, Thresholds, rule_groups

WITHIN_S = 60.0


def page(value: int, progress: float) -> str:
    labels = '{workload="llm",training_job="llm"}'
    return (
        f"gpu:workload:info{labels} 1\nworkload:x:percent{labels} {value}\n"
        f'training_progress_ratio{{training_job="llm"}} {progress}\n'
    )


@pytest.mark.alertmanager
def test_alert_and_stage_when_prometheus_crashes_then_both_stay_where_only_the_past_holds_them(
    metrics_page: MetricsPage, prometheus_factory: Callable[..., Prometheus]
) -> None:
    grade = Grade(severity=Severity.WARNING, limit=90, clears=2, hold=timedelta(seconds=2))
    signal = Signal(name="x", unit="percent", series="workload:x:percent", by=WORKLOAD, alert="X", grades=(grade,))
    groups = [{**group, "interval": "1s"} for group in rule_groups(Thresholds(signals=(signal,)))]
    metrics_page.text = page(91, 0.81)
    prometheus = prometheus_factory(
        rules={"groups": groups}, targets={"all": [metrics_page.address]}, alertmanager_urls=[]
    )
    wait_until(lambda: bool(prometheus.firing()), "does not fire above its limit", WITHIN_S)
    metrics_page.text = page(89, 0.79)  # neither would begin here
    wait_until(lambda: prometheus.value("workload:training_progress:ratio") == 0.79, "not scraped", WITHIN_S)

    prometheus.kill()
    prometheus.start()

    wait_until(lambda: bool(prometheus.firing()), "forgot that it fired", WITHIN_S)
    assert prometheus.value("workload:training_stage:number") == 3
    metrics_page.text = page(87, 0.77)
    wait_until(lambda: not prometheus.firing(), "never ends", WITHIN_S)
    wait_until(lambda: prometheus.value("workload:training_stage:number") == 2, "stays late for ever", WITHIN_S)
