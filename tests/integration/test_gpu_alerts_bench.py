"""The machinery of the GPU alerts' benchmark on minutes: promtool says when alerts fire, and a story is judged."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bench.gpu_alerts import judge_batch
from bench.gpu_stories import Draft, Explained, Story, Wanted
from bench.gpu_timeline import RuleError, firings

pytestmark = pytest.mark.alertmanager

LOST_S, ENDS_S = 480, 900
WANTED = Wanted(
    labels={"alertname": "GPUECCUncorrectable", "gpu": "1"}, from_s=LOST_S, by_s=LOST_S + 60, until_s=ENDS_S
)
FOLLOWS = tuple(Explained(labels={"alertname": name, "gpu": "1"}) for name in ("GPUXid", "GPURowRemapPending"))


def story(name: str) -> Story:
    """A GPU of two has a memory error that cannot be mended."""
    draft = Draft(name=name, n_gpus=2)
    draft.job("trainer", "*", ramp="30s")
    draft.faults.append({"kind": "ecc-uncorrected", "where": draft.at("1"), "at": f"{LOST_S}s"})
    return Story(
        name=name,
        family="errors",
        exporters="DCGM",
        scenario=draft.scenario(ENDS_S, seed=7),
        step_s=15,
        duration_s=ENDS_S,
        wanted=(WANTED,),
        explained=FOLLOWS,
    )


def test_judge_batch_when_a_fault_is_planted_then_it_is_found_and_where_nobody_planted_it_is_false(
    tmp_path: Path, find_tool: Callable[[str], Path]
) -> None:
    known = story("planted")
    unknown = replace(story("unknown"), wanted=(), explained=FOLLOWS, is_healthy=True)
    late = replace(story("late"), wanted=(replace(WANTED, by_s=LOST_S - 1),))
    found, wrong, too_late = judge_batch([known, unknown, late], find_tool("promtool"), tmp_path / "test.json")
    (fate,) = found.fates
    assert fate.is_in_time
    assert fate.n_alerts == 1
    assert fate.first_s == pytest.approx(LOST_S, abs=31)
    assert found.false == ()
    assert [one.labels["alertname"] for one in wrong.false] == ["GPUECCUncorrectable"]
    assert wrong.false[0].labels["UUID"] != ""
    assert not too_late.fates[0].is_in_time
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def rules(tmp_path: Path) -> Callable[[str], Path]:
    """A file with one alert."""

    def write(expr: str) -> Path:
        file = tmp_path / "rules.yml"
        rule = {"alert": "Now", "expr": expr, "labels": {"severity": "warning"}}
        file.write_text(json.dumps({"groups": [{"name": "g", "rules": [rule]}]}))
        return file

    return write


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        # More evaluations than one number has bits, from the first on, over its edges, and the last one.
        ("up * 0 + time() % 1200 < 300", [(0, 300), (1200, 1500), (2400, 2415)]),
        ("up + time() >= 742", [(750, 2415)]),
        ("up > 5", []),
    ],
)
def test_firings_when_an_alert_comes_and_goes_then_each_time_is_told(
    tmp_path: Path, find_tool: Callable[[str], Path], rules: Callable[[str], Path], expr: str, expected: list[object]
) -> None:
    found = firings(
        find_tool("promtool"),
        tmp_path / "test.json",
        [('up{instance="a"}', "1+0x200")],
        scrape_s=15,
        evaluate_s=15,
        duration_s=2400,
        rule_files=[rules(expr)],
    )
    assert [(one.begins_s, one.ends_s) for one in found] == expected
    assert all(one.labels == {"alertname": "Now", "instance": "a", "severity": "warning"} for one in found)


def test_firings_when_a_rule_cannot_be_evaluated_then_it_says_so(
    tmp_path: Path, find_tool: Callable[[str], Path], rules: Callable[[str], Path]
) -> None:
    series = [(f'up{{instance="{name}"}}', "1+0x10") for name in "ab"]
    with pytest.raises(RuleError, match="many-to-many"):
        firings(
            find_tool("promtool"),
            tmp_path / "test.json",
            series,
            scrape_s=15,
            evaluate_s=15,
            duration_s=60,
            rule_files=[rules("up * on () up")],
        )
