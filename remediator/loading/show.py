"""Playbooks and the format, printed back.

Takes a ``Playbook``, gives its YAML with every default filled in, which loads as the same playbook; takes a kind of
document, gives its JSON Schema for editors. Must never: show a key that does not act.
"""

from __future__ import annotations

from io import StringIO
from typing import Any, Literal

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema
from ruamel.yaml import YAML

from remediator.core.playbook import Case, Playbook, Step
from remediator.core.retry import RetryPolicy
from remediator.core.units import print_duration
from remediator.loading.format import PlaybookKeys, PolicyKeys


def effective(playbook: Playbook) -> str:
    """The playbook as YAML with every default written out; it loads as the same playbook."""
    keys: dict[str, Any] = {"playbook": playbook.name}
    if playbook.description:
        keys["description"] = playbook.description
    keys["match"] = [str(matcher) for matcher in playbook.match]
    if [case.name for case in playbook.cases] == [""]:
        keys |= _case(playbook.cases[0])
    else:
        keys["cases"] = [
            {"name": case.name}
            | ({"match": [str(matcher) for matcher in case.match]} if case.match else {})
            | (_case(case) if case.ignore is None else {"ignore": case.ignore})
            for case in playbook.cases
        ]
    out = StringIO()
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.width = 120
    yaml.allow_unicode = True
    yaml.dump(keys, out)
    return out.getvalue()


def _case(case: Case) -> dict[str, Any]:
    keys: dict[str, Any] = {"mode": case.mode.value}
    if case.owner:
        keys["owner"] = case.owner
    if case.per is not None:
        keys["per"] = list(case.per)
    keys["stop_on_resolve"] = case.stop_on_resolve
    keys["latched"] = case.latched
    keys["hold"] = print_duration(case.hold)
    guard: dict[str, Any] = {"cooldown": print_duration(case.guard.cooldown)}
    if case.guard.max_runs is not None:
        guard["max_runs"] = {"count": case.guard.max_runs.count, "per": print_duration(case.guard.max_runs.per)}
    guard["tell_after"] = print_duration(case.guard.tell_after)
    keys["guard"] = guard
    keys["steps"] = [_step(step) for step in case.steps]
    if case.verify:
        keys["verify"] = [{"alert": "resolved", "within": print_duration(check.within)} for check in case.verify]
    if case.resolved:
        keys["resolved"] = [_step(step) for step in case.resolved]
    keys["report"] = {"to": list(case.report_to)}
    keys["escalate"] = {"to": list(case.escalate_to)}
    return keys


def _step(step: Step) -> dict[str, Any]:
    keys: dict[str, Any] = {"name": step.name}
    if step.condition is not None:
        keys["if"] = step.condition.source
    keys["action"] = step.action
    if step.params:
        keys["params"] = {name: template.source for name, template in step.params.items()}
    keys["timeout"] = print_duration(step.timeout)
    keys["retry"] = _retry(step.retry)
    keys["on_failure"] = step.on_failure.value
    return keys


def _retry(retry: RetryPolicy) -> dict[str, Any]:
    keys: dict[str, Any] = {} if retry.attempts is None else {"attempts": retry.attempts}
    keys |= {"wait": print_duration(retry.wait), "max_wait": print_duration(retry.max_wait)}
    keys["jitter"] = f"{retry.jitter_pct}%"
    if retry.budget is not None:
        keys["budget"] = print_duration(retry.budget)
    return keys


class _Schema(GenerateJsonSchema):
    """Without null, which no key takes, and without what does not act."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        shown = super().default_schema(schema)
        if shown.get("default", ...) is None:
            del shown["default"]
        return shown


def json_schema(which: Literal["playbook", "policy"]) -> dict[str, Any]:
    """JSON Schema (2020-12) of one kind of document, with the keys that act."""
    model = PlaybookKeys if which == "playbook" else PolicyKeys
    schema = model.model_json_schema(by_alias=True, schema_generator=_Schema)
    tables = schema.pop("$defs")
    for table in (schema, *(table for table in tables.values() if "properties" in table)):
        acting = {key: value for key, value in table["properties"].items() if value.pop("x-acts", True)}
        table["properties"] = acting
    used = _tables_in(schema, tables, set())
    return {"$schema": GenerateJsonSchema.schema_dialect, **schema, "$defs": {name: tables[name] for name in used}}


def _tables_in(value: Any, tables: dict[str, Any], seen: set[str]) -> list[str]:
    """Names of the ``$defs`` that a schema still needs, sorted."""
    match value:
        case {"$ref": str(reference)} if (name := reference.rpartition("/")[2]) not in seen:
            seen.add(name)
            _tables_in(tables[name], tables, seen)
        case dict():
            for item in value.values():
                _tables_in(item, tables, seen)
        case list():
            for item in value:
                _tables_in(item, tables, seen)
    return sorted(seen)
