"""A replay of a week: 100,000 deliveries decided anew, by the same playbooks and by others.

The week is recorded by the engine itself, on a clock that is moved and a store that is not synced: mostly repeats of
what fires for days, from a pair of Alertmanagers, and some storms. It is made once and kept in the cache folder.
"""

from __future__ import annotations

import fcntl
import random
import resource
import shutil
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from bench.deliveries import ALERT, body_of
from bench.result import Section
from bench.session import Session
from realparts.alertmanager import cache_folder
from remediator.app import StoryApp, load_playbooks, replay_deliveries
from remediator.clients.fake import FakeWorld
from remediator.core.alert import RawDelivery
from remediator.engine.clock import StoryClock
from remediator.settings import Settings, load_settings
from remediator.store import schema
from remediator.telemetry import configure_logging

NAME = "replay"

BEGINS = datetime(2026, 3, 1, tzinfo=UTC)
WEEK = timedelta(days=7)
N_DELIVERIES = 100_000
N_QUICK = 5_000
REPEATS_EVERY = timedelta(minutes=30)
PAIR = timedelta(seconds=15)
N_STORMS = 5
IN_A_STORM = 300
MOST_S = 120.0
VERSION = 1
"""Of how the week is made: another one is made anew."""

PLAYBOOK = f"""
playbook: restart-on-leak
match: [alertname = {ALERT}, container_name != ""]
per: [host, container_name]
hold: 5m
guard: {{cooldown: 1h, max_runs: {{count: 3, per: 24h}}}}
steps:
  - {{name: restart, action: docker.restart, params: {{container: "{{{{ labels.container_name }}}}"}}}}
verify: [{{alert: resolved, within: 30m}}]
escalate: {{to: [oncall]}}
"""

SETS = {"the same": PLAYBOOK, "another hold": PLAYBOOK.replace("hold: 5m", "hold: 1h")}

Sent = tuple[datetime, bytes, bool]
"""When, what, and whether it says something new."""


def measure(session: Session) -> Section:
    """Replay the week by each set, each in a process of its own."""
    n = N_QUICK if session.is_quick else N_DELIVERIES
    week = _week(session, n)
    section = Section(
        name=NAME,
        title="Replay of a week",
        about=(
            f"remediator replay on a store with {n:,} deliveries of 3 alerts each in 7 days: groups that fire for one"
            " to three days and are repeated every 30 minutes by each of a pair of"
            f" Alertmanagers, and {N_STORMS} storms of {IN_A_STORM} containers; by the playbook that had decided them,"
            " and with another hold. From reading the store to the compared runs; each in a new process."
        ),
        columns=("playbooks", "deliveries/s", "took", "peak MiB", "runs", "same", "differ"),
    )
    for name, text in SETS.items():
        session.say(f"{n:,} deliveries, {name}")
        folder = session.folder / f"replay-{name.replace(' ', '-')}"
        folder.mkdir()
        with get_context("spawn").Pool(1) as pool:
            took_s, peak_mib, runs = pool.apply(_replay, (folder, week, text))
        n_differ = runs["new"] + runs["gone"] + runs["different"]
        section.rows.append(
            (
                name, f"{n / took_s:,.0f}", f"{took_s:.1f} s", f"{peak_mib:.0f}", f"{runs['recorded']:,}",
                f"{runs['same']:,}", f"{n_differ:,}",
            )
        )  # fmt: skip
        place = name.replace(" ", "_")
        section.figures |= {
            f"{place}.deliveries_per_s": round(n / took_s),
            f"{place}.took_s": round(took_s, 1),
            f"{place}.peak_mib": round(peak_mib),
            f"{place}.runs": runs["recorded"],
            f"{place}.differ": n_differ,
        }
    took_s = max(float(section.figures[f"{name.replace(' ', '_')}.took_s"]) for name in SETS)
    section.aim(f"{n:,} deliveries in less than {MOST_S:.0f} s", f"{took_s:.0f} s", is_reached=took_s < MOST_S)
    n_differ = int(section.figures["the_same.differ"])
    section.aim("by the same playbooks no run differs", f"{n_differ}", is_reached=n_differ == 0)
    section.limits.append(
        "Decoding each body, and two statements for each alert of a repeat: both are what the engine itself does. What"
        " lies between two moments at which something is due is one transaction."
    )
    return section


