"""The engine's own texts: what happened to what, why, what was done, did it help, what to do now, and where to look.

Pure. Plain text for people who were woken up: the most important comes first, and how it ended before all else. Label
values stand in it as text on one line, and are never read again.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import assert_never

from remediator.core.action import UndoWhen
from remediator.core.move import OTHERS, waiting_text
from remediator.core.outcome import Outcome, RunOutcome
from remediator.core.plan import Plan, PlannedStep, Runs, Undo
from remediator.core.run import Answer, Attempt, MessageKind, Question, Run
from remediator.core.units import cut, print_duration
from remediator.errors import Reason

TITLE_LIMIT = 150
"""Characters: services cut longer titles, or refuse them."""

TEXT_LIMIT = 300
"""Characters of one line that others wrote."""

ENDED = {
    RunOutcome.SUCCEEDED: "done",
    RunOutcome.UNCHANGED: "nothing to change",
    RunOutcome.FAILED: "FAILED",
    RunOutcome.UNKNOWN: "outcome UNKNOWN",
    RunOutcome.CANCELLED: "cancelled",
    RunOutcome.INEFFECTIVE: "done, did NOT help",
    RunOutcome.UNVERIFIED: "done, NOT known whether it helped",
    RunOutcome.REFUSED: "refused",
    RunOutcome.EXPIRED: "nobody answered",
    RunOutcome.STALE: "not done, the alert went silent",
    RunOutcome.OBSERVED: "observed only",
}

ENDED_FOR = {
    Reason.DENIED: "denied",
    Reason.DRIFTED: "stopped, others changed the target",
    Reason.NOT_VERIFIED: "FAILED, a step did not do what it should",
}
"""Where the reason says more than the outcome."""

ONCE = "Nothing more will be tried until it fires anew."

WHAT_NOW = {
    RunOutcome.FAILED: [f"look at the target. {ONCE}"],
    RunOutcome.UNKNOWN: [
        "look whether it happened, then say so with one of these:",
        "  remediator settle {run} happened --reason TEXT",
        "  remediator settle {run} did-not-happen --reason TEXT",
        "Until then no other run touches its target.",
    ],
    RunOutcome.INEFFECTIVE: [f"look yourself. {ONCE}"],
    RunOutcome.UNVERIFIED: [f"look whether it helped. {ONCE}"],
    RunOutcome.REFUSED: [f"act yourself, or mend what the result names. {ONCE}"],
    RunOutcome.EXPIRED: ["decide, and act yourself. Nobody is asked again until it fires anew."],
    RunOutcome.STALE: ["look whether it still fires, and why Alertmanager sent no word of it."],
    RunOutcome.CANCELLED: ["act yourself if it still fires. Nothing more will be done until it fires anew."],
}
"""Lines after "What to do now: "; the first goes on in that line."""

WHAT_NOW_FOR = {
    Reason.DENIED: [f"act yourself, if it is needed. {ONCE}"],
    Reason.DRIFTED: [f"find out who changed it, and why. Nothing is taken back. {ONCE}"],
}


def message(kind: MessageKind, run: Run, about: str = "") -> tuple[str, str]:
    """Title and body of one of the engine's own texts. Raises nothing.

    Args:
        about: what the kind is about: a question's key, a breaker's name, a lease's target; "" for the others.

    Returns:
        Title, one line, at most ``TITLE_LIMIT`` characters, how it ended first: pagers cut the rest. Body, plain text.
    """
    state, lines = _told(kind, run, about)
    title = cut(one_line(f"{state}: {run.plan.playbook}: {subject_text(run.plan)}"), TITLE_LIMIT)
    return title, "\n".join([*lines, "", *_where(run.plan)])


def _told(kind: MessageKind, run: Run, about: str) -> tuple[str, list[str]]:
    match kind:
        case MessageKind.WAITING:
            return _waiting(run)
        case MessageKind.APPROVAL:
            return _approval(run, about)
        case MessageKind.BREAKER:
            return _breaker(run, about)
        case MessageKind.LEASE_KEPT:
            return _lease_kept(run, about)
        case MessageKind.UNDO_FAILED:
            return _undo_failed(run, about)
        case MessageKind.DRIFTED:
            return _drifted(run, about)
        case MessageKind.STILL_FIRING:
            return "still fires after it was done", [
                f"Playbook {run.plan.playbook} did all that it does, and the alert still fires.",
                *_done(run),
                *_still_changed(run),
                "What to do now: look yourself. There is no second run until it fires anew.",
            ]
        case MessageKind.REPORT | MessageKind.ESCALATE:
            what_now = _what_now(run) if kind is MessageKind.ESCALATE else []
            lines = [_result(run), *_why(run.plan), *_done(run), *_still_changed(run), *what_now]
            return _ended(run), [*lines, *_instead_of(run.plan, about)]
    assert_never(kind)


def one_line(text: str) -> str:
    """The text without line breaks and the like: a label must not look like a line of ours."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def subject_text(plan: Plan) -> str:
    """What the run is about, short: the ``per`` values, the alert's name first where it is one of them."""
    if plan.per_key and set(plan.per.values()) == {""}:
        return str(plan.labels.get("alertname", "alert"))
    names = sorted(plan.per, key=lambda name: (name != "alertname", name))
    return cut(" ".join(str(plan.per[name]) for name in names), 100)


