"""Limits over time and over several runs: windows that slide, conditions, approvals, ladders, what a restart keeps."""

from __future__ import annotations

from typing import Any

import pytest

PLAYBOOK = """
playbook: restart
match: [alertname = Stuck]
per: [container_name]
guard: {cooldown: 0s, max_runs: {count: 100, per: 1h}, GUARD}
MORE
steps: STEPS
escalate: {to: [oncall]}
"""
STEPS = '[{name: restart, action: docker.restart, params: {container: "{{ labels.container_name }}"}}]'
THREE_A_MINUTE = "max_disruptive_acts: {count: 3, per: 1m}"


def begin(bench: Any, *, guard: str = "", more: str = "", steps: str = STEPS, policy: str = "", n: int = 12) -> Any:
    playbook = PLAYBOOK.replace(", GUARD", f", {guard}" if guard else "").replace("MORE", more)
    bench.playbook(playbook.replace("STEPS", steps))
    bench.playbook(f"policy: site\nmax_concurrent_runs: 100\n{policy}\n", "site.policy.yaml")
    for number in range(n):
        bench.world.add_container("gpu-07", f"c{number}", labels={"managed": "yes"} if number % 2 else {})
    bench.start()
    bench.after("1m")
    return bench


def stuck(bench: Any, number: int) -> dict[str, Any]:
    alert: dict[str, Any] = bench.fires({"alertname": "Stuck", "container_name": f"c{number}"})
    return alert


def waiting(bench: Any) -> set[str]:
    return {what for row in bench.runs() for what in row["waits_for"]}


def restarted(*numbers: int) -> list[str]:
    return [f"docker.restart docker:gpu-07/c{number}" for number in numbers]


# -- max_disruptive_acts: 3 per minute


def test_disruptive_acts_after_an_idle_hour_then_three_a_minute_are_three_at_once_and_never_more(bench: Any) -> None:
    begin(bench, policy=THREE_A_MINUTE)
    bench.after("1h")
    for number in range(8):
        bench.deliver(stuck(bench, number))
        bench.after("1ms")
    assert bench.acts() == restarted(0, 1, 2)
    assert waiting(bench) == {"max_disruptive_acts:max_disruptive_acts"}
    bench.after("59s")
    assert len(bench.acts()) == 3
    bench.after("1s")
    assert bench.acts() == restarted(0, 1, 2, 3, 4, 5)
    bench.after("2m")
    assert bench.acts() == restarted(*range(8))


def test_disruptive_acts_when_the_target_is_busy_too_then_it_acts_as_soon_as_both_let_it(bench: Any) -> None:
    other = STEPS.replace("labels.container_name", "annotations.other")
    bench.playbook(
        PLAYBOOK.replace(", GUARD", "")
        .replace("restart\n", "other\n")
        .replace("Stuck", "Other")
        .replace("MORE", "")
        .replace("STEPS", other),
        "other.yaml",
    )
    begin(
        bench,
        more="verify: [{name: ratio, query: up, below: 1, settle: 30s, within: 2m}]",
        policy="max_disruptive_acts: {count: 1, per: 1m}",
        n=1,
    )
    bench.sees("ratio", 0)
    bench.deliver(stuck(bench, 0))
    bench.deliver(bench.fires({"alertname": "Other", "container_name": "x"}, annotations={"other": "c0"}))
    assert {"max_disruptive_acts:max_disruptive_acts", "reservation:busy_target"} <= waiting(bench)
    bench.after("59s")
    assert [row["outcome"] for row in bench.runs()] == ["", "succeeded"], "it is not busy any more"
    bench.after("1s")
    assert bench.acts() == restarted(0, 0)


def test_disruptive_acts_when_the_engine_restarts_then_the_window_is_kept(bench: Any) -> None:
    begin(bench, policy=THREE_A_MINUTE)
    bench.deliver(*(stuck(bench, number) for number in range(3)))
    bench.away("20s")
    bench.deliver(*(stuck(bench, number) for number in range(3, 6)))
    bench.after("39s")
    assert len(bench.acts()) == 3
    bench.after("1s")
    assert len(bench.acts()) == 6


def test_disruptive_acts_when_a_plan_is_not_disruptive_then_it_neither_waits_nor_counts(bench: Any) -> None:
    begin(bench, policy="max_disruptive_acts: {count: 1, per: 1h}")
    start = 'steps: [{action: docker.start, params: {container: "{{ labels.container_name }}"}}]'
    bench.playbook(f"playbook: start\nmatch: [alertname = Down]\nper: [container_name]\n{start}\n", "start.yaml")
    for number in (1, 2):
        bench.world.add_container("gpu-07", f"c{number}", status="exited")
    bench.reload()
    bench.after("1s")
    bench.deliver(stuck(bench, 0))
    bench.deliver(*(bench.fires({"alertname": "Down", "container_name": f"c{number}"}) for number in (1, 2)))
    assert len(bench.acts()) == 3


