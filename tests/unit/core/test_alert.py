"""Two names of a label set: the fingerprint that people know from Alertmanager, and the key that is its identity."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remediator.core.alert import fingerprint, label_key

DELIVERIES = Path(__file__).parents[2] / "data" / "golden"

SENT = [
    pytest.param(alert["labels"], alert["fingerprint"], id=f"{file.parent.name} {file.stem} {alert['fingerprint']}")
    for file in sorted(DELIVERIES.glob("*/*.json"))
    if file.name != "deliveries.json"
    for alert in json.loads(file.read_bytes()).get("alerts", [])
    if "fingerprint" in alert
]

labels = st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=4)


@pytest.mark.parametrize(("sent", "expected"), SENT)
def test_fingerprint_when_alertmanager_sent_one_then_ours_is_the_same(sent: dict[str, str], expected: str) -> None:
    assert fingerprint(sent) == expected


@pytest.mark.parametrize(
    ("given_labels", "expected"),
    [
        pytest.param({}, 14695981039346656037, id="no label"),
        pytest.param(
            {"name": "garland, briggs", "fear": "love is not enough"}, 5799056148416392346, id="the upstream example"
        ),
    ],
)
def test_fingerprint_when_upstream_has_a_test_of_it_then_ours_is_the_same(
    given_labels: dict[str, str], expected: int
) -> None:
    """Source: prometheus/common model/signature_test.go, TestLabelsToSignature."""
    assert fingerprint(given_labels) == f"{expected:016x}"


def test_sent_deliveries_are_there() -> None:
    assert len(SENT) >= 4


@pytest.mark.parametrize(
    ("given_labels", "hashed"),
    [
        pytest.param({}, b"", id="no label"),
        pytest.param({"a": "1"}, b"\0\0\0\1a\0\0\0\x011", id="one label"),
        pytest.param({"b": "", "a": "1"}, b"\0\0\0\1a\0\0\0\x011\0\0\0\1b\0\0\0\0", id="sorted by name"),
        pytest.param({"é": "ü"}, b"\0\0\0\2\xc3\xa9\0\0\0\2\xc3\xbc", id="lengths are of bytes"),
    ],
)
def test_label_key_is_sha_256_over_lengths_and_texts(given_labels: dict[str, str], hashed: bytes) -> None:
    assert label_key(given_labels) == hashlib.sha256(hashed).hexdigest()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param({"a": "bc"}, {"ab": "c"}, id="a border elsewhere"),
        pytest.param({"a": "1", "b": "2"}, {"a": "1b2"}, id="two labels and one"),
        pytest.param({"a": "\x00"}, {"a": ""}, id="a zero byte"),
        pytest.param({"a": "b\xffc\xffd"}, {"a": "b", "c": "d"}, id="the separator of fingerprints"),
        pytest.param({"a": ""}, {}, id="an empty label"),
        pytest.param({"A": "1"}, {"a": "1"}, id="case"),
    ],
)
def test_label_key_when_sets_differ_then_so_do_their_keys(one: dict[str, str], other: dict[str, str]) -> None:
    assert label_key(one) != label_key(other)


@given(one=labels, other=labels)
def test_label_key_is_equal_where_the_sets_are(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert (label_key(one) == label_key(other)) == (one == other)
    assert label_key(dict(reversed(one.items()))) == label_key(one)
