"""Stage 4, plan: ``Match`` + ``Alert`` → ``Plan``, complete. Nobody reads the playbook or the alert after it.

The plan holds every step rendered and validated, the guard and retry values of this moment, and the frozen context
from which late values (messages, late ``if``s) are rendered at their turn. It is packed whole into ``plan_made``, so
that a run survives restarts and edits of its playbook. What cannot be planned becomes a plan without steps and a
``Refusal`` that says why. Pure; never asks the world (the targets are asked by ``engine.reserve``).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any

from pydantic import ValidationError

from remediator.core.action import (
    ALL_LABELS,
    Action,
    ActionParams,
    JsonValue,
    LookingAction,
    LookingActions,
    UndoWhen,
)
from remediator.core.alert import Alert
from remediator.core.condition import Check, Comparison, Condition
from remediator.core.match import Match, MissingPer, place
from remediator.core.playbook import (
    Approval,
    Case,
    GuardRules,
    LabelMap,
    MaxTargets,
    OnFailure,
    PlaybookSet,
    Step,
)
from remediator.core.policy import Limit, Mode, Share
from remediator.core.render import Context, Expression, ParamTemplate
from remediator.core.retry import RetryPolicy
from remediator.core.units import parse_duration, print_duration
from remediator.errors import MissingValueError, Reason, TemplateError

Actions = Mapping[str, Action[Any]]

NAMESPACE = uuid.UUID("7d0a7ff7-52cb-5b5e-9f5d-0d4f4c1c6f3a")
"""Of all ids made here; fixed for ever, or a restart would make other run ids of the same subjects."""

MESSAGE_TIMEOUT = timedelta(minutes=1)
"""Of the engine's own messages. Services answer in seconds; one that hangs holds for so long who waits to be told, and
with the oldest plan that waits for a place all that stand behind it."""


class Runs(StrEnum):
    """Whether a step is to be done: decided at plan time unless its ``if`` holds late values."""

    YES = "yes"
    NO = "no"
    LATE = "late"


@dataclass(frozen=True, slots=True, kw_only=True)
class Undo:
    """When what a step did is taken back; see ``core.playbook.UndoTemplate``."""

    when: UndoWhen
    after: timedelta
    at_most: timedelta
    require: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStep:
    """One action, rendered.

    Attributes:
        key: unique in the run: ``steps.restart``, ``resolved.step_1``, ``message.escalate``.
        params: rendered and validated, as JSON; of late fields the template's source stands in ``late_params``.
        condition: the ``if`` as written where ``runs`` is late, else "".
        timeout: of one attempt.
        rung: of the ladder, from 1; 0 where there is none.
        verify: must hold after it, else the step is failed.
        undo: None where what it does cannot be taken back.
        approval: whom to ask at its turn.
    """

    key: str
    action: str
    describes: str
    params: Mapping[str, JsonValue]
    late_params: Mapping[str, JsonValue] = field(default_factory=dict)
    runs: Runs = Runs.YES
    condition: str = ""
    timeout: timedelta
    retry: RetryPolicy
    on_failure: OnFailure
    is_disruptive: bool
    is_idempotent: bool
    is_message: bool
    rung: int = 0
    verify: tuple[Check, ...] = ()
    undo: Undo | None = None
    approval: Approval | None = None

    @property
    def name(self) -> str:
        """As the playbook calls it."""
        return self.key.partition(".")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All that will be done for one subject.

    Attributes:
        run_id: ``uuid5(playbook, case, opened subject)``: repeats, retries, HA pairs and restarts collapse on it.
        mode: of the playbook and policy when it was made, the stricter.
        per, per_key: the subject's values.
        fingerprint: of the alert that it was made from, for people.
        context: what templates see, frozen (labels, annotations, alert, group, subject, vars, run, …).
        is_by_hand: a person asked for it: no hold, never stale.
        require: conditions that must hold just before acting.
        ladder: see ``core.playbook.Case``; None = no ladder.
        approval: people are asked before any step of each rung.
        prometheus: name of the Prometheus that its conditions are asked of, "" when none is known.
    """

    run_id: str
    subject_id: str
    playbook: str
    playbook_sha256: str
    case: str
    mode: Mode
    owner: str
    per: Mapping[str, str]
    per_key: str
    fingerprint: str
    hold: timedelta
    stop_on_resolve: bool
    latched: bool
    is_by_hand: bool
    guard: GuardRules
    steps: tuple[PlannedStep, ...]
    verify: tuple[Check, ...]
    resolved: tuple[PlannedStep, ...]
    report_to: tuple[str, ...]
    escalate_to: tuple[str, ...]
    context: Context
    require: tuple[Condition, ...] = ()
    ladder: timedelta | None = None
    approval: Approval | None = None
    prometheus: str = ""

    @property
    def top_rung(self) -> int:
        """The highest rung; 0 where there is no ladder."""
        return max((step.rung for step in self.steps), default=0)

    def of_rung(self, rung: int) -> tuple[PlannedStep, ...]:
        """The steps of one rung, in order; all where there is no ladder."""
        return tuple(step for step in self.steps if step.rung == rung)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """All that a Prometheus is asked for it."""
        checks = [*self.verify, *(check for step in self.steps for check in step.verify)]
        return (
            *self.require,
            *(check.condition for check in checks if check.condition is not None),
            *(condition for step in self.steps if step.undo is not None for condition in step.undo.require),
        )

    def acts_of(self, rung: int) -> tuple[PlannedStep, ...]:
        """The rung's steps that are not messages and may run."""
        return tuple(step for step in self.of_rung(rung) if not step.is_message and step.runs is not Runs.NO)

    @property
    def acts(self) -> tuple[PlannedStep, ...]:
        """Its steps that are not messages and may run."""
        return tuple(step for step in self.steps if not step.is_message and step.runs is not Runs.NO)

    @property
    def is_messages_alone(self) -> bool:
        """Asked only its own guard: messages pass pauses and policies."""
        return not self.acts

    @property
    def labels(self) -> Mapping[str, str]:
        """Of the alert that it was made from."""
        labels = self.context.get("labels", {})
        assert isinstance(labels, Mapping)
        return {name: str(value) for name, value in labels.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why there is no plan to act on: told and recorded, nothing is touched."""

    reason: Reason
    detail: str


def subject_id(playbook: str, case: str, per_key: str, opened_by: str) -> str:
    """The id of the subject that ``opened_by`` (an episode's id, or a request's) opens."""
    return str(uuid.uuid5(NAMESPACE, "\x1f".join(("subject", playbook, case, per_key, opened_by))))


def run_id(playbook: str, case: str, subject: str) -> str:
    """The one run that an opened subject has."""
    return str(uuid.uuid5(NAMESPACE, "\x1f".join(("run", playbook, case, subject))))


def stricter(one: Mode, other: Mode) -> Mode:
    """The mode that may do less."""
    order = (Mode.ENFORCE, Mode.OBSERVE, Mode.DISABLED)
    return max(one, other, key=order.index)


def make_plan(
    match: Match | MissingPer,
    alert: Alert,
    group: Mapping[str, JsonValue],
    *,
    subject: str,
    rules: PlaybookSet,
    actions: LookingActions,
    is_by_hand: bool = False,
) -> tuple[Plan, Refusal | None]:
    """Plan what a playbook's case does for one alert.

    Args:
        match: from ``core.match``.
        alert: the one that opened the subject.
        group: ``labels``, ``receiver``, ``external_url`` of the delivery.
        subject: the opened subject's id.
        actions: the registry; its looking half is enough.

    Returns:
        The plan and None; or a plan without steps and why it is refused, for the record and the messages.
        Raises nothing.
    """
    case, playbook = match.case, match.playbook
    per, per_key = (match.per, match.per_key) if isinstance(match, Match) else ({match.label: ""}, missing_key(match))
    run = run_id(playbook.name, case.name, subject)
    context = _context(alert, group, per, playbook.name, case, run, rules)
    refusal: Refusal | None = None
    steps: tuple[PlannedStep, ...] = ()
    resolved: tuple[PlannedStep, ...] = ()
    verify: tuple[Check, ...] = ()
    require: tuple[Condition, ...] = ()
    try:
        if isinstance(match, MissingPer):
            raise MissingValueError(f"label {match.label}")
        steps = tuple(_plan_step(step, f"steps.{step.name}", context, actions) for step in case.steps)
        resolved = tuple(_plan_step(step, f"resolved.{step.name}", context, actions) for step in case.resolved)
        verify = tuple(check.render(context) for check in case.verify)
        require = tuple(condition.render(context) for condition in case.require)
    except MissingValueError as error:
        refusal = Refusal(reason=Reason.MISSING_LABEL, detail=str(error))
    except (_BadParamsError, TemplateError) as error:
        refusal = Refusal(reason=Reason.BAD_PARAMS, detail=str(error))
    if refusal is not None:
        steps = resolved = ()
    plan = Plan(
        run_id=run,
        subject_id=subject,
        playbook=playbook.name,
        playbook_sha256=playbook.sha256,
        case=case.name,
        mode=stricter(case.mode, rules.policy.mode),
        owner=case.owner,
        per=per,
        per_key=per_key,
        fingerprint=alert.fingerprint,
        hold=timedelta(0) if is_by_hand else case.hold,
        stop_on_resolve=case.stop_on_resolve,
        latched=case.latched,
        is_by_hand=is_by_hand,
        guard=case.guard,
        steps=steps,
        verify=verify,
        resolved=resolved,
        report_to=case.report_to,
        escalate_to=case.escalate_to,
        context=context,
        require=require,
        ladder=case.ladder,
        approval=case.approval,
        prometheus=_prometheus_of(context, rules.label_map),
    )
    return plan, refusal


def _prometheus_of(context: Context, label_map: LabelMap) -> str:
    """The Prometheus called like the alert's cluster, else the only one there is."""
    if len(label_map.prometheus) == 1:
        return label_map.prometheus[0]
    cluster = str(context.get("cluster", ""))
    return cluster if cluster in label_map.prometheus else ""


def missing_key(match: MissingPer) -> str:
    """The subject key of "this playbook cannot act for want of a label": people are told once, not per alert."""
    return uuid.uuid5(NAMESPACE, f"missing\x1f{match.playbook.name}").hex


class _BadParamsError(Exception):
    """Rendered params that the action does not take."""


def _context(
    alert: Alert,
    group: Mapping[str, JsonValue],
    per: Mapping[str, str],
    playbook: str,
    case: Case,
    run: str,
    rules: PlaybookSet,
) -> Context:
    base = rules.public_url.rstrip("/")
    return {
        "labels": dict(alert.labels),
        "annotations": dict(alert.annotations),
        "alert": {
            "status": alert.status.value,
            "fingerprint": alert.fingerprint,
            "starts_at": alert.starts_at_text,
            "generator_url": alert.generator_url,
        },
        "group": dict(group),
        "subject": dict(per),
        "playbook": playbook,
        "owner": case.owner,
        "vars": dict(rules.vars),
        "run": {"id": run, "url": f"{base}/api/v1/runs/{run}" if base else f"remediator audit show {run}"},
        **place(alert.labels, rules.label_map),
    }


def _plan_step(step: Step, key: str, context: Context, actions: LookingActions) -> PlannedStep:
    action = actions[step.action]
    runs, condition = Runs.YES, ""
    if step.condition is not None:
        if step.condition.is_late:
            runs, condition = Runs.LATE, step.condition.source
        elif not step.condition.holds(context):
            runs = Runs.NO
    params: dict[str, JsonValue] = {}
    late: dict[str, JsonValue] = {}
    if runs is not Runs.NO:
        templates = dict(step.params)
        for name, source in action.param_defaults.items():
            if name in templates:
                continue
            if source == ALL_LABELS:
                params[name] = context["labels"]
            else:
                templates[name] = ParamTemplate.parse(source)
        for name, template in templates.items():
            if template.is_late:
                late[name] = template.source
            else:
                params[name] = template.render(context)
    model = _validated(action, step, {**late, **params}) if runs is not Runs.NO else None
    describes = action.describe(model) if model is not None else f"{step.action} (skipped: its `if` is false)"
    if model is not None:
        dumped = model.model_dump(mode="json", exclude_none=True)
        params = {name: value for name, value in dumped.items() if name not in late}
    return PlannedStep(
        key=key,
        action=step.action,
        describes=describes,
        params=params,
        late_params=late,
        runs=runs,
        condition=condition,
        timeout=step.timeout,
        retry=step.retry,
        on_failure=step.on_failure,
        is_disruptive=action.is_disruptive,
        is_idempotent=action.is_idempotent,
        is_message=action.is_message,
        rung=step.rung,
        verify=tuple(check.render(context) for check in step.verify) if runs is not Runs.NO else (),
        undo=_undo(step, context) if runs is not Runs.NO else None,
        approval=step.approval,
    )


def _undo(step: Step, context: Context) -> Undo | None:
    if step.undo is None:
        return None
    return Undo(
        when=step.undo.when,
        after=step.undo.after,
        at_most=step.undo.at_most,
        require=tuple(condition.render(context) for condition in step.undo.require),
    )


def _validated(action: LookingAction[Any], step: Step, params: Mapping[str, JsonValue]) -> ActionParams:
    try:
        model = action.params_model.model_validate(params)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(str(part) for part in at['loc'])}: {at['msg']}" for at in error.errors())
        raise _BadParamsError(f"step {step.name}: {problems}") from error
    if step.timeout < action.min_timeout(model):
        raise _BadParamsError(
            f"step {step.name}: timeout {print_duration(step.timeout)} is too short;"
            f" write at least {print_duration(action.min_timeout(model))}"
        )
    return model


