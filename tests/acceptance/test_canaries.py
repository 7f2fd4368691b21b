"""A canary in every place that holds a secret, then a life in which all goes wrong: no canary is found in anything
that the engine wrote, answered, stored or showed.

The places are read from the settings' own types: a new one without a canary fails the first test.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
from pydantic import BaseModel, SecretStr

from acceptance.conftest import EngineFactory
from acceptance.delivery import delivery
from acceptance.engine import Engine
from certificates import make_certificate
from realparts.loopback import MetricsPage, WebhookReceiver
from realparts.process import wait_until
from remediator.errors import SettingsError
from remediator.settings import Settings, load_settings

WITHIN_S = 90.0

SECRETS = {
    "auth.tokens.file",
    "auth.basic.password_file",
    "tls_key",
    "docker.hosts.tls_key",
    "alertmanager.token_file",
    "alertmanager.password_file",
    "prometheus.servers.token_file",
    "prometheus.servers.password_file",
    "notify.urls",
    "notify.urls_file",
    "notify.urls_env",
}
"""Each has a canary below."""

NO_SECRETS = {
    "store_url": "a file's name",
    "public_url": "refused with a user or password",
    "docker.hosts.url": "refused with a password",
    "alertmanager.urls": "refused with a user or password",
    "playbooks": "are shown",
    "pause_file": "is looked for, not read",
    "tls_cert": "is public",
    "tls_client_ca": "is public",
    "docker.hosts.tls_ca": "is public",
    "docker.hosts.tls_cert": "is public",
    "alertmanager.tls_ca": "is public",
    "prometheus.servers.url": "refused with a user, a password or anything after its path",
    "prometheus.servers.tls_ca": "is public",
}
"""What looks like a secret, and why it is none."""


def leaves(model: type[BaseModel], above: str = "") -> Iterator[tuple[str, set[Any]]]:
    """Every setting with the types that it is made of; tables in lists and maps without their keys."""
    for name, of in model.model_fields.items():
        kinds = {*types_in(of.annotation)}
        tables = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
        if not tables:
            yield above + name, kinds
        for table in tables:
            yield from leaves(table, f"{above}{name}.")


def types_in(annotation: Any) -> Iterator[Any]:
    yield get_origin(annotation) or annotation
    for part in get_args(annotation):
        yield from types_in(part)


def test_settings_when_one_could_hold_a_secret_then_a_canary_is_in_it_or_it_is_said_why_not() -> None:
    could = {
        name
        for name, kinds in leaves(Settings)
        if kinds & {SecretStr, Path} or re.search("url|pass|token|secret|key|credential", name.rpartition(".")[2])
    }
    assert could == SECRETS | NO_SECRETS.keys()


@dataclass
class Aviary:
    """The canaries, and what was said while they sat in their places.

    Attributes:
        canaries: by place.
        said: what is looked through, by what it is.
    """

    folder: Path
    canaries: dict[str, set[str]] = field(default_factory=dict)
    said: dict[str, bytes] = field(default_factory=dict)

    def new(self, slot: str) -> str:
        assert slot in SECRETS
        bird = f"canary{os.urandom(9).hex()}"
        self.canaries.setdefault(slot, set()).add(bird)
        return bird

    def file(self, slot: str, text: str = "{}") -> Path:
        """A file with a new canary, that only we can read."""
        path = self.folder / f"secret-{len(self.canaries)}-{len(list(self.folder.iterdir()))}"
        path.write_text(text.format(self.new(slot)) + "\n")
        path.chmod(0o600)
        return path

    def key(self, slot: str, *, is_for_tls: bool) -> tuple[Path, Path]:
        """A certificate for 127.0.0.1 and its key, whose every line is a canary; or a file that is no key at all."""
        made = make_certificate(self.folder, f"{slot}-{is_for_tls}")
        if not is_for_tls:
            made.key.write_text(f"-----BEGIN PRIVATE KEY-----\n{self.new(slot)}\n-----END PRIVATE KEY-----\n")
        lines = made.key.read_text().splitlines()
        self.canaries.setdefault(slot, set()).update(line for line in lines if "-----" not in line)
        return made.pem, made.key

    def hear(self, what: str, text: str | bytes) -> None:
        self.said[f"{len(self.said)} {what}"] = text.encode() if isinstance(text, str) else text

    def hear_commands(self, engine: Engine, *commands: Sequence[str], role: str = "operate") -> None:
        for command in commands:
            done = engine.command(*command, role=role)
            self.hear(" ".join(command), done.out + done.err)

    def hear_files(self, engine: Engine) -> None:
        self.hear("stdout", engine.stdout.read_bytes())
        self.hear("stderr", engine.stderr.read_bytes())
        for file in engine.store.parent.iterdir():
            self.hear(file.name, file.read_bytes())

    def found(self) -> set[tuple[str, str]]:
        """Which places' canaries are in what."""
        return {
            (slot, what)
            for slot, birds in self.canaries.items()
            for bird in birds
            for what, text in self.said.items()
            if bird.encode() in text
        }


