"""docs/safety.md names every rule of the guard, with every reason that it gives."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "safety.md").read_text("utf-8")
ROWS: list[dict[str, Any]] = YAML(typ="safe").load(ROOT / "tests" / "data" / "guard.yaml")
RULES = {rule for row in ROWS for rule in row.get("reasons", ())}
"""That each rule is in the guard's table another test sees to."""


def section(heading: str) -> str:
    return PAGE.partition(f"\n{heading}\n")[2].partition("\n#")[0]


def test_safety_page_when_the_guard_has_a_rule_then_it_says_what_it_does() -> None:
    named = set(re.findall(r"^\| `(\w+)` \|", section("## Every rule"), re.MULTILINE))
    assert named == RULES


def test_safety_page_when_the_guard_has_a_rule_then_it_says_how_to_see_it() -> None:
    named = set(re.findall(r"^\| `(\w+)` \|", section("## See which rule spoke"), re.MULTILINE))
    assert named >= RULES
