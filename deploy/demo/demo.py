"""``make demo``: a real leak, a real alert, a real restart, and the log that proves it, in about a minute.

Starts a container whose memory grows, an exporter that shows it, Prometheus with the leak rule, Alertmanager, and the
engine → says step by step what happens, asks Docker and the engine whether it did, prints the audit trail and verifies
it. Ends with 0 only when all of it happened; what it started it stops. With ``--keep`` it leaves it running.

It never touches a container that it has not made.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn, TypeVar

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import docker  # noqa: E402  # the real parts are found only now
import requests  # noqa: E402
from busy_docker import BusyDocker  # noqa: E402
from rich.console import Console  # noqa: E402
from trainer import HOSTNAME, IMAGE, Exporter, remove_trainer, start_trainer  # noqa: E402

from realparts import docker_engine  # noqa: E402
from realparts.alertmanager import Alertmanager, webhook_config  # noqa: E402
from realparts.process import Process, answers, free_port  # noqa: E402
from realparts.prometheus import Prometheus  # noqa: E402

CONTAINER = "remediator-demo-trainer"
ALERT = "GPUMemoryLeakSlope"
DEFAULT_SOCKET = Path("/var/run/docker.sock")

# Times to wait at most. Each is several times what it takes; all that does happen takes a minute.
FIRES_WITHIN_S = 75
ACTS_WITHIN_S = 40
RESOLVES_WITHIN_S = 40

T = TypeVar("T")

console = Console(highlight=False, soft_wrap=True)


class DemoFailed(Exception):
    """Something that the demo shows did not happen; the message says what."""


class Story:
    """Says what happens, with the seconds since the start, and waits for what must happen next."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def say(self, text: str, style: str = "") -> None:
        """One line, for a terminal or a log."""
        console.print(f"[dim]{time.monotonic() - self._start:6.1f} s[/dim]  [{style or 'default'}]{text}[/]")

    def wait(self, what: str, look: Callable[[], T | None], within_s: float, live: Callable[[], str]) -> T:
        """What ``look`` finds as soon as it finds something.

        Args:
            what: must happen; for the line that is shown meanwhile, and for the error.
            within_s: after which it counts as not happening.
            live: words on how it stands, shown on a terminal while waiting.
        """
        deadline = time.monotonic() + within_s
        with console.status(what) as status:
            while (found := look()) is None:
                if time.monotonic() > deadline:
                    raise DemoFailed(f"{what}: it did not happen within {within_s:.0f} s ({live()})")
                status.update(f"{what} … {live()}")
                time.sleep(0.2)
        return found


