"""What stories of every kind leave in the log, recorded: each run's recording comes out as the story did."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from remediator.actions import LOOKING
from remediator.app import story_workshop
from remediator.engine.playtest import Engine, play_file
from remediator.engine.recording import record_run
from remediator.errors import RequestError
from remediator.loading.scenarios import load_tests

STORIES = Path(__file__).resolve().parents[2] / "data" / "stories"

CANNOT_BE_TOLD = {"a share of a fleet that nobody can count is refused"}
"""A fleet's size is in no log."""


def recordings(made: list[tuple[str, bool]], name: str) -> Callable[..., Engine]:
    """An engine that records all its runs when its story ends."""
    workshop = story_workshop()

    def build(settings: Any, clients: Any, clock: Any, loaded: Any) -> Engine:
        app: Any = workshop.build(settings, clients, clock, loaded)
        halt = app.halt

        def record_and_halt() -> None:
            now = clock.now() + timedelta(seconds=1)
            del made[:]  # of an engine that was killed in the story
            for row in app.runs(1000, "all"):
                with app._store.read() as conn:
                    try:
                        recording = record_run(
                            conn, row["run_id"], settings, loaded, workshop, is_disguised=False, now=now
                        )
                    except RequestError:
                        continue  # not ended: the story kills its engine in the middle
                made.append((f"{name}: {row['playbook']}", recording.is_as_it_was))
            halt()

        app.halt = record_and_halt
        return app

    return build


@pytest.mark.parametrize("path", sorted(STORIES.glob("*.test.yaml")), ids=lambda path: path.name)
def test_every_run_of_every_story_when_recorded_then_comes_out_as_it_was(path: Path, tmp_path: Path) -> None:
    (file,) = load_tests([path], actions=LOOKING).files
    wrong = set()
    n_recorded = 0
    for scenario in file.scenarios:
        made: list[tuple[str, bool]] = []
        workshop = replace(story_workshop(), build=recordings(made, scenario.name))
        (result,) = play_file(file, [scenario], workshop, tmp_path)
        assert result.is_ok, scenario.name
        n_recorded += len(made)
        wrong |= {scenario.name for _, is_as_it_was in made if not is_as_it_was}

    assert n_recorded
    assert wrong <= CANNOT_BE_TOLD
