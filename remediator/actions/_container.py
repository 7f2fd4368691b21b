"""What the ``docker.*`` actions share: how params name a container, what is seen of it, and what must not be touched.

The name is looked up at each look; an act goes to the **id** that was looked up, so that a container made anew under
the same name is never taken for the one that the plan was about.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, ClassVar, Final

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

from remediator.clients.ports import ContainerState, DockerReader, LookingClients
from remediator.core.action import ActionParams, Change, State, Target, Targeting, TargetKind, UndoWhen
from remediator.core.outcome import Effect
from remediator.core.units import parse_duration, print_duration
from remediator.errors import (
    ActionError,
    InvalidTargetError,
    Reason,
    TargetNotFoundError,
    TransientActionError,
    UnknownEffectError,
)

HOST_DEFAULT: Final[Mapping[str, str]] = {"host": "{{ host }}"}

LEAST_OWN_GRACE_S: Final = 60
"""Docker's default of 10 s is too short for a trainer to write a checkpoint; what a container asks for counts above."""

REACTION: Final = timedelta(seconds=30)
"""What an attempt needs beside the container's own stopping: looks before and after, and the engine's answer."""

LOOK_S: Final = 5
"""The share of ``REACTION`` for the look before; an engine that takes longer for it is not asked to act."""

QUICK: Final = timedelta(seconds=10)
"""The shortest time-out of an act that waits for no container."""

_SWARM_TASK = "com.docker.swarm.task.id"
_SWARM_SERVICE = "com.docker.swarm.service.name"
_COMPOSE_PROJECT = "com.docker.compose.project"
_COMPOSE_SERVICE = "com.docker.compose.service"


class ContainerParams(ActionParams):
    """Which container."""

    target_params: ClassVar[tuple[str, ...]] = ("host", "container")

    container: str = Field(
        pattern=r"^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}$",
        description="The container's name, or its full or short id (12 digits and more).",
        examples=["trainer-0"],
    )
    host: str = Field(
        min_length=1,
        max_length=253,
        description="The Docker host's name in the settings. Left out: the alert's host, by the label map.",
        examples=["gpu-07"],
    )


def _read_grace(value: object) -> timedelta:
    if isinstance(value, timedelta):
        grace = value
    elif isinstance(value, str):
        grace = parse_duration(value)
    else:
        raise ValueError("write a number and a unit, as in 5m")
    if grace < timedelta(seconds=1) or grace % timedelta(seconds=1):
        raise ValueError("write whole seconds, 1s or more; there is no waiting for ever")
    return grace


Grace = Annotated[
    timedelta,
    BeforeValidator(_read_grace),
    PlainSerializer(print_duration, return_type=str),
    WithJsonSchema({"type": "string", "examples": ["5m"]}),
]


class StoppingParams(ContainerParams):
    """Which container, and how long it may take to stop."""

    stop_timeout: Grace | None = Field(
        default=None,
        description="How long it may take to stop by itself before it is killed. Left out: its own, at least 60s.",
        examples=["5m"],
    )


def look(params: ContainerParams, docker: DockerReader) -> ContainerState:
    """The container as it is now.

    Raises:
        InvalidTargetError: it is a swarm's task, or the one that this engine runs in (``Reason.PROTECTED``).
        ActionError: as ``DockerReader.inspect``.
    """
    container = docker.inspect(params.container)
    target = ref(params, container)
    if container.is_engine:
        raise InvalidTargetError(
            f"container {container.name} is the one this engine runs in; it never acts on itself",
            target=target,
            reason=Reason.PROTECTED,
        )
    if _SWARM_TASK in container.labels:
        service = container.labels.get(_SWARM_SERVICE, "its service")
        raise InvalidTargetError(
            f"container {container.name} is a swarm task: the swarm replaces it by itself;"
            f" update the service instead (docker service update --force {service})",
            target=target,
        )
    return container


def ref(params: ContainerParams, container: ContainerState) -> str:
    """``docker:gpu-07/trainer-0``: by its name also where the params give its id."""
    return f"docker:{params.host}/{container.name}"


def owner(container: ContainerState) -> str:
    """``compose:stack/service`` for a Compose service, "" for a container of its own."""
    project = container.labels.get(_COMPOSE_PROJECT, "")
    return f"compose:{project}/{container.labels.get(_COMPOSE_SERVICE, '')}" if project else ""


class ContainerAction:
    """What every action on one container has in common; each adds what it does and how it tells whether it happened."""

    is_message: ClassVar[bool] = False
    late_params: ClassVar[frozenset[str]] = frozenset()
    param_defaults: ClassVar[Mapping[str, str]] = HOST_DEFAULT
    default_timeout: ClassVar[timedelta] = timedelta(minutes=5)
    default_undo: ClassVar[UndoWhen | None] = None

    def targets(self, params: ContainerParams, clients: LookingClients) -> Targeting:
        """The container as the one target. Raises as ``look``."""
        return targeting(params, clients.docker(params.host))

    def observe(self, params: ContainerParams, clients: LookingClients) -> State:
        """What is seen of it. Raises as ``look``."""
        return state_of(look(params, clients.docker(params.host)))


