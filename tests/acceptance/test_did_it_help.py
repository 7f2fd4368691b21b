"""Did it help: a real Prometheus says so, or says nothing, of real containers that a real engine restarts.

One engine for all; each story has a container and series of its own. A check's times are seconds here, so what counts
is the order of things, never how fast they were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from acceptance import story
from acceptance.delivery import delivery
from acceptance.engine import ATTEMPT_TIMEOUT, Engine
from acceptance.faults import QUICK, Boxes
from conftest_realparts import do_without
from realparts.docker_engine import DockerEngine
from realparts.loopback import MetricsPage, WebhookReceiver
from realparts.process import wait_until
from realparts.prometheus import Prometheus

pytestmark = [pytest.mark.docker, pytest.mark.alertmanager]

WITHIN_S = 90.0

CHECKED = f"""
playbook: checked
match: [alertname = Leak]
per: [host, container_name]
guard:
  cooldown: 0s
  require: [{{name: exporter_up, query: 'min(up{{job="gpu"}})', equals: 1}}]
steps:
  - name: restart
    action: docker.restart
    params: {{container: "{{{{ labels.container_name }}}}", stop_timeout: 1s}}
    timeout: {ATTEMPT_TIMEOUT}
verify:
  - name: used_ratio
    query: max(used_ratio{{container_name="{{{{ labels.container_name }}}}"}})
    below: 0.8
    settle: 2s
    holds: 2s
    within: 20s
report: {{to: [people]}}
escalate: {{to: [people]}}
---
playbook: needs-what-is-not-there
match: [alertname = NeedsWhatIsNotThere]
per: [host, container_name]
guard: {{cooldown: 0s, require: [{{name: nothing, query: absent_metric, equals: 1}}]}}
steps: [{{action: docker.restart, params: {{container: "{{{{ labels.container_name }}}}"}}}}]
---
playbook: needs-what-is-false
match: [alertname = NeedsWhatIsFalse]
per: [host, container_name]
guard: {{cooldown: 0s, require: [{{name: exporter_down, query: 'min(up{{job="gpu"}})', equals: 0}}]}}
steps: [{{action: docker.restart, params: {{container: "{{{{ labels.container_name }}}}"}}}}]
escalate: {{to: [people]}}
---
playbook: climbs
match: [alertname = Climbs]
per: [host, container_name]
ladder: {{within: 6h}}
guard: {{cooldown: 0s}}
steps:
  - {{rung: 1, action: docker.signal, params: {{container: "{{{{ labels.container_name }}}}", signal: SIGUSR1}}}}
  - name: restart
    rung: 2
    action: docker.restart
    params: {{container: "{{{{ labels.container_name }}}}", stop_timeout: 1s}}
    timeout: {ATTEMPT_TIMEOUT}
  - {{rung: 3, action: notify.send, params: {{to: [people], title: "{{{{ labels.container_name }}}}", body: look}}}}
verify:
  - name: used_ratio
    query: max(used_ratio{{container_name="{{{{ labels.container_name }}}}"}})
    below: 0.8
    within: 3s
