"""A file of thresholds → ``Thresholds``; every problem with its line and column, all at once.

Takes one YAML file, gives values that ``core.threshold`` makes rules of. Must never: raise for what stands in the file,
or let a threshold through that can never fire, never end, or fires in the wrong order.
"""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Annotated, cast

from pydantic import Field
from pydantic.config import JsonDict

from remediator.core.threshold import GPU, WORKLOAD, ByStage, Grade, Severity, Signal, Stages, Thresholds
from remediator.errors import PlaybookError, PlaybookSchemaError
from remediator.loading.document import MAX_BYTES, Document, Node, Path, items_of, read_bytes, read_documents
from remediator.loading.format import Bound, Duration, Names, PositiveDuration, ReadBy, Table, problem, text_name
from remediator.loading.promql import gives_series
from remediator.loading.read import Problems, read_keys, read_part

_NUMBER: JsonDict = {"type": "number"}
_STAGE_KEYS: JsonDict = {
    "early": {"description": "Before `middle_from`.", **_NUMBER},
    "middle": {"description": "From `middle_from` on.", **_NUMBER},
    "late": {"description": "From `late_from` on.", **_NUMBER},
    "unknown": {"description": "Of what reports no progress.", **_NUMBER},
}
_LIMIT_SCHEMA: JsonDict = {
    "anyOf": [
        _NUMBER,
        {
            "type": "object",
            "properties": _STAGE_KEYS,
            "required": list(_STAGE_KEYS),
            "additionalProperties": False,
        },
    ],
    "examples": [90, {"early": 95, "middle": 90, "late": 85, "unknown": 90}],
}


def _limit(value: object) -> object:
    """A number; or a map, which is read by itself so that its keys' problems have their own places."""
    if isinstance(value, dict):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise problem(
            "value", "must be a number, or one for each stage: {early: 95, middle: 90, late: 85, unknown: 90}"
        )
    return float(value)


