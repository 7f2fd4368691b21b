"""The catalogue: stories of GPUs, with what must be found in each and by when, and what may rightly fire beside it.

A set of exporters and a seed → ``Story`` for ``bench.gpu_alerts``. What is drawn (fill levels, teeth, allocators, when
a fault begins) depends on the seed alone: rules are tuned with some seeds and judged with others.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from simulator.cluster import Cluster
from simulator.scenario import Scenario, parse

HOUR = 3600
MINUTE = 60

SETS: Final[Mapping[str, tuple[str, ...]]] = {
    "DCGM": ("dcgm",),
    "nvidia_smi": ("smi",),
    "DCGM + ours": ("dcgm", "remediator"),
}
"""Sets of exporters by name."""

SLOPES: Final = (0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 12, 20)
"""GB/h."""

LEAD_S: Final = 15 * MINUTE
"""Wanted between an alert and out-of-memory."""

SHORTEST_S: Final = 50 * MINUTE
"""A leak that fills the memory sooner cannot be told 15 minutes before: half an hour is the shortest in which a leak is
no batch, evaluation or load, and an alert must last some minutes more."""

SHORTEST_OF_TEETH_S: Final = 80 * MINUTE
"""The same beneath teeth: whether what rises is a tooth is known when it has lasted longer than the longest tooth, an
hour."""

FINE_S: Final = 15
"""Between two evaluations, as shipped; two scrapes, too."""

COARSE_S: Final = 60
"""For long stories. Alerts that count samples of a few minutes cannot fire then: ``NEEDS_FINE``."""

_COARSEST_S = 120
"""For stories of two days."""

NEEDS_FINE: Final = ("GPULost", "GPURowRemapPending", "GPUHot, critical", "GPUPowerCapped")

_USABLE_GIB = 79.1
"""Of an H100."""
_OVERHEAD_GIB = 1.4
"""A context, ranks that differ, the last step of an allocator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """An alert that must fire.

    Attributes:
        labels: that it must have, ``alertname`` among them.
        from_s, by_s: when, of the story.
        until_s: it may begin again until then.
        cannot: sets of exporters that do not show what it needs.
    """

    labels: Mapping[str, str]
    from_s: float
    by_s: float
    until_s: float
    cannot: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """An alert that is right, whether it fires or not.

    Attributes:
        labels: that it has.
        from_s, until_s: when it may begin.
    """

    labels: Mapping[str, str]
    from_s: float = 0.0
    until_s: float = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Leak:
    """A leak of one GPU.

    Attributes:
        gpu: its index; instance: of a MIG GPU, "" = whole.
        gib_per_hour: the slope.
        has_teeth: the process takes and gives back beside it.
        begins_s, full_s: when it begins and when the memory is full.
    """

    gpu: str
    gib_per_hour: float
    has_teeth: bool
    begins_s: float
    full_s: float

    @property
    def can_be_told(self) -> bool:
        """It lasts long enough to be told 15 minutes before the end."""
        return self.full_s - self.begins_s >= (SHORTEST_OF_TEETH_S if self.has_teeth else SHORTEST_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """One story.

    Attributes:
        name: also its cluster's, so that many stories are evaluated at once.
        family: stories of one kind, for the table.
        exporters: a name in ``SETS``.
        scenario: what is played; trainers are scraped where they are.
        step_s: between scrapes, and between evaluations.
        duration_s: how long.
        leaks: by which it is judged, beside ``wanted``.
        is_healthy: nothing is wrong in it, or nothing that needs anybody.
    """

    name: str
    family: str
    exporters: str
    scenario: Scenario
    step_s: int
    duration_s: int
    wanted: tuple[Wanted, ...] = ()
    explained: tuple[Explained, ...] = ()
    leaks: tuple[Leak, ...] = ()
    is_healthy: bool = False

    @property
    def n_gpus(self) -> int:
        return sum(nodes.count * nodes.gpus for nodes in self.scenario.nodes)


@dataclass(slots=True)
class Draft:
    """A scenario that is being written."""

    name: str
    n_gpus: int
    n_nodes: int = 1
    model: str = "h100"
    jobs: list[dict[str, Any]] = field(default_factory=list)
    faults: list[dict[str, Any]] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)

    def node(self, number: int = 1) -> str:
        """Nodes of two stories are never called alike."""
        return f"{self.name}-{number:02d}"

    def at(self, gpus: str) -> str:
        return f"{self.node()}:{gpus}"

    def job(self, name: str, gpus: str, **more: Any) -> None:
        """A job on GPUs of the first node, in a pod."""
        self.jobs.append({"name": name, "gpus": [self.at(gpus)], "pod": f"{name}-0", **more})

    def scenario(self, duration_s: float, seed: int) -> Scenario:
        document = {
            "about": self.name,
            "duration": f"{round(duration_s)}s",
            "seed": seed,
            "cluster": self.name,
            "nodes": [{"count": self.n_nodes, "name": f"{self.name}-%02d", "gpus": self.n_gpus, "model": self.model}],
            "jobs": self.jobs,
            "faults": self.faults,
            **self.more,
        }
        return parse(json.dumps(document), self.name, self.name)


