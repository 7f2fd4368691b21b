"""How the playing of scenarios is told: in order, however they come; with a meter where it takes a while."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from remediator.cli import meter, scenario_report
from remediator.cli.scenario_jobs import Answer, Chosen
from remediator.cli.scenario_report import Asked, Done, is_unplayable
from remediator.core.event import Event, EventType, RecordedEvent
from remediator.core.scenario import BEGINS, Scenario, TestFile
from remediator.engine.playtest import Result


def a_file(name: str, n: int) -> TestFile:
    scenarios = tuple(Scenario(name=f"{name} {number}", line=number, story=(), expect=()) for number in range(n))
    return TestFile(file=f"{name}.test.yaml", paths=(), alerts={}, scenarios=scenarios)


ALL = Asked(paths=())
CHOSEN = [Chosen(file=a_file("a", 2), places=(0, 1)), Chosen(file=a_file("b", 2), places=(1,))]


def answer(number: int, place: int, problem: str = "") -> Answer:
    file, at = CHOSEN[number].file, CHOSEN[number].places[place]
    return number, place, Result(file=file, scenario=file.scenarios[at], problem=problem, duration_s=0.25)


def tell(monkeypatch: pytest.MonkeyPatch, answers: Sequence[Answer], asked: Asked = ALL) -> tuple[list[str], list[int]]:
    """Names of the results, and the jobs that were asked for."""
    seen: list[int] = []

    def play(chosen: Sequence[Chosen], jobs: int) -> Iterator[Answer]:
        seen.append(jobs)
        yield from answers

    monkeypatch.setattr(scenario_report, "play", play)
    return [result.scenario.name for result in scenario_report._play_and_tell(CHOSEN, asked)], seen


def test_telling_when_the_last_comes_first_then_is_in_the_order_of_files(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names, jobs = tell(monkeypatch, [answer(1, 0), answer(0, 1), answer(0, 0)], Asked(paths=(), jobs=3))

    lines = capsys.readouterr().out.splitlines()
    assert (names, jobs) == (["a 0", "a 1", "b 1"], [3])
    assert lines[:2] == ["ok    a.test.yaml  2 scenarios  0.50 s", "ok    b.test.yaml  1 scenario  0.25 s"]
    assert lines[2].startswith("3 passed in ")


def test_telling_when_the_first_failure_is_the_end_then_the_rest_is_not_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = [answer(0, 0, "a.test.yaml:0: it does not end"), answer(0, 1), answer(1, 0)]

    names, _ = tell(monkeypatch, answers, Asked(paths=(), is_fail_fast=True))

    assert names == ["a 0"]
    assert capsys.readouterr().out.splitlines()[-1].startswith("1 failed, 2 not played in ")


def test_telling_when_a_file_cannot_be_played_then_says_why_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tell(monkeypatch, [answer(0, place, "leak.yaml:3:1: no such key\nleak.yaml:4:1: nor this") for place in (0, 1)])

    assert capsys.readouterr().out.splitlines()[:4] == [
        "FAIL  a.test.yaml  2 of 2 scenarios failed  0.50 s",
        "leak.yaml:3:1: no such key",
        "leak.yaml:4:1: nor this",
        "",
    ]


@pytest.mark.parametrize(
    ("is_terminal", "patience_s", "is_shown"),
    [
        pytest.param(True, 0.0, True, id="on a terminal, when it takes a while"),
        pytest.param(True, 60.0, False, id="on a terminal, when it is quick"),
        pytest.param(False, 0.0, False, id="in a pipe"),
    ],
)
def test_meter_when_scenarios_are_played_then_is_shown_to_people_who_wait(
    is_terminal: bool,
    patience_s: float,
    is_shown: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    monkeypatch.setattr(meter, "PATIENCE_S", patience_s)

    tell(monkeypatch, [answer(0, 0), answer(0, 1), answer(1, 0)])

    assert ("of 3 scenarios" in capsys.readouterr().out) is is_shown


def test_exit_code_when_nothing_was_played_then_is_no_success() -> None:
    assert Done(files=()).exit_code == 2


@pytest.mark.parametrize(
    ("problem", "has_begun", "expected"),
    [
        pytest.param("leak.yaml:3:1: no such key", False, True, id="its file is wrong"),
        pytest.param("a.test.yaml:0: nobody is asked", True, False, id="it broke off in its middle"),
        pytest.param("", False, False, id="it was played"),
    ],
)
def test_result_when_it_was_not_even_begun_then_is_unplayable(problem: str, has_begun: bool, expected: bool) -> None:
    started = RecordedEvent(seq=1, prev_hash="", hash="", event=Event(type=EventType.ENGINE_STARTED, at=BEGINS))

    result = replace(answer(0, 0, problem)[2], events=(started,) if has_begun else ())

    assert is_unplayable(result) is expected
