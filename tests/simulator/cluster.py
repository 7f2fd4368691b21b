"""The cluster at any time: every GPU's memory, work, power, heat and faults, a pure function of a scenario and times.

A ``Scenario`` → ``Cluster``; its nodes and GPUs give arrays for arrays of times (seconds since the scenario's start),
in any order. Nothing is stepped: temperature is a weighted sum over the last minutes, counters are sums up to a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from simulator import noise
from simulator import scenario as stories
from simulator.models import HEAT_S, LEAST_SLOWDOWN, MODELS, Model
from simulator.noise import Times, Values
from simulator.scenario import Fault, Job, Nodes, Scenario, ScenarioError
from simulator.work import Load, RunningJob, most_mib

Mask = NDArray[np.bool_]
F = TypeVar("F", bound=stories.TimedFault)

UP_BEFORE_S = 20 * 86400.0
"""For how long nodes were up when the story begins."""

RESTART_S = 30.0
"""For which an exporter that restarts does not answer."""

_HEAT_GRID_S = 15.0
"""Between two looks at the power that heats: a third of the heat sink's time constant."""
_LAGS = np.arange(round(5 * HEAT_S / _HEAT_GRID_S))
_WEIGHTS = np.exp(-_LAGS * _HEAT_GRID_S / HEAT_S) / np.exp(-_LAGS * _HEAT_GRID_S / HEAT_S).sum()
IDLE = 0.005
"""A GPU that is less busy than this does nothing."""

_GRID_S = 60.0
"""Between two points of a running total."""
_N_GRID = round(86400 / _GRID_S)


