"""What the Alertmanagers' answers do: keep open, close, hold a turn back, notice what never came."""

from __future__ import annotations

import threading
import time
from datetime import datetime, timedelta
from typing import Any

import pytest

from remediator.clients.ports import ListedAlert
from remediator.core.event import utc_text
from remediator.engine import reconcile
from remediator.errors import TransientActionError

LEAK = {"alertname": "GPUMemoryLeakSlope", "hostname": "gpu-07", "container_name": "trainer-0"}

RESTART = """
playbook: restart
match: [alertname = GPUMemoryLeakSlope]
per: [host, container_name]
hold: 10m
steps:
  - {name: restart, action: docker.restart, params: {container: "{{ labels.container_name }}"}}
escalate: {to: [oncall]}
"""


class Alertmanager:
    """An Alertmanager that says what the test wants."""

    def __init__(self, bench: Any) -> None:
        self._bench = bench
        self._listed: dict[str, ListedAlert] = {}
        self.is_away = False
        self.hangs_until: threading.Event | None = None
        self.n_asked = 0
        self.started: datetime = bench.clock.now() - timedelta(hours=1)

    def lists(
        self, labels: dict[str, str], *, muted_by: str = "", receivers: tuple[str, ...] = ("remediator",)
    ) -> None:
        self._listed[str(labels)] = ListedAlert(
            labels=labels,
            annotations={},
            starts_at=utc_text(self._bench.clock.now()),
            ends_at="",
            generator_url="",
            fingerprint="f",
            is_active=not muted_by,
            silenced_by=("s",) if muted_by == "silenced" else (),
            is_inhibited=muted_by == "inhibited",
            receivers=tuple(receivers),
        )

    def forgets(self, labels: dict[str, str]) -> None:
        del self._listed[str(labels)]

    def alerts(self) -> tuple[ListedAlert, ...]:
        self.n_asked += 1
        if self.hangs_until is not None:
            self.hangs_until.wait()
        if self.is_away:
            raise TransientActionError("away")
        return tuple(self._listed.values())

    def started_at(self) -> datetime:
        return self.started


@pytest.fixture
def one(bench: Any) -> Alertmanager:
    alertmanager = Alertmanager(bench)
    bench.alertmanagers = {"http://am-1:9093": alertmanager}
    return alertmanager


@pytest.fixture
def other(bench: Any, one: Alertmanager) -> Alertmanager:
    """The other one of a pair."""
    alertmanager = Alertmanager(bench)
    bench.alertmanagers["http://am-2:9093"] = alertmanager
    return alertmanager


def start(bench: Any, playbook: str = RESTART, **settings: Any) -> None:
    bench.playbook(playbook)
    bench.world.add_container("gpu-07", "trainer-0")
    bench.start(alertmanager={"urls": ["http://am-1:9093"], "receiver": "remediator"}, **settings)
    bench.after("1m")


def test_turn_when_the_alertmanager_says_it_fires_then_acts(bench: Any, one: Alertmanager) -> None:
    start(bench)
    one.lists(LEAK)
    bench.deliver(bench.fires(LEAK))
    bench.after("11m")
    assert bench.did() == ["docker.restart docker:gpu-07/trainer-0"]


@pytest.mark.parametrize(("muted_by", "waits_for"), [("silenced", "silenced"), ("inhibited", "inhibited")])
def test_turn_when_muted_then_waits_and_acts_once_it_is_not(
    bench: Any, one: Alertmanager, muted_by: str, waits_for: str
) -> None:
    start(bench)
    one.lists(LEAK, muted_by=muted_by)
    bench.deliver(bench.fires(LEAK))
    bench.after("30m")
    assert (bench.did(), bench.run()["waits_for"]) == ([], [f"turn:{waits_for}"])
    one.lists(LEAK)
    bench.after("1m")
    assert bench.did() == ["docker.restart docker:gpu-07/trainer-0"]


def test_turn_when_no_alertmanager_answers_then_waits_for_one(bench: Any, one: Alertmanager) -> None:
    start(bench)
    one.lists(LEAK)
    bench.deliver(bench.fires(LEAK))
    one.is_away = True
    bench.after("20m")
    assert (bench.did(), bench.run()["waits_for"]) == ([], ["turn:alertmanager_away"])
    one.is_away = False
    bench.after("1m")
    assert bench.did() == ["docker.restart docker:gpu-07/trainer-0"]


def test_turn_when_resolved_was_lost_then_nothing_acts_and_the_run_is_cancelled(bench: Any, one: Alertmanager) -> None:
    start(bench)
    one.lists(LEAK)
    bench.deliver(bench.fires(LEAK))
    bench.after("5m")
    one.forgets(LEAK)
    bench.after("20m")
    assert (bench.did(), bench.ended()) == ([], ("cancelled", "resolved"))
    assert [event.data["reason"] for event in bench.events("episode_ended")] == ["absent"]


def test_episode_when_muted_for_long_then_stays_open(bench: Any, one: Alertmanager) -> None:
    start(bench, expire_after="90m")
    one.lists(LEAK, muted_by="silenced")
    bench.deliver(bench.fires(LEAK))
    bench.after("2h")
    assert bench.events("episode_ended") == []


