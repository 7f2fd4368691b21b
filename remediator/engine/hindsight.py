"""What the world answered, as the log kept it: the neighbours of a replay.

Takes the events of a window → a world in memory and its Prometheus, which give the recorded answers again: what targets
were, how acts ended, what conditions read, whether an alert was muted. Where nothing was recorded the world is friendly
(targets are there and run, acts succeed, conditions hold), and that is noted: whatever rests on it is not known.

In a replay acts take no time. What a run was told after an act is told that much earlier here.

Must never ask anybody, and never decide what the engine decides.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Generic, TypeVar

from remediator.clients.fake import FakeWorld
from remediator.clients.ports import ContainerState, CpuLimit
from remediator.core.alert import label_key
from remediator.core.condition import Condition, Reading, Seen, number_that, read_back
from remediator.core.event import Event, EventType
from remediator.core.lease import PREFIX
from remediator.core.move import WHY_NOT, Heard
from remediator.core.outcome import Outcome
from remediator.core.plan import Plan, unpack_plan
from remediator.core.scenario import Failure
from remediator.engine.conditions import Conditions
from remediator.engine.fleets import condition_name
from remediator.engine.pipeline import Hear
from remediator.errors import (
    ActionError,
    InvalidTargetError,
    PermanentActionError,
    Reason,
    TargetNotFoundError,
    TransientActionError,
    UnknownEffectError,
)
from remediator.settings import Settings

T = TypeVar("T")

LAG = timedelta(milliseconds=500)
"""What a run was told so soon after, it is told now: the engine that was recorded took a moment for everything."""

KEEPS = timedelta(hours=1)
"""A recorded answer stands for others of so much later, and so much earlier where there is no older one."""

_FLEET_LIMITS = (
    re.compile(r"\b(?P<limit>\d+) \((?P<percent>\d+) % of (?P<fleet>\S+)\)"),
    re.compile(r"\b(?P<limit>\d+) are (?P<percent>\d+) % of (?P<fleet>[^\s;]+)"),
)
"""How verdicts say what a share of a fleet was."""


class Assumed(StrEnum):
    """Kinds of what nobody was asked."""

    TARGET = "target"
    ACT = "act"
    MESSAGE = "message"
    CONDITION = "condition"
    FLEET = "fleet"
    WORD = "word"


MEANS: Mapping[Assumed, str] = {
    Assumed.TARGET: "a target that was never looked at is there and runs",
    Assumed.ACT: "an act that was never tried succeeds, at once",
    Assumed.MESSAGE: "a message that was never sent arrives",
    Assumed.CONDITION: "a condition that was not asked then holds (verify: it helped; require: it may)",
    Assumed.FLEET: "the size of a fleet that no verdict named is not known, which refuses a share of it",
    Assumed.WORD: "an alert that Alertmanager was not asked for then fires and is not muted",
}
"""For people: what is assumed where nothing was recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hindsight:
    """What an engine is given instead of neighbours that it could ask.

    Attributes:
        conditions: in place of Prometheus.
        hear: in place of the Alertmanagers; None where deliveries alone say what fires.
        is_about: is told whose turn it is: a run, or the leases on a target.
    """

    conditions: Conditions
    hear: Hear | None
    is_about: Callable[[str], None]


@dataclass(slots=True)
class _Answer(Generic[T]):
    """What was said, from when, and until when it is known to have stood."""

    at: datetime
    until: datetime
    says: T


class _Series(Generic[T]):
    """Answers to one question over time."""

    def __init__(self) -> None:
        self.answers: list[_Answer[T]] = []
        self._at: list[datetime] = []

    def settle(self) -> None:
        """All is told: put it in order."""
        self.answers.sort(key=lambda one: one.at)
        self._at = [one.at for one in self.answers]

    def around(self, now: datetime) -> tuple[_Answer[T] | None, _Answer[T] | None]:
        """The newest answer that is not later than now, and the next; None where there is none."""
        place = bisect_right(self._at, now)
        before = self.answers[place - 1] if place else None
        return before, self.answers[place] if place < len(self.answers) else None


