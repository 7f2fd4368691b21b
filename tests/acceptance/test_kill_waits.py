"""Killed again and again at random moments while changes are lent, plans wait and people are asked: each lease is
opened once and closed once, nothing acts without a yes of its own, and nothing waits for ever.

``REMEDIATOR_TEST_SEED`` sets the moments; the seed of a failure stands in its output.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import requests

from acceptance.conftest import EngineFactory
from acceptance.delivery import resolved
from acceptance.engine import ATTEMPT_TIMEOUT, Engine
from acceptance.faults import Boxes, check_nothing_lost_or_done_twice
from acceptance.storm import Storm
from acceptance.story import DockerEvents
from realparts.docker_engine import DockerEngine
from realparts.loopback import WebhookReceiver
from realparts.process import wait_until

pytestmark = pytest.mark.docker

N_KILLS = int(os.environ.get("REMEDIATOR_TEST_KILLS_OF_WAITS", "30"))

SETTLES_WITHIN_S = 240.0
"""What was killed before Docker was asked is tried again only when the attempt's time is over, 31 s later; and so is a
second time."""

LIMIT = """
playbook: {name}
match: [alertname = {alert}]
per: [host, container_name, fault]
steps:
  - name: limit
    action: docker.limit
    params: {{container: "{{{{ labels.container_name }}}}", cpus: {cpus}}}
    timeout: 10s
undo: {{after: {after}, at_most: {at_most}}}
escalate: {{to: [people]}}
"""

RESTART = f"""
playbook: {{name}}
match: [alertname = {{alert}}]
per: [host, container_name, fault]
guard: {{{{cooldown: {{cooldown}}}}}}
steps:
  - name: restart
    action: docker.restart
    params: {{{{container: "{{{{{{{{ labels.container_name }}}}}}}}", stop_timeout: 1s}}}}
    timeout: {ATTEMPT_TIMEOUT}
    retry: {{{{attempts: 5, wait: 1s, max_wait: 1s, jitter: 0%}}}}