def during(fault: stories.TimedFault, times: Times) -> Mask:
    """Whether the fault is there."""
    return (times >= fault.at) & (times < fault.until)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """One GPU. Arrays over the times.

    Attributes:
        is_here: it answers; all else means nothing where it does not.
        memory_used_mib: of its usable memory.
        busy, activity: 0-1, as in ``Load``.
        nvlink_gb_s: both directions.
        power_w: drawn; requested_w, enforced_w: limits.
        temperature_c, memory_temperature_c: of the chip and its memory.
        is_capped: its power limit holds it back; is_hot: heat does.
        clock_mhz: of its multiprocessors.
    """

    is_here: Mask
    memory_used_mib: Values
    busy: Values
    activity: Values
    nvlink_gb_s: Values
    power_w: Values
    requested_w: Values
    enforced_w: Values
    temperature_c: Values
    memory_temperature_c: Values
    is_capped: Mask
    is_hot: Mask
    clock_mhz: Values


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A MIG instance: its number from 0, its profile, its id and UUID as the driver gives them."""

    number: int
    profile: str
    id: str
    uuid: str

    @property
    def slices(self) -> int:
        """Of the seven that a GPU has."""
        return int(self.profile[0])

    @property
    def total_mib(self) -> int:
        return int(self.profile.partition(".")[2].removesuffix("gb")) * 1000


class Gpu:
    """One physical GPU and what runs on it."""

    def __init__(self, node: Node, index: int, profiles: tuple[str, ...], faults: list[Fault], seed: int) -> None:
        self.node = node
        self.index = index
        self.model: Model = MODELS[node.spec.model]
        hexes = f"{int(noise.key(seed, node.name, index)):016x}{int(noise.key(seed, index, node.name)):016x}"
        self.uuid = f"GPU-{hexes[:8]}-{hexes[8:12]}-{hexes[12:16]}-{hexes[16:20]}-{hexes[20:]}"
        self.pci = f"00000000:{0x1B + 0x10 * index & 0xFF:02X}:00.0"
        self.instances = tuple(
            Instance(
                number=n,
                profile=profile,
                id=str(n + 7),
                uuid=f"MIG-{hexes[:8]}-{n:04x}-{hexes[12:16]}-{hexes[16:20]}-{hexes[20:]}",
            )
            for n, profile in enumerate(profiles)
        )
        self.jobs: list[tuple[RunningJob, int, int | None]] = []
        """With the rank on this GPU and the MIG instance."""
        self._faults = faults
        self._air_share = 0.94 + 0.12 * noise.one(noise.key(seed, "air", node.name, index))
        self._key = noise.key(seed, "gpu", node.name, index)
        self._seed = seed

    def faults(self, kind: type[F]) -> list[F]:
        """Its faults of that kind."""
        return [fault for fault in self._faults if isinstance(fault, kind)]

    def has(self, fault_kind: str, times: Times) -> Mask:
        """Whether a fault of that name is there."""
        found = np.zeros(times.shape, bool)
        for fault in self._faults:
            if fault.kind == fault_kind and isinstance(fault, stories.TimedFault):
                found |= during(fault, times)
        return found

    @property
    def usable_mib(self) -> float:
        return self.model.total_mib - self.model.reserved_mib

    # -- what runs

    def load(self, job: RunningJob, rank: int, times: Times) -> Load:
        """What one job does here."""
        slow = np.zeros(times.shape)
        is_slow = np.zeros(times.shape, bool)
        for place_rank, (node, index, _) in enumerate(job.places):
            for fault in self.node.cluster.gpu(node, index).faults(stories.SlowRank):
                share = np.where(during(fault, times), fault.share, 0)
                is_slow = np.where(share > slow, place_rank == rank, is_slow)
                slow = np.maximum(slow, share)
        return job.load(rank, times, slow, is_slow)

    def state(self, times: Times) -> State:
        """All of it at these times."""
        model = self.model
        memory = np.zeros(times.shape)
        busy, activity, nvlink = memory, memory, memory
        loads = self._loads(times)
        for load, share in loads:
            memory = memory + load.memory_mib
            busy = np.minimum(1, busy + load.busy * share)
            activity = np.minimum(1, activity + load.activity * share)
            nvlink = nvlink + load.nvlink_gb_s
        for fault in self.faults(stories.NvlinkDegraded):
            nvlink = np.where(during(fault, times), nvlink * fault.left, nvlink)
        requested, enforced = self._limits(times)
        wanted = self._wanted_w(times, loads)
        is_capped = wanted > enforced * 0.985
        drawn = np.minimum(wanted, enforced * (0.985 + 0.006 * noise.grain(self._key, times, 1)))
        free_c, air_c = self._free_temperature(times)
        is_hot = free_c > model.slowdown_c
        left = np.clip((model.slowdown_c - air_c) / np.maximum(free_c - air_c, 1e-9), LEAST_SLOWDOWN, 1)
        left = np.where(is_hot, left, 1.0)
        temperature = air_c + (free_c - air_c) * left
        power = np.maximum(drawn * left, model.idle_w * 0.9)
        pace = np.sqrt(drawn / np.maximum(wanted, 1e-9)) * np.sqrt(left)
        clock = np.where(busy > 0.02, model.clock_mhz * pace, model.idle_clock_mhz)
        return State(
            is_here=self.is_here(times),
            memory_used_mib=np.minimum(memory + 4, self.usable_mib),
            busy=busy,
            activity=activity * pace,
            nvlink_gb_s=nvlink * pace,
            power_w=power,
            requested_w=requested,
            enforced_w=enforced,
            temperature_c=temperature,
            memory_temperature_c=temperature + model.memory_c * (0.4 + 0.6 * activity),
            is_capped=is_capped,
            is_hot=is_hot,
            clock_mhz=clock,
        )

    def instance_state(self, instance: Instance, times: Times) -> tuple[Values, Values, Values]:
        """A MIG instance's memory in MiB, how busy and how active it is."""
        loads = [self.load(job, rank, times) for job, rank, number in self.jobs if number == instance.number]
        nothing = np.zeros(times.shape)
        used = np.minimum(sum((load.memory_mib for load in loads), nothing) + 14, instance.total_mib)
        busy = np.minimum(1, sum((load.busy for load in loads), nothing))
        return used, busy, np.minimum(1, sum((load.activity for load in loads), nothing))

    def is_here(self, times: Times) -> Mask:
        """Whether the driver has it."""
        return ~self.has("gpu-lost", times) & self.node.is_up(times)

    def _limits(self, times: Times) -> tuple[Values, Values]:
        model = self.model
        requested = np.full(times.shape, model.default_w)
        enforced = np.full(times.shape, model.most_w)
        for fault in self.faults(stories.PowerCap):
            watts = min(max(fault.watts, model.least_w), model.most_w)
            # What was set in the driver is gone with it.
            holds = during(fault, times) & ((fault.by == "out-of-band") | (self.node.booted(times) <= fault.at))
            if fault.by == "host":
                requested = np.where(holds, watts, requested)
            else:
                enforced = np.where(holds, watts, enforced)
        return requested, np.minimum(requested, enforced)

    def _loads(self, times: Times) -> list[tuple[Load, float]]:
        """Of each job, with the share of the GPU that it has."""
        return [
            (self.load(job, rank, times), 1.0 if instance is None else self.instances[instance].slices / 7)
            for job, rank, instance in self.jobs
        ]

    def _wanted_w(self, times: Times, loads: list[tuple[Load, float]]) -> Values:
        """Power that it would draw if nothing held it back."""
        heat = sum((load.heat * share for load, share in loads), np.zeros(times.shape))
        model = self.model
        grain = 1 + 0.02 * noise.grain(self._key, times, 5)
        return model.idle_w * grain + (model.default_w - model.idle_w) * np.minimum(heat, 1.05) * grain

    def _free_temperature(self, times: Times) -> tuple[Values, Values]:
        """Temperature without slowing down, and that of the air: both as the heat sink feels them."""
        # Neighbouring times share most of what they look back at, so each look is worked out once.
        looks, where = np.unique(np.floor(times / _HEAT_GRID_S)[:, None] - _LAGS[None, :], return_inverse=True)
        earlier = looks * _HEAT_GRID_S
        _, enforced = self._limits(earlier)
        power = np.minimum(self._wanted_w(earlier, self._loads(earlier)), enforced)
        resistance = np.full(earlier.shape, self.model.c_per_w * self._air_share)
        for fault in self.faults(stories.FanFailure):
            resistance = np.where(during(fault, earlier), resistance / (1 - 0.7 * fault.loss), resistance)
        air = self.node.air_c(earlier)
        # Added up one by one, not by a matrix product: that adds in another order for another number of times.
        warm, felt_air = np.zeros(times.shape), np.zeros(times.shape)
        for weight, at in zip(_WEIGHTS, where.reshape(-1, _LAGS.size).T, strict=True):
            warm = warm + weight * (air + power * resistance)[at]
            felt_air = felt_air + weight * air[at]
        return warm, felt_air

    # -- counters

    @cached_property
    def totals(self) -> Totals:
        """Running totals since the story began: see ``Totals``."""
        return Totals(self.state)

    def corrected(self, times: Times) -> Values:
        """Memory errors corrected in its life."""
        total = np.zeros(times.shape)
        for fault in self.faults(stories.EccCorrected):
            lasted = np.clip(times, fault.at, fault.until) - fault.at
            total += fault.before + np.floor(lasted / 3600 * fault.per_hour)
        return total

    def uncorrected(self, times: Times) -> Values:
        """Memory errors not corrected in its life."""
        total = np.zeros(times.shape)
        for fault in self.faults(stories.EccUncorrected):
            total += np.where(times >= fault.at, fault.count, 0)
        return total

    def volatile(self, counted: Callable[[Times], Values], times: Times) -> Values:
        """Of such a count, what came since the driver was loaded."""
        booted = self.node.booted(times)
        before = np.where(booted > 0, counted(np.maximum(booted, 0)), 0)
        return counted(times) - before

    def remapped(self, times: Times) -> Values:
        """Rows remapped for errors that were not corrected: at the first reboot after them."""
        return np.where(self.node.booted(times) > 0, self.uncorrected(np.maximum(self.node.booted(times), 0)), 0)

    def is_remap_pending(self, times: Times) -> Mask:
        return self.has("row-remap-pending", times) | (self.uncorrected(times) > self.remapped(times))

    def recovery_action(self, times: Times) -> Values:
        """What the driver wants done: 0 nothing, 1 reset, 2 reboot."""
        return np.where(self.is_remap_pending(times), 1, 0) + 0.0

    @cached_property
    def xids(self) -> tuple[tuple[float, int], ...]:
        """(when, code), in order."""
        found: list[tuple[float, int]] = []
        for fault in self._faults:
            match fault:
                case stories.Xid():
                    found.append((fault.at, fault.code))
                case stories.GpuLost():
                    found.append((fault.at, 79))
                case stories.EccUncorrected():
                    # The error itself, and then the row that is to be remapped.
                    found += [(fault.at, 48), (fault.at + 1, 63)]
        return tuple(sorted(found))

    def last_xid(self, times: Times, since: Values) -> Values:
        """The last Xid that came not before ``since``; 0 for none."""
        last = np.zeros(times.shape)
        for at, code in self.xids:
            last = np.where((times >= at) & (at >= since), code, last)
        return last

    def n_xids(self, code: int, times: Times, window_s: float) -> Values:
        """How many of a code came within the window before."""
        found = np.zeros(times.shape)
        for at, own in self.xids:
            if own == code:
                found += (times >= at) & (times < at + window_s)
        return found


