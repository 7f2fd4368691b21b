"""All that goes to the terminal passes here: plain text for pipes, colour for people, label values as data.

Takes → gives: values → lines on stdout or stderr.

Must never: let a label value, which anybody who can raise an alert chooses, move the cursor, set a title or a colour.
"""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from remediator.errors import PlaybookError

F = TypeVar("F", bound=Callable[..., Any])

_INVISIBLE = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode categories that are never printed: controls (ESC, C1), formats (bidi overrides), surrogates, separators."""

_NARROWEST = 20
"""Columns for text at least, however deep it is indented and narrow the terminal."""


_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?(?:Z|\+00:00)")
"""A time as the API, the store and a dry run write it."""


def printable(text: str) -> str:
    """``text`` on one line with every control character written out (``\\x1b``), so that it is shown and not obeyed.

    Source: CWE-150; Unicode categories Cc, Cf, Cs, Zl, Zp.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_written_out(char) if unicodedata.category(char) in _INVISIBLE else char for char in text)


def _written_out(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def label_text(labels: Mapping[str, str]) -> str:
    """``{alertname="Leak", host="gpu-07"}``: sorted, quoted, printable."""
    return (
        "{"
        + ", ".join(
            f"{printable(name)}={json.dumps(printable(labels[name]), ensure_ascii=False)}" for name in sorted(labels)
        )
        + "}"
    )


def shown_url(url: str) -> str:
    """A URL without the user name and password that it may hold."""
    scheme, separator, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    return printable(f"{scheme}{separator}{authority.rpartition('@')[2]}{slash}{path}")


class _PipeConsole(Console):
    """rich would end the process itself when the reader is gone; our exit code says which it was."""

    def on_broken_pipe(self) -> None:
        raise  # what rich has just caught


def json_option(command: F) -> F:
    """``--json``, handed on as ``as_json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")(command)


def console() -> Console:
    """A console on stdout as it is now.

    Markup, emoji codes and highlighting are off: a label value such as ``[red]`` is text. Colour only on a terminal,
    never with NO_COLOR.
    """
    return _PipeConsole(file=sys.stdout, markup=False, emoji=False, highlight=False)


def say(text: str = "", style: str = "") -> None:
    """One line on stdout, made printable, not folded: ``grep`` and editors want ``file:line:column`` whole."""
    console().print(Text(printable(text), style=style), soft_wrap=True)


def fold(text: str, indent: int = 0, style: str = "") -> None:
    """A paragraph on stdout, made printable, folded to the terminal's width, every line indented."""
    _print_folded(Text(" " * indent), Text(printable(text), style=style))


def fold_beside(head: str, text: str, style: str = "") -> None:
    """A word, and a paragraph beside it in as many lines as it needs."""
    _print_folded(Text(printable(head), style=style), Text(printable(text), style=style))


def print_change(what: str, was: str, would_be: str) -> None:
    """What would differ, indented: ``hold: 10m → 20m``; below each other where one line has no room for both."""
    line = f"{what}: {was} → {would_be}"
    if len(line) + 4 <= console().width:
        fold(line, 4)
        return
    fold(f"{what}:", 4)
    fold_beside("      - ", was, "red")
    fold_beside("      + ", would_be, "green")


def print_fields(fields: Mapping[str, Any], indent: int = 0) -> None:
    """Names and values below each other; maps come after them, indented. Empty values are left out."""
    flat = {_title(name): value_text(value) for name, value in fields.items() if not isinstance(value, Mapping)}
    width = max((cell_len(name) for name, text in flat.items() if text), default=0)
    for name, text in flat.items():
        if text:
            gap = " " * (width - cell_len(name) + 2)
            _print_folded(Text(" " * indent).append(name, "dim").append(gap), Text(text))
    for name, value in fields.items():
        if isinstance(value, Mapping) and value:
            fold(_title(name), indent, "bold")
            print_fields(value, indent + 2)


def _print_folded(head: Text, body: Text) -> None:
    """``head``, and ``body`` beside it in as many lines as it needs."""
    out = console()
    start = head
    for line in body.wrap(out, max(out.width - head.cell_len, _NARROWEST), overflow="fold"):
        line.rstrip()
        out.print(start + line, soft_wrap=True)
        start = Text(" " * head.cell_len)


def _title(name: str) -> str:
    return printable(name.replace("_", " "))


def value_text(value: Any) -> str:
    """One value for people, printable: yes and no, ``a=1 b=2`` for a map, commas in a list, "" for nothing."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case Mapping():
            return " ".join(f"{printable(str(name))}={value_text(item)}" for name, item in value.items())
        case list() | tuple():
            return ", ".join(value_text(item) for item in value)
        case _:
            return printable(str(value))


def moment_text(text: str) -> str:
    """A time in UTC to the second, ``2026-11-30 16:02:23 UTC``; anything else as it is."""
    found = _MOMENT.fullmatch(text)
    return f"{found[1]} {found[2]} UTC" if found else text


def complain(text: str) -> None:
    """One message on stderr, after the program's name."""
    lines = [printable(line) for line in text.splitlines()] or [""]
    click.echo("remediator: " + "\n  ".join(lines), err=True)


def problem_data(problem: PlaybookError) -> dict[str, str | int]:
    """A problem of a file, for ``--json``: its place, what is wrong, and both as they are printed."""
    place: dict[str, str | int] = {"file": problem.file, "line": problem.line, "column": problem.column}
    return {**place, "message": problem.message, "text": problem.located()}


def print_json(value: Any) -> None:
    """Machine-readable output: indented JSON, ASCII only, so that no control character gets through."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=True))
