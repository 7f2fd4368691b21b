"""An Alertmanager is killed while alerts fire, and comes back without its memory: what it says anew starts no second
run, and for what it does not say any more nothing acts."""

from __future__ import annotations

import pytest

from acceptance.conftest import EngineFactory
from acceptance.engine import RESTART
from acceptance.faults import WITHIN_S, Boxes, check_nothing_lost_or_done_twice, leak, settle
from conftest_realparts import AlertmanagerFactory
from realparts.alertmanager import VERSIONS, Alertmanager
from realparts.docker_engine import DockerEngine
from realparts.process import wait_until

pytestmark = [pytest.mark.docker, pytest.mark.alertmanager]

HOLD_S = 12

HELD = RESTART.replace("playbook: restart", "playbook: held").replace("= Leak", "= HeldLeak") + f"hold: {HOLD_S}s\n"


def test_alertmanager_when_killed_while_alerts_fire_then_no_second_run_and_no_act_for_what_it_has_forgotten(
    engine_factory: EngineFactory,
    alertmanager_factory: AlertmanagerFactory,
    docker_engine: DockerEngine,
    boxes: Boxes,
) -> None:
    engine = engine_factory({"restart.yaml": RESTART, "held.yaml": HELD}, docker_url=docker_engine.url)
    alertmanager: Alertmanager = alertmanager_factory(
        engine.webhook, version=VERSIONS[-1], token_file=engine.token_file("deliver")
    )
    with engine.config.open("a") as config:
        config.write(f'[alertmanager]\nurls = ["{alertmanager.url}"]\nreceiver = "remediator"\n')
    engine.start()
    done, goes_on, over = (boxes.make(docker_engine) for _ in range(3))
    fires = [leak(done), leak(goes_on, alertname="HeldLeak"), leak(over, alertname="HeldLeak")]

    def n_delivered(box: str) -> int:
        return sum(box.encode() in body for (body,) in engine.query("SELECT body FROM delivery"))

    def run_of(box: str) -> dict[str, object]:
        (run,) = [run for run in engine.runs() if run["per"]["container_name"] == box]
        return run

    for labels in fires:
        alertmanager.push(labels)
    wait_until(lambda: len(engine.runs()) == 3, "each has a run", WITHIN_S)
    wait_until(lambda: run_of(done)["outcome"] == "succeeded", "the first is done", WITHIN_S)
    alertmanager.kill()
    alertmanager.start()  # and nobody tells it of `over` again: that has ended meanwhile
    before = {box: n_delivered(box) for box in (done, goes_on)}
    for labels in fires[:2]:
        alertmanager.push(labels)
    for box, n in before.items():
        wait_until(lambda box=box, n=n: n_delivered(box) > n, f"told of {box} as if for the first time", WITHIN_S)

    wait_until(lambda: run_of(goes_on)["outcome"] == "succeeded", "what fires on is done", WITHIN_S + HOLD_S)
    wait_until(
        lambda: run_of(over)["waits_for"] == ["turn:not_known_to_fire"], "the other's turn is held back", WITHIN_S
    )
    assert [boxes.n_restarts(box) for box in (done, goes_on, over)] == [1, 1, 0]
    assert len(engine.runs()) == 3
    assert engine.command("cancel", str(run_of(over)["run_id"]), "--reason", "it has ended").code == 0
    settle(engine)
    check_nothing_lost_or_done_twice(engine, boxes)
