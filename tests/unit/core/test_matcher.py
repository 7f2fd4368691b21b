from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import re2
from hypothesis import given, reject, settings
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


PIECES = st.lists(
    st.sampled_from(["a", "b", "1", "(?i)", "(?s)", "(?:", "\\Q", "\\E", *".*+?{}()|\n", "{0,1}"]), max_size=6
)


@settings(deadline=None, max_examples=500)
@given(
    st.text(alphabet="ab1é,-=.*+?{}()[]|^$\\\n") | PIECES.map("".join),
    st.lists(st.text(alphabet="ab1é,-={}\n", max_size=4), min_size=1),
)
def test_matches_when_a_regex_is_read_without_re2_then_says_what_re2_says(pattern: str, values: list[str]) -> None:
    options = re2.Options()
    options.log_errors = False
    try:
        regex = re2.compile(pattern, options)
    except re2.error:
        reject()
    values += [*pattern.split("|"), re.sub(r"\W", "", pattern)]
    positive, negative = (Matcher(label="x", op=op, value=pattern) for op in (MatchOp.REGEX, MatchOp.NOT_REGEX))
    for value in values:
        holds = regex.fullmatch(value) is not None
        assert positive.matches({"x": value}) is holds
        assert negative.matches({"x": value}) is not holds
        if holds:
            assert positive.shape.values is None or value in positive.shape.values
            assert value.startswith(positive.shape.prefix)
    assert (negative.shape.values, negative.shape.prefix) == (None, "")


@rows("shapes")
def test_matcher_then_knows_what_its_values_look_like(row: dict[str, Any]) -> None:
    shape = parse_matcher(row["matcher"]).shape
    assert (shape.values and sorted(shape.values), shape.prefix) == (row.get("values"), row.get("prefix", ""))


@pytest.mark.parametrize("op", [MatchOp.REGEX, MatchOp.NOT_REGEX])
def test_matcher_when_made_with_a_bad_regex_then_refuses_at_once(op: MatchOp) -> None:
    with pytest.raises(MatcherSyntaxError, match="not a regular expression"):
        Matcher(label="x", op=op, value="(")
