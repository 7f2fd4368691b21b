"""A YAML file → plain data, with the place of every key and value.

Takes the text of a file, gives ``Document``s: nodes that remember line, column and how they were written. Must never:
raise for bad content, follow an alias, or read a word as anything but YAML 1.2 does (``yes`` and ``1:30`` are text).

It works on the parser's events and not on loaded objects, because only those show anchors, tags, duplicate keys and
quotes; and without recursion, so that no nesting can exhaust the stack.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.reader import ReaderError

from remediator.core.units import cut
from remediator.errors import PlaybookError, PlaybookSyntaxError

MAX_BYTES = 1024 * 1024
"""Of one file: a thousand playbooks fit; more is no playbook file."""

_BRACKETED = re.compile(r"""\[(?:[^'\[]*,)?\s*([\w.]+\s*[=!]~\s*"[^"]*[][{},][^"]*")""")
"""A matcher in a list in brackets whose value YAML takes for brackets of its own."""

MAX_DEPTH = 32
"""Of nesting; the format itself needs about eight."""

MAX_DIGITS = 15
"""Of a whole number: what JSON, and so the audit log, keeps exactly (2**53)."""

Scalar = str | int | float | bool | None
Path = tuple[str | int, ...]
"""Keys and indexes from the document's top."""


@dataclass(slots=True)
class Node:
    """One value of a document.

    Attributes:
        value: a scalar, or a dict or list of nodes.
        text: a scalar as written, without quotes.
        line, column: 1-based; where its key stands for a map's entry, else where it begins.
        is_plain: a scalar without quotes.
        end: index in the file's text behind it.
    """

    value: Scalar | dict[str, Node] | list[Node]
    line: int
    column: int
    text: str = ""
    is_plain: bool = False
    start: int = 0
    end: int = 0

    def plain(self) -> Any:
        """The value as dicts, lists and scalars."""
        match self.value:
            case dict():
                return {key: node.plain() for key, node in self.value.items()}
            case list():
                return [node.plain() for node in self.value]
            case _:
                return self.value

    def at(self, path: Path) -> Node:
        """The node at the path, or the nearest one above it."""
        node = self
        for part in path:
            match node.value, part:
                case dict() as entries, str() if part in entries:
                    node = entries[part]
                case list() as items, int() if part < len(items):
                    node = items[part]
        return node

    def find(self, path: Path) -> Node | None:
        """The node at the path, None where there is none."""
        node = self
        for part in path:
            match node.value, part:
                case dict() as entries, str() if part in entries:
                    node = entries[part]
                case list() as items, int() if part < len(items):
                    node = items[part]
                case _:
                    return None
        return node

    def without(self, paths: Iterable[Path]) -> bool:
        """Take the nodes at the paths out, or the nearest ones above; False when that would be this node."""
        doomed = {id(self.at(path)) for path in paths}
        if doomed:
            self._drop(doomed)
        return id(self) not in doomed

    def _drop(self, doomed: set[int]) -> None:
        match self.value:
            case dict() as entries:
                self.value = {key: node for key, node in entries.items() if id(node) not in doomed}
                children = list(self.value.values())
            case list() as items:
                self.value = children = [node for node in items if id(node) not in doomed]
            case _:
                children = []
        for node in children:
            node._drop(doomed)

    def walk(self, path: Path = ()) -> Iterator[tuple[Path, Node]]:
        """Every node below, with its path, in the file's order."""
        match self.value:
            case dict():
                children: list[tuple[str | int, Node]] = list(self.value.items())
            case list():
                children = list(enumerate(self.value))
            case _:
                children = []
        for part, node in children:
            yield (*path, part), node
            yield from node.walk((*path, part))


def entries_of(node: Node | None) -> dict[str, Node]:
    """Key → node of a map; none of anything else."""
    return node.value if node is not None and isinstance(node.value, dict) else {}


def items_of(node: Node | None) -> list[Node]:
    """The nodes of a list; none of anything else."""
    return node.value if node is not None and isinstance(node.value, list) else []


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a file.

    Attributes:
        root: its top node.
        sha256: hex over its text.
        file: as the user gave it.
        source: text of the whole file.
    """

    root: Node
    sha256: str
    file: str
    source: str

    def rest_of_line(self, node: Node) -> str:
        """What follows a scalar on its line."""
        return _to_line_end(self.source, node.end)


def _to_line_end(source: str, start: int) -> str:
    end = source.find("\n", start)
    return source[start:] if end < 0 else source[start:end]


def read_bytes(file: FilePath, limit: int) -> bytes | str:
    """What a file holds, one byte more than ``limit`` at most; or why it cannot be read, for people.

    A pipe would be waited for until somebody writes into it, a device for ever: both are no files.
    """
    try:
        with open(file, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK)) as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                return "is a pipe or a device, not a file"
            return stream.read(limit + 1)
    except (OSError, ValueError) as error:
        return cannot_be_read(error)


def cannot_be_read(error: OSError | ValueError) -> str:
    """Why not, for people; a ``ValueError`` is of a path with a null in it."""
    return f"cannot be read: {(error.strerror if isinstance(error, OSError) else '') or error}"


def read_documents(file: str, data: bytes, *, is_quick: bool = False) -> tuple[list[Document], list[PlaybookError]]:
    """Every document of a file that could be read, and all that is wrong with the file.

    Args:
        file: its name, for messages.
        data: its content.
        is_quick: let libyaml try first, which is thirty times as fast. What it finds wrong is read again by the one
            that reads everything else, for its words; so is what the two could understand differently.
    """
    if len(data) > MAX_BYTES:
        return [], [PlaybookSyntaxError("the file is larger than 1 MiB; split it", file=file, line=1, column=1)]
    try:
        source = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return [], [PlaybookSyntaxError("not UTF-8; save the file as UTF-8", file=file, line=line, column=1)]
    if is_quick and not _ONE_READER_ALONE.search(source):
        with contextlib.suppress(_NoLibyamlError):
            documents, problems = _Reader(file, source).read(_libyaml_events(source))
            if not problems:
                return documents, []
    return _Reader(file, source).read(YAML(typ="safe", pure=True).parse(source))


_ONE_READER_ALONE = re.compile("^%|[\t\x85\u2028\u2029\ufeff]", re.MULTILINE)
"""Directives, tabs, and characters that end a line in YAML 1.1 alone: libyaml is of both worlds."""


class _NoLibyamlError(Exception):
    """It is not there, or does not take the file."""


def _libyaml_events(source: str) -> Iterator[Any]:
    """The events of a file, as libyaml has them: of the same names and members as ruamel's.

    Raises:
        _NoLibyamlError: PyYAML was built without it, or something is wrong with the file.
    """
    import yaml  # not needed to serve

    if not yaml.__with_libyaml__:
        raise _NoLibyamlError
    try:
        yield from yaml.parse(source, Loader=yaml.CSafeLoader)
    except yaml.YAMLError as error:
        raise _NoLibyamlError from error


@dataclass(slots=True)
class _Open:
    """A map or list whose end has not come yet.

    Attributes:
        key: the key that waits for its value.
        meant: the text that the map would be, had its author put quotes round a template.
    """

    node: Node
    key: Node | None = None
    meant: str = ""
    first_lines: dict[str, int] = field(default_factory=dict)


class _Reader:
    def __init__(self, file: str, source: str) -> None:
        self._file = file
        self._source = source
        self._problems: list[PlaybookError] = []
        self._documents: list[Document] = []
        self._open: list[_Open] = []
        self._has_alias = False

    def read(self, events: Iterable[Any]) -> tuple[list[Document], list[PlaybookError]]:
        try:
            for event in events:
                if not self._take(event):
                    break
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
            if not any(problem.line == line for problem in self._problems):  # a template without quotes, told already
                self._problem(f"not YAML: {error.problem or error.context}{self._hint(line)}", line, column)
        except ReaderError as error:
            line = self._source.count("\n", 0, error.position) + 1
            self._problem(f"not YAML: the character U+{error.character:04X} is not allowed", line, 1)
        except (YAMLError, ValueError) as error:
            self._problem(f"not YAML: {cut(str(error), 200)}", 1, 1)
        return self._documents, self._problems

    def _problem(self, message: str, line: int, column: int) -> None:
        self._problems.append(PlaybookSyntaxError(message, file=self._file, line=line, column=column))

    def _hint(self, line: int) -> str:
        """What was probably meant on the lines where YAML gave up."""
        lines = self._source.splitlines()
        for number in (line, line - 1):
            text = lines[number - 1] if 0 < number <= len(lines) else ""
            if re.search(r"""-\s+"[^"]*"\s*[=!]""", text):
                return "; a matcher that starts with a quote goes in single quotes: '\"host.name\" = x'"
            if "{{" in text:
                return '; put quotes round a text with {{ }}: "{{ labels.NAME }}"'
            if "\t" in text[: len(text) - len(text.lstrip())]:
                return "; indent with spaces, not tabs"
        for number, text in enumerate(lines[:line], 1):  # YAML may give up far below: it waits for the last bracket
            if matcher := _BRACKETED.search(text):
                return f"; in the list on line {number} this matcher needs single quotes round it: '{matcher[1]}'"
        return ""

    def _take(self, event: Any) -> bool:
        """Use one event; False: reading cannot go on."""
        # By name: two libraries have these events.
        match type(event).__name__:
            case "ScalarEvent":
                self._refuse_marks(event)
                self._add(self._scalar(event))
            case "MappingStartEvent" | "SequenceStartEvent" as name:
                self._refuse_marks(event)
                if len(self._open) >= MAX_DEPTH:
                    self._refuse(event, f"nested deeper than {MAX_DEPTH}")
                    return False
                self._open.append(_Open(self._node(event, {} if name == "MappingStartEvent" else [])))
            case "MappingEndEvent" | "SequenceEndEvent":
                closed = self._open.pop()
                closed.node.end = event.end_mark.index
                if closed.meant:  # told already; what it holds is checked as if it had quotes
                    closed.node.value = closed.node.text = closed.meant
                self._add(closed.node)
            case "AliasEvent":
                self._refuse(event, f"aliases (*{event.anchor}) are not allowed; write the value out")
                self._has_alias = True
                self._add(self._node(event, ""))
            case "DocumentStartEvent":
                self._has_alias = False
            case "DocumentEndEvent":
                self._open.clear()
        return True

    def _node(self, event: Any, value: Any) -> Node:
        mark, end = event.start_mark, event.end_mark
        return Node(value, mark.line + 1, mark.column + 1, start=mark.index, end=end.index)

    def _refuse(self, event: Any, message: str) -> None:
        self._problem(message, event.start_mark.line + 1, event.start_mark.column + 1)

    def _refuse_marks(self, event: Any) -> None:
        if event.anchor:
            self._refuse(event, f"anchors (&{event.anchor}) are not allowed; write the value out where it is needed")
        if event.tag:
            shown = event.tag.replace("tag:yaml.org,2002:", "!!")
            self._refuse(event, f"tags ({shown}) are not allowed; remove it")

    def _scalar(self, event: Any) -> Node:
        node = self._node(event, event.value)
        node.text = event.value
        node.is_plain = not event.style
        if node.is_plain:
            if re.fullmatch(rf"[-+]?[0-9]{{{MAX_DIGITS + 1},}}", node.text):
                self._refuse(event, f"a number of more than {MAX_DIGITS} digits; put quotes round it")
            else:
                node.value = plain_scalar(node.text)
        return node

    def _add(self, node: Node) -> None:
        """Put a finished node into what is open around it."""
        if not self._open:
            self._finish(node)
            return
        parent = self._open[-1]
        if isinstance(parent.node.value, list):
            parent.node.value.append(node)
        elif parent.key is None:
            parent.key = node
        else:
            self._add_entry(parent, parent.key, node)
            parent.key = None

    def _add_entry(self, parent: _Open, key: Node, node: Node) -> None:
        assert isinstance(parent.node.value, dict)
        if isinstance(key.value, dict | list):
            self._unquoted_template(parent, key)
            return
        name = key.text
        if name in parent.first_lines:
            message = f"the key `{name}` stands here twice, first in line {parent.first_lines[name]}; keep one"
            self._problem(message, key.line, key.column)
            return
        parent.first_lines[name] = key.line
        node.line, node.column = key.line, key.column
        parent.node.value[name] = node

    def _unquoted_template(self, parent: _Open, key: Node) -> None:
        """``{{ labels.x }}`` without quotes is a map inside a map to YAML."""
        text = self._source[parent.node.start : key.end + 1]
        if isinstance(key.value, dict) and text.startswith("{{"):
            parent.meant = text
            rest = _to_line_end(self._source, key.end + 1).partition(" #")[0].rstrip()
            goes_on = rest.lstrip()[:1] not in ("", ",", "}", "]")
            message = f'a template needs quotes: write "{cut(text + (rest if goes_on else ""), 80)}"'
        else:
            message = "a key must be text"
        self._problem(message, parent.node.line, parent.node.column)

    def _finish(self, root: Node) -> None:
        # Comments inside count, those above the first key and the line --- do not.
        text = self._source[root.start : root.end]
        digest = hashlib.sha256(text.strip().encode("utf-8", "surrogatepass")).hexdigest()
        # With an alias a value is unknown: whatever else is wrong with the document cannot be told from its lack.
        if root.value is not None and not self._has_alias:
            self._documents.append(Document(root, digest, self._file, self._source))


_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE = frozenset({"true", "True", "TRUE"})
_FALSE = frozenset({"false", "False", "FALSE"})
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")


def plain_scalar(text: str) -> Scalar:
    """What a scalar without quotes means.

    Source: YAML 1.2.2, 10.3.2, the core schema; without ``.inf`` and ``.nan``, which no key takes and JSON lacks.
    """
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if re.fullmatch(r"[-+]?[0-9]+", text):
        return int(text)
    if re.fullmatch(r"0o[0-7]{1,15}", text):
        return int(text[2:], 8)
    if re.fullmatch(r"0x[0-9a-fA-F]{1,12}", text):
        return int(text[2:], 16)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text
