"""Plays a scenario of a playbook test: the real engine, on a world in memory and a clock that the story moves.

Takes → gives: a ``Scenario`` → a ``Result`` with what was expected and what happened side by side. Every decision is
the engine's own: the story delivers, breaks and answers, and the audit log says what came of it.

Must never: decide anything that the engine decides, or touch a real neighbour.
"""

from __future__ import annotations

import difflib
import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol, cast

from remediator.clients.fake import PROMETHEUS, FakeWorld
from remediator.clients.ports import Clients, CpuLimit
from remediator.core.action import JsonValue, LookingActions
from remediator.core.alert import Alert, AlertStatus, RawDelivery, label_key
from remediator.core.decode import decode
from remediator.core.event import EventType, RecordedEvent, utc_text, utc_time
from remediator.core.guard import ASK_AGAIN
from remediator.core.happening import happenings
from remediator.core.lease import PREFIX
from remediator.core.match import Match, PlaybookIndex
from remediator.core.move import HEARD_WITHIN, LATCH_LIMIT, tell_next_at
from remediator.core.plan import Plan, make_plan, subject_id
from remediator.core.playbook import PlaybookSet
from remediator.core.run import Phase, Run
from remediator.core.scenario import (
    Deed,
    Fails,
    Line,
    Nothing,
    Person,
    Posts,
    Restarts,
    Says,
    Scenario,
    ScenarioAlert,
    Sees,
    StoryEvent,
    TestFile,
    Word,
    World,
    compare,
)
from remediator.core.units import parse_duration, print_duration
from remediator.engine.clock import StoryClock
from remediator.engine.driven import DrivenEngine, do
from remediator.engine.fleets import condition_name as fleet_key
from remediator.engine.reserve import JUDGE_AGAIN
from remediator.errors import RemediatorError, SettingsError, StoryError
from remediator.loading import Loaded
from remediator.settings import Settings, load_settings

SOURCE = "story"
"""Where a story's deliveries come from, as the log has it."""

RECEIVER = "remediator"
"""Whom Alertmanager delivers to, where the settings do not say."""

QUIET = timedelta(minutes=11)
"""After so long without an event, what waits has been judged and asked again at least once (at most every 10 minutes),
and an Alertmanager's answer has had its effect (within 6)."""

A_MINUTE = timedelta(minutes=1)
"""``undo.require`` is asked so often, and the end of a pause looked for (``ASK_EVERY``, ``LOOK_AT_PAUSE``)."""

STILL = timedelta(hours=25)
"""After so long without an event nothing comes any more, unless at a moment that is known."""

LONGEST = timedelta(days=60)
"""A story that goes on for so long after its last event never ends."""

BUSY = 1_000
"""Nor does one in which, after its last event, something happens at so many moments…"""

TRIES = 50
"""… or in which one thing is done so often."""


_DONE = frozenset({EventType.ATTEMPT_STARTED, EventType.UNDO_STARTED})

_HEARD = frozenset({EventType.DELIVERY_RECEIVED, EventType.DELIVERY_REJECTED, EventType.ALERT_MISSED})


