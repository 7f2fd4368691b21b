"""Stage 2, decode: the bytes of one delivery → ``AlertGroup``. After it nobody sees the payload.

Lenient on keys that are unknown, absent or null; strict on shape; each alert on its own: one that cannot be used
becomes a ``BadAlert`` and the others go on. The whole body is refused only for what no retry can mend: not UTF-8, not
JSON, nested too deeply, NaN or an infinity, half of a surrogate pair, another version, a custom payload. It must never
raise anything but ``DeliveryError``: Alertmanager would send a poisonous body again for ever. Alertmanager logs the
refusal's text, so that never repeats what the body said.

A key that stands twice counts as JSON has it in practice, the last one; Alertmanager never sends that. The body's size
is the door's concern, and its time is linear in it.

Source: Alertmanager webhook version "4" (template.Data, webhook.Message), 0.25 to 0.35.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import NoReturn

from remediator.core.alert import Alert, AlertGroup, AlertStatus, BadAlert, Labels, fingerprint, label_key
from remediator.core.units import cut
from remediator.errors import DecodeError, UnsupportedVersionError

_VERSION = "4"

# Alertmanager nests three deep. A limit of our own, because Python's depends on how deep the caller stands.
_MAX_DEPTH = 32

# Everything below 2**53 is exact in every JSON reader; the audit holds nothing above.
_MAX_INT = 2**53 - 1

# Half of a surrogate pair can come in by an escape alone: UTF-8 has no bytes for it.
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")

# Go's regexp.QuoteMeta puts a backslash before these.
_QUOTED_META = re.compile(r"\\([\\.+*?()|\[\]{}^$])")

_RFC3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?(?:[Zz]|[+-][0-9]{2}:[0-9]{2})"
)


def decode(body: bytes, received_at: datetime) -> AlertGroup:
    """Read one webhook body.

    Args:
        body: as it came, already under the door's size limit.
        received_at: our clock, aware UTC.

    Returns:
        The group; its ``alerts`` and ``bad_alerts`` together are all members, also when every one is bad.

    Raises:
        UnsupportedVersionError: another version, or a custom payload.
        DecodeError: not a webhook body at all.

    Source: Alertmanager webhook version "4".
    """
    payload = _parse(body)
    if not isinstance(payload, dict):
        raise DecodeError("the body is JSON but no object: this address takes Alertmanager's webhook, version 4")
    if "version" not in payload or "alerts" not in payload:
        raise UnsupportedVersionError(
            'the body has no "version" or no "alerts": probably a custom payload, which replaces Alertmanager\'s own; '
            'remove "payload" from this receiver\'s webhook_configs'
        )
    if payload["version"] != _VERSION:
        raise UnsupportedVersionError('the body\'s "version" is not "4", the only one that is understood here')
    members = payload["alerts"]
    if not isinstance(members, list):
        raise DecodeError('"alerts" is not a list')

    alerts: list[Alert] = []
    bad_alerts: list[BadAlert] = []
    for index, member in enumerate(members):
        match _alert(member):
            case str() as problem:
                bad_alerts.append(BadAlert(index=index, problem=problem))
            case alert:
                alerts.append(alert)
    return AlertGroup(
        received_at=received_at,
        receiver=_QUOTED_META.sub(r"\1", _text(payload, "receiver")),
        group_key=_text(payload, "groupKey"),
        group_labels=_texts(payload, "groupLabels"),
        common_labels=_texts(payload, "commonLabels"),
        common_annotations=_texts(payload, "commonAnnotations"),
        external_url=_text(payload, "externalURL"),
        n_truncated=_count(payload, "truncatedAlerts"),
        alerts=tuple(alerts),
        bad_alerts=tuple(bad_alerts),
    )


def _parse(body: bytes) -> object:
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DecodeError(f"the body is not UTF-8 at byte {error.start}") from error
    try:
        payload: object = _JSON.decode(text)
    except json.JSONDecodeError as error:
        raise DecodeError(f"the body is not JSON at line {error.lineno}, column {error.colno}: {error.msg}") from error
    except RecursionError as error:
        raise _too_deep() from error
    if body.count(b"[") + body.count(b"{") > _MAX_DEPTH:
        _check_depth(payload)
    if _SURROGATE_ESCAPE.search(body):
        try:
            json.dumps(payload, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError as error:
            raise DecodeError(
                "the body holds half of a surrogate pair (\\ud800 to \\udfff), which is no text"
            ) from error
    return payload


def _refuse_constant(constant: str) -> NoReturn:
    raise DecodeError(f"the body is not JSON: it holds {constant}")


def _parse_int(digits: str) -> int:
    # Python refuses thousands of digits with an error of its own, and nothing here needs a large number.
    if len(digits) < len(str(_MAX_INT)):
        return int(digits)
    return -_MAX_INT if digits.startswith("-") else _MAX_INT


_JSON = json.JSONDecoder(parse_constant=_refuse_constant, parse_int=_parse_int)


def _too_deep() -> DecodeError:
    return DecodeError(f"the body is nested more than {_MAX_DEPTH} deep")


def _check_depth(payload: object) -> None:
    level = [payload]
    for _ in range(_MAX_DEPTH):
        level = [
            value
            for container in level
            if isinstance(container, dict | list)
            for value in (container.values() if isinstance(container, dict) else container)
            if isinstance(value, dict | list)
        ]
        if not level:
            return
    raise _too_deep()


def _alert(member: object) -> Alert | str:
    """The alert, or why it is none."""
    if not isinstance(member, dict):
        return f"the alert is {_kind(member)}, not an object"
    status = member.get("status")
    if status not in ("firing", "resolved"):
        return 'its "status" is neither "firing" nor "resolved"'
    labels = member.get("labels")
    if labels is None:
        labels = {}
    if not isinstance(labels, dict):
        return f'its "labels" are {_kind(labels)}, not an object'
    for name, value in labels.items():
        if not isinstance(value, str):
            return f'its label "{cut(name, 80)}" is {_kind(value)}, not text'
    starts_at_text = _text(member, "startsAt")
    ends_at_text = _text(member, "endsAt")
    return Alert(
        status=AlertStatus(status),
        labels=labels,
        annotations=_texts(member, "annotations"),
        starts_at=_moment(starts_at_text),
        ends_at=_moment(ends_at_text),
        starts_at_text=starts_at_text,
        ends_at_text=ends_at_text,
        generator_url=_text(member, "generatorURL"),
        fingerprint=_text(member, "fingerprint") or fingerprint(labels),
        label_key=label_key(labels),
    )


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case list():
            return "a list"
        case _:
            return "an object"


def _text(record: dict[str, object], key: str) -> str:
    value = record.get(key)
    return value if isinstance(value, str) else ""


def _texts(record: dict[str, object], key: str) -> Labels:
    """The map's members that are text. What is left out is missing to a template, which refuses before any act."""
    value = record.get(key)
    if not isinstance(value, dict):
        return {}
    return {name: text for name, text in value.items() if isinstance(text, str)}


def _count(record: dict[str, object], key: str) -> int:
    value = record.get(key)
    return min(value, _MAX_INT) if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _moment(text: str) -> datetime | None:
    """The moment in UTC, None for what is absent, no RFC 3339, or Go's zero time (which an offset may move)."""
    if not _RFC3339.fullmatch(text):
        return None
    try:
        moment = datetime.fromisoformat(text.upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return moment if moment.year > 1 else None
