"""Every action, by name. One file per action, ``<system>_<verb>.py``; copy ``noop.py`` to write one.

A module here whose name does not begin with ``_`` defines exactly one action class; importing this package imports them
all, so that a broken one stops the program at its start and not at the first alert that needs it.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Mapping
from types import MappingProxyType, ModuleType
from typing import Any, cast

from remediator.core.action import Action, LookingAction, looking_half


def _action_of(module: ModuleType) -> Action[Any]:
    """The one action that a module defines.

    Raises:
        TypeError: none or several, or its name does not fit its file.
    """
    found = [
        kind
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if kind.__module__ == module.__name__ and hasattr(kind, "apply")
    ]
    if len(found) != 1:
        raise TypeError(f"{module.__name__} must define one action class, it defines {len(found)}")
    action = cast("Action[Any]", found[0]())
    file_name = module.__name__.rpartition(".")[2]
    if action.name.replace(".", "_") != file_name:
        raise TypeError(f"{module.__name__}: the action {action.name!r} belongs in {action.name.replace('.', '_')}.py")
    return action


def _discover() -> Mapping[str, Action[Any]]:
    names = sorted(info.name for info in pkgutil.iter_modules(__path__) if not info.name.startswith("_"))
    actions = [_action_of(importlib.import_module(f"{__name__}.{name}")) for name in names]
    return MappingProxyType({action.name: action for action in actions})


REGISTRY: Mapping[str, Action[Any]] = _discover()
"""Action by its name (``docker.restart``), sorted. Fixed at import."""

LOOKING: Mapping[str, LookingAction[Any]] = MappingProxyType(
    {name: looking_half(action) for name, action in REGISTRY.items()}
)
"""The same without their acts: all that a dry run may hold."""
