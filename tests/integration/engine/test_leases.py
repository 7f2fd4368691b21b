"""Leases: what was changed is taken back by time, by resolve, by hand; or left to others who changed it since."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner

from remediator.cli import cli
from remediator.clients.ports import CpuLimit
from remediator.core.scenario import Failure
from remediator.errors import RequestError, UnknownEffectError
from remediator.web import answers

CAP = """
steps: [{name: cap, action: docker.limit, params: {container: "{{ labels.container_name }}", cpus: 2}}]
escalate: {to: [oncall]}
"""

COOL = "undo: {require: [{name: temp_c, query: 'max(temp_c)', below: 78}]}"

LADDER = """
steps:
  - {name: mild, rung: 1, action: docker.limit, params: {container: trainer-0, cpus: 3}}
  - {name: hard, rung: 2, action: docker.limit, params: {container: trainer-0, cpus: 2}}
  - {name: hardest, rung: 3, action: docker.limit, params: {container: trainer-0, cpus: 1}}
ladder: {within: 6h}
verify: [{name: temp_c, query: 'max(temp_c)', below: 82, within: 2m}]
escalate: {to: [oncall]}
"""

TARGET = "docker:gpu-07/trainer-0"


def cpus(bench: Any, name: str = "trainer-0") -> float:
    """What the container may use; 0 = all."""
    limit: CpuLimit = bench.world.container("gpu-07", name).cpu
    return limit.nano_cpus / 10**9 or max(limit.quota_us, 0) / 100_000


def caps(bench: Any, more: str = "", *, steps: str = CAP, name: str = "cap", **how: Any) -> Any:
    """An engine with a playbook that caps the container of a leak."""
    bench.restarts(more, steps=steps, name=name, **how)
    return bench


def with_other(bench: Any) -> Any:
    """A second playbook, for another alert on the same container, that gives it less still."""
    bench.restarts(name="other", steps=CAP.replace("cpus: 2", "cpus: 1").replace("cap,", "less,"))
    text = (bench.folder / "playbooks" / "other.yaml").read_text()
    bench.playbook(text.replace("GPUMemoryLeakSlope", "Hot"), "other.yaml")
    return bench


def capped(bench: Any, more: str = "", **how: Any) -> Any:
    """It has acted: its alert fires, and the container has 2 CPUs."""
    caps(bench, more, **how).start()
    bench.after("1m")
    bench.deliver(bench.fires(bench.leak()))
    assert cpus(bench) == 2
    return bench


def leases(bench: Any) -> list[tuple[str, str]]:
    """Step and state of every lease, the oldest first."""
    return [(lease["step"], lease["state"]) for lease in reversed(bench.engine.leases(100, is_all=True))]


def state(bench: Any) -> str:
    (lease,) = leases(bench)
    return lease[1]


def resolve(bench: Any, container: str = "trainer-0", **labels: str) -> None:
    bench.after("1m")
    bench.deliver(bench.resolved(bench.leak(container, **labels)))


def fire(bench: Any, container: str = "trainer-0", **labels: str) -> None:
    bench.after("1m")
    bench.deliver(bench.fires(bench.leak(container, **labels)))


def last(bench: Any, kind: str) -> dict[str, Any]:
    data: dict[str, Any] = bench.events(kind)[-1].data
    return data


def news(bench: Any) -> list[str]:
    """What people were told of leases: playbook and kind."""
    sent = [event for event in bench.events("attempt_finished") if event.data["step"].startswith("message.")]
    told = [(event.playbook, event.data["step"].split(".")[1]) for event in sent]
    return [f"{playbook} {kind}" for playbook, kind in told if kind in ("lease_kept", "undo_failed", "drifted")]


# -- by resolve --------------------------------------------------------------------------------------------------------


def test_lease_when_resolved_then_it_is_taken_back_so_long_after(bench: Any) -> None:
    capped(bench)
    resolve(bench)
    bench.after("9m59s")
    assert (cpus(bench), state(bench)) == (2, "open")
    bench.after("1s")
    assert (cpus(bench), state(bench)) == (0, "undone")
    assert [event.type.value for event in bench.events() if "undo" in event.type or "lease" in event.type] == [
        "lease_opened",
        "undo_started",
        "undo_finished",
        "lease_closed",
    ]
    assert bench.told() == []


def test_lease_when_opened_then_the_log_says_what_it_was_and_what_it_is_and_until_when(bench: Any) -> None:
    capped(bench, COOL)
    data = last(bench, "lease_opened")
    assert (data["step"], data["target"], data["action"]) == ("steps.cap", TARGET, "docker.limit")
    assert (data["before"]["cpu_quota_us"], data["after"]["cpu_quota_us"]) == (0, 200_000)
    assert (data["when"], data["after_s"], data["at_most"]) == ("resolved", 600, "12h")
    assert data["require"] == [{"name": "temp_c", "query": "max(temp_c)", "below": "78"}]


def test_lease_when_its_run_is_still_at_work_then_it_is_due_at_at_most_already(bench: Any) -> None:
    capped(bench, "verify: [{alert: resolved, within: 1h}]")
    (lease,) = bench.engine.leases(100, is_all=False)
    assert bench.run()["phase"] == "verifying"
    assert lease["due_at"] == lease["at_most_at"] == "2026-03-02T00:01:00.000000Z"
    assert lease["goes_at_resolve"]


def test_lease_when_it_fires_again_then_the_undo_waits_and_its_time_starts_anew(bench: Any) -> None:
    capped(bench)
    resolve(bench)
    bench.after("5m")
    fire(bench)
    bench.after("1h")
    assert (cpus(bench), state(bench)) == (2, "open")
    resolve(bench)
    bench.after("9m")
    assert cpus(bench) == 2
    bench.after("1m")
    assert cpus(bench) == 0


def test_lease_when_require_is_false_then_it_is_asked_each_minute_until_it_holds(bench: Any) -> None:
    bench.sees("temp_c", 85.0)
    capped(bench, COOL)
    resolve(bench)
    bench.after("30m")
    assert (cpus(bench), state(bench)) == (2, "open")
    bench.sees("temp_c", 70.0)
    bench.after("1m")
    assert (cpus(bench), state(bench)) == (0, "undone")


def test_lease_when_no_prometheus_answers_then_it_is_not_taken_back(bench: Any) -> None:
    bench.sees("temp_c", 70.0)
    capped(bench, COOL)
    resolve(bench)
    bench.world.prometheus_away(True)
    bench.after("30m")
    assert cpus(bench) == 2
    bench.world.prometheus_away(False)
    bench.after("1m")
    assert cpus(bench) == 0


@pytest.mark.parametrize(
    "more", [pytest.param("latched: true", id="latched"), pytest.param("undo: {when: never}", id="never")]
)
def test_lease_when_a_resolve_takes_nothing_back_then_it_stays(bench: Any, more: str) -> None:
    capped(bench, more)
    resolve(bench)
    bench.after("11h")
    assert (cpus(bench), state(bench)) == (2, "open")
    bench.after("2h")
    assert cpus(bench) == (2 if "never" in more else 0)


def test_lease_when_the_alert_expires_without_a_word_then_it_goes_only_at_at_most(bench: Any) -> None:
    capped(bench)
    bench.after("10h")
    assert bench.events("subject_closed")[0].data["reason"] == "expired"
    bench.after("1h")
    assert cpus(bench) == 2
    bench.after("1h")
    assert (cpus(bench), state(bench)) == (0, "undone")


@pytest.mark.parametrize("mode", ["observe", "disabled", "gone"])
def test_lease_when_its_playbook_may_not_act_any_more_then_it_is_taken_back_all_the_same(bench: Any, mode: str) -> None:
    capped(bench)
    if mode == "gone":
        (bench.folder / "playbooks" / "cap.yaml").unlink()
    else:
        caps(bench, f"mode: {mode}")
    assert bench.reload()["ok"]
    resolve(bench)
    bench.after("10m")
    assert (cpus(bench), state(bench)) == (0, "undone")


# -- by time -----------------------------------------------------------------------------------------------------------


def keep_firing(bench: Any, hours: int) -> None:
    for _ in range(hours):
        bench.after("1h")
        bench.deliver(bench.fires(bench.leak(), ago="1h"))


def test_lease_when_it_still_fires_at_at_most_then_it_is_kept_and_told_once_and_goes_when_resolved(bench: Any) -> None:
    capped(bench)
    keep_firing(bench, 14)
    assert (cpus(bench), state(bench)) == (2, "kept")
    assert news(bench) == ["cap lease_kept"]
    assert len(bench.events("lease_kept")) == 1
    resolve(bench)
    bench.after("9m")
    assert cpus(bench) == 2
    bench.after("1m")
    assert (cpus(bench), state(bench)) == (0, "undone")


def test_lease_when_two_of_one_run_are_kept_one_after_the_other_then_each_is_told_with_its_target(bench: Any) -> None:
    steps = """
