"""Lint: what is allowed in a playbook and mostly a mistake.

Takes the set that ``loading`` made, gives ``Lint``s, each with a code that ``docs/playbooks.md`` explains. Must never:
stop anything; a lint is advice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from remediator.core.playbook import Case, Playbook, PlaybookSet


class LintCode(StrEnum):
    """What a lint is about: the heading of its section in ``docs/playbooks.md``."""

    POD_IS_EXPORTER = "pod-is-exporter"
    NO_ESCALATION = "no-escalation"
    HOLD_NEEDS_API = "hold-needs-api"


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


def lint(playbook_set: PlaybookSet, *, can_ask: bool) -> list[Lint]:
    """Everything odd in the playbooks, in their order.

    Args:
        can_ask: whether the settings name Alertmanagers to ask what fires.

    Returns:
        Nothing for a set without advice. Raises nothing.
    """
    return [found for playbook in playbook_set.playbooks for found in _lint_playbook(playbook, can_ask)]


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
        reads |= {name.removeprefix("labels.") for name in names if name.startswith("labels.")}
    return reads
