"""The dashboards as files: what Grafana reads in them is there and fits together, and those that are made are fresh.

Grafana takes nearly anything and then shows an empty panel, so each field that the boards use is held here.
Source: Grafana's documentation, "Dashboard JSON model", version 10.
"""

from __future__ import annotations

import json
import re
import runpy
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from remediator.core.outcome import RunOutcome

GRAFANA = Path(__file__).resolve().parents[2] / "deploy" / "grafana"
MADE = runpy.run_path(str(GRAFANA / "gpu_boards.py"))
FILES = sorted(GRAFANA.glob("*.json"))
BOARDS = {file.name: json.loads(file.read_text("utf-8")) for file in FILES}
PANELS = {
    f"{name}: {panel['title']}": panel
    for name, board in BOARDS.items()
    for panel in board["panels"]
    if panel["type"] != "row"
}

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}

OPTIONS = {
    "stat": {"colorMode", "graphMode", "textMode", "reduceOptions"},
    "timeseries": {"legend", "tooltip"},
    "status-history": {"showValue", "rowHeight", "colWidth", "legend", "tooltip"},
    "gauge": {"reduceOptions", "showThresholdLabels", "showThresholdMarkers"},
    "bargauge": {"reduceOptions", "orientation", "displayMode", "showUnfilled"},
    "table": {"showHeader", "cellHeight", "footer"},
}
"""By panel: what each must say, as Grafana's own export does."""

UNITS = {"short", "s", "percent", "celsius", "watt", "bytes", "mbytes", "Bps", "wps", "reqps", "cps", "suffix: MiB/h"}
"""Ids of Grafana's units; ``suffix:`` makes one."""

OF_GRAFANA = {"__rate_interval", "__url_time_range", "__field"}
"""Variables that Grafana fills in itself."""


@pytest.mark.parametrize("name", MADE["BOARDS"])
def test_board_when_it_is_made_again_then_is_the_file(name: str) -> None:
    assert (GRAFANA / name).read_text("utf-8") == MADE["text"](MADE["BOARDS"][name]()) + "\n", (
        "run: python deploy/grafana/gpu_boards.py"
    )


def test_boards_when_imported_then_each_has_its_own_address_and_a_tag_that_links_find() -> None:
    assert {board["uid"]: board["tags"] for board in BOARDS.values()} == {
        "remediator": ["remediator"],
        "remediator-gpu-cluster": ["remediator"],
        "remediator-gpu-node": ["remediator"],
        "remediator-gpu-job": ["remediator"],
    }
    assert {board["schemaVersion"] for board in BOARDS.values()} == {39}  # Grafana 10.4; older ones of 10 read it too


@pytest.mark.parametrize("name", BOARDS)
def test_panels_when_laid_out_then_none_overlaps_or_leaves_the_grid(name: str) -> None:
    taken: Counter[tuple[int, int]] = Counter()
    for panel in BOARDS[name]["panels"]:
        at = panel["gridPos"]
        assert 0 <= at["x"] < at["x"] + at["w"] <= 24, panel["title"]
        assert at["h"] > 0, panel["title"]
        taken.update((x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"]))

    assert [place for place, n_panels in taken.items() if n_panels > 1] == []
    ids = [panel["id"] for panel in BOARDS[name]["panels"]]
    assert ids == sorted(set(ids))


@pytest.mark.parametrize("name", BOARDS)
def test_panels_when_read_then_their_titles_tell_them_apart(name: str) -> None:
    titles = Counter(panel["title"] for panel in BOARDS[name]["panels"] if panel["type"] != "row")

    assert [title for title, n_panels in titles.items() if n_panels > 1 or not title] == []


@pytest.mark.parametrize("panel", PANELS.values(), ids=PANELS)
def test_panel_when_shown_then_it_says_all_that_grafana_reads(panel: dict[str, Any]) -> None:
    defaults = panel["fieldConfig"]["defaults"]

    assert panel["description"].endswith(".")
    assert panel["datasource"] == DATASOURCE
    assert panel["targets"]
    assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
    assert all(target["datasource"] == DATASOURCE and target["expr"] for target in panel["targets"])
    assert set(panel["options"]) == OPTIONS[panel["type"]]
    assert defaults["unit"] in UNITS
    for step in defaults.get("thresholds", {}).get("steps", [])[:1]:
        assert step["value"] is None  # the first has no number, or Grafana drops the colour of what is below it
    for override in panel["fieldConfig"]["overrides"]:
        assert override["matcher"]["options"] in {target["refId"] for target in panel["targets"]}
    if panel["type"] == "table":
        assert all(target["format"] == "table" and target["instant"] for target in panel["targets"])


@pytest.mark.parametrize("name", BOARDS)
def test_board_when_it_names_a_variable_then_has_it(name: str) -> None:
    board = BOARDS[name]
    has = {variable["name"] for variable in board["templating"]["list"]}
    named = set(re.findall(r"\$\{?(\w+)", json.dumps([board["panels"], board["annotations"]])))
    read = json.dumps([board["panels"], board["annotations"], board["templating"]])

    assert named - has - OF_GRAFANA == set()
    assert [variable for variable in sorted(has) if not re.search(rf"\${{?{variable}\b", read)] == []


@pytest.mark.parametrize("name", BOARDS)
def test_links_when_followed_then_lead_to_a_board_that_takes_what_they_give(name: str) -> None:
    boards = {board["uid"]: board for board in BOARDS.values()}
    board = BOARDS[name]
    of_series = [
        link["url"]
        for panel in board["panels"]
        for link in panel.get("fieldConfig", {}).get("defaults", {}).get("links", [])
    ]

    for link in [*of_series, *(link["url"] for link in board["links"])]:
        path, _, query = link.partition("?")
        takes = {variable["name"] for variable in boards[path.removeprefix("/d/")]["templating"]["list"]}
        assert {*re.findall(r"var-(\w+)=", query), *re.findall(r"\{(\w+):queryparam}", query)} <= takes
        assert set(re.findall(r"\{(\w+):queryparam}", query)) <= {
            variable["name"] for variable in board["templating"]["list"]
        }
    assert {link["url"].partition("?")[0] for link in board["links"]} == {
        f"/d/{uid}" for uid in boards if uid != board["uid"]
    }
    assert bool(of_series) == (name in ("gpu-cluster.json", "gpu-job.json"))


def test_marks_when_a_run_ends_then_exactly_one_of_two_kinds_is_drawn() -> None:
    expressions = [mark["expr"] for mark in BOARDS["gpu-cluster.json"]["annotations"]["list"]]
    wanted = re.findall(r'outcome(=~|!~)"([^"]+)"', "".join(expressions))

    assert {operator for operator, _ in wanted} == {"=~", "!~"}
    assert {words for _, words in wanted} == {MADE["WANTED"]}
    assert set(MADE["WANTED"].split("|")) < set(RunOutcome)
