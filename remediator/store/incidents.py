"""What there is about an episode, for people who ask what happened: always as many questions, however much there is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, RowMapping, func, or_, select, text, union

from remediator.core.event import EventType, RecordedEvent, utc_text, utc_time
from remediator.store.audit import recorded_event
from remediator.store.tables import audit, delivery, episode, run, subject, subject_episode


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeRow:
    """One episode, as people look for it.

    Attributes:
        labels, annotations: of the alert when it opened.
        n_deliveries: that said that it fires.
        first_delivery, last_delivery: of those; rows of the inbox.
        last_word_at: when it was last heard of, by a delivery or by Alertmanager's API.
        ended_at: None while it is open.
        end_reason: resolved, absent, expired; "" while it is open.
    """

    id: str
    label_key: str
    fingerprint: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    opened_at: datetime
    starts_at: datetime
    n_deliveries: int
    first_delivery: int
    last_delivery: int
    last_word_at: datetime
    ended_at: datetime | None
    end_reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectRow:
    """A subject, and the run that it has.

    Attributes:
        opened_by_episode: "" for one by hand.
        run_id: "" where it was adopted; then the fields after it are "" too.
        phase: as ``core.run.Phase``.
        waits_for: ``rule:reason`` each.
    """

    id: str
    playbook: str
    case: str
    per: Mapping[str, str]
    opened_at: datetime
    opened_by_episode: str
    is_adopted: bool
    is_by_hand: bool
    closed_at: datetime | None
    close_reason: str
    run_id: str
    phase: str
    outcome: str
    reason: str
    waits_for: tuple[str, ...]
    has_acted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryRow:
    """Where a delivery came from, and when."""

    id: int
    received_at: datetime
    source: str


# -- finding episodes --------------------------------------------------------------------------------------------------


def episodes_of_id(conn: Connection, prefix: str, since: datetime | None, limit: int) -> list[EpisodeRow]:
    """Episodes whose id begins so, the newest first."""
    return _episodes(conn, _begins(episode.c.id, prefix), since, limit)


def episodes_of_ids(conn: Connection, episode_ids: Sequence[str]) -> list[EpisodeRow]:
    """Those of them that are there, the newest first."""
    return _episodes(conn, episode.c.id.in_(episode_ids), None, len(episode_ids))


def episodes_of_fingerprint(conn: Connection, prefix: str, since: datetime | None, limit: int) -> list[EpisodeRow]:
    """Episodes of the alerts whose fingerprint begins so, the newest first."""
    return _episodes(conn, _begins(episode.c.fingerprint, prefix), since, limit)


def episodes_with_labels(
    conn: Connection, wanted: Mapping[str, str], since: datetime | None, limit: int
) -> list[EpisodeRow]:
    """Episodes whose alert has all these labels, the open ones first.

    Labels are not indexed: this reads all that was open then or began later.
    """
    # As ``subjects.insert_episode`` writes it; an annotation may look the same, so the labels are looked at below.
    written = [f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in wanted.items()]
    has_them = [func.instr(episode.c.alert, part) > 0 for part in written]
    found: list[EpisodeRow] = []
    for row in _streamed(conn, has_them, since):
        if all(row.labels.get(name) == value for name, value in wanted.items()):
            found.append(row)
            if len(found) == limit:
                break
    return found


def _begins(column: ColumnElement[str], prefix: str) -> ColumnElement[bool]:
    return (column >= prefix) & (column < prefix + "\U0010ffff")


def _since(since: datetime | None) -> list[ColumnElement[bool]]:
    """What was open then or began later."""
    if since is None:
        return []
    return [or_(episode.c.ended_at.is_(None), episode.c.ended_at >= utc_text(since))]


def _episodes(conn: Connection, which: ColumnElement[bool], since: datetime | None, limit: int) -> list[EpisodeRow]:
    query = select(episode).where(which, *_since(since)).order_by(episode.c.opened_at.desc()).limit(limit)
    return [_episode(row) for row in conn.execute(query).mappings()]


def _streamed(conn: Connection, which: Sequence[ColumnElement[bool]], since: datetime | None) -> Iterator[EpisodeRow]:
    ended = episode.c.ended_at >= (utc_text(since) if since is not None else "")
    for query in (
        select(episode).where(text("ended_at IS NULL"), *which),
        select(episode).where(text("ended_at IS NOT NULL"), ended, *which).order_by(episode.c.ended_at.desc()),
    ):
        for row in conn.execute(query).mappings():
            yield _episode(row)


def _episode(row: RowMapping) -> EpisodeRow:
    alert: Mapping[str, Any] = json.loads(row["alert"])["alert"]
    return EpisodeRow(
        id=row["id"],
        label_key=row["label_key"],
        fingerprint=row["fingerprint"],
        labels=alert["labels"],
        annotations=alert["annotations"],
        opened_at=utc_time(row["opened_at"]),
        starts_at=utc_time(row["starts_at"]),
        n_deliveries=row["n_deliveries"],
        first_delivery=row["opened_by_delivery"],
        last_delivery=row["last_delivery"],
        last_word_at=utc_time(row["last_word_at"]),
        ended_at=utc_time(row["ended_at"]) if row["ended_at"] else None,
        end_reason=row["end_reason"],
    )


# -- what belongs to them ----------------------------------------------------------------------------------------------


def subjects_of_episode(conn: Connection, episode_id: str) -> list[SubjectRow]:
    """The subjects that an episode belongs to, with their runs, the oldest first."""
    query = (
        _subjects()
        .join(subject_episode, subject_episode.c.subject_id == subject.c.id)
        .where(subject_episode.c.episode_id == episode_id)
        .order_by(subject.c.opened_at, subject.c.playbook)
    )
    return [_subject(row) for row in conn.execute(query).mappings()]


def subjects_of_runs(conn: Connection, prefix: str, limit: int) -> list[SubjectRow]:
    """The subjects of the runs whose id begins so."""
    query = _subjects().where(_begins(run.c.id, prefix)).limit(limit)
    return [_subject(row) for row in conn.execute(query).mappings()]


def episodes_of_subjects(conn: Connection, subject_ids: Sequence[str]) -> list[str]:
    """Ids of the episodes that these subjects are about, the oldest first."""
    query = (
        select(episode.c.id)
        .where(
            episode.c.id.in_(select(subject_episode.c.episode_id).where(subject_episode.c.subject_id.in_(subject_ids)))
        )
        .order_by(episode.c.opened_at, episode.c.id)
    )
    return list(conn.execute(query).scalars())


def n_episodes_of_subjects(conn: Connection, subject_ids: Sequence[str]) -> dict[str, int]:
    """How many episodes each of these subjects has."""
    query = (
        select(subject_episode.c.subject_id, func.count().label("n"))
        .where(subject_episode.c.subject_id.in_(subject_ids))
        .group_by(subject_episode.c.subject_id)
    )
    return {row.subject_id: row.n for row in conn.execute(query)}


def events_about(
    conn: Connection, episode_id: str, subject_ids: Sequence[str], run_ids: Sequence[str]
) -> list[RecordedEvent]:
    """Every event of an episode, of these subjects and of these runs, in the log's order."""
    # The conditions on "" say nothing new; without them SQLite cannot use the indexes, which leave "" out.
    ways = (
        select(audit.c.seq).where(audit.c.episode_id == episode_id, text("episode_id <> ''")),
        select(audit.c.seq).where(audit.c.subject_id.in_(subject_ids), text("subject_id <> ''")),
        select(audit.c.seq).where(audit.c.run_id.in_(run_ids), text("run_id <> ''")),
    )
    seqs = union(*ways).subquery()
    query = select(audit.c.seq, audit.c.body, audit.c.hash).join(seqs, seqs.c.seq == audit.c.seq)
    return sorted((recorded_event(*row) for row in conn.execute(query)), key=lambda one: one.seq)


