"""Playbook tests as text: the other way round than ``scenarios`` reads them.

Takes a ``TestFile`` → YAML as people write it: an entry a line, no line longer than 100 columns where it can be broken.
What it writes, ``scenarios`` reads as the same file (a test holds it).
"""

from __future__ import annotations

import json
import os
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from remediator.core.action import JsonValue
from remediator.core.event import utc_text
from remediator.core.outcome import Outcome
from remediator.core.scenario import (
    ACTS,
    BEGINS,
    Deed,
    Expectation,
    Fails,
    Nothing,
    Person,
    Restarts,
    Says,
    Sees,
    StoryEvent,
    TestFile,
    World,
)
from remediator.core.units import print_duration

WIDTH = 100

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)

_PLAIN = re.compile(r"[A-Za-z_/][\w./@+-]*(?:[ :](?=[\w/])[\w./@+-]*)*")
"""Text that needs no quotes anywhere: it begins with a letter, and no colon or blank in it ends a word."""

_DURATION = re.compile(r"(?:\d+(?:ms|[smhdwy]))+")

_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n", "nothing", "away"})
"""Some YAML readers take these for something else than text, and so does the format."""


def write_test(file: TestFile, folder: Path, comments: Sequence[str] = ()) -> str:
    """The file as YAML.

    Args:
        file: without recorded bodies (``delivers``), which have files of their own.
        folder: where it will stand; the paths of its playbooks count from there.
        comments: what is said at its top, a sentence or more each.
    """
    return "\n".join([*_comments(comments), *_head(file, folder), *_scenarios(file)]) + "\n"


def _comments(comments: Sequence[str]) -> Iterator[str]:
    for comment in comments:
        yield from textwrap.wrap(
            comment,
            WIDTH,
            initial_indent="# ",
            subsequent_indent="#   ",
            break_on_hyphens=False,
            break_long_words=False,
        )


def _head(file: TestFile, folder: Path) -> Iterator[str]:
    yield from _entry("playbooks", [os.path.relpath(path, folder.absolute()) for path in file.paths], "")
    if file.settings:
        yield from _entry("settings", file.settings, "")
    if file.begins != BEGINS:
        yield f"begins: {utc_text(file.begins).replace('.000000Z', 'Z')}"
    if file.group:
        yield from _entry("group", file.group, "")
    if file.alerts:
        yield "alerts:"
        for name, alert in file.alerts.items():
            keys: dict[str, Any] = {"labels": alert.labels}
            if alert.annotations:
                keys["annotations"] = alert.annotations
            if alert.generator_url:
                keys["generator_url"] = alert.generator_url
            yield from _entry(name, keys, "  ")
    if file.world.docker or file.world.alertmanager:
        yield from _entry("world", _world(file.world), "")


def _scenarios(file: TestFile) -> Iterator[str]:
    n_alerts, n_playbooks = _told_apart(file)
    yield "scenarios:"
    for scenario in file.scenarios:
        yield f"  - name: {_scalar(scenario.name)}"
        if scenario.world != World():
            yield from _entry("world", _world(scenario.world), "    ")
        yield "    story:"
        for event in scenario.story:
            yield from _item(_story(event), "      ")
        yield "    expect:" if scenario.expect else "    expect: []"
        for one in scenario.expect:
            yield from _item(_expectation(one, has_alert=n_alerts > 1, has_playbook=n_playbooks > 1), "      ")
        if scenario.never:
            yield from _entry("never", scenario.never, "    ")


def _told_apart(file: TestFile) -> tuple[int, int]:
    """How many alerts and how many playbooks the expectations are about: where it is one, it needs no word."""
    details = [one.details for scenario in file.scenarios for one in scenario.expect]
    return len({one.get("alert") for one in details}), len({one.get("playbook") for one in details})


# -- entries as plain maps ---------------------------------------------------------------------------------------------


class _Raw(str):
    """Text that stands as it is."""

    __slots__ = ()


def _world(world: World) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if world.docker:
        found["docker"] = {
            host: _Raw(containers)
            if isinstance(containers, str)
            else {name: _Raw(keys) if isinstance(keys, str) else _container(keys) for name, keys in containers.items()}
            for host, containers in world.docker.items()
        }
    if world.alertmanager:
        found["alertmanager"] = _Raw(said) if isinstance(said := world.alertmanager, str) else said
    return found


def _container(keys: Mapping[str, JsonValue]) -> dict[str, Any]:
    raw = ("cpus", "stop_timeout")
    return {name: _Raw(value) if name in raw else value for name, value in keys.items()}


def _story(event: StoryEvent) -> dict[str, Any]:
    found: dict[str, Any] = {"at": _Raw(print_duration(event.at)), **_what(event)}
    if event.sees:
        found["sees"] = _seen(event.sees)
    return found


