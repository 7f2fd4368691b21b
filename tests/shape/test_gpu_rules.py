"""The alerts on GPUs: what each must say, and that each is seen silent, firing and over in a test of promtool."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from remediator.loading.rules import read_rules
from rule_tests import seen_of

ROOT = Path(__file__).resolve().parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"

PAGES = "utilization|memory|leak|ecc|temperature|power|nvlink|imbalance|xid|exporters"
OF_THE_EXPORTER = ("instance", "job", "pod", "namespace", "container", "Hostname")
"""Labels that change while a fault lasts: an alert that has one begins anew."""


def read(path: Path) -> Any:
    return YAML(typ="safe").load(path)


ALERTS = [rule for group in read(PROMETHEUS / "gpu-alerts.yml")["groups"] for rule in group["rules"]]
NAMES = sorted({rule["alert"] for rule in ALERTS})
RECORDED = {
    rule["record"]: rule["expr"]
    for group in read(PROMETHEUS / "gpu-recording.yml")["groups"]
    for rule in group["rules"]
}


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: f"{rule['alert']} {rule['labels']['severity']}")
def test_gpu_alert_when_read_then_people_learn_what_and_why_and_where_to_look(rule: dict[str, Any]) -> None:
    said = rule["annotations"]
    assert set(said) == {"summary", "description", "runbook_url"}
    assert re.fullmatch(rf"docs/gpu/({PAGES})\.md#{rule['alert'].lower()}", said["runbook_url"])
    assert rule["labels"]["severity"] in {"info", "warning", "critical"}


def test_gpu_alerts_when_read_then_none_has_a_label_of_its_exporter() -> None:
    rules = read_rules([str(PROMETHEUS / "gpu-alerts.yml")])
    of_gpus = [rule for rule in rules.alerts if "Memory" not in rule.name]  # these are recorded series as they are
    found = {
        (rule.name, label)
        for rule in of_gpus
        for label in OF_THE_EXPORTER
        if rule.labels.values(label) != frozenset({""}) and rule.name != "GPUExporterGone"
    }
    assert (found, len(of_gpus) > 10) == (set(), True)


@pytest.mark.parametrize("name", NAMES)
def test_gpu_alert_when_tested_then_it_is_silent_and_fires_and_ends(name: str) -> None:
    assert seen_of(name) == {"silent", "fires", "ends"}


def test_xids_when_sorted_by_the_rules_then_each_is_in_the_class_of_the_catalogue() -> None:
    table = read(ROOT / "tests" / "data" / "xid_classes.yaml")
    found = re.findall(r'"xid_class", "(\w+)", "err_code",\s+"([^"]+)"', RECORDED["gpu:xid:count"])
    classes = {name: [code for code in range(1, 300) if re.fullmatch(pattern, str(code))] for name, pattern in found}
    assert classes == table


def test_xids_when_a_class_is_made_then_an_alert_is_for_it() -> None:
    made = set(re.findall(r'"xid_class", "(\w+)"', RECORDED["gpu:xid:count"]))
    alerts = [rule for rule in ALERTS if rule["alert"] == "GPUXid"]
    asked = [re.findall(r'xid_class="(\w+)"', rule["expr"]) for rule in alerts]
    assert (asked, {name for names in asked for name in names}) == (
        [[rule["labels"]["xid_class"]] for rule in alerts],
        made,
    )
