"""The page on writing actions shows an action that works."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from remediator import actions
from remediator.errors import ConflictError

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "write-an-action.md"
ACTION, TEST = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
MODULE = "remediator.actions.marker_set"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    made = types.ModuleType(MODULE)
    monkeypatch.setitem(sys.modules, MODULE, made)
    exec(compile(ACTION, str(PAGE), "exec"), made.__dict__)
    return made


def test_page_when_its_action_is_put_into_its_file_then_it_is_found(module: types.ModuleType) -> None:
    assert actions._action_of(module).name == "marker.set"


def test_page_when_its_test_is_run_then_it_passes(module: types.ModuleType, tmp_path: Path) -> None:
    names: dict[str, Any] = {"MarkerSet": module.MarkerSet}
    exec(compile(TEST, str(PAGE), "exec"), names)
    (test,) = [value for name, value in names.items() if name.startswith("test_")]
    test(tmp_path)


def test_page_when_others_set_their_marker_over_ours_then_its_undo_leaves_it(
    module: types.ModuleType, tmp_path: Path
) -> None:
    action = module.MarkerSet()
    params = module.MarkerSetParams(node="gpu-07", folder=tmp_path)
    change = action.apply(params, None, {}, action.default_timeout)
    (tmp_path / "gpu-07").write_text("alice: new fan")
    with pytest.raises(ConflictError, match="not ours any more"):
        action.undo(params, None, change.after, change.before, action.default_timeout)
    assert (tmp_path / "gpu-07").read_text() == "alice: new fan"
