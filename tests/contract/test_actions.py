"""Every action keeps its promises, in a world in memory and on a real Docker engine, and both worlds agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import docker.models.containers
import pytest
from ruamel.yaml import YAML

from realparts import docker_engine as engines
from realparts.docker_engine import DockerEngine
from remediator import errors
from remediator.actions import REGISTRY
from remediator.clients.dockerd import Dockerd, DockerdReader
from remediator.clients.fake import FakeWorld
from remediator.clients.ports import Clients, DockerHost, ReadOnlyClients
from remediator.core.outcome import Effect
from remediator.core.scenario import Failure
from remediator.testing import assert_action_contract

HOST = "gpu-07"
SITUATIONS = YAML(typ="safe").load(Path(__file__).parents[1] / "data" / "docker_actions.yaml")
TIMEOUT = timedelta(minutes=5)

EXAMPLES: Mapping[str, tuple[str, dict[str, Any]]] = {
    "alertmanager.silence": ("", {"duration": "2h", "labels": {"alertname": "GPUHot"}, "run": "playbook a, 1"}),
    "docker.restart": ("running", {"stop_timeout": "2s"}),
    "docker.stop": ("running", {}),
    "docker.start": ("exited", {}),
    "docker.signal": ("running", {"signal": "usr1"}),
    "docker.limit": ("running", {"cpus": 0.5}),
    "notify.send": ("", {"to": ["oncall"], "title": "trainer-0 leaks", "body": "<b>not bold</b>"}),
    "noop": ("", {"note": "trying out"}),
}
"""Params that each action can do something with, and the state of the container that they name, "" for none."""


NEEDED: Mapping[str, dict[str, Any]] = {"docker.signal": {"signal": "SIGUSR1"}, "docker.limit": {"cpus": "0.5"}}
"""Params that an action cannot do without, beside the container's."""


class World(Protocol):
    """Containers to act on, in memory or real."""

    clients: Clients
    read_only: ReadOnlyClients

    def make(self, *, status: str, labels: Mapping[str, str], stop_timeout_s: int | None) -> str: ...

    def later(self, name: str, what: str) -> None: ...

    def n_writes(self) -> int: ...


class FakeContainers:
    """A world in memory."""

    def __init__(self) -> None:
        self.world = FakeWorld(lambda: datetime(2026, 1, 1, tzinfo=UTC))
        self.world.add_host(HOST)
        self.world.add_notify_target("oncall")
        self.world.add_alertmanager("http://am-1:9093")
        self.clients = self.world.clients()
        self.read_only = self.world.read_only()

    def make(self, *, status: str, labels: Mapping[str, str], stop_timeout_s: int | None) -> str:
        return self.world.add_container(
            HOST, "trainer-0", status=status, labels=labels, stop_timeout_s=stop_timeout_s
        ).name

    def later(self, name: str, what: str) -> None:
        match what:
            case "replaced":
                self.world.add_container(HOST, name)
            case "replaced by another owner":
                self.world.add_container(HOST, name, labels=OTHER_OWNER)
            case "restarted":
                self.world.set_status(HOST, name, "exited")
                self.world.set_status(HOST, name, "running")
            case "removed":
                self.world.remove_container(HOST, name)

    def n_writes(self) -> int:
        return len(self.world.writes)


class CountedDocker(Dockerd):
    """The real adapter, with its acts counted."""

    n_acts = 0

    def _act(self, *args: Any) -> None:
        self.n_acts += 1
        super()._act(*args)


