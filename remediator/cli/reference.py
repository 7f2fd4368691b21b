"""The reference pages, from the code: ``python -m remediator.cli.reference docs/reference`` (``make docs``).

Takes → gives: actions, commands, settings, metrics, event types → Markdown; the formats → JSON Schema. A test compares
the files with it, so that they cannot grow old.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import click
from prometheus_client.metrics import MetricWrapperBase
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from remediator.actions import REGISTRY
from remediator.cli import COMMANDS, EPILOG, cli
from remediator.cli.actions import describe_action, needed
from remediator.core.event import MEANING
from remediator.core.units import print_duration
from remediator.exporter.collect import FAMILIES
from remediator.loading.schema import SchemaKind, json_schema
from remediator.settings import PREFIX, Settings
from remediator.telemetry import Metrics

HEAD = "<!-- Written by `make docs` from the code: change it there. -->\n\n"

HELP_WIDTH = 80

_SUFFIXES = {"counter": "_total", "info": "_info"}
"""What the text format adds to a metric's name."""


def actions_page() -> str:
    """Every action with its params."""
    described = [describe_action(action) for action in REGISTRY.values()]
    lines = [
        "# Actions",
        "",
        "What a playbook's steps can do. `remediator actions NAME` shows the same.",
        "",
        "*Disruptive* interrupts work: it starts cooldowns and counts in limits. *Idempotent*: doing it twice equals",
        "doing it once, so that an attempt without an answer may be tried again. A *late* param may hold values that",
        "are known only at the step's turn (`run.outcome`, `steps.NAME.outcome`). *Undo*: when what it did is taken",
        "back, unless the playbook says otherwise; what has none cannot be taken back.",
        "",
    ]
    for each in described:
        facts = [
            "disruptive" if each["disruptive"] else "not disruptive",
            "idempotent" if each["idempotent"] else "not idempotent",
            *(["message"] if each["message"] else []),
            f"timeout {each['timeout']}",
            *([f"undo: {each['undo']}"] if each["undo"] else []),
        ]
        lines += [f"## {each['name']}", "", each["summary"], "", f"*{' · '.join(facts)}*", ""]
        lines += [line for note in each["notes"] for line in (note, "")]
        if each["params"]:
            rows = [
                (
                    f"`{param['name']}`" + (" (late)" if param["late"] else ""),
                    param["type"],
                    needed(param),
                    param["description"],
                )
                for param in each["params"]
            ]
            lines += [*_table(("param", "type", "default", "meaning"), rows), ""]
    return "\n".join(lines)


def cli_page() -> str:
    """Every command's help."""
    lines = ["# Commands", "", "```text", EPILOG.removeprefix("\b\n"), "```", ""]
    context = click.Context(cli, info_name="remediator", terminal_width=HELP_WIDTH, **cli.context_settings)
    lines += ["```text", _help(cli, context), "```", ""]
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        lines += _command(command, name, context, "##")
    return "\n".join(lines)


def _command(command: click.Command, name: str, parent: click.Context, heading: str) -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=parent, **command.context_settings)
    yield from (f"{heading} {context.command_path}", "", "```text", _help(command, context), "```", "")
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            inner = command.get_command(context, child)
            assert inner is not None
            yield from _command(inner, child, context, heading + "#")


def _help(command: click.Command, context: click.Context) -> str:
    """The help without the exit codes, which the page has once."""
    formatter = context.make_formatter()
    command.format_usage(context, formatter)
    command.format_help_text(context, formatter)
    command.format_options(context, formatter)
    return formatter.getvalue().rstrip()


def settings_page() -> str:
    """Every setting, with its variable."""
    lines = [
        "# Settings",
        "",
        "One TOML file (`remediator.toml`, or `--config`), and environment variables over it. Unknown keys and unknown",
        f"`{PREFIX}` variables are errors. In a variable a list is written with commas; a table of the file is reached",
        f"with two underscores (`{PREFIX}LABEL_MAP__HOST=hostname,instance`); `NAME` stands for a name of your own.",
        "",
    ]
    rows = [(f"`{path}`", _variable(path), default, text) for path, default, text in _fields(Settings, "")]
    return "\n".join([*lines, *_table(("setting", "variable", "default", "meaning"), rows), ""])


def _variable(path: str) -> str:
    """The variable that sets it; what stands in a list of tables has none of its own."""
    return "" if "[]" in path else f"`{PREFIX}{path.replace('.', '__').upper()}`"


