"""The shipped playbooks and the shipped policy, acting: what they measure, how they climb, what they give back."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Bench

SHIPPED = Path(__file__).resolve().parents[3] / "playbooks"
FLEETS = {"gpu_containers": {"kind": "container", "size": 64}}
HOT = {"alertname": "GPUHot", "hostname": "gpu-07", "gpu": "0", "UUID": "GPU-a", "container_name": "trainer-0"}
RESTART = "docker.restart docker:gpu-07/trainer-0"
LIMIT = "docker.limit docker:gpu-07/trainer-0"


@pytest.fixture
def shipped(bench: Bench) -> Bench:
    for file in SHIPPED.glob("*.yaml"):
        shutil.copy(file, bench.folder / "playbooks")
    bench.start(fleets=FLEETS)
    assert bench.engine.readiness().checks["playbooks"] == "ok"
    return bench


def fires(bench: Bench, labels: Mapping[str, str], **more: Any) -> None:
    bench.deliver(bench.fires(dict(labels), **more))


def test_restart_on_leak_when_the_restart_gives_the_memory_back_then_succeeded(shipped: Bench) -> None:
    shipped.sees("memory_held_mib", 70_000)
    shipped.sees("memory_ratio", 1.0)
    fires(shipped, shipped.leak(), annotations={"checkpoint_signal": "SIGUSR1"})
    shipped.after("9m")
    assert shipped.acts() == []
    shipped.after("2m")
    assert shipped.acts() == ["docker.signal docker:gpu-07/trainer-0", RESTART]
    shipped.sees("memory_ratio", 0.3)
    shipped.after("10m")
    assert shipped.ended() == ("succeeded", "none")


@pytest.mark.parametrize(
    ("held", "outcome"),
    [pytest.param((300,), "refused", id="it was let go"), pytest.param((), "", id="nobody knows")],
)
def test_restart_on_leak_when_no_memory_is_held_then_restarts_nothing(
    held: tuple[float, ...], outcome: str, shipped: Bench
) -> None:
    shipped.sees("memory_held_mib", *held)
    fires(shipped, shipped.leak())
    shipped.after("30m")
    assert (shipped.acts(), shipped.run()["outcome"]) == ([], outcome)


@pytest.mark.parametrize(("ratios", "outcome"), [((0.95,), "ineffective"), ((), "unverified")])
def test_restart_on_leak_when_it_did_not_help_or_nobody_knows_then_oncall_is_told(
    ratios: tuple[float, ...], outcome: str, shipped: Bench
) -> None:
    shipped.sees("memory_held_mib", 70_000)
    shipped.sees("memory_ratio", *ratios)
    fires(shipped, shipped.leak())
    shipped.after("40m")
    assert (shipped.acts(), shipped.run()["outcome"]) == ([RESTART], outcome)
    assert [line.partition(":")[0] for line in shipped.told()].count("oncall") == 1


def test_throttle_when_the_gpu_stays_hot_then_climbs_and_tells(shipped: Bench) -> None:
    shipped.sees("temp_c", 91)
    fires(shipped, HOT)
    shipped.after("40m")
    assert shipped.acts() == [LIMIT] * 3
    assert shipped.run()["outcome"] == "ineffective"
    assert any(line.startswith("oncall: ") for line in shipped.told())


def test_throttle_when_it_cools_and_is_over_then_what_it_had_comes_back(shipped: Bench) -> None:
    shipped.sees("temp_c", 91)
    fires(shipped, HOT)
    shipped.after("12m")
    shipped.sees("temp_c", 75)
    shipped.after("8m")
    assert (shipped.acts(), shipped.ended()) == ([LIMIT] * 2, ("succeeded", "none"))
    shipped.sees("temp_max_c", 80)
    shipped.deliver(shipped.resolved(HOT))
    shipped.after("30m")
    assert shipped.acts() == [LIMIT] * 2
    shipped.sees("temp_max_c", 70)
    shipped.after("30m")
    assert [event.data["outcome"] for event in shipped.events("undo_finished")] == ["succeeded"] * 2


def test_throttle_when_no_container_is_named_then_people_are_told(shipped: Bench) -> None:
    fires(shipped, {name: value for name, value in HOT.items() if name != "container_name"})
    shipped.after("5m")
    assert (shipped.acts(), shipped.ended()) == ([], ("succeeded", "none"))
    assert {line.partition(":")[0] for line in shipped.told()} == {"oncall", "ml-platform"}


def test_policy_when_three_restarts_do_not_help_then_its_breaker_holds_another_playbook_too(
    shipped: Bench,
) -> None:
    names = [f"job-{number}" for number in range(4)]
    for name in names:
        shipped.world.add_container("gpu-07", name)
    shipped.sees("memory_held_mib", 70_000)
    shipped.sees("memory_ratio", 1.0)
    for name in names[:3]:
        fires(shipped, shipped.leak(name))
    shipped.after("35m")
    assert len(shipped.acts()) == 3
    fires(shipped, {**HOT, "container_name": names[3]})
    shipped.after("5m")
    assert len(shipped.acts()) == 3
    assert [event.data["breaker"] for event in shipped.events("breaker_tripped")] == ["site"]