def params_of(step: PlannedStep, action: LookingAction[Any], context: Context) -> ActionParams:
    """The step's params as its action takes them, late fields rendered from ``context``.

    Raises:
        MissingValueError: a late field names what is not there.
        pydantic.ValidationError: a late value does not fit.
    """
    late = {name: ParamTemplate.parse(source).render(context) for name, source in step.late_params.items()}
    return action.params_model.model_validate({**step.params, **late})


def holds(step: PlannedStep, context: Context) -> bool:
    """Whether a step whose ``if`` is late is to be done, now that it is its turn."""
    return Expression.parse(step.condition).holds(context)


# -- packing: how a plan stands in the audit log -----------------------------------------------------------------------


def pack_plan(plan: Plan) -> dict[str, JsonValue]:
    """The plan as JSON for ``plan_made``: durations as people write them, nothing that is not text, int or bool."""
    return {
        "run_id": plan.run_id,
        "subject_id": plan.subject_id,
        "playbook": plan.playbook,
        "playbook_sha256": plan.playbook_sha256,
        "case": plan.case,
        "mode": plan.mode.value,
        "owner": plan.owner,
        "per": dict(plan.per),
        "per_key": plan.per_key,
        "fingerprint": plan.fingerprint,
        "hold": print_duration(plan.hold),
        "stop_on_resolve": plan.stop_on_resolve,
        "latched": plan.latched,
        "is_by_hand": plan.is_by_hand,
        "guard": pack_guard(plan.guard),
        "steps": [_pack_step(step) for step in plan.steps],
        "verify": [pack_check(check) for check in plan.verify],
        "resolved": [_pack_step(step) for step in plan.resolved],
        "report_to": list(plan.report_to),
        "escalate_to": list(plan.escalate_to),
        "context": dict(plan.context),
        "require": [pack_condition(condition) for condition in plan.require],
        "prometheus": plan.prometheus,
        **_without_none(
            ladder=None if plan.ladder is None else print_duration(plan.ladder),
            approval=None if plan.approval is None else _pack_approval(plan.approval),
        ),
    }


