"""A Prometheus on a history: queries over weeks that never were, and recording rules applied to them afterwards.

A data folder that ``backfill.write`` filled → a running Prometheus; rule files → their recorded series in it.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import requests
from ruamel.yaml import YAML

from realparts.process import Process, answers, free_port
from realparts.prometheus import find_program
from simulator.backfill import LARGE_BLOCK_S, BackfillError, lookback

HTTP_S = 60.0


class FilledPrometheus:
    """A Prometheus that shows a history, and scrapes nothing.

    Args:
        folder: its configuration and log.
        data: what ``backfill.write`` filled.
        step_s: of that.
    """

    def __init__(self, folder: Path, data: Path, *, step_s: int = 60) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        self.data = data
        self._step_s = step_s
        self._folder = folder
        command = [
            str(find_program("prometheus")),
            f"--config.file={folder / 'prometheus.json'}",
            f"--storage.tsdb.path={data}",
            "--storage.tsdb.retention.time=10y",
            # What is there is not to be merged anew while somebody asks.
            f"--storage.tsdb.max-block-duration={LARGE_BLOCK_S // 3600}h",
            f"--query.lookback-delta={lookback(step_s)}",
            f"--web.listen-address={self.url.removeprefix('http://')}",
            "--log.level=warn",
        ]
        self._process = Process(command, folder, is_up=lambda: answers(f"{self.url}/-/ready"), name="prometheus")

    def __enter__(self) -> FilledPrometheus:
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "prometheus.json").write_text(json.dumps({"global": {"scrape_interval": "1m"}}))
        self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()

    def query(self, promql: str, at_s: float) -> list[dict[str, Any]]:
        """``[{"metric": labels, "value": [time, text]}]`` of an instant query.

        Raises:
            ValueError: Prometheus refuses it; with its words.
        """
        return self._ask("query", {"query": promql, "time": at_s})

    def query_range(self, promql: str, start_s: float, end_s: float, step_s: float) -> list[dict[str, Any]]:
        """``[{"metric": labels, "values": [[time, text], …]}]`` of a range query. Raises as ``query``."""
        return self._ask("query_range", {"query": promql, "start": start_s, "end": end_s, "step": step_s})

    def _ask(self, kind: str, parameters: dict[str, Any]) -> list[dict[str, Any]]:
        answer = requests.post(f"{self.url}/api/v1/{kind}", data=parameters, timeout=HTTP_S).json()
        if answer["status"] != "success":
            raise ValueError(f"{answer['error']}: {parameters['query']}")
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found

    def record(self, rule_files: Sequence[Path], *, start_s: int, end_s: int) -> list[str]:
        """Adds what the recording rules of these files would have recorded, as if they had run all along.

        Rules that read others' series come after those; Prometheus starts anew in between, which makes it see new
        blocks at once. A rule that reads its own last value, or that of a later one, finds none here.

        Args:
            rule_files: in the order in which they read each other.

        Returns:
            The names that were recorded, in the order of it.

        Raises:
            BackfillError: promtool refused.
        """
        rules = [
            rule
            for file in rule_files
            for group in YAML(typ="safe").load(file)["groups"]
            for rule in group["rules"]
            if "record" in rule
        ]
        recorded: list[str] = []
        for level in in_order(rules):
            # One name for all: when a group is evaluated follows from its name and file, and rules that read what the
            # same evaluation recorded must find it.
            file = self._folder / "level.json"
            group = {"name": "level", "interval": f"{self._step_s}s", "rules": level}
            file.write_text(json.dumps({"groups": [group]}))
            command = [
                str(find_program("promtool")), "tsdb", "create-blocks-from",
                f"--max-block-duration={LARGE_BLOCK_S // 3600}h", "rules", f"--url={self.url}", f"--start={start_s}",
                f"--end={end_s}", f"--output-dir={self.data}", f"--eval-interval={self._step_s}s", str(file),
            ]  # fmt: skip
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise BackfillError(f"promtool recorded nothing: {(done.stderr or done.stdout).strip()}")
            recorded += dict.fromkeys(rule["record"] for rule in level)
            self._process.stop()
            self._process.start()
        return recorded


def in_order(rules: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Recording rules in levels: each reads only what levels before it record.

    Args:
        rules: in the order of their files: one that reads what a later one records reads its last value, and finds
            none.
    """
    level_of: dict[str, int] = {}
    levels: list[list[dict[str, Any]]] = []
    for rule in rules:
        name = rule["record"]
        read = {*re.findall(r"[a-zA-Z_:][\w:]*", str(rule["expr"]))} - {name}
        level = max((level_of[other] + 1 for other in read & level_of.keys()), default=0)
        level_of[name] = max(level, level_of.get(name, 0))
        levels += [[] for _ in range(level + 1 - len(levels))]
        levels[level].append(rule)
    return levels
