"""Alerts whose every text is an attack on whoever repeats it, through everything that the engine writes and says.

One engine hears the whole table (``data/hostile_labels.yaml``), plans, refuses, tells people and is asked about it.
Then all that it wrote is looked at: each log line is one line, no control character reaches a terminal, nothing was
worked out or run, and what was sent stands unchanged where it is kept.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import pty
import re
import select
import socket
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import requests
import structlog
from prometheus_client.parser import text_string_to_metric_families
from ruamel.yaml import YAML

from acceptance.delivery import ZERO_TIME
from acceptance.engine import Engine
from conftest_realparts import PrometheusFactory
from realparts.loopback import WebhookReceiver
from realparts.process import wait_until
from remediator.clients.notifier import BODY_LIMIT, TITLE_LIMIT
from remediator.core.render import MAX_TEXT, ParamTemplate, TemplateKind
from remediator.core.units import cut
from remediator.telemetry import configure_logging, get_logger

ROWS = YAML(typ="safe").load(Path(__file__).parents[1] / "data" / "hostile_labels.yaml")
TEXTS: dict[str, str] = {row["id"]: row["text"] * row.get("times", 1) for row in ROWS}

PRODUCT = "1524155677489"
"""1234567 * 1234567: a text that was worked out."""

HIDDEN = "hidden-from-alerts"
"""A value of the site's own, that a template in a label would like to see."""

WITHIN_S = 120.0

PLAYBOOKS = """
playbook: tells
match: [alertname = Hostile]
per: [victim]
guard: {cooldown: 0s}
steps:
  - name: tell
    action: notify.send
    params:
      to: [people]
      title: "{{ labels.victim }}"
      body: >-
        {{ labels.n }}|{{ annotations.summary }}|{{ group.receiver }}|{{ group.external_url }}|{{ alert.generator_url }}
---
playbook: by-name
match: [alertname = Hostile]
per: [n]
steps: [{action: docker.restart, params: {host: gpu-07, container: "{{ labels.victim }}"}}]
escalate: {to: [oncall]}
---
playbook: by-host
match: [alertname = Hostile]
per: [n]
steps: [{action: docker.restart, params: {host: "{{ labels.victim }}", container: trainer-0}}]
"""

INVISIBLE = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def hostile_delivery(row: str) -> bytes:
    """The text wherever a sender may put one; a megabyte as a label and an annotation alone."""
    victim = TEXTS[row]
    text = victim[:100_000]
    alert = {
        "status": "firing",
        "labels": {"alertname": "Hostile", "n": row, "victim": victim, text: "its name is the attack"},
        "annotations": {"summary": victim, text: text},
        "startsAt": datetime.now(UTC).isoformat(),
        "endsAt": ZERO_TIME,
        "generatorURL": text,
        "fingerprint": text,
    }
    group = {
        "version": "4",
        "receiver": re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", text),  # as Alertmanager quotes it
        "status": text,
        "groupKey": text,
        "alerts": [alert, {"status": text}, {"status": "firing", "labels": {text: 1}}],
        "groupLabels": {text: text},
        "commonLabels": {text: text},
        "commonAnnotations": {text: text},
        "externalURL": text,
        text: text,
    }
    return json.dumps(group).encode()


def on_a_terminal(engine: Engine, *arguments: str) -> str:
    """What a command writes when a person runs it."""
    ours, theirs = pty.openpty()
    environ = {name: value for name, value in os.environ.items() if not name.startswith("REMEDIATOR_")}
    command = [sys.executable, "-m", "remediator", "--config", str(engine.config), *arguments]
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        cwd=engine.folder,
        env=environ
        | {"TERM": "xterm-256color", "COLUMNS": "100", "REMEDIATOR_TOKEN_FILE": str(engine.token_file("operate"))},
    )
    os.close(theirs)
    parts = []
    with contextlib.suppress(OSError):  # Linux says EIO when the other end is closed
        while part := os.read(ours, 65536):
            parts.append(part)
    os.close(ours)
    child.wait(60)
    return b"".join(parts).decode()


@dataclass
class Heard:
    """What came of the whole table.

    Attributes:
        answers: HTTP, by what was asked.
        piped, shown: what commands wrote into a pipe and on a terminal.
        docker: where the Docker host would listen.
    """

    engine: Engine
    people: WebhookReceiver
    oncall: WebhookReceiver
    docker: socket.socket
    statuses: dict[str, int] = field(default_factory=dict)
    answers: dict[str, requests.Response] = field(default_factory=dict)
    piped: dict[str, str] = field(default_factory=dict)
    shown: dict[str, str] = field(default_factory=dict)
    runs: list[dict[str, Any]] = field(default_factory=list)
    log: bytes = b""

    def texts(self) -> dict[str, str]:
        """Everything that anybody reads."""
        return {
            **{name: answer.text for name, answer in self.answers.items()},
            **self.piped,
            **self.shown,
            "the log": self.log.decode(),
        }