def catalogue(exporters: str, seed: int, *, is_quick: bool = False) -> list[Story]:
    """All stories for one set of exporters and one seed."""
    drawn = [*_leaks(exporters, seed), *_faults(exporters, seed), *_patterns(exporters, seed)]
    if is_quick:
        kept = {"leak-20", "hot", "xid", "idle"}
        drawn = [story for story in drawn if story.name.rsplit("-s", 1)[0] in kept]
    return drawn


# -- leaks


def _leaks(exporters: str, seed: int) -> Iterator[Story]:
    """Four GPUs for each slope, each with an allocator, teeth, a fill level and a beginning of its own."""
    # nvidia_smi shows of memory what DCGM shows, so a few of its leaks are enough.
    for slope in (0.5, 4) if exporters == "nvidia_smi" else SLOPES:
        dice = random.Random(f"leak {slope} {seed}")  # noqa: S311  # the same story each time
        draft = Draft(name=f"leak-{slope:g}-s{seed}".replace(".", "_"), n_gpus=4)
        lasts_from, lasts_to = {0.05: (20, 60), 0.1: (16, 60), 0.25: (5, 20), 0.5: (4, 16)}.get(
            slope, (0.6, min(6, 50 / slope))
        )
        for gpu in range(draft.n_gpus):
            # Not all a matter of chance: both allocators and short-lived ones come up in each.
            share = (gpu + dice.random()) / draft.n_gpus
            lasts_h = lasts_from * (lasts_to / lasts_from) ** share
            is_caching = gpu % 2 == seed % 2
            free_gib = slope * lasts_h
            activations = dice.uniform(2, min(30, _USABLE_GIB - free_gib - _OVERHEAD_GIB - 8))
            pause = {"every": f"{dice.randint(20, 120)}m", "lasts": f"{dice.randint(3, 12)}m"}
            extra = dice.uniform(0.5, 3) if dice.random() < 0.4 else 0
            weights = _USABLE_GIB - _OVERHEAD_GIB - free_gib - activations - extra
            optimizer = weights * dice.uniform(0, 0.6)
            draft.job(
                f"trainer-{gpu}",
                str(gpu),
                ramp=f"{dice.randint(1, 8)}m",
                memory={
                    "weights_gib": weights - optimizer,
                    "optimizer_gib": optimizer,
                    "activations_gib": activations,
                    "allocator": "caching" if is_caching else "freeing",
                    # A tooth that takes as long as the leak is none.
                    "batch": f"{math.exp(dice.uniform(math.log(4), math.log(min(3000, lasts_h * 900)))):.0f}s",
                    "settle": f"{dice.randint(2, 15)}m",
                    "evaluation_gib": extra,
                },
                evaluation=pause if extra or dice.random() < 0.3 else None,
                leak={"gib_per_hour": slope, "after": f"{dice.randint(30, 100)}m"},
            )
        step_s = FINE_S if slope >= 1 else COARSE_S if slope > 0.1 else _COARSEST_S
        most_s = 48 * HOUR
        scenario = draft.scenario(most_s, seed)
        leaks = []
        for running in Cluster(scenario).jobs:
            life = running.lives(0)[0]
            assert running.job.leak is not None
            begins_s = running.job.ramp + running.job.leak.after
            leaks.append(
                Leak(
                    gpu=str(running.places[0][1]),
                    gib_per_hour=slope,
                    has_teeth=running.job.memory.allocator == "freeing",
                    begins_s=begins_s,
                    full_s=life.ends,
                )
            )
        ends_s = min(most_s, max(leak.full_s for leak in leaks) + 2 * MINUTE)
        yield Story(
            name=draft.name,
            family="leaks",
            exporters=exporters,
            scenario=scenario,
            step_s=step_s,
            duration_s=int(ends_s),
            leaks=tuple(leaks),
            explained=(
                # It is full, or nearly; how soon is judged by `leaks`.
                Explained(labels={"alertname": "GPUMemoryHigh"}),
                *(
                    Explained(labels={"alertname": name, "gpu": leak.gpu}, from_s=leak.begins_s)
                    for leak in leaks
                    for name in ("GPUMemoryLeakSlope", "GPUMemoryOOMSoon")
                ),
            ),
        )


