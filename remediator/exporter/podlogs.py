"""Which pod a container belongs to, by the log folders that kubelet keeps on every node.

A ``Place`` → namespace, pod and container. Reads names of files and folders, never a log; needs neither the API server
nor the container engine, and no rights but to list two folders.

Source: kubelet (pkg/kubelet/kuberuntime): ``/var/log/containers/<pod>_<namespace>_<container>-<id>.log``, cut to 255
bytes, and ``/var/log/pods/<namespace>_<pod>_<uid>/<container>/``. No such name has an underscore of its own.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from remediator.exporter.cgroup import Place


@dataclass(frozen=True, slots=True, kw_only=True)
class PodContainer:
    """One container of a pod; ``container`` is "" where it cannot be told which of the pod's it is."""

    namespace: str
    pod: str
    container: str


class PodLogs:
    """The log folders of one node.

    Args:
        pods: kubelet's ``podLogsDir``.
        containers: the links that it keeps for those that collect logs.
    """

    def __init__(self, pods: Path = Path("/var/log/pods"), containers: Path = Path("/var/log/containers")) -> None:
        self._pods = pods
        self._containers = containers

    def find(self, place: Place) -> PodContainer | None:
        """The pod that a container belongs to; None for no pod's, and where kubelet has not (yet) written it down."""
        end = f"-{place.container_id}.log"
        for name in _names_in(self._containers):
            if name.endswith(end) and len(parts := name.removesuffix(end).split("_")) == 3:
                pod, namespace, container = parts
                return PodContainer(namespace=namespace, pod=pod, container=container)
        return self._by_uid(place.pod_uid) if place.pod_uid else None

    def _by_uid(self, pod_uid: str) -> PodContainer | None:
        for name in _names_in(self._pods):
            if name.endswith(f"_{pod_uid}") and len(parts := name.split("_")) == 3:
                containers = _names_in(self._pods / name)
                # Several: an init container's folder stays, and nothing in here has the id.
                only = containers[0] if len(containers) == 1 else ""
                return PodContainer(namespace=parts[0], pod=parts[1], container=only)
        return None


def _names_in(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:  # no node of a cluster, or no right to look: names are not known then
        return []
