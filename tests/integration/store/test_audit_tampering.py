"""Somebody with the file in their hands changes the log, triggers dropped. What is promised is found, and nothing else.

``docs/verify_audit.py``, written from the specification with the standard library only, must agree: a fault that writer
and verifier share would show there.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, create_engine
from sqlalchemy.pool import StaticPool

from remediator.core.event import Event, EventType
from remediator.store import audit, schema
from remediator.store.audit import Verification
from remediator.store.engine import open_store
from second_verifier import second

N = 30

COLUMNS = [name for name in audit.COLUMNS if name != "seq"]

Forge = Callable[[sqlite3.Connection], tuple[int | None, int | None]]
"""Changes the log; gives the first bad seq that must be named without a head, and with the head of event N."""


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> sqlite3.Connection:
    """A log of N events in memory, without its triggers."""
    path = tmp_path_factory.mktemp("audit") / "x.db"
    store = open_store(f"sqlite:///{path}")
    for n in range(1, N + 1):
        event = Event(
            type=EventType.ATTEMPT_FINISHED,
            at=datetime(2026, 1, 1, 0, n, tzinfo=UTC),
            run_id=f"r{n % 3}",
            n=n,
            delivery_id=n,
            episode_id="e",
            subject_id="s",
            playbook="p",
            target="t",
            outcome="failed",
            fingerprint="f",
            data={"é": [n, True], "\U0001f600": "\x1b"},
        )
        store.write(lambda tx, event=event: tx.append(event))
    store.close()
    file = sqlite3.connect(path)
    memory = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
    file.backup(memory)
    file.close()
    for trigger in schema.TRIGGERS:
        memory.execute(f"DROP TRIGGER {trigger}")
    return memory


@contextmanager
def copy_of(original: sqlite3.Connection) -> Iterator[tuple[sqlite3.Connection, Connection]]:
    """The driver's connection to change it by, and SQLAlchemy's to verify it by."""
    memory = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
    original.backup(memory)
    memory.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")  # as the store's own readers
    engine = create_engine("sqlite://", creator=lambda: memory, poolclass=StaticPool)
    with engine.connect() as connection:
        yield memory, connection
    engine.dispose()


def body(db: sqlite3.Connection, seq: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(db.execute("SELECT body FROM audit WHERE seq = ?", (seq,)).fetchone()[0])
    return found


def write_anew(db: sqlite3.Connection, seq: int, fields: dict[str, Any], *, old_seq: int | None = None) -> None:
    """The event with these fields, its own hash and columns right."""
    text = json.dumps(fields, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()
    digest = hashlib.sha256(f"remediator-audit-v1\n{fields['prev_hash']}\n".encode() + text).hexdigest()
    names = ", ".join(f"{name} = ?" for name in audit.COLUMNS)
    db.execute(
        f"UPDATE audit SET {names}, body = ?, hash = ? WHERE seq = ?",
        (*(fields[name] for name in audit.COLUMNS), text, digest, seq if old_seq is None else old_seq),
    )


def rewrite_from(db: sqlite3.Connection, seq: int) -> None:
    """Everything from there, as a chain that fits."""
    for at in range(seq, N + 1):
        fields = body(db, at)
        if at > 1:
            fields["prev_hash"] = db.execute("SELECT hash FROM audit WHERE seq = ?", (at - 1,)).fetchone()[0]
        if at == seq:
            fields["actor"] = "nobody"
        write_anew(db, at, fields)


def edit_bytes(k: int) -> Forge:
    def forge(db: sqlite3.Connection) -> tuple[int | None, int | None]:
        db.execute("UPDATE audit SET body = replace(body, 'failed', 'FAILED') WHERE seq = ?", (k,))
        db.execute("UPDATE audit SET body = CAST(body AS BLOB)")
        return k, k

    return forge


def edit_with_own_hash(k: int) -> Forge:
    def forge(db: sqlite3.Connection) -> tuple[int | None, int | None]:
        write_anew(db, k, {**body(db, k), "outcome": "succeeded"})
        return (k + 1, k + 1) if k < N else (None, N)

    return forge


def edit_column(k: int, column: str) -> Forge:
    def forge(db: sqlite3.Connection) -> tuple[int | None, int | None]:
        value: object = 12345 if column in ("n", "delivery_id") else "other"
        db.execute(f"UPDATE audit SET {column} = ? WHERE seq = ?", (value, k))
        return k, k

    return forge


def edit_hash(k: int) -> Forge:
    def forge(db: sqlite3.Connection) -> tuple[int | None, int | None]:
        db.execute("UPDATE audit SET hash = upper(hash) || 'A' WHERE seq = ?", (k,))
        return k, k

    return forge


def spoil_column(k: int, column: str, kind: str) -> Forge:
    def forge(db: sqlite3.Connection) -> tuple[int | None, int | None]:
        db.execute(f"UPDATE audit SET {column} = {kind} WHERE seq = ?", (k,))
        return k, k

    return forge


def delete(k: int) -> Forge:
    def forge(db: sqlite3.Connection) -> tuple[int | None, int | None]:
        db.execute("DELETE FROM audit WHERE seq = ?", (k,))
        return (k, k) if k < N else (None, N)

    return forge


def delete_and_close_ranks(k: int) -> Forge:
    def forge(db: sqlite3.Connection) -> tuple[int | None, int | None]:
        db.execute("DELETE FROM audit WHERE seq = ?", (k,))
        for at in range(k + 1, N + 1):
            db.execute("UPDATE audit SET seq = ? WHERE seq = ?", (at - 1, at))
        return (k, k) if k < N else (None, N)

    return forge


def swap(i: int, j: int) -> Forge:
    def forge(db: sqlite3.Connection) -> tuple[int | None, int | None]:
        for old, new in ((i, -1), (j, i), (-1, j)):
            db.execute("UPDATE audit SET seq = ? WHERE seq = ?", (new, old))
        return min(i, j), min(i, j)

    return forge


def insert_between(k: int) -> Forge:
    def forge(db: sqlite3.Connection) -> tuple[int | None, int | None]:
        for at in range(N, k - 1, -1):
            db.execute("UPDATE audit SET seq = ? WHERE seq = ?", (at + 1, at))
        fields = body(db, k + 1)
        insert_row(db, k)
        write_anew(db, k, {**fields, "seq": k, "run_id": "", "actor": "forged"})
        # The forged event fits by itself; what came after it does not. With N's head kept, N itself is another event.
        return k + 1, (k + 1 if k < N else N)

    return forge


def insert_row(db: sqlite3.Connection, seq: int) -> None:
    db.execute(
        "INSERT INTO audit SELECT ?, at, type, actor, '', n, delivery_id, episode_id, subject_id, playbook, target, "
        "outcome, fingerprint, body, prev_hash, hash FROM audit LIMIT 1",
        (seq,),
    )


def insert_at(seq: int) -> Forge:
    def forge(db: sqlite3.Connection) -> tuple[int | None, int | None]:
        insert_row(db, seq)
        bad = seq if seq < 1 else N + 1
        return bad, bad

    return forge


def cut_from(k: int) -> Forge:
    def forge(db: sqlite3.Connection) -> tuple[int | None, int | None]:
        db.execute("DELETE FROM audit WHERE seq >= ?", (k,))
        return None, k

    return forge


def rewrite(k: int) -> Forge:
    def forge(db: sqlite3.Connection) -> tuple[int | None, int | None]:
        rewrite_from(db, k)
        return None, N

    return forge


def other_log(db: sqlite3.Connection) -> tuple[int | None, int | None]:
    db.execute("UPDATE meta SET value = 'another'")
    return 1, 1


def not_canonical(k: int) -> Forge:
    def forge(db: sqlite3.Connection) -> tuple[int | None, int | None]:
        fields = body(db, k)
        text = json.dumps(fields).encode()
        digest = hashlib.sha256(f"remediator-audit-v1\n{fields['prev_hash']}\n".encode() + text).hexdigest()
        db.execute("UPDATE audit SET body = ?, hash = ? WHERE seq = ?", (text, digest, k))
        return k, k

    return forge


def untouched(db: sqlite3.Connection) -> tuple[int | None, int | None]:
    return None, None


seqs = st.integers(1, N)
forges = st.one_of(
    st.builds(edit_bytes, seqs),
    st.builds(edit_with_own_hash, seqs),
    st.builds(edit_column, seqs, st.sampled_from(COLUMNS)),
    st.builds(edit_hash, seqs),
    st.builds(
        spoil_column,
        seqs,
        st.sampled_from(COLUMNS),
        st.sampled_from(["x'ff00'", "CAST(x'ff41' AS TEXT)", "CAST(target || char(0) AS BLOB)"]),
    ),
    st.builds(
        spoil_column,
        seqs,
        st.just("body"),
        st.sampled_from(["''", "CAST(body AS TEXT)", "x''", "x'5b5d'", "x'ff'", "1"]),
    ),
    st.builds(delete, seqs),
    st.builds(delete_and_close_ranks, seqs),
    st.lists(seqs, min_size=2, max_size=2, unique=True).map(lambda pair: swap(*pair)),
    st.builds(insert_between, seqs),
    st.builds(insert_at, st.sampled_from([-5, 0, N + 1, N + 7])),
    st.builds(cut_from, seqs),
    st.builds(rewrite, seqs),
    st.builds(not_canonical, seqs),
    st.sampled_from([other_log, untouched]),
)


@settings(max_examples=800, deadline=None)
@given(forge=forges)
def test_verify_when_the_log_was_forged_then_names_the_first_bad_event(
    original: sqlite3.Connection, forge: Forge
) -> None:
    with copy_of(original) as (db, connection):
        kept = audit.head(connection)
        without_head, with_head = forge(db)

        found = audit.verify(connection), audit.verify(connection, kept)

        assert [result.first_bad_seq for result in found] == [without_head, with_head]
        assert [result.ok for result in found] == [without_head is None, with_head is None]
        start = audit.genesis(connection)
        agreed = [second.verify(second.of_database(db), start, head) for head in (None, kept)]
        assert [bad for _, _, bad, _ in agreed] == [without_head, with_head]
        assert [(n, digest) for n, digest, _, _ in agreed] == [(each.head_seq, each.head_hash) for each in found]


def test_verify_when_an_early_head_was_kept_then_later_events_do_not_matter(original: sqlite3.Connection) -> None:
    with copy_of(original) as (db, connection):
        early = (5, db.execute("SELECT hash FROM audit WHERE seq = 5").fetchone()[0])
        rewrite_from(db, 6)

        assert audit.verify(connection, early).ok


@pytest.mark.parametrize(
    ("forge", "problem"),
    [
        pytest.param(edit_bytes(7), "its bytes do not have its hash", id="edited bytes"),
        pytest.param(edit_column(7, "playbook"), "its column playbook differs from its bytes", id="an edited column"),
        pytest.param(edit_with_own_hash(7), "it does not follow the event before it", id="an edit with its own hash"),
        pytest.param(delete(7), "it is missing: 8 follows 6", id="a deleted event"),
        pytest.param(swap(7, 9), "its bytes belong to event 9", id="swapped events"),
        pytest.param(not_canonical(7), "its bytes are not in canonical form", id="the same content in other bytes"),
        pytest.param(other_log, "it does not begin this store's log", id="another store's log"),
        pytest.param(insert_at(0), "it stands where 1 should", id="an event before the first"),
    ],
)
def test_verify_says_why(original: sqlite3.Connection, forge: Forge, problem: str) -> None:
    with copy_of(original) as (db, connection):
        forge(db)

        assert audit.verify(connection).problem == problem


@settings(max_examples=100, deadline=None)
@given(forge=st.builds(spoil_column, seqs, st.sampled_from(["body", "hash"]), st.sampled_from(["x'ff'", "'a'", "1"])))
def test_export_when_the_log_was_spoiled_then_does_not_hide_it(original: sqlite3.Connection, forge: Forge) -> None:
    with copy_of(original) as (db, connection):
        bad, _ = forge(db)

        assert audit.verify(map(audit.export_line, audit.export(connection))).first_bad_seq == bad


def test_verify_of_an_export_finds_what_verify_of_the_store_finds(original: sqlite3.Connection) -> None:
    with copy_of(original) as (_, connection):
        kept = audit.head(connection)
        whole = [audit.export_line(row) for row in audit.export(connection)]

    def bad(lines: list[bytes]) -> list[int | None]:
        return [audit.verify(lines, head).first_bad_seq for head in (None, kept)]

    assert bad(whole) == [None, None]
    assert bad(whole[:9] + whole[10:]) == [10, 10]
    assert bad([*whole[:4], whole[5], whole[4], *whole[6:]]) == [5, 5]
    assert bad(whole[:20]) == [None, 21]
    assert bad([*whole, whole[-1]]) == [N + 1, N + 1]
    assert bad([]) == [None, 1]


def test_verify_when_the_log_is_empty_then_is_intact(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/x.db")
    with store.read() as connection:
        found = audit.verify(connection)
        expected = audit.genesis(connection)
    store.close()

    assert found == Verification(ok=True, n_events=0, head_seq=0, head_hash=expected)
