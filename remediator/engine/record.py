"""Stage 8, record: any event → a row of the audit log + a metric + a log line. Nobody can switch it off.

Actions never report on themselves: every event passes here, inside the transaction that it explains. Metric and log
line follow the commit, so that nothing is shown that did not happen.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from remediator.core.action import JsonValue
from remediator.core.event import Event, EventType, RecordedEvent
from remediator.core.outcome import Outcome
from remediator.core.plan import Plan
from remediator.store import audit
from remediator.store.writer import Tx
from remediator.telemetry import Metrics, get_logger

log = get_logger(__name__)

QUIET = frozenset({EventType.DELIVERY_RECEIVED})
"""Written at debug level: Alertmanager repeats itself for ever."""


SHOWN = ("step", "attempt", "reason", "detail", "word", "rung", "breaker")
"""Of an event's data, in its log line."""


class Recorder:
    """Appends events.

    Args:
        metrics: counted after each commit.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def note_bug(self, where: str) -> None:
        """Count an error that nobody foresaw; whoever caught it has logged it and goes on."""
        self._metrics.unexpected_errors.labels(where).inc()

    def note_unheard(self, run_id: str, what: str, problem: str) -> None:
        """An escalation was given up and reached nobody: people do not know that a run ended without a fix."""
        self._metrics.unheard_escalations.inc()
        log.error("an escalation reached nobody", run_id=run_id, what=what, problem=problem)

    def append(self, tx: Tx, event: Event) -> RecordedEvent:
        """Append an event to the log, in this transaction.

        Raises:
            RunLostError: somebody else wrote this place of the run.
            StoreUnavailableError: the log cannot be written: then nothing of this transaction happens.
        """
        begun = time.monotonic()
        recorded = tx.append(event)
        tx.after_commit(lambda: self._show(recorded, begun))
        return recorded

    def append_to_run(
        self,
        tx: Tx,
        plan: Plan,
        n: int,
        kind: EventType,
        at: datetime,
        data: Mapping[str, JsonValue],
        *,
        actor: str = "engine",
        target: str = "",
        outcome: str = "",
        delivery_id: int = 0,
    ) -> RecordedEvent:
        """Append a run's ``n``-th event."""
        return self.append(
            tx,
            Event(
                type=kind,
                at=at,
                actor=actor,
                run_id=plan.run_id,
                n=n,
                delivery_id=delivery_id,
                subject_id=plan.subject_id,
                playbook=plan.playbook,
                target=target,
                outcome=outcome,
                fingerprint=plan.fingerprint,
                data=data,
            ),
        )

    def append_beside_run(
        self,
        tx: Tx,
        run_id: str,
        kind: EventType,
        at: datetime,
        data: Mapping[str, JsonValue],
        *,
        actor: str = "engine",
        target: str = "",
        outcome: str = "",
    ) -> RecordedEvent:
        """Append to a run what is not its worker's: counted down from -1, so that it never collides with that one."""
        recorded = audit.events_of_run(tx.conn, run_id)
        first = recorded[0].event
        return self.append(
            tx,
            Event(
                type=kind,
                at=at,
                actor=actor,
                run_id=run_id,
                n=min(0, *(one.event.n for one in recorded)) - 1,
                subject_id=first.subject_id,
                playbook=first.playbook,
                target=target,
                outcome=outcome,
                fingerprint=first.fingerprint,
                data=data,
            ),
        )

    def _show(self, recorded: RecordedEvent, begun: float) -> None:
        event = recorded.event
        data: Mapping[str, Any] = event.data
        metrics = self._metrics
        metrics.audit_append.observe(time.monotonic() - begun)
        metrics.audit_last_seq.set(recorded.seq)
        match event.type:
            case EventType.VERDICT_GIVEN:
                for reason in data["reasons"] or [{"reason": "none"}]:
                    metrics.verdicts.labels(data["word"], reason["reason"]).inc()
            case EventType.PLAN_REFUSED:
                metrics.runs.labels(event.playbook, "refused").inc()
            case EventType.RUN_FINISHED:
                metrics.runs.labels(event.playbook, event.outcome).inc()
            case EventType.ATTEMPT_FINISHED:
                metrics.attempts.labels(data["action"], event.outcome).inc()
                metrics.action_duration.labels(data["action"]).observe(data["duration_ms"] / 1000)
                if data["action"] == "notify.send" and event.outcome == Outcome.FAILED and not data["retry_at"]:
                    metrics.lost_messages.inc()
            case EventType.UNDO_FINISHED:
                metrics.undos.labels(data["action"], event.outcome).inc()
            case EventType.ALERT_UNMATCHED:
                metrics.unmatched_alerts.inc()
            case _:
                pass
        if event.type in QUIET and not logging.getLogger(__name__).isEnabledFor(logging.DEBUG):
            return
        fields: dict[str, Any] = {
            "seq": recorded.seq,
            "actor": event.actor,
            "run_id": event.run_id,
            "delivery_id": event.delivery_id,
            "fingerprint": event.fingerprint,
            "playbook": event.playbook,
            "target": event.target,
            "outcome": event.outcome,
            **{name: data[name] for name in SHOWN if name in data},
        }
        if event.type is EventType.VERDICT_GIVEN:
            fields["reasons"] = ", ".join(dict.fromkeys(answer["reason"] for answer in data["reasons"]))
            fields["detail"] = "; ".join(answer["detail"] for answer in data["reasons"])
        shown = {name: value for name, value in fields.items() if value not in ("", 0)}
        (log.debug if event.type in QUIET else log.info)(event.type.value, **shown)
