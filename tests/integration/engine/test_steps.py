"""Steps: conditions, failures, retries, time-outs, unknown outcomes and their settling, targets that change."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from remediator.actions.docker_restart import DockerRestart
from remediator.core.action import Change
from remediator.core.scenario import Failure
from remediator.errors import RequestError, UnknownEffectError

RESTARTED = "docker.restart docker:gpu-07/trainer-0"
OTHER = "docker.restart docker:gpu-07/trainer-1"

ENDS = """
escalate: {to: [oncall]}
report: {to: [ml-platform]}
"""


def begin(bench: Any, *steps: str, more: str = "", **labels: str) -> None:
    text = "steps:\n" + "".join(f"  - {step}\n" for step in steps) + ENDS
    bench.restarts(more, steps=text).start()
    bench.after("1m")
    bench.deliver(bench.fires(bench.leak(**labels)))


def restart(container: str = "trainer-0", more: str = "", name: str = "restart") -> str:
    return f"{{name: {name}, action: docker.restart, params: {{container: {container}}}, {more}}}"


def attempts(bench: Any) -> list[tuple[int, str, str]]:
    return [
        (event.data["attempt"], event.data["outcome"], event.data["reason"])
        for event in bench.events("attempt_finished")
        if event.data["step"].startswith("steps.")
    ]


def skipped(bench: Any) -> list[tuple[str, str, str]]:
    return [(event.data["step"], event.data["outcome"], event.data["reason"]) for event in bench.events("step_skipped")]


# -- if


@pytest.mark.parametrize(("gpu", "expected"), [("0", [RESTARTED, OTHER]), ("1", [OTHER])])
def test_if_when_it_is_known_at_plan_time_then_it_is_decided_there(bench: Any, gpu: str, expected: list[str]) -> None:
    begin(bench, restart(more='if: labels.gpu == "0"', name="first"), restart("trainer-1", name="second"), gpu=gpu)
    assert bench.acts() == expected
    planned = bench.events("plan_made")[0].data["plan"]["steps"][0]
    assert planned["runs"] == ("yes" if gpu == "0" else "no")


def test_if_when_it_is_false_then_params_that_lack_a_label_do_not_refuse(bench: Any) -> None:
    begin(
        bench,
        '{action: docker.stop, if: labels.sidecar != "", params: {container: "{{ labels.sidecar }}"}}',
        restart(),
    )
    assert bench.acts() == [RESTARTED]
    assert skipped(bench) == [("steps.step_1", "skipped", "condition")]


def test_if_when_it_speaks_of_an_earlier_step_then_it_is_decided_at_its_turn(bench: Any) -> None:
    bench.world.fail("docker.stop", Failure.PERMANENT)
    begin(
        bench,
        "{name: stop, action: docker.stop, params: {container: trainer-0}, on_failure: continue}",
        restart(more='if: steps.stop.outcome == "failed"'),
        restart("trainer-1", more='if: steps.stop.outcome == "succeeded"', name="other"),
    )
    assert bench.acts() == ["docker.stop docker:gpu-07/trainer-0", RESTARTED]
    assert skipped(bench) == [("steps.other", "skipped", "condition")]
    assert bench.ended() == ("succeeded", "none")
    assert bench.run()["events"][-3]["data"]["detail"] == "done, but for step stop, which failed"


def test_if_when_it_cannot_be_decided_at_its_turn_then_the_step_has_failed(bench: Any) -> None:
    begin(bench, restart(), restart("trainer-1", more="if: steps.restart.after.status | int > 3", name="other"))
    assert bench.acts() == [RESTARTED]
    assert bench.ended() == ("failed", "bad_params")


def test_if_when_all_are_false_then_the_run_is_unchanged(bench: Any) -> None:
    begin(bench, restart(more='if: labels.gpu == "7"'))
    assert bench.ended() == ("unchanged", "condition")
    assert bench.did() == []


def test_params_when_a_late_text_cannot_be_rendered_then_the_message_fails_and_the_run_goes_on(bench: Any) -> None:
    title = "'{{ steps.restart.after.status | int }}'"
    begin(bench, restart(), f"{{name: tell, action: notify.send, params: {{to: [oncall], title: {title}}}}}")
    assert attempts(bench) == [(1, "succeeded", "none"), (1, "failed", "bad_params")]
    assert bench.ended() == ("succeeded", "none")


# -- on_failure


def test_failure_when_a_step_fails_then_the_steps_after_it_do_not_come(bench: Any) -> None:
    bench.world.fail("docker.restart", Failure.PERMANENT)
    begin(bench, restart(), restart("trainer-1", name="other"))
    assert bench.acts() == [RESTARTED]
    assert bench.ended() == ("failed", "invalid_target")


def test_failure_when_on_failure_is_continue_then_they_come(bench: Any) -> None:
    bench.world.fail("docker.restart", Failure.PERMANENT)
    begin(bench, restart(more="on_failure: continue"), restart("trainer-1", name="other"))
    assert bench.acts() == [RESTARTED, OTHER]


def test_failure_when_all_steps_failed_and_went_on_then_the_run_has_failed(bench: Any) -> None:
    bench.world.fail("docker.restart", Failure.PERMANENT)
    begin(bench, restart(more="on_failure: continue"), "{action: notify.send, params: {to: [oncall], title: x}}")
    assert bench.ended() == ("failed", "invalid_target")


def test_failure_when_a_message_fails_for_good_then_the_acts_after_it_come(bench: Any) -> None:
    bench.world.fail("notify.send", Failure.PERMANENT)
    begin(bench, "{action: notify.send, params: {to: [oncall], title: x}}", restart())
    assert bench.acts() == [RESTARTED]
    assert bench.ended() == ("succeeded", "none")


# -- retry


def test_retry_when_failures_are_transient_then_it_waits_longer_each_time_and_succeeds(bench: Any) -> None:
    bench.world.fail("docker.restart", Failure.TRANSIENT, times=3)
    begin(bench, restart(more="retry: {attempts: 4, wait: 2s, max_wait: 5s, jitter: 0%}"))
    bench.after("1m")
    assert attempts(bench) == [(number, "failed", "transient") for number in (1, 2, 3)] + [(4, "succeeded", "none")]
    starts = [event.at for event in bench.events("attempt_started") if event.data["step"] == "steps.restart"]
    assert [late - early for early, late in pairwise(starts)] == [timedelta(seconds=seconds) for seconds in (2, 4, 5)]


def test_retry_when_attempts_are_used_up_then_the_run_has_failed(bench: Any) -> None:
    bench.world.fail("docker.restart", Failure.TRANSIENT, times=9)
    begin(bench, restart(more="retry: {attempts: 2, wait: 2s}"))
    bench.after("1h")
    assert len(attempts(bench)) == 2
    assert bench.ended() == ("failed", "transient")


def test_retry_when_only_a_budget_limits_then_no_attempt_starts_after_it(bench: Any) -> None:
    bench.world.fail("docker.restart", Failure.TRANSIENT, times=99)
    begin(bench, restart(more="retry: {budget: 60s, wait: 10s, max_wait: 10s, jitter: 0%}"))
    bench.after("1h")
    assert len(attempts(bench)) == 7
    assert bench.ended() == ("failed", "transient")


def test_retry_when_the_first_attempt_took_long_then_the_budget_counts_from_its_start(bench: Any) -> None:
    act = bench.world.act

    def slow(call: str, *args: Any) -> None:
        bench.clock.moment += timedelta(seconds=50)
        act(call, *args)

    bench.world.act = slow
    bench.world.fail("docker.restart", Failure.TRANSIENT, times=99)
    begin(bench, restart(more="retry: {budget: 60s, wait: 20s, max_wait: 20s, jitter: 0%}"))
    bench.after("1h")
    assert len(attempts(bench)) == 1


def test_retry_when_nothing_was_done_and_the_alert_is_resolved_then_the_run_is_cancelled(bench: Any) -> None:
    bench.restarts().start()
    bench.after("1m")
    bench.world.fail("docker.restart", Failure.TRANSIENT, times=1)
    bench.deliver(bench.fires(bench.leak()))
    bench.after("1s")
    bench.deliver(bench.resolved(bench.leak()))
    bench.after("10m")
    assert (bench.ended(), bench.world.n_writes("docker.restart")) == (("cancelled", "resolved"), 1)


def test_retry_when_a_failure_is_permanent_then_there_is_none(bench: Any) -> None:
    bench.world.fail("docker.restart", Failure.PERMANENT)
    begin(bench, restart())
    bench.after("1h")
    assert attempts(bench) == [(1, "failed", "invalid_target")]


@pytest.mark.parametrize("where", ["targets", "observe", "apply"])
def test_retry_when_an_action_raises_what_nobody_foresaw_then_there_is_none_and_people_are_told(
    bench: Any, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    begun = getattr(DockerRestart, where)
    calls: list[str] = []

    def surprise(self: Any, *args: Any) -> Any:
        calls.append(where)
        if where == "targets" and len(calls) == 1:  # asked for the verdict
            return begun(self, *args)
        raise ZeroDivisionError("surprise")

    monkeypatch.setattr(DockerRestart, where, surprise)
    begin(bench, restart())
    bench.after("1h")
    assert attempts(bench) == [(1, "failed", "unexpected")]
    assert bench.ended() == ("failed", "unexpected")
    assert [line.partition(":")[0] for line in bench.told()] == ["oncall"]


def test_retry_when_a_pause_outlasts_the_budget_then_the_step_has_failed(bench: Any) -> None:
    bench.world.fail("docker.restart", Failure.TRANSIENT)
    begin(bench, restart())
    bench.engine.pause("alice", "stop")
    bench.after("1h")
    bench.engine.resume("alice", "go on")
    bench.after("1m")
    assert bench.ended() == ("failed", "transient")
    assert len(bench.acts()) == 1


# -- time-outs and unknown outcomes


def test_timeout_when_the_target_shows_that_it_happened_then_the_step_succeeded_without_another_act(
    bench: Any,
) -> None:
    bench.world.fail("docker.restart", Failure.TIMEOUT_AFTER_EFFECT)
    begin(bench, restart())
    bench.after("1h")
    assert bench.acts() == [RESTARTED]
    assert attempts(bench) == [(1, "succeeded", "none")]
    assert bench.ended() == ("succeeded", "none")


def lost(bench: Any) -> None:
    """A restart that is sent, not done and not answered."""
    act = bench.world.act

    def loses(call: str, *args: Any) -> None:
        bench.world.act = act
        raise UnknownEffectError("no answer")

    bench.world.act = loses


def test_timeout_when_the_target_is_as_before_then_it_is_tried_again_only_after_the_timeout(bench: Any) -> None:
    lost(bench)
    begin(bench, restart(more="timeout: 5m"))
    bench.after("4m59s")
    assert bench.acts() == []
    bench.after("10s")
    assert attempts(bench) == [(1, "failed", "did_not_happen"), (2, "succeeded", "none")]
    assert bench.acts() == [RESTARTED]


def unknown(bench: Any, more: str = "") -> str:
    bench.world.fail("docker.restart", Failure.UNKNOWN)
    begin(bench, restart(), more=more)
    bench.after("6m")
    run_id: str = bench.run()["run_id"]
    return run_id


def test_unknown_when_nobody_can_tell_then_the_run_is_unknown_its_target_stays_and_people_are_told(
    bench: Any,
) -> None:
    run_id = unknown(bench)
    assert bench.ended() == ("unknown", "unknown_effect")
    assert bench.reserved() == ["docker:gpu-07/trainer-0"]
    assert bench.engine.status()["unsettled_runs"] == [run_id]
    assert bench.told()[0] == "oncall: outcome UNKNOWN: restart: trainer-0 gpu-07"
    bench.after("24h")
    assert len(bench.acts()) == 1


def test_unknown_when_another_playbook_wants_the_target_then_it_waits_busy(bench: Any) -> None:
    unknown(bench)
    text = "playbook: stop\nmatch: [alertname = Stop]\nsteps: [{action: docker.start, params: {container: trainer-0}}]"
    bench.playbook(text, "stop.yaml")
    bench.reload()
    bench.after("1s")
    bench.deliver(bench.fires({"alertname": "Stop"}))
    assert "busy:docker:gpu-07/trainer-0" in bench.newest()["waits_for"]
    bench.engine.settle(bench.runs()[1]["run_id"], True, "alice", "I looked")
    bench.engine.work()
    assert bench.newest()["outcome"] == "unchanged"


def test_unknown_when_the_subject_ends_and_the_engine_restarts_then_the_target_stays_reserved(bench: Any) -> None:
    unknown(bench)
    bench.deliver(bench.resolved(bench.leak()))
    bench.away("10m")
    bench.after("24h")
    assert bench.reserved() == ["docker:gpu-07/trainer-0"]


@pytest.mark.parametrize(("happened", "outcome"), [(True, "unverified"), (False, "failed")])
def test_settle_when_a_person_says_what_became_of_it_then_the_run_ends_so_and_nobody_is_told_again(
    bench: Any, happened: bool, outcome: str
) -> None:
    run_id = unknown(bench)
    n_told = len(bench.told())
    bench.engine.settle(run_id, happened, "alice", "I looked")
    bench.after("1h")
    assert bench.ended() == (outcome, "settled_by_person")
    assert bench.reserved() == []
    assert len(bench.acts()) == 1
    assert len(bench.told()) == n_told
    assert bench.run()["phase"] == "closed"
    with pytest.raises(RequestError, match="nothing to settle"):
        bench.engine.settle(run_id, happened, "alice", "again")


def test_settle_when_it_comes_later_then_the_run_has_ended_when_it_ended(bench: Any) -> None:
    run_id = unknown(bench)
    ended_at = bench.run()["ended_at"]
    bench.after("1h")
    bench.engine.settle(run_id, True, "alice", "I looked")
    assert bench.run()["ended_at"] == ended_at


def test_settle_when_the_run_is_not_unknown_then_it_says_so(bench: Any) -> None:
    begin(bench, restart())
    with pytest.raises(RequestError, match="nothing to settle"):
        bench.engine.settle(bench.run()["run_id"], True, "alice", "why not")


def test_unknown_when_the_action_is_idempotent_then_it_is_tried_again_on_what_is_there_now(bench: Any) -> None:
    bench.world.fail("docker.stop", Failure.UNKNOWN)
    begin(bench, "{name: stop, action: docker.stop, params: {container: trainer-0}, timeout: 2m}")
    bench.after("10m")
    assert attempts(bench) == [(1, "failed", "unknown_effect")]
    assert skipped(bench) == [("steps.stop", "unchanged", "replaced")]
    assert bench.ended() == ("unchanged", "replaced")


# -- targets that change


def replaced(bench: Any, labels: dict[str, str]) -> None:
    """A container made anew while a message, the first step, is sent: after the verdict."""
    tell = bench.world.tell

    def tells(*args: Any) -> None:
        bench.world.tell = tell
        bench.world.add_container("gpu-07", "trainer-0", labels=labels)

    bench.world.tell = tells
    begin(bench, "{name: tell, action: notify.send, params: {to: [oncall], title: x}}", restart())


def test_target_when_made_anew_since_the_verdict_then_it_is_not_touched(bench: Any) -> None:
    replaced(bench, {})
    assert bench.acts() == []
    assert bench.ended() == ("unchanged", "replaced")
    assert skipped(bench) == [("steps.restart", "unchanged", "replaced")]


def test_target_when_it_belongs_to_somebody_else_since_the_verdict_then_it_is_refused(bench: Any) -> None:
    replaced(bench, {"com.docker.compose.project": "web", "com.docker.compose.service": "db"})
    assert bench.acts() == []
    assert bench.ended() == ("refused", "target_changed")


def test_target_when_it_is_gone_since_the_verdict_then_the_step_has_failed(bench: Any) -> None:
    tell = bench.world.tell

    def tells(*args: Any) -> None:
        bench.world.tell = tell
        bench.world.remove_container("gpu-07", "trainer-0")

    bench.world.tell = tells
    begin(bench, "{name: tell, action: notify.send, params: {to: [oncall], title: x}}", restart())
    assert bench.ended() == ("failed", "target_not_found")


def test_target_when_it_is_already_so_then_the_run_is_unchanged_and_no_cooldown_begins(bench: Any) -> None:
    bench.world.set_status("gpu-07", "trainer-0", "exited")
    begin(bench, "{name: stop, action: docker.stop, params: {container: trainer-0}}")
    assert bench.ended() == ("unchanged", "already_so")
    assert bench.did() == []


def test_target_when_it_is_a_swarm_task_then_the_run_is_refused_with_the_reason(bench: Any) -> None:
    bench.world.add_container("gpu-07", "trainer-0", labels={"com.docker.swarm.task.id": "x"})
    begin(bench, restart())
    assert bench.ended() == ("refused", "invalid_target")
    assert "docker service update" in bench.run()["events"][-3]["data"]["detail"]


def test_apply_when_it_says_nothing_changed_then_the_step_is_unchanged(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        DockerRestart,
        "apply",
        lambda self, params, clients, before, timeout: Change(changed=False, before={}, after={}),
    )
    begin(bench, restart())
    assert bench.ended() == ("unchanged", "already_so")
