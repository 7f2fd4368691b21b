"""Lint: what it says, and that it says nothing of what is shipped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from remediator.actions import REGISTRY
from remediator.core.action import TargetKind, UndoWhen
from remediator.core.playbook import LabelMap
from remediator.core.policy import Fleet
from remediator.engine.lint import LintCode, lint
from remediator.loading import LoadContext, load
from remediator.loading.rules import read_rules

ROOT = Path(__file__).parents[3]
CONTEXT = LoadContext(
    actions=REGISTRY,
    notify_targets=frozenset({"oncall", "ml-platform"}),
    label_map=LabelMap(prometheus=("site",)),
    fleets={"gpu_containers": Fleet(name="gpu_containers", kind=TargetKind.CONTAINER, size=10)},
)


def codes(tmp_path: Path, text: str, *, can_ask: bool = True, context: LoadContext = CONTEXT) -> list[LintCode]:
    file = tmp_path / "x.yaml"
    file.write_text(text, "utf-8")
    loaded = load([file], context=context)
    assert loaded.problems == ()
    return [found.code for found in lint(loaded, actions=REGISTRY, can_ask=can_ask).lints]


def playbook(match: str = "alertname = X", step: str = "action: noop", rest: str = "escalate: {to: [oncall]}") -> str:
    return f"playbook: x\nmatch: ['{match}']\nsteps: [{{{step}}}]\n{rest}\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(playbook(), [], id="nothing odd"),
        pytest.param(playbook('pod != ""'), [LintCode.POD_IS_EXPORTER], id="a matcher on pod"),
        pytest.param(playbook(rest="per: [namespace]\nescalate: {to: [oncall]}"), [LintCode.POD_IS_EXPORTER], id="per"),
        pytest.param(
            playbook(step='action: docker.stop, params: {container: "{{ labels.container }}"}'),
            [LintCode.POD_IS_EXPORTER],
            id="a param",
        ),
        pytest.param(playbook(step="action: noop, if: labels.pod != ''"), [LintCode.POD_IS_EXPORTER], id="an if"),
        pytest.param(playbook('exported_pod != ""'), [], id="the workload's pod"),
        pytest.param(
            playbook(step='action: notify.send, params: {to: [oncall], title: "{{ labels.pod }}"}'), [], id="a message"
        ),
        pytest.param(playbook(rest=""), [LintCode.NO_ESCALATION], id="nobody is told"),
        pytest.param(
            playbook(rest="escalate: {to: [oncall]}\ncases: [{name: a, escalate: {to: []}}]"),
            [LintCode.NO_ESCALATION],
            id="a case tells nobody",
        ),
        pytest.param(
            playbook(rest="cases: [{name: a, match: [b = c], ignore: known}, {name: d, escalate: {to: [oncall]}}]"),
            [],
            id="a case that is ignored tells nobody",
        ),
    ],
)
def test_lint_when_a_playbook_is_written_so_then_says_these(
    text: str, expected: list[LintCode], tmp_path: Path
) -> None:
    assert codes(tmp_path, text) == expected


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        pytest.param("hold: 0s", [], id="nothing is held"),
        pytest.param("hold: 2m", [LintCode.HOLD_NEEDS_API], id="a hold"),
        pytest.param("cases: [{name: a, hold: 2m}]", [LintCode.HOLD_NEEDS_API], id="a case with a hold"),
        pytest.param(
            "hold: 2m\ncases: [{name: a, match: [b = c], ignore: known}, {name: d, hold: 0s}]",
            [],
            id="a hold that no case that acts has",
        ),
    ],
)
def test_lint_when_no_alertmanager_can_be_asked_then_holds_are_odd(
    rest: str, expected: list[LintCode], tmp_path: Path
) -> None:
    text = playbook(rest=f"escalate: {{to: [oncall]}}\n{rest}")
    assert (codes(tmp_path, text, can_ask=False), codes(tmp_path, text)) == (expected, [])


@pytest.mark.parametrize(
    "rest",
    [
        pytest.param("verify: [{query: sum(up), above: 0}]", id="verify"),
        pytest.param("guard: {require: [{query: sum(up), above: 0}]}", id="require"),
        pytest.param("cases: [{name: a, verify: [{query: sum(up), above: 0}]}]", id="a case"),
    ],
)
def test_lint_when_there_is_no_prometheus_then_queries_are_odd(rest: str, tmp_path: Path) -> None:
    text = playbook(rest=f"escalate: {{to: [oncall]}}\n{rest}")
    nobody = replace(CONTEXT, label_map=LabelMap())
    expected = [LintCode.QUERY_NEEDS_PROMETHEUS]
    assert (codes(tmp_path, text, context=nobody), codes(tmp_path, text)) == (expected, [])


@pytest.mark.parametrize(
    ("per", "query", "is_wide"),
    [
        pytest.param("[host, pod_x]", 'a{h="{{ labels.hostname }}"}', True, id="one label is missing"),
        pytest.param("[host, pod_x]", 'a{h="{{ host }}",p="{{ labels.pod_x }}"}', False, id="all are there"),
        pytest.param("[host]", "a", True, id="the host is missing"),
        pytest.param("[hostname]", 'a{h="{{ node }}"}', False, id="the host by another name"),
        pytest.param("[pod_x]", 'a{p="{{ subject.pod_x }}"}', False, id="a value of the subject"),
        pytest.param("[host, UUID]", 'a{u="{{ labels.UUID }}"}', False, id="a GPU, which has one host"),
        pytest.param("[UUID]", 'a{h="{{ host }}"}', True, id="a host, which has many GPUs"),
        pytest.param("[cluster, host]", 'a{h="{{ host }}"}', False, id="a cluster, which has its Prometheus"),
    ],
)
def test_lint_when_verify_looks_at_others_too_then_it_is_too_wide(
    per: str, query: str, is_wide: bool, tmp_path: Path
) -> None:
    expected = [LintCode.VERIFY_TOO_WIDE] if is_wide else []
    rest = f"escalate: {{to: [oncall]}}\nper: {per}\nverify: [{{query: '{query}', below: 1}}]"
    assert codes(tmp_path, playbook(rest=rest)) == expected
    step = f"action: noop, verify: [{{query: '{query}', below: 1}}]"
    assert codes(tmp_path, playbook(step=step, rest=f"escalate: {{to: [oncall]}}\nper: {per}")) == expected


@pytest.mark.parametrize(
    ("undo", "rest", "without_api", "with_api"),
    [
        pytest.param("never", "", False, False, id="nothing hangs on the resolve"),
        pytest.param("resolved", "", True, False, id="the silence itself is taken back"),
        pytest.param("never", "stop_on_resolve: true", True, False, id="it stops on the resolve"),
        pytest.param("never", "verify: [{alert: resolved, within: 30m}]", True, False, id="verified by the resolve"),
        pytest.param("never", "verify: [{alert: resolved, within: 5m}]", True, True, id="sooner than it is heard of"),
    ],
)
def test_lint_when_a_silence_hides_the_resolve_that_is_waited_for_then_says_so(
    undo: str, rest: str, without_api: bool, with_api: bool, tmp_path: Path
) -> None:
    step = f"action: alertmanager.silence, params: {{duration: 1h}}, undo: {{when: {undo}}}"
    text = playbook(step=step, rest=f"escalate: {{to: [oncall]}}\n{rest}")
    assert (codes(tmp_path, text, can_ask=False), codes(tmp_path, text)) == tuple(
        [LintCode.SILENCE_HIDES_RESOLVE] if is_odd else [] for is_odd in (without_api, with_api)
    )


@pytest.mark.parametrize(
    ("text", "code", "line", "column"),
    [
        pytest.param("", LintCode.NO_ESCALATION, 2, 1, id="the playbook, for what is written nowhere"),
        pytest.param("escalate: {to: []}", LintCode.NO_ESCALATION, 5, 1, id="the key"),
        pytest.param("per: [host, pod]", LintCode.POD_IS_EXPORTER, 5, 13, id="an entry of a list"),
        pytest.param("hold: 1m", LintCode.HOLD_NEEDS_API, 5, 1, id="the key above the cases"),
        pytest.param(
            "cases:\n  - name: a\n    match: [a = b]\n  - name: b\n    hold: 1m",
            LintCode.HOLD_NEEDS_API,
            9,
            5,
            id="the key of a case",
        ),
        pytest.param(
            "hold: 1m\ncases:\n  - name: a\n    match: [a = b]\n  - name: b",
            LintCode.HOLD_NEEDS_API,
            5,
            1,
            id="once for what two cases inherit",
        ),
        pytest.param(
            "cases:\n  - name: a\n    match:\n      - a = b\n      - pod = c",
            LintCode.POD_IS_EXPORTER,
            9,
            9,
            id="a matcher of a case",
        ),
        pytest.param(
            "per: [host]\nguard:\n  require:\n    - query: sum(a)\n      below: 1",
            LintCode.QUERY_NEEDS_PROMETHEUS,
            8,
            7,
            id="a condition",
        ),
        pytest.param(
            "per: [host]\nverify:\n  - below: 1\n    query: sum(a)", LintCode.VERIFY_TOO_WIDE, 8, 5, id="a query"
        ),
    ],
)
def test_lint_when_it_finds_something_then_says_where(
    text: str, code: LintCode, line: int, column: int, tmp_path: Path
) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(f"# first line\n{playbook(rest=text)}", "utf-8")
    loaded = load([file], context=replace(CONTEXT, label_map=LabelMap()))
    assert loaded.problems == ()
    found = [each for each in lint(loaded, actions=REGISTRY, can_ask=False).lints if each.code is code]
    assert [(each.file, each.line, each.column) for each in found] == [(str(file), line, column)]
    assert found[0].message.startswith("playbook x: ")


@pytest.mark.parametrize(
    ("cases", "expected"),
    [
        pytest.param("{name: a, match: [x = 1]}, {name: b}", [], id="something is left"),
        pytest.param(
            "{name: a, match: ['x =~ \"1|2\"']}, {name: b, match: [x = 1]}",
            [LintCode.CASE_NEVER_REACHED],
            id="one of the values before",
        ),
        pytest.param(
            "{name: a, match: ['x != \"\"']}, {name: b, match: ['x = \"\"']}, {name: c}",
            [LintCode.CASE_NEVER_REACHED],
            id="present and absent before",
        ),
        pytest.param("{name: a, match: [severity = b]}", [LintCode.MATCHER_NEVER_HOLDS], id="not the playbook's"),
        pytest.param("{name: a, match: [x = 1, x = 2]}", [LintCode.MATCHER_NEVER_HOLDS], id="not each other"),
        pytest.param(
            "{name: a, match: ['severity =~ \"a|b\"']}, {name: b}",
            [LintCode.CASE_NEVER_REACHED],
            id="what the playbook's say anyway",
        ),
    ],
)
def test_lint_when_a_case_can_fit_nothing_then_says_so(cases: str, expected: list[LintCode], tmp_path: Path) -> None:
    text = (
        "playbook: x\nmatch: [alertname = X, severity = a]\nsteps: [{action: noop}]\nescalate: {to: [oncall]}\n"
        f"cases: [{cases}]\n"
    )
    assert codes(tmp_path, text) == expected


LADDER = """\
ladder: {{within: 6h}}
verify: [{{alert: resolved}}]
steps:
  - {{rung: 1, {0}}}
  - {{rung: 2, {1}}}
