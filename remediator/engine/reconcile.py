"""What the Alertmanagers' API says beside deliveries: who still fires, whose ``resolved`` was lost, what never came.

Deliveries are lost while this engine is away, and a ``resolved`` may be lost for ever. Once a minute, and whenever a
run's turn comes, every configured Alertmanager is asked for all that it has. The answers may keep an episode open or
close it. They start nothing, unless the settings say so: then what was never delivered is taken as a delivery of its
own, through the same inbox, so that nothing after it knows the difference. Two things always are: what an Alertmanager
cut from a group (``truncatedAlerts``) was meant to be delivered, and what came as a copy of what was resolved, and is
still listed as active, was delivered.

A muted alert (silenced, inhibited) is there: it keeps its episode open, and lets no run have its turn.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from remediator.clients.ports import AlertmanagerReader, ListedAlert
from remediator.core.alert import AlertGroup, Labels, RawDelivery, label_key
from remediator.core.event import Event, EventType
from remediator.core.move import Heard
from remediator.core.run import Run
from remediator.engine.clock import Clock
from remediator.engine.receive import API_SOURCE, Intake
from remediator.engine.record import Recorder
from remediator.errors import ActionError, RemediatorError, TransientActionError
from remediator.store import subjects
from remediator.store.engine import Store
from remediator.store.writer import Tx
from remediator.telemetry import Metrics, get_logger

log = get_logger(__name__)

EVERY = timedelta(minutes=1)
FRESH = timedelta(seconds=2)
"""Runs whose turn comes at one time share one answer; it is never older than this."""

SILENCE = "alertmanager.silence"
"""The action whose states hold the id of a silence."""

ABSENT_FOR = timedelta(minutes=5)
"""Absent so long, from every answer of every Alertmanager: over. Prometheus sends each alert again every minute."""

MISSED_AFTER = timedelta(minutes=6)
"""An alert that fires so long without a delivery was missed: above the default ``group_interval``, at which
Alertmanager tries again what it could not deliver."""

ASK_S = 15.0
"""An Alertmanager that takes longer for all we ask gives no answer: turns of runs wait for it, and so do the others."""

STOP_S = 2.0
"""A question under way is not waited for longer: its answer would change nothing any more."""

CUT_TRIES = 5
"""Times that what was cut from a group is looked for, ``EVERY`` apart; after that long the group is delivered anew."""


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


@dataclass(slots=True, kw_only=True)
class _CutGroup:
    """A group that was cut, and what has come of it since.

    Attributes:
        came: label keys of what was delivered, or fetched and taken as delivered.
        n_missing: alerts that were cut and have not been found.
        due_at: when it is looked for next.
    """

    group: AlertGroup
    came: set[str]
    n_missing: int
    due_at: datetime
    n_tries: int = 0


class Reconciler:
    """Asks, closes, keeps open, notices. One thread; ``hear`` is called from the workers.

    Args:
        readers: URL → Alertmanager; not empty.
        receiver: the receiver that delivers here, "" = unknown: then nothing can be called missed.
        starts: take what was missed as delivered.
        accept: stage 1, for what is taken as delivered.
        is_alone: asks in the caller's thread: for readers in memory, which answer at once.
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
        is_alone: bool = False,
    ) -> None:
        self._is_alone = is_alone
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
        self._noted: deque[AlertGroup] = deque()
        self._cut: dict[tuple[str, str, str], _CutGroup] = {}
        self._asked: dict[str, Future[_Answer]] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    # -- the thread

    def start(self) -> None:
        """Ask now, and then every minute."""
        self._thread = threading.Thread(target=self._run, name="reconciler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End it, within ``STOP_S``. What is still being asked then changes nothing."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(STOP_S)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.step()
            except RemediatorError as error:
                log.warning("not reconciled", problem=str(error))
            except Exception:
                log.exception("unexpected error while reconciling")
                self._recorder.note_bug("reconcile")
            self._stop.wait(1.0)

    def step(self) -> datetime:
        """Do what is due now: cut groups at once, all else once a minute.

        Returns:
            When it is due next.

        Raises:
            StoreError: it comes again.
        """
        self.fetch_cut()
        now = self._clock.now()
        if self._next_at is None or now >= self._next_at:
            self._next_at = now + EVERY
            self.reconcile()
        return min((self._next_at, *(cut.due_at for cut in self._cut.values())))

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
        for url, answer in self._ask_all().items():
            if isinstance(answer, ActionError):
                self._metrics.alertmanager_ok.labels(url).set(0)
                log.warning("an Alertmanager gave no answer", problem=str(answer))
                continue
            alerts, started_at = answer
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

    def _ask_all(self) -> dict[str, _Answer | ActionError]:
        """Ask all at once; one that has not yet answered an older question is not waited for again."""
        hung = {url for url, future in self._asked.items() if not future.done()}
        self._asked |= {
            url: _ask_apart(reader, is_alone=self._is_alone) for url, reader in self._readers.items() if url not in hung
        }
        wait([future for url, future in self._asked.items() if url not in hung], timeout=ASK_S)
        return {url: _answer_of(url, future, is_late=url in hung) for url, future in self._asked.items()}

    def hear(self, label_keys: Iterable[str], last_word_at: datetime, ours: frozenset[str] = frozenset()) -> Heard:
        """Whether any of these label sets fires, by an answer of now and later than what was delivered of them.

        Args:
            ours: ids of silences that whoever asks made himself; see ``silences_of``.
        """
        return heard_of(self.survey(max(self._clock.now() - FRESH, last_word_at)), label_keys, ours)

    # -- once a minute

    def reconcile(self) -> None:
        """Ask, then keep open, close and notice. Raises StoreError: the next minute tries again."""
        survey = self.survey()
        if self._stop.is_set():
            return  # the store may be closed by now
        with self._store.read() as conn:
            fires = {episode.label_key: episode for episode in subjects.open_episodes(conn)}
            copies = subjects.stale_copies(conn)
        there = [episode for key, episode in fires.items() if key in survey.listed]
        self._keep_open(there, survey.at)
        self._close_absent([episode for key, episode in fires.items() if key not in survey.listed], survey)
        believed = self._believe_copies(copies, survey)
        self._notice_missed(survey, {*fires, *believed})

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

    def _believe_copies(self, copies: Iterable[subjects.Episode], survey: Survey) -> set[str]:
        """A firing copy of what was resolved came, opened nothing, and the answers say that it fires: it was delivered.

        Returns:
            The label keys of what was taken as delivered.
        """
        believed: set[str] = set()
        for episode in copies:
            listed = survey.listed.get(episode.label_key, ())
            alert = next((alert for alert in listed if alert.is_active and not _fires_anew(alert, episode)), None)
            if alert is None or episode.stale_copy_at is None or survey.at <= episode.stale_copy_at:
                continue
            group = episode.alert["group"]
            self._deliver(
                [alert],
                survey.at,
                receiver=group.get("receiver", self._receiver),
                external_url=group.get("external_url", ""),
                group_labels=group.get("labels", {}),
            )
            believed.add(episode.label_key)
        return believed

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
                self._deliver(
                    fresh.values(), survey.at, receiver=self._receiver, external_url=next(iter(self._readers))
                )

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
        self._noted.append(group)

    def fetch_cut(self) -> None:
        """Fetch what is due of what was cut, and take it as delivered.

        A group that could not be fetched whole, because an Alertmanager did not answer, is tried again, until it is
        delivered anew or ``CUT_TRIES`` are used up.

        Raises:
            StoreError: it is fetched again.
        """
        now = self._clock.now()
        while self._noted:
            group = self._noted.popleft()
            self._cut[group.receiver, group.group_key, label_key(group.group_labels)] = _CutGroup(
                group=group, came={alert.label_key for alert in group.alerts}, n_missing=group.n_truncated, due_at=now
            )
        due = {key: cut for key, cut in self._cut.items() if cut.due_at <= now}
        if not due:
            return
        survey = self.survey()
        for key, cut in due.items():
            if self._stop.is_set():
                return
            self._fetch(cut, survey)
            if cut.n_missing <= 0 or survey.is_complete:
                del self._cut[key]
            elif cut.n_tries >= CUT_TRIES:
                del self._cut[key]
                log.warning(
                    "gave up fetching what was cut from a group: not every Alertmanager answers",
                    receiver=cut.group.receiver,
                    group_key=cut.group.group_key,
                    n_missing=cut.n_missing,
                )

    def _fetch(self, cut: _CutGroup, survey: Survey) -> None:
        group = cut.group
        rest = {
            key: alerts[0]
            for key, alerts in survey.listed.items()
            if key not in cut.came and any(_belongs(alert, group) for alert in alerts)
        }
        if rest:
            self._deliver(
                rest.values(),
                survey.at,
                receiver=group.receiver,
                external_url=group.external_url,
                group_key=group.group_key,
                group_labels=group.group_labels,
            )
        cut.came |= rest.keys()
        cut.n_missing -= len(rest)
        cut.n_tries += 1
        cut.due_at = survey.at + EVERY

    # -- taking as delivered

    def _deliver(
        self,
        alerts: Iterable[ListedAlert],
        at: datetime,
        *,
        receiver: str,
        external_url: str,
        group_key: str = "",
        group_labels: Labels | None = None,
    ) -> None:
        body: dict[str, Any] = {
            "version": "4",
            "status": "firing",
            "receiver": receiver,
            "groupKey": group_key,
            "groupLabels": dict(group_labels or {}),
            "commonLabels": {},
            "commonAnnotations": {},
            "externalURL": external_url,
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


_Answer = tuple[tuple[ListedAlert, ...], datetime]


def _ask_apart(reader: AlertmanagerReader, *, is_alone: bool) -> Future[_Answer]:
    """Ask in a thread that nobody has to wait for, neither for its answer nor at the end of the process."""
    future: Future[_Answer] = Future()

    def ask() -> None:
        try:
            future.set_result((reader.alerts(), reader.started_at()))
        except ActionError as error:
            future.set_exception(error)
        except Exception:
            log.exception("unexpected error while asking an Alertmanager")
            future.set_exception(TransientActionError("an Alertmanager's answer was not understood"))

    if is_alone:
        ask()
    else:
        threading.Thread(target=ask, name="alertmanager-question", daemon=True).start()
    return future


def _answer_of(url: str, future: Future[_Answer], *, is_late: bool) -> _Answer | ActionError:
    if is_late or not future.done():
        return TransientActionError(f"Alertmanager {url} has not answered within {ASK_S:.0f} s", target=url)
    try:
        return future.result()
    except ActionError as error:
        return error


def heard_of(survey: Survey, label_keys: Iterable[str], ours: frozenset[str] = frozenset()) -> Heard:
    """What a survey says of a subject's label sets; one that is silenced by ``ours`` alone counts as firing. Pure."""
    found = [alert for key in label_keys for alert in survey.listed.get(key, ())]
    if any(alert.is_active or _is_muted_by_us_alone(alert, ours) for alert in found):
        return Heard.FIRES
    if not survey.is_complete:
        return Heard.NO_ANSWER
    if any(not ours.issuperset(alert.silenced_by) for alert in found):
        return Heard.SILENCED
    if found and all(alert.is_inhibited for alert in found):
        return Heard.INHIBITED
    return Heard.NO_ANSWER if found else Heard.ABSENT


def _is_muted_by_us_alone(alert: ListedAlert, ours: frozenset[str]) -> bool:
    return bool(alert.silenced_by) and ours.issuperset(alert.silenced_by) and not alert.is_inhibited


def silences_of(run: Run) -> frozenset[str]:
    """Ids of the silences that this run made, ended ones too: what they mute, it muted itself. Pure."""
    made = (
        str(attempt.after.get("id", ""))
        for step in run.plan.steps
        if step.action == SILENCE
        for attempt in run.step(step.key).attempts
    )
    return frozenset(id_ for id_ in made if id_)


def _belongs(alert: ListedAlert, group: AlertGroup) -> bool:
    """Whether a listed alert is of this group: active, of its receiver, with its group labels."""
    labels = group.group_labels.items()
    return (
        alert.is_active
        and group.receiver in alert.receivers
        and all(alert.labels.get(name, "") == value for name, value in labels)
    )


def _fires_anew(alert: ListedAlert, ended: subjects.Episode) -> bool:
    """Whether a listed alert began after the end of that episode, so that no copy of what ended can mean it."""
    try:
        return ended.resolved_ends_at is not None and datetime.fromisoformat(alert.starts_at) > ended.resolved_ends_at
    except (ValueError, TypeError):  # no time, or one without a zone
        return False
