"""What a snapshot looks like when it is scraped."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from gpu_reading import FULL
from remediator import __version__
from remediator.clients.ports import GpuDevice, GpuDriver, GpuProcess, GpuReading, PowerLimits, ThrottleReason
from remediator.exporter.collect import FAMILIES, Kind, Origin, families, origin_of
from remediator.exporter.leak import Growth
from remediator.exporter.snapshot import GpuSample, ProcessSample, Snapshot
from remediator.exporter.workload import Workload

DEVICE = GpuDevice(index=3, uuid="GPU-a", name="NVIDIA H100 80GB HBM3")
DRIVER = GpuDriver(driver_version="570.1", nvml_version="12.570.1")
LEAK = Growth(bytes_per_second=1000.0, uncertainty_bytes_per_second=10.0, is_leaking=True, seconds_until_full=7200.0)
CALM = Growth(bytes_per_second=0.0, uncertainty_bytes_per_second=5.0, is_leaking=False, seconds_until_full=None)
G = {
    "gpu": "3",
    "UUID": "GPU-a",
    "model_name": "NVIDIA H100 80GB HBM3",
    "hostname": "gpu-07",
    "GPU_I_ID": "",
    "GPU_I_PROFILE": "",
}


class Page:
    """What ``generate_latest`` asks for."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> list[Metric]:
        return list(families(self._snapshot))


def gpu(reading: GpuReading | None = FULL, *processes: ProcessSample, **more: Any) -> GpuSample:
    return GpuSample(**{"device": DEVICE, "age_s": 0.4, "reading": reading, "processes": processes, **more})


def snapshot(*gpus: GpuSample, **more: Any) -> Snapshot:
    return Snapshot(**{"hostname": "gpu-07", "driver": DRIVER, "gpus": gpus, **more})


def text(shown: Snapshot) -> str:
    return generate_latest(Page(shown)).decode("utf-8")


def series(shown: Snapshot, name: str) -> list[tuple[dict[str, str], float]]:
    """What a reader of the text finds: labels and value of each series of this name."""
    found = [sample for family in text_string_to_metric_families(text(shown)) for sample in family.samples]
    return [(sample.labels, sample.value) for sample in found if sample.name == name]


def value(shown: Snapshot, name: str) -> float | None:
    found = [each for _, each in series(shown, name)]
    assert len(found) < 2
    return found[0] if found else None


def by(shown: Snapshot, name: str, label: str) -> dict[str, float]:
    return {labels[label]: each for labels, each in series(shown, name)}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("remediator_gpu_up", 1),
        ("remediator_gpu_sample_age_seconds", 0.4),
        ("remediator_gpu_memory_used_bytes", 10),
        ("remediator_gpu_memory_free_bytes", 85),
        ("remediator_gpu_memory_total_bytes", 100),
        ("remediator_gpu_memory_reserved_bytes", 5),
        ("remediator_gpu_utilization_ratio", 0.97),
        ("remediator_gpu_temperature_celsius", 61),
        ("remediator_gpu_memory_temperature_celsius", 70),
        ("remediator_gpu_slowdown_temperature_celsius", 90),
        ("remediator_gpu_temperature_margin_celsius", 26),
        ("remediator_gpu_power_watts", 412.345),
        ("remediator_gpu_row_remap_pending", 1),
        ("remediator_gpu_row_remap_failure", 0),
        ("remediator_gpu_recovery_action", 2),
        ("nvidia_custom_leak_count", 0),
    ],
)
def test_gpu_when_the_driver_says_all_then_each_value_is_in_its_unit_with_the_gpus_labels(
    name: str, expected: float
) -> None:
    assert series(snapshot(gpu()), name) == [(G, expected)]


@pytest.mark.parametrize(
    ("name", "label", "expected"),
    [
        (
            "remediator_gpu_power_limit_watts",
            "limit",
            {"requested": 600, "enforced": 600, "default": 700, "min": 200, "max": 700},
        ),
        ("remediator_gpu_power_limit_origin", "origin", {"default": 0, "host": 1, "out_of_band": 0}),
        ("remediator_gpu_clocks_throttled", "reason", {each: each == "sw_power_cap" for each in ThrottleReason}),
        ("remediator_gpu_ecc_errors_total", "type", {"corrected": 7, "uncorrected": 0}),
        ("remediator_gpu_remapped_rows", "type", {"correctable": 1, "uncorrectable": 0}),
    ],
)
def test_gpu_when_a_metric_has_kinds_then_there_is_a_series_of_each(
    name: str, label: str, expected: dict[str, float]
) -> None:
    assert by(snapshot(gpu()), name, label) == expected


