"""Pages that people type from: each command parses, each file loads, and nothing that they must explain is left out."""

from __future__ import annotations

import ast
import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest
from ruamel.yaml import YAML

from pages import Block, blocks_of, fits, parse
from remediator.actions import REGISTRY
from remediator.core.event import EventType
from remediator.loading import LoadContext, load
from remediator.loading.scenarios import load_tests
from remediator.loading.thresholds import load_thresholds
from remediator.settings import load_settings
from remediator.telemetry import Metrics

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("*.md"), *(DOCS / "howto").glob("*.md"), *(DOCS / "gpu").glob("*.md")])
OPERATIONS = (DOCS / "operations.md").read_text("utf-8")


def relative(page: Path) -> str:
    """For the test's name."""
    return str(page.relative_to(ROOT))


def lines_of(block: Block) -> list[str]:
    """What a person types, one command each."""
    if block.language == "console":
        return [command for command, _ in block.commands()]
    return block.text.replace("\\\n", " ").splitlines() if block.language == "sh" else []


def typed(page: Path) -> list[str]:
    """Every call of our own command that a page shows in a block, without what a shell makes of its output."""
    lines = [line for block in blocks_of(page.read_text("utf-8")) for line in lines_of(block)]
    calls = [re.search(r"(?:^|\s|/)remediator ((?:--config )?[a-z].*)", line) for line in lines]
    return [re.split(r" [|>#] ?| >> | 2>", call[1])[0] for call in calls if call is not None]


HEAD = f"1:{'0' * 64}"
"""What the shell puts in where a page shows ``$(…)``: so far these are all heads of the log."""

CALLS = [pytest.param(call, id=f"{relative(page)}: {call}") for page in PAGES for call in typed(page)]


@pytest.mark.parametrize("call", CALLS)
def test_command_when_a_page_shows_it_then_it_parses(call: str) -> None:
    parse([HEAD if word.startswith("$(") else word for word in shlex.split(call)])


def test_commands_when_counted_then_the_pages_have_them() -> None:
    assert len(CALLS) > 25


def test_command_when_it_has_an_option_that_does_not_exist_then_it_does_not_parse() -> None:
    with pytest.raises(click.UsageError):
        parse(["audit", "verify", "--hed", "1:2"])


FILES = [
    pytest.param(block, id=f"{relative(page)}: {block.file}")
    for page in PAGES
    for block in blocks_of(page.read_text("utf-8"))
    if block.file or block.language == "toml"
]


@pytest.mark.parametrize("block", FILES)
def test_file_when_a_page_shows_it_then_it_loads(block: Block, tmp_path: Path) -> None:
    file = tmp_path / Path(block.file or "remediator.toml").name
    file.write_text(block.text)
    if block.language == "toml":
        assert load_settings(file, environ={}).listen
    elif "alertmanager" in file.name:
        assert YAML(typ="safe").load(block.text)["route"]
    elif file.name == "thresholds.yaml":
        assert [problem.located() for problem in load_thresholds(file).problems] == []
    elif file.name.endswith(".test.yaml"):  # its playbooks stand in other blocks
        tests = load_tests([file], actions=REGISTRY)
        assert [one.located() for one in tests.problems if "cannot be read" not in one.located()] == []
    else:
        found = load([file], context=LoadContext(actions=REGISTRY, notify_targets=frozenset({"oncall"})))
        assert [problem.located() for problem in found.problems] == []


@pytest.mark.parametrize("block", [each for each in FILES if "alertmanager.yml" in str(each.id)])
def test_receiver_when_a_page_shows_it_then_no_alert_can_be_lost_on_the_way(block: Block) -> None:
    receivers = {each["name"]: each for each in YAML(typ="safe").load(block.text)["receivers"]}
    webhook = receivers["remediator"]["webhook_configs"][0]
    assert (
        webhook["url"].endswith(":9095/api/v1/alertmanager"),
        webhook["send_resolved"],
        webhook["max_alerts"],
        webhook["http_config"]["follow_redirects"],
    ) == (True, True, 0, False)


def test_quickstart_settings_when_read_then_name_what_its_pages_promise() -> None:
    (settings,) = [
        block.text
        for block in blocks_of((DOCS / "quickstart.md").read_text("utf-8"))
        if block.file == "remediator.toml"
    ]
    found = tomllib.loads(settings)
    assert (len(found["auth"]["tokens"]), len(found["docker"]["hosts"]), len(found["notify"])) == (1, 1, 1)


@pytest.mark.parametrize(
    "metric",
    [
        family.name + {"counter": "_total", "info": "_info"}.get(family.type, "")
        for family in Metrics().registry.collect()
        if family.name.startswith("remediator_")  # process_* is known from elsewhere, and has one line
    ],
)
def test_metric_when_the_engine_has_it_then_operations_says_what_to_do(metric: str) -> None:
    section = OPERATIONS.partition("\n## Metrics")[2].partition("\n## ")[0]
    assert f"`{metric}`" in section


@pytest.mark.parametrize("kind", EventType, ids=str)
def test_event_when_the_log_has_it_then_a_page_says_what_it_means(kind: EventType) -> None:
    assert f"| `{kind.value}` |" in (DOCS / "reference" / "events.md").read_text("utf-8")


def logged() -> set[str]:
    """The message of every call of a logger in the source."""
    found = set()
    for file in (ROOT / "remediator").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                match node.func:
                    case ast.Attribute(
                        value=ast.Name(id="log" | "_log"), attr="info" | "warning" | "error" | "exception"
                    ):
                        found.add(str(node.args[0].value))
                    case ast.Name(id="_log"):
                        found.add(str(node.args[0].value))
    return found


def test_log_messages_when_listed_then_are_found_in_the_source() -> None:
    assert {"engine started", "store_commit_failed", "call refused"} <= logged()


@pytest.mark.parametrize("message", sorted(logged()))
def test_log_message_when_the_engine_writes_it_then_operations_says_what_to_do(message: str) -> None:
    section = OPERATIONS.partition("\n## The engine's log")[2].partition("\n## ")[0]
    assert f"`{message}`" in section


def test_log_messages_when_operations_explains_them_then_the_engine_has_them() -> None:
    section = OPERATIONS.partition("\n## The engine's log")[2].partition("\n## ")[0]
    rows = [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| `")]
    explained = {message for row in rows for message in re.findall(r"`([^`]+)`", row)}
    assert explained - logged() == set()


@pytest.mark.parametrize(
    ("shown", "said", "is_so"),
    [
        pytest.param("ok: 1 file", "ok: 1 file\n", True, id="the same"),
        pytest.param("a   b", "a b", True, id="another number of spaces"),
        pytest.param("started run …", "started run 4f1d", True, id="something that changes"),
        pytest.param("a\n…\nd", "a\nb\nc\nd", True, id="some lines"),
        pytest.param("ok: 1 file", "ok: 2 files", False, id="something else"),
        pytest.param("ok", "ok\nand more", False, id="more than is shown"),
        pytest.param("intact: … events", "CHANGED: event 3", False, id="the opposite"),
        pytest.param("", "Traceback", False, id="something where nothing is shown"),
    ],
)
def test_what_a_page_shows_when_compared_with_what_was_said_then_fits(shown: str, said: str, is_so: bool) -> None:
    assert fits(shown, said) is is_so
