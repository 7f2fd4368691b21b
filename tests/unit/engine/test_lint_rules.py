"""Playbooks held against rules: what no rule triggers, and what the alerts that do trigger lack."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from linting import CONTEXT, advise, placed

RULES = """\
groups:
  - name: g
    rules:
      - alert: Hot
        expr: max by (hostname, gpu, zone) (temp) > 85
        labels: {severity: warning, team: "{{ $labels.zone }}"}
      - alert: Hot
        expr: max by (hostname, gpu, container_name) (temp) > 95
        labels: {severity: critical}
      - alert: Open
        expr: up{job="dcgm"} == 0
        labels: {severity: warning}
"""


def playbook(match: str = "alertname = Hot", step: str = "action: noop", rest: str = "per: [hostname]") -> str:
    return f"playbook: x\nmatch: [{match}]\nescalate: {{to: [oncall]}}\n{rest}\nsteps:\n  - {{{step}}}\n"


@pytest.mark.parametrize(
    ("match", "is_triggered"),
    [
        pytest.param("alertname = Hot", True, id="its name"),
        pytest.param("alertname = hot", False, id="its name in other letters"),
        pytest.param("'alertname =~ \"H.*\"'", True, id="its name by a regex"),
        pytest.param("'alertname =~ \"Cold|Hot\"'", True, id="one of two names"),
        pytest.param("'alertname =~ \"C.*\"'", False, id="no name by a regex"),
        pytest.param("severity = warning", True, id="no name, a label"),
        pytest.param("severity = info", False, id="no name, a label of none"),
        pytest.param("alertname = Hot, severity = critical", True, id="a label of one of the two"),
        pytest.param("alertname = Hot, severity = info", False, id="a label of neither"),
        pytest.param("alertname = Hot, team = x", True, id="a label from a template"),
        pytest.param("alertname = Hot, gpu = x", True, id="a label that the expression keeps"),
        pytest.param("alertname = Hot, container_name = x, severity = warning", False, id="labels of two rules"),
        pytest.param("alertname = Hot, instance = x", False, id="a label that is aggregated away"),
        pytest.param("alertname = Hot, instance != x", True, id="not a label that is aggregated away"),
        pytest.param('alertname = Hot, instance = ""', True, id="the lack of it"),
        pytest.param("alertname = Hot, cluster = x", True, id="a label of the label map"),
        pytest.param("alertname = Hot, replica = x", True, id="a label that is ignored"),
        pytest.param("alertname = Hot, site = x", True, id="an external label"),
        pytest.param("alertname = Hot, severity != warning, severity != critical", False, id="two that leave nothing"),
        pytest.param("alertname = Open, anything = x", True, id="a label of an open expression"),
        pytest.param("alertname = Open, job = dcgm", True, id="what a selector asks for"),
        pytest.param("alertname = Open, job = node", False, id="not what a selector asks for"),
    ],
)
def test_playbook_when_rules_are_given_then_it_is_told_where_none_triggers_it(
    match: str, is_triggered: bool, tmp_path: Path
) -> None:
    found = placed(advise(tmp_path, playbook(match), RULES, added="site"))
    assert [each for each in found if "label-not-kept" not in each] == ([] if is_triggered else ["2 no-rule-triggers"])
    assert placed(advise(tmp_path, playbook(match))) == []


@pytest.mark.parametrize(
    ("match", "column", "said"),
    [
        pytest.param("alertname = Hott", 9, "no rule given raises Hott; did you mean Hot?", id="the name"),
        pytest.param("alertname = Hot, severity = info", 26, '{rules}:4) severity is "warning"', id="another value"),
        pytest.param("alertname = Hot, instance = x", 26, "{rules}:4) have no label instance", id="no such label"),
        pytest.param("severity = info", 9, "no rule given raises what it matches", id="no name"),
    ],
)
def test_playbook_when_no_rule_triggers_it_then_says_which_is_near_and_what_is_in_the_way(
    match: str, column: int, said: str, tmp_path: Path
) -> None:
    (found,) = advise(tmp_path, playbook(match), RULES).lints
    assert found.column == column
    assert said.format(rules=tmp_path / "rules.yml") in found.message


CASES = """\
cases:
  - {name: critical, match: [severity = critical], per: [gpu]}
  - {name: page, match: [severity = page]}
  - {name: other}
