"""Playbooks, printed back.

Takes a ``Playbook``, gives its YAML with every default filled in, which loads as the same playbook. Must never: leave
out a key that acts.
"""

from __future__ import annotations

import re
from io import StringIO
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.representer import SafeRepresenter

from remediator.core.action import UndoWhen
from remediator.core.playbook import (
    Approval,
    Case,
    CheckTemplate,
    ConditionTemplate,
    MaxTargets,
    Playbook,
    Step,
    UndoTemplate,
)
from remediator.core.policy import Share
from remediator.core.retry import RetryPolicy
from remediator.core.units import print_duration


def effective(playbook: Playbook) -> str:
    """The playbook as YAML with every default written out; it loads as the same playbook."""
    keys: dict[str, Any] = {"playbook": playbook.name}
    if playbook.description:
        keys["description"] = playbook.description
    keys["match"] = [str(matcher) for matcher in playbook.match]
    if [case.name for case in playbook.cases] == [""]:
        keys |= _case(playbook.cases[0])
    else:
        keys["cases"] = [
            {"name": case.name}
            | ({"match": [str(matcher) for matcher in case.match]} if case.match else {})
            | (_case(case) if case.ignore is None else {"ignore": case.ignore})
            for case in playbook.cases
        ]
    out = StringIO()
    yaml = YAML(typ="safe", pure=True)
    yaml.Representer = _Representer
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.width = 120
    yaml.allow_unicode = True
    yaml.dump(keys, out)
    return out.getvalue()


def _case(case: Case) -> dict[str, Any]:
    keys: dict[str, Any] = {"mode": case.mode.value}
    if case.owner:
        keys["owner"] = case.owner
    if case.per is not None:
        keys["per"] = list(case.per)
    keys["stop_on_resolve"] = case.stop_on_resolve
    keys["latched"] = case.latched
    keys["hold"] = print_duration(case.hold)
    guard: dict[str, Any] = {"cooldown": print_duration(case.guard.cooldown)}
    if case.guard.max_runs is not None:
        guard["max_runs"] = {"count": case.guard.max_runs.count, "per": print_duration(case.guard.max_runs.per)}
    if case.guard.max_targets is not None:
        guard["max_targets"] = _max_targets(case.guard.max_targets)
    guard["tell_after"] = print_duration(case.guard.tell_after)
    if case.require:
        guard["require"] = [_condition(condition) for condition in case.require]
    keys["guard"] = guard
    if case.ladder is not None:
        keys["ladder"] = {"within": print_duration(case.ladder)}
    if case.approval is not None:
        keys["approval"] = _approval(case.approval)
    keys["steps"] = [_step(step, case) for step in case.steps]
    if case.verify:
        keys["verify"] = [_check(check) for check in case.verify]
    if case.resolved:
        keys["resolved"] = [_step(step, case) for step in case.resolved]
    keys["report"] = {"to": list(case.report_to)}
    keys["escalate"] = {"to": list(case.escalate_to)}
    return keys


def _max_targets(wanted: MaxTargets) -> dict[str, Any]:
    per = {"per": print_duration(wanted.per)}
    if isinstance(wanted.limit, Share):
        return {"percent": wanted.limit.percent, "of": wanted.limit.of, **per}
    return {"count": wanted.limit, **per}


def _condition(condition: ConditionTemplate) -> dict[str, Any]:
    bound = {condition.comparison.value: _Number(condition.bound)}
    return {"name": condition.name, "query": condition.query.source, **bound}


def _check(check: CheckTemplate) -> dict[str, Any]:
    within = {"within": print_duration(check.within)}
    if check.condition is None:
        return {"alert": "resolved", **within}
    times = {"settle": print_duration(check.settle), "holds": print_duration(check.holds)}
    return {**_condition(check.condition), **times, **within}


def _approval(approval: Approval) -> dict[str, Any]:
    return {"ask": list(approval.ask), "expires": print_duration(approval.expires)}


def _undo(undo: UndoTemplate, case: Case) -> dict[str, Any]:
    if undo.when is UndoWhen.NEVER:
        return {"when": undo.when.value}
    # Of a latched one only the action's own default can be `resolved`: a file that says so is refused.
    keys: dict[str, Any] = {} if case.latched else {"when": undo.when.value}
    keys["after"] = print_duration(undo.after)
    if undo.require:
        keys["require"] = [_condition(condition) for condition in undo.require]
    keys["at_most"] = print_duration(undo.at_most)
    return keys


class _Number(str):
    """A number as it was written, printed without quotes."""

    __slots__ = ()


class _Representer(SafeRepresenter):
    def represent_number(self, number: _Number) -> ScalarNode:
        kind = "int" if re.fullmatch(r"[-+]?[0-9]+", number) else "float"
        node: ScalarNode = self.represent_scalar(f"tag:yaml.org,2002:{kind}", str(number))
        return node


_Representer.add_representer(_Number, _Representer.represent_number)


def _step(step: Step, case: Case) -> dict[str, Any]:
    keys: dict[str, Any] = {"name": step.name}
    if step.rung:
        keys["rung"] = step.rung
    if step.condition is not None:
        keys["if"] = step.condition.source
    keys["action"] = step.action
    if step.params:
        keys["params"] = {name: template.source for name, template in step.params.items()}
    keys["timeout"] = print_duration(step.timeout)
    keys["retry"] = _retry(step.retry)
    keys["on_failure"] = step.on_failure.value
    if step.approval is not None:
        keys["approval"] = _approval(step.approval)
    if step.verify:
        keys["verify"] = [_check(check) for check in step.verify]
    if step.undo is not None:
        keys["undo"] = _undo(step.undo, case)
    return keys


def _retry(retry: RetryPolicy) -> dict[str, Any]:
    keys: dict[str, Any] = {} if retry.attempts is None else {"attempts": retry.attempts}
    keys |= {"wait": print_duration(retry.wait), "max_wait": print_duration(retry.max_wait)}
    keys["jitter"] = f"{retry.jitter_pct}%"
    if retry.budget is not None:
        keys["budget"] = print_duration(retry.budget)
    return keys
