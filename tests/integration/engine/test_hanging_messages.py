"""A notification service that hangs: whoever waits for it, the acts do not."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

N_STUCK = 6
"""More than there are workers."""

PAGES = """
playbook: page
match: [alertname = Page]
per: [n]
guard: {cooldown: 0s}
steps: [{action: notify.send, params: {to: [oncall], title: "page {{ labels.n }}"}}]
"""

PLACES = "policy: site\nmax_concurrent_runs: 1\n"


@pytest.fixture
def service(bench: Any) -> Iterator[threading.Event]:
    """Set it, and the notification service answers; until then it takes a message and says nothing."""
    answers = threading.Event()
    tell = bench.world.tell

    def hang(to: str, title: str, body: str) -> None:
        answers.wait(120)
        tell(to, title, body)

    bench.world.tell = hang
    yield answers
    answers.set()


def begin(bench: Any, more: str = "", policy: str = "") -> None:
    bench.restarts(more)
    if policy:
        bench.playbook(policy, "site.policy.yaml")
    bench.start(workers=2)
    bench.after("1m")


def let_run(bench: Any) -> None:
    bench.engine._dispatch.start()


def stop(bench: Any) -> None:
    assert bench.engine._dispatch.stop(timedelta(seconds=60))


def wait_for(is_so: Any) -> None:
    for _ in range(600):
        if is_so():
            return
        threading.Event().wait(0.1)
    raise AssertionError("not so within a minute")


def n_sending(bench: Any) -> int:
    """Messages that have begun and not ended."""
    begun = [event for event in bench.events("attempt_started") if event.data["action"] == "notify.send"]
    ended = [event for event in bench.events("attempt_finished") if event.data["action"] == "notify.send"]
    return len(begun) - len(ended)


@pytest.mark.parametrize("what", ["escalations", "playbooks that only tell"])
def test_service_when_it_hangs_in_more_messages_than_there_are_workers_then_acts_go_on(
    what: str, bench: Any, service: threading.Event
) -> None:
    begin(bench)
    bench.playbook(PAGES, "page.yaml")
    bench.reload()
    if what == "escalations":  # of containers that are not there: refused, and told
        stuck = [bench.fires(bench.leak(f"absent-{n}")) for n in range(N_STUCK)]
    else:
        stuck = [bench.fires({"alertname": "Page", "n": str(n)}) for n in range(N_STUCK)]
    bench.deliver_later(*stuck)
    let_run(bench)
    wait_for(lambda: n_sending(bench) == 2)
    bench.deliver_later(bench.fires(bench.leak()))

    wait_for(lambda: bench.acts() == ["docker.restart docker:gpu-07/trainer-0"])

    assert (service.is_set(), bench.told()) == (False, [])
    service.set()
    wait_for(lambda: len(bench.told()) == N_STUCK + 1)
    stop(bench)


def test_service_when_it_hangs_and_people_are_to_be_told_that_a_plan_waits_then_the_plan_takes_its_turn(
    bench: Any, service: threading.Event
) -> None:
    begin(bench, "guard: {cooldown: 0s, tell_after: 10m}\nverify: [{alert: resolved, within: 20m}]", PLACES)
    bench.deliver(bench.fires(bench.leak()))
    bench.deliver(bench.fires(bench.leak("trainer-1")))
    assert bench.acts() == ["docker.restart docker:gpu-07/trainer-0"]
    let_run(bench)
    bench.deliver_later(*(bench.fires(bench.leak(f"absent-{n}")) for n in range(2)))
    wait_for(lambda: n_sending(bench) == 2)
    bench.clock.moment += timedelta(minutes=10)
    for row in bench.runs():
        bench.engine._dispatch.wake(row["run_id"])
    bench.deliver_later(bench.resolved(bench.leak()))  # its place is free

    wait_for(lambda: bench.acts()[1:] == ["docker.restart docker:gpu-07/trainer-1"])

    assert (service.is_set(), bench.told()) == (False, [])
    service.set()
    wait_for(lambda: len(bench.told()) >= 3)  # the two, and the report
    assert not [title for title in bench.told() if "still waiting" in title], "it does not wait any more"
    stop(bench)
