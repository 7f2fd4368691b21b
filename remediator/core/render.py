"""Templates and ``if`` expressions: parsed and checked at load, rendered from a plan's context.

Place in the flow: ``loading`` parses (text → ``ParamTemplate`` / ``Expression``), ``plan`` and a step's turn render
(context → values). Must never: run code from a label, render anything twice, or let a template's cost depend on more
than its own length.

Jinja2 reads and compiles; what may be written is a list of our own over its syntax tree, checked before anything is
compiled. Every value that a template sees is text, a whole number, true/false, or one of our own maps, which have no
methods; so the sandbox below it is the second wall, not the first.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any, Self, TypeVar

from jinja2 import StrictUndefined, TemplateSyntaxError, Undefined, nodes
from jinja2.environment import Template
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from remediator.core.action import JsonValue
from remediator.core.units import cut, print_duration, strip_port
from remediator.errors import MissingValueError, TemplateError

Context = Mapping[str, JsonValue]
"""What templates see. At plan time: labels, annotations, alert, group, subject, alerts, playbook, owner, vars, run
(id, url), host, cluster, node. At a step's turn also: steps, run.outcome, run.reason, run.summary."""

MAX_TEXT = 16 * 1024
"""Characters of one template, of one value in it and of its output: longer is a mistake or an attack, not a name or
a message (Slack cuts at 4,000)."""

_SHOWN = 80
"""Characters of a value that an error shows."""

MAX_DEPTH = 64
"""Nesting of one expression; Python's own compiler gives up at 200 parentheses."""

MAX_DIGITS = 15
"""Of a number in text: what the audit can hold (below 2**53)."""


class TemplateKind(StrEnum):
    """Where the output goes, so how values are put in."""

    TEXT = "text"
    QUERY = "query"


@dataclass(frozen=True, slots=True)
class ParamTemplate:
    """A value from a playbook, any of whose texts may hold ``{{ }}``.

    Attributes:
        source: as written: a scalar, list or map.
        names: what it reads, as dotted paths (``labels.pod``, ``steps.restart.outcome``).
        is_late: it reads something that is known only at the step's turn.
        kind: how values are put in.
    """

    source: JsonValue
    names: frozenset[str]
    is_late: bool
    kind: TemplateKind = TemplateKind.TEXT

    @classmethod
    def parse(cls, source: JsonValue, *, kind: TemplateKind = TemplateKind.TEXT) -> Self:
        """Check every text in ``source``.

        Raises:
            TemplateError: a text holds something that templates may not; without a place.
        """
        names = frozenset(name for text in _texts(source) if _is_template(text) for name in _template(text, kind).names)
        return cls(source, names, _any_late(names), kind)

    @property
    def is_literal(self) -> bool:
        """No text in it holds a template."""
        return not any(_is_template(text) for text in _texts(self.source))

    def render(self, context: Context) -> JsonValue:
        """The same tree with every template replaced by its text.

        Raises:
            MissingValueError: a label or annotation is absent or empty and no ``default`` is written, or a late value
                is not known yet.
            TemplateError: a value does not fit its filter or comparison, or the output is too long.
        """
        return _render_tree(self.source, self.kind, _Scope(context, is_absent_empty=False))


@dataclass(frozen=True, slots=True)
class Expression:
    """An ``if``: true or false.

    Attributes:
        source: as written, without braces.
        names, is_late: as in ``ParamTemplate``.
    """

    source: str
    names: frozenset[str]
    is_late: bool

    @classmethod
    def parse(cls, source: str) -> Self:
        """Check an expression.

        Raises:
            TemplateError: not an allowed expression, or one that cannot be true or false; without a place.
        """
        names = _expression(source).names
        return cls(source, names, _any_late(names))

    def holds(self, context: Context) -> bool:
        """Whether it is true now. What is absent is "".

        Raises:
            TemplateError: a value does not fit its filter or comparison, or the result is neither true nor false.
        """
        return _expression(self.source).run(_Scope(context, is_absent_empty=True)) == "true"


# --- what may be read ---------------------------------------------------------------------------------------------


