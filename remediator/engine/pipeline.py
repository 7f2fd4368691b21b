"""The file to read first: ``advance(run)`` takes one run as far as it can go now, and says when to come again.

It folds the run's events into its state, looks at the situation around it, asks the pure ``core.move.next_move`` what
comes next, and makes that move; each move ends in an event, so that the next look finds the next move. Nothing waits
here: a hold, a wait, a retry, a verification is a due time. Killed anywhere, the next ``advance`` goes on from the log.

    hold → its turn → verdict (reserve) → approval → verdict → steps (execute) → verify → next rung, or end → messages
    → ``resolved`` steps → closed
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import assert_never

from remediator.core.action import JsonValue
from remediator.core.alert import label_key, unpack_alert
from remediator.core.event import EventType
from remediator.core.guard import Word
from remediator.core.match import Match
from remediator.core.message import message
from remediator.core.move import (
    OTHERS,
    Ask,
    Climb,
    Close,
    Finish,
    Heard,
    Judge,
    Look,
    Move,
    Replan,
    Situation,
    Skip,
    Sleep,
    Tell,
    Try,
    Verify,
    WaitForWord,
    needs_word,
    next_move,
    phase_of,
    start_rung,
    tell_gap,
    tell_next_at,
)
from remediator.core.outcome import Outcome, RunOutcome
from remediator.core.plan import Actions, Plan, PlannedStep, make_plan, pack_plan, planned_message
from remediator.core.policy import Mode
from remediator.core.retry import RetryPolicy
from remediator.core.run import MessageKind, Phase, Run, fold, fold_on, message_key, message_of, question_data
from remediator.engine.clock import Clock
from remediator.engine.dispatch import Dispatch, Duty
from remediator.engine.ending import end_run
from remediator.engine.execute import Executor, ending_of
from remediator.engine.life import Life
from remediator.engine.reconcile import silences_of
from remediator.engine.record import Recorder
from remediator.engine.reload import Reloader
from remediator.engine.reserve import PauseSource, Reserver, let_go_while_asking
from remediator.engine.verify import Verifier
from remediator.errors import Reason
from remediator.store import Connection, audit, leases, runs, subjects
from remediator.store.engine import Store
from remediator.store.writer import Tx

Hear = Callable[[frozenset[str], datetime, frozenset[str]], Heard]
"""Asks the Alertmanagers whether any of these label sets (``label_key``) fires, later than their last word; what only
these silences (their ids) mute counts as firing."""

ASK_AGAIN = timedelta(seconds=30)
"""A run whose turn waits for the Alertmanagers' answer asks again so soon."""

REMEMBERED = 64
"""Runs whose state is kept from one look to the next: most looks find nothing new in their log. Each is some 30 KiB."""

MESSAGE_RETRY = RetryPolicy.default()
"""Of the engine's own texts: as a playbook's own messages are retried by default."""


