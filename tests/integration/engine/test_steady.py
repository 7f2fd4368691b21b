"""Looks that can see nothing new are left out of stories, and nobody could tell from the log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from remediator.actions import LOOKING
from remediator.app import App, StoryApp, story_workshop
from remediator.engine.playtest import play_file
from remediator.loading.scenarios import load_tests

SHIPPED = Path(__file__).resolve().parents[3] / "playbooks"
FILES = [SHIPPED / f"{name}.test.yaml" for name in ("restart-on-leak", "throttle-on-overheat")]


def logs(folder: Path) -> dict[str, list[Any]]:
    """What each third scenario of the files left, by its name."""
    loaded = load_tests(FILES, actions=LOOKING)
    assert loaded.problems == ()
    found = {}
    for number, file in enumerate(loaded.files):
        place = folder / str(number)
        place.mkdir(parents=True)
        for result in play_file(file, file.scenarios[::3], story_workshop(), place):
            assert result.is_ok, result
            found[result.scenario.name] = [one.event for one in result.events]
    return found


def test_story_when_looks_are_left_out_then_its_log_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_works: list[int] = [0]
    work = App.work

    def counted(self: App) -> Any:
        n_works[-1] += 1
        return work(self)

    monkeypatch.setattr(App, "work", counted)
    short = logs(tmp_path / "short")
    n_works.append(0)
    monkeypatch.setattr(StoryApp, "note_steady", lambda *_: None)  # each look of a real engine

    assert logs(tmp_path / "whole") == short
    assert len(short) > 8
    assert n_works[0] < n_works[1] / 2
