"""The page of NVIDIA's DCGM exporter: its names, its label order, and what it leaves out.

A node and times → columns. Source: dcgm-exporter 4.x, internal/pkg/rendermetrics and etc/default-counters.csv.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from simulator import noise
from simulator import scenario as stories
from simulator.cluster import IDLE, Gpu, Instance, Node, State, during
from simulator.models import DRIVER
from simulator.noise import Times, Values
from simulator.page import Column, Labels

WINDOW_S = 300
"""In which it counts Xids and clock events."""

XID_WORDS: Final = {
    0: "No Error",
    13: "Graphics Engine Exception",
    31: "GPU memory page fault",
    48: "Double Bit ECC Error",
    63: "Row remapping recording event",
    74: "NVLINK Error",
    79: "GPU has fallen off the bus",
    94: "Contained ECC error",
    95: "Uncontained ECC error",
}

CLOCK_EVENTS: Final = {"gpu_idle": 0x1, "power_cap": 0x4, "hw_slowdown": 0x8, "hw_thermal": 0x40}
"""Name on the page → bit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One entity at the times that the page tells of.

    Attributes:
        memory_used_mib, memory_total_mib, memory_reserved_mib, busy, activity: of the instance where there is one.
    """

    gpu: Gpu
    instance: Instance | None
    times: Times
    state: State
    memory_used_mib: Values
    memory_free_mib: Values
    memory_reserved_mib: float
    busy: Values
    activity: Values


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One DCGM field: how it is exported, and what it is. ``of_gpu``: a MIG instance has none."""

    kind: str
    help: str
    value: Callable[[Seen], Values]
    is_default: bool = False
    of_gpu: bool = False


def _always(value: float | None) -> Callable[[Seen], Values]:
    return lambda seen: np.full(seen.times.shape, np.nan if value is None else value)


def _model(attribute: str) -> Callable[[Seen], Values]:
    return lambda seen: np.full(seen.times.shape, float(getattr(seen.gpu.model, attribute)))


def _margin(seen: Seen) -> Values:
    zero = seen.gpu.model.zero_margin_c
    return np.full(seen.times.shape, np.nan) if zero is None else zero - np.round(seen.state.temperature_c)


def _slowdown(seen: Seen) -> Values:
    model = seen.gpu.model
    return np.full(seen.times.shape, model.slowdown_c if model.says_slowdown else np.nan)


def _reasons(seen: Seen) -> Values:
    state = seen.state
    idle = np.where(state.busy < IDLE, CLOCK_EVENTS["gpu_idle"], 0)
    heat = CLOCK_EVENTS["hw_slowdown"] | CLOCK_EVENTS["hw_thermal"]
    return idle + np.where(state.is_capped, CLOCK_EVENTS["power_cap"], 0) + np.where(state.is_hot, heat, 0.0)


def _health(seen: Seen) -> Values:
    failed = seen.gpu.has("row-remap-failure", seen.times) | (seen.gpu.uncorrected(seen.times) > 0)
    return np.where(failed, 20.0, np.where(seen.state.is_hot | seen.gpu.is_remap_pending(seen.times), 10.0, 0.0))


