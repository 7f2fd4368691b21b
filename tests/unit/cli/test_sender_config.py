"""What doctor says about an Alertmanager's configuration: a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from remediator.cli.finding import Level
from remediator.cli.sender_config import WEBHOOK_PATH, judge_sender
from remediator.core.units import parse_duration
from remediator.web.webhook import PATH

TABLE: dict[str, Any] = YAML(typ="safe", pure=True).load(
    (Path(__file__).parents[2] / "data" / "sender_config.yaml").read_text()
)


@pytest.mark.parametrize("row", TABLE["rows"], ids=lambda row: row["id"])
def test_sender_config_when_judged_then_says_what_the_table_has(row: dict[str, Any]) -> None:
    findings = list(judge_sender("am", row["config"], tuple(TABLE["our_urls"]), parse_duration(TABLE["expire_after"])))

    said = [f"{finding.level} {finding.text}" for finding in findings]
    expected = [words.partition(" ") for words in row["says"]]
    assert len(said) == len(expected), said
    for level, _, words in expected:
        assert any(line.startswith(level) and words in line for line in said), (words, said)
    assert all(finding.advice for finding in findings if finding.level is not Level.OK)


def test_webhook_path_when_compared_with_the_server_s_then_is_the_same() -> None:
    assert WEBHOOK_PATH == PATH
