"""``remediator plan``: a dry run without the engine. Which playbooks match, what they would do, and why, or why not.

Takes → gives: a delivery (a file, stdin, or an alert made of options) → the whole plan with its verdict, or what other
playbooks would change of it.
Must never act: nothing that it holds leads to an action's ``apply`` or to a client that can write.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from remediator.cli.alert_options import PAIR, Pair, alert_options, as_map, webhook_body
from remediator.cli.invocation import Invocation
from remediator.cli.plan_alert import print_alerts, print_assumptions, print_moment
from remediator.cli.plan_diff import print_difference
from remediator.cli.store_options import moment_option
from remediator.cli.terminal import (
    fold,
    fold_beside,
    json_option,
    moment_text,
    print_fields,
    print_json,
    say,
    value_text,
)
from remediator.errors import UnreachableError

_YEARS = range(1971, 2200)
"""Of ``--at``: any cooldown or window before or after it is still a moment that can be written."""

_STYLES = {"allow": "green", "wait": "yellow", "refuse": "red"}


def _moment(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    moment = moment_option(ctx, param, value)
    if moment is not None and moment.year not in _YEARS:
        raise click.BadParameter(f"the year is not between {_YEARS.start} and {_YEARS.stop - 1}", ctx, param)
    return moment


@click.command()
@click.argument("words", nargs=-1, metavar="[FILE|-] [LABEL=VALUE]...")
@alert_options
@click.option(
    "--playbooks",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="PATH",
    help="Plan with this folder or file instead of the settings'; repeatable. Policies among them count, no others.",
)
@click.option(
    "--at",
    metavar="TIME",
    callback=_moment,
    help="Decide as of then: 2h is two hours ago; or a time, which may lie in the future.",
)
@click.option(
    "--diff",
    is_flag=True,
    help="Show what --playbooks would change against what the settings' folders hold.",
)
@json_option
@click.pass_context
def plan(
    ctx: click.Context,
    words: tuple[str, ...],
    alert: tuple[Pair, ...],
    annotation: tuple[Pair, ...],
    playbooks: tuple[Path, ...],
    at: datetime | None,
    diff: bool,
    as_json: bool,
) -> None:
    """Show what would happen for an alert, and why. Nothing is touched.

    Give a delivery as Alertmanager posts it (FILE, or - for stdin), or make an alert:

    \b
      remediator plan delivery.json
      remediator plan alertname=GPUMemoryLeakSlope hostname=gpu-07
      remediator plan delivery.json --playbooks new/ --diff
      remediator plan delivery.json --at 2h

    For each alert: the playbooks that match, their steps on every rung, what would be touched and its state now, what
    each condition says now, who is asked first and what is taken back; the verdict with every reason; and why the other
    playbooks do not match. Limits are counted from the store as it is now; with --at as it stood then, and the answer
    says what it takes for granted.

    Exit code 0: shown, and with --diff: no difference; 1: a member of the delivery has a problem, the playbooks have
    one, or with --diff: something differs.
    """
    if diff and not playbooks:
        raise click.UsageError(
            "--diff compares with the running set: say what to compare it with, as in --diff --playbooks new/"
        )
    body = _body(words, alert, annotation)
    from remediator.app import build_dry_app  # only now: it loads everything, and wrong usage is said at once

    invocation: Invocation = ctx.obj
    app = build_dry_app(invocation.settings_of_here())
    answer = app.difference(body, playbooks, at=at) if diff else app.dry_run(body, playbooks=playbooks, at=at)
    if as_json:
        print_json(answer)
    elif diff:
        print_difference(answer)
    else:
        print_plan(answer)
    has_problem = bool(answer["bad_alerts"]) or any(item.get("problem") for item in answer["alerts"])
    ctx.exit(1 if has_problem or answer.get("differs") else 0)


def _body(words: tuple[str, ...], alert: tuple[Pair, ...], annotation: tuple[Pair, ...]) -> bytes:
    if alert or (words and "=" in words[0] and not Path(words[0]).exists()):  # labels, also without --alert before
        labels = as_map([*alert, *(PAIR.convert(word, None, None) for word in words)], "--alert")
        return webhook_body(labels, as_map(annotation, "--annotation"))
    if annotation:
        raise click.UsageError("--annotation goes with --alert")
    if len(words) != 1:
        raise click.UsageError("give one FILE, or - for stdin, or --alert LABEL=VALUE")
    if words[0] == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(words[0]).read_bytes()
    except OSError as error:
        raise UnreachableError(f"cannot read {words[0]}: {error.strerror}") from error


def print_plan(answer: Mapping[str, Any]) -> None:
    """A dry run's answer for people.

    Args:
        answer: what ``App.dry_run`` and ``DryApp.dry_run`` give.
    """
    print_moment(answer)
    print_alerts(answer, _print_alert)
    print_assumptions(answer)


def _print_alert(item: Mapping[str, Any]) -> None:
    for match in item["matches"]:
        say()
        _print_match(match)
    if not item["matches"]:
        say()
        fold("no playbook matches", 2, "yellow")
    if item["not_matched"]:
        say()
        fold("does not match:", 2)
        for other in item["not_matched"]:
            fold(f"{other['playbook']}: {'; '.join(other['why'])}", 4, "dim")


def _print_match(match: Mapping[str, Any]) -> None:
    case = f", case {match['case']}" if match["case"] else ""
    fold(f"{match['playbook']}{case}", 2, "bold cyan")
    print_fields(
        {
            "subject": value_text(match["per"]),
            "mode": match["mode"],
            "hold": match["hold"],
            "guard": _guard_text(match.get("guard")),
            "asks first": _approval_text(match.get("approval"), "before each rung" if match.get("ladder") else ""),
            "ladder": _ladder_text(match.get("ladder")),
            "reports to": ", ".join(match.get("report_to", ())),
            "escalates to": ", ".join(match.get("escalate_to", ())),
            "fleets": ", ".join(_fleet_text(fleet) for fleet in match.get("fleets", [])),
            "run id": match["run_id"],
        },
        4,
    )
    if refused := match.get("refused"):
        fold(f"refused ({refused['reason']}): {refused['detail']}", 4, "red")
    for condition in match.get("require", []):
        _print_condition("must hold before it acts", condition, "", 4)
    for heading, steps in (*_by_rung(match), ("when it is over", match["resolved"])):
        if steps:
            fold(heading, 4, "bold")
            for number, step in enumerate(steps, start=1):
                _print_step(number, step)
    for check in match.get("verify", []):
        _print_check("it helped if", check, 4)
    if match.get("open_subject"):
        fold("these values have an open subject, and so their one run: a delivery now would start none", 4, "yellow")
    _print_verdict(match.get("verdict"))


def _by_rung(match: Mapping[str, Any]) -> list[tuple[str, list[Mapping[str, Any]]]]:
    """Headings and steps: one list without a ladder, else one for each rung."""
    ladder = match.get("ladder")
    if not ladder:
        return [("steps", match["steps"])]
    starts_at = ladder["starts_at"]
    return [
        (f"rung {rung}, where it would begin" if rung == starts_at else f"rung {rung}", steps)
        for rung in ladder["rungs"]
        if (steps := [step for step in match["steps"] if step["rung"] == rung])
    ]


def _approval_text(approval: Mapping[str, Any] | None, when: str) -> str:
    if not approval:
        return ""
    return ", ".join(part for part in (" ".join(approval["ask"]), when, f"a yes within {approval['expires']}") if part)


def _ladder_text(ladder: Mapping[str, Any] | None) -> str:
    return f"{len(ladder['rungs'])} rungs, one higher when it is back within {ladder['within']}" if ladder else ""


def _guard_text(guard: Mapping[str, Any] | None) -> str:
    if not guard:
        return ""
    parts = [f"cooldown {guard['cooldown']}"]
    if runs := guard.get("max_runs"):
        parts.append(f"{runs['count']} runs in {runs['per']}")
    if targets := guard.get("max_targets"):
        limit = targets["count"] if "count" in targets else f"{targets['percent']} % of {targets['of']} as"
        parts.append(f"{limit} targets in {targets['per']}")
    return ", ".join([*parts, f"people told after {guard['tell_after']}"])


def _fleet_text(fleet: Mapping[str, Any]) -> str:
    return f"{fleet['name']}: {fleet['size'] or 'not known, ' + fleet['problem']}"


def _print_condition(what: str, condition: Mapping[str, Any], when: str, indent: int) -> None:
    """What is to be, what it is now, and the query in its own words."""
    fold(f"{what}: {condition['now']}{when}", indent)
    fold(" ".join(condition["query"].split()), indent + 2, "dim")


def _print_check(what: str, check: Mapping[str, Any], indent: int) -> None:
    if check.get("alert"):
        fold(f"{what} the alert is resolved within {check['within']}", indent)
        return
    settle = f", looked at after {check['settle']}" if check["settle"] != "0s" else ""
    holds = f", for {check['holds']}" if check["holds"] != "0s" else ""
    _print_condition(what, check, f"{settle}{holds}, within {check['within']}", indent)


def _print_undo(undo: Mapping[str, Any] | None) -> None:
    if not undo:
        return
    when = f"{undo['after']} after the alert is resolved" if undo["when"] == "resolved" else "never by itself"
    fold(f"taken back: {when}; stays {undo['at_most']} at most", 9)
    for condition in undo["require"]:
        _print_condition("must hold for that", condition, "", 9)


def _print_step(number: int, step: Mapping[str, Any]) -> None:
    skipped = step["runs"] == "no"
    fold(f"{number}. {step['name']}: {step['describes']}", 6, "dim" if skipped else "")
    print_fields(
        {
            "action": step["action"],
            "params": value_text(step["params"]),
            "if": f"{step['if']}  ({step['runs']})" if step["if"] else "",
            "timeout": step["timeout"],
            "retry": _retry_text(step["retry"]),
            "on failure": step["on_failure"],
            "asks first": _approval_text(step.get("approval"), ""),
        },
        9,
    )
    for check in step.get("verify", []):
        _print_check("done if", check, 9)
    _print_undo(step.get("undo"))
    for target in step["targets"]:
        fold(f"touches {_target_text(target)}", 9)
    for target in step.get("affects", []):
        fold(f"would end with it: {_target_text(target)}", 9)
    if step.get("problem"):
        fold(f"cannot tell what it touches: {step['problem']}", 9, "red")


def _retry_text(retry: object) -> str:
    if not isinstance(retry, Mapping):
        return str(retry)
    parts = [f"{retry['attempts']} attempts"] if retry.get("attempts") else []
    if retry.get("wait"):
        parts.append(f"{retry['wait']} to {retry['max_wait']} apart")
    if retry.get("budget"):
        parts.append(f"none later than {retry['budget']}")
    return ", ".join(parts)


def _target_text(target: Mapping[str, Any]) -> str:
    owner = f", owned by {target['owner']}" if target.get("owner") else ""
    return f"{target['ref']}, now {target['state'] or 'in a state that it does not say'}{owner}"


def _print_verdict(verdict: Mapping[str, Any] | None) -> None:
    if not verdict:
        return
    fold(f"verdict: {verdict['word']}", 4, "bold " + _STYLES.get(verdict["word"], ""))
    for breaker in verdict.get("trips", []):
        fold(f"this act would trip the breaker {breaker}, and nothing would act until a person resets it", 6, "red")
    # The reasons against it first, then what else was asked.
    allowing = [answer for answer in verdict["answers"] if answer["word"] == "allow"]
    for answer in [*verdict["reasons"], *allowing]:
        until = f", until {moment_text(answer['lifts_at'])}" if answer["lifts_at"] else ""
        why = f" ({answer['reason']})" if answer["word"] != "allow" else ""
        detail = f": {answer['detail']}" if answer["detail"] else ""
        head = " " * 6 + f"{answer['word']:<7}"
        fold_beside(head, f"{answer['rule']}{why}{detail}{until}", _STYLES.get(answer["word"], ""))
