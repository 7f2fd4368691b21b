"""Nothing that asks acts without a yes, a yes is judged again, and no yes is used twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from remediator.core.move import Finish
from remediator.core.run import Run
from remediator.errors import Reason, RequestError

if TYPE_CHECKING:
    from conftest import Bench

ASKS = "approval: {ask: [ml-platform], expires: 1h}"

STEP_ASKS = """
steps:
  - {name: signal, action: docker.signal, params: {container: "{{ labels.container_name }}", signal: SIGUSR1}}
  - name: stop
    action: docker.stop
    params: {container: "{{ labels.container_name }}"}
    approval: {ask: [ml-platform]}
escalate: {to: [oncall]}
"""

SIGNAL, RESTART, STOP = (f"docker.{verb} docker:gpu-07/trainer-0" for verb in ("signal", "restart", "stop"))


def asking(bench: Bench, more: str = ASKS) -> str:
    """A run that has asked; its id."""
    bench.restarts(more).start()
    bench.deliver(bench.fires(bench.leak()))
    run = bench.run()
    assert (run["phase"], bench.acts(), bench.reserved()) == ("asking", [], [])
    found: str = run["run_id"]
    return found


def test_approval_when_a_person_says_yes_then_it_acts_and_the_audit_names_them(bench: Bench) -> None:
    run_id = asking(bench)
    assert bench.did() == ["tell ml-platform"]
    bench.after("5m")
    bench.engine.approve(run_id, "alice", "looks right")
    bench.engine.work()
    assert bench.acts() == [RESTART]
    assert bench.ended() == ("succeeded", "none")
    (given,) = bench.events("approval_given")
    assert (given.actor, given.data["reason"], given.data["key"]) == ("alice", "looks right", "rung.0")
    assert [one.data["asks"] for one in bench.events("verdict_given")] == [True, False], "judged again after the yes"


def test_approval_when_a_person_says_no_then_it_ends_and_people_are_told(bench: Bench) -> None:
    run_id = asking(bench)
    bench.engine.deny(run_id, "bob", "we are in a demo")
    bench.engine.work()
    assert bench.ended() == ("refused", "denied")
    assert bench.events("run_finished")[0].data["detail"] == "bob said no: we are in a demo"
    assert bench.did() == ["tell ml-platform", "tell oncall"]


def test_approval_when_nobody_answers_then_it_expires_and_people_are_told(bench: Bench) -> None:
    asking(bench)
    bench.after("59m")
    assert bench.run()["phase"] == "asking"
    bench.after("2m")
    assert bench.ended() == ("expired", "approval_expired")
    assert bench.did() == ["tell ml-platform", "tell oncall"]


def test_approval_when_the_alert_is_resolved_meanwhile_then_it_is_cancelled_and_nobody_is_bothered(
    bench: Bench,
) -> None:
    run_id = asking(bench)
    bench.after("1m")
    bench.deliver(bench.resolved(bench.leak()))
    assert bench.ended() == ("cancelled", "resolved")
    assert bench.did() == ["tell ml-platform"]
    with pytest.raises(RequestError):
        bench.engine.approve(run_id, "alice", "too late")


@pytest.mark.parametrize("answer", ["approve", "deny"])
def test_approval_when_it_is_answered_already_then_a_second_answer_is_refused(bench: Bench, answer: str) -> None:
    run_id = asking(bench)
    (bench.folder / "PAUSE").touch()
    bench.engine.approve(run_id, "alice", "looks right")
    with pytest.raises(RequestError, match="alice"):
        getattr(bench.engine, answer)(run_id, "bob", "me too")
    (bench.folder / "PAUSE").unlink()
    bench.after("2m")
    assert bench.acts() == [RESTART]
    assert len(bench.events("approval_given")) == 1


def test_approval_when_the_target_was_made_anew_meanwhile_then_the_yes_was_for_another(bench: Bench) -> None:
    run_id = asking(bench)
    bench.world.add_container("gpu-07", "trainer-0")
    bench.engine.approve(run_id, "alice", "looks right")
    bench.engine.work()
    assert bench.acts() == []
    assert bench.ended() == ("refused", "target_changed")


def test_approval_when_something_else_holds_it_after_the_yes_then_it_waits_and_the_yes_stays(bench: Bench) -> None:
    run_id = asking(bench)
    (bench.folder / "PAUSE").touch()
    bench.engine.approve(run_id, "alice", "looks right")
    bench.after("10m")
    assert (bench.run()["phase"], bench.acts()) == ("waiting", [])
    (bench.folder / "PAUSE").unlink()
    bench.after("2m")
    assert bench.acts() == [RESTART]


def test_approval_when_it_was_asked_while_another_acts_on_its_target_then_nothing_was_reserved(bench: Bench) -> None:
    bench.restarts(ASKS, name="asks").restarts(name="acts")
    bench.start()
    bench.deliver(bench.fires(bench.leak()))
    assert bench.acts() == [RESTART], "the one that asks holds nothing that the other needs"


def test_approval_when_the_engine_is_killed_while_it_asks_then_nobody_is_asked_twice(bench: Bench) -> None:
    run_id = asking(bench)
    bench.away("4m")
    bench.after("1m")
    assert bench.did() == ["tell ml-platform"]
    bench.deliver(bench.fires(bench.leak()))
    bench.engine.approve(run_id, "alice", "looks right")
    bench.engine.work()
    assert bench.acts() == [RESTART]


def test_approval_when_the_engine_was_away_long_then_the_question_did_not_expire_meanwhile(bench: Bench) -> None:
    run_id = asking(bench)
    bench.away("1h")
    bench.deliver(bench.fires(bench.leak()))
    bench.after("10m")
    assert bench.run()["phase"] == "asking"
    bench.engine.approve(run_id, "alice", "looks right")
    bench.engine.work()
    assert bench.acts() == [RESTART]


def test_approval_when_the_alert_may_be_gone_after_the_yes_then_it_waits_for_a_word(bench: Bench) -> None:
    run_id = asking(bench)
    bench.away("40m")
    bench.engine.approve(run_id, "alice", "looks right")
    bench.after("15m")
    assert bench.acts() == []
    assert bench.run()["waits_for"] == ["turn:not_known_to_fire"]
    bench.deliver(bench.fires(bench.leak()))
    assert bench.acts() == [RESTART]


def test_approval_when_one_step_asks_then_at_its_turn(bench: Bench) -> None:
    bench.restarts(steps=STEP_ASKS).start()
    bench.deliver(bench.fires(bench.leak()))
    run = bench.run()
    assert (run["phase"], bench.acts()) == ("asking", [SIGNAL])
    bench.engine.approve(run["run_id"], "alice", "stop it")
    bench.engine.work()
    assert bench.acts() == [SIGNAL, STOP]
    assert bench.ended() == ("succeeded", "none")


def test_approval_when_a_step_has_nothing_to_change_then_nobody_is_asked(bench: Bench) -> None:
    steps = STEP_ASKS.replace("signal: SIGUSR1", "signal: SIGKILL")
    bench.restarts(steps=steps).start()
    bench.deliver(bench.fires(bench.leak()))
    assert bench.did() == ["docker.signal docker:gpu-07/trainer-0"]
    assert bench.run()["outcome"] == "succeeded"
    assert bench.events("approval_asked") == []


def test_approval_when_no_is_said_to_a_step_then_what_was_done_before_is_reported_and_people_are_told(
    bench: Bench,
) -> None:
    bench.restarts("report: {to: [ml-platform]}", steps=STEP_ASKS).start()
    bench.deliver(bench.fires(bench.leak()))
    bench.engine.deny(bench.run()["run_id"], "bob", "no")
    bench.engine.work()
    assert bench.acts() == [SIGNAL]
    assert bench.ended() == ("refused", "denied")
    assert sorted(bench.did()[2:]) == ["tell ml-platform", "tell oncall"]


def test_approval_when_it_waits_long_for_an_answer_then_nobody_is_told_that_it_waits(bench: Bench) -> None:
    asking(bench, "approval: {ask: [ml-platform], expires: 5h}\nguard: {tell_after: 1h}")
    bench.after("4h")
    assert bench.did() == ["tell ml-platform"]


def test_approval_when_the_question_cannot_be_sent_then_it_expires_and_that_is_told(bench: Bench) -> None:
    from remediator.core.scenario import Failure

    bench.world.fail("notify.send", Failure.PERMANENT)
    bench.restarts(ASKS).start()
    bench.deliver(bench.fires(bench.leak()))
    bench.after("61m")
    assert bench.ended() == ("expired", "approval_expired")
    assert bench.told()[-1].startswith("oncall: ")


def test_approval_when_it_is_given_in_the_moment_in_which_it_expires_then_the_log_does_not_say_both(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = asking(bench)
    pipeline = bench.engine.pipeline
    finish = pipeline._finish

    def at_the_last_moment(run: Run, end: Finish) -> None:
        if end.reason is Reason.APPROVAL_EXPIRED and not bench.events("approval_given"):
            moment = bench.clock.moment
            bench.clock.moment = run.questions["rung.0"].asked_at  # the answer's own look came first
            bench.engine.approve(run_id, "alice", "just in time")
            bench.clock.moment = moment
        finish(run, end)

    monkeypatch.setattr(pipeline, "_finish", at_the_last_moment)
    bench.after("61m")
    assert bench.acts() == [RESTART]
    assert bench.ended() == ("succeeded", "none")


def test_approval_when_the_plan_is_made_anew_while_it_asks_then_people_are_asked_anew_and_the_old_yes_is_for_nothing(
    bench: Bench,
) -> None:
    bench.restarts(ASKS, per="host").start()
    bench.deliver(bench.fires(bench.leak()), bench.fires(bench.leak("trainer-1")))
    first = bench.run()
    bench.after("5m")
    bench.deliver(bench.resolved(bench.leak()))
    second = bench.run()
    assert bench.did() == ["tell ml-platform", "tell ml-platform"]
    sent = [write.args["body"] for write in bench.world.writes]
    assert all(f"--question {run['question']} " in body for run, body in zip((first, second), sent, strict=True))
    with pytest.raises(RequestError, match="any more"):
        bench.engine.approve(first["run_id"], "alice", "restart trainer-0", first["question"])
    assert bench.acts() == []
    bench.engine.approve(first["run_id"], "alice", "restart trainer-1", second["question"])
    bench.engine.work()
    assert bench.acts() == [RESTART.replace("trainer-0", "trainer-1")]


FIRST_STEP_ASKS = """
steps:
  - name: restart
    action: docker.restart
    params: {container: "{{ labels.container_name }}"}
    approval: {ask: [ml-platform], expires: 4h}
