"""What a playbook reads of its alerts, each with its place: matchers, ``per``, ``if``, params and queries."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from remediator.core.playbook import Case, CheckTemplate, ConditionTemplate, Step
from remediator.core.render import Expression, ParamTemplate
from remediator.engine.lint.advice import Written
from remediator.loading.document import Path

MESSAGE = "notify.send"
"""The action that only tells people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """One place that reads labels.

    Attributes:
        path: where.
        labels: which.
        action: of the step that it belongs to, "" for none.
        template: what is rendered when the plan is made; None for a matcher, ``per`` and ``if``.
        condition: an ``if``, or the one of the step that the template belongs to.
        is_if: it is the ``if`` itself.
    """

    path: Path
    labels: frozenset[str]
    action: str = ""
    template: ParamTemplate | None = None
    condition: Expression | None = None
    is_if: bool = False


_LABEL = re.compile(r"""(?:labels|subject)(?:\.(?P<name>.+)|\["(?P<odd>.+)"\])""", re.DOTALL)


def labels_in(names: Iterable[str]) -> set[str]:
    """The labels among what a template reads (``labels.pod``, ``labels["host.name"]``, ``subject.pod``)."""
    found = (_LABEL.fullmatch(name) for name in names)
    return {match["name"] or match["odd"] for match in found if match}


def reads(written: Written, index: int, case: Case) -> Iterator[Read]:
    """Every place of a case that reads labels, in no order that matters."""
    for place, matcher in enumerate((*written.playbook.match, *case.match)):
        yield Read(path=written.matchers_path(index, place), labels=frozenset({matcher.label}))
    for place, label in enumerate(case.per or ()):
        yield Read(path=written.path(index, "per", place), labels=frozenset({label}))
    for key, steps in (("steps", case.steps), ("resolved", case.resolved)):
        for place, step in enumerate(steps):
            yield from _step_reads(written.path(index, key, place), step)
    for path, condition in conditions_of(written, index, case):
        labels = frozenset(labels_in(condition.query.names))
        yield Read(path=(*path, "query"), labels=labels, template=condition.query)


def _step_reads(path: Path, step: Step) -> Iterator[Read]:
    if step.condition is not None:
        labels = frozenset(labels_in(step.condition.names))
        yield Read(path=(*path, "if"), labels=labels, action=step.action, condition=step.condition, is_if=True)
    for name, template in step.params.items():
        yield Read(
            path=(*path, "params", name),
            labels=frozenset(labels_in(template.names)),
            action=step.action,
            template=template,
            condition=step.condition,
        )


def conditions_of(written: Written, index: int, case: Case) -> Iterator[tuple[Path, ConditionTemplate]]:
    """Every condition of a case with its place."""
    for place, condition in enumerate(case.require):
        yield written.path(index, "guard", "require", place), condition
    for path, check in checks_of(written, index, case):
        if check.condition is not None:
            yield path, check.condition
    for place, step in enumerate(case.steps):
        own = written.path(index, "steps", place, "undo", "require")
        shared = written.path(index, "undo", "require")
        for number, condition in enumerate(step.undo.require if step.undo is not None else ()):
            yield (*(own if own[-1] == "require" else shared), number), condition


def checks_of(written: Written, index: int, case: Case) -> Iterator[tuple[Path, CheckTemplate]]:
    """Every entry of ``verify`` of a case with its place."""
    for place, check in enumerate(case.verify):
        yield written.path(index, "verify", place), check
    for place, step in enumerate(case.steps):
        for number, check in enumerate(step.verify):
            yield written.path(index, "steps", place, "verify", number), check
