"""The published document against the engine that publishes it.

schemathesis makes calls out of the document: its examples, the edges of every schema, random ones that fit and that do
not, methods that are not there, calls without credentials, and walks along its links; and holds every answer against
it. ``REMEDIATOR_TEST_ATTACK_EXAMPLES`` says how many random calls each operation gets (many in ``make soak``).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import requests

from remediator.app import App
from remediator.clients.fake import FakeWorld
from remediator.core.scenario import Failure
from remediator.settings import load_settings
from remediator.store import audit, breakers
from remediator.web.openapi import openapi_document
from remediator.web.server import start_in_thread

SCHEMATHESIS = Path(sys.executable).with_name("schemathesis")
CONFIG = Path(__file__).with_name("schemathesis.toml")
N_EXAMPLES = os.environ.get("REMEDIATOR_TEST_ATTACK_EXAMPLES", "20")
# What one attack may take; with the default number it takes some 20 s.
DEADLINE_S = 240 + 3 * int(N_EXAMPLES)

ROLES = {
    "deliver": ["deliver"],
    "view": ["view"],
    "operate": ["operate"],
    "every-role": ["deliver", "view", "operate"],
}
LEAK = {"alertname": "GPUMemoryLeakSlope", "hostname": "gpu-07", "container_name": "trainer-0"}
HELD = {"alertname": "Held", "hostname": "gpu-07", "name": "trainer-1"}
ASKS = {"alertname": "Asks", "hostname": "gpu-07", "name": "trainer-1"}
HOT = {"alertname": "Hot", "hostname": "gpu-07", "name": "trainer-2"}
PLAYBOOKS = """
playbook: cap
match: [alertname = Hot]
per: [host, name]
steps:
  - {name: cap, action: docker.limit, params: {container: "{{ labels.name }}", cpus: 1}}
---
playbook: restart-on-leak
match: [alertname = GPUMemoryLeakSlope]
per: [host, container_name]
guard: {cooldown: 0s}
steps:
  - {name: restart, action: docker.restart, params: {container: "{{ labels.container_name }}"}}
escalate: {to: [oncall]}
---
playbook: held
match: [alertname = Held]
per: [host, name]
hold: 1h
steps:
  - {name: wait, action: docker.stop, params: {container: "{{ labels.name }}"}}
  - {name: tell, action: notify.send, if: labels.name != "", params: {to: [oncall], title: "{{ labels.name }}"}}
escalate: {to: [oncall]}
---
playbook: asks
match: [alertname = Asks]
per: [host, name, n]
approval: {ask: [oncall], expires: 1h}
steps:
  - {name: start, action: docker.start, params: {container: "{{ labels.name }}"}}
