"""The approval page behind the real door: who signs in by a form is a stranger until the form is read."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from remediator.app import App
from remediator.clients.fake import FakeWorld
from remediator.engine.clock import SystemClock
from remediator.settings import load_settings
from remediator.store import audit
from remediator.web import door
from remediator.web.approval import MAX_FORM
from remediator.web.server import Running, start_in_thread

TOKENS = {name: f"token-of-{name}-123456" for name in ("deliver", "operate")}
PLAYBOOK = """
playbook: restart-on-leak
match: [alertname = GPUMemoryLeakSlope]
per: [host, container_name]
approval: {ask: [oncall], expires: 30m}
steps:
  - {name: restart, action: docker.restart, params: {container: "{{ labels.container_name }}"}}
"""
LEAK = {"alertname": "GPUMemoryLeakSlope", "hostname": "gpu-07", "container_name": "trainer-0"}


class Engine:
    """A real server over a real store, a world in memory, and a run that asks."""

    def __init__(self, folder: Path) -> None:
        (folder / "a.yaml").write_text(PLAYBOOK)
        for name, token in TOKENS.items():
            (folder / name).write_text(token)
        self.world = FakeWorld(SystemClock().now)
        self.world.add_host("gpu-07")
        self.world.add_notify_target("oncall")
        self.world.add_container("gpu-07", "trainer-0")
        settings = load_settings(
            environ={},
            overrides={
                "store_url": f"sqlite:///{folder}/r.db",
                "playbooks": [str(folder / "a.yaml")],
                "docker": {"hosts": {"gpu-07": {"url": f"unix://{folder}/no-docker"}}},
                "notify": {"oncall": {"urls": ["json://localhost"]}},
                "auth": {"tokens": [{"name": n, "roles": [n], "file": folder / n} for n in TOKENS]},
            },
        )
        self.app = App(settings, self.world.clients())
        self.running: Running = start_in_thread(self.app)

    def fire(self) -> str:
        """The id of the run that asks."""
        body = {"version": "4", "alerts": [{"status": "firing", "labels": LEAK}]}
        headers = {"Authorization": f"Bearer {TOKENS['deliver']}"}
        requests.post(f"{self.running.url}/api/v1/alertmanager", json=body, headers=headers, timeout=60)
        return str(self.wait_for("asking")["run_id"])

    def wait_for(self, *phases: str) -> dict[str, Any]:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            rows = self.app.runs(1, "all")
            if rows and rows[0]["phase"] in phases:
                return rows[0]
            time.sleep(0.02)
        raise AssertionError(self.app.runs(10, "all"))

    def page(self, run_id: str, **form: str) -> requests.Response:
        return requests.post(f"{self.running.url}/runs/{run_id}/approval", data=form, timeout=60)


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    monkeypatch.chdir(tmp_path)
    engine = Engine(tmp_path)
    with engine.running:
        yield engine


def test_page_when_a_person_follows_the_link_then_signs_in_reads_and_approves_and_it_is_done(engine: Engine) -> None:
    run_id = engine.fire()

    opened = requests.get(f"{engine.running.url}/runs/{run_id}/approval", timeout=60)
    strange = engine.page(run_id, token="token-of-nobody-123456", answer="approve", reason="x", question="1")
    other = engine.page(run_id, token=TOKENS["deliver"], answer="approve", reason="x", question="1")
    read = engine.page(run_id, token=TOKENS["operate"])
    hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', read.text))
    said = engine.page(run_id, **hidden, answer="approve", reason="a quiet hour", by="alice")
    again = engine.page(run_id, **hidden, answer="deny", reason="no")
    engine.wait_for("ended", "closed")

    statuses = [answer.status_code for answer in (opened, strange, other, read, said, again)]
    assert statuses == [200, 401, 403, 200, 200, 409]
    assert "trainer-0" not in opened.text + strange.text + other.text
    assert "docker:gpu-07/trainer-0" in read.text
    assert "was already approved by alice (token operate)" in again.text
    assert [write.call for write in engine.world.writes if write.call != "notify.send"] == ["docker.restart"]
    with engine.app._store.read() as conn:
        given = [one.event for one in audit.events_of_run(conn, run_id) if one.event.type == "approval_given"]
    assert [(one.actor, one.data["reason"]) for one in given] == [("alice (token operate)", "a quiet hour")]


@pytest.mark.parametrize("size", [MAX_FORM + 1, 10 * MAX_FORM])
def test_form_when_a_stranger_sends_a_long_one_then_it_is_not_kept(size: int, serve: Callable[..., Any]) -> None:
    served = serve()
    head = (
        b"POST /runs/1/approval HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % size
    )

    answer = served.exchange(head + b"x" * size)

    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"above 16384 bytes (the form&#39;s limit)" in answer
    assert served.engine.calls == [("start",)]


@pytest.mark.parametrize(("path", "is_kept"), [("/runs/1/approval", True), ("/api/v1/runs/1/approve", False)])
def test_form_when_a_stranger_posts_it_then_its_body_is_kept_for_the_page_alone(
    path: str, is_kept: bool, serve: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = []

    class Call(door._Call):
        def __init__(self, flask_app: Any, environ: Any) -> None:
            bodies.append(environ["wsgi.input"].getvalue())
            super().__init__(flask_app, environ)

    monkeypatch.setattr(door, "_Call", Call)
    (tmp_path / "token").write_text("token-of-operate")
    served = serve(auth={"tokens": [{"name": "operate", "roles": ["operate"], "file": tmp_path / "token"}]})
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 7\r\n\r\n"

    answer = served.exchange(head.encode() + b"token=x")

    assert answer.startswith(b"HTTP/1.1 401 ")
    assert bodies == [b"token=x" if is_kept else b""]
