"""The playbooks in force, replaced whole: a bad file keeps the whole old set, and shows.

What already fires when a playbook becomes able to act on it (first start on an empty store, new file, changed match,
observe → enforce) is adopted: shown and counted, not acted on until it fires anew.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from remediator.core.action import JsonValue
from remediator.core.alert import unpack_alert
from remediator.core.event import Event, EventType
from remediator.core.match import Match, PlaybookIndex
from remediator.core.outcome import RunOutcome
from remediator.core.plan import stricter, subject_id
from remediator.core.playbook import Playbook, PlaybookSet
from remediator.core.policy import Mode
from remediator.engine.clock import Clock
from remediator.engine.record import Recorder
from remediator.loading import Loaded
from remediator.store import runs, subjects
from remediator.store.engine import Store
from remediator.store.writer import Tx
from remediator.telemetry import Metrics

N_PROBLEMS_KEPT = 20
"""In the audit and in answers; ``remediator check`` shows all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    """One playbook set with its index. Taken once per piece of work, so that a reload never shows in the middle of it.

    Attributes:
        able_since: playbook → since when it can act; alerts that fired before are adopted.
    """

    playbooks: PlaybookSet
    index: PlaybookIndex
    able_since: dict[str, datetime]

    def mode_of(self, playbook: str, case: str) -> Mode | None:
        """The mode now, with the policy's; None when the playbook or the case is gone."""
        found = self.playbooks.named(playbook)
        cases = [known for known in found.cases if known.name == case] if found is not None else []
        return stricter(cases[0].mode, self.playbooks.policy.mode) if cases else None


class Reloader:
    """Loads, and holds what is in force.

    Args:
        load: reads the files; never raises for their content.
        able_since: since when playbooks that the store does not know can act; None = since they are loaded.
    """

    def __init__(
        self,
        load: Callable[[], Loaded],
        store: Store,
        recorder: Recorder,
        clock: Clock,
        metrics: Metrics,
        able_since: datetime | None = None,
    ) -> None:
        self._able_since = able_since
        self._load = load
        self._store = store
        self._recorder = recorder
        self._clock = clock
        self._metrics = metrics
        self._lock = threading.Lock()
        self._now = InForce(playbooks=PlaybookSet(), index=PlaybookIndex(PlaybookSet()), able_since={})
        self.problems: tuple[str, ...] = ("not loaded yet",)

    @property
    def now(self) -> InForce:
        """What is in force."""
        return self._now

    def reload(self, actor: str) -> dict[str, object]:
        """Load the files and put them in force, if all of them are right.

        Returns:
            ``ok``, ``playbooks`` (how many are in force), ``adopted`` (alerts that fire and are not acted on),
            ``problems`` (every one, ``file:line:column: text``).

        Raises:
            StoreUnavailableError: the store is away; the old set stays in force.
        """
        with self._lock:
            loaded = self._load()
            now = self._clock.now()
            if loaded.problems:
                problems = tuple(str(problem) for problem in loaded.problems)
                self._store.write(lambda tx: self._reject(tx, actor, now, problems))
                self.problems = problems
                self._metrics.reloads.labels("failed").inc()
                self._metrics.reload_ok.set(0)
                return self._report(0, problems)
            index = PlaybookIndex(loaded.playbook_set)
            before = self._now
            try:
                adopted = self._store.write(lambda tx: self._put_in_force(tx, actor, now, loaded.playbook_set, index))
            except BaseException:
                self._now = before
                raise
            self.problems = ()
            self._metrics.reloads.labels("ok").inc()
            self._metrics.reload_ok.set(1)
            self._metrics.reload_success_time.set(now.timestamp())
            return self._report(adopted, ())

    def _report(self, adopted: int, problems: tuple[str, ...]) -> dict[str, object]:
        return {
            "ok": not problems,
            "playbooks": len(self._now.playbooks.playbooks),
            "adopted": adopted,
            "problems": list(problems),
        }

    def _reject(self, tx: Tx, actor: str, now: datetime, problems: tuple[str, ...]) -> None:
        data: dict[str, JsonValue] = {"n_problems": len(problems), "problems": list(problems[:N_PROBLEMS_KEPT])}
        self._recorder.append(tx, Event(type=EventType.PLAYBOOKS_REJECTED, at=now, actor=actor, data=data))

    def _put_in_force(self, tx: Tx, actor: str, now: datetime, playbooks: PlaybookSet, index: PlaybookIndex) -> int:
        able = _note_able(tx, playbooks, self._able_since or now)
        n_adopted = self._adopt(tx, index, able, now)
        data: dict[str, JsonValue] = {
            "playbooks": {playbook.name: playbook.sha256 for playbook in playbooks.playbooks},
            # In full: a protect line that was taken away must not be found by its absence from a file of today.
            "policy": playbooks.policy.name,
            "protect": [line.text for line in playbooks.policy.protect],
            "max_concurrent_runs": playbooks.policy.max_concurrent_runs,
            "mode": playbooks.policy.mode.value,
            "n_adopted": n_adopted,
        }
        self._recorder.append(tx, Event(type=EventType.PLAYBOOKS_LOADED, at=now, actor=actor, data=data))
        # Here, in the writer's thread: an alert that is handled right behind this sees the new set, or was adopted.
        self._now = InForce(playbooks=playbooks, index=index, able_since=able)
        return n_adopted

    def _adopt(self, tx: Tx, index: PlaybookIndex, able: dict[str, datetime], now: datetime) -> int:
        n_adopted = 0
        for episode in subjects.open_episodes(tx.conn):
            for match in index.match(unpack_alert(episode.alert["alert"]).labels):
                if not isinstance(match, Match) or match.playbook.name not in able:
                    continue
                existing = subjects.open_subject(tx.conn, match.playbook.name, match.case.name, match.per_key)
                if existing is None:
                    adopt(tx, self._recorder, match, episode, now, 0)
                    n_adopted += 1
                else:
                    subjects.link(tx.conn, existing.id, episode.id)
                    n_adopted += self._adopt_observed(tx, existing, episode, now)
        return n_adopted

    def _adopt_observed(self, tx: Tx, subject: subjects.Subject, episode: subjects.Episode, now: datetime) -> bool:
        """A subject whose run only observed fires on: from now on its playbook could act, and it is not acted on."""
        row = runs.run_of_subject(tx.conn, subject.id)
        if subject.is_adopted or row is None or row.outcome != RunOutcome.OBSERVED:
            return False
        subjects.set_adopted(tx.conn, subject.id)
        _note_adopted(tx, self._recorder, subject, episode, now, 0)
        return True


