"""``remediator exporter``: the GPUs of this host as Prometheus metrics, in the foreground, until SIGTERM or Ctrl-C.

It needs neither settings nor store: all it is told are its options, each of which has a variable
``REMEDIATOR_EXPORTER_…``.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from remediator.cli.terminal import complain
from remediator.core.units import parse_address, parse_duration
from remediator.errors import SettingsError

if TYPE_CHECKING:
    from remediator.exporter.sampler import Sampler
    from remediator.exporter.workload import Workloads

F = TypeVar("F", bound=Callable[..., Any])

PREFIX: Final = "REMEDIATOR_EXPORTER_"

DOCKER_SOCKET: Final = Path("/var/run/docker.sock")

NO_DOCKER: Final = "none"

_SHORTEST, _LONGEST = timedelta(seconds=1), timedelta(minutes=1)
"""Below a second the driver repeats itself; above a minute a leak is seen late, and a lost GPU later."""

EXIT_NO_GPU: Final = 1


def _interval(ctx: click.Context, param: click.Parameter, value: str) -> float:
    try:
        interval = parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from error
    if not _SHORTEST <= interval <= _LONGEST:
        raise click.BadParameter("must be 1s to 1m", ctx, param)
    return interval.total_seconds()


def _address(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, int]:
    try:
        return parse_address(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from error


def _docker_url(ctx: click.Context, param: click.Parameter, value: str | None) -> str:
    """ "" = Docker is not asked."""
    if value is None:
        return f"unix://{DOCKER_SOCKET}" if DOCKER_SOCKET.exists() else ""
    if value == NO_DOCKER:
        return ""
    if not value.startswith(("unix://", "tcp://", "ssh://")):
        raise click.BadParameter(f"must begin with unix://, tcp:// or ssh://, or be {NO_DOCKER}", ctx, param)
    return value


def _option(name: str, **rest: Any) -> Callable[[F], F]:
    """An option with its variable."""
    variable = PREFIX + name.removeprefix("--").replace("-", "_").upper()
    return click.option(name, envvar=variable, show_envvar=True, **rest)


_FILE = click.Path(path_type=Path, dir_okay=False)
_FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command()
@_option(
    "--listen",
    default="127.0.0.1:9096",
    show_default=True,
    metavar="ADDRESS:PORT",
    callback=_address,
    help="Where /metrics, /healthz and /readyz are; :9096 is every address of this host.",
)
@_option(
    "--interval",
    default="5s",
    show_default=True,
    metavar="DURATION",
    callback=_interval,
    help="Between two samples, 1s to 1m.",
)
@_option("--hostname", metavar="NAME", help="The label hostname.  [default: this host's own name]")
@_option(
    "--docker",
    metavar="URL|none",
    callback=_docker_url,
    help=f"The Docker engine that knows the containers' names.  [default: unix://{DOCKER_SOCKET} if it is there]",
)
@_option(
    "--proc",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=Path("/proc"),
    show_default=True,
    help="Where the host's processes are seen.",
)
@_option(
    "--pods-log",
    type=_FOLDER,
    default=Path("/var/log"),
    show_default=True,
    help="Folder of kubelet's pods/ and containers/, which tell the pods.",
)
@_option("--tls-cert", type=_FILE, help="Serve HTTPS with this certificate (PEM); a renewed file is taken up.")
@_option("--tls-key", type=_FILE, help="Its key.")
@_option("--tls-client-ca", type=_FILE, help="Answer only who shows a certificate of this CA.")
@_option(
    "--log-format",
    type=click.Choice(["json", "text"]),
    default="json",
    show_default=True,
    help="Of the lines on stderr.",
)
@_option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True)
@click.option("--once", is_flag=True, help="Print the metrics once and end: 0, or 1 where no GPU is seen.")
@click.pass_context
def exporter(
    ctx: click.Context,
    listen: tuple[str, int],
    interval: float,
    hostname: str | None,
    docker: str,
    proc: Path,
    pods_log: Path,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_client_ca: Path | None,
    log_format: str,
    log_level: str,
    once: bool,
) -> None:
    """Export the GPUs of this host and the processes on them as Prometheus metrics.

    Runs on each GPU host, in the foreground; SIGTERM and Ctrl-C end it. It only looks: it changes nothing, and needs
    no engine, settings or store. Without a GPU it says so and keeps looking.
    """
    from remediator.telemetry import configure_logging

    _refuse_unknown_variables(ctx)
    if (tls_cert is None) != (tls_key is None) or (tls_client_ca is not None and tls_cert is None):
        raise SettingsError("--tls-cert and --tls-key go together, and --tls-client-ca needs both")
    configure_logging(level=log_level, log_format=log_format)
    workloads = _workloads(docker, proc, pods_log)
    sampler = _sampler(workloads, hostname or socket.gethostname(), interval, proc)
    try:
        if once:
            ctx.exit(_print_once(sampler, interval))
        _serve(sampler, listen, tls_cert, tls_key, tls_client_ca)
    finally:
        sampler.stop()
        workloads.stop()


def _refuse_unknown_variables(ctx: click.Context) -> None:
    known = {param.envvar for param in ctx.command.params}
    unknown = sorted(name for name in os.environ if name.startswith(PREFIX) and name not in known)
    if unknown:
        raise SettingsError(f"no option has the variable {', '.join(unknown)}; see remediator exporter --help")


def _workloads(docker_url: str, proc: Path, pods_log: Path) -> Workloads:
    from remediator.exporter.podlogs import PodLogs
    from remediator.exporter.workload import Workloads

    names = None
    if docker_url:
        from remediator.clients.dockerd import DockerdReader  # brings 24 MiB, which hosts without Docker need not spend
        from remediator.clients.ports import DockerHost
        from remediator.exporter.docker_names import DockerNames

        names = DockerNames(DockerdReader(DockerHost(name="this host", url=docker_url)))
    return Workloads(names, pod_logs=PodLogs(pods_log / "pods", pods_log / "containers"), proc=proc)


def _sampler(workloads: Workloads, hostname: str, interval_s: float, proc: Path) -> Sampler:
    from remediator.clients.nvml import Nvml
    from remediator.exporter.sampler import Sampler

    return Sampler(Nvml(), workloads, hostname=hostname, interval_s=interval_s, proc=proc)


def _serve(
    sampler: Sampler, listen: tuple[str, int], tls_cert: Path | None, tls_key: Path | None, tls_client_ca: Path | None
) -> None:
    from remediator.exporter.server import Server

    server = Server(
        sampler, host=listen[0], port=listen[1], tls_cert=tls_cert, tls_key=tls_key, tls_client_ca=tls_client_ca
    )
    sampler.start()
    server.run(signals=(signal.SIGTERM, signal.SIGINT))


def _print_once(sampler: Sampler, interval_s: float) -> int:
    from remediator.exporter.sampler import STALE_INTERVALS
    from remediator.exporter.server import text_of

    sampler.start()
    ends_s = time.monotonic() + STALE_INTERVALS * interval_s
    while not sampler.is_settled and time.monotonic() < ends_s:
        time.sleep(0.02)
    click.echo(text_of(sampler), nl=False)
    snapshot = sampler.snapshot()
    if snapshot.gpus:
        return 0
    complain(snapshot.problem or "the driver sees no GPU")
    return EXIT_NO_GPU
