"""What happened, as one timeline: the events of an episode and of its runs → entries, to be read from top to bottom.

Pure. Events of the same thing become one entry (an attempt's start and its end); what is not known here is shown by its
type. Nothing is judged anew: an entry says what was recorded, with the reasons that were recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from remediator.core.event import Event, EventType, RecordedEvent
from remediator.core.message import ENDED, ENDED_FOR, one_line
from remediator.core.move import waiting_text
from remediator.core.outcome import Outcome, RunOutcome
from remediator.core.run import MessageKind, message_of
from remediator.core.units import print_duration
from remediator.errors import Reason

Data = Mapping[str, Any]


class Tone(StrEnum):
    """How an entry is to be taken: for colours."""

    PLAIN = "plain"
    GOOD = "good"
    WAITS = "waits"
    BAD = "bad"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One thing that happened.

    Attributes:
        at: when; of an attempt, when it began.
        text: one line.
        more: lines that belong below it: each rule that spoke, each condition that was looked at.
        playbook: "" where it is about the alert alone.
        run_id: "" where no run did it.
        actor: "engine", or the person's name.
        seqs: of the events that it was made of; () for what is in no event.
    """

    at: datetime
    text: str
    more: tuple[str, ...] = ()
    tone: Tone = Tone.PLAIN
    playbook: str = ""
    run_id: str = ""
    actor: str = "engine"
    seqs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Said:
    """What an event says, before it has its place."""

    text: str
    more: tuple[str, ...] = ()
    tone: Tone = Tone.PLAIN


END_OF_EPISODE = {
    "resolved": "the alert was resolved",
    "absent": "no Alertmanager has the alert any more: taken as resolved",
    "expired": "nothing was heard of the alert for too long: it expired, which is not resolved",
}
"""How an episode ended, by its reason."""

MESSAGES = {
    MessageKind.WAITING: "that it waits",
    MessageKind.APPROVAL: "that it asks for approval",
    MessageKind.BREAKER: "that a breaker tripped",
    MessageKind.REPORT: "how it ended",
    MessageKind.ESCALATE: "that it ended without a fix",
    MessageKind.STILL_FIRING: "that it still fires",
    MessageKind.LEASE_KEPT: "that a change is kept",
    MessageKind.UNDO_FAILED: "that a change could not be taken back",
    MessageKind.DRIFTED: "that others changed what it had changed",
}
"""What people were told, by the engine's own texts."""


def timeline(recorded: Sequence[RecordedEvent]) -> tuple[Entry, ...]:
    """The entries of these events, by time. Raises nothing."""
    told_with = _told_with(recorded)
    told = {one.seq for others in told_with.values() for one in others}
    entries = []
    for one in recorded:
        if one.seq in told:
            continue
        event, others = one.event, told_with.get(one.seq, [])
        end = next((other.event for other in others if other.event.type in _ENDS), None)
        match event.type:
            case EventType.ATTEMPT_STARTED:
                said = _attempted(event, end)
            case EventType.UNDO_STARTED:
                said = _undone(event, end)
            case _:
                said = _SAY.get(event.type, _as_it_is)(event)
        entries.append(
            Entry(
                at=event.at,
                text=said.text,
                more=tuple(line for line in said.more if line),
                tone=said.tone,
                playbook=event.playbook,
                run_id=event.run_id,
                actor=event.actor,
                seqs=tuple(sorted([one.seq, *(other.seq for other in others)])),
            )
        )
    return tuple(sorted(entries, key=lambda entry: entry.at))


_ENDS = (EventType.ATTEMPT_FINISHED, EventType.UNDO_FINISHED)


