"""The API's description, OpenAPI 3.1, served at ``/api/v1/openapi.json``. A test compares it with the routes."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import BaseModel

from remediator import __version__
from remediator.web.bodies import ReasonBody, ResumeBody, RunBody, RunsQuery, SettleBody

_ERRORS = {
    "400": "Not what this takes.",
    "401": "No valid token.",
    "403": "The token's role is missing.",
    "404": "There is no such run.",
    "409": "Not possible in this state.",
    "413": "The body is above max_body.",
    "415": "Not application/json.",
    "422": "The JSON does not fit; the error says where.",
    "503": "Not now: the store is away, the engine is stopping, or the body took more than 10 seconds. Try again.",
}
_TEXT = {"type": "string"}
_RUN_ID = {"name": "run_id", "in": "path", "required": True, "schema": _TEXT}
_OBJECT = {"type": "object"}


@cache
def openapi_document() -> dict[str, Any]:
    """The whole document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "remediator",
            "version": __version__,
            "description": "Alertmanager alerts in, safe and audited actions out.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{"bearer": []}, {"basic": []}],
        "paths": {
            "/api/v1/alertmanager": {
                "post": _call(
                    "Take a delivery of Alertmanager's webhook, version 4. 200 once it is committed.",
                    role="deliver",
                    body=_OBJECT,
                    errors=("400", "413", "415", "503"),
                )
            },
            "/api/v1/status": {"get": _call("What the engine does now.", role="view", errors=("503",))},
            "/api/v1/runs": {
                "get": _call(
                    "Runs, newest first.",
                    role="view",
                    parameters=_query(RunsQuery),
                    answer={"type": "array", "items": _OBJECT},
                    errors=("422", "503"),
                ),
                "post": _call(
                    "Start a run by hand, through the same guards.",
                    role="operate",
                    body=_schema(RunBody),
                    errors=("400", "404", "409", "413", "415", "422", "503"),
                ),
            },
            "/api/v1/runs/{run_id}": {
                "get": _call("One run with its events.", role="view", parameters=[_RUN_ID], errors=("404", "503"))
            },
            "/api/v1/runs/{run_id}/cancel": {
                "post": _call(
                    "End a waiting run, or stop a running one after its step.",
                    role="operate",
                    parameters=[_RUN_ID],
                    body=_schema(ReasonBody),
                    errors=("400", "404", "409", "415", "422", "503"),
                )
            },
            "/api/v1/runs/{run_id}/settle": {
                "post": _call(
                    "Say whether the change of an unknown attempt happened.",
                    role="operate",
                    parameters=[_RUN_ID],
                    body=_schema(SettleBody),
                    errors=("400", "404", "409", "415", "422", "503"),
                )
            },
            "/api/v1/pause": {
                "post": _call(
                    "Hold every act until resume.",
                    role="operate",
                    body=_schema(ReasonBody),
                    errors=("400", "409", "415", "422", "503"),
                )
            },
            "/api/v1/resume": {
                "post": _call(
                    "Go on after a pause.",
                    role="operate",
                    body=_schema(ResumeBody),
                    errors=("400", "409", "415", "422", "503"),
                )
            },
            "/api/v1/plan": {
                "post": _call(
                    "A dry run of a delivery: what would be done, and why not. Cannot act.",
                    role="view",
                    body=_OBJECT,
                    errors=("400", "413", "415", "503"),
                )
            },
            "/api/v1/openapi.json": {"get": _call("This document.")},
            "/-/reload": {"post": _call("Load the playbooks again.", role="operate", errors=("422", "503"))},
            "/healthz": {"get": _call("The process answers.")},
            "/readyz": {"get": _call("Whether it can take and act; each check by name.", errors=("503",))},
            "/metrics": {
                "get": _call(
                    "Prometheus metrics. Open when no token is configured.",
                    role="view",
                    media="text/plain",
                    answer=_TEXT,
                )
            },
        },
        "components": {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "basic": {"type": "http", "scheme": "basic"},
            },
            "schemas": {
                "Error": {"type": "object", "properties": {"error": _TEXT}, "required": ["error"]},
            },
        },
    }


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    return model.model_json_schema()


def _query(model: type[BaseModel]) -> list[dict[str, Any]]:
    return [{"name": name, "in": "query", "schema": schema} for name, schema in _schema(model)["properties"].items()]


def _call(
    summary: str,
    *,
    role: str = "",
    parameters: list[dict[str, Any]] | None = None,
    body: dict[str, Any] | None = None,
    answer: dict[str, Any] = _OBJECT,
    media: str = "application/json",
    errors: tuple[str, ...] = (),
) -> dict[str, Any]:
    """One operation; ``role`` "" = open to everybody."""
    call: dict[str, Any] = {"summary": summary}
    if role:
        call["description"] = f"Needs the role `{role}`."
        errors = (*errors, "401", "403")
    else:
        call["security"] = []
    if parameters:
        call["parameters"] = parameters
    if body:
        call["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    call["responses"] = {
        "200": {"description": "Done.", "content": {media: {"schema": answer}}},
        **{status: {"description": _ERRORS[status], "content": error} for status in sorted(errors)},
    }
    return call
