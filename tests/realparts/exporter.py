"""The exporter as it is deployed: a process of its own on a port of loopback, asked as Prometheus asks.

A ``FakeDriver`` or none → ``remediator exporter`` as a child, its pages read. It ends only the child that it started.
"""

from __future__ import annotations

import http.client
import sys
from collections.abc import Mapping
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from realparts.nvml import FakeDriver
from realparts.process import Process, answers, free_port

Series = frozenset[tuple[str, str]]


class Page:
    """What ``/metrics`` showed once."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._samples: dict[str, dict[Series, float]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                self._samples.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value

    def values(self, name: str, **labels: str) -> list[float]:
        """Of every series with that name and these labels among its own."""
        return [
            value for series, value in self._samples.get(name, {}).items() if labels.items() <= dict(series).items()
        ]

    def value(self, name: str, **labels: str) -> float | None:
        """Of the one series with these labels; None when there is none."""
        found = self.values(name, **labels)
        assert len(found) < 2, f"{name}{labels} is several series"
        return found[0] if found else None

    def labels(self, name: str) -> list[Mapping[str, str]]:
        """Of every series of that name."""
        return [dict(series) for series in self._samples.get(name, {})]


class Exporter:
    """One exporter; ``start`` it before use.

    Args:
        folder: gets its log.
        driver: None = there is no driver's library.
        options: more of its command line.
    """

    def __init__(self, folder: Path, driver: FakeDriver | None, *options: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.process = Process(
            [
                *(sys.executable, "-m", "remediator", "exporter", "--listen", f"127.0.0.1:{self.port}"),
                *("--hostname", "gpu-07", "--docker", "none", *options),
            ],
            folder,
            is_up=lambda: answers(f"{self.url}/healthz"),
            name="exporter",
            start_timeout_s=60,
            env=dict(driver.env) if driver else None,
        )

    def start(self) -> Exporter:
        """Once it answers."""
        self.process.start()
        return self

    def kill(self) -> None:
        """Whatever it does."""
        self.process.kill()

    def page(self) -> Page:
        """Scrape it, over a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", "/metrics")
            return Page(connection.getresponse().read().decode())
        finally:
            connection.close()
