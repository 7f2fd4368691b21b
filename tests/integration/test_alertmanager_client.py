"""The adapter of Alertmanager's API, on real Alertmanagers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from remediator.clients.alertmanager import Alertmanager, Login
from remediator.errors import AccessDeniedError, TransientActionError
from remediator.settings import read_secret_file

pytestmark = pytest.mark.alertmanager

NOBODY = "http://127.0.0.1:9/nobody"


@pytest.fixture(params=["0.25", "0.31"])
def real(request: pytest.FixtureRequest, alertmanager_factory: Any) -> Any:
    return alertmanager_factory(NOBODY, version=request.param)


def wait_for(look: Callable[[], Any]) -> Any:
    until = datetime.now(UTC) + timedelta(seconds=20)
    while not (found := look()) and datetime.now(UTC) < until:
        pass
    return found


def test_alerts_when_one_fires_then_it_is_active_with_its_receivers(real: Any) -> None:
    real.push({"alertname": "X", "hostname": "gpu-07"}, {"summary": "hot"})
    client = Alertmanager(real.url)
    (alert,) = wait_for(lambda: [alert for alert in client.alerts() if alert.is_active])
    assert dict(alert.labels) == {"alertname": "X", "hostname": "gpu-07"}
    assert (dict(alert.annotations), alert.muted_by, alert.receivers) == ({"summary": "hot"}, "", ("remediator",))
    assert len(alert.fingerprint) == 16


def test_alerts_when_one_is_silenced_then_it_is_listed_as_muted(real: Any) -> None:
    real.push({"alertname": "X"})
    real.silence({"alertname": "X"})
    client = Alertmanager(real.url)
    (alert,) = wait_for(lambda: [alert for alert in client.alerts() if alert.muted_by])
    assert (alert.is_active, alert.muted_by) == (False, "silenced")


def test_alerts_when_one_is_resolved_then_it_is_gone(real: Any) -> None:
    client = Alertmanager(real.url)
    real.push({"alertname": "X"})
    assert wait_for(client.alerts)
    real.resolve({"alertname": "X"})
    assert wait_for(lambda: client.alerts() == ())


def test_started_at_when_asked_then_is_a_moment_ago(real: Any) -> None:
    age = datetime.now(UTC) - Alertmanager(real.url).started_at()
    assert timedelta(0) <= age < timedelta(minutes=5)


def test_alerts_when_nobody_listens_then_transient() -> None:
    with pytest.raises(TransientActionError, match="cannot be reached"):
        Alertmanager("http://127.0.0.1:9").alerts()


def test_alerts_when_what_answers_is_no_alertmanager_then_transient(real: Any) -> None:
    with pytest.raises(TransientActionError, match="no proper answer"):
        Alertmanager(f"{real.url}/somewhere").alerts()


def test_alerts_when_our_own_token_cannot_be_read_then_access_denied(real: Any, tmp_path: Path) -> None:
    client = Alertmanager(real.url, Login(token=lambda: read_secret_file(tmp_path / "gone")[0]))
    with pytest.raises(AccessDeniedError, match="cannot be read"):
        client.alerts()
