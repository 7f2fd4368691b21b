"""Runs and what they hold: the projection of their events, due times, reservations, acts. Truth stays in the log."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import (
    Connection,
    RowMapping,
    Select,
    bindparam,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    update,
)

from remediator.core.event import utc_text, utc_time
from remediator.core.guard import Pause
from remediator.core.outcome import RunOutcome
from remediator.core.plan import Plan
from remediator.core.run import Phase
from remediator.errors import Reason
from remediator.store.prepared import Prepared, Row
from remediator.store.tables import (
    ADMITTED,
    NOT_CLOSED,
    OPEN,
    UNKNOWN,
    WITHOUT_FIX,
    able,
    act,
    admission,
    control,
    due,
    lease,
    reservation,
    run,
    subject,
    subject_episode,
    told,
)

PLACE = f"max_concurrent_runs:{Reason.CONCURRENCY.value}"
"""What a plan waits for that waits for a place among the runs at work."""

NOT_FREED_BY_AN_END = frozenset({"breaker", "pause", "max_disruptive_acts"})
"""Rules whose waits end by a person or by time alone."""


_BY_ID = run.c.id == bindparam("row")
_INSERT = Prepared(insert(run))
_SET_PHASE = Prepared(update(run).where(_BY_ID).values(phase=bindparam("to"), waits_for=bindparam("waits")))
_ADMIT = Prepared(
    update(run)
    .where(_BY_ID)
    .values(phase=Phase.ACTING.value, is_admitted=bindparam("counts"), waits_for="[]", rung=bindparam("to"))
)
_NOTE_ADMISSION = Prepared(insert(admission).prefix_with("OR REPLACE"))
_HOLD = Prepared(insert(reservation))
_UNHOLD = Prepared(delete(reservation).where(reservation.c.run_id == bindparam("row")))
_RELEASE = Prepared(update(run).where(_BY_ID).values(is_admitted=0))
_FINISH = Prepared(
    update(run)
    .where(_BY_ID)
    .values(
        phase=Phase.ENDED.value,
        outcome=bindparam("how"),
        reason=bindparam("why"),
        waits_for="[]",
        ended_at=bindparam("at"),
        is_admitted=0,
    )
)
_INSERT_ACT = Prepared(insert(act))
_HAS_ACTED = Prepared(update(run).where(_BY_ID).values(has_acted=1))


def insert_run(conn: Connection, plan: Plan, at: datetime, phase: Phase) -> None:
    """A plan was made for an opened subject; a second one for the same subject breaks a unique index."""
    _INSERT.run(
        conn,
        id=plan.run_id,
        subject_id=plan.subject_id,
        playbook=plan.playbook,
        case_name=plan.case,
        per_key=plan.per_key,
        created_at=utc_text(at),
        phase=phase.value,
    )


def set_phase(conn: Connection, run_id: str, phase: Phase, waits_for: Sequence[str] = ()) -> None:
    """Where it is now, and what it waits for."""
    _SET_PHASE.run(conn, row=run_id, to=phase.value, waits=json.dumps(list(waits_for)))


def admit(
    conn: Connection,
    run_id: str,
    targets: Mapping[str, bool],
    at: datetime,
    *,
    counts: bool,
    rung: int,
    n_disruptive: int,
) -> None:
    """It may act on this rung, and holds these targets.

    Args:
        targets: ref → whether it is held exclusively.
        counts: in ``max_concurrent_runs``; a plan of messages alone does not.
        n_disruptive: disruptive steps of the rung, for ``max_disruptive_acts``.
    """
    _ADMIT.run(conn, row=run_id, counts=int(counts), to=rung)
    if counts:
        _NOTE_ADMISSION.run(conn, run_id=run_id, rung=rung, at=utc_text(at), n_disruptive=n_disruptive)
    hold(conn, run_id, targets, at)


def hold(conn: Connection, run_id: str, targets: Mapping[str, bool], at: datetime) -> None:
    """It holds these targets and no others: ref → whether exclusively."""
    _UNHOLD.run(conn, row=run_id)
    for ref in sorted(targets):
        _HOLD.run(conn, target=ref, run_id=run_id, is_exclusive=int(targets[ref]), at=utc_text(at))


def release(conn: Connection, run_id: str) -> None:
    """It has no place among those at work any more, and holds nothing."""
    _RELEASE.run(conn, row=run_id)
    _UNHOLD.run(conn, row=run_id)


def give_place_back(conn: Connection, run_id: str) -> None:
    """It has no place among those at work any more, and holds what it holds: before its next rung, or while it asks."""
    _RELEASE.run(conn, row=run_id)


def finish(conn: Connection, run_id: str, outcome: RunOutcome, reason: Reason, at: datetime) -> None:
    """It ended. Its reservations go, unless nobody knows what it did: then they stay until a person settles it."""
    _FINISH.run(conn, row=run_id, how=outcome.value, why=reason.value, at=utc_text(at))
    if outcome is not RunOutcome.UNKNOWN:
        _UNHOLD.run(conn, row=run_id)


def note_act(conn: Connection, plan: Plan, targets: Sequence[str], at: datetime, *, is_disruptive: bool) -> None:
    """The world was changed, or may have been."""
    for ref in targets or ("",):
        _INSERT_ACT.run(
            conn,
            run_id=plan.run_id,
            playbook=plan.playbook,
            per_key=plan.per_key,
            target=ref,
            at=utc_text(at),
            is_disruptive=int(is_disruptive),
        )
    _HAS_ACTED.run(conn, row=plan.run_id)


# -- what the guard counts ---------------------------------------------------------------------------------------------


_LAST_DISRUPTIVE = Prepared(
    select(act.c.at, act.c.playbook)
    .where(act.c.target == bindparam("ref"), act.c.is_disruptive == 1, act.c.run_id != bindparam("but_run"))
    .order_by(act.c.at.desc())
    .limit(1)
)
_ACTED_AT = Prepared(
    select(func.max(act.c.at).label("at"))
    .where(act.c.playbook == bindparam("of"), act.c.per_key == bindparam("per"), act.c.run_id != bindparam("but_run"))
    .group_by(act.c.run_id)
)
_N_ADMITTED = Prepared(select(func.count()).select_from(run).where(ADMITTED, run.c.id != bindparam("but_run")))
_IS_ABOUT_TO_ACT = Prepared(
    select(func.count())
    .select_from(run)
    .where(
        ADMITTED,
        run.c.has_acted == 0,
        run.c.playbook == bindparam("of"),
        run.c.per_key == bindparam("per"),
        run.c.id != bindparam("but_run"),
    )
)
_IS_OLDER = (
    NOT_CLOSED,
    run.c.phase == Phase.WAITING.value,
    run.c.created_at < bindparam("before"),
    run.c.id != bindparam("but_run"),
)
_N_AHEAD = Prepared(select(func.count()).select_from(run).where(*_IS_OLDER, run.c.waits_for == json.dumps([PLACE])))
_AWAITED = Prepared(select(run.c.id, run.c.waits_for).where(*_IS_OLDER, run.c.waits_for.like('%"busy:%')))
_HELD = Prepared(
    select(reservation.c.target, reservation.c.is_exclusive).where(reservation.c.run_id == bindparam("row"))
)
_LAST_RUNG = Prepared(
    select(run.c.ended_at, run.c.rung)
    .where(
        run.c.playbook == bindparam("of"),
        run.c.per_key == bindparam("per"),
        run.c.has_acted == 1,
        run.c.ended_at.is_not(None),
        run.c.id != bindparam("but_run"),
    )
    .order_by(run.c.ended_at.desc())
    .limit(1)
)
_TAKEN = Prepared(
    select(reservation.c.run_id, reservation.c.is_exclusive).where(
        reservation.c.target == bindparam("ref"), reservation.c.run_id != bindparam("but_run")
    )
)
_TAKEN_BACK = Prepared(
    select(lease.c.run_id)
    .where(lease.c.target == bindparam("ref"), OPEN, lease.c.undo_started_at.is_not(None))
    .order_by(lease.c.number.desc())
    .limit(1)
)


_IS_ADMITTED = Prepared(select(run.c.is_admitted).where(_BY_ID))
_CHANGED_BY = Prepared(
    select(act.c.target, func.max(act.c.at).label("at"))
    .where(act.c.playbook == bindparam("of"), act.c.at > bindparam("since"), act.c.target != "")
    .group_by(act.c.target)
)
# No DISTINCT: for it SQLite walks the whole index of targets.
_CHANGED_SINCE = Prepared(select(act.c.target).where(act.c.at > bindparam("since"), act.c.target != ""))
_PROMISED = Prepared(
    select(reservation.c.target, run.c.playbook)
    .select_from(run)
    .join(reservation, reservation.c.run_id == run.c.id)
    .where(
        ADMITTED,
        run.c.id != bindparam("but_run"),
        reservation.c.is_exclusive == 1,
        ~exists().where(act.c.run_id == run.c.id, act.c.target == reservation.c.target),
    )
)
_ADMITTED_ACTS = Prepared(
    select(admission.c.at, admission.c.n_disruptive).where(
        admission.c.at > bindparam("since"),
        or_(admission.c.run_id != bindparam("but_run"), admission.c.rung != bindparam("but_rung")),
    )
)
_N_WITHOUT_FIX = Prepared(
    select(func.count())
    .select_from(run)
    .where(
        WITHOUT_FIX,
        run.c.ended_at > bindparam("since"),
        select(admission.c.run_id).where(admission.c.run_id == run.c.id).exists(),
    )
)


def is_admitted(conn: Connection, run_id: str) -> bool:
    """Whether it has a place among those at work."""
    return bool(_IS_ADMITTED.value(conn, row=run_id))


def changed_by(conn: Connection, playbook: str, since: datetime) -> dict[str, datetime]:
    """Ref → when this playbook last changed it, of what it changed later than ``since``."""
    return {row["target"]: utc_time(row["at"]) for row in _CHANGED_BY.all(conn, of=playbook, since=utc_text(since))}


def changed_since(conn: Connection, since: datetime) -> frozenset[str]:
    """Refs that any playbook changed later than ``since``."""
    return frozenset(row["target"] for row in _CHANGED_SINCE.all(conn, since=utc_text(since)))


def promised(conn: Connection, but_run: str) -> dict[str, str]:
    """Ref → playbook, of what other runs at work hold for themselves and have not changed yet."""
    return {row["target"]: row["playbook"] for row in _PROMISED.all(conn, but_run=but_run)}


def admitted_acts(conn: Connection, since: datetime, but_run: str, but_rung: int) -> list[tuple[datetime, int]]:
    """When rungs were admitted later than ``since``, and with how many disruptive steps; all but this one."""
    rows = _ADMITTED_ACTS.all(conn, since=utc_text(since), but_run=but_run, but_rung=but_rung)
    return [(utc_time(row["at"]), row["n_disruptive"]) for row in rows]


def n_without_fix(conn: Connection, since: datetime) -> int:
    """Runs that were let act and ended failed, ineffective or unknown later than ``since``.

    Messages that could not be sent are no reason to stop all repair.
    """
    return int(_N_WITHOUT_FIX.value(conn, since=utc_text(since)))


def last_disruptive(conn: Connection, targets: Sequence[str], but_run: str) -> dict[str, tuple[datetime, str]]:
    """Ref → when, and by which playbook, it was last disrupted by another run."""
    found: dict[str, tuple[datetime, str]] = {}
    for ref in targets:
        row = _LAST_DISRUPTIVE.first(conn, ref=ref, but_run=but_run)
        if row:
            found[ref] = (utc_time(row["at"]), row["playbook"])
    return found


def acted_at(conn: Connection, playbook: str, per_key: str, but_run: str) -> list[datetime]:
    """When each other run of this playbook that acted for these values last did so."""
    return [utc_time(row["at"]) for row in _ACTED_AT.all(conn, of=playbook, per=per_key, but_run=but_run)]


def n_admitted(conn: Connection, but_run: str) -> int:
    """Other runs that act or verify now."""
    return int(_N_ADMITTED.value(conn, but_run=but_run))


def is_about_to_act(conn: Connection, playbook: str, per_key: str, but_run: str) -> bool:
    """Whether another run of this playbook has its place for these values and has not acted yet."""
    return bool(_IS_ABOUT_TO_ACT.value(conn, of=playbook, per=per_key, but_run=but_run))


def n_ahead(conn: Connection, but_run: str, created_at: datetime) -> int:
    """How many older plans were judged and wait for a place alone."""
    return int(_N_AHEAD.value(conn, but_run=but_run, before=utc_text(created_at)))


def awaited(conn: Connection, refs: Iterable[str], but_run: str, created_at: datetime) -> dict[str, str]:
    """Ref → an older plan that was judged and waits for it."""
    found: dict[str, str] = {}
    for row in _AWAITED.all(conn, but_run=but_run, before=utc_text(created_at)):
        waits_for = set(json.loads(row["waits_for"]))
        for ref in refs:
            if f"busy:{ref}" in waits_for:
                found.setdefault(ref, row["id"])
    return found


def held(conn: Connection, run_id: str) -> dict[str, bool]:
    """What a run holds: ref → whether exclusively."""
    return {row["target"]: bool(row["is_exclusive"]) for row in _HELD.all(conn, row=run_id)}


def last_rung(conn: Connection, playbook: str, per_key: str, but_run: str) -> tuple[datetime, int] | None:
    """When the last run of this playbook that acted for these values ended, and the highest rung that it reached."""
    row = _LAST_RUNG.first(conn, of=playbook, per=per_key, but_run=but_run)
    return (utc_time(row["ended_at"]), row["rung"]) if row else None


def taken(conn: Connection, wanted: Mapping[str, bool], but_run: str) -> dict[str, str]:
    """Ref → the run that has it, of those that cannot be had: two may share what neither wants alone.

    What is being taken back right now can nobody have, not even the run whose change it was.
    """
    found: dict[str, str] = {}
    for ref, is_exclusive in wanted.items():
        taken_back = _TAKEN_BACK.value(conn, ref=ref)
        if taken_back:
            found[ref] = taken_back
        for row in _TAKEN.all(conn, ref=ref, but_run=but_run):
            if is_exclusive or row["is_exclusive"]:
                found[ref] = row["run_id"]
    return found


# -- reading runs ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """A run as lists show it.

    Attributes:
        waits_for: ``rule:reason`` each, () when it waits for nothing.
        per: the subject's values.
        due_at: when it is looked at next, None when only an event wakes it.
    """

    id: str
    subject_id: str
    playbook: str
    case: str
    per: Mapping[str, str]
    created_at: datetime
    phase: Phase
    outcome: str
    reason: str
    waits_for: tuple[str, ...]
    ended_at: datetime | None
    is_admitted: bool
    has_acted: bool
    due_at: datetime | None


_THIS = subject.alias()


def _query() -> Select[Any]:
    return (
        select(run, subject.c.per, due.c.at.label("due_at"))
        .join(subject, subject.c.id == run.c.subject_id)
        .outerjoin(due, (due.c.id == run.c.id) & (due.c.kind == "run"))
    )


def _row(row: Row | RowMapping) -> RunRow:
    return RunRow(
        id=row["id"],
        subject_id=row["subject_id"],
        playbook=row["playbook"],
        case=row["case_name"],
        per=json.loads(row["per"]),
        created_at=utc_time(row["created_at"]),
        phase=Phase(row["phase"]),
        outcome=row["outcome"],
        reason=row["reason"],
        waits_for=tuple(json.loads(row["waits_for"])) if row["waits_for"] else (),
        ended_at=utc_time(row["ended_at"]) if row["ended_at"] else None,
        is_admitted=bool(row["is_admitted"]),
        has_acted=bool(row["has_acted"]),
        due_at=utc_time(row["due_at"]) if row["due_at"] else None,
    )


_OF_ID = Prepared(_query().where(run.c.id == bindparam("row")))
_OF_SUBJECT = Prepared(_query().where(run.c.subject_id == bindparam("row")))
_WAITING_FOR_WORD = Prepared(
    select(run.c.id)
    .join(subject_episode, subject_episode.c.subject_id == run.c.subject_id)
    .where(subject_episode.c.episode_id == bindparam("episode"), NOT_CLOSED, run.c.waits_for.like('%"turn:%'))
)
_MAY_GO_ON = Prepared(
    select(run.c.id, run.c.waits_for)
    .where(NOT_CLOSED, run.c.phase == Phase.WAITING.value)
    .order_by(run.c.created_at, run.c.id)
)
_IS_REOPENED = Prepared(
    select(run.c.id)
    .join(subject, subject.c.id == run.c.subject_id)
    .where(
        run.c.playbook == bindparam("of"),
        run.c.per_key == bindparam("per"),
        run.c.case_name == bindparam("case"),
        run.c.subject_id != bindparam("this"),
        subject.c.is_by_hand == 0,
        subject.c.opened_at > select(_THIS.c.opened_at).where(_THIS.c.id == bindparam("this")).scalar_subquery(),
    )
    .limit(1)
)


def get_run(conn: Connection, run_id: str) -> RunRow | None:
    """By its id."""
    row = _OF_ID.first(conn, row=run_id)
    return _row(row) if row else None


def run_of_subject(conn: Connection, subject_id: str) -> RunRow | None:
    """The one run of a subject; None when it was adopted."""
    row = _OF_SUBJECT.first(conn, row=subject_id)
    return _row(row) if row else None


def open_run_by_hand(conn: Connection, playbook: str, case: str, per_key: str) -> RunRow | None:
    """A run of this playbook for these values that a person asked for and that has not ended."""
    query = _query().where(
        run.c.playbook == playbook,
        run.c.per_key == per_key,
        run.c.case_name == case,
        run.c.ended_at.is_(None),
        subject.c.is_by_hand == 1,
    )
    row = conn.execute(query.limit(1)).mappings().first()
    return _row(row) if row else None


def list_runs(conn: Connection, state: str, limit: int) -> list[RunRow]:
    """Newest first. ``state``: open (not ended), ended, all."""
    query = _query().order_by(run.c.created_at.desc(), run.c.id).limit(limit)
    if state == "open":
        query = query.where(NOT_CLOSED, run.c.ended_at.is_(None))
    elif state == "ended":
        query = query.where(run.c.ended_at.is_not(None))
    return [_row(row) for row in conn.execute(query).mappings()]


def waiting_for_word(conn: Connection, episode_id: str) -> list[str]:
    """Ids of the runs of this episode's subjects whose turn has come and that wait to hear that it fires."""
    return [row["id"] for row in _WAITING_FOR_WORD.all(conn, episode=episode_id)]