class Pipeline:
    """Advances runs. Each run is advanced by one thread at a time (``engine.dispatch``)."""

    def __init__(
        self,
        store: Store,
        recorder: Recorder,
        reloader: Reloader,
        actions: Actions,
        reserver: Reserver,
        executor: Executor,
        verifier: Verifier,
        clock: Clock,
        life: Life,
        pause: PauseSource,
        escalate_to: Sequence[str] = (),
    ) -> None:
        self._store = store
        self._escalate_to = escalate_to
        self._pause = pause
        self._ask_alertmanagers: Hear | None = None
        self._recorder = recorder
        self._reloader = reloader
        self._actions = actions
        self._reserver = reserver
        self._executor = executor
        self._verifier = verifier
        self._clock = clock
        self._life = life
        self._dispatch: Dispatch | None = None
        self._folded = _Folded()

    def attach(self, dispatch: Dispatch, hear: Hear | None) -> None:
        """Whom to wake when a run's end frees others, and whom to ask what fires (None = deliveries alone say it)."""
        self._dispatch = dispatch
        self._ask_alertmanagers = hear

    def advance(self, run_id: str, duty: Duty) -> datetime | None:
        """Do all that can be done now: the messages that no act of this run waits for, or all the rest.

        Returns:
            When to come again; None = an event wakes the run, or it is closed.

        Raises:
            StoreError: nothing was half done; come again.
        """
        while True:
            run = self.run(run_id)
            now = self.situation(run)
            move = next_move(run, now)
            if _duty_of(run, move) is not duty:
                if duty is Duty.TELL:
                    self.wake([run_id])
                    return None
                self._let_tell(run_id)
                if run.outcome is not None or not isinstance(move, Tell):
                    return None
                # That it waits or asks is told meanwhile: should its turn have come, it takes it.
                move = next_move(run, replace(now, is_quiet=True))
            match move:
                case Sleep(until):
                    return self._sleep(run, now, until)
                case Close():
                    self._close(run)
                    return None
                case Replan():
                    self._replan(run)
                case WaitForWord(why):
                    return self._wait_for_word(run, now, why)
                case Judge(rung, asks):
                    verdict, again = self._reserver.reserve(run, rung, self._reloader.now.playbooks.policy, asks=asks)
                    if verdict.word is Word.WAIT and run.plan.mode is Mode.ENFORCE:
                        return self._sleep_waiting(run, again)
                    if verdict.word is Word.REFUSE:
                        self._wake_waiting()
                case Ask(step):
                    self._ask(run, step)
                case Try(step, number):
                    self._try(run, now, step, number, None)
                case Tell(kind, number, about):
                    self._try(run, now, self._message(run, kind, about), number, kind)
                case Look(step_key):
                    again = self._executor.look(run, self._step(run, step_key))
                    if again is not None:
                        return self._sleep(run, now, again)
                case Skip(step_key, reason, detail, outcome):
                    self._executor.skip(run, step_key, outcome, reason, detail)
                case Verify(step_key):
                    again = self._verifier.look(run, step_key, now)
                    if again is not None:
                        return self._sleep(run, now, again)
                case Climb(rung):
                    self._climb(run, rung)
                case Finish():
                    self._finish(run, move)
                case _:
                    assert_never(move)

    # -- what is known

    def run(self, run_id: str) -> Run:
        """The run, folded from its events."""
        with self._store.read() as conn:
            return self._folded.run(conn, run_id)

    def situation(self, run: Run) -> Situation:
        """What is going on around the run, in one snapshot."""
        plan, now = run.plan, self._clock.now()
        with self._store.read() as conn:
            subject = subjects.get_subject(conn, plan.subject_id)
            assert subject is not None
            firing = subjects.open_keys_of(conn, subject.id)
            last_word_at = subjects.last_word_at(conn, subject.id) or subject.opened_at
            pause = self._pause(conn)
            told = runs.told_at(conn, plan.playbook, plan.per_key)
            is_reopened = bool(plan.resolved) and runs.is_reopened(conn, plan)
            start_rung = self._start_rung(conn, run, now)
        in_force = self._reloader.now
        gap = tell_gap(run)
        return Situation(
            now=now,
            is_open=subject.closed_at is None,
            close_reason=subject.close_reason,
            opened_at=subject.opened_at,
            closed_at=subject.closed_at,
            opener_fires=label_key(plan.labels) in firing,
            last_word_at=last_word_at,
            n_alerts=len(firing),
            mode=in_force.mode_of(plan.playbook, plan.case),
            up_since=self._life.up_since,
            gap_ended_at=self._life.long_gap_ended_at,
            gaps=self._life.gaps,
            pause=pause,
            heard=self._hear(run, subject, firing, last_word_at),
            has_told=frozenset(
                kind for kind in MessageKind if (at := told.get(ending_of(kind, run))) is not None and now < at + gap
            ),
            is_reopened=is_reopened,
            others_to_tell=self._others(plan),
            start_rung=start_rung,
        )

    def _start_rung(self, conn: Connection, run: Run, now: datetime) -> int:
        """Where a run begins on its ladder when its turn comes: one above the last one, if that was lately."""
        plan = run.plan
        if plan.ladder is None or run.rung:
            return run.rung
        last = runs.last_rung(conn, plan.playbook, plan.per_key, plan.run_id)
        return start_rung(plan, last, run.waits_since or now)

    def _hear(
        self,
        run: Run,
        subject: subjects.Subject,
        firing: frozenset[str],
        last_word_at: datetime,
    ) -> Heard | None:
        """Ask the Alertmanagers, if its turn is what this is about."""
        now, gap_ended_at = self._clock.now(), self._life.long_gap_ended_at
        if self._ask_alertmanagers is None or not needs_word(run, subject.opened_at, gap_ended_at, now):
            return None
        return self._ask_alertmanagers(firing, last_word_at, silences_of(run))

    def _step(self, run: Run, step_key: str) -> PlannedStep:
        found = run.find(step_key)
        if found is not None:
            return found
        return self._message(run, *message_of(step_key))

    def _others(self, plan: Plan) -> tuple[str, ...]:
        """Whom the settings name for escalations beside those whom the plan names."""
        return tuple(to for to in self._escalate_to if to not in plan.escalate_to)

    def _message(self, run: Run, kind: MessageKind, about: str) -> PlannedStep:
        title, body = message(kind, run, about)
        match kind:
            case MessageKind.REPORT:
                to = run.plan.report_to
            case MessageKind.APPROVAL:
                to = run.questions[about].ask
            case MessageKind.ESCALATE if about == OTHERS:
                to = self._others(run.plan) or run.plan.escalate_to  # the settings may have changed since it began
            case _:
                to = run.plan.escalate_to
        return planned_message(message_key(kind, about), to, title, body, self._actions, MESSAGE_RETRY)

    # -- moves

    def _try(self, run: Run, now: Situation, step: PlannedStep, number: int, told: MessageKind | None) -> None:
        policy = self._reloader.now.playbooks.policy
        refused = self._executor.attempt(run, step, number, now.n_alerts, policy, told)
        if refused is None:
            return
        if run.outcome is None:
            self._finish(run, refused)
        else:  # a step for when it is over: the run has ended already
            self._executor.skip(run, step.key, Outcome.FAILED, refused.reason, refused.detail)

    def _ask(self, run: Run, step: PlannedStep) -> None:
        """Ask people for one step; one with nothing to change asks nobody."""
        assert step.approval is not None
        if not self._executor.would_change(run, step):
            detail = "there was nothing to change, and nobody was asked"
            self._executor.skip(run, step.key, Outcome.UNCHANGED, Reason.ALREADY_SO, detail)
            return
        now, data = self._clock.now(), question_data(step.key, step.approval, run.rung)

        def work(tx: Tx) -> None:
            self._recorder.append_to_run(tx, run.plan, run.n_events + 1, EventType.APPROVAL_ASKED, now, data)
            let_go_while_asking(tx.conn, run)

        self._store.write(work)

    def _climb(self, run: Run, rung: int) -> None:
        """Go on with the next rung; what was changed stays reserved, the place among those at work does not."""
        data: dict[str, JsonValue] = {"from": run.rung, "to": rung, "detail": run.verification_detail}
        now = self._clock.now()

        def work(tx: Tx) -> list[str]:
            runs.give_place_back(tx.conn, run.plan.run_id)
            self._recorder.append_to_run(tx, run.plan, run.n_events + 1, EventType.RUNG_CLIMBED, now, data)
            return self._may_go_on(tx.conn)

        self.wake(self._store.write(work))

    def _finish(self, run: Run, end: Finish) -> None:
        now = self._clock.now()

        def work(tx: Tx) -> list[str]:
            if run.open_question is not None and _fold(tx.conn, run.plan.run_id).open_question is None:
                return []  # somebody answered at the last moment: the next look sees it
            end_run(tx, self._recorder, run.plan, run.n_events + 1, end, now)
            return [*self._may_go_on(tx.conn), *leases.stacks_on(tx.conn, run.planned_targets)]

        self.wake(self._store.write(work))

    def _may_go_on(self, conn: Connection) -> list[str]:
        return runs.may_go_on(conn, self._reloader.now.playbooks.policy.max_concurrent_runs)

    def _wake_waiting(self) -> None:
        """Let others have their turn, oldest first."""
        with self._store.read() as conn:
            self.wake(self._may_go_on(conn))

    def wake(self, run_ids: list[str]) -> None:
        """Let these be looked at, in this order."""
        if self._dispatch is not None:
            for run_id in run_ids:
                self._dispatch.wake(run_id)

    def _let_tell(self, run_id: str) -> None:
        if self._dispatch is not None:
            self._dispatch.tell(run_id)

    def _replan(self, run: Run) -> None:
        """Plan anew from the oldest alert of the subject that fires."""
        in_force = self._reloader.now
        with self._store.read() as conn:
            oldest = subjects.oldest_open_episode_of(conn, run.plan.subject_id)
        playbook = in_force.playbooks.named(run.plan.playbook)
        cases = playbook.cases if playbook is not None else ()
        case = next((case for case in cases if case.name == run.plan.case), None)
        if oldest is None:
            return  # it ended under our eyes: the next look sees it
        if playbook is None or case is None:
            self._finish(run, Finish(RunOutcome.CANCELLED, Reason.PLAYBOOK_GONE, "its playbook was removed"))
            return
        if playbook.sha256 != run.plan.playbook_sha256:
            # A run keeps the plan that it was made with, and that one names an alert which is over.
            detail = "its playbook was edited, and the alert that it was planned for has ended"
            self._finish(run, Finish(RunOutcome.CANCELLED, Reason.PLAYBOOK_EDITED, detail))
            return
        match = Match(playbook=playbook, case=case, per=run.plan.per, per_key=run.plan.per_key)
        plan, refusal = make_plan(
            match,
            unpack_alert(oldest.alert["alert"]),
            oldest.alert["group"],
            subject=run.plan.subject_id,
            rules=in_force.playbooks,
            actions=self._actions,
        )
        if refusal is not None:
            self._finish(run, Finish(RunOutcome.REFUSED, refusal.reason, refusal.detail))
            return
        now, data = self._clock.now(), {"plan": pack_plan(plan)}

        def work(tx: Tx) -> None:
            runs.release(tx.conn, run.plan.run_id)  # it may mean other targets now: it is judged anew
            self._recorder.append_to_run(tx, plan, run.n_events + 1, EventType.PLAN_MADE, now, data)

        self._store.write(work)

    # -- waiting

    def _sleep(self, run: Run, now: Situation, until: datetime | None) -> datetime | None:
        phase = phase_of(run, now)

        def work(tx: Tx) -> None:
            runs.set_due(tx.conn, run.plan.run_id, until)
            if run.outcome is None:
                runs.set_phase(tx.conn, run.plan.run_id, phase, run.waits_for)

        self._store.write(work)
        return until

    def _sleep_waiting(self, run: Run, again: datetime | None) -> datetime | None:
        latest = self.run(run.plan.run_id)
        tell_at, now = tell_next_at(latest), self._clock.now()
        if tell_at is not None and tell_at <= now:
            self._let_tell(run.plan.run_id)
            tell_at = None
        until = min((at for at in (again, tell_at) if at is not None), default=None)
        self._store.write(lambda tx: runs.set_due(tx.conn, run.plan.run_id, until))
        if run.waits_for and latest.waits_for != run.waits_for:
            self._wake_younger(run)
        return until

    def _wake_younger(self, run: Run) -> None:
        """What this plan waits for has changed: younger ones may have stood behind it for nothing."""
        with self._store.read() as conn:
            self.wake([run_id for run_id in self._may_go_on(conn) if run_id != run.plan.run_id])

    def _wait_for_word(self, run: Run, situation: Situation, why: Reason) -> datetime | None:
        waits_for = (f"turn:{why.value}",)
        now = self._clock.now()

        def work(tx: Tx) -> None:
            phase = Phase.ACTING if run.is_admitted else Phase.WAITING
            runs.set_phase(tx.conn, run.plan.run_id, phase, waits_for)
            if run.waits_for != waits_for:
                self._recorder.append_to_run(
                    tx, run.plan, run.n_events + 1, EventType.TURN_WAITED, now, {"waits_for": list(waits_for)}
                )

        self._store.write(work)
        return self._sleep_waiting(run, now + ASK_AGAIN if situation.heard is not None else None)

    def _close(self, run: Run) -> None:
        def work(tx: Tx) -> None:
            runs.set_due(tx.conn, run.plan.run_id, None)
            runs.set_phase(tx.conn, run.plan.run_id, Phase.CLOSED)

        self._store.write(work)


