"""``remediator actions``: what actions there are and the params they take, from the code.

Takes → gives: the registry → ``describe_action``'s maps, for the terminal, for scripts and for ``reference``.
"""

from __future__ import annotations

import inspect
from typing import Any

import click
from pydantic.json_schema import GenerateJsonSchema

from remediator.actions import REGISTRY
from remediator.cli.terminal import fold, json_option, print_fields, print_json, say
from remediator.core.action import Action
from remediator.core.units import print_duration


@click.command()
@click.argument("name", required=False)
@json_option
def actions(name: str | None, as_json: bool) -> None:
    """What actions there are; with NAME, everything about one and the params it takes."""
    if name is not None and name not in REGISTRY:
        raise click.UsageError(f"there is no action {name!r}; there are: {', '.join(REGISTRY)}")
    described = [describe_action(action) for action in ([REGISTRY[name]] if name else REGISTRY.values())]
    if as_json:
        print_json(described[0] if name else described)
    elif name:
        _print_action(described[0])
    else:
        for each in described:
            say(f"{each['name']:<16} {each['summary']}")


def _print_action(described: dict[str, Any]) -> None:
    say(described["name"], "bold")
    fold(described["summary"])
    for paragraph in described["notes"]:
        say()
        fold(paragraph)
    say()
    print_fields({"disruptive": described["disruptive"], "idempotent": described["idempotent"]})
    print_fields({"message": described["message"], "timeout": described["timeout"]})
    if described["undo"]:
        print_fields({"undo": described["undo"]})
    for param in described["params"]:
        say()
        say(f"{param['name']}  ({param['type']}, {needed(param)})", "bold")
        fold(param["description"], 2)


def needed(param: dict[str, Any]) -> str:
    """``required``, the default, or ``optional``."""
    if param["required"]:
        return "required"
    return f"default {param['default']}" if param["default"] else "optional"


def describe_action(action: Action[Any]) -> dict[str, Any]:
    """All that a user of an action must know.

    Returns:
        name, summary, notes (paragraphs), disruptive, idempotent, message, undo (when, "" for what cannot be taken
        back), timeout, and params: each with name, type,
        required, default (text, "" for none), late, description.
    """
    summary, notes = described_by(inspect.getdoc(type(action)) or "")
    return {
        "name": action.name,
        "summary": summary,
        "notes": notes,
        "disruptive": action.is_disruptive,
        "idempotent": action.is_idempotent,
        "message": action.is_message,
        "undo": action.default_undo.value if action.default_undo is not None else "",
        "timeout": print_duration(action.default_timeout),
        "params": _params(action),
    }


def described_by(docstring: str) -> tuple[str, list[str]]:
    """The first paragraph and the others, each on one line, without the double backquotes."""
    paragraphs = [" ".join(part.split()).replace("``", "`") for part in docstring.split("\n\n")]
    return paragraphs[0], paragraphs[1:]


def _params(action: Action[Any]) -> list[dict[str, Any]]:
    schema = action.params_model.model_json_schema(schema_generator=GenerateJsonSchema, mode="validation")
    required = set(schema.get("required", []))
    return [
        {
            "name": name,
            "type": type_text(field),
            "required": name in required and name not in action.param_defaults,
            "default": action.param_defaults.get(name) or _default_text(field),
            "late": name in action.late_params,
            "description": " ".join(str(field.get("description", "")).split()),
        }
        for name, field in schema.get("properties", {}).items()
    ]


def _default_text(field: dict[str, Any]) -> str:
    return "" if field.get("default") is None else str(field["default"])


def type_text(field: dict[str, Any]) -> str:
    """A JSON Schema's type as people say it."""
    if "enum" in field:
        return "one of " + ", ".join(map(str, field["enum"]))
    if "anyOf" in field:
        kinds = [type_text(kind) for kind in field["anyOf"] if kind.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if field.get("type") == "array":
        return f"list of {type_text(field.get('items', {}))}"
    if field.get("format") == "duration":
        return "duration"
    names = {
        "string": "text",
        "integer": "whole number",
        "number": "number",
        "boolean": "true or false",
        "object": "map",
    }
    return names.get(str(field.get("type")), "any value")
