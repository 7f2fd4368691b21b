"""The Flask application: every route, its answers' headers, its errors. ``server`` puts the door before it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from flask import Flask, Response

from remediator.web.api import api_routes
from remediator.web.approval import approval_routes
from remediator.web.auth import EXTENSION, Authenticator
from remediator.web.errors import register_errors
from remediator.web.health import health_routes
from remediator.web.webhook import webhook_routes

if TYPE_CHECKING:
    from remediator.app import App

# No script, frame or form has any business with an answer. What is a page says so itself (``approval``).
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def create_app(
    app: App, *, authenticator: Authenticator | None = None, draining: threading.Event | None = None
) -> Flask:
    """Everything that is answered over HTTP.

    Args:
        authenticator: None = made from the settings; the door shares its own.
        draining: set once the engine stops: then nothing is taken any more, and it is not ready.

    Raises:
        SettingsError: a token file cannot be read.
    """
    # No static folder: it would be a route that nobody asked for.
    flask_app = Flask("remediator", static_folder=None)
    flask_app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
    # Neither a slash at the end nor two in a row may become a redirect: it would be followed as a GET.
    flask_app.url_map.strict_slashes = False
    flask_app.url_map.merge_slashes = False
    flask_app.json.sort_keys = False  # type: ignore[attr-defined]
    flask_app.extensions[EXTENSION] = authenticator or Authenticator(app.settings)
    is_draining = (draining or threading.Event()).is_set
    flask_app.register_blueprint(webhook_routes(app, is_draining))
    flask_app.register_blueprint(api_routes(app, is_draining))
    flask_app.register_blueprint(health_routes(app, is_draining))
    flask_app.register_blueprint(approval_routes(app, is_draining))
    register_errors(flask_app, app)

    @flask_app.after_request
    def add_headers(response: Response) -> Response:
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    return flask_app