FIELDS: Final[dict[str, Field]] = {
    "DCGM_FI_DEV_SM_CLOCK": Field(
        kind="gauge", help="SM clock frequency (in MHz).", value=lambda s: np.round(s.state.clock_mhz), is_default=True
    ),
    "DCGM_FI_DEV_MEM_CLOCK": Field(
        kind="gauge", help="Memory clock frequency (in MHz).", value=_model("memory_clock_mhz"), is_default=True
    ),
    "DCGM_FI_DEV_MEMORY_TEMP": Field(
        kind="gauge",
        help="Memory temperature (in C).",
        value=lambda s: np.round(s.state.memory_temperature_c),
        is_default=True,
    ),
    "DCGM_FI_DEV_GPU_TEMP": Field(
        kind="gauge", help="GPU temperature (in C).", value=lambda s: np.round(s.state.temperature_c), is_default=True
    ),
    "DCGM_FI_DEV_GPU_TEMP_LIMIT": Field(kind="gauge", help="Thermal margin to slowdown (in C).", value=_margin),
    "DCGM_FI_DEV_SLOWDOWN_TEMP": Field(kind="gauge", help="Slowdown temperature (in C).", value=_slowdown),
    "DCGM_FI_DEV_SHUTDOWN_TEMP": Field(kind="gauge", help="Shutdown temperature (in C).", value=_model("shutdown_c")),
    "DCGM_FI_DEV_POWER_USAGE": Field(
        kind="gauge", help="Power draw (in W).", value=lambda s: np.round(s.state.power_w, 3), is_default=True
    ),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": Field(
        kind="counter",
        help="Total energy consumption since boot (in mJ).",
        value=lambda s: np.round(s.gpu.totals.at("energy_j", s.times) * 1000),
        is_default=True,
    ),
    "DCGM_FI_DEV_POWER_MGMT_LIMIT": Field(
        kind="gauge", help="Power limit (in W).", value=lambda s: s.state.requested_w
    ),
    "DCGM_FI_DEV_POWER_MGMT_LIMIT_MIN": Field(kind="gauge", help="Least power limit (in W).", value=_model("least_w")),
    "DCGM_FI_DEV_POWER_MGMT_LIMIT_MAX": Field(kind="gauge", help="Most power limit (in W).", value=_model("most_w")),
    "DCGM_FI_DEV_POWER_MGMT_LIMIT_DEF": Field(
        kind="gauge", help="Default power limit (in W).", value=_model("default_w")
    ),
    "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": Field(
        kind="gauge", help="Enforced power limit (in W).", value=lambda s: s.state.enforced_w
    ),
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": Field(kind="gauge", help="Clock event reasons (bit mask).", value=_reasons),
    "DCGM_FI_DEV_POWER_VIOLATION": Field(
        kind="counter",
        help="Throttling duration due to power constraints (in ns).",
        value=lambda s: np.round(s.gpu.totals.at("capped_s", s.times) * 1e9),
    ),
    "DCGM_FI_DEV_THERMAL_VIOLATION": Field(
        kind="counter",
        help="Throttling duration due to thermal constraints (in ns).",
        value=lambda s: np.round(s.gpu.totals.at("hot_s", s.times) * 1e9),
    ),
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": Field(
        kind="counter", help="Total number of PCIe retries.", value=_always(0), is_default=True
    ),
    "DCGM_FI_DEV_GPU_UTIL": Field(
        kind="gauge",
        help="GPU utilization (in %).",
        value=lambda s: np.round(100 * s.busy),
        is_default=True,
        of_gpu=True,
    ),
    "DCGM_FI_DEV_MEM_COPY_UTIL": Field(
        kind="gauge",
        help="Memory utilization (in %).",
        value=lambda s: np.round(62 * s.activity),
        is_default=True,
        of_gpu=True,
    ),
    "DCGM_FI_DEV_ENC_UTIL": Field(
        kind="gauge", help="Encoder utilization (in %).", value=_always(0), is_default=True, of_gpu=True
    ),
    "DCGM_FI_DEV_DEC_UTIL": Field(
        kind="gauge", help="Decoder utilization (in %).", value=_always(0), is_default=True, of_gpu=True
    ),
    "DCGM_FI_DEV_FB_FREE": Field(
        kind="gauge",
        help="Framebuffer memory free (in MiB).",
        value=lambda s: np.round(s.memory_free_mib),
        is_default=True,
    ),
    "DCGM_FI_DEV_FB_USED": Field(
        kind="gauge",
        help="Framebuffer memory used (in MiB).",
        value=lambda s: np.round(s.memory_used_mib),
        is_default=True,
    ),
    "DCGM_FI_DEV_FB_RESERVED": Field(
        kind="gauge",
        help="Framebuffer memory reserved (in MiB).",
        value=lambda s: np.full(s.times.shape, s.memory_reserved_mib),
        is_default=True,
    ),
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": Field(
        kind="counter",
        help="Total number of single-bit volatile ECC errors.",
        value=lambda s: s.gpu.volatile(s.gpu.corrected, s.times),
    ),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": Field(
        kind="counter",
        help="Total number of double-bit volatile ECC errors.",
        value=lambda s: s.gpu.volatile(s.gpu.uncorrected, s.times),
    ),
    "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL": Field(
        kind="counter",
        help="Total number of single-bit persistent ECC errors.",
        value=lambda s: s.gpu.corrected(s.times),
    ),
    "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL": Field(
        kind="counter",
        help="Total number of double-bit persistent ECC errors.",
        value=lambda s: s.gpu.uncorrected(s.times),
    ),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": Field(
        kind="counter",
        help="Number of remapped rows for uncorrectable errors",
        value=lambda s: s.gpu.remapped(s.times),
        is_default=True,
    ),
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": Field(
        kind="counter", help="Number of remapped rows for correctable errors", value=_always(0), is_default=True
    ),
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": Field(
        kind="gauge",
        help="Whether remapping of rows has failed",
        value=lambda s: s.gpu.has("row-remap-failure", s.times) + 0.0,
        is_default=True,
    ),
    "DCGM_FI_DEV_ROW_REMAP_PENDING": Field(
        kind="gauge", help="Whether remapping of rows is pending", value=lambda s: s.gpu.is_remap_pending(s.times) + 0.0
    ),
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": Field(
        kind="counter",
        help="Total number of NVLink bandwidth counters for all lanes.",
        value=lambda s: np.round(1000 * s.state.nvlink_gb_s),
        is_default=True,
        of_gpu=True,
    ),
    "DCGM_FI_PROF_NVLINK_TX_BYTES": Field(
        kind="gauge",
        help="NVLink bytes sent a second.",
        value=lambda s: np.round(5e8 * s.state.nvlink_gb_s),
        of_gpu=True,
    ),
    "DCGM_FI_PROF_NVLINK_RX_BYTES": Field(
        kind="gauge",
        help="NVLink bytes received a second.",
        value=lambda s: np.round(5e8 * s.state.nvlink_gb_s),
        of_gpu=True,
    ),
    "DCGM_FI_DEV_VGPU_LICENSE_STATUS": Field(
        kind="gauge", help="vGPU License status", value=_always(0), is_default=True, of_gpu=True
    ),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": Field(
        kind="gauge",
        help="Ratio of time the graphics engine is active.",
        value=lambda s: np.round(s.busy, 6),
        is_default=True,
    ),
    "DCGM_FI_PROF_SM_ACTIVE": Field(
        kind="gauge",
        help="The ratio of cycles an SM has at least 1 warp assigned.",
        value=lambda s: np.round(s.activity, 6),
    ),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": Field(
        kind="gauge",
        help="Ratio of cycles the tensor (HMMA) pipe is active.",
        value=lambda s: np.round(0.5 * s.activity, 6),
        is_default=True,
    ),
    "DCGM_FI_PROF_DRAM_ACTIVE": Field(
        kind="gauge",
        help="Ratio of cycles the device memory interface is active sending or receiving data.",
        value=lambda s: np.round(0.6 * s.activity, 6),
        is_default=True,
    ),
    "DCGM_FI_PROF_PCIE_TX_BYTES": Field(
        kind="gauge",
        help="The rate of data transmitted over the PCIe bus.",
        value=lambda s: np.round(2.1e9 * s.activity),
        is_default=True,
        of_gpu=True,
    ),
    "DCGM_FI_PROF_PCIE_RX_BYTES": Field(
        kind="gauge",
        help="The rate of data received over the PCIe bus.",
        value=lambda s: np.round(3.4e9 * s.activity),
        is_default=True,
        of_gpu=True,
    ),
    "DCGM_EXP_GPU_HEALTH_STATUS": Field(kind="gauge", help="Health of the GPU.", value=_health),
}
"""All that the simulator knows, but for fields whose labels depend on their value: ``_xids``, ``_clock_events``."""

