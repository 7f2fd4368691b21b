from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import rfc8785
from hypothesis import example, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from recordings import EXPECTED, VERSIONS, Golden, expected, recorded, said
from remediator.core.alert import Alert, AlertGroup, BadAlert, fingerprint, label_key, pack_alert, unpack_alert
from remediator.core.decode import decode
from remediator.errors import DecodeError, DeliveryError, UnsupportedVersionError

TABLE = YAML(typ="safe").load(Path(__file__).parents[2] / "data" / "decode.yaml")
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
ENVELOPE = {
    "version": "4", "groupKey": '{}:{alertname="X"}', "truncatedAlerts": 0, "status": "firing",
    "receiver": "remediator", "groupLabels": {}, "commonLabels": {}, "commonAnnotations": {},
    "externalURL": "http://am", "alerts": [],
}  # fmt: skip
LEAK_URL = "http://prometheus.invalid/graph?g0.expr=leak+%3E+0&g0.tab=1"
GOOD = {"status": "firing", "labels": {"alertname": "Good"}}


def rows(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in TABLE[name]])


def group_of(*members: object, **keys: object) -> AlertGroup:
    return decode(json.dumps(ENVELOPE | {"alerts": members} | keys).encode(), NOW)


def body_of(row: Mapping[str, Any]) -> bytes:
    if "nested" in row:  # the body itself is the first level
        n_lists = row["nested"] - 1
        return b'{"version":"4","alerts":[],"x":' + b"[" * n_lists + b"]" * n_lists + b"}"
    return bytes.fromhex(str(row["hex"])) if "hex" in row else str(row["body"]).encode()


def shown(alert: Alert) -> dict[str, Any]:
    times = {"starts_at": alert.starts_at, "ends_at": alert.ends_at}
    return pack_alert(alert) | {name: moment and moment.isoformat() for name, moment in times.items()}


@rows("refuses")
def test_decode_when_no_retry_can_mend_the_body_then_refuses_it(row: dict[str, Any]) -> None:
    with pytest.raises(DecodeError) as refusal:
        decode(body_of(row), NOW)
    assert type(refusal.value).__name__ == row["error"]
    assert refusal.value.http_status == 400
    assert row["says"] in str(refusal.value)


@rows("envelopes")
def test_decode_when_the_envelope_is_odd_then_takes_the_group(row: dict[str, Any]) -> None:
    group = group_of(GOOD, **row["keys"])
    assert {name: getattr(group, name) for name in row["gives"]} == row["gives"]
    assert [alert.status for alert in group.alerts] == ["firing"]


@pytest.mark.parametrize("key", [key for key in ENVELOPE if key not in ("version", "alerts")])
def test_decode_when_an_optional_key_is_absent_then_takes_the_group(key: str) -> None:
    payload = {name: value for name, value in ENVELOPE.items() if name != key} | {"alerts": [GOOD]}
    group = decode(json.dumps(payload).encode(), NOW)
    assert [alert.labels for alert in group.alerts] == [{"alertname": "Good"}]


@rows("alerts")
def test_decode_when_an_alert_can_be_used_then_gives_its_fields(row: dict[str, Any]) -> None:
    group = group_of(row["member"], GOOD)
    assert group.bad_alerts == ()
    alert, good = group.alerts
    assert {name: shown(alert)[name] for name in row["gives"]} == row["gives"]
    assert alert.label_key == label_key(alert.labels)
    assert good.labels == {"alertname": "Good"}


