"""Checked documents → ``Playbook`` and ``Policy``, complete: cases merged, defaults filled in, names looked up.

Takes one ``Document`` and what the site has (``LoadContext``), gives the value or None, and adds every problem that it
meets to a list. Must never: stop at the first problem, or let a key through that does not act.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from remediator.core.action import JsonValue, LookingAction, LookingActions, UndoWhen
from remediator.core.condition import Comparison
from remediator.core.matcher import Matcher
from remediator.core.playbook import (
    Approval,
    Case,
    CheckTemplate,
    ConditionTemplate,
    GuardRules,
    LabelMap,
    MaxTargets,
    OnFailure,
    Playbook,
    Step,
    UndoTemplate,
)
from remediator.core.policy import Breaker, Fleet, Limit, Mode, Policy, ProtectLine, Share
from remediator.core.render import ParamTemplate, is_late
from remediator.core.retry import RetryPolicy
from remediator.core.units import cut, print_duration
from remediator.errors import (
    ParamsError,
    TemplateError,
    UnknownActionError,
)
from remediator.loading.document import Document, Node, Path
from remediator.loading.format import (
    DEFAULT_WITHIN,
    ApprovalKeys,
    CaseKeys,
    ConditionKeys,
    GuardKeys,
    NamedCaseKeys,
    PlaybookKeys,
    PolicyKeys,
    RetryKeys,
    StepKeys,
    UndoKeys,
    VerifyKeys,
    default_name,
)
from remediator.loading.read import Problems, fields, in_words, read_keys, suggest

DEFAULT_COOLDOWN = timedelta(minutes=30)
"""A trainer loads its checkpoint and fills the GPU again in that time: sooner, the act's effect cannot be seen."""

DEFAULT_MAX_RUNS = Limit(count=3, per=timedelta(hours=24))
"""What three restarts a day do not mend, a fourth will not: a person has to look."""

DEFAULT_TELL_AFTER = timedelta(hours=1)
"""Longer than a cooldown that was not written: a plan that merely waits for that wakes nobody."""

DEFAULT_EXPIRES = timedelta(minutes=30)
"""Who is asked by a page answers within minutes or is asleep; later the question is about another situation."""

DEFAULT_AFTER = timedelta(minutes=10)
"""A fault that comes back does so within minutes of losing its remedy: longer than a rule's `for` and a few scrapes."""

DEFAULT_AT_MOST = timedelta(hours=12)
"""What was meant for an hour must not stay for weeks; half a day reaches into somebody's working hours."""

DEFAULT_ATTEMPTS = 3
DEFAULT_WAIT = timedelta(seconds=2)
DEFAULT_MAX_WAIT = timedelta(seconds=30)
DEFAULT_JITTER_PCT = 20
DEFAULT_BUDGET = timedelta(minutes=10)
"""Retries bridge a hiccup (a reset connection, a Docker engine that restarts within seconds), spread by a fifth so that
many runs do not come at once. What is away for longer is told to people; 10 minutes bound slow attempts too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadContext:
    """What playbooks are checked against: the site's settings and the actions there are.

    Attributes:
        label_map, ignore_labels, vars, public_url: handed on in the ``PlaybookSet``.
        notify_targets: names that messages may be sent to; None = any, as in playbook tests.
        default_report_to, default_escalate_to: where a playbook names none.
        actions: the registry.
        fleets: by name, from the settings; what shares are of.
        unusable: action → what the settings lack for it.
    """

    label_map: LabelMap = field(default_factory=LabelMap)
    ignore_labels: frozenset[str] = frozenset()
    vars: Mapping[str, JsonValue] = field(default_factory=dict)
    public_url: str = ""
    notify_targets: frozenset[str] | None = frozenset()
    default_report_to: tuple[str, ...] = ()
    default_escalate_to: tuple[str, ...] = ()
    actions: LookingActions = field(default_factory=dict)
    fleets: Mapping[str, Fleet] = field(default_factory=dict)
    unusable: Mapping[str, str] = field(default_factory=dict)


def read_policy(document: Document, context: LoadContext, problems: Problems) -> PolicyKeys | None:
    """A policy's keys, held against the site."""
    keys = read_keys(document, PolicyKeys, problems)
    if keys is not None and keys.breaker is not None:
        check_fleet(keys.breaker.of, ("breaker", "of"), context, problems)
    return keys


