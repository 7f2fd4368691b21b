"""One writer, group commit: nothing is answered before it is kept, and one failure takes nobody along."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from remediator.core.alert import RawDelivery
from remediator.core.event import Event
from remediator.errors import RunLostError, StoreUnavailableError
from remediator.store import audit, inbox, writer
from remediator.store.engine import Store, open_store
from remediator.store.tables import control, run
from remediator.store.writer import Tx

Build = Callable[..., Event]


def put(key: str) -> Callable[[Tx], None]:
    def work(tx: Tx) -> None:
        tx.conn.execute(control.insert().values(key=key, value="{}"))

    return work


def keys(store: Store) -> set[str]:
    with store.read() as conn:
        return set(conn.execute(select(control.c.key)).scalars())


@contextmanager
def busy(store: Store) -> Iterator[None]:
    """The writer is inside somebody's work until the block ends: what is written meanwhile shares the next batch."""
    begun, go_on = threading.Event(), threading.Event()

    def work(tx: Tx) -> None:
        begun.set()
        go_on.wait(20)

    thread = threading.Thread(target=store.write, args=(work,))
    thread.start()
    assert begun.wait(5)
    try:
        yield
    finally:
        go_on.set()
        thread.join()


def together(store: Store, works: list[Callable[[Tx], Any]]) -> list[Future[Any]]:
    """Their answers; all run in one transaction, in this order."""
    with ThreadPoolExecutor(len(works)) as threads:
        with busy(store):
            answers = []
            for n, work in enumerate(works, start=1):
                answers.append(threads.submit(store.write, work))
                while store._writer._queue.qsize() < n:
                    time.sleep(0.001)
        return answers


def test_write_from_16_threads_keeps_everything_in_one_chain(
    store: Store, event: Build, raw: Callable[..., RawDelivery]
) -> None:
    def work(tx: Tx) -> int:
        delivery_id = inbox.store_delivery(tx, raw(b"x" * 500))
        return tx.append(event(delivery_id=delivery_id)).seq

    with ThreadPoolExecutor(16) as threads:
        seqs = list(threads.map(lambda _: store.write(work), range(800)))

    with store.read() as conn:
        found = audit.verify(conn)
        n_kept = inbox.n_unhandled(conn)
    assert (sorted(seqs), found.ok, n_kept) == (list(range(1, 801)), True, 800)


def test_write_when_many_wait_then_they_share_one_transaction(store: Store) -> None:
    order: list[str] = []

    def work(tx: Tx) -> None:
        order.append("work")
        tx.after_commit(lambda: order.append("kept"))

    together(store, [work] * 20)

    assert order == ["work"] * 20 + ["kept"] * 20


def test_write_when_it_returns_then_a_reader_sees_it(store: Store) -> None:
    store.write(put("a"))

    assert "a" in keys(store)


def test_write_when_one_work_fails_then_only_its_own_changes_are_gone(store: Store) -> None:
    def fail(tx: Tx) -> None:
        put("b")(tx)
        raise KeyError("mine")

    a, b, c = together(store, [put("a"), fail, put("c")])

    with pytest.raises(KeyError, match="mine"):
        b.result()
    assert (a.result(), c.result(), keys(store)) == (None, None, {"a", "c"})


def test_write_when_a_constraint_breaks_then_the_caller_gets_that(store: Store) -> None:
    store.write(put("a"))

    with pytest.raises(IntegrityError):
        store.write(put("a"))


def test_write_when_the_commit_fails_then_everyone_in_it_is_told_and_the_next_works(store: Store) -> None:
    def orphan(tx: Tx) -> None:
        tx.conn.exec_driver_sql("PRAGMA defer_foreign_keys=ON")  # then it is the COMMIT that fails
        tx.conn.execute(
            run.insert().values(
                id="r", subject_id="none", playbook="", case_name="", per_key="", created_at="", phase=""
            )
        )

    answers = together(store, [put("a"), orphan, put("c")])

    for answer in answers:
        with pytest.raises(StoreUnavailableError):
            answer.result()
    store.write(put("d"))
    assert keys(store) == {"d"}


