"""A dry run as of another moment: of a past one it says what a dry run said then, whatever was recorded since."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from remediator.app import DryApp
from remediator.core.event import utc_text
from remediator.core.scenario import Failure
from remediator.errors import PlaybooksRefusedError

CLIMB = """
playbook: climb
match: [alertname = Stuck]
per: [host, container_name]
ladder: {within: 6h}
guard: {cooldown: 10m, max_runs: {count: 2, per: 6h}, max_targets: {count: 2, per: 6h}}
steps:
  - {rung: 1, name: restart, action: docker.restart, params: {container: "{{ labels.container_name }}"}}
  - {rung: 2, name: stop, action: docker.stop, params: {container: "{{ labels.container_name }}"}}
verify: [{name: helped, query: ratio, below: 0.5, settle: 1m, within: 10m}]
escalate: {to: [oncall]}
"""
ASKS = """
playbook: asks
match: [alertname = Odd]
per: [host, container_name]
approval: {ask: [oncall], expires: 4h}
guard: {cooldown: 5m}
steps:
  - {name: restart, action: docker.restart, params: {container: "{{ labels.container_name }}"}}
  - name: limit
    action: docker.limit
    params: {container: "{{ labels.container_name }}", cpus: 1}
    approval: {ask: [oncall]}
escalate: {to: [oncall]}
"""
POLICY = """
policy: site
max_concurrent_runs: 1
max_disruptive_acts: {count: 3, per: 1h}
breaker: {percent: 100, of: trainers, within: 1h, or_failures: 2}
"""

FLEETS = {"trainers": {"kind": "container", "size": 50}}

LABELS = [
    {"alertname": name, "hostname": "gpu-07", "container_name": container}
    for name in ("Stuck", "Odd")
    for container in ("trainer-0", "trainer-1")
]
"""One alert for each playbook and container: a dry run of all of them sees all that is counted."""


def begin(bench: Any) -> Any:
    bench.playbook(CLIMB, "climb.yaml")
    bench.playbook(ASKS, "asks.yaml")
    bench.playbook(POLICY, "site.policy.yaml")
    bench.sees("helped", 1.0)
    bench.start(fleets=FLEETS)
    bench.after("1m")
    return bench


def dry(bench: Any) -> DryApp:
    return DryApp(bench.engine.settings, bench.world.read_only(), bench.clock)


def delivery(bench: Any) -> bytes:
    alerts = [{**bench.fires(labels), "startsAt": "2026-03-01T12:00:00Z"} for labels in LABELS]
    return json.dumps({"version": "4", "alerts": alerts}).encode()


class Witness:
    """Remembers what a dry run said at each moment that it was called."""

    def __init__(self, bench: Any) -> None:
        self.bench = bench
        self.said: dict[str, tuple[datetime, dict[str, Any]]] = {}

    def look(self, when: str) -> None:
        assert when not in self.said
        self.said[when] = (self.bench.clock.now(), dry(self.bench).dry_run(delivery(self.bench)))
        self.bench.clock.moment += timedelta(milliseconds=1)  # what comes next is later

    def facts(self, when: str) -> str:
        """What the rules said then, in one text."""
        return json.dumps(self.said[when][1])


def decided(value: Any) -> Any:
    """An answer without what its targets are doing, which nobody can ask of the past."""
    if isinstance(value, dict):
        return {name: decided(item) for name, item in value.items() if name not in ("state", "uid")}
    return [decided(item) for item in value] if isinstance(value, list) else value


def fires(bench: Any, n: int) -> None:
    bench.deliver(bench.fires(LABELS[n]))


def resolves(bench: Any, n: int) -> None:
    bench.deliver(bench.resolved(LABELS[n]))


def climbs_and_waits(bench: Any, witness: Witness) -> None:
    witness.look("nothing was done yet")
    fires(bench, 0)
    witness.look("it acted and verifies")
    fires(bench, 1)
    bench.after("1s")
    witness.look("another waits for its place")
    bench.after("12m")
    witness.look("it goes on to the next rung, or the other acts")
    bench.after("1h")
    witness.look("all ended, and did not help")
    resolves(bench, 0)
    resolves(bench, 1)
    witness.look("all is resolved")
    fires(bench, 0)
    bench.after("1m")
    witness.look("it is back on the last rung")
    bench.after("7h")
    witness.look("everything has left its window")


def people_do_things(bench: Any, witness: Witness) -> None:
    fires(bench, 2)
    witness.look("it asks")
    bench.engine.pause("alice", "a drill")
    witness.look("paused")
    bench.after("1m")
    bench.engine.resume("alice", "over")
    witness.look("resumed")
    bench.world.fail("docker.restart", Failure.TIMEOUT_AFTER_EFFECT)
    bench.engine.approve(bench.newest()["run_id"], "alice", "yes")
    bench.engine.work()
    witness.look("allowed, and acted; it asks for its next step")
    bench.after("30m")
    witness.look("it ended")
    resolves(bench, 2)
    bench.after("10m")
    fires(bench, 2)
    bench.engine.deny(bench.newest()["run_id"], "alice", "no")
    bench.engine.work()
    witness.look("denied")


def breaks(bench: Any, witness: Witness) -> None:
    for n in (0, 1):
        bench.world.fail("docker.restart", Failure.PERMANENT)
        fires(bench, n)
        bench.after("1m")
    witness.look("two failed")
    fires(bench, 2)
    bench.engine.approve(bench.newest()["run_id"], "alice", "yes")
    bench.engine.work()
    witness.look("the breaker has tripped")
    bench.after("5m")
    bench.engine.reset_breaker("site", "alice", "known")
    bench.after("1s")
    witness.look("it was reset, and what waited has acted")
    bench.after("2h")


def nobody_knows(bench: Any, witness: Witness) -> None:
    bench.world.fail("docker.restart", Failure.UNKNOWN)
    fires(bench, 0)
    witness.look("it is looked at")
    bench.after("1h")
    witness.look("nobody knows")
    bench.engine.settle(bench.newest()["run_id"], False, "alice", "I looked")
    bench.after("1s")
    witness.look("settled")


def is_judged_anew(bench: Any, witness: Witness) -> None:
    bench.world.fail("docker.restart", Failure.TRANSIENT)
    fires(bench, 0)
    witness.look("its first attempt failed")
    bench.stop()
    bench.clock.moment += timedelta(minutes=6)
    bench.start(fleets=FLEETS)
    bench.deliver(bench.fires(LABELS[0]))
    bench.after("1m")
    witness.look("allowed once more, and acted")


STORIES: dict[str, tuple[Callable[[Any, Witness], None], dict[str, str]]] = {
    "a ladder, and another run that waits for its place": (
        climbs_and_waits,
        {
            "nothing was done yet": "nothing was done here yet",
            "it acted and verifies": "1 of 1 runs at work",
            "another waits for its place": "1 older plans wait",
            "it is back on the last rung": '"starts_at": 2',
        },
    ),
    "people pause, resume, approve and deny": (
        people_do_things,
        {
            "paused": "paused by alice",
            "resumed": "open_subject",
            "allowed, and acted; it asks for its next step": "last acted here",
        },
    ),
    "a breaker trips and is reset": (
        breaks,
        {"two failed": "2 runs without a fix", "the breaker has tripped": "tripped 0s ago"},
    ),
    "nobody knows what a run did, until a person says it": (
        nobody_knows,
        {"nobody knows": "is taken by run", "settled": "1 runs without a fix"},
    ),
    "a run is allowed once more after the engine was away": (
        is_judged_anew,
        {"its first attempt failed": "1 of 3 disruptive acts in 1h", "allowed once more, and acted": "last acted here"},
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_dry_run_when_asked_of_a_past_moment_then_it_says_what_it_said_then(bench: Any, name: str) -> None:
    story, expected = STORIES[name]
    witness = Witness(begin(bench))
    story(bench, witness)
    bench.after("1m")

    for when, text in expected.items():  # else two empty answers would be equal
        assert text in witness.facts(when), when
    for when, (moment, said) in witness.said.items():
        answer = dry(bench).dry_run(delivery(bench), at=moment)
        assert answer.pop("at") == utc_text(moment)
        assert len(answer.pop("assumes")) == 3
        assert decided(answer) == decided(said), when


def test_dry_run_when_asked_of_the_future_then_cooldowns_have_lifted_and_it_says_what_it_takes_for_granted(
    bench: Any,
) -> None:
    begin(bench)
    bench.sees("helped", 0.1)
    fires(bench, 0)
    bench.after("5m")
    resolves(bench, 0)

    now = dry(bench).dry_run(delivery(bench))
    later = dry(bench).dry_run(delivery(bench), at=bench.clock.now() + timedelta(minutes=10))
    assert [said["alerts"][0]["matches"][0]["verdict"]["word"] for said in (now, later)] == ["wait", "allow"]
    assert "at" not in now
    assert [text.split(",")[0] for text in later["assumes"]] == ["until then nothing else is done", "targets"]


def test_dry_run_when_asked_of_a_moment_before_the_log_then_it_says_that_nothing_counts(bench: Any) -> None:
    begin(bench)
    before = bench.clock.now() - timedelta(days=1)

    said = dry(bench).dry_run(delivery(bench), at=before)
    assert said["assumes"][-1] == (
        "the log begins at 2026-03-01T12:00:00+00:00: nothing was recorded by then, so nothing counts"
    )


def test_dry_run_when_there_is_no_store_yet_then_it_says_that_nothing_counts(bench: Any) -> None:
    begin(bench)
    settings = bench.engine.settings.model_copy(update={"store_url": f"sqlite:///{bench.folder}/none.db"})
    app = DryApp(settings, bench.world.read_only(), bench.clock)

    said = app.dry_run(delivery(bench), at=bench.clock.now() - timedelta(hours=1))
    assert said["assumes"][-1] == "the log is empty: nothing was recorded by then, so nothing counts"
    assert not (bench.folder / "none.db").exists()


OTHER = CLIMB.replace("cooldown: 10m", "cooldown: 20m").replace(
    "- {rung: 2", "- {name: look, rung: 2, action: noop}\n  - {rung: 2"
)


def test_difference_when_other_playbooks_are_given_then_it_says_what_is_new_gone_and_different(
    bench: Any, tmp_path: Path
) -> None:
    begin(bench)
    others = tmp_path / "others"
    others.mkdir()
    (others / "climb.yaml").write_text(OTHER)
    (others / "site.policy.yaml").write_text(POLICY)
    (others / "new.yaml").write_text(ASKS.replace("playbook: asks", "playbook: new"))
    bench.sees("helped", 0.1)
    fires(bench, 0)
    bench.after("5m")
    resolves(bench, 0)
    bench.after("10m")  # the running set's cooldown has lifted, the other's has not

    said = dry(bench).difference(delivery(bench), [others])
    assert said["differs"]
    stuck, _, odd, *_ = said["alerts"]
    assert (stuck["new"], stuck["gone"], stuck["n_same"]) == ([], [], 0)
    assert [(change["what"], change["was"]) for change in stuck["different"][0]["changes"]] == [
        ("guard.cooldown", "10m"),
        ("steps.look", None),
        ("verdict.word", "allow"),
        (
            "verdict.rules.cooldown",
            ["allow: playbook climb last acted here 15m ago, cooldown 10m"],
        ),
    ]
    assert [match["playbook"] for match in odd["new"]] == ["new"]
    assert [(match["playbook"], match["why"]) for match in odd["gone"]] == [
        ("asks", ["there is no such playbook any more"])
    ]

    then = dry(bench).difference(delivery(bench), [others], at=bench.clock.now() - timedelta(minutes=8))
    assert [change["what"] for change in then["alerts"][0]["different"][0]["changes"]][-1] == "verdict.rules.cooldown"
    assert "verdict.word" not in str(then["alerts"][0]["different"])


def test_difference_when_the_running_set_is_given_then_there_is_none(bench: Any) -> None:
    begin(bench)

    said = dry(bench).difference(delivery(bench), [bench.folder / "playbooks"])
    assert not said["differs"]
    assert [alert["n_same"] for alert in said["alerts"]] == [1] * len(LABELS)


def test_difference_when_the_playbooks_given_have_problems_then_it_says_them(bench: Any, tmp_path: Path) -> None:
    begin(bench)
    (tmp_path / "bad.yaml").write_text("playbook: climb\n")

    with pytest.raises(PlaybooksRefusedError, match=r"bad\.yaml:1"):
        dry(bench).difference(delivery(bench), [tmp_path / "bad.yaml"])
