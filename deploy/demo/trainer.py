"""The demo's patient: a container whose memory really grows, and an exporter that shows it as a GPU exporter would.

A Docker engine → a running container, and a metrics page that gives what its memory cgroup holds as DCGM would.
There is no GPU here, and the page says so: memory is the container's own, all else comes from tests/simulator.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

import docker
import numpy as np
from docker.models.containers import Container

from realparts.loopback import MetricsPage
from simulator import dcgm, page
from simulator.cluster import Cluster
from simulator.page import Column
from simulator.scenario import load

IMAGE = "localhost/busybox:1"
HOSTNAME = "demo-gpu-host"
GPU = Path(__file__).parent / "gpu.yaml"
STEADY_S = 25
"""How long after each start it works well: long enough to see the alert resolve before the memory grows again."""

LOOK_S = 0.5
"""Between two looks at its memory; Prometheus scrapes each second."""

# Holds 32 MiB, works well for a while, then keeps 4 MiB more each second (as shell variables, so in its own memory) up
# to 400 MiB. Ends at once on SIGTERM.
SCRIPT = f"""
trap 'exit 0' TERM
mebibytes=$(head -c 2097152 /dev/zero | tr '\\0' x)
i=0
while [ $i -lt 16 ]; do i=$((i+1)); eval "held_$i=\\$mebibytes"; done
steady=0
while [ $steady -lt {STEADY_S} ]; do steady=$((steady+1)); sleep 1; done
while :; do
    if [ $i -lt 200 ]; then i=$((i+1)); eval "held_$i=\\$mebibytes"; fi
    sleep 0.5
done
"""


def start_trainer(engine: docker.DockerClient, name: str) -> Container:
    """A new leaking container of that name; one left from an earlier demo is removed."""
    remove_trainer(engine, name)
    return engine.containers.run(
        IMAGE,
        ["sh", "-c", SCRIPT],
        name=name,
        detach=True,
        network_mode="none",
        mem_limit="600m",
        labels={"demo": "remediator"},
    )


def remove_trainer(engine: docker.DockerClient, name: str) -> None:
    """Removes the demo's own container of that name, if there is one."""
    for container in engine.containers.list(all=True, filters={"name": f"^/{name}$", "label": "demo=remediator"}):
        container.remove(force=True)


def memory_mib(engine: docker.DockerClient, container_id: str) -> float | None:
    """What the container's memory cgroup holds, without file cache; None while it does not run."""
    memory = engine.api.stats(container_id, stream=False, one_shot=True)["memory_stats"]
    if "usage" not in memory:
        return None
    # The two names are those of cgroup version 1 and 2.
    details = memory.get("stats", {})
    cache: int = details.get("total_inactive_file", details.get("inactive_file", 0))
    used: int = memory["usage"]
    return (used - cache) / 2**20


class Exporter:
    """The metrics page of one container, looked at anew twice a second. ``memory_mib`` is what it shows."""

    def __init__(self, engine: docker.DockerClient, container: Container) -> None:
        self.memory_mib: float | None = None
        self._engine = engine
        self._container = container
        self._cluster = Cluster(load(GPU))
        self._began = time.monotonic()
        self._page = MetricsPage()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.address = self._page.address
        self._thread.start()

    def _look(self) -> None:
        while not self._stop.wait(LOOK_S):
            try:
                self.memory_mib = memory_mib(self._engine, self._container.attrs["Id"])
            except (docker.errors.APIError, OSError):
                self.memory_mib = None
            # Before its job begins the simulated GPU idles, as it does while the container does not run.
            at_s = -1.0 if self.memory_mib is None else time.monotonic() - self._began
            columns = dcgm.columns(self._cluster.nodes[HOSTNAME], np.array([at_s]))
            self._page.text = page.text(shown for column in columns if (shown := self._shown(column)) is not None)

    def _shown(self, column: Column) -> Column | None:
        """A column of the simulated page as this one has it: with the container's memory, or none while it has none."""
        labels = {**dict(column.labels), "modelName": "simulated", "container_name": self._container.name}
        words = f"SIMULATED. {column.help}"
        values = column.values
        if column.name.startswith("DCGM_FI_DEV_FB_"):
            if self.memory_mib is None or column.name != "DCGM_FI_DEV_FB_USED":
                return None
            words = f"SIMULATED. {column.help} Really the memory of the container."
            values = np.array([round(self.memory_mib, 2)])
        return replace(column, help=words, labels=tuple(labels.items()), values=values)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._page.close()
