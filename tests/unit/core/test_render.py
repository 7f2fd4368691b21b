"""Templates and ``if`` expressions: what they give, what they refuse, and that no label can be more than text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import re2
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from remediator.core.render import MAX_TEXT, Context, Expression, ParamTemplate, TemplateKind, promql_quoted
from remediator.errors import MissingValueError, TemplateError

DATA = Path(__file__).parents[2] / "data"

CONTEXT: Context = {
    "labels": {
        "pod": "trainer-0",
        "err_code": "79",
        "padded": "0079",
        "host.name": "gpu-07",
        "items": "three",
        "empty": "",
        "instance": "gpu-07:9400",
        "template": "{{ labels.pod }}",
        "block": "{% for x in y %}",
        "markup": "<b>&\"'</b>",
    },
    "annotations": {"summary": "leak"},
    "alert": {"status": "firing", "fingerprint": "f", "starts_at": "2026-01-01T00:00:00Z", "generator_url": ""},
    "group": {"labels": {"alertname": "Leak"}, "receiver": "r", "external_url": ""},
    "subject": {"pod": "trainer-0", "host": "gpu-07"},
    "playbook": "p",
    "vars": {"racks": ["a", "b"], "seconds": 3661, "site": "fra1", "is_lab": True},
    "run": {"id": "1", "url": ""},
    "host": "gpu-07",
    "cluster": "c",
    "node": "",
    "steps": {"restart": {"outcome": "failed", "before": {"running": True, "pid": 7}}},
}


def rows(name: str) -> list[Any]:
    table = YAML(typ="safe", pure=True).load((DATA / name).read_text("utf-8"))
    return [pytest.param(row, id=row["id"]) for row in table]


@pytest.mark.parametrize("row", rows("templates.yaml"))
def test_template_when_written_so_then_gives_what_the_table_says(row: Mapping[str, str]) -> None:
    match row:
        case {"gives": gives}:
            assert ParamTemplate.parse(row["template"]).render(CONTEXT) == gives
        case {"missing": name}:
            template = ParamTemplate.parse(row["template"])
            with pytest.raises(MissingValueError) as missing:
                template.render(CONTEXT)
            assert missing.value.name == name
        case {"fails": part}:
            template = ParamTemplate.parse(row["template"])
            with pytest.raises(TemplateError) as failed:
                template.render(CONTEXT)
            assert part in failed.value.message
        case _:
            with pytest.raises(TemplateError) as refused:
                ParamTemplate.parse(row["template"])
            assert row["refused"] in refused.value.message


@pytest.mark.parametrize("row", rows("expressions.yaml"))
def test_expression_when_written_so_then_holds_as_the_table_says(row: Mapping[str, Any]) -> None:
    match row:
        case {"holds": bool() as holds}:
            assert Expression.parse(row["expression"]).holds(CONTEXT) is holds
        case {"fails": part}:
            expression = Expression.parse(row["expression"])
            with pytest.raises(TemplateError) as failed:
                expression.holds(CONTEXT)
            assert part in failed.value.message
        case _:
            with pytest.raises(TemplateError) as refused:
                Expression.parse(row["expression"])
            assert row["refused"] in refused.value.message


def test_param_template_when_a_tree_then_every_text_in_it_is_rendered_and_nothing_else() -> None:
    template = ParamTemplate.parse({"to": ["{{ labels.pod }}", "b"], "n": 3, "is_on": True})
    assert template.render(CONTEXT) == {"to": ["trainer-0", "b"], "n": 3, "is_on": True}
    assert template.names == {"labels.pod"}


def test_param_template_when_a_key_holds_a_template_then_it_is_refused() -> None:
    with pytest.raises(TemplateError, match="a key cannot hold a template"):
        ParamTemplate.parse({"{{ labels.pod }}": "a"})


@pytest.mark.parametrize(
    ("text", "names", "is_late"),
    [
        ("plain", set(), False),
        ('{{ labels.pod }}{{ labels["a.b"] | default(vars.x) }}', {"labels.pod", 'labels["a.b"]', "vars.x"}, False),
        ("{{ run.id }}{{ run.url }}", {"run.id", "run.url"}, False),
        ("{{ run.outcome }}", {"run.outcome"}, True),
        ("{{ run.reason }}", {"run.reason"}, True),
        ("{{ run.summary }}", {"run.summary"}, True),
        ("{{ alerts }}", {"alerts"}, True),
        ("{{ steps.a.after.id }}", {"steps.a.after.id"}, True),
    ],
)
def test_param_template_when_parsed_then_says_what_it_reads(text: str, names: set[str], is_late: bool) -> None:
    template = ParamTemplate.parse(text)
    assert (template.names, template.is_late, template.is_literal) == (names, is_late, text == "plain")


def test_expression_when_it_reads_a_late_value_then_it_is_late() -> None:
    assert Expression.parse('steps.a.outcome == "failed"').is_late
    assert not Expression.parse('labels.a == "failed"').is_late


# -- queries -----------------------------------------------------------------------------------------------------------


def test_query_when_a_label_would_end_its_quotes_then_it_stays_inside() -> None:
    template = ParamTemplate.parse('up{a="{{ labels.x }}"}', kind=TemplateKind.QUERY)
    assert template.render({"labels": {"x": '"} or vector(1) #\n\\'}}) == 'up{a="\\u0022} or vector(1) #\\u000a\\\\"}'


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ('up{a=~"{{ labels.x }}"}', r'up{a=~"\\.\\*\\(b\\|c\\)"}'),
        ("up{a !~ 'x-{{ labels.x }}'}", r"up{a !~ 'x-\\.\\*\\(b\\|c\\)'}"),
        ('up{a=~"{{ labels.nope | default(labels.x) }}"}', r'up{a=~"\\.\\*\\(b\\|c\\)"}'),
        ('up{a=~"{{ vars.sites }}",b="{{ labels.x }}"}', 'up{a=~"eu-.*",b=".*(b|c)"}'),
        ('up{a=~"{{ vars.sites ~ labels.x }}"}', r'up{a=~"eu-\\.\\*\\.\\*\\(b\\|c\\)"}'),
        ('up{a=~".*",b="{{ labels.x }}"}', 'up{a=~".*",b=".*(b|c)"}'),
    ],
)
def test_query_when_a_label_stands_in_a_regular_expression_then_it_means_itself_alone(
    query: str, expected: str
) -> None:
    template = ParamTemplate.parse(query, kind=TemplateKind.QUERY)
    context = {"labels": {"x": ".*(b|c)"}, "vars": {"sites": "eu-.*"}}
    assert template.render(context) == expected


@given(st.text(min_size=1), st.text())
@settings(deadline=None)
def test_query_when_any_label_stands_in_a_regular_expression_then_it_fits_itself_alone(text: str, other: str) -> None:
    template = ParamTemplate.parse('up{a=~"{{ labels.x }}"}', kind=TemplateKind.QUERY)
    rendered = str(template.render({"labels": {"x": text}}))
    inside = rendered.removeprefix('up{a=~"').removesuffix('"}')
    pattern = re2.compile(f"(?s)^(?:{unquoted(inside)})$")
    assert pattern.match(text)
    assert bool(pattern.match(other)) is (text == other)


def unquoted(inside: str) -> str:
    """What Prometheus reads between the quotes."""
    return re.sub(
        r"\\(\\|u[0-9a-f]{4})", lambda found: "\\" if found[1] == "\\" else chr(int(found[1][1:], 16)), inside
    )


@pytest.mark.parametrize(
    "query",
    [
        "up{a={{ labels.x }}}",
        "{{ labels.x }}",
        "up{a=`{{ labels.x }}`}",
        'up{a="b"} + {{ labels.x }}',
        'up{a="\\"} + {{ labels.x }}"} + {{ labels.x }}',
        'up # "\n + {{ labels.x }}',
        'up # {{ labels.n | int }} "\n + {{ labels.x }}',
        "up # {{ labels.n | int }}",
        'up{a="\\{{ labels.x }}", b="{{ labels.x }}"}',
        'up{a="\\{{ labels.n | int }}"}',
        'up{a="\n{{ labels.x }}"}',
    ],
)
def test_query_when_a_label_stands_outside_quotes_then_it_is_refused(query: str) -> None:
    with pytest.raises(TemplateError, match="in a query, "):
        ParamTemplate.parse(query, kind=TemplateKind.QUERY)


def test_query_when_a_number_stands_outside_quotes_then_it_is_put_in() -> None:
    template = ParamTemplate.parse("up > {{ labels.err_code | int }}", kind=TemplateKind.QUERY)
    assert template.render(CONTEXT) == "up > 79"


@given(st.text())
@settings(deadline=None)
def test_promql_quoted_when_any_text_then_no_quote_is_left_and_the_text_can_be_read_back(text: str) -> None:
    quoted = promql_quoted(text)
    assert not set(quoted) & set("\"'`\n\r\x00\ufffd")
    assert read_go_string(quoted) == text


def read_go_string(body: str) -> str:
    """The text that a Go string literal's body means, for the two escapes that are written."""
    out, rest = "", body
    while rest:
        if rest.startswith("\\\\"):
            out, rest = out + "\\", rest[2:]
        elif rest.startswith("\\u"):
            out, rest = out + chr(int(rest[2:6], 16)), rest[6:]
        else:
            out, rest = out + rest[0], rest[1:]
    return out


