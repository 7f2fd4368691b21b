"""Decides anew what was delivered: the real engine, with other playbooks, on the stored deliveries at their own times.

Takes → gives: a store read-only, playbooks and policies → the runs that would be new, gone or different. The engine
plays on a scratch store and a clock that stands where each delivery came; its neighbours say what the log says they
said (``engine.hindsight``); what people did is done again at its time, where it still means something.

Must never: decide anything that the engine decides, write to the store that it reads, or hold a real neighbour.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

from remediator.clients.ports import Clients
from remediator.core.decision import Change, Decision, Differs, decision, differences
from remediator.core.event import Event, EventType, RecordedEvent, utc_text
from remediator.core.plan import unpack_plan
from remediator.core.playbook import PlaybookSet
from remediator.core.recording import DEEDS
from remediator.core.scenario import Deed
from remediator.engine.clock import StoryClock
from remediator.engine.driven import DrivenEngine, do
from remediator.engine.hindsight import MEANS, Assumed, Hindsight, Past, RecordedWorld, hindsight
from remediator.errors import ReplayError, RequestError
from remediator.loading import Loaded
from remediator.settings import Settings
from remediator.store import Connection, recorded, runs, subjects
from remediator.store.audit import log_of_run
from remediator.store.inbox import StoredDelivery
from remediator.store.subjects import Episode

Read = Callable[[], AbstractContextManager[Connection]]
"""Opens a snapshot of the store, read-only."""

CHUNK = 500
"""Rows of one snapshot: an engine that runs must be able to cut its WAL."""

BATCH = 200
"""Deliveries of one transaction, at most: those between two moments at which something is due."""

LEAST_WARM_UP = timedelta(days=1)

PAIRED_WITHIN = timedelta(minutes=10)
"""A run that is gone and one that is new, of one playbook and the same values, are one that is different."""

_GOES_ON = (
    *(EventType.PLAN_MADE, EventType.PLAN_REFUSED, EventType.TURN_WAITED, EventType.VERDICT_GIVEN),
    *(EventType.STEP_SKIPPED, EventType.ATTEMPT_STARTED, EventType.ATTEMPT_FINISHED),
    *(EventType.VERIFICATION_LOOKED, EventType.VERIFICATION_FINISHED, EventType.RUNG_CLIMBED, EventType.APPROVAL_ASKED),
    *(EventType.LEASE_OPENED, EventType.LEASE_RELEASED, EventType.LEASE_KEPT, EventType.LEASE_CLOSED),
    *(EventType.UNDO_STARTED, EventType.UNDO_FINISHED, EventType.RUN_FINISHED),
)
"""What runs do."""

_DID: Mapping[Deed, str] = {
    Deed.PAUSES: "pause",
    Deed.RESUMES: "resume",
    Deed.APPROVES: "approve",
    Deed.DENIES: "deny",
    Deed.CANCELS: "cancel",
    Deed.SETTLES: "settle",
    Deed.UNDOES: "undo",
    Deed.RESETS: "breaker reset",
}
"""What people do, and what it is called; beside it they run playbooks by hand, which is told by the plan."""

_BESIDE = (
    EventType.EPISODE_ENDED, EventType.ENGINE_STARTED, EventType.ENGINE_STOPPED, EventType.PLAYBOOKS_LOADED,
    EventType.DELIVERY_REJECTED, EventType.BREAKER_TRIPPED,
)  # fmt: skip

KINDS = ("same", *(kind.value for kind in Differs))

CANNOT_KNOW = (
    "what the world would have answered: it answers as the log has it, and friendly where nobody had asked",
    "what an act that was not done, or is not done now, would have changed: the alerts are those that came",
    "how long acts take: here they take no time, so that who waits for another's act waits less",
    "what is in no log: pause files, and what settings and this program were then; both are those of now",
)
"""For people: said with every replay."""

_ENDED_BY_ITSELF = ("absent", "expired")
"""Ends of episodes that no delivery says."""


class Engine(DrivenEngine, Protocol):
    """The engine, as far as a replay needs it."""

    def begin_again(self, firing: Sequence[Episode], able: Mapping[str, tuple[str, datetime]]) -> None: ...
    def take_again(self, deliveries: Sequence[StoredDelivery], move: Callable[[datetime], None]) -> int: ...
    def end_again(self, label_key: str, reason: str, at: datetime) -> None: ...
    def log_of(self, run_id: str) -> list[Event]: ...
    def run_by_hand(
        self, playbook: str, labels: Mapping[str, str], annotations: Mapping[str, str], actor: str
    ) -> dict[str, Any]: ...


Build = Callable[[Settings, Clients, StoryClock, Loaded, Hindsight], Engine]
"""An engine on these clients, this clock and this set, told what others said; not yet prepared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to be replayed.

    Attributes:
        since, until: runs that begin in it are compared; aware UTC.
        settings: of the engine whose store it is.
        loaded: playbooks and policies, without problems.
        folder: an empty one, for the scratch store.
        on_progress: is told how many of how many deliveries were decided.
    """

    since: datetime
    until: datetime
    settings: Settings
    loaded: Loaded
    folder: Path
    on_progress: Callable[[int, int], None] = lambda _done, _all: None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Again:
    """Something beside deliveries that happens again.

    Attributes:
        down_from: of a start: since when the engine was away.
    """

    at: datetime
    seq: int
    event: Event
    down_from: datetime | None = None


@dataclass(slots=True, kw_only=True)
class _Log:
    """What was recorded of a window.

    Attributes:
        run_ids: of the runs that began in it.
        again: what happens again, in order.
        notes: what a reader has to know.
    """

    run_ids: dict[str, None] = field(default_factory=dict)
    again: list[_Again] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    n_bad: int = 0


def replay(read: Read, wanted: Wanted, build: Build) -> dict[str, Any]:
    """Decide anew, and compare with what happened.

    Args:
        read: opens snapshots of the store.
        build: makes engines.

    Returns:
        As ``remediator replay --json`` prints it: ``runs`` (counts), ``by_playbook``, ``differences`` (each with
        ``kind``, ``what`` and ``rests_on``), ``people``, ``assumed``, ``cannot_know``, ``notes``; in a fixed order, so
        that two can be compared.

    Raises:
        StoreError: the store cannot be read.
        ReplayError: the engine met an error that nobody foresaw.
    """
    begins, notes = _begin(read, wanted)
    past = Past()
    log = _recorded(read, wanted, begins, past)
    log.notes[:0] = notes
    story = _Story(read, wanted, build, log, past, begins)
    story.play()
    was = _decisions(((run_id, _log_of(read, run_id, wanted.until)) for run_id in log.run_ids), wanted.since)
    would_be = _decisions(story.runs(), wanted.since)
    story.close()
    return _answer(wanted, begins, log, story, past, was, would_be)


# -- what was recorded -------------------------------------------------------------------------------------------------


def warm_up(playbooks: PlaybookSet, settings: Settings) -> timedelta:
    """So long before its window a replay begins: the longest time over which one act or alert bears on another."""
    windows = [LEAST_WARM_UP, settings.expire_after]
    for case in (case for playbook in playbooks.playbooks for case in playbook.cases):
        guard = case.guard
        windows += [case.hold, guard.cooldown, guard.tell_after]
        windows += [limit.per for limit in (guard.max_runs, guard.max_targets) if limit is not None]
        windows += [case.ladder] if case.ladder is not None else []
        windows += [case.approval.expires] if case.approval is not None else []
        windows += [step.undo.at_most for step in case.steps if step.undo is not None]
    windows += [limit.per for limit in playbooks.policy.max_disruptive_acts]
    windows += [breaker.within for breaker in playbooks.policy.breakers]
    return max(windows) + timedelta(hours=1)


def _begin(read: Read, wanted: Wanted) -> tuple[datetime, list[str]]:
    """Where the replay begins, and what is to be said of it."""
    with read() as conn:
        first = recorded.first_delivery_at(conn)
        log_begins = recorded.events(conn, list(EventType), _EVER, wanted.until, 0, 1)
    begins = wanted.since - warm_up(wanted.loaded.playbook_set, wanted.settings)
    if first is None or first >= wanted.until:
        return begins, ["no delivery is stored of this time: there is nothing to decide"]
    notes = []
    if first > wanted.since:
        notes.append(f"the first stored delivery is of {_moment(first)}: nothing is known of the time before it")
    elif first > begins:
        notes.append(f"the warm-up begins with the first stored delivery, {_moment(first)}")
    return max(begins, min(first, log_begins[0].event.at if log_begins else first)), notes


_EVER = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def _recorded(read: Read, wanted: Wanted, begins: datetime, past: Past) -> _Log:
    log = _Log()
    with read() as conn:
        gaps = recorded.gaps(conn)
        paused = recorded.last_event(conn, [EventType.PAUSED, EventType.RESUMED], begins)
        in_force = recorded.last_event(conn, [EventType.PLAYBOOKS_LOADED], begins)
        tripped = recorded.last_event(conn, [EventType.BREAKER_TRIPPED, EventType.BREAKER_RESET], begins)
    if paused is not None and paused.type is EventType.PAUSED:
        log.again.append(_Again(at=begins, seq=0, event=paused))
    if tripped is not None and tripped.type is EventType.BREAKER_TRIPPED:
        name = tripped.data["breaker"]
        log.notes.append(f"the breaker {name} had tripped before the replay begins: here it has not")
    ends: list[tuple[int, Event]] = []
    last_at = begins
    for one in _all_events(read, begins, wanted.until):
        event = one.event
        past.take(event)
        match event.type:
            case EventType.ENGINE_STARTED if event.at > begins:
                starts = (start for start, end in gaps if abs(end - event.at) < timedelta(seconds=2))
                down_from = max(next(starts, last_at), last_at)
                log.again.append(_Again(at=event.at, seq=one.seq, event=event, down_from=down_from))
            case EventType.EPISODE_ENDED if event.data["reason"] in _ENDED_BY_ITSELF:
                ends.append((one.seq, event))
            case EventType.DELIVERY_REJECTED:
                log.n_bad += event.at >= wanted.since
            case EventType.PLAYBOOKS_LOADED:
                if in_force is not None and (changed := _changed(in_force.data, event.data)):
                    log.notes.append(
                        f"at {_moment(event.at)} the engine went on with others ({', '.join(changed)}): what it did"
                        " before may differ by that alone"
                    )
                in_force = event
            case EventType.PLAN_MADE | EventType.PLAN_REFUSED if event.n == 1:
                log.run_ids[event.run_id] = None
                if _plan(event).is_by_hand:
                    log.again.append(_Again(at=event.at, seq=one.seq, event=event))
            case kind if kind in DEEDS:
                log.again.append(_Again(at=event.at, seq=one.seq, event=event))
            case _:
                pass
        last_at = event.at
    past.settle()
    with read() as conn:
        for seq, event in ends:
            key = recorded.label_key_of(conn, event.episode_id)
            ended = Event(type=event.type, at=event.at, data={"reason": event.data["reason"], "label_key": key})
            log.again.append(_Again(at=event.at, seq=seq, event=ended))
    log.again.sort(key=lambda again: (again.at, again.seq))
    return log


def _all_events(read: Read, begins: datetime, until: datetime) -> Iterator[RecordedEvent]:
    after = 0
    while True:
        with read() as conn:
            found = recorded.events(conn, [*_GOES_ON, *DEEDS, *_BESIDE], begins, until, after, CHUNK)
        if not found:
            return
        yield from found
        after = found[-1].seq


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Names of the playbooks that came, went or were edited, and ``policy`` where that was."""
    had, has = before["playbooks"], after["playbooks"]
    names = [name for name in sorted({*had, *has}) if had.get(name) != has.get(name)]
    rest = ("policy", "protect", "max_concurrent_runs", "mode")
    return [*names, *(["policy"] if any(before[key] != after[key] for key in rest) else [])]


