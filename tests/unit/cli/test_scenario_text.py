"""How a failed scenario is shown: side by side, by signs and colours, with what to write and the audit trail."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.cells import cell_len

from remediator.cli.scenario_junit import junit_xml
from remediator.cli.scenario_text import failure_text, print_failure, side_by_side, since_text, summary, trail
from remediator.core.event import Event, EventType, RecordedEvent
from remediator.core.scenario import BEGINS, Expectation, Happening, Kind, Scenario, TestFile, compare
from remediator.engine.playtest import Result

FILE = "playbooks/restart-on-leak.test.yaml"
TARGET = "docker:gpu-07/trainer-0"
HOSTILE = "\x1b]0;x\x07\u202e\x00[red]"
WRITTEN_OUT = "\\x1b]0;x\\x07\\u202e\\x00[red]"


def expects(at_s: int, kind: Kind, value: str, line: int = 0, within_s: int = 60, **details: Any) -> Expectation:
    at, within = timedelta(seconds=at_s), timedelta(seconds=within_s)
    return Expectation(at=at, within=within, kind=kind, value=value, details=details, line=line)


def happens(at_s: float, kind: Kind, value: str, **details: Any) -> Happening:
    assumed: Mapping[str, Any] = {"attempts": 1, "outcome": "succeeded"} if kind is Kind.DOES else {}
    return Happening(at=timedelta(seconds=at_s), kind=kind, value=value, details={**assumed, **details})


def event(at_s: float, kind: EventType = EventType.DELIVERY_RECEIVED, **fields: Any) -> RecordedEvent:
    data = fields.pop("data", {"n_firing": 1, "source": "story"})
    one = Event(type=kind, at=BEGINS + timedelta(seconds=at_s), data=data, **fields)
    return RecordedEvent(seq=1, prev_hash="", hash="", event=one)


def played(
    expected: Sequence[Expectation] = (),
    happened: Sequence[Happening] = (),
    *,
    never: tuple[str, ...] = (),
    name: str = "restarts once",
    problem: str = "",
    events: Sequence[RecordedEvent] = (),
) -> Result:
    scenario = Scenario(name=name, line=14, story=(), expect=tuple(expected), never=never)
    file = TestFile(file=FILE, paths=(), alerts={}, scenarios=(scenario,))
    lines = tuple(compare(expected, happened, never))
    return Result(file=file, scenario=scenario, lines=lines, problem=problem, events=tuple(events), duration_s=0.1234)


EXPECTED = [
    expects(600, Kind.DOES, "docker.signal", 21, target=TARGET, params={"signal": "SIGUSR1"}),
    expects(780, Kind.DOES, "docker.restart", 22, target=TARGET, attempts=2),
    expects(1260, Kind.ENDS, "succeeded", 23),
    expects(1260, Kind.TELLS, "ml-platform", 24, says="helped"),
    expects(1320, Kind.ASKS, "oncall", 25),
]
HAPPENED = [
    happens(600, Kind.DOES, "docker.signal", target=TARGET, params={"signal": "SIGTERM", "container": "trainer-0"}),
    happens(782, Kind.DOES, "docker.restart", target=TARGET, attempts=2),
    happens(900, Kind.DOES, "docker.stop", target=TARGET, outcome="failed"),
    happens(1810, Kind.ENDS, "failed", reason="step_failed"),
    happens(1811, Kind.TELLS, "oncall", about="escalate", says=f"leak failed\nit did not {HOSTILE} help"),
]
EVENTS = [
    event(0),
    event(300),
    event(600),
    event(
        782,
        EventType.ATTEMPT_STARTED,
        run_id="abcdef0123456789",
        target=TARGET,
        data={"action": "docker.restart", "step": "steps.restart"},
    ),
    event(3_605, EventType.EPISODE_ENDED, data={"labels": {"alertname": HOSTILE}, "reason": "resolved"}),
]


def test_failure_when_shown_at_80_columns_then_is_side_by_side_with_what_to_write_and_the_trail(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    print_failure(played(EXPECTED, HAPPENED, never=("docker.stop",), events=EVENTS), has_log=True)

    assert capsys.readouterr().out == (
        "playbooks/restart-on-leak.test.yaml:14: failed: restarts once\n"
        "\n"
        "    expected                             │ happened\n"
        "    10m  does docker.signal              │ 10m0s   does docker.signal\n"
        "        target: docker:gpu-07/trainer-0  │     target: docker:gpu-07/trainer-0\n"
        " ~      params: {signal: SIGUSR1}        │     params: {signal: SIGTERM}\n"
        "    13m  does docker.restart             │ 13m2s   does docker.restart\n"
        "        target: docker:gpu-07/trainer-0  │     target: docker:gpu-07/trainer-0\n"
        "        attempts: 2                      │     attempts: 2\n"
        " +                                       │ 15m0s   does docker.stop\n"
        " +                                       │     target: docker:gpu-07/trainer-0\n"
        " +                                       │     outcome: failed\n"
        " +                                       │     never: [docker.stop]\n"
        " ~  21m  ends succeeded                  │ 30m10s  ends failed\n"
        "                                         │     reason: step_failed\n"
        " ~  21m  tells ml-platform               │ 30m11s  tells oncall\n"
        " ~      says: helped                     │     says: leak failed it did not\n"
        " ~                                       │     \\x1b]0;x\\x07\\u202e\\x00[red] help\n"
        "                                         │     about: escalate\n"
        " -  22m  asks oncall                     │\n"
        "    - did not happen   + not expected   ~ happened otherwise\n"
        "\n"
        "  To expect what happened, take out lines 21, 23, 24, 25 and put into `expect`,\n"
        "  by their time:\n"
        f"      - {{at: 10m, does: docker.signal, target: {TARGET}, params: {{signal: SIGTERM}}}}\n"
        "      - {at: 30m, ends: failed, reason: step_failed}\n"
        "      - {at: 30m, tells: oncall, about: escalate}\n"
        "\n"
        "  The audit log:\n"
        "          +0s  delivery_received  1 firing from story\n"
        "      +10m00s                     … 2 more like it\n"
        "      +13m02s  attempt_started    docker.restart docker:gpu-07/trainer-0\n"
        "                                  abcdef01\n"
        "    +1h00m05s  episode_ended      \\x1b]0;x\\x07\\u202e\\x00[red]: resolved\n"
    )


def test_failure_when_the_terminal_is_narrow_or_wide_then_each_line_fits() -> None:
    name = "東京 " * 30
    result = played(EXPECTED, [*HAPPENED, happens(2000, Kind.WAITS, "x" * 90)], events=EVENTS, name=name)
    for width in (60, 80, 120):
        first, *lines = [line for line in failure_text(result, width) if "      - {" not in line.plain]
        assert "\n" not in first.plain  # editors want it whole
        assert max(cell_len(line.plain) for line in lines) <= width


def test_failure_when_nothing_was_expected_then_the_lines_to_paste_are_the_whole_test() -> None:
    text = [line.plain for line in failure_text(played([], HAPPENED[3:4]), 80)]

    assert text[-3:] == [
        "  To expect what happened, write instead of `expect: []`:",
        "    expect:",
        "      - {at: 30m, ends: failed, reason: step_failed}",
    ]


def test_failure_when_acts_came_in_another_order_then_that_is_signed_and_all_of_the_minute_is_written_anew() -> None:
    expected = [
        expects(600, Kind.DOES, "docker.restart", 21, target="docker:gpu-07/b"),
        expects(600, Kind.DOES, "docker.restart", 22, target="docker:gpu-07/a"),
        expects(780, Kind.ENDS, "succeeded", 23),
    ]
    happened = [
        happens(600, Kind.DOES, "docker.restart", target="docker:gpu-07/a"),
        happens(600, Kind.DOES, "docker.restart", target="docker:gpu-07/b"),
        happens(780, Kind.ENDS, "succeeded"),
    ]

    text = [line.plain for line in failure_text(played(expected, happened), 80)]

    assert text[5:9] == [
        " ~  10m  does docker.restart             │ 10m0s  does docker.restart",
        "        target: docker:gpu-07/a          │     target: docker:gpu-07/a",
        " ~                                       │     in another order",
        "    13m  ends succeeded                  │ 13m0s  ends succeeded",
    ]
    assert text[-4:] == [
        "  To expect what happened, take out lines 21, 22 and put into `expect`, by their",
        "  time:",
        "      - {at: 10m, does: docker.restart, target: docker:gpu-07/a}",
        "      - {at: 10m, does: docker.restart, target: docker:gpu-07/b}",
    ]


def test_failure_when_a_line_is_taken_out_then_what_else_stood_on_it_is_written_anew() -> None:
    expected = [expects(600, Kind.TELLS, "ml-platform", 21), expects(600, Kind.TELLS, "oncall", 21)]
    happened = [happens(600, Kind.TELLS, "oncall"), happens(600, Kind.TELLS, "boss")]

    text = [line.plain for line in failure_text(played(expected, happened), 80)]

    assert [line for line in text if line.startswith("      - {")] == [
        "      - {at: 10m, tells: oncall}",
        "      - {at: 10m, tells: boss}",
    ]


@pytest.mark.parametrize(
    ("types", "is_said"),
    [
        pytest.param([EventType.ALERT_UNMATCHED], True, id="no playbook matches"),
        pytest.param([EventType.ALERT_UNMATCHED, EventType.PLAN_MADE], False, id="one matches another alert"),
        pytest.param([EventType.ALERT_UNMATCHED, EventType.PLAN_REFUSED], False, id="one matches, and has no plan"),
        pytest.param([], False, id="nothing came"),
    ],
)
def test_failure_when_no_playbook_matches_then_says_where_one_hears_why(types: list[EventType], is_said: bool) -> None:
    text = [line.plain for line in failure_text(played(EXPECTED, events=[event(0, kind) for kind in types]), 80)]

    assert ("  No playbook matches what fires here: remediator plan LABEL=VALUE …, with its" in text) is is_said


def test_failure_when_nothing_happened_then_there_is_nothing_to_paste() -> None:
    text = [line.plain for line in failure_text(played(EXPECTED[4:]), 80)]

    assert text[2:] == [
        "    expected                             │ happened",
        " -  22m  asks oncall                     │",
        "    - did not happen",
    ]


def test_failure_when_it_could_not_be_played_then_says_why_and_what_was_there_so_far() -> None:
    problem = f"{FILE}:16: approves: nobody is asked at this time\nsecond line"

    text = [line.plain for line in failure_text(played(problem=problem, events=EVENTS[:1]), 80)]

    assert text == [
        f"{FILE}:14: failed: restarts once",
        f"  {FILE}:16: approves: nobody is asked at this time",
        "  second line",
        "",
        "  The audit log:",
        "    +0s  delivery_received  1 firing from story",
    ]


@pytest.mark.parametrize(
    ("expected", "happened", "row"),
    [
        pytest.param(
            expects(60, Kind.ENDS, "succeeded"), happens(150, Kind.ENDS, "succeeded"), " ~  1m", id="another time"
        ),
        pytest.param(
            expects(60, Kind.ENDS, "succeeded", within_s=1),
            happens(60.4, Kind.ENDS, "succeeded"),
            "    1m0s",
            id="the second",
        ),
        pytest.param(expects(0, Kind.RUNG, "2"), happens(0, Kind.RUNG, "3"), " ~  0m", id="another value"),
        pytest.param(
            expects(0, Kind.DOES, "noop"),
            happens(0, Kind.DOES, "noop", attempts=2),
            "    0m",
            id="only a detail differs",
        ),
    ],
)
def test_sign_when_the_two_are_held_together_then_stands_where_they_differ(
    expected: Expectation, happened: Happening, row: str
) -> None:
    _, first, *_ = [line.plain for line in side_by_side(compare([expected], [happened]), 80)]

    assert first.startswith(row + " ")


def test_detail_when_it_was_not_asked_for_and_is_unusual_then_is_signed() -> None:
    lines = compare([expects(0, Kind.DOES, "noop", target=TARGET)], [happens(0, Kind.DOES, "noop", attempts=2)])

    assert [line.plain for line in side_by_side(lines, 80)][2:4] == [
        " ~      target: docker:gpu-07/trainer-0  │     target: none",
        " ~                                       │     attempts: 2",
    ]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_colour_when_shown_then_is_on_a_terminal_alone(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)

    print_failure(played(EXPECTED, HAPPENED, events=EVENTS, name=HOSTILE), has_log=True)

    out = capsys.readouterr().out
    colours = {style: f"\x1b[{code}m" in out for style, code in {"red": 31, "yellow": 33, "magenta": 35}.items()}
    assert colours == dict.fromkeys(colours, is_terminal)
    assert "\x1b]0" not in out
    assert is_terminal or [char for char in out if char != "\n" and not char.isprintable()] == []


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "+0s"), (2.9, "+2s"), (62, "+1m02s"), (782, "+13m02s"), (3_605, "+1h00m05s"), (93_600, "+26h00m00s")],
)
def test_time_when_since_the_begin_then_lines_up(seconds: float, text: str) -> None:
    assert since_text(timedelta(seconds=seconds)) == text


def test_trail_when_the_same_comes_again_and_again_then_is_counted() -> None:
    assert trail(played(events=[*EVENTS[:3], EVENTS[4], EVENTS[0]])) == [
        ("+0s", "delivery_received", "1 firing from story"),
        ("+10m00s", "", "… 2 more like it"),
        (
            "+1h00m05s",
            "episode_ended",
            f"{WRITTEN_OUT}: resolved",
        ),
        ("+0s", "delivery_received", "1 firing from story"),
    ]


def test_summary_when_a_scenario_failed_then_counts_what_is_wrong() -> None:
    assert summary(played(EXPECTED, HAPPENED, never=("docker.stop",))) == (
        "1 did not happen, 1 not expected, 3 happened otherwise"
    )
    assert summary(played(problem="x.yaml:3: it does not end\nmore")) == "x.yaml:3: it does not end"


# -- JUnit -------------------------------------------------------------------------------------------------------------


def test_junit_when_read_by_a_parser_then_has_each_scenario_with_what_became_of_it() -> None:
    good = played(EXPECTED[:0], [], name="does nothing")
    bad = played(EXPECTED, HAPPENED, events=EVENTS, name=f"steers {HOSTILE}")
    broken = played(problem=f"{FILE}:16: approves: {HOSTILE}")

    root = ElementTree.fromstring(junit_xml([good, bad, broken]))

    assert (root.tag, root.attrib["tests"], root.attrib["failures"], root.attrib["errors"]) == (
        "testsuites",
        "3",
        "1",
        "1",
    )
    (suite,) = root
    assert (suite.tag, suite.attrib["name"], suite.attrib["time"]) == ("testsuite", FILE, "0.370")
    cases = [(case.attrib["name"], case.attrib["line"], [child.tag for child in case]) for case in suite]
    assert cases == [
        ("does nothing", "14", []),
        (f"steers {WRITTEN_OUT}", "14", ["failure"]),
        ("restarts once", "14", ["error"]),
    ]
    assert suite[1][0].attrib["message"] == "1 did not happen, 1 not expected, 3 happened otherwise"
    assert (suite[1][0].text or "").count("│") == 17
    assert suite[2][0].attrib["message"] == f"{FILE}:16: approves: {WRITTEN_OUT}"


@pytest.mark.parametrize("code", [0, 8, 0xB, 0x1B, 0x7F, 0x85, 0xD800, 0xDFFF, 0xFFFE, 0xFFFF, 0x10FFFF])
def test_junit_when_a_name_holds_what_xml_cannot_then_is_xml_all_the_same(code: int) -> None:
    root = ElementTree.fromstring(junit_xml([played(name=f"a{chr(code)}b", problem=chr(code))]))

    assert root[0][0].attrib["name"].startswith("a")


def test_junit_when_two_files_were_played_then_has_a_suite_for_each() -> None:
    one = played()
    other = Result(file=TestFile(file="b.test.yaml", paths=(), alerts={}, scenarios=()), scenario=one.scenario)

    root = ElementTree.fromstring(junit_xml([one, one, other]))

    assert [(suite.attrib["name"], suite.attrib["tests"]) for suite in root] == [(FILE, "2"), ("b.test.yaml", "1")]
