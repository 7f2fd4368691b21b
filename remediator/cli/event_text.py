"""What an event of the audit log says, for a person who has to understand it now.

Takes → gives: an event's data → lines on stdout. Plans, verdicts and attempts have a shape of their own: a line for
each step, for each rule, for each thing that an act changed. Everything else is names and values.

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
    _line("verify", "; ".join(value_text(check) for check in plan.pop("verify", [])))
    guard = dict(plan.pop("guard", {}))
    if isinstance(most := guard.get("max_runs"), Mapping):
        guard["max_runs"] = f"{most.get('count')} in {most.get('per')}"
    _line("guard", ", ".join(f"{name} {value_text(value)}" for name, value in guard.items()))
    _line("report", value_text(plan.pop("report_to", [])))
    _line("escalate", value_text(plan.pop("escalate_to", [])))
    if is_whole:
        _print_rest(plan)


def _print_steps(title: str, steps: Iterable[Mapping[str, Any]]) -> None:
    for step in steps:
        name = str(step.get("key", "")).partition(".")[2]
        _line(title, f"{name}: {step.get('describes', '')}")
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
        title = ""


def _print_verdict(data: Data, *, is_whole: bool) -> None:
    answers: list[Mapping[str, Any]] = data.pop("answers")
    word = str(data.pop("word", ""))
    _line("verdict", word)
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
    if before is not None and isinstance(after := data.pop("after", None), Mapping):
        changes = {name: (before.get(name, ""), value) for name, value in after.items() if before.get(name) != value}
        for name, (old, new) in changes.items():
            _line(name, " → ".join(filter(None, (value_text(old), value_text(new) or "(none)"))))
        if changes:
            data.pop("changed", None)


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
