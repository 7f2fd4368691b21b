"""Whether matchers can hold together: of one playbook, of a playbook and its cases, of two playbooks.

Takes matchers, says what can be proved. Must never: call impossible what some alert could fulfil. What cannot be proved
without looking into regular expressions is held to be possible.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import combinations

from remediator.core.matcher import Matcher, MatchOp

_ANY = frozenset({".*", "^.*$", "(.*)"})
_SOME = frozenset({".+", "^.+$", "(.+)"})

_OPPOSITE = {
    MatchOp.EQUAL: MatchOp.NOT_EQUAL,
    MatchOp.NOT_EQUAL: MatchOp.EQUAL,
    MatchOp.REGEX: MatchOp.NOT_REGEX,
    MatchOp.NOT_REGEX: MatchOp.REGEX,
}

MAX_CASES = 200
"""Of one playbook; more are looked at one by one and not for what they cover together."""


def possible_values(matchers: Iterable[Matcher]) -> frozenset[str] | None:
    """The values of one label for which all its matchers hold.

    Args:
        matchers: of one label.

    Returns:
        "" among them where it may be absent; None where they are not a few that can be counted.
    """
    matchers = tuple(matchers)
    lists = [values for matcher in matchers if (values := _values(matcher)) is not None]
    if not lists:
        return None
    return frozenset(value for value in frozenset.intersection(*lists) if all_hold(matchers, value))


def _values(matcher: Matcher) -> frozenset[str] | None:
    if matcher.op is MatchOp.NOT_REGEX and matcher.value in _SOME:
        return frozenset({""})
    return matcher.shape.values


def all_hold(matchers: Iterable[Matcher], value: str) -> bool:
    """Whether a label of this value fulfils all the matchers that look at it."""
    return all(matcher.matches({matcher.label: value}) for matcher in matchers)


def by_label(matchers: Iterable[Matcher]) -> dict[str, tuple[Matcher, ...]]:
    """Matchers by what they look at, each once."""
    found: dict[str, tuple[Matcher, ...]] = {}
    for matcher in dict.fromkeys(matchers):
        found[matcher.label] = (*found.get(matcher.label, ()), matcher)
    return found


def contradiction(matchers: Sequence[Matcher]) -> tuple[Matcher, ...]:
    """The fewest matchers that never hold together.

    Args:
        matchers: of one label.

    Returns:
        One that never holds by itself, two, or all of them; () where nothing says that they cannot hold.
    """
    for count in (1, 2):
        for some in combinations(matchers, count):
            if _exclude(some):
                return some
    return tuple(matchers) if len(matchers) > 2 and possible_values(matchers) == frozenset() else ()


@lru_cache(maxsize=65_536)
def _exclude(matchers: tuple[Matcher, ...]) -> bool:
    values = possible_values(matchers)
    if values is not None:
        return not values
    if len(matchers) == 1:
        return _is_impossible(matchers[0])
    one, two = matchers
    if one.op is MatchOp.REGEX and two.op is MatchOp.REGEX:
        begins_apart = _are_apart(one.shape.prefix, two.shape.prefix, str.startswith)
        return begins_apart or _are_apart(_suffix(one.value), _suffix(two.value), str.endswith)
    if {one.op, two.op} == {MatchOp.REGEX, MatchOp.NOT_REGEX}:
        wanted, unwanted = (one, two) if one.op is MatchOp.REGEX else (two, one)
        return _takes_all_of(unwanted.value, wanted)
    return False


def _are_apart(one: str, two: str, has: Callable[[str, str], bool]) -> bool:
    """Whether no text can have both beginnings, or both ends."""
    return not has(one, two) and not has(two, one)


def _is_impossible(matcher: Matcher) -> bool:
    if matcher.op is MatchOp.NOT_REGEX:
        return matcher.value in _ANY
    if matcher.op is not MatchOp.REGEX or "|" in matcher.value:
        return False
    # Escapes and classes stand for one character whatever is in them.
    plain = re.sub(r"\[\^?\]?[^\]]*\]", "\0", re.sub(r"\\.", "\0", matcher.value, flags=re.DOTALL))
    if "(?" in plain or "\\Q" in matcher.value:
        return False
    # Text behind the end, or before the beginning.
    return bool(re.search(r"\$[\w/:.-](?![*?{])|[\w/:-]\^", plain))


def _suffix(pattern: str) -> str:
    """How every text that fits ends, as far as it is plain."""
    if "(?" in pattern or "\\Q" in pattern or "|" in pattern:
        return ""
    found = re.search(r"(?P<before>\\?)(?P<end>[^\\.+*?()|\[\]{}^$]*)$", pattern)
    return found["end"] if found and not found["before"] else ""


def _takes_all_of(unwanted: str, wanted: Matcher) -> bool:
    """Whether a regex fits whatever another one fits: the same, or its beginning or end and anything."""
    if unwanted == wanted.value or unwanted in _ANY:
        return True
    plain = r"[^\\.+*?()|\[\]{}^$]+"
    if found := re.fullmatch(rf"({plain})\.\*", unwanted):
        return wanted.shape.prefix.startswith(found[1])
    if found := re.fullmatch(rf"\.\*({plain})", unwanted):
        return _suffix(wanted.value).endswith(found[1])
    return False


def can_hold(matchers: Mapping[str, Sequence[Matcher]]) -> bool:
    """Whether an alert may exist for which all hold, by label."""
    return not any(contradiction(some) for some in matchers.values())


def follows(matcher: Matcher, given: Mapping[str, Sequence[Matcher]]) -> bool:
    """Whether a matcher holds wherever the given ones do."""
    some = given.get(matcher.label, ())
    return matcher in some or bool(contradiction((*some, _opposite(matcher))))


@lru_cache(maxsize=65_536)
def _opposite(matcher: Matcher) -> Matcher:
    return Matcher(label=matcher.label, op=_OPPOSITE[matcher.op], value=matcher.value)


def taken_before(given: Mapping[str, Sequence[Matcher]], earlier: Sequence[Sequence[Matcher]]) -> bool:
    """Whether what fulfils the given matchers always fits one of the earlier cases.

    Args:
        given: by label.
        earlier: the matchers of each case before.
    """
    if any(all(follows(matcher, given) for matcher in case) for case in earlier):
        return True
    if len(earlier) > MAX_CASES:
        return False
    return any(_taken_in_parts(label, given, earlier) for label in {m.label for case in earlier for m in case})


def _taken_in_parts(label: str, given: Mapping[str, Sequence[Matcher]], earlier: Sequence[Sequence[Matcher]]) -> bool:
    """Whether each value of one label is taken by some case, or its being there and its absence are."""
    own = given.get(label, ())
    values = possible_values(own)
    parts = (
        [Matcher(label=label, op=op, value="") for op in (MatchOp.EQUAL, MatchOp.NOT_EQUAL)]
        if values is None
        else [Matcher(label=label, op=MatchOp.EQUAL, value=value) for value in sorted(values)]
    )
    for part in parts:
        narrowed = {**given, label: (*own, part)}
        if not any(all(follows(matcher, narrowed) for matcher in case) for case in earlier):
            return False
    return True
