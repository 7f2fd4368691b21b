"""A dry run: what would be done for a delivery, and why not more. It cannot act.

The same ``decode``, ``match``, ``make_plan``, ``ask_targets`` and ``judge`` as the real thing, with the looking half of
each action, clients that can only look and a store opened read-only. Nothing here holds an object that can change
anything: from a ``Wiring`` none can be reached.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from remediator.clients.ports import ReadOnlyClients
from remediator.core.action import JsonValue, LookingActions
from remediator.core.alert import Alert, AlertGroup, AlertStatus
from remediator.core.condition import Check, Condition, look
from remediator.core.decode import decode
from remediator.core.guard import AskedTargets, Facts, RuleAnswer, judge
from remediator.core.match import IgnoredMatch, Match, MissingPer, PlaybookIndex, explain
from remediator.core.move import start_rung
from remediator.core.plan import (
    Plan,
    PlannedStep,
    Runs,
    make_plan,
    missing_key,
    pack_check,
    pack_condition,
    pack_guard,
    subject_id,
)
from remediator.core.playbook import Approval, PlaybookSet
from remediator.core.run import Run
from remediator.core.units import print_duration
from remediator.engine.conditions import Conditions
from remediator.engine.fleets import Fleets
from remediator.engine.reserve import Outside, PauseSource, ask_targets, gather, target_data
from remediator.errors import RequestError
from remediator.store import Connection, runs, subjects

Read = Callable[[], AbstractContextManager[Connection]]
"""Opens a snapshot of the store, read-only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """What a dry run is made with; nothing in it can act.

    Attributes:
        actions: their looking half.
        clients: the looking side.
        now: the moment that it is decided as of.
        read: None where there is no store yet: then nothing was ever done.
    """

    playbooks: PlaybookSet
    actions: LookingActions
    clients: ReadOnlyClients
    conditions: Conditions
    fleets: Fleets
    now: datetime
    read: Read | None
    pause: PauseSource


def dry_run(body: bytes, wiring: Wiring, *, limit: int | None = None) -> dict[str, Any]:
    """Plan and judge every firing alert of a delivery as if it were new.

    Args:
        body: as Alertmanager would post it.
        limit: most alerts in it, None = any number.

    Returns:
        ``alerts`` (each with ``matches`` and ``not_matched``) and ``bad_alerts``.

    Raises:
        DecodeError: the body is not a delivery.
        RequestError: more alerts than ``limit``.
        StoreError: the store is there and cannot be read.
    """
    group = decode(body, wiring.now)
    if limit is not None and len(group.alerts) > limit:
        raise RequestError(f"a dry run takes at most {limit} alerts, and these are {len(group.alerts)}; split them")
    index = PlaybookIndex(wiring.playbooks)
    return {
        "alerts": [_alert(alert, group, index, wiring) for alert in group.alerts],
        "bad_alerts": [{"index": bad.index, "problem": bad.problem} for bad in group.bad_alerts],
    }


def assumptions(at: datetime, now: datetime, log_begins: datetime | None) -> list[str]:
    """What a dry run as of another moment takes for granted, for people.

    Args:
        at: the moment that it is decided as of.
        log_begins: the time of the first event; None where there is none.
    """
    if at >= now:
        return [
            "until then nothing else is done, and no pause, breaker, reservation or open subject of now ends",
            "targets, conditions and fleets are asked now",
        ]
    known = [
        "acts, limits, rungs, breakers, pauses by people, runs at work and what they held: as recorded by then",
        "targets, conditions and fleets are asked now: nobody can ask them of the past",
        "the playbooks, policies and settings are those of the files now; a pause file is not recorded, and none is"
        " taken to have been there",
    ]
    if log_begins is None or at < log_begins:
        since = f"begins at {log_begins.isoformat(timespec='seconds')}" if log_begins is not None else "is empty"
        known.append(f"the log {since}: nothing was recorded by then, so nothing counts")
    return known