def _log_of(read: Read, run_id: str, until: datetime) -> list[Event]:
    with read() as conn:
        return [one.event for one in log_of_run(conn, run_id) if one.event.at < until]


def _plan(event: Event) -> Any:
    plan = event.data["plan"]
    assert isinstance(plan, Mapping)
    return unpack_plan(plan)


# -- the story ---------------------------------------------------------------------------------------------------------


class _Story:
    """One replay under way.

    Attributes:
        people: what people did, and what came of it here.
        by_hand: recorded run by hand → the same run here.
        n_taken, n_warm_up: deliveries decided, and those of them before the window.
    """

    def __init__(self, read: Read, wanted: Wanted, build: Build, log: _Log, past: Past, begins: datetime) -> None:
        self._read = read
        self._wanted = wanted
        self._build = build
        self._log = log
        self._past = past
        self._begins = begins
        self._clock = StoryClock(begins)
        self._settings = wanted.settings.model_copy(
            update={
                "store_url": f"sqlite:///{wanted.folder}/replay.db",
                "pause_file": None,
                # What expired then expires again at its time, and nothing else does.
                "expire_after": timedelta(days=36_500),
            }
        )
        self._world = RecordedWorld(self._clock.now, past, wanted.settings)
        self._engine = self._make()
        self._engine.begin_again(*self._then())
        self._engine.prepare()
        self._due: datetime | None = None
        self.people: list[dict[str, Any]] = []
        self.by_hand: dict[str, str] = {}
        self.n_taken = self.n_warm_up = 0

    def play(self) -> None:
        """From the beginning to the end of the window."""
        with self._read() as conn:
            n_all = recorded.n_deliveries(conn, self._begins, self._wanted.until)
        again = list(reversed(self._log.again))
        waiting: list[StoredDelivery] = []
        """Of the newest chunk, the oldest last."""
        last_id = 0
        self._work()
        while True:
            if not waiting:
                waiting = self._next_chunk(last_id)
                last_id = waiting[0].id if waiting else last_id
            if again and (not waiting or self._comes_first(again[-1], waiting[-1])):
                self._happen(again.pop())
                self._work()
            elif waiting:
                self._go_to(waiting[-1].received_at)
                self._take(waiting, again[-1].at if again else None)
                self._wanted.on_progress(self.n_taken, n_all)
            else:
                break
        self._go_to(self._wanted.until - timedelta(microseconds=1))
        if self._engine.n_unexpected():
            raise ReplayError("the engine met an error that nobody foresaw while it replayed: see the log (--log)")

    def runs(self) -> Iterator[tuple[str, list[Event]]]:
        """Each run with its events, by the id that it was recorded with where there is one."""
        same = {here: there for there, here in self.by_hand.items()}
        for row in self._engine.runs(_ALL, "all"):
            run_id = str(row["run_id"])
            yield same.get(run_id, run_id), self._engine.log_of(run_id)

    def close(self) -> None:
        """End the engine."""
        self._engine.halt()

    # -- time

    def _make(self) -> Engine:
        then = hindsight(self._world, self._past, self._wanted.settings)
        return self._build(self._settings, self._world.clients(), self._clock, self._wanted.loaded, then)

    def _then(self) -> tuple[list[Episode], dict[str, tuple[str, datetime]]]:
        """What fired when the replay begins, and since when each playbook could act: one that is new, all the time.

        What fires already is adopted, as at any start: shown, and not acted on until it fires anew.
        """
        with self._read() as conn:
            firing, able = subjects.open_then(conn, self._begins), runs.able_since(conn)
        playbooks = self._wanted.loaded.playbook_set.playbooks
        ever = {playbook.name: (playbook.able_key, _EVER) for playbook in playbooks}
        return firing, {name: able[name] if able.get(name, ("",))[0] == new[0] else new for name, new in ever.items()}

    def _work(self) -> None:
        self._due = self._engine.work()

    def _move(self, at: datetime) -> None:
        self._clock.moment = max(self._clock.moment, at)
        self._engine.note_alive()

    def _go_to(self, moment: datetime) -> None:
        """Let the engine do all that is due until a moment, and stand there."""
        while self._due is not None and self._due <= moment:
            self._move(max(self._due, self._clock.moment + _TICK))
            self._work()
        self._move(moment)

    # -- deliveries

    def _next_chunk(self, after: int) -> list[StoredDelivery]:
        with self._read() as conn:
            found = recorded.deliveries(conn, self._begins, self._wanted.until, after, CHUNK)
        return found[::-1]

    def _take(self, waiting: list[StoredDelivery], before: datetime | None) -> None:
        """Take the next deliveries, up to the next moment at which something else comes."""
        batch = [waiting[-1]]
        for stored in reversed(waiting[-BATCH:-1]):
            moment = stored.received_at
            if (before is not None and moment >= before) or (self._due is not None and moment >= self._due):
                break
            batch.append(stored)
        n_taken = self._engine.take_again(batch, self._move)
        del waiting[-n_taken:]
        self.n_taken += n_taken
        self.n_warm_up += sum(stored.received_at < self._wanted.since for stored in batch[:n_taken])
        self._work()

    def _comes_first(self, again: _Again, stored: StoredDelivery) -> bool:
        if again.at != stored.received_at:
            return again.at < stored.received_at
        with self._read() as conn:
            return again.seq < recorded.place_in_log(conn, stored)

    # -- what else happens

    def _happen(self, again: _Again) -> None:
        if again.down_from is not None:
            self._go_to(again.down_from)
            self._engine.halt()
            self._clock.moment = max(self._clock.moment, again.at)
            self._engine = self._make()
            self._engine.prepare()
            return
        event = again.event
        if event.type is EventType.EPISODE_ENDED:
            self._go_to(again.at - _TICK)  # what is due at the same moment comes after it, as it does in an engine
            self._move(again.at)
            self._engine.end_again(str(event.data["label_key"]), str(event.data["reason"]), event.at)
            return
        self._go_to(again.at)
        problem = ""
        try:
            self._act(event)
        except RequestError as error:
            problem = str(error)
        self.people.append(
            {
                "at": utc_text(event.at),
                "by": event.actor,
                "did": _DID[DEEDS[event.type]] if event.type in DEEDS else "run by hand",
                "run_id": event.run_id,
                "means": not problem,
                "why": problem,
            }
        )

    def _act(self, event: Event) -> None:
        """What a person did, once more.

        Raises:
            RequestError: it means nothing here.
        """
        engine, actor, data = self._engine, event.actor, event.data
        if event.type in DEEDS:
            do(
                engine,
                DEEDS[event.type],
                actor,
                str(data.get("reason", "")),
                run_id=self.by_hand.get(event.run_id, event.run_id),
                step=str(data.get("step", "")).partition(".")[2],
                breaker=str(data.get("breaker", "")),
                has_happened=bool(data.get("happened")),
            )
            return
        plan = _plan(event)
        annotations = {name: str(text) for name, text in plan.context.get("annotations", {}).items()}
        answer = engine.run_by_hand(plan.playbook, plan.labels, annotations, actor)
        self.by_hand[event.run_id] = str(answer["run_id"])
        self._past.same_as[str(answer["run_id"])] = event.run_id


