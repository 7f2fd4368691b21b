"""What the Alertmanagers' API says beside deliveries: who still fires, whose ``resolved`` was lost, what never came.

Deliveries are lost while this engine is away, and a ``resolved`` may be lost for ever. Once a minute, and whenever a
run's turn comes, every configured Alertmanager is asked for all that it has. The answers may keep an episode open or
close it. They start nothing, unless the settings say so: then what was never delivered is taken as a delivery of its
own, through the same inbox, so that nothing after it knows the difference. But what an Alertmanager cut from a group
(``truncatedAlerts``) is always fetched: it was meant to be delivered.

A muted alert (silenced, inhibited) is there: it keeps its episode open, and lets no run have its turn.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from remediator.clients.ports import AlertmanagerReader, ListedAlert
from remediator.core.alert import AlertGroup, RawDelivery, label_key
from remediator.core.event import Event, EventType
from remediator.core.move import Heard
from remediator.engine.clock import Clock
from remediator.engine.receive import API_SOURCE, Intake
from remediator.engine.record import Recorder
from remediator.errors import ActionError, RemediatorError
from remediator.store import subjects
from remediator.store.engine import Store
from remediator.store.writer import Tx
from remediator.telemetry import Metrics, get_logger

log = get_logger(__name__)

EVERY = timedelta(minutes=1)
FRESH = timedelta(seconds=2)
"""Runs whose turn comes at one time share one answer; it is never older than this."""

ABSENT_FOR = timedelta(minutes=5)
"""Absent so long, from every answer of every Alertmanager: over. Prometheus sends each alert again every minute."""

MISSED_AFTER = timedelta(minutes=6)
"""An alert that fires so long without a delivery was missed: above the default ``group_interval``, at which
Alertmanager tries again what it could not deliver."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What all Alertmanagers said at one time.

    Attributes:
        listed: label key → the alert, by each Alertmanager that has it.
        is_complete: all of them answered.
        youngest: the latest start of any that answered, None when none did.
    """

    at: datetime
    listed: Mapping[str, tuple[ListedAlert, ...]]
    is_complete: bool
    youngest: datetime | None


class Reconciler:
    """Asks, closes, keeps open, notices. One thread; ``hear`` is called from the workers.

    Args:
        readers: URL → Alertmanager; not empty.
        receiver: the receiver that delivers here, "" = unknown: then nothing can be called missed.
        starts: take what was missed as delivered.
        accept: stage 1, for what is taken as delivered.
    """

    def __init__(
        self,
        readers: Mapping[str, AlertmanagerReader],
        *,
        receiver: str,
        starts: bool,
        store: Store,
        recorder: Recorder,
        intake: Intake,
        accept: Callable[[RawDelivery], object],
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._readers = readers
        self._receiver = receiver
        self._starts = starts
        self._store = store
        self._recorder = recorder
        self._intake = intake
        self._accept = accept
        self._clock = clock
        self._metrics = metrics
        self._asking = threading.Lock()
        self._last: Survey | None = None
        self._next_at: datetime | None = None
        self._absent_since: dict[str, datetime] = {}
        self._missed_since: dict[str, datetime] = {}
        self._noticed: set[str] = set()
        self._cut: deque[AlertGroup] = deque()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    # -- the thread

    def start(self) -> None:
        """Ask now, and then every minute."""
        self._thread = threading.Thread(target=self._run, name="reconciler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End it; an answer under way is waited for."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.step()
            except RemediatorError as error:
                log.warning("not reconciled", problem=str(error))
            except Exception:
                log.exception("unexpected error while reconciling")
            self._stop.wait(1.0)

    def step(self) -> datetime:
        """Do what is due now: cut groups at once, all else once a minute.

        Returns:
            When it is due next.

        Raises:
            StoreError: it comes again.
        """
        if self._cut:
            self.fetch_cut()
        now = self._clock.now()
        if self._next_at is None or now >= self._next_at:
            self._next_at = now + EVERY
            self.reconcile()
        return self._next_at

    # -- asking

    def survey(self, later_than: datetime | None = None) -> Survey:
        """Ask every Alertmanager, or give the last answer if that is later. Raises nothing of theirs."""
        with self._asking:
            if self._last is None or later_than is None or self._last.at <= later_than:
                self._last = self._ask()
            return self._last

    def _ask(self) -> Survey:
        at = self._clock.now()
        listed: dict[str, list[ListedAlert]] = {}
        starts: list[datetime] = []
        n_answered = 0
        for url, reader in self._readers.items():
            try:
                alerts, started_at = reader.alerts(), reader.started_at()
            except ActionError as error:
                self._metrics.alertmanager_ok.labels(url).set(0)
                log.warning("an Alertmanager gave no answer", problem=str(error))
                continue
            self._metrics.alertmanager_ok.labels(url).set(1)
            n_answered += 1
            starts.append(started_at)
            for alert in alerts:
                listed.setdefault(label_key(alert.labels), []).append(alert)
        return Survey(
            at=at,
            listed={key: tuple(alerts) for key, alerts in listed.items()},
            is_complete=n_answered == len(self._readers),
            youngest=max(starts, default=None),
        )

    def hear(self, label_keys: Iterable[str], last_word_at: datetime) -> Heard:
        """Whether any of these label sets fires, by an answer of now and later than what was delivered of them."""
        return heard_of(self.survey(max(self._clock.now() - FRESH, last_word_at)), label_keys)

    # -- once a minute

    def reconcile(self) -> None:
        """Ask, then keep open, close and notice. Raises StoreError: the next minute tries again."""
        survey = self.survey()
        with self._store.read() as conn:
            fires = {episode.label_key: episode for episode in subjects.open_episodes(conn)}
        there = [episode for key, episode in fires.items() if key in survey.listed]
        self._keep_open(there, survey.at)
        self._close_absent([episode for key, episode in fires.items() if key not in survey.listed], survey)
        self._notice_missed(survey, fires.keys())

    def _keep_open(self, episodes: Sequence[subjects.Episode], at: datetime) -> None:
        for episode in episodes:
            self._absent_since.pop(episode.id, None)
        stale = [episode.id for episode in episodes if episode.listed_at is None or at - episode.listed_at > EVERY * 5]
        if stale:
            self._store.write(lambda tx: subjects.note_listed(tx.conn, stale, at))

    def _close_absent(self, episodes: Sequence[subjects.Episode], survey: Survey) -> None:
        """An episode is over when it is absent from every answer for five minutes, and was listed before.

        An Alertmanager that has just started knows nothing yet, and one that does not answer says nothing.
        """
        now = survey.at
        is_young = survey.youngest is None or now - survey.youngest < ABSENT_FOR
        if not survey.is_complete or is_young:
            self._absent_since.clear()
            return
        open_ids = {episode.id for episode in episodes}
        self._absent_since = {key: since for key, since in self._absent_since.items() if key in open_ids}
        for episode in episodes:
            if episode.listed_at is None:
                continue
            since = self._absent_since.setdefault(episode.id, now)
            # What was delivered since then fires, whatever the answers say.
            if now - since >= ABSENT_FOR and episode.last_word_at <= since:
                self._intake.end_absent(episode.id, now)
                self._absent_since.pop(episode.id, None)

    def _notice_missed(self, survey: Survey, open_keys: Iterable[str]) -> None:
        """Alerts that fire, lead to our receiver, and were never delivered."""
        known = set(open_keys)
        fires = {
            key: alerts[0]
            for key, alerts in survey.listed.items()
            if key not in known
            and any(alert.is_active and self._receiver in alert.receivers for alert in alerts)
            and self._receiver
        }
        self._missed_since = {key: self._missed_since.get(key, survey.at) for key in fires}
        self._noticed &= fires.keys()
        missed = {key: alert for key, alert in fires.items() if survey.at - self._missed_since[key] >= MISSED_AFTER}
        self._metrics.missed_alerts.set(len(missed))
        fresh = {key: alert for key, alert in missed.items() if key not in self._noticed}
        if fresh:
            self._store.write(lambda tx: self._note_missed(tx, fresh, survey.at))
            self._noticed |= fresh.keys()
            if self._starts:
                self._deliver(fresh.values(), {}, survey.at)

    def _note_missed(self, tx: Tx, missed: Mapping[str, ListedAlert], at: datetime) -> None:
        detail = "taken as delivered" if self._starts else "nothing is started for it (setting reconcile.starts)"
        for alert in missed.values():
            self._recorder.append(
                tx,
                Event(
                    type=EventType.ALERT_MISSED,
                    at=at,
                    fingerprint=alert.fingerprint,
                    data={"labels": dict(alert.labels), "starts_at": alert.starts_at, "detail": detail},
                ),
            )

    # -- cut groups

    def note_cut(self, group: AlertGroup) -> None:
        """A delivery of this group was cut: what is missing from it is fetched."""
        self._cut.append(group)

    def fetch_cut(self) -> None:
        """Fetch what was cut from the groups noted since the last time, and take it as delivered.

        Raises:
            StoreError: it is fetched again.
        """
        groups = list(self._cut)
        survey = self.survey()
        for group in groups:
            came = {alert.label_key for alert in group.alerts}
            rest = [
                alerts[0]
                for key, alerts in survey.listed.items()
                if key not in came and any(_belongs(alert, group) for alert in alerts)
            ]
            if rest:
                self._deliver(rest, group.group_labels, survey.at)
            if len(rest) < group.n_truncated and not survey.is_complete:
                return  # not all that was cut has been found: ask again
            self._cut.popleft()

    # -- taking as delivered

    def _deliver(self, alerts: Iterable[ListedAlert], group_labels: Mapping[str, str], at: datetime) -> None:
        body: dict[str, Any] = {
            "version": "4",
            "status": "firing",
            "receiver": self._receiver,
            "groupKey": "",
            "groupLabels": dict(group_labels),
            "commonLabels": {},
            "commonAnnotations": {},
            "externalURL": next(iter(self._readers)),
            "truncatedAlerts": 0,
            "alerts": [
                {
                    "status": "firing",
                    "labels": dict(alert.labels),
                    "annotations": dict(alert.annotations),
                    "startsAt": alert.starts_at,
                    "generatorURL": alert.generator_url,
                    "fingerprint": alert.fingerprint,
                }
                for alert in alerts
            ],
        }
        raw = RawDelivery(received_at=at, source=API_SOURCE, body=json.dumps(body).encode())
        self._accept(raw)


def heard_of(survey: Survey, label_keys: Iterable[str]) -> Heard:
    """What a survey says of a subject's label sets. Pure."""
    found = [alert for key in label_keys for alert in survey.listed.get(key, ())]
    if any(alert.is_active for alert in found):
        return Heard.FIRES
    if not survey.is_complete:
        return Heard.NO_ANSWER
    if any(alert.muted_by == "silenced" for alert in found):
        return Heard.SILENCED
    if found and all(alert.muted_by for alert in found):
        return Heard.INHIBITED
    return Heard.NO_ANSWER if found else Heard.ABSENT


def _belongs(alert: ListedAlert, group: AlertGroup) -> bool:
    """Whether a listed alert is of this group: active, of its receiver, with its group labels."""
    labels = group.group_labels.items()
    return (
        alert.is_active
        and group.receiver in alert.receivers
        and all(alert.labels.get(name, "") == value for name, value in labels)
    )
