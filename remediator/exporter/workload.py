"""What a process belongs to: its container, and the name that people know that by.

A pid → ``Workload``. Reads ``/proc/PID/cgroup`` at every question and keeps only names, so that a pid which the kernel
has given to another process can never bring along what it was before. Never raises, never waits for an engine, and
never guesses: what is not known is "".

A pod's containers have no ``container_name``, whatever engine runs them: kubelet alone may restart them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from remediator.exporter.cgroup import Place, place_of
from remediator.exporter.docker_names import DockerNames
from remediator.exporter.podlogs import PodContainer, PodLogs
from remediator.telemetry import get_logger

_HIDDEN_AFTER_S: Final = 30.0
"""A process that ends leaves /proc a moment before it leaves the driver's list; one that is missing for so long while
the driver still names it is one that cannot be seen from here."""

_KEPT: Final = 1024
"""Pods and missing processes remembered. A host runs dozens at a time; beyond it all are forgotten, and found again."""

_DOCKER_ID: Final = re.compile(r"[0-9a-f]{64}")

_HOW_TO_SEE: Final = (
    "run the exporter in the host's PID namespace (hostPID, --pid=host) and let it read all of /proc; until then"
    " processes like this one are shown without container and pod"
)

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What a process belongs to; "" = not so, or not known.

    Attributes:
        container_id: as its engine writes it: 64 hex digits, of a plain ``ctr`` task its name.
        container_name: the Docker container's name, without a slash.
        exported_namespace, exported_pod, exported_container: the pod, and which of its containers.
    """

    container_id: str = ""
    container_name: str = ""
    exported_namespace: str = ""
    exported_pod: str = ""
    exported_container: str = ""


NOBODY: Final = Workload()
"""A process of the host's own, or one that is gone or hidden."""


class Workloads:
    """What the processes of this host belong to. Thread-safe.

    Args:
        docker_names: of the host's Docker engine; None: it is not asked.
        pod_logs: of the host's kubelet.
        proc: where the process file system is mounted. It must show the host's processes (in a container:
            ``hostPID: true``, ``--pid=host``).
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        docker_names: DockerNames | None,
        *,
        pod_logs: PodLogs | None = None,
        proc: Path = Path("/proc"),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._docker_names = docker_names
        self._pod_logs = pod_logs or PodLogs()
        self._proc = proc
        self._clock = clock
        self._pods: dict[str, PodContainer] = {}
        self._missing_s: dict[int, tuple[float, float]] = {}
        self._has_told = False

    def of(self, pid: int) -> Workload:
        """What a process belongs to; ``NOBODY`` for one of the host, one that ended, and one that cannot be seen.

        Takes a look into /proc, and for a container that is new one into two folders and at most
        ``docker_names.FIRST_LOOK_S``, however the Docker engine is.
        """
        try:
            cgroups = (self._proc / str(pid) / "cgroup").read_text(encoding="utf-8", errors="replace")
        except OSError:
            self._miss(pid)
            return NOBODY
        self._missing_s.pop(pid, None)
        place = place_of(cgroups)
        if place is None:
            return NOBODY
        pod = self._pod_of(place)
        if pod is not None:
            return Workload(
                container_id=place.container_id,
                exported_namespace=pod.namespace,
                exported_pod=pod.pod,
                exported_container=pod.container,
            )
        name = ""
        if self._docker_names is not None and not place.pod_uid and _DOCKER_ID.fullmatch(place.container_id):
            name = self._docker_names.of(place.container_id)
        return Workload(container_id=place.container_id, container_name=name)

    def stop(self) -> None:
        """Ask the Docker engine no more."""
        if self._docker_names is not None:
            self._docker_names.stop()

    def _pod_of(self, place: Place) -> PodContainer | None:
        known = self._pods.get(place.container_id)
        if known is not None:
            return known  # for good: an id is given once, and no pod is ever renamed
        pod = self._pod_logs.find(place)
        if pod is not None and pod.container:
            if len(self._pods) >= _KEPT:
                self._pods.clear()
            self._pods[place.container_id] = pod
        return pod

    def _miss(self, pid: int) -> None:
        if self._has_told:
            return
        now_s = self._clock()
        if len(self._missing_s) >= _KEPT:
            self._missing_s.clear()
        since_s, last_s = self._missing_s.get(pid, (now_s, now_s))
        if now_s - last_s > _HIDDEN_AFTER_S:  # not asked about in between: another process of the same number
            since_s = now_s
        self._missing_s[pid] = (since_s, now_s)
        if now_s - since_s < _HIDDEN_AFTER_S:
            return
        self._has_told = True
        _log.warning("a process that uses a GPU cannot be seen", pid=pid, advice=_HOW_TO_SEE)
