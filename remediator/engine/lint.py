"""Lint: what is allowed in a playbook and mostly a mistake.

Takes the set that ``loading`` made, gives ``Lint``s, each with a code that ``docs/playbooks.md`` explains. Must never:
stop anything; a lint is advice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from remediator.core.action import UndoWhen
from remediator.core.playbook import Case, CheckTemplate, ConditionTemplate, LabelMap, Playbook, PlaybookSet
from remediator.core.units import print_duration
from remediator.engine.reconcile import ABSENT_FOR, EVERY, SILENCE


class LintCode(StrEnum):
    """What a lint is about: the heading of its section in ``docs/playbooks.md``."""

    POD_IS_EXPORTER = "pod-is-exporter"
    NO_ESCALATION = "no-escalation"
    HOLD_NEEDS_API = "hold-needs-api"
    QUERY_NEEDS_PROMETHEUS = "query-needs-prometheus"
    VERIFY_TOO_WIDE = "verify-too-wide"
    SILENCE_HIDES_RESOLVE = "silence-hides-resolve"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lint:
    """One piece of advice.

    Attributes:
        message: what is odd, and what to write instead.
        file, line: where; the line is 1-based.
    """

    code: LintCode
    message: str
    file: str
    line: int


EXPORTER_LABELS = {"pod": "exported_pod", "namespace": "exported_namespace", "container": "exported_container"}
"""Label → what it is called where it is the workload's.

