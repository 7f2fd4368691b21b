"""``remediator doctor``: try everything that the engine needs, change nothing, say what to mend.

Takes → gives: settings, and the addresses of the Alertmanagers and Prometheis → one line for each thing tried
(``doctor_local``, ``doctor_network``).
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path

import click

from remediator.cli.api_client import certificate, certificate_options
from remediator.cli.doctor_local import check_clock, check_playbooks, check_rights, check_settings, check_store
from remediator.cli.doctor_network import (
    check_alertmanager,
    check_docker,
    check_fleets,
    check_prometheus,
    check_receiver,
    our_urls,
    server_at,
)
from remediator.cli.finding import Finding, Level, problem
from remediator.cli.invocation import Invocation
from remediator.cli.terminal import fold_beside, json_option, print_json, say, shown_url
from remediator.errors import SettingsError

_STYLES = {Level.OK: "green", Level.WARNING: "yellow", Level.PROBLEM: "red"}

Check = Callable[[], Iterator[Finding]]


@click.command()
@click.option(
    "--alertmanager-url",
    "alertmanagers",
    multiple=True,
    help="An Alertmanager to try instead of alertmanager.urls; repeatable.",
)
@click.option(
    "--prometheus-url",
    "prometheis",
    multiple=True,
    help="A Prometheus to try instead of prometheus.servers; repeatable.",
)
@certificate_options
@json_option
@click.pass_context
def doctor(
    ctx: click.Context,
    alertmanagers: tuple[str, ...],
    prometheis: tuple[str, ...],
    cert: Path | None,
    key: Path | None,
    as_json: bool,
) -> None:
    """Try everything the engine needs and say what to mend.

    Settings, playbooks, the store, rights of files, Docker hosts, the clock, the engine's own address, Alertmanagers
    and Prometheus servers (those of the settings, if none is named), and the queries of fleets. Changes nothing; the
    empty POST that it sends to the engine's webhook is refused there, which the audit log shows.

    A warning leaves the exit code at 0, a problem makes it 1.
    """
    found: list[Finding] = []
    for name, check in _checks(ctx.obj, alertmanagers, prometheis, certificate(cert, key)):
        _show_progress(f"looking at {name} …")
        for finding in check():
            found.append(finding)
            _show_progress("")
            if not as_json:
                fold_beside(f"{finding.level:<9}", f"{finding.check}: {finding.text}", _STYLES[finding.level])
                if finding.advice:
                    fold_beside(" " * 9 + "→ ", finding.advice)
    count = Counter(finding.level for finding in found)
    if as_json:
        print_json([asdict(finding) for finding in found])
    else:
        say(f"{count[Level.OK]} ok, {count[Level.WARNING]} to look at, {count[Level.PROBLEM]} to mend", "bold")
    ctx.exit(1 if count[Level.PROBLEM] else 0)


def _show_progress(text: str) -> None:
    """What is being tried, on a line of its own that the next one overwrites; on a terminal alone."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{text}", nl=False, err=True)


def _checks(
    invocation: Invocation,
    alertmanagers: tuple[str, ...],
    prometheis: tuple[str, ...],
    client_cert: str | tuple[str, str] | None,
) -> Iterator[tuple[str, Check]]:
    yield "the clock", check_clock
    try:
        settings = invocation.settings_of_here()
    except SettingsError as error:
        yield "the settings", partial(_bad_settings, str(error))
        return
    yield "the settings", partial(check_settings, settings)
    yield "the playbooks", partial(check_playbooks, settings)
    yield "the store", partial(check_store, settings)
    yield "rights of files", partial(check_rights, settings, invocation.config_path)
    yield "Docker", partial(check_docker, settings)
    for url in our_urls(settings):
        yield shown_url(url), partial(check_receiver, url, client_cert)
    for url in alertmanagers or settings.alertmanager.urls:
        yield shown_url(url), partial(check_alertmanager, url, settings)
    for url in prometheis:
        yield shown_url(url), partial(check_prometheus, shown_url(url), server_at(url, settings))
    if not prometheis:
        for name, server in settings.prometheus.servers.items():
            yield f"Prometheus {name}", partial(check_prometheus, name, server)
    yield "fleets", partial(check_fleets, settings)


def _bad_settings(text: str) -> Iterator[Finding]:
    for line in text.splitlines():
        yield problem("settings", line, "mend it first: the other checks hang on the settings")
