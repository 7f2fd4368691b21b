"""A silence whose alert resolves under it, on a real Alertmanager: it never says so, and the engine hears of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from conftest_realparts import AlertmanagerFactory
from realparts.alertmanager import VERSIONS, Version
from realparts.loopback import WebhookReceiver
from realparts.process import wait_until
from remediator.clients.alertmanager import SilencingAlertmanager

pytestmark = pytest.mark.alertmanager

QUIET = """
steps:
  - {name: quiet, action: alertmanager.silence, params: {duration: 2h}}
  - {name: restart, action: docker.restart, params: {container: "{{ labels.container_name }}"}}
verify: [{alert: resolved, within: 30m}]
escalate: {to: [oncall]}
"""

WITHIN_S = 30.0


def delivered(receiver: WebhookReceiver, status: str) -> set[str]:
    """The containers of which a delivery said so."""
    alerts = [alert for delivery in receiver.received for alert in delivery.payload["alerts"]]
    return {alert["labels"]["container_name"] for alert in alerts if alert["status"] == status}


@pytest.mark.parametrize("version", VERSIONS)
def test_silence_when_its_alert_resolves_under_it_then_episode_run_and_silence_end(
    version: Version, bench: Any, alertmanager_factory: AlertmanagerFactory, webhook_receiver: WebhookReceiver
) -> None:
    alertmanager = alertmanager_factory(webhook_receiver.url, version=version)
    bench.clock.moment = datetime.now(UTC)
    bench.alertmanagers = {alertmanager.url: SilencingAlertmanager(alertmanager.url)}
    bench.restarts(steps=QUIET).start(alertmanager={"urls": [alertmanager.url], "receiver": "remediator"})
    labels, other = bench.leak(), bench.leak("trainer-1")
    for each in (labels, other):
        alertmanager.push(each)
    wait_until(lambda: delivered(webhook_receiver, "firing") == {"trainer-0", "trainer-1"}, "both fire", WITHIN_S)

    bench.deliver(bench.fires(labels))
    (silence,) = bench.alertmanagers[alertmanager.url].silences()
    (muted,) = [alert for alert in alertmanager.alerts() if alert["labels"] == labels]
    assert muted["status"]["silencedBy"] == [silence.id]
    assert bench.run()["run_id"] in silence.comment
    bench.after("7m")
    assert (bench.run()["phase"], bench.events("episode_ended")) == ("verifying", [])

    for each in (labels, other):
        alertmanager.resolve(each)
    wait_until(lambda: alertmanager.alerts() == [], "Alertmanager has neither any more", WITHIN_S)
    wait_until(lambda: "trainer-1" in delivered(webhook_receiver, "resolved"), "the other's end is told", WITHIN_S)

    bench.after("7m")
    assert [event.data["reason"] for event in bench.events("episode_ended")] == ["absent"]
    assert bench.ended()[0] == "succeeded"
    bench.after("11m")
    (silence,) = bench.alertmanagers[alertmanager.url].silences()
    assert (silence.status, [lease["state"] for lease in bench.engine.leases(10, is_all=True)]) == (
        "expired", ["undone"],
    )  # fmt: skip
    assert (bench.told(), delivered(webhook_receiver, "resolved")) == ([], {"trainer-1"})