def _without_none(**values: JsonValue | None) -> dict[str, JsonValue]:
    """The audit holds no null: what is not there is left out."""
    return {name: value for name, value in values.items() if value is not None}


def pack_guard(guard: GuardRules) -> dict[str, JsonValue]:
    """A playbook's own limits as the log keeps them and a dry run shows them."""
    return {
        "cooldown": print_duration(guard.cooldown),
        "tell_after": print_duration(guard.tell_after),
        **_without_none(
            max_runs=None if guard.max_runs is None else _pack_limit(guard.max_runs),
            max_targets=None if guard.max_targets is None else _pack_max_targets(guard.max_targets),
        ),
    }


def _pack_limit(limit: Limit) -> dict[str, JsonValue]:
    return {"count": limit.count, "per": print_duration(limit.per)}


def _pack_max_targets(wanted: MaxTargets) -> dict[str, JsonValue]:
    per: dict[str, JsonValue] = {"per": print_duration(wanted.per)}
    if isinstance(wanted.limit, Share):
        return per | {"percent": wanted.limit.percent, "of": wanted.limit.of}
    return per | {"count": wanted.limit}


def pack_condition(condition: Condition) -> dict[str, JsonValue]:
    """A condition as the log keeps it and a dry run shows it."""
    return {"name": condition.name, "query": condition.query, condition.comparison.value: condition.bound}


