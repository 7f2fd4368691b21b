"""Which runs belong into a story: the one that is told, and those that what it did hangs on.

Takes the store, read-only, and a run → ids of runs. What the log names is followed: a cooldown to the acts before it, a
limit to those that had used it up, a taken target to who had it. What never counted is not told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from remediator.core.event import Event, EventType
from remediator.core.move import tell_gap
from remediator.core.outcome import RunOutcome
from remediator.core.policy import Policy
from remediator.core.run import MessageKind, Run, fold, message_key
from remediator.errors import Reason
from remediator.store import Connection, audit, incidents, runs

MOST = 20
"""Runs of one story: more than these nobody reads."""

MOST_ACTS = 5_000
"""Acts that are looked through."""

DAY = timedelta(days=1)
"""What is counted over all playbooks is counted over an hour or so; no window longer than this is looked through."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """Runs of one story.

    Attributes:
        run_ids: the one that is told first, then the others, the oldest first.
        n_left_out: others that it hangs on, and that would be too many.
        by_hand: others that people had begun by hand, which no story can tell.
    """

    run_ids: tuple[str, ...]
    n_left_out: int = 0
    by_hand: tuple[str, ...] = ()


def cast_of(conn: Connection, run_id: str, policy: Policy) -> Cast:
    """The runs that one run's story needs.

    Args:
        policy: its windows say how far back is looked.

    Raises:
        StoreError: the log cannot be read.
    """
    found: dict[str, datetime] = {}
    waiting, left_out, by_hand = [run_id], set(), set()
    while waiting:
        one = waiting.pop(0)
        if one in found or one in left_out or one in by_hand:
            continue
        if len(found) == MOST:
            left_out.add(one)
            continue
        log = [recorded.event for recorded in audit.log_of_run(conn, one)]
        run = fold(log)
        if run.plan.is_by_hand:
            by_hand.add(one)
            continue
        found[one] = run.created_at
        waiting += sorted({*_related(conn, run, log, policy), *_of_its_alerts(conn, run, found)})
    others = sorted((other for other in found if other != run_id), key=lambda other: (found[other], other))
    return Cast(run_ids=(run_id, *others), n_left_out=len(left_out), by_hand=tuple(sorted(by_hand)))


def _of_its_alerts(conn: Connection, run: Run, found: Mapping[str, datetime]) -> Iterator[str]:
    """What the same alerts made the playbooks do that are told of anyhow."""
    playbooks = {row.playbook for other in found if (row := runs.get_run(conn, other)) is not None}
    for episode_id in incidents.episodes_of_subjects(conn, [run.plan.subject_id]):
        for subject in incidents.subjects_of_episode(conn, episode_id):
            if subject.run_id and subject.playbook in playbooks:
                yield subject.run_id


@dataclass(frozen=True, slots=True)
class _Since:
    """Runs that acted from a moment on, and of these those that fit."""

    at: datetime
    fits: Callable[[runs.RunRow, str], bool]


def _related(conn: Connection, run: Run, log: list[Event], policy: Policy) -> set[str]:
    """Runs that had acted, where it counted for this one."""
    wanted = list(_wanted(run, log, policy))
    until = log[-1].at
    acts = _acts(conn, min(one.at for one in wanted), until)
    rows: dict[str, runs.RunRow | None] = {}
    found = set()
    for act in acts:
        if act.run_id == run.plan.run_id or act.run_id in found:
            continue
        row = rows.setdefault(act.run_id, runs.get_run(conn, act.run_id))
        if row is not None and any(act.at >= one.at and one.fits(row, act.target) for one in wanted):
            found.add(act.run_id)
    return found


def _acts(conn: Connection, since: datetime, until: datetime) -> list[Event]:
    kinds = (EventType.ATTEMPT_STARTED, EventType.PLAN_MADE)
    found = [
        recorded.event
        for kind in kinds
        for recorded in audit.list_events(
            conn, audit.AuditFilter(since=since, until=until, type=kind, limit=MOST_ACTS), newest_first=True
        )
    ]
    return [event for event in found if event.type is EventType.PLAN_MADE or event.data["targets"]]


def _wanted(run: Run, log: list[Event], policy: Policy) -> Iterator[_Since]:
    """Who counts: by what the verdicts say that they waited for, and by what was done without a word."""
    plan = run.plan
    refs = {ref for event in log if event.target for ref in event.target.split(", ")}
    same_values: Callable[[runs.RunRow, str], bool] = lambda row, _: (  # noqa: E731
        row.playbook == plan.playbook and dict(row.per) == dict(plan.per)
    )
    same_target: Callable[[runs.RunRow, str], bool] = lambda _, target: bool(refs & {*target.split(", ")})  # noqa: E731
    yield _Since(run.created_at, same_target)
    for event in log:
        if event.type is EventType.LEASE_OPENED or event.data.get("reason") == Reason.FIRED_AGAIN:
            yield _Since(run.created_at, same_values)  # while its values fire again nothing is taken back, or told
        for reason in _reasons(event):
            match reason:
                case Reason.COOLDOWN:
                    yield _Since(event.at - plan.guard.cooldown, same_values)
                    yield _Since(event.at - plan.guard.cooldown, same_target)
                case Reason.MAX_RUNS if plan.guard.max_runs is not None:
                    yield _Since(event.at - plan.guard.max_runs.per, same_values)
                case Reason.MAX_TARGETS if plan.guard.max_targets is not None:
                    since = event.at - plan.guard.max_targets.per
                    yield _Since(since, lambda row, target: bool(target) and row.playbook == plan.playbook)
                case Reason.BUSY_TARGET:
                    yield _Since(event.at - DAY, same_target)
                case Reason.CONCURRENCY | Reason.MAX_DISRUPTIVE_ACTS | Reason.BREAKER:
                    windows = [limit.per for limit in policy.max_disruptive_acts]
                    windows += [breaker.within for breaker in policy.breakers]
                    since = event.at - min(max(windows, default=timedelta(hours=1)), DAY)
                    yield _Since(since, lambda _, target: bool(target))
                case _:
                    pass
        if event.type is EventType.VERDICT_GIVEN and int(_data(event)["rung"]) > 1 and plan.ladder is not None:
            yield _Since(run.created_at - plan.ladder - DAY, same_values)
    if _is_silent(run):
        yield _Since(log[-1].at - tell_gap(run) - DAY, same_values)


def _reasons(event: Event) -> set[Reason]:
    """What an event says that a plan waits for, or is refused for."""
    if event.type is EventType.VERDICT_GIVEN:
        return {Reason(one["reason"]) for one in _data(event)["reasons"]}
    return {Reason(_data(event)["reason"])} if event.type is EventType.RUN_FINISHED else set()


def _data(event: Event) -> Mapping[str, Any]:
    return event.data


def _is_silent(run: Run) -> bool:
    """It ended without a fix and told nobody: maybe one before it had told them."""
    good = (RunOutcome.SUCCEEDED, RunOutcome.UNCHANGED, RunOutcome.CANCELLED, RunOutcome.OBSERVED)
    has_told = message_key(MessageKind.ESCALATE) in run.steps
    return run.outcome not in good and bool(run.plan.escalate_to) and not has_told
