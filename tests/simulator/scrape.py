"""What a Prometheus makes of the pages: targets, their labels, ``up``, and what its relabelling does to each series.

A cluster and a Prometheus configuration → targets; a target and times → series, as they lie in the Prometheus that
scraped it at these times. Reads the shipped ``prometheus.yml``, so that a history and a rule test are of its labels.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from ruamel.yaml import YAML

from simulator import dcgm, host, ours, smi
from simulator.cluster import Cluster, Mask
from simulator.noise import Times, Values
from simulator.page import Column

CONFIG = Path(__file__).parents[2] / "deploy" / "prometheus" / "prometheus.yml"

SOURCES: Final = ("dcgm", "smi", "remediator", "node", "trainer")
"""Kinds of targets."""

JOBS: Final = {
    "dcgm": "dcgm",
    "smi": "nvidia-smi",
    "remediator": "remediator-exporter",
    "node": "node",
    "trainer": "trainers",
}
"""Source → its job in the Prometheus configuration."""

PORTS: Final = {"dcgm": 9400, "smi": 9835, "remediator": 9096, "node": 9100, "trainer": 9300}


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One series in Prometheus.

    Attributes:
        labels: ``__name__`` among them; in alphabetical order.
        values: over the times; NaN where there is no sample.
    """

    labels: Mapping[str, str]
    values: Values


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One page that is scraped.

    Attributes:
        source: of ``SOURCES``.
        path: where the simulator serves it.
        labels: of the target, ``job`` and ``instance`` among them.
        scrape_config: of its job.
        page: times → columns; answers: times → whether it answers.
    """

    source: str
    path: str
    labels: Mapping[str, str]
    scrape_config: Mapping[str, Any]
    page: Callable[[Times], Iterable[Column]]
    answers: Callable[[Times], Mask]

    def scraped(self, times: Times) -> list[Series]:
        """Its series, had it been scraped at these times; ``up`` first."""
        is_up = self.answers(times)
        found: dict[tuple[tuple[str, str], ...], Values] = {}
        n_samples = np.zeros(times.shape)
        for column in self.page(times):
            values = np.where(is_up, column.values, np.nan)
            labels = self._labels_of(column)
            n_samples = n_samples + ~np.isnan(values)
            if labels is None or np.isnan(values).all():
                continue
            key = tuple(sorted(labels.items()))
            # What differs in a label that is dropped is one series afterwards.
            found[key] = np.where(np.isnan(values), found[key], values) if key in found else values
        made = {"up": is_up.astype(float), "scrape_samples_scraped": n_samples}
        own = [Series(labels={"__name__": name, **self.labels}, values=values) for name, values in made.items()]
        return own + [Series(labels=dict(key), values=values) for key, values in found.items()]

    def _labels_of(self, column: Column) -> dict[str, str] | None:
        """Labels after the scrape and its relabelling; None for a series that is dropped."""
        labels = {"__name__": column.name, **{name: value for name, value in column.labels if value}}
        for name, value in self.labels.items():
            if name in labels and self.scrape_config.get("honor_labels"):
                continue
            if name in labels:
                labels[f"exported_{name}"] = labels[name]
            labels[name] = value
        return relabelled(labels, self.scrape_config.get("metric_relabel_configs", ()))


def relabelled(labels: dict[str, str], rules: Sequence[Mapping[str, Any]]) -> dict[str, str] | None:
    """Labels after relabelling; None for what is dropped.

    Raises:
        ValueError: an action that nobody has needed here yet.

    Source: Prometheus, model/relabel.
    """
    for rule in rules:
        pattern = _pattern(str(rule.get("regex", "(.*)")))
        action = rule.get("action", "replace")
        joined = str(rule.get("separator", ";")).join(labels.get(name, "") for name in rule.get("source_labels", ()))
        match action:
            case "replace":
                if (found := pattern.fullmatch(joined)) is not None:
                    value = found.expand(_template(str(rule.get("replacement", "$1"))))
                    labels = {**labels, rule["target_label"]: value}
                    if not value:
                        del labels[rule["target_label"]]
            case "keep" | "drop":
                if (pattern.fullmatch(joined) is None) == (action == "keep"):
                    return None
            case "labeldrop" | "labelkeep":
                drops = action == "labeldrop"
                labels = {name: value for name, value in labels.items() if (pattern.fullmatch(name) is None) == drops}
            case "labelmap":
                template = _template(str(rule.get("replacement", "$1")))
                mapped = {m.expand(template): value for name, value in labels.items() if (m := pattern.fullmatch(name))}
                labels = {**labels, **mapped}
            case "lowercase":
                labels = {**labels, rule["target_label"]: joined.lower()}
            case _:
                raise ValueError(f"the simulator cannot relabel with the action {action!r}")
    return labels


@lru_cache
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text)


@lru_cache
def _template(text: str) -> str:
    return re.sub(r"\$\{?(\w+)\}?", r"\\g<\1>", text)


@lru_cache
def scrape_configs(path: Path = CONFIG) -> dict[str, Mapping[str, Any]]:
    """Its scrape configurations by name of job."""
    document = YAML(typ="safe").load(path)
    return {job["job_name"]: job for job in document["scrape_configs"]}


def targets(
    cluster: Cluster,
    *,
    sources: Sequence[str] | None = None,
    config: Path = CONFIG,
    interval_s: float = ours.INTERVAL_S,
) -> list[Target]:
    """Everything that is scraped of a cluster.

    Args:
        sources: which of ``SOURCES``; default the scenario's, and nodes and trainers.
        config: the Prometheus configuration whose jobs scrape it.
        interval_s: between two samples of our exporter.
    """
    wanted = (*cluster.scenario.sources, "node", "trainer") if sources is None else sources
    if unknown := set(wanted) - {*SOURCES}:
        raise ValueError(f"there is no source {', '.join(sorted(unknown))}; there are {', '.join(SOURCES)}")
    configs = scrape_configs(config)
    shared = {"cluster": cluster.scenario.cluster} if cluster.scenario.cluster else {}
    found: list[Target] = []

    def add(
        source: str,
        path: str,
        instance: str,
        page: Callable[[Times], Iterable[Column]],
        answers: Callable[[Times], Mask],
        labels: Mapping[str, str],
    ) -> None:
        job = JOBS[source]
        own = {"job": job, "instance": instance, **shared, **labels}
        found.append(
            Target(
                source=source,
                path=path,
                labels=dict(sorted(own.items())),
                scrape_config=configs.get(job, {}),
                page=page,
                answers=answers,
            )
        )

    for name, node in cluster.nodes.items():
        pages: dict[str, Callable[[Times], Iterable[Column]]] = {
            "dcgm": lambda times, node=node: dcgm.columns(node, times),
            "smi": lambda times, node=node: smi.columns(node, times),
            "remediator": ours.OurExporter(node, interval_s).columns,
            "node": lambda times, node=node: host.node_columns(node, times),
        }
        for source, page in pages.items():
            if source in wanted:
                answers = lambda times, node=node, source=source: node.answers(source, times)  # noqa: E731
                add(source, f"/{name}/{source}", f"{name}:{PORTS[source]}", page, answers, {})
    for job in cluster.jobs:
        if "trainer" not in wanted or job.job.length is None:
            continue
        node = cluster.nodes[job.nodes[0]]
        labels = {"hostname": node.name, "container_name": job.job.docker}
        if job.job.training_job:
            labels = {}
        elif job.job.pod:
            labels = {"exported_namespace": job.job.namespace, "exported_pod": job.pod_on(node.name)}
        add(
            "trainer",
            f"/trainers/{job.job.name}",
            f"{node.name}:{PORTS['trainer'] + cluster.jobs.index(job)}",
            lambda times, job=job, node=node: host.trainer_columns(job, node.shown("trainer", times)),
            lambda times, job=job, node=node: ~np.isnan(job.ages(times)[0]) & node.answers("trainer", times),
            labels,
        )
    return found
