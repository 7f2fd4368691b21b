"""What ``audit show`` prints for plans, verdicts and attempts, at 80 columns."""

from __future__ import annotations

from typing import Any

import pytest

from plans import a_plan, a_step
from remediator.cli.event_text import print_data
from remediator.core.plan import pack_plan

ANSWERS = [
    {"rule": "protect", "word": "allow", "reason": "none", "detail": "", "lifts_at": ""},
    {
        "rule": "max_concurrent_runs",
        "word": "wait",
        "reason": "concurrency",
        "detail": "4 of 4 runs at work",
        "lifts_at": "",
    },
    {
        "rule": "cooldown",
        "word": "wait",
        "reason": "cooldown",
        "detail": "restart acted at 12:00",
        "lifts_at": "2026-03-01T12:30:00.000000Z",
    },
]


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def shown(capsys: pytest.CaptureFixture[str], data: dict[str, Any], **more: Any) -> list[str]:
    print_data(data, **{"is_whole": False, **more})
    return capsys.readouterr().out.splitlines()


def test_verdict_has_a_line_for_each_rule_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    target = {"ref": "docker:gpu-07/trainer-0", "state": "running", "uid": "41"}
    data = {"word": "wait", "answers": ANSWERS, "reasons": ANSWERS[1:], "waits_for": ["a:b"], "targets": [target]}

    assert shown(capsys, data) == [
        "  verdict     wait",
        "    allow   protect",
        "    wait    max_concurrent_runs  concurrency: 4 of 4 runs at work",
        "    wait    cooldown             cooldown: restart acted at 12:00, until",
        "                                 2026-03-01T12:30:00Z",
        "  targets     docker:gpu-07/trainer-0 (running)",
    ]


def test_verdict_when_whole_then_shows_what_identifies_its_targets(capsys: pytest.CaptureFixture[str]) -> None:
    target = {"ref": "docker:gpu-07/trainer-0", "state": "running", "uid": "41"}
    lines = shown(capsys, {"word": "allow", "answers": [], "targets": [target]}, is_whole=True)

    assert lines[-1].split() == ["uid", "41"]


def test_plan_has_a_line_for_each_step_and_its_params_below(capsys: pytest.CaptureFixture[str]) -> None:
    steps = (
        a_step(params={"host": "gpu-07", "container": "trainer-0"}),
        a_step("tell", is_message=True, condition="steps.restart.failed"),
    )
    lines = shown(capsys, {"plan": pack_plan(a_plan(steps=steps))})

    at = lines.index("  steps       restart: restart container trainer-0 on gpu-07")
    assert lines[at + 1 : at + 5] == [
        "              host=gpu-07 container=trainer-0",
        "              timeout 5m, attempts 3, budget 10m, on failure stop",
        "              tell: tell ml-platform",
        "              if steps.restart.failed, timeout 5m, attempts 3, budget 10m, on",
    ]
    assert max(map(len, lines)) <= 80


def test_plan_when_whole_then_nothing_of_it_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    plan = pack_plan(a_plan())
    short, whole = (
        "".join(shown(capsys, {"plan": plan}, is_whole=is_whole)).replace(" ", "") for is_whole in (False, True)
    )

    assert str(plan["playbook_sha256"]) not in short
    assert str(plan["playbook_sha256"]) in whole


def test_attempt_when_it_changed_something_then_shows_what_differs_alone(capsys: pytest.CaptureFixture[str]) -> None:
    before = {"pid": 1002, "status": "running", "id": "41", "owner": ""}
    data = {
        "step": "steps.restart",
        "action": "docker.restart",
        "attempt": 2,
        "duration_ms": 1500,
        "changed": True,
        "outcome": "succeeded",
        "reason": "none",
        "detail": "",
        "after": {**before, "pid": 1003},
    }

    assert shown(capsys, data, before=before) == [
        "  attempt     2 of restart, took 1.5 s",
        "  pid         1002 → 1003",
    ]


def test_attempt_when_nothing_is_known_of_the_state_before_then_shows_the_state_after(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = shown(capsys, {"step": "steps.restart", "attempt": 1, "after": {"pid": 1003}})

    assert [line.split() for line in lines] == [["attempt", "1", "of", "restart"], ["after"], ["pid", "1003"]]


def test_message_keeps_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, {"step": "message.report", "attempt": 1, "params": {"body": "one\ntwo", "to": ["oncall"]}})

    assert lines[-3:] == ["  body        one", "              two", "  to          oncall"]


def test_data_that_nothing_is_known_of_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, {"reason": "[bold]work[/bold]", "steps": ["a"], "map": {"a": "\x1b[2J"}})

    assert lines == ["  reason      [bold]work[/bold]", "  steps       a", "  map", "    a  \\x1b[2J"]
