from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from remediator.core.event import Event, EventType, RecordedEvent
from remediator.errors import StoreError
from remediator.store import audit
from remediator.store.audit import AuditFilter
from remediator.store.engine import Store, open_readonly

T0 = datetime(2026, 1, 1, tzinfo=UTC)

# seq 1..6
ROWS: list[dict[str, Any]] = [
    {"playbook": "a", "target": "t1", "fingerprint": "f1"},
    {"playbook": "a", "target": "t2", "outcome": "failed", "run_id": "aa11", "n": 2},
    {"playbook": "b", "target": "t1", "outcome": "succeeded", "run_id": "aa11", "n": 1},
    {"playbook": "b", "type": EventType.PAUSED},
    {"playbook": "b", "run_id": "aa22", "n": 1},
    {"playbook": "b", "run_id": "bb33", "n": 1, "data": {"x": [1, {"y": True}]}},
]


@pytest.fixture
def recorded(store: Store, event: Callable[..., Event]) -> list[RecordedEvent]:
    return [
        store.write(lambda tx, n=n, row=row: tx.append(event(**{"at": T0 + timedelta(minutes=n), **row})))
        for n, row in enumerate(ROWS, start=1)
    ]


@pytest.mark.parametrize(
    ("filters", "seqs"),
    [
        pytest.param({}, [1, 2, 3, 4, 5, 6], id="nothing narrows"),
        pytest.param({"since": T0 + timedelta(minutes=3)}, [3, 4, 5, 6], id="since counts its moment"),
        pytest.param({"until": T0 + timedelta(minutes=3)}, [1, 2], id="until does not"),
        pytest.param({"playbook": "a"}, [1, 2], id="of a playbook"),
        pytest.param({"target": "t1"}, [1, 3], id="on a target"),
        pytest.param({"outcome": "failed"}, [2], id="with an outcome"),
        pytest.param({"fingerprint": "f1"}, [1], id="about an alert"),
        pytest.param({"run_id": "aa11"}, [2, 3], id="of a run"),
        pytest.param({"type": EventType.PAUSED}, [4], id="of a type"),
        pytest.param({"after_seq": 4}, [5, 6], id="after a seq"),
        pytest.param({"limit": 2}, [1, 2], id="the first two"),
        pytest.param({"playbook": "b", "target": "t1"}, [3], id="two at once"),
        pytest.param({"playbook": "nobody's"}, [], id="none"),
    ],
)
def test_list_events_gives_what_the_filters_leave(
    store: Store, recorded: list[RecordedEvent], filters: dict[str, Any], seqs: list[int]
) -> None:
    with store.read() as conn:
        assert [found.seq for found in audit.list_events(conn, AuditFilter(**filters))] == seqs


def test_list_events_when_newest_first_then_a_limit_keeps_the_newest(
    store: Store, recorded: list[RecordedEvent]
) -> None:
    with store.read() as conn:
        found = audit.list_events(conn, AuditFilter(limit=2), newest_first=True)
    assert [event.seq for event in found] == [6, 5]


def test_list_events_gives_back_what_was_appended(store: Store, recorded: list[RecordedEvent]) -> None:
    with store.read() as conn:
        assert audit.list_events(conn) == recorded


def test_events_of_run_are_in_the_runs_own_order(store: Store, recorded: list[RecordedEvent]) -> None:
    with store.read() as conn:
        found = audit.events_of_run(conn, "aa11")
    assert [(event.event.n, event.seq) for event in found] == [(1, 3), (2, 2)]


def test_head_and_last_seq_are_of_the_last_event(store: Store, recorded: list[RecordedEvent]) -> None:
    with store.read() as conn:
        assert (audit.head(conn), audit.last_seq(conn)) == ((6, recorded[-1].hash), 6)


@pytest.mark.parametrize(
    ("prefix", "ids"),
    [
        pytest.param("aa", ["aa11", "aa22"], id="two begin so"),
        pytest.param("aa11", ["aa11"], id="a whole id"),
        pytest.param("b", ["bb33"], id="one begins so"),
        pytest.param("c", [], id="none begins so"),
        pytest.param("%", [], id="nothing is a pattern"),
    ],
)
def test_run_ids_are_those_that_begin_so(
    store: Store, recorded: list[RecordedEvent], prefix: str, ids: list[str]
) -> None:
    with store.read() as conn:
        assert audit.run_ids(conn, prefix, limit=9) == ids


def test_export_with_filters_gives_only_those(store: Store, recorded: list[RecordedEvent]) -> None:
    with store.read() as conn:
        rows = list(audit.export(conn, AuditFilter(playbook="a")))
    assert [row["hash"] for row in rows] == [recorded[0].hash, recorded[1].hash]


def test_list_events_when_one_was_made_unreadable_then_points_to_verify(
    store: Store, recorded: list[RecordedEvent], path: Path, url: str
) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TRIGGER audit_no_update")
        connection.execute("UPDATE audit SET body = x'00' WHERE seq = 3")
        connection.commit()

    with pytest.raises(StoreError, match=r"Event 3 .*audit verify"), open_readonly(url).read() as conn:
        audit.list_events(conn)


@pytest.mark.parametrize(
    ("filters", "index"),
    [
        pytest.param({"run_id": "aa11"}, "audit_run_n", id="of a run"),
        pytest.param({"playbook": "a"}, "audit_playbook", id="of a playbook"),
        pytest.param({"target": "t1"}, "audit_target", id="on a target"),
        pytest.param({"fingerprint": "f1"}, "audit_fingerprint", id="about an alert"),
    ],
)
def test_list_events_does_not_read_the_whole_log(
    store: Store, recorded: list[RecordedEvent], filters: dict[str, Any], index: str
) -> None:
    statements: list[str] = []
    with store.read() as conn:
        driver = conn.connection.driver_connection
        driver.set_trace_callback(statements.append)
        audit.list_events(conn, AuditFilter(**filters))
        driver.set_trace_callback(None)
        plan = " ".join(row.detail for row in conn.exec_driver_sql(f"EXPLAIN QUERY PLAN {statements[-1]}"))

    assert index in plan


def test_events_of_run_does_not_read_the_whole_log(store: Store, recorded: list[RecordedEvent]) -> None:
    statements: list[str] = []
    with store.read() as conn:
        driver = conn.connection.driver_connection
        driver.set_trace_callback(statements.append)
        audit.events_of_run(conn, "aa11")
        driver.set_trace_callback(None)
        plan = " ".join(row.detail for row in conn.exec_driver_sql(f"EXPLAIN QUERY PLAN {statements[-1]}"))

    assert "audit_run_n" in plan
    assert "TEMP B-TREE" not in plan
