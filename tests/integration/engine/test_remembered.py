"""A run is remembered from one look to the next, and is always what its log says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from remediator.core.run import fold, fold_on
from remediator.engine import pipeline
from remediator.store import audit

if TYPE_CHECKING:
    from conftest import Bench

VERIFY = "verify: [{name: ratio, query: ratio, below: 1, settle: 3m, within: 10m}]\nguard: {cooldown: 2h}\n"


def ids(bench: Bench) -> list[str]:
    return [row["run_id"] for row in bench.runs()]


@pytest.fixture
def told(bench: Bench) -> Bench:
    """Two containers were restarted, and one of them asked for again."""
    bench.restarts(VERIFY).start()
    bench.sees("ratio", 0.5)
    for container in ("trainer-0", "trainer-1"):
        bench.deliver(bench.fires(bench.leak(container)))
    bench.after("5m")
    bench.engine.pipeline.run(ids(bench)[0])
    return bench


def test_run_when_remembered_then_is_the_fold_of_its_whole_log(told: Bench) -> None:
    with told.engine._store.read() as conn:
        logs = {run_id: [one.event for one in audit.log_of_run(conn, run_id)] for run_id in ids(told)}

    assert len(logs) == 2
    for run_id, events in logs.items():
        assert told.engine.pipeline.run(run_id) == fold(events)
        for n in range(1, len(events)):
            assert fold_on(fold(events[:n]), events[n:]) == fold(events)


def test_run_when_more_are_looked_at_than_are_remembered_then_each_is_right_all_the_same(
    told: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "REMEMBERED", 1)

    for _ in range(2):
        assert [told.engine.pipeline.run(run_id).plan.run_id for run_id in ids(told)] == ids(told)
    assert len(told.engine.pipeline._folded._known) == 1


def test_run_when_its_log_is_not_the_one_that_was_folded_then_is_folded_anew(told: Bench) -> None:
    run_id = ids(told)[0]
    right = told.engine.pipeline.run(run_id)
    known = told.engine.pipeline._folded._known
    seq, _, _ = known[run_id]
    other = told.engine.pipeline.run(ids(told)[1])
    known[run_id] = (seq, "0" * 64, other)

    assert told.engine.pipeline.run(run_id) == right
