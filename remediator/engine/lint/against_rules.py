"""Playbooks held against the alerts that Prometheus' rules can raise.

Takes ``Written`` playbooks and the ``Rules`` that were given, gives ``Lint``s. Must never: say that something cannot be
where a rule leaves it open.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence

from remediator.core.action import ALL_LABELS, JsonValue, LookingActions
from remediator.core.matcher import Matcher
from remediator.core.playbook import Case, LabelMap
from remediator.core.policy import Mode
from remediator.core.render import ParamTemplate
from remediator.engine.lint.advice import Lint, LintCode, Written
from remediator.engine.lint.matching import all_hold, by_label, can_hold, possible_values
from remediator.engine.lint.reading import Read, labels_in, reads
from remediator.errors import MissingValueError, TemplateError
from remediator.loading.promql import ABSENT, Values
from remediator.loading.rules import AlertRule, Rules


class KnownAlerts:
    """The alerts that can be, by name.

    Args:
        rules: what was read.
        added: labels that others than the rule may add, so that their lack is not known: external labels.
    """

    def __init__(self, rules: Rules, added: frozenset[str]) -> None:
        self.rules = rules
        self._added = added
        self._by_name: dict[str, list[AlertRule]] = {}
        for rule in rules.alerts:
            self._by_name.setdefault(rule.name, []).append(rule)

    def values(self, rule: AlertRule, label: str) -> Values:
        """What a label of a rule's alerts can be."""
        values = rule.labels.values(label)
        return None if values == ABSENT and label in self._added else values

    def named_so(self, matchers: Iterable[Matcher]) -> Sequence[AlertRule]:
        """The rules whose names fit, without asking each."""
        names = possible_values(matcher for matcher in matchers if matcher.label == "alertname")
        if names is None:
            return self.rules.alerts
        return [rule for name in sorted(names) for rule in self._by_name.get(name, ())]

    def nearest(self, names: Iterable[str]) -> str:
        """``; did you mean …?``, or ""."""
        for name in names:
            if close := difflib.get_close_matches(name, self._by_name, n=1):
                return f"; did you mean {close[0]}?"
        return ""

    def obstacle(self, rule: AlertRule, matchers: Mapping[str, Sequence[Matcher]]) -> Matcher | None:
        """The first matcher that none of a rule's alerts fits."""
        for label, some in matchers.items():
            values = self.values(rule, label)
            if values is not None and not any(all_hold(some, value) for value in values):
                return next((one for one in some if not any(all_hold((one,), value) for value in values)), some[0])
        return None

    def always_fits(self, rule: AlertRule, matchers: Iterable[Matcher]) -> bool:
        """Whether all of a rule's alerts fit."""
        return all(
            (values := self.values(rule, matcher.label)) is not None
            and all(all_hold((matcher,), value) for value in values)
            for matcher in matchers
        )


def lint_against_rules(
    written: Written, alerts: KnownAlerts, actions: LookingActions, label_map: LabelMap
) -> Iterator[Lint]:
    """Playbooks and cases that no rule triggers, and labels that the rules which do trigger them do not give.

    Args:
        actions: the registry, for what params are where they are left out.
    """
    playbook = written.playbook
    shared = by_label(playbook.match)
    if not can_hold(shared):  # told as such
        return
    named = alerts.named_so(playbook.match)
    fitting = [rule for rule in named if alerts.obstacle(rule, shared) is None]
    if not fitting:
        yield _no_rule(written, alerts, named, shared)
        return
    for index, case in enumerate(playbook.cases):
        given = by_label((*playbook.match, *case.match))
        if not can_hold(given):
            continue
        left = [
            rule
            for rule in fitting
            if not any(alerts.always_fits(rule, earlier.match) for earlier in playbook.cases[:index])
        ]
        taking = [rule for rule in left if alerts.obstacle(rule, given) is None]
        if not taking and case.match:
            yield _no_rule_for_case(written, alerts, index, fitting, given)
        elif case.ignore is None and case.mode is not Mode.DISABLED:
            every = (*reads(written, index, case), *_defaults(written, index, case, actions))
            yield from _not_kept(written, alerts, every, taking, label_map)


def _no_rule(
    written: Written,
    alerts: KnownAlerts,
    named: Sequence[AlertRule],
    matchers: Mapping[str, Sequence[Matcher]],
) -> Lint:
    names = possible_values(matchers.get("alertname", ()))
    if not named or not names:
        asked = " or ".join(sorted(names)) if names else "what it matches"
        near = alerts.nearest(sorted(names or ()))
        message = f"no rule given raises {asked}{near}"
        some = matchers.get("alertname") or next(iter(matchers.values()))
        matcher = some[0]
    else:
        rule = named[0]
        matcher = alerts.obstacle(rule, matchers) or written.playbook.match[0]
        message = f"no rule given triggers it: {_why_not(alerts, rule, matcher)}"
    path = written.matchers_path(0, written.playbook.match.index(matcher))
    return written.lint(LintCode.NO_RULE_TRIGGERS, message, path)


