"""Lint: what is allowed in playbooks and policies and mostly a mistake.

Takes what ``loading`` read and, if given, Prometheus' rules; gives ``Lint``s, each with its place and a code that has a
page, ``docs/lint/CODE.md``, less what comments in the files allow. Must never: stop anything; a lint is advice.

``alone`` looks at each playbook, ``together`` at each two, ``against_rules`` at what the rules can raise; ``matching``
says whether matchers can hold together, ``reading`` what a playbook reads, ``allow`` takes out what is allowed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from remediator.core.action import LookingActions, TargetKind
from remediator.core.matcher import parse_matcher
from remediator.engine.lint.advice import NEEDS_RULES, Lint, LintCode, Written
from remediator.engine.lint.against_rules import KnownAlerts, lint_against_rules
from remediator.engine.lint.allow import apply_allows
from remediator.engine.lint.alone import (
    lint_asking,
    lint_labels,
    lint_ladder,
    lint_matchers,
    lint_people,
    lint_silences,
    lint_verify,
)
from remediator.engine.lint.matching import by_label, contradiction
from remediator.engine.lint.together import lint_targets
from remediator.errors import MatcherSyntaxError, PlaybookError
from remediator.loading import Loaded
from remediator.loading.document import Document
from remediator.loading.rules import Rules

__all__ = ["Advice", "Lint", "LintCode", "lint"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What lint has to say.

    Attributes:
        lints: by file and line.
        problems: comments that mean to allow something and do not say what or why.
    """

    lints: tuple[Lint, ...]
    problems: tuple[PlaybookError, ...]


def lint(
    loaded: Loaded,
    *,
    actions: LookingActions,
    can_ask: bool,
    rules: Rules | None = None,
    added_labels: frozenset[str] = frozenset(),
) -> Advice:
    """Everything odd in what was loaded, less what is allowed.

    Args:
        actions: the registry.
        can_ask: whether the settings name Alertmanagers to ask what fires.
        rules: what can fire; None = not known.
        added_labels: that alerts get behind the rules, as ``external_labels`` of Prometheus.

    Returns:
        Nothing for files without advice. Raises nothing.
    """
    documents = {(document.file, document.root.line): document for document in loaded.documents}
    playbooks = [
        Written(playbook, documents[playbook.file, playbook.line]) for playbook in loaded.playbook_set.playbooks
    ]
    label_map = loaded.playbook_set.label_map
    added = added_labels | {*label_map.cluster} | loaded.playbook_set.ignore_labels
    alerts = KnownAlerts(rules, added) if rules is not None else None
    found: list[Lint] = []
    for written in playbooks:
        found += lint_matchers(written)
        found += lint_labels(written)
        found += lint_people(written)
        found += lint_asking(written, label_map, can_ask=can_ask)
        found += lint_verify(written, label_map)
        found += lint_ladder(written)
        found += lint_silences(written, can_ask=can_ask)
        if alerts is not None:
            found += lint_against_rules(written, alerts, actions, label_map)
    found += lint_targets(playbooks, actions, label_map)
    for document in loaded.documents:
        found += _lint_policy(document)
    if rules is not None:
        found += [
            Lint(
                code=LintCode.RULE_NOT_UNDERSTOOD,
                message=f"{each.message}; its labels are taken for unknown",
                file=each.file,
                line=each.line,
                column=each.column,
            )
            for each in rules.not_understood
        ]
    sources = {document.file: document.source for document in loaded.documents}
    if rules is not None:
        sources |= rules.sources
    broken = {problem.file for problem in loaded.problems}
    # What several cases inherit is found in each.
    looked_for = frozenset(LintCode) - (NEEDS_RULES if rules is None else frozenset())
    lints, problems = apply_allows(dict.fromkeys(found), sources, sources.keys() - broken, looked_for)
    return Advice(lints=tuple(lints), problems=tuple(problems))


_KINDS = frozenset(kind.value for kind in TargetKind)


def _lint_policy(document: Document) -> Iterator[Lint]:
    """Lines of a policy that fit no target. Each stands for itself."""
    root = document.root.value
    if not isinstance(root, dict) or "policy" not in root:
        return
    for key in ("protect", "require_label"):
        node = root.get(key)
        lines = [] if node is None else node.value if isinstance(node.value, list) else [node]
        for line in lines:
            try:
                matcher = parse_matcher(line.text)
            except MatcherSyntaxError:  # told as a problem
                continue
            never = [str(one) for one in contradiction(by_label([matcher])[matcher.label])]
            if matcher.label == "kind" and not any(matcher.matches({"kind": kind}) for kind in _KINDS):
                never = [f"{matcher} (the kinds are {', '.join(sorted(_KINDS))})"]
            if never:
                message = f"{never[0]} never holds, so this line fits no target"
                yield Lint(
                    code=LintCode.MATCHER_NEVER_HOLDS,
                    message=message,
                    file=document.file,
                    line=line.line,
                    column=line.column,
                )
