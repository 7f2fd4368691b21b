"""docs/gpu against what is shipped: alerts, their numbers, codes, playbooks and panels, and the charts."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from ruamel.yaml import YAML

from realparts.promtool import GPU_RULES
from simulator.charts import CHARTS, FOLDER
from simulator.scenario import STORIES

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs" / "gpu"
PROMETHEUS = ROOT / "deploy" / "prometheus"
PAGES = {page.name: page.read_text("utf-8") for page in sorted(DOCS.glob("*.md"))}
TABLE = PAGES["README.md"].partition("\n## ")[0]

MOST_BYTES = 15_000
"""Of a chart: a page shows some, and each change of one stays in the history for ever."""


def plain(file: Path) -> Any:
    return YAML(typ="safe").load(file)


ALERTS = [
    rule
    for file in sorted(PROMETHEUS.glob("gpu-*.yml"))
    for group in plain(file)["groups"]
    for rule in group["rules"]
    if "alert" in rule
]
NAMES = sorted({rule["alert"] for rule in ALERTS})
SEVERITIES: dict[str, set[str]] = defaultdict(set)
for _rule in ALERTS:
    SEVERITIES[_rule["alert"]].add(_rule["labels"]["severity"])


def row_of(name: str) -> list[str]:
    """The cells of an alert's row in the table of all signals."""
    (row,) = [line for line in TABLE.splitlines() if f"| `{name}` |" in line]
    return [cell.strip() for cell in row.strip("|").split("|")]


def page_of(name: str) -> str:
    """Where an alert's runbook is, in the one page that its rules name."""
    (url,) = {rule["annotations"]["runbook_url"] for rule in ALERTS if rule["alert"] == name}
    found = re.fullmatch(r"docs/gpu/([\w-]+\.md)#([a-z]+)", url)
    assert found is not None, url
    assert found[2] == name.lower()
    return PAGES[found[1]]


# -- alerts


@pytest.mark.parametrize("name", NAMES)
def test_alert_when_it_fires_then_its_runbook_is_where_it_says(name: str) -> None:
    section = page_of(name).partition(f"\n## {name}\n")[2].partition("\n## ")[0]

    said = re.findall(r"^- \*\*(\w[\w ]*)\*\*", section, re.MULTILINE)

    assert [word for word in ("Look", "The engine", "Do", "Tune") if word not in said] == []


def test_runbooks_when_listed_then_each_is_of_an_alert() -> None:
    titled = re.findall(r"^## (GPU\w+)$", "\n".join(PAGES.values()), re.MULTILINE)

    assert sorted(titled) == NAMES


def test_alerts_when_a_page_names_them_then_exist() -> None:
    named = set(re.findall(r"`(GPU[A-Z]\w+)`", "\n".join(PAGES.values())))

    assert named - set(NAMES) == set()


@pytest.mark.parametrize("name", NAMES)
def test_table_when_an_alert_is_in_it_then_has_its_severities_and_its_page(name: str) -> None:
    _, _, severities, _, page = row_of(name)
    (url,) = {rule["annotations"]["runbook_url"] for rule in ALERTS if rule["alert"] == name}

    assert (set(severities.split(", ")), re.findall(r"\((.+)\)", page)) == (
        SEVERITIES[name],
        [url.removeprefix("docs/gpu/")],
    )


@pytest.mark.parametrize("name", NAMES)
def test_table_when_a_playbook_acts_on_an_alert_then_names_it_and_no_other(name: str) -> None:
    acting = set()
    for file in (ROOT / "playbooks").glob("*.yaml"):
        if not file.name.endswith((".test.yaml", ".policy.yaml")):
            playbook = plain(file)
            matchers = [re.fullmatch(r'alertname =~? "?([^"]+)"?', one) for one in playbook["match"]]
            if any(found and re.fullmatch(found[1], name) for found in matchers):
                acting.add(playbook["playbook"])

    assert set(re.findall(r"`([a-z-]+)`", row_of(name)[3])) == acting


# -- numbers


