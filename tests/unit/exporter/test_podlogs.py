"""Which pod a container belongs to, by kubelet's log folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from remediator.exporter.cgroup import Place
from remediator.exporter.podlogs import PodContainer, PodLogs

ID = "a1" * 32
OTHER = "b2" * 32
UID = "2c48913c-b29f-41e7-9350-020968147796"
RANK_0 = PodContainer(namespace="ml", pod="llm-0.b", container="trainer")


class Node:
    """Kubelet's folders in ``/var/log``."""

    def __init__(self, folder: Path) -> None:
        self.pods = folder / "pods"
        self.containers = folder / "containers"
        self.logs = PodLogs(self.pods, self.containers)

    def has(self, pod_folder: str, *containers: str) -> None:
        for container in containers:
            (self.pods / pod_folder / container).mkdir(parents=True)

    def links(self, name: str) -> None:
        self.containers.mkdir(exist_ok=True)
        (self.containers / name).symlink_to("/var/log/pods/gone/0.log")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_find_when_there_is_a_link_of_the_container_then_is_its_pod(node: Node) -> None:
    node.links(f"llm-0.b_ml_trainer-{ID}.log")
    node.links(f"llm-1_ml_trainer-{OTHER}.log")
    assert node.logs.find(Place(container_id=ID)) == RANK_0


def test_find_when_only_the_uid_is_known_then_is_the_pod_and_its_only_container(node: Node) -> None:
    node.has(f"ml_llm-0.b_{UID}", "trainer")
    assert node.logs.find(Place(container_id=ID, pod_uid=UID)) == RANK_0


def test_find_when_the_pod_has_several_containers_then_says_none_of_them(node: Node) -> None:
    node.has(f"ml_llm-0.b_{UID}", "trainer", "fetch-data")
    found = node.logs.find(Place(container_id=ID, pod_uid=UID))
    assert found == PodContainer(namespace="ml", pod="llm-0.b", container="")


def test_find_when_a_link_tells_which_of_several_containers_then_is_that(node: Node) -> None:
    node.has(f"ml_llm-0.b_{UID}", "trainer", "fetch-data")
    node.links(f"llm-0.b_ml_trainer-{ID}.log")
    assert node.logs.find(Place(container_id=ID, pod_uid=UID)) == RANK_0


def test_find_when_the_link_was_cut_for_its_length_then_goes_by_the_uid(node: Node) -> None:
    node.links(f"{'x' * 180}_ml_trainer-{ID}.log"[:251] + ".log")
    node.has(f"ml_{'x' * 180}_{UID}", "trainer")
    found = node.logs.find(Place(container_id=ID, pod_uid=UID))
    assert found == PodContainer(namespace="ml", pod="x" * 180, container="trainer")


@pytest.mark.parametrize(
    "link",
    [
        pytest.param(f"llm-0_ml_trainer-{OTHER}.log", id="another container's"),
        pytest.param(f"ml_trainer-{ID}.log", id="a name of two parts"),
        pytest.param(f"a_b_c_d-{ID}.log", id="a name of four parts"),
    ],
)
def test_find_when_no_link_fits_then_is_none(node: Node, link: str) -> None:
    node.links(link)
    node.has(f"ml_llm-0_{UID}", "trainer")
    assert node.logs.find(Place(container_id=ID)) is None


def test_find_when_the_uid_is_another_pods_then_is_none(node: Node) -> None:
    node.has("ml_llm-0_00000000-b29f-41e7-9350-020968147796", "trainer")
    assert node.logs.find(Place(container_id=ID, pod_uid=UID)) is None


def test_find_when_the_host_is_no_node_then_is_none(node: Node) -> None:
    assert node.logs.find(Place(container_id=ID, pod_uid=UID)) is None