def _replay(folder: Path, week: Path, text: str) -> tuple[float, float, dict[str, Any]]:
    """In a process of its own: seconds, peak memory in MiB, counts of runs."""
    configure_logging(level="critical", log_format="text")
    settings = _settings(folder, week, text)
    began = time.perf_counter()
    answer = replay_deliveries(settings, since=BEGINS, until=BEGINS + WEEK)
    took_s = time.perf_counter() - began
    return took_s, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, answer["runs"]


def _settings(folder: Path, store: Path, text: str) -> Settings:
    (folder / "playbook.yaml").write_text(text)
    return load_settings(
        None,
        {},
        {
            "store_url": f"sqlite:///{store}",
            "playbooks": [str(folder / "playbook.yaml")],
            "docker": {"hosts": {"gpu-001": {"url": "unix:///nowhere"}}},
            "notify": {"oncall": {"urls": ["json://localhost"]}},
        },
    )


# -- the week ----------------------------------------------------------------------------------------------------------


def _week(session: Session, n: int) -> Path:
    """The store with the week, from the cache or made now."""
    path = cache_folder() / f"bench-week-{n}-{schema.REVISION}-{VERSION}.sqlite"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            session.say(f"recording a week of {n:,} deliveries, once (some minutes)")
            folder = session.folder / "week"
            folder.mkdir()
            with get_context("spawn").Pool(1) as pool:
                pool.apply(_record, (folder, n))
            shutil.move(folder / "week.db", path)
    return path


def _record(folder: Path, n: int) -> None:
    configure_logging(level="critical", log_format="text")
    settings = _settings(folder, folder / "week.db", PLAYBOOK)
    clock = StoryClock(BEGINS - timedelta(minutes=1))
    world = FakeWorld(clock.now)
    world.add_host("gpu-001")
    world.take_any_message()
    loaded = load_playbooks(settings)
    app = StoryApp(settings, world.clients(), clock, loaded)
    app.prepare()
    due: datetime | None = None
    for at, body, is_news in sorted(_sent(random.Random(n), n)):  # noqa: S311  the same week every time
        while due is not None and due <= at:
            clock.moment = due
            app.note_alive()
            due = app.work()
        clock.moment = at
        app.note_alive()
        if is_news:
            _furnish(world, body)
        app.accept(RawDelivery(received_at=at, source="10.0.0.5", body=body))
        due = app.work()
    app.halt()


def _furnish(world: FakeWorld, body: bytes) -> None:
    """Let there be the container that it is about, as there is in a world where alerts come from containers."""
    name = body.partition(b'"container_name":"')[2].partition(b'"')[0].decode()
    if not world.has_container("gpu-001", name):
        world.add_container("gpu-001", name)


def _sent(dice: random.Random, n: int) -> Iterator[Sent]:
    n_storm = N_STORMS * IN_A_STORM * 2
    n_groups = max(1, round((n - n_storm) / (2 * WEEK / REPEATS_EVERY)))
    for number in range(n_groups):
        at = BEGINS + timedelta(seconds=dice.randrange(1800))
        while at < BEGINS + WEEK:
            ends_at = min(at + timedelta(hours=dice.randint(24, 72)), BEGINS + WEEK)
            yield from _fires(f"trainer-{number:04d}", at, ends_at)
            at = ends_at + timedelta(minutes=dice.randint(60, 240))
    for storm in range(N_STORMS if n > n_storm else 0):
        at = BEGINS + (storm + 0.5) * WEEK / N_STORMS
        for number in range(IN_A_STORM):
            began = at + timedelta(milliseconds=100 * number)
            yield began, _body(f"storm-{number:04d}", began), True
            yield began + timedelta(minutes=20), _body(f"storm-{number:04d}", began, is_over=True), True


def _fires(container: str, begins: datetime, ends: datetime) -> Iterator[Sent]:
    body = _body(container, begins)
    at = begins
    while at < ends:
        yield at, body, at == begins
        yield at + PAIR, body, False
        at += REPEATS_EVERY
    over = _body(container, begins, is_over=True)
    yield ends + timedelta(seconds=30), over, True
    yield ends + timedelta(seconds=30) + PAIR, over, False


def _body(container: str, begins: datetime, *, is_over: bool = False) -> bytes:
    group = {"hostname": "gpu-001", "container_name": container}
    body = body_of([{"gpu": str(gpu)} for gpu in range(3)], starts_at=begins.isoformat(), group=group)
    return body.replace(b'"status":"firing"', b'"status":"resolved"') if is_over else body
