"""What people do to a running engine: pause and resume it, run a playbook by hand, cancel a run, settle one, say yes or
no where a run asks, and leave notes.

Each act is recorded with the person's name, in the transaction that does it. None of them touches a target: runs do.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from remediator.core.alert import Alert, AlertStatus, fingerprint, label_key
from remediator.core.event import Event, EventType, utc_text
from remediator.core.guard import Pause
from remediator.core.match import IgnoredMatch, Match, explain
from remediator.core.move import waiting_text
from remediator.core.outcome import RunOutcome
from remediator.core.plan import Actions, make_plan, subject_id
from remediator.core.run import Answer
from remediator.engine.clock import Clock
from remediator.engine.dispatch import Dispatch
from remediator.engine.life import Life
from remediator.engine.question import Asked, newest_question, why_not
from remediator.engine.receive import open_with_plan
from remediator.engine.record import Recorder
from remediator.engine.reload import Reloader
from remediator.errors import Reason, RequestError
from remediator.store import Connection, audit, runs
from remediator.store.engine import Store
from remediator.store.writer import Tx

SHORTEST_PREFIX = 8
"""Characters of a run's id that lists show, and that may stand for the whole."""


class PauseSwitch:
    """Who has paused the engine: a person through the API, or whoever made the pause file."""

    def __init__(self, pause_file: Path | None) -> None:
        self._file = pause_file
        self._lock = threading.Lock()
        self._was_there = self._look_at_file() is not None

    def __call__(self, conn: Connection) -> Pause | None:
        """The pause in force, None when there is none."""
        pause = runs.get_pause(conn)
        return pause or self._by_file()

    def has_file_changed(self) -> bool:
        """Whether the file has come or gone since this was last asked: nobody else says so.

        One that came and has gone since has changed too, if anybody was held by it meanwhile.
        """
        with self._lock:
            before, self._was_there = self._was_there, self._look_at_file() is not None
            return before != self._was_there

    def _by_file(self) -> Pause | None:
        with self._lock:
            pause = self._look_at_file()
            self._was_there |= pause is not None
            return pause

    def _look_at_file(self) -> Pause | None:
        if self._file is None:
            return None
        try:
            self._file.lstat()
        except FileNotFoundError:
            return None
        except OSError as error:  # it may be there: the safer answer
            return Pause(by="pause file", reason=f"{self._file} cannot be looked at: {error.strerror}", at="")
        return Pause(by="pause file", reason=f"the file {self._file} exists", at="")


def find_run(conn: Connection, run_id: str) -> runs.RunRow:
    """A run by its id, or by the beginning of one that no other shares.

    Raises:
        RequestError: 404, none or several.
    """
    ids = [run_id] if len(run_id) < SHORTEST_PREFIX else audit.run_ids(conn, run_id, limit=2)
    row = runs.get_run(conn, ids[0]) if len(ids) == 1 else None
    if row is None:
        several = f"several runs begin with {run_id}; give more of its id"
        short = f"; give at least {SHORTEST_PREFIX} characters of its id" if len(run_id) < SHORTEST_PREFIX else ""
        raise RequestError(several if len(ids) > 1 else f"there is no run {run_id}{short}", http_status=404)
    return row


