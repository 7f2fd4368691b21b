"""The guard's rules over time and over several runs: cooldown, limits, busy targets, protection."""

from __future__ import annotations

from typing import Any

import pytest

from remediator.actions.docker_restart import DockerRestart
from remediator.core.guard import ACT_RULES
from remediator.core.scenario import Failure

RESTARTED = "docker.restart docker:gpu-07/trainer-0"
OTHER = "docker.restart docker:gpu-07/trainer-1"

BY_RANK = """
playbook: by-rank
match: [alertname = Stuck]
per: [rank]
steps: [{action: docker.restart, params: {container: "{{ labels.container_name }}"}}]
"""


def stuck(bench: Any, rank: str = "1", container: str = "trainer-0") -> dict[str, Any]:
    alert: dict[str, Any] = bench.fires({"alertname": "Stuck", "rank": rank, "container_name": container})
    return alert


def begin(bench: Any, more: str = "", *, policy: str = "", **how: Any) -> None:
    bench.restarts(more, **how)
    bench.playbook(BY_RANK, "by-rank.yaml")
    bench.playbook(f"policy: site\n{policy}\n", "site.policy.yaml")
    bench.start()
    bench.after("1m")


def flap(bench: Any, every: str) -> None:
    """The alert ends and fires anew."""
    bench.after("1s")
    bench.deliver(bench.resolved(bench.leak()))
    bench.after(every)
    bench.deliver(bench.fires(bench.leak()))


# -- cooldown


def test_cooldown_when_another_playbook_acted_on_the_target_then_it_waits_for_its_own_cooldown(bench: Any) -> None:
    begin(bench, "guard: {cooldown: 2h}")
    bench.deliver(stuck(bench))
    bench.after("10m")
    bench.deliver(bench.fires(bench.leak()))
    assert bench.newest()["waits_for"] == ["cooldown:cooldown"]
    bench.after("1h49m")
    assert bench.acts() == [RESTARTED]
    bench.after("1m")
    assert bench.acts() == [RESTARTED] * 2


def test_cooldown_when_another_target_was_acted_on_then_it_does_not_wait(bench: Any) -> None:
    begin(bench)
    bench.deliver(stuck(bench))
    bench.deliver(bench.fires(bench.leak("trainer-1")))
    assert bench.acts() == [RESTARTED, OTHER]


def test_cooldown_when_the_same_values_mean_another_target_then_it_waits(bench: Any) -> None:
    begin(bench)
    bench.deliver(stuck(bench))
    bench.after("1m")
    bench.deliver(bench.resolved({"alertname": "Stuck", "rank": "1", "container_name": "trainer-0"}))
    bench.deliver(stuck(bench, container="trainer-1"))
    assert bench.newest()["waits_for"] == ["cooldown:cooldown"]


def test_cooldown_when_it_is_zero_then_each_firing_is_acted_on(bench: Any) -> None:
    begin(bench, "guard: {cooldown: 0s}")
    bench.deliver(bench.fires(bench.leak()))
    flap(bench, "1m")
    assert bench.acts() == [RESTARTED] * 2


def test_cooldown_when_another_run_is_about_to_act_for_the_same_values_then_it_waits_for_that_one(bench: Any) -> None:
    bench.playbook(f"{BY_RANK}guard: {{max_runs: {{count: 1, per: 6h}}}}\n", "by-rank.yaml")
    bench.start()
    bench.after("1m")
    bench.world.fail("docker.restart", Failure.TRANSIENT)
    bench.deliver(stuck(bench))
    bench.after("1s")  # and not yet tried again
    labels = {"alertname": "Stuck", "rank": "1", "container_name": "trainer-1"}
    bench.engine.run_by_hand("by-rank", labels, {}, "alice")
    bench.engine.work()
    assert bench.newest()["waits_for"] == ["cooldown:cooldown", "max_runs:max_runs"]
    bench.after("5h59m")
    assert [write.target for write in bench.world.writes if write.failed is None] == ["docker:gpu-07/trainer-0"]
    bench.after("2m")
    assert bench.newest()["outcome"] == "succeeded"


