"""A snapshot → the exporter's metrics, for ``prometheus_client`` to write down.

Pure. A value that is not known is absent: never 0, never an old one. The order is always the same. Label values are
data: whatever a process or pod is called, it is written as a value. ``FAMILIES`` describes every metric; the reference
page (docs/reference/exporter-metrics.md) is made from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
    UnknownMetricFamily,
)

from remediator import __version__
from remediator.clients.ports import GpuDevice, GpuReading, PowerLimits, ThrottleReason
from remediator.exporter.snapshot import GpuSample, ProcessSample, Snapshot
from remediator.exporter.spread import spreads

_GPU = ("gpu", "UUID", "model_name", "hostname", "GPU_I_ID", "GPU_I_PROFILE")
"""DCGM's names, so that one rule joins both; the last two are "" for a whole GPU. But for DCGM's ``modelName``: no
linter of metrics lets that pass, and the recording rules name it so."""
_PROCESS = (*_GPU, "pid", "container_id", "container_name", "exported_namespace", "exported_pod", "exported_container")
_JOB = ("hostname", "container_name", "exported_namespace", "exported_pod")

_ENFORCED_TOLERANCE_MW = 1000
"""Limits are rounded in different places: less than a watt is no limit of somebody's."""


class Kind(StrEnum):
    """The type of a metric. ``UNKNOWN``: its name is reserved for another type, and nothing is claimed."""

    GAUGE = "gauge"
    COUNTER = "counter"
    INFO = "info"
    UNKNOWN = "unknown"