def _promql(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise problem("value", "must be PromQL; put quotes round it where it begins with { or holds ` #`")
    try:
        is_series = gives_series(value)
    except ValueError as error:
        raise problem("value", f"is not understood as PromQL: {error}") from error
    if not is_series:
        raise problem("value", "must give series with one value each: no number, no text, no range as in x[5m]")
    return value.strip()


def _named(pattern: str, what: str, *examples: str) -> ReadBy:
    return ReadBy(text_name(pattern, what), {"type": "string", "pattern": f"^{pattern}$", "examples": [*examples]})


Limit = Annotated[object, ReadBy(_limit, _LIMIT_SCHEMA)]
PromQL = Annotated[str, ReadBy(_promql, {"type": "string", "examples": ["avg_over_time(gpu:power:watts[5m])"]})]
SeriesPart = Annotated[
    str,
    _named("[a-z][a-z0-9_]*", "must be small letters, digits and _, from a letter on", "gpu_memory_used", "percent"),
]
AlertName = Annotated[
    str, _named("[A-Za-z_][A-Za-z0-9_]*", "must be letters, digits and _, from a letter on", "GPUMemoryHigh")
]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class ByStageKeys(Table):
    """A number for each stage."""

    early: Bound
    middle: Bound
    late: Bound
    unknown: Bound


class StagesKeys(Table):
    """Where the stages of a training job begin, as parts of its progress, which goes from 0 to 1."""

    middle_from: Bound = Field(default=0.2, description="Where the middle begins; before it a job is early.")
    late_from: Bound = Field(default=0.8, description="Where the late stage begins.")
    back_by: NonNegative = Field(
        default=0.02, description="A stage is left backwards where the progress falls below it by more than this."
    )
    stale_after: PositiveDuration = Field(
        default=Stages().stale_after, description="A report that is older counts for nothing."
    )


class GradeKeys(Table):
    """One severity of an alert."""

    above: Limit | None = Field(default=None, description="Fires above this; a number, or one for each stage.")
    below: Limit | None = Field(default=None, description="Fires below this; a number, or one for each stage.")
    clears: NonNegative = Field(
        default=0.0, description="How far the value must come back behind the limit until the alert ends."
    )
    for_: Duration = Field(
        default=Grade(severity=Severity.INFO, limit=0.0).hold,
        alias="for",
        description="How long it must be beyond the limit first.",
    )


class GradesKeys(Table):
    """The severities of an alert, each with its limit."""

    info: GradeKeys | None = Field(default=None, description="For people who look.")
    warning: GradeKeys | None = Field(default=None, description="Needs somebody in working hours.")
    critical: GradeKeys | None = Field(default=None, description="Needs somebody now.")


class SignalKeys(Table):
    """What is measured, and its limits."""

    signal: SeriesPart = Field(description="Its name; the limits are recorded as `threshold:SIGNAL:UNIT`.")
    unit: SeriesPart = Field(description="Of its values.")
    series: PromQL = Field(description="PromQL that gives the values.")
    by: Names | None = Field(
        default=None,
        description="Labels that tell apart what is measured; default those of a GPU for series `gpu:…`, of a workload"
        " for series `workload:…`.",
        examples=[["cluster", "hostname"]],
    )
    alert: AlertName | None = Field(default=None, description="Name of the alert.")
    grades: GradesKeys | None = Field(default=None, description="The alert's severities, each with its limit.")
    goal: Bound | None = Field(default=None, description="A number to aim at: recorded, and no alert.")
    unless: PromQL | None = Field(
        default=None, description="PromQL; what it has values for is left to another entry with the same alert."
    )
    annotations: dict[str, str] = Field(
        default_factory=dict,
        description="Of the alert, with Prometheus' templates; `summary` and `description` must be there.",
        examples=[{"summary": "…", "description": "…", "runbook_url": "…"}],
    )


class ThresholdsKeys(Table):
    """A file of thresholds."""

    stages: StagesKeys = Field(default_factory=StagesKeys, description="Where the stages of training jobs begin.")
    signals: Annotated[list[SignalKeys], Field(min_length=1)] = Field(description="What is measured, one entry each.")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedThresholds:
    """What a file says.

    Attributes:
        thresholds: None with problems.
        problems: all of them, by line.
    """

    thresholds: Thresholds | None
    problems: tuple[PlaybookError, ...]


def load_thresholds(path: FilePath) -> LoadedThresholds:
    """Read a file of thresholds. Raises nothing for bad content; a file that cannot be read is a problem too."""
    file = str(path)
    data = read_bytes(path, MAX_BYTES)
    if isinstance(data, str):
        return LoadedThresholds(thresholds=None, problems=(_problem(data, file),))
    documents, found = read_documents(file, data)
    if not documents and not found:
        found = [_problem("holds nothing; a file of thresholds has `signals`", file)]
    if len(documents) > 1:
        second = documents[1].root
        found.append(
            _problem("a file of thresholds is one document; write all into one list of `signals`", file, second.line)
        )
    thresholds = None
    for document in documents[:1]:
        problems = Problems(document)
        thresholds = _build(document, problems)
        found += problems.found
    found.sort(key=lambda each: (each.line, each.column))
    return LoadedThresholds(thresholds=None if found else thresholds, problems=tuple(found))


def _problem(message: str, file: str, line: int = 1) -> PlaybookError:
    return PlaybookSchemaError(message, file=file, line=line, column=1)


def _build(document: Document, problems: Problems) -> Thresholds | None:
    if not isinstance(document.root.value, dict):
        problems.add((), "a file of thresholds is a map of keys and values: `stages`, `signals`")
        return None
    keys = read_keys(document, ThresholdsKeys, problems, has_templates=False)
    if keys is None:
        return None
    stages = _stages(keys.stages, problems)
    nodes = items_of(document.root.find(("signals",)))
    told = [each.line for each in problems.found]
    signals = [
        _signal(entry, ("signals", index), document, problems)
        for index, (entry, node) in enumerate(zip(keys.signals, nodes, strict=True))
        # What was told already was taken out of the entry: what would be said of the rest of it is an echo.
        if not any(node.line <= line <= _last_line(document, node) for line in told)
    ]
    _refuse_doubles(signals, problems)
    return Thresholds(signals=tuple(signal for signal, _ in signals), stages=stages)


def _last_line(document: Document, node: Node) -> int:
    return document.source.count("\n", 0, len(document.source[: node.end].rstrip())) + 1


def _stages(keys: StagesKeys, problems: Problems) -> Stages:
    """Each stage must be longer than the step back that it takes to leave it."""
    if not 0 < keys.middle_from < 1:
        problems.add(("stages", "middle_from"), "`middle_from` must be above 0 and below 1")
    elif not keys.middle_from < keys.late_from < 1:
        problems.add(
            ("stages", "late_from"),
            f"`late_from` must be above `middle_from`, which is {keys.middle_from:g}, and below 1",
        )
    elif keys.back_by >= (shortest := min(keys.middle_from, keys.late_from - keys.middle_from)):
        problems.add(
            ("stages", "back_by"), f"`back_by` must be less than the shortest stage before late, which is {shortest:g}"
        )
    return Stages(
        middle_from=keys.middle_from,
        late_from=keys.late_from,
        back_by=keys.back_by,
        stale_after=keys.stale_after,
    )


# --- one entry ----------------------------------------------------------------------------------------------------

Placed = tuple[Signal, Path]


def _signal(keys: SignalKeys, path: Path, document: Document, problems: Problems) -> Placed:
    grades = _grades(keys, path, document, problems)
    if not grades and keys.goal is None and keys.grades is None:
        problems.add(path, "an entry has `grades`, a `goal`, or both")
    if keys.grades is not None and keys.alert is None:
        problems.add((*path, "grades"), "`grades` are those of an alert; `alert` must name it")
    if keys.grades is None:
        for key in ("alert", "unless", "annotations"):
            if getattr(keys, key):
                problems.add((*path, key), f"`{key}` means nothing without `grades`")
    else:
        _check_annotations(keys, path, problems)
    by = tuple(keys.by) if keys.by is not None else _default_by(keys, path, problems)
    _check_by(by, keys, grades, path, problems)
    signal = Signal(
        name=keys.signal,
        unit=keys.unit,
        series=keys.series,
        by=by,
        alert=keys.alert or "",
        is_above=all(grade.above is not None for _, grade in _of(keys)),
        grades=tuple(grades),
        goal=keys.goal,
        unless=keys.unless or "",
        annotations=keys.annotations,
    )
    return signal, path


def _of(keys: SignalKeys) -> list[tuple[Severity, GradeKeys]]:
    """The grades that an entry has, from mild to grave."""
    found = [(severity, getattr(keys.grades, severity, None)) for severity in Severity] if keys.grades else []
    return [(severity, grade) for severity, grade in found if grade is not None]


def _grades(keys: SignalKeys, path: Path, document: Document, problems: Problems) -> list[Grade]:
    """The grades that make sense, each by itself and beside each other."""
    written = _of(keys)
    here = (*path, "grades")
    if keys.grades is not None and not written:
        problems.add(here, f"`grades` must have at least one of {', '.join(Severity)}")
    if {(grade.above is None) for _, grade in written} == {True, False}:
        problems.add(here, "an alert fires above its limits or below them: `above` and `below` do not go together")
        return []
    grades: list[Grade] = []
    for severity, grade in written:
        at = (*here, severity.value)
        if (grade.above is None) == (grade.below is None):
            problems.add(at, f"`{severity}` takes either `above` or `below`")
            continue
        word = "below" if grade.above is None else "above"
        limit: object = getattr(grade, word)
        if isinstance(limit, dict):
            stage = read_part(document, (*at, word), ByStageKeys, problems)
            if stage is None:
                continue
            limit = ByStage(early=stage.early, middle=stage.middle, late=stage.late, unknown=stage.unknown)
        made = Grade(severity=severity, limit=cast("float | ByStage", limit), clears=grade.clears, hold=grade.for_)
        if message := _never(made, keys.unit, word):
            problems.add((*at, word), message)
        elif grades and (message := _out_of_order(grades[-1], made, word)):
            problems.add(at, message)
        grades.append(made)
    return grades


_MOST = {"percent": 100.0, "ratio": 1.0}
"""Units whose values go from 0 to this. (`percent_of_…` may be more.)"""


def _never(grade: Grade, unit: str, word: str) -> str:
    """Why an alert with this limit never fires, or never ends; "" where it may do both."""
    most = _MOST.get(unit)
    if most is None:
        return ""
    for limit in _numbers(grade.limit):
        if not 0 <= limit <= most or limit == (most if word == "above" else 0):
            return f"`{word}: {limit:g}`: no value is {word} that in {unit}, which goes from 0 to {most:g}"
        end = limit - grade.clears if word == "above" else limit + grade.clears
        if end <= 0 if word == "above" else end >= most:
            return f"`clears: {grade.clears:g}` from {limit:g} is never reached in {unit}: the alert would never end"
    return ""


def _out_of_order(mild: Grade, grave: Grade, word: str) -> str:
    """Why two grades do not go together; "" where they do. In no stage may the grave one be first."""
    sign = 1 if word == "above" else -1
    pairs = list(zip(_each(mild.limit), _each(grave.limit), strict=True))
    for low, high in pairs:
        if sign * high <= sign * low:
            return (
                f"`{grave.severity}` must be {word} `{mild.severity}`, in every stage: {high:g} is not {word} {low:g}"
            )
    for low, high in pairs:
        if sign * (end := high - sign * grave.clears) < sign * low:
            return (
                f"`{grave.severity}` would last until {end:g}, where `{mild.severity}` ({low:g}) does not even begin:"
                f" its `clears` must be at most {abs(high - low):g}"
            )
    return ""


def _numbers(limit: float | ByStage) -> tuple[float, ...]:
    return limit.numbers() if isinstance(limit, ByStage) else (limit,)


def _each(limit: float | ByStage) -> tuple[float, ...]:
    """One for each stage, so that a number and a map can be compared."""
    return limit.numbers() if isinstance(limit, ByStage) else (limit,) * 4


_OF_GPU = re.compile(r"\bgpu:\w+:\w+")
_OF_WORKLOAD = re.compile(r"\bworkload:\w+:\w+")


def _default_by(keys: SignalKeys, path: Path, problems: Problems) -> tuple[str, ...]:
    match _OF_GPU.search(keys.series), _OF_WORKLOAD.search(keys.series):
        case None, None:
            message = "`by` is missing: which labels tell apart what is measured? As in [cluster, hostname]"
            problems.add((*path, "series"), message)
            return ()
        case _, None:
            return GPU
        case None, _:
            return WORKLOAD
        case _:
            problems.add((*path, "series"), "`by` is missing: series of GPUs and of workloads are in it")
            return ()


_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OF_ALERTS = frozenset({"alertname", "alertstate", "severity", "threshold", "__name__"})


def _check_by(by: tuple[str, ...], keys: SignalKeys, grades: list[Grade], path: Path, problems: Problems) -> None:
    if keys.by is not None:
        for label in by:
            if not _LABEL.fullmatch(label) or label in _OF_ALERTS:
                problems.add((*path, "by"), f"`by` holds labels of the series, and {label} is none")
        for given, needed in (("UUID", GPU), ("workload", ("cluster", "workload"))):
            if given in by and (lacks := [label for label in needed if label not in by]):
                problems.add((*path, "by"), f"`by` with {given} must hold {', '.join(lacks)} too: else two are one")
    is_staged = any(isinstance(grade.limit, ByStage) for grade in grades)
    if by and is_staged and not {"workload", "UUID"} & {*by}:
        problems.add((*path, "by"), "limits by stage need a job: `by` must hold workload, or what tells a GPU apart")


def _check_annotations(keys: SignalKeys, path: Path, problems: Problems) -> None:
    for name in ("summary", "description"):
        if not keys.annotations.get(name, "").strip():
            problems.add((*path, "annotations"), f"`annotations` must have a `{name}`: people read it at night")
    for name, text in keys.annotations.items():
        if not _LABEL.fullmatch(name):
            problems.add((*path, "annotations", name), f"`{name}` is no name of an annotation: letters, digits and _")
        if text.count("{{") != text.count("}}"):
            problems.add((*path, "annotations", name), f"`{name}` has a {{{{ without }}}}, or the other way round")


def _refuse_doubles(signals: list[Placed], problems: Problems) -> None:
    for (one, _), (two, path) in itertools.combinations(signals, 2):
        if one.threshold == two.threshold:
            problems.add((*path, "signal"), f"there is `{two.name}` in {two.unit} already; one entry holds all grades")
        both = {grade.severity for grade in one.grades} & {grade.severity for grade in two.grades}
        if one.alert == two.alert and both and not (one.unless or two.unless):
            problems.add(
                (*path, "alert"),
                f"{two.alert} has the severity {min(both)} already; another entry for the same needs `unless`, so that"
                " only one of them fires",
            )
