"""Stage 1, receive: ``POST /api/v1/alertmanager``. A body → a committed delivery → 200.

Alertmanager's rules decide the answers: 5xx is tried again, 4xx is not until the next ``group_interval``, and its
``Retry-After`` and 429 mean nothing. So 503 says "try again" for whatever may pass, an error of our own included, and
4xx only what a retry cannot mend. Never a redirect (it becomes a GET and the alert is silently lost), never a 500.
Answers are short and repeat nothing of the body: Alertmanager logs them.

Nobody waits for the commit in a thread: Flask's answer is made when the delivery is on its way to the store, and sent
by the door when it is there (``remediator.commit`` in the environ). Its body, with the delivery's number, is written
only then; a commit that fails comes back as this call's problem.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from flask import Blueprint, Response, g, request
from werkzeug.exceptions import HTTPException, ServiceUnavailable

from remediator.core.alert import RawDelivery
from remediator.errors import DeliveryError, StoreError, UnauthenticatedError
from remediator.settings import Role
from remediator.telemetry import get_logger
from remediator.web.auth import needs, refuse_browsers
from remediator.web.errors import answer, count_refusal

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from remediator.app import App
    from remediator.engine.receive import Receipt

_log = get_logger(__name__)

PATH = "/api/v1/alertmanager"

COMMIT_KEY = "remediator.commit"
"""In the environ of a caller that waits for the commit itself: None, and afterwards the commit's ``Future``."""


def webhook_routes(app: App, is_draining: Callable[[], bool]) -> Blueprint:
    """The webhook's blueprint.

    Args:
        is_draining: true once the engine stops: deliveries are then for the next one.
    """
    routes = Blueprint("webhook", __name__)

    @routes.before_request
    def start_clock() -> None:
        g.started = time.monotonic()

    @routes.post(PATH)
    @needs(Role.DELIVER)
    def post_delivery() -> Response:
        if is_draining():
            raise ServiceUnavailable("stopping; send it again")
        # With tokens any content type is taken: what the body is, decode says. Without, a browser could be the sender.
        refuse_browsers(needs_json=not g.caller.is_known)
        raw = RawDelivery(received_at=datetime.now(UTC), source=_source(), body=request.get_data())
        commit = app.submit(raw)
        _wait_for(commit)
        return Response(answer_of(commit, g.started), mimetype="application/json")

    def answer_of(commit: Future[Receipt], started: float) -> Iterator[bytes]:
        receipt = commit.result()
        count(200, started)
        app.metrics.last_delivery_time.set_to_current_time()
        said = {"delivery_id": receipt.delivery_id, "alerts": receipt.n_alerts, "bad_alerts": receipt.n_bad_alerts}
        yield json.dumps(said).encode() + b"\n"

    def count(status: int, started: float) -> None:
        app.metrics.deliveries.labels(str(status)).inc()
        app.metrics.delivery_answer.observe(time.monotonic() - started)

    @routes.after_request
    def count_others(response: Response) -> Response:
        if response.status_code != 200:
            count(response.status_code, g.started)
        return response

    def refuse(status: int, problem: str) -> Response:
        # The audit has what came from known senders; a stranger could fill it, so 401 is counted and logged alone.
        n_bytes = request.environ.get("remediator.n_bytes", request.content_length or 0)
        _wait_for(app.reject(_source(), datetime.now(UTC), status, problem, n_bytes))
        return answer(status, problem)

    @routes.errorhandler(DeliveryError)
    def refused(error: DeliveryError) -> Response:
        count_refusal(app, error)
        if isinstance(error, UnauthenticatedError):
            return answer(error.http_status, str(error))
        return refuse(error.http_status, str(error))

    @routes.errorhandler(HTTPException)
    def not_taken(error: HTTPException) -> Response:
        status = error.code or 503
        if status >= 500:
            _log.warning("delivery not taken; the sender is to try again", source=_source(), problem=error.description)
            return answer(status, str(error.description))
        return refuse(status, str(error.description))

    @routes.errorhandler(StoreError)
    def store_away(error: StoreError) -> Response:
        _log.error("delivery not stored", problem=str(error))
        return answer(503, "the store is away; send it again")

    @routes.errorhandler(Exception)
    def unexpected(_error: Exception) -> Response:
        app.metrics.unexpected_errors.labels("web").inc()
        _log.exception("delivery not taken: a bug in the engine")
        return answer(503, "internal error; send it again")

    return routes


def _wait_for(commit: Future[Any]) -> None:
    """Leave it to a caller that waits itself; else wait here, and raise what it raised."""
    if COMMIT_KEY in request.environ:
        request.environ[COMMIT_KEY] = commit
    else:
        commit.result()


def _source() -> str:
    return request.remote_addr or "unknown"
