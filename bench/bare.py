"""What the engine is compared with, as programs of their own: ``python -m bench.bare flask|echo PORT TOKEN``.

``flask``: a handler that answers with JSON and stores nothing, behind the engine's own door: the same server, the same
look at the token. ``echo``: as little as can be an HTTP server, to see what the load itself can do.
"""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
import tempfile
from pathlib import Path

import uvicorn
from flask import Flask, Response, jsonify, request

from bench.deliveries import PATH
from remediator.listening.head import HeadDeadline
from remediator.settings import AuthSettings, Role, Settings, TokenSettings
from remediator.web.auth import EXTENSION, Authenticator, needs
from remediator.web.door import Door
from remediator.web.server import COLLECT_AFTER


def serve_flask(port: int, token: str) -> None:
    """Serve the bare handler until killed."""
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(token)
        file.flush()
        tokens = (TokenSettings(name="bench", roles=(Role.DELIVER,), file=Path(file.name)),)
        authenticator = Authenticator(Settings(auth=AuthSettings(tokens=tokens)))
        flask_app = Flask("bare", static_folder=None)
        flask_app.extensions[EXTENSION] = authenticator

        @flask_app.post(PATH)
        @needs(Role.DELIVER)
        def post_delivery() -> Response:
            return jsonify(delivery_id=len(request.get_data()), alerts=3, bad_alerts=0)

        door = Door(flask_app, authenticator=authenticator, max_body=16 * 2**20)
        bound = socket.create_server(("127.0.0.1", port), backlog=2048)
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # As remediator.web.server has it.
        gc.set_threshold(*COLLECT_AFTER)
        config = uvicorn.Config(
            door, interface="asgi3", loop="asyncio", http=HeadDeadline, ws="none", lifespan="off", log_config=None,
            access_log=False, proxy_headers=False, server_header=False,
        )  # fmt: skip
        uvicorn.Server(config).run(sockets=[bound])


class _Echo(asyncio.Protocol):
    """Answers each request that ends as its ``Content-Length`` says, and looks at nothing else."""

    _ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._received = b""

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        if end and len(body) >= int(head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0]):
            self._received = b""
            self._transport.write(self._ANSWER)


async def serve_echo(port: int) -> None:
    """Serve until killed."""
    server = await asyncio.get_running_loop().create_server(_Echo, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    kind, its_port, its_token = sys.argv[1:]
    if kind == "flask":
        serve_flask(int(its_port), its_token)
    else:
        asyncio.run(serve_echo(int(its_port)))
