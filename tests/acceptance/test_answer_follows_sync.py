"""The real process, seen from outside: each delivery is written and synced before its 200 leaves.

From strace: the body comes in on a socket, is written to the log of the database, that file is synced in a call that
began afterwards and has ended, and only then the answer goes out on the same socket.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from acceptance.conftest import EngineFactory
from acceptance.delivery import delivery
from acceptance.engine import Engine
from realparts.process import wait_until

pytestmark = pytest.mark.system

N_DELIVERIES = 40
N_SENDERS = 4

_CALL = re.compile(r"(?P<thread>\d+) +(?:(?P<name>\w+)\((?P<fd>\d+)|<\.\.\. (?P<ended>\w+) resumed>)(?P<rest>.*)")
_NAME = re.compile(r"delivery-\d+-of-this-test")


def test_delivery_when_answered_with_200_then_it_was_written_and_synced_before(engine_factory: EngineFactory) -> None:
    engine = engine_factory()
    engine.start()

    assert _answers(engine) == {"synced": N_DELIVERIES}


def test_delivery_when_nothing_is_synced_then_the_test_above_sees_it(engine_factory: EngineFactory) -> None:
    wrapper = Path(__file__).with_name("never_syncs.py")
    engine = engine_factory(command=(sys.executable, str(wrapper)))
    engine.start()

    assert _answers(engine) == {"written": N_DELIVERIES}


def _answers(engine: Engine) -> dict[str, int]:
    """How far each delivery was when its answer left: state → how many."""
    trace = engine.folder / "trace"
    with _traced(engine, trace):
        senders = [
            threading.Thread(target=_send, args=(engine, range(first, N_DELIVERIES, N_SENDERS)))
            for first in range(N_SENDERS)
        ]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
    return _states_at_the_answer(trace.read_text(errors="replace").splitlines())


def _send(engine: Engine, numbers: range) -> None:
    for number in numbers:
        # Several times in the body, so that one of them lies whole in one page of the file.
        name = f"delivery-{number}-of-this-test"
        assert engine.deliver(delivery(*({"alertname": name, "n": str(n)} for n in range(4)))) == 200


@contextmanager
def _traced(engine: Engine, trace: Path) -> Iterator[None]:
    calls = "trace=recvfrom,sendto,pwrite64,fdatasync,fsync"
    strace = subprocess.Popen(
        ["strace", "-f", "-p", str(engine.pid), "-o", str(trace), "-s", "5000", "-e", calls, "-e", "signal=none"],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert strace.stderr is not None
        assert "attached" in strace.stderr.readline()
        assert engine.deliver(delivery({"alertname": "FirstOfAll"})) == 200
        wait_until(lambda: "FirstOfAll" in trace.read_text(errors="replace"), "strace sees the engine", 30)
        yield
    finally:
        strace.send_signal(signal.SIGINT)
        strace.communicate(timeout=30)


def _states_at_the_answer(lines: list[str]) -> dict[str, int]:
    waiting: dict[str, str] = {}  # socket → the delivery that came in on it
    states: dict[str, str] = {}  # delivery → came, written, synced
    syncing: dict[str, list[str]] = {}  # thread → what was written when its sync began
    answered: dict[str, int] = {}
    under_way: dict[str, str] = {}  # thread → the socket that it reads from
    for call in filter(None, map(_CALL.match, lines)):
        name, fd, rest, thread = call["name"] or call["ended"], call["fd"], call["rest"], call["thread"]
        is_whole = "<unfinished" not in rest
        if name == "recvfrom":
            fd = fd or under_way.pop(thread, "")
            under_way |= {} if is_whole else {thread: fd}
            found = _NAME.search(rest)
            if found:
                waiting[fd] = found[0]
                states[found[0]] = "came"
        elif name == "pwrite64" and call["name"]:
            for each in _NAME.findall(rest):
                if states.get(each) == "came":
                    states[each] = "written"
        elif name in ("fdatasync", "fsync"):
            if call["name"]:
                syncing[thread] = [each for each, state in states.items() if state == "written"]
            if is_whole:
                states |= dict.fromkeys(syncing.pop(thread, []), "synced")
        elif name == "sendto" and call["name"] and "HTTP/1.1 200" in rest and fd in waiting:
            state = states[waiting.pop(fd)]
            answered[state] = answered.get(state, 0) + 1
    return answered
