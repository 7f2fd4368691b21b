"""``# remediator: allow CODE reason``: what it takes back, and what is wrong with one."""

from __future__ import annotations

from pathlib import Path

import pytest

from linting import CONTEXT, advise, placed
from remediator.actions import REGISTRY
from remediator.engine.lint import lint
from remediator.loading import load

ODD = "playbook: x\nmatch: [alertname = X]\nper: [host]\nsteps: [{action: noop}]\n"
"""Gives ``1 no-escalation``."""

TWICE = "playbook: x\nmatch: [alertname = X]\nper: [host, pod, namespace]\nsteps: [{action: noop}]\n"
"""Gives two of one code in line 3, and another."""

ALLOW = "# remediator: allow no-escalation a toy"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(ODD, ["1 no-escalation"], id="no comment"),
        pytest.param(f"{ALLOW}\n{ODD}", [], id="on the line above"),
        pytest.param(ODD.replace("x\n", f"x  {ALLOW}\n", 1), [], id="on its line"),
        pytest.param(f"{ALLOW}\n\n{ODD}", ["1 unused-allow", "3 no-escalation"], id="with a line between"),
        pytest.param(f"{ODD}{ALLOW}\n", ["1 no-escalation", "5 unused-allow"], id="below"),
        pytest.param(f"--- {ALLOW}\n{ODD}", ["1 unused-allow", "2 no-escalation"], id="behind something above"),
        pytest.param(f"#   remediator:allow   no-escalation   a toy\n{ODD}", [], id="other spaces"),
        pytest.param(f"# another\n{ALLOW}\n{ODD}", [], id="below another comment"),
        pytest.param(f"{ALLOW}\n# another\n{ODD}", ["1 unused-allow", "3 no-escalation"], id="above another comment"),
        pytest.param(
            TWICE, ["1 no-escalation", "3 pod-is-exporter", "3 pod-is-exporter"], id="two of a kind in a line"
        ),
        pytest.param(
            TWICE.replace("per", "# remediator: allow pod-is-exporter labels are honoured\nper"),
            ["1 no-escalation"],
            id="both of a kind",
        ),
        pytest.param(
            f"# remediator: allow matcher-never-holds why\n{ALLOW}\n{ODD}", ["1 unused-allow"], id="one above the other"
        ),
        pytest.param(
            f"playbook: x\nmatch: [alertname = X]\ndescription: |\n  {ALLOW}\nper: [host]\nsteps: [{{action: noop}}]\n",
            ["1 no-escalation"],
            id="in a text",
        ),
        pytest.param(f"# remediator: the engine of this site\n{ODD}", ["2 no-escalation"], id="prose"),
        pytest.param(f"# see remediator: allow no-escalation\n{ODD}", ["2 no-escalation"], id="prose that quotes it"),
    ],
)
def test_allow_when_it_stands_so_then_this_is_left(text: str, expected: list[str], tmp_path: Path) -> None:
    advice = advise(tmp_path, text)
    assert (placed(advice), advice.problems) == (expected, ())


@pytest.mark.parametrize(
    ("comment", "said"),
    [
        pytest.param("allow", "say which advice and why: # remediator: allow CODE reason", id="nothing"),
        pytest.param("allow no-escalation", "say why: # remediator: allow no-escalation reason", id="no reason"),
        pytest.param(
            "allow no-escalations because",
            "there is no advice with the code 'no-escalations'; did you mean `no-escalation`?",
            id="a misspelt code",
        ),
        pytest.param("allow no-escalation, pod-is-exporter x", "one comment allows one code; ", id="two with a comma"),
        pytest.param("allow no-escalation pod-is-exporter x", "one comment allows one code; ", id="two codes"),
        pytest.param("allow unused-allow x", "unused-allow cannot be allowed; ", id="itself"),
    ],
)
def test_allow_when_it_does_not_say_what_or_why_then_is_a_problem_and_allows_nothing(
    comment: str, said: str, tmp_path: Path
) -> None:
    advice = advise(tmp_path, f"---\n# remediator: {comment}\n{ODD}")
    (problem,) = advice.problems
    assert problem.located().startswith(f"{tmp_path / 'x.yaml'}:2:1: {said}")
    assert placed(advice) == ["3 no-escalation"]


def test_allow_when_it_stands_in_a_policy_or_a_rule_file_then_counts(tmp_path: Path) -> None:
    policy = "policy: site\nprotect:\n  - kind = pods\n"
    rules = "groups:\n- name: a\n  rules:\n  - alert: X\n    expr: 'up >> 1'\n"
    text = f"{ALLOW}\n{ODD}---\n{policy}"
    assert placed(advise(tmp_path, text, rules)) == ["9 matcher-never-holds", "5 rule-not-understood"]
    text = text.replace("pods\n", "pods  # remediator: allow matcher-never-holds to come\n")
    rules = rules.replace("    expr", "    # remediator: allow rule-not-understood newer\n    expr")
    assert placed(advise(tmp_path, text, rules)) == []


@pytest.mark.parametrize(
    ("line", "is_odd"),
    [
        pytest.param("kind = pods", True, id="a kind that there is not"),
        pytest.param('kind =~ "p.d"', False, id="a kind by a regex"),
        pytest.param("host = a", False, id="a host"),
        pytest.param('host !~ ".*"', True, id="not anything"),
    ],
)
def test_policy_when_a_line_fits_no_target_then_says_so(line: str, is_odd: bool, tmp_path: Path) -> None:
    advice = advise(tmp_path, f"policy: site\nprotect:\n  - '{line}'\nrequire_label: '{line}'\n")
    assert placed(advice) == (["3 matcher-never-holds", "4 matcher-never-holds"] if is_odd else [])


def test_allow_when_a_file_has_problems_then_what_it_may_be_for_was_not_looked_at(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(f"{ALLOW}\n{ODD}stepz: []\n")
    loaded = load([file], context=CONTEXT)
    assert len(loaded.problems) == 1
    assert lint(loaded, actions=REGISTRY, can_ask=True).lints == ()


def test_allow_when_no_rules_are_given_then_advice_that_needs_them_is_not_missed(tmp_path: Path) -> None:
    text = f"# remediator: allow no-rule-triggers by a script\n{ODD}".replace(
        "noop}]", "noop}]\nescalate: {to: [oncall]}"
    )
    rules = "groups: [{name: a, rules: [{alert: X, expr: up}]}]\n"
    assert placed(advise(tmp_path, text)) == []
    assert placed(advise(tmp_path, text, rules)) == ["1 unused-allow"]
