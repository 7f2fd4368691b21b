"""How far a training is, for Prometheus: copy this file beside your training loop.

Takes a step number now and then → gauges on a page of the trainer's own (``/metrics``), or in a file for the textfile
collector of node_exporter; needs ``prometheus-client``. No Pushgateway: what is pushed outlives a dead trainer.

Must never: end or slow a training. What goes wrong here is logged, and the training goes on.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from prometheus_client import CollectorRegistry, Gauge, start_http_server, write_to_textfile

log = logging.getLogger(__name__)

WRITTEN_EACH_S = 5.0
"""node_exporter is scraped less often than this."""


class Progress:
    """What is told of one training. Only rank 0 needs one, where the site tells which GPUs are one job's.

    Args:
        n_steps: of the whole training, also after it was resumed; at least 1.
        labels: who this is: ``training_job`` (as the site calls it), else ``container_name``, and ``hostname`` where it
            is not what Prometheus scrapes; empty ones are left out. In a pod none is needed.
        port: of a page of its own; None = no page.
        folder: node_exporter's ``--collector.textfile.directory``; None = no file.
    """

    def __init__(
        self, n_steps: int, *, labels: Mapping[str, str], port: int | None = None, folder: Path | None = None
    ) -> None:
        self._n_steps = n_steps
        self._registry = CollectorRegistry()
        self._labels = {name: value for name, value in labels.items() if value}
        self._ratio = self._gauge("training_progress_ratio", "How much of the training is done, from 0 to 1.")
        self._step = self._gauge("training_step", "The last step that was done.")
        self._told_at = self._gauge("training_progress_timestamp_seconds", "When this was told, in Unix time.")
        self._allocated: Gauge | None = None
        # By what it is and not by pid: the next trainer writes over what a dead one left behind.
        name = re.sub(r"[^\w.-]", "_", "_".join(self._labels.values()) or "training")
        self._file = folder / f"training_{name}.prom" if folder is not None else None
        self._written_s = -WRITTEN_EACH_S
        if port is not None:
            try:
                start_http_server(port, registry=self._registry)
            except OSError as error:
                log.warning("no page with the training's progress on port %s: %s", port, error)

    def report(self, step: int, *, allocated_bytes: int | None = None) -> None:
        """Tell that a step is done; as often as once in five minutes at least, or it counts as unknown.

        Args:
            step: from 1 to ``n_steps``.
            allocated_bytes: of GPU memory that tensors hold (``torch.cuda.memory_allocated()``): unlike what the driver
                sees, it has no cache in it.
        """
        self._set(self._ratio, min(step / self._n_steps, 1.0))
        self._set(self._step, step)
        self._set(self._told_at, time.time())
        if allocated_bytes is not None:
            if self._allocated is None:
                self._allocated = self._gauge("training_allocated_bytes", "GPU memory that tensors hold.")
            self._set(self._allocated, allocated_bytes)
        now_s = time.monotonic()
        if self._file is not None and (now_s - self._written_s >= WRITTEN_EACH_S or step >= self._n_steps):
            self._written_s = now_s
            try:
                write_to_textfile(str(self._file), self._registry)  # renamed into its place when it is whole
            except OSError as error:
                log.warning("the training's progress cannot be written: %s", error)

    def close(self) -> None:
        """Remove the file: node_exporter would show it for ever."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _gauge(self, name: str, what: str) -> Gauge:
        return Gauge(name, what, [*self._labels], registry=self._registry)

    def _set(self, gauge: Gauge, value: float) -> None:
        (gauge.labels(**self._labels) if self._labels else gauge).set(value)
