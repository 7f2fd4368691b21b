"""A scenario: which nodes and GPUs there are, what runs on them, and what goes wrong, written as a small YAML file.

YAML → ``Scenario``, checked; every problem with its line and what to write. What the keys mean stands in README.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError

from remediator.core.units import parse_duration

STORIES = Path(__file__).parent / "stories"
"""The scenarios that come with the simulator, by name."""


class ScenarioError(Exception):
    """A scenario file cannot be played; the message has one line for each problem."""


def _seconds(value: object) -> object:
    if isinstance(value, str):
        return parse_duration(value).total_seconds()
    if isinstance(value, int | float) and value != 0:
        raise ValueError(f"a time needs a unit: write {value}s, {value}m or {value}h")
    return value


Seconds = Annotated[float, BeforeValidator(_seconds), Field(ge=0)]
"""Written as a duration (``90s``, ``1h30m``), kept in seconds."""

Share = Annotated[float, Field(ge=0, le=1)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Nodes(_Part):
    """Nodes that are alike.

    Attributes:
        name: with ``%d`` for the number from 1, as in ``gpu-%02d``.
        air_c: temperature of the inlet air.
    """

    count: int = Field(default=1, ge=1, le=1000)
    name: str = "gpu-%02d"
    gpus: int = Field(default=8, ge=1, le=16)
    model: Literal["h100", "a100"] = "h100"
    air_c: float = 24


class Dcgm(_Part):
    """How the DCGM exporter is set up.

    Attributes:
        counters: ``all`` that the simulator knows, or the ``default`` ones of an exporter that nobody configured.
        hostname: how it spells the label.
        kubernetes: whether it says which pod has the GPU.
    """

    counters: Literal["all", "default"] = "all"
    hostname: Literal["Hostname", "hostname"] = "Hostname"
    kubernetes: bool = True


class Mig(_Part):
    """A GPU that is cut into instances, numbered from 0 in this order."""

    gpu: str
    profiles: tuple[Annotated[str, Field(pattern=r"^[1-7]g\.[0-9]+gb$")], ...] = Field(min_length=1, max_length=7)


class Memory(_Part):
    """What a process holds on each of its GPUs.

    Attributes:
        weights_gib: loaded first, over ``ramp``; optimizer_gib: appears with the first step.
        activations_gib: most that a batch takes.
        batch: one fill and drain of the activations.
        allocator: ``caching`` keeps what it ever took (PyTorch); ``freeing`` gives it back after each batch.
        step_mib: by which a caching allocator grows.
        settle: after which a caching allocator has seen half of the growth that ever comes, as larger batches turn up.
        evaluation_gib: more, while (freeing) or since (caching) it evaluates.
    """

    weights_gib: float = Field(default=16, ge=0)
    optimizer_gib: float = Field(default=24, ge=0)
    activations_gib: float = Field(default=20, ge=0)
    batch: Seconds = 40
    allocator: Literal["caching", "freeing"] = "caching"
    step_mib: int = Field(default=512, ge=1)
    settle: Seconds = 600
    evaluation_gib: float = Field(default=0, ge=0)


class Pause(_Part):
    """Something that interrupts the steps: each ``every`` of training, for ``lasts``."""

    every: Annotated[Seconds, Field(gt=0)]
    lasts: Annotated[Seconds, Field(gt=0)]


class Leak(_Part):
    """Memory that is taken and never used again.

    Attributes:
        after: from the start of the process; a restart begins anew.
        gpus: indices among the job's GPUs; default all.
    """

    gib_per_hour: float = Field(gt=0)
    after: Seconds = 0
    gpus: tuple[int, ...] | None = None


class Job(_Part):
    """One job: the same process on each of its GPUs.

    Attributes:
        gpus: ``gpu-01:0-7``, ``gpu-01:0,2``, ``gpu-01:*``, ``*``, and ``gpu-01:0/2`` for a MIG instance.
        pod: in Kubernetes; over several nodes ``-0``, ``-1`` … follow. docker: name of its container, on Docker.
        training_job: a name for all its parts: a label of the pods, or Slurm's job on Docker hosts; DCGM's shows it.
        ramp: loading of the weights.
        utilization_pct: while it computes; 0 for a process that holds memory and does nothing.
        daily: share by which the load of a service falls at night.
        waits: share of the time in which it waits for data.
        power: share of the default limit that it draws at full work.
        nvlink_gb_s: per GPU; nothing where the job has one GPU.
        length: of training from 0 to 1 on ``training_progress_ratio``, pauses left out; without it none is exported.
        restart_after: how long it takes to come back after a crash.
    """

    name: str = Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    gpus: tuple[str, ...] = Field(min_length=1)
    namespace: str = "ml"
    pod: str = ""
    container: str = "trainer"
    docker: str = ""
    training_job: str = ""
    start: Seconds = 0
    end: Seconds | None = None
    ramp: Seconds = 300
    memory: Memory = Memory()
    utilization_pct: float = Field(default=97, ge=0, le=100)
    daily: Share = 0
    waits: Share = 0.02
    power: Share = 0.88
    nvlink_gb_s: float = Field(default=180, ge=0)
    evaluation: Pause | None = None
    checkpoint: Pause | None = Pause.model_validate({"every": "30m", "lasts": "45s"})
    leak: Leak | None = None
    length: Annotated[Seconds, Field(gt=0)] | None = None
    restart_after: Seconds = 60

    @model_validator(mode="after")
    def _runs_somewhere(self) -> Job:
        if bool(self.pod) == bool(self.docker):
            raise ValueError("a job runs in a pod or in a Docker container: write one of `pod` and `docker`")
        if self.end is not None and self.end <= self.start:
            raise ValueError("`end` must come after `start`")
        return self


class TimedFault(_Part):
    """Something that goes wrong for a time.

    Attributes:
        where: GPUs as a job's, or nodes (``gpu-01``, ``*``).
        at, lasts: from when and for how long; default from the start and to the end.
    """

    where: str
    at: Seconds = 0
    lasts: Annotated[Seconds, Field(gt=0)] | None = None

    @property
    def until(self) -> float:
        return float("inf") if self.lasts is None else self.at + self.lasts


class FanFailure(TimedFault):
    """Less air over a GPU: ``loss`` is the share of cooling that is gone."""

    kind: Literal["fan-failure"]
    loss: Annotated[float, Field(gt=0, lt=1)] = 0.5


class HotAir(TimedFault):
    """The inlet air of a node is warmer by so much."""

    kind: Literal["hot-air"]
    by_c: float = Field(gt=0)


class PowerCap(TimedFault):
    """A limit below the default, set in the driver or behind its back."""

    kind: Literal["power-cap"]
    watts: float = Field(gt=0)
    by: Literal["host", "out-of-band"] = "host"


class SlowRank(TimedFault):
    """A GPU whose process is slow: it idles for ``share`` of the time, and the others of its job wait for it."""

    kind: Literal["slow-rank"]
    share: Annotated[float, Field(gt=0, lt=1)] = 0.4


class NvlinkDegraded(TimedFault):
    """``left`` of a GPU's NVLink traffic."""

    kind: Literal["nvlink-degraded"]
    left: Share = 0.2