BY_VALUE: Final = ("DCGM_FI_DEV_XID_ERRORS", "DCGM_EXP_XID_ERRORS_COUNT", "DCGM_EXP_CLOCK_EVENTS_COUNT")


def columns(node: Node, times: Times) -> Iterator[Column]:
    """The page of one node; all NaN where a GPU does not answer, nothing said of whether the exporter does."""
    setup = node.cluster.scenario.dcgm
    told = node.shown("dcgm", times)
    for gpu in node.gpus:
        state = gpu.state(told)
        for instance in gpu.instances or (None,):
            seen = _seen(gpu, instance, told, state)
            own = _own_labels(seen)
            for workload, is_so in _workloads(seen, times):
                is_shown = is_so & state.is_here
                labels = own, workload
                for name, field in FIELDS.items():
                    if (instance is not None and field.of_gpu) or not (field.is_default or setup.counters == "all"):
                        continue
                    yield _column(
                        name, field.kind, field.help, labels, (), np.where(is_shown, field.value(seen), np.nan)
                    )
                yield from _xids(seen, labels, is_shown, setup.counters == "all")
                if setup.counters == "all":
                    yield from _clock_events(seen, labels, is_shown)


def _seen(gpu: Gpu, instance: Instance | None, times: Times, state: State) -> Seen:
    if instance is None:
        used, busy, activity = state.memory_used_mib, state.busy, state.activity
        usable, reserved = gpu.usable_mib, float(gpu.model.reserved_mib)
    else:
        usable, reserved = float(instance.total_mib), 0.0
        used, busy, activity = gpu.instance_state(instance, times)
    return Seen(
        gpu=gpu,
        instance=instance,
        times=times,
        state=state,
        memory_used_mib=used,
        memory_free_mib=usable - np.round(used),
        memory_reserved_mib=reserved,
        busy=busy,
        activity=activity,
    )


