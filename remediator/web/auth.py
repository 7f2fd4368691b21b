"""Who calls, and what they may do: the ``Authorization`` header, or what a form brings → ``Caller``.

Tokens and passwords come from files, read again when they change, so that rotation needs no restart. They are kept and
compared as digests, each against every one, so that the time says nothing. Nothing of a header is ever logged or
answered. Without any token the engine listens on loopback only, and everybody there may do everything; then a browser
on the same machine must not be the one who asks (``refuse_browsers``).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar
from urllib.parse import urlsplit

from flask import current_app, g, request
from werkzeug.exceptions import UnsupportedMediaType

from remediator.errors import ForbiddenError, SettingsError, UnauthenticatedError
from remediator.listening.stamp import Stamp, stamp_of
from remediator.settings import Role, Settings, is_loopback, read_secret_file
from remediator.telemetry import add_secrets, get_logger

P = ParamSpec("P")
R = TypeVar("R")

EXTENSION = "remediator.auth"

CALLER_KEY = "remediator.caller"
"""In the environ of the door, which has to know the caller before the body: who it is, None for a stranger."""

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Somebody we know.

    Attributes:
        name: of the token or user; "local" when no token is configured.
        is_known: False when no token is configured and it can be anybody on this machine.
    """

    name: str
    roles: frozenset[Role]
    is_known: bool = True

    def actor(self, by: str = "") -> str:
        """The name for the audit: the token's, and the person's that a shared token acts for."""
        if not by:
            return self.name
        return f"{by} (token {self.name})" if self.is_known else f"{by} (no token)"


_ANYBODY_HERE = Caller(name="local", roles=frozenset(Role), is_known=False)


@dataclass(slots=True, kw_only=True)
class _Credential:
    """One entry of the settings and the digests of what its file held when last read."""

    caller: Caller
    file: Path
    prefix: bytes
    stamp: Stamp = None
    digests: tuple[bytes, ...] = ()


class Authenticator:
    """Knows callers by their ``Authorization`` header. For any number of threads."""

    def __init__(self, settings: Settings) -> None:
        """Read every file once.

        Raises:
            SettingsError: a file cannot be read or holds nothing.
        """
        self._credentials = [
            _Credential(
                caller=Caller(name=token.name, roles=frozenset(token.roles)), file=token.file, prefix=b"bearer\0"
            )
            for token in settings.auth.tokens
        ] + [
            _Credential(
                caller=Caller(name=basic.username, roles=frozenset(basic.roles)),
                file=basic.password_file,
                # No colon in a user name, so no two pairs of name and password give the same bytes.
                prefix=b"basic\0" + basic.username.encode() + b":",
            )
            for basic in settings.auth.basic
        ]
        self._lock = threading.Lock()
        for credential in self._credentials:
            _read(credential)

    @property
    def is_open(self) -> bool:
        """Whether no token is configured."""
        return not self._credentials

    @property
    def has_users(self) -> bool:
        """Whether anybody signs in with a name and a password."""
        return any(credential.prefix.startswith(b"basic\0") for credential in self._credentials)

    def identify(self, authorization: str | None) -> Caller | None:
        """The caller, or None for no or unknown credentials.

        Args:
            authorization: the header as it came, latin-1 as WSGI has it; None when absent.
        """
        return self._known(_digest_of(authorization or ""))

    def identify_token(self, token: str) -> Caller | None:
        """As ``identify``, for a token that somebody typed."""
        return self._known(_digest(b"bearer\0", token.strip()) if token.strip() else None)

    def identify_user(self, username: str, password: str) -> Caller | None:
        """As ``identify``, for a user and a password that somebody typed."""
        return self._known(_digest(b"basic\0", f"{username}:{password}"))

    def _known(self, given: bytes | None) -> Caller | None:
        if self.is_open:
            return _ANYBODY_HERE
        if given is None:
            return None
        self._read_changed_files()
        found = None
        for credential in self._credentials:
            for digest in credential.digests:
                if hmac.compare_digest(digest, given) and found is None:
                    found = credential.caller
        return found

    def _read_changed_files(self) -> None:
        for credential in self._credentials:
            if stamp_of(credential.file) == credential.stamp:
                continue
            with self._lock:
                try:
                    _read(credential)
                except SettingsError as error:
                    # A file that is being written is empty for a moment, and a 401 loses alerts until Alertmanager's
                    # next interval: what was valid stays so until the file holds something else.
                    _log.error("token file not read; its last content stays valid", problem=str(error))


def needs(role: Role) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a view be called only by somebody with this role; ``g.caller`` is who it is.

    What the door found wrong with the body is raised after that, so that strangers learn only 401.
    """

    def decorate(view: Callable[P, R]) -> Callable[P, R]:
        @wraps(view)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            if CALLER_KEY in request.environ:
                caller: Caller | None = request.environ[CALLER_KEY]
            else:
                authenticator: Authenticator = current_app.extensions[EXTENSION]
                caller = authenticator.identify(request.headers.get("Authorization"))
            if caller is None:
                raise UnauthenticatedError("no valid token; send Authorization: Bearer TOKEN, or basic credentials")
            if role not in caller.roles:
                raise ForbiddenError(f"{caller.name} may not do this: it needs the role {role}")
            g.caller = caller
            problem: Exception | None = request.environ.get("remediator.problem")
            if problem is not None:
                raise problem
            return view(*args, **kwargs)

        checked.role = role  # type: ignore[attr-defined]
        return checked

    return decorate


def refuse_browsers(*, needs_json: bool) -> None:
    """Keep web pages from changing anything through a browser on this machine.

    A page can post to loopback without asking, but not with ``application/json``; and a name of its own that it lets
    point to 127.0.0.1 stands in ``Host``.

    Args:
        needs_json: whether the body must say that it is JSON.

    Raises:
        ForbiddenError: no token is configured and ``Host`` names no loopback address.
        UnsupportedMediaType: it must be JSON and does not say so.
    """
    if not g.caller.is_known and not _names_loopback(request.host):
        raise ForbiddenError("without tokens this answers to localhost, 127.0.0.1 and [::1] alone; configure a token")
    if needs_json and request.mimetype != "application/json":
        raise UnsupportedMediaType("send Content-Type: application/json")


def _names_loopback(host: str) -> bool:
    try:
        return is_loopback(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False


def _digest(kind: bytes, secret: str) -> bytes:
    return hashlib.sha256(kind + secret.encode("utf-8", "replace")).digest()


def _digest_of(authorization: str) -> bytes | None:
    scheme, _, value = authorization.strip().partition(" ")
    data = value.strip().encode("latin-1", "replace")
    match scheme.lower():
        case "bearer" if data:
            return hashlib.sha256(b"bearer\0" + data).digest()
        case "basic":
            try:
                pair = base64.b64decode(data, validate=True)
            except binascii.Error:
                return None
            return hashlib.sha256(b"basic\0" + pair).digest()
        case _:
            return None


def _read(credential: _Credential) -> None:
    # The stamp before the content: what changes in between is read again next time.
    stamp = stamp_of(credential.file)
    try:
        secrets = read_secret_file(credential.file)
    finally:
        credential.stamp = stamp
    add_secrets(secrets)
    credential.digests = tuple(hashlib.sha256(credential.prefix + secret.encode()).digest() for secret in secrets)
