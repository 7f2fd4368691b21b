"""Stage 5, guard: ``Plan`` + ``Facts`` → ``Verdict``: every rule asked, the strictest word, every reason kept.

Pure, and independent of the rules' order. The facts are gathered by ``engine.reserve`` inside the transaction that also
reserves; what comes from elsewhere (the real targets) is asked before and passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from remediator.core.action import Target, Targeting
from remediator.core.plan import Plan
from remediator.core.policy import Policy
from remediator.core.units import print_duration
from remediator.errors import Reason

IGNORE_LABEL = "remediator.io/ignore"
"""A container, pod or node that bears it as "true" is never touched, whatever the policies say."""

PROTECTED_NAMESPACE = "kube-system"


class Word(StrEnum):
    """Of a verdict, from the mildest to the strictest."""

    ALLOW = "allow"
    WAIT = "wait"
    REFUSE = "refuse"


STRICTNESS = (Word.ALLOW, Word.WAIT, Word.REFUSE)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleAnswer:
    """What one rule says.

    Attributes:
        rule: its name, as the playbook or policy calls it.
        reason: ``none`` for allow.
        detail: for people, with the numbers it counted.
        lifts_at: the earliest moment at which a wait can end by itself; None when only an event can end it.
    """

    rule: str
    word: Word
    reason: Reason = Reason.NONE
    detail: str = ""
    lifts_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The strictest word, with the answers of all rules."""

    word: Word
    answers: tuple[RuleAnswer, ...]

    @property
    def reasons(self) -> tuple[RuleAnswer, ...]:
        """The answers that are not allow, the strictest first."""
        against = [answer for answer in self.answers if answer.word is not Word.ALLOW]
        return tuple(sorted(against, key=lambda answer: (-STRICTNESS.index(answer.word), answer.rule)))

    @property
    def lifts_at(self) -> datetime | None:
        """When judging again can first give another word; None when only an event can change it."""
        waits = [answer.lifts_at for answer in self.answers if answer.word is Word.WAIT]
        known = [moment for moment in waits if moment is not None]
        return max(known) if waits and len(known) == len(waits) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedTargets:
    """What the actions answered when asked what they touch.

    Attributes:
        asked_at: when.
        by_step: key of each step that acts → what it touches.
        problem: why it could not be answered; None when it could.
    """

    asked_at: datetime
    by_step: Mapping[str, Targeting]
    problem: RuleAnswer | None = None

    @property
    def targets(self) -> tuple[Target, ...]:
        """Every target once, sorted by ref."""
        found = {target.ref: target for targeting in self.by_step.values() for target in targeting.targets}
        return tuple(found[ref] for ref in sorted(found))

    @property
    def affected(self) -> tuple[Target, ...]:
        """What would be touched with them."""
        found = {target.ref: target for targeting in self.by_step.values() for target in targeting.affects}
        return tuple(found[ref] for ref in sorted(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A person stopped all acts."""

    by: str
    reason: str
    at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the rules count on, all of one moment.

    Attributes:
        asked: the real targets.
        last_disruptive: ref → (when, by which playbook), of each target that was disrupted by another run.
        last_acted_at: when this playbook last acted for these ``per`` values, None = never.
        acted_at: starts of the runs that acted for these values within ``max_runs.per``, any order.
        n_admitted: other runs that act or verify now.
        n_ahead: older plans that wait for a place among them.
        busy: ref → the run that has it, or waits for it and is older.
    """

    now: datetime
    asked: AskedTargets
    policy: Policy
    pause: Pause | None = None
    last_disruptive: Mapping[str, tuple[datetime, str]]
    last_acted_at: datetime | None
    acted_at: Sequence[datetime]
    n_admitted: int
    n_ahead: int = 0
    busy: Mapping[str, str]


def judge(plan: Plan, facts: Facts) -> Verdict:
    """Ask every rule. Raises nothing."""
    rules = MESSAGE_RULES if plan.is_messages_alone else ACT_RULES
    answers = tuple(answer for rule in rules for answer in rule(plan, facts))
    word = max((answer.word for answer in answers), key=STRICTNESS.index, default=Word.ALLOW)
    return Verdict(word=word, answers=answers)


def protection(targets: Sequence[Target], policy: Policy) -> RuleAnswer:
    """Whether any of these is never to be touched; asked again right before each act, of the policy in force then."""
    for target in targets:
        why = _protected_by(target, policy)
        if why:
            return RuleAnswer(
                rule="protect", word=Word.REFUSE, reason=Reason.PROTECTED, detail=f"{target.ref} is protected by {why}"
            )
    return RuleAnswer(rule="protect", word=Word.ALLOW)


def _protected_by(target: Target, policy: Policy) -> str:
    if target.labels.get(IGNORE_LABEL) == "true":
        return f"its label {IGNORE_LABEL}=true"
    if target.namespace == PROTECTED_NAMESPACE:
        return f"the built-in line namespace = {PROTECTED_NAMESPACE}"
    described = {
        **target.labels,
        "kind": target.kind.value,
        "cluster": target.cluster,
        "host": target.host,
        "node": target.node,
        "namespace": target.namespace,
        "name": target.name,
    }
    return next((f"policy line {line.text!r}" for line in policy.protect if line.matcher.matches(described)), "")


def _targets(_: Plan, facts: Facts) -> list[RuleAnswer]:
    if facts.asked.problem is not None:
        return [facts.asked.problem]
    for key, targeting in facts.asked.by_step.items():
        step = key.partition(".")[2]
        if len(targeting.targets) > 1:
            refs = ", ".join(target.ref for target in targeting.targets)
            return [
                RuleAnswer(
                    rule="targets",
                    word=Word.REFUSE,
                    reason=Reason.SEVERAL_TARGETS,
                    detail=f"step {step} means one target and found several: {refs}",
                )
            ]
    return [RuleAnswer(rule="targets", word=Word.ALLOW)]


def _protect(_: Plan, facts: Facts) -> list[RuleAnswer]:
    return [protection((*facts.asked.targets, *facts.asked.affected), facts.policy)]


def _pause(_: Plan, facts: Facts) -> list[RuleAnswer]:
    if facts.pause is None:
        return [RuleAnswer(rule="pause", word=Word.ALLOW)]
    since = f" at {facts.pause.at}" if facts.pause.at else ""
    detail = f"paused by {facts.pause.by}{since}: {facts.pause.reason}"
    return [RuleAnswer(rule="pause", word=Word.WAIT, reason=Reason.PAUSED, detail=detail)]


def _concurrency(_: Plan, facts: Facts) -> list[RuleAnswer]:
    limit = facts.policy.max_concurrent_runs
    detail = f"{facts.n_admitted} of {limit} runs at work"
    if facts.n_ahead:
        detail += f", {facts.n_ahead} older plans wait"
    if facts.n_admitted + facts.n_ahead < limit:
        return [RuleAnswer(rule="max_concurrent_runs", word=Word.ALLOW, detail=detail)]
    return [RuleAnswer(rule="max_concurrent_runs", word=Word.WAIT, reason=Reason.CONCURRENCY, detail=detail)]


def _busy(_: Plan, facts: Facts) -> list[RuleAnswer]:
    if not facts.busy:
        return [RuleAnswer(rule="reservation", word=Word.ALLOW)]
    detail = "; ".join(f"{ref} is taken by run {run}" for ref, run in sorted(facts.busy.items()))
    return [RuleAnswer(rule="reservation", word=Word.WAIT, reason=Reason.BUSY_TARGET, detail=detail)]


def _cooldown(plan: Plan, facts: Facts) -> list[RuleAnswer]:
    cooldown = plan.guard.cooldown
    if cooldown == timedelta(0):
        return [RuleAnswer(rule="cooldown", word=Word.ALLOW, detail="none")]
    last = [
        (moment, f"{ref} was last disrupted by playbook {playbook}")
        for ref, (moment, playbook) in facts.last_disruptive.items()
    ]
    if facts.last_acted_at is not None:
        last.append((facts.last_acted_at, f"playbook {plan.playbook} last acted here"))
    if not last:
        return [RuleAnswer(rule="cooldown", word=Word.ALLOW, detail="nothing was done here yet")]
    moment, what = max(last)
    ago = print_duration(timedelta(seconds=int((facts.now - moment).total_seconds())))
    detail = f"{what} {ago} ago, cooldown {print_duration(cooldown)}"
    if moment + cooldown <= facts.now:
        return [RuleAnswer(rule="cooldown", word=Word.ALLOW, detail=detail)]
    # A message that says the same again within the cooldown is noise, not something to be said later.
    word = Word.REFUSE if plan.is_messages_alone else Word.WAIT
    return [RuleAnswer(rule="cooldown", word=word, reason=Reason.COOLDOWN, detail=detail, lifts_at=moment + cooldown)]


def _max_runs(plan: Plan, facts: Facts) -> list[RuleAnswer]:
    limit = plan.guard.max_runs
    if limit is None:
        return [RuleAnswer(rule="max_runs", word=Word.ALLOW, detail="not limited")]
    inside = sorted(moment for moment in facts.acted_at if moment > facts.now - limit.per)
    detail = f"{len(inside)} of {limit.count} runs in {print_duration(limit.per)}"
    if len(inside) < limit.count:
        return [RuleAnswer(rule="max_runs", word=Word.ALLOW, detail=detail)]
    # The window is free again when the run that has to leave it first has left it.
    leaves = inside[len(inside) - limit.count] + limit.per
    return [RuleAnswer(rule="max_runs", word=Word.WAIT, reason=Reason.MAX_RUNS, detail=detail, lifts_at=leaves)]


Rule = Callable[[Plan, Facts], list[RuleAnswer]]

MESSAGE_RULES: tuple[Rule, ...] = (_cooldown, _max_runs)
"""A plan of messages alone is asked only its own guard."""

ACT_RULES: tuple[Rule, ...] = (_targets, _protect, _pause, _concurrency, _busy, _cooldown, _max_runs)