_MAKE: Mapping[Kind, type[GaugeMetricFamily | CounterMetricFamily | InfoMetricFamily | UnknownMetricFamily]] = {
    Kind.GAUGE: GaugeMetricFamily,
    Kind.COUNTER: CounterMetricFamily,
    Kind.INFO: InfoMetricFamily,
    Kind.UNKNOWN: UnknownMetricFamily,
}


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: its name as it is scraped, its labels, and what it means."""

    name: str
    labels: tuple[str, ...]
    meaning: str
    kind: Kind = Kind.GAUGE


_ALL = (
    Family(
        "remediator_gpu_exporter_info",
        ("version", "driver_version", "nvml_version"),
        "1, with the versions of the exporter, the GPU driver and its library (NVML); empty where no driver answers.",
        Kind.INFO,
    ),
    Family(
        "remediator_gpu_driver_up",
        ("hostname",),
        "Whether the GPU driver answers, 0 or 1. 0: there is none, or it does not; the exporter's log says why.",
    ),
    Family(
        "remediator_gpu_devices",
        ("hostname",),
        "Number of physical GPUs known, those too that were lost since the exporter was started.",
    ),
    Family("remediator_gpu_up", _GPU, "Whether the device answers, 0 or 1. 0: lost, or silent for three intervals."),
    Family(
        "remediator_gpu_sample_age_seconds",
        _GPU,
        "Seconds since the device last answered; all its values are of that age.",
    ),
    Family("remediator_gpu_memory_used_bytes", _GPU, "Memory in use, in bytes."),
    Family("remediator_gpu_memory_free_bytes", _GPU, "Memory that is free, in bytes."),
    Family("remediator_gpu_memory_total_bytes", _GPU, "Memory of the device, in bytes: used, free and reserved."),
    Family(
        "remediator_gpu_memory_reserved_bytes", _GPU, "Memory that the driver keeps for itself, in bytes; nobody's."
    ),
    Family(
        "remediator_gpu_utilization_ratio",
        _GPU,
        "Share of the driver's last sample (up to a second) in which a kernel ran, 0 to 1. Not known for MIG.",
    ),
    Family("remediator_gpu_temperature_celsius", _GPU, "Temperature of the GPU, in degrees Celsius."),
    Family("remediator_gpu_memory_temperature_celsius", _GPU, "Temperature of its memory, in degrees Celsius."),
    Family(
        "remediator_gpu_slowdown_temperature_celsius",
        _GPU,
        "Temperature at which the hardware slows itself down, in degrees Celsius.",
    ),
    Family(
        "remediator_gpu_temperature_margin_celsius",
        _GPU,
        "Degrees Celsius left until the hardware slows itself down; below 0 it does. "
        "As the driver says it, else slowdown temperature less temperature.",
    ),
    Family("remediator_gpu_power_watts", _GPU, "Power drawn, in watts."),
    Family(
        "remediator_gpu_power_limit_watts",
        (*_GPU, "limit"),
        "Power limits, in watts: requested (what was set), enforced (what holds, after all that limit it), "
        "default, min and max (what can be set).",
    ),
    Family(
        "remediator_gpu_power_limit_origin",
        (*_GPU, "origin"),
        "Who set the power limit that holds, 1 for one of: default (nobody), host (somebody, through this host's "
        "driver), out_of_band (from outside the driver, such as a BMC: enforced is lower than requested).",
    ),
    Family(
        "remediator_gpu_clocks_throttled",
        (*_GPU, "reason"),
        "Whether the clocks are held down for this reason, 0 or 1; gpu_idle is one of them, and no fault.",
    ),
    Family(
        "remediator_gpu_ecc_errors_total",
        (*_GPU, "type"),
        "Number of memory errors, corrected or uncorrected, since the driver was loaded or the GPU reset.",
        Kind.COUNTER,
    ),
    Family(
        "remediator_gpu_remapped_rows",
        (*_GPU, "type"),
        "Number of rows of memory replaced by spare ones, for correctable or uncorrectable errors, in the GPU's life.",
    ),
    Family(
        "remediator_gpu_row_remap_pending",
        _GPU,
        "Whether a row waits for the next reset of the GPU to be replaced, 0 or 1.",
    ),
    Family(
        "remediator_gpu_row_remap_failure",
        _GPU,
        "Whether a row could not be replaced, 0 or 1. 1 is NVIDIA's criterion for a replacement of the GPU.",
    ),
    Family(
        "remediator_gpu_recovery_action",
        _GPU,
        "What the driver wants done: 0 nothing, 1 reset the GPU, 2 reboot, 3 drain P2P, 4 drain and reset.",
    ),
    Family("remediator_gpu_process_memory_used_bytes", _PROCESS, "Memory that the process uses, in bytes."),
    Family(
        "remediator_gpu_process_memory_growth_bytes_per_second",
        _PROCESS,
        "How fast the process's memory grows, in bytes per second: slope of its lower envelope, which is what it does "
        "not give back. Absent until it was seen for 10 minutes.",
    ),
    Family(
        "remediator_gpu_process_memory_growth_uncertainty_bytes_per_second",
        _PROCESS,
        "Half the width of the growth's 95 % confidence interval, in bytes per second.",
    ),
    Family(
        "remediator_gpu_process_memory_seconds_until_full",
        _PROCESS,
        "Seconds until the process has used up what the device has free, at the upper end of the growth's interval. "
        "Absent while it does not leak.",
    ),
    Family(
        "remediator_gpu_process_leaking",
        _PROCESS,
        "Whether the process's memory leaks, 0 or 1: it grew surely, steadily, by enough and for long enough. "
        "Absent until it was seen for 10 minutes.",
    ),
    Family(
        "nvidia_custom_leak_count",
        _GPU,
        "Number of processes on the device that leak now: the sum of remediator_gpu_process_leaking. A gauge, "
        "given without a type because names that end so are kept for those of histograms.",
        Kind.UNKNOWN,
    ),
    Family(
        "remediator_gpu_job_utilization_spread_ratio",
        _JOB,
        "How unevenly the GPUs of a pod or container on this host work, 0 to 1: highest less lowest of their 5-minute "
        "means of utilisation. Absent with fewer than two GPUs; shared GPUs count for nobody.",
    ),
)

FAMILIES: Mapping[str, Family] = {family.name: family for family in _ALL}
"""Every metric by its name, in the order in which they are written."""


def families(snapshot: Snapshot) -> Iterable[Metric]:
    """Every metric that the snapshot has a value for, always in the same order."""
    page = _Page()
    driver = snapshot.driver
    page.add(
        "remediator_gpu_exporter_info",
        (__version__, driver.driver_version if driver else "", driver.nvml_version if driver else ""),
        1,
    )
    hostname = _text(snapshot.hostname)
    page.add("remediator_gpu_driver_up", (hostname,), driver is not None)
    page.add("remediator_gpu_devices", (hostname,), len({gpu.device.uuid for gpu in snapshot.gpus}))
    for gpu in sorted(snapshot.gpus, key=lambda gpu: _order(gpu.device)):
        _add_gpu(page, hostname, gpu)
    for job, ratio in spreads(snapshot).items():
        names = (job.container_name, job.exported_namespace, job.exported_pod)
        page.add("remediator_gpu_job_utilization_spread_ratio", (hostname, *map(_text, names)), ratio)
    return page.metrics()


class _Page:
    """The metrics that are being put together."""

    def __init__(self) -> None:
        self._metrics: dict[str, Metric] = {}

    def add(self, name: str, labels: tuple[str, ...], value: float | None) -> None:
        """Add a series; one without a value is left out."""
        if value is None:
            return
        metric = self._metrics.get(name)
        family = FAMILIES[name]
        if metric is None:
            metric = self._metrics[name] = _MAKE[family.kind](name.removesuffix("_info"), family.meaning)
        metric.add_sample(name, dict(zip(family.labels, labels, strict=True)), float(value))

    def metrics(self) -> list[Metric]:
        """Those with a series, in the order of ``FAMILIES``."""
        return [self._metrics[name] for name in FAMILIES if name in self._metrics]


def _add_gpu(page: _Page, hostname: str, gpu: GpuSample) -> None:
    device, reading = gpu.device, gpu.reading
    labels = (
        str(device.index),
        _text(device.uuid),
        _text(device.name),
        hostname,
        _text(device.mig_id),
        _text(device.mig_profile),
    )
    page.add("remediator_gpu_up", labels, reading is not None)
    page.add("remediator_gpu_sample_age_seconds", labels, gpu.age_s)
    if reading is None:
        return
    for name, value in _plain(reading).items():
        page.add(f"remediator_gpu_{name}", labels, value)
    for limit, milliwatts in _limits(reading.power_limits).items():
        page.add("remediator_gpu_power_limit_watts", (*labels, limit), _thousandth(milliwatts))
    origin = origin_of(reading.power_limits)
    for each in Origin if origin else ():
        page.add("remediator_gpu_power_limit_origin", (*labels, each), each is origin)
    if reading.throttle_reasons is not None:
        for reason in ThrottleReason:
            page.add("remediator_gpu_clocks_throttled", (*labels, reason), reason in reading.throttle_reasons)
    page.add("remediator_gpu_ecc_errors_total", (*labels, "corrected"), reading.ecc_corrected)
    page.add("remediator_gpu_ecc_errors_total", (*labels, "uncorrected"), reading.ecc_uncorrected)
    page.add("remediator_gpu_remapped_rows", (*labels, "correctable"), reading.remapped_correctable)
    page.add("remediator_gpu_remapped_rows", (*labels, "uncorrectable"), reading.remapped_uncorrectable)
    for process in sorted(gpu.processes, key=lambda process: process.pid):
        _add_process(page, labels, process)
    if reading.processes is not None and (not gpu.processes or any(p.used_bytes is not None for p in gpu.processes)):
        n_leaking = sum(process.growth is not None and process.growth.is_leaking for process in gpu.processes)
        page.add("nvidia_custom_leak_count", labels, n_leaking)


def _plain(reading: GpuReading) -> dict[str, float | None]:
    """Metrics with the labels of a GPU and no more: name without prefix → value."""
    return {
        "memory_used_bytes": reading.memory_used_bytes,
        "memory_free_bytes": reading.memory_free_bytes,
        "memory_total_bytes": reading.memory_total_bytes,
        "memory_reserved_bytes": reading.memory_reserved_bytes,
        "utilization_ratio": reading.utilization_ratio,
        "temperature_celsius": reading.temperature_c,
        "memory_temperature_celsius": reading.memory_temperature_c,
        "slowdown_temperature_celsius": reading.slowdown_temperature_c,
        "temperature_margin_celsius": _margin_c(reading),
        "power_watts": _thousandth(reading.power_mw),
        "row_remap_pending": reading.is_remap_pending,
        "row_remap_failure": reading.is_remap_failed,
        "recovery_action": reading.recovery_action,
    }


def _margin_c(reading: GpuReading) -> int | None:
    if reading.temperature_margin_c is not None:
        return reading.temperature_margin_c
    if reading.slowdown_temperature_c is None or reading.temperature_c is None:
        return None
    return reading.slowdown_temperature_c - reading.temperature_c


def _limits(limits: PowerLimits) -> dict[str, int | None]:
    return {
        "requested": limits.requested_mw,
        "enforced": limits.enforced_mw,
        "default": limits.default_mw,
        "min": limits.least_mw,
        "max": limits.most_mw,
    }


class Origin(StrEnum):
    """Who set the power limit that holds."""

    DEFAULT = "default"
    HOST = "host"
    OUT_OF_BAND = "out_of_band"


def origin_of(limits: PowerLimits) -> Origin | None:
    """Who set the power limit that holds; None where the driver does not say enough.

    Where a limit of this host and a lower one from outside meet, it is the outer one that holds.
    """
    requested, enforced = limits.requested_mw, limits.enforced_mw
    if requested is None:
        return None
    if enforced is not None and requested - enforced > _ENFORCED_TOLERANCE_MW:
        return Origin.OUT_OF_BAND
    if limits.default_mw is None:
        return None
    return Origin.DEFAULT if abs(requested - limits.default_mw) <= _ENFORCED_TOLERANCE_MW else Origin.HOST


def _add_process(page: _Page, gpu_labels: tuple[str, ...], process: ProcessSample) -> None:
    workload = process.workload
    names = (
        workload.container_id,
        workload.container_name,
        workload.exported_namespace,
        workload.exported_pod,
        workload.exported_container,
    )
    labels = (*gpu_labels, str(process.pid), *map(_text, names))
    page.add("remediator_gpu_process_memory_used_bytes", labels, process.used_bytes)
    growth = process.growth
    if growth is None:
        return
    page.add("remediator_gpu_process_memory_growth_bytes_per_second", labels, growth.bytes_per_second)
    page.add(
        "remediator_gpu_process_memory_growth_uncertainty_bytes_per_second",
        labels,
        growth.uncertainty_bytes_per_second,
    )
    page.add("remediator_gpu_process_memory_seconds_until_full", labels, growth.seconds_until_full)
    page.add("remediator_gpu_process_leaking", labels, growth.is_leaking)


def _order(device: GpuDevice) -> tuple[int, str, int, str]:
    """By index; a physical GPU before its instances, which go by number."""
    return (device.index, device.uuid, int(device.mig_id) if device.mig_id.isdecimal() else -1, device.mig_uuid)


def _thousandth(milli: int | None) -> float | None:
    return None if milli is None else milli / 1000


def _text(value: str) -> str:
    """As a label's value: what is no UTF-8, or would end the text for its reader, is replaced."""
    return value.encode("utf-8", "replace").decode("utf-8").replace("\0", "\ufffd")
