"""One test file's document → ``TestFile``, or what is wrong with it, all at once.

Takes the document, where it lies and the actions there are; adds every problem that it meets to a list. Keys, names and
times are held against each other: a scenario that asks for what cannot be is refused before anything is played. Must
never: stop at the first problem, complain of what only comes of another one, or let a key pass that does nothing.
"""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError, create_model

from remediator.core.action import ActionParams, JsonValue, LookingAction, LookingActions
from remediator.core.alert import label_key
from remediator.core.decode import decode
from remediator.core.outcome import Outcome, RunOutcome
from remediator.core.scenario import (
    ACTS,
    BEGINS,
    Deed,
    Expectation,
    Fails,
    Failure,
    Kind,
    Nothing,
    Person,
    Posts,
    Restarts,
    Says,
    Scenario,
    ScenarioAlert,
    Sees,
    StoryEvent,
    TestFile,
    What,
    Word,
    World,
)
from remediator.core.units import cut, print_duration
from remediator.errors import DeliveryError, ParamsError, UnknownActionError
from remediator.loading.document import Document, Node, cannot_be_read, entries_of, items_of, read_bytes
from remediator.loading.document import Path as Place
from remediator.loading.read import Problems, fields, in_words, read_keys, read_part, suggest
from remediator.loading.scenario_format import (
    ALERT_WORDS,
    CONTAINER_WORDS,
    EXPECTED,
    HOST_WORDS,
    NO_NUMBER,
    SETTINGS_THAT_ACT,
    VERBS,
    ContainerKeys,
    ExpectKeys,
    Moment,
    ScenarioKeys,
    StoryKeys,
    TestKeys,
)
from remediator.settings import Settings, table_problems

MOST_COMPARED = 200_000
"""Words of one file with each name that may have been meant. With thousands of both it would be read for hours."""

MAX_DELIVERY_BYTES = 16 * 1024 * 1024
"""Of a recorded body: what an engine takes at most unless it is told otherwise."""


_OTHER_SETTINGS = frozenset(Settings.model_fields) - {*SETTINGS_THAT_ACT}

_NEEDED = ("playbooks", "scenarios")


def build_test_file(document: Document, path: Path, actions: LookingActions, problems: Problems) -> TestFile | None:
    """A test file, as far as it can be read: with problems, it is not to be played.

    Args:
        path: of the file; what it names counts from its folder.
        actions: the registry.
        problems: to which its own are added.
    """
    return _Reader(document, path, actions, problems).read()


def _shown(keys: Iterable[str]) -> str:
    """Keys as messages show them."""
    return ", ".join(f"`{key}`" for key in keys)


@dataclass(slots=True)
class _Told:
    """What a story has said of its alerts so far.

    Attributes:
        was: alert → when it began and ended to fire, and the line that says so, in the order in which it was told.
        is_unsure: alerts of which nobody here knows whether they fire: a recorded body speaks of them, or they have
            ended without a word.
    """

    was: dict[str, list[tuple[timedelta, bool, int]]] = field(default_factory=dict)
    is_unsure: set[str] = field(default_factory=set)

    def fires(self, alert: str, at: timedelta | None = None) -> bool:
        """Whether it fires by what was told last, or fired at a moment."""
        told = [fires for moment, fires, _ in self.was.get(alert, []) if at is None or moment <= at]
        return bool(told) and told[-1]

    def line(self, alert: str) -> int:
        """Where it was told last."""
        return self.was[alert][-1][2]


@dataclass(slots=True)
class _There:
    """What of the world has been named so far, so that it can go away."""

    containers: dict[str, set[str]] = field(default_factory=dict)
    hosts: set[str] = field(default_factory=set)

    def copy(self) -> _There:
        return _There({host: {*names} for host, names in self.containers.items()}, {*self.hosts})


