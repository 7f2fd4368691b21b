"""``docs/howto/thresholds-by-stage.md``, done as it says."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pages import blocks_of, reader
from realparts.process import free_port

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "howto" / "thresholds-by-stage.md").read_text("utf-8")


@pytest.mark.alertmanager
def test_page_when_followed_command_by_command_then_all_is_as_it_says(
    find_tool: Callable[[str], Path], tmp_path: Path
) -> None:
    programs = [Path(sys.executable).parent, find_tool("promtool").parent, os.environ["PATH"]]
    with reader(tmp_path, {}, {"PATH": ":".join(map(str, programs))}) as person:
        assert person.read(PAGE) == 6


def test_loop_when_the_page_shows_it_then_runs(tmp_path: Path) -> None:
    (loop,) = [block.text for block in blocks_of(PAGE) if block.language == "python"]
    done = subprocess.run(
        [sys.executable, "-c", loop.replace("9300", str(free_port()))],
        capture_output=True,
        text=True,
        timeout=120,
        env={"PYTHONPATH": str(ROOT / "deploy" / "training")},
    )
    assert (done.returncode, done.stderr) == (0, "")
