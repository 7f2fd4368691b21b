"""Whose work a GPU does, however Prometheus comes to its labels: a page like DCGM's, scraped in every way we document.

One real Prometheus with a job for each way, all of the same exporter, and all GPU rules; each way has its `cluster`, by
which the rules keep them apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from ruamel.yaml import YAML

from conftest_realparts import do_without
from pages import blocks_of
from realparts.loopback import MetricsPage
from realparts.process import wait_until
from realparts.prometheus import Prometheus

ROOT = Path(__file__).resolve().parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
HOWTO = (ROOT / "docs" / "howto" / "scrape-gpus.md").read_text("utf-8")

EXPORTER = {"pod": "dcgm-exporter-x7k2p", "namespace": "gpu-operator", "container": "nvidia-dcgm-exporter"}
"""What Kubernetes calls the scraped target."""

JOB_LABEL = 'batch_kubernetes_io_job_name="tune"'

GPUS = [
    'gpu="0",UUID="GPU-0",modelName="H100",{host},pod="train-0",namespace="ml",container="main"',
    'gpu="1",UUID="GPU-1",modelName="H100",{host}',
    'gpu="2",UUID="GPU-2",modelName="H100",{host},pod="",namespace="",container=""',
    f'gpu="3",UUID="GPU-3",modelName="H100",{{host}},pod="tune-x2",namespace="ml",container="main",{JOB_LABEL}',
    'gpu="4",UUID="GPU-4",modelName="H100",{host},hpc_job="4711"',
]
"""In use, idle, idle as other versions write it, in use by a job of several pods, in use by a job of Slurm."""


def page(host: str) -> str:
    values = "".join(f"DCGM_FI_DEV_GPU_TEMP{{{gpu.format(host=host)}}} 60\n" for gpu in GPUS)
    return f"# TYPE DCGM_FI_DEV_GPU_TEMP gauge\n{values}"


def recipe(name: str) -> Any:
    (found,) = (block.text for block in blocks_of(HOWTO) if block.mark == f"recipe: {name}")
    return YAML(typ="safe").load(found)


def of_an_operator(relabelings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As Prometheus Operator writes them into Prometheus' configuration."""
    names = {"sourceLabels": "source_labels", "targetLabel": "target_label"}
    return [{names.get(key, key): value for key, value in each.items()} for each in relabelings]


def ways() -> Iterator[dict[str, Any]]:
    """A job for each way; `cluster` is given to its target later."""
    shipped = YAML(typ="safe").load(PROMETHEUS / "prometheus.yml")["scrape_configs"][0]
    endpoint = recipe("servicemonitor")["spec"]["endpoints"][0]
    kubernetes = recipe("kubernetes_sd")
    discovered = {
        "__meta_kubernetes_pod_node_name": "gpu-01",
        "__meta_kubernetes_pod_label_app_kubernetes_io_name": "nvidia-dcgm-exporter",
        "__meta_kubernetes_pod_container_port_number": "9400",
        **{f"__meta_kubernetes_pod_{name}": value for name, value in EXPORTER.items()},
    }
    for honor in (False, True):
        word = f"honor_{str(honor).lower()}"
        yield {
            "job_name": f"static_{word}",
            "honor_labels": honor,
            "labels": {},
            "metric_relabel_configs": shipped["metric_relabel_configs"],
        }
        yield {
            "job_name": f"kubernetes_sd_{word}",
            "honor_labels": honor,
            "labels": discovered,
            "relabel_configs": kubernetes["relabel_configs"],
            "metric_relabel_configs": kubernetes["metric_relabel_configs"],
        }
        yield {
            "job_name": f"servicemonitor_{word}",
            "honor_labels": honor,
            "labels": EXPORTER | discovered,
            "relabel_configs": of_an_operator(endpoint["relabelings"]),
            "metric_relabel_configs": of_an_operator(endpoint["metricRelabelings"]),
        }
        yield {"job_name": f"untouched_{word}", "honor_labels": honor, "labels": EXPORTER}
        # The same GPUs twice, as ours and as somebody else scrapes them.
        ours = {"metric_relabel_configs": shipped["metric_relabel_configs"], "labels": {"cluster": "twice"}}
        theirs = {"labels": EXPORTER | {"cluster": "twice"}}
        yield {"job_name": f"twice_{word}", "honor_labels": honor, **(theirs if honor else ours)}


WAYS = list(ways())

