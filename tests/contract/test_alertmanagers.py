"""Silences, in memory and on real Alertmanagers: both worlds keep the same promises."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Protocol

import pytest

from conftest_realparts import AlertmanagerPairFactory, need_alertmanager
from realparts.alertmanager import VERSIONS, webhook_config
from realparts.alertmanager import Alertmanager as RealAlertmanager
from realparts.process import wait_until
from remediator.actions import REGISTRY
from remediator.clients.alertmanager import Alertmanager, SilencingAlertmanager
from remediator.clients.fake import FakeWorld
from remediator.clients.ports import AlertmanagerReader, AlertmanagerWriter, Clients, ListedSilence, ReadOnlyClients
from remediator.core.action import Standing
from remediator.core.outcome import Effect
from remediator.errors import ConflictError, TargetNotFoundError
from remediator.testing import assert_action_contract

URL = "http://am-1:9093"
NOBODY = "http://127.0.0.1:9/nobody"
DEADLINE_S = 10.0
TIMEOUT = timedelta(minutes=1)
ACTION: Any = REGISTRY["alertmanager.silence"]
NUMBERS = count()


class World(Protocol):
    """One Alertmanager, in memory or real, and what others do to it."""

    reader: AlertmanagerReader
    writer: AlertmanagerWriter

    def fires(self, labels: Mapping[str, str]) -> None: ...

    def prolongs(self, silence: ListedSilence) -> None: ...


class InMemory:
    def __init__(self) -> None:
        self._world = FakeWorld(lambda: datetime.now(UTC))
        self._world.add_alertmanager(URL)
        self.reader = self._world.read_only().alertmanagers[URL]
        self.writer = self._world.clients().alertmanagers[URL]

    def fires(self, labels: Mapping[str, str]) -> None:
        self._world.list_alert(labels)

    def prolongs(self, silence: ListedSilence) -> None:
        self._world.change_silence(silence.id, ends_at=silence.ends_at + timedelta(hours=1))


class Real:
    def __init__(self, alertmanager: RealAlertmanager) -> None:
        self._alertmanager = alertmanager
        self.reader = Alertmanager(alertmanager.url)
        self.writer = SilencingAlertmanager(alertmanager.url)

    def fires(self, labels: Mapping[str, str]) -> None:
        self._alertmanager.push(labels)

    def prolongs(self, silence: ListedSilence) -> None:
        self._alertmanager.change_silence(silence.id, ends_at=silence.ends_at + timedelta(hours=1))


@pytest.fixture(
    scope="module", params=["in memory", *(pytest.param(v, marks=pytest.mark.alertmanager) for v in VERSIONS)]
)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    if request.param == "in memory":
        yield InMemory()
        return
    need_alertmanager(request.param)
    alertmanager = RealAlertmanager(
        tmp_path_factory.mktemp("alertmanager"), webhook_config(NOBODY), version=request.param
    )
    alertmanager.start()
    yield Real(alertmanager)
    alertmanager.kill()


@pytest.fixture
def labels() -> dict[str, str]:
    """Of an alert that no other test knows."""
    return {"alertname": "GPUHot", "hostname": f"gpu-{next(NUMBERS):02}", "note": 'a "b" \\ ü\n=~ .*'}


@pytest.fixture
def clients(world: World) -> Clients:
    return replace(FakeWorld(lambda: datetime.now(UTC)).clients(), alertmanagers={URL: world.writer})


@pytest.fixture
def read_only(world: World) -> ReadOnlyClients:
    return ReadOnlyClients(dockers={}, alertmanagers={URL: world.reader})


def create(world: World, labels: Mapping[str, str], comment: str = "a comment") -> ListedSilence:
    return world.writer.create_silence(
        labels, duration=timedelta(hours=2), created_by="remediator", comment=comment, deadline_s=DEADLINE_S
    )


def listed(world: World, silence_id: str) -> ListedSilence:
    (found,) = [silence for silence in world.reader.silences() if silence.id == silence_id]
    return found


def params(labels: Mapping[str, str], **more: Any) -> Any:
    given = {"duration": "2h", "labels": dict(labels), "run": "playbook a, run 1", **more}
    return ACTION.params_model.model_validate(given)


def test_create_when_an_alert_fires_then_it_is_muted_by_that_silence_and_listed(
    world: World, labels: dict[str, str]
) -> None:
    other = {**labels, "hostname": "other"}
    world.fires(labels)
    world.fires(other)
    silence = create(world, {"alertname": "GPUHot", "hostname": labels["hostname"]})

    def by_labels() -> dict[str, Any]:
        return {alert.labels["hostname"]: alert for alert in world.reader.alerts()}

    wait_until(lambda: by_labels()[labels["hostname"]].silenced_by == (silence.id,), "the alert is muted", 60)
    wait_until(lambda: by_labels()["other"].is_active, "the other is not", 60)
    assert (by_labels()[labels["hostname"]].is_active, by_labels()["other"].silenced_by) == (False, ())


def test_create_when_listed_then_it_says_what_was_asked_for(world: World, labels: dict[str, str]) -> None:
    made = create(world, labels, "who: why")
    found = listed(world, made.id)
    assert (dict(found.labels), found.status, found.created_by, found.comment) == (
        labels, "active", "remediator", "who: why",
    )  # fmt: skip
    assert abs(found.ends_at - made.ends_at) < timedelta(seconds=1)
    assert abs(made.ends_at - datetime.now(UTC) - timedelta(hours=2)) < timedelta(minutes=1)


def test_expire_when_it_mutes_then_it_has_ended_and_a_second_time_changes_nothing(
    world: World, labels: dict[str, str]
) -> None:
    silence = create(world, labels)
    world.writer.expire_silence(silence.id, deadline_s=DEADLINE_S)
    ended = listed(world, silence.id)
    world.writer.expire_silence(silence.id, deadline_s=DEADLINE_S)
    assert listed(world, silence.id) == ended
    assert (ended.status, ended.is_alive, ended.ends_at < silence.ends_at) == ("expired", False, True)


def test_expire_when_nobody_knows_it_then_target_not_found(world: World) -> None:
    with pytest.raises(TargetNotFoundError, match="no such silence"):
        world.writer.expire_silence("00000000-0000-4000-8000-000000000000", deadline_s=DEADLINE_S)


def test_action_when_it_can_act_then_it_keeps_every_promise(
    labels: dict[str, str], clients: Clients, read_only: ReadOnlyClients
) -> None:
    given = {"duration": "2h", "labels": labels, "run": "playbook a, run 1"}
    change = assert_action_contract(ACTION, given, clients=clients, read_only=read_only)
    assert (change.changed, change.after["status"]) == (True, "active")
    assert change.after["ref"] == f"alertmanager:{change.after['id']}"


def test_action_when_another_run_silences_the_same_then_each_has_a_silence_of_its_own(
    world: World, labels: dict[str, str], clients: Clients, read_only: ReadOnlyClients
) -> None:
    made = {}
    for run in ("playbook a, run 1", "playbook a, run 2"):
        before = ACTION.observe(params(labels, run=run), read_only)
        made[run] = ACTION.apply(params(labels, run=run), clients, before, TIMEOUT).after
    first, second = made.values()
    assert first["id"] != second["id"]
    ACTION.undo(params(labels, run="playbook a, run 1"), clients, first, {}, TIMEOUT)
    assert (listed(world, first["id"]).is_alive, listed(world, second["id"]).is_alive) == (False, True)


def test_action_when_no_answer_came_and_it_was_made_then_a_look_finds_it(
    world: World, labels: dict[str, str], clients: Clients, read_only: ReadOnlyClients
) -> None:
    before = ACTION.observe(params(labels), read_only)
    assert ACTION.effect(params(labels), before, before) is Effect.AS_BEFORE
    ACTION.apply(params(labels), clients, before, TIMEOUT)
    now = ACTION.observe(params(labels), read_only)
    assert ACTION.effect(params(labels), before, now) is Effect.HAPPENED
    again = ACTION.apply(params(labels), clients, now, TIMEOUT)
    assert (again.changed, len([one for one in world.reader.silences() if dict(one.labels) == labels])) == (False, 1)


def test_standing_when_somebody_ended_it_then_reverted_and_undo_changes_nothing(
    world: World, labels: dict[str, str], clients: Clients, read_only: ReadOnlyClients
) -> None:
    before = ACTION.observe(params(labels), read_only)
    left = ACTION.apply(params(labels), clients, before, TIMEOUT).after
    assert ACTION.standing(left, ACTION.observe(params(labels), read_only)) is Standing.AS_LEFT
    world.writer.expire_silence(left["id"], deadline_s=DEADLINE_S)
    assert ACTION.standing(left, ACTION.observe(params(labels), read_only)) is Standing.REVERTED
    assert ACTION.undo(params(labels), clients, left, before, TIMEOUT).changed is False


def test_action_when_somebody_ended_what_it_made_then_the_run_makes_no_other(
    world: World, labels: dict[str, str], clients: Clients, read_only: ReadOnlyClients
) -> None:
    before = ACTION.observe(params(labels), read_only)
    left = ACTION.apply(params(labels), clients, before, TIMEOUT).after
    world.writer.expire_silence(left["id"], deadline_s=DEADLINE_S)
    now = ACTION.observe(params(labels), read_only)
    again = ACTION.apply(params(labels), clients, now, TIMEOUT)
    assert (ACTION.would_change(params(labels), now), again.changed) == (False, False)
    assert "somebody ended" in again.detail
    assert [one.is_alive for one in world.reader.silences() if dict(one.labels) == labels] == [False]


def test_standing_when_somebody_prolonged_it_then_drifted_and_undo_leaves_it(
    world: World, labels: dict[str, str], clients: Clients, read_only: ReadOnlyClients
) -> None:
    before = ACTION.observe(params(labels), read_only)
    left = ACTION.apply(params(labels), clients, before, TIMEOUT).after
    world.prolongs(listed(world, left["id"]))
    assert ACTION.standing(left, ACTION.observe(params(labels), read_only)) is Standing.DRIFTED
    with pytest.raises(ConflictError, match="changed by somebody else"):
        ACTION.undo(params(labels), clients, left, before, TIMEOUT)
    assert listed(world, left["id"]).is_alive


@pytest.mark.alertmanager
def test_pair_when_the_first_is_away_then_the_second_is_told_and_the_first_hears_of_it(
    alertmanager_pair_factory: AlertmanagerPairFactory, labels: dict[str, str]
) -> None:
    first, second = alertmanager_pair_factory(NOBODY)
    urls = (first.url, second.url)
    nobody = FakeWorld(lambda: datetime.now(UTC)).clients()
    clients = replace(nobody, alertmanagers={url: SilencingAlertmanager(url) for url in urls})
    read_only = ReadOnlyClients(dockers={}, alertmanagers={url: Alertmanager(url) for url in urls})
    first.kill()
    before = ACTION.observe(params(labels), read_only)
    left = ACTION.apply(params(labels), clients, before, TIMEOUT).after
    assert before["unasked"] == [first.url]
    first.start()

    def ids(url: str) -> list[str]:
        return [silence.id for silence in Alertmanager(url).silences() if silence.is_alive]

    wait_until(lambda: ids(first.url) == [left["id"]], "the first hears of it", 30)
    assert ACTION.standing(left, ACTION.observe(params(labels), read_only)) is Standing.AS_LEFT
    assert ACTION.undo(params(labels), clients, left, before, TIMEOUT).changed
    wait_until(lambda: ids(first.url) == ids(second.url) == [], "both know that it has ended", 30)
