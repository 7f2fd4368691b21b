"""A real Prometheus: rules and scrape targets in, alerts to real Alertmanagers out.

Rule files, targets and Alertmanager addresses → a running Prometheus on a free loopback port, fast enough for tests.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import requests

from realparts.process import Process, answers, free_port


def find_program(name: str) -> Path:
    """``prometheus``, ``promtool`` or ``amtool``; FileNotFoundError when it is not installed."""
    found = shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"{name} is not installed; `make setup` as root installs it")
    return Path(found)


class Prometheus:
    """One Prometheus.

    Args:
        folder: its configuration, data and log.
        rules: a rule file's content as a mapping (``{"groups": […]}``), or paths of rule files.
        targets: job → ``host:port`` list.
        scrape_configs: more jobs, as its configuration has them.
        alertmanager_urls: where alerts go; each gets all of them, as in an HA pair.
        interval: between scrapes and between evaluations.
        external_labels: added to every alert; what tells the two Prometheus of an HA pair apart.
        port: the HTTP port; default a free one, kept over restarts.
        outlives_parent: see ``Process``.
    """

    def __init__(
        self,
        folder: Path,
        *,
        rules: Mapping[str, Any] | Sequence[Path],
        targets: Mapping[str, Sequence[str]],
        alertmanager_urls: Sequence[str],
        interval: str = "1s",
        external_labels: Mapping[str, str] | None = None,
        scrape_configs: Sequence[Mapping[str, Any]] = (),
        port: int | None = None,
        outlives_parent: bool = False,
    ) -> None:
        self.folder = folder
        self.url = f"http://127.0.0.1:{port or free_port()}"
        if isinstance(rules, Mapping):
            self._rules: Mapping[str, Any] | None = rules
            rule_files = [folder / "rules.json"]
        else:
            self._rules = None
            rule_files = list(rules)
        self._config = {
            "global": {
                "scrape_interval": interval,
                "scrape_timeout": interval,
                "evaluation_interval": interval,
                "external_labels": dict(external_labels or {}),
            },
            "rule_files": [str(path) for path in rule_files],
            "alerting": {
                "alertmanagers": [
                    {"static_configs": [{"targets": [url.removeprefix("http://") for url in alertmanager_urls]}]}
                ]
            },
            "scrape_configs": [
                *({"job_name": job, "static_configs": [{"targets": list(hosts)}]} for job, hosts in targets.items()),
                *scrape_configs,
            ],
        }
        command = [
            str(find_program("prometheus")),
            f"--config.file={folder / 'prometheus.json'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={self.url.removeprefix('http://')}",
            f"--web.external-url={self.url}",
            # An alert goes out again after this time; the default minute is longer than most tests.
            "--rules.alert.resend-delay=1s",
            "--log.level=warn",
        ]
        self._process = Process(
            command,
            folder,
            is_up=lambda: answers(f"{self.url}/-/ready"),
            name="prometheus",
            outlives_parent=outlives_parent,
        )

    @property
    def pid(self) -> int:
        """Its process id while it runs."""
        return self._process.pid

    def start(self) -> None:
        """Writes the configuration, starts it and waits until it is ready; RuntimeError when it is not in 30 s."""
        self.folder.mkdir(parents=True, exist_ok=True)
        # JSON is YAML, so no YAML writer is needed.
        if self._rules is not None:
            (self.folder / "rules.json").write_text(json.dumps(self._rules, indent=2))
        (self.folder / "prometheus.json").write_text(json.dumps(self._config, indent=2))
        self._process.start()

    def stop(self) -> None:
        """Ends it in order."""
        self._process.stop()

    def kill(self) -> None:
        """Ends it as a crash would."""
        self._process.kill()

    def value(self, query: str) -> float | None:
        """The one value that an instant query gives now; None when it gives no series.

        Raises:
            ValueError: more than one series.
        """
        answer = requests.get(f"{self.url}/api/v1/query", params={"query": query}, timeout=5)
        answer.raise_for_status()
        series = answer.json()["data"]["result"]
        if len(series) > 1:
            raise ValueError(f"{len(series)} series for {query}")
        return float(series[0]["value"][1]) if series else None

    def series(self, query: str) -> list[dict[str, str]]:
        """The labels of the series that an instant query gives now."""
        answer = requests.get(f"{self.url}/api/v1/query", params={"query": query}, timeout=5)
        answer.raise_for_status()
        return [series["metric"] for series in answer.json()["data"]["result"]]

    def firing(self) -> list[dict[str, str]]:
        """The labels of the alerts that fire now."""
        answer = requests.get(f"{self.url}/api/v1/alerts", timeout=5)
        answer.raise_for_status()
        return [alert["labels"] for alert in answer.json()["data"]["alerts"] if alert["state"] == "firing"]
