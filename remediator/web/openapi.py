"""The API's description, OpenAPI 3.1, served at ``/api/v1/openapi.json``.

Takes the models in ``bodies`` and ``answers`` → the document. Tests compare it with the routes, and attack a running
engine by it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from remediator import __version__
from remediator.web import answers
from remediator.web.bodies import (
    AnswerBody,
    Delivery,
    LeasesQuery,
    NoteBody,
    ReasonBody,
    ResumeBody,
    RunBody,
    RunsQuery,
    SettleBody,
    UndoBody,
)

_ERRORS = {
    "400": "Not what this takes.",
    "401": "No valid token.",
    "403": "The token's role is missing.",
    "404": "There is no such run, playbook or breaker.",
    "409": "Not possible in this state.",
    "413": "The body is above max_body.",
    "415": "Not application/json.",
    "422": "The JSON or the query does not fit; the error says where.",
    "503": "Not now: the store is away, the engine is stopping, or the body took more than 10 seconds. Try again.",
}
# What any call may get before its own work begins: the query, the credentials, the body's size and its time.
_ALWAYS = ("400", "401", "403", "413", "503")
# What a call with a JSON body may get besides.
_JSON = ("415", "422")

_MODELS = (
    answers.Answered,
    answers.Breaker,
    answers.BreakerWasReset,
    answers.Cancelled,
    answers.DryRun,
    answers.Problem,
    answers.Health,
    answers.Lease,
    answers.NotReloaded,
    answers.Noted,
    answers.Paused,
    answers.Readiness,
    answers.Reloaded,
    answers.Resumed,
    answers.Run,
    answers.RunWithEvents,
    answers.Settled,
    answers.Started,
    answers.Status,
    answers.Taken,
    answers.UndoRequested,
    AnswerBody,
    Delivery,
    NoteBody,
    ReasonBody,
    ResumeBody,
    RunBody,
    SettleBody,
    UndoBody,
)
_ABOUT_ONE_RUN = ("get_run", "post_approve", "post_cancel", "post_deny", "post_note", "post_settle", "post_undo")
_TEXT = {"type": "string"}
_RUN_ID = {
    "name": "run_id",
    "in": "path",
    "required": True,
    "description": "Its id, or the first eight or more characters where no other run has them.",
    "schema": _TEXT,
}
_BREAKER = {
    "name": "name",
    "in": "path",
    "required": True,
    "description": "Its policy's name.",
    "schema": _TEXT,
}


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
                    "post_delivery",
                    "Take a delivery of Alertmanager's webhook, version 4. 200 once it is committed.",
                    answers.Taken,
                    role="deliver",
                    body=Delivery,
                    errors=("415",),
                )
            },
            "/api/v1/status": {"get": _call("get_status", "What the engine does now.", answers.Status, role="view")},
            "/api/v1/runs": {
                "get": _call(
                    "get_runs",
                    "Runs, newest first.",
                    {"type": "array", "items": _ref(answers.Run)},
                    role="view",
                    parameters=_query(RunsQuery),
                    errors=("422",),
                    run_id="/0/run_id",
                ),
                "post": _call(
                    "post_run",
                    "Start a run by hand, through the same guards.",
                    answers.Started,
                    role="operate",
                    body=RunBody,
                    errors=("404", "409", *_JSON),
                    run_id="/run_id",
                ),
            },
            "/api/v1/runs/{run_id}": {
                "get": _call(
                    "get_run",
                    "One run with its events.",
                    answers.RunWithEvents,
                    role="view",
                    parameters=[_RUN_ID],
                    errors=("404",),
                )
            },
            "/api/v1/runs/{run_id}/cancel": {
                "post": _call(
                    "post_cancel",
                    "End a waiting run, or stop a running one after its step.",
                    answers.Cancelled,
                    role="operate",
                    parameters=[_RUN_ID],
                    body=ReasonBody,
                    errors=("404", "409", *_JSON),
                )
            },
            "/api/v1/runs/{run_id}/settle": {
                "post": _call(
                    "post_settle",
                    "Say whether the change of an unknown attempt happened.",
                    answers.Settled,
                    role="operate",
                    parameters=[_RUN_ID],
                    body=SettleBody,
                    errors=("404", "409", *_JSON),
                )
            },
            "/api/v1/runs/{run_id}/undo": {
                "post": _call(
                    "post_undo",
                    "Take back now what a run changed, whether its alert fires or not; also while paused.",
                    answers.UndoRequested,
                    role="operate",
                    parameters=[_RUN_ID],
                    body=UndoBody,
                    errors=("404", "409", *_JSON),
                )
            },
            "/api/v1/leases": {
                "get": _call(
                    "get_leases",
                    "Changes that end, newest first.",
                    {"type": "array", "items": _ref(answers.Lease)},
                    role="view",
                    parameters=_query(LeasesQuery),
                    errors=("422",),
                    run_id="/0/run_id",
                )
            },
            "/api/v1/runs/{run_id}/approve": {
                "post": _call(
                    "post_approve",
                    "Say yes to what a run asks. It is judged again before it acts.",
                    answers.Answered,
                    role="operate",
                    parameters=[_RUN_ID],
                    body=AnswerBody,
                    errors=("404", "409", *_JSON),
                )
            },
            "/api/v1/runs/{run_id}/deny": {
                "post": _call(
                    "post_deny",
                    "Say no to what a run asks, which ends it.",
                    answers.Answered,
                    role="operate",
                    parameters=[_RUN_ID],
                    body=AnswerBody,
                    errors=("404", "409", *_JSON),
                )
            },
            "/api/v1/runs/{run_id}/note": {
                "post": _call(
                    "post_note",
                    "Keep a note on a run, ended or not.",
                    answers.Noted,
                    role="operate",
                    parameters=[_RUN_ID],
                    body=NoteBody,
                    errors=("404", *_JSON),
                )
            },
            "/api/v1/pause": {
                "post": _call(
                    "post_pause",
                    "Hold every act until resume.",
                    answers.Paused,
                    role="operate",
                    body=ReasonBody,
                    errors=("409", *_JSON),
                )
            },
            "/api/v1/resume": {
                "post": _call(
                    "post_resume",
                    "Go on after a pause.",
                    answers.Resumed,
                    role="operate",
                    body=ResumeBody,
                    errors=("409", *_JSON),
                )
            },
            "/api/v1/breakers": {
                "get": _call(
                    "get_breakers",
                    "Which breakers there are, which are tripped and why.",
                    {"type": "array", "items": _ref(answers.Breaker)},
                    role="view",
                )
            },
            "/api/v1/breakers/{name}/reset": {
                "post": _call(
                    "post_breaker_reset",
                    "Let acts go on after a breaker tripped; it counts from zero.",
                    answers.BreakerWasReset,
                    role="operate",
                    parameters=[_BREAKER],
                    body=ReasonBody,
                    errors=("404", "409", *_JSON),
                )
            },
            "/api/v1/plan": {
                "post": _call(
                    "post_plan",
                    "A dry run of a delivery: what would be done, and why not. Cannot act.",
                    answers.DryRun,
                    role="view",
                    body=Delivery,
                    errors=_JSON,
                )
            },
            "/api/v1/openapi.json": {"get": _call("get_openapi", "This document.", {"type": "object"})},
            "/-/reload": {
                "post": _call(
                    "post_reload",
                    "Load the playbooks again.",
                    answers.Reloaded,
                    role="operate",
                    refusals={"422": (answers.NotReloaded, "The playbooks have problems; the set before stays.")},
                )
            },
            "/healthz": {"get": _call("get_health", "The process answers.", answers.Health)},
            "/readyz": {
                "get": _call(
                    "get_readiness",
                    "Whether it can take and act; each check by name.",
                    answers.Readiness,
                    refusals={"503": (answers.Readiness, "It cannot; the checks say why.")},
                )
            },
            "/metrics": {
                "get": _call(
                    "get_metrics",
                    "Prometheus metrics. Open when no token is configured.",
                    _TEXT,
                    role="view",
                    media="text/plain",
                )
            },
        },
        "components": {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "basic": {"type": "http", "scheme": "basic"},
            },
            "schemas": _schemas(),
        },
    }


def _schemas() -> dict[str, Any]:
    _, found = models_json_schema(
        [(model, "validation") for model in _MODELS], ref_template="#/components/schemas/{model}"
    )
    schemas: dict[str, Any] = found["$defs"]
    for schema in schemas.values():
        for field in schema.get("properties", {}).values():
            # It may be absent, and is never null: see ``answers``.
            if "anyOf" in field and field.get("default", ...) is None:
                del field["default"]
                (there,) = (kind for kind in field.pop("anyOf") if kind != {"type": "null"})
                field.update(there)
    return schemas


def _ref(model: type[BaseModel]) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{model.__name__}"}


def _query(model: type[BaseModel]) -> list[dict[str, Any]]:
    properties = model.model_json_schema()["properties"]
    return [{"name": name, "in": "query", "schema": schema} for name, schema in properties.items()]


def _call(
    name: str,
    summary: str,
    answer: type[BaseModel] | dict[str, Any],
    *,
    role: str = "",
    parameters: list[dict[str, Any]] | None = None,
    body: type[BaseModel] | None = None,
    media: str = "application/json",
    errors: tuple[str, ...] = (),
    refusals: dict[str, tuple[type[BaseModel], str]] | None = None,
    run_id: str = "",
) -> dict[str, Any]:
    """One operation.

    Args:
        name: of the view, for those who generate clients.
        role: "" = open to everybody.
        errors: statuses that answer with ``Problem``; ``_ALWAYS`` are added where a role is needed.
        refusals: status → what it answers with instead, and what it means.
        run_id: JSON pointer to the id in its answer that the calls about one run take; "" = it has none.
    """
    call: dict[str, Any] = {"operationId": name, "summary": summary}
    if role:
        call["description"] = f"Needs the role `{role}`."
        errors = (*errors, *_ALWAYS)
    else:
        call["security"] = []
    if parameters:
        call["parameters"] = parameters
    if body:
        call["requestBody"] = {"required": True, "content": {"application/json": {"schema": _ref(body)}}}
    schema = answer if isinstance(answer, dict) else _ref(answer)
    others = {status: (answers.Problem, _ERRORS[status]) for status in errors} | (refusals or {})
    links = {
        link: {"operationId": link, "parameters": {"run_id": f"$response.body#{run_id}"}} for link in _ABOUT_ONE_RUN
    }
    call["responses"] = {
        "200": {
            "description": "Done.",
            "content": {media: {"schema": schema}},
            **({"links": links} if run_id else {}),
        },
        **{
            status: {"description": meaning, "content": {"application/json": {"schema": _ref(model)}}}
            for status, (model, meaning) in sorted(others.items())
        },
    }
    return call
