"""Stage 5, guard: ``Plan`` + ``Facts`` → ``Verdict``: every rule asked, the strictest word, every reason kept.

Pure, and independent of the rules' order. The facts are gathered by ``engine.reserve`` inside the transaction that also
reserves; what comes from elsewhere (the real targets, conditions, the sizes of fleets) is asked before and passed in.

All limits are true sliding windows over what the store recorded: at most so many in any stretch of that length.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from remediator.core.action import Target, Targeting, TargetKind
from remediator.core.condition import Condition, Reading, Seen, look
from remediator.core.plan import Plan
from remediator.core.policy import Breaker, Limit, Policy, Share
from remediator.core.units import print_duration
from remediator.errors import Reason

IGNORE_LABEL = "remediator.io/ignore"
"""A container, pod or node that bears it as "true" is never touched, whatever the policies say."""

PROTECTED_NAMESPACE = "kube-system"

ASK_AGAIN = timedelta(seconds=30)
"""What could not be asked, a condition or a target's system, is asked again so soon."""

SCHEMES: Mapping[TargetKind, str] = {
    TargetKind.CONTAINER: "docker:",
    TargetKind.NODE: "node:",
    TargetKind.POD: "kube:",
    TargetKind.GPU: "gpu:",
}
"""How the refs of targets of a kind begin: the store keeps refs alone, and a share counts those of its fleet's kind."""


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
        trips: the breaker that the next act would trip, "" when none.
    """

    rule: str
    word: Word
    reason: Reason = Reason.NONE
    detail: str = ""
    lifts_at: datetime | None = None
    trips: str = ""


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
        if self.trips:
            return None
        waits = [answer.lifts_at for answer in self.answers if answer.word is Word.WAIT]
        known = [moment for moment in waits if moment is not None]
        return max(known) if waits and len(known) == len(waits) else None

    @property
    def trips(self) -> tuple[str, ...]:
        """The breakers that trip: nothing else is in the way, so that the act would really have come next."""
        against = self.reasons
        return tuple(answer.trips for answer in against) if all(answer.trips for answer in against) else ()


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
class FleetSize:
    """How many targets a fleet has, of which limits are shares.

    Attributes:
        size: >= 1, or None when it is not known.
        problem: why it is not, "" when it is.
    """

    size: int | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerState:
    """A breaker of the policy in force, and what it counts on.

    Attributes:
        tripped_at: None while it is not tripped.
        why: it tripped.
        changed: targets that were changed since it counts, by anybody, of all kinds.
        n_failures: runs that ended without a fix since.
    """

    breaker: Breaker
    tripped_at: datetime | None = None
    why: str = ""
    changed: frozenset[str] = frozenset()
    n_failures: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the rules count on, all of one moment.

    Attributes:
        asked: the real targets of the rung.
        rung: that is judged, 0 where there is no ladder.
        asks: people are to be asked first, so that nothing is changed by it yet.
        has_acted: this run changed something before: it climbs, or is judged anew.
        last_disruptive: ref → (when, by which playbook), of each target that was disrupted by another run.
        last_acted_at: when this playbook last acted for these ``per`` values, None = never.
        acted_at: starts of the runs that acted for these values within ``max_runs.per``, any order.
        n_admitted: other runs that act or verify now.
        n_ahead: older plans that wait for a place among them.
        busy: ref → the run that has it, or waits for it and is older.
        required: what ``guard.require`` asks for, and what was answered.
        approved: ref → (uid, owner) as people saw them when they said yes; None when nobody was asked.
        own_changes: refs that this run changed itself.
        changed: ref → when this playbook last changed it, within ``max_targets.per``.
        promised: ref → the playbook of another run that has its place, and will change it or find nothing to change.
        fleets: by name, those that a limit asked here is a share of.
        admitted_acts: (when, how many disruptive steps) of each other rung that was admitted, within the longest limit.
        breakers: each of the policy's.
    """

    now: datetime
    asked: AskedTargets
    policy: Policy
    rung: int = 0
    asks: bool = False
    has_acted: bool = False
    pause: Pause | None = None
    last_disruptive: Mapping[str, tuple[datetime, str]] = field(default_factory=dict)
    last_acted_at: datetime | None = None
    acted_at: Sequence[datetime] = ()
    n_admitted: int = 0
    n_ahead: int = 0
    busy: Mapping[str, str] = field(default_factory=dict)
    required: Sequence[tuple[Condition, Reading]] = ()
    approved: Mapping[str, tuple[str, str]] | None = None
    own_changes: frozenset[str] = frozenset()
    changed: Mapping[str, datetime] = field(default_factory=dict)
    promised: Mapping[str, str] = field(default_factory=dict)
    fleets: Mapping[str, FleetSize] = field(default_factory=dict)
    admitted_acts: Sequence[tuple[datetime, int]] = ()
    breakers: Sequence[BreakerState] = ()