class EccCorrected(TimedFault):
    """Corrected memory errors at a rate; ``before`` were counted before anybody looked."""

    kind: Literal["ecc-corrected"]
    per_hour: float = Field(default=0, ge=0)
    before: int = Field(default=0, ge=0)


class EccUncorrected(TimedFault):
    """Uncorrected memory errors, all at once; a row is remapped for each at the next reboot."""

    kind: Literal["ecc-uncorrected"]
    count: int = Field(default=1, ge=1)


class RowRemap(TimedFault):
    """A row that waits for a reset, or a remap that failed."""

    kind: Literal["row-remap-pending", "row-remap-failure"]


class Xid(TimedFault):
    """The driver reports an Xid, at this one time."""

    kind: Literal["xid"]
    code: int = Field(ge=1, le=999)


class GpuLost(TimedFault):
    """A GPU falls off the bus (Xid 79); its job dies and cannot start."""

    kind: Literal["gpu-lost"]


class ExporterFault(TimedFault):
    """An exporter does not answer, shows for ever what it showed last, or restarts (gone for half a minute)."""

    kind: Literal["exporter-dead", "exporter-frozen", "exporter-restart"]
    exporter: Literal["dcgm", "smi", "remediator", "node", "trainer"]


class NodeReboot(TimedFault):
    """A node is away, by default for five minutes."""

    kind: Literal["node-reboot"]
    lasts: Annotated[Seconds, Field(gt=0)] | None = 300


class LabelsFlap(TimedFault):
    """DCGM's pod labels come and go with every ``every``."""

    kind: Literal["labels-flap"]
    every: Annotated[Seconds, Field(gt=0)] = 30


