"""The tables of matchers, read by the real ``amtool``: what we take and refuse is what Alertmanager does.

From 0.27 on it is asked for its UTF-8 parser alone. 0.25, Debian's, knows only the older one; the rows say where that
one reads a line another way, and that is checked too.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from remediator.core.matcher import parse_matcher

pytestmark = pytest.mark.alertmanager

TABLE = YAML(typ="safe").load(Path(__file__).parents[1] / "data" / "matchers.yaml")


def rows(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in TABLE[name]])


class Amtool:
    """``amtool config routes test``: whether a matcher holds for labels, None when it is refused."""

    def __init__(self, program: Path, folder: Path) -> None:
        self.program = program
        self.folder = folder
        shown = subprocess.run([program, "--help"], capture_output=True, text=True, check=True)
        self.is_classic = "--enable-feature" not in shown.stdout + shown.stderr  # a self-built one knows no version

    def holds(self, matcher: str, labels: Mapping[str, str]) -> bool | None:
        config = {
            "route": {"receiver": "default", "routes": [{"receiver": "hit", "matchers": [matcher]}]},
            "receivers": [{"name": "default"}, {"name": "hit"}],
        }
        config_file = self.folder / "alertmanager.yml"
        config_file.write_text(json.dumps(config, ensure_ascii=False))  # its YAML knows no pairs of \u escapes
        answer = subprocess.run(
            [
                self.program,
                *(() if self.is_classic else ("--enable-feature=utf8-strict-mode",)),
                "config", "routes", "test", f"--config.file={config_file}",
                *(f"{self.quoted(name)}={self.quoted(value)}" for name, value in labels.items()),
            ],
            capture_output=True, text=True, check=False, env={"HOME": str(self.folder)},
        )  # fmt: skip
        if answer.returncode:
            return None
        receiver = answer.stdout.splitlines()[-1]  # it logs there too
        assert receiver in ("hit", "default")
        return receiver == "hit"

    def quoted(self, text: str) -> str:
        if self.is_classic and re.fullmatch(r"[A-Za-z_]\w*", text, re.ASCII):
            return text  # it takes no quotes around a label
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


@pytest.fixture
def amtool(find_tool: Callable[[str], Path], tmp_path: Path) -> Amtool:
    return Amtool(find_tool("amtool"), tmp_path)


@rows("parses")
def test_parse_matcher_when_asked_of_amtool_then_holds_for_the_same_labels(row: dict[str, Any], amtool: Amtool) -> None:
    matcher = parse_matcher(row["text"])
    asked: list[dict[str, str]] = [{}, {matcher.label: "other"}]
    if "\0" not in row["value"]:  # no argument of a program can hold one
        asked.append({matcher.label: row["value"]})
    ours = [matcher.matches(labels) for labels in asked]
    theirs = [amtool.holds(row["text"], labels) for labels in asked]
    differs = amtool.is_classic and row.get("classic") == "differs"
    assert (theirs != ours) if differs else (theirs == ours)


@rows("parses")
def test_matcher_when_printed_for_amtool_then_is_taken(row: dict[str, Any], amtool: Amtool) -> None:
    taken = amtool.holds(row["printed"], {}) is not None
    assert taken is (not amtool.is_classic or re.match(r"\w+[=!]", row["printed"], re.ASCII) is not None)


@rows("refuses")
def test_parse_matcher_when_it_refuses_then_amtool_does_too(row: dict[str, Any], amtool: Amtool) -> None:
    taken = amtool.holds(row["text"].replace("{long}", "a" * 5000), {}) is not None
    assert taken is (row.get("classic" if amtool.is_classic else "utf8") == "takes")


@rows("matches")
def test_matches_when_asked_of_amtool_then_is_the_same(row: dict[str, Any], amtool: Amtool) -> None:
    differs = amtool.is_classic and row.get("classic") == "differs"
    assert amtool.holds(row["matcher"], row["labels"]) is (None if differs else row["holds"])


def test_a_doubled_equals_sign_when_read_by_0_25_then_is_part_of_the_value(amtool: Amtool) -> None:
    expected = True if amtool.is_classic else None
    assert amtool.holds("err_code == 79", {"err_code": "= 79"}) is expected
