"""What ``replay`` says of deliveries, runs and people: one is one, and nothing is said of what there is none of."""

from __future__ import annotations

from typing import Any

import pytest

from remediator.cli.replay_text import print_replay

BY = {"by": "alice", "at": "2026-03-01T12:00:00+00:00"}


def answer(*, warm_up: int, runs: int, people: int, assumed: int) -> dict[str, Any]:
    """Of one run more than there are people whose act means nothing any more."""
    nothing = {"did": "approve", "run_id": "0b8e06d25dbaedbb", "means": False, "why": "it asks nobody", **BY}
    return {
        "since": "2026-03-01T00:00:00+00:00",
        "until": "2026-03-08T00:00:00+00:00",
        "begins": "2026-02-28T00:00:00+00:00",
        "deliveries": {"decided": runs, "warm_up": warm_up, "refused": 0},
        "notes": [],
        "by_playbook": [],
        "differences": [],
        "people": [{**nothing, "means": True}, *[nothing] * people],
        "cannot_know": [],
        "assumed": [{"means": "acts succeed", "kind": "act", "times": assumed, "runs": ["a"] * assumed}],
        "runs": {"recorded": runs, "same": runs, "new": 0, "gone": 0, "different": 0},
    }


@pytest.mark.parametrize(
    ("count", "says"),
    [
        pytest.param(
            1,
            [
                "  1 delivery",
                "  before it 1 delivery, from 2026-02-28 00:00:00 UTC on: what these started is",
                "what people did: 1 of 2 done again; what means nothing here:",
                "  - acts succeed: 1 time, in 1 run (act)",
                "no difference: 1 run the same",
            ],
            id="one of each",
        ),
        pytest.param(
            2,
            [
                "  2 deliveries",
                "  before it 2 deliveries, from 2026-02-28 00:00:00 UTC on: what these started is",
                "what people did: 1 of 3 done again; what means nothing here:",
                "  - acts succeed: 2 times, in 2 runs (act)",
                "no difference: 2 runs the same",
            ],
            id="two of each",
        ),
    ],
)
def test_replay_when_printed_then_one_is_one(
    count: int, says: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    print_replay(answer(warm_up=count, runs=count, people=count, assumed=count), 10)

    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line in says] == says


def test_replay_when_nothing_came_before_then_nothing_is_said_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    print_replay(answer(warm_up=0, runs=3, people=0, assumed=1), 10)

    said = capsys.readouterr().out
    assert "before it" not in said
    assert "what people did: 1 of 1 done again\n" in said


def test_replay_when_acts_differ_then_each_has_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    signal, restart = "docker.signal docker:gpu-07/trainer-0 {}", "docker.restart docker:gpu-07/trainer-0 {}"
    different = {
        "kind": "different",
        "playbook": "leak",
        "case": "",
        "at": "2026-03-01T12:00:00+00:00",
        "per": {"host": "gpu-07"},
        "targets": [],
        "what": [{"what": "acts", "was": f"{signal}; {restart}", "would_be": ""}],
        "was": {"acts": [signal, restart]},
        "would_be": {"acts": []},
        "rests_on": [],
        "incident": "remediator incident RUN",
        "url": "",
    }

    print_replay({**answer(warm_up=0, runs=1, people=0, assumed=0), "differences": [different]}, 10)

    said = capsys.readouterr().out
    assert f"    acts:\n      - {signal}\n      - {restart}\n      + (nothing)\n" in said
