"""Commands that read the store's file, whether an engine runs or not: their options, and opening it read-only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from remediator.cli.invocation import Invocation
from remediator.core.units import parse_duration
from remediator.store.engine import Snapshot, open_readonly

F = TypeVar("F", bound=Callable[..., Any])


def store_option(command: F) -> F:
    """``--store``, handed on as ``store_url``."""
    return click.option(
        "--store",
        "store_url",
        envvar="REMEDIATOR_STORE_URL",
        metavar="URL",
        help="sqlite:////absolute/path.db  [default: from the settings]",
    )(command)


def moment_option(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """For an option: ``7d`` (that long ago), or a date or time; without an offset it is UTC."""
    if value is None:
        return None
    try:
        return datetime.now(UTC) - parse_duration(value)
    except (ValueError, OverflowError):
        pass
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(
            "write how long ago (7d, 1h30m) or a time (2026-01-31, 2026-01-31T14:00Z)", ctx, param
        ) from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


@contextmanager
def reading(invocation: Invocation, store_url: str | None) -> Iterator[Snapshot]:
    """A snapshot of the store.

    Raises:
        SettingsError: every problem in the settings, where they are what names the store.
        StoreError: there is no store, or it cannot be read.
    """
    store = open_readonly(store_url or invocation.settings_of_here().store_url)
    try:
        with store.read() as conn:
            yield conn
    finally:
        store.close()
