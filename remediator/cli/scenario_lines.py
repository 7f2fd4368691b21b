"""An expectation as a line of a playbook test, to be pasted into its file.

Takes → gives: a ``Happening`` → ``{at: 13m, does: docker.restart, target: "docker:gpu-07/trainer-0"}``.

Must never: give a line that YAML reads as something else than what happened, whatever a label holds.
"""

from __future__ import annotations

from collections.abc import Mapping

from remediator.core.action import JsonValue
from remediator.core.outcome import Outcome
from remediator.core.scenario import ACTS, Happening, Kind
from remediator.loading.scenario_write import at_text, flow

DETAILS: Mapping[Kind, tuple[str, ...]] = {
    Kind.DOES: ("target", "attempts", "outcome"),
    Kind.UNDOES: ("target", "attempts", "outcome"),
    Kind.ENDS: ("reason",),
    Kind.TELLS: ("about",),
}
"""What is said of a happening beside its kind and value, where it has it and it is not as one would take it to be."""


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
