"""What must hold whatever happens: asked of the log as it grows, and of every call that reached the world.

A ``Witness`` reads each event once, in the log's order, and is told of each act at the moment it happens, with the
state before and after. It keeps books of its own, and never asks the engine what it thinks. It breaks at the first
thing that must not be.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import select

from remediator.clients.fake import FakeWorld, Write
from remediator.clients.ports import ContainerState, CpuLimit
from remediator.core.action import UndoWhen
from remediator.core.alert import label_key
from remediator.core.condition import Condition, Reading, Seen, look
from remediator.core.event import utc_time
from remediator.core.plan import Plan, PlannedStep, Undo, unpack_condition, unpack_plan
from remediator.core.policy import Breaker, Limit, Mode
from remediator.core.run import rung_key
from remediator.core.scenario import Failure
from remediator.core.units import parse_duration
from remediator.errors import TransientActionError
from remediator.store.engine import Store
from remediator.store.tables import audit

WITHOUT_FIX = ("failed", "ineffective", "unknown")


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One call that would change the world, and the attempt that the log had begun for it by then.

    Attributes:
        run_id, step, attempt: whose; "" and 0 of what is taken back.
        n_plans: how often its run had been planned by then: one that is planned anew asks anew.
        has_happened: as the world knows it; the engine may have been left without an answer.
    """

    at: datetime
    call: str
    target: str
    run_id: str
    step: str
    attempt: int
    n_plans: int
    playbook: str
    per_key: str
    has_happened: bool


@dataclass(slots=True)
class Asked:
    """A question, by the log."""

    at: datetime
    expires: timedelta
    given_at: datetime | None = None
    given_seq: int = 0


@dataclass(slots=True)
class SeenRun:
    """A run, by the log.

    Attributes:
        turn_at: when its turn first came.
        admitted: (seq, rung) of the newest verdict that let it act.
        highest: rung that it was let act on.
        verified: (step, rung) → how a verification ended.
        lent: steps of which a lease was opened.
        unclear: steps of which an attempt ended without anybody knowing what it did.
    """

    plan: Plan
    n_plans: int = 1
    turn_at: datetime | None = None
    questions: dict[str, Asked] = field(default_factory=dict)
    admitted: tuple[int, int] | None = None
    highest: int = 0
    verified: dict[tuple[str, int], str] = field(default_factory=dict)
    started: dict[tuple[str, int], Mapping[str, Any]] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)
    lent: set[str] = field(default_factory=set)
    unclear: set[str] = field(default_factory=set)
    has_acted: bool = False
    ended_at: datetime | None = None
    outcome: str = ""

    def step(self, key: str) -> PlannedStep:
        return next(step for step in (*self.plan.steps, *self.plan.resolved) if step.key == key)


@dataclass(slots=True)
class SeenLease:
    """A lease, by the log."""

    run_id: str
    target: str
    playbook: str
    per_key: str
    undo: Undo
    opened_at: datetime
    before: Mapping[str, Any]
    is_released: bool = False
    how: str = ""


@dataclass(slots=True)
class SeenSubject:
    """A subject, by the log."""

    values: tuple[str, str]
    is_by_hand: bool
    closed_at: datetime | None = None
    reason: str = ""


