"""Ladders: one rung after the other while it does not help, and one higher when it comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Bench

LADDER = """
ladder: {within: 6h}
guard: {cooldown: 0s, max_runs: {count: 100, per: 24h}}
steps:
  - {name: ask, rung: 1, action: docker.signal, params: {container: "{{ labels.container_name }}", signal: SIGUSR1}}
  - {name: restart, rung: 2, action: docker.restart, params: {container: "{{ labels.container_name }}"}}
  - {name: stop, rung: 3, action: docker.stop, params: {container: "{{ labels.container_name }}"}}
verify: [{name: ratio, query: 'max(used{container_name="{{ labels.container_name }}"})', below: 0.8, within: 10m}]
escalate: {to: [oncall]}
"""

SIGNAL, RESTART, STOP = (f"docker.{verb} docker:gpu-07/trainer-0" for verb in ("signal", "restart", "stop"))


def ladder(bench: Bench, steps: str = LADDER) -> Bench:
    bench.restarts(steps=steps).start()
    bench.sees("ratio", 0.97)
    return bench


def comes_and_goes(bench: Bench, *, for_: str, then: str) -> None:
    """The alert fires, its run has time, it is resolved, and the next comes later."""
    bench.deliver(bench.fires(bench.leak()))
    bench.after(for_)
    bench.deliver(bench.resolved(bench.leak()))
    bench.after(then)


def test_ladder_when_a_rung_does_not_help_then_the_next_follows_in_the_same_run(bench: Bench) -> None:
    ladder(bench)
    bench.deliver(bench.fires(bench.leak()))
    bench.after("9m")
    assert bench.acts() == [SIGNAL]
    bench.after("2m")
    assert bench.acts() == [SIGNAL, RESTART]
    bench.sees("ratio", 0.5)
    bench.after("10m")
    assert bench.ended() == ("succeeded", "none")
    assert [(one.data["from"], one.data["to"]) for one in bench.events("rung_climbed")] == [(1, 2)]
    assert [one.data["rung"] for one in bench.events("verdict_given")] == [1, 2]


def test_ladder_when_no_rung_helps_then_it_ends_on_the_last_and_people_are_told_once(bench: Bench) -> None:
    ladder(bench)
    bench.deliver(bench.fires(bench.leak()))
    bench.after("45m")
    assert bench.acts() == [SIGNAL, RESTART, STOP]
    run = bench.run()
    assert (run["outcome"], run["reason"]) == ("ineffective", "did_not_help")
    assert (
        bench.events("run_finished")[0].data["detail"]
        == "it did not help after rung 3 of 3: ratio is 0.97, must be below 0.8"
    )
    assert len([line for line in bench.told() if line.startswith("oncall: done, did NOT help")]) == 1


def test_ladder_when_it_comes_back_in_time_then_one_rung_higher_and_at_last_it_stays_there(bench: Bench) -> None:
    ladder(bench)
    bench.sees("ratio", 0.5)
    for _ in range(4):
        comes_and_goes(bench, for_="10m", then="1h")
    assert bench.acts() == [SIGNAL, RESTART, STOP, STOP][: len(bench.acts())]
    assert [one.data["rung"] for one in bench.events("verdict_given") if one.data["word"] == "allow"] == [1, 2, 3, 3]


def test_ladder_when_it_comes_back_later_then_it_begins_at_the_bottom(bench: Bench) -> None:
    ladder(bench)
    bench.sees("ratio", 0.5)
    comes_and_goes(bench, for_="10m", then="7h")
    comes_and_goes(bench, for_="10m", then="1h")
    assert bench.acts() == [SIGNAL, SIGNAL]


def test_ladder_when_repeats_come_then_it_does_not_climb_faster(bench: Bench) -> None:
    ladder(bench)
    for _ in range(9):
        bench.deliver(bench.fires(bench.leak()))
        bench.after("1m")
    assert bench.acts() == [SIGNAL]


def test_ladder_when_the_subject_ends_while_it_is_verified_then_no_rung_follows(bench: Bench) -> None:
    ladder(bench)
    bench.deliver(bench.fires(bench.leak()))
    bench.after("5m")
    bench.deliver(bench.resolved(bench.leak()))
    bench.after("30m")
    assert bench.acts() == [SIGNAL]
    assert bench.ended() == ("ineffective", "did_not_help")


def test_ladder_when_nobody_knows_whether_it_helped_then_there_is_no_climbing(bench: Bench) -> None:
    ladder(bench)
    bench.sees("ratio")
    bench.deliver(bench.fires(bench.leak()))
    bench.after("30m")
    assert bench.acts() == [SIGNAL]
    assert bench.ended() == ("unverified", "no_value")


def test_ladder_when_a_rung_must_wait_then_the_target_stays_reserved_and_it_climbs_later(bench: Bench) -> None:
    ladder(bench)
    bench.deliver(bench.fires(bench.leak()))
    bench.after("5m")
    (bench.folder / "PAUSE").touch()
    bench.after("10m")
    assert bench.acts() == [SIGNAL]
    run = bench.run()
    assert (run["phase"], run["waits_for"]) == ("waiting", ["pause:paused"])
    assert bench.reserved() == ["docker:gpu-07/trainer-0"]
    (bench.folder / "PAUSE").unlink()
    bench.after("2m")
    assert bench.acts() == [SIGNAL, RESTART]


def test_ladder_when_the_engine_is_killed_on_a_rung_then_it_goes_on_there(bench: Bench) -> None:
    ladder(bench)
    bench.deliver(bench.fires(bench.leak()))
    bench.after("11m")
    bench.away("1m")
    bench.deliver(bench.fires(bench.leak()))
    bench.after("12m")
    assert bench.acts() == [SIGNAL, RESTART, STOP]


def test_ladder_when_its_last_rung_only_tells_people_then_it_ends_there_without_looking(bench: Bench) -> None:
    steps = LADDER.replace(
        '{name: stop, rung: 3, action: docker.stop, params: {container: "{{ labels.container_name }}"}}',
        '{name: tell, rung: 3, action: notify.send, params: {to: [ml-platform], title: "look", body: "{{ run.url }}"}}',
    )
    ladder(bench, steps)
    bench.deliver(bench.fires(bench.leak()))
    bench.after("21m")
    assert bench.acts() == [SIGNAL, RESTART]
    assert "ml-platform: look" in bench.told()
    assert bench.ended() == ("ineffective", "did_not_help")


def test_ladder_when_its_next_rung_finds_nothing_to_change_and_it_helped_then_the_run_did_something(
    bench: Bench,
) -> None:
    steps = LADDER.replace("signal: SIGUSR1", "signal: SIGKILL").replace("restart, rung: 2, action: docker.restart",
        "stop, rung: 2, action: docker.stop").replace("{name: stop, rung: 3", "{name: again, rung: 3")  # fmt: skip
    ladder(bench, steps)
    bench.deliver(bench.fires(bench.leak()))
    bench.after("9m")
    bench.sees("ratio", 0.97)
    bench.after("90s")
    bench.sees("ratio", 0.5)
    bench.after("10m")
    assert bench.acts() == [SIGNAL]
    assert bench.events("verdict_given")[-1].data["rung"] == 2
    assert bench.ended() == ("succeeded", "none")


def test_ladder_when_a_person_cancels_between_rungs_then_no_rung_follows(bench: Bench) -> None:
    ladder(bench)
    bench.deliver(bench.fires(bench.leak()))
    bench.after("5m")
    bench.engine.cancel(bench.run()["run_id"], "alice", "I look myself")
    bench.after("30m")
    assert bench.acts() == [SIGNAL]
    assert bench.ended() == ("cancelled", "cancelled_by_person")
