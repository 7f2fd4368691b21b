"""What watches the engine: its metrics, the rules and the dashboard over them, and the pages that explain each."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from remediator.telemetry import Metrics
from rule_tests import seen_of

ROOT = Path(__file__).resolve().parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
DASHBOARD = ROOT / "deploy" / "grafana" / "remediator.json"
OPERATIONS = (ROOT / "docs" / "operations.md").read_text("utf-8")

SUFFIXES = {
    "counter": ("_total",),
    "histogram": ("_bucket", "_count", "_sum"),
    "info": ("_info",),
    "gauge": ("",),
}

NAME = re.compile(r"\b(?:remediator|process)_\w+")

BOARD = json.loads(DASHBOARD.read_text("utf-8"))
RULES = {
    rule["alert"]: rule
    for group in YAML(typ="safe").load(PROMETHEUS / "remediator-rules.yml")["groups"]
    for rule in group["rules"]
    if group["name"] == "remediator"
}


def exported() -> dict[str, str]:
    """Every series name that the engine exports, with its type."""
    return {
        family.name + suffix: family.type for family in Metrics().registry.collect() for suffix in SUFFIXES[family.type]
    }


def targets() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every query of the dashboard, with its panel's title."""
    for panel in BOARD["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target


QUERIES = {
    **{f"panel {title} {target['refId']}": target["expr"] for title, target in targets()},
    **{f"rule {name}": rule["expr"] for name, rule in RULES.items()},
}


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_query_when_it_names_metrics_then_the_engine_exports_each(query: str) -> None:
    named = set(NAME.findall(query))
    assert (named - exported().keys(), bool(named) or 'up{job="remediator"}' in query) == (set(), True)


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_query_when_it_reads_a_histogram_then_asks_for_a_quantile_over_all_its_buckets(query: str) -> None:
    n_buckets = len(re.findall(r"_bucket\b", query))
    whole = re.findall(r"histogram_quantile\([0-9.]+, sum by \((?:\w+, )*le\) \(rate\(\w+_bucket\b", query)
    assert len(whole) == n_buckets


@pytest.mark.parametrize("query", [target["expr"] for _, target in targets()])
def test_panel_when_it_shows_a_counter_then_shows_its_growth(query: str) -> None:
    counters = [name for name, kind in exported().items() if kind == "counter"]
    counters += [name for name in exported() if name.endswith(("_count", "_bucket", "_sum"))]
    named = [name for name in NAME.findall(query) if name in counters]
    grown = re.findall(r"(?:rate|increase)\((\w+)", query)
    assert Counter(named) == Counter(grown)


@pytest.mark.parametrize("name", RULES)
def test_rule_when_it_fires_then_says_what_and_why_and_where_to_read_on(name: str) -> None:
    annotations = RULES[name]["annotations"]
    assert annotations.keys() == {"summary", "description", "runbook_url"}
    assert annotations["runbook_url"] == f"docs/operations.md#{name.lower()}"
    assert f"\n### {name}\n" in OPERATIONS
    assert RULES[name]["labels"]["severity"] in ("critical", "warning", "info")


@pytest.mark.parametrize("name", RULES)
def test_rule_when_tested_then_it_stays_silent_and_fires_and_ends(name: str) -> None:
    assert seen_of(name) == {"silent", "fires", "ends"}


def test_runbooks_when_listed_then_each_is_of_a_rule() -> None:
    assert set(re.findall(r"^### (Remediator\w+)$", OPERATIONS, re.MULTILINE)) == set(RULES)


def test_dashboard_when_imported_then_asks_for_a_data_source_and_nothing_else() -> None:
    variables = {variable["name"]: variable["type"] for variable in BOARD["templating"]["list"]}
    assert variables == {"datasource": "datasource", "instance": "query"}
    assert {"__inputs", "__requires", "id"} & BOARD.keys() == set()
    panels = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
    asked = [each["datasource"]["uid"] for panel in panels for each in (panel, *panel["targets"])]
    assert set(asked) == {"${datasource}"}


def test_dashboard_when_shown_then_each_panel_says_what_it_is_and_has_a_place_of_its_own() -> None:
    panels = BOARD["panels"]
    places = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert (len(places), max(x for x, _ in places)) == (len(set(places)), 23)
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels)
    assert [panel["title"] for panel in panels if panel["type"] != "row" and not panel["description"]] == []


@pytest.mark.parametrize("query", [target["expr"] for _, target in targets()])
def test_panel_when_an_engine_is_chosen_then_shows_that_one_alone(query: str) -> None:
    n_named = len(NAME.findall(query))
    assert query.count('{instance=~"$instance"') == n_named
