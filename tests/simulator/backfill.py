"""Histories: a cluster's last weeks as blocks of a Prometheus, and as input of ``promtool test rules``.

``write`` makes OpenMetrics files and lets ``promtool tsdb create-blocks-from openmetrics`` make blocks of them, two
beside each other. promtool reads its whole file once for every block that it makes, so each file is one block's.

``series`` gives the same series as values for a rule test, with what a text file cannot say: that a series ended.
A history in blocks has no such marks: see ``lookback``.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from realparts.prometheus import find_program
from simulator.cluster import Cluster
from simulator.ours import INTERVAL_S
from simulator.page import NUMBER, braced
from simulator.scenario import Scenario
from simulator.scrape import Series, targets

LARGE_BLOCK_S, SMALL_BLOCK_S = 18 * 3600, 6 * 3600
"""Spans that Prometheus' blocks have: two hours times a power of three."""

_LARGE_SAMPLES = 1_500_000
"""In one block: more make a file of hundreds of megabytes."""

N_PROMTOOLS = 2


def lookback(step_s: int) -> str:
    """``--query.lookback-delta`` for a Prometheus that shows a history: a series ends with its last sample.

    A moment less than the step. With more, what a label was and what it is now are seen beside each other for a
    step, and joins of recorded series fail.
    """
    return f"{step_s * 1000 - 1}ms"


class BackfillError(Exception):
    """promtool did not make a block; the message says what it said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What was written.

    Attributes:
        start_s, end_s: Unix time of the first and the last sample.
        n_series, n_samples, n_blocks: how much it is; series as of the block that has most.
    """

    start_s: int
    end_s: int
    n_series: int
    n_samples: int
    n_blocks: int


def write(
    scenario: Scenario,
    into: Path,
    *,
    start_s: int,
    end_s: int,
    step_s: int = 60,
    sources: Sequence[str] | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> History:
    """Write a history into a Prometheus' data folder, one that is empty or that no Prometheus runs on.

    Args:
        start_s: Unix time of the scenario's start.
        end_s: before which the last sample lies.
        step_s: between two scrapes, of every target.
        sources: see ``scrape.targets``.
        say: is told how far it is.

    Raises:
        BackfillError: promtool refused, or is not installed.
    """
    try:
        promtool = find_program("promtool")
    except FileNotFoundError as error:
        raise BackfillError(str(error)) from error
    start_s -= start_s % step_s
    into.mkdir(parents=True, exist_ok=True)
    cluster = Cluster(scenario, epoch=start_s)
    # What our exporter samples between two scrapes is most of the work of a history.
    pages = targets(cluster, sources=sources, interval_s=max(step_s, INTERVAL_S))
    n_series = sum(len(page.scraped(np.zeros(1))) for page in pages)  # of an early time: a guess
    block_s = LARGE_BLOCK_S if n_series * LARGE_BLOCK_S / step_s <= _LARGE_SAMPLES else SMALL_BLOCK_S
    firsts = range(start_s - start_s % block_s, end_s, block_s)
    n_samples, last_s = 0, start_s
    with tempfile.TemporaryDirectory(prefix=".backfill-", dir=into) as scratch, ThreadPoolExecutor(N_PROMTOOLS) as pool:
        at_work: list[Future[None]] = []
        for number, first in enumerate(firsts):
            # Samples lie at whole steps from the start, wherever blocks begin.
            skipped = max(0, -(-(first - start_s) // step_s))
            times = np.arange(start_s + skipped * step_s, min(first + block_s, end_s), step_s)
            if not times.size:
                continue
            last_s = int(times[-1])
            block = [one for page in pages for one in page.scraped(times - float(start_s))]
            n_series = max(n_series, len(block))
            n_samples += sum(int((~np.isnan(one.values)).sum()) for one in block)
            file = Path(scratch) / f"{number:05}.om"
            with file.open("w") as out:
                out.writelines(openmetrics(block, times))
            # No more than one file waits: they are large.
            while sum(not one.done() for one in at_work) > N_PROMTOOLS:
                next(one for one in at_work if not one.done()).result()
            at_work.append(pool.submit(_make_block, promtool, file, into))
            say(f"{number + 1} of {len(firsts)} blocks, {n_samples:,} samples")
        for one in at_work:
            one.result()
    return History(
        start_s=start_s,
        end_s=last_s,
        n_series=n_series,
        n_samples=n_samples,
        n_blocks=len(at_work),
    )


def _make_block(promtool: Path, file: Path, into: Path) -> None:
    command = [str(promtool), "tsdb", "create-blocks-from", f"--max-block-duration={LARGE_BLOCK_S // 3600}h", "--quiet"]
    done = subprocess.run([*command, "openmetrics", str(file), str(into)], capture_output=True, text=True, check=False)
    file.unlink()
    if done.returncode != 0:
        raise BackfillError(f"promtool made no block: {(done.stderr or done.stdout).strip()}")


def openmetrics(block: Iterable[Series], times: np.ndarray) -> Iterable[str]:
    """A file of these series at these Unix times, in pieces; series by series, which promtool takes."""
    templates: dict[bytes, str] = {}
    for one in block:
        is_there = ~np.isnan(one.values)
        mask = is_there.tobytes()
        if mask not in templates:
            templates[mask] = "".join(f"\0{NUMBER} {at}\n" for at in times[is_there].tolist())
        # One replacement and one formatting for all samples of a series: three times as fast as a line at a time.
        yield templates[mask].replace("\0", _name(one).replace("%", "%%") + " ") % tuple(one.values[is_there].tolist())
    yield "# EOF\n"


def _name(series: Series) -> str:
    return series.labels["__name__"] + braced((name, of) for name, of in series.labels.items() if name != "__name__")


def series(
    scenario: Scenario, *, step_s: int, duration_s: float, sources: Sequence[str] | None = None, at_s: float = 0
) -> list[tuple[str, str]]:
    """Input of ``promtool test rules``: the series of a story and their values, one each ``step_s``.

    Args:
        duration_s: from ``at_s`` of the story on.
        sources: see ``scrape.targets``.

    Returns:
        (series, values) for ``input_series``. A series that is not written any more, or whose target does not answer,
        is stale, as in a Prometheus.
    """
    times = at_s + np.arange(int(duration_s // step_s) + 1) * float(step_s)
    cluster = Cluster(scenario)
    return [
        (_name(one), values(one.values)) for page in targets(cluster, sources=sources) for one in page.scraped(times)
    ]


def values(samples: np.ndarray) -> str:
    """Samples in promtool's notation: ``1+0x9 stale _x3 7``; NaN is no sample."""
    is_there = ~np.isnan(samples)
    starts = [0, *(np.flatnonzero((samples[1:] != samples[:-1]) & (is_there[1:] | is_there[:-1])) + 1).tolist()]
    words: list[str] = []
    for first, last in zip(starts, [*starts[1:], samples.size], strict=True):
        n_same = last - first
        if is_there[first]:
            value = NUMBER % samples[first]
            words.append(value if n_same == 1 else f"{value}+0x{n_same - 1}")
            continue
        if words:
            words.append("stale")
            n_same -= 1
        if n_same:
            words.append("_" if n_same == 1 else f"_x{n_same}")
    return " ".join(words)
