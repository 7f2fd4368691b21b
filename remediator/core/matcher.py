"""One Alertmanager matcher: ``label op value``.

Takes a line of a playbook or policy, gives a ``Matcher``; takes labels, says whether it holds.

The grammar is that of Alertmanager's UTF-8 parser (0.27 and later), so that a line can be copied from its routes.
Where its own two parsers, or two of its versions, read one line differently, the line is refused here with what to
write instead: ``==``, a comma at the end, a value with spaces or in single quotes.

Source: prometheus/alertmanager matcher/parse and pkg/labels, 0.25 to 0.35.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

import re2

from remediator.core.alert import Labels
from remediator.core.units import cut
from remediator.errors import MatcherSyntaxError


class MatchOp(StrEnum):
    """Alertmanager's four operators."""

    EQUAL = "="
    NOT_EQUAL = "!="
    REGEX = "=~"
    NOT_REGEX = "!~"


class Shape(NamedTuple):
    """What a value must look like so that a matcher can hold, as far as that can be said without a regex.

    Attributes:
        values: it is one of these; None = that is not known.
        prefix: it begins so; "" = that is not known.
    """

    values: frozenset[str] | None = None
    prefix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matcher:
    """One matcher. Regexes are RE2 and fully anchored, ``.`` is no newline, as in Alertmanager; an absent label is "".

    Attributes:
        label: exact name, case kept, never "".
        value: unquoted.
        shape: of the values for which it can hold.

    Raises:
        MatcherSyntaxError: no label, or not a regex.
    """

    label: str
    op: MatchOp
    value: str
    shape: Shape = field(init=False, repr=False, compare=False)
    _holds: Callable[[str], bool] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.label:
            raise MatcherSyntaxError('a matcher needs a label name: write label = "value"')
        shape, holds = _read(self.op, self.value)
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "_holds", holds)

    def matches(self, labels: Labels) -> bool:
        """Whether it holds for these labels."""
        return self._holds(labels.get(self.label, ""))

    def __str__(self) -> str:
        """Canonical text, as Alertmanager prints it: ``err_code=~"13|31"``. ``parse_matcher`` reads it back."""
        label = _quote(self.label) if _RESERVED.search(self.label) or not self.label.isprintable() else self.label
        return f"{label}{self.op}{_quote(self.value)}"


# Many playbooks share a few regexes, and then one compiled one; more distinct ones than this are held twice at worst.
@lru_cache(maxsize=4096)
def _read(op: MatchOp, value: str) -> tuple[Shape, Callable[[str], bool]]:
    """What can be said of the values that fit, and whether one fits."""
    match op:
        case MatchOp.EQUAL:
            return Shape(values=frozenset((value,))), value.__eq__
        case MatchOp.NOT_EQUAL:
            return Shape(), value.__ne__
        case MatchOp.REGEX:
            return _read_regex(value)
        case MatchOp.NOT_REGEX:
            _, holds = _read_regex(value)
            return Shape(), lambda text: not holds(text)


# Without these characters a regex is what it says; `|` parts whole alternatives. A letter before `*`, `?` or `{` may be
# left out, so it is no part of the beginning.
_PLAIN = re.compile(r"[^\\.+*?()|\[\]{}^$]*")
_PREFIX = re.compile(r"(?:[^\\.+*?()|\[\]{}^$](?![*?{]))*")
# Flags and an empty quotation are nothing: a `*` behind one means what stands before it.
_NOTHING = re.compile(r"\(\?|\\Q")


def _read_regex(pattern: str) -> tuple[Shape, Callable[[str], bool]]:
    # The bare pattern is compiled, not ^(?:…)$ around it: the reason then speaks of what was written, and `a)|(b`,
    # which Alertmanager's wrapping would turn into something unanchored, is refused.
    options = re2.Options()
    options.log_errors = False
    try:
        fullmatch = re2.compile(pattern, options).fullmatch
    except re2.error as error:
        reason = error.args[0].decode("utf-8", "replace") if error.args else "it cannot be compiled"
        raise MatcherSyntaxError(
            f'"{cut(pattern, 80)}" is not a regular expression (RE2, as in Alertmanager): {cut(reason, 120)}'
        ) from error
    alternatives = pattern.split("|")
    if all(map(_PLAIN.fullmatch, alternatives)):  # most regexes of matchers: a look-up costs a twentieth of RE2
        values = frozenset(alternatives)
        return Shape(values=values), values.__contains__
    found = _PREFIX.match(pattern)
    prefix = found[0] if found and len(alternatives) == 1 and not _NOTHING.search(pattern) else ""
    return Shape(prefix=prefix), lambda text: text.startswith(prefix) and fullmatch(text) is not None


# Go's unicode.IsSpace; Python's isspace knows four more.
_SPACES = "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
_RESERVED = re.compile(rf"[{_SPACES}{{}}!=~,\\\"'`]")
_TOKEN = re.compile(
    rf"""[{_SPACES}]*(?:
        (?P<quoted> "(?:[^"\\]|\\.)*" )
      | (?P<plain> [^{_SPACES}{{}}!=~,\\"'`]+ )
      | (?P<operator> =~ | != | !~ | = )
    )""",
    re.VERBOSE | re.DOTALL,
)


