"""Plans: complete when they are made, or refused with the reason; and packed into the log without loss."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from plans import a_plan, a_step
from remediator.actions import REGISTRY
from remediator.core.action import UndoWhen
from remediator.core.alert import Alert, AlertStatus, label_key
from remediator.core.condition import Check, Comparison, Condition
from remediator.core.match import Match, MissingPer
from remediator.core.plan import (
    Plan,
    Refusal,
    Runs,
    Undo,
    make_plan,
    missing_key,
    pack_plan,
    params_of,
    planned_message,
    run_id,
    stricter,
    subject_id,
    unpack_plan,
)
from remediator.core.playbook import (
    Approval,
    Case,
    GuardRules,
    LabelMap,
    MaxTargets,
    OnFailure,
    Playbook,
    PlaybookSet,
    Step,
)
from remediator.core.policy import Limit, Mode, Policy, Share
from remediator.core.render import Expression, ParamTemplate
from remediator.core.retry import RetryPolicy
from remediator.errors import MissingValueError, Reason

LABELS = {"alertname": "Leak", "hostname": "gpu-07:9400", "container_name": "trainer-0"}
MINUTE = timedelta(minutes=1)


def step(name: str = "restart", action: str = "docker.restart", *, condition: str = "", **params: Any) -> Step:
    given = params or {"container": "{{ labels.container_name }}"}
    return Step(
        name=name,
        action=action,
        params={key: ParamTemplate.parse(value) for key, value in given.items()},
        condition=Expression.parse(condition) if condition else None,
        timeout=5 * MINUTE,
        retry=RetryPolicy.default(),
        on_failure=OnFailure.STOP,
    )


def planned(*steps: Step, labels: dict[str, str] = LABELS, **case: Any) -> tuple[Plan, Refusal | None]:
    rules = PlaybookSet(
        policy=case.pop("policy", Policy()), label_map=LabelMap(), vars={"team": "ml"}, public_url=case.pop("url", "")
    )
    is_by_hand = case.pop("is_by_hand", False)
    filled: dict[str, Any] = {
        "name": "",
        "match": (),
        "ignore": None,
        "mode": Mode.ENFORCE,
        "owner": "",
        "per": ("host",),
        "stop_on_resolve": False,
        "latched": False,
        "hold": 10 * MINUTE,
        "guard": GuardRules(cooldown=MINUTE, max_runs=None, tell_after=MINUTE),
        "steps": steps,
        "verify": (),
        "resolved": (),
        "report_to": (),
        "escalate_to": (),
    }
    made = Case(**(filled | case))
    playbook = Playbook(name="restart", description="", match=(), cases=(made,), sha256="0" * 64, able_key="")
    match = Match(playbook=playbook, case=made, per={"host": "gpu-07"}, per_key=label_key({"host": "gpu-07"}))
    return make_plan(match, alert(labels), {}, subject="s", rules=rules, actions=REGISTRY, is_by_hand=is_by_hand)


def alert(labels: dict[str, str]) -> Alert:
    return Alert(
        status=AlertStatus.FIRING,
        labels=labels,
        annotations={"note": "n"},
        starts_at=datetime(2026, 1, 1, tzinfo=UTC),
        ends_at=None,
        starts_at_text="2026-01-01T00:00:00Z",
        ends_at_text="",
        generator_url="",
        fingerprint="f1",
        label_key=label_key(labels),
    )


def test_make_plan_when_all_is_there_then_params_are_rendered_and_the_host_comes_from_the_label_map() -> None:
    plan, refusal = planned(step())
    assert refusal is None
    assert plan.steps[0].params == {"container": "trainer-0", "host": "gpu-07"}
    assert plan.steps[0].describes == "restart container trainer-0 on gpu-07"


@pytest.mark.parametrize(
    ("labels", "reason", "word"),
    [
        ({"alertname": "Leak", "hostname": "gpu-07"}, Reason.MISSING_LABEL, "labels.container_name"),
        ({"hostname": "gpu-07", "container_name": ""}, Reason.MISSING_LABEL, "labels.container_name"),
        ({"container_name": "trainer-0"}, Reason.MISSING_LABEL, "host"),
        ({"hostname": "gpu-07", "container_name": "$(id)"}, Reason.BAD_PARAMS, "container"),
        ({"hostname": "gpu-07", "container_name": "a" * 129}, Reason.BAD_PARAMS, "container"),
    ],
)
def test_make_plan_when_a_value_is_missing_or_does_not_fit_then_it_is_refused_and_has_no_steps(
    labels: dict[str, str], reason: Reason, word: str
) -> None:
    plan, refusal = planned(step(), labels=labels)
    assert refusal is not None
    assert (refusal.reason, plan.steps, plan.resolved) == (reason, (), ())
    assert word in refusal.detail


def test_make_plan_when_the_timeout_is_too_short_for_a_rendered_value_then_it_is_refused() -> None:
    _, refusal = planned(
        step(container="trainer-0", stop_timeout="{{ labels.grace }}"), labels={**LABELS, "grace": "10m"}
    )
    assert refusal is not None
    assert "timeout 5m is too short; write at least 10m30s" in refusal.detail


def test_make_plan_when_an_if_is_false_then_the_step_is_planned_as_not_to_be_done_and_not_rendered() -> None:
    plan, refusal = planned(step(condition='labels.gpu != ""', container="{{ labels.gpu }}"), step("other"))
    assert refusal is None
    assert [one.runs for one in plan.steps] == [Runs.NO, Runs.YES]
    assert [one.name for one in plan.acts] == ["other"]


def test_make_plan_when_only_messages_remain_then_it_is_messages_alone() -> None:
    tell = step("tell", "notify.send", to=["oncall"], title="x")
    plan, _ = planned(step(condition='labels.gpu != ""'), tell)
    assert plan.is_messages_alone


def test_make_plan_when_values_are_late_then_their_source_is_kept_and_rendered_at_their_turn() -> None:
    tell = step("tell", "notify.send", to=["oncall"], title="{{ steps.restart.outcome }} of {{ vars.team }}")
    plan, refusal = planned(step(), tell)
    assert refusal is None
    assert plan.steps[1].late_params == {"title": "{{ steps.restart.outcome }} of {{ vars.team }}"}
    context = {**plan.context, "steps": {"restart": {"outcome": "succeeded", "before": {}, "after": {}}}}
    params = params_of(plan.steps[1], REGISTRY["notify.send"], context)
    assert params.model_dump()["title"] == "succeeded of ml"


def test_params_of_when_a_late_value_is_not_there_then_it_is_missing() -> None:
    plan, _ = planned(step(), step("tell", "notify.send", to=["oncall"], title="{{ steps.restart.after.pid }}"))
    context = {**plan.context, "steps": {"restart": {"outcome": "failed", "before": {}, "after": {}}}}
    with pytest.raises(MissingValueError):
        params_of(plan.steps[1], REGISTRY["notify.send"], context)


def test_make_plan_when_a_per_label_is_missing_then_all_alerts_that_miss_it_share_one_key() -> None:
    guard = GuardRules(cooldown=MINUTE, max_runs=None, tell_after=MINUTE)
    playbook = Playbook(name="p", description="", match=(), cases=(), sha256="", able_key="")
    filled = Case(
        name="", match=(), ignore=None, mode=Mode.ENFORCE, owner="", per=("pod",), stop_on_resolve=False,
        latched=False, hold=MINUTE, guard=guard, steps=(step(),), verify=(), resolved=(), report_to=(),
        escalate_to=(),
    )  # fmt: skip
    missing = MissingPer(playbook=playbook, case=filled, label="pod")
    made = [
        make_plan(missing, alert(labels), {}, subject="s", rules=PlaybookSet(), actions=REGISTRY)
        for labels in (LABELS, {**LABELS, "x": "y"})
    ]
    assert {plan.per_key for plan, _ in made} == {missing_key(missing)}
    assert [refusal.reason for _, refusal in made if refusal] == [Reason.MISSING_LABEL] * 2


def test_make_plan_when_by_hand_then_there_is_no_hold() -> None:
    assert planned(step(), is_by_hand=True)[0].hold == timedelta(0)


def test_make_plan_when_the_policy_observes_then_the_plan_does() -> None:
    assert planned(step(), policy=Policy(mode=Mode.OBSERVE))[0].mode is Mode.OBSERVE


@pytest.mark.parametrize(
    ("url", "expected"), [("https://r.example/", "https://r.example/api/v1/runs/"), ("", "remediator audit show ")]
)
def test_make_plan_when_there_is_a_public_url_then_the_run_has_one(url: str, expected: str) -> None:
    plan, _ = planned(step(), url=url)
    assert plan.context["run"] == {"id": plan.run_id, "url": f"{expected}{plan.run_id}"}


def test_ids_when_made_again_then_they_are_the_same_and_no_two_subjects_share_one() -> None:
    assert subject_id("p", "c", "k", "e") == subject_id("p", "c", "k", "e")
    parts = ["a", "b", "ab", ""]
    ids = {subject_id(*four) for four in [(a, b, c, d) for a in parts for b in parts for c in parts for d in parts]}
    assert len(ids) == len(parts) ** 4
    assert run_id("p", "c", "s") != run_id("p", "", "cs")


def test_stricter_when_two_modes_meet_then_the_one_that_may_do_less_wins() -> None:
    assert stricter(Mode.OBSERVE, Mode.ENFORCE) is Mode.OBSERVE
    assert stricter(Mode.OBSERVE, Mode.DISABLED) is Mode.DISABLED


def test_planned_message_when_made_then_it_is_a_message_that_may_fail() -> None:
    made = planned_message("message.report", ["oncall"], "t", "b", REGISTRY, RetryPolicy.default())
    assert (made.is_message, made.on_failure, made.params) == (
        True,
        OnFailure.CONTINUE,
        {"to": ["oncall"], "title": "t", "body": "b"},
    )


durations = st.integers(0, 10**10).map(lambda ms: timedelta(milliseconds=ms))
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
values = st.recursive(
    texts | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
retries = st.builds(
    RetryPolicy,
    attempts=st.integers(1, 99),
    wait=durations,
    max_wait=durations,
    jitter_pct=st.integers(0, 100),
    budget=st.none() | durations,
)
conditions = st.builds(Condition, name=texts, query=texts, comparison=st.sampled_from(list(Comparison)), bound=texts)
checks = st.builds(Check, within=durations) | st.builds(
    Check, within=durations, condition=conditions, settle=durations, holds=durations
)
approvals = st.builds(Approval, ask=st.lists(texts, min_size=1, max_size=2).map(tuple), expires=durations)
undos = st.builds(
    Undo,
    when=st.sampled_from(list(UndoWhen)),
    after=durations,
    at_most=durations,
    require=st.lists(conditions, max_size=2).map(tuple),
)
counts = st.integers(1, 10**6)
guards = st.builds(
    GuardRules,
    cooldown=durations,
    max_runs=st.none() | st.builds(Limit, count=counts, per=durations),
    tell_after=durations,
    max_targets=st.none()
    | st.builds(MaxTargets, limit=counts | st.builds(Share, percent=st.integers(1, 100), of=texts), per=durations),
)
steps = st.builds(
    a_step,
    name=st.from_regex(r"[a-z][a-z0-9_]*", fullmatch=True),
    params=st.dictionaries(texts, values, max_size=3),
    late_params=st.dictionaries(texts, values, max_size=2),
    runs=st.sampled_from(list(Runs)),
    condition=texts,
    timeout=durations,
    retry=retries | retries.map(lambda one: replace(one, attempts=None, budget=MINUTE)),
    on_failure=st.sampled_from(list(OnFailure)),
    is_idempotent=st.booleans(),
    is_message=st.booleans(),
    rung=st.integers(0, 9),
    verify=st.lists(checks, max_size=2).map(tuple),
    undo=st.none() | undos,
    approval=st.none() | approvals,
)
packable = st.builds(
    a_plan,
    mode=st.sampled_from(list(Mode)),
    per=st.dictionaries(texts, texts, max_size=3),
    hold=durations,
    latched=st.booleans(),
    is_by_hand=st.booleans(),
    guard=guards,
    steps=st.lists(steps, max_size=3).map(tuple),
    verify=st.lists(checks, max_size=2).map(tuple),
    resolved=st.lists(steps, max_size=2).map(tuple),
    report_to=st.lists(texts, max_size=2).map(tuple),
    context=st.dictionaries(texts, values, max_size=4),
    require=st.lists(conditions, max_size=2).map(tuple),
    ladder=st.none() | durations,
    approval=st.none() | approvals,
    prometheus=texts,
)


@given(plan=packable)
def test_pack_plan_when_written_canonically_and_read_back_then_it_is_the_same_plan(plan: Plan) -> None:
    assert unpack_plan(json.loads(rfc8785.dumps(pack_plan(plan)))) == plan


def test_pack_plan_when_max_runs_is_set_then_it_is_kept() -> None:
    plan = a_plan()
    assert unpack_plan(pack_plan(plan)) == plan
