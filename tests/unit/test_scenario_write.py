"""Test files that are written: what is read back is what was written."""

from __future__ import annotations

import json
from dataclasses import is_dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from remediator.actions import LOOKING
from remediator.core.scenario import (
    Expectation,
    Kind,
    Nothing,
    Says,
    Scenario,
    ScenarioAlert,
    Sees,
    StoryEvent,
    TestFile,
    Word,
    World,
)
from remediator.loading.document import read_documents
from remediator.loading.scenario_write import MINUTE, SECOND, WIDTH, at_text, flow, write_test
from remediator.loading.scenarios import load_tests

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted([*(ROOT / "playbooks").glob("*.test.yaml"), *(ROOT / "deploy").rglob("*.test.yaml")])


def without_places(value: Any) -> Any:
    """The value without lines and file names; what is only compared within its moment in one order."""
    if is_dataclass(value) and not isinstance(value, type):
        kept = {name: getattr(value, name) for name in value.__dataclass_fields__ if name not in ("line", "file")}
        return {name: without_places(item) for name, item in kept.items()}
    if isinstance(value, dict):
        return {name: without_places(item) for name, item in value.items()}
    return [without_places(item) for item in value] if isinstance(value, list | tuple) else value


def read(path: Path) -> TestFile:
    loaded = load_tests([path], actions=LOOKING)
    assert [problem.located() for problem in loaded.problems] == []
    return loaded.files[0]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_shipped_tests_when_written_and_read_then_are_the_same_but_for_their_words(path: Path, tmp_path: Path) -> None:
    # What is written tells all of an act and nothing of a text: a recording is made so.
    def plain(file: TestFile) -> TestFile:
        kept = ("target", "params", "attempts", "outcome", "about", "reason")
        scenarios = []
        for one in file.scenarios:
            expect = [
                replace(wanted, details={key: wanted.details[key] for key in kept if wanted.details.get(key)})
                for wanted in one.expect
            ]
            scenarios.append(replace(one, expect=tuple(expect)))
        return replace(file, scenarios=tuple(scenarios), paths=tuple(one.resolve() for one in file.paths))

    before = plain(read(path))
    written = tmp_path / "written.test.yaml"
    written.write_text(write_test(before, tmp_path))

    after = plain(read(written))

    for one, other in zip(before.scenarios, after.scenarios, strict=True):
        assert without_places(one) == without_places(other)
    assert without_places(before) == without_places(after)


HOSTILE = [
    "",
    "0",
    "yes",
    "null",
    "~",
    "a: b",
    "a #b",
    "- a",
    "{a}",
    "a,b",
    "'",
    '"',
    "\\",
    "é",
    "\n",
    "\u2028",
    "\x00",
]
TEXTS = st.one_of(st.sampled_from(HOSTILE), st.text(st.characters(codec="utf-8"), max_size=30))


@settings(max_examples=200)
@given(st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), TEXTS, min_size=1, max_size=6))
def test_labels_when_written_then_are_the_same_text_to_any_reader(labels: dict[str, str]) -> None:
    alert = ScenarioAlert(name="a", labels=labels, annotations=labels)
    file = TestFile(file="x", paths=(), alerts={"a": alert}, scenarios=())

    text = write_test(file, Path())

    assert YAML(typ="safe", pure=True).load(text)["alerts"]["a"] == {"labels": labels, "annotations": labels}


def test_a_file_when_written_then_no_line_that_can_be_broken_is_long() -> None:
    labels = {f"label_{n}": f"a value of some length {n}" for n in range(20)}
    story = StoryEvent(
        at=timedelta(minutes=1),
        line=0,
        what=Says(word=Word.FIRES, alerts=("leak",)),
        sees=tuple(Sees(name=f"a_condition_{n}", values=Nothing.AWAY) for n in range(8)),
    )
    expected = Expectation(
        at=timedelta(0),
        within=timedelta(minutes=1),
        kind=Kind.DOES,
        value="docker.restart",
        details={"target": "docker:" + "x" * 70, "params": {"stop_timeout": "5m"}},
    )
    file = TestFile(
        file="x",
        paths=tuple(Path(f"/folder/playbook-{n}.yaml") for n in range(8)),
        alerts={"leak": ScenarioAlert(name="leak", labels=labels)},
        scenarios=(Scenario(name="long", line=0, story=(story,), expect=(expected,)),),
        world=World(docker={f"gpu-{n:03}": {"trainer-0": {}} for n in range(10)}),
    )

    text = write_test(file, Path("/folder"), ["A comment. " * 30])

    assert max(len(line) for line in text.splitlines()) <= WIDTH
    assert json.loads(json.dumps(YAML(typ="safe").load(text)["playbooks"])) == [f"playbook-{n}.yaml" for n in range(8)]


# -- one value, one time -----------------------------------------------------------------------------------------------


def read_flow(text: str) -> Any:
    """A line as our own loader reads it."""
    documents, problems = read_documents("x.yaml", f"- {text}\n".encode())
    assert [problem.located() for problem in problems] == []
    return documents[0].root.plain()[0]


@pytest.mark.parametrize(
    ("seconds", "within", "text"),
    [
        pytest.param(0, MINUTE, "0m", id="the first minute"),
        pytest.param(0, SECOND, "0s", id="the first second"),
        pytest.param(780, MINUTE, "13m", id="a minute"),
        pytest.param(802.9, MINUTE, "13m", id="any second of it"),
        pytest.param(802.9, SECOND, "13m22s", id="a second"),
        pytest.param(780, SECOND, "13m0s", id="its first second is no minute"),
        pytest.param(7200, MINUTE, "2h", id="an hour"),
        pytest.param(7200, SECOND, "2h0s", id="its first second"),
    ],
)
def test_time_when_written_then_says_whether_a_minute_or_a_second_is_meant(
    seconds: float, within: timedelta, text: str
) -> None:
    assert at_text(timedelta(seconds=seconds), within) == text


def test_second_when_an_expectation_means_it_then_is_written_as_one(tmp_path: Path) -> None:
    expected = Expectation(at=timedelta(minutes=13), within=SECOND, kind=Kind.ENDS, value="succeeded")
    scenario = Scenario(name="x", line=0, story=(), expect=(expected,))

    text = write_test(TestFile(file="x", paths=(), alerts={}, scenarios=(scenario,)), tmp_path)

    assert "{at: 13m0s, ends: succeeded}" in text


@pytest.mark.parametrize(
    "text",
    ["", "true", "null", "7", "1.5", "0x10", "~", "a: b", "a #b", "x]y", "- a", "docker:gpu-07/a", "ü", "\x1b[31m"],
)
def test_text_when_written_then_is_read_as_it_was(text: str) -> None:
    assert read_flow(f"{{a: {flow(text)}}}") == {"a": text}


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_text_when_it_is_any_then_is_read_as_it_was_and_is_printable(text: str) -> None:
    assert flow(text).isprintable() or not text.isascii()
    assert read_flow(f"{{a: [{flow(text)}]}}") == {"a": [text]}


def test_map_when_written_then_is_read_as_it_was() -> None:
    value = {"signal": "SIGUSR1", "n": 7, "is_so": True, "to": ["a", "b, c"], "odd key: ": {}}

    assert read_flow(flow(value)) == value
