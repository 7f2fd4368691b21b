"""``docs/lint/``: a page for every code, whose wrong example gives that code alone and whose right one nothing."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from pages import blocks_of
from remediator.actions import REGISTRY
from remediator.core.playbook import LabelMap
from remediator.engine.lint import LintCode, lint
from remediator.loading import LoadContext, load
from remediator.loading.rules import read_rules

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = DOCS / "lint"
CONTEXT = LoadContext(actions=REGISTRY, notify_targets=frozenset({"oncall"}), label_map=LabelMap(prometheus=("site",)))


def codes_in(section: str, folder: Path) -> list[str]:
    """What lint says of the blocks of a section: playbooks, rules, and settings where these matter."""
    context, can_ask, rules, playbooks = CONTEXT, True, None, []
    for number, block in enumerate(blocks_of(section)):
        if block.language == "toml":
            settings = tomllib.loads(block.text)
            can_ask = "alertmanager" in settings
            servers = tuple(settings.get("prometheus", {}).get("servers", {}))
            context = replace(CONTEXT, label_map=LabelMap(prometheus=servers))
        elif block.file:
            file = folder / block.file
            file.write_text(block.text)
            rules = read_rules([str(file)])
            assert rules.problems == []
        elif block.language == "yaml":
            playbooks.append(folder / f"{number}.yaml")
            playbooks[-1].write_text(block.text)
    loaded = load(playbooks, context=context)
    assert [problem.located() for problem in loaded.problems] == []
    advice = lint(loaded, actions=REGISTRY, can_ask=can_ask, rules=rules)
    assert advice.problems == ()
    return [found.code.value for found in advice.lints]


@pytest.mark.parametrize("code", LintCode)
def test_page_when_its_examples_are_checked_then_the_wrong_one_gives_its_code_and_the_right_one_nothing(
    code: LintCode, tmp_path: Path
) -> None:
    page = (PAGES / f"{code}.md").read_text("utf-8")
    head, _, examples = page.partition("\n## Wrong\n")
    wrong, _, right = examples.partition("\n## Right\n")
    (tmp_path / "wrong").mkdir()
    (tmp_path / "right").mkdir()
    assert head.startswith(f"# `{code}`\n")
    assert "**Why it hurts.**" in head
    assert codes_in(wrong, tmp_path / "wrong") == [code.value]
    assert codes_in(right, tmp_path / "right") == []


def test_pages_when_listed_then_there_is_one_for_each_code_and_the_index_has_all() -> None:
    index = (PAGES / "README.md").read_text("utf-8")
    listed = re.findall(r"^\| \[`([a-z-]+)`\]\(\1\.md\)", index, re.MULTILINE)
    assert listed == sorted(code.value for code in LintCode)
    assert {page.stem for page in PAGES.glob("*.md")} == {*listed, "README"}


def test_allow_when_the_index_shows_one_then_it_allows(tmp_path: Path) -> None:
    section = (PAGES / "README.md").read_text("utf-8").partition("\n## Allowing\n")[2]
    assert codes_in(section, tmp_path) == []
    (tmp_path / "without").mkdir()
    assert codes_in(section.replace("# remediator", "# another"), tmp_path / "without") == ["no-escalation"]
