"""Deciding and reserving is one transaction on one writer: real threads cannot both take the last place."""

from __future__ import annotations

import json
import threading
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from remediator.core.alert import RawDelivery
from remediator.core.guard import Word
from remediator.core.scenario import Failure

PER_RANK = """
playbook: per-rank
match: [alertname = Stuck]
per: [rank]
guard: {cooldown: 0s, MORE}
steps: [{action: docker.restart, params: {container: "{{ labels.container_name }}"}}]
"""


def plans(bench: Any, n: int, container: str, limit: int, *, guard: str = "", policy: str = "") -> None:
    """So many plans that wait to be judged; ``{}`` in the container's name is the plan's number."""
    bench.playbook(PER_RANK.replace(", MORE", f", {guard}" if guard else ""))
    bench.playbook(f"policy: site\nmax_concurrent_runs: {limit}\n{policy}\n", "site.policy.yaml")
    for name in {container.format(number) for number in range(n)}:
        bench.world.add_container("gpu-07", name)
    bench.start(fleets={"trainers": {"kind": "container", "size": 20}})
    bench.after("1m")
    alerts = [
        bench.fires({"alertname": "Stuck", "rank": str(number), "container_name": container.format(number)})
        for number in range(n)
    ]
    bench.deliver_later(*alerts)
    assert len(bench.runs()) == n


def reserve_at_once(bench: Any) -> Counter[Word]:
    """One thread per plan, all let go together."""
    rows = bench.runs()
    gate = threading.Barrier(len(rows))
    words: list[Word] = []
    policy = bench.engine._reloader.now.playbooks.policy

    def judge(run_id: str) -> None:
        run = bench.engine.pipeline.run(run_id)
        gate.wait()
        words.append(bench.engine.pipeline._reserver.reserve(run, 0, policy, asks=False)[0].word)

    threads = [threading.Thread(target=judge, args=(row["run_id"],)) for row in rows]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(words) == len(rows)
    return Counter(words)


@pytest.mark.parametrize("n", [16, 64])
def test_reserve_when_many_threads_want_two_places_then_two_get_one(bench: Any, n: int) -> None:
    plans(bench, n, "c{}", limit=2)
    assert reserve_at_once(bench) == {Word.ALLOW: 2, Word.WAIT: n - 2}
    assert len(bench.reserved()) == 2


@pytest.mark.parametrize(
    ("guard", "policy"),
    [
        pytest.param("", "max_disruptive_acts: {count: 3, per: 1h}", id="acts of all playbooks"),
        pytest.param("max_targets: {count: 3, per: 1h}", "", id="targets of one playbook"),
        pytest.param("max_targets: {percent: 15, of: trainers, per: 1h}", "", id="a share of a fleet"),
        pytest.param("", "breaker: {percent: 15, of: trainers, within: 1h}", id="a breaker"),
    ],
)
def test_reserve_when_64_threads_want_what_three_may_have_then_three_get_it(
    bench: Any, guard: str, policy: str
) -> None:
    plans(bench, 64, "c{}", limit=100, guard=guard, policy=policy)
    assert reserve_at_once(bench) == {Word.ALLOW: 3, Word.WAIT: 61}
    assert len(bench.reserved()) == 3
    assert len(bench.events("breaker_tripped")) == ("breaker" in policy)


def test_reserve_when_many_threads_want_one_target_then_one_gets_it(bench: Any) -> None:
    plans(bench, 16, "trainer-0", limit=100)
    assert reserve_at_once(bench) == {Word.ALLOW: 1, Word.WAIT: 15}
    assert bench.reserved() == ["docker:gpu-07/trainer-0"]


def test_engine_when_its_threads_run_then_never_more_than_the_limit_act_at_once(bench: Any) -> None:
    plans(bench, 16, "c{}", limit=2)
    lock = threading.Lock()
    at_work: list[int] = [0, 0]  # now, most
    act = bench.world.act

    def counted(call: str, *args: Any) -> None:
        with lock:
            at_work[0] += 1
            at_work[1] = max(at_work)
        threading.Event().wait(0.02)
        act(call, *args)
        with lock:
            at_work[0] -= 1

    bench.world.act = counted
    dispatch = bench.engine._dispatch
    dispatch.start()
    until = threading.Event()
    for _ in range(200):
        if len(bench.acts()) == 16:
            break
        until.wait(0.1)
    assert dispatch.stop(timedelta(seconds=10))
    assert len(bench.acts()) == 16
    assert at_work == [0, 2]


@pytest.mark.parametrize("fails", [None, Failure.PERMANENT], ids=["slow", "slow and failing"])
def test_delivery_when_an_act_is_under_way_then_its_answer_does_not_wait_for_it(
    bench: Any, fails: Failure | None
) -> None:
    plans(bench, 1, "c{}", limit=2)
    if fails is not None:
        bench.world.fail("docker.restart", fails)
    has_begun, may_end = threading.Event(), threading.Event()
    act = bench.world.act

    def stuck(call: str, *args: Any) -> None:
        has_begun.set()
        assert may_end.wait(60)
        act(call, *args)

    bench.world.act = stuck
    dispatch = bench.engine._dispatch
    dispatch.start()
    try:
        assert has_begun.wait(30)
        body = json.dumps({"version": "4", "alerts": [bench.fires({"alertname": "Stuck", "rank": "0"})]}).encode()
        for _ in range(5):  # the sender tries again for as long as nobody answers
            receipt = bench.engine.accept(RawDelivery(received_at=bench.clock.now(), source="x", body=body))
            assert receipt.n_alerts == 1
        assert bench.acts() == []
    finally:
        may_end.set()
        assert dispatch.stop(timedelta(seconds=30))
    assert len(bench.acts()) == 1


def test_inbox_when_a_delivery_comes_right_after_it_was_found_empty_then_it_is_handled_at_once(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remediator.engine.receive.STORE_AGAIN_S", 60.0)
    bench.start()
    intake = bench.engine._intake
    handle_waiting, looks, was_handled = intake.handle_waiting, [0], threading.Event()

    def find_nothing_first() -> int:
        looks[0] += 1
        n_handled: int = handle_waiting()
        if looks[0] == 1:
            bench._accept(bench.fires({"alertname": "Stuck"}))
        if n_handled:
            was_handled.set()
        return n_handled

    monkeypatch.setattr(intake, "handle_waiting", find_nothing_first)
    intake.start()
    try:
        assert was_handled.wait(30)
    finally:
        intake.stop()
