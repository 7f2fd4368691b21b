"""Deliveries become episodes and subjects: repeats, duplicates, copies out of order, bad members."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from remediator.core.alert import RawDelivery

RESTARTED = "docker.restart docker:gpu-07/trainer-0"


@pytest.fixture(autouse=True)
def _started(bench: Any) -> None:
    bench.restarts().start()
    bench.after("10m")


def again(bench: Any, alert: dict[str, Any]) -> None:
    """Any further act would show: the cooldown is over."""
    bench.after("40m")
    bench.deliver(alert)
    bench.after("40m")


def test_delivery_when_repeated_for_a_day_then_there_is_one_run(bench: Any) -> None:
    first = bench.fires(bench.leak())
    for _ in range(6):
        bench.deliver(first)
        bench.after("4h")
    assert bench.acts() == [RESTARTED]
    assert len(bench.runs()) == 1


def test_delivery_when_both_peers_of_a_pair_send_it_then_there_is_one_run(bench: Any) -> None:
    alert = bench.fires(bench.leak())
    bench.deliver(alert, externalURL="http://am-0")
    bench.deliver(alert, externalURL="http://am-1")
    bench.after("1h")
    assert bench.acts() == [RESTARTED]


def test_delivery_when_twins_wait_in_the_inbox_together_then_there_is_one_run(bench: Any) -> None:
    body = b'{"version":"4","status":"firing","receiver":"r","alerts":[{"status":"firing","labels":{"alertname":'
    body += b'"GPUMemoryLeakSlope","hostname":"gpu-07","container_name":"trainer-0"}}]}'
    for _ in range(3):
        bench.engine.accept(RawDelivery(received_at=bench.clock.now(), source="x", body=body))
    bench.after("1h")
    assert bench.acts() == [RESTARTED]


def test_delivery_when_replicas_of_prometheus_differ_by_a_label_then_per_folds_them_into_one_run(bench: Any) -> None:
    bench.deliver(bench.fires(bench.leak(replica="a")), bench.fires(bench.leak(replica="b")))
    bench.after("1h")
    assert bench.acts() == [RESTARTED]
    assert len(bench.events("episode_opened")) == 2
    assert len(bench.events("subject_opened")) == 1


def test_delivery_when_resolved_twice_then_the_second_changes_nothing(bench: Any) -> None:
    bench.deliver(bench.fires(bench.leak()))
    bench.after("5m")
    end = bench.resolved(bench.leak())
    bench.deliver(end)
    n_events = len(bench.events())
    bench.after("1m")
    bench.deliver(end)
    kinds = [event.type.value for event in bench.events()[n_events:]]
    assert kinds == ["delivery_received"]


def test_firing_when_an_old_copy_comes_after_the_end_then_it_opens_nothing(bench: Any) -> None:
    old = bench.fires(bench.leak())
    bench.deliver(old)
    bench.after("40m")
    bench.deliver(bench.resolved(bench.leak()))
    bench.after("1m")
    bench.deliver(old)
    bench.after("40m")
    assert len(bench.runs()) == 1
    assert len(bench.events("episode_opened")) == 1


def test_firing_when_an_old_copy_is_repeated_within_five_minutes_then_it_opens_nothing(bench: Any) -> None:
    old = bench.fires(bench.leak())
    bench.deliver(old)
    bench.after("40m")
    bench.deliver(bench.resolved(bench.leak()))
    for _ in range(5):
        bench.after("1m")
        bench.deliver(old)
    assert len(bench.runs()) == 1


def test_firing_when_a_copy_says_it_again_more_than_five_minutes_later_then_it_fires_anew(bench: Any) -> None:
    old = bench.fires(bench.leak())
    bench.deliver(old)
    bench.after("40m")
    bench.deliver(bench.resolved(bench.leak()))
    bench.deliver(old)
    bench.after("5m1s")
    bench.deliver(old)
    assert bench.acts() == [RESTARTED] * 2


def test_firing_when_the_old_pair_of_firing_and_resolved_is_sent_every_four_hours_then_it_opens_nothing(
    bench: Any,
) -> None:
    old = bench.fires(bench.leak())
    bench.deliver(old)
    bench.after("40m")
    end = bench.resolved(bench.leak())
    bench.deliver(end)
    for _ in range(3):
        bench.after("4h")
        bench.deliver(old)
        bench.deliver(end)
    assert bench.acts() == [RESTARTED]


def test_firing_when_it_comes_after_its_own_end_and_nothing_was_known_then_it_opens_nothing(bench: Any) -> None:
    late = bench.fires(bench.leak(), ago="5m")
    bench.deliver(bench.resolved(bench.leak()))
    bench.after("10s")
    bench.deliver(late)
    bench.after("10m")
    assert bench.runs() == []


def test_firing_when_it_comes_after_its_own_end_and_an_older_episode_is_known_then_it_opens_nothing(
    bench: Any,
) -> None:
    bench.deliver(bench.fires(bench.leak()))
    bench.after("1m")
    bench.deliver(bench.resolved(bench.leak()))
    bench.after("40m")
    missed = bench.fires(bench.leak())
    bench.after("10m")
    bench.deliver(bench.resolved(bench.leak()))
    bench.deliver(missed)
    bench.after("1m")
    assert bench.acts() == [RESTARTED]


def test_firing_when_it_is_new_after_an_unknown_end_then_it_is_acted_on(bench: Any) -> None:
    bench.deliver(bench.resolved(bench.leak()))
    bench.after("1m")
    bench.deliver(bench.fires(bench.leak()))
    assert bench.acts() == [RESTARTED]


def test_delivery_when_one_body_has_the_end_of_the_old_and_the_new_firing_then_the_new_one_is_acted_on(
    bench: Any,
) -> None:
    bench.deliver(bench.resolved(bench.leak(), ago="1m"), bench.fires(bench.leak()))
    assert bench.acts() == [RESTARTED]


def test_resolved_when_it_is_of_the_episode_before_then_the_newer_one_goes_on(bench: Any) -> None:
    bench.deliver(bench.fires(bench.leak()))
    bench.after("1m")
    old_end = bench.resolved(bench.leak())
    bench.deliver(old_end)
    bench.after("1m")
    bench.deliver(bench.fires(bench.leak()))
    bench.after("1m")
    bench.deliver(old_end)
    assert bench.engine.status()["open_alerts"] == 1


def test_firing_when_its_start_moves_back_then_it_is_the_same_episode(bench: Any) -> None:
    bench.deliver(bench.fires(bench.leak()))
    bench.deliver(bench.fires(bench.leak(), ago="3h"))
    bench.after("1h")
    bench.deliver(bench.fires(bench.leak(), ago="7h"))
    assert len(bench.events("episode_opened")) == 1
    assert bench.acts() == [RESTARTED]


def test_group_when_it_is_mixed_then_each_member_counts_by_its_own_status(bench: Any) -> None:
    bench.deliver(bench.fires(bench.leak("trainer-1")))
    bench.after("1m")
    bench.deliver(bench.fires(bench.leak()), bench.resolved(bench.leak("trainer-1")), status="firing")
    assert bench.acts() == ["docker.restart docker:gpu-07/trainer-1", RESTARTED]
    assert bench.engine.status()["open_alerts"] == 1


def test_group_when_its_status_is_resolved_and_a_member_fires_then_the_member_is_acted_on(bench: Any) -> None:
    bench.deliver(bench.fires(bench.leak()), status="resolved")
    assert bench.acts() == [RESTARTED]


def test_group_when_its_status_is_firing_and_all_members_are_resolved_then_nothing_is_done(bench: Any) -> None:
    bench.deliver(bench.resolved(bench.leak()), status="firing")
    bench.after("1h")
    assert bench.did() == []


def test_batch_when_one_member_is_no_alert_then_the_others_are_handled(bench: Any) -> None:
    bench.deliver(bench.fires(bench.leak()), {"status": "burning", "labels": {}}, bench.fires(bench.leak("trainer-1")))
    assert sorted(bench.acts()) == [RESTARTED, "docker.restart docker:gpu-07/trainer-1"]
    assert [event.data["index"] for event in bench.events("alert_rejected")] == [1]


def test_batch_when_one_target_does_not_exist_then_the_others_are_acted_on(bench: Any) -> None:
    bench.deliver(*(bench.fires(bench.leak(name)) for name in ("trainer-0", "no-such", "trainer-1")))
    bench.after("1m")
    assert sorted(bench.acts()) == [RESTARTED, "docker.restart docker:gpu-07/trainer-1"]
    assert {row["per"]["container_name"]: (row["outcome"], row["reason"]) for row in bench.runs()} == {
        "trainer-0": ("succeeded", "none"),
        "trainer-1": ("succeeded", "none"),
        "no-such": ("refused", "no_target"),
    }


ODD_MEMBERS = {
    "no labels": ({"status": "firing"}, "alert_unmatched"),
    "labels that are null": ({"status": "firing", "labels": None}, "alert_unmatched"),
    "no alertname": ({"status": "firing", "labels": {"gpu": "0"}}, "alert_unmatched"),
    "an empty alertname": ({"status": "firing", "labels": {"alertname": ""}}, "alert_unmatched"),
    "a label that is a number": ({"status": "firing", "labels": {"gpu": 0}}, "alert_rejected"),
    "a host that is a number": ({"status": "firing", "labels": {"instance": 9100}}, "alert_rejected"),
    "no status": ({"labels": {"alertname": "GPUMemoryLeakSlope"}}, "alert_rejected"),
    "nothing at all": (None, "alert_rejected"),
}


@pytest.mark.parametrize(("member", "noted_as"), ODD_MEMBERS.values(), ids=ODD_MEMBERS)
def test_batch_when_a_member_is_odd_then_it_is_noted_once_and_the_others_are_acted_on(
    bench: Any, member: Any, noted_as: str
) -> None:
    bench.deliver(bench.fires(bench.leak()), member, bench.fires(bench.leak("trainer-1")))
    bench.after("1m")
    assert sorted(bench.acts()) == [RESTARTED, "docker.restart docker:gpu-07/trainer-1"]
    assert len(bench.events(noted_as)) == 1


@pytest.mark.parametrize("gone", ["startsAt", "endsAt", "annotations", "generatorURL", "fingerprint"])
@pytest.mark.parametrize("how", ["absent", "null"])
def test_alert_when_an_optional_key_is_not_there_then_it_is_acted_on_once(bench: Any, gone: str, how: str) -> None:
    whole = bench.fires(bench.leak(), endsAt="0001-01-01T00:00:00Z", annotations={}, generatorURL="", fingerprint="f1")
    without = {key: value for key, value in whole.items() if key != gone} | ({gone: None} if how == "null" else {})
    for _ in range(2):
        bench.deliver(without)
        bench.after("40m")
    assert bench.acts() == [RESTARTED]


def test_batch_when_five_alerts_mean_one_container_then_it_is_restarted_once(bench: Any) -> None:
    bench.deliver(*(bench.fires(bench.leak(rank=str(rank))) for rank in range(5)))
    bench.after("1h")
    assert bench.acts() == [RESTARTED]
    assert len(bench.events("episode_opened")) == 5
    assert len(bench.runs()) == 1


def test_batch_when_two_playbooks_mean_one_container_then_it_is_restarted_once_in_the_cooldown(bench: Any) -> None:
    bench.restarts(name="other", per="rank")
    bench.reload()
    bench.after("1m")
    bench.deliver(*(bench.fires(bench.leak(rank=str(rank))) for rank in range(5)))
    bench.after("29m")
    assert bench.acts() == [RESTARTED]


def test_alert_when_its_label_names_are_odd_then_matchers_and_templates_take_them_as_they_are(bench: Any) -> None:
    bench.playbook(
        """
        playbook: otel
        match: [alertname = Odd, host.name = n1, app.kubernetes.io/name = trainer, '告警 = 温度']
        per: [host.name, 告警]
        steps: [{action: docker.restart, params: {container: '{{ labels["container.name"] }}', host: gpu-07}}]
        """,
        "otel.yaml",
    )
    bench.reload()
    bench.after("1m")
    labels = {"host.name": "n1", "app.kubernetes.io/name": "trainer", "告警": "温度", "container.name": "trainer-1"}
    like = {"host_name": "n1", "app_kubernetes_io_name": "trainer", "告警": "温度", "container_name": "trainer-0"}
    bench.deliver(bench.fires({"alertname": "Odd", **like}), bench.fires({"alertname": "Odd", **labels}))
    assert bench.acts() == ["docker.restart docker:gpu-07/trainer-1"]
    assert bench.run()["per"] == {"host.name": "n1", "告警": "温度"}


def test_alert_when_it_has_no_labels_then_it_is_noted_as_unmatched_once_per_episode(bench: Any) -> None:
    for _ in range(3):
        bench.deliver(bench.fires({}), bench.fires(bench.leak()))
        bench.after("1m")
    assert len(bench.events("alert_unmatched")) == 1
    assert bench.acts() == [RESTARTED]


def test_alert_when_an_unforeseen_error_hits_one_then_the_others_of_its_body_are_handled(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    intake = bench.engine._intake
    take = type(intake)._fires

    def fires(self: Any, tx: Any, stored: Any, group: Any, alert: Any) -> None:
        if alert.labels.get("container_name") == "trainer-1":
            raise ZeroDivisionError
        take(self, tx, stored, group, alert)

    monkeypatch.setattr(type(intake), "_fires", fires)
    bench.deliver(bench.fires(bench.leak("trainer-1")), bench.fires(bench.leak()))
    assert bench.acts() == [RESTARTED]
    assert [event.data["detail"] for event in bench.events("alert_rejected")] == ["internal error: ZeroDivisionError"]


def test_labels_when_they_look_like_code_then_they_stay_text(bench: Any) -> None:
    evil = {"pod": "a; touch x", "x": "__import__('os')", "y": "{{ labels.pod }}", "告警": "温度", "host.name": "n1"}
    bench.deliver(bench.fires(bench.leak(**evil)))
    bench.after("1m")
    message = next(write for write in bench.world.writes if write.call == "notify.send")
    assert "y={{ labels.pod }}" in message.args["body"]
    assert bench.acts() == [RESTARTED]


def test_episode_when_nothing_is_heard_for_expire_after_then_it_expires(bench: Any) -> None:
    bench.deliver(bench.fires(bench.leak()))
    bench.after("9h1m")
    assert [event.data["reason"] for event in bench.events("episode_ended")] == ["expired"]


def test_episode_when_the_engine_was_away_then_that_time_does_not_count_in_expire_after(bench: Any) -> None:
    bench.deliver(bench.fires(bench.leak()))
    bench.after("1h")
    bench.away("10h")
    bench.after("7h50m")
    assert bench.events("episode_ended") == []
    bench.after("20m")
    assert len(bench.events("episode_ended")) == 1


def test_alert_when_it_expired_and_fires_again_then_it_is_a_new_episode_that_acts(bench: Any) -> None:
    alert = bench.fires(bench.leak())
    bench.deliver(alert)
    bench.after("10h")
    bench.deliver(alert)
    assert bench.acts() == [RESTARTED] * 2


def test_backup_when_put_back_under_the_engine_then_no_delivery_is_taken_for_one_that_is_gone(bench: Any) -> None:
    def raw(*alerts: Any) -> RawDelivery:
        body = {"version": "4", "groupKey": "g", "status": "firing", "receiver": "r", "alerts": list(alerts)}
        return RawDelivery(received_at=bench.clock.now(), source="10.0.0.1", body=json.dumps(body).encode())

    file = bench.folder / "r.db"
    bench.engine._store.write(lambda tx: None)
    with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(bench.folder / "backup.db")) as copy:
        source.backup(copy)
    lost = bench.engine.accept(raw(bench.fires(bench.leak("a"))))  # not handled yet: the intake is behind
    for end in ("-wal", "-shm"):
        file.with_name(f"r.db{end}").unlink(missing_ok=True)
    os.replace(bench.folder / "backup.db", file)
    kept = bench.engine.accept(raw(*(bench.fires(bench.leak(f"b{n}")) for n in range(31))))
    assert kept.delivery_id == lost.delivery_id
    bench.after("1m")
    assert len(bench.events("episode_opened")) == 31
