"""An alert rule's expression → what is known of the labels of the series that it gives.

Takes PromQL as text, gives ``SeriesLabels``: for each label the values that it can have as far as the expression says
so. Must never: guess; what cannot be told is unknown, and an unknown label can be anything.

Source: Prometheus 3, querying/operators and querying/functions; what each operator keeps of its operands' labels.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

ABSENT = frozenset({""})
"""The one value of a label that is not there."""

MAX_LENGTH = 20_000
MAX_DEPTH = 60
MAX_OPERATORS = 400
"""Of an expression. The parser takes time with the cube of these, and ends the process far above them; the largest
expressions of public rule sets (burn rates over several windows) have a tenth."""

Values = frozenset[str] | None
"""What a label can be, "" for absent; None = anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesLabels:
    """What is known of the labels of an expression's series, or of a rule's alerts.

    Attributes:
        known: label → its possible values.
        is_open: labels that are not in ``known`` can be anything; else they are absent.
    """

    known: Mapping[str, Values] = field(default_factory=dict)
    is_open: bool = True

    def values(self, label: str) -> Values:
        """What a label can be."""
        return self.known.get(label, None if self.is_open else ABSENT)

    def with_(self, known: Mapping[str, Values]) -> SeriesLabels:
        """The same with these labels put over it."""
        return SeriesLabels(known={**self.known, **known}, is_open=self.is_open)

    def only(self, labels: Iterable[str]) -> SeriesLabels:
        """What ``by`` and ``on`` leave."""
        return SeriesLabels(known={label: self.values(label) for label in labels}, is_open=False)

    def without(self, labels: Iterable[str]) -> SeriesLabels:
        """What ``without`` and ``ignoring`` leave."""
        return self.with_(dict.fromkeys(labels, ABSENT))

    def or_(self, other: SeriesLabels) -> SeriesLabels:
        """Series of the one or of the other."""
        known: dict[str, Values] = {}
        for label in {*self.known, *other.known}:
            one, two = self.values(label), other.values(label)
            known[label] = None if one is None or two is None else one | two
        return SeriesLabels(known=known, is_open=self.is_open or other.is_open)

    def and_(self, other: SeriesLabels) -> SeriesLabels:
        """Series whose labels are the same on both sides; where that cannot be, what this side says."""
        known: dict[str, Values] = {}
        for label in {*self.known, *other.known}:
            one, two = self.values(label), other.values(label)
            known[label] = two if one is None else one if two is None else (one & two) or one
        return SeriesLabels(known=known, is_open=self.is_open and other.is_open)


UNKNOWN = SeriesLabels()
NOTHING = SeriesLabels(is_open=False)
"""Of a number, or a series without labels."""


def labels_of(expression: str) -> SeriesLabels:
    """What is known of the labels of an expression's series.

    Raises:
        ValueError: it cannot be read: no PromQL, or newer than the parser; the message says why, in its words.
    """
    return _labels(_parse(expression))


def gives_series(expression: str) -> bool:
    """Whether an expression gives series with one value each: no number, no text, no range.

    Raises:
        ValueError: as ``labels_of``.
    """
    node = _parse(expression)
    while type(node).__name__ in ("ParenExpr", "UnaryExpr"):
        node = node.expr
    return type(node).__name__ not in ("StringLiteral", "MatrixSelector", "SubqueryExpr") and not _is_number(node)


def _parse(expression: str) -> Any:
    if len(expression) > MAX_LENGTH or _depth(expression) > MAX_DEPTH or _n_operators(expression) > MAX_OPERATORS:
        raise ValueError("it is too long to be looked at")
    # Few commands need it: all others start without it.
    import promql_parser

    try:
        return promql_parser.parse(expression)
    except ValueError as error:
        raise ValueError(" ".join(str(error).split())) from error