class RealContainers:
    """A real Docker engine; all else is in memory."""

    def __init__(self, engine: DockerEngine, trainer: Any, rest: FakeContainers) -> None:
        self._engine = engine
        self._trainer = trainer
        host = DockerHost(name=HOST, url=engine.url)
        self._docker = CountedDocker(host)
        self.clients = replace(rest.clients, dockers={HOST: self._docker})
        self.read_only = replace(rest.read_only, dockers={HOST: DockerdReader(host)})

    def make(self, *, status: str, labels: Mapping[str, str], stop_timeout_s: int | None) -> str:
        name: str = self._trainer(
            engines.CHECKPOINTING, labels=labels, stop_timeout_s=stop_timeout_s, starts=status != "created"
        )
        match status:
            case "exited":
                self._container(name).stop(timeout=5)
            case "paused":
                self._container(name).pause()
        return name

    def later(self, name: str, what: str) -> None:
        if what == "restarted":
            self._container(name).restart(timeout=5)
            return
        self._engine.remove(name)
        if what != "removed":
            self._engine.run(name, labels=OTHER_OWNER if what == "replaced by another owner" else {})

    def n_writes(self) -> int:
        return self._docker.n_acts

    def _container(self, name: str) -> docker.models.containers.Container:
        return self._engine.client.containers.get(name)


OTHER_OWNER = {"com.docker.compose.project": "other", "com.docker.compose.service": "x"}


@pytest.fixture(params=["fake", pytest.param("docker", marks=pytest.mark.docker)])
def world(request: pytest.FixtureRequest) -> World:
    fake = FakeContainers()
    if request.param == "fake":
        return fake
    engine, trainer = request.getfixturevalue("docker_engine"), request.getfixturevalue("trainer")
    return RealContainers(engine, trainer, fake)


@pytest.mark.parametrize("name", REGISTRY)
def test_action_when_it_can_act_then_it_keeps_every_promise(name: str, world: World) -> None:
    status, params = EXAMPLES[name]
    if status:
        container = world.make(status=status, labels={}, stop_timeout_s=None)
        params = {"container": container, "host": HOST, **params}
    change = assert_action_contract(REGISTRY[name], params, clients=world.clients, read_only=world.read_only)
    assert change.changed == (name != "noop")


@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in SITUATIONS])
def test_docker_action_when_in_a_situation_then_it_does_what_the_table_says(row: Any, world: World) -> None:
    action, given, expect = REGISTRY[row["action"]], row["given"], row["expect"]
    container = "trainer-that-is-absent"
    if not given.get("absent"):
        container = world.make(
            status=given["status"], labels=given.get("labels", {}), stop_timeout_s=given.get("stop_timeout_s")
        )
    params = action.params_model.model_validate(
        {"container": container, "host": HOST, **NEEDED.get(row["action"], {}), **row.get("params", {})}
    )

    def look_and_act() -> Any:
        before = action.observe(params, world.read_only)
        world.later(container, given.get("then", "")) if "then" in given else None
        return action.apply(params, world.clients, before, TIMEOUT)

    if "raises" in expect:
        with pytest.raises(getattr(errors, expect["raises"])) as caught:
            look_and_act()
        assert type(caught.value).__name__ == expect["raises"]
        assert (caught.value.reason.value, expect["says"] in str(caught.value)) == (expect["reason"], True)
    else:
        change = look_and_act()
        seen = {"changed": change.changed, "status": change.after["status"], "owner": change.after["owner"]}
        assert seen == {"owner": "", **{key: expect[key] for key in seen if key in expect}}
        assert change.detail == expect.get("detail", change.detail)
    assert world.n_writes() == expect["writes"]


@pytest.mark.parametrize("name", [name for name in REGISTRY if name.startswith("docker.")])
def test_docker_action_when_addressed_by_id_then_its_target_bears_the_name(name: str, world: World) -> None:
    container = world.make(status="running", labels={"team": "ml"}, stop_timeout_s=None)
    container_id = world.read_only.docker(HOST).inspect(container).id
    needed = NEEDED.get(name, {})
    for address in (container, container_id, container_id[:12]):
        params = REGISTRY[name].params_model.model_validate({"container": address, "host": HOST, **needed})
        (target,) = REGISTRY[name].targets(params, world.read_only).targets
        assert (target.ref, target.uid, target.labels["team"], target.state) == (
            f"docker:{HOST}/{container}",
            container_id,
            "ml",
            "running",
        )


def test_docker_action_when_a_label_is_only_the_beginning_of_an_id_then_nothing_is_found(world: World) -> None:
    container = world.make(status="running", labels={}, stop_timeout_s=None)
    container_id = world.read_only.docker(HOST).inspect(container).id
    with pytest.raises(errors.TargetNotFoundError):
        world.read_only.docker(HOST).inspect(container_id[:6])


