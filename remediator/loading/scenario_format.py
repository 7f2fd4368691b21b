"""The format of playbook tests as pydantic models: which keys there are, and what may stand behind each.

Takes plain data, gives models; their JSON Schema and descriptions are what editors read. Which keys go together, and
which names there are, is judged by ``scenarios``. Must never: turn one type into another, or pass over an unknown key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, GetCoreSchemaHandler
from pydantic.config import JsonDict
from pydantic_core import core_schema

from remediator.core.outcome import Outcome, RunOutcome
from remediator.core.run import MessageKind
from remediator.core.scenario import Failure, Nothing
from remediator.core.units import DURATION_PATTERN, cut, parse_duration, print_duration
from remediator.errors import Reason
from remediator.loading.format import Count, Name, Names, PositiveDuration, ReadBy, Table, checked, problem
from remediator.loading.read import suggest

LONGEST = timedelta(days=366)
"""Of a story: a year's worth; what is more is a slip of the keyboard, and would be played for hours."""

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Moment:
    """A time since the scenario's begin.

    Attributes:
        within: what the time as it is written stands for: a minute without seconds, a second with them.
        text: as it is written.
    """

    at: timedelta
    within: timedelta
    text: str


def _moment(value: object) -> Moment:
    # 120 is a number to YAML; the parser of durations knows best what to say about it.
    text = str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
    at = checked(parse_duration, "duration", "must be a time since the begin, as in 90s, 21m or 1h30m")(text)
    text = str(text)
    if at % SECOND:
        raise problem("duration", f"times are whole seconds; write {print_duration(at - at % SECOND)}")
    if at > LONGEST:
        raise problem("duration", f"at most {print_duration(LONGEST)} after the begin")
    return Moment(at=at, within=SECOND if text.endswith("s") else MINUTE, text=text)


_RFC3339 = re.compile(r"\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(\.\d{1,6})?([Zz]|[+-]\d{2}:\d{2})")
_YEARS = range(2000, 2101)
"""Alertmanager's times are of its own day, and a year's story must not run out of the calendar."""


def _begins(value: object) -> datetime:
    wanted = "must be a date and time with its zone: 2026-03-01T12:00:00Z"
    if not isinstance(value, str) or not _RFC3339.fullmatch(value):
        raise problem("value", wanted)
    try:
        moment = datetime.fromisoformat(value.upper()).astimezone(UTC)
    except ValueError as error:
        raise problem("value", f"is no moment of the calendar: {error}") from error
    if moment.year not in _YEARS:
        raise problem("value", f"the year must be from {_YEARS.start} to {_YEARS.stop - 1}")
    return moment


def _name(value: object, what: str = "a name") -> str:
    if not isinstance(value, str):
        raise problem("value", f"must be {what}; put quotes round it")
    if not value.strip():
        raise problem("value", "must not be empty")
    return value


def _one_or_more(value: object) -> tuple[str, ...]:
    names = tuple(_name(item, "a name or a list of names") for item in (value if isinstance(value, list) else [value]))
    if not names:
        raise problem("value", "must not be empty")
    if len({*names}) < len(names):
        seen: set[str] = set()
        twice = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise problem("value", f"names {cut(twice, 80)!r} twice")
    return names


_NOBODY = frozenset({"yes", "no", "on", "off", "y", "n", "true", "false"})


def _person(value: object) -> str:
    # `approves: yes` is text in YAML 1.2, and nobody's name.
    if isinstance(value, bool) or (isinstance(value, str) and value.lower() in _NOBODY):
        raise problem("value", "names who does it; write a person's name, as in alice")
    return _name(value, "a person's name")


