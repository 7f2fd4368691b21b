"""The cluster over HTTP: each exporter's page as it is at this moment of the story, for a Prometheus to scrape.

A ``Scenario`` → pages by path (``/gpu-01/dcgm``, ``/gpu-01/smi``, ``/gpu-01/remediator``, ``/gpu-01/node``,
``/trainers/JOB``; ``/`` lists them). What does not answer in the story answers 503 here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

from simulator import page
from simulator.cluster import Cluster
from simulator.scenario import Scenario
from simulator.scrape import Target, targets


class Simulator:
    """A story that runs.

    Args:
        at_s: how far into the story it begins.
        speed: seconds of the story per second.
        sources: see ``scrape.targets``.
        clock: Unix time; given by tests.
    """

    def __init__(
        self,
        scenario: Scenario,
        *,
        at_s: float = 0.0,
        speed: float = 1.0,
        sources: Sequence[str] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._at_s = at_s
        self._speed = speed
        self._clock = clock
        self._began = clock()
        self._busy = threading.Lock()
        # So that times on pages are right at the beginning, and right all along at the speed of 1.
        self.cluster = Cluster(scenario, epoch=self._began - at_s)
        self.targets = targets(self.cluster, sources=sources)
        self._by_path = {target.path: target for target in self.targets}

    @property
    def now_s(self) -> float:
        """How far the story is."""
        return self._at_s + (self._clock() - self._began) * self._speed

    def page(self, path: str, at_s: float | None = None) -> str | None:
        """A target's page; None where it does not answer.

        Args:
            at_s: of the story; default now.

        Raises:
            KeyError: there is no such target.
        """
        target = self._by_path[path]
        times = np.array([self.now_s if at_s is None else at_s])
        # Running totals and our exporter's memory of processes are not to be extended by two at once.
        with self._busy:
            return page.text(target.page(times)) if target.answers(times)[0] else None

    def scrape_configs(self, address: str) -> list[dict[str, Any]]:
        """``scrape_configs`` of a Prometheus that scrapes this at ``address``, with the labels of the shipped ones."""
        by_job: dict[str, list[Target]] = {}
        for target in self.targets:
            by_job.setdefault(target.labels["job"], []).append(target)
        found: list[dict[str, Any]] = []
        for job, same in by_job.items():
            keys = ("honor_labels", "metric_relabel_configs")
            config: dict[str, Any] = {key: of for key, of in same[0].scrape_config.items() if key in keys}
            static = [
                {"targets": [address], "labels": {**target.labels, "__metrics_path__": target.path}} for target in same
            ]
            for one in static:
                del one["labels"]["job"]  # type: ignore[attr-defined]
            found.append({"job_name": job, **config, "static_configs": static})
        return found

    @contextmanager
    def serve(self, port: int = 0, host: str = "127.0.0.1") -> Iterator[str]:
        """Serves it in threads; gives ``host:port``."""
        simulator = self

        class Answering(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, text = simulator._answer(self.path.partition("?")[0])
                body = text.encode()
                self.send_response(status)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Says nothing: a scrape each second would fill the screen."""

        server = ThreadingHTTPServer((host, port), Answering)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield f"{host}:{server.server_port}"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def _answer(self, path: str) -> tuple[int, str]:
        if path == "/":
            about = f"# {self.cluster.scenario.name}: {self.cluster.scenario.about} Now {self.now_s:.0f} s into it.\n"
            return 200, about + "".join(f"{target.path}\n" for target in self.targets)
        if path not in self._by_path:
            return 404, "there is no such page; / lists them\n"
        text = self.page(path)
        return (503, "it does not answer in this story\n") if text is None else (200, text)