def _alert(alert: Alert, group: AlertGroup, index: PlaybookIndex, wiring: Wiring) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "labels": dict(alert.labels),
        "fingerprint": alert.fingerprint,
        "status": alert.status.value,
        "matches": [],
        "not_matched": [],
    }
    if alert.status is not AlertStatus.FIRING:
        shown["problem"] = "it is resolved: it ends its subjects and starts nothing"
        return shown
    matches = index.match(alert.labels)
    matched = {match.playbook.name for match in matches}
    for match in matches:
        if isinstance(match, IgnoredMatch):
            shown["not_matched"].append({"playbook": match.playbook.name, "why": [f"ignored: {match.why}"]})
        else:
            shown["matches"].append(_match(match, alert, group, wiring))
    for playbook in wiring.playbooks.playbooks:
        if playbook.name not in matched:
            shown["not_matched"].append({"playbook": playbook.name, "why": list(explain(alert.labels, playbook))})
    return shown


def _match(match: Match | MissingPer, alert: Alert, group: AlertGroup, wiring: Wiring) -> dict[str, Any]:
    name, case = match.playbook.name, match.case.name
    per_key = match.per_key if isinstance(match, Match) else missing_key(match)
    group_context: dict[str, JsonValue] = {
        "labels": dict(group.group_labels),
        "receiver": group.receiver,
        "external_url": group.external_url,
    }
    plan, refusal = make_plan(
        match,
        alert,
        group_context,
        subject=subject_id(name, case, per_key, "dry-run"),
        rules=wiring.playbooks,
        actions=wiring.actions,
    )
    shown: dict[str, Any] = {
        "playbook": name,
        "case": case,
        "mode": plan.mode.value,
        "per": dict(plan.per),
        "run_id": plan.run_id,
        "hold": print_duration(plan.hold),
        "stop_on_resolve": plan.stop_on_resolve,
        "latched": plan.latched,
        "guard": pack_guard(plan.guard),
        "report_to": list(plan.report_to),
        "escalate_to": list(plan.escalate_to),
        "steps": [],
        "resolved": [],
    }
    if refusal is not None:
        shown["refused"] = {"reason": refusal.reason.value, "detail": refusal.detail}
        return shown
    run = Run(plan=plan, n_events=0, created_at=wiring.now)
    # Asked before the snapshot is opened: an engine that is slow to answer must not keep the log from being cut.
    rungs = sorted({step.rung for step in plan.steps})
    asked = {
        rung: ask_targets(plan, rung, wiring.actions, wiring.clients, wiring.now, run.context(1)) for rung in rungs
    }
    says = _say(plan, wiring.conditions)
    shown |= {
        "prometheus": plan.prometheus,
        "require": [_condition(condition, says) for condition in plan.require],
        "steps": [_step(step, asked[step.rung], says) for step in plan.steps],
        "resolved": [_step(step, None, says) for step in plan.resolved],
        "verify": [_check(check, says) for check in plan.verify],
    }
    if plan.approval is not None:
        shown["approval"] = _approval(plan.approval)
    rung, held = _stored(plan, wiring)
    if plan.ladder is not None:
        shown["ladder"] = {"within": print_duration(plan.ladder), "starts_at": rung, "rungs": rungs}
    facts = _facts(run, rung, asked[rung], wiring)
    verdict = judge(plan, facts)
    shown["fleets"] = [
        {"name": name, "size": fleet.size or 0, "problem": fleet.problem} for name, fleet in facts.fleets.items()
    ]
    shown["verdict"] = {
        "word": verdict.word.value,
        "trips": list(verdict.trips),
        "reasons": [_answer(answer) for answer in verdict.reasons],
        "answers": [_answer(answer) for answer in verdict.answers],
    }
    if held:
        shown["open_subject"] = held
    return shown


def _stored(plan: Plan, wiring: Wiring) -> tuple[int, str]:
    """The rung that it would begin on, and the open subject of the same values, whose one run there is already."""
    if wiring.read is None:
        return start_rung(plan, None, wiring.now), ""
    with wiring.read() as conn:
        held = subjects.open_subject(conn, plan.playbook, plan.case, plan.per_key)
        last = runs.last_rung(conn, plan.playbook, plan.per_key, plan.run_id)
    return start_rung(plan, last, wiring.now), held.id if held is not None else ""