"""
TELL = "action: notify.send, params: {to: [oncall], title: x}"
ACT = "action: docker.restart, params: {container: a}"


@pytest.mark.parametrize(
    ("one", "two", "is_odd"),
    [
        pytest.param(ACT, ACT, False, id="acts"),
        pytest.param(ACT, TELL, False, id="a message at the end"),
        pytest.param(TELL, ACT, True, id="a message before an act"),
        pytest.param(TELL, TELL, True, id="messages alone"),
    ],
)
def test_ladder_when_a_rung_is_not_verified_then_what_is_above_it_is_told(
    one: str, two: str, is_odd: bool, tmp_path: Path
) -> None:
    text = f"playbook: x\nmatch: [alertname = X]\nper: [host]\nescalate: {{to: [oncall]}}\n{LADDER.format(one, two)}"
    assert codes(tmp_path, text) == ([LintCode.LADDER_WITHOUT_VERIFY] if is_odd else [])


def test_shipped_playbooks_when_loaded_then_have_neither_problems_nor_lints() -> None:
    loaded = load([ROOT / "playbooks"], context=CONTEXT)
    assert [problem.located() for problem in loaded.problems] == []
    prometheus = ROOT / "deploy" / "prometheus"
    rules = read_rules([str(prometheus / "gpu-*.yml"), str(prometheus / "remediator-rules.yml")])
    advice = lint(loaded, actions=REGISTRY, can_ask=True, rules=rules)
    assert (rules.problems, advice.problems, advice.lints) == ([], (), ())
    assert {playbook.name for playbook in loaded.playbook_set.playbooks} == {
        "notify-on-imbalance",
        "notify-on-xid",
        "restart-on-leak",
        "throttle-on-overheat",
        "watchdog",
    }
    assert loaded.playbook_set.policy.name == "site"


def test_shipped_throttle_when_there_is_a_container_then_climbs_and_gives_back() -> None:
    loaded = load([ROOT / "playbooks"], context=CONTEXT).playbook_set.named("throttle-on-overheat")
    assert loaded is not None
    throttle, tell = loaded.cases
    assert [(step.rung, step.action) for step in throttle.steps] == [(rung, "docker.limit") for rung in (1, 2, 3)]
    limits = [step.params["cpus"].source for step in throttle.steps]
    assert limits == sorted(limits, key=lambda cpus: -int(str(cpus)))
    assert {step.undo.when for step in throttle.steps if step.undo is not None} == {UndoWhen.RESOLVED}
    assert all(step.undo is not None and step.undo.require for step in throttle.steps)
    assert {step.action for step in tell.steps} == {"notify.send"}
