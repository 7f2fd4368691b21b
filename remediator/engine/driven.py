"""An engine that somebody drives: the one of production (``app.App``), alone in one thread, on a clock that is moved.

What playbook tests (``playtest``) and replays (``replay``) both need of it; ``app`` builds it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Protocol, assert_never

from remediator.core.scenario import Deed


class DrivenEngine(Protocol):
    """Its life, and what people do to it; errors as ``App`` says."""

    def prepare(self) -> None: ...
    def work(self) -> datetime | None: ...
    def note_alive(self) -> None: ...
    def halt(self) -> None: ...
    def n_unexpected(self) -> int: ...
    def runs(self, limit: int, state: str) -> list[dict[str, Any]]: ...
    def pause(self, actor: str, reason: str) -> dict[str, Any]: ...
    def resume(self, actor: str, reason: str) -> dict[str, Any]: ...
    def approve(self, run_id: str, actor: str, reason: str, question: int = 0) -> dict[str, Any]: ...
    def deny(self, run_id: str, actor: str, reason: str, question: int = 0) -> dict[str, Any]: ...
    def cancel(self, run_id: str, actor: str, reason: str) -> dict[str, Any]: ...
    def settle(self, run_id: str, happened: bool, actor: str, reason: str) -> dict[str, Any]: ...
    def undo(self, run_id: str, step: str, actor: str, reason: str) -> dict[str, Any]: ...
    def reset_breaker(self, name: str, actor: str, reason: str) -> dict[str, Any]: ...


def do(
    engine: DrivenEngine,
    deed: Deed,
    actor: str,
    reason: str,
    *,
    run_id: str = "",
    step: str = "",
    breaker: str = "",
    has_happened: bool = False,
) -> None:
    """Let a person do something, as the commands and the API do it.

    Args:
        run_id: of what is done to a run.
        step: whose change is taken back; "" = all of the run.
        breaker: the one to reset.
        has_happened: what a person says of an act whose outcome is unknown.

    Raises:
        RequestError: it cannot be done now.
    """
    match deed:
        case Deed.PAUSES:
            engine.pause(actor, reason)
        case Deed.RESUMES:
            engine.resume(actor, reason)
        case Deed.APPROVES:
            engine.approve(run_id, actor, reason)
        case Deed.DENIES:
            engine.deny(run_id, actor, reason)
        case Deed.CANCELS:
            engine.cancel(run_id, actor, reason)
        case Deed.SETTLES:
            engine.settle(run_id, has_happened, actor, reason)
        case Deed.UNDOES:
            engine.undo(run_id, step, actor, reason)
        case Deed.RESETS:
            engine.reset_breaker(breaker, actor, reason)
        case _:
            assert_never(deed)
