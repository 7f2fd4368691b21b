"""What ``doctor`` asks of others: Docker hosts, the engine itself, Alertmanagers, Prometheis. Looks only.

The one POST, to the engine's own webhook, is empty and refused; it leaves a ``delivery_rejected`` in the audit.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import requests

from remediator.app import fleets_of, prometheus_reader, read_only_clients
from remediator.cli.api_client import CONNECT_TIMEOUT_S, cause, local_url
from remediator.cli.finding import Finding, ok, problem, warning
from remediator.cli.sender_config import WEBHOOK_PATH, judge_sender
from remediator.cli.terminal import shown_url
from remediator.core.units import print_duration
from remediator.engine.conditions import Conditions
from remediator.errors import ActionError, SettingsError, TargetNotFoundError
from remediator.settings import AlertmanagerSettings, PrometheusServerSettings, Settings, read_secret_file

ANSWER_TIMEOUT_S = 5.0
"""A neighbour that takes longer to say that it is well is not well."""

SKEW_WARNING_S = 5
"""A Date header has whole seconds and the answer was under way for up to one more."""

SKEW_PROBLEM_S = 60
"""Alerts' times are compared with ours; a minute is a tenth of common holds and cooldowns."""

_NOBODY = "0" * 64
"""The id of a container that does not exist: "not found" shows that we may look. A proxy of the socket may let through
listed names alone, and every id."""


def check_docker(settings: Settings) -> Iterator[Finding]:
    """Does every Docker host answer, and may we look?"""
    if not settings.docker.hosts:
        yield warning(
            "docker", "no host is configured: docker.… actions have nothing to act on", "set docker.hosts.NAME.url"
        )
    for name, reader in read_only_clients(settings).dockers.items():
        check = f"docker {name}"
        try:
            version = reader.version()
            try:
                reader.inspect(_NOBODY)
            except TargetNotFoundError:
                yield ok(check, f"{version}, may inspect")
        except ActionError as error:
            yield problem(
                check,
                str(error),
                f"docker.hosts.{name}.url is {settings.docker.hosts[name].url}: is it right, up, and may we?",
            )


def our_urls(settings: Settings) -> tuple[str, ...]:
    """Where the engine is to be reached: ``public_url`` first, then where it listens.

    With TLS its certificate names the public address and not loopback, so that alone is asked.
    """
    is_enough = bool(settings.public_url and settings.tls_cert)
    local = (local_url(settings),) if settings.listen_port and not is_enough else ()
    return tuple(dict.fromkeys((*((settings.public_url,) if settings.public_url else ()), *local)))


def check_receiver(url: str, cert: str | tuple[str, str] | None = None) -> Iterator[Finding]:
    """Does the engine answer there itself, a POST too, without a redirect?

    Args:
        cert: file or files of a client certificate to show it.
    """
    check = f"engine {shown_url(url)}"
    healthz = _fetch("GET", f"{url}/healthz", cert=cert)
    if isinstance(healthz, str):
        yield warning(check, f"does not answer ({healthz})", "start it with remediator serve, then look again")
        return
    webhook = _fetch("POST", url + WEBHOOK_PATH, cert=cert)
    if isinstance(webhook, str):
        yield problem(check, f"its webhook does not answer ({webhook})", "look at the engine's log")
        return
    for answer in (healthz, webhook):
        if 300 <= answer.status_code < 400:
            yield problem(
                check,
                f"redirects to {answer.headers.get('Location', 'somewhere else')}: Alertmanager follows with a GET, "
                "takes its 200 for a delivery, and the alert is lost",
                "let the proxy pass /api/v1/alertmanager without its login; tokens guard it",
            )
            return
    if healthz.status_code != 200:
        yield problem(check, f"/healthz answers {healthz.status_code}", "is this address the engine's?")
    elif webhook.status_code not in (400, 401):
        yield problem(
            check,
            f"an empty POST to {WEBHOOK_PATH} is answered with {webhook.status_code}, not with 400 or 401",
            "is this address the engine's?",
        )
    else:
        yield ok(check, f"answers; refuses an empty POST with {webhook.status_code}, without a redirect")
    yield from _check_skew(check, healthz)


