"""What two dry runs of one delivery differ in."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from remediator.engine.difference import difference

STEP: dict[str, Any] = {
    "name": "restart",
    "describes": "restart container trainer-0 on gpu-07",
    "params": {"container": "trainer-0", "now": "x"},
    "timeout": "8m",
    "verify": [{"name": "up", "query": "up", "equals": "1", "within": "5m", "now": "up is 1, must be 1"}],
    "targets": [{"ref": "docker:gpu-07/trainer-0", "uid": "a1", "state": "running"}],
}
TELL = {"name": "tell", "describes": "tell oncall", "params": {"to": ["oncall"]}, "targets": []}
MATCH: dict[str, Any] = {
    "playbook": "leak",
    "case": "",
    "per": {"host": "gpu-07"},
    "run_id": "r1",
    "hold": "10m",
    "guard": {"cooldown": "30m"},
    "fleets": [{"name": "gpus", "size": 20, "problem": ""}],
    "steps": [STEP, TELL],
    "verify": [{"alert": "resolved", "within": "1h"}],
    "verdict": {
        "word": "allow",
        "trips": [],
        "reasons": [],
        "answers": [
            {"rule": "cooldown", "word": "allow", "reason": "none", "detail": "none", "lifts_at": ""},
            {"rule": "require", "word": "allow", "reason": "none", "detail": "up is 1", "lifts_at": ""},
            {"rule": "breaker", "word": "allow", "reason": "none", "detail": "one: 0", "lifts_at": ""},
            {"rule": "breaker", "word": "allow", "reason": "none", "detail": "two: 0", "lifts_at": ""},
        ],
    },
}
ALERT: dict[str, Any] = {
    "labels": {"alertname": "Leak"},
    "fingerprint": "f",
    "status": "firing",
    "matches": [MATCH],
    "not_matched": [],
}


def answer(**changes: Any) -> dict[str, Any]:
    return {"alerts": [copy.deepcopy({**ALERT, **changes})], "bad_alerts": []}


def edited(edit: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    """The same, with something else in its one match."""
    made = answer()
    edit(made["alerts"][0]["matches"][0])
    return made


def refuses(match: dict[str, Any]) -> None:
    """A cooldown holds it."""
    match["verdict"]["word"] = "wait"
    until = {"detail": "acted 5m ago", "lifts_at": "2026-11-30T09:00:00+00:00"}
    match["verdict"]["answers"][0] |= {"word": "wait", "reason": "cooldown", **until}


@pytest.mark.parametrize(
    ("edit", "changes"),
    [
        pytest.param(lambda m: m.update(hold="20m"), [("hold", "10m", "20m")], id="a value"),
        pytest.param(
            lambda m: m["guard"].update(max_runs={"count": 1}),
            [("guard.max_runs", None, {"count": 1})],
            id="a limit that was not there",
        ),
        pytest.param(
            lambda m: m["steps"][0]["params"].update(container="trainer-1"),
            [("steps.restart.params.container", "trainer-0", "trainer-1")],
            id="a param",
        ),
        pytest.param(
            lambda m: m["steps"][0]["params"].update(now="y"),
            [("steps.restart.params.now", "x", "y")],
            id="a param that is called as what the world says is called here",
        ),
        pytest.param(
            lambda m: m["steps"][0]["targets"][0].update(ref="docker:gpu-07/trainer-1"),
            [("steps.restart.targets", ["docker:gpu-07/trainer-0"], ["docker:gpu-07/trainer-1"])],
            id="a target",
        ),
        pytest.param(lambda m: m["steps"].pop(1), [("steps.tell", TELL, None)], id="a step is gone"),
        pytest.param(
            lambda m: m["steps"].reverse(),
            [("steps in order", ["restart", "tell"], ["tell", "restart"])],
            id="steps in another order",
        ),
        pytest.param(
            lambda m: m["steps"].insert(1, {"name": "look", "describes": "do nothing"}),
            [("steps.look", None, {"name": "look", "describes": "do nothing"})],
            id="a step is added between two",
        ),
        pytest.param(
            lambda m: m["steps"][0]["verify"][0].update(equals="2"),
            [("steps.restart.verify.up.equals", "1", "2")],
            id="what a step's verify asks for",
        ),
        pytest.param(
            lambda m: m["verify"][0].update(within="2h"),
            [("verify.alert.within", "1h", "2h")],
            id="how long it is waited",
        ),
        pytest.param(
            refuses,
            [
                ("verdict.word", "allow", "wait"),
                (
                    "verdict.rules.cooldown",
                    ["allow: none"],
                    ["wait (cooldown): acted 5m ago, until 2026-11-30T09:00:00Z"],
                ),
            ],
            id="the verdict, with the rule that made it so",
        ),
        pytest.param(
            lambda m: m["verdict"]["answers"][3].update(detail="two: 1"),
            [("verdict.rules.breaker", ["allow: one: 0", "allow: two: 0"], ["allow: one: 0", "allow: two: 1"])],
            id="one of two breakers",
        ),
        pytest.param(
            lambda m: m.update(ladder={"within": "6h", "starts_at": 1}),
            [("ladder", None, {"within": "6h", "starts_at": 1})],
            id="a ladder",
        ),
    ],
)
def test_difference_when_something_was_decided_otherwise_then_it_says_where_and_what(
    edit: Callable[[dict[str, Any]], Any], changes: list[tuple[str, Any, Any]]
) -> None:
    found = difference(answer(), edited(edit))

    (alert,) = found["alerts"]
    (different,) = alert["different"]
    assert [(change["what"], change["was"], change["would_be"]) for change in different["changes"]] == changes
    assert (found["differs"], alert["new"], alert["gone"], alert["n_same"]) == (True, [], [], 0)


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param(lambda m: m.update(run_id="r2"), id="the run's id"),
        pytest.param(lambda m: m["steps"][0]["verify"][0].update(now="up is 0"), id="what a condition says now"),
        pytest.param(lambda m: m["steps"][0]["targets"][0].update(state="exited"), id="what a target does now"),
        pytest.param(lambda m: m["fleets"][0].update(size=19), id="the size of a fleet"),
        pytest.param(lambda m: m["verdict"]["answers"][1].update(detail="up is 2"), id="a value in a rule's detail"),
        pytest.param(lambda m: m["steps"][0].update(problem="no answer"), id="who does not answer"),
    ],
)
def test_difference_when_only_the_world_moved_then_there_is_none(edit: Callable[[dict[str, Any]], Any]) -> None:
    found = difference(answer(), edited(edit))

    assert (found["differs"], found["alerts"][0]["n_same"]) == (False, 1)


NAMED = {"playbook": "leak", "case": "big", "per": {"host": "gpu-07"}}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        pytest.param({"matches": []}, "there is no such playbook any more", id="no playbook of this name"),
        pytest.param(
            {"matches": [], "not_matched": [{"playbook": "leak", "why": ["severity is warning"]}]},
            "severity is warning",
            id="it does not match any more",
        ),
        pytest.param({"matches": [{**MATCH, **NAMED}]}, "its case big applies", id="another case"),
        pytest.param(
            {"matches": [{**MATCH, "per": {"host": "gpu-07", "gpu": "0"}}]},
            "its runs are about other values",
            id="other values",
        ),
    ],
)
def test_difference_when_a_run_is_gone_then_it_says_why(changes: dict[str, Any], why: str) -> None:
    found = difference(answer(), answer(**changes))

    (alert,) = found["alerts"]
    assert alert["gone"] == [{"playbook": "leak", "case": "", "per": {"host": "gpu-07"}, "why": [why]}]
    assert alert["new"] == changes["matches"]
    assert found["differs"]


def test_difference_when_a_run_is_new_then_it_is_shown_whole() -> None:
    found = difference(answer(matches=[], not_matched=[{"playbook": "leak", "why": ["x"]}]), answer())

    assert (found["differs"], found["alerts"][0]["new"], found["alerts"][0]["gone"]) == (True, [MATCH], [])


def test_difference_when_a_member_is_no_alert_then_it_says_so_and_the_others_are_compared() -> None:
    bad = [{"index": 1, "problem": "no labels"}]

    found = difference({**answer(), "bad_alerts": bad}, {**answer(), "bad_alerts": bad})
    assert (found["bad_alerts"], found["differs"]) == (bad, False)


def test_difference_when_an_alert_is_resolved_then_its_problem_stays() -> None:
    resolved = answer(matches=[], status="resolved", problem="it is resolved")

    assert difference(resolved, resolved)["alerts"][0]["problem"] == "it is resolved"
