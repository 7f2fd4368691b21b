"""One document → the format's model of it, and every problem in words for people.

Takes a ``Document`` and a pydantic model, gives the model's instance, and adds each problem with its place. Must never:
show pydantic's own words where ours say what to write.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from remediator.core.units import cut
from remediator.errors import MatcherSyntaxError, PlaybookError, PlaybookSchemaError, TemplateError
from remediator.loading.document import Document, Node, Path

_KINDS: Mapping[str, type[PlaybookError]] = {
    "matcher": MatcherSyntaxError,
    "template": TemplateError,
}

M = TypeVar("M", bound=BaseModel)


_MOST_SHOWN = 500
"""Characters of a message; it may quote what stands in the file."""


class Problems:
    """What is wrong with one document, each with its place."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._told: set[str] = set()
        self.found: list[PlaybookError] = []

    def add(self, path: Path, message: str, kind: type[PlaybookError] = PlaybookSchemaError) -> None:
        """Note a problem with the value at ``path``."""
        node = self._document.root.at(path)
        problem = kind(cut(message, _MOST_SHOWN), file=self._document.file, line=node.line, column=node.column)
        # A step that several cases inherit is looked at once for each.
        if problem.located() not in self._told:
            self._told.add(problem.located())
            self.found.append(problem)


def read_keys(document: Document, model: type[M], problems: Problems, *, has_templates: bool = True) -> M | None:
    """The document as a model.

    Args:
        has_templates: whether ``{{`` means anything in it.

    Returns:
        With problems, whatever is left of it without them: to look for more, not to act on. None when nothing is.
    """
    root = document.root
    _refuse_nulls(root, problems)
    for look in range(_MOST_LOOKS):
        try:
            keys = model.model_validate(root.plain())
        except ValidationError as error:
            details = _without_echoes(error.errors(include_url=False), model)
            if look == 0:  # later ones come of what was taken out
                for detail in details:
                    _add_detail(detail, model, document, problems)
            if not root.without(detail["loc"] for detail in details if not _stand_in(root, detail)):
                return None
        else:
            if has_templates:
                _refuse_silent_mistakes(document, problems)
            return keys
    return None


def read_part(document: Document, path: Path, model: type[M], problems: Problems) -> M | None:
    """What stands at ``path`` as a model; None, with every problem, where it is none."""
    try:
        return model.model_validate(document.root.at(path).plain())
    except ValidationError as error:
        for detail in _without_echoes(error.errors(include_url=False), model):
            placed: ErrorDetails = {**detail, "loc": (*path, *detail["loc"])}
            _add_detail(placed, model, document, problems)
        return None


_MOST_LOOKS = 50
"""Taking bad parts out can show others around them, each time one level higher; the format has about eight."""

_STAND_INS: Mapping[str, Node] = {
    "playbook": Node("nameless", 1, 1),
    "policy": Node("nameless", 1, 1),
    "match": Node([Node("alertname = nameless", 1, 1)], 1, 1),
}


def _stand_in(root: Node, detail: ErrorDetails) -> bool:
    """Put something where a document lacks what it must have, so that the rest of it can be looked at."""
    name = detail["loc"][0] if len(detail["loc"]) == 1 else ""
    if detail["type"] != "missing" or name not in _STAND_INS or not isinstance(root.value, dict):
        return False
    root.value[str(name)] = _STAND_INS[str(name)]
    return True


def _refuse_nulls(root: Node, problems: Problems) -> None:
    """A key without a value means nothing: told, and taken out so that nothing else complains of it."""
    empty = [
        path
        for path, node in root.walk()
        # A matcher in braces is a map to YAML whose value is missing: that has a message of its own.
        if node.value is None and not {"match", "protect"} & {*path[:-1]}
    ]
    for path in empty:
        name = f"`{path[-1]}`" if isinstance(path[-1], str) else "this entry"
        problems.add(path, f"{name} has no value; write one, or remove it")
    root.without(empty)


def _without_echoes(details: list[ErrorDetails], model: type[BaseModel]) -> list[ErrorDetails]:
    """Without ``action is missing`` where ``acton`` stands beside it."""
    meant = {
        (*path[:-1], near)
        for detail in details
        if detail["type"] == "extra_forbidden" and (path := detail["loc"])
        for near in difflib.get_close_matches(str(path[-1]), fields(_model_at(model, path[:-1])), n=1)
    }
    return [detail for detail in details if detail["type"] != "missing" or detail["loc"] not in meant]


