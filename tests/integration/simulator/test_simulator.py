"""The simulator with the real tools: Prometheus scrapes it, promtool takes its pages, its histories and its stories."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import requests

from conftest_realparts import PrometheusFactory
from realparts.process import wait_until
from simulator import backfill
from simulator.__main__ import main
from simulator.filled import FilledPrometheus, in_order
from simulator.live import Simulator
from simulator.scenario import load, parse
from simulator.scrape import SOURCES

pytestmark = pytest.mark.alertmanager

TESTS = Path(__file__).resolve().parents[2]
HOUR = 3600
BLOCK_S = 1_790_000_000 // backfill.LARGE_BLOCK_S * backfill.LARGE_BLOCK_S
"""Where one of Prometheus' blocks ends and another begins."""

SMALL = parse(
    """
    about: One node of two GPUs whose exporters die, one after the other.
    duration: 2h
    cluster: lab
    nodes: [{gpus: 2}]
    jobs:
      - {name: a, gpus: ["gpu-01:0"], pod: a-0, training_job: a, length: 3h}
      - {name: b, gpus: ["gpu-01:1"], docker: b, length: 3h}
    faults:
      - {kind: exporter-dead, where: gpu-01, exporter: dcgm, at: 1h, lasts: 20m}
    """
)


def test_simulator_when_a_real_prometheus_scrapes_it_then_series_have_the_labels_that_a_history_has(
    prometheus_factory: PrometheusFactory,
) -> None:
    simulator = Simulator(SMALL, at_s=600)
    # Beside the shipped jobs those of a Prometheus that gives targets the exporter's own pod, and renames nothing.
    of_dcgm = next(target for target in simulator.targets if target.source == "dcgm")
    own = {"pod": "dcgm-exporter-x", "namespace": "monitoring"}
    simulator.targets += [
        replace(of_dcgm, labels={**of_dcgm.labels, **own, "job": job}, scrape_config={"honor_labels": honors})
        for job, honors in (("honoured", True), ("not honoured", False))
    ]
    with simulator.serve() as address:
        prometheus = prometheus_factory(
            rules={"groups": []}, targets={}, alertmanager_urls=[], scrape_configs=simulator.scrape_configs(address)
        )
        n_targets = len(simulator.targets)
        wait_until(lambda: prometheus.value("sum(up)") == n_targets, "every target was scraped", 60)
        answer = requests.get(f"{prometheus.url}/api/v1/series", params={"match[]": '{job=~".+"}'}, timeout=10)
    real = {tuple(sorted(labels.items())) for labels in answer.json()["data"]}
    ours = {
        tuple(sorted(one.labels.items()))
        for target in simulator.targets
        for one in target.scraped(np.array([simulator.now_s]))
    }
    # What Prometheus says of a scrape, beside how long it took and how much it was.
    made = {"scrape_duration_seconds", "scrape_samples_post_metric_relabeling", "scrape_series_added"}
    assert {labels for labels in real if dict(labels)["__name__"] not in made} == ours
    assert len(ours) > 250
    pods = {dict(labels).get("pod", "") for labels in ours if ("job", "honoured") in labels}
    assert pods == {"a-0", "dcgm-exporter-x"}


def test_simulator_when_an_exporter_is_dead_then_it_answers_503_and_lists_what_there_is() -> None:
    with Simulator(SMALL, at_s=1.1 * HOUR).serve() as address:
        status = {
            path: requests.get(f"http://{address}{path}", timeout=10).status_code
            for path in ("/", "/gpu-01/dcgm", "/gpu-01/smi", "/trainers/a", "/gpu-02/dcgm")
        }
        listed = requests.get(f"http://{address}/", timeout=10).text
    assert status == {"/": 200, "/gpu-01/dcgm": 503, "/gpu-01/smi": 200, "/trainers/a": 200, "/gpu-02/dcgm": 404}
    assert "/gpu-01/remediator\n" in listed


