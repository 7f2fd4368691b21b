"""``alertmanager.silence``: keep an alert from people while the engine is at work on it, for a bounded time.

The comment names the run, so that the silence is found again: after a POST without an answer, and by people. A silence
ends by itself whatever becomes of the engine; that is why it may be made at all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated, ClassVar, Final, TypeVar

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

from remediator.clients.ports import AlertmanagerReader, AlertmanagerWriter, Clients, ListedSilence, LookingClients
from remediator.core.action import ALL_LABELS, ActionParams, Change, JsonValue, Standing, State, Targeting, UndoWhen
from remediator.core.event import utc_text, utc_time
from remediator.core.matcher import Matcher, MatchOp
from remediator.core.outcome import Effect
from remediator.core.units import cut, parse_duration, print_duration
from remediator.errors import (
    AccessDeniedError,
    ActionError,
    ConflictError,
    InvalidTargetError,
    TargetNotFoundError,
    TransientActionError,
    UnknownEffectError,
)

CREATED_BY: Final = "remediator"

LONGEST: Final = timedelta(hours=12)
"""Longer than any repair takes, and short enough that a fault which nobody mended is heard of within a shift."""

SHORTEST: Final = timedelta(minutes=1)

CALL_S: Final = 10.0
"""For one call to one Alertmanager, which answers from memory."""

_ALIVE: Final = ("active", "pending")
_ENDED: Final = "ended"
"""Alertmanager calls it expired, as one whose time was over; but that one changed last when it was made."""

_SHOWN: Final = 200
_SAME_END: Final = timedelta(seconds=1)
"""Versions write the same moment with more or fewer digits."""


def _read_duration(value: object) -> timedelta:
    if isinstance(value, timedelta):
        duration = value
    elif isinstance(value, str):
        duration = parse_duration(value)
    else:
        raise ValueError("write a number and a unit, as in 2h")
    if not SHORTEST <= duration <= LONGEST:
        raise ValueError(f"write {print_duration(SHORTEST)} to {print_duration(LONGEST)}; no silence is for ever")
    return duration


Text = Annotated[str, Field(min_length=1)]
Reader = TypeVar("Reader", bound=AlertmanagerReader)
Done = TypeVar("Done")


class AlertmanagerSilenceParams(ActionParams):
    """Params of ``alertmanager.silence``."""

    duration: Annotated[
        timedelta,
        BeforeValidator(_read_duration),
        PlainSerializer(print_duration, return_type=str),
        WithJsonSchema({"type": "string", "examples": ["2h"]}),
    ] = Field(description="How long, at most: 1m to 12h. It ends sooner when it is undone.", examples=["2h"])
    labels: Mapping[Text, Text] = Field(
        min_length=1,
        description="Which alerts: all that have these label values. Left out: every label of the run's own alert.",
        examples=[{"alertname": "GPUHot", "hostname": "{{ labels.hostname }}"}],
    )
    run: Text = Field(description="What the silence's comment says of who made it. Left out: playbook and run.")


class AlertmanagerSilence:
    """Silences alerts in Alertmanager, for a bounded time. Needs `alertmanager.urls` in the settings.

    Of an HA pair one that answers is told; the other hears of it from that one. A silence that this run made already is
    found by its comment and not made twice. Undone by default when the alert is resolved, which the engine then learns
    from Alertmanager's API alone: a muted `resolved` is not delivered.
    """

    name: ClassVar[str] = "alertmanager.silence"
    params_model: ClassVar[type[ActionParams]] = AlertmanagerSilenceParams
    is_disruptive: ClassVar[bool] = False
    is_idempotent: ClassVar[bool] = True
    is_message: ClassVar[bool] = False
    late_params: ClassVar[frozenset[str]] = frozenset()
    param_defaults: ClassVar[Mapping[str, str]] = {
        "labels": ALL_LABELS,
        "run": "playbook {{ playbook }}, {{ run.url }}",
    }
    default_timeout: ClassVar[timedelta] = timedelta(minutes=1)
    default_undo: ClassVar[UndoWhen | None] = UndoWhen.RESOLVED

    def describe(self, params: AlertmanagerSilenceParams) -> str:
        which = (str(Matcher(label=name, op=MatchOp.EQUAL, value=value)) for name, value in params.labels.items())
        return f"silence {cut(', '.join(sorted(which)), _SHOWN)} for {print_duration(params.duration)}"

    def min_timeout(self, params: AlertmanagerSilenceParams) -> timedelta:
        return timedelta(seconds=3 * CALL_S)

    def targets(self, params: AlertmanagerSilenceParams, clients: LookingClients) -> Targeting:
        """None: an alert is no object of the world. Raises InvalidTargetError: there is no Alertmanager to ask."""
        _needs(clients.alertmanagers)
        return Targeting()

    def observe(self, params: AlertmanagerSilenceParams, clients: LookingClients) -> State:
        found, unasked = _ours(params, clients)
        return _state(_newest(found)) | ({"unasked": unasked} if unasked else {})

    def would_change(self, params: AlertmanagerSilenceParams, now: State) -> bool:
        return now["status"] not in (*_ALIVE, _ENDED)

    def effect(self, params: AlertmanagerSilenceParams, before: State, now: State) -> Effect:
        if now["id"] and now["id"] != before["id"]:
            return Effect.HAPPENED
        # One that did not answer may have it, and not have told the others.
        return Effect.UNCLEAR if "unasked" in now else Effect.AS_BEFORE

    def apply(self, params: AlertmanagerSilenceParams, clients: Clients, before: State, timeout: timedelta) -> Change:
        if before["status"] in _ALIVE:
            return Change(changed=False, before=before, after=before, detail="this run has silenced it already")
        if before["status"] == _ENDED:
            detail = "somebody ended the silence that this run had made: it makes no other"
            return Change(changed=False, before=before, after=before, detail=detail)
        until = time.monotonic() + timeout.total_seconds()
        silence = _at_one(
            clients,
            until,
            lambda alertmanager: alertmanager.create_silence(
                params.labels,
                duration=params.duration,
                created_by=CREATED_BY,
                comment=comment_of(params),
                deadline_s=CALL_S,
            ),
        )
        return Change(changed=True, before=before, after=_state(silence))

    def standing(self, left: State, now: State) -> Standing:
        if left["status"] not in _ALIVE:
            return Standing.DRIFTED if now["status"] in _ALIVE else Standing.AS_LEFT
        is_as_made = now["id"] == left["id"] and abs(_ends_at(left) - _ends_at(now)) < _SAME_END
        if is_as_made:  # also one that has ended when it was to end
            return Standing.AS_LEFT
        return Standing.DRIFTED if now["status"] in _ALIVE else Standing.REVERTED

    def undo(
        self, params: AlertmanagerSilenceParams, clients: Clients, left: State, restore: State, timeout: timedelta
    ) -> Change:
        until = time.monotonic() + timeout.total_seconds()
        found, _ = _ours(params, clients)
        now = _state(_newest(found))
        if now["status"] not in _ALIVE:
            return Change(changed=False, before=now, after=now, detail="it has ended already")
        if self.standing(left, now) is not Standing.AS_LEFT:
            raise ConflictError(
                f"silence {now['id']} was changed by somebody else: it is left alone, and ends at {now['ends_at']}",
                target=str(now["ref"]),
            )
        for silence in found:
            if silence.is_alive:
                _at_one(clients, until, partial(_expire, silence.id))
        try:
            after = self.observe(params, clients)
        except ActionError as error:
            raise UnknownEffectError(
                f"silence {now['id']} was ended, Alertmanager says, but cannot be looked at: {error}",
                target=str(now["ref"]),
            ) from error
        return Change(changed=True, before=now, after=after)


def comment_of(params: AlertmanagerSilenceParams) -> str:
    """What people read in Alertmanager, and what the silence is found by."""
    return f"remediator is at work on it: {params.run}"


def _needs(alertmanagers: Mapping[str, Reader]) -> Mapping[str, Reader]:
    """The Alertmanagers, of which there must be one. Raises InvalidTargetError."""
    if not alertmanagers:
        raise InvalidTargetError("no Alertmanager is named in the settings; set alertmanager.urls")
    return alertmanagers


def _ours(params: AlertmanagerSilenceParams, clients: LookingClients) -> tuple[list[ListedSilence], list[str]]:
    """The silences that this run made for these labels, and the URLs of those Alertmanagers that did not answer.

    Raises:
        ActionError: none answered.
    """
    alertmanagers = _needs(clients.alertmanagers)
    newest: dict[str, ListedSilence] = {}
    problems: dict[str, ActionError] = {}
    for url, alertmanager in alertmanagers.items():
        try:
            listed = alertmanager.silences()
        except ActionError as error:
            problems[url] = error
            continue
        for silence in listed:
            is_ours = silence.comment == comment_of(params) and dict(silence.labels) == dict(params.labels)
            # They tell each other within a second: who knows more counts.
            if is_ours and (silence.id not in newest or newest[silence.id].updated_at < silence.updated_at):
                newest[silence.id] = silence
    if len(problems) == len(alertmanagers):
        raise next(iter(problems.values()))
    return [*newest.values()], [*problems]


def _newest(found: Sequence[ListedSilence]) -> ListedSilence | None:
    return max(found, key=lambda silence: (silence.is_alive, silence.ends_at), default=None)


def _at_one(clients: Clients, until: float, do: Callable[[AlertmanagerWriter], Done]) -> Done:
    """Have it done by the first Alertmanager that takes it; the others hear of it from that one.

    One that has not answered may have done it, so no other is asked then.

    Raises:
        ActionError: as the last of them has it.
    """
    problem: ActionError | None = None
    for alertmanager in _needs(clients.alertmanagers).values():
        if until - time.monotonic() < CALL_S:
            raise TransientActionError("the Alertmanagers took too long to answer; nothing was sent") from problem
        try:
            return do(alertmanager)
        except (TransientActionError, AccessDeniedError, TargetNotFoundError) as error:
            problem = error
    assert problem is not None
    raise problem


def _expire(silence_id: str, alertmanager: AlertmanagerWriter) -> None:
    alertmanager.expire_silence(silence_id, deadline_s=CALL_S)


def _state(silence: ListedSilence | None) -> dict[str, JsonValue]:
    """What the audit keeps; ``ref`` is what a lease on it is called by."""
    if silence is None:
        return {"ref": "", "id": "", "status": "none", "ends_at": ""}
    is_ended = silence.status == "expired" and silence.updated_at >= silence.ends_at
    return {
        "ref": f"alertmanager:{silence.id}",
        "id": silence.id,
        "status": _ENDED if is_ended else silence.status,
        "ends_at": utc_text(silence.ends_at),
    }


def _ends_at(state: State) -> datetime:
    return utc_time(str(state["ends_at"])) if state["ends_at"] else datetime.min.replace(tzinfo=UTC)