PIPED = (
    ("runs", "--limit", "1000"),
    ("audit", "list", "--limit", "100000"),
    ("audit", "list", "--json", "--limit", "100000"),
    ("audit", "export"),
    ("audit", "verify"),
    ("plan", "{delivery}", "--json"),
)
SHOWN = (
    ("status",),
    ("runs", "--limit", "1000"),
    ("audit", "list", "--limit", "100000"),
    ("audit", "show", "{seq}"),
    ("audit", "export"),
    ("plan", "{delivery}"),
)


@pytest.fixture(scope="module")
def heard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Heard]:
    """The engine after the whole table, stopped, with all that it said."""
    folder = tmp_path_factory.mktemp("hostile")
    with WebhookReceiver() as people, WebhookReceiver() as oncall, socket.create_server(("127.0.0.1", 0)) as docker:
        engine = Engine(
            folder / "engine",
            {"hostile.yaml": PLAYBOOKS},
            docker_url=f"tcp://127.0.0.1:{docker.getsockname()[1]}",
            notify_url=people.url.replace("http", "json"),
            settings='log_level = "debug"\n',
            tables=f'[notify.oncall]\nurls = ["{oncall.url.replace("http", "json")}"]\n[vars]\nhidden = "{HIDDEN}"\n',
        )
        heard = Heard(engine, people, oncall, docker)
        try:
            engine.start()
            _live(heard)
            engine.terminate()
        finally:
            engine.kill()
        heard.log = engine.stderr.read_bytes()
        yield heard


def _live(heard: Heard) -> None:
    engine = heard.engine
    for row in TEXTS:
        heard.statuses[row] = engine.deliver(hostile_delivery(row))
    wait_until(
        lambda: (
            engine.query("SELECT count(*) FROM run WHERE ended_at IS NULL") == [(0,)]
            and engine.query("SELECT count(*) FROM delivery WHERE handled_at IS NULL") == [(0,)]
        ),
        "all runs have ended",
        WITHIN_S,
    )
    wait_until(lambda: _n_messages_open(engine) == 0, "all messages are sent", WITHIN_S)
    for row in TEXTS:
        _ask_about(heard, row)
    for path in ("/api/v1/status", "/api/v1/runs?limit=1000", "/metrics", "/readyz"):
        heard.answers[path] = engine.ask("GET", path)
    heard.runs = engine.runs()
    delivery_file = engine.folder / "delivery.json"
    group = json.loads(hostile_delivery("a colour"))
    group["alerts"] = [json.loads(hostile_delivery(row))["alerts"][0] for row in TEXTS if len(TEXTS[row]) < 10_000]
    delivery_file.write_text(json.dumps(group))
    opened = next(one for one in engine.events("episode_opened") if one["data"]["labels"]["n"] == "a colour")
    words = {"seq": opened["seq"], "delivery": delivery_file}
    for command in PIPED:
        name, done = " ".join(command), engine.command(*(word.format(**words) for word in command))
        assert done.code == 0, f"{name}: {done.err}"
        heard.piped[f"{name} | cat"] = done.out + done.err
    for command in SHOWN:
        heard.shown[" ".join(command)] = on_a_terminal(engine, *(word.format(**words) for word in command))


def _n_messages_open(engine: Engine) -> int:
    started = {(one["run_id"], one["data"]["step"], one["data"]["attempt"]) for one in engine.events("attempt_started")}
    ended = {(one["run_id"], one["data"]["step"], one["data"]["attempt"]) for one in engine.events("attempt_finished")}
    n_told = len(
        {one["run_id"] for one in engine.events("attempt_finished") if one["data"]["step"].startswith("message.")}
    )
    n_refused = len([one for one in engine.events("plan_refused") if one["playbook"] == "by-name"])
    return len(started - ended) + max(0, n_refused - n_told)  # fmt: skip