class Header:
    """An Authorization header as it is: requests would put one of a ``.netrc`` in its place."""

    def __init__(self, value: str) -> None:
        self._value = value

    def __call__(self, request: object) -> object:
        request.headers["Authorization"] = self._value  # type: ignore[attr-defined]
        return request


@pytest.fixture
def aviary(tmp_path: Path) -> Aviary:
    (tmp_path / "secrets").mkdir()
    return Aviary(tmp_path / "secrets")


PLAYBOOKS = """
playbook: tells
match: [alertname = Told]
per: [n]
guard: {cooldown: 0s}
steps:
  - name: tell
    action: notify.send
    params: {to: [inline, file, env], title: "{{ labels.n }}"}
    retry: {attempts: 2, wait: 1s}
escalate: {to: [inline, file, env]}
---
playbook: acts
match: [alertname = Leak]
per: [host]
steps: [{action: docker.restart, params: {container: trainer-0}}]
escalate: {to: [inline, file, env]}
"""

LOOKS = (
    ("status", "--json"),
    ("runs",),
    ("check", "--effective"),
    ("doctor",),
    ("plan", "alertname=Leak", "hostname=gpu-tls"),
    ("audit", "export"),
)


def canary_engine(aviary: Aviary, make: EngineFactory, people: WebhookReceiver, **how: Any) -> Engine:
    """An engine with a canary in each place that the first story needs; its notification services are in trouble."""
    people_at = people.url.removeprefix("http://")
    cert, key = aviary.key("tls_key", is_for_tls=True)
    docker_cert, docker_key = aviary.key("docker.hosts.tls_key", is_for_tls=True)
    _, bad_key = aviary.key("docker.hosts.tls_key", is_for_tls=False)
    inline, file, env = aviary.new("notify.urls"), aviary.new("notify.urls_file"), aviary.new("notify.urls_env")
    urls_file = aviary.folder / "urls"
    urls_file.write_text(f"json://127.0.0.1:9/{file}\njson://{file}:{file}@{people_at}/?token={file}\n")
    engine = make(
        {"a.yaml": PLAYBOOKS},
        settings=f'log_level = "debug"\ntls_cert = "{cert}"\ntls_key = "{key}"\n',
        tables=(
            f'[docker.hosts.gpu-tls]\nurl = "tcp://127.0.0.1:9"\n'
            f'tls_ca = "{cert}"\ntls_cert = "{docker_cert}"\ntls_key = "{docker_key}"\n'
            f'[docker.hosts.gpu-bad]\nurl = "tcp://127.0.0.1:9"\ntls_cert = "{docker_cert}"\ntls_key = "{bad_key}"\n'
            f'[docker.hosts.gpu-ssh]\nurl = "ssh://root@127.0.0.1:9"\n'
            f'[notify.inline]\nurls = ["json://user:{inline}@{people_at}/{inline}", "json://127.0.0.1:9/{inline}"]\n'
            f'[notify.file]\nurls_file = "{urls_file}"\n'
            f'[notify.env]\nurls_env = "CANARY_URLS"\n'
            f'[[auth.basic]]\nusername = "basil"\nroles = ["view"]\n'
            f'password_file = "{aviary.file("auth.basic.password_file")}"\n'
        ),
        environ={"CANARY_URLS": f"json://127.0.0.1:9/?x={env} json://{env}@127.0.0.1:9/{env}"},
        **how,
    )
    engine.url = engine.url.replace("http:", "https:")
    aviary.canaries["auth.tokens.file"] = {*engine.tokens.values()}
    return engine


