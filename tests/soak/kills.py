"""Kill the engine at random instants, hundreds of times, while clients post without a pause and playbooks act.

How many kills and deliveries → a verdict: nothing answered is lost, nothing is done twice, each act has its event, the
chain of the audit log fits after each kill, and at the end no run is left. The acts are told by ``fake_docker``, a file
that the engine under test cannot write.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
import sqlite3
import sys
import time
from collections import Counter
from pathlib import Path

from acceptance import engine as process
from acceptance.engine import START_TIMEOUT_S, Engine
from acceptance.storm import SHARE_AT_START, STARTS_S, Restart, Storm, restarts, restarts_each_leak
from realparts.process import wait_until
from soak.fake_docker import FakeDocker
from soak.report import Verdict, say

N_CLIENTS = 8
N_CONTAINERS = 24

N_ALERTS = 300
"""Each client's: new ones at first, then their repeats, as Alertmanager sends them."""

LEAKS_PER_LIFE = 10

LONGEST_LIFE_S = 30.0
"""A life ends after a random number of answers; on a stalled machine after so long."""

SETTLES_WITHIN_S = 600.0
"""What was killed before Docker was asked is tried again only when the attempt's time is over, 31 s later."""

LOOK_EVERY = 20
"""Kills between two looks at every page and every answer, which take longer the more there is."""

PLAYBOOK = restarts_each_leak(N_CONTAINERS, cooldown="0s")


def kills(folder: Path, *, n_kills: int, n_deliveries: int, seed: int, is_control: bool) -> Verdict:
    """Play it.

    Args:
        n_kills, n_deliveries: at least; it goes on until both are reached.
        is_control: with an engine that answers before it commits: the verdict must be bad, or this proves nothing.
    """
    found = Verdict(stage="control" if is_control else "kills")
    wrong = Path(process.__file__).with_name("answers_first.py")
    command = (sys.executable, str(wrong)) if is_control else (sys.executable, "-m", "remediator")
    docker = FakeDocker(folder / "docker", N_CONTAINERS, seed)
    engine = Engine(folder / "engine", {"restart.yaml": PLAYBOOK}, docker_url=docker.url, command=command)
    try:
        _play(found, docker, engine, n_kills=n_kills, n_deliveries=n_deliveries, seed=seed)
    finally:
        engine.kill()
        docker.close()
    return found


def _play(found: Verdict, docker: FakeDocker, engine: Engine, *, n_kills: int, n_deliveries: int, seed: int) -> None:
    dice, chain, n, lost = random.Random(seed), Chain(engine.store), 0, set[str]()
    engine.start()  # once: what fired before there was a playbook would be adopted, and not acted on
    engine.kill()
    storm = Storm(engine, docker.names, seed, n_clients=N_CLIENTS, pause_s=0.0, n_alerts=N_ALERTS)
    with storm.posting():
        while (n < n_kills or len(storm.answered) < n_deliveries) and not lost:
            engine.spawn()
            storm.want_leaks(LEAKS_PER_LIFE if n < n_kills * 0.9 else 0)
            if dice.random() < SHARE_AT_START:
                time.sleep(dice.uniform(*STARTS_S))
            else:
                wait_until(storm.listens, "the engine listens", START_TIMEOUT_S)
                _live(storm, len(storm.answered) + dice.expovariate(n_kills / n_deliveries))
            engine.kill()
            n += 1
            found.want(not (problem := chain.check()), f"after kill {n} the audit log does not fit: {problem}")
            say(f"{found.stage}: {n} kills, {len(storm.answered)} answered, {chain.seq} events, and they fit")
            if found.stage == "control" or n % LOOK_EVERY == 0:
                lost = storm.lost()
                pages = engine.query("PRAGMA integrity_check")
                found.want(pages == [("ok",)], f"after kill {n} the database is damaged: {pages[:3]}")
                say(f"{found.stage}: {len(lost)} lost; every page of the database looked at")
        engine.start()
    if not lost:
        _settle(found, engine)
    found.want(not (lost := storm.lost()), f"{len(lost)} answered deliveries are lost")
    found.want(set(storm.refused) <= {503}, f"answers other than 200 and 503: {storm.refused}")
    found.want(not (problem := chain.check()), f"the audit log does not fit: {problem}")
    found.want(engine.query("PRAGMA integrity_check") == [("ok",)], "the database is damaged")
    verified = engine.command("audit", "verify")
    found.want(verified.code == 0, f"audit verify: {verified.out}{verified.err}")
    attempts, n_acts = restarts(engine), 0
    for name in docker.names:
        done = docker.done(name)
        n_acts += len(done)
        for breach in _compare([one for one in attempts if one.container == name], done):
            found.want(False, f"{name}: {breach}")
    outcomes = Counter(outcome for (outcome,) in engine.query("SELECT outcome FROM run"))
    faults = engine.query("SELECT count(DISTINCT s.per), count(*) FROM run r JOIN subject s ON s.id = r.subject_id")[0]
    found.want(faults[0] == faults[1], f"{faults[1]} runs for {faults[0]} faults")
    found.want(faults[0] >= len(storm.leaks), f"{len(storm.leaks)} faults were answered, and {faults[0]} have a run")
    found.figures |= {
        "kills": n,
        "deliveries answered with 200": len(storm.answered),
        "lost": len(lost),
        "events": chain.seq,
        "runs": faults[1],
        "runs by outcome": ", ".join(f"{outcome} {count}" for outcome, count in sorted(outcomes.items())),
        "acts, by Docker's account": n_acts,
        "attempts": len(attempts),
        "attempts that a kill cut off before their act": sum(one.reason == "did_not_happen" for one in attempts),
        "database, MiB": round(engine.store.stat().st_size / 2**20),
        "seed": seed,
    }