def undelivered(conn: Connection, fingerprint: str, limit: int) -> list[RecordedEvent]:
    """What an Alertmanager listed and never delivered, and what was no alert: events that no episode has."""
    kinds = (EventType.ALERT_MISSED.value, EventType.ALERT_REJECTED.value)
    query = (
        select(audit.c.seq, audit.c.body, audit.c.hash)
        .where(audit.c.fingerprint == fingerprint, text("fingerprint <> ''"), audit.c.type.in_(kinds))
        .order_by(audit.c.seq.desc())
        .limit(limit)
    )
    return [recorded_event(*row) for row in conn.execute(query)][::-1]


def deliveries(conn: Connection, delivery_ids: Sequence[int]) -> dict[int, DeliveryRow]:
    """Those of them that are there."""
    query = select(delivery.c.id, delivery.c.received_at, delivery.c.source).where(delivery.c.id.in_(delivery_ids))
    return {
        row.id: DeliveryRow(id=row.id, received_at=utc_time(row.received_at), source=row.source)
        for row in conn.execute(query)
    }


def _subjects() -> Any:
    return select(
        subject,
        run.c.id.label("run_id"),
        run.c.phase,
        run.c.outcome,
        run.c.reason,
        run.c.waits_for,
        run.c.has_acted,
    ).outerjoin(run, run.c.subject_id == subject.c.id)


def _subject(row: RowMapping) -> SubjectRow:
    return SubjectRow(
        id=row["id"],
        playbook=row["playbook"],
        case=row["case_name"],
        per=json.loads(row["per"]),
        opened_at=utc_time(row["opened_at"]),
        opened_by_episode=row["opened_by_episode"],
        is_adopted=bool(row["is_adopted"]),
        is_by_hand=bool(row["is_by_hand"]),
        closed_at=utc_time(row["closed_at"]) if row["closed_at"] else None,
        close_reason=row["close_reason"],
        run_id=row["run_id"] or "",
        phase=row["phase"] or "",
        outcome=row["outcome"] or "",
        reason=row["reason"] or "",
        waits_for=tuple(json.loads(row["waits_for"])) if row["waits_for"] else (),
        has_acted=bool(row["has_acted"]),
    )