def test_max_runs_when_a_run_that_acted_still_verifies_then_it_counts_once(bench: Any) -> None:
    more = "guard: {cooldown: 1m, max_runs: {count: 2, per: 6h}}\nverify: [{alert: resolved, within: 2h}]\n"
    bench.playbook(BY_RANK + more, "by-rank.yaml")
    bench.start()
    bench.after("1m")
    bench.deliver(stuck(bench))
    bench.after("10m")
    labels = {"alertname": "Stuck", "rank": "1", "container_name": "trainer-1"}
    bench.engine.run_by_hand("by-rank", labels, {}, "alice")
    bench.engine.work()
    assert [write.target for write in bench.world.writes] == ["docker:gpu-07/trainer-0", "docker:gpu-07/trainer-1"]


def test_cooldown_when_the_act_failed_without_effect_then_it_does_not_count(bench: Any) -> None:
    bench.world.fail("docker.restart", Failure.PERMANENT)
    begin(bench)
    bench.deliver(bench.fires(bench.leak()))
    flap(bench, "1m")
    assert len(bench.acts()) == 2


def test_cooldown_when_the_engine_restarts_then_it_is_kept(bench: Any) -> None:
    begin(bench)
    bench.deliver(bench.fires(bench.leak()))
    bench.after("1m")
    bench.deliver(bench.resolved(bench.leak()))
    bench.away("10m")
    bench.deliver(bench.fires(bench.leak()))
    assert bench.acts() == [RESTARTED]
    bench.after("20m")
    assert bench.acts() == [RESTARTED] * 2


def test_cooldown_when_the_plan_is_messages_alone_then_it_is_refused_and_nobody_is_told(bench: Any) -> None:
    steps = """
steps: [{action: notify.send, params: {to: [ml-platform], title: it leaks}}]
escalate: {to: [oncall]}
"""
    begin(bench, steps=steps)
    bench.deliver(bench.fires(bench.leak()))
    flap(bench, "10m")
    assert bench.newest()["outcome"] == "refused"
    assert bench.newest()["reason"] == "cooldown"
    flap(bench, "20m")
    assert bench.told() == ["ml-platform: it leaks"] * 2


# -- max_runs


def test_max_runs_when_the_window_slides_then_the_next_run_comes(bench: Any) -> None:
    begin(bench, "guard: {cooldown: 1m, max_runs: {count: 2, per: 6h}}")
    bench.deliver(bench.fires(bench.leak()))
    flap(bench, "1h")
    flap(bench, "1h")
    assert bench.newest()["waits_for"] == ["max_runs:max_runs"]
    bench.after("3h59m")
    assert len(bench.acts()) == 2
    bench.after("2m")
    assert len(bench.acts()) == 3


def test_max_runs_when_the_engine_restarts_then_the_count_is_kept(bench: Any) -> None:
    begin(bench, "guard: {cooldown: 1m, max_runs: {count: 1, per: 6h}}")
    bench.deliver(bench.fires(bench.leak()))
    bench.away("1h")
    flap(bench, "1s")
    assert bench.newest()["waits_for"] == ["max_runs:max_runs"]
    assert len(bench.acts()) == 1


def test_max_runs_when_other_values_acted_then_they_do_not_count(bench: Any) -> None:
    begin(bench, "guard: {cooldown: 1m, max_runs: {count: 1, per: 6h}}")
    bench.deliver(bench.fires(bench.leak()), bench.fires(bench.leak("trainer-1")))
    bench.after("2m")
    assert sorted(bench.acts()) == [RESTARTED, OTHER]


def test_max_runs_when_the_act_failed_without_effect_then_it_does_not_count(bench: Any) -> None:
    bench.world.fail("docker.restart", Failure.PERMANENT)
    begin(bench, "guard: {cooldown: 1m, max_runs: {count: 1, per: 6h}}")
    bench.deliver(bench.fires(bench.leak()))
    flap(bench, "2m")
    assert bench.newest()["outcome"] == "succeeded"
    flap(bench, "2m")
    assert bench.newest()["waits_for"] == ["max_runs:max_runs"]


# -- concurrency