def not_closed(conn: Connection) -> list[str]:
    """Ids of the runs for which something may still have to be done, oldest first."""
    return [row["id"] for row in _NOT_CLOSED.all(conn)]


def may_go_on(conn: Connection, n_places: int) -> list[str]:
    """Ids of the runs that may have their turn now that another run has ended, oldest first.

    Of those that wait for a place alone only as many as there can be places, and of those that no run's end can free
    none: in a storm the end of each run would else have all the others judged again.
    """
    found: list[str] = []
    for row in _MAY_GO_ON.all(conn):
        waits_for = json.loads(row["waits_for"] or "[]")
        if any(what.partition(":")[0] in NOT_FREED_BY_AN_END for what in waits_for):
            continue
        if waits_for_place_alone(waits_for):
            n_places -= 1
            if n_places < 0:
                continue
        found.append(row["id"])
    return found


def waiting_for_breaker(conn: Connection) -> list[str]:
    """Ids of the runs that a breaker holds, oldest first."""
    rows = _MAY_GO_ON.all(conn)
    return [row["id"] for row in rows if '"breaker:' in row["waits_for"]]


def waits_for_place_alone(waits_for: Sequence[str]) -> bool:
    """Whether nothing but ``max_concurrent_runs`` is in its way."""
    return list(waits_for) == [PLACE]


