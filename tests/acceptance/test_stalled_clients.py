"""Clients that take a connection and never let go of it, beside an honest sender.

None of them may hold a thread, delay a delivery, or keep a file descriptor of the engine for good.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from acceptance.conftest import EngineFactory
from acceptance.delivery import delivery
from acceptance.engine import Engine
from realparts.process import wait_until

N_OF_EACH = 100

ANSWERED_WITHIN_S = 10.0
"""Milliseconds on a quiet machine. A sender that had to wait for one of 300 deadlines would take longer than this."""

CLOSED_WITHIN_S = 60.0
"""The deadlines are 10 s."""

NOISE = {"alertname": "Noise"}


@dataclass
class Crowd:
    """Clients on sockets of their own, in one thread: what they hold open, and what they are told.

    Attributes:
        answers: by kind of client, what each was told before its connection was closed by the engine.
        dripping: those that send a byte a second, until theirs is closed.
    """

    port: int
    answers: dict[str, list[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._said: dict[socket.socket, bytes] = {}
        self._kinds: dict[socket.socket, str] = {}
        self._dripping: set[socket.socket] = set()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._live)

    def join(self, kind: str, first: bytes, *, drips: bool = False) -> None:
        """One more client, that sends this and then nothing, or a byte a second."""
        client = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        client.sendall(first)
        client.setblocking(False)
        self._said[client], self._kinds[client] = b"", kind
        if drips:
            self._dripping.add(client)
        self._selector.register(client, selectors.EVENT_READ)

    @contextmanager
    def standing(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            self._thread.join()
            for client in self._said:
                client.close()

    @property
    def n_open(self) -> int:
        """How many the engine has not closed."""
        return len(self._said)

    def _live(self) -> None:
        next_drip = time.monotonic() + 1
        while not self._is_over.is_set():
            for key, _ in self._selector.select(0.1):
                assert isinstance(key.fileobj, socket.socket)
                self._hear(key.fileobj)
            if time.monotonic() >= next_drip:
                next_drip += 1
                for client in [*self._dripping]:
                    with suppress(OSError):  # closed by the engine; the next look says so
                        client.send(b"x")

    def _hear(self, client: socket.socket) -> None:
        try:
            part = client.recv(65536)
        except ConnectionResetError:  # a drop was on its way
            part = b""
        self._said[client] += part
        if not part:
            self._selector.unregister(client)
            client.close()
            self._dripping.discard(client)
            self.answers.setdefault(self._kinds.pop(client), []).append(self._said.pop(client))


def memory_mb(engine: Engine) -> float:
    """The most that it ever held."""
    return int(Path(f"/proc/{engine.pid}/status").read_text().split("VmHWM:")[1].split()[0]) / 1024


def n_descriptors(engine: Engine) -> int:
    return len([*Path(f"/proc/{engine.pid}/fd").iterdir()])


def n_sockets_of_callers(engine: Engine) -> int:
    """Accepted connections that the engine holds."""
    inodes = set()
    for link in Path(f"/proc/{engine.pid}/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            inodes.add(link.readlink().name)
    local = f":{engine.port:04X}"
    n_found = 0
    for line in Path(f"/proc/{engine.pid}/net/tcp").read_text().splitlines()[1:]:
        columns = line.split()
        is_listening = columns[3] == "0A"
        n_found += columns[1].endswith(local) and not is_listening and f"socket:[{columns[9]}]" in inodes
    return n_found


def deliver_many(engine: Engine, n: int) -> list[tuple[int, float]]:
    """Status and seconds of deliveries one after the other, each on a connection of its own."""
    answers = []
    for number in range(n):
        body = delivery({**NOISE, "n": str(number)})
        started = time.monotonic()
        answers.append((engine.deliver(body), time.monotonic() - started))
    return answers


def test_delivery_when_300_clients_stall_then_answered_and_they_are_closed_and_leave_nothing(
    engine_factory: EngineFactory,
) -> None:
    engine = engine_factory({})
    engine.start()
    quiet = deliver_many(engine, 20)
    n_before = n_descriptors(engine)
    wait_until(lambda: n_sockets_of_callers(engine) == 0, "nobody is connected", 30)

    head = (
        "POST /api/v1/alertmanager HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {engine.tokens['deliver']}\r\n"
    ).encode()
    whole_head = head + b"Content-Length: 1000\r\n\r\n"
    crowd = Crowd(engine.port)
    for number in range(N_OF_EACH):
        crowd.join("half a head", head[: len(head) // 2])
        crowd.join("half a body", whole_head + b'{"version"')
        if number % 2:
            crowd.join("a dripping head", head, drips=True)
        else:
            crowd.join("a dripping body", whole_head, drips=True)
    with crowd.standing():
        wait_until(lambda: n_sockets_of_callers(engine) == 3 * N_OF_EACH, "all are connected", 30)
        beside = deliver_many(engine, 20)
        n_beside = crowd.n_open
        health = engine.ask("GET", "/healthz", "").status_code
        status = engine.command("status")
        wait_until(lambda: crowd.n_open == 0, "the engine has closed them all", CLOSED_WITHIN_S)

    print(f"slowest of 20: {max(s for _, s in quiet):.3f} s alone, {max(s for _, s in beside):.3f} s beside them")
    assert n_beside == 3 * N_OF_EACH, "they stood there all the while"
    assert [code for code, _ in quiet + beside] == [200] * 40
    assert max(seconds for _, seconds in beside) < ANSWERED_WITHIN_S
    assert health == 200
    assert status.code == 0, status.err
    assert {kind: len(said) for kind, said in crowd.answers.items()} == {
        "half a head": 100, "half a body": 100, "a dripping head": 50, "a dripping body": 50,
    }  # fmt: skip
    assert set(crowd.answers["half a head"] + crowd.answers["a dripping head"]) == {b""}
    for said in crowd.answers["half a body"]:
        assert said.startswith(b"HTTP/1.1 503 "), said
        assert said.endswith(b'{"error":"the body took more than 10 s; send it again"}\n')
    # A drop that is on its way when the connection closes takes the answer along, so only some of them have it.
    assert {said[:13] for said in crowd.answers["a dripping body"]} <= {b"HTTP/1.1 503 ", b""}
    wait_until(lambda: n_sockets_of_callers(engine) == 0, "no connection is left", 30)
    wait_until(lambda: n_descriptors(engine) <= n_before, "no file descriptor is left", 30)
    assert deliver_many(engine, 1)[0][0] == 200


def test_delivery_when_clients_take_no_answer_then_answered_and_they_are_cut_off_and_leave_nothing(
    engine_factory: EngineFactory,
) -> None:
    """Each asks for far more than the kernel holds for it, and reads none of it."""
    engine = engine_factory({})
    engine.start()
    deliver_many(engine, 1)
    n_before = n_descriptors(engine)
    call = b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with ExitStack() as deaf:
        for _ in range(10):
            client = deaf.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", engine.port))
            client.settimeout(0.2)
            with suppress(OSError):  # it takes no more, or is cut off already
                client.sendall(call * 1000)
        beside = deliver_many(engine, 20)
        wait_until(lambda: n_sockets_of_callers(engine) == 0, "the engine has closed them", CLOSED_WITHIN_S)
    assert [code for code, _ in beside] == [200] * 20
    assert max(seconds for _, seconds in beside) < ANSWERED_WITHIN_S
    wait_until(lambda: n_descriptors(engine) <= n_before, "no file descriptor is left", 30)


def test_delivery_when_clients_send_thousands_of_calls_at_once_then_they_are_cut_off_and_cost_nothing(
    engine_factory: EngineFactory,
) -> None:
    """Without waiting for an answer to any. A server that queues them holds hundreds of megabytes for 20 strangers."""
    engine = engine_factory({})
    engine.start()
    deliver_many(engine, 1)
    before_mb = memory_mb(engine)
    with ExitStack() as hasty:
        for _ in range(20):
            client = hasty.enter_context(socket.create_connection(("127.0.0.1", engine.port)))
            client.settimeout(0.2)
            with suppress(OSError):  # it takes no more, or is cut off already
                client.sendall(b"GET / HTTP/1.1\r\n\r\n" * 14_000)
        beside = deliver_many(engine, 20)
        wait_until(lambda: n_sockets_of_callers(engine) == 0, "the engine has closed them", CLOSED_WITHIN_S)
    assert [code for code, _ in beside] == [200] * 20
    assert max(seconds for _, seconds in beside) < ANSWERED_WITHIN_S
    assert memory_mb(engine) < before_mb + 50
