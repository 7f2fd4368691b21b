"""The real parts themselves: what the other tests rely on when they start a Prometheus or an Alertmanager."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest_realparts import AlertmanagerFactory, AlertmanagerPairFactory, PrometheusFactory
from realparts.alertmanager import VERSIONS, Version
from realparts.loopback import MetricsPage, WebhookReceiver
from realparts.process import wait_until

pytestmark = pytest.mark.alertmanager

LEAK = {"alertname": "GPUMemoryLeakSlope", "hostname": "gpu-07", "container_name": "trainer-0"}


@pytest.mark.parametrize("version", VERSIONS)
def test_alertmanager_when_an_alert_is_pushed_and_resolved_then_the_receiver_gets_both(
    version: Version, alertmanager_factory: AlertmanagerFactory, webhook_receiver: WebhookReceiver
) -> None:
    alertmanager = alertmanager_factory(f"{webhook_receiver.url}/hook", version=version)
    alertmanager.push(LEAK, {"summary": "leaks"})
    wait_until(lambda: webhook_receiver.seen(**LEAK) == ["firing"], "the firing alert is delivered", 60)
    alertmanager.resolve(LEAK)
    wait_until(lambda: webhook_receiver.seen(**LEAK) == ["firing", "resolved"], "the resolved one too", 60)
    first = webhook_receiver.received[0]
    assert (first.path, first.headers["User-Agent"].startswith(f"Alertmanager/{version}")) == ("/hook", True)


@pytest.mark.parametrize("version", VERSIONS)
def test_alertmanager_when_given_a_token_file_then_it_sends_the_token(
    version: Version, tmp_path: Path, alertmanager_factory: AlertmanagerFactory, webhook_receiver: WebhookReceiver
) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("s3cret")
    alertmanager_factory(webhook_receiver.url, version=version, token_file=token_file).push(LEAK)
    wait_until(lambda: len(webhook_receiver.received) == 1, "the alert is delivered", 60)
    assert webhook_receiver.received[0].headers["Authorization"] == "Bearer s3cret"


@pytest.mark.parametrize("version", VERSIONS)
def test_alertmanager_when_killed_and_started_again_then_it_delivers_the_same_alert_again(
    version: Version, alertmanager_factory: AlertmanagerFactory, webhook_receiver: WebhookReceiver
) -> None:
    alertmanager = alertmanager_factory(webhook_receiver.url, version=version)
    alertmanager.push(LEAK)
    wait_until(lambda: webhook_receiver.seen(**LEAK) == ["firing"], "the alert is delivered", 60)
    alertmanager.kill()
    alertmanager.start()
    alertmanager.push(LEAK)
    wait_until(lambda: webhook_receiver.seen(**LEAK) == ["firing", "firing"], "it is delivered again", 60)


@pytest.mark.parametrize("version", VERSIONS)
def test_alertmanager_pair_when_the_receiver_is_slower_than_the_peer_timeout_then_both_deliver(
    version: Version, alertmanager_pair_factory: AlertmanagerPairFactory, webhook_receiver: WebhookReceiver
) -> None:
    webhook_receiver.delay_s = 3.0
    pair = alertmanager_pair_factory(webhook_receiver.url, version=version, peer_timeout="1s")
    for alertmanager in pair:
        alertmanager.push(LEAK)
    wait_until(lambda: len(webhook_receiver.received) >= 2, "both have delivered", 20)
    senders = {received.payload["externalURL"] for received in webhook_receiver.received}
    assert senders == {alertmanager.url for alertmanager in pair}


def test_prometheus_when_a_rule_holds_then_alertmanager_delivers_its_alert_and_its_end(
    alertmanager_factory: AlertmanagerFactory,
    prometheus_factory: PrometheusFactory,
    webhook_receiver: WebhookReceiver,
    metrics_page: MetricsPage,
) -> None:
    metrics_page.text = 'gpu_temp{hostname="gpu-07"} 91\n'
    alertmanager = alertmanager_factory(webhook_receiver.url)
    rules = {"groups": [{"name": "test", "rules": [{"alert": "Hot", "expr": "gpu_temp > 85"}]}]}
    prometheus = prometheus_factory(
        rules=rules, targets={"gpu": [metrics_page.address]}, alertmanager_urls=[alertmanager.url]
    )
    wait_until(lambda: webhook_receiver.seen(alertname="Hot") == ["firing"], "the alert is delivered", 60)
    assert prometheus.value("gpu_temp") == 91
    metrics_page.text = 'gpu_temp{hostname="gpu-07"} 40\n'
    wait_until(lambda: webhook_receiver.seen(alertname="Hot") == ["firing", "resolved"], "its end is delivered", 60)