def test_concurrency_when_the_limit_is_reached_then_the_oldest_plan_comes_next(bench: Any) -> None:
    names = [f"c{number}" for number in range(4)]
    for name in names:
        bench.world.add_container("gpu-07", name)
    begin(bench, "verify: [{alert: resolved, within: 1h}]", policy="max_concurrent_runs: 1")
    for name in names:
        bench.deliver(bench.fires(bench.leak(name)))
        bench.after("1s")
    assert bench.acts() == ["docker.restart docker:gpu-07/c0"]
    bench.after("1m")
    for done, name in enumerate(names):
        bench.deliver(bench.resolved(bench.leak(name)))
        expected = names[: min(done + 2, 4)]
        assert bench.acts() == [f"docker.restart docker:gpu-07/{one}" for one in expected]


def test_concurrency_when_the_older_plan_waits_for_something_else_then_the_younger_goes_first(bench: Any) -> None:
    begin(bench, "verify: [{alert: resolved, within: 10h}]\nguard: {cooldown: 2h}", policy="max_concurrent_runs: 2")
    bench.deliver(stuck(bench))
    bench.after("1m")
    bench.deliver(bench.fires(bench.leak()))  # waits for the cooldown
    bench.after("1m")
    bench.deliver(bench.fires(bench.leak("trainer-1")))
    assert bench.acts() == [RESTARTED, OTHER]


def test_concurrency_when_the_limit_is_lowered_and_all_at_work_are_judged_anew_then_they_go_on(bench: Any) -> None:
    steps = """
steps:
  - {name: tell, action: notify.send, params: {to: [oncall], title: now}}
  - {name: restart, action: docker.restart, params: {container: "{{ labels.container_name }}"}}
"""
    begin(bench, steps=steps)
    reserver = bench.engine.pipeline._reserver
    bench.deliver_later(bench.fires(bench.leak()), bench.fires(bench.leak("trainer-1")))
    for row in bench.runs():
        run = bench.engine.pipeline.run(row["run_id"])
        reserver.reserve(run, 0, bench.engine._reloader.now.playbooks.policy, asks=False)
    bench.playbook("policy: site\nmax_concurrent_runs: 1\n", "site.policy.yaml")
    bench.away("10m")
    bench.after("1m")
    assert sorted(bench.acts()) == [RESTARTED, OTHER]


def test_concurrency_when_a_storm_of_plans_waits_then_the_end_of_a_run_has_only_the_next_judged(bench: Any) -> None:
    names = [f"c{number}" for number in range(30)]
    for name in names:
        bench.world.add_container("gpu-07", name)
    begin(bench, "verify: [{alert: resolved, within: 1h}]", policy="max_concurrent_runs: 1")
    reserver = bench.engine.pipeline._reserver
    decide, judged = reserver.reserve, []

    def counted(run: Any, rung: int, policy: Any, *, asks: bool) -> Any:
        judged.append(run.plan.run_id)
        return decide(run, rung, policy, asks=asks)

    reserver.reserve = counted
    bench.deliver(*(bench.fires(bench.leak(name)) for name in names))
    bench.after("1s")
    for _ in names:  # the one at work helped: the next one comes
        bench.deliver(bench.resolved(bench.leak(bench.acts()[-1].rpartition("/")[2])))
    assert len(set(bench.acts())) == len(names)
    assert len(judged) < 5 * len(names)


def test_concurrency_when_messages_alone_then_they_do_not_wait(bench: Any) -> None:
    begin(bench, "verify: [{alert: resolved, within: 1h}]", policy="max_concurrent_runs: 1")
    text = (
        "playbook: tell\nmatch: [alertname = Odd]\nsteps: [{action: notify.send, params: {to: [oncall], title: odd}}]"
    )
    bench.playbook(text, "tell.yaml")
    bench.reload()
    bench.after("1s")
    bench.deliver(bench.fires(bench.leak()))
    bench.deliver(bench.fires({"alertname": "Odd"}))
    assert bench.told() == ["oncall: odd"]


# -- busy targets


def test_busy_when_two_playbooks_mean_one_container_then_the_second_waits_for_the_end_of_verification(
    bench: Any,
) -> None:
    begin(bench, "verify: [{alert: resolved, within: 1h}]")
    bench.playbook(f"{BY_RANK}guard: {{cooldown: 0s}}\n", "by-rank.yaml")
    bench.reload()
    bench.deliver(bench.fires(bench.leak()))
    bench.after("1m")
    bench.deliver(stuck(bench))
    assert "busy:docker:gpu-07/trainer-0" in bench.newest()["waits_for"]
    bench.after("10m")
    bench.deliver(bench.resolved(bench.leak()))
    assert bench.acts() == [RESTARTED] * 2


