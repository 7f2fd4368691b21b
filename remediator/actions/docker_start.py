"""``docker.start``: start a container that has stopped."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import timedelta
from typing import ClassVar

from remediator.actions import _container
from remediator.clients.ports import Clients, LookingClients
from remediator.core.action import ActionParams, Change, State, Targeting
from remediator.core.outcome import Effect


class DockerStartParams(_container.ContainerParams):
    """Params of ``docker.start``."""


class DockerStart:
    """Starts a container; ``unchanged`` when it runs already."""

    name: ClassVar[str] = "docker.start"
    params_model: ClassVar[type[ActionParams]] = DockerStartParams
    is_disruptive: ClassVar[bool] = False
    is_idempotent: ClassVar[bool] = True
    is_message: ClassVar[bool] = False
    late_params: ClassVar[frozenset[str]] = frozenset()
    param_defaults: ClassVar[Mapping[str, str]] = _container.HOST_DEFAULT
    default_timeout: ClassVar[timedelta] = timedelta(minutes=5)

    def describe(self, params: DockerStartParams) -> str:
        return f"start container {params.container} on {params.host}"

    def min_timeout(self, params: DockerStartParams) -> timedelta:
        return _container.QUICK

    def targets(self, params: DockerStartParams, clients: LookingClients) -> Targeting:
        return _container.targeting(params, clients.docker(params.host))

    def observe(self, params: DockerStartParams, clients: LookingClients) -> State:
        return _container.state_of(_container.look(params, clients.docker(params.host)))

    def effect(self, params: DockerStartParams, before: State, now: State) -> Effect:
        if now["id"] != before["id"]:
            return Effect.UNCLEAR
        if now["started_at"] != before["started_at"]:
            return Effect.HAPPENED
        return Effect.AS_BEFORE if bool(now["pid"]) == bool(before["pid"]) else Effect.UNCLEAR

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
