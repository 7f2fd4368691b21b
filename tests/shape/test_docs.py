"""Prose that can fail: links lead somewhere, commands that pages show exist, generated pages are fresh."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from remediator.cli import COMMANDS, cli
from remediator.cli.reference import HEAD, SCHEMAS
from remediator.cli.reference import PAGES as REFERENCE_PAGES
from remediator.core.event import MEANING, EventType

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
CODE_BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(?:^|`|\$ |&& )remediator (?:--config \S+ )?([a-z]+)", re.MULTILINE)
TEST_NAME = re.compile(r"`(test_\w+)`")
TESTS = {
    name
    for file in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"^ *def (test_\w+)", file.read_text(), re.MULTILINE)
}
TARGET = re.compile(r"(?:^(?:\$ )?|`)make ([a-z]+)\b", re.MULTILINE)


def relative(page: Path) -> str:
    """For the test's name."""
    return str(page.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    """The headings of a page as GitHub makes anchors of them."""
    text = CODE_BLOCK.sub("", page.read_text())
    headings = re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_links_when_followed_inside_the_project_then_lead_somewhere(page: Path) -> None:
    dead = []
    for link in LINK.findall(CODE_BLOCK.sub("", page.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            dead.append(link)

    assert dead == []


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_tests_when_a_page_names_them_then_exist(page: Path) -> None:
    # A promise whose test is gone is a claim. Files are links, and the test above follows them.
    named = set(TEST_NAME.findall(CODE_BLOCK.sub("", page.read_text())))

    assert named - TESTS == set()


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_commands_when_a_page_shows_them_then_exist(page: Path) -> None:
    shown = set(COMMAND.findall(page.read_text()))

    assert shown - set(COMMANDS) == set()


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_make_targets_when_a_page_shows_them_then_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    shown = set(TARGET.findall(page.read_text()))

    assert shown - targets == set()


@pytest.mark.parametrize("name", REFERENCE_PAGES)
def test_reference_page_when_made_anew_then_is_the_one_in_the_tree(name: str) -> None:
    assert (REFERENCE / name).read_text() == HEAD + REFERENCE_PAGES[name](), "run make docs"


@pytest.mark.parametrize("name", SCHEMAS)
def test_schema_when_made_anew_then_is_the_one_in_the_tree(name: str) -> None:
    assert (REFERENCE / name).read_text("utf-8") == SCHEMAS[name](), "run make docs"


def test_reference_folder_when_listed_then_holds_generated_files_alone() -> None:
    found = [str(file.relative_to(REFERENCE)) for file in REFERENCE.rglob("*") if file.is_file()]
    assert sorted(found) == sorted([*REFERENCE_PAGES, *SCHEMAS])


def test_event_types_when_listed_then_each_has_a_meaning() -> None:
    assert set(MEANING) == set(EventType)


@pytest.mark.parametrize("name", COMMANDS)
def test_command_when_loaded_then_bears_its_name_and_says_what_it_does(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)

    assert command is not None
    assert command.name == name
    assert command.help