_TICK = timedelta(milliseconds=1)
_ALL = 10_000_000


# -- comparing ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """A run as it was and as it would be; one of them may be missing."""

    was: Decision | None = None
    would_be: Decision | None = None
    changes: tuple[Change, ...] = ()

    @property
    def either(self) -> Decision:
        one = self.was or self.would_be
        assert one is not None
        return one

    @property
    def kind(self) -> Differs | None:
        if self.was is None:
            return Differs.NEW
        if self.would_be is None:
            return Differs.GONE
        return Differs.DIFFERENT if self.changes else None


def _decisions(runs: Iterable[tuple[str, Sequence[Event]]], since: datetime) -> dict[str, Decision]:
    return {run_id: decision(events) for run_id, events in runs if events[0].at >= since}


def _pairs(was: Mapping[str, Decision], would_be: Mapping[str, Decision]) -> list[_Pair]:
    pairs = [
        _Pair(was=one, would_be=would_be[run_id], changes=tuple(differences(one, would_be[run_id])))
        for run_id, one in was.items()
        if run_id in would_be
    ]
    left: dict[tuple[str, str], list[Decision]] = defaultdict(list)
    for run_id, one in would_be.items():
        if run_id not in was:
            left[_values(one)].append(one)
    for run_id, one in was.items():
        if run_id in would_be:
            continue
        near = [other for other in left[_values(one)] if abs(other.at - one.at) <= PAIRED_WITHIN]
        if not near:
            pairs.append(_Pair(was=one))
            continue
        other = min(near, key=lambda each: abs(each.at - one.at))
        left[_values(one)].remove(other)
        case = [Change(what="case", was=one.case, would_be=other.case)] if one.case != other.case else []
        began = [Change(what="run", was=one.run_id, would_be=other.run_id)] if not case else []
        pairs.append(_Pair(was=one, would_be=other, changes=(*case, *began, *differences(one, other))))
    pairs += [_Pair(would_be=one) for one in chain.from_iterable(left.values())]
    return sorted(pairs, key=lambda pair: (pair.either.at, pair.either.playbook, pair.either.run_id))