class Totals:
    """Integrals over a GPU's state from the story's start: on a grid, as far as anybody has asked.

    ``energy_j`` drawn; ``capped_s``, ``hot_s``, ``idle_s``: seconds for which its power limit or heat held it back, or
    nothing ran.
    """

    def __init__(self, state: Callable[[Times], State]) -> None:
        self._state = state
        self._sums: dict[str, Values] = {name: np.zeros(1) for name in ("energy_j", "capped_s", "hot_s", "idle_s")}

    def at(self, name: str, times: Times) -> Values:
        """One of them up to each time; 0 before the story."""
        # A day at a time, whoever asks: what is added up in another order is another number.
        while float(times.max()) > (self._sums[name].size - 1) * _GRID_S:
            state = self._state(np.arange(_N_GRID) * _GRID_S + (self._sums[name].size - 1) * _GRID_S)
            rates = {
                "energy_j": state.power_w,
                "capped_s": state.is_capped,
                "hot_s": state.is_hot,
                "idle_s": state.busy < IDLE,
            }
            for each, rate in rates.items():
                sums = self._sums[each]
                self._sums[each] = np.concatenate([sums, sums[-1] + np.cumsum(rate * _GRID_S)])
        values: Values = np.interp(times, np.arange(self._sums[name].size) * _GRID_S, self._sums[name])
        return values