@pytest.mark.parametrize("how", ["absent", "null"])
@pytest.mark.parametrize("key", ["annotations", "startsAt", "endsAt", "generatorURL", "fingerprint"])
def test_decode_when_one_key_of_a_member_is_not_there_then_it_is_an_alert_all_the_same(key: str, how: str) -> None:
    whole = {
        "status": "firing", "labels": {"alertname": "X"}, "annotations": {"a": "b"},
        "startsAt": "2026-01-01T00:00:00Z", "endsAt": "0001-01-01T00:00:00Z", "generatorURL": "http://p",
        "fingerprint": fingerprint({"alertname": "X"}),
    }  # fmt: skip
    (as_it_is,) = group_of(whole).alerts
    without = {name: value for name, value in whole.items() if name != key} | ({key: None} if how == "null" else {})
    (alert,) = group_of(without).alerts
    assert (alert.labels, alert.status, alert.label_key) == (as_it_is.labels, as_it_is.status, as_it_is.label_key)
    assert alert.fingerprint == as_it_is.fingerprint


@rows("bad_alerts")
def test_decode_when_an_alert_cannot_be_used_then_takes_the_others(row: dict[str, Any]) -> None:
    group = group_of(GOOD, row["member"], GOOD)
    assert group.bad_alerts == (BadAlert(index=1, problem=row["says"]),)
    assert [alert.labels for alert in group.alerts] == [{"alertname": "Good"}] * 2


def test_decode_when_the_bad_labels_name_is_long_then_cuts_it() -> None:
    (bad,) = group_of({"status": "firing", "labels": {"x" * 5000: 1}}).bad_alerts
    assert len(bad.problem) < 150


def test_decode_then_keeps_when_it_came() -> None:
    assert group_of().received_at == NOW


def test_decode_when_there_are_no_alerts_then_gives_an_empty_group() -> None:
    group = group_of()
    assert (group.alerts, group.bad_alerts) == ((), ())


def test_decode_when_a_group_status_says_the_opposite_then_only_the_members_count() -> None:
    group = group_of({"status": "resolved", "labels": {"gpu": "0"}}, {"status": "firing", "labels": {"gpu": "1"}})
    assert [alert.status for alert in group.alerts] == ["resolved", "firing"]


RECORDED = [pytest.param(one, id=f"{version} {one.name}") for version in VERSIONS for one in recorded(version)]
LEGIBLE = [param for param in RECORDED if "alerts" in param.values[0].row]
REFUSED = [param for param in RECORDED if "refused" in param.values[0].row]


def test_recordings_when_counted_then_every_version_has_every_row_that_it_can_send() -> None:
    names = {version: {one.name for one in recorded(version)} for version in VERSIONS}
    assert names == {
        version: {name for name, row in EXPECTED["bodies"].items() if float(row.get("from", 0)) <= float(version)}
        for version in ("0.25", "0.28", "0.31", "0.34")
    }


@pytest.mark.parametrize("one", LEGIBLE)
def test_decode_when_a_real_alertmanager_sent_it_then_gives_what_was_pushed(one: Golden) -> None:
    group = decode(one.body, one.at)
    assert said(group) == expected(one.row, group)
    assert group.bad_alerts == ()


@pytest.mark.parametrize("one", LEGIBLE)
def test_decode_when_a_real_alertmanager_sent_it_then_its_times_are_those_of_the_recording(one: Golden) -> None:
    alert = decode(one.body, one.at).alerts[0]
    assert alert.starts_at is not None
    age = one.at - alert.starts_at
    assert timedelta(seconds=one.row.get("started_before_s", 0)) <= age < timedelta(minutes=10)
    assert alert.ends_at is None or alert.starts_at < alert.ends_at <= one.at
    assert re.fullmatch(r"0001-01-01T00:00:00Z|20\d\d-.*\.\d+Z", alert.ends_at_text)


@pytest.mark.parametrize("one", LEGIBLE)
def test_decode_when_a_real_alertmanager_sent_it_then_its_sender_and_reason_are_as_documented(one: Golden) -> None:
    group = decode(one.body, one.at)
    assert group.external_url.startswith("http://127.0.0.1:")
    assert group.group_key.startswith("{}:{")
    assert group.alerts[0].generator_url == one.row.get("generator_url", LEAK_URL)
    assert one.payload.get("notification_reason") == (one.row["reason"] if one.version == "0.34" else None)
    assert one.payload.get("routeLabels") == (one.row.get("route_labels", {}) if one.version == "0.34" else None)
    assert one.headers["User-Agent"].startswith(f"Alertmanager/{one.version}.")
    assert (one.headers["Content-Type"], one.path) == ("application/json", one.row.get("path", EXPECTED["path"]))


