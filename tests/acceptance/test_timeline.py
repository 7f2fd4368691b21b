"""The whole way on a timeline: a real Alertmanager posts, the engine as a process acts, a real container restarts.

Each story has containers and a group of its own, so that all of them are played at once against both Alertmanagers;
a test waits for its own.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import requests

from acceptance.busy_proxy import BusyProxy
from acceptance.engine import ATTEMPT_TIMEOUT, RESTART, Engine
from acceptance.story import Deed, DockerStarts, Stage, Until, ended, passes, restarted, told
from conftest_docker import Trainer
from conftest_realparts import do_without
from realparts.alertmanager import VERSIONS, Alertmanager, Version, find_binary, webhook_config
from realparts.docker_engine import IDLE, DockerEngine
from realparts.loopback import MetricsPage, WebhookReceiver
from realparts.prometheus import Prometheus

pytestmark = [pytest.mark.docker, pytest.mark.alertmanager]

NEWEST = VERSIONS[-1]

HOLD_S = 4

HELD = f"""
playbook: held
match: [alertname = HeldLeak]
per: [host, container_name]
hold: {HOLD_S}s
guard: {{cooldown: 0s}}
steps:
  - name: restart
    action: docker.restart
    params: {{container: "{{{{ labels.container_name }}}}", stop_timeout: 1s}}
    timeout: {ATTEMPT_TIMEOUT}
