"""What an incident left in the log, told as a story: the other way round than a playbook test is played.

Takes → gives: ``Record``, the events of some runs and what Alertmanager delivered of their alerts → ``Told``, the
alerts, the world and the story of a scenario, and what they cannot tell. ``recorded_words`` tells of deliveries,
``recorded_world`` of containers, numbers and failures, this of people and restarts, and puts them in order.

Must never: say that something happened that the log does not have. What is only guessed is in the notes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from remediator.core.event import Event, EventType
from remediator.core.recorded_words import Heard, name_alerts, tell_words
from remediator.core.recorded_world import Furnished, furnish
from remediator.core.run import Run, fold
from remediator.core.scenario import (
    Deed,
    Fails,
    Person,
    Restarts,
    Says,
    ScenarioAlert,
    StoryEvent,
    World,
)

SECOND = timedelta(seconds=1)

DEEDS: Mapping[EventType, Deed] = {
    EventType.PAUSED: Deed.PAUSES,
    EventType.RESUMED: Deed.RESUMES,
    EventType.APPROVAL_GIVEN: Deed.APPROVES,
    EventType.APPROVAL_DENIED: Deed.DENIES,
    EventType.CANCEL_REQUESTED: Deed.CANCELS,
    EventType.RUN_SETTLED: Deed.SETTLES,
    EventType.UNDO_REQUESTED: Deed.UNDOES,
    EventType.BREAKER_RESET: Deed.RESETS,
}
"""What people do, by the event that it leaves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What there is of some runs.

    Attributes:
        run_ids: the one that was asked for first; the others are told since it hangs on them.
        events: of these runs and of their alerts' episodes, and those of the whole engine in that time, by the log's
            order.
        heard: the deliveries that have these alerts, in the order in which they came.
        alerts: by label key, as they were when they began to fire.
        has_edited_annotations: one of them bore others another time.
        episodes: episode → label key of its alert.
        gaps: when the engine was away, oldest first.
        paused_by: who held all acting when it began, and why; "" when nobody did.
        until: when it was recorded: what is not over by then has no end in the log.
        expire_after: an alert of which nothing is heard for so long has expired.
    """

    run_ids: tuple[str, ...]
    events: tuple[Event, ...]
    heard: tuple[Heard, ...]
    alerts: Mapping[str, ScenarioAlert]
    episodes: Mapping[str, str]
    gaps: tuple[tuple[datetime, datetime], ...]
    paused_by: tuple[str, str]
    until: datetime
    expire_after: timedelta
    has_edited_annotations: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A record as a scenario.

    Attributes:
        begins: the first delivery's second.
        asks_alertmanager: an Alertmanager has to be asked for it to come out.
        until: what comes from then on had not happened when it was recorded.
        notes: what it cannot tell, or tells otherwise than it was, a sentence each.
    """

    begins: datetime
    alerts: Mapping[str, ScenarioAlert]
    world: World
    story: tuple[StoryEvent, ...]
    until: timedelta
    asks_alertmanager: bool = False
    notes: tuple[str, ...] = ()


def tell(record: Record) -> Told:
    """The record as a story. Raises nothing.

    Args:
        record: with at least one delivery.
    """
    begins = record.heard[0].at.replace(microsecond=0)
    names = name_alerts(record.alerts)
    runs = [fold([event for event in record.events if event.run_id == run_id]) for run_id in record.run_ids]
    words = tell_words(
        record.heard, record.events, record.episodes, names, begins, record.until, record.expire_after / 2
    )
    alert_of = {run.plan.run_id: names[key] for run in runs if (key := _key_of(run, record.alerts)) is not None}
    furnished = furnish(record.events, {run.plan.run_id: run for run in runs}, alert_of, record.gaps, begins)
    people = _people(record, runs, alert_of, begins)
    restarts = _restarts(record, begins, furnished)
    events = [*furnished.story, *restarts, *people, *words.story]
    last = max(record.until - begins, *(event.at for event in events)) + SECOND
    return Told(
        begins=begins,
        alerts={names[key]: replace(alert, name=names[key]) for key, alert in record.alerts.items()},
        world=furnished.world,
        story=tuple(_together(sorted(events, key=_rank))),
        asks_alertmanager=furnished.asks_alertmanager,
        until=words.ends_at or last,
        notes=(*words.notes, *furnished.notes, *_of_edits(record, runs)),
    )


def _key_of(run: Run, alerts: Mapping[str, ScenarioAlert]) -> str | None:
    return next((key for key, alert in alerts.items() if dict(alert.labels) == dict(run.plan.labels)), None)


