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
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from remediator.core.action import Action, JsonValue
from remediator.core.matcher import Matcher
from remediator.core.playbook import (
    Case,
    CheckTemplate,
    GuardRules,
    LabelMap,
    OnFailure,
    Playbook,
    Step,
)
from remediator.core.policy import Fleet, Limit, Mode, Policy, ProtectLine
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
    CaseKeys,
    GuardKeys,
    NamedCaseKeys,
    PlaybookKeys,
    PolicyKeys,
    RetryKeys,
    StepKeys,
    VerifyKeys,
)
from remediator.loading.read import Problems, fields, in_words, read_keys, suggest

DEFAULT_COOLDOWN = timedelta(minutes=30)
"""A trainer loads its checkpoint and fills the GPU again in that time: sooner, the act's effect cannot be seen."""

DEFAULT_MAX_RUNS = Limit(count=3, per=timedelta(hours=24))
"""What three restarts a day do not mend, a fourth will not: a person has to look."""

DEFAULT_TELL_AFTER = timedelta(hours=1)
"""Longer than a cooldown that was not written: a plan that merely waits for that wakes nobody."""

DEFAULT_WITHIN = timedelta(minutes=15)
"""A rule's `for`, a scrape, and Alertmanager's `group_interval` of 5m lie between a mended fault and its `resolved`."""

DEFAULT_ATTEMPTS = 3
DEFAULT_WAIT = timedelta(seconds=2)
DEFAULT_MAX_WAIT = timedelta(seconds=30)
DEFAULT_JITTER_PCT = 20
DEFAULT_BUDGET = timedelta(minutes=10)
"""Retries bridge a hiccup (a reset connection, a Docker engine that restarts within seconds), spread by a fifth so that
many runs do not come at once. What is away for longer is told to people; 10 minutes bound slow attempts too."""