def _told_with(recorded: Sequence[RecordedEvent]) -> dict[int, list[RecordedEvent]]:
    """Seq of an event → those that are told with it: its end, the lease that it closed, the look that it concludes."""
    told_with: dict[int, list[RecordedEvent]] = {}
    begun: dict[tuple[Any, ...], int] = {}
    looked: dict[tuple[Any, ...], RecordedEvent] = {}
    for one in recorded:
        event = one.event
        attempt = (event.run_id, event.data.get("step"), event.data.get("attempt"))
        lease = ("lease", event.data.get("lease_id"))
        match event.type:
            case EventType.ATTEMPT_STARTED:
                begun[attempt] = one.seq
            case EventType.ATTEMPT_FINISHED if attempt in begun:
                told_with.setdefault(begun[attempt], []).append(one)
            case EventType.UNDO_STARTED:
                begun[lease] = one.seq
            case EventType.UNDO_FINISHED if lease in begun:
                told_with.setdefault(begun[lease], []).append(one)
            case EventType.LEASE_CLOSED if lease in begun and event.data.get("how") == "undone":
                told_with.setdefault(begun[lease], []).append(one)
            case EventType.VERIFICATION_LOOKED:
                looked[event.run_id, event.n] = one
            case EventType.VERIFICATION_FINISHED if (event.run_id, event.n - 1) in looked:
                told_with[one.seq] = [looked[event.run_id, event.n - 1]]
            case _:
                pass
    return told_with


# -- the alert ---------------------------------------------------------------------------------------------------------


def _episode_opened(_: Event) -> _Said:
    return _Said("the alert is heard of: it fires")


def _episode_ended(event: Event) -> _Said:
    data: Data = event.data
    reason = _text(data, "reason")
    return _Said(END_OF_EPISODE.get(reason, f"the alert ended: {reason}"))


def _unmatched(_: Event) -> _Said:
    return _Said("no playbook matched it", tone=Tone.BAD)


def _ignored(event: Event) -> _Said:
    data: Data = event.data
    case = f" (case {_text(data, 'case')})" if data.get("case") else ""
    return _Said(f"{event.playbook}{case} leaves such alerts alone: {_text(data, 'detail')}")


def _missed(event: Event) -> _Said:
    data: Data = event.data
    return _Said(
        "an Alertmanager listed it for our receiver, and it was never delivered here",
        (_text(data, "detail"),),
        Tone.BAD,
    )


def _rejected(event: Event) -> _Said:
    data: Data = event.data
    return _Said(f"it came and could not be handled: {_text(data, 'detail')}", tone=Tone.BAD)


def _subject_opened(event: Event) -> _Said:
    data: Data = event.data
    case = f", case {_text(data, 'case')}" if data.get("case") else ""
    by = "a person runs it by hand" if data.get("by_hand") else "it matches"
    return _Said(f"{by}: playbook {event.playbook}{case}, about {_pairs(data.get('per'))}")


def _adopted(event: Event) -> _Said:
    return _Said(
        f"playbook {event.playbook} matches and leaves it alone: it fired before the playbook could act",
        tone=Tone.WAITS,
    )


def _subject_closed(event: Event) -> _Said:
    data: Data = event.data
    reason = _text(data, "reason")
    if reason == "done":  # the end of a run by hand, whether an alert fires or not
        return _Said(f"the run by hand of playbook {event.playbook} is over")
    return _Said(f"nothing of it fires any more for {event.playbook} ({reason})")


# -- what a run decided ------------------------------------------------------------------------------------------------


def _planned(event: Event) -> _Said:
    data: Data = event.data
    plan = data.get("plan")
    if not isinstance(plan, Mapping):
        return _Said("planned")
    steps = [step for step in plan.get("steps", ()) if step.get("runs") != "no"]
    hold = _text(plan, "hold")
    wait = f", after holding for {hold}" if hold not in ("", "0s") else ""
    mode = ", mode observe: it only says what it would do" if plan.get("mode") == "observe" else ""
    lines = [f"{_rung(step)}{_text(step, 'describes')}" for step in steps]
    return _Said(f"planned{wait}{mode}:" if lines else f"planned to do nothing{wait}{mode}", tuple(lines))


def _plan_refused(event: Event) -> _Said:
    data: Data = event.data
    return _Said("refused: no plan could be made", (_text(data, "detail"),), Tone.BAD)


def _turn_waited(event: Event) -> _Said:
    data: Data = event.data
    return _Said(f"waits for {_waits(data)}", tone=Tone.WAITS)


