import re

import jsonschema
from flask import Flask
from flask.testing import FlaskClient

from remediator import __version__
from remediator.web.openapi import openapi_document


def test_openapi_when_served_then_it_lists_exactly_the_routes(flask_app: Flask, client: FlaskClient) -> None:
    document = client.get("/api/v1/openapi.json").json

    described = {(method.upper(), path) for path, calls in document["paths"].items() for method in calls}
    assert described == {
        (method, re.sub(r"<(\w+)>", r"{\1}", rule.rule))
        for rule in flask_app.url_map.iter_rules()
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
    }
    assert document["openapi"] == "3.1.0"
    assert document["info"]["version"] == __version__


def test_openapi_when_a_route_needs_a_role_then_it_says_which(flask_app: Flask) -> None:
    paths = openapi_document()["paths"]

    for rule in flask_app.url_map.iter_rules():
        role = getattr(flask_app.view_functions[rule.endpoint], "role", None)
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}:
            call = paths[re.sub(r"<(\w+)>", r"{\1}", rule.rule)][method.lower()]
            assert call.get("description", "").count(f"Needs the role `{role}`.") == (1 if role else 0)
            assert ("401" in call["responses"]) == (role is not None)
            assert (call.get("security") == []) == (role is None)


def test_openapi_when_bodies_are_described_then_they_are_json_schemas() -> None:
    calls = [call for path in openapi_document()["paths"].values() for call in path.values()]
    schemas = [call["requestBody"]["content"]["application/json"]["schema"] for call in calls if "requestBody" in call]

    for schema in schemas:
        jsonschema.Draft202012Validator.check_schema(schema)
    assert [sorted(schema.get("properties", {})) for schema in schemas] == [
        [],
        ["annotations", "by", "labels", "playbook"],
        ["by", "reason"],
        ["by", "happened", "reason"],
        ["by", "reason"],
        ["by", "reason"],
        [],
    ]
