from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from remediator.core.alert import Labels, label_key
from remediator.core.match import IgnoredMatch, Match, MissingPer, PlaybookIndex, explain, place
from remediator.core.matcher import Matcher, MatchOp, parse_matcher
from remediator.core.playbook import Case, GuardRules, LabelMap, Playbook, PlaybookSet
from remediator.core.policy import Mode

TABLE = YAML(typ="safe").load(Path(__file__).parents[2] / "data" / "match.yaml")


def rows(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in TABLE[name]])


def case_of(name: str = "", match: Iterable[Matcher] = (), **keys: Any) -> Case:
    no_rules = GuardRules(cooldown=timedelta(0), max_runs=None, tell_after=timedelta(hours=1))
    case = Case(
        name=name, match=tuple(match), ignore=None, mode=Mode.ENFORCE, owner="", per=None,
        stop_on_resolve=False, latched=False, hold=timedelta(0), guard=no_rules,
        steps=(), verify=(), resolved=(), report_to=(), escalate_to=(),
    )  # fmt: skip
    return replace(case, **keys)


def playbook_of(name: str, match: Iterable[Matcher], cases: Iterable[Case] = (case_of(),)) -> Playbook:
    return Playbook(name=name, description="", match=tuple(match), cases=tuple(cases), sha256="", able_key="")


def read_matchers(lines: Sequence[str]) -> tuple[Matcher, ...]:
    return tuple(parse_matcher(line) for line in lines)


def read_playbook(name: str, keys: Mapping[str, Any]) -> Playbook:
    def read_case(own: Mapping[str, Any]) -> Case:
        merged = {key: keys[key] for key in ("per", "mode") if key in keys} | dict(own)
        return case_of(
            merged.get("name", ""),
            read_matchers(merged.get("match", [])),
            ignore=merged.get("ignore"),
            mode=Mode(merged.get("mode", "enforce")),
            per=tuple(merged["per"]) if "per" in merged else None,
        )

    return playbook_of(name, read_matchers(keys["match"]), map(read_case, keys.get("cases", [{}])))


PLAYBOOKS = tuple(read_playbook(name, keys) for name, keys in TABLE["playbooks"].items())


def shown(match: Match | IgnoredMatch | MissingPer) -> dict[str, Any]:
    case = {"case": match.case.name} if match.case.name else {}
    if isinstance(match, IgnoredMatch):
        return case | {"ignored": match.why}
    return case | ({"missing": match.label} if isinstance(match, MissingPer) else {"per": dict(match.per)})


@rows("matches")
def test_match_then_gives_what_applies_by_its_first_case(row: dict[str, Any]) -> None:
    index = PlaybookIndex(
        PlaybookSet(
            playbooks=PLAYBOOKS,
            label_map=LabelMap(only_host=row.get("only_host", ""), only_cluster=row.get("cluster", "")),
            ignore_labels=frozenset(TABLE["ignore_labels"]),
        )
    )
    found = index.match(row["labels"])
    assert [(match.playbook.name, shown(match)) for match in found] == list(row["gives"].items())


@rows("explains")
def test_explain_then_says_what_does_not_hold(row: dict[str, Any]) -> None:
    (playbook,) = (playbook for playbook in PLAYBOOKS if playbook.name == row["playbook"])
    assert list(explain(row["labels"], playbook)) == row["says"]


def test_explain_when_a_label_is_long_then_cuts_it() -> None:
    (line,) = explain({"a": "x" * 5000}, playbook_of("p", read_matchers(["a = b"])))
    assert len(line) < 300


def one_match(labels: Labels, *, ignore_labels: Iterable[str] = (), per: tuple[str, ...] | None = None) -> Match:
    playbook = playbook_of("p", (), [case_of(per=per)])
    (match,) = PlaybookIndex(PlaybookSet(playbooks=(playbook,), ignore_labels=frozenset(ignore_labels))).match(labels)
    assert isinstance(match, Match)
    return match


def test_match_when_two_replicas_report_one_fault_then_it_has_one_key() -> None:
    key_a, key_b = (one_match({"gpu": "0", "replica": name}, ignore_labels=["replica"]).per_key for name in "ab")
    assert key_a == key_b


def test_match_when_another_gpu_has_the_fault_then_it_has_another_key() -> None:
    key_0, key_1 = (one_match({"gpu": name, "job": "dcgm"}, per=("gpu",)).per_key for name in "01")
    assert key_0 != key_1


def test_match_when_two_labels_differ_that_per_does_not_name_then_it_has_one_key() -> None:
    key_a, key_b = (one_match({"gpu": "0", "severity": name}, per=("gpu",)).per_key for name in "ab")
    assert key_a == key_b


def test_match_then_its_key_is_that_of_its_values() -> None:
    match = one_match({"a": "1", "b": "2", "c": "3"}, per=("b", "a"))
    assert list(match.per) == ["b", "a"]
    assert match.per_key == label_key({"a": "1", "b": "2"})


@pytest.mark.parametrize(
    ("labels", "label_map", "expected"),
    [
        ({}, LabelMap(), {"host": "", "cluster": "", "node": ""}),
        ({"instance": "n1:9400"}, LabelMap(), {"host": "n1", "cluster": "", "node": "n1"}),
        ({"node": "w1", "hostname": "n1"}, LabelMap(), {"host": "n1", "cluster": "", "node": "w1"}),
        ({"cluster": "a:1"}, LabelMap(), {"host": "", "cluster": "a:1", "node": ""}),
        ({"cluster": ""}, LabelMap(only_host="h", only_cluster="c"), {"host": "h", "cluster": "c", "node": ""}),
        ({"box": "n2"}, LabelMap(host=("box",), node=()), {"host": "n2", "cluster": "", "node": ""}),
    ],
    ids=["nothing known", "an instance", "a node of its own", "a cluster keeps its colon", "defaults", "a site's map"],
)
def test_place_then_says_where_the_alert_comes_from(
    labels: Labels, label_map: LabelMap, expected: dict[str, str]
) -> None:
    assert place(labels, label_map) == expected


