"""Taking up what a killed engine left: acts of unclear fate, half-handled storms; deliveries from many threads."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from remediator.core.alert import RawDelivery
from remediator.errors import RequestError

RESTARTED = "docker.restart docker:gpu-07/trainer-0"

SIGNAL = """
steps: [{action: docker.signal, params: {container: trainer-0, signal: SIGUSR1}, timeout: 2m}]
escalate: {to: [oncall]}
"""


class Killed(BaseException):
    """The process is gone."""


def killed(bench: Any, where: str, **how: Any) -> None:
    """An engine that is killed right before or behind its act."""
    act = bench.world.act

    def acts(*args: Any) -> None:
        bench.world.act = act
        if where == "behind":
            act(*args)
        raise Killed

    bench.restarts(**how).start()
    bench.after("1m")
    bench.world.act = acts
    with pytest.raises(Killed):
        bench.deliver(bench.fires(bench.leak()))


@pytest.mark.parametrize("where", ["before", "behind"])
def test_recovery_when_nobody_can_see_whether_a_signal_was_sent_then_it_is_unknown_and_not_sent_again(
    bench: Any, where: str
) -> None:
    killed(bench, where, steps=SIGNAL)
    bench.away("10s")
    bench.after("1h")
    assert bench.ended() == ("unknown", "unknown_effect")
    assert len(bench.acts()) == (where == "behind")
    assert bench.told() == ["oncall: outcome UNKNOWN: restart: trainer-0 gpu-07"]
    assert bench.reserved() == ["docker:gpu-07/trainer-0"]


def test_recovery_when_the_act_happened_then_it_is_seen_and_not_done_again(bench: Any) -> None:
    killed(bench, "behind")
    bench.away("10s")
    assert bench.ended() == ("succeeded", "none")
    assert bench.acts() == [RESTARTED]


def test_recovery_when_the_act_did_not_happen_then_it_is_done_after_its_timeout(bench: Any) -> None:
    killed(bench, "before")
    bench.away("10s")
    bench.after("4m")
    assert bench.acts() == []
    bench.after("2m")
    assert bench.acts() == [RESTARTED]


def test_recovery_when_resolved_meanwhile_then_a_lost_act_is_not_done_again(bench: Any) -> None:
    killed(bench, "before")
    bench.stop()
    bench.clock.moment += timedelta(minutes=20)
    bench.start()
    bench.deliver(bench.resolved(bench.leak(), ago="1m"))
    bench.after("1h")
    assert bench.acts() == []
    assert bench.ended() == ("failed", "did_not_happen")  # its budget for another attempt is over
    assert bench.told() == []


@pytest.mark.parametrize(("away", "outcome"), [("3m", "succeeded"), ("10m", "unknown")])
def test_recovery_when_the_host_is_away_then_it_has_until_the_timeout_to_answer(
    bench: Any, away: str, outcome: str
) -> None:
    killed(bench, "behind")
    bench.world.set_away("gpu-07", is_away=True)
    bench.away("10s")
    bench.after(away)
    bench.world.set_away("gpu-07", is_away=False)
    bench.after("1m")
    assert bench.run()["outcome"] == outcome
    assert bench.acts() == [RESTARTED]


def test_recovery_when_the_host_is_away_long_after_the_timeout_then_it_has_a_minute_after_the_start(bench: Any) -> None:
    killed(bench, "behind")
    bench.world.set_away("gpu-07", is_away=True)
    bench.away("2h")
    bench.after("50s")
    assert bench.run()["outcome"] == ""
    bench.world.set_away("gpu-07", is_away=False)
    bench.after("10s")
    assert bench.run()["outcome"] == "succeeded"


def test_recovery_when_the_container_was_made_anew_meanwhile_then_it_is_unknown(bench: Any) -> None:
    killed(bench, "before")
    bench.world.add_container("gpu-07", "trainer-0")
    bench.away("10s")
    bench.after("6m")
    assert bench.ended() == ("unknown", "unknown_effect")
    assert bench.acts() == []


def test_recovery_when_killed_at_work_with_others_waiting_and_started_much_later_then_nothing_old_is_acted_on(
    bench: Any,
) -> None:
    containers = ["trainer-0", "trainer-1", "trainer-2", "trainer-3"]
    for name in containers:
        bench.world.add_container("gpu-07", name)
    bench.playbook("policy: site\nmax_concurrent_runs: 1\n", "site.policy.yaml")
    bench.restarts("guard: {tell_after: 100h}").start()
    bench.after("1m")
    act = bench.world.act

    def acts(*args: Any) -> None:
        bench.world.act = act
        act(*args)
        raise Killed

    bench.world.act = acts
    with pytest.raises(Killed):
        bench.deliver(*(bench.fires(bench.leak(name)) for name in containers))
    at_work = bench.acts()
    bench.away("2h")
    bench.after("9h5m")
    assert bench.acts() == at_work == [RESTARTED]
    assert {row["per"]["container_name"]: (row["outcome"], row["reason"]) for row in bench.runs()} == {
        "trainer-0": ("succeeded", "none"),
        **dict.fromkeys(containers[1:], ("stale", "expired")),
    }


def test_storm_when_killed_between_its_parts_then_each_alert_is_handled_once(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.playbook("playbook: tell\nmatch: [alertname = Storm]\nper: [n]\nsteps: [{action: noop}]\n")
    bench.start()
    bench.after("1m")
    intake, n_parts = bench.engine._intake, []
    handle = type(intake)._handle_chunk

    def dies(self: Any, *args: Any, **more: Any) -> None:
        n_parts.append(1)
        if len(n_parts) == 2:
            raise Killed
        handle(self, *args, **more)

    monkeypatch.setattr(type(intake), "_handle_chunk", dies)
    with pytest.raises(Killed):
        bench.deliver(*(bench.fires({"alertname": "Storm", "n": str(number)}) for number in range(210)))
    bench.away("10s")
    assert len(n_parts) == 4
    assert len(bench.events("episode_opened")) == 210
    assert len(bench.runs()) == 210
    assert {row["outcome"] for row in bench.runs()} == {"unchanged"}


def test_delivery_when_many_threads_bring_it_at_once_then_there_is_one_run(bench: Any) -> None:
    bench.restarts().start()
    bench.after("1m")
    alert = bench.fires(bench.leak())
    gate = threading.Barrier(16)

    def post(number: int) -> None:
        sender = f"http://am-{number % 2}"  # both of a pair, each again and again
        body = json.dumps({"version": "4", "externalURL": sender, "alerts": [alert]}).encode()
        gate.wait()
        bench.engine.accept(RawDelivery(received_at=bench.clock.now(), source="10.0.0.1", body=body))

    threads = [threading.Thread(target=post, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    bench.engine.work()
    assert len(bench.events("delivery_received")) == 16
    assert bench.acts() == [RESTARTED]


def test_clock_when_it_is_set_back_then_nothing_is_done_twice_and_the_run_goes_on(bench: Any) -> None:
    bench.restarts("hold: 10m\nverify: [{alert: resolved, within: 10m}]").start()
    bench.after("1m")
    bench.deliver(bench.fires(bench.leak()))
    bench.after("5m")
    bench.clock.moment -= timedelta(hours=1)
    bench.after("1h6m")
    assert bench.acts() == [RESTARTED]
    bench.clock.moment -= timedelta(hours=1)
    bench.after("3h")
    assert bench.acts() == [RESTARTED]
    assert bench.ended() == ("ineffective", "still_firing")


def test_by_hand_when_the_target_is_protected_then_the_guard_refuses_a_person_too(bench: Any) -> None:
    bench.restarts()
    bench.playbook("policy: site\nprotect: ['name = trainer-0']\n", "site.policy.yaml")
    bench.start()
    bench.engine.run_by_hand("restart", bench.leak(), {}, "alice")
    bench.engine.work()
    assert bench.ended() == ("refused", "protected")
    assert bench.engine.status()["open_subjects"] == 0


@pytest.mark.parametrize("call", ["cancel", "settle", "resume"])
def test_people_when_they_ask_for_what_cannot_be_then_nothing_is_recorded(bench: Any, call: str) -> None:
    bench.restarts().start()
    n_events = len(bench.events())
    asks: dict[str, Callable[[], Any]] = {
        "cancel": lambda: bench.engine.cancel("nope", "alice", "x"),
        "settle": lambda: bench.engine.settle("nope", True, "alice", "x"),
        "resume": lambda: bench.engine.resume("alice", "x"),
    }
    with pytest.raises(RequestError):
        asks[call]()
    assert len(bench.events()) == n_events