Actions = Mapping[str, Action[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadContext:
    """What playbooks are checked against: the site's settings and the actions there are.

    Attributes:
        label_map, ignore_labels, vars, public_url: handed on in the ``PlaybookSet``.
        notify_targets: names that messages may be sent to.
        default_report_to, default_escalate_to: where a playbook names none.
        actions: the registry.
        fleets: by name, from the settings; what shares are of.
    """

    label_map: LabelMap = field(default_factory=LabelMap)
    ignore_labels: frozenset[str] = frozenset()
    vars: Mapping[str, JsonValue] = field(default_factory=dict)
    public_url: str = ""
    notify_targets: frozenset[str] = frozenset()
    default_report_to: tuple[str, ...] = ()
    default_escalate_to: tuple[str, ...] = ()
    actions: Actions = field(default_factory=dict)
    fleets: Mapping[str, Fleet] = field(default_factory=dict)


def merge_policies(policies: Sequence[tuple[Document, PolicyKeys]]) -> Policy:
    """Several policies as one: every protect line of each, the smallest limit, the strictest mode."""
    if not policies:
        return Policy()
    defaults = Policy()
    limits = [keys.max_concurrent_runs for _, keys in policies if keys.max_concurrent_runs is not None]
    return Policy(
        name=", ".join(keys.policy for _, keys in policies),
        protect=tuple(
            ProtectLine(text=document.root.at(("protect", index)).text, matcher=matcher)
            for document, keys in policies
            for index, matcher in enumerate(keys.protect or ())
        ),
        max_concurrent_runs=min(limits, default=defaults.max_concurrent_runs),
        mode=Mode.OBSERVE if any(keys.mode == "observe" for _, keys in policies) else defaults.mode,
        file=policies[0][0].file,
    )


def build_playbook(document: Document, context: LoadContext, problems: Problems) -> Playbook | None:
    """A playbook as it acts; None when something is wrong with it."""
    keys = read_keys(document, PlaybookKeys, problems)
    if keys is None:
        return None
    builder = _Builder(document, context, problems, keys)
    cases = builder.cases()
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


class _Builder:
    """Merges and fills in one playbook's cases."""

    def __init__(self, document: Document, context: LoadContext, problems: Problems, keys: PlaybookKeys) -> None:
        self._document = document
        self._context = context
        self._problems = problems
        self._keys = keys
        # What was taken out for its own problem must not be missed here too.
        self._is_whole = not problems.found

    def cases(self) -> tuple[Case, ...]:
        if self._keys.cases is None:
            return (self._case("", (), self._keys, {}),)
        if self._is_whole:
            self._check_cases(self._keys.cases)
        return tuple(self._named_case(index, case) for index, case in enumerate(self._keys.cases))

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
        steps: tuple[Step, ...] = ()
        resolved: tuple[Step, ...] = ()
        if ignore is None:
            if not keys.steps and self._is_whole:
                top: Path = ("playbook",) if index is None else ("cases", index)
                or_not = "" if index is None else ", or why not with `ignore`"
                self._problems.add(top, f"`steps` is missing: say what to do{or_not}")
            steps = self._steps(keys.steps or (), (*where.get("steps", ()), "steps"), per)
            done = [step.name for step in steps]
            resolved = self._steps(keys.resolved or (), (*where.get("resolved", ()), "resolved"), per, done)
            self._check_resolved(keys.resolved or (), (*where.get("resolved", ()), "resolved"))
        if keys.latched and keys.verify:
            self._problems.add(
                (*where.get("verify", ()), "verify"),
                "a `latched` alert ends by itself, so `alert: resolved` shows nothing; remove `verify` or `latched`",
            )
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
            guard=self._guard(keys.guard or GuardKeys(), steps),
            steps=steps,
            verify=tuple(_check(check) for check in keys.verify or ()),
            resolved=resolved,
            report_to=self._told("report", keys, where, self._context.default_report_to),
            escalate_to=self._told("escalate", keys, where, self._context.default_escalate_to),
        )

    def _check_resolved(self, steps: Sequence[StepKeys], path: Path) -> None:
        """Steps after the end have no verdict and no reservation: nothing that interrupts work may stand there."""
        for index, step in enumerate(steps):
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
        for index, name in enumerate(names):
            # What is no text is told as such, and may be a map, which no set can be asked for.
            if isinstance(name, str) and name not in self._context.notify_targets:
                known = suggest(name, self._context.notify_targets) or "; the settings name none"
                self._problems.add((*path, index), f"there is no notification target {name!r}{known}")

    def _guard(self, keys: GuardKeys, steps: Sequence[Step]) -> GuardRules:
        actions = [self._context.actions[step.action] for step in steps]
        is_disruptive = any(action.is_disruptive for action in actions)
        is_messages = all(action.is_message for action in actions)
        cooldown = DEFAULT_COOLDOWN if is_disruptive or is_messages else timedelta(0)
        max_runs = DEFAULT_MAX_RUNS if is_disruptive else None
        return GuardRules(
            cooldown=cooldown if keys.cooldown is None else keys.cooldown,
            max_runs=max_runs if keys.max_runs is None else Limit(count=keys.max_runs.count, per=keys.max_runs.per),
            tell_after=keys.tell_after or DEFAULT_TELL_AFTER,
        )

    def _steps(
        self, steps: Sequence[StepKeys], path: Path, per: tuple[str, ...] | None, done: Sequence[str] | None = None
    ) -> tuple[Step, ...]:
        """Build a list of steps; ``done`` are the names that their templates may speak of, None = those before each."""
        built: list[Step] = []
        names: list[str] = []
        taken: set[str] = set()  # a file of a MiB can hold 60,000 steps
        for index, keys in enumerate(steps):
            here = (*path, index)
            name = keys.name or f"step_{index + 1}"
            if name in taken:
                self._problems.add(here, f"two steps are called {name!r}")
            if step := self._step(keys, name, here, per, names if done is None else done):
                built.append(step)
            names.append(name)
            taken.add(name)
        return tuple(built)

    def _step(
        self, keys: StepKeys, name: str, path: Path, per: tuple[str, ...] | None, earlier: Sequence[str]
    ) -> Step | None:
        action = self._context.actions.get(keys.action)
        if action is None:
            known = suggest(keys.action, self._context.actions)
            self._problems.add(
                (*path, "action"), f"there is no action {cut(keys.action, 80)!r}{known}", UnknownActionError
            )
            return None
        if keys.condition is not None:
            self._check_names(keys.condition.names, (*path, "if"), per, earlier)
        params, broken = self._params(action, keys.params or {}, (*path, "params"))
        for param, template in params.items():
            here = (*path, "params", param)
            self._check_names(template.names, here, per, earlier)
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
        self, action: Action[Any], written: Mapping[str, object], path: Path
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
        self, action: Action[Any], params: Mapping[str, ParamTemplate], broken: set[str], path: Path
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

    def _add_param_problem(self, action: Action[Any], detail: ErrorDetails, name: str, path: Path) -> None:
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


def _check(keys: VerifyKeys) -> CheckTemplate:
    return CheckTemplate(within=keys.within or DEFAULT_WITHIN)


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