class _Type(StrEnum):
    """What is known at load about an expression's value."""

    TEXT = "text"
    NUMBER = "a number"
    TRUTH = "true or false"
    LIST = "a list"
    ANY = "any"


_FIELDS: Mapping[str, Mapping[str, _Type]] = {
    "alert": dict.fromkeys(("status", "fingerprint", "starts_at", "generator_url"), _Type.TEXT),
    "group": dict.fromkeys(("labels", "receiver", "external_url"), _Type.TEXT),
    "run": dict.fromkeys(("id", "url", "outcome", "reason", "summary"), _Type.TEXT),
}
_PLAIN: Mapping[str, _Type] = {
    **dict.fromkeys(("playbook", "owner", "host", "cluster", "node"), _Type.TEXT),
    "alerts": _Type.NUMBER,
}
_LABEL_MAPS = ("labels", "annotations", "subject")
_ROOTS = (*_LABEL_MAPS, *_FIELDS, *_PLAIN, "vars", "steps")

_LATE_ROOTS = frozenset({"steps", "alerts"})
_LATE_NAMES = frozenset({"run.outcome", "run.reason", "run.summary"})

# Label-made values: empty means that the alert has it not. Of the others, "" is a value (a generator_url, a run.url
# without a public address).
_EMPTY_IS_MISSING = frozenset({*_LABEL_MAPS, "group.labels", "host", "cluster", "node"})


def is_late(name: str) -> bool:
    """Whether what a template reads is known only at a step's turn.

    Args:
        name: dotted path, one of ``ParamTemplate.names``.
    """
    return name in _LATE_NAMES or name.partition(".")[0] in _LATE_ROOTS


def _any_late(names: Iterable[str]) -> bool:
    return any(is_late(name) for name in names)


def _dotted(path: Sequence[str | int]) -> str:
    """A path as a template writes it: ``labels.pod``, ``labels["host.name"]``."""
    return str(path[0]) + "".join(_part(key) for key in path[1:])


def _part(key: str | int) -> str:
    if isinstance(key, int):
        return f"[{key}]"
    return f".{key}" if key.isidentifier() else f'["{key}"]'


def _suggest(word: str, known: Iterable[str]) -> str:
    known = sorted(known)
    close = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; there are: {', '.join(known)}"


def _type_of_path(path: Sequence[str | int]) -> _Type:
    """What a path leads to.

    Raises:
        TemplateError: nowhere.
    """
    root, rest = str(path[0]), path[1:]
    if root in _PLAIN:
        if rest:
            raise TemplateError(f"{root} is one value and has no parts; write {root}")
        return _PLAIN[root]
    if root in _LABEL_MAPS:
        if root == "subject" and not rest:
            return _Type.TEXT
        return _one_label(root, rest)
    if root in _FIELDS:
        if not rest or rest[0] not in _FIELDS[root]:
            word = str(rest[0]) if rest else ""
            raise TemplateError(f"{_dotted(path)} does not exist{_suggest(word, _FIELDS[root])} (after {root}.)")
        if rest[0] == "labels":
            return _one_label("group.labels", rest[1:])
        if len(rest) > 1:
            raise TemplateError(f"{_dotted(path[:2])} is text and has no parts")
        return _FIELDS[root][str(rest[0])]
    if root == "vars":
        if not rest:
            raise TemplateError("vars holds many values; name one: vars.NAME")
        return _Type.ANY
    if root == "steps":
        return _step_field(path)
    raise TemplateError(f"{root!r} is not known in templates{_suggest(root, _ROOTS)}")


def _one_label(root: str, rest: Sequence[str | int]) -> _Type:
    if not rest:
        raise TemplateError(f"{root} holds many values; name one: {root}.NAME")
    if len(rest) > 1:
        odd = ".".join(str(key) for key in rest)
        raise TemplateError(
            f'{root}.{odd}: a value of {root} is text and has no parts; for a name with dots write {root}["{odd}"]'
        )
    if not isinstance(rest[0], str):
        raise TemplateError(f'{root}[{rest[0]}]: names are text; write {root}["{rest[0]}"]')
    return _Type.TEXT


