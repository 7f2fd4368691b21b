"""The API for people and scripts: what the engine does, and the few things that can be asked of it.

Takes JSON, checked by the models in ``bodies`` → one call of the engine → its answer as JSON. Decides nothing itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from flask import Blueprint, Response, g, jsonify, request
from pydantic import BaseModel, ValidationError
from werkzeug.exceptions import BadRequest, ServiceUnavailable

from remediator.errors import RequestError
from remediator.settings import Role
from remediator.web.auth import needs, refuse_browsers
from remediator.web.bodies import (
    AnswerBody,
    LeasesQuery,
    NoteBody,
    ReasonBody,
    ResumeBody,
    RunBody,
    RunsQuery,
    SettleBody,
    UndoBody,
)
from remediator.web.openapi import openapi_document

if TYPE_CHECKING:
    from collections.abc import Callable

    from remediator.app import App

M = TypeVar("M", bound=BaseModel)


def api_routes(app: App, is_draining: Callable[[], bool]) -> Blueprint:
    """Everything under ``/api/v1`` but the webhook, and ``/-/reload``."""
    routes = Blueprint("api", __name__)

    def read(model: type[M]) -> M:
        """The body of a call that changes something."""
        refuse_browsers(needs_json=True)
        if is_draining():
            raise ServiceUnavailable("the engine is stopping")
        try:
            return model.model_validate_json(request.get_data())
        except ValidationError as error:
            raise unfit(error) from None

    @routes.get("/api/v1/status")
    @needs(Role.VIEW)
    def get_status() -> Response:
        return jsonify(app.status())

    @routes.get("/api/v1/runs")
    @needs(Role.VIEW)
    def get_runs() -> Response:
        try:
            query = RunsQuery.model_validate(request.args.to_dict())
        except ValidationError as error:
            raise unfit(error) from None
        return jsonify(app.runs(query.limit, query.state))

    @routes.post("/api/v1/runs")
    @needs(Role.OPERATE)
    def post_run() -> Response:
        body = read(RunBody)
        return jsonify(app.run_by_hand(body.playbook, body.labels, body.annotations, g.caller.actor(body.by)))

    @routes.get("/api/v1/runs/<run_id>")
    @needs(Role.VIEW)
    def get_run(run_id: str) -> Response:
        return jsonify(app.run(run_id))

    @routes.post("/api/v1/runs/<run_id>/cancel")
    @needs(Role.OPERATE)
    def post_cancel(run_id: str) -> Response:
        body = read(ReasonBody)
        return jsonify(app.cancel(run_id, g.caller.actor(body.by), body.reason))

    @routes.post("/api/v1/runs/<run_id>/settle")
    @needs(Role.OPERATE)
    def post_settle(run_id: str) -> Response:
        body = read(SettleBody)
        return jsonify(app.settle(run_id, body.happened, g.caller.actor(body.by), body.reason))

    @routes.post("/api/v1/runs/<run_id>/undo")
    @needs(Role.OPERATE)
    def post_undo(run_id: str) -> Response:
        body = read(UndoBody)
        return jsonify(app.undo(run_id, body.step, g.caller.actor(body.by), body.reason))

    @routes.get("/api/v1/leases")
    @needs(Role.VIEW)
    def get_leases() -> Response:
        try:
            query = LeasesQuery.model_validate(request.args.to_dict())
        except ValidationError as error:
            raise unfit(error) from None
        return jsonify(app.leases(query.limit, is_all=query.state == "all"))

    @routes.post("/api/v1/runs/<run_id>/approve")
    @needs(Role.OPERATE)
    def post_approve(run_id: str) -> Response:
        body = read(AnswerBody)
        return jsonify(app.approve(run_id, g.caller.actor(body.by), body.reason, body.question))

    @routes.post("/api/v1/runs/<run_id>/deny")
    @needs(Role.OPERATE)
    def post_deny(run_id: str) -> Response:
        body = read(AnswerBody)
        return jsonify(app.deny(run_id, g.caller.actor(body.by), body.reason, body.question))

    @routes.post("/api/v1/runs/<run_id>/note")
    @needs(Role.OPERATE)
    def post_note(run_id: str) -> Response:
        body = read(NoteBody)
        return jsonify(app.note(run_id, g.caller.actor(body.by), body.text))

    @routes.post("/api/v1/pause")
    @needs(Role.OPERATE)
    def post_pause() -> Response:
        body = read(ReasonBody)
        return jsonify(app.pause(g.caller.actor(body.by), body.reason))

    @routes.post("/api/v1/resume")
    @needs(Role.OPERATE)
    def post_resume() -> Response:
        body = read(ResumeBody)
        return jsonify(app.resume(g.caller.actor(body.by), body.reason))

    @routes.get("/api/v1/breakers")
    @needs(Role.VIEW)
    def get_breakers() -> Response:
        return jsonify(app.breakers())

    @routes.post("/api/v1/breakers/<name>/reset")
    @needs(Role.OPERATE)
    def post_breaker_reset(name: str) -> Response:
        body = read(ReasonBody)
        return jsonify(app.reset_breaker(name, g.caller.actor(body.by), body.reason))

    @routes.post("/-/reload")
    @needs(Role.OPERATE)
    def post_reload() -> Response:
        # Without a body, as Prometheus and Alertmanager have it. It only reads files again.
        refuse_browsers(needs_json=False)
        result: dict[str, Any] = app.reload(g.caller.actor())
        if result["ok"]:
            return jsonify(result)
        response = jsonify(error="the playbooks have problems; the set before stays in force", **result)
        response.status_code = 422
        return response

    @routes.post("/api/v1/plan")
    @needs(Role.VIEW)
    def post_plan() -> Response:
        refuse_browsers(needs_json=True)
        return jsonify(app.dry_run(request.get_data()))

    @routes.get("/api/v1/openapi.json")
    def get_openapi() -> Response:
        return jsonify(openapi_document())

    return routes


def unfit(error: ValidationError) -> Exception:
    """Every problem of a body or query in one text, without what was sent."""
    items = error.errors(include_url=False, include_input=False, include_context=False)
    if any(item["type"] == "json_invalid" for item in items):
        return BadRequest("the body is not JSON")
    problems = [f"{'.'.join(map(str, item['loc'])) or 'body'}: {item['msg']}" for item in items]
    return RequestError("; ".join(problems))