def _values(one: Decision) -> tuple[str, str]:
    return one.playbook, repr(sorted(one.per.items()))


def _answer(
    wanted: Wanted,
    begins: datetime,
    log: _Log,
    story: _Story,
    past: Past,
    was: Mapping[str, Decision],
    would_be: Mapping[str, Decision],
) -> dict[str, Any]:
    pairs = _pairs(was, would_be)
    differ = [_pair_dict(pair, past, wanted.settings.public_url) for pair in pairs if pair.kind is not None]
    counts = Counter(pair.kind.value if pair.kind is not None else "same" for pair in pairs)
    return {
        "since": utc_text(wanted.since),
        "until": utc_text(wanted.until),
        "begins": utc_text(begins),
        "playbooks": sorted(playbook.name for playbook in wanted.loaded.playbook_set.playbooks),
        "deliveries": {
            "decided": story.n_taken - story.n_warm_up,
            "warm_up": story.n_warm_up,
            "refused": log.n_bad,
        },
        "runs": {
            "recorded": len(was),
            "replayed": len(would_be),
            **{kind: counts[kind] for kind in KINDS},
        },
        "by_playbook": _by_playbook(pairs),
        "differences": differ,
        "people": story.people,
        "assumed": _assumed(past),
        "cannot_know": list(CANNOT_KNOW),
        "notes": log.notes,
    }