class Engine(DrivenEngine, Protocol):
    """The engine, as far as a story needs it."""

    def accept(self, raw: RawDelivery) -> Any: ...
    def note_steady(self, until: datetime | None) -> None: ...
    def dues(self) -> Mapping[str, datetime]: ...
    def asks_at(self) -> datetime | None: ...
    def expiries(self) -> Mapping[str, datetime]: ...
    def events_after(self, seq: int) -> list[RecordedEvent]: ...
    def known_run(self, run_id: str) -> tuple[Run, Phase, datetime] | None: ...
    def lease_ends(self) -> list[datetime]: ...
    def is_paused(self) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """How an engine is made; ``app`` knows.

    Attributes:
        load: the playbooks and policies of these paths, under these settings.
        build: an engine with these clients, this clock and this set; not yet prepared.
        actions: the registry.
    """

    load: Callable[[Settings, Sequence[Path]], Loaded]
    build: Callable[[Settings, Clients, StoryClock, Loaded], Engine]
    actions: LookingActions


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How a scenario went.

    Attributes:
        lines: expected and happened, side by side; () where there is a problem.
        problem: why it could not be played to its end, with ``file:line``, "" when it was.
        events: the audit log that it left.
        playbooks: what it was played with; None where that could not be loaded.
        duration_s: of playing it, by the wall clock.
    """

    file: TestFile
    scenario: Scenario
    lines: tuple[Line, ...] = ()
    problem: str = ""
    events: tuple[RecordedEvent, ...] = ()
    playbooks: PlaybookSet | None = None
    duration_s: float = 0.0

    @property
    def is_ok(self) -> bool:
        """Whether all that was expected happened, and nothing else."""
        return not self.problem and all(line.is_ok for line in self.lines)


_RUNS_MEANT: Mapping[Deed, tuple[str, str]] = {
    Deed.APPROVES: ("asks", "asking"),
    Deed.DENIES: ("asks", "asking"),
    Deed.CANCELS: ("is open", "open"),
    Deed.SETTLES: ("is unknown", "all"),
    Deed.UNDOES: ("has acted", "all"),
}
"""What people do to a run → what a run must be for it, in words, and which runs are looked through."""


class _EngineKilled(BaseException):
    """The engine dies here, in the middle of an act. No ``Exception``: nothing in it can live through that."""


class Stage:
    """All that the scenarios of one file share: its settings and its playbooks, loaded once."""

    def __init__(self, file: TestFile, workshop: Workshop, folder: Path) -> None:
        """Load them.

        Args:
            folder: an empty one, for stores.

        Raises:
            StoryError: the settings are wrong, or name what is not there; or every problem of the playbooks.
        """
        self.file = file
        self.workshop = workshop
        self.folder = folder
        self.settings = _settings(file, folder)
        self.loaded = workshop.load(self.settings, file.paths)
        if self.loaded.problems:
            raise StoryError("\n".join(problem.located() for problem in self.loaded.problems))
        self.queries = _queries(file, self.loaded.playbook_set, workshop.actions)
        _check_names(file, self.loaded.playbook_set, self.queries)

    def play(self, scenario: Scenario) -> Result:
        """Play one scenario from its beginning to its end."""
        began = time.perf_counter()
        folder = self.folder / "scenario"
        folder.mkdir()
        story = _Story(self, scenario)
        problem = ""
        try:
            story.play()
        except StoryError as error:
            problem = str(error)
        except RemediatorError as error:
            problem = f"{self.file.file}:{story.line}: {error}"
        finally:
            story.close()
            shutil.rmtree(folder)
        recorded = tuple(story.events)
        labels = {name: alert.labels for name, alert in self.file.alerts.items()}
        happened = happenings([one.event for one in recorded], self.file.begins, labels)
        lines = () if problem else tuple(compare(scenario.expect, happened, scenario.never))
        return Result(
            file=self.file,
            scenario=scenario,
            lines=lines,
            problem=problem,
            events=recorded,
            playbooks=self.loaded.playbook_set,
            duration_s=time.perf_counter() - began,
        )


def play_file(file: TestFile, scenarios: Iterable[Scenario], workshop: Workshop, folder: Path) -> Iterable[Result]:
    """Play some scenarios of a file, one after the other.

    Args:
        folder: an empty one, for stores.

    Yields:
        A result for each, in their order. Raises nothing for what is wrong in files.
    """
    try:
        stage = Stage(file, workshop, folder)
    except RemediatorError as error:
        for scenario in scenarios:
            yield Result(file=file, scenario=scenario, problem=str(error))
        return
    for scenario in scenarios:
        yield stage.play(scenario)


@dataclass(frozen=True, slots=True)
class _Asking:
    """What asks again and again whether something has changed.

    Attributes:
        every: how often.
        changes_at: when time alone may change it.
    """

    every: timedelta
    changes_at: frozenset[datetime] = frozenset()


def _at_or_after(moment: datetime, due: datetime, every: timedelta) -> datetime:
    """The first time, of those at which what is due now and then is looked at, that is not before a moment."""
    return due + max(0, -((due - moment) // every)) * every


class _Story:
    """One scenario under way."""

    def __init__(self, stage: Stage, scenario: Scenario) -> None:
        file = stage.file
        self._stage = stage
        self._scenario = scenario
        self._clock = StoryClock(file.begins)
        self._world = FakeWorld(self._clock.now)
        self._firing: dict[str, datetime] = {}
        """Alert → since when it fires."""
        self._was: list[tuple[datetime, str, datetime, datetime | None]] = []
        """What was ever so of an alert: when it became so, its name, and its beginning and end."""
        self._engine: Engine | None = None
        """None while it is down."""
        self._starts_at = file.begins
        """When it starts (again)."""
        self._quiet_since = file.begins
        self._n_busy = 0
        """Moments at which something happened since the last event of the story."""
        self._n_done: Counter[tuple[str, str]] = Counter()
        """How often a run has done something to a target since then."""
        self._known: set[datetime] = set()
        """Moments at which time alone may change something."""
        self._asks: dict[str, datetime] = {}
        """What was due again a minute after it had been looked at → when."""
        self._scripted: list[tuple[int, Fails, int]] = []
        """Line of the story, what is to fail, and how many calls of that action were to fail before it."""
        self._kills: list[tuple[int, str]] = []
        """Line of the story, and the action in whose midst the engine is to be killed."""
        self.events: list[RecordedEvent] = []
        self.line = scenario.line
        self._steady_until: datetime | None = file.begins
        self._furnish()

    # -- the story

    def play(self) -> None:
        """From the beginning until nothing is due any more."""
        self._start()
        for event in self._scenario.story:
            self.line = event.line
            self._let_stand(self._stage.file.begins + event.at)
            self._go_to(self._stage.file.begins + event.at)
            self._quiet_since, self._n_busy = self._clock.moment, 0
            self._n_done.clear()
            self._happen(event)
        self.line = self._scenario.line
        self._let_stand(None)
        self._go_on()
        self._check_that_all_was_met()

    def close(self) -> None:
        """End the engine; the world goes with it."""
        if self._engine is not None:
            self._read_events()
            self._engine.halt()
            self._engine = None

    def _let_stand(self, until: datetime | None) -> None:
        """Nothing that conditions give changes before this moment: looks that can see nothing new are left out."""
        self._steady_until = until
        if self._engine is not None:
            self._engine.note_steady(until)

    def _go_to(self, until: datetime) -> None:
        """Let the engine do what is due before a moment, and stand there."""
        while self._clock.moment < until:
            due = self._work()
            self._move(until if due is None else min(due, until))
        if self._engine is None and self._clock.moment >= self._starts_at:
            self._start()

    def _go_on(self) -> None:
        """Let the engine do all that is due, until nothing is."""
        ended_at = self._clock.moment
        while (due := self._work()) is not None:
            if due - ended_at > LONGEST or self._n_busy > BUSY or max(self._n_done.values(), default=0) > TRIES:
                raise self._error(self._why_endless(due - ended_at))
            self._move(due)

    def _move(self, to: datetime) -> None:
        if to in self._known:
            self._quiet_since = to
        self._clock.moment = max(to, self._clock.moment + timedelta(milliseconds=1))
        if self._engine is not None:
            self._engine.note_alive()

    def _work(self) -> datetime | None:
        """Let the engine do what is due now.

        Returns:
            When there is something to do next, None when there is nothing more.
        """
        while True:
            if self._engine is None:
                if self._clock.moment < self._starts_at:
                    return self._starts_at
                self._start()
            try:
                self._engine_of().work()
            except _EngineKilled as killed:
                self._kill(killed.args[0])
            else:
                self._read_events()
                if self._engine_of().n_unexpected():
                    raise self._error("the engine met an error that nobody foresaw; its log has it (--log)")
                return self._due()

    def _due(self) -> datetime | None:
        """When the engine has something to do next."""
        engine, now = self._engine_of(), self._clock.moment
        dues, asks_at, quiet = engine.dues(), engine.asks_at(), now - self._quiet_since
        self._known = {at for key, at in engine.expiries().items() if not self._world.is_listed(key)}
        if quiet < QUIET:
            return min((*dues.values(), *self._known, *([asks_at] if asks_at is not None else ())), default=None)
        # Nothing has happened for a while. Where the engine only asks whether something has changed, it asks less and
        # less often from now on: nothing changes in a story that stands still, but at moments that are known.
        moments: set[datetime] = set()
        questions = {(asks_at, A_MINUTE)} if asks_at is not None else set()
        for what, at in dues.items():
            asking = self._asking(what, at)
            if asking is None:
                moments.add(at)
            else:
                questions.add((at, asking.every))
                self._known |= asking.changes_at
        moments |= {at for at in self._known if at > now}
        if quiet < STILL:
            moments |= {_at_or_after(now + quiet / 4, at, every) for at, every in questions}
        return min(moments, default=None)

    def _asking(self, what: str, at: datetime) -> _Asking | None:
        """How that which waits asks whether something has changed; None where it is due because time has passed."""
        engine, now = self._engine_of(), self._clock.moment
        if at - now == A_MINUTE:
            self._asks[what] = at
        is_asking = self._asks.get(what) == at
        if what.startswith(PREFIX):
            return _Asking(A_MINUTE, frozenset(engine.lease_ends())) if is_asking else None
        found = engine.known_run(what)
        if found is None or found[1] is not Phase.WAITING:
            return _Asking(A_MINUTE) if is_asking and engine.is_paused() else None
        run, _, last_word_at = found
        answers = self._answers(what)
        # What is asked again so soon lifts when somebody answers.
        lifts = [lifts_at for since, lifts_at in answers if lifts_at - since > ASK_AGAIN]
        if lifts and max(lifts) <= now:
            return None  # others have moved them on: the engine knows until when, and the log does not
        every = JUDGE_AGAIN if len(lifts) == len(answers) else ASK_AGAIN
        # That a word is too old is noticed when the plan is judged for the first time after that.
        old_at = last_word_at + (LATCH_LIMIT if run.plan.latched else HEARD_WITHIN)
        is_kept_young = self._world.is_listed(label_key(run.plan.labels))
        old = [_at_or_after(old_at, at, every)] if old_at > now and not is_kept_young else []
        tell_at = tell_next_at(run)
        return _Asking(every, frozenset([*old, *lifts, *([tell_at] if tell_at is not None else ())]))

    def _answers(self, run_id: str) -> list[tuple[datetime, datetime]]:
        """What a plan waits for, of that which may lift by itself, as its newest verdict says: its time, and when."""
        for one in reversed(self.events):
            if one.event.run_id == run_id and "answers" in one.event.data:
                answers = cast("Sequence[Mapping[str, str]]", one.event.data["answers"])
                return [(one.event.at, utc_time(answer["lifts_at"])) for answer in answers if answer["lifts_at"]]
        return []

    def _why_endless(self, lasted: timedelta) -> str:
        last = next((one.event for one in reversed(self.events) if one.event.type in _DONE), None)
        newest = f", last: {last.data['action']} {last.target}".rstrip() if last is not None else ""
        return (
            f"the story does not end: {print_duration(lasted)} after its last event something is still done again and"
            f" again{newest}; let it end, as by `resolves` or `changes`"
        )

    def _check_that_all_was_met(self) -> None:
        """What a story lets go wrong, and nothing ever met, tests nothing; nor does one without an alert."""
        for line, fails, n_before in self._scripted:
            self.line = line
            n_scripted = sum(one.times for _, one, _ in self._scripted if one.action == fails.action)
            if n_scripted - self._world.n_failures_left(fails.action) <= n_before:
                raise self._error(f"no {fails.action} came that could fail")
        for place, (line, action) in enumerate(self._kills):
            self.line = line
            if [one for _, one in self._kills[place:]].count(action) <= self._world.n_interrupts_left(action):
                raise self._error(f"no {action} came in whose midst the engine could be killed")
        if _HEARD.isdisjoint(one.event.type for one in self.events):
            self.line = self._scenario.line
            raise self._error("the engine heard of no alert, so that nothing could happen; write `fires`")

    def _read_events(self) -> None:
        new = self._engine_of().events_after(self.events[-1].seq if self.events else 0)
        if new:
            self._quiet_since = self._clock.moment
            self._n_busy += 1
            self._n_done.update((one.event.run_id, one.event.target) for one in new if one.event.type in _DONE)
            self.events += new

    def _happen(self, event: StoryEvent) -> None:
        for seen in event.sees:
            self._see(seen)
        match event.what:
            case Says():
                self._say(event.what)
            case Posts(body=body):
                self._post(body)
            case Fails() as fails:
                n_before = sum(one.times for _, one, _ in self._scripted if one.action == fails.action)
                self._scripted.append((event.line, fails, n_before))
                self._world.fail(fails.action, fails.how, times=fails.times)
            case Restarts(during="") as killed:
                self._engine_of()
                self._kill(killed.down)
                if not killed.down:
                    self._start()
            case Restarts() as killed:
                self._kills.append((event.line, killed.during))
                self._world.interrupt(killed.during, _EngineKilled(killed.down))
            case Person():
                self._act(event.what)
            case World():
                self._change(event.what)

    # -- the engine

    def _engine_of(self) -> Engine:
        if self._engine is None:
            raise self._error(
                f"the engine is down until {print_duration(self._starts_at - self._stage.file.begins)} after the begin"
            )
        return self._engine

    def _start(self) -> None:
        stage = self._stage
        settings = stage.settings.model_copy(update={"store_url": f"sqlite:///{stage.folder}/scenario/r.db"})
        engine = stage.workshop.build(settings, self._world.clients(), self._clock, stage.loaded)
        engine.prepare()
        engine.note_steady(self._steady_until)
        self._engine = engine

    def _kill(self, down: timedelta) -> None:
        self._read_events()
        self._engine_of().halt()
        self._engine = None
        self._starts_at = self._clock.moment + down

    # -- the world

    def _furnish(self) -> None:
        """The world as it is when the scenario begins."""
        stage = self._stage
        if not stage.settings.notify:
            self._world.take_any_message()
        for name in stage.settings.notify:
            self._world.add_notify_target(name)
        self._world.name_prometheus(list(stage.settings.prometheus.servers))
        for url in stage.settings.alertmanager.urls:
            self._world.add_alertmanager(url)
        for host in stage.settings.docker.hosts:
            self._world.add_host(host)
        for world in (stage.file.world, self._scenario.world):
            self._change(world)

    def _change(self, world: World) -> None:
        for host, containers in world.docker.items():
            if isinstance(containers, str):
                self._world.set_away(host, is_away=containers == "away")
                continue
            for name, keys in containers.items():
                self._change_container(host, name, keys)
        if isinstance(world.alertmanager, str):
            for url in self._stage.settings.alertmanager.urls if world.alertmanager else ():
                self._world.set_away(url, is_away=world.alertmanager == "away")
            return
        for name, how in world.alertmanager.items():
            labels = self._alert(name).labels
            if how == "gone":
                self._world.forget_alert(labels)
            else:
                self._list(labels, is_inhibited=how == "inhibited")
            self._world.mute_alert(labels, is_muted=how == "silenced")

    def _list(self, labels: Mapping[str, str], *, is_inhibited: bool = False) -> None:
        """Let the Alertmanagers, where there are any, have an alert that fires."""
        settings = self._stage.settings.alertmanager
        if settings.urls:
            self._world.list_alert(labels, is_inhibited=is_inhibited, receivers=[settings.receiver or RECEIVER])

    def _change_container(self, host: str, name: str, keys: Mapping[str, JsonValue] | str) -> None:
        there = self._world.has_container(host, name)
        if isinstance(keys, str):
            if not there:
                raise self._error(f"there is no container {name} on {host} that could be {keys}")
            if keys == "replaced":
                state = self._world.container(host, name)
                self._world.add_container(
                    host, name, status=state.status, labels=state.labels, stop_timeout_s=state.stop_timeout_s,
                    cpu=state.cpu,
                )  # fmt: skip
            else:
                self._world.remove_container(host, name)
            return
        made: dict[str, Any] = {}
        if there:
            state = self._world.container(host, name)
            made = {"status": state.status, "labels": state.labels, "stop_timeout_s": state.stop_timeout_s}
            made["cpu"] = state.cpu
        if "labels" in keys:
            made["labels"] = keys["labels"]
        if "stop_timeout" in keys:
            made["stop_timeout_s"] = int(parse_duration(str(keys["stop_timeout"])).total_seconds())
        if "cpus" in keys:
            made["cpu"] = CpuLimit(nano_cpus=int(float(str(keys["cpus"])) * 1e9))
        if "status" in keys:
            made["status"] = str(keys["status"])
        if not there or {"labels", "stop_timeout"} & keys.keys():
            self._world.add_container(host, name, **made)  # Docker changes these only where it makes it anew
            return
        self._world.set_cpu(host, name, made["cpu"])
        self._world.set_status(host, name, made["status"])

    def _see(self, seen: Sees) -> None:
        queries = self._stage.queries.get(seen.name, {})
        for where in [query for query, alerts in queries.items() if seen.alert in alerts] if seen.alert else [""]:
            match seen.values:
                case Nothing.AWAY:
                    self._world.loses(seen.name, where=where)
                case Nothing.NOTHING:
                    self._world.sees(seen.name, where=where)
                case _:
                    self._world.sees(seen.name, *seen.values, where=where)

    # -- deliveries

    def _alert(self, name: str) -> ScenarioAlert:
        return self._stage.file.alerts[name]

    def _say(self, says: Says) -> None:
        so_at = self._clock.moment - says.late
        members = [self._member(says.word, name, so_at) for name in says.alerts]
        group = self._stage.file.group
        first = self._alert(says.alerts[0]).labels
        labels = group.get("labels", {"alertname": first.get("alertname", "")})
        body = {
            "version": "4",
            "groupKey": f"{{}}:{json.dumps(labels, sort_keys=True)}",
            "status": "resolved" if says.word is Word.RESOLVES else "firing",
            "receiver": group.get("receiver", self._stage.settings.alertmanager.receiver or RECEIVER),
            "groupLabels": labels,
            "commonLabels": {},
            "commonAnnotations": {},
            "externalURL": group.get("external_url", "http://alertmanager:9093"),
            "truncatedAlerts": says.truncated,
            "alerts": members,
        }
        for _ in range(says.copies):
            self._deliver(json.dumps(body).encode())

    def _member(self, word: Word, name: str, so_at: datetime) -> dict[str, Any]:
        alert = self._alert(name)
        starts_at, ends_at = self._so(word, name, so_at)
        return {
            "status": "firing" if ends_at is None else "resolved",
            "labels": dict(alert.labels),
            "annotations": dict(alert.annotations),
            "startsAt": utc_text(starts_at),
            "endsAt": "0001-01-01T00:00:00Z" if ends_at is None else utc_text(ends_at),
            "generatorURL": alert.generator_url,
        }

    def _so(self, word: Word, name: str, so_at: datetime) -> tuple[datetime, datetime | None]:
        """When an alert began and ended, as it was at a moment."""
        if word is Word.REPEATS:
            was = [(begins, ends) for at, which, begins, ends in self._was if which == name and at <= so_at]
            if not was:
                raise self._error(f"{name} had not fired {'then' if so_at < self._clock.moment else 'yet'}")
            return was[-1]
        if word is Word.FIRES:
            starts_at, ends_at = so_at, None
            self._firing[name] = so_at
        else:
            if name not in self._firing:
                raise self._error(f"{name} does not fire, so it cannot be resolved")
            starts_at, ends_at = self._firing.pop(name), so_at
        self._was.append((so_at, name, starts_at, ends_at))
        labels = self._alert(name).labels
        if word is Word.FIRES:
            self._list(labels)
        else:
            self._world.forget_alert(labels)
        return starts_at, ends_at

    def _post(self, body: bytes) -> None:
        """Deliver what was recorded. Whoever sent it has its alerts, as an Alertmanager has."""
        now = self._clock.moment
        names = {label_key(alert.labels): name for name, alert in self._stage.file.alerts.items()}
        for alert in decode(body, now).alerts:
            name = names.get(alert.label_key)
            starts_at, ends_at = alert.starts_at or now, None
            if alert.status is AlertStatus.FIRING:
                self._list(alert.labels)
            else:
                self._world.forget_alert(alert.labels)
                ends_at = alert.ends_at or now
            if name is not None:
                self._was.append((now, name, starts_at, ends_at))
                self._firing.pop(name, None)
                if ends_at is None:
                    self._firing[name] = starts_at
        self._deliver(body)

    def _deliver(self, body: bytes) -> None:
        self._engine_of().accept(RawDelivery(received_at=self._clock.moment, source=SOURCE, body=body))

    # -- people

    def _act(self, person: Person) -> None:
        do(
            self._engine_of(),
            person.deed,
            person.name,
            person.reason or f"{person.name} {person.deed.value}",
            run_id=self._run_of(person, *_RUNS_MEANT[person.deed]) if person.deed in _RUNS_MEANT else "",
            breaker=person.breaker,
            has_happened=person.has_happened,
        )

    def _run_of(self, person: Person, what: str, state: str) -> str:
        """The one run that a person can mean."""
        rows = self._engine_of().runs(10_000, "all" if state == "all" else "open")
        if state == "asking":
            rows = [row for row in rows if row["phase"] == Phase.ASKING.value]
        if person.deed is Deed.SETTLES:
            rows = [row for row in rows if row["outcome"] == "unknown"]
        if person.deed is Deed.UNDOES:
            rows = [row for row in rows if row["has_acted"]]
        if person.playbook:
            rows = [row for row in rows if row["playbook"] == person.playbook]
        if person.alert:
            labels = dict(self._alert(person.alert).labels)
            rows = [row for row in rows if dict(self._run(row["run_id"]).plan.labels) == labels]
        if len(rows) == 1 or (rows and state == "all"):  # the newest of several that are over
            return str(rows[0]["run_id"])
        playbooks = ", ".join(sorted({str(row["playbook"]) for row in rows}))
        several = f"{len(rows)} runs could be meant ({playbooks}); add playbook: or alert:"
        none = f"no run {what} at this time"
        if state == "asking":
            none += "; what the engine asks at a moment can be answered a second later"
        raise self._error(f"{person.deed.value}: {several if rows else none}")

    def _run(self, run_id: str) -> Run:
        found = self._engine_of().known_run(run_id)
        assert found is not None
        return found[0]

    def _error(self, text: str) -> StoryError:
        return StoryError(f"{self._stage.file.file}:{self.line}: {text}")


def _settings(file: TestFile, folder: Path) -> Settings:
    """A bare engine's settings, what the file says over them, and what its world has."""
    given = dict(file.settings)
    servers = cast("Mapping[str, Any]", given.get("prometheus", {})).get("servers")
    hosts = {host for world in _worlds(file) for host in world.docker}
    docker = cast("dict[str, Any]", given.get("docker", {}))
    overrides: dict[str, Any] = {
        **given,
        "docker": {**docker, "hosts": {host: {"url": "unix:///nowhere"} for host in hosts} | docker.get("hosts", {})},
        "prometheus": {"servers": servers or {PROMETHEUS: {"url": "http://nowhere:9090"}}},
        "store_url": f"sqlite:///{folder}/none.db",
    }
    try:
        return load_settings(Path("/dev/null"), {}, overrides)
    except SettingsError as error:
        raise StoryError("\n".join(f"{file.file}:1: settings: {line}" for line in str(error).splitlines())) from error