class Node:
    """One host, its GPUs and its exporters."""

    def __init__(self, cluster: Cluster, name: str, spec: Nodes, faults: list[Fault], seed: int) -> None:
        self.cluster = cluster
        self.name = name
        self.spec = spec
        self.gpus: list[Gpu] = []
        self._faults = faults
        self._key = noise.key(seed, "node", name)

    def _of(self, kind: type[F]) -> list[F]:
        return [fault for fault in self._faults if isinstance(fault, kind)]

    def air_c(self, times: Times) -> Values:
        """Inlet air: it breathes with the hall, and a room that heats up does so within minutes."""
        air = self.spec.air_c + 0.8 * noise.drift(self._key, times, 5400)
        for fault in self._of(stories.HotAir):
            since = np.maximum(0, times - fault.at)
            warm = fault.by_c * (1 - np.exp(-since / 600))
            if math.isfinite(fault.until):
                at_end = fault.by_c * (1 - math.exp(-(fault.until - fault.at) / 600))
                warm = np.where(times < fault.until, warm, at_end * np.exp(-np.maximum(0, times - fault.until) / 600))
            air = air + warm
        return air

    def is_up(self, times: Times) -> Mask:
        """Whether it runs."""
        up = np.ones(times.shape, bool)
        for fault in self._of(stories.NodeReboot):
            up &= ~during(fault, times)
        return up

    def booted(self, times: Times) -> Values:
        """When it booted last: seconds since the story's start, negative before it."""
        at = np.full(times.shape, -UP_BEFORE_S)
        for fault in self._of(stories.NodeReboot):
            at = np.where(times >= fault.until, np.maximum(at, fault.until), at)
        return at

    def answers(self, exporter: str, times: Times) -> Mask:
        """Whether an exporter's page can be had."""
        up = self.is_up(times)
        for fault in self._exporter_faults(exporter):
            match fault.kind:
                case "exporter-dead":
                    up &= ~during(fault, times)
                case "exporter-restart":
                    up &= ~((times >= fault.at) & (times < fault.at + RESTART_S))
        return up

    def shown(self, exporter: str, times: Times) -> Times:
        """Of which time the page tells: a frozen exporter's stands still."""
        told = times
        for fault in self._exporter_faults(exporter):
            if fault.kind == "exporter-frozen":
                told = np.where(during(fault, times), np.minimum(told, fault.at), told)
        return told

    def exporter_started(self, exporter: str, times: Times) -> Values:
        """When an exporter last started."""
        at = self.booted(times)
        for fault in self._exporter_faults(exporter):
            ends = {"exporter-dead": fault.until, "exporter-restart": fault.at + RESTART_S}.get(fault.kind)
            if ends is not None:
                at = np.where(times >= ends, np.maximum(at, ends), at)
        return at

    def _exporter_faults(self, exporter: str) -> list[stories.ExporterFault]:
        return [one for one in self._faults if isinstance(one, stories.ExporterFault) and one.exporter == exporter]


