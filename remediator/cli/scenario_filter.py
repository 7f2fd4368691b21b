"""``-k``: which scenarios are played.

Takes → gives: ``leak and not (repeats or "out of order")`` → whether a scenario's file and name fit it.

Words side by side are one text, as names of scenarios are sentences; upper and lower case are one.
"""

from __future__ import annotations

import re
from collections.abc import Callable

Fits = Callable[[str], bool]

_TOKEN = re.compile(r"""\s*(?:(?P<sign>[()])|"(?P<quoted>[^"]*)"|(?P<word>[^\s()"]+))""")
_WORDS = ("and", "or", "not")
_MOST = 200
"""Texts, words and signs: nobody writes more, and what is nested deeper than Python goes is no expression."""


def parse_filter(text: str) -> Fits:
    """What such an expression asks of a text.

    Raises:
        ValueError: it is none; the text says where it breaks off.
    """
    tokens = _tokens(text)
    if len(tokens) > _MOST:
        raise ValueError(f"more than {_MOST} texts, words and signs")
    fits = _either(tokens)
    if tokens:
        raise ValueError(f"{tokens[0][1]!r} is one too many")
    return fits


def _tokens(text: str) -> list[tuple[str, str]]:
    """(kind, value), kind being ``text`` or one of the words and signs; words side by side are joined."""
    found: list[tuple[str, str]] = []
    place = 0
    text = text.rstrip()
    while place < len(text):
        token = _TOKEN.match(text, place)
        if token is None:
            raise ValueError("a quote is not closed")
        place = token.end()
        word = token["word"] or ""
        if token["sign"] or word.lower() in _WORDS:
            found.append(((token["sign"] or word).lower(), token["sign"] or word))
        elif word and found and found[-1][0] == "words":
            found[-1] = ("words", f"{found[-1][1]} {word}")
        else:
            found.append(("words", word) if word else ("quoted", token["quoted"]))
    return found


def _either(tokens: list[tuple[str, str]]) -> Fits:
    sides = [_both(tokens)]
    while tokens and tokens[0][0] == "or":
        tokens.pop(0)
        sides.append(_both(tokens))
    return lambda text: any(fits(text) for fits in sides)


def _both(tokens: list[tuple[str, str]]) -> Fits:
    sides = [_one(tokens)]
    while tokens and tokens[0][0] == "and":
        tokens.pop(0)
        sides.append(_one(tokens))
    return lambda text: all(fits(text) for fits in sides)


def _one(tokens: list[tuple[str, str]]) -> Fits:
    if not tokens:
        raise ValueError("a text is missing at its end")
    kind, value = tokens.pop(0)
    match kind:
        case "not":
            inner = _one(tokens)
            return lambda text: not inner(text)
        case "(":
            inner = _either(tokens)
            if not tokens or tokens.pop(0)[0] != ")":
                raise ValueError("a bracket is not closed")
            return inner
        case "words" | "quoted":
            wanted = value.lower()
            return lambda text: wanted in text.lower()
        case _:
            raise ValueError(f"a text is missing before {value!r}")