Source: Prometheus ``honor_labels: false`` (the default): a scraped label that the target has too gets ``exported_``
before its name; dcgm-exporter's own pod then stands in ``pod``.
"""


UNIQUE_LABELS = frozenset({"UUID", "uuid", "gpu_uuid"})
"""Whoever filters on one of these has the host too: no two GPUs in the world share a value."""


def lint(playbook_set: PlaybookSet, *, can_ask: bool) -> list[Lint]:
    """Everything odd in the playbooks, in their order.

    Args:
        can_ask: whether the settings name Alertmanagers to ask what fires.

    Returns:
        Nothing for a set without advice. Raises nothing.
    """
    return [
        found
        for playbook in playbook_set.playbooks
        for found in (
            *_lint_playbook(playbook, can_ask),
            *_lint_queries(playbook, playbook_set.label_map),
            *_lint_silences(playbook, can_ask),
        )
    ]


def _lint_playbook(playbook: Playbook, can_ask: bool) -> Iterator[Lint]:
    acting = [case for case in playbook.cases if case.ignore is None]
    for label in sorted({label for case in acting for label in _labels_read(playbook, case)} & EXPORTER_LABELS.keys()):
        message = (
            f"playbook {playbook.name}: the label {label} is the exporter's own unless Prometheus honours labels;"
            f" write {EXPORTER_LABELS[label]}"
        )
        yield Lint(code=LintCode.POD_IS_EXPORTER, message=message, file=playbook.file, line=playbook.line)
    silent = [case.name for case in acting if not case.escalate_to]
    if silent:
        which = _which(silent)
        message = (
            f"playbook {playbook.name}: nobody is told of an end without a fix{which};"
            " write escalate: {to: [NAME]}, or set escalate_to in the settings"
        )
        yield Lint(code=LintCode.NO_ESCALATION, message=message, file=playbook.file, line=playbook.line)
    held = [case.name for case in acting if case.hold > timedelta(0)]
    if held and not can_ask:
        message = (
            f"playbook {playbook.name}: after hold{_which(held)} it acts by what was last delivered, and resolved comes"
            " as late as Alertmanager's group_interval; set alertmanager.urls, so that it asks what fires now"
        )
        yield Lint(code=LintCode.HOLD_NEEDS_API, message=message, file=playbook.file, line=playbook.line)


def _lint_queries(playbook: Playbook, label_map: LabelMap) -> Iterator[Lint]:
    acting = [case for case in playbook.cases if case.ignore is None]
    if not label_map.prometheus and (asking := [case.name for case in acting if any(_conditions(case))]):
        message = (
            f"playbook {playbook.name}: there is no Prometheus to ask its queries{_which(asking)}: `require` waits,"
            " `verify` ends unverified; set prometheus.servers.NAME.url"
        )
        yield Lint(code=LintCode.QUERY_NEEDS_PROMETHEUS, message=message, file=playbook.file, line=playbook.line)
    told: set[str] = set()
    for case in acting:
        for condition in _verifying(case):
            open_labels = _not_filtered_on(case.per or (), condition.query.names, label_map)
            if open_labels and condition.name not in told:
                told.add(condition.name)
                message = (
                    f"playbook {playbook.name}: the query {condition.name} does not filter on {', '.join(open_labels)},"
                    " which the run is about: others decide with it whether this one is mended; write"
                    f' {open_labels[0]}="{{{{ subject.{open_labels[0]} }}}}" in it, as the metric calls that label'
                )
                yield Lint(code=LintCode.VERIFY_TOO_WIDE, message=message, file=playbook.file, line=playbook.line)


def _lint_silences(playbook: Playbook, can_ask: bool) -> Iterator[Lint]:
    heard_after = ABSENT_FOR + EVERY
    deaf = [
        case.name
        for case in playbook.cases
        if any(step.action == SILENCE for step in case.steps)
        and (
            any(check.within <= heard_after for check in _resolved_checks(case))
            if can_ask
            else case.stop_on_resolve
            or any(_resolved_checks(case))
            or any(step.undo is not None and step.undo.when is UndoWhen.RESOLVED for step in case.steps)
        )
    ]
    if not deaf:
        return
    if can_ask:
        what = (
            f"of a silenced alert the engine hears that it is resolved some {print_duration(heard_after)} later, by"
            " asking: give `alert: resolved` a longer `within`"
        )
    else:
        what = "a silenced alert's `resolved` is never delivered: set alertmanager.urls, so that it is asked for"
    message = f"playbook {playbook.name}: {what}{_which(deaf)}"
    yield Lint(code=LintCode.SILENCE_HIDES_RESOLVE, message=message, file=playbook.file, line=playbook.line)


def _resolved_checks(case: Case) -> Iterator[CheckTemplate]:
    return (check for check in _checks(case) if check.condition is None)


def _checks(case: Case) -> Iterator[CheckTemplate]:
    yield from case.verify
    for step in case.steps:
        yield from step.verify


def _verifying(case: Case) -> Iterator[ConditionTemplate]:
    return (check.condition for check in _checks(case) if check.condition is not None)


def _conditions(case: Case) -> Iterator[ConditionTemplate]:
    yield from case.require
    yield from _verifying(case)
    for step in case.steps:
        yield from step.undo.require if step.undo is not None else ()


def _not_filtered_on(per: Iterable[str], names: frozenset[str], label_map: LabelMap) -> list[str]:
    """What the subject is told apart by and a query, which reads ``names``, does not look at."""
    read = {name.removeprefix("labels.").removeprefix("subject.") for name in names}
    places = {"host", "node", *label_map.host, *label_map.node}
    if read & (places | UNIQUE_LABELS):
        read |= places
    # Each cluster has its Prometheus.
    read |= {"cluster", *label_map.cluster}
    return [label for label in per if label not in read]


def _which(cases: list[str]) -> str:
    """The cases by name; a playbook without cases has one that has no name."""
    return f" in {', '.join(cases)}" if cases != [""] else ""


def _labels_read(playbook: Playbook, case: Case) -> set[str]:
    """Every label that decides what the case is about or goes into an act. A message may say whatever it likes."""
    reads = {matcher.label for matcher in (*playbook.match, *case.match)} | {*(case.per or ())}
    for step in case.steps:
        if step.action == "notify.send":
            continue
        names = {name for template in step.params.values() for name in template.names}
        names |= step.condition.names if step.condition is not None else frozenset()
        reads |= _labels_in(names)
    for condition in _conditions(case):
        reads |= _labels_in(condition.query.names)
    return reads


def _labels_in(names: Iterable[str]) -> set[str]:
    return {name.removeprefix("labels.") for name in names if name.startswith("labels.")}