def _worlds(file: TestFile) -> Iterable[World]:
    yield file.world
    for scenario in file.scenarios:
        yield scenario.world
        yield from (event.what for event in scenario.story if isinstance(event.what, World))


Queries = Mapping[str, Mapping[str, frozenset[str]]]
"""Condition → its rendered queries → the alerts whose plans ask them."""


def _queries(file: TestFile, playbooks: PlaybookSet, actions: LookingActions) -> Queries:
    """Which queries the alerts of a file lead to, as the engine will render them."""
    found: dict[str, dict[str, set[str]]] = {}
    index = PlaybookIndex(playbooks)
    for name, alert in file.alerts.items():
        for plan in _plans(alert, file, index, playbooks, actions):
            for condition in plan.conditions:
                found.setdefault(condition.name, {}).setdefault(condition.query, set()).add(name)
    return {name: {query: frozenset(of) for query, of in queries.items()} for name, queries in found.items()}


def _plans(
    alert: ScenarioAlert, file: TestFile, index: PlaybookIndex, playbooks: PlaybookSet, actions: LookingActions
) -> Iterable[Plan]:
    body = {"version": "4", "status": "firing", "alerts": [
        {"status": "firing", "labels": dict(alert.labels), "annotations": dict(alert.annotations),
         "startsAt": utc_text(file.begins)}
    ]}  # fmt: skip
    decoded: Alert = decode(json.dumps(body).encode(), file.begins).alerts[0]
    for match in index.match(decoded.labels):
        if isinstance(match, Match):
            subject = subject_id(match.playbook.name, match.case.name, match.per_key, "story")
            yield make_plan(match, decoded, {}, subject=subject, rules=playbooks, actions=actions)[0]


