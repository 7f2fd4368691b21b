"""Lint: what it says, and that it says nothing of what is shipped."""

from __future__ import annotations

from pathlib import Path

import pytest

from remediator.actions import REGISTRY
from remediator.engine.lint import LintCode, lint
from remediator.loading import LoadContext, load

ROOT = Path(__file__).parents[3]
CONTEXT = LoadContext(actions=REGISTRY, notify_targets=frozenset({"oncall", "ml-platform"}))


def codes(tmp_path: Path, text: str, *, can_ask: bool = True) -> list[LintCode]:
    file = tmp_path / "x.yaml"
    file.write_text(text, "utf-8")
    loaded = load([file], context=CONTEXT)
    assert loaded.problems == ()
    return [found.code for found in lint(loaded.playbook_set, can_ask=can_ask)]


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


def test_lint_when_it_finds_something_then_says_where(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(f"# first line\n{playbook(rest='')}", "utf-8")
    (found,) = lint(load([file], context=CONTEXT).playbook_set, can_ask=True)
    assert (found.file, found.line) == (str(file), 2)
    assert "playbook x" in found.message


def test_shipped_playbooks_when_loaded_then_have_neither_problems_nor_lints() -> None:
    loaded = load([ROOT / "playbooks"], context=CONTEXT)
    assert [problem.located() for problem in loaded.problems] == []
    assert lint(loaded.playbook_set, can_ask=True) == []
    assert {playbook.name for playbook in loaded.playbook_set.playbooks} == {
        "notify-on-imbalance",
        "restart-on-leak",
        "throttle-on-overheat",
        "watchdog",
    }
    assert loaded.playbook_set.policy.name == "site"


def test_shipped_throttle_when_read_then_says_that_it_tells_people_only() -> None:
    loaded = load([ROOT / "playbooks"], context=CONTEXT).playbook_set.named("throttle-on-overheat")
    assert loaded is not None
    assert "people only" in loaded.description
    assert {step.action for case in loaded.cases for step in case.steps} == {"notify.send"}


@pytest.mark.parametrize("code", LintCode)
def test_lint_code_when_it_exists_then_the_docs_have_a_section_for_it(code: LintCode) -> None:
    assert f"### `{code}`" in (ROOT / "docs" / "playbooks.md").read_text("utf-8")
