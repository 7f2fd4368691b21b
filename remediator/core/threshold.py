"""Thresholds, also such that follow the stage of a training job → rules of Prometheus, as data.

Takes ``Thresholds``, gives rule groups as Prometheus reads them. Must never: read a file, or give a rule that another
rule of these, or a series that is missing, can make fail: what nobody knows (a stage, a workload) has a value of its
own, and an alert never hangs on it.

Two rules look at their own past, and both only at what cannot last: an alert stays on between its threshold and where
it clears while it fires (``ALERTS``), and a stage stays while the progress is just below where it began. A job that
begins anew is early at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any

from remediator.core.units import print_duration

GPU = ("cluster", "UUID", "GPU_I_ID")
"""What tells one GPU, or one MIG instance, from every other."""

WORKLOAD = ("cluster", "workload", "UUID", "GPU_I_ID")
"""What tells one workload from every other; a GPU without a workload is one of its own."""

WORKLOAD_LABELS = (
    "workload",
    "training_job",
    "exported_namespace",
    "exported_pod",
    "exported_container",
    "container_name",
)
"""What ``gpu:workload:info`` says of what a GPU works for."""

STAGE = "workload:training_stage:number"
PROGRESS = "workload:training_progress:ratio"
REPORT = "training:progress:ratio"
INFO = "gpu:workload:info"
NEWEST_INFO = f"topk by ({', '.join(GPU)}) (1, timestamp({INFO})) ^ 0"
"""One for each GPU: for five minutes after a restart of Prometheus that of before it is there too, and would make joins
fail."""

INTERVAL = timedelta(seconds=15)
"""As often as the canonical series are recorded: more often there is nothing new."""

REMEMBERED = timedelta(hours=1)
"""How long a stage is remembered that nobody reports: longer than Prometheus or a trainer takes to come back. What is
remembered matters only just below a boundary, so longer than needed does no harm."""


class Severity(StrEnum):
    """How bad it is, from mild to grave."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """Where the stages of a training job begin, from 0 to 1 of its progress.

    Attributes:
        middle_from, late_from: before the first a job is early.
        back_by: a stage is left backwards only where the progress falls below its beginning by more than this; less
            than each stage is long.
        stale_after: a report whose ``training_progress_timestamp_seconds`` is older counts for nothing.
    """

    middle_from: float = 0.2
    late_from: float = 0.8
    back_by: float = 0.02
    stale_after: timedelta = timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class ByStage:
    """A number for each stage, and one for what reports no progress."""

    early: float
    middle: float
    late: float
    unknown: float

    def numbers(self) -> tuple[float, ...]:
        """All of them."""
        return (self.early, self.middle, self.late, self.unknown)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """One severity of an alert.

    Attributes:
        limit: beyond which it fires.
        clears: how far the value must come back behind the limit until the alert ends, >= 0.
        hold: how long it must be beyond the limit first (``for``).
    """

    severity: Severity
    limit: float | ByStage
    clears: float = 0.0
    hold: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """What is measured, and its limits.

    Attributes:
        name, unit: of the threshold series, ``threshold:<name>:<unit>``.
        series: PromQL that gives the values.
        by: labels that tell what is measured apart; all there is in common with ``ALERTS`` and with the stage.
        alert: its name; "" where there are no grades.
        is_above: fires above its limits; else below.
        grades: from mild to grave.
        goal: a number to aim at, which only is recorded; None = none.
        unless: PromQL; what it has values for is left to another signal. "" = nothing.
        annotations: of the alert, with Prometheus' own templates.
    """

    name: str
    unit: str
    series: str
    by: tuple[str, ...]
    alert: str = ""
    is_above: bool = True
    grades: tuple[Grade, ...] = ()
    goal: float | None = None
    unless: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def threshold(self) -> str:
        """The series of its limits."""
        return f"threshold:{self.name}:{self.unit}"

    @property
    def joins_workload(self) -> bool:
        """Whether its alerts are told what the GPU works for: the series itself does not say so."""
        return "UUID" in self.by and "workload" not in self.by


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """What a file of thresholds says."""

    signals: tuple[Signal, ...]
    stages: Stages = Stages()


Rule = dict[str, Any]


def rule_groups(thresholds: Thresholds) -> list[Rule]:
    """The groups of a rule file: the stages of training jobs, and each signal's threshold series and alerts.

    Args:
        thresholds: checked: stages in order, every ``series`` and ``unless`` PromQL that gives instant vectors.

    Returns:
        Groups as Prometheus reads them: texts, lists and maps alone.

    Source: Prometheus 2.42, configuration/recording_rules; PromQL as of that version.
    """
    groups = [
        ("training-stages", [*_stage_rules(thresholds.stages)]),
        ("thresholds", [rule for signal in thresholds.signals for rule in _signal_rules(signal)]),
    ]
    return [{"name": name, "interval": print_duration(INTERVAL), "rules": rules} for name, rules in groups]


# --- stages -------------------------------------------------------------------------------------------------------

_REPORTERS = ("cluster", "training_job", "exported_namespace", "exported_pod", "hostname", "container_name")


def _stage_rules(stages: Stages) -> Iterator[Rule]:
    seconds = _number(stages.stale_after.total_seconds())
    report = f"(training_progress_ratio >= 0 <= 1)\nunless\n(time() - training_progress_timestamp_seconds > {seconds})"
    report = _or_from(report, "hostname", "instance", r"\\[?(.+?)\\]?(:[0-9]+)?")
    for label in ("namespace", "pod"):
        report = _or_from(report, f"exported_{label}", label, "(.+)")
    yield {"record": REPORT, "expr": f"max by ({', '.join(_REPORTERS)}) (\n{_indented(report)}\n)"}
    ways = (
        ("training_job", ("cluster", "training_job")),
        ("exported_pod", ("cluster", "exported_namespace", "exported_pod")),
        ("container_name", ("cluster", "hostname", "container_name")),
    )
    found = "\n  or\n".join(
        f'  {INFO}{{workload!="", {name}!=""}}\n'
        f"    * on ({', '.join(labels)}) group_left ()\n"
        f'  max by ({", ".join(labels)}) ({REPORT}{{{name}!=""}})'
        for name, labels in ways
    )
    yield {"record": PROGRESS, "expr": f"max by (cluster, workload) (\n{found}\n)"}
    # A stage is one more than the number of boundaries behind. While the progress is at most `back_by` below one, it is
    # behind for those that passed it, and nobody else: that is all that the last value decides.
    forwards = _stage_of(stages.middle_from, stages.late_from)
    backwards = _stage_of(stages.middle_from - stages.back_by, stages.late_from - stages.back_by)
    last = f"last_over_time({STAGE}[{print_duration(REMEMBERED)}])"
    yield {"record": STAGE, "expr": f"(\n{_indented(backwards)}\n) <= {last}\nor\n{forwards}"}


def _stage_of(middle_from: float, late_from: float) -> str:
    return f"1\n+ ({PROGRESS} >= bool {_number(middle_from)})\n+ ({PROGRESS} >= bool {_number(late_from)})"


def _or_from(series: str, label: str, other: str, pattern: str) -> str:
    """The series with ``label`` made from another one, where they do not have it; the pattern's first group is it."""
    # A name for each, so that what is left there keeps two series apart that have become alike: two fail the rule.
    both = f"__both_{label}"
    joined = f'label_join(\n{_indented(series)},\n  "{both}", ";", "{label}", "{other}"\n)'
    return f'label_replace(\n{_indented(joined)},\n  "{label}", "$1", "{both}", ";{pattern}"\n)'