class _Folded:
    """Remembers runs as they were, and folds on from there: the log only grows.

    Held against the log each time, by the hash of the last event that was folded: a file that was put in the place of
    another may have a shorter log.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, tuple[int, str, Run]] = {}

    def run(self, conn: Connection, run_id: str) -> Run:
        """The run as this snapshot has it."""
        with self._lock:
            known = self._known.pop(run_id, None)
        behind = None if known is None else audit.log_of_run_behind(conn, run_id, known[0], known[1])
        if known is not None and behind is not None:
            seq, digest, before = known
            run = fold_on(before, [one.event for one in behind])
        else:
            seq, digest, behind = 0, "", audit.log_of_run(conn, run_id)
            run = fold([one.event for one in behind])
        if behind:
            seq, digest = behind[-1].seq, behind[-1].hash
        with self._lock:
            self._known[run_id] = (seq, digest, run)  # at the end: the first is the one not asked for the longest
            if len(self._known) > REMEMBERED:
                del self._known[next(iter(self._known))]
        return run


def _fold(conn: Connection, run_id: str) -> Run:
    return fold([one.event for one in audit.log_of_run(conn, run_id)])


def _duty_of(run: Run, move: Move) -> Duty:
    """Whose a move is. The message of a step stays with the acts of its run, which come before and after it."""
    match move:
        case Tell():
            return Duty.TELL
        case Try(step) if step.is_message and (run.outcome is not None or run.plan.is_messages_alone):
            return Duty.TELL
        case _:
            return Duty.ACT
