"""Deliveries without a pause against an engine that is killed again and again.

An engine and a seed → clients in threads that post new and repeated alerts and keep what was answered with 200, and
kills at random moments, the start-up among them. What must be so afterwards is asked in words: ``lost``, ``restarts``.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import queue
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from acceptance.delivery import delivery, resolved
from acceptance.engine import ATTEMPT_TIMEOUT, START_TIMEOUT_S, Engine
from realparts.process import wait_until

N_CLIENTS = 3

PAUSE_S = 0.01
"""The engine shall be busy, not drowned, on two cores that Docker needs too."""

SHARE_AT_START = 0.15
"""Of the kills, while the engine starts."""

LEAKS_UNTIL = 0.8
"""Share of the lives with new leaks: what a kill leaves unclear is waited for while the last ones are lived."""

LIVES_S = (0.02, 0.7)
"""How long it serves before a kill."""

STARTS_S = (0.05, 1.2)
"""How long it has been starting before a kill."""


def restarts_each_leak(n_at_once: int, *, cooldown: str) -> str:
    """A playbook with a run for each leak of a container, and a policy that lets so many act at once."""
    return f"""
playbook: restart
match: [alertname = Leak]
per: [host, container_name, fault]
guard: {{cooldown: {cooldown}}}
steps:
  - name: restart
    action: docker.restart
    params: {{container: "{{{{ labels.container_name }}}}", stop_timeout: 1s}}
    timeout: {ATTEMPT_TIMEOUT}
    retry: {{attempts: 5, wait: 1s, max_wait: 1s, jitter: 0%}}
---
policy: site
max_concurrent_runs: {n_at_once}
"""


@dataclass
class Storm:
    """One engine in it.

    Attributes:
        containers: whose leaks are posted; none = no leaks.
        seed: the same seed kills after the same times.
        n_clients: that post what nobody acts on; one more posts leaks.
        pause_s: between two posts of one client.
        n_alerts: how many alerts each of them has; then it repeats them. None = without end.
        answered: SHA-256 of every body that was answered with 200.
        leaks: label sets of the leaks that were and have not been ended, by fault.
        refused: status → how many were answered otherwise.
    """

    engine: Engine
    containers: Sequence[str]
    seed: int
    n_clients: int = N_CLIENTS
    pause_s: float = PAUSE_S
    n_alerts: int | None = None
    answered: set[str] = field(default_factory=set)
    leaks: dict[str, dict[str, str]] = field(default_factory=dict)
    refused: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._is_over = threading.Event()
        self._wanted: queue.SimpleQueue[tuple[dict[str, str], bool]] = queue.SimpleQueue()
        self._n_leaks = 0

    @contextlib.contextmanager
    def posting(self) -> Iterator[None]:
        """Clients post without a pause, whether the engine runs or not."""
        threads = [threading.Thread(target=self._post_noise, args=(number,)) for number in range(self.n_clients)]
        threads.append(threading.Thread(target=self._post_wanted))
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            for thread in threads:
                thread.join()

    def rage(self, n_kills: int, leaks_per_life: int = 0, is_enough: Callable[[], bool] = lambda: False) -> None:
        """Post and kill; the engine runs at the end, and nobody posts any more.

        Args:
            is_enough: asked after each kill: whether the rest of them can be left out.
        """
        with self.posting():
            for n in range(n_kills):
                self.engine.spawn()
                if n < n_kills * LEAKS_UNTIL:
                    self.want_leaks(leaks_per_life)
                if self._random.random() < SHARE_AT_START:
                    time.sleep(self._random.uniform(*STARTS_S))
                else:
                    wait_until(self.listens, "the engine listens", START_TIMEOUT_S)
                    time.sleep(self._random.uniform(*LIVES_S))
                self.engine.kill()
                if is_enough():
                    break
            self.engine.start()
            wait_until(self._wanted.empty, "the last leaks are posted", 60)

    def lost(self) -> set[str]:
        """What was answered with 200 and is not in the store."""
        return self.answered - {sha256 for (sha256,) in self.engine.query("SELECT body_sha256 FROM delivery")}

    def listens(self) -> bool:
        """Whether the engine takes connections, or has ended."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.engine.port), 1):
            return True
        return self.engine.has_ended()

    def want_leaks(self, n: int) -> None:
        """Let so many new leaks be posted, each until it is answered with 200."""
        for _ in range(n):
            self._n_leaks += 1
            container = self.containers[self._n_leaks % len(self.containers)]
            self.want(container, f"fault-{self._n_leaks}")

    def want(self, container: str, fault: str, alertname: str = "Leak") -> None:
        """Let an alert about a container be posted until it is answered with 200.

        Args:
            fault: no other alert has it.
        """
        labels = {"alertname": alertname, "hostname": "gpu-07", "container_name": container, "fault": fault}
        self._wanted.put((labels, False))

    def want_end(self, fault: str) -> None:
        """Let the end of an alert that was posted be posted too, until it is answered with 200."""
        self._wanted.put((self.leaks.pop(fault), True))

    def _post_noise(self, number: int) -> None:
        """New alerts that nobody acts on, repeats of them, and repeats of leaks as a second Alertmanager sends them."""
        mine = random.Random(f"{self.seed} {number}")
        client = _Client(self)
        posted: list[Mapping[str, str]] = []
        while not self._is_over.is_set():
            known = [*posted[-20:], *[*self.leaks.values()][-20:]]
            labels = {"alertname": "Noise", "client": str(number), "n": str(len(posted))}
            is_full = self.n_alerts is not None and len(posted) >= self.n_alerts
            if known and (is_full or mine.random() < 0.4):
                client.post(delivery(mine.choice(known)))
            elif client.post(delivery(labels)):
                posted.append(labels)
            time.sleep(self.pause_s)
        client.close()

    def _post_wanted(self) -> None:
        """New leaks, and what ends them, each until it is answered with 200."""
        client = _Client(self)
        while not self._is_over.is_set():
            try:
                labels, is_over = self._wanted.get(timeout=0.1)
            except queue.Empty:
                continue
            while not client.post(resolved(labels) if is_over else delivery(labels)):
                if self._is_over.wait(self.pause_s):
                    break
            else:
                if not is_over:
                    self.leaks[labels["fault"]] = labels
        client.close()


