"""Incidents: what people ask for afterwards. A query over the store, read-only → one timeline of an episode.

An incident is no stored value: it is an episode, its deliveries and subjects, and all that their runs have in the log.
What is no event is worked out here when somebody asks: why no playbook matched (of the playbooks in force now), and why
nothing was done. A run by hand has no episode, and is an incident of its own; so is an alert that was never delivered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from remediator.core.event import EventType, RecordedEvent, utc_text
from remediator.core.incident import END_OF_EPISODE, Entry, ended_text, timeline
from remediator.core.match import explain
from remediator.core.move import waiting_text
from remediator.core.playbook import PlaybookSet
from remediator.core.run import Phase
from remediator.errors import RemediatorError
from remediator.store import Connection, audit, incidents
from remediator.store.incidents import DeliveryRow, EpisodeRow, SubjectRow

SHORTEST = 4
"""Characters of an id or a fingerprint that may stand for the whole."""

Playbooks = Callable[[], PlaybookSet]
"""Loads the playbooks in force; raises a ``RemediatorError`` when they cannot be loaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One incident that fits what was asked for.

    Attributes:
        episode: None for a run by hand, and for an alert that was never delivered.
        by_hand: the subject of a run by hand, else None.
        fingerprint: "" for a run by hand.
    """

    episode: EpisodeRow | None = None
    by_hand: SubjectRow | None = None
    fingerprint: str = ""

    @property
    def opened_at(self) -> datetime | None:
        """When it began; None for what was never delivered."""
        if self.episode is not None:
            return self.episode.opened_at
        return self.by_hand.opened_at if self.by_hand is not None else None

    @property
    def alert(self) -> str:
        """The same for all episodes of one alert."""
        if self.episode is not None:
            return self.episode.label_key
        return self.by_hand.id if self.by_hand is not None else self.fingerprint


def find(conn: Connection, which: str | Mapping[str, str], since: datetime | None, limit: int) -> list[Found]:
    """The incidents that fit, the newest first.

    Args:
        which: the beginning of a fingerprint, a run's or an episode's id; or labels that the alert has.
        since: only what was open then, or began later; None = all.
    """
    if isinstance(which, Mapping):
        found = [_found(row) for row in incidents.episodes_with_labels(conn, which, since, limit)]
        return sorted(found, key=_begun, reverse=True)
    of_runs = incidents.subjects_of_runs(conn, which, limit)
    rows = [
        *incidents.episodes_of_id(conn, which, since, limit),
        *incidents.episodes_of_fingerprint(conn, which, since, limit),
        *incidents.episodes_of_ids(conn, [subject.opened_by_episode for subject in of_runs]),
    ]
    by_id = {row.id: _found(row) for row in rows}
    by_id |= {subject.id: Found(by_hand=subject) for subject in of_runs if subject.is_by_hand}
    if not by_id and incidents.undelivered(conn, which, 1):
        return [Found(fingerprint=which)]
    return sorted(by_id.values(), key=_begun, reverse=True)[:limit]


def _found(row: EpisodeRow) -> Found:
    return Found(episode=row, fingerprint=row.fingerprint)


def _begun(found: Found) -> str:
    return utc_text(found.opened_at) if found.opened_at is not None else ""


def summary(found: Found) -> dict[str, Any]:
    """An incident as a list shows it."""
    episode, by_hand = found.episode, found.by_hand
    ended_at = episode.ended_at if episode is not None else by_hand.closed_at if by_hand is not None else None
    return {
        "episode_id": episode.id if episode is not None else "",
        "fingerprint": found.fingerprint,
        "run_id": by_hand.run_id if by_hand is not None else "",
        "labels": dict(episode.labels) if episode is not None else {},
        "per": dict(by_hand.per) if by_hand is not None else {},
        "opened_at": _begun(found),
        "ended_at": utc_text(ended_at) if ended_at is not None else "",
        "end_reason": episode.end_reason if episode is not None else "",
        "n_deliveries": episode.n_deliveries if episode is not None else 0,
    }


def describe(conn: Connection, found: Found, playbooks: Playbooks) -> dict[str, Any]:
    """All there is about one incident, as JSON.

    Args:
        playbooks: asked only where no playbook matched.

    Returns:
        ``summary`` and: ``annotations``; ``starts_at``, the alert's own; ``end``, how it ended or stands, in words;
        ``deliveries`` (``n``, ``first``, ``last``); ``subjects`` with their runs; ``has_acted``, since the alert began;
        ``nothing_done``, ``{"playbook", "why", "more"}`` for each reason why that is so; ``timeline``; ``events``,
        as in ``audit show --json``.
    """
    episode = found.episode
    subjects = _subjects(conn, found)
    recorded = _events(conn, found, subjects)
    sent = _deliveries(conn, episode, recorded)
    entries = [*(_delivery_entries(episode, sent) if episode is not None else ()), *timeline(recorded)]
    counts = incidents.n_episodes_of_subjects(conn, [subject.id for subject in subjects])
    details = _details(recorded)
    return {
        **summary(found),
        "annotations": dict(episode.annotations) if episode is not None else {},
        "starts_at": utc_text(episode.starts_at) if episode is not None else "",
        "end": _end(found),
        "deliveries": _deliveries_dict(episode, sent),
        "subjects": [_subject_dict(one, counts.get(one.id, 0), details) for one in subjects],
        "has_acted": any(one.has_acted for one in subjects if one.id not in _joined_late(episode, subjects, recorded)),
        "nothing_done": _nothing_done(found, subjects, recorded, details, playbooks),
        "timeline": [_entry_dict(entry) for entry in sorted(entries, key=lambda entry: entry.at)],
        "events": [audit.as_dict(one) for one in recorded],
    }


# -- what there is -----------------------------------------------------------------------------------------------------


def _subjects(conn: Connection, found: Found) -> list[SubjectRow]:
    if found.episode is not None:
        return incidents.subjects_of_episode(conn, found.episode.id)
    return [found.by_hand] if found.by_hand is not None else []


def _events(conn: Connection, found: Found, subjects: Sequence[SubjectRow]) -> list[RecordedEvent]:
    if found.episode is None and found.by_hand is None:
        return incidents.undelivered(conn, found.fingerprint, UNDELIVERED)
    episode_id = found.episode.id if found.episode is not None else ""
    run_ids = [subject.run_id for subject in subjects if subject.run_id]
    return incidents.events_about(conn, episode_id, [subject.id for subject in subjects], run_ids)


UNDELIVERED = 20
"""Events of an alert that was never delivered, at most: an Alertmanager that lists it for days is noted once each time
that it appears."""


def _deliveries(
    conn: Connection, episode: EpisodeRow | None, recorded: Sequence[RecordedEvent]
) -> Mapping[int, DeliveryRow]:
    wanted = {one.event.delivery_id for one in recorded if one.event.type is EventType.EPISODE_ENDED}
    if episode is not None:
        wanted |= {episode.first_delivery, episode.last_delivery}
    return incidents.deliveries(conn, sorted(wanted - {0}))


def _details(recorded: Sequence[RecordedEvent]) -> dict[str, str]:
    """Run → what its end says."""
    ends = (EventType.RUN_FINISHED, EventType.PLAN_REFUSED, EventType.RUN_SETTLED)
    return {one.event.run_id: str(one.event.data.get("detail", "")) for one in recorded if one.event.type in ends}


def _delivery_entries(episode: EpisodeRow, sent: Mapping[int, DeliveryRow]) -> list[Entry]:
    entries = []
    first, last = sent.get(episode.first_delivery), sent.get(episode.last_delivery)
    if first is not None:
        entries.append(Entry(at=first.received_at, text=f"delivery {first.id} came from {first.source}"))
    if last is not None and episode.n_deliveries > 1:
        text = f"delivery {last.id} from {last.source} was the last of {episode.n_deliveries} that said that it fires"
        entries.append(Entry(at=last.received_at, text=text))
    return entries


# -- as JSON -----------------------------------------------------------------------------------------------------------


def _end(found: Found) -> str:
    if found.episode is not None:
        if found.episode.ended_at is None:
            return "it fires"
        return END_OF_EPISODE.get(found.episode.end_reason, found.episode.end_reason)
    if found.by_hand is not None:
        return "a run by hand has no alert"
    return "it was never delivered here"


def _deliveries_dict(episode: EpisodeRow | None, sent: Mapping[int, DeliveryRow]) -> dict[str, Any] | None:
    if episode is None:
        return None
    first, last = sent.get(episode.first_delivery), sent.get(episode.last_delivery)
    return {"n": episode.n_deliveries, "first": _delivery_dict(first), "last": _delivery_dict(last)}


def _delivery_dict(row: DeliveryRow | None) -> dict[str, Any] | None:
    return None if row is None else {"id": row.id, "at": utc_text(row.received_at), "source": row.source}


def _subject_dict(subject: SubjectRow, n_alerts: int, details: Mapping[str, str]) -> dict[str, Any]:
    return {
        "subject_id": subject.id,
        "playbook": subject.playbook,
        "case": subject.case,
        "per": dict(subject.per),
        "opened_at": utc_text(subject.opened_at),
        "closed_at": utc_text(subject.closed_at) if subject.closed_at is not None else "",
        "close_reason": subject.close_reason,
        "is_adopted": subject.is_adopted,
        "is_by_hand": subject.is_by_hand,
        "n_alerts": n_alerts,
        "run_id": subject.run_id,
        "phase": subject.phase,
        "outcome": subject.outcome,
        "reason": subject.reason,
        "detail": details.get(subject.run_id, ""),
        "waits_for": list(subject.waits_for),
        "has_acted": subject.has_acted,
    }


def _entry_dict(entry: Entry) -> dict[str, Any]:
    return {
        "at": utc_text(entry.at),
        "text": entry.text,
        "more": list(entry.more),
        "tone": entry.tone.value,
        "playbook": entry.playbook,
        "run_id": entry.run_id,
        "actor": entry.actor,
        "seqs": list(entry.seqs),
    }


# -- why nothing was done ----------------------------------------------------------------------------------------------


def _nothing_done(
    found: Found,
    subjects: Sequence[SubjectRow],
    recorded: Sequence[RecordedEvent],
    details: Mapping[str, str],
    playbooks: Playbooks,
) -> list[dict[str, Any]]:
    """Each reason why nothing was done, () where a run did something."""
    done = {one.event.run_id for one in recorded if _is_done(one)}
    joined = _joined_late(found.episode, subjects, recorded)
    if any(subject.has_acted or subject.run_id in done for subject in subjects if subject.id not in joined):
        return []
    types = {one.event.type for one in recorded}
    reasons = [_left_alone(one) for one in recorded if one.event.type is EventType.ALERT_IGNORED]
    reasons += [_joined(one) if one.id in joined else _why_not(one, details) for one in subjects]
    if EventType.ALERT_UNMATCHED in types and found.episode is not None and not subjects:
        reasons += _unmatched(found.episode, playbooks)
    if found.episode is None and found.by_hand is None:
        why = "it was never delivered here: look at Alertmanager's log and routes; remediator run acts on it"
        reasons.append(_reason("", why))
    return reasons


def _reason(playbook: str, why: str, more: Sequence[str] = ()) -> dict[str, Any]:
    return {"playbook": playbook, "why": why, "more": list(more)}


def _is_done(recorded: RecordedEvent) -> bool:
    """A step of the playbook was carried out, a message to people among them."""
    event = recorded.event
    is_step = str(event.data.get("step", "")).startswith("steps.")
    return event.type is EventType.ATTEMPT_FINISHED and is_step and event.data.get("changed") is True


def _joined_late(
    episode: EpisodeRow | None, subjects: Sequence[SubjectRow], recorded: Sequence[RecordedEvent]
) -> frozenset[str]:
    """Subjects whose one run had ended when this alert, which is not the first of them, began to fire."""
    if episode is None:
        return frozenset()
    ends = {one.event.run_id: one.event.at for one in recorded if one.event.type is EventType.RUN_FINISHED}
    over = {run_id for run_id, at in ends.items() if at < episode.opened_at}
    return frozenset(one.id for one in subjects if one.run_id in over and one.opened_by_episode != episode.id)


def _joined(subject: SubjectRow) -> dict[str, Any]:
    how = ended_text(subject.outcome, subject.reason)
    why = f"another alert that it is about fires, and its one run for them had ended before this one began ({how})"
    return _reason(subject.playbook, why)


def _left_alone(recorded: RecordedEvent) -> dict[str, Any]:
    event = recorded.event
    return _reason(event.playbook, f"it leaves such alerts alone: {event.data.get('detail', '')}")


def _why_not(subject: SubjectRow, details: Mapping[str, str]) -> dict[str, Any]:
    if subject.is_adopted or not subject.run_id:
        why = "it fired before the playbook could act: left alone until it fires anew, or remediator run"
        return _reason(subject.playbook, why)
    if subject.outcome:
        detail = details.get(subject.run_id, "")
        return _reason(subject.playbook, ended_text(subject.outcome, subject.reason), [detail] if detail else [])
    waits = waiting_text(subject.waits_for)
    stands = {
        Phase.HOLDING.value: "it holds: it acts only if the alert still fires when its hold is over",
        Phase.WAITING.value: f"it waits for {waits}" if waits else "it waits for its turn",
        Phase.ASKING.value: "it asks people whether it may act, and nobody has answered",
    }
    return _reason(subject.playbook, stands.get(subject.phase, "it is at work"))


def _unmatched(episode: EpisodeRow, playbooks: Playbooks) -> list[dict[str, Any]]:
    """Why each of the playbooks in force now does not match."""
    try:
        known = playbooks().playbooks
    except RemediatorError as error:
        return [_reason("", "no playbook matched it; why cannot be said, the playbooks cannot be loaded", [str(error)])]
    if not known:
        return [_reason("", "no playbook is in force")]
    reasons = []
    for playbook in known:
        why = explain(episode.labels, playbook)
        now = "it matches now, and did not when the alert began: it acts when the alert fires anew"
        reasons.append(_reason(playbook.name, "it does not match", why) if why else _reason(playbook.name, now))
    return reasons