def test_our_page_when_promtool_checks_it_then_there_is_nothing_to_say(find_tool: Callable[[str], Path]) -> None:
    page = Simulator(SMALL).page("/gpu-01/remediator", HOUR)
    assert page is not None
    assert "remediator_gpu_process_leaking" in page
    done = subprocess.run([find_tool("promtool"), "check", "metrics"], input=page, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_backfill_when_written_then_a_real_prometheus_has_the_history_with_its_gap_and_records_rules_over_it(
    find_tool: Callable[[str], Path], tmp_path: Path
) -> None:
    find_tool("promtool")
    start_s = BLOCK_S - HOUR
    said: list[str] = []
    done = backfill.write(
        SMALL,
        tmp_path / "data",
        start_s=start_s,
        end_s=start_s + 2 * HOUR,
        sources=("dcgm", "node", "trainer"),
        say=said.append,
    )
    assert (done.n_samples > 10_000, len(said)) == (True, done.n_blocks)
    listed = subprocess.run([find_tool("promtool"), "tsdb", "list", tmp_path / "data"], capture_output=True, text=True)
    spans = sorted((int(row.split()[1]), int(row.split()[2])) for row in listed.stdout.splitlines()[1:])
    assert len(spans) == done.n_blocks == 2
    assert spans[0][1] <= BLOCK_S * 1000 <= spans[1][0]
    rules = tmp_path / "rules.yml"
    rules.write_text(
        "groups:\n- name: g\n  rules:\n"
        "  - {record: 'gpu:used:mib', expr: 'max by (gpu) (DCGM_FI_DEV_FB_USED)'}\n"
        "  - {record: 'node:used:mib', expr: 'sum(gpu:used:mib)'}\n"
    )
    with FilledPrometheus(tmp_path / "prometheus", tmp_path / "data") as prometheus:
        names = prometheus.record([rules], start_s=start_s, end_s=start_s + 2 * HOUR - 60)

        def at(query: str, hour: float) -> list[float]:
            return [float(one["value"][1]) for one in prometheus.query(query, start_s + hour * HOUR)]

        labels = prometheus.query('DCGM_FI_DEV_FB_USED{gpu="0"}', start_s + HOUR / 2)[0]["metric"]
        used = [at("sum(DCGM_FI_DEV_FB_USED)", hour) for hour in (0.9, 1.1, 1.5)]
        up = [at('up{job="dcgm"}', hour) for hour in (0.9, 1.1, 1.5)]
        recorded = [at("node:used:mib", hour) for hour in (0.9, 1.1, 1.5)]
        gpus = at("count(DCGM_FI_DEV_GPU_TEMP)", 1.5)
    assert names == ["gpu:used:mib", "node:used:mib"]
    assert up == [[1], [0], [1]]
    assert used[1] == []
    assert used[0][0] > 100_000
    assert recorded == used
    assert gpus == [2]
    wanted = {
        "cluster": "lab", "job": "dcgm", "instance": "gpu-01:9400", "hostname": "gpu-01", "training_job": "ml/a",
        "exported_namespace": "ml", "exported_pod": "a-0", "exported_container": "trainer",
    }  # fmt: skip
    assert {name: labels.get(name) for name in wanted} == wanted


def test_backfill_when_a_step_does_not_divide_a_block_then_samples_lie_at_whole_steps_from_the_start(
    find_tool: Callable[[str], Path], tmp_path: Path
) -> None:
    find_tool("promtool")
    start_s = BLOCK_S - 1000
    start_s -= start_s % 420
    backfill.write(SMALL, tmp_path, start_s=start_s, end_s=start_s + HOUR, step_s=420, sources=["node"])
    (tmp_path / "wal").mkdir()  # promtool's dump wants what only a Prometheus makes
    dumped = subprocess.run([find_tool("promtool"), "tsdb", "dump", tmp_path], capture_output=True, text=True).stdout
    times = [int(row.split()[-1]) for row in dumped.splitlines() if "node_boot_time_seconds" in row]
    assert sorted(times) == [(start_s + 420 * n) * 1000 for n in range(9)]


def test_backfill_when_there_is_no_promtool_then_it_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(backfill.BackfillError, match="promtool is not installed; `make setup`"):
        backfill.write(SMALL, tmp_path, start_s=0, end_s=600)


def test_series_when_given_to_promtool_then_rules_see_the_story(
    find_tool: Callable[[str], Path], tmp_path: Path
) -> None:
    rule = {
        "alert": "Hot",
        "expr": "min by (gpu) (DCGM_FI_DEV_GPU_TEMP) > 85 unless on () absent(up{job='dcgm'} == 1)",
        "for": "2m",
    }
    (tmp_path / "rules.json").write_text(json.dumps({"groups": [{"name": "g", "rules": [rule]}]}))
    series = backfill.series(load("overheat"), step_s=60, duration_s=5 * HOUR, sources=["dcgm", "smi"])
    fires = [{"exp_labels": {"gpu": "5"}}]
    test = {
        "rule_files": ["rules.json"],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in series],
                "alert_rule_test": [
                    {"eval_time": at, "alertname": "Hot", "exp_alerts": expected}
                    for at, expected in (("1h55m", []), ("2h20m", fires), ("4h30m", []))
                ],
            }
        ],
    }
    (tmp_path / "test.json").write_text(json.dumps(test))
    done = subprocess.run(
        [find_tool("promtool"), "test", "rules", "test.json"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def test_in_order_when_rules_read_each_other_then_each_comes_after_what_it_reads() -> None:
    rules = [
        {"record": "b", "expr": "a * 2 + d"},  # d is recorded later: its last value
        {"record": "c", "expr": "b + own"},
        {"record": "c", "expr": "c offset 1m"},
        {"record": "d", "expr": "c and on () b"},
        {"record": "e", "expr": "x"},
    ]
    assert [[rule["record"] for rule in level] for level in in_order(rules)] == [["b", "c", "e"], ["c"], ["d"]]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["series", "idle", "--duration", "2m", "--sources", "node"], 0, '"1+0x2"'),
        (["serve", "no-such-story"], 1, "neither a file nor a story of the simulator; there are cluster,"),
        (["series", "idle", "--step", "90"], 2, '"90" is not a duration: it has no unit; write 90s'),
        (["series", "idle", "--sources", "dcgm,nvml"], 2, f"there is no source 'nvml'; there are {', '.join(SOURCES)}"),
    ],
    ids=["series", "no such story", "no unit", "no such source"],
)
def test_command_when_given_then_does_it_or_says_why_not(
    words: list[str], code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        ended = main(words)
    except SystemExit as ending:  # argparse's way
        ended = int(str(ending.code))
    said = capsys.readouterr()
    assert (ended, says in said.out + said.err) == (code, True), said


def test_command_when_run_as_a_module_then_it_is_found_and_lists_the_stories() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "simulator", "stories"],
        cwd=TESTS.parent,
        env=os.environ | {"PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, "leak-slow" in done.stdout, done.stderr) == (0, True, "")
