"""What becomes of a lease, in the transaction of what brings it about: row and event, never one without the other.

``engine.execute`` opens leases and closes stacks that others changed; ``engine.leases`` does all the rest. A lease's
opening is an event of the run's own; what happens to it later counts down, beside the worker that may be at the run.
It never touches a target.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime

from remediator.core.action import ActionParams, JsonValue, State
from remediator.core.event import EventType, utc_text, utc_time
from remediator.core.lease import How, Lease
from remediator.core.plan import NAMESPACE, Plan, PlannedStep, pack_condition
from remediator.core.run import Phase
from remediator.core.units import cut, print_duration
from remediator.engine.record import Recorder
from remediator.store import leases, runs
from remediator.store.writer import Tx
from remediator.telemetry import redact

DETAIL_LIMIT = 500
"""Characters of others' error texts that are kept."""


def new_lease(
    plan: Plan,
    step: PlannedStep,
    attempt: int,
    params: ActionParams,
    refs: Sequence[str],
    before: State,
    after: State,
    now: datetime,
) -> Lease | None:
    """The lease of an attempt that changed something; None where nothing can take it back.

    Args:
        refs: of what it touched. What has no target is called by ``after["ref"]``; ``after["ends_at"]`` says when it
            ends by itself, as ``core.event.utc_text``.
    """
    target = str(after.get("ref") or (refs[0] if refs else ""))
    if step.undo is None or not target:
        return None
    ends_at = after.get("ends_at")
    return Lease(
        id=str(uuid.uuid5(NAMESPACE, "\x1f".join(("lease", plan.run_id, step.key, str(attempt))))),
        run_id=plan.run_id,
        playbook=plan.playbook,
        per_key=plan.per_key,
        step=step.key,
        action=step.action,
        target=target,
        params=params.model_dump(mode="json", exclude_none=True),
        before=before,
        left=after,
        undo=step.undo,
        prometheus=plan.prometheus,
        timeout=step.timeout,
        is_by_hand=plan.is_by_hand,
        is_latched=plan.latched,
        opened_at=now,
        ends_at=utc_time(ends_at) if isinstance(ends_at, str) and ends_at else None,
    )


def open_lease(tx: Tx, recorder: Recorder, plan: Plan, n: int, lease: Lease) -> None:
    """Open it, as the run's ``n``-th event."""
    undo = lease.undo
    data: dict[str, JsonValue] = {
        **about(lease),
        "action": lease.action,
        "params": dict(lease.params),
        "before": dict(lease.before),
        "after": dict(lease.left),
        "when": undo.when.value,
        "after_s": int(undo.after.total_seconds()),
        "at_most": print_duration(undo.at_most),
        "require": [pack_condition(condition) for condition in undo.require],
        "ends_at": utc_text(lease.ends_at) if lease.ends_at is not None else "",
    }
    leases.open_lease(tx.conn, lease)
    recorder.append_to_run(tx, plan, n, EventType.LEASE_OPENED, lease.opened_at, data, target=lease.target)


def close(tx: Tx, recorder: Recorder, closing: Sequence[Lease], how: How, detail: str, now: datetime) -> list[str]:
    """Close leases, the top first.

    Returns:
        Ids of the runs that have something to tell people of it.
    """
    detail = kept_text(detail)
    for lease in closing:
        leases.close(tx.conn, lease.id, how, detail, now)
        data = {**about(lease), "how": how.value, "detail": detail}
        recorder.append_beside_run(tx, lease.run_id, EventType.LEASE_CLOSED, now, data, target=lease.target)
    return [] if how is How.UNDONE else let_tell(tx, closing)


def let_tell(tx: Tx, of: Sequence[Lease]) -> list[str]:
    """Let the runs of these leases tell people what became of them: one that was closed is opened for it.

    Returns:
        Their ids, to be woken after the commit.
    """
    found = list(dict.fromkeys(lease.run_id for lease in of))
    for run_id in found:
        row = runs.get_run(tx.conn, run_id)
        if row is not None and row.phase is Phase.CLOSED:
            runs.set_phase(tx.conn, run_id, Phase.ENDED)
    return found


def about(lease: Lease) -> dict[str, JsonValue]:
    """Which lease an event is about."""
    return {"lease_id": lease.id, "step": lease.step, "target": lease.target}


def kept_text(text: str) -> str:
    """An error text of others as the log keeps it."""
    return cut(redact(text), DETAIL_LIMIT)
