"""The import contracts of ``pyproject.toml`` hold."""

from __future__ import annotations

from pathlib import Path

import pytest
from importlinter.cli import lint_imports

ROOT = Path(__file__).resolve().parents[2]


def test_import_contracts_when_checked_then_all_are_kept(capsys: pytest.CaptureFixture[str]) -> None:
    exit_code = lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True)

    said = capsys.readouterr().out
    assert exit_code == 0, said
    assert "0 broken" in said