def test_gpu_when_the_driver_says_nothing_of_it_then_only_that_it_is_up_is_told() -> None:
    shown = snapshot(gpu(GpuReading()))

    names = {family.name for family in families(shown)}

    assert names == {
        "remediator_gpu_exporter",
        "remediator_gpu_driver_up",
        "remediator_gpu_devices",
        "remediator_gpu_up",
        "remediator_gpu_sample_age_seconds",
    }


def test_gpu_when_it_is_lost_then_is_down_and_has_no_values() -> None:
    process = ProcessSample(pid=100, used_bytes=10, growth=LEAK)
    shown = snapshot(gpu(None, process, age_s=61.0, utilization_mean_ratio=0.9))

    assert series(shown, "remediator_gpu_up") == [(G, 0)]
    assert series(shown, "remediator_gpu_sample_age_seconds") == [(G, 61)]
    assert {family.name for family in families(shown)} == {
        "remediator_gpu_exporter",
        "remediator_gpu_driver_up",
        "remediator_gpu_devices",
        "remediator_gpu_up",
        "remediator_gpu_sample_age_seconds",
    }


def test_driver_when_there_is_none_then_is_down_and_still_says_who_speaks() -> None:
    shown = snapshot(driver=None, problem="no driver")

    assert series(shown, "remediator_gpu_driver_up") == [({"hostname": "gpu-07"}, 0)]
    assert series(shown, "remediator_gpu_devices") == [({"hostname": "gpu-07"}, 0)]
    versions = {"version": __version__, "driver_version": "", "nvml_version": ""}
    assert series(shown, "remediator_gpu_exporter_info") == [(versions, 1)]


def test_devices_when_a_gpu_is_cut_into_instances_then_counts_gpus_and_labels_instances() -> None:
    whole = gpu(GpuReading(power_mw=1000), device=replace(DEVICE, is_mig_enabled=True))
    one, two = (
        gpu(
            GpuReading(memory_used_bytes=int(mig_id)),
            device=replace(DEVICE, mig_uuid=f"MIG-{mig_id}", mig_id=mig_id, mig_profile="1g.10gb"),
        )
        for mig_id in ("10", "9")
    )
    shown = snapshot(one, two, whole)

    assert value(shown, "remediator_gpu_devices") == 1
    assert series(shown, "remediator_gpu_power_watts") == [(G, 1)]
    assert series(shown, "remediator_gpu_memory_used_bytes") == [
        (G | {"GPU_I_ID": mig_id, "GPU_I_PROFILE": "1g.10gb"}, int(mig_id)) for mig_id in ("9", "10")
    ]


@pytest.mark.parametrize(
    ("reading", "expected"),
    [
        pytest.param(
            GpuReading(temperature_margin_c=-3, slowdown_temperature_c=90, temperature_c=80), -3, id="as said"
        ),
        pytest.param(GpuReading(slowdown_temperature_c=90, temperature_c=80), 10, id="else what is left to slowdown"),
        pytest.param(GpuReading(slowdown_temperature_c=90), None, id="no temperature, no margin"),
        pytest.param(GpuReading(temperature_c=80), None, id="no slowdown temperature, no margin"),
    ],
)
def test_margin_when_the_driver_says_it_or_not_then_is_known_as_far_as_it_can_be(
    reading: GpuReading, expected: float | None
) -> None:
    assert value(snapshot(gpu(reading)), "remediator_gpu_temperature_margin_celsius") == expected


