"""``doctor`` against real Alertmanagers and a real Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from realparts.alertmanager import VERSIONS, Version
from remediator.cli.doctor_network import check_alertmanager, check_docker, check_prometheus, server_at
from remediator.settings import Settings, load_settings

OURS = "http://127.0.0.1:9095/api/v1/alertmanager"


def settings(**overrides: Any) -> Settings:
    """Settings without a file."""
    return load_settings(environ={}, overrides=overrides)


@pytest.mark.alertmanager
@pytest.mark.parametrize("version", VERSIONS)
def test_doctor_when_alertmanager_is_configured_as_we_advise_then_finds_nothing_wrong(
    version: Version, alertmanager_factory: Callable[..., Any]
) -> None:
    alertmanager = alertmanager_factory(OURS, version=version)

    found = list(check_alertmanager(alertmanager.url, settings()))

    # From 0.26 on the API hides every webhook's address, so that nobody can tell whose it is.
    first = f"Alertmanager {version}"
    assert found[0].text.startswith(first)
    assert [finding.level for finding in found] == ["ok", "ok" if version == "0.25" else "warning"]


@pytest.mark.alertmanager
@pytest.mark.parametrize("version", VERSIONS)
def test_doctor_when_alertmanager_is_configured_badly_then_says_each_thing(
    version: Version, alertmanager_factory: Callable[..., Any]
) -> None:
    alertmanager = alertmanager_factory(
        OURS,
        version=version,
        route={"repeat_interval": "12h"},
        webhook={"send_resolved": False, "http_config": {}, "max_alerts": 5},
    )

    found = list(check_alertmanager(alertmanager.url, settings()))

    assert [finding.level for finding in found[2:]] == ["problem", "warning", "warning", "problem"]
    for finding, words in zip(
        found[2:],
        ("send_resolved: false", "follows redirects", "max_alerts: 5", "repeats an alert after 12h"),
        strict=True,
    ):
        assert words in finding.text


@pytest.mark.alertmanager
def test_doctor_when_alertmanager_sends_elsewhere_then_is_a_problem(alertmanager_factory: Callable[..., Any]) -> None:
    alertmanager = alertmanager_factory("http://127.0.0.1:1/other")

    found = list(check_alertmanager(alertmanager.url, settings()))

    assert [finding.level for finding in found] == ["ok", "problem"]


@pytest.mark.alertmanager
def test_doctor_when_prometheus_is_there_then_is_ok(prometheus_factory: Callable[..., Any]) -> None:
    prometheus = prometheus_factory(rules={"groups": []}, targets={}, alertmanager_urls=[])

    (finding,) = check_prometheus("a", server_at(prometheus.url, settings()))

    assert finding.level == "ok"
    assert finding.text.startswith("2.")
    assert finding.text.endswith(" answers queries")


@pytest.mark.docker
def test_doctor_when_a_docker_host_answers_then_may_inspect(docker_engine: Any) -> None:
    made = settings(docker={"hosts": {"local": {"url": docker_engine.url}}})

    (finding,) = check_docker(made)

    assert (finding.level, finding.text.endswith(", may inspect")) == ("ok", True)
