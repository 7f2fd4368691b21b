"""Two playbooks that would touch one thing for one alert.

Takes all ``Written`` playbooks, gives ``Lint``s. Only those are compared that may meet in one alert: they are parted by
the label values that they want first, ``alertname`` above all, so that ten thousand playbooks are no hundred million
pairs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from remediator.core.action import LookingActions
from remediator.core.matcher import Matcher
from remediator.core.playbook import LabelMap, Step
from remediator.core.policy import Mode
from remediator.core.units import strip_port
from remediator.engine.lint.advice import Lint, LintCode, Written
from remediator.engine.lint.matching import by_label, can_hold, possible_values, taken_before

_FEW = 16
"""So many are compared each with each."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Acting:
    """One case that acts.

    Attributes:
        position: among all, in the files' order.
        matchers: its own and its playbook's, by label.
        before: the matchers of the cases before it.
        wanted: label → the few values that it can have, none of them "".
        touches: place of the step, names of the params that name its target, and their values.
    """

    position: int
    written: Written
    index: int
    matchers: Mapping[str, tuple[Matcher, ...]]
    before: tuple[tuple[Matcher, ...], ...]
    wanted: Mapping[str, frozenset[str]]
    touches: tuple[tuple[int, tuple[str, ...], tuple[str, ...]], ...]


def lint_targets(playbooks: Sequence[Written], actions: LookingActions, label_map: LabelMap) -> list[Lint]:
    """Every case that would touch what a case of a playbook before it touches for the same alert, told once.

    Args:
        actions: the registry.
    """
    acting: list[_Acting] = []
    for written in playbooks:
        for index, case in written.acting:
            touches = tuple(_touches(case.steps, actions))
            matchers = by_label((*written.playbook.match, *case.match))
            if touches and case.mode is not Mode.DISABLED and can_hold(matchers):
                wanted = {label: values for label, some in matchers.items() if (values := possible_values(some))}
                acting.append(
                    _Acting(
                        position=len(acting),
                        written=written,
                        index=index,
                        matchers=matchers,
                        before=tuple(before.match for before in written.playbook.cases[:index]),
                        wanted={label: values for label, values in wanted.items() if "" not in values},
                        touches=touches,
                    )
                )
    found: dict[int, Lint] = {}
    for one, two in _meetings(acting, frozenset()):
        if two.position not in found and (lint := _compare(one, two, label_map)):
            found[two.position] = lint
    return [found[position] for position in sorted(found)]


def _touches(steps: Sequence[Step], actions: LookingActions) -> Iterator[tuple[int, tuple[str, ...], tuple[str, ...]]]:
    for place, step in enumerate(steps):
        action = actions.get(step.action)
        names = action.params_model.target_params if action is not None else ()
        if action is not None and names:
            sources = (
                step.params[name].source if name in step.params else action.param_defaults.get(name, "")
                for name in names
            )
            yield place, names, tuple(" ".join(str(source).split()) for source in sources)


def _meetings(acting: Sequence[_Acting], used: frozenset[str]) -> Iterator[tuple[_Acting, _Acting]]:
    """Pairs that no one label's values part, the earlier one first; a pair may come twice."""
    counts = Counter(label for one in acting for label in one.wanted.keys() - used)
    label = max(counts, key=lambda name: (counts[name], name == "alertname", name), default="")
    if len(acting) <= _FEW or counts[label] < 2:
        for place, two in enumerate(acting):
            yield from ((one, two) for one in acting[:place])
        return
    parts: dict[str, list[_Acting]] = {}
    others = [one for one in acting if label not in one.wanted]
    wanting = [one for one in acting if label in one.wanted]
    for one in wanting:
        for value in one.wanted[label]:
            parts.setdefault(value, []).append(one)
    for part in (*parts.values(), others):
        yield from _meetings(part, used | {label})
    for one in wanting:
        for two in others:
            yield (one, two) if one.position < two.position else (two, one)


def _compare(one: _Acting, two: _Acting, label_map: LabelMap) -> Lint | None:
    """What to say of two cases, None where they never meet or touch different things."""
    if one.written is two.written or not {names for _, names, _ in one.touches} & {
        names for _, names, _ in two.touches
    }:
        return None
    # What both look at must fit; the rest was looked at by itself.
    both = {
        label: tuple(dict.fromkeys((*some, *two.matchers[label])))
        for label, some in one.matchers.items()
        if label in two.matchers
    }
    if not can_hold(both):
        return None
    together = {**one.matchers, **two.matchers, **both}
    fixed = {
        label: next(iter(only))
        for label, some in together.items()
        if (only := possible_values(some)) and len(only) == 1
    }
    theirs = {(names, _values(names, sources, fixed, label_map)): place for place, names, sources in one.touches}
    for place, names, sources in two.touches:
        there = theirs.get((names, _values(names, sources, fixed, label_map)))
        if there is not None and not _is_parted(one, together) and not _is_parted(two, together):
            other = one.written.node(one.written.path(one.index, "steps", there))
            named = ", ".join(f"{name} {source}" for name, source in zip(names, sources, strict=True))
            message = (
                f"it touches {named}, and so does the playbook {one.written.playbook.name}"
                f" ({one.written.playbook.file}:{other.line}) for the same alert: each undoes or outruns what the other"
                " tries; make their matchers exclude each other, or make them cases of one playbook"
            )
            path = two.written.path(two.index, "steps", place)
            return two.written.lint(LintCode.SAME_TARGET, message, path)
    return None


def _is_parted(acting: _Acting, together: Mapping[str, tuple[Matcher, ...]]) -> bool:
    """Whether what fits both goes to a case before."""
    return bool(acting.before) and taken_before(together, acting.before)


_ALONE = re.compile(
    r"""\{\{ ?(?:(?:labels|subject)(?:\.(?P<name>\w+)|\["(?P<odd>[^"]+)"\])|(?P<place>host|node)) ?\}\}"""
)


def _values(
    names: tuple[str, ...], sources: tuple[str, ...], fixed: Mapping[str, str], label_map: LabelMap
) -> tuple[str, ...]:
    """What the params come to, for alerts whose labels have these values; a template stays where that is not known."""
    return tuple(
        _value(source, fixed, label_map.host if name == "host" else ())
        for name, source in zip(names, sources, strict=True)
    )


def _value(source: str, fixed: Mapping[str, str], places: Sequence[str]) -> str:
    found = _ALONE.fullmatch(source)
    if found is None:
        return source
    label = found["name"] or found["odd"] or found["place"]
    if places and (label in places or label in ("host", "node")):
        return next((strip_port(fixed[name]) for name in places if name in fixed), "{{ host }}")
    return fixed.get(label, f"{{{{ labels.{label} }}}}")
