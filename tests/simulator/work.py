"""Jobs: when their processes live and die, and what they do and hold at any time.

A job and times → load of each of its GPUs. All of it is closed form: the lives of a process are worked out once, ahead
as far as anybody has asked, and everything else follows from how old the life is.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator import noise
from simulator.noise import Times, Values
from simulator.scenario import Job, Pause, Place

GIB = 1024.0
"""In MiB, in which memory is counted here."""

CONTEXT_MIB = 480.0
"""What a CUDA context takes by itself."""

LEAK_STEP_MIB = 20.0
"""Segment in which a caching allocator takes small blocks."""

RANK_MIB = 400.0
"""By which ranks differ at most: the first holds more than the others."""

OPTIMIZER_S = 20.0
"""Over which the optimizer's state appears, after the first step."""

EVALUATING = 0.3
"""Of the activations of a batch that an evaluation takes: nothing is kept for a way back."""

_N_LIVES = 10_000
"""A job that crashes more often than this within what is asked is a mistake in a scenario."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """A process from its start to its end.

    Attributes:
        begins, ends: seconds since the scenario's start.
        progress: of the training at its start, 0-1.
        is_killed_by_oom: that ends it.
    """

    begins: float
    ends: float
    progress: float
    is_killed_by_oom: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one process does on one GPU. Arrays over the times.

    Attributes:
        is_alive: it runs.
        memory_mib: what it holds.
        busy: 0-1, share of time in which a kernel runs.
        activity: 0-1, share of multiprocessors that work.
        heat: 0-1, of the power at full work.
        nvlink_gb_s: traffic in both directions.
    """

    is_alive: NDArray[np.bool_]
    memory_mib: Values
    busy: Values
    activity: Values
    heat: Values
    nvlink_gb_s: Values


def rhythm(pause: Pause | None, trained: Times) -> tuple[NDArray[np.bool_], Values]:
    """Whether it pauses, and how many seconds were spent not pausing."""
    if pause is None:
        return np.zeros(trained.shape, bool), np.maximum(trained, 0)
    whole = pause.every + pause.lasts
    rounds = np.floor(np.maximum(trained, 0) / whole)
    position = np.maximum(trained, 0) - rounds * whole
    return (trained >= 0) & (position >= pause.every), rounds * pause.every + np.minimum(position, pause.every)


def most_mib(job: Job) -> float:
    """What a job ever holds on one of its GPUs, leaks left out."""
    memory = job.memory
    parts_gib = memory.weights_gib + memory.optimizer_gib + memory.activations_gib + memory.evaluation_gib
    return CONTEXT_MIB + parts_gib * GIB + RANK_MIB + (memory.step_mib if memory.allocator == "caching" else 0)


