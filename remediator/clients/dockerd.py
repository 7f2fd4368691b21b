"""Docker engines over their HTTP API: the adapter of ``ports.DockerReader`` and ``ports.Docker``.

Takes a ``DockerHost`` and a call, gives a ``ContainerState`` or nothing, or raises what ``ports`` promises. docker-py
brings the transports (Unix socket, TLS, ssh) and the vendor's error classes. Its own ``restart`` and friends are not
used: they know one time-out for connecting and reading together, so that an engine that is away would be noticed as
late as a container that is slow to stop.

Every call has a connection of its own and pings the engine first, which tells its API's version. That costs a
millisecond, and buys that a connection cannot be stale, that nothing is shared between threads, and that an engine
which hangs is found out by a question, before an act has been sent whose fate nobody would know. (``/version`` would
tell as much, but the engine starts runc and others to ask them for theirs: ten milliseconds.)

``DockerdReader`` must never be able to change anything: it has GET, and no more.
"""

from __future__ import annotations

import functools
import json
import logging
import re
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import Enum, auto
from pathlib import Path
from typing import Any, Final

import docker.errors
import paramiko
import requests
import requests.exceptions
import urllib3.exceptions
from docker.transport import SSHHTTPAdapter, UnixHTTPAdapter
from docker.utils import parse_host

from remediator.clients.ports import ContainerState, CpuLimit, DockerHost
from remediator.core.units import cut
from remediator.errors import (
    AccessDeniedError,
    ActionError,
    ConflictError,
    PermanentActionError,
    Reason,
    TargetNotFoundError,
    TransientActionError,
    UnknownEffectError,
)

CONNECT_S: Final = 5.0
"""An engine in the same data centre accepts within milliseconds; above this it is away."""

ANSWER_S: Final = 5.0
"""For a ping: the engine answers from memory. With ``CONNECT_S``, what an act may lose of its deadline at most."""

LOOK_S: Final = 15.0
"""For an inspect: it waits for the container's lock, which a slow disk may hold for seconds."""

_VENDOR_TEXT = 300
_SHORT_ID = re.compile(r"[0-9a-f]{12,64}")


class Failed(Enum):
    """What a failure says about the request."""

    NOT_SENT = auto()
    """It never left: nothing was done, another attempt may work."""
    NO_ANSWER = auto()
    """It left and no proper answer came: an act may have happened."""
    BUSY = auto()
    """Turned away undone, for now."""
    NOT_FOUND = auto()
    DENIED = auto()
    CONFLICT = auto()
    REFUSED = auto()
    """Understood and refused; the same request will be refused again."""
    SETUP = auto()
    """The settings of this Docker host are wrong, or it is no Docker engine."""
    BY_STATUS = auto()
    """See ``STATUSES``."""
    BY_CAUSE = auto()
    """See ``CAUSES``: the transport wraps what happened."""


