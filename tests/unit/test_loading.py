"""Loading playbooks and policies: what they become, what is refused, and where."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from remediator.actions import REGISTRY
from remediator.actions.noop import Noop
from remediator.core.action import TargetKind, UndoWhen
from remediator.core.matcher import parse_matcher
from remediator.core.playbook import Approval, CheckTemplate, ConditionTemplate, MaxTargets, OnFailure, Playbook
from remediator.core.policy import Breaker, Fleet, Limit, Mode, Policy, Share
from remediator.core.retry import RetryPolicy
from remediator.errors import PlaybookError
from remediator.loading import LoadContext, Loaded, effective, load

ROOT = Path(__file__).parents[2]
WHOLE = ROOT / "tests/data/whole_format.yaml"
ERRORS = YAML(typ="safe", pure=True).load((ROOT / "tests/data/playbook_errors.yaml").read_text("utf-8"))


class Limited(Noop):
    """Can be undone, and is by default."""

    name: ClassVar[str] = "test.limit"
    default_undo: ClassVar[UndoWhen | None] = UndoWhen.RESOLVED


class Cordon(Noop):
    """Can be undone, and stays by default."""

    name: ClassVar[str] = "test.cordon"
    default_undo: ClassVar[UndoWhen | None] = UndoWhen.NEVER


CONTEXT = LoadContext(
    actions={**REGISTRY, "test.limit": Limited(), "test.cordon": Cordon()},
    notify_targets=frozenset({"oncall", "ml-platform"}),
    vars={"site": "fra1"},
    public_url="http://r",
    fleets={
        "gpus": Fleet(name="gpus", kind=TargetKind.GPU, size=64),
        "kube_nodes": Fleet(name="kube_nodes", kind=TargetKind.NODE, query="count(kube_node_info)"),
    },
)

Load = Callable[[str], Loaded]
LoadOne = Callable[[str], Playbook]


@pytest.fixture
def load_text(tmp_path: Path) -> Load:
    def load_it(text: str) -> Loaded:
        file = tmp_path / "x.yaml"
        file.write_text(text, "utf-8")
        return load([file], context=CONTEXT)

    return load_it


@pytest.fixture
def load_one(load_text: Load) -> LoadOne:
    def load_it(text: str) -> Playbook:
        loaded = load_text(text)
        assert loaded.problems == ()
        (playbook,) = loaded.playbook_set.playbooks
        return playbook

    return load_it


def places(problems: tuple[PlaybookError, ...]) -> list[str]:
    return [f"{problem.line}:{problem.column}" for problem in problems]


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in ERRORS])
def test_load_when_a_file_is_wrong_then_says_where_and_what_to_write(row: Mapping[str, Any], load_text: Load) -> None:
    problems = load_text(row["text"]).problems
    assert [(at, type(problem).__name__) for at, problem in zip(places(problems), problems, strict=True)] == [
        (problem["at"], problem["error"]) for problem in row["problems"]
    ]
    for problem, expected in zip(problems, row["problems"], strict=True):
        assert expected["says"] in problem.message
        assert problem.located().startswith(problem.file)


def test_load_when_a_file_has_every_key_then_each_acts() -> None:
    loaded = load([WHOLE], context=CONTEXT)
    assert [problem.located() for problem in loaded.problems] == []
    restart, cap = loaded.playbook_set.playbooks
    (case,) = restart.cases
    assert case.guard.max_targets == MaxTargets(limit=2, per=timedelta(hours=1))
    assert names_of(case.require) == ["exporter_up equals 1"]
    assert names_of(case.steps[0].verify) == ["checkpoint_age below 120"]
    (check,) = case.verify
    assert (check.settle, check.holds, check.within) == tuple(timedelta(minutes=minutes) for minutes in (3, 5, 20))
    _, burst, rest = cap.cases
    assert (burst.ladder, [step.rung for step in burst.steps]) == (timedelta(hours=6), [1, 2, 3, 3])
    assert burst.guard.max_targets == MaxTargets(limit=Share(percent=10, of="kube_nodes"), per=timedelta(hours=1))
    assert burst.approval == Approval(ask=("oncall",), expires=timedelta(minutes=30))
    assert burst.steps[3].approval == Approval(ask=("oncall",), expires=timedelta(minutes=30))
    assert rest.approval == Approval(ask=("oncall",), expires=timedelta(hours=4))
    assert (names_of(rest.require), names_of(burst.require)) == (["idle above -0.5"], [])
    policy = loaded.playbook_set.policy
    assert policy.breakers == (
        Breaker(
            name="site",
            share=Share(percent=20, of="gpus"),
            within=timedelta(minutes=10),
            or_failures=3,
        ),
    )
    assert policy.max_disruptive_acts == (Limit(count=2, per=timedelta(hours=1)),)
    assert [line.text for line in policy.require_labels] == ["remediator.io/managed=true"]
    assert policy.fleets == CONTEXT.fleets


def names_of(conditions: Iterable[ConditionTemplate | CheckTemplate]) -> list[str]:
    found = [one.condition if isinstance(one, CheckTemplate) else one for one in conditions]
    return [f"{one.name} {one.comparison} {one.bound}" for one in found if one is not None]


@given(st.binary(max_size=200))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_load_when_a_file_holds_any_bytes_then_nothing_is_raised(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "x.yaml"
    file.write_bytes(data)
    assert load([file], context=CONTEXT).files == (file,)


PLACES = st.sampled_from(
    [
        *("playbook", "match", "per", "hold", "guard", "steps", "verify", "cases", "report", "escalate", "resolved"),
        *("policy", "undo", "approval", "ladder", "mode", "protect", "name", "if", "action", "params", "retry", "to"),
    ]
)
SCALARS = st.one_of(
    st.sampled_from(["noop", "alertname = X", "10m", "enforce", "oncall", "{{ labels.x }}", "notify.send", "resolved"]),
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
)
TREES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(PLACES, inner, max_size=4), max_leaves=30
)


@given(st.dictionaries(PLACES, TREES), st.sampled_from(["playbook", "policy"]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_load_when_a_document_has_any_shape_then_nothing_is_raised(
    tmp_path: Path, document: dict[str, Any], kind: str
) -> None:
    file = tmp_path / "x.yaml"
    YAML(typ="safe", pure=True).dump({kind: "a", **document}, file)
    loaded = load([file], context=CONTEXT)
    assert list(loaded.problems) == sorted(loaded.problems, key=lambda problem: (problem.line, problem.column))


def test_load_when_an_acting_key_is_misspelt_then_it_is_suggested(load_text: Load) -> None:
    problems = load_text(with_steps("{action: noop}", "approvals: 1\nverify: [{alert: resolved, hold: 1m}]\n")).problems
    assert [problem.message.partition("; ")[2] for problem in problems] == [
        "did you mean `approval`?",
        "did you mean `holds`?",
    ]


# -- files -------------------------------------------------------------------------------------------------------------

SIMPLE = "playbook: {name}\nmatch: [alertname = X]\nsteps: [{{action: noop}}]\nescalate: {{to: []}}\n"


def test_load_when_a_file_begins_with_a_byte_order_mark_and_has_crlf_then_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"\xef\xbb\xbf" + SIMPLE.format(name="a").replace("\n", "\r\n").encode())
    loaded = load([tmp_path], context=CONTEXT)
    assert (loaded.problems, loaded.playbook_set.playbooks[0].name) == ((), "a")


def test_load_when_a_file_has_a_problem_then_its_other_documents_are_read(load_text: Load) -> None:
    loaded = load_text(f"{SIMPLE.format(name='a')}---\nplaybook: b\n---\n{SIMPLE.format(name='c')}")
    assert places(loaded.problems) == ["6:1"]
    assert [playbook.name for playbook in loaded.playbook_set.playbooks] == ["a", "c"]


def test_load_when_given_a_folder_then_reads_yaml_files_by_name_but_tests_and_hidden_ones(tmp_path: Path) -> None:
    for name in ("b.yaml", "a.yml", "c.test.yaml", "c.test.yml", ".d.yaml", "e.txt"):
        (tmp_path / name).write_text(SIMPLE.format(name=name.strip(".")), "utf-8")
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "f.yaml").write_text(SIMPLE.format(name="f"), "utf-8")
    loaded = load([tmp_path], context=CONTEXT)
    assert loaded.problems == ()
    assert [file.name for file in loaded.files] == ["a.yml", "b.yaml"]
    assert [playbook.name for playbook in loaded.playbook_set.playbooks] == ["a.yml", "b.yaml"]


def test_load_when_a_file_is_named_twice_then_it_is_read_once(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(SIMPLE.format(name="a"), "utf-8")
    assert load([tmp_path, file], context=CONTEXT).files == (file,)


def test_load_when_a_path_does_not_exist_then_it_is_a_problem(tmp_path: Path) -> None:
    (problem,) = load([tmp_path / "nope"], context=CONTEXT).problems
    assert "cannot be read: No such file or directory" in problem.message
    assert problem.file == str(tmp_path / "nope")


def test_load_when_a_file_cannot_be_read_then_the_others_are(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").symlink_to(tmp_path / "gone")
    (tmp_path / "b.yaml").write_text(SIMPLE.format(name="b"), "utf-8")
    loaded = load([tmp_path], context=CONTEXT)
    assert [problem.file for problem in loaded.problems] == [str(tmp_path / "a.yaml")]
    assert [playbook.name for playbook in loaded.playbook_set.playbooks] == ["b"]


def test_load_when_a_file_is_too_large_then_it_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("#" * (1024 * 1024 + 1), "utf-8")
    (problem,) = load([tmp_path], context=CONTEXT).problems
    assert "larger than 1 MiB" in problem.message


def test_load_when_there_is_nothing_then_the_set_is_empty_and_right(tmp_path: Path) -> None:
    loaded = load([tmp_path], context=CONTEXT)
    assert (loaded.playbook_set.playbooks, loaded.playbook_set.policy, loaded.problems) == (
        (),
        Policy(fleets=CONTEXT.fleets),
        (),
    )


def test_load_when_two_files_bear_one_name_then_the_second_is_told_of_the_first(tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(SIMPLE.format(name="same"), "utf-8")
    (problem,) = load([tmp_path], context=CONTEXT).problems
    assert problem.file == str(tmp_path / "b.yaml")
    assert f"{tmp_path / 'a.yaml'}:1" in problem.message


def test_load_when_files_are_right_then_the_site_stands_in_the_set(load_text: Load) -> None:
    context = CONTEXT
    loaded = load_text("# nothing yet\n").playbook_set
    assert (loaded.vars, loaded.public_url, loaded.label_map) == (context.vars, "http://r", context.label_map)


# -- defaults ----------------------------------------------------------------------------------------------------------

DEFAULT_RETRY = RetryPolicy(
    attempts=3,
    wait=timedelta(seconds=2),
    max_wait=timedelta(seconds=30),
    jitter_pct=20,
    budget=timedelta(minutes=10),
)


def with_steps(steps: str, rest: str = "") -> str:
    return f"playbook: x\nmatch: [alertname = X]\nsteps: [{steps}]\n{rest}"


RESTART = "{action: docker.restart, params: {container: a}}"
TELL = "{action: notify.send, params: {to: [oncall], title: a}}"


@pytest.mark.parametrize(
    ("steps", "cooldown", "max_runs"),
    [
        pytest.param(RESTART, timedelta(minutes=30), Limit(count=3, per=timedelta(hours=24)), id="disruptive"),
        pytest.param(TELL, timedelta(minutes=30), None, id="messages alone"),
        pytest.param("{action: noop}", timedelta(0), None, id="neither"),
        pytest.param(f"{{action: noop}}, {TELL}", timedelta(0), None, id="a message and another"),
    ],
)
def test_guard_when_not_written_then_hangs_on_what_the_steps_do(
    steps: str, cooldown: timedelta, max_runs: Limit | None, load_one: LoadOne
) -> None:
    guard = load_one(with_steps(steps)).cases[0].guard
    assert (guard.cooldown, guard.max_runs, guard.tell_after) == (cooldown, max_runs, timedelta(hours=1))


def test_playbook_when_little_is_written_then_the_rest_is_filled_in(load_one: LoadOne) -> None:
    playbook = load_one(with_steps("{action: noop}"))
    (case,) = playbook.cases
    assert playbook.match == (parse_matcher("alertname = X"),)
    assert (case.name, case.match, case.ignore, case.mode, case.owner) == ("", (), None, Mode.ENFORCE, "")
    assert (case.per, case.stop_on_resolve, case.latched, case.hold) == (None, False, False, timedelta(0))
    assert (case.verify, case.resolved, case.report_to, case.escalate_to) == ((), (), (), ())
    (step,) = case.steps
    assert (step.name, step.condition, step.params, step.line) == ("step_1", None, {}, 3)
    assert (step.timeout, step.retry, step.on_failure) == (timedelta(minutes=5), DEFAULT_RETRY, OnFailure.STOP)


def test_step_when_it_tells_people_then_its_failure_does_not_stop_the_run(load_one: LoadOne) -> None:
    assert load_one(with_steps(TELL)).cases[0].steps[0].on_failure is OnFailure.CONTINUE


def test_verify_when_it_has_no_within_then_it_is_15_minutes(load_one: LoadOne) -> None:
    case = load_one(with_steps("{action: noop}", "verify: [{alert: resolved}]\n")).cases[0]
    assert case.verify == (CheckTemplate(within=timedelta(minutes=15)),)


def test_told_when_not_written_then_as_the_settings_say(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(with_steps("{action: noop}"), "utf-8")
    context = LoadContext(actions=REGISTRY, default_report_to=("a",), default_escalate_to=("b",))
    (playbook,) = load([tmp_path], context=context).playbook_set.playbooks
    assert (playbook.cases[0].report_to, playbook.cases[0].escalate_to) == (("a",), ("b",))


def test_action_when_the_settings_lack_what_it_needs_then_says_what_to_set(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(with_steps("{action: alertmanager.silence, params: {duration: 2h}}"), "utf-8")
    context = LoadContext(actions=REGISTRY, unusable={"alertmanager.silence": "needs alertmanager.urls"})
    problems = load([tmp_path], context=context).problems
    assert [problem.message for problem in problems] == ["alertmanager.silence needs alertmanager.urls"]
    assert problems[0].line == 3


@pytest.mark.parametrize(
    ("retry", "attempts", "budget"),
    [
        ("{attempts: 5}", 5, None),
        ("{budget: 1h}", None, timedelta(hours=1)),
        ("{attempts: 5, budget: 1h}", 5, timedelta(hours=1)),
        ("{wait: 1s}", 3, timedelta(minutes=10)),
    ],
)
def test_retry_when_one_limit_is_written_then_the_other_is_none(
    retry: str, attempts: int | None, budget: timedelta | None, load_one: LoadOne
) -> None:
    policy = load_one(with_steps(f"{{action: noop, retry: {retry}}}")).cases[0].steps[0].retry
    assert (policy.attempts, policy.budget) == (attempts, budget)


@pytest.mark.parametrize(
    ("retry", "wait_s", "max_wait_s"), [("{wait: 1m}", 60, 60), ("{max_wait: 1s}", 1, 1), ("{jitter: 0%}", 2, 30)]
)
def test_retry_when_one_wait_is_written_then_the_other_fits(
    retry: str, wait_s: int, max_wait_s: int, load_one: LoadOne
) -> None:
    policy = load_one(with_steps(f"{{action: noop, retry: {retry}}}")).cases[0].steps[0].retry
    assert (policy.wait.total_seconds(), policy.max_wait.total_seconds()) == (wait_s, max_wait_s)


def test_timeout_when_not_written_then_long_enough_for_the_params(load_one: LoadOne) -> None:
    step = "{action: docker.restart, params: {container: '{{ labels.c }}', stop_timeout: 20m}}"
    assert load_one(with_steps(step)).cases[0].steps[0].timeout == timedelta(minutes=20, seconds=30)


def test_param_when_a_number_has_a_point_then_it_stays_text(load_text: Load) -> None:
    (problem,) = load_text(with_steps("{action: noop, params: {note: [1.50]}}")).problems
    assert "`note` must be text" in problem.message
    params = load_text(with_steps("{action: noop, params: {note: 1.50}}")).playbook_set.playbooks[0].cases[0].steps[0]
    assert params.params["note"].source == "1.50"


@pytest.mark.parametrize(
    ("template", "n_problems"), [("steps.act.outcome", 0), ("steps.tell.outcome", 1), ("steps.nope.outcome", 1)]
)
def test_resolved_steps_when_a_template_names_a_step_then_it_is_one_of_the_playbooks(
    template: str, n_problems: int, load_text: Load
) -> None:
    steps = "{name: act, action: noop}"
    tell = f"- {{name: tell, action: noop}}\n  - {{action: noop, params: {{note: '{{{{ {template} }}}}'}}}}"
    assert len(load_text(with_steps(steps, f"resolved:\n  {tell}\n")).problems) == n_problems


# -- conditions, rungs, approvals, undo --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "kept"),
    [("120", "120"), ("0.80", "0.80"), ("-3", "-3"), ("1e3", "1e3"), ("0x10", "16"), (".5e3", "500.0"), ("+5", "+5")],
)
def test_bound_when_it_is_a_number_then_stays_as_it_was_written(written: str, kept: str, load_one: LoadOne) -> None:
    playbook = load_one(with_steps("{action: noop}", f"verify: [{{query: x, below: {written}}}]\n"))
    assert names_of(playbook.cases[0].verify) == [f"verify_1 below {kept}"]
    assert names_of(load_one(effective(playbook)).cases[0].verify) == [f"verify_1 below {kept}"]


def test_condition_when_it_has_no_name_then_says_where_it_stands(load_one: LoadOne) -> None:
    condition = "{query: '%s', above: 1}"
    step = f"{{name: act, action: test.limit, verify: [{condition % 'a'}], undo: {{require: [{condition % 'b'}]}}}}"
    rest = (
        f"verify: [{{alert: resolved}}, {condition % 'c'}]\nguard: {{require: [{condition % 'd'}]}}\n"
        f"undo: {{require: [{condition % 'e'}]}}\n"
    )
    (case,) = load_one(with_steps(f"{step}, {{action: test.limit}}", rest)).cases
    assert [names_of(step.verify) for step in case.steps] == [["act_verify_1 above 1"], []]
    assert [names_of(step.undo.require) for step in case.steps if step.undo is not None] == [
        ["act_undo_require_1 above 1"],
        ["undo_require_1 above 1"],
    ]
    assert (names_of(case.verify), names_of(case.require)) == (["verify_2 above 1"], ["require_1 above 1"])


def test_conditions_when_they_ask_the_same_then_may_share_a_name(load_one: LoadOne) -> None:
    rest = "verify: [{name: t, query: x, below: 82}]\nundo: {require: [{name: t, query: x, below: 78}]}\n"
    (case,) = load_one(with_steps("{action: test.limit}", rest)).cases
    assert names_of(case.verify) == ["t below 82"]


@pytest.mark.parametrize("query", ["sum(x > bool 5)", "x > bool 5", "sum(x > 5)", 'x{a!="b"}', "a # > b"])
def test_query_when_it_gives_a_number_then_may_hold_a_comparison(query: str, load_one: LoadOne) -> None:
    (case,) = load_one(with_steps("{action: noop}", f"verify: [{{query: '{query}', equals: 1}}]\n")).cases
    assert case.verify[0].condition is not None
    assert case.verify[0].condition.query.source == query


def test_verify_when_only_a_query_is_written_then_the_rest_is_filled_in(load_one: LoadOne) -> None:
    (check,) = load_one(with_steps("{action: noop}", "verify: [{query: x, below: 1}]\n")).cases[0].verify
    assert (check.settle, check.holds, check.within) == (timedelta(0), timedelta(0), timedelta(minutes=15))


HOURS_12 = timedelta(hours=12)
MINUTES_10 = timedelta(minutes=10)


@pytest.mark.parametrize(
    ("step", "rest", "expected"),
    [
        pytest.param("test.limit", "", ("resolved", MINUTES_10, HOURS_12, 0), id="nothing is written"),
        pytest.param("test.cordon", "", ("never", MINUTES_10, HOURS_12, 0), id="it stays by default"),
        pytest.param("noop", "", None, id="it cannot be undone"),
        pytest.param(
            "test.limit",
            "undo: {after: 1m, at_most: 1h, require: [{query: x, below: 1}]}",
            ("resolved", timedelta(minutes=1), timedelta(hours=1), 1),
            id="the playbook says when",
        ),
        pytest.param(
            "test.limit", "undo: {when: never}", ("never", MINUTES_10, HOURS_12, 0), id="the playbook says never"
        ),
        pytest.param(
            "test.limit, undo: {when: resolved}",
            "undo: {when: never}",
            ("resolved", MINUTES_10, HOURS_12, 0),
            id="the step says otherwise than the playbook",
        ),
        pytest.param(
            "test.limit, undo: {at_most: 2h}",
            "undo: {after: 1m, at_most: 1h, require: [{query: x, below: 1}]}",
            ("resolved", timedelta(minutes=1), timedelta(hours=2), 1),
            id="the step changes one key",
        ),
        pytest.param(
            "test.limit, undo: {when: never}",
            "undo: {require: [{query: x, below: 1}]}",
            ("never", MINUTES_10, HOURS_12, 0),
            id="the step stays, whatever the playbook requires",
        ),
        pytest.param(
            "test.cordon, undo: {when: resolved}",
            "",
            ("resolved", MINUTES_10, HOURS_12, 0),
            id="the step lifts its action's never",
        ),
        pytest.param(
            "test.cordon}, {action: test.limit",
            "undo: {when: resolved, after: 1m}",
            ("never", MINUTES_10, HOURS_12, 0),
            id="the playbook does not lift an action's never",
        ),
        pytest.param("test.limit", "latched: true", ("resolved", MINUTES_10, HOURS_12, 0), id="latched"),
    ],
)
def test_undo_when_written_so_then_the_step_goes_before_the_playbook_before_the_action(
    step: str, rest: str, expected: tuple[str, timedelta, timedelta, int] | None, load_one: LoadOne
) -> None:
    playbook = load_one(with_steps(f"{{action: {step}}}", f"{rest}\n"))
    undo = playbook.cases[0].steps[0].undo
    assert (undo and (undo.when, undo.after, undo.at_most, len(undo.require))) == expected
    assert load_one(effective(playbook)).cases[0].steps[0].undo == undo


def test_resolved_steps_when_their_action_could_be_undone_then_stay(load_one: LoadOne) -> None:
    (case,) = load_one(with_steps("{action: noop}", "resolved: [{action: test.limit}]\n")).cases
    assert case.resolved[0].undo is None


def test_case_when_a_key_above_it_means_nothing_to_it_then_goes_without(load_one: LoadOne) -> None:
    text = with_steps(
        "{rung: 1, action: test.limit}",
        "ladder: {within: 1h}\nverify: [{query: x, below: 1}]\napproval: {ask: [oncall]}\nundo: {after: 1m}\n"
        f"cases: [{{name: acts, match: [a = b]}}, {{name: tells, steps: [{TELL}]}}]\n",
    )
    acts, tells = load_one(text).cases
    assert (acts.ladder, acts.approval) == (
        timedelta(hours=1),
        Approval(ask=("oncall",), expires=timedelta(minutes=30)),
    )
    assert (tells.ladder, tells.approval) == (None, None)


def test_case_when_it_writes_a_guard_then_keeps_the_playbooks_other_limits(load_one: LoadOne) -> None:
    text = with_steps(
        "{action: noop}",
        "guard: {max_targets: {count: 2, per: 1h}, require: [{name: up, query: x, equals: 1}]}\n"
        "cases: [{name: a, guard: {max_targets: {percent: 5, of: gpus, per: 2h}}}]\n",
    )
    (case,) = load_one(text).cases
    assert case.guard.max_targets == MaxTargets(limit=Share(percent=5, of="gpus"), per=timedelta(hours=2))
    assert names_of(case.require) == ["up equals 1"]


@pytest.mark.parametrize(("count", "n_problems"), [(1, 1), (2, 0)])
def test_rungs_when_each_fits_the_policy_then_their_sum_need_not(count: int, n_problems: int, load_text: Load) -> None:
    stop = "{rung: %d, action: docker.stop, params: {container: a}}"
    steps = ", ".join(stop % rung for rung in (1, 2, 2))
    rest = "ladder: {within: 1h}\nverify: [{query: x, below: 1}]\n"
    policy = f"---\npolicy: p\nmax_disruptive_acts: {{count: {count}, per: 1h}}\n"
    assert len(load_text(with_steps(steps, rest) + policy).problems) == n_problems


# -- cases -------------------------------------------------------------------------------------------------------------

CASES = """
playbook: xid
match: [alertname = GPUXid]
per: [host]
owner: ops
guard: {cooldown: 1h, tell_after: 2h}
escalate: {to: [oncall]}
steps: [{action: noop}]
cases:
  - {name: known, match: [code = 43], ignore: it has its own alert}
  - name: restart
    match: [code = 79]
    per: [host, gpu]
    mode: observe
    guard: {cooldown: 5m}
    steps: [{action: docker.restart, params: {container: a}}]
    escalate: {to: []}
  - name: rest
