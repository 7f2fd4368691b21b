"""The fake Prometheus and a real one answer alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from conftest_realparts import do_without
from realparts.prometheus import Prometheus as RealPrometheus
from remediator.clients.fake import PROMETHEUS, FakeWorld
from remediator.clients.ports import PrometheusReader
from remediator.clients.prometheus import Prometheus
from remediator.errors import ActionError, InvalidTargetError, TransientActionError

TWO = 'label_replace(vector(1), "a", "1", "", "") or label_replace(vector(2), "a", "2", "", "")'
CASES: dict[str, tuple[str, str]] = {
    "a value": ("vector(0.5)", "(0.5,)"),
    "no series": ("absent_series", "()"),
    "several series": (TWO, "(1.0, 2.0)"),
    "a scalar": ("42", "(42.0,)"),
    "a number that is none": ("vector(NaN)", "(nan,)"),
    "infinity": ("1 / 0", "(inf,)"),
    "a bad query": ("max(", "InvalidTargetError"),
}


class FakeSide:
    """A world that was told what each case sees."""

    def __init__(self) -> None:
        self._world = FakeWorld(lambda: datetime(2026, 3, 1, tzinfo=UTC))
        self._world.sees("a value", 0.5)
        self._world.sees("several series", 1.0, 2.0)
        self._world.sees("a scalar", 42.0)
        self._world.sees("a number that is none", float("nan"))
        self._world.sees("infinity", float("inf"))
        self._world.misreads("a bad query")
        self.reader: PrometheusReader = self._world.clients().prometheus[PROMETHEUS]

    def go_away(self) -> None:
        self._world.prometheus_away(True)

    def come_back(self) -> None:
        self._world.prometheus_away(False)

    def stop(self) -> None:
        pass


class RealSide:
    """A Prometheus of its own."""

    def __init__(self, folder: Path) -> None:
        try:
            self._prometheus = RealPrometheus(folder, rules={"groups": []}, targets={}, alertmanager_urls=[])
        except FileNotFoundError as error:
            do_without("alertmanager", str(error))
        self._prometheus.start()
        self.reader: PrometheusReader = Prometheus(PROMETHEUS, self._prometheus.url)

    def go_away(self) -> None:
        self._prometheus.kill()

    def come_back(self) -> None:
        self._prometheus.start()

    def stop(self) -> None:
        self._prometheus.kill()


@pytest.fixture(scope="module", params=[pytest.param("fake"), pytest.param("real", marks=pytest.mark.alertmanager)])
def side(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeSide | RealSide]:
    found = FakeSide() if request.param == "fake" else RealSide(tmp_path_factory.mktemp("prometheus"))
    yield found
    found.stop()


def said(ask: Callable[[], tuple[float, ...]]) -> str:
    try:
        return str(ask())
    except ActionError as error:
        return type(error).__name__


@pytest.mark.parametrize("name", CASES)
def test_query_when_asked_this_then_fake_and_real_say_the_same(side: FakeSide | RealSide, name: str) -> None:
    query, expected = CASES[name]
    assert said(lambda: side.reader.query(query, name=name)) == expected


def test_query_when_the_query_is_bad_then_it_is_said_that_it_cannot_be_used(side: FakeSide | RealSide) -> None:
    with pytest.raises(InvalidTargetError, match=r"Prometheus prometheus cannot use the query: .*parse error"):
        side.reader.query("max(", name="a bad query")


def test_query_when_it_goes_away_and_comes_back_then_transient_and_then_a_value(side: FakeSide | RealSide) -> None:
    side.go_away()
    with pytest.raises(TransientActionError, match="cannot be reached"):
        side.reader.query("vector(0.5)", name="a value")
    side.come_back()
    assert side.reader.query("vector(0.5)", name="a value") == (0.5,)
