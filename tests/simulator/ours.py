"""The page of ``remediator exporter``, made by its own code from readings that the simulator invents.

A node and times → columns. Readings go through the exporter's own leak watch, utilisation means and ``families``; only
the driver, the threads and /proc are played. Unlike all else here it remembers: a process's memory is watched from its
start, or from ``WARM_UP_S`` before the first time that is asked. Times must not go back by much: then it begins anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from remediator.clients.ports import GpuDevice, GpuDriver, GpuProcess, GpuReading, PowerLimits, ThrottleReason
from remediator.exporter.collect import FAMILIES, families
from remediator.exporter.leak import GrowthWatch
from remediator.exporter.snapshot import GpuSample, ProcessSample, Snapshot
from remediator.exporter.spread import RecentMean
from remediator.exporter.workload import Workload
from simulator.cluster import IDLE, Gpu, Instance, Node
from simulator.models import DRIVER, NVML
from simulator.noise import Times
from simulator.page import Column, Labels
from simulator.work import RunningJob

MIB = 1024 * 1024

INTERVAL_S = 30.0
"""Between two samples that are shown."""

_LOOKS_S = np.arange(-25.0, 1.0, 5.0)
"""When the real one looks, up to such a sample: of these six, the leak watch keeps the least and the most."""

WARM_UP_S = 43 * 3600.0
"""The longest that the leak watch looks back."""

_BATCH = 960
"""Samples whose readings are worked out at a time: eight hours."""


@dataclass(slots=True)
class _Memory:
    """What the exporter remembers of one device."""

    mean: RecentMean = field(default_factory=RecentMean)
    watches: dict[int, GrowthWatch] = field(default_factory=dict)


class _Process(NamedTuple):
    """A process at one time: what it holds, and of what it held at the last looks the least and the most."""

    pid: int
    used_mib: int
    least_mib: int
    most_mib: int
    workload: Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class _Readings:
    """Of one device at each of a batch's times: the reading, None while it is lost, and its processes."""

    device: GpuDevice
    readings: list[GpuReading | None]
    processes: list[list[_Process]]


class OurExporter:
    """The exporter of one node.

    Args:
        interval_s: between two samples.
    """

    def __init__(self, node: Node, interval_s: float = INTERVAL_S) -> None:
        self._node = node
        self._interval_s = interval_s
        self._memory: dict[str, _Memory] = {}
        self._next_s = 0.0
        self._started_s = 0.0
        self._is_new = True

    def columns(self, times: Times) -> Iterator[Column]:
        """Its page at these times, ascending; NaN where there is no such series. Of a page that cannot be had too."""
        told = self._node.shown("remediator", times)
        found: dict[tuple[str, ...], tuple[Labels, np.ndarray]] = {}
        for first in range(0, times.size, _BATCH):
            part = told[first : first + _BATCH]
            for at, snapshot in enumerate(self._snapshots(part), first):
                for metric in families(snapshot):
                    for sample in metric.samples:
                        key = (sample.name, *sample.labels.values())
                        if key not in found:
                            found[key] = tuple(sample.labels.items()), np.full(times.shape, np.nan)
                        found[key][1][at] = sample.value
        for (name, *_), (labels, values) in found.items():
            family = FAMILIES[name]
            # As the page itself has it: an info metric is a gauge, one of no type is untyped.
            kind = {"info": "gauge", "unknown": "untyped"}.get(family.kind, str(family.kind))
            yield Column(name=name, kind=kind, help=family.meaning, labels=labels, values=values)

    def _snapshots(self, times: Times) -> Iterator[Snapshot]:
        """A snapshot for each time; between them, a sample each interval."""
        first = float(times[0])
        if self._is_new or first < self._next_s - 2 * self._interval_s or first - self._next_s > WARM_UP_S:
            self._memory.clear()
            self._is_new = False
            self._next_s = max(0.0, np.floor((first - WARM_UP_S) / self._interval_s) * self._interval_s)
        begin = self._next_s
        # What is between the times that are asked is only taken in; what is asked is taken in as well.
        ticks = np.arange(begin, float(times[-1]), self._interval_s)
        every = np.unique(np.concatenate([ticks, times]))
        asked = {float(at): 0 for at in times}
        for at in times:
            asked[float(at)] += 1
        for start in range(0, every.size, _BATCH):
            batch = every[start : start + _BATCH]
            devices = [one for gpu in self._node.gpus for one in _readings(gpu, batch)]
            started = self._node.exporter_started("remediator", batch)
            for index, at in enumerate(batch.tolist()):
                if started[index] != self._started_s:
                    self._started_s = started[index]
                    self._memory.clear()
                samples = tuple(self._sample(one, index, at) for one in devices)
                for _ in range(asked.get(at, 0)):
                    yield Snapshot(
                        hostname=self._node.name,
                        driver=GpuDriver(driver_version=DRIVER, nvml_version=NVML),
                        gpus=samples,
                    )
        self._next_s = float(every[-1]) + self._interval_s if every.size else begin

    def _sample(self, one: _Readings, index: int, at_s: float) -> GpuSample:
        device, reading = one.device, one.readings[index]
        memory = self._memory.setdefault(device.mig_uuid or device.uuid, _Memory())
        if reading is None:
            return GpuSample(device=device, age_s=self._interval_s, reading=None)
        if reading.utilization_ratio is not None:
            memory.mean.add(at_s, reading.utilization_ratio)
        processes = []
        for pid, used_mib, least_mib, most_mib, workload in one.processes[index]:
            watch = memory.watches.get(pid)
            if watch is None:
                watch = memory.watches[pid] = GrowthWatch()
            for looked_mib in (least_mib, most_mib, used_mib):
                watch.add(at_s, looked_mib * MIB)
            growth = watch.growth(at_s, reading.memory_free_bytes)
            processes.append(ProcessSample(pid=pid, used_bytes=used_mib * MIB, workload=workload, growth=growth))
        if len(memory.watches) > len(processes):
            alive = {process.pid for process in processes}
            memory.watches = {pid: watch for pid, watch in memory.watches.items() if pid in alive}
        return GpuSample(
            device=device,
            age_s=0.5,
            reading=reading,
            utilization_mean_ratio=memory.mean.mean(at_s),
            processes=tuple(processes),
        )


