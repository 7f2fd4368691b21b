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

from remediator.core.alert import Labels, label_key
from remediator.core.matcher import Matcher, MatchOp
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

    Each playbook stands under one of its ``label = value`` lines, the one that the fewest playbooks share; only those
    whose line the alert fits are asked in full, and the few that have no such line. ``label = ""`` fits an absent
    label, so nothing can stand under it.
    """

    def __init__(self, playbook_set: PlaybookSet) -> None:
        self._label_map = playbook_set.label_map
        self._ignore_labels = playbook_set.ignore_labels
        self._playbooks = playbook_set.playbooks
        n_sharing = Counter(pair for playbook in self._playbooks for pair in _pairs(playbook))
        self._by_pair: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        self._unindexed: list[int] = []
        for position, playbook in enumerate(self._playbooks):
            rarest = min(_pairs(playbook), key=n_sharing.__getitem__, default=None)
            (self._unindexed if rarest is None else self._by_pair[rarest]).append(position)

    def match(self, labels: Labels) -> tuple[Match | IgnoredMatch | MissingPer, ...]:
        """What applies to an alert of these labels, in playbook order; () when nothing does.

        The first case whose matchers all hold decides. A disabled one decides too, for nothing: it does not hand the
        alert on to a later case, which was not written for it.
        """
        positions = list(self._unindexed)
        for pair in labels.items():
            positions += self._by_pair.get(pair, ())
        found = (self._match_one(self._playbooks[position], labels) for position in sorted(positions))
        return tuple(match for match in found if match is not None)

    def _match_one(self, playbook: Playbook, labels: Labels) -> Match | IgnoredMatch | MissingPer | None:
        if not _fits(playbook.match, labels):
            return None
        case = next((case for case in playbook.cases if _fits(case.match, labels)), None)
        if case is None or case.mode is Mode.DISABLED:
            return None
        if case.ignore is not None:
            return IgnoredMatch(playbook=playbook, case=case, why=case.ignore)
        if case.per is None:
            per = {name: value for name, value in labels.items() if name not in self._ignore_labels}
        else:
            mapped = place(labels, self._label_map)
            per = {name: mapped[name] if name in mapped else labels.get(name, "") for name in case.per}
            missing = next((name for name, value in per.items() if not value), None)
            if missing is not None:
                return MissingPer(playbook=playbook, case=case, label=missing)
        return Match(playbook=playbook, case=case, per=per, per_key=label_key(per))


def _pairs(playbook: Playbook) -> set[tuple[str, str]]:
    return {
        (matcher.label, matcher.value) for matcher in playbook.match if matcher.op is MatchOp.EQUAL and matcher.value
    }


def _fits(matchers: Iterable[Matcher], labels: Labels) -> bool:
    return all(matcher.matches(labels) for matcher in matchers)


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
