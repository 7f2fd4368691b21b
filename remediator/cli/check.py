"""``remediator check``: load settings, playbooks and policies, and print every problem at once.

Takes → gives: the files that the settings or the command name → problems as ``file:line:column: text``, and advice with
the page that explains it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from remediator.actions import LOOKING
from remediator.app import load_playbooks
from remediator.cli.invocation import Invocation
from remediator.cli.terminal import complain, fold, json_option, print_json, problem_data, say
from remediator.core.playbook import PlaybookSet
from remediator.engine.lint import Lint, lint
from remediator.errors import SettingsError
from remediator.loading import Loaded, effective
from remediator.loading.rules import Rules, read_rules
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
@click.option(
    "--rules",
    "rule_files",
    multiple=True,
    metavar="FILE",
    help="Rules of Prometheus to hold the playbooks against: a file, a folder or a pattern; may be given again.",
)
@click.option(
    "--external-label",
    "external_labels",
    multiple=True,
    metavar="NAME",
    help="A label that Prometheus adds to every alert behind its rules; may be given again.",
)
@click.option("--strict", is_flag=True, help="Exit with 1 on advice too.")
@json_option
@click.pass_context
def check(
    ctx: click.Context,
    paths: tuple[Path, ...],
    show_effective: bool,
    without_files: bool,
    rule_files: tuple[str, ...],
    external_labels: tuple[str, ...],
    strict: bool,
    as_json: bool,
) -> None:
    """Load settings, playbooks and policies, and print every problem.

    PATHs are playbook files and folders; without any, those of the settings. Advice, on what is allowed and mostly a
    mistake, leaves the exit code at 0, unless --strict; a comment `# remediator: allow CODE reason` on its line or the
    one above takes it back. Touches nothing and needs no running engine.

    Exit code 0: no problem; 1: problems, or with --strict advice; 2: wrong usage.
    """
    invocation: Invocation = ctx.obj
    problems: list[dict[str, Any]] = []
    loaded = Loaded(playbook_set=PlaybookSet(), problems=(), files=())
    lints: tuple[Lint, ...] = ()
    rules = read_rules(rule_files) if rule_files else None
    try:
        settings = invocation.settings_of_here()
    except SettingsError as error:
        problems += _of_settings(str(error).splitlines())
    else:
        loaded = load_playbooks(settings, paths)
        problems += _of_settings([] if without_files else check_files(settings))
        advice = lint(
            loaded,
            actions=LOOKING,
            can_ask=bool(settings.alertmanager.urls),
            rules=rules,
            added_labels=frozenset(external_labels),
        )
        lints = advice.lints
        found = (*loaded.problems, *advice.problems, *(rules.problems if rules is not None else ()))
        problems += [problem_data(problem) for problem in found]
    shown = {playbook.name: effective(playbook) for playbook in loaded.playbook_set.playbooks} if show_effective else {}
    if as_json:
        print_json(
            {
                "problems": problems,
                "advice": [_of_lint(each) for each in lints],
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
        for each in lints if not show_effective else ():
            _print_lint(each)
        if problems or not show_effective:  # playbooks alone can be piped into a file
            say(_summary(problems, lints, loaded, rules))
    if not problems and not loaded.playbook_set.playbooks:
        complain(f"no playbooks found in {', '.join(map(str, paths or settings.playbooks))}")
    ctx.exit(1 if problems or (strict and lints) else 0)


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


def _of_lint(each: Lint) -> dict[str, Any]:
    place = {"file": each.file, "line": each.line, "column": each.column}
    return {"code": each.code.value, **place, "message": each.message, "page": each.page}


def _print_lint(each: Lint) -> None:
    """The place whole, for editors; below it, folded, what is odd and where to read on."""
    say(f"{each.file}:{each.line}:{each.column}: [{each.code}]", "yellow")
    fold(each.message, indent=4)
    fold(f"see {each.page}", indent=4, style="dim")


def _print_document(text: str) -> None:
    say("---", "dim")
    for line in text.splitlines():
        say(line)


def _summary(problems: Sequence[object], lints: Sequence[Lint], loaded: Loaded, rules: Rules | None) -> str:
    advice = f", {len(lints)} piece{'s' if len(lints) > 1 else ''} of advice" if lints else ""
    if problems:
        return f"{len(problems)} problem{'s' if len(problems) > 1 else ''}{advice}"
    n_playbooks, n_files = len(loaded.playbook_set.playbooks), len(loaded.files)
    held = f", held against {_count(len(rules.alerts), 'alert rule')}" if rules is not None else ""
    return f"ok: {_count(n_playbooks, 'playbook')} in {_count(n_files, 'file')}{held}{advice}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
