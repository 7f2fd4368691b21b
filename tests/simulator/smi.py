"""The page of utkuozdemir's nvidia_gpu_exporter (its NVML backend): ratios, bytes, and no label but ``uuid``.

A node and times → columns. Source: its docs/METRICS.md and the pages of H100 and H200 that it is tested with.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from simulator.cluster import IDLE, Gpu, Node, State
from simulator.models import DRIVER
from simulator.noise import Times, Values
from simulator.page import Column, Labels

MIB = 1024.0 * 1024.0


def columns(node: Node, times: Times) -> Iterator[Column]:
    """The page of one node; NaN where a GPU does not answer."""
    told = node.shown("smi", times)
    epoch = node.cluster.epoch
    yield _gauge("nvidia_smi_last_collect_success", (), np.ones(times.shape))
    yield _gauge("nvidia_smi_last_collect_success_timestamp_seconds", (), np.floor(epoch + told))
    yield _gauge("nvidia_smi_nvml_return_code", (), np.zeros(times.shape))
    yield _counter("nvidia_smi_failed_scrapes_total", (), np.zeros(times.shape))
    for gpu in node.gpus:
        state = gpu.state(told)
        uuid = ("uuid", gpu.uuid.removeprefix("GPU-").lower())
        info: Labels = (
            uuid,
            ("name", gpu.model.name),
            ("driver_version", DRIVER),
            ("cuda_version", "12.4"),
            ("pci_bus_id", gpu.pci),
            ("serial", f"16{gpu.index:011d}"),
            ("index", str(gpu.index)),
        )
        yield _gauge("nvidia_smi_gpu_info", info, np.where(state.is_here, 1, np.nan))
        for name, values in _of_gpu(gpu, told, state).items():
            make = _counter if name.endswith("_total") else _gauge
            yield make(name, (uuid,), np.where(state.is_here, values, np.nan))
        yield from _mig(gpu, uuid, told, state)
        # Xids are counted since the exporter started, whether the GPU still answers or not.
        since = node.exporter_started("smi", told)
        for code in sorted({code for _, code in gpu.xids}):
            came = [at for at, own in gpu.xids if own == code]
            count = sum(((told >= at) & (at >= since) for at in came), np.zeros(times.shape))
            last = np.max([np.where((told >= at) & (at >= since), at, -np.inf) for at in came], axis=0)
            labels = (uuid, ("xid", str(code)))
            yield _counter("nvidia_smi_xid_errors_total", labels, np.where(count > 0, count, np.nan))
            yield _gauge(
                "nvidia_smi_xid_last_timestamp_seconds", labels, np.where(count > 0, np.floor(epoch + last), np.nan)
            )


def _of_gpu(gpu: Gpu, times: Times, state: State) -> dict[str, Values]:
    model = gpu.model
    always = np.ones(times.shape)
    temperature = np.round(state.temperature_c)
    used_mib = np.round(state.memory_used_mib)
    watts = np.round(state.power_w, 2)
    found = {
        "nvidia_smi_memory_total_bytes": always * model.total_mib * MIB,
        "nvidia_smi_memory_reserved_bytes": always * model.reserved_mib * MIB,
        "nvidia_smi_memory_used_bytes": used_mib * MIB,
        "nvidia_smi_memory_free_bytes": (gpu.usable_mib - used_mib) * MIB,
        "nvidia_smi_temperature_gpu": temperature,
        "nvidia_smi_temperature_memory": np.round(state.memory_temperature_c),
        "nvidia_smi_power_draw_watts": watts,
        "nvidia_smi_power_draw_average_watts": watts,
        "nvidia_smi_power_draw_instant_watts": watts,
        "nvidia_smi_power_limit_watts": state.requested_w,
        "nvidia_smi_enforced_power_limit_watts": state.enforced_w,
        "nvidia_smi_power_default_limit_watts": always * model.default_w,
        "nvidia_smi_power_min_limit_watts": always * model.least_w,
        "nvidia_smi_power_max_limit_watts": always * model.most_w,
        "nvidia_smi_clocks_current_sm_clock_hz": np.round(state.clock_mhz) * 1e6,
        "nvidia_smi_clocks_event_reasons_gpu_idle": (state.busy < IDLE) * always,
        "nvidia_smi_clocks_event_reasons_sw_power_cap": state.is_capped * always,
        "nvidia_smi_clocks_event_reasons_hw_slowdown": state.is_hot * always,
        "nvidia_smi_clocks_event_reasons_hw_thermal_slowdown": state.is_hot * always,
        "nvidia_smi_clocks_event_reasons_sw_thermal_slowdown": always * 0,
        "nvidia_smi_clocks_event_reasons_hw_power_brake_slowdown": always * 0,
        "nvidia_smi_ecc_errors_corrected_volatile_total": gpu.volatile(gpu.corrected, times),
        "nvidia_smi_ecc_errors_corrected_aggregate_total": gpu.corrected(times),
        "nvidia_smi_ecc_errors_uncorrected_volatile_total": gpu.volatile(gpu.uncorrected, times),
        "nvidia_smi_ecc_errors_uncorrected_aggregate_total": gpu.uncorrected(times),
        "nvidia_smi_remapped_rows_correctable": always * 0,
        "nvidia_smi_remapped_rows_uncorrectable": gpu.remapped(times),
        "nvidia_smi_remapped_rows_pending": gpu.is_remap_pending(times) * always,
        "nvidia_smi_remapped_rows_failure": gpu.has("row-remap-failure", times) * always,
        "nvidia_smi_gpu_recovery_action": gpu.recovery_action(times),
        "nvidia_smi_energy_joules_total": np.round(gpu.totals.at("energy_j", times), 3),
        "nvidia_smi_mig_mode_current": always * bool(gpu.instances),
    }
    if model.zero_margin_c is not None:
        found["nvidia_smi_temperature_gpu_tlimit"] = model.zero_margin_c - temperature
    if not gpu.instances:
        found["nvidia_smi_utilization_gpu_ratio"] = np.round(state.busy, 2)
        found["nvidia_smi_utilization_memory_ratio"] = np.round(0.62 * state.activity, 2)
    return found


def _mig(gpu: Gpu, uuid: tuple[str, str], times: Times, state: State) -> Iterator[Column]:
    for instance in gpu.instances:
        own: Labels = (uuid, ("gpu_instance_id", instance.id))
        info: Labels = (uuid, ("mig_uuid", instance.uuid), ("gpu_instance_id", instance.id))
        info = (*info, ("compute_instance_id", "0"), ("profile", instance.profile))
        used, busy, activity = gpu.instance_state(instance, times)
        for name, labels, values in (
            ("nvidia_smi_mig_info", info, np.ones(times.shape)),
            ("nvidia_smi_mig_memory_total_bytes", own, np.full(times.shape, instance.total_mib * MIB)),
            ("nvidia_smi_mig_memory_used_bytes", own, np.round(used) * MIB),
            ("nvidia_smi_mig_memory_free_bytes", own, (instance.total_mib - np.round(used)) * MIB),
            ("nvidia_smi_mig_memory_reserved_bytes", own, np.zeros(times.shape)),
            ("nvidia_smi_mig_graphics_activity_ratio", own, np.round(busy, 4)),
            ("nvidia_smi_mig_sm_activity_ratio", own, np.round(activity, 4)),
        ):
            yield _gauge(name, labels, np.where(state.is_here, values, np.nan))


def _gauge(name: str, labels: Labels, values: Values) -> Column:
    return Column(name=name, kind="gauge", help=_words(name), labels=labels, values=values)


def _counter(name: str, labels: Labels, values: Values) -> Column:
    return Column(name=name, kind="counter", help=_words(name), labels=labels, values=values)


def _words(name: str) -> str:
    return name.removeprefix("nvidia_smi_").replace("_", " ")
