"""Stage 5, guard: ask the actions what they really touch, then judge and reserve in one transaction.

The facts that the store holds, the verdict, the reservation and the event are one transaction on the one writer, so
that two runs can never both take the last place. What lies outside (the real targets, the conditions of ``require``,
the sizes of fleets) is asked before, read-only, and passed in.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from remediator.core.action import JsonValue, LookingActions, Target, Targeting
from remediator.core.condition import Condition, Reading
from remediator.core.event import Event, EventType, utc_text
from remediator.core.guard import (
    ASK_AGAIN,
    AskedTargets,
    BreakerState,
    Facts,
    FleetSize,
    Pause,
    RuleAnswer,
    Verdict,
    Word,
    judge,
)
from remediator.core.move import Finish
from remediator.core.outcome import RunOutcome
from remediator.core.plan import Actions, Plan, PlannedStep
from remediator.core.policy import Breaker, Mode, Policy
from remediator.core.render import Context
from remediator.core.run import Phase, Run, question_data, rung_key
from remediator.engine.clock import Clock
from remediator.engine.conditions import Conditions
from remediator.engine.ending import end_run
from remediator.engine.execute import targets_of
from remediator.engine.fleets import Fleets
from remediator.engine.lending import kept_text
from remediator.engine.record import Recorder
from remediator.errors import ActionError, Reason, TransientActionError
from remediator.store import Connection, breakers, runs
from remediator.store.engine import Store
from remediator.store.writer import Tx

AWAY_FOR = timedelta(seconds=10)
"""A system that did not answer is not asked again so long; its time-out alone is 5 seconds and more."""

PROBE = timedelta(seconds=30)
"""The one look that finds out whether it answers again takes less."""

TICK = timedelta(microseconds=1)
"""The store's times are no finer. What is counted is later than a moment, and a reset's own moment counts."""

JUDGE_AGAIN = timedelta(minutes=10)
"""A plan that waits for an event is judged again at least this often. Events wake it; this is a second net, and each
look asks the targets' systems."""


def ask_targets(
    plan: Plan, rung: int, actions: LookingActions, clients: Any, now: datetime, context: Context
) -> AskedTargets:
    """Ask each action of a rung that may run what it touches. Read-only. Raises nothing that an action may raise.

    Args:
        rung: 0 where there is no ladder.
        clients: the looking side is enough.
        context: for params with late values; those that name a target have none.
    """
    by_step: dict[str, Targeting] = {}
    for step in plan.acts_of(rung):
        try:
            by_step[step.key] = targets_of(step, actions, clients, context)
        except ActionError as error:
            return AskedTargets(asked_at=now, by_step=by_step, problem=_unanswered(step, error, now))
    return AskedTargets(asked_at=now, by_step=by_step)


