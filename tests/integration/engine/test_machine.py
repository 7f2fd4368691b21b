"""Whatever happens in whatever order: what must always hold.

``--hypothesis-profile=soak`` tells ten times as many stories.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from itertools import compress, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from sqlalchemy import Connection, func, select

from remediator.clients.ports import CpuLimit
from remediator.core.event import EventType, utc_text
from remediator.core.outcome import RunOutcome
from remediator.core.policy import Breaker, Limit, Share
from remediator.core.run import fold
from remediator.core.scenario import Failure
from remediator.errors import RequestError
from remediator.store.audit import log_of_run
from remediator.store.engine import Store
from remediator.store.tables import audit, due, episode, lease, reservation, run, subject
from witness import Act, Witness

COOLDOWN = timedelta(minutes=30)
MAX_RUNS = 2
MAX_RUNS_PER = timedelta(hours=2)
PLACES = 2
FEW_ACTS = Limit(count=3, per=timedelta(hours=1))
BREAKER = Breaker(name="site", share=Share(percent=67, of="trainers"), within=timedelta(minutes=30), or_failures=2)
FLEETS = {"trainers": {"kind": "container", "size": 3}}

GUARD = f"cooldown: 30m, max_runs: {{count: {MAX_RUNS}, per: 2h}}"
ASKS = "approval: {ask: [oncall], expires: 1h}"
CONTAINER = 'container: "{{ labels.container_name }}"'

SECOND = f"""
playbook: second
match: [alertname = GPUMemoryLeakSlope]
per: [rank]
latched: true
guard: {{{GUARD}}}
steps:
  - {{name: tell, action: notify.send, params: {{to: [oncall], title: hello}}}}
  - {{action: docker.restart, params: {{{CONTAINER}}}}}
"""

MORE = """
resolved: [{action: notify.send, params: {to: [oncall], title: it is over}}]
escalate: {to: [oncall]}
report: {to: [ml-platform]}
"""


class Feature(StrEnum):
    """What a story's playbooks and policy have beside the plain."""

    HOLDS = "hold"
    ASKS = "approval of the whole"
    STEP_ASKS = "approval of a step"
    STEP_VERIFIES = "verification of a step"
    MEASURES = "verification by a number"
    REQUIRES = "require"
    FEW_TARGETS = "max_targets"
    FEW_ACTS = "max_disruptive_acts"
    BREAKER = "breaker"
    RUNGS_ASK = "approval of each rung"
    UNDO_REQUIRES = "undo.require"
    NEVER = "undo: never"


def first(has: frozenset[Feature], hold: str) -> str:
    """Restarts what leaks."""
    guard = GUARD
    guard += ", max_targets: {count: 1, per: 6h}" if Feature.FEW_TARGETS in has else ""
    guard += ", require: [{name: up, query: up, equals: 1}]" if Feature.REQUIRES in has else ""
    saved = ", verify: [{name: saved, query: saved, below: 120, within: 2m}]"
    signal = f"  - {{name: save, action: docker.signal, params: {{{CONTAINER}, signal: SIGUSR1}}{saved}}}"
    restart = f"  - {{name: restart, action: docker.restart, params: {{{CONTAINER}}}"
    restart += f", {ASKS}}}" if Feature.STEP_ASKS in has else "}"
    ratio = "{name: ratio, query: ratio, below: 0.8, holds: 1m, within: 5m}"
    return "\n".join([
        "playbook: restart",
        "match: [alertname = GPUMemoryLeakSlope]",
        "per: [host, container_name]",
        f"hold: {hold}",
        f"guard: {{{guard}}}",
        ASKS if Feature.ASKS in has else "",
        "steps:",
        signal if Feature.STEP_VERIFIES in has else "",
        restart,
        f"verify: [{ratio if Feature.MEASURES in has else '{alert: resolved, within: 20m}'}]",
        MORE,
    ])  # fmt: skip


