"""Stage 3, match: one alert's labels + the playbooks in force → which of them apply, by which case, about what.

Takes labels, gives one value per playbook that applies: ``Match``, ``IgnoredMatch`` (a case that leaves the alert
alone) or ``MissingPer`` (it applies, and what it is about cannot be said). Never looks at a group's labels, at the
status, or at anything but labels and playbooks. Why a playbook does *not* apply is worked out by ``explain`` when
somebody asks, and stored nowhere.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from remediator.core.alert import Labels, label_key
from remediator.core.matcher import Matcher
from remediator.core.playbook import Case, LabelMap, Playbook, PlaybookSet
from remediator.core.policy import Mode
from remediator.core.units import cut, strip_port


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """This playbook applies.

    Attributes:
        case: the first that fits.
        per: what the run is about: name → value, none of them empty; the whole label set where ``per`` is not written.
        per_key: SHA-256 hex of ``per`` (``label_key``).
    """

    playbook: Playbook
    case: Case
    per: Mapping[str, str]
    per_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoredMatch:
    """This playbook leaves the alert alone, and says why."""

    playbook: Playbook
    case: Case
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingPer:
    """This playbook applies, but the alert does not say what it is about: to be refused.

    Attributes:
        label: the first of the case's ``per`` that is absent or empty; ``host``, ``cluster`` or ``node`` as written.
    """

    playbook: Playbook
    case: Case
    label: str


class PlaybookIndex:
    """The playbooks of one set, found by an alert's labels without asking each.

    Each playbook stands under what one of its matchers wants: a label's values, or how a value begins. Only those are
    asked, for the rest of their matchers, for which the alert has that, and the few that want nothing of the kind. What
    fits "" fits an absent label too, so nothing can stand under it.
    """

    def __init__(self, playbook_set: PlaybookSet) -> None:
        self._label_map = playbook_set.label_map
        self._ignore_labels = playbook_set.ignore_labels
        self._playbooks = playbook_set.playbooks
        self._by_value: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        self._by_prefix: defaultdict[str, _ByPrefix] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
        self._unindexed: list[int] = []
        n_sharing = Counter(
            pair for playbook in self._playbooks for matcher in playbook.match for pair in _pairs(matcher)
        )
        self._rest = tuple(
            self._place(position, playbook.match, n_sharing) for position, playbook in enumerate(self._playbooks)
        )

    def _place(
        self, position: int, matchers: Sequence[Matcher], n_sharing: Mapping[tuple[str, str], int]
    ) -> tuple[Matcher, ...]:
        """Put a playbook under the values that the fewest share; else under its longest beginning; else under nothing.

        Returns:
            What is still to be asked of an alert that is found so; what looks at a list of values comes first: it is
            quick, and seldom holds.
        """
        by_values = min(
            (matcher for matcher in matchers if _pairs(matcher)),
            key=lambda matcher: sum(n_sharing[pair] for pair in _pairs(matcher)),
            default=None,
        )
        by_prefix = max(
            (matcher for matcher in matchers if matcher.shape.prefix),
            key=lambda matcher: len(matcher.shape.prefix),
            default=None,
        )
        if by_values is not None:
            for pair in _pairs(by_values):
                self._by_value[pair].append(position)
        elif by_prefix is not None:
            prefix = by_prefix.shape.prefix
            self._by_prefix[by_prefix.label][len(prefix)][prefix].append(position)
        else:
            self._unindexed.append(position)
        rest = (matcher for matcher in matchers if matcher is not by_values)
        return tuple(sorted(rest, key=lambda matcher: matcher.shape.values is None))

    def match(self, labels: Labels) -> tuple[Match | IgnoredMatch | MissingPer, ...]:
        """What applies to an alert of these labels, in playbook order; () when nothing does.

        The first case whose matchers all hold decides. A disabled one decides too, for nothing: it does not hand the
        alert on to a later case, which was not written for it.
        """
        positions = list(self._unindexed)
        for label, value in labels.items():
            positions += self._by_value.get((label, value), ())
            if label in self._by_prefix:
                for length, by_prefix in self._by_prefix[label].items():
                    positions += by_prefix.get(value[:length], ())
        fitting = [position for position in sorted(positions) if _fits(self._rest[position], labels)]
        places = place(labels, self._label_map) if fitting else {}
        found = (self._decide(self._playbooks[position], labels, places) for position in fitting)
        return tuple(match for match in found if match is not None)

    def _decide(
        self, playbook: Playbook, labels: Labels, places: Mapping[str, str]
    ) -> Match | IgnoredMatch | MissingPer | None:
        case = next((case for case in playbook.cases if _fits(case.match, labels)), None)
        if case is None or case.mode is Mode.DISABLED:
            return None
        if case.ignore is not None:
            return IgnoredMatch(playbook=playbook, case=case, why=case.ignore)
        if case.per is None:
            per = {name: value for name, value in labels.items() if name not in self._ignore_labels}
        else:
            per = {name: places[name] if name in places else labels.get(name, "") for name in case.per}
            missing = next((name for name, value in per.items() if not value), None)
            if missing is not None:
                return MissingPer(playbook=playbook, case=case, label=missing)
        return Match(playbook=playbook, case=case, per=per, per_key=label_key(per))


_ByPrefix: TypeAlias = defaultdict[int, defaultdict[str, list[int]]]
"""Length of a beginning → beginning → positions."""


def _pairs(matcher: Matcher) -> list[tuple[str, str]]:
    """What a label has to be, one of these; [] where that cannot be said, or the label may be absent."""
    values = matcher.shape.values or ()
    return [] if "" in values else [(matcher.label, value) for value in values]


def _fits(matchers: Iterable[Matcher], labels: Labels) -> bool:
    for matcher in matchers:  # noqa: SIM110  # all() over a generator takes twice as long
        if not matcher.matches(labels):
            return False
    return True


def place(labels: Labels, label_map: LabelMap) -> dict[str, str]:
    """Where an alert comes from, by the label map.

    Returns:
        ``host``, ``cluster`` and ``node``, without port; "" where no label says it and there is no single default.
    """
    return {
        "host": _first(labels, label_map.host) or label_map.only_host,
        "cluster": next((value for name in label_map.cluster if (value := labels.get(name))), label_map.only_cluster),
        "node": _first(labels, label_map.node),
    }


def _first(labels: Labels, names: Sequence[str]) -> str:
    return next((host for name in names if (host := strip_port(labels.get(name, "")))), "")


def explain(labels: Labels, playbook: Playbook) -> tuple[str, ...]:
    """Why a playbook does not apply to these labels, for people.

    Returns:
        One line per matcher of the playbook that does not hold, or else one per case; () when it applies (as
        ``PlaybookIndex.match`` would give it, be it to act, to ignore or to refuse).
    """
    failing = tuple(_why_not(matcher, labels) for matcher in playbook.match if not matcher.matches(labels))
    if failing:
        return failing
    reasons: list[str] = []
    for case in playbook.cases:
        prefix = f"case {case.name}: " if case.name else ""
        unmet = next((matcher for matcher in case.match if not matcher.matches(labels)), None)
        if unmet is None:
            return (*reasons, f"{prefix}it fits, and is disabled") if case.mode is Mode.DISABLED else ()
        reasons.append(f"{prefix}{_why_not(unmet, labels)}")
    return tuple(reasons)


def _why_not(matcher: Matcher, labels: Labels) -> str:
    if matcher.label not in labels:
        return f"{matcher} does not hold: the alert has no label {matcher.label}"
    return f'{matcher} does not hold: {matcher.label} is "{cut(labels[matcher.label], 200)}"'