@pytest.mark.parametrize(
    ("requested_w", "enforced_w", "default_w", "expected"),
    [
        pytest.param(700, 700, 700, Origin.DEFAULT, id="nobody set one"),
        pytest.param(500, 500, 700, Origin.HOST, id="somebody set one on this host"),
        pytest.param(700, 700, 500, Origin.HOST, id="a higher one too"),
        pytest.param(700, 500, 700, Origin.OUT_OF_BAND, id="less holds than was asked for"),
        pytest.param(600, 500, 700, Origin.OUT_OF_BAND, id="the outer one holds where both are set"),
        pytest.param(700, 699.5, 700, Origin.DEFAULT, id="rounding is nobody"),
        pytest.param(500, None, 700, Origin.HOST, id="what holds is not told"),
        pytest.param(700, 500, None, Origin.OUT_OF_BAND, id="the default is not told, and not needed"),
        pytest.param(700, 700, None, None, id="the default is not told, and needed"),
        pytest.param(None, 500, 700, None, id="what was asked for is not told"),
    ],
)
def test_origin_when_limits_differ_then_is_who_set_the_one_that_holds(
    requested_w: float | None, enforced_w: float | None, default_w: float | None, expected: Origin | None
) -> None:
    def mw(watts: float | None) -> int | None:
        return None if watts is None else int(watts * 1000)

    limits = PowerLimits(requested_mw=mw(requested_w), enforced_mw=mw(enforced_w), default_mw=mw(default_w))

    assert origin_of(limits) is expected
    shown = by(snapshot(gpu(GpuReading(power_limits=limits))), "remediator_gpu_power_limit_origin", "origin")
    assert shown == ({each: each is expected for each in Origin} if expected else {})


def test_process_when_it_leaks_then_all_is_told_with_what_it_belongs_to() -> None:
    workload = Workload(
        container_id="c" * 64, exported_namespace="ml", exported_pod="train-0", exported_container="main"
    )
    shown = snapshot(gpu(FULL, ProcessSample(pid=100, used_bytes=10, workload=workload, growth=LEAK)))
    labels = G | {
        "pid": "100",
        "container_id": "c" * 64,
        "container_name": "",
        "exported_namespace": "ml",
        "exported_pod": "train-0",
        "exported_container": "main",
    }

    prefix = "remediator_gpu_process_"
    assert series(shown, prefix + "memory_used_bytes") == [(labels, 10)]
    assert series(shown, prefix + "memory_growth_bytes_per_second") == [(labels, 1000)]
    assert series(shown, prefix + "memory_growth_uncertainty_bytes_per_second") == [(labels, 10)]
    assert series(shown, prefix + "memory_seconds_until_full") == [(labels, 7200)]
    assert series(shown, prefix + "leaking") == [(labels, 1)]


@pytest.mark.parametrize(
    ("process", "absent"),
    [
        pytest.param(ProcessSample(pid=1, used_bytes=10, growth=CALM), {"memory_seconds_until_full"}, id="no leak"),
        pytest.param(
            ProcessSample(pid=1, used_bytes=10),
            {
                "memory_growth_bytes_per_second",
                "memory_growth_uncertainty_bytes_per_second",
                "memory_seconds_until_full",
                "leaking",
            },
            id="seen too shortly",
        ),
    ],
)
def test_process_when_something_is_not_known_then_it_is_absent(process: ProcessSample, absent: set[str]) -> None:
    shown = {family.name.removeprefix("remediator_gpu_process_") for family in families(snapshot(gpu(FULL, process)))}

    of_processes = {
        name.removeprefix("remediator_gpu_process_") for name in FAMILIES if name.startswith("remediator_gpu_process_")
    }
    assert of_processes - shown == absent


def test_process_when_the_driver_does_not_say_what_it_uses_then_nothing_is_said_of_it() -> None:
    reading = replace(FULL, processes=(GpuProcess(pid=1, used_bytes=None),))

    names = {family.name for family in families(snapshot(gpu(reading, ProcessSample(pid=1, used_bytes=None))))}

    assert not {name for name in names if "process" in name}
    assert "nvidia_custom_leak_count" not in names


