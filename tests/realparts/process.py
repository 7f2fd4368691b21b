"""A real program on this machine, started for a test or the demo: its own folder, its log kept, nothing left behind.

A command line and a way to ask whether it is up → a running process with ``kill`` (as power loss does it), ``stop``
and ``start`` again on the same folder. It ends what it started and nothing else, and a process whose parent dies is
ended by the kernel, so that a killed test run leaves no Prometheus on the machine.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import requests

STOP_TIMEOUT_S = 10.0
"""Prometheus and Alertmanager end in well under a second; more than this is a hang, and is killed."""


def free_port() -> int:
    """A loopback TCP port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def answers(url: str) -> bool:
    """Whether an HTTP GET of the address is answered with 200."""
    try:
        return requests.get(url, timeout=2).status_code == 200
    except requests.RequestException:
        return False


def wait_until(is_so: Callable[[], bool], what: str, within_s: float) -> None:
    """Waits until a claim about the world holds; TimeoutError with its words when it does not in time."""
    deadline = time.monotonic() + within_s
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not so after {within_s:g} s: {what}")
        time.sleep(0.05)


class Process:
    """One program, started with the same command line each time.

    Args:
        command: the program and its arguments.
        folder: where its log goes (``<name>.log``) and where it runs; made if absent.
        is_up: asked every 50 ms after a start, until it says yes.
        name: for the log and for errors; default the program's file name.
        outlives_parent: for ``make demo KEEP=1``: stays when whoever started it ends.
        start_timeout_s: how long a start may take before it is an error.
    """

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        *,
        is_up: Callable[[], bool],
        name: str | None = None,
        outlives_parent: bool = False,
        start_timeout_s: float = 30.0,
        env: dict[str, str] | None = None,
    ) -> None:
        self.name = name or Path(command[0]).name
        self.folder = folder
        self.log = folder / f"{self.name}.log"
        self._command = list(command) if outlives_parent else ["setpriv", "--pdeathsig", "KILL", *command]
        self._is_up = is_up
        self._start_timeout_s = start_timeout_s
        self._env = env
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id while it runs; RuntimeError when it does not."""
        if self._child is None:
            raise RuntimeError(f"{self.name} is not running")
        return self._child.pid

    def start(self) -> None:
        """Starts it and waits until it is up; RuntimeError with the end of its log when it does not come up."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                self._command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the test run; it then stops this in order
                env=None if self._env is None else os.environ | self._env,
            )
        deadline = time.monotonic() + self._start_timeout_s
        while not self._is_up():
            if (code := self._child.poll()) is not None:
                self._child = None
                raise RuntimeError(f"{self.name} ended with code {code} at its start:\n{self.end_of_log()}")
            if time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"{self.name} is not up after {self._start_timeout_s:g} s:\n{self.end_of_log()}")
            time.sleep(0.05)

    def kill(self) -> None:
        """Ends it at once, as a crash would (SIGKILL). Nothing if it does not run."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ends it in order (SIGTERM), by force after 10 s. Nothing if it does not run."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self._child is None:
            return
        child, self._child = self._child, None
        child.send_signal(number)
        try:
            child.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()

    def end_of_log(self, n_lines: int = 20) -> str:
        """The last lines that it wrote, each cut to a screen's width or two."""
        return "\n".join(line[:300] for line in self.log.read_text(errors="replace").splitlines()[-n_lines:])
