"""What no scenario reached: which lines count, and what in a log shows that one was reached."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from remediator.core.event import Event, EventType
from remediator.engine.coverage import NEVER, Coverage, PlaceKind, measure, places_of
from remediator.loading.document import Document, read_documents

T0 = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
FILE = "playbooks/leak.yaml"
PLAYBOOK = """\
playbook: leak
match: [alertname = Leak]
hold: 10m
guard:
  cooldown: 2h
  max_runs: {count: 2, per: 24h}
  tell_after: 1h
  max_targets: {count: 2, per: 1h}
  require:
    - {name: exporter_up, query: up, equals: 1}
    - {query: held, above: 1}
approval: {ask: [oncall]}
ladder: {within: 6h}
steps:
  - {rung: 1, name: signal, if: annotations.signal != "", action: docker.signal, verify: [{query: age, below: 1}]}
  - {rung: 2, action: docker.restart, approval: {ask: [oncall]}, undo: {when: resolved}}
verify:
  - {name: ratio, query: ratio, below: 1}
  - {alert: resolved, within: 1h}
undo: {after: 1h}
resolved:
  - {action: notify.send}
"""
CASES = """\
playbook: xid
match: [alertname = Xid]
guard: {cooldown: 1h, max_runs: {count: 1, per: 1h}}
steps: [{action: noop}]
cases:
  - {name: follows, match: [code = 1], ignore: another has it}
  - name: own_guard
    match: [code = 2]
    guard: {cooldown: 2h}
  - name: off
    match: [code = 3]
    mode: disabled
  - name: seen
    match: [code = 4]
    mode: observe
  - name: rest
"""
POLICY = """\
policy: site
protect:
  - namespace = prod
  - host =~ "login-.*"
