"""A dry run has nothing to act with: from what it is given no action that acts and no client that writes is reached.

What it is given is taken where ``dry_run`` is called, and walked through as the garbage collector does: attributes,
containers, closures, bound methods. Classes and modules are left out: whoever can import can do anything.
"""

from __future__ import annotations

import functools
import gc
import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import pytest

import remediator.app
from remediator.actions import REGISTRY
from remediator.app import App, DryApp, build_dry_app, docker_hosts
from remediator.clients.alertmanager import SilencingAlertmanager
from remediator.clients.dockerd import Dockerd
from remediator.clients.notifier import AppriseNotifier
from remediator.clients.ports import AlertmanagerReader, AlertmanagerWriter, Docker, DockerReader, Notifier
from remediator.core.action import ACTS
from remediator.engine.dryrun import Wiring
from remediator.store.engine import Store
from remediator.store.writer import Tx, Writer


def methods(port: type) -> set[str]:
    return {name for kind in port.__mro__ for name in vars(kind) if not name.startswith("_")}


WRITES = (methods(Docker) - methods(DockerReader)) | (methods(AlertmanagerWriter) - methods(AlertmanagerReader))
WRITES |= methods(Notifier)

NOT_WALKED = (type, ModuleType, CodeType, FrameType, BuiltinFunctionType)


def parts(value: object) -> list[object]:
    """What an object holds; of a function all but the module that it stands in."""
    if isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or () if cell != type(cell)()]
        return [*cells, value.__defaults__, value.__kwdefaults__, value.__dict__]
    return list(gc.get_referents(value))


def reachable(root: object) -> Iterator[tuple[object, str]]:
    """Everything that is reached from it, with the way there by types."""
    seen: dict[int, object] = {}
    waiting: list[tuple[object, str]] = [(root, "")]
    while waiting:
        value, way = waiting.pop()
        if id(value) in seen or isinstance(value, NOT_WALKED):
            continue
        seen[id(value)] = value  # held, so that no other object gets its id
        way = f"{way} > {type(value).__name__}"
        yield value, way
        waiting += [(part, way) for part in parts(value)]


def acting(root: object) -> Iterator[str]:
    """Where something stands that could act: an act or undo, a client's write, or the store's writer."""
    for value, way in reachable(root):
        kind = type(value)
        has = {name for name in ACTS | WRITES if callable(inspect.getattr_static(value, name, None))}
        is_ours = kind.__module__.partition(".")[0] not in sys.stdlib_module_names
        if (has and is_ours) or isinstance(value, Store | Writer | Tx):
            yield f"{way}: {', '.join(sorted(has)) or 'writes the store'}"


PLAYBOOK = """
playbook: restart
match: [alertname = Stuck]
steps:
  - {name: restart, action: docker.restart, params: {host: gpu-07, container: trainer-0}}
escalate: {to: [oncall]}
"""
ALERTMANAGER = "http://127.0.0.1:1"


@pytest.fixture
def engine(bench: Any) -> App:
    """A running engine, with every kind of client in its settings."""
    bench.playbook(PLAYBOOK)
    bench.start(alertmanager={"urls": [ALERTMANAGER]})
    bench.after("1m")
    app: App = bench.engine
    return app


def ask_dry(engine: App, dry: DryApp) -> object:
    return dry.dry_run(b"")


def ask_dry_of_the_past(engine: App, dry: DryApp) -> object:
    return dry.dry_run(b"", at=engine._clock.now() - timedelta(seconds=30))


def ask_dry_of_the_future(engine: App, dry: DryApp) -> object:
    return dry.dry_run(b"", at=engine._clock.now() + timedelta(days=3650))


def ask_difference(engine: App, dry: DryApp) -> object:
    return dry.difference(b"", list(engine.settings.playbooks))


def ask_engine(engine: App, dry: DryApp) -> object:
    return engine.dry_run(b"")


Ask = Callable[[App, DryApp], object]
ASKS = [ask_dry, ask_dry_of_the_past, ask_dry_of_the_future, ask_difference, ask_engine]


@pytest.fixture
def given(engine: App, monkeypatch: pytest.MonkeyPatch) -> Callable[[Ask, Callable[[Wiring], Any]], list[Any]]:
    """What a look at each wiring says that ``dry_run`` is called with."""

    def look(ask: Ask, at: Callable[[Wiring], Any]) -> list[Any]:
        said = []

        def dry_run(body: bytes, wiring: Wiring, **_: Any) -> dict[str, Any]:
            said.append(at(wiring))
            return {"alerts": [], "bad_alerts": []}

        monkeypatch.setattr(remediator.app, "dry_run", dry_run)
        ask(engine, build_dry_app(engine.settings))
        return said

    return look


def kinds(wiring: Wiring) -> set[str]:
    return {type(value).__name__ for value, _ in reachable(wiring)}


LOOKING = {f"Looking{type(action).__name__}" for action in REGISTRY.values()}


@pytest.mark.parametrize("ask", ASKS)
def test_dry_run_when_its_wiring_is_walked_through_then_all_that_looks_is_reached_and_nothing_that_acts(
    given: Any, ask: Ask
) -> None:
    said = given(ask, lambda wiring: (kinds(wiring), list(acting(wiring))))

    assert said
    for reached, found in said:
        assert reached >= {"DockerdReader", "Alertmanager", "Prometheus", "Conditions", *LOOKING}
        assert found == []


def test_dry_app_when_walked_through_then_nothing_that_acts_is_reached(engine: App) -> None:
    assert list(acting(build_dry_app(engine.settings))) == []


PUT_IN: dict[str, Callable[[App, Wiring], object]] = {
    "the actions themselves": lambda engine, wiring: replace(wiring, actions=REGISTRY),
    "one action among the others": lambda engine, wiring: replace(
        wiring, actions={**wiring.actions, "docker.restart": REGISTRY["docker.restart"]}
    ),
    "an act in a closure": lambda engine, wiring: replace(
        wiring, pause=lambda _, act=REGISTRY["docker.limit"]: act and None
    ),
    "a bound undo": lambda engine, wiring: replace(
        wiring,
        pause=functools.partial(REGISTRY["docker.limit"].undo),  # type: ignore[attr-defined]
    ),
    "a Docker engine that is acted on": lambda engine, wiring: replace(
        wiring,
        clients=replace(wiring.clients, dockers={n: Dockerd(h) for n, h in docker_hosts(engine.settings).items()}),
    ),
    "an Alertmanager that is silenced": lambda engine, wiring: replace(
        wiring, clients=replace(wiring.clients, alertmanagers={"a": SilencingAlertmanager(ALERTMANAGER)})
    ),
    "somebody who tells people": lambda engine, wiring: [wiring, {"notifier": (AppriseNotifier({}),)}],
    "the engine's clients": lambda engine, wiring: replace(wiring, clients=engine._clients),
    "the engine's conditions, whose metrics know the engine": lambda engine, wiring: replace(
        wiring, conditions=engine.conditions
    ),
    "the engine's store": lambda engine, wiring: replace(wiring, read=engine._store.read),
    "a method set on an instance": lambda engine, wiring: [wiring, with_attribute("apply")],
}


def with_attribute(name: str) -> object:
    class Plain:
        pass

    made = Plain()
    setattr(made, name, print)
    return made


@pytest.mark.parametrize("what", PUT_IN)
def test_walk_when_something_that_acts_is_put_in_then_it_is_found(given: Any, engine: App, what: str) -> None:
    (found,) = given(ask_dry, lambda wiring: next(acting(PUT_IN[what](engine, wiring)), None))

    assert found is not None
