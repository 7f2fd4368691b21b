"""The recorded bodies against the real Alertmanagers that are here: what they send today has the same shape."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conftest_realparts import need_alertmanager
from realparts.alertmanager import VERSIONS, Version
from realparts.golden import Situation, record, situations
from recordings import EXPECTED, expected, recorded, said
from remediator.core.decode import decode

pytestmark = pytest.mark.alertmanager

PLAYED = ("life", "cut", "odd-text", "escaped-receiver", "moved-start", "templated-url")
ROUNDS = [
    pytest.param(version, situation, id=f"{version} {situation.name}")
    for version in VERSIONS
    for situation in situations(version)
    if situation.name in PLAYED
]


def shape(value: object) -> Any:
    """Keys and types of a body; of a list, those of each of its members."""
    match value:
        case dict():
            return {name: shape(member) for name, member in value.items()}
        case list():
            return [shape(member) for member in value]
        case _:
            return type(value).__name__


@pytest.mark.parametrize(("version", "situation"), ROUNDS)
def test_alertmanager_when_it_sends_today_then_keys_types_path_and_headers_are_as_recorded(
    version: Version, situation: Situation, tmp_path: Path
) -> None:
    need_alertmanager(version)
    fresh = record(situation, version, tmp_path)
    golden = recorded(version, f"{situation.name}-")
    assert [one.body for one in fresh] == [one.name.removeprefix(f"{situation.name}-") for one in golden]
    for now, then in zip(fresh, golden, strict=True):
        assert shape(now.received.payload) == shape(then.payload)
        assert now.received.path == then.path
        assert set(now.received.headers) - {"Host", "Content-Length"} == set(then.headers)
        group = decode(now.received.body, now.received.at)
        assert said(group) == expected(EXPECTED["bodies"][then.name], group)


def test_shape_when_a_key_or_a_type_differs_then_differs() -> None:
    body = {"version": "4", "alerts": [{"labels": {"a": "b"}}], "truncatedAlerts": 0}
    for other in (
        body | {"version": 4},
        body | {"truncatedAlerts": "0"},
        body | {"alerts": [{"labels": {"a": None}}]},
        body | {"alerts": [{"labels": {}}]},
        body | {"more": ""},
    ):
        assert shape(other) != shape(body)