# -- faults


def _faults(exporters: str, seed: int) -> Iterator[Story]:
    for make in (
        _hot, _hot_room, _slow_rank, _nvlink, _ecc, _xid, _lost, _exporters, _flapping, _capped, _stages, _mig,
        _shared, _metrics,
    ):  # fmt: skip
        dice = random.Random(f"{make.__name__} {seed}")  # noqa: S311  # the same story each time
        yield from make(exporters, seed, dice)


def _begins_s(dice: random.Random) -> int:
    """Of a fault: after everything has warmed up."""
    return dice.randint(50, 80) * MINUTE + dice.randint(0, 59)


def _must(
    name: str, at_s: float, within_s: float, until_s: float, cannot: tuple[str, ...] = (), **labels: str
) -> Wanted:
    return Wanted(
        labels={"alertname": name, **labels}, from_s=at_s, by_s=at_s + within_s, until_s=until_s, cannot=cannot
    )


def _may(names: str, from_s: float, until_s: float = math.inf, **labels: str) -> tuple[Explained, ...]:
    return tuple(
        Explained(labels={"alertname": name, **labels}, from_s=from_s, until_s=until_s) for name in names.split()
    )


def _story(draft: Draft, family: str, exporters: str, seed: int, duration_s: float, **more: Any) -> Story:
    more = {"step_s": FINE_S, **more}
    scenario = draft.scenario(duration_s, seed)
    return Story(
        name=draft.name, family=family, exporters=exporters, scenario=scenario, duration_s=int(duration_s), **more
    )


def _training(draft: Draft, gpus: str = "*", **more: Any) -> None:
    draft.job("trainer", gpus, **more)


def _hot(exporters: str, seed: int, dice: random.Random) -> Iterator[Story]:
    """Three fans fail: one so that the GPU slows down, one nearly so, and one that still cools enough."""
    draft = Draft(name=f"hot-s{seed}", n_gpus=4)
    at_s, lasts_s = _begins_s(dice), 50 * MINUTE
    _training(draft)
    for gpu, loss in (("1", dice.uniform(0.78, 0.85)), ("2", 0.6), ("3", dice.uniform(0.2, 0.38))):
        draft.faults.append(
            {"kind": "fan-failure", "where": draft.at(gpu), "at": f"{at_s}s", "lasts": f"{lasts_s}s", "loss": loss}
        )
    until_s = at_s + lasts_s + 5 * MINUTE
    yield _story(
        draft, "heat", exporters, seed, until_s + 40 * MINUTE,
        wanted=(
            _must("GPUHot", at_s, 8 * MINUTE, until_s, severity="warning", gpu="1"),
            _must("GPUHot", at_s, 8 * MINUTE, until_s, severity="warning", gpu="2"),
            _must("GPUHot", at_s, 8 * MINUTE, until_s, severity="critical", gpu="1"),
        ),
    )  # fmt: skip


def _hot_room(exporters: str, seed: int, dice: random.Random) -> Iterator[Story]:
    draft = Draft(name=f"hot-room-s{seed}", n_gpus=4, model=dice.choice(("h100", "a100")))
    at_s = _begins_s(dice)
    # Each has an air flow of its own: this much more than the worst needs, and as much less than the best.
    warmer, hotter = 8, 32
    _training(draft)
    for begins_s, by_c in ((at_s, warmer), (at_s + HOUR, hotter)):
        draft.faults.append(
            {"kind": "hot-air", "where": draft.node(), "at": f"{begins_s}s", "lasts": "40m", "by_c": by_c}
        )
    at_s += HOUR
    until_s = at_s + 45 * MINUTE
    yield _story(
        draft, "heat", exporters, seed, until_s + 20 * MINUTE,
        wanted=tuple(_must("GPUHot", at_s, 10 * MINUTE, until_s, severity="warning", gpu=str(n)) for n in range(4)),
        explained=_may("GPUHot", at_s, until_s, severity="critical"),
    )  # fmt: skip


