"""``docker.limit``: let a container use less CPU for a while, and give it back what it had.

CPU alone: a memory limit below what is used kills. What Docker 20.10 (API 1.41) does decides how it is done:

- A field of 0 in an update means "leave it": ``NanoCpus`` and ``CpuPeriod`` that were set once cannot be taken away
  again, a quota can be lifted with -1. And ``NanoCpus`` and a period or quota shut each other out. So ``NanoCpus`` is
  set only where the container has it, and the quota else; a period is never set.
- ``NanoCpus`` beside a quota of -1 (``docker update --cpu-quota -1``) says two things at once: what holds is the one
  that was set last, and the quota after a restart. That cannot be set back, so such a container is left alone.
- ``NanoCpus`` above the CPUs that the engine has now is refused, also where the container has it. So before the act
  it is tried whether what it has could be set again.
"""

from __future__ import annotations

import re
import time
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, ClassVar, Final, cast

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

from remediator.actions import _container
from remediator.clients.ports import Clients, ContainerState, CpuLimit, DockerReader, LookingClients
from remediator.core.action import ActionParams, Change, Standing, State, UndoWhen
from remediator.core.outcome import Effect
from remediator.errors import ConflictError, InvalidTargetError, PermanentActionError, UnknownEffectError

_KERNEL_PERIOD_US: Final = 100_000
"""Of a container that was given none (``sched-bwc``: ``cpu.cfs_period_us``)."""

_LEAST_QUOTA_US: Final = 1_000
"""Docker and the kernel refuse less."""

_NANO: Final = 10**9
_CPUS = re.compile(r"[0-9]{1,4}(\.[0-9]{1,3})?")


def _read_cpus(value: object) -> Decimal:
    text = str(value) if isinstance(value, (str, int, float, Decimal)) and not isinstance(value, bool) else ""
    if _CPUS.fullmatch(text) is None or Decimal(text) < Decimal("0.01"):
        raise ValueError(
            f"{str(value)[:40]!r} is no number of CPUs; write 0.01 or more, with at most three places: 1.5"
        )
    return Decimal(text)


Cpus = Annotated[
    Decimal,
    BeforeValidator(_read_cpus),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": "number", "examples": [1.5]}),
]


class DockerLimitParams(_container.ContainerParams):
    """Params of ``docker.limit``."""

    cpus: Cpus = Field(description="How many CPUs it may use at most, as in `docker run --cpus`.", examples=[1.5])


class DockerLimit(_container.ContainerAction):
    """Limits how much CPU a container may use; ``unchanged`` when it may not use more already: it never gives more.

    What it had comes back when the alert is resolved, unless the playbook says otherwise. The limit stays over restarts
    of the container, and goes with it when it is made anew. A container that does not run has it from its next start.
    Memory, shares, pinned CPUs and restart policy stay as they are.

    Refused, before anything is done, where it could not be set back: a container that has ``--cpus`` and a quota at
    once, or more ``--cpus`` than its host has CPUs by now.
    """

    name: ClassVar[str] = "docker.limit"
    params_model: ClassVar[type[ActionParams]] = DockerLimitParams
    is_disruptive: ClassVar[bool] = False
    is_idempotent: ClassVar[bool] = True
    default_undo: ClassVar[UndoWhen | None] = UndoWhen.RESOLVED

    def describe(self, params: DockerLimitParams) -> str:
        return (
            f"limit container {params.container} on {params.host} to {params.cpus} CPU{'s' if params.cpus != 1 else ''}"
        )

    def min_timeout(self, params: DockerLimitParams) -> timedelta:
        return _container.QUICK

    def observe(self, params: _container.ContainerParams, clients: LookingClients) -> State:
        return _state_of(_container.look(params, clients.docker(params.host)))

    def would_change(self, params: DockerLimitParams, now: State) -> bool:
        limit = _limit_of(now)
        return _is_contradictory(limit) or _allows_more(limit, params)

    def effect(self, params: DockerLimitParams, before: State, now: State) -> Effect:
        had, has = _plain(_limit_of(before)), _plain(_limit_of(now))
        if now["id"] != before["id"]:
            return Effect.UNCLEAR
        if has == had:
            return Effect.AS_BEFORE
        return Effect.HAPPENED if has == _lowered(had, params) else Effect.UNCLEAR

    def apply(self, params: DockerLimitParams, clients: Clients, before: State, timeout: timedelta) -> Change:
        began = time.monotonic()
        docker = clients.docker(params.host)
        found = _container.look(params, docker)
        now = _state_of(found)
        if other := _container.replaced(params, before, found):
            return Change(changed=False, before=now, after=now, detail=other.detail)
        if _is_contradictory(found.cpu):
            raise InvalidTargetError(
                f"container {found.name} has --cpus and a CPU quota at once: nobody can say which of them holds, so its"
                " limit could not be set back; make it anew with one of them",
                target=_container.ref(params, found),
            )
        if not _allows_more(found.cpu, params):
            return Change(changed=False, before=now, after=now, detail="it may not use more already")
        wanted = _lowered(found.cpu, params)
        if not wanted.nano_cpus and wanted.quota_us < _LEAST_QUOTA_US:
            least = _LEAST_QUOTA_US / _period_us(found.cpu)
            raise InvalidTargetError(
                f"container {found.name} has a CPU period of {_period_us(found.cpu)} µs, and so cannot be limited to"
                f" less than {least:g} CPUs",
                target=_container.ref(params, found),
            )
        left_s = _container.deadline_s(began, timeout)
        docker.limit_cpu(found.id, wanted, back=found.cpu, deadline_s=left_s)
        return _changed(params, docker, found, wanted)

    def standing(self, left: State, now: State) -> Standing:
        if now["id"] != left["id"]:
            return Standing.REVERTED
        return Standing.AS_LEFT if _plain(_limit_of(now)) == _plain(_limit_of(left)) else Standing.DRIFTED

    def undo(
        self, params: DockerLimitParams, clients: Clients, left: State, restore: State, timeout: timedelta
    ) -> Change:
        began = time.monotonic()
        docker = clients.docker(params.host)
        found = _container.look(params, docker)
        now, wanted = _state_of(found), _plain(_limit_of(restore))
        if not found.id == left["id"] == restore["id"]:
            raise ConflictError(
                f"container {found.name} has been made anew: the limit went with the old one",
                target=_container.ref(params, found),
            )
        if _plain(found.cpu) == wanted:
            return Change(changed=False, before=now, after=now, detail="it has its limit back already")
        if self.standing(left, now) is not Standing.AS_LEFT:
            raise ConflictError(
                f"container {found.name} has another CPU limit than the one that was left: others changed it",
                target=_container.ref(params, found),
            )
        docker.limit_cpu(found.id, wanted, deadline_s=_container.deadline_s(began, timeout))
        return _changed(params, docker, found, wanted)