def cap(has: frozenset[Feature]) -> str:
    """Limits what is hot, ever more, and takes it back."""
    limit = f"action: docker.limit, timeout: 1m, params: {{{CONTAINER}"
    require = ", require: [{name: temp_max, query: temp_max, below: 78}]" if Feature.UNDO_REQUIRES in has else ""
    return f"""
playbook: cap
match: [alertname = Hot]
per: [container_name]
ladder: {{within: 6h}}
guard: {{cooldown: 30m, max_runs: {{count: 100, per: 24h}}}}
{ASKS if Feature.RUNGS_ASK in has else ""}
steps:
  - {{name: mild, rung: 1, {limit}, cpus: 3}}}}
  - {{name: hard, rung: 2, {limit}, cpus: 2}}}}
  - {{name: harder, rung: 3, {limit}, cpus: 1}}}}
  - {{name: anew, rung: 3, action: docker.restart, params: {{{CONTAINER}}}}}
verify: [{{name: temp, query: temp, below: 82, within: 2m}}]
undo: {{after: 5m, at_most: 3h{require}}}
escalate: {{to: [oncall]}}
"""


def less(has: frozenset[Feature]) -> str:
    """Limits what is busy, on the same containers."""
    undo = "when: never" if Feature.NEVER in has else "when: resolved, at_most: 1h"
    asks = f", {ASKS}" if Feature.STEP_ASKS in has else ""
    params = f"params: {{{CONTAINER}, cpus: 1.5}}, timeout: 1m, undo: {{{undo}}}"
    return f"""
playbook: less
match: [alertname = Busy]
per: [container_name]
steps: [{{name: less, action: docker.limit, {params}{asks}}}]
escalate: {{to: [oncall]}}
"""


def policy(has: frozenset[Feature], mode: str = "enforce") -> str:
    """The site's."""
    breaker = "breaker: {percent: 67, of: trainers, within: 30m, or_failures: 2}"
    return "\n".join([
        "policy: site",
        f"max_concurrent_runs: {PLACES}",
        f"mode: {mode}",
        "max_disruptive_acts: {count: 3, per: 1h}" if Feature.FEW_ACTS in has else "",
        breaker if Feature.BREAKER in has else "",
        "",
    ])  # fmt: skip


LABELS = [
    ("GPUMemoryLeakSlope", "trainer-0", "0"),
    ("GPUMemoryLeakSlope", "trainer-0", "1"),
    ("GPUMemoryLeakSlope", "trainer-1", "1"),
    ("GPUMemoryLeakSlope", "trainer-2", "2"),
    ("Hot", "trainer-0", "0"),
    ("Hot", "trainer-1", "0"),
    ("Busy", "trainer-0", "0"),
    ("Busy", "trainer-1", "0"),
]
CONTAINERS = ["trainer-0", "trainer-1", "trainer-2"]
KILLED_AT = [f"{side} {what}" for side in ("before", "behind") for what in ("a write", "an act", "a message")]
GOOD = {"up": 1.0, "saved": 5.0, "ratio": 0.5, "temp": 70.0, "temp_max": 70.0}
BAD = {"up": 0.0, "saved": 9000.0, "ratio": 0.9, "temp": 90.0, "temp_max": 90.0}

alerts = st.sampled_from(range(len(LABELS)))
features = st.lists(st.sampled_from([False, False, True]), min_size=len(Feature), max_size=len(Feature)).map(
    lambda flags: frozenset(compress(Feature, flags))
)
answers = st.sampled_from(["approve", "approve", "approve", "deny", "reset", ""])
whiles = st.sampled_from(["0s", "2m", "2m", "6m", "31m"])


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


