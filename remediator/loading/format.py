"""The playbook format, version 1, as pydantic models: the whole of it, strictly.

Takes plain data, gives models; their JSON Schema and the descriptions on every field are what people and editors read.
What hangs on the site or on other keys is judged by ``build``. Must never: turn one type into another, or pass over a
key that it does not know.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    model_validator,
)
from pydantic.config import JsonDict
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import PydanticCustomError, core_schema

from remediator.core.matcher import Matcher, parse_matcher
from remediator.core.playbook import OnFailure
from remediator.core.policy import Mode
from remediator.core.render import Expression, ParamTemplate, TemplateKind
from remediator.core.units import DURATION_PATTERN, parse_duration, parse_percent, print_duration
from remediator.errors import MatcherSyntaxError, TemplateError

DEFAULT_WITHIN = timedelta(minutes=15)
"""A rule's `for`, a scrape, and Alertmanager's `group_interval` of 5m lie between a mended fault and its `resolved`."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)  # hashed by identity: its schema is a dict
class ReadBy:
    """Marks a type that ``read`` makes of what stands in the file; pydantic itself does not look at the type."""

    read: Callable[[object], object]
    schema: JsonDict

    def __get_pydantic_core_schema__(self, source: object, _: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, _: core_schema.CoreSchema, __: GetJsonSchemaHandler) -> JsonSchemaValue:
        return dict(self.schema)


def checked(parse: Callable[[str], T], kind: str, what: str) -> Callable[[object], T]:
    """A validator around a parser of text, whose errors keep their kind (``loading`` makes exceptions of them)."""

    def validate(value: object) -> T:
        if not isinstance(value, str):
            raise problem("value", what)
        try:
            return parse(value)
        except (ValueError, MatcherSyntaxError, TemplateError) as error:
            raise problem(kind, str(error)) from error

    return validate


def problem(kind: str, message: str) -> PydanticCustomError:
    """What a validator raises; the kind (``value``, ``duration``, ``matcher``, ``template``) decides how it is told."""
    return PydanticCustomError(kind, "{message}", {"message": message})


def _duration(value: object) -> timedelta:
    # 120 is a number to YAML; the parser of durations knows best what to say about it.
    text = str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
    return checked(parse_duration, "duration", "must be a duration, as in 90s or 1h30m")(text)


def _positive_duration(value: object) -> timedelta:
    duration = _duration(value)
    if duration <= timedelta(0):
        raise problem("duration", "must be longer than 0s")
    return duration


def _matcher(value: object) -> Matcher:
    if isinstance(value, dict):
        # `- a = b: c` and `- {a = b}` are maps to YAML.
        key, rest = next(iter(value.items()), ("", None))
        if rest is None:
            raise problem("matcher", f"a matcher goes without braces; write: {key}")
        raise problem("matcher", f"a matcher that holds `: ` goes in single quotes: '{key}: {rest}'")
    return checked(parse_matcher, "matcher", 'a matcher is text: alertname = "X"')(value)


def _matchers(value: object) -> list[object]:
    if isinstance(value, dict):
        example = next((f"- {key} = {rest}" for key, rest in value.items() if isinstance(rest, str)), "- alertname = X")
        raise problem("matcher", f"must be a list of matchers, not a map; write one a line: {example}")
    if isinstance(value, str):
        raise problem("matcher", f"must be a list; write [{value}]")
    if not isinstance(value, list):
        raise problem("matcher", "must be a list of matchers, one a line: - alertname = X")
    return value


def _expression(value: object) -> Expression:
    return checked(Expression.parse, "template", '`if` is an expression: labels.NAME != ""')(value)


def _query(value: object) -> ParamTemplate:
    if isinstance(value, str) and not value.strip():
        raise problem("value", "must not be empty")
    if isinstance(value, str) and (operator := _top_comparison(value)):
        raise problem(
            "value", f"the query compares already ({operator}); leave the number to below, above or equals instead"
        )
    return checked(lambda text: ParamTemplate.parse(text, kind=TemplateKind.QUERY), "template", "must be text")(value)


