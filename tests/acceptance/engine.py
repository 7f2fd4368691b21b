"""The engine as its users have it: a process of its own with a settings file, tokens, a store and a port.

A folder and what the settings shall say → ``remediator serve`` as a child, its logs kept, with the words that tests
use on it: deliver, ask, run a command, stop, kill, start again. It ends only the child that it started.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from realparts.process import free_port, wait_until

START_TIMEOUT_S = 60.0
"""It is up in little over a second; a machine under load takes ten times as long."""

ROLES = {"deliver": ("deliver",), "view": ("view",), "operate": ("operate", "view")}
"""Tokens by name, with what each may do: a person who operates looks too."""

ATTEMPT_TIMEOUT = "31s"
"""The shortest that an attempt may have: a second for the container to stop, and what the action adds to it."""

RESTART = f"""
playbook: restart
match: [alertname = Leak]
per: [host, container_name]
guard: {{cooldown: 0s}}
steps:
  - name: restart
    action: docker.restart
    params: {{container: "{{{{ labels.container_name }}}}", stop_timeout: 1s}}
    timeout: {ATTEMPT_TIMEOUT}
    retry: {{attempts: 3, wait: 1s, max_wait: 2s, jitter: 0%}}
report: {{to: [people]}}
escalate: {{to: [people]}}
"""
"""Restarts what leaks, at once and as often as a new alert says so; people are told of each end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandEnd:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """JSON Lines on stdout."""
        return [json.loads(line) for line in self.out.splitlines()]