escalate: {{to: [people]}}
---
policy: site
max_concurrent_runs: 20
"""

SIGNALLED = f"trap 'echo signalled >>/ledger/$box.signals' USR1; {QUICK.replace('& wait', '& while :; do wait; done')}"


@dataclass
class World:
    engine: Engine
    docker: DockerEngine
    page: MetricsPage
    prometheus: Prometheus
    people: WebhookReceiver
    boxes: Boxes
    used: dict[str, str]

    def box(self, used: str, script: str = QUICK) -> str:
        """A container whose exporter says so much of it, by a Prometheus that has seen it."""
        name = self.boxes.make(self.docker, script)
        self.says(name, used)
        query = f'used_ratio{{container_name="{name}"}}'
        wait_until(lambda: self.prometheus.value(query) == float(used), "Prometheus has it", WITHIN_S)
        return name

    def says(self, name: str, used: str) -> None:
        """What the exporter says from now on; "" = nothing of this container."""
        self.used[name] = used
        lines = [f'used_ratio{{container_name="{box}"}} {value}' for box, value in self.used.items() if value]
        self.page.text = "\n".join([*lines, ""])

    def fires(self, box: str, alertname: str = "Leak") -> None:
        labels = {"alertname": alertname, "hostname": "gpu-07", "container_name": box}
        assert self.engine.deliver(delivery(labels)) == 200

    def run_of(self, box: str) -> dict[str, Any] | None:
        return next((run for run in self.engine.runs() if run["per"]["container_name"] == box), None)

    def ends(self, box: str) -> tuple[str, str]:
        """How the run about a container ended, once it has."""
        wait_until(lambda: bool((run := self.run_of(box)) and run["outcome"]), f"the run of {box} has ended", WITHIN_S)
        run = self.run_of(box)
        assert run is not None
        return run["outcome"], run["reason"]

    def detail(self, box: str) -> str:
        run = self.run_of(box)
        assert run is not None
        (end,) = (event for event in self.engine.events("run_finished") if event["run_id"] == run["run_id"])
        return str(end["data"]["detail"])

    def told(self, box: str) -> Callable[[], list[str]]:
        return lambda: [got.body.decode() for got in self.people.received if box in got.body.decode()]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, docker_engine: DockerEngine) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("did-it-help")
    boxes = Boxes(folder / "ledgers")
    with MetricsPage() as page, WebhookReceiver() as people:
        target = page.url.removeprefix("http://").partition("/")[0]
        try:
            prometheus = Prometheus(
                folder / "prometheus", rules={"groups": []}, targets={"gpu": [target]}, alertmanager_urls=[]
            )
        except FileNotFoundError as error:
            do_without("alertmanager", str(error))
        prometheus.start()
        engine = new_engine(folder / "engine", docker_engine, people, prometheus)
        try:
            engine.start()
            yield World(engine, docker_engine, page, prometheus, people, boxes, {})
        finally:
            engine.kill()
            prometheus.kill()
            boxes.remove()


def new_engine(folder: Path, docker: DockerEngine, people: WebhookReceiver, prometheus: Prometheus) -> Engine:
    return Engine(
        folder,
        {"all.yaml": CHECKED},
        docker_url=docker.url,
        notify_url=people.url.replace("http://", "json://"),
        tables=f'[prometheus.servers.here]\nurl = "{prometheus.url}"\n',
    )


def verification_when_the_number_is_good_then_it_is_confirmed(world: World) -> None:
    box = world.box("0.5")
    world.fires(box)
    assert world.ends(box) == ("succeeded", "none")
    assert world.detail(box) == "all steps were done and used_ratio is 0.5, must be below 0.8"
    assert world.boxes.n_restarts(box) == 1


def verification_when_the_number_stays_bad_then_the_fix_did_not_help_and_people_read_why(world: World) -> None:
    box = world.box("0.97")
    world.fires(box)
    assert world.ends(box) == ("ineffective", "did_not_help")
    assert world.boxes.n_restarts(box) == 1
    wait_until(lambda: any("used_ratio is 0.97" in text for text in world.told(box)()), "people were told", WITHIN_S)


def verification_when_the_series_vanishes_then_nobody_believes_that_it_helped(world: World) -> None:
    box = world.box("0.97")
    world.fires(box)
    wait_until(lambda: world.boxes.n_restarts(box) == 1, "it is restarted", WITHIN_S)
    world.says(box, "")
    assert world.ends(box) == ("unverified", "no_value")
    assert "used_ratio has no value" in world.detail(box)
    wait_until(lambda: any("NOT known" in text for text in world.told(box)()), "people were told", WITHIN_S)


def require_when_it_has_no_value_then_the_plan_waits_and_nothing_is_touched(world: World) -> None:
    box = world.box("0.97")
    world.fires(box, "NeedsWhatIsNotThere")
    wait_until(
        lambda: bool((run := world.run_of(box)) and run["waits_for"] == ["require:require_unknown"]), "waits", WITHIN_S
    )
    assert world.boxes.n_restarts(box) == 0


def require_when_it_is_false_then_the_plan_is_refused_with_the_number(world: World) -> None:
    box = world.box("0.97")
    world.fires(box, "NeedsWhatIsFalse")
    assert world.ends(box) == ("refused", "require")
    assert "exporter_down is 1, must be 0" in world.detail(box)
    assert world.boxes.n_restarts(box) == 0


def ladder_when_no_rung_helps_then_each_is_done_once_and_people_have_the_last_word(world: World) -> None:
    box = world.box("0.97", SIGNALLED)
    world.fires(box, "Climbs")
    assert world.ends(box) == ("ineffective", "did_not_help")
    assert world.boxes.n_restarts(box) == 1
    assert (world.boxes.folder / f"{box}.signals").read_text() == "signalled\n"
    wait_until(lambda: any("look" in text for text in world.told(box)()), "rung 3 tells people", WITHIN_S)
    run = world.run_of(box)
    assert run is not None
    allowed = [
        event["data"]["rung"]
        for event in world.engine.events("verdict_given")
        if event["run_id"] == run["run_id"] and event["data"]["word"] == "allow"
    ]
    assert allowed == [1, 2, 3]


STORIES = (
    verification_when_the_number_is_good_then_it_is_confirmed,
    verification_when_the_number_stays_bad_then_the_fix_did_not_help_and_people_read_why,
    verification_when_the_series_vanishes_then_nobody_believes_that_it_helped,
    require_when_it_has_no_value_then_the_plan_waits_and_nothing_is_touched,
    require_when_it_is_false_then_the_plan_is_refused_with_the_number,
    ladder_when_no_rung_helps_then_each_is_done_once_and_people_have_the_last_word,
)


@pytest.fixture(scope="module")
def played(world: World) -> Iterator[dict[str, Future[None]]]:
    with story.played(STORIES, world) as begun:
        yield begun


@pytest.mark.parametrize("name", [one.__name__ for one in STORIES])
def test_story(played: dict[str, Future[None]], name: str) -> None:
    played[name].result()


def test_verification_when_prometheus_is_away_then_it_is_unverified_and_when_it_comes_back_it_is_asked_again(
    world: World, played: dict[str, Future[None]]
) -> None:
    wait(played.values())
    back, away = world.box("0.5"), world.box("0.5")
    world.fires(back)
    wait_until(lambda: world.boxes.n_restarts(back) == 1, "it is restarted", WITHIN_S)
    world.prometheus.kill()
    world.prometheus.start()
    assert world.ends(back) == ("succeeded", "none")
    world.fires(away)
    wait_until(lambda: world.boxes.n_restarts(away) == 1, "it is restarted", WITHIN_S)
    world.prometheus.kill()
    try:
        assert world.ends(away) == ("unverified", "no_value")
    finally:
        world.prometheus.start()
