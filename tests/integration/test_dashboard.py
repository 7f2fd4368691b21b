"""The dashboard's queries, run by a real Prometheus that scrapes a real engine with a short life behind it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import requests

from acceptance.engine import RESTART, Engine
from realparts.loopback import MetricsPage, WebhookReceiver
from realparts.process import wait_until
from realparts.prometheus import Prometheus

BOARD = json.loads((Path(__file__).resolve().parents[2] / "deploy" / "grafana" / "remediator.json").read_text("utf-8"))

TARGETS = [(panel["title"], target) for panel in BOARD["panels"] for target in panel.get("targets", [])]

EMPTY_WHEN_WELL = {
    ("Alertmanagers and Prometheus servers that answer", "A"),  # the settings of this engine name none
    ("Errors nobody foresaw, refused calls", "A"),  # there is no bug
    ("Errors nobody foresaw, refused calls", "C"),  # the playbooks are right
}
"""By panel and query: series that come to be with what they count."""

TELL = """
playbook: tell
match: [alertname = Told]
per: [host, container_name]
steps:
  - {action: noop}
  - {action: notify.send, params: {to: [people], title: told, body: "{{ labels.container_name }} is told of"}}
"""

WATCHDOG = "playbook: watchdog\nmatch: [alertname = Watchdog]\ncases: [{name: all, ignore: it always fires}]\n"


def alert(name: str, status: str, **labels: str) -> dict[str, Any]:
    now = datetime.now(UTC).isoformat()
    return {"status": status, "labels": {"alertname": name, "hostname": "gpu-07", **labels}, "startsAt": now} | (
        {"endsAt": now} if status == "resolved" else {}
    )


def body(*alerts: Any) -> bytes:
    group = {"version": "4", "groupKey": "g", "status": "firing", "receiver": "r", "alerts": [*alerts]}
    return json.dumps(group).encode()


def live(engine: Engine, page: MetricsPage, over: threading.Event) -> None:
    """A life in which each kind of thing happens again and again; the page is what a scrape with a token would get."""
    n = 0
    while not over.wait(0.3):
        n += 1
        engine.deliver(body(alert("Watchdog", "firing"), 7))  # 7 is no alert
        engine.deliver(body(alert("Unknown", "firing" if n % 2 else "resolved", n=str(n // 2))))
        engine.deliver(body(alert("Leak", "firing", container_name=f"trainer-{n}")))  # its Docker host is away
        engine.deliver(body(alert("Told", "firing", container_name=f"trainer-{n}")))
        engine.deliver(b"no delivery")
        engine.ask("POST", "/api/v1/alertmanager", "", data=body())
        page.text = engine.metrics()


@pytest.fixture
def prometheus(
    tmp_path: Path,
    prometheus_factory: Callable[..., Prometheus],
    webhook_receiver: WebhookReceiver,
    metrics_page: MetricsPage,
) -> Iterator[Prometheus]:
    playbooks = {"tell.yaml": TELL, "restart.yaml": RESTART, "watchdog.yaml": WATCHDOG}
    found = prometheus_factory(
        rules={"groups": []}, targets={"remediator": [metrics_page.address]}, alertmanager_urls=[]
    )
    engine = Engine(
        tmp_path / "engine",
        playbooks,
        notify_url=f"json://{webhook_receiver.address}/",
        tables=f'[prometheus.servers.here]\nurl = "{found.url}"\n',
    )
    over = threading.Event()
    life = threading.Thread(target=live, args=(engine, metrics_page, over))
    engine.start()
    try:
        life.start()
        yield found
    finally:
        over.set()
        life.join()
        engine.kill()


def has_data(prometheus: Prometheus, expression: str) -> bool:
    """Whether a query gives a series with a number; AssertionError when Prometheus does not take it."""
    query = expression.replace("$__rate_interval", "1m").replace("$instance", ".*")
    answer = requests.get(f"{prometheus.url}/api/v1/query", params={"query": query}, timeout=10)
    assert answer.status_code == 200, answer.text
    return any(series["value"][1] != "NaN" for series in answer.json()["data"]["result"])


@pytest.mark.alertmanager
def test_dashboard_when_an_engine_has_lived_then_each_query_gives_data(prometheus: Prometheus) -> None:
    def without() -> set[tuple[str, str]]:
        return {(title, target["refId"]) for title, target in TARGETS if not has_data(prometheus, target["expr"])}

    try:
        wait_until(lambda: without() <= EMPTY_WHEN_WELL, "each query gives data", 90)
    except TimeoutError:
        assert without() == EMPTY_WHEN_WELL
    assert without() == EMPTY_WHEN_WELL