def test_docker_action_when_its_target_is_the_engines_own_container_then_it_is_refused_as_protected() -> None:
    world = FakeWorld(lambda: datetime(2026, 1, 1, tzinfo=UTC))
    world.add_container(HOST, "remediator", is_engine=True)
    action = REGISTRY["docker.restart"]
    params = action.params_model.model_validate({"container": "remediator", "host": HOST})
    with pytest.raises(errors.InvalidTargetError) as caught:
        action.targets(params, world.read_only())
    assert caught.value.reason is errors.Reason.PROTECTED


@pytest.mark.parametrize(
    ("how", "raises", "effect"),
    [
        (Failure.TRANSIENT, errors.TransientActionError, Effect.AS_BEFORE),
        (Failure.PERMANENT, errors.PermanentActionError, Effect.AS_BEFORE),
        (Failure.TIMEOUT_AFTER_EFFECT, errors.UnknownEffectError, Effect.HAPPENED),
        (Failure.UNKNOWN, errors.UnknownEffectError, Effect.UNCLEAR),
    ],
)
@pytest.mark.parametrize("name", ["docker.restart", "docker.stop", "docker.start"])
def test_docker_action_when_it_is_scripted_to_fail_then_a_look_tells_what_the_words_mean(
    name: str, how: Failure, raises: type[errors.ActionError], effect: Effect
) -> None:
    fake = FakeContainers()
    container = fake.make(status=EXAMPLES[name][0], labels={}, stop_timeout_s=None)
    action = REGISTRY[name]
    params = action.params_model.model_validate({"container": container, "host": HOST})
    fake.world.fail(name, how)
    before = action.observe(params, fake.read_only)
    with pytest.raises(raises):
        action.apply(params, fake.clients, before, TIMEOUT)
    now = action.observe(params, fake.read_only)
    assert action.effect(params, before, now) is effect


def test_docker_action_when_its_engine_is_away_then_it_is_transient_and_nothing_was_asked() -> None:
    fake = FakeContainers()
    container = fake.make(status="running", labels={}, stop_timeout_s=None)
    action = REGISTRY["docker.restart"]
    params = action.params_model.model_validate({"container": container, "host": HOST})
    before = action.observe(params, fake.read_only)
    fake.world.set_away(HOST, is_away=True)
    with pytest.raises(errors.TransientActionError):
        action.apply(params, fake.clients, before, TIMEOUT)
    assert fake.world.writes == []


@pytest.mark.parametrize(
    ("how", "raises"),
    [(Failure.TRANSIENT, errors.TransientActionError), (Failure.UNKNOWN, errors.PermanentActionError)],
)
def test_notify_send_when_one_target_fails_then_the_others_are_told_and_the_cause_is_notify(
    how: Failure, raises: type[errors.ActionError]
) -> None:
    world = FakeWorld(lambda: datetime(2026, 1, 1, tzinfo=UTC))
    world.add_notify_target("first")
    world.add_notify_target("second")
    world.fail("notify.send", how)
    action = REGISTRY["notify.send"]
    params = action.params_model.model_validate({"to": ["first", "second"], "title": "t"})
    with pytest.raises(raises) as caught:
        action.apply(params, world.clients(), {}, TIMEOUT)
    assert caught.value.reason is errors.Reason.NOTIFY
    assert [(write.target, write.failed) for write in world.writes] == [("first", how), ("second", None)]


def test_read_only_clients_when_looked_through_then_nothing_can_act(docker_reader: DockerdReader) -> None:
    public = {name for name in dir(docker_reader) if not name.startswith("_")}
    assert public == {"inspect", "version"}
    assert not hasattr(ReadOnlyClients(dockers={HOST: docker_reader}), "notifier")
    held = vars(docker_reader)
    assert {type(value) for value in held.values()} == {DockerHost}


@pytest.fixture
def docker_reader() -> DockerdReader:
    return DockerdReader(DockerHost(name=HOST, url="unix:///nowhere/docker.sock"))