def is_reopened(conn: Connection, plan: Plan) -> bool:
    """Whether the same values fired again after this subject, as another one, be that over again or not.

    Asked by way of the later subject's run, since runs are indexed by their values.
    """
    return (
        _IS_REOPENED.value(conn, of=plan.playbook, per=plan.per_key, case=plan.case, this=plan.subject_id) is not None
    )


def count_by_phase(conn: Connection) -> dict[str, int]:
    """Runs by phase, without those that are closed."""
    query = select(run.c.phase, func.count().label("n")).where(NOT_CLOSED).group_by(run.c.phase)
    return {row.phase: row.n for row in conn.execute(query)}


def count_waiting(conn: Connection) -> dict[str, int]:
    """How many runs wait for each reason; one that waits for several counts in each."""
    query = (
        select(run.c.waits_for, func.count().label("n"))
        .where(NOT_CLOSED, run.c.ended_at.is_(None), run.c.waits_for.not_in(("", "[]")))
        .group_by(run.c.waits_for)
    )
    found: dict[str, int] = {}
    for row in conn.execute(query):
        pairs = (what.partition(":") for what in json.loads(row.waits_for))
        for reason in {reason for rule, _, reason in pairs if rule != "busy"}:
            found[reason] = found.get(reason, 0) + row.n
    return found