_PROMQL_TOKEN = re.compile(
    r"""(?P<skip>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`|\#[^\n]*)
    |(?P<open>[({\[])|(?P<close>[)}\]])|(?P<comparison>(?:[<>]=?|==|!=)(?!\s*bool\b))""",
    re.VERBOSE | re.DOTALL,
)


def _top_comparison(query: str) -> str:
    """The comparison that a PromQL query ends in, "" for none: then it gives no value where it is false.

    With ``bool`` behind it, a comparison gives 0 or 1 and is a number like any other.
    """
    depth = 0
    for token in _PROMQL_TOKEN.finditer(query):
        match token.lastgroup:
            case "open":
                depth += 1
            case "close":
                depth -= 1
            case "comparison" if depth == 0:
                return token[0]
    return ""


def _names(value: object) -> list[object]:
    if isinstance(value, str):
        raise problem("value", f"must be a list; write [{value}]")
    if not isinstance(value, list):
        raise problem("value", "must be a list of names: [NAME]")
    return value


def text_name(pattern: str, what: str) -> Callable[[object], str]:
    """A reader of names that fit the pattern; ``what`` says which do."""

    def parse(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"{what}, and is {text[:80]!r}")
        return text

    return checked(parse, "value", "must be text; put quotes round it")


def _step_name(value: object) -> str:
    if isinstance(value, str) and "-" in value and re.fullmatch("[a-z][a-z0-9_-]*", value):
        raise problem("value", f"a step's name has no dashes (steps.NAME.outcome); write {value.replace('-', '_')}")
    return text_name("[a-z][a-z0-9_]{0,99}", "a step's name is small letters, digits and _, from a letter on")(value)


def _percent(value: object) -> int:
    return checked(parse_percent, "value", "must be a share, as in 20%")(value)


def _retry(value: object) -> object:
    if isinstance(value, int):
        raise problem("value", f"must be a map; write retry: {{attempts: {value}}}")
    return value


def _approval(value: object) -> object:
    if isinstance(value, bool):
        raise problem("value", "says whom to ask; write approval: {ask: [NAME]}")
    return value


def _ladder(value: object) -> object:
    if isinstance(value, str):
        raise problem("value", f"must be a map; write ladder: {{within: {value[:20]}}}")
    return value


def _undo(value: object) -> object:
    if isinstance(value, str | bool):
        word = value if value in ("resolved", "never") else "never"
        raise problem("value", f"must be a map; write undo: {{when: {word}}}")
    return value


def _escalate(value: object) -> object:
    keys = {key for item in (value if isinstance(value, list) else [value]) if isinstance(item, dict) for key in item}
    if isinstance(value, list) or keys & {"action", "steps", "params"}:
        raise problem("value", "only tells people; write escalate: {to: [NAME]}, and what acts under steps")
    return value


_HOW_LONG = "a duration is a number and a unit (y w d h m s ms), large to small: 90s, 10m, 1h30m"
_DURATION_TEXT: JsonDict = {
    "type": "string",
    "minLength": 1,
    "pattern": DURATION_PATTERN,
    "patternErrorMessage": _HOW_LONG,
    "examples": ["90s", "10m", "1h30m"],
}
_DURATION_SCHEMA: JsonDict = {"anyOf": [_DURATION_TEXT, {"const": 0}]}
_POSITIVE_DURATION_SCHEMA: JsonDict = {**_DURATION_TEXT, "pattern": DURATION_PATTERN.replace("^", "^(?=.*[1-9])", 1)}

_BARE = r"""[^ \t{}!=~,\\"'`]+"""
_QUOTED = r'"(?:[^"\\]|\\[\s\S])*"'
_MATCHER_PATTERN = (
    rf"^(?![\s\S]*\{{\{{)[\s\x85]*({_BARE}|{_QUOTED})[\s\x85]*(=~|!=|!~|=)[\s\x85]*({_BARE}|{_QUOTED})[\s\x85]*$"
)
"""Wider than ``parse_matcher``: which characters are spaces is not the same in every dialect of regexes."""