def _verdict(event: Event) -> _Said:
    data: Data = event.data
    reasons = [_reason(answer) for answer in data.get("reasons", ()) if isinstance(answer, Mapping)]
    rung = f" rung {data['rung']}" if data.get("rung") else ""
    trips = [f"it tripped breaker {name}" for name in data.get("tripped", ())]
    match data.get("word"):
        case "allow":
            asks = ", once people say yes" if data.get("asks") else ""
            return _Said(f"the guard allows{rung or ' it'}{asks}")
        case "wait":
            return _Said(f"waits for {_waits(data)}", (*reasons, *trips), Tone.WAITS)
        case "refuse":
            return _Said(f"the guard refuses{rung or ' it'}", tuple(reasons), Tone.BAD)
    return _Said(f"verdict: {_text(data, 'word')}", tuple(reasons))


def _reason(answer: Data) -> str:
    until = f", until {answer['lifts_at'][:19].replace('T', ' ')}" if answer.get("lifts_at") else ""
    return f"{_text(answer, 'word')} {_text(answer, 'rule')}: {_text(answer, 'detail')}{until}"


def _asked(event: Event) -> _Said:
    data: Data = event.data
    ms = data.get("expires_ms")
    within = f", within {print_duration(timedelta(milliseconds=ms))}" if isinstance(ms, int) else ""
    return _Said(f"asks {_list(data.get('ask'))} whether it may do {_question(data)}{within}", tone=Tone.WAITS)


def _approved(event: Event) -> _Said:
    data: Data = event.data
    return _Said(f"{event.actor} said yes to {_question(data)}: {_text(data, 'reason')}", tone=Tone.GOOD)


def _denied(event: Event) -> _Said:
    data: Data = event.data
    return _Said(f"{event.actor} said no to {_question(data)}: {_text(data, 'reason')}", tone=Tone.BAD)


def _question(data: Data) -> str:
    kind, _, name = _text(data, "key").partition(".")
    if kind != "rung":
        return f"step {name}"
    return "it" if name in ("", "0") else f"rung {name}"


# -- what it did -------------------------------------------------------------------------------------------------------


def _attempted(event: Event, end: Event | None) -> _Said:
    number = event.data.get("attempt")
    what = _what(event) + (f", attempt {number}" if isinstance(number, int) and number > 1 else "")
    if end is None:
        return _Said(f"{what}: began, and has no end", tone=Tone.WAITS)
    return _ended_attempt(what, end)


def _attempt_finished(event: Event) -> _Said:
    return _ended_attempt(_what(event), event)


def _ended_attempt(what: str, end: Event) -> _Said:
    data: Data = end.data
    tone = {Outcome.SUCCEEDED: Tone.GOOD, Outcome.FAILED: Tone.BAD, Outcome.UNKNOWN: Tone.BAD}
    ms = data.get("duration_ms")
    took = f", took {_took(ms)}" if isinstance(ms, int) and ms >= 1000 else ""
    again = f"tried again at {data['retry_at'][11:19]}" if data.get("retry_at") else ""
    return _Said(
        f"{what}: {end.outcome}{took}",
        (_text(data, "detail"), again),
        next((found for outcome, found in tone.items() if outcome.value == end.outcome), Tone.PLAIN),
    )


