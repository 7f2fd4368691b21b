"""How unevenly the GPUs of one job work: the spread of their mean utilisation.

Takes utilisation samples → a mean per GPU, and a snapshot's means → the spread per job. It must never guess which job a
GPU works for: one that several share, or that somebody unknown uses too, counts for none.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from remediator.exporter.snapshot import GpuSample, Snapshot

_WINDOW_S = 300.0
"""A sample says whether a kernel ran in a moment; over 5 minutes the phases of a step even out."""
_LEAST_SEEN_S = 240.0
"""Of the window, before its mean is one: it holds four samples even where they are a minute apart."""
_MOST_SAMPLES = 300
"""One a second, as often as anybody samples; more frequent ones shorten the window."""


class RecentMean:
    """The mean utilisation of one GPU over the last 5 minutes."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float]] = deque(maxlen=_MOST_SAMPLES)

    def add(self, at_s: float, ratio: float) -> None:
        """Take in one sample.

        Args:
            at_s: of a clock that never goes back.
            ratio: 0-1.
        """
        self._samples.append((at_s, ratio))
        self._forget(at_s)

    def mean(self, at_s: float) -> float | None:
        """0-1, of the 5 minutes before ``at_s``; None while fewer than 4 of them were seen."""
        self._forget(at_s)
        if not self._samples or at_s - self._samples[0][0] < _LEAST_SEEN_S:
            return None
        return sum(ratio for _, ratio in self._samples) / len(self._samples)

    def _forget(self, at_s: float) -> None:
        while self._samples and self._samples[0][0] <= at_s - _WINDOW_S:
            self._samples.popleft()


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Job:
    """What the GPUs of one host work for: a pod, or a container without one."""

    exported_namespace: str = ""
    exported_pod: str = ""
    container_name: str = ""


def job_of(gpu: GpuSample) -> Job | None:
    """The one job that a GPU works for; None: nobody uses it, several do, or one of them is unknown."""
    jobs = {
        Job(
            exported_namespace=workload.exported_namespace,
            exported_pod=workload.exported_pod,
            container_name="" if workload.exported_pod else workload.container_name,
        )
        for workload in (process.workload for process in gpu.processes)
    }
    if len(jobs) != 1:
        return None
    job = jobs.pop()
    return job if job.exported_pod or job.container_name else None


def spreads(snapshot: Snapshot) -> dict[Job, float]:
    """Per job with a mean of at least two GPUs: highest less lowest, 0-1. In the jobs' order."""
    means: dict[Job, list[float]] = {}
    for gpu in snapshot.gpus:
        job = job_of(gpu) if gpu.reading is not None else None
        if job is not None and gpu.utilization_mean_ratio is not None:
            means.setdefault(job, []).append(gpu.utilization_mean_ratio)
    return {job: max(of_gpus) - min(of_gpus) for job, of_gpus in sorted(means.items()) if len(of_gpus) > 1}
