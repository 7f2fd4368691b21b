"""Every name of a metric that the shipped files read, and every name that somebody exports.

Rules, dashboards, playbooks, thresholds and pages → their PromQL → the names in it. What is exported is read where it
comes from: DCGM's counters file, a list of utkuozdemir's exporter, our exporter, the engine, and recording rules.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import promql_parser
from ruamel.yaml import YAML

from pages import blocks_of
from remediator.exporter.collect import FAMILIES
from remediator.telemetry import Metrics

ROOT = Path(__file__).resolve().parents[1]
PROMETHEUS = ROOT / "deploy" / "prometheus"
NVIDIA_SMI = ROOT / "tests" / "data" / "nvidia_smi_names.txt"

OF_PROMETHEUS = frozenset({"ALERTS", "ALERTS_FOR_STATE", "up", "scrape_duration_seconds", "scrape_samples_scraped"})
"""What Prometheus makes itself."""

SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum"), "info": ("_info",)}
"""Type of a family → what the names of its series end with; others have the family's own."""


# -- what is read


def expressions() -> dict[str, str]:
    """Place → PromQL: everything shipped that asks a Prometheus."""
    return {
        place: expression
        for places in (_rules(), _dashboards(), _playbooks(), _thresholds(), _pages())
        for place, expression in places
    }


def names_in_rules() -> set[str]:
    """Every name that a rule reads."""
    return {name for _, expression in _rules() for name in names_in(expression)}


def names_in(expression: str) -> set[str]:
    """The names of the metrics that an expression reads. A selector by a pattern of names is named by its pattern."""
    return set(_names(promql_parser.parse(expression)))


def _names(node: Any) -> Iterator[str]:
    if type(node).__name__ == "VectorSelector":
        asked = [matcher.value for matcher in node.matchers.matchers if matcher.name == "__name__"]
        yield node.name or (asked[0] if asked else str(node))
        return
    parts = [getattr(node, part, None) for part in ("expr", "lhs", "rhs", "vector_selector", "param")]
    for part in (*parts, *getattr(node, "args", ())):
        if part is not None:
            yield from _names(part)


def _rules() -> Iterator[tuple[str, str]]:
    for file in sorted(PROMETHEUS.glob("*.yml")):
        for group in _plain(file).get("groups", []):
            for rule in group["rules"]:
                name = rule.get("record") or f"{rule['alert']} {rule.get('labels', {}).get('severity', '')}"
                yield f"{file.name}: {name}", rule["expr"]


def _dashboards() -> Iterator[tuple[str, str]]:
    for file in sorted((ROOT / "deploy" / "grafana").glob("*.json")):
        board = json.loads(file.read_text("utf-8"))
        for panel in _panels(board["panels"]):
            for target in panel.get("targets", []):
                yield f"{file.name}: {panel['title']} {target['refId']}", _of_grafana(target["expr"])
        for variable in board.get("templating", {}).get("list", []):
            query = variable.get("query", "")
            query = query.get("query", "") if isinstance(query, dict) else query
            if found := re.fullmatch(r"(?:label_values|query_result)\((.+?)(?:, *\w+)?\)", query, re.DOTALL):
                yield f"{file.name}: variable {variable['name']}", _of_grafana(found[1])
        for annotation in board.get("annotations", {}).get("list", []):
            if annotation.get("expr"):
                yield f"{file.name}: annotation {annotation['name']}", _of_grafana(annotation["expr"])


def _panels(panels: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for panel in panels:
        yield panel
        yield from _panels(panel.get("panels", []))


def _of_grafana(expression: str) -> str:
    """With its variables filled in: numbers, durations, and what stands in a matcher."""
    expression = re.sub(r"\$\{?__(?:range|interval)_m?s\}?", "300", expression)
    expression = re.sub(r"\$\{?__(?:rate_interval|interval|range)\}?|(?<=\[)\$\{?\w+\}?(?=[]:])", "5m", expression)
    return re.sub(r"\$\{?\w+(?::\w+)?\}?", "x", expression)


def _playbooks() -> Iterator[tuple[str, str]]:
    for file in sorted((ROOT / "playbooks").glob("*.yaml")):
        if not file.name.endswith(".test.yaml"):
            for path, query in _under(_plain(file), "query"):
                yield f"{file.name}: {path}", re.sub(r"\{\{.*?\}\}", "x", query)


def _thresholds() -> Iterator[tuple[str, str]]:
    for file in sorted(PROMETHEUS.glob("*.yaml")):
        for key in ("series", "expr", "unless"):
            for path, expression in _under(_plain(file), key):
                yield f"{file.name}: {path}", expression


def _pages() -> Iterator[tuple[str, str]]:
    for file in sorted((ROOT / "docs").rglob("*.md")):
        for number, block in enumerate(blocks_of(file.read_text("utf-8"))):
            if block.language == "promql":
                yield f"{file.relative_to(ROOT)}: block {number + 1}", block.text


def _under(node: Any, key: str, path: str = "") -> Iterator[tuple[str, str]]:
    """Every text that stands under a key of that name, anywhere in a file, with the way to it."""
    pairs = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for name, value in pairs:
        if name == key and isinstance(value, str):
            yield f"{path}{name}", value
        yield from _under(value, key, f"{path}{name}.")


def _plain(file: Path) -> Any:
    """The file as it is in YAML; of several documents a list."""
    documents = list(YAML(typ="safe", pure=True).load_all(file.read_text("utf-8")))
    return documents[0] if len(documents) == 1 else documents


# -- what is exported


def is_exported(name: str) -> bool:
    """Whether somebody exports it; a pattern of names must fit one that is."""
    names = exported()
    return name in names or any(re.fullmatch(name, each) for each in names if not name.isidentifier())


@lru_cache(maxsize=1)
def exported() -> frozenset[str]:
    """Every name of a series that comes from anywhere."""
    return frozenset(
        {*counters(), *nvidia_smi(), *recorded(), *of_our_exporter(), *of_the_engine(), *of_trainers(), *OF_PROMETHEUS}
    )


def counters() -> dict[str, str]:
    """DCGM's fields that the counters file turns on → their types."""
    lines = (PROMETHEUS / "dcgm-counters.csv").read_text("utf-8").splitlines()
    rows = [line.split(",") for line in lines if line and not line.startswith("#")]
    return {field.strip(): type_.strip() for field, type_, *_ in rows}


def nvidia_smi() -> list[str]:
    """What utkuozdemir's nvidia_gpu_exporter exports."""
    return [line for line in NVIDIA_SMI.read_text("utf-8").splitlines() if line and not line.startswith("#")]


def recorded() -> set[str]:
    """What the recording rules make."""
    groups = [group for file in PROMETHEUS.glob("*.yml") for group in _plain(file).get("groups", [])]
    return {rule["record"] for group in groups for rule in group["rules"] if "record" in rule}


def of_the_engine() -> set[str]:
    """What the engine exports."""
    return {
        family.name + suffix for family in Metrics().registry.collect() for suffix in SUFFIXES.get(family.type, ("",))
    }


def of_our_exporter() -> set[str]:
    """What ``remediator exporter`` exports."""
    return {family.name for family in FAMILIES.values()}


def of_trainers() -> set[str]:
    """What a trainer exports that does as the example does."""
    return set(re.findall(r'_gauge\(\s*"(\w+)"', (ROOT / "deploy" / "training" / "progress.py").read_text("utf-8")))