def _slow_rank(exporters: str, seed: int, dice: random.Random) -> Iterator[Story]:
    """One rank of a job is slow, and one of another hardly."""
    draft = Draft(name=f"slow-rank-s{seed}", n_gpus=8)
    at_s, lasts_s = _begins_s(dice), 50 * MINUTE
    draft.job("slow", "0-3")
    draft.job("nearly", "4-7")
    for gpu, share in (("2", dice.uniform(0.28, 0.6)), ("6", dice.uniform(0.05, 0.13))):
        draft.faults.append(
            {"kind": "slow-rank", "where": draft.at(gpu), "at": f"{at_s}s", "lasts": f"{lasts_s}s", "share": share}
        )
    until_s = at_s + lasts_s + 5 * MINUTE
    yield _story(
        draft, "slow rank", exporters, seed, until_s + 30 * MINUTE,
        wanted=(_must("GPUImbalance", at_s, 17 * MINUTE, until_s, ("nvidia_smi",), exported_pod="slow-0"),),
    )  # fmt: skip


def _nvlink(exporters: str, seed: int, dice: random.Random) -> Iterator[Story]:
    draft = Draft(name=f"nvlink-s{seed}", n_gpus=8)
    at_s, lasts_s = _begins_s(dice), 50 * MINUTE
    _training(draft)
    for gpu, left in (("6", dice.uniform(0.05, 0.25)), ("2", dice.uniform(0.45, 0.7))):
        draft.faults.append(
            {"kind": "nvlink-degraded", "where": draft.at(gpu), "at": f"{at_s}s", "lasts": f"{lasts_s}s", "left": left}
        )
    until_s = at_s + lasts_s + 5 * MINUTE
    yield _story(
        draft, "NVLink", exporters, seed, until_s + 30 * MINUTE,
        wanted=(_must("GPUNVLinkBelowPeers", at_s, 17 * MINUTE, until_s, ("nvidia_smi",), gpu="6"),),
    )  # fmt: skip


def _ecc(exporters: str, seed: int, dice: random.Random) -> Iterator[Story]:
    draft = Draft(name=f"ecc-s{seed}", n_gpus=4)
    at_s = _begins_s(dice)
    lost_s, failed_s = at_s + 110 * MINUTE, at_s + 140 * MINUTE
    _training(draft, "0-2")
    draft.faults += [
        {"kind": "ecc-corrected", "where": draft.at("0"), "before": dice.randint(11, 400)},
        {"kind": "ecc-corrected", "where": draft.at("1"), "at": f"{at_s}s", "lasts": "100m", "per_hour": 4},
        {"kind": "ecc-corrected", "where": draft.at("3"), "at": f"{at_s}s", "lasts": "100m", "per_hour": 40},
        {"kind": "ecc-uncorrected", "where": draft.at("2"), "at": f"{lost_s}s", "count": dice.randint(1, 3)},
        {"kind": "row-remap-failure", "where": draft.at("3"), "at": f"{failed_s}s"},
    ]
    yield _story(
        draft, "errors", exporters, seed, failed_s + 20 * MINUTE,
        wanted=(
            _must("GPUECCCorrectableRate", at_s, 45 * MINUTE, at_s + 170 * MINUTE, gpu="3"),
            _must("GPUECCUncorrectable", lost_s, 90, lost_s + 15 * MINUTE, gpu="2"),
            _must("GPURowRemapPending", lost_s, 5 * MINUTE, math.inf, gpu="2"),
            _must("GPURecoveryAction", lost_s, 2 * MINUTE, math.inf, ("DCGM",), gpu="2"),
            _must("GPURowRemapFailure", failed_s, 90, math.inf, gpu="3"),
        ),
        explained=(
            *_may("GPUXid", lost_s, lost_s + 10 * MINUTE, gpu="2"),
            *_may("GPURecoveryAction", failed_s, gpu="3"),
        ),
    )  # fmt: skip


def _xid(exporters: str, seed: int, dice: random.Random) -> Iterator[Story]:
    draft = Draft(name=f"xid-s{seed}", n_gpus=4)
    first_s, again_s = _begins_s(dice), 150 * MINUTE
    hard_s = again_s - 30 * MINUTE
    _training(draft, "0-1")
    for gpu, at_s, code in (("1", first_s, 31), ("3", hard_s, 74), ("1", again_s, 31)):
        draft.faults.append({"kind": "xid", "where": draft.at(gpu), "at": f"{at_s}s", "code": code})

    def seen(gpu: str, at_s: int, code: str, severity: str, cannot: tuple[str, ...] = ()) -> Wanted:
        labels = {"gpu": gpu, "err_code": code, "severity": severity}
        return _must("GPUXid", at_s, 2 * MINUTE, at_s + 10 * MINUTE, cannot, **labels)

    yield _story(
        draft, "errors", exporters, seed, again_s + 20 * MINUTE,
        wanted=(
            seen("1", first_s, "31", "warning"),
            seen("3", hard_s, "74", "critical"),
            seen("1", again_s, "31", "warning"),
        ),
    )  # fmt: skip