def ask_around(aviary: Aviary, engine: Engine) -> None:
    """Right and wrong credentials, everywhere."""
    (password,) = aviary.canaries["auth.basic.password_file"]
    nobody = f"stranger{os.urandom(9).hex()}"
    aviary.canaries["what a stranger sent"] = {nobody}
    headers = [f"Bearer {token}" for token in (*engine.tokens.values(), nobody, password)]
    for header in [*headers, f"Basic {nobody}"]:
        for method, path, body in (
            ("GET", "/api/v1/status", None),
            ("GET", "/metrics", None),
            ("GET", "/api/v1/runs", None),
            ("GET", "/nowhere", None),
            ("POST", "/api/v1/alertmanager", b"no JSON"),
            ("POST", "/api/v1/pause", b"{}"),
        ):
            answer = engine.ask(method, path, "", data=body, auth=Header(header))
            aviary.hear(f"{method} {path}", repr(answer.headers) + answer.text)
    for known in (("basil", password), ("basil", nobody)):
        answer = engine.ask("GET", "/metrics", "", auth=known)
        aviary.hear("GET /metrics", repr(answer.headers) + answer.text)


def n_failed_messages(engine: Engine) -> int:
    return sum(event["outcome"] == "failed" for event in engine.events("attempt_finished"))


def test_canaries_when_everything_is_used_and_goes_wrong_then_none_is_found(
    aviary: Aviary, engine_factory: EngineFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with WebhookReceiver() as people:
        people.status = 500
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(aviary.folder / "tls_key-True.pem"))
        engine = canary_engine(aviary, engine_factory, people)
        engine.start()
        leaks = [
            {"alertname": "Leak", "hostname": host} for host in ("gpu-07", "gpu-tls", "gpu-bad", "gpu-ssh", "none")
        ]
        assert engine.deliver(delivery({"alertname": "Told", "n": "1"}, *leaks)) == 200
        ask_around(aviary, engine)
        wait_until(lambda: n_failed_messages(engine) >= 2, "messages have failed", WITHIN_S)
        wait_until(lambda: len(engine.events("verdict_given")) >= 4, "the hosts were asked", WITHIN_S)
        aviary.hear_commands(engine, *LOOKS)
        aviary.hear_commands(engine, ("runs",), role="deliver")
        engine.token_file("view").write_bytes(b"\xff\xfe")  # a token file that cannot be read any more
        aviary.hear("a token file that is none", engine.ask("GET", "/api/v1/status").text)
        engine.write_playbook("playbook: x\nmatch: y\n", "more.yaml")
        aviary.hear("reload", engine.ask("POST", "/-/reload", "operate").text)
        run = engine.runs()[0]["run_id"]
        aviary.hear("a run", engine.ask("GET", f"/api/v1/runs/{run}").text)
        engine.kill()
        engine.was_up = False  # what it says now is for people
        code, _ = engine.refuses_to_start()
        assert code == 2
        aviary.hear_files(engine)
        assert people.received, "a message was on its way"
    assert aviary.found() == set()
    assert any(b"gpu-ssh" in text for text in aviary.said.values()), "what was looked through is what was written"


