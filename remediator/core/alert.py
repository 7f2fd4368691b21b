"""What Alertmanager sent, after decode. Everything later in the flow sees these values, never the payload."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

Labels = Mapping[str, str]


class AlertStatus(StrEnum):
    """Of one alert; a group's own status says nothing about its members."""

    FIRING = "firing"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True, kw_only=True)
class RawDelivery:
    """One POST, as it came, before anything has read it.

    Attributes:
        received_at: our clock, aware UTC.
        source: the peer's address as text ("10.0.0.5"), or "cli" for one made by hand.
        body: the HTTP body as it came, bytes.
        sha256: of the body, hex.
    """

    received_at: datetime
    source: str
    body: bytes
    sha256: str = field(init=False)

    def __post_init__(self) -> None:
        # Here, and not where it is written: a large body would hold up the one thread that writes.
        object.__setattr__(self, "sha256", hashlib.sha256(self.body).hexdigest())


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One label set, firing or resolved.

    Attributes:
        labels: as sent; case and UTF-8 names are kept.
        annotations: as sent.
        starts_at: aware UTC, None when absent or Go's zero time. Moves backwards between deliveries: no identity.
        ends_at: aware UTC, None when absent or Go's zero time.
        starts_at_text: as sent (nanoseconds are lost in ``starts_at``), "" when absent.
        ends_at_text: as sent, "" when absent.
        generator_url: "" when absent.
        fingerprint: the sender's, or ours by Prometheus' algorithm when it sent none; shown to people.
        label_key: SHA-256 hex of the label set (``label_key``): the identity of the episode.
    """

    status: AlertStatus
    labels: Labels
    annotations: Labels
    starts_at: datetime | None
    ends_at: datetime | None
    starts_at_text: str
    ends_at_text: str
    generator_url: str
    fingerprint: str
    label_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BadAlert:
    """A member of a group that is not an alert; the others are handled.

    Attributes:
        index: its place in the delivery's ``alerts``, from 0.
        problem: what is wrong, for people.
    """

    index: int
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertGroup:
    """One decoded delivery.

    Attributes:
        received_at: when it came, our clock, aware UTC.
        receiver: the receiver's name with Alertmanager's regexp quoting taken off (``ok\\.team`` → ``ok.team``).
        group_key: as sent; a hint, no identity.
        external_url: of the Alertmanager that sent it; differs per HA peer.
        n_truncated: alerts that Alertmanager cut off (``truncatedAlerts``), 0 for a whole group.
        alerts: the members that are alerts, in the order sent.
        bad_alerts: the members that are not.
    """

    received_at: datetime
    receiver: str
    group_key: str
    group_labels: Labels
    common_labels: Labels
    common_annotations: Labels
    external_url: str
    n_truncated: int
    alerts: tuple[Alert, ...]
    bad_alerts: tuple[BadAlert, ...]


def pack_alert(alert: Alert) -> dict[str, str | Labels]:
    """The alert as text and maps of text, for the store; absent times are "". ``unpack_alert`` reads it back."""
    return {
        "status": alert.status.value,
        "labels": alert.labels,
        "annotations": alert.annotations,
        "starts_at": alert.starts_at.isoformat() if alert.starts_at else "",
        "ends_at": alert.ends_at.isoformat() if alert.ends_at else "",
        "starts_at_text": alert.starts_at_text,
        "ends_at_text": alert.ends_at_text,
        "generator_url": alert.generator_url,
        "fingerprint": alert.fingerprint,
        "label_key": alert.label_key,
    }


def unpack_alert(packed: Mapping[str, object]) -> Alert:
    """The alert that ``pack_alert`` packed.

    Raises:
        KeyError, TypeError, ValueError: it was not packed by us.
    """
    return Alert(
        status=AlertStatus(_text(packed["status"])),
        labels=_labels(packed["labels"]),
        annotations=_labels(packed["annotations"]),
        starts_at=_time(packed["starts_at"]),
        ends_at=_time(packed["ends_at"]),
        starts_at_text=_text(packed["starts_at_text"]),
        ends_at_text=_text(packed["ends_at_text"]),
        generator_url=_text(packed["generator_url"]),
        fingerprint=_text(packed["fingerprint"]),
        label_key=_text(packed["label_key"]),
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("a packed alert holds text here")
    return value


def _labels(value: object) -> Labels:
    if not isinstance(value, Mapping):
        raise TypeError("a packed alert holds a map here")
    return {_text(name): _text(text) for name, text in value.items()}


def _time(value: object) -> datetime | None:
    return datetime.fromisoformat(text) if (text := _text(value)) else None


def label_key(labels: Labels) -> str:
    """The identity of a label set: SHA-256 hex over names and values, length-prefixed, sorted by name.

    Length prefixes, because any byte may stand in a label: no two different sets give the same bytes.
    """
    parts: list[bytes] = []
    for name in sorted(labels):
        for text in (name, labels[name]):
            data = text.encode("utf-8", "surrogatepass")
            parts += (len(data).to_bytes(4, "big"), data)
    return hashlib.sha256(b"".join(parts)).hexdigest()


def fingerprint(labels: Labels) -> str:
    """Prometheus' fingerprint of a label set: 16 hex digits.

    Source: prometheus/common model/signature.go, FNV-1a 64 over names sorted bytewise, each ``name 0xFF value 0xFF``.
    """
    value = 0xCBF29CE484222325
    for name in sorted(labels, key=lambda text: text.encode("utf-8", "surrogatepass")):
        for text in (name, labels[name]):
            for byte in text.encode("utf-8", "surrogatepass") + b"\xff":
                value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"