def _add_detail(detail: ErrorDetails, model: type[BaseModel], document: Document, problems: Problems) -> None:
    path: Path = detail["loc"]
    kind = detail["type"]
    name = f"`{next((part for part in reversed(path) if isinstance(part, str)), '')}`"
    if isinstance(path[-1], int):
        name = f"entry {path[-1] + 1} of {name}"
    match kind:
        case "missing":
            message = f"{name} is missing"
        case "extra_forbidden":
            message = f"there is no key {name} here{suggest(str(path[-1]), fields(_model_at(model, path[:-1])))}"
        case "matcher":
            message = detail["msg"] + _cut_by_comment(document, path)
        case "template" | "value":
            message = detail["msg"] if detail["msg"].startswith(("`if`", "a ")) else f"{name}: {detail['msg']}"
        case "duration":
            message = f"{name}: {detail['msg']}"
        case _:
            message = in_words(detail, name)
    problems.add(path, message, _KINDS.get(kind, PlaybookSchemaError))


def in_words(detail: ErrorDetails, name: str) -> str:
    """What is wrong with a value, and what to write.

    Args:
        detail: pydantic's.
        name: of the value, as the message is to call it.
    """
    kind = detail["type"]
    context = detail.get("ctx", {})
    match kind:
        case "enum" | "literal_error":
            return f"{name} must be {context['expected']}{suggest(str(detail['input']), _quoted(context), '')}"
        case "greater_than_equal" | "less_than_equal":
            word = "at least" if kind.startswith("greater") else "at most"
            return f"{name} must be {word} {context['ge' if kind.startswith('greater') else 'le']}"
        case "string_too_short" | "too_short":
            return f"{name} must not be empty"
        case "string_type":
            return f"{name} must be text; put quotes round it"
        case "bool_type":
            word = str(detail["input"])
            is_word = word.lower() in ("yes", "no", "on", "off")
            return f"{name} must be true or false" + (f"; {word} is text in YAML 1.2" if is_word else "")
        case "int_type" | "float_type" | "int_from_float" | "finite_number":
            return f"{name} must be a{' whole' if kind.startswith('int') else ''} number"
        case "list_type" | "tuple_type":
            return f"{name} must be a list"
        case "dict_type" | "model_type" | "model_attributes_type":
            return f"{name} must be a map of keys and values"
        case _:
            return f"{name}: {detail['msg'].removeprefix('Value error, ')}"


def _quoted(context: Mapping[str, Any]) -> list[str]:
    return [word.strip("' ") for word in str(context["expected"]).replace(" or ", ",").split(",")]


def _cut_by_comment(document: Document, path: Path) -> str:
    node = document.root.at(path)
    rest = document.rest_of_line(node)
    if node.is_plain and rest.lstrip().startswith("#"):
        return f"; YAML takes ` #` as the beginning of a comment: put the matcher in single quotes: '{node.text}{rest}'"
    return ""


def _refuse_silent_mistakes(document: Document, problems: Problems) -> None:
    """What fits the format and does not mean what its author meant."""
    for path, node in document.root.walk():
        if not isinstance(node.value, str):
            continue
        if {"match", "protect"} & {*path[:-1]} and node.is_plain:
            # `msg = Xid #79` is `msg = Xid` to YAML, and a matcher still. A comment has a space after its sign.
            rest = document.rest_of_line(node)
            if re.match(r"\s+#[^\s#]", rest):
                quoted = f"'{node.text}{rest}'"
                message = (
                    f"YAML takes ` #` as the beginning of a comment: write {quoted}, or # and a space for a comment"
                )
                problems.add(path, message, MatcherSyntaxError)
        if "{{" in node.text and not {*path} & _WITH_TEMPLATES:
            problems.add(
                path, "a template is read in `params` and `query` only; here it would stay as it is", TemplateError
            )


_WITH_TEMPLATES = {"params", "query", "if", "description", "to"}
"""Keys under which ``{{`` is read, has an error of its own, or is only prose."""


def suggest(word: str, known: Iterable[str], otherwise: str = "; there are: ") -> str:
    """``; did you mean …?``, or what there is to choose from, or "" where there is nothing."""
    known = sorted(known)
    close = difflib.get_close_matches(word, known, n=1)
    if close:
        return f"; did you mean `{close[0]}`?"
    return f"{otherwise}{', '.join(known)}" if otherwise and known else ""


def fields(model: type[BaseModel]) -> list[str]:
    """A model's keys as files write them."""
    return [info.alias or name for name, info in model.model_fields.items()]


def _model_at(model: type[BaseModel], path: Path) -> type[BaseModel]:
    for part in path:
        for name, info in model.model_fields.items():
            if part == (info.alias or name):
                model = _first_model(info.annotation) or model
    return model


def _first_model(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _first_model(part))), None)