def _rank(event: StoryEvent) -> tuple[timedelta, int]:
    """What stands before what of one moment: the world, then who acts in it, then who dies."""
    order = (type(None), World, Fails, Person, Says, Restarts)
    # What fires is active: that it is muted is said after that.
    is_muted = isinstance(event.what, World) and bool(event.what.alertmanager)
    return event.at, len(order) if is_muted else order.index(type(event.what))


def _together(events: Iterable[StoryEvent]) -> Iterable[StoryEvent]:
    """Numbers that are seen from a moment on stand beside what is delivered then, else beside what happens."""
    for at, group in groupby(events, key=lambda event: event.at):
        of_moment = list(group)
        sees = tuple(one for event in of_moment for one in event.sees)
        told = [event for event in of_moment if event.what is not None]
        beside = next((n for n, event in enumerate(told) if isinstance(event.what, Says)), 0)
        if not told:
            yield StoryEvent(at=at, line=0, sees=sees)
        for n, event in enumerate(told):
            yield replace(event, sees=sees if n == beside else ())


# -- people ------------------------------------------------------------------------------------------------------------


def _people(record: Record, runs: Sequence[Run], alert_of: Mapping[str, str], begins: datetime) -> list[StoryEvent]:
    by_id = {run.plan.run_id: run for run in runs}
    n_playbooks = len({run.plan.playbook for run in runs})
    n_alerts = len(set(alert_of.values()))
    found: list[StoryEvent] = []
    tripped: set[str] = set()
    done: set[tuple[Deed, str, datetime]] = set()
    if record.paused_by[0]:
        name, reason = record.paused_by
        found.append(StoryEvent(at=timedelta(0), line=0, what=Person(deed=Deed.PAUSES, name=name, reason=reason)))
    for event in record.events:
        if event.type is EventType.BREAKER_TRIPPED and event.data["run_id"] in by_id:
            tripped.add(str(event.data["breaker"]))
        deed = DEEDS.get(event.type)
        if deed is None or event.at < begins or (event.run_id and event.run_id not in by_id):
            continue
        if deed is Deed.RESETS and event.data["breaker"] not in tripped:
            continue  # another's
        if (deed, event.run_id, event.at) in done:  # one word of a person may be an event for each change
            continue
        done.add((deed, event.run_id, event.at))
        data: Mapping[str, Any] = event.data
        is_of_engine = deed in (Deed.PAUSES, Deed.RESUMES)
        # What is answered has to be there: the story's events come before the engine's of the same second.
        at = event.at.replace(microsecond=0) - begins + (timedelta(0) if is_of_engine else SECOND)
        run = by_id.get(event.run_id)
        person = Person(
            deed=deed,
            name=event.actor,
            reason=str(data.get("reason", "")),
            playbook=run.plan.playbook if run is not None and n_playbooks > 1 else "",
            alert=alert_of.get(event.run_id, "") if n_alerts > 1 else "",
            breaker=str(data.get("breaker", "")),
            has_happened=bool(data.get("happened", False)),
        )
        found.append(StoryEvent(at=at, line=0, what=person))
    return found


# -- restarts ----------------------------------------------------------------------------------------------------------


def _restarts(record: Record, begins: datetime, furnished: Furnished) -> list[StoryEvent]:
    """Each time the engine was away; but for those that were in the middle of an act, which ``furnish`` has told."""
    found = []
    for start, end in record.gaps:
        if end < begins or start > record.until or (start, end) in furnished.told_gaps:
            continue
        # It says only now and then that it is alive; what it did later shows that it still was.
        alive = [event.at for event in record.events if event.run_id and start < event.at < end]
        alive += [one.at for one in record.heard if start < one.at < end]
        start, end = max([start, *alive]).replace(microsecond=0), end.replace(microsecond=0)
        is_start = any(
            event.type is EventType.ENGINE_STARTED and abs(event.at - end) < 5 * SECOND for event in record.events
        )
        if start >= begins and (end - start >= SECOND or is_start):
            found.append(StoryEvent(at=start - begins, line=0, what=Restarts(down=end - start)))
    return found


def _of_edits(record: Record, runs: Sequence[Run]) -> Iterable[str]:
    """What was edited between two of the runs."""
    if record.has_edited_annotations:
        yield "An alert bore other annotations another time; the story has one set of them for all of its times."
    seen: dict[str, set[str]] = {}
    for run in runs:
        seen.setdefault(run.plan.playbook, set()).add(run.plan.playbook_sha256)
    for name in sorted(name for name, hashes in seen.items() if len(hashes) > 1):
        yield f"{name} was edited between these runs; all are played with one of them."
