"""JSON Schema of what people write, for their editors and for checks where no engine is.

Takes the formats' models, the settings' and the actions; gives one schema (2020-12) for each kind of file. Must never:
refuse what the loader takes. What hangs on the site or on other places of the file it does not see, and
``remediator check`` does.

Only what editors know from draft 7 on is used, and beside a ``$ref`` stand words alone. ``patternErrorMessage`` and
``enumDescriptions`` are for YAML's language server; validators pass over them.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from remediator.core.action import ALL_LABELS, LookingAction, LookingActions, UndoWhen
from remediator.core.units import print_duration
from remediator.loading.format import PlaybookKeys, PolicyKeys
from remediator.loading.scenario_format import EXPECTED, SETTINGS_THAT_ACT, VERBS, TestKeys
from remediator.loading.thresholds import ThresholdsKeys
from remediator.settings import Settings

Schema = dict[str, Any]


class SchemaKind(StrEnum):
    """What a file is; of a YAML file, each of its documents."""

    PLAYBOOK = "playbook"
    POLICY = "policy"
    TEST = "test"
    THRESHOLDS = "thresholds"
    SETTINGS = "settings"


def json_schema(kind: SchemaKind, actions: LookingActions) -> Schema:
    """The JSON Schema of one kind of file.

    Args:
        actions: by name; what steps may do, and with which params.
    """
    match kind:
        case SchemaKind.PLAYBOOK:
            schema = _schema_of(PlaybookKeys, _Schema)
            _add_actions(schema, actions)
        case SchemaKind.POLICY:
            schema = _schema_of(PolicyKeys, _Schema)
        case SchemaKind.TEST:
            schema = _schema_of(TestKeys, _Schema)
            _add_verbs(schema, actions)
            _add_settings(schema)
        case SchemaKind.THRESHOLDS:
            schema = _schema_of(ThresholdsKeys, _Schema)
        case SchemaKind.SETTINGS:
            schema = _settings()
    head = {"$schema": GenerateJsonSchema.schema_dialect, "$id": f"urn:remediator:schema:{kind}"}
    return {**head, **schema, "title": f"remediator {kind}"}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _where(key: str, then: Schema) -> Schema:
    return {"if": {"required": [key]}, "then": then}


def _schema_of(model: type[BaseModel], generator: type[GenerateJsonSchema], ref: str = "#/$defs/{model}") -> Schema:
    schema = model.model_json_schema(by_alias=True, schema_generator=generator, ref_template=ref)
    for table in schema.get("$defs", {}).values():
        table.pop("title", None)  # the name of our class
    return schema


class _Schema(GenerateJsonSchema):
    """Without null, which no key takes, and without titles, which say each key's name again."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        shown = super().default_schema(schema)
        default = shown.pop("default", None)
        # "Nothing" needs no words, and of a table each key has its own.
        return shown if default in (None, "", []) or isinstance(default, dict) else {**shown, "default": default}

    def encode_default(self, dft: Any) -> Any:
        return print_duration(dft) if isinstance(dft, timedelta) else super().encode_default(dft)

    def field_title_should_be_set(self, schema: object) -> bool:
        del schema
        return False


# --- a step's action ----------------------------------------------------------------------------------------------

# A text with {{ }}, or a list or map in which there is one: what is looked at when there is an alert.
_TEMPLATE: Schema = {
    "anyOf": [
        {"type": "string", "pattern": r"^(?![\s\S]*\{[%#])[\s\S]*\{\{"},
        {"type": "array", "contains": _ref("template")},
        {"type": "object", "not": {"additionalProperties": {"not": _ref("template")}}},
    ],
}