def test_write_when_its_time_is_over_before_it_began_then_it_is_never_done(store: Store) -> None:
    with busy(store), pytest.raises(StoreUnavailableError, match="did not get to this"):
        store.write(put("late"), timeout_s=0.05)

    store.write(put("next"))
    assert keys(store) == {"next"}


def test_write_when_its_time_is_over_after_it_began_then_its_answer_is_waited_for(store: Store) -> None:
    def slow(tx: Tx) -> str:
        time.sleep(0.2)
        return "kept"

    assert store.write(slow, timeout_s=0.05) == "kept"


def test_write_when_the_work_itself_times_out_then_the_caller_gets_that(store: Store) -> None:
    def work(tx: Tx) -> None:
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        store.write(work)


def test_write_when_too_many_wait_then_is_refused_at_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "QUEUE_MAX", 3)
    store = open_store(url)
    with ThreadPoolExecutor(3) as threads, busy(store):
        for n in range(3):
            threads.submit(store.write, put(f"k{n}"))
        while not store._writer._queue.full():
            time.sleep(0.001)
        began = time.monotonic()
        with pytest.raises(StoreUnavailableError, match="overloaded"):
            store.write(put("one too many"))
        assert time.monotonic() - began < 10, "others wait 30 s"
    store.close()


def test_write_from_inside_a_work_then_is_refused_instead_of_waiting_for_itself(store: Store) -> None:
    with pytest.raises(RuntimeError, match="wait for itself"):
        store.write(lambda tx: store.write(put("a")))


def test_write_when_a_work_ends_the_thread_then_the_thread_goes_on(store: Store) -> None:
    def leave(tx: Tx) -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        store.write(leave)
    store.write(put("a"))
    assert keys(store) == {"a"}


def test_after_commit_when_the_work_fails_then_is_not_called(store: Store) -> None:
    called: list[str] = []

    def work(tx: Tx) -> None:
        tx.after_commit(lambda: called.append("x"))
        raise KeyError

    with pytest.raises(KeyError):
        store.write(work)
    assert called == []


def test_after_commit_is_called_once_a_reader_can_see_it_and_before_the_answer(store: Store) -> None:
    seen: list[set[str]] = []

    def work(tx: Tx) -> None:
        put("a")(tx)
        tx.after_commit(lambda: seen.append(keys(store)))

    store.write(work)

    assert seen == [{"a"}]


def test_after_commit_when_a_hook_fails_then_the_caller_is_answered_all_the_same(store: Store) -> None:
    def work(tx: Tx) -> str:
        def hook() -> None:
            raise KeyError("hook")

        tx.after_commit(hook)
        return "kept"

    assert store.write(work) == "kept"