def _by_playbook(pairs: Iterable[_Pair]) -> list[dict[str, Any]]:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for pair in pairs:
        counts[pair.either.playbook][pair.kind.value if pair.kind is not None else "same"] += 1
    return [{"playbook": name, **{kind: of[kind] for kind in KINDS}} for name, of in sorted(counts.items())]


def _pair_dict(pair: _Pair, past: Past, public_url: str) -> dict[str, Any]:
    one = pair.either
    link, base = one.run_id if pair.was is not None else one.fingerprint, public_url.rstrip("/")
    return {
        "kind": pair.kind.value if pair.kind is not None else "",
        "playbook": one.playbook,
        "case": one.case,
        "per": dict(one.per),
        "at": utc_text(one.at),
        "targets": sorted({*(pair.was.targets if pair.was else ()), *(pair.would_be.targets if pair.would_be else ())}),
        "run_id": pair.was.run_id if pair.was is not None else "",
        "incident": f"remediator incident {link}",
        "url": f"{base}/api/v1/runs/{pair.was.run_id}" if base and pair.was is not None else "",
        "was": None if pair.was is None else _decision_dict(pair.was),
        "would_be": None if pair.would_be is None else _decision_dict(pair.would_be),
        "what": [{"what": each.what, "was": each.was, "would_be": each.would_be} for each in pair.changes],
        "rests_on": _rests_on(past, pair.would_be.run_id) if pair.would_be is not None else [],
    }


def _decision_dict(one: Decision) -> dict[str, Any]:
    return {
        "acts": list(one.acts),
        "acts_after_s": None if one.acts_after is None else round(one.acts_after.total_seconds()),
        "asks": list(one.asks),
        "tells": list(one.tells),
        "waits": sorted(one.waits),
        "rungs": list(one.rungs),
        "undoes": list(one.undoes),
        "ends": one.end,
        "why": one.why,
    }


def _rests_on(past: Past, run_id: str) -> list[str]:
    """Kinds of what nobody knows that a run rests on."""
    return sorted(kind.value for kind, runs in past.assumed.items() if runs[run_id])


def _assumed(past: Past) -> list[dict[str, Any]]:
    return [
        {
            "kind": kind.value,
            "means": MEANS[kind],
            "times": past.assumed[kind].total(),
            "runs": sorted(run_id for run_id, n_times in past.assumed[kind].items() if run_id and n_times),
        }
        for kind in Assumed
        if kind in past.assumed
    ]


def _moment(at: datetime) -> str:
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")