def _add_actions(schema: Schema, actions: LookingActions) -> None:
    """Say which actions there are, and what a step may hold that has one of them."""
    defs = schema["$defs"]
    defs["template"] = _TEMPLATE
    defs |= {action.name: _params_of(action) for action in actions.values()}
    step = defs["StepKeys"]
    step["properties"]["action"] |= _names_of([*actions.values()])
    step["allOf"] = [
        {
            "if": {"properties": {"action": {"const": action.name}}, "required": ["action"]},
            "then": _step_of(action, bool(defs[action.name]["required"])),
        }
        for action in actions.values()
    ]
    messages = {"properties": {"action": {"enum": [action.name for action in actions.values() if action.is_message]}}}
    lent = [action.name for action in actions.values() if action.default_undo is UndoWhen.RESOLVED]
    to_undo = {
        "properties": {"undo": {"properties": {"when": {"const": "resolved"}}, "required": ["when"]}},
        "required": ["undo"],
    }
    schema["else"]["allOf"] += [
        _where("approval", {"properties": {"steps": {"contains": {"not": messages}}}}),
        _where(
            "undo",
            {"properties": {"steps": {"contains": {"anyOf": [{"properties": {"action": {"enum": lent}}}, to_undo]}}}},
        ),
        _where("ladder", {"anyOf": [{"required": ["verify"]}, {"properties": {"steps": {"items": messages}}}]}),
    ]
    harmless = [action.name for action in actions.values() if not action.is_disruptive]
    defs["resolved"] = {
        "allOf": [
            _ref("StepKeys"),
            {
                "properties": {
                    "action": {"enum": harmless},
                    **dict.fromkeys(("rung", "verify", "undo", "approval"), False),
                }
            },
        ]
    }
    for table in (schema, defs["NamedCaseKeys"]):
        table["properties"]["resolved"]["items"] = _ref("resolved")
    for key in defs["NamedCaseKeys"]["properties"].values():
        key.pop("default", None)  # of a case, it is what the playbook says


def _summary(action: LookingAction[Any]) -> str:
    return " ".join((inspect.getdoc(type(action)) or "").partition("\n\n")[0].replace("``", "`").split())


def _step_of(action: LookingAction[Any], needs_params: bool) -> Schema:
    never = [
        *(("verify", "approval") if action.is_message else ()),
        *(("undo",) if action.default_undo is None else ()),
    ]
    # What stays by default is taken back where its step says so, and then its other keys mean something.
    stays = action.default_undo is UndoWhen.NEVER
    return {
        "properties": {
            "params": _ref(action.name),
            **dict.fromkeys(never, False),
            **({"undo": {"if": {"minProperties": 1}, "then": {"required": ["when"]}}} if stays else {}),
        },
        **({"required": ["params"]} if needs_params else {}),
    }


def _params_of(action: LookingAction[Any]) -> Schema:
    """The params of an action, any of which may hold a template."""
    schema = _schema_of(action.params_model, _Schema, f"#/$defs/{action.name}/$defs/{{model}}")
    for name, param in schema.get("properties", {}).items():
        words = {key: param.pop(key) for key in ("description", "examples", "default") if key in param}
        default = action.param_defaults.get(name, ALL_LABELS)
        if default != ALL_LABELS:
            words["default"] = default
        written = _as_written(param)
        # Who is told hangs on no label.
        is_literal = action.is_message and name == "to"
        schema["properties"][name] = words | (
            {**written, "not": _ref("template")} if is_literal else {"anyOf": [written, _ref("template")]}
        )
    required = [name for name in schema.get("required", ()) if name not in action.param_defaults]
    return {**schema, "description": _summary(action), "title": action.name, "required": required}


def _as_written(schema: Schema) -> Schema:
    """What may stand in a file for a value of a param.

    A number with a point is handed on as the text that it was written as; and a number or truth value may be text, as
    it is where a template gives it.
    """
    schema = {key: _as_written(part) if key in _PARTS and part is not True else part for key, part in schema.items()}
    match schema.get("type"):
        case "string":
            return {"anyOf": [{**schema, "not": {"pattern": _BLOCKS}}, _FRACTION]}
        case "integer" | "number" | "boolean":
            return {"type": ["number", "boolean", "string"]}
        case _ if "anyOf" in schema:
            return {**schema, "anyOf": [_as_written(part) for part in schema["anyOf"]]}
        case _:
            return schema


_BLOCKS = r"\{[%#]"
"""What Jinja reads and we do not: blocks and comments."""

_PARTS = frozenset({"items", "additionalProperties"})
_FRACTION: Schema = {"type": "number", "not": {"type": "integer"}}


# --- the verbs of a test ------------------------------------------------------------------------------------------

_NEEDS = {"fails": ["with"], "settles": ["as"], "resets": ["breaker"]}
"""What a verb of a story says nothing without."""


