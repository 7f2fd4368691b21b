"""What a process belongs to: from /proc, kubelet's folders and the Docker engine's names together."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import cast

import pytest
from structlog.testing import capture_logs

from remediator.exporter import workload
from remediator.exporter.docker_names import DockerNames
from remediator.exporter.podlogs import PodLogs
from remediator.exporter.workload import NOBODY, Workload, Workloads

ID = "a1" * 32
UID = "2c48913c-b29f-41e7-9350-020968147796"
IN_DOCKER = f"0::/system.slice/docker-{ID}.scope\n"
IN_A_POD = f"0::/kubepods/burstable/pod{UID}/{ID}\n"


class Names:
    """Stands for ``DockerNames``; keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def of(self, container_id: str) -> str:
        self.asked.append(container_id)
        return "trainer-7"


class Host:
    """A host's /proc and /var/log, and its ``Workloads`` with a clock that is moved by hand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names = Names()
        self.now_s = 1000.0
        self.workloads = Workloads(
            cast(DockerNames, self.names),
            pod_logs=PodLogs(folder / "pods", folder / "containers"),
            proc=folder / "proc",
            clock=lambda: self.now_s,
        )

    def has(self, pid: int, cgroup: str) -> None:
        (self.folder / f"proc/{pid}").mkdir(parents=True, exist_ok=True)
        (self.folder / f"proc/{pid}/cgroup").write_text(cgroup)

    def links(self, name: str) -> None:
        (self.folder / "containers").mkdir(exist_ok=True)
        (self.folder / "containers" / name).touch()


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_of_when_it_runs_in_a_docker_container_then_has_its_name(host: Host) -> None:
    host.has(7, IN_DOCKER)
    assert host.workloads.of(7) == Workload(container_id=ID, container_name="trainer-7")


def test_of_when_it_is_a_process_of_the_host_then_is_nobodys(host: Host) -> None:
    host.has(7, "0::/user.slice/user-1000.slice/session-3.scope\n")
    assert host.workloads.of(7) == NOBODY


def test_of_when_the_process_is_gone_then_is_nobodys(host: Host) -> None:
    assert host.workloads.of(7) == NOBODY


def test_of_when_the_pid_is_another_process_now_then_is_that_ones(host: Host) -> None:
    host.has(7, IN_DOCKER)
    host.workloads.of(7)
    host.has(7, "0::/\n")
    assert host.workloads.of(7) == NOBODY


def test_of_when_it_runs_in_a_pod_then_has_the_pods_names_and_docker_is_not_asked(host: Host) -> None:
    host.has(7, IN_A_POD)
    host.links(f"llm-0_ml_trainer-{ID}.log")
    expected = Workload(container_id=ID, exported_namespace="ml", exported_pod="llm-0", exported_container="trainer")
    assert host.workloads.of(7) == expected
    assert host.names.asked == []


def test_of_when_the_pods_names_are_not_known_then_docker_is_not_asked_either(host: Host) -> None:
    host.has(7, IN_A_POD)
    assert host.workloads.of(7) == Workload(container_id=ID)
    assert host.names.asked == []


def test_of_when_kubelet_writes_the_pod_down_later_then_has_its_names_from_then_on(host: Host) -> None:
    host.has(7, IN_A_POD)
    host.workloads.of(7)
    host.links(f"llm-0_ml_trainer-{ID}.log")
    assert host.workloads.of(7).exported_pod == "llm-0"
    (host.folder / "containers" / f"llm-0_ml_trainer-{ID}.log").unlink()  # kubelet tidies up before the process ends
    assert host.workloads.of(7).exported_pod == "llm-0"


def test_of_when_it_is_a_ctr_task_with_a_name_then_docker_is_not_asked_for_it(host: Host) -> None:
    host.has(7, "0::/default/trainer\n")
    assert host.workloads.of(7) == Workload(container_id="trainer")
    assert host.names.asked == []


def test_of_when_docker_is_switched_off_then_has_the_id_alone(host: Host) -> None:
    host.has(7, IN_DOCKER)
    workloads = Workloads(None, pod_logs=PodLogs(host.folder, host.folder), proc=host.folder / "proc")
    assert workloads.of(7) == Workload(container_id=ID)
    workloads.stop()


def test_of_when_many_containers_came_and_went_then_finds_each_pod_and_forgets_old_ones(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workload, "_KEPT", 8)
    for i in range(50):
        host.has(i, f"0::/kubepods/pod{UID}/{i:064x}\n")
        host.links(f"llm-{i}_ml_trainer-{i:064x}.log")
        assert host.workloads.of(i).exported_pod == f"llm-{i}"
    assert len(host.workloads._pods) <= 8


def missed(host: Host, pid: int, *at_s: float) -> int:
    """How often something is logged when a process is missing at these moments."""
    with capture_logs() as logs:
        for moment_s in at_s:
            host.now_s = moment_s
            assert host.workloads.of(pid) == NOBODY
    return len(logs)


def test_of_when_a_process_stays_out_of_sight_then_tells_once_how_to_see_it(host: Host) -> None:
    assert missed(host, 7, *range(0, 30, 5)) == 0
    assert missed(host, 7, 30) == 1
    assert missed(host, 8, *range(30, 300, 5)) == 0


def test_of_when_a_process_has_just_ended_then_tells_nothing(host: Host) -> None:
    assert missed(host, 7, 0, 5) == 0
    assert missed(host, 7, 900, 905) == 0  # another one of the same number
    assert missed(host, 9, 1000, 1005) == 0
    host.has(9, IN_DOCKER)
    host.workloads.of(9)
    shutil.rmtree(host.folder / "proc/9")
    assert missed(host, 9, 1020, 1040) == 0