def _what(event: StoryEvent) -> dict[str, Any]:
    match event.what:
        case Says() as says:
            found: dict[str, Any] = {says.word.value: _one_or_more(says.alerts)}
            if says.late:
                found["late"] = _Raw(print_duration(says.late))
            if says.copies > 1:
                found["copies"] = says.copies
            return found | ({"truncated": says.truncated} if says.truncated else {})
        case Fails() as fails:
            times = {"times": fails.times} if fails.times > 1 else {}
            return {"fails": fails.action, "with": fails.how, **times}
        case Restarts() as restarts:
            found = {"restarts": "engine"}
            if restarts.during:
                found["during"] = restarts.during
            return found | ({"down": _Raw(print_duration(restarts.down))} if restarts.down else {})
        case Person() as person:
            found = {person.deed.value: person.name}
            if person.deed is Deed.SETTLES:
                found["as"] = "happened" if person.has_happened else "did-not-happen"
            named = {name: getattr(person, name) for name in ("breaker", "reason", "playbook", "alert")}
            return found | {name: value for name, value in named.items() if value}
        case World() as world:
            return {"changes": _world(world)}
        case _:
            return {}


def _seen(sees: Sequence[Sees]) -> dict[str, Any]:
    """Condition → value; an alert's own ones under its name."""
    found: dict[str, Any] = {}
    for one in sees:
        (found.setdefault(one.alert, {}) if one.alert else found)[one.name] = _value(one.values)
    return found


def _value(values: tuple[float, ...] | Nothing) -> Any:
    if isinstance(values, Nothing):
        return _Raw(values.value)
    numbers = [_Raw(repr(int(one)) if float(one).is_integer() else repr(float(one))) for one in values]
    return numbers[0] if len(numbers) == 1 else numbers


def _expectation(one: Expectation, *, has_alert: bool, has_playbook: bool) -> dict[str, Any]:
    details, found = one.details, dict[str, Any]()
    found["at"] = _Raw(at_text(one.at, one.within))
    found[one.kind.value] = one.value if not one.value.isdigit() else _Raw(one.value)
    told = ["target", "params", "about"] + (["alert"] if has_alert else []) + (["playbook"] if has_playbook else [])
    found |= {name: details[name] for name in told if details.get(name)}
    if isinstance(params := found.get("params"), Mapping) and "target" in found:  # which says where
        found["params"] = {name: value for name, value in params.items() if name not in ("container", "host")}
        if not found["params"]:
            del found["params"]
    if one.kind in ACTS:
        if details.get("attempts", 1) != 1:
            found["attempts"] = details["attempts"]
        if details.get("outcome", Outcome.SUCCEEDED.value) != Outcome.SUCCEEDED.value:
            found["outcome"] = details["outcome"]
    elif details.get("reason") not in (None, "", "none") and one.kind.value == "ends":
        found["reason"] = details["reason"]
    return found


def at_text(at: timedelta, within: timedelta = MINUTE) -> str:
    """A time as a test writes it: ``13m`` for any second of that minute, ``13m0s`` for that second alone."""
    whole = timedelta(seconds=at // SECOND)
    if within >= MINUTE:
        whole -= whole % MINUTE
        return print_duration(whole) if whole else "0m"
    if whole and not whole % MINUTE:
        return f"{print_duration(whole)}0s"
    return print_duration(whole)


def _one_or_more(names: Sequence[str]) -> Any:
    return names[0] if len(names) == 1 else list(names)


# -- YAML --------------------------------------------------------------------------------------------------------------


def _entry(key: str, value: Any, indent: str) -> Iterator[str]:
    """``key: value`` on one line where it fits, else its parts below it."""
    line = f"{indent}{_scalar(key)}: {flow(value)}"
    if len(line) <= WIDTH or not isinstance(value, Mapping | list | tuple) or not value:
        yield line
        return
    yield f"{indent}{_scalar(key)}:"
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _entry(name, item, indent + "  ")
    else:
        for item in value:
            yield f"{indent}  - {flow(item)}"


def _item(entry: Mapping[str, Any], indent: str) -> Iterator[str]:
    """One entry of a list, on one line where it fits."""
    line = f"{indent}- {flow(entry)}"
    if len(line) <= WIDTH:
        yield line
        return
    first = True
    for key, value in entry.items():
        for part in _entry(key, value, indent + "  "):
            yield f"{indent}- {part[len(indent) + 2 :]}" if first else part
            first = False


def flow(value: Any) -> str:
    """A value as YAML on one line, which is printable whatever a label holds. Text is quoted where it needs to be."""
    match value:
        case Mapping():
            return "{" + ", ".join(f"{_scalar(key)}: {flow(item)}" for key, item in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(flow(item) for item in value) + "]"
        case _:
            return _scalar(value)


def _scalar(value: Any) -> str:
    if isinstance(value, _Raw):
        return str(value)
    if not isinstance(value, str):
        return json.dumps(value)
    is_plain = value.isascii() and value.lower() not in _WORDS
    if is_plain and (_PLAIN.fullmatch(value) or _DURATION.fullmatch(value)):
        return value
    return '"' + "".join(_escaped(char) for char in value) + '"'


def _escaped(char: str) -> str:
    """As YAML escapes it; JSON has no way for one beyond 16 bits that YAML reads."""
    if char in '"\\':
        return f"\\{char}"
    return char if char.isprintable() else f"\\U{ord(char):08x}" if ord(char) > 0xFFFF else f"\\u{ord(char):04x}"
