"""Episodes and subjects: what fires, and what runs are about. Called inside a transaction or on a reader."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, RowMapping, and_, bindparam, exists, func, insert, select, update

from remediator.core.event import utc_text, utc_time
from remediator.store.prepared import Prepared, Row
from remediator.store.tables import HAS_STALE_COPY, OPEN_BY_ALERTS, episode, subject, subject_episode


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One open interval of one label set.

    Attributes:
        alert: as ``core.alert.pack_alert`` packed it when the episode opened.
        starts_at: the alert's own start when the episode opened; never moved.
        ended_at: None while it is open.
        resolved_ends_at: the sender's ``endsAt`` that resolved it, None otherwise.
        listed_at: when an Alertmanager's API last listed it, None = never.
        stale_copy_at: when a firing copy of what was resolved first came after its end, None = never.
    """

    id: str
    label_key: str
    fingerprint: str
    alert: Mapping[str, Any]
    opened_at: datetime
    starts_at: datetime
    last_word_at: datetime
    ended_at: datetime | None
    end_reason: str
    resolved_ends_at: datetime | None
    stale_copy_at: datetime | None
    listed_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a run is about."""

    id: str
    playbook: str
    case: str
    per_key: str
    per: Mapping[str, str]
    opened_at: datetime
    opened_by_episode: str
    is_adopted: bool
    is_by_hand: bool
    is_latched: bool
    closed_at: datetime | None
    close_reason: str


def _time(text: str | None) -> datetime | None:
    return utc_time(text) if text else None


def _episode(row: RowMapping | Row) -> Episode:
    return Episode(
        id=row["id"],
        label_key=row["label_key"],
        fingerprint=row["fingerprint"],
        alert=json.loads(row["alert"]),
        opened_at=utc_time(row["opened_at"]),
        starts_at=utc_time(row["starts_at"]),
        last_word_at=utc_time(row["last_word_at"]),
        ended_at=_time(row["ended_at"]),
        end_reason=row["end_reason"],
        resolved_ends_at=_time(row["resolved_ends_at"]),
        stale_copy_at=_time(row["stale_copy_at"]),
        listed_at=_time(row["listed_at"]),
    )


def _subject(row: RowMapping | Row) -> Subject:
    return Subject(
        id=row["id"],
        playbook=row["playbook"],
        case=row["case_name"],
        per_key=row["per_key"],
        per=json.loads(row["per"]),
        opened_at=utc_time(row["opened_at"]),
        opened_by_episode=row["opened_by_episode"],
        is_adopted=bool(row["is_adopted"]),
        is_by_hand=bool(row["is_by_hand"]),
        is_latched=bool(row["is_latched"]),
        closed_at=_time(row["closed_at"]),
        close_reason=row["close_reason"],
    )


# -- episodes ----------------------------------------------------------------------------------------------------------


_BY_ID = episode.c.id == bindparam("row")
_OPEN_EPISODE = Prepared(
    select(episode).where(episode.c.label_key == bindparam("label_key"), episode.c.ended_at.is_(None))
)
_NEWEST_EPISODE = Prepared(
    select(episode).where(episode.c.label_key == bindparam("label_key")).order_by(episode.c.opened_at.desc()).limit(1)
)
_GET_EPISODE = Prepared(select(episode).where(_BY_ID))
_INSERT_EPISODE = Prepared(insert(episode))
_TOUCH = Prepared(
    update(episode)
    .where(episode.c.label_key == bindparam("key"), episode.c.ended_at.is_(None))
    .values(
        last_word_at=bindparam("at"),
        last_delivery=bindparam("delivery"),
        # One that is handled a second time after a crash is one delivery still.
        n_deliveries=episode.c.n_deliveries + (episode.c.last_delivery != bindparam("delivery")),
    )
)
_OPEN_EPISODE_ID = Prepared(
    select(episode.c.id).where(episode.c.label_key == bindparam("label_key"), episode.c.ended_at.is_(None))
)
_SILENT = Prepared(
    select(episode.c.id).where(episode.c.ended_at.is_(None), episode.c.last_word_at < bindparam("before")).limit(1)
)
_OPEN_EPISODES = Prepared(select(episode).where(episode.c.ended_at.is_(None)).order_by(episode.c.opened_at))
_LAST_WORDS = Prepared(select(episode.c.label_key, episode.c.last_word_at).where(episode.c.ended_at.is_(None)))
_END_EPISODE = Prepared(
    update(episode)
    .where(_BY_ID)
    .values(ended_at=bindparam("at"), end_reason=bindparam("reason"), resolved_ends_at=bindparam("ends_at"))
)


def open_episode(conn: Connection, label_key: str) -> Episode | None:
    """The open episode of this label set."""
    row = _OPEN_EPISODE.first(conn, label_key=label_key)
    return _episode(row) if row else None


def newest_episode(conn: Connection, label_key: str) -> Episode | None:
    """The newest episode of this label set, open or not."""
    row = _NEWEST_EPISODE.first(conn, label_key=label_key)
    return _episode(row) if row else None


def stale_copies(conn: Connection) -> list[Episode]:
    """What has ended, of which a firing copy came after its end, where nothing newer of the label set is known."""
    newer = episode.alias()
    is_newest = ~exists().where(newer.c.label_key == episode.c.label_key, newer.c.opened_at > episode.c.opened_at)
    query = select(episode).where(HAS_STALE_COPY, episode.c.ended_at.is_not(None), is_newest)
    return [_episode(row) for row in conn.execute(query).mappings()]


def get_episode(conn: Connection, episode_id: str) -> Episode | None:
    """By its id."""
    row = _GET_EPISODE.first(conn, row=episode_id)
    return _episode(row) if row else None


def insert_episode(conn: Connection, new: Episode, delivery_id: int) -> None:
    """Open it; or remember as ended what was resolved before anybody heard that it fires."""
    _INSERT_EPISODE.run(
        conn,
        id=new.id,
        label_key=new.label_key,
        fingerprint=new.fingerprint,
        alert=json.dumps(new.alert, ensure_ascii=False),
        opened_at=utc_text(new.opened_at),
        opened_by_delivery=delivery_id,
        starts_at=utc_text(new.starts_at),
        last_word_at=utc_text(new.last_word_at),
        last_delivery=delivery_id,
        ended_at=utc_text(new.ended_at) if new.ended_at is not None else None,
        end_reason=new.end_reason,
        resolved_ends_at=utc_text(new.resolved_ends_at) if new.resolved_ends_at is not None else "",
    )


def touch_episode(conn: Connection, label_key: str, at: datetime, delivery_id: int) -> str | None:
    """A delivery says that this label set fires.

    Returns:
        The id of its open episode, which is told so; None when it has none.
    """
    # Without RETURNING, which SQLite has only from 3.35 on.
    if not _TOUCH.run(conn, key=label_key, at=utc_text(at), delivery=delivery_id).rowcount:
        return None
    return str(_OPEN_EPISODE_ID.value(conn, label_key=label_key))


def note_listed(conn: Connection, episode_ids: Sequence[str], at: datetime) -> None:
    """An Alertmanager's API lists these, muted or not: they are there."""
    for episode_id in episode_ids:
        conn.execute(
            update(episode).where(episode.c.id == episode_id).values(listed_at=utc_text(at), last_word_at=utc_text(at))
        )


