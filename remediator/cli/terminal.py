"""All that goes to the terminal passes here: plain text for pipes, colour for people, label values as data.

Takes → gives: values → lines on stdout or stderr.

Must never: let a label value, which anybody who can raise an alert chooses, move the cursor, set a title or a colour.
"""

from __future__ import annotations

import json
import sys
import unicodedata
from typing import Any

import click
from rich.console import Console
from rich.text import Text

_INVISIBLE = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode categories that are never printed: controls (ESC, C1), formats (bidi overrides), surrogates, separators."""


def printable(text: str) -> str:
    """``text`` on one line with every control character written out (``\\x1b``), so that it is shown and not obeyed.

    Source: CWE-150; Unicode categories Cc, Cf, Cs, Zl, Zp.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_written_out(char) if unicodedata.category(char) in _INVISIBLE else char for char in text)


def _written_out(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def label_text(labels: dict[str, str]) -> str:
    """``{alertname="Leak", host="gpu-07"}``: sorted, quoted, printable."""
    return (
        "{"
        + ", ".join(
            f"{printable(name)}={json.dumps(printable(labels[name]), ensure_ascii=False)}" for name in sorted(labels)
        )
        + "}"
    )


class _PipeConsole(Console):
    """rich would end the process itself when the reader is gone; our exit code says which it was."""

    def on_broken_pipe(self) -> None:
        raise  # noqa: PLE0704  (rich calls this from its except block)


def console() -> Console:
    """A console on stdout as it is now.

    Markup, emoji codes and highlighting are off: a label value such as ``[red]`` is text. Colour only on a terminal,
    never with NO_COLOR.
    """
    return _PipeConsole(file=sys.stdout, markup=False, emoji=False, highlight=False)


def say(text: str = "", style: str = "") -> None:
    """One line on stdout, not folded: ``grep`` and editors want ``file:line:column`` whole."""
    console().print(Text(text, style=style), soft_wrap=True)


def complain(text: str) -> None:
    """One message on stderr, after the program's name."""
    lines = [printable(line) for line in text.splitlines()] or [""]
    click.echo("remediator: " + "\n  ".join(lines), err=True)


def print_json(value: Any) -> None:
    """Machine-readable output: indented JSON, ASCII only, so that no control character gets through."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=True))
