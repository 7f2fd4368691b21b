from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from remediator.core.matcher import Matcher, MatchOp, parse_matcher
from remediator.errors import MatcherSyntaxError

TABLE = YAML(typ="safe").load(Path(__file__).parents[2] / "data" / "matchers.yaml")


def rows(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in TABLE[name]])


@rows("parses")
def test_parse_matcher_when_alertmanager_takes_it_then_reads_the_same(row: dict[str, Any]) -> None:
    assert parse_matcher(row["text"]) == Matcher(label=row["label"], op=MatchOp(row["op"]), value=row["value"])


@rows("parses")
def test_matcher_when_printed_then_is_canonical(row: dict[str, Any]) -> None:
    assert str(parse_matcher(row["text"])) == row["printed"]


@rows("refuses")
def test_parse_matcher_when_it_is_none_then_says_what_to_write(row: dict[str, Any]) -> None:
    with pytest.raises(MatcherSyntaxError) as refusal:
        parse_matcher(row["text"].replace("{long}", "a" * 5000))
    assert row["says"] in str(refusal.value)
    assert len(str(refusal.value)) < 300


@rows("matches")
def test_matches_then_is_as_alertmanager(row: dict[str, Any]) -> None:
    assert parse_matcher(row["matcher"]).matches(row["labels"]) is row["holds"]


TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@settings(deadline=None)
@given(TEXT.filter(bool), st.sampled_from([MatchOp.EQUAL, MatchOp.NOT_EQUAL]), TEXT)
def test_parse_matcher_when_printed_then_gives_the_matcher_back(label: str, op: MatchOp, value: str) -> None:
    matcher = Matcher(label=label, op=op, value=value)
    printed = str(matcher)
    assert parse_matcher(printed) == matcher
    assert printed.isprintable()


@settings(deadline=None)
@given(st.text() | st.text(alphabet="ab1 =!~\"\\{},'.*+()|[]xu\n"))
def test_parse_matcher_when_given_any_text_then_raises_nothing_but_a_syntax_error(text: str) -> None:
    with suppress(MatcherSyntaxError):
        matcher = parse_matcher(text)
        assert parse_matcher(str(matcher)) == matcher


def test_parse_matcher_when_it_holds_half_a_surrogate_pair_then_refuses() -> None:
    with pytest.raises(MatcherSyntaxError, match="half of a surrogate pair"):
        parse_matcher("x =~ \udc80")


@pytest.mark.parametrize("op", [MatchOp.REGEX, MatchOp.NOT_REGEX])
def test_matcher_when_made_with_a_bad_regex_then_refuses_at_once(op: MatchOp) -> None:
    with pytest.raises(MatcherSyntaxError, match="not a regular expression"):
        Matcher(label="x", op=op, value="(")
