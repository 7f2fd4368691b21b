"""The alert that always fires, with the shipped playbook: it is taken, and nothing is done about it."""

from __future__ import annotations

import shutil
from pathlib import Path

from integration.engine.conftest import Bench

PLAYBOOK = Path(__file__).resolve().parents[3] / "playbooks" / "watchdog.yaml"


def test_watchdog_when_it_repeats_for_a_day_then_is_told_once_and_starts_nothing(bench: Bench) -> None:
    shutil.copy(PLAYBOOK, bench.folder / "playbooks")
    bench.start()
    labels = {"alertname": "Watchdog", "severity": "none"}

    for _ in range(24):
        bench.deliver(bench.fires(labels))
        bench.after("1h")

    assert (len(bench.events("alert_ignored")), bench.runs(), bench.events("alert_unmatched")) == (1, [], [])
    assert len(bench.events("delivery_received")) == 24
