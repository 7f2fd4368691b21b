"""The import contracts of ``pyproject.toml`` hold."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_import_contracts_when_checked_then_all_are_kept() -> None:
    # In a process of its own: the linter sets up logging for its process, and switches off every logger that it finds.
    check = "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True))"
    done = subprocess.run(
        [sys.executable, "-c", check], cwd=ROOT, capture_output=True, text=True, timeout=240, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout
