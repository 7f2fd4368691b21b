"""Alertmanager's API, looked at: the adapter of ``ports.AlertmanagerReader``.

Takes a base URL → what it has. Only GETs; never a silence, never an alert. Muted alerts look active in the API's own
``state`` for some versions and kinds of mute, so what mutes an alert is read from the lists, not from the state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import requests

from remediator.clients.ports import ListedAlert
from remediator.errors import AccessDeniedError, ActionError, SettingsError, TransientActionError

CONNECT_S: Final = 3.0
ANSWER_S: Final = 10.0
"""Ten thousand alerts are some 10 MB, a second's work; a run's turn waits for the answer."""

MAX_BYTES: Final = 256 * 2**20
"""More is no list of alerts that one engine could mean to handle."""


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
            raise self._improper() from error

    def started_at(self) -> datetime:
        """See ``ports.AlertmanagerReader.started_at``."""
        answer = self._get("/api/v2/status", {})
        try:
            return datetime.fromisoformat(answer["uptime"]).astimezone(UTC)
        except (KeyError, TypeError, ValueError) as error:
            raise self._improper() from error

    def _get(self, path: str, params: Mapping[str, str]) -> Any:
        login = self._login
        try:
            headers = {"Authorization": f"Bearer {login.token()}"} if login.token is not None else {}
            auth = (login.username, login.password()) if login.password is not None else None
        except SettingsError as error:
            raise AccessDeniedError(str(error), target=self._url) from error
        try:
            with requests.Session() as session:
                session.trust_env = False  # its proxies and .netrc are for the web
                answer = session.get(
                    self._url + path,
                    params=dict(params),
                    headers=headers,
                    auth=auth,
                    timeout=(CONNECT_S, ANSWER_S),
                    allow_redirects=False,
                    verify=login.tls_ca or True,
                )
        except requests.RequestException as error:
            raise TransientActionError(
                f"Alertmanager {self._url} cannot be reached ({type(error).__name__})", target=self._url
            ) from error
        if answer.status_code in (401, 403):
            raise AccessDeniedError(f"Alertmanager {self._url} does not let us in", target=self._url)
        if answer.status_code != 200 or len(answer.content) > MAX_BYTES:
            raise self._improper(f"HTTP {answer.status_code}")
        try:
            return answer.json()
        except ValueError as error:
            raise self._improper() from error

    def _improper(self, what: str = "no list of alerts") -> ActionError:
        return TransientActionError(f"Alertmanager {self._url} gives no proper answer ({what})", target=self._url)


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
