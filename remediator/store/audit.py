"""The audit log: a chain of events that shows every later change to it.

Takes an ``Event`` → its canonical bytes, its hash over them and the hash before, its row; and back: events for people,
for ``fold`` and for export, and the check of the whole chain. Rows are only ever added here.

::

    body(seq) = RFC 8785 of the event with seq and prev_hash inside
    hash(seq) = SHA-256("remediator-audit-v1\\n" + hash(seq - 1) + "\\n" + body(seq))        hashes as lower-case hex
    hash(0)   = SHA-256(meta.log_id)

What it promises: a changed, deleted, inserted or moved event is found. A cut or wholly rewritten tail is found by who
kept a head (``SEQ:HASH``) elsewhere, and only then.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn

import rfc8785
from sqlalchemy import Connection, LargeBinary, RowMapping, Select, bindparam, cast, func, insert, select, text

from remediator.core.action import JsonValue
from remediator.core.event import Event, EventType, RecordedEvent, utc_text, utc_time
from remediator.errors import RunLostError, StoreError
from remediator.store.prepared import Prepared
from remediator.store.tables import audit, meta

HASH_PREFIX = b"remediator-audit-v1\n"

STREAM_ROWS = 500
"""Rows in memory at once while the log is streamed."""

COLUMNS = (
    "seq",
    "at",
    "type",
    "actor",
    "run_id",
    "n",
    "delivery_id",
    "episode_id",
    "subject_id",
    "playbook",
    "target",
    "outcome",
    "fingerprint",
    "prev_hash",
)
"""What a row repeats of its body, so that it can be searched; ``verify`` compares each."""

_STORED = (*COLUMNS, "body", "hash")
_INSERT = Prepared(
    insert(audit).from_select(
        _STORED,
        select(*(bindparam(name, type_=audit.c[name].type) for name in _STORED)).where(
            select(func.coalesce(func.max(audit.c.seq), 0)).scalar_subquery() == bindparam("last")
        ),
    )
)
"""Only behind the event that it follows: whoever remembers the log's end wrongly adds nothing."""
_LOG_ID = Prepared(select(meta.c.value).where(meta.c.key == "log_id"))
_LAST = Prepared(select(audit.c.seq, audit.c.hash).order_by(audit.c.seq.desc()).limit(1))
_OF_RUN = Prepared(
    select(audit.c.seq, audit.c.body, audit.c.hash)
    .where(audit.c.run_id == bindparam("run"), text("run_id <> ''"))
    .order_by(audit.c.n)
)
"""The second condition says nothing new, but without it SQLite cannot use the index, which leaves "" out."""
_OF_RUN_FROM = Prepared(
    select(audit.c.seq, audit.c.body, audit.c.hash)
    .where(audit.c.run_id == bindparam("run"), text("run_id <> ''"), audit.c.seq >= bindparam("since"))
    .order_by(audit.c.seq)
)
_BEHIND = Prepared(
    select(audit.c.seq, audit.c.body, audit.c.hash).where(audit.c.seq > bindparam("place")).order_by(audit.c.seq)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Which events. Every field narrows; the defaults do not.

    Attributes:
        since: aware, inclusive.
        until: aware, exclusive.
        limit: at most so many.
        after_seq: only events with a greater seq.
    """

    since: datetime | None = None
    until: datetime | None = None
    playbook: str = ""
    target: str = ""
    outcome: str = ""
    fingerprint: str = ""
    run_id: str = ""
    type: EventType | None = None
    limit: int | None = None
    after_seq: int = 0


EVERYTHING = AuditFilter()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What the check of a chain found.

    Attributes:
        n_events: events that fit, counted from the first.
        head_seq, head_hash: of the last event that fits; 0 and the genesis (or "") before the first.
        first_bad_seq: of the first event that does not fit or is missing; None when all do.
        problem: what is wrong with it, "" when nothing is.
    """

    ok: bool
    n_events: int
    head_seq: int
    head_hash: str
    first_bad_seq: int | None = None
    problem: str = ""


def canonical_body(seq: int, prev_hash: str, event: Event) -> bytes:
    """The bytes that the hash covers.

    Raises:
        ValueError: a value that has no canonical form (a float, None, an int of 2**53 or more, a lone surrogate), or a
            naive time.
    """
    return canonical({"seq": seq, "prev_hash": prev_hash, **_columns(event), "data": _plain(event.data)})


def canonical(value: Any) -> bytes:
    """RFC 8785 of what ``_plain`` lets through.

    For text within ASCII the standard library's encoder writes the same, ten times as fast; beyond it RFC 8785 sorts
    keys by their UTF-16 units and has no place for half of a surrogate pair.

    Raises:
        ValueError: half of a surrogate pair.
    """
    written = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return written.encode("ascii") if written.isascii() else rfc8785.dumps(value)


def as_dict(recorded: RecordedEvent) -> dict[str, Any]:
    """A recorded event as JSON shows it: the fields of its body, and its hash."""
    return {
        "seq": recorded.seq,
        **_columns(recorded.event),
        "data": _plain(recorded.event.data),
        "prev_hash": recorded.prev_hash,
        "hash": recorded.hash,
    }


def chain_hash(prev_hash: str, body: bytes) -> str:
    """SHA-256 hex over the previous hash and this body."""
    return hashlib.sha256(HASH_PREFIX + prev_hash.encode("ascii") + b"\n" + body).hexdigest()


def head(conn: Connection) -> tuple[int, str]:
    """The last event's seq and hash; 0 and the genesis hash in an empty log."""
    row = _LAST.run(conn).fetchone()
    if row is not None:
        return row[0], row[1]
    return 0, genesis(conn)


def genesis(conn: Connection) -> str:
    """The hash before the first event: it ties the chain to this store."""
    log_id: str = _LOG_ID.value(conn)
    return hashlib.sha256(log_id.encode()).hexdigest()


def last_seq(conn: Connection) -> int:
    """Of the last event, 0 in an empty log."""
    return head(conn)[0]


def append(conn: Connection, event: Event, after: tuple[int, str] | None = None) -> RecordedEvent:
    """Add one event at the end. Only the writer calls this (``Tx.append``).

    Args:
        after: seq and hash of the last event, where the caller has them; looked up when they are not right any more.

    Raises:
        RunLostError: the run has an event of this ``n`` already: somebody else goes on with it.
        ValueError: as ``canonical_body``.
    """
    last, prev_hash = after or head(conn)
    seq = last + 1
    body = canonical_body(seq, prev_hash, event)
    digest = chain_hash(prev_hash, body)
    try:
        cursor = _INSERT.run(conn, last=last, seq=seq, **_columns(event), body=body, prev_hash=prev_hash, hash=digest)
    except sqlite3.IntegrityError as error:
        # seq is new by construction, so only the run's own numbering can be broken.
        raise RunLostError(
            f"run {event.run_id} has an event {event.n} already: another worker goes on with it"
        ) from error
    if not cursor.rowcount:
        return append(conn, event)  # a part of the work was taken back
    return RecordedEvent(seq=seq, prev_hash=prev_hash, hash=digest, event=event)


def events_of_run(conn: Connection, run_id: str) -> list[RecordedEvent]:
    """A run's events by their ``n``: those that count down, of people and of leases, come first."""
    return [recorded_event(*row) for row in _OF_RUN.run(conn, run=run_id)]


def log_of_run(conn: Connection, run_id: str) -> list[RecordedEvent]:
    """A run's events in the order in which they were written: what ``fold`` takes."""
    return sorted(events_of_run(conn, run_id), key=lambda one: one.seq)


def log_of_run_behind(conn: Connection, run_id: str, seq: int, digest: str) -> list[RecordedEvent] | None:
    """What a run's log has behind its event of this place and hash; None when it has no such event."""
    first, *more = _OF_RUN_FROM.run(conn, run=run_id, since=seq).fetchall() or [(0, b"", "")]
    return [recorded_event(*row) for row in more] if (first[0], first[2]) == (seq, digest) else None


def events_behind(conn: Connection, seq: int) -> list[RecordedEvent]:
    """What the log has behind this place, oldest first."""
    return [recorded_event(*row) for row in _BEHIND.run(conn, place=seq)]


def list_events(
    conn: Connection, filters: AuditFilter = EVERYTHING, *, newest_first: bool = False
) -> list[RecordedEvent]:
    """The events that the filters leave; with ``newest_first`` a limit keeps the newest.

    Raises:
        StoreError: an event is not as the engine wrote it; ``verify`` says which and why.
    """
    statement = _filtered(select(audit.c.seq, audit.c.body, audit.c.hash), filters)
    statement = statement.order_by(audit.c.seq.desc() if newest_first else audit.c.seq)
    return [recorded_event(row.seq, row.body, row.hash) for row in conn.execute(statement)]


def run_ids(conn: Connection, prefix: str, *, limit: int) -> list[str]:
    """Ids of runs that begin so: people type the first few characters."""
    found = audit.c.run_id
    statement = select(found).where(found >= prefix, found < prefix + "\U0010ffff", found != "").distinct().limit(limit)
    return list(conn.execute(statement).scalars())


def export(conn: Connection, filters: AuditFilter = EVERYTHING) -> Iterator[dict[str, str]]:
    """The log as rows for JSON Lines, oldest first, streamed.

    Returns:
        ``{"body": the canonical JSON as text, "hash": hex}``: each row can be checked by itself, all rows together as a
        chain (``verify``), without this store.
    """
    statement = _filtered(select(cast(audit.c.body, LargeBinary), audit.c.hash), filters).order_by(audit.c.seq)
    for body, digest in conn.execution_options(yield_per=STREAM_ROWS).execute(statement):
        yield {"body": body.decode("utf-8", "backslashreplace"), "hash": str(digest)}


def export_line(row: Mapping[str, str]) -> bytes:
    """One line of the export, with its newline.

    Not limited to ASCII: without ``\\u`` escapes no single changed bit leaves the meaning as it was.
    """
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace") + b"\n"


def verify(
    source: Connection | Iterable[bytes],
    head: tuple[int, str] | None = None,
    *,
    on_progress: Callable[[int], None] | None = None,
) -> Verification:
    """Check a whole chain, streaming: memory does not grow with the log.

    Checked: seq from 1 without gaps, the link to the event before, the hash over the stored bytes, the bytes' canonical
    form, and in a store that every column equals what the bytes say and that the first event hangs on this store.

    Args:
        source: a reading connection, or the lines of a whole export.
        head: seq and hash of an event that somebody kept: finds a cut or rewritten tail.
        on_progress: called now and then with the number of events checked.

    Returns:
        The first thing that does not fit, or that all does.

    Raises:
        StoreUnavailableError: (from the connection's owner) the store cannot be read.
    """
    if isinstance(source, Connection):
        return _verify(_stored(source), genesis(source), head, on_progress)
    return _verify(_exported(source), "", head, on_progress)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Link:
    """One event as found. ``columns`` is None in an export; ``problem`` says that it could not even be taken apart."""

    seq: int
    body: bytes
    hash: object
    columns: RowMapping | None = None
    problem: str = ""


class _BadLinkError(Exception):
    """Stops the check at the first event that does not fit."""


def _verify(
    links: Iterable[_Link],
    start: str,
    known_head: tuple[int, str] | None,
    on_progress: Callable[[int], None] | None,
) -> Verification:
    seq, previous = 0, start
    for link in links:
        expected = seq + 1
        try:
            digest = _check(link, expected, previous)
            if known_head is not None and expected == known_head[0] and digest != known_head[1]:
                _bad("it is not the event whose hash was kept: the log was rewritten here or before")
        except _BadLinkError as bad:
            # A store's row has its number by its place; a line of an export only says one.
            first_bad = min(link.seq, expected) if link.columns is not None else expected
            return Verification(
                ok=False, n_events=seq, head_seq=seq, head_hash=previous, first_bad_seq=first_bad, problem=str(bad)
            )
        seq, previous = expected, digest
        if on_progress is not None and seq % STREAM_ROWS == 0:
            on_progress(seq)
    problem = _cut(seq, known_head)
    return Verification(
        ok=not problem,
        n_events=seq,
        head_seq=seq,
        head_hash=previous,
        first_bad_seq=seq + 1 if problem else None,
        problem=problem,
    )


def _cut(seq: int, known_head: tuple[int, str] | None) -> str:
    if known_head is None or known_head[0] < 1 or seq >= known_head[0]:
        return ""
    return f"the log ends at {seq} and event {known_head[0]} was kept: its tail was cut off"


def _check(link: _Link, expected: int, previous: str) -> str:
    if link.problem:
        _bad(link.problem)
    if link.seq > expected:
        _bad(f"it is missing: {link.seq} follows {expected - 1}")
    if link.seq < expected:
        _bad(f"it stands where {expected} should")
    fields = _parse(link.body)
    if fields.get("seq") != expected:
        _bad(f"its bytes belong to event {fields.get('seq')}")
    prev_hash = fields.get("prev_hash")
    # An export does not carry the store's genesis: there the first event says it.
    if not isinstance(prev_hash, str) or not prev_hash.isascii() or (previous and prev_hash != previous):
        _bad("it does not follow the event before it" if expected > 1 else "it does not begin this store's log")
    digest = chain_hash(prev_hash, link.body)
    if digest != link.hash:
        _bad("its bytes do not have its hash")
    if link.columns is not None:
        for name in COLUMNS:
            if link.columns[name] != fields.get(name):
                _bad(f"its column {name} differs from its bytes")
    return digest


def _stored(conn: Connection) -> Iterator[_Link]:
    statement = select(*(audit.c[name] for name in COLUMNS), audit.c.body, audit.c.hash).order_by(audit.c.seq)
    for row in conn.execution_options(yield_per=STREAM_ROWS).execute(statement).mappings():
        body = row["body"]
        if isinstance(body, bytes):
            yield _Link(seq=row["seq"], body=body, hash=row["hash"], columns=row)
        else:
            yield _Link(seq=row["seq"], body=b"", hash="", problem="its bytes were replaced by another kind of value")


def _exported(lines: Iterable[bytes]) -> Iterator[_Link]:
    for expected, line in enumerate(lines, start=1):
        try:
            row = json.loads(line.decode(), object_pairs_hook=_without_duplicates)
            body = row["body"].encode()
            seq = json.loads(body)["seq"]
            link = _Link(seq=seq, body=body, hash=row["hash"])
            if row.keys() != {"body", "hash"} or type(seq) is not int:
                raise ValueError
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            yield _Link(seq=expected, body=b"", hash="", problem=f"line {expected} is not a line of an export")
            return
        yield link


def _parse(body: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(body.decode())
        canonical = rfc8785.dumps(_plain(fields))
    except (ValueError, RecursionError):
        _bad("its bytes are not an event")
    if not isinstance(fields, dict):
        _bad("its bytes are not an event")
    if canonical != body:
        _bad("its bytes are not in canonical form")
    return fields


def _bad(problem: str) -> NoReturn:
    raise _BadLinkError(problem)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is there twice")
    return found


def _filtered(statement: Select[Any], filters: AuditFilter) -> Select[Any]:
    column = audit.c
    if filters.since is not None:
        statement = statement.where(column.at >= utc_text(filters.since))
    if filters.until is not None:
        statement = statement.where(column.at < utc_text(filters.until))
    for name in ("playbook", "target", "outcome", "fingerprint", "run_id"):
        wanted = getattr(filters, name)
        if wanted:
            statement = statement.where(column[name] == wanted, column[name] != "")  # as for _OF_RUN
    if filters.type is not None:
        statement = statement.where(column.type == filters.type.value)
    if filters.after_seq:
        statement = statement.where(column.seq > filters.after_seq)
    if filters.limit is not None:
        statement = statement.limit(filters.limit)
    return statement


def _columns(event: Event) -> dict[str, str | int]:
    """What stands in the body and in the row."""
    if event.at.tzinfo is None:
        raise ValueError("an event's time must be aware")
    return {
        "at": utc_text(event.at),
        "type": event.type.value,
        "actor": event.actor,
        "run_id": event.run_id,
        "n": event.n,
        "delivery_id": event.delivery_id,
        "episode_id": event.episode_id,
        "subject_id": event.subject_id,
        "playbook": event.playbook,
        "target": event.target,
        "outcome": event.outcome,
        "fingerprint": event.fingerprint,
    }


def recorded_event(seq: int, body: bytes, digest: str) -> RecordedEvent:
    """A row of the log as an event.

    Raises:
        StoreError: it is not as the engine wrote it.
    """
    try:
        fields = json.loads(body)
        event = Event(
            type=EventType(fields["type"]),
            at=utc_time(fields["at"]),
            actor=fields["actor"],
            run_id=fields["run_id"],
            n=fields["n"],
            delivery_id=fields["delivery_id"],
            episode_id=fields["episode_id"],
            subject_id=fields["subject_id"],
            playbook=fields["playbook"],
            target=fields["target"],
            outcome=fields["outcome"],
            fingerprint=fields["fingerprint"],
            data=fields["data"],
        )
        return RecordedEvent(seq=seq, prev_hash=fields["prev_hash"], hash=digest, event=event)
    except (ValueError, TypeError, KeyError) as error:
        raise StoreError(
            f"Event {seq} is not as the engine wrote it: run 'remediator audit verify' to see what was changed"
        ) from error


def _plain(value: JsonValue) -> Any:
    """The same value in dicts and lists; what has no place in the log is refused before it can poison the chain."""
    if isinstance(value, str | bool):
        return value
    if isinstance(value, int) and abs(value) < 2**53:
        return value
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise ValueError("an event's keys are text")
        return {key: _plain(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(member) for member in value]
    raise ValueError(f"an event cannot hold this {type(value).__name__}")