# -- limits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
        "{{ " + "not " * 500 + "true }}",
        "{{ vars" + ".a" * 5000 + " }}",
        "{{ labels.pod" + " | lower" * 500 + " }}",
        "{{ " + "9" * 5000 + " }}",
        "{{ '" + "a" * MAX_TEXT + "' }}",
    ],
    ids=["parentheses", "nots", "parts", "filters", "digits", "length"],
)
def test_template_when_it_is_a_bomb_then_it_is_refused(text: str) -> None:
    with pytest.raises(TemplateError):
        ParamTemplate.parse(text)


def test_template_when_replaces_grow_without_bound_then_it_fails_before_it_is_large() -> None:
    template = ParamTemplate.parse("{{ labels.pod" + " | replace('a', 'aaaaaaaaaa')" * 50 + " }}")
    with pytest.raises(TemplateError, match="longer than"):
        template.render(CONTEXT)


def test_template_when_a_label_is_huge_then_it_fails() -> None:
    with pytest.raises(TemplateError, match=r"labels\.x is longer than"):
        ParamTemplate.parse("{{ labels.x }}").render({"labels": {"x": "a" * (MAX_TEXT + 1)}})


def test_template_when_its_output_is_too_long_then_it_fails() -> None:
    with pytest.raises(TemplateError, match="longer than"):
        ParamTemplate.parse("{{ labels.x }}{{ labels.x }}").render({"labels": {"x": "a" * (MAX_TEXT - 1)}})