def _step_field(path: Sequence[str | int]) -> _Type:
    fields = ("outcome", "before", "after")
    if len(path) < 3 or path[2] not in fields:
        raise TemplateError(f"{_dotted(path)}: write steps.NAME.outcome, steps.NAME.before or steps.NAME.after")
    if path[2] == "outcome" and len(path) > 3:
        raise TemplateError(f"{_dotted(path[:3])} is text and has no parts")
    return _Type.TEXT if path[2] == "outcome" else _Type.ANY


# --- what may be written ------------------------------------------------------------------------------------------

_FILTER_ARGS: Mapping[str, tuple[int, int]] = {
    "default": (1, 1),
    "lower": (0, 0),
    "upper": (0, 0),
    "trim": (0, 0),
    "replace": (2, 2),
    "host": (0, 0),
    "join": (0, 1),
    "duration": (0, 0),
    "int": (0, 0),
}
"""Filter → fewest and most arguments."""

_ORDER = {"lt": "<", "lteq": "<=", "gt": ">", "gteq": ">="}

_REFUSED: Mapping[type[nodes.Node], str] = {
    nodes.Call: "calls are not allowed; filters are: " + ", ".join(sorted(_FILTER_ARGS)),
    nodes.Test: '`is` is not allowed; what is absent is "": compare with ""',
    nodes.CondExpr: "`… if … else …` is not allowed; use the step's `if`, or default(...)",
    nodes.Dict: "a map cannot be written here",
    nodes.Slice: "slices are not allowed",
    **dict.fromkeys((nodes.Mul, nodes.Div, nodes.FloorDiv, nodes.Mod, nodes.Pow, nodes.Neg), "there is no arithmetic"),
    nodes.Sub: '- is not allowed; for a name with a dash write labels["a-b"]',
    nodes.Add: "+ is not allowed; to join texts write ~",
}


