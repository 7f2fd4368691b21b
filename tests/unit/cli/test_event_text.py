"""What ``audit show`` prints for plans, verdicts and attempts, at 80 columns."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from plans import a_plan, a_step
from remediator.cli.event_text import print_data
from remediator.core.action import UndoWhen
from remediator.core.condition import Check, Comparison, Condition
from remediator.core.plan import Undo, pack_plan
from remediator.core.playbook import Approval, GuardRules, MaxTargets
from remediator.core.policy import Share

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


def test_plan_when_it_has_every_key_then_each_is_said_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    condition = Condition(name="temp_c", query="max(t)", comparison=Comparison.BELOW, bound="82")
    undo = Undo(when=UndoWhen.RESOLVED, after=timedelta(minutes=10), at_most=timedelta(hours=12), require=(condition,))
    asked = Approval(ask=("oncall",), expires=timedelta(minutes=30))
    check = Check(condition=condition, within=timedelta(minutes=8), holds=timedelta(minutes=2))
    resolved = Check(within=timedelta(minutes=30))
    step = a_step("cap", describes="limit it", rung=2, verify=(check, resolved), undo=undo, approval=asked)
    plan = a_plan(
        steps=(step,), verify=(check,), require=(condition,), ladder=timedelta(hours=6), approval=asked,
        guard=GuardRules(
            cooldown=timedelta(0), max_runs=None, tell_after=timedelta(hours=1),
            max_targets=MaxTargets(limit=Share(percent=10, of="gpus"), per=timedelta(hours=1)),
        ),
    )  # fmt: skip
    lines = [line.strip() for line in shown(capsys, {"plan": pack_plan(plan)})]

    said = [
        "steps       rung 2, cap: limit it",
        "verify temp_c below 82, holds 2m, within 8m",
        "verify the alert is resolved, within 30m",
        "approval of oncall within 30m",
        "undo 10m after resolved, at most 12h, only if temp_c below 82",
        "verify      temp_c below 82, holds 2m, within 8m",
        "require     temp_c below 82",
        "max(t)",
        "guard       cooldown 0s, tell_after 1h, max_targets 10 % of gpus in 1h",
        "ladder      one rung higher when back within 6h",
        "approval    of oncall within 30m",
    ]
    assert [line for line in said if line not in lines] == []


def test_look_has_a_line_for_each_condition_that_was_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    checks = [
        {"seen": "met", "detail": "a is 1, must be below 2", "met_since": "", "is_done": False, "is_over": False},
        {"seen": "no_value", "detail": "b has no value, must be above 3"},
        {"seen": "", "detail": ""},
    ]

    assert shown(capsys, {"step": "", "rung": 0, "checks": checks}) == [
        "    met       a is 1, must be below 2",
        "    no value  b has no value, must be above 3",
    ]


def test_question_says_how_long_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, {"key": "rung.1", "ask": ["oncall"], "expires_ms": 1_800_000, "rung": 1})

    assert [line.split() for line in lines] == [["key", "rung.1"], ["ask", "oncall"], ["rung", "1"], ["expires", "30m"]]


def test_lease_says_what_it_is_on_and_when_it_ends(capsys: pytest.CaptureFixture[str]) -> None:
    data = {
        "lease_id": "77", "step": "steps.limit", "target": "docker:gpu-07/trainer-0", "action": "docker.limit",
        "params": {"cpus": "2"}, "before": {"cpus": ""}, "after": {"cpus": "2"}, "when": "resolved", "after_s": 600,
        "at_most": "12h", "require": [], "ends_at": "",
    }  # fmt: skip
    lines = shown(capsys, data)

    assert lines[:2] == [
        "  lease       docker.limit docker:gpu-07/trainer-0",
        "              undo 10m after resolved, at most 12h",
    ]
    assert lines[2:] == ["  cpus        2"]
    assert "77" not in "".join(lines)
    assert "77" in "".join(shown(capsys, data, is_whole=True))


def test_message_keeps_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, {"step": "message.report", "attempt": 1, "params": {"body": "one\ntwo", "to": ["oncall"]}})

    assert lines[-3:] == ["  body        one", "              two", "  to          oncall"]


def test_data_that_nothing_is_known_of_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, {"reason": "[bold]work[/bold]", "steps": ["a"], "map": {"a": "\x1b[2J"}})

    assert lines == ["  reason      [bold]work[/bold]", "  steps       a", "  map", "    a  \\x1b[2J"]