steps:
  - {name: one, action: docker.limit, params: {container: trainer-0, cpus: 2}}
  - {name: two, action: docker.limit, params: {container: trainer-1, cpus: 2}, approval: {ask: [ml-platform]}}
escalate: {to: [oncall]}
"""
    caps(bench, steps=steps).start()
    bench.deliver(bench.fires(bench.leak()))
    bench.after("1m")
    bench.engine.approve(bench.run()["run_id"], "alice", "go on")
    bench.after("6h")
    bench.deliver(bench.fires(bench.leak()))
    bench.after("7h")
    kept = [write.args["body"] for write in bench.world.writes if write.args.get("title", "").startswith("kept")]
    assert [body.partition(":")[2].partition(": ")[0] for body in kept] == [
        " docker:gpu-07/trainer-0",
        " docker:gpu-07/trainer-1",
    ]


def test_lease_when_require_is_false_at_at_most_then_it_is_kept_with_the_number_and_goes_when_it_holds(
    bench: Any,
) -> None:
    bench.sees("temp_c", 85.0)
    capped(bench, COOL.replace("{", "{at_most: 1h, ", 1))
    resolve(bench)
    bench.after("1h")
    assert (cpus(bench), state(bench)) == (2, "kept")
    assert "temp_c is 85, must be below 78" in last(bench, "lease_kept")["detail"]
    bench.sees("temp_c", 70.0)
    bench.after("1m")
    assert (cpus(bench), state(bench)) == (0, "undone")


def test_lease_by_hand_when_its_run_has_ended_then_it_goes_at_at_most(bench: Any) -> None:
    caps(bench).start()
    bench.engine.run_by_hand("cap", bench.leak(), {}, "alice")
    bench.engine.work()
    (lease,) = bench.engine.leases(100, is_all=False)
    assert not lease["goes_at_resolve"]
    bench.after("11h")
    assert cpus(bench) == 2
    bench.after("1h")
    assert (cpus(bench), state(bench)) == (0, "undone")


# -- by hand -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("paused", [False, True], ids=["running", "paused"])
def test_undo_when_a_person_asks_then_it_goes_at_once_though_it_fires_and_require_is_false(
    bench: Any, paused: bool
) -> None:
    bench.sees("temp_c", 85.0)
    capped(bench, COOL)
    if paused:
        bench.engine.pause("bob", "change freeze")
    run_id = bench.run()["run_id"]
    answer = bench.engine.undo(run_id[:8], "", "alice", "the job needs its CPUs")
    assert answer["run_id"] == run_id
    assert [(one["step"], one["target"], one["waits_for"]) for one in answer["leases"]] == [("cap", TARGET, "")]
    bench.engine.work()
    assert (cpus(bench), state(bench)) == (0, "undone")
    asked = bench.events("undo_requested")[0]
    assert (asked.actor, asked.data["reason"], asked.n) == ("alice", "the job needs its CPUs", -1)


def test_undo_when_there_is_nothing_to_take_back_then_it_says_why(bench: Any) -> None:
    capped(bench)
    run_id = bench.run()["run_id"]

    def refused(run: str, step: str = "") -> tuple[int, str]:
        with pytest.raises(RequestError) as refusal:
            bench.engine.undo(run, step, "alice", "x")
        return refusal.value.http_status, str(refusal.value)

    assert refused("ffffffff")[0] == 404
    assert refused(run_id, "nope") == (
        404,
        f"run {run_id} has no step 'nope' whose change can be taken back (there is: cap)",
    )
    bench.engine.undo(run_id, "cap", "alice", "x")
    bench.engine.work()
    status, text = refused(run_id)
    assert status == 409
    assert text.startswith(f"nothing of run {run_id} is left to be taken back: {TARGET} is undone since")
    bench.restarts("guard: {cooldown: 0s}", name="restart", steps="steps: [{action: noop}]")
    bench.reload()
    bench.engine.run_by_hand("restart", bench.leak(), {}, "alice")
    bench.engine.work()
    assert refused(bench.newest()["run_id"])[0] == 409
    assert len(bench.events("undo_requested")) == 1


def test_pause_when_it_ends_then_what_was_due_is_taken_back(bench: Any) -> None:
    capped(bench)
    bench.engine.pause("bob", "change freeze")
    resolve(bench)
    bench.after("20m")
    assert (cpus(bench), state(bench)) == (2, "open")
    bench.engine.resume("bob", "")
    bench.engine.work()
    assert (cpus(bench), state(bench)) == (0, "undone")


def test_pause_file_when_it_goes_then_what_was_due_is_taken_back(bench: Any) -> None:
    capped(bench)
    (bench.folder / "PAUSE").touch()
    resolve(bench)
    bench.after("20m")
    assert cpus(bench) == 2
    (bench.folder / "PAUSE").unlink()
    bench.after("1m")
    assert cpus(bench) == 0


# -- others changed it -------------------------------------------------------------------------------------------------


def test_lease_when_others_changed_the_target_then_it_is_left_to_them_and_told(bench: Any) -> None:
    capped(bench)
    bench.world.set_cpu("gpu-07", "trainer-0", CpuLimit(quota_us=500_000))
    resolve(bench)
    bench.after("10m")
    assert (cpus(bench), state(bench)) == (5, "drifted")
    assert news(bench) == ["cap drifted"]
    assert last(bench, "lease_closed")["how"] == "drifted"
    assert bench.acts() == [f"docker.limit {TARGET}"]


def test_lease_when_others_put_back_what_was_before_then_it_is_undone_without_an_act(bench: Any) -> None:
    capped(bench)
    bench.world.set_cpu("gpu-07", "trainer-0", CpuLimit())
    resolve(bench)
    bench.after("10m")
    assert (cpus(bench), state(bench)) == (0, "undone")
    assert len(bench.acts()) == 1
    assert bench.told() == []


@pytest.mark.parametrize("is_back", [True, False], ids=["made anew", "gone"])
def test_lease_when_the_container_was_made_anew_or_is_gone_then_it_is_reverted_and_told(
    bench: Any, is_back: bool
) -> None:
    capped(bench)
    bench.world.remove_container("gpu-07", "trainer-0")
    if is_back:
        bench.world.add_container("gpu-07", "trainer-0")
    resolve(bench)
    bench.after("10m")
    assert state(bench) == "reverted"
    assert news(bench) == ["cap drifted"]
    assert len(bench.acts()) == 1


def test_act_when_others_changed_what_was_left_then_the_run_is_refused_and_the_stack_closed(bench: Any) -> None:
    with_other(caps(bench)).start()
    fire(bench)
    bench.world.set_cpu("gpu-07", "trainer-0", CpuLimit(quota_us=500_000))
    fire(bench, alertname="Hot")
    newest = bench.newest()
    assert (newest["playbook"], newest["outcome"], newest["reason"]) == ("other", "refused", "drifted")
    assert (cpus(bench), leases(bench)) == (5, [("cap", "drifted")])
    assert news(bench) == ["cap drifted"]


def test_ladder_when_others_changed_what_a_rung_left_then_no_further_rung_comes(bench: Any) -> None:
    bench.sees("temp_c", 90.0)
    bench.restarts(steps=LADDER).start()
    fire(bench)
    assert cpus(bench) == 3
    bench.world.set_cpu("gpu-07", "trainer-0", CpuLimit(quota_us=500_000))
    bench.after("10m")
    assert bench.ended() == ("refused", "drifted")
    assert (cpus(bench), leases(bench)) == (5, [("mild", "drifted")])


# -- stacks ------------------------------------------------------------------------------------------------------------


def two_playbooks(bench: Any) -> None:
    """The older one's lease lies below the younger one's: 2 CPUs, then 1."""
    with_other(caps(bench)).start()
    fire(bench)
    fire(bench, alertname="Hot")
    assert (cpus(bench), leases(bench)) == (1, [("cap", "open"), ("less", "open")])


def run_of(bench: Any, playbook: str) -> str:
    return str(next(row["run_id"] for row in bench.runs() if row["playbook"] == playbook))


def test_stack_when_the_lower_one_is_due_then_it_is_released_and_goes_with_the_one_above(bench: Any) -> None:
    two_playbooks(bench)
    resolve(bench)
    bench.after("30m")
    assert (cpus(bench), leases(bench)) == (1, [("cap", "released"), ("less", "open")])
    resolve(bench, alertname="Hot")
    bench.after("10m")
    assert (cpus(bench), leases(bench)) == (0, [("cap", "undone"), ("less", "undone")])
    assert bench.acts().count(f"docker.limit {TARGET}") == 3  # back over both at once


def test_stack_when_the_upper_one_is_due_then_it_alone_goes_and_the_lower_one_after_it(bench: Any) -> None:
    two_playbooks(bench)
    resolve(bench, alertname="Hot")
    bench.after("10m")
    assert (cpus(bench), leases(bench)) == (2, [("cap", "open"), ("less", "undone")])
    resolve(bench)
    bench.after("10m")
    assert (cpus(bench), leases(bench)) == (0, [("cap", "undone"), ("less", "undone")])


def test_stack_when_the_upper_one_is_undone_then_the_lower_one_is_left_as_that_left_it(bench: Any) -> None:
    two_playbooks(bench)
    for status in ("exited", "running"):
        bench.world.set_status("gpu-07", "trainer-0", status)
    resolve(bench, alertname="Hot")
    bench.after("10m")
    (lower,) = bench.engine.leases(100, is_all=False)
    assert lower["after"]["started_at"] == bench.world.container("gpu-07", "trainer-0").started_at


def test_stack_when_the_released_one_fires_again_then_it_does_not_go_with_the_one_above(bench: Any) -> None:
    two_playbooks(bench)
    resolve(bench)
    bench.after("30m")
    bench.playbook("policy: site\nmode: observe\n", "site.policy.yaml")
    bench.reload()  # no new run of it changes anything
    fire(bench)
    resolve(bench, alertname="Hot")
    bench.after("10m")
    assert (cpus(bench), leases(bench)[0][0]) == (2, "cap")
    resolve(bench)
    bench.after("10m")
    assert (cpus(bench), leases(bench)) == (0, [("cap", "undone"), ("less", "undone")])


def test_stack_when_others_changed_it_then_the_whole_of_it_closes_and_each_run_tells(bench: Any) -> None:
    two_playbooks(bench)
    bench.world.set_cpu("gpu-07", "trainer-0", CpuLimit(quota_us=500_000))
    resolve(bench, alertname="Hot")
    bench.after("10m")
    assert (cpus(bench), leases(bench)) == (5, [("cap", "drifted"), ("less", "drifted")])
    assert sorted(news(bench)) == ["cap drifted", "other drifted"]


def test_stack_when_a_person_asks_for_the_lower_one_then_it_waits_for_the_one_above_and_says_so(bench: Any) -> None:
    two_playbooks(bench)
    lower, upper = run_of(bench, "cap"), run_of(bench, "other")
    answer = bench.engine.undo(lower, "", "alice", "x")
    assert answer["leases"][0]["waits_for"] == f"the younger lease of run {upper} on the same target"
    bench.after("1h")
    assert (cpus(bench), leases(bench)) == (1, [("cap", "released"), ("less", "open")])
    bench.engine.undo(upper, "", "alice", "x")
    bench.engine.work()
    assert (cpus(bench), leases(bench)) == (0, [("cap", "undone"), ("less", "undone")])


def test_ladder_when_resolved_then_its_rungs_go_newest_first_each_so_long_after_the_other(bench: Any) -> None:
    bench.sees("temp_c", 90.0)
    bench.restarts(steps=LADDER).start()
    fire(bench)
    bench.after("20m")
    assert (cpus(bench), leases(bench)) == (1, [("mild", "open"), ("hard", "open"), ("hardest", "open")])
    resolve(bench)
    seen = []
    for _ in range(3):
        bench.after("9m")
        seen.append(cpus(bench))
        bench.after("1m")
        seen.append(cpus(bench))
    assert seen == [1, 2, 2, 3, 3, 0]
    assert [one for _, one in leases(bench)] == ["undone"] * 3


def test_undo_of_a_ladder_when_a_person_asks_for_all_then_it_goes_back_at_once_to_the_first_state(bench: Any) -> None:
    bench.sees("temp_c", 90.0)
    bench.restarts(steps=LADDER).start()
    fire(bench)
    bench.after("20m")
    bench.engine.undo(bench.run()["run_id"], "", "alice", "x")
    bench.engine.work()
    assert (cpus(bench), [one for _, one in leases(bench)]) == (0, ["undone"] * 3)
    assert len(bench.acts()) == 4


# -- an undo that does not work ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [Failure.TRANSIENT, Failure.PERMANENT])
def test_undo_when_it_fails_then_the_lease_stays_open_and_it_is_told_once_and_tried_again(
    bench: Any, how: Failure
) -> None:
    capped(bench)
    bench.world.fail("docker.limit", how, times=3)
    resolve(bench)
    bench.after("10m")
    assert (cpus(bench), state(bench)) == (2, "open")
    assert news(bench) == ["cap undo_failed"]
    bench.after("29m")
    assert cpus(bench) == 2
    bench.after("1m")
    assert (cpus(bench), state(bench)) == (0, "undone")
    assert [event.outcome for event in bench.events("undo_finished")] == ["failed"] * 3 + ["succeeded"]
    assert len(news(bench)) == 1


def test_undo_when_the_host_cannot_be_asked_then_it_is_a_failure_as_well(bench: Any) -> None:
    capped(bench)
    bench.world.set_away("gpu-07", is_away=True)
    resolve(bench)
    bench.after("15m")
    assert news(bench) == ["cap undo_failed"]
    bench.world.set_away("gpu-07", is_away=False)
    bench.after("5m")
    assert (cpus(bench), state(bench)) == (0, "undone")


def test_undo_when_no_answer_comes_and_the_target_shows_it_then_it_is_undone(bench: Any) -> None:
    capped(bench)
    bench.world.fail("docker.limit", Failure.TIMEOUT_AFTER_EFFECT)
    resolve(bench)
    bench.after("10m")
    assert (cpus(bench), state(bench)) == (0, "undone")
    assert [event.outcome for event in bench.events("undo_finished")] == ["succeeded"]
    assert bench.told() == []


def at_the_look(bench: Any, do: Callable[[], Any]) -> None:
    """Do something right after the next look at a container."""
    look = bench.world.look

    def looks(*args: Any) -> Any:
        bench.world.look = look
        seen = look(*args)
        do()
        return seen

    bench.world.look = looks


def test_undo_when_others_change_the_target_between_the_look_and_the_act_then_it_is_left_to_them(bench: Any) -> None:
    capped(bench)
    resolve(bench)
    at_the_look(bench, lambda: bench.world.set_cpu("gpu-07", "trainer-0", CpuLimit(quota_us=500_000)))
    bench.after("10m")
    assert (cpus(bench), state(bench)) == (5, "drifted")
    assert [event.outcome for event in bench.events("undo_finished")] == ["unchanged"]
    assert news(bench) == ["cap drifted"]


def test_undo_when_the_alert_fires_between_the_look_and_the_act_then_nothing_is_undone(bench: Any) -> None:
    capped(bench)
    resolve(bench)
    at_the_look(bench, lambda: bench.deliver_later(bench.fires(bench.leak())))
    bench.after("10m")
    assert (cpus(bench), state(bench)) == (2, "open")
    assert bench.events("undo_started") == []


def test_undo_when_a_person_asks_again_after_a_failure_then_it_is_tried_at_once(bench: Any) -> None:
    capped(bench)
    bench.world.fail("docker.limit", Failure.PERMANENT)
    run_id = bench.run()["run_id"]
    for expected in (2, 0):
        bench.engine.undo(run_id, "", "alice", "x")
        bench.engine.work()
        assert cpus(bench) == expected


def test_undo_when_another_run_has_the_target_then_it_waits_for_its_end(bench: Any) -> None:
    capped(bench)
    bench.restarts("verify: [{alert: resolved, within: 1h}]", name="restart")
    text = (bench.folder / "playbooks" / "restart.yaml").read_text()
    bench.playbook(text.replace("GPUMemoryLeakSlope", "Hang"), "restart.yaml")
    bench.reload()
    fire(bench, alertname="Hang")
    assert bench.reserved() == [TARGET]
    resolve(bench)
    bench.after("30m")
    assert cpus(bench) == 2
    resolve(bench, alertname="Hang")
    assert (cpus(bench), state(bench)) == (0, "undone")


@pytest.mark.parametrize("stacked", [False, True], ids=["alone", "on another lease"])
def test_act_when_nobody_could_see_that_it_happened_then_it_is_lent_by_the_attempt_that_finds_it_done(
    bench: Any, stacked: bool
) -> None:
    with_other(caps(bench)).start()
    if stacked:
        fire(bench)
    act = bench.world.act

    def acts(*args: Any) -> None:
        bench.world.act = act
        act(*args)
        bench.world.set_away("gpu-07", is_away=True)
        raise UnknownEffectError("the line went dead")

    bench.world.act = acts
    fire(bench, alertname="Hot")
    bench.after("5m")
    bench.world.set_away("gpu-07", is_away=False)
    bench.after("1m")
    assert bench.newest()["outcome"] == "unchanged"
    assert leases(bench) == [("cap", "open")] * stacked + [("less", "open")]
    resolve(bench, alertname="Hot")
    bench.after("10m")
    assert (cpus(bench), leases(bench)[-1]) == (2 if stacked else 0, ("less", "undone"))


# -- what people see ---------------------------------------------------------------------------------------------------


def test_leases_command_when_no_engine_runs_then_it_reads_the_store(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_playbooks(bench)
    resolve(bench)
    bench.after("30m")
    monkeypatch.setenv("REMEDIATOR_STORE_URL", f"sqlite:///{bench.folder}/r.db")
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: str) -> str:
        answer = CliRunner().invoke(cli, ["leases", *arguments])
        assert answer.exit_code == 0, answer.output
        return answer.stdout

    assert call().splitlines() == [
        f"docker.limit {TARGET}  open",
        f"    run {run_of(bench, 'other')}, step less",
        "    other: host=gpu-07 container_name=trainer-0",
        "    cpu quota us 200000 → 100000",
        "    since 2026-03-01 12:02:00 UTC, goes 10m after a resolve, at the latest at 2026-03-02 00:02:00 UTC",
        f"docker.limit {TARGET}  released",
        f"    run {run_of(bench, 'cap')}, step cap",
        "    cap: host=gpu-07 container_name=trainer-0",
        "    cpu quota us 0 → 200000",
        "    since 2026-03-01 12:01:00 UTC, its time has come: it goes with the younger one on the same target",
    ]
    shown = json.loads(call("--json"))
    assert shown == bench.engine.leases(100, is_all=False)
    for lease in shown:
        answers.Lease.model_validate(lease)
    assert bench.engine.status()["open_leases"] == 2
    bench.engine.undo(run_of(bench, "other"), "", "alice", "x")
    bench.engine.work()
    assert call() == "nothing is to be taken back\n"
    assert [line for line in call("--all").splitlines() if line.startswith("docker")] == [
        f"docker.limit {TARGET}  undone"
    ] * 2


def test_undo_when_its_answer_is_held_against_its_description_then_it_fits(bench: Any) -> None:
    capped(bench)
    answers.UndoRequested.model_validate(bench.engine.undo(bench.run()["run_id"], "cap", "alice", "x"))


def test_metrics_when_a_lease_opens_and_is_undone_then_they_say_so(bench: Any) -> None:
    capped(bench)
    registry = bench.engine.metrics.registry
    assert registry.get_sample_value("remediator_leases", {"state": "open"}) == 1
    bench.world.fail("docker.limit", Failure.TRANSIENT)
    resolve(bench)
    bench.after("20m")
    assert registry.get_sample_value("remediator_leases", {"state": "open"}) == 0
    for outcome in ("failed", "succeeded"):
        labels = {"action": "docker.limit", "outcome": outcome}
        assert registry.get_sample_value("remediator_undos_total", labels) == 1


# -- over a restart ----------------------------------------------------------------------------------------------------


def test_restart_when_the_time_came_while_the_engine_was_away_then_it_is_taken_back_at_the_start(bench: Any) -> None:
    capped(bench)
    resolve(bench)
    bench.away("3h")
    assert (cpus(bench), state(bench)) == (0, "undone")


class Killed(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("where", ["before", "behind"])
@pytest.mark.parametrize("meanwhile", ["", "drift"])
def test_restart_when_killed_over_an_undo_then_a_look_decides(bench: Any, where: str, meanwhile: str) -> None:
    capped(bench)
    resolve(bench)
    act = bench.world.act

    def acts(*args: Any) -> None:
        bench.world.act = act
        if where == "behind":
            act(*args)
        raise Killed

    bench.world.act = acts
    with pytest.raises(Killed):
        bench.after("10m")
    if meanwhile:
        bench.world.set_cpu("gpu-07", "trainer-0", CpuLimit(quota_us=500_000))
    bench.away("10s")
    assert (cpus(bench), state(bench)) == ((5, "drifted") if meanwhile else (0, "undone"))
    assert len(bench.events("undo_started")) == len(bench.events("undo_finished")) == 1
    assert len(bench.acts()) == (1 if meanwhile and where == "before" else 2)


def test_undo_when_it_is_under_way_then_no_run_gets_the_target(bench: Any) -> None:
    capped(bench, "guard: {cooldown: 0s}")
    resolve(bench)
    act = bench.world.act
    phases: list[str] = []

    def acts(*args: Any) -> None:
        bench.world.act = act
        bench.deliver_later(bench.fires(bench.leak()))
        bench.engine._dispatch.run_due()
        phases.extend(bench.newest()["waits_for"])
        act(*args)

    bench.world.act = acts
    bench.after("10m")
    assert f"busy:{TARGET}" in phases
    assert [row["outcome"] for row in bench.runs()] == ["succeeded"] * 2
    assert (cpus(bench), leases(bench)) == (2, [("cap", "undone"), ("cap", "open")])
