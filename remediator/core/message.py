"""The engine's own texts: what happened to what, why, what was done, did it help, what to do now, and where to look.

Pure. Plain text for people who were woken up; label values stand in it as text and are never read again.
"""

from __future__ import annotations

from collections.abc import Mapping

from remediator.core.outcome import Outcome, RunOutcome
from remediator.core.plan import Plan
from remediator.core.run import MessageKind, Run, waiting_text
from remediator.core.units import cut
from remediator.errors import Reason

TITLE_LIMIT = 150
"""Characters: services cut longer titles, or refuse them."""

ENDED = {
    RunOutcome.SUCCEEDED: "done",
    RunOutcome.UNCHANGED: "nothing had to be changed",
    RunOutcome.FAILED: "FAILED",
    RunOutcome.UNKNOWN: "outcome UNKNOWN",
    RunOutcome.CANCELLED: "cancelled",
    RunOutcome.INEFFECTIVE: "done, but it did NOT help",
    RunOutcome.UNVERIFIED: "done, whether it helped is NOT known",
    RunOutcome.REFUSED: "refused",
    RunOutcome.EXPIRED: "expired",
    RunOutcome.STALE: "not done: the alert went silent",
    RunOutcome.OBSERVED: "observed only",
}

WHAT_NOW = {
    RunOutcome.FAILED: "Look at the target and the reason above; nothing more will be tried for this alert.",
    RunOutcome.UNKNOWN: "Look whether it happened, then settle it: remediator settle {run} happened|did-not-happen"
    " --reason TEXT. Until then its target stays reserved.",
    RunOutcome.INEFFECTIVE: "It still fires. Nothing more will be tried for this alert.",
    RunOutcome.UNVERIFIED: "Look whether it helped. Nothing more will be tried for this alert.",
    RunOutcome.REFUSED: "Nothing was touched. If it should act, mend what the reason names.",
    RunOutcome.STALE: "Nothing was done, since nobody could say that it still fires.",
    RunOutcome.CANCELLED: "Nothing more will be done for this alert.",
}


def message(kind: MessageKind, run: Run) -> tuple[str, str]:
    """Title and body of one of the engine's own texts. Raises nothing.

    Returns:
        Title, at most ``TITLE_LIMIT`` characters; body, plain text.
    """
    about = subject_text(run.plan)
    match kind:
        case MessageKind.WAITING:
            state = "still waits for its turn"
            lines = [
                f"Playbook {run.plan.playbook} wants to act and waits for: {waiting_text(run.waits_for)}.",
                "It goes on waiting while the alert fires.",
                "What to do now: free what it waits for, or act by hand and cancel it:"
                f" remediator cancel {run.plan.run_id} --reason TEXT",
            ]
        case MessageKind.STILL_FIRING:
            state = "still fires after it was done"
            lines = [
                f"Playbook {run.plan.playbook} did what it does, and the alert still fires.",
                *_done(run),
                "What to do now: look yourself; there is no second run for this alert.",
            ]
        case MessageKind.REPORT | MessageKind.ESCALATE:
            state = ENDED[run.outcome] if run.outcome is not None else "ended"
            lines = [*_why(run), *_done(run)]
            what_now = WHAT_NOW.get(run.outcome) if run.outcome is not None else None
            if kind is MessageKind.ESCALATE and what_now:
                lines.append(f"What to do now: {what_now.format(run=run.plan.run_id)}")
    title = cut(f"{run.plan.playbook}: {about}: {state}", TITLE_LIMIT)
    return title, "\n".join([*lines, "", *_where(run.plan)])


def subject_text(plan: Plan) -> str:
    """What the run is about, short: the ``per`` values, the alert's name first where it is one of them."""
    if plan.per_key and set(plan.per.values()) == {""}:
        return str(plan.labels.get("alertname", "alert"))
    names = sorted(plan.per, key=lambda name: (name != "alertname", name))
    return cut(" ".join(str(plan.per[name]) for name in names), 100)


def _why(run: Run) -> list[str]:
    lines = [f"Why: {run.detail}." if run.detail else "Why: nothing was recorded."]
    if run.reason is not Reason.NONE:
        lines[0] = f"Why: {run.detail} ({run.reason.value})." if run.detail else f"Why: {run.reason.value}."
    return lines


def _done(run: Run) -> list[str]:
    lines = []
    for step in run.plan.steps:
        state = run.step(step.key)
        if state.outcome is None and not state.attempts:
            continue
        outcome = state.outcome.value if state.outcome is not None else "not ended"
        tries = f", {len(state.attempts)} attempts" if len(state.attempts) > 1 else ""
        why = f": {state.detail}" if state.detail and state.outcome is not Outcome.SUCCEEDED else ""
        lines.append(f"- {step.describes}: {outcome}{tries}{cut(why, 300)}")
    return ["What was done:", *lines] if lines else ["What was done: nothing."]


def _where(plan: Plan) -> list[str]:
    labels = ", ".join(f"{name}={value}" for name, value in sorted(plan.labels.items()))
    run = plan.context.get("run", {})
    url = run.get("url", "") if isinstance(run, Mapping) else ""
    lines = [f"Alert: {cut(labels, 600)}", f"Run: {plan.run_id}", f"More: {url}"]
    return [*lines, f"Owner: {plan.owner}"] if plan.owner else lines