def pack_check(check: Check) -> dict[str, JsonValue]:
    """An entry of ``verify`` likewise."""
    if check.condition is None:
        return {"alert": "resolved", "within": print_duration(check.within)}
    return {
        **pack_condition(check.condition),
        "settle": print_duration(check.settle),
        "holds": print_duration(check.holds),
        "within": print_duration(check.within),
    }


def _pack_approval(approval: Approval) -> dict[str, JsonValue]:
    return {"ask": list(approval.ask), "expires": print_duration(approval.expires)}


def pack_undo(undo: Undo) -> dict[str, JsonValue]:
    """When a change is taken back, likewise."""
    return {
        "when": undo.when.value,
        "after": print_duration(undo.after),
        "at_most": print_duration(undo.at_most),
        "require": [pack_condition(condition) for condition in undo.require],
    }


def _pack_step(step: PlannedStep) -> dict[str, JsonValue]:
    retry: dict[str, JsonValue] = {
        "wait": print_duration(step.retry.wait),
        "max_wait": print_duration(step.retry.max_wait),
        "jitter_pct": step.retry.jitter_pct,
    }
    if step.retry.attempts is not None:
        retry["attempts"] = step.retry.attempts
    if step.retry.budget is not None:
        retry["budget"] = print_duration(step.retry.budget)
    return {
        "key": step.key,
        "action": step.action,
        "describes": step.describes,
        "params": dict(step.params),
        "late_params": dict(step.late_params),
        "runs": step.runs.value,
        "if": step.condition,
        "timeout": print_duration(step.timeout),
        "retry": retry,
        "on_failure": step.on_failure.value,
        "is_disruptive": step.is_disruptive,
        "is_idempotent": step.is_idempotent,
        "is_message": step.is_message,
        "rung": step.rung,
        "verify": [pack_check(check) for check in step.verify],
        **_without_none(
            undo=None if step.undo is None else pack_undo(step.undo),
            approval=None if step.approval is None else _pack_approval(step.approval),
        ),
    }


