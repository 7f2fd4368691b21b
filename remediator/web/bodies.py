"""What the API takes: bodies and queries, checked before the engine sees them and described in OpenAPI.

``Delivery`` is for the description alone: ``core.decode`` reads deliveries, and takes more than Alertmanager sends.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, LiteralString

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, StringConstraints
from pydantic_core import PydanticCustomError

# One screen of context without a flood; the audit has all of it.
DEFAULT_RUNS = 100
MAX_RUNS = 1000

# Of an alert, for the examples in the description.
_LABELS: dict[str, JsonValue] = {
    "alertname": "GPUMemoryLeakSlope",
    "hostname": "gpu-07",
    "container_name": "trainer-0",
}

# Something that is a space neither to Python nor to JSON Schema's regular expressions.
_SAYS_SOMETHING = r"[^\s\x1c-\x1f\x85\ufeff]"


def _stripped(problem: LiteralString) -> AfterValidator:
    def strip(text: str) -> str:
        if not re.search(_SAYS_SOMETHING, text):
            raise PydanticCustomError("says_nothing", problem)
        return text.strip()

    return AfterValidator(strip)


# Lengths count before spaces are taken off, or they could not be published.
Why = Annotated[
    str,
    StringConstraints(max_length=1000),
    _stripped("say why; it must not be empty"),
    Field(json_schema_extra={"pattern": _SAYS_SOMETHING}),
]
# Longer than a reason: what was seen, or a piece of a log.
Note = Annotated[
    str,
    StringConstraints(max_length=4000),
    _stripped("a note must not be empty"),
    Field(json_schema_extra={"pattern": _SAYS_SOMETHING}),
]
# JSON has one kind of number: 7.0 is 7, also to JSON Schema.
Whole = Annotated[
    int,
    Field(ge=0, lt=2**53),
    BeforeValidator(lambda given: int(given) if isinstance(given, float) and given.is_integer() else given),
]
# Names go into the audit's actor column: no control characters that would forge a line.
By = Annotated[str, StringConstraints(max_length=100, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$"), AfterValidator(str.strip)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)

    by: By = Field(default="", description="The person that a shared token acts for; the audit names both.")


class RunBody(_Body):
    """Start a run by hand."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"playbook": "restart-on-leak", "labels": _LABELS}]})

    playbook: Annotated[str, StringConstraints(min_length=1)] = Field(description="Name of a playbook.")
    labels: dict[str, str] = Field(description="Labels of the alert that it is to be about.")
    annotations: dict[str, str] = Field(default_factory=dict, description="Annotations of that alert.")


class ReasonBody(_Body):
    """Do it, and say why."""

    reason: Why = Field(description="Why; the audit keeps it.")


class AnswerBody(ReasonBody):
    """Answer what a run asks, and say why."""

    question: Whole = Field(
        default=0, description="The question that is meant, by the run's `question`; 0 = whichever is open."
    )


class NoteBody(_Body):
    """Something to remember about a run."""

    text: Note = Field(description="The audit keeps it.")


class ResumeBody(_Body):
    """Go on after a pause."""

    reason: Annotated[str, StringConstraints(max_length=1000), AfterValidator(str.strip)] = Field(
        default="", description="Why; the audit keeps it."
    )


class SettleBody(ReasonBody):
    """Say what a run of unknown outcome did."""

    happened: bool = Field(description="Whether the change happened.")


class UndoBody(ReasonBody):
    """Take back what a run changed, and say why."""

    step: Annotated[str, StringConstraints(max_length=200)] = Field(
        default="", description='Of this step alone, by its name; "" = of all.'
    )


class LeasesQuery(BaseModel):
    """Which leases to list."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    state: Literal["open", "all"] = Field(default="open", description="Which leases.")
    limit: Annotated[int, Field(ge=1, le=MAX_RUNS)] = Field(default=DEFAULT_RUNS, description="How many, newest first.")


class RunsQuery(BaseModel):
    """Which runs to list."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    state: Literal["open", "ended", "all"] = Field(default="all", description="Which runs.")
    limit: Annotated[int, Field(ge=1, le=MAX_RUNS)] = Field(default=DEFAULT_RUNS, description="How many, newest first.")


class DeliveredAlert(BaseModel):
    """One label set, firing or resolved. One that cannot be used is counted as bad, and the others go on."""

    status: Literal["firing", "resolved"]
    labels: dict[str, str]
    annotations: dict[str, str] = {}
    startsAt: str = Field(default="", description="RFC 3339; year 1 for none.")
    endsAt: str = Field(default="", description="RFC 3339; year 1 for none.")
    generatorURL: str = ""
    fingerprint: str = ""


class Delivery(BaseModel):
    """Alertmanager's webhook, version 4. Other keys are ignored."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"version": "4", "alerts": [{"status": "firing", "labels": _LABELS}]}]}
    )

    version: Literal["4"]
    alerts: list[DeliveredAlert]
    receiver: str = ""
    groupKey: str = ""
    groupLabels: dict[str, str] = {}
    commonLabels: dict[str, str] = {}
    commonAnnotations: dict[str, str] = {}
    externalURL: str = ""
    truncatedAlerts: int = Field(default=0, ge=0, description="How many Alertmanager left out.")
