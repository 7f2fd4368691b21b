"""Who says so, and why: options of the commands that a person is answerable for."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def by_option(command: F) -> F:
    """``--by``, the name for the audit log; the token's name is recorded beside it."""
    return click.option(
        "--by", default=name_of_user, show_default="the user, also behind sudo", help="Your name, for the audit log."
    )(command)


def reason_option(command: F) -> F:
    """``--reason``, for the audit log, required."""
    return click.option("--reason", required=True, help="Why, for the audit log and for whoever reads it later.")(
        command
    )


def question_option(command: F) -> F:
    """``--question``, for a run that asks more than once."""
    return click.option(
        "--question",
        type=click.IntRange(min=0),
        default=0,
        metavar="NUMBER",
        help="Answer only if this is still what it asks.  [default: whatever it asks]",
    )(command)


def name_of_user() -> str:
    """The person at the keyboard: ``$SUDO_USER``, ``$USER``, else the name of the process's user."""
    return os.environ.get("SUDO_USER") or os.environ.get("USER") or _process_user()


def _process_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without an entry in /etc/passwd
        return f"uid {os.getuid()}"
