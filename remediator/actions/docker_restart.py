"""``docker.restart``: stop a container, by force after its grace, and start it again. Its id stays the same."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import ClassVar

from remediator.actions import _container
from remediator.clients.ports import Clients
from remediator.core.action import ActionParams, Change, State
from remediator.core.outcome import Effect


class DockerRestartParams(_container.StoppingParams):
    """Params of ``docker.restart``."""


class DockerRestart(_container.ContainerAction):
    """Restarts a container; one that has stopped is started.

    What happened is read from ``StartedAt``: the engine's ``RestartCount`` does not count restarts by request.
    """

    name: ClassVar[str] = "docker.restart"
    params_model: ClassVar[type[ActionParams]] = DockerRestartParams
    is_disruptive: ClassVar[bool] = True
    is_idempotent: ClassVar[bool] = False

    def describe(self, params: DockerRestartParams) -> str:
        return f"restart container {params.container} on {params.host}"

    def min_timeout(self, params: DockerRestartParams) -> timedelta:
        return _container.least_timeout(params)

    def would_change(self, params: DockerRestartParams, now: State) -> bool:
        return True

    def effect(self, params: DockerRestartParams, before: State, now: State) -> Effect:
        return _container.was_started(before, now)

    def apply(self, params: DockerRestartParams, clients: Clients, before: State, timeout: timedelta) -> Change:
        began = time.monotonic()
        docker = clients.docker(params.host)
        found = _container.look(params, docker)
        if other := _container.replaced(params, before, found):
            return other
        now = _container.state_of(found)
        if _container.is_other_process(before, found):
            return Change(changed=False, before=now, after=now, detail="started anew since it was looked at")
        grace_s = _container.grace_s(params, found, timeout)
        deadline_s = _container.deadline_s(began, timeout, grace_s)
        docker.restart(found.id, stop_timeout_s=grace_s, deadline_s=deadline_s)
        after = _container.look_after(params, docker, found, "restarted")
        if not _container.is_other_process(now, after):
            raise _container.unseen(params, found, "restarted", after)
        details = [f"it was {found.status} before"] if not found.is_running else []
        details += [f"it is {after.status} again, exit code {after.exit_code}"] if not after.is_running else []
        return Change(changed=True, before=now, after=_container.state_of(after), detail="; ".join(details))