IN_A_POD = {"exported_namespace": "ml", "exported_container": "main"}
IDLE: dict[str, dict[str, str]] = {"GPU-1": {}, "GPU-2": {}}
OF_SLURM = {"GPU-4": {"workload": "4711", "training_job": "4711"}}
FIRST = {"GPU-0": {"workload": "ml/train-0", "exported_pod": "train-0", **IN_A_POD}}
BY_JOB = {"GPU-3": {"workload": "ml/tune", "training_job": "ml/tune", "exported_pod": "tune-x2", **IN_A_POD}}
BY_POD = {"GPU-3": {"workload": "ml/tune-x2", "exported_pod": "tune-x2", **IN_A_POD}}
NOBODY: dict[str, dict[str, str]] = {"GPU-0": {}, "GPU-3": {}}

CLUSTERS = list(dict.fromkeys(way["labels"].get("cluster", way["job_name"]) for way in WAYS))

EXPECTED = dict.fromkeys(CLUSTERS, FIRST | IDLE | BY_JOB | OF_SLURM) | {
    # Nobody renamed anything: right, or less, but never the exporter.
    "untouched_honor_false": FIRST | IDLE | BY_POD | OF_SLURM,
    "untouched_honor_true": NOBODY | IDLE | OF_SLURM,
}


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """It has scraped every way and recorded what it saw."""
    groups = [
        group | {"name": f"{file.name} {group['name']}", "interval": "1s"}
        for file in sorted(PROMETHEUS.glob("gpu-*.yml"))
        for group in YAML(typ="safe").load(file)["groups"]
    ]
    with (
        MetricsPage(page('Hostname="gpu-01"')) as alone,
        MetricsPage(page('Hostname="dcgm-exporter-x7k2p"')) as in_a_pod,
    ):
        jobs = []
        for way in WAYS:
            labels = {"cluster": way["job_name"]} | way["labels"]
            exporter = in_a_pod if "relabel_configs" in way else alone
            job = {key: value for key, value in way.items() if key != "labels"}
            jobs.append(job | {"static_configs": [{"targets": [exporter.address], "labels": labels}]})
        try:
            running = Prometheus(
                tmp_path_factory.mktemp("honor") / "prometheus",
                rules={"groups": groups}, targets={}, alertmanager_urls=[], scrape_configs=jobs,
            )  # fmt: skip
        except FileNotFoundError as error:
            do_without("alertmanager", str(error))
        running.start()
        try:
            wait_until(lambda: is_seen(running), "every way shows every GPU", 60)
            yield running
        finally:
            running.kill()


def is_seen(prometheus: Prometheus) -> bool:
    """Whether all GPUs are there by every way, and some workload by each: workloads come last."""
    found = prometheus.series("gpu:workload:info")
    known = {series["cluster"] for series in found if series.get("workload")}
    n_scraped = len(prometheus.series("up == 1"))
    return (len(found), len(known), n_scraped) == (len(GPUS) * len(CLUSTERS), len(CLUSTERS), len(WAYS))


@pytest.mark.alertmanager
@pytest.mark.parametrize("way", EXPECTED)
def test_workload_when_scraped_in_this_way_then_it_is_known_and_never_the_exporter(
    way: str, prometheus: Prometheus
) -> None:
    expected = {
        uuid: {
            "__name__": "gpu:workload:info", "cluster": way, "hostname": "gpu-01",
            "gpu": uuid[-1], "UUID": uuid, "modelName": "H100",
        } | labels
        for uuid, labels in EXPECTED[way].items()
    }  # fmt: skip
    found = prometheus.series(f'gpu:workload:info{{cluster="{way}"}}')
    assert {series["UUID"]: series for series in found} == expected


@pytest.mark.alertmanager
def test_trap_when_nothing_is_renamed_and_labels_are_honoured_then_an_idle_gpu_bears_the_exporter_s_name(
    prometheus: Prometheus,
) -> None:
    # Why no rule reads `pod`, and lint `pod-is-exporter` says so of playbooks.
    asked = 'DCGM_FI_DEV_GPU_TEMP{UUID="GPU-1",job="untouched_honor_true"}'
    assert [series["pod"] for series in prometheus.series(asked)] == [EXPORTER["pod"]]


@pytest.mark.alertmanager
def test_rules_when_gpus_are_scraped_in_every_way_and_twice_then_none_of_them_fails(prometheus: Prometheus) -> None:
    answer = requests.get(f"{prometheus.url}/api/v1/rules", timeout=10).json()["data"]["groups"]
    rules = [rule for group in answer for rule in group["rules"]]
    failed = [(rule["name"], rule["lastError"]) for rule in rules if rule["health"] == "err"]
    assert (failed, any(rule["health"] == "ok" for rule in rules)) == ([], True)
