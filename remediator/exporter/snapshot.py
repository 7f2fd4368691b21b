"""What the exporter knows at one moment: every GPU with its last reading, and each process with what it is part of.

Values that the sampler makes and ``collect`` turns into metrics. They never change once made, so that a scrape reads
one moment while the next is being sampled.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from remediator.clients.ports import GpuDevice, GpuDriver, GpuReading
from remediator.exporter.leak import Growth
from remediator.exporter.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSample:
    """One process that holds memory of one device.

    Attributes:
        pid: on the host.
        used_bytes: of this device; None where the driver does not say.
        workload: the container and pod that it belongs to.
        growth: of its memory; None while it is seen too shortly to say, or the driver does not say what it uses.
    """

    pid: int
    used_bytes: int | None
    workload: Workload = field(default_factory=Workload)
    growth: Growth | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """One device: a physical GPU or a MIG instance.

    Attributes:
        age_s: seconds between its last answer and this snapshot; since it was first asked, if it never answered.
        reading: its last answer; None when it is lost, or did not answer for too long: an old value is none.
        utilization_mean_ratio: 0-1, over the last 5 minutes; None while too little of them was seen, and on MIG.
        processes: those that hold memory of it, any order; empty too where the driver does not say.
    """

    device: GpuDevice
    age_s: float
    reading: GpuReading | None
    utilization_mean_ratio: float | None = None
    processes: tuple[ProcessSample, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What is known of this host at one moment.

    Attributes:
        hostname: as the label ``hostname`` shall have it.
        driver: None while there is none, or it does not answer.
        problem: why there is no driver, for people; "" = there is one.
        gpus: every device known, any order: lost ones stay, with no reading.
    """

    hostname: str
    driver: GpuDriver | None
    problem: str = ""
    gpus: tuple[GpuSample, ...] = ()
