"""The world as the log of some runs saw it: containers, what conditions gave, and what failed.

Takes → gives: events and the runs that they make → ``Furnished``, the world when it began and ``StoryEvent``s for what
changed of it. In a story an act takes no time, so what came after one comes earlier there by as long as it took.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from remediator.core.action import JsonValue
from remediator.core.condition import Condition, Seen, read_back
from remediator.core.event import Event, EventType
from remediator.core.guard import Word as Verdict
from remediator.core.outcome import Outcome
from remediator.core.plan import PlannedStep
from remediator.core.run import Run
from remediator.core.scenario import Fails, Failure, Nothing, Restarts, Sees, StoryEvent, World
from remediator.errors import Reason

SECOND = timedelta(seconds=1)

DOCKER = "docker:"
"""Begins the refs of containers: ``docker:<host>/<name>``."""

BEFORE_A_LOOK = timedelta(seconds=7)
"""Looks are 15 s apart: what one saw was so some seconds before, and was not so at the one before."""

BEFORE_AN_UNDO = timedelta(seconds=45)
"""What an undo waits for is asked every minute."""

ASKED_EVERY = timedelta(seconds=75)
"""Later than this after its time, an undo has waited for something."""

BEFORE_A_TURN = timedelta(seconds=29)
"""Who waits for an answer asks again every 30 s."""

ANSWER_LOST = "no answer came"
"""Begins what the log says of an act that was seen to have happened, though nobody said so."""

MUTED = {Reason.SILENCED.value: "silenced", Reason.INHIBITED.value: "inhibited"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Furnished:
    """The world, and what changes of it.

    Attributes:
        told_gaps: absences of the engine that are told as a kill in the middle of an act.
        asks_alertmanager: some of it is an Alertmanager's answer.
    """

    world: World
    story: tuple[StoryEvent, ...]
    told_gaps: frozenset[tuple[datetime, datetime]]
    asks_alertmanager: bool
    notes: tuple[str, ...]


def furnish(
    events: Sequence[Event],
    runs: Mapping[str, Run],
    alert_of: Mapping[str, str],
    gaps: Sequence[tuple[datetime, datetime]],
    begins: datetime,
) -> Furnished:
    """What the runs saw of the world.

    Args:
        events: by the log's order.
        runs: by their id.
        alert_of: run → the name of its alert.
        gaps: when the engine was away.
    """
    builder = _Builder(runs, alert_of, gaps, begins)
    of_subject = {run.plan.subject_id: run_id for run_id, run in runs.items()}
    for event in events:
        if event.type is EventType.SUBJECT_CLOSED and event.subject_id in of_subject:
            builder.ended(of_subject[event.subject_id], event.at)
        elif event.run_id in runs:
            builder.take(event, runs[event.run_id])
    builder.close()
    return Furnished(
        world=World(docker=builder.docker),
        story=tuple(builder.story),
        told_gaps=frozenset(builder.told_gaps),
        asks_alertmanager=builder.asks_alertmanager,
        notes=tuple(dict.fromkeys(builder.notes)),
    )


@dataclass(slots=True, kw_only=True)
class _Call:
    """One attempt of an act or a message."""

    event: Event
    step: PlannedStep | None
    end: Event | None = None


@dataclass(slots=True, kw_only=True)
class _Course:
    """One run under way.

    Attributes:
        shift: how much earlier a story is by now, since its acts take no time.
        is_away: hosts that did not answer.
        muted: what an Alertmanager said of its alert that held it.
        lent: lease → its step.
        over_at: when nothing of it fired any more, or the last of its changes was taken back; None before.
    """

    shift: timedelta = timedelta(0)
    is_away: list[str] = field(default_factory=list)
    muted: str = ""
    lent: dict[str, PlannedStep] = field(default_factory=dict)
    over_at: datetime | None = None


class _Builder:
    def __init__(
        self,
        runs: Mapping[str, Run],
        alert_of: Mapping[str, str],
        gaps: Sequence[tuple[datetime, datetime]],
        begins: datetime,
    ) -> None:
        self.docker: dict[str, Any] = {}
        self.story: list[StoryEvent] = []
        self.told_gaps: set[tuple[datetime, datetime]] = set()
        self.asks_alertmanager = False
        self.notes: list[str] = []
        self._begins = begins
        self._gaps = gaps
        self._alert_of = alert_of
        self._own_names = _own_names(runs)
        self._courses = {run_id: _Course() for run_id in runs}
        self._calls: list[_Call] = []
        self._open: dict[tuple[str, str, int], _Call] = {}
        self._status: dict[str, str] = {}
        self._seen: dict[tuple[str, str], tuple[timedelta, tuple[float, ...] | Nothing]] = {}

    def take(self, event: Event, run: Run) -> None:
        """Note what one event says of the world."""
        data: Mapping[str, Any] = event.data
        course = self._courses[event.run_id]
        match event.type:
            case EventType.PLAN_MADE:
                self._hosts(run)
            case EventType.TURN_WAITED:
                self._turn(event, run, course)
            case EventType.VERDICT_GIVEN:
                self._verdict(event, run, course)
            case EventType.ATTEMPT_STARTED:
                step = run.find(str(data["step"]))
                call = _Call(event=event, step=step)
                self._calls.append(call)
                self._open[event.run_id, str(data["step"]), int(data["attempt"])] = call
                self._limits(data, event.target)
            case EventType.ATTEMPT_FINISHED:
                call = self._open.pop((event.run_id, str(data["step"]), int(data["attempt"])))
                call.end = event
                if call.step is not None and not call.step.is_message:
                    course.shift += event.at - call.event.at
                    self._acted(data["action"], event.target, str(data["outcome"]))
            case EventType.STEP_SKIPPED if data["reason"] == Reason.REPLACED:
                self._replaced(event.at - course.shift - BEFORE_A_LOOK, run.find(str(data["step"])))
            case EventType.VERIFICATION_LOOKED:
                self._looked(event, run, course)
            case EventType.LEASE_OPENED:
                step = run.find(str(data["step"]))
                if step is not None and step.undo is not None and step.undo.require:
                    course.lent[str(data["lease_id"])] = step
                    self._required(event.at, run, step, None)
            case EventType.LEASE_KEPT if data["lease_id"] in course.lent:
                self._kept(run, course.lent[str(data["lease_id"])], str(data["detail"]))
            case EventType.UNDO_STARTED if data["lease_id"] in course.lent:
                self._undone(event.at, run, course.lent.pop(str(data["lease_id"])), course.over_at)
            case EventType.UNDO_FINISHED if data["outcome"] in (Outcome.FAILED, Outcome.UNKNOWN):
                how = Failure.TRANSIENT if data["outcome"] == Outcome.FAILED else Failure.UNKNOWN
                self._add(event.at - BEFORE_AN_UNDO, Fails(action=str(data["action"]), how=how))
            case EventType.LEASE_CLOSED:
                course.over_at = event.at if course.over_at is not None else None
                if data["how"] != "undone":
                    self._drifted(event, str(data["how"]))
            case _:
                pass

    def ended(self, run_id: str, at: datetime) -> None:
        """Nothing of a run's subject fires any more."""
        self._courses[run_id].over_at = at

    def close(self) -> None:
        """Tell of the calls, now that all are known."""
        last: dict[str, datetime] = {}
        for calls in self._by_step():
            first = calls[0].event
            action = str(first.data["action"])
            fails = _counted([one for call in calls for one in self._how(call, calls)])
            at = min(
                _floor(first.at), _floor(last.get(action, self._begins) + SECOND if action in last else self._begins)
            )
            for how in fails:
                what = how if isinstance(how, Restarts) else Fails(action=action, how=how[0], times=how[1])
                self._add(at, what)
            ends = [call.end.at if call.end is not None else call.event.at for call in calls]
            last[action] = max([*ends, last.get(action, ends[0])])

    # -- time

    def _at(self, moment: datetime) -> timedelta:
        return max(_floor(moment) - self._begins, timedelta(0))

    def _add(self, at: datetime, what: Any) -> None:
        self.story.append(StoryEvent(at=self._at(at), line=0, what=what))

    # -- containers

    def _hosts(self, run: Run) -> None:
        for step in run.plan.steps:
            if step.action.startswith("docker.") and isinstance(host := step.params.get("host"), str):
                self.docker.setdefault(host, {})

    def _verdict(self, event: Event, run: Run, course: _Course) -> None:
        data: Mapping[str, Any] = event.data
        reasons = {str(one["reason"]) for one in data["reasons"]}
        if Reason.UNKNOWN_HOST.value in reasons:
            for step in run.plan.steps:
                self.docker.pop(str(step.params.get("host", "")), None)
        self._answers(event, run)
        self._away(event, run, course, is_away=Reason.UNREACHABLE.value in reasons)
        if course.muted:
            self._mute(event.at - BEFORE_A_TURN, run, "active")
            course.muted = ""
        if data["word"] == Verdict.WAIT.value:
            course.shift = timedelta(0)
        for target in (*data["targets"], *data["affects"]):
            self._container(event.at, run, target)

    def _container(self, at: datetime, run: Run, target: Mapping[str, Any]) -> None:
        ref, status = str(target["ref"]), str(target["state"]) or "running"
        if not ref.startswith(DOCKER):
            return
        host, _, name = ref.removeprefix(DOCKER).partition("/")
        containers = self.docker.setdefault(host, {})
        if name not in containers:
            keys: dict[str, JsonValue] = {} if status == "running" else {"status": status}
            if target["labels"]:
                keys["labels"] = dict(target["labels"])
            containers[name] = keys
        elif self._status[ref] != status:
            began = max(run.created_at, at - timedelta(minutes=1))
            self._add(began, World(docker={host: {name: {"status": status}}}))
        self._status[ref] = status

    def _acted(self, action: str, ref: str, outcome: str) -> None:
        """What our own acts make of a container is no news."""
        if ref in self._status and outcome == Outcome.SUCCEEDED.value:
            made = {"docker.restart": "running", "docker.start": "running", "docker.stop": "exited"}
            self._status[ref] = made.get(action, self._status[ref])

    def _limits(self, data: Mapping[str, Any], ref: str) -> None:
        """The CPU limit that a container had before anything was done to it."""
        before = data["before"]
        if not ref.startswith(DOCKER) or "nano_cpus" not in before:
            return
        host, _, name = ref.removeprefix(DOCKER).partition("/")
        keys = self.docker.get(host, {}).get(name)
        if keys is None or "cpus" in keys or any(call.event.target == ref for call in self._calls[:-1]):
            return
        nano, quota, period = before["nano_cpus"], before["cpu_quota_us"], before["cpu_period_us"] or 100_000
        cpus = nano / 1e9 if nano else quota / period if quota > 0 else 0.0
        if cpus:
            keys["cpus"] = f"{cpus:g}"

    def _replaced(self, at: datetime, step: PlannedStep | None) -> None:
        """Made anew between the verdict and the step."""
        params = step.params if step is not None else {}
        if params.get("container") in self.docker.get(str(params.get("host")), {}):
            self._add(at, World(docker={str(params["host"]): {str(params["container"]): "replaced"}}))

    def _drifted(self, event: Event, how: str) -> None:
        if not event.target.startswith(DOCKER):
            return
        host, _, name = event.target.removeprefix(DOCKER).partition("/")
        keys: Any = "replaced" if how == "reverted" else {"cpus": "0.75"}
        self._add(event.at - timedelta(minutes=1), World(docker={host: {name: keys}}))
        if how != "reverted":
            self.notes.append(f"Others gave {name} another CPU limit; the log does not say which: 0.75 stands for it.")

    # -- who does not answer

    def _away(self, event: Event, run: Run, course: _Course, *, is_away: bool) -> None:
        if is_away == bool(course.is_away):
            return
        if is_away:
            course.is_away = sorted({str(step.params["host"]) for step in run.plan.acts if "host" in step.params})
        at = run.created_at if is_away else event.at - BEFORE_A_TURN
        self._add(at, World(docker=dict.fromkeys(course.is_away, "away" if is_away else "back")))
        if not is_away:
            course.is_away = []

    def _turn(self, event: Event, run: Run, course: _Course) -> None:
        data: Mapping[str, Any] = event.data
        reasons = {str(one).rpartition(":")[2] for one in data["waits_for"]}
        course.shift = timedelta(0)
        how = next((MUTED[reason] for reason in sorted(reasons) if reason in MUTED), "")
        if Reason.ALERTMANAGER_AWAY.value in reasons:
            how = "away"
        if how and not course.muted:
            self._mute(run.created_at, run, how)
            course.muted = how
        elif course.muted and not how:
            self._mute(event.at - BEFORE_A_TURN, run, "active")
            course.muted = ""

    def _mute(self, at: datetime, run: Run, how: str) -> None:
        self.asks_alertmanager = True
        if how == "away" or self._courses[run.plan.run_id].muted == "away":
            self._add(at, World(alertmanager="away" if how == "away" else "back"))
        elif name := self._alert_of.get(run.plan.run_id):
            self._add(at, World(alertmanager={name: how}))

    # -- numbers

    def _answers(self, event: Event, run: Run) -> None:
        data: Mapping[str, Any] = event.data
        answers = [one for one in data["answers"] if one["rule"] == "require"]
        for condition, answer in zip(run.plan.require, answers, strict=False):
            is_met = answer["word"] == Verdict.ALLOW.value
            seen = Seen.MET if is_met else Seen.NOT_MET if answer["reason"] == Reason.REQUIRE.value else Seen.NO_VALUE
            self._see(event.at, run, condition, seen, str(answer["detail"]))

    def _looked(self, event: Event, run: Run, course: _Course) -> None:
        data: Mapping[str, Any] = event.data
        step = run.find(str(data["step"])) if data["step"] else None
        checks = step.verify if step is not None else run.plan.verify
        for check, one in zip(checks, data["checks"], strict=True):
            if check.condition is not None and one["seen"]:
                at = event.at - course.shift - BEFORE_A_LOOK
                self._see(at, run, check.condition, Seen(one["seen"]), str(one["detail"]))

    def _see(self, at: datetime, run: Run, condition: Condition, seen: Seen, detail: str) -> None:
        """A number that was seen: so from then on; the first one that a run sees, from its beginning on."""
        value = _value(condition, seen, detail)
        key = (run.plan.run_id, condition.name)
        before = self._seen.get(key)
        when = self._at(run.created_at) if before is None else max(self._at(at), before[0])
        self._seen[key] = (when, value)
        if before is not None and before[1] == value:
            return
        alert = self._alert_of.get(run.plan.run_id, "") if condition.name in self._own_names else ""
        self.story.append(StoryEvent(at=when, line=0, sees=(Sees(name=condition.name, values=value, alert=alert),)))

    # -- what was lent

    def _required(self, at: datetime, run: Run, step: PlannedStep, value: Seen | None) -> None:
        assert step.undo is not None
        for condition in step.undo.require:
            if value is not None or (run.plan.run_id, condition.name) not in self._seen:
                self._see(at, run, condition, value or Seen.MET, "")

    def _kept(self, run: Run, step: PlannedStep, detail: str) -> None:
        """It was kept; where that names a number, taking it back was not safe by that number."""
        assert step.undo is not None
        for condition in step.undo.require:
            if condition.name in detail:
                self._see(run.created_at, run, condition, Seen.NOT_MET, detail)

    def _undone(self, at: datetime, run: Run, step: PlannedStep, over_at: datetime | None) -> None:
        assert step.undo is not None
        if over_at is not None and at - over_at - step.undo.after > ASKED_EVERY:
            self._required(over_at, run, step, Seen.NOT_MET)
        self._required(at - BEFORE_AN_UNDO, run, step, Seen.MET)

    # -- what failed

    def _by_step(self) -> Iterator[list[_Call]]:
        """The attempts of each step of each run, by the first of them."""
        found: dict[tuple[str, str], list[_Call]] = {}
        for call in self._calls:
            found.setdefault((call.event.run_id, str(call.event.data["step"])), []).append(call)
        yield from found.values()

    def _how(self, call: _Call, calls: Sequence[_Call]) -> Iterator[tuple[Failure, int] | Restarts]:
        """How an attempt failed, in the words of a story; nothing where it did not."""
        if call.end is None:
            return
        data: Mapping[str, Any] = call.end.data
        outcome, reason, detail = Outcome(data["outcome"]), Reason(data["reason"]), str(data["detail"])
        gap = next((gap for gap in self._gaps if call.event.at <= gap[1] and gap[1] <= call.end.at), None)
        is_message = call.step is None or call.step.is_message
        if gap is not None and not is_message:
            start, end = _floor(max(gap[0], call.event.at)), _floor(gap[1])
            self.told_gaps.add(gap)
            yield Restarts(down=max(end - start, timedelta(0)), during=str(data["action"]))
            if reason is Reason.DID_NOT_HAPPEN:
                self.notes.append("An act had not happened when the engine was killed; in the story it has.")
            return
        if outcome is Outcome.UNKNOWN:
            yield Failure.UNKNOWN, 1
        elif outcome is Outcome.SUCCEEDED and detail.startswith(ANSWER_LOST):
            yield Failure.TIMEOUT_AFTER_EFFECT, 1
        elif outcome is Outcome.FAILED:
            if reason is Reason.TARGET_NOT_FOUND and call.event.target.startswith(DOCKER):
                self.notes.append(f"{call.event.target} was gone; in the story {data['action']} fails for good.")
            is_transient = bool(data["retry_at"]) or reason in (Reason.TRANSIENT, Reason.DID_NOT_HAPPEN)
            is_transient |= reason is Reason.NOTIFY and len(calls) > 1
            params: Mapping[str, Any] = _data(call.event)["params"]
            n = len(data["after"].get("not_told", ())) or len(params.get("to", ())) or 1
            yield Failure.TRANSIENT if is_transient else Failure.PERMANENT, n if is_message else 1