def _live(storm: Storm, n_answers: float) -> None:
    """Let the engine live until there are so many answers."""
    until = time.monotonic() + LONGEST_LIFE_S
    while len(storm.answered) < n_answers and time.monotonic() < until and not storm.engine.has_ended():
        time.sleep(0.005)


def _settle(found: Verdict, engine: Engine) -> None:
    for what, table, column in (("delivery", "delivery", "handled_at"), ("run", "run", "ended_at")):
        left = f"SELECT count(*) FROM {table} WHERE {column} IS NULL"
        try:
            wait_until(lambda left=left: engine.query(left) == [(0,)], f"no {what} is left", SETTLES_WITHIN_S)
        except TimeoutError:
            found.want(False, f"{engine.query(left)[0][0]} of {what} are stuck")


def _compare(attempts: list[Restart], done: list[dict[str, str]]) -> list[str]:
    """What does not fit between the log's attempts at one container and what was done to it."""
    breaches = []
    acted = [one for one in attempts if one.outcome in ("succeeded", "unknown")]
    twice = {run: n for run, n in Counter(one.run_id for one in acted).items() if n > 1}
    if twice:
        breaches.append(f"runs that acted twice: {twice}")
    if open_ended := [one for one in attempts if not one.outcome]:
        breaches.append(f"attempts without an end: {open_ended}")
    begun = Counter(one.before for one in acted)
    for act in done:
        if begun[act["before"]] < 1:
            breaches.append(f"an act without its event, or a second one: {act}")
        begun[act["before"]] -= 1
    known = {act["before"] for act in done}
    unheard = [one for one in acted if one.outcome == "succeeded" and one.before not in known]
    if unheard:
        breaches.append(f"said to have succeeded, and never done: {unheard}")
    return breaches


class Chain:
    """Follows the audit log's chain: each look checks what is new since the last one."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self.seq = 0
        self._hash = ""

    def check(self) -> str:
        """What does not fit, "" when all does; read behind the engine's back, running or not."""
        uri = f"file:{self._store}?mode=ro"
        with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=30)) as conn:
            if not self._hash:
                self._hash = hashlib.sha256(
                    conn.execute("SELECT value FROM meta WHERE key = 'log_id'").fetchone()[0].encode()
                ).hexdigest()
            rows = conn.execute("SELECT seq, body, hash FROM audit WHERE seq > ? ORDER BY seq", (self.seq,))
            for seq, body, digest in rows:
                expected = hashlib.sha256(b"remediator-audit-v1\n" + self._hash.encode() + b"\n" + body).hexdigest()
                if (seq, digest) != (self.seq + 1, expected):
                    return f"event {seq} does not follow event {self.seq}"
                self.seq, self._hash = seq, digest
            head = conn.execute("SELECT max(seq) FROM audit").fetchone()[0] or 0
        return "" if head == self.seq else f"it ends at event {head}, and has ended at {self.seq}"