def test_canaries_when_a_bug_tells_all_that_it_knows_then_the_log_and_the_audit_strike_them_out(
    aviary: Aviary, engine_factory: EngineFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with WebhookReceiver() as people:
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(aviary.folder / "tls_key-True.pem"))
        told = aviary.folder / "told"
        engine = canary_engine(
            aviary,
            engine_factory,
            people,
            command=(sys.executable, str(Path(__file__).with_name("telling_secrets.py"))),
        )
        engine._environ["TOLD_SECRETS"] = str(told)
        told.write_text(
            "\n".join(
                [
                    *(
                        bird
                        for slot in ("auth.tokens.file", "auth.basic.password_file")
                        for bird in aviary.canaries[slot]
                    ),
                    (aviary.folder / "urls").read_text(),
                    engine._environ["CANARY_URLS"],
                    *re.findall(r"json://[^\"]*", engine.config.read_text()),
                ]
            )
        )
        engine.start()
        assert engine.deliver(delivery({"alertname": "Told", "n": "1"})) == 200
        wait_until(lambda: n_failed_messages(engine) >= 2, "the bug has struck", WITHIN_S)
        aviary.hear_commands(engine, ("audit", "list", "--json"), ("audit", "export"))
        aviary.hear("metrics", engine.metrics())
        engine.terminate()
        aviary.hear_files(engine)
    assert aviary.found() == set()
    assert "KeyError" in engine.stderr.read_text(), "the traceback is in the log"
    assert "[redacted]" in engine.stderr.read_text()


@pytest.mark.parametrize("how", ["token", "password"])
def test_canaries_when_the_alertmanager_is_away_or_says_no_then_none_is_found(
    how: str, aviary: Aviary, engine_factory: EngineFactory
) -> None:
    with MetricsPage("no JSON") as alertmanager:
        table = f'[alertmanager]\nurls = ["http://127.0.0.1:9", "{alertmanager.url}"]\n'
        if how == "token":
            table += f'token_file = "{aviary.file("alertmanager.token_file")}"\n'
        else:
            table += f'username = "me"\npassword_file = "{aviary.file("alertmanager.password_file")}"\n'
        engine = engine_factory({"a.yaml": PLAYBOOKS.replace("inline, file, env", "people")}, tables=table)
        aviary.canaries["auth.tokens.file"] = {*engine.tokens.values()}
        engine.start()
        assert engine.deliver(delivery({"alertname": "Leak", "hostname": "gpu-07"})) == 200
        wait_until(lambda: "gave no answer" in engine.stderr.read_text(), "the Alertmanager is away", WITHIN_S)
        aviary.hear_commands(engine, ("doctor",), ("status",), ("audit", "list"))
        aviary.hear("metrics", engine.metrics())
        engine.terminate()
        aviary.hear_files(engine)
    assert aviary.found() == set()
    assert any(b"gave no answer" in text for text in aviary.said.values())


