"""How runs and subjects end: each with its event, in the transaction of what ended them.

One transaction, because a crash between a run's end and its subject's would leave a latched subject open for ever, and
the next fault of the same kind would join it and be acted on by nobody.
"""

from __future__ import annotations

from datetime import datetime

from remediator.core.action import JsonValue
from remediator.core.event import Event, EventType
from remediator.core.move import Finish
from remediator.core.plan import Plan
from remediator.engine.record import Recorder
from remediator.store import runs, subjects
from remediator.store.writer import Tx


def end_run(tx: Tx, recorder: Recorder, plan: Plan, n: int, end: Finish, now: datetime) -> None:
    """Record a run's end as its ``n``-th event, let go what it holds, and close the subject that only waited for it.

    Raises:
        RunLostError: somebody else wrote this place of the run.
    """
    runs.finish(tx.conn, plan.run_id, end.outcome, end.reason, now)
    subject = subjects.get_subject(tx.conn, plan.subject_id)
    data: dict[str, JsonValue] = {
        "outcome": end.outcome.value,
        "reason": end.reason.value,
        "detail": end.detail,
        "still_fires": subject is not None and subject.closed_at is None,
    }
    recorder.append_to_run(tx, plan, n, EventType.RUN_FINISHED, now, data, outcome=end.outcome.value)
    close_if_over(tx, recorder, plan.subject_id, now)


def close_if_over(tx: Tx, recorder: Recorder, subject_id: str, now: datetime, delivery_id: int = 0) -> bool:
    """Close a subject of which nothing fires any more; a latched one, or one by hand, only once its run has ended.

    Returns:
        Whether it was closed.
    """
    subject = subjects.get_subject(tx.conn, subject_id)
    if subject is None or subject.closed_at is not None or subjects.fires(tx.conn, subject_id):
        return False
    row = runs.run_of_subject(tx.conn, subject_id)
    if (subject.is_latched or subject.is_by_hand) and row is not None and row.ended_at is None:
        return False
    reason = "done" if subject.is_by_hand else subjects.last_end_reason(tx.conn, subject_id)
    subjects.close_subject(tx.conn, subject_id, now, reason)
    recorder.append(
        tx,
        Event(
            type=EventType.SUBJECT_CLOSED,
            at=now,
            delivery_id=delivery_id,
            subject_id=subject_id,
            playbook=subject.playbook,
            data={"reason": reason},
        ),
    )
    return True
