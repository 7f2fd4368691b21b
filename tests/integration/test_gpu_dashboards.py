"""Every query of the GPU dashboards and every rule, on a real Prometheus that holds simulated clusters.

In one all is well, in others all that the alerts know is wrong. Their last hours are written into a Prometheus'
data, with the recorded series that rules look back to, and that of an engine with a few runs; then a Prometheus starts
on it with the shipped rules, but for their `for`, which tests/integration/test_deploy_files.py holds.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families
from ruamel.yaml import YAML

from conftest_realparts import do_without
from realparts.process import wait_until
from realparts.prometheus import Prometheus, find_program
from remediator.telemetry import Metrics
from simulator import backfill
from simulator.filled import FilledPrometheus
from simulator.scenario import load
from simulator.scrape import Series

pytestmark = pytest.mark.alertmanager

ROOT = Path(__file__).resolve().parents[2]
STORIES = ROOT / "tests" / "data" / "dashboards"
RULES = ROOT / "deploy" / "prometheus"
BOARDS = {file.stem: json.loads(file.read_text("utf-8")) for file in (ROOT / "deploy" / "grafana").glob("gpu-*.json")}

STEP_S = 60
"""Between two scrapes of the history. The rules look at the last five minutes of it, which leaves time to ask."""

ENGINE_STEP_S, ENGINE_PHASE_S = 15, 7
"""Between two scrapes of the engine, and how far they are off the whole minute."""

SUCCEEDED_S, FAILED_S = (1800, 1495, 1190, 885, 580), 300
"""Before the end of the history: when runs like earlier ones ended, at all times of a minute; and one of a new kind."""

SETTLED_S = 60
"""Within which the rules, each second, have said all that they say: some count to twenty."""

LOOKED_BACK_TO = {
    "gpu:present:info",
    "gpu:identity:info",
    "gpu:utilization:percent",
    "gpu:memory_used:mib",
    "gpu:memory_floor:mib5m",
    "gpu:memory_floor:mib30m",
    "gpu:temperature:celsius",
    "gpu:power:watts",
    "gpu:nvlink:bytes_per_second",
    "gpu:ecc_errors:total",
    "gpu:exporter_target:info",
}
"""Recorded series whose last hours others read."""

EMPTY_WHEN_WELL = {
    ("gpu-cluster", "GPU alerts that fire", "A"): "none does, but information",
    ("gpu-cluster", "Predicted time to full", "A"): "nothing grows",
    ("gpu-cluster", "Leaks now: growth", "A"): "nothing leaks",
    ("gpu-cluster", "Capped GPUs", "A"): "nobody has lowered a limit",
    ("gpu-cluster", "Slowed down by heat", "A"): "no GPU is too hot",
    ("gpu-cluster", "Mended memory errors within an hour", "A"): "there were none",
    ("gpu-cluster", "Xids", "A"): "there were none",
    ("gpu-node", "Processes that leak", "A"): "none does",
    ("gpu-node", "Predicted time to full", "A"): "nothing grows",
    ("gpu-node", "Why clocks are held down", "A"): "they are not",
    ("gpu-node", "Xids", "A"): "there were none",
    ("gpu-job", "Time to full", "A"): "nothing grows",
    ("gpu-job", "Time to full by GPU", "A"): "nothing grows",
}
"""Board, panel and query that are rightly empty where all is well → why. Each gives data where it is not."""

OF_MIG = {"GPU_I_PROFILE", "GPU_I_ID"}
"""Labels that only a part of a GPU has."""

OF_ANY_EXPORTER = {
    ("gpu-cluster", "GPUs", "A"),
    ("gpu-cluster", "Utilisation by GPU", "A"),
    ("gpu-cluster", "Memory in use by workload, with the limit in force", "A"),
    ("gpu-cluster", "Hottest GPUs", "A"),
    ("gpu-cluster", "Power drawn", "A"),
    ("gpu-cluster", "NVLink against peers", "A"),
    ("gpu-cluster", "Exporters", "A"),
    ("gpu-node", "Utilisation", "A"),
    ("gpu-node", "Memory in use", "A"),
    ("gpu-node", "What each GPU works for", "A"),
    ("gpu-node", "Power", "A"),
    ("gpu-job", "Utilisation by rank", "A"),
    ("gpu-job", "Memory growth by GPU", "A"),
}
"""What is there of an exporter that nobody has configured."""

FIRING = {
    "well": {("GPUUtilizationSaturated", "info")},
    "ill": {
        ("GPUUtilizationSaturated", "info"),
        ("GPUMultiprocessorsSaturated", "info"),
        ("GPUMemoryHigh", "warning"),
        ("GPUMemoryHigh", "critical"),
        ("GPUMemoryOOMSoon", "critical"),
        ("GPUMemoryLeakSlope", "warning"),
        ("GPUECCCorrectableRate", "warning"),
        ("GPUECCUncorrectable", "critical"),
        ("GPURowRemapPending", "warning"),
        ("GPURowRemapFailure", "critical"),
        ("GPUHot", "warning"),
        ("GPUHot", "critical"),
        ("GPUPowerNearLimit", "info"),
        ("GPUPowerCapped", "info"),
        ("GPUNVLinkBelowPeers", "warning"),
        ("GPUImbalance", "warning"),
        ("GPUXid", "info"),
        ("GPUXid", "warning"),
        ("GPUXid", "critical"),
        ("GPULost", "critical"),
        ("GPURecoveryAction", "critical"),
        ("GPUExporterGone", "warning"),
        ("GPUExporterGone", "critical"),
    },
    "bare": {
        ("GPUUtilizationSaturated", "info"),
        ("GPUMetricMissing", "warning"),
        ("GPUMetricsFrozen", "warning"),
    },
}
"""By cluster: every alert and severity that fires there, none beside."""


@dataclass(frozen=True)
class Shown:
    """A Prometheus that shows the clusters by these rules; ``end_s`` is the last Unix time of their history."""

    prometheus: Prometheus
    rules: list[dict[str, Any]]
    end_s: int

    def ask(self, kind: str, **parameters: Any) -> list[Any]:
        """Data of an answer of its API; AssertionError where it does not take the query."""
        answer = requests.get(f"{self.prometheus.url}/api/v1/{kind}", params=parameters, timeout=30)
        assert answer.status_code == 200, answer.text
        data = answer.json()["data"]
        found: list[Any] = data["result"] if isinstance(data, dict) else data
        return found

    def choices(self, query: str) -> list[str]:
        """What a variable's ``label_values(selector, label)`` offers."""
        found = re.fullmatch(r"label_values\((.+), (\w+)\)", query)
        assert found is not None, query
        answer = self.ask(f"label/{found[2]}/values", **{"match[]": found[1]})
        return [str(value) for value in answer]

    def firing(self, cluster: str) -> set[tuple[str, str]]:
        """Name and severity of the GPU alerts that fire in a cluster, or in none in particular."""
        alerts = self.ask("query", query=f'ALERTS{{alertname=~"GPU.+",alertstate="firing",cluster=~"{cluster}|"}}')
        return {(alert["metric"]["alertname"], alert["metric"]["severity"]) for alert in alerts}


