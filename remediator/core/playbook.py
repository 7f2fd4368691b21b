"""A playbook as it acts: parsed, checked, every default filled in, cases merged with the keys above them.

``loading`` makes these from YAML; nothing else does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from remediator.core.action import JsonValue, UndoWhen
from remediator.core.condition import Check, Comparison, Condition
from remediator.core.matcher import Matcher
from remediator.core.policy import Limit, Mode, Policy, Share
from remediator.core.render import Context, Expression, ParamTemplate
from remediator.core.retry import RetryPolicy


class OnFailure(StrEnum):
    """What a failed step means for the run."""

    STOP = "stop"
    CONTINUE = "continue"


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxTargets:
    """At most so many different targets changed by this playbook, in any window of ``per``.

    Attributes:
        limit: a count, or a share of a fleet.
    """

    limit: int | Share
    per: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardRules:
    """A playbook's own limits.

    Attributes:
        cooldown: since the last disruptive act on any target, and since this playbook last acted here; 0 = none.
        max_runs: None = not limited.
        tell_after: a plan that waits for its turn this long is told to people, once.
    """

    cooldown: timedelta
    max_runs: Limit | None
    tell_after: timedelta
    max_targets: MaxTargets | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionTemplate:
    """A condition as written: its query still holds templates."""

    name: str
    query: ParamTemplate
    comparison: Comparison
    bound: str

    def render(self, context: Context) -> Condition:
        """With the alert's values in its query.

        Raises:
            MissingValueError, TemplateError: as ``ParamTemplate.render``.
        """
        query = str(self.query.render(context))
        return Condition(name=self.name, query=query, comparison=self.comparison, bound=self.bound)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckTemplate:
    """One entry of ``verify`` as written; see ``core.condition.Check``."""

    within: timedelta
    condition: ConditionTemplate | None = None
    settle: timedelta = timedelta(0)
    holds: timedelta = timedelta(0)

    def render(self, context: Context) -> Check:
        """With the alert's values. Raises as ``ConditionTemplate.render``."""
        condition = None if self.condition is None else self.condition.render(context)
        return Check(within=self.within, condition=condition, settle=self.settle, holds=self.holds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """People are asked before it acts.

    Attributes:
        ask: names of notification targets, not empty.
        expires: no answer by then is a no; time in which the engine was away does not count.
    """

    ask: tuple[str, ...]
    expires: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoTemplate:
    """When an act is taken back.

    Attributes:
        when: the step's own word, else the playbook's (which never lifts an action's ``never``), else the action's.
        after: so long after the resolve, and between two undos of one run.
        require: must hold; asked every minute.
        at_most: from the act on, the longest that it stays.
    """

    when: UndoWhen
    after: timedelta
    at_most: timedelta
    require: tuple[ConditionTemplate, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One action with params.

    Attributes:
        name: unique in its list; ``step_2`` and so on when the file names none.
        action: id of a registered action.
        params: field → template tree; fields that the file leaves out and the model defaults are absent.
        condition: the ``if``; None = always.
        timeout: of one attempt.
        rung: of the ladder, from 1; 0 where there is no ladder.
        verify: must hold after it, else the step is failed.
        undo: None where its action cannot be undone.
        line: in the file, 1-based.
    """

    name: str
    action: str
    params: Mapping[str, ParamTemplate]
    condition: Expression | None
    timeout: timedelta
    retry: RetryPolicy
    on_failure: OnFailure
    rung: int = 0
    verify: tuple[CheckTemplate, ...] = ()
    undo: UndoTemplate | None = None
    approval: Approval | None = None
    line: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A variant of a playbook by matcher, complete. A playbook without ``cases`` has exactly one, named "".

    Attributes:
        ignore: why alerts of this case are left alone, None for a case that acts.
        per: label names (or cluster, host, node) that make the subject; None = the whole label set.
        ladder: a run within this time of the last one starts one rung higher; None = no ladder.
        approval: people are asked before any step, and for each rung.
        require: conditions that must hold just before acting.
        resolved: steps for when it is over.
        report_to, escalate_to: names of notification targets, () = nobody.
    """

    name: str
    match: tuple[Matcher, ...]
    ignore: str | None
    mode: Mode
    owner: str
    per: tuple[str, ...] | None
    stop_on_resolve: bool
    latched: bool
    hold: timedelta
    guard: GuardRules
    steps: tuple[Step, ...]
    verify: tuple[CheckTemplate, ...]
    resolved: tuple[Step, ...]
    report_to: tuple[str, ...]
    escalate_to: tuple[str, ...]
    ladder: timedelta | None = None
    approval: Approval | None = None
    require: tuple[ConditionTemplate, ...] = ()

    @property
    def conditions(self) -> tuple[ConditionTemplate, ...]:
        """All that a Prometheus is asked for it."""
        checks = [*self.verify, *(check for step in self.steps for check in step.verify)]
        return (
            *self.require,
            *(check.condition for check in checks if check.condition is not None),
            *(condition for step in self.steps if step.undo is not None for condition in step.undo.require),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Playbook:
    """One YAML document.

    Attributes:
        match: must all hold, before any case is looked at.
        sha256: hex of the document's text; a run keeps it.
        able_key: hex over what decides which alerts it can act on (match, per, cases' matchers, mode):
            when it changes, what already fires is adopted, not acted on.
        file, line: where it stands.
    """

    name: str
    description: str
    match: tuple[Matcher, ...]
    cases: tuple[Case, ...]
    sha256: str
    able_key: str
    file: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelMap:
    """Which labels say where an alert comes from, first that is present and not empty wins.

    Attributes:
        host, cluster, node: label names in order.
        only_host, only_cluster: the one that is configured, "" when there are none or several: the default.
        prometheus: names of the configured Prometheus servers: a plan asks the one called like its cluster, or the
            only one.
    """

    host: tuple[str, ...] = ("hostname", "Hostname", "instance")
    cluster: tuple[str, ...] = ("cluster",)
    node: tuple[str, ...] = ("node", "hostname", "Hostname", "instance")
    only_host: str = ""
    only_cluster: str = ""
    prometheus: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaybookSet:
    """All that is in force at one moment; replaced whole by a reload.

    Attributes:
        playbooks: in file order; names are unique.
        policy: merged.
        label_map: from settings.
        ignore_labels: replica labels, left out of the default ``per``.
        vars: site values for templates.
        public_url: of this engine, for ``run.url``; "" when not set.
    """

    playbooks: tuple[Playbook, ...] = ()
    policy: Policy = field(default_factory=Policy)
    label_map: LabelMap = field(default_factory=LabelMap)
    ignore_labels: frozenset[str] = frozenset()
    vars: Mapping[str, JsonValue] = field(default_factory=dict)
    public_url: str = ""

    def named(self, name: str) -> Playbook | None:
        """The playbook of this name, None when it is gone."""
        return next((playbook for playbook in self.playbooks if playbook.name == name), None)
