from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from remediator.core.units import cut, parse_address, parse_duration, parse_percent, print_duration, strip_port

TABLE = YAML(typ="safe").load(Path(__file__).parents[2] / "data" / "durations.yaml")
MS = timedelta(milliseconds=1)


def rows(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in TABLE[name]])


def text_of(row: dict[str, Any]) -> str:
    return str(row["text"]).replace("{zeros}", "0" * 5000).replace("{nines}", "9" * 5000)


@rows("reads")
def test_parse_duration_when_prometheus_takes_it_then_reads_the_same(row: dict[str, Any]) -> None:
    assert parse_duration(text_of(row)) == row["ms"] * MS


@rows("reads")
def test_print_duration_then_prints_as_prometheus(row: dict[str, Any]) -> None:
    assert print_duration(row["ms"] * MS) == row["printed"]


@rows("refuses")
def test_parse_duration_when_it_is_none_then_says_what_to_write(row: dict[str, Any]) -> None:
    with pytest.raises(ValueError) as refusal:
        parse_duration(text_of(row))
    assert row["says"] in str(refusal.value)
    assert len(str(refusal.value)) < 250


@given(st.integers(0, 292 * 365 * 86_400_000))
def test_parse_duration_when_printed_then_gives_the_duration_back(n_ms: int) -> None:
    assert parse_duration(print_duration(n_ms * MS)) == n_ms * MS


@given(st.text() | st.text(alphabet="0123456789.:-, ywdhms"))
def test_parse_duration_when_given_any_text_then_raises_nothing_but_value_error(text: str) -> None:
    with suppress(ValueError):
        assert parse_duration(text) >= timedelta(0)


def test_print_duration_when_shorter_than_a_millisecond_then_drops_it() -> None:
    assert print_duration(timedelta(seconds=2, microseconds=999)) == "2s"
    assert print_duration(timedelta(microseconds=999)) == "0s"


def test_print_duration_when_a_clock_stepped_back_then_bears_a_minus() -> None:
    assert print_duration(timedelta(seconds=-90)) == "-1m30s"


@rows("percents")
def test_parse_percent_when_whole_then_reads_it(row: dict[str, Any]) -> None:
    assert parse_percent(row["text"]) == row["gives"]


@rows("not_percents")
def test_parse_percent_when_it_is_none_then_says_what_to_write(row: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="write a whole number from 0% to 100%, as in 20%"):
        parse_percent(row["text"])


@pytest.mark.parametrize(
    ("text", "limit", "shown"), [("trainer", 7, "trainer"), ("trainer-0", 7, "traine…"), ("", 1, ""), ("ab", 1, "…")]
)
def test_cut_when_too_long_then_ends_with_an_ellipsis_inside_the_limit(text: str, limit: int, shown: str) -> None:
    assert cut(text, limit) == shown


@pytest.mark.parametrize(
    ("text", "gives"),
    [
        ("127.0.0.1:9096", ("127.0.0.1", 9096)),
        ("[::1]:9096", ("::1", 9096)),
        (":9096", ("", 9096)),
        ("gpu-07:0", ("gpu-07", 0)),
    ],
)
def test_parse_address_when_it_is_one_then_gives_host_and_port(text: str, gives: tuple[str, int]) -> None:
    assert parse_address(text) == gives


@pytest.mark.parametrize("text", ["9096", "", "::1:9096", "host:", "host:65536", "a b:1"])
def test_parse_address_when_it_is_none_then_says_what_to_write(text: str) -> None:
    with pytest.raises(ValueError, match="must be ADDRESS:PORT, as in "):
        parse_address(text)


@rows("hosts")
def test_strip_port_then_leaves_the_host(row: dict[str, Any]) -> None:
    assert strip_port(row["text"]) == row["host"]
