"""The simulated pages: what the exporters would write, the same live as in a history, and what a scrape makes of it."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from simulator import backfill, dcgm
from simulator.live import Simulator
from simulator.page import Column, text
from simulator.scenario import load, parse
from simulator.scrape import SOURCES, relabelled, targets

COUNTERS = Path(__file__).resolve().parents[3] / "deploy" / "prometheus" / "dcgm-counters.csv"
NVIDIA_SMI = Path(__file__).resolve().parents[2] / "data" / "nvidia_smi_names.txt"
HOUR = 3600.0


def simulator(story: str, *sources: str) -> Simulator:
    """With a clock that stands still."""
    return Simulator(load(story), sources=sources or None, clock=lambda: 1_790_000_000.0)


def page(story: str, path: str, at_h: float) -> dict[tuple[str, str], float]:
    """(series name, its labels but for the UUID's, sorted) → value."""
    found = simulator(story).page(path, at_h * HOUR)
    assert found is not None
    return {
        (sample.name, ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(found)
        for sample in family.samples
    }


def line(story: str, path: str, at_h: float, *parts: str) -> str:
    """The one line of a page that holds all parts."""
    text = simulator(story).page(path, at_h * HOUR)
    assert text is not None
    found = [one for one in text.splitlines() if all(part in one for part in parts) and not one.startswith("#")]
    assert len(found) == 1, found
    return found[0]


# -- what is written


@pytest.mark.parametrize("story", ["cluster", "mig", "shared", "xid", "label-flap"])
@pytest.mark.parametrize("source", SOURCES)
def test_pages_when_parsed_then_no_series_is_there_twice(story: str, source: str) -> None:
    run = simulator(story, source)
    for target in run.targets:
        text = run.page(target.path, 1.2 * HOUR)
        assert text is not None
        found = [
            (sample.name, tuple(sorted(sample.labels.items())))
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        ]
        assert found
        assert len(found) == len(set(found))


def test_dcgm_page_when_a_gpu_has_a_pod_then_labels_stand_in_the_exporters_order() -> None:
    found = line("ecc", "/gpu-01/dcgm", 0.5, "DCGM_FI_DEV_FB_USED{", 'gpu="0"')
    names = [part.partition("=")[0] for part in found[found.index("{") + 1 : found.index("}")].split(",")]
    assert names == [
        "gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname", "DCGM_FI_DRIVER_VERSION",
        "pod", "namespace", "container",
    ]  # fmt: skip


def test_dcgm_page_when_a_gpu_is_idle_then_no_pod_is_named() -> None:
    assert 'gpu="7"' in (found := line("ecc", "/gpu-01/dcgm", 0.5, "DCGM_FI_DEV_GPU_UTIL{", 'gpu="7"'))
    assert ("pod=" in found, found.endswith(" 0")) == (False, True)


def test_dcgm_page_when_set_up_otherwise_then_it_writes_hostname_small_names_no_pod_and_lacks_what_is_off() -> None:
    scenario = parse(
        "about: x\nduration: 1h\ndcgm: {counters: default, hostname: hostname, kubernetes: false}\n"
        'jobs: [{name: a, gpus: ["gpu-01:0"], pod: a}]\n'
    )
    text = Simulator(scenario).page("/gpu-01/dcgm", 1800)
    assert text is not None
    assert ('hostname="gpu-01"' in text, "Hostname=" in text, "pod=" in text) == (True, False, False)
    for name in ("ECC_DBE", "POWER_MGMT_LIMIT", "SM_ACTIVE", "GPU_TEMP_LIMIT", "DCGM_EXP_"):
        assert name not in text
    for name in ("GPU_UTIL", "FB_USED", "GPU_TEMP", "NVLINK_BANDWIDTH_TOTAL", "XID_ERRORS"):
        assert f"DCGM_FI_DEV_{name}{{" in text


def test_dcgm_page_when_compared_with_the_shipped_counters_then_every_field_of_them_is_played() -> None:
    wanted = {
        row.partition(",")[0] for row in COUNTERS.read_text().splitlines() if row.strip() and not row.startswith("#")
    }
    assert len(wanted) > 30
    assert wanted - {*dcgm.FIELDS, *dcgm.BY_VALUE} == set()


def test_smi_page_when_compared_with_the_real_exporters_names_then_has_no_other() -> None:
    known = {row for row in NVIDIA_SMI.read_text().splitlines() if row and not row.startswith("#")}
    played = {name for story in ("mig", "xid") for name, _ in page(story, "/gpu-01/smi", 4.5)}
    assert len(played) > 40
    assert played - known == set()


def test_mig_page_when_a_gpu_is_cut_then_each_instance_has_its_memory_and_no_utilisation() -> None:
    run = page("mig", "/gpu-01/dcgm", 2)
    used = {labels: value for (name, labels), value in run.items() if name == "DCGM_FI_DEV_FB_USED"}
    of_first = {labels.split("GPU_I_ID=")[1][0]: value for labels, value in used.items() if "gpu=0" in labels}
    assert sorted(of_first) == ["7", "8", "9"]
    assert of_first["7"] > of_first["8"] > 5000
    pods = {labels.split("GPU_I_ID=")[1][0]: labels.partition("pod=")[2] for labels in used if "gpu=0" in labels}
    assert pods == {"7": "tune-0", "8": "leaky-0", "9": ""}
    util = [labels for (name, labels) in run if name == "DCGM_FI_DEV_GPU_UTIL"]
    assert [labels for labels in util if "gpu=0" in labels or "gpu=1," in labels] == []
    assert len(util) == 6
    engine = [labels for (name, labels) in run if name == "DCGM_FI_PROF_GR_ENGINE_ACTIVE" and "GPU_I_ID" in labels]
    assert len(engine) == 5


def test_xid_when_it_came_then_dcgm_keeps_the_last_and_counts_five_minutes() -> None:
    def shown(at_h: float) -> list[str]:
        found = simulator("xid").page("/gpu-01/dcgm", at_h * HOUR)
        assert found is not None
        return [row.rpartition(" ")[2] for row in found.splitlines() if "XID" in row and 'gpu="1"' in row]

    assert [shown(0.9), shown(1.01), shown(1.5), shown(2.01)] == [["0"], ["31", "1"], ["31"], ["31", "1"]]


def test_our_page_when_a_process_leaks_then_the_exporters_own_watch_finds_it() -> None:
    leak = page("leak-fast", "/gpu-01/remediator", 3)
    leaking = {labels: value for (name, labels), value in leak.items() if name == "remediator_gpu_process_leaking"}
    assert {labels.split(",gpu=")[1][0]: value for labels, value in leaking.items()} == {"0": 0, "1": 0, "2": 1, "3": 0}
    growth = [value for (name, _), value in leak.items() if name.endswith("memory_growth_bytes_per_second")]
    assert max(growth) * 3600 / 2**30 == pytest.approx(8, rel=0.05)
    left = [value for (name, _), value in leak.items() if name.endswith("seconds_until_full")]
    ends = simulator("leak-fast").cluster.jobs[0].lives(8 * HOUR)[0].ends
    assert left == [pytest.approx(ends - 3 * HOUR, rel=0.1)]


def test_our_page_when_a_gpu_is_lost_then_it_is_down_and_has_no_values() -> None:
    found = page("xid", "/gpu-01/remediator", 4.2)
    up = {labels.split(",gpu=")[1][0]: value for (name, labels), value in found.items() if name == "remediator_gpu_up"}
    assert (up["4"], sum(up.values())) == (0, 7)
    assert not [labels for (name, labels) in found if name == "remediator_gpu_memory_used_bytes" and ",gpu=4" in labels]


def test_trainer_page_when_its_process_is_away_then_it_does_not_answer() -> None:
    run = simulator("restarts")
    assert run.page("/trainers/llama-13b", 1 * HOUR + 30) is None
    assert "training_progress_ratio" in (run.page("/trainers/llama-13b", 1 * HOUR + 120) or "")


# -- faults of exporters


def test_exporter_when_dead_frozen_or_restarting_then_its_page_is_so() -> None:
    run = simulator("exporter-death")
    assert [run.page("/gpu-01/dcgm", at * HOUR) is None for at in (0.9, 1.1, 1.7, 4.005, 4.02)] == [
        False, True, False, True, False,
    ]  # fmt: skip
    frozen = [run.page("/gpu-02/dcgm", at * HOUR) for at in (2.1, 2.9, 3.1)]
    assert frozen[0] == frozen[1] != frozen[2]


@pytest.mark.parametrize(
    ("story", "pods"), [("label-flap", {"llama-13b-0", ""}), ("shared", {"blue-0", "green-0"})], ids=["flap", "shared"]
)
def test_labels_when_they_change_with_each_scrape_then_each_gpu_is_there_once_at_any_time(
    story: str, pods: set[str]
) -> None:
    target = targets(simulator(story).cluster, sources=["dcgm"])[0]
    scraped = target.scraped(np.arange(0, 3 * HOUR, 30))
    found = [one for one in scraped if one.labels["__name__"] == "DCGM_FI_DEV_FB_USED"]
    there = np.array([~np.isnan(one.values) for one in found])
    assert (there.sum(axis=0) == 8).all()
    changing = [one for one in found if one.labels["gpu"] == "1"]
    assert {one.labels.get("exported_pod", "") for one in changing} == pods
    assert np.diff(~np.isnan(changing[0].values)).sum() > 100


# -- live, history and rule tests say the same


@settings(max_examples=15)
@given(st.sampled_from(["cluster", "mig", "xid", "exporter-death"]), st.integers(0, 600))
def test_page_when_live_then_is_the_same_as_in_a_history(story: str, minute: int) -> None:
    run = simulator(story, "dcgm", "smi", "node", "trainer")
    times = np.array([minute * 60 + offset for offset in (-60, 0, 60, 3600)], float).clip(0)
    for target in run.targets:
        live = run.page(target.path, minute * 60)
        columns = list(target.page(times))
        assert live == (text(columns, 1) if target.answers(times)[1] else None)


def test_our_page_when_asked_again_from_the_start_then_is_the_same() -> None:
    one, other = (
        [
            (column.name, column.labels, column.values.tolist())
            for column in simulator("leak-fast", "remediator").targets[0].page(np.arange(0, 1800, 30.0))
        ]
        for _ in range(2)
    )
    assert len(one) > 300
    assert repr(one) == repr(other)


def test_series_when_made_then_are_those_that_the_shipped_prometheus_would_have() -> None:
    found = dict(backfill.series(load("exporter-death"), step_s=600, duration_s=2 * HOUR, sources=["dcgm", "node"]))
    assert found['up{instance="gpu-01:9400",job="dcgm"}'] == "1+0x5 0+0x3 1+0x2"
    used = [(name, values) for name, values in found.items() if name.startswith("DCGM_FI_DEV_POWER_MGMT_LIMIT_DEF{")]
    assert len(used) == 16
    name, values = next(one for one in used if 'hostname="gpu-01"' in one[0])
    assert values == "700+0x5 stale _x3 700+0x2"
    assert ('exported_pod="llama-13b-0"' in name, "Hostname=" in name, ',pod="' in name) == (True, False, False)
    assert found['node_boot_time_seconds{instance="gpu-01:9100",job="node"}'] == "-1728000+0x12"


@pytest.mark.parametrize(
    ("samples", "notation"),
    [
        ([1, 1, 1], "1+0x2"),
        ([1, 2, 2.5], "1 2 2.5"),
        ([math.nan, math.nan, 3], "_x2 3"),
        ([3, math.nan, 4], "3 stale 4"),
        ([3, math.nan, math.nan, math.nan, 3, 3], "3 stale _x2 3+0x1"),
        ([math.nan], "_"),
        ([5], "5"),
    ],
)
def test_values_when_written_for_promtool_then_say_gaps_as_stale(samples: list[float], notation: str) -> None:
    assert backfill.values(np.array(samples, float)) == notation


def test_openmetrics_when_labels_hold_what_formats_use_then_they_come_through() -> None:
    odd = backfill.Series(labels={"__name__": "m", "a": 'say "100%s"\\n'}, values=np.array([1.5, math.nan, 2]))
    assert "".join(backfill.openmetrics([odd], np.array([60, 120, 180]))) == (
        'm{a="say \\"100%s\\"\\\\n"} 1.5 60\nm{a="say \\"100%s\\"\\\\n"} 2 180\n# EOF\n'
    )


def test_text_when_a_value_is_absent_then_its_metric_is_not_named() -> None:
    columns = [
        Column(name=name, kind="gauge", help="h", labels=(), values=np.array([v]))
        for name, v in (("a", 1), ("b", math.nan))
    ]
    assert text(columns) == "# HELP a h\n# TYPE a gauge\na 1\n"


# -- relabelling


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"source_labels": ["a"], "regex": "(.+)", "target_label": "c"}, {"a": "x", "b": "Y", "c": "x"}),
        ({"source_labels": ["z"], "regex": "(.+)", "target_label": "c"}, {"a": "x", "b": "Y"}),
        ({"source_labels": ["a", "b"], "regex": "(.);(.)", "target_label": "c", "replacement": "${2}-$1"},
         {"a": "x", "b": "Y", "c": "Y-x"}),
        ({"target_label": "a", "replacement": ""}, {"b": "Y"}),
        ({"regex": "a|c", "action": "labeldrop"}, {"b": "Y"}),
        ({"regex": "a", "action": "labelkeep"}, {"a": "x"}),
        ({"source_labels": ["a"], "regex": "x", "action": "drop"}, None),
        ({"source_labels": ["a"], "regex": "y", "action": "keep"}, None),
        ({"regex": "(a)", "action": "labelmap", "replacement": "of_$1"}, {"a": "x", "b": "Y", "of_a": "x"}),
        ({"source_labels": ["b"], "target_label": "b", "action": "lowercase"}, {"a": "x", "b": "y"}),
    ],
)  # fmt: skip
def test_relabelled_when_a_rule_is_applied_then_is_as_prometheus_does(
    rule: dict[str, object], expected: dict[str, str] | None
) -> None:
    assert relabelled({"a": "x", "b": "Y"}, [rule]) == expected