_TEXT_OR_COMMENT = re.compile(r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`|#[^\n]*""", re.DOTALL)
_OPERATOR = re.compile(r"[-+*/%^<>=!]+|\b(?:and|or|unless|atan2)\b", re.IGNORECASE)


def _depth(expression: str) -> int:
    depth = deepest = 0
    for character in _TEXT_OR_COMMENT.sub("", expression):
        depth += (character in "([{") - (character in ")]}")
        deepest = max(deepest, depth)
    return deepest


def _n_operators(expression: str) -> int:
    # Signs in a row are one match, and each an operator to the parser.
    return sum(
        len(found[0]) if found[0][0] in "+-" else 1
        for found in _OPERATOR.finditer(_TEXT_OR_COMMENT.sub("", expression))
    )


def _labels(node: Any) -> SeriesLabels:
    # By name: the classes exist only where the parser is loaded.
    match type(node).__name__:
        case "VectorSelector":
            return _selected(node)
        case "MatrixSelector":
            return _selected(node.vector_selector)
        case "ParenExpr" | "UnaryExpr" | "SubqueryExpr":
            return _labels(node.expr)
        case "NumberLiteral" | "StringLiteral":
            return NOTHING
        case "AggregateExpr":
            return _aggregated(node)
        case "BinaryExpr":
            return _combined(node)
        case "Call":
            return _called(node)
        case _:
            return UNKNOWN


def _selected(node: Any) -> SeriesLabels:
    if node.matchers.or_matchers:
        return UNKNOWN
    return SeriesLabels(
        known={
            matcher.name: frozenset({matcher.value})
            for matcher in node.matchers.matchers
            if _op(matcher) == "Equal" and matcher.name != "__name__"
        }
    )


def _op(matcher: Any) -> str:
    return str(matcher.op).rpartition(".")[2]


_CHOOSING = {"topk", "bottomk", "limitk", "limit_ratio"}
"""Aggregations that give series as they are."""


def _aggregated(node: Any) -> SeriesLabels:
    inner = _labels(node.expr)
    name = str(node.op)
    if name in _CHOOSING:
        return inner
    modifier = node.modifier
    if modifier is None:
        outer = NOTHING
    elif str(modifier.type).endswith("By"):
        outer = inner.only(modifier.labels)
    else:
        outer = inner.without(modifier.labels)
    if name == "count_values":
        return outer.with_({_text(node.param): None}) if _text(node.param) else UNKNOWN
    return outer


def _text(node: Any) -> str:
    while type(node).__name__ == "ParenExpr":
        node = node.expr
    return str(node.val) if type(node).__name__ == "StringLiteral" else ""


def _is_number(node: Any) -> bool:
    while type(node).__name__ in ("ParenExpr", "UnaryExpr"):
        node = node.expr
    match type(node).__name__:
        case "NumberLiteral":
            return True
        case "Call":
            return str(node.func.return_type).endswith("Scalar")
        case "BinaryExpr":
            return _is_number(node.lhs) and _is_number(node.rhs)
        case _:
            return False


def _combined(node: Any) -> SeriesLabels:
    left, right = _labels(node.lhs), _labels(node.rhs)
    operator = str(node.op)
    if operator == "or":
        return left.or_(right)
    if operator in ("and", "unless"):
        return left
    if _is_number(node.lhs):
        return right
    if _is_number(node.rhs):
        return left
    modifier = node.modifier
    if modifier is None:
        return left.and_(right)
    fills = modifier.fill_values
    if fills is not None and (fills.lhs is not None or fills.rhs is not None):
        return UNKNOWN
    matching = modifier.matching
    is_on = matching is not None and str(matching.type).endswith("Include")
    labels = [] if matching is None else list(matching.labels)
    match str(modifier.card).rpartition(".")[2]:
        case "OneToOne" if is_on:
            return left.and_(right).only(labels)
        case "OneToOne":
            return left.without(labels).and_(right.without(labels))
        case "ManyToOne":
            many, one = left, right
        case "OneToMany":
            many, one = right, left
        case _:
            return UNKNOWN
    return many.with_({label: one.values(label) for label in modifier.group_labels or ()})


_NEW_LABELS = {"info", "histogram_quantiles"}
"""Functions that give their series labels which no argument says."""


def _called(node: Any) -> SeriesLabels:
    name = node.func.name
    series = [argument for argument in node.args if not _is_number(argument) and not _text(argument)]
    if not series or name in ("vector", "scalar"):
        return NOTHING
    match name:
        case "absent" | "absent_over_time":
            return _absent(series[0])
        case "label_replace" | "label_join":
            changed = _text(node.args[1])
            return _labels(series[0]).with_({changed: None}) if changed else UNKNOWN
        case "histogram_quantile" | "histogram_fraction":
            return _labels(series[-1]).without(["le"])
        case _ if name in _NEW_LABELS:
            return UNKNOWN
        case _:
            return _labels(series[0])


def _absent(node: Any) -> SeriesLabels:
    """``absent`` gives the labels that its selector asks for by ``=``, each asked for once, and no others."""
    while type(node).__name__ in ("ParenExpr", "SubqueryExpr"):
        node = node.expr
    selector = getattr(node, "vector_selector", node)
    if type(selector).__name__ != "VectorSelector":
        return NOTHING
    matchers = [matcher for matcher in selector.matchers.matchers if matcher.name != "__name__"]
    names = [matcher.name for matcher in matchers]
    return SeriesLabels(
        known={
            matcher.name: frozenset({matcher.value})
            for matcher in matchers
            if _op(matcher) == "Equal" and names.count(matcher.name) == 1
        },
        is_open=False,
    )