class Engine:
    """One engine. ``start`` it before use; it keeps folder, port and store over restarts.

    Args:
        folder: gets the settings, playbooks, tokens, store and logs.
        playbooks: file name → content.
        docker_url: of the one Docker host, ``gpu-07``.
        notify_url: apprise URL of the one target, ``people``.
        settings: more lines of TOML, before the first table.
        tables: more TOML after it.
        with_tokens: one token for each role, in files; without, it takes anybody on loopback.
        command: what to run instead of ``python -m remediator``.
        store: the database; default below ``folder``.
        listen: other than loopback.
        environ: more variables.
    """

    def __init__(
        self,
        folder: Path,
        playbooks: Mapping[str, str],
        *,
        docker_url: str = "unix:///nowhere/docker.sock",
        notify_url: str = "json://127.0.0.1:9/",
        settings: str = "",
        tables: str = "",
        with_tokens: bool = True,
        command: Sequence[str] = (sys.executable, "-m", "remediator"),
        store: Path | None = None,
        listen: str = "127.0.0.1",
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.store = store or folder / "store" / "remediator.db"
        self.config = folder / "remediator.toml"
        self.playbooks = folder / "playbooks"
        self.stdout = folder / "engine.out"
        self.stderr = folder / "engine.err"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.webhook = f"{self.url}/api/v1/alertmanager"
        self.tokens = {role: f"token-of-{role}-{os.urandom(8).hex()}" for role in ROLES} if with_tokens else {}
        self._command = [*command]
        self._environ = _environ() | dict(environ or {})
        self.child: subprocess.Popen[bytes] | None = None
        self.was_up = False
        self.playbooks.mkdir(parents=True)
        for name, text in playbooks.items():
            self.write_playbook(text, name)
        token_tables = ""
        for role, token in self.tokens.items():
            self.token_file(role).write_text(token + "\n")
            token_tables += (
                f'[[auth.tokens]]\nname = "the-{role}"\nfile = "{self.token_file(role)}"\n'
                f"roles = [{', '.join(f'{word!r}' for word in ROLES[role])}]\n"
            )
        self.config.write_text(
            f'store_url = "sqlite:///{self.store}"\n'
            f'listen = "{listen}:{self.port}"\n'
            f'playbooks = ["{self.playbooks}"]\n'
            f"{settings}\n"
            f'[docker.hosts.gpu-07]\nurl = "{docker_url}"\n'
            f'[notify.people]\nurls = ["{notify_url}"]\n'
            f"{token_tables}{tables}"
        )
        tomllib.loads(self.config.read_text())

    # -- its life

    def token_file(self, role: str) -> Path:
        """The file with that role's token."""
        return self.folder / f"{role}.token"

    def write_playbook(self, text: str, name: str = "restart.yaml") -> None:
        """Put a playbook file in place in one step, as an editor does."""
        new = self.playbooks / f".{name}.new"
        new.write_text(text)
        new.rename(self.playbooks / name)

    def spawn(self) -> None:
        """Start the process and wait for nothing."""
        with self.stdout.open("ab") as out, self.stderr.open("ab") as err:
            self.child = subprocess.Popen(
                [
                    "setpriv",
                    "--pdeathsig",
                    "KILL",
                    *self._command,
                    "serve",
                    "--config",
                    str(self.config),
                ],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                env=self._environ,
            )

    def start(self) -> None:
        """Start it and wait until it says that it is ready; RuntimeError with its log when it does not."""
        self.spawn()
        try:
            wait_until(lambda: self.is_ready() or self.has_ended(), "the engine is up", START_TIMEOUT_S)
        except TimeoutError as error:
            self.kill()
            raise RuntimeError(f"{error}:\n{self.stderr.read_text()[-3000:]}") from None
        if self.has_ended():
            raise RuntimeError(f"the engine ended with {self.wait()}:\n{self.stderr.read_text()[-3000:]}")
        self.was_up = True

    def refuses_to_start(self) -> tuple[int, str]:
        """Start one that is to end by itself: its exit code, and what it wrote to stderr."""
        self.spawn()
        return self.wait(), self.stderr.read_text()

    @property
    def pid(self) -> int:
        """Of the running process."""
        assert self.child is not None, "the engine does not run"
        return self.child.pid

    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self.child is None or self.child.poll() is not None

    def wait(self, within_s: float = 90.0) -> int:
        """Its exit code."""
        assert self.child is not None, "the engine does not run"
        code = self.child.wait(within_s)
        self.child = None
        return code

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def terminate(self, within_s: float = 90.0) -> int:
        """SIGTERM; its exit code."""
        self.signal(signal.SIGTERM)
        return self.wait(within_s)

    def kill(self) -> None:
        """SIGKILL, as a crash. Nothing if it does not run."""
        if self.child is not None:
            self.child.kill()
            self.child.wait()
            self.child = None

    # -- asked over HTTP

    def ask(
        self, method: str, path: str, role: str = "view", *, timeout_s: float = 60.0, **how: Any
    ) -> requests.Response:
        """One request, redirects not followed."""
        headers = {"Authorization": f"Bearer {self.tokens[role]}"} if self.tokens and role else {}
        return requests.request(
            method, self.url + path, headers=headers, timeout=timeout_s, allow_redirects=False, **how
        )

    def get(self, path: str, role: str = "view", **query: Any) -> Any:
        """What a GET answers, decoded."""
        answer = self.ask("GET", path, role, params=query)
        answer.raise_for_status()
        return answer.json()

    def is_ready(self) -> bool:
        """Whether /readyz says so."""
        with contextlib.suppress(requests.RequestException):
            return self.ask("GET", "/readyz", "", timeout_s=10).status_code == 200
        return False

    def checks(self) -> dict[str, str]:
        """The checks of /readyz."""
        checks: dict[str, str] = self.ask("GET", "/readyz", "").json()["checks"]
        return checks

    def deliver(self, body: bytes, *, timeout_s: float = 60.0) -> int:
        """POST a body to the webhook; the status."""
        return self.ask("POST", "/api/v1/alertmanager", "deliver", data=body, timeout_s=timeout_s).status_code

    def runs(self) -> list[dict[str, Any]]:
        """All runs, oldest first."""
        found: list[dict[str, Any]] = self.get("/api/v1/runs", state="all", limit=1000)
        return found[::-1]

    def metrics(self) -> str:
        """The metrics page."""
        return self.ask("GET", "/metrics").text

    # -- commands and files

    def command(self, *arguments: str, role: str = "operate") -> CommandEnd:
        """``remediator ARGUMENTS`` as a person runs it, with that role's token."""
        token = {"REMEDIATOR_TOKEN_FILE": str(self.token_file(role))} if self.tokens else {}
        done = subprocess.run(
            [sys.executable, "-m", "remediator", "--config", str(self.config), *arguments],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=120,
            env=self._environ | token,
            check=False,
        )
        return CommandEnd(code=done.returncode, out=done.stdout, err=done.stderr)

    def query(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Rows of the store, read behind the engine's back."""
        with contextlib.closing(sqlite3.connect(f"file:{self.store}?mode=ro", uri=True, timeout=30)) as conn:
            return conn.execute(statement, values).fetchall()

    def events(self, kind: str = "") -> list[dict[str, Any]]:
        """The audit's events, oldest first: the columns, and ``data`` from the hashed body."""
        columns = ("seq", "at", "type", "actor", "run_id", "n", "subject_id", "playbook", "target", "outcome")
        rows = self.query(f"SELECT {', '.join(columns)}, body FROM audit WHERE ? IN ('', type) ORDER BY seq", kind)
        return [dict(zip(columns, row, strict=False)) | {"data": json.loads(row[-1])["data"]} for row in rows]

    def log_lines(self) -> list[str]:
        """What it wrote to stderr."""
        return self.stderr.read_text().splitlines()


def _environ() -> dict[str, str]:
    """Ours without what the tests themselves are set by."""
    return {name: value for name, value in os.environ.items() if not name.startswith("REMEDIATOR_")}