def _lost(exporters: str, seed: int, dice: random.Random) -> Iterator[Story]:
    """A GPU falls off the bus; later its node reboots and it is back."""
    draft = Draft(name=f"lost-s{seed}", n_gpus=4)
    at_s = _begins_s(dice)
    reboot_s = at_s + 40 * MINUTE
    draft.job("dead", "2")
    draft.job("alive", "0-1")
    draft.faults += [
        {"kind": "gpu-lost", "where": draft.at("2"), "at": f"{at_s}s", "lasts": "40m"},
        {"kind": "node-reboot", "where": draft.node(), "at": f"{reboot_s}s"},
    ]
    yield _story(
        draft, "errors", exporters, seed, reboot_s + 40 * MINUTE,
        wanted=(_must("GPULost", at_s, 6.5 * MINUTE, reboot_s + 8 * MINUTE, gpu="2"),),
        explained=(
            *_may("GPUXid GPURecoveryAction", at_s, at_s + 15 * MINUTE, gpu="2"),
            *_may("GPUExporterGone", reboot_s, reboot_s + 10 * MINUTE),
        ),
    )  # fmt: skip


def _exporters(exporters: str, seed: int, dice: random.Random) -> Iterator[Story]:
    """An exporter dies, freezes, and only restarts."""
    draft = Draft(name=f"exporters-s{seed}", n_gpus=4)
    source = SETS[exporters][0]
    dead_s = _begins_s(dice)
    frozen_s, restart_s = dead_s + 60 * MINUTE, dead_s + 125 * MINUTE
    _training(draft, "0-2")
    for kind, at_s, lasts in (("dead", dead_s, "25m"), ("frozen", frozen_s, "40m"), ("restart", restart_s, None)):
        fault = {"kind": f"exporter-{kind}", "where": draft.node(), "exporter": source, "at": f"{at_s}s"}
        draft.faults.append(fault if lasts is None else {**fault, "lasts": lasts})
    severity = "critical" if len(SETS[exporters]) == 1 else "warning"
    yield _story(
        draft, "exporters", exporters, seed, restart_s + 30 * MINUTE,
        wanted=(
            _must("GPUExporterGone", dead_s, 4.5 * MINUTE, dead_s + 27 * MINUTE, severity=severity),
            _must("GPUMetricsFrozen", frozen_s, 17 * MINUTE, frozen_s + 42 * MINUTE, gpu="1"),
        ),
        explained=_may("GPUMetricsFrozen", frozen_s, frozen_s + 42 * MINUTE),
    )  # fmt: skip


def _flapping(exporters: str, seed: int, dice: random.Random) -> Iterator[Story]:
    """Pod labels come and go while a fan fails: one alert, not many."""
    draft = Draft(name=f"flapping-s{seed}", n_gpus=4)
    at_s = _begins_s(dice)
    _training(draft, "0-3")
    draft.faults += [
        {"kind": "labels-flap", "where": draft.at("1"), "at": "20m", "every": f"{dice.choice((30, 60, 120))}s"},
        {"kind": "labels-missing", "where": draft.at("2"), "at": "30m"},
        {"kind": "fan-failure", "where": draft.at("1"), "at": f"{at_s}s", "lasts": "40m", "loss": 0.7},
    ]
    yield _story(
        draft, "heat", exporters, seed, at_s + 60 * MINUTE,
        wanted=(_must("GPUHot", at_s, 8 * MINUTE, at_s + 45 * MINUTE, severity="warning", gpu="1"),),
    )  # fmt: skip


def _capped(exporters: str, seed: int, dice: random.Random) -> Iterator[Story]:
    draft = Draft(name=f"capped-s{seed}", n_gpus=4)
    at_s = _begins_s(dice)
    _training(draft)
    for gpu, by in (("1", "host"), ("2", "out-of-band")):
        draft.faults.append(
            {
                "kind": "power-cap", "where": draft.at(gpu), "at": f"{at_s}s", "lasts": "40m", "by": by,
                "watts": dice.randint(400, 600),
            }
        )  # fmt: skip
    yield _story(
        draft, "power", exporters, seed, at_s + 60 * MINUTE,
        wanted=tuple(_must("GPUPowerCapped", at_s, 4 * MINUTE, at_s + 47 * MINUTE, gpu=gpu) for gpu in "12"),
    )  # fmt: skip