class Machine(RuleBasedStateMachine):
    """An engine, four playbooks that mean the same containers, and everything that may happen to them."""

    make: Any = None
    n_uuids: int = 0

    def __init__(self) -> None:
        super().__init__()
        Machine.n_uuids = 0
        self.folder = Path(tempfile.mkdtemp(dir=IN_MEMORY if IN_MEMORY.is_dir() else None))
        self.bench = self.make(self.folder)
        self.bench.start = partial(self.bench.start, fleets=FLEETS)
        self.has: frozenset[Feature] = frozenset()
        self.witness: Witness
        self.seq = 0
        self.latest = self.bench.clock.moment
        self.sent: list[dict[str, Any]] = []

    @property
    def acts(self) -> list[Act]:
        return self.witness.acts

    def teardown(self) -> None:
        REAPER.arm(0, "")
        self.seq = 0
        if self.bench.app is not None:
            if sys.exception() is None:  # else what has broken is to be told, not what follows from it
                self.all_comes_to_rest()
                for row in self.bench.runs():
                    self.bench.check_log(row["run_id"])
                self.what_is_stored_is_what_the_log_says()
                assert self.bench.verified()
            self.bench.stop()
        shutil.rmtree(self.folder)

    # -- what happens

    def labels(self, which: int) -> dict[str, str]:
        alertname, container, rank = LABELS[which]
        labels: dict[str, str] = self.bench.leak(container, rank=rank) | {"alertname": alertname}
        return labels

    def go(self, do: Callable[[], Any]) -> None:
        """Do it; an engine that is killed over it, or over its start, is started again."""
        began = self.bench.clock.moment
        try:
            do()
        except Killed:
            self.go(lambda: self.bench.away("10s"))
            self.witness.away.append((began, self.bench.clock.moment))

    def deliver(self, *members: dict[str, Any], status: str = "firing") -> None:
        self.sent += members
        self.go(lambda: self.bench.deliver(*members, status=status))

    def work(self) -> None:
        self.go(self.bench.engine.work)

    @initialize(
        has=features,
        which=alerts,
        is_bad=st.booleans(),
        up=st.sampled_from([[1.0], [1.0], [0.0], []]),
        trouble=st.sampled_from(["", "", *Failure, *KILLED_AT]),
        n=st.integers(1, 12),
    )
    def begin(self, has: frozenset[Feature], which: int, is_bad: bool, up: list[float], trouble: str, n: int) -> None:
        """Each story begins with an alert, and with its first act going one of all ways there are."""
        world, self.has = self.bench.world, has
        limit, breaker = FEW_ACTS if Feature.FEW_ACTS in has else None, BREAKER if Feature.BREAKER in has else None
        self.witness = Witness(world, self.bench.clock.now, limit, breaker, len(CONTAINERS))
        for container in CONTAINERS:
            self.is_replaced(container)
        for name, value in (BAD if is_bad else GOOD).items():
            self.bench.sees(name, value)
        self.bench.sees("up", *up)
        world.act = REAPER.stands_at("an act", self.watched(world.act))
        world.tell = REAPER.stands_at("a message", self.watched_messages(world.tell))
        self.write_first("2m" if Feature.HOLDS in has else "0s")
        self.bench.playbook(SECOND, "second.yaml")
        self.bench.playbook(cap(has), "cap.yaml")
        self.bench.playbook(less(has), "less.yaml")
        self.bench.playbook(policy(has), "site.policy.yaml")
        self.bench.start()
        self.bench.after("1m")
        if trouble in KILLED_AT:
            self.will_be_killed(n, trouble)
        elif trouble:
            self.will_fail(
                "docker.limit" if LABELS[which][0] in ("Hot", "Busy") else "docker.restart", Failure(trouble)
            )
        self.deliver(self.bench.fires(self.labels(which)))

    def write_first(self, hold: str) -> None:
        self.bench.playbook(first(self.has, hold), "restart.yaml")

    @rule(which=alerts, ago=st.sampled_from(["0s", "3m", "2h"]), answer=answers, then=whiles)
    def fires(self, which: int, ago: str, answer: str, then: str) -> None:
        self.deliver(self.bench.fires(self.labels(which), ago=ago))
        self.let_person(answer, 0)
        self.time_passes(then)

    @rule(
        which=alerts,
        rounds=st.lists(answers, min_size=2, max_size=4),
        every=st.sampled_from(["2m", "6m"]),
        is_over=st.booleans(),
    )
    def fires_on(self, which: int, rounds: list[str], every: str, is_over: bool) -> None:
        for answer in rounds:
            self.fires(which, "0s", answer, every)
            self.what_is_seen_is_as_it_must_be()
        if is_over:
            self.resolves(which, "0s", "11m")

    @rule(which=alerts, ago=st.sampled_from(["0s", "0s", "10m"]), then=whiles)
    def resolves(self, which: int, ago: str, then: str) -> None:
        self.deliver(self.bench.resolved(self.labels(which), ago=ago))
        self.time_passes(then)

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
        began = self.bench.clock.moment
        self.latest = max(self.latest, began)
        self.bench.clock.moment += timedelta(hours=hours)
        self.witness.away.append((began, self.bench.clock.moment))
        self.go(self.bench.engine._life.beat)
        self.work()

    @rule(duration=st.sampled_from(["10s", "6m", "40m", "10h"]))
    def is_killed(self, duration: str) -> None:
        began = self.bench.clock.moment
        self.go(lambda: self.bench.away(duration))
        self.witness.away.append((began, self.bench.clock.moment))

    @rule(n=st.integers(1, 12), where=st.sampled_from(KILLED_AT))
    def kill_comes(self, n: int, where: str) -> None:
        self.will_be_killed(n, where)

    def will_be_killed(self, n: int, where: str) -> None:
        REAPER.arm(n if where.endswith("write") else 1, where)

    @rule(
        call=st.sampled_from(["docker.restart", "docker.limit", "docker.limit", "notify.send"]),
        how=st.sampled_from(list(Failure)),
    )
    def failure_comes(self, call: str, how: Failure) -> None:
        self.will_fail(call, how)

    def will_fail(self, call: str, how: Failure) -> None:
        self.bench.world.fail(call, how)

    @rule(container=st.sampled_from(CONTAINERS))
    def is_replaced(self, container: str) -> None:
        self.bench.world.add_container("gpu-07", container)
        self.witness.rightful[f"docker:gpu-07/{container}"] = CpuLimit()

    @rule(container=st.sampled_from(CONTAINERS), cpus=st.sampled_from([0.5, 4.0, 5.0]))
    def is_changed_by_others(self, container: str, cpus: float) -> None:
        limit = CpuLimit(quota_us=int(cpus * 100_000))
        self.bench.world.set_cpu("gpu-07", container, limit)
        self.witness.rightful[f"docker:gpu-07/{container}"] = limit

    @rule(is_away=st.booleans())
    def host_answers(self, is_away: bool) -> None:
        self.bench.world.set_away("gpu-07", is_away=is_away)

    @rule(
        name=st.sampled_from(list(GOOD)),
        how=st.sampled_from(["good", "bad", "good", "bad", "nothing", "several"]),
        then=whiles,
    )
    def prometheus_says(self, name: str, how: str, then: str) -> None:
        values = {"good": [GOOD[name]], "bad": [BAD[name]], "nothing": [], "several": [GOOD[name], GOOD[name]]}[how]
        self.bench.sees(name, *values)
        self.time_passes(then)

    @rule(is_away=st.booleans())
    def prometheus_answers(self, is_away: bool) -> None:
        self.bench.world.prometheus_away(is_away)

    @rule(
        does=st.sampled_from(["pause", "resume", "cancel", "say it happened", "say it did not", "note", "undo"]),
        which=st.integers(0, 9),
    )
    def person(self, does: str, which: int) -> None:
        self.let_person(does, which)

    @rule(does=answers, which=st.integers(0, 1), then=whiles)
    def person_answers(self, does: str, which: int, then: str) -> None:
        self.let_person(does, which)
        self.time_passes(then)

    def let_person(self, does: str, which: int) -> None:
        """Let a person do it, where there is anything to be done."""
        if not does:
            return
        engine = self.bench.engine
        found = {
            "cancel": lambda: [row["run_id"] for row in engine.runs(100, "open")],
            "note": lambda: [row["run_id"] for row in engine.runs(100, "all")],
            "undo": lambda: [lease["run_id"] for lease in engine.leases(100, is_all=False)],
            "approve": self.asking,
            "deny": self.asking,
            "reset": lambda: [row["name"] for row in engine.breakers() if row["tripped"]],
            "say it happened": lambda: engine.status()["unsettled_runs"],
            "say it did not": lambda: engine.status()["unsettled_runs"],
        }.get(does, lambda: [""])()
        if not found:
            return
        about = found[which % len(found)]
        deeds: dict[str, Callable[[], Any]] = {
            "pause": lambda: engine.pause("tester", "stop"),
            "resume": lambda: engine.resume("tester", "go"),
            "cancel": lambda: engine.cancel(about, "tester", "no more"),
            "note": lambda: engine.note(about, "tester", "seen"),
            "undo": lambda: engine.undo(about, "", "tester", "I want it back"),
            "approve": lambda: engine.approve(about, "tester", "yes"),
            "deny": lambda: engine.deny(about, "tester", "no"),
            "reset": lambda: engine.reset_breaker(about, "tester", "it is known"),
            "say it happened": lambda: engine.settle(about, True, "tester", "looked"),
            "say it did not": lambda: engine.settle(about, False, "tester", "looked"),
        }
        self.witness.answering = about if does == "approve" else ""
        if does == "undo":
            self.witness.asked_back.add(about)
        with contextlib.suppress(RequestError):  # it was not paused, or the question has expired
            self.go(deeds[does])
        self.work()
        self.what_is_seen_is_as_it_must_be()
        self.witness.answering = ""

    def asking(self) -> list[str]:
        return [row["run_id"] for row in self.bench.engine.runs(100, "open") if row["phase"] == "asking"]

    @rule(is_there=st.booleans())
    def pause_file(self, is_there: bool) -> None:
        (self.bench.folder / "PAUSE").touch() if is_there else (self.bench.folder / "PAUSE").unlink(missing_ok=True)
        self.witness.is_paused_by_file = is_there
        self.work()

    @rule(edit=st.sampled_from(["enforce", "observe", "disabled", "gone", "broken", "hold 0s", "hold 2m"]))
    def is_edited(self, edit: str) -> None:
        may_act = self.witness.forbidden - {"second"}
        if edit.startswith("hold"):
            self.write_first(edit.removeprefix("hold "))
            may_act = self.witness.forbidden
        elif edit == "gone":
            self.bench.playbook("", "second.yaml")
        else:
            self.bench.playbook(f"{SECOND}mode: {edit}\n", "second.yaml")
        self.go(self.reload)
        self.what_is_seen_is_as_it_must_be()
        self.witness.forbidden = may_act | ({"second"} if edit in ("observe", "disabled", "gone") else set())

    def reload(self) -> None:
        try:
            self.bench.reload()
        finally:  # with what is broken the next engine would not start
            broken = self.bench.folder / "playbooks" / "second.yaml"
            if "broken" in broken.read_text():
                self.bench.playbook(SECOND, "second.yaml")

    @rule(mode=st.sampled_from(["enforce", "enforce", "observe"]))
    def policy_is_edited(self, mode: str) -> None:
        self.bench.playbook(policy(self.has, mode), "site.policy.yaml")
        self.go(self.bench.reload)
        self.what_is_seen_is_as_it_must_be()
        others = {"restart", "cap", "less"}
        self.witness.forbidden = (
            self.witness.forbidden | others if mode == "observe" else self.witness.forbidden - others
        )

    @rule(which=alerts, playbook=st.sampled_from(["restart", "second", "cap", "less"]))
    def is_run_by_hand(self, which: int, playbook: str) -> None:
        with contextlib.suppress(RequestError):  # one of the same values has not ended, or there is no such playbook
            self.go(lambda: self.bench.engine.run_by_hand(playbook, self.labels(which), {}, "tester"))
        self.work()

    def all_comes_to_rest(self) -> None:
        """The world is calm, every alert is resolved, people answer, and time passes: nothing is left behind."""
        world = self.bench.world
        if self.bench.clock.moment < self.latest:  # it was set back: what was measured by it lies in the future
            self.bench.clock.moment = self.latest
        world._failures.clear()
        world.set_away("gpu-07", is_away=False)
        world.prometheus_away(False)
        for name, value in GOOD.items():
            self.bench.sees(name, value)
        self.policy_is_edited("enforce")
        self.pause_file(False)
        self.let_person("resume", 0)
        self.time_passes("1m")
        self.deliver(*(self.bench.resolved(self.labels(which)) for which in range(len(LABELS))))
        for hours in (1, 1, 1, 1, 4, 6):
            for does in ("say it happened", "approve", "reset"):
                for _ in range(4):
                    self.let_person(does, 0)
            self.time_passes(f"{hours}h")
        self.what_is_seen_is_as_it_must_be()
        stays: set[str] = set()  # targets of leases that only a person ends, and of what lies below such
        for one in self.bench.engine.leases(100, is_all=False):
            assert one["when"] == "never" or one["state"] == "kept" or one["target"] in stays, "a lease is left behind"
            stays.add(one["target"])
        for _ in self.bench.engine.leases(100, is_all=False):
            self.let_person("undo", 0)
        assert self.bench.engine.leases(100, is_all=False) == []
        assert {row["phase"] for row in self.bench.runs()} <= {"closed"}, "every run has ended"
        assert self.bench.reserved() == []
        assert self.bench.engine.status()["open_subjects"] == 0
        with self.bench.engine._store.read() as conn:
            assert conn.execute(select(due)).all() == [], "nothing is due any more"

    # -- what was done, seen from the world

    def watched(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """The world's own call, seen beside what the log had begun for it before."""
        world = self.bench.world

        def act(name: str, host: str, container_id: str, args: Mapping[str, str]) -> None:
            self.witness.sees(lambda: self.witness.read(self.bench.engine._store))
            before, n_writes = world.container(host, container_id), len(world.writes)
            try:
                call(name, host, container_id, args)
            finally:
                for write in world.writes[n_writes:]:
                    after = world.container(host, before.name)
                    self.witness.sees(partial(self.witness.has_acted, write, before, after))

        return act

    def watched_messages(self, call: Callable[..., Any]) -> Callable[..., Any]:
        world = self.bench.world

        def tell(*args: Any) -> None:
            self.witness.sees(lambda: self.witness.read(self.bench.engine._store))
            n_writes = len(world.writes)
            try:
                call(*args)
            finally:
                for write in world.writes[n_writes:]:
                    self.witness.sees(partial(self.witness.was_told, write))

        return tell

    def restarts_of(self, target: str) -> list[Act]:
        """What really disrupted a target."""
        return [act for act in self.acts if act.target == target and act.has_happened and act.call != "docker.limit"]

    # -- what must hold

    @invariant()
    def what_is_seen_is_as_it_must_be(self) -> None:
        self.witness.check()
        self.witness.read(self.bench.engine._store)
        self.witness.check_limits_of_containers()

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
        attempts = [(act.run_id, act.n_plans, act.step, act.attempt, act.target) for act in self.acts if act.run_id]
        assert len(set(attempts)) == len(attempts), "each attempt touches the world once"
        done = [(act.run_id, act.step, act.target) for act in self.acts if act.has_happened and act.run_id]
        again = {act for act in done if done.count(act) > 1 and not act[1].startswith("message.")}
        assert again == set(), "what has happened is not tried again"

    @invariant()
    def the_cooldown_of_a_target_is_respected(self) -> None:
        for container in CONTAINERS:
            for early, late in pairwise(self.restarts_of(f"docker:gpu-07/{container}")):
                assert late.run_id == early.run_id or late.at - early.at >= COOLDOWN

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
            if act.call == "docker.restart" and act.has_happened and act.playbook in ("restart", "second"):
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
                events = [one.event for one in log_of_run(conn, row.id)]
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
            known = {lease.id: lease.how for lease in self.leases(conn)}
            assert known == {lease_id: seen.how for lease_id, seen in self.witness.leases.items()}
            begun = self.noted(conn, audit.c.subject_id, EventType.SUBJECT_OPENED, EventType.SUBJECT_ADOPTED)
            over = self.noted(conn, audit.c.subject_id, EventType.SUBJECT_CLOSED)
            still_open = select(subject.c.id).where(subject.c.closed_at.is_(None))
            assert begun - over == set(conn.execute(still_open).scalars())

    def leases(self, conn: Connection) -> list[Any]:
        return list(conn.execute(select(lease.c.id, lease.c.how)))

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
