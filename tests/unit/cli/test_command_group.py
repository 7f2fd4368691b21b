"""The command line itself: what it imports, how it ends."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import click
import pytest
from click.testing import CliRunner

import remediator
from remediator.cli import COMMANDS, CommandGroup, cli, main
from remediator.cli.invocation import Invocation
from remediator.errors import (
    PlaybookSyntaxError,
    RequestError,
    SettingsError,
    StoreInUseError,
    StoreUnavailableError,
    UnreachableError,
)


def group_with(body: Callable[[], object]) -> click.Group:
    """The real group with one command that does ``body``."""

    class OneCommand(CommandGroup):
        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
            return click.Command(cmd_name, callback=body)

    return OneCommand("remediator")


def raising(error: BaseException) -> Callable[[], object]:
    """A command body that raises."""

    def body() -> object:
        raise error

    return body


def test_help_when_asked_for_then_lists_every_command_and_exit_code() -> None:
    result = CliRunner().invoke(cli, ["--help"])

    assert result.exit_code == 0
    assert [name for name in COMMANDS if f"\n  {name} " not in result.output] == []
    assert [code for code in ("0  ", "1  ", "2  ", "3  ", "130  ") if f"\n    {code}" not in result.output] == []
    assert max(map(len, result.output.splitlines())) <= 80


def test_help_when_asked_for_then_imports_no_command() -> None:
    # In a process of its own: this one has imported them all.
    code = (
        "import sys, contextlib\n"
        "from remediator.cli import cli\n"
        "with contextlib.suppress(SystemExit): cli(['--help'])\n"
        "heavy = {'pydantic', 'sqlalchemy', 'requests', 'docker', 'flask', 'remediator.app', 'remediator.settings'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "[]\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_when_it_is_asked_without_the_group_then_has_both_names(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    for each in (command, *(command.commands.values() if isinstance(command, click.Group) else ())):
        option = each.get_help_option(each.make_context(name, [], resilient_parsing=True))
        assert option is not None
        assert option.opts == ["-h", "--help"]


def test_version_when_asked_for_then_is_the_package_s() -> None:
    assert CliRunner().invoke(cli, ["--version"]).output == f"remediator {remediator.__version__}\n"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        pytest.param(SettingsError("bad"), 2, id="wrong settings are wrong usage"),
        pytest.param(StoreUnavailableError("bad"), 3, id="a store that cannot be read is not reachable"),
        pytest.param(StoreInUseError("bad", pid=7), 3, id="a store that another engine holds is not reachable"),
        pytest.param(UnreachableError("bad"), 3, id="an engine that does not answer is not reachable"),
        pytest.param(RequestError("bad", http_status=409), 1, id="an engine that says no is a problem"),
        pytest.param(PlaybookSyntaxError("bad"), 1, id="a bad playbook is a problem"),
        pytest.param(BrokenPipeError(), 141, id="a reader that went away is what SIGPIPE would be"),
    ],
)
def test_command_when_it_raises_then_ends_with_the_code_of_its_kind(error: Exception, code: int) -> None:
    result = CliRunner().invoke(group_with(raising(error)), ["any"])

    assert result.exit_code == code
    assert result.stdout == ""
    assert result.stderr == ("" if code == 141 else "remediator: bad\n")


def test_command_when_a_file_is_another_users_then_says_as_whom_to_try_and_not_that_the_log_was_changed() -> None:
    denied = PermissionError(13, "Permission denied", "/var/lib/remediator/remediator.db")

    result = CliRunner().invoke(group_with(raising(denied)), ["any"])

    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr == (
        "remediator: /var/lib/remediator/remediator.db: Permission denied. "
        "Try it as root, or as the user that the engine runs as\n"
    )


def test_command_when_it_raises_several_lines_then_prints_all_of_them_safely() -> None:
    result = CliRunner().invoke(group_with(raising(SettingsError("one\n\x1b[31mtwo"))), ["any"])

    assert result.stderr == "remediator: one\n  \\x1b[31mtwo\n"


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["nope"], id="an unknown command"),
        pytest.param(["pause"], id="a missing option"),
        pytest.param(["plan", "--alert", "alertname"], id="a label without a value"),
        pytest.param(["plan", "--alert", "a=1", "a=2"], id="a label given twice"),
        pytest.param(["plan"], id="no alert at all"),
        pytest.param(["plan", "file", "--annotation", "a=b"], id="an annotation without an alert"),
        pytest.param(["settle", "run", "perhaps", "--reason", "x"], id="a word that is none of two"),
        pytest.param(["actions", "docker.explode"], id="an unknown action"),
        pytest.param(["run", "playbook"], id="a run about nothing"),
    ],
)
def test_command_when_used_wrongly_then_says_how_and_ends_with_2(arguments: list[str]) -> None:
    result = CliRunner().invoke(cli, arguments)

    assert (result.exit_code, result.stdout) == (2, "")
    assert "Usage: " in result.stderr


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt(), EOFError(), click.Abort()])
def test_main_when_interrupted_then_ends_with_130(
    interrupt: BaseException, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("remediator.cli.cli", group_with(raising(interrupt)))
    monkeypatch.setattr(sys, "argv", ["remediator", "any"])

    with pytest.raises(SystemExit) as ended:
        main()

    assert ended.value.code == 130
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        pytest.param(["--version"], 0, id="done"),
        pytest.param(["nope"], 2, id="wrong usage"),
        pytest.param([], 2, id="nothing asked for"),
        pytest.param(["any"], 1, id="a command that found problems"),
    ],
)
def test_main_when_done_then_ends_with_the_command_s_code(
    arguments: list[str], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if arguments == ["any"]:
        monkeypatch.setattr("remediator.cli.cli", group_with(raising(click.exceptions.Exit(1))))
    monkeypatch.setattr(sys, "argv", ["remediator", *arguments])

    with pytest.raises(SystemExit) as ended:
        main()

    assert ended.value.code == code


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["--config", "site.toml", "actions"], id="before the command"),
        pytest.param(["actions", "--config", "site.toml"], id="behind the command"),
    ],
)
def test_config_option_when_given_then_reaches_the_command(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Invocation] = []
    command = cli.get_command(click.Context(cli), "actions")
    assert command is not None
    monkeypatch.setattr(command, "callback", lambda **_: seen.append(click.get_current_context().obj))

    CliRunner().invoke(cli, arguments)

    assert [str(invocation.config_path) for invocation in seen] == ["site.toml"]
