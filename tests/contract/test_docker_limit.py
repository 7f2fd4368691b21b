"""``docker.limit`` on a fake and on a real Docker engine: what it sets, what the kernel then says, and the way back."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import pytest
from ruamel.yaml import YAML

from conftest_docker import Trainer
from realparts.docker_engine import IDLE, DockerEngine
from remediator import errors
from remediator.actions import REGISTRY
from remediator.clients.dockerd import Dockerd
from remediator.clients.fake import FakeWorld
from remediator.clients.ports import Clients, CpuLimit, DockerHost
from remediator.core.action import State
from remediator.core.outcome import Effect
from remediator.core.scenario import Failure

HOST = "gpu-07"
TIMEOUT = timedelta(minutes=1)
LIMIT: Any = REGISTRY["docker.limit"]
TABLE = YAML(typ="safe").load(Path(__file__).parents[1] / "data" / "docker_limit.yaml")

OTHER_OWNER = {"com.docker.compose.project": "other", "com.docker.compose.service": "x"}
HAND = {"nano_cpus": "NanoCpus", "period_us": "CpuPeriod", "quota_us": "CpuQuota"}
MADE = {"nano_cpus": "nano_cpus", "period_us": "cpu_period", "quota_us": "cpu_quota"}


def rows(heap: str) -> list[Any]:
    return [pytest.param(row, id=row["id"]) for row in TABLE[heap]]


class World(Protocol):
    """Containers to limit, in memory or real."""

    clients: Clients

    def make(self, made: Mapping[str, Any]) -> str: ...

    def later(self, name: str, then: str | Mapping[str, int]) -> None: ...

    def kernel(self, name: str) -> list[int] | None:
        """Period and quota as its cgroup has them, None where there is no kernel to ask."""
        ...

    def n_writes(self) -> int: ...


class Fake:
    """In memory."""

    def __init__(self) -> None:
        self.world = FakeWorld(lambda: datetime(2026, 1, 1, tzinfo=UTC))
        self.world.add_host(HOST)
        self.clients = self.world.clients()

    def make(self, made: Mapping[str, Any]) -> str:
        limit = CpuLimit(**{key: made[key] for key in MADE if key in made})
        status, labels = made.get("status", "running"), made.get("labels")
        return self.world.add_container(HOST, "trainer-0", status=status, labels=labels, cpu=limit).name

    def later(self, name: str, then: str | Mapping[str, int]) -> None:
        match then:
            case "restarted" | "stopped":
                self.world.set_status(HOST, name, "exited")
                if then == "restarted":
                    self.world.set_status(HOST, name, "running")
            case "replaced":
                self.world.add_container(HOST, name)
            case "replaced by another owner":
                self.world.add_container(HOST, name, labels=OTHER_OWNER)
            case Mapping():
                self.world.set_cpu(HOST, name, replace(self.world.container(HOST, name).cpu, **then))

    def kernel(self, name: str) -> list[int] | None:
        return None

    def n_writes(self) -> int:
        return len(self.world.writes)


class Counted(Dockerd):
    """The real adapter, with its acts counted."""

    n_acts = 0

    def _act(self, *args: Any) -> None:
        self.n_acts += 1
        super()._act(*args)


class Real:
    """A real engine."""

    def __init__(self, engine: DockerEngine, trainer: Trainer) -> None:
        self._engine = engine
        self._trainer = trainer
        self._docker = Counted(DockerHost(name=HOST, url=engine.url))
        self.clients = Clients(dockers={HOST: self._docker}, notifier=FakeWorld(lambda: TIME).clients().notifier)

    def make(self, made: Mapping[str, Any]) -> str:
        limits = {MADE[key]: made[key] for key in MADE if key in made}
        status = made.get("status", "running")
        name: str = self._trainer(IDLE, limits=limits, labels=made.get("labels"), starts=status != "created")
        if status == "exited":
            self._container(name).stop(timeout=5)
        if status == "paused":
            self._container(name).pause()
        return name

    def later(self, name: str, then: str | Mapping[str, int]) -> None:
        match then:
            case "restarted":
                self._container(name).restart(timeout=5)
            case "stopped":
                self._container(name).stop(timeout=5)
            case "replaced" | "replaced by another owner":
                self._engine.remove(name)
                self._engine.run(name, labels={} if then == "replaced" else OTHER_OWNER)
            case Mapping():
                api = self._engine.client.api
                url = f"{api.base_url}/v{api.api_version}/containers/{name}/update"
                api.post(url, json={HAND[key]: value for key, value in then.items()}, timeout=30).raise_for_status()

    def kernel(self, name: str) -> list[int] | None:
        container = self._container(name)
        if container.status == "paused":
            container.unpause()
        quota_us, period_us = self._engine.cpu_cgroup(name)
        return [period_us, -1 if quota_us is None else quota_us]

    def n_writes(self) -> int:
        return self._docker.n_acts

    def _container(self, name: str) -> Any:
        return self._engine.client.containers.get(name)


TIME = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(params=["fake", pytest.param("docker", marks=pytest.mark.docker)])
def world(request: pytest.FixtureRequest) -> World:
    if request.param == "fake":
        return Fake()
    return Real(request.getfixturevalue("docker_engine"), request.getfixturevalue("trainer"))


def params_for(container: str, cpus: object = "0.5") -> Any:
    return LIMIT.params_model.model_validate({"container": container, "host": HOST, "cpus": cpus})


def limit_in(state: State) -> list[Any]:
    return [state["nano_cpus"], state["cpu_period_us"], state["cpu_quota_us"]]


@pytest.mark.parametrize("row", rows("limited"))
def test_limit_when_set_and_set_again_and_undone_twice_then_the_kernel_says_so_and_all_is_as_before(
    row: Any, world: World
) -> None:
    name = world.make(row["made"])
    params = params_for(name, row["cpus"])
    before = LIMIT.observe(params, world.clients)
    assert LIMIT.would_change(params, before)

    change = LIMIT.apply(params, world.clients, before, TIMEOUT)
    left = LIMIT.observe(params, world.clients)
    again = LIMIT.apply(params, world.clients, left, TIMEOUT)

    assert (change.changed, limit_in(change.after), change.detail) == (True, row["limit"], row.get("detail", ""))
    assert (again.changed, LIMIT.would_change(params, left), change.after) == (False, False, left)
    assert (LIMIT.standing(left, left), LIMIT.standing(left, before)) == ("as_left", "drifted")
    assert world.kernel(name) in (None, row["kernel"]) if "kernel" in row else not left["pid"]

    undone = LIMIT.undo(params, world.clients, left, before, TIMEOUT)
    back = LIMIT.observe(params, world.clients)
    twice = LIMIT.undo(params, world.clients, left, before, TIMEOUT)

    assert (undone.changed, twice.changed, limit_in(back)) == (True, False, row["back"])
    assert (LIMIT.standing(before, back), LIMIT.standing(left, back)) == ("as_left", "drifted")
    assert world.kernel(name) in (None, row["kernel_back"]) if "kernel" in row else not back["pid"]
    assert world.n_writes() == 2


@pytest.mark.parametrize("row", rows("unchanged"))
def test_limit_when_the_container_may_not_use_more_then_unchanged(row: Any, world: World) -> None:
    params = params_for(world.make(row["made"]), row["cpus"])
    before = LIMIT.observe(params, world.clients)

    change = LIMIT.apply(params, world.clients, before, TIMEOUT)

    assert (change.changed, change.detail) == (False, "it may not use more already")
    assert (LIMIT.would_change(params, before), LIMIT.observe(params, world.clients)) == (False, before)
    assert world.n_writes() == 0


@pytest.mark.parametrize("row", rows("refused"))
def test_limit_when_it_could_not_be_set_back_or_is_anothers_then_refused_and_nothing_is_done(
    row: Any, world: World
) -> None:
    name = world.make(row["made"])
    params = params_for(name, row["cpus"])

    def look_and_act() -> None:
        before = LIMIT.observe(params, world.clients)
        if "then" in row:
            world.later(name, row["then"])
        LIMIT.apply(params, world.clients, before, TIMEOUT)

    with pytest.raises(getattr(errors, row["raises"]), match=row["says"]):
        look_and_act()
    assert world.n_writes() == row["writes"]


@pytest.mark.parametrize("row", rows("afterwards"))
def test_undo_when_something_happened_to_the_container_meanwhile_then_only_what_we_left_is_taken_back(
    row: Any, world: World
) -> None:
    name = world.make(row.get("made", {}))
    params = params_for(name)
    before = LIMIT.observe(params, world.clients)
    left = LIMIT.apply(params, world.clients, before, TIMEOUT).after

    world.later(name, row["then"])
    now = LIMIT.observe(params, world.clients)

    assert LIMIT.standing(left, now) == row["standing"]
    if "raises" in row:
        with pytest.raises(errors.ConflictError, match=row["raises"]):
            LIMIT.undo(params, world.clients, left, before, TIMEOUT)
        assert LIMIT.observe(params, world.clients) == now
    else:
        assert LIMIT.undo(params, world.clients, left, before, TIMEOUT).changed == row["undone"]
        assert LIMIT.standing(before, LIMIT.observe(params, world.clients)) == "as_left"


def test_limits_when_two_stand_on_one_container_then_the_lower_goes_with_the_upper(world: World) -> None:
    name = world.make({"nano_cpus": 1_500_000_000})
    first, second = params_for(name, 1), params_for(name, "0.5")
    lower = LIMIT.apply(first, world.clients, LIMIT.observe(first, world.clients), TIMEOUT)
    upper = LIMIT.apply(second, world.clients, LIMIT.observe(second, world.clients), TIMEOUT)

    with pytest.raises(errors.ConflictError):
        LIMIT.undo(first, world.clients, lower.after, lower.before, TIMEOUT)
    undone = LIMIT.undo(second, world.clients, upper.after, lower.before, TIMEOUT)

    assert (undone.changed, limit_in(undone.after)) == (True, [1_500_000_000, 0, 0])


@pytest.mark.docker
def test_limit_when_set_then_nothing_else_of_the_container_is_changed(
    docker_engine: DockerEngine, trainer: Trainer
) -> None:
    limits = {"mem_limit": "64m", "pids_limit": 50, "cpu_shares": 512, "cpuset_cpus": "0"}
    name = trainer(IDLE, limits=limits, restart_policy="always")
    world = Real(docker_engine, trainer)
    params = params_for(name)
    host_config = docker_engine.client.api.inspect_container(name)["HostConfig"]

    LIMIT.apply(params, world.clients, LIMIT.observe(params, world.clients), TIMEOUT)

    assert docker_engine.client.api.inspect_container(name)["HostConfig"] == {**host_config, "CpuQuota": 50_000}


@pytest.mark.docker
def test_undo_when_others_set_cpus_afterwards_then_docker_keeps_to_them_until_the_next_start_alone(
    docker_engine: DockerEngine, trainer: Trainer
) -> None:
    world = Real(docker_engine, trainer)
    name = world.make({})
    params = params_for(name)
    change = LIMIT.apply(params, world.clients, LIMIT.observe(params, world.clients), TIMEOUT)
    LIMIT.undo(params, world.clients, change.after, change.before, TIMEOUT)

    world.later(name, {"nano_cpus": 10**9})
    now = world.kernel(name)
    world.later(name, "restarted")

    # What docs/limits.md says of it: the quota that was lifted outranks the CPUs at a start.
    assert (now, world.kernel(name)) == ([100_000, 100_000], [100_000, -1])


@pytest.mark.docker
def test_limit_when_the_engine_has_fewer_cpus_than_the_container_had_then_refused_before_anything_is_done(
    private_docker_engine: DockerEngine,
) -> None:
    engine_cpus = sorted(os.sched_getaffinity(private_docker_engine.pid))
    if len(engine_cpus) < 2:
        pytest.skip("needs an engine with two CPUs, to take one away")
    private_docker_engine.run("trainer-0", limits={"nano_cpus": 2 * 10**9})
    docker = Dockerd(DockerHost(name=HOST, url=private_docker_engine.url))
    clients = Clients(dockers={HOST: docker}, notifier=Fake().clients.notifier)
    params = params_for("trainer-0")
    before = LIMIT.observe(params, clients)

    # As after a CPU went offline. Which ones there are is asked by the thread that answers.
    for thread in Path(f"/proc/{private_docker_engine.pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), engine_cpus[:1])

    with pytest.raises(errors.PermanentActionError, match=r"could be set back.*Range of CPUs"):
        LIMIT.apply(params, clients, before, TIMEOUT)
    assert LIMIT.observe(params, clients) == before


def test_limit_when_the_fake_engine_has_fewer_cpus_than_the_container_had_then_refused_likewise() -> None:
    fake = Fake()
    params = params_for(fake.make({"nano_cpus": 2 * 10**9}))
    fake.world.set_n_cpus(HOST, 1)
    with pytest.raises(errors.PermanentActionError, match="range of CPUs"):
        LIMIT.apply(params, fake.clients, LIMIT.observe(params, fake.clients), TIMEOUT)
    assert fake.n_writes() == 0


@pytest.mark.parametrize(
    ("how", "raises", "effect"),
    [
        (Failure.TRANSIENT, errors.TransientActionError, Effect.AS_BEFORE),
        (Failure.PERMANENT, errors.PermanentActionError, Effect.AS_BEFORE),
        (Failure.TIMEOUT_AFTER_EFFECT, errors.UnknownEffectError, Effect.HAPPENED),
        (Failure.UNKNOWN, errors.UnknownEffectError, Effect.UNCLEAR),
    ],
)
@pytest.mark.parametrize("made", [{}, {"nano_cpus": 10**9}])
def test_limit_when_it_is_scripted_to_fail_then_a_look_tells_what_the_words_mean(
    made: Mapping[str, int], how: Failure, raises: type[errors.ActionError], effect: Effect
) -> None:
    fake = Fake()
    params = params_for(fake.make(made))
    before = LIMIT.observe(params, fake.clients)
    fake.world.fail("docker.limit", how)

    with pytest.raises(raises):
        LIMIT.apply(params, fake.clients, before, TIMEOUT)

    assert LIMIT.effect(params, before, LIMIT.observe(params, fake.clients)) is effect


def test_limit_when_others_set_another_while_no_answer_came_then_nobody_knows_whether_it_happened() -> None:
    fake = Fake()
    params = params_for(fake.make({}))
    before = LIMIT.observe(params, fake.clients)
    fake.world.set_cpu(HOST, "trainer-0", CpuLimit(quota_us=70_000))
    assert LIMIT.effect(params, before, LIMIT.observe(params, fake.clients)) is Effect.UNCLEAR