def words_of(grade: dict[str, Any]) -> set[str]:
    """What a page has to say of a grade: ``above 90``, or the number of each stage; what it clears by, and how long."""
    (side,) = {"above", "below"} & grade.keys()
    limit = grade[side]
    words = {str(number) for number in limit.values()} if isinstance(limit, dict) else {f"{side} {limit}"}
    return words | {str(grade["clears"])} | ({grade["for"]} if "for" in grade else set())


@pytest.mark.parametrize("entry", plain(PROMETHEUS / "thresholds.yaml")["signals"], ids=lambda entry: entry["signal"])
def test_page_when_a_threshold_is_explained_in_it_then_has_its_numbers(entry: dict[str, Any]) -> None:
    lines = page_of(entry["alert"]).splitlines()
    (first,) = [number for number, line in enumerate(lines) if line.startswith(f"| `{entry['signal']}` |")]
    rows = " ".join(lines[first : first + len(entry["grades"])])

    wanted = {word for grade in entry["grades"].values() for word in words_of(grade)}

    assert {word for word in wanted if not re.search(rf"\b{word}\b", rows)} == set()


def test_xids_when_a_page_lists_them_by_class_then_are_those_of_the_rules() -> None:
    (rule,) = [
        rule
        for group in plain(PROMETHEUS / "gpu-recording.yml")["groups"]
        for rule in group["rules"]
        if rule["record"] == "gpu:xid:count"
    ]
    classes = re.findall(r'"xid_class", "(\w+)", "err_code",\s+"([^"]+)"', rule["expr"])
    of_rules = {
        name: [str(code) for code in range(1000) if re.fullmatch(pattern, str(code))] for name, pattern in classes
    }
    rows = re.findall(r"^\| `(\w+)` \| \w+ \| ([\d, ]+) \|", PAGES["xid.md"], re.MULTILINE)

    assert {name: codes.split(", ") for name, codes in rows} == of_rules


def test_panels_when_a_page_names_them_then_are_in_that_dashboard() -> None:
    titles = {
        file.name: {panel["title"] for panel in json.loads(file.read_text("utf-8"))["panels"]}
        for file in (ROOT / "deploy" / "grafana").glob("gpu-*.json")
    }
    named = [
        (title.replace("\n  ", " "), board)
        for text in PAGES.values()
        for title, board in re.findall(r"\*([A-Z][^*]+)\*\s+of\s+\[(gpu-\w+\.json)\]", text)
    ]

    assert [(title, board) for title, board in named if title not in titles[board]] == []
    assert len(named) > 15


# -- charts

IMAGE = re.compile(r"!\[([^\]]*)\]\(charts/([\w-]+)\.svg\)")


def test_charts_when_listed_then_each_is_made_and_shown_with_words() -> None:
    shown = [(name, alt) for text in PAGES.values() for alt, name in IMAGE.findall(text)]

    assert sorted(name for name, _ in shown) == sorted(chart.name for chart in CHARTS)
    assert sorted(file.stem for file in FOLDER.iterdir()) == sorted(chart.name for chart in CHARTS)
    assert [name for name, alt in shown if len(alt.split()) < 15] == []


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.name)
def test_chart_when_read_then_is_small_and_says_what_it_is_made_from(chart: Any) -> None:
    file = FOLDER / f"{chart.name}.svg"
    picture = ElementTree.parse(file).getroot()
    said = picture.findtext("{http://www.w3.org/2000/svg}desc") or ""

    assert file.stat().st_size < MOST_BYTES
    assert (STORIES / f"{chart.story}.yaml").exists()
    assert [name for name in (f"Story {chart.story} ", *(rule.name for rule in GPU_RULES)) if name not in said] == []


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.name)
def test_chart_when_its_title_and_alerts_are_looked_for_then_all_are_drawn(chart: Any) -> None:
    picture = ElementTree.parse(FOLDER / f"{chart.name}.svg").getroot()
    words = {"".join(text.itertext()) for text in picture.iter("{http://www.w3.org/2000/svg}text")}
    wanted = {panel.title for panel in chart.panels} | {line.name for panel in chart.panels for line in panel.lines}
    fires = {row.name for panel in chart.panels for row in panel.fires}

    assert wanted - words == set()
    assert {name for name in fires if name not in words and f"{name} (never)" not in words} == set()