ERRORS: Final[Mapping[type[BaseException], Failed]] = {
    # docker-py's
    docker.errors.APIError: Failed.BY_STATUS,
    docker.errors.NotFound: Failed.BY_STATUS,
    docker.errors.ImageNotFound: Failed.BY_STATUS,
    docker.errors.TLSParameterError: Failed.SETUP,
    docker.errors.InvalidVersion: Failed.SETUP,
    docker.errors.InvalidRepository: Failed.SETUP,
    docker.errors.InvalidConfigFile: Failed.SETUP,
    docker.errors.InvalidArgument: Failed.SETUP,
    docker.errors.DeprecatedMethod: Failed.SETUP,
    docker.errors.NullResource: Failed.REFUSED,
    docker.errors.ContainerError: Failed.REFUSED,
    docker.errors.StreamParseError: Failed.NO_ANSWER,
    docker.errors.BuildError: Failed.REFUSED,
    docker.errors.ImageLoadError: Failed.REFUSED,
    docker.errors.MissingContextParameter: Failed.SETUP,
    docker.errors.ContextAlreadyExists: Failed.SETUP,
    docker.errors.ContextException: Failed.SETUP,
    docker.errors.ContextNotFound: Failed.SETUP,
    docker.errors.DockerException: Failed.SETUP,
    # requests'
    requests.exceptions.HTTPError: Failed.BY_STATUS,
    requests.exceptions.ConnectTimeout: Failed.NOT_SENT,
    requests.exceptions.ReadTimeout: Failed.NO_ANSWER,
    requests.exceptions.Timeout: Failed.NO_ANSWER,
    requests.exceptions.SSLError: Failed.BY_CAUSE,
    requests.exceptions.ProxyError: Failed.NOT_SENT,
    requests.exceptions.ConnectionError: Failed.BY_CAUSE,
    requests.exceptions.ChunkedEncodingError: Failed.NO_ANSWER,
    requests.exceptions.ContentDecodingError: Failed.NO_ANSWER,
    requests.exceptions.StreamConsumedError: Failed.NO_ANSWER,
    requests.exceptions.RetryError: Failed.NO_ANSWER,
    requests.exceptions.TooManyRedirects: Failed.SETUP,
    requests.exceptions.JSONDecodeError: Failed.SETUP,
    requests.exceptions.InvalidJSONError: Failed.SETUP,
    requests.exceptions.URLRequired: Failed.SETUP,
    requests.exceptions.MissingSchema: Failed.SETUP,
    requests.exceptions.InvalidSchema: Failed.SETUP,
    requests.exceptions.InvalidURL: Failed.SETUP,
    requests.exceptions.InvalidProxyURL: Failed.SETUP,
    requests.exceptions.InvalidHeader: Failed.SETUP,
    requests.exceptions.UnrewindableBodyError: Failed.NO_ANSWER,
    requests.exceptions.RequestException: Failed.NO_ANSWER,
    # ssh: all of these come up while the way to the engine is opened
    paramiko.AuthenticationException: Failed.DENIED,
    paramiko.BadHostKeyException: Failed.DENIED,
    paramiko.SSHException: Failed.NOT_SENT,
    paramiko.ssh_exception.NoValidConnectionsError: Failed.NOT_SENT,
    # and what the transports let through as it is
    urllib3.exceptions.HTTPError: Failed.BY_CAUSE,
    OSError: Failed.BY_CAUSE,
}
"""What each exception of the vendor's says; of a class that is not here, its nearest base counts."""

CAUSES: Final[tuple[tuple[type[BaseException], Failed], ...]] = (
    (PermissionError, Failed.DENIED),
    (FileNotFoundError, Failed.NOT_SENT),
    (ConnectionRefusedError, Failed.NOT_SENT),
    (BlockingIOError, Failed.NOT_SENT),  # a Unix socket whose queue is full
    (urllib3.exceptions.NewConnectionError, Failed.NOT_SENT),  # also a name that does not resolve
    (urllib3.exceptions.ConnectTimeoutError, Failed.NOT_SENT),
    (urllib3.exceptions.SSLError, Failed.SETUP),  # a certificate that does not fit: found before anything is sent
)
"""Looked for inside a wrapped failure; one that holds none of these may have broken off after sending."""

STATUSES: Final[Mapping[int, Failed]] = {
    400: Failed.REFUSED,
    401: Failed.DENIED,
    403: Failed.DENIED,
    404: Failed.NOT_FOUND,
    405: Failed.SETUP,
    406: Failed.REFUSED,
    408: Failed.NO_ANSWER,
    409: Failed.CONFLICT,
    410: Failed.NOT_FOUND,
    429: Failed.BUSY,
    # The engine says 500 when it stopped a container and could not start it again, a proxy says the others after it
    # gave up waiting: the container has to be looked at.
    500: Failed.NO_ANSWER,
    501: Failed.REFUSED,
    502: Failed.NO_ANSWER,
    503: Failed.NO_ANSWER,
    504: Failed.NO_ANSWER,
}
"""Of answers that are no success; others go by their hundred, ``_HUNDREDS``."""

