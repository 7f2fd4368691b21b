"""What a process's GPU memory does over time, told in a few words: one row of ``tests/data/memory_stories.yaml``.

A story is a sum of parts, rounded up to what the allocator hands out. Times are since the watch began.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

GIB = 1 << 30
MIB = 1 << 20
HOUR_S = 3600.0

Part = Callable[[float], float]
"""Seconds → GiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One look at the process, and what the GPU has left then."""

    at_s: float
    used_bytes: int
    free_bytes: int


def told(story: Mapping[str, Any], seed: int = 0) -> Iterator[Sample]:
    """Play a story: a sample per ``interval_s`` (5), a tenth of it early or late; until the GPU is full."""
    random = Random(seed)
    parts = [part for each in story["memory"] for part in _parts(each, random)]
    gaps = [(start * 60, (start + length) * 60) for start, length in story.get("gaps_min", [])]
    interval_s, total = story.get("interval_s", 5.0), story.get("gpu_gib", 80) * GIB
    granule, noise = story.get("granule_mib", 2) * MIB, story.get("noise_mib", 0) * MIB
    for n in range(int(story["hours"] * HOUR_S / interval_s)):
        at_s = interval_s * (n + random.uniform(-0.1, 0.1) + 0.1)
        if any(start <= at_s < end for start, end in gaps):
            continue
        used = sum(part(at_s) for part in parts) * GIB + (abs(random.gauss(0, noise)) if noise else 0)
        used_bytes = max(0, math.ceil(used / granule) * granule)
        if used_bytes > total:
            return
        yield Sample(at_s=at_s, used_bytes=used_bytes, free_bytes=total - used_bytes)


def healthy_day(random: Random) -> dict[str, Any]:
    """A day of some healthy job: what it holds, loads, warms up, takes and gives back, drawn at random. It fits."""
    gpu_gib = random.choice((24, 40, 80, 141))
    shares = [random.random() for _ in range(6)]
    room = gpu_gib * random.uniform(0.3, 0.95) / sum(shares)
    base, load, warm_up, teeth, evaluation, batch = (share * room for share in shares)
    memory: list[dict[str, Any]] = [
        {"base": 0.5 + base * random.choice((0, 1))},
        {"load": load, "minutes": random.uniform(0.5, 45)},
    ]
    if random.random() < 0.5:
        memory.append({"warm_up": warm_up, "minutes": random.uniform(2, 60), "from_h": random.choice((0, 0.2, 0.5))})
    if random.random() < 0.6:
        jitter = random.choice((0, 0.02, 0.1))
        period_s = math.exp(random.uniform(math.log(5), math.log(3600 / (1 + jitter))))
        memory.append({"sawtooth": teeth / (1 + jitter), "period_s": period_s, "jitter": jitter})
    if random.random() < 0.4:
        every_min = random.uniform(15, 300)
        length_min = random.uniform(0.5, every_min / 3)
        memory.append(
            {"evaluation": evaluation * random.choice((1, 1, -1 / 6)), "every_min": every_min, "for_min": length_min}
        )
    if random.random() < 0.4:
        memory.append({"longest_batch": batch / 15, "every_s": math.exp(random.uniform(0, 6))})
    for _ in range(random.choice((0, 0, 1, 3))):
        memory.append({"step": random.uniform(0, 0.02) * gpu_gib, "from_h": random.uniform(0, 24)})
    gaps = [(random.uniform(0, 1440), random.uniform(0.2, 90)) for _ in range(random.choice((0, 0, 0, 2)))]
    return {
        "memory": memory,
        "hours": 24,
        "gpu_gib": gpu_gib,
        "granule_mib": random.choice((2, 2, 20)),
        "noise_mib": random.choice((0, 0, 5, 50, 300)),
        "gaps_min": gaps,
    }


def _parts(words: Mapping[str, Any], random: Random) -> Iterator[Part]:
    """The parts that one entry stands for: ``{kind: GiB, and its times}``."""
    (kind, gib), times = next(iter(words.items())), words
    from_s, until_s = times.get("from_h", 0) * HOUR_S, times.get("until_h", math.inf) * HOUR_S
    match kind:
        case "base":
            yield lambda _: gib
        case "leak":  # GiB per hour
            yield lambda at_s: gib * max(0.0, min(at_s, until_s) - from_s) / HOUR_S
        case "load":  # evenly, within some minutes
            length_s = times["minutes"] * 60
            yield lambda at_s: gib * min(1.0, max(0.0, (at_s - from_s) / length_s))
        case "warm_up":  # ever more slowly; `minutes` is the time constant
            tau_s = times["minutes"] * 60
            yield lambda at_s: gib * (1 - math.exp(-max(0.0, at_s - from_s) / tau_s))
        case "step":
            yield lambda at_s: gib if from_s <= at_s < until_s else 0.0
        case "sawtooth":
            yield _Tooth(gib, times["period_s"], times.get("jitter", 0.05), from_s, random)
        case "wave":
            period_s = times["period_s"]
            yield lambda at_s: gib * (1 - math.cos(2 * math.pi * at_s / period_s)) / 2
        case "evaluation":  # more (or less) memory for some minutes, now and then
            every_s, length_s = times["every_min"] * 60, times["for_min"] * 60
            yield lambda at_s: gib if (at_s + from_s) % every_s > every_s - length_s else 0.0
        case "longest_batch":  # a caching allocator keeps what the longest batch so far needed
            yield _LongestBatch(gib, times["every_s"], random)
        case _:
            raise ValueError(f"no part of a story is called {kind!r}")


class _Tooth:
    """Rises evenly and falls at once; each tooth differs a little in length and height."""

    def __init__(self, gib: float, period_s: float, jitter: float, from_s: float, random: Random) -> None:
        self._gib, self._period_s, self._jitter, self._random = gib, period_s, jitter, random
        self._start_s = from_s - random.random() * period_s
        self._length_s, self._height = period_s, gib
        self._from_s = from_s

    def __call__(self, at_s: float) -> float:
        if at_s < self._from_s:
            return 0.0
        while at_s - self._start_s >= self._length_s:
            self._start_s += self._length_s
            self._length_s = self._period_s * (1 + self._random.uniform(-1, 1) * self._jitter)
            self._height = self._gib * (1 + self._random.uniform(-1, 1) * self._jitter)
        return self._height * (at_s - self._start_s) / self._length_s


class _LongestBatch:
    """Each batch needs a random amount (exponential about a mean of ``gib``); the most so far is kept."""

    def __init__(self, gib: float, every_s: float, random: Random) -> None:
        self._gib, self._every_s, self._random = gib, every_s, random
        self._n, self._most = 0, 0.0

    def __call__(self, at_s: float) -> float:
        while self._n * self._every_s <= at_s:
            self._n += 1
            self._most = max(self._most, self._random.expovariate(1 / self._gib))
        return self._most