def _add_verbs(schema: Schema, actions: LookingActions) -> None:
    """Say that an entry has one verb and what goes with it, and which actions there are."""
    defs = schema["$defs"]
    story, expect = defs["StoryKeys"], defs["ExpectKeys"]
    has_verb = {"anyOf": [{"required": [verb]} for verb in VERBS]}
    along = sorted(frozenset().union(*VERBS.values()))
    story["allOf"] = [
        *_one_verb(VERBS),
        {"if": has_verb, "else": {"required": ["sees"], "properties": dict.fromkeys(along, False)}},
    ]
    words = story["properties"]["changes"]["description"]
    changed = [_ref("WorldKeys"), {"minProperties": 1}]
    story["properties"]["changes"] = {"description": words, "type": "object", "allOf": changed}
    expect["allOf"] = [
        *_one_verb(EXPECTED),
        {"anyOf": [{"required": [verb]} for verb in EXPECTED]},
        *(_does(action) for action in actions.values() if not action.is_message),
    ]

    acts = [action for action in actions.values() if not action.is_message]
    for key in ("fails", "during"):
        story["properties"][key] |= {"enum": list(actions)}
    for key, known in (("does", acts), ("undoes", [action for action in acts if action.default_undo is not None])):
        expect["properties"][key]["anyOf"] = [
            _names_of(known),
            {"type": "array", "items": _names_of(known), "minItems": 1, "uniqueItems": True},
        ]
    defs["ScenarioKeys"]["properties"]["never"]["items"] = _names_of(acts)


def _does(action: LookingAction[Any]) -> Schema:
    """Which params an expectation of this action can name."""
    fields = action.params_model.model_fields.items()
    known = {name: {"description": " ".join((field.description or "").split())} for name, field in fields}
    return {
        "if": {"properties": {"does": {"const": action.name}}, "required": ["does"]},
        "then": {"properties": {"params": {"properties": known, "additionalProperties": False}}},
    }


def _one_verb(verbs: Mapping[str, frozenset[str]]) -> list[Schema]:
    every = {*verbs}.union(*verbs.values())
    return [
        _where(
            verb,
            {
                "properties": dict.fromkeys(sorted(every - along - {verb}), False),
                **({"required": _NEEDS[verb]} if verb in _NEEDS else {}),
            },
        )
        for verb, along in verbs.items()
    ]


def _names_of(actions: Sequence[LookingAction[Any]]) -> Schema:
    return {
        "type": "string",
        "enum": [action.name for action in actions],
        "enumDescriptions": [_summary(action) for action in actions],
    }


def _add_settings(schema: Schema) -> None:
    """Of a test's settings, those that mean something to it."""
    settings = _settings()
    schema["$defs"] |= settings["$defs"]
    known = {name: settings["properties"][name] for name in SETTINGS_THAT_ACT}
    schema["properties"]["settings"] |= {"additionalProperties": False, "properties": known}


# --- settings -----------------------------------------------------------------------------------------------------

_VAR: Schema = {
    "description": "Text, a whole number, true or false, or a list or table of these.",
    "anyOf": [
        {"type": ["string", "integer", "boolean"]},
        {"type": "array", "items": _ref("var")},
        {"type": "object", "additionalProperties": _ref("var")},
    ],
}


class _SettingsSchema(_Schema):
    """Numbers and truth values may stand as text, as they do in a variable."""

    def int_schema(self, schema: core_schema.IntSchema) -> JsonSchemaValue:
        return {**super().int_schema(schema), "type": ["integer", "string"], "pattern": r"^[ +0-9_.]+$"}

    def bool_schema(self, schema: core_schema.BoolSchema) -> JsonSchemaValue:
        return {**super().bool_schema(schema), "type": ["boolean", "integer", "string"], "maximum": 1}


def _settings() -> Schema:
    """No key is asked for that a variable may bring; none reaches into a list."""
    schema = _schema_of(Settings, _SettingsSchema)
    defs = schema["$defs"]
    in_lists = {node["items"]["$ref"] for node in _walk(schema) if "$ref" in node.get("items", {})}
    for name, table in defs.items():
        if f"#/$defs/{name}" not in in_lists:
            table.pop("required", None)
    defs["var"] = _VAR
    schema["properties"]["vars"]["additionalProperties"] = _ref("var")
    return schema


def _walk(node: object) -> Iterator[Schema]:
    """Every schema in a schema."""
    if isinstance(node, dict):
        yield node
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _walk(child)
