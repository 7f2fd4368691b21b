"""What GPUs of a model are like: memory, power, heat. Figures of the usual SXM boards, round where boards differ."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One model.

    Attributes:
        total_mib, reserved_mib: memory, and what the driver keeps of it.
        idle_w, default_w, least_w, most_w: power drawn doing nothing, and limits.
        c_per_w: warmer than the air by so much for each watt.
        slowdown_c, shutdown_c: where the hardware slows down and switches off.
        zero_margin_c: temperature at which T.Limit is 0; None where the driver has no T.Limit (Ampere).
        says_slowdown: the driver gives ``slowdown_c`` (Hopper gives T.Limit in its place).
        clock_mhz, memory_clock_mhz: at full speed; idle_clock_mhz: at rest.
        memory_c: by which the memory is warmer under load.
    """

    name: str
    total_mib: int
    reserved_mib: int
    idle_w: float
    default_w: float
    least_w: float
    most_w: float
    c_per_w: float
    slowdown_c: int
    shutdown_c: int
    zero_margin_c: int | None
    clock_mhz: int
    memory_clock_mhz: int
    idle_clock_mhz: int
    memory_c: float

    @property
    def says_slowdown(self) -> bool:
        return self.zero_margin_c is None


MODELS = {
    "h100": Model(
        name="NVIDIA H100 80GB HBM3",
        total_mib=81559,
        reserved_mib=551,
        idle_w=75,
        default_w=700,
        least_w=200,
        most_w=700,
        c_per_w=0.058,
        slowdown_c=89,
        shutdown_c=95,
        zero_margin_c=87,
        clock_mhz=1980,
        memory_clock_mhz=2619,
        idle_clock_mhz=345,
        memory_c=9,
    ),
    "a100": Model(
        name="NVIDIA A100-SXM4-80GB",
        total_mib=81920,
        reserved_mib=569,
        idle_w=62,
        default_w=400,
        least_w=100,
        most_w=400,
        c_per_w=0.092,
        slowdown_c=89,
        shutdown_c=92,
        zero_margin_c=None,
        clock_mhz=1410,
        memory_clock_mhz=1593,
        idle_clock_mhz=210,
        memory_c=10,
    ),
}

DRIVER = "550.90.07"
NVML = "12.550.90.07"

HEAT_S = 45.0
"""Time constant of a heat sink: after a step of power, 63 % of the step of temperature."""

LEAST_SLOWDOWN = 0.35
"""Of its power: below this the hardware does not go, and gets hotter instead."""