def judge(plan: Plan, facts: Facts) -> Verdict:
    """Ask every rule. Raises nothing."""
    answers = tuple(answer for rule in _rules_of(plan, facts) for answer in rule(plan, facts))
    word = max((answer.word for answer in answers), key=STRICTNESS.index, default=Word.ALLOW)
    return Verdict(word=word, answers=answers)


def _rules_of(plan: Plan, facts: Facts) -> Sequence[Rule]:
    if plan.acts_of(facts.rung):
        return ACT_RULES
    # Where the rungs before did not help, the last one tells people so: its own run's acts are no cooldown.
    return () if facts.has_acted else MESSAGE_RULES


def may_touch(targeting: Targeting, policy: Policy) -> RuleAnswer:
    """The rules on what a target is; asked again right before each act, of the policy in force then."""
    for answer in (protection(targeting.targets, targeting.affects, policy), label_of(targeting.targets, policy)):
        if answer.word is not Word.ALLOW:
            return answer
    return RuleAnswer(rule="protect", word=Word.ALLOW)


def protection(targets: Sequence[Target], affected: Sequence[Target], policy: Policy) -> RuleAnswer:
    """Whether any of these is never to be touched, or to be ended with what is.

    The built-in namespace counts for targets alone: each node has pods of it, and no drain could ever come.
    """
    for target in targets:
        why = _protected_by(target, policy)
        if not why and target.namespace == PROTECTED_NAMESPACE:
            why = f"the built-in line namespace = {PROTECTED_NAMESPACE}"
        if why:
            return _protected(target, why)
    for target in affected:
        if why := _protected_by(target, policy):
            return _protected(target, why)
    return RuleAnswer(rule="protect", word=Word.ALLOW)


def _protected(target: Target, why: str) -> RuleAnswer:
    detail = f"{target.ref} is protected by {why}"
    return RuleAnswer(rule="protect", word=Word.REFUSE, reason=Reason.PROTECTED, detail=detail)


def _protected_by(target: Target, policy: Policy) -> str:
    if target.labels.get(IGNORE_LABEL) == "true":
        return f"its label {IGNORE_LABEL}=true"
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


def label_of(targets: Sequence[Target], policy: Policy) -> RuleAnswer:
    """Whether each of these bears what the policies' ``require_label`` asks for, by its real object's labels."""
    for target in targets:
        for line in policy.require_labels:
            if not line.matcher.matches(target.labels):
                detail = f"{target.ref} does not bear {line.text!r}, which the policy asks for"
                return RuleAnswer(rule="require_label", word=Word.REFUSE, reason=Reason.REQUIRE_LABEL, detail=detail)
    return RuleAnswer(rule="require_label", word=Word.ALLOW)


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
    return [protection(facts.asked.targets, facts.asked.affected, facts.policy)]


def _require_label(_: Plan, facts: Facts) -> list[RuleAnswer]:
    return [label_of(facts.asked.targets, facts.policy)]


def _approved(_: Plan, facts: Facts) -> list[RuleAnswer]:
    """A yes was said to what people saw: these targets, as they were."""
    if facts.approved is None or facts.asked.problem is not None:  # not known what they are now: it waits for that
        return [RuleAnswer(rule="approved", word=Word.ALLOW)]
    now = {target.ref: (target.uid, target.owner) for target in facts.asked.targets}
    changes = [f"{ref} was not there" for ref in sorted(now.keys() - facts.approved.keys())]
    changes += [f"{ref} is gone" for ref in sorted(facts.approved.keys() - now.keys())]
    for ref in sorted(now.keys() & facts.approved.keys()):
        (uid, owner), (uid_then, owner_then) = now[ref], facts.approved[ref]
        if owner != owner_then:
            changes.append(f"{ref} has another owner: {owner or 'none'}, was {owner_then or 'none'}")
        elif uid != uid_then and ref not in facts.own_changes:
            changes.append(f"{ref} was replaced ({uid_then[:12]} → {uid[:12]})")
    if not changes:
        return [RuleAnswer(rule="approved", word=Word.ALLOW, detail="the targets are as people saw them")]
    detail = f"changed since people were asked: {'; '.join(changes)}"
    return [RuleAnswer(rule="approved", word=Word.REFUSE, reason=Reason.TARGET_CHANGED, detail=detail)]


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
    word = Word.WAIT if plan.acts_of(facts.rung) else Word.REFUSE
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


