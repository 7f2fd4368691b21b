"""The command line: one file per command, click and rich.

In the flow: beside ``web``, on top of ``app``. Commands that change something go through the running engine's API;
commands that read open files read-only.

Takes → gives: words on a line → text (or ``--json``) on stdout, complaints on stderr, an exit code.

Must never: show a traceback for bad input, write to the store, or print a label value that steers the terminal.

Command modules are imported when their command is used, so that ``remediator --help`` is there at once.
"""

from __future__ import annotations

import io
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from remediator import __version__
from remediator.cli.invocation import Invocation
from remediator.cli.terminal import complain
from remediator.errors import RemediatorError, SettingsError, StoreError, UnreachableError

COMMANDS = {
    "serve": "Run the engine.",
    "exporter": "Export the GPUs of this host as Prometheus metrics.",
    "check": "Load settings, playbooks and policies; print every problem.",
    "doctor": "Try everything the engine needs, change nothing, say what to mend.",
    "replay": "Decide last week's alerts anew with other playbooks, and compare.",
    "test": "Play the tests of playbooks: what happens against what is expected.",
    "plan": "Dry run: what would happen for an alert, and why.",
    "run": "Start a playbook by hand.",
    "runs": "List runs.",
    "approve": "Say yes to what a run asks.",
    "deny": "Say no to what a run asks: it ends.",
    "note": "Keep a note on a run.",
    "cancel": "End a run that waits, or stop one after its step.",
    "undo": "Take back now what a run changed.",
    "leases": "List changes that are still to be taken back.",
    "settle": "Say what became of a run whose outcome is unknown.",
    "pause": "Hold all acting until resume.",
    "resume": "End a pause.",
    "breaker": "List the breakers, and reset one that tripped.",
    "reload": "Load the playbooks and policies anew.",
    "status": "What the running engine is doing.",
    "incident": "What happened to an alert and what was done, as one timeline.",
    "audit": "Read, verify and export the audit log.",
    "actions": "What actions there are and the params they take.",
    "rules": "Make rules of Prometheus from a file of thresholds.",
    "schema": "JSON Schema of playbooks, policies, tests, thresholds and settings.",
}
"""Every command and its line in the help. The module and the click command in it bear the command's name."""

EPILOG = """\b
Exit codes:
  0    ok
  1    problems found, or the engine said no
  2    wrong usage or settings
  3    the engine, or a file a command needs, is not reachable
  130  interrupted"""

CONFIG_TYPE = click.Path(path_type=Path, dir_okay=False)

HELP_OPTIONS = ["-h", "--help"]
"""Set at every command, not at the group alone: click keeps the first help option that a command was asked for, also
when it was asked without the group."""

EXIT_PROBLEMS = 1
EXIT_USAGE = 2
EXIT_UNREACHABLE = 3
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141
"""As a shell reports it: 128 + SIGPIPE."""


def exit_code(error: RemediatorError) -> int:
    """Which exit code says what kind of error it was."""
    match error:
        case SettingsError():
            return EXIT_USAGE
        case StoreError() | UnreachableError():
            return EXIT_UNREACHABLE
        case _:
            return EXIT_PROBLEMS


def _config_option() -> click.Option:
    """``--config`` behind the command's name too, where people write it as often."""

    def remember(ctx: click.Context, _param: click.Parameter, value: Path | None) -> None:
        if value is not None:
            ctx.obj = Invocation(config_path=value)

    return click.Option(
        ["--config"], type=CONFIG_TYPE, expose_value=False, callback=remember, help="Settings file (TOML)."
    )


class CommandGroup(click.Group):
    """Imports a command's module when the command is used, and turns our errors into exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All commands, in the order of ``COMMANDS``."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name; None when there is none."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        command = getattr(import_module(f"remediator.cli.{cmd_name}"), cmd_name)
        assert isinstance(command, click.Command)
        if command.epilog is None:
            command.params.append(_config_option())
            for each in (command, *(command.commands.values() if isinstance(command, click.Group) else ())):
                each.epilog = EPILOG
                each.context_settings = {**each.context_settings, "help_option_names": HELP_OPTIONS}
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands' lines for the help, without importing any of them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command.

        Raises:
            click.exceptions.Exit: for every ``RemediatorError``, and where a file is not this user's to read (after one
                message on stderr), with its exit code; quietly, when the reader of our output is gone.
        """
        try:
            return super().invoke(ctx)
        except RemediatorError as error:
            complain(str(error))
            raise click.exceptions.Exit(exit_code(error)) from error
        except PermissionError as error:
            what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
            complain(f"{what}. Try it as root, or as the user that the engine runs as")
            raise click.exceptions.Exit(EXIT_UNREACHABLE) from error
        except BrokenPipeError:
            raise click.exceptions.Exit(EXIT_BROKEN_PIPE) from None


@click.group(
    cls=CommandGroup,
    epilog=EPILOG,
    context_settings={"help_option_names": HELP_OPTIONS, "max_content_width": 80},
)
@click.option(
    "--config",
    "config_path",
    type=CONFIG_TYPE,
    help="Settings file (TOML).  [default: remediator.toml if it is there]",
)
@click.version_option(__version__, prog_name="remediator", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context, config_path: Path | None) -> None:
    """Remediation engine for GPU clusters: Alertmanager alerts in, safe and audited actions out."""
    ctx.obj = Invocation(config_path=config_path)


def main() -> None:
    """Entry point ``remediator``: run the command line and exit the process."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # one that cannot write an arrow writes \\u2192 and goes on
            stream.reconfigure(errors="backslashreplace")
    try:
        code = cli.main(prog_name="remediator", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(EXIT_INTERRUPTED)
    if code == EXIT_BROKEN_PIPE:
        # Python flushes stdout once more at exit, and would complain there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code if isinstance(code, int) else 0)