class LabelsMissing(TimedFault):
    """DCGM names no pod."""

    kind: Literal["labels-missing"]


class JobRestart(_Part):
    """A job is started anew."""

    kind: Literal["job-restart"]
    job: str
    at: Seconds


Fault = Annotated[
    FanFailure | HotAir | PowerCap | SlowRank | NvlinkDegraded | EccCorrected | EccUncorrected | RowRemap | Xid
    | GpuLost | ExporterFault | NodeReboot | LabelsFlap | LabelsMissing | JobRestart,
    Field(discriminator="kind"),
]  # fmt: skip


class Scenario(_Part):
    """All of it.

    Attributes:
        name: the file's name.
        about: one sentence on what happens.
        duration: how long the story is; it can be played on after that.
        cluster: label of every target; "" = none.
        sources: which exporters run.
    """

    name: str = ""
    about: str
    duration: Annotated[Seconds, Field(gt=0)]
    seed: int = 1
    cluster: str = ""
    sources: tuple[Literal["dcgm", "smi", "remediator"], ...] = Field(
        default=("dcgm", "smi", "remediator"), min_length=1
    )
    dcgm: Dcgm = Dcgm()
    nodes: tuple[Nodes, ...] = Field(default=(Nodes(),), min_length=1)
    mig: tuple[Mig, ...] = ()
    jobs: tuple[Job, ...] = ()
    faults: tuple[Fault, ...] = ()


Place = tuple[str, int, int | None]
"""Node, GPU index, and MIG instance or None."""


def node_names(scenario: Scenario) -> dict[str, Nodes]:
    """Every node's name, in order, with what it is like."""
    numbered: dict[str, int] = {}
    names: dict[str, Nodes] = {}
    for nodes in scenario.nodes:
        for _ in range(nodes.count):
            numbered[nodes.name] = numbered.get(nodes.name, 0) + 1
            names[nodes.name % numbered[nodes.name] if "%" in nodes.name else nodes.name] = nodes
    return names


def mig_profiles(scenario: Scenario) -> dict[tuple[str, int], tuple[str, ...]]:
    """The instances of each GPU that is cut into some."""
    names = node_names(scenario)
    return {place[:2]: mig.profiles for mig in scenario.mig for place in _gpus_at(mig.gpu, names)}


def places_at(text: str, scenario: Scenario) -> list[Place]:
    """The GPUs, or MIG instances, that such a text means; the reverse of none.

    Raises:
        ValueError: it cannot be read, or there is no such GPU.
    """
    names = node_names(scenario)
    profiles = mig_profiles(scenario)
    places = _gpus_at(text, names)
    for node, gpu, instance in places:
        cut = profiles.get((node, gpu), ())
        if instance is not None and instance >= len(cut):
            raise ValueError(f"{text!r}: GPU {gpu} of {node} has {len(cut)} MIG instances, numbered from 0")
    return places


def _gpus_at(text: str, names: dict[str, Nodes]) -> list[Place]:
    node_text, _, rest = text.partition(":")
    nodes = list(names) if node_text == "*" else [node_text]
    if nodes[0] not in names:
        raise ValueError(f"{text!r}: there is no node {node_text!r}; there are {', '.join(names)}")
    places: list[Place] = []
    for node in nodes:
        n_gpus = names[node].gpus
        if rest in ("", "*"):
            places += [(node, gpu, None) for gpu in range(n_gpus)]
            continue
        for part in rest.split(","):
            found = re.fullmatch(r"([0-9]{1,3})(?:-([0-9]{1,3})|/([0-9]))?", part)
            if found is None:
                raise ValueError(f"{text!r}: write NODE:0, NODE:0-3, NODE:0,2, NODE:* or NODE:0/1 (a MIG instance)")
            first, last, instance = found.groups()
            for gpu in range(int(first), int(last or first) + 1):
                if gpu >= n_gpus:
                    raise ValueError(f"{text!r}: {node} has GPUs 0 to {n_gpus - 1}")
                places.append((node, gpu, None if instance is None else int(instance)))
    return places


def find_story(name: str) -> Path:
    """The file of a scenario that comes with the simulator, or of this path.

    Raises:
        ScenarioError: there is none.
    """
    path = STORIES / f"{name}.yaml"
    if path.is_file():
        return path
    if Path(name).is_file():
        return Path(name)
    known = ", ".join(sorted(story.stem for story in STORIES.glob("*.yaml")))
    raise ScenarioError(f"{name}: neither a file nor a story of the simulator; there are {known}")