@pytest.mark.parametrize("one", REFUSED)
def test_decode_when_a_real_alertmanager_sent_a_payload_of_somebodys_own_then_says_so(one: Golden) -> None:
    with pytest.raises(UnsupportedVersionError, match=one.row["refused"]):
        decode(one.body, one.at)


def test_decode_when_alertmanager_sets_the_start_itself_then_nanoseconds_are_cut_and_kept_as_text() -> None:
    for version in VERSIONS:
        (one,) = recorded(version, "bare")
        (alert,) = decode(one.body, one.at).alerts
        whole, fraction = alert.starts_at_text.removesuffix("Z").split(".")
        assert alert.starts_at == datetime.fromisoformat(f"{whole}.{fraction[:6]:0<6}+00:00")
        assert len(fraction) > 6, "Go writes nine digits, less only when they end in zeros"


def test_decode_when_two_prometheis_saw_it_at_other_times_then_the_start_moves_back_and_the_key_does_not() -> None:
    for version in VERSIONS:
        early, late = (decode(one.body, one.at).alerts[0] for one in recorded(version, "moved-start"))
        assert early.starts_at
        assert late.starts_at
        assert early.starts_at - late.starts_at > timedelta(minutes=6)
        assert early.label_key == late.label_key


def test_decode_when_it_refuses_then_repeats_nothing_that_the_body_said() -> None:
    secret = "hunter2"
    bodies = [
        f"{secret}",
        f'{{"version":"{secret}","alerts":[]}}',
        f'{{"version":"4","alerts":"{secret}"}}',
        f'{{"{secret}":NaN}}',
        f'["{secret}"]',
        f'{{"{secret}":1}}',
        f'{{"version":"4","alerts":[],"{secret}":"\\ud800"}}',
        f'{{"version":"4","{secret}"',
    ]
    for body in bodies:
        with pytest.raises(DecodeError) as refusal:
            decode(body.encode(), NOW)
        assert secret not in str(refusal.value)


def test_decode_when_nested_as_deep_as_allowed_then_takes_it() -> None:
    assert decode(body_of({"nested": 32}), NOW).alerts == ()


def test_decode_when_a_number_has_thousands_of_digits_then_takes_the_group() -> None:
    body = json.dumps(ENVELOPE).replace('"truncatedAlerts": 0', '"truncatedAlerts": ' + "9" * 5000)
    assert decode(body.encode(), NOW).n_truncated == 2**53 - 1
    assert decode(body.replace("999", "-999", 1).encode(), NOW).n_truncated == 0


def test_decode_when_a_number_is_too_large_for_a_float_then_takes_the_group() -> None:
    body = json.dumps(ENVELOPE).replace('"truncatedAlerts": 0', '"truncatedAlerts": 1e999')
    assert decode(body.encode(), NOW).n_truncated == 0


def test_decode_when_a_key_stands_twice_then_the_last_counts() -> None:
    assert decode(b'{"version":"3","alerts":[1],"version":"4","alerts":[]}', NOW).bad_alerts == ()


def test_decode_when_the_body_has_a_byte_order_mark_then_takes_it() -> None:
    assert decode(b"\xef\xbb\xbf" + json.dumps(ENVELOPE).encode(), NOW).receiver == "remediator"


def test_decode_when_a_backslash_stands_before_ud800_then_it_is_text() -> None:
    (alert,) = group_of({"status": "firing", "labels": {"path": r"C:\ud800"}}).alerts
    assert alert.labels == {"path": r"C:\ud800"}