def _stages(exporters: str, seed: int, dice: random.Random) -> Iterator[Story]:
    """Two trainings that are 88 % and 80 % full: in their last fifth the first is too full."""
    draft = Draft(name=f"stages-s{seed}", n_gpus=4)
    length_s = dice.randint(120, 150) * MINUTE
    for name, gpus, full in (("full", "0-1", 0.88), ("roomy", "2-3", 0.8)):
        held = full * _USABLE_GIB - _OVERHEAD_GIB
        memory = {"weights_gib": held * 0.6, "optimizer_gib": held * 0.4, "activations_gib": 0.4, "step_mib": 64}
        draft.job(name, gpus, length=f"{length_s}s", memory=memory)
    late_s = 300 + 0.8 * length_s
    ends_s = 300 + length_s
    yield _story(
        draft, "stages", exporters, seed, ends_s + 10 * MINUTE,
        wanted=(
            _must(
                "GPUMemoryHigh", late_s, 4 * MINUTE, ends_s, ("nvidia_smi",), severity="warning", exported_pod="full-0"
            ),
        ),
    )  # fmt: skip


def _mig(exporters: str, seed: int, dice: random.Random) -> Iterator[Story]:
    draft = Draft(name=f"mig-s{seed}", n_gpus=2)
    draft.more["mig"] = [
        {"gpu": draft.at("0"), "profiles": ["3g.40gb", "2g.20gb", "1g.10gb"]},
        {"gpu": draft.at("1"), "profiles": ["3g.40gb", "3g.40gb"]},
    ]
    slope, after_s = dice.uniform(2, 4), dice.randint(30, 60) * MINUTE
    draft.job("tune", "0/0", memory={"weights_gib": 6, "optimizer_gib": 12, "activations_gib": 8})
    draft.job(
        "leaky", "0/1", memory={"weights_gib": 2, "optimizer_gib": 2, "activations_gib": 3},
        leak={"gib_per_hour": slope, "after": f"{after_s}s"},
    )  # fmt: skip
    draft.job("teeth", "1/0", memory={
        "weights_gib": 6, "optimizer_gib": 4, "activations_gib": 20, "allocator": "freeing", "batch": "300s",
    })  # fmt: skip
    leaky = next(job for job in Cluster(draft.scenario(HOUR, seed)).jobs if job.job.name == "leaky")
    begins_s, full_s = 300.0 + after_s, leaky.lives(0)[0].ends
    cannot = ("nvidia_smi",)
    found = {"gpu": "0", "exported_pod": "leaky-0"}
    yield _story(
        draft, "MIG", exporters, seed, full_s + 2 * MINUTE,
        wanted=(
            _must("GPUMemoryLeakSlope", begins_s, full_s - LEAD_S - begins_s, math.inf, cannot, **found),
            _must("GPUMemoryOOMSoon", begins_s, full_s - LEAD_S - begins_s, math.inf, cannot, **found),
        ),
        explained=(
            *_may("GPUMemoryHigh", full_s - 2 * HOUR / slope),
            # nvidia_smi shows the whole GPU alone, which leaks as the instance does.
            *(_may("GPUMemoryLeakSlope GPUMemoryOOMSoon", begins_s, gpu="0") if exporters in cannot else ()),
        ),
    )  # fmt: skip


def _shared(exporters: str, seed: int, dice: random.Random) -> Iterator[Story]:
    """Two containers on one GPU, of which one leaks; two pods on another."""
    draft = Draft(name=f"shared-s{seed}", n_gpus=2)
    slope, after_s = dice.uniform(7, 12), dice.randint(40, 70) * MINUTE

    def half(name: str, gpu: str, parts: tuple[int, int, int], **more: Any) -> None:
        memory = dict(zip(("weights_gib", "optimizer_gib", "activations_gib"), parts, strict=True))
        place = {"name": name, "gpus": [draft.at(gpu)], "docker": name}
        draft.jobs.append({**place, "utilization_pct": 45, "power": 0.4, "memory": memory, **more})

    half("leaky", "0", (10, 10, 10), leak={"gib_per_hour": slope, "after": f"{after_s}s"})
    half("beside", "0", (8, 8, 8))
    half("blue", "1", (8, 8, 8))
    half("green", "1", (8, 8, 8))
    leaky = Cluster(draft.scenario(HOUR, seed)).jobs[0]
    begins_s, full_s = 300.0 + after_s, leaky.lives(0)[0].ends
    yield _story(
        draft, "shared GPUs", exporters, seed, full_s + 2 * MINUTE,
        wanted=(
            _must("GPUMemoryLeakSlope", begins_s, full_s - LEAD_S - begins_s, math.inf, gpu="0"),
            _must("GPUMemoryOOMSoon", begins_s, full_s - LEAD_S - begins_s, math.inf, gpu="0"),
        ),
        explained=_may("GPUMemoryHigh", full_s - 9 * HOUR / slope),
    )  # fmt: skip