class TellingPrometheus(MetricsPage):
    """Refuses every query, and says in its error with what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        answering = self._http.RequestHandlerClass

        def tell(request: BaseHTTPRequestHandler) -> None:
            request.rfile.read(int(request.headers["Content-Length"]))
            error = f"no query for {request.headers['Authorization']}"
            body = json.dumps({"status": "error", "errorType": "bad_data", "error": error}).encode()
            request.send_response(400)
            request.send_header("Content-Length", str(len(body)))
            request.end_headers()
            request.wfile.write(body)

        answering.do_POST = tell  # type: ignore[attr-defined]


def test_canaries_when_a_prometheus_tells_what_it_was_asked_with_then_none_is_found(
    aviary: Aviary, engine_factory: EngineFactory
) -> None:
    asking = PLAYBOOKS.replace("inline, file, env", "people").replace(
        "per: [host]", "per: [cluster, host]\nguard: {require: [{name: well, query: up, equals: 1}]}"
    )
    with TellingPrometheus() as telling:
        tables = (
            f'[prometheus.servers.a]\nurl = "{telling.url}"\n'
            f'token_file = "{aviary.file("prometheus.servers.token_file")}"\n'
            f'[prometheus.servers.b]\nurl = "{telling.url}"\nusername = "me"\n'
            f'password_file = "{aviary.file("prometheus.servers.password_file")}"\n'
            f'[prometheus.servers.c]\nurl = "http://127.0.0.1:9"\n'
            f'token_file = "{aviary.file("prometheus.servers.token_file")}"\n'
        )
        engine = engine_factory({"a.yaml": asking}, tables=tables)
        aviary.canaries["auth.tokens.file"] = {*engine.tokens.values()}
        engine.start()
        leaks = [{"alertname": "Leak", "hostname": "gpu-07", "cluster": cluster} for cluster in "abc"]
        assert engine.deliver(delivery(*leaks)) == 200
        wait_until(lambda: len(engine.events("verdict_given")) == 3, "each Prometheus was asked", WITHIN_S)
        aviary.hear_commands(engine, ("doctor",), ("audit", "list", "--json"))
        aviary.hear("metrics", engine.metrics())
        engine.terminate()
        aviary.hear_files(engine)
    assert aviary.found() == set()
    assert any(b"no query for Bearer [redacted]" in text for text in aviary.said.values())


BAD = {
    "a URL that is no list": ("[notify.x]\nurls = {{x = '{}'}}", {}),
    "a token in the settings": ('[[auth.tokens]]\nname = "x"\nroles = ["view"]\ntoken = "{}"', {}),
    "a token for a table": ('auth = "{}"', {}),
    "a token for a role": ('[[auth.tokens]]\nname = "x"\nfile = "x"\nroles = ["{}"]', {}),
    "a password in an Alertmanager's URL": ('[alertmanager]\nurls = ["http://me:{}@am:9093"]', {}),
    "a password in a Prometheus' URL": ('[prometheus.servers.a]\nurl = "http://me:{}@prom:9090"', {}),
    "a token in a Prometheus' URL": ('[prometheus.servers.a]\nurl = "http://prom:9090/?token={}"', {}),
    "a password in a Docker host's URL": ('[docker.hosts.x]\nurl = "tcp://me:{}@gpu:2376"', {}),
    "a password in a Docker host's URL of no scheme": ('[docker.hosts.x]\nurl = "https://me:{}@gpu:2376"', {}),
    "a password in the address for people": ('public_url = "https://me:{}@x"', {}),
    "a password in the store's URL": ('store_url = "postgresql://me:{}@db/x"', {}),
    "no TOML": ('[notify.x]\nurls = ["json://{}', {}),
    "a URL in a bad variable": ("", {"REMEDIATOR_NOTIFY__X__URL": "json://{}"}),
    "a token in a bad variable": ("", {"REMEDIATOR_TOKEN": "{}"}),
    "a token in a variable that is no JSON": ("", {"REMEDIATOR_AUTH__TOKENS": '[{{"token": "{}"'}),
    "a token in a variable with a key too many": (
        "",
        {"REMEDIATOR_AUTH__TOKENS": '[{{"name": "x", "roles": "view", "file": "x", "token": "{}"}}]'},
    ),
    "a password in a variable": ("", {"REMEDIATOR_ALERTMANAGER__URLS": "http://me:{}@am:9093"}),
}


@pytest.mark.parametrize("row", BAD)
def test_settings_when_they_are_bad_and_hold_a_secret_then_the_error_does_not(row: str, tmp_path: Path) -> None:
    toml, variables = BAD[row]
    canary = f"canary{os.urandom(9).hex()}"
    config = tmp_path / "remediator.toml"
    config.write_text(toml.format(canary))
    environ = {name: value.format(canary) for name, value in variables.items()}
    with pytest.raises(SettingsError) as caught:
        load_settings(config, environ)
    assert canary not in str(caught.value)
