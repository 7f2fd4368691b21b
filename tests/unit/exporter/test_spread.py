"""How unevenly the GPUs of one job work."""

from __future__ import annotations

from typing import Any

import pytest

from remediator.clients.ports import GpuDevice, GpuReading
from remediator.exporter.snapshot import GpuSample, ProcessSample, Snapshot
from remediator.exporter.spread import Job, RecentMean, spreads
from remediator.exporter.workload import Workload

POD_A = Workload(container_id="a1", exported_namespace="ml", exported_pod="train-0", exported_container="main")
POD_A_SIDECAR = Workload(container_id="a2", exported_namespace="ml", exported_pod="train-0", exported_container="log")
POD_B = Workload(container_id="b1", exported_namespace="ml", exported_pod="train-1", exported_container="main")
BOX = Workload(container_id="c1", container_name="trainer")
UNNAMED = Workload(container_id="d1")
NOBODY = Workload()

JOB_A = Job(exported_namespace="ml", exported_pod="train-0")
JOB_BOX = Job(container_name="trainer")


def gpu(index: int, mean: float | None, *workloads: Workload, **more: Any) -> GpuSample:
    processes = tuple(ProcessSample(pid=100 + n, used_bytes=1, workload=each) for n, each in enumerate(workloads))
    given: dict[str, Any] = {"reading": GpuReading(), "age_s": 0.0, **more}
    device = GpuDevice(index=index, uuid=f"GPU-{index}", name="H100")
    return GpuSample(device=device, utilization_mean_ratio=mean, processes=processes, **given)


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        pytest.param([gpu(0, 0.9, POD_A), gpu(1, 0.4, POD_A)], {JOB_A: 0.5}, id="highest less lowest"),
        pytest.param([gpu(0, 0.9, POD_A), gpu(1, 0.9, POD_A)], {JOB_A: 0.0}, id="none is one too"),
        pytest.param([gpu(0, 0.9, BOX), gpu(1, 0.4, BOX)], {JOB_BOX: 0.5}, id="a Docker container is a job"),
        pytest.param([gpu(0, 0.9, POD_A, POD_A_SIDECAR), gpu(1, 0.4, POD_A)], {JOB_A: 0.5}, id="one pod's containers"),
        pytest.param([gpu(0, 0.9, POD_A), gpu(1, 0.1), gpu(2, 0.4, POD_A)], {JOB_A: 0.5}, id="idle GPUs are nobody's"),
        pytest.param([gpu(0, 0.9, POD_A), gpu(1, 0.4, POD_B)], {}, id="one GPU each has nothing to compare"),
        pytest.param([gpu(0, 0.9, POD_A), gpu(1, 0.4, POD_A, POD_B)], {}, id="a shared GPU counts for nobody"),
        pytest.param([gpu(0, 0.9, POD_A), gpu(1, 0.4, POD_A, NOBODY)], {}, id="shared with somebody unknown"),
        pytest.param([gpu(0, 0.9, NOBODY), gpu(1, 0.4, NOBODY)], {}, id="processes of nobody known are no job"),
        pytest.param([gpu(0, 0.9, UNNAMED), gpu(1, 0.4, UNNAMED)], {}, id="a container without a name is no job"),
        pytest.param([gpu(0, 0.9, POD_A), gpu(1, None, POD_A)], {}, id="a GPU seen too shortly does not count"),
        pytest.param([gpu(0, 0.9, POD_A), gpu(1, 0.4, POD_A, reading=None)], {}, id="a lost GPU does not count"),
    ],
)
def test_spread_when_gpus_work_for_somebody_then_is_that_of_each_job(
    gpus: list[GpuSample], expected: dict[Job, float]
) -> None:
    assert spreads(Snapshot(hostname="h", driver=None, gpus=tuple(gpus))) == pytest.approx(expected)


def test_spreads_when_gpus_come_in_another_order_then_are_in_the_same() -> None:
    gpus = [
        gpu(0, 0.1, POD_B),
        gpu(1, 0.2, POD_B),
        gpu(2, 0.3, POD_A),
        gpu(3, 0.5, POD_A),
        gpu(4, 1, BOX),
        gpu(5, 1, BOX),
    ]

    one = spreads(Snapshot(hostname="h", driver=None, gpus=tuple(gpus)))
    other = spreads(Snapshot(hostname="h", driver=None, gpus=tuple(reversed(gpus))))

    assert list(one) == list(other) == sorted(one)
    assert len(one) == 3


def test_mean_when_five_minutes_are_over_then_is_of_the_last_five() -> None:
    mean = RecentMean()
    for at_s in range(0, 300, 5):
        mean.add(at_s, 0.0)
    for at_s in range(300, 600, 5):
        mean.add(at_s, 0.8)

    assert mean.mean(599) == pytest.approx(0.8)


@pytest.mark.parametrize(("seen_s", "expected"), [(235, None), (245, 0.5)])
def test_mean_when_fewer_than_four_minutes_were_seen_then_is_none(seen_s: int, expected: float | None) -> None:
    mean = RecentMean()
    for at_s in range(0, seen_s, 5):
        mean.add(at_s, 0.5)

    assert mean.mean(seen_s - 1) == expected


def test_mean_when_samples_are_a_minute_apart_then_is_one() -> None:
    mean = RecentMean()
    for n in range(6):
        mean.add(n * 60.0, n / 10)

    assert mean.mean(300.0) == pytest.approx(0.3)  # the first is five minutes old, and out


def test_mean_when_nothing_came_for_long_then_is_none() -> None:
    mean = RecentMean()
    for at_s in range(0, 300, 5):
        mean.add(at_s, 0.5)

    assert mean.mean(900.0) is None
