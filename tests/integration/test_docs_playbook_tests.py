"""``docs/playbook-tests.md``: its example passes as it stands there, and every key of the format is on the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from pages import blocks_of
from remediator.cli import cli
from remediator.core.run import MessageKind
from remediator.loading.read import fields
from remediator.loading.scenario_format import (
    EXPECTED,
    VERBS,
    AlertKeys,
    ContainerKeys,
    GroupKeys,
    ScenarioKeys,
    TestKeys,
    WorldKeys,
)

PAGE = (Path(__file__).parents[2] / "docs/playbook-tests.md").read_text("utf-8")
PLAYBOOK, TESTS, WORLD = (block.text for block in blocks_of(PAGE) if block.language == "yaml")


def play(folder: Path, tests: str) -> tuple[int, str]:
    (folder / "restart-on-leak.yaml").write_text(PLAYBOOK)
    (folder / "restart-on-leak.test.yaml").write_text(tests)
    result = CliRunner().invoke(cli, ["test", str(folder), "--jobs", "1", "--coverage"])
    return result.exit_code, result.output


def test_example_when_played_then_passes_as_the_page_has_it(tmp_path: Path) -> None:
    code, said = play(tmp_path, TESTS)
    assert (code, "3 passed" in said) == (0, True), said


def test_example_when_something_else_is_expected_then_fails(tmp_path: Path) -> None:
    code, said = play(tmp_path, TESTS.replace("ends: ineffective", "ends: succeeded"))
    assert (code, "2 passed" in said) == (1, True), said


def test_world_when_the_page_shows_it_then_is_read(tmp_path: Path) -> None:
    old = re.search(r"^world:\n  .*\n", TESTS, re.MULTILINE)
    assert old is not None
    code, said = play(tmp_path, TESTS.replace(old[0], WORLD))
    assert code == 0, said


KEYS = {
    *(key for model in (TestKeys, ScenarioKeys, AlertKeys, GroupKeys, WorldKeys) for key in fields(model)),
    *(key for of in (*VERBS.values(), *EXPECTED.values()) for key in of),
}


@pytest.mark.parametrize("key", sorted(KEYS))
def test_key_when_it_is_in_the_format_then_the_page_explains_it(key: str) -> None:
    assert re.search(rf"`{key}[`:]", PAGE)


ROWS = [
    pytest.param(title, verb, keys - {"playbook", "case", "alert"}, id=f"{title}: {verb}")
    for title, verbs in (("What happens", VERBS), ("What must come of it", EXPECTED))
    for verb, keys in verbs.items()
]


@pytest.mark.parametrize(("title", "verb", "keys"), ROWS)
def test_verb_when_it_is_in_the_format_then_has_a_row_with_what_goes_with_it(
    title: str, verb: str, keys: frozenset[str]
) -> None:
    section = PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]
    (row,) = [line for line in section.splitlines() if re.match(rf"\|.*`{verb}: .*\|.*\|.*\|", line)]
    row = row.replace("the same", "`late`, `copies`, `truncated`")
    assert [key for key in sorted(keys) if f"`{key}`" not in row] == []


@pytest.mark.parametrize(
    "word", [*fields(ContainerKeys), *(kind.value for kind in MessageKind if kind.value != "approval")]
)
def test_word_when_a_test_may_say_it_then_the_page_has_it(word: str) -> None:
    assert re.search(rf"[`{{ ]{word}[`:]", PAGE)