def check_fleet(name: str, path: Path, context: LoadContext, problems: Problems) -> None:
    """Whether the settings name this fleet."""
    if name not in context.fleets:
        known = suggest(name, context.fleets) or "; the settings name none (fleets.NAME)"
        problems.add(path, f"there is no fleet {cut(name, 80)!r}{known}")


def merge_policies(policies: Sequence[tuple[Document, PolicyKeys]], fleets: Mapping[str, Fleet]) -> Policy:
    """Several policies as one: every line, label, limit and breaker of each, the strictest mode.

    Args:
        fleets: handed on.
    """
    if not policies:
        return Policy(fleets=fleets)
    defaults = Policy()
    limits = [keys.max_concurrent_runs for _, keys in policies if keys.max_concurrent_runs is not None]
    return Policy(
        name=", ".join(keys.policy for _, keys in policies),
        protect=tuple(
            ProtectLine(text=document.root.at(("protect", index)).text, matcher=matcher)
            for document, keys in policies
            for index, matcher in enumerate(keys.protect or ())
        ),
        require_labels=tuple(
            ProtectLine(text=document.root.at(("require_label",)).text, matcher=keys.require_label)
            for document, keys in policies
            if keys.require_label is not None
        ),
        max_disruptive_acts=tuple(
            Limit(count=limit.count, per=limit.per)
            for _, keys in policies
            if (limit := keys.max_disruptive_acts) is not None
        ),
        breakers=tuple(
            Breaker(
                name=keys.policy,
                share=Share(percent=breaker.percent, of=breaker.of),
                within=breaker.within,
                or_failures=breaker.or_failures,
            )
            for _, keys in policies
            if (breaker := keys.breaker) is not None
        ),
        fleets=fleets,
        max_concurrent_runs=min(limits, default=defaults.max_concurrent_runs),
        mode=Mode.OBSERVE if any(keys.mode == "observe" for _, keys in policies) else defaults.mode,
        file=policies[0][0].file,
    )


def build_playbook(document: Document, context: LoadContext, policy: Policy, problems: Problems) -> Playbook | None:
    """A playbook as it acts; None when something is wrong with it.

    Args:
        policy: in force with it, whose limits it must be able to keep.
    """
    keys = read_keys(document, PlaybookKeys, problems)
    if keys is None:
        return None
    builder = _Builder(document, context, policy, problems, keys)
    cases = builder.cases()
    builder.tell_idle_keys()
    if problems.found:
        return None
    return Playbook(
        name=keys.playbook,
        description=keys.description,
        match=tuple(keys.match),
        cases=cases,
        sha256=document.sha256,
        able_key=_able_key(keys.match, cases),
        file=document.file,
        line=document.root.line,
    )


def _able_key(match: Sequence[Matcher], cases: Sequence[Case]) -> str:
    """What decides which alerts it can act on: the order of matchers does not, that of cases does."""
    able = {
        "match": sorted(str(matcher) for matcher in match),
        "cases": [
            {"name": case.name, "match": sorted(str(matcher) for matcher in case.match)}
            | ({"per": sorted(case.per or ()), "mode": case.mode.value} if case.ignore is None else {"ignored": True})
            for case in cases
        ],
    }
    return hashlib.sha256(json.dumps(able, sort_keys=True).encode()).hexdigest()


@dataclass(slots=True, kw_only=True)
class _Scope:
    """What the parts of one case share.

    Attributes:
        where: key → path of the case that wrote it; absent = it stands above the cases.
        undo, undo_require: of the playbook or case, for each step.
        query_of: name of a condition → what it asks: tests and messages know it by its name.
    """

    per: tuple[str, ...] | None
    where: Mapping[str, Path]
    is_latched: bool
    undo: UndoKeys | None
    undo_require: tuple[ConditionTemplate, ...] = ()
    query_of: dict[str, JsonValue] = field(default_factory=dict)

    def path(self, key: str) -> Path:
        """Where a key of the case stands."""
        return (*self.where.get(key, ()), key)

    def guard_path(self, key: str) -> Path:
        """Where a key of its guard stands."""
        return (*self.where.get(f"guard.{key}", ()), "guard", key)