_MATCHER_SCHEMA: JsonDict = {
    "type": "string",
    "pattern": _MATCHER_PATTERN,
    "patternErrorMessage": "a matcher is LABEL OPERATOR VALUE; the operators are = != =~ !~, each once; a value with"
    " spaces or commas goes in double quotes",
    "examples": ["alertname = GPUMemoryLeakSlope", 'container_name != ""', 'err_code =~ "13|31"'],
}
_QUERY_SCHEMA: JsonDict = {
    "type": "string",
    "pattern": r"^(?![\s\S]*\{[%#])[\s\S]*[^ \t\r\n]",
    "patternErrorMessage": "a query is PromQL that gives one number; {{ }} puts values in, and nothing else does",
    "examples": ['max(DCGM_FI_DEV_GPU_TEMP{UUID="{{ labels.UUID }}"})'],
}
_IF_SCHEMA: JsonDict = {
    "type": "string",
    "pattern": r"^(?![\s\S]*\{[{%])[\s\S]*[^ \t\r\n]",
    "patternErrorMessage": '`if` is an expression, without {{ }}: labels.NAME != ""',
    "examples": ['annotations.checkpoint_signal != ""', 'steps.restart.outcome == "succeeded"'],
}
_WITHOUT_TEMPLATE: JsonDict = {
    "pattern": r"^(?![\s\S]*\{\{)",
    "patternErrorMessage": "a template is read in params and query only",
}

Duration = Annotated[timedelta, ReadBy(_duration, _DURATION_SCHEMA)]
PositiveDuration = Annotated[timedelta, ReadBy(_positive_duration, _POSITIVE_DURATION_SCHEMA)]
SharePct = Annotated[
    int,
    ReadBy(_percent, {"type": "string", "pattern": "^([0-9]{1,2}|0[0-9]{2}|100)%$", "examples": ["20%"]}),
]
MatcherLine = Annotated[Matcher, ReadBy(_matcher, _MATCHER_SCHEMA)]
Matchers = Annotated[list[MatcherLine], BeforeValidator(_matchers)]
Condition = Annotated[Expression, ReadBy(_expression, _IF_SCHEMA)]
Query = Annotated[ParamTemplate, ReadBy(_query, _QUERY_SCHEMA)]


def _name_schema(pattern: str, what: str) -> JsonDict:
    return {"type": "string", "pattern": f"^{pattern}$", "patternErrorMessage": what}


_STEP_NAME = ("[a-z][a-z0-9_]{0,99}", "a step's name is small letters, digits and _, from a letter on")
# A default name is a step's name with up to 19 characters behind it.
_CONDITION_NAME = ("[a-z][a-z0-9_]{0,119}", "a condition's name is small letters, digits and _, from a letter on")
_NAME = ("[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", "a name is letters, digits, _ . and -")

StepName = Annotated[str, ReadBy(_step_name, _name_schema(*_STEP_NAME))]
ConditionName = Annotated[str, ReadBy(text_name(*_CONDITION_NAME), _name_schema(*_CONDITION_NAME))]
Name = Annotated[str, ReadBy(text_name(*_NAME), _name_schema(*_NAME))]
LabelName = Annotated[str, Field(min_length=1)]
Names = Annotated[list[LabelName], BeforeValidator(_names)]
Count = Annotated[int, Field(ge=1)]
Share = Annotated[int, Field(ge=1, le=100)]
Bound = Annotated[float, Field(allow_inf_nan=False)]
AnyMode = Annotated[Mode, Field(strict=False)]


def _without(*keys: str) -> JsonDict:
    return {"properties": dict.fromkeys(keys, False)}


_WHEN_NEVER: JsonDict = {"properties": {"when": {"const": "never"}}}
_LADDER: JsonDict = {
    "if": {"required": ["ladder"]},
    "then": {"properties": {"steps": {"items": {"required": ["rung"]}}}},
    "else": {"properties": {"steps": {"items": _without("rung")}}},
}
# It ends by itself, so its end shows nothing, and undoes nothing.
_LATCHED: JsonDict = {
    "if": {"properties": {"latched": {"const": True}}, "required": ["latched"]},
    "then": {
        "properties": {
            "verify": {"items": _without("alert")},
            "undo": _WHEN_NEVER,
            "steps": {"items": {"properties": {"verify": {"items": _without("alert")}, "undo": _WHEN_NEVER}}},
        }
    },
}
_ONE_COMPARISON: JsonDict = {"oneOf": [{"required": [key]} for key in ("below", "above", "equals")]}


