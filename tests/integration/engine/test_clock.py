"""A clock that is set back, or that stands still: what came after what is told by the log's order alone."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Bench

STEP_ASKS = """
steps:
  - name: stop
    action: docker.stop
    params: {container: "{{ labels.container_name }}"}
    approval: {ask: [ml-platform]}
"""


def asking(bench: Bench) -> str:
    """A run whose step has asked; its id."""
    bench.restarts(steps=STEP_ASKS).start()
    bench.deliver(bench.fires(bench.leak()))
    found: str = bench.run()["run_id"]
    return found


def test_yes_when_it_comes_in_the_moment_of_the_question_then_it_is_judged_again(bench: Bench) -> None:
    run_id = asking(bench)
    bench.engine.approve(run_id, "alice", "looks right")
    bench.engine.work()
    assert [one.data["word"] for one in bench.events("verdict_given")] == ["allow", "allow"]
    assert len(bench.acts()) == 1


def test_yes_when_the_clock_was_set_back_before_it_then_it_is_judged_again(bench: Bench) -> None:
    run_id = asking(bench)
    bench.clock.moment -= timedelta(hours=1)
    bench.world.add_container("gpu-07", "trainer-0")
    bench.engine.approve(run_id, "alice", "looks right")
    bench.engine.work()
    assert bench.acts() == []
    assert bench.ended() == ("refused", "target_changed")


def test_yes_when_the_clock_is_set_back_after_it_then_it_is_judged_once_and_acts(bench: Bench) -> None:
    run_id = asking(bench)
    bench.after("1m")
    (bench.folder / "PAUSE").touch()
    bench.engine.approve(run_id, "alice", "looks right")
    bench.engine.work()
    bench.clock.moment -= timedelta(minutes=30)
    (bench.folder / "PAUSE").unlink()
    bench.engine.work()
    assert len(bench.acts()) == 1
    assert [one.data["word"] for one in bench.events("verdict_given")][-1] == "allow"
    assert len(bench.events("verdict_given")) <= 3
