"""Deliveries, kept as they came before anybody has read them: what was answered with 200 is here.

Takes a ``RawDelivery`` → a row, and gives the rows that the engine has not handled yet. Never decodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, bindparam, func, insert, select, update

from remediator.core.alert import RawDelivery
from remediator.core.event import utc_text, utc_time
from remediator.store.prepared import Prepared
from remediator.store.tables import delivery as table
from remediator.store.writer import Tx

_COLUMNS = select(table.c.id, table.c.received_at, table.c.source, table.c.body)
_INSERT = Prepared(insert(table).inline())
_UNHANDLED = Prepared(_COLUMNS.where(table.c.handled_at.is_(None)).order_by(table.c.id).limit(bindparam("n")))
_MARK = Prepared(
    update(table).where(table.c.id == bindparam("row"), table.c.handled_at.is_(None)).values(handled_at=bindparam("at"))
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDelivery:
    """A delivery with its row.

    Attributes:
        received_at: aware UTC.
        body: the bytes as they came.
    """

    id: int
    received_at: datetime
    source: str
    body: bytes


def store_delivery(tx: Tx, raw: RawDelivery) -> int:
    """Keep a delivery; its row's id. Not unique by content: a repeat is the proof that it still fires."""
    cursor = _INSERT.run(
        tx.conn,
        received_at=utc_text(raw.received_at),
        source=raw.source,
        body=raw.body,
        body_sha256=raw.sha256,
    )
    return int(cursor.lastrowid or 0)


def unhandled(conn: Connection, limit: int) -> list[StoredDelivery]:
    """The oldest deliveries whose alerts have not become episodes, subjects and plans yet."""
    return [_delivery(*row) for row in _UNHANDLED.run(conn, n=limit)]


def deliveries_from(conn: Connection, first: int, until: datetime) -> Iterator[StoredDelivery]:
    """The deliveries from one row on, handled or not, that came before a moment; read as they are asked for."""
    query = _COLUMNS.where(table.c.id >= first).order_by(table.c.id)
    for row in conn.execution_options(stream_results=True).execute(query):
        stored = _delivery(*row)
        if stored.received_at >= until:
            return
        yield stored


def mark_handled(tx: Tx, delivery_id: int, at: datetime) -> None:
    """In the transaction that wrote what came of it. A second marking changes nothing."""
    _MARK.run(tx.conn, row=delivery_id, at=utc_text(at))


def n_unhandled(conn: Connection) -> int:
    """How many wait."""
    return int(conn.execute(select(func.count()).select_from(table).where(table.c.handled_at.is_(None))).scalar_one())


def _delivery(row_id: int, received_at: str, source: str, body: bytes) -> StoredDelivery:
    return StoredDelivery(id=row_id, received_at=utc_time(received_at), source=source, body=body)
