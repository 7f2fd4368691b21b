"""The running engine, as the commands that change something reach it.

Takes → gives: ``--url``, ``--token-file`` and ``--cert`` → JSON answers of the engine's HTTP API.

Must never: follow a redirect (a POST would become a GET, and a token would go to a login page), show a token, or leave
it open whether a request that got no answer may have been carried out.
"""

from __future__ import annotations

import functools
import ssl
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import click
import requests
from requests.auth import AuthBase

from remediator.cli.invocation import Invocation
from remediator.cli.terminal import printable, shown_url
from remediator.errors import RequestError, SettingsError, UnreachableError
from remediator.settings import Settings, read_secret_file

CONNECT_TIMEOUT_S = 3.0
"""The engine is near: one that does not take a connection in this time is away."""

ANSWER_TIMEOUT_S = 30.0
"""A change waits for the store's writer, which may be behind a storm of deliveries; nothing waits longer there."""

_LOOPBACK_OF = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - read, not bound
"""An engine that listens everywhere is asked on loopback."""

_TEXT_LIMIT = 300
"""Characters of a foreign answer that are shown: enough to recognise a proxy's error page."""

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Where the engine is, and what to show it.

    Attributes:
        url: None = where the settings let it listen.
        token_file: None = no token, enough for an engine without tokens.
        cert, key: a client certificate, PEM; None = none, or for the key: it is in the certificate's file.
    """

    url: str | None = None
    token_file: Path | None = None
    cert: Path | None = None
    key: Path | None = None


def engine_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--url``, ``--token-file``, ``--cert`` and ``--key``, handed on as ``access``."""

    @functools.wraps(command)
    def with_access(
        *args: Any, url: str | None, token_file: Path | None, cert: Path | None, key: Path | None, **options: Any
    ) -> Any:
        return command(*args, access=Access(url=url, token_file=token_file, cert=cert, key=key), **options)

    decorated = certificate_options(with_access)
    decorated = click.option(
        "--token-file",
        envvar="REMEDIATOR_TOKEN_FILE",
        show_envvar=True,
        type=click.Path(path_type=Path, dir_okay=False),
        help="File with the API token to use.",
    )(decorated)
    return click.option(
        "--url",
        envvar="REMEDIATOR_URL",
        show_envvar=True,
        help="Address of the running engine.  [default: where the settings let it listen]",
    )(decorated)


def certificate_options(command: F) -> F:
    """``--cert`` and ``--key``, for an engine with ``tls_client_ca``, handed on as ``cert`` and ``key``."""
    file = click.Path(path_type=Path, dir_okay=False, exists=True, readable=True)
    command = click.option(
        "--key", envvar="REMEDIATOR_CLIENT_KEY", show_envvar=True, type=file, help="Its key, where not in that file."
    )(command)
    return click.option(
        "--cert",
        envvar="REMEDIATOR_CLIENT_CERT",
        show_envvar=True,
        type=file,
        help="Client certificate (PEM), for an engine that asks for one.",
    )(command)


def certificate(cert: Path | None, key: Path | None) -> str | tuple[str, str] | None:
    """A client certificate as requests takes it.

    Raises:
        SettingsError: the files are none, or do not belong together.
    """
    if cert is None:
        if key is not None:
            raise SettingsError("--key needs --cert")
        return None
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(cert, key)
    except OSError as error:
        raise SettingsError(
            f"--cert {cert} cannot be used: {error.strerror or error}; it must be a PEM file, with the key in it or in"
            " --key"
        ) from error
    return (str(cert), str(key)) if key else str(cert)


