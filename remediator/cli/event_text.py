"""What an event of the audit log says, for a person who has to understand it now.

Takes → gives: an event's data → lines on stdout. Plans, verdicts, attempts and looks have a shape of their own: a line
for each step, each rule, each thing that an act changed, each condition. Everything else is names and values.

Must never: fail on data that another version wrote: what it does not know is shown as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from remediator.cli.terminal import fold, fold_beside, print_fields, say, value_text
from remediator.core.units import print_duration

Data = dict[str, Any]

_TITLES = 14
"""Columns before the text: two to set it off, and the longest of the titles that are common."""


def print_data(data: Mapping[str, Any], *, before: Mapping[str, Any] | None = None, is_whole: bool) -> None:
    """An event's data.

    Args:
        before: the state before the act of which this event is the end; None when it is not known.
        is_whole: with everything that the event has; else what a person wants to know.
    """
    rest = dict(data)
    if isinstance(rest.get("plan"), Mapping):
        _print_plan(dict(rest.pop("plan")), is_whole=is_whole)
    if isinstance(rest.get("answers"), list):
        _print_verdict(rest, is_whole=is_whole)
    if "attempt" in rest:
        _print_attempt(rest, before)
    if isinstance(rest.get("checks"), list):
        _print_checks(rest.pop("checks"))
    if "lease_id" in rest:
        _print_lease(rest, is_whole=is_whole)
    if isinstance(rest.get("expires_ms"), int):
        rest["expires"] = print_duration(timedelta(milliseconds=rest.pop("expires_ms")))
    if not rest.get("rung"):
        rest.pop("rung", None)  # there is no ladder
    rest.pop("outcome", None)  # the event itself has it
    _print_rest({name: value for name, value in rest.items() if value != "none"})


def _print_rest(data: Mapping[str, Any]) -> None:
    for name, value in data.items():
        if isinstance(value, Mapping):
            print_fields({name: value}, 2)
        else:
            _line(name, value_text(value))


def _print_plan(plan: Data, *, is_whole: bool) -> None:
    case = f", case {plan['case']}" if plan.get("case") else ""
    per, context = plan.pop("per", {}), plan.get("context", {})
    _line("for", f"{value_text(per)}{case}")
    _line("alert", value_text(context.get("labels", {})))
    _line("mode", ", ".join([str(plan.pop("mode", "")), *(name for name in ("latched",) if plan.get(name))]))
    _line("hold", plan.pop("hold", ""))
    for title in ("steps", "resolved"):
        _print_steps(title, plan.pop(title, []))
    for title in ("verify", "require"):
        _print_conditions(title, plan.pop(title, []))
    guard = dict(plan.pop("guard", {}))
    for limit in ("max_runs", "max_targets"):
        if isinstance(most := guard.get(limit), Mapping):
            guard[limit] = f"{_many(most)} in {most.get('per')}"
    _line("guard", ", ".join(f"{name} {value_text(value)}" for name, value in guard.items()))
    if ladder := plan.pop("ladder", None):
        _line("ladder", f"one rung higher when back within {ladder}")
    _line("approval", _approval_text(plan.pop("approval", None)))
    _line("report", value_text(plan.pop("report_to", [])))
    _line("escalate", value_text(plan.pop("escalate_to", [])))
    if is_whole:
        _print_rest(plan)


def _print_steps(title: str, steps: Iterable[Mapping[str, Any]]) -> None:
    for step in steps:
        name = str(step.get("key", "")).partition(".")[2]
        rung = f"rung {step['rung']}, " if step.get("rung") else ""
        _line(title, f"{rung}{name}: {step.get('describes', '')}")
        _more(value_text(step.get("params", {})))
        _more(value_text(step.get("late_params", {})))
        retry = dict(step.get("retry", {}))
        limits = [
            f"if {step['if']}" if step.get("if") else "",
            f"timeout {step.get('timeout', '')}",
            *(f"{limit} {retry[limit]}" for limit in ("attempts", "budget") if limit in retry),
            f"on failure {step.get('on_failure', '')}",
        ]
        _more(", ".join(filter(None, limits)))
        for check in step.get("verify", []):
            _more(f"verify {condition_text(check)}")
        if asked := _approval_text(step.get("approval")):
            _more(f"approval {asked}")
        _more(_undo_text(step.get("undo")))
        title = ""


def _print_conditions(title: str, conditions: Iterable[Mapping[str, Any]]) -> None:
    for condition in conditions:
        _line(title, condition_text(condition))
        _more(str(condition.get("query", "")).strip())
        title = ""


def condition_text(condition: Mapping[str, Any]) -> str:
    """A condition without its query: ``memory_ratio below 0.8, settle 3m, holds 5m, within 20m``.

    Args:
        condition: as ``core.plan.pack_check`` or ``pack_condition`` packed it.
    """
    if condition.get("alert"):
        return f"the alert is {condition['alert']}, within {condition.get('within', '')}"
    compared = [f"{word} {condition[word]}" for word in ("below", "above", "equals") if word in condition]
    times = [f"{time} {condition[time]}" for time in ("settle", "holds", "within") if condition.get(time, "0s") != "0s"]
    return ", ".join([" ".join([str(condition.get("name", "")), *compared]), *times])


def _many(limit: Mapping[str, Any]) -> str:
    """``2``, or ``10 % of gpus``."""
    return str(limit["count"]) if "count" in limit else f"{limit.get('percent')} % of {limit.get('of')}"


def _approval_text(approval: Any) -> str:
    if not isinstance(approval, Mapping):
        return ""
    return f"of {value_text(approval.get('ask'))} within {approval.get('expires')}"


def _undo_text(undo: Any) -> str:
    if not isinstance(undo, Mapping):
        return ""
    if undo.get("when") == "never":
        return "undo by hand alone"
    conditions = "; ".join(condition_text(condition) for condition in undo.get("require", []))
    only_if = f", only if {conditions}" if conditions else ""
    return f"undo {undo.get('after')} after {undo.get('when')}, at most {undo.get('at_most')}{only_if}"


def _print_checks(checks: Iterable[Any]) -> None:
    """What a look saw of each condition; of one that is not looked at yet, nothing."""
    for check in checks:
        if isinstance(check, Mapping) and check.get("seen"):
            met = {"met": "met", "not_met": "not met", "no_value": "no value"}.get(
                str(check["seen"]), str(check["seen"])
            )
            fold_beside(f"    {met:<10}", str(check.get("detail", "")), "" if check["seen"] == "met" else "bold")


def _print_lease(data: Data, *, is_whole: bool) -> None:
    """What was changed for a time, and when that ends."""
    step = str(data.pop("step", "")).removeprefix("steps.")
    _line("lease", " ".join(filter(None, (str(data.pop("action", "")), str(data.pop("target", ""))))))
    if "when" in data:
        after = print_duration(timedelta(seconds=data.pop("after_s", 0)))
        undo = {"when": data.pop("when"), "after": after, "at_most": data.pop("at_most", "")}
        _more(_undo_text({**undo, "require": data.pop("require", [])}))
    if is_whole:
        data["step"] = step
        return
    for known in ("lease_id", "leases", "params"):
        data.pop(known, None)
    for old, new in (("before", "after"), ("left", "restore")):
        if isinstance(data.get(old), Mapping) and isinstance(data.get(new), Mapping):
            _print_changes(data.pop(old), data.pop(new))


def _print_verdict(data: Data, *, is_whole: bool) -> None:
    answers: list[Mapping[str, Any]] = data.pop("answers")
    word = str(data.pop("word", ""))
    _line("verdict", word + (", people are asked before it acts" if data.pop("asks", False) else ""))
    if not data.get("tripped"):
        data.pop("tripped", None)
    width = max((len(str(answer.get("rule", ""))) for answer in answers), default=0)
    for answer in answers:
        reason = "" if answer.get("reason") in ("none", "") else str(answer.get("reason", ""))
        until = f"until {answer['lifts_at'][:19]}Z" if answer.get("lifts_at") else ""
        said = ": ".join(filter(None, (reason, str(answer.get("detail", "")))))
        text = ", ".join(filter(None, (said, until)))
        head = f"{'':4}{answer.get('word', ''):<8}{answer.get('rule', ''):<{width}}  "
        if text:
            fold_beside(head, text, "" if answer.get("word") == "allow" else "bold")
        else:
            say(head.rstrip())
    for title in ("targets", "affects"):
        for target in data.pop(title, []):
            state = f" ({target['state']})" if target.get("state") else ""
            _line(title, f"{target.get('ref', '')}{state}")
            if is_whole:
                print_fields({name: value for name, value in target.items() if name not in ("ref", "state")}, _TITLES)
            title = ""
    for told_above in ("reasons", "waits_for") if is_whole else ("reasons", "waits_for", "asked_at"):
        data.pop(told_above, None)


def _print_attempt(data: Data, before: Mapping[str, Any] | None) -> None:
    step = str(data.pop("step", "")).removeprefix("steps.")
    limit_ms = data.pop("timeout_ms", None)
    limit = "" if limit_ms is None else f", at most {print_duration(timedelta(milliseconds=limit_ms))}"
    took = f", took {data.pop('duration_ms') / 1000:.1f} s" if "duration_ms" in data else ""
    _line("attempt", f"{data.pop('attempt')} of {step}{limit}{took}")
    _line("does", str(data.pop("describes", "")))
    data.pop("action", None)
    for name, value in dict(data.pop("params", {})).items():
        _text(name, value)
    after = data.pop("after", None) if before is not None else None
    if before is not None and isinstance(after, Mapping) and _print_changes(before, after):
        data.pop("changed", None)


def _print_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """A line for each thing that is not as it was; whether there is any."""
    changes = {name: (before.get(name, ""), value) for name, value in after.items() if before.get(name) != value}
    for name, (old, new) in changes.items():
        _line(name, " → ".join(filter(None, (value_text(old), value_text(new) or "(none)"))))
    return bool(changes)


def _line(title: str, text: str) -> None:
    """A title and what it says; nothing where it says nothing."""
    if text:
        fold_beside(f"  {title.replace('_', ' ')}  ".ljust(_TITLES), text)


def _more(text: str) -> None:
    if text:
        fold(text, _TITLES, "dim")


def _text(name: str, value: Any) -> None:
    """A param; a text of several lines keeps them."""
    if isinstance(value, str) and "\n" in value:
        for line in value.splitlines():
            _line(name, line)
            name = ""
    else:
        _line(name, value_text(value))
