"""Who is told what, and how often: report, escalate, still_firing; steps for when it is over."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from remediator.core.scenario import Failure
from remediator.errors import ActionError, PermanentActionError, Reason, TransientActionError

RESTARTED = "docker.restart docker:gpu-07/trainer-0"


def begin(bench: Any, more: str = "", **how: Any) -> None:
    bench.restarts(more, **how).start()
    bench.after("1m")
    bench.deliver(bench.fires(bench.leak()))


def resolve(bench: Any) -> None:
    bench.after("1s")
    bench.deliver(bench.resolved(bench.leak()))


def fire(bench: Any) -> None:
    bench.after("1s")
    bench.deliver(bench.fires(bench.leak()))


def lost_messages(bench: Any) -> float:
    found: float = bench.engine.metrics.registry.get_sample_value("remediator_lost_messages_total")
    return found


# -- report and escalate


def test_report_when_a_run_acted_then_its_end_is_told_once(bench: Any) -> None:
    begin(bench)
    bench.after("20m")
    assert bench.told() == ["ml-platform: done: restart: trainer-0 gpu-07"]


def test_report_when_a_run_changed_nothing_then_nobody_is_told(bench: Any) -> None:
    bench.restarts(steps="steps: [{action: docker.start, params: {container: trainer-0}}]\nreport: {to: [ml-platform]}")
    bench.start()
    bench.after("1m")
    fire(bench)
    bench.after("1h")
    assert bench.ended() == ("unchanged", "already_so")
    assert bench.did() == []


def test_escalate_when_it_failed_and_fires_on_then_people_are_told(bench: Any) -> None:
    bench.world.fail("docker.restart", Failure.PERMANENT)
    begin(bench)
    bench.after("3h")
    assert bench.told() == ["oncall: FAILED: restart: trainer-0 gpu-07"]


def test_escalate_when_it_ended_while_firing_and_is_over_before_the_message_then_people_are_told(bench: Any) -> None:
    begin(bench, "hold: 10m")
    bench.playbook("policy: site\nprotect: ['name = trainer-0']\n", "site.policy.yaml")
    bench.reload()
    bench.world.fail("notify.send", Failure.TRANSIENT)
    bench.after("10m")
    assert bench.ended() == ("refused", "protected")
    resolve(bench)  # before the retry of the message
    bench.after("1h")
    assert len(bench.told()) == 1


def test_escalate_when_the_message_fails_then_it_is_tried_again(bench: Any) -> None:
    bench.world.fail("docker.restart", Failure.PERMANENT)
    bench.world.fail("notify.send", Failure.TRANSIENT, times=2)
    begin(bench)
    bench.after("1m")
    assert bench.told() == ["oncall: FAILED: restart: trainer-0 gpu-07"]
    assert lost_messages(bench) == 0


@pytest.mark.parametrize(
    ("fails", "times"),
    [(Failure.PERMANENT, 1), (Failure.TRANSIENT, 99)],
    ids=["at once, for good", "as often as it is tried"],
)
def test_escalate_when_the_message_does_not_get_through_then_it_counts_as_lost_once(
    bench: Any, fails: Failure, times: int
) -> None:
    bench.world.fail("docker.restart", Failure.PERMANENT)
    bench.world.fail("notify.send", fails, times=times)
    begin(bench)
    bench.after("20m")
    assert (bench.told(), lost_messages(bench)) == ([], 1)


def test_escalate_when_the_same_ending_comes_again_within_the_cooldown_then_it_is_told_once(bench: Any) -> None:
    bench.world.fail("docker.restart", Failure.PERMANENT, times=3)
    begin(bench, "guard: {cooldown: 1h}")
    for _ in range(2):
        bench.after("25m")
        resolve(bench)
        fire(bench)
    assert len(bench.runs()) == 3
    assert len(bench.told()) == 1
    bench.after("2h")
    resolve(bench)
    bench.world.fail("docker.restart", Failure.PERMANENT)
    fire(bench)
    assert len(bench.told()) == 2


def test_escalate_when_the_cooldown_is_short_then_it_is_told_at_most_once_in_30_minutes(bench: Any) -> None:
    bench.world.fail("docker.restart", Failure.PERMANENT, times=9)
    begin(bench, "guard: {cooldown: 0s}")
    for _ in range(5):
        bench.after("7m")
        resolve(bench)
        fire(bench)
    assert len(bench.told()) == 2


def test_escalate_when_other_values_end_so_then_they_are_told_too(bench: Any) -> None:
    bench.world.fail("docker.restart", Failure.PERMANENT, times=2)
    begin(bench)
    bench.deliver(bench.fires(bench.leak("trainer-1")))
    assert len(bench.told()) == 2


def test_escalate_when_nobody_is_named_then_nobody_is_told(bench: Any) -> None:
    bench.world.fail("docker.restart", Failure.PERMANENT)
    begin(bench, steps="steps: [{action: docker.restart, params: {container: trainer-0}}]")
    bench.after("3h")
    assert bench.told() == []
    assert bench.run()["phase"] == "closed"


def test_report_when_the_engine_is_killed_before_it_then_it_is_told_after_the_start(bench: Any) -> None:
    tell = bench.world.tell

    def dies(*args: Any) -> None:
        raise SystemExit

    bench.world.tell = dies
    with pytest.raises(SystemExit):
        begin(bench)
    bench.world.tell = tell
    bench.away("1m")
    told = [event.data["outcome"] for event in bench.events("attempt_finished") if "message" in event.data["step"]]
    assert told == ["failed"]  # begun, and nobody knows whether it went out
    assert bench.acts() == [RESTARTED]


# -- still firing


def test_still_firing_when_it_fires_a_cooldown_after_success_then_people_are_told_once(bench: Any) -> None:
    begin(bench, "guard: {cooldown: 2h}")
    for _ in range(10):
        bench.after("1h")
        bench.deliver(bench.fires(bench.leak(), ago="1h"))
    assert bench.told() == [
        "ml-platform: done: restart: trainer-0 gpu-07",
        "oncall: still fires after it was done: restart: trainer-0 gpu-07",
    ]
    assert bench.acts() == [RESTARTED]
    assert bench.world.writes[-1].at - bench.world.writes[0].at == timedelta(hours=2)


def test_still_firing_when_it_is_resolved_in_time_then_nobody_is_told(bench: Any) -> None:
    begin(bench, "guard: {cooldown: 2h}")
    bench.after("1h59m")
    resolve(bench)
    bench.after("3h")
    assert [line.partition(":")[0] for line in bench.told()] == ["ml-platform"]


def test_still_firing_when_the_engine_restarts_meanwhile_then_people_are_told_once(bench: Any) -> None:
    begin(bench, "guard: {cooldown: 2h}")
    bench.after("1h")
    bench.away("3h")
    bench.after("1m")
    bench.away("1m")
    bench.after("3h")
    assert [line.partition(":")[0] for line in bench.told()] == ["ml-platform", "oncall"]


# -- steps for when it is over

OVER = "resolved: [{action: notify.send, params: {to: [oncall], title: it is over}}]"


def test_resolved_when_it_is_over_for_the_hold_then_its_steps_come_once(bench: Any) -> None:
    begin(bench, f"hold: 10m\n{OVER}")
    bench.after("15m")
    resolve(bench)
    bench.after("9m")
    assert "oncall: it is over" not in bench.told()
    bench.after("5h")
    assert bench.told().count("oncall: it is over") == 1
    assert bench.run()["phase"] == "closed"


def test_resolved_when_it_fires_again_within_the_hold_then_its_steps_are_dropped(bench: Any) -> None:
    begin(bench, f"hold: 10m\n{OVER}")
    bench.after("15m")
    resolve(bench)
    bench.after("5m")
    fire(bench)
    bench.after("1m")
    resolve(bench)
    bench.after("5h")
    assert "oncall: it is over" not in bench.told()


def test_resolved_when_nothing_was_done_then_its_steps_do_not_come(bench: Any) -> None:
    begin(bench, f"hold: 10m\n{OVER}")
    bench.after("5m")
    resolve(bench)
    bench.after("5h")
    assert bench.did() == []


def test_resolved_when_only_a_message_was_sent_then_its_steps_come(bench: Any) -> None:
    begin(bench, OVER, steps="steps: [{action: notify.send, params: {to: [ml-platform], title: it leaks}}]")
    bench.after("5m")
    resolve(bench)
    bench.after("5m")
    assert bench.told() == ["ml-platform: it leaks", "oncall: it is over"]


def test_resolved_when_the_episode_only_expired_then_its_steps_do_not_come(bench: Any) -> None:
    begin(bench, OVER)
    bench.after("20h")
    assert "oncall: it is over" not in bench.told()
    assert bench.run()["phase"] == "closed"


def test_resolved_when_it_is_over_before_the_run_has_ended_then_its_steps_come_after_the_report(bench: Any) -> None:
    begin(bench, f"verify: [{{alert: resolved, within: 1h}}]\n{OVER}")
    bench.after("5m")
    resolve(bench)
    assert bench.told() == ["ml-platform: done: restart: trainer-0 gpu-07", "oncall: it is over"]


def test_resolved_when_it_starts_what_was_stopped_then_it_may(bench: Any) -> None:
    steps = """