# -- what there is to show


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    try:
        promtool = find_program("promtool")
    except FileNotFoundError as error:
        do_without("alertmanager", str(error))
    folder = tmp_path_factory.mktemp("shown")
    data = folder / "prometheus" / "data"
    end_s = int(time.time())
    start_s = end_s
    for story in STORIES.glob("*.yaml"):
        scenario = load(story)
        start_s = end_s - int(scenario.duration)
        backfill.write(scenario, data, start_s=start_s, end_s=end_s, step_s=STEP_S)
    (folder / "engine.om").write_text("".join(engine_history(start_s, end_s)))
    subprocess.run(
        [promtool, "tsdb", "create-blocks-from", "--quiet", "openmetrics", folder / "engine.om", data],
        check=True,
    )
    rules = [rule for group in YAML(typ="safe").load(RULES / "gpu-recording.yml")["groups"] for rule in group["rules"]]
    looked_back_to = folder / "looked-back-to.json"
    looked_back_to.write_text(
        json.dumps({"groups": [{"rules": [rule for rule in rules if rule["record"] in LOOKED_BACK_TO]}]})
    )
    with FilledPrometheus(folder / "recording", data, step_s=STEP_S) as recording:
        recording.record([looked_back_to], start_s=start_s, end_s=end_s)
    groups = shipped()
    prometheus = Prometheus(folder / "prometheus", rules={"groups": groups}, targets={}, alertmanager_urls=[])
    prometheus.start()
    try:
        found = Shown(prometheus, [rule for group in groups for rule in group["rules"]], end_s)
        # Tests say better what is not so than this would.
        with contextlib.suppress(TimeoutError):
            wait_until(lambda: all(found.firing(name) == FIRING[name] for name in FIRING), "they fire", SETTLED_S)
        yield found
    finally:
        prometheus.kill()