class _Check:
    """Walks one expression; collects the names that it reads, and wraps the parts of ``~`` so that they join as text.

    Raises from every method:
        TemplateError: something that is not on the list.
    """

    def __init__(self) -> None:
        self.names: set[str] = set()

    def type_of(self, node: nodes.Node, depth: int = 0) -> _Type:
        if depth > MAX_DEPTH:
            raise TemplateError(f"nested deeper than {MAX_DEPTH}; make it simpler")
        match node:
            case nodes.Const():
                return self._const(node)
            case nodes.Name() | nodes.Getattr() | nodes.Getitem():
                path = self._path(node)
                kind = _type_of_path(path)
                self.names.add(_dotted(path))
                return kind
            case nodes.Compare():
                return self._compare(node, depth)
            case nodes.And() | nodes.Or():
                self._truth(node.left, depth)
                self._truth(node.right, depth)
                return _Type.TRUTH
            case nodes.Not():
                self._truth(node.node, depth)
                return _Type.TRUTH
            case nodes.Concat():
                for part in node.nodes:
                    self.type_of(part, depth + 1)
                node.nodes = [nodes.Filter(part, "_text", [], [], None, None) for part in node.nodes]
                return _Type.TEXT
            case nodes.List() | nodes.Tuple():
                for item in node.items:
                    self.type_of(item, depth + 1)
                return _Type.LIST
            case nodes.Filter():
                return self._filter(node, depth)
            case _:
                raise TemplateError(_REFUSED.get(type(node), f"{type(node).__name__.lower()} is not allowed here"))

    def _const(self, node: nodes.Const) -> _Type:
        match node.value:
            case bool():
                return _Type.TRUTH
            case int():
                return _Type.NUMBER
            case str():
                return _Type.TEXT
            case float():
                raise TemplateError(f"{node.value}: only whole numbers are allowed")
            case _:
                raise TemplateError('none is not a value here; what is absent is ""')

    def _path(self, node: nodes.Node) -> list[str | int]:
        keys: list[str | int] = []
        while not isinstance(node, nodes.Name):
            match node:
                case nodes.Getattr():
                    keys.append(node.attr)
                case nodes.Getitem(arg=nodes.Const(value=str() | int() as key)) if not isinstance(key, bool):
                    keys.append(key)
                case nodes.Getitem():
                    raise TemplateError('inside [ ] only a written name or number is allowed: labels["host.name"]')
                case _:
                    raise TemplateError("only labels, vars and the like have parts")
            if len(keys) > MAX_DEPTH:
                raise TemplateError(f"nested deeper than {MAX_DEPTH}; make it simpler")
            node = node.node
        return [node.name, *reversed(keys)]

    def _compare(self, node: nodes.Compare, depth: int) -> _Type:
        left_node = node.expr
        left = self.type_of(left_node, depth + 1)
        for operand in node.ops:
            right = self.type_of(operand.expr, depth + 1)
            types = {left, right}
            if operand.op in ("in", "notin"):
                if right in (_Type.NUMBER, _Type.TRUTH) or (left is _Type.NUMBER and right is _Type.TEXT):
                    raise TemplateError('`in` looks for text in text, or for a value in a list: x in ["a", "b"]')
            elif _Type.LIST in types:
                raise TemplateError('a value is never equal to a list; write x in ["a", "b"]')
            elif _Type.TEXT in types and types & {_Type.NUMBER, _Type.TRUTH}:
                other = (types - {_Type.TEXT}).pop()
                hint = "| int, or put the number in quotes" if other is _Type.NUMBER else 'quotes: == "true"'
                raise TemplateError(f"labels and the like are text, never equal to {other}; write {hint}")
            elif operand.op in _ORDER and _Type.TEXT in types:
                raise TemplateError(f"{_ORDER[operand.op]} compares numbers, and this is text; write x | int")
            left = right
        return _Type.TRUTH

    def _truth(self, node: nodes.Node, depth: int) -> None:
        kind = self.type_of(node, depth + 1)
        if kind not in (_Type.TRUTH, _Type.ANY):
            raise TemplateError(f'and, or, not and `if` take true or false, and this is {kind}; write x != ""')

    def _filter(self, node: nodes.Filter, depth: int) -> _Type:
        if node.name not in _FILTER_ARGS:
            raise TemplateError(f"there is no filter {node.name!r}{_suggest(node.name, _FILTER_ARGS)}")
        fewest, most = _FILTER_ARGS[node.name]
        if node.kwargs or node.dyn_args or node.dyn_kwargs or not fewest <= len(node.args) <= most:
            plural = "" if most == 1 else "s"
            raise TemplateError(f"the filter {node.name} takes {most or 'no'} value{plural} in ( )")
        if node.node is None:
            raise TemplateError(f"the filter {node.name} needs a value before it")
        value = self.type_of(node.node, depth + 1)
        args = [self.type_of(arg, depth + 1) for arg in node.args]
        match node.name:
            case "int":
                return _Type.NUMBER
            case "join" if value not in (_Type.LIST, _Type.ANY):
                raise TemplateError(f"join takes a list, and this is {value}")
            case "default":
                return value if args == [value] else _Type.ANY
            case _:
                return _Type.TEXT


# --- how it is run ------------------------------------------------------------------------------------------------


class _Values:
    """A map or list as templates see it: parts by name, and `in`; nothing else."""

    __slots__ = ("_data", "_path", "_scope")

    def __init__(self, data: Mapping[str, JsonValue] | Sequence[JsonValue], path: str, scope: _Scope) -> None:
        self._data = data
        self._path = path
        self._scope = scope

    def part(self, key: str | int) -> object:
        data = self._data
        found: JsonValue | None = None
        if isinstance(data, Mapping):
            found = data.get(str(key))
        elif isinstance(key, int) and -len(data) <= key < len(data):
            found = data[key]
        return self._scope.wrap(found, self._path, key)

    def __contains__(self, value: object) -> bool:
        return value in self._data

    def plain(self) -> object:
        return self._data