class Witness:
    """Watches one story.

    Attributes:
        acts: what really was called, in order.
        answering: the run that a person is saying yes about right now.
        forbidden: playbooks that may not act by now.
        asked_back: runs of which a person asked to take back what they did.
        away: when the engine was away, as far as time away counts in nothing.
        rightful: target → the CPU limit that others have set there last.
        is_paused_by_file: a pause file lies there.
    """

    def __init__(
        self, world: FakeWorld, now: Callable[[], datetime], limit: Limit | None, breaker: Breaker | None, n_fleet: int
    ) -> None:
        self.world = world
        self.now = now
        self.limit = limit
        self.breaker = breaker
        self.n_fleet = n_fleet
        self.acts: list[Act] = []
        self.answering = ""
        self.forbidden: set[str] = set()
        self.asked_back: set[str] = set()
        self.away: list[tuple[datetime, datetime]] = []
        self.rightful: dict[str, CpuLimit] = {}
        self.is_paused_by_file = False
        self.runs: dict[str, SeenRun] = {}
        self.leases: dict[str, SeenLease] = {}
        self._seq = 0
        self._seen: Exception | None = None
        self._subjects: dict[str, SeenSubject] = {}
        self._left: dict[str, tuple[str, CpuLimit]] = {}
        self._undoing: dict[str, Mapping[str, Any]] = {}
        self._admissions: dict[tuple[str, int], tuple[datetime, int]] = {}
        self._is_paused = False
        self._tripped: set[str] = set()
        self._counts_from: dict[str, datetime] = {}

    # -- the log

    def read(self, store: Store) -> int:
        """Take in what is new in the log; its last place."""
        with store.read() as conn:
            rows = conn.execute(select(audit.c.seq, audit.c.body).where(audit.c.seq > self._seq).order_by(audit.c.seq))
            new = [(row.seq, json.loads(row.body)) for row in rows]
        broken: list[str] = []
        for seq, event in new:
            self._seq = seq
            reads = getattr(self, f"_{event['type']}", None)
            if reads is not None:
                reads(event, utc_time(event["at"]), event["data"])
            if event["type"] == "lease_closed" and event["data"]["how"] != "undone":
                broken.append(event["target"])
        for target in broken:
            still_open = {lease.opened_at for lease in self.open_leases(target)}
            assert not still_open or "lease_opened" in {event["type"] for _, event in new}, (
                "one that drifted takes its whole stack along"
            )
        return self._seq

    def _plan_made(self, event: Any, at: datetime, data: Any) -> None:
        plan = unpack_plan(data["plan"])
        known = self.runs.get(event["run_id"])
        if known is None:
            self.runs[event["run_id"]] = SeenRun(plan)
        else:  # planned anew: judged and asked for anew
            known.plan, known.questions, known.admitted = plan, {}, None
            known.n_plans += 1

    def _plan_refused(self, event: Any, at: datetime, data: Any) -> None:
        self.runs[event["run_id"]] = SeenRun(unpack_plan(data["plan"]), ended_at=at, outcome="refused")

    def _subject_opened(self, event: Any, at: datetime, data: Any) -> None:
        values = (event["playbook"], label_key(data["per"]))
        self._subjects[event["subject_id"]] = SeenSubject(values, data.get("by_hand", False))

    _subject_adopted = _subject_opened

    def _subject_closed(self, event: Any, at: datetime, data: Any) -> None:
        subject = self._subjects[event["subject_id"]]
        subject.closed_at, subject.reason = at, data["reason"]

    def _paused(self, event: Any, at: datetime, data: Any) -> None:
        self._is_paused = True

    def _resumed(self, event: Any, at: datetime, data: Any) -> None:
        self._is_paused = False

    def _turn_waited(self, event: Any, at: datetime, data: Any) -> None:
        run = self.runs[event["run_id"]]
        run.turn_at = run.turn_at or at

    def _verdict_given(self, event: Any, at: datetime, data: Any) -> None:
        run = self.runs[event["run_id"]]
        run.turn_at = run.turn_at or at
        if data["word"] != "allow" or run.plan.mode is not Mode.ENFORCE:
            return
        rung, acts = data["rung"], run.plan.acts_of(data["rung"])
        if acts or not run.has_acted:
            for condition in run.plan.require:
                assert self.says(condition) is Seen.MET, f"{condition.name} was required, and is not so"
        if rung:
            self._check_rung(event["run_id"], run, rung)
        if acts:
            assert not self._tripped, "nothing is let act, or asked for, while a breaker is tripped"
            assert not self.is_paused, "nor in a pause"
            if not data["asks"]:
                if run.plan.approval is not None:
                    self._check_yes(run, rung_key(rung))
                self._check_limits(event["run_id"], run, rung, at, {target["ref"] for target in data["targets"]})
        if not data["asks"]:
            run.admitted = (self._seq, rung)
            run.highest = max(run.highest, rung)

    def _check_rung(self, run_id: str, run: SeenRun, rung: int) -> None:
        """Each rung after one that was found not to have helped; or the first, by how the last run went."""
        if run.highest == rung or rung == 1:
            return
        if run.highest:
            assert run.verified.get(("", rung - 1)) == "failed", "no rung higher unless the one before did not help"
            return
        assert run.plan.ladder is not None
        assert run.turn_at is not None
        before = [
            other
            for other_id, other in self.runs.items()
            if other_id != run_id
            and (other.plan.playbook, other.plan.per_key) == (run.plan.playbook, run.plan.per_key)
            and other.has_acted
            and other.ended_at is not None
            and run.turn_at - other.ended_at <= run.plan.ladder
        ]
        assert any(min(other.highest + 1, run.plan.top_rung) >= rung for other in before), "it began too high"

    def _check_yes(self, run: SeenRun, key: str) -> None:
        """The newest verdict that let it act, or that does now, came after a yes to this question."""
        question = run.questions.get(key)
        assert question is not None, f"{key} was to be asked for"
        assert question.given_at is not None, f"nobody said yes to {key}"

    def _check_limits(self, run_id: str, run: SeenRun, rung: int, at: datetime, refs: set[str]) -> None:
        n_own = sum(step.is_disruptive for step in run.plan.acts_of(rung))
        if self.limit is not None and n_own:
            others = [
                n for who, (when, n) in self._admissions.items() if who != (run_id, rung) and when > at - self.limit.per
            ]
            assert sum(others) + n_own <= self.limit.count, "more disruptive acts than may be in one window"
        self._admissions[run_id, rung] = (at, n_own)
        wanted = run.plan.guard.max_targets
        if wanted is not None:
            assert isinstance(wanted.limit, int)
            changed = self._changed_since(at - wanted.per, run.plan.playbook)
            assert len(changed | refs) <= wanted.limit, "more targets than may be in one window"
        if self.breaker is not None:
            since = max(at - self.breaker.within, self._counts_from.get(self.breaker.name, at - self.breaker.within))
            n_changed = len(self._changed_since(since) | refs)
            assert n_changed <= self.breaker.share.of_size(self.n_fleet), "it had to trip: too much was changed"
            failed = [one for one in self.runs.values() if one.outcome in WITHOUT_FIX and one.ended_at is not None]
            n_failed = sum(one.ended_at > since for one in failed if one.ended_at is not None)
            assert self.breaker.or_failures is None or n_failed < self.breaker.or_failures, (
                "it had to trip: too much has failed"
            )

    def _changed_since(self, since: datetime, playbook: str = "") -> set[str]:
        return {
            act.target
            for act in self.acts
            if act.has_happened and act.run_id and act.call != "notify.send" and act.at > since
            and playbook in ("", act.playbook)
        }  # fmt: skip

    def _approval_asked(self, event: Any, at: datetime, data: Any) -> None:
        self.runs[event["run_id"]].questions[data["key"]] = Asked(at, timedelta(milliseconds=data["expires_ms"]))

    def _approval_given(self, event: Any, at: datetime, data: Any) -> None:
        assert event["run_id"] == self.answering, "nobody said that"
        question = self.runs[event["run_id"]].questions[data["key"]]
        assert question.given_at is None, "one yes for one question"
        away = sum(
            (max(min(end, at) - max(start, question.at), timedelta(0)) for start, end in self.away), timedelta(0)
        )
        assert at < question.at + question.expires + away, "a yes that comes too late"
        question.given_at, question.given_seq = at, self._seq

    def _attempt_started(self, event: Any, at: datetime, data: Any) -> None:
        self.runs[event["run_id"]].started[data["step"], data["attempt"]] = {**data, "seq": self._seq}

    def _attempt_finished(self, event: Any, at: datetime, data: Any) -> None:
        run, key = self.runs[event["run_id"]], data["step"]
        del run.started[key, data["attempt"]]
        if data["outcome"] in ("failed", "unknown") and data["changed"]:
            run.unclear.add(key)
        run.has_acted |= data["changed"] and data["action"] != "notify.send"
        if data["action"] == "docker.limit" and data["outcome"] == "succeeded":
            assert key in run.changed, "it says so, and nothing was done"
            run.lent.add(key)  # its lease is the next event, in the same transaction: see _lease_opened

    def _verification_looked(self, event: Any, at: datetime, data: Any) -> None:
        run = self.runs[event["run_id"]]
        checks = run.step(data["step"]).verify if data["step"] else run.plan.verify
        for check, seen in zip(checks, data["checks"], strict=True):
            if check.condition is not None and len(checks) == 1:
                assert seen["seen"] == self.says(check.condition).value, "it saw what is not so"
            if seen["is_done"] and check.condition is None:
                subject = self._subjects[event["subject_id"]]
                assert subject.reason == "resolved", "it was not resolved"

    def _verification_finished(self, event: Any, at: datetime, data: Any) -> None:
        run = self.runs[event["run_id"]]
        checks = run.step(data["step"]).verify if data["step"] else run.plan.verify
        said = {self.says(check.condition) for check in checks if check.condition is not None}
        if data["outcome"] == "succeeded":
            assert said <= {Seen.MET}, "good, and nothing that was seen says so"
        run.verified[data["step"], data["rung"]] = data["outcome"]

    def _rung_climbed(self, event: Any, at: datetime, data: Any) -> None:
        run = self.runs[event["run_id"]]
        assert data["to"] == data["from"] + 1
        assert run.verified[("", data["from"])] == "failed"
        subject = self._subjects[event["subject_id"]]
        assert subject.closed_at is None or run.plan.latched, "no rung once the subject has ended"
        run.admitted = None

    def _run_finished(self, event: Any, at: datetime, data: Any) -> None:
        run = self.runs[event["run_id"]]
        run.ended_at, run.outcome = at, data["outcome"]
        rung = run.admitted[1] if run.admitted is not None else 0
        if run.outcome == "succeeded" and run.has_acted:
            assert not run.plan.verify or run.verified.get(("", rung)) == "succeeded", "succeeded, and never seen so"
            for step in run.plan.of_rung(rung):
                if step.verify and step.key in run.changed:
                    assert run.verified.get((step.key, rung)) == "succeeded", f"{step.key} was never seen to work"

    def _run_settled(self, event: Any, at: datetime, data: Any) -> None:
        self.runs[event["run_id"]].outcome = data["outcome"]

    def _breaker_tripped(self, event: Any, at: datetime, data: Any) -> None:
        assert data["breaker"] not in self._tripped
        self._tripped.add(data["breaker"])

    def _breaker_reset(self, event: Any, at: datetime, data: Any) -> None:
        self._tripped.remove(data["breaker"])
        self._counts_from[data["breaker"]] = at

    # -- leases

    def open_leases(self, target: str) -> list[SeenLease]:
        """Of what is lent on a target."""
        return [lease for lease in self.leases.values() if lease.target == target and not lease.how]

    def _lease_opened(self, event: Any, at: datetime, data: Any) -> None:
        run = self.runs[event["run_id"]]
        assert data["lease_id"] not in self.leases, "each is opened once"
        assert data["step"] in run.changed, "nothing was done that could be lent"
        undo = Undo(
            when=UndoWhen(data["when"]),
            after=timedelta(seconds=data["after_s"]),
            at_most=parse_duration(data["at_most"]),
            require=tuple(unpack_condition(one) for one in data["require"]),
        )
        self.leases[data["lease_id"]] = SeenLease(
            event["run_id"], data["target"], run.plan.playbook, run.plan.per_key, undo, at, data["before"]
        )
        run.lent.add(data["step"])

    def _lease_released(self, event: Any, at: datetime, data: Any) -> None:
        self.leases[data["lease_id"]].is_released = True

    def _lease_closed(self, event: Any, at: datetime, data: Any) -> None:
        lease = self.leases[data["lease_id"]]
        assert not lease.how, "each is closed once"
        lease.how = data["how"]

    def _undo_requested(self, event: Any, at: datetime, data: Any) -> None:
        assert event["run_id"] in self.asked_back, "nobody asked for that"

    def _undo_started(self, event: Any, at: datetime, data: Any) -> None:
        top = self.leases[data["lease_id"]]
        assert data["target"] not in self._undoing
        self._undoing[data["target"]] = data
        if data["requested_by"]:
            assert top.run_id in self.asked_back
            return
        assert not self.is_paused, "a pause holds what nobody asked for"
        assert top.undo.when is not UndoWhen.NEVER
        self._check_is_due(top, at)

    def _check_is_due(self, lease: SeenLease, at: datetime) -> None:
        plan = self.runs[lease.run_id].plan
        of_values = [
            subject
            for subject in self._subjects.values()
            if subject.values == (lease.playbook, lease.per_key) and not subject.is_by_hand
        ]
        if lease.is_released:
            return
        assert all(subject.closed_at is not None for subject in of_values), "nothing is taken back while it fires"
        ends = [subject.closed_at for subject in of_values if subject.closed_at is not None]
        is_resolved = bool(ends) and "resolved" in {one.reason for one in of_values if one.closed_at == max(ends)}
        is_over = is_resolved and max(ends) + lease.undo.after <= at and not plan.latched and not plan.is_by_hand
        assert is_over or lease.opened_at + lease.undo.at_most <= at, "taken back too early"
        for condition in lease.undo.require:
            assert self.says(condition) is Seen.MET, f"{condition.name} was required to take it back"

    def _undo_finished(self, event: Any, at: datetime, data: Any) -> None:
        del self._undoing[data["target"]]

    # -- the world

    @property
    def is_paused(self) -> bool:
        """Somebody holds all acts."""
        return self._is_paused or self.is_paused_by_file

    def says(self, condition: Condition) -> Seen:
        """What a condition really is now."""
        try:
            reading = Reading(values=self.world.query(condition.query, condition.name))
        except TransientActionError as error:
            reading = Reading(problem=str(error))
        return look(condition, reading)[0]

    def sees(self, what: Callable[[], None]) -> None:
        """See a call to the world: the engine takes what is raised there for a failure of the call, so it is kept."""
        try:
            what()
        except Exception as error:  # noqa: BLE001 see above
            self._seen = self._seen or error

    def was_told(self, write: Write) -> None:
        """A message was sent, or tried."""
        run_id, (step, attempt) = self._newest_message()
        self._note(write, run_id, step, attempt)

    def _newest_message(self) -> tuple[str, tuple[str, int]]:
        started = [
            (data["seq"], run_id, key)
            for run_id, run in self.runs.items()
            for key, data in run.started.items()
            if data["action"] == "notify.send"
        ]
        assert started, "no act without the event of its beginning"
        return max(started)[1:]

    def has_acted(self, write: Write, before: ContainerState, after: ContainerState) -> None:
        """Something was done to a container, or tried; its state before and after."""
        begun = [
            (run_id, step, attempt)
            for run_id, run in self.runs.items()
            for (step, attempt), data in run.started.items()
            if data["action"] == write.call and write.target in data["targets"]
        ]
        taken_back = self._undoing.get(write.target) if write.call == "docker.limit" else None
        assert len(begun) + (taken_back is not None) == 1, "no act without the event of its beginning, and of one alone"
        if taken_back is not None:
            self._check_undo(taken_back, write, before)
            self._note(write, "", "", 0)
        else:
            self._check_act(*begun[0], write, before)
            self._note(write, *begun[0])
        if write.call == "docker.limit" and _happened(write):
            self._left[write.target] = (after.id, plain(after.cpu))
        if after.id != before.id:  # nobody knows what was done, since it was made anew meanwhile
            self.rightful[write.target] = plain(after.cpu)

    def _check_undo(self, data: Mapping[str, Any], write: Write, before: ContainerState) -> None:
        assert (before.id, plain(before.cpu)) == self._left[write.target], "others changed it: nothing is restored"
        lowest = self.leases[data["leases"][-1]]
        wanted = max(lowest.before["cpu_quota_us"], 0)  # -1 once it was lifted
        assert max(int(write.args["quota_us"]), 0) == wanted, "it goes back to the state before the lowest"
        for lease_id in data["leases"]:
            assert not self.leases[lease_id].how

    def _check_act(self, run_id: str, key: str, attempt: int, write: Write, before: ContainerState) -> None:
        run = self.runs[run_id]
        step = run.step(key)
        assert run.plan.mode is Mode.ENFORCE
        assert run.ended_at is None
        assert run.admitted is not None, "nothing is done that was not allowed"
        seq, rung = run.admitted
        assert step.rung == rung
        assert not self.is_paused
        assert run.plan.playbook not in self.forbidden, "its playbook may not act any more"
        wanted = [rung_key(rung)] if run.plan.approval is not None else []
        for asked in [*wanted, *([key] if step.approval is not None else [])]:
            self._check_yes(run, asked)
            assert run.questions[asked].given_seq < seq, "judged again after the yes"
        if write.call == "docker.limit" and self.open_leases(write.target):
            assert (before.id, plain(before.cpu)) == self._left[write.target], "others changed it: it is left to them"
        if _happened(write):
            run.has_acted = True
            run.changed.add(key)

    def _note(self, write: Write, run_id: str, step: str, attempt: int) -> None:
        plan = self.runs[run_id].plan if run_id else None
        n_plans = self.runs[run_id].n_plans if run_id else 0
        self.acts.append(Act(
            at=write.at, call=write.call, target=write.target, run_id=run_id, step=step, attempt=attempt,
            n_plans=n_plans, playbook=plan.playbook if plan else "", per_key=plan.per_key if plan else "",
            has_happened=_happened(write),
        ))  # fmt: skip

    def check(self) -> None:
        """Break where a call to the world was one that must not be."""
        if self._seen is not None:
            raise self._seen

    def check_limits_of_containers(self) -> None:
        """Where nothing is lent, a container has what others gave it; but for acts of unknown fate."""
        for target, rightful in self.rightful.items():
            if self.open_leases(target) or target in self._undoing or self._is_unclear(target):
                continue
            host, _, name = target.removeprefix("docker:").partition("/")
            assert plain(self.world.container(host, name).cpu) == rightful, f"{target} was not given back what it had"

    def _is_unclear(self, target: str) -> bool:
        """An attempt at it has no end, or ended without anybody knowing what it did."""
        limited = {(act.run_id, act.step) for act in self.acts if act.target == target and act.call == "docker.limit"}
        return any(
            step not in run.lent and (step in run.unclear or any(key == step for key, _ in run.started))
            for run_id, step in limited
            if run_id
            for run in (self.runs[run_id],)
        )


def _happened(write: Write) -> bool:
    """As the world knows it: a limit of unknown fate went with the container that it was meant for."""
    if write.failed is Failure.UNKNOWN:
        return write.call != "docker.limit"
    return write.failed in (None, Failure.TIMEOUT_AFTER_EFFECT)


def plain(limit: CpuLimit) -> CpuLimit:
    """Without the difference between a quota never set and one that was lifted."""
    return replace(limit, quota_us=max(limit.quota_us, 0))
