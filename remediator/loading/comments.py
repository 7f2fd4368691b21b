"""The comments of a YAML file, with their places: what stands behind a ``#`` that is no part of a value.

Takes the text of a file, gives ``Comment``s in order. Must never: take a ``#`` inside quotes or a block of text for a
comment, or raise for what is no YAML (that is told by who reads the file for its content).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.tokens import ScalarToken

_BREAK = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
"""YAML's line breaks, as the reader of documents counts them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comment:
    """One comment.

    Attributes:
        text: without the ``#`` and the spaces around.
        line, column: of the ``#``, 1-based.
        is_alone: nothing else stands on its line.
    """

    text: str
    line: int
    column: int
    is_alone: bool


def read_comments(source: str) -> list[Comment]:
    """Every comment of a file.

    Args:
        source: its text, of one or several documents.

    Returns:
        In order; [] for what is no YAML. Raises nothing.
    """
    try:
        contents = _contents(source)
    except (YAMLError, ValueError):
        return []
    line_starts = [0, *(found.end() for found in _BREAK.finditer(source))]
    starts = [start for start, _ in contents]
    comments: list[Comment] = []
    position = source.find("#")
    while position >= 0:
        content = bisect_right(starts, position) - 1
        if content >= 0 and position < contents[content][1]:
            position = source.find("#", contents[content][1])
        else:
            line = bisect_right(line_starts, position)
            before = source[line_starts[line - 1] : position]
            end = _line_end(source, position)
            comments.append(
                Comment(
                    text=source[position:end].lstrip("#").strip(),
                    line=line,
                    column=len(before) + 1,
                    is_alone=not before.strip("\ufeff \t"),
                )
            )
            position = source.find("#", end)
    return comments


def _contents(source: str) -> list[tuple[int, int]]:
    """Where values and keys stand, from and to, in order."""
    contents: list[tuple[int, int]] = []
    for token in YAML(typ="safe", pure=True).scan(source):
        if isinstance(token, ScalarToken):
            start = token.start_mark.index
            if token.style in ("|", ">"):  # behind its sign a comment may stand; the text begins on the next line
                start = _line_end(source, start)
            contents.append((start, token.end_mark.index))
    return contents


def _line_end(source: str, start: int) -> int:
    found = _BREAK.search(source, start)
    return found.start() if found else len(source)
