from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from remediator.core.alert import RawDelivery
from remediator.store import inbox
from remediator.store.engine import Store

LATER = datetime(2026, 1, 31, 15, 0, 0, tzinfo=UTC)

Raw = Callable[..., RawDelivery]


def test_store_delivery_keeps_the_bytes_as_they_came(store: Store, raw: Raw) -> None:
    body = bytes(range(256))
    row = store.write(lambda tx: inbox.store_delivery(tx, raw(body, source="10.1.2.3")))

    with store.read() as conn:
        found = inbox.unhandled(conn, 1)
    assert found == [inbox.StoredDelivery(id=row, received_at=raw().received_at, source="10.1.2.3", body=body)]


def test_store_delivery_when_the_same_came_before_then_keeps_both(store: Store, raw: Raw) -> None:
    rows = [store.write(lambda tx: inbox.store_delivery(tx, raw(b"same"))) for _ in range(2)]

    with store.read() as conn:
        assert (len(set(rows)), inbox.n_unhandled(conn)) == (2, 2)


def test_unhandled_gives_the_oldest_first_and_no_more_than_asked_for(store: Store, raw: Raw) -> None:
    rows = [store.write(lambda tx: inbox.store_delivery(tx, raw())) for _ in range(3)]

    with store.read() as conn:
        assert [found.id for found in inbox.unhandled(conn, 2)] == rows[:2]


def test_mark_handled_takes_it_from_the_unhandled_and_keeps_the_first_time(store: Store, raw: Raw) -> None:
    row = store.write(lambda tx: inbox.store_delivery(tx, raw()))
    store.write(lambda tx: inbox.mark_handled(tx, row, raw().received_at))
    store.write(lambda tx: inbox.mark_handled(tx, row, LATER))

    with store.read() as conn:
        handled_at = conn.exec_driver_sql("SELECT handled_at FROM delivery").scalar_one()
        assert (inbox.unhandled(conn, 9), inbox.n_unhandled(conn)) == ([], 0)
    assert handled_at == "2026-01-31T14:00:00.000000Z"
