"""What real Alertmanagers sent, from its bytes to what was done: one run for each alert, however it is told."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from recordings import VERSIONS, Golden, recorded
from remediator.core.alert import RawDelivery
from remediator.errors import UnsupportedVersionError

RESTARTED = "docker.restart docker:gpu-07/trainer-0"
RESTARTED_1 = "docker.restart docker:gpu-07/trainer-1"

EDGES = (VERSIONS[0], VERSIONS[-1])
"""The oldest and the newest: enough where only the words of the group differ."""

VERIFIED = "verify: [{alert: resolved, within: 1h}]"


def begin(bench: Any, first: Golden, more: str = "") -> None:
    """An engine that has been up for an hour when the first of the recorded deliveries comes."""
    bench.clock.moment = first.at - timedelta(hours=1)
    bench.restarts(more).start()
    bench.after("1h")


def post(bench: Any, one: Golden) -> None:
    """The recorded bytes, at the moment at which they came."""
    bench.clock.moment = max(bench.clock.moment, one.at)
    bench.engine.accept(RawDelivery(received_at=bench.clock.now(), source="10.0.0.1", body=one.body))
    bench.engine.work()


@pytest.mark.parametrize("n_copies", [1, 2], ids=["once", "by both of a pair"])
@pytest.mark.parametrize("version", VERSIONS)
def test_group_when_it_fires_repeats_grows_and_ends_then_each_alert_has_one_run(
    bench: Any, version: str, n_copies: int
) -> None:
    life = recorded(version, "life")
    begin(bench, life[0], VERIFIED)
    done = []
    for one in life:
        for _ in range(n_copies):
            post(bench, one)
        done.append(len(bench.acts()))
    bench.after("9h")
    assert done == [1, 1, 2, 2, 2]
    assert bench.acts() == [RESTARTED, RESTARTED_1]
    assert {row["per"]["container_name"]: (row["outcome"], row["phase"]) for row in bench.runs()} == {
        "trainer-0": ("succeeded", "closed"),
        "trainer-1": ("succeeded", "closed"),
    }
    assert [event.data["reason"] for event in bench.events("episode_ended")] == ["resolved", "resolved"]


@pytest.mark.parametrize("version", EDGES)
def test_group_when_only_its_end_arrives_then_nothing_is_done(bench: Any, version: str) -> None:
    *_, end = recorded(version, "life")
    begin(bench, end)
    post(bench, end)
    bench.after("9h")
    assert bench.did() == []


@pytest.mark.parametrize("version", EDGES)
def test_group_when_its_deliveries_come_in_the_wrong_order_then_what_has_ended_is_not_begun_again(
    bench: Any, version: str
) -> None:
    life = recorded(version, "life")
    begin(bench, life[0])
    bench.clock.moment = life[-1].at
    for one in reversed(life):
        post(bench, one)
    bench.after("1h")
    assert bench.did() == []
    assert bench.engine.status()["open_alerts"] == 0


@pytest.mark.parametrize("version", EDGES)
def test_alert_when_its_start_moves_back_then_there_is_one_episode_and_one_run(bench: Any, version: str) -> None:
    early, late = recorded(version, "moved-start")
    begin(bench, early)
    post(bench, early)
    bench.after("2h")
    post(bench, late)
    bench.after("2h")
    assert bench.acts() == [RESTARTED]
    assert len(bench.events("episode_opened")) == 1


@pytest.mark.parametrize("version", EDGES)
def test_group_when_it_was_cut_then_what_came_is_acted_on_and_the_audit_counts_the_rest(
    bench: Any, version: str
) -> None:
    (cut,) = recorded(version, "cut")
    begin(bench, cut)
    post(bench, cut)
    assert sorted(bench.acts()) == [RESTARTED, RESTARTED_1]
    assert [event.data["n_truncated"] for event in bench.events("delivery_received")] == [3]
    assert bench.engine.metrics.registry.get_sample_value("remediator_cut_alerts_total") == 3


@pytest.mark.parametrize("version", EDGES)
def test_labels_when_they_hold_every_odd_text_then_the_audit_keeps_them_as_they_were(bench: Any, version: str) -> None:
    (one,) = recorded(version, "odd-text")
    begin(bench, one)
    post(bench, one)
    assert bench.acts() == [RESTARTED]
    (opened,) = bench.events("episode_opened")
    assert opened.data["labels"] == one.row["labels"]


def test_payload_when_somebody_wrote_it_himself_then_nothing_of_it_is_kept(bench: Any) -> None:
    (one,) = recorded("0.34", "custom-payload")
    begin(bench, one)
    with pytest.raises(UnsupportedVersionError):
        post(bench, one)
    assert bench.events("delivery_received") == []


def test_resolved_when_the_sender_only_fell_silent_then_it_looks_as_any_end_and_so_proves_nothing() -> None:
    # Why `resolved` is no verification unless a playbook says so: nothing in the body tells the two apart.
    for version in VERSIONS:
        shapes = []
        for name in ("ran-out-2", "life-5"):
            (one,) = recorded(version, name)
            (alert,) = one.payload["alerts"]
            shapes.append((set(one.payload), set(alert), alert["status"], one.payload["status"]))
        assert shapes[0] == shapes[1]