class People:
    """The acts of people."""

    def __init__(
        self,
        store: Store,
        recorder: Recorder,
        reloader: Reloader,
        actions: Actions,
        clock: Clock,
        dispatch: Dispatch,
        life: Life,
    ) -> None:
        self._life = life
        self._store = store
        self._recorder = recorder
        self._reloader = reloader
        self._actions = actions
        self._clock = clock
        self._dispatch = dispatch

    def pause(self, actor: str, reason: str) -> dict[str, Any]:
        """Let no act begin until ``resume``; messages pass, and what is under way goes on to the end of its step.

        Raises:
            RequestError: 409, it is paused already.
        """
        now = self._clock.now()
        value = {"by": actor, "reason": reason, "at": utc_text(now)}

        def work(tx: Tx) -> None:
            held = runs.get_pause(tx.conn)
            if held is not None:
                raise RequestError(f"already paused by {held.by} at {held.at}: {held.reason}", http_status=409)
            runs.set_control(tx.conn, "pause", value)
            self._recorder.append(tx, Event(type=EventType.PAUSED, at=now, actor=actor, data={"reason": reason}))

        self._store.write(work)
        return {"paused": value}

    def resume(self, actor: str, reason: str) -> dict[str, Any]:
        """Let acts begin again; all that waits is judged anew.

        Raises:
            RequestError: 409, it is not paused.
        """
        now = self._clock.now()

        def work(tx: Tx) -> list[str]:
            if runs.get_pause(tx.conn) is None:
                raise RequestError("the engine is not paused", http_status=409)
            runs.set_control(tx.conn, "pause", None)
            self._recorder.append(tx, Event(type=EventType.RESUMED, at=now, actor=actor, data={"reason": reason}))
            return runs.not_closed(tx.conn)

        woken = self._store.write(work)
        for run_id in woken:
            self._dispatch.wake(run_id)
        return {"paused": False, "woken": len(woken)}

    def run_by_hand(
        self, playbook: str, labels: Mapping[str, str], annotations: Mapping[str, str], actor: str
    ) -> dict[str, Any]:
        """Run a playbook for an alert that a person describes: a subject of its own, through the same guards, no hold.

        Raises:
            RequestError: 404 no such playbook; 422 it does not apply to these labels, and why.
        """
        if not all(_is_text(part) for pair in (*labels.items(), *annotations.items()) for part in pair):
            raise RequestError("labels and annotations must be text that UTF-8 can hold (a lone surrogate cannot)")
        in_force = self._reloader.now
        wanted = in_force.playbooks.named(playbook)
        if wanted is None:
            names = ", ".join(known.name for known in in_force.playbooks.playbooks) or "none"
            raise RequestError(f"there is no playbook {playbook!r} in force (there are: {names})", http_status=404)
        found = next((match for match in in_force.index.match(labels) if match.playbook.name == playbook), None)
        if found is None:
            raise RequestError(f"{playbook} does not apply to these labels: {'; '.join(explain(labels, wanted))}")
        if isinstance(found, IgnoredMatch):
            raise RequestError(f"{playbook} leaves such alerts alone (case {found.case.name}): {found.why}")
        if not isinstance(found, Match):
            raise RequestError(f"{playbook} needs the label {found.label} to say what the run is about; add it")
        self._refuse_second(found)
        now = self._clock.now()
        alert = Alert(
            status=AlertStatus.FIRING,
            labels=dict(labels),
            annotations=dict(annotations),
            starts_at=now,
            ends_at=None,
            starts_at_text=utc_text(now),
            ends_at_text="",
            generator_url="",
            fingerprint=fingerprint(labels),
            label_key=label_key(labels),
        )
        subject = subject_id(playbook, found.case.name, found.per_key, f"by-hand\x1f{uuid.uuid4()}")
        plan, refusal = make_plan(
            found,
            alert,
            {"labels": {}, "receiver": "", "external_url": ""},
            subject=subject,
            rules=in_force.playbooks,
            actions=self._actions,
            is_by_hand=True,
        )
        self._store.write(lambda tx: open_with_plan(tx, self._recorder, plan, refusal, now, opened_at=now, actor=actor))
        self._dispatch.wake(plan.run_id)
        answer = {"run_id": plan.run_id, "playbook": playbook, "case": plan.case, "per": dict(plan.per)}
        if refusal is not None:
            answer["refused"] = {"reason": refusal.reason.value, "detail": refusal.detail}
        return answer

    def _refuse_second(self, match: Match) -> None:
        """A second one by hand for the same values would do the same again once it has its turn: nobody means that."""
        with self._store.read() as conn:
            other = runs.open_run_by_hand(conn, match.playbook.name, match.case.name, match.per_key)
        if other is not None:
            what = waiting_text(other.waits_for) if other.waits_for else other.phase.value
            raise RequestError(
                f"run {other.id}, by hand too, is for the same and has not ended ({what}); wait for it or"
                f" cancel it: remediator cancel {other.id} --reason TEXT",
                http_status=409,
            )

    def cancel(self, run_id: str, actor: str, reason: str) -> dict[str, Any]:
        """End a run that waits, or stop a running one after its step.

        Raises:
            RequestError: 404 no such run; 409 it has ended.
        """
        data = {"reason": reason}

        def work(tx: Tx) -> str:
            row = find_run(tx.conn, run_id)
            if row.ended_at is not None:
                raise RequestError(f"run {row.id} has ended already ({row.outcome})", http_status=409)
            self._recorder.append_beside_run(
                tx, row.id, EventType.CANCEL_REQUESTED, self._clock.now(), data, actor=actor
            )
            return row.id

        found_id = self._store.write(work)
        self._dispatch.wake(found_id)
        return {"run_id": found_id, "cancelled_by": actor}

    def settle(self, run_id: str, *, happened: bool, actor: str, reason: str) -> dict[str, Any]:
        """A person looked what a run of unknown outcome did: its target is free again.

        Raises:
            RequestError: 404 no such run; 409 its outcome is not unknown, or it was settled.
        """
        outcome = RunOutcome.UNVERIFIED if happened else RunOutcome.FAILED
        word = "happened" if happened else "did not happen"
        data = {
            "outcome": outcome.value,
            "happened": happened,
            "reason": reason,
            "detail": f"{actor} says that it {word}: {reason}",
        }

        def work(tx: Tx) -> tuple[str, list[str]]:
            row = find_run(tx.conn, run_id)
            if row.outcome != RunOutcome.UNKNOWN.value:
                state = row.outcome or f"not ended: {row.phase.value}"
                raise RequestError(f"run {row.id} has nothing to settle ({state})", http_status=409)
            self._recorder.append_beside_run(
                tx, row.id, EventType.RUN_SETTLED, self._clock.now(), data, actor=actor, outcome=outcome.value
            )
            assert row.ended_at is not None  # `unknown` is an end, and that moment stays
            runs.finish(tx.conn, row.id, outcome, Reason.SETTLED_BY_PERSON, row.ended_at)
            return row.id, runs.may_go_on(tx.conn, self._reloader.now.playbooks.policy.max_concurrent_runs)

        found_id, free = self._store.write(work)
        for woken in [*free, found_id]:
            self._dispatch.wake(woken)
        return {"run_id": found_id, "outcome": outcome.value}

    def approve(self, run_id: str, actor: str, reason: str, question: int = 0) -> dict[str, Any]:
        """A yes to what a run asks. It is judged again before it acts.

        Args:
            question: the one that is meant, by its number; 0 = whichever is open.

        Raises:
            RequestError: 404 no such run; 409 it asks nothing, something else, or not any more.
        """
        return self._answer(run_id, Answer.GIVEN, actor, reason, question)

    def deny(self, run_id: str, actor: str, reason: str, question: int = 0) -> dict[str, Any]:
        """A no to what a run asks, which ends it. Takes and raises as ``approve``."""
        return self._answer(run_id, Answer.DENIED, actor, reason, question)

    def _answer(self, run_id: str, answer: Answer, actor: str, reason: str, number: int) -> dict[str, Any]:
        kind = EventType.APPROVAL_GIVEN if answer is Answer.GIVEN else EventType.APPROVAL_DENIED

        def work(tx: Tx) -> tuple[str, Asked]:
            # Looked at and answered in one transaction: of two people who answer at once one is told of the other.
            row = find_run(tx.conn, run_id)
            now = self._clock.now()
            run, asked = newest_question(audit.log_of_run(tx.conn, row.id), self._life.gaps, now)
            problem = why_not(run, asked, now, number)
            if asked is None or problem:
                raise RequestError(f"run {row.id} {problem}", http_status=409)
            self._recorder.append_beside_run(
                tx, row.id, kind, self._clock.now(), {"key": asked.key, "reason": reason}, actor=actor
            )
            return row.id, asked

        found_id, asked = self._store.write(work)
        self._dispatch.wake(found_id)
        return {"run_id": found_id, "question": asked.number, "key": asked.key, "answer": answer.value, "by": actor}

    def note(self, run_id: str, actor: str, text: str) -> dict[str, Any]:
        """Keep what a person has to say about a run, ended or not.

        Raises:
            RequestError: 404 no such run.
        """

        def work(tx: Tx) -> str:
            row = find_run(tx.conn, run_id)
            self._recorder.append_beside_run(
                tx, row.id, EventType.NOTE_ADDED, self._clock.now(), {"text": text}, actor=actor
            )
            return row.id

        return {"run_id": self._store.write(work), "noted_by": actor}


def _is_text(text: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in text)