def was_started(before: State, now: State) -> Effect:
    """Whether the container of ``before`` has been started since: the end of a start and of a restart."""
    if now["id"] != before["id"]:
        return Effect.UNCLEAR
    if now["started_at"] != before["started_at"]:
        return Effect.HAPPENED
    # Not started again. As before only if it is not stopped in the middle either.
    return Effect.AS_BEFORE if bool(now["pid"]) == bool(before["pid"]) else Effect.UNCLEAR


def targeting(params: ContainerParams, docker: DockerReader) -> Targeting:
    """The container as the one target. Raises as ``look``."""
    container = look(params, docker)
    target = Target(
        ref=ref(params, container),
        kind=TargetKind.CONTAINER,
        uid=container.id,
        name=container.name,
        host=params.host,
        owner=owner(container),
        labels=container.labels,
        state=container.status,
    )
    return Targeting(targets=(target,))


def state_of(container: ContainerState) -> State:
    """What the audit keeps of it, and what tells later whether an attempt happened. Never its environment."""
    return {
        "id": container.id,
        "name": container.name,
        "status": container.status,
        "pid": container.pid,
        "started_at": container.started_at,
        "finished_at": container.finished_at,
        "exit_code": container.exit_code,
        "owner": owner(container),
    }


def replaced(params: ContainerParams, before: State, found: ContainerState) -> Change | None:
    """The ``Change`` to end with when the name leads to another container than in ``before``, None when it does not.

    Raises:
        InvalidTargetError: and that one belongs to somebody else (``Reason.TARGET_CHANGED``).
    """
    if found.id == before["id"]:
        return None
    if owner(found) != before["owner"]:
        raise InvalidTargetError(
            f"container {found.name} has been made anew and now belongs to {owner(found) or 'nobody'},"
            f" before to {before['owner'] or 'nobody'}",
            target=ref(params, found),
            reason=Reason.TARGET_CHANGED,
        )
    now = state_of(found)
    return Change(changed=False, before=now, after=now, detail="replaced since it was looked at: nothing to do")


def is_other_process(before: State, found: ContainerState) -> bool:
    """Whether the same container has been started anew since ``before``."""
    return found.started_at != before["started_at"]


def grace_s(params: StoppingParams, found: ContainerState, timeout: timedelta) -> int:
    """How many seconds the container gets to stop by itself.

    Raises:
        InvalidTargetError: it wants to be waited for for ever, or longer than the attempt's ``timeout`` allows.
    """
    if params.stop_timeout is not None:
        grace = int(params.stop_timeout.total_seconds())
    elif found.stop_timeout_s is not None and found.stop_timeout_s < 0:
        raise InvalidTargetError(
            f"container {found.name} is made to be waited for for ever when it stops; write a stop_timeout in the step",
            target=ref(params, found),
        )
    else:
        grace = max(found.stop_timeout_s or 0, LEAST_OWN_GRACE_S)
    needed = timedelta(seconds=grace) + REACTION
    if needed > timeout:
        raise InvalidTargetError(
            f"container {found.name} gets {print_duration(timedelta(seconds=grace))} to stop, so the step needs a"
            f" timeout of at least {print_duration(needed)}, it has {print_duration(timeout)};"
            " raise timeout or write a shorter stop_timeout",
            target=ref(params, found),
        )
    return grace


def deadline_s(began: float, timeout: timedelta, grace_s: int | None = None) -> float:
    """How many seconds are left for the act itself.

    After a crash the engine takes a target that is as before, once ``timeout`` has passed, for one that was not
    touched. So an act must be over by then: it is not sent late.

    Args:
        began: ``time.monotonic()`` at the attempt's start.
        grace_s: what the container gets to stop by itself; None for an act that waits for no container.

    Raises:
        TransientActionError: too little; nothing was sent.
    """
    left_s = timeout.total_seconds() - (time.monotonic() - began)
    needed_s = LOOK_S if grace_s is None else grace_s + REACTION.total_seconds() - LOOK_S
    if left_s < needed_s:
        raise TransientActionError(
            f"the engine took so long for a look that only {left_s:.0f} s of {print_duration(timeout)} are left;"
            " nothing was sent"
        )
    return left_s


def least_timeout(params: StoppingParams) -> timedelta:
    """The shortest time-out of an attempt that waits for the container to stop."""
    return (params.stop_timeout or timedelta(seconds=LEAST_OWN_GRACE_S)) + REACTION


def look_after(params: ContainerParams, docker: DockerReader, found: ContainerState, done: str) -> ContainerState:
    """The same container after an act that the engine says it has ``done``.

    Raises:
        UnknownEffectError: it cannot be seen.
    """
    try:
        return docker.inspect(found.id)
    except TargetNotFoundError as error:
        raise UnknownEffectError(
            f"container {found.name} was {done} and is gone since", target=ref(params, found)
        ) from error
    except ActionError as error:
        raise UnknownEffectError(
            f"container {found.name} was {done}, the engine says, but cannot be looked at: {error}",
            target=ref(params, found),
        ) from error


def unseen(params: ContainerParams, found: ContainerState, done: str, after: ContainerState) -> UnknownEffectError:
    """The engine says that it is done, and a look says otherwise."""
    return UnknownEffectError(
        f"the engine says that container {found.name} was {done}, but it is {after.status},"
        f" started at {after.started_at or 'no time'}",
        target=ref(params, found),
    )