def _one_of(words: Iterable[str], what: str, but: str = "") -> ReadBy:
    """A reader of the words of a closed set, with a suggestion for what is not one of them."""
    words = [str(word) for word in words if word != but]

    def read(value: object) -> str:
        if value in words:
            return str(value)
        shown = f"{cut(value, 80)!r}" if isinstance(value, str) else f"{value}"
        raise problem("value", f"there is no {what} {shown}{suggest(str(value), words)}")

    return ReadBy(read, {"type": "string", "enum": [*words]})


def _text(longest: int) -> Callable[[str], str]:
    def check(value: str) -> str:
        if len(value) > longest or any(ord(character) < ord(" ") for character in value):
            raise problem("value", f"must be one line of at most {longest} characters")
        return value

    return check


_MOMENT: JsonDict = {
    "anyOf": [
        {"type": "string", "pattern": DURATION_PATTERN, "minLength": 1, "examples": ["0s", "21m", "1h30m", "21m2s"]},
        {"const": 0},
    ]
}
_NAME: JsonDict = {"type": "string", "minLength": 1}
_NAMES: JsonDict = {"anyOf": [_NAME, {"type": "array", "items": _NAME, "minItems": 1, "uniqueItems": True}]}

_NOT_EMPTY: JsonDict = {"minItems": 1}
"""Said to editors alone: ``scenarios`` says it to people, and goes on."""

At = Annotated[Moment, ReadBy(_moment, _MOMENT)]
Begins = Annotated[
    datetime, ReadBy(_begins, {"type": "string", "format": "date-time", "examples": ["2026-03-01T12:00:00Z"]})
]
AName = Annotated[str, ReadBy(_name, _NAME)]
OneOrMore = Annotated[tuple[str, ...], ReadBy(_one_or_more, _NAMES)]
Person = Annotated[str, ReadBy(_person, {**_NAME, "examples": ["alice"]})]
AReason = Annotated[str, _one_of(Reason, "reason", Reason.NONE)]
AnyReason = Annotated[str, _one_of(Reason, "reason")]
ActOutcome = Annotated[str, _one_of(Outcome, "outcome of an act", Outcome.SKIPPED)]
# The approval's own message is `asks`.
About = Annotated[
    str, _one_of(["step", *(kind.value for kind in MessageKind if kind is not MessageKind.APPROVAL)], "message")
]
EndOutcome = Annotated[str, _one_of(RunOutcome, "outcome of a run")]
Title = Annotated[str, Field(min_length=1), AfterValidator(_text(200))]
Rung = Annotated[int, Field(ge=2)]
Labels = Annotated[dict[str, str], Field(min_length=1)]


def _number_of_cpus(value: object) -> str:
    text = str(value) if isinstance(value, int | float) and not isinstance(value, bool) else ""
    if not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,9})?", text):
        raise problem("value", "must be a number of CPUs, as in 1.5")
    return text


def _stop_timeout(value: object) -> str:
    checked(parse_duration, "duration", "must be a duration, as in 90s or 5m")(value)
    return str(value)


class ContainerKeys(Table):
    """One container of the world."""

    status: Literal["created", "running", "paused", "restarting", "removing", "exited", "dead"] | None = Field(
        default=None, description="As Docker has it; default running."
    )
    labels: dict[str, str] | None = Field(default=None, description="Its own labels.")
    stop_timeout: Annotated[str, ReadBy(_stop_timeout, {"type": "string", "examples": ["5m"]})] | None = Field(
        default=None, description="Its own grace before it is killed; default none."
    )
    cpus: Annotated[str, ReadBy(_number_of_cpus, {"type": "number", "examples": [1.5]})] | None = Field(
        default=None, description="Its CPU limit, as in `docker run --cpus`; default none."
    )