def count_ended(conn: Connection, since: datetime) -> list[tuple[str, str, int]]:
    """Of the runs that were made since then and have ended: outcome, reason, and how many ended so."""
    query = (
        select(run.c.outcome, run.c.reason, func.count().label("n"))
        .where(run.c.created_at >= utc_text(since), run.c.ended_at.is_not(None))
        .group_by(run.c.outcome, run.c.reason)
        .order_by(run.c.outcome, run.c.reason)
    )
    return [(row.outcome, row.reason, row.n) for row in conn.execute(query)]


def unsettled(conn: Connection) -> list[str]:
    """Ids of runs of which nobody knows what they did."""
    query = select(run.c.id).where(UNKNOWN, run.c.id.in_(select(reservation.c.run_id)))
    return list(conn.execute(query).scalars())


# -- due times ---------------------------------------------------------------------------------------------------------


_UNSET_DUE = Prepared(delete(due).where(due.c.kind == "run", due.c.id == bindparam("row")))
_SET_DUE = Prepared(insert(due).prefix_with("OR REPLACE"))


def set_due(conn: Connection, run_id: str, at: datetime | None) -> None:
    """When to look at this run next; None = only when an event wakes it."""
    if at is None:
        _UNSET_DUE.run(conn, row=run_id)
        return
    _SET_DUE.run(conn, kind="run", id=run_id, at=utc_text(at))