def test_disruptive_acts_when_a_rung_has_two_of_them_then_both_count_at_once(bench: Any) -> None:
    two = "[{action: docker.stop, params: {container: c10}}, {action: docker.restart, params: {container: c11}}]"
    begin(bench, policy="max_disruptive_acts: {count: 3, per: 1h}", steps=two)
    bench.deliver(stuck(bench, 0))
    bench.after("1m")
    bench.deliver(stuck(bench, 1))
    assert len(bench.acts()) == 2
    assert waiting(bench) == {"max_disruptive_acts:max_disruptive_acts"}


# -- max_targets


def test_max_targets_when_the_window_slides_then_the_next_target_comes(bench: Any) -> None:
    begin(bench, guard="max_targets: {count: 2, per: 1h}")
    bench.deliver(stuck(bench, 0))
    bench.after("20m")
    bench.deliver(stuck(bench, 1), stuck(bench, 2), stuck(bench, 3))
    assert len(bench.acts()) == 2
    bench.after("39m")
    assert len(bench.acts()) == 2
    bench.after("1m")
    assert len(bench.acts()) == 3
    bench.after("20m")
    assert len(bench.acts()) == 4


def test_max_targets_when_the_same_target_fires_again_then_it_is_no_other_one(bench: Any) -> None:
    begin(bench, guard="max_targets: {count: 1, per: 1h}")
    for _ in range(3):
        bench.deliver(stuck(bench, 0))
        bench.after("1m")
        bench.deliver(bench.resolved({"alertname": "Stuck", "container_name": "c0"}))
        bench.after("1m")
    bench.deliver(stuck(bench, 1))
    assert bench.acts() == restarted(0, 0, 0)
    assert waiting(bench) == {"max_targets:max_targets"}


def test_max_targets_when_the_engine_restarts_then_the_window_is_kept(bench: Any) -> None:
    begin(bench, guard="max_targets: {count: 1, per: 1h}")
    bench.deliver(stuck(bench, 0))
    bench.away("30m")
    bench.deliver(stuck(bench, 1))
    assert bench.acts() == restarted(0)
    bench.after("30m")
    assert bench.acts() == restarted(0, 1)


def test_max_targets_when_a_run_at_work_found_nothing_to_change_then_its_place_is_free_at_its_end(bench: Any) -> None:
    start = '[{name: start, action: docker.start, params: {container: "{{ labels.container_name }}"}}]'
    begin(bench, guard="max_targets: {count: 1, per: 1h}", steps=start)
    bench.world.add_container("gpu-07", "c1", status="exited")
    bench.deliver(stuck(bench, 0), stuck(bench, 1))
    assert bench.acts() == ["docker.start docker:gpu-07/c1"]


# -- require


def test_require_when_it_is_false_then_the_run_is_refused_and_the_number_is_named(bench: Any) -> None:
    begin(bench, guard="require: [{name: exporter_up, query: min(up), equals: 1}]")
    bench.sees("exporter_up", 0.0)
    bench.deliver(stuck(bench, 0))
    assert bench.ended() == ("refused", "require")
    assert "exporter_up is 0, must be 1" in bench.run()["events"][-3]["data"]["detail"]
    assert bench.acts() == []


def test_require_when_nobody_can_say_then_it_waits_and_goes_on_when_somebody_can(bench: Any) -> None:
    begin(bench, guard="require: [{name: exporter_up, query: min(up), equals: 1}]")
    bench.world.prometheus_away(True)
    bench.deliver(stuck(bench, 0))
    bench.after("10m")
    assert waiting(bench) == {"require:require_unknown"}
    bench.world.prometheus_away(False)
    bench.after("1m")
    assert waiting(bench) == {"require:require_unknown"}
    bench.sees("exporter_up", 1.0)
    bench.after("30s")
    assert bench.acts() == restarted(0)


# -- require_label


def test_require_label_when_the_container_does_not_bear_it_then_it_is_refused(bench: Any) -> None:
    begin(bench, policy="require_label: managed=yes")
    bench.deliver(stuck(bench, 0), stuck(bench, 1))
    assert bench.acts() == restarted(1)
    assert {row["reason"] for row in bench.runs()} == {"require_label", "none"}


def test_require_label_when_it_comes_between_two_acts_then_the_second_is_refused(bench: Any) -> None:
    steps = "[{action: docker.restart, params: {container: c1}}, {action: docker.restart, params: {container: c2}}]"
    begin(bench, steps=steps)
    act = bench.world.act

    def acts(call: str, *args: Any) -> None:
        act(call, *args)
        bench.playbook("policy: site\nrequire_label: managed=yes\n", "site.policy.yaml")
        bench.engine.reload("tester")

    bench.world.act = acts
    bench.deliver(stuck(bench, 0))
    assert bench.acts() == restarted(1)
    assert bench.ended() == ("refused", "require_label")


# -- approval


def test_approval_when_the_target_was_replaced_meanwhile_then_the_yes_is_refused_with_what_changed(bench: Any) -> None:
    begin(bench, more="approval: {ask: [oncall], expires: 30m}")
    bench.deliver(stuck(bench, 0))
    assert bench.reserved() == []
    bench.after("1m")
    bench.world.add_container("gpu-07", "c0")
    bench.engine.approve(bench.run()["run_id"], "alice", "yes")
    bench.engine.work()
    assert bench.ended() == ("refused", "target_changed")
    assert "was replaced" in bench.events("verdict_given")[-1].data["reasons"][0]["detail"]
    assert bench.acts() == []


