"""What a node exporter and a trainer write, as far as rules need it.

A node, or a job, and times → columns.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from simulator.cluster import Node
from simulator.noise import Times
from simulator.page import Column, Labels
from simulator.work import RunningJob


def node_columns(node: Node, times: Times) -> Iterator[Column]:
    """The page of a node exporter, cut to its time and its start."""
    told = node.shown("node", times)
    epoch = node.cluster.epoch
    for name, words, values in (
        ("node_boot_time_seconds", "Node boot time, in unixtime.", np.floor(epoch + node.booted(told))),
        ("node_time_seconds", "System time in seconds since epoch (1970).", epoch + told),
    ):
        yield Column(name=name, kind="gauge", help=words, labels=(), values=values)


def trainer_columns(job: RunningJob, times: Times) -> Iterator[Column]:
    """The page of a trainer: how far it is. Nothing while it does not run."""
    name = job.job.training_job
    # As the shipped relabelling makes it of the pods' label.
    of_pods = f"{job.job.namespace}/{name}" if name and job.job.pod else name
    labels: Labels = (("training_job", of_pods),) if name else ()
    progress = np.round(job.progress(times), 6)
    yield Column(
        name="training_progress_ratio",
        kind="gauge",
        help="How far the training is (0 to 1).",
        labels=labels,
        values=progress,
    )
