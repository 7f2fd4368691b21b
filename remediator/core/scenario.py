"""Playbook tests as values: what a story does to an engine, what is expected of it, and how far the two agree.

Takes → gives: ``Expectation``s and the ``Happening``s that a played story left → ``Line``s, each an expectation and
what happened side by side. Written in files (``loading.scenarios``) and played (``engine.playtest``) elsewhere.

Must never: decide anything that the engine decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import product
from pathlib import Path
from typing import TypeAlias

from remediator.core.action import JsonValue
from remediator.core.outcome import Outcome, RunOutcome

BEGINS = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
"""When a scenario begins, where its file says nothing: any moment will do, so long as it is the same each time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioAlert:
    """An alert that a story fires and resolves by its name."""

    name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str] = field(default_factory=dict)
    generator_url: str = ""


class Word(StrEnum):
    """What a delivery says of an alert; the verbs of a story."""

    FIRES = "fires"
    REPEATS = "repeats"
    RESOLVES = "resolves"


@dataclass(frozen=True, slots=True, kw_only=True)
class Says:
    """Alertmanager delivers alerts, together in one group.

    Attributes:
        late: so long ago was it that what the delivery says was so; it arrives out of order.
        copies: how often it is delivered, as by a pair of Alertmanagers.
        truncated: how many more alerts the group had (``truncatedAlerts``).
    """

    word: Word
    alerts: tuple[str, ...]
    late: timedelta = timedelta(0)
    copies: int = 1
    truncated: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Posts:
    """A recorded body is delivered as it stands."""

    file: str
    body: bytes


class Nothing(StrEnum):
    """What a condition gives instead of a number."""

    NOTHING = "nothing"
    """No series: the query gives nothing."""
    AWAY = "away"
    """No Prometheus answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sees:
    """What a condition's query gives from now on.

    Attributes:
        alert: only where the query is this alert's own; "" = everywhere.
        values: one number for each series, or why there is none.
    """

    name: str
    values: tuple[float, ...] | Nothing
    alert: str = ""


class Failure(StrEnum):
    """How a call fails that is scripted to."""

    TRANSIENT = "transient"
    """Nothing was done, another attempt may work."""
    PERMANENT = "permanent"
    """Nothing was done, another attempt would fail the same way."""
    TIMEOUT_AFTER_EFFECT = "timeout_after_effect"
    """It was done, and no answer came."""
    UNKNOWN = "unknown"
    """No answer came, and no look can tell what happened: the container has been made anew meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fails:
    """The next calls of an action fail."""

    action: str
    how: Failure
    times: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarts:
    """The engine is killed, and started again.

    Attributes:
        down: how long it is away.
        during: it is killed in the middle of the next act of this name, which happens; "" = now.
    """

    down: timedelta = timedelta(0)
    during: str = ""


