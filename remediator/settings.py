"""Settings: one TOML file, environment variables over it, frozen once read.

Takes ``remediator.toml`` (or ``--config``), ``REMEDIATOR_…`` variables and what a command was given → ``Settings``.
Never guesses: an unknown key or variable is an error with a suggestion, and all problems come at once. Never shows a
secret: tokens and passwords live in files, and notification URLs are ``SecretStr``. Relative paths in the
file count from the file's folder, those in variables and options from the working directory.
"""

from __future__ import annotations

import contextlib
import difflib
import ipaddress
import json
import os
import re
import tomllib
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin
from urllib.parse import unquote, urlsplit

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    SecretStr,
    ValidationError,
    WithJsonSchema,
    field_validator,
)
from pydantic.config import JsonDict
from pydantic_settings import BaseSettings, EnvSettingsSource, InitSettingsSource, SettingsConfigDict

from remediator.core.action import TargetKind
from remediator.core.playbook import LabelMap
from remediator.core.policy import Fleet
from remediator.core.units import DURATION_PATTERN, parse_address, parse_duration
from remediator.errors import SettingsError

DEFAULT_CONFIG = Path("remediator.toml")
PREFIX = "REMEDIATOR_"
# Variables that are no settings: of commands that call a running engine, and of the test suite.
NOT_SETTINGS = frozenset(
    {
        *("REMEDIATOR_URL", "REMEDIATOR_TOKEN_FILE", "REMEDIATOR_CLIENT_CERT", "REMEDIATOR_CLIENT_KEY"),
        "REMEDIATOR_REQUIRE",
    }
)
# Of the test suite, and of the GPU exporter, which has options and no settings.
FOREIGN_PREFIXES = ("REMEDIATOR_TEST_", "REMEDIATOR_EXPORTER_")