"""


def test_case_when_no_rule_triggers_it_then_is_told_alone(tmp_path: Path) -> None:
    assert placed(advise(tmp_path, playbook(rest=CASES), RULES)) == ["6 no-rule-triggers"]


def test_case_when_those_before_it_take_all_alerts_then_is_told(tmp_path: Path) -> None:
    cases = "cases:\n  - {name: a, match: [severity != page]}\n  - {name: b, match: [gpu != x]}\n"
    advice = advise(tmp_path, playbook(rest=f"per: [hostname]\n{cases}"), RULES)
    assert placed(advice) == ["7 no-rule-triggers"]
    assert "the cases before it take all there are" in advice.lints[0].message


def note(value: str, condition: str = "true") -> str:
    return f"action: noop, if: '{condition}', params: {{note: '{{{{ {value} }}}}'}}"


def message(text: str) -> str:
    return f"action: notify.send, params: {{to: [oncall], title: '{text}'}}"


QUERY = """{query: 'a{h="{{ labels.hostname }}",i="{{ labels.instance }}"}', below: 1}"""


@pytest.mark.parametrize(
    ("step", "is_kept"),
    [
        pytest.param(note("labels.gpu"), True, id="a label that is kept"),
        pytest.param(note("labels.instance"), False, id="one that is not"),
        pytest.param(note("labels.zone"), False, id="one that one rule keeps"),
        pytest.param(note('labels["host.name"]'), False, id="one with an odd name"),
        pytest.param(note('labels.instance | default("")'), True, id="one with a default"),
        pytest.param(note("labels.instance | default(labels.gpu)"), True, id="a kept one as default"),
        pytest.param(note("labels.instance | default(labels.pod_x)"), False, id="another as default"),
        pytest.param(note("labels.cluster"), True, id="the cluster"),
        pytest.param(note("host ~ node"), True, id="places by the label map"),
        pytest.param(note("labels.gpu | int"), True, id="a filter that wants a number"),
        pytest.param(note("labels.gpu", 'labels.instance != ""'), False, id="in an if"),
        pytest.param(note("labels.zone", 'labels.zone != ""'), True, id="only where it is"),
        pytest.param(message("{{ labels.instance }}"), False, id="in a message"),
        pytest.param(message("{{ alerts }} {{ run.outcome }} {{ labels.gpu }}"), True, id="with late values"),
        pytest.param(f"action: noop, verify: [{QUERY}]", False, id="in a query"),
    ],
)
def test_label_when_a_step_reads_it_then_it_is_told_where_an_alert_lacks_it(
    step: str, is_kept: bool, tmp_path: Path
) -> None:
    assert placed(advise(tmp_path, playbook(step=step), RULES)) == ([] if is_kept else ["6 label-not-kept"])


@pytest.mark.parametrize(
    ("per", "is_kept"),
    [
        pytest.param("hostname, gpu", True, id="labels that are kept"),
        pytest.param("hostname, zone", False, id="a label that one rule lacks"),
        pytest.param("host, cluster", True, id="places"),
        pytest.param("instance, gpu", False, id="a label that the label map has, by its name"),
    ],
)
def test_label_when_per_names_it_then_it_is_told_where_an_alert_lacks_it(
    per: str, is_kept: bool, tmp_path: Path
) -> None:
    found = placed(advise(tmp_path, playbook(rest=f"per: [{per}]"), RULES))
    assert found == ([] if is_kept else ["4 label-not-kept"])


@pytest.mark.parametrize(
    ("labels", "host", "is_known"),
    [
        pytest.param("gpu, hostname", "", True, id="a label of the label map"),
        pytest.param("gpu", "", False, id="no label of the label map"),
        pytest.param("gpu", "gpu-07", True, id="no label, and one host alone"),
    ],
)
def test_host_when_a_step_leaves_it_out_then_it_is_told_where_no_label_says_it(
    labels: str, host: str, is_known: bool, tmp_path: Path
) -> None:
    rules = RULES.partition("      - alert: Open")[0].replace("hostname, gpu", labels)
    step = "action: docker.restart, params: {container: a}"
    context = replace(CONTEXT, label_map=replace(CONTEXT.label_map, only_host=host))
    found = advise(tmp_path, playbook(step=step, rest="per: [gpu]"), rules, context=context)
    assert placed(found) == ([] if is_known else ["6 label-not-kept"])
    assert all("have no label for the host" in each.message for each in found.lints)


def test_params_when_they_are_written_or_need_no_label_then_their_defaults_are_not_missed(tmp_path: Path) -> None:
    rules = "groups: [{name: g, rules: [{alert: Hot, expr: sum by (gpu) (temp)}]}]\n"
    for step in (
        "action: docker.restart, params: {container: a, host: gpu-07}",
        "action: alertmanager.silence, params: {duration: 1h}",
    ):
        assert placed(advise(tmp_path, playbook(step=step, rest="per: [gpu]"), rules)) == []


def test_label_when_only_some_rules_trigger_the_case_then_the_others_do_not_count(tmp_path: Path) -> None:
    step = 'action: noop, params: {note: "{{ labels.container_name }}"}'
    assert placed(advise(tmp_path, playbook("alertname = Hot, severity = critical", step), RULES)) == []
    assert placed(advise(tmp_path, playbook('alertname = Hot, container_name != ""', step), RULES)) == []
    cases = "cases:\n  - {name: warning, match: [severity = warning], ignore: known}\n  - {name: other}"
    assert placed(advise(tmp_path, playbook(step=step, rest=f"per: [gpu]\n{cases}"), RULES)) == []


def test_rules_when_an_expression_is_not_understood_then_it_is_told_once_and_nothing_else(tmp_path: Path) -> None:
    text = playbook(step='action: noop, params: {note: "{{ labels.instance }}"}')
    advice = advise(tmp_path, text + "---\n" + text.replace("book: x", "book: y"), RULES.replace("> ", ">> "))
    assert placed(advice) == ["5 rule-not-understood", "8 rule-not-understood"]
    assert all(found.file.endswith("rules.yml") for found in advice.lints)


def test_matchers_when_they_never_hold_then_that_alone_is_told(tmp_path: Path) -> None:
    never = "alertname = Hot, severity = a, severity = b"
    assert placed(advise(tmp_path, playbook(never), RULES)) == ["2 matcher-never-holds"]
    cases = "cases:\n  - {name: a, match: [severity = a, severity = b]}\n  - {name: c}\n"
    assert placed(advise(tmp_path, playbook(rest=f"per: [gpu]\n{cases}"), RULES)) == ["6 matcher-never-holds"]
