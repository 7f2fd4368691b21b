"""What an event of the audit log says, on one line of a list.

Takes → gives: an event → ``docker.restart docker:gpu-07/trainer-0: succeeded``, not yet made printable.

Must never: fail on data that another version wrote: what is not there is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from remediator.cli.terminal import value_text
from remediator.core.event import Event, EventType
from remediator.core.move import waiting_text

RUN_SHOWN = 8
"""Characters of a run's id; ``remediator audit show`` takes them."""

_REASONS_SHOWN = 2
"""Of a verdict; ``show`` has them all."""

Data = Mapping[str, Any]


def about(event: Event) -> str:
    """What happened, and behind it the playbook where that is not told by the run, who did it, and the run."""
    # A run's first and last event say of which playbook it is; with the run's id between them the others need not.
    is_told_by_run = event.run_id and event.type not in (
        EventType.PLAN_MADE,
        EventType.PLAN_REFUSED,
        EventType.RUN_FINISHED,
    )
    playbook = "" if is_told_by_run else event.playbook
    by = f"by {event.actor}" if event.actor != "engine" else ""
    return "  ".join(filter(None, (_what(event), playbook, by, event.run_id[:RUN_SHOWN])))


def _what(event: Event) -> str:
    data: Data = event.data
    match event.type:
        case EventType.ATTEMPT_STARTED | EventType.ATTEMPT_FINISHED:
            return _with(_act(event, data), _ended(event.outcome, data))
        case EventType.STEP_SKIPPED:
            return _with(_step(data), _known(data.get("reason")) or _text(data, "detail"))
        case EventType.VERDICT_GIVEN:
            word = _text(data, "word") + (", people are asked" if data.get("asks") else "")
            return _with(word, ", ".join(_reasons(data.get("reasons"))))
        case EventType.TURN_WAITED:
            return _waits(data.get("waits_for"))
        case EventType.PLAN_REFUSED | EventType.RUN_FINISHED:
            return _ended(event.outcome, data)
        case EventType.PLAN_MADE:
            plan = data.get("plan")
            return _text(plan, "per") if isinstance(plan, Mapping) else ""
        case EventType.DELIVERY_RECEIVED:
            counts = {"firing": "n_firing", "resolved": "n_resolved", "bad": "n_bad", "cut off": "n_truncated"}
            said = ", ".join(f"{data[key]} {word}" for word, key in counts.items() if data.get(key))
            return f"{said or 'no alert'} from {_text(data, 'source')}"
        case EventType.DELIVERY_REJECTED:
            return _with(f"from {_text(data, 'source')}", _text(data, "detail"))
        case EventType.ALERT_REJECTED:
            return _text(data, "detail")
        case EventType.SUBJECT_OPENED | EventType.SUBJECT_ADOPTED | EventType.SUBJECT_CLOSED:
            return _text(data, "per") or _text(data, "reason")
        case EventType.PLAYBOOKS_REJECTED:
            return _count(data.get("n_problems"), "problem")
        case EventType.PLAYBOOKS_LOADED:
            playbooks = data.get("playbooks")
            adopted = f"{data['n_adopted']} adopted" if data.get("n_adopted") else ""
            loaded = _count(len(playbooks), "playbook") if isinstance(playbooks, Mapping) else ""
            return ", ".join(filter(None, (loaded, _text(data, "mode"), adopted)))
        case (
            EventType.ALERT_UNMATCHED
            | EventType.ALERT_IGNORED
            | EventType.ALERT_MISSED
            | EventType.EPISODE_OPENED
            | EventType.EPISODE_ENDED
        ):
            labels = data.get("labels")
            name = _text(labels, "alertname") if isinstance(labels, Mapping) else ""
            return _with(name or event.fingerprint, _text(data, "reason"))
        case EventType.ENGINE_STARTED:
            return _text(data, "version")
        case EventType.VERIFICATION_LOOKED:
            return _with(_step(data), _seen(data.get("checks")))
        case EventType.VERIFICATION_FINISHED:
            return _with(_with(_step(data), event.outcome), _text(data, "detail"))
        case EventType.RUNG_CLIMBED:
            return _with(f"{_text(data, 'from')} → {_text(data, 'to')}", _text(data, "detail"))
        case EventType.APPROVAL_ASKED:
            to = _text(data, "ask")
            return " → ".join(filter(None, (_asked(data), to)))
        case EventType.APPROVAL_GIVEN | EventType.APPROVAL_DENIED:
            return _with(_asked(data), _text(data, "reason"))
        case EventType.BREAKER_TRIPPED | EventType.BREAKER_RESET:
            return _with(_text(data, "breaker"), _text(data, "detail") or _text(data, "reason"))
        case EventType.LEASE_OPENED:
            return _with(_lent(event, data), _lasts(data))
        case EventType.LEASE_RELEASED | EventType.LEASE_KEPT | EventType.LEASE_CLOSED:
            return _with(_with(_lent(event, data), _text(data, "how")), _without(_text(data, "detail"), event.target))
        case EventType.UNDO_REQUESTED | EventType.UNDO_STARTED | EventType.UNDO_FINISHED:
            said = _text(data, "detail") or _text(data, "reason")
            return _with(_with(_lent(event, data), event.outcome), _without(said, event.target))
        case EventType.NOTE_ADDED:
            return _text(data, "text")
        case _:  # of people
            return _with(event.outcome, _text(data, "reason"))