class _Client:
    """One connection, made anew whenever it breaks."""

    def __init__(self, storm: Storm) -> None:
        self._storm = storm
        self._connection = http.client.HTTPConnection("127.0.0.1", storm.engine.port, timeout=30)
        self._headers = {
            "Content-Type": "application/json",
            "Authorization": f"Bearer {storm.engine.tokens['deliver']}",
        }

    def post(self, body: bytes) -> bool:
        """Whether it was answered with 200."""
        try:
            self._connection.request("POST", "/api/v1/alertmanager", body, self._headers)
            answer = self._connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            time.sleep(0.02)
            return False
        if answer.status != 200:
            self._storm.refused[answer.status] = self._storm.refused.get(answer.status, 0) + 1
            return False
        self._storm.answered.add(hashlib.sha256(body).hexdigest())
        return True

    def close(self) -> None:
        self._connection.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """One attempt to restart a container, as the log tells it.

    Attributes:
        outcome: "" while it has no end.
        before, after: the container's StartedAt.
    """

    run_id: str
    container: str
    attempt: int
    outcome: str
    reason: str
    before: str
    after: str


def restarts(engine: Engine) -> list[Restart]:
    """Every attempt of a ``docker.restart`` in the log, oldest first."""
    ends = {
        (event["run_id"], event["data"]["step"], event["data"]["attempt"]): event
        for event in engine.events("attempt_finished")
    }
    found = []
    for event in engine.events("attempt_started"):
        data: dict[str, Any] = event["data"]
        if data["action"] != "docker.restart":
            continue
        end = ends.get((event["run_id"], data["step"], data["attempt"]))
        found.append(
            Restart(
                run_id=event["run_id"],
                container=data["params"]["container"],
                attempt=data["attempt"],
                outcome=end["outcome"] if end else "",
                reason=end["data"]["reason"] if end else "",
                before=data["before"].get("started_at", ""),
                after=end["data"]["after"].get("started_at", "") if end else "",
            )
        )
    return found
