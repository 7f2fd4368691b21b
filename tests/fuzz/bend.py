"""Bends JSON that stays JSON: bytes bent at random seldom do, and then nothing behind the parser is ever reached."""

from __future__ import annotations

import json
import random
from typing import Any

# fmt: off
ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 7, 10, 2**31, 2**53, 10**30, 1.5, 1e308,
    "", " ", "\0", "\n", "\u202e", "\U0001f642", "\udc00", "x" * 300, "{{ labels.a }}", '"', "$(id)", "-1", "4",
    "firing", "resolved", "suppressed",
    "0001-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59", "2026-01-01T00:00:00.123456789+05:30", "2026-02-30T00:00:00Z",
    [], {}, [[]], {"": ""}, {"alertname": "GPUHot"},
    {"alertname": "XidError", "container_name": "trainer-0", "hostname": "gpu-07"},
)
KEYS = (
    "version", "alerts", "status", "labels", "annotations", "startsAt", "endsAt", "generatorURL", "fingerprint",
    "receiver", "groupKey", "groupLabels", "commonLabels", "externalURL", "truncatedAlerts",
    "alertname", "hostname", "container_name", "severity", "code", "signal", "summary", "checkpoint_signal",
    "odd.label", "", "\0", "\ud83d",
)
# fmt: on


def bend_json(data: bytes, seed: int) -> bytes | None:
    """The document with up to four of its parts changed, taken out or put in; None for what is no document."""
    chance = random.Random(seed)
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return None
    whole = [document]
    for _ in range(chance.randint(1, 4)):
        _bend_part(whole, chance)
    try:
        return json.dumps(whole[0], ensure_ascii=chance.random() < 0.5).encode("utf-8", "surrogatepass")
    except RecursionError:
        return None


def _bend_part(whole: list[Any], chance: random.Random) -> None:
    places = [(whole, 0)]
    for container, key in places:  # it grows as it is read
        inner = container[key]
        if isinstance(inner, dict | list) and len(places) < 2000:
            places += [(inner, key) for key in (inner if isinstance(inner, dict) else range(len(inner)))]
    container, key = chance.choice(places)
    match chance.randrange(6):
        case 0 | 1:
            container[key] = _copy(chance.choice(ODD))
        case 2:
            other, other_key = chance.choice(places)
            container[key] = _copy(other[other_key])
        case 3 if container is not whole:
            del container[key]
        case 4 if isinstance(container, dict):
            container[chance.choice(KEYS)] = _copy(chance.choice((container[key], *ODD)))
        case 5 if isinstance(container, list):
            container.append(_copy(container[key]))
        case _:
            container[key] = _bent(container[key], chance)


def _copy(value: Any) -> Any:
    return json.loads(json.dumps(value))


def _bent(value: Any, chance: random.Random) -> Any:
    match value:
        case bool() | None:
            return not value
        case int() | float():
            return chance.choice((-value, value * 10, value + 1, str(value)))
        case str():
            place = chance.randint(0, len(value))
            return value[:place] + str(chance.choice(ODD)) + value[chance.randint(place, len(value)) :]
        case _:
            return [value]
