"""Fixtures that give tests a real Prometheus, real Alertmanagers and a GPU driver. A plugin of ``conftest.py``.

What is not installed skips the test with the reason, or fails it where ``REMEDIATOR_REQUIRE`` names it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Protocol

import pytest

from realparts.alertmanager import Alertmanager, Version, find_binary, make_pair, webhook_config
from realparts.loopback import MetricsPage, WebhookReceiver
from realparts.nvml import FakeDriver, load_here
from realparts.prometheus import Prometheus, find_program


def do_without(part: str, why: str) -> NoReturn:
    """Skips the test that lacks a real part, or fails it where that part is required."""
    if part in os.environ.get("REMEDIATOR_REQUIRE", "").split(","):
        pytest.fail(f"REMEDIATOR_REQUIRE names {part}, but {why}")
    pytest.skip(why)


class AlertmanagerFactory(Protocol):
    """Starts an Alertmanager that sends to one webhook; see ``webhook_config`` for route and webhook."""

    def __call__(
        self,
        receiver_url: str,
        *,
        version: Version = "0.25",
        token_file: Path | None = None,
        route: Mapping[str, Any] | None = None,
        webhook: Mapping[str, Any] | None = None,
    ) -> Alertmanager: ...


class AlertmanagerPairFactory(Protocol):
    """Starts two Alertmanagers of one cluster that send to one webhook."""

    def __call__(
        self,
        receiver_url: str,
        *,
        version: Version = "0.25",
        peer_timeout: str = "15s",
        token_file: Path | None = None,
        route: Mapping[str, Any] | None = None,
        webhook: Mapping[str, Any] | None = None,
    ) -> tuple[Alertmanager, Alertmanager]: ...


class PrometheusFactory(Protocol):
    """Starts a Prometheus; see ``Prometheus``."""

    def __call__(
        self,
        *,
        rules: Mapping[str, Any] | Sequence[Path],
        targets: Mapping[str, Sequence[str]],
        alertmanager_urls: Sequence[str],
        interval: str = "1s",
        external_labels: Mapping[str, str] | None = None,
        scrape_configs: Sequence[Mapping[str, Any]] = (),
    ) -> Prometheus: ...


@pytest.fixture
def find_tool() -> Callable[[str], Path]:
    """Finds ``promtool`` or ``amtool``."""

    def find(name: str) -> Path:
        try:
            return find_program(name)
        except FileNotFoundError as error:
            do_without("alertmanager", str(error))

    return find


def need_alertmanager(version: Version) -> None:
    """Skips (or fails) the test where that Alertmanager is not here."""
    try:
        find_binary(version)
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        do_without("alertmanager", f"there is no Alertmanager {version}: {error}")


@pytest.fixture
def alertmanager_factory(tmp_path: Path) -> Iterator[AlertmanagerFactory]:
    """Alertmanagers, started on call, stopped after the test."""
    started: list[Alertmanager] = []

    def start(
        receiver_url: str,
        *,
        version: Version = "0.25",
        token_file: Path | None = None,
        route: Mapping[str, Any] | None = None,
        webhook: Mapping[str, Any] | None = None,
    ) -> Alertmanager:
        need_alertmanager(version)
        config = webhook_config(receiver_url, token_file=token_file, route=route, webhook=webhook)
        alertmanager = Alertmanager(tmp_path / f"alertmanager-{len(started)}", config, version=version)
        alertmanager.start()
        started.append(alertmanager)
        return alertmanager

    yield start
    for alertmanager in started:
        alertmanager.kill()


@pytest.fixture
def alertmanager_pair_factory(tmp_path: Path) -> Iterator[AlertmanagerPairFactory]:
    """HA pairs of Alertmanagers, started on call, stopped after the test."""
    started: list[Alertmanager] = []

    def start(
        receiver_url: str,
        *,
        version: Version = "0.25",
        peer_timeout: str = "15s",
        token_file: Path | None = None,
        route: Mapping[str, Any] | None = None,
        webhook: Mapping[str, Any] | None = None,
    ) -> tuple[Alertmanager, Alertmanager]:
        need_alertmanager(version)
        config = webhook_config(receiver_url, token_file=token_file, route=route, webhook=webhook)
        pair = make_pair(tmp_path / f"pair-{len(started)}", config, version=version, peer_timeout=peer_timeout)
        started.extend(pair)
        return pair

    yield start
    for alertmanager in started:
        alertmanager.kill()


@pytest.fixture
def prometheus_factory(tmp_path: Path) -> Iterator[PrometheusFactory]:
    """Prometheus servers, started on call, stopped after the test."""
    started: list[Prometheus] = []

    def start(
        *,
        rules: Mapping[str, Any] | Sequence[Path],
        targets: Mapping[str, Sequence[str]],
        alertmanager_urls: Sequence[str],
        interval: str = "1s",
        external_labels: Mapping[str, str] | None = None,
        scrape_configs: Sequence[Mapping[str, Any]] = (),
    ) -> Prometheus:
        try:
            prometheus = Prometheus(
                tmp_path / f"prometheus-{len(started)}",
                rules=rules,
                targets=targets,
                alertmanager_urls=alertmanager_urls,
                interval=interval,
                external_labels=external_labels,
                scrape_configs=scrape_configs,
            )
        except FileNotFoundError as error:
            do_without("alertmanager", str(error))
        prometheus.start()
        started.append(prometheus)
        return prometheus

    yield start
    for prometheus in started:
        prometheus.kill()


@pytest.fixture
def webhook_receiver() -> Iterator[WebhookReceiver]:
    """A receiver on a real socket that keeps what comes."""
    with WebhookReceiver() as receiver:
        yield receiver


@pytest.fixture
def metrics_page() -> Iterator[MetricsPage]:
    """A Prometheus target on a real socket, with a page that the test writes."""
    with MetricsPage() as page:
        yield page


@pytest.fixture
def fake_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    """A driver of 8 idle GPUs, for this process, and for those that are started with ``fake_driver.env``."""
    try:
        load_here()
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        do_without("nvml", str(error))
    driver = FakeDriver(tmp_path / "driver")
    monkeypatch.setenv("FAKE_NVML", str(driver.folder))
    return driver
