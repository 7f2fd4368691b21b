"""A site's own limits over all playbooks, and the modes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from remediator.core.action import TargetKind
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
class Limit:
    """At most ``count`` in any window of ``per``."""

    count: int
    per: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A share of a fleet: rounded down, at least 1.

    Attributes:
        percent: 1 to 100.
        of: the fleet, by its name in the settings.
    """

    percent: int
    of: str

    def of_size(self, size: int) -> int:
        """How many that are."""
        return max(1, size * self.percent // 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Targets of one kind that the settings give a name, so that limits can be shares of them.

    Attributes:
        size: how many there are; None where ``query`` asks Prometheus.
        query: PromQL that gives the size, "" where ``size`` says it.
    """

    name: str
    kind: TargetKind
    size: int | None = None
    query: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """Trips when the next act would change more than ``share`` of a fleet, or after ``or_failures`` runs without a fix.

    Attributes:
        name: of its policy.
        within: the window that both are counted in; from zero after a reset.
        or_failures: runs that ended failed, ineffective or unknown; None = not counted.
    """

    name: str
    share: Share
    within: timedelta
    or_failures: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """All policies in force, merged: every protect line of each, the smallest limit, the strictest mode.

    Attributes:
        name: of the document, "default" when there is none.
        protect: the site's lines; the built-in ones are ``core.guard``'s.
        require_labels: a target must fit each of these by its real object's labels.
        max_disruptive_acts: over all playbooks; each limit holds.
        breakers: one of each policy that has one.
        fleets: by name, from the settings.
        max_concurrent_runs: runs that act or verify at once, >= 1.
        mode: enforce or observe.
        file: where it stands, "" for the default.
    """

    name: str = "default"
    protect: tuple[ProtectLine, ...] = ()
    require_labels: tuple[ProtectLine, ...] = ()
    max_disruptive_acts: tuple[Limit, ...] = ()
    breakers: tuple[Breaker, ...] = ()
    fleets: Mapping[str, Fleet] = field(default_factory=dict)
    max_concurrent_runs: int = 4
    mode: Mode = Mode.ENFORCE
    file: str = ""