_HUNDREDS: Final[Mapping[int, Failed]] = {1: Failed.SETUP, 3: Failed.SETUP, 4: Failed.REFUSED, 5: Failed.NO_ANSWER}

_ADVICE: Final[Mapping[Failed, str]] = {
    Failed.NOT_SENT: "cannot be reached",
    Failed.NO_ANSWER: "did not answer properly",
    Failed.BUSY: "is busy",
    Failed.NOT_FOUND: "has no such container",
    Failed.DENIED: "does not let us in; check the user's rights, the certificate or the ssh key",
    Failed.CONFLICT: "says that its state forbids it",
    Failed.REFUSED: "refuses the request",
    Failed.SETUP: "cannot be used with these settings; check its url and certificates",
}


def classify(error: BaseException) -> Failed | None:
    """What a vendor's exception says about the request; None for one that is not theirs."""
    known = next((ERRORS[kind] for kind in type(error).__mro__ if kind in ERRORS), None)
    if known is Failed.BY_STATUS:
        return _of_status(getattr(error, "response", None))
    if known is Failed.BY_CAUSE:
        inside = tuple(_inside(error))
        return next((failed for kind, failed in CAUSES if any(isinstance(e, kind) for e in inside)), Failed.NO_ANSWER)
    return known


def _of_status(response: requests.Response | None) -> Failed:
    if response is None:
        return Failed.NO_ANSWER
    status = response.status_code
    if status == 500 and "multiple IDs found" in response.text:
        return Failed.NOT_FOUND  # an id prefix that several containers share
    return STATUSES.get(status) or _HUNDREDS.get(status // 100, Failed.SETUP)


def _inside(error: object) -> Iterator[BaseException]:
    """The exception and those it was made of, as urllib3 and requests wrap them: as argument or as ``reason``."""
    if isinstance(error, BaseException):
        yield error
        for part in (*error.args, getattr(error, "reason", None)):
            yield from _inside(part)


class DockerdReader:
    """One Docker engine, looked at. Implements ``ports.DockerReader``; thread-safe; connects at each call."""

    def __init__(self, host: DockerHost) -> None:
        self._host = host

    def inspect(self, container: str) -> ContainerState:
        """See ``ports.DockerReader.inspect``.

        Source: Docker Engine API v1.41, ContainerInspect.
        """
        with _mapped(self._host, f"container {container}", f"/{container}"), _Connection(self._host) as engine:
            seen = engine.get(f"/containers/{container}/json")
            state = _container_state(seen)
        # The engine takes any beginning of an id for a name: "dead" would find a container that nobody meant.
        if state.name != container and not (_SHORT_ID.fullmatch(container) and state.id.startswith(container)):
            raise TargetNotFoundError(
                f"container {container}: Docker engine {self._host.name} has no such container",
                target=f"docker:{self._host.name}/{container}",
            )
        return state

    def version(self) -> str:
        """See ``ports.DockerReader.version``."""
        with _mapped(self._host, "version"), _Connection(self._host) as engine:
            return f"{engine.version()}, API {engine.api_version}"


class Dockerd(DockerdReader):
    """One Docker engine, acted on. Implements ``ports.Docker``; thread-safe; connects at each call.

    Source: Docker Engine API v1.41, ContainerRestart, ContainerStop, ContainerStart, ContainerKill, ContainerUpdate.
    """

    def restart(self, container_id: str, *, stop_timeout_s: int, deadline_s: float) -> None:
        """See ``ports.Docker.restart``."""
        self._act("restart", container_id, {"t": str(stop_timeout_s)}, deadline_s)

    def stop(self, container_id: str, *, stop_timeout_s: int, deadline_s: float) -> None:
        """See ``ports.Docker.stop``."""
        self._act("stop", container_id, {"t": str(stop_timeout_s)}, deadline_s)

    def start(self, container_id: str, *, deadline_s: float) -> None:
        """See ``ports.Docker.start``."""
        self._act("start", container_id, {}, deadline_s)

    def signal(self, container_id: str, signal: str, *, deadline_s: float) -> None:
        """See ``ports.Docker.signal``."""
        self._act("kill", container_id, {"signal": signal}, deadline_s)

    def limit_cpu(self, container_id: str, limit: CpuLimit, *, back: CpuLimit | None = None, deadline_s: float) -> None:
        """See ``ports.Docker.limit_cpu``."""
        began = time.monotonic()
        if back is not None and (back.nano_cpus > 0 or back.quota_us > 0):
            # Setting what is set changes nothing, and an engine refuses to set what its host has no longer got.
            what = f"trying whether the CPU limit of container {container_id[:12]} could be set back"
            with _mapped(self._host, what), _Connection(self._host) as engine:
                engine.post(f"/containers/{container_id}/update", {}, ANSWER_S, _update_of(back))
        left_s = deadline_s - (time.monotonic() - began)
        if left_s < ANSWER_S:
            raise TransientActionError(
                f"update of container {container_id[:12]}: Docker engine {self._host.name} took so long to be asked"
                f" that only {left_s:.0f} s are left; nothing was done",
                target=f"docker:{self._host.name}",
            )
        self._act("update", container_id, {}, left_s, _update_of(limit))

    def _act(
        self,
        verb: str,
        container_id: str,
        params: Mapping[str, str],
        deadline_s: float,
        body: Mapping[str, int] | None = None,
    ) -> None:
        began = time.monotonic()
        what = f"{verb} of container {container_id[:12]}"
        # Until the engine has answered the ping nothing has been asked of it that changes anything.
        with _mapped(self._host, what):
            engine = _Connection(self._host)
        with engine, _mapped(self._host, what, is_act=True):
            left_s = deadline_s - (time.monotonic() - began)
            engine.post(f"/containers/{container_id}/{verb}", params, max(left_s, ANSWER_S), body)


class _Connection:
    """One engine that has just answered a ping, for one call.

    Source: Docker Engine API v1.41, SystemPing, SystemVersion.
    """

    def __init__(self, host: DockerHost) -> None:
        self._session, self._url = _session(host)
        try:
            self.api_version = self._asked("GET", "/_ping", {}, ANSWER_S).headers["Api-Version"]
        except BaseException as error:
            self._session.close()
            if isinstance(error, KeyError) or classify(error) is Failed.NOT_FOUND:
                raise docker.errors.InvalidVersion("what answers there tells no version of Docker's API") from error
            raise

    def __enter__(self) -> _Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def version(self) -> str:
        try:
            return str(self._asked("GET", "/version", {}, LOOK_S).json()["Version"])
        except (KeyError, TypeError) as error:
            raise docker.errors.InvalidVersion("what answers there tells no Docker version") from error

    def get(self, path: str) -> Any:
        return self._asked("GET", f"/v{self.api_version}{path}", {}, LOOK_S).json()

    def post(
        self, path: str, params: Mapping[str, str], answer_s: float, body: Mapping[str, int] | None = None
    ) -> None:
        self._asked("POST", f"/v{self.api_version}{path}", params, answer_s, body)

    def _asked(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        answer_s: float,
        body: Mapping[str, int] | None = None,
    ) -> requests.Response:
        answer = self._session.request(
            method,
            self._url + path,
            params=dict(params),
            # Without a blank: the socket proxy of deploy/ compares it letter by letter.
            data=None if body is None else json.dumps(body, separators=(",", ":")),
            headers=None if body is None else {"Content-Type": "application/json"},
            timeout=(CONNECT_S, answer_s),
            allow_redirects=False,
        )
        # 304: it was so already. Any other 3xx is no Docker engine's, and requests would let it pass.
        if answer.status_code != 304 and not 200 <= answer.status_code < 300:
            raise docker.errors.APIError(f"HTTP {answer.status_code}", response=answer, explanation=_explained(answer))
        return answer


def _session(host: DockerHost) -> tuple[requests.Session, str]:
    """A session that can speak to the host, and the URL that its paths follow."""
    uses_tls = bool(host.tls_ca or host.tls_cert or host.tls_key)
    url = str(parse_host(host.url, tls=uses_tls))
    for file in filter(None, (host.tls_ca, host.tls_cert, host.tls_key)):
        if not Path(file).is_file():
            raise docker.errors.TLSParameterError(f"{file} is not a file")
    session = requests.Session()
    # The environment's proxies, .netrc and CA bundle are for the web: REQUESTS_CA_BUNDLE would outrank our own CA.
    session.trust_env = False
    if url.startswith("http+unix://"):
        # docker-py leaves the socket open where nobody listens, and wraps the reason out of sight.
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(CONNECT_S)
            probe.connect(url.removeprefix("http+unix://"))
        session.mount("http+docker://", _Unix(url, timeout=int(CONNECT_S)))
        return session, "http+docker://localhost"
    if url.startswith("ssh://"):
        session.mount("http+docker://", _BoundedSsh(url, timeout=int(CONNECT_S)))
        return session, "http+docker://ssh"
    if host.tls_ca:
        session.verify = host.tls_ca
    if host.tls_cert:
        session.cert = (host.tls_cert, host.tls_key)
    return session, url


class _OnePool:
    """docker-py's transports keep a pool, and so a connection, for each path: here the ping and the call share one."""

    def get_connection(self, url: str | bytes, proxies: Mapping[str, str] | None = None) -> Any:  # noqa: ARG002
        return super().get_connection("http+docker://engine", proxies)  # type: ignore[misc]


class _Unix(_OnePool, UnixHTTPAdapter):
    """docker-py's transport over a Unix socket."""


class _BoundedSsh(_OnePool, SSHHTTPAdapter):
    """docker-py's ssh transport, connecting in bounded time (else a host that is away holds us for two minutes)."""

    def _create_paramiko_client(self, base_url: str) -> None:
        super()._create_paramiko_client(base_url)  # type: ignore[misc]
        self.ssh_params.update(  # type: ignore[attr-defined]
            timeout=CONNECT_S, banner_timeout=CONNECT_S, auth_timeout=CONNECT_S
        )
        # It logs a traceback for each host that is away, beside the exception that it raises.
        logging.getLogger("paramiko").setLevel(logging.CRITICAL)

    def _connect(self) -> None:
        try:
            super()._connect()  # type: ignore[misc]
        except BaseException:
            # A host that does not let us in would keep a thread and a connection of ours at every try.
            if self.ssh_client is not None:
                self.ssh_client.close()
            raise


@contextmanager
def _mapped(host: DockerHost, what: str, path: str = "", *, is_act: bool = False) -> Iterator[None]:
    """Turns what the vendor's code raises into our errors; a look's failures are never of unknown effect.

    What the table does not know goes on as it is: a bug, here or there.
    """
    try:
        yield
    except Exception as error:
        failed = classify(error)
        if failed is None:
            raise
        text = f"{what}: Docker engine {host.name} {_ADVICE[failed]} ({_said(error)})"
        raise _our_error(failed, text, f"docker:{host.name}{path}", is_act=is_act) from error


def _our_error(failed: Failed, text: str, target: str, *, is_act: bool) -> ActionError:
    match failed:
        case Failed.NOT_FOUND:
            return TargetNotFoundError(text, target=target)
        case Failed.DENIED:
            return AccessDeniedError(text, target=target)
        case Failed.CONFLICT:
            return ConflictError(text, target=target)
        case Failed.REFUSED:
            return PermanentActionError(text, target=target)
        case Failed.SETUP:
            return PermanentActionError(text, target=target, reason=Reason.UNREACHABLE)
        case Failed.NO_ANSWER if is_act:
            return UnknownEffectError(f"{text}; it may have happened", target=target)
        case _:
            return TransientActionError(text, target=target)


_SECRETS = (
    (re.compile(r"(://)[^/@\s]+@"), r"\1***@"),
    (
        re.compile(r"(?i)\b([\w.-]*(?:password|passwd|secret|token|api[_-]?key|credential)[\w.-]*\s*[=:]\s*)\S+"),
        r"\1***",
    ),
)


def _said(error: BaseException) -> str:
    """The vendor's own words, short, in one line and without what looks like a secret."""
    *_, innermost = _inside(error)
    words = getattr(error, "explanation", None) or str(innermost) or type(innermost).__name__
    text = " ".join(str(words).split())
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return cut(text, _VENDOR_TEXT)


def _explained(answer: requests.Response) -> str:
    try:
        return f"HTTP {answer.status_code}: {answer.json()['message']}"
    except (ValueError, KeyError, TypeError):
        return f"HTTP {answer.status_code}: {answer.text[:_VENDOR_TEXT]}"


def _update_of(limit: CpuLimit) -> Mapping[str, int]:
    """The body of an update. A field that is 0 or absent is left as it is: only -1 lifts a quota, nothing NanoCpus."""
    if limit.nano_cpus > 0:
        return {"NanoCpus": limit.nano_cpus}
    return {"CpuQuota": limit.quota_us if limit.quota_us > 0 else -1}


def _container_state(seen: Any) -> ContainerState:
    try:
        state, config, host_config = seen["State"], seen["Config"], seen["HostConfig"]
        container_id = str(seen["Id"])
        return ContainerState(
            id=container_id,
            name=str(seen["Name"]).removeprefix("/"),
            status=str(state["Status"]),
            pid=int(state["Pid"]),
            started_at=_moment(state["StartedAt"]),
            finished_at=_moment(state["FinishedAt"]),
            exit_code=int(state["ExitCode"]),
            labels={str(name): str(value) for name, value in (config.get("Labels") or {}).items()},
            stop_timeout_s=config.get("StopTimeout"),
            removes_itself=bool(host_config.get("AutoRemove")),
            cpu=CpuLimit(
                nano_cpus=int(host_config.get("NanoCpus") or 0),
                period_us=int(host_config.get("CpuPeriod") or 0),
                quota_us=int(host_config.get("CpuQuota") or 0),
            ),
            is_engine=container_id == own_container_id(),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise docker.errors.InvalidVersion(f"it describes containers in another way: {error!r}") from error


_MOMENT = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?\d*(Z|[+-]\d\d:\d\d)")


def _moment(text: str) -> str:
    """The engine's time with all nine digits, in UTC; "" for Go's zero time, which stands for never.

    Go leaves zeros out at the end, so that ``…11.1Z`` would sort after ``…11.12Z``; Podman writes local offsets.
    """
    found = _MOMENT.fullmatch(text)
    if found is None:
        raise ValueError(f"not a time: {text!r}")
    seconds, fraction, zone = found.groups()
    moment = datetime.fromisoformat(seconds + zone)
    if moment.year == 1:
        return ""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S}.{fraction or '':0<9}Z"


_OWN_MOUNT = re.compile(r"/([0-9a-f]{64})/(?:userdata/)?(?:hostname|hosts|resolv\.conf)")


@functools.cache
def own_container_id(mountinfo: Path = Path("/proc/self/mountinfo")) -> str:
    """The id of the container that this process runs in, "" when it runs in none.

    An engine mounts a container's ``/etc/hostname`` and its siblings from a folder named after its id, whatever the
    cgroup version and network mode. On the host itself such paths appear as mount points, never under ``/etc``.

    Source: proc(5), mountinfo: field 4 is the root of the mount, field 5 its place.
    """
    try:
        lines = mountinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        fields = line.split(" ")
        if len(fields) > 4 and fields[4] in ("/etc/hostname", "/etc/hosts", "/etc/resolv.conf"):
            found = _OWN_MOUNT.search(fields[3])
            if found:
                return found.group(1)
    return ""
