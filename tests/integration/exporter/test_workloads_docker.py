"""What real processes of a real Docker engine and a real containerd belong to."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from conftest_docker import Trainer
from conftest_realparts import do_without
from realparts import containerd
from realparts.containerd import Containerd
from realparts.docker_engine import DockerEngine
from realparts.process import wait_until
from remediator.clients.dockerd import DockerdReader, own_container_id
from remediator.clients.ports import DockerHost
from remediator.exporter import docker_names
from remediator.exporter.cgroup import Place, place_of
from remediator.exporter.docker_names import DockerNames
from remediator.exporter.podlogs import PodLogs
from remediator.exporter.workload import NOBODY, Workload, Workloads

pytestmark = pytest.mark.docker

ID = "a1" * 32
UID = "2c48913c-b29f-41e7-9350-020968147796"
SOON_S = 60.0


@contextlib.contextmanager
def workloads_of(url: str, pod_logs: PodLogs | None = None) -> Iterator[Workloads]:
    """This host's workloads, with an engine that is asked again all the time."""
    names = DockerNames(DockerdReader(DockerHost(name="here", url=url)), look_again_s=0.1)
    workloads = Workloads(names, pod_logs=pod_logs)
    yield workloads
    workloads.stop()


@pytest.fixture
def workloads(docker_engine: DockerEngine) -> Iterator[Workloads]:
    with workloads_of(docker_engine.url) as workloads:
        yield workloads


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first asker waits as long as a loaded machine may take to answer."""
    monkeypatch.setattr(docker_names, "FIRST_LOOK_S", SOON_S)


@pytest.fixture(scope="module")
def host_containerd() -> Iterator[Containerd]:
    if why := containerd.missing():
        do_without("docker", why)
    with tempfile.TemporaryDirectory(prefix="containerd-") as folder, Containerd(Path(folder)) as running:
        yield running


def pid_of(engine: DockerEngine, name: str) -> int:
    return int(engine.client.containers.get(name).attrs["State"]["Pid"])


@pytest.mark.usefixtures("patient")
def test_of_when_a_process_runs_in_a_container_then_its_first_answer_has_the_name(
    docker_engine: DockerEngine, trainer: Trainer, workloads: Workloads
) -> None:
    name = trainer()
    container_id = docker_engine.client.containers.get(name).id
    assert workloads.of(pid_of(docker_engine, name)) == Workload(container_id=container_id, container_name=name)


@pytest.mark.usefixtures("patient")
def test_of_when_the_container_is_renamed_then_has_the_new_name_and_when_removed_then_is_nobodys(
    docker_engine: DockerEngine, trainer: Trainer, workloads: Workloads
) -> None:
    name = trainer()
    pid = pid_of(docker_engine, name)
    assert workloads.of(pid).container_name == name
    docker_engine.client.containers.get(name).rename(f"{name}-renamed")
    try:
        wait_until(lambda: workloads.of(pid).container_name == f"{name}-renamed", "the new name is known", SOON_S)
    finally:
        docker_engine.remove(f"{name}-renamed")
    assert workloads.of(pid) == NOBODY


def test_of_when_it_is_a_process_of_the_host_then_is_nobodys(workloads: Workloads) -> None:
    assert workloads.of(os.getpid()).container_id in ("", own_container_id())


def test_of_when_the_engine_hangs_then_nobody_waits_and_known_names_stay(private_docker_engine: DockerEngine) -> None:
    engine = private_docker_engine
    engine.run("known")
    engine.run("new")
    known, new = pid_of(engine, "known"), pid_of(engine, "new")
    with workloads_of(engine.url) as workloads:
        wait_until(lambda: workloads.of(known).container_name == "known", "the name is known", SOON_S)
        with engine.frozen():
            began_s = time.monotonic()
            answers = {(workloads.of(known).container_name, workloads.of(new).container_name) for _ in range(1000)}
            # Had each of them waited as the first one does, it would be more than four minutes.
            assert time.monotonic() - began_s < SOON_S
            assert answers == {("known", "")}
        wait_until(lambda: workloads.of(new).container_name == "new", "the engine is asked again", SOON_S)


def test_of_when_there_is_no_engine_then_has_the_id_alone_and_tells_once(
    docker_engine: DockerEngine, trainer: Trainer, tmp_path: Path
) -> None:
    name = trainer()
    pid, container_id = pid_of(docker_engine, name), docker_engine.client.containers.get(name).id
    with capture_logs() as logs, workloads_of(f"unix://{tmp_path}/none.sock") as workloads:
        assert workloads.of(pid) == Workload(container_id=container_id)
        wait_until(lambda: len(logs) > 0, "it is told", SOON_S)
        assert workloads.of(pid) == Workload(container_id=container_id)
    assert [(log["log_level"], "cannot be reached" in log["problem"]) for log in logs] == [("warning", True)]


def test_place_of_when_seen_from_a_container_with_a_group_namespace_of_its_own_then_is_the_same(
    docker_engine: DockerEngine, trainer: Trainer
) -> None:
    name = trainer()
    seen_from = trainer(limits={"pid_mode": "host", "cgroupns": "private"})
    said: list[str] = []

    def is_read() -> bool:  # Docker loses what a short exec prints, now and then
        command = ["cat", f"/proc/{pid_of(docker_engine, name)}/cgroup"]
        said[:] = [docker_engine.client.containers.get(seen_from).exec_run(command).output.decode()]
        return said != [""]

    wait_until(is_read, "the process is seen from the container", SOON_S)
    assert "/../" in said[0]
    assert place_of(said[0]) == Place(container_id=docker_engine.client.containers.get(name).id)


def test_of_when_a_task_of_containerd_runs_in_a_pod_then_has_the_pods_names(
    host_containerd: Containerd, docker_engine: DockerEngine, tmp_path: Path
) -> None:
    folder = tmp_path / "pods" / f"ml_llm-0_{UID}" / "trainer"
    folder.mkdir(parents=True)
    (tmp_path / "containers").mkdir()
    (tmp_path / "containers" / f"llm-0_ml_trainer-{ID}.log").symlink_to(folder / "0.log")
    pid = host_containerd.run(ID, cgroup=f"kubepods/burstable/pod{UID}/{ID}")
    with workloads_of(docker_engine.url, PodLogs(tmp_path / "pods", tmp_path / "containers")) as workloads:
        assert workloads.of(pid) == Workload(
            container_id=ID, exported_namespace="ml", exported_pod="llm-0", exported_container="trainer"
        )
    assert place_of(Path(f"/proc/{pid}/cgroup").read_text()) == Place(container_id=ID, pod_uid=UID)


@pytest.mark.usefixtures("patient")
def test_of_when_a_task_of_containerd_has_a_name_then_is_no_docker_container_of_that_name(
    host_containerd: Containerd, docker_engine: DockerEngine, trainer: Trainer, workloads: Workloads
) -> None:
    name = trainer()
    assert workloads.of(host_containerd.run(name)) == Workload(container_id=name)
