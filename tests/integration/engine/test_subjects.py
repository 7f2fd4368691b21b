"""Subjects: what a run is about, several alerts in one, missing labels, adoption, runs by hand."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from remediator.errors import RequestError

RESTARTED = "docker.restart docker:gpu-07/trainer-0"
PER_HOST = "host"


def two_gpus(bench: Any) -> tuple[dict[str, str], dict[str, str]]:
    """Labels of two alerts of one subject (the host), which name different containers."""
    return bench.leak("trainer-0", gpu="0"), bench.leak("trainer-1", gpu="1")


def fires_and_is_paused_before_the_act(bench: Any, labels: dict[str, str]) -> None:
    """An alert fires, its run is allowed to act, and a person pauses the engine before it does."""
    decide = bench.engine.pipeline._reserver.reserve

    def reserve_then_pause(*args: Any, **how: Any) -> Any:
        answer = decide(*args, **how)
        bench.engine.pause("tester", "between verdict and act")
        return answer

    bench.engine.pipeline._reserver.reserve = reserve_then_pause
    bench.deliver(bench.fires(labels))
    bench.engine.pipeline._reserver.reserve = decide


def test_subject_when_the_opener_ends_before_the_first_act_then_the_plan_is_made_anew_from_the_oldest(
    bench: Any,
) -> None:
    bench.restarts("hold: 10m", per=PER_HOST).start()
    first, second = two_gpus(bench)
    bench.deliver(bench.fires(first))
    bench.after("1m")
    bench.deliver(bench.fires(second))
    bench.after("1m")
    bench.deliver(bench.resolved(first))
    bench.after("20m")
    assert bench.acts() == ["docker.restart docker:gpu-07/trainer-1"]
    assert len(bench.events("plan_made")) == 2


def test_subject_when_the_opener_ends_between_verdict_and_first_act_then_the_plan_is_made_and_judged_anew(
    bench: Any,
) -> None:
    bench.restarts(per=PER_HOST).start()
    first, second = two_gpus(bench)
    fires_and_is_paused_before_the_act(bench, first)
    bench.after("1m")
    bench.deliver(bench.fires(second))
    bench.deliver(bench.resolved(first))
    bench.engine.resume("tester", "go on")
    bench.after("1m")
    assert bench.acts() == ["docker.restart docker:gpu-07/trainer-1"]
    words = [event.data["word"] for event in bench.events("verdict_given")]
    assert (words[0], words[-1]) == ("allow", "allow")


def test_subject_when_the_opener_ends_and_the_playbook_was_edited_then_the_run_is_cancelled_and_people_are_told(
    bench: Any,
) -> None:
    bench.restarts("hold: 10m", per=PER_HOST).start()
    first, second = two_gpus(bench)
    bench.deliver(bench.fires(first))
    bench.deliver(bench.fires(second))
    bench.restarts("hold: 11m", per=PER_HOST)
    bench.reload()
    bench.after("1m")
    bench.deliver(bench.resolved(first))
    bench.after("20m")
    assert (bench.acts(), bench.ended(), len(bench.told())) == ([], ("cancelled", "playbook_edited"), 1)


@pytest.mark.parametrize("mode", ["gone", "mode: disabled", "mode: observe"])
def test_subject_when_the_opener_ends_after_the_verdict_and_the_playbook_may_not_act_then_the_run_is_cancelled(
    bench: Any, mode: str
) -> None:
    bench.restarts(per=PER_HOST).start()
    first, second = two_gpus(bench)
    fires_and_is_paused_before_the_act(bench, first)
    bench.deliver(bench.fires(second))
    if mode == "gone":
        (bench.folder / "playbooks" / "restart.yaml").unlink()
    else:
        bench.restarts(mode, per=PER_HOST)
    bench.engine._reloader.reload("tester")
    bench.clock.moment += timedelta(seconds=10)
    bench.deliver(bench.resolved(first))
    assert (bench.acts(), bench.runs()[-1]["outcome"]) == ([], "cancelled")


def test_subject_when_the_opener_ends_after_the_act_then_the_plan_stays(bench: Any) -> None:
    bench.restarts("verify: [{alert: resolved, within: 30m}]", per=PER_HOST).start()
    first, second = two_gpus(bench)
    bench.deliver(bench.fires(first), bench.fires(second))
    bench.after("1m")
    bench.deliver(bench.resolved(first))
    bench.after("1m")
    assert bench.acts() == [RESTARTED]
    assert bench.run()["phase"] == "verifying"
    bench.deliver(bench.resolved(second))
    assert bench.ended() == ("succeeded", "none")


def test_subject_when_the_last_of_its_alerts_ends_in_the_hold_then_the_run_is_cancelled(bench: Any) -> None:
    bench.restarts("hold: 10m", per=PER_HOST).start()
    first, second = two_gpus(bench)
    bench.deliver(bench.fires(first), bench.fires(second))
    bench.after("1m")
    bench.deliver(bench.resolved(second))
    bench.deliver(bench.resolved(first))
    bench.after("1h")
    assert bench.did() == []
    assert bench.ended() == ("cancelled", "resolved")


def test_subject_when_a_plan_made_anew_lacks_a_value_then_the_run_is_refused(bench: Any) -> None:
    bench.restarts("hold: 10m", per=PER_HOST).start()
    first = bench.leak()
    second = {"alertname": "GPUMemoryLeakSlope", "hostname": "gpu-07"}
    bench.deliver(bench.fires(first), bench.fires(second))
    bench.after("1m")
    bench.deliver(bench.resolved(first))
    bench.after("11m")
    assert bench.ended() == ("refused", "missing_label")
    assert bench.acts() == []


def test_per_when_a_label_is_missing_then_it_is_refused_and_told_once_per_hour(bench: Any) -> None:
    bench.restarts().start()
    labels = {"alertname": "GPUMemoryLeakSlope", "hostname": "gpu-07"}
    for number in range(4):
        alert = {**labels, "n": str(number)}
        bench.deliver(bench.fires(alert))
        bench.after("10m")
        bench.deliver(bench.resolved(alert))
        bench.after("10m")
    assert bench.did() == ["tell oncall"] * 2  # at 0 and at 60 minutes
    assert {(row["outcome"], row["reason"]) for row in bench.runs()} == {("refused", "missing_label")}


def test_per_when_a_label_is_empty_then_it_is_missing(bench: Any) -> None:
    bench.restarts().start()
    bench.deliver(bench.fires(bench.leak("")))
    assert bench.ended() == ("refused", "missing_label")


def test_per_when_cluster_is_not_labelled_and_none_is_configured_then_it_is_missing(bench: Any) -> None:
    bench.restarts(per="cluster, host").start()
    bench.deliver(bench.fires(bench.leak()))
    assert bench.ended() == ("refused", "missing_label")


def test_per_when_the_host_is_not_labelled_and_one_is_configured_then_it_is_that_one(bench: Any) -> None:
    bench.restarts().start()
    bench.deliver(bench.fires({"alertname": "GPUMemoryLeakSlope", "container_name": "trainer-0"}))
    assert bench.acts() == [RESTARTED]


def test_params_when_a_label_is_missing_then_it_is_refused_before_any_act(bench: Any) -> None:
    steps = """