def _readings(gpu: Gpu, times: Times) -> Iterator[_Readings]:
    """Of a GPU, and of its MIG instances after it."""
    model, state = gpu.model, gpu.state(times)
    device = GpuDevice(
        index=gpu.index, uuid=gpu.uuid, name=model.name, pci_bus_id=gpu.pci, is_mig_enabled=bool(gpu.instances)
    )
    used = np.round(state.memory_used_mib).astype(int).tolist()
    temperature = np.round(state.temperature_c).astype(int).tolist()
    columns = zip(
        state.is_here.tolist(),
        used,
        np.round(state.busy, 2).tolist(),
        temperature,
        np.round(state.memory_temperature_c).astype(int).tolist(),
        np.round(state.power_w * 1000).astype(int).tolist(),
        np.round(state.requested_w * 1000).astype(int).tolist(),
        np.round(state.enforced_w * 1000).astype(int).tolist(),
        (state.busy < IDLE).tolist(),
        state.is_capped.tolist(),
        state.is_hot.tolist(),
        gpu.volatile(gpu.corrected, times).astype(int).tolist(),
        gpu.volatile(gpu.uncorrected, times).astype(int).tolist(),
        gpu.remapped(times).astype(int).tolist(),
        gpu.is_remap_pending(times).tolist(),
        gpu.has("row-remap-failure", times).tolist(),
        gpu.recovery_action(times).astype(int).tolist(),
        strict=True,
    )
    usable, reserved = round(gpu.usable_mib), model.reserved_mib
    processes = _processes(gpu, None, times)
    readings: list[GpuReading | None] = []
    for at, (is_here, mib, busy, hot_c, memory_c, mw, set_mw, held_mw, idle, capped, hot, sbe, dbe, *rest) in enumerate(
        columns
    ):
        remapped, pending, failed, action = rest
        if not is_here:
            readings.append(None)
            continue
        reasons = {
            ThrottleReason.GPU_IDLE: idle,
            ThrottleReason.SW_POWER_CAP: capped,
            ThrottleReason.HW_SLOWDOWN: hot,
            ThrottleReason.HW_THERMAL_SLOWDOWN: hot,
        }
        readings.append(
            GpuReading(
                memory_used_bytes=mib * MIB,
                memory_total_bytes=model.total_mib * MIB,
                memory_free_bytes=(usable - mib) * MIB,
                memory_reserved_bytes=reserved * MIB,
                utilization_ratio=None if gpu.instances else busy,
                temperature_c=hot_c,
                memory_temperature_c=memory_c,
                slowdown_temperature_c=model.slowdown_c if model.says_slowdown else None,
                shutdown_temperature_c=model.shutdown_c,
                temperature_margin_c=None if model.zero_margin_c is None else model.zero_margin_c - hot_c,
                power_mw=mw,
                power_limits=PowerLimits(
                    requested_mw=set_mw,
                    enforced_mw=held_mw,
                    default_mw=round(model.default_w * 1000),
                    least_mw=round(model.least_w * 1000),
                    most_mw=round(model.most_w * 1000),
                ),
                throttle_reasons=frozenset(reason for reason, is_so in reasons.items() if is_so),
                ecc_corrected=sbe,
                ecc_uncorrected=dbe,
                remapped_correctable=0,
                remapped_uncorrectable=remapped,
                is_remap_pending=pending,
                is_remap_failed=failed,
                recovery_action=action,
                processes=tuple(GpuProcess(pid=one.pid, used_bytes=one.used_mib * MIB) for one in processes[at]),
            )
        )
    yield _Readings(device=device, readings=readings, processes=processes)
    for instance in gpu.instances:
        yield _of_instance(gpu, instance, device, state.is_here.tolist(), times)