# --- signals ------------------------------------------------------------------------------------------------------


def _signal_rules(signal: Signal) -> Iterator[Rule]:
    if signal.goal is not None:
        yield _threshold(signal, "goal", f"vector({_number(signal.goal)})")
    for grade in signal.grades:
        limits = grade.limit
        shown = _by_stage(signal, limits) if isinstance(limits, ByStage) else f"vector({_number(limits)})"
        yield _threshold(signal, grade.severity.value, shown)
    for grade in signal.grades:
        yield {
            "alert": signal.alert,
            "expr": _alert(signal, grade),
            **({"for": print_duration(grade.hold)} if grade.hold else {}),
            # The second says which entry's number it is; and two entries for one alert would else be one rule twice.
            "labels": {"severity": grade.severity.value, "threshold": signal.name},
            "annotations": dict(signal.annotations),
        }


def _threshold(signal: Signal, severity: str, expression: str) -> Rule:
    return {"record": signal.threshold, "expr": expression, "labels": {"severity": severity}}


def _by_stage(signal: Signal, limits: ByStage) -> str:
    """The limit in force for each that is measured."""
    each = f"group by ({', '.join(signal.by)}) {_in_brackets(signal.series)}"
    named = f"{each} * on ({', '.join(GPU)}) group_left (workload) {NEWEST_INFO}" if signal.joins_workload else each
    parts = [
        f"{_number(limit)} * (\n{_indented(named)}\n    and on (cluster, workload)\n  ({STAGE} == {stage})\n)"
        for stage, limit in enumerate((limits.early, limits.middle, limits.late), 1)
    ]
    return f"\nor on ({', '.join(signal.by)})\n".join([*parts, f"{_number(limits.unknown)} * {each}"])


