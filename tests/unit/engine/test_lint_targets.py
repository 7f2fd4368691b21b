"""Two playbooks for one target: told where they meet in one alert, and never where they exclude each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from linting import CONTEXT, advise, placed
from remediator.actions import REGISTRY
from remediator.engine.lint import together
from remediator.engine.lint.advice import Written
from remediator.loading import load

TELL = "notify.send, params: {to: [oncall], title: x}"
RESTART = 'docker.restart, params: {container: "{{ labels.container_name }}"}'


def playbook(name: str, match: str, action: str = RESTART, rest: str = "") -> str:
    return (
        f"playbook: {name}\nmatch: [{match}]\nper: [host]\nescalate: {{to: [oncall]}}\n"
        f"steps: [{{action: {action}}}]\n{rest}---\n"
    )


def told(folder: Path, *playbooks: str) -> list[str]:
    return placed(advise(folder, "".join(playbooks)))


@pytest.mark.parametrize(
    ("one", "two", "meet"),
    [
        pytest.param("alertname = A", "alertname = A", True, id="the same alert"),
        pytest.param("alertname = A", "alertname = B", False, id="another alert"),
        pytest.param("alertname = A", "'alertname =~ \"A|B\"'", True, id="one of several alerts"),
        pytest.param("alertname = A", "severity = page", True, id="alerts by another label"),
        pytest.param("alertname = A, team = x", "alertname = A, team = y", False, id="another team"),
        pytest.param("alertname = A, team = x", "alertname = A, team != x", False, id="every other team"),
        pytest.param(
            "alertname = A, 'h =~ \"a-.*\"'", "alertname = A, 'h =~ \"b-.*\"'", False, id="hosts that begin otherwise"
        ),
        pytest.param(
            "alertname = A, 'h =~ \".*-a\"'", "alertname = A, 'h =~ \".*-b\"'", False, id="hosts that end otherwise"
        ),
        pytest.param('alertname = A, x = ""', 'alertname = A, x != ""', False, id="absent and present"),
    ],
)
def test_playbooks_when_they_touch_the_same_then_are_told_where_they_can_meet(
    one: str, two: str, meet: bool, tmp_path: Path
) -> None:
    expected = ["11 same-target"] if meet else []
    assert told(tmp_path, playbook("a", one), playbook("b", two)) == expected
    assert told(tmp_path, playbook("a", two), playbook("b", one)) == expected


@pytest.mark.parametrize(
    ("one", "two", "is_same"),
    [
        pytest.param(RESTART, 'docker.stop, params: {container: "{{  labels.container_name}}"}', True, id="other acts"),
        pytest.param(RESTART, 'docker.stop, params: {container: "{{ labels.sidecar }}"}', False, id="another label"),
        pytest.param(RESTART, "docker.stop, params: {container: exporter}", False, id="a name"),
        pytest.param(
            "docker.stop, params: {container: a}", "docker.start, params: {container: a}", True, id="the same name"
        ),
        pytest.param("docker.stop, params: {container: a}", "docker.start, params: {container: b}", False, id="names"),
        pytest.param(
            "docker.stop, params: {container: a}",
            'docker.start, params: {container: a, host: "{{ labels.hostname }}"}',
            True,
            id="the host by its label",
        ),
        pytest.param(
            "docker.stop, params: {container: a, host: x}",
            "docker.start, params: {container: a, host: y}",
            False,
            id="another host",
        ),
        pytest.param(
            "docker.signal, params: {container: a, signal: SIGUSR1}",
            "docker.signal, params: {container: a, signal: SIGHUP}",
            True,
            id="other params",
        ),
        pytest.param(
            'docker.stop, params: {container: "{{ subject.host }}"}',
            'docker.stop, params: {container: "{{ labels.host }}"}',
            True,
            id="the subject's label",
        ),
        pytest.param("noop", "noop", False, id="nothing"),
        pytest.param(TELL, TELL, False, id="messages"),
    ],
)
def test_playbooks_when_they_meet_then_are_told_where_they_touch_the_same(
    one: str, two: str, is_same: bool, tmp_path: Path
) -> None:
    found = told(tmp_path, playbook("a", "alertname = A", one), playbook("b", "alertname = A", two))
    assert found == (["11 same-target"] if is_same else [])


def test_playbooks_when_matchers_say_what_a_label_is_then_a_template_is_that_value(tmp_path: Path) -> None:
    named = playbook("b", "alertname = A", "docker.stop, params: {container: trainer-0}")
    either = playbook("a", "alertname = A, 'container_name =~ \"trainer-0|b\"'")
    assert told(tmp_path, playbook("a", "alertname = A, container_name = trainer-0"), named) == ["11 same-target"]
    assert told(tmp_path, playbook("a", "alertname = A, container_name = trainer-1"), named) == []
    assert told(tmp_path, either, named) == []


def test_playbooks_when_matchers_say_which_host_then_the_default_host_is_that_one(tmp_path: Path) -> None:
    there = playbook("a", 'alertname = A, hostname = "gpu-07:9400"', "docker.stop, params: {container: a}")
    for host, expected in (("gpu-07", ["11 same-target"]), ("gpu-08", [])):
        named = playbook("b", "alertname = A", f"docker.stop, params: {{container: a, host: {host}}}")
        assert told(tmp_path, there, named) == expected


def test_playbooks_when_a_case_takes_the_alert_first_then_the_others_do_not_meet(tmp_path: Path) -> None:
    cases = "cases:\n  - {name: known, match: [err = x], ignore: known}\n  - {name: rest}\n"
    known = playbook("b", "alertname = A, err = x")
    assert told(tmp_path, playbook("a", "alertname = A", rest=cases), known) == []
    assert told(tmp_path, playbook("a", "alertname = A", rest=cases), known.replace("err = x", "err = y")) == [
        "14 same-target"
    ]


def test_playbooks_when_one_is_disabled_then_do_not_meet(tmp_path: Path) -> None:
    off = playbook("b", "alertname = A", rest="mode: disabled\n")
    observing = playbook("b", "alertname = A", rest="mode: observe\n")
    assert told(tmp_path, playbook("a", "alertname = A"), off) == []
    assert told(tmp_path, playbook("a", "alertname = A"), observing) == ["11 same-target"]


def test_playbooks_when_several_meet_then_each_is_told_once_of_the_first(tmp_path: Path) -> None:
    advice = advise(tmp_path, "".join(playbook(name, "alertname = A") for name in "abc"))
    assert placed(advice) == ["11 same-target", "17 same-target"]
    assert all(f"the playbook a ({tmp_path / 'x.yaml'}:5)" in found.message for found in advice.lints)


def test_playbooks_when_many_meet_one_that_names_no_alert_then_all_are_told(tmp_path: Path) -> None:
    many = [playbook(f"p{n}", f"alertname = A{n}") for n in range(30)]
    anything = playbook("any", "severity = page")
    assert len(told(tmp_path, anything, *many)) == 30
    (last,) = told(tmp_path, *many, anything)
    assert last == f"{30 * 6 + 5} same-target"


def test_cases_of_one_playbook_when_they_touch_the_same_then_are_not_told(tmp_path: Path) -> None:
    cases = "cases:\n  - {name: a, match: [b = c]}\n  - {name: d}\n"
    assert told(tmp_path, playbook("a", "alertname = A", rest=cases)) == []


@pytest.mark.parametrize(
    ("match", "most"),
    [
        pytest.param("alertname = A{0}", 0, id="an alert each"),
        pytest.param("alertname = A, team = t{0}", 0, id="one alert, a team each"),
        pytest.param("alertname = A, team = t{ten}, 'h =~ \"{0}-.*\"'", 10 * 30 * 29 // 2, id="30 of each team"),
    ],
)
def test_playbooks_when_there_are_many_then_only_those_that_may_meet_are_compared(
    match: str, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("".join(playbook(f"p{n}", match.format(n, ten=n % 10)) for n in range(300)))
    loaded = load([file], context=CONTEXT)
    compared = 0
    compare = together._compare

    def count(*arguments: object) -> object:
        nonlocal compared
        compared += 1
        return compare(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(together, "_compare", count)
    documents = {document.root.line: document for document in loaded.documents}
    written = [Written(playbook, documents[playbook.line]) for playbook in loaded.playbook_set.playbooks]
    assert together.lint_targets(written, REGISTRY, CONTEXT.label_map) == []
    assert compared <= most


@pytest.mark.parametrize("name", REGISTRY)
def test_action_when_it_touches_something_then_its_params_say_by_which_names(name: str) -> None:
    model = REGISTRY[name].params_model
    assert {*model.target_params} <= model.model_fields.keys()
    assert bool(model.target_params) is name.startswith("docker.")
