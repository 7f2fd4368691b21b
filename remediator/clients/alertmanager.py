"""Alertmanager's API, looked at: the adapter of ``ports.AlertmanagerReader``.

Takes a base URL → what it has. Only GETs; never a silence, never an alert. Muted alerts look active in the API's own
``state`` for some versions and kinds of mute, so what mutes an alert is read from the lists, not from the state.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

import requests
import requests.exceptions
import urllib3.exceptions

from remediator.clients.ports import ListedAlert
from remediator.errors import AccessDeniedError, ActionError, SettingsError, TransientActionError

CONNECT_S: Final = 3.0
ANSWER_S: Final = 10.0
"""From the question to the last byte: ten thousand alerts are some 10 MB, a second's work, and runs' turns wait."""

MAX_BYTES: Final = 256 * 2**20
"""More is no list of alerts that one engine could mean to handle."""

_CHUNK: Final = 2**16


class Failed(StrEnum):
    """Why there is no answer, in words for people."""

    AWAY = "cannot be reached"
    SILENT = "did not answer in time"
    BROKEN = "gives no proper answer"
    DENIED = "does not let us in; check alertmanager.token_file, or username and password_file"
    SETUP = "cannot be asked with these settings; check alertmanager.urls and tls_ca"


ERRORS: Final[Mapping[type[BaseException], Failed]] = {
    requests.exceptions.RequestException: Failed.BROKEN,
    requests.exceptions.HTTPError: Failed.BROKEN,
    requests.exceptions.ConnectionError: Failed.AWAY,
    requests.exceptions.ProxyError: Failed.AWAY,
    requests.exceptions.SSLError: Failed.SETUP,
    requests.exceptions.Timeout: Failed.SILENT,
    requests.exceptions.ConnectTimeout: Failed.AWAY,
    requests.exceptions.ReadTimeout: Failed.SILENT,
    requests.exceptions.URLRequired: Failed.SETUP,
    requests.exceptions.TooManyRedirects: Failed.BROKEN,
    requests.exceptions.MissingSchema: Failed.SETUP,
    requests.exceptions.InvalidSchema: Failed.SETUP,
    requests.exceptions.InvalidURL: Failed.SETUP,
    requests.exceptions.InvalidProxyURL: Failed.SETUP,
    requests.exceptions.InvalidHeader: Failed.SETUP,
    requests.exceptions.InvalidJSONError: Failed.BROKEN,
    requests.exceptions.JSONDecodeError: Failed.BROKEN,
    requests.exceptions.ChunkedEncodingError: Failed.BROKEN,
    requests.exceptions.ContentDecodingError: Failed.BROKEN,
    requests.exceptions.StreamConsumedError: Failed.BROKEN,
    requests.exceptions.RetryError: Failed.BROKEN,
    requests.exceptions.UnrewindableBodyError: Failed.BROKEN,
    # from under requests: what breaks while we read the answer ourselves
    urllib3.exceptions.ReadTimeoutError: Failed.SILENT,
    urllib3.exceptions.HTTPError: Failed.BROKEN,
    # and what requests lets through: a CA file that is not there, a URL that cannot be written
    OSError: Failed.SETUP,
    ValueError: Failed.SETUP,
}
"""What each exception says; of a class that is not here, its nearest base counts."""

STATUSES: Final[Mapping[int, Failed]] = {
    401: Failed.DENIED,
    403: Failed.DENIED,
    407: Failed.DENIED,
    408: Failed.SILENT,
    # a proxy's, which asked it in vain
    502: Failed.AWAY,
    503: Failed.AWAY,
    504: Failed.SILENT,
}
"""Of answers other than 200; all others are ``BROKEN``: a redirect, a wrong path, an error of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """How to be let in; all empty = no login.

    Attributes:
        token, password: read anew at each call, so that rotation needs no restart.
        tls_ca: file of the CA, "" = the system's.
    """

    token: Callable[[], str] | None = None
    username: str = ""
    password: Callable[[], str] | None = None
    tls_ca: str = ""


