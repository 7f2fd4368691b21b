"""In what two decisions of one run differ, and what is luck."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from remediator.core.decision import AT_ONCE, IN_LINE, Decision, differences

AFTER = timedelta(minutes=5)

WAS = Decision(
    run_id="r", playbook="restart", case="", per={}, labels={}, fingerprint="", is_by_hand=False,
    at=datetime(2026, 3, 1, tzinfo=UTC), targets=("docker:gpu-07/trainer-0",), acts=("docker.restart",), undoes=(),
    acts_after=AFTER, asks=(), tells=("report: ml-platform",), waits=frozenset(), rungs=(),
    outcome="succeeded", reason="none", why="", is_luck=False,
)  # fmt: skip

QUEUED: dict[str, Any] = {"waits": frozenset({"busy_target"})}


def what(was: Decision, would_be: Decision) -> list[str]:
    return [change.what for change in differences(was, would_be)]


@pytest.mark.parametrize(
    ("would_be", "differs"),
    [
        pytest.param({}, [], id="nothing"),
        pytest.param({"outcome": "ineffective", "reason": "did_not_help"}, [], id="whether it helped is luck"),
        pytest.param(
            {"outcome": "failed", "tells": ("escalate: oncall",)}, [], id="who is told of another end is luck too"
        ),
        pytest.param({"outcome": ""}, [], id="one that is not over yet has not decided otherwise"),
        pytest.param({"outcome": "refused", "reason": "protected"}, ["ends"], id="a refusal is a decision"),
        pytest.param({"tells": ("report: others",)}, ["tells"], id="who is told of the same end is decided"),
        pytest.param({"tells": (*WAS.tells, "still_firing: oncall")}, [], id="that it fires on is luck"),
        pytest.param({"acts": ()}, ["acts"], id="an act that is not done"),
        pytest.param({"acts_after": AFTER + AT_ONCE}, [], id="a minute later is at one time"),
        pytest.param({"acts_after": AFTER + 2 * AT_ONCE}, ["acts_after"], id="two minutes are not"),
        pytest.param(QUEUED | {"acts_after": AFTER + IN_LINE}, [], id="in line behind others' acts they are"),
        pytest.param({"waits": frozenset({"cooldown"})}, ["waits"], id="a wait for a limit is decided"),
        pytest.param({"undoes": ("docker.limit",)}, ["undoes"], id="what is taken back is decided"),
        pytest.param({"undoes": ("docker.limit",), "is_luck": True}, [], id="unless others changed it"),
        pytest.param({"asks": ("oncall",)}, ["asks"], id="who is asked"),
        pytest.param({"rungs": ("2",)}, ["rungs"], id="how far it climbs"),
    ],
)
def test_differences_when_two_decisions_are_compared_then_luck_is_none(
    would_be: dict[str, Any], differs: list[str]
) -> None:
    other = replace(WAS, **would_be)
    assert (what(WAS, other), what(other, WAS)) == (differs, differs)
