"""Killed at each write and each act while changes are lent and taken back: each lease is open once or closed once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reaper import Reaper, live
from remediator.clients.fake import Fails, FakeWorld
from remediator.store.engine import Store

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
    bench.world.fail("docker.limit", Fails.TRANSIENT)
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


@pytest.mark.parametrize(
    ("where", "first", "step"),
    # What is behind one write is before the next: each is passed on one side of it.
    [("before a write", 1, 2), ("behind a write", 2, 2), ("before an act", 1, 1), ("behind an act", 1, 1)],
)
def test_leases_when_killed_anywhere_then_each_is_opened_once_and_taken_back_once(
    tmp_path: Path, make_bench: Any, monkeypatch: pytest.MonkeyPatch, where: str, first: int, step: int
) -> None:
    reaper = Reaper()
    wrap = reaper.before if where.startswith("before") else reaper.behind
    if where.endswith("write"):
        monkeypatch.setattr(Store, "write", wrap(Store.write))
    else:
        monkeypatch.setattr(FakeWorld, "act", wrap(FakeWorld.act))
        monkeypatch.setattr(FakeWorld, "tell", wrap(FakeWorld.tell))
    n = first - step
    while n < first or reaper.has_killed:
        n += step
        (tmp_path / str(n)).mkdir()
        bench = make_bench(tmp_path / str(n))
        reaper.arm(n)
        story(bench)
        reaper.left = 0
        check(bench)
        bench.stop()
    assert n > (30 if where.endswith("write") else 4)