# -- before it acts ----------------------------------------------------------------------------------------------------


def _waiting(run: Run) -> tuple[str, list[str]]:
    return "still waiting to act", [
        f"Playbook {run.plan.playbook} wants to act. It waits for: {waiting_text(run.waits_for)}.",
        *_why(run.plan),
        "It goes on waiting while the alert fires.",
        "What to do now: if it cannot wait, act yourself, then cancel it:",
        f"  remediator cancel {run.plan.run_id} --reason TEXT",
    ]


def _approval(run: Run, key: str) -> tuple[str, list[str]]:
    plan, question = run.plan, run.questions[key]
    step = run.find(key)
    rung = f", rung {run.rung} of {plan.top_rung}" if run.rung else ""
    asked = (step,) if step is not None else plan.of_rung(run.rung)
    lines = [
        f"Playbook {plan.playbook}{rung} asks: may it do this?",
        *(f"- {one_line(one.describes)}{_if(one)}" for one in asked if one.runs is not Runs.NO),
        *([f"It would touch: {one_line(', '.join(sorted(run.planned_targets)))}"] if run.planned_targets else []),
        *_why(plan),
        f"Answer until {_moment(question.expires_at(timedelta(0)))}. No answer is a no. If the alert is over before"
        " that, nothing is done.",
        f"  yes: remediator approve {plan.run_id} --question {question.number} --reason TEXT",
        f"  no:  remediator deny {plan.run_id} --question {question.number} --reason TEXT",
    ]
    page = _approval_page(plan)
    return "asks for approval", [*lines, f"  or on its page: {page}"] if page else lines


def _if(step: PlannedStep) -> str:
    return f" (if {one_line(step.condition)})" if step.condition else ""


def _approval_page(plan: Plan) -> str:
    """Where people answer with a browser, "" where the engine's public URL is not known."""
    url, tail = _url(plan), f"/api/v1/runs/{plan.run_id}"
    return f"{url.removesuffix(tail)}/runs/{plan.run_id}/approval" if url.endswith(tail) else ""


def _breaker(run: Run, name: str) -> tuple[str, list[str]]:
    why = one_line(run.why_tripped.get(name, "")) or "its limit was reached"
    return f"breaker {name} tripped", [
        f"Breaker {name} tripped: {why}.",
        "No playbook acts from now on, until a person resets it: every plan waits, and you are told of it once.",
        "Steps under way go on to their end; undos and messages pass.",
        "What to do now: find out why so much happens at once (remediator runs --state all). Then:",
        f"  remediator breaker reset {name} --reason TEXT",
        f"The plan that tripped it is for {one_line(subject_text(run.plan))}; it waits too.",
    ]


# -- leases ------------------------------------------------------------------------------------------------------------


def _lease_kept(run: Run, target: str) -> tuple[str, list[str]]:
    return "kept, NOT taken back", [
        f"Kept: {_news(run, MessageKind.LEASE_KEPT, target)}.",
        *_done(run),
        "It is taken back by itself once the alert is resolved and that is safe.",
        "What to do now: look why it goes on. To take it back at once:",
        f"  remediator undo {run.plan.run_id} --reason TEXT",
    ]


def _undo_failed(run: Run, target: str) -> tuple[str, list[str]]:
    return "could NOT be taken back", [
        f"Not taken back: {_news(run, MessageKind.UNDO_FAILED, target)}.",
        *_done(run),
        "What to do now: look at the target. It is tried again and again, and you are not told a second time:",
        "  remediator leases",
    ]


def _drifted(run: Run, target: str) -> tuple[str, list[str]]:
    return "changed by others, NOT taken back", [
        f"Not as it was left: {_news(run, MessageKind.DRIFTED, target)}.",
        "Nothing was restored, and nothing is taken back any more: nobody knows what is right now.",
        *_done(run),
        "What to do now: look whether the target is as it should be.",
    ]


def _news(run: Run, kind: MessageKind, target: str) -> str:
    return one_line(run.lease_news.get(kind, {}).get(target, "")).rstrip(".") or "nothing was recorded"


# -- how it ended ------------------------------------------------------------------------------------------------------


def _ended(run: Run) -> str:
    if run.outcome is None:
        return "ended"
    return ENDED_FOR.get(run.reason, ENDED[run.outcome])