@dataclass(frozen=True, slots=True)
class _Scope:
    """The context of one rendering, and what an absent value is in it."""

    context: Context
    is_absent_empty: bool

    def names(self) -> dict[str, object]:
        return {root: self.wrap(self.context.get(root), "", root) for root in _ROOTS}

    def wrap(self, value: JsonValue | None, parent: str, key: str | int) -> object:
        path = f"{parent}.{key}" if parent else str(key)
        if value is None or (value == "" and (parent or path) in _EMPTY_IS_MISSING):
            if self.is_absent_empty:
                return ""
            shown = f"{parent}{_part(key)}" if parent else str(key)
            return StrictUndefined(name=shown, exc=lambda _: MissingValueError(shown))  # type: ignore[arg-type]
        match value:
            case str():
                if len(value) > MAX_TEXT:
                    raise TemplateError(f"{path} is longer than {MAX_TEXT} characters")
                return value
            case bool() | int():
                return value
            case _:
                return _Values(value, path, self)


class _Environment(ImmutableSandboxedEnvironment):
    """Parts are looked up in our own maps only: no attribute of any Python object can be reached."""

    def getitem(self, obj: Any, argument: Any) -> Any:
        if isinstance(obj, _Values):
            return obj.part(argument)
        if isinstance(obj, Undefined) or obj == "":
            return obj
        raise TemplateError(f"{argument}: this value has no parts")

    def getattr(self, obj: Any, attribute: str) -> Any:
        return self.getitem(obj, attribute)


def _text(value: object) -> str:
    """A value as a person writes it. Raises MissingValueError for an absent one."""
    match value:
        case bool():
            return "true" if value else "false"
        case _Values():
            return _text(value.plain())
        case Mapping():
            return ", ".join(f"{key}={_text(value[key])}" for key in sorted(value))
        case list() | tuple():
            return ", ".join(_text(item) for item in value)
        case _:
            return _capped(str(value))


def _capped(text: str) -> str:
    if len(text) > MAX_TEXT:
        raise TemplateError(f"the text is longer than {MAX_TEXT} characters")
    return text


_PROMQL_SPECIAL = re.compile("[\\\\\"'`\x00-\x1f\x7f\ufffd]")


def promql_quoted(text: str) -> str:
    """Text that is safe between either kind of PromQL quotes, and means ``text`` there.

    ``\\uHHHH`` and not a backslash before the quote: Prometheus takes that only before the quote that
    surrounds the string, and the template's author wrote that one. Prometheus takes U+FFFD itself for broken UTF-8.

    Source: prometheus util/strutil/quote.go, UnquoteChar.
    """
    return _PROMQL_SPECIAL.sub(lambda found: "\\\\" if found[0] == "\\" else f"\\u{ord(found[0]):04x}", text)


_RE2_SPECIAL = re.compile(r"[\\.+*?()|\[\]{}^$]")


def _re2_literal(value: object) -> str:
    """Text that a regular expression of Prometheus (RE2, after ``=~``) takes for itself and nothing else."""
    return _RE2_SPECIAL.sub(r"\\\g<0>", _text(value))


def _truth_text(value: object) -> str:
    if not isinstance(value, bool):
        raise TemplateError(f"if: must be true or false, and is {cut(_text(value), _SHOWN)!r}")
    return _text(value)


def _default(value: object, other: object) -> object:
    return other if isinstance(value, Undefined) or value == "" else value


def _replace(value: object, old: object, new: object) -> str:
    text, old_text, new_text = _text(value), _text(old), _text(new)
    n_found = text.count(old_text)
    if len(text) + n_found * (len(new_text) - len(old_text)) > MAX_TEXT:
        raise TemplateError(f"the text is longer than {MAX_TEXT} characters")
    return text.replace(old_text, new_text)


def _joined(value: object, separator: object = "") -> str:
    items = value.plain() if isinstance(value, _Values) else value
    if isinstance(items, Undefined):
        return _text(items)
    if isinstance(items, str | Mapping) or not isinstance(items, Sequence):
        raise TemplateError(f"join takes a list, and this is {cut(_text(value), _SHOWN)!r}")
    return _capped(_text(separator).join(_text(item) for item in items))


def _whole_number(value: object) -> int:
    text = _text(value)
    if not re.fullmatch(rf"[+-]?[0-9]{{1,{MAX_DIGITS}}}", text):
        raise TemplateError(f"{cut(text, _SHOWN)!r} is no whole number (filter int)")
    return int(text)