def test_episode_when_the_alertmanager_has_just_started_then_its_silence_closes_nothing(
    bench: Any, one: Alertmanager
) -> None:
    start(bench)
    one.lists(LEAK)
    bench.deliver(bench.fires(LEAK))
    bench.after("3m")
    one.forgets(LEAK)
    one.started = bench.clock.now()
    bench.after("9m")
    assert bench.events("episode_ended") == []
    bench.after("3m")
    assert [event.data["reason"] for event in bench.events("episode_ended")] == ["absent"]


def test_episode_when_never_listed_then_absence_closes_nothing(bench: Any, one: Alertmanager) -> None:
    start(bench)
    bench.deliver(bench.fires(LEAK))
    bench.after("30m")
    assert bench.events("episode_ended") == []


def test_episode_when_one_of_two_does_not_answer_then_absence_closes_nothing(
    bench: Any, one: Alertmanager, other: Alertmanager
) -> None:
    start(bench)
    one.lists(LEAK)
    bench.deliver(bench.fires(LEAK))
    bench.after("2m")
    one.forgets(LEAK)
    other.is_away = True
    bench.after("30m")
    assert bench.events("episode_ended") == []
    other.is_away = False
    bench.after("7m")
    assert len(bench.events("episode_ended")) == 1


def test_copy_when_the_end_was_only_absence_then_an_old_copy_opens_nothing(bench: Any, one: Alertmanager) -> None:
    start(bench)
    one.lists(LEAK)
    copy = bench.fires(LEAK)
    bench.deliver(copy)
    bench.after("2m")
    one.forgets(LEAK)
    bench.after("8m")
    bench.deliver(copy)
    bench.after("20m")
    assert len(bench.events("episode_opened")) == 1


def test_missed_when_never_delivered_then_is_noticed_and_starts_nothing(bench: Any, one: Alertmanager) -> None:
    start(bench)
    one.lists(LEAK)
    one.lists({"alertname": "Other"}, receivers=("somebody",))
    bench.after("30m")
    assert [event.data["labels"]["alertname"] for event in bench.events("alert_missed")] == ["GPUMemoryLeakSlope"]
    assert bench.runs() == []


def test_missed_when_the_settings_let_it_start_then_one_run(bench: Any, one: Alertmanager) -> None:
    start(bench, reconcile={"starts": True})
    one.lists(LEAK)
    bench.after("30m")
    assert bench.did() == ["docker.restart docker:gpu-07/trainer-0"]
    bench.deliver(bench.fires(LEAK, ago="20m"))
    bench.after("30m")
    assert len(bench.runs()) == 1


def test_cut_group_when_alerts_were_cut_then_they_are_fetched(bench: Any, one: Alertmanager) -> None:
    bench.world.add_container("gpu-07", "trainer-1")
    start(bench, RESTART.replace("hold: 10m\n", ""))
    other = {**LEAK, "container_name": "trainer-1"}
    one.lists(LEAK)
    one.lists(other)
    one.lists({"alertname": "GPUHot", "hostname": "gpu-07"})
    bench.deliver(
        bench.fires(LEAK), truncatedAlerts=1, receiver="remediator", groupLabels={"alertname": "GPUMemoryLeakSlope"}
    )
    bench.after("2m")
    assert sorted(bench.did()) == [
        "docker.restart docker:gpu-07/trainer-0",
        "docker.restart docker:gpu-07/trainer-1",
    ]
    assert [event.data["source"] for event in bench.events("delivery_received")] == ["10.0.0.1", "alertmanager api"]


CUT = {"truncatedAlerts": 2, "receiver": "ops\\.gpu", "groupLabels": {"alertname": "GPUMemoryLeakSlope"}}
"""A group of which two are missing, from a receiver whose name Alertmanager has quoted."""

FROM_THE_API = "alertmanager api"


def of_the_api(bench: Any) -> list[dict[str, Any]]:
    return [event.data for event in bench.events("delivery_received") if event.data["source"] == FROM_THE_API]


def container(number: int) -> dict[str, str]:
    return {**LEAK, "container_name": f"trainer-{number}"}


def cut_while_one_is_away(bench: Any, one: Alertmanager, other: Alertmanager) -> None:
    """A group comes cut; of its other two members each Alertmanager lists one, and the second does not answer."""
    start(bench)
    other.is_away = True
    one.lists(container(1), receivers=("ops.gpu",))
    other.lists(container(2), receivers=("ops.gpu",))
    bench.deliver(bench.fires(LEAK), **CUT)


def test_cut_group_when_one_of_two_is_away_then_what_was_found_is_delivered_once_and_the_rest_once_it_is_back(
    bench: Any, one: Alertmanager, other: Alertmanager
) -> None:
    cut_while_one_is_away(bench, one, other)
    bench.after("2m30s")
    assert [data["n_firing"] for data in of_the_api(bench)] == [1]
    other.is_away = False
    bench.after("10m")
    assert [data["n_firing"] for data in of_the_api(bench)] == [1, 1]