@pytest.mark.parametrize(
    ("reading", "growths", "expected"),
    [
        pytest.param(FULL, [], 0, id="nobody uses it"),
        pytest.param(FULL, [CALM, None], 0, id="nothing leaks as far as is known"),
        pytest.param(FULL, [LEAK, CALM, LEAK], 2, id="two of three leak"),
        pytest.param(replace(FULL, processes=None), [], None, id="nobody knows who uses it"),
    ],
)
def test_leak_count_when_processes_leak_then_is_how_many(
    reading: GpuReading, growths: list[Growth | None], expected: int | None
) -> None:
    processes = [ProcessSample(pid=n, used_bytes=1, growth=each) for n, each in enumerate(growths)]

    assert value(snapshot(gpu(reading, *processes)), "nvidia_custom_leak_count") == expected


def test_spread_when_a_pod_has_two_gpus_then_is_told_with_its_names() -> None:
    process = ProcessSample(pid=1, used_bytes=1, workload=Workload(exported_namespace="ml", exported_pod="train-0"))
    other = replace(DEVICE, index=4, uuid="GPU-b")
    shown = snapshot(
        gpu(FULL, process, utilization_mean_ratio=0.75), gpu(FULL, process, utilization_mean_ratio=0.5, device=other)
    )

    labels = {"hostname": "gpu-07", "container_name": "", "exported_namespace": "ml", "exported_pod": "train-0"}
    assert series(shown, "remediator_gpu_job_utilization_spread_ratio") == [(labels, 0.25)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ('a"} 1\nremediator_gpu_up{gpu="0', 'a"} 1\nremediator_gpu_up{gpu="0'),
        ("back\\slash", "back\\slash"),
        ("Größe 模型 💥", "Größe 模型 💥"),
        ("no\udcffutf8", "no?utf8"),
        ("a\0b", "a\ufffdb"),
        ("x" * 5000, "x" * 5000),
    ],
    ids=["text of another series", "backslash", "any script", "bytes that are no UTF-8", "NUL", "very long"],
)
def test_label_when_its_value_is_hostile_then_is_one_value_and_no_more(name: str, expected: str) -> None:
    workload = Workload(container_name=name)
    shown = snapshot(gpu(FULL, ProcessSample(pid=1, used_bytes=10, workload=workload)))

    assert by(shown, "remediator_gpu_process_memory_used_bytes", "container_name") == {expected: 10}
    assert value(shown, "remediator_gpu_up") == 1


def test_page_when_gpus_and_processes_come_in_another_order_then_is_the_same_text() -> None:
    gpus = [
        gpu(
            FULL,
            ProcessSample(pid=10, used_bytes=1, growth=LEAK),
            ProcessSample(pid=9, used_bytes=2),
            device=replace(DEVICE, index=index, uuid=f"GPU-{index}"),
        )
        for index in (0, 1, 2, 10)
    ]
    turned = [replace(each, processes=each.processes[::-1]) for each in reversed(gpus)]

    assert text(snapshot(*turned)) == text(snapshot(*gpus))


def test_page_when_read_as_openmetrics_then_has_the_same_series() -> None:
    shown = snapshot(gpu(FULL, ProcessSample(pid=1, used_bytes=10, growth=LEAK)))

    def found(read: Any) -> set[tuple[str, frozenset[tuple[str, str]], float]]:
        return {(each.name, frozenset(each.labels.items()), each.value) for family in read for each in family.samples}

    openmetrics = found(parse_openmetrics(generate_openmetrics(Page(shown)).decode("utf-8")))
    assert openmetrics == found(text_string_to_metric_families(text(shown)))


def test_families_when_everything_is_known_then_each_that_is_described_is_there() -> None:
    process = ProcessSample(pid=1, used_bytes=1, workload=Workload(container_name="trainer"), growth=LEAK)
    other = replace(DEVICE, index=4, uuid="GPU-b")
    shown = snapshot(*(gpu(FULL, process, utilization_mean_ratio=0.5, device=each) for each in (DEVICE, other)))

    names = [sample.name for family in families(shown) for sample in family.samples]

    assert list(dict.fromkeys(names)) == list(FAMILIES)


def test_custom_leak_count_when_it_is_given_then_without_a_type() -> None:
    # Its name is asked for, and kept for histograms and summaries: `promtool check metrics` takes it of no other type.
    assert FAMILIES["nvidia_custom_leak_count"].kind is Kind.UNKNOWN
    assert "# TYPE nvidia_custom_leak_count untyped\n" in text(snapshot(gpu()))