"""


class MovedClock:
    """The real time, moved on by a test that will not wait."""

    ahead = timedelta(0)

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead


class Engine:
    """A real server over a real store, and a world in memory."""

    def __init__(self, folder: Path) -> None:
        (folder / "playbooks").mkdir()
        (folder / "playbooks" / "a.yaml").write_text(PLAYBOOKS)
        for name in ROLES:
            (folder / name).write_text(self.token(name))
        self.clock = MovedClock()
        self.world = FakeWorld(self.clock.now)
        self.world.add_host("gpu-07")
        self.world.add_notify_target("oncall")
        for name in ("trainer-0", "trainer-1", "trainer-2"):
            self.world.add_container("gpu-07", name)
        settings = load_settings(
            environ={},
            overrides={
                "store_url": f"sqlite:///{folder}/r.db",
                "playbooks": [str(folder / "playbooks")],
                "docker": {"hosts": {"gpu-07": {"url": f"unix://{folder}/no-docker"}}},
                "notify": {"oncall": {"urls": ["json://localhost"]}},
                "auth": {"tokens": [{"name": n, "roles": roles, "file": folder / n} for n, roles in ROLES.items()]},
            },
        )
        self.app = App(settings, self.world.clients(), clock=self.clock)
        self.running = start_in_thread(self.app)
        self.folder = folder

    @staticmethod
    def token(name: str) -> str:
        return f"token-of-{name}-123456"

    def call(self, method: str, path: str, body: Any = None) -> requests.Response:
        headers = {"Authorization": f"Bearer {self.token('every-role')}"}
        return requests.request(method, f"{self.running.url}{path}", json=body, headers=headers, timeout=60)

    def fire(self, *labels: dict[str, str]) -> requests.Response:
        alerts = [{"status": "firing", "labels": one} for one in labels]
        return self.call("POST", "/api/v1/alertmanager", {"version": "4", "alerts": alerts})

    def run_when(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first run of which this is true, waited for."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            for row in self.call("GET", "/api/v1/runs").json():
                if wanted(row):
                    return row
            time.sleep(0.05)
        raise AssertionError(f"no such run: {self.call('GET', '/api/v1/runs').json()}")

    def lose_an_act(self) -> str:
        """The id of a run that restarts a container, of which nobody ever knows whether it did."""
        self.world.fail("docker.restart", Failure.UNKNOWN)
        self.fire(LEAK)
        self.run_when(lambda run: run["phase"] == "acting")
        self.clock.ahead += timedelta(minutes=10)
        return self.run_when(lambda run: run["outcome"] == "unknown")["run_id"]

    def attack(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Let schemathesis loose with the token of this name."""
        return subprocess.run(
            [
                *(SCHEMATHESIS, "--config-file", CONFIG, "run", f"{self.running.url}/api/v1/openapi.json"),
                *("--header", f"Authorization: Bearer {self.token(name)}", "--seed", "1", *arguments),
            ],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )

    def actors(self) -> set[str]:
        """Who has done anything, as the audit says."""
        with self.app._store.read() as conn:
            found = list(audit.list_events(conn, audit.AuditFilter(limit=100_000), newest_first=False))
        return {one.event.actor for one in found}


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    monkeypatch.chdir(tmp_path)
    engine = Engine(tmp_path)
    monkeypatch.setattr("remediator.app.read_only_clients", lambda _settings: engine.world.read_only())
    with engine.running:
        yield engine


@pytest.mark.timeout(2 * DEADLINE_S)
def test_api_when_attacked_with_every_role_then_each_answer_is_as_published(engine: Engine) -> None:
    engine.lose_an_act()
    engine.fire(HOT, HELD, {**ASKS, "n": "1"})
    engine.run_when(lambda run: run["phase"] == "asking")
    engine.run_when(lambda run: run["playbook"] == "cap" and run["outcome"])

    attack = engine.attack("every-role", "--max-examples", N_EXAMPLES)

    assert (attack.returncode, attack.stderr) == (0, ""), attack.stdout
    # Otherwise it has tried the doors and not the rooms.
    assert {"every-role", "engine"} < engine.actors()
    metrics = engine.call("GET", "/metrics").text
    assert [line for line in metrics.splitlines() if line.startswith("remediator_unexpected_errors_total")] == []
    with engine.app._store.read() as conn:
        assert audit.verify(conn, None).ok


@pytest.mark.parametrize("role", ["deliver", "view", "operate"])
def test_api_when_attacked_with_one_role_then_no_other_roles_call_is_let_in(role: str, engine: Engine) -> None:
    attack = engine.attack(role, "--phases", "examples,fuzzing", "--mode", "positive", "--max-examples", "3")

    assert (attack.returncode, attack.stderr) == (0, ""), attack.stdout
    may_operate = role == "operate"
    assert any(actor.endswith(role) or f"token {role}" in actor for actor in engine.actors()) is may_operate
    assert (engine.call("GET", "/api/v1/status").json()["open_alerts"] > 0) is (role == "deliver")


def test_api_when_an_answer_is_not_as_published_then_the_attack_finds_it(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine.app, "status", lambda: {"version": 1})

    attack = engine.attack("view", "--include-name", "GET /api/v1/status", "--max-examples", "1")

    assert attack.returncode == 1
    assert "Response violates schema" in attack.stdout


