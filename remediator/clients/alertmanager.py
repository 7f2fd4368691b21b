"""Alertmanager's API, looked at and silenced: the adapter of ``ports.AlertmanagerReader`` and ``AlertmanagerWriter``.

Takes a base URL → what it has. ``Alertmanager`` must never be able to change anything: it has GET, and no more. Muted
alerts look active in the API's own ``state`` for some versions and kinds of mute, so what mutes an alert is read from
the lists, not from the state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import quote

import requests.exceptions
import urllib3.exceptions

from remediator.clients.http import STATUSES, Answer, Failed, Login, Neighbour, classify
from remediator.clients.ports import ListedAlert, ListedSilence
from remediator.core.action import JsonValue
from remediator.core.units import cut
from remediator.errors import InvalidTargetError, TargetNotFoundError, TransientActionError, UnknownEffectError

CONNECT_S: Final = 3.0
ANSWER_S: Final = 10.0
"""From the question to the last byte: ten thousand alerts are some 10 MB, a second's work, and runs' turns wait."""

MAX_BYTES: Final = 256 * 2**20
"""More is no list of alerts that one engine could mean to handle."""

STARTS_BEFORE: Final = timedelta(minutes=5)
"""A silence begins at once where our clock is as much ahead: Alertmanager takes a start in the past for now."""

NOT_FOUND: Final = "silence not found"
"""What 0.25 says of a silence that it has not, with a 500; later ones say 404."""

_VENDOR_TEXT = 300


class Alertmanager:
    """One Alertmanager, looked at. Thread-safe; connects at each call.

    Source: Alertmanager API v2, GET /alerts, /silences and /status (0.25 to 0.34).
    """

    def __init__(self, url: str, login: Login | None = None) -> None:
        self._neighbour = Neighbour(
            name="Alertmanager",
            url=url.rstrip("/"),
            settings="alertmanager",
            connect_s=CONNECT_S,
            answer_s=ANSWER_S,
            max_bytes=MAX_BYTES,
            login=login or Login(),
        )

    def alerts(self) -> tuple[ListedAlert, ...]:
        """See ``ports.AlertmanagerReader.alerts``."""
        answer = self._get("/api/v2/alerts?active=true&silenced=true&inhibited=true&unprocessed=true")
        try:
            return tuple(_listed(alert) for alert in answer)
        except (KeyError, TypeError, AttributeError) as error:
            raise self._neighbour.no_answer(Failed.BROKEN, "no list of alerts") from error

    def started_at(self) -> datetime:
        """See ``ports.AlertmanagerReader.started_at``."""
        answer = self._get("/api/v2/status")
        try:
            return datetime.fromisoformat(answer["uptime"]).astimezone(UTC)
        except (KeyError, TypeError, ValueError) as error:
            raise self._neighbour.no_answer(Failed.BROKEN, "no uptime") from error

    def silences(self) -> tuple[ListedSilence, ...]:
        """See ``ports.AlertmanagerReader.silences``."""
        answer = self._get("/api/v2/silences")
        try:
            return tuple(_silence(silence) for silence in answer)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise self._neighbour.no_answer(Failed.BROKEN, "no list of silences") from error

    def _get(self, path: str) -> Any:
        answer = self._neighbour.ask("GET", path)
        if answer.status != 200:
            failed = STATUSES.get(answer.status, Failed.BROKEN)
            raise self._neighbour.no_answer(failed, f"HTTP {answer.status}")
        if (said := answer.json()) is None:
            raise self._neighbour.no_answer(Failed.BROKEN, "no JSON")
        return said


class SilencingAlertmanager(Alertmanager):
    """One Alertmanager, silenced. Source: Alertmanager API v2, POST /silences, DELETE /silence/{id}."""

    def create_silence(
        self, labels: Mapping[str, str], *, duration: timedelta, created_by: str, comment: str, deadline_s: float
    ) -> ListedSilence:
        """See ``ports.AlertmanagerWriter.create_silence``."""
        now = datetime.now(UTC)
        ends_at = now + duration
        answer = self._act(
            "POST",
            "/api/v2/silences",
            deadline_s,
            {
                "matchers": [
                    {"name": name, "value": value, "isRegex": False, "isEqual": True} for name, value in labels.items()
                ],
                "startsAt": (now - STARTS_BEFORE).isoformat(),
                "endsAt": ends_at.isoformat(),
                "createdBy": created_by,
                "comment": comment,
            },
        )
        said = answer.json()
        if not isinstance(said, dict) or not said.get("silenceID"):
            raise UnknownEffectError(f"{self._shown} took a silence and gave no id", target=self._neighbour.url)
        return ListedSilence(
            id=str(said["silenceID"]),
            labels=dict(labels),
            status="active",
            ends_at=ends_at,
            updated_at=now,
            created_by=created_by,
            comment=comment,
        )

    def expire_silence(self, silence_id: str, *, deadline_s: float) -> None:
        """See ``ports.AlertmanagerWriter.expire_silence``."""
        self._act("DELETE", f"/api/v2/silence/{quote(silence_id, safe='')}", deadline_s)

    @property
    def _shown(self) -> str:
        return f"{self._neighbour.name} at {self._neighbour.url}"

    def _act(self, method: str, path: str, deadline_s: float, body: JsonValue | None = None) -> Answer:
        neighbour = replace(self._neighbour, answer_s=max(1.0, deadline_s - CONNECT_S))
        try:
            answer = neighbour.ask(method, path, json=body)
        except TransientActionError as error:
            if _may_have_arrived(error.__cause__):
                raise UnknownEffectError(str(error), target=neighbour.url) from error
            raise
        if answer.status == 200:
            return answer
        what = f"HTTP {answer.status}"
        if method == "DELETE" and (answer.status == 404 or answer.json() == NOT_FOUND):
            raise TargetNotFoundError(f"{self._shown} has no such silence", target=neighbour.url)
        if answer.status >= 500:  # its own, after it began; or a proxy's, which may have passed it on
            raise UnknownEffectError(f"{self._shown} did not say that it was done ({what})", target=neighbour.url)
        if answer.status in STATUSES or answer.status == 429 or answer.status < 400:
            raise neighbour.no_answer(STATUSES.get(answer.status, Failed.BROKEN), what)
        text = cut(answer.body.decode("utf-8", "replace").strip(), _VENDOR_TEXT)
        raise InvalidTargetError(f"{self._shown} refuses it ({what}): {text}", target=neighbour.url)


def _may_have_arrived(cause: BaseException | None) -> bool:
    """Whether a request that failed for this cause was sent; None = its answer was late or too long."""
    if cause is None:
        return True
    if classify(cause) is Failed.SETUP:
        return False
    return not any(isinstance(one, _NOT_SENT) for one in _inside(cause))


_NOT_SENT = (
    requests.exceptions.ConnectTimeout,
    requests.exceptions.ProxyError,
    urllib3.exceptions.NewConnectionError,  # also a name that does not resolve
    urllib3.exceptions.ConnectTimeoutError,
)


def _inside(error: object) -> Iterator[BaseException]:
    """The exception and those it was made of, as urllib3 and requests wrap them: as argument or as ``reason``."""
    if isinstance(error, BaseException):
        yield error
        for part in (*error.args, getattr(error, "reason", None)):
            yield from _inside(part)


def _listed(alert: Any) -> ListedAlert:
    status = alert["status"]
    silenced_by = tuple(str(id_) for id_ in status.get("silencedBy") or ())
    is_inhibited = bool(status.get("inhibitedBy") or status.get("mutedBy"))
    return ListedAlert(
        labels=dict(alert["labels"]),
        annotations=dict(alert.get("annotations") or {}),
        starts_at=str(alert.get("startsAt", "")),
        ends_at=str(alert.get("endsAt", "")),
        generator_url=str(alert.get("generatorURL", "")),
        fingerprint=str(alert.get("fingerprint", "")),
        is_active=status["state"] == "active" and not silenced_by and not is_inhibited,
        silenced_by=silenced_by,
        is_inhibited=is_inhibited,
        receivers=tuple(str(receiver["name"]) for receiver in alert.get("receivers") or ()),
    )


def _silence(silence: Any) -> ListedSilence:
    matchers = silence.get("matchers") or ()
    are_values = all(not matcher.get("isRegex") and matcher.get("isEqual", True) for matcher in matchers)
    return ListedSilence(
        id=str(silence["id"]),
        labels={str(matcher["name"]): str(matcher["value"]) for matcher in matchers} if are_values else {},
        status=str(silence["status"]["state"]),
        ends_at=datetime.fromisoformat(silence["endsAt"]).astimezone(UTC),
        updated_at=datetime.fromisoformat(silence["updatedAt"]).astimezone(UTC),
        created_by=str(silence.get("createdBy", "")),
        comment=str(silence.get("comment", "")),
    )