def _check_names(file: TestFile, playbooks: PlaybookSet, queries: Queries) -> None:
    """Refuse values of conditions that nobody asks.

    Raises:
        StoryError: all of them, with their places.
    """
    cases = [case for playbook in playbooks.playbooks for case in playbook.cases]
    known = {condition.name for case in cases for condition in case.conditions}
    known |= {fleet_key(name) for name in playbooks.policy.fleets}
    problems = []
    for event in (event for scenario in file.scenarios for event in scenario.story):
        for seen in event.sees:
            if seen.name not in known:
                near = difflib.get_close_matches(seen.name, known, n=1)
                hint = f"; did you mean {near[0]}?" if near else f"; there are: {', '.join(sorted(known))}"
                problems.append(f"{file.file}:{event.line}: no condition is called {seen.name!r}{hint}")
            elif seen.alert and not any(seen.alert in of for of in queries.get(seen.name, {}).values()):
                problems.append(f"{file.file}:{event.line}: nobody asks {seen.name} for {seen.alert}")
            elif seen.alert and any({seen.alert} < of for of in queries[seen.name].values()):
                others = next(of - {seen.alert} for of in queries[seen.name].values() if {seen.alert} < of)
                problems.append(
                    f"{file.file}:{event.line}: the query of {seen.name} is the same for {seen.alert} and"
                    f" {', '.join(sorted(others))}: write {seen.name} without the alert's name"
                )
    if problems:
        raise StoryError("\n".join(problems))
