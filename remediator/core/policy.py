"""A site's own limits over all playbooks, and the modes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from remediator.core.matcher import Matcher


class Mode(StrEnum):
    """What a playbook, or the whole engine, may do. The strictest of both holds."""

    ENFORCE = "enforce"
    OBSERVE = "observe"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectLine:
    """One line of ``protect``: a target that it fits is never touched.

    Attributes:
        text: as written, for the refusal's reason.
        matcher: on kind, cluster, host, node, namespace, name, or one of the real object's labels.
    """

    text: str
    matcher: Matcher


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """All policies in force, merged: every protect line of each, the smallest limit, the strictest mode.

    Attributes:
        name: of the document, "default" when there is none.
        protect: the site's lines and the built-in ones (see ``core.guard``).
        max_concurrent_runs: runs that act or verify at once, >= 1.
        mode: enforce or observe.
        file: where it stands, "" for the default.
    """

    name: str = "default"
    protect: tuple[ProtectLine, ...] = ()
    max_concurrent_runs: int = 4
    mode: Mode = Mode.ENFORCE
    file: str = ""
