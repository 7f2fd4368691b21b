"""A real server on a real socket, with the engine's facade as a double behind it."""

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from recording_app import RecordingApp
from remediator.settings import load_settings
from remediator.web.server import Running, start_in_thread


@dataclass
class Served:
    """A running server and the double behind it."""

    engine: RecordingApp
    running: Running

    def connect(self) -> socket.socket:
        host, _, port = self.running.address.rpartition(":")
        return socket.create_connection((host, int(port)), timeout=20)

    def exchange(self, raw: bytes) -> bytes:
        """Send these bytes and read until the server closes; add ``Connection: close`` to end it."""
        with self.connect() as connection:
            connection.sendall(raw)
            return read_all(connection)


def read_all(connection: socket.socket) -> bytes:
    """All that comes until the server closes."""
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


Serve = Callable[..., Served]


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Start a server with these settings."""
    monkeypatch.chdir(tmp_path)
    with ExitStack() as stack:

        def start(**overrides: Any) -> Served:
            engine = RecordingApp(load_settings(environ={}, overrides=overrides))
            return Served(engine, stack.enter_context(start_in_thread(engine)))  # type: ignore[arg-type]

        yield start
