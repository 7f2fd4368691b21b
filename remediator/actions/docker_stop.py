"""``docker.stop``: stop a container, by force after its grace. Its restart policy does not bring it back."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import timedelta
from typing import ClassVar

from remediator.actions import _container
from remediator.clients.ports import Clients, ContainerState, DockerReader
from remediator.core.action import ActionParams, Change, State
from remediator.core.outcome import Effect
from remediator.errors import TargetNotFoundError, UnknownEffectError


class DockerStopParams(_container.StoppingParams):
    """Params of ``docker.stop``."""


class DockerStop(_container.ContainerAction):
    """Stops a container; ``unchanged`` when it has stopped already."""

    name: ClassVar[str] = "docker.stop"
    params_model: ClassVar[type[ActionParams]] = DockerStopParams
    is_disruptive: ClassVar[bool] = True
    is_idempotent: ClassVar[bool] = True

    def describe(self, params: DockerStopParams) -> str:
        return f"stop container {params.container} on {params.host}"

    def min_timeout(self, params: DockerStopParams) -> timedelta:
        return _container.least_timeout(params)

    def would_change(self, params: DockerStopParams, now: State) -> bool:
        return bool(now["pid"]) or now["status"] == "restarting"

    def effect(self, params: DockerStopParams, before: State, now: State) -> Effect:
        if now["id"] != before["id"]:
            return Effect.UNCLEAR
        if now["started_at"] == before["started_at"] and bool(now["pid"]) == bool(before["pid"]):
            return Effect.AS_BEFORE
        # "restarting" is between two lives of a container that keeps ending by itself: nobody stopped that one.
        is_stopped = not now["pid"] and now["status"] != "restarting"
        return Effect.HAPPENED if before["pid"] and is_stopped else Effect.UNCLEAR

    def apply(self, params: DockerStopParams, clients: Clients, before: State, timeout: timedelta) -> Change:
        began = time.monotonic()
        docker = clients.docker(params.host)
        found = _container.look(params, docker)
        if other := _container.replaced(params, before, found):
            return other
        now = _container.state_of(found)
        if _is_stopped(found):
            return Change(changed=False, before=now, after=now, detail=f"it is {found.status} already")
        grace_s = _container.grace_s(params, found, timeout)
        deadline_s = _container.deadline_s(began, timeout, grace_s)
        docker.stop(found.id, stop_timeout_s=grace_s, deadline_s=deadline_s)
        after = _after(params, docker, found)
        if not _is_stopped(after):
            raise _container.unseen(params, found, "stopped", after)
        return Change(changed=True, before=now, after=_container.state_of(after), detail=f"exit code {after.exit_code}")


def _is_stopped(container: ContainerState) -> bool:
    return not container.is_running and container.status != "restarting"


def _after(params: DockerStopParams, docker: DockerReader, found: ContainerState) -> ContainerState:
    """The container after its stop; one made with ``--rm`` is gone then, as it should be."""
    try:
        return _container.look_after(params, docker, found, "stopped")
    except UnknownEffectError as error:
        if found.removes_itself and isinstance(error.__cause__, TargetNotFoundError):
            return replace(found, status="removed", pid=0)
        raise