class _BearerToken(AuthBase):
    """As an auth object, because requests lets a ``.netrc`` entry overwrite an Authorization header."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


class EngineClient:
    """The engine's HTTP API.

    Args:
        url: base address, without a trailing path (``http://127.0.0.1:9095``).
        token: "" = none, enough for an engine without tokens.
        cert: file or files of a client certificate, None = none.
    """

    def __init__(self, url: str, token: str = "", cert: str | tuple[str, str] | None = None) -> None:
        self.url = url.rstrip("/")
        self._shown = shown_url(self.url)
        self._has_token = bool(token)
        self._session = requests.Session()
        self._session.cert = cert
        self._session.auth = _BearerToken(token) if token else None
        self._session.headers["Accept"] = "application/json"

    @classmethod
    def of(cls, invocation: Invocation, access: Access) -> EngineClient:
        """The client that the options of ``engine_options`` mean.

        Raises:
            SettingsError: the settings, needed for the default address, are wrong, the token is no token, or the
                certificate cannot be used.
            UnreachableError: the token file cannot be read.
        """
        token = read_token(access.token_file) if access.token_file else ""
        cert = certificate(access.cert, access.key)
        return cls(access.url or local_url(invocation.settings()), token, cert)

    def get(self, path: str, *, has: Collection[str]) -> dict[str, Any]:
        """The map that GET answers.

        Args:
            has: names in an engine's answer; another program answers with others.

        Raises:
            UnreachableError: no engine answers there.
            RequestError: it says no.
        """
        return self._shaped(self._ask("GET", path), has)

    def get_list(self, path: str, *, has: Collection[str], **query: str | int) -> list[dict[str, Any]]:
        """The maps that GET answers in a list.

        Args:
            has: names in each of them.

        Raises:
            As ``get``.
        """
        found = self._ask("GET", path, params=query)
        if not isinstance(found, list):
            raise self._no_engine(200)
        return [self._shaped(each, has) for each in found]

    def post(self, path: str, body: object, *, has: Collection[str]) -> dict[str, Any]:
        """The map that POST of ``body`` (JSON-able) answers.

        Args:
            has: as for ``get``.

        Raises:
            As ``get``.
        """
        return self._shaped(self._ask("POST", path, json=body), has)

    def _shaped(self, answer: Any, has: Collection[str]) -> dict[str, Any]:
        if not isinstance(answer, dict) or not all(name in answer for name in has):
            raise self._no_engine(200)
        return answer

    def _no_engine(self, status: int) -> UnreachableError:
        return UnreachableError(
            f"{self._shown} answers (HTTP {status}), but is no remediator engine: point --url at the engine itself"
        )

    def _ask(self, method: str, path: str, **how: Any) -> Any:
        timeout = (CONNECT_TIMEOUT_S, ANSWER_TIMEOUT_S)
        try:
            answer = self._session.request(method, self.url + path, timeout=timeout, allow_redirects=False, **how)
        except requests.ReadTimeout as error:
            may_be_done = "" if method == "GET" else "; it may have been done all the same: see remediator runs"
            raise UnreachableError(
                f"{self._shown} did not answer within {ANSWER_TIMEOUT_S:.0f} s{may_be_done}"
            ) from error
        except requests.exceptions.SSLError as error:
            raise UnreachableError(
                f"{self._shown}: TLS failed ({cause(error)}); a private CA goes into REQUESTS_CA_BUNDLE,"
                " a client certificate into --cert and --key"
            ) from error
        except (requests.ConnectionError, requests.Timeout) as error:
            raise UnreachableError(
                f"no engine answers at {self._shown} ({cause(error)}). "
                "Start it with remediator serve, or give its address with --url or REMEDIATOR_URL"
            ) from error
        except (requests.RequestException, UnicodeError) as error:
            raise SettingsError(
                f"--url {self._shown} is no address of an engine; write http://HOST:PORT or https://HOST:PORT"
            ) from error
        return self._read(answer)

    def _read(self, answer: requests.Response) -> Any:
        status = answer.status_code
        if 300 <= status < 400:
            where = printable(answer.headers.get("Location", "somewhere else"))
            raise UnreachableError(
                f"{self._shown} redirects to {where}: that is a proxy or a login page; point --url at the engine itself"
            )
        try:
            body = answer.json()
        except requests.JSONDecodeError:
            body = None
        problem = _problem(body) or _foreign_text(answer)
        if status == 401:
            what = "does not know this token" if self._has_token else "asks for a token"
            raise RequestError(
                f"{self._shown} {what}: give a file with one with --token-file or REMEDIATOR_TOKEN_FILE",
                http_status=401,
            )
        if status == 403:
            raise RequestError(f"this token may not do that: {problem}", http_status=403)
        if status >= 500:
            why = f": {problem}" if problem else ""
            raise UnreachableError(f"the engine at {self._shown} cannot do that now (HTTP {status}){why}")
        if body is None or (status >= 400 and not _problem(body)):
            raise self._no_engine(status)
        if status >= 400:
            raise RequestError(problem, http_status=status)
        return body


def path_of_run(run_id: str, act: str = "") -> str:
    """The API path of a run, or of an act on it; whatever the user typed stays one path segment."""
    return f"/api/v1/runs/{quote(run_id, safe='')}" + (f"/{act}" if act else "")


def local_url(settings: Settings) -> str:
    """Where an engine with these settings answers on this machine.

    Raises:
        SettingsError: the port is chosen at its start, so that the settings do not tell.
    """
    if not settings.listen_port:
        raise SettingsError(f"listen = {settings.listen} leaves the port open: give the engine's address with --url")
    host = _LOOPBACK_OF.get(settings.listen_host, settings.listen_host)
    scheme = "https" if settings.tls_cert else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{settings.listen_port}"


def read_token(path: Path) -> str:
    """The first token in a file.

    Raises:
        UnreachableError: the file cannot be read or is empty.
        SettingsError: what is in it cannot be a token.
    """
    try:
        token = read_secret_file(path)[0]
    except SettingsError as error:
        raise UnreachableError(f"the token file {error}") from error
    if not token.isascii() or not token.isprintable() or " " in token:
        raise SettingsError(f"the token file {path} must hold tokens of visible ASCII characters, one a line")
    return token


def _problem(body: object) -> str:
    """The engine's own error text, with its list of problems below; "" when the answer is not one of its errors."""
    if not isinstance(body, dict) or not isinstance(body.get("error"), str):
        return ""
    return "\n".join([body["error"], *map(str, body.get("problems", []))])


def _foreign_text(answer: requests.Response) -> str:
    """The beginning of what is not our JSON, for people; "" for a web page, which tells them nothing."""
    text = answer.content[:_TEXT_LIMIT].decode(errors="replace").strip()
    return "" if text.startswith("<") or "html" in answer.headers.get("Content-Type", "") else text


def cause(error: BaseException) -> str:
    """Why a request failed: the system's own words, out of the chain that requests and urllib3 wrap around them."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.strerror and not isinstance(seen, requests.RequestException):
            return seen.strerror
        inner = getattr(seen, "reason", None) or next((arg for arg in seen.args if isinstance(arg, Exception)), None)
        seen = inner if isinstance(inner, BaseException) else seen.__cause__ or seen.__context__
    return str(error)[:_TEXT_LIMIT]