def default_name(kind: str, index: int) -> str:
    """What a step or a condition without a name is called: ``step_1``, ``require_2``; ``index`` counts from 0."""
    return f"{kind}_{index + 1}"


class Table(BaseModel):
    """What every map of the formats is: unknown keys refused, nothing turned into another type, frozen."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class MaxRunsKeys(Table):
    """A limit of runs."""

    count: Count = Field(description="At most so many runs that acted.")
    per: PositiveDuration = Field(description="In any window of this length.")


class MaxTargetsKeys(Table):
    """A limit of different targets: a count, or a share of a fleet."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [
                {"required": ["count"], **_without("percent", "of")},
                {"required": ["percent", "of"], **_without("count")},
            ]
        }
    )

    count: Count | None = Field(default=None, description="At most so many different targets.")
    percent: Share | None = Field(default=None, description="At most this share of the fleet.")
    of: Name | None = Field(
        default=None, description="The fleet, by its name in the settings.", examples=["kube_nodes"]
    )
    per: PositiveDuration = Field(description="In any window of this length.")

    @model_validator(mode="after")
    def _count_or_share(self) -> Self:
        if (self.count is None) == (self.percent is None) or (self.percent is None) != (self.of is None):
            raise problem("value", "takes either count, or percent and of")
        return self


class ConditionKeys(Table):
    """A query that gives one number, and what the number is compared with."""

    model_config = ConfigDict(json_schema_extra=_ONE_COMPARISON)

    name: ConditionName | None = Field(
        default=None,
        description="What tests and messages call it; default require_1, require_2, …",
        examples=["exporter_up"],
    )
    query: Query = Field(description="PromQL that gives one number; {{ }} puts quoted values in.")
    below: Bound | None = Field(default=None, description="Good when the number is smaller.")
    above: Bound | None = Field(default=None, description="Good when the number is larger.")
    equals: Bound | None = Field(default=None, description="Good when the number is this.")

    @model_validator(mode="after")
    def _one_comparison(self) -> Self:
        _refuse_comparisons_but_one(self.model_fields_set)
        return self


def _refuse_comparisons_but_one(given: set[str]) -> None:
    if len(given & {"below", "above", "equals"}) != 1:
        raise problem("value", "a condition takes one of below, above, equals")


