"""Rule groups as YAML: whatever a text holds, it is read as it was."""

from __future__ import annotations

from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from remediator.loading.rule_write import write_rules

# What YAML cannot hold is not in any file, so it never comes here.
TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x00"), min_size=1)
LONG = st.lists(st.from_regex(r"[!-~]{1,30}", fullmatch=True), min_size=5, max_size=40).map(" ".join)
TRICKY = st.sampled_from(
    ["yes", "1e3", "5m", "null", "a: b", "a #b", "- a", "'", '"', "{{ $value }}", " a", "a ", "~", "x:"]
)
VALUE = TEXT | LONG | TRICKY
LINES = st.lists(st.from_regex(r" {0,3}[!-~][ -~]{0,20}[!-~]", fullmatch=True), min_size=1, max_size=5).map("\n".join)


def groups_of(expression: str, value: str) -> list[dict[str, Any]]:
    rule = {"alert": "A", "expr": expression, "for": "2m", "labels": {"a": value}, "annotations": {"b": value}}
    return [{"name": "g", "interval": "15s", "rules": [{"record": "x:y:z", "expr": expression}, rule]}]


@settings(max_examples=50, deadline=None)
@given(expression=LINES, value=VALUE)
def test_rules_when_written_then_are_read_as_they_were(expression: str, value: str) -> None:
    groups = groups_of(expression, value)
    text = write_rules(groups, ["a comment: {"])
    assert YAML(typ="safe", pure=True).load(text) == {"groups": groups}
    assert yaml.safe_load(text) == {"groups": groups}


def test_rules_when_written_then_look_as_people_write_them() -> None:
    long = "It is hot. " * 10 + "Said he."
    groups = [
        {
            "name": "hot",
            "interval": "15s",
            "rules": [
                {"record": "threshold:heat:celsius", "expr": "vector(85)", "labels": {"severity": "warning"}},
                {
                    "alert": "Hot",
                    "expr": "a > 1\nor\n  b",
                    "for": "1m",
                    "labels": {"severity": "warning", "n": "1"},
                    "annotations": {"summary": "It's {{ $value }}", "description": long},
                },
            ],
        }
    ]
    assert write_rules(groups, ["Made.", ""]) == (
        "# Made.\n"
        "#\n"
        "groups:\n"
        "  - name: hot\n"
        "    interval: 15s\n"
        "    rules:\n"
        "      - record: threshold:heat:celsius\n"
        "        expr: vector(85)\n"
        "        labels: {severity: warning}\n"
        "      - alert: Hot\n"
        "        expr: |-\n"
        "          a > 1\n"
        "          or\n"
        "            b\n"
        "        for: 1m\n"
        "        labels: {severity: warning, n: '1'}\n"
        "        annotations:\n"
        "          summary: 'It''s {{ $value }}'\n"
        "          description: >-\n"
        f"            {'It is hot. ' * 9}It is\n"
        "            hot. Said he.\n"
    )
