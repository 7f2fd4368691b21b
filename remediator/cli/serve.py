"""``remediator serve``: the engine, in the foreground, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import click

from remediator import __version__
from remediator.cli.invocation import Invocation
from remediator.cli.terminal import printable
from remediator.settings import Settings


@click.command()
@click.pass_obj
def serve(invocation: Invocation) -> None:
    """Run the engine in the foreground.

    SIGTERM and Ctrl-C stop it gracefully, SIGHUP loads the playbooks anew. Logs go to stderr.
    """
    # Here, because checking the options of every command need not load a web server.
    from remediator.app import build_app
    from remediator.cli.doctor_local import check_rights
    from remediator.cli.finding import Level
    from remediator.telemetry import get_logger
    from remediator.web.server import serve as serve_app

    settings = invocation.settings_of_here()
    app = build_app(settings)
    for line in greeting(settings):
        click.echo(printable(line))
    log = get_logger(__name__)
    for finding in check_rights(settings, invocation.config_path):
        if finding.level is Level.PROBLEM:
            log.warning("a file is open to others", problem=finding.text, advice=finding.advice)
    serve_app(app)


def greeting(settings: Settings) -> list[str]:
    """What a person who starts it wants to see first, one line each; said before anything is bound or opened."""
    scheme = "https" if settings.tls_cert else "http"
    names = [*(token.name for token in settings.auth.tokens), *(basic.username for basic in settings.auth.basic)]
    auth = f"known callers: {', '.join(names)}" if names else "no token configured: reachable on loopback only"
    return [
        f"remediator {__version__}",
        f"will listen  {scheme}://{settings.listen}",
        f"store        {settings.store_path}",
        f"playbooks    {', '.join(map(str, settings.playbooks))}",
        f"auth         {auth}",
    ]
