"""``promtool check metrics`` has nothing to say about the exporter's page."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric

from gpu_reading import FULL
from remediator.clients.ports import GpuDevice, GpuDriver
from remediator.exporter.collect import FAMILIES, families
from remediator.exporter.leak import Growth
from remediator.exporter.snapshot import GpuSample, ProcessSample, Snapshot
from remediator.exporter.workload import Workload

pytestmark = pytest.mark.alertmanager

DEVICE = GpuDevice(index=0, uuid="GPU-a", name="NVIDIA H100 80GB HBM3")
PROCESS = ProcessSample(
    pid=100,
    used_bytes=10,
    workload=Workload(container_name='a"b\\c\nd'),
    growth=Growth(bytes_per_second=1e6, uncertainty_bytes_per_second=1e3, is_leaking=True, seconds_until_full=7200.0),
)


class Page:
    """Every metric that the exporter has."""

    def collect(self) -> list[Metric]:
        gpus = [
            GpuSample(device=device, age_s=0.5, reading=FULL, utilization_mean_ratio=0.5, processes=(PROCESS,))
            for device in (DEVICE, replace(DEVICE, index=1, uuid="GPU-b"))
        ]
        driver = GpuDriver(driver_version="570.1", nvml_version="12.570.1")
        return list(families(Snapshot(hostname="gpu-07", driver=driver, gpus=tuple(gpus))))


def test_page_when_linted_by_promtool_then_it_says_nothing(find_tool: Callable[[str], Path]) -> None:
    page = generate_latest(Page())

    said = subprocess.run([find_tool("promtool"), "check", "metrics"], input=page, capture_output=True, timeout=60)

    assert all(f"# HELP {name} ".encode() in page for name in FAMILIES)
    assert (said.returncode, said.stdout, said.stderr) == (0, b"", b"")
