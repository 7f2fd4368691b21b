"""Rule groups as text: what ``core.threshold`` gives, as a file that Prometheus reads and people too.

Takes groups as data → YAML, an expression's lines below each other. Must never: write a text that YAML reads as
something else.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

WIDTH = 120

_PLAIN = re.compile(r"[A-Za-z_](?:[\w:().-]*[\w)])?|[0-9]+[smhdwy]", re.ASCII)
"""Needs no quotes: a name, a call, or a duration."""

_FOLDABLE = re.compile(r"\S+(?: \S+)+")
"""Words with one space between them, which is what folded lines are read as."""

_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off"})
"""Some readers of YAML take these for something else than text."""


def write_rules(groups: Sequence[Mapping[str, Any]], comments: Sequence[str]) -> str:
    """The file.

    Args:
        groups: of rules, as Prometheus reads them.
        comments: lines for its top.
    """
    lines = [*(f"# {comment}".rstrip() for comment in comments), "groups:"]
    for group in groups:
        lines += [f"  - name: {_text(group['name'])}", f"    interval: {_text(group['interval'])}", "    rules:"]
        for rule in group["rules"]:
            lines += _rule(rule)
    return "\n".join(lines) + "\n"


def _rule(rule: Mapping[str, Any]) -> Iterator[str]:
    start = "      - "
    for key, value in rule.items():
        match value:
            case Mapping() if key == "labels":
                yield f"{start}{key}: {{{', '.join(f'{name}: {_text(each)}' for name, each in value.items())}}}"
            case Mapping():
                yield f"{start}{key}:"
                for name, each in value.items():
                    yield from _folded(name, each)
            case str() if "\n" in value:
                # The indentation is said, since a text may begin with spaces.
                yield f"{start}{key}: |{'2' if value.startswith(' ') else ''}-"
                yield from (f"          {line}".rstrip() for line in value.splitlines())
            case _:
                yield f"{start}{key}: {_text(value)}"
        start = "        "


def _folded(name: str, value: str) -> Iterator[str]:
    """An annotation: on several lines where it is long."""
    if len(line := f"          {name}: {_text(value)}") <= WIDTH or not (
        _FOLDABLE.fullmatch(value) and value.isprintable()
    ):
        yield line
        return
    yield f"          {name}: >-"
    yield from textwrap.wrap(value, WIDTH, initial_indent=_DEEP, subsequent_indent=_DEEP, **_BETWEEN_WORDS)


_DEEP = " " * 12
_BETWEEN_WORDS: Any = {"break_long_words": False, "break_on_hyphens": False}


def _text(value: str) -> str:
    if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    if value.isprintable():
        return "'" + value.replace("'", "''") + "'"
    return '"' + "".join(_ESCAPES.get(char) or _escaped(char) for char in value) + '"'


_ESCAPES = {'"': r"\"", "\\": r"\\", "\n": r"\n", "\t": r"\t"}


def _escaped(char: str) -> str:
    return char if char.isprintable() else f"\\U{ord(char):08x}"