def _took(ms: int) -> str:
    return print_duration(timedelta(seconds=ms // 1000))


def _what(event: Event) -> str:
    data: Data = event.data
    key = _text(data, "step")
    params = data.get("params")
    if key.startswith("message."):
        to = _list(params.get("to")) if isinstance(params, Mapping) else ""
        return " ".join(filter(None, ("tells", to, _told(key))))
    return _text(data, "describes") or " ".join(filter(None, (_text(data, "action"), event.target)))


def _told(key: str) -> str:
    try:
        kind, about = message_of(key)
    except ValueError:  # a kind that another version has
        return key.partition(".")[2]
    return MESSAGES[kind] + (f" ({about})" if about and kind is MessageKind.BREAKER else "")


def _skipped(event: Event) -> _Said:
    data: Data = event.data
    key = _text(data, "step")
    what = f"tells nobody {_told(key)}" if key.startswith("message.") else f"step {key.partition('.')[2]} is not done"
    outcome = "" if event.outcome in ("", Outcome.SKIPPED.value) else f" ({event.outcome})"
    tone = Tone.BAD if event.outcome == Outcome.FAILED.value else Tone.PLAIN
    return _Said(f"{what}{outcome}: {_text(data, 'detail')}", tone=tone)


# -- did it help -------------------------------------------------------------------------------------------------------


def _looked(event: Event) -> _Said:
    data: Data = event.data
    checks = [check for check in data.get("checks", ()) if isinstance(check, Mapping)]
    return _Said(f"looked {_at_what(data)}", tuple(_text(check, "detail") for check in checks))


def _verified(event: Event) -> _Said:
    data: Data = event.data
    detail = (_text(data, "detail"),)
    step = _text(data, "step").partition(".")[2]
    match event.outcome:
        case Outcome.SUCCEEDED.value:
            return _Said(f"step {step} did what it should" if step else "it helped", detail, Tone.GOOD)
        case Outcome.FAILED.value:
            return _Said(f"step {step} did NOT do what it should" if step else "it did NOT help", detail, Tone.BAD)
    return _Said(f"nobody knows whether {f'step {step} did what it should' if step else 'it helped'}", detail, Tone.BAD)


def _at_what(data: Data) -> str:
    step = _text(data, "step").partition(".")[2]
    return f"whether step {step} did what it should" if step else "whether it helps"


def _climbed(event: Event) -> _Said:
    data: Data = event.data
    return _Said(f"rung {_text(data, 'from')} did not help: goes on with rung {_text(data, 'to')}")


# -- what it left changed ----------------------------------------------------------------------------------------------


def _lease_opened(event: Event) -> _Said:
    data: Data = event.data
    ends = "until a person takes it back"
    if data.get("when") != "never":
        ends = f"until it is {_text(data, 'when')}, at most {_text(data, 'at_most')}"
    if by_itself := _text(data, "ends_at"):
        ends += f"; it ends by itself at {by_itself[:19].replace('T', ' ')} UTC"
    return _Said(f"changed for a time: {_lent(event)}, {ends}")


def _lease_released(event: Event) -> _Said:
    return _Said(f"{_lent(event)}: its time has come, and it goes with the younger change above it")


def _lease_kept(event: Event) -> _Said:
    return _Said(f"the change is kept: {_detail_of(event)}", tone=Tone.BAD)


def _lease_closed(event: Event) -> _Said:
    data: Data = event.data
    how = _text(data, "how")
    words = {
        "undone": "taken back",
        "drifted": "others changed it, nothing was restored",
        "reverted": "a reboot or reset took the change away",
    }
    tone = Tone.GOOD if how == "undone" else Tone.BAD
    return _Said(f"{_lent(event)}: {words.get(how, how)}", (_without_target(event),), tone)


def _undo_requested(event: Event) -> _Said:
    data: Data = event.data
    return _Said(f"{event.actor} asked to take back what it changed on {event.target}: {_text(data, 'reason')}")


def _undone(event: Event, end: Event | None) -> _Said:
    if end is None:
        return _Said(f"takes back {_lent(event)}: began, and has no end", tone=Tone.WAITS)
    return _undo_finished(end)


def _undo_finished(event: Event) -> _Said:
    tone = Tone.GOOD if event.outcome in (Outcome.SUCCEEDED.value, Outcome.UNCHANGED.value) else Tone.BAD
    return _Said(f"takes back {_lent(event)}: {event.outcome}", (_without_target(event),), tone)


def _lent(event: Event) -> str:
    data: Data = event.data
    return " on ".join(filter(None, (_text(data, "action"), event.target)))


def _detail_of(event: Event) -> str:
    data: Data = event.data
    return _text(data, "detail") or event.target


def _without_target(event: Event) -> str:
    data: Data = event.data
    return _text(data, "detail").removeprefix(f"{event.target}: ")


# -- people, and the end -----------------------------------------------------------------------------------------------


def _note(event: Event) -> _Said:
    data: Data = event.data
    return _Said(f"{event.actor} notes: {_text(data, 'text')}")


def _cancel(event: Event) -> _Said:
    data: Data = event.data
    return _Said(f"{event.actor} asked for its end: {_text(data, 'reason')}")


def _settled(event: Event) -> _Said:
    data: Data = event.data
    return _Said(_text(data, "detail") or f"{event.actor} settled it: {event.outcome}")


def _breaker(event: Event) -> _Said:
    data: Data = event.data
    word = "tripped" if event.type is EventType.BREAKER_TRIPPED else f"was reset by {event.actor}"
    said = _text(data, "detail") or _text(data, "reason")
    return _Said(f"breaker {_text(data, 'breaker')} {word}: {said}")


def _finished(event: Event) -> _Said:
    data: Data = event.data
    reason = _text(data, "reason")
    good = (RunOutcome.SUCCEEDED.value, RunOutcome.UNCHANGED.value)
    bad = [outcome.value for outcome in RunOutcome if outcome.value not in (*good, "cancelled", "observed")]
    tone = Tone.GOOD if event.outcome in good else Tone.BAD if event.outcome in bad else Tone.PLAIN
    return _Said(f"the run ended: {ended_text(event.outcome, reason)}", (_text(data, "detail"),), tone)


def ended_text(outcome: str, reason: str) -> str:
    """How a run ended, in the words of the messages; what another version wrote is shown as it is."""
    for_reason = {known.value: text for known, text in ENDED_FOR.items()}
    words = {known.value: text for known, text in ENDED.items()}
    return for_reason.get(reason) or words.get(outcome, outcome)


def _as_it_is(event: Event) -> _Said:
    data: Data = event.data
    said = next((text for name in ("detail", "reason") if (text := _text(data, name))), "")
    return _Said(": ".join(filter(None, (event.type.value.replace("_", " "), event.outcome, said))))


# -- small -------------------------------------------------------------------------------------------------------------


def _waits(data: Data) -> str:
    return waiting_text([str(what) for what in data.get("waits_for", ())]) or "its turn"


def _rung(step: Data) -> str:
    return f"rung {step['rung']}: " if step.get("rung") else ""


def _text(data: Data, name: str) -> str:
    """A value on one line, "" for none and for ``none``."""
    value = data.get(name, "")
    return "" if value in (None, Reason.NONE.value) else one_line(str(value))


def _pairs(value: object) -> str:
    if not isinstance(value, Mapping):
        return ""
    return one_line(" ".join(f"{name}={text}" for name, text in value.items()))


def _list(value: object) -> str:
    return one_line(", ".join(str(one) for one in value)) if isinstance(value, list | tuple) else ""


_SAY: Mapping[EventType, Callable[[Event], _Said]] = {
    EventType.EPISODE_OPENED: _episode_opened,
    EventType.EPISODE_ENDED: _episode_ended,
    EventType.ALERT_UNMATCHED: _unmatched,
    EventType.ALERT_IGNORED: _ignored,
    EventType.ALERT_MISSED: _missed,
    EventType.ALERT_REJECTED: _rejected,
    EventType.SUBJECT_OPENED: _subject_opened,
    EventType.SUBJECT_ADOPTED: _adopted,
    EventType.SUBJECT_CLOSED: _subject_closed,
    EventType.PLAN_MADE: _planned,
    EventType.PLAN_REFUSED: _plan_refused,
    EventType.TURN_WAITED: _turn_waited,
    EventType.VERDICT_GIVEN: _verdict,
    EventType.STEP_SKIPPED: _skipped,
    EventType.ATTEMPT_FINISHED: _attempt_finished,
    EventType.VERIFICATION_LOOKED: _looked,
    EventType.VERIFICATION_FINISHED: _verified,
    EventType.RUNG_CLIMBED: _climbed,
    EventType.APPROVAL_ASKED: _asked,
    EventType.APPROVAL_GIVEN: _approved,
    EventType.APPROVAL_DENIED: _denied,
    EventType.BREAKER_TRIPPED: _breaker,
    EventType.BREAKER_RESET: _breaker,
    EventType.LEASE_OPENED: _lease_opened,
    EventType.LEASE_RELEASED: _lease_released,
    EventType.LEASE_KEPT: _lease_kept,
    EventType.LEASE_CLOSED: _lease_closed,
    EventType.UNDO_REQUESTED: _undo_requested,
    EventType.UNDO_FINISHED: _undo_finished,
    EventType.NOTE_ADDED: _note,
    EventType.CANCEL_REQUESTED: _cancel,
    EventType.RUN_SETTLED: _settled,
    EventType.RUN_FINISHED: _finished,
}