def unpack_plan(data: Mapping[str, Any]) -> Plan:
    """The plan that ``pack_plan`` packed."""
    guard = data["guard"]
    return Plan(
        run_id=data["run_id"],
        subject_id=data["subject_id"],
        playbook=data["playbook"],
        playbook_sha256=data["playbook_sha256"],
        case=data["case"],
        mode=Mode(data["mode"]),
        owner=data["owner"],
        per=data["per"],
        per_key=data["per_key"],
        fingerprint=data["fingerprint"],
        hold=parse_duration(data["hold"]),
        stop_on_resolve=data["stop_on_resolve"],
        latched=data["latched"],
        is_by_hand=data["is_by_hand"],
        guard=GuardRules(
            cooldown=parse_duration(guard["cooldown"]),
            max_runs=_unpack_limit(guard["max_runs"]) if "max_runs" in guard else None,
            tell_after=parse_duration(guard["tell_after"]),
            max_targets=_unpack_max_targets(guard["max_targets"]) if "max_targets" in guard else None,
        ),
        steps=tuple(_unpack_step(step) for step in data["steps"]),
        verify=tuple(_unpack_check(check) for check in data["verify"]),
        resolved=tuple(_unpack_step(step) for step in data["resolved"]),
        report_to=tuple(data["report_to"]),
        escalate_to=tuple(data["escalate_to"]),
        context=data["context"],
        require=tuple(unpack_condition(condition) for condition in data["require"]),
        ladder=parse_duration(data["ladder"]) if "ladder" in data else None,
        approval=_unpack_approval(data["approval"]) if "approval" in data else None,
        prometheus=data["prometheus"],
    )