def _ask_about(heard: Heard, row: str) -> None:
    """The text as whatever a caller may send."""
    text, engine = TEXTS[row], heard.engine
    short = text[:2000]

    def keep(what: str, answer: requests.Response) -> None:
        heard.answers[f"{what}: {row}"] = answer

    by_hand = {"playbook": text, "labels": {"victim": text}}
    keep("no such playbook", engine.ask("POST", "/api/v1/runs", "operate", json=by_hand))
    keep("no such field", engine.ask("POST", "/api/v1/pause", "operate", json={"reason": "x", text: text}))
    keep("by nobody", engine.ask("POST", "/api/v1/pause", "operate", json={"reason": text, "by": text}))
    keep("no such run", engine.ask("GET", f"/api/v1/runs/{quote(short, safe='')}"))
    keep("no such path", engine.ask("GET", f"/{quote(short, safe='')}"))
    keep("no such state", engine.ask("GET", "/api/v1/runs", params={"state": short}))
    keep("no delivery", engine.ask("POST", "/api/v1/alertmanager", "deliver", data=text.encode()))


def without_colour(text: str) -> str:
    """Without what a terminal takes for colours: rich's own, which no label may bring along (``38;5;201`` is one's)."""
    return re.sub(r"\x1b\[(?!38;5;201)[0-9;]*m", "", text)


def invisible(text: str, allowed: str = "\n") -> set[str]:
    """Characters that move a cursor, break a line or hide."""
    return {repr(char) for char in set(text) - set(allowed) if unicodedata.category(char) in INVISIBLE}


def test_delivery_when_hostile_then_taken(heard: Heard) -> None:
    assert {row: status for row, status in heard.statuses.items() if status != 200} == {}


def test_labels_when_hostile_then_kept_as_they_were_sent(heard: Heard) -> None:
    kept = {event["data"]["labels"]["n"]: event["data"]["labels"] for event in heard.engine.events("episode_opened")}
    sent = {row: json.loads(hostile_delivery(row))["alerts"][0]["labels"] for row in TEXTS}
    assert kept.keys() == sent.keys()
    assert [row for row in sent if kept[row] != sent[row]] == []


def test_everything_when_labels_are_hostile_then_nothing_was_run_or_worked_out(heard: Heard) -> None:
    root = heard.engine.folder.parent
    assert [path for path in (*root.rglob("*"), *Path.cwd().iterdir()) if "PWNED" in path.name] == []
    told = [received.body.decode() for received in (*heard.people.received, *heard.oncall.received)]
    assert [name for name, text in heard.texts().items() if PRODUCT in text] == []
    assert [text for text in told if PRODUCT in text or HIDDEN in text] == []
    assert len(told) > len(TEXTS)


def test_names_when_hostile_then_refused_before_the_docker_host_is_asked(heard: Heard) -> None:
    reasons = {
        playbook: {run["per"]["n"]: run["reason"] for run in heard.runs if run["playbook"] == playbook}
        for playbook in ("by-name", "by-host")
    }
    assert reasons["by-name"].keys() == reasons["by-host"].keys() == TEXTS.keys()
    assert set(reasons["by-name"].values()) == {"bad_params"}
    assert set(reasons["by-host"].values()) == {"bad_params", "unknown_host"}
    assert select.select([heard.docker], [], [], 0)[0] == [], "nobody has connected"


def test_log_when_labels_are_hostile_then_each_line_is_one_object_in_ascii(heard: Heard) -> None:
    lines = heard.log.split(b"\n")
    assert lines.pop() == b""
    assert [line for line in lines if not isinstance(json.loads(line), dict)] == []
    assert invisible(heard.log.decode("ascii")) == set()
    assert {json.loads(line)["event"] for line in lines} >= {"episode_opened", "plan_refused", "delivery_received"}


def test_commands_when_labels_are_hostile_then_no_control_character_reaches_a_pipe(heard: Heard) -> None:
    piped = heard.piped | {"audit export | cat": ""}  # which is the exact characters that the hashes cover
    assert {name: found for name, text in piped.items() if (found := invisible(text))} == {}


def test_commands_when_labels_are_hostile_then_no_control_character_reaches_a_terminal(heard: Heard) -> None:
    shown = {name: without_colour(text) for name, text in heard.shown.items()}
    assert {name: found for name, text in shown.items() if (found := invisible(text, "\r\n"))} == {}
    assert any("\x1b[" in text for text in heard.shown.values()), "it was a terminal"


def test_commands_when_labels_are_hostile_then_each_event_and_run_has_its_own_lines(heard: Heard) -> None:
    n_events = json.loads(heard.piped["audit list --json --limit 100000 | cat"].splitlines()[-1])["seq"]
    for name in ("audit list --limit 100000", "audit list --json --limit 100000"):
        n_heads = 0 if "--json" in name else 1
        assert len(heard.piped[f"{name} | cat"].splitlines()) == n_events + n_heads, name
    *exported, head, end = heard.piped["audit export | cat"].split("\n")
    assert [json.loads(json.loads(line)["body"])["seq"] for line in exported] == [*range(1, n_events + 1)]
    assert (head.startswith(f"head {n_events}:"), end) == (True, "")
    json.loads(heard.piped["plan {delivery} --json | cat"])


