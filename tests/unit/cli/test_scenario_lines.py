"""A happening as the line that expects it: whatever it holds, YAML reads it back as it was."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remediator.cli.scenario_lines import at_text, expectation_line, flow
from remediator.core.scenario import Happening, Kind
from remediator.loading.document import read_documents

MINUTE, SECOND = timedelta(minutes=1), timedelta(seconds=1)
TARGET = "docker:gpu-07/trainer-0"


def read(text: str) -> Any:
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


@pytest.mark.parametrize(
    ("kind", "value", "details", "line"),
    [
        pytest.param(
            Kind.DOES,
            "docker.restart",
            {"target": TARGET, "params": {"host": "gpu-07"}, "attempts": 1, "outcome": "succeeded", "playbook": "leak"},
            f"{{at: 13m, does: docker.restart, target: {TARGET}}}",
            id="an act as it is taken to be",
        ),
        pytest.param(
            Kind.DOES,
            "docker.restart",
            {"target": TARGET, "attempts": 3, "outcome": "failed"},
            f"{{at: 13m, does: docker.restart, target: {TARGET}, attempts: 3, outcome: failed}}",
            id="an act that went otherwise",
        ),
        pytest.param(
            Kind.UNDOES,
            "docker.limit",
            {"target": TARGET, "attempts": 2, "outcome": "succeeded"},
            f"{{at: 13m, undoes: docker.limit, target: {TARGET}, attempts: 2}}",
            id="an undo",
        ),
        pytest.param(
            Kind.ENDS,
            "failed",
            {"reason": "step_failed", "says": "step restart failed"},
            "{at: 13m, ends: failed, reason: step_failed}",
            id="an end with a reason",
        ),
        pytest.param(Kind.ENDS, "succeeded", {"reason": "none"}, "{at: 13m, ends: succeeded}", id="an end without"),
        pytest.param(Kind.RUNG, "2", {}, "{at: 13m, rung: 2}", id="a rung is a number"),
        pytest.param(Kind.WAITS, "cooldown", {"playbook": "leak"}, "{at: 13m, waits: cooldown}", id="a wait"),
        pytest.param(
            Kind.TELLS,
            "oncall",
            {"about": "escalate", "says": "it failed"},
            "{at: 13m, tells: oncall, about: escalate}",
            id="a message",
        ),
    ],
)
def test_expectation_when_made_of_what_happened_then_says_what_tells_it_from_others(
    kind: Kind, value: str, details: dict[str, Any], line: str
) -> None:
    assert expectation_line(Happening(at=timedelta(minutes=13), kind=kind, value=value, details=details)) == line


@pytest.mark.parametrize(
    "text",
    ["", "true", "null", "7", "1.5", "0x10", "~", "a: b", "a #b", "x]y", "- a", "docker:gpu-07/a", "ü", "\x1b[31m"],
)
def test_text_when_written_then_is_read_as_it_was(text: str) -> None:
    assert read(f"{{a: {flow(text)}}}") == {"a": text}


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_text_when_it_is_any_then_is_read_as_it_was_and_is_printable(text: str) -> None:
    assert flow(text).isprintable() or not text.isascii()
    assert read(f"{{a: [{flow(text)}]}}") == {"a": [text]}


def test_map_when_written_then_is_read_as_it_was() -> None:
    value = {"signal": "SIGUSR1", "n": 7, "is_so": True, "to": ["a", "b, c"], "odd key: ": {}}

    assert read(flow(value)) == value