SAID = frozenset(
    {
        Reason.NONE,
        Reason.DENIED,
        Reason.APPROVAL_EXPIRED,
        Reason.NOT_VERIFIED,
        Reason.DID_NOT_HELP,
        Reason.NO_VALUE,
        Reason.STILL_FIRING,
        Reason.DRIFTED,
        Reason.SETTLED_BY_PERSON,
    }
)
"""Reasons that the run's own detail says in words."""


def _result(run: Run) -> str:
    reason = "" if run.reason in SAID else f" ({run.reason.value})"
    return f"Result: {one_line(run.detail) or 'nothing was recorded'}{reason}"


def _why(plan: Plan) -> list[str]:
    """What the alert's author says of it."""
    annotations = plan.context.get("annotations", {})
    if not isinstance(annotations, Mapping):
        return []
    said = next((str(annotations[name]) for name in ("summary", "description") if annotations.get(name)), "")
    return [f"Why: {cut(one_line(said), TEXT_LIMIT)}"] if one_line(said) else []


def _done(run: Run) -> list[str]:
    lines = [f"- {text}" for question in run.questions.values() if (text := _answer_text(question))]
    for step in run.plan.steps:
        state = run.step(step.key)
        if state.outcome is None and not state.attempts:
            continue
        outcome = state.outcome.value if state.outcome is not None else "not ended"
        tries = f" after {len(state.attempts)} attempts" if len(state.attempts) > 1 else ""
        rung = f"rung {step.rung}: " if step.rung else ""
        # The run's own detail names the step that ended it: not said twice.
        is_said = state.outcome is Outcome.SUCCEEDED or state.detail in run.detail
        why = "" if is_said else f": {cut(one_line(state.detail), TEXT_LIMIT)}"
        lines.append(f"- {rung}{one_line(step.describes)}: {outcome}{tries}{why}")
    done = ["What was done:", *lines] if lines else ["What was done: nothing."]
    is_unseen = run.outcome is RunOutcome.SUCCEEDED and run.has_acted and run.verification is None
    return [*done, "Did it help: nobody looked, the playbook verifies nothing."] if is_unseen else done


def _answer_text(question: Question) -> str:
    if question.answer is not Answer.GIVEN:
        return ""  # a no is the run's end, and its detail says so
    return one_line(f"approved by {question.by}: {cut(question.reason, TEXT_LIMIT)}")


def _still_changed(run: Run) -> list[str]:
    """What the run left changed that has an end, and when that is."""
    if run.reason is Reason.DRIFTED or MessageKind.DRIFTED in run.lease_news:
        return []
    lines = []
    for step in run.plan.steps:
        last = next((one for one in reversed(run.step(step.key).attempts) if one.has_changed), None)
        if step.undo is None or last is None or last.outcome is not Outcome.SUCCEEDED:
            continue
        if step.key not in run.taken_back:
            lines.append(f"- {one_line(step.describes)}: {_until(run, step.undo, last)}")
    return ["Still changed:", *lines] if lines else []


def _until(run: Run, undo: Undo, attempt: Attempt) -> str:
    by_hand = f"until a person takes it back (remediator undo {run.plan.run_id} --reason TEXT)"
    changed_at = attempt.finished_at or attempt.started_at
    ends_at = attempt.after.get("ends_at")
    if isinstance(ends_at, str) and ends_at:
        return f"until {ends_at[:16].replace('T', ' ')} UTC at the latest"
    if undo.when is UndoWhen.NEVER:
        return by_hand
    at_most = _moment(changed_at + undo.at_most)
    if run.plan.is_by_hand or run.plan.latched:
        return f"until {at_most}, if it is safe then"
    return f"until {print_duration(undo.after)} after the alert is resolved, {at_most} at the latest if it is safe then"


def _what_now(run: Run) -> list[str]:
    if run.outcome is None:
        return []
    told = WHAT_NOW_FOR.get(run.reason) or WHAT_NOW.get(run.outcome, [])
    lines = [line.format(run=run.plan.run_id) for line in told]
    return [f"What to do now: {lines[0]}", *lines[1:]] if lines else []


def _instead_of(plan: Plan, about: str) -> list[str]:
    """Why it comes to those who are not named for it."""
    if about != OTHERS:
        return []
    return [f"This comes to you because it reached none of those whom it is for: {', '.join(plan.escalate_to)}."]


def _moment(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _where(plan: Plan) -> list[str]:
    labels = one_line(", ".join(f"{name}={value}" for name, value in sorted(plan.labels.items())))
    lines = [f"Alert: {cut(labels, 600)}", f"Run: {plan.run_id}", f"More: {_url(plan)}"]
    return [*lines, f"Owner: {plan.owner}"] if plan.owner else lines


def _url(plan: Plan) -> str:
    run = plan.context.get("run", {})
    return str(run.get("url", "")) if isinstance(run, Mapping) else ""