# -- hostile values ----------------------------------------------------------------------------------------------------

HOSTILE = st.one_of(
    st.text(min_size=1, max_size=200),
    st.sampled_from(["{{ labels.pod }}", "{% include 'x' %}", "{# #}", "${x}", "`id`", "\x00\x1b[31m", "__class__"]),
)


@given(HOSTILE)
@settings(deadline=None)
def test_template_when_a_label_holds_anything_then_it_comes_out_as_it_was(value: str) -> None:
    context: Context = {"labels": {"x": value}}
    assert ParamTemplate.parse("{{ labels.x }}").render(context) == value
    assert ParamTemplate.parse("<{{ labels.x ~ labels.x }}>").render(context) == f"<{value}{value}>"


@given(HOSTILE)
@settings(deadline=None)
def test_expression_when_a_label_holds_anything_then_it_is_only_compared(value: str) -> None:
    assert Expression.parse("labels.x == labels.y").holds({"labels": {"x": value, "y": value}})
    assert not Expression.parse("labels.x != labels.y").holds({"labels": {"x": value, "y": value}})


PIECES = st.sampled_from(
    [
        *(
            "{{ ",
            " }}",
            "labels",
            ".",
            "pod",
            '["a"]',
            " | ",
            "default",
            '("x")',
            "int",
            "~",
            "==",
            " and ",
            "not ",
            "(",
        ),
        *(")", "vars", "run", "steps", "1", "'", '"', "\\", "{%", "x", " in ", "[", "]", ",", "-", "*", "\n", "join"),
    ]
)


@given(st.lists(PIECES, max_size=20).map("".join), st.dictionaries(st.text(max_size=5), HOSTILE, max_size=3))
@settings(deadline=None)
def test_template_when_anything_is_written_then_only_our_errors_come(text: str, labels: dict[str, str]) -> None:
    for kind in TemplateKind:
        assert_text_or_our_error(lambda kind=kind: ParamTemplate.parse(text, kind=kind).render({"labels": labels}))
    assert_text_or_our_error(lambda: Expression.parse(text).holds({"labels": labels}))


@given(st.text())
@settings(deadline=None)
def test_template_when_any_text_is_between_braces_then_only_our_errors_come(text: str) -> None:
    assert_text_or_our_error(lambda: ParamTemplate.parse("{{" + text + "}}").render(CONTEXT))
    assert_text_or_our_error(lambda: Expression.parse(text).holds(CONTEXT))


def assert_text_or_our_error(call: Any) -> None:
    try:
        result = call()
    except (MissingValueError, TemplateError):
        return
    assert isinstance(result, str | bool)
