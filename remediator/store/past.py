"""The store as it stood at a moment that is past, for a dry run of then.

Takes a snapshot and a moment → in that snapshot each table that the guard counts on holds what it held then. Views and
tables of the connection's own, by the same names, stand in front of the store's (SQLite looks there first), so that
every question is the one that the engine asks, and none knows that it is asked of the past. What the tables keep is
taken from them: acts, admissions, subjects, leases, runs that had ended. What they have written over since is read from
the log: runs that were open and what they held, breakers, the pause.

Must never write to the file, which is open read-only: what is made here goes with the snapshot's transaction.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import takewhile
from typing import Any

from sqlalchemy import Connection, Table, select

from remediator.core.event import Event, EventType, utc_text
from remediator.core.outcome import RunOutcome
from remediator.core.run import Phase, Run, fold
from remediator.errors import Reason
from remediator.store.audit import AuditFilter, list_events, log_of_run, recorded_event
from remediator.store.prepared import driver
from remediator.store.tables import act, admission, audit, breaker, control, lease, reservation, run, subject

_IS_NOT_FOLDED = "id NOT IN (SELECT id FROM run_then)"


def look_back(conn: Connection, at: datetime) -> None:
    """Let this snapshot show the store as it stood at ``at``: without what was recorded later.

    Args:
        conn: of ``ReadStore.read``; on it nothing else may have been asked of the present that has to fit.
        at: aware.
    """
    log = list(_of_all(conn, at))
    open_then = list(_open_runs(conn, at))
    sqlite, then = driver(conn), utc_text(at)
    sqlite.execute("PRAGMA query_only=OFF")  # for the connection's own tables; the file was opened with mode=ro
    try:
        _view(conn, act, f"at <= '{then}'")
        _view(conn, subject, f"opened_at <= '{then}'", closed_at=_if_by("closed_at", then))
        undone = {name: _if_by(name, then) for name in ("undo_started_at", "closed_at")}
        _view(conn, lease, f"opened_at <= '{then}'", **undone)
        _table(conn, control, _pauses(log))
        _table(conn, breaker, _breakers(log))
        _table(conn, reservation, [row for one, _ in open_then for row in _held(one, then)])
        _table(conn, run, [_row(one, row) for one, row in open_then], "run_then")
        _view(conn, run, f"ended_at <= '{then}' AND {_IS_NOT_FOLDED}", also="run_then")
        _table(conn, admission, [row for one, _ in open_then for row in _admitted(conn, one, at)], "admission_then")
        _view(conn, admission, f"at <= '{then}'", also="admission_then")
    finally:
        sqlite.execute("PRAGMA query_only=ON")


def log_begins(conn: Connection) -> datetime | None:
    """When the first event was recorded; None in an empty log."""
    first = list_events(conn, AuditFilter(limit=1))
    return first[0].event.at if first else None


# -- standing in front of a table --------------------------------------------------------------------------------------


def _if_by(column: str, then: str) -> str:
    return f"CASE WHEN {column} <= '{then}' THEN {column} END"


def _view(conn: Connection, table: Table, where: str, *, also: str = "", **instead: str) -> None:
    """Those rows alone, with other expressions for some columns. Views take no parameters; a time needs no quoting."""
    columns = ", ".join(f"{instead.get(column.name, column.name)} AS {column.name}" for column in table.c)
    rows = f"SELECT {columns} FROM main.{table.name} WHERE {where}"  # noqa: S608 made of our own names and times alone
    more = f" UNION ALL SELECT * FROM {also}" if also else ""  # noqa: S608 as above
    driver(conn).execute(f"CREATE TEMP VIEW {table.name} AS {rows}{more}")


def _table(conn: Connection, table: Table, rows: list[Mapping[str, Any]], name: str = "") -> None:
    """A table of the same columns with these rows instead."""
    name = name or table.name
    columns = [column.name for column in table.c]
    driver(conn).execute(f"CREATE TEMP TABLE {name} ({', '.join(columns)})")
    values = ", ".join(f":{column}" for column in columns)
    driver(conn).executemany(f"INSERT INTO temp.{name} VALUES ({values})", rows)  # noqa: S608 as above


# -- what the log says -------------------------------------------------------------------------------------------------


def _of_all(conn: Connection, at: datetime) -> Iterator[Event]:
    """Pauses and breakers up to then, in the log's order."""
    kinds = (EventType.PAUSED, EventType.RESUMED, EventType.BREAKER_TRIPPED, EventType.BREAKER_RESET)
    wanted = (audit.c.type.in_([kind.value for kind in kinds]), audit.c.at <= utc_text(at))
    found = select(audit.c.seq, audit.c.body, audit.c.hash).where(*wanted).order_by(audit.c.seq)
    return (recorded_event(*row).event for row in conn.execute(found))


