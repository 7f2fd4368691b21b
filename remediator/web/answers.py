"""What the API answers, for its description: ``openapi`` makes JSON Schemas of these models.

Answers are made by the engine and not by these, so that describing them costs no call anything; the tests hold real
answers against them. A field with ``None`` as its default may be absent, and is never null.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field, JsonValue

from remediator.core.action import TargetKind, UndoWhen
from remediator.core.event import EventType
from remediator.core.guard import Word
from remediator.core.outcome import RunOutcome
from remediator.core.playbook import OnFailure
from remediator.core.policy import Mode
from remediator.core.run import Phase
from remediator.errors import Reason

Time = Annotated[str, Field(description="UTC, RFC 3339.", examples=["2026-03-01T12:00:00.000000Z"])]
Count = Annotated[int, Field(ge=0)]
RunId = Annotated[str, Field(description="Of a run; its first eight characters stand for it where no other has them.")]
TimeOrNothing = Annotated[str, Field(description='UTC, RFC 3339; "" for none.')]
Duration = Annotated[str, Field(description="As Prometheus writes it.", examples=["1h30m"])]
Per = Annotated[dict[str, str], Field(description="The values that say what the run is about.")]


class Problem(BaseModel):
    """Why not, and what to do."""

    error: str


class Taken(BaseModel):
    """A delivery is committed."""

    delivery_id: int
    alerts: Count
    bad_alerts: Annotated[Count, Field(description="Members that are no alerts; the audit says why.")]


class Pause(BaseModel):
    """Nothing acts."""

    by: str
    reason: str
    at: TimeOrNothing


class Head(BaseModel):
    """The last event of the audit."""

    seq: Count
    hash: str


class Run(BaseModel):
    """A run as lists show it."""

    run_id: RunId
    playbook: str
    case: str
    per: Per
    phase: Phase
    outcome: Annotated[RunOutcome | Literal[""], Field(description='"" until it has ended.')]
    reason: Annotated[Reason | Literal[""], Field(description="Why it ended so.")]
    waits_for: Annotated[list[str], Field(description="rule:reason of each rule that it waits for.")]
    created_at: Time
    ended_at: TimeOrNothing
    due_at: Annotated[TimeOrNothing, Field(description='When it is looked at next; "" when only an event wakes it.')]
    has_acted: bool
    asks: Annotated[list[str], Field(description="The notification targets that were asked whether it may act.")]
    question: Annotated[Count, Field(description="Number of what it asks, 0 when it asks nothing.")]
    expires_at: Annotated[TimeOrNothing, Field(description="No answer by then is a no. The engine's absence moves it.")]


class RunEvent(BaseModel):
    """One event of a run, as the audit has it."""

    seq: Annotated[int, Field(ge=1)]
    at: Time
    type: EventType
    actor: Annotated[str, Field(description='"engine", or who asked for it.')]
    outcome: Annotated[str, Field(description='Of an attempt, a verification or the run; else "".')]
    target: Annotated[str, Field(description='Its ref; "" for events of no one target.')]
    data: Annotated[dict[str, JsonValue], Field(description="What docs/reference/events.md says of its type.")]


class RunWithEvents(Run):
    """A run and all that happened in it."""

    events: list[RunEvent]


class Breaker(BaseModel):
    """A breaker: of a policy in force, or of an older one."""

    name: Annotated[str, Field(description="Of its policy.")]
    tripped: bool
    tripped_at: TimeOrNothing
    why: Annotated[str, Field(description='What it tripped on; "" while it is not tripped.')]
    reset_at: TimeOrNothing
    in_force: bool
    limit: Annotated[str, Field(description='What it trips at, in words; "" when no policy in force has it.')]
    n_changed: Annotated[Count, Field(description="Targets of its fleet's kind that it counts; 0 while tripped.")]
    n_failures: Annotated[Count, Field(description="Runs without a fix that it counts; 0 while tripped.")]


class BreakerWasReset(BaseModel):
    """Acts go on."""

    breaker: str
    reset_by: str
    woken: Annotated[Count, Field(description="Runs that are judged anew.")]


class Ended(BaseModel):
    """How many runs ended so."""

    outcome: RunOutcome
    reason: Reason
    n: Count


class Status(BaseModel):
    """What a person wants to see first."""

    version: str
    ready: bool
    checks: Annotated[dict[str, str], Field(description='Each "ok", or what is wrong and what to do.')]
    up_since: Time
    mode: Mode
    paused: Annotated[Pause | None, Field(description="null: acts go on.")]
    tripped_breakers: Annotated[list[Breaker], Field(description="Nothing acts until each of them is reset.")]
    playbooks: Annotated[list[str], Field(description="Names of those in force.")]
    open_alerts: Count
    open_subjects: Count
    adopted_subjects: Annotated[Count, Field(description="Fired before a playbook could act on them.")]
    deliveries_waiting: Annotated[Count, Field(description="Committed and not handled yet.")]
    open_leases: Annotated[Count, Field(description="Changes that are still to be taken back.")]
    runs_by_phase: dict[Phase, Count]
    waiting_for: Annotated[dict[Reason, Count], Field(description="Runs that wait, by what for.")]
    ended_lately: Annotated[list[Ended], Field(description="Of the runs that were made in the last 24 hours.")]
    open_runs: Annotated[list[Run], Field(description="At most 100, newest first.")]
    unsettled_runs: Annotated[list[RunId], Field(description="Of unknown outcome: a person has to settle them.")]
    audit: Head


class Refusal(BaseModel):
    """Why a plan cannot be carried out."""

    reason: Reason
    detail: str


class Started(BaseModel):
    """A run by hand."""

    run_id: RunId
    playbook: str
    case: str
    per: Per
    refused: Refusal | None = None


class Cancelled(BaseModel):
    """A run that is to end."""

    run_id: RunId
    cancelled_by: str


class Answered(BaseModel):
    """What a run asked, and what a person said."""

    run_id: RunId
    question: Annotated[int, Field(ge=1, description="Its number.")]
    key: Annotated[str, Field(description='What it is about: "rung.N" of a ladder (0: there is none), or a step.')]
    answer: Literal["given", "denied"]
    by: str


class Noted(BaseModel):
    """A note is kept."""

    run_id: RunId
    noted_by: str


class Asked(BaseModel):
    """A change that is to be taken back."""

    lease_id: str
    step: str
    action: str
    target: str
    waits_for: Annotated[str, Field(description='What it waits for; "" = it goes now.')]


class UndoRequested(BaseModel):
    """What a run changed is to be taken back."""

    run_id: RunId
    requested_by: str
    leases: Annotated[list[Asked], Field(description="The youngest first.")]


class Lease(BaseModel):
    """A change that ends."""

    lease_id: str
    run_id: RunId
    playbook: str
    per: Per
    step: str
    action: str
    target: str
    state: Annotated[
        Literal["open", "released", "kept", "undone", "drifted", "reverted"],
        Field(description="released: goes with the lease above it; kept: beyond its time; the last three: closed."),
    ]
    before: Annotated[dict[str, JsonValue], Field(description="What an undo brings back.")]
    after: Annotated[dict[str, JsonValue], Field(description="What the target was last left in.")]
    when: UndoWhen
    after_resolve: Duration
    goes_at_resolve: Annotated[bool, Field(description="False of a run by hand, a latched alert, and `when: never`.")]
    opened_at: Time
    at_most_at: Annotated[TimeOrNothing, Field(description='When it ends at the latest; "" = a person ends it.')]
    due_at: Annotated[TimeOrNothing, Field(description='When it is looked at next; "" when only an event wakes it.')]
    kept_at: TimeOrNothing
    requested_by: Annotated[str, Field(description='Who asked for its undo; "" for nobody.')]
    retry_at: Annotated[TimeOrNothing, Field(description="When an undo that failed is tried again.")]
    closed_at: TimeOrNothing
    detail: Annotated[str, Field(description="How it was closed, in words.")]


class Settled(BaseModel):
    """A run whose outcome was unknown."""

    run_id: RunId
    outcome: RunOutcome


class Paused(BaseModel):
    """The engine is paused."""

    paused: Pause


class Resumed(BaseModel):
    """The engine goes on."""

    paused: Literal[False]
    woken: Annotated[Count, Field(description="Runs that are judged anew.")]


class Reloaded(BaseModel):
    """What is in force."""

    ok: bool
    playbooks: Annotated[Count, Field(description="How many are in force.")]
    adopted: Annotated[Count, Field(description="Alerts that fire and are not acted on until they fire anew.")]
    problems: Annotated[list[str], Field(description="file:line:column: what is wrong.")]


class NotReloaded(Reloaded, Problem):
    """The playbooks have problems; the set before stays in force."""


class Health(BaseModel):
    """The process answers."""

    ok: Literal[True]


class Readiness(BaseModel):
    """Whether it can take deliveries and act on them."""

    ready: bool
    checks: Annotated[dict[str, str], Field(description='Each "ok", or what is wrong and what to do.')]


class Target(BaseModel):
    """What a step would touch."""

    ref: str
    kind: TargetKind
    uid: str
    name: str
    host: str
    cluster: str
    node: str
    namespace: str
    owner: str
    labels: dict[str, str]
    state: str


class Retry(BaseModel):
    """How a step is tried again."""

    wait: Duration
    max_wait: Duration
    jitter: str
    attempts: Annotated[int, Field(ge=1)] | None = None
    budget: Duration | None = None


class Condition(BaseModel):
    """A query that gives one number; one of the keys compares it."""

    name: str
    query: str
    below: str | None = None
    above: str | None = None
    equals: str | None = None
    now: Annotated[str, Field(description="What it says now, in words.")]


class Check(BaseModel):
    """What is looked at afterwards: that the alert is resolved, or a condition over time."""

    within: Duration
    alert: Literal["resolved"] | None = None
    name: str | None = None
    query: str | None = None
    below: str | None = None
    above: str | None = None
    equals: str | None = None
    settle: Duration | None = None
    holds: Duration | None = None
    now: Annotated[str | None, Field(description="What the condition says now, in words.")] = None


class Approval(BaseModel):
    """People are asked first."""

    ask: list[str]
    expires: Duration


class Undo(BaseModel):
    """When what the step did is taken back."""

    when: UndoWhen
    after: Duration
    at_most: Duration
    require: list[Condition]


class Step(BaseModel):
    """One step as it would be done."""

    name: str
    rung: Annotated[Count, Field(description="Of the ladder; 0: there is none.")]
    action: str
    describes: Annotated[str, Field(description="In words.")]
    params: dict[str, JsonValue]
    if_: Annotated[str, Field(alias="if", description='Its condition, "" for none.')]
    runs: Literal["yes", "no", "decided later"]
    timeout: Duration
    retry: Retry
    on_failure: OnFailure
    disruptive: bool
    approval: Annotated[Approval | None, Field(description="Of this step alone.")]
    verify: list[Check]
    undo: Annotated[Undo | None, Field(description="Absent where it cannot be taken back.")] = None
    targets: list[Target]
    affects: Annotated[list[Target] | None, Field(description="What is touched with the targets.")] = None
    problem: Annotated[str | None, Field(description="Why its targets could not be asked for.")] = None


class RuleAnswer(BaseModel):
    """What one guard rule says."""

    rule: str
    word: Word
    reason: Reason
    detail: str
    lifts_at: TimeOrNothing


class Verdict(BaseModel):
    """What the guard says: the strictest of its rules."""

    word: Word
    trips: Annotated[list[str], Field(description="Breakers that this act would trip.")]
    reasons: list[RuleAnswer]
    answers: Annotated[list[RuleAnswer], Field(description="Of every rule, those that allow too.")]


class Ladder(BaseModel):
    """Rungs, one after the other."""

    within: Annotated[Duration, Field(description="Back within this time: one rung higher.")]
    starts_at: Annotated[Count, Field(description="The rung that it would begin on, which the verdict is about.")]
    rungs: list[int]


class FleetSize(BaseModel):
    """What a limit is a share of."""

    name: str
    size: Annotated[Count, Field(description="0 when it is not known.")]
    problem: str


class Guard(BaseModel):
    """A playbook's own limits."""

    cooldown: Duration
    tell_after: Annotated[Duration, Field(description="People are told of what has waited for so long.")]
    max_runs: Annotated[dict[str, int | str] | None, Field(description="How many, `per` how long.")] = None
    max_targets: Annotated[
        dict[str, int | str] | None, Field(description="How many, or how many percent `of` a fleet, `per` how long.")
    ] = None


