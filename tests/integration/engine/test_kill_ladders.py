"""Killed at each write and each act of a ladder that asks and looks: each rung is asked for once, and done once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reaper import ANYWHERE, kill_at_each, live

LADDER = """
playbook: ladder
match: [alertname = GPUMemoryLeakSlope]
per: [host, container_name]
ladder: {within: 6h}
guard: {cooldown: 0s, require: [{name: up, query: up, equals: 1}]}
approval: {ask: [oncall], expires: 1h}
steps:
  - {name: restart, rung: 1, action: docker.restart, params: {container: trainer-0}, timeout: 2m}
  - name: stop
    rung: 2
    action: docker.stop
    timeout: 2m
    params: {container: trainer-0}
    verify: [{name: saved, query: saved, below: 120, within: 2m}]
verify: [{name: ratio, query: ratio, below: 0.8, within: 2m}]
escalate: {to: [oncall]}
"""


def says_yes(bench: Any) -> None:
    for row in bench.runs():
        if row["phase"] == "asking":
            bench.engine.approve(row["run_id"], "alice", "looks right")
    bench.engine.work()


def climb(bench: Any) -> None:
    """Asked, done, no help; asked anew, done one rung higher, and that helped."""
    bench.playbook(LADDER)
    for name, value in (("up", 1.0), ("saved", 5.0), ("ratio", 0.9)):
        bench.sees(name, value)
    live(bench, lambda: None)
    live(bench, lambda: bench.after("1m"))
    first = bench.fires(bench.leak())
    for ratio in (0.9, 0.5):
        live(bench, lambda: bench.deliver(first))
        live(bench, lambda: says_yes(bench))
        bench.sees("ratio", ratio)
        live(bench, lambda: bench.after("6m"))
    end = bench.resolved(bench.leak())
    live(bench, lambda: bench.deliver(end))
    live(bench, lambda: bench.after("30m"))


def check(bench: Any) -> None:
    assert bench.acts() == [f"docker.{verb} docker:gpu-07/trainer-0" for verb in ("restart", "stop")]
    for kind in ("approval_asked", "approval_given"):
        assert [event.data["key"] for event in bench.events(kind)] == ["rung.1", "rung.2"]
    assert [event.data["to"] for event in bench.events("rung_climbed")] == [2]
    finished = [(event.data["step"], event.outcome) for event in bench.events("verification_finished")]
    assert finished == [("", "failed"), ("steps.stop", "succeeded"), ("", "succeeded")]
    assert bench.ended() == ("succeeded", "none")
    assert bench.run()["phase"] == "closed"
    assert bench.reserved() == []
    assert bench.verified()


@ANYWHERE
def test_ladder_when_killed_anywhere_then_each_rung_is_asked_for_once_and_done_once(
    tmp_path: Path, make_bench: Any, monkeypatch: pytest.MonkeyPatch, where: str, first: int, step: int
) -> None:
    kill_at_each(where, first, step, monkeypatch, make_bench, tmp_path, climb, check)
