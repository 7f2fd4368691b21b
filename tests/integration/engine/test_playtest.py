"""Every event of a story and every expectation, on the real engine: ``tests/data/stories``.

What is expected there happens, and nothing else; what is bent in it fails, and says what is bent; what is left out of a
story is missed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import structlog

from remediator.actions import LOOKING
from remediator.app import story_workshop
from remediator.core.event import EventType
from remediator.core.outcome import RunOutcome
from remediator.core.scenario import (
    ACTS,
    Deed,
    Expectation,
    Fails,
    Kind,
    Line,
    Person,
    Posts,
    Restarts,
    Says,
    Scenario,
    Sees,
    StoryEvent,
    TestFile,
    Word,
    World,
    compare,
)
from remediator.engine import playtest
from remediator.engine.playtest import Result, play_file
from remediator.loading.scenario_format import ALERT_WORDS, CONTAINER_WORDS, EXPECTED, HOST_WORDS
from remediator.loading.scenarios import load_tests

STORIES = Path("tests/data/stories")
LOADED = load_tests([STORIES], actions=LOOKING)
ROWS = [
    pytest.param(file, scenario, id=f"{Path(file.file).name.partition('.')[0]}: {scenario.name}")
    for file in LOADED.files
    for scenario in file.scenarios
]

Played = Mapping[tuple[str, str], Result]


@pytest.fixture(scope="module", autouse=True)
def _without_its_log() -> Iterator[None]:
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**before)


def play(file: TestFile, scenarios: Sequence[Scenario], folder: Path) -> list[Result]:
    return list(play_file(file, scenarios, story_workshop(), folder))


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """Each scenario, played once."""
    return {
        (file.file, result.scenario.name): result
        for file in LOADED.files
        for result in play(file, file.scenarios, tmp_path_factory.mktemp("stories"))
    }


def shown(lines: Iterable[Line]) -> list[str]:
    return [f"expected {line.expected}; happened {line.happened}; {line.differences}" for line in lines]


def test_stories_when_they_are_read_then_nothing_is_wrong_with_them() -> None:
    assert [problem.located() for problem in LOADED.problems] == []


@pytest.mark.parametrize(("file", "scenario"), ROWS)
def test_scenario_when_it_is_played_then_what_is_expected_happens_and_nothing_else(
    played: Played, file: TestFile, scenario: Scenario
) -> None:
    result = played[file.file, scenario.name]
    assert (result.problem, shown(line for line in result.lines if not line.is_ok)) == ("", [])
    assert len(result.lines) == len(scenario.expect)
    assert result.is_ok


def test_scenario_when_it_is_played_again_then_the_same_happens_at_the_same_times(
    played: Played, tmp_path: Path
) -> None:
    file = LOADED.files[0]
    for again in play(file, file.scenarios, tmp_path):
        before = played[file.file, again.scenario.name]
        assert again.lines == before.lines
        assert [(one.event.at, one.event.type) for one in again.events] == [
            (one.event.at, one.event.type) for one in before.events
        ]


WAITS = (
    "what is paused for ever waits, tells, and ends when its alert expires",
    "a latched fault that may not be acted on for twelve hours is given up",
    "what is not safe to take back is kept for ever",
    "what becomes safe to take back goes then",
    "a silenced alert is waited for",
    "an Alertmanager that does not answer is waited for",
    "what every answer lacks for five minutes is over",
    "a run too many of one subject waits for a day",
    "a host that is away is waited for",
)
"""Scenarios in which the engine asks for hours whether something has changed."""


@pytest.mark.parametrize(("file", "scenario"), [row for row in ROWS if row.values[1].name in WAITS])  # type: ignore[union-attr]
def test_story_when_the_engine_asks_as_often_as_it_does_in_production_then_the_same_happens(
    played: Played, file: TestFile, scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(playtest, "QUIET", timedelta(hours=13))
    (result,) = play(file, [scenario], tmp_path)
    assert result.lines == played[file.file, scenario.name].lines


# -- what is bent fails


OTHER_VALUES = {
    Kind.DOES: "noop",
    Kind.UNDOES: "noop",
    Kind.RUNG: "9",
    Kind.WAITS: "inhibited_by_nobody",
    Kind.REFUSES: "by_nobody",
    Kind.ASKS: "nobody",
    Kind.TELLS: "nobody",
    Kind.ENDS: "superseded",
}


def word_of(expected: Expectation) -> str:
    """How the difference begins that says what happened instead of another value."""
    is_refused = expected.kind is Kind.ENDS and expected.value == RunOutcome.REFUSED
    return "refuses " if is_refused else f"{expected.kind.value} {expected.value}"


def bends(expect: Sequence[Expectation]) -> Iterator[tuple[str, list[Expectation], str]]:
    """What is bent, the expectations bent so, and what must be said of it: the beginning of a difference, or "more" for
    an unexpected happening, "less" for one that did not come."""
    for n, one in enumerate(expect):

        def bent(n: int = n, **changes: Any) -> list[Expectation]:
            return [*expect[:n], replace(expect[n], **changes), *expect[n + 1 :]]

        yield f"{n} left out", [*expect[:n], *expect[n + 1 :]], "more"
        yield f"{n} twice", [*expect[: n + 1], *expect[n:]], "less"
        yield f"{n} earlier", bent(at=one.at - one.within), "at another time"
        yield f"{n} later", bent(at=one.at + one.within), "at another time"
        yield f"{n} other {one.kind.value}", bent(value=OTHER_VALUES[one.kind]), word_of(one)
        for key, value in one.details.items():
            other = {**value, "no": "such"} if isinstance(value, Mapping) else 7 if key == "attempts" else "no such"
            yield f"{n} other {key}", bent(details={**one.details, key: other}), f"{key}: "
        if one.kind in ACTS:
            yield f"{n} more attempts", bent(details={**one.details, "attempts": 9}), "attempts: "
            yield f"{n} other outcome", bent(details={**one.details, "outcome": "no such"}), "outcome: "
        for key in ("playbook", "case", "alert"):
            yield f"{n} of another {key}", bent(details={**one.details, key: "no such"}), f"{key}: "


def is_said(lines: Sequence[Line], what: str) -> bool:
    match what:
        case "more":
            return [line.expected is None for line in lines].count(True) == 1
        case "less":
            return [line.happened is None for line in lines].count(True) == 1
        case _:
            return any(one.startswith(what) for line in lines for one in line.differences)


@pytest.mark.parametrize(("file", "scenario"), ROWS)
def test_expectations_when_one_is_bent_then_they_fail_and_say_what_is_bent(
    played: Played, file: TestFile, scenario: Scenario
) -> None:
    happened = [line.happened for line in played[file.file, scenario.name].lines if line.happened is not None]
    unsaid = [
        name
        for name, expect, what in bends(scenario.expect)
        for lines in [compare(expect, happened, scenario.never)]
        if all(line.is_ok for line in lines) or not is_said(lines, what)
    ]
    assert unsaid == []


@pytest.mark.parametrize(("file", "scenario"), ROWS)
def test_acts_when_two_are_expected_in_the_other_order_then_they_fail(
    played: Played, file: TestFile, scenario: Scenario
) -> None:
    happened = [line.happened for line in played[file.file, scenario.name].lines if line.happened is not None]
    expect = list(scenario.expect)
    places = [n for n, one in enumerate(expect) if one.kind in ACTS]
    for n, m in pairwise(places):
        if expect[n].at == expect[m].at and (expect[n].value, expect[n].details) != (
            expect[m].value,
            expect[m].details,
        ):
            swapped = [*expect]
            swapped[n], swapped[m] = expect[m], expect[n]
            assert not all(line.is_ok for line in compare(swapped, happened))


@pytest.mark.parametrize(("file", "scenario"), ROWS)
def test_never_when_it_names_what_was_done_then_it_fails(played: Played, file: TestFile, scenario: Scenario) -> None:
    happened = [line.happened for line in played[file.file, scenario.name].lines if line.happened is not None]
    for name in {one.value for one in happened if one.kind in ACTS}:
        forbidden = [line for line in compare(scenario.expect, happened, [name]) if line.forbidden]
        assert forbidden
        assert {line.happened.value for line in forbidden if line.happened is not None} == {name}
        assert not any(line.is_ok for line in forbidden)


# -- what is left out of a story is missed


AS_IF_NOTHING_WAS = {
    "a container that is made anew in the hold is the one that is restarted",
    "a container that is made anew while people think is looked at anew",
}
"""Scenarios in which the world changes, and nothing comes of it."""


def is_without_effect(event: StoryEvent) -> bool:
    """Whether the point of an event may be that nothing comes of it."""
    match event.what:
        case Fails(how="timeout_after_effect"):
            return True  # that it is met is asked of every failure
        case Says(word=Word.REPEATS | Word.RESOLVES):
            return True
        case Restarts():
            return True
        case World(alertmanager=dict() as said) if "gone" in said.values():
            return True
        case None:
            return not event.sees
        case _:
            return False


@pytest.mark.parametrize(("file", "scenario"), ROWS)
def test_story_when_an_event_is_left_out_then_not_all_happens_as_expected(
    file: TestFile, scenario: Scenario, tmp_path: Path
) -> None:
    story = scenario.story
    is_world_free = scenario.name in AS_IF_NOTHING_WAS
    dropped = [
        n
        for n, event in enumerate(story)
        if not is_without_effect(event) and not (is_world_free and isinstance(event.what, World))
    ]
    shorter = [replace(scenario, story=(*story[:n], *story[n + 1 :])) for n in dropped]
    ok = [n for n, result in zip(dropped, play(file, shorter, tmp_path), strict=True) if result.is_ok]
    assert [story[n] for n in ok] == []


@pytest.mark.parametrize(("file", "scenario"), ROWS)
def test_story_when_the_engine_is_killed_in_it_then_it_starts_as_often(
    played: Played, file: TestFile, scenario: Scenario
) -> None:
    kinds = [one.event.type for one in played[file.file, scenario.name].events]
    n_kills = sum(isinstance(event.what, Restarts) for event in scenario.story)
    assert kinds.count(EventType.ENGINE_STARTED) == 1 + n_kills


# -- nothing of the format is missing


def whats() -> list[Any]:
    return [event.what for file in LOADED.files for scenario in file.scenarios for event in scenario.story]


def expectations() -> list[Expectation]:
    return [one for file in LOADED.files for scenario in file.scenarios for one in scenario.expect]


def test_stories_have_every_verb_and_what_goes_with_it() -> None:
    said = [what for what in whats() if isinstance(what, Says)]
    assert {what.word for what in said} == {*Word}
    assert all(any(part(what) for what in said) for part in (lambda s: s.late, lambda s: s.copies > 1))
    assert any(what.truncated for what in said)
    assert any(len(what.alerts) > 1 for what in said)
    assert any(isinstance(what, Posts) for what in whats())
    assert {what.how for what in whats() if isinstance(what, Fails)} == {
        "transient",
        "permanent",
        "timeout_after_effect",
        "unknown",
    }
    kills = [what for what in whats() if isinstance(what, Restarts)]
    assert {(bool(kill.during), bool(kill.down)) for kill in kills} == {
        (a, b) for a in (True, False) for b in (True, False)
    }
    people = [what for what in whats() if isinstance(what, Person)]
    assert {person.deed for person in people} == {*Deed}
    assert {person.has_happened for person in people if person.deed is Deed.SETTLES} == {True, False}


def test_stories_have_every_word_of_a_world() -> None:
    worlds = [what for what in whats() if isinstance(what, World)]
    hosts = [host for world in worlds for host in world.docker.values()]
    containers = [one for host in hosts if isinstance(host, Mapping) for one in host.values()]
    assert {host for host in hosts if isinstance(host, str)} == {*HOST_WORDS}
    assert {one for one in containers if isinstance(one, str)} == {*CONTAINER_WORDS}
    keys = {key for file in LOADED.files for host in file.world.docker.values() for one in host.values() for key in one}
    keys |= {key for one in containers if isinstance(one, Mapping) for key in one}
    assert keys == {"status", "labels", "stop_timeout", "cpus"}
    said = [world.alertmanager for world in worlds]
    assert {word for word in said if isinstance(word, str) and word} == {*HOST_WORDS}
    assert {word for one in said if isinstance(one, Mapping) for word in one.values()} == {*ALERT_WORDS}


def test_stories_have_every_expectation_and_all_that_is_said_of_it() -> None:
    used = {(one.kind, key) for one in expectations() for key in one.details}
    wanted = {(kind, key) for kind, keys in EXPECTED.items() for key in keys - {"playbook", "case", "alert"}}
    assert {one.kind for one in expectations()} == {*Kind}
    assert wanted - used == set()
    assert {"playbook", "case", "alert"} <= {key for _, key in used}
    outcomes = {one.value for one in expectations() if one.kind is Kind.ENDS}
    assert outcomes == {outcome.value for outcome in RunOutcome}


# -- stories that cannot be told


def file_of(name: str) -> TestFile:
    return next(file for file in LOADED.files if Path(file.file).name == f"{name}.test.yaml")


def told(file: TestFile, *story: StoryEvent, folder: Path, expect: Sequence[Expectation] = ()) -> Result:
    scenario = Scenario(name="x", line=1, story=story, expect=tuple(expect))
    return play(file, [scenario], folder)[0]


def at(minutes: float, what: Any = None, line: int = 1) -> StoryEvent:
    return StoryEvent(at=timedelta(minutes=minutes), line=line, what=what)


def fires(*alerts: str) -> Says:
    return Says(word=Word.FIRES, alerts=alerts)


def test_story_when_something_is_tried_for_ever_then_that_is_said(tmp_path: Path) -> None:
    away = World(docker={"gpu-07": "away"})
    resolves = Says(word=Word.RESOLVES, alerts=("hot",))
    cool = (Sees(name="temp_c", values=(70.0,)), Sees(name="cool", values=(60.0,)))
    story = (replace(at(0, fires("hot")), sees=cool), at(20, resolves), at(21, away))
    result = told(file_of("ladders"), *story, folder=tmp_path)
    assert result.problem.startswith(f"{file_of('ladders').file}:1: the story does not end: ")
    assert "last: docker.limit docker:gpu-07/trainer-0" in result.problem
    assert not result.is_ok


@pytest.mark.parametrize(
    ("story", "problem"),
    [
        pytest.param(
            [at(0, Fails(action="docker.stop", how="transient"), line=7)],
            ":7: no docker.stop came that could fail",
            id="a failure that nothing meets",
        ),
        pytest.param(
            [
                at(0, Fails(action="docker.restart", how="transient"), line=6),
                at(0, fires("leak")),
                at(0, Fails(action="docker.restart", how="permanent"), line=7),
                at(30, Fails(action="docker.restart", how="permanent"), line=8),
            ],
            ":8: no docker.restart came that could fail",
            id="a failure too many",
        ),
        pytest.param(
            [at(0, Restarts(during="docker.restart"), line=7)],
            ":7: no docker.restart came in whose midst the engine could be killed",
            id="a kill in an act that never comes",
        ),
        pytest.param(
            [
                at(0, Restarts(during="docker.restart"), line=6),
                at(0, Restarts(during="docker.restart"), line=7),
                at(0, fires("leak")),
            ],
            ":7: no docker.restart came in whose midst the engine could be killed",
            id="a kill too many",
        ),
        pytest.param(
            [StoryEvent(at=timedelta(0), line=7, sees=(Sees(name="ratio", values=(1.0,)),))],
            ":1: the engine heard of no alert, so that nothing could happen; write `fires`",
            id="an alert that never comes",
        ),
        pytest.param(
            [at(0, Restarts(down=timedelta(minutes=5))), at(1, fires("leak"), line=7)],
            ":7: the engine is down until 5m after the begin",
            id="a delivery to an engine that is down",
        ),
        pytest.param(
            [at(0, Person(deed=Deed.APPROVES, name="alice"), line=7)],
            ":7: approves: no run asks at this time",
            id="an answer without a question",
        ),
        pytest.param(
            [at(0, fires("leak", "leak_b")), at(1, Person(deed=Deed.CANCELS, name="alice"), line=7)],
            ":7: cancels: 2 runs could be meant (restart); add playbook: or alert:",
            id="one of several",
        ),
        pytest.param(
            [at(0, Person(deed=Deed.RESETS, name="alice", breaker="moon"), line=7)],
            ":7: there is no breaker 'moon' (there are: site)",
            id="a breaker that is not there",
        ),
        pytest.param(
            [at(0, World(docker={"gpu-07": {"moon": "gone"}}), line=7)],
            ":7: there is no container moon on gpu-07 that could be gone",
            id="a container that is not there",
        ),
    ],
)
def test_story_when_it_asks_for_what_cannot_be_then_its_line_is_named(
    tmp_path: Path, story: list[StoryEvent], problem: str
) -> None:
    file = file_of("people")
    result = told(file, *story, folder=tmp_path)
    assert problem in result.problem
    assert not result.is_ok


def test_stories_when_a_playbook_cannot_be_loaded_then_each_says_so(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("playbook: bad\n")
    file = file_of("people")
    results = play(replace(file, paths=(bad,)), file.scenarios, tmp_path)
    assert {result.problem.startswith(f"{bad}:1:") for result in results} == {True}
    assert len(results) == len(file.scenarios)
