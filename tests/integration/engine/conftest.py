"""An engine on a real store, with a world in memory and a clock that the test moves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from remediator.app import App, load_playbooks
from remediator.clients.fake import FakeWorld
from remediator.core.alert import RawDelivery
from remediator.core.event import utc_text
from remediator.core.units import parse_duration
from remediator.settings import load_settings
from remediator.store.audit import AuditFilter, list_events, verify

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


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
        self.world.add_host("gpu-07")
        self.world.add_notify_target("oncall")
        self.world.add_notify_target("ml-platform")
        self.app: App | None = None
        (folder / "playbooks").mkdir()

    def playbook(self, text: str, name: str = "a.yaml") -> None:
        (self.folder / "playbooks" / name).write_text(text)

    def start(self) -> Bench:
        settings = load_settings(
            None,
            {},
            {
                "store_url": f"sqlite:///{self.folder}/r.db",
                "playbooks": [str(self.folder / "playbooks")],
                "docker": {"hosts": {"gpu-07": {"url": "unix:///nowhere"}}},
                "notify": {"oncall": {"urls": ["json://localhost"]}, "ml-platform": {"urls": ["json://localhost"]}},
                "ignore_labels": ["replica"],
            },
        )
        self.app = App(
            settings,
            self.world.clients(),
            clock=self.clock,
            load=lambda: load_playbooks(settings),
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
        body = {"version": "4", "groupKey": "g", "status": "firing", "receiver": "r", "alerts": list(alerts), **group}
        raw = RawDelivery(received_at=self.clock.now(), source="10.0.0.1", body=json.dumps(body).encode())
        receipt = self.engine.accept(raw)
        self.engine.work()
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
        """Move the clock, stopping wherever something is due."""
        until = self.clock.moment + parse_duration(duration)
        while True:
            due = self.engine.work()
            beat = self.clock.moment + timedelta(seconds=15)
            next_stop = min(moment for moment in (until, due or until, beat if beats else until))
            if self.clock.moment >= until:
                return
            self.clock.moment = max(next_stop, self.clock.moment + timedelta(milliseconds=1))
            if beats:
                self.engine._life.beat()

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

    def told(self) -> list[str]:
        return [write.args["title"] for write in self.world.writes if write.call == "notify.send"]

    def events(self, kind: str = "") -> list[Any]:
        with self.engine._store.read() as conn:
            found = list(list_events(conn, AuditFilter(limit=100_000), newest_first=False))
        return [one.event for one in found if not kind or one.event.type.value == kind]

    def verified(self) -> bool:
        with self.engine._store.read() as conn:
            return verify(conn, None).ok


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    if bench.app is not None:
        assert bench.verified()
        bench.stop()
