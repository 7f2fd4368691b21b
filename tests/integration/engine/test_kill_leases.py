"""Killed at each write and each act while changes are lent and taken back: each lease is open once or closed once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reaper import ANYWHERE, kill_at_each, live
from remediator.core.scenario import Failure

CAP = """
match: [alertname = {alert}]
per: [host, container_name]
steps: [{{action: docker.limit, params: {{container: trainer-0, cpus: {cpus}}}, timeout: 1m}}]
escalate: {{to: [oncall]}}
"""


def story(bench: Any) -> None:
    """Two playbooks limit one container, the older one resolves first, and the undo fails once."""
    fires: list[Callable[[], Any]] = []
    for name, alert, cpus in (("cap", "Leak", 2), ("less", "Hot", 1)):
        bench.playbook(f"playbook: {name}\n{CAP.format(alert=alert, cpus=cpus)}", f"{name}.yaml")
    live(bench, lambda: None)
    live(bench, lambda: bench.after("1m"))
    for alert in ("Leak", "Hot"):
        labels = bench.leak() | {"alertname": alert}
        first = bench.fires(labels)
        fires.append(lambda first=first: bench.deliver(first))  # type: ignore[misc]
        for _ in range(2):
            for fire in fires:
                live(bench, fire)
            live(bench, lambda: bench.after("2m"))
    bench.world.fail("docker.limit", Failure.TRANSIENT)
    for alert in ("Leak", "Hot"):
        end = bench.resolved(bench.leak() | {"alertname": alert})
        live(bench, lambda end=end: bench.deliver(end))  # type: ignore[misc]
        live(bench, lambda: bench.after("15m"))
    live(bench, lambda: bench.after("20m"))


def check(bench: Any) -> None:
    done = [write for write in bench.world.writes if write.call == "docker.limit" and write.failed is None]
    assert len(done) == 3  # two acts, and one way back over both
    assert bench.world.container("gpu-07", "trainer-0").cpu.quota_us <= 0
    leases = bench.engine.leases(100, is_all=True)
    assert [(lease["playbook"], lease["state"]) for lease in leases] == [("less", "undone"), ("cap", "undone")]
    for kind in ("lease_opened", "lease_closed"):
        assert sorted(event.data["lease_id"] for event in bench.events(kind)) == sorted(
            lease["lease_id"] for lease in leases
        )
    # Killed over the first undo, the next engine ends that one instead of failing and beginning another.
    assert len(bench.events("undo_started")) == len(bench.events("undo_finished")) in (1, 2)
    told = [event for event in bench.events("attempt_finished") if event.data["step"].startswith("message.undo_failed")]
    assert len(told) <= 1
    assert [(row["phase"], bool(row["outcome"])) for row in bench.runs()] == [("closed", True)] * 2
    assert bench.reserved() == []
    assert bench.verified()


@ANYWHERE
def test_leases_when_killed_anywhere_then_each_is_opened_once_and_taken_back_once(
    tmp_path: Path, make_bench: Any, monkeypatch: pytest.MonkeyPatch, where: str, first: int, step: int
) -> None:
    kill_at_each(where, first, step, monkeypatch, make_bench, tmp_path, story, check)
