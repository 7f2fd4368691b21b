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
    ALERT_MISSED = "alert_missed"
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
    VERIFICATION_LOOKED = "verification_looked"
    VERIFICATION_FINISHED = "verification_finished"
    RUNG_CLIMBED = "rung_climbed"
    APPROVAL_ASKED = "approval_asked"
    APPROVAL_GIVEN = "approval_given"
    APPROVAL_DENIED = "approval_denied"
    BREAKER_TRIPPED = "breaker_tripped"
    BREAKER_RESET = "breaker_reset"
    LEASE_OPENED = "lease_opened"
    LEASE_RELEASED = "lease_released"
    LEASE_KEPT = "lease_kept"
    LEASE_CLOSED = "lease_closed"
    UNDO_REQUESTED = "undo_requested"
    UNDO_STARTED = "undo_started"
    UNDO_FINISHED = "undo_finished"
    NOTE_ADDED = "note_added"
    CANCEL_REQUESTED = "cancel_requested"
    RUN_SETTLED = "run_settled"
    RUN_FINISHED = "run_finished"


MEANING: Mapping[EventType, str] = {
    EventType.ENGINE_STARTED: "An engine took the store and began.",
    EventType.ENGINE_STOPPED: "It stopped in order. A start without a stop before it: it was killed.",
    EventType.PLAYBOOKS_LOADED: "Playbooks and policies came into force, at the start or by a reload.",
    EventType.PLAYBOOKS_REJECTED: "A reload found problems: the set before stays in force.",
    EventType.PAUSED: "A person held all acting; the reason is in the data.",
    EventType.RESUMED: "A person ended the pause.",
    EventType.DELIVERY_RECEIVED: "Alertmanager's POST was stored; it was answered with 200 afterwards.",
    EventType.DELIVERY_REJECTED: "A POST was refused with 4xx: nothing of it is handled.",
    EventType.ALERT_REJECTED: "One member of a delivery is no alert; the others are handled.",
    EventType.ALERT_UNMATCHED: "No playbook matches this alert. Once per episode.",
    EventType.ALERT_IGNORED: "A playbook's case says that this alert is left alone. Once per episode.",
    EventType.ALERT_MISSED: "An Alertmanager lists an alert for our receiver that was never delivered here.",
    EventType.EPISODE_OPENED: "A label set began to fire.",
    EventType.EPISODE_ENDED: "It ended: resolved, or expired without a word.",
    EventType.SUBJECT_OPENED: "A playbook has something to be about: the first alert with its `per` values fires.",
    EventType.SUBJECT_ADOPTED: "It fired before the playbook was able to act on it: shown, not acted on.",
    EventType.SUBJECT_CLOSED: "The last alert with these `per` values ended.",
    EventType.PLAN_MADE: "All that a run will do, rendered. The first event of a run.",
    EventType.PLAN_REFUSED: "No plan could be made: a label is missing, or a value does not fit. Ends the run.",
    EventType.TURN_WAITED: "A plan's turn came, and it waits: it is not known to fire, or something else holds it.",
    EventType.VERDICT_GIVEN: "The guard answered allow, wait or refuse; every rule's answer is in the data.",
    EventType.STEP_SKIPPED: "A step was not carried out: its `if` is false, or what it means is gone.",
    EventType.ATTEMPT_STARTED: "Written before an act: what will be touched, and its state before.",
    EventType.ATTEMPT_FINISHED: "Written after it: the outcome, and the states before and after.",
    EventType.VERIFICATION_LOOKED: "What the conditions of a verification say has changed since the last look.",
    EventType.VERIFICATION_FINISHED: "Whether it helped, or whether a step did what its `verify` asks for.",
    EventType.RUNG_CLIMBED: "A rung did not help: the run goes on with the next, judged anew.",
    EventType.APPROVAL_ASKED: "People are asked whether it may act; nothing is reserved meanwhile.",
    EventType.APPROVAL_GIVEN: "A person said yes, with a reason; it is judged again before it acts.",
    EventType.APPROVAL_DENIED: "A person said no; the run ends.",
    EventType.BREAKER_TRIPPED: "Too much was changed, or too much failed: nothing acts until a person resets it.",
    EventType.BREAKER_RESET: "A person reset a breaker; it counts from zero.",
    EventType.LEASE_OPENED: "A change that ends: what it was before, what it is now, and until when.",
    EventType.LEASE_RELEASED: "Its time has come, and a younger lease stands above it: it goes with that one.",
    EventType.LEASE_KEPT: "It had to end, and what it guards against goes on: it is kept, and people are told.",
    EventType.LEASE_CLOSED: "A lease is over: undone, drifted (others changed it) or reverted (a reboot or reset).",
    EventType.UNDO_REQUESTED: "A person asked that what a run changed be taken back now.",
    EventType.UNDO_STARTED: "Written before an undo: what it goes back from and to.",
    EventType.UNDO_FINISHED: "Written after it: the outcome.",
    EventType.NOTE_ADDED: "A person's note on a run.",
    EventType.CANCEL_REQUESTED: "A person asked for the run's end.",
    EventType.RUN_SETTLED: "A person said what became of an act whose outcome was unknown.",
    EventType.RUN_FINISHED: "The run's end, with its outcome and reason.",
}
"""For people: what each event says. Every type has one (a test compares)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that happened, before it has a place in the log.

    Attributes:
        at: aware UTC.
        actor: "engine", or the name of the person or token that did it.
        run_id: "" when it is not about a run.
        n: place among the run's events, from 1; 0 when it is not about a run. Two writers of one n: one loses.
            What people do to a run counts down from -1, so that it never collides with the worker that is at it.
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
    return moment.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


def utc_time(text: str) -> datetime:
    """The moment that ``utc_text`` wrote."""
    return datetime.fromisoformat(text)