def _act(event: Event, data: Data) -> str:
    """The action and its target; of a message to whom, or which one it was."""
    action, params = _text(data, "action"), data.get("params")
    if action == "notify.send" or _text(data, "step").startswith("message."):
        to = _text(params, "to") if isinstance(params, Mapping) else ""
        return f"message → {to}" if to else f"message {_step(data)}"
    return " ".join(filter(None, (action, event.target)))


def _step(data: Data) -> str:
    return _text(data, "step").partition(".")[2]


def _seen(checks: object) -> str:
    """What a look saw of each check that it looked at."""
    given = checks if isinstance(checks, list | tuple) else ()
    return "; ".join(text for check in given if isinstance(check, Mapping) and (text := _text(check, "detail")))


def _asked(data: Data) -> str:
    """What people are asked for: a rung, one step, or the whole."""
    kind, _, name = _text(data, "key").partition(".")
    return ("" if name == "0" else f"rung {name}") if kind == "rung" else name


def _lent(event: Event, data: Data) -> str:
    """What was changed for a time: the action and its target."""
    return " ".join(filter(None, (_text(data, "action"), event.target)))


def _lasts(data: Data) -> str:
    """When it ends."""
    if _text(data, "when") == "never":
        return "until it is taken back by hand"
    return f"at most {_text(data, 'at_most')}" if data.get("at_most") else ""


def _without(text: str, target: str) -> str:
    """A detail that begins with the target, which is named already."""
    return text.removeprefix(f"{target}: ") if target else text


def _ended(outcome: str, data: Data) -> str:
    reason = _known(data.get("reason"))
    return f"{outcome} ({reason})" if outcome and reason else outcome


def _reasons(answers: object) -> Iterable[str]:
    """The first reasons of a verdict, each once."""
    given = answers if isinstance(answers, list | tuple) else ()
    found = (_known(answer.get("reason")) for answer in given if isinstance(answer, Mapping))
    return [reason for reason in dict.fromkeys(found) if reason][:_REASONS_SHOWN]


def _waits(waits_for: object) -> str:
    given = [str(what) for what in waits_for] if isinstance(waits_for, list | tuple) else []
    return f"for {waiting_text(given)}" if given else ""


def _known(reason: object) -> str:
    return "" if reason in (None, "", "none") else str(reason)


def _text(data: Data, name: str) -> str:
    return value_text(data.get(name))


def _count(number: object, noun: str) -> str:
    return "" if number is None else f"{number} {noun}{'' if number == 1 else 's'}"


def _with(head: str, more: str) -> str:
    return ": ".join(filter(None, (head, more)))
