"""Which scenarios ``-k`` picks."""

from __future__ import annotations

import pytest

from remediator.cli.scenario_filter import parse_filter

NAME = "playbooks/leak.test.yaml waits for the checkpoint and restarts once (twice is too often)"


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        pytest.param("waits", True, id="a word"),
        pytest.param("WAITS", True, id="case does not matter"),
        pytest.param("waits for the checkpoint", True, id="words side by side are one text"),
        pytest.param("checkpoint waits", False, id="… in their order"),
        pytest.param("leak.test", True, id="the file counts"),
        pytest.param("waits and leak", True, id="both"),
        pytest.param("waits and drain", False, id="not both"),
        pytest.param("drain or leak", True, id="either"),
        pytest.param("not drain", True, id="not"),
        pytest.param("not leak", False, id="not this one"),
        pytest.param("not leak or waits", True, id="not binds closest"),
        pytest.param("drain or leak and hot", False, id="and binds closer than or"),
        pytest.param("(drain or leak) and not (hot or cold)", True, id="brackets"),
        pytest.param('"checkpoint and restarts"', True, id="a word of the language in quotes is text"),
        pytest.param('"(twice"', True, id="a bracket in quotes is text"),
        pytest.param("not not leak", True, id="twice not"),
        pytest.param('""', True, id="nothing is in everything"),
    ],
)
def test_filter_when_held_against_a_scenario_then_fits_or_not(text: str, fits: bool) -> None:
    assert parse_filter(text)(NAME) is fits


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("", "a text is missing at its end", id="empty"),
        pytest.param("   ", "a text is missing at its end", id="blanks"),
        pytest.param("leak and", "a text is missing at its end", id="nothing behind and"),
        pytest.param("and leak", "a text is missing before 'and'", id="nothing before and"),
        pytest.param("not", "a text is missing at its end", id="not alone"),
        pytest.param("(leak", "a bracket is not closed", id="an open bracket"),
        pytest.param("leak)", "')' is one too many", id="a bracket too many"),
        pytest.param('"leak', "a quote is not closed", id="an open quote"),
        pytest.param('leak "hot"', "'hot' is one too many", id="a text behind a text"),
        pytest.param("not " * 5000 + "leak", "more than 200 texts, words and signs", id="nested for ever"),
    ],
)
def test_filter_when_it_is_none_then_says_where_it_breaks_off(text: str, why: str) -> None:
    with pytest.raises(ValueError) as told:
        parse_filter(text)
    assert str(told.value) == why
