"""What the audit log is made of. Run state is ``fold`` over these (``core.run``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

from remediator.core.action import JsonValue


class EventType(StrEnum):
    """Closed: ``docs/reference/events.md`` says what each one means."""

    ENGINE_STARTED = "engine_started"
    ENGINE_STOPPED = "engine_stopped"
    PLAYBOOKS_LOADED = "playbooks_loaded"
    PLAYBOOKS_REJECTED = "playbooks_rejected"
    PAUSED = "paused"
    RESUMED = "resumed"
    DELIVERY_RECEIVED = "delivery_received"
    DELIVERY_REJECTED = "delivery_rejected"
    ALERT_REJECTED = "alert_rejected"
    ALERT_UNMATCHED = "alert_unmatched"
    ALERT_IGNORED = "alert_ignored"
    ALERT_NOT_PLANNED = "alert_not_planned"
    EPISODE_OPENED = "episode_opened"
    EPISODE_ENDED = "episode_ended"
    SUBJECT_OPENED = "subject_opened"
    SUBJECT_ADOPTED = "subject_adopted"
    SUBJECT_CLOSED = "subject_closed"
    PLAN_MADE = "plan_made"
    PLAN_REFUSED = "plan_refused"
    TURN_WAITED = "turn_waited"
    VERDICT_GIVEN = "verdict_given"
    STEP_SKIPPED = "step_skipped"
    ATTEMPT_STARTED = "attempt_started"
    ATTEMPT_FINISHED = "attempt_finished"
    VERIFICATION_FINISHED = "verification_finished"
    CANCEL_REQUESTED = "cancel_requested"
    RUN_SETTLED = "run_settled"
    RUN_FINISHED = "run_finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that happened, before it has a place in the log.

    Attributes:
        at: aware UTC.
        actor: "engine", or the name of the person or token that did it.
        run_id: "" when it is not about a run.
        n: place among the run's events, from 1; 0 when it is not about a run. Two writers of one n: one loses.
        delivery_id: row of the inbox, 0 when none.
        data: everything else. Strings, ints below 2**53, bools, lists, maps.
    """

    type: EventType
    at: datetime
    actor: str = "engine"
    run_id: str = ""
    n: int = 0
    delivery_id: int = 0
    episode_id: str = ""
    subject_id: str = ""
    playbook: str = ""
    target: str = ""
    outcome: str = ""
    fingerprint: str = ""
    data: Mapping[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEvent:
    """An event with its place in the chain.

    Attributes:
        seq: from 1, without gaps.
        prev_hash, hash: SHA-256 hex.
    """

    seq: int
    prev_hash: str
    hash: str
    event: Event


def utc_text(moment: datetime) -> str:
    """``2026-01-01T00:00:00.000000Z``: fixed width, so that text order is time order."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f") + "Z"


def utc_time(text: str) -> datetime:
    """The moment that ``utc_text`` wrote."""
    return datetime.fromisoformat(text)