# The index is checked against asking every playbook, on names and values so few that they meet.
NAMES = st.sampled_from(["a", "b", "c", "host"])
VALUES = st.sampled_from(["", "1", "2", "12", "12é", "é", "É", "1\n"])
# All that says the same to Python's own regexes.
REGEXES = st.sampled_from(
    ["1|2", "1|", "|", "1.*", "12.+", "12?é?", "12*", "1{0}2", "(1|2).*", "1.*|2", ".*", ".+", ".*2", "é|12", "(?i)é"]
)
MATCHERS = st.builds(Matcher, label=NAMES, op=st.sampled_from(list(MatchOp)), value=VALUES | REGEXES)
CASES = st.builds(
    case_of,
    st.sampled_from(["x", "y"]),
    st.lists(MATCHERS, max_size=2),
    mode=st.sampled_from(list(Mode)),
    ignore=st.none() | st.just("known"),
    per=st.none() | st.lists(NAMES, max_size=2, unique=True).map(tuple),
)
SETS = st.lists(
    st.tuples(st.lists(MATCHERS, max_size=3), st.lists(CASES, min_size=1, max_size=3)), max_size=8
).map(
    lambda parts: tuple(playbook_of(f"p{n}", match, cases) for n, (match, cases) in enumerate(parts))
)  # fmt: skip


def naive(playbooks: Sequence[Playbook], labels: dict[str, str]) -> list[tuple[str, str, str]]:
    def holds(matcher: Matcher) -> bool:
        value = labels.get(matcher.label, "")
        fits = re.fullmatch(matcher.value, value) is not None if "~" in matcher.op else value == matcher.value
        return fits is not matcher.op.startswith("!")

    found: list[tuple[str, str, str]] = []
    for playbook in playbooks:
        if not all(map(holds, playbook.match)):
            continue
        for case in playbook.cases:
            if all(map(holds, case.match)):
                if case.mode != "disabled":
                    places = {"host": "", "cluster": "", "node": ""}
                    empty = [name for name in case.per or () if not (labels | places).get(name)]
                    kind = "ignored" if case.ignore else f"missing {empty[0]}" if empty else "match"
                    found.append((playbook.name, case.name, kind))
                break
    return found


@settings(deadline=None, max_examples=300)
@given(SETS, st.dictionaries(NAMES, VALUES))
def test_match_when_asked_by_index_then_finds_what_asking_each_finds(
    playbooks: tuple[Playbook, ...], labels: dict[str, str]
) -> None:
    def kind(match: Match | IgnoredMatch | MissingPer) -> str:
        if isinstance(match, MissingPer):
            return f"missing {match.label}"
        return "match" if isinstance(match, Match) else "ignored"

    found = PlaybookIndex(PlaybookSet(playbooks=playbooks)).match(labels)
    assert [(match.playbook.name, match.case.name, kind(match)) for match in found] == naive(playbooks, labels)


def test_match_when_a_large_set_is_asked_by_index_then_finds_what_asking_each_finds() -> None:
    dice = random.Random(4)
    numbers = [str(number) for number in range(40)]

    def matcher() -> Matcher:
        number = dice.choice(numbers)
        regex = dice.choice(("{}|7", "{}.*", "{}[0-4]?", "{}+", ".*{}", "(1|{}).*", "{}|", "{}.?|x"))
        op = dice.choice([MatchOp.EQUAL] * 3 + [MatchOp.REGEX] * 3 + [MatchOp.NOT_EQUAL, MatchOp.NOT_REGEX])
        return Matcher(label=dice.choice("abcde"), op=op, value=regex.format(number) if "~" in op else number)

    playbooks = [playbook_of(f"p{n}", [matcher() for _ in range(dice.randint(1, 3))]) for n in range(200)]
    index = PlaybookIndex(PlaybookSet(playbooks=tuple(playbooks)))
    n_found = 0
    for _ in range(100):
        labels = {name: dice.choice(numbers) for name in "abcde" if dice.random() < 0.8}
        found = [match.playbook.name for match in index.match(labels)]
        assert found == [name for name, *_ in naive(playbooks, labels)], labels
        n_found += len(found)
    assert 100 < n_found < 100 * len(playbooks) / 2


def test_match_when_no_playbook_stands_under_what_an_alert_has_then_asks_none() -> None:
    asked: list[str] = []

    class Noting(dict[str, str]):
        def get(self, name: str, default: str = "") -> str:  # type: ignore[override]
            asked.append(name)
            return super().get(name, default)

    lines = (["a = 1", "x != y"], ["a =~ 2|3", "x != y"], ["a =~ 4.*", "x != y"], ["a =~ 4", "b = 1", "x != y"])
    playbooks = tuple(playbook_of(f"p{n}", read_matchers(line)) for n, line in enumerate(lines))
    assert PlaybookIndex(PlaybookSet(playbooks=playbooks)).match(Noting({"a": "5", "c": "1", "b": "4"})) == ()
    assert asked == []


@settings(deadline=None)
@given(SETS, st.dictionaries(NAMES, VALUES))
def test_explain_when_a_playbook_does_not_apply_then_says_why_and_only_then(
    playbooks: tuple[Playbook, ...], labels: dict[str, str]
) -> None:
    applying = {match.playbook.name for match in PlaybookIndex(PlaybookSet(playbooks=playbooks)).match(labels)}
    unexplained = {playbook.name for playbook in playbooks if not explain(labels, playbook)}
    assert unexplained == applying