def _state_of(container: ContainerState) -> State:
    return {
        **_container.state_of(container),
        "nano_cpus": container.cpu.nano_cpus,
        "cpu_period_us": container.cpu.period_us,
        "cpu_quota_us": container.cpu.quota_us,
    }


def _limit_of(state: State) -> CpuLimit:
    """The limit that ``_state_of`` kept."""
    nano_cpus, period_us, quota_us = (cast("int", state[f]) for f in ("nano_cpus", "cpu_period_us", "cpu_quota_us"))
    return CpuLimit(nano_cpus=nano_cpus, period_us=period_us, quota_us=quota_us)


def _plain(limit: CpuLimit) -> CpuLimit:
    """Without the difference that makes none unless ``NanoCpus`` is set: a quota never set, and one that was lifted."""
    return limit if limit.nano_cpus > 0 else replace(limit, quota_us=max(limit.quota_us, 0))


def _is_contradictory(limit: CpuLimit) -> bool:
    return limit.nano_cpus > 0 and (limit.quota_us, limit.period_us) != (0, 0)


def _period_us(limit: CpuLimit) -> int:
    return limit.period_us or _KERNEL_PERIOD_US


def _lowered(limit: CpuLimit, params: DockerLimitParams) -> CpuLimit:
    """What is to hold, in the way in which the limit is kept."""
    if limit.nano_cpus > 0:
        return replace(limit, nano_cpus=int(params.cpus * _NANO))
    return replace(limit, quota_us=int(params.cpus * _period_us(limit)))


def _allows_more(limit: CpuLimit, params: DockerLimitParams) -> bool:
    lowered = _lowered(limit, params)
    if limit.nano_cpus > 0:
        return limit.nano_cpus > lowered.nano_cpus
    return limit.quota_us <= 0 or limit.quota_us > lowered.quota_us


def _changed(params: DockerLimitParams, docker: DockerReader, found: ContainerState, wanted: CpuLimit) -> Change:
    """What came of it.

    Raises:
        PermanentActionError: nothing, though the engine says that it is done.
        UnknownEffectError: something else, or it cannot be seen.
    """
    after = _container.look_after(params, docker, found, "limited")
    if _plain(after.cpu) == _plain(found.cpu):
        raise PermanentActionError(
            f"the engine took another CPU limit for container {found.name} and did not set it; can its kernel limit CPU"
            " (docker info warns when it cannot)?",
            target=_container.ref(params, found),
        )
    if _plain(after.cpu) != _plain(wanted):
        raise UnknownEffectError(
            f"container {found.name} has another CPU limit than the one that was just set: others set it too",
            target=_container.ref(params, found),
        )
    detail = "" if after.is_running else f"it is {after.status}: the limit holds from its next start"
    return Change(changed=True, before=_state_of(found), after=_state_of(after), detail=detail)