def note_stale_copy(conn: Connection, episode_id: str, at: datetime) -> None:
    """A firing copy of what was resolved came; it opens nothing."""
    conn.execute(update(episode).where(episode.c.id == episode_id).values(stale_copy_at=utc_text(at)))


def note_resolved_again(conn: Connection, episode_id: str, ends_at: datetime) -> None:
    """A resolved copy came after its end: firing copies up to ``ends_at`` are old, and none has been seen since."""
    conn.execute(
        update(episode).where(episode.c.id == episode_id).values(resolved_ends_at=utc_text(ends_at), stale_copy_at="")
    )


def end_episode(conn: Connection, episode_id: str, at: datetime, reason: str, ends_at: datetime | None) -> None:
    """It ended: ``resolved`` (with the sender's ``endsAt``) or ``expired``."""
    ends_at_text = utc_text(ends_at) if ends_at is not None else ""
    _END_EPISODE.run(conn, row=episode_id, at=utc_text(at), reason=reason, ends_at=ends_at_text)


def has_silent_episode(conn: Connection, before: datetime) -> bool:
    """Whether ``silent_episodes`` would give any."""
    return _SILENT.value(conn, before=utc_text(before)) is not None


def last_words(conn: Connection) -> list[tuple[str, datetime]]:
    """Label key of each open episode, and when it was last heard of."""
    return [(key, utc_time(at)) for key, at in _LAST_WORDS.run(conn)]


