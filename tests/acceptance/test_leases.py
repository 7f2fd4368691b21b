"""Changes that end: CPU limits of real containers, set and taken back by a real engine.

One engine for all; each story has a container of its own. What holds is read from Docker and from the container's own
cgroup, never from what the engine says of itself.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from acceptance import story
from acceptance.delivery import delivery, resolved
from acceptance.engine import CommandEnd, Engine
from acceptance.faults import Boxes
from acceptance.story import titles
from realparts.docker_engine import DockerEngine
from realparts.loopback import WebhookReceiver
from realparts.process import wait_until

pytestmark = pytest.mark.docker

WITHIN_S = 90.0

AFTER_S = 2
SHORT_S = 5
LONG_S = 20

LIMITED = """
playbook: {name}
match: [alertname = {alert}]
per: [host, container_name]
steps: [{{name: limit, action: docker.limit, params: {{container: "{{{{ labels.container_name }}}}", cpus: {cpus}}}}}]
undo: {{after: {after}s, at_most: {at_most}s}}
escalate: {{to: [people]}}
"""

PLAYBOOKS = "---".join(
    (
        LIMITED.format(name="hot", alert="Hot", cpus=0.5, after=AFTER_S, at_most=3600),
        LIMITED.format(name="hotter", alert="Hotter", cpus=0.25, after=AFTER_S, at_most=3600),
        LIMITED.format(name="short", alert="Short", cpus=0.5, after=AFTER_S, at_most=SHORT_S),
        LIMITED.format(name="long", alert="Long", cpus=0.5, after=LONG_S - 1, at_most=LONG_S),
        "\npolicy: site\nmax_concurrent_runs: 20\n",
    )
)

HAD = 1.5
"""CPUs that a container made with ``TOLD_CPUS`` may use."""

TOLD_CPUS = {"nano_cpus": 1_500_000_000}
QUOTA = {"cpu_quota": 150_000}


@dataclass
class World:
    engine: Engine
    docker: DockerEngine
    people: WebhookReceiver
    boxes: Boxes
    lock: threading.Lock = field(default_factory=threading.Lock)

    def box(self, limits: dict[str, int] | None = None) -> str:
        with self.lock:  # docker-py's client is made for one thread
            return self.boxes.make(self.docker, limits=limits)

    def fires(self, box: str, alertname: str) -> None:
        assert self.engine.deliver(delivery(_labels(box, alertname))) == 200

    def ends(self, box: str, alertname: str) -> None:
        assert self.engine.deliver(resolved(_labels(box, alertname))) == 200

    def runs_by_hand(self, box: str) -> None:
        """A person lets ``short`` limit it."""
        done = self.engine.command(
            "run", "short", *(f"{name}={value}" for name, value in _labels(box, "Short").items())
        )
        assert done.code == 0, done

    def cpus(self, box: str) -> tuple[float | None, float | None]:
        """What it may use, by Docker and by its kernel; None = as much as there is."""
        with self.lock:
            container = self.docker.client.containers.get(box)
            quota_us, period_us = self.docker.cpu_cgroup(box)
        host = container.attrs["HostConfig"]
        period = host["CpuPeriod"] or 100_000
        told = host["NanoCpus"] / 1e9 if host["NanoCpus"] else host["CpuQuota"] / period
        return told if told > 0 else None, None if quota_us is None else quota_us / period_us

    def may_use(self, box: str, cpus: float | None) -> None:
        """Wait until Docker and the kernel agree that it may use so much."""
        wait_until(lambda: self.cpus(box) == (cpus, cpus), f"{box} may use {cpus} CPUs", WITHIN_S)

    def leases(self, box: str) -> list[dict[str, Any]]:
        """Open and closed ones, the youngest first."""
        listed = self.engine.get("/api/v1/leases", state="all", limit=1000)
        return [lease for lease in listed if lease["target"] == _target(box)]

    def states(self, box: str) -> list[str]:
        return [lease["state"] for lease in self.leases(box)]

    def wait_for(self, box: str, *states: str) -> None:
        """Wait until its leases are so, the youngest first."""
        wait_until(lambda: self.states(box) == [*states], f"the leases of {box} are {states}", WITHIN_S)

    def limited(self, box: str, alertname: str) -> dict[str, Any]:
        """Let it fire: the lease once the container is limited."""
        n_before = len(self.leases(box))
        self.fires(box, alertname)
        wait_until(lambda: len(self.leases(box)) > n_before, f"{box} is limited for {alertname}", WITHIN_S)
        return self.leases(box)[0]

    def listed(self) -> str:
        """What ``remediator leases`` prints, without its line breaks."""
        return " ".join(self.engine.command("leases").out.split())

    def told(self, box: str) -> list[str]:
        """Titles of the messages about it."""
        return [title for title in titles(self.people) if box in title]

    def happened(self, box: str) -> list[tuple[str, str]]:
        """What the audit says of its leases, oldest first: event and how it ended."""
        return [
            (event["type"], event["data"].get("how") or event["outcome"])
            for event in self.engine.events()
            if event["target"] == _target(box) and event["type"].startswith(("lease_", "undo_"))
        ]


def _labels(box: str, alertname: str) -> dict[str, str]:
    return {"alertname": alertname, "hostname": "gpu-07", "container_name": box}


def _target(box: str) -> str:
    return f"docker:gpu-07/{box}"


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


TAKEN_BACK = [("undo_started", ""), ("undo_finished", "succeeded"), ("lease_closed", "undone")]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, docker_engine: DockerEngine) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("leases")
    boxes = Boxes(folder / "ledgers")
    with WebhookReceiver() as people:
        engine = Engine(
            folder / "engine",
            {"all.yaml": PLAYBOOKS},
            docker_url=docker_engine.url,
            notify_url=people.url.replace("http://", "json://"),
        )
        try:
            engine.start()
            yield World(engine, docker_engine, people, boxes)
        finally:
            engine.kill()
            boxes.remove()


def lease_when_the_alert_resolves_then_it_is_taken_back_some_time_after(world: World) -> None:
    box = world.box(TOLD_CPUS)
    world.may_use(box, HAD)
    world.limited(box, "Hot")
    world.may_use(box, 0.5)
    (shown,) = [row for row in _rows(world.engine.command("leases", "--json")) if row["target"] == _target(box)]
    assert (shown["state"], shown["playbook"], shown["due_at"]) == ("open", "hot", shown["at_most_at"])
    text = world.listed()
    assert f"docker.limit {_target(box)} open" in text
    assert f"goes {AFTER_S}s after a resolve" in text
    world.ends(box, "Hot")
    world.may_use(box, HAD)
    world.wait_for(box, "undone")
    (lease,) = world.leases(box)
    (event,) = (event for event in world.engine.events("undo_started") if event["target"] == _target(box))
    assert _time(event["at"]) >= _resolved_at(world, box) + timedelta(seconds=AFTER_S)
    assert world.happened(box) == [("lease_opened", ""), *TAKEN_BACK]
    assert _target(box) not in world.listed()
    assert lease["before"]["nano_cpus"] == TOLD_CPUS["nano_cpus"]
    assert world.told(box) == []


def lease_when_its_time_is_over_before_after_then_it_is_taken_back_then(world: World) -> None:
    box = world.box()
    lease = world.limited(box, "Long")
    wait_until(lambda: datetime.now(UTC) > _time(lease["opened_at"]) + timedelta(seconds=1), "a second passes", 60)
    world.ends(box, "Long")
    _resolved_at(world, box)
    assert world.leases(box)[0]["due_at"] == lease["at_most_at"]
    world.may_use(box, 0.5)
    world.may_use(box, None)
    world.wait_for(box, "undone")
    lived = _time(world.leases(box)[0]["closed_at"]) - _time(lease["opened_at"])
    assert lived >= timedelta(seconds=LONG_S)
    assert world.happened(box) == [("lease_opened", ""), *TAKEN_BACK]


def lease_when_it_still_fires_at_its_time_then_it_is_kept_and_people_are_told_once(world: World) -> None:
    box = world.box(QUOTA)
    world.limited(box, "Short")
    world.wait_for(box, "kept")
    world.may_use(box, 0.5)
    wait_until(lambda: len(world.told(box)) == 1, "people are told", WITHIN_S)
    world.ends(box, "Short")
    world.may_use(box, HAD)
    world.wait_for(box, "undone")
    assert world.happened(box) == [("lease_opened", ""), ("lease_kept", ""), *TAKEN_BACK]
    assert len(world.told(box)) == 1


def lease_when_it_was_run_by_hand_then_its_time_alone_ends_it(world: World) -> None:
    box = world.box()
    world.runs_by_hand(box)
    world.wait_for(box, "undone")
    world.may_use(box, None)
    (lease,) = world.leases(box)
    assert _time(lease["closed_at"]) - _time(lease["opened_at"]) >= timedelta(seconds=SHORT_S)
    assert world.happened(box) == [("lease_opened", ""), *TAKEN_BACK]


def lease_when_a_person_asks_for_its_undo_then_it_goes_while_it_fires(world: World) -> None:
    box = world.box(QUOTA)
    lease = world.limited(box, "Hot")
    world.may_use(box, 0.5)
    assert world.engine.command("undo", lease["run_id"]).code == 2, "it wants a reason"
    looks_only = world.engine.command("undo", lease["run_id"], "--reason", "it is needed", role="view")
    assert looks_only.code != 0
    assert world.states(box) == ["open"]
    done = world.engine.command("undo", lease["run_id"], "--reason", "it is needed")
    assert done.code == 0, done
    world.may_use(box, HAD)
    world.wait_for(box, "undone")
    assert world.engine.command("undo", lease["run_id"], "--reason", "again").code != 0
    assert world.happened(box) == [("lease_opened", ""), ("undo_requested", ""), *TAKEN_BACK]
    (asked,) = (event for event in world.engine.events("undo_requested") if event["target"] == _target(box))
    assert (asked["data"]["reason"], asked["actor"] not in ("", "engine")) == ("it is needed", True)


def lease_when_others_change_the_limit_then_theirs_stays_and_people_are_told(world: World) -> None:
    box = world.box(QUOTA)
    world.limited(box, "Hot")
    world.may_use(box, 0.5)
    with world.lock:
        world.docker.client.containers.get(box).update(cpu_quota=70_000)
    world.ends(box, "Hot")
    world.wait_for(box, "drifted")
    wait_until(lambda: len(world.told(box)) == 1, "people are told", WITHIN_S)
    assert world.cpus(box) == (0.7, 0.7)
    assert world.happened(box) == [("lease_opened", ""), ("lease_closed", "drifted")]


def leases_when_the_lower_of_two_ends_first_then_both_go_with_the_upper(world: World) -> None:
    box = world.box(TOLD_CPUS)
    world.limited(box, "Hot")
    world.limited(box, "Hotter")
    world.may_use(box, 0.25)
    world.ends(box, "Hot")
    world.wait_for(box, "open", "released")
    assert world.cpus(box) == (0.25, 0.25)
    assert "it goes with the younger one" in world.listed()
    world.ends(box, "Hotter")
    world.may_use(box, HAD)
    world.wait_for(box, "undone", "undone")
    started, finished, closed = TAKEN_BACK
    opened = ("lease_opened", "")
    assert world.happened(box) == [opened, opened, ("lease_released", ""), started, finished, closed, closed]
    assert _each_opened_and_closed_once(world, box) == 2


STORIES = (
    lease_when_the_alert_resolves_then_it_is_taken_back_some_time_after,
    lease_when_its_time_is_over_before_after_then_it_is_taken_back_then,
    lease_when_it_still_fires_at_its_time_then_it_is_kept_and_people_are_told_once,
    lease_when_it_was_run_by_hand_then_its_time_alone_ends_it,
    lease_when_a_person_asks_for_its_undo_then_it_goes_while_it_fires,
    lease_when_others_change_the_limit_then_theirs_stays_and_people_are_told,
    leases_when_the_lower_of_two_ends_first_then_both_go_with_the_upper,
)


@pytest.fixture(scope="module")
def played(world: World) -> Iterator[dict[str, Future[None]]]:
    with story.played(STORIES, world) as begun:
        yield begun


@pytest.mark.parametrize("name", [one.__name__ for one in STORIES])
def test_story(played: dict[str, Future[None]], name: str) -> None:
    played[name].result()


def test_leases_when_the_engine_is_killed_while_they_are_open_then_the_next_one_takes_them_back(
    world: World, played: dict[str, Future[None]]
) -> None:
    wait(played.values())
    ends_first, ends_later, by_time = world.box(QUOTA), world.box(QUOTA), world.box()
    world.limited(ends_first, "Hot")
    world.limited(ends_later, "Hot")
    world.runs_by_hand(by_time)
    wait_until(lambda: bool(world.leases(by_time)), "all are limited", WITHIN_S)
    due_at = _time(world.leases(by_time)[0]["at_most_at"])
    world.ends(ends_first, "Hot")
    world.engine.kill()
    assert [world.cpus(box) for box in (ends_first, ends_later, by_time)] == [(0.5, 0.5)] * 3
    listed = [row["target"] for row in _rows(world.engine.command("leases", "--json"))]
    assert {_target(box) for box in (ends_first, ends_later, by_time)} <= {*listed}, "also without an engine"
    wait_until(lambda: datetime.now(UTC) > due_at, "its time is over", WITHIN_S)
    world.engine.start()
    for box, had in ((ends_first, HAD), (by_time, None)):
        world.may_use(box, had)
        world.wait_for(box, "undone")
    assert world.states(ends_later) == ["open"]
    assert world.cpus(ends_later) == (0.5, 0.5)
    world.ends(ends_later, "Hot")
    world.may_use(ends_later, HAD)
    world.wait_for(ends_later, "undone")
    for box in (ends_first, ends_later, by_time):
        assert world.happened(box) == [("lease_opened", ""), *TAKEN_BACK]
        assert _each_opened_and_closed_once(world, box) == 1
    assert world.engine.command("audit", "verify").code == 0


def test_leases_when_the_engine_is_paused_then_none_goes_but_by_hand(
    world: World, played: dict[str, Future[None]]
) -> None:
    wait(played.values())
    waits, by_hand = world.box(QUOTA), world.box(QUOTA)
    world.limited(waits, "Hot")
    lease = world.limited(by_hand, "Hot")
    assert world.engine.command("pause", "--reason", "we look").code == 0
    try:
        world.ends(waits, "Hot")
        may_go_at = _resolved_at(world, waits) + timedelta(seconds=AFTER_S)
        assert world.engine.command("undo", lease["run_id"], "--reason", "it is needed").code == 0
        world.may_use(by_hand, HAD)
        world.wait_for(by_hand, "undone")
        wait_until(lambda: datetime.now(UTC) > may_go_at + timedelta(seconds=1), "it would have gone", WITHIN_S)
        assert world.states(waits) == ["open"]
        assert world.cpus(waits) == (0.5, 0.5)
    finally:
        assert world.engine.command("resume", "--reason", "seen").code == 0
    world.may_use(waits, HAD)
    world.wait_for(waits, "undone")


def _resolved_at(world: World, box: str) -> datetime:
    """When the last of the subjects about it was closed; waits until all are."""

    def ends() -> list[Any]:
        return [at for (at,) in world.engine.query("SELECT closed_at FROM subject WHERE per LIKE ?", f'%"{box}"%')]

    wait_until(lambda: None not in ends(), f"the alert about {box} has ended", WITHIN_S)
    return _time(max(ends()))


def _each_opened_and_closed_once(world: World, box: str) -> int:
    """How many leases it had."""
    ids = {
        kind: [event["data"]["lease_id"] for event in world.engine.events(kind) if event["target"] == _target(box)]
        for kind in ("lease_opened", "lease_closed")
    }
    assert sorted(ids["lease_opened"]) == sorted(ids["lease_closed"])
    assert len({*ids["lease_opened"]}) == len(ids["lease_opened"])
    return len(ids["lease_opened"])


def _rows(listed: CommandEnd) -> list[dict[str, Any]]:
    assert listed.code == 0, listed
    rows: list[dict[str, Any]] = json.loads(listed.out)
    return rows