def test_api_when_answering_then_it_says_no_more_than_is_published(engine: Engine) -> None:
    answers: dict[tuple[str, str], requests.Response] = {}

    def note(method: str, path: str, described: str = "", body: Any = None) -> dict[str, Any]:
        answers[method, described or path] = answer = engine.call(method, path, body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    alerts = [{"status": "firing", "labels": labels} for labels in (LEAK, HELD, {"alertname": "Nobody's"})]
    unknown = engine.lose_an_act()
    note("POST", "/api/v1/alertmanager", body={"version": "4", "alerts": [*alerts, 1]})
    engine.fire(HOT, {**ASKS, "n": "1"}, {**ASKS, "n": "2"})
    lent = engine.run_when(lambda run: run["playbook"] == "cap" and run["outcome"])["run_id"]
    waiting = engine.run_when(lambda run: run["phase"] == "holding")["run_id"]
    yes, no = (engine.run_when(lambda run, n=n: run["question"] and run["per"]["n"] == n)["run_id"] for n in "12")
    note("GET", "/api/v1/runs")
    note("GET", f"/api/v1/runs/{unknown}", "/api/v1/runs/{run_id}")
    note("POST", "/api/v1/pause", body={"reason": "x"})
    note("GET", "/api/v1/status")
    plan = note(
        "POST",
        "/api/v1/plan",
        body={"version": "4", "alerts": [*alerts, {"status": "resolved", "labels": LEAK}, "bad"]},
    )
    note("POST", "/api/v1/resume", body={})
    engine.app._store.write(lambda tx: breakers.trip(tx.conn, "site", datetime.now(UTC), "too much"))
    note("GET", "/api/v1/breakers")
    note("POST", "/api/v1/breakers/site/reset", "/api/v1/breakers/{name}/reset", {"reason": "x"})
    note("GET", "/api/v1/leases")
    note("POST", f"/api/v1/runs/{lent}/undo", "/api/v1/runs/{run_id}/undo", {"step": "cap", "reason": "x"})
    note("POST", f"/api/v1/runs/{no}/note", "/api/v1/runs/{run_id}/note", {"text": "x"})
    note("POST", f"/api/v1/runs/{no}/deny", "/api/v1/runs/{run_id}/deny", {"reason": "x", "by": "alice"})
    note("POST", f"/api/v1/runs/{yes}/approve", "/api/v1/runs/{run_id}/approve", {"reason": "x"})
    note("POST", f"/api/v1/runs/{waiting}/cancel", "/api/v1/runs/{run_id}/cancel", {"reason": "x"})
    note("POST", f"/api/v1/runs/{unknown}/settle", "/api/v1/runs/{run_id}/settle", {"reason": "x", "happened": True})
    note("POST", "/api/v1/runs", body={"playbook": "held", "labels": {**HELD, "name": "nobody"}, "by": "alice"})
    for method, path in (
        ("POST", "/-/reload"),
        ("GET", "/healthz"),
        ("GET", "/readyz"),
        ("GET", "/metrics"),
        ("GET", "/api/v1/openapi.json"),
    ):
        answers[method, path] = engine.call(method, path)
    (engine.folder / "playbooks" / "b.yaml").write_text("playbook: broken\n")
    not_reloaded = engine.call("POST", "/-/reload")

    document = openapi_document()
    published = {(method.upper(), path) for path, calls in document["paths"].items() for method in calls}
    assert answers.keys() == published
    for (method, path), answer in answers.items():
        _check(document, method, path, answer)
    assert not_reloaded.status_code == 422
    _check(document, "POST", "/-/reload", not_reloaded)
    assert plan["alerts"][0]["matches"][0]["steps"][0]["targets"] != []


def _check(document: dict[str, Any], method: str, path: str, answer: requests.Response) -> None:
    described = document["paths"][path][method.lower()]["responses"][str(answer.status_code)]["content"]
    media = answer.headers["Content-Type"].partition(";")[0]
    assert [*described] == [media]
    schema = {"$ref": "#/components/schemas/none", "components": _closed(document["components"])}
    schema |= _closed(described[media]["schema"])
    if "$ref" not in described[media]["schema"]:
        del schema["$ref"]
    jsonschema.validate(answer.json() if media == "application/json" else answer.text, schema)


def _closed(schema: Any) -> Any:
    """The schema, with no property beyond those that it names."""
    match schema:
        case dict():
            closed = {key: _closed(value) for key, value in schema.items()}
            return {**closed, "additionalProperties": False} if isinstance(schema.get("properties"), dict) else closed
        case list():
            return [_closed(item) for item in schema]
        case _:
            return schema
