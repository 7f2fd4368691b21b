"""What Alertmanager delivered of some alerts, as the words of a story.

Takes → gives: deliveries as they were decoded, and which of them began an episode → ``StoryEvent``s of ``fires``,
``repeats`` and ``resolves``. Most repeats say nothing: those that do not matter are left out, and counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from remediator.core.event import Event, EventType
from remediator.core.scenario import Says, ScenarioAlert, StoryEvent, Word

SECOND = timedelta(seconds=1)

PAIR = timedelta(seconds=30)
"""The Alertmanagers of a pair deliver the same within so long: 15 s apart unless told otherwise."""

DECIDED = frozenset({EventType.VERDICT_GIVEN, EventType.ATTEMPT_STARTED, EventType.RUN_FINISHED})
"""What a delivery of the same second came too late for. A story's own events come first in each second."""

ASKS = frozenset({EventType.VERDICT_GIVEN, EventType.TURN_WAITED, EventType.RUNG_CLIMBED, EventType.ENGINE_STARTED})
"""Where it may matter when an alert was last heard of."""

WAITS = frozenset({EventType.TURN_WAITED, EventType.ENGINE_STARTED})
"""Where it may matter when it is heard of next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """One delivery, as far as it is about the alerts of a record.

    Attributes:
        id: its row in the inbox.
        members: label key → whether it fires, in the order in which they stood in it: the first one opens the subject.
        n_truncated: how many more alerts its group had.
    """

    id: int
    at: datetime
    members: Mapping[str, bool]
    n_truncated: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """Deliveries as a story has them.

    Attributes:
        ends_at: what still fired then is resolved by the story; None where all had ended.
        notes: what is told otherwise than it was.
    """

    story: tuple[StoryEvent, ...]
    ends_at: timedelta | None
    notes: tuple[str, ...]


def name_alerts(alerts: Mapping[str, ScenarioAlert]) -> dict[str, str]:
    """What a story calls each of them: by its alertname, numbered where several have the same."""
    found: dict[str, str] = {}
    taken: dict[str, int] = {}
    for key, alert in alerts.items():
        name = _snake(alert.labels.get("alertname", "")) or "alert"
        taken[name] = taken.get(name, 0) + 1
        found[key] = name if taken[name] == 1 else f"{name}_{taken[name]}"
    return found


def _snake(text: str) -> str:
    """``GPUMemoryLeakSlope`` → ``gpu_memory_leak_slope``; "" for what gives no name."""
    parted = re.sub(r"([A-Z]+)([A-Z][a-z])|([a-z0-9])([A-Z])", r"\1\3_\2\4", text)
    return re.sub(r"[^a-z0-9]+", "_", parted.lower()).strip("_")[:60]


@dataclass(slots=True)
class _Said:
    """One word before it is folded."""

    moment: datetime
    says: Says


@dataclass(slots=True)
class _Known:
    """How the alerts stand while the deliveries are read.

    Attributes:
        open: alerts that fire.
        ended: alert → when the story has it resolved.
    """

    open: set[str] = field(default_factory=set)
    ended: dict[str, datetime] = field(default_factory=dict)


def tell_words(
    heard: Sequence[Heard],
    events: Sequence[Event],
    episodes: Mapping[str, str],
    names: Mapping[str, str],
    begins: datetime,
    until: datetime,
    longest: timedelta,
) -> Words:
    """The deliveries as a story.

    Args:
        events: the record's; ``episode_opened`` says which delivery began what, others where a repeat matters.
        names: label key → what the story calls the alert.
        until: when it was recorded.
        longest: between two words of an alert, so that the story does not have it expire.
    """
    opened = {
        (event.delivery_id, episodes[event.episode_id])
        for event in events
        if event.type is EventType.EPISODE_OPENED and event.episode_id in episodes
    }
    told: list[_Said] = []
    known = _Known()
    notes: list[str] = []
    unheard = [event for event in events if _is_unheard_end(event, episodes)]
    for one in _in_order(heard, events):
        while unheard and unheard[0].at <= one.at:
            told += _ended_unheard(unheard.pop(0), episodes, names, known, notes)
        told += _of_delivery(one, opened, names, known, told[-1] if told else None)
    for event in unheard:
        told += _ended_unheard(event, episodes, names, known, notes)
    kept, n_left_out = _fold(told, events, longest)
    if n_left_out:
        notes.append(
            f"{n_left_out} of {n_left_out + sum(one.says.word is Word.REPEATS for one in kept)} repeats are left out:"
            " they changed nothing."
        )
    story = [StoryEvent(at=_second(one.moment) - begins, line=0, what=one.says) for one in kept]
    ends_at = None
    if known.open:
        ends_at = max(_second(until) - begins, story[-1].at + SECOND)
        last = Says(word=Word.RESOLVES, alerts=tuple(name for name in names.values() if name in known.open))
        story.append(StoryEvent(at=ends_at, line=0, what=last))
        notes.append("When it was recorded, it had not been resolved: the story ends with a resolve that never came.")
    return Words(story=tuple(story), ends_at=ends_at, notes=tuple(notes))


def _in_order(heard: Sequence[Heard], events: Sequence[Event]) -> Iterable[Heard]:
    """The deliveries, each in the next second where something had been decided in its own before it came."""
    came: dict[int, int] = {}
    decided: dict[datetime, list[tuple[int, datetime]]] = {}
    for place, event in enumerate(events):
        came.setdefault(event.delivery_id, place)
        if event.type in DECIDED:
            decided.setdefault(_second(event.at), []).append((place, event.at))
    for one in heard:
        second = _second(one.at)
        is_late = any(place < came[one.id] if one.id in came else at < one.at for place, at in decided.get(second, ()))
        yield replace(one, at=second + SECOND) if is_late else one


def _second(moment: datetime) -> datetime:
    return moment.replace(microsecond=0)


def _is_unheard_end(event: Event, episodes: Mapping[str, str]) -> bool:
    """An episode that ended without a delivery: no Alertmanager had it any more, or nothing was heard of it."""
    return event.type is EventType.EPISODE_ENDED and event.episode_id in episodes and event.data["reason"] != "resolved"


def _ended_unheard(
    event: Event, episodes: Mapping[str, str], names: Mapping[str, str], known: _Known, notes: list[str]
) -> Iterable[_Said]:
    name = names[episodes[event.episode_id]]
    if name not in known.open:
        return
    known.open.discard(name)
    known.ended[name] = _second(event.at)
    if event.data["reason"] == "absent":
        notes.append(f"{name} was resolved by an Alertmanager's answer and not by a delivery; the story delivers it.")
        yield _Said(event.at, Says(word=Word.RESOLVES, alerts=(name,)))


def _of_delivery(
    heard: Heard, opened: set[tuple[int, str]], names: Mapping[str, str], known: _Known, before: _Said | None
) -> Iterable[_Said]:
    """What one delivery says; a second one of a pair is a copy of the one before."""
    fires: list[str] = []
    repeats: list[str] = []
    resolves: list[str] = []
    late: list[str] = []
    for key, is_firing in heard.members.items():
        name = names[key]
        if is_firing and (heard.id, key) in opened:
            fires.append(name)
        elif is_firing:
            (repeats if name in known.open else late).append(name)
        else:
            resolves.append(name)
    is_copy = (
        before is not None
        and heard.at - before.moment <= PAIR
        and not fires
        and not late
        and before.says.alerts == tuple(resolves if before.says.word is Word.RESOLVES else repeats)
        and (before.says.word is Word.RESOLVES) is bool(resolves)
        and not (resolves and repeats)
    )
    if is_copy and before is not None:
        before.says = replace(before.says, copies=before.says.copies + 1)
        return
    resolves = [name for name in resolves if name in known.open]
    known.open |= {*fires}
    known.open -= {*resolves}
    for name in resolves:
        known.ended[name] = _second(heard.at)
    for word, alerts in ((Word.FIRES, fires), (Word.REPEATS, repeats), (Word.RESOLVES, resolves)):
        if alerts:
            yield _Said(heard.at, Says(word=word, alerts=tuple(alerts), truncated=heard.n_truncated))
    for name in late:
        if name in known.ended:  # under way since before it ended
            past = _second(heard.at) - known.ended[name] + SECOND
            yield _Said(heard.at, Says(word=Word.REPEATS, alerts=(name,), late=past))


def _fold(told: Sequence[_Said], events: Sequence[Event], longest: timedelta) -> tuple[list[_Said], int]:
    """Without the repeats that changed nothing, and how many these are.

    The first and the last are kept, so that one sees how long it was heard of; the one before each moment at which it
    may have counted when an alert was last heard of, and what a run may have waited for; and one before it would be
    ``longest`` silent.
    """
    places = [place for place, one in enumerate(told) if one.says.word is Word.REPEATS]
    plain = [place for place in places if not told[place].says.late and not told[place].says.truncated]
    kept = {*places} - {*plain}
    if plain:
        kept |= {plain[0], plain[-1]}
    for event in events:
        if event.type in ASKS:
            kept |= {*[place for place in plain if told[place].moment <= event.at][-1:]}
        if event.type in WAITS:
            kept |= {*[place for place in plain if told[place].moment > event.at][:1]}
    heard_at = told[0].moment
    for n, place in enumerate(plain):
        ahead = told[plain[n + 1] if n + 1 < len(plain) else -1].moment
        if place in kept or ahead - heard_at > longest:
            kept.add(place)
            heard_at = told[place].moment
    left = [one for place, one in enumerate(told) if one.says.word is not Word.REPEATS or place in kept]
    return left, len(told) - len(left)