class VerifyKeys(Table):
    """Whether it helped: a condition that is looked at over time, or that the alert is resolved."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"required": ["alert"]},
            "then": _without("name", "query", "below", "above", "equals", "settle", "holds"),
            "else": {"required": ["query"], **_ONE_COMPARISON},
        }
    )

    alert: Literal["resolved"] | None = Field(
        default=None, description="Good when the subject is resolved: for where nothing can be measured."
    )
    name: ConditionName | None = Field(
        default=None,
        description="What tests and messages call it; default verify_1, verify_2, …",
        examples=["memory_ratio"],
    )
    query: Query | None = Field(default=None, description="PromQL that gives one number; {{ }} puts quoted values in.")
    below: Bound | None = Field(default=None, description="Good when the number is smaller.")
    above: Bound | None = Field(default=None, description="Good when the number is larger.")
    equals: Bound | None = Field(default=None, description="Good when the number is this.")
    settle: Duration | None = Field(
        default=None, description="Wait first; default 0s.", json_schema_extra={"default": "0s"}
    )
    holds: Duration | None = Field(
        default=None, description="Must stay so this long; default 0s.", json_schema_extra={"default": "0s"}
    )
    within: PositiveDuration | None = Field(
        default=None,
        description="Must be so within this time after the step, or after the last one; default 15m.",
        json_schema_extra={"default": "15m"},
    )

    @model_validator(mode="after")
    def _alert_or_query(self) -> Self:
        given = self.model_fields_set
        if ("alert" in given) == ("query" in given):
            raise problem("value", "takes either alert: resolved, or a query")
        if "alert" in given:
            if given - {"alert", "within"}:
                raise problem("value", "alert: resolved takes only within")
            return self
        _refuse_comparisons_but_one(given)
        within = self.within or DEFAULT_WITHIN
        settle, holds = self.settle or timedelta(0), self.holds or timedelta(0)
        # What has to hold is looked at first when it has settled, and must be looked at once more in time.
        if settle + holds > within or (holds and settle + holds == within):
            raise problem(
                "value",
                f"settle and holds ({print_duration(settle + holds)}) must be complete inside within"
                f" ({print_duration(within)}); write a longer within",
            )
        return self


class GuardKeys(Table):
    """A playbook's own limits."""

    cooldown: Duration | None = Field(
        default=None,
        description="Time since the last disruptive act on the target by any playbook, and since this playbook acted"
        " for the same subject; default 30m with a disruptive step or with messages alone, else 0s.",
    )
    max_runs: MaxRunsKeys | None = Field(
        default=None,
        description="Runs that acted, per subject; default {count: 3, per: 24h} with a disruptive step, else none.",
    )
    tell_after: PositiveDuration | None = Field(
        default=None,
        description="People are told once of a plan that has waited so long for its turn; default 1h.",
        json_schema_extra={"default": "1h"},
    )
    max_targets: MaxTargetsKeys | None = Field(default=None, description="Different targets changed by this playbook.")
    require: Annotated[list[ConditionKeys], Field(min_length=1)] | None = Field(
        default=None, description="Conditions checked just before acting."
    )


class RetryKeys(Table):
    """When a transient failure is tried again; waits double."""

    attempts: Count | None = Field(default=None, description="Most attempts in all; alone it has no budget. Default 3.")
    wait: Duration | None = Field(
        default=None, description="Before the second attempt; default 2s.", json_schema_extra={"default": "2s"}
    )
    max_wait: Duration | None = Field(
        default=None, description="Longest wait between two; default 30s.", json_schema_extra={"default": "30s"}
    )
    jitter: SharePct | None = Field(
        default=None, description="Change of each wait, either way; default 20%.", json_schema_extra={"default": "20%"}
    )
    budget: PositiveDuration | None = Field(
        default=None, description="No attempt starts later than this; alone it has no count. Default 10m."
    )

    @model_validator(mode="after")
    def _waits_in_order(self) -> Self:
        if self.wait is not None and self.max_wait is not None and self.wait > self.max_wait:
            raise problem("value", "wait is longer than max_wait")
        return self


class ApprovalKeys(Table):
    """Who is asked before it acts."""

    ask: Names = Field(min_length=1, description="Notification targets.", examples=[["oncall"]])
    expires: PositiveDuration | None = Field(
        default=None, description="No answer by then is a no; default 30m.", json_schema_extra={"default": "30m"}
    )