def silent_episodes(conn: Connection, before: datetime) -> list[Episode]:
    """Open episodes without a word since ``before``."""
    query = (
        select(episode)
        .where(episode.c.ended_at.is_(None), episode.c.last_word_at < utc_text(before))
        .order_by(episode.c.last_word_at)
    )
    return [_episode(row) for row in conn.execute(query).mappings()]


def open_episodes(conn: Connection) -> Iterator[Episode]:
    """All that fire."""
    for row in _OPEN_EPISODES.all(conn):
        yield _episode(row)


def open_then(conn: Connection, at: datetime) -> list[Episode]:
    """All that fired at a moment, as they began."""
    then = utc_text(at)
    was_open = episode.c.ended_at.is_(None) | (episode.c.ended_at >= then)
    query = select(episode).where(episode.c.opened_at < then, was_open).order_by(episode.c.opened_at)
    found = [_episode(row) for row in conn.execute(query).mappings()]
    return [
        replace(one, ended_at=None, end_reason="", resolved_ends_at=None, stale_copy_at=None, last_word_at=at)
        for one in found
    ]


# -- subjects ----------------------------------------------------------------------------------------------------------


_GET_SUBJECT = Prepared(select(subject).where(subject.c.id == bindparam("row")))
_OPEN_SUBJECT = Prepared(
    select(subject).where(
        subject.c.playbook == bindparam("playbook"),
        subject.c.case_name == bindparam("case"),
        subject.c.per_key == bindparam("per_key"),
        OPEN_BY_ALERTS,
    )
)
_INSERT_SUBJECT = Prepared(insert(subject))
_CLOSE_SUBJECT = Prepared(
    update(subject)
    .where(subject.c.id == bindparam("row"))
    .values(closed_at=bindparam("at"), close_reason=bindparam("reason"))
)
_LINK = Prepared(insert(subject_episode).prefix_with("OR IGNORE"))
_OPEN_SUBJECTS_OF = Prepared(
    select(subject)
    .join(subject_episode, subject_episode.c.subject_id == subject.c.id)
    .where(subject_episode.c.episode_id == bindparam("row"), subject.c.closed_at.is_(None))
)
_EPISODES_OF = and_(subject_episode.c.episode_id == episode.c.id, subject_episode.c.subject_id == bindparam("row"))
_FIRES = Prepared(select(episode.c.id).join(subject_episode, _EPISODES_OF).where(episode.c.ended_at.is_(None)).limit(1))
_OPEN_KEYS_OF = Prepared(
    select(episode.c.label_key).join(subject_episode, _EPISODES_OF).where(episode.c.ended_at.is_(None))
)
_OLDEST_OPEN_OF = Prepared(
    select(episode)
    .join(subject_episode, _EPISODES_OF)
    .where(episode.c.ended_at.is_(None))
    .order_by(episode.c.opened_at, episode.c.id)
    .limit(1)
)
_LAST_WORD = Prepared(select(func.max(episode.c.last_word_at)).join(subject_episode, _EPISODES_OF))
_LAST_END_REASON = Prepared(
    select(episode.c.end_reason)
    .join(subject_episode, _EPISODES_OF)
    .where(episode.c.ended_at.is_not(None))
    .order_by(episode.c.ended_at.desc())
    .limit(1)
)