def _fields(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, str, str]]:
    """Path, default and description of every field; tables within are walked, tables by name as ``NAME``."""
    for name, field in model.model_fields.items():
        path = prefix + name
        table, suffix = _table_of(field.annotation)
        if table is None:
            yield path, _default(field), field.description or ""
        elif suffix == "[]":
            yield path, "none", f"{field.description} A list of tables (in the variable: JSON), each with:"
            yield from _fields(table, f"{path}[].")
        else:
            yield from _fields(table, f"{path}{suffix}.")


def _table_of(annotation: Any) -> tuple[type[BaseModel] | None, str]:
    """The model behind an annotation: itself (""), by name (".NAME") or in a list ("[]"); (None, "") for a value."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, ""
    if get_origin(annotation) is Annotated:
        return _table_of(get_args(annotation)[0])
    for arg in get_args(annotation):
        if isinstance(arg, type) and issubclass(arg, BaseModel):
            return arg, ".NAME" if get_origin(annotation) is dict else "[]"
    return None, ""


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    match value:
        case None | "" | () | {}:
            return "none"
        case bool():
            return f"`{str(value).lower()}`"
        case timedelta():
            return f"`{print_duration(value)}`"
        case tuple():
            return "`" + ", ".join(map(str, value)) + "`"
        case _:
            return f"`{value}`"


def metrics_page() -> str:
    """Every metric."""
    rows = [
        (f"`{family.name}{_SUFFIXES.get(family.type, '')}`", family.type, labels or "none", family.documentation)
        for family, labels in _metrics()
    ]
    lines = [
        "# Metrics",
        "",
        "What `/metrics` shows. Labels are closed sets, or names that the site itself gave; never alert labels.",
        "Beside these there is `process_*`, as most programs have it: memory, CPU time, open files, time of the start.",
        "",
    ]
    return "\n".join([*lines, *_table(("metric", "type", "labels", "meaning"), sorted(rows)), ""])


def _metrics() -> Iterator[tuple[Any, str]]:
    """Every family and the names of its labels, which prometheus_client shows nowhere but on its private side."""
    for metric in Metrics().registry._collector_to_names:
        if not isinstance(metric, MetricWrapperBase):
            continue  # the collector of the process
        labels = ", ".join(f"`{name}`" for name in metric._labelnames)
        for family in metric.describe():
            yield family, labels


def exporter_metrics_page() -> str:
    """Every metric of the GPU exporter."""
    lines = [
        "# Metrics of the exporter",
        "",
        "What `remediator exporter` shows on `/metrics`. A value that the driver does not give is absent: never 0,",
        "never an old one. `gpu`, `UUID`, `GPU_I_ID`, `GPU_I_PROFILE` are labels as the DCGM exporter writes them, the",
        'last two "" for a whole GPU; `model_name` is its `modelName`. `exported_*` is the pod that a process belongs',
        "to, `container_name` its Docker container. Beside these there is `process_*`, of the exporter itself.",
        "",
    ]
    rows = [
        (f"`{family.name}`", family.kind, ", ".join(f"`{label}`" for label in family.labels), family.meaning)
        for family in FAMILIES.values()
    ]
    return "\n".join([*lines, *_table(("metric", "type", "labels", "meaning"), rows), ""])


def events_page() -> str:
    """Every event type."""
    lines = [
        "# Events of the audit log",
        "",
        "`remediator audit list` shows them. Each has a sequence number, a time (UTC), an actor (`engine`, or the name",
        "of a person or token), and where they apply: run, delivery, episode, subject, playbook, target, outcome,",
        "fingerprint.",
        "",
    ]
    rows = [(f"`{kind}`", text) for kind, text in MEANING.items()]
    return "\n".join([*lines, *_table(("event", "meaning"), rows), ""])


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    lines = [head, tuple("---" for _ in head), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]


PAGES: Mapping[str, Callable[[], str]] = {
    "actions.md": actions_page,
    "cli.md": cli_page,
    "settings.md": settings_page,
    "metrics.md": metrics_page,
    "exporter-metrics.md": exporter_metrics_page,
    "events.md": events_page,
}


def schema_file(kind: SchemaKind) -> str:
    """The JSON Schema of one kind of file, for an editor to point at."""
    head, rest = HEAD.strip("<!-> \n"), json_schema(kind, REGISTRY)
    return json.dumps({"$comment": head, **rest}, indent=2, ensure_ascii=False) + "\n"


SCHEMAS: Mapping[str, Callable[[], str]] = {f"schema/{kind}.json": partial(schema_file, kind) for kind in SchemaKind}


def main(folder: Path) -> None:
    """Write every page and every schema."""
    (folder / "schema").mkdir(parents=True, exist_ok=True)
    for name, make in PAGES.items():
        (folder / name).write_text(HEAD + make(), "utf-8")
    for name, make in SCHEMAS.items():
        (folder / name).write_text(make(), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
