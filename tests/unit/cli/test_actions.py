"""``actions``: a reference from the code."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from remediator.actions import REGISTRY
from remediator.cli import cli
from remediator.cli.actions import describe_action, described_by, type_text


def test_actions_when_listed_then_has_every_action_on_one_line() -> None:
    lines = CliRunner().invoke(cli, ["actions"]).stdout.splitlines()

    assert [line.split()[0] for line in lines] == list(REGISTRY)


def test_actions_when_listed_as_json_then_has_every_action() -> None:
    described = json.loads(CliRunner().invoke(cli, ["actions", "--json"]).stdout)

    assert [each["name"] for each in described] == list(REGISTRY)


@pytest.mark.parametrize("name", REGISTRY)
def test_action_when_shown_then_names_every_param_with_its_meaning(name: str) -> None:
    result = CliRunner().invoke(cli, ["actions", name])

    described = describe_action(REGISTRY[name])
    assert result.exit_code == 0
    assert described["summary"]
    assert [param["name"] for param in described["params"]] == list(REGISTRY[name].params_model.model_fields)
    for param in described["params"]:
        assert param["description"], param["name"]
        assert f"\n{param['name']}  (" in result.stdout


def test_params_when_the_engine_fills_one_in_then_it_is_not_required() -> None:
    params = {param["name"]: param for param in describe_action(REGISTRY["docker.restart"])["params"]}

    assert (params["container"]["required"], params["host"]["required"]) == (True, False)
    assert params["host"]["default"] == "{{ host }}"


def test_described_by_when_given_paragraphs_then_puts_each_on_one_line() -> None:
    assert described_by("One\nline.\n\nA ``word``,\n  and more.") == ("One line.", ["A `word`, and more."])


@pytest.mark.parametrize(
    ("field", "text"),
    [
        pytest.param({"type": "string"}, "text", id="text"),
        pytest.param({"type": "integer"}, "whole number", id="a number"),
        pytest.param({"enum": ["a", "b"]}, "one of a, b", id="a closed set"),
        pytest.param({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "whole number", id="may be left out"),
        pytest.param({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "whole number or text", id="one of two"),
        pytest.param({"type": "array", "items": {"type": "string"}}, "list of text", id="a list"),
        pytest.param({"type": "string", "format": "duration"}, "duration", id="a duration"),
        pytest.param({}, "any value", id="anything"),
    ],
)
def test_type_text_when_given_a_schema_then_says_it_as_people_do(field: dict[str, Any], text: str) -> None:
    assert type_text(field) == text