class UndoKeys(Table):
    """When what was done is taken back."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"properties": {"when": {"const": "never"}}, "required": ["when"]},
            "then": _without("after", "require", "at_most"),
        }
    )

    when: Literal["resolved", "never"] | None = Field(default=None, description="Default by action.")
    after: Duration | None = Field(
        default=None, description="Wait first, and between two; default 10m.", json_schema_extra={"default": "10m"}
    )
    require: Annotated[list[ConditionKeys], Field(min_length=1)] | None = Field(
        default=None, description="Conditions that must hold, asked every minute."
    )
    at_most: PositiveDuration | None = Field(
        default=None,
        description="From the act on, the longest that it stays; default 12h.",
        json_schema_extra={"default": "12h"},
    )

    @model_validator(mode="after")
    def _never_is_never(self) -> Self:
        if self.when == "never" and (extra := self.model_fields_set - {"when"}):
            raise problem("value", f"when: never takes nothing back; remove {', '.join(sorted(extra))}")
        return self


class StepKeys(Table):
    """One action with its params."""

    name: StepName | None = Field(
        default=None, description="Unique among the steps; default step_1, step_2, …", examples=["checkpoint"]
    )
    condition: Condition | None = Field(
        default=None, alias="if", description="Expression without braces; the step is skipped where it is false."
    )
    action: str = Field(description="What to do, as `remediator actions` lists it.", examples=["docker.restart"])
    params: dict[str, object] | None = Field(default=None, description="The action's params; texts may hold {{ }}.")
    timeout: PositiveDuration | None = Field(
        default=None, description="Of one attempt; default 5m, at least what the params need."
    )
    retry: Annotated[RetryKeys, BeforeValidator(_retry)] | None = Field(
        default=None, description="For transient failures only; default 3 attempts, 2s to 30s, 20%, within 10m."
    )
    on_failure: Annotated[OnFailure, Field(strict=False)] | None = Field(
        default=None, description="stop the run, or continue; default stop, for messages continue."
    )
    rung: Count | None = Field(default=None, description="Stage of the ladder, from 1.")
    verify: Annotated[list[VerifyKeys], Field(min_length=1)] | None = Field(
        default=None, description="Looked at after the step; where it is not so, the step is failed."
    )
    undo: Annotated[UndoKeys, BeforeValidator(_undo)] | None = Field(
        default=None, description="When it is taken back; its keys go before those of the playbook's undo."
    )
    approval: Annotated[ApprovalKeys, BeforeValidator(_approval)] | None = Field(
        default=None, description="Ask people at its turn."
    )


class ToKeys(Table):
    """Who is told."""

    to: Names = Field(description="Names of notification targets; [] for nobody.", examples=[["oncall"]])


class LadderKeys(Table):
    """Stages by severity."""

    within: PositiveDuration = Field(description="Back within this time: one rung higher than last time.")


def _rungs_rise(steps: list[StepKeys]) -> list[StepKeys]:
    rungs = [step.rung for step in steps]
    named = [rung for rung in rungs if rung is not None]
    if named and (len(named) < len(rungs) or named != sorted(named) or {*named} != {*range(1, max(named) + 1)}):
        raise problem("value", "rungs rise from 1 without gaps, and every step has one or none has")
    return steps


Steps = Annotated[list[StepKeys], Field(min_length=1), AfterValidator(_rungs_rise)]


class CaseKeys(Table):
    """What a playbook says, and a case may say otherwise."""

    owner: str | None = Field(
        default=None,
        description="Shown in messages and in the audit.",
        examples=["ml-platform"],
        json_schema_extra=_WITHOUT_TEMPLATE,
    )
    mode: AnyMode | None = Field(
        default=None,
        description="enforce; observe plans and judges and never acts; disabled. Default enforce.",
        json_schema_extra={"default": "enforce"},
    )
    per: Annotated[Names, Field(min_length=1)] | None = Field(
        default=None,
        description="Labels that say what a run is about; default the whole label set.",
        examples=[["host", "container_name"]],
        json_schema_extra={"uniqueItems": True},
    )
    stop_on_resolve: bool | None = Field(
        default=None,
        description="Resolved before the next step: the run ends there; default false.",
        json_schema_extra={"default": False},
    )
    latched: bool | None = Field(
        default=None,
        description="The alert ends by itself, the fault does not; default false.",
        json_schema_extra={"default": False},
    )
    hold: Duration | None = Field(
        default=None,
        description="Act only if it fires still after this; default 0s.",
        json_schema_extra={"default": "0s"},
    )
    guard: GuardKeys | None = Field(default=None, description="Limits; a case overrides them key by key.")
    steps: Steps | None = Field(default=None, description="What to do, in order.")
    verify: Annotated[list[VerifyKeys], Field(min_length=1)] | None = Field(
        default=None, description="Looked at after the last step: did it help?"
    )
    report: ToKeys | None = Field(default=None, description="Told how a run that acted ended.")
    escalate: Annotated[ToKeys, BeforeValidator(_escalate)] | None = Field(
        default=None, description="Told of every end without a fix."
    )
    resolved: Steps | None = Field(default=None, description="Steps for when it is over, if something was done.")
    ladder: Annotated[LadderKeys, BeforeValidator(_ladder)] | None = Field(
        default=None, description="The steps are stages: the next one where verify says that one did not help."
    )
    undo: Annotated[UndoKeys, BeforeValidator(_undo)] | None = Field(
        default=None, description="When steps that can be undone are taken back; never those that stay by default."
    )
    approval: Annotated[ApprovalKeys, BeforeValidator(_approval)] | None = Field(
        default=None, description="Ask people before any step, and before each rung."
    )


class NamedCaseKeys(CaseKeys):
    """A variant of a playbook by matcher: the first that matches. It overrides the playbook's keys."""

    model_config = ConfigDict(
        json_schema_extra={"if": {"required": ["ignore"]}, "then": _without(*CaseKeys.model_fields), "else": _LATCHED}
    )

    name: Name = Field(description="Unique in the playbook.", examples=["app_error"])
    match: Matchers | None = Field(default=None, description="Must all hold; none = whatever is left.")
    ignore: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="Leave these alerts alone, and why.",
        examples=["the Xid that caused it has its own alert"],
        json_schema_extra=_WITHOUT_TEMPLATE,
    )

    @model_validator(mode="after")
    def _ignores_or_acts(self) -> Self:
        if self.ignore is not None and (extra := self.model_fields_set - {"name", "match", "ignore"}):
            raise problem("value", f"a case with ignore takes only name and match, not {', '.join(sorted(extra))}")
        return self


