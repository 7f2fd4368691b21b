"""``docs/playbooks.md``: every example loads, every key of the format is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from ruamel.yaml import YAML

from remediator.actions import REGISTRY
from remediator.core.action import TargetKind
from remediator.core.policy import Fleet
from remediator.loading import LoadContext, load
from remediator.loading.format import (
    ApprovalKeys,
    BreakerKeys,
    ConditionKeys,
    GuardKeys,
    LadderKeys,
    MaxTargetsKeys,
    NamedCaseKeys,
    PlaybookKeys,
    PolicyKeys,
    RetryKeys,
    StepKeys,
    UndoKeys,
    VerifyKeys,
)

PAGE = (Path(__file__).parents[2] / "docs" / "playbooks.md").read_text("utf-8")
EXAMPLES = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
CONTEXT = LoadContext(
    actions=REGISTRY,
    notify_targets=frozenset({"oncall", "ml-platform"}),
    fleets={"gpu_containers": Fleet(name="gpu_containers", kind=TargetKind.CONTAINER, size=64)},
)

WHOLE = {"playbook": "example", "match": ["alertname = X"], "steps": [{"action": "noop"}]}
"""What single keys are put into."""


def id_of(example: str) -> str:
    return example.partition("\n")[0]


@pytest.mark.parametrize("example", EXAMPLES, ids=id_of)
def test_example_when_loaded_then_has_no_problem(example: str, tmp_path: Path) -> None:
    file = tmp_path / "example.yaml"
    file.write_text(example, "utf-8")
    keys: dict[str, Any] = YAML(typ="safe", pure=True).load(example)
    if not {"playbook", "policy"} & keys.keys():
        missing = {key: value for key, value in WHOLE.items() if key not in keys}
        with file.open("a", encoding="utf-8") as stream:
            YAML(typ="safe", pure=True).dump(missing, stream)
    assert [problem.located() for problem in load([file], context=CONTEXT).problems] == []


def test_examples_when_counted_then_are_there() -> None:
    assert len(EXAMPLES) > 15


MODELS = (
    *(PlaybookKeys, NamedCaseKeys, GuardKeys, StepKeys, PolicyKeys, VerifyKeys, ConditionKeys, UndoKeys),
    *(ApprovalKeys, LadderKeys, MaxTargetsKeys, BreakerKeys, RetryKeys),
)


def keys_of(*models: type[BaseModel]) -> list[str]:
    return sorted({info.alias or name for model in models for name, info in model.model_fields.items()})


@pytest.mark.parametrize("key", keys_of(*MODELS))
def test_key_when_it_is_in_the_format_then_the_page_explains_it(key: str) -> None:
    assert f"`{key}`" in PAGE
