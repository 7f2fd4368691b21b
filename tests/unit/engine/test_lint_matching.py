"""Whether matchers can hold together: what is proved is true, and what people write is proved."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remediator.core.matcher import Matcher, MatchOp, parse_matcher
from remediator.engine.lint.matching import by_label, can_hold, contradiction, follows, taken_before


def matchers(*lines: str) -> list[Matcher]:
    return [parse_matcher(line) for line in lines]


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(["a = x", "a = y"], id="two values"),
        pytest.param(['a = ""', 'a != ""'], id="absent and present"),
        pytest.param(['a = ""', 'a =~ ".+"'], id="absent and something"),
        pytest.param(['a != ""', 'a !~ ".+"'], id="present and not something"),
        pytest.param(["a = z", 'a =~ "x|y"'], id="a value that is not in the list"),
        pytest.param(['a =~ "x|y"', 'a =~ "z|w"'], id="two lists"),
        pytest.param(["a = x", "a != x"], id="a value and not it"),
        pytest.param(["a = x", 'a !~ "x|y"'], id="a value that is left out"),
        pytest.param(["a = x1", 'a =~ "y.*"'], id="a value that does not fit"),
        pytest.param(['a =~ "x.*"', 'a =~ "y.*"'], id="two beginnings"),
        pytest.param(['a =~ ".*-prod"', 'a =~ ".*-test"'], id="two ends"),
        pytest.param(['a =~ "x[0-9]+"', 'a !~ "x[0-9]+"'], id="a regex and not it"),
        pytest.param(['a =~ "gpu-0.*"', 'a !~ "gpu-.*"'], id="a beginning that is left out"),
        pytest.param(['a =~ "gpu.*-prod"', 'a !~ ".*-prod"'], id="an end that is left out"),
        pytest.param(['a !~ ".*"'], id="not anything"),
        pytest.param(['a =~ "x$y"'], id="text behind the end"),
        pytest.param(['a =~ "x^y"'], id="text before the beginning"),
        pytest.param(['a =~ "x|y"', "a != x", "a != y"], id="three that leave nothing"),
    ],
)
def test_can_hold_when_matchers_exclude_each_other_then_says_no(lines: list[str]) -> None:
    assert not can_hold(by_label(matchers(*lines)))


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(["a = x", "b = y"], id="two labels"),
        pytest.param(["a = x", "a = x"], id="the same twice"),
        pytest.param(["a = x", 'a =~ "x|y"'], id="a value of the list"),
        pytest.param(["a != x", "a != y"], id="two values that it is not"),
        pytest.param(['a =~ "x.*"', 'a =~ "xy.*"'], id="a longer beginning"),
        pytest.param(['a =~ "x.*"', 'a =~ ".*y"'], id="a beginning and an end"),
        pytest.param(['a =~ "x.*|z"', 'a =~ "y.*|z"'], id="beginnings with an alternative"),
        pytest.param(['a =~ "(?i)x.*"', 'a =~ "X.*"'], id="letters of either case"),
        pytest.param(['a =~ "x$|y"'], id="an end before an alternative"),
        pytest.param(['a =~ "^x$"'], id="anchors where they belong"),
        pytest.param(['a =~ "x[$]y"'], id="a dollar in brackets"),
        pytest.param(['a =~ "x\\\\$y"'], id="a dollar that is meant"),
        pytest.param(['a =~ "x$y*"'], id="something optional behind the end"),
        pytest.param(['a =~ "gpu.*"', 'a !~ "gpu-.*"'], id="more than is left out"),
        pytest.param(['a =~ "x\\\\d"', 'a =~ "x\\\\w"'], id="classes that end in other letters"),
        pytest.param(['a !~ "x.*"', 'a !~ "y.*"'], id="two that it is not"),
    ],
)
def test_can_hold_when_some_alert_fits_then_says_yes(lines: list[str]) -> None:
    assert can_hold(by_label(matchers(*lines)))


def test_contradiction_when_there_are_more_matchers_then_names_the_fewest() -> None:
    found = contradiction(matchers("a != q", 'a =~ "x|y"', "a = z"))
    assert [str(matcher) for matcher in found] == ['a=~"x|y"', 'a="z"']


VALUES = ["", "x", "y", "xy", "yx", "xx", "x-y", "xyx"]
PATTERNS = [
    "x",
    "x|y",
    ".*",
    ".+",
    "x.*",
    "xy.*",
    ".*x",
    ".*y",
    "x|",
    "x?",
    "[xy]+",
    "x.*|y",
    "x$",
    "^x",
    "x$y",
    "(x|y)y",
    "x{0}y",
]
MATCHER = st.one_of(
    st.builds(
        Matcher,
        label=st.sampled_from("ab"),
        op=st.sampled_from([MatchOp.EQUAL, MatchOp.NOT_EQUAL]),
        value=st.sampled_from(VALUES),
    ),
    st.builds(
        Matcher,
        label=st.sampled_from("ab"),
        op=st.sampled_from([MatchOp.REGEX, MatchOp.NOT_REGEX]),
        value=st.sampled_from(PATTERNS),
    ),
)


def holders(some: Sequence[Matcher]) -> list[dict[str, str]]:
    """The alerts of a small world for which all hold."""
    world = ({"a": a, "b": b} for a in VALUES for b in VALUES)
    return [labels for labels in world if all(matcher.matches(labels) for matcher in some)]


@given(st.lists(MATCHER, max_size=5))
def test_can_hold_when_it_says_no_then_no_alert_fits(some: list[Matcher]) -> None:
    assert can_hold(by_label(some)) or not holders(some)


@given(MATCHER, st.lists(MATCHER, max_size=4))
def test_follows_when_it_says_so_then_every_alert_that_fits_the_given_fits_it(
    one: Matcher, given_: list[Matcher]
) -> None:
    if follows(one, by_label(given_)):
        assert [labels for labels in holders(given_) if not one.matches(labels)] == []


@given(st.lists(MATCHER, max_size=3), st.lists(st.lists(MATCHER, max_size=2), max_size=4))
def test_taken_before_when_it_says_so_then_no_alert_is_left(given_: list[Matcher], cases: list[list[Matcher]]) -> None:
    if taken_before(by_label(given_), cases):
        left = [
            labels
            for labels in holders(given_)
            if not any(all(matcher.matches(labels) for matcher in case) for case in cases)
        ]
        assert left == []


@pytest.mark.parametrize(
    ("given_", "cases", "is_taken"),
    [
        pytest.param(["a = x"], [['a =~ "x|y"']], True, id="a value of a list"),
        pytest.param(["a = x"], [["a = y"]], False, id="another value"),
        pytest.param(['a =~ "x|y"'], [["a = x"], ["a = y"]], True, id="each value of a list"),
        pytest.param(['a =~ "x|y"'], [["a = x"], ["a = z"]], False, id="not each value of a list"),
        pytest.param(["b = x"], [['a = ""'], ['a != ""']], True, id="present or absent"),
        pytest.param(["b = x"], [['a = ""', "c = d"], ['a != ""']], False, id="present, or absent with more"),
        pytest.param(['a =~ "gpu-0.*"'], [['a =~ "gpu-.*"']], True, id="a longer beginning"),
        pytest.param(['a =~ "x.+"'], [['a != ""']], True, id="what is never empty"),
        pytest.param([], [["a = x"]], False, id="anything"),
        pytest.param([], [], False, id="no case before"),
    ],
)
def test_taken_before_when_cases_are_so_then_says(given_: list[str], cases: list[list[str]], is_taken: bool) -> None:
    earlier = [matchers(*case) for case in cases]
    assert taken_before(by_label(matchers(*given_)), earlier) is is_taken