def test_approval_while_it_asks_then_it_holds_no_target_and_no_place_and_counts_in_no_window(bench: Any) -> None:
    begin(bench, more="approval: {ask: [oncall], expires: 30m}", policy="max_disruptive_acts: {count: 1, per: 1h}")
    bench.deliver(stuck(bench, 0), stuck(bench, 1))
    assert [row["phase"] for row in bench.runs()] == ["asking", "asking"]
    for row in bench.runs():
        bench.engine.approve(row["run_id"], "alice", "yes")
    bench.engine.work()
    assert len(bench.acts()) == 1
    assert waiting(bench) == {"max_disruptive_acts:max_disruptive_acts"}


def test_approval_of_a_step_while_it_asks_then_it_holds_no_target_and_no_place(bench: Any) -> None:
    steps = (
        '[{name: restart, action: docker.restart, params: {container: "{{ labels.container_name }}"},'
        " approval: {ask: [oncall], expires: 30m}}]"
    )
    begin(bench, steps=steps)
    bench.playbook("policy: site\nmax_concurrent_runs: 1\n", "site.policy.yaml")
    bench.reload()
    bench.deliver(stuck(bench, 0), stuck(bench, 1))
    assert [row["phase"] for row in bench.runs()] == ["asking", "asking"]
    assert bench.reserved() == []
    for row in bench.runs():
        bench.engine.approve(row["run_id"], "alice", "yes")
    bench.engine.work()
    assert len(bench.acts()) == 2


# -- ladder


LADDER = """[
  {rung: 1, name: first, action: docker.restart, params: {container: "{{ labels.container_name }}"}},
  {rung: 2, name: second, action: docker.stop, params: {container: "{{ labels.container_name }}"}}]"""


def test_ladder_when_an_older_plan_waits_for_the_target_then_the_climbing_run_keeps_it(bench: Any) -> None:
    begin(bench, steps=LADDER, more="ladder: {within: 6h}\nverify: [{alert: resolved, within: 5m}]")
    other = 'steps: [{action: docker.restart, params: {container: "{{ labels.container_name }}"}}]'
    match = "match: [alertname = Other]\nper: [container_name]\nguard: {cooldown: 0s}\nhold: 2m"
    bench.playbook(f"playbook: other\n{match}\n{other}\n", "other.yaml")
    bench.reload()
    bench.after("1s")
    bench.deliver(bench.fires({"alertname": "Other", "container_name": "c0"}))
    bench.after("1s")
    bench.deliver(stuck(bench, 0))
    bench.after("3m")
    assert waiting(bench) == {"busy:docker:gpu-07/c0", "reservation:busy_target"}
    bench.after("8m")
    assert bench.acts()[:2] == ["docker.restart docker:gpu-07/c0", "docker.stop docker:gpu-07/c0"]


def test_ladder_when_rungs_are_disruptive_then_each_counts_and_the_run_waits_for_its_window(bench: Any) -> None:
    begin(
        bench,
        steps=LADDER,
        more="ladder: {within: 6h}\nverify: [{alert: resolved, within: 5m}]",
        policy="max_disruptive_acts: {count: 1, per: 1h}",
    )
    bench.deliver(stuck(bench, 0))
    bench.after("59m")
    assert bench.acts() == ["docker.restart docker:gpu-07/c0"]
    assert bench.reserved() == ["docker:gpu-07/c0"]
    bench.after("2m")
    assert bench.acts() == ["docker.restart docker:gpu-07/c0", "docker.stop docker:gpu-07/c0"]


# -- as visible as what acted


@pytest.mark.parametrize(
    ("policy", "reason", "word"),
    [
        ("max_disruptive_acts: {count: 1, per: 1h}", "max_disruptive_acts", "wait"),
        ("require_label: managed=no", "require_label", "refuse"),
        ("protect: [name =~ c.]", "protected", "refuse"),
    ],
)
def test_rule_when_it_spoke_then_the_metric_the_log_and_the_lists_say_so(
    bench: Any, policy: str, reason: str, word: str
) -> None:
    begin(bench, policy=policy)
    bench.deliver(stuck(bench, 0), stuck(bench, 1))
    labels = {"verdict": word, "reason": reason}
    assert bench.engine.metrics.registry.get_sample_value("remediator_verdicts_total", labels) >= 1
    spoken = [answer["reason"] for event in bench.events("verdict_given") for answer in event.data["reasons"]]
    assert reason in spoken
    shown = bench.engine.runs(10, "all")
    assert any(row["reason"] == reason or f"{reason}:{reason}" in row["waits_for"] for row in shown)


def test_windows_when_the_clock_is_far_on_then_nothing_old_counts(bench: Any) -> None:
    begin(bench, guard="max_targets: {count: 1, per: 1h}", policy=THREE_A_MINUTE)
    for number in range(4):
        bench.deliver(stuck(bench, number))
        bench.after("61m")
    assert bench.acts() == restarted(0, 1, 2, 3)