escalate: {to: [oncall]}
"""


def test_approval_when_the_engine_was_away_while_a_step_asks_then_it_still_holds_nothing_and_the_yes_is_for_that_target(
    bench: Bench,
) -> None:
    bench.restarts(steps=FIRST_STEP_ASKS).start()
    bench.deliver(bench.fires(bench.leak()))
    bench.away("10m")
    bench.deliver(bench.fires(bench.leak()))
    bench.after("1m")
    assert (bench.run()["phase"], bench.reserved()) == ("asking", [])
    bench.world.add_container("gpu-07", "trainer-0")
    bench.engine.approve(bench.run()["run_id"], "alice", "looks right")
    bench.engine.work()
    assert bench.acts() == []
    assert bench.ended() == ("refused", "target_changed")


def test_approval_when_a_step_asks_and_no_word_comes_after_an_absence_then_it_expires_all_the_same(
    bench: Bench,
) -> None:
    bench.restarts(steps=FIRST_STEP_ASKS).start()
    bench.deliver(bench.fires(bench.leak()))
    bench.away("40m")
    bench.after("4h")
    assert bench.ended() == ("expired", "approval_expired")
    assert bench.did() == ["tell ml-platform", "tell oncall"], "nobody is told that what asks waits"


def test_approval_when_the_target_was_made_anew_after_the_yes_while_the_engine_was_away_then_it_is_refused(
    bench: Bench,
) -> None:
    from remediator.core.scenario import Failure

    run_id = asking(bench)
    bench.world.fail("docker.restart", Failure.TRANSIENT)
    bench.engine.approve(run_id, "alice", "looks right")
    bench.engine.work()
    bench.world.add_container("gpu-07", "trainer-0")
    bench.away("6m")
    bench.deliver(bench.fires(bench.leak()))
    assert bench.acts() == [RESTART], "the try that failed"
    assert bench.ended() == ("refused", "target_changed")


def test_approval_when_the_engine_is_paused_after_the_yes_to_a_step_then_it_is_seen_to_wait_for_that(
    bench: Bench,
) -> None:
    bench.restarts(steps=FIRST_STEP_ASKS).start()
    bench.deliver(bench.fires(bench.leak()))
    bench.engine.pause("bob", "a demo")
    bench.engine.approve(bench.run()["run_id"], "alice", "looks right")
    bench.after("90m")
    run = bench.run()
    assert (run["phase"], run["waits_for"], bench.acts()) == ("waiting", ["pause:paused"], [])
    assert bench.did() == ["tell ml-platform", "tell oncall"], "that it waits, after tell_after"
    bench.engine.resume("bob", "the demo is over")
    bench.engine.work()
    assert bench.acts() == [RESTART]


def test_approval_when_the_alert_is_resolved_while_a_later_step_asks_then_the_end_says_how_far_it_came(
    bench: Bench,
) -> None:
    bench.restarts(steps=STEP_ASKS).start()
    bench.deliver(bench.fires(bench.leak()))
    bench.after("1m")
    bench.deliver(bench.resolved(bench.leak()))
    (end,) = bench.events("run_finished")
    assert (end.data["outcome"], end.data["detail"]) == ("cancelled", "the alert was resolved before its next step")
