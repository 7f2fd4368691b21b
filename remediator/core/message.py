"""The engine's own texts: what happened to what, why, what was done, did it help, what to do now, and where to look.

Pure. Plain text for people who were woken up; label values stand in it as text on one line, and are never read again.
"""

from __future__ import annotations

from collections.abc import Mapping

from remediator.core.move import waiting_text
from remediator.core.outcome import Outcome, RunOutcome
from remediator.core.plan import Plan
from remediator.core.run import MessageKind, Run
from remediator.core.units import cut
from remediator.errors import Reason

TITLE_LIMIT = 150
"""Characters: services cut longer titles, or refuse them."""

ENDED = {
    RunOutcome.SUCCEEDED: "done",
    RunOutcome.UNCHANGED: "nothing to change",
    RunOutcome.FAILED: "FAILED",
    RunOutcome.UNKNOWN: "outcome UNKNOWN",
    RunOutcome.CANCELLED: "cancelled",
    RunOutcome.INEFFECTIVE: "done, did NOT help",
    RunOutcome.UNVERIFIED: "done, NOT known whether it helped",
    RunOutcome.REFUSED: "refused",
    RunOutcome.EXPIRED: "expired",
    RunOutcome.STALE: "not done, the alert went silent",
    RunOutcome.OBSERVED: "observed only",
}

WHAT_NOW = {
    RunOutcome.FAILED: ["look at the target. Nothing more will be tried until it fires anew."],
    RunOutcome.UNKNOWN: [
        "look whether it happened, then say so with one of these:",
        "  remediator settle {run} happened --reason TEXT",
        "  remediator settle {run} did-not-happen --reason TEXT",
        "Until then no other run touches its target.",
    ],
    RunOutcome.INEFFECTIVE: ["look yourself. Nothing more will be tried until it fires anew."],
    RunOutcome.UNVERIFIED: ["look whether it helped. Nothing more will be tried until it fires anew."],
    RunOutcome.REFUSED: [
        "act yourself, or mend what the result names. Nothing more will be tried until it fires anew."
    ],
    RunOutcome.STALE: ["look whether it still fires, and why Alertmanager sent no word of it."],
    RunOutcome.CANCELLED: ["act yourself if it still fires. Nothing more will be done until it fires anew."],
}
"""Lines after "What to do now: "; the first goes on in that line."""


def message(kind: MessageKind, run: Run, about: str = "") -> tuple[str, str]:
    """Title and body of one of the engine's own texts. Raises nothing.

    Returns:
        Title, one line, at most ``TITLE_LIMIT`` characters, how it ended first: pagers cut the rest. Body, plain text.
    """
    state, lines = _told(kind, run, about)
    title = cut(one_line(f"{state}: {run.plan.playbook}: {subject_text(run.plan)}"), TITLE_LIMIT)
    return title, "\n".join([*lines, "", *_where(run.plan)])


def _told(kind: MessageKind, run: Run, about: str) -> tuple[str, list[str]]:
    match kind:
        case MessageKind.WAITING:
            return "still waiting to act", [
                f"Playbook {run.plan.playbook} wants to act. It waits for: {waiting_text(run.waits_for)}.",
                "It goes on waiting while the alert fires.",
                "What to do now: if it cannot wait, act yourself, then cancel it:",
                f"  remediator cancel {run.plan.run_id} --reason TEXT",
            ]
        case MessageKind.APPROVAL:
            return "may it act?", [
                f"Playbook {run.plan.playbook} asks whether it may act ({about}).",
                "Say yes or no:",
                f"  remediator approve {run.plan.run_id} --reason TEXT",
                f"  remediator deny {run.plan.run_id} --reason TEXT",
            ]
        case MessageKind.BREAKER:
            return f"breaker {about} tripped", [
                f"Nothing acts until a person resets it: remediator breaker reset {about} --reason TEXT"
            ]
        case MessageKind.LEASE_KEPT | MessageKind.UNDO_FAILED | MessageKind.DRIFTED:
            return kind.value.replace("_", " "), [one_line(run.lease_news.get(kind, ""))]
        case MessageKind.STILL_FIRING:
            return "still fires after it was done", [
                f"Playbook {run.plan.playbook} did all that it does, and the alert still fires.",
                *_done(run),
                "What to do now: look yourself. There is no second run until it fires anew.",
            ]
        case MessageKind.REPORT | MessageKind.ESCALATE:
            what_now = WHAT_NOW.get(run.outcome, []) if run.outcome is not None else []
            lines = [f"{line.format(run=run.plan.run_id)}" for line in what_now]
            if lines:
                lines[0] = f"What to do now: {lines[0]}"
            state = ENDED[run.outcome] if run.outcome is not None else "ended"
            return state, [_result(run), *_done(run), *(lines if kind is MessageKind.ESCALATE else [])]


def one_line(text: str) -> str:
    """The text without line breaks and the like: a label must not look like a line of ours."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def subject_text(plan: Plan) -> str:
    """What the run is about, short: the ``per`` values, the alert's name first where it is one of them."""
    if plan.per_key and set(plan.per.values()) == {""}:
        return str(plan.labels.get("alertname", "alert"))
    names = sorted(plan.per, key=lambda name: (name != "alertname", name))
    return cut(" ".join(str(plan.per[name]) for name in names), 100)


def _result(run: Run) -> str:
    reason = f" ({run.reason.value})" if run.reason is not Reason.NONE else ""
    return f"Result: {one_line(run.detail) or 'nothing was recorded'}{reason}"


def _done(run: Run) -> list[str]:
    lines = []
    for step in run.plan.steps:
        state = run.step(step.key)
        if state.outcome is None and not state.attempts:
            continue
        outcome = state.outcome.value if state.outcome is not None else "not ended"
        tries = f" after {len(state.attempts)} attempts" if len(state.attempts) > 1 else ""
        # The run's own detail names the step that ended it: not said twice.
        is_said = state.outcome is Outcome.SUCCEEDED or state.detail in run.detail
        why = "" if is_said else f": {cut(one_line(state.detail), 300)}"
        lines.append(f"- {one_line(step.describes)}: {outcome}{tries}{why}")
    return ["What was done:", *lines] if lines else ["What was done: nothing."]


def _where(plan: Plan) -> list[str]:
    labels = one_line(", ".join(f"{name}={value}" for name, value in sorted(plan.labels.items())))
    run = plan.context.get("run", {})
    url = run.get("url", "") if isinstance(run, Mapping) else ""
    lines = [f"Alert: {cut(labels, 600)}", f"Run: {plan.run_id}", f"More: {url}"]
    return [*lines, f"Owner: {plan.owner}"] if plan.owner else lines
