"""Its turn: holds, time away, stale, latched, stop_on_resolve, cancels, modes, pauses."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from remediator.core.scenario import Failure
from remediator.errors import RequestError

RESTARTED = "docker.restart docker:gpu-07/trainer-0"

TWO_STEPS = """
steps:
  - {name: first, action: docker.restart, params: {container: trainer-0}}
  - {name: second, action: docker.restart, params: {container: trainer-1}}
escalate: {to: [oncall]}
report: {to: [ml-platform]}
"""

SLOW_RETRY = """
steps:
  - name: restart
    action: docker.restart
    params: {container: trainer-0}
    retry: {wait: 20m, max_wait: 1h, budget: 24h}
escalate: {to: [oncall]}
"""


def begin(bench: Any, more: str = "", **how: Any) -> None:
    """A playbook in force since a minute, and an alert that fires."""
    bench.restarts(more, **how).start()
    bench.after("1m")
    bench.deliver(bench.fires(bench.leak()))


def between_steps(bench: Any, do: Any) -> None:
    """Let ``do`` happen while the first container is restarted: before the next step."""
    act = bench.world.act

    def acts(call: str, *args: Any) -> None:
        bench.world.act = act
        act(call, *args)
        bench.clock.moment += timedelta(seconds=1)
        do()

    bench.world.act = acts


# -- hold


def test_hold_when_it_is_over_and_it_still_fires_then_it_acts_and_not_before(bench: Any) -> None:
    begin(bench, "hold: 10m")
    bench.after("9m59s")
    assert bench.did() == []
    bench.after("1s")
    assert bench.acts() == [RESTARTED]


def test_hold_when_repeats_come_then_it_does_not_start_anew(bench: Any) -> None:
    begin(bench, "hold: 10m")
    for _ in range(9):
        bench.after("1m")
        bench.deliver(bench.fires(bench.leak()))
    bench.after("1m")
    assert bench.acts() == [RESTARTED]


def test_hold_when_resolved_in_it_then_the_run_is_cancelled_and_nobody_is_told(bench: Any) -> None:
    begin(bench, "hold: 10m")
    bench.after("5m")
    bench.deliver(bench.resolved(bench.leak()))
    assert bench.ended() == ("cancelled", "resolved")
    bench.after("1h")
    assert bench.did() == []


def test_hold_when_resolved_and_it_fires_again_then_a_new_hold_begins(bench: Any) -> None:
    begin(bench, "hold: 10m")
    bench.after("5m")
    bench.deliver(bench.resolved(bench.leak()))
    bench.after("1s")
    bench.deliver(bench.fires(bench.leak()))
    bench.after("9m")
    assert bench.acts() == []
    bench.after("1m")
    assert bench.acts() == [RESTARTED]
    assert [row["outcome"] for row in bench.runs()] == ["succeeded", "cancelled"]


# -- time away


def test_turn_when_the_engine_was_down_four_minutes_then_it_acts(bench: Any) -> None:
    begin(bench, "hold: 10m")
    bench.after("8m")
    bench.away("4m")
    assert bench.acts() == [RESTARTED]


def test_turn_when_the_engine_was_down_and_the_last_word_is_young_then_it_acts(bench: Any) -> None:
    begin(bench, "hold: 10m")
    bench.away("29m")
    assert bench.acts() == [RESTARTED]


@pytest.mark.parametrize("down", ["40m", "10h"])
def test_turn_when_the_engine_was_down_for_long_then_it_waits_for_the_next_word(bench: Any, down: str) -> None:
    begin(bench, "hold: 10m")
    bench.away(down)
    bench.after("1h")
    assert bench.acts() == []
    assert bench.run()["waits_for"] == ["turn:not_known_to_fire"]
    bench.deliver(bench.fires(bench.leak(), ago="5h"))
    assert bench.acts() == [RESTARTED]


def test_turn_when_it_waits_for_a_word_then_people_are_told_after_tell_after(bench: Any) -> None:
    begin(bench, "hold: 10m")
    bench.away("40m")
    bench.after("59m")
    assert bench.told() == []
    bench.after("2h")
    assert bench.told() == ["oncall: still waiting to act: restart: trainer-0 gpu-07"]
    bench.deliver(bench.fires(bench.leak(), ago="5h"))
    assert bench.acts() == [RESTARTED]


def test_turn_when_no_word_comes_before_the_episode_expires_then_the_run_is_stale(bench: Any) -> None:
    begin(bench, "hold: 10m\nguard: {tell_after: 100h}")
    bench.away("40m")
    bench.after("9h")
    assert bench.ended() == ("stale", "expired")
    assert bench.did() == []


def test_turn_when_resolved_while_the_engine_was_down_then_nothing_is_done(bench: Any) -> None:
    begin(bench, "hold: 10m")
    bench.away("40m")
    bench.deliver(bench.resolved(bench.leak(), ago="30m"))
    bench.after("1h")
    assert bench.ended() == ("cancelled", "resolved")
    assert bench.did() == []


def test_turn_when_the_engine_is_up_then_a_word_hours_old_is_enough(bench: Any) -> None:
    begin(bench, "hold: 3h")
    bench.after("3h")
    assert bench.acts() == [RESTARTED]


def test_retry_when_the_engine_was_down_long_then_the_next_attempt_waits_for_a_word(bench: Any) -> None:
    bench.world.fail("docker.restart", Failure.TRANSIENT)
    begin(bench, steps=SLOW_RETRY)
    bench.away("1h")
    bench.after("1h")
    assert len(bench.acts()) == 1
    bench.deliver(bench.fires(bench.leak(), ago="2h"))
    assert len(bench.acts()) == 2
    assert [event.data["word"] for event in bench.events("verdict_given")] == ["allow", "allow"]


def test_retry_when_judged_anew_after_an_absence_and_it_must_wait_then_people_are_told_once(bench: Any) -> None:
    bench.world.fail("docker.restart", Failure.TRANSIENT)
    begin(bench, steps=SLOW_RETRY)
    bench.away("1h")
    bench.after("5h")
    assert bench.told() == ["oncall: still waiting to act: restart: trainer-0 gpu-07"]


def test_retry_when_resolved_while_the_engine_was_away_then_the_run_is_cancelled(bench: Any) -> None:
    bench.world.fail("docker.restart", Failure.TRANSIENT)
    begin(bench)
    bench.stop()
    bench.clock.moment += timedelta(minutes=6)
    bench.start()
    bench.deliver(bench.resolved(bench.leak(), ago="3m"))
    assert (bench.ended()[0], len(bench.acts())) == ("cancelled", 1)


def test_retry_when_its_budget_passed_while_the_engine_was_away_then_the_step_has_failed(bench: Any) -> None:
    bench.world.fail("docker.restart", Failure.TRANSIENT)
    begin(bench)
    bench.away("29m")
    bench.after("1h")
    assert bench.ended() == ("failed", "transient")
    assert len(bench.acts()) == 1


def test_verify_when_the_engine_was_away_then_that_time_does_not_count_in_within(bench: Any) -> None:
    begin(bench, "verify: [{alert: resolved, within: 30m}]")
    bench.after("10m")
    bench.away("5h")
    bench.after("19m")
    assert bench.run()["phase"] == "verifying"
    bench.deliver(bench.resolved(bench.leak()))
    assert bench.ended() == ("succeeded", "none")


def test_verify_when_it_still_fires_after_within_then_it_is_ineffective(bench: Any) -> None:
    begin(bench, "verify: [{alert: resolved, within: 30m}]")
    bench.after("29m")
    assert bench.run()["phase"] == "verifying"
    bench.after("1m")
    assert bench.ended() == ("ineffective", "still_firing")
    assert [line.partition(":")[0] for line in bench.told()] == ["oncall", "ml-platform"]


def test_verify_when_the_episode_expires_then_it_is_unverified(bench: Any) -> None:
    begin(bench, "verify: [{alert: resolved, within: 12h}]")
    bench.after("10h")
    assert bench.ended() == ("unverified", "no_value")


# -- latched, stop_on_resolve


def test_latched_when_resolved_in_the_hold_then_it_acts_and_the_subject_ends_with_the_run(bench: Any) -> None:
    begin(bench, "hold: 10m\nlatched: true")
    bench.after("1m")
    bench.deliver(bench.resolved(bench.leak()))
    assert bench.engine.status()["open_subjects"] == 1
    bench.after("10m")
    assert bench.acts() == [RESTARTED]
    assert bench.engine.status()["open_subjects"] == 0


def test_latched_when_the_same_fault_fires_again_before_the_end_then_it_joins(bench: Any) -> None:
    begin(bench, "hold: 10m\nlatched: true")
    for _ in range(4):
        bench.after("1m")
        bench.deliver(bench.resolved(bench.leak()))
        bench.after("1m")
        bench.deliver(bench.fires(bench.leak()))
    bench.after("1h")
    assert bench.acts() == [RESTARTED]
    assert len(bench.runs()) == 1


def test_latched_when_no_word_came_for_twelve_hours_then_it_is_stale_and_people_are_told(bench: Any) -> None:
    begin(bench, "hold: 10m\nlatched: true\nguard: {tell_after: 100h}")
    bench.engine.pause("tester", "hold it")
    bench.after("1m")
    bench.deliver(bench.resolved(bench.leak()))
    bench.after("11h50m")
    assert bench.run()["phase"] == "waiting"
    bench.after("11m")
    assert bench.ended() == ("stale", "not_known_to_fire")
    assert len(bench.told()) == 1
    assert bench.engine.status()["open_subjects"] == 0


def test_latched_when_the_engine_was_down_then_it_is_held_to_fire(bench: Any) -> None:
    begin(bench, "hold: 10m\nlatched: true")
    bench.away("5h")
    assert bench.acts() == [RESTARTED]


def test_resolve_when_the_run_is_at_work_then_it_goes_on_to_its_end(bench: Any) -> None:
    between_steps(bench, lambda: bench.deliver_later(bench.resolved(bench.leak())))
    begin(bench, steps=TWO_STEPS)
    assert len(bench.acts()) == 2
    assert bench.ended() == ("succeeded", "none")


def test_resolve_when_stop_on_resolve_is_set_then_the_run_ends_before_the_next_step(bench: Any) -> None:
    between_steps(bench, lambda: bench.deliver_later(bench.resolved(bench.leak())))
    begin(bench, "stop_on_resolve: true", steps=TWO_STEPS)
    assert bench.acts() == [RESTARTED]
    assert bench.ended() == ("cancelled", "resolved")
    assert bench.told() == ["ml-platform: cancelled: restart: trainer-0 gpu-07"]


@pytest.mark.parametrize("how", ["resolved", "cancelled"])
def test_end_of_one_run_when_it_fires_again_a_second_later_then_the_next_run_is_not_touched_by_it(
    bench: Any, how: str
) -> None:
    def ends() -> None:
        if how == "cancelled":
            bench.engine.cancel(bench.run()["run_id"], "alice", "I look at it myself")
        bench.deliver_later(bench.resolved(bench.leak()))
        bench.clock.moment += timedelta(seconds=1)
        bench.deliver_later(bench.fires(bench.leak()))

    between_steps(bench, ends)
    begin(bench, "stop_on_resolve: true\nguard: {cooldown: 0s}", steps=TWO_STEPS)
    bench.after("1m")
    reason = "resolved" if how == "resolved" else "cancelled_by_person"
    assert [(row["outcome"], row["reason"]) for row in bench.runs()] == [("succeeded", "none"), ("cancelled", reason)]
    assert bench.acts() == [RESTARTED, RESTARTED, "docker.restart docker:gpu-07/trainer-1"]


# -- cancel


def test_cancel_when_it_holds_then_the_run_ends_at_once(bench: Any) -> None:
    begin(bench, "hold: 10m")
    bench.engine.cancel(bench.run()["run_id"], "alice", "I do it myself")
    bench.engine.work()
    assert bench.ended() == ("cancelled", "cancelled_by_person")
    bench.after("1h")
    assert bench.did() == []


def test_cancel_when_it_comes_during_a_step_then_the_run_ends_after_that_step(bench: Any) -> None:
    between_steps(bench, lambda: bench.engine.cancel(bench.run()["run_id"], "alice", "stop"))
    begin(bench, steps=TWO_STEPS)
    assert bench.acts() == [RESTARTED]
    assert bench.ended() == ("cancelled", "cancelled_by_person")


def test_cancel_when_it_waits_for_a_retry_then_there_is_no_further_attempt(bench: Any) -> None:
    bench.world.fail("docker.restart", Failure.TRANSIENT)
    begin(bench)
    bench.engine.cancel(bench.run()["run_id"], "alice", "stop")
    bench.after("1h")
    assert len(bench.acts()) == 1
    assert bench.ended() == ("cancelled", "cancelled_by_person")


def test_cancel_when_it_waits_for_its_turn_then_the_run_ends(bench: Any) -> None:
    begin(bench)
    bench.after("1s")
    bench.deliver(bench.resolved(bench.leak()))
    bench.after("1s")
    bench.deliver(bench.fires(bench.leak()))
    bench.engine.cancel(bench.newest()["run_id"], "alice", "stop")
    bench.after("1h")
    assert len(bench.acts()) == 1
    assert bench.newest()["outcome"] == "cancelled"


def test_cancel_when_it_is_verified_then_the_run_ends_and_its_target_is_free(bench: Any) -> None:
    begin(bench, "verify: [{alert: resolved, within: 30m}]")
    bench.engine.cancel(bench.run()["run_id"], "alice", "I see that it helped")
    bench.engine.work()
    assert bench.ended() == ("cancelled", "cancelled_by_person")
    assert bench.reserved() == []


def test_cancel_when_the_run_has_ended_then_it_says_so(bench: Any) -> None:
    begin(bench)
    with pytest.raises(RequestError, match="has ended already"):
        bench.engine.cancel(bench.run()["run_id"], "alice", "late")
    with pytest.raises(RequestError, match="no run"):
        bench.engine.cancel("nope", "alice", "what")


def test_cancel_when_the_engine_is_killed_right_after_then_the_run_ends_at_the_next_start(bench: Any) -> None:
    begin(bench, "hold: 10m")
    bench.engine.cancel(bench.run()["run_id"], "alice", "stop")
    bench.away("20m")
    assert bench.ended() == ("cancelled", "cancelled_by_person")
    assert bench.acts() == []


# -- modes and edits


def change(bench: Any, what: str) -> None:
    match what:
        case "gone":
            (bench.folder / "playbooks" / "restart.yaml").unlink()
            bench.playbook("policy: site\n", "site.policy.yaml")
        case "disabled" | "observe":
            text = (bench.folder / "playbooks" / "restart.yaml").read_text()
            bench.playbook(f"{text}\nmode: {what}\n", "restart.yaml")
        case "policy":
            bench.playbook("policy: site\nmode: observe\n", "site.policy.yaml")


REASONS = {
    "gone": "playbook_gone",
    "disabled": "playbook_disabled",
    "observe": "mode_observe",
    "policy": "mode_observe",
}


@pytest.mark.parametrize("what", REASONS)
def test_mode_when_it_is_taken_away_in_the_hold_then_the_run_is_cancelled_and_people_are_told(
    bench: Any, what: str
) -> None:
    begin(bench, "hold: 10m")
    change(bench, what)
    bench.reload()
    bench.after("20m")
    assert bench.ended() == ("cancelled", REASONS[what])
    assert bench.did() == ["tell oncall"]


@pytest.mark.parametrize("what", REASONS)
def test_mode_when_it_is_taken_away_between_two_acts_then_the_second_does_not_come(bench: Any, what: str) -> None:
    def edit() -> None:
        change(bench, what)
        bench.engine.reload("tester")

    between_steps(bench, edit)
    begin(bench, steps=TWO_STEPS)
    bench.after("20m")
    assert bench.acts() == [RESTARTED]
    assert bench.ended() == ("cancelled", REASONS[what])
    assert len(bench.told()) == 2


def test_edit_when_steps_change_in_the_hold_then_the_run_keeps_the_plan_it_was_made_with(bench: Any) -> None:
    begin(bench, "hold: 10m")
    text = (bench.folder / "playbooks" / "restart.yaml").read_text()
    bench.playbook(text.replace("docker.restart", "docker.stop"), "restart.yaml")
    bench.reload()
    bench.after("11m")
    assert bench.acts() == [RESTARTED]


def test_reload_when_a_file_is_bad_then_the_whole_old_set_stays_in_force(bench: Any) -> None:
    bench.restarts().start()
    bench.after("1m")
    bench.playbook("playbook: other\nmatsh: [a = b]\n", "other.yaml")
    report = bench.reload()
    bench.deliver(bench.fires(bench.leak()))
    assert not report["ok"]
    assert bench.acts() == [RESTARTED]
    assert "other.yaml:2" in bench.engine.readiness().checks["playbooks"]


def test_load_when_the_folder_is_empty_then_the_log_warns_at_the_start_and_after_a_reload(bench: Any) -> None:
    nothing = "no playbook is in force: nothing will be done about any alert"
    with capture_logs() as at_start:
        bench.start()
    bench.restarts()
    with capture_logs() as with_one:
        bench.reload()
    (bench.folder / "playbooks" / "restart.yaml").unlink()
    with capture_logs() as without_it:
        bench.reload()
    said = [[line["event"] for line in lines].count(nothing) for lines in (at_start, with_one, without_it)]
    assert said == [1, 0, 1]


def test_observe_when_it_fires_then_the_run_is_observed_and_nothing_is_touched_told_or_counted(bench: Any) -> None:
    begin(bench, "mode: observe\nresolved: [{action: notify.send, params: {to: [oncall], title: over}}]")
    bench.after("1m")
    bench.deliver(bench.resolved(bench.leak()))
    bench.after("1h")
    assert bench.ended() == ("observed", "mode_observe")
    assert bench.did() == []
    assert bench.run()["events"][-1]["data"]["detail"] == "mode is observe; the verdict was allow"


def test_observe_when_a_label_is_missing_then_nobody_is_told(bench: Any) -> None:
    bench.restarts("mode: observe").start()
    bench.after("1m")
    bench.deliver(bench.fires(bench.leak("")))
    assert (bench.ended()[0], bench.did()) == ("refused", [])


# -- pause


def test_pause_when_in_force_then_acts_wait_and_go_on_after_resume(bench: Any) -> None:
    bench.restarts().start()
    bench.engine.pause("alice", "maintenance")
    bench.after("1m")
    bench.deliver(bench.fires(bench.leak()))
    bench.after("20m")
    assert bench.did() == []
    assert bench.run()["waits_for"] == ["pause:paused"]
    bench.engine.resume("alice", "done")
    bench.engine.work()
    assert bench.acts() == [RESTARTED]


def test_pause_when_it_comes_between_two_acts_then_the_second_waits(bench: Any) -> None:
    between_steps(bench, lambda: bench.engine.pause("alice", "stop"))
    begin(bench, steps=TWO_STEPS)
    bench.after("3h")
    assert bench.acts() == [RESTARTED]
    bench.engine.resume("alice", "go on")
    bench.after("1m")
    assert len(bench.acts()) == 2
    assert bench.ended() == ("succeeded", "none")


def test_pause_when_in_force_then_messages_pass(bench: Any) -> None:
    steps = "steps: [{action: notify.send, params: {to: [ml-platform], title: it leaks}}]"
    bench.restarts(steps=steps).start()
    bench.engine.pause("alice", "maintenance")
    bench.after("1m")
    bench.deliver(bench.fires(bench.leak()))
    assert bench.told() == ["ml-platform: it leaks"]


def test_pause_when_it_is_a_file_then_acts_wait_until_it_is_gone(bench: Any) -> None:
    bench.restarts().start()
    bench.after("1m")
    (bench.folder / "PAUSE").touch()
    bench.deliver(bench.fires(bench.leak()))
    bench.after("10m")
    assert bench.acts() == []
    (bench.folder / "PAUSE").unlink()
    bench.after("1m")
    assert bench.acts() == [RESTARTED]


def test_pause_when_the_engine_restarts_then_it_stays_paused(bench: Any) -> None:
    bench.restarts().start()
    bench.engine.pause("alice", "maintenance")
    bench.away("2m")
    bench.deliver(bench.fires(bench.leak()))
    assert bench.acts() == []
    with pytest.raises(RequestError, match="already paused by alice"):
        bench.engine.pause("bob", "me too")


def test_pause_when_the_last_word_is_lost_then_an_expired_alert_is_not_acted_on_at_resume(bench: Any) -> None:
    bench.restarts("guard: {tell_after: 100h}").start()
    bench.after("1m")
    reserver = bench.engine.pipeline._reserver
    decide = reserver.reserve

    def reserve_then_pause(*args: Any, **how: Any) -> Any:
        answer = decide(*args, **how)
        bench.engine.pause("tester", "between verdict and act")
        return answer

    reserver.reserve = reserve_then_pause
    bench.deliver(bench.fires(bench.leak()))
    reserver.reserve = decide
    bench.after("10h")
    bench.engine.resume("tester", "go on")
    bench.after("1m")
    assert bench.ended() == ("stale", "expired")
    assert bench.acts() == []