def shipped() -> list[dict[str, Any]]:
    """The groups of the shipped rules, run each second, with alerts that do not wait."""
    groups = [group for file in sorted(RULES.glob("*.yml")) for group in YAML(typ="safe").load(file).get("groups", [])]
    for group in groups:
        group["interval"] = "1s"
        for rule in group["rules"]:
            rule.pop("for", None)
    return groups


def engine_history(start_s: int, end_s: int) -> Iterator[str]:
    """What an engine showed all the while: runs that ended, one that is open, and a lease."""
    metrics = Metrics()
    metrics.open_runs.labels("waiting").set(1)
    metrics.leases.labels("open").set(1)
    succeeded = metrics.runs.labels("restart-on-leak", "succeeded")
    times = np.arange(start_s + ENGINE_PHASE_S, end_s, ENGINE_STEP_S)
    found: dict[tuple[tuple[str, str], ...], np.ndarray] = {}

    def see(since_s: int) -> None:
        for family in text_string_to_metric_families(metrics.expose().decode()):
            for sample in family.samples:
                labels = {"__name__": sample.name, **sample.labels, "instance": "engine:9095", "job": "remediator"}
                values = found.setdefault(tuple(labels.items()), np.full(times.shape, np.nan))
                values[times >= since_s] = sample.value

    succeeded.inc(3)
    see(start_s)
    for before_s in SUCCEEDED_S:
        succeeded.inc()
        see(end_s - before_s)
    metrics.runs.labels("throttle-on-heat", "failed").inc()
    see(end_s - FAILED_S)
    yield from backfill.openmetrics([Series(labels=dict(key), values=of) for key, of in found.items()], times)


# -- what is asked


def filled(expression: str, values: Mapping[str, str]) -> str:
    """A query of Grafana's with its variables filled in."""
    for name, value in {"__rate_interval": "5m", **values}.items():
        expression = re.sub(rf"\$(?:{name}\b|{{{name}}})", value, expression)
    assert "$" not in expression, expression
    return expression


QUERIES = {
    (name, panel["title"], target["refId"]): target
    for name, board in BOARDS.items()
    for panel in board["panels"]
    for target in panel.get("targets", [])
}
"""By board, panel and letter."""


def views(shown: Shown, board: str, cluster: str) -> list[dict[str, str]]:
    """What a person may choose there: all of each variable that has such a choice, and each value of the others."""
    found = [{"cluster": cluster, "playbook": ".*"}]
    for variable in BOARDS[board]["templating"]["list"]:
        if variable["type"] == "datasource" or variable["name"] in found[0]:
            continue
        offers = [shown.choices(filled(variable["query"]["query"], view)) for view in found]
        found = [
            {**view, variable["name"]: value}
            for view, offered in zip(found, offers, strict=True)
            for value in ([".*"] if variable["includeAll"] else offered)
        ]
    return found


Labels = dict[str, dict[tuple[str, str, str], set[str]]]


@pytest.fixture(scope="module")
def labels(shown: Shown) -> Labels:
    """By cluster, for each query that gives a number for any choice within it: the labels that its series have."""
    found: Labels = {}
    for cluster in FIRING:
        choices = {board: views(shown, board, cluster) for board in BOARDS}
        found[cluster] = {}
        for key, target in QUERIES.items():
            for view in choices[key[0]]:
                for series in shown.ask("query", query=filled(target["expr"], view)):
                    if series["value"][1] != "NaN":
                        found[cluster].setdefault(key, set()).update(series["metric"])
    return found


# -- rules


def test_rules_when_run_on_all_clusters_then_none_fails(shown: Shown) -> None:
    answer = requests.get(f"{shown.prometheus.url}/api/v1/rules", timeout=30).json()
    rules = [rule for group in answer["data"]["groups"] for rule in group["rules"]]

    assert len(rules) == len(shown.rules)
    assert {rule["name"]: rule["lastError"] for rule in rules if rule["health"] != "ok"} == {}


