"""The tests of the shipped playbooks and of the demo's, run as users run them; nothing in these files is untested."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from remediator.cli import cli

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("folder", ["playbooks", "deploy/demo/playbooks"])
def test_shipped_playbooks_when_their_tests_are_run_then_all_pass_and_nothing_is_untested(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)

    result = CliRunner().invoke(cli, ["test", folder, "--jobs", "1", "--coverage", "--fail-under", "100"])

    assert result.exit_code == 0, result.output
    n_files = len([file for file in (ROOT / folder).glob("*.yaml") if not file.name.endswith(".test.yaml")])
    assert len(result.output.split("ok    ")) == n_files + 1, "each file has tests of its own"
