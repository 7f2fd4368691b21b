"""``remediator incident`` over what a real engine wrote: what is found, and why nothing was done."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import event
from sqlalchemy.engine import Engine

from integration.engine.conftest import Bench
from remediator.cli import cli
from remediator.core.event import Event, EventType

SETTINGS = """
store_url = "sqlite:///{folder}/r.db"
playbooks = ["{folder}/playbooks"]
[docker.hosts.gpu-07]
url = "unix:///nowhere"
[notify.oncall]
urls = ["json://localhost"]
[notify.ml-platform]
urls = ["json://localhost"]
"""


@pytest.fixture
def ask(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """The command, at 80 columns, beside the engine that has the store."""
    monkeypatch.setenv("COLUMNS", "80")
    settings = bench.folder / "remediator.toml"
    settings.write_text(SETTINGS.format(folder=bench.folder))

    def call(*words: str) -> Result:
        return CliRunner().invoke(cli, ["--config", str(settings), "incident", *words])

    return call


@pytest.fixture
def told(ask: Callable[..., Result]) -> Callable[..., dict[str, Any]]:
    """What ``--json`` says of the one that matches."""

    def call(*words: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(ask("--json", "--since", "2020-01-01", *words).stdout)["incident"]
        return found

    return call


def why(incident: dict[str, Any]) -> list[str]:
    return [f"{reason['playbook']}: {reason['why']}" for reason in incident["nothing_done"]]


def test_incident_when_a_run_acted_then_tells_its_story_within_80_columns(
    bench: Bench, ask: Callable[..., Result]
) -> None:
    bench.restarts("hold: 10m\nverify: [{alert: resolved, within: 30m}]").start()
    bench.deliver(bench.fires(bench.leak(), annotations={"summary": "memory grows\nquickly"}))
    bench.after("5m")
    bench.deliver(bench.fires(bench.leak()))
    bench.after("10m")
    bench.deliver(bench.resolved(bench.leak()))

    result = ask("--since", "2020-01-01", "container_name=trainer-0", "hostname=gpu-07")

    run = bench.run()["run_id"][:8]
    assert result.output.splitlines() == [
        "GPUMemoryLeakSlope  0b8e06d25dbaedbb",
        '  {alertname="GPUMemoryLeakSlope", container_name="trainer-0",',
        '  hostname="gpu-07"}',
        "  summary  memory grows quickly",
        "  the alert was resolved at 2026-03-01 12:15:00 UTC, after 15m; 2 deliveries",
        f"  playbook restart: succeeded, run {run}",
        "",
        "2026-03-01 (UTC)",
        "  12:00:00  delivery 1 came from 10.0.0.1",
        "  12:00:00  the alert is heard of: it fires",
        "  12:00:00  it matches: playbook restart, about container_name=trainer-0",
        "            host=gpu-07",
        "  12:00:00  planned, after holding for 10m:",
        "              restart container trainer-0 on gpu-07",
        "  12:05:00  delivery 2 from 10.0.0.1 was the last of 2 that said that it fires",
        "  12:10:00  the guard allows it",
        "  12:10:00  restart container trainer-0 on gpu-07: succeeded",
        "  12:15:00  the alert was resolved",
        "  12:15:00  nothing of it fires any more for restart (resolved)",
        "  12:15:00  it helped",
        "              the alert was resolved",
        "  12:15:00  the run ended: done",
        "              all steps were done and the alert was resolved",
        "  12:15:00  tells ml-platform how it ended: succeeded",
    ]
    assert result.exit_code == 0


def test_incident_when_the_alert_began_long_before_it_was_heard_of_then_says_both(
    bench: Bench, ask: Callable[..., Result]
) -> None:
    bench.restarts().start()
    bench.deliver(bench.fires(bench.leak(), ago="6m"))

    result = ask("--since", "2020-01-01", "container_name = trainer-0 ")

    heard, by_itself = "since 2026-03-01 12:00:00 UTC", "by its own word since 2026-03-01 11:54:00 UTC"
    assert f"it fires, {heard}, {by_itself}; 1 delivery" in " ".join(result.output.split())


def test_incident_when_no_playbook_matched_then_says_why_each_of_those_in_force_does_not(
    bench: Bench, told: Callable[..., dict[str, Any]]
) -> None:
    bench.restarts().playbook("playbook: rack\nmatch: [alertname = Rack]\nsteps: [{action: noop}]\n", "rack.yaml")
    bench.start().deliver(bench.fires({"alertname": "Strange", "host": "gpu-07"}))

    found = told("alertname=Strange")

    assert (found["has_acted"], found["end"], found["subjects"]) == (False, "it fires", [])
    assert [(reason["playbook"], reason["more"]) for reason in found["nothing_done"]] == [
        ("rack", ['alertname="Rack" does not hold: alertname is "Strange"']),
        ("restart", ['alertname="GPUMemoryLeakSlope" does not hold: alertname is "Strange"']),
    ]


def test_incident_when_a_playbook_was_added_since_then_says_that_it_matches_now(
    bench: Bench, told: Callable[..., dict[str, Any]]
) -> None:
    bench.restarts().start().deliver(bench.fires({"alertname": "Strange"}))
    bench.playbook("playbook: strange\nmatch: [alertname = Strange]\nsteps: [{action: noop}]\n", "strange.yaml")

    assert "strange: it matches now, and did not when the alert began" in why(told("alertname=Strange"))[1]


def test_incident_when_the_playbooks_cannot_be_loaded_then_is_told_all_the_same(
    bench: Bench, told: Callable[..., dict[str, Any]]
) -> None:
    bench.restarts().start().deliver(bench.fires({"alertname": "Strange"}))
    bench.playbook("playbook: [", "bad.yaml")

    assert why(told("alertname=Strange")) == [
        ": no playbook matched it; why cannot be said, the playbooks cannot be loaded"
    ]


def ignores(bench: Bench) -> None:
    cases = "cases:\n  - {name: known, match: [kind = known], ignore: it is known}\n"
    bench.restarts(cases + "  - {name: other, steps: [{action: noop}]}\n", steps="").start()
    bench.deliver(bench.fires(bench.leak(kind="known")))


def adopts(bench: Bench) -> None:
    bench.start()
    bench.deliver(bench.fires(bench.leak()))
    bench.after("1m")
    bench.restarts()
    bench.reload()


def refuses(bench: Bench) -> None:
    bench.world.add_container("gpu-07", "trainer-0", labels={"remediator.io/ignore": "true"})
    bench.restarts().start().deliver(bench.fires(bench.leak()))


def has_no_label(bench: Bench) -> None:
    bench.restarts(per="host, container_name").start()
    bench.deliver(bench.fires({"alertname": "GPUMemoryLeakSlope", "hostname": "gpu-07"}))


def is_paused(bench: Bench) -> None:
    bench.restarts().start().engine.pause("mia", "work on the rack")
    bench.deliver(bench.fires(bench.leak()))


def asks(bench: Bench) -> None:
    bench.restarts("approval: {ask: [oncall]}").start().deliver(bench.fires(bench.leak()))


def is_resolved(bench: Bench) -> None:
    bench.restarts("hold: 10m").start().deliver(bench.fires(bench.leak()))
    bench.after("1m")
    bench.deliver(bench.resolved(bench.leak()))


def expires(bench: Bench) -> None:
    bench.restarts("hold: 10h").start().deliver(bench.fires(bench.leak()))
    bench.after("9h")
    bench.after("1m")


@pytest.mark.parametrize(
    ("happens", "said"),
    [
        pytest.param(ignores, "restart: it leaves such alerts alone: it is known", id="a case ignores it"),
        pytest.param(adopts, "restart: it fired before the playbook could act", id="it was adopted"),
        pytest.param(refuses, "restart: refused", id="its target is protected"),
        pytest.param(has_no_label, "restart: refused", id="a label of per is missing"),
        pytest.param(is_paused, "restart: it waits for the end of the pause", id="the engine is paused"),
        pytest.param(asks, "restart: it asks people whether it may act", id="people were asked"),
        pytest.param(is_resolved, "restart: cancelled", id="it was resolved in the hold"),
        pytest.param(expires, "restart: not done, the alert went silent", id="nothing more was heard of it"),
    ],
)
def test_incident_when_nothing_was_done_then_says_why(
    bench: Bench, told: Callable[..., dict[str, Any]], happens: Callable[[Bench], None], said: str
) -> None:
    happens(bench)

    [reason] = why(told("hostname=gpu-07"))
    assert reason.startswith(said)


def test_incident_when_it_joined_a_subject_whose_run_had_ended_then_says_why_nothing_was_done(
    bench: Bench, told: Callable[..., dict[str, Any]]
) -> None:
    bench.restarts(per="host").start().deliver(bench.fires(bench.leak()))
    bench.after("1h")
    bench.deliver(bench.fires(bench.leak("trainer-1")))

    assert why(told("container_name=trainer-1")) == [
        "restart: another alert that it is about fires, and its one run for them had ended before this one began (done)"
    ]
    assert why(told("container_name=trainer-0")) == []


def test_incident_when_several_alerts_match_then_lists_them_with_times(
    bench: Bench, ask: Callable[..., Result]
) -> None:
    bench.restarts("hold: 1h").start()
    bench.deliver(bench.fires(bench.leak()), bench.fires(bench.leak("trainer-1")))
    bench.after("5m")
    bench.deliver(bench.resolved(bench.leak("trainer-1")))

    result = ask("hostname=gpu-07", "--since", "2020-01-01")

    lines = [line.split(maxsplit=1)[1] for line in result.output.splitlines()[2:] if not line.startswith(" ")]
    assert sorted(lines) == [
        "2026-03-01 12:00:00  2026-03-01 12:05:00  c12acb469d7bf08e",
        "2026-03-01 12:00:00  fires                0b8e06d25dbaedbb",
    ]
    assert max(map(len, result.output.splitlines())) <= 80


def test_incident_when_an_alert_fired_twice_then_shows_the_newest_and_lists_the_others(
    bench: Bench, ask: Callable[..., Result]
) -> None:
    bench.restarts("hold: 1h").start().deliver(bench.fires(bench.leak()))
    bench.after("5m")
    bench.deliver(bench.resolved(bench.leak()))
    bench.after("5m")
    bench.deliver(bench.fires(bench.leak()))

    newest, every = ask("0b8e06d2"), json.loads(ask("0b8e06d2", "--all", "--json").stdout)

    assert "  it fires, since 2026-03-01 12:10:00 UTC; 1 delivery" in newest.output.splitlines()
    assert newest.output.splitlines()[-1] == "one older episode of this alert matches too: --all lists them"
    assert [one["opened_at"][11:16] for one in every["matches"]] == ["12:10", "12:00"]
    assert every["incident"] is None
    [_, older] = every["matches"]
    assert json.loads(ask(older["episode_id"][:8], "--json").stdout)["incident"]["ended_at"][11:16] == "12:05"


def test_incident_when_asked_for_since_then_what_ended_before_is_left_out(
    bench: Bench, ask: Callable[..., Result]
) -> None:
    bench.restarts().start().deliver(bench.fires(bench.leak()), bench.fires(bench.leak("trainer-1")))
    bench.after("1h")
    bench.deliver(bench.resolved(bench.leak()))

    asked = [
        ask(which, "--since", since).exit_code
        for since in ("2026-03-01T13:00:01", "2026-03-01T12:59:59", "2026-03-01T11:00")
        for which in ("container_name=trainer-0", "0b8e06d25dbaedbb", "container_name=trainer-1")
    ]
    assert asked == [1, 1, 0, 0, 0, 0, 0, 0, 0]


def test_incident_when_an_annotation_says_what_was_asked_for_then_it_is_no_label(
    bench: Bench, ask: Callable[..., Result]
) -> None:
    bench.restarts().start().deliver(bench.fires(bench.leak(), annotations={"rack": "r1"}))

    assert ask("rack=r1", "--all").exit_code == 1


def test_incident_when_a_delivery_has_the_alert_twice_then_it_is_one_delivery(
    bench: Bench, told: Callable[..., dict[str, Any]]
) -> None:
    bench.restarts().start().deliver(bench.fires(bench.leak()), bench.fires(bench.leak()))
    bench.deliver(bench.fires(bench.leak()), bench.fires(bench.leak()))

    assert told("container_name=trainer-0")["deliveries"]["n"] == 2


def test_incident_when_asked_for_a_run_then_shows_the_episode_that_opened_its_subject(
    bench: Bench, told: Callable[..., dict[str, Any]]
) -> None:
    bench.restarts(per="host").start()
    bench.deliver(bench.fires(bench.leak()), bench.fires(bench.leak("trainer-1")))

    found = told(bench.runs()[0]["run_id"][:8])

    assert found["labels"]["container_name"] == "trainer-0"
    assert [one["n_alerts"] for one in found["subjects"]] == [2]


def test_incident_when_a_run_is_by_hand_then_it_is_told_without_an_alert(
    bench: Bench, ask: Callable[..., Result], told: Callable[..., dict[str, Any]]
) -> None:
    bench.restarts().start().engine.run_by_hand("restart", bench.leak(), {}, "mia")
    bench.engine.work()
    run_id = bench.run()["run_id"]

    assert [entry["text"] for entry in told(run_id)["timeline"]][:1] == [
        "a person runs it by hand: playbook restart, about container_name=trainer-0 host=gpu-07"
    ]
    assert ask(run_id).output.splitlines()[:2] == [
        "restart",
        "  a run by hand has no alert",
    ]


def test_incident_when_the_alert_was_never_delivered_then_says_so(
    bench: Bench, ask: Callable[..., Result], told: Callable[..., dict[str, Any]]
) -> None:
    bench.restarts().start()
    missed = Event(
        type=EventType.ALERT_MISSED, at=bench.clock.now(), fingerprint="feedfacefeedface",
        data={"labels": {"alertname": "Lost"}, "starts_at": "", "detail": "nothing is started for it"},
    )  # fmt: skip
    bench.engine._store.write(lambda tx: tx.append(missed))

    assert [entry["text"] for entry in told("feedfacefeedface")["timeline"]] == [
        "an Alertmanager listed it for our receiver, and it was never delivered here"
    ]
    assert "it was never delivered here: look at Alertmanager's log" in why(told("feedfacefeedface"))[0]
    assert ask("feedfacefeedface").exit_code == 0


def test_incident_when_json_then_every_event_of_it_is_there(bench: Bench, told: Callable[..., dict[str, Any]]) -> None:
    bench.restarts("verify: [{alert: resolved, within: 30m}]").start().deliver(bench.fires(bench.leak()))
    bench.after("5m")
    bench.deliver(bench.resolved(bench.leak()))
    bench.engine.note(bench.run()["run_id"], "mia", "PSU swapped")

    found = told("0b8e06d25dbaedbb")

    others = {"engine_started", "playbooks_loaded", "delivery_received"}
    wanted = [event.type.value for event in bench.events() if event.type.value not in others]
    assert [event["type"] for event in found["events"]] == wanted
    assert found["timeline"][-1]["text"] == "mia notes: PSU swapped"
    shown = sorted(seq for entry in found["timeline"] for seq in entry["seqs"])
    assert shown == [event["seq"] for event in found["events"]]


def test_incident_when_nothing_matches_then_exit_code_is_1(bench: Bench, ask: Callable[..., Result]) -> None:
    bench.restarts().start()

    assert (ask("deadbeef").exit_code, ask("alertname=Nothing").exit_code) == (1, 1)


@pytest.mark.parametrize("words", [["abc"], ["deadbeef", "alertname=A"], ["=x"], []])
def test_incident_when_the_words_can_be_nothing_then_exit_code_is_2(
    bench: Bench, ask: Callable[..., Result], words: list[str]
) -> None:
    bench.restarts().start()

    assert ask(*words).exit_code == 2


def test_incident_when_there_is_more_of_it_then_no_more_questions_are_asked(
    bench: Bench, told: Callable[..., dict[str, Any]]
) -> None:
    for name in ("one", "two", "three"):
        bench.restarts("hold: 2h", name=name, steps="steps: [{action: noop}]")
    bench.start().deliver(bench.fires(bench.leak()))
    with counted() as few:
        told("container_name=trainer-0")
    for _ in range(5):
        bench.after("1m")
        bench.deliver(bench.fires(bench.leak()), bench.fires(bench.leak("trainer-1")))
        bench.engine.note(bench.runs()[0]["run_id"], "mia", "looked")
    with counted() as many:
        found = told("container_name=trainer-0")

    assert len(found["subjects"]) == 3
    assert len(many) == len(few) > 0


@contextmanager
def counted() -> Iterator[list[str]]:
    """The statements that are sent through SQLAlchemy meanwhile."""
    sent: list[str] = []

    def note(_conn: Any, _cursor: Any, statement: str, *_more: Any) -> None:
        sent.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        event.remove(Engine, "before_cursor_execute", note)
