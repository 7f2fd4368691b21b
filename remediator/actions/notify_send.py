"""``notify.send``: tell people. Where it goes is a name from the settings; what an alert says is only text in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Annotated, ClassVar

from pydantic import Field

from remediator.clients.ports import Clients, LookingClients
from remediator.core.action import ActionParams, Change, State, Targeting, UndoWhen
from remediator.core.outcome import Effect
from remediator.errors import PermanentActionError, Reason, TransientActionError


class NotifySendParams(ActionParams):
    """Params of ``notify.send``."""

    to: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        min_length=1, description="Names of notification targets in the settings.", examples=[["ml-platform"]]
    )
    title: str = Field(min_length=1, description="One line.", examples=["Xid 79 on gpu-07"])
    body: str = Field(default="", description="Plain text; never read as markup.")


class NotifySend:
    """Sends one message to every target named, the rest also where one fails.

    A retry sends it to all of them again: better told twice than not at all.
    """

    name: ClassVar[str] = "notify.send"
    params_model: ClassVar[type[ActionParams]] = NotifySendParams
    is_disruptive: ClassVar[bool] = False
    is_idempotent: ClassVar[bool] = False
    is_message: ClassVar[bool] = True
    late_params: ClassVar[frozenset[str]] = frozenset({"title", "body"})
    param_defaults: ClassVar[Mapping[str, str]] = {}
    default_timeout: ClassVar[timedelta] = timedelta(minutes=5)
    default_undo: ClassVar[UndoWhen | None] = None

    def describe(self, params: NotifySendParams) -> str:
        return f"tell {', '.join(params.to)}"

    def min_timeout(self, params: NotifySendParams) -> timedelta:
        return timedelta(seconds=5 * len(params.to))

    def targets(self, params: NotifySendParams, clients: LookingClients) -> Targeting:
        return Targeting()

    def observe(self, params: NotifySendParams, clients: LookingClients) -> State:
        return {}

    def would_change(self, params: NotifySendParams, now: State) -> bool:
        return True

    def effect(self, params: NotifySendParams, before: State, now: State) -> Effect:
        return Effect.UNCLEAR

    def apply(self, params: NotifySendParams, clients: Clients, before: State, timeout: timedelta) -> Change:
        timeout_s = timeout.total_seconds() / len(params.to)
        told: list[str] = []
        problems: dict[str, PermanentActionError | TransientActionError] = {}
        for to in params.to:
            try:
                clients.notifier.send(to, title=params.title, body=params.body, timeout_s=timeout_s)
            except (PermanentActionError, TransientActionError) as problem:
                problems[to] = problem
            else:
                told.append(to)
        if problems:
            raise _not_told(told, problems)
        return Change(changed=True, before=before, after={"told": told})


def _not_told(
    told: Sequence[str], problems: Mapping[str, PermanentActionError | TransientActionError]
) -> PermanentActionError | TransientActionError:
    """The failure, with the fate of each target."""
    text = "; ".join([*([f"{', '.join(told)} told"] if told else []), *(str(problem) for problem in problems.values())])
    # One that may have arrived must not be sent again for the sake of another.
    is_final = any(isinstance(problem, PermanentActionError) for problem in problems.values())
    error = (PermanentActionError if is_final else TransientActionError)(text, reason=Reason.NOTIFY)
    error.after = {"told": list(told), "not_told": list(problems)}
    error.__cause__ = next(iter(problems.values()))
    return error
