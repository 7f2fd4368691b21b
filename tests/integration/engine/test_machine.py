"""Whatever happens in whatever order: what must always hold.

``--hypothesis-profile=soak`` tells ten times as many stories.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from sqlalchemy import Connection, func, select

from remediator.clients.fake import Fails
from remediator.core.event import EventType, utc_text
from remediator.core.outcome import RunOutcome
from remediator.core.run import fold
from remediator.errors import RequestError
from remediator.store.audit import events_of_run
from remediator.store.engine import Store
from remediator.store.tables import audit, episode, reservation, run, subject

COOLDOWN = timedelta(minutes=30)
MAX_RUNS = 2
MAX_RUNS_PER = timedelta(hours=2)
PLACES = 2

GUARD = f"guard: {{cooldown: 30m, max_runs: {{count: {MAX_RUNS}, per: 2h}}}}"

SECOND = f"""
playbook: second
match: [alertname = GPUMemoryLeakSlope]
per: [rank]
latched: true
{GUARD}
steps:
  - {{name: tell, action: notify.send, params: {{to: [oncall], title: hello}}}}
  - {{action: docker.restart, params: {{container: "{{{{ labels.container_name }}}}"}}}}
"""

MORE = f"""
verify: [{{alert: resolved, within: 20m}}]
{GUARD}
resolved: [{{action: notify.send, params: {{to: [oncall], title: it is over}}}}]
"""

LABELS = [("trainer-0", "0"), ("trainer-0", "1"), ("trainer-1", "1"), ("trainer-2", "2")]
CONTAINERS = ["trainer-0", "trainer-1", "trainer-2"]
KILLED_AT = [f"{side} {what}" for side in ("before", "behind") for what in ("a write", "an act", "a message")]

alerts = st.sampled_from(range(len(LABELS)))


IN_MEMORY = Path("/dev/shm")
"""No process really ends here, so that nothing hangs on a disk, and each story takes a tenth of the time."""

SCALE = settings.default.max_examples // 100
"""1, or 10 in the profile ``soak``."""


class Killed(BaseException):
    """The process is gone: nothing may catch it."""


class Reaper:
    """Kills at the n-th of the calls that it stands before or behind, once."""

    def __init__(self) -> None:
        self.left = 0
        self.where = ""

    def arm(self, n: int, where: str) -> None:
        self.left, self.where = n, where

    def stands_at(self, what: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **more: Any) -> Any:
            self.passes(f"before {what}")
            answer = call(*args, **more)
            self.passes(f"behind {what}")
            return answer

        return watched

    def passes(self, where: str) -> None:
        if where == self.where and self.left > 0:
            self.left -= 1
            if self.left == 0:
                raise Killed


REAPER = Reaper()


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One call that would change the world, and the attempt that the log had begun for it by then.

    Attributes:
        has_happened: as the world knows it; the engine may have been left without an answer.
    """

    at: datetime
    call: str
    target: str
    run_id: str
    step: str
    attempt: int
    playbook: str
    per_key: str
    has_happened: bool


