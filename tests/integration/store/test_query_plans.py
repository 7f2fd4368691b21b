"""No question that the engine asks may grow with the history: each statement's plan, as SQLite itself tells it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

import pytest

from plans import NOW as AT
from plans import a_lease, a_plan
from remediator.core.event import EventType
from remediator.core.lease import How
from remediator.core.outcome import RunOutcome
from remediator.core.run import Phase
from remediator.errors import Reason
from remediator.store import audit, breakers, inbox, incidents, leases, runs, subjects
from remediator.store.engine import Store
from remediator.store.prepared import driver
from remediator.store.writer import Tx

GROWS = ("run", "audit", "episode", "subject", "subject_episode", "delivery", "act", "admission", "lease")
"""Tables that keep what is over."""

SMALL = ("delivery_unhandled", "episode_open", "episode_last_word", "subject_open", "subject_not_closed")
SMALL += ("episode_stale_copy", "run_not_closed", "run_admitted", "run_unknown")
SMALL += ("lease_open_stack", "lease_open_target", "lease_open_values")
"""Partial indexes that hold only what goes on now: walking one of them whole is what they are for."""

MODULES = (runs, subjects, inbox, audit, breakers, incidents, leases)

LEASE = a_lease()

ARGUMENTS: Mapping[str, Any] = {
    "able_key": "k",
    "action": "docker.limit",
    "at": AT,
    "before": AT,
    "but_run": "r",
    "by": "alice",
    "but_rung": 1,
    "case": "",
    "counts": True,
    "created_at": AT,
    "delivery_id": 1,
    "detail": "",
    "delivery_ids": [1, 2],
    "ending": "failed",
    "ends_at": AT,
    "fingerprint": "f",
    "episode_id": "e",
    "episode_ids": ["e"],
    "how": How.UNDONE,
    "is_all": False,
    "is_disruptive": True,
    "key": "pause",
    "digest": "0" * 64,
    "first": 1,
    "label_key": "l",
    "lease_id": "l",
    "left": {},
    "limit": 10,
    "n_disruptive": 1,
    "name": "site",
    "n_places": 2,
    "new": LEASE,
    "of": LEASE,
    "outcome": RunOutcome.SUCCEEDED,
    "per_key": "k",
    "phase": Phase.WAITING,
    "plan": a_plan(),
    "playbook": "p",
    "prefix": "ab",
    "reason": Reason.NONE,
    "refs": ["docker:h/a"],
    "run_id": "r",
    "run_ids": ["r"],
    "retry_at": AT,
    "rung": 1,
    "seq": 1,
    "since": AT,
    "stack": LEASE.stack_id,
    "state": "open",
    "subject_id": "s",
    "subject_ids": ["s"],
    "target": "docker:h/a",
    "targets": {"docker:h/a": True},
    "until": AT,
    "value": {"by": "alice"},
    "waits_for": ["cooldown:cooldown"],
    "wanted": {"docker:h/a": True},
    "why": "too much",
}
"""One value for every parameter of these functions, by its name: a new name needs a line here."""

WALKS = {
    "export": "the whole log is what was asked for",
    "verify": "the whole log is what was asked for",
    "list_events": "for people, and checked below with each filter",
    "head": "the last row alone: ORDER BY seq DESC LIMIT 1",
    "last_seq": "as head",
    "append": "an insert, and head",
    "insert_episode": "an insert",
    "insert_subject": "an insert",
    "insert_run": "an insert",
    "store_delivery": "an insert",
    "open_then": "a replay asks it once, beside the engine",
}
"""Functions that are not asked here, and why."""


class _Undo(Exception):
    pass


def _functions(module: ModuleType) -> Iterator[Any]:
    for name, function in inspect.getmembers(module, inspect.isfunction):
        first = next(iter(inspect.signature(function).parameters.values()), None)
        takes_store = first is not None and str(first.annotation) in ("Connection", "Tx")
        if takes_store and function.__module__ == module.__name__ and not name.startswith("_") and name not in WALKS:
            yield pytest.param(function, id=f"{module.__name__.rpartition('.')[2]}.{name}")


def _scans(store: Store, ask: Callable[[Tx], object]) -> list[str]:
    """The steps of SQLite's plans that walk a table which grows."""
    asked: list[str] = []
    found: list[str] = []

    def work(tx: Tx) -> None:
        tx.conn.exec_driver_sql("PRAGMA defer_foreign_keys=ON")
        connection = driver(tx.conn)
        connection.set_trace_callback(asked.append)  # with the values in their places
        try:
            ask(tx)
        finally:
            connection.set_trace_callback(None)
        for statement in asked:
            if not statement.startswith(("SELECT", "UPDATE", "DELETE", "INSERT")):
                continue
            for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}"):
                step = re.match(r"SCAN (\w+)(?: USING (?:COVERING )?INDEX (\w+))?", row[3])
                if step and step[1] in GROWS and step[2] not in SMALL:
                    found.append(f"{row[3]}: {statement}")
        raise _Undo  # nothing of what was written here belongs to anything

    with pytest.raises(_Undo):
        store.write(work)
    assert asked
    return found


@pytest.mark.parametrize("function", [found for module in MODULES for found in _functions(module)])
def test_query_when_the_engine_asks_it_then_walks_no_table_that_grows(store: Store, function: Any) -> None:
    parameters = list(inspect.signature(function).parameters.values())
    given = {parameter.name: ARGUMENTS[parameter.name] for parameter in parameters[1:] if parameter.name in ARGUMENTS}

    def ask(tx: Tx) -> None:
        found = function(tx if parameters[0].name == "tx" else tx.conn, **given)
        if inspect.isgenerator(found):
            list(found)

    assert _scans(store, ask) == []


@pytest.mark.parametrize(
    "filters",
    [
        pytest.param({"run_id": "r"}, id="a run"),
        pytest.param({"fingerprint": "f"}, id="an alert"),
        pytest.param({"target": "docker:h/a"}, id="a target"),
        pytest.param({"playbook": "p"}, id="a playbook"),
        pytest.param({"after_seq": 1, "limit": 1}, id="one event"),
    ],
)
def test_audit_list_when_a_filter_has_an_index_then_it_is_used(store: Store, filters: dict[str, Any]) -> None:
    wanted = audit.AuditFilter(**filters)

    assert _scans(store, lambda tx: audit.list_events(tx.conn, wanted, newest_first=True)) == []


def test_scans_sees_a_walk_over_the_log(store: Store) -> None:
    wanted = audit.AuditFilter(type=EventType.RUN_FINISHED)

    assert len(_scans(store, lambda tx: audit.list_events(tx.conn, wanted))) == 1
