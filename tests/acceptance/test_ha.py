"""What an Alertmanager does when things go wrong: both of a pair deliver, one crashes and forgets what it has sent, and
nobody tells of what came and went while the engine was away. One subject, one run, whatever comes."""

from __future__ import annotations

import json
import signal
import time

import pytest

from acceptance.conftest import EngineFactory
from acceptance.engine import RESTART, Engine
from acceptance.story import Deed, DockerStarts, Stage, Until, ended, passes, restarted, told
from conftest_docker import Trainer
from conftest_realparts import AlertmanagerFactory, AlertmanagerPairFactory
from realparts.alertmanager import VERSIONS, Alertmanager, Version
from realparts.docker_engine import DockerEngine
from realparts.loopback import WebhookReceiver

pytestmark = [pytest.mark.docker, pytest.mark.alertmanager, pytest.mark.parametrize("version", VERSIONS)]

PEER_TIMEOUT_S = 1


def labels(container: str) -> dict[str, str]:
    return {"alertname": "Leak", "hostname": "gpu-07", "container_name": container}


def fires(container: str, *alertmanagers: Alertmanager) -> Deed:
    """Prometheus tells each of them, at once."""

    def push() -> None:
        for alertmanager in alertmanagers:
            alertmanager.push(labels(container))

    return Deed(words=f"fires: {container}", do=push)


def counts(alertmanager: Alertmanager, counter: str) -> Until:
    """The Alertmanager's counter is no longer zero."""
    return Until(words=f"counted: {counter}", is_so=lambda: alertmanager.counted(counter) > 0)


def senders(engine: Engine, container: str) -> set[str]:
    """Which Alertmanagers have delivered that it fires."""
    bodies = [json.loads(body) for (body,) in engine.query("SELECT body FROM delivery")]
    return {
        body["externalURL"]
        for body in bodies
        for alert in body["alerts"]
        if alert["status"] == "firing" and alert["labels"]["container_name"] == container
    }


@pytest.fixture
def engine(engine_factory: EngineFactory, docker_engine: DockerEngine, people: WebhookReceiver) -> Engine:
    return engine_factory(
        {"restart.yaml": RESTART},
        docker_url=docker_engine.url,
        notify_url=people.url.replace("http://", "json://"),
    )


def test_pair_when_both_deliver_because_the_engine_was_down_or_slow_then_one_run_for_each_subject(
    version: Version,
    engine: Engine,
    alertmanager_pair_factory: AlertmanagerPairFactory,
    docker_starts: DockerStarts,
    people: WebhookReceiver,
    trainer: Trainer,
) -> None:
    engine.start()  # once, so that what fires later is not taken for what fired before there was a playbook
    pair = alertmanager_pair_factory(
        engine.webhook,
        version=version,
        peer_timeout=f"{PEER_TIMEOUT_S}s",
        token_file=engine.token_file("deliver"),
        # It tries for as long, ten seconds at least; then it would learn that the other has delivered, and keep silent.
        route={"group_interval": "1m"},
    )
    down, slow = trainer(), trainer()
    stage = Stage(engine, docker_starts, people, (down, slow))

    def both_have_sent(container: str) -> Until:
        return Until(
            words=f"both have delivered: {container}",
            is_so=lambda: senders(engine, container) == {alertmanager.url for alertmanager in pair},
        )

    def stand_still() -> None:
        """Longer than the second waits for word that the first has delivered."""
        engine.signal(signal.SIGSTOP)
        fires(slow, *pair).do()
        time.sleep(PEER_TIMEOUT_S + 2)
        engine.signal(signal.SIGCONT)

    stage.play(
        Deed(words="the engine goes down", do=engine.terminate),
        fires(down, *pair),
        passes(PEER_TIMEOUT_S + 2),
        Deed(words="the engine comes up", do=engine.start),
        both_have_sent(down),
        restarted(down),
        ended(down, "succeeded"),
        told(down, "done"),
        Deed(words="the engine stands still", do=stand_still),
        both_have_sent(slow),
        restarted(slow),
        ended(slow, "succeeded"),
        told(slow, "done"),
    )
    assert len(stage.runs()) == 2
    assert engine.command("audit", "verify").code == 0


def test_alertmanager_when_it_crashes_or_an_alert_comes_and_goes_unheard_then_nothing_is_done_again_or_late(
    version: Version,
    engine: Engine,
    alertmanager_factory: AlertmanagerFactory,
    docker_starts: DockerStarts,
    people: WebhookReceiver,
    trainer: Trainer,
) -> None:
    engine.start()
    alertmanager = alertmanager_factory(engine.webhook, version=version, token_file=engine.token_file("deliver"))
    box, unheard = trainer(), trainer()
    stage = Stage(engine, docker_starts, people, (box, unheard))

    def crash() -> None:
        alertmanager.kill()
        alertmanager.start()

    stage.play(
        Deed(words="the engine goes down", do=engine.terminate),
        fires(unheard, alertmanager),
        counts(alertmanager, "alertmanager_notification_requests_failed_total"),
        Deed(words=f"resolves: {unheard}", do=lambda: alertmanager.resolve(labels(unheard))),
        # It tries for ten seconds to say what it began to say, that the alert fires, though it is over by then.
        counts(alertmanager, "alertmanager_notifications_failed_total"),
        Deed(words="the engine comes up", do=engine.start),
        fires(box, alertmanager),
        restarted(box),
        ended(box, "succeeded"),
        told(box, "done"),
        Deed(words="the Alertmanager crashes and comes back", do=crash),
        fires(box, alertmanager),
        stage.was_delivered(box, "firing", times=2),
        passes(1),
    )
    assert [run["per"]["container_name"] for run in stage.runs()] == [box]
    assert senders(engine, unheard) == set()
    assert engine.command("audit", "verify").code == 0