report: {{to: [people]}}
escalate: {{to: [people]}}
---
policy: site
protect: [role = login]
max_concurrent_runs: 10
"""


@dataclass
class World:
    """One Alertmanager that delivers to one engine, which acts on one Docker engine; shared by the stories.

    Attributes:
        folder: for what a story starts itself.
        spares: stories' containers, made beforehand.
        busy: Docker hosts by name that fail once, in front of the same Docker engine.
    """

    version: Version
    folder: Path
    alertmanager: Alertmanager
    engine: Engine
    starts: DockerStarts
    people: WebhookReceiver
    busy: dict[str, BusyProxy]
    spares: dict[str, list[str]] = field(default_factory=dict)

    def stage(self, *containers: str) -> Stage:
        return Stage(self.engine, self.starts, self.people, containers)

    def labels(self, container: str, **more: str) -> dict[str, str]:
        labels = {"alertname": "Leak", "hostname": "gpu-07", "container_name": container, "team": container}
        return labels | more

    def fires(self, container: str, **more: str) -> Deed:
        labels = self.labels(container, **more)
        return Deed(words=f"fires: {container} {more}", do=lambda: self.alertmanager.push(labels))

    def fire_together(self, *containers: str, team: str) -> Deed:
        """Told to Alertmanager at once, so that it tells of them at once."""
        now = datetime.now(UTC)
        alerts = [
            {"labels": self.labels(container, team=team), "endsAt": (now + timedelta(days=1)).isoformat()}
            for container in containers
        ]

        def push() -> None:
            requests.post(f"{self.alertmanager.url}/api/v2/alerts", json=alerts, timeout=30).raise_for_status()

        return Deed(words=f"fire together: {', '.join(containers)}", do=push)

    def resolves(self, container: str, **more: str) -> Deed:
        labels = self.labels(container, **more)
        return Deed(words=f"resolves: {container} {more}", do=lambda: self.alertmanager.resolve(labels))


def closed(stage: Stage) -> Until:
    """Every run of the story is closed."""
    return Until(words="its runs are closed", is_so=lambda: {run["phase"] for run in stage.runs()} == {"closed"})


# -- the stories


def fires_repeats_and_resolves(world: World, box: str) -> None:
    stage = world.stage(box)
    stage.play(
        world.fires(box),
        restarted(box),
        ended(box, "succeeded"),
        told(box, "done"),
        stage.delivered(box, "firing", more=3),
        world.resolves(box),
        stage.was_delivered(box, "resolved"),
        closed(stage),
    )


def fires_anew_after_its_end(world: World, box: str) -> None:
    stage = world.stage(box)
    stage.play(
        world.fires(box),
        restarted(box),
        ended(box, "succeeded"),
        told(box, "done"),
        world.resolves(box),
        stage.was_delivered(box, "resolved"),
        closed(stage),
        passes(1.1),  # Alertmanager joins what fires again within the second to what was
        world.fires(box),
        restarted(box),
        ended(box, "succeeded"),
        told(box, "done"),
    )


def resolves_within_the_hold(world: World, box: str) -> None:
    stage = world.stage(box)
    stage.play(
        world.fires(box, alertname="HeldLeak"),
        stage.was_delivered(box, "firing"),
        world.resolves(box, alertname="HeldLeak"),
        ended(box, "cancelled", "resolved"),
        passes(HOLD_S),
    )


def first_attempt_is_told_to_come_later(world: World, box: str) -> None:
    _first_attempt_fails(world, box, "busy-429", "transient", not_before_s=1)


def first_attempt_is_of_unclear_fate(world: World, box: str) -> None:
    # After a 503 nobody knows: it is looked at until the attempt's time is over, and then tried again.
    _first_attempt_fails(world, box, "busy-503", "did_not_happen", not_before_s=31)


def _first_attempt_fails(world: World, box: str, host: str, why: str, *, not_before_s: float) -> None:
    stage = world.stage(box)
    stage.play(
        world.fires(box, hostname=host),
        restarted(box, before_s=not_before_s, within_s=120),
        ended(box, "succeeded"),
        told(box, "done"),
    )
    (run,) = stage.runs()
    attempts = [
        (event["data"]["attempt"], event["outcome"], event["data"]["reason"])
        for event in world.engine.events("attempt_finished")
        if event["run_id"] == run["run_id"] and event["data"]["action"] == "docker.restart"
    ]
    assert attempts == [(1, "failed", why), (2, "succeeded", "none")]
    assert sum(world.busy[host].refused.values()) == 1


def one_delivery_names_two_containers(world: World, first: str, second: str) -> None:
    boxes = (first, second)
    stage = world.stage(*boxes)
    stage.play(
        world.fire_together(*boxes, team=first),
        *(row for box in boxes for row in (restarted(box), ended(box, "succeeded"), told(box, "done"))),
    )
    bodies = [body for (body,) in world.engine.query("SELECT body FROM delivery ORDER BY id")]
    first_body = next(body for body in bodies if first.encode() in body)
    assert second.encode() in first_body, "Alertmanager sent them apart"


def one_of_a_group_resolves(world: World, over: str, firing: str) -> None:
    stage = world.stage(over, firing)
    held = {"alertname": "HeldLeak", "team": over}
    stage.play(
        world.fires(over, **held),
        world.fires(firing, **held),
        stage.was_delivered(over, "firing"),
        stage.was_delivered(firing, "firing"),
        world.resolves(over, **held),
        ended(over, "cancelled", "resolved"),
        restarted(firing, before_s=HOLD_S),
        ended(firing, "succeeded"),
        told(firing, "done"),
    )
    rows = world.engine.query("SELECT body FROM delivery")
    mixed = [body for (body,) in rows if over.encode() in body and b'"resolved"' in body and b'"firing"' in body]
    assert mixed, "Alertmanager sent no mixed group"


def container_is_protected(world: World, box: str) -> None:
    stage = world.stage(box)
    stage.play(
        world.fires(box),
        ended(box, "refused", "protected"),
        told(box, "refused"),
        stage.delivered(box, "firing", more=2),
    )


def is_run_by_hand(world: World, box: str) -> None:
    stage = world.stage(box)
    labels = [f"{name}={value}" for name, value in world.labels(box).items()]

    def run() -> None:
        done = world.engine.command("run", "restart", "--alert", *labels, "--by", "ana", "--wait")
        assert done.code == 0, done

    stage.play(
        Deed(words="remediator run", do=run),
        restarted(box),
        ended(box, "succeeded"),
        told(box, "done"),
        closed(stage),
    )
    (run_row,) = stage.runs()
    planned = [event for event in world.engine.events("plan_made") if event["run_id"] == run_row["run_id"]]
    assert [event["actor"] for event in planned] == ["ana (token the-operate)"]


def prometheus_finds_a_leak_by_its_rule(world: World, box: str) -> None:
    stage = world.stage(box)
    rule = {
        "alert": "Leak",
        "expr": "memory_used_ratio > 0.9",
        "labels": {"team": box},
        "annotations": {"summary": "{{ $labels.container_name }} leaks"},
    }

    def memory(ratio: float) -> str:
        return f'memory_used_ratio{{hostname="gpu-07",container_name="{box}"}} {ratio}\n'

    with MetricsPage(memory(0.5)) as page, contextlib.ExitStack() as stack:
        prometheus = Prometheus(
            world.folder / "prometheus",
            rules={"groups": [{"name": "leaks", "rules": [rule]}]},
            targets={"trainers": [page.address]},
            alertmanager_urls=[world.alertmanager.url],
        )
        stack.callback(prometheus.kill)
        prometheus.start()

        def set_memory(ratio: float) -> Callable[[], None]:
            return lambda: setattr(page, "text", memory(ratio))

        stage.play(
            Until(words="Prometheus sees it", is_so=lambda: prometheus.value("memory_used_ratio") == 0.5),
            passes(2),
            Deed(words="its memory is nearly full", do=set_memory(0.97)),
            restarted(box, before_s=2),
            ended(box, "succeeded"),
            told(box, "done"),
            Deed(words="it is free again", do=set_memory(0.2)),
            stage.was_delivered(box, "resolved"),
            closed(stage),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """One story.

    Attributes:
        play: with the world and the names of its containers.
        versions: of the Alertmanagers that it is played with.
        container_labels: one map for each container.
    """

    play: Callable[..., None]
    versions: tuple[Version, ...] = VERSIONS
    container_labels: tuple[dict[str, str], ...] = ({},)


STORIES = {
    "it fires, repeats and resolves: one restart, one run, closed": Story(play=fires_repeats_and_resolves),
    "it fires anew after its end: a second run": Story(play=fires_anew_after_its_end),
    "it resolves within the hold: nothing is done": Story(play=resolves_within_the_hold),
    "the first attempt is told to come later: tried again": Story(play=first_attempt_is_told_to_come_later),
    "the first attempt is of unclear fate: tried again when it is clear": Story(
        play=first_attempt_is_of_unclear_fate, versions=(NEWEST,)
    ),
    "one delivery names two containers: two runs": Story(
        play=one_delivery_names_two_containers, container_labels=({}, {})
    ),
    "one of a group resolves: only the other is restarted": Story(
        play=one_of_a_group_resolves, container_labels=({}, {})
    ),
    "the container is protected: refused, and people are told": Story(
        play=container_is_protected, container_labels=({"role": "login"},)
    ),
    "it is run by hand: the log names who": Story(play=is_run_by_hand),
    "Prometheus finds a leak by its rule: restarted": Story(
        play=prometheus_finds_a_leak_by_its_rule, versions=(NEWEST,)
    ),
}


# -- the tests


@pytest.fixture(scope="module")
def worlds(
    tmp_path_factory: pytest.TempPathFactory,
    docker_engine: DockerEngine,
    docker_starts: DockerStarts,
    people: WebhookReceiver,
) -> Iterator[dict[Version, World]]:
    """A running world for each Alertmanager; each log is intact at the end."""
    with contextlib.ExitStack() as stack:
        made = {
            version: _world(version, tmp_path_factory, docker_engine, docker_starts, people, stack)
            for version in VERSIONS
        }
        yield made
        for world in made.values():
            verified = world.engine.command("audit", "verify")
            assert (verified.code, verified.err) == (0, ""), verified


def _world(
    version: Version,
    tmp_path_factory: pytest.TempPathFactory,
    docker_engine: DockerEngine,
    docker_starts: DockerStarts,
    people: WebhookReceiver,
    stack: contextlib.ExitStack,
) -> World:
    try:
        find_binary(version)
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        do_without("alertmanager", str(error))
    folder = tmp_path_factory.mktemp("world")
    busy = {}
    for status in (429, 503):
        host = f"busy-{status}"
        busy[host] = BusyProxy(docker_engine.url, folder / f"{host}.sock", status=status)
        stack.callback(busy[host].close)
    engine = Engine(
        folder / "engine",
        {"restart.yaml": RESTART, "held.yaml": HELD},
        docker_url=docker_engine.url,
        notify_url=people.url.replace("http://", "json://"),
        tables="".join(f'[docker.hosts.{host}]\nurl = "{proxy.url}"\n' for host, proxy in busy.items()),
    )
    # One group for each story, flushed a second after it began and then every second or two for as long as it fires.
    route = {"group_by": ["team"], "group_wait": "1s", "group_interval": "1s", "repeat_interval": "1s"}
    config = webhook_config(engine.webhook, token_file=engine.token_file("deliver"), route=route)
    alertmanager = Alertmanager(folder / "alertmanager", config, version=version)
    world = World(version, folder, alertmanager, engine, docker_starts, people, busy)
    for name, story in STORIES.items():
        if version in story.versions:
            world.spares[name] = [
                f"story-{folder.name}-{len(world.spares)}-{n}" for n in range(len(story.container_labels))
            ]
            for container, labels in zip(world.spares[name], story.container_labels, strict=True):
                stack.callback(docker_engine.remove, container)
                docker_engine.run(container, IDLE, labels=labels)
    stack.callback(alertmanager.kill)
    stack.callback(engine.kill)
    engine.start()
    alertmanager.start()
    return world


Performances = dict[tuple[Version, str], Future[None]]


@pytest.fixture(scope="module")
def performances(worlds: dict[Version, World]) -> Iterator[Performances]:
    """Every story, begun."""
    begun: Performances = {}
    with ThreadPoolExecutor(max_workers=2 * len(STORIES)) as stages:
        for version, world in worlds.items():
            for name, containers in world.spares.items():
                begun[version, name] = stages.submit(STORIES[name].play, world, *containers)
        yield begun


@pytest.mark.parametrize(
    ("version", "name"),
    [(version, name) for version in VERSIONS for name, story in STORIES.items() if version in story.versions],
)
def test_timeline(version: Version, name: str, performances: Performances) -> None:
    """Ends as the story does, which asserts what it is about."""
    performances[version, name].result(timeout=240)


@pytest.fixture(params=VERSIONS)
def world(request: pytest.FixtureRequest, worlds: dict[Version, World], performances: Performances) -> World:
    """A world for oneself: its stories are over."""
    wait(performances.values())
    return worlds[request.param]


def test_timeline_when_paused_then_it_waits_until_it_is_resumed(world: World, trainer: Trainer) -> None:
    box = trainer()
    stage = world.stage(box)

    def waits() -> bool:
        return [run["waits_for"] for run in stage.runs()] == [["pause:paused"]]

    assert world.engine.command("pause", "--reason", "night shift", "--by", "ana", role="view").code == 1
    assert world.engine.command("pause", "--reason", "night shift", "--by", "ana").code == 0
    stage.play(
        world.fires(box),
        Until(words="its run waits for the pause", is_so=waits),
        passes(1),
        Deed(words="resume", do=lambda: world.engine.command("resume", "--reason", "day", "--by", "ben")),
        restarted(box, before_s=2),
        ended(box, "succeeded"),
        told(box, "done"),
    )
    people = [(e["type"], e["actor"]) for e in world.engine.events() if e["type"] in ("paused", "resumed")]
    assert people == [("paused", "ana (token the-operate)"), ("resumed", "ben (token the-operate)")]


@pytest.mark.parametrize("world", [NEWEST], indirect=True)
def test_timeline_when_it_is_over_then_the_audit_commands_show_the_whole_run(world: World, trainer: Trainer) -> None:
    box = trainer()
    stage = world.stage(box)
    stage.play(world.fires(box), restarted(box), ended(box, "succeeded"), told(box, "done"))
    (run,) = stage.runs()
    listed = world.engine.command("audit", "list", "--run", run["run_id"], "--json")
    assert [row["type"] for row in listed.rows] == [
        "plan_made", "verdict_given", "attempt_started", "attempt_finished", "run_finished", "attempt_started",
        "attempt_finished",
    ]  # fmt: skip
    acted = world.engine.command(
        "audit", "list", "--target", f"docker:gpu-07/{box}", "--outcome", "succeeded", "--json"
    )
    (finished,) = acted.rows
    assert finished["data"]["after"]["started_at"] == world.starts.started_at(box)
    exported = world.engine.folder / "log.jsonl"
    assert world.engine.command("audit", "export", "-o", str(exported)).code == 0
    assert world.engine.command("audit", "verify", str(exported)).code == 0
    assert "attempt_finished" in world.engine.command("audit", "list", "--run", run["run_id"]).out
