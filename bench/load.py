"""The load, in a process of its own: one thread, blocking sockets, epoll; a request is a few dozen microseconds.

``python -m bench.load JSON`` with the fields of ``Load`` → posts → one line of JSON (``Report``).

Closed loop: each of so many clients sends its next delivery when it has its answer. Open loop: deliveries are due at
fixed times whatever the other side does, and their latency counts from the time they were due, so that a stall shows
in all that had to wait for it (no coordinated omission). Most deliveries repeat groups that were sent before, as
Alertmanager's do; every tenth brings a new group.
"""

from __future__ import annotations

import json
import select
import socket
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field

from bench.deliveries import PATH, Groups
from bench.result import percentile

KNOWN_GROUPS = 300
"""Groups that fire already when the load begins."""

NEW_EVERY = 10
"""Each so many deliveries bring a group that was never there: three new label sets and a plan."""

MAX_CONNECTIONS = 256
"""Of the open loop. When all wait for an answer what is due waits too, and its clock runs."""

PATIENCE_S = 30.0
"""For the last answers; what has none by then is an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What to send.

    Attributes:
        port: on 127.0.0.1.
        n_clients: of a closed loop; of an open one the connections to begin with.
        rate: deliveries a second of an open loop, 0 for a closed one.
        n_most: stop after so many, 0 = when the time is over.
        new_every: see ``NEW_EVERY``; 1 = every group is new, 0 = none is.
        first_new: number of the first new group.
    """

    port: int
    token: str
    seconds: float
    n_clients: int
    rate: int = 0
    n_most: int = 0
    new_every: int = NEW_EVERY
    first_new: int = KNOWN_GROUPS
    path: str = PATH


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What came of it; latencies in milliseconds.

    Attributes:
        per_s: answers with 200, by the time until the last of them.
        p99_late_ms: of an open loop: from the due time until it was sent, by this process' own lateness or because no
            connection was free. Part of the latencies.
        cpu: share of one core that this process used.
        errors: what else than 200 came, with how often.
    """

    n_sent: int
    n_ok: int
    seconds: float
    per_s: float
    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float
    p99_late_ms: float
    cpu: float
    errors: dict[str, int]

    @property
    def n_errors(self) -> int:
        """Of all kinds."""
        return sum(self.errors.values())


def run_load(load: Load) -> Report:
    """Send it from a process of its own.

    Raises:
        subprocess.CalledProcessError: it failed; what it said is on stderr.
    """
    command = [sys.executable, "-m", "bench.load", json.dumps(asdict(load))]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return Report(**json.loads(done.stdout))


@dataclass(slots=True, eq=False)
class _Client:
    connection: socket.socket
    due_at: float = 0.0
    answer: bytearray = field(default_factory=bytearray)


class _Sender:
    def __init__(self, load: Load) -> None:
        self._load = load
        self._groups = Groups()
        self._head = (
            f"POST {load.path} HTTP/1.1\r\nHost: 127.0.0.1:{load.port}\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {load.token}\r\nUser-Agent: bench\r\n"
            f"Content-Length: {len(self._groups.body(0))}\r\n\r\n"
        ).encode()
        self._poll = select.epoll()
        self._clients: dict[int, _Client] = {}
        self._idle: list[_Client] = []
        self._latencies: list[float] = []
        self._late: list[float] = []
        self._errors: Counter[str] = Counter()
        self._n_sent = 0

    def run(self) -> Report:
        load = self._load
        for _ in range(load.n_clients):
            self._connect()
        cpu_before, began = time.process_time(), time.perf_counter()
        ends_at = began + load.seconds
        n_most = load.n_most or (round(load.rate * load.seconds) if load.rate else sys.maxsize)
        last_ok_at = began
        while True:
            now = time.perf_counter()
            while self._n_sent < n_most and now < ends_at + PATIENCE_S:
                due_at = began + self._n_sent / load.rate if load.rate else now
                if due_at > now or (not load.rate and now >= ends_at) or not self._has_idle():
                    break
                self._send(due_at, now)
                now = time.perf_counter()
            n_flying = len(self._clients) - len(self._idle)
            has_more = self._n_sent < n_most and (bool(load.rate) or now < ends_at)
            if (not n_flying and not has_more) or now > ends_at + PATIENCE_S:
                break
            wait_s = 1.0
            if load.rate and has_more and self._idle:
                wait_s = max(0.0, began + self._n_sent / load.rate - now)
            # epoll waits in whole milliseconds, select in microseconds: one asks the other.
            select.select([self._poll], [], [], wait_s)
            for number, _ in self._poll.poll(0):
                if self._receive(self._clients[number]):
                    last_ok_at = time.perf_counter()
        n_unanswered = len(self._clients) - len(self._idle)
        if n_unanswered:
            self._errors["no answer"] += n_unanswered
        seconds = max(last_ok_at - began, 1e-9)
        milliseconds = [latency * 1000 for latency in self._latencies] or [0.0]
        return Report(
            n_sent=self._n_sent,
            n_ok=len(self._latencies),
            seconds=seconds,
            per_s=len(self._latencies) / seconds,
            p50_ms=percentile(milliseconds, 50),
            p99_ms=percentile(milliseconds, 99),
            p999_ms=percentile(milliseconds, 99.9),
            max_ms=max(milliseconds),
            p99_late_ms=percentile(self._late, 99) * 1000 if self._late else 0.0,
            cpu=(time.process_time() - cpu_before) / (time.perf_counter() - began),
            errors=dict(self._errors),
        )

    def _connect(self) -> None:
        connection = socket.create_connection(("127.0.0.1", self._load.port), timeout=PATIENCE_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client = _Client(connection)
        self._clients[connection.fileno()] = client
        self._poll.register(connection, select.EPOLLIN)
        self._idle.append(client)

    def _has_idle(self) -> bool:
        if not self._idle and self._load.rate and len(self._clients) < MAX_CONNECTIONS:
            self._connect()
        return bool(self._idle)

    def _send(self, due_at: float, now: float) -> None:
        client = self._idle.pop()
        client.due_at = due_at
        if self._load.rate:
            self._late.append(now - due_at)
        number, every = self._n_sent, self._load.new_every
        is_new = bool(every) and number % every == 0
        body = self._groups.body(self._load.first_new + number if is_new else number % KNOWN_GROUPS)
        self._n_sent += 1
        try:
            client.connection.sendall(self._head + body)
        except OSError as error:
            self._lose(client, type(error).__name__)

    def _receive(self, client: _Client) -> bool:
        """Whether it was a whole answer with 200."""
        try:
            received = client.connection.recv(65536)
        except OSError as error:
            self._lose(client, type(error).__name__)
            return False
        if not received:
            self._lose(client, "closed")
            return False
        answer = client.answer
        answer += received
        head, end, body = answer.partition(b"\r\n\r\n")
        if not end:
            return False
        length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        if len(body) < int(length or 0):
            return False
        status = bytes(head[9:12])
        answer.clear()
        self._idle.append(client)
        if status != b"200":
            self._errors[status.decode("latin-1")] += 1
            return False
        self._latencies.append(time.perf_counter() - client.due_at)
        return True

    def _lose(self, client: _Client, why: str) -> None:
        self._errors[why] += 1
        del self._clients[client.connection.fileno()]
        client.connection.close()
        self._connect()


if __name__ == "__main__":
    print(json.dumps(asdict(_Sender(Load(**json.loads(sys.argv[1]))).run())))