def _metrics(exporters: str, seed: int, dice: random.Random) -> Iterator[Story]:
    """An exporter of DCGM that nobody has set up: it lacks what nobody turned on."""
    draft = Draft(name=f"metrics-s{seed}", n_gpus=2)
    draft.more["dcgm"] = {"counters": "default"}
    _training(draft)
    # The other exporters have these metrics without being asked.
    cannot = () if exporters == "DCGM" else (exporters,)
    yield _story(
        draft, "exporters", exporters, seed, (40 + dice.randint(0, 20)) * MINUTE,
        wanted=(_must("GPUMetricMissing", 0, 21 * MINUTE, math.inf, cannot),),
    )  # fmt: skip


# -- nothing wrong


def _patterns(exporters: str, seed: int) -> Iterator[Story]:
    memory_alone = (_teeth, _plateaus, _evaluations) if exporters != "nvidia_smi" else ()
    for make in (*memory_alone, _loads, _restarts, _idle):
        dice = random.Random(f"{make.__name__} {seed}")  # noqa: S311  # the same story each time
        yield from make(exporters, seed, dice)


def _quiet(draft: Draft, family: str, exporters: str, seed: int, hours: float, step_s: int) -> Story:
    return _story(draft, family, exporters, seed, hours * HOUR, step_s=step_s, is_healthy=True)


def _teeth(exporters: str, seed: int, dice: random.Random) -> Iterator[Story]:
    """Teeth of two seconds to an hour, low and tall."""
    for step_s, hours, periods in ((FINE_S, 6, (2, 20, 90, 300)), (COARSE_S, 20, (300, 600, 1200, 1800, 2700, 3600))):
        draft = Draft(name=f"teeth-{step_s}-s{seed}", n_gpus=len(periods))
        for gpu, period_s in enumerate(periods):
            height = dice.uniform(2, 45)
            held = dice.uniform(4, 70 - height)
            memory = {
                "weights_gib": held / 2, "optimizer_gib": held / 2, "activations_gib": height,
                "allocator": "freeing", "batch": f"{round(period_s * dice.uniform(800, 1000))}ms",
            }  # fmt: skip
            draft.job(f"teeth-{gpu}", str(gpu), memory=memory)
        yield _quiet(draft, "sawtooths", exporters, seed, hours, step_s)


def _loads(exporters: str, seed: int, dice: random.Random) -> Iterator[Story]:
    """Models are loaded in two minutes to an hour and a half, and then nothing grows."""
    draft = Draft(name=f"loads-s{seed}", n_gpus=4)
    for gpu, (shortest, longest) in enumerate(((2, 5), (8, 20), (25, 45), (60, 90))):
        memory = {"weights_gib": dice.uniform(30, 58), "optimizer_gib": 0, "activations_gib": 8, "settle": "1m"}
        ramp = f"{dice.randint(shortest, longest)}m"
        draft.job(f"load-{gpu}", str(gpu), start=f"{dice.randint(20, 40)}m", ramp=ramp, memory=memory, checkpoint=None)
    yield _quiet(draft, "model loads", exporters, seed, 4, FINE_S)


def _plateaus(exporters: str, seed: int, dice: random.Random) -> Iterator[Story]:
    """Caching allocators that have seen half of all growth after 10 minutes to 4 hours."""
    draft = Draft(name=f"plateaus-s{seed}", n_gpus=6)
    for gpu, settle_m in enumerate((10, 30, 60, 120, 180, 240)):
        height = dice.uniform(4, 40)
        held = dice.uniform(6, 68 - height)
        memory = {
            "weights_gib": held / 2, "optimizer_gib": held / 2, "activations_gib": height, "settle": f"{settle_m}m",
            "step_mib": dice.choice((20, 64, 256, 512)),
        }  # fmt: skip
        draft.job(f"plateau-{gpu}", str(gpu), memory=memory)
    yield _quiet(draft, "plateaus and warm-ups", exporters, seed, 20, COARSE_S)


