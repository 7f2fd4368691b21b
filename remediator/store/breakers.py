"""Breakers: which are tripped, why, and from when on they count. Written with the event that explains it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, bindparam, insert, select

from remediator.core.event import utc_text, utc_time
from remediator.store.prepared import Prepared, Row
from remediator.store.tables import breaker

_ALL = Prepared(select(breaker).order_by(breaker.c.name))
_OF_NAME = Prepared(select(breaker).where(breaker.c.name == bindparam("wanted")))
_SET = Prepared(insert(breaker).prefix_with("OR REPLACE"))


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerRow:
    """A breaker that tripped at least once.

    Attributes:
        tripped_at: None since it was reset.
        why: it tripped last.
        counts_from: when it was last reset; None when it never was.
    """

    name: str
    tripped_at: datetime | None
    why: str
    counts_from: datetime | None


def all_breakers(conn: Connection) -> list[BreakerRow]:
    """Every breaker that ever tripped, by name."""
    return [_row(row) for row in _ALL.all(conn)]


def get_breaker(conn: Connection, name: str) -> BreakerRow | None:
    """By its name; None when it never tripped."""
    row = _OF_NAME.first(conn, wanted=name)
    return _row(row) if row else None


def trip(conn: Connection, name: str, at: datetime, why: str) -> None:
    """It holds whatever would act, until a person resets it."""
    before = get_breaker(conn, name)
    counts_from = utc_text(before.counts_from) if before is not None and before.counts_from is not None else ""
    _SET.run(conn, name=name, tripped_at=utc_text(at), why=why, counts_from=counts_from)


def reset(conn: Connection, name: str, at: datetime) -> None:
    """It holds nothing, and counts from now on."""
    before = get_breaker(conn, name)
    _SET.run(conn, name=name, tripped_at=None, why=before.why if before is not None else "", counts_from=utc_text(at))


def _row(row: Row) -> BreakerRow:
    return BreakerRow(
        name=row["name"],
        tripped_at=utc_time(row["tripped_at"]) if row["tripped_at"] else None,
        why=row["why"],
        counts_from=utc_time(row["counts_from"]) if row["counts_from"] else None,
    )
