"""``docs/howto/test-a-playbook.md``, done as it says, from a store with the incident that it speaks of."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pages import blocks_of, reader

if TYPE_CHECKING:
    from conftest import Bench

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "howto" / "test-a-playbook.md").read_text("utf-8")
SUMMARY = {"summary": "GPU memory of trainer-0 on gpu-07 grows without falling back"}


def incident(bench: Bench) -> Path:
    """A leak of an hour and a restart that did not help; the store that is left."""
    (playbook,) = [block for block in blocks_of(PAGE) if block.file == "playbooks/restart-on-leak.yaml"]
    bench.playbook(playbook.text)
    bench.start()
    bench.sees("memory_ratio", 0.97)
    bench.deliver(bench.fires(bench.leak(), annotations=SUMMARY))
    for _ in range(12):
        bench.after("5m")
        bench.deliver(bench.fires(bench.leak(), ago="5m"))
    bench.deliver(bench.resolved(bench.leak()))
    bench.stop()
    return bench.folder / "r.db"


def test_page_when_followed_command_by_command_then_all_is_as_it_says(bench: Bench, tmp_path: Path) -> None:
    folder = tmp_path / "site"
    folder.mkdir()
    shutil.copy(incident(bench), folder / "remediator.db")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"

    with reader(folder, {}, {"PATH": path}) as person:
        assert person.read(PAGE) == 8