def _facts(run: Run, rung: int, asked: AskedTargets, wiring: Wiring) -> Facts:
    """What the guard counts on."""
    plan, policy = run.plan, wiring.playbooks.policy
    readings = wiring.conditions.ask(plan.prometheus, plan.require)
    required = tuple(zip(plan.require, readings, strict=True))
    outside = Outside(targets=asked, required=required, fleets=wiring.fleets.sizes(plan, rung, policy, wiring.now))
    if wiring.read is None:
        return Facts(now=wiring.now, asked=asked, policy=policy, rung=rung, required=required, fleets=outside.fleets)
    with wiring.read() as conn:
        return gather(conn, run, rung, outside, policy, wiring.pause(conn), wiring.now)


Says = Mapping[Condition, str]
"""What each condition says now, for people."""


def _say(plan: Plan, conditions: Conditions) -> Says:
    """Ask every condition that would be asked later: a query that gives nothing now gives nothing then."""
    wanted = list(dict.fromkeys(plan.conditions))
    readings = conditions.ask(plan.prometheus, wanted)
    return {one: look(one, reading)[1] for one, reading in zip(wanted, readings, strict=True)}


def _condition(condition: Condition, says: Says) -> dict[str, Any]:
    return {**pack_condition(condition), "now": says.get(condition, "")}


def _check(check: Check, says: Says) -> dict[str, Any]:
    shown: dict[str, Any] = pack_check(check)
    return shown if check.condition is None else {**shown, "now": says.get(check.condition, "")}


def _approval(approval: Approval | None) -> dict[str, Any] | None:
    return None if approval is None else {"ask": list(approval.ask), "expires": print_duration(approval.expires)}


def _step(step: PlannedStep, asked: AskedTargets | None, says: Says) -> dict[str, Any]:
    words = {Runs.YES: "yes", Runs.NO: "no", Runs.LATE: "decided later"}
    retry: dict[str, Any] = {
        "wait": print_duration(step.retry.wait),
        "max_wait": print_duration(step.retry.max_wait),
        "jitter": f"{step.retry.jitter_pct}%",
    }
    if step.retry.attempts is not None:
        retry["attempts"] = step.retry.attempts
    if step.retry.budget is not None:
        retry["budget"] = print_duration(step.retry.budget)
    shown: dict[str, Any] = {
        "name": step.name,
        "rung": step.rung,
        "action": step.action,
        "describes": step.describes,
        "params": {**step.params, **step.late_params},
        "if": step.condition,
        "runs": words[step.runs],
        "timeout": print_duration(step.timeout),
        "retry": retry,
        "on_failure": step.on_failure.value,
        "disruptive": step.is_disruptive,
        "approval": _approval(step.approval),
        "verify": [_check(check, says) for check in step.verify],
        "targets": [],
    }
    if step.undo is not None:
        shown["undo"] = {
            "when": step.undo.when.value,
            "after": print_duration(step.undo.after),
            "at_most": print_duration(step.undo.at_most),
            "require": [_condition(condition, says) for condition in step.undo.require],
        }
    return shown if asked is None else shown | _touched(step, asked)


def _touched(step: PlannedStep, asked: AskedTargets) -> dict[str, Any]:
    targeting = asked.by_step.get(step.key)
    if targeting is not None:
        return {
            "targets": [target_data(target) for target in targeting.targets],
            "affects": [target_data(target) for target in targeting.affects],
        }
    if asked.problem is not None and not step.is_message and asked.problem.detail.startswith(f"step {step.name}:"):
        return {"problem": asked.problem.detail}
    return {}


def _answer(answer: RuleAnswer) -> Mapping[str, str]:
    return {
        "rule": answer.rule,
        "word": answer.word.value,
        "reason": answer.reason.value,
        "detail": answer.detail,
        "lifts_at": answer.lifts_at.isoformat() if answer.lifts_at is not None else "",
    }
