"""Prometheus rule files → what alerts there can be, and with which labels.

Takes files, folders and patterns, gives ``Rules``: every alerting rule with its place, and what is wrong with the
files. Rule files of Prometheus and ``PrometheusRule`` objects of its operator are read alike. Must never: raise for
what stands in a file, or take for sure what a rule leaves open (a label with a template, labels that others add).

Unlike playbooks these are files of Prometheus, so YAML's anchors, aliases and merge keys are followed.
"""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from remediator.core.units import cut
from remediator.errors import PlaybookError, PlaybookSchemaError, PlaybookSyntaxError
from remediator.loading.promql import UNKNOWN, SeriesLabels, Values, labels_of

MAX_BYTES = 8 * 1024 * 1024
"""Of one file: Kubernetes takes objects of at most 1.5 MiB; the largest public rule sets have about 1 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRule:
    """One alerting rule.

    Attributes:
        name: of its alerts.
        labels: what is known of the labels of its alerts, ``alertname`` among them; others may add more on the way.
        file, line: where it stands; the line is 1-based.
    """

    name: str
    labels: SeriesLabels
    file: str
    line: int

    @property
    def place(self) -> str:
        """``file:line``."""
        return f"{self.file}:{self.line}"


@dataclass(slots=True)
class Rules:
    """What rule files say.

    Attributes:
        alerts: every alerting rule, in order.
        problems: what is wrong with the files.
        not_understood: expressions that could not be read; their labels are unknown.
        files: what was read.
        sources: file → its text.
    """

    alerts: list[AlertRule] = field(default_factory=list)
    problems: list[PlaybookError] = field(default_factory=list)
    not_understood: list[PlaybookError] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    sources: dict[str, str] = field(default_factory=dict)


def read_rules(patterns: Sequence[str]) -> Rules:
    """Read rule files.

    Args:
        patterns: files, folders (every ``*.yaml``, ``*.yml`` and ``*.rules`` in them, not below) and patterns with
            ``*``. Of folders and patterns, files that hold no rules are passed over.

    Returns:
        Everything that could be read. Raises nothing for bad content.
    """
    rules = Rules()
    seen: set[Path] = set()
    for pattern in patterns:
        paths, is_named = _paths(pattern)
        if not paths:
            rules.problems.append(_problem("no rule file fits this", pattern, 1, 1))
        for path in paths:
            if (real := path.resolve()) not in seen:
                seen.add(real)
                _read_file(path, rules, is_named=is_named)
    if patterns and not rules.alerts and not rules.problems:
        rules.problems.append(_problem("holds no alerting rule", patterns[0], 1, 1))
    return rules


def _paths(pattern: str) -> tuple[list[Path], bool]:
    """The files, and whether the one file was named itself."""
    path = Path(pattern)
    if path.is_dir():
        suffixes = (".yaml", ".yml", ".rules")
        return sorted(entry for entry in path.iterdir() if entry.suffix in suffixes and entry.is_file()), False
    if path.exists() or not glob.has_magic(pattern):
        return [path], True
    return sorted(entry for found in glob.glob(pattern) if (entry := Path(found)).is_file()), False


def _problem(message: str, file: str, line: int, column: int) -> PlaybookError:
    return PlaybookSchemaError(cut(message, 300), file=file, line=line, column=column)


def _read_file(path: Path, rules: Rules, *, is_named: bool) -> None:
    file = str(path)
    try:
        if not path.is_file():
            raise OSError(None, "is no file" if path.exists() else "there is no such file")
        data = path.read_bytes()
        if len(data) > MAX_BYTES:
            raise OSError(None, "larger than 8 MiB")
        source = data.decode("utf-8-sig")
    except OSError as error:
        rules.problems.append(_problem(f"cannot be read: {error.strerror or error}", file, 1, 1))
        return
    except UnicodeDecodeError as error:
        rules.problems.append(_problem("not UTF-8", file, data.count(b"\n", 0, error.start) + 1, 1))
        return
    try:
        documents = [node for node in YAML(typ="safe", pure=True).compose_all(source) if node is not None]
    except (YAMLError, ValueError, RecursionError) as error:
        rules.problems.append(_not_yaml(file, source, error))
        return
    reader = _Reader(file, rules)
    groups = [found for node in documents for found in reader.groups(node, is_named=is_named)]
    if not groups and not is_named:
        return
    rules.files.append(path)
    rules.sources[file] = source
    for group in groups:
        reader.group(group)


def _not_yaml(file: str, source: str, error: Exception) -> PlaybookError:
    mark = (error.problem_mark or error.context_mark) if isinstance(error, MarkedYAMLError) else None
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    if isinstance(error, RecursionError):
        what = "nested too deep"
    else:
        what = str((error.problem or error.context) if isinstance(error, MarkedYAMLError) else error)
    near = source.splitlines()[max(line - 2, 0) : line]
    hint = "; a chart's templates are no rules yet: render them first" if any("{{" in text for text in near) else ""
    return PlaybookSyntaxError(f"not YAML: {cut(what, 200)}{hint}", file=file, line=line, column=column)


class _Reader:
    """Reads the rules of one file."""

    def __init__(self, file: str, rules: Rules) -> None:
        self._file = file
        self._rules = rules

    def _tell(self, node: Node, message: str) -> None:
        mark = node.start_mark
        self._rules.problems.append(_problem(message, self._file, mark.line + 1, mark.column + 1))

    def groups(self, node: Node, *, is_named: bool) -> Iterator[Node]:
        """The groups of one document: of a rule file, a ``PrometheusRule``, or a list of such objects."""
        entries = _entries(node)
        if "groups" in entries:
            yield from self._items(entries["groups"], "groups")
        elif _text(entries.get("kind")) == "PrometheusRule":
            spec = _entries(entries["spec"]) if "spec" in entries else {}
            if "groups" in spec:
                yield from self._items(spec["groups"], "groups")
        elif _text(entries.get("kind")).endswith("List"):
            for item in self._items(entries.get("items"), "items"):
                if _text(_entries(item).get("kind")) == "PrometheusRule":
                    yield from self.groups(item, is_named=False)
        elif "kind" not in entries and is_named:
            self._tell(node, "no rule file: it has neither `groups` nor `kind: PrometheusRule`")

    def _items(self, node: Node | None, name: str) -> list[Node]:
        if isinstance(node, SequenceNode):
            return list(node.value)
        if node is not None and not _is_nothing(node):
            self._tell(node, f"`{name}` must be a list")
        return []

    def group(self, node: Node) -> None:
        """Read the rules of one group."""
        entries = _entries(node)
        if "name" not in entries:
            self._tell(node, "a group needs a `name`")
        shared = self._labels(entries.get("labels"))
        for rule in self._items(entries.get("rules"), "rules"):
            self._rule(rule, shared)

    def _rule(self, node: Node, shared: dict[str, Values]) -> None:
        entries = _entries(node)
        if ("alert" in entries) == ("record" in entries):
            self._tell(node, "a rule has either `alert` or `record`")
            return
        if not _text(entries.get("expr")).strip():
            self._tell(node, "`expr` is missing")
            return
        own = self._labels(entries.get("labels"))
        if "alert" not in entries:
            return
        name = _text(entries["alert"])
        if not name:
            self._tell(node, "`alert` needs a name")
            return
        known = {**shared, **own, "alertname": frozenset({name})}
        self._rules.alerts.append(
            AlertRule(
                name=name,
                labels=self._series(entries["expr"], name).with_(known),
                file=self._file,
                line=entries["alert"].start_mark.line + 1,
            )
        )

    def _series(self, expression: Node, name: str) -> SeriesLabels:
        try:
            return labels_of(_text(expression))
        except ValueError as error:
            mark = expression.start_mark
            message = f"the expression of {name} is not understood: {error}"
            self._rules.not_understood.append(_problem(message, self._file, mark.line + 1, mark.column + 1))
            return UNKNOWN

    def _labels(self, node: Node | None) -> dict[str, Values]:
        """What a rule's own labels are; one with a template can be anything."""
        if node is None or _is_nothing(node):
            return {}
        if not isinstance(node, MappingNode):
            self._tell(node, "`labels` must be a map")
            return {}
        labels: dict[str, Values] = {}
        for label, value in _entries(node).items():
            if not isinstance(value, ScalarNode):
                self._tell(value, f"the label {label} must be text")
            else:
                labels[label] = None if "{{" in value.value else frozenset({value.value})
        return labels


def _is_nothing(node: Node) -> bool:
    return isinstance(node, ScalarNode) and node.value in ("", "null", "~")


def _text(node: Node | None) -> str:
    return str(node.value) if isinstance(node, ScalarNode) else ""


def _entries(node: Node) -> dict[str, Node]:
    """A map's entries, with those that a merge key brings in; {} for anything else."""
    if not isinstance(node, MappingNode):
        return {}
    own = {key.value: value for key, value in node.value if isinstance(key, ScalarNode)}
    merged = own.pop("<<", None)
    entries: dict[str, Node] = {}
    for source in reversed(merged.value) if isinstance(merged, SequenceNode) else [merged]:
        if isinstance(source, MappingNode):
            entries |= {key.value: value for key, value in source.value if isinstance(key, ScalarNode)}
    return entries | own