_FILTERS: dict[str, Callable[..., object]] = {
    "default": _default,
    "lower": lambda value: _text(value).lower(),
    "upper": lambda value: _text(value).upper(),
    "trim": lambda value: _text(value).strip(),
    "replace": _replace,
    "host": lambda value: strip_port(_text(value)),
    "join": _joined,
    "duration": lambda value: print_duration(timedelta(seconds=_whole_number(value))),
    "int": _whole_number,
    # Not for playbooks: put round the parts of ~, which would else write True and None.
    "_text": _text,
    # Put round what stands in a query behind =~ or !~: a label's value is data there too.
    "_re2_literal": _re2_literal,
}


def _environment(finalize: Callable[[object], str]) -> _Environment:
    environment = _Environment(
        undefined=StrictUndefined,
        finalize=finalize,
        keep_trailing_newline=True,
        optimized=False,  # nothing is worked out before a value is there to blame
        cache_size=0,
        autoescape=False,  # the output is text, never HTML
    )
    environment.globals.clear()
    environment.tests.clear()
    environment.filters.clear()
    environment.filters.update(_FILTERS)
    return environment


_ENVIRONMENTS: Mapping[TemplateKind, _Environment] = {
    TemplateKind.TEXT: _environment(_text),
    TemplateKind.QUERY: _environment(lambda value: promql_quoted(_text(value))),
}
_TRUTH = _environment(_truth_text)


@dataclass(frozen=True, slots=True)
class _Compiled:
    template: Template
    names: frozenset[str]

    def run(self, scope: _Scope) -> str:
        """Render.

        Raises:
            MissingValueError: a value is absent.
            TemplateError: a value does not fit, or the output is too long.
        """
        chunks: list[str] = []
        n_chars = 0
        try:
            for chunk in self.template.root_render_func(self.template.new_context(scope.names())):
                n_chars += len(chunk)
                if n_chars > MAX_TEXT:
                    raise TemplateError(f"the text is longer than {MAX_TEXT} characters")
                chunks.append(chunk)
        except TypeError as error:
            # Only vars and states reach here: their types are not known at load.
            raise TemplateError(f"values of different kinds are compared ({error})") from error
        return "".join(chunks)


def _is_template(text: str) -> bool:
    return "{{" in text or "{%" in text or "{#" in text


@lru_cache(maxsize=8192)
def _template(text: str, kind: TemplateKind) -> _Compiled:
    """Read, check and compile one text."""
    environment = _ENVIRONMENTS[kind]
    for start, word in (("{%", "blocks ({% %})"), ("{#", "comments ({# #})")):
        if start in text:
            raise TemplateError(f"{word} are not allowed; templates only put values in: {{{{ labels.NAME }}}}")
    tree = _parsed(text, lambda: environment.parse(text))
    names: set[str] = set()
    context = _QueryText() if kind is TemplateKind.QUERY else None
    for output in tree.body:
        if not isinstance(output, nodes.Output):
            raise TemplateError("only {{ values }} are allowed")
        for place, node in enumerate(output.nodes):
            if isinstance(node, nodes.TemplateData):
                if context:
                    context.read(node.data)
                continue
            check = _Check()
            of_type = check.type_of(node)
            names |= check.names
            if context:
                context.value(of_type)
                if context.is_in_regex and not _is_of_site(check.names):
                    literal = nodes.Filter(node, "_re2_literal", [], [], None, None, lineno=node.lineno)
                    literal.set_environment(environment)
                    output.nodes[place] = literal
    return _Compiled(environment.from_string(tree), frozenset(names))


def _is_of_site(names: Collection[str]) -> bool:
    """Whether a value is made of the settings' own alone: those may mean a regular expression."""
    return bool(names) and all(name.partition(".")[0] == "vars" for name in names)


