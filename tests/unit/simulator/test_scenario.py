"""Scenario files: what is wrong in one is said with its line, and the stories that come along can be played."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from simulator.cluster import Cluster
from simulator.scenario import STORIES, ScenarioError, find_story, load, parse

ROWS: list[dict[str, Any]] = YAML(typ="safe").load(Path(__file__).parents[2] / "data" / "scenario_errors.yaml")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_parse_when_something_is_wrong_then_each_problem_is_said_with_its_line(row: dict[str, Any]) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse(row["text"], "s.yaml")
    lines = str(caught.value).splitlines()
    assert [line.startswith(f"s.yaml:{says}") for line, says in zip(lines, row["says"], strict=True)] == [True] * len(
        lines
    ), lines


def test_find_story_when_there_is_none_then_those_that_there_are_are_named() -> None:
    with pytest.raises(ScenarioError, match="healthy, idle"):
        find_story("no-such-story")


def test_cluster_when_a_job_does_not_fit_then_it_says_where_and_how_much_there_is() -> None:
    scenario = parse(
        """
        about: x
        duration: 1h
        jobs:
          - {name: a, gpus: ["gpu-01:0"], pod: a, memory: {weights_gib: 40}}
          - {name: b, gpus: ["gpu-01:0"], pod: b}
        """
    )
    with pytest.raises(ScenarioError, match=r"job a holds up to 85\.\d GiB, and on gpu-01:0 there are 17\.\d for it"):
        Cluster(scenario)


@pytest.mark.parametrize("path", sorted(STORIES.glob("*.yaml")), ids=lambda path: path.stem)
def test_stories_when_loaded_then_each_is_named_as_its_file_and_fits_its_gpus(path: Path) -> None:
    scenario = load(path.stem)
    assert (scenario.name, len(Cluster(scenario).gpus) > 0) == (path.stem, True)


def test_readme_when_its_scenario_is_taken_as_it_stands_then_it_can_be_played() -> None:
    readme = (STORIES.parent / "README.md").read_text()
    text = readme.partition("## A scenario")[2].partition("```yaml\n")[2].partition("```")[0]
    assert len(Cluster(parse(text)).gpus) == 16
