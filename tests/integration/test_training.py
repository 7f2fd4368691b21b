"""``deploy/training``: the example really runs, a real Prometheus scrapes it, and the thresholds follow."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from realparts.loopback import MetricsPage
from realparts.process import answers, free_port, wait_until
from realparts.prometheus import Prometheus
from remediator.core.threshold import rule_groups
from remediator.loading.thresholds import load_thresholds

ROOT = Path(__file__).resolve().parents[2]
TRAIN = ROOT / "deploy" / "training" / "train.py"

WITHIN_S = 60.0

Trainers = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def trainers(tmp_path: Path) -> Iterator[Trainers]:
    """Starts the example with these arguments; ended after the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: object) -> subprocess.Popen[bytes]:
        with (tmp_path / f"trainer-{len(started)}.log").open("wb") as log:
            command = [sys.executable, str(TRAIN), *map(str, arguments)]
            env = {"PATH": os.environ["PATH"]}  # without a job's or a container's name of this machine
            started.append(subprocess.Popen(command, stdout=log, stderr=log, cwd=tmp_path, env=env))
        return started[-1]

    yield start
    for trainer in started:
        trainer.kill()
        trainer.wait()


def samples(text: str) -> dict[str, tuple[dict[str, str], float]]:
    """By name: labels and value."""
    found = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
    return {sample.name: (sample.labels, sample.value) for sample in found}


def test_progress_when_told_on_a_page_then_says_who_it_is_and_how_far(trainers: Trainers) -> None:
    port = free_port()
    trainers("--job", "llm", "--port", port, "--steps", 100_000, "--step-seconds", 0.01)
    url = f"http://127.0.0.1:{port}/metrics"
    wait_until(lambda: answers(url) and "training_step{" in requests.get(url, timeout=5).text, "no page", WITHIN_S)

    found = samples(requests.get(url, timeout=5).text)

    labels, step = found["training_step"]
    assert labels == {"training_job": "llm"}
    assert found["training_progress_ratio"] == (labels, step / 100_000)
    assert abs(found["training_progress_timestamp_seconds"][1] - time.time()) < WITHIN_S


@pytest.fixture
def textfiles(tmp_path: Path) -> Path:
    """The folder of node_exporter's textfile collector, with what a killed trainer left behind."""
    folder = tmp_path / "textfiles"
    folder.mkdir()
    (folder / "training_trainer-0.prom").write_text("training_progress_ratio 0.9\n")
    return folder


def test_progress_when_told_in_a_file_then_it_is_whole_and_gone_when_it_is_stopped(
    trainers: Trainers, textfiles: Path
) -> None:
    trainer = trainers("--container", "trainer-0", "--textfiles", textfiles, "--steps", 100_000)
    file = textfiles / "training_trainer-0.prom"
    wait_until(lambda: "training_step" in file.read_text(), "not written over", WITHIN_S)

    labels, ratio = samples(file.read_text())["training_progress_ratio"]

    assert (labels, 0 < ratio < 0.9) == ({"container_name": "trainer-0"}, True)
    trainer.terminate()
    assert (trainer.wait(WITHIN_S), [*textfiles.iterdir()]) == (0, [])


def test_progress_when_the_training_is_over_then_its_file_is_gone(trainers: Trainers, textfiles: Path) -> None:
    trainer = trainers("--container", "trainer-0", "--textfiles", textfiles, "--steps", 3)
    assert (trainer.wait(WITHIN_S), [*textfiles.iterdir()]) == (0, [])


def test_progress_when_it_cannot_be_told_then_the_training_goes_on(trainers: Trainers, tmp_path: Path) -> None:
    with MetricsPage() as taken:
        port = taken.address.rpartition(":")[2]
        trainer = trainers("--port", port, "--textfiles", tmp_path / "no folder", "--steps", 3, "--step-seconds", 0)
        assert trainer.wait(WITHIN_S) == 0

    log = (tmp_path / "trainer-0.log").read_text()
    assert ("no page with the training's progress" in log, "cannot be written" in log, "trained: y" in log) == (
        True,
        True,
        True,
    )


def every_second() -> dict[str, Any]:
    """The shipped rules, evaluated more often than anybody needs."""
    thresholds = load_thresholds(ROOT / "deploy" / "prometheus" / "thresholds.yaml").thresholds
    assert thresholds is not None
    return {"groups": [{**group, "interval": "1s"} for group in rule_groups(thresholds)]}


@pytest.mark.alertmanager
def test_threshold_when_a_real_training_is_scraped_then_follows_its_stages(
    trainers: Trainers, metrics_page: MetricsPage, prometheus_factory: Callable[..., Prometheus]
) -> None:
    # What gpu-recording.yml records for a GPU of this job that is 92 % full.
    labels = 'workload="llm",training_job="llm"'
    metrics_page.text = (
        f'gpu:workload:info{{hostname="gpu-01",gpu="0",UUID="GPU-a",{labels}}} 1\n'
        f"workload:gpu_memory_used:percent{{{labels}}} 92\n"
    )
    port = free_port()
    prometheus = prometheus_factory(
        rules=every_second(),
        targets={"gpu": [metrics_page.address], "trainers": [f"127.0.0.1:{port}"]},
        alertmanager_urls=[],
    )

    def threshold() -> float | None:
        return prometheus.value('threshold:gpu_memory_used:percent{severity="warning",workload="llm"}')

    def progress() -> float | None:
        return prometheus.value('workload:training_progress:ratio{workload="llm"}')

    wait_until(lambda: threshold() == 90, "no threshold for a job that reports nothing", WITHIN_S)
    # Each is resumed from a checkpoint of the one before.
    for from_step, limit in ((0, 95), (8000, 85)):
        trainer = trainers("--job", "llm", "--port", port, "--from-step", from_step)
        wait_until(lambda limit=limit: progress() and threshold() == limit, f"not {limit} at {from_step}", WITHIN_S)
        trainer.terminate()
        assert trainer.wait(WITHIN_S) == 0
        wait_until(lambda: progress() is None and threshold() == 90, "a dead trainer still has a stage", WITHIN_S)