def _pauses(log: list[Event]) -> list[Mapping[str, Any]]:
    last = next((event for event in reversed(log) if event.type in (EventType.PAUSED, EventType.RESUMED)), None)
    if last is None or last.type is EventType.RESUMED:
        return []
    pause = {"by": last.actor, "reason": last.data["reason"], "at": utc_text(last.at)}
    return [{"key": "pause", "value": json.dumps(pause)}]


def _breakers(log: list[Event]) -> list[Mapping[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    for event in log:
        if event.type not in (EventType.BREAKER_TRIPPED, EventType.BREAKER_RESET):
            continue
        name = str(event.data["breaker"])
        row = rows.setdefault(name, {"name": name, "tripped_at": None, "why": "", "counts_from": ""})
        if event.type is EventType.BREAKER_TRIPPED:
            row |= {"tripped_at": utc_text(event.at), "why": event.data["detail"]}
        else:
            row |= {"tripped_at": None, "counts_from": utc_text(event.at)}
    return list(rows.values())


def _open_runs(conn: Connection, at: datetime) -> Iterator[tuple[Run, Mapping[str, Any]]]:
    """Runs of which the tables do not say what they were then: open, or of an outcome that nobody knew yet."""
    then = utc_text(at)
    was_open = run.c.ended_at.is_(None) | (run.c.ended_at > then)
    was_unknown = (run.c.outcome == RunOutcome.UNKNOWN.value) | (run.c.reason == Reason.SETTLED_BY_PERSON.value)
    for row in conn.execute(select(run).where(run.c.created_at <= then, was_open | was_unknown)).mappings().all():
        written = (one.event for one in log_of_run(conn, row["id"]))
        events = list(takewhile(lambda event: event.at <= at, written))
        if events:
            yield fold(events), dict(row)


def _is_at_work(one: Run) -> bool:
    return one.outcome is None and one.is_admitted and one.open_question is None


def _row(one: Run, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The run's row as it was."""
    return {
        **row,
        "phase": _phase(one).value,
        "outcome": one.outcome.value if one.outcome is not None else "",
        "reason": one.reason.value if one.outcome is not None else "",
        "waits_for": json.dumps(list(one.waits_for)),
        "ended_at": utc_text(one.ended_at) if one.ended_at is not None else None,
        "is_admitted": int(_is_at_work(one) and bool(one.plan.acts_of(one.rung))),
        "has_acted": int(one.has_acted),
        "rung": one.rung,
    }


def _phase(one: Run) -> Phase:
    if one.outcome is not None:
        return Phase.ENDED
    if one.open_question is not None:
        return Phase.ASKING
    if one.is_admitted:
        return Phase.ACTING
    return Phase.WAITING if one.waits_for else Phase.HOLDING


def _held(one: Run, then: str) -> Iterator[Mapping[str, Any]]:
    """What it had taken for itself; what it shared with others is not in the log."""
    is_open = one.outcome is None and (_is_at_work(one) or one.has_acted)
    if not is_open and one.outcome is not RunOutcome.UNKNOWN:
        return
    touched = {ref for state in one.steps.values() for attempt in state.attempts for ref in attempt.targets}
    for ref in sorted(one.planned_targets.keys() | touched):
        yield {"target": ref, "run_id": one.plan.run_id, "is_exclusive": 1, "at": then}


def _admitted(conn: Connection, one: Run, at: datetime) -> Iterator[Mapping[str, Any]]:
    """The admission of the rung where it was, which the table has forgotten where it was admitted there once more."""
    acts = one.plan.acts_of(one.rung)
    if one.judged_at is None or not acts:
        return
    kept = select(admission.c.at).where(admission.c.run_id == one.plan.run_id, admission.c.rung == one.rung)
    last = conn.execute(kept).scalar()
    if last is not None and last > utc_text(at):
        n_disruptive = sum(step.is_disruptive for step in acts)
        yield {
            "run_id": one.plan.run_id,
            "rung": one.rung,
            "at": utc_text(one.judged_at),
            "n_disruptive": n_disruptive,
        }