require_label: managed=true
max_disruptive_acts: {count: 2, per: 1h}
max_concurrent_runs: 2
breaker: {percent: 20, of: gpus, within: 1h}
mode: enforce
"""


def document(text: str) -> Document:
    documents, problems = read_documents(FILE, text.encode())
    assert problems == []
    (only,) = documents
    return only


def event(kind: EventType, run_id: str = "run", playbook: str = "leak", **data: Any) -> Event:
    return Event(type=kind, at=T0, run_id=run_id, playbook=playbook, data=data)


def planned(case: str = "", playbook: str = "leak") -> Event:
    return event(EventType.PLAN_MADE, playbook=playbook, plan={"case": case})


def verdict(word: str = "wait", *against: str, asks: bool = False, rung: int = 0, detail: str = "") -> Event:
    """A verdict in which the rules named in ``against`` are not content."""
    answers = [{"rule": "pause", "word": "allow", "detail": ""}]
    answers += [{"rule": rule, "word": word, "detail": detail} for rule in against]
    reasons = answers[1:]
    return event(EventType.VERDICT_GIVEN, word=word, asks=asks, rung=rung, answers=answers, reasons=reasons)


def ended(reason: str, detail: str = "") -> Event:
    return event(EventType.RUN_FINISHED, reason=reason, detail=detail)


def attempt(step: str) -> Event:
    return event(EventType.ATTEMPT_STARTED, step=step)


def covered(text: str, *events: Event) -> Coverage:
    return measure({FILE: [document(text)]}, [((FILE,), events)])


def reached(text: str, *events: Event) -> list[str]:
    """What of a file the log shows, beside what merely a plan shows."""
    coverage = covered(text, *events)
    always = {"the playbook", "case rest"}
    return [place.what for place in coverage.places if place not in coverage.missed and place.what not in always]


def test_places_when_a_playbook_is_read_then_each_line_that_can_do_something_is_one() -> None:
    places = covered(PLAYBOOK).places

    assert [(place.line, place.what) for place in places] == [
        (1, "the playbook"),
        (3, "hold"),
        (5, "guard.cooldown"),
        (6, "guard.max_runs"),
        (7, "guard.tell_after"),
        (8, "guard.max_targets"),
        (10, "guard.require exporter_up"),
        (11, "guard.require require_2"),
        (12, "approval"),
        (15, "rung 1"),
        (15, "step signal"),
        (15, "if of step signal"),
        (15, "verify verify_1 of step signal"),
        (16, "rung 2"),
        (16, "step step_2"),
        (16, "approval of step step_2"),
        (16, "undo of step step_2"),
        (18, "verify ratio"),
        (19, "verify alert"),
        (20, "undo"),
        (22, "resolved step step_1"),
    ]
    assert {(place.of, place.file) for place in places} == {("playbook leak", FILE)}
    assert {place.kind for place in places} | {PlaceKind.POLICY} == set(PlaceKind) == set(NEVER)


def test_places_when_a_policy_is_read_then_each_limit_is_one() -> None:
    assert [(place.line, place.what, place.of) for place in covered(POLICY).places] == [
        (3, "protect namespace = prod", "policy site"),
        (4, 'protect host =~ "login-.*"', "policy site"),
        (5, "require_label managed=true", "policy site"),
        (6, "max_disruptive_acts", "policy site"),
        (7, "max_concurrent_runs", "policy site"),
        (8, "breaker", "policy site"),
    ]


def test_places_when_a_playbook_has_cases_then_what_stands_above_them_is_there_once() -> None:
    assert [(place.line, place.what) for place in covered(CASES).places] == [
        (3, "guard.cooldown"),
        (3, "guard.max_runs"),
        (4, "step step_1"),
        (6, "case follows"),
        (7, "case own_guard"),
        (9, "guard.cooldown"),
        (13, "case seen"),
        (16, "case rest"),
    ]


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("hold: 0s", id="no hold"),
        pytest.param("guard: {cooldown: 0s}", id="no cooldown"),
        pytest.param("guard: {cooldown: soon}", id="no time at all"),
        pytest.param("undo: {when: never}", id="what is never taken back"),
        pytest.param("escalate: {to: [oncall]}", id="who is told"),
        pytest.param("steps: 7", id="what is no list"),
    ],
)
def test_places_when_a_line_can_hold_nothing_back_then_it_is_none(line: str) -> None:
    assert [place.what for place in covered(f"playbook: x\n{line}\n").places] == ["the playbook"]


@pytest.mark.parametrize(
    ("events", "what"),
    [
        pytest.param([], [], id="a plan alone shows that an alert came"),
        pytest.param([ended("resolved")], ["hold"], id="it ended before its turn: the hold kept it from acting"),
        pytest.param([verdict("wait", "pause"), ended("resolved")], [], id="it ended after its turn"),
        pytest.param(
            [event(EventType.TURN_WAITED, waits_for=["turn:silenced"]), ended("resolved")],
            [],
            id="… or while it waited",
        ),
        pytest.param([ended("cancelled_by_person")], [], id="a person ended it in its hold"),
        pytest.param([verdict("wait", "cooldown")], ["guard.cooldown"], id="a cooldown"),
        pytest.param([verdict("wait", "max_runs")], ["guard.max_runs"], id="a limit of runs"),
        pytest.param([verdict("refuse", "max_targets")], ["guard.max_targets"], id="a limit of targets"),
        pytest.param(
            [verdict("wait", "require")], ["guard.require exporter_up"], id="the first condition that must hold"
        ),
        pytest.param([attempt("message.waiting")], ["guard.tell_after"], id="people were told of a wait"),
        pytest.param([attempt("message.escalate")], [], id="people were told of something else"),
        pytest.param([event(EventType.APPROVAL_ASKED, key="rung.1")], ["approval"], id="people were asked for a rung"),
        pytest.param(
            [event(EventType.APPROVAL_ASKED, key="steps.step_2")],
            ["approval of step step_2"],
            id="people were asked for a step",
        ),
        pytest.param([verdict("allow", rung=2)], ["rung 2"], id="a rung was begun"),
        pytest.param([verdict("allow", rung=2, asks=True)], [], id="a rung was only asked for"),
        pytest.param([attempt("steps.signal")], ["step signal"], id="a step was tried"),
        pytest.param([attempt("resolved.step_1")], ["resolved step step_1"], id="a step for when it is over was tried"),
        pytest.param(
            [event(EventType.STEP_SKIPPED, step="steps.signal", reason="condition")],
            ["if of step signal"],
            id="an if was false",
        ),
        pytest.param(
            [event(EventType.STEP_SKIPPED, step="steps.signal", reason="already_so")], [], id="a step had nothing to do"
        ),
        pytest.param(
            [event(EventType.VERIFICATION_LOOKED, step="", checks=[{"seen": ""}, {"seen": "met"}])],
            ["verify alert"],
            id="one of two checks was looked at",
        ),
        pytest.param(
            [event(EventType.VERIFICATION_LOOKED, step="steps.signal", checks=[{"seen": "no_value"}])],
            ["verify verify_1 of step signal"],
            id="a step's check was looked at",
        ),
        pytest.param(
            [event(EventType.UNDO_STARTED, step="steps.step_2")],
            ["undo of step step_2", "undo"],
            id="a step was taken back",
        ),
    ],
)
def test_playbook_when_a_log_shows_something_then_that_is_reached_and_nothing_else(
    events: list[Event], what: list[str]
) -> None:
    assert reached(PLAYBOOK, planned(), *events) == what
    assert reached(PLAYBOOK) == []


def test_require_when_only_the_second_condition_failed_then_the_first_is_missed() -> None:
    answers = [{"rule": "require", "word": word, "detail": ""} for word in ("allow", "refuse")]
    judged = event(EventType.VERDICT_GIVEN, word="refuse", asks=False, rung=0, answers=answers, reasons=answers[1:])

    assert reached(PLAYBOOK, planned(), judged) == ["guard.require require_2"]


@pytest.mark.parametrize(
    ("events", "what"),
    [
        pytest.param(
            [verdict("refuse", "protect", detail="docker:a/b is protected by policy line 'host =~ \"login-.*\"'")],
            ['protect host =~ "login-.*"'],
            id="a line refused",
        ),
        pytest.param(
            [verdict("refuse", "protect", detail="docker:a/b is protected by its label remediator.io/ignore=true")],
            [],
            id="a built-in line refused",
        ),
        pytest.param(
            [ended("protected", "docker:a/b is protected by policy line 'namespace = prod'")],
            ["protect namespace = prod"],
            id="a line refused right before the act",
        ),
        pytest.param(
            [verdict("refuse", "require_label", detail="docker:a/b does not bear 'managed=true', which the policy")],
            ["require_label managed=true"],
            id="a label was missing",
        ),
        pytest.param([verdict("wait", "max_disruptive_acts")], ["max_disruptive_acts"], id="too many acts"),
        pytest.param([verdict("wait", "max_concurrent_runs")], ["max_concurrent_runs"], id="too many runs"),
        pytest.param([event(EventType.BREAKER_TRIPPED, breaker="site")], ["breaker"], id="it tripped"),
        pytest.param([event(EventType.BREAKER_TRIPPED, breaker="other")], [], id="another policy's breaker tripped"),
    ],
)
def test_policy_when_it_held_something_back_then_that_is_reached(events: list[Event], what: list[str]) -> None:
    assert reached(POLICY, planned(), *events) == what


def test_case_when_one_that_inherits_a_limit_was_held_back_then_the_limit_is_reached() -> None:
    def xid(case: str, *against: str) -> list[str]:
        return reached(CASES, planned(case, "xid"), verdict("wait", *against))

    assert xid("rest", "cooldown") == ["guard.cooldown"]
    assert xid("own_guard", "cooldown") == ["case own_guard", "guard.cooldown"]
    above, own = (covered(CASES, planned(case, "xid"), verdict("wait", "cooldown")) for case in ("rest", "own_guard"))
    assert [place.line for place in above.missed if place.what == "guard.cooldown"] == [9]
    assert [place.line for place in own.missed if place.what == "guard.cooldown"] == [3]


def test_case_when_its_alerts_are_ignored_then_it_is_reached() -> None:
    ignored = event(EventType.ALERT_IGNORED, run_id="", playbook="xid", case="follows", detail="another has it")

    assert reached(CASES, ignored) == ["case follows"]


def test_measure_when_two_files_have_a_playbook_of_one_name_then_each_is_reached_by_its_own_scenarios() -> None:
    text = "playbook: leak\nmatch: [a = b]\n"
    (one,), (other,) = (read_documents(file, text.encode())[0] for file in ("one.yaml", "other.yaml"))

    coverage = measure({"one.yaml": [one], "other.yaml": [other]}, [(("one.yaml",), [planned()])])

    assert [place.file for place in coverage.missed] == ["other.yaml"]
    assert coverage.pct == 50.0


def test_measure_when_there_is_nothing_to_reach_then_all_is_reached() -> None:
    assert measure({}, []).pct == 100.0


def test_places_when_two_cases_share_a_line_then_any_of_them_reaches_it() -> None:
    (place,) = [place for place in places_of(document(CASES)) if place.what == "step step_1"]

    assert {mark[1] for mark in places_of(document(CASES))[place]} == {"own_guard", "rest"}
