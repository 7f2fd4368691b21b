"""Whether it lives, whether it can work, and its metrics.

``/healthz`` says only that the process answers: a restart would mend nothing that ``/readyz`` finds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import Blueprint, Response, jsonify

from remediator.settings import Role
from remediator.telemetry import METRICS_CONTENT_TYPE
from remediator.web.auth import needs

if TYPE_CHECKING:
    from collections.abc import Callable

    from remediator.app import App


def health_routes(app: App, is_draining: Callable[[], bool]) -> Blueprint:
    """``/healthz``, ``/readyz``, ``/metrics``."""
    routes = Blueprint("health", __name__)

    @routes.get("/healthz")
    def get_health() -> Response:
        return jsonify(ok=True)

    @routes.get("/readyz")
    def get_readiness() -> Response:
        readiness = app.readiness()
        checks = dict(readiness.checks)
        if is_draining():
            checks["engine"] = "stopping"
        is_ready = readiness.is_ready and not is_draining()
        response = jsonify(ready=is_ready, checks=checks)
        response.status_code = 200 if is_ready else 503
        return response

    @routes.get("/metrics")
    @needs(Role.VIEW)
    def get_metrics() -> Response:
        return Response(app.metrics.expose(), content_type=METRICS_CONTENT_TYPE)

    return routes