def _own_labels(seen: Seen) -> Labels:
    gpu, setup = seen.gpu, seen.gpu.node.cluster.scenario.dcgm
    mig: Labels = ()
    if seen.instance is not None:
        mig = (("GPU_I_PROFILE", seen.instance.profile), ("GPU_I_ID", seen.instance.id))
    return (
        ("gpu", str(gpu.index)),
        ("UUID", gpu.uuid),
        ("pci_bus_id", gpu.pci),
        ("device", f"nvidia{gpu.index}"),
        ("modelName", gpu.model.name),
        *mig,
        (setup.hostname, gpu.node.name),
        ("DCGM_FI_DRIVER_VERSION", DRIVER),
    )


def _workloads(seen: Seen, times: Times) -> Iterator[tuple[Labels, np.ndarray]]:
    """Each set of workload labels that the entity ever has in these times, and when it has that one."""
    gpu = seen.gpu
    number = None if seen.instance is None else seen.instance.number
    held: list[tuple[Labels, np.ndarray]] = []
    for job, _, own in gpu.jobs:
        labels: list[tuple[str, str]] = []
        if job.job.pod and gpu.node.cluster.scenario.dcgm.kubernetes:
            pod = job.pod_on(gpu.node.name)
            labels = [("pod", pod), ("namespace", job.job.namespace), ("container", job.job.container)]
        if job.job.training_job and job.job.pod and labels:
            labels.append(("training_kubeflow_org_job_name", job.job.training_job))
        elif job.job.training_job and not job.job.pod:
            labels.append(("hpc_job", job.job.training_job))
        if own == number and labels:
            held.append((tuple(labels), job.holds_gpu(seen.times)))
    is_hidden = gpu.has("labels-missing", times)
    for fault in gpu.faults(stories.LabelsFlap):
        is_hidden |= during(fault, times) & (np.floor(times / fault.every) % 2 == 1)
    # A GPU that several pods have is written with one of them, now this one and now that (dcgm-exporter#340).
    turn = noise.uniform(noise.key("turn", gpu.uuid, number), np.floor(times / 15))
    n_held = sum((holds.astype(int) for _, holds in held), np.zeros(times.shape, int))
    chosen = np.floor(turn * n_held)
    so_far = np.zeros(times.shape, int)
    for labels_now, holds in held:
        is_so = holds & (so_far == chosen) & ~is_hidden
        so_far = so_far + holds
        if is_so.any():
            yield labels_now, is_so
    nobody = (n_held == 0) | is_hidden
    if nobody.any():
        yield (), nobody


def _column(name: str, kind: str, words: str, labels: tuple[Labels, Labels], more: Labels, values: Values) -> Column:
    own, workload = labels
    return Column(name=name, kind=kind, help=words, labels=(*own, *more, *workload), values=values)


def _xids(seen: Seen, labels: tuple[Labels, Labels], is_shown: np.ndarray, with_counts: bool) -> Iterator[Column]:
    gpu = seen.gpu
    last = gpu.last_xid(seen.times, gpu.node.exporter_started("dcgm", seen.times))
    for code in sorted({0, *(code for _, code in gpu.xids)}):
        is_so = is_shown & (last == code)
        more = (("err_code", str(code)), ("err_msg", XID_WORDS.get(code, "Unknown Error")))
        if is_so.any():
            words = "Value of the last XID error encountered."
            yield _column("DCGM_FI_DEV_XID_ERRORS", "gauge", words, labels, more, np.where(is_so, code, np.nan))
    if with_counts:
        for code in sorted({code for _, code in gpu.xids}):
            count = gpu.n_xids(code, seen.times, WINDOW_S)
            more = (("window_size_in_ms", str(WINDOW_S * 1000)), ("xid", str(code)))
            shown = np.where(is_shown & (count > 0), count, np.nan)
            if not np.isnan(shown).all():
                words = "Count of XID Errors within user-specified time window"
                yield _column("DCGM_EXP_XID_ERRORS_COUNT", "gauge", words, labels, more, shown)


def _clock_events(seen: Seen, labels: tuple[Labels, Labels], is_shown: np.ndarray) -> Iterator[Column]:
    """In how many of the last ten half minutes each reason held; none is written for none."""
    for event, total in {"gpu_idle": "idle_s", "power_cap": "capped_s", "hw_thermal": "hot_s"}.items():
        totals = seen.gpu.totals
        count = np.round((totals.at(total, seen.times) - totals.at(total, seen.times - WINDOW_S)) / 30)
        shown = np.where(is_shown & (count > 0), count, np.nan)
        if not np.isnan(shown).all():
            words = "Count of clock events within the user-specified time window"
            more = (("window_size_in_ms", str(WINDOW_S * 1000)), ("clock_event", event))
            yield _column("DCGM_EXP_CLOCK_EVENTS_COUNT", "gauge", words, labels, more, shown)
