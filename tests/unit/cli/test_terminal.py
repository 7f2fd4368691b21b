"""What goes to the terminal: label values are shown and never obeyed."""

from __future__ import annotations

import json
import sys

import pytest

from remediator.cli.terminal import (
    complain,
    fold,
    label_text,
    moment_text,
    print_fields,
    print_json,
    printable,
    say,
    shown_url,
    value_text,
)

ESC = "\x1b"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("gpu-07", "gpu-07", id="plain text stays"),
        pytest.param("Zürich 東京 🔥", "Zürich 東京 🔥", id="letters and signs of any script stay"),
        pytest.param(f"{ESC}[31mred{ESC}[0m", "\\x1b[31mred\\x1b[0m", id="a colour sequence is written out"),
        pytest.param(f"{ESC}]0;owned\x07", "\\x1b]0;owned\\x07", id="a title sequence is written out"),
        pytest.param("\x9b31m", "\\x9b31m", id="the one-character CSI is written out"),
        pytest.param("a\r\nb\tc", "a\\r\\nb\\tc", id="line ends and tabs are written out"),
        pytest.param("a\u2028b\u2029c", "a\\u2028b\\u2029c", id="Unicode line ends are written out"),
        pytest.param("user\u202egnp.exe", "user\\u202egnp.exe", id="a direction override is written out"),
        pytest.param("a\u200bb\ufeff", "a\\u200bb\\ufeff", id="invisible characters are written out"),
        pytest.param("\ud800", "\\ud800", id="a lone surrogate, which could not be printed, is written out"),
        pytest.param("\U000e0041", "\\U000e0041", id="invisible tag characters are written out"),
        pytest.param("[red]x[/red] :smile:", "[red]x[/red] :smile:", id="rich's own markup is text"),
    ],
)
def test_printable_when_given_text_then_shows_it_on_one_line(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize(
    "show",
    [
        pytest.param(say, id="a line"),
        pytest.param(fold, id="a paragraph"),
        pytest.param(complain, id="a complaint"),
        pytest.param(lambda text: print_fields({text: text, "map": {text: text}}), id="fields"),
        pytest.param(lambda text: print_json({text: text}), id="JSON"),
        pytest.param(lambda text: say(label_text({text: text})), id="labels"),
    ],
)
def test_output_when_a_value_steers_the_terminal_then_holds_no_control_character(
    show: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(show)
    show(f"{ESC}[2J\x9b\x07\x00\u202e[bold]x")

    seen = "".join(capsys.readouterr())
    assert "x" in seen
    assert [char for char in seen if char != "\n" and not char.isprintable()] == []


def test_say_when_the_line_is_longer_than_the_terminal_then_keeps_it_whole(capsys: pytest.CaptureFixture[str]) -> None:
    say("playbooks/x.yaml:12:3: " + "word " * 40 + "end")

    assert len(capsys.readouterr().out.splitlines()) == 1


def test_fold_when_the_text_is_longer_than_the_terminal_then_indents_every_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    fold("word " * 40, 4)

    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("    word") and len(line) <= 80 and line == line.rstrip() for line in lines)


def test_fields_when_printed_then_line_up_and_leave_out_what_is_empty(capsys: pytest.CaptureFixture[str]) -> None:
    print_fields({"mode": "enforce", "nothing": "", "none": None, "in_it": {"run_id": "r1"}, "is_ready": True})

    assert capsys.readouterr().out == "mode      enforce\nis ready  yes\nin it\n  run id  r1\n"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        pytest.param("http://am:9093/x?y=@z", "http://am:9093/x?y=@z", id="none in it"),
        pytest.param("http://alice:s3cret@am:9093/x", "http://am:9093/x", id="name and password"),
        pytest.param("http://alice:s3@cret@am", "http://am", id="an @ in the password"),
        pytest.param("am:9093", "am:9093", id="no scheme"),
    ],
)
def test_shown_url_when_it_holds_a_password_then_leaves_it_out(url: str, shown: str) -> None:
    assert shown_url(url) == shown


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param(None, "", id="nothing"),
        pytest.param(False, "no", id="a claim"),
        pytest.param(["a", 1], "a, 1", id="a list"),
        pytest.param({"host": "gpu-07", "n": 2}, "host=gpu-07 n=2", id="a map"),
    ],
)
def test_value_text_when_given_a_value_then_says_it_as_people_do(value: object, text: str) -> None:
    assert value_text(value) == text


@pytest.mark.parametrize(
    ("environment", "is_coloured"),
    [
        pytest.param({"TERM": "xterm-256color"}, True, id="a terminal"),
        pytest.param({"TERM": "xterm-256color", "NO_COLOR": "1"}, False, id="NO_COLOR"),
        pytest.param({"TERM": "dumb"}, False, id="a dumb terminal"),
    ],
)
def test_colour_when_stdout_is_a_terminal_then_follows_the_environment(
    environment: dict[str, str],
    is_coloured: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TERM", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)

    say("bad", "red")

    assert ("\x1b[31m" in capsys.readouterr().out) is is_coloured


def test_colour_when_stdout_is_a_pipe_then_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    say("bad", "red")

    assert capsys.readouterr().out == "bad\n"


def test_json_when_printed_then_reads_back_as_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"labels": {"ü": f"{ESC}[31m"}, "n": 1, "none": None}

    print_json(value)

    assert json.loads(capsys.readouterr().out) == value


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("2026-11-30T16:02:23.742307Z", "2026-11-30 16:02:23 UTC"),
        ("2026-11-30T16:02:23Z", "2026-11-30 16:02:23 UTC"),
        ("2026-11-30T16:32:07.306446+00:00", "2026-11-30 16:32:07 UTC"),
        ("2026-11-30T16:02:23+01:00", "2026-11-30T16:02:23+01:00"),
        ("none", "none"),
        ("", ""),
    ],
)
def test_moment_when_it_is_for_people_then_is_told_to_the_second(text: str, shown: str) -> None:
    assert moment_text(text) == shown
