"""An engine that silences its alert on a real pair of Alertmanagers, is killed, and knows its silence all the same."""

from __future__ import annotations

import json

import pytest

from acceptance.conftest import EngineFactory
from conftest_realparts import AlertmanagerPairFactory
from realparts.alertmanager import VERSIONS
from realparts.process import wait_until
from remediator.clients.alertmanager import Alertmanager
from remediator.clients.ports import ListedSilence

pytestmark = pytest.mark.alertmanager

WITHIN_S = 60.0

QUIET = """
playbook: quiet
match: [alertname = Leak]
per: [host, container_name]
steps:
  - name: quiet
    action: alertmanager.silence
    params: {duration: 2h, labels: {container_name: "{{ labels.container_name }}"}}
escalate: {to: [people]}
"""


def test_silence_when_the_engine_is_killed_while_it_lives_then_the_next_one_can_end_it(
    engine_factory: EngineFactory, alertmanager_pair_factory: AlertmanagerPairFactory
) -> None:
    engine = engine_factory({"quiet.yaml": QUIET})
    pair = alertmanager_pair_factory(engine.webhook, version=VERSIONS[-1], token_file=engine.token_file("deliver"))
    with engine.config.open("a") as config:  # each must know the others' ports
        urls = ", ".join(f'"{alertmanager.url}"' for alertmanager in pair)
        config.write(f'[alertmanager]\nurls = [{urls}]\nreceiver = "remediator"\n')
    engine.start()
    for alertmanager in pair:
        alertmanager.push({"alertname": "Leak", "hostname": "gpu-07", "container_name": "trainer-0"})

    def silences(of: int) -> list[ListedSilence]:
        return list(Alertmanager(pair[of].url).silences())

    wait_until(lambda: [one.status for one in silences(1)] == ["active"], "the second heard of the silence", WITHIN_S)
    wait_until(lambda: engine.runs()[0]["outcome"] == "succeeded", "the run has ended", WITHIN_S)
    (silence,) = silences(0)
    assert (dict(silence.labels), silence.created_by) == ({"container_name": "trainer-0"}, "remediator")
    silence_run = engine.runs()[0]["run_id"]
    assert silence_run in silence.comment
    engine.kill()
    assert [one.is_alive for one in silences(0)] == [True]
    engine.start()
    (lease,) = json.loads(engine.command("leases", "--json").out)
    assert lease["target"] == f"alertmanager:{silence.id}"
    assert engine.command("undo", silence_run, "--reason", "it is mended").code == 0
    wait_until(lambda: not any(one.is_alive for one in (*silences(0), *silences(1))), "the silence ends", WITHIN_S)
    assert [one.id for one in silences(1)] == [silence.id]
    wait_until(lambda: len(engine.events("lease_closed")) == 1, "the lease is closed", WITHIN_S)
    assert engine.events("lease_closed")[0]["data"]["how"] == "undone"
    assert engine.command("audit", "verify").code == 0
