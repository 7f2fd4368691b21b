"""Asking conditions: never raises, never waits too long, never asks again what hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from structlog.testing import capture_logs

from remediator.core.condition import Comparison, Condition, Reading
from remediator.engine import conditions as module
from remediator.engine.conditions import Conditions
from remediator.errors import AccessDeniedError, InvalidTargetError, TransientActionError
from remediator.telemetry import Metrics, add_secrets

Answer = Callable[[str], tuple[float, ...]]


class Reader:
    """A Prometheus that answers as told, and keeps what it was asked."""

    def __init__(self, answer: Answer = lambda _query: (1.0,)) -> None:
        self.answer = answer
        self.asked: list[tuple[str, str]] = []

    def query(self, promql: str, *, name: str = "") -> tuple[float, ...]:
        self.asked.append((name, promql))
        return self.answer(promql)


class Hanging(Reader):
    """One that says nothing until it is let go."""

    def __init__(self) -> None:
        super().__init__(self._wait)
        self.let_go = threading.Event()

    def _wait(self, _query: str) -> tuple[float, ...]:
        self.let_go.wait(30)
        return (1.0,)


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    reader = Hanging()
    yield reader
    reader.let_go.set()


def condition(query: str, name: str = "x") -> Condition:
    return Condition(name=name, query=query, comparison=Comparison.BELOW, bound="1")


def raises(error: Exception) -> Answer:
    def answer(_query: str) -> tuple[float, ...]:
        raise error

    return answer


def wait_until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.001)


def ok_of(metrics: Metrics, server: str = "a") -> float | None:
    return metrics.registry.get_sample_value("remediator_prometheus_ok", {"server": server})


def test_ask_when_there_are_several_then_the_readings_are_in_their_order() -> None:
    first_may_end = threading.Event()

    def answer(query: str) -> tuple[float, ...]:
        if query == "1":
            assert first_may_end.wait(20)  # the last ends first: they are asked at the same time
        else:
            first_may_end.set()
        return (float(query),)

    reader = Reader(answer)
    readings = Conditions({"a": reader}).ask("a", [condition("1", "one"), condition("2", "two")])
    assert readings == (Reading(values=(1.0,)), Reading(values=(2.0,)))
    assert sorted(reader.asked) == [("one", "1"), ("two", "2")]


def test_ask_when_there_is_no_condition_then_nobody_is_asked() -> None:
    assert Conditions({}).ask("", ()) == ()


def test_ask_when_there_are_several_servers_then_only_the_named_one_is_asked() -> None:
    one, other = Reader(), Reader()
    Conditions({"a": one, "b": other}).ask("b", [condition("up")])
    assert (one.asked, other.asked) == ([], [("x", "up")])


@pytest.mark.parametrize(
    ("servers", "server", "words"),
    [
        ((), "", "no Prometheus is configured"),
        ((), "a", "no Prometheus is configured"),
        (("a", "b"), "", "the alert's cluster is none of a, b"),
        (("a", "b"), "c", "no Prometheus is called 'c' in the settings (configured: a, b)"),
    ],
)
def test_ask_when_it_is_not_known_whom_then_says_so(servers: tuple[str, ...], server: str, words: str) -> None:
    readings = Conditions({name: Reader() for name in servers}).ask(server, [condition("1"), condition("2")])
    assert [reading.values for reading in readings] == [(), ()]
    assert all(words in reading.problem for reading in readings)


@pytest.mark.parametrize(
    ("error", "says", "ok"),
    [
        (TransientActionError("cannot be reached"), "cannot be reached", 0),
        (AccessDeniedError("does not let us in"), "does not let us in", 0),
        (InvalidTargetError("cannot use the query"), "cannot use the query", 1),
        (ZeroDivisionError("a bug"), "an unexpected error while asking Prometheus a; the engine's log has it", 0),
    ],
    ids=["away", "denied", "a bad query", "a bug"],
)
def test_ask_when_one_fails_then_its_reading_says_why_and_the_metric_whether_it_answered(
    error: Exception, says: str, ok: float
) -> None:
    metrics = Metrics()
    readings = Conditions({"a": Reader(raises(error))}, metrics).ask("a", [condition("1")])
    assert (readings, ok_of(metrics)) == ((Reading(problem=says),), ok)


def test_ask_when_an_error_was_not_foreseen_then_it_is_counted() -> None:
    metrics = Metrics()
    Conditions({"a": Reader(raises(KeyError("inner")))}, metrics).ask("a", [condition("1")])
    counted = metrics.registry.get_sample_value("remediator_unexpected_errors_total", {"where": "conditions"})
    assert counted == 1


def test_ask_when_one_of_several_fails_then_the_others_are_known() -> None:
    def answer(query: str) -> tuple[float, ...]:
        if query == "bad":
            raise InvalidTargetError("parse error")
        return (2.0,)

    readings = Conditions({"a": Reader(answer)}).ask("a", [condition("bad"), condition("good")])
    assert readings == (Reading(problem="parse error"), Reading(values=(2.0,)))


def test_ask_when_the_error_has_a_secret_then_it_is_struck_out_and_the_text_cut() -> None:
    add_secrets(["s3cr3t-in-an-answer"])
    error = InvalidTargetError("Bearer s3cr3t-in-an-answer " + "x" * 5000)
    (reading,) = Conditions({"a": Reader(raises(error))}).ask("a", [condition("1")])
    assert reading.problem.startswith("Bearer [redacted] xxx")
    assert len(reading.problem) == 300


def test_ask_when_it_hangs_then_it_is_given_up_and_not_asked_again_while_it_does(
    hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ASK_S", 0.05)
    monkeypatch.setattr(module, "REST_S", 0.0)
    metrics = Metrics()
    asker = Conditions({"a": hanging}, metrics)
    for _ in range(3):
        (reading,) = asker.ask("a", [condition("1")])
        assert "Prometheus a has not answered within" in reading.problem
        assert ok_of(metrics) == 0
    assert len(hanging.asked) == 1
    hanging.let_go.set()
    wait_until(lambda: ok_of(metrics) == 1)
    wait_until(lambda: asker.ask("a", [condition("1")]) == (Reading(values=(1.0,)),))


def test_ask_when_one_of_several_hangs_then_the_others_are_known(
    hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ASK_S", 0.5)
    quick = Reader(lambda query: (3.0,) if query == "quick" else hanging.answer(query))
    slow, known = Conditions({"a": quick}).ask("a", [condition("slow"), condition("quick")])
    assert known == Reading(values=(3.0,))
    assert "has not answered" in slow.problem


def test_ask_when_another_server_hangs_then_this_one_is_asked(
    hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ASK_S", 0.05)
    asker = Conditions({"a": hanging, "b": Reader()})
    asker.ask("a", [condition("1")])
    monkeypatch.setattr(module, "ASK_S", 20.0)
    assert asker.ask("b", [condition("1")]) == (Reading(values=(1.0,)),)


def test_ask_when_a_question_is_under_way_in_time_then_others_are_asked_too(hanging: Hanging) -> None:
    asker = Conditions({"a": Reader(lambda query: hanging.answer(query) if query == "slow" else (1.0,))})
    found: list[Reading] = []
    thread = threading.Thread(target=lambda: found.extend(asker.ask("a", [condition("slow")])))
    thread.start()
    assert asker.ask("a", [condition("quick")]) == (Reading(values=(1.0,)),)
    hanging.let_go.set()
    thread.join(20)
    assert found == [Reading(values=(1.0,))]


def test_ask_when_it_failed_slowly_then_it_rests_and_is_asked_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLOW_S", -1.0)
    reader = Reader(raises(TransientActionError("cannot be reached (ConnectTimeout)")))
    asker = Conditions({"a": reader})
    for _ in range(3):
        assert "ConnectTimeout" in asker.ask("a", [condition("1")])[0].problem
    assert len(reader.asked) == 1
    monkeypatch.setattr(module, "REST_S", 0.0)
    asker._servers["a"].rests_until = 0.0
    reader.answer = lambda _query: (1.0,)
    assert asker.ask("a", [condition("1")]) == (Reading(values=(1.0,)),)


def test_ask_when_it_failed_at_once_then_it_is_asked_again_at_once() -> None:
    reader = Reader(raises(TransientActionError("cannot be reached")))
    asker = Conditions({"a": reader})
    asker.ask("a", [condition("1")])
    reader.answer = lambda _query: (1.0,)
    assert asker.ask("a", [condition("1")]) == (Reading(values=(1.0,)),)


def test_ask_when_a_reader_in_memory_failed_slowly_then_it_does_not_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLOW_S", -1.0)  # a machine that stood still meanwhile
    reader = Reader(raises(TransientActionError("away")))
    asker = Conditions({"a": reader}, is_alone=True)
    asker.ask("a", [condition("1")])
    reader.answer = lambda _query: (1.0,)
    assert asker.ask("a", [condition("1")]) == (Reading(values=(1.0,)),)


def test_ask_when_it_fails_and_answers_again_then_each_change_is_logged_once() -> None:
    reader = Reader()
    asker = Conditions({"a": reader}, Metrics())
    with capture_logs() as logs:
        for answer in (reader.answer, raises(TransientActionError("away")), reader.answer):
            reader.answer = answer
            for _ in range(3):
                asker.ask("a", [condition("1")])
    assert [line["event"] for line in logs] == ["a Prometheus gave no answer", "a Prometheus answers again"]
    assert (logs[0]["server"], logs[0]["problem"]) == ("a", "away")


def test_ask_when_it_is_a_dry_run_then_nothing_is_logged() -> None:
    with capture_logs() as logs:
        Conditions({"a": Reader(raises(TransientActionError("away")))}).ask("a", [condition("1")])
    assert logs == []


def test_probe_when_called_often_then_each_server_is_asked_once_a_minute_and_shown() -> None:
    metrics, good, bad = Metrics(), Reader(), Reader(raises(TransientActionError("away")))
    asker = Conditions({"a": good, "b": bad}, metrics)
    for _ in range(3):
        asker.probe()
    wait_until(lambda: (ok_of(metrics, "a"), ok_of(metrics, "b")) == (1, 0))
    assert (good.asked, len(bad.asked)) == ([("probe", "vector(1)")], 1)


def test_probe_when_it_hangs_then_nobody_waits(hanging: Hanging) -> None:
    begun = time.monotonic()
    Conditions({"a": hanging}).probe()
    assert time.monotonic() - begun < 10
    wait_until(lambda: len(hanging.asked) == 1)