class Away:
    """Remembers who did not answer: while one look waits for a host that hangs, all others are told at once.

    Without it a storm on one host that hangs holds every worker in turn, and nobody acts on the healthy ones.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._until: dict[str, tuple[datetime, RuleAnswer]] = {}

    def ask(
        self, steps: Sequence[PlannedStep], now: Callable[[], datetime], look: Callable[[], AskedTargets]
    ) -> AskedTargets:
        """Look, unless a host of these steps has just not answered."""
        places = sorted({_place_of(step) for step in steps})
        with self._lock:
            for place in places:
                until, problem = self._until.get(place, (None, None))
                if until is None or problem is None:
                    continue
                if now() < until:
                    return AskedTargets(
                        asked_at=now(), by_step={}, problem=replace(problem, lifts_at=now() + ASK_AGAIN)
                    )
                self._until[place] = (now() + PROBE, problem)  # this look is the one that finds out
        asked = look()
        with self._lock:
            for place in places:
                if asked.problem is not None and asked.problem.reason is Reason.UNREACHABLE:
                    self._until[place] = (now() + AWAY_FOR, asked.problem)
                else:
                    self._until.pop(place, None)
        return asked


def _place_of(step: PlannedStep) -> str:
    """Which system a step asks: ``docker:gpu-07``."""
    return f"{step.action.partition('.')[0]}:{step.params.get('host', '')}"


def _unanswered(step: PlannedStep, error: ActionError, now: datetime) -> RuleAnswer:
    detail = kept_text(f"step {step.name}: {error}")
    if isinstance(error, TransientActionError):
        return RuleAnswer(
            rule="targets",
            word=Word.WAIT,
            reason=Reason.UNREACHABLE,
            detail=detail,
            lifts_at=now + ASK_AGAIN,
        )
    reason = Reason.NO_TARGET if error.reason is Reason.TARGET_NOT_FOUND else error.reason
    return RuleAnswer(rule="targets", word=Word.REFUSE, reason=reason, detail=detail)


def wanted(targets: tuple[Target, ...]) -> dict[str, bool]:
    """What to reserve: each target exclusively, what contains it shared."""
    found = {target.ref: True for target in targets}
    for target in targets:
        for ref in target.contained_in:
            found.setdefault(ref, False)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """What is asked before the transaction, since it takes as long as others take to answer.

    Attributes:
        targets: of the rung.
        required: what the plan's ``require`` asks for, and the answers.
        fleets: sizes by name; see ``engine.fleets``.
    """

    targets: AskedTargets
    required: Sequence[tuple[Condition, Reading]] = ()
    fleets: Mapping[str, FleetSize] = field(default_factory=dict)


def ask_outside(
    plan: Plan, rung: int, policy: Policy, targets: AskedTargets, ask: Conditions, fleets: Fleets
) -> Outside:
    """Ask what else lies outside, now that the targets are known. Raises nothing."""
    readings = ask.ask(plan.prometheus, plan.require)
    return Outside(
        targets=targets,
        required=tuple(zip(plan.require, readings, strict=True)),
        fleets=fleets.sizes(plan, rung, policy, targets.asked_at),
    )


def gather(
    conn: Connection, run: Run, rung: int, outside: Outside, policy: Policy, pause: Pause | None, now: datetime
) -> Facts:
    """The facts that the store holds, of one moment."""
    plan, asked = run.plan, outside.targets
    refs = wanted(asked.targets)
    is_admitted = runs.is_admitted(conn, plan.run_id)
    busy = runs.taken(conn, refs, plan.run_id)
    n_ahead = 0
    if not is_admitted:
        # What it holds from the rung before is not theirs who wait for it, however old they are.
        wanted_anew = refs.keys() - runs.held(conn, plan.run_id).keys()
        busy = {**runs.awaited(conn, wanted_anew, plan.run_id, run.created_at), **busy}
        n_ahead = runs.n_ahead(conn, plan.run_id, run.created_at)
    acted = runs.acted_at(conn, plan.playbook, plan.per_key, plan.run_id)
    if not is_admitted and runs.is_about_to_act(conn, plan.playbook, plan.per_key, plan.run_id):
        acted = [*acted, now]  # on another target, where it has not acted yet but will: after that, both would have
    max_targets, limits = plan.guard.max_targets, policy.max_disruptive_acts
    return Facts(
        now=now,
        asked=asked,
        policy=policy,
        rung=rung,
        has_acted=run.has_acted,
        pause=pause,
        last_disruptive=runs.last_disruptive(conn, [target.ref for target in asked.targets], plan.run_id),
        last_acted_at=max(acted, default=None),
        acted_at=acted,
        # A run that has its place keeps it: judged anew, it would else wait for others that wait for it.
        n_admitted=0 if is_admitted else runs.n_admitted(conn, plan.run_id),
        n_ahead=n_ahead,
        busy=busy,
        required=outside.required,
        approved=run.asked_targets,
        own_changes=own_changes(run),
        changed={} if max_targets is None else runs.changed_by(conn, plan.playbook, now - max_targets.per),
        promised=runs.promised(conn, plan.run_id),
        fleets=outside.fleets,
        admitted_acts=[]
        if not limits
        else runs.admitted_acts(conn, now - max(limit.per for limit in limits), plan.run_id, rung),
        breakers=[breaker_state(conn, breaker, now) for breaker in policy.breakers],
    )


def own_changes(run: Run) -> frozenset[str]:
    """Refs that this run changed itself, or may have."""
    attempts = (attempt for state in run.steps.values() for attempt in state.attempts)
    return frozenset(ref for attempt in attempts if attempt.has_changed for ref in attempt.targets)


def breaker_state(conn: Connection, breaker: Breaker, now: datetime) -> BreakerState:
    """Whether it is tripped, else what it counts on: from its last reset on."""
    row = breakers.get_breaker(conn, breaker.name)
    if row is not None and row.tripped_at is not None:
        return BreakerState(breaker=breaker, tripped_at=row.tripped_at, why=row.why)
    since = now - breaker.within
    if row is not None and row.counts_from is not None:
        since = max(since, row.counts_from - TICK)
    return BreakerState(
        breaker=breaker,
        changed=runs.changed_since(conn, since),
        n_failures=runs.n_without_fix(conn, since),
    )


PauseSource = Callable[[Connection], Pause | None]
"""Reads who has paused the engine, on a connection."""


class Reserver:
    """Judges and reserves."""

    def __init__(
        self,
        store: Store,
        recorder: Recorder,
        actions: Actions,
        clients: Any,
        conditions: Conditions,
        fleets: Fleets,
        clock: Clock,
        pause: PauseSource,
    ) -> None:
        self._store = store
        self._pause = pause
        self._away = Away()
        self._recorder = recorder
        self._actions = actions
        self._clients = clients
        self._conditions = conditions
        self._fleets = fleets
        self._clock = clock

    def reserve(self, run: Run, rung: int, policy: Policy, *, asks: bool) -> tuple[Verdict, datetime | None]:
        """Ask, judge, and on allow reserve; all of it recorded.

        A refusal ends the run. A wait is recorded when what it waits for has changed, and trips the breakers that it
        would be too much for. A playbook that observes is judged, reserves nothing and trips nothing.

        Args:
            rung: that it is about to begin, or is at; 0 where there is no ladder.
            asks: people are to be asked first: on allow they are, and nothing is reserved.

        Returns:
            The verdict, and when to judge again where it is wait.

        Raises:
            StoreError: nothing was decided.
        """
        plan, now = run.plan, self._clock.now
        targets = self._away.ask(
            plan.acts_of(rung),
            now,
            lambda: ask_targets(plan, rung, self._actions, self._clients, now(), run.context(1)),
        )
        outside = ask_outside(plan, rung, policy, targets, self._conditions, self._fleets)
        return self._store.write(lambda tx: self._decide(tx, run, rung, outside, policy, asks=asks))

    def _decide(
        self, tx: Tx, run: Run, rung: int, outside: Outside, policy: Policy, *, asks: bool
    ) -> tuple[Verdict, datetime | None]:
        plan, now, asked = run.plan, self._clock.now(), outside.targets
        facts = replace(gather(tx.conn, run, rung, outside, policy, self._pause(tx.conn), now), asks=asks)
        verdict = judge(plan, facts)
        waits_for = waits_of(verdict, facts)
        tripped = verdict.trips if plan.mode is Mode.ENFORCE else ()
        n = run.n_events + 1
        if verdict.word is not Word.WAIT or waits_for != run.waits_for or plan.mode is not Mode.ENFORCE or tripped:
            data = verdict_data(verdict, asked, waits_for, rung=rung, asks=asks, tripped=tripped)
            target = ", ".join(target.ref for target in asked.targets)
            self._recorder.append_to_run(tx, plan, n, EventType.VERDICT_GIVEN, now, data, target=target)
        for answer in verdict.reasons if tripped else ():
            self._trip(tx, plan, answer, now)
        if plan.mode is not Mode.ENFORCE:
            return verdict, None
        match verdict.word:
            case Word.ALLOW if asks:
                self._ask_people(tx, run, rung, n + 1, now)
                return verdict, None
            case Word.ALLOW:
                self._admit(tx, run, rung, asked, now)
                return verdict, None
            case Word.WAIT:
                runs.set_phase(tx.conn, plan.run_id, Phase.WAITING, waits_for)
                return verdict, _judge_again_at(verdict, now)
            case Word.REFUSE:
                first = verdict.reasons[0]
                detail = "; ".join(answer.detail for answer in verdict.reasons if answer.word is Word.REFUSE)
                end_run(tx, self._recorder, plan, n + 1, Finish(RunOutcome.REFUSED, first.reason, detail), now)
                return verdict, None

    def _trip(self, tx: Tx, plan: Plan, answer: RuleAnswer, now: datetime) -> None:
        """Nothing acts from now on until a person resets it; who trips it tells people, and nobody else does."""
        breakers.trip(tx.conn, answer.trips, now, answer.detail)
        data: dict[str, JsonValue] = {"breaker": answer.trips, "detail": answer.detail, "run_id": plan.run_id}
        event = Event(type=EventType.BREAKER_TRIPPED, at=now, playbook=plan.playbook, data=data)
        self._recorder.append(tx, event)

    def _ask_people(self, tx: Tx, run: Run, rung: int, n: int, now: datetime) -> None:
        """Record that people are asked. A run that has acted holds on to its targets, any other holds nothing."""
        plan = run.plan
        assert plan.approval is not None
        data = question_data(rung_key(rung), plan.approval, rung)
        self._recorder.append_to_run(tx, plan, n, EventType.APPROVAL_ASKED, now, data)
        let_go_while_asking(tx.conn, run)

    def _admit(self, tx: Tx, run: Run, rung: int, asked: AskedTargets, now: datetime) -> None:
        plan = run.plan
        acts = plan.acts_of(rung)
        refs = wanted(asked.targets) if acts else {}
        if run.has_acted:  # what the rungs before touched stays its own until the end of the last verification
            for ref, is_exclusive in runs.held(tx.conn, plan.run_id).items():
                refs[ref] = is_exclusive or refs.get(ref, False)
        n_disruptive = sum(step.is_disruptive for step in acts)
        runs.admit(tx.conn, plan.run_id, refs, now, counts=bool(acts), rung=rung, n_disruptive=n_disruptive)


def let_go_while_asking(conn: Connection, run: Run) -> None:
    """A run that asks is not at work; unless it has acted, it reserves nothing."""
    if run.has_acted:
        runs.give_place_back(conn, run.plan.run_id)
    else:
        runs.release(conn, run.plan.run_id)
    runs.set_phase(conn, run.plan.run_id, Phase.ASKING)


def waits_of(verdict: Verdict, facts: Facts) -> tuple[str, ...]:
    """What a plan waits for: ``rule:reason`` each, and ``busy:<ref>`` for each target that another run has."""
    if verdict.word is not Word.WAIT:
        return ()
    rules = {f"{answer.rule}:{answer.reason.value}" for answer in verdict.reasons}
    return tuple(sorted(rules | {f"busy:{ref}" for ref in facts.busy}))


def _judge_again_at(verdict: Verdict, now: datetime) -> datetime:
    """When a plan that waits is judged again, if no event wakes it before.

    The end of another run does not wake what ``max_disruptive_acts`` holds too (``store.runs.may_go_on``): such a plan
    is judged when the window lifts, and from then on waits for that end alone.
    """
    window = next((answer.lifts_at for answer in verdict.reasons if answer.rule == "max_disruptive_acts"), None)
    return min(verdict.lifts_at or window or now + JUDGE_AGAIN, now + JUDGE_AGAIN)


def verdict_data(
    verdict: Verdict,
    asked: AskedTargets,
    waits_for: tuple[str, ...],
    *,
    rung: int,
    asks: bool,
    tripped: tuple[str, ...],
) -> dict[str, JsonValue]:
    """A verdict as the log keeps it: every rule's answer, and what was planned to be touched."""
    return {
        "word": verdict.word.value,
        "rung": rung,
        "asks": asks,
        "tripped": list(tripped),
        "waits_for": list(waits_for),
        "reasons": [_answer_data(answer) for answer in verdict.reasons],
        "answers": [_answer_data(answer) for answer in verdict.answers],
        "asked_at": utc_text(asked.asked_at),
        "targets": [target_data(target) for target in asked.targets],
        "affects": [target_data(target) for target in asked.affected],
    }


def _answer_data(answer: RuleAnswer) -> dict[str, JsonValue]:
    return {
        "rule": answer.rule,
        "word": answer.word.value,
        "reason": answer.reason.value,
        "detail": answer.detail,
        "lifts_at": utc_text(answer.lifts_at) if answer.lifts_at is not None else "",
        **({"trips": answer.trips} if answer.trips else {}),
    }


def target_data(target: Target) -> dict[str, JsonValue]:
    """A target as the log keeps it and a dry run shows it."""
    return {
        "ref": target.ref,
        "kind": target.kind.value,
        "uid": target.uid,
        "name": target.name,
        "host": target.host,
        "cluster": target.cluster,
        "node": target.node,
        "namespace": target.namespace,
        "owner": target.owner,
        "labels": dict(target.labels),
        "state": target.state,
    }
