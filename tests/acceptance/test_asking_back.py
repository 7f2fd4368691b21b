"""An engine that asks a real Alertmanager before it acts: what people silence is left alone for as long as they do."""

from __future__ import annotations

import pytest

from acceptance.conftest import EngineFactory
from acceptance.engine import RESTART
from acceptance.story import Deed, DockerStarts, Stage, Until, ended, passes, restarted, told
from conftest_docker import Trainer
from conftest_realparts import AlertmanagerFactory
from realparts.alertmanager import VERSIONS
from realparts.docker_engine import DockerEngine
from realparts.loopback import WebhookReceiver

pytestmark = [pytest.mark.docker, pytest.mark.alertmanager]

HOLD_S = 5

ASKS_AGAIN_S = 90
"""A run whose turn was held back is looked at again each minute."""


def test_turn_when_the_alert_is_silenced_during_the_hold_then_nothing_acts_until_the_silence_ends(
    engine_factory: EngineFactory,
    alertmanager_factory: AlertmanagerFactory,
    docker_engine: DockerEngine,
    docker_starts: DockerStarts,
    people: WebhookReceiver,
    trainer: Trainer,
) -> None:
    engine = engine_factory(
        {"restart.yaml": f"{RESTART}hold: {HOLD_S}s\n"},
        docker_url=docker_engine.url,
        notify_url=people.url.replace("http://", "json://"),
    )
    alertmanager = alertmanager_factory(engine.webhook, version=VERSIONS[-1], token_file=engine.token_file("deliver"))
    with engine.config.open("a") as config:  # each must know the other's port
        config.write(f'[alertmanager]\nurls = ["{alertmanager.url}"]\nreceiver = "remediator"\n')
    engine.start()
    box = trainer()
    labels = {"alertname": "Leak", "hostname": "gpu-07", "container_name": box}
    stage = Stage(engine, docker_starts, people, (box,))
    silences: list[str] = []

    def waits_for() -> list[str]:
        return [reason for run in stage.runs() for reason in run["waits_for"]]

    stage.play(
        Deed(words="fires", do=lambda: alertmanager.push(labels)),
        stage.was_delivered(box, "firing"),
        Deed(words="is silenced", do=lambda: silences.append(alertmanager.silence({"container_name": box}))),
        Until(words="its turn is held back", is_so=lambda: waits_for() == ["turn:silenced"]),
        passes(HOLD_S),
        Until(words="it waits on", is_so=lambda: waits_for() == ["turn:silenced"]),
        Deed(words="the silence ends", do=lambda: alertmanager.end_silence(silences[0])),
        restarted(box, within_s=ASKS_AGAIN_S),
        ended(box, "succeeded"),
        told(box, "done"),
    )
    assert f'remediator_alertmanager_ok{{url="{alertmanager.url}"}} 1.0' in engine.metrics()
    assert engine.command("audit", "verify").code == 0