def test_busy_when_a_container_is_named_by_its_id_then_it_is_the_same_target(bench: Any) -> None:
    begin(bench, "verify: [{alert: resolved, within: 1h}]")
    bench.deliver(bench.fires(bench.leak()))
    bench.after("1m")
    container_id = bench.world.container("gpu-07", "trainer-0").id
    bench.deliver(stuck(bench, container=container_id[:12]))
    assert "busy:docker:gpu-07/trainer-0" in bench.newest()["waits_for"]


# -- protection


@pytest.mark.parametrize(
    "line",
    ["name = trainer-0", "kind = container", "host = gpu-07", 'host =~ "gpu-.*"', "team = prod", "namespace != x"],
)
def test_protect_when_a_line_fits_the_target_then_the_run_is_refused_and_told(bench: Any, line: str) -> None:
    bench.world.add_container("gpu-07", "trainer-0", labels={"team": "prod"})
    begin(bench, policy=f"protect: ['{line}']")
    bench.deliver(bench.fires(bench.leak()))
    bench.after("1h")
    assert bench.ended() == ("refused", "protected")
    assert bench.did() == ["tell oncall"]
    assert line.split()[0] in bench.run()["events"][-3]["data"]["detail"]


def test_protect_when_the_label_is_the_alerts_own_then_it_does_not_protect(bench: Any) -> None:
    begin(bench, policy="protect: ['team = prod']")
    bench.deliver(bench.fires(bench.leak(team="prod")))
    assert bench.acts() == [RESTARTED]


def test_protect_when_the_container_bears_the_ignore_label_then_it_is_refused_without_any_policy(bench: Any) -> None:
    bench.world.add_container("gpu-07", "trainer-0", labels={"remediator.io/ignore": "true"})
    begin(bench)
    bench.deliver(bench.fires(bench.leak()))
    assert bench.ended() == ("refused", "protected")


def test_protect_when_it_is_the_engines_own_container_then_it_is_refused(bench: Any) -> None:
    bench.world.add_container("gpu-07", "trainer-0", is_engine=True)
    begin(bench)
    bench.deliver(bench.fires(bench.leak()))
    assert bench.ended() == ("refused", "protected")


def test_protect_when_the_policy_comes_between_two_acts_then_the_second_is_refused(bench: Any) -> None:
    steps = """
steps:
  - {name: first, action: docker.restart, params: {container: trainer-0}}
  - {name: second, action: docker.restart, params: {container: trainer-1}}
escalate: {to: [oncall]}
"""
    begin(bench, steps=steps)
    act = bench.world.act

    def acts(call: str, *args: Any) -> None:
        act(call, *args)
        bench.playbook("policy: site\nprotect: ['name = trainer-1']\n", "site.policy.yaml")
        bench.engine.reload("tester")

    bench.world.act = acts
    bench.deliver(bench.fires(bench.leak()))
    assert bench.acts() == [RESTARTED]
    assert bench.ended() == ("refused", "protected")


def test_policy_when_a_line_is_taken_away_then_the_log_shows_what_protected_before(bench: Any) -> None:
    begin(bench, policy="protect: ['name = trainer-0', 'team = prod']\nmax_concurrent_runs: 1")
    bench.playbook("policy: site\nprotect: ['team = prod']\n", "site.policy.yaml")
    bench.reload()
    loaded = [event.data for event in bench.events("playbooks_loaded")[-2:]]
    assert [(data["protect"], data["max_concurrent_runs"]) for data in loaded] == [
        (["name = trainer-0", "team = prod"], 1),
        (["team = prod"], 4),
    ]


def test_refusal_when_protected_and_in_cooldown_then_every_reason_is_kept(bench: Any) -> None:
    begin(bench)
    bench.deliver(stuck(bench))
    bench.playbook("policy: site\nprotect: ['name = trainer-0']\n", "site.policy.yaml")
    bench.reload()
    bench.deliver(bench.fires(bench.leak()))
    verdict = bench.events("verdict_given")[-1].data
    assert (verdict["word"], [answer["rule"] for answer in verdict["reasons"]]) == ("refuse", ["protect", "cooldown"])
    assert len(verdict["answers"]) == len(ACT_RULES)