steps:
  - {name: first, action: docker.restart, params: {container: trainer-0}}
  - {name: second, action: docker.stop, params: {container: "{{ labels.sidecar }}"}}
escalate: {to: [oncall]}
"""
    bench.restarts(steps=steps).start()
    bench.deliver(bench.fires(bench.leak()))
    bench.after("1h")
    assert bench.acts() == []
    assert bench.ended() == ("refused", "missing_label")
    assert "labels.sidecar" in bench.run()["events"][0]["data"]["detail"]


def test_params_when_a_default_is_written_then_a_missing_label_does_not_refuse(bench: Any) -> None:
    steps = """
steps:
  - {action: docker.restart, params: {container: '{{ labels.sidecar | default("trainer-1") }}'}}
"""
    bench.restarts(steps=steps).start()
    bench.deliver(bench.fires(bench.leak()))
    assert bench.acts() == ["docker.restart docker:gpu-07/trainer-1"]


@pytest.mark.parametrize("name", ["$(id)", "a b", "../x", "a;b", "{{ labels.x }}"])
def test_params_when_a_label_is_no_container_name_then_it_is_refused(bench: Any, name: str) -> None:
    bench.restarts().start()
    bench.deliver(bench.fires(bench.leak(name)))
    assert bench.ended() == ("refused", "bad_params")


def test_case_when_it_ignores_an_alert_then_no_subject_opens(bench: Any) -> None:
    cases = """
cases:
  - {name: leave, match: [gpu = 7], ignore: it is known to be broken}
  - {name: rest}
