"""An address that a server listens on, and as many connections as the machine allows.

Takes host and port → gives a bound socket, so that an address in use is said before anything starts.
"""

from __future__ import annotations

import contextlib
import resource
import socket

from remediator.errors import SettingsError

# Connections that the kernel holds until they are accepted: after an outage they come by the hundred, and one that is
# refused waits for Alertmanager's next try. The kernel cuts it to its own limit (net.core.somaxconn).
BACKLOG = 2048
# Who takes nothing of an answer for so long will not, and is cut off; an idle connection, with nothing to take, is not.
_UNREAD_MS = 15_000


def bind(host: str, port: int) -> socket.socket:
    """Bind it, ready to be served.

    Args:
        host: "" = every address, of IPv4 and IPv6.
        port: 0 = any free one.

    Raises:
        SettingsError: it is not ours, or in use.
    """
    try:
        if host:
            family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            bound = socket.create_server((str(address[0]), port), family=family, backlog=BACKLOG)
        else:
            bound = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=BACKLOG)
    except (OSError, UnicodeError) as error:  # the latter of a name that can be none: with an empty part, or a long one
        why = error.strerror if isinstance(error, OSError) else "that is no name of a host"
        raise SettingsError(f"cannot listen on {host}:{port}: {why}; choose another to listen on") from error
    # What is accepted inherits it. asyncio sets it only on sockets whose protocol it sees, which these hide: each
    # answer (head and body, two writes) would then wait 40 ms for the other side's delayed acknowledgement.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # asyncio waits without end for who takes nothing of an answer, and keeps the descriptor.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNREAD_MS)
    return bound


def address_of(bound: socket.socket) -> str:
    """Where it is bound, as in a URL: ``127.0.0.1:9095``, ``[::1]:9095``."""
    host, port = bound.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def raise_file_limit() -> None:
    """Each idle connection holds a descriptor; systemd gives 1024 unless asked, and allows far more."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
