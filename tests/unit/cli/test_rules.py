"""``rules render``: rules on stdout or in a file, and whether that file is fresh."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from ruamel.yaml import YAML

from remediator.cli import cli

ROOT = Path(__file__).resolve().parents[3]
SHIPPED = ROOT / "deploy" / "prometheus" / "thresholds.yaml"
TEXT = (
    "signals:\n  - {signal: x, unit: celsius, series: 'gpu:x:celsius', alert: X, grades: {warning: {above: 85}},"
    " annotations: {summary: s, description: d}}\n"
)


def render(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["rules", "render", *map(str, arguments)])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "thresholds.yaml"
    file.write_text(TEXT)
    return file


def test_shipped_rules_when_rendered_anew_then_are_those_in_the_tree() -> None:
    result = render(SHIPPED, "--output", SHIPPED.with_name("gpu-thresholds.yml"), "--check")
    assert (result.exit_code, result.stdout) == (0, f"ok: 24 rules in {SHIPPED.with_name('gpu-thresholds.yml')}\n")


def test_rules_when_no_output_is_named_then_are_printed(file: Path) -> None:
    result = render(file)
    groups = YAML(typ="safe").load(result.stdout)["groups"]
    assert (result.exit_code, [rule.get("alert") for rule in groups[1]["rules"]]) == (0, [None, "X"])


def test_rules_when_printed_as_json_then_are_data(file: Path) -> None:
    answer = json.loads(render(file, "--json").stdout)
    assert (answer["problems"], answer["groups"]) == ([], YAML(typ="safe").load(render(file).stdout)["groups"])


def test_rules_when_written_then_are_what_would_be_printed_and_fresh(file: Path, tmp_path: Path) -> None:
    output = tmp_path / "rules.yml"
    output.write_text("old")
    assert (render(file, "--output", output).exit_code, output.read_text()) == (0, render(file).stdout)
    assert render(file, "--output", output, "--check").exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rules.yml", "thresholds.yaml"]


def test_rules_when_they_are_not_fresh_then_check_shows_where_and_writes_nothing(file: Path, tmp_path: Path) -> None:
    output = tmp_path / "rules.yml"
    render(file, "--output", output)
    before = output.read_text()
    file.write_text(TEXT.replace("85", "80"))

    result = render(file, "--output", output, "--check")

    assert (result.exit_code, output.read_text()) == (1, before)
    assert {"-        expr: vector(85)", "+        expr: vector(80)"} <= {*result.stdout.splitlines()}
    answer = render(file, "--output", output, "--check", "--json")
    assert (answer.exit_code, "-        expr: vector(85)" in json.loads(answer.stdout)["difference"]) == (1, True)


@pytest.mark.parametrize(
    "content",
    [None, b"\xff", b"", pytest.param(b"{as it is}\n", id="a newline more")],
    ids=lambda content: "no file" if content is None else repr(content),
)
def test_output_when_it_is_something_else_then_is_not_fresh(content: bytes | None, file: Path, tmp_path: Path) -> None:
    output = tmp_path / "rules.yml"
    if content is not None:
        output.write_bytes(content.replace(b"{as it is}", render(file).stdout.encode()))
    assert render(file, "--output", output, "--check").exit_code == 1


def test_file_when_it_is_wrong_then_problems_are_told_and_nothing_is_written(file: Path, tmp_path: Path) -> None:
    file.write_text(TEXT.replace("gpu:x:celsius", "gpu:x:celsius{"))
    output = tmp_path / "rules.yml"

    result = render(file, "--output", output)

    assert (result.exit_code, output.exists()) == (1, False)
    assert result.stderr.startswith(f"{file}:2:")
    assert result.stderr.endswith("\n1 problem\n")
    assert result.stdout == ""
    (problem,) = json.loads(render(file, "--json").stdout)["problems"]
    assert (problem["file"], problem["line"], "PromQL" in problem["message"]) == (str(file), 2, True)


def test_file_when_it_cannot_be_read_then_ends_with_3(tmp_path: Path) -> None:
    result = render(tmp_path / "none.yaml")
    assert (result.exit_code, "No such file" in result.stderr) == (3, True)
    result = render(tmp_path)
    assert (result.exit_code, "Is a directory" in result.stderr) == (3, True)


def test_output_when_it_cannot_be_written_then_ends_with_3(file: Path, tmp_path: Path) -> None:
    result = render(file, "--output", tmp_path / "no folder" / "rules.yml")
    assert (result.exit_code, "cannot be written" in result.stderr) == (3, True)


def test_check_when_it_has_nothing_to_compare_with_then_is_wrong_usage(file: Path) -> None:
    assert render(file, "--check").exit_code == 2


def test_output_when_it_is_a_link_or_no_file_then_is_written_through_and_stays_what_it_is(
    file: Path, tmp_path: Path
) -> None:
    link, target, pipe = tmp_path / "link.yml", tmp_path / "rules.yml", tmp_path / "pipe"
    link.symlink_to(target)
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    assert [render(file, "--output", output).exit_code for output in (link, pipe)] == [0, 0]

    expected = render(file).stdout
    assert (link.is_symlink(), target.read_text(), pipe.is_fifo()) == (True, expected, True)
    with open(reader, encoding="utf-8") as end:
        assert end.read() == expected


def test_output_when_it_is_a_link_to_itself_then_ends_with_3(file: Path, tmp_path: Path) -> None:
    loop = tmp_path / "loop.yml"
    loop.symlink_to(loop)
    assert render(file, "--output", loop).exit_code == 3
    assert loop.is_symlink()


def test_output_when_it_is_the_file_of_thresholds_then_is_wrong_usage_and_that_is_kept(file: Path) -> None:
    assert render(file, "--output", file).exit_code == 2
    assert file.read_text() == TEXT
