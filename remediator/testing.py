"""For those who write actions: an alert to plan with, and the promises that every action must keep.

Takes an action, params and clients (a ``FakeWorld``'s, or real ones), gives nothing or an ``AssertionError`` that names
the promise. The contract suite runs it over every action; run it in the test of a new one. Never used by the engine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from remediator.clients.ports import Clients, ReadOnlyClients
from remediator.core.action import (
    Action,
    ActionParams,
    Change,
    JsonValue,
    LookingAction,
    Standing,
    Targeting,
    UndoableAction,
    looking_half,
)
from remediator.core.alert import Alert, AlertStatus, fingerprint, label_key
from remediator.core.outcome import Effect

_NAME = re.compile(r"[a-z][a-z0-9]*(\.[a-z][a-z0-9_]*)?")
_REF = re.compile(r"[a-z]+:\S+")
_LARGEST_INT = 2**53


def alert(
    labels: Mapping[str, str],
    *,
    annotations: Mapping[str, str] | None = None,
    status: AlertStatus = AlertStatus.FIRING,
    starts_at: datetime = datetime(2026, 1, 1, tzinfo=UTC),
    ends_at: datetime | None = None,
) -> Alert:
    """An alert as decode gives it: all but the labels filled in as Alertmanager would.

    Args:
        starts_at, ends_at: aware; a resolved alert without ``ends_at`` ended a minute after its start.
    """
    if status is AlertStatus.RESOLVED and ends_at is None:
        ends_at = starts_at + timedelta(minutes=1)
    return Alert(
        status=status,
        labels=dict(labels),
        annotations=dict(annotations or {}),
        starts_at=starts_at,
        ends_at=ends_at,
        starts_at_text=starts_at.isoformat(),
        ends_at_text=ends_at.isoformat() if ends_at else "",
        generator_url="",
        fingerprint=fingerprint(labels),
        label_key=label_key(labels),
    )


def assert_action_contract(
    action: Action[Any], params: Mapping[str, JsonValue], *, clients: Clients, read_only: ReadOnlyClients
) -> Change:
    """Check every promise of ``core.action.Action`` and ``UndoableAction`` that can be seen from outside.

    Acts once, an idempotent action twice, and takes back what can be taken back.

    Args:
        params: as a plan holds them, rendered; they must name a target that the action can change.
        clients: of the world to act on.
        read_only: of the same world, which cannot act: all looks go through it, and through ``looking_half``.

    Returns:
        What the first ``apply`` said.

    Raises:
        AssertionError: a promise is broken.
    """
    _assert_described(action)
    model = _validated(action, params)
    looking = looking_half(action)
    _assert_one_line(looking.describe(model))
    timeout = max(action.default_timeout, action.min_timeout(model))
    assert action.min_timeout(model) > timedelta(0), "min_timeout is a time"

    targeting = looking.targets(model, read_only)
    _assert_targeting(looking, targeting)
    assert looking.targets(model, read_only) == targeting, "looking the targets up changes nothing"
    before = looking.observe(model, read_only)
    assert_auditable(before)
    assert looking.observe(model, read_only) == before, "observe changes nothing"
    assert looking.effect(model, before, before) is not Effect.HAPPENED, "HAPPENED needs evidence"

    would_change = looking.would_change(model, before)
    assert looking.would_change(model, before) is would_change, "would_change is pure"

    change = action.apply(model, clients, before, timeout)
    assert would_change or not change.changed, (
        "would_change says that nothing would be changed, so nobody is asked to approve it, and apply changes something"
    )
    assert_auditable(change.before)
    assert_auditable(change.after)
    now = looking.observe(model, read_only)
    if change.changed:
        assert looking.effect(model, before, now) is not Effect.AS_BEFORE or action.is_message, (
            "after a change that apply reports, effect must not say that nothing happened"
        )
    if action.is_idempotent:
        again = action.apply(model, clients, now, timeout)
        assert not again.changed, "an idempotent action changes nothing the second time"
    if action.default_undo is not None and change.changed:
        _assert_undone(cast("UndoableAction[Any]", action), model, change, clients, read_only)
    return change


def assert_auditable(value: object) -> None:
    """Check that a value can stand in the audit log: text, whole numbers below 2**53, truth values, lists, maps."""
    match value:
        case bool() | str():
            pass
        case int():
            assert abs(value) < _LARGEST_INT, f"{value} is too large for the audit log"
        case Mapping():
            for name, item in value.items():
                assert isinstance(name, str), f"{name!r}: keys in the audit log are text"
                assert_auditable(item)
        case Sequence() if not isinstance(value, (bytes, bytearray)):
            for item in value:
                assert_auditable(item)
        case _:
            raise AssertionError(f"{value!r} ({type(value).__name__}) cannot stand in the audit log")


def _assert_undone(
    action: UndoableAction[Any], model: ActionParams, change: Change, clients: Clients, read_only: ReadOnlyClients
) -> None:
    left, restore = change.after, change.before
    timeout = max(action.default_timeout, action.min_timeout(model))
    assert action.standing(left, action.observe(model, read_only)) is Standing.AS_LEFT, (
        "after apply the target stands as it was left"
    )
    assert action.standing(left, restore) is not Standing.AS_LEFT, "the state before is told from the one that was left"

    undone = action.undo(model, clients, left, restore, timeout)
    assert undone.changed, "undo over the state that was left changes it"
    assert_auditable(undone.before)
    assert_auditable(undone.after)
    back = action.observe(model, read_only)
    assert action.standing(restore, back) is Standing.AS_LEFT, "undo brings back what was seen before the act"
    assert action.standing(left, back) is not Standing.AS_LEFT, (
        "after undo the target no longer stands as apply left it"
    )
    again = action.undo(model, clients, left, restore, timeout)
    assert not again.changed, "undo changes nothing the second time"


def _assert_described(action: Action[Any]) -> None:
    fields = action.params_model.model_fields
    assert _NAME.fullmatch(action.name), f"{action.name!r} is not <system>.<verb>"
    assert (type(action).__doc__ or "").strip(), "an action's docstring is its page in the reference"
    assert issubclass(action.params_model, ActionParams), "params refuse unknown keys: derive from ActionParams"
    assert action.params_model.model_config.get("extra") == "forbid", "params refuse unknown keys"
    for name, field in fields.items():
        assert field.description, f"param {name} has no description"
    assert action.late_params <= fields.keys(), "late_params are params"
    assert action.param_defaults.keys() <= fields.keys(), "param_defaults are params"
    assert action.default_timeout > timedelta(0), "default_timeout is a time"
    assert not (action.is_message and action.is_disruptive), "a message interrupts nothing"
    can_undo = callable(getattr(action, "undo", None)) and callable(getattr(action, "standing", None))
    assert can_undo is (action.default_undo is not None), (
        "an action with a default_undo has undo and standing, no other"
    )


def _validated(action: Action[Any], params: Mapping[str, JsonValue]) -> ActionParams:
    model = action.params_model.model_validate(params)
    dumped = model.model_dump(mode="json", exclude_none=True)
    assert_auditable(dumped)
    assert action.params_model.model_validate(dumped) == model, "params come back from the audit log as they were"
    return model


def _assert_one_line(text: str) -> None:
    assert text, "describe gives a line"
    assert text.strip().splitlines() == [text], f"describe gives one line, not {text!r}"
    assert not text.endswith("."), "describe gives a phrase, not a sentence"


def _assert_targeting(action: LookingAction[Any], targeting: Targeting) -> None:
    assert not (action.is_message and targeting.targets), "messages have no targets"
    for target in (*targeting.targets, *targeting.affects):
        assert _REF.fullmatch(target.ref), f"{target.ref!r} is not <system>:<place>/<name>"
        assert target.uid, f"{target.ref} has no id of its incarnation"
        assert target.name, f"{target.ref} has no name"