# -- told, able, control -----------------------------------------------------------------------------------------------


_TOLD_AT = Prepared(
    select(told.c.ending, told.c.at).where(told.c.playbook == bindparam("of"), told.c.per_key == bindparam("per"))
)
_NOTE_TOLD = Prepared(insert(told).prefix_with("OR REPLACE"))
_ABLE = Prepared(select(able))
_SET_ABLE = Prepared(insert(able).prefix_with("OR REPLACE"))
_SET_CONTROL = Prepared(insert(control).prefix_with("OR REPLACE"))
_NOT_CLOSED = Prepared(select(run.c.id).where(NOT_CLOSED).order_by(run.c.created_at, run.c.id))
_GET_CONTROL = Prepared(select(control.c.value).where(control.c.key == bindparam("name")))


def told_at(conn: Connection, playbook: str, per_key: str) -> dict[str, datetime]:
    """Ending → when people were last told of it, of these values."""
    return {ending: utc_time(at) for ending, at in _TOLD_AT.run(conn, of=playbook, per=per_key)}


def note_told(conn: Connection, playbook: str, per_key: str, ending: str, at: datetime) -> None:
    """People were told."""
    _NOTE_TOLD.run(conn, playbook=playbook, per_key=per_key, ending=ending, at=utc_text(at))