"""


def test_case_when_it_writes_a_key_then_it_overrides_the_playbooks(load_one: LoadOne) -> None:
    ignored, restart, rest = load_one(CASES).cases
    assert (ignored.ignore, ignored.steps) == ("it has its own alert", ())
    assert (restart.per, restart.mode, restart.escalate_to) == (("host", "gpu"), Mode.OBSERVE, ())
    assert [step.action for step in restart.steps] == ["docker.restart"]
    assert (rest.per, rest.mode, rest.escalate_to) == (("host",), Mode.ENFORCE, ("oncall",))
    assert [step.action for step in rest.steps] == ["noop"]
    assert {case.owner for case in (restart, rest)} == {"ops"}


def test_case_when_it_writes_a_guard_then_key_by_key(load_one: LoadOne) -> None:
    _, restart, rest = load_one(CASES).cases
    assert (restart.guard.cooldown, restart.guard.tell_after) == (timedelta(minutes=5), timedelta(hours=2))
    assert restart.guard.max_runs == Limit(count=3, per=timedelta(hours=24))
    assert (rest.guard.cooldown, rest.guard.max_runs) == (timedelta(hours=1), None)


def test_case_when_the_steps_it_inherits_are_wrong_then_that_is_told_once(load_text: Load) -> None:
    problems = load_text(
        CASES.replace("steps: [{action: noop}]", "steps: [{action: nop}]") + "  - name: more\n"
    ).problems
    assert places(problems) == ["8:10", "19:5"]


# -- identity ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "is_same"),
    [
        ("per: [host]", "per: [gpu]", False),
        ("alertname = GPUXid", "alertname = Xid", False),
        ("code = 79", "code = 78", False),
        ("mode: observe", "mode: enforce", False),
        ("ignore: it has its own alert", "steps: [{action: noop}]", False),
        ("owner: ops", "owner: dev", True),
        ("cooldown: 1h", "cooldown: 2h", True),
        ("action: noop", "action: docker.stop, params: {container: a}", True),
        ("ignore: it has its own alert", "ignore: for another reason", True),
        ("owner: ops", "approval: {ask: [oncall]}", True),
        ("cooldown: 1h", "require: [{query: x, below: 1}]", True),
        ("owner: ops", "verify: [{query: x, below: 1}]", True),
        ("[alertname = GPUXid]", '[alertname="GPUXid"]', True),
    ],
)
def test_able_key_when_an_edit_changes_what_it_can_act_on_then_it_differs(
    old: str, new: str, is_same: bool, load_one: LoadOne
) -> None:
    assert old in CASES
    before, after = load_one(CASES), load_one(CASES.replace(old, new, 1))
    assert (before.able_key == after.able_key) is is_same
    assert before.sha256 != after.sha256


def test_sha256_when_another_document_of_the_file_changes_then_it_stays(load_text: Load) -> None:
    first, second = SIMPLE.format(name="a"), SIMPLE.format(name="b")
    alone = load_text(first).playbook_set.playbooks[0]
    together = load_text(f"{second}---\n{first}---\n{SIMPLE.format(name='c')}").playbook_set.playbooks[1]
    assert (together.name, together.sha256) == ("a", alone.sha256)


# -- policies ----------------------------------------------------------------------------------------------------------


def test_policy_when_there_are_several_then_every_line_the_smallest_limit_and_the_strictest_mode(
    load_text: Load,
) -> None:
    policy = load_text(
        "policy: a\nprotect: [namespace = prod, 'host =~ \"login-.*\"']\nmax_concurrent_runs: 8\n"
        "---\npolicy: b\nprotect: [kind = node]\nmode: observe\n---\npolicy: c\nmax_concurrent_runs: 6\n"
    ).playbook_set.policy
    assert (policy.name, policy.max_concurrent_runs, policy.mode) == ("a, b, c", 6, Mode.OBSERVE)
    assert [line.text for line in policy.protect] == ["namespace = prod", 'host =~ "login-.*"', "kind = node"]
    assert policy.protect[1].matcher == parse_matcher('host =~ "login-.*"')


def test_policy_when_there_are_several_then_each_label_limit_and_breaker_holds(load_text: Load) -> None:
    policy = load_text(
        "policy: a\nrequire_label: a=b\nmax_disruptive_acts: {count: 2, per: 1h}\n"
        "breaker: {percent: 5, of: gpus, within: 1h}\n"
        "---\npolicy: b\nrequire_label: 'c!=d'\nmax_disruptive_acts: {count: 9, per: 1d}\n"
        "breaker: {percent: 50, of: kube_nodes, within: 10m, or_failures: 3}\n"
    ).playbook_set.policy
    assert [(line.text, line.matcher) for line in policy.require_labels] == [
        (text, parse_matcher(text)) for text in ("a=b", "c!=d")
    ]
    assert policy.max_disruptive_acts == (
        Limit(count=2, per=timedelta(hours=1)),
        Limit(count=9, per=timedelta(days=1)),
    )
    assert [(one.name, one.share, one.or_failures) for one in policy.breakers] == [
        ("a", Share(percent=5, of="gpus"), None),
        ("b", Share(percent=50, of="kube_nodes"), 3),
    ]


def test_policy_when_it_sets_no_limit_then_the_default_stands(load_text: Load) -> None:
    assert load_text("policy: a\n").playbook_set.policy.max_concurrent_runs == 4


# -- printing back -----------------------------------------------------------------------------------------------------

FULL = """
playbook: full
description: "Everything: that acts"
owner: ml
mode: observe
match: [alertname = X, 'msg = "a: b"', pod !~ "x|y"]
per: [host, pod]
stop_on_resolve: true
latched: false
hold: 90s
guard: {cooldown: 0s, max_runs: {count: 1, per: 1w}, tell_after: 5m}
steps:
  - {name: ask, if: 'annotations.a != "" and labels.b in ["1", "2"]', action: notify.send,
     params: {to: [oncall], title: "{{ labels.pod }}: {{ subject.host }}", body: "on #1\\n{{ vars.site }}"}}
  - {name: act, action: docker.restart, params: {container: "{{ labels.pod }}", stop_timeout: 2m}, timeout: 9m,
     retry: {attempts: 7, wait: 0s, max_wait: 1m, jitter: 5%}, on_failure: continue}