def _counted(fails: Sequence[tuple[Failure, int] | Restarts]) -> list[tuple[Failure, int] | Restarts]:
    """Failures of one kind in a row as one, with their number."""
    found: list[tuple[Failure, int] | Restarts] = []
    for one in fails:
        last = found[-1] if found else None
        if isinstance(one, tuple) and isinstance(last, tuple) and last[0] == one[0]:
            found[-1] = (one[0], last[1] + one[1])
        else:
            found.append(one)
    return found


def _value(condition: Condition, seen: Seen, detail: str) -> tuple[float, ...] | Nothing:
    """What a query gave, as a story has it: it knows no NaN, which is no value either."""
    reading = read_back(condition, seen, detail)
    if reading is None or not reading.values or math.isnan(reading.values[0]):
        return Nothing.AWAY if reading is not None and reading.problem else Nothing.NOTHING
    return reading.values


def _own_names(runs: Mapping[str, Run]) -> frozenset[str]:
    """Conditions whose query is not the same for all runs: their numbers are told alert by alert."""
    queries: dict[str, set[str]] = {}
    for run in runs.values():
        for condition in run.plan.conditions:
            queries.setdefault(condition.name, set()).add(condition.query)
    return frozenset(name for name, of in queries.items() if len(of) > 1)


def _data(event: Event) -> Mapping[str, Any]:
    return event.data


def _floor(moment: datetime) -> datetime:
    return moment.replace(microsecond=0)