def test_audit_when_labels_are_hostile_then_the_chain_is_intact(heard: Heard) -> None:
    assert heard.piped["audit verify | cat"].startswith("intact: ")


def test_answers_when_callers_are_hostile_then_json_without_control_characters_and_never_our_fault(
    heard: Heard,
) -> None:
    answers = {name: answer for name, answer in heard.answers.items() if name != "/metrics"}
    assert {name: answer.status_code for name, answer in answers.items() if answer.status_code >= 500} == {}
    assert {name: found for name, answer in heard.answers.items() if (found := invisible(answer.text))} == {}
    for answer in answers.values():
        assert isinstance(answer.json(), dict | list)
        assert answer.headers["Content-Type"] == "application/json"
    # Alertmanager writes what it is told into its own log.
    refusals = {name: answer.text for name, answer in answers.items() if name.startswith("no delivery")}
    assert [name for name, text in refusals.items() if len(text) > 500] == []


def test_metrics_when_labels_are_hostile_then_none_of_them_is_a_label_there(
    heard: Heard, find_tool: Callable[[str], Path]
) -> None:
    page = heard.answers["/metrics"].text
    values = {
        value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        for value in sample.labels.values()
    }
    assert values & {*TEXTS, *TEXTS.values()} == set()
    assert len(values) < 100
    checked = subprocess.run(
        [str(find_tool("promtool")), "check", "metrics"], input=page, capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_messages_when_labels_are_hostile_then_they_arrive_as_text_once(heard: Heard) -> None:
    arrived = {message["message"].split("|")[0]: message for message in (one.payload for one in heard.people.received)}
    wrong = {}
    for row, text in TEXTS.items():
        title = " ".join("".join(char if char.isprintable() else " " for char in text).split())
        body = "|".join([row, *[text] * 4])
        is_short = len(body) <= MAX_TEXT
        body = body.replace("\r\n", "\n")
        for char in {char for char in text if unicodedata.category(char) == "Cc"} - {"\t", "\n"}:
            body = body.replace(char, f"\\x{ord(char):02x}")
        expected = (cut(title, TITLE_LIMIT), cut(body, BODY_LIMIT).rstrip()) if is_short else None
        message = arrived.get(row)
        if (message and (message["title"], message["message"].rstrip())) != expected:
            wrong[row] = message
    assert wrong == {}


def test_messages_of_the_engine_when_labels_are_hostile_then_every_line_is_its_own(heard: Heard) -> None:
    ours = ("Result: ", "Why: ", "What was done: ", "What to do now: ", "Alert: ", "Run: ", "More: ")
    told = [one.payload for one in heard.oncall.received]
    assert {line for message in told for line in message["message"].splitlines() if not line.startswith(ours)} <= {""}
    texts = [message["title"] + message["message"] for message in told]
    assert {found for text in texts for found in invisible(text)} == set()
    assert len(told) == len(TEXTS)


def test_log_for_people_when_labels_are_hostile_then_each_call_is_one_line() -> None:
    written = io.StringIO()
    root, handlers, level = logging.getLogger(), [*logging.getLogger().handlers], logging.getLogger().level
    try:
        configure_logging(log_format="text", stream=written)
        for row, text in TEXTS.items():
            get_logger("remediator.hostile").info(text, victim=text, row=row, labels={text: text})
    finally:
        root.handlers, root.level = handlers, level
        logging.captureWarnings(False)
        structlog.reset_defaults()
    assert len(written.getvalue().split("\n")) == len(TEXTS) + 1
    assert invisible(written.getvalue()) == set()


@pytest.mark.alertmanager
def test_query_when_labels_are_hostile_then_prometheus_reads_the_text_that_was_sent(
    prometheus_factory: PrometheusFactory,
) -> None:
    prometheus = prometheus_factory(rules={"groups": []}, targets={}, alertmanager_urls=[])
    read: dict[str, str] = {}
    for quote_mark in ('"', "'"):
        template = ParamTemplate.parse(f"{quote_mark}{{{{ labels.victim }}}}{quote_mark}", kind=TemplateKind.QUERY)
        for row, text in TEXTS.items():
            if len(text) > MAX_TEXT // len("\\u000a"):
                continue
            query = template.render({"labels": {"victim": text}})
            answer = requests.post(f"{prometheus.url}/api/v1/query", data={"query": query}, timeout=30)
            data = answer.json().get("data", {})
            if data.get("resultType") != "string" or data["result"][1] != text:
                read[f"{row} in {quote_mark}"] = answer.text[:300]
    assert read == {}