class Alertmanager:
    """One Alertmanager. Thread-safe; connects at each call.

    Source: Alertmanager API v2, GET /alerts and GET /status (0.25 to 0.34).
    """

    def __init__(self, url: str, login: Login | None = None) -> None:
        self._url = url.rstrip("/")
        self._login = login or Login()

    def alerts(self) -> tuple[ListedAlert, ...]:
        """See ``ports.AlertmanagerReader.alerts``."""
        wanted = {"active": "true", "silenced": "true", "inhibited": "true", "unprocessed": "true"}
        answer = self._get("/api/v2/alerts", wanted)
        try:
            return tuple(_listed(alert) for alert in answer)
        except (KeyError, TypeError, AttributeError) as error:
            raise self._no_answer(Failed.BROKEN, "no list of alerts") from error

    def started_at(self) -> datetime:
        """See ``ports.AlertmanagerReader.started_at``."""
        answer = self._get("/api/v2/status", {})
        try:
            return datetime.fromisoformat(answer["uptime"]).astimezone(UTC)
        except (KeyError, TypeError, ValueError) as error:
            raise self._no_answer(Failed.BROKEN, "no uptime") from error

    def _get(self, path: str, params: Mapping[str, str]) -> Any:
        login = self._login
        try:
            headers = {"Authorization": f"Bearer {login.token()}"} if login.token is not None else {}
            auth = (login.username, login.password()) if login.password is not None else None
        except SettingsError as error:
            raise AccessDeniedError(str(error), target=self._url) from error
        until = time.monotonic() + ANSWER_S
        try:
            with (
                requests.Session() as session,
                session.get(
                    self._url + path,
                    params=dict(params),
                    headers={**headers, "Accept-Encoding": "identity"},
                    auth=auth,
                    timeout=(CONNECT_S, ANSWER_S),
                    allow_redirects=False,
                    verify=login.tls_ca or True,
                    stream=True,
                ) as answer,
            ):
                if answer.status_code != 200:
                    failed = STATUSES.get(answer.status_code, Failed.BROKEN)
                    raise self._no_answer(failed, f"HTTP {answer.status_code}")
                body = self._read(answer, until)
        except tuple(ERRORS) as error:
            raise self._no_answer(classify(error), type(error).__name__) from error
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            raise self._no_answer(Failed.BROKEN, "no JSON") from error

    def _read(self, answer: requests.Response, until: float) -> bytes:
        """The whole body, if it is not too long and comes in time: read as it comes, because one that drips is never
        late for a single read."""
        body = bytearray()
        while chunk := answer.raw.read1(_CHUNK):
            body += chunk
            if len(body) > MAX_BYTES:
                raise self._no_answer(Failed.BROKEN, f"more than {MAX_BYTES // 2**20} MiB")
            if time.monotonic() > until:
                raise self._no_answer(Failed.SILENT, f"not whole after {ANSWER_S:.0f} s")
        return bytes(body)

    def _no_answer(self, failed: Failed, what: str) -> ActionError:
        kind = AccessDeniedError if failed is Failed.DENIED else TransientActionError
        return kind(f"Alertmanager {self._url} {failed.value} ({what})", target=self._url)


def classify(error: BaseException) -> Failed:
    """What one of these exceptions says. KeyError: the table has no base of it."""
    return ERRORS[next((kind for kind in type(error).__mro__ if kind in ERRORS), type(error))]


def _listed(alert: Any) -> ListedAlert:
    status = alert["status"]
    silenced, inhibited = bool(status.get("silencedBy")), bool(status.get("inhibitedBy") or status.get("mutedBy"))
    return ListedAlert(
        labels=dict(alert["labels"]),
        annotations=dict(alert.get("annotations") or {}),
        starts_at=str(alert.get("startsAt", "")),
        ends_at=str(alert.get("endsAt", "")),
        generator_url=str(alert.get("generatorURL", "")),
        fingerprint=str(alert.get("fingerprint", "")),
        is_active=status["state"] == "active" and not silenced and not inhibited,
        muted_by="silenced" if silenced else "inhibited" if inhibited else "",
        receivers=tuple(str(receiver["name"]) for receiver in alert.get("receivers") or ()),
    )
