"""Stages 1 to 4: a body is decoded and committed, and only then answered; then its alerts become episodes, subjects and
plans, in the order of the deliveries, each alert on its own.

``submit`` runs where the web calls it, mostly in its event loop, waits for nothing and knows nothing of playbooks.
``Intake`` is one thread over the inbox, that lets what waits for its answer go first and takes small deliveries
together: what a crash leaves unhandled is handled at the next start, and handling a delivery twice changes nothing.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial

from remediator.core.action import JsonValue
from remediator.core.alert import Alert, AlertGroup, AlertStatus, RawDelivery, pack_alert
from remediator.core.decode import decode
from remediator.core.event import Event, EventType, utc_text
from remediator.core.match import IgnoredMatch, Match, MissingPer
from remediator.core.move import time_away
from remediator.core.outcome import RunOutcome
from remediator.core.plan import (
    NAMESPACE,
    Actions,
    Plan,
    Refusal,
    make_plan,
    missing_key,
    pack_plan,
    subject_id,
)
from remediator.core.run import Phase
from remediator.engine.clock import Clock
from remediator.engine.dispatch import Dispatch
from remediator.engine.ending import close_if_over
from remediator.engine.life import Life
from remediator.engine.record import Recorder
from remediator.engine.reload import InForce, Reloader, adopt
from remediator.errors import DeliveryError, StoreError
from remediator.store import inbox, leases, runs, subjects
from remediator.store.engine import Store
from remediator.store.writer import Tx
from remediator.telemetry import Metrics, get_logger

log = get_logger(__name__)

CHUNK = 200
"""Alerts per transaction: a storm in one body must not keep other deliveries from their answer."""

BATCH = 30
"""Alerts of several small deliveries per transaction: handling them together costs less, and each holds up those that
wait for an answer for a few milliseconds."""

ANSWERS_FIRST_S = 0.05
"""How long a transaction of the intake waits for deliveries that are about to be answered: a sender counts the time of
its answer, and nobody that of the handling. A stream of them without a gap holds it up no longer than this."""

DECODED_KEPT = 200
"""Deliveries that are handed over decoded; of a longer queue the others are read and decoded again, from the inbox."""

BAD_ALERTS_KEPT = 20
"""Of one delivery, each with an event of its own; the others are counted. A body may hold millions of them."""

API_SOURCE = "alertmanager api"
"""Source of a delivery that the engine made of an Alertmanager's answer: it fires now, whatever its start."""

STALE_COPY_FOR = timedelta(minutes=5)
"""A firing copy of what was resolved opens nothing until a copy this much later says the same again."""

STORE_AGAIN_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """A delivery that is committed and synced."""

    delivery_id: int
    n_alerts: int
    n_bad_alerts: int


_Unhandled = tuple[inbox.StoredDelivery, AlertGroup]


class Receiver:
    """Stage 1."""

    def __init__(self, store: Store, recorder: Recorder, intake: Intake, metrics: Metrics) -> None:
        self._store = store
        self._recorder = recorder
        self._intake = intake
        self._n_firing = metrics.alerts.labels(AlertStatus.FIRING.value)
        self._n_resolved = metrics.alerts.labels(AlertStatus.RESOLVED.value)
        self._n_bad = metrics.bad_alerts
        self._n_cut = metrics.cut_alerts

    def submit(self, raw: RawDelivery) -> Future[Receipt]:
        """Decode, and have it committed and synced: then the future has its receipt.

        Raises:
            DecodeError, UnsupportedVersionError: the body will never be right (400); nothing is stored.
            StoreUnavailableError: send it again (503); nothing is stored. The future can raise it as well.
        """
        group = decode(raw.body, raw.received_at)
        commit = self._store.submit(lambda tx: self._commit(tx, raw, group))
        self._intake.expect()
        commit.add_done_callback(lambda _: self._intake.is_answered())
        return commit

    def _commit(self, tx: Tx, raw: RawDelivery, group: AlertGroup) -> Receipt:
        delivery_id = inbox.store_delivery(tx, raw)
        n_firing = sum(1 for alert in group.alerts if alert.status is AlertStatus.FIRING)
        n_resolved = len(group.alerts) - n_firing
        data: dict[str, JsonValue] = {
            "source": raw.source,
            "receiver": group.receiver,
            "sha256": raw.sha256,
            "n_bytes": len(raw.body),
            "n_firing": n_firing,
            "n_resolved": n_resolved,
            "n_bad": len(group.bad_alerts),
            "n_truncated": group.n_truncated,
        }
        self._recorder.append(
            tx, Event(type=EventType.DELIVERY_RECEIVED, at=raw.received_at, delivery_id=delivery_id, data=data)
        )
        for bad in group.bad_alerts[:BAD_ALERTS_KEPT]:
            self._recorder.append(
                tx,
                Event(
                    type=EventType.ALERT_REJECTED,
                    at=raw.received_at,
                    delivery_id=delivery_id,
                    data={"index": bad.index, "detail": bad.problem},
                ),
            )

        def is_committed() -> None:
            self._n_firing.inc(n_firing)
            self._n_resolved.inc(n_resolved)
            self._n_bad.inc(len(group.bad_alerts))
            if group.n_truncated:
                self._n_cut.inc(group.n_truncated)
                log.warning("Alertmanager cut a group", delivery_id=delivery_id, n_missing=group.n_truncated)
            self._intake.notify(delivery_id, raw.body, group)

        tx.after_commit(is_committed)
        return Receipt(delivery_id=delivery_id, n_alerts=len(group.alerts), n_bad_alerts=len(group.bad_alerts))