class Deed(StrEnum):
    """What people do; the verbs of a story."""

    APPROVES = "approves"
    DENIES = "denies"
    PAUSES = "pauses"
    RESUMES = "resumes"
    CANCELS = "cancels"
    SETTLES = "settles"
    UNDOES = "undoes"
    RESETS = "resets"


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """A person does something.

    Attributes:
        playbook, alert: which run it is about, where there are several.
        breaker: the one to reset.
        has_happened: of an act whose outcome is unknown.
    """

    deed: Deed
    name: str
    reason: str = ""
    playbook: str = ""
    alert: str = ""
    breaker: str = ""
    has_happened: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What is there when a scenario begins, or what of it changes.

    Attributes:
        docker: host → container name → its keys as the file has them (``status``, ``labels``, ``stop_timeout``,
            ``cpus``), or ``gone`` or ``replaced``; or ``away`` or ``back`` for the whole host.
        alertmanager: ``away`` or ``back``; or alert → ``silenced``, ``inhibited``, ``active``, or ``gone`` (it has the
            alert no more, and nobody delivers that it is resolved).
    """

    docker: Mapping[str, Mapping[str, Mapping[str, JsonValue] | str] | str] = field(default_factory=dict)
    alertmanager: Mapping[str, str] | str = ""


What: TypeAlias = Says | Posts | Fails | Restarts | Person | World


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryEvent:
    """One thing that happens to the engine.

    Attributes:
        at: since the scenario's begin.
        what: None where only the conditions' values change.
        sees: set before ``what`` happens.
        line: in its file, 1-based.
    """

    at: timedelta
    line: int
    what: What | None = None
    sees: tuple[Sees, ...] = ()


class Kind(StrEnum):
    """What an engine can do that is told of in an expectation; the word is its key."""

    DOES = "does"
    UNDOES = "undoes"
    RUNG = "rung"
    WAITS = "waits"
    REFUSES = "refuses"
    ASKS = "asks"
    TELLS = "tells"
    ENDS = "ends"


ACTS = (Kind.DOES, Kind.UNDOES)
"""These come in the order in which they are written; what else is of one moment may come in any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """One thing that must happen.

    Attributes:
        at: since the scenario's begin.
        within: from ``at`` on it may happen so much later: a minute where the time was written without seconds, a
            second where it was written with them.
        value: the action, outcome, reason, name or number behind the kind.
        details: what else is said of it; keys of ``Happening.details``.
    """

    at: timedelta
    within: timedelta
    kind: Kind
    value: str
    details: Mapping[str, JsonValue] = field(default_factory=dict)
    line: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """One thing that the engine did.

    Attributes:
        details: all that may be expected of it: ``target``, ``params``, ``attempts``, ``outcome``, ``reason``,
            ``playbook``, ``case``, ``alert``, ``about``, ``says``, each where it has it. ``says`` is the whole text.
    """

    at: timedelta
    kind: Kind
    value: str
    details: Mapping[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One case of a playbook test file.

    Attributes:
        world: what differs from the file's world when it begins.
        never: actions that must not be tried at all.
    """

    name: str
    line: int
    story: tuple[StoryEvent, ...]
    expect: tuple[Expectation, ...]
    never: tuple[str, ...] = ()
    world: World = World()


@dataclass(frozen=True, slots=True, kw_only=True)
class TestFile:
    """What one ``*.test.yaml`` holds.

    Attributes:
        paths: of the playbooks and policies that it tests, absolute.
        settings: keys of ``remediator.toml`` that differ from a bare engine's.
        group: ``labels``, ``receiver`` and ``external_url`` of the groups that are delivered.
    """

    __test__ = False  # to pytest this is no test

    file: str
    paths: tuple[Path, ...]
    alerts: Mapping[str, ScenarioAlert]
    scenarios: tuple[Scenario, ...]
    settings: Mapping[str, JsonValue] = field(default_factory=dict)
    group: Mapping[str, JsonValue] = field(default_factory=dict)
    world: World = World()
    begins: datetime = BEGINS


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What was expected, and what happened, side by side.

    Attributes:
        differences: what of ``happened`` is not as expected, for people; only where both are there and do not agree.
        forbidden: it was to happen never.
        place: of ``happened`` among all that happened, from 0; -1 where nothing did.
    """

    expected: Expectation | None
    happened: Happening | None
    differences: tuple[str, ...] = ()
    forbidden: bool = False
    place: int = -1

    @property
    def is_ok(self) -> bool:
        """Whether it happened, and as expected."""
        return self.expected is not None and self.happened is not None and not self.differences and not self.forbidden


AT_ANOTHER_TIME = "at another time"
IN_ANOTHER_ORDER = "in another order"
"""Differences that are none of a detail."""

_ENDS = (Kind.REFUSES, Kind.ENDS)
"""Either is how a run ends."""


def compare(expected: Sequence[Expectation], happened: Sequence[Happening], never: Sequence[str] = ()) -> list[Line]:
    """Lay what was expected beside what happened.

    Args:
        expected: in time order.
        happened: in the order in which it happened.
        never: names of actions that must not be among them.

    Returns:
        A line for each expectation and each happening, those that belong together on one, in time order.
    """
    pairs = {**_pair_acts(expected, happened), **_pair_others(expected, happened)}
    left = [place for place in range(len(happened)) if place not in pairs.values()]
    lines: list[tuple[timedelta, int, Line]] = []
    for n, one in enumerate(expected):
        place = pairs[n] if n in pairs else _nearest(one, [(place, happened[place]) for place in left])
        other = happened[place] if place is not None else None
        if place in left:
            left.remove(place)
        at = other.at if n in pairs and other is not None else one.at
        differences = differences_of(one, other) if other is not None else ()
        if other is not None and n not in pairs and not differences:
            differences = (IN_ANOTHER_ORDER,)
        lines.append((at, n, _line(one, other, differences, never, -1 if place is None else place)))
    lines += [
        (happened[place].at, len(expected) + place, _line(None, happened[place], (), never, place)) for place in left
    ]
    return [line for _, _, line in sorted(lines, key=lambda entry: entry[:2])]


def differences_of(expected: Expectation, happened: Happening) -> tuple[str, ...]:
    """What of a happening is not as expected, for people; () where all is."""
    found = []
    is_refused = expected.kind is Kind.ENDS and expected.value == RunOutcome.REFUSED.value
    if (expected.kind, expected.value) != (happened.kind, happened.value) and not (
        is_refused and happened.kind is Kind.REFUSES
    ):
        found.append(f"{happened.kind.value} {happened.value}")
    if not expected.at <= happened.at < expected.at + expected.within:
        found.append(AT_ANOTHER_TIME)
    wanted_details: dict[str, JsonValue] = {**_assumed(expected), **expected.details}
    found += [
        f"{key}: {_shown(happened.details.get(key))}"
        for key, wanted in wanted_details.items()
        if not _fits(key, wanted, happened.details.get(key))
    ]
    return tuple(found)


def _assumed(expected: Expectation) -> Mapping[str, JsonValue]:
    """What an act is taken to be where nothing is said of it: done once, and well."""
    if expected.kind not in ACTS:
        return {}
    return {"attempts": 1, "outcome": expected.details.get("outcome", Outcome.SUCCEEDED.value)}


def _fits(key: str, wanted: JsonValue, found: JsonValue | None) -> bool:
    match key:
        case "params":
            return (
                isinstance(wanted, Mapping)
                and isinstance(found, Mapping)
                and all(name in found and found[name] == value for name, value in wanted.items())
            )
        case "says":
            return isinstance(wanted, str) and isinstance(found, str) and wanted in found
        case _:
            return wanted == found


def _shown(value: JsonValue | None) -> str:
    return "none" if value in (None, "") else str(value)


def _line(
    expected: Expectation | None,
    happened: Happening | None,
    differences: tuple[str, ...],
    never: Sequence[str],
    place: int,
) -> Line:
    forbidden = happened is not None and happened.kind in ACTS and happened.value in never
    return Line(expected=expected, happened=happened, differences=differences, forbidden=forbidden, place=place)


def _pair_acts(expected: Sequence[Expectation], happened: Sequence[Happening]) -> dict[int, int]:
    """Acts in their order: the longest run of pairs that does not cross (as a diff does it)."""
    left = [n for n, one in enumerate(expected) if one.kind in ACTS]
    right = [place for place, one in enumerate(happened) if one.kind in ACTS]
    longest = [[0] * (len(right) + 1) for _ in range(len(left) + 1)]
    for i, j in product(reversed(range(len(left))), reversed(range(len(right)))):
        fits = not differences_of(expected[left[i]], happened[right[j]])
        longest[i][j] = max(longest[i + 1][j], longest[i][j + 1], longest[i + 1][j + 1] + 1 if fits else 0)
    pairs, i, j = {}, 0, 0
    while i < len(left) and j < len(right):
        if longest[i][j] == longest[i][j + 1]:
            j += 1
        elif longest[i][j] == longest[i + 1][j]:
            i += 1
        else:
            pairs[left[i]] = right[j]
            i, j = i + 1, j + 1
    return pairs


def _pair_others(expected: Sequence[Expectation], happened: Sequence[Happening]) -> dict[int, int]:
    """All else as pairs, as many as can be (augmenting paths): a vague expectation leaves the precise ones theirs."""
    wanted = [n for n, one in enumerate(expected) if one.kind not in ACTS]
    fits = {
        n: [
            place for place, one in enumerate(happened) if one.kind not in ACTS and not differences_of(expected[n], one)
        ]
        for n in wanted
    }
    taken: dict[int, int] = {}

    def take(n: int, seen: set[int]) -> bool:
        for place in fits[n]:
            if place not in seen:
                seen.add(place)
                if place not in taken or take(taken[place], seen):
                    taken[place] = n
                    return True
        return False

    for n in wanted:
        take(n, set())
    return {n: place for place, n in taken.items()}


def _nearest(expected: Expectation, left: Sequence[tuple[int, Happening]]) -> int | None:
    """The happening that was probably meant: of the same kind, best with the same value, the nearest in time."""
    nearness: Callable[[tuple[int, Happening]], tuple[bool, bool, int, timedelta]] = lambda entry: (  # noqa: E731
        entry[1].kind is not expected.kind,
        entry[1].value != expected.value,
        len(differences_of(expected, entry[1])),
        abs(entry[1].at - expected.at),
    )
    kinds = _ENDS if expected.kind in _ENDS else (expected.kind,)
    alike = [entry for entry in left if entry[1].kind in kinds]
    return min(alike, key=nearness)[0] if alike else None