def _note_able(tx: Tx, playbooks: PlaybookSet, from_now_on: datetime) -> dict[str, datetime]:
    known = runs.able_since(tx.conn)
    able: dict[str, datetime] = {}
    for playbook in playbooks.playbooks:
        if not _can_act(playbook, playbooks):
            continue
        key, since = known.get(playbook.name, ("", from_now_on))
        if key != playbook.able_key:
            since = from_now_on
            runs.set_able(tx.conn, playbook.name, playbook.able_key, since)
        able[playbook.name] = since
    for name in known.keys() - able.keys():
        runs.unset_able(tx.conn, name)
    return able


def _can_act(playbook: Playbook, playbooks: PlaybookSet) -> bool:
    return any(stricter(case.mode, playbooks.policy.mode) is Mode.ENFORCE for case in playbook.cases)


def adopt(
    tx: Tx, recorder: Recorder, match: Match, episode: subjects.Episode, now: datetime, delivery_id: int
) -> subjects.Subject:
    """Open a subject that is shown and not acted on."""
    new = subjects.Subject(
        id=subject_id(match.playbook.name, match.case.name, match.per_key, episode.id),
        playbook=match.playbook.name,
        case=match.case.name,
        per_key=match.per_key,
        per=match.per,
        opened_at=now,
        opened_by_episode=episode.id,
        is_adopted=True,
        is_by_hand=False,
        is_latched=match.case.latched,
        closed_at=None,
        close_reason="",
    )
    subjects.insert_subject(tx.conn, new)
    subjects.link(tx.conn, new.id, episode.id)
    _note_adopted(tx, recorder, new, episode, now, delivery_id)
    return new


def _note_adopted(
    tx: Tx,
    recorder: Recorder,
    subject: subjects.Subject,
    episode: subjects.Episode,
    now: datetime,
    delivery_id: int,
) -> None:
    recorder.append(
        tx,
        Event(
            type=EventType.SUBJECT_ADOPTED,
            at=now,
            delivery_id=delivery_id,
            episode_id=episode.id,
            subject_id=subject.id,
            playbook=subject.playbook,
            fingerprint=episode.fingerprint,
            data={
                "case": subject.case,
                "per": dict(subject.per),
                "detail": "it fired before this playbook could act on it",
            },
        ),
    )