class PlannedRun(BaseModel):
    """What a playbook would do."""

    playbook: str
    case: str
    mode: Mode
    per: Per
    run_id: RunId
    hold: Duration
    stop_on_resolve: bool
    latched: bool
    guard: Guard
    report_to: list[str]
    escalate_to: list[str]
    steps: list[Step]
    resolved: Annotated[list[Step], Field(description="Done once the alert has resolved.")]
    refused: Annotated[Refusal | None, Field(description="Then there is no more than this.")] = None
    prometheus: Annotated[str | None, Field(description='The one that is asked; "" when none is known.')] = None
    ladder: Ladder | None = None
    approval: Annotated[Approval | None, Field(description="Of the whole plan, or of each rung.")] = None
    require: Annotated[list[Condition] | None, Field(description="Must hold just before acting.")] = None
    verify: list[Check] | None = None
    fleets: Annotated[list[FleetSize] | None, Field(description="That limits asked here are shares of.")] = None
    verdict: Verdict | None = None
    open_subject: Annotated[str | None, Field(description="Its run is the one there is: no second would start.")] = None


class NotMatched(BaseModel):
    """A playbook that leaves the alert alone."""

    playbook: str
    why: list[str]


class PlannedAlert(BaseModel):
    """What would be done for one alert."""

    labels: dict[str, str]
    fingerprint: str
    status: Literal["firing", "resolved"]
    matches: list[PlannedRun]
    not_matched: list[NotMatched]
    problem: str | None = None


class BadAlert(BaseModel):
    """A member of a delivery that is no alert."""

    index: Count
    problem: str


class DryRun(BaseModel):
    """What would be done for a delivery."""

    alerts: list[PlannedAlert]
    bad_alerts: list[BadAlert]