def _alert(signal: Signal, grade: Grade) -> str:
    """Beyond the limit; or, while it fires, not yet back behind where it clears."""
    by = ", ".join(signal.by)
    series = _operand(signal.series)
    operator = ">" if signal.is_above else "<"
    sign = "-" if signal.is_above else "+"
    if isinstance(limit := grade.limit, ByStage):
        # One-to-one, the comparison would leave nothing but the labels that are matched on.
        of = f'{signal.threshold}{{severity="{grade.severity}"}}'
        compared = f"{series}\n  {operator} on ({by}) group_left ()"
        beyond = f"{compared}\n{of}"
        not_back = f"{compared}\n({of} {sign} {_number(grade.clears)})"
    else:
        beyond = f"{series} {operator} {_number(limit)}"
        end = limit - grade.clears if signal.is_above else limit + grade.clears
        not_back = f"{series} {operator} {_number(end)}"
    expression = beyond
    if grade.clears:
        which = f'alertname="{signal.alert}", severity="{grade.severity}", threshold="{signal.name}"'
        fires = f'ALERTS{{{which}, alertstate="firing"}}'
        expression = f"{beyond}\nor\n(\n{_indented(not_back)}\n    and on ({by})\n  {fires}\n)"
    if signal.unless:
        expression = f"(\n{_indented(expression)}\n)\n  unless on ({by})\n{_operand(signal.unless)}"
    if signal.joins_workload:
        on = f"on ({', '.join(GPU)})"
        # The last part is for a GPU that this series does not know: its alert has no workload, and is there.
        known = f"({NEWEST_INFO} or {on} group by ({', '.join(GPU)}) {_in_brackets(signal.series)})"
        labels = ", ".join(WORKLOAD_LABELS)
        expression = f"(\n{_indented(expression)}\n)\n  * {on}\n    group_left ({labels})\n{known}"
    return expression


_ONE_OPERAND = re.compile(r"[\w:]+|[\w]+\([^()#]*\)")
"""A name, or a function of something without brackets: no operator around it can tear it apart."""


def _operand(expression: str) -> str:
    return expression if _ONE_OPERAND.fullmatch(expression) else _in_brackets(expression)


def _in_brackets(expression: str) -> str:
    # On lines of its own where it may end in a comment.
    return f"({expression})" if _ONE_OPERAND.fullmatch(expression) else f"(\n{_indented(expression)}\n)"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def _number(number: float) -> str:
    """As people write it; what is left of 0.2 - 0.02 beyond that is not meant."""
    return f"{number:.10g}"
