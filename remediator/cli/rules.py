"""``remediator rules …``: rules of Prometheus, made from a file of thresholds.

Takes → gives: ``thresholds.yaml`` → a rule file, or where an old one differs.
"""

from __future__ import annotations

import difflib
import os
from pathlib import Path

import click

from remediator.cli.terminal import json_option, print_json, printable, problem_data, say
from remediator.core.threshold import rule_groups
from remediator.errors import UnreachableError
from remediator.loading.document import cannot_be_read
from remediator.loading.rule_write import write_rules
from remediator.loading.thresholds import load_thresholds


@click.group()
def rules() -> None:
    """Make rules of Prometheus from a file of thresholds."""


@rules.command()
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="Write them there, not to stdout.")
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 and a diff where --output is not fresh.")
@json_option
@click.pass_context
def render(ctx: click.Context, file: Path, output: Path | None, check: bool, as_json: bool) -> None:
    """Make the rules of a file of thresholds: for each entry a series to draw and an alert.

    Needs no settings and no running engine.

    Exit code 0: made, or fresh; 1: problems in FILE, or not fresh; 2: wrong usage; 3: a file cannot be read or written.
    """
    if check and output is None:
        raise click.UsageError("--check compares with a file: name it with --output")
    _look(file)
    if output is not None and os.path.realpath(output) == os.path.realpath(file):
        raise click.UsageError(f"--output is {file} itself, which would be lost: name another file")
    loaded = load_thresholds(file)
    if loaded.thresholds is None:
        if as_json:
            print_json({"problems": [problem_data(problem) for problem in loaded.problems]})
        else:
            # On stderr: stdout is for rules, and mostly led into a file.
            for problem in loaded.problems:
                click.echo(printable(problem.located()), err=True)
            click.echo(f"{len(loaded.problems)} problem{'s' if len(loaded.problems) > 1 else ''}", err=True)
        ctx.exit(1)
    groups = rule_groups(loaded.thresholds)
    text = write_rules(groups, _head(file))
    difference: list[str] = []
    if output is None:
        if not as_json:
            click.echo(text, nl=False)
    elif check:
        difference = _difference(output, text)
    else:
        _write(output, text)
    if as_json:
        print_json({"problems": [], "groups": groups, **({"difference": difference} if check else {})})
    elif output is not None:
        for line in difference:
            say(line, {"+": "green", "-": "red"}.get(line[:1], ""))
        n_rules = sum(len(group["rules"]) for group in groups)
        say(f"{output} is not what {file} makes: render it again" if difference else f"ok: {n_rules} rules in {output}")
    ctx.exit(1 if difference else 0)


def _head(file: Path) -> list[str]:
    return [
        f"Made from {file.name}: change that, and make this again with",
        "",
        f"    remediator rules render {file.name} --output FILE",
        "",
        "An alert fires beyond its threshold, and ends where the value has come back by `clears`; between the two it",
        "only goes on. What the series are that it reads: gpu-recording.yml.",
    ]


def _look(file: Path) -> None:
    try:
        file.open("rb").close()
    except (OSError, ValueError) as error:
        raise UnreachableError(f"{file}: {cannot_be_read(error)}") from error


def _difference(output: Path, text: str) -> list[str]:
    """What would have to change in the file; all of it, where there is none."""
    try:
        old = output.read_text("utf-8")
    except FileNotFoundError:
        old = ""
    except UnicodeDecodeError:
        return [f"{output} is not UTF-8"]
    except OSError as error:
        raise UnreachableError(f"{output}: {cannot_be_read(error)}") from error
    lines = difflib.unified_diff(old.splitlines(), text.splitlines(), str(output), "as it would be", lineterm="")
    # A newline too many or too few is no line.
    return [*lines] or (["another end of the file"] if old != text else [])


def _write(output: Path, text: str) -> None:
    """Put the file there as a whole: a Prometheus that reloads just then reads the old one or the new one.

    A link stays one, to the new file; what is no file (/dev/stdout, /dev/null, a pipe) is written to, never replaced.
    """
    new = None
    try:
        file = output.resolve()
        if file.exists() and not file.is_file():
            output.write_text(text, "utf-8")
            return
        new = file.with_name(f".{file.name}.new")
        new.write_text(text, "utf-8")
        os.replace(new, file)
    except (OSError, RuntimeError) as error:  # RuntimeError: a link to itself
        if new is not None:
            new.unlink(missing_ok=True)
        why = error.strerror if isinstance(error, OSError) else None
        raise UnreachableError(f"{output} cannot be written: {why or error}") from error