class Intake:
    """Stages 3 and 4, one thread. ``actions`` is asked to describe and validate, never to act."""

    def __init__(
        self,
        store: Store,
        recorder: Recorder,
        reloader: Reloader,
        actions: Actions,
        clock: Clock,
        life: Life,
        dispatch: Dispatch,
        expire_after: timedelta,
    ) -> None:
        self._store = store
        self._recorder = recorder
        self._reloader = reloader
        self._actions = actions
        self._clock = clock
        self._life = life
        self._dispatch = dispatch
        self._expire_after = expire_after
        self._on_cut: Callable[[AlertGroup], None] | None = None
        lock = threading.Lock()
        self._changed = threading.Condition(lock)
        self._all_answered = threading.Condition(lock)
        self._decoded: dict[int, tuple[bytes, AlertGroup]] = {}
        self._last_taken = 0
        self._has_news = False
        self._n_unanswered = 0
        self._is_stopping = False
        self._thread: threading.Thread | None = None

    def tell_of_cut_groups(self, on_cut: Callable[[AlertGroup], None]) -> None:
        """Whom to tell of a delivery that Alertmanager cut."""
        self._on_cut = on_cut

    # -- the thread

    def start(self) -> None:
        """Begin with what a crash left unhandled."""
        self._thread = threading.Thread(target=self._run, name="intake", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End after the delivery at hand."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def notify(self, delivery_id: int, body: bytes, group: AlertGroup) -> None:
        """A delivery was committed; ``group`` is what its body says."""
        with self._changed:
            # A commit can be read before it is told of here; what was taken then must not stay for ever.
            is_to_come = delivery_id > self._last_taken
            is_small = len(group.alerts) + len(group.bad_alerts) <= BATCH
            if is_to_come and is_small and len(self._decoded) < DECODED_KEPT:
                self._decoded[delivery_id] = (body, group)
            self._has_news = True
            self._changed.notify_all()

    def expect(self) -> None:
        """A delivery is about to be committed and answered."""
        with self._changed:
            self._n_unanswered += 1

    def is_answered(self) -> None:
        """It was, or could not be."""
        with self._changed:
            self._n_unanswered -= 1
            if not self._n_unanswered:
                self._all_answered.notify_all()

    def _let_answers_go_first(self) -> None:
        with self._changed:
            self._all_answered.wait_for(lambda: not self._n_unanswered or self._is_stopping, ANSWERS_FIRST_S)

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread is not None and self._thread.is_alive()

    def _run(self) -> None:
        while not self._is_stopping:
            try:
                n_handled = self.handle_waiting()
            except StoreError as error:
                log.warning("store away, deliveries wait", problem=str(error))
                with self._changed:  # not sooner for what may still come in: nothing can be read
                    self._changed.wait_for(lambda: self._is_stopping, STORE_AGAIN_S)
                continue
            except Exception:
                log.exception("unexpected error at the inbox")
                self._recorder.note_bug("inbox")
                n_handled = 0
            with self._changed:
                if not n_handled:
                    self._changed.wait_for(lambda: self._has_news or self._is_stopping, STORE_AGAIN_S)
                self._has_news = False

    def handle_waiting(self) -> int:
        """Handle what is in the inbox, oldest first.

        Returns:
            How many deliveries were handled.

        Raises:
            StoreError: what was not handled stays in the inbox.
        """
        with self._store.read() as conn:
            waiting = inbox.unhandled(conn, 50)
        if not waiting:
            return 0
        batch: list[_Unhandled] = []
        n_alerts = 0
        for stored in waiting:
            group = self._group_of(stored)
            if group is None:
                continue
            if n_alerts + len(group.alerts) > BATCH:
                self._handle_batch(batch)
                batch, n_alerts = [], 0
            batch.append((stored, group))
            n_alerts += len(group.alerts)
        self._handle_batch(batch)
        return len(waiting)

    def take_again(self, deliveries: Sequence[inbox.StoredDelivery], move: Callable[[datetime], None]) -> int:
        """Handle what was stored and handled before, each at its own time; for replays, on a store of their own.

        Args:
            move: sets the clock to when a delivery came.

        Returns:
            How many were handled: up to the first that lets a run or a lease be looked at, which has to come before the
            next. What cannot be decoded is passed over.

        Raises:
            StoreError: none was handled.
        """

        def work(tx: Tx) -> int:
            for number, stored in enumerate(deliveries, 1):
                move(stored.received_at)
                with suppress(DeliveryError):  # it was stored by a version that took it
                    group = _group_again(stored.body)
                    for alert in group.alerts:
                        self._take(tx, stored, group, alert)
                if tx.hooks:
                    return number
            return len(deliveries)

        return self._store.write(work)

    def end_again(self, label_key: str, reason: str, at: datetime) -> None:
        """End what fires of a label set as it once ended (``absent``, ``expired``); for replays. Raises StoreError."""

        def work(tx: Tx) -> None:
            current = subjects.open_episode(tx.conn, label_key)
            if current is not None:
                self.end_episode(tx, current, reason, at if reason == "absent" else None, 0)

        self._store.write(work)

    def _group_of(self, stored: inbox.StoredDelivery) -> AlertGroup | None:
        """What its body says; None when that cannot be read any more, which is recorded."""
        with self._changed:
            body, group = self._decoded.pop(stored.id, (b"", None))
            self._last_taken = max(self._last_taken, stored.id)
        # A backup put back under the engine gives a number to another delivery.
        if group is None or body != stored.body:
            try:
                group = decode(stored.body, stored.received_at)
            except DeliveryError as error:  # stored by a version that took it
                self._give_up(stored, str(error))
                return None
        if group.n_truncated and self._on_cut is not None:
            self._on_cut(group)
        return group

    def _handle_batch(self, batch: list[_Unhandled]) -> None:
        """Deliveries in one transaction; one by one when it fails, or when there is one alone."""
        self._let_answers_go_first()
        if self._is_stopping:
            return  # the next start handles them
        if len(batch) > 1:

            def all_of_it(tx: Tx) -> None:
                for stored, group in batch:
                    for alert in group.alerts:
                        self._take(tx, stored, group, alert)
                    inbox.mark_handled(tx, stored.id, self._clock.now())

            try:
                self._store.write(all_of_it)
            except StoreError:
                raise
            except Exception:
                log.exception("unexpected error in several deliveries")
            else:
                return
        for stored, group in batch:
            self._handle(stored, group)

    def _handle(self, stored: inbox.StoredDelivery, group: AlertGroup) -> None:
        chunks = [group.alerts[start : start + CHUNK] for start in range(0, len(group.alerts), CHUNK)] or [()]
        for chunk in chunks[:-1]:
            if self._is_stopping:
                return  # the next start takes the whole delivery again, and finds what is done
            self._handle_chunk(stored, group, chunk, is_last=False)
        self._handle_chunk(stored, group, chunks[-1], is_last=True)

    def _give_up(self, stored: inbox.StoredDelivery, problem: str) -> None:
        event = Event(
            type=EventType.DELIVERY_REJECTED,
            at=self._clock.now(),
            delivery_id=stored.id,
            data={"source": stored.source, "http_status": 0, "detail": problem, "n_bytes": len(stored.body)},
        )

        def work(tx: Tx) -> None:
            self._recorder.append(tx, event)
            inbox.mark_handled(tx, stored.id, event.at)

        self._store.write(work)

    def _handle_chunk(
        self, stored: inbox.StoredDelivery, group: AlertGroup, chunk: tuple[Alert, ...], *, is_last: bool
    ) -> None:
        def all_of_it(tx: Tx) -> None:
            for alert in chunk:
                self._take(tx, stored, group, alert)
            if is_last:
                inbox.mark_handled(tx, stored.id, self._clock.now())

        try:
            self._store.write(all_of_it)
        except StoreError:
            raise
        except Exception:
            log.exception("unexpected error in a delivery", delivery_id=stored.id)
            self._handle_one_by_one(stored, group, chunk, is_last=is_last)

    def _handle_one_by_one(
        self, stored: inbox.StoredDelivery, group: AlertGroup, chunk: tuple[Alert, ...], *, is_last: bool
    ) -> None:
        for alert in chunk:
            try:
                self._store.write(partial(self._take, stored=stored, group=group, alert=alert))
            except StoreError:
                raise
            except Exception as error:
                log.exception("unexpected error in an alert", fingerprint=alert.fingerprint)
                self._recorder.note_bug("alert")
                event = Event(
                    type=EventType.ALERT_REJECTED,
                    at=self._clock.now(),
                    delivery_id=stored.id,
                    fingerprint=alert.fingerprint,
                    data={"index": group.alerts.index(alert), "detail": f"internal error: {type(error).__name__}"},
                )
                self._store.write(partial(self._recorder.append, event=event))
        if is_last:
            self._store.write(lambda tx: inbox.mark_handled(tx, stored.id, self._clock.now()))

    # -- one alert

    def _take(self, tx: Tx, stored: inbox.StoredDelivery, group: AlertGroup, alert: Alert) -> None:
        if alert.status is AlertStatus.FIRING:
            self._fires(tx, stored, group, alert)
        else:
            self._is_resolved(tx, stored, alert)

    def _fires(self, tx: Tx, stored: inbox.StoredDelivery, group: AlertGroup, alert: Alert) -> None:
        episode_id = subjects.touch_episode(tx.conn, alert.label_key, stored.received_at, stored.id)
        if episode_id is not None:
            # A repeat changes nothing but for those that wait for a word: all others have their due times.
            for run_id in runs.waiting_for_word(tx.conn, episode_id):
                self._wake(tx, run_id)
            return
        if self._is_stale_copy(tx, stored, alert):
            return
        self._open(tx, stored, group, alert)

    def _is_stale_copy(self, tx: Tx, stored: inbox.StoredDelivery, alert: Alert) -> bool:
        last = subjects.newest_episode(tx.conn, alert.label_key)
        if last is None or last.resolved_ends_at is None or stored.source == API_SOURCE:
            return False
        if alert.starts_at is None or alert.starts_at > last.resolved_ends_at:
            return False
        if last.stale_copy_at is None:
            subjects.note_stale_copy(tx.conn, last.id, stored.received_at)
            return True
        return stored.received_at - last.stale_copy_at <= STALE_COPY_FOR

    def _open(self, tx: Tx, stored: inbox.StoredDelivery, group: AlertGroup, alert: Alert) -> None:
        group_context: dict[str, JsonValue] = {
            "labels": dict(group.group_labels),
            "receiver": group.receiver,
            "external_url": group.external_url,
        }
        episode = self._episode(stored, alert, group_context)
        subjects.insert_episode(tx.conn, episode, stored.id)
        self._note(tx, EventType.EPISODE_OPENED, episode, stored.id, {"labels": dict(alert.labels)})
        in_force = self._reloader.now
        matches = in_force.index.match(alert.labels)
        if not matches:
            self._note(tx, EventType.ALERT_UNMATCHED, episode, stored.id, {})
        for match in matches:
            self._join(tx, in_force, match, alert, group_context, episode, stored)

    def _episode(self, stored: inbox.StoredDelivery, alert: Alert, group: Mapping[str, JsonValue]) -> subjects.Episode:
        named = ("episode", alert.label_key, str(stored.id), alert.status, alert.starts_at_text)
        return subjects.Episode(
            id=str(uuid.uuid5(NAMESPACE, "\x1f".join(named))),
            label_key=alert.label_key,
            fingerprint=alert.fingerprint,
            alert={"alert": pack_alert(alert), "group": group},
            opened_at=stored.received_at,
            starts_at=alert.starts_at or stored.received_at,
            last_word_at=stored.received_at,
            ended_at=None,
            end_reason="",
            resolved_ends_at=None,
            stale_copy_at=None,
        )

    def _join(
        self,
        tx: Tx,
        in_force: InForce,
        match: Match | IgnoredMatch | MissingPer,
        alert: Alert,
        group: Mapping[str, JsonValue],
        episode: subjects.Episode,
        stored: inbox.StoredDelivery,
    ) -> None:
        name, case = match.playbook.name, match.case.name
        if isinstance(match, IgnoredMatch):
            data: dict[str, JsonValue] = {"case": case, "detail": match.why}
            self._note(tx, EventType.ALERT_IGNORED, episode, stored.id, data, playbook=name)
            return
        per_key = match.per_key if isinstance(match, Match) else missing_key(match)
        existing = subjects.open_subject(tx.conn, name, case, per_key)
        if existing is not None:
            subjects.link(tx.conn, existing.id, episode.id)
            self._wake_runs_of(tx, [existing])
            return
        since = in_force.able_since.get(name)
        if isinstance(match, Match) and since is not None and episode.starts_at < since:
            adopt(tx, self._recorder, match, episode, self._clock.now(), stored.id)
            return
        subject = subject_id(name, case, per_key, episode.id)
        plan, refusal = make_plan(match, alert, group, subject=subject, rules=in_force.playbooks, actions=self._actions)
        open_with_plan(
            tx, self._recorder, plan, refusal, self._clock.now(), episode=episode, opened_at=stored.received_at,
            delivery_id=stored.id,
        )  # fmt: skip
        self._wake(tx, plan.run_id)
        self._wake_leases(tx, name, per_key)

    def _is_resolved(self, tx: Tx, stored: inbox.StoredDelivery, alert: Alert) -> None:
        episode = subjects.open_episode(tx.conn, alert.label_key)
        if episode is None:
            self._is_resolved_again(tx, stored, alert)
            return
        if alert.ends_at is not None and alert.ends_at <= episode.starts_at:
            return  # the end of the episode before this one, delivered once more
        self.end_episode(tx, episode, "resolved", alert.ends_at or stored.received_at, stored.id)

    def _is_resolved_again(self, tx: Tx, stored: inbox.StoredDelivery, alert: Alert) -> None:
        """Nothing of it fires here. Copies of its firing that are still under way must open nothing."""
        ends_at = alert.ends_at or stored.received_at
        last = subjects.newest_episode(tx.conn, alert.label_key)
        if last is not None:
            newest = max(ends_at, last.resolved_ends_at or ends_at)
            subjects.note_resolved_again(tx.conn, last.id, newest)
            return
        ended = replace(
            self._episode(stored, alert, {}),
            ended_at=stored.received_at,
            end_reason="resolved",
            resolved_ends_at=ends_at,
        )
        subjects.insert_episode(tx.conn, ended, stored.id)

    def end_episode(
        self, tx: Tx, episode: subjects.Episode, reason: str, ends_at: datetime | None, delivery_id: int
    ) -> None:
        """An episode ends, and with it each of its subjects of which nothing fires any more."""
        now = self._clock.now()
        subjects.end_episode(tx.conn, episode.id, now, reason, ends_at)
        data: dict[str, JsonValue] = {"reason": reason, "ends_at": utc_text(ends_at) if ends_at is not None else ""}
        self._note(tx, EventType.EPISODE_ENDED, episode, delivery_id, data)
        touched = subjects.open_subjects_of(tx.conn, episode.id)
        for subject in touched:
            close_if_over(tx, self._recorder, subject.id, now, delivery_id)
        self._wake_runs_of(tx, touched)

    def end_absent(self, episode_id: str, at: datetime) -> None:
        """End an episode that no Alertmanager has any more; as if its ``resolved`` had come. Raises StoreError."""

        def work(tx: Tx) -> None:
            current = subjects.get_episode(tx.conn, episode_id)
            if current is not None and current.ended_at is None:
                self.end_episode(tx, current, "absent", at, 0)

        self._store.write(work)

    def expire(self) -> int:
        """End the episodes of which nothing was heard for ``expire_after``, the engine's own absence not counted.

        Returns:
            How many.

        Raises:
            StoreError: the store is away.
        """
        now = self._clock.now()
        before = now - self._expire_after
        with self._store.read() as conn:
            if not subjects.has_silent_episode(conn, before):
                return 0
            silent = subjects.silent_episodes(conn, before)
        expired = [episode for episode in silent if self._heard_for(episode, now) >= self._expire_after]
        for episode in expired:
            self._store.write(partial(self._expire_one, episode=episode))
        return len(expired)

    def expiries(self) -> dict[str, datetime]:
        """Label key of each open episode → when it expires, should nothing more be heard of it."""
        now = self._clock.now()
        with self._store.read() as conn:
            words = subjects.last_words(conn)
        return {key: at + self._expire_after + time_away(self._life.gaps, at, now) for key, at in words}

    def _expire_one(self, tx: Tx, episode: subjects.Episode) -> None:
        current = subjects.get_episode(tx.conn, episode.id)
        if current is not None and current.ended_at is None and current.last_word_at == episode.last_word_at:
            self.end_episode(tx, episode, "expired", None, 0)

    def _heard_for(self, episode: subjects.Episode, now: datetime) -> timedelta:
        return now - episode.last_word_at - time_away(self._life.gaps, episode.last_word_at, now)

    # -- small

    def _note(
        self,
        tx: Tx,
        kind: EventType,
        episode: subjects.Episode,
        delivery_id: int,
        data: Mapping[str, JsonValue],
        *,
        playbook: str = "",
    ) -> None:
        self._recorder.append(
            tx,
            Event(
                type=kind,
                at=self._clock.now(),
                delivery_id=delivery_id,
                episode_id=episode.id,
                playbook=playbook,
                fingerprint=episode.fingerprint,
                data=data,
            ),
        )

    def _wake(self, tx: Tx, run_id: str) -> None:
        tx.after_commit(lambda: self._dispatch.wake(run_id))

    def _wake_runs_of(self, tx: Tx, touched: list[subjects.Subject]) -> None:
        for subject in touched:
            row = runs.run_of_subject(tx.conn, subject.id)
            if row is not None and row.phase is not Phase.CLOSED:
                self._wake(tx, row.id)
            self._wake_leases(tx, subject.playbook, subject.per_key)

    def _wake_leases(self, tx: Tx, playbook: str, per_key: str) -> None:
        """Whether what was changed for these values is taken back hangs on whether they fire."""
        for stack in leases.stacks_of_values(tx.conn, playbook, per_key):
            self._wake(tx, stack)


@lru_cache(maxsize=500)
def _group_again(body: bytes) -> AlertGroup:
    """What a stored body says; when it came stands beside it. Most are repeats, to the byte."""
    return decode(body, datetime.min.replace(tzinfo=UTC))


def open_with_plan(
    tx: Tx,
    recorder: Recorder,
    plan: Plan,
    refusal: Refusal | None,
    now: datetime,
    *,
    opened_at: datetime,
    episode: subjects.Episode | None = None,
    delivery_id: int = 0,
    actor: str = "engine",
) -> None:
    """Open a subject and record the plan of its one run.

    Args:
        episode: that opened it; None for a run by hand.
    """
    subject = subjects.Subject(
        id=plan.subject_id,
        playbook=plan.playbook,
        case=plan.case,
        per_key=plan.per_key,
        per=plan.per,
        opened_at=opened_at,
        opened_by_episode=episode.id if episode is not None else "",
        is_adopted=False,
        is_by_hand=episode is None,
        is_latched=plan.latched,
        closed_at=None,
        close_reason="",
    )
    subjects.insert_subject(tx.conn, subject)
    if episode is not None:
        subjects.link(tx.conn, subject.id, episode.id)
    recorder.append(
        tx,
        Event(
            type=EventType.SUBJECT_OPENED,
            at=now,
            actor=actor,
            delivery_id=delivery_id,
            episode_id=subject.opened_by_episode,
            subject_id=subject.id,
            playbook=subject.playbook,
            fingerprint=plan.fingerprint,
            data={"case": subject.case, "per": dict(subject.per), "by_hand": subject.is_by_hand},
        ),
    )
    runs.insert_run(tx.conn, plan, now, Phase.HOLDING)
    data: dict[str, JsonValue] = {"plan": pack_plan(plan)}
    kind = EventType.PLAN_MADE
    if refusal is not None:
        kind = EventType.PLAN_REFUSED
        data |= {"reason": refusal.reason.value, "detail": refusal.detail}
        runs.finish(tx.conn, plan.run_id, RunOutcome.REFUSED, refusal.reason, now)
    recorder.append_to_run(
        tx, plan, 1, kind, now, data, actor=actor, delivery_id=delivery_id,
        outcome="refused" if refusal is not None else "",
    )  # fmt: skip
    if refusal is not None:
        close_if_over(tx, recorder, plan.subject_id, now)  # one by hand: nothing will ever end it
