"""The page on which people say yes or no to what a run asks: ``/runs/RUN/approval``, where a message's link leads.

Takes a form → one call of the engine → a page. Its GET changes nothing and says nothing: not even whether there is such
a run. Only a token, or a user and password, of the role ``operate`` shows what is asked, and they travel in the form
alone: never in an address, and no header that a browser sends by itself lets another page answer in somebody's name.

Must never: run a script, or show a label otherwise than as text.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from flask import Blueprint, Response, current_app, g, request
from jinja2 import Environment, PackageLoader, StrictUndefined
from pydantic import ValidationError
from werkzeug.exceptions import BadRequest, HTTPException, ServiceUnavailable

from remediator.core.event import utc_text
from remediator.core.plan import PlannedStep, Runs
from remediator.core.run import Run
from remediator.core.units import cut
from remediator.engine.question import Asked
from remediator.errors import DeliveryError, ForbiddenError, RequestError, StoreError, UnauthenticatedError
from remediator.settings import Role
from remediator.telemetry import get_logger, redact
from remediator.web.api import unfit
from remediator.web.auth import EXTENSION, Authenticator, Caller, refuse_browsers
from remediator.web.bodies import AnswerBody
from remediator.web.errors import count_refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from remediator.app import App

_log = get_logger(__name__)

MAX_FORM = 16 * 1024
"""Bytes. A reason of 1000 characters is at most 12 kB in a form; more is not kept of somebody who has not signed in."""

_MAX_FIELDS = 16
_MAX_TEXT = 1000
"""Characters that are shown of one label, name or detail: there may be megabytes of it."""

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; color: #1b1b1b; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.05rem; margin-bottom: .3rem; }
code, dd { font-family: ui-monospace, monospace; font-size: .9rem; overflow-wrap: anywhere; }
dt { color: #555; } dd { margin: 0 0 .4rem 1rem; } .problem { border-left: .3rem solid #b00020; padding-left: .7rem; }
label { display: block; margin: .6rem 0; } input, textarea { font: inherit; width: 100%; box-sizing: border-box; }
button { font: inherit; padding: .4rem 1.4rem; margin: .4rem 1rem .4rem 0; }
"""
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self';"
        f" style-src 'sha256-{base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()}'"
    ),
    # With no-referrer a browser would not say from which page a form comes, which an engine without tokens has to know.
    "Referrer-Policy": "same-origin",
}


def is_page(path: str) -> bool:
    """Whether this path is the page's: what is posted there may come from somebody whom only the form makes known."""
    parts = path.strip("/").split("/")
    return len(parts) == 3 and parts[0] == "runs" and parts[2] == "approval"


def shown(text: object) -> str:
    """A value for the page, cut: what cannot be seen, or turns the direction of what can, is written out."""
    chars = cut(str(text), _MAX_TEXT)
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in chars)


_PAGES = Environment(loader=PackageLoader("remediator.web"), autoescape=True, undefined=StrictUndefined)
_PAGES.filters["shown"] = shown


def approval_routes(app: App, is_draining: Callable[[], bool]) -> Blueprint:
    """The page's blueprint."""
    routes = Blueprint("approval", __name__)

    @routes.get("/runs/<run_id>/approval")
    def get_approval(run_id: str) -> Response:
        del run_id  # whether there is one is told to those who have signed in
        return _sign_in_page()

    @routes.post("/runs/<run_id>/approval")
    def post_approval(run_id: str) -> Response:
        problem: Exception | None = request.environ.get("remediator.problem")
        if problem is not None:
            raise problem
        fields = _fields()
        caller = _sign_in(fields)
        answer = fields.get("answer", "")
        if not answer:
            return ask(run_id, fields)
        if is_draining():
            raise ServiceUnavailable("the engine is stopping; try again in a moment")
        try:
            recorded = say(run_id, caller, answer, fields)
        except RequestError as error:
            if error.http_status == 404:
                raise
            return ask(run_id, fields, str(error), error.http_status)
        return _page("recorded.html", recorded=recorded)

    def ask(run_id: str, fields: Mapping[str, str], problem: str = "", status: int = 200) -> Response:
        run, asked, why_not = app.question(run_id)
        return _page(
            "question.html",
            status,
            run=_run_view(run),
            asked=_asked_view(asked) if asked is not None else None,
            why_not=why_not,
            problem=redact(problem),
            fields={name: fields.get(name, "") for name in ("token", "username", "password", "by", "reason")},
        )

    def say(run_id: str, caller: Caller, answer: str, fields: Mapping[str, str]) -> dict[str, Any]:
        try:
            given: dict[str, Any] = {name: fields.get(name, "") for name in ("reason", "by", "question")}
            if re.fullmatch(r"[0-9]{1,16}", given["question"]):
                given["question"] = int(given["question"])
            body = AnswerBody.model_validate(given)
        except ValidationError as error:
            raise unfit(error) from None
        act = {"approve": app.approve, "deny": app.deny}.get(answer)
        if act is None:
            raise BadRequest("the answer is approve or deny")
        return {**act(run_id, caller.actor(body.by), body.reason, body.question), "reason": body.reason}

    @routes.errorhandler(UnauthenticatedError)
    def stranger(error: UnauthenticatedError) -> Response:
        count_refusal(app, error)
        response = _sign_in_page(str(error), 401)
        response.headers["WWW-Authenticate"] = (
            'Bearer realm="remediator"'  # not Basic: a browser would ask for it itself
        )
        return response

    @routes.errorhandler(DeliveryError)
    def refused(error: DeliveryError) -> Response:
        count_refusal(app, error)
        return _problem_page(str(error), error.http_status)

    @routes.errorhandler(RequestError)
    def impossible(error: RequestError) -> Response:
        return _problem_page(str(error), error.http_status)

    @routes.errorhandler(StoreError)
    def store_away(error: StoreError) -> Response:
        _log.error("page not shown: the store is away", problem=str(error))
        return _problem_page("the store is away; nothing was recorded, try again in a moment", 503)

    @routes.errorhandler(HTTPException)
    def http_error(error: HTTPException) -> Response:
        return _problem_page(str(error.description), error.code or 500)

    @routes.errorhandler(Exception)
    def unexpected(_error: Exception) -> Response:
        app.metrics.unexpected_errors.labels("web").inc()
        _log.exception("page not shown: a bug in the engine", endpoint=request.endpoint)
        return _problem_page("internal error; the engine's log has it", 500)

    return routes


