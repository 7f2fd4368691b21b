import re

import jsonschema
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.routing import Rule

from remediator import __version__
from remediator.web.openapi import openapi_document


def calls_of(flask_app: Flask) -> list[Rule]:
    """The routes without the page, which is for people alone."""
    return [rule for rule in flask_app.url_map.iter_rules() if not rule.endpoint.startswith("approval.")]


def test_openapi_when_served_then_it_lists_exactly_the_routes(flask_app: Flask, client: FlaskClient) -> None:
    document = client.get("/api/v1/openapi.json").json

    described = {(method.upper(), path) for path, calls in document["paths"].items() for method in calls}
    assert described == {
        (method, re.sub(r"<(\w+)>", r"{\1}", rule.rule))
        for rule in calls_of(flask_app)
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
    }
    assert document["openapi"] == "3.1.0"
    assert document["info"]["version"] == __version__


def test_openapi_when_a_route_needs_a_role_then_it_says_which(flask_app: Flask) -> None:
    paths = openapi_document()["paths"]

    for rule in calls_of(flask_app):
        role = getattr(flask_app.view_functions[rule.endpoint], "role", None)
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}:
            call = paths[re.sub(r"<(\w+)>", r"{\1}", rule.rule)][method.lower()]
            assert call.get("description", "").count(f"Needs the role `{role}`.") == (1 if role else 0)
            assert ("401" in call["responses"]) == (role is not None)
            assert (call.get("security") == []) == (role is None)


def test_openapi_when_bodies_and_answers_are_described_then_by_schemas_that_say_something() -> None:
    document = openapi_document()
    schemas = document["components"]["schemas"]
    jsonschema.Draft202012Validator.check_schema({"$defs": schemas})

    told = {}
    for path, calls in document["paths"].items():
        for method, call in calls.items():
            contents = [call["requestBody"]["content"]] if "requestBody" in call else []
            contents += [answer["content"] for answer in call["responses"].values()]
            for content in contents:
                ((media, described),) = content.items()
                schema = described["schema"]
                ref = schema.get("items", schema).get("$ref", "")
                if media == "application/json" and path != "/api/v1/openapi.json":
                    assert schemas[ref.removeprefix("#/components/schemas/")]["properties"]
                told.setdefault(f"{method} {path}", []).append(ref.rpartition("/")[2])

    assert told["post /api/v1/alertmanager"][:2] == ["Delivery", "Taken"]
    assert told["post /api/v1/runs"][:2] == ["RunBody", "Started"]
    assert told["post /api/v1/runs/{run_id}/settle"][:2] == ["SettleBody", "Settled"]
    assert told["get /api/v1/runs"][0] == "Run"
    assert told["post /-/reload"][-2:] == ["NotReloaded", "Problem"]


def test_openapi_when_a_field_may_be_absent_then_it_is_not_required_and_never_null() -> None:
    started = openapi_document()["components"]["schemas"]["Started"]

    assert "refused" not in started["required"]
    assert started["properties"]["refused"] == {"$ref": "#/components/schemas/Refusal"}
    assert openapi_document()["components"]["schemas"]["Status"]["properties"]["paused"]["anyOf"][1] == {"type": "null"}


def test_openapi_when_calls_are_linked_then_to_those_that_there_are() -> None:
    calls = [call for path in openapi_document()["paths"].values() for call in path.values()]
    names = [call["operationId"] for call in calls]
    links = {name for call in calls for name in call["responses"]["200"].get("links", {})}

    assert len(set(names)) == len(calls)
    assert links == {"get_run", "post_approve", "post_cancel", "post_deny", "post_note", "post_settle", "post_undo"}
    assert links < {*names}
