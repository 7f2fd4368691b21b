"""What Prometheus and the exporters are told to collect: files that fit each other and the programs they are for."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from metric_names import counters, names_in_rules

PROMETHEUS = Path(__file__).resolve().parents[2] / "deploy" / "prometheus"


def read(name: str) -> Any:
    return YAML(typ="safe").load(PROMETHEUS / name)


CONFIG = read("prometheus.yml")
WATCHED = read("dcgm-exporter.yaml")
JOBS: dict[str, dict[str, Any]] = {job["job_name"]: job for job in CONFIG["scrape_configs"]}
ROWS = [
    line
    for line in (PROMETHEUS / "dcgm-counters.csv").read_text("utf-8").splitlines()
    if line and not line.startswith("#")
]
GROUPS: dict[str, dict[str, Any]] = {group["name"]: group for group in WATCHED["collection"]["watchGroups"]}

SECONDS = {"s": 1, "m": 60}


def seconds(text: str) -> int:
    return int(text[:-1]) * SECONDS[text[-1]]


# -- the counters file


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.partition(",")[0])
def test_counters_file_when_read_then_each_line_is_one_that_dcgm_exporter_takes(row: str) -> None:
    # Go's csv takes no quote after a blank, so a help has neither quotes nor commas.
    assert re.fullmatch(r"DCGM_(FI|EXP)_[A-Z0-9_]+, (gauge|counter), [^,\"]+\.", row)


def test_counters_file_when_read_then_no_field_is_in_it_twice() -> None:
    assert len(ROWS) == len(counters())


def test_counters_file_when_a_rule_names_a_dcgm_field_then_it_is_turned_on() -> None:
    named = {name for name in names_in_rules() if name.startswith("DCGM_")}
    assert (named - counters().keys(), len(named) > 0) == (set(), True)


def test_counters_file_when_counted_then_the_page_about_disk_says_how_many_fields_it_has() -> None:
    page = (PROMETHEUS.parents[1] / "docs" / "howto" / "scrape-gpus.md").read_text("utf-8")
    assert f"{len(counters())} fields" in page


@pytest.mark.parametrize(
    ("field", "type_"),
    [
        pytest.param("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "gauge", id="a throughput, whatever its name says"),
        pytest.param("DCGM_EXP_XID_ERRORS_COUNT", "gauge", id="a count of a window that slides"),
        pytest.param("DCGM_EXP_CLOCK_EVENTS_COUNT", "gauge", id="another such count"),
        pytest.param("DCGM_FI_DEV_XID_ERRORS", "gauge", id="a code"),
        pytest.param("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "counter", id="a count that only grows"),
    ],
)
def test_counters_file_when_read_then_a_field_has_the_type_that_it_behaves_as(field: str, type_: str) -> None:
    assert counters()[field] == type_


# -- how often it is collected


def matching(group: dict[str, Any], fields: list[str]) -> list[str]:
    return [field for field in fields if any(fnmatchcase(field, pattern) for pattern in group["fields"])]


def test_watch_groups_when_read_then_the_intervals_are_those_asked_for() -> None:
    intervals = {name: seconds(group["interval"]) for name, group in GROUPS.items()}
    assert intervals == {"utilization": 5, "memory": 10, "temperature": 10, "power": 30, "ecc": 60}


def test_watch_groups_when_matched_then_no_field_is_in_two_and_no_pattern_fits_nothing() -> None:
    # Either stops dcgm-exporter at its start. It watches the fields of DCGM; DCGM_EXP_* are its own.
    fields = [field for field in counters() if field.startswith("DCGM_FI_")]
    by_group = {name: matching(group, fields) for name, group in GROUPS.items()}
    twice = [field for field in fields if sum(field in found for found in by_group.values()) > 1]
    idle = [
        pattern
        for group in GROUPS.values()
        for pattern in group["fields"]
        if not any(fnmatchcase(field, pattern) for field in fields)
    ]
    assert (twice, idle) == ([], [])


@pytest.mark.parametrize(
    ("field", "group"),
    [
        ("DCGM_FI_DEV_GPU_UTIL", "utilization"),
        ("DCGM_FI_DEV_FB_USED", "memory"),
        ("DCGM_FI_DEV_GPU_TEMP", "temperature"),
        ("DCGM_FI_DEV_POWER_USAGE", "power"),
        ("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", "power"),
        ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "ecc"),
        ("DCGM_FI_DEV_ROW_REMAP_FAILURE", "ecc"),
    ],
)
def test_watch_groups_when_matched_then_a_field_is_collected_with_its_kind(field: str, group: str) -> None:
    assert [name for name, each in GROUPS.items() if matching(each, [field])] == [group]


def test_watch_groups_when_read_then_the_fields_are_those_of_the_counters_file() -> None:
    assert Path(WATCHED["metrics"]["file"]).name == "dcgm-counters.csv"


# -- the scrape


def test_prometheus_config_when_read_then_every_exporter_has_one_job() -> None:
    assert list(JOBS) == ["dcgm", "remediator-exporter", "nvidia-smi", "node", "trainers", "remediator"]


def test_prometheus_config_when_it_scrapes_dcgm_then_as_often_as_the_fastest_value_is_collected() -> None:
    fastest = min(seconds(group["interval"]) for group in GROUPS.values())
    assert seconds(JOBS["dcgm"]["scrape_interval"]) == fastest


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_prometheus_config_when_it_scrapes_then_no_scrape_outlasts_its_interval(job: dict[str, Any]) -> None:
    # Prometheus does not start with a time-out above the interval.
    timeout = job.get("scrape_timeout", CONFIG["global"]["scrape_timeout"])
    assert seconds(timeout) < seconds(job.get("scrape_interval", CONFIG["global"]["scrape_interval"]))


@pytest.mark.parametrize("file", sorted((PROMETHEUS / "targets").glob("*.yml")), ids=lambda file: file.stem)
def test_targets_when_read_then_none_has_a_label_that_hides_whose_work_a_gpu_does(file: Path) -> None:
    groups = YAML(typ="safe").load(file)
    hiding = {"pod", "namespace", "container", "exported_pod", "exported_namespace", "exported_container"}
    given = [set(group.get("labels", {})) & hiding for group in groups]
    assert (isinstance(groups, list), [some for some in given if some]) == (True, [])


def test_targets_when_listed_then_each_file_is_that_of_a_job() -> None:
    read_by_jobs = {
        file for job in JOBS.values() for found in job.get("file_sd_configs", []) for file in found["files"]
    }
    assert read_by_jobs == {f"targets/{file.name}" for file in (PROMETHEUS / "targets").glob("*.yml")}


@pytest.mark.alertmanager
def test_prometheus_config_when_checked_with_its_targets_then_it_is_valid(
    tmp_path: Path, find_tool: Callable[[str], Path]
) -> None:
    folder = shutil.copytree(PROMETHEUS, tmp_path / "prometheus")
    token = tmp_path / "view.token"
    token.write_text("a token\n")
    config = folder / "prometheus.yml"
    config.write_text(config.read_text().replace("/etc/prometheus/remediator-view.token", str(token)))
    done = subprocess.run(
        [str(find_tool("promtool")), "check", "config", str(config)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