def _fields() -> dict[str, str]:
    """The form's fields; of two with one name the first."""
    try:
        pairs = parse_qsl(
            request.get_data().decode("ascii", "replace"), keep_blank_values=True, max_num_fields=_MAX_FIELDS
        )
    except ValueError:
        raise BadRequest("the form has more fields than the page") from None
    return dict(reversed(pairs))


def _sign_in(fields: Mapping[str, str]) -> Caller:
    """Who has signed in, with the role that it needs.

    Raises:
        UnauthenticatedError, ForbiddenError: nobody whom we know, or not with this role.
    """
    authenticator: Authenticator = current_app.extensions[EXTENSION]
    token = fields.get("token", "")
    if token or authenticator.is_open:
        caller = authenticator.identify_token(token)
    else:
        caller = authenticator.identify_user(fields.get("username", ""), fields.get("password", ""))
    if caller is None:
        raise UnauthenticatedError("This token, or this user and password, is not known.")
    if Role.OPERATE not in caller.roles:
        raise ForbiddenError(f"{caller.name} may not do this: it needs the role {Role.OPERATE}")
    g.caller = caller
    refuse_browsers(needs_json=False)
    if authenticator.is_open and request.headers.get("Origin") != f"{request.scheme}://{request.host}":
        raise ForbiddenError("without tokens this form is taken from this page alone; open it in a browser of today")
    return caller


# -- what is shown


def _run_view(run: Run) -> dict[str, Any]:
    plan, context = run.plan, run.plan.context
    annotations = context.get("annotations", {})
    done = ((step, run.step(step.key)) for step in plan.steps)
    return {
        "id": plan.run_id,
        "playbook": plan.playbook,
        "case": plan.case,
        "owner": plan.owner,
        "per": dict(plan.per),
        "labels": dict(sorted(plan.labels.items())),
        "annotations": dict(annotations) if isinstance(annotations, Mapping) else {},
        "done": [
            f"{step.describes}: {state.outcome.value if state.outcome is not None else 'under way'}"
            for step, state in done
            if state.attempts
        ],
    }


def _asked_view(asked: Asked) -> dict[str, Any]:
    plan = asked.run.plan
    step = asked.run.find(asked.key)
    if step is not None:
        why = f"its playbook asks before the step {step.name}"
    elif asked.rung:
        why = f"its playbook asks before it acts, on each rung: this is rung {asked.rung} of {plan.top_rung}"
    else:
        why = "its playbook asks before it acts"
    return {
        "number": asked.number,
        "why": why,
        "ask": list(asked.question.ask),
        "asked_at": utc_text(asked.question.asked_at),
        "expires_at": utc_text(asked.expires_at),
        "steps": [_step_view(one) for one in asked.steps],
        "targets": [_target_text(target) for target in asked.targets],
        "affects": [_target_text(target) for target in asked.affects],
    }


def _step_view(step: PlannedStep) -> dict[str, Any]:
    params = {**step.params, **step.late_params}
    return {
        "name": step.name,
        "describes": step.describes,
        "action": step.action,
        "params": {name: json.dumps(value, ensure_ascii=False) for name, value in params.items()},
        "condition": step.condition if step.runs is Runs.LATE else "",
        "is_disruptive": step.is_disruptive,
    }


def _target_text(target: Mapping[str, Any]) -> str:
    facts = [f"{name} {target[name]}" for name in ("state", "owner") if target.get(name)]
    return f"{target.get('ref', '')} ({', '.join(facts)})" if facts else str(target.get("ref", ""))


# -- pages


def _sign_in_page(problem: str = "", status: int = 200) -> Response:
    authenticator: Authenticator = current_app.extensions[EXTENSION]
    return _page(
        "sign_in.html", status, problem=problem, is_open=authenticator.is_open, has_users=authenticator.has_users
    )


def _problem_page(problem: str, status: int) -> Response:
    return _page("problem.html", status, problem=redact(problem))


def _page(template: str, status: int = 200, **values: Any) -> Response:
    body = _PAGES.get_template(template).render(style=_STYLE, **values)
    return Response(body, status, _HEADERS, mimetype="text/html")