def _require(_: Plan, facts: Facts) -> list[RuleAnswer]:
    """Each condition with its number."""
    if not facts.required:
        return [RuleAnswer(rule="require", word=Word.ALLOW, detail="nothing is required")]
    return [_required(condition, reading, facts.now) for condition, reading in facts.required]


def _required(condition: Condition, reading: Reading, now: datetime) -> RuleAnswer:
    seen, detail = look(condition, reading)
    match seen:
        case Seen.MET:
            return RuleAnswer(rule="require", word=Word.ALLOW, detail=detail)
        case Seen.NOT_MET:
            return RuleAnswer(rule="require", word=Word.REFUSE, reason=Reason.REQUIRE, detail=detail)
        case Seen.NO_VALUE:
            reason, again = Reason.REQUIRE_UNKNOWN, now + ASK_AGAIN
            return RuleAnswer(rule="require", word=Word.WAIT, reason=reason, detail=detail, lifts_at=again)


# -- limits on how much is touched -----------------------------------------------------------------------------------


def is_of_kind(ref: str, kind: TargetKind) -> bool:
    """Whether a target of this ref is of this kind."""
    return ref.startswith(SCHEMES[kind])


def _max_targets(plan: Plan, facts: Facts) -> list[RuleAnswer]:
    wanted = plan.guard.max_targets
    if wanted is None:
        return [RuleAnswer(rule="max_targets", word=Word.ALLOW, detail="not limited")]
    own = {target.ref for target in facts.asked.targets}
    promised = {ref for ref, playbook in facts.promised.items() if playbook == plan.playbook}
    changed = {ref: at for ref, at in facts.changed.items() if at > facts.now - wanted.per}
    share = wanted.limit if isinstance(wanted.limit, Share) else None
    if share is not None:
        own, promised = _of_fleet(own, share, facts), _of_fleet(promised, share, facts)
        changed = {ref: changed[ref] for ref in _of_fleet(changed, share, facts)}
    if not own:
        return [RuleAnswer(rule="max_targets", word=Word.ALLOW, detail="it changes none of the targets that count")]
    if share is not None and (unknown := _unknown_fleet("max_targets", share, facts)):
        return [unknown]
    limit = wanted.limit if isinstance(wanted.limit, int) else _n_of(wanted.limit, facts)
    of = "" if share is None else f" ({share.percent} % of {share.of})"
    n_after = len(own | promised | changed.keys())
    n_of_others = len(promised | changed.keys())
    detail = f"{n_of_others} of {limit}{of} targets in {print_duration(wanted.per)}, {n_after} with this plan's"
    if n_after <= limit:
        return [RuleAnswer(rule="max_targets", word=Word.ALLOW, detail=detail)]
    # What is promised, and what this plan changes itself, does not leave the window by itself.
    leave = sorted(at + wanted.per for ref, at in changed.items() if ref not in own | promised)
    lifts_at = leave[n_after - limit - 1] if n_after - limit <= len(leave) else None
    return [RuleAnswer(rule="max_targets", word=Word.WAIT, reason=Reason.MAX_TARGETS, detail=detail, lifts_at=lifts_at)]


def _of_fleet(refs: Collection[str], share: Share, facts: Facts) -> set[str]:
    """Those that are of the fleet's kind; all where the fleet is not known, which is refused anyway."""
    fleet = facts.policy.fleets.get(share.of)
    return {ref for ref in refs if fleet is None or is_of_kind(ref, fleet.kind)}


def _unknown_fleet(rule: str, share: Share, facts: Facts) -> RuleAnswer | None:
    """The refusal of what is a share of nobody knows how much."""
    known = facts.fleets.get(share.of, FleetSize(problem="no fleet of this name is in the settings"))
    if known.size is not None:
        return None
    detail = f"the size of fleet {share.of} is not known: {known.problem}"
    return RuleAnswer(rule=rule, word=Word.REFUSE, reason=Reason.FLEET_UNKNOWN, detail=detail)


def _n_of(share: Share, facts: Facts) -> int:
    size = facts.fleets[share.of].size
    assert size is not None
    return share.of_size(size)


