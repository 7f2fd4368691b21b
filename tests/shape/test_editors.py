"""What an editor shows of the files that are shipped and shown: nothing wrong, by the schemas in the tree."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from check_jsonschema import main as check_jsonschema
from click.testing import CliRunner

from pages import blocks_of
from remediator.loading.schema import SchemaKind

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = ROOT / "docs" / "reference" / "schema"
HOWTO = ROOT / "docs" / "howto" / "write-playbooks-in-an-editor.md"

FIRST_KEYS = {
    "playbook": SchemaKind.PLAYBOOK,
    "policy": SchemaKind.POLICY,
    "playbooks": SchemaKind.TEST,
    "stages": SchemaKind.THRESHOLDS,
    "signals": SchemaKind.THRESHOLDS,
}


def documents_in(text: str) -> Iterator[tuple[SchemaKind, str]]:
    """The documents of a YAML text that begin as ours do."""
    for document in re.split(r"^---\n", text, flags=re.MULTILINE):
        first = re.search(r"^([a-z]+):", document, re.MULTILINE)
        if first is not None and first[1] in FIRST_KEYS:
            yield FIRST_KEYS[first[1]], document


def shipped() -> Iterator[tuple[SchemaKind, str, str]]:
    """Kind, name and text of what is shipped, by document."""
    found = [*(ROOT / "playbooks").glob("*.yaml"), *(ROOT / "deploy").rglob("playbooks/*.yaml")]
    found += (ROOT / "deploy").rglob("thresholds.yaml")
    data = ROOT / "tests" / "data"
    for file in [*found, data / "whole_format.yaml", *data.rglob("*.test.yaml")]:
        for kind, text in documents_in(file.read_text("utf-8")):
            yield kind, str(file.relative_to(ROOT)), text
    for file in (ROOT / "deploy").rglob("*.toml"):
        yield SchemaKind.SETTINGS, str(file.relative_to(ROOT)), file.read_text("utf-8")


def shown() -> Iterator[tuple[SchemaKind, str, str]]:
    """Kind, page and text of what the pages show."""
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "howto").glob("*.md")]:
        for block in blocks_of(page.read_text("utf-8")):
            if block.language == "toml":
                yield SchemaKind.SETTINGS, str(page.relative_to(ROOT)), block.text
            elif block.language == "yaml":
                for kind, text in documents_in(block.text):
                    yield kind, str(page.relative_to(ROOT)), text


ALL = [*shipped(), *shown()]


def test_schemas_when_checked_against_their_dialect_then_are_schemas() -> None:
    files = sorted(map(str, SCHEMAS.iterdir()))
    done = CliRunner().invoke(check_jsonschema, ["--check-metaschema", *files])
    assert (len(files), done.exit_code, done.output) == (5, 0, "ok -- validation done\n")


@pytest.mark.parametrize(
    ("kind", "at_least"), [("playbook", 12), ("policy", 3), ("test", 6), ("thresholds", 2), ("settings", 6)]
)
def test_files_when_they_are_shipped_or_shown_then_editors_find_nothing_wrong(
    kind: str, at_least: int, tmp_path: Path
) -> None:
    names = {}
    for n, (of, name, text) in enumerate(ALL):
        if of == kind:
            file = tmp_path / f"{n}.{'toml' if of is SchemaKind.SETTINGS else 'yaml'}"
            file.write_text(text, "utf-8")
            names[str(file)] = name
    schema = str(SCHEMAS / f"{kind}.json")
    done = CliRunner().invoke(check_jsonschema, ["-o", "json", "--schemafile", schema, *names])
    told = json.loads(done.stdout)
    wrong = [f"{names[each['filename']]}: {each['path']}: {each['message']}" for each in told.get("errors", ())]
    unreadable = [names[each["filename"]] for each in told.get("parse_errors", ())]
    assert (wrong, unreadable, len(names) >= at_least, done.exit_code) == ([], [], True, 0)


def test_howto_when_it_writes_schemas_then_they_are_all_there_are() -> None:
    page = HOWTO.read_text("utf-8")
    commands = re.findall(r"^remediator schema (\w+) > \.schemas/(\w+)\.json$", page, re.MULTILINE)
    assert commands == [(kind.value, kind.value) for kind in SchemaKind]


def test_howto_when_it_points_at_schemas_then_they_are_those_that_it_writes() -> None:
    blocks = "\n".join(block.text for block in blocks_of(HOWTO.read_text("utf-8")) if block.language != "sh")
    pointed = set(re.findall(r"\.schemas/([\w.]+)", blocks))
    assert pointed == {f"{kind}.json" for kind in SchemaKind}