def check_alertmanager(url: str, settings: Settings) -> Iterator[Finding]:
    """Is it there, and does it deliver to us as it should? Only one that the settings name gets the login for it."""
    check = f"alertmanager {shown_url(url)}"
    try:
        login = _login(settings.alertmanager) if url.rstrip("/") in settings.alertmanager.urls else {}
    except SettingsError as error:
        yield problem(check, str(error), "mend alertmanager.token_file or password_file")
        return
    answer = _fetch("GET", f"{url.rstrip('/')}/api/v2/status", **login)
    body = _json(answer)
    if isinstance(answer, str) or body is None:
        yield problem(check, f"does not answer its API ({_what(answer)})", "is the address right, and Alertmanager up?")
        return
    yield ok(check, f"Alertmanager {_text_at(body, 'versionInfo', 'version')}")
    yield from _check_skew(check, answer)
    yield from judge_sender(check, _text_at(body, "config", "original"), our_urls(settings), settings.expire_after)


def server_at(url: str, settings: Settings) -> PrometheusServerSettings:
    """The configured Prometheus at this URL, with its login, or else one without."""
    known = (server for server in settings.prometheus.servers.values() if server.url == url.rstrip("/"))
    return next(known, PrometheusServerSettings.model_construct(url=url.rstrip("/")))


def check_prometheus(name: str, server: PrometheusServerSettings) -> Iterator[Finding]:
    """Does it answer queries, and does its clock agree with ours?"""
    check = f"prometheus {name}"
    try:
        prometheus_reader(name, server).query("vector(1)")
        login = _login(server)
    except (ActionError, SettingsError) as error:
        said = str(error).replace(server.url, shown_url(server.url))
        yield problem(check, said, "is the address right, and Prometheus up?")
        return
    answer = _fetch("GET", f"{server.url}/api/v1/status/buildinfo", **login)
    version = _text_at(_json(answer) or {}, "data", "version")  # a proxy may let queries through and nothing else
    yield ok(check, f"{version or 'it'} answers queries")
    if not isinstance(answer, str):
        yield from _check_skew(check, answer)


def check_fleets(settings: Settings) -> Iterator[Finding]:
    """Does each fleet's query give its size?"""
    fleets = settings.to_fleets()
    sizes = fleets_of(Conditions(read_only_clients(settings).prometheus), settings)
    for name, found in sizes.of(fleets.values(), datetime.now(UTC)).items():
        check = f"fleet {name}"
        if found.size is None:
            advice = f"until then whatever asks for a share of it is refused; mend fleets.{name}.query, or give a size"
            yield problem(check, found.problem, advice)
        else:
            yield ok(check, f"{found.size} of kind {fleets[name].kind.value}")


def _check_skew(check: str, answer: requests.Response) -> Iterator[Finding]:
    try:
        theirs = parsedate_to_datetime(answer.headers["Date"])
    except (KeyError, ValueError):
        return
    skew_s = abs(time.time() - theirs.timestamp())
    if skew_s > SKEW_WARNING_S:
        make = problem if skew_s > SKEW_PROBLEM_S else warning
        yield make(check, f"its clock is {print_duration(timedelta(seconds=int(skew_s)))} from ours", "run NTP on both")


def _login(wanted: AlertmanagerSettings | PrometheusServerSettings) -> dict[str, Any]:
    """How to be let in, as arguments of ``_fetch``. Raises SettingsError: a file cannot be read."""
    login: dict[str, Any] = {"verify": str(wanted.tls_ca or "") or True}
    if wanted.token_file is not None:
        login["headers"] = {"Authorization": f"Bearer {read_secret_file(wanted.token_file)[0]}"}
    if wanted.password_file is not None:
        login["auth"] = (wanted.username, read_secret_file(wanted.password_file)[0])
    return login


def _fetch(method: str, url: str, *, headers: Mapping[str, str] | None = None, **how: Any) -> requests.Response | str:
    """The answer, redirects not followed; or why there is none."""
    headers = {"Content-Type": "application/json", **(headers or {})}
    timeout = (CONNECT_TIMEOUT_S, ANSWER_TIMEOUT_S)
    try:
        return requests.request(method, url, headers=headers, timeout=timeout, allow_redirects=False, **how)
    except (OSError, UnicodeError) as error:  # requests' own are OSErrors
        return cause(error)


def _json(answer: requests.Response | str) -> dict[str, Any] | None:
    if isinstance(answer, str) or answer.status_code != 200:
        return None
    try:
        body = answer.json()
    except requests.JSONDecodeError:
        return None
    return body if isinstance(body, dict) else None


def _text_at(body: dict[str, Any], outer: str, inner: str) -> str:
    """A text in a map in the answer, "" when it is not there."""
    part = body.get(outer)
    return str(part.get(inner, "")) if isinstance(part, dict) else ""


def _what(answer: requests.Response | str) -> str:
    return answer if isinstance(answer, str) else f"HTTP {answer.status_code}"