"""
    bench.restarts(cases).start()
    bench.deliver(bench.fires(bench.leak(gpu="7")), bench.fires(bench.leak("trainer-1", gpu="1")))
    bench.after("1m")
    assert bench.acts() == ["docker.restart docker:gpu-07/trainer-1"]
    assert [event.data["detail"] for event in bench.events("alert_ignored")] == ["it is known to be broken"]


def test_run_id_when_the_same_delivery_comes_to_another_engine_then_it_is_the_same(bench: Any) -> None:
    bench.restarts().start()
    bench.deliver(bench.fires(bench.leak()))
    first = bench.run()["run_id"]
    bench.stop()
    (bench.folder / "r.db").unlink()
    bench.start()
    bench.deliver(bench.fires(bench.leak()))
    assert bench.run()["run_id"] == first


# -- adoption


def adopted(bench: Any) -> list[str]:
    return [event.playbook for event in bench.events("subject_adopted")]


def test_adoption_when_the_store_is_new_then_what_fired_before_is_shown_and_not_acted_on(bench: Any) -> None:
    bench.restarts().start()
    old = bench.fires(bench.leak(), ago="1m")
    bench.deliver(old)
    bench.after("2h")
    assert bench.did() == []
    assert adopted(bench) == ["restart"]
    assert bench.engine.status()["adopted_subjects"] == 1
    bench.deliver(bench.resolved(bench.leak()))
    bench.after("1m")
    bench.deliver(bench.fires(bench.leak()))
    assert bench.acts() == [RESTARTED]


def test_adoption_when_a_new_playbook_comes_while_it_fires_then_it_is_counted_and_not_acted_on(bench: Any) -> None:
    bench.restarts().start()
    bench.after("1m")
    bench.deliver(bench.fires({**bench.leak(), "alertname": "Other"}))
    bench.playbook("playbook: other\nmatch: [alertname = Other]\nsteps: [{action: noop}]\n", "other.yaml")
    assert bench.reload()["adopted"] == 1
    bench.after("1h")
    assert bench.runs() == []


def test_adoption_when_the_match_is_changed_then_what_it_newly_matches_is_not_acted_on(bench: Any) -> None:
    bench.restarts().start()
    bench.after("1m")
    bench.deliver(bench.fires({**bench.leak(), "alertname": "Other"}))
    text = (bench.folder / "playbooks" / "restart.yaml").read_text()
    bench.playbook(text.replace("alertname = GPUMemoryLeakSlope", "'alertname =~ \"GPU.*|Other\"'"), "restart.yaml")
    assert bench.reload()["adopted"] == 1
    bench.after("1h")
    assert bench.runs() == []


def test_adoption_when_only_steps_are_edited_then_the_next_subject_is_acted_on(bench: Any) -> None:
    bench.restarts().start()
    bench.after("1m")
    alert = bench.fires(bench.leak())
    text = (bench.folder / "playbooks" / "restart.yaml").read_text()
    bench.playbook(text.replace("docker.restart", "docker.stop"), "restart.yaml")
    assert bench.reload()["adopted"] == 0
    bench.deliver(alert)
    assert bench.acts() == ["docker.stop docker:gpu-07/trainer-0"]


@pytest.mark.parametrize("what", ["playbook", "policy"])
def test_adoption_when_observe_becomes_enforce_then_what_fires_is_not_acted_on(bench: Any, what: str) -> None:
    bench.restarts("mode: observe" if what == "playbook" else "")
    bench.playbook("policy: site\nmode: observe\n" if what == "policy" else "policy: site\n", "site.policy.yaml")
    bench.start()
    bench.after("1m")
    bench.deliver(bench.fires(bench.leak()))
    late = bench.fires(bench.leak("trainer-1"))
    bench.after("1m")
    bench.restarts()
    bench.playbook("policy: site\n", "site.policy.yaml")
    assert bench.reload()["adopted"] == 1
    bench.deliver(late)
    bench.deliver(bench.fires(bench.leak(), ago="2m"))
    bench.after("2h")
    assert bench.acts() == []
    assert adopted(bench) == ["restart", "restart"]
    bench.deliver(bench.resolved(bench.leak()))
    bench.after("1s")
    bench.deliver(bench.fires(bench.leak()))
    assert bench.acts() == [RESTARTED]


def test_adoption_when_it_began_while_the_engine_was_down_then_it_is_acted_on(bench: Any) -> None:
    bench.restarts().start()
    bench.after("1m")
    bench.away("2h")
    bench.deliver(bench.fires(bench.leak(), ago="1h"))
    assert bench.acts() == [RESTARTED]


def test_adoption_when_a_playbook_goes_and_comes_back_then_what_fires_meanwhile_is_adopted(bench: Any) -> None:
    bench.restarts().start()
    bench.after("1m")
    (bench.folder / "playbooks" / "restart.yaml").rename(bench.folder / "kept")
    bench.playbook("policy: site\n", "site.policy.yaml")
    bench.reload()
    bench.deliver(bench.fires(bench.leak()))
    (bench.folder / "kept").rename(bench.folder / "playbooks" / "restart.yaml")
    assert bench.reload()["adopted"] == 1
    bench.after("1h")
    assert bench.acts() == []


# -- by hand


def by_hand(bench: Any, **labels: str) -> str:
    answer = bench.engine.run_by_hand("restart", {**bench.leak(), **labels}, {}, "alice")
    bench.engine.work()
    run_id: str = answer["run_id"]
    return run_id


def test_by_hand_when_asked_then_there_is_no_hold_and_the_subject_ends_with_the_run(bench: Any) -> None:
    bench.restarts("hold: 10m").start()
    by_hand(bench)
    assert bench.acts() == [RESTARTED]
    assert bench.run()["phase"] == "closed"
    assert bench.engine.status()["open_subjects"] == 0
    assert [event.actor for event in bench.events("plan_made")] == ["alice"]


def test_by_hand_when_it_fires_too_then_it_has_a_subject_of_its_own(bench: Any) -> None:
    bench.restarts("hold: 10m").start()
    bench.deliver(bench.fires(bench.leak()))
    by_hand(bench)
    assert bench.acts() == [RESTARTED]
    assert len(bench.runs()) == 2
    bench.after("20m")
    assert bench.acts() == [RESTARTED]  # the alert's own run waits for the cooldown


def test_by_hand_when_the_alert_was_adopted_then_it_acts(bench: Any) -> None:
    bench.restarts().start()
    bench.deliver(bench.fires(bench.leak(), ago="1h"))
    by_hand(bench)
    assert bench.acts() == [RESTARTED]


def test_by_hand_when_the_guard_says_wait_then_it_waits_and_is_never_stale(bench: Any) -> None:
    bench.restarts("guard: {cooldown: 12h}").start()
    by_hand(bench)
    by_hand(bench)
    bench.after("1h")
    bench.away("10h")
    assert len(bench.acts()) == 1
    bench.after("1h1m")
    assert len(bench.acts()) == 2


def test_by_hand_when_one_for_the_same_values_waits_then_a_second_is_refused_and_its_prefix_cancels_it(
    bench: Any,
) -> None:
    bench.restarts("guard: {cooldown: 12h}").start()
    by_hand(bench)
    waiting = by_hand(bench)
    with pytest.raises(RequestError, match=f"run {waiting}.*the cooldown"):
        by_hand(bench)
    assert bench.engine.cancel(waiting[:8], "alice", "enough")["run_id"] == waiting
    bench.engine.work()
    assert bench.engine.run(waiting[:8])["outcome"] == "cancelled"
    with pytest.raises(RequestError, match=r"there is no run .*; give at least 8 characters"):
        bench.engine.run(waiting[:7])


def test_by_hand_when_it_is_refused_at_the_plan_then_its_subject_is_closed(bench: Any) -> None:
    bench.restarts().start()
    by_hand(bench, container_name="$(id)")
    assert bench.ended() == ("refused", "bad_params")
    assert bench.engine.status()["open_subjects"] == 0


def test_by_hand_when_the_playbook_does_not_apply_then_it_says_why(bench: Any) -> None:
    bench.restarts().start()
    with pytest.raises(RequestError, match="alertname"):
        bench.engine.run_by_hand("restart", {"alertname": "Other"}, {}, "alice")
    with pytest.raises(RequestError, match="no playbook 'nope'"):
        bench.engine.run_by_hand("nope", bench.leak(), {}, "alice")


def test_by_hand_when_a_label_cannot_be_written_as_utf8_then_it_is_refused_and_nothing_is_kept(bench: Any) -> None:
    bench.restarts().start()
    with pytest.raises(RequestError, match="UTF-8"):
        bench.engine.run_by_hand("restart", bench.leak(x="\ud800"), {}, "alice")
    assert bench.runs() == []


def test_by_hand_when_it_should_be_verified_by_the_alert_then_it_is_unverified(bench: Any) -> None:
    bench.restarts("verify: [{alert: resolved, within: 5m}]").start()
    by_hand(bench)
    assert bench.ended() == ("unverified", "no_value")
