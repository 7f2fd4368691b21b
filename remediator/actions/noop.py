"""``noop``: does nothing. For trying out matchers, guards and messages; the smallest complete action, to copy."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import ClassVar

from pydantic import Field

from remediator.clients.ports import Clients, LookingClients
from remediator.core.action import ActionParams, Change, State, Targeting, UndoWhen
from remediator.core.outcome import Effect


class NoopParams(ActionParams):
    """Params of ``noop``."""

    note: str = Field(default="", description="Shown in the audit log; has no effect.")


class Noop:
    """Does nothing, always ``unchanged``."""

    name: ClassVar[str] = "noop"
    params_model: ClassVar[type[ActionParams]] = NoopParams
    is_disruptive: ClassVar[bool] = False
    is_idempotent: ClassVar[bool] = True
    is_message: ClassVar[bool] = False
    late_params: ClassVar[frozenset[str]] = frozenset({"note"})
    param_defaults: ClassVar[Mapping[str, str]] = {}
    default_timeout: ClassVar[timedelta] = timedelta(minutes=5)
    default_undo: ClassVar[UndoWhen | None] = None

    def describe(self, params: NoopParams) -> str:
        return f"do nothing ({params.note})" if params.note else "do nothing"

    def min_timeout(self, params: NoopParams) -> timedelta:
        return timedelta(seconds=1)

    def targets(self, params: NoopParams, clients: LookingClients) -> Targeting:
        return Targeting()

    def observe(self, params: NoopParams, clients: LookingClients) -> State:
        return {}

    def would_change(self, params: NoopParams, now: State) -> bool:
        return False

    def effect(self, params: NoopParams, before: State, now: State) -> Effect:
        return Effect.AS_BEFORE

    def apply(self, params: NoopParams, clients: Clients, before: State, timeout: timedelta) -> Change:
        return Change(changed=False, before=before, after={})