class PlaybookKeys(CaseKeys):
    """One playbook: which alerts, and what to do about them."""

    # What cases may add or override is not asked for where there are cases.
    model_config = ConfigDict(
        json_schema_extra={
            "if": {"required": ["cases"]},
            "then": {
                "if": {"not": {"required": ["steps"]}},
                "then": {
                    "properties": {"cases": {"items": {"anyOf": [{"required": ["steps"]}, {"required": ["ignore"]}]}}}
                },
            },
            "else": {"required": ["steps"], "allOf": [_LATCHED, _LADDER]},
        },
    )

    playbook: Name = Field(description="Its name, unique among all files.", examples=["restart-on-leak"])
    description: str = Field(
        default="",
        description="What it does, for people.",
        examples=["Restart a container whose GPU memory grows without falling back."],
    )
    match: Annotated[Matchers, Field(min_length=1)] = Field(
        description="Alertmanager's matchers, one a line; all must hold."
    )
    cases: Annotated[list[NamedCaseKeys], Field(min_length=1)] | None = Field(
        default=None, description="Variants; the first that matches overrides the keys above."
    )


class MaxActsKeys(Table):
    """A limit of disruptive acts over all playbooks."""

    count: Count = Field(description="At most so many.")
    per: PositiveDuration = Field(description="In any window of this length.")


class BreakerKeys(Table):
    """Trips when too much of a fleet was changed, or too much failed."""

    percent: Share = Field(description="At most this share of the fleet is changed.")
    of: Name = Field(description="The fleet, by its name in the settings.", examples=["kube_nodes"])
    within: PositiveDuration = Field(description="In any window of this length.")
    or_failures: Count | None = Field(
        default=None, description="Or so many runs end failed, ineffective or unknown in it; default not counted."
    )


class PolicyKeys(Table):
    """A site's own limits over all playbooks."""

    policy: Name = Field(description="Its name.", examples=["site"])
    protect: Matchers | None = Field(
        default=None, description="A target that any one line fits is never touched; added to the built-in lines."
    )
    max_concurrent_runs: Count | None = Field(
        default=None, description="Runs that act at once; default 4.", json_schema_extra={"default": 4}
    )
    mode: Literal["enforce", "observe"] | None = Field(
        default=None,
        description="enforce, or observe for the whole engine; default enforce.",
        json_schema_extra={"default": "enforce"},
    )
    require_label: MatcherLine | None = Field(
        default=None, description="A matcher on the target's own labels: touch nothing that it does not fit."
    )
    max_disruptive_acts: MaxActsKeys | None = Field(
        default=None, description="Disruptive acts over all playbooks; default no limit."
    )
    breaker: BreakerKeys | None = Field(
        default=None,
        description="Trips when too much is changed or fails, and holds every act until a person resets it.",
    )