_SIZE = re.compile(r"(\d+)\s*(|B|KiB|MiB|GiB)")
_SIZE_UNITS = {"": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_TOML_ERROR = re.compile(r"(.*) \(at line (\d+), column (\d+)\)", re.DOTALL)
# Characters of a URL's path or query that can be a secret: shorter ones are words (/alerts), not to be struck out.
_LONG_PART = 16
# A comma or white space is a separator only before the next scheme: mailto URLs may have commas inside.
_BETWEEN_URLS = re.compile(r"[\s,]+(?=[A-Za-z][A-Za-z0-9+.-]*://)")


class Role(StrEnum):
    """What a token may do. None includes another."""

    DELIVER = "deliver"
    VIEW = "view"
    OPERATE = "operate"


def _split(value: object) -> object:
    """A list may be one text with commas, which is all that a variable can hold."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _split_urls(value: object) -> object:
    return [part for part in _BETWEEN_URLS.split(value.strip()) if part] if isinstance(value, str) else value


def _from_json(value: object) -> object:
    """A list of tables in a variable is written as JSON."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise ValueError("in a variable a list of tables is written as JSON, and this is not JSON") from error


def _base_url(url: str) -> str:
    """Of an API of others, as it is shown in errors and metrics."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        raise ValueError("must begin with http:// or https://")
    if "@" in parts.netloc:
        raise ValueError("must not hold a user or password, which would be shown; use username, password_file")
    if not parts.hostname:
        raise ValueError("must name a host: http://host:port")
    if parts.query or parts.fragment:
        raise ValueError("must end with its path: what comes after ? or # would be shown, and not be sent")
    return url.rstrip("/")


def _number(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("must be a number")
    return value


def _size(value: object) -> object:
    if not isinstance(value, str):
        return value
    found = _SIZE.fullmatch(value.strip())
    if found is None:
        raise ValueError('write bytes, or "64KiB", "16MiB", "1GiB"')
    return int(found[1]) * _SIZE_UNITS[found[2]]


def _duration(value: object) -> object:
    if isinstance(value, timedelta):
        return value
    if not isinstance(value, str):
        raise ValueError('write a duration as text with a unit: "30s", "5m", "9h"')
    return parse_duration(value)


def _list_schema(items: JsonDict, **more: int) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [{"type": "array", "items": items, **more}, {"type": "string"}]})


_TEXT: JsonDict = {"type": "string"}
# Each fits whatever its validator takes, and says to an editor what that is.
_HTTP = "[\\x00-\\x20]*[Hh][Tt][Tt][Pp][Ss]?://"
_BASE_URL: JsonDict = {"pattern": f"^{_HTTP}[^/?#@:][^/?#@]*(/[^?#]*)?[?]?#?$", "examples": ["http://prometheus:9090"]}
_PORT = "([0-9]{1,4}|[0-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_DOCKER_URL = (
    "^([Uu][Nn][Ii][Xx]:///+[^/?#]|[Tt][Cc][Pp]://(?![^/?#]*:[^/?#]*@).*:[0-9]+/?$|[Ss][Ss][Hh]://(?![^/?#]*:[^/?#]*@))"
)
_DURATION: JsonDict = {
    "type": "string",
    "pattern": DURATION_PATTERN.replace("^", "^(?=.*[1-9])", 1),
    "examples": ["30s", "5m", "9h"],
}

_SIZE_SCHEMA: JsonDict = {
    "type": ["integer", "string"],
    "minimum": 1024,
    "pattern": r"^[ \t]*[0-9]+[ \t]*(|B|KiB|MiB|GiB)[ \t]*$",
    "examples": ["16MiB"],
}
_ONE_WAY_IN: JsonDict = {"not": {"required": ["token_file", "username"], "properties": {"username": {"minLength": 1}}}}

Duration = Annotated[timedelta, BeforeValidator(_duration), WithJsonSchema(_DURATION)]
Texts = Annotated[tuple[str, ...], BeforeValidator(_split), _list_schema(_TEXT)]
Paths = Annotated[tuple[Path, ...], BeforeValidator(_split), _list_schema(_TEXT)]
Urls = Annotated[tuple[SecretStr, ...], BeforeValidator(_split_urls), _list_schema(_TEXT)]
BaseUrls = Annotated[tuple[str, ...], BeforeValidator(_split), _list_schema({**_TEXT, **_BASE_URL})]
Roles = Annotated[
    tuple[Role, ...],
    BeforeValidator(_split),
    Field(min_length=1),
    _list_schema({**_TEXT, "enum": [role.value for role in Role]}, minItems=1),
]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class TokenSettings(_Table):
    """A bearer token. Two entries, or two lines in one file, are valid at once: rotation needs no restart."""

    name: str = Field(
        min_length=1, description="Who this is; the audit records it as the actor.", examples=["alertmanager"]
    )
    roles: Roles = Field(
        description="What it may do: deliver, view, operate.", examples=[["deliver"], ["view", "operate"]]
    )
    file: Path = Field(
        description="File with the token, one a line; read again when it changes.",
        examples=["/etc/remediator/deliver.token"],
    )


class BasicSettings(_Table):
    """HTTP basic."""

    username: str = Field(
        min_length=1,
        pattern=r"^[^:]+$",
        description="User name; the audit records it as the actor. No colon.",
        examples=["alertmanager"],
    )
    roles: Roles = Field(
        description="What it may do: deliver, view, operate.", examples=[["deliver"], ["view", "operate"]]
    )
    password_file: Path = Field(
        description="File with the password, one a line; read again when it changes.",
        examples=["/etc/remediator/password"],
    )


class AuthSettings(_Table):
    """Who may call. Without any entry the engine listens on loopback only."""

    tokens: Annotated[tuple[TokenSettings, ...], BeforeValidator(_from_json)] = Field(
        default=(), description="Bearer tokens."
    )
    basic: Annotated[tuple[BasicSettings, ...], BeforeValidator(_from_json)] = Field(
        default=(), description="HTTP basic users."
    )


class LabelMapSettings(_Table):
    """Which alert labels say where it fires; the first that is present and not empty wins."""

    host: Texts = Field(default=LabelMap().host, description="Labels that name the Docker host.")
    cluster: Texts = Field(default=LabelMap().cluster, description="Labels that name the cluster.")
    node: Texts = Field(default=LabelMap().node, description="Labels that name the node.")


class DockerHostSettings(_Table):
    """One Docker engine, by the name that alerts give for its host."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"anyOf": [{"required": ["tls_ca"]}, {"required": ["tls_cert"]}]},
            "then": {"properties": {"url": {"pattern": "^tcp://"}}},
        }
    )

    url: str = Field(
        description="unix:///var/run/docker.sock, tcp://host:2376 or ssh://user@host.",
        examples=["unix:///var/run/docker.sock", "tcp://gpu-07.example:2376", "ssh://remediator@gpu-07.example"],
        json_schema_extra={"pattern": _DOCKER_URL},
    )
    tls_ca: Path | None = Field(
        default=None,
        description="CA that signed the Docker engine's certificate.",
        examples=["/etc/remediator/docker/ca.pem"],
    )
    tls_cert: Path | None = Field(
        default=None, description="Our client certificate.", examples=["/etc/remediator/docker/cert.pem"]
    )
    tls_key: Path | None = Field(
        default=None, description="Our client key.", examples=["/etc/remediator/docker/key.pem"]
    )

    @field_validator("url")
    @classmethod
    def _known_scheme(cls, value: str) -> str:
        url = urlsplit(value)
        if url.scheme not in ("unix", "tcp", "ssh") or "://" not in value:
            raise ValueError("must begin with unix://, tcp:// or ssh://")
        if url.scheme == "unix" and (url.netloc or not url.path.strip("/")):
            raise ValueError("must name a socket by its whole path, with three slashes: unix:///var/run/docker.sock")
        if url.scheme == "tcp" and not re.search(r":\d+/?$", value):
            raise ValueError("must name a port: tcp://host:2376")
        if url.password is not None:
            raise ValueError("must not hold a password, which would be shown; use keys: tls_cert and tls_key, or SSH's")
        return value