class Engine:
    """The running engine, asked over its API and its command line as a person would."""

    def __init__(self, config: Path, url: str, folder: Path) -> None:
        self.url = url
        self._command = [sys.executable, "-m", "remediator", "--config", str(config)]
        self._process = Process(
            [*self._command, "serve"], folder, is_up=lambda: answers(f"{url}/readyz"), name="remediator"
        )
        self.log = self._process.log

    def start(self) -> None:
        self._process.start()

    def stop(self) -> None:
        self._process.stop()

    def runs(self) -> list[dict[str, Any]]:
        answer = requests.get(f"{self.url}/api/v1/runs", params={"state": "all"}, timeout=5)
        answer.raise_for_status()
        body = answer.json()
        runs: list[dict[str, Any]] = body["runs"] if isinstance(body, dict) else body
        return runs

    def n_deliveries(self) -> int:
        """How many deliveries it has answered with 200."""
        page = requests.get(f"{self.url}/metrics", timeout=5).text
        found = re.search(r'^remediator_deliveries_total\{http_status="200"\} ([\d.]+)$', page, re.M)
        return int(float(found[1])) if found else 0

    def n_events(self, event_type: str) -> int:
        """How many events of that type the audit log has."""
        done = subprocess.run(
            [*self._command, "audit", "list", "--type", event_type, "--json"],
            capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise DemoFailed(f"`remediator audit list` ended with {done.returncode}: {done.stderr.strip()}")
        return len(done.stdout.splitlines())

    def show(self, *arguments: str) -> int:
        """Runs a command with its output shown; gives its exit code."""
        console.print(f"\n[bold]$ remediator {' '.join(arguments)}[/bold]")
        sys.stdout.flush()
        # A log has no width of its own, and the usual guess of 80 breaks every row.
        env = os.environ if console.is_terminal else os.environ | {"COLUMNS": "140"}
        return subprocess.run([*self._command, *arguments], timeout=60, check=False, env=env).returncode


def docker_here() -> Path | None:
    """The socket of a Docker engine that answers, if there is one: ``DOCKER_HOST``'s or the default one."""
    named = os.environ.get("DOCKER_HOST", "")
    socket = Path(named.removeprefix("unix://")) if named.startswith("unix://") else DEFAULT_SOCKET
    if not socket.exists():
        return None
    try:
        client = docker.DockerClient(base_url=f"unix://{socket}", timeout=5)
    except docker.errors.DockerException:
        return None
    client.close()
    return socket


def write_config(folder: Path, listen: str, docker_socket: Path) -> Path:
    """The engine's settings for the demo."""
    config = folder / "remediator.toml"
    # A JSON string is a TOML string.
    config.write_text(
        f"listen = {json.dumps(listen)}\n"
        f"store_url = {json.dumps(f'sqlite:///{folder}/remediator.db')}\n"
        f"playbooks = [{json.dumps(str(HERE / 'playbooks'))}]\n"
        f"[docker.hosts.{HOSTNAME}]\n"
        f"url = {json.dumps(f'unix://{docker_socket}')}\n"
    )
    return config


def play(folder: Path, stack: ExitStack, story: Story) -> dict[str, str]:
    """The whole demo; gives the addresses of what runs then.

    Args:
        folder: for everything that is written; its path must be short, since sockets are in it.
        stack: gets what stops the parts.

    Raises:
        DemoFailed: something did not happen.
    """
    # -- the parts ------------------------------------------------------------------------------------------------
    socket = docker_here()
    if socket is None:
        if why := docker_engine.missing():
            raise DemoFailed(f"no Docker engine answers here, and {why}")
        story.say("No Docker engine answers here: starting a private one")
        engine_folder = folder / "docker"
        stack.callback(docker_engine.stop, engine_folder)
        docker_part = docker_engine.start(engine_folder)
        socket = engine_folder / "docker.sock"
    else:
        story.say(f"Using the Docker engine at {socket}, with a container named {CONTAINER}")
        with closing(docker.DockerClient(base_url=f"unix://{socket}")) as client:
            had_image = bool(client.images.list(name=IMAGE))
        docker_part = docker_engine.DockerEngine(f"unix://{socket}")
        if not had_image:
            stack.callback(docker_part.client.images.remove, IMAGE)
    stack.callback(docker_part.close)
    client = docker_part.client

    busy = stack.enter_context(BusyDocker(socket, folder / "busy-docker.sock"))
    stack.callback(remove_trainer, client, CONTAINER)
    container = start_trainer(client, CONTAINER)
    exporter = stack.enter_context(Exporter(client, container))

    listen = f"127.0.0.1:{free_port()}"
    engine = Engine(
        write_config(folder, listen, folder / "busy-docker.sock"), f"http://{listen}", folder / "remediator"
    )
    engine.start()
    stack.callback(engine.stop)
    webhook = f"{engine.url}/api/v1/alertmanager"
    alertmanager = Alertmanager(
        folder / "alertmanager",
        webhook_config(webhook, route={"group_by": ["alertname"], "group_interval": "2s", "repeat_interval": "4s"}),
    )
    alertmanager.start()
    stack.callback(alertmanager.stop)
    prometheus = Prometheus(
        folder / "prometheus",
        rules=[HERE / "rules.yml"],
        targets={"demo": [exporter.address]},
        alertmanager_urls=[alertmanager.url],
    )
    prometheus.start()
    stack.callback(prometheus.stop)
    addresses = {
        "engine": engine.url,
        "Prometheus": prometheus.url,
        "Alertmanager": alertmanager.url,
        "exporter": f"http://{exporter.address}/metrics",
        "Docker": f"unix://{socket}",
    }
    for name, address in addresses.items():
        story.say(f"{name:<13} {address}")
    story.say("There is no GPU: the container's own memory is shown as one's. It works well now and will leak soon")

    # -- what happens ---------------------------------------------------------------------------------------------
    def started_at() -> str:
        container.reload()
        at: str = container.attrs["State"]["StartedAt"]
        return at

    def memory() -> str:
        return "memory not known" if exporter.memory_mib is None else f"memory {exporter.memory_mib:.0f} MiB"

    first_start = started_at()
    began = datetime.now(UTC)

    story.wait("The alert fires", lambda: prometheus.firing() or None, FIRES_WITHIN_S, memory)
    story.say(f"Prometheus says {ALERT} fires: {memory()} and growing", "yellow")
    run = story.wait("The engine takes it up", lambda: next(iter(engine.runs()), None), 15, memory)
    story.say(f"The engine has planned run {run['run_id'][:8]}: restart it if the alert still fires in 8 s", "cyan")
    story.wait("The first attempt fails on purpose", lambda: busy.n_refused or None, ACTS_WITHIN_S, memory)
    story.say("First attempt: Docker says 429, too busy (on purpose). The engine will try again", "yellow")
    restarted_at = story.wait(
        "The container is restarted", lambda: at if (at := started_at()) != first_start else None, ACTS_WITHIN_S, memory
    )
    story.say(f"Second attempt: the container is restarted (StartedAt {restarted_at[11:19]})", "green")
    n_at_restart = engine.n_deliveries()
    story.wait(
        "Alertmanager repeats the alert",
        lambda: engine.n_deliveries() > n_at_restart or None,
        RESOLVES_WITHIN_S,
        memory,
    )
    story.say(f"Alertmanager has sent it again ({engine.n_deliveries()} deliveries by now); no second run", "cyan")
    story.wait("The alert resolves", lambda: not prometheus.firing() or None, RESOLVES_WITHIN_S, memory)
    story.wait(
        "Its end is delivered",
        lambda: not any(alert["labels"]["alertname"] == ALERT for alert in alertmanager.alerts()) or None,
        RESOLVES_WITHIN_S,
        memory,
    )
    story.say(f"The alert is over: {memory()}", "green")

    # -- what is true now -----------------------------------------------------------------------------------------
    restarts = list(
        client.events(
            since=began, until=datetime.now(UTC), decode=True,
            filters={"container": container.id, "event": "restart"},
        )
    )  # fmt: skip
    n_attempts = engine.n_events("attempt_finished")
    outcomes = [run["outcome"] for run in engine.runs()]
    n_deliveries = engine.n_deliveries()
    truths = {
        f"restarts of the container, says Docker: {len(restarts)}": len(restarts) == 1,
        f"runs: {', '.join(outcomes)}": outcomes == ["succeeded"],
        f"attempts, the first refused on purpose: {n_attempts}": n_attempts == 2,
        f"deliveries, repeats included: {n_deliveries}": n_deliveries >= 3,
    }
    if engine.show("audit", "list") != 0:
        raise DemoFailed("`remediator audit list` failed")
    if engine.show("audit", "verify") != 0:
        raise DemoFailed("`remediator audit verify` does not find the log intact")
    console.print()
    for claim, is_true in truths.items():
        story.say(f"{'✓' if is_true else '✗'} {claim}", "green" if is_true else "red")
    if not all(truths.values()):
        raise DemoFailed("not everything that the demo shows is true; see the lines above")
    return addresses


def main() -> int:
    """The demo, from the command line; gives the exit code."""
    parser = argparse.ArgumentParser(description="A real leak, a real alert, a real restart.")
    parser.add_argument("--keep", action="store_true", help="leave everything running afterwards")
    parser.add_argument("--tell", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.keep and arguments.tell is None:
        return play_in_background()

    signal.signal(signal.SIGTERM, end_in_order)
    signal.signal(signal.SIGINT, end_in_order)
    story = Story()
    folder = Path(tempfile.mkdtemp(prefix="remediator-demo-"))
    keep_logs = False
    try:
        with ExitStack() as stack:
            addresses = play(folder, stack, story)
            story.say("Done: it leaked, it was restarted once, and the log proves it.", "bold green")
            if arguments.tell is not None:
                stay(addresses, folder, arguments.tell)
    except (DemoFailed, RuntimeError, OSError, subprocess.SubprocessError, docker.errors.DockerException) as error:
        story.say(f"The demo failed: {error}", "bold red")
        console.print(f"What was started is stopped; logs are in {folder}")
        keep_logs = True
        return 1
    finally:
        if not keep_logs:
            shutil.rmtree(folder, ignore_errors=True)
    return 0


def end_in_order(number: int, _frame: object) -> NoReturn:
    """A signal ends the demo through everything that stops its parts."""
    sys.exit(128 + number)


def stay(addresses: dict[str, str], folder: Path, tell: int) -> NoReturn:
    """Says how to look and how to stop, lets the caller go, and waits to be ended."""
    console.print("\nLeft running:")
    for name, address in addresses.items():
        console.print(f"  {name:<13} {address}")
    console.print(f"  commands      .venv/bin/remediator --config {folder}/remediator.toml status")
    console.print(f"Stop it all:    kill {os.getpid()}")
    sys.stdout.flush()
    # Whoever reads our output must not wait for us.
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    os.write(tell, b"k")
    os.close(tell)
    while True:
        signal.pause()


def play_in_background() -> int:
    """The demo in a process that may outlive this one; ends with its exit code, or with 0 once it stays."""
    told, tell = os.pipe()
    child = subprocess.Popen(
        [sys.executable, __file__, "--keep", f"--tell={tell}"], pass_fds=[tell], start_new_session=True
    )
    os.close(tell)
    try:
        if os.read(told, 1):
            return 0
    except KeyboardInterrupt:
        child.terminate()
    return child.wait()


if __name__ == "__main__":
    sys.exit(main())