def test_decode_when_a_storm_of_20000_alerts_comes_then_takes_every_one() -> None:
    members = [GOOD | {"labels": {"alertname": "X", "gpu": str(n)}, "fingerprint": f"{n:016x}"} for n in range(20_000)]
    body = json.dumps(ENVELOPE | {"alerts": members}).encode()
    started = time.process_time()
    group = decode(body, NOW)
    assert len({alert.label_key for alert in group.alerts}) == 20_000
    assert time.process_time() - started < 10  # a tenth of it is usual; a square law would take minutes


# Halves of surrogate pairs too, which JSON can escape and UTF-8 cannot hold.
ANY_TEXT = st.text(max_size=8) | st.sampled_from(["\ud800", "a\udfff", "\ude42\ud83d"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=12,
)
ALERT_KEYS = ("status", "labels", "annotations", "startsAt", "endsAt", "generatorURL", "fingerprint")
MEMBERS = (
    JSON
    | st.dictionaries(st.sampled_from(ALERT_KEYS), JSON | st.sampled_from(["firing", "resolved"]))
    | st.fixed_dictionaries(
        {"status": st.just("firing"), "labels": st.dictionaries(ANY_TEXT, ANY_TEXT, max_size=3)},
        optional={"annotations": st.dictionaries(ANY_TEXT, ANY_TEXT, max_size=2), "startsAt": ANY_TEXT},
    )
)


def judge_any(body: bytes) -> None:
    with suppress(DeliveryError):
        group = decode(body, NOW)
        assert isinstance(group, AlertGroup)
        # What is taken, the log can hold: else it would poison every look at it.
        assert rfc8785.dumps([pack_alert(alert) for alert in group.alerts] + [bad.problem for bad in group.bad_alerts])


@settings(deadline=None)
@given(st.binary())
@example(b"\x00")
def test_decode_when_given_any_bytes_then_raises_nothing_but_a_delivery_error(body: bytes) -> None:
    judge_any(body)


@settings(deadline=None)
@given(JSON)
def test_decode_when_given_any_json_then_raises_nothing_but_a_delivery_error(payload: object) -> None:
    judge_any(json.dumps(payload).encode())


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(ENVELOPE)), JSON), st.lists(MEMBERS, max_size=4))
def test_decode_when_given_any_members_then_each_is_an_alert_or_a_bad_one(
    keys: dict[str, object], members: Sequence[object]
) -> None:
    payload = ENVELOPE | keys | {"version": "4", "alerts": members}
    body = json.dumps(payload).encode()
    if any(refused in body for refused in (b"NaN", b"Infinity", b"\\ud")):
        judge_any(body)
        return
    group = decode(body, NOW)
    assert len(group.alerts) + len(group.bad_alerts) == len(members)
    assert all(bad.problem and 0 <= bad.index < len(members) for bad in group.bad_alerts)


TEXTS = st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=4)


@settings(deadline=None)
@given(
    st.fixed_dictionaries(
        {"status": st.sampled_from(["firing", "resolved"]), "labels": TEXTS, "annotations": TEXTS},
        optional={
            "startsAt": st.datetimes(timezones=st.just(UTC)).map(datetime.isoformat) | st.text(max_size=5),
            "endsAt": st.just("0001-01-01T00:00:00Z"),
            "generatorURL": st.text(max_size=5),
            "fingerprint": st.text(max_size=5),
        },
    )
)
def test_unpack_alert_when_packed_and_stored_then_gives_the_alert_back(member: dict[str, object]) -> None:
    (alert,) = group_of(member).alerts
    assert unpack_alert(json.loads(json.dumps(pack_alert(alert)))) == alert


@pytest.mark.parametrize(("key", "value"), [("labels", "x"), ("labels", {"a": 1}), ("status", None), ("starts_at", 5)])
def test_unpack_alert_when_it_was_not_packed_by_us_then_raises(key: str, value: object) -> None:
    (alert,) = group_of(GOOD).alerts
    with pytest.raises(TypeError):
        unpack_alert(pack_alert(alert) | {key: value})