@pytest.mark.parametrize("cluster", FIRING)
def test_rules_when_a_cluster_is_in_this_state_then_these_alerts_fire_and_no_other(shown: Shown, cluster: str) -> None:
    assert shown.firing(cluster) == FIRING[cluster]


def test_clusters_when_taken_together_then_every_alert_that_is_shipped_fires_in_one(shown: Shown) -> None:
    alerts = [rule for rule in shown.rules if rule.get("alert", "").startswith("GPU")]
    known = {(alert["alert"], alert["labels"]["severity"]) for alert in alerts}

    assert known == set().union(*FIRING.values())


# -- dashboards


@pytest.mark.parametrize("board", BOARDS)
def test_variables_when_asked_then_each_has_something_to_choose(shown: Shown, board: str) -> None:
    for variable in BOARDS[board]["templating"]["list"]:
        if variable["type"] == "query":
            query = filled(variable["query"]["query"], {"cluster": ".*", "hostname": "fit-01"})
            assert shown.choices(query), variable["name"]


def test_queries_when_all_is_well_then_each_gives_data_but_those_of_faults(labels: Labels) -> None:
    assert QUERIES.keys() - labels["well"].keys() == EMPTY_WHEN_WELL.keys()


def test_queries_when_everything_is_wrong_then_those_of_faults_give_data_too(labels: Labels) -> None:
    assert EMPTY_WHEN_WELL.keys() - labels["ill"].keys() == set()


def test_queries_when_only_an_exporter_as_installed_is_there_then_the_main_ones_give_data(labels: Labels) -> None:
    assert QUERIES.keys() >= OF_ANY_EXPORTER
    assert OF_ANY_EXPORTER - labels["bare"].keys() == set()


def test_legends_when_filled_in_then_each_label_that_they_name_is_there(labels: Labels) -> None:
    has = {key: labels["well"].get(key, set()) | labels["ill"].get(key, set()) for key in QUERIES}
    named = {key: set(re.findall(r"{{(\w+)}}", target["legendFormat"])) - OF_MIG for key, target in QUERIES.items()}

    assert {key: named[key] - has[key] for key in QUERIES if named[key] - has[key]} == {}


def test_links_when_a_series_is_clicked_then_it_has_the_labels_that_they_carry(labels: Labels) -> None:
    has = {key: labels["well"].get(key, set()) | labels["ill"].get(key, set()) for key in QUERIES}
    lacking = {
        (name, panel["title"]): named - has[(name, panel["title"], "A")]
        for name, board in BOARDS.items()
        for panel in board["panels"]
        for link in panel.get("fieldConfig", {}).get("defaults", {}).get("links", [])
        if (named := set(re.findall(r"__field\.labels\.(\w+)", link["url"])))
    }

    assert len(lacking) > 10
    assert {panel: names for panel, names in lacking.items() if names} == {}


@pytest.mark.parametrize("board", BOARDS)
def test_marks_when_runs_ended_then_each_is_one_mark_at_its_time(shown: Shown, board: str) -> None:
    marks: dict[tuple[str, str, str], list[float]] = {}
    for mark in BOARDS[board]["annotations"]["list"]:
        expression = filled(mark["expr"], {"playbook": ".*"})
        for series in shown.ask(
            "query_range", query=expression, start=shown.end_s - 2400, end=shown.end_s, step=mark["step"]
        ):
            key = (mark["name"], series["metric"]["playbook"], series["metric"]["outcome"])
            marks[key] = [shown.end_s - at for at, value in series["values"] if float(value) > 0]

    assert {key: runs_marked(at) for key, at in marks.items()} == {
        ("Runs that ended well", "restart-on-leak", "succeeded"): list(SUCCEEDED_S),
        ("Runs for a person to look at", "throttle-on-heat", "failed"): [FAILED_S],
    }


def runs_marked(before_end_s: list[float]) -> list[float]:
    """For each mark, which may be two neighbouring points, the run that ended up to 105 seconds before its first."""
    starts = [at for n, at in enumerate(before_end_s) if n == 0 or before_end_s[n - 1] - at > 60]
    assert len(before_end_s) <= 2 * len(starts)
    return [
        next((ended for ended in (*SUCCEEDED_S, FAILED_S) if 0 <= ended - at <= 90 + ENGINE_STEP_S), at)
        for at in starts
    ]
