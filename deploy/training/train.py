"""An example of a training loop that says how far it is. Needs no GPU: what it trains is a line through points.

python train.py --job llm --port 9300                                    # a page: http://HOST:9300/metrics
python train.py --job llm --textfiles /var/lib/node_exporter/textfiles   # a file for node_exporter
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from progress import Progress


def main() -> None:
    """Train, and tell of it."""
    parser = argparse.ArgumentParser(description="An example training that says how far it is.")
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--step-seconds", type=float, default=0.05, help="how long a step takes")
    parser.add_argument("--from-step", type=int, default=0, help="where a checkpoint was written")
    # What Slurm calls the job; a container knows its own name only where it is told: docker run -e TRAINING_CONTAINER=…
    parser.add_argument("--job", default=os.environ.get("SLURM_JOB_ID", ""))
    parser.add_argument("--container", default=os.environ.get("TRAINING_CONTAINER", ""))
    parser.add_argument("--host", default=os.environ.get("TRAINING_HOST", ""), help="where it is not what is scraped")
    parser.add_argument("--port", type=int)
    parser.add_argument("--textfiles", type=Path, metavar="FOLDER")
    options = parser.parse_args()

    logging.basicConfig(level=logging.INFO)
    signal.signal(signal.SIGTERM, _stop)
    labels = {"training_job": options.job, "container_name": options.container, "hostname": options.host}
    with Progress(options.steps, labels=labels, port=options.port, folder=options.textfiles) as progress:
        slope = 0.0
        for step in range(options.from_step + 1, options.steps + 1):
            x = random.random()  # noqa: S311
            slope -= 0.1 * (slope * x - 3 * x) * x  # towards y = 3 x
            time.sleep(options.step_seconds)
            progress.report(step)
    logging.info("trained: y = %.2f x", slope)


def _stop(_number: int, _frame: FrameType | None) -> None:
    # Through the `with` above: a file of a trainer that was stopped would be taken for one that stands still.
    sys.exit(0)


if __name__ == "__main__":
    main()
