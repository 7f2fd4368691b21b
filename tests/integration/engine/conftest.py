"""An engine on a real store, with a world in memory and a clock that the test moves."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from remediator.app import App, load_playbooks
from remediator.clients.fake import PROMETHEUS, FakeWorld
from remediator.clients.ports import AlertmanagerWriter
from remediator.core.alert import RawDelivery
from remediator.core.event import utc_text
from remediator.core.move import next_move
from remediator.core.run import fold
from remediator.core.units import parse_duration
from remediator.settings import load_settings
from remediator.store.audit import AuditFilter, list_events, log_of_run, verify
from remediator.store.tables import reservation

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)

PER = "host, container_name"

RESTART = """
steps:
  - {name: restart, action: docker.restart, params: {container: "{{ labels.container_name }}"}}
escalate: {to: [oncall]}
report: {to: [ml-platform]}
"""


class TestClock:
    """A clock that stands still until it is moved."""

    __test__ = False

    def __init__(self) -> None:
        self.moment = START

    def now(self) -> datetime:
        return self.moment


class Bench:
    """One engine over its restarts, the world around it, and the words that tests use."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = TestClock()
        self.world = FakeWorld(self.clock.now)
        self.hosts = ["gpu-07"]
        self.world.add_host("gpu-07")
        self.world.add_notify_target("oncall")
        self.world.add_notify_target("ml-platform")
        self.app: App | None = None
        self.alertmanagers: dict[str, AlertmanagerWriter] = {}
        (folder / "playbooks").mkdir()

    def playbook(self, text: str, name: str = "a.yaml") -> None:
        (self.folder / "playbooks" / name).write_text(text)

    def restarts(self, more: str = "", *, steps: str = RESTART, name: str = "restart", per: str = PER) -> Bench:
        """A playbook that restarts the container of a leak; ``more`` are further keys."""
        match = "match: [alertname = GPUMemoryLeakSlope]"
        self.playbook(f"playbook: {name}\n{match}\nper: [{per}]\n{steps}\n{more}\n", f"{name}.yaml")
        return self

    def leak(self, container: str = "trainer-0", **more: str) -> dict[str, str]:
        """Labels of an alert that says that a container leaks."""
        return {"alertname": "GPUMemoryLeakSlope", "hostname": "gpu-07", "container_name": container, **more}

    def sees(self, name: str, *values: float, where: str = "") -> None:
        """What the condition of this name gives from now on."""
        self.world.sees(name, *values, where=where)

    def start(self, **settings: Any) -> Bench:
        loaded = load_settings(
            None,
            {},
            {
                "store_url": f"sqlite:///{self.folder}/r.db",
                "playbooks": [str(self.folder / "playbooks")],
                "docker": {"hosts": {name: {"url": "unix:///nowhere"} for name in self.hosts}},
                "notify": {name: {"urls": ["json://localhost"]} for name in ("oncall", "ml-platform")},
                "prometheus": {"servers": {PROMETHEUS: {"url": "http://nowhere:9090"}}},
                "ignore_labels": ["replica"],
                "pause_file": str(self.folder / "PAUSE"),
                **settings,
            },
        )
        clients = self.world.clients()
        self.app = App(
            loaded,
            replace(clients, alertmanagers=self.alertmanagers) if self.alertmanagers else clients,
            clock=self.clock,
            load=lambda: load_playbooks(loaded),
            jitter=lambda: 0.0,
        )
        self.app.prepare()
        return self

    def stop(self) -> None:
        """As a kill: nothing is finished, the lock goes with the process."""
        if self.app is not None:
            self.app._store.close()
            self.app = None

    @property
    def engine(self) -> App:
        assert self.app is not None
        return self.app

    def deliver(self, *alerts: dict[str, Any], **group: Any) -> int:
        delivery_id = self._accept(*alerts, **group)
        self.engine.work()
        return delivery_id

    def deliver_later(self, *alerts: dict[str, Any]) -> None:
        """Deliver in the middle of something: the inbox is handled, runs go on where they are."""
        self._accept(*alerts)
        while self.engine._intake.handle_waiting():
            pass

    def _accept(self, *alerts: dict[str, Any], **group: Any) -> int:
        body = {"version": "4", "groupKey": "g", "status": "firing", "receiver": "r", "alerts": list(alerts), **group}
        raw = RawDelivery(received_at=self.clock.now(), source="10.0.0.1", body=json.dumps(body).encode())
        receipt = self.engine.accept(raw)
        return receipt.delivery_id

    def fires(self, labels: dict[str, str], *, ago: str = "0s", **more: Any) -> dict[str, Any]:
        starts_at = self.clock.now() - parse_duration(ago)
        return {"status": "firing", "labels": labels, "startsAt": utc_text(starts_at), **more}

    def resolved(self, labels: dict[str, str], *, ago: str = "0s", **more: Any) -> dict[str, Any]:
        ends_at = self.clock.now() - parse_duration(ago)
        return {
            "status": "resolved",
            "labels": labels,
            "startsAt": utc_text(ends_at - timedelta(minutes=5)),
            "endsAt": utc_text(ends_at),
            **more,
        }

    def after(self, duration: str, *, beats: bool = True) -> None:
        """Move the clock, stopping wherever something is due; the engine is up, and says so where ``beats``."""
        until = self.clock.moment + parse_duration(duration)
        life = self.engine._life
        while True:
            due = self.engine.work()
            if self.clock.moment >= until:
                break
            self.clock.moment = max(min(until, due or until), self.clock.moment + timedelta(milliseconds=1))
            if beats:  # as if it had beaten all the time, without a write for each 15 seconds
                life._alive_at = self.clock.moment
        if beats:
            life.beat()

    def away(self, duration: str) -> None:
        """The engine is killed, and started again later."""
        self.stop()
        self.clock.moment += parse_duration(duration)
        self.start()
        self.engine.work()

    def reload(self) -> dict[str, Any]:
        report = self.engine.reload("tester")
        self.engine.work()
        return report

    def runs(self) -> list[dict[str, Any]]:
        return self.engine.runs(1000, "all")

    def run(self) -> dict[str, Any]:
        rows = self.runs()
        assert len(rows) == 1, rows
        return self.engine.run(rows[0]["run_id"])

    def ended(self) -> tuple[str, str]:
        row = self.run()
        return row["outcome"], row["reason"]

    def did(self) -> list[str]:
        """What was done to the world, in order, messages as ``tell <target>``."""
        return [
            f"tell {write.target}" if write.call == "notify.send" else f"{write.call} {write.target}"
            for write in self.world.writes
        ]

    def acts(self) -> list[str]:
        """As ``did``, without messages."""
        return [line for line in self.did() if not line.startswith("tell ")]

    def told(self) -> list[str]:
        """The messages that arrived: ``<target>: <title>``."""
        sent = [write for write in self.world.writes if write.call == "notify.send" and write.failed is None]
        return [f"{write.target}: {write.args['title']}" for write in sent]

    def reserved(self) -> list[str]:
        """Targets that a run holds."""
        with self.engine._store.read() as conn:
            return sorted(conn.execute(select(reservation.c.target)).scalars())

    def newest(self) -> dict[str, Any]:
        """The newest run, with its events."""
        found: dict[str, Any] = self.engine.run(self.runs()[0]["run_id"])
        return found

    def events(self, kind: str = "") -> list[Any]:
        with self.engine._store.read() as conn:
            found = list(list_events(conn, AuditFilter(limit=100_000), newest_first=False))
        return [one.event for one in found if not kind or one.event.type.value == kind]

    def check_log(self, run_id: str) -> None:
        """Every prefix of a run's log is a run, of which it can be said what comes next."""
        pipeline = self.engine.pipeline
        with self.engine._store.read() as conn:
            events = [one.event for one in log_of_run(conn, run_id)]
        situation = pipeline.situation(pipeline.run(run_id))
        for length in range(1, len(events) + 1):
            next_move(fold(events[:length]), situation)

    def verified(self) -> bool:
        with self.engine._store.read() as conn:
            return verify(conn, None).ok


def new_bench(folder: Path) -> Bench:
    """With two containers, and no playbook and no engine yet."""
    bench = Bench(folder)
    for name in ("trainer-0", "trainer-1"):
        bench.world.add_container("gpu-07", name)
    return bench


@pytest.fixture
def make_bench() -> Callable[[Path], Bench]:
    return new_bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = new_bench(tmp_path)
    yield bench
    if bench.app is not None:
        assert bench.verified()
        for row in bench.runs():
            bench.check_log(row["run_id"])
        bench.stop()