class RunningJob:
    """One job on its GPUs.

    Args:
        job: as the scenario has it.
        places: its GPUs, in the order of its ranks.
        capacity_mib: of each of them, what is left for this job.
        interruptions: (from, until): it cannot run then, and a process that runs is killed.
        seed: of the scenario.
    """

    def __init__(
        self,
        job: Job,
        places: Sequence[Place],
        capacity_mib: Sequence[float],
        interruptions: Sequence[tuple[float, float]],
        seed: int,
    ) -> None:
        self.job = job
        self.places = list(places)
        self.nodes = list(dict.fromkeys(node for node, _, _ in places))
        self._interruptions = sorted(interruptions)
        self._key = noise.key(seed, "job", job.name)
        self._keys = [noise.key(seed, "rank", job.name, rank) for rank in range(len(places))]
        self._link_keys = [noise.key(seed, "link", job.name, rank) for rank in range(len(places))]
        self._rank_mib = [
            round(180 * noise.one(own)) + (220 if rank == 0 else 0) for rank, own in enumerate(self._keys)
        ]
        self._oom_age = min(
            (self._age_of_oom(rank, capacity) for rank, capacity in enumerate(capacity_mib)), default=math.inf
        )
        self._lives: list[Life] = []
        self._known_until = -math.inf

    def pod_on(self, node: str) -> str:
        """Its pod's name there."""
        return f"{self.job.pod}-{self.nodes.index(node)}" if len(self.nodes) > 1 else self.job.pod

    # -- lives

    def lives(self, until: float) -> list[Life]:
        """Its lives that begin before ``until``."""
        while self._known_until <= until:
            before = self._lives[-1] if self._lives else None
            begins = self.job.start if before is None else before.ends + self.job.restart_after
            for first, last in self._interruptions:
                if first <= begins < last:
                    begins = last + self.job.restart_after
            if begins >= (self.job.end or math.inf) or (before is not None and self._is_done(before)):
                self._known_until = math.inf
                break
            if len(self._lives) >= _N_LIVES:
                raise ValueError(f"job {self.job.name} dies more than {_N_LIVES} times: it does not fit where it runs")
            self._lives.append(self._life(begins, 0.0 if before is None else self._saved(before)))
            self._known_until = begins
        return self._lives

    def _life(self, begins: float, progress: float) -> Life:
        oom = begins + self._oom_age
        done = begins + self.job.ramp + self._trained_when_done(progress)
        killed = next((first for first, _ in self._interruptions if first > begins), math.inf)
        ends = min(oom, done, killed, self.job.end or math.inf)
        return Life(begins=begins, ends=ends, progress=progress, is_killed_by_oom=ends == oom and math.isfinite(oom))

    def _is_done(self, life: Life) -> bool:
        """It has trained to its end, or its time is over."""
        if not math.isfinite(life.ends):
            return True
        return self.job.length is not None and self._progress(life, life.ends - life.begins) >= 1 - 1e-9

    def _trained_when_done(self, progress: float) -> float:
        if self.job.length is None:
            return math.inf
        left = (1 - progress) * self.job.length
        pause = self.job.evaluation
        return left if pause is None else left + math.floor(left / pause.every) * pause.lasts

    def _progress(self, life: Life, age: float) -> float:
        return float(self._progress_at(np.array([age - self.job.ramp]), np.array([life.progress]))[0])

    def _progress_at(self, trained: Times, from_progress: Values) -> Values:
        assert self.job.length is not None
        _, stepped = rhythm(self.job.evaluation, trained)
        return np.minimum(1.0, from_progress + stepped / self.job.length)

    def _saved(self, life: Life) -> float:
        """Progress at the last checkpoint of a life that ended."""
        if self.job.length is None:
            return 0.0
        trained, pause = life.ends - life.begins - self.job.ramp, self.job.checkpoint
        if pause is not None:
            whole = pause.every + pause.lasts
            trained = max(0.0, math.floor(trained / whole) * whole)
        return self._progress(life, trained + self.job.ramp) if trained > 0 else life.progress

    def ages(self, times: Times) -> tuple[Times, NDArray[np.int64]]:
        """How long the process has lived, NaN where it does not; and which life that is, from 0."""
        lives = self.lives(float(times.max()) if times.size else 0.0)
        if not lives:
            return np.full(times.shape, np.nan), np.zeros(times.shape, np.int64)
        begins = np.array([life.begins for life in lives])
        ends = np.array([life.ends for life in lives])
        index = np.searchsorted(begins, times, side="right") - 1
        safe = np.maximum(index, 0)
        return np.where((index >= 0) & (times < ends[safe]), times - begins[safe], np.nan), safe

    def holds_gpu(self, times: Times) -> NDArray[np.bool_]:
        """Whether the GPUs are given to it: a pod that waits for its restart keeps them."""
        lives = self.lives(float(times.max()) if times.size else 0.0)
        if not lives:
            return np.zeros(times.shape, bool)
        last = lives[-1].ends if math.isinf(self._known_until) else math.inf
        return (times >= self.job.start) & (times < last)

    def progress(self, times: Times) -> Values:
        """0-1; NaN while no process runs, or where the job does not say."""
        if self.job.length is None:
            return np.full(times.shape, np.nan)
        ages, index = self.ages(times)
        lives = self.lives(float(times.max()))
        started = np.array([life.progress for life in lives] or [0.0])
        trained = np.nan_to_num(ages) - self.job.ramp
        return np.where(np.isnan(ages), np.nan, self._progress_at(trained, started[index]))

    # -- memory

    def _leaked_mib(self, rank: int, ages: Times) -> Values:
        leak = self.job.leak
        if leak is None or (leak.gpus is not None and rank not in leak.gpus):
            return np.zeros(ages.shape)
        leaked = np.maximum(0, ages - self.job.ramp - leak.after) / 3600 * leak.gib_per_hour * GIB
        return leaked if self.job.memory.allocator == "freeing" else np.floor(leaked / LEAK_STEP_MIB) * LEAK_STEP_MIB

    def _age_of_oom(self, rank: int, capacity_mib: float) -> float:
        """When what it needs at most is more than there is; inf for never."""
        leak = self.job.leak
        if leak is None or (leak.gpus is not None and rank not in leak.gpus):
            return math.inf
        slowest = self.job.ramp + leak.after + capacity_mib / (leak.gib_per_hour * GIB) * 3600 + 3600
        seconds = range(math.ceil(slowest) + 1)
        return float(
            bisect_left(
                seconds, True, key=lambda age: bool(self._need_mib(rank, np.array([float(age)]))[0] > capacity_mib)
            )
        )

    def _need_mib(self, rank: int, ages: Times) -> Values:
        """The most that it has held by that age; never falls."""
        memory = self.job.memory
        if memory.allocator == "caching":
            return self._caching_mib(rank, ages)
        evaluating = (EVALUATING * memory.activations_gib + memory.evaluation_gib) * self._has_evaluated(ages)
        working = np.maximum(memory.activations_gib, evaluating) * (ages > self.job.ramp)
        return self._base_mib(rank, ages) + working * GIB + self._leaked_mib(rank, ages)

    def _has_evaluated(self, ages: Times) -> NDArray[np.bool_]:
        pause = self.job.evaluation
        return np.zeros(ages.shape, bool) if pause is None else ages - self.job.ramp >= pause.every

    def _base_mib(self, rank: int, ages: Times) -> Values:
        """Context, weights while they load, and the optimizer's state."""
        memory, ramp = self.job.memory, self.job.ramp
        context = CONTEXT_MIB * np.clip(ages / 5, 0, 1)
        loaded = np.clip((ages - 5) / max(ramp - 5, 1), 0, 1)
        stepped = np.clip((ages - ramp) / OPTIMIZER_S, 0, 1)
        weights = (memory.weights_gib * GIB + self._rank_mib[rank]) * loaded
        return context + weights + memory.optimizer_gib * GIB * stepped

    def _caching_mib(self, rank: int, ages: Times) -> Values:
        memory = self.job.memory
        trained = np.maximum(0, ages - self.job.ramp)
        # The largest batch so far comes ever closer to the largest that there is.
        seen = np.where(ages > self.job.ramp, 0.8 + 0.2 * trained / (trained + memory.settle + 1e-9), 0)
        taken = memory.activations_gib * seen + memory.evaluation_gib * self._has_evaluated(ages)
        stepped = np.ceil(taken * GIB / memory.step_mib) * memory.step_mib
        return self._base_mib(rank, ages) + stepped + self._leaked_mib(rank, ages)

    def _freeing_mib(self, rank: int, ages: Times, is_evaluating: NDArray[np.bool_]) -> Values:
        memory = self.job.memory
        trained = ages - self.job.ramp
        batch = trained / max(memory.batch, 1e-9)
        number = np.floor(batch)
        filled = 1 - np.abs(2 * (batch - number) - 1)
        size = 0.75 + 0.25 * noise.uniform(self._keys[rank], np.nan_to_num(number))
        working = np.where(is_evaluating, EVALUATING, 0.15 + 0.85 * filled * size) * memory.activations_gib
        working = working + np.where(is_evaluating, memory.evaluation_gib, 0)
        taken = np.where(trained > 0, working, 0) * GIB
        return self._base_mib(rank, ages) + taken + self._leaked_mib(rank, ages)

    # -- work

    def load(self, rank: int, times: Times, slow_share: Values, is_slow: NDArray[np.bool_]) -> Load:
        """What its process on one GPU does.

        Args:
            rank: place among the job's GPUs.
            slow_share: by which its slowest rank is slow; 0 where none is.
            is_slow: whether that is this one.
        """
        job = self.job
        ages, _ = self.ages(times)
        is_alive = ~np.isnan(ages)
        lived = np.nan_to_num(ages)
        trained = lived - job.ramp
        is_evaluating, _ = rhythm(job.evaluation, trained)
        is_saving, _ = rhythm(job.checkpoint, trained)
        is_saving &= ~is_evaluating
        is_loading = trained < 0

        # Whether it waits for data is the job's, as ranks march in step; how much a GPU is busy is its own.
        waits = noise.uniform(self._key, np.floor(times / 15)) < job.waits
        wait_left = 0.3 + 0.4 * noise.uniform(self._keys[rank], np.floor(times / 15))
        full = job.utilization_pct / 100 * (1 + 0.015 * noise.grain(self._keys[rank], times, 5))
        night = job.daily * (0.5 + 0.5 * np.cos(2 * math.pi * (times / 86400 - 14 / 24)))
        wandering = 0.15 * noise.drift(self._key, times, 420) if job.daily else 0.0
        busy = full * np.clip(1 - night + wandering * (1 - night), 0.02, 1)
        step = np.where(waits, wait_left, 1.0)
        activity_share = np.full(times.shape, 0.72 + 0.06 * noise.one(self._keys[rank]))
        # The slow one waits for its own data; the others spin in a kernel that waits for it: busy, but cool.
        step = np.where(is_slow, step * (1 - slow_share), step)
        activity_share = np.where((slow_share > 0) & ~is_slow, activity_share * (1 - 0.7 * slow_share), activity_share)
        for is_so, left in ((is_evaluating, 0.55), (is_saving, 0.04), (is_loading, 0.03)):
            step = np.where(is_so, left, step)
        busy = np.clip(np.where(is_alive, busy * step, 0), 0, 1)
        activity = busy * activity_share
        heat = activity / 0.75 * job.power
        link = job.nvlink_gb_s if len(self.places) > 1 else 0.0
        moving = np.where(is_evaluating, 0.3, 1.0) * (1 - slow_share)
        nvlink = link * busy * moving * (1 + 0.04 * noise.grain(self._link_keys[rank], times, 10))
        freeing = job.memory.allocator == "freeing"
        memory = self._freeing_mib(rank, lived, is_evaluating) if freeing else self._caching_mib(rank, lived)
        return Load(
            is_alive=is_alive,
            memory_mib=np.where(is_alive, memory, 0),
            busy=busy,
            activity=activity,
            heat=heat,
            nvlink_gb_s=np.where(is_loading, 0, nvlink),
        )

    def pid(self, rank: int, life: int) -> int:
        """Of its process on one GPU."""
        return 20_000 + int(4_000_000 * noise.one(noise.key(int(self._keys[rank]), life)))