@lru_cache(maxsize=8192)
def _expression(text: str) -> _Compiled:
    """Read, check and compile one ``if``."""
    if not text.strip():
        raise TemplateError('`if` is empty; write labels.NAME != ""')
    if "{{" in text or "{%" in text:
        raise TemplateError('`if` is an expression already; write it without {{ }}: labels.NAME != ""')

    def parse() -> nodes.Expr:
        parser = Parser(_TRUTH, text, state="variable")
        expression = parser.parse_expression()
        if not parser.stream.eos:
            found = str(parser.stream.current.value)
            hint = "; to compare write == or !=, or x in [...]" if found == "=" else "; join conditions with and, or"
            raise TemplateError(f"`if` goes on after its end, at {cut(found, _SHOWN)!r}{hint}")
        return expression

    expression = _parsed(text, parse)
    check = _Check()
    if check.type_of(expression) not in (_Type.TRUTH, _Type.ANY):
        raise TemplateError(
            f'`if` must be true or false; write what to compare with: {cut(text.strip(), _SHOWN)} != ""'
        )
    tree = nodes.Template([nodes.Output([expression], lineno=1)], lineno=1)
    tree.set_environment(_TRUTH)
    return _Compiled(_TRUTH.from_string(tree), frozenset(check.names))


T = TypeVar("T")


def _parsed(text: str, parse: Callable[[], T]) -> T:
    """What ``parse`` gives, with every way in which reading can fail as a TemplateError."""
    if len(text) > MAX_TEXT:
        raise TemplateError(f"a template may have {MAX_TEXT} characters, and this has {len(text)}")
    try:
        return parse()
    except TemplateSyntaxError as error:
        is_go = re.search(r"\$\w|(?:^|[{(\s])\.[A-Z]", text)
        hint = "; no Go templates here: write labels.NAME, without $ or a leading dot" if is_go else ""
        raise TemplateError(f"template cannot be read: {error.message}{hint}") from error
    except RecursionError as error:
        raise TemplateError(f"nested deeper than {MAX_DEPTH}; make it simpler") from error
    except ValueError as error:  # a number of thousands of digits
        raise TemplateError(f"template cannot be read: {error}") from error


class _QueryText:
    """Follows PromQL's quotes through a query's fixed text: a label's value belongs inside them, else it is code."""

    def __init__(self) -> None:
        self._quote = ""
        self._is_escaped = self._is_comment = False
        self._before = ""
        self.is_in_regex = False
        """Where it is now, the text is a regular expression."""

    def read(self, text: str) -> None:
        for char in text:
            if self._is_comment:
                self._is_comment = char != "\n"
            elif self._is_escaped:
                self._is_escaped = False
            elif self._quote:
                if char == "\n" and self._quote != "`":
                    raise TemplateError("in a query, a text in quotes must end on the line on which it begins")
                self._is_escaped = char == "\\" and self._quote != "`"
                if char == self._quote:
                    self._quote = self._before = ""
                    self.is_in_regex = False
            elif char in "\"'`":
                self._quote = char
                self.is_in_regex = self._before in ("=~", "!~")
            elif char == "#":
                self._is_comment = True
            elif not char.isspace():
                self._before = (self._before + char)[-2:]

    def value(self, of_type: _Type) -> None:
        if self._is_comment:
            raise TemplateError("in a query, {{ }} cannot stand in a comment")
        if self._is_escaped:
            raise TemplateError("in a query, no backslash may stand right before {{ }}")
        if self._quote == "`":
            raise TemplateError("in a query, put {{ }} inside \" \" or ' ', not ` `: nothing can be escaped there")
        if not self._quote and of_type is not _Type.NUMBER:
            raise TemplateError('in a query, put quotes round {{ }}: {name="{{ labels.name }}"}; a number needs | int')


def _texts(value: JsonValue) -> Iterator[str]:
    """Every text of a tree that is to be rendered."""
    match value:
        case str():
            yield value
        case bool() | int():
            return
        case Mapping():
            for key, item in value.items():
                if _is_template(key):
                    raise TemplateError(f"{key}: a key cannot hold a template, only a value can")
                yield from _texts(item)
        case _:
            for item in value:
                yield from _texts(item)


def _render_tree(value: JsonValue, kind: TemplateKind, scope: _Scope) -> JsonValue:
    match value:
        case str():
            return _template(value, kind).run(scope) if _is_template(value) else value
        case bool() | int():
            return value
        case Mapping():
            return {key: _render_tree(item, kind, scope) for key, item in value.items()}
        case _:
            return [_render_tree(item, kind, scope) for item in value]
