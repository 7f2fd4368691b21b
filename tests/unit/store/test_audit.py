import hashlib
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remediator.core.event import Event, EventType
from remediator.store.audit import canonical_body, chain_hash, export_line, verify

AT = datetime(2026, 1, 31, 14, 0, 0, 1500, tzinfo=UTC)
GENESIS = hashlib.sha256(b"a log").hexdigest()

json_values = st.recursive(
    st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=3)
    ),
    max_leaves=8,
)


def _event(**fields: Any) -> Event:
    return Event(type=EventType.ATTEMPT_FINISHED, at=AT, **fields)


def _export(events: list[Event]) -> list[bytes]:
    lines, previous = [], GENESIS
    for seq, event in enumerate(events, start=1):
        body = canonical_body(seq, previous, event)
        previous = chain_hash(previous, body)
        lines.append(export_line({"body": body.decode(), "hash": previous}))
    return lines


def test_canonical_body_is_these_bytes() -> None:
    event = _event(
        actor="mia",
        run_id="r1",
        n=3,
        delivery_id=7,
        episode_id="e",
        subject_id="s",
        playbook="p",
        target="docker:a/b",
        outcome="succeeded",
        fingerprint="0a",
        data={"z": [1, True, "€\x1b\n"], "a": {"\U0001f600": 1, "\ufb33": 2}},
    )

    # RFC 8785 sorts keys by UTF-16 units: the surrogates of U+1F600 come before U+FB33.
    assert canonical_body(9, "ab", event).decode() == (
        '{"actor":"mia","at":"2026-01-31T14:00:00.001500Z","data":{"a":{"\U0001f600":1,"\ufb33":2},'
        '"z":[1,true,"€\\u001b\\n"]},"delivery_id":7,"episode_id":"e","fingerprint":"0a","n":3,"outcome":"succeeded",'
        '"playbook":"p","prev_hash":"ab","run_id":"r1","seq":9,"subject_id":"s","target":"docker:a/b",'
        '"type":"attempt_finished"}'
    )


def test_chain_hash_is_this_hash() -> None:
    assert chain_hash("00ff", b"{}") == hashlib.sha256(b"remediator-audit-v1\n00ff\n{}").hexdigest()


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(1.5, id="a float"),
        pytest.param(float("nan"), id="not a number"),
        pytest.param(None, id="None"),
        pytest.param(2**53, id="an int that JSON readers round"),
        pytest.param("\ud800", id="half a surrogate pair"),
        pytest.param(b"x", id="bytes"),
        pytest.param({1: "x"}, id="a key that is no text"),
        pytest.param([{"a": 0.5}], id="a float deep inside"),
    ],
)
def test_canonical_body_when_a_value_has_no_canonical_form_then_refuses_it(value: Any) -> None:
    with pytest.raises(ValueError):
        canonical_body(1, GENESIS, _event(data={"x": value}))


def test_canonical_body_when_the_time_is_naive_then_refuses_it() -> None:
    naive = Event(type=EventType.PAUSED, at=datetime(2026, 1, 1))  # noqa: DTZ001
    with pytest.raises(ValueError, match="aware"):
        canonical_body(1, GENESIS, naive)


class _Map(Mapping[str, int]):
    def __getitem__(self, key: str) -> int:
        return {"b": 1}[key]

    def __iter__(self) -> Iterator[str]:
        return iter(["b"])

    def __len__(self) -> int:
        return 1


def test_canonical_body_takes_any_mapping_and_tuple() -> None:
    own = canonical_body(1, GENESIS, _event(data={"m": _Map(), "t": ("x",)}))

    assert own == canonical_body(1, GENESIS, _event(data={"m": {"b": 1}, "t": ["x"]}))


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), json_values, max_size=4))
def test_canonical_body_gives_back_what_it_was_given(data: dict[str, Any]) -> None:
    assert json.loads(canonical_body(1, GENESIS, _event(data=data)))["data"] == data


def test_verify_when_the_export_is_whole_then_gives_its_head() -> None:
    lines = _export([_event(n=n) for n in range(1, 6)])
    digest = json.loads(lines[-1])["hash"]

    found = verify(lines, (5, digest))

    assert (found.ok, found.n_events, found.head_seq, found.head_hash) == (True, 5, 5, digest)


def test_verify_when_a_tool_wrote_the_lines_anew_then_the_content_counts() -> None:
    lines = [json.dumps(json.loads(line), indent=1).replace("\n", "").encode() for line in _export([_event(n=1)])]

    assert verify(lines).ok


def test_verify_when_any_bit_of_an_export_is_flipped_then_finds_it() -> None:
    lines = _export([_event(n=n, target="é", data={"x": "\x1b\t", "y": [True]}) for n in (1, 2, 3)])
    whole = b"".join(lines)
    missed = []
    for place in range(len(whole)):
        for bit in range(8):
            flipped = bytearray(whole)
            flipped[place] ^= 1 << bit
            if verify(bytes(flipped).splitlines(keepends=True), None).ok:
                missed.append((place, bit))

    # The very last byte is the newline at the end, which holds nothing.
    assert [found for found in missed if found[0] < len(whole) - 1] == []


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\n", id="a blank line"),
        pytest.param(b"[]\n", id="not an object"),
        pytest.param(b'{"body":"{}","hash":"x"}\n', id="a body without seq"),
        pytest.param(b'{"body":{"seq":1},"hash":"x"}\n', id="a body that is not text"),
        pytest.param(b'{"body":"[1]","hash":"x"}\n', id="a body that is a list"),
        pytest.param(b'{"body":"{\\"seq\\":\\"1\\"}","hash":"x"}\n', id="a seq that is text"),
        pytest.param(b'{"body":"{\\"seq\\":1}","hash":"x","more":1}\n', id="a key too many"),
        pytest.param(b'{"body":"{\\"seq\\":1}"}\n', id="no hash"),
        pytest.param(b'{"body":"{\\"seq\\":1}","hash":"x","hash":"y"}\n', id="a key twice"),
        pytest.param(b"\xff\n", id="not UTF-8"),
        pytest.param(b'{"body":"\\ud800","hash":"x"}\n', id="half a surrogate pair"),
        pytest.param(b"[" * 100_000, id="nested without end"),
    ],
)
def test_verify_when_a_line_is_no_event_then_names_its_place(line: bytes) -> None:
    lines = _export([_event(n=1)])

    found = verify([*lines, line])

    assert (found.ok, found.n_events, found.first_bad_seq) == (False, 1, 2)