def test_write_when_not_even_the_log_can_be_written_then_everybody_is_answered(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FullDisk:
        def error(self, *_: Any, **__: Any) -> None:
            raise OSError(28, "No space left on device")

    def fail(tx: Tx) -> None:
        raise KeyError

    monkeypatch.setattr(writer, "log", FullDisk())

    def commit_itself(tx: Tx) -> None:
        tx.conn.commit()  # breaks the contract: the writer's savepoint is gone

    assert store.write(lambda tx: tx.after_commit(lambda: fail(tx))) is None
    with pytest.raises(StoreUnavailableError, match="unexpectedly"):
        store.write(commit_itself)
    assert store.is_ok() == "ok"


def test_close_when_work_waits_then_finishes_it_first(url: str) -> None:
    store = open_store(url)
    with ThreadPoolExecutor(6) as threads:
        with busy(store):
            answers = [threads.submit(store.write, put(f"k{n}")) for n in range(5)]
            while store._writer._queue.qsize() < 5:
                time.sleep(0.001)
            closing = threads.submit(store.close)
            while not store._writer._is_closed:
                time.sleep(0.001)
        closing.result()
    assert [answer.result() for answer in answers] == [None] * 5
    store = open_store(url)
    assert keys(store) == {f"k{n}" for n in range(5)}
    store.close()


def test_write_after_close_is_refused(url: str) -> None:
    store = open_store(url)
    store.close()

    with pytest.raises(StoreUnavailableError, match="closed"):
        store.write(put("a"))


def test_close_leaves_no_wal_behind_that_holds_anything(store: Store, url: str, path: Any) -> None:
    store.write(put("a"))
    store.close()

    wal = path.with_name(path.name + "-wal")
    assert not wal.exists() or wal.stat().st_size == 0


def test_wal_when_it_has_been_quiet_then_is_cut_to_nothing(store: Store, path: Any) -> None:
    store.write(put("a"))
    wal = path.with_name(path.name + "-wal")
    assert wal.stat().st_size > 0

    deadline = time.monotonic() + 10
    while wal.stat().st_size and time.monotonic() < deadline:
        time.sleep(0.05)
    assert wal.stat().st_size == 0


def test_wal_when_readers_keep_it_from_being_reused_then_stays_bounded(
    url: str, path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "WAL_MAX_BYTES", 256 * 1024)
    store = open_store(url)
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            with store.read() as conn:
                conn.execute(select(control.c.key)).all()
                time.sleep(0.005)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    largest = 0
    for n in range(300):
        store.write(lambda tx, n=n: tx.conn.execute(control.insert().values(key=f"k{n}", value="x" * 8000)))
        largest = max(largest, path.with_name(path.name + "-wal").stat().st_size)
    stop.set()
    for reader in readers:
        reader.join()
    store.close()

    assert largest < 3 * 1024 * 1024


def test_append_when_the_run_has_that_event_already_then_the_run_is_lost(store: Store, event: Build) -> None:
    store.write(lambda tx: tx.append(event(run_id="r", n=1)))

    with pytest.raises(RunLostError, match="another worker"):
        store.write(lambda tx: tx.append(event(run_id="r", n=1)))


def test_append_when_one_caller_fails_between_others_then_the_chain_has_no_gap(store: Store, event: Build) -> None:
    def fail(tx: Tx) -> None:
        tx.append(event())
        raise KeyError

    together(store, [lambda tx: tx.append(event()), fail, lambda tx: tx.append(event())])

    with store.read() as conn:
        found = audit.verify(conn)
    assert (found.ok, found.n_events) == (True, 2)


def test_append_when_the_work_takes_back_a_part_of_itself_then_the_chain_has_no_gap(store: Store, event: Build) -> None:
    def work(tx: Tx) -> None:
        part = tx.conn.begin_nested()
        tx.append(event())
        part.rollback()
        tx.append(event())

    store.write(work)

    with store.read() as conn:
        found = audit.verify(conn)
    assert (found.ok, found.n_events) == (True, 1)


def test_append_when_a_value_cannot_be_written_then_only_that_caller_fails(store: Store, event: Build) -> None:
    good, poisoned = together(
        store, [lambda tx: tx.append(event()).seq, lambda tx: tx.append(event(data={"label": "\ud800"}))]
    )

    with pytest.raises(ValueError):
        poisoned.result()
    assert good.result() == 1


def test_read_sees_one_moment_for_the_whole_block(store: Store) -> None:
    with store.read() as conn:
        before = set(conn.execute(select(control.c.key)).scalars())
        store.write(put("a"))
        after = set(conn.execute(select(control.c.key)).scalars())

    assert before == after == set()


def test_read_cannot_write(store: Store) -> None:
    with pytest.raises(StoreUnavailableError, match="read-only"), store.read() as conn:
        conn.execute(control.insert().values(key="a", value="{}"))


def test_16_threads_that_decide_under_a_limit_of_2_admit_2(store: Store) -> None:
    def decide(tx: Tx) -> bool:
        is_allowed = len(tx.conn.execute(select(control.c.key)).all()) < 2
        if is_allowed:
            put(f"slot {time.perf_counter_ns()}")(tx)
        return is_allowed

    with ThreadPoolExecutor(16) as threads:
        admitted = list(threads.map(lambda _: store.write(decide), range(64)))

    assert (sum(admitted), len(keys(store))) == (2, 2)
