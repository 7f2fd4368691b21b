"""Errors as people and scripts see them: ``{"error": "what happened and what to do"}`` and a status.

Never a traceback, never a secret, never a redirect, and nothing about an error of our own but that the log has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import Flask, Response, jsonify, request
from werkzeug.exceptions import HTTPException

from remediator.errors import DeliveryError, ForbiddenError, RequestError, StoreError, UnauthenticatedError
from remediator.telemetry import get_logger, redact

if TYPE_CHECKING:
    from remediator.app import App

_log = get_logger(__name__)

_CHALLENGES = ('Bearer realm="remediator"', 'Basic realm="remediator", charset="UTF-8"')


def answer(status: int, problem: str) -> Response:
    """An error's answer; 401 says which credentials we take."""
    response = jsonify(error=redact(problem))
    response.status_code = status
    if status == 401:
        for challenge in _CHALLENGES:
            response.headers.add("WWW-Authenticate", challenge)
    return response


def count_refusal(app: App, error: DeliveryError) -> None:
    """Count and log callers that we do not know, or that may not do what they ask."""
    reason = {UnauthenticatedError: "unauthenticated", ForbiddenError: "forbidden"}.get(type(error))
    if reason is not None:
        app.metrics.auth_failures.labels(reason).inc()
        _log.warning("call refused", reason=reason, source=request.remote_addr, method=request.method)


def register_errors(flask_app: Flask, app: App) -> None:
    """The answers for every route that has none of its own."""

    @flask_app.errorhandler(DeliveryError)
    def refused(error: DeliveryError) -> Response:
        count_refusal(app, error)
        return answer(error.http_status, str(error))

    @flask_app.errorhandler(RequestError)
    def impossible(error: RequestError) -> Response:
        return answer(error.http_status, str(error))

    @flask_app.errorhandler(StoreError)
    def store_away(error: StoreError) -> Response:
        _log.error("call not answered: the store is away", problem=str(error))
        return answer(503, f"the store is away: {error}")

    @flask_app.errorhandler(HTTPException)
    def http_error(error: HTTPException) -> Response:
        response = answer(error.code or 500, str(error.description))
        for name, value in error.get_headers(request.environ):
            if name == "Allow":
                response.headers[name] = value
        return response

    @flask_app.errorhandler(Exception)
    def unexpected(_error: Exception) -> Response:
        app.metrics.unexpected_errors.labels("web").inc()
        _log.exception("call not answered: a bug in the engine", endpoint=request.endpoint)
        return answer(500, "internal error; the engine's log has it")
