"""The one extension point: an action changes the world, and owns everything about itself.

A new action is one file in ``actions/`` and one test. Copy ``actions/noop.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from types import FunctionType
from typing import Any, ClassVar, Protocol, TypeVar, cast

from pydantic import BaseModel, ConfigDict

from remediator.core.outcome import Effect

JsonValue = str | int | bool | Sequence["JsonValue"] | Mapping[str, "JsonValue"]
"""All that may stand in the audit log: no floats, no None, so that every label can be written canonically."""

State = Mapping[str, JsonValue]
"""What an action saw of its target: enough to tell later whether an attempt happened."""


ALL_LABELS = "{{ labels }}"
"""The one default of a param that is a map: every label of the alert that the plan was made from, as it is."""


class ActionParams(BaseModel):
    """Base of every action's params: unknown keys refused, frozen. Values come rendered, as text or YAML scalars.

    Attributes:
        target_params: fields that together name what it touches; () where nothing is named. By these, advice finds two
            playbooks that would touch one thing.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    target_params: ClassVar[tuple[str, ...]] = ()


class TargetKind(StrEnum):
    """What a target is; a policy's ``protect`` lines match on it as ``kind``."""

    CONTAINER = "container"
    NODE = "node"
    POD = "pod"
    GPU = "gpu"


class UndoWhen(StrEnum):
    """When what an action did is taken back, unless the playbook says otherwise."""

    RESOLVED = "resolved"
    NEVER = "never"