@dataclass(frozen=True, slots=True)
class _ByHand:
    """Marks a type that editors are told of and ``scenarios`` checks: a union's own errors say nothing to people.

    The value comes as it stands in the file.
    """

    def __get_pydantic_core_schema__(self, source: object, inner: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(lambda value: value, json_schema_input_schema=inner(source))


Number = Annotated[float, Field(allow_inf_nan=False)]
Seen = Number | Annotated[list[Number], Field(min_length=1)] | Literal["nothing", "away"]
Sees = Annotated[dict[str, Seen | Annotated[dict[str, Seen], Field(min_length=1)]], Field(min_length=1), _ByHand()]
Docker = Annotated[
    dict[str, Literal["away", "back"] | dict[str, Literal["gone", "replaced"] | ContainerKeys]], _ByHand()
]
Alertmanager = Annotated[
    Literal["away", "back"] | dict[str, Literal["silenced", "inhibited", "active", "gone"]], _ByHand()
]


class WorldKeys(Table):
    """What is there: containers, and what the Alertmanager says of alerts."""

    docker: Docker | None = Field(
        default=None,
        description="Docker host → container → its keys, or gone or replaced; or away or back for the whole host.",
    )
    alertmanager: Alertmanager | None = Field(
        default=None,
        description="Alert → silenced, inhibited, active or gone; or away or back for the whole Alertmanager.",
    )


class AlertKeys(Table):
    """An alert that stories fire and resolve by its name."""

    labels: Labels = Field(description="Its labels, all as text.")
    annotations: dict[str, str] = Field(default_factory=dict, description="Its annotations, all as text.")
    generator_url: str = Field(
        default="",
        description="Link to the rule; alert.generator_url in templates.",
        examples=["http://prometheus:9090/graph"],
    )


class GroupKeys(Table):
    """What deliveries say of their group."""

    labels: dict[str, str] | None = Field(
        default=None, description="The group's labels; default the first alert's alertname."
    )
    receiver: AName | None = Field(
        default=None, description="The receiver's name; default remediator.", examples=["remediator"]
    )
    external_url: str | None = Field(
        default=None,
        description="The Alertmanager's own URL; default http://alertmanager:9093.",
        examples=["http://alertmanager:9093"],
    )


class StoryKeys(Table):
    """One thing that happens: a time, one verb, and what belongs to it."""

    at: At = Field(description="When, since the scenario's begin: 0s, 13m, 1h30m. Not before the entry above.")
    fires: OneOrMore | None = Field(
        default=None,
        description="Alertmanager delivers that this alert, or these, fire.",
        examples=["leak", ["leak", "hot"]],
    )
    repeats: OneOrMore | None = Field(default=None, description="It delivers again that they fire.", examples=["leak"])
    resolves: OneOrMore | None = Field(
        default=None, description="It delivers that they are resolved.", examples=["leak"]
    )
    late: PositiveDuration | None = Field(
        default=None, description="With fires, repeats, resolves: what is delivered was so this long ago."
    )
    copies: Count | None = Field(
        default=None, description="With fires, repeats, resolves: so many times, as by an HA pair; default 1."
    )
    truncated: Count | None = Field(
        default=None, description="With fires, repeats, resolves: so many more alerts were cut from the group."
    )
    delivers: AName | None = Field(
        default=None,
        description="A recorded webhook body is delivered: a file, beside the test file.",
        examples=["recorded.json"],
    )
    sees: Sees | None = Field(
        default=None,
        description="Condition → what its query gives from now on: a number, a list (one for each series), nothing"
        " (no series) or away (no Prometheus); or alert → such a map, for that alert alone. Alone or beside any verb.",
    )
    fails: AName | None = Field(default=None, description="The next calls of this action fail.")
    how: Failure | None = Field(
        default=None,
        strict=False,
        alias="with",
        description="With fails: transient (worth another attempt), permanent, timeout_after_effect (it happened,"
        " and no answer came) or unknown (nobody can tell).",
    )
    times: Count | None = Field(default=None, description="With fails: so many calls; default 1.")
    restarts: Literal["engine"] | None = Field(default=None, description="The engine is killed and started again.")
    down: PositiveDuration | None = Field(default=None, description="With restarts: away for so long; default 0s.")
    during: AName | None = Field(
        default=None, description="With restarts: killed in the middle of the next act of this action; default now."
    )
    approves: Person | None = Field(default=None, description="This person says yes to the open question.")
    denies: Person | None = Field(default=None, description="This person says no to the open question.")
    pauses: Person | None = Field(default=None, description="This person holds all acting.")
    resumes: Person | None = Field(default=None, description="This person ends the pause.")
    cancels: Person | None = Field(default=None, description="This person cancels the run that is open.")
    settles: Person | None = Field(
        default=None, description="This person says what became of an act whose outcome is unknown."
    )
    undoes: Person | None = Field(default=None, description="This person has taken back what a run changed.")
    resets: Person | None = Field(default=None, description="This person resets a breaker.")
    fate: Literal["happened", "did-not-happen"] | None = Field(
        default=None, alias="as", description="With settles: whether the act happened."
    )
    breaker: AName | None = Field(
        default=None, description="With resets: the breaker, by its policy's name.", examples=["site"]
    )
    reason: AName | None = Field(
        default=None, description="With what a person does: why.", examples=["a release is under way"]
    )
    playbook: Name | None = Field(
        default=None, description="With what a person does: about this playbook's run, where there are several."
    )
    alert: AName | None = Field(
        default=None,
        description="With what a person does: about this alert's run, where there are several.",
        examples=["leak"],
    )
    changes: WorldKeys | None = Field(default=None, description="The world changes behind everybody's back.")


class ExpectKeys(Table):
    """One thing that must happen: a time, one verb, and what is said of it."""

    at: At = Field(
        description="When, since the scenario's begin: within that minute (21m), or within that second (21m0s)."
        " Not before the entry above."
    )
    does: OneOrMore | None = Field(default=None, description="An action is carried out; its first attempt is then.")
    undoes: OneOrMore | None = Field(default=None, description="What an action did is taken back.")
    rung: Rung | None = Field(default=None, description="A run goes on to this rung of its ladder, or begins on it.")
    waits: AReason | None = Field(default=None, description="A plan's turn came and it waits, for this reason.")
    refuses: AReason | None = Field(default=None, description="A run ends refused, for this reason.")
    asks: OneOrMore | None = Field(
        default=None, description="This notification target is asked for approval.", examples=["oncall"]
    )
    tells: OneOrMore | None = Field(
        default=None, description="A message reaches this notification target.", examples=["oncall"]
    )
    ends: EndOutcome | None = Field(default=None, description="A run ends so.")
    target: AName | None = Field(
        default=None,
        description="With does, undoes: what is touched, as docker:gpu-07/trainer-0.",
        examples=["docker:gpu-07/trainer-0"],
    )
    params: dict[str, object] | None = Field(
        default=None, description="With does: params that it is called with; those that are not named may be any."
    )
    attempts: Count | None = Field(default=None, description="With does: how many there were; default 1.")
    outcome: ActOutcome | None = Field(default=None, description="With does, undoes: how it ended; default succeeded.")
    reason: AnyReason | None = Field(default=None, description="With ends: why.")
    says: AName | None = Field(
        default=None,
        description="With tells: text that its title or body holds; with ends, refuses: that its detail holds.",
        examples=["is hot"],
    )
    about: About | None = Field(
        default=None, description="With tells: which message it is; step for one that a playbook's step sends."
    )
    playbook: Name | None = Field(default=None, description="Of this playbook's run.")
    case: Name | None = Field(default=None, description="Of a run of this case of the playbook.")
    alert: AName | None = Field(default=None, description="Of this alert's run.", examples=["leak"])


class ScenarioKeys(Table):
    """One case: what happens, and what must come of it."""

    name: Title = Field(
        description="What it shows, in words; unique in the file.",
        json_schema_extra={"maxLength": 200, "pattern": r"^[^\x00-\x1f]+$"},
        examples=["restarts once, however often Alertmanager repeats"],
    )
    world: WorldKeys | None = Field(default=None, description="What differs from the file's world at the begin.")
    story: list[StoryKeys] = Field(description="What happens, in time order.", json_schema_extra=_NOT_EMPTY)
    expect: list[ExpectKeys] = Field(
        description="What must come of it, in time order; whatever else happens is a failure. [] = nothing at all."
    )
    never: Annotated[Names, Field(min_length=1)] | None = Field(
        default=None, description="Actions that must not be tried at all."
    )


class TestKeys(Table):
    """Tests of playbooks: alerts, a world, and scenarios that play in it."""

    __test__ = False  # to pytest this is no test

    playbooks: Names = Field(
        description="Files and folders of the playbooks to test, from this file's folder on.",
        examples=[["restart-on-leak.yaml"]],
        json_schema_extra=_NOT_EMPTY,
    )
    policies: Names | None = Field(
        default=None, description="Policies in force with them, likewise.", examples=[["site.policy.yaml"]]
    )
    settings: dict[str, object] | None = Field(
        default=None, description="Settings as in remediator.toml, where they are to differ from a bare engine's."
    )
    begins: Begins | None = Field(
        default=None, description="When every scenario begins, RFC 3339; default 2026-03-01T12:00:00Z."
    )
    group: GroupKeys | None = Field(default=None, description="What deliveries say of their group.")
    alerts: dict[str, AlertKeys] = Field(default_factory=dict, description="Alerts by the names that stories use.")
    world: WorldKeys | None = Field(default=None, description="What is there when each scenario begins.")
    scenarios: list[ScenarioKeys] = Field(description="The cases.", json_schema_extra=_NOT_EMPTY)


_DELIVERIES = frozenset({"late", "copies", "truncated"})
_ANSWERS = frozenset({"reason", "playbook", "alert"})

VERBS: Mapping[str, frozenset[str]] = {
    "fires": _DELIVERIES,
    "repeats": _DELIVERIES,
    "resolves": _DELIVERIES,
    "delivers": frozenset(),
    "fails": frozenset({"with", "times"}),
    "restarts": frozenset({"down", "during"}),
    "approves": _ANSWERS,
    "denies": _ANSWERS,
    "pauses": frozenset({"reason"}),
    "resumes": frozenset({"reason"}),
    "cancels": _ANSWERS,
    "settles": _ANSWERS | {"as"},
    "undoes": _ANSWERS,
    "resets": frozenset({"reason", "breaker"}),
    "changes": frozenset(),
}
"""What happens → what can be said of it. ``at`` and ``sees`` go with each, and ``sees`` alone."""

_OF_A_RUN = frozenset({"playbook", "case", "alert"})

EXPECTED: Mapping[str, frozenset[str]] = {
    "does": frozenset({"target", "params", "attempts", "outcome"}) | _OF_A_RUN,
    "undoes": frozenset({"target", "attempts", "outcome"}) | _OF_A_RUN,
    "rung": _OF_A_RUN,
    "waits": _OF_A_RUN,
    "refuses": frozenset({"says"}) | _OF_A_RUN,
    "asks": _OF_A_RUN,
    "tells": frozenset({"says", "about"}) | _OF_A_RUN,
    "ends": frozenset({"says", "reason"}) | _OF_A_RUN,
}
"""What must happen → what can be said of it."""

SETTINGS_THAT_ACT = (
    *("public_url", "label_map", "docker", "alertmanager", "reconcile", "prometheus", "fleets", "notify", "report_to"),
    *("escalate_to", "ignore_labels", "vars", "expire_after"),
)
"""The others are about the process: where it listens, keeps its store, and what it logs."""

NO_NUMBER = tuple(word.value for word in Nothing)
HOST_WORDS = ("away", "back")
CONTAINER_WORDS = ("gone", "replaced")
ALERT_WORDS = ("silenced", "inhibited", "active", "gone")