def _of_instance(gpu: Gpu, instance: Instance, device: GpuDevice, is_here: list[bool], times: Times) -> _Readings:
    used, _, _ = gpu.instance_state(instance, times)
    processes = _processes(gpu, instance.number, times)
    total = instance.total_mib
    return _Readings(
        device=GpuDevice(
            index=device.index,
            uuid=device.uuid,
            name=device.name,
            pci_bus_id=device.pci_bus_id,
            mig_uuid=instance.uuid,
            mig_id=instance.id,
            mig_profile=instance.profile,
        ),
        readings=[
            GpuReading(
                memory_used_bytes=mib * MIB,
                memory_total_bytes=total * MIB,
                memory_free_bytes=(total - mib) * MIB,
                processes=tuple(GpuProcess(pid=one.pid, used_bytes=one.used_mib * MIB) for one in processes[at]),
            )
            if is_here[at]
            else None
            for at, mib in enumerate(np.round(used).astype(int).tolist())
        ],
        processes=processes,
    )


def _processes(gpu: Gpu, number: int | None, times: Times) -> list[list[_Process]]:
    """Those on a GPU, or on an instance of it, at each time."""
    found: list[list[_Process]] = [[] for _ in range(times.size)]
    looks = np.maximum(times[:, None] + _LOOKS_S, 0).ravel()
    for job, rank, own in gpu.jobs:
        if own != number:
            continue
        load, looked = gpu.load(job, rank, times), gpu.load(job, rank, looks)
        _, lives = job.ages(times)
        _, looked_lives = job.ages(looks)
        # What the process before it held is not its own.
        is_own = looked.is_alive.reshape(-1, _LOOKS_S.size) & (
            looked_lives.reshape(-1, _LOOKS_S.size) == lives[:, None]
        )
        held = np.where(is_own, looked.memory_mib.reshape(-1, _LOOKS_S.size), load.memory_mib[:, None])
        columns = zip(
            load.is_alive.tolist(),
            *(np.round(mib).astype(int).tolist() for mib in (load.memory_mib, held.min(axis=1), held.max(axis=1))),
            lives.tolist(),
            strict=True,
        )
        known: dict[int, tuple[int, Workload]] = {}
        for at, (is_alive, used_mib, least_mib, most_mib, life) in enumerate(columns):
            if is_alive:
                if life not in known:
                    known[life] = job.pid(rank, life), _workload(job, gpu.node.name, life)
                pid, workload = known[life]
                found[at].append(_Process(pid, used_mib, least_mib, most_mib, workload))
    return found


def _workload(job: RunningJob, node: str, life: int) -> Workload:
    # Docker starts the same container again, a kubelet another one.
    of = (job.job.name, node, "" if job.job.docker else str(life))
    container = blake2b("\0".join(of).encode(), digest_size=32).hexdigest()
    if job.job.docker:
        return Workload(container_id=container, container_name=job.job.docker)
    return Workload(
        container_id=container,
        exported_namespace=job.job.namespace,
        exported_pod=job.pod_on(node),
        exported_container=job.job.container,
    )
