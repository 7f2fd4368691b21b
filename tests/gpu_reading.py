"""What a GPU says that supports everything, for tests of what is made of it."""

from __future__ import annotations

from remediator.clients.ports import GpuProcess, GpuReading, PowerLimits, ThrottleReason

FULL = GpuReading(
    memory_used_bytes=10,
    memory_total_bytes=100,
    memory_free_bytes=85,
    memory_reserved_bytes=5,
    utilization_ratio=0.97,
    temperature_c=61,
    memory_temperature_c=70,
    slowdown_temperature_c=90,
    shutdown_temperature_c=95,
    temperature_margin_c=26,
    power_mw=412_345,
    power_limits=PowerLimits(
        requested_mw=600_000, enforced_mw=600_000, default_mw=700_000, least_mw=200_000, most_mw=700_000
    ),
    throttle_reasons=frozenset({ThrottleReason.SW_POWER_CAP}),
    ecc_corrected=7,
    ecc_uncorrected=0,
    remapped_correctable=1,
    remapped_uncorrectable=0,
    is_remap_pending=True,
    is_remap_failed=False,
    recovery_action=2,
    processes=(GpuProcess(pid=100, used_bytes=10),),
)
