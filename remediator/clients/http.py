"""One question over HTTP to a neighbour's API: who we are, how long it may take, how much it may say, what failed.

Takes a request → the status and the whole body, or raises what ``ports`` promises. The body is read as it is sent:
never unpacked, so that a small answer cannot become a big one. Redirects are not followed: they lead to a login page,
or away with our token.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import requests
import requests.adapters
import requests.auth
import requests.exceptions
import urllib3.connection
import urllib3.exceptions

from remediator.core.action import JsonValue
from remediator.errors import AccessDeniedError, ActionError, SettingsError, TransientActionError

_CHUNK: Final = 2**16

_GRACE_S: Final = 0.5
"""Beyond the time for an answer, before it is cut off: whoever is late for a read is told so first."""


class Failed(StrEnum):
    """Why there is no answer, in words for people."""

    AWAY = "cannot be reached"
    SILENT = "did not answer in time"
    BROKEN = "gives no proper answer"
    DENIED = "does not let us in"
    SETUP = "cannot be asked with these settings"


ERRORS: Final[Mapping[type[BaseException], Failed]] = {
    requests.exceptions.RequestException: Failed.BROKEN,
    requests.exceptions.HTTPError: Failed.BROKEN,
    requests.exceptions.ConnectionError: Failed.AWAY,
    requests.exceptions.ProxyError: Failed.AWAY,
    requests.exceptions.SSLError: Failed.SETUP,
    requests.exceptions.Timeout: Failed.SILENT,
    requests.exceptions.ConnectTimeout: Failed.AWAY,
    requests.exceptions.ReadTimeout: Failed.SILENT,
    requests.exceptions.URLRequired: Failed.SETUP,
    requests.exceptions.TooManyRedirects: Failed.BROKEN,
    requests.exceptions.MissingSchema: Failed.SETUP,
    requests.exceptions.InvalidSchema: Failed.SETUP,
    requests.exceptions.InvalidURL: Failed.SETUP,
    requests.exceptions.InvalidProxyURL: Failed.SETUP,
    requests.exceptions.InvalidHeader: Failed.SETUP,
    requests.exceptions.InvalidJSONError: Failed.BROKEN,
    requests.exceptions.JSONDecodeError: Failed.BROKEN,
    requests.exceptions.ChunkedEncodingError: Failed.BROKEN,
    requests.exceptions.ContentDecodingError: Failed.BROKEN,
    requests.exceptions.StreamConsumedError: Failed.BROKEN,
    requests.exceptions.RetryError: Failed.BROKEN,
    requests.exceptions.UnrewindableBodyError: Failed.BROKEN,
    # from under requests: what breaks while we read the answer ourselves
    urllib3.exceptions.ReadTimeoutError: Failed.SILENT,
    urllib3.exceptions.HTTPError: Failed.BROKEN,
    # and what requests lets through: a CA file that is not there, a URL or a header that cannot be written
    OSError: Failed.SETUP,
    ValueError: Failed.SETUP,
}
"""What each exception says; of a class that is not here, its nearest base counts."""

STATUSES: Final[Mapping[int, Failed]] = {
    401: Failed.DENIED,
    403: Failed.DENIED,
    407: Failed.DENIED,
    408: Failed.SILENT,
    # a proxy's, which asked it in vain
    502: Failed.AWAY,
    503: Failed.AWAY,
    504: Failed.SILENT,
}
"""Of answers that say nothing better of themselves; all others are ``BROKEN``: a redirect, a wrong path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """How to be let in; all empty = no login.

    Attributes:
        token, password: read anew at each call, so that rotation needs no restart.
        tls_ca: file of the CA, "" = the system's.
    """

    token: Callable[[], str] | None = None
    username: str = ""
    password: Callable[[], str] | None = None
    tls_ca: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back.

    Attributes:
        status: of HTTP.
        body: whole, as it was sent.
    """

    status: int
    body: bytes

    def json(self) -> Any:
        """The body as JSON, None when it is none."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """Somebody with an HTTP API. Thread-safe; connects at each call.

    Attributes:
        name: for people: ``Prometheus a``.
        url: base, without a slash at its end.
        settings: the table of the settings that says how to reach it, for errors: ``prometheus.servers.a``.
        connect_s: until it has taken the connection.
        answer_s: for any part of the answer, and from the question to its last byte.
        max_bytes: of an answer.
    """

    name: str
    url: str
    settings: str
    connect_s: float
    answer_s: float
    max_bytes: int
    login: Login = field(default_factory=Login)

    def ask(
        self, method: str, path: str, *, form: Mapping[str, str] | None = None, json: JsonValue | None = None
    ) -> Answer:
        """One request and its answer, whatever its status. Its body is a form, JSON, or nothing.

        Raises:
            AccessDeniedError: our own token or password cannot be read.
            TransientActionError: it cannot be reached, or its answer is late, broken or too long.
        """
        login = self.login
        try:
            token = login.token() if login.token is not None else ""
            password = login.password() if login.password is not None else ""
        except SettingsError as error:
            raise AccessDeniedError(str(error), target=self.url) from error
        line = _Line()
        until = time.monotonic() + self.connect_s + self.answer_s
        try:
            with (
                line.cut_after(self.connect_s + self.answer_s + _GRACE_S),
                requests.Session() as session,
                _over(session, line).request(
                    method,
                    self.url + path,
                    data=form,
                    json=json,
                    headers={"Accept-Encoding": "identity"},
                    auth=_signer(token, login.username, password),
                    timeout=(self.connect_s, self.answer_s),
                    allow_redirects=False,
                    verify=login.tls_ca or True,
                    stream=True,
                ) as answer,
            ):
                body = self._read(answer, until)
                if line.is_cut:  # what has no length ends where it is cut
                    raise self._late()
                if answer.status_code != 200:  # it is shown to people, and may repeat what it was asked with
                    sent = str(answer.request.headers.get("Authorization", "")).rpartition(" ")[2]
                    body = _without((token, password, sent), body)
                return Answer(status=answer.status_code, body=body)
        except tuple(ERRORS) as error:
            if line.is_cut:
                raise self._late() from None
            raise self.no_answer(classify(error), type(error).__name__) from error

    def no_answer(self, failed: Failed, what: str) -> ActionError:
        """The error that says so; ``what`` is for people and holds no secret."""
        text = f"{self.name} at {self.url} {failed.value} ({what})"
        match failed:
            case Failed.DENIED:
                advice = f"; check token_file, or username and password_file, of {self.settings}"
                return AccessDeniedError(text + advice, target=self.url)
            case Failed.SETUP:
                return TransientActionError(f"{text}; check the URL and tls_ca of {self.settings}", target=self.url)
            case _:
                return TransientActionError(text, target=self.url)

    def _read(self, answer: requests.Response, until: float) -> bytes:
        """The whole body, if it is not too long and comes in time: read as it comes, because one that drips is never
        late for a single read."""
        body = bytearray()
        while chunk := answer.raw.read1(_CHUNK):
            body += chunk
            if len(body) > self.max_bytes:
                raise self.no_answer(Failed.BROKEN, f"more than {self.max_bytes // 2**20} MiB")
            if time.monotonic() > until:
                raise self._late()
        return bytes(body)

    def _late(self) -> ActionError:
        return self.no_answer(Failed.SILENT, f"not whole after {self.connect_s + self.answer_s:.0f} s")


class _Line(requests.adapters.HTTPAdapter):
    """What one question goes over, and what cuts it off: a head that drips is never late for a single read, and is not
    in our hands before it is whole."""

    def __init__(self) -> None:
        super().__init__()
        self.is_cut = False
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []

    def get_connection_with_tls_context(self, *args: Any, **kwargs: Any) -> Any:
        """The pool for a request, whose connections are kept here too."""
        pool: Any = super().get_connection_with_tls_context(*args, **kwargs)
        plain: type[urllib3.connection.HTTPConnection] = pool.ConnectionCls
        line = self

        class Kept(plain):  # type: ignore[misc, valid-type]
            def _new_conn(self) -> socket.socket:
                made: socket.socket = super()._new_conn()
                line.keep(made)
                return made

        pool.ConnectionCls = Kept
        return pool

    def keep(self, made: socket.socket) -> None:
        """A second handle of a connection, since TLS takes the first one over; cut at once where it comes too late."""
        with self._lock:
            self._sockets.append(made.dup())
            if self.is_cut:
                self._shut()

    @contextlib.contextmanager
    def cut_after(self, seconds: float) -> Iterator[None]:
        """Cut off what is still open then."""
        timer = threading.Timer(seconds, self._cut)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            for one in self._sockets:
                one.close()

    def _cut(self) -> None:
        with self._lock:
            self.is_cut = True
            self._shut()

    def _shut(self) -> None:
        for one in self._sockets:
            with contextlib.suppress(OSError):  # it has ended already
                one.shutdown(socket.SHUT_RDWR)


def _over(session: requests.Session, line: _Line) -> requests.Session:
    session.mount("http://", line)
    session.mount("https://", line)
    return session


def _signer(token: str, username: str, password: str) -> Callable[[requests.PreparedRequest], requests.PreparedRequest]:
    """What signs a request. Always there, because without one requests would take a login from ~/.netrc."""

    def sign(request: requests.PreparedRequest) -> requests.PreparedRequest:
        if token:
            request.headers["Authorization"] = f"Bearer {token}"
        elif password:
            requests.auth.HTTPBasicAuth(username, password)(request)
        return request

    return sign


def _without(secrets: Iterable[str], body: bytes) -> bytes:
    for secret in filter(None, secrets):
        body = body.replace(secret.encode(), b"[redacted]")
    return body


def classify(error: BaseException) -> Failed:
    """What one of these exceptions says. KeyError: the table has no base of it."""
    return ERRORS[next((kind for kind in type(error).__mro__ if kind in ERRORS), type(error))]