def load(name: str | Path) -> Scenario:
    """The scenario in that file, or the simulator's story of that name.

    Raises:
        ScenarioError: every problem, one per line, as ``FILE:LINE: what``.
    """
    path = find_story(str(name))
    try:
        return parse(path.read_text(), str(path), path.stem)
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{path}: it cannot be read: {error}") from error


def parse(text: str, file: str = "scenario", name: str = "scenario") -> Scenario:
    """A scenario's text → ``Scenario``. Raises ``ScenarioError`` as ``load``."""
    try:
        document = YAML().load(text)
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ScenarioError(f"{file}:{line}: this is not YAML: {error.problem}") from error
    if not isinstance(document, dict):
        raise ScenarioError(f"{file}:1: a scenario is a mapping with `about`, `duration`, `jobs` …")
    try:
        scenario = Scenario.model_validate({"name": name, **document})
    except ValidationError as error:
        raise ScenarioError(
            "\n".join(
                f"{file}:{_line(document, found['loc'])}: {_path(document, found['loc'])}{_words(found)}"
                for found in error.errors()
            )
        ) from error
    problems = [
        f"{file}:{_line(document, place)}: {_path(document, place)}{what}" for place, what in _misfits(scenario)
    ]
    if problems:
        raise ScenarioError("\n".join(problems))
    return scenario


def _words(found: Any) -> str:
    match found["type"]:
        case "extra_forbidden":
            return "there is no such key"
        case "missing":
            return "it is missing"
        case _:
            words: str = found["msg"].removeprefix("Value error, ")
            return words[:1].lower() + words[1:]


def _steps(document: Any, place: tuple[int | str, ...]) -> Iterator[tuple[Any, int | str]]:
    """Each container and key on the way; a union's tag, which pydantic puts into the place, is left out."""
    at = document
    for step in place:
        if isinstance(at, dict) or (isinstance(at, list) and isinstance(step, int) and step < len(at)):
            if isinstance(at, dict) and step not in at and step == at.get("kind"):
                continue
            yield at, step
            at = at.get(step) if isinstance(at, dict) else at[step]  # type: ignore[index]


def _path(document: Any, place: tuple[int | str, ...]) -> str:
    steps = [step for _, step in _steps(document, place)]
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).lstrip(".")
    return f"{text}: " if text else ""


def _line(document: Any, place: tuple[int | str, ...]) -> int:
    line = 0
    for at, step in _steps(document, place):
        positions = getattr(getattr(at, "lc", None), "data", None) or {}
        if step in positions:
            line = positions[step][0]
    return line + 1


def _misfits(scenario: Scenario) -> Iterator[tuple[tuple[int | str, ...], str]]:
    """What each part alone cannot know: places that are not there, names that are taken."""
    jobs = [job.name for job in scenario.jobs]
    for index, mig in enumerate(scenario.mig):
        try:
            _gpus_at(mig.gpu, node_names(scenario))
        except ValueError as error:
            yield ("mig", index, "gpu"), str(error)
            return
    profiles = mig_profiles(scenario)
    for index, job in enumerate(scenario.jobs):
        if job.name in jobs[:index]:
            yield ("jobs", index, "name"), f"there is another job {job.name!r}"
        for text in job.gpus:
            try:
                places = places_at(text, scenario)
            except ValueError as error:
                yield ("jobs", index, "gpus"), str(error)
                continue
            whole = [f"{node}:{gpu}" for node, gpu, instance in places if instance is None and (node, gpu) in profiles]
            if whole:
                yield ("jobs", index, "gpus"), f"{whole[0]} is cut into MIG instances: name one, as {whole[0]}/0"
    for index, fault in enumerate(scenario.faults):
        if isinstance(fault, JobRestart):
            if fault.job not in jobs:
                yield ("faults", index, "job"), f"there is no job {fault.job!r}; there are {', '.join(jobs) or 'none'}"
            continue
        try:
            places_at(fault.where, scenario)
        except ValueError as error:
            yield ("faults", index, "where"), str(error)
            continue
        of_nodes = isinstance(fault, HotAir | ExporterFault | NodeReboot)
        if of_nodes and ":" in fault.where:
            yield ("faults", index, "where"), f"{fault.kind} is of a node: write {fault.where.partition(':')[0]}"
