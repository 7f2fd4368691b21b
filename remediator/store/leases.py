"""Leases: the projection of their events, and what is asked of it. Called inside a transaction or on a reader.

Truth stays in the log: each change here is made in the transaction of the event that explains it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, RowMapping, bindparam, case, delete, func, insert, select, update

from remediator.core.event import utc_text, utc_time
from remediator.core.lease import How, Lease, stack_id
from remediator.core.plan import pack_undo, unpack_undo
from remediator.store.prepared import Prepared, Row
from remediator.store.tables import OPEN, due, lease, run, subject

_BY_ID = lease.c.id == bindparam("row")
_INSERT = Prepared(insert(lease))
_STACK = Prepared(
    select(lease)
    .where(lease.c.action == bindparam("of"), lease.c.target == bindparam("on"), OPEN)
    .order_by(lease.c.number)
)
_STACKS = Prepared(select(lease.c.action, lease.c.target).where(OPEN).distinct())
_STACKS_OF_VALUES = Prepared(
    select(lease.c.action, lease.c.target)
    .where(lease.c.playbook == bindparam("playbook"), lease.c.per_key == bindparam("per"), OPEN)
    .distinct()
)
_STACKS_ON = Prepared(select(lease.c.action, lease.c.target).where(lease.c.target == bindparam("ref"), OPEN).distinct())
_OF_RUN = Prepared(select(lease).where(lease.c.run_id == bindparam("run")).order_by(lease.c.number))
_CLOSE = Prepared(
    update(lease)
    .where(_BY_ID)
    .values(closed_at=bindparam("at"), how=bindparam("way"), detail=bindparam("why"), undo_started_at=None)
)
_RELEASE = Prepared(update(lease).where(_BY_ID).values(released_at=bindparam("at")))
_KEEP = Prepared(update(lease).where(_BY_ID).values(kept_at=bindparam("at")))
_REQUEST = Prepared(
    update(lease).where(_BY_ID).values(requested_at=bindparam("at"), requested_by=bindparam("by"), retry_at=None)
)
_START = Prepared(update(lease).where(_BY_ID).values(undo_started_at=bindparam("at"), retry_at=None))
_STOP = Prepared(update(lease).where(_BY_ID).values(undo_started_at=None, retry_at=bindparam("again")))
_LEAVE = Prepared(update(lease).where(_BY_ID).values(left=bindparam("state")))
_YOUNGER_CLOSED_AT = Prepared(
    select(func.max(lease.c.closed_at)).where(
        lease.c.run_id == bindparam("run"),
        lease.c.action == bindparam("of"),
        lease.c.target == bindparam("on"),
        lease.c.number > select(lease.c.number).where(lease.c.id == bindparam("row")).scalar_subquery(),
    )
)
_OF_VALUES = (
    subject.c.playbook == bindparam("playbook"),
    subject.c.per_key == bindparam("per"),
    subject.c.is_by_hand == 0,
)
_FIRES = Prepared(select(subject.c.id).where(*_OF_VALUES, subject.c.closed_at.is_(None)).limit(1))
_LAST_END = Prepared(
    select(subject.c.closed_at, subject.c.close_reason)
    .where(*_OF_VALUES, subject.c.closed_at.is_not(None))
    .order_by(subject.c.closed_at.desc())
    .limit(1)
)
_UNSET_DUE = Prepared(delete(due).where(due.c.kind == "lease", due.c.id == bindparam("row")))
_SET_DUE = Prepared(insert(due).prefix_with("OR REPLACE"))


def _time(text: str | None) -> datetime | None:
    return utc_time(text) if text else None


def _lease(row: Row | RowMapping) -> Lease:
    return Lease(
        id=row["id"],
        run_id=row["run_id"],
        playbook=row["playbook"],
        per_key=row["per_key"],
        step=row["step"],
        action=row["action"],
        target=row["target"],
        params=json.loads(row["params"]),
        before=json.loads(row["before"]),
        left=json.loads(row["left"]),
        undo=unpack_undo(json.loads(row["undo"])),
        prometheus=row["prometheus"],
        timeout=timedelta(milliseconds=row["timeout_ms"]),
        is_by_hand=bool(row["is_by_hand"]),
        is_latched=bool(row["is_latched"]),
        opened_at=utc_time(row["opened_at"]),
        ends_at=_time(row["ends_at"]),
        released_at=_time(row["released_at"]),
        kept_at=_time(row["kept_at"]),
        requested_at=_time(row["requested_at"]),
        requested_by=row["requested_by"],
        undo_started_at=_time(row["undo_started_at"]),
        retry_at=_time(row["retry_at"]),
        closed_at=_time(row["closed_at"]),
        how=row["how"],
        detail=row["detail"],
    )


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(dict(value), ensure_ascii=False)


# -- changes -----------------------------------------------------------------------------------------------------------


def open_lease(conn: Connection, new: Lease) -> None:
    """It is the top of its stack now; a second one of the same attempt breaks a unique index."""
    _INSERT.run(
        conn,
        id=new.id,
        run_id=new.run_id,
        playbook=new.playbook,
        per_key=new.per_key,
        step=new.step,
        action=new.action,
        target=new.target,
        params=_json(new.params),
        before=_json(new.before),
        left=_json(new.left),
        undo=_json(pack_undo(new.undo)),
        prometheus=new.prometheus,
        timeout_ms=int(new.timeout.total_seconds() * 1000),
        is_by_hand=int(new.is_by_hand),
        is_latched=int(new.is_latched),
        opened_at=utc_text(new.opened_at),
        ends_at=utc_text(new.ends_at) if new.ends_at is not None else None,
    )


def close(conn: Connection, lease_id: str, how: How, detail: str, at: datetime) -> None:
    """It is over."""
    _CLOSE.run(conn, row=lease_id, at=utc_text(at), way=how.value, why=detail)


def release(conn: Connection, lease_id: str, at: datetime) -> None:
    """It goes with the one above it."""
    _RELEASE.run(conn, row=lease_id, at=utc_text(at))


def keep(conn: Connection, lease_id: str, at: datetime) -> None:
    """It stays beyond its time."""
    _KEEP.run(conn, row=lease_id, at=utc_text(at))


def request(conn: Connection, lease_id: str, at: datetime, by: str) -> None:
    """A person wants it taken back, and not only when it would be tried again by itself."""
    _REQUEST.run(conn, row=lease_id, at=utc_text(at), by=by)


def start_undo(conn: Connection, lease_id: str, at: datetime) -> None:
    """Its undo begins: until it ends, nobody else gets the target."""
    _START.run(conn, row=lease_id, at=utc_text(at))


def stop_undo(conn: Connection, lease_id: str, retry_at: datetime) -> None:
    """Its undo ended and did not take it back; it is tried again then."""
    _STOP.run(conn, row=lease_id, again=utc_text(retry_at))


def leave(conn: Connection, lease_id: str, left: Mapping[str, Any]) -> None:
    """The target was left in this state when the lease above it was undone."""
    _LEAVE.run(conn, row=lease_id, state=_json(left))


def set_due(conn: Connection, stack: str, at: datetime | None) -> None:
    """When to look at this stack next; None = only when an event wakes it."""
    if at is None:
        _UNSET_DUE.run(conn, row=stack)
        return
    _SET_DUE.run(conn, kind="lease", id=stack, at=utc_text(at))


# -- questions ---------------------------------------------------------------------------------------------------------


def stack(conn: Connection, action: str, target: str) -> tuple[Lease, ...]:
    """The open leases of one action on one target, by the order of their opening."""
    return tuple(_lease(row) for row in _STACK.all(conn, of=action, on=target))


def stacks(conn: Connection) -> list[str]:
    """Ids of all stacks."""
    return [stack_id(row["action"], row["target"]) for row in _STACKS.all(conn)]


def stacks_of_values(conn: Connection, playbook: str, per_key: str) -> list[str]:
    """Ids of the stacks that hold a lease of this playbook for these values."""
    found = _STACKS_OF_VALUES.all(conn, playbook=playbook, per=per_key)
    return [stack_id(row["action"], row["target"]) for row in found]


def stacks_on(conn: Connection, refs: Iterable[str]) -> list[str]:
    """Ids of the stacks on these targets."""
    rows = [row for ref in refs for row in _STACKS_ON.all(conn, ref=ref)]
    return [stack_id(row["action"], row["target"]) for row in rows]


def of_run(conn: Connection, run_id: str) -> list[Lease]:
    """All leases of a run, closed ones too, by the order of their opening."""
    return [_lease(row) for row in _OF_RUN.all(conn, run=run_id)]


def younger_closed_at(conn: Connection, of: Lease) -> datetime | None:
    """When the last younger lease of the same run on the same target was closed."""
    return _time(_YOUNGER_CLOSED_AT.value(conn, run=of.run_id, of=of.action, on=of.target, row=of.id))


def word_of_values(conn: Connection, playbook: str, per_key: str) -> tuple[bool, datetime | None, str]:
    """Whether anything of a playbook fires for these values, whichever case; and when and how they last ended."""
    values = {"playbook": playbook, "per": per_key}
    last = _LAST_END.first(conn, **values)
    fires = _FIRES.value(conn, **values) is not None
    return fires, _time(last["closed_at"]) if last else None, last["close_reason"] if last else ""


def count_by_state(conn: Connection) -> dict[str, int]:
    """Open leases by state: open, released, kept."""
    state = case((lease.c.released_at.is_not(None), "released"), (lease.c.kept_at.is_not(None), "kept"), else_="open")
    query = select(state.label("state"), func.count().label("n")).where(OPEN).group_by(state)
    return {row.state: row.n for row in conn.execute(query)}


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRow:
    """A lease as lists show it.

    Attributes:
        per: its subject's values.
        due_at: when its stack is looked at next, None when only an event wakes it.
    """

    lease: Lease
    per: Mapping[str, str]
    due_at: datetime | None


def list_leases(conn: Connection, limit: int, *, is_all: bool) -> list[LeaseRow]:
    """The youngest first: those that are open, or closed ones too."""
    stack = "lease:" + lease.c.action + "|" + lease.c.target
    query = (
        select(lease, subject.c.per, due.c.at.label("due_at"))
        .join(run, run.c.id == lease.c.run_id)
        .join(subject, subject.c.id == run.c.subject_id)
        .outerjoin(due, (due.c.kind == "lease") & (due.c.id == stack) & lease.c.closed_at.is_(None))
        .order_by(lease.c.opened_at.desc(), lease.c.number.desc())
        .limit(limit)
    )
    if not is_all:
        query = query.where(lease.c.closed_at.is_(None))
    return [
        LeaseRow(lease=_lease(row), per=json.loads(row["per"]), due_at=_time(row["due_at"]))
        for row in conn.execute(query).mappings()
    ]