class _Builder:
    """Merges and fills in one playbook's cases."""

    def __init__(
        self, document: Document, context: LoadContext, policy: Policy, problems: Problems, keys: PlaybookKeys
    ) -> None:
        self._document = document
        self._context = context
        self._policy = policy
        self._problems = problems
        self._keys = keys
        # What was taken out for its own problem must not be missed here too.
        self._is_whole = not problems.found
        self._idle: dict[Path, str] = {}
        self._busy: set[Path] = set()

    def cases(self) -> tuple[Case, ...]:
        if self._keys.cases is None:
            return (self._case("", (), self._keys, {}),)
        if self._is_whole:
            self._check_cases(self._keys.cases)
        return tuple(self._named_case(index, case) for index, case in enumerate(self._keys.cases))

    def tell_idle_keys(self) -> None:
        """A key that stands above several cases may mean nothing to some of them, but not to all."""
        for path, message in self._idle.items():
            if path not in self._busy and self._is_whole:
                self._problems.add(path, message)

    def _note(self, path: Path, is_busy: bool, message: str) -> None:
        """Remember whether a key means something to a case, and what to say if it does to none."""
        self._idle.setdefault(path, message)
        if is_busy:
            self._busy.add(path)

    def _check_cases(self, cases: Sequence[NamedCaseKeys]) -> None:
        names: dict[str, int] = {}
        for index, case in enumerate(cases):
            if case.name in names:
                self._problems.add(("cases", index, "name"), f"two cases are called {case.name!r}")
            names[case.name] = index
            wanted = {*(case.match or ()), *self._keys.match}
            for earlier in cases[:index]:
                if {*(earlier.match or ())} <= wanted:
                    self._problems.add(
                        ("cases", index),
                        f"the case {case.name!r} is never reached: whatever it fits, {earlier.name!r} before it fits"
                        " too; move it up or remove it",
                    )
                    break

    def _named_case(self, index: int, case: NamedCaseKeys) -> Case:
        """The case's keys over the playbook's, the guard's one by one; each keeps the place that it came from."""
        own = case.model_fields_set & CaseKeys.model_fields.keys()
        values = {name: getattr(case if name in own else self._keys, name) for name in CaseKeys.model_fields}
        if case.guard and self._keys.guard:
            set_here = {name: getattr(case.guard, name) for name in case.guard.model_fields_set}
            values["guard"] = self._keys.guard.model_copy(update=set_here)
        where: dict[str, Path] = dict.fromkeys(own, ("cases", index))
        for name in case.guard.model_fields_set if case.guard else ():
            where[f"guard.{name}"] = ("cases", index)
        merged = CaseKeys.model_construct(**values)
        return self._case(case.name, tuple(case.match or ()), merged, where, ignore=case.ignore, index=index)

    def _case(
        self,
        name: str,
        match: tuple[Matcher, ...],
        keys: CaseKeys,
        where: Mapping[str, Path],
        *,
        ignore: str | None = None,
        index: int | None = None,
    ) -> Case:
        per = None if keys.per is None else tuple(keys.per)
        if per is not None and len({*per}) < len(per):
            self._problems.add((*where.get("per", ()), "per"), "`per` names a label twice")
        scope = _Scope(per=per, where=where, is_latched=bool(keys.latched), undo=keys.undo)
        steps: tuple[Step, ...] = ()
        resolved: tuple[Step, ...] = ()
        verify = self._checks(keys.verify or (), scope.path("verify"), "verify", scope)
        require = self._require(keys.guard, scope)
        if keys.undo is not None:
            scope.undo_require = self._conditions(
                keys.undo.require or (), (*scope.path("undo"), "require"), "undo_require", scope
            )
        if ignore is None:
            if not keys.steps and self._is_whole:
                top: Path = ("playbook",) if index is None else ("cases", index)
                or_not = "" if index is None else ", or why not with `ignore`"
                self._problems.add(top, f"`steps` is missing: say what to do{or_not}")
            steps = self._steps(keys.steps or (), scope.path("steps"), scope)
            done = [step.name for step in steps]
            resolved = self._steps(keys.resolved or (), scope.path("resolved"), scope, done)
            self._check_resolved(keys.resolved or (), scope.path("resolved"))
            if len(steps) == len(keys.steps or ()):
                self._check_undo(steps, keys, scope)
                self._check_ladder(steps, keys, scope)
                self._check_acts(steps, scope)
        return Case(
            name=name,
            match=match,
            ignore=ignore,
            mode=keys.mode or Mode.ENFORCE,
            owner=keys.owner or "",
            per=per,
            stop_on_resolve=bool(keys.stop_on_resolve),
            latched=bool(keys.latched),
            hold=keys.hold or timedelta(0),
            guard=self._guard(keys.guard or GuardKeys(), steps, scope),
            steps=steps,
            verify=verify,
            resolved=resolved,
            report_to=self._told("report", keys, where, self._context.default_report_to),
            escalate_to=self._told("escalate", keys, where, self._context.default_escalate_to),
            ladder=keys.ladder.within if keys.ladder and any(step.rung for step in steps) else None,
            approval=self._case_approval(keys.approval, steps, scope),
            require=require,
        )

    def _is_message(self, step: Step) -> bool:
        return self._context.actions[step.action].is_message

    def _case_approval(self, keys: ApprovalKeys | None, steps: Sequence[Step], scope: _Scope) -> Approval | None:
        if keys is None:
            return None
        path = scope.path("approval")
        approval = self._approval(keys, path)
        acts = [step for step in steps if not self._is_message(step)]
        # Without steps, something else is wrong, and told.
        self._note(path, bool(acts) or not steps, "messages alone ask nobody; remove `approval`")
        return approval if acts else None

    def _approval(self, keys: ApprovalKeys, path: Path) -> Approval:
        self._check_targets(keys.ask, (*path, "ask"))
        return Approval(ask=tuple(keys.ask), expires=keys.expires or DEFAULT_EXPIRES)

    def _check_ladder(self, steps: Sequence[Step], keys: CaseKeys, scope: _Scope) -> None:
        has_rungs = any(step.rung for step in steps)
        if keys.ladder is None:
            if has_rungs and self._is_whole:
                what = "steps with `rung` need a ladder; write ladder: {within: 6h} beside `steps`"
                self._problems.add(scope.path("steps"), what)
            return
        what = "`ladder` needs steps with rungs; write rung: 1, rung: 2, … on the steps"
        self._note(scope.path("ladder"), has_rungs or not steps, what)
        if has_rungs and not keys.verify and self._is_whole and not all(self._is_message(step) for step in steps):
            what = "a ladder climbs when `verify` says that a rung did not help; write `verify`"
            self._problems.add(scope.path("ladder"), what)

    def _check_undo(self, steps: Sequence[Step], keys: CaseKeys, scope: _Scope) -> None:
        """Whether the ``undo`` above the steps means something to one of them."""
        if keys.undo is None or not steps:
            return
        can = [(step, own) for step, own in zip(steps, keys.steps or (), strict=True) if step.undo is not None]
        is_busy = any(
            self._context.actions[step.action].default_undo is UndoWhen.RESOLVED
            or (own.undo is not None and own.undo.when == "resolved")
            for step, own in can
        )
        if can:
            what = f"{can[0][0].action} stays unless its own step says otherwise; write undo: {{when: resolved}} there"
        else:
            what = "nothing that these steps do can be undone; remove `undo`"
        self._note(scope.path("undo"), is_busy, what)

    def _check_acts(self, steps: Sequence[Step], scope: _Scope) -> None:
        """What is admitted whole must fit the limits of the policy, or it waits for ever."""
        count = min((limit.count for limit in self._policy.max_disruptive_acts), default=None)
        if count is None:
            return
        n_of_rung: dict[int, int] = {}
        for index, step in enumerate(steps):
            n_of_rung[step.rung] = n = n_of_rung.get(step.rung, 0) + self._context.actions[step.action].is_disruptive
            if n == count + 1:
                which = f"rung {step.rung}" if step.rung else "this playbook"
                self._problems.add(
                    (*scope.path("steps"), index),
                    f"more disruptive steps in {which} than the policy's `max_disruptive_acts` of {count} ever admits;"
                    " raise that, or take steps out",
                )

    def _check_resolved(self, steps: Sequence[StepKeys], path: Path) -> None:
        """Steps after the end have no verdict and no reservation: nothing that interrupts work may stand there."""
        for index, step in enumerate(steps):
            for key in {"rung", "verify", "undo", "approval"} & step.model_fields_set:
                what = f"`resolved` steps come when all is over, without `{key}`; remove it"
                self._problems.add((*path, index, key), what)
            action = self._context.actions.get(step.action)
            if action is not None and action.is_disruptive:
                what = f"{step.action} interrupts work, and `resolved` steps are not judged; use `steps`"
                self._problems.add((*path, index, "action"), what)

    def _told(self, key: str, keys: CaseKeys, where: Mapping[str, Path], default: tuple[str, ...]) -> tuple[str, ...]:
        table = getattr(keys, key)
        if table is None:
            return default
        self._check_targets(table.to, (*where.get(key, ()), key, "to"))
        return tuple(table.to)

    def _check_targets(self, names: Sequence[object], path: Path) -> None:
        known_names = self._context.notify_targets
        if known_names is None:
            return
        for index, name in enumerate(names):
            # What is no text is told as such, and may be a map, which no set can be asked for.
            if isinstance(name, str) and name not in known_names:
                known = suggest(name, known_names) or "; the settings name none (notify.NAME)"
                self._problems.add((*path, index), f"there is no notification target {name!r}{known}")

    def _guard(self, keys: GuardKeys, steps: Sequence[Step], scope: _Scope) -> GuardRules:
        actions = [self._context.actions[step.action] for step in steps]
        is_disruptive = any(action.is_disruptive for action in actions)
        is_messages = all(action.is_message for action in actions)
        cooldown = DEFAULT_COOLDOWN if is_disruptive or is_messages else timedelta(0)
        max_runs = DEFAULT_MAX_RUNS if is_disruptive else None
        return GuardRules(
            cooldown=cooldown if keys.cooldown is None else keys.cooldown,
            max_runs=max_runs if keys.max_runs is None else Limit(count=keys.max_runs.count, per=keys.max_runs.per),
            tell_after=keys.tell_after or DEFAULT_TELL_AFTER,
            max_targets=self._max_targets(keys, scope),
        )

    def _max_targets(self, keys: GuardKeys, scope: _Scope) -> MaxTargets | None:
        wanted = keys.max_targets
        if wanted is None:
            return None
        if wanted.percent is None or wanted.of is None:
            assert wanted.count is not None
            return MaxTargets(limit=wanted.count, per=wanted.per)
        check_fleet(wanted.of, (*scope.guard_path("max_targets"), "of"), self._context, self._problems)
        return MaxTargets(limit=Share(percent=wanted.percent, of=wanted.of), per=wanted.per)

    def _require(self, guard: GuardKeys | None, scope: _Scope) -> tuple[ConditionTemplate, ...]:
        keys = guard.require if guard is not None and guard.require is not None else ()
        return self._conditions(keys, scope.guard_path("require"), "require", scope)

    def _conditions(
        self, conditions: Sequence[ConditionKeys], path: Path, prefix: str, scope: _Scope
    ) -> tuple[ConditionTemplate, ...]:
        return tuple(
            self._condition(keys, keys.query, (*path, index), default_name(prefix, index), scope)
            for index, keys in enumerate(conditions)
        )

    def _checks(
        self, checks: Sequence[VerifyKeys], path: Path, prefix: str, scope: _Scope
    ) -> tuple[CheckTemplate, ...]:
        built: list[CheckTemplate] = []
        for index, keys in enumerate(checks):
            here = (*path, index)
            if keys.query is None and scope.is_latched:
                self._problems.add(
                    here,
                    "a `latched` alert ends by itself, so `alert: resolved` shows nothing; write a query, or remove"
                    " this or `latched`",
                )
            built.append(
                CheckTemplate(
                    within=keys.within or DEFAULT_WITHIN,
                    condition=None
                    if keys.query is None
                    else self._condition(keys, keys.query, here, default_name(prefix, index), scope),
                    settle=keys.settle or timedelta(0),
                    holds=keys.holds or timedelta(0),
                )
            )
        return tuple(built)

    def _condition(
        self, keys: ConditionKeys | VerifyKeys, query: ParamTemplate, path: Path, default_name: str, scope: _Scope
    ) -> ConditionTemplate:
        name = keys.name or default_name
        if scope.query_of.setdefault(name, query.source) != query.source:
            what = f"two conditions are called {name!r} and ask different things; give one of them another `name`"
            self._problems.add(path, what)
        if query.is_late:
            what = f"`query` must be known when the plan is made, before any step; {_late_words(query)}"
            self._problems.add((*path, "query"), what)
        else:
            self._check_names(query.names, (*path, "query"), scope.per, ())
        comparison = next(one for one in Comparison if one.value in keys.model_fields_set)
        bound = _bound(self._document.root.at((*path, comparison.value)))
        return ConditionTemplate(name=name, query=query, comparison=comparison, bound=bound)

    def _undo(
        self, keys: UndoKeys | None, name: str, action: LookingAction[Any], path: Path, scope: _Scope
    ) -> UndoTemplate | None:
        """The step's own words before the playbook's, which never lift an action's ``never``, before the action's."""
        if action.default_undo is None:
            if keys is not None:
                self._problems.add(path, f"what {action.name} does cannot be undone; remove `undo`")
            return None
        # One key each: a step that changes one keeps the playbook's others.
        own, shared = keys or UndoKeys(), scope.undo or UndoKeys()
        word, word_path = own.when, path
        if word is None and action.default_undo is not UndoWhen.NEVER:
            word, word_path = shared.when, scope.path("undo")
        when = action.default_undo if word is None else UndoWhen(word)
        if own.require is None:
            require = scope.undo_require
        else:
            require = self._conditions(own.require, (*path, "require"), f"{name}_undo_require", scope)
        if when is UndoWhen.NEVER:
            if own.model_fields_set - {"when"}:
                what = f"{action.name} is not taken back unless its step says so; write when: resolved too"
                self._problems.add(path, what)
            return UndoTemplate(when=when, after=DEFAULT_AFTER, at_most=DEFAULT_AT_MOST)
        if word is not None and scope.is_latched:
            self._problems.add(
                (*word_path, "when"),
                "a `latched` alert's `resolved` undoes nothing: without `when` it is taken back by `at_most`; or write"
                " when: never",
            )
        after = next((one for one in (own.after, shared.after) if one is not None), DEFAULT_AFTER)
        at_most = own.at_most or shared.at_most or DEFAULT_AT_MOST
        if after >= at_most:
            has_own = own.after is not None or own.at_most is not None
            self._problems.add(
                path if has_own else scope.path("undo"),
                f"`after` {print_duration(after)} must be shorter than `at_most` {print_duration(at_most)}",
            )
        return UndoTemplate(when=when, after=after, at_most=at_most, require=require)

    def _steps(
        self, steps: Sequence[StepKeys], path: Path, scope: _Scope, done: Sequence[str] | None = None
    ) -> tuple[Step, ...]:
        """Build a list of steps.

        Args:
            done: the names that their templates may speak of, None = those before each. Steps that come when all is
                done are given them, and are neither verified nor undone.
        """
        built: list[Step] = []
        names: list[str] = []
        taken: set[str] = set()  # a file of a MiB can hold 60,000 steps
        for index, keys in enumerate(steps):
            here = (*path, index)
            name = keys.name or default_name("step", index)
            if name in taken:
                self._problems.add(here, f"two steps are called {name!r}")
            if step := self._step(keys, name, here, scope, names if done is None else done):
                if done is None:
                    step = self._with_proof(step, keys, here, scope)
                built.append(step)
            names.append(name)
            taken.add(name)
        return tuple(built)

    def _with_proof(self, step: Step, keys: StepKeys, path: Path, scope: _Scope) -> Step:
        """The step with what is asked before it, looked at after it and taken back."""
        action = self._context.actions[step.action]
        for key in {"verify", "approval"} & keys.model_fields_set if action.is_message else ():
            self._problems.add((*path, key), f"a message needs no `{key}`; remove it")
        return replace(
            step,
            rung=keys.rung or 0,
            verify=self._checks(keys.verify or (), (*path, "verify"), f"{step.name}_verify", scope),
            undo=self._undo(keys.undo, step.name, action, (*path, "undo"), scope),
            approval=None if keys.approval is None else self._approval(keys.approval, (*path, "approval")),
        )

    def _step(self, keys: StepKeys, name: str, path: Path, scope: _Scope, earlier: Sequence[str]) -> Step | None:
        action = self._context.actions.get(keys.action)
        if action is None:
            known = suggest(keys.action, self._context.actions)
            self._problems.add(
                (*path, "action"), f"there is no action {cut(keys.action, 80)!r}{known}", UnknownActionError
            )
            return None
        if (lack := self._context.unusable.get(keys.action)) is not None:
            self._problems.add((*path, "action"), f"{keys.action} {lack}")
        if keys.condition is not None:
            self._check_names(keys.condition.names, (*path, "if"), scope.per, earlier)
        params, broken = self._params(action, keys.params or {}, (*path, "params"))
        for param, template in params.items():
            here = (*path, "params", param)
            self._check_names(template.names, here, scope.per, earlier)
            if template.is_late and param not in action.late_params:
                self._problems.add(
                    here, f"`{param}` must be known when the plan is made, before any step; {_late_words(template)}"
                )
        shortest = self._check_params(action, params, broken, path)
        if keys.timeout is not None and keys.timeout < shortest:
            self._problems.add(
                (*path, "timeout"),
                f"`timeout` {print_duration(keys.timeout)} is too short for these params; write at least"
                f" {print_duration(shortest)}",
            )
        return Step(
            name=name,
            action=keys.action,
            params=params,
            condition=keys.condition,
            timeout=keys.timeout or max(action.default_timeout, shortest),
            retry=_retry(keys.retry or RetryKeys()),
            on_failure=keys.on_failure or (OnFailure.CONTINUE if action.is_message else OnFailure.STOP),
            line=self._document.root.at(path).line,
        )

    def _params(
        self, action: LookingAction[Any], written: Mapping[str, object], path: Path
    ) -> tuple[dict[str, ParamTemplate], set[str]]:
        """The params as templates, and the names of those that are there and cannot be read."""
        known = fields(action.params_model)
        params: dict[str, ParamTemplate] = {}
        broken: set[str] = set()
        for name in written:
            here = (*path, name)
            if name not in known:
                message = f"{action.name} has no param `{name}`{suggest(name, known)}"
                self._problems.add(here, message, ParamsError)
                broken.update(difflib.get_close_matches(name, known, n=1))
                continue
            try:
                params[name] = ParamTemplate.parse(_json(self._document.root.at(here)))
            except TemplateError as error:
                self._problems.add(here, f"`{name}`: {error.message}", TemplateError)
                broken.add(name)
        return params, broken

    def _check_params(
        self, action: LookingAction[Any], params: Mapping[str, ParamTemplate], broken: set[str], path: Path
    ) -> timedelta:
        """Check what can be known before there is an alert.

        Returns:
            The shortest time-out that fits the params, zero where that hangs on a template.
        """
        literal = {name: template.source for name, template in params.items() if template.is_literal}
        open_ = ({*params, *action.param_defaults} | broken) - {*literal}
        is_told = False
        try:
            action.params_model.model_validate(literal)
        except ValidationError as error:
            for detail in error.errors(include_url=False):
                name = str(detail["loc"][0]) if detail["loc"] else ""
                # What is left open is judged with the alert; so is a rule over several params, if any is open.
                if name in open_ or (not name and open_):
                    continue
                is_told = True
                self._add_param_problem(action, detail, name, path)
        if action.is_message and isinstance(targets := self._message_targets(params, path), list):
            self._check_targets(targets, (*path, "params", "to"))
        if is_told:
            return timedelta(0)
        try:
            # Any text does for a name: names do not decide how long an act takes.
            model = action.params_model.model_validate({**dict.fromkeys(open_, "x"), **literal})
        except ValidationError:
            return timedelta(0)
        return action.min_timeout(model)

    def _message_targets(self, params: Mapping[str, ParamTemplate], path: Path) -> JsonValue | None:
        """Where a message goes. Who is told must never hang on a label."""
        if (to := params.get("to")) is None:
            return None
        if not to.is_literal:
            message = "`to` takes names of notification targets, never a template"
            self._problems.add((*path, "params", "to"), message, ParamsError)
            return None
        return to.source

    def _add_param_problem(self, action: LookingAction[Any], detail: ErrorDetails, name: str, path: Path) -> None:
        here = (*path, "params", *detail["loc"])
        match detail["type"]:
            case "missing":
                message = f"{action.name} needs the param `{name}`"
            case "string_pattern_mismatch":
                message = f"`{name}` cannot be {detail['input']!r}: it must match {detail['ctx']['pattern']}"
            case _:
                message = in_words(detail, f"`{name}`") if name else detail["msg"]
        self._problems.add(here, message, ParamsError)

    def _check_names(
        self, names: Iterable[str], path: Path, per: tuple[str, ...] | None, earlier: Sequence[str]
    ) -> None:
        """Whether what a template or ``if`` reads can exist."""
        for name in sorted(names):
            root, _, rest = name.partition(".")
            match root:
                case "vars" if (key := re.split(r"[.\[]", rest)[0]) not in self._context.vars:
                    known = suggest(key, self._context.vars) or "; the settings have no vars"
                    self._problems.add(path, f"there is no {name} in the settings{known}", TemplateError)
                case "steps" if self._is_whole and (key := rest.partition(".")[0]) not in earlier:
                    known = suggest(key, earlier) or "; no step comes before this one"
                    self._problems.add(path, f"{name}: no earlier step is called {key!r}{known}", TemplateError)
                case "subject" if self._is_whole and rest and per is not None and rest not in per:
                    self._problems.add(path, f"{name} is not in `per`{suggest(rest, per)}", TemplateError)
                case _:
                    pass


