"""Killed at each write to the store and at each act: the next engine goes on, and nothing is done twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reaper import Reaper, live
from remediator.clients.fake import FakeWorld
from remediator.core.scenario import Failure
from remediator.errors import StoreUnavailableError
from remediator.store.engine import Store

MORE = """
hold: 1m
verify: [{alert: resolved, within: 1h}]
resolved: [{action: notify.send, params: {to: [oncall], title: it is over}}]
"""


def story(bench: Any, more: str) -> None:
    bench.world.fail("docker.restart", Failure.TRANSIENT)
    live(bench, lambda: None)
    live(bench, lambda: bench.after("1m"))
    first = bench.fires(bench.leak())
    live(bench, lambda: bench.deliver(first))
    for _ in range(3):
        live(bench, lambda: bench.after("5m"))
        live(bench, lambda: bench.deliver(first))
    live(bench, lambda: bench.after("5m"))
    end = bench.resolved(bench.leak())
    live(bench, lambda: bench.deliver(end))
    live(bench, lambda: bench.after("30m" if "latched" not in more else "2h"))


def check(bench: Any) -> None:
    done = [write for write in bench.world.writes if write.call == "docker.restart" and write.failed is None]
    assert len(done) == 1
    assert bench.told().count("oncall: it is over") <= 1
    assert sum(line.startswith("ml-platform") for line in bench.told()) <= 1
    rows = bench.runs()
    assert [(row["phase"], bool(row["outcome"])) for row in rows] == [("closed", True)]
    started = [(event.data["step"], event.data["attempt"]) for event in bench.events("attempt_started")]
    finished = [(event.data["step"], event.data["attempt"]) for event in bench.events("attempt_finished")]
    assert sorted(started) == sorted(finished)
    assert len(set(started)) == len(started)
    assert bench.reserved() == []
    assert bench.engine.status()["open_subjects"] == 0
    assert bench.verified()


def passes(reaper: Reaper, folder: Path, make_bench: Any, more: str, *, step: int = 1) -> int:
    """Tell the story again and again, with the error at another place each time, until there is no place left."""
    n = 0
    while True:
        n += step
        (folder / str(n)).mkdir()
        bench = make_bench(folder / str(n))
        bench.restarts(more)
        reaper.arm(n)
        story(bench, more)
        reaper.left = 0
        check(bench)
        bench.stop()
        if not reaper.has_killed:
            return n


@pytest.mark.parametrize("more", [MORE, "latched: true\nguard: {cooldown: 1h}"], ids=["resolved", "latched"])
@pytest.mark.parametrize("where", ["before a write", "behind a write", "before an act", "behind an act"])
def test_engine_when_killed_anywhere_then_the_next_one_ends_the_run_and_acts_once(
    tmp_path: Path, make_bench: Any, monkeypatch: pytest.MonkeyPatch, where: str, more: str
) -> None:
    reaper = Reaper()
    wrap = reaper.before if where.startswith("before") else reaper.behind
    if where.endswith("write"):
        monkeypatch.setattr(Store, "write", wrap(Store.write))
    else:
        monkeypatch.setattr(FakeWorld, "act", wrap(FakeWorld.act))
        monkeypatch.setattr(FakeWorld, "tell", wrap(FakeWorld.tell))
    step = 1 if more is MORE else 2  # it differs from the other in its last writes
    assert passes(reaper, tmp_path, make_bench, more, step=step) > (20 if where.endswith("write") else 2)


@pytest.mark.parametrize("where", ["before", "behind"])
def test_engine_when_the_store_is_away_at_any_write_then_it_goes_on_by_itself_and_acts_once(
    tmp_path: Path, make_bench: Any, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    reaper = Reaper(lambda: StoreUnavailableError("the disk is full"))
    monkeypatch.setattr(Store, "write", getattr(reaper, where)(Store.write))
    assert passes(reaper, tmp_path, make_bench, MORE, step=2) > 20


@pytest.mark.parametrize("again_after", [1, 2, 4])
def test_engine_when_killed_once_more_while_it_recovers_then_the_third_one_ends_the_run_and_acts_once(
    tmp_path: Path, make_bench: Any, monkeypatch: pytest.MonkeyPatch, again_after: int
) -> None:
    reaper = Reaper()
    reaper.again_after = again_after
    monkeypatch.setattr(Store, "write", reaper.before(Store.write))
    assert passes(reaper, tmp_path, make_bench, MORE, step=3) > 20
