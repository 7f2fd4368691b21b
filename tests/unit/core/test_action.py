"""The looking half of an action: everything but its acts."""

from __future__ import annotations

from typing import Any

import pytest

from remediator.actions import LOOKING, REGISTRY
from remediator.actions.docker_limit import DockerLimit
from remediator.core.action import ACTS, Action, LookingAction, UndoableAction, looking_half


def declared(protocol: type) -> set[str]:
    """What a protocol asks for."""
    return {name for kind in protocol.__mro__ for name in (*vars(kind), *vars(kind).get("__annotations__", {}))}


def test_acts_when_held_against_the_protocols_then_they_are_what_the_looking_half_lacks() -> None:
    assert declared(UndoableAction) - declared(LookingAction) == ACTS | {"standing"}
    assert ACTS & declared(LookingAction) == set()


@pytest.mark.parametrize("name", REGISTRY)
def test_looking_half_when_made_of_an_action_then_it_has_all_but_its_acts(name: str) -> None:
    looking, action = LOOKING[name], REGISTRY[name]

    has = {member for member in dir(action) if not member.startswith("__")}
    assert {member for member in dir(looking) if not member.startswith("__")} == has - ACTS
    assert not isinstance(looking, type(action))


def test_looking_half_when_a_method_needs_the_class_that_acts_then_says_so() -> None:
    class Careful(DockerLimit):
        def describe(self, params: Any) -> str:
            return f"carefully {super().describe(params)}"

    with pytest.raises(TypeError, match=r"^Careful\.describe says super\(\): name the class that it means instead$"):
        looking_half(Careful())


def test_looking_half_when_only_an_act_says_super_then_it_is_made() -> None:
    class Careful(DockerLimit):
        def apply(self, *given: Any) -> Any:
            return super().apply(*given)

    careful: Action[Any] = Careful()
    assert not hasattr(looking_half(careful), "apply")