class _Answers(Generic[T]):
    """All answers of one kind, by their question, and by the run that asked it."""

    def __init__(self) -> None:
        self._all: dict[Hashable, _Series[T]] = defaultdict(_Series)
        self._own: dict[tuple[str, Hashable], _Series[T]] = defaultdict(_Series)

    def add(self, run_id: str, question: Hashable, at: datetime, says: T) -> _Answer[T]:
        answer = _Answer(at, at, says)
        self._all[question].answers.append(answer)
        self._own[run_id, question].answers.append(answer)
        return answer

    def settle(self) -> None:
        for series in (*self._all.values(), *self._own.values()):
            series.settle()

    def of(self, run_id: str, question: Hashable, now: datetime) -> _Answer[T] | None:
        """What this run was told, else what anybody was told about then; None where nobody was."""
        own = self._own.get((run_id, question))
        if own is not None:
            before, later = own.around(now + LAG)
            if before is not None and now <= before.until + KEEPS:
                return before
            if later is not None and later.at <= now + KEEPS:
                return later
        every = self._all.get(question)
        if every is None:
            return None
        before, later = every.around(now)
        if before is not None and now <= before.until + KEEPS:
            return before
        return later if later is not None and later.at <= now + KEEPS else None

    def ever(self, run_id: str, question: Hashable, now: datetime) -> _Answer[T] | None:
        """As ``of``, of what stands until somebody says otherwise: however long ago, or from however much later."""
        every = self._all.get(question)
        return self.of(run_id, question, now) or (
            None if every is None else next((one for one in every.around(now) if one is not None), None)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """A container as somebody saw it, or why it could not be seen."""

    problem: ActionError | None = None
    uid: str = ""
    status: str = ""
    labels: Mapping[str, str] | None = None
    cpu: CpuLimit | None = None


@dataclass(slots=True, kw_only=True)
class _Tried:
    """How an act ended; each answers one act of its own run, and may answer those of others."""

    run_id: str
    at: datetime
    outcome: Outcome
    reason: Reason
    detail: str
    is_worth_another: bool
    is_used: bool = False


@dataclass(slots=True, kw_only=True)
class _Told:
    """What is known of one run while its events are read.

    Attributes:
        early: how much earlier things happen to it in a replay: the time that its acts took.
        open: answers that stand until the run is told otherwise, by what they are part of.
    """

    plan: Plan
    early: timedelta = timedelta(0)
    started: dict[str, Event] = field(default_factory=dict)
    open: dict[str, list[_Answer[Reading]]] = field(default_factory=dict)


class Past:
    """All that was answered in a window.

    Attributes:
        assumed: what was asked since and had no answer: kind → the runs whose questions these were ("" for leases) →
            how often.
        same_as: run of the replay → the recorded run that it is, where their ids differ.
    """

    def __init__(self) -> None:
        """Nothing yet: ``take`` each event, then ``settle``."""
        self.assumed: dict[Assumed, Counter[str]] = defaultdict(Counter)
        self.same_as: dict[str, str] = {}
        self._run_id = ""
        self._targets: _Answers[_Target] = _Answers()
        self._readings: _Answers[Reading] = _Answers()
        self._fleets: _Answers[int] = _Answers()
        self._words: _Answers[Heard] = _Answers()
        self._acts: dict[tuple[str, str], list[_Tried]] = defaultdict(list)
        self._told: dict[str, _Told] = {}

    def settle(self) -> None:
        """All is told: from now on answers are given."""
        self._told.clear()
        for answers in (self._targets, self._readings, self._fleets, self._words):
            answers.settle()
        for acts in self._acts.values():
            acts.sort(key=lambda tried: tried.at)

    # -- answering

    def is_about(self, what: str) -> None:
        """Whose questions come now."""
        self._run_id = "" if what.startswith(PREFIX) else self.same_as.get(what, what)

    def assume(self, kind: Assumed) -> None:
        """Keep that nobody knows."""
        self.assumed[kind][self._run_id] += 1

    def target(self, host: str, container: str, now: datetime) -> _Answer[_Target] | None:
        """A container as it was seen last, or first; None where it never was."""
        return self._targets.ever(self._run_id, (host, container), now)

    def act(self, call: str, target: str, now: datetime) -> _Tried | None:
        """How the act that was tried about now ended; None where none was."""
        near = [tried for tried in self._acts.get((call, target), ()) if abs(tried.at - now) <= KEEPS]
        for tried in near:
            if tried.run_id == self._run_id and not tried.is_used:
                tried.is_used = True
                return tried
        others = [tried for tried in near if tried.run_id != self._run_id]
        return min(others, key=lambda tried: abs(tried.at - now), default=None)

    def reading(self, condition: Condition, now: datetime) -> Reading:
        """What a query gave."""
        if condition.name.startswith(_FLEET):
            return self._fleet(condition.name.removeprefix(_FLEET), now)
        found = self._readings.of(self._run_id, condition.query, now)
        if found is not None:
            return found.says
        self.assume(Assumed.CONDITION)
        return Reading(values=(number_that(condition, is_met=True),))

    def _fleet(self, name: str, now: datetime) -> Reading:
        found = self._fleets.ever(self._run_id, name, now)
        if found is not None:
            return Reading(values=(float(found.says),))
        self.assume(Assumed.FLEET)
        return Reading(problem="a replay asks nobody, and no verdict of the time says it")

    def hear(self, label_keys: Iterable[str], now: datetime) -> Heard:
        """What the Alertmanagers said of these label sets."""
        for key in sorted(label_keys):
            found = self._words.of(self._run_id, key, now)
            if found is not None:
                return found.says
        self.assume(Assumed.WORD)
        return Heard.FIRES

    # -- reading the log

    def take(self, event: Event) -> None:
        """Note what one event says, in the log's order; one of a run whose beginning did not come says nothing."""
        if event.type is EventType.PLAN_MADE:
            plan = unpack_plan(_map(event.data["plan"]))
            if event.run_id in self._told:
                self._told[event.run_id].plan = plan
            else:
                self._told[event.run_id] = _Told(plan=plan)
            return
        told = self._told.get(event.run_id)
        if told is None:
            return
        data: Mapping[str, Any] = event.data
        match event.type:
            case EventType.TURN_WAITED:
                self._words_of(told, event.at - told.early, [str(one) for one in data["waits_for"]])
            case EventType.VERDICT_GIVEN:
                self._verdict(told, event)
            case EventType.ATTEMPT_STARTED:
                told.started[str(data["step"])] = event
                self._seen_by(told, event.target, data["before"], event.at - told.early)
            case EventType.ATTEMPT_FINISHED:
                self._attempt(told, event)
            case EventType.UNDO_STARTED:
                told.started[str(data["lease_id"])] = event
            case EventType.UNDO_FINISHED:
                self._undo(told, event)
            case EventType.VERIFICATION_LOOKED:
                self._looked(told, event)
            case EventType.VERIFICATION_FINISHED:
                self._stood(told, str(data["step"]), event.at - told.early)
            case EventType.LEASE_KEPT:
                self._kept(told, event)
            case EventType.RUN_FINISHED:
                for part in list(told.open):
                    self._stood(told, part, event.at - told.early)
            case _:
                pass

    def _words_of(self, told: _Told, at: datetime, waits_for: Sequence[str]) -> None:
        reasons = {one.partition(":")[2] for one in waits_for}
        said = next((heard for heard, reason in WHY_NOT.items() if reason.value in reasons), Heard.FIRES)
        self._words.add(told.plan.run_id, label_key(told.plan.labels), at, said)

    def _verdict(self, told: _Told, event: Event) -> None:
        data: Mapping[str, Any] = event.data
        at = event.at - told.early
        self._words_of(told, at, ())
        for target in data["targets"]:
            seen = _Target(uid=str(target["uid"]), status=str(target["state"]), labels=dict(target["labels"]))
            self._see(told, str(target["ref"]), at, seen)
        self._stood(told, _REQUIRE, at)
        asked = list(told.plan.require)
        for answer in data["answers"]:
            if answer["rule"] == "targets" and answer["word"] != "allow":
                self._unseen(told, int(data["rung"]), answer, at)
            if answer["rule"] == "require" and asked:
                self._read(told, _REQUIRE, asked.pop(0), str(answer["detail"]), at)
            for limit in (found for shape in _FLEET_LIMITS for found in shape.finditer(str(answer["detail"]))):
                size = math.ceil(int(limit["limit"]) * 100 / int(limit["percent"]))
                self._fleets.add(told.plan.run_id, limit["fleet"], at, size)

    def _unseen(self, told: _Told, rung: int, answer: Mapping[str, str], at: datetime) -> None:
        detail, reason = answer["detail"], Reason(answer["reason"])
        problem: ActionError
        match reason:
            case Reason.UNREACHABLE:
                problem = TransientActionError(_without_step(detail))
            case Reason.NO_TARGET:
                problem = TargetNotFoundError(_without_step(detail))
            case _:
                problem = InvalidTargetError(_without_step(detail), reason=reason)
        for step in told.plan.acts_of(rung):
            if detail.startswith(f"step {step.name}:") and step.action.startswith("docker."):
                where = (str(step.params.get("host", "")), str(step.params.get("container", "")))
                self._targets.add(told.plan.run_id, where, at, _Target(problem=problem))

    def _seen_by(self, told: _Told, ref: str, before: Mapping[str, Any], at: datetime) -> None:
        if "id" not in before or "status" not in before:
            return
        cpu = None
        if "nano_cpus" in before:
            cpu = CpuLimit(
                nano_cpus=before["nano_cpus"], period_us=before["cpu_period_us"], quota_us=before["cpu_quota_us"]
            )
        self._see(told, ref, at, _Target(uid=str(before["id"]), status=str(before["status"]), cpu=cpu))

    def _see(self, told: _Told, ref: str, at: datetime, seen: _Target) -> None:
        if not ref.startswith(_DOCKER):
            return
        host, _, name = ref.removeprefix(_DOCKER).partition("/")
        self._targets.add(told.plan.run_id, (host, name), at, seen)

    def _attempt(self, told: _Told, event: Event) -> None:
        data: Mapping[str, Any] = event.data
        started = told.started.get(str(data["step"]))
        if started is None:
            return
        at = started.at - told.early
        outcome, reason = Outcome(data["outcome"]), Reason(data["reason"])
        tried = _Tried(
            run_id=event.run_id,
            at=at,
            outcome=outcome,
            reason=reason,
            detail=str(data["detail"]),
            is_worth_another=bool(data["retry_at"]),
        )
        if reason not in (Reason.UNKNOWN_EFFECT, Reason.DID_NOT_HAPPEN):  # those are waited for in a replay too
            told.early += timedelta(milliseconds=data["duration_ms"])
        params = _map(started.data["params"])
        if data["action"] != _MESSAGE:
            self._acts[str(data["action"]), event.target].append(tried)
            return
        heard = data["after"].get("told", params.get("to", ()) if outcome is Outcome.SUCCEEDED else ())
        for to in params.get("to", ()):
            arrived = replace(tried, outcome=Outcome.SUCCEEDED) if to in heard else replace(tried)
            self._acts[_MESSAGE, str(to)].append(arrived)

    def _undo(self, told: _Told, event: Event) -> None:
        data: Mapping[str, Any] = event.data
        started = told.started.pop(str(data["lease_id"]), event)
        outcome = Outcome(data["outcome"])
        tried = _Tried(
            run_id="",  # whoever's lease it is
            at=started.at - told.early,
            outcome=outcome,
            reason=Reason.TRANSIENT,
            detail=str(data["detail"]),
            is_worth_another=True,
        )
        action = str(data["action"])
        self._acts[_UNDOES.get(action, action), event.target].append(tried)

    def _looked(self, told: _Told, event: Event) -> None:
        data: Mapping[str, Any] = event.data
        at, part = event.at - told.early, str(data["step"])
        self._stood(told, part, at)
        step = next((step for step in told.plan.steps if step.key == part), None)
        checks = step.verify if step is not None else told.plan.verify
        for check, watched in zip(checks, data["checks"], strict=False):
            if check.condition is not None and watched["seen"]:
                self._read(told, part, check.condition, str(watched["detail"]), at, Seen(watched["seen"]))

    def _kept(self, told: _Told, event: Event) -> None:
        """What had to hold before an act is taken back did not, all the time."""
        step = next((step for step in told.plan.steps if step.key == event.data["step"]), None)
        for condition in step.undo.require if step is not None and step.undo is not None else ():
            begins = told.started[step.key].at if step is not None and step.key in told.started else event.at
            reading = Reading(problem=str(event.data["detail"]))
            self._readings.add("", condition.query, begins - told.early, reading).until = event.at

    def _read(
        self, told: _Told, part: str, condition: Condition, detail: str, at: datetime, seen: Seen | None = None
    ) -> None:
        reading = read_back(condition, seen, detail)
        if reading is not None:
            answer = self._readings.add(told.plan.run_id, condition.query, at, reading)
            told.open.setdefault(part, []).append(answer)

    def _stood(self, told: _Told, part: str, at: datetime) -> None:
        """The answers of this part were so until now."""
        for answer in told.open.pop(part, ()):
            answer.until = max(answer.until, at)


_EVER = datetime.min.replace(tzinfo=UTC)
_FLEET = condition_name("")
_DOCKER = "docker:"
_MESSAGE = "notify.send"
_REQUIRE = "require"
"""Names what a verdict asked, beside the keys of steps."""

_UNDOES = {"alertmanager.silence": "alertmanager.expire"}
"""Action → the call that takes it back, where that is another."""


def _without_step(detail: str) -> str:
    return detail.partition(": ")[2] or detail


class RecordedWorld(FakeWorld):
    """The world of a replay: as it was seen, and friendly where nobody had looked."""

    def __init__(self, clock: Callable[[], datetime], past: Past, settings: Settings) -> None:
        """With the hosts, targets and servers that the settings name."""
        super().__init__(clock)
        self._past = past
        self._applied: dict[tuple[str, str], datetime] = {}
        for host in settings.docker.hosts:
            self.add_host(host)
        for name in settings.notify:
            self.add_notify_target(name)
        self.name_prometheus(list(settings.prometheus.servers))
        for url in settings.alertmanager.urls:
            self.add_alertmanager(url)

    def look(self, host: str, container: str) -> ContainerState:
        """As it was seen; made where nobody ever looked."""
        there = self._find(host, container)
        name = there.name if there is not None else container
        answer = self._past.target(host, name, self.now())
        if answer is not None and answer.says.problem is not None:
            raise answer.says.problem.with_traceback(None)
        state = there or self.add_container(host, name)
        if answer is None:
            self._past.assume(Assumed.TARGET)
            return state
        # What was seen before what is known by now has had its effect, and acts came after it.
        if self._applied.get((host, name), _EVER) < answer.at:
            self._applied[host, name] = answer.at
            state = self._become(host, state, answer.says)
        return state

    def _find(self, host: str, container: str) -> ContainerState | None:
        try:
            return self.container(host, container)
        except TargetNotFoundError:
            return None

    def _become(self, host: str, state: ContainerState, seen: _Target) -> ContainerState:
        if seen.uid and seen.uid != state.id:
            state = self.put_container(host, replace(state, id=seen.uid))
        if seen.labels is not None and dict(seen.labels) != dict(state.labels):
            state = self.put_container(host, replace(state, labels=dict(seen.labels)))
        if seen.cpu is not None and seen.cpu != state.cpu:
            state = self.put_container(host, replace(state, cpu=seen.cpu))
        if seen.status and seen.status != state.status:
            state = self.set_status(host, state.name, seen.status)
        return state

    def act(self, call: str, host: str, container_id: str, args: Mapping[str, str]) -> None:
        """Ends as it did."""
        target = f"docker:{host}/{self.container(host, container_id).name}"
        self._end_as_recorded(call, target, Assumed.ACT)
        super().act(call, host, container_id, args)

    def tell(self, to: str, title: str, body: str) -> None:
        """Ends as it did."""
        self._end_as_recorded(_MESSAGE, to, Assumed.MESSAGE)
        super().tell(to, title, body)

    def _end_as_recorded(self, call: str, target: str, kind: Assumed) -> None:
        tried = self._past.act(call, target, self.now())
        if tried is None:
            self._past.assume(kind)
            return
        if tried.outcome in (Outcome.SUCCEEDED, Outcome.UNCHANGED, Outcome.SKIPPED):
            return
        if tried.reason is Reason.UNKNOWN_EFFECT:
            self.fail(call, Failure.UNKNOWN)
        elif tried.reason is Reason.DID_NOT_HAPPEN:
            raise UnknownEffectError(tried.detail, target=target)
        elif tried.is_worth_another or tried.reason is Reason.TRANSIENT:
            raise TransientActionError(tried.detail, target=target, reason=tried.reason)
        else:
            raise PermanentActionError(tried.detail, target=target, reason=tried.reason)


class RecordedConditions(Conditions):
    """What a Prometheus said; which one is asked is the engine's own question."""

    def __init__(self, world: FakeWorld, past: Past) -> None:
        """For the servers of this world."""
        super().__init__(world.clients().prometheus, is_alone=True)
        self._world = world
        self._past = past

    def ask(self, server: str, conditions: Sequence[Condition]) -> tuple[Reading, ...]:
        """As ``Conditions.ask``."""
        if server not in self._servers:
            return super().ask(server, conditions)
        return tuple(self._past.reading(condition, self._world.now()) for condition in conditions)


def hindsight(world: RecordedWorld, past: Past, settings: Settings) -> Hindsight:
    """What an engine is given that lives in this world."""

    def hear(label_keys: frozenset[str], last_word_at: datetime, ours: frozenset[str]) -> Heard:
        del last_word_at, ours
        return past.hear(label_keys, world.now())

    return Hindsight(
        conditions=RecordedConditions(world, past),
        hear=hear if settings.alertmanager.urls else None,
        is_about=past.is_about,
    )


def _map(value: Any) -> Mapping[str, Any]:
    assert isinstance(value, Mapping)
    return value
