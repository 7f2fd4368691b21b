"""What the engine shows of itself at a scrape, read from a real store."""

from __future__ import annotations

import os
import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from integration.engine.conftest import START, Bench


def shown(bench: Bench, name: str, **labels: str) -> float | None:
    return bench.engine.metrics.registry.get_sample_value(name, labels)


def test_inbox_gauges_when_deliveries_wait_then_show_how_many_and_since_when(bench: Bench) -> None:
    bench.restarts().start()
    bench._accept(bench.fires(bench.leak()))
    bench.clock.moment += timedelta(seconds=90)
    bench._accept(bench.fires(bench.leak("other")))
    waiting = shown(bench, "remediator_inbox_deliveries"), shown(bench, "remediator_inbox_oldest_seconds")

    bench.engine.work()

    handled = shown(bench, "remediator_inbox_deliveries"), shown(bench, "remediator_inbox_oldest_seconds")
    assert (waiting, handled) == ((2, 90), (0, 0))


def test_open_runs_gauge_when_a_run_moves_on_then_shows_its_phase(bench: Bench) -> None:
    bench.restarts("hold: 10m").start()

    def phases() -> dict[str, float | None]:
        words = ("holding", "waiting", "acting", "verifying", "ended")
        return {word: n for word in words if (n := shown(bench, "remediator_open_runs", phase=word)) != 0}

    before = phases()
    bench.deliver(bench.fires(bench.leak()))

    assert (before, phases()) == ({}, {"holding": 1})


def test_time_gauge_when_the_clock_is_set_then_shows_it(bench: Bench) -> None:
    bench.restarts().start()
    bench.clock.moment -= timedelta(hours=1)

    assert shown(bench, "remediator_time_seconds") == (START - timedelta(hours=1)).timestamp()


def test_store_gauges_when_the_store_grows_then_show_its_size_and_the_room_left(bench: Bench) -> None:
    bench.restarts().start()
    before = shown(bench, "remediator_store_bytes")
    for n in range(20):
        bench.deliver(bench.fires(bench.leak(f"trainer-{n}", text="x" * 10_000)))

    path = bench.folder / "r.db"
    on_disk = sum(os.stat(each).st_size for each in (path, Path(f"{path}-wal")) if each.exists())
    after = shown(bench, "remediator_store_bytes")
    assert before is not None
    assert after is not None
    assert (after > before + 200_000, after == pytest.approx(on_disk, rel=0.5)) == (True, True)
    free = shown(bench, "remediator_store_free_bytes")
    assert free == pytest.approx(shutil.disk_usage(bench.folder).free, rel=0.2)


def test_store_gauges_when_the_file_is_gone_then_show_nothing_and_the_rest_goes_on(bench: Bench) -> None:
    bench.restarts().start()
    (bench.folder / "r.db").rename(bench.folder / "away.db")

    text = bench.engine.metrics.expose().decode()

    assert "remediator_store_bytes NaN\n" in text
    assert "remediator_time_seconds" in text


def test_waiting_runs_when_plans_wait_then_are_counted_by_what_for_and_ends_by_reason(bench: Bench) -> None:
    bench.restarts().start().engine.pause("mia", "work on the rack")
    bench.deliver(bench.fires(bench.leak()), bench.fires(bench.leak("trainer-1")), bench.fires(bench.leak("gone")))

    status = bench.engine.status()
    waiting = {what: shown(bench, "remediator_waiting_runs", reason=what) for what in ("paused", "cooldown", "breaker")}
    assert status["waiting_for"] == {"paused": 2}
    assert status["ended_lately"] == [{"outcome": "refused", "reason": "no_target", "n": 1}]
    assert waiting == {"paused": 2, "cooldown": 0, "breaker": 0}