# -- where it cannot be answered


def test_host_when_it_is_not_in_the_settings_then_the_run_is_refused(bench: Any) -> None:
    begin(bench)
    bench.deliver(bench.fires({**bench.leak(), "hostname": "gpu-99"}))
    assert bench.ended() == ("refused", "unknown_host")


@pytest.mark.parametrize("value", ["gpu-07:9400", "GPU-07", "gpu-07."])
def test_host_when_it_is_written_otherwise_then_only_the_port_is_cut(bench: Any, value: str) -> None:
    begin(bench)
    bench.deliver(bench.fires({**bench.leak(), "hostname": value}))
    assert bench.ended()[0] == ("succeeded" if value == "gpu-07:9400" else "refused")


def test_host_when_there_are_several_then_each_alert_goes_to_its_own(bench: Any) -> None:
    bench.hosts.append("gpu-08")
    bench.world.add_container("gpu-08", "trainer-0")
    begin(bench)
    bench.deliver(bench.fires(bench.leak()), bench.fires({**bench.leak(), "hostname": "gpu-08"}))
    assert sorted(bench.acts()) == [RESTARTED, "docker.restart docker:gpu-08/trainer-0"]


def test_host_when_there_are_several_and_the_alert_names_none_then_it_is_refused(bench: Any) -> None:
    bench.hosts.append("gpu-08")
    bench.world.add_host("gpu-08")
    begin(bench)
    bench.deliver(bench.fires({"alertname": "GPUMemoryLeakSlope", "container_name": "trainer-0"}))
    assert bench.ended() == ("refused", "missing_label")


def test_host_when_it_is_away_then_the_plan_waits_and_goes_on_when_it_is_back(bench: Any) -> None:
    begin(bench)
    bench.world.set_away("gpu-07", is_away=True)
    bench.deliver(bench.fires(bench.leak()))
    bench.after("20m")
    assert bench.run()["waits_for"] == ["targets:unreachable"]
    bench.world.set_away("gpu-07", is_away=False)
    bench.after("1m")
    assert bench.acts() == [RESTARTED]


def test_targets_when_an_action_raises_what_nobody_foresaw_then_the_run_is_refused_and_told(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def targets(self: Any, params: Any, clients: Any) -> Any:
        raise KeyError("surprise")

    monkeypatch.setattr(DockerRestart, "targets", targets)
    begin(bench)
    bench.deliver(bench.fires(bench.leak()))
    assert bench.ended() == ("refused", "unexpected")
    assert bench.did() == ["tell oncall"]


# -- tell_after


def test_tell_after_when_a_plan_waits_so_long_then_people_are_told_once_and_it_goes_on_waiting(bench: Any) -> None:
    begin(bench, "guard: {cooldown: 5h, tell_after: 20m}")
    bench.deliver(stuck(bench))
    bench.deliver(bench.fires(bench.leak()))
    bench.after("19m")
    assert bench.told() == []
    bench.after("2h")
    assert bench.told() == ["oncall: still waiting to act: restart: trainer-0 gpu-07"]
    bench.after("3h")
    assert bench.acts() == [RESTARTED] * 2


def test_tell_after_when_the_message_fails_at_first_then_it_is_tried_again(bench: Any) -> None:
    begin(bench, "guard: {cooldown: 5h, tell_after: 20m}")
    bench.deliver(stuck(bench))
    bench.deliver(bench.fires(bench.leak()))
    bench.world.fail("notify.send", Failure.TRANSIENT, times=2)
    bench.after("21m")
    assert len(bench.told()) == 1


def test_tell_after_when_the_engine_restarts_then_people_are_not_told_again(bench: Any) -> None:
    begin(bench, "guard: {cooldown: 5h, tell_after: 20m}")
    bench.deliver(stuck(bench))
    bench.deliver(bench.fires(bench.leak()))
    bench.after("1h")
    bench.away("2m")
    bench.after("1h")
    assert len(bench.told()) == 1