def test_cut_group_when_one_of_two_stays_away_then_gives_up_after_five_tries(
    bench: Any, one: Alertmanager, other: Alertmanager
) -> None:
    cut_while_one_is_away(bench, one, other)
    bench.after("6m")
    other.is_away = False
    bench.after("10m")
    assert [data["n_firing"] for data in of_the_api(bench)] == [1]


def test_cut_group_when_it_is_delivered_anew_then_that_counts_and_the_older_is_forgotten(
    bench: Any, one: Alertmanager, other: Alertmanager
) -> None:
    start(bench)
    other.is_away = True
    bench.deliver(bench.fires(LEAK), **CUT)
    bench.after("1m")
    bench.deliver(bench.fires(LEAK), bench.fires(container(1)), **(CUT | {"truncatedAlerts": 1}))
    other.is_away = False
    other.lists(container(1), receivers=("ops.gpu",))
    other.lists(container(2), receivers=("ops.gpu",))
    bench.after("10m")
    assert [data["n_firing"] for data in of_the_api(bench)] == [1]


def test_cut_group_when_no_receiver_is_set_then_its_members_are_delivered_with_the_group_s_own(
    bench: Any, one: Alertmanager
) -> None:
    bench.playbook(
        "playbook: tell\nmatch: [alertname = GPUMemoryLeakSlope]\nper: [container_name]\n"
        "steps: [{action: notify.send, params: {to: [oncall], "
        "title: '{{ group.receiver }} {{ group.external_url }} {{ group.labels.alertname }}'}}]\n"
    )
    bench.start(alertmanager={"urls": ["http://am-1:9093"]})
    one.lists(LEAK)
    one.lists(container(1), receivers=("ops.gpu",))
    bench.deliver(bench.fires(LEAK), **(CUT | {"truncatedAlerts": 1}), externalURL="http://public.example")
    bench.after("2m")
    assert bench.told() == ["oncall: ops.gpu http://public.example GPUMemoryLeakSlope"] * 2
    assert [data["receiver"] for data in of_the_api(bench)] == ["ops.gpu"]


def test_copy_when_the_alertmanager_lists_it_as_active_then_it_was_delivered(bench: Any, one: Alertmanager) -> None:
    start(bench)
    copy = bench.fires(LEAK)
    one.lists(LEAK, receivers=())
    bench.deliver(copy)
    bench.after("2m")
    bench.deliver(bench.resolved(LEAK))
    bench.deliver(copy)
    bench.after("30m")
    assert [data["n_firing"] for data in of_the_api(bench)] == [1]
    assert len(bench.events("episode_opened")) == 2
    assert bench.events("alert_missed") == []
    assert bench.did()[0] == "docker.restart docker:gpu-07/trainer-0"


@pytest.mark.parametrize("muted_by", ["silenced", "inhibited"])
def test_copy_when_it_is_listed_as_muted_then_opens_nothing(bench: Any, one: Alertmanager, muted_by: str) -> None:
    start(bench)
    copy = bench.fires(LEAK)
    one.lists(LEAK, muted_by=muted_by)
    bench.deliver(copy)
    bench.after("1m")
    bench.deliver(bench.resolved(LEAK))
    bench.deliver(copy)
    bench.after("30m")
    assert len(bench.events("episode_opened")) == 1


def test_copy_when_what_is_listed_began_after_the_end_then_that_was_never_delivered(
    bench: Any, one: Alertmanager
) -> None:
    start(bench)
    copy = bench.fires(LEAK)
    bench.deliver(copy)
    bench.after("1m")
    bench.deliver(bench.resolved(LEAK))
    bench.deliver(copy)
    bench.after("1m")
    one.lists(LEAK)
    bench.after("30m")
    assert (len(bench.events("episode_opened")), len(bench.events("alert_missed"))) == (1, 1)


def test_survey_when_one_of_two_hangs_then_it_is_waited_for_once_and_not_asked_again(
    bench: Any, one: Alertmanager, other: Alertmanager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconcile, "ASK_S", 1.0)
    other.hangs_until = threading.Event()
    one.lists(LEAK)
    start(bench)
    begun = time.monotonic()
    survey = bench.engine._reconciler.survey()
    assert (survey.is_complete, len(survey.listed)) == (False, 1)
    assert time.monotonic() - begun < 1.0
    assert (other.n_asked, one.n_asked) == (1, 3)
    other.hangs_until.set()
    bench.engine._reconciler._asked["http://am-2:9093"].result(5)
    assert bench.engine._reconciler.survey().is_complete


def test_stop_when_an_alertmanager_hangs_then_is_not_waited_for(
    bench: Any, one: Alertmanager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconcile, "STOP_S", 0.1)
    one.hangs_until = threading.Event()
    bench.start(alertmanager={"urls": ["http://am-1:9093"]})
    bench.engine._reconciler.start()
    begun = time.monotonic()
    bench.engine._reconciler.stop()
    assert time.monotonic() - begun < 5
    one.hangs_until.set()
    bench.engine._reconciler._thread.join(5)
    assert not bench.engine._reconciler._thread.is_alive()