def _max_disruptive_acts(plan: Plan, facts: Facts) -> list[RuleAnswer]:
    n_own = sum(step.is_disruptive for step in plan.acts_of(facts.rung))
    limits = facts.policy.max_disruptive_acts
    if not limits or not n_own:
        detail = "nothing of it is disruptive" if limits else "not limited"
        return [RuleAnswer(rule="max_disruptive_acts", word=Word.ALLOW, detail=detail)]
    return [_disruptive_within(limit, n_own, facts) for limit in limits]


def _disruptive_within(limit: Limit, n_own: int, facts: Facts) -> RuleAnswer:
    inside = sorted((at, n) for at, n in facts.admitted_acts if at > facts.now - limit.per)
    left = sum(n for _, n in inside)
    detail = f"{left} of {limit.count} disruptive acts in {print_duration(limit.per)}, {left + n_own} with this plan's"
    if left + n_own <= limit.count:
        return RuleAnswer(rule="max_disruptive_acts", word=Word.ALLOW, detail=detail)
    lifts_at = None
    for at, n in inside:
        left -= n
        if left + n_own <= limit.count:
            lifts_at = at + limit.per
            break
    reason = Reason.MAX_DISRUPTIVE_ACTS
    return RuleAnswer(rule="max_disruptive_acts", word=Word.WAIT, reason=reason, detail=detail, lifts_at=lifts_at)


def _breakers(_: Plan, facts: Facts) -> list[RuleAnswer]:
    if not facts.breakers:
        return [RuleAnswer(rule="breaker", word=Word.ALLOW, detail="there is none")]
    return [_breaker(state, facts) for state in facts.breakers]


def _breaker(state: BreakerState, facts: Facts) -> RuleAnswer:
    breaker = state.breaker
    if state.tripped_at is not None:
        since = print_duration(timedelta(seconds=int((facts.now - state.tripped_at).total_seconds())))
        detail = f"{breaker.name} tripped {since} ago: {state.why}; {how_to_reset(breaker.name)}"
        return RuleAnswer(rule="breaker", word=Word.WAIT, reason=Reason.BREAKER, detail=detail)
    within = print_duration(breaker.within)
    failed = f"{state.n_failures} runs without a fix in {within}"
    if breaker.or_failures is not None and state.n_failures >= breaker.or_failures:
        return _trip(breaker, f"{failed}, the limit is {breaker.or_failures}", facts)
    own = _of_fleet({target.ref for target in facts.asked.targets}, breaker.share, facts)
    if not own:
        return RuleAnswer(rule="breaker", word=Word.ALLOW, detail=f"{breaker.name}: {failed}")
    if unknown := _unknown_fleet("breaker", breaker.share, facts):
        return unknown
    n_after = len(own | _of_fleet(state.changed | facts.promised.keys(), breaker.share, facts))
    limit = _n_of(breaker.share, facts)
    share = f"{n_after} targets changed in {within} with this plan's, {limit} are {breaker.share.percent} %"
    detail = f"{share} of {breaker.share.of}"
    if n_after > limit:
        return _trip(breaker, detail, facts)
    return RuleAnswer(rule="breaker", word=Word.ALLOW, detail=f"{breaker.name}: {detail}; {failed}")


def _trip(breaker: Breaker, why: str, facts: Facts) -> RuleAnswer:
    """It trips, unless something else is in the way: then that one says when to judge again.

    A question changes nothing: the breaker is asked again after the yes.
    """
    if facts.asks:
        return RuleAnswer(rule="breaker", word=Word.ALLOW, detail=f"{breaker.name} would trip after a yes: {why}")
    return RuleAnswer(
        rule="breaker", word=Word.WAIT, reason=Reason.BREAKER, detail=why, lifts_at=facts.now, trips=breaker.name
    )


def how_to_reset(breaker: str) -> str:
    """What a person does about a tripped breaker."""
    return f"once you know why: remediator breaker reset {breaker} --reason TEXT"


Rule = Callable[[Plan, Facts], list[RuleAnswer]]

MESSAGE_RULES: tuple[Rule, ...] = (_cooldown, _max_runs, _require)
"""A plan or rung of messages alone is asked only its own guard."""

ACT_RULES: tuple[Rule, ...] = (
    _targets,
    _protect,
    _require_label,
    _approved,
    _pause,
    _concurrency,
    _busy,
    _cooldown,
    _max_runs,
    _max_targets,
    _max_disruptive_acts,
    _breakers,
    _require,
)
