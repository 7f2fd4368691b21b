"""The guard: a table of facts and words; that no order of the rules changes a verdict, and what limits promise."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from plans import NOW, a_plan, a_step
from remediator.core import guard
from remediator.core.action import Target, Targeting, TargetKind
from remediator.core.condition import Comparison, Condition, Reading
from remediator.core.guard import (
    ACT_RULES,
    SCHEMES,
    STRICTNESS,
    AskedTargets,
    BreakerState,
    Facts,
    FleetSize,
    Pause,
    RuleAnswer,
    Verdict,
    Word,
    judge,
    protection,
)
from remediator.core.matcher import parse_matcher
from remediator.core.plan import Plan
from remediator.core.playbook import GuardRules, MaxTargets
from remediator.core.policy import Breaker, Fleet, Limit, Policy, ProtectLine, Share
from remediator.core.units import parse_duration
from remediator.errors import Reason

ROWS: list[dict[str, Any]] = YAML(typ="safe").load(Path(__file__).parents[2] / "data" / "guard.yaml")
PROBLEMS = {
    "wait": RuleAnswer(rule="targets", word=Word.WAIT, reason=Reason.UNREACHABLE, lifts_at=NOW),
    "refuse": RuleAnswer(rule="targets", word=Word.REFUSE, reason=Reason.NO_TARGET),
}


def target(name: str = "trainer-0", **more: Any) -> Target:
    given: dict[str, Any] = {
        "ref": f"docker:gpu-07/{name}",
        "kind": TargetKind.CONTAINER,
        "uid": "u",
        "name": name,
        "host": "gpu-07",
    }
    return Target(**(given | more))


def ago(text: str) -> datetime:
    return NOW - parse_duration(text)


def policy_of(*lines: str) -> Policy:
    return Policy(protect=tuple(ProtectLine(text=line, matcher=parse_matcher(line)) for line in lines))


def max_targets_of(row: dict[str, Any]) -> MaxTargets | None:
    given = row.get("max_targets")
    if given is None:
        return None
    limit = given["count"] if "count" in given else Share(percent=given["percent"], of=given["of"])
    return MaxTargets(limit=limit, per=parse_duration(given["per"]))


def plan_of(row: dict[str, Any]) -> Plan:
    rules = GuardRules(
        cooldown=parse_duration(row.get("cooldown", "30m")),
        max_runs=Limit(count=3, per=timedelta(hours=24)),
        tell_after=timedelta(hours=1),
        max_targets=max_targets_of(row),
    )
    step = a_step(
        is_message=row.get("messages_alone", False), is_disruptive=row.get("disruptive", True), rung=row.get("rung", 0)
    )
    return a_plan(guard=rules, steps=(step,))


def targets_of(row: dict[str, Any]) -> list[Target]:
    more = {key: row[key] for key in ("uid", "owner", "namespace", "labels") if key in row}
    if "target" in row:
        kind = next(kind for kind, scheme in SCHEMES.items() if row["target"].startswith(scheme))
        return [target(ref=row["target"], kind=kind, **more)]
    return [target(**more), *([target("trainer-1")] if row.get("several") else [])]


def required_of(row: dict[str, Any]) -> list[tuple[Condition, Reading]]:
    return [
        (
            Condition(name=given["name"], query="q", comparison=Comparison.EQUALS, bound="1"),
            Reading(values=tuple(map(float, given.get("values", ()))), problem=given.get("problem", "")),
        )
        for given in row.get("require", ())
    ]


def breakers_of(row: dict[str, Any]) -> list[BreakerState]:
    return [
        BreakerState(
            breaker=Breaker(
                name=given["name"],
                share=Share(percent=20, of=given.get("of", "trainers")),
                within=timedelta(minutes=10),
                or_failures=given.get("or_failures"),
            ),
            tripped_at=ago(given["tripped"]) if "tripped" in given else None,
            why="too much",
            changed=frozenset(given.get("changed", ())),
            n_failures=given.get("failures", 0),
        )
        for given in row.get("breakers", ())
    ]


FLEETS = {
    "trainers": Fleet(name="trainers", kind=TargetKind.CONTAINER, size=10),
    "gpus": Fleet(name="gpus", kind=TargetKind.GPU, query="count(up)"),
}


def policy_for(row: dict[str, Any]) -> Policy:
    limits = (Limit(count=given["count"], per=parse_duration(given["per"])) for given in row.get("max_acts", ()))
    lines = (ProtectLine(text=line, matcher=parse_matcher(line)) for line in row.get("require_label", ()))
    return replace(
        policy_of(*row.get("protect", ())),
        require_labels=tuple(lines),
        max_disruptive_acts=tuple(limits),
        fleets={} if row.get("no_fleets") else FLEETS,
    )


def facts_of(row: dict[str, Any]) -> Facts:
    acted = [ago(text) for text in row.get("acted", ())]
    affected = [target("passenger", kind=TargetKind.POD, **given) for given in row.get("affects", ())]
    return Facts(
        now=NOW,
        asked=AskedTargets(
            asked_at=NOW,
            by_step={"steps.restart": Targeting(targets=tuple(targets_of(row)), affects=tuple(affected))},
            problem=PROBLEMS.get(row.get("unanswered", "")),
        ),
        policy=policy_for(row),
        rung=row.get("rung", 0),
        has_acted=row.get("has_acted", False),
        pause=Pause(by="alice", reason="maintenance", at="") if row.get("pause") else None,
        last_disruptive={ref: (ago(text), "other") for ref, text in row.get("disrupted", {}).items()},
        last_acted_at=max(acted, default=None),
        acted_at=acted,
        n_admitted=row.get("n_admitted", 0),
        n_ahead=row.get("n_ahead", 0),
        busy=row.get("busy", {}),
        required=required_of(row),
        approved={ref: tuple(seen) for ref, seen in row["approved"].items()} if "approved" in row else None,
        own_changes=frozenset(row.get("own_changes", ())),
        changed={ref: ago(text) for ref, text in row.get("changed", {}).items()},
        promised=row.get("promised", {}),
        fleets={
            "trainers": FleetSize(size=10),
            "gpus": FleetSize(problem="no answer") if row.get("gpus_unknown") else FleetSize(size=25),
        },
        admitted_acts=[(ago(text), n) for text, n in row.get("admitted", ())],
        breakers=breakers_of(row),
    )


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_judge_when_the_facts_are_so_then_it_says(row: dict[str, Any]) -> None:
    verdict = judge(plan_of(row), facts_of(row))
    assert verdict.word.value == row["word"]
    assert [answer.rule for answer in verdict.reasons] == row.get("reasons", [])
    if row["word"] == "wait":
        lifts_in = row.get("lifts_in")
        expected = NOW + parse_duration(lifts_in) if lifts_in else PROBLEMS["wait"].lifts_at
        assert verdict.lifts_at == (expected if lifts_in or "unanswered" in row else None)
    assert list(verdict.trips) == row.get("trips", [])
    for text in row.get("says", ()):
        assert text in "; ".join(answer.detail for answer in verdict.reasons)


def test_judge_table_has_every_rule_of_acts() -> None:
    reasons = {rule for row in ROWS for rule in row.get("reasons", ())}
    asked = {answer.rule for answer in judge(plan_of({}), facts_of({})).answers}
    assert reasons == asked
    assert len(asked) == len(ACT_RULES)


# Two rows laid over one another: what refuses beside what waits, in all the pairs that nobody would write down.
PAIRS = st.tuples(st.sampled_from(ROWS), st.sampled_from(ROWS)).map(lambda two: two[0] | two[1])


@given(order=st.permutations(ACT_RULES), row=PAIRS)
def test_judge_whatever_the_order_of_its_rules_then_the_verdict_is_the_same(order: Any, row: dict[str, Any]) -> None:
    plan, facts = plan_of(row), facts_of(row)
    usual = judge(plan, facts)
    kept = guard.ACT_RULES
    guard.ACT_RULES = tuple(order)
    try:
        other = judge(plan, facts)
    finally:
        guard.ACT_RULES = kept
    assert (other.word, other.reasons, other.lifts_at) == (usual.word, usual.reasons, usual.lifts_at)
    assert other.trips == usual.trips
    assert sorted(map(repr, other.answers)) == sorted(map(repr, usual.answers))


answers = st.builds(
    RuleAnswer,
    rule=st.sampled_from("abc"),
    word=st.sampled_from(list(Word)),
    lifts_at=st.none() | st.integers(0, 9).map(lambda minutes: NOW + timedelta(minutes=minutes)),
)


@given(given=st.lists(answers, min_size=1, max_size=5))
def test_verdict_when_it_waits_then_it_lifts_only_when_every_wait_can(given: list[RuleAnswer]) -> None:
    word = max((answer.word for answer in given), key=STRICTNESS.index)
    verdict = Verdict(word=word, answers=tuple(given))
    waits = [answer for answer in given if answer.word is Word.WAIT]
    if waits and all(answer.lifts_at is not None for answer in waits):
        assert verdict.lifts_at == max(answer.lifts_at for answer in waits if answer.lifts_at is not None)
    else:
        assert verdict.lifts_at is None
    assert all(answer.word is not Word.ALLOW for answer in verdict.reasons)


def test_protection_when_what_the_act_would_end_is_protected_then_the_act_is() -> None:
    answer = protection((target(),), (target("db"),), policy_of("name = db"))
    assert (answer.word, answer.detail) == (
        Word.REFUSE,
        "docker:gpu-07/db is protected by policy line 'name = db'",
    )


def test_pause_when_it_is_a_file_then_no_time_is_named() -> None:
    facts = facts_of({"pause": True})
    detail = next(answer.detail for answer in judge(a_plan(), facts).reasons)
    assert detail == "paused by alice: maintenance"


def test_asked_targets_when_two_steps_mean_one_then_it_is_there_once() -> None:
    asked = AskedTargets(
        asked_at=NOW,
        by_step={
            "steps.b": Targeting(targets=(target("b"),), affects=(target("c"),)),
            "steps.a": Targeting(targets=(target("a"), target("b"))),
        },
    )
    assert [one.name for one in asked.targets] == ["a", "b"]
    assert [one.name for one in asked.affected] == ["c"]


# -- windows: what a limit promises, over any history and any wish -----------------------------------------------------

MOMENTS = st.lists(st.integers(0, 200), min_size=1, max_size=40).map(sorted)
"""Seconds at which somebody wants to act."""


@given(moments=MOMENTS, count=st.integers(1, 4), per_s=st.integers(1, 60))
def test_max_disruptive_acts_over_any_history_then_no_window_holds_more_and_an_idle_one_all(
    moments: list[int], count: int, per_s: int
) -> None:
    per, admitted = timedelta(seconds=per_s), []
    for second in moments:
        facts = replace(
            facts_of({}),
            now=NOW + timedelta(seconds=second),
            policy=Policy(max_disruptive_acts=(Limit(count=count, per=per),)),
            admitted_acts=[(at, 1) for at in admitted],
        )
        verdict = judge(a_plan(), facts)
        inside = [at for at in admitted if at > facts.now - per]
        assert (verdict.word is Word.ALLOW) == (len(inside) < count)
        if verdict.word is Word.ALLOW:
            admitted.append(facts.now)
        else:  # at the moment that it names, and not before, the window has room
            assert verdict.lifts_at is not None
            assert len([at for at in admitted if at > verdict.lifts_at - per]) < count
            just_before = verdict.lifts_at - timedelta(microseconds=1)
            assert len([at for at in admitted if at > just_before - per]) >= count
    for at in admitted:
        assert len([one for one in admitted if at - per < one <= at]) <= count


@given(
    wishes=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 5)), min_size=1, max_size=40).map(sorted),
    count=st.integers(1, 4),
    per_s=st.integers(1, 60),
)
def test_max_targets_over_any_history_then_no_window_holds_more_different_ones(
    wishes: list[tuple[int, int]], count: int, per_s: int
) -> None:
    per, done = timedelta(seconds=per_s), list[tuple[datetime, str]]()
    guard_of = plan_of({"cooldown": "0s"}).guard
    plan = a_plan(guard=replace(guard_of, max_targets=MaxTargets(limit=count, per=per)))
    for second, number in wishes:
        now, ref = NOW + timedelta(seconds=second), f"docker:gpu-07/c{number}"
        facts = replace(facts_of({"target": ref}), now=now, changed={one: at for at, one in done})
        verdict = judge(plan, facts)
        if verdict.word is Word.ALLOW:
            done.append((now, ref))
        else:
            assert verdict.lifts_at is not None
            inside = {one for at, one in done if at > verdict.lifts_at - per} | {ref}
            assert len(inside) <= count
    for at, _ in done:
        assert len({one for moment, one in done if at - per < moment <= at}) <= count


def test_trips_when_something_else_is_in_the_way_then_none_does() -> None:
    row = {"breakers": [{"name": "site", "or_failures": 1, "failures": 1}], "pause": True}
    verdict = judge(plan_of(row), facts_of(row))
    assert ([answer.rule for answer in verdict.reasons], verdict.trips) == (["breaker", "pause"], ())


@pytest.mark.parametrize("has_acted", [False, True], ids=["first", "climbed"])
def test_judge_when_a_rung_is_messages_alone_then_only_one_that_begins_there_is_asked(has_acted: bool) -> None:
    plan = a_plan(steps=(a_step(rung=1), a_step("tell", rung=2, is_message=True)))
    facts = replace(facts_of({"acted": ["10m"], "pause": True}), rung=2, has_acted=has_acted)
    assert judge(plan, facts).word is (Word.ALLOW if has_acted else Word.REFUSE)
    assert judge(plan, replace(facts, rung=1)).word is Word.WAIT