class _Reader:
    """Reads one test file."""

    def __init__(self, document: Document, path: Path, actions: LookingActions, problems: Problems) -> None:
        self._root = document.root
        self._document = document
        self._folder = path.parent.absolute()
        self._actions = actions
        self._problems = problems
        self._sizes: dict[int, int] = {}
        self._alert_names: frozenset[str] = frozenset()
        self._labels: dict[str, Mapping[str, str]] = {}
        self._recorded: dict[str, Posts | str] = {}
        self._spoken_of: dict[str, frozenset[str]] = {}
        self._has_alertmanager = False
        self._n_compared = 0

    def read(self) -> TestFile | None:
        """The file, as far as it can be read: with problems, not to be played."""
        entries = self._root.value
        if not isinstance(entries, dict):
            self._problems.add((), f"a test file is a map of keys and values: {_shown(_NEEDED)}")
            return None
        if not {*entries} & {*_NEEDED} and (
            kind := next((key for key in ("playbook", "policy") if key in entries), "")
        ):
            self._problems.add((), f"this is a {kind} and no test of one: a test file has {_shown(_NEEDED)}")
            return None
        self._alert_names = frozenset(entries_of(entries.get("alerts")))
        self._put_in_what_is_missing()
        self._note_sizes(self._root)
        self._tell_what_is_meant()
        keys = read_keys(self._document, TestKeys, self._problems, has_templates=False)
        if keys is None:
            return None
        self._check_settings(keys.settings)
        self._check_alerts(keys)
        there = _There(hosts={*entries_of(self._node("settings", "docker", "hosts"))})
        world = self._world(("world",), there, can_go=False) if keys.world is not None else World()
        return TestFile(
            file=self._document.file,
            paths=tuple(self._paths(keys)),
            alerts={
                name: ScenarioAlert(
                    name=name,
                    labels=alert.labels,
                    annotations=alert.annotations,
                    generator_url=alert.generator_url,
                )
                for name, alert in keys.alerts.items()
            },
            scenarios=tuple(self._scenarios(keys, there)),
            settings=keys.settings or {},  # type: ignore[arg-type]  # JSON, as the settings have been checked
            group={} if keys.group is None else keys.group.model_dump(exclude_none=True),
            world=world,
            begins=keys.begins or BEGINS,
        )

    def _hint(self, word: str, known: Collection[str], otherwise: str = "; there are: ") -> str:
        """What was probably meant; "" where so much is wrong that looking would take long, and nobody reads on."""
        self._n_compared += len(known)
        return suggest(word, known, otherwise) if self._n_compared <= MOST_COMPARED else ""

    def _hint_of_files(self, path: Path) -> str:
        try:
            return self._hint(path.name, [entry.name for entry in os.scandir(path.parent)], "")
        except (OSError, ValueError):
            return ""

    # -- what stands in the file

    def _node(self, *path: str | int) -> Node | None:
        """The node at a path, None when there is none."""
        return self._root.find(path)

    def _note_sizes(self, node: Node) -> int:
        """How much stands below each node, before what is wrong is taken out."""
        size = 1 + sum(self._note_sizes(child) for child in _children(node))
        self._sizes[id(node)] = size
        return size

    def _is_whole(self, node: Node) -> bool:
        """Whether nothing below it was taken out: else what is missed there may have been meant."""
        return self._sizes.get(id(node)) == _size(node)

    def _put_in_what_is_missing(self) -> None:
        """Tell what must be there and is not; something stands in for it, so that all else can be looked at."""
        self._put_in((), {"playbooks": "", "scenarios": ""}, TestKeys)
        for n, _ in enumerate(items_of(self._node("scenarios"))):
            wanted = {"name": "", "story": "", "expect": "; [] = nothing at all must happen"}
            self._put_in(("scenarios", n), wanted, ScenarioKeys)

    def _put_in(self, path: Place, wanted: Mapping[str, str], model: type[BaseModel]) -> None:
        node = self._root.at(path)
        entries = node.value
        if not isinstance(entries, dict):
            return
        for key, hint in wanted.items():
            there = entries.get(key)
            if there is not None and there.value is None:
                self._problems.add((*path, key), f"`{key}` has no value{hint}")
                entries[key] = Node(f"nameless {path}" if key == "name" else [], there.line, there.column)
            elif there is None:
                if not any(key in difflib.get_close_matches(other, fields(model), n=1) for other in entries):
                    self._problems.add(path, f"`{key}` is missing{hint}")
                entries[key] = Node(f"nameless {path}" if key == "name" else [], node.line, node.column)
            elif there.value == [] and key != "expect":
                self._problems.add((*path, key), f"`{key}` must not be empty")

    def _tell_what_is_meant(self) -> None:
        """Mistakes whose own message says more than that there is no such key or value."""
        doomed: list[Place] = []
        for n, scenario in enumerate(items_of(self._node("scenarios"))):
            for m, entry in enumerate(items_of(entries_of(scenario).get("story"))):
                for key, node in entries_of(entry).items():
                    place: Place = ("scenarios", n, "story", m, key)
                    if key in {*EXPECTED} - {*VERBS}:
                        self._problems.add(place, f"`{key}` is what must come of it; write it under `expect`")
                        doomed.append(place)
                    elif key == "sees":
                        doomed += self._empty_sees(node, place)
            for m, entry in enumerate(items_of(entries_of(scenario).get("expect"))):
                for key in entries_of(entry):
                    if key in {*VERBS, "sees"} - {*EXPECTED}:
                        place = ("scenarios", n, "expect", m, key)
                        self._problems.add(place, f"`{key}` is what happens to the engine; write it under `story`")
                        doomed.append(place)
        self._root.without(doomed)

    def _empty_sees(self, node: Node, place: Place) -> list[Place]:
        empty = []
        for name, value in entries_of(node).items():
            if value.value is None:
                self._problems.add((*place, name), f"`{name}` sees no value; write {name}: nothing")
                empty.append((*place, name))
            else:
                empty += self._empty_sees(value, (*place, name))
        return empty

    # -- the parts of a file

    def _paths(self, keys: TestKeys) -> Iterator[Path]:
        for key, names in (("playbooks", keys.playbooks), ("policies", keys.policies or [])):
            for index, name in enumerate(names):
                path = self._folder / name
                try:
                    path.stat()
                except (OSError, ValueError) as error:
                    why = f"{cannot_be_read(error)}{self._hint_of_files(path)}"
                    message = f"{cut(name, 200)} {why}; paths count from this file's folder"
                    self._problems.add((key, index), message)
                yield path

    def _check_settings(self, settings: Mapping[str, object] | None) -> None:
        if settings is None:
            return
        given = dict(settings)
        for name in settings:
            if name == "playbooks":
                self._problems.add(("settings", name), "`playbooks` stands at the top of a test file")
            elif name in _OTHER_SETTINGS:
                message = f"`{name}` means nothing to a test; those that do: {', '.join(SETTINGS_THAT_ACT)}"
                self._problems.add(("settings", name), message)
            else:
                continue
            del given[name]
        for place, message in table_problems(given):
            name = ".".join(map(str, place))
            self._problems.add(("settings", *place), f"`{name}`: {message}")
        urls = self._node("settings", "alertmanager", "urls")
        self._has_alertmanager = urls is not None and bool(urls.value)

    def _check_alerts(self, keys: TestKeys) -> None:
        first: dict[frozenset[tuple[str, str]], str] = {}
        for name, alert in keys.alerts.items():
            place = ("alerts", name)
            if not name.strip():
                self._problems.add(place, "an alert needs a name")
            self._labels[name] = alert.labels
            labels = frozenset(alert.labels.items())
            if (same := first.setdefault(labels, name)) != name:
                message = f"{name} has the same labels as {same}: to Alertmanager the two are one alert"
                self._problems.add((*place, "labels"), message)

    def _world(self, path: Place, there: _There, *, can_go: bool) -> World:
        """What is there, or changes.

        Args:
            there: what has been named before, to which this adds.
            can_go: whether anything can have been there before.
        """
        docker: dict[str, Mapping[str, Mapping[str, JsonValue] | str] | str] = {}
        for host, node in self._map((*path, "docker"), "Docker host → its containers"):
            here = (*path, "docker", host)
            if isinstance(node.value, dict):
                there.hosts.add(host)
                docker[host] = dict(self._containers(here, host, there, can_go=can_go))
            elif self._is_word(node, here, HOST_WORDS, f"a map of containers, or {' or '.join(HOST_WORDS)}"):
                if can_go:
                    self._check_was_there(host, there.hosts, here, "Docker host", None)
                there.hosts.add(host)
                docker[host] = str(node.value)
        return World(docker=docker, alertmanager=self._alertmanager((*path, "alertmanager")))

    def _containers(
        self, path: Place, host: str, there: _There, *, can_go: bool
    ) -> Iterator[tuple[str, Mapping[str, JsonValue] | str]]:
        known = there.containers.setdefault(host, set())
        for name, node in entries_of(self._node(*path)).items():
            here = (*path, name)
            if isinstance(node.value, dict):
                known.add(name)
                keys = read_part(self._document, here, ContainerKeys, self._problems)
                yield name, {} if keys is None else keys.model_dump(exclude_none=True)
            elif self._is_word(node, here, CONTAINER_WORDS, f"a map of its keys, or {' or '.join(CONTAINER_WORDS)}"):
                if not can_go:
                    self._problems.add(here, f"nothing was there before the begin that could be {node.value}")
                else:
                    self._check_was_there(name, known, here, "container", host)
                yield name, str(node.value)

    def _alertmanager(self, path: Place) -> Mapping[str, str] | str:
        node = self._node(*path)
        if node is None:
            return ""
        if not self._has_alertmanager:
            message = "no Alertmanager is asked; write settings: {alertmanager: {urls: [http://alertmanager:9093]}}"
            self._problems.add(path, message)
        if not isinstance(node.value, dict):
            is_word = self._is_word(node, path, HOST_WORDS, f"a map of alerts, or {' or '.join(HOST_WORDS)}")
            return str(node.value) if is_word else ""
        found = {}
        for name, said in node.value.items():
            self._check_alert(name, (*path, name))
            if self._is_word(said, (*path, name), ALERT_WORDS, f"one of {', '.join(ALERT_WORDS)}"):
                found[name] = str(said.value)
        return found

    def _map(self, path: Place, what: str) -> list[tuple[str, Node]]:
        node = self._node(*path)
        if node is not None and not isinstance(node.value, dict):
            self._problems.add(path, f"`{path[-1]}` must be a map: {what}")
        return [*entries_of(node).items()]

    def _is_word(self, node: Node, path: Place, words: Sequence[str], wanted: str) -> bool:
        if node.value in words:
            return True
        self._problems.add(path, f"`{path[-1]}` must be {wanted}{self._hint(node.text, words, '')}")
        return False

    def _check_was_there(self, name: str, known: set[str], path: Place, what: str, host: str | None) -> None:
        if name not in known:
            where = f" on {host}" if host else ""
            hint = self._hint(name, known) or "; write it into `world`"
            self._problems.add(path, f"there is no {what} {cut(name, 80)!r}{where} in this world{hint}")

    def _check_alert(self, name: str, path: Place) -> None:
        if name not in self._alert_names:
            hint = self._hint(name, self._alert_names) or "; write it under `alerts`"
            self._problems.add(path, f"there is no alert {cut(name, 80)!r}{hint}")

    def _action(self, name: str, path: Place) -> LookingAction[Any] | None:
        """The action of this name; None, with a problem, when there is none."""
        action = self._actions.get(name)
        if action is None:
            hint = self._hint(name, self._actions)
            self._problems.add(path, f"there is no action {cut(name, 80)!r}{hint}", UnknownActionError)
        return action

    # -- scenarios

    def _scenarios(self, keys: TestKeys, there: _There) -> Iterator[Scenario]:
        lines: dict[str, int] = {}
        nodes = items_of(self._node("scenarios"))
        for n, (scenario, node) in enumerate(zip(keys.scenarios, nodes, strict=True)):
            path: Place = ("scenarios", n)
            line = node.at(("name",)).line
            if (first := lines.setdefault(scenario.name, line)) != line:
                message = f"a scenario of this name stands in line {first}; give each one of its own"
                self._problems.add((*path, "name"), message)
            yield self._scenario(scenario, node, path, there.copy())

    def _scenario(self, keys: ScenarioKeys, node: Node, path: Place, there: _There) -> Scenario:
        world = World() if keys.world is None else self._world((*path, "world"), there, can_go=True)
        return Scenario(
            name=keys.name,
            line=node.line,
            story=tuple(self._story(keys.story, (*path, "story"), there)),
            expect=tuple(self._expectations(keys.expect, (*path, "expect"))),
            never=tuple(self._never(keys, path)),
            world=world,
        )

    def _check_order(self, ats: Sequence[Moment], path: Place) -> None:
        for n in range(1, len(ats)):
            if ats[n].at < ats[n - 1].at:
                before = self._root.at((*path, n - 1)).line
                message = f"`at` is {ats[n].text}, and the entry in line {before} is at {ats[n - 1].text} already"
                self._problems.add((*path, n, "at"), f"{message}; write them in time order")

    def _verb(self, node: Node, path: Place, verbs: Mapping[str, frozenset[str]]) -> str:
        """The one verb of an entry; "" with a problem when it is not one, or something does not go with it."""
        entries = entries_of(node)
        given = [key for key in entries if key in verbs]
        if len(given) > 1:
            message = f"one entry has one verb, and this one has {_shown(given)}; write an entry for each"
            self._problems.add((*path, given[1]), message)
            return ""
        verb = given[0] if given else ""
        for key in entries:
            if (
                key in verbs
                or key in ("at", "sees")
                or (verb and key in verbs[verb])
                or not (verb or self._is_whole(node))
            ):
                continue
            owners = [one for one in verbs if key in verbs[one]]
            self._problems.add(
                (*path, key), f"`{key}` goes with {_shown(owners)}{f', not with `{verb}`' if verb else ''}"
            )
        return verb

    def _story(self, story: Sequence[StoryKeys], path: Place, there: _There) -> Iterator[StoryEvent]:
        self._check_order([keys.at for keys in story], path)
        nodes = items_of(self._node(*path))
        told = _Told()
        is_certain = self._is_whole(self._root.at(path))
        back_at, back_line = timedelta(0), 0
        for n, (keys, node) in enumerate(zip(story, nodes, strict=True)):
            here = (*path, n)
            verb = self._verb(node, here, VERBS)
            if not {*entries_of(node)} & {*VERBS, "sees"} and self._is_whole(node):
                self._problems.add(here, f"nothing happens here; write one of {', '.join([*VERBS, 'sees'])}")
            what = self._what(verb, keys, here, there) if verb else None
            if isinstance(what, Says) and is_certain:
                self._tell(what, keys.at.at, node.line, here, told)
            if isinstance(what, Posts):
                told.is_unsure |= self._spoken_of[what.file]
            if isinstance(what, World) and isinstance(what.alertmanager, Mapping):
                told.is_unsure |= {name for name, said in what.alertmanager.items() if said == "gone"}
            if isinstance(what, Says | Posts | Person | Restarts) and keys.at.at < back_at:
                message = f"the engine is down until {print_duration(back_at)} (line {back_line})"
                self._problems.add((*here, "at"), message)
            if isinstance(what, Restarts) and not what.during:
                back_at, back_line = keys.at.at + what.down, node.line
            yield StoryEvent(at=keys.at.at, line=node.line, what=what, sees=tuple(self._sees((*here, "sees"))))

    def _what(self, verb: str, keys: StoryKeys, path: Place, there: _There) -> What | None:
        match verb:
            case "fires" | "repeats" | "resolves":
                return self._says(Word(verb), keys, path)
            case "delivers":
                return self._posts(keys.delivers or "", (*path, verb))
            case "fails":
                self._action(keys.fails or "", (*path, verb))
                if keys.how is None and self._is_whole(self._root.at(path)):
                    self._problems.add(path, f"`fails` needs `with`: {', '.join(Failure)}")
                return Fails(action=keys.fails or "", how=keys.how or Failure.TRANSIENT, times=keys.times or 1)
            case "restarts":
                if keys.during is not None:
                    self._action(keys.during, (*path, "during"))
                return Restarts(down=keys.down or timedelta(0), during=keys.during or "")
            case "changes":
                if (
                    keys.changes is not None
                    and not keys.changes.model_fields_set
                    and self._is_whole(self._root.at(path))
                ):
                    self._problems.add((*path, verb), "`changes` says nothing that changes: docker, alertmanager")
                return self._world((*path, verb), there, can_go=True)
            case _:
                return self._person(Deed(verb), keys, path)

    def _names(self, path: Place) -> Iterator[tuple[str, Place]]:
        """One name or a list of them, each with its place."""
        node = self._root.at(path)
        items = items_of(node)
        yield from (
            ((str(item.value), (*path, n)) for n, item in enumerate(items)) if items else [(str(node.value), path)]
        )

    def _says(self, word: Word, keys: StoryKeys, path: Place) -> Says:
        for name, place in self._names((*path, word.value)):
            self._check_alert(name, place)
        return Says(
            word=word,
            alerts=getattr(keys, word.value),
            late=keys.late or timedelta(0),
            copies=keys.copies or 1,
            truncated=keys.truncated or 0,
        )

    def _tell(self, says: Says, at: timedelta, line: int, path: Place, told: _Told) -> None:
        """Whether what is delivered of alerts can be, after what was delivered before."""
        so_at = at - says.late
        for name, place in self._names((*path, says.word.value)):
            if name in told.is_unsure or name not in self._alert_names:
                continue
            fires = told.fires(name)
            match says.word:
                case Word.FIRES if fires:
                    message = (
                        f"{name} fires already, since line {told.line(name)}; write `repeats`, or resolve it first"
                    )
                case Word.RESOLVES if not fires:
                    message = f"{name} does not fire at this time, so that nothing can be resolved"
                case Word.REPEATS if not told.fires(name, so_at):
                    when = f"{print_duration(says.late)} before" if says.late else "at this time"
                    message = f"{name} does not fire {when}; write `fires`"
                case _:
                    message = ""
            if message:
                self._problems.add(place, message)
            if says.word is not Word.REPEATS:
                told.was.setdefault(name, []).append((so_at, says.word is Word.FIRES, line))

    def _posts(self, name: str, path: Place) -> Posts | None:
        if name not in self._recorded:
            self._recorded[name] = self._read_delivery(name)
        found = self._recorded[name]
        if isinstance(found, str):
            self._problems.add(path, f"{cut(name, 200)} {found}")
            return None
        return found

    def _read_delivery(self, name: str) -> Posts | str:
        """A recorded body, or why it is none; and which alerts of this file it speaks of is noted."""
        data = read_bytes(self._folder / name, MAX_DELIVERY_BYTES)
        if isinstance(data, str):
            return f"{data}{self._hint_of_files(self._folder / name)}; paths count from this file's folder"
        if len(data) > MAX_DELIVERY_BYTES:
            return f"is larger than {MAX_DELIVERY_BYTES // 2**20} MiB, which no engine takes"
        try:
            spoken_of = {label_key(alert.labels) for alert in decode(data, BEGINS).alerts}
        except DeliveryError as error:
            return f"is no delivery: {error}"
        self._spoken_of[name] = frozenset(
            alert for alert, labels in self._labels.items() if label_key(labels) in spoken_of
        )
        return Posts(file=name, body=data)

    def _person(self, deed: Deed, keys: StoryKeys, path: Place) -> Person:
        node = self._root.at(path)
        if deed is Deed.SETTLES and keys.fate is None and self._is_whole(node):
            self._problems.add(path, "`settles` needs `as`: happened, did-not-happen")
        if deed is Deed.RESETS and keys.breaker is None and self._is_whole(node):
            self._problems.add(path, "`resets` needs `breaker`: the name of its policy")
        if keys.alert is not None:
            self._check_alert(keys.alert, (*path, "alert"))
        return Person(
            deed=deed,
            name=getattr(keys, deed.value),
            reason=keys.reason or "",
            playbook=keys.playbook or "",
            alert=keys.alert or "",
            breaker=keys.breaker or "",
            has_happened=keys.fate == "happened",
        )

    def _sees(self, path: Place) -> Iterator[Sees]:
        node = self._node(*path)
        if node is not None and node.value == {} and self._is_whole(node):
            self._problems.add(path, "`sees` says nothing; write sees: {CONDITION: NUMBER}")
        for name, node in self._map(path, "condition → what it gives: a number, nothing or away"):
            here = (*path, name)
            if not isinstance(node.value, dict):
                yield from self._seen(name, node, here, "")
                continue
            self._check_alert(name, here)
            if not node.value and self._is_whole(node):
                self._problems.add(here, f"`{name}` sees nothing; write {name}: {{CONDITION: NUMBER}}")
            for condition, value in node.value.items():
                yield from self._seen(condition, value, (*here, condition), name)

    def _seen(self, name: str, node: Node, path: Place, alert: str) -> Iterator[Sees]:
        numbers = [item.value for item in (node.value if isinstance(node.value, list) else [node])]
        if node.value in NO_NUMBER:
            yield Sees(name=name, values=Nothing(node.value), alert=alert)
        elif numbers and all(_is_number(number) for number in numbers):
            yield Sees(name=name, values=tuple(float(number) for number in numbers), alert=alert)  # type: ignore[arg-type]
        elif numbers:
            wanted = "must be a number, a list of numbers (one for each series), nothing or away"
            self._problems.add(path, f"`{name}` {wanted}{self._hint(node.text, NO_NUMBER, '')}")
        else:
            self._problems.add(path, f"`{name}` sees no series; write {name}: nothing")

    # -- expectations

    def _expectations(self, expect: Sequence[ExpectKeys], path: Place) -> Iterator[Expectation]:
        self._check_order([keys.at for keys in expect], path)
        for n, (keys, node) in enumerate(zip(expect, items_of(self._node(*path)), strict=True)):
            here = (*path, n)
            verb = self._verb(node, here, EXPECTED)
            if not verb:
                if not {*entries_of(node)} & {*EXPECTED} and self._is_whole(node):
                    self._problems.add(here, f"nothing is expected here; write one of {', '.join(EXPECTED)}")
                continue
            kind = Kind(verb)
            details = self._details(kind, keys, here)
            if kind is Kind.ENDS and keys.ends == RunOutcome.REFUSED and keys.reason is not None:
                kind, values = Kind.REFUSES, [str(details.pop("reason"))]
            else:
                values = [name for name, _ in self._names((*here, verb))]
            for value in values:
                yield Expectation(
                    at=keys.at.at, within=keys.at.within, kind=kind, value=value, details=details, line=node.line
                )

    def _details(self, kind: Kind, keys: ExpectKeys, path: Place) -> dict[str, JsonValue]:
        details: dict[str, JsonValue] = {
            name: value for name in EXPECTED[kind] if name != "params" and (value := getattr(keys, name)) is not None
        }
        if keys.alert is not None:
            self._check_alert(keys.alert, (*path, "alert"))
        if kind not in ACTS:
            return details
        for name, place in self._names((*path, kind.value)):
            action = self._action(name, place)
            if action is not None and action.is_message:
                self._problems.add(place, f"{name} tells people: write `tells: NAME`, one for each who is told")
            elif action is not None and kind is Kind.UNDOES and action.default_undo is None:
                self._problems.add(place, f"{name} cannot be undone, so that nothing takes it back")
            elif action is not None and keys.params is not None:
                details["params"] = self._params(action, keys.params, (*path, "params"))
        if keys.outcome == Outcome.UNCHANGED:
            message = "what finds nothing to change is no act: leave this entry out"
            self._problems.add((*path, "outcome"), message)
        return details

    def _params(self, action: LookingAction[Any], params: Mapping[str, object], path: Place) -> dict[str, JsonValue]:
        """Some params of an action as the audit has them."""
        known = fields(action.params_model)
        found: dict[str, JsonValue] = {}
        for name, value in params.items():
            if name not in known:
                message = f"{action.name} has no param `{name}`{self._hint(name, known)}"
                self._problems.add((*path, name), message, ParamsError)
                continue
            try:
                one = _param_alone(action.params_model, name).model_validate({name: value})
            except ValidationError as error:
                message = in_words(error.errors(include_url=False)[0], f"`{name}`")
                self._problems.add((*path, name), message, ParamsError)
            else:
                found[name] = one.model_dump(mode="json")[name]
        return found

    def _never(self, keys: ScenarioKeys, path: Place) -> Iterator[str]:
        lines = {
            name: self._root.at((*path, "expect", n)).line
            for n, expected in enumerate(keys.expect)
            for name in (*(expected.does or ()), *(expected.undoes or ()))
        }
        for n, name in enumerate(keys.never or ()):
            here = (*path, "never", n)
            action = self._action(name, here)
            if action is not None and action.is_message:
                message = f"a message that is not expected is a failure anyhow; leave {name} out"
                self._problems.add(here, message)
            if name in lines:
                self._problems.add(here, f"{name} is expected in line {lines[name]}, and here never")
            yield name


@lru_cache(256)
def _param_alone(model: type[ActionParams], name: str) -> type[ActionParams]:
    """A model of one field of an action's params: the others need not be there."""
    info = model.model_fields[name]
    fields: dict[str, Any] = {name: (info.annotation, info)}
    return create_model(f"{model.__name__}.{name}", __base__=ActionParams, **fields)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _children(node: Node) -> Iterable[Node]:
    match node.value:
        case dict() as entries:
            return entries.values()
        case list() as items:
            return items
        case _:
            return ()


def _size(node: Node) -> int:
    return 1 + sum(map(_size, _children(node)))