steps: [{action: docker.stop, params: {container: trainer-0}}]
resolved: [{action: docker.start, params: {container: trainer-0}}]
"""
    begin(bench, steps=steps)
    bench.after("1m")
    resolve(bench)
    assert bench.acts() == ["docker.stop docker:gpu-07/trainer-0", "docker.start docker:gpu-07/trainer-0"]


def test_resolved_when_another_run_has_the_target_then_the_step_fails_and_does_not_touch_it(bench: Any) -> None:
    steps = """
steps: [{action: docker.stop, params: {container: trainer-0}}]
resolved: [{action: docker.start, params: {container: trainer-0}}]
"""
    bench.playbook(
        "playbook: other\nmatch: [alertname = Other]\nguard: {cooldown: 0s}\n"
        "steps: [{action: docker.restart, params: {container: trainer-0}}]\n"
        "verify: [{alert: resolved, within: 10h}]\n",
        "other.yaml",
    )
    begin(bench, steps=steps)
    bench.after("1m")
    bench.deliver(bench.fires({"alertname": "Other"}))
    resolve(bench)
    bench.after("1h")
    assert bench.acts() == ["docker.stop docker:gpu-07/trainer-0", RESTARTED]


def test_resolved_when_paused_then_acts_wait_and_messages_pass(bench: Any) -> None:
    steps = f"""
