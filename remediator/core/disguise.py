"""A recorded story without the names of the site: hosts, containers, UUIDs, pods, people.

Takes → gives: a ``Told`` and what happened → the same with other values, each always by the same other one (``gpu-07``
→ ``host-1``), in labels, annotations, targets and params alike. A value that a matcher asks for stays, or takes one
that every matcher judges alike: what matched before still does.

Must never: leave a value that nobody asks for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from remediator.core.action import JsonValue
from remediator.core.matcher import Matcher
from remediator.core.playbook import Playbook
from remediator.core.policy import Policy
from remediator.core.recorded_words import name_alerts
from remediator.core.recording import Told
from remediator.core.scenario import Happening, Person, Says, ScenarioAlert, StoryEvent, World
from remediator.core.units import strip_port

KINDS: Sequence[tuple[str, str]] = (
    (r"(?i).*(hostname|instance|host)", "host"),
    (r"(?i).*node.*", "node"),
    (r"(?i).*namespace.*", "namespace"),
    (r"(?i).*pod.*", "pod"),
    (r"(?i).*container.*", "container"),
    (r"(?i).*uuid.*", "GPU"),
    (r"(?i).*cluster.*", "cluster"),
)
"""What the label of a name says that its values are; the first that fits. Any other label gives its own name."""

OF_TARGETS = frozenset({"kind", "cluster", "host", "node", "namespace", "name"})
"""What a policy may ask of a target beside its labels: any value may be one of these."""

PLACES = frozenset({"cluster", "host", "node"})

_ANNOTATION = re.compile(r"""annotations(?:\.(\w+)|\[["'](.+)["']\])""")
_LABEL = re.compile(r"""labels(?:\.(\w+)|\[["'](.+)["']\])""")


class Disguise:
    """One story's other names.

    Attributes:
        told, was: the story and what happened, under these.
    """

    def __init__(self, told: Told, was: Sequence[Happening], playbooks: Sequence[Playbook], policy: Policy) -> None:
        """Find a name for each value.

        Args:
            playbooks: those of the story; their matchers and templates say what has to stay as it is.
        """
        cases = [case for playbook in playbooks for case in playbook.cases]
        matchers = [*(matcher for playbook in playbooks for matcher in playbook.match)]
        matchers += [matcher for case in cases for matcher in case.match]
        lines = (*policy.protect, *policy.require_labels)
        self._matchers = [*matchers, *(line.matcher for line in lines)]
        steps = [step for case in cases for step in (*case.steps, *case.resolved)]
        conditions = {name for step in steps if step.condition is not None for name in step.condition.names}
        params = {
            name for step in steps if step.action != "notify.send" for one in step.params.values() for name in one.names
        }
        messages = {name for step in steps for one in step.params.values() for name in one.names}
        queries = {name for case in cases for condition in case.conditions for name in condition.query.names}
        self._asked = {*_matching(_LABEL, conditions)}
        if conditions & PLACES:
            self._asked |= {"hostname", "Hostname", "instance", "node", "cluster"}
        self._needed = {*_matching(_ANNOTATION, conditions | params | queries)}
        self._shown = {*_matching(_ANNOTATION, messages)} - self._needed
        self._names: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._people: dict[str, str] = {}
        self._find(told)
        self.told = self._disguised(told)
        renamed = dict(zip(told.alerts, self.told.alerts, strict=True))
        self.was = [self._happening(one, renamed) for one in was]

    def variables(self, variables: JsonValue) -> JsonValue:
        """The site's values for templates: text under other names, numbers as they are."""
        assert isinstance(variables, Mapping)
        return {
            name: self._names.get(value, f"{name}-1") if isinstance(value, str) else value
            for name, value in variables.items()
        }

    # -- finding names

    def _find(self, told: Told) -> None:
        where: dict[str, set[str]] = {}
        for name, value in _values(told):
            where.setdefault(value, set()).add(name)
        # The hosts first: a label "instance" has them with a port.
        for value in sorted(where, key=lambda value: (":" in value, list(where).index(value))):
            names = where[value]
            host = strip_port(value)
            if host != value and host in self._names:
                self._names[value] = value.replace(host, self._names[host])
            elif value:
                self._names[value] = value if names & self._asked else self._new(value, names)

    def _new(self, value: str, names: set[str]) -> str:
        """A value of the same kind that every matcher judges alike; the old one where there is none."""
        asked = [one for one in self._matchers if one.label in names | OF_TARGETS]
        label = min(names, key=_kind_of)
        kind = "" if value.isdigit() else _kind_of(label)[1]
        self._counts[kind] = number = self._counts.get(kind, -1 if not kind else 0) + 1
        own = [f"{kind}-{number}" if kind else f"{number}"]
        like = [f"{one.shape.prefix}{number}" for one in asked if one.shape.prefix]
        return next((other for other in (*own, *like) if all(_judges_alike(one, value, other) for one in asked)), value)

    # -- putting them in

    def _disguised(self, told: Told) -> Told:
        alerts = {
            name: ScenarioAlert(
                name=name,
                labels={label: self._names.get(value, value) for label, value in alert.labels.items()},
                annotations=self._annotations(alert.annotations),
            )
            for name, alert in told.alerts.items()
        }
        renamed = name_alerts(alerts)
        return replace(
            told,
            alerts={renamed[name]: replace(alert, name=renamed[name]) for name, alert in alerts.items()},
            world=self._world(told.world, renamed),
            story=tuple(self._event(event, renamed) for event in told.story),
            notes=tuple(self._text(note) for note in told.notes),
        )

    def _annotations(self, annotations: Mapping[str, str]) -> dict[str, str]:
        """Those that an act or a condition takes; of those that are only shown, that there are some."""
        kept = {name: self._text(value) for name, value in annotations.items() if name in self._needed}
        return kept | {name: name for name, value in annotations.items() if name in self._shown and value}

    def _event(self, event: StoryEvent, renamed: Mapping[str, str]) -> StoryEvent:
        sees = tuple(replace(one, alert=renamed.get(one.alert, "")) for one in event.sees)
        what = event.what
        match what:
            case Says():
                what = replace(what, alerts=tuple(renamed[name] for name in what.alerts))
            case Person():
                what = replace(what, name=self._person(what.name), reason="", alert=renamed.get(what.alert, ""))
            case World():
                what = self._world(what, renamed)
            case _:
                pass
        return replace(event, what=what, sees=sees)

    def _person(self, name: str) -> str:
        return self._people.setdefault(name, f"person-{len(self._people) + 1}")

    def _world(self, world: World, renamed: Mapping[str, str]) -> World:
        docker: dict[str, Any] = {}
        for host, containers in world.docker.items():
            inside: Any = containers
            if not isinstance(containers, str):
                inside = {self._names.get(name, name): self._container(keys) for name, keys in containers.items()}
            docker[self._names.get(host, host)] = inside
        alertmanager = world.alertmanager
        if not isinstance(alertmanager, str):
            alertmanager = {renamed[name]: how for name, how in alertmanager.items()}
        return World(docker=docker, alertmanager=alertmanager)

    def _container(self, keys: Any) -> Any:
        if isinstance(keys, str) or "labels" not in keys:
            return keys
        return {**keys, "labels": {name: self._names.get(value, value) for name, value in keys["labels"].items()}}

    def _happening(self, one: Happening, renamed: Mapping[str, str]) -> Happening:
        details = {key: self._json(value) for key, value in one.details.items() if key in ("target", "params")}
        if "alert" in one.details:
            details["alert"] = renamed[str(one.details["alert"])]
        return replace(one, details={**one.details, **details, "says": ""})

    def _json(self, value: JsonValue) -> JsonValue:
        if isinstance(value, str):
            return self._names.get(value) or self._text(value)
        if isinstance(value, Mapping):
            return {name: self._json(item) for name, item in value.items()}
        return [self._json(item) for item in value] if isinstance(value, Sequence) else value

    def _text(self, text: str) -> str:
        """The text with each value in it replaced, the longest first; never a part of a word, nor a bare number."""
        for value in sorted(self._names, key=len, reverse=True):
            if not value.isdigit() and value in text:
                parts = re.split(rf"(?<!\w){re.escape(value)}(?!\w)", text)
                text = self._names[value].join(parts)
        return text


def _matching(pattern: re.Pattern[str], names: Iterable[str]) -> Iterable[str]:
    for name in names:
        if found := pattern.fullmatch(name):
            yield found[1] or found[2]


def _kind_of(label: str) -> tuple[int, str]:
    for place, (pattern, kind) in enumerate(KINDS):
        if re.fullmatch(pattern, label):
            return place, kind
    return len(KINDS), re.sub(r"\W+", "-", label).strip("-").lower() or "value"


def _judges_alike(matcher: Matcher, value: str, other: str) -> bool:
    return matcher.matches({matcher.label: value}) == matcher.matches({matcher.label: other})


def _values(told: Told) -> Iterable[tuple[str, str]]:
    """Each value with the label that has it; hosts and containers as if they were labels of these names."""
    worlds = [told.world, *(event.what for event in told.story if isinstance(event.what, World))]
    for alert in told.alerts.values():
        yield from alert.labels.items()
    for world in worlds:
        for host, containers in world.docker.items():
            yield "host", host
            if isinstance(containers, str):
                continue
            for name, keys in containers.items():
                yield "container", name
                if not isinstance(keys, str) and isinstance(labels := keys.get("labels"), Mapping):
                    yield from ((label, str(value)) for label, value in labels.items())