escalate: {{{{to: [people]}}}}
"""

ASKED = RESTART + "approval: {{ask: [people], expires: {expires}}}\n"

PLAYBOOKS = "---".join(
    (
        LIMIT.format(name="hot", alert="Hot", cpus=0.5, after="1s", at_most="5s"),
        LIMIT.format(name="hotter", alert="Hotter", cpus=0.25, after="2s", at_most="4s"),
        RESTART.format(name="restart", alert="Leak", cooldown="5s"),
        ASKED.format(name="asked", alert="Asked", cooldown="0s", expires="1h"),
        ASKED.format(name="asked-shortly", alert="AskedShortly", cooldown="0s", expires="2s"),
        "\npolicy: site\nmax_concurrent_runs: 20\nmax_disruptive_acts: {count: 2, per: 4s}\n",
    )
)

LENT = tuple(f"hot {n}" for n in range(5))
RESTARTED = ("leaks", "yes", "no", "both", "nothing", "ends")

ANSWERS = {"approve": "approval_given", "deny": "approval_denied"}


@dataclass
class Waits(Storm):
    """Alerts that lend, wait and ask, and their ends.

    Attributes:
        box_of: what is done about a container → its name. Those of ``LENT`` are limited; the others are restarted,
            ``leaks`` without a question, the rest after one that is answered so.
    """

    box_of: dict[str, str] = field(default_factory=dict)

    def want_leaks(self, n: int) -> None:
        """New alerts of each kind, and the end of some that have lent or asked."""
        for fault in self._to_end():
            self.want_end(fault)
        firing = Counter(labels["container_name"] for labels in [*self.leaks.values()])
        for _ in range(n):
            self._n_leaks += 1
            n_leak, pick = self._n_leaks, self._random.choice
            for kind in LENT:
                if firing[self.box_of[kind]] < 2:
                    self.want(self.box_of[kind], f"{kind}-{n_leak}", pick(["Hot", "Hotter"]))
            if n_leak % 2:
                self.want(self.box_of["leaks"], f"leak-{n_leak}")
            else:
                what = ("yes", "no", "both", "nothing", "ends")[n_leak // 2 % 5]
                self.want(self.box_of[what], f"ask-{n_leak}", "AskedShortly" if what == "nothing" else "Asked")

    def _to_end(self) -> list[str]:
        """Faults whose change is lent, or whose question nobody else answers."""
        rows = self.engine.query("SELECT per, phase FROM run JOIN subject ON subject.id = subject_id")
        phases = {json.loads(per)["fault"]: phase for per, phase in rows}
        wanted = {self.box_of["ends"]: {"asking"}} | {self.box_of[kind]: {"ended", "closed"} for kind in LENT}
        return [
            fault
            for fault, labels in [*self.leaks.items()]
            if phases.get(fault) in wanted.get(labels["container_name"], ()) and self._random.random() < 0.7
        ]


@dataclass
class Audience:
    """People who answer what asks, several at once and more than once; and one who pauses the engine by a file.

    Attributes:
        took: run and event of each answer that was answered with 200.
        statuses: how often the engine answered so.
    """

    engine: Engine
    box_of: dict[str, str]
    pause_file: Path
    seed: int
    took: list[tuple[str, str]] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """They answer until the end of the block."""
        with ThreadPoolExecutor(2) as pool:
            is_over = threading.Event()
            done = [pool.submit(self._answer, word, is_over) for word in ANSWERS]
            try:
                yield
            finally:
                is_over.set()
        for one in done:
            one.result()

    @contextmanager
    def pausing(self) -> Iterator[None]:
        """The pause file comes and goes until the end of the block, and is gone then."""
        is_over = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(self._pause, is_over)
            try:
                yield
            finally:
                is_over.set()
        done.result()

    def _pause(self, is_over: threading.Event) -> None:
        mine = random.Random(f"{self.seed} pause")
        while not is_over.wait(mine.uniform(0.5, 4)):
            self.pause_file.touch()
            is_over.wait(mine.uniform(0.2, 1.5))
            self.pause_file.unlink()

    def _answer(self, own_word: str, is_over: threading.Event) -> None:
        words = {self.box_of["yes"]: "approve", self.box_of["no"]: "deny", self.box_of["both"]: own_word}
        while not is_over.wait(0.03):
            with suppress(requests.RequestException):  # it is being killed all the time
                listed = self.engine.get("/api/v1/runs", state="open", limit=1000)
                for run in listed:
                    word = words.get(run["per"]["container_name"])
                    if run["phase"] == "asking" and word is not None:
                        for _ in range(2):
                            self._say(run["run_id"], word)

    def _say(self, run_id: str, word: str) -> None:
        answer = self.engine.ask("POST", f"/api/v1/runs/{run_id}/{word}", "operate", json={"reason": "we looked"})
        self.statuses[answer.status_code] += 1
        if answer.status_code == 200:
            self.took.append((run_id, ANSWERS[word]))


@pytest.fixture
def seed() -> int:
    chosen = int(os.environ.get("REMEDIATOR_TEST_SEED") or random.randrange(2**32))
    print(f"REMEDIATOR_TEST_SEED={chosen}")
    return chosen


@pytest.mark.timeout(600)
def test_kill_when_it_comes_while_engines_lend_wait_and_ask_then_all_ends_once_and_nothing_acts_unasked(
    engine_factory: EngineFactory,
    docker_engine: DockerEngine,
    boxes: Boxes,
    heard: WebhookReceiver,
    tmp_path: Path,
    seed: int,
) -> None:
    box_of = {kind: boxes.make(docker_engine) for kind in (*LENT, *RESTARTED)}
    pause_file = tmp_path / "pause"
    engine = engine_factory(
        {"all.yaml": PLAYBOOKS},
        docker_url=docker_engine.url,
        notify_url=heard.url.replace("http://", "json://"),
        settings=f'pause_file = "{pause_file}"',
    )
    engine.start()  # once: what fired before there was a playbook would be adopted, and not acted on
    engine.kill()
    storm = Waits(engine, [], seed, n_clients=1, box_of=box_of)
    audience = Audience(engine, box_of, pause_file, seed)
    hit: Counter[str] = Counter()
    began = time.time()

    def look_what_was_hit() -> bool:
        hit.update(open_now(engine))
        return False

    with DockerEvents(docker_engine, "update") as updates:
        with audience.at_work():
            with audience.pausing():
                storm.rage(N_KILLS, 1, is_enough=look_what_was_hit)
            raged_s = time.time() - began
            wait_until(
                lambda: not to_be_answered(engine, box_of), "what is answered or expires has ended", SETTLES_WITHIN_S
            )
            end_all(engine)
            for what, statement in NOTHING_LEFT.items():
                wait_until(lambda asked=statement: engine.query(asked) == [(0,)], what, SETTLES_WITHIN_S)
        n_updates = {kind: len(updates.of(box_of[kind], after=began)) for kind in LENT}

    outcomes = Counter(engine.query("SELECT playbook, outcome, reason FROM run"))
    print(f"{raged_s:.0f} s of kills, then {time.time() - began - raged_s:.0f} s; kills hit {dict(hit)}")
    print(f"answers {dict(audience.statuses)}; updates {n_updates}; runs {dict(outcomes)}")
    check_nothing_lost_or_done_twice(engine, boxes, storm)
    n_leases = sum(check_leases(engine, box_of[kind], docker_engine, n_updates[kind]) for kind in LENT)
    check_questions(engine, audience)
    n_restarts = {kind: boxes.n_restarts(box) for kind, box in box_of.items()}
    assert {n_restarts[kind] for kind in ("no", "nothing", "ends", *LENT)} == {0}, n_restarts
    # And it was a test: kills have hit open leases, waits and questions, and most of what could happen has happened.
    assert min(hit["lease"], hit["asking"], hit["waiting"], n_leases) > N_KILLS // 10, (hit, n_leases)
    assert n_restarts["leaks"] > 0 < n_restarts["yes"], n_restarts
    reasons = {reason for _, _, reason in outcomes}
    assert {"none", "denied", "approval_expired", "resolved"} <= reasons, outcomes
    assert audience.statuses.keys() >= {200, 409}


NOTHING_LEFT = {
    "every delivery is handled": "SELECT count(*) FROM delivery WHERE handled_at IS NULL",
    "every run has ended": "SELECT count(*) FROM run WHERE ended_at IS NULL",
    "every run is closed, or has something to do later": (
        "SELECT count(*) FROM run WHERE phase <> 'closed'"
        " AND id NOT IN (SELECT id FROM due WHERE kind = 'run' AND at IS NOT NULL)"
    ),
    "every lease is closed": "SELECT count(*) FROM lease WHERE closed_at IS NULL",
    "nothing is reserved, but for what nobody knows": (
        "SELECT count(*) FROM reservation JOIN run ON run.id = run_id WHERE outcome <> 'unknown'"
    ),
}


def open_now(engine: Engine) -> list[str]:
    """What a kill has just hit, each kind once."""
    found = {phase for (phase,) in engine.query("SELECT DISTINCT phase FROM run WHERE ended_at IS NULL")}
    for waits_for, *_ in engine.query("SELECT waits_for FROM run WHERE ended_at IS NULL AND waits_for <> ''"):
        found |= {what.partition(":")[0] for what in json.loads(waits_for)}
    if engine.query("SELECT 1 FROM lease WHERE closed_at IS NULL"):
        found.add("lease")
    if engine.query("SELECT 1 FROM lease WHERE undo_started_at IS NOT NULL"):
        found.add("undo")
    return sorted(found)


def to_be_answered(engine: Engine, box_of: dict[str, str]) -> list[str]:
    """Runs that people answer, or that expire without an answer, and that have not ended."""
    answered = {box_of[kind] for kind in ("yes", "no", "both", "nothing")}
    return [run["run_id"] for run in engine.runs() if not run["outcome"] and run["per"]["container_name"] in answered]


def end_all(engine: Engine) -> None:
    """Every alert that fires is over."""
    firing = engine.query("SELECT alert FROM episode WHERE ended_at IS NULL")
    labels = [json.loads(alert)["alert"]["labels"] for (alert,) in firing]
    assert engine.deliver(resolved(*labels)) == 200


def check_leases(engine: Engine, box: str, docker: DockerEngine, n_updates: int) -> int:
    """Each was opened for one act that changed the container and closed once; and the container tells the same.

    Args:
        n_updates: of the container, as Docker counts them.

    Returns:
        How many there were.
    """
    of_box = [event for event in engine.events() if event["target"].endswith(f"/{box}")]
    by_type = defaultdict(list)
    for event in of_box:
        by_type[event["type"]].append(event)
    acts = [event for event in by_type["attempt_finished"] if event["outcome"] == "succeeded"]
    opened = [event["data"]["lease_id"] for event in by_type["lease_opened"]]
    assert len(acts) == len(opened) == len({*opened})
    closed = {event["data"]["lease_id"]: event["data"]["how"] for event in by_type["lease_closed"]}
    assert closed == dict.fromkeys(opened, "undone")
    assert len(by_type["lease_closed"]) == len(opened)
    undos = by_type["undo_finished"]
    assert len(by_type["undo_started"]) == len(undos)
    assert {event["outcome"] for event in undos} <= {"succeeded", "unchanged"}
    # Each change begins where the one before it has ended, and the last where the container was made.
    quota = 0
    for event in of_box:
        data = event["data"]
        if event["type"] == "lease_opened":
            assert max(data["before"]["cpu_quota_us"], 0) == quota, event
            quota = data["after"]["cpu_quota_us"]
        elif event["type"] == "undo_started":
            assert max(data["left"]["cpu_quota_us"], 0) == quota, event
            quota = max(data["restore"]["cpu_quota_us"], 0)
    assert quota == 0
    assert docker.client.containers.get(box).attrs["HostConfig"]["CpuQuota"] <= 0
    # Docker's own count. Before a limit is lowered, that there is may be set once more, to see whether it could be.
    n_tries = sum(event["data"]["before"]["cpu_quota_us"] > 0 for event in by_type["attempt_started"])
    n_changes = len(opened) + len(undos)
    assert n_changes <= n_updates <= n_changes + n_tries, (n_changes, n_updates, n_tries)
    return len(opened)


def check_questions(engine: Engine, audience: Audience) -> None:
    """Each has one end, no act came before a yes or after its run's end, and what was answered with 200 is kept."""
    kept = Counter[tuple[str, str]]()
    for events in asked_runs(engine).values():
        answer = "nobody was asked"
        for event in events:
            match event["type"]:
                case "approval_asked":
                    assert answer == "nobody was asked", events
                    answer = "open"
                case "approval_given" | "approval_denied" as kind:
                    assert answer == "open", events
                    answer = kind
                    kept[event["run_id"], kind] += 1
                case "attempt_started" if event["data"]["action"] == "docker.restart":
                    assert answer == "approval_given", events
                case "run_finished":
                    ends = {"open": ("resolved", "approval_expired"), "approval_denied": ("denied",)}
                    assert event["data"]["reason"] in ends.get(answer, (event["data"]["reason"],)), events
                    answer = "ended"
        assert answer == "ended", events
    assert set(kept.values()) == {1}
    assert {*audience.took} <= kept.keys()
    assert max(Counter(run_id for run_id, _ in audience.took).values()) == 1, "two answers were taken"
    assert {*audience.statuses} <= {200, 409, 503}, audience.statuses


def asked_runs(engine: Engine) -> dict[str, list[dict[str, Any]]]:
    """The events of each run that people were asked about, in the log's order."""
    found = defaultdict(list)
    for event in engine.events():
        if event["playbook"].startswith("asked") and event["run_id"]:
            found[event["run_id"]].append(event)
    return {**found}