def _evaluations(exporters: str, seed: int, dice: random.Random) -> Iterator[Story]:
    """Evaluations of 3 to 25 minutes, with memory of their own, and checkpoints."""
    draft = Draft(name=f"evaluations-s{seed}", n_gpus=4)
    for gpu, (every_m, lasts_m) in enumerate(((20, 3), (60, 10), (90, 25), (240, 20))):
        height, extra = dice.uniform(4, 25), dice.uniform(2, 15)
        held = dice.uniform(6, 68 - height - extra)
        memory = {
            "weights_gib": held / 2, "optimizer_gib": held / 2, "activations_gib": height, "evaluation_gib": extra,
            "allocator": dice.choice(("caching", "freeing")), "batch": f"{dice.randint(5, 400)}s",
        }  # fmt: skip
        draft.job(
            f"evaluated-{gpu}", str(gpu), memory=memory, evaluation={"every": f"{every_m}m", "lasts": f"{lasts_m}m"},
            checkpoint={"every": f"{dice.randint(10, 40)}m", "lasts": "90s"},
        )  # fmt: skip
    yield _quiet(draft, "evaluation pauses", exporters, seed, 12, COARSE_S)


def _restarts(exporters: str, seed: int, dice: random.Random) -> Iterator[Story]:
    """A job starts anew, again and again, each time from nothing; its exporter restarts too."""
    draft = Draft(name=f"restarts-s{seed}", n_gpus=4)
    _training(draft, "*", length="2d")
    at_s = 0
    for _ in range(4):
        at_s += dice.randint(20, 60) * MINUTE
        draft.faults.append({"kind": "job-restart", "job": "trainer", "at": f"{at_s}s"})
    for source in SETS[exporters]:
        draft.faults.append(
            {
                "kind": "exporter-restart", "where": draft.node(), "exporter": source,
                "at": f"{dice.randint(40, 200)}m",
            }
        )  # fmt: skip
    yield _quiet(draft, "restarts", exporters, seed, 4, FINE_S)


def _idle(exporters: str, seed: int, dice: random.Random) -> Iterator[Story]:
    """GPUs that nobody uses, and one that only holds memory."""
    draft = Draft(name=f"idle-s{seed}", n_gpus=4)
    memory = {"weights_gib": dice.uniform(2, 40), "optimizer_gib": 0, "activations_gib": 2}
    draft.job("notebook", "0", utilization_pct=0, checkpoint=None, memory=memory)
    yield _quiet(draft, "idle GPUs", exporters, seed, 3, FINE_S)


def clusters(exporters: str, seed: int, *, hours: float, step_s: int, n_nodes: int) -> list[Story]:
    """Healthy nodes of eight GPUs: trainings over all or half of one, teeth, a service with its nights, an idle GPU."""
    found = []
    for number in range(n_nodes):
        dice = random.Random(f"cluster {number} {seed}")  # noqa: S311  # the same story each time
        model = "h100" if number % 3 else "a100"
        draft = Draft(name=f"healthy-{step_s}-{number}-s{seed}", n_gpus=8, model=model)
        make: Callable[[Draft, random.Random], None] = (_one_training, _mixed_node)[number % 2]
        make(draft, dice)
        found.append(_quiet(draft, f"healthy nodes, each {step_s} s", exporters, seed, hours, step_s))
    return found


def _one_training(draft: Draft, dice: random.Random) -> None:
    draft.job(
        "llama", "*", length=f"{dice.randint(30, 80)}h", ramp=f"{dice.randint(2, 12)}m",
        evaluation={"every": f"{dice.randint(60, 300)}m", "lasts": f"{dice.randint(3, 15)}m"},
        memory={
            "weights_gib": 16, "optimizer_gib": 24, "activations_gib": dice.uniform(10, 26),
            "settle": f"{dice.randint(5, 60)}m", "evaluation_gib": dice.uniform(0, 4),
        },
    )  # fmt: skip


def _mixed_node(draft: Draft, dice: random.Random) -> None:
    draft.job("tune", "0-3", length=f"{dice.randint(6, 20)}h", start=f"{dice.randint(0, 120)}m")
    teeth = {"weights_gib": 2, "optimizer_gib": 6, "activations_gib": dice.uniform(20, 50), "allocator": "freeing"}
    draft.jobs.append(
        {
            "name": "vision", "gpus": [draft.at("4-5")], "docker": "vision",
            "memory": {**teeth, "batch": f"{dice.randint(10, 900)}s"},
        }
    )  # fmt: skip
    draft.job(
        "chat", "6", namespace="serving", utilization_pct=80, daily=0.6, power=0.7, checkpoint=None,
        memory={"weights_gib": 26, "optimizer_gib": 0, "activations_gib": dice.uniform(20, 40), "settle": "1m"},
    )  # fmt: skip