class DockerSettings(_Table):
    """Docker engines to act on."""

    hosts: dict[str, DockerHostSettings] = Field(
        default_factory=dict,
        description="Docker engines by host name.",
        examples=[{"gpu-07": {"url": "unix:///var/run/docker.sock"}}],
    )


class AlertmanagerSettings(_Table):
    """Alertmanagers to ask what fires. Without any the engine knows only what it is sent."""

    model_config = ConfigDict(json_schema_extra=_ONE_WAY_IN)

    urls: BaseUrls = Field(
        default=(),
        description="Base URLs, all that deliver here: http://alertmanager:9093. All of an HA pair.",
        examples=[["http://alertmanager:9093"]],
    )
    receiver: str = Field(
        default="",
        description="Name of the receiver that delivers here; needed to notice what was never delivered.",
        examples=["remediator"],
    )
    token_file: Path | None = Field(
        default=None, description="File with a bearer token for the API.", examples=["/etc/remediator/api.token"]
    )
    username: str = Field(default="", description="For HTTP basic.", examples=["remediator"])
    password_file: Path | None = Field(
        default=None, description="File with the password for HTTP basic.", examples=["/etc/remediator/api.password"]
    )
    tls_ca: Path | None = Field(
        default=None, description="CA that signed the Alertmanagers' certificates.", examples=["/etc/remediator/ca.pem"]
    )

    @field_validator("urls")
    @classmethod
    def _http_urls(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(_base_url(url) for url in value)


class PrometheusServerSettings(_Table):
    """One Prometheus to ask, by the name of the cluster that it watches."""

    model_config = ConfigDict(json_schema_extra=_ONE_WAY_IN)

    url: str = Field(
        description="Base URL, with its path where it has one: http://prometheus:9090.",
        json_schema_extra=_BASE_URL,
    )
    token_file: Path | None = Field(
        default=None, description="File with a bearer token for the API.", examples=["/etc/remediator/api.token"]
    )
    username: str = Field(default="", description="For HTTP basic.", examples=["remediator"])
    password_file: Path | None = Field(
        default=None, description="File with the password for HTTP basic.", examples=["/etc/remediator/api.password"]
    )
    tls_ca: Path | None = Field(
        default=None, description="CA that signed its certificate.", examples=["/etc/remediator/ca.pem"]
    )

    @field_validator("url")
    @classmethod
    def _http_url(cls, value: str) -> str:
        return _base_url(value)


class PrometheusSettings(_Table):
    """Prometheus servers to ask. Without any, what a condition must say is never known."""

    servers: dict[str, PrometheusServerSettings] = Field(
        default_factory=dict,
        description="By cluster: a run asks the one called like its alert's cluster, or the only one.",
    )


class FleetSettings(_Table):
    """Targets of one kind under a name, so that limits can be shares of them: how many are there?"""

    model_config = ConfigDict(
        json_schema_extra={
            "not": {"required": ["size", "query"], "properties": {"query": {"pattern": "[^ \\t\\r\\n]"}}}
        }
    )

    kind: TargetKind = Field(description="What it counts: container, node, pod or gpu.")
    size: Annotated[int, Field(ge=1), BeforeValidator(_number)] | None = Field(
        default=None, description="How many there are."
    )
    query: str = Field(
        default="", description="PromQL that gives their number, instead of size.", examples=["count(kube_node_info)"]
    )


class ReconcileSettings(_Table):
    """What the answers of the Alertmanagers may do beside closing and keeping open."""

    starts: bool = Field(
        default=False,
        description="Take an alert that fires and was never delivered here as delivered. Needs alertmanager.receiver.",
    )


class NotifySettings(_Table):
    """Where messages go: apprise URLs, from one of three places. All of them are secrets."""

    urls: Urls = Field(default=(), description="apprise URLs.", examples=[["mailto://user:password@example.org"]])
    urls_file: Path | None = Field(
        default=None, description="File with apprise URLs, one a line.", examples=["/etc/remediator/notify-oncall"]
    )
    urls_env: str = Field(
        default="",
        description="Name of a variable with apprise URLs (not one of REMEDIATOR_…).",
        examples=["NOTIFY_ONCALL"],
        json_schema_extra={"pattern": f"^(?!{PREFIX})"},
    )

    @field_validator("urls_env")
    @classmethod
    def _not_ours(cls, value: str) -> str:
        if value.startswith(PREFIX):
            raise ValueError(f"must not begin with {PREFIX}: those variables are settings")
        return value


class Settings(BaseSettings):
    """All settings, frozen."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        enable_decoding=False,
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
    )

    store_url: str = Field(
        default="sqlite:///remediator.db",
        validate_default=True,
        description="Where state and audit live: sqlite:///relative.db or sqlite:////absolute.db.",
        examples=["sqlite:////var/lib/remediator/remediator.db"],
        json_schema_extra={"pattern": "^sqlite:///(?!:memory:$)[^?]+$"},
    )
    listen: str = Field(
        default="127.0.0.1:9095",
        description="Address and port: 127.0.0.1:9095, [::1]:9095, 0.0.0.0:9095.",
        json_schema_extra={"pattern": rf"^(\[[^\[\]]*\]|[^:\[\] ]*):{_PORT}$"},
    )
    public_url: str = Field(
        default="",
        description="How people reach this engine; for links in messages.",
        examples=["https://remediator.example"],
        json_schema_extra={"pattern": rf"^({_HTTP}[^/?#@]*([/?#].*)?)?$"},
    )
    playbooks: Paths = Field(default=(Path("playbooks"),), description="Folders and files with playbooks and policies.")
    watch_playbooks: bool = Field(default=True, description="Reload when a playbook file changes.")
    auth: AuthSettings = Field(default=AuthSettings(), description="Who may call.")
    tls_cert: Path | None = Field(
        default=None,
        description="Certificate to serve HTTPS with, PEM with its chain; these files are read again when they change.",
        examples=["cert.pem"],
    )
    tls_key: Path | None = Field(default=None, description="Its key.", examples=["key.pem"])
    tls_client_ca: Path | None = Field(
        default=None, description="CA that callers' certificates must be signed by.", examples=["clients.pem"]
    )
    label_map: LabelMapSettings = Field(
        default=LabelMapSettings(), description="Which labels say where an alert comes from."
    )
    docker: DockerSettings = Field(default=DockerSettings(), description="Docker engines to act on.")
    alertmanager: AlertmanagerSettings = Field(
        default=AlertmanagerSettings(), description="Alertmanagers to ask what fires."
    )
    reconcile: ReconcileSettings = Field(default=ReconcileSettings(), description="What their answers may do.")
    prometheus: PrometheusSettings = Field(
        default=PrometheusSettings(), description="Prometheus servers to ask whether it helped."
    )
    fleets: dict[str, FleetSettings] = Field(default_factory=dict, description="What limits can be shares of, by name.")
    notify: dict[str, NotifySettings] = Field(default_factory=dict, description="Notification targets by name.")
    report_to: Texts = Field(
        default=(), description="Targets told how a run ended, where a playbook names none.", examples=[["ml-platform"]]
    )
    escalate_to: Texts = Field(
        default=(), description="Targets told of an end without a fix, where it names none.", examples=[["oncall"]]
    )
    ignore_labels: Texts = Field(
        default=(),
        description="Replica labels, left out of a playbook's default `per`: replica, prometheus_replica.",
        examples=[["replica", "prometheus_replica"]],
    )
    vars: dict[str, JsonValue] = Field(
        default_factory=dict, description="Values for templates, as {{ vars.NAME }}.", examples=[{"site": "fra1"}]
    )
    max_body: Annotated[int, BeforeValidator(_size), Field(ge=1024), WithJsonSchema(_SIZE_SCHEMA)] = Field(
        default=16 * 2**20, description="Largest HTTP body, in bytes or as 16MiB."
    )
    workers: Annotated[int, Field(ge=1, le=256), BeforeValidator(_number)] = Field(
        default=16, description="Threads that carry out runs; as many more tell people."
    )
    shutdown_grace: Duration = Field(
        default=timedelta(seconds=30), description="How long a stop waits for what is running."
    )
    expire_after: Duration = Field(
        default=timedelta(hours=9),
        description="An alert without any word for so long has expired; above twice Alertmanager's repeat_interval.",
    )
    pause_file: Path | None = Field(
        default=None, description="While this file exists, the engine is paused.", examples=["/etc/remediator/PAUSE"]
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severity that is logged."
    )
    log_format: Literal["json", "text"] = Field(default="json", description="json, or text for people.")

    @field_validator("store_url")
    @classmethod
    def _absolute_store(cls, value: str) -> str:
        path = value.removeprefix("sqlite:///")
        if path == value or not path or path == ":memory:" or "?" in path:
            raise ValueError("must be a file: sqlite:///remediator.db or sqlite:////var/lib/remediator/remediator.db")
        return f"sqlite:///{Path(path).absolute()}"

    @field_validator("listen")
    @classmethod
    def _host_and_port(cls, value: str) -> str:
        parse_address(value)
        return value

    @field_validator("public_url")
    @classmethod
    def _http_url(cls, value: str) -> str:
        if value and urlsplit(value).scheme not in ("http", "https"):
            raise ValueError("must begin with http:// or https://")
        if "@" in urlsplit(value).netloc:
            raise ValueError("must not hold a user or password: it stands in every message")
        return value.rstrip("/")

    @field_validator("vars")
    @classmethod
    def _no_floats(cls, value: dict[str, JsonValue]) -> dict[str, JsonValue]:
        # The audit's canonical form has no floats: one here would make an event that cannot be written.
        for name, item in value.items():
            if any(isinstance(leaf, float) or leaf is None for leaf in _leaves(item)):
                raise ValueError(f"{_toml_key(name)}: write a number with a point as text")
        return value

    @field_validator("shutdown_grace", "expire_after")
    @classmethod
    def _positive(cls, value: timedelta) -> timedelta:
        if value <= timedelta(0):
            raise ValueError("must be above 0s")
        return value

    @property
    def listen_host(self) -> str:
        """Address without brackets; "" means every interface."""
        return parse_address(self.listen)[0]

    @property
    def listen_port(self) -> int:
        """0 = any free one."""
        return parse_address(self.listen)[1]

    @property
    def has_auth(self) -> bool:
        """Whether any token or user is configured."""
        return bool(self.auth.tokens or self.auth.basic)

    @property
    def store_path(self) -> Path:
        """The SQLite file, absolute."""
        return Path(self.store_url.removeprefix("sqlite:///"))

    def to_label_map(self) -> LabelMap:
        """The label map as the core reads it; the only Docker host, if there is one, is the default host."""
        hosts = list(self.docker.hosts)
        return LabelMap(
            host=self.label_map.host,
            cluster=self.label_map.cluster,
            node=self.label_map.node,
            only_host=hosts[0] if len(hosts) == 1 else "",
            prometheus=tuple(self.prometheus.servers),
        )

    def to_fleets(self) -> dict[str, Fleet]:
        """The fleets as the core reads them, by name."""
        return {
            name: Fleet(name=name, kind=fleet.kind, size=fleet.size, query=fleet.query)
            for name, fleet in self.fleets.items()
        }


def load_settings(
    config: Path | None = None,
    environ: Mapping[str, str] = os.environ,
    overrides: Mapping[str, Any] | None = None,
) -> Settings:
    """Read all sources: overrides win over variables, variables over the file.

    Args:
        config: the TOML file; None = ``remediator.toml`` in the working directory, where there is one.
        environ: variables; those that do not begin with ``REMEDIATOR_`` are not looked at.
        overrides: field → value, from a command's options.

    Raises:
        SettingsError: one line for each problem, with the file, line and key, or the variable it stands in.
    """
    file = config or DEFAULT_CONFIG
    text = _read_text(file, must_exist=config is not None)
    from_file = _anchored(Settings, _parse_toml(file, text), file.parent)
    if config is not None:
        from_file = {
            "store_url": f"sqlite:///{file.parent.absolute() / 'remediator.db'}",
            "playbooks": [str(file.parent / "playbooks")],
            **from_file,
        }
    given = dict(overrides or {})
    variables = {
        name: value
        for name, value in environ.items()
        if name.startswith(PREFIX) and name not in NOT_SETTINGS and not name.startswith(FOREIGN_PREFIXES)
    }
    from_env = EnvSettingsSource(Settings)
    from_env.env_vars = {name.lower(): value for name, value in variables.items() if value}

    problems = list(_unknown_variables(variables, from_env()))
    try:
        settings = Settings(
            _build_sources=(
                (InitSettingsSource(Settings, given), from_env, InitSettingsSource(Settings, from_file)),
                {},
            )
        )
    except ValidationError as error:
        found = [(tuple(item["loc"]), _in_words(item)) for item in error.errors(include_url=False, include_input=False)]
    else:
        found = list(_contradictions(settings))
    problems += [f"{_place(loc, given, variables, file, text)}: {problem}" for loc, problem in found]
    if problems:
        raise SettingsError("\n".join(problems))
    return settings


def table_problems(table: Mapping[str, Any]) -> list[tuple[tuple[str | int, ...], str]]:
    """What is wrong with settings that do not stand in a file of their own, each with the keys that lead to it.

    A Prometheus counts as there where the table names none.
    """
    given = {"prometheus": {"servers": {"default": {"url": "http://prometheus:9090"}}}, **table}
    try:
        settings = Settings(_build_sources=((InitSettingsSource(Settings, given),), {}))
    except ValidationError as error:
        return [(tuple(item["loc"]), _in_words(item)) for item in error.errors(include_url=False, include_input=False)]
    return list(_contradictions(settings))


def check_files(settings: Settings) -> list[str]:
    """Problems of the files that settings name, one line each: what ``serve`` cannot do without.

    Apart from ``load_settings``, because a command that only reads the audit needs no right to read tokens.
    """
    problems = []
    for place, path in secret_files(settings):
        try:
            read_secret_file(path)
        except SettingsError as error:
            problems.append(f"{place}: {error}")
    for place, file in _plain_files(settings):
        if not os.access(file, os.R_OK):
            problems.append(f"{place}: {file} does not exist or cannot be read")
    return problems


def read_secret_file(path: Path) -> tuple[str, ...]:
    """The secrets in a file: one a line, surrounding space and empty lines dropped.

    Raises:
        SettingsError: it cannot be read, is not UTF-8 or holds nothing. The text never has any of the contents.
    """
    try:
        lines = path.read_text("utf-8").splitlines()
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise SettingsError(f"{path} is not UTF-8 text") from None
    secrets = tuple(line.strip() for line in lines if line.strip())
    if not secrets:
        raise SettingsError(f"{path} is empty; write the secret into it, one a line")
    return secrets


def notify_urls(target: NotifySettings, environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """A notification target's apprise URLs, in plain text: for the notifier alone.

    Raises:
        SettingsError: the file cannot be read, or the variable is not set.
    """
    urls = [url.get_secret_value() for url in target.urls]
    if target.urls_file is not None:
        urls += read_secret_file(target.urls_file)
    if target.urls_env:
        value = environ.get(target.urls_env, "").strip()
        if not value:
            raise SettingsError(f"the variable {target.urls_env} is not set")
        urls += _BETWEEN_URLS.split(value)
    return tuple(urls)


def secret_values(settings: Settings, environ: Mapping[str, str] = os.environ) -> frozenset[str]:
    """Every secret that is readable now, to be struck out of logs and texts. What cannot be read is left out.

    Of a notification URL the password, and a long path or query, are secrets of their own: libraries tell them alone.
    """
    secrets: set[str] = set()
    for _, path in secret_files(settings):
        try:
            secrets.update(read_secret_file(path))
        except SettingsError:
            continue
    for target in settings.notify.values():
        urls = [url.get_secret_value() for url in target.urls]
        if target.urls_file is not None:
            with contextlib.suppress(SettingsError):
                urls += read_secret_file(target.urls_file)
        if target.urls_env in environ:
            urls += _BETWEEN_URLS.split(environ[target.urls_env].strip())
        for url in urls:
            secrets |= {url, *_secret_parts(url)}
    return frozenset(secret for secret in secrets if secret)


def _secret_parts(url: str) -> Iterator[str]:
    try:
        parts = urlsplit(url)
    except ValueError:  # apprise reads more than URLs
        return
    found = [parts.password or "", *(part for part in (parts.path, parts.query) if len(part) >= _LONG_PART)]
    for part in found:
        yield part
        yield unquote(part)


def is_loopback(host: str) -> bool:
    """Whether an address is reachable from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _read_text(file: Path, *, must_exist: bool) -> str:
    if not must_exist and not file.exists():
        return ""
    try:
        return file.read_text("utf-8")
    except OSError as error:
        raise SettingsError(f"{file}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise SettingsError(f"{file}: is not UTF-8 text") from None


def _parse_toml(file: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _TOML_ERROR.fullmatch(str(error))
        where, problem = (f"{file}:{found[2]}:{found[3]}", found[1]) if found else (str(file), str(error))
        raise SettingsError(f"{where}: is not TOML: {problem}") from error


def _line(text: str, loc: tuple[str | int, ...]) -> int:
    """The line of a file where a key stands, or the table that lacks it; 0 = nowhere.

    TOML's own reader tells no lines. But a beginning of the file, made longer until it is whole TOML, has the key or
    not; the shortest that has it ends on the line where the key stands.
    """
    lines = text.splitlines(keepends=True)

    def begins_with(loc: tuple[str | int, ...], n_lines: int) -> bool:
        for end in range(n_lines, len(lines) + 1):
            with contextlib.suppress(tomllib.TOMLDecodeError):
                return _has(tomllib.loads("".join(lines[:end])), loc)
        return False

    while loc and not begins_with(loc, len(lines)):
        loc = loc[:-1]
    return bisect_left(range(len(lines) + 1), True, key=partial(begins_with, loc)) if loc else 0


def _has(read: Any, loc: tuple[str | int, ...]) -> bool:
    for part in loc:
        try:
            read = read[part]
        except (KeyError, IndexError, TypeError):
            return False
    return True


def _anchored(model: type[BaseModel], table: Any, folder: Path) -> Any:
    """A file's table with its relative paths counted from the file's folder: a service starts in another one."""
    if not isinstance(table, dict):
        return table  # wrong, and the model's to refuse
    anchored = dict(table)
    for name, value in table.items():
        field = model.model_fields.get(str(name))
        if field is None:
            continue
        kinds = set(_kinds(field.annotation))
        inner = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
        if inner is not None and isinstance(value, list):
            anchored[name] = [_anchored(inner, item, folder) for item in value]
        elif inner is not None and isinstance(value, dict) and dict in kinds:
            anchored[name] = {key: _anchored(inner, item, folder) for key, item in value.items()}
        elif inner is not None:
            anchored[name] = _anchored(inner, value, folder)
        elif Path in kinds and isinstance(value, list):
            anchored[name] = [str(folder / item) if isinstance(item, str) else item for item in value]
        elif Path in kinds and isinstance(value, str):
            parts = (
                [str(folder / part.strip()) for part in value.split(",")] if tuple in kinds else [str(folder / value)]
            )
            anchored[name] = ",".join(parts)
        elif name == "store_url" and isinstance(value, str) and re.fullmatch(r"sqlite:///[^:?]+", value):
            anchored[name] = f"sqlite:///{(folder / value.removeprefix('sqlite:///')).absolute()}"
    return anchored


def _kinds(annotation: Any) -> Iterator[Any]:
    """A type and all that it is made of."""
    yield get_origin(annotation) or annotation
    for part in get_args(annotation):
        yield from _kinds(part)


def _unknown_variables(variables: Mapping[str, str], read: Mapping[str, Any]) -> Iterator[str]:
    """Variables that no field took. Nested ones that reach a table are pydantic's to refuse, as unknown keys."""
    for name in sorted(variables):
        head, *rest = name.removeprefix(PREFIX).lower().split("__")
        field = Settings.model_fields.get(head)
        if field is None:
            yield f"{name}: is no setting{_did_you_mean(head, Settings.model_fields, _variable)}"
        elif rest and variables[name] and not isinstance(read.get(head), dict):
            yield f"{name}: {_variable(head)} has no parts; set it whole"


def _variable(path: str) -> str:
    return PREFIX + path.replace(".", "__").upper()


def _toml_key(key: str) -> str:
    """As TOML writes it: a key may hold a dot, or a line break that would make two lines of one problem."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key)


def _place(
    loc: tuple[str | int, ...], given: Mapping[str, Any], variables: Mapping[str, str], file: Path, text: str
) -> str:
    """Where a person must look: the variable or the command's option if it came from there, else the file."""
    path = ".".join(_toml_key(str(part)) for part in loc)
    if loc and loc[0] in given:
        return f"command line: {path}"
    for end in range(len(loc), 0, -1):
        name = PREFIX + "__".join(str(part) for part in loc[:end]).upper()
        found = next((variable for variable in variables if variable.upper() == name), None)
        if found:
            return found if end == len(loc) else f"{found}: {path}"
    line = _line(text, loc)
    return f"{file}:{line}: {path}" if line else f"{file}: {path}"


def _in_words(error: Mapping[str, Any]) -> str:
    if error["type"] == "extra_forbidden":
        *parents, key = error["loc"]
        return f"is no setting{_did_you_mean(str(key), _fields_at(Settings, parents), str)}"
    if error["type"] == "missing":
        return "is missing"
    message = str(error["msg"])
    return message.removeprefix("Value error, ").removeprefix("Assertion failed, ")


def _did_you_mean(word: str, known: Mapping[str, Any], show: Callable[[str], str]) -> str:
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if near:
        return f"; did you mean {show(near[0])}?"
    return f"; known: {', '.join(show(name) for name in known)}" if known else ""


def _fields_at(model: type[BaseModel], parents: list[str | int]) -> Mapping[str, Any]:
    """The fields of the table at a location; tables stand in dicts by name and in tuples by index."""
    current: Any = model
    for part in parents:
        if isinstance(current, type) and issubclass(current, BaseModel):
            current = current.model_fields[str(part)].annotation
        else:
            current = next(arg for arg in reversed(get_args(current)) if arg is not Ellipsis)
        if get_origin(current) is Annotated:
            current = get_args(current)[0]
    return current.model_fields if isinstance(current, type) and issubclass(current, BaseModel) else {}


def _leaves(value: JsonValue) -> Iterator[JsonValue]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def _contradictions(settings: Settings) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """What is wrong between fields, each with the location to blame."""
    if not settings.has_auth and not is_loopback(settings.listen_host):
        yield (
            ("listen",),
            f"{settings.listen} can be reached from other machines, and no token is configured; add an entry to"
            " auth.tokens (name, roles, file), or listen on 127.0.0.1",
        )
    if (settings.tls_cert is None) != (settings.tls_key is None):
        yield ("tls_cert",), "tls_cert and tls_key go together"
    if settings.tls_client_ca is not None and settings.tls_cert is None:
        yield ("tls_client_ca",), "client certificates need tls_cert and tls_key"
    for name, host in settings.docker.hosts.items():
        place = ("docker", "hosts", name)
        if (host.tls_cert is None) != (host.tls_key is None):
            yield (*place, "tls_cert"), "tls_cert and tls_key go together"
        if (host.tls_ca or host.tls_cert) and not host.url.startswith("tcp://"):
            yield (*place, "url"), "TLS is for tcp:// alone"
    if settings.reconcile.starts and not (settings.alertmanager.urls and settings.alertmanager.receiver):
        yield ("reconcile", "starts"), "needs alertmanager.urls and alertmanager.receiver"
    for table, login in _logins(settings):
        if bool(login.username) != (login.password_file is not None):
            yield (*table, "username"), "username and password_file go together"
        if login.username and login.token_file is not None:
            yield (*table, "token_file"), "give a token_file, or username and password_file, not both"
    for name, fleet in settings.fleets.items():
        if (fleet.size is None) is (not fleet.query.strip()):
            yield ("fleets", name), "needs either size or query"
        elif fleet.query and not settings.prometheus.servers:
            yield ("fleets", name, "query"), "there is no Prometheus to ask; add prometheus.servers.NAME.url"
        elif fleet.query and len(settings.prometheus.servers) > 1:
            yield ("fleets", name, "query"), "there are several Prometheus servers and a fleet is of all; give its size"
    for name, target in settings.notify.items():
        if not (target.urls or target.urls_file or target.urls_env):
            yield ("notify", name), "needs urls, urls_file or urls_env"
    for field, names in (("report_to", settings.report_to), ("escalate_to", settings.escalate_to)):
        for name in names:
            if name not in settings.notify:
                yield (field,), f"there is no notify.{name}{_did_you_mean(name, settings.notify, str)}"


def _logins(
    settings: Settings,
) -> Iterator[tuple[tuple[str, ...], AlertmanagerSettings | PrometheusServerSettings]]:
    """The tables that say how others' APIs let us in, each with its place."""
    yield ("alertmanager",), settings.alertmanager
    for name, server in settings.prometheus.servers.items():
        yield ("prometheus", "servers", name), server


def secret_files(settings: Settings) -> Iterator[tuple[str, Path]]:
    """The files that ``read_secret_file`` reads, each with the place in the settings that names it."""
    for token in settings.auth.tokens:
        yield f"auth.tokens, {token.name}", token.file
    for basic in settings.auth.basic:
        yield f"auth.basic, {basic.username}", basic.password_file
    for place, login in _logins(settings):
        for field in ("token_file", "password_file"):
            if (file := getattr(login, field)) is not None:
                yield ".".join((*place, field)), file
    for name, target in settings.notify.items():
        if target.urls_file is not None:
            yield f"notify.{name}.urls_file", target.urls_file


def _plain_files(settings: Settings) -> Iterator[tuple[str, Path]]:
    for place, login in _logins(settings):
        if login.tls_ca is not None:
            yield ".".join((*place, "tls_ca")), login.tls_ca
    for name in ("tls_cert", "tls_key", "tls_client_ca"):
        if (file := getattr(settings, name)) is not None:
            yield name, file
    for host_name, host in settings.docker.hosts.items():
        for name in ("tls_ca", "tls_cert", "tls_key"):
            if (file := getattr(host, name)) is not None:
                yield f"docker.hosts.{host_name}.{name}", file