class Cluster:
    """All nodes and jobs of a scenario.

    Args:
        epoch: Unix time of the scenario's start; only times that pages show depend on it.

    Raises:
        ScenarioError: a job does not fit where it is to run.
    """

    def __init__(self, scenario: Scenario, epoch: float = 0.0) -> None:
        self.scenario = scenario
        self.epoch = epoch
        profiles = stories.mig_profiles(scenario)
        of_gpu: dict[tuple[str, int], list[Fault]] = {}
        of_node: dict[str, list[Fault]] = {}
        for fault in scenario.faults:
            if isinstance(fault, stories.JobRestart):
                continue
            for node_name, index, _ in stories.places_at(fault.where, scenario):
                of_gpu.setdefault((node_name, index), []).append(fault)
                if fault not in of_node.setdefault(node_name, []):
                    of_node[node_name].append(fault)
        self.nodes: dict[str, Node] = {}
        for name, spec in stories.node_names(scenario).items():
            node = Node(self, name, spec, of_node.get(name, []), scenario.seed)
            node.gpus = [
                Gpu(node, index, profiles.get((name, index), ()), of_gpu.get((name, index), []), scenario.seed)
                for index in range(spec.gpus)
            ]
            self.nodes[name] = node
        self.jobs = [self._placed(job) for job in scenario.jobs]

    @property
    def gpus(self) -> list[Gpu]:
        return [gpu for node in self.nodes.values() for gpu in node.gpus]

    def gpu(self, node: str, index: int) -> Gpu:
        return self.nodes[node].gpus[index]

    def _placed(self, job: Job) -> RunningJob:
        places = list(dict.fromkeys(place for text in job.gpus for place in stories.places_at(text, self.scenario)))
        capacities = []
        for node, index, instance in places:
            gpu = self.gpu(node, index)
            total = gpu.usable_mib if instance is None else gpu.instances[instance].total_mib
            beside = sum(
                most_mib(other)
                for other in self.scenario.jobs
                if other is not job
                and _overlap(job, other)
                and any((node, index, instance) in stories.places_at(text, self.scenario) for text in other.gpus)
            )
            if most_mib(job) > total - beside:
                raise ScenarioError(
                    f"{self.scenario.name}: job {job.name} holds up to {most_mib(job) / 1024:.1f} GiB, and on"
                    f" {node}:{index} there are {(total - beside) / 1024:.1f} for it: give it less `memory`"
                )
            capacities.append(total - beside)
        running = RunningJob(job, places, capacities, self._interruptions(job, places), self.scenario.seed)
        for rank, (node, index, instance) in enumerate(places):
            self.gpu(node, index).jobs.append((running, rank, instance))
        return running

    def _interruptions(self, job: Job, places: list[stories.Place]) -> list[tuple[float, float]]:
        found: list[tuple[float, float]] = []
        for fault in self.scenario.faults:
            if isinstance(fault, stories.JobRestart):
                if fault.job == job.name:
                    found.append((fault.at, fault.at + 1))
                continue
            hit = {place[:2] for place in stories.places_at(fault.where, self.scenario)}
            if hit.isdisjoint(place[:2] for place in places):
                continue
            match fault:
                case stories.GpuLost() | stories.NodeReboot():
                    found.append((fault.at, fault.until))
                case stories.EccUncorrected():
                    found.append((fault.at, fault.at + 1))
        return found


def _overlap(one: Job, other: Job) -> bool:
    return one.start < (other.end or math.inf) and other.start < (one.end or math.inf)
