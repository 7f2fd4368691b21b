"""What a replay reads of a store: its deliveries, and what was recorded beside them, in pieces.

Takes a snapshot and a window → rows in the order in which they came. A running engine goes on writing meanwhile: who
reads in pieces, each from a snapshot of its own, never keeps the WAL from being cut.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, bindparam, func, select

from remediator.core.event import Event, EventType, RecordedEvent, utc_text, utc_time
from remediator.store.audit import recorded_event
from remediator.store.inbox import StoredDelivery
from remediator.store.tables import audit, control, delivery, episode

_DELIVERIES = (
    select(delivery.c.id, delivery.c.received_at, delivery.c.source, delivery.c.body)
    .where(delivery.c.id > bindparam("after"), delivery.c.received_at >= bindparam("since"))
    .where(delivery.c.received_at < bindparam("until"))
    .order_by(delivery.c.id)
    .limit(bindparam("n"))
)


def deliveries(conn: Connection, since: datetime, until: datetime, after: int, limit: int) -> list[StoredDelivery]:
    """Deliveries of a window, oldest first.

    Args:
        after: only those with a greater id.
    """
    values = {"after": after, "since": utc_text(since), "until": utc_text(until), "n": limit}
    return [
        StoredDelivery(id=row.id, received_at=utc_time(row.received_at), source=row.source, body=row.body)
        for row in conn.execute(_DELIVERIES, values)
    ]


def n_deliveries(conn: Connection, since: datetime, until: datetime) -> int:
    """How many there are in a window."""
    inside = (delivery.c.received_at >= utc_text(since)) & (delivery.c.received_at < utc_text(until))
    return int(conn.execute(select(func.count()).select_from(delivery).where(inside)).scalar_one())


def first_delivery_at(conn: Connection) -> datetime | None:
    """When the first of all was received; None where there is none."""
    row = conn.execute(select(delivery.c.received_at).order_by(delivery.c.id).limit(1)).first()
    return None if row is None else utc_time(row[0])


def place_in_log(conn: Connection, stored: StoredDelivery) -> int:
    """The seq of a delivery's ``delivery_received``: tells what came first of two things of one moment."""
    mine = (audit.c.at == utc_text(stored.received_at)) & (audit.c.delivery_id == stored.id)
    found = select(audit.c.seq).where(mine, audit.c.type == EventType.DELIVERY_RECEIVED.value)
    return int(conn.execute(found).scalar() or 0)


def events(
    conn: Connection, kinds: Sequence[EventType], since: datetime, until: datetime, after_seq: int, limit: int
) -> list[RecordedEvent]:
    """Events of these kinds in a window, in the log's order, behind a place in it."""
    query = (
        select(audit.c.seq, audit.c.body, audit.c.hash)
        .where(audit.c.seq > after_seq, audit.c.type.in_([kind.value for kind in kinds]))
        .where(audit.c.at >= utc_text(since), audit.c.at < utc_text(until))
        .order_by(audit.c.seq)
        .limit(limit)
    )
    return [recorded_event(row.seq, row.body, row.hash) for row in conn.execute(query)]


def last_event(conn: Connection, kinds: Sequence[EventType], before: datetime) -> Event | None:
    """The newest event of these kinds before a moment."""
    query = (
        select(audit.c.seq, audit.c.body, audit.c.hash)
        .where(audit.c.type.in_([kind.value for kind in kinds]), audit.c.at < utc_text(before))
        .order_by(audit.c.seq.desc())
        .limit(1)
    )
    row = conn.execute(query).first()
    return None if row is None else recorded_event(row.seq, row.body, row.hash).event


def label_key_of(conn: Connection, episode_id: str) -> str:
    """Whose episode it is; "" for one that is not there."""
    return str(conn.execute(select(episode.c.label_key).where(episode.c.id == episode_id)).scalar() or "")


def gaps(conn: Connection) -> list[tuple[datetime, datetime]]:
    """When the engine was away, as it remembers it of the last days."""
    text = conn.execute(select(control.c.value).where(control.c.key == "life")).scalar()
    return [(utc_time(start), utc_time(end)) for start, end in json.loads(text)["gaps"]] if text else []