steps: [{{action: docker.stop, params: {{container: trainer-0}}}}]
{OVER[:-1]}, {{action: docker.start, params: {{container: trainer-0}}}}]
"""
    begin(bench, steps=steps)
    bench.after("1m")
    bench.engine.pause("alice", "hold")
    resolve(bench)
    bench.after("1h")
    assert bench.told() == ["oncall: it is over"]
    assert len(bench.acts()) == 1
    bench.engine.resume("alice", "go")
    bench.after("1m")
    assert len(bench.acts()) == 2


# -- the escalation that fails


def is_deaf(bench: Any, *names: str, fails: type[ActionError] = TransientActionError) -> None:
    """Messages to these do not arrive."""
    tell = bench.world.tell

    def telling(to: str, *message: Any) -> None:
        if to in names:
            raise fails(f"notification target {to}: did not take the message", reason=Reason.NOTIFY)
        tell(to, *message)

    bench.world.tell = telling


def fails_with(bench: Any, *others: str) -> None:
    """A run that fails; the settings name these beside oncall, whom the playbook names."""
    bench.world.fail("docker.restart", Failure.PERMANENT, times=9)
    bench.restarts().start(escalate_to=list(others))
    bench.after("1m")
    bench.deliver(bench.fires(bench.leak()))


def unheard(bench: Any) -> tuple[float, str, bool]:
    """The metric, and what ``/readyz`` says."""
    readiness = bench.engine.readiness()
    counted = bench.engine.metrics.registry.get_sample_value("remediator_unheard_escalations_total")
    return counted, readiness.checks["messages"], readiness.checks["store"] == "ok"


@pytest.mark.parametrize("fails", [TransientActionError, PermanentActionError])
def test_escalate_when_it_reaches_nobody_then_those_of_the_settings_are_told_once(
    bench: Any, fails: type[ActionError]
) -> None:
    is_deaf(bench, "oncall", fails=fails)
    fails_with(bench, "oncall", "ml-platform")
    bench.after("2h")
    assert bench.told() == ["ml-platform: FAILED: restart: trainer-0 gpu-07"]
    body = bench.world.writes[-1].args["body"]
    assert "This comes to you because it reached none of those whom it is for: oncall." in body
    assert unheard(bench)[:2] == (1, "ok")  # the message that arrived says that the way is open


def test_escalate_when_the_others_cannot_be_told_either_then_it_stops_and_is_loud(bench: Any) -> None:
    is_deaf(bench, "oncall", "ml-platform")
    fails_with(bench, "ml-platform")
    bench.after("1h")
    n_tries = len(bench.events("attempt_finished"))
    bench.after("1d")
    run_id = bench.run()["run_id"]
    keys = [event.data["step"] for event in bench.events("attempt_started")]
    assert keys == ["steps.restart", *["message.escalate"] * 3, *["message.escalate.next"] * 3]
    assert len(bench.events("attempt_finished")) == n_tries
    counted, said, _ = unheard(bench)
    assert (counted, said.partition(" at ")[0]) == (2, f"the last escalation (run {run_id}) reached nobody")


def test_escalate_when_it_reached_nobody_then_it_is_said_until_a_message_arrives_over_restarts(bench: Any) -> None:
    hears = bench.world.tell
    is_deaf(bench, "oncall")
    fails_with(bench)
    bench.after("1h")
    bench.away("1m")
    said, is_ready = unheard(bench)[1:]
    assert "reached nobody at 2026-03-01T12:0" in said
    assert is_ready
    bench.world.tell = hears
    bench.deliver(bench.fires(bench.leak("trainer-1")))
    bench.after("1m")
    assert unheard(bench)[1] == "ok"


def test_escalate_when_one_of_two_is_reached_then_nobody_else_is_told(bench: Any) -> None:
    is_deaf(bench, "oncall", fails=PermanentActionError)
    bench.world.add_notify_target("boss")
    steps = "steps: [{action: docker.restart, params: {container: trainer-0}}]\nescalate: {to: [oncall, ml-platform]}"
    bench.world.fail("docker.restart", Failure.PERMANENT)
    bench.restarts(steps=steps).start(
        escalate_to=["boss"],
        notify={name: {"urls": ["json://localhost"]} for name in ("oncall", "ml-platform", "boss")},
    )
    bench.deliver(bench.fires(bench.leak()))
    bench.after("1h")
    assert [line.partition(":")[0] for line in bench.told()] == ["ml-platform"]
    [ended] = [event for event in bench.events("attempt_finished") if event.data["step"] == "message.escalate"]
    assert ended.data["after"] == {"told": ["ml-platform"], "not_told": ["oncall"]}
    assert ended.data["detail"].startswith("ml-platform told; notification target oncall: did not take")
    assert unheard(bench)[:2] == (0, "ok")


def test_escalate_when_the_engine_dies_while_it_tells_the_others_then_it_does_not_begin_anew(bench: Any) -> None:
    is_deaf(bench, "oncall")
    tell = bench.world.tell

    def dies(to: str, *message: Any) -> None:
        if to == "ml-platform":
            raise SystemExit
        tell(to, *message)

    bench.world.tell = dies
    fails_with(bench, "ml-platform")
    with pytest.raises(SystemExit):
        bench.after("1h")
    bench.world.tell = tell
    bench.away("1m")
    bench.after("1d")
    keys = [event.data["step"] for event in bench.events("attempt_started")]
    assert keys.count("message.escalate.next") == 1
    assert "reached nobody" in unheard(bench)[1]


def test_approval_when_people_are_asked_then_the_link_leads_to_the_page_that_answers(bench: Any) -> None:
    bench.restarts("approval: {ask: [oncall]}").start(public_url="https://remediator.example/engine/")
    bench.deliver(bench.fires(bench.leak()))
    page = f"https://remediator.example/engine/runs/{bench.run()['run_id']}/approval"
    assert f"  or on its page: {page}" in bench.world.writes[-1].args["body"].splitlines()


def test_waiting_when_the_alert_flaps_then_people_are_told_once_that_its_plans_wait(bench: Any) -> None:
    bench.restarts("guard: {cooldown: 2h, tell_after: 1m}").start()
    for _ in range(6):
        bench.deliver(bench.fires(bench.leak()))
        bench.after("3m")
        bench.deliver(bench.resolved(bench.leak()))
        bench.after("2m")
    assert len(bench.acts()) == 1
    assert [line for line in bench.told() if "still waiting" in line] == [
        "oncall: still waiting to act: restart: trainer-0 gpu-07"
    ]