def _unpack_limit(data: Mapping[str, Any]) -> Limit:
    return Limit(count=data["count"], per=parse_duration(data["per"]))


def _unpack_max_targets(data: Mapping[str, Any]) -> MaxTargets:
    limit = data["count"] if "count" in data else Share(percent=data["percent"], of=data["of"])
    return MaxTargets(limit=limit, per=parse_duration(data["per"]))


def unpack_condition(data: Mapping[str, Any]) -> Condition:
    """The condition that ``pack_condition`` packed."""
    comparison = next(one for one in Comparison if one.value in data)
    return Condition(name=data["name"], query=data["query"], comparison=comparison, bound=data[comparison.value])


def _unpack_check(data: Mapping[str, Any]) -> Check:
    within = parse_duration(data["within"])
    if "alert" in data:
        return Check(within=within)
    return Check(
        within=within,
        condition=unpack_condition(data),
        settle=parse_duration(data["settle"]),
        holds=parse_duration(data["holds"]),
    )


def _unpack_approval(data: Mapping[str, Any]) -> Approval:
    return Approval(ask=tuple(data["ask"]), expires=parse_duration(data["expires"]))


def unpack_undo(data: Mapping[str, Any]) -> Undo:
    """The undo that ``pack_undo`` packed."""
    return Undo(
        when=UndoWhen(data["when"]),
        after=parse_duration(data["after"]),
        at_most=parse_duration(data["at_most"]),
        require=tuple(unpack_condition(condition) for condition in data["require"]),
    )


def _unpack_step(data: Mapping[str, Any]) -> PlannedStep:
    retry = data["retry"]
    return PlannedStep(
        key=data["key"],
        action=data["action"],
        describes=data["describes"],
        params=data["params"],
        late_params=data["late_params"],
        runs=Runs(data["runs"]),
        condition=data["if"],
        timeout=parse_duration(data["timeout"]),
        retry=RetryPolicy(
            attempts=retry.get("attempts"),
            wait=parse_duration(retry["wait"]),
            max_wait=parse_duration(retry["max_wait"]),
            jitter_pct=retry["jitter_pct"],
            budget=parse_duration(retry["budget"]) if "budget" in retry else None,
        ),
        on_failure=OnFailure(data["on_failure"]),
        is_disruptive=data["is_disruptive"],
        is_idempotent=data["is_idempotent"],
        is_message=data["is_message"],
        rung=data["rung"],
        verify=tuple(_unpack_check(check) for check in data["verify"]),
        undo=unpack_undo(data["undo"]) if "undo" in data else None,
        approval=_unpack_approval(data["approval"]) if "approval" in data else None,
    )


def planned_message(
    key: str, to: Sequence[str], title: str, body: str, actions: LookingActions, retry: RetryPolicy
) -> PlannedStep:
    """One of the engine's own texts, as a step: sent, retried and recorded like any ``notify.send``."""
    action = actions["notify.send"]
    model = action.params_model.model_validate({"to": list(to), "title": title, "body": body})
    return PlannedStep(
        key=key,
        action=action.name,
        describes=action.describe(model),
        params=model.model_dump(mode="json", exclude_none=True),
        timeout=MESSAGE_TIMEOUT,
        retry=retry,
        on_failure=OnFailure.CONTINUE,
        is_disruptive=action.is_disruptive,
        is_idempotent=action.is_idempotent,
        is_message=action.is_message,
    )
