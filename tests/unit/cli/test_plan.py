"""What ``plan`` prints, and the alert that its options make."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner, Result

from remediator.cli import cli
from remediator.cli import plan as command
from remediator.cli.alert_options import webhook_body
from remediator.core.alert import AlertStatus
from remediator.core.decode import decode

STEP: dict[str, Any] = {
    "name": "restart",
    "action": "docker.restart",
    "describes": "restart container trainer-0 on gpu-07",
    "params": {"host": "gpu-07", "container": "trainer-0"},
    "if": "",
    "runs": "yes",
    "timeout": "8m",
    "retry": {"attempts": 4, "wait": "2s", "max_wait": "30s", "jitter_pct": 20, "budget": "15m"},
    "on_failure": "stop",
    "targets": [
        {
            "ref": "docker:gpu-07/trainer-0",
            "uid": "abc",
            "state": "running",
            "owner": "compose:train/trainer",
            "labels": {},
        }
    ],
}
SKIPPED: dict[str, Any] = {
    **STEP,
    "name": "checkpoint",
    "if": "steps.x.outcome == 'failed'",
    "runs": "decided later",
    "targets": [],
}
MATCH: dict[str, Any] = {
    "playbook": "restart-on-leak",
    "case": "",
    "mode": "enforce",
    "per": {"host": "gpu-07"},
    "run_id": "4f1d",
    "hold": "10m",
    "steps": [SKIPPED, STEP],
    "verdict": {
        "word": "wait",
        "reasons": [
            {
                "rule": "cooldown",
                "word": "wait",
                "reason": "cooldown",
                "detail": "docker:gpu-07/trainer-0 was last disrupted by playbook x 5m ago, cooldown 30m",
                "lifts_at": "2026-11-30T09:00:00Z",
            },
        ],
        "answers": [{"rule": "protect", "word": "allow", "reason": "none", "detail": "", "lifts_at": ""}],
    },
    "resolved": [],
}
ALERT: dict[str, Any] = {
    "labels": {"alertname": "GPUMemoryLeakSlope", "host": "gpu-07"},
    "fingerprint": "c8d2015699e0fa01",
    "status": "firing",
    "matches": [MATCH],
    "not_matched": [{"playbook": "xid", "why": ['alertname = "GPUXid": it is "GPUMemoryLeakSlope"']}],
}


ASKED: list[tuple[str, dict[str, Any]]] = []
"""What the command asked of the dry engine."""


def plan(answer: dict[str, Any], monkeypatch: pytest.MonkeyPatch, *arguments: str, body: bytes | None = None) -> Result:
    """``plan`` with an engine that gives this answer."""
    seen: list[bytes] = []

    class DryApp:
        def dry_run(self, body: bytes, **asked: Any) -> dict[str, Any]:
            seen.append(body)
            ASKED.append(("dry_run", asked))
            return answer

        def difference(self, body: bytes, playbooks: Any, **asked: Any) -> dict[str, Any]:
            ASKED.append(("difference", {"playbooks": playbooks, **asked}))
            return answer

    app = ModuleType("remediator.app")
    app.build_dry_app = lambda settings: DryApp()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "remediator.app", app)
    monkeypatch.setenv("COLUMNS", "80")
    result = CliRunner().invoke(cli, ["plan", *(arguments or ["--alert", "alertname=X"])], input=body)
    if body is not None:
        assert seen == [body]
    return result


def test_plan_when_an_alert_matches_then_shows_the_whole_plan_in_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    result = plan({"alerts": [ALERT], "bad_alerts": []}, monkeypatch)

    assert result.exit_code == 0
    assert result.stdout == (
        "GPUMemoryLeakSlope  firing  c8d2015699e0fa01\n"
        '  {alertname="GPUMemoryLeakSlope", host="gpu-07"}\n'
        "\n"
        "  restart-on-leak\n"
        "    subject  host=gpu-07\n"
        "    mode     enforce\n"
        "    hold     10m\n"
        "    run id   4f1d\n"
        "    steps\n"
        "      1. checkpoint: restart container trainer-0 on gpu-07\n"
        "         action      docker.restart\n"
        "         params      host=gpu-07 container=trainer-0\n"
        "         if          steps.x.outcome == 'failed'  (decided later)\n"
        "         timeout     8m\n"
        "         retry       4 attempts, 2s to 30s apart, none later than 15m\n"
        "         on failure  stop\n"
        "      2. restart: restart container trainer-0 on gpu-07\n"
        "         action      docker.restart\n"
        "         params      host=gpu-07 container=trainer-0\n"
        "         timeout     8m\n"
        "         retry       4 attempts, 2s to 30s apart, none later than 15m\n"
        "         on failure  stop\n"
        "         touches docker:gpu-07/trainer-0, now running, owned by\n"
        "         compose:train/trainer\n"
        "    verdict: wait\n"
        "      wait   cooldown (cooldown): docker:gpu-07/trainer-0 was last disrupted by\n"
        "             playbook x 5m ago, cooldown 30m, until 2026-11-30 09:00:00 UTC\n"
        "      allow  protect\n"
        "\n"
        "  does not match:\n"
        '    xid: alertname = "GPUXid": it is "GPUMemoryLeakSlope"\n'
    )


CONDITION = {"name": "temp_c", "query": "max(\n  temp)", "below": "82", "now": "temp_c is 91, must be below 82"}
WATCHED = {**CONDITION, "settle": "3m", "holds": "2m", "within": "8m"}
CAP: dict[str, Any] = {
    **STEP,
    "name": "cap",
    "rung": 1,
    "targets": [],
    "approval": {"ask": ["oncall"], "expires": "4h"},
    "verify": [{**WATCHED, "settle": "0s"}],
    "undo": {"when": "resolved", "after": "10m", "at_most": "12h", "require": [CONDITION]},
}
LADDER = {
    **MATCH,
    "ladder": {"within": "6h", "starts_at": 2, "rungs": [1, 2]},
    "approval": {"ask": ["oncall", "boss"], "expires": "30m"},
    "fleets": [{"name": "gpus", "size": 25, "problem": ""}, {"name": "dpus", "size": 0, "problem": "no answer"}],
    "require": [CONDITION],
    "steps": [CAP, {**CAP, "name": "stop", "rung": 2, "undo": {**CAP["undo"], "when": "never", "require": []}}],
    "verify": [WATCHED, {"alert": "resolved", "within": "1h"}],
    "verdict": {"word": "wait", "trips": ["site"], "reasons": [], "answers": []},
}


def test_plan_when_it_has_rungs_conditions_approvals_and_undo_then_shows_them_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = plan({"alerts": [{**ALERT, "matches": [LADDER]}], "bad_alerts": []}, monkeypatch)

    assert result.stdout.partition("    mode ")[2] == (
        "       enforce\n"
        "    hold        10m\n"
        "    asks first  oncall boss, before each rung, a yes within 30m\n"
        "    ladder      2 rungs, one higher when it is back within 6h\n"
        "    fleets      gpus: 25, dpus: not known, no answer\n"
        "    run id      4f1d\n"
        "    must hold before it acts: temp_c is 91, must be below 82\n"
        "      max( temp)\n"
        "    rung 1\n"
        "      1. cap: restart container trainer-0 on gpu-07\n"
        "         action      docker.restart\n"
        "         params      host=gpu-07 container=trainer-0\n"
        "         timeout     8m\n"
        "         retry       4 attempts, 2s to 30s apart, none later than 15m\n"
        "         on failure  stop\n"
        "         asks first  oncall, a yes within 4h\n"
        "         done if: temp_c is 91, must be below 82, for 2m, within 8m\n"
        "           max( temp)\n"
        "         taken back: 10m after the alert is resolved; stays 12h at most\n"
        "         must hold for that: temp_c is 91, must be below 82\n"
        "           max( temp)\n"
        "    rung 2, where it would begin\n"
        "      1. stop: restart container trainer-0 on gpu-07\n"
        "         action      docker.restart\n"
        "         params      host=gpu-07 container=trainer-0\n"
        "         timeout     8m\n"
        "         retry       4 attempts, 2s to 30s apart, none later than 15m\n"
        "         on failure  stop\n"
        "         asks first  oncall, a yes within 4h\n"
        "         done if: temp_c is 91, must be below 82, for 2m, within 8m\n"
        "           max( temp)\n"
        "         taken back: never by itself; stays 12h at most\n"
        "    it helped if: temp_c is 91, must be below 82, looked at after 3m, for 2m,\n"
        "    within 8m\n"
        "      max( temp)\n"
        "    it helped if the alert is resolved within 1h\n"
        "    verdict: wait\n"
        "      this act would trip the breaker site, and nothing would act until a person\n"
        "      resets it\n"
        "\n"
        "  does not match:\n"
        '    xid: alertname = "GPUXid": it is "GPUMemoryLeakSlope"\n'
    )


@pytest.mark.parametrize(
    ("changes", "line", "code"),
    [
        pytest.param({"matches": []}, "  no playbook matches", 0, id="nothing matches"),
        pytest.param({"problem": "no labels"}, "  no labels", 1, id="the alert has a problem"),
        pytest.param(
            {
                "matches": [
                    {**MATCH, "steps": [], "verdict": None, "refused": {"reason": "missing_label", "detail": "pod"}}
                ]
            },
            "    refused (missing_label): pod",
            0,
            id="the plan is refused",
        ),
        pytest.param(
            {"matches": [{**MATCH, "steps": [{**STEP, "targets": [], "problem": "gpu-07 does not answer"}]}]},
            "         cannot tell what it touches: gpu-07 does not answer",
            0,
            id="the target cannot be asked",
        ),
        pytest.param(
            {"matches": [{**MATCH, "case": "app_error"}]}, "  restart-on-leak, case app_error", 0, id="a case"
        ),
        pytest.param(
            {"matches": [{**MATCH, "resolved": [STEP]}]}, "    when it is over", 0, id="steps for when it is over"
        ),
        pytest.param(
            {"labels": {"alertname": "\x1b]0;x\x07"}},
            "\\x1b]0;x\\x07  firing  c8d2015699e0fa01",
            0,
            id="a steering label",
        ),
    ],
)
def test_plan_when_something_is_special_then_says_it(
    changes: dict[str, Any], line: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = plan({"alerts": [{**ALERT, **changes}], "bad_alerts": []}, monkeypatch)

    assert result.exit_code == code
    assert line in result.stdout.splitlines()
    assert "\x1b" not in result.stdout


def test_plan_when_a_member_is_no_alert_then_says_which_and_ends_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    result = plan({"alerts": [ALERT], "bad_alerts": [{"index": 1, "problem": "no labels"}]}, monkeypatch)

    assert result.exit_code == 1
    assert result.stdout.startswith("alert 2 of the delivery is no alert: no labels\n")


def test_plan_when_asked_for_json_then_prints_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = {"alerts": [ALERT], "bad_alerts": []}

    assert json.loads(plan(answer, monkeypatch, "--alert", "a=b", "--json").stdout) == answer


def test_plan_when_given_stdin_then_hands_on_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert plan({"alerts": [], "bad_alerts": []}, monkeypatch, "-", body=b"\xff{}").exit_code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["alertname=X", "query=a=b"], id="labels alone"),
        pytest.param(["alertname=X", "--alert", "query=a=b"], id="labels before the option"),
        pytest.param(["alertname=X", "query=a=b", "--annotation", "note=y"], id="with an annotation"),
    ],
)
def test_plan_when_given_labels_without_the_option_then_they_are_the_alert_s(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[dict[str, str]] = []
    monkeypatch.setattr(command, "webhook_body", lambda labels, _: made.append(labels) or b"")

    assert plan({"alerts": [], "bad_alerts": []}, monkeypatch, *arguments).exit_code == 0
    assert made == [{"alertname": "X", "query": "a=b"}]


def test_plan_when_a_file_has_such_a_name_then_it_is_the_delivery(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "a=b").write_bytes(b"delivery")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "webhook_body", lambda *_: pytest.fail("the file was not read"))

    assert plan({"alerts": [], "bad_alerts": []}, monkeypatch, "a=b").exit_code == 0


def test_plan_when_the_file_is_not_there_then_ends_with_3(monkeypatch: pytest.MonkeyPatch) -> None:
    result = plan({"alerts": [], "bad_alerts": []}, monkeypatch, "/no/such/file")

    assert (result.exit_code, result.stderr) == (
        3,
        "remediator: cannot read /no/such/file: No such file or directory\n",
    )


def test_webhook_body_when_decoded_then_is_one_firing_alert_of_now() -> None:
    group = decode(webhook_body({"alertname": "X", "ü": "a=b"}, {"note": "y"}), datetime.now(UTC))

    (alert,) = group.alerts
    assert group.bad_alerts == ()
    assert (alert.status, dict(alert.labels), dict(alert.annotations), alert.ends_at) == (
        AlertStatus.FIRING,
        {"alertname": "X", "ü": "a=b"},
        {"note": "y"},
        None,
    )
    assert alert.starts_at is not None
    assert abs((datetime.now(UTC) - alert.starts_at).total_seconds()) < 60


# -- other playbooks, another moment -----------------------------------------------------------------------------------

NOTHING: dict[str, Any] = {"alerts": [], "bad_alerts": []}
SAME: dict[str, Any] = {**NOTHING, "differs": False}


def asked(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[str, dict[str, Any]]:
    """What the command asks of the dry engine with these options."""
    ASKED.clear()
    plan(SAME, monkeypatch, "alertname=X", *arguments)
    (one,) = ASKED
    return one


def test_plan_when_given_no_options_then_it_asks_for_now_and_the_settings_playbooks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert asked(monkeypatch) == ("dry_run", {"playbooks": (), "at": None})


def test_plan_when_given_playbooks_then_it_plans_with_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    asks = asked(monkeypatch, "--playbooks", "new", "--playbooks", "b.yaml")

    assert asks == ("dry_run", {"playbooks": (Path("new"), Path("b.yaml")), "at": None})


def test_plan_when_asked_for_the_difference_then_it_compares(monkeypatch: pytest.MonkeyPatch) -> None:
    asks = asked(monkeypatch, "--diff", "--playbooks", "new", "--at", "2026-01-31T14:00:00+01:00")

    assert asks == ("difference", {"playbooks": (Path("new"),), "at": datetime(2026, 1, 31, 13, tzinfo=UTC)})


def test_plan_when_given_a_duration_then_it_is_so_long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    before = datetime.now(UTC)
    at = asked(monkeypatch, "--at", "1d2h")[1]["at"]

    assert before <= at + timedelta(hours=26) <= datetime.now(UTC)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        pytest.param(
            ["--diff"],
            "--diff compares with the running set: say what to compare it with, as in --diff --playbooks new/",
            id="a difference with nothing",
        ),
        pytest.param(["--at", "-2h"], "write how long ago (7d, 1h30m)", id="a negative duration"),
        pytest.param(["--at", "0001-01-01T00:00:00+05:00"], "the year is not between 1971 and 2199", id="long ago"),
        pytest.param(["--at", "292y"], "the year is not between 1971 and 2199", id="too long a duration"),
        pytest.param(["--at", "9999-12-31T23:59:59Z"], "the year is not between 1971 and 2199", id="far away"),
        pytest.param(["--at", "yesterday"], "write how long ago (7d, 1h30m)", id="a word"),
    ],
)
def test_plan_when_an_option_is_wrong_then_says_what_to_write_and_ends_with_2(
    arguments: list[str], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = plan(SAME, monkeypatch, "alertname=X", *arguments)

    assert result.exit_code == 2
    assert problem in result.stderr


def test_plan_when_asked_for_another_moment_then_says_which_and_what_it_takes_for_granted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = {"alerts": [], "bad_alerts": [], "at": "2026-01-31T14:00:00.000000Z", "assumes": ["targets: of now"]}

    assert plan(answer, monkeypatch, "alertname=X", "--at", "2h").stdout == (
        "as of 2026-01-31 14:00:00 UTC\n\nthe delivery holds no alert\n\ntaken for granted:\n  - targets: of now\n"
    )


def test_plan_when_a_playbook_has_limits_and_people_then_shows_them(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"max_runs": {"count": 2, "per": "1d"}, "max_targets": {"percent": 10, "of": "gpus", "per": "1h"}}
    guard = {"cooldown": "30m", "tell_after": "1h", **limits}
    match = {**MATCH, "guard": guard, "report_to": ["ml-platform"], "escalate_to": ["oncall", "boss"]}
    result = plan({"alerts": [{**ALERT, "matches": [match]}], "bad_alerts": []}, monkeypatch)

    assert (
        "    guard         cooldown 30m, 2 runs in 1d, 10 % of gpus as targets in 1h,\n"
        "                  people told after 1h\n"
        "    reports to    ml-platform\n"
        "    escalates to  oncall, boss\n"
    ) in result.stdout


CHANGES: list[dict[str, Any]] = [
    {"what": "hold", "was": "10m", "would_be": "20m"},
    {"what": "steps.restart.params.stop_timeout", "was": None, "would_be": "5m"},
    {"what": "steps.tell", "was": {"name": "tell", "describes": "tell oncall"}, "would_be": None},
    {"what": "steps.restart.if", "was": "", "would_be": "labels.x"},
    {
        "what": "verdict.rules.cooldown",
        "was": ["allow: docker:gpu-07/trainer-0 was last disrupted by playbook x 45m ago, cooldown 30m"],
        "would_be": ["wait (cooldown): docker:gpu-07/trainer-0 was last disrupted by playbook x 45m ago, cooldown 1h"],
    },
]
DIFFERENCE: dict[str, Any] = {
    "differs": True,
    "alerts": [
        {
            "labels": ALERT["labels"],
            "fingerprint": ALERT["fingerprint"],
            "status": "firing",
            "new": [
                {**MATCH, "steps": [{**STEP, "rung": 0}]},
                {**MATCH, "case": "big", "refused": {"reason": "missing_label", "detail": "pod"}},
            ],
            "gone": [{"playbook": "old", "case": "", "per": {"host": "gpu-07"}, "why": ["severity is warning"]}],
            "different": [{"playbook": "leak", "case": "big", "per": {"host": "gpu-07"}, "changes": CHANGES}],
            "n_same": 2,
        }
    ],
    "bad_alerts": [],
}


def test_plan_when_other_playbooks_differ_then_shows_where_in_80_columns_and_ends_with_1(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = plan(DIFFERENCE, monkeypatch, "alertname=X", "--playbooks", "new", "--diff")

    assert result.exit_code == 1
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert result.stdout == (
        "GPUMemoryLeakSlope  firing  c8d2015699e0fa01\n"
        '  {alertname="GPUMemoryLeakSlope", host="gpu-07"}\n'
        "\n"
        "  + restart-on-leak: new\n"
        "    subject host=gpu-07\n"
        "    mode enforce, hold 10m, verdict: wait\n"
        "    1. restart: restart container trainer-0 on gpu-07\n"
        "\n"
        "  + restart-on-leak, case big: new\n"
        "    subject host=gpu-07\n"
        "    refused (missing_label): pod\n"
        "\n"
        "  - old: gone\n"
        "    subject host=gpu-07\n"
        "    severity is warning\n"
        "\n"
        "  ~ leak, case big: different\n"
        "    subject host=gpu-07\n"
        "    hold: 10m → 20m\n"
        "    steps.restart.params.stop_timeout: (none) → 5m\n"
        "    steps.tell: tell oncall → (none)\n"
        "    steps.restart.if: (empty) → labels.x\n"
        "    verdict.rules.cooldown:\n"
        "      - allow: docker:gpu-07/trainer-0 was last disrupted by playbook x 45m ago,\n"
        "        cooldown 30m\n"
        "      + wait (cooldown): docker:gpu-07/trainer-0 was last disrupted by playbook\n"
        "        x 45m ago, cooldown 1h\n"
        "\n"
        "  = 2 the same\n"
        "\n"
        "the playbooks given differ from the running set (what the settings' folders\n"
        "hold)\n"
    )


def test_plan_when_other_playbooks_do_not_differ_then_says_so_and_ends_with_0(monkeypatch: pytest.MonkeyPatch) -> None:
    result = plan(SAME, monkeypatch, "alertname=X", "--playbooks", "new", "--diff")

    assert (result.exit_code, result.stdout) == (0, "the delivery holds no alert\n\nno difference\n")


def test_plan_when_they_differ_and_json_is_asked_for_then_prints_it_and_ends_with_1(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = plan(DIFFERENCE, monkeypatch, "alertname=X", "--playbooks", "new", "--diff", "--json")

    assert (result.exit_code, json.loads(result.stdout)) == (1, DIFFERENCE)
