"""An expectation as a line of a playbook test, to be pasted into its file.

Takes → gives: a ``Happening`` → ``{at: 13m, does: docker.restart, target: "docker:gpu-07/trainer-0"}``.

Must never: give a line that YAML reads as something else than what happened, whatever a label holds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta

from remediator.cli.terminal import printable
from remediator.core.action import JsonValue
from remediator.core.outcome import Outcome
from remediator.core.scenario import ACTS, Happening, Kind
from remediator.core.units import print_duration
from remediator.loading.document import plain_scalar

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)

_PLAIN = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./@+%-]*(:[A-Za-z0-9_./@+%-]+)*")
"""Text that needs no quotes, also inside braces; a colon in it stands before something that is no space."""

DETAILS: Mapping[Kind, tuple[str, ...]] = {
    Kind.DOES: ("target", "attempts", "outcome"),
    Kind.UNDOES: ("target", "attempts", "outcome"),
    Kind.ENDS: ("reason",),
    Kind.TELLS: ("about",),
}
"""What is said of a happening beside its kind and value, where it has it and it is not as one would take it to be."""


def at_text(at: timedelta, within: timedelta = MINUTE) -> str:
    """A time as a test writes it: ``13m`` for any second of that minute, ``13m0s`` for that second alone."""
    whole = timedelta(seconds=at // SECOND)
    if within >= MINUTE:
        whole -= whole % MINUTE
        return print_duration(whole) if whole else "0m"
    if whole and not whole % MINUTE:
        return f"{print_duration(whole)}0s"
    return print_duration(whole)


def worth_saying(happening: Happening) -> dict[str, JsonValue]:
    """The details that tell this happening from others like it."""
    assumed: dict[str, JsonValue] = {"reason": "none"}
    if happening.kind in ACTS:
        assumed |= {"attempts": 1, "outcome": Outcome.SUCCEEDED.value}
    found = {key: happening.details.get(key) for key in DETAILS.get(happening.kind, ())}
    return {key: value for key, value in found.items() if value not in (None, "", assumed.get(key))}


def expectation_line(happening: Happening, details: Mapping[str, JsonValue] | None = None) -> str:
    """What expects just this, within its minute.

    Args:
        details: to be said beside what is worth saying.
    """
    value: JsonValue = int(happening.value) if happening.kind is Kind.RUNG else happening.value
    said = {happening.kind.value: value, **worth_saying(happening), **(details or {})}
    return f"{{at: {at_text(happening.at)}, {', '.join(f'{key}: {flow(value)}' for key, value in said.items())}}}"


def flow(value: JsonValue) -> str:
    """A value as YAML on one line."""
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case Mapping():
            return f"{{{', '.join(f'{flow(key)}: {flow(item)}' for key, item in value.items())}}}"
        case list() | tuple():
            return f"[{', '.join(flow(item) for item in value)}]"
        case _:
            text = str(value)
            return text if _PLAIN.fullmatch(text) and plain_scalar(text) == text else _quoted(text)


def _quoted(text: str) -> str:
    """In double quotes; what nobody can see is written out as YAML writes it, which is Python's way too."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{printable(escaped)}"'