verify: [{alert: resolved, within: 20m}]
report: {to: [ml-platform]}
escalate: {to: [oncall]}
resolved: [{action: notify.send, params: {to: [oncall], title: "{{ run.outcome }}, {{ steps.act.outcome }}"}}]
"""


@pytest.mark.parametrize(
    "text",
    [FULL, CASES, with_steps("{action: noop}"), *WHOLE.read_text("utf-8").split("---\n")[:2]],
    ids=["full", "cases", "little", "conditions", "rungs"],
)
def test_effective_when_loaded_again_then_is_the_same_playbook(text: str, load_one: LoadOne) -> None:
    first = load_one(text)
    again = load_one(effective(first))
    assert without_lines(again) == without_lines(first)
    assert again.able_key == first.able_key
    assert effective(again) == effective(first)


DURATIONS = st.sampled_from(["1m", "90s", "10m", "2h", "1d"])
QUERIES = st.sampled_from(["x", 'max(x{h="{{ labels.hostname }}"})', "a\n / b", "sum(x) # ' \"", "'{{ host }}'"])
BOUNDS = st.integers(-(10**14), 10**14) | st.floats(allow_nan=False, allow_infinity=False, width=32)
COMPARED = st.one_of(*[st.fixed_dictionaries({key: BOUNDS}) for key in ("below", "above", "equals")])
CONDITIONS = st.builds(lambda query, compared: {"query": query, **compared}, QUERIES, COMPARED)
CHECKS = st.one_of(
    st.fixed_dictionaries({"alert": st.just("resolved")}, optional={"within": DURATIONS}),
    st.builds(
        lambda condition, times: {**condition, **times},
        CONDITIONS,
        st.fixed_dictionaries({"within": st.just("3d")}, optional={"settle": DURATIONS, "holds": DURATIONS}),
    ),
)
APPROVALS = st.fixed_dictionaries({"ask": st.just(["oncall"])}, optional={"expires": DURATIONS})
UNDOS = st.one_of(
    st.just({"when": "never"}),
    st.fixed_dictionaries(
        {"at_most": st.just("2d")},
        optional={
            "when": st.just("resolved"),
            "after": DURATIONS,
            "require": st.lists(CONDITIONS, min_size=1, max_size=2),
        },
    ),
)
STEPS = st.fixed_dictionaries(
    {"action": st.just("test.limit")},
    optional={"verify": st.lists(CHECKS, min_size=1, max_size=2), "approval": APPROVALS, "undo": UNDOS},
)
TARGETS = st.one_of(
    st.fixed_dictionaries({"count": st.integers(1, 9), "per": DURATIONS}),
    st.fixed_dictionaries({"percent": st.integers(1, 100), "of": st.just("gpus"), "per": DURATIONS}),
)
KEYS = {
    "guard": st.fixed_dictionaries(
        {}, optional={"max_targets": TARGETS, "require": st.lists(CONDITIONS, min_size=1, max_size=2)}
    ),
    "verify": st.lists(CHECKS, min_size=1, max_size=2),
    "approval": APPROVALS,
    "undo": UNDOS,
}


def as_ladder(keys: dict[str, Any]) -> dict[str, Any]:
    steps = [{"rung": index + 1, **step} for index, step in enumerate(keys["steps"])]
    return {**keys, "ladder": {"within": "6h"}, "steps": steps}


def contradicts_itself(keys: dict[str, Any]) -> bool:
    """The playbook takes nothing back, and a step says how it is taken back without saying that it is."""
    undos = [step["undo"] for step in keys["steps"] if "undo" in step]
    return keys.get("undo") == {"when": "never"} and any("when" not in undo for undo in undos)


PLAIN = st.fixed_dictionaries({"steps": st.lists(STEPS, min_size=1, max_size=3)}, optional=KEYS).filter(
    lambda keys: not contradicts_itself(keys)
)
LADDERS = PLAIN.filter(lambda keys: "verify" in keys).map(as_ladder)


@given(PLAIN | LADDERS, st.booleans())
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None, max_examples=40
)
def test_effective_when_a_playbook_is_right_then_loads_again_as_the_same(
    tmp_path: Path, keys: dict[str, Any], in_a_case: bool
) -> None:
    file = tmp_path / "x.yaml"
    text = {"cases": [{"name": "a", **keys}]} if in_a_case else keys
    file.write_text(json.dumps({"playbook": "x", "match": ["a = b"], **text}), "utf-8")  # YAML too, without anchors
    loaded = load([file], context=CONTEXT)
    assert loaded.problems == ()
    (first,) = loaded.playbook_set.playbooks
    file.write_text(effective(first), "utf-8")
    (again,) = load([file], context=CONTEXT).playbook_set.playbooks
    assert without_lines(again) == without_lines(first)


def without_lines(playbook: Playbook) -> Any:
    # An ignored case has nothing but its matchers to print.
    cases = [
        repr_without(case, {"line"}) if case.ignore is None else (case.name, case.match, case.ignore)
        for case in playbook.cases
    ]
    return cases, repr_without(playbook, {"line", "file", "sha256", "cases"})


def repr_without(value: Any, left_out: set[str]) -> Any:
    if hasattr(value, "__dataclass_fields__"):
        return {
            name: repr_without(getattr(value, name), left_out) for name in value.__dataclass_fields__.keys() - left_out
        }
    if isinstance(value, tuple):
        return [repr_without(item, left_out) for item in value]
    if isinstance(value, dict):
        return {key: repr_without(item, left_out) for key, item in value.items()}
    return value
