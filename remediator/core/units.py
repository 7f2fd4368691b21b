"""Durations, shares, addresses and text as people write and read them.

Takes text from files, options and labels, gives values; and back. Raises ``ValueError`` whose text says what is wrong
and what to write instead; the caller adds the place.

Durations are Prometheus' own, so that nobody learns a second spelling: a bare number or a clock time reads well and
means different things to different people, so both are refused.
"""

from __future__ import annotations

import re
from datetime import timedelta
from functools import lru_cache

_UNITS_MS = {
    "y": 365 * 86_400_000,
    "w": 7 * 86_400_000,
    "d": 86_400_000,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1_000,
    "ms": 1,
}
_ORDER = tuple(_UNITS_MS)
_PART = re.compile(r"([0-9]+)([A-Za-z]+)")
_PARTS = re.compile(rf"(?:{_PART.pattern})+")
_MS = timedelta(milliseconds=1)
# Prometheus keeps nanoseconds in 64 bits and ends there too; any moment of today plus this is still a legal datetime.
_MAX = timedelta(days=292 * 365)
_HOW = "write a number and a unit (y w d h m s ms), large to small, as in 1h30m, 90s or 500ms"
_SHOWN = 40
DURATION_PATTERN = r"^(0|([0-9]+y)?([0-9]+w)?([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?)$"
"""What ``parse_duration`` reads, for JSON Schema; that it is not empty and not too long is said elsewhere."""

# Every look at a run reads its plan's durations; there are a few dozen different ones.
_REMEMBERED = 1024


def cut(text: str, limit: int) -> str:
    """The text in at most ``limit`` characters (>= 1), with ``…`` at the end where something is left out."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


@lru_cache(_REMEMBERED)
def parse_duration(text: str) -> timedelta:
    """A duration as Prometheus writes it: ``1h30m``, ``2s``, ``500ms``, ``7d``, ``1w``; a year has 365 days.

    Args:
        text: units from large to small, each at most once; ``0`` needs no unit.

    Returns:
        Zero up to 292y, in whole milliseconds.

    Raises:
        ValueError: not such a duration; the text says what to write.

    Source: prometheus/common model.ParseDuration.
    """
    if text == "0":
        return timedelta(0)
    shown = f'"{cut(text, _SHOWN)}"'
    if not text:
        raise ValueError(f"a duration is missing: {_HOW}")
    if not _PARTS.fullmatch(text):
        raise ValueError(f"{shown} is not a duration: {_what_is_wrong(text)}")
    parts = _PART.findall(text)
    unknown = next((unit for _, unit in parts if unit not in _UNITS_MS), None)
    if unknown is not None:
        raise ValueError(f'{shown} is not a duration: there is no unit "{cut(unknown, _SHOWN)}"; {_HOW}')
    places = [_ORDER.index(unit) for _, unit in parts]
    if places != sorted(set(places)):
        in_order = "".join(number + unit for number, unit in sorted(parts, key=lambda part: _ORDER.index(part[1])))
        hint = f": {in_order}" if len(set(places)) == len(places) and len(text) <= _SHOWN else ""
        raise ValueError(f"{shown} is not a duration: units go from large to small, each once{hint}")
    # Twenty digits of anything are too many, and Python refuses to read thousands of them at all.
    if any(len(number.lstrip("0")) > 20 for number, _ in parts):
        raise ValueError(f"{shown} is too long a time: at most 292y")
    total_ms = sum(int(number.lstrip("0") or "0") * _UNITS_MS[unit] for number, unit in parts)
    if total_ms > _MAX // _MS:
        raise ValueError(f"{shown} is too long a time: at most 292y")
    return timedelta(milliseconds=total_ms)


def _what_is_wrong(text: str) -> str:
    if re.fullmatch(r"[0-9]+", text):
        return f"it has no unit; write {text}s, {text}m or {text}h" if len(text) < 10 else f"it has no unit; {_HOW}"
    if clock := re.fullmatch(r"([0-9]{1,4}):([0-9]{1,2})", text):
        large, small = clock.groups()
        return f"a clock time may be hours or minutes; write {large}h{small}m or {large}m{small}s"
    if text.startswith("-"):
        return "it cannot be negative; write how long, without a sign"
    if broken := re.fullmatch(r"([0-9]{1,6})?[.,]([0-9]{1,3})(y|w|d|h|m|s|ms)", text):
        whole, fraction, unit = broken.groups()
        exact_ms, part_of_ms = divmod(int((whole or "0") + fraction) * _UNITS_MS[unit], 10 ** len(fraction))
        return f"no fractions; {_HOW}" if part_of_ms else f"no fractions; write {print_duration(exact_ms * _MS)}"
    if spaced := re.fullmatch(r"\s*([0-9]{1,6})\s*(y|w|d|h|m|s|ms)\s*", text):
        return f"no spaces; write {''.join(spaced.groups())}"
    return _HOW


@lru_cache(_REMEMBERED)
def print_duration(duration: timedelta) -> str:
    """The duration as Prometheus prints it: ``1h30m``; what is shorter than a millisecond is dropped; zero is ``0s``.

    Years and weeks are used only where they come out even (``1w``, but ``8d``), so that nobody has to calculate.
    A negative one, which no file can hold but a stepped clock can make, bears a minus.

    Source: prometheus/common model.Duration.String.
    """
    if duration < timedelta(0):
        return f"-{print_duration(-duration)}"
    rest_ms = duration // _MS
    if rest_ms == 0:
        return "0s"
    printed = ""
    for unit, unit_ms in _UNITS_MS.items():
        if unit in ("y", "w") and rest_ms % unit_ms:
            continue
        number, rest_ms = divmod(rest_ms, unit_ms)
        if number:
            printed += f"{number}{unit}"
    return printed


def parse_percent(text: str) -> int:
    """A share: ``20%`` → 20.

    Raises:
        ValueError: not a whole number from 0 to 100 followed by ``%``.
    """
    if not re.fullmatch(r"[0-9]{1,3}%", text) or int(text[:-1]) > 100:
        raise ValueError(f'"{cut(text, _SHOWN)}" is not a percentage: write a whole number from 0% to 100%, as in 20%')
    return int(text[:-1])


_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.%\w]*\]|[^:\[\]\s]*):([0-9]{1,5})")
_HOST_PORT = re.compile(r"([^:]*):[0-9]{1,5}")
_BRACKETED = re.compile(r"\[([^\[\]]*)\](?::[0-9]{1,5})?")


def parse_address(text: str) -> tuple[str, int]:
    """An address to listen on: ``127.0.0.1:9095``, ``[::1]:9095``, ``:9095``.

    Returns:
        Host without brackets ("" = every address of this host), and port (0 = any free one).

    Raises:
        ValueError: not such an address; the text says what to write.
    """
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found[2]) > 65535:
        raise ValueError("must be ADDRESS:PORT, as in 127.0.0.1:9095 or [::1]:9095")
    return found[1].strip("[]"), int(found[2])


def strip_port(text: str) -> str:
    """The host of a ``host:port`` label: ``gpu-07:9400`` → ``gpu-07``, ``[fe80::1]:9100`` → ``fe80::1``.

    A bare IPv6 address has several colons and no port; it, and whatever is not host and port, comes back as it is.
    """
    if bracketed := _BRACKETED.fullmatch(text):
        return bracketed.group(1)
    if host_port := _HOST_PORT.fullmatch(text):
        return host_port.group(1)
    return text
