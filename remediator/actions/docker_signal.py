"""``docker.signal``: send a signal to a container's first process, to ask a trainer for a checkpoint.

Disruptive: a process that does not handle the signal ends by it, SIGUSR1 included. So it is sent only where the alert
rule or the playbook says which one.
"""

from __future__ import annotations

import re
import signal
import time
from datetime import timedelta
from typing import Annotated, ClassVar, Final

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic.config import JsonDict

from remediator.actions import _container
from remediator.clients.ports import Clients
from remediator.core.action import ActionParams, Change, State
from remediator.core.outcome import Effect
from remediator.errors import ConflictError

_REAL_TIME = re.compile(r"SIGRTM(IN(\+([1-9]|1[0-5]))?|AX(-([1-9]|1[0-4]))?)")
_LAST_NUMBER = 64


def _read_signal(value: object) -> str:
    """``SIGUSR1`` for ``SIGUSR1``, ``USR1`` and ``usr1``; a number stays one, as text."""
    text = str(value).upper() if isinstance(value, (str, int)) else ""
    if re.fullmatch(r"[1-9][0-9]?", text) and int(text) <= _LAST_NUMBER:
        return text
    name = text if text.startswith("SIG") else f"SIG{text}"
    if name in signal.Signals.__members__ or _REAL_TIME.fullmatch(name):
        return name
    raise ValueError(f"{str(value)[:40]!r} is not a signal; write its name, as in SIGUSR1, or its number, 1 to 64")


_SIGNAL: Final[JsonDict] = {"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 1, "maximum": _LAST_NUMBER}]}


class DockerSignalParams(_container.ContainerParams):
    """Params of ``docker.signal``."""

    signal: Annotated[str, BeforeValidator(_read_signal), WithJsonSchema(_SIGNAL)] = Field(
        description="Which signal: its name, with or without SIG, or its number.", examples=["SIGUSR1", "USR2", "10"]
    )


class DockerSignal(_container.ContainerAction):
    """Sends a signal. Nobody can see whether it arrived, unless the process ended by it."""

    name: ClassVar[str] = "docker.signal"
    params_model: ClassVar[type[ActionParams]] = DockerSignalParams
    is_disruptive: ClassVar[bool] = True
    is_idempotent: ClassVar[bool] = False

    def describe(self, params: DockerSignalParams) -> str:
        return f"send {params.signal} to container {params.container} on {params.host}"

    def min_timeout(self, params: DockerSignalParams) -> timedelta:
        return _container.QUICK

    def would_change(self, params: DockerSignalParams, now: State) -> bool:
        return True

    def effect(self, params: DockerSignalParams, before: State, now: State) -> Effect:
        if now["id"] != before["id"] or not before["pid"]:
            return Effect.UNCLEAR
        has_ended = not now["pid"] or now["started_at"] != before["started_at"]
        return Effect.HAPPENED if has_ended else Effect.UNCLEAR

    def apply(self, params: DockerSignalParams, clients: Clients, before: State, timeout: timedelta) -> Change:
        began = time.monotonic()
        docker = clients.docker(params.host)
        found = _container.look(params, docker)
        if other := _container.replaced(params, before, found):
            return other
        now = _container.state_of(found)
        if _container.is_other_process(before, found):
            return Change(changed=False, before=now, after=now, detail="started anew since it was looked at")
        if not found.is_running:
            raise ConflictError(
                f"container {found.name} is {found.status}: it has no process to signal",
                target=_container.ref(params, found),
            )
        docker.signal(found.id, params.signal, deadline_s=_container.deadline_s(began, timeout))
        after = _container.look_after(params, docker, found, f"sent {params.signal}")
        detail = "" if after.is_running else f"it is {after.status} now, exit code {after.exit_code}"
        return Change(changed=True, before=now, after=_container.state_of(after), detail=detail)