def get_subject(conn: Connection, subject_id: str) -> Subject | None:
    """By its id."""
    row = _GET_SUBJECT.first(conn, row=subject_id)
    return _subject(row) if row else None


def open_subject(conn: Connection, playbook: str, case: str, per_key: str) -> Subject | None:
    """The open one of these values; runs by hand have subjects of their own and are not found here."""
    row = _OPEN_SUBJECT.first(conn, playbook=playbook, case=case, per_key=per_key)
    return _subject(row) if row else None


def insert_subject(conn: Connection, new: Subject) -> None:
    """Open it."""
    _INSERT_SUBJECT.run(
        conn,
        id=new.id,
        playbook=new.playbook,
        case_name=new.case,
        per_key=new.per_key,
        per=json.dumps(dict(new.per), ensure_ascii=False),
        opened_at=utc_text(new.opened_at),
        opened_by_episode=new.opened_by_episode,
        is_adopted=int(new.is_adopted),
        is_by_hand=int(new.is_by_hand),
        is_latched=int(new.is_latched),
    )


def set_adopted(conn: Connection, subject_id: str) -> None:
    """It is shown and not acted on."""
    conn.execute(update(subject).where(subject.c.id == subject_id).values(is_adopted=1))


def close_subject(conn: Connection, subject_id: str, at: datetime, reason: str) -> None:
    """The last of its episodes has ended."""
    _CLOSE_SUBJECT.run(conn, row=subject_id, at=utc_text(at), reason=reason)


def link(conn: Connection, subject_id: str, episode_id: str) -> None:
    """This episode belongs to this subject."""
    _LINK.run(conn, subject_id=subject_id, episode_id=episode_id)


def open_subjects_of(conn: Connection, episode_id: str) -> list[Subject]:
    """The open subjects that this episode belongs to."""
    return [_subject(row) for row in _OPEN_SUBJECTS_OF.all(conn, row=episode_id)]


def fires(conn: Connection, subject_id: str) -> bool:
    """Whether any of its episodes is open."""
    return _FIRES.value(conn, row=subject_id) is not None


def open_keys_of(conn: Connection, subject_id: str) -> frozenset[str]:
    """The label keys of the episodes of a subject that fire."""
    return frozenset(row["label_key"] for row in _OPEN_KEYS_OF.all(conn, row=subject_id))


def oldest_open_episode_of(conn: Connection, subject_id: str) -> Episode | None:
    """The episode of a subject that has fired for the longest time."""
    row = _OLDEST_OPEN_OF.first(conn, row=subject_id)
    return _episode(row) if row else None


def last_word_at(conn: Connection, subject_id: str) -> datetime | None:
    """When a delivery last said that any alert of the subject fires."""
    return _time(_LAST_WORD.value(conn, row=subject_id))


def last_end_reason(conn: Connection, subject_id: str) -> str:
    """How the newest ended episode of the subject ended, "" when none has."""
    return str(_LAST_END_REASON.value(conn, row=subject_id) or "")


def n_open(conn: Connection) -> tuple[int, int]:
    """How many episodes and subjects are open."""
    n_episodes = conn.execute(
        select(func.count()).select_from(episode).where(episode.c.ended_at.is_(None))
    ).scalar_one()
    n_subjects = conn.execute(
        select(func.count()).select_from(subject).where(subject.c.closed_at.is_(None))
    ).scalar_one()
    return n_episodes, n_subjects


def n_adopted(conn: Connection) -> int:
    """How many open subjects fired before their playbook could act on them, and are left alone."""
    query = select(func.count()).select_from(subject).where(subject.c.closed_at.is_(None), subject.c.is_adopted == 1)
    return int(conn.execute(query).scalar_one())