def parse_matcher(text: str) -> Matcher:
    """Read one matcher.

    Args:
        text: ``label op value``; spaces around each are free. Label and value stand bare, or in double quotes with Go's
            escapes where they hold a space or one of ``{}!=~,\\"'```. No braces, no second matcher.

    Raises:
        MatcherSyntaxError: anything else; says what to write.
    """
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise MatcherSyntaxError("not a matcher: half of a surrogate pair stands in it, which is no text")
    position = 0
    tokens: list[str] = []
    for kinds in (("quoted", "plain"), ("operator",), ("quoted", "plain")):
        token = _TOKEN.match(text, position)
        kind = token.lastgroup if token else None
        if token is None or kind is None or kind not in kinds:
            raise _problem(text, _what_is_wrong(text, position, len(tokens)))
        tokens.append(_unquote(text, token[kind]) if kind == "quoted" else token[kind])
        position = token.end()
    if text[position:].strip(_SPACES):
        raise _problem(text, _what_is_wrong(text, position, len(tokens)))
    label, op, value = tokens
    return Matcher(label=label, op=MatchOp(op), value=value)


def _problem(text: str, what: str) -> MatcherSyntaxError:
    return MatcherSyntaxError(f"not a matcher: {cut(text, 80)}: {what}")


def _what_is_wrong(text: str, position: int, n_tokens: int) -> str:
    """Why the text cannot go on at ``position``, where ``n_tokens`` of label, operator and value are read."""
    rest = text[position:].lstrip(_SPACES)
    if text.lstrip(_SPACES).startswith("{") or rest.startswith("}"):
        return "write it without braces"
    if rest.startswith('"') and not _TOKEN.match(rest):
        return "a double quote is not closed"
    if rest.startswith(("'", "`")):
        return 'quote with double quotes: label = "value"'
    if rest.startswith("\\"):
        return 'put what holds a backslash in double quotes and double it: label =~ "\\\\d+"'
    match n_tokens:
        case 0:
            return 'it starts without a label name: write label = "value"'
        case 1 if not rest:
            return 'it has no operator: write label = "value", or label != "" where the label must be present'
        case 1 if rest.startswith("~"):
            return "the operators are = != =~ !~"
        case 1:
            return "after the label name comes one of = != =~ !~"
        case 2 if not rest:
            return 'it has no value: write "" for an absent or empty label'
        case 2 if rest.startswith(("=", "~")):
            # 0.25 reads `err_code == 79` as the value "= 79", which no alert ever has.
            return "the operators are = != =~ !~, each once: for equality write a single ="
        case 2:
            return "put a value that holds spaces or one of {}!=~,\\\"'` in double quotes"
        case _ if rest.startswith(","):
            return "one matcher a line, without a comma; a second one is an entry of its own"
        case _:
            return "more text follows the value: put a value with spaces or one of {}!=~,\\\"'` in double quotes"


_SIMPLE_ESCAPES = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\", '"': '"',
}  # fmt: skip
_ESCAPE = re.compile(
    r"\\(?:x(?P<byte>[0-9A-Fa-f]{2})|(?P<octal>[0-7]{3})|u(?P<u4>[0-9A-Fa-f]{4})|U(?P<u8>[0-9A-Fa-f]{8})|(?P<simple>.))",
    re.DOTALL,
)


def _unquote(text: str, quoted: str) -> str:
    """What Go's strconv.Unquote makes of a double-quoted token: ``\\x`` and octal escapes are bytes of UTF-8."""
    if "\n" in quoted:
        raise _problem(text, "a line break stands inside double quotes: write \\n")

    def unescape(escape: re.Match[str]) -> bytes:
        # A byte above 255, a code point that does not exist and half a surrogate pair raise by themselves.
        digits = escape[escape.lastgroup or 0]
        match escape.lastgroup:
            case "byte":
                return bytes([int(digits, 16)])
            case "octal":
                return bytes([int(digits, 8)])
            case "u4" | "u8":
                return chr(int(digits, 16)).encode()
            case _ if digits in _SIMPLE_ESCAPES:
                return _SIMPLE_ESCAPES[digits].encode()
            case _:
                raise ValueError(digits)

    body = quoted[1:-1]
    pieces: list[bytes] = []
    position = 0
    try:
        for escape in _ESCAPE.finditer(body):
            pieces += (body[position : escape.start()].encode(), unescape(escape))
            position = escape.end()
        pieces.append(body[position:].encode())
        return b"".join(pieces).decode()
    except (ValueError, OverflowError):
        raise _problem(text, 'an escape in double quotes that is none: double each backslash, as in "\\\\d+"') from None


def _quote(value: str) -> str:
    return '"' + "".join(_quoted(character) for character in value) + '"'


def _quoted(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character == "\n":
        return "\\n"
    if character.isprintable():
        return character
    return f"\\u{ord(character):04x}" if ord(character) < 0x10000 else f"\\U{ord(character):08x}"
