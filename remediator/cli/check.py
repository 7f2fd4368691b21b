"""``remediator check``: load settings, playbooks and policies, and print every problem at once.

Takes → gives: the files that the settings or the command name → problems as ``file:line:column: text``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from remediator.app import load_playbooks
from remediator.cli.invocation import Invocation
from remediator.cli.terminal import complain, json_option, print_json, say
from remediator.core.playbook import PlaybookSet
from remediator.engine.lint import Lint, lint
from remediator.errors import PlaybookError, SettingsError
from remediator.loading import Loaded, effective
from remediator.settings import check_files

_PLACED = re.compile(r"(?P<file>[^:]+):(?P<line>\d+)(?::(?P<column>\d+))?: (?P<message>.+)")
"""A problem of the settings that stands on a line of their file; others stand in variables and options."""


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path), metavar="[PATH]...")
@click.option("--effective", "show_effective", is_flag=True, help="Print the playbooks with every default filled in.")
@click.option(
    "--without-files",
    is_flag=True,
    help="Leave out the files that settings name: tokens, certificates.",
)
@json_option
@click.pass_context
def check(
    ctx: click.Context, paths: tuple[Path, ...], show_effective: bool, without_files: bool, as_json: bool
) -> None:
    """Load settings, playbooks and policies, and print every problem.

    PATHs are playbook files and folders; without any, those of the settings. Advice, on what is allowed and mostly a
    mistake, leaves the exit code at 0. Touches nothing and needs no running engine.
    """
    invocation: Invocation = ctx.obj
    problems: list[dict[str, Any]] = []
    loaded = Loaded(playbook_set=PlaybookSet(), problems=(), files=())
    advice: list[Lint] = []
    try:
        settings = invocation.settings_of_here()
    except SettingsError as error:
        problems += _of_settings(str(error).splitlines())
    else:
        loaded = load_playbooks(settings, paths)
        problems += _of_settings([] if without_files else check_files(settings))
        problems += [_of_playbook(problem) for problem in loaded.problems]
        advice = lint(loaded.playbook_set, can_ask=bool(settings.alertmanager.urls))
    shown = {playbook.name: effective(playbook) for playbook in loaded.playbook_set.playbooks} if show_effective else {}
    if as_json:
        print_json(
            {
                "problems": problems,
                "advice": [asdict(each) for each in advice],
                "files": [str(file) for file in loaded.files],
                "playbooks": [playbook.name for playbook in loaded.playbook_set.playbooks],
                **({"effective": shown} if show_effective else {}),
            }
        )
    else:
        for text in shown.values():
            _print_document(text)
        for problem in problems:
            say(problem["text"], "red")
        for each in advice if not show_effective else []:
            say(f"{each.file}:{each.line}: {each.message} [{each.code}]", "yellow")
        if problems or not show_effective:  # playbooks alone can be piped into a file
            say(_summary(problems, loaded))
    if not problems and not loaded.playbook_set.playbooks:
        complain(f"no playbooks found in {', '.join(map(str, paths or settings.playbooks))}")
    ctx.exit(1 if problems else 0)


def _of_settings(texts: Sequence[str]) -> list[dict[str, Any]]:
    placed = [(_PLACED.fullmatch(text), text) for text in texts]
    return [
        {
            "file": found["file"] if found else "",
            "line": int(found["line"]) if found else 0,
            "column": int(found["column"] or 0) if found else 0,
            "message": found["message"] if found else text,
            "text": text,
        }
        for found, text in placed
    ]


def _of_playbook(problem: PlaybookError) -> dict[str, Any]:
    place = {"file": problem.file, "line": problem.line, "column": problem.column}
    return {**place, "message": problem.message, "text": problem.located()}


def _print_document(text: str) -> None:
    say("---", "dim")
    for line in text.splitlines():
        say(line)


def _summary(problems: Sequence[object], loaded: Loaded) -> str:
    if problems:
        return f"{len(problems)} problem{'s' if len(problems) > 1 else ''}"
    n_playbooks, n_files = len(loaded.playbook_set.playbooks), len(loaded.files)
    return f"ok: {n_playbooks} playbook{'' if n_playbooks == 1 else 's'} in {n_files} file{'' if n_files == 1 else 's'}"
