"""``docker.start``: start a container that has stopped."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import ClassVar

from remediator.actions import _container
from remediator.clients.ports import Clients
from remediator.core.action import ActionParams, Change, State
from remediator.core.outcome import Effect


class DockerStartParams(_container.ContainerParams):
    """Params of ``docker.start``."""


class DockerStart(_container.ContainerAction):
    """Starts a container; ``unchanged`` when it runs already."""

    name: ClassVar[str] = "docker.start"
    params_model: ClassVar[type[ActionParams]] = DockerStartParams
    is_disruptive: ClassVar[bool] = False
    is_idempotent: ClassVar[bool] = True

    def describe(self, params: DockerStartParams) -> str:
        return f"start container {params.container} on {params.host}"

    def min_timeout(self, params: DockerStartParams) -> timedelta:
        return _container.QUICK

    def would_change(self, params: DockerStartParams, now: State) -> bool:
        return now["status"] != "running"

    def effect(self, params: DockerStartParams, before: State, now: State) -> Effect:
        return _container.was_started(before, now)

    def apply(self, params: DockerStartParams, clients: Clients, before: State, timeout: timedelta) -> Change:
        began = time.monotonic()
        docker = clients.docker(params.host)
        found = _container.look(params, docker)
        if other := _container.replaced(params, before, found):
            return other
        now = _container.state_of(found)
        if found.status == "running":
            return Change(changed=False, before=now, after=now, detail="it runs already")
        docker.start(found.id, deadline_s=_container.deadline_s(began, timeout))
        after = _container.look_after(params, docker, found, "started")
        if not _container.is_other_process(now, after):
            raise _container.unseen(params, found, "started", after)
        detail = "" if after.is_running else f"it is {after.status} again, exit code {after.exit_code}"
        return Change(changed=True, before=now, after=_container.state_of(after), detail=detail)