def _late_words(template: ParamTemplate) -> str:
    late = sorted(name for name in template.names if is_late(name))
    return f"{', '.join(late)} is known only later"


def _json(node: Node) -> JsonValue:
    """A param as the audit can hold it: a number with a point stays the text that was written."""
    match node.value:
        case dict():
            return {key: _json(item) for key, item in node.value.items()}
        case list():
            return [_json(item) for item in node.value]
        case float() | None:
            return node.text
        case _:
            return node.value


def _bound(node: Node) -> str:
    """A number as it was written, where that reads the same to everybody: ``0x10`` and ``.5e3`` are calculated."""
    is_clear = re.fullmatch(r"[-+]?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?", node.text)
    return node.text if is_clear else repr(node.value)


def _retry(keys: RetryKeys) -> RetryPolicy:
    """``attempts`` alone has no budget, ``budget`` alone no count; neither written means both defaults."""
    is_open = keys.attempts is None and keys.budget is None
    wait = DEFAULT_WAIT if keys.wait is None else keys.wait
    max_wait = max(DEFAULT_MAX_WAIT, wait) if keys.max_wait is None else keys.max_wait
    return RetryPolicy(
        attempts=DEFAULT_ATTEMPTS if is_open else keys.attempts,
        wait=min(wait, max_wait),
        max_wait=max_wait,
        jitter_pct=DEFAULT_JITTER_PCT if keys.jitter is None else keys.jitter,
        budget=DEFAULT_BUDGET if is_open else keys.budget,
    )
