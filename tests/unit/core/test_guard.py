"""The guard: a table of facts and words; and that no order of the rules changes a verdict."""

from __future__ import annotations

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
from remediator.core.guard import (
    ACT_RULES,
    STRICTNESS,
    AskedTargets,
    Facts,
    Pause,
    RuleAnswer,
    Verdict,
    Word,
    judge,
    protection,
)
from remediator.core.matcher import parse_matcher
from remediator.core.plan import Plan
from remediator.core.playbook import GuardRules
from remediator.core.policy import Limit, Policy, ProtectLine
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


def plan_of(row: dict[str, Any]) -> Plan:
    rules = GuardRules(
        cooldown=parse_duration(row.get("cooldown", "30m")),
        max_runs=Limit(count=3, per=timedelta(hours=24)),
        tell_after=timedelta(hours=1),
    )
    return a_plan(guard=rules, steps=(a_step(is_message=row.get("messages_alone", False)),))


def facts_of(row: dict[str, Any]) -> Facts:
    targets = [target(labels=row.get("labels", {}), namespace=row.get("namespace", ""))]
    if row.get("several"):
        targets.append(target("trainer-1"))
    acted = [ago(text) for text in row.get("acted", ())]
    return Facts(
        now=NOW,
        asked=AskedTargets(
            asked_at=NOW,
            by_step={"steps.restart": Targeting(targets=tuple(targets))},
            problem=PROBLEMS.get(row.get("unanswered", "")),
        ),
        policy=policy_of(*row.get("protect", ())),
        pause=Pause(by="alice", reason="maintenance", at="") if row.get("pause") else None,
        last_disruptive={ref: (ago(text), "other") for ref, text in row.get("disrupted", {}).items()},
        last_acted_at=max(acted, default=None),
        acted_at=acted,
        n_admitted=row.get("n_admitted", 0),
        n_ahead=row.get("n_ahead", 0),
        busy=row.get("busy", {}),
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


def test_judge_table_has_every_rule_of_acts() -> None:
    reasons = {rule for row in ROWS for rule in row.get("reasons", ())}
    assert len(reasons) == len(ACT_RULES)


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
