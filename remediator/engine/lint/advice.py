"""What lint says: one piece of advice, with its code and its place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from remediator.core.playbook import Case, Playbook
from remediator.loading.document import Document, Node, Path


class LintCode(StrEnum):
    """What a piece of advice is about; each has a page, ``docs/lint/CODE.md``."""

    CASE_NEVER_REACHED = "case-never-reached"
    HOLD_NEEDS_API = "hold-needs-api"
    LABEL_NOT_KEPT = "label-not-kept"
    LADDER_WITHOUT_VERIFY = "ladder-without-verify"
    MATCHER_NEVER_HOLDS = "matcher-never-holds"
    NO_ESCALATION = "no-escalation"
    NO_RULE_TRIGGERS = "no-rule-triggers"
    POD_IS_EXPORTER = "pod-is-exporter"
    QUERY_NEEDS_PROMETHEUS = "query-needs-prometheus"
    RULE_NOT_UNDERSTOOD = "rule-not-understood"
    SAME_TARGET = "same-target"
    SILENCE_HIDES_RESOLVE = "silence-hides-resolve"
    UNUSED_ALLOW = "unused-allow"
    VERIFY_TOO_WIDE = "verify-too-wide"


NEEDS_RULES = frozenset({LintCode.LABEL_NOT_KEPT, LintCode.NO_RULE_TRIGGERS, LintCode.RULE_NOT_UNDERSTOOD})
"""What cannot be found where no rules are given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lint:
    """One piece of advice.

    Attributes:
        message: what is odd, and what to write instead.
        file, line, column: where; line and column are 1-based.
    """

    code: LintCode
    message: str
    file: str
    line: int
    column: int

    @property
    def page(self) -> str:
        """What explains it, in the project's folder."""
        return f"docs/lint/{self.code}.md"


class Written:
    """A playbook with the places of its keys.

    Attributes:
        playbook: as it acts.
    """

    def __init__(self, playbook: Playbook, document: Document) -> None:
        self.playbook = playbook
        self._document = document
        root = document.root.value
        self._has_cases = isinstance(root, dict) and "cases" in root

    @property
    def acting(self) -> Iterator[tuple[int, Case]]:
        """Each case that does not leave its alerts alone, with its number."""
        return ((index, case) for index, case in enumerate(self.playbook.cases) if case.ignore is None)

    def path(self, index: int, *keys: str | int) -> Path:
        """Where a key of a case stands: in the case, or above the cases where it is from there.

        Args:
            index: of the case.
            keys: the way to it from the case.

        Returns:
            Its path, or that of the case or playbook where it is written nowhere.
        """
        case: Path = ("cases", index) if self._has_cases else ()
        for path in ((*case, *keys), keys):
            if self._document.root.find(path) is not None:
                return path
        return case or ("playbook",)

    def matchers_path(self, index: int, place: int) -> Path:
        """Where a matcher of the playbook's and then the case's stands."""
        n_shared = len(self.playbook.match)
        return ("match", place) if place < n_shared else ("cases", index, "match", place - n_shared)

    def node(self, path: Path) -> Node:
        """What stands there, or the nearest above."""
        return self._document.root.at(path)

    def lint(self, code: LintCode, message: str, path: Path) -> Lint:
        """A piece of advice about what stands at a path."""
        node = self.node(path)
        message = f"playbook {self.playbook.name}: {message}"
        return Lint(code=code, message=message, file=self._document.file, line=node.line, column=node.column)