class Standing(StrEnum):
    """How a target's state compares with what we last left it in."""

    AS_LEFT = "as_left"
    DRIFTED = "drifted"
    """Others changed it."""
    REVERTED = "reverted"
    """A reboot, a reset or a new incarnation took our change away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The one thing an act touches, as it really is now.

    Attributes:
        ref: canonical name, what reservations and cooldowns count on (``docker:gpu-07/trainer-0``).
        kind: what it is.
        uid: the system's own id of this incarnation (container id, pod UID); changes when it is replaced.
        name: its name in its system.
        host, cluster, node, namespace: where it is, "" where that does not apply.
        owner: who will bring it back or owns it (``compose:stack/service``), "" when nobody.
        labels: the real object's own labels.
        contained_in: refs of what contains it; reserved shared where the target is reserved exclusively.
        state: what it is doing now, for a dry run to show (``running``).
    """

    ref: str
    kind: TargetKind
    uid: str
    name: str
    host: str = ""
    cluster: str = ""
    node: str = ""
    namespace: str = ""
    owner: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    contained_in: tuple[str, ...] = ()
    state: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Targeting:
    """What an act touches and what would be touched with it.

    Attributes:
        targets: usually one; none for messages.
        affects: what the act would also end (the pods of a drain), without the targets themselves.
    """

    targets: tuple[Target, ...] = ()
    affects: tuple[Target, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What ``apply`` did.

    Attributes:
        changed: False when the target was already so: the step is ``unchanged``.
        before, after: states, kept in the audit.
        detail: one line for people, "" when there is nothing to add.
    """

    changed: bool
    before: State
    after: State
    detail: str = ""


P = TypeVar("P", bound=ActionParams, contravariant=True)


class LookingAction(Protocol[P]):
    """What an action knows and sees, without what it does: all that loading, planning and a dry run need.

    Instances keep no state; ``clients`` is the bundle from ``clients.ports``.

    Attributes:
        name: ``system.verb`` (``docker.restart``); the file is ``docker_restart.py``.
        params_model: the pydantic model of ``params``; its field descriptions become the reference page.
        is_disruptive: interrupts work; starts cooldowns and counts in limits.
        is_idempotent: doing it twice equals doing it once, so an unclear attempt may be tried again.
        is_message: touches nothing but tells people; has no targets.
        late_params: fields that name no target, so may hold values known only at the step's turn.
        param_defaults: field → template, used where the playbook leaves the field out (``{"host": "{{ host }}"}``),
            or ``ALL_LABELS``.
        default_timeout: of one attempt, where the playbook sets none.
        default_undo: when what it did is taken back; None = it cannot be undone. Otherwise it is an ``UndoableAction``.
    """

    name: ClassVar[str]
    params_model: ClassVar[type[ActionParams]]
    is_disruptive: ClassVar[bool]
    is_idempotent: ClassVar[bool]
    is_message: ClassVar[bool]
    late_params: ClassVar[frozenset[str]]
    param_defaults: ClassVar[Mapping[str, str]]
    default_timeout: ClassVar[timedelta]
    default_undo: ClassVar[UndoWhen | None]

    def describe(self, params: P) -> str:
        """One line, imperative, without the reason: ``restart container trainer-0 on gpu-07``."""
        ...

    def min_timeout(self, params: P) -> timedelta:
        """The shortest attempt time-out that makes sense (``stop_timeout`` + 30 s); checked at load and at plan."""
        ...

    def targets(self, params: P, clients: Any) -> Targeting:
        """Look the targets up. Read-only.

        Raises:
            ActionError: as the client's error table has it.
        """
        ...

    def observe(self, params: P, clients: Any) -> State:
        """The target's state now, read-only; kept by ``attempt_started`` as the state before.

        Raises:
            ActionError: as the client's error table has it.
        """
        ...

    def would_change(self, params: P, now: State) -> bool:
        """Whether ``apply`` would change anything, by the state that ``observe`` gave. Pure.

        People are not asked to approve what would change nothing. When in doubt: True.
        """
        ...

    def effect(self, params: P, before: State, now: State) -> Effect:
        """Did an attempt that gave no answer happen? Pure. ``HAPPENED`` needs evidence."""
        ...


LookingActions = Mapping[str, LookingAction[Any]]
"""By name: enough to load, plan and look with. Nobody who does no more needs what acts."""


class Action(LookingAction[P], Protocol[P]):
    """What every action is: it looks, and it acts."""

    def apply(self, params: P, clients: Any, before: State, timeout: timedelta) -> Change:
        """Do it, within ``timeout`` (the client's own deadline). Check that the target is the one in ``before``.

        Raises:
            TransientActionError: it did not happen.
            PermanentActionError: it did not happen and would not.
            UnknownEffectError: it was sent, and no answer came.
        """
        ...


class UndoableAction(Action[P], Protocol[P]):
    """An action whose change can be taken back: restores only what it changed, and only over the state that it left."""

    def standing(self, left: State, now: State) -> Standing:
        """How the state of now compares with the one that ``apply`` (or an ``undo``) left. Pure."""
        ...

    def undo(self, params: P, clients: Any, left: State, restore: State, timeout: timedelta) -> Change:
        """Bring the target from ``left`` back to ``restore``, by compare-and-swap, within ``timeout``.

        Doing it again over a target that is as in ``restore`` changes nothing (``Change.changed`` is False).

        Raises:
            ConflictError: the target is in neither state: nothing was done.
            TransientActionError, PermanentActionError, UnknownEffectError: as ``apply``.
        """
        ...


ACTS = frozenset({"apply", "undo"})
"""The methods of an action that change the world; all others look."""


def looking_half(action: Action[Any]) -> LookingAction[Any]:
    """The action without its acts: an instance of a new class that has everything but ``apply`` and ``undo``.

    Made of the class itself, so that an action stays one class in one file. It does not derive from it: what inherits
    an ``apply`` could be made to call it. Whoever holds this has nothing to act with.

    Raises:
        TypeError: a method says ``super()``, which holds on to the class that acts; name the other class instead.
    """
    members: dict[str, Any] = {}
    for kind in reversed(type(action).__mro__):
        for name, member in vars(kind).items():
            if name in ACTS or (name.startswith("__") and name.endswith("__")):
                continue
            if isinstance(member, FunctionType) and "__class__" in member.__code__.co_freevars:
                raise TypeError(f"{kind.__name__}.{name} says super(): name the class that it means instead")
            members[name] = member
    return cast("LookingAction[Any]", type(f"Looking{type(action).__name__}", (), members)())
