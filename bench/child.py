"""Processes that are measured: the engine as ``remediator serve`` runs it, and others that are put beside it.

A folder and playbooks → a running child with a port, a token, a store; what its core and memory cost, read from /proc.
Each is ended by who started it, and by the kernel when that process dies.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import secrets
import socket
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import requests

from bench import deliveries
from bench.load import KNOWN_GROUPS
from realparts.process import Process, answers

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Child:
    """A process that listens on a port of 127.0.0.1 and takes deliveries with a token.

    Args:
        command: of (port, token).
        is_up: asked every 50 ms with the port.
        path: where it takes deliveries.
    """

    def __init__(
        self,
        folder: Path,
        command: Callable[[int, str], Sequence[str]],
        *,
        name: str,
        is_up: Callable[[int], bool] | None = None,
        path: str = deliveries.PATH,
        env: dict[str, str] | None = None,
    ) -> None:
        self.port = _free_port()
        self.token = secrets.token_hex(16)
        self.path = path
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.process = Process(
            command(self.port, self.token),
            folder,
            is_up=lambda: (is_up or self._takes_a_delivery)(self.port),
            name=name,
            start_timeout_s=300,
            env=env,
        )

    def __enter__(self) -> Child:
        self.process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()

    def post(self, *bodies: bytes) -> list[float]:
        """Deliver one after the other on one connection.

        Returns:
            When each answer was there, by the wall clock.

        Raises:
            RuntimeError: one was not taken.
        """
        answered_at = []
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)) as connection:
            for body in bodies:
                headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
                connection.request("POST", self.path, body, headers)
                answer = connection.getresponse()
                said = answer.read()
                answered_at.append(time.time())
                if answer.status != 200:
                    raise RuntimeError(f"a delivery was answered with {answer.status}: {said[:200]!r}")
        return answered_at

    def cpu_s(self) -> float:
        """Seconds of a core that it has used so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S

    def memory_mib(self, field: str = "VmRSS") -> float:
        """What it holds in memory now; ``VmHWM`` is the most that it held."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{field}:"))

    def _takes_a_delivery(self, _port: int) -> bool:
        try:
            self.post(deliveries.Groups().body(0))
        except (OSError, RuntimeError, http.client.HTTPException):
            return False
        return True


def _free_port() -> int:
    """A port that nobody listens on and that the kernel gives to no outgoing connection.

    Who asks again and again whether a slow starter is up would be given that very port to ask from, and so take it.
    """
    first_ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = 10_000 + secrets.randbelow(first_ephemeral - 10_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


class Engine(Child):
    """The engine.

    Args:
        playbook: the one that it has.
        docker_url: of the one Docker host, ``gpu-001``.
        module: what is run as ``python -m MODULE serve --config FILE``.
    """

    def __init__(
        self,
        folder: Path,
        playbook: str = deliveries.HELD,
        *,
        docker_url: str = "unix:///nowhere/docker.sock",
        module: str = "remediator",
    ) -> None:
        config = folder / "remediator.toml"
        self.store = folder / "store" / "remediator.db"

        def command(port: int, token: str) -> list[str]:
            (folder / "token").write_text(token)
            (folder / "playbooks").mkdir(exist_ok=True)
            (folder / "playbooks" / "bench.yaml").write_text(playbook)
            config.write_text(
                f'store_url = "sqlite:///{self.store}"\nlisten = "127.0.0.1:{port}"\n'
                f'playbooks = ["{folder / "playbooks"}"]\n'
                f'[docker.hosts.gpu-001]\nurl = "{docker_url}"\n'
                f'[[auth.tokens]]\nname = "bench"\nroles = ["deliver", "view"]\nfile = "{folder / "token"}"\n'
            )
            return [sys.executable, "-m", module, "serve", "--config", str(config)]

        super().__init__(folder, command, name="engine", is_up=lambda port: answers(f"http://127.0.0.1:{port}/readyz"))

    def __enter__(self) -> Engine:
        super().__enter__()
        return self

    def tell_known_groups(self) -> None:
        """Deliver the groups that a load repeats, and wait until they are handled."""
        groups = deliveries.Groups()
        self.post(*(groups.body(number) for number in range(KNOWN_GROUPS)))
        self.wait_handled()

    def wait_handled(self, within_s: float = 900.0) -> float:
        """Wait until nothing is left in the inbox.

        Returns:
            Seconds that it took.

        Raises:
            TimeoutError: it took longer.
        """
        began = time.perf_counter()
        while self.query("SELECT count(*) FROM delivery WHERE handled_at IS NULL")[0][0]:
            if time.perf_counter() > began + within_s:
                raise TimeoutError(f"deliveries are left in the inbox after {within_s:g} s")
            time.sleep(0.02)
        return time.perf_counter() - began

    def metric(self, name: str) -> float:
        """One sample of the metrics page, by its name without labels."""
        headers = {"Authorization": f"Bearer {self.token}"}
        page = requests.get(f"http://127.0.0.1:{self.port}/metrics", headers=headers, timeout=60).text
        return next(float(line.split()[1]) for line in page.splitlines() if line.startswith(f"{name} "))

    def query(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Rows of the store, read behind the engine's back."""
        with self._reading() as connection:
            return connection.execute(statement, values).fetchall()

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with contextlib.closing(sqlite3.connect(f"file:{self.store}?mode=ro", uri=True, timeout=30)) as connection:
            yield connection
