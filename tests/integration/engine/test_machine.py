"""Whatever happens in whatever order: what must always hold."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import uuid
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from sqlalchemy import func, select

from remediator.clients.fake import Fails
from remediator.core.outcome import RunOutcome
from remediator.errors import RequestError
from remediator.store.tables import audit, episode, reservation, run

COOLDOWN = timedelta(minutes=30)

SECOND = """
playbook: second
match: [alertname = GPUMemoryLeakSlope]
per: [rank]
latched: true
guard: {cooldown: 30m, max_runs: {count: 100, per: 1h}}
steps:
  - {name: tell, action: notify.send, params: {to: [oncall], title: hello}}
  - {action: docker.restart, params: {container: "{{ labels.container_name }}"}}
"""

MORE = """
hold: 2m
verify: [{alert: resolved, within: 20m}]
guard: {cooldown: 30m, max_runs: {count: 100, per: 1h}}
resolved: [{action: notify.send, params: {to: [oncall], title: it is over}}]
"""

LABELS = [("trainer-0", "0"), ("trainer-0", "1"), ("trainer-1", "1")]

alerts = st.sampled_from(range(len(LABELS)))


class Machine(RuleBasedStateMachine):
    """An engine, two playbooks that mean the same containers, and everything that may happen to them."""

    make: Any = None
    n_uuids: int = 0

    def __init__(self) -> None:
        super().__init__()
        Machine.n_uuids = 0
        self.folder = Path(tempfile.mkdtemp())
        self.bench = self.make(self.folder)

    def teardown(self) -> None:
        if self.bench.app is not None:
            for row in self.bench.runs():
                self.bench.check_log(row["run_id"])
            assert self.bench.verified()
            self.bench.stop()
        shutil.rmtree(self.folder)

    def labels(self, which: int) -> dict[str, str]:
        container, rank = LABELS[which]
        labels: dict[str, str] = self.bench.leak(container, rank=rank)
        return labels

    @initialize()
    def begin(self) -> None:
        self.bench.restarts(MORE)
        self.bench.playbook(SECOND, "second.yaml")
        self.bench.playbook("policy: site\nmax_concurrent_runs: 2\n", "site.policy.yaml")
        self.bench.start()
        self.bench.after("1m")

    @rule(which=alerts, ago=st.sampled_from(["0s", "3m", "2h"]))
    def fires(self, which: int, ago: str) -> None:
        self.bench.deliver(self.bench.fires(self.labels(which), ago=ago))

    @rule(which=alerts, ago=st.sampled_from(["0s", "0s", "10m"]))
    def resolves(self, which: int, ago: str) -> None:
        self.bench.deliver(self.bench.resolved(self.labels(which), ago=ago))

    @rule(duration=st.sampled_from(["1s", "2m", "6m", "31m", "2h"]))
    def time_passes(self, duration: str) -> None:
        self.bench.after(duration)

    @rule(duration=st.sampled_from(["10s", "6m", "40m", "10h"]))
    def is_killed(self, duration: str) -> None:
        self.bench.away(duration)

    @rule(call=st.sampled_from(["docker.restart", "notify.send"]), how=st.sampled_from(list(Fails)))
    def will_fail(self, call: str, how: Fails) -> None:
        self.bench.world.fail(call, how)

    @rule(container=st.sampled_from(["trainer-0", "trainer-1"]))
    def is_replaced(self, container: str) -> None:
        self.bench.world.add_container("gpu-07", container)

    @rule(is_away=st.booleans())
    def host_answers(self, is_away: bool) -> None:
        self.bench.world.set_away("gpu-07", is_away=is_away)

    @rule()
    def is_paused_or_resumed(self) -> None:
        if self.bench.engine.status()["paused"]:
            self.bench.engine.resume("tester", "go")
        else:
            self.bench.engine.pause("tester", "stop")
        self.bench.engine.work()

    @rule(which=st.integers(0, 9))
    def is_cancelled(self, which: int) -> None:
        still_open = self.bench.engine.runs(100, "open")
        if still_open:
            self.bench.engine.cancel(still_open[which % len(still_open)]["run_id"], "tester", "no more")
            self.bench.engine.work()

    @rule(mode=st.sampled_from(["enforce", "observe", "disabled"]))
    def is_edited(self, mode: str) -> None:
        self.bench.playbook(f"{SECOND}mode: {mode}\n", "second.yaml")
        assert self.bench.reload()["ok"]

    @rule(which=alerts)
    def is_run_by_hand(self, which: int) -> None:
        with contextlib.suppress(RequestError):  # one of the same values has not ended
            self.bench.engine.run_by_hand("restart", self.labels(which), {}, "tester")
        self.bench.engine.work()

    @rule(happened=st.booleans())
    def is_settled(self, happened: bool) -> None:
        for run_id in self.bench.engine.status()["unsettled_runs"][:1]:
            self.bench.engine.settle(run_id, happened, "tester", "looked")
            self.bench.engine.work()

    # -- what must hold

    def acts_on(self, target: str) -> list[Any]:
        """What really disrupted a target."""
        happened = (None, Fails.TIMEOUT_AFTER_EFFECT, Fails.UNKNOWN)
        return [
            write for write in self.bench.world.writes
            if write.call == "docker.restart" and write.target == target and write.failed in happened
        ]  # fmt: skip

    @invariant()
    def one_open_episode_per_label_set_and_one_run_per_subject(self) -> None:
        with self.bench.engine._store.read() as conn:
            n_open = func.count()
            doubled = select(episode.c.label_key).where(episode.c.ended_at.is_(None)).group_by(episode.c.label_key)
            assert conn.execute(doubled.having(n_open > 1)).all() == []
            assert conn.execute(select(run.c.subject_id).group_by(run.c.subject_id).having(n_open > 1)).all() == []

    @invariant()
    def no_target_is_disrupted_twice_by_one_run(self) -> None:
        for target in ("docker:gpu-07/trainer-0", "docker:gpu-07/trainer-1"):
            with self.bench.engine._store.read() as conn:
                begun = select(audit.c.run_id).where(audit.c.type == "attempt_started", audit.c.target == target)
                assert len(self.acts_on(target)) <= len(set(conn.execute(begun).scalars()))

    @invariant()
    def the_cooldown_of_a_target_is_respected(self) -> None:
        for target in ("docker:gpu-07/trainer-0", "docker:gpu-07/trainer-1"):
            for early, late in pairwise(self.acts_on(target)):
                assert late.at - early.at >= COOLDOWN

    @invariant()
    def only_runs_at_work_or_unknown_hold_targets(self) -> None:
        with self.bench.engine._store.read() as conn:
            held = select(reservation.c.run_id, run.c.ended_at, run.c.outcome).join(run)
            for row in conn.execute(held):
                assert row.ended_at is None or row.outcome == RunOutcome.UNKNOWN.value

    @invariant()
    def no_more_runs_are_at_work_than_may_be(self) -> None:
        with self.bench.engine._store.read() as conn:
            assert conn.execute(select(func.count()).select_from(run).where(run.c.is_admitted == 1)).scalar_one() <= 2


def next_uuid() -> uuid.UUID:
    """Not random, so that a story can be told again."""
    Machine.n_uuids += 1
    return uuid.UUID(int=Machine.n_uuids)


def test_engine_whatever_happens_then_what_must_hold_holds(make_bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Machine, "make", staticmethod(make_bench))
    monkeypatch.setattr(uuid, "uuid4", next_uuid)
    Machine.TestCase.settings = settings(
        max_examples=10,
        stateful_step_count=20,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    Machine.TestCase().runTest()