def able_since(conn: Connection) -> dict[str, tuple[str, datetime]]:
    """Playbook → (able key, since when it can act on what that key matches)."""
    return {row["playbook"]: (row["able_key"], utc_time(row["since"])) for row in _ABLE.all(conn)}


def set_able(conn: Connection, playbook: str, able_key: str, since: datetime) -> None:
    """From now on this playbook can act on what it matches."""
    _SET_ABLE.run(conn, playbook=playbook, able_key=able_key, since=utc_text(since))


def unset_able(conn: Connection, playbook: str) -> None:
    """It cannot act any more (gone, observing, disabled)."""
    conn.execute(delete(able).where(able.c.playbook == playbook))


def get_control(conn: Connection, key: str) -> dict[str, Any] | None:
    """A small JSON value of the engine's own."""
    text = _GET_CONTROL.value(conn, name=key)
    return json.loads(text) if text else None


def set_control(conn: Connection, key: str, value: Mapping[str, Any] | None) -> None:
    """Keep it; None takes it away."""
    if value is None:
        conn.execute(delete(control).where(control.c.key == key))
        return
    _SET_CONTROL.run(conn, key=key, value=json.dumps(dict(value)))


def get_pause(conn: Connection) -> Pause | None:
    """Who paused the engine, None when nobody has."""
    value = get_control(conn, "pause")
    return Pause(by=value["by"], reason=value["reason"], at=value["at"]) if value else None