class Machine(RuleBasedStateMachine):
    """An engine, two playbooks that mean the same containers, and everything that may happen to them."""

    make: Any = None
    n_uuids: int = 0

    def __init__(self) -> None:
        super().__init__()
        Machine.n_uuids = 0
        self.folder = Path(tempfile.mkdtemp(dir=IN_MEMORY if IN_MEMORY.is_dir() else None))
        self.bench = self.make(self.folder)
        self.acts: list[Act] = []
        self.seq = 0
        self.sent: list[dict[str, Any]] = []

    def teardown(self) -> None:
        REAPER.arm(0, "")
        self.seq = 0
        if self.bench.app is not None:
            for row in self.bench.runs():
                self.bench.check_log(row["run_id"])
            self.what_is_stored_is_what_the_log_says()
            assert self.bench.verified()
            self.bench.stop()
        shutil.rmtree(self.folder)

    # -- what happens

    def labels(self, which: int) -> dict[str, str]:
        container, rank = LABELS[which]
        labels: dict[str, str] = self.bench.leak(container, rank=rank)
        return labels

    def go(self, do: Callable[[], Any]) -> None:
        """Do it; an engine that is killed over it, or over its start, is started again."""
        try:
            do()
        except Killed:
            self.go(lambda: self.bench.away("10s"))

    def deliver(self, *members: dict[str, Any], status: str = "firing") -> None:
        self.sent += members
        self.go(lambda: self.bench.deliver(*members, status=status))

    def work(self) -> None:
        self.go(self.bench.engine.work)

    @initialize(
        hold=st.sampled_from(["0s", "2m"]), trouble=st.sampled_from(["", *Fails, *KILLED_AT]), n=st.integers(1, 12)
    )
    def begin(self, hold: str, trouble: str, n: int) -> None:
        """Each story begins with an alert, and with its first act going one of all ways there are."""
        world = self.bench.world
        for container in CONTAINERS:
            world.add_container("gpu-07", container)
        world.act = REAPER.stands_at("an act", self.watched(world.act, "docker"))
        world.tell = REAPER.stands_at("a message", self.watched(world.tell, "notify"))
        self.write_first(hold)
        self.bench.playbook(SECOND, "second.yaml")
        self.bench.playbook(f"policy: site\nmax_concurrent_runs: {PLACES}\n", "site.policy.yaml")
        self.bench.start()
        self.bench.after("1m")
        if trouble in KILLED_AT:
            self.will_be_killed(n, trouble)
        elif trouble:
            self.will_fail("docker.restart", Fails(trouble))
        self.deliver(self.bench.fires(self.labels(0)))

    def write_first(self, hold: str) -> None:
        self.bench.restarts(f"hold: {hold}\n{MORE}")

    @rule(which=alerts, ago=st.sampled_from(["0s", "3m", "2h"]))
    def fires(self, which: int, ago: str) -> None:
        self.deliver(self.bench.fires(self.labels(which), ago=ago))

    @rule(which=alerts, ago=st.sampled_from(["0s", "0s", "10m"]))
    def resolves(self, which: int, ago: str) -> None:
        self.deliver(self.bench.resolved(self.labels(which), ago=ago))

    @rule(firing=st.sets(alerts), over=st.sets(alerts), status=st.sampled_from(["firing", "resolved"]))
    def group_comes(self, firing: set[int], over: set[int], status: str) -> None:
        members = [self.bench.fires(self.labels(which)) for which in sorted(firing)]
        members += [self.bench.resolved(self.labels(which), ago="1m") for which in sorted(over)]
        self.deliver(*members, status=status)

    @rule(back=st.integers(1, 8))
    def old_word_comes_again(self, back: int) -> None:
        if self.sent:
            old = self.sent[-min(back, len(self.sent))]
            self.go(lambda: self.bench.deliver(old))

    @rule(duration=st.sampled_from(["1s", "2m", "6m", "31m", "2h"]))
    def time_passes(self, duration: str) -> None:
        self.go(lambda: self.bench.after(duration))

    @rule(hours=st.sampled_from([-1, 1]))
    def clock_is_set(self, hours: int) -> None:
        self.bench.clock.moment += timedelta(hours=hours)
        self.go(self.bench.engine._life.beat)
        self.work()

    @rule(duration=st.sampled_from(["10s", "6m", "40m", "10h"]))
    def is_killed(self, duration: str) -> None:
        self.go(lambda: self.bench.away(duration))

    @rule(n=st.integers(1, 12), where=st.sampled_from(KILLED_AT))
    def kill_comes(self, n: int, where: str) -> None:
        self.will_be_killed(n, where)

    def will_be_killed(self, n: int, where: str) -> None:
        REAPER.arm(n if where.endswith("write") else 1, where)

    @rule(call=st.sampled_from(["docker.restart", "notify.send"]), how=st.sampled_from(list(Fails)))
    def failure_comes(self, call: str, how: Fails) -> None:
        self.will_fail(call, how)

    def will_fail(self, call: str, how: Fails) -> None:
        self.bench.world.fail(call, how)

    @rule(container=st.sampled_from(CONTAINERS))
    def is_replaced(self, container: str) -> None:
        self.bench.world.add_container("gpu-07", container)

    @rule(is_away=st.booleans())
    def host_answers(self, is_away: bool) -> None:
        self.bench.world.set_away("gpu-07", is_away=is_away)

    @rule(
        does=st.sampled_from(["pause", "resume", "cancel", "say it happened", "say it did not"]),
        which=st.integers(0, 9),
    )
    def person(self, does: str, which: int) -> None:
        engine = self.bench.engine
        still_open = [row["run_id"] for row in engine.runs(100, "open")]
        unsettled = engine.status()["unsettled_runs"]
        deeds: dict[str, Callable[[], Any]] = {
            "pause": lambda: engine.pause("tester", "stop"),
            "resume": lambda: engine.resume("tester", "go"),
            "cancel": lambda: still_open and engine.cancel(still_open[which % len(still_open)], "tester", "no more"),
            "say it happened": lambda: unsettled and engine.settle(unsettled[0], True, "tester", "looked"),
            "say it did not": lambda: unsettled and engine.settle(unsettled[0], False, "tester", "looked"),
        }
        with contextlib.suppress(RequestError):  # it was not paused
            self.go(deeds[does])
        self.work()

    @rule(edit=st.sampled_from(["enforce", "observe", "disabled", "gone", "broken", "hold 0s", "hold 2m"]))
    def is_edited(self, edit: str) -> None:
        if edit.startswith("hold"):
            self.write_first(edit.removeprefix("hold "))
        elif edit == "gone":
            self.bench.playbook("", "second.yaml")
        else:
            self.bench.playbook(f"{SECOND}mode: {edit}\n", "second.yaml")
        self.go(self.bench.reload)
        if edit == "broken":  # else the next engine would not start
            self.bench.playbook(SECOND, "second.yaml")

    @rule(which=alerts, playbook=st.sampled_from(["restart", "second"]))
    def is_run_by_hand(self, which: int, playbook: str) -> None:
        with contextlib.suppress(RequestError):  # one of the same values has not ended, or there is no such playbook
            self.go(lambda: self.bench.engine.run_by_hand(playbook, self.labels(which), {}, "tester"))
        self.work()

    # -- what was done, seen from the world

    def watched(self, call: Callable[..., Any], system: str) -> Callable[..., Any]:
        """The world's own call, noted beside the attempt that the store had begun for it before."""

        def act(*args: Any) -> None:
            begun = self.begun_attempt()
            n_writes = len(self.bench.world.writes)
            try:
                call(*args)
            finally:
                for write in self.bench.world.writes[n_writes:]:
                    self.acts.append(Act(
                        at=write.at, call=write.call, target=write.target, run_id=begun["run_id"], step=begun["step"],
                        attempt=begun["attempt"], playbook=begun["playbook"], per_key=begun["per_key"],
                        has_happened=write.failed in (None, Fails.TIMEOUT_AFTER_EFFECT, Fails.UNKNOWN),
                    ))  # fmt: skip
                    assert write.call.startswith(system)

        return act

    def begun_attempt(self) -> Mapping[str, Any]:
        """The one attempt that is committed, has no end, and is about to act."""
        with self.bench.engine._store.read() as conn:
            newest = select(audit).where(audit.c.type == EventType.ATTEMPT_STARTED.value).order_by(audit.c.seq.desc())
            row = conn.execute(newest.limit(1)).one()
            data = json.loads(row.body)["data"]
            ends = select(audit.c.body).where(
                audit.c.run_id == row.run_id, audit.c.type == EventType.ATTEMPT_FINISHED.value, audit.c.seq > row.seq
            )
            assert conn.execute(ends).all() == [], "no act without the event of its beginning"
            values = conn.execute(select(run.c.playbook, run.c.per_key).where(run.c.id == row.run_id)).one()
        return {
            "run_id": row.run_id,
            "step": data["step"],
            "attempt": data["attempt"],
            "playbook": values.playbook,
            "per_key": values.per_key,
        }

    def restarts_of(self, target: str) -> list[Act]:
        """What really disrupted a target."""
        return [act for act in self.acts if act.target == target and act.has_happened]

    # -- what must hold

    @invariant()
    def one_is_open_of_each(self) -> None:
        with self.bench.engine._store.read() as conn:
            n = func.count()
            doubled = select(episode.c.label_key).where(episode.c.ended_at.is_(None)).group_by(episode.c.label_key)
            assert conn.execute(doubled.having(n > 1)).all() == []
            same = (subject.c.playbook, subject.c.case_name, subject.c.per_key, subject.c.is_by_hand)
            still_open = select(*same).where(subject.c.closed_at.is_(None), subject.c.is_by_hand == 0).group_by(*same)
            assert conn.execute(still_open.having(n > 1)).all() == []
            assert conn.execute(select(run.c.subject_id).group_by(run.c.subject_id).having(n > 1)).all() == []

    @invariant()
    def nothing_is_done_twice(self) -> None:
        attempts = [(act.run_id, act.step, act.attempt, act.target) for act in self.acts]
        assert len(set(attempts)) == len(attempts), "each attempt touches the world once"
        done = [(act.run_id, act.step, act.target) for act in self.acts if act.has_happened]
        again = {act for act in done if done.count(act) > 1 and not act[1].startswith("message.")}
        assert again == set(), "what has happened is not tried again"

    @invariant()
    def the_cooldown_of_a_target_is_respected(self) -> None:
        for container in CONTAINERS:
            for early, late in pairwise(self.restarts_of(f"docker:gpu-07/{container}")):
                assert late.at - early.at >= COOLDOWN

    @invariant()
    def the_cooldown_of_a_playbooks_values_is_respected(self) -> None:
        last: dict[tuple[str, str], Act] = {}
        for act in self.acts:
            if act.call == "docker.restart" and act.has_happened:
                before = last.get((act.playbook, act.per_key))
                assert before is None or before.run_id == act.run_id or act.at - before.at >= COOLDOWN
                last[act.playbook, act.per_key] = act

    @invariant()
    def no_more_runs_act_on_the_same_values_than_may(self) -> None:
        acted: dict[tuple[str, str], dict[str, datetime]] = {}
        for act in self.acts:
            if act.call == "docker.restart" and act.has_happened:
                acted.setdefault((act.playbook, act.per_key), {})[act.run_id] = act.at
        for moments in acted.values():
            ordered = list(moments.values())
            for first, beyond in zip(ordered, ordered[MAX_RUNS:], strict=False):
                assert beyond - first >= MAX_RUNS_PER

    @invariant()
    def only_runs_at_work_or_unknown_hold_targets(self) -> None:
        with self.bench.engine._store.read() as conn:
            held = select(reservation.c.run_id, run.c.ended_at, run.c.outcome).join(run)
            for row in conn.execute(held):
                assert row.ended_at is None or row.outcome == RunOutcome.UNKNOWN.value

    @invariant()
    def no_more_runs_are_at_work_than_may_be(self) -> None:
        with self.bench.engine._store.read() as conn:
            n_admitted = select(func.count()).select_from(run).where(run.c.is_admitted == 1)
            assert conn.execute(n_admitted).scalar_one() <= PLACES

    @invariant()
    def what_is_stored_is_what_the_log_says(self) -> None:
        with self.bench.engine._store.read() as conn:
            seq, before = conn.execute(select(func.max(audit.c.seq))).scalar_one(), self.seq
            self.seq = seq
            if seq == before:
                return
            for row in conn.execute(select(run)):
                events = [one.event for one in sorted(events_of_run(conn, row.id), key=lambda one: one.seq)]
                said = fold(events)
                assert (row.outcome, row.reason, row.ended_at, bool(row.has_acted)) == (
                    said.outcome.value if said.outcome else "",
                    said.reason.value if said.outcome else "",
                    utc_text(said.ended_at) if said.ended_at else None,
                    said.has_acted,
                )
            begun = self.noted(conn, audit.c.episode_id, EventType.EPISODE_OPENED)
            over = self.noted(conn, audit.c.episode_id, EventType.EPISODE_ENDED)
            still_open = select(episode.c.id).where(episode.c.ended_at.is_(None))
            assert begun - over == set(conn.execute(still_open).scalars())
            begun = self.noted(conn, audit.c.subject_id, EventType.SUBJECT_OPENED, EventType.SUBJECT_ADOPTED)
            over = self.noted(conn, audit.c.subject_id, EventType.SUBJECT_CLOSED)
            still_open = select(subject.c.id).where(subject.c.closed_at.is_(None))
            assert begun - over == set(conn.execute(still_open).scalars())

    def noted(self, conn: Connection, column: Any, *kinds: EventType) -> set[str]:
        """The ids that events of these kinds are about."""
        return set(conn.execute(select(column).where(audit.c.type.in_([kind.value for kind in kinds]))).scalars())


def next_uuid() -> uuid.UUID:
    """Not random, so that a story can be told again."""
    Machine.n_uuids += 1
    return uuid.UUID(int=Machine.n_uuids)


@pytest.mark.timeout(300 * SCALE)
def test_engine_whatever_happens_then_what_must_hold_holds(make_bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Machine, "make", staticmethod(make_bench))
    monkeypatch.setattr(uuid, "uuid4", next_uuid)
    monkeypatch.setattr(Store, "write", REAPER.stands_at("a write", Store.write))
    Machine.TestCase.settings = settings(
        max_examples=20 * SCALE,
        stateful_step_count=30,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    Machine.TestCase().runTest()