def _no_rule_for_case(
    written: Written,
    alerts: KnownAlerts,
    index: int,
    fitting: Sequence[AlertRule],
    given: Mapping[str, Sequence[Matcher]],
) -> Lint:
    case = written.playbook.cases[index]
    rule = fitting[0]
    matcher = alerts.obstacle(rule, given)
    why = _why_not(alerts, rule, matcher) if matcher is not None else "the cases before it take all there are"
    path = written.path(index)
    if matcher in case.match:
        path = written.path(index, "match", case.match.index(matcher))
    return written.lint(LintCode.NO_RULE_TRIGGERS, f"no rule given triggers its case {case.name}: {why}", path)


def _why_not(alerts: KnownAlerts, rule: AlertRule, matcher: Matcher) -> str:
    values = alerts.values(rule, matcher.label)
    if values is None or values == ABSENT:
        return f"the alerts of {rule.name} ({rule.place}) have no label {matcher.label}, and it wants {matcher}"
    shown = " or ".join(f'"{value}"' for value in sorted(values))
    return f"in the alerts of {rule.name} ({rule.place}) {matcher.label} is {shown}, and it wants {matcher}"


def _defaults(written: Written, index: int, case: Case, actions: LookingActions) -> Iterator[Read]:
    """Params that a step leaves out and that are read from the alert all the same."""
    for place, step in enumerate(case.steps):
        action = actions.get(step.action)
        for name, default in (action.param_defaults if action is not None else {}).items():
            if name not in step.params and default != ALL_LABELS:
                template = ParamTemplate.parse(default)
                yield Read(
                    path=written.path(index, "steps", place),
                    labels=frozenset(labels_in(template.names)),
                    action=step.action,
                    template=template,
                    condition=step.condition,
                )


def _not_kept(
    written: Written, alerts: KnownAlerts, every: Iterable[Read], taking: Sequence[AlertRule], label_map: LabelMap
) -> Iterator[Lint]:
    for read in every:
        if read.template is not None:
            for rule in taking:
                if missing := _missing(read, rule, alerts, label_map):
                    what = "its plan is refused"
                    yield _lint_label(written, read, rule, missing, what)
                    break
        elif read.path[-2:-1] == ("per",):
            (label,) = read.labels
            for rule in taking:
                if _is_absent(label, rule, alerts, label_map):
                    yield _lint_label(written, read, rule, label, "every such alert is refused")
                    break
        elif read.is_if:
            for label in sorted(read.labels):
                if taking and all(_is_absent(label, rule, alerts, label_map) for rule in taking):
                    yield _lint_label(written, read, taking[0], label, 'here it is always ""')
                    break


def _lint_label(written: Written, read: Read, rule: AlertRule, label: str, what: str) -> Lint:
    which = f"for the {label}" if label in ("host", "cluster", "node") else label
    message = (
        f"the alerts of {rule.name} ({rule.place}) have no label {which}, so {what}; keep it in the rule's expression"
        " (by, without), or do without it here"
    )
    return written.lint(LintCode.LABEL_NOT_KEPT, message, read.path)


def _is_absent(label: str, rule: AlertRule, alerts: KnownAlerts, label_map: LabelMap) -> bool:
    """Whether no alert of the rule has it. A place is found by any of its labels."""
    match label:
        case "host":
            return not label_map.only_host and _are_absent(label_map.host, rule, alerts)
        case "cluster":
            return not label_map.only_cluster and _are_absent(label_map.cluster, rule, alerts)
        case "node":
            return _are_absent(label_map.node, rule, alerts)
        case _:
            return _are_absent((label,), rule, alerts)


def _are_absent(labels: Iterable[str], rule: AlertRule, alerts: KnownAlerts) -> bool:
    return all(alerts.values(rule, label) == ABSENT for label in labels)


def _missing(read: Read, rule: AlertRule, alerts: KnownAlerts, label_map: LabelMap) -> str:
    """The label for whose lack a template cannot be rendered for any of a rule's alerts, "" for none.

    It is rendered, with a value for all that may have one: so a `default` counts as it does in a plan.
    """
    assert read.template is not None
    labels = {label for label in read.labels if alerts.values(rule, label) == ABSENT}
    places = {
        place
        for place in ("host", "node", "cluster")
        if place in read.template.names and _is_absent(place, rule, alerts, label_map)
    }
    # A step whose `if` looks at the label too is skipped where it is not there.
    guarded = read.condition.names if read.condition is not None else frozenset()
    if not (labels or places) or any(_name(label) in guarded for label in labels):
        return ""
    context: dict[str, JsonValue] = {"labels": {}}
    for name in read.template.names:
        if name not in places and name not in {_name(label) for label in labels}:
            _put(context, name)
    try:
        read.template.render(context)
    except MissingValueError as error:
        if error.name in places:
            return error.name
        return next((label for label in sorted(labels) if _name(label) == error.name), "")
    except TemplateError:  # the value that we made up does not fit its filter
        return ""
    return ""


def _name(label: str) -> str:
    """As a template's names have it."""
    return f"labels.{label}" if label.isidentifier() else f'labels["{label}"]'


def _put(context: dict[str, JsonValue], name: str) -> None:
    """Give a name a value: ``labels.pod``, ``labels["host.name"]``, ``steps.restart.outcome``."""
    root, bracket, odd = name.partition('["')
    parts = [*root.split("."), odd.removesuffix('"]')] if bracket else root.split(".")
    inner = context
    for part in parts[:-1]:
        below = inner.setdefault(part, {})
        if not isinstance(below, dict):
            return
        inner = below
    inner.setdefault(parts[-1], "1")
