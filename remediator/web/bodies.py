"""What the API takes: bodies and queries, checked before the engine sees them and described in OpenAPI."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

# One screen of context without a flood; the audit has all of it.
DEFAULT_RUNS = 100
MAX_RUNS = 1000

Why = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1000)]
# Names go into the audit's actor column: no control characters that would forge a line.
By = Annotated[str, StringConstraints(strip_whitespace=True, max_length=100, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)

    by: By = Field(default="", description="The person that a shared token acts for; the audit names both.")


class RunBody(_Body):
    """Start a run by hand."""

    playbook: Annotated[str, StringConstraints(min_length=1)] = Field(description="Name of a playbook.")
    labels: dict[str, str] = Field(description="Labels of the alert that it is to be about.")
    annotations: dict[str, str] = Field(default_factory=dict, description="Annotations of that alert.")


class ReasonBody(_Body):
    """Do it, and say why."""

    reason: Why = Field(description="Why; the audit keeps it.")


class ResumeBody(_Body):
    """Go on after a pause."""

    reason: Annotated[str, StringConstraints(strip_whitespace=True, max_length=1000)] = Field(
        default="", description="Why; the audit keeps it."
    )


class SettleBody(ReasonBody):
    """Say what a run of unknown outcome did."""

    happened: bool = Field(description="Whether the change happened.")


class RunsQuery(BaseModel):
    """Which runs to list."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    state: Literal["open", "ended", "all"] = Field(default="all", description="Which runs.")
    limit: Annotated[int, Field(ge=1, le=MAX_RUNS)] = Field(default=DEFAULT_RUNS, description="How many, newest first.")
