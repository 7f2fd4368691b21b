"""The engine as it is to be deployed: with the rights of the systemd unit, behind the socket proxy, and nothing more.

A real run, from the delivery to the restarted container, in a sandbox made as the unit makes one (``sandbox.py``).
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from acceptance.conftest import EngineFactory
from acceptance.delivery import delivery
from acceptance.engine import RESTART, Engine
from conftest_docker import Trainer
from realparts.docker_engine import DockerEngine
from realparts.process import Process, answers, free_port, wait_until
from realparts.sandbox import sandboxed

ROOT = Path(__file__).resolve().parents[2]
UNIT = (ROOT / "deploy" / "systemd" / "remediator.service").read_text()
PROXY = (ROOT / "deploy" / "docker" / "docker-socket-proxy.cfg").read_text()
USER = 10095

LOOK = """
import os, sys
can = {}
for place in sys.argv[1:]:
    try:
        os.close(os.open(f"{place}/written", os.O_CREAT | os.O_WRONLY))
        can[place] = True
    except OSError:
        can[place] = False
print(can)
"""


def missing() -> str:
    """Why there can be no sandbox here, "" when there can."""
    absent = [name for name in ("unshare", "setpriv", "strace", "haproxy") if shutil.which(name) is None]
    if absent:
        return f"{', '.join(absent)} not installed"
    if os.geteuid() != 0:
        return "needs root"
    may_mount = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode == 0
    return "" if may_mount else "no mount namespace of one's own is allowed here"


@pytest.fixture(autouse=True)
def _can_be_done() -> None:
    if why := missing():
        pytest.skip(why)


@pytest.fixture
def proxy_url(docker_engine: DockerEngine, tmp_path: Path) -> Iterator[str]:
    """The proxy, sandboxed as the compose file does it: root, as whom the socket may be opened, with no capability."""
    address = f"127.0.0.1:{free_port()}"
    folder = tmp_path / "proxy"
    folder.mkdir()
    file = folder / "haproxy.cfg"
    socket = docker_engine.url.removeprefix("unix://")
    file.write_text(PROXY.replace("bind :2375", f"bind {address}").replace("/var/run/docker.sock", socket))
    command = ["haproxy", "-db", "-f", str(file)]
    nowhere = folder / "nothing-is-written"
    nowhere.mkdir()
    keep = [folder, Path(socket).parent]
    process = Process(
        sandboxed(command, user=0, writable=nowhere, keep=keep),
        folder,
        name="haproxy",
        is_up=lambda: answers(f"http://{address}/version"),
    )
    process.start()
    yield f"tcp://{address}"
    process.stop()
    assert [*nowhere.iterdir()] == []


Confined = Callable[..., Engine]


@pytest.fixture
def confined(engine_factory: EngineFactory, tmp_path: Path, proxy_url: str) -> Confined:
    """``confined(*before)``: an engine in the sandbox, its store its only place to write; ``before`` begins its command
    line."""
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    os.chown(state, USER, USER)
    tmp_path.chmod(0o755)  # pytest makes it for root alone

    def make(*before: str) -> Engine:
        command = sandboxed(
            [*before, sys.executable, "-m", "remediator"],
            user=USER,
            writable=state,
            keep=[Path(sys.base_prefix), ROOT, tmp_path],
        )
        return engine_factory(
            {"restart.yaml": RESTART}, docker_url=proxy_url, store=state / "remediator.db", command=command
        )

    return make


def restart_one(engine: Engine, box: str) -> None:
    labels = {"alertname": "Leak", "hostname": "gpu-07", "container_name": box}
    assert engine.deliver(delivery(labels)) == 200
    wait_until(lambda: len(engine.events("run_finished")) == 1, "the run has ended", 60)


@pytest.mark.system
def test_sandbox_when_looked_at_from_inside_then_it_has_no_rights_and_one_place_to_write(tmp_path: Path) -> None:
    # Else the other tests here would prove nothing.
    state = tmp_path / "state"
    state.mkdir()
    os.chown(state, USER, USER)
    places = [str(state), *("/", "/etc", "/var/tmp", "/run", str(ROOT), str(Path.home()))]
    command = [sys.executable, "-c", f"{LOOK}\nprint(open('/proc/self/status').read())", *places]
    keep = [Path(sys.base_prefix), ROOT]

    said = subprocess.run(
        sandboxed(command, user=USER, writable=state, keep=keep), capture_output=True, text=True, check=True
    ).stdout

    assert said.splitlines()[0] == str({place: place == str(state) for place in places})
    rights = dict(re.findall(r"^(Cap\w+|NoNewPrivs|Uid|Gid|Groups):[ \t]*(.*?)[ \t]*$", said, re.M))
    users = "\t".join([str(USER)] * 4)
    none = dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), "0" * 16)
    assert rights == {**none, "NoNewPrivs": "1", "Uid": users, "Gid": users, "Groups": ""}


@pytest.mark.docker
@pytest.mark.system
def test_engine_when_it_has_no_rights_and_no_socket_then_it_takes_an_alert_restarts_and_stops_in_order(
    confined: Confined, docker_engine: DockerEngine, trainer: Trainer
) -> None:
    box = trainer()
    started_at = docker_engine.client.api.inspect_container(box)["State"]["StartedAt"]
    engine = confined()
    engine.start()

    restart_one(engine, box)
    owner = os.stat(f"/proc/{engine.pid}").st_uid

    assert docker_engine.client.api.inspect_container(box)["State"]["StartedAt"] > started_at
    attempts = [event for event in engine.events("attempt_finished") if event["data"]["action"] == "docker.restart"]
    assert [event["outcome"] for event in attempts] == ["succeeded"]
    assert (owner, engine.terminate()) == (USER, 0)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in engine.store.parent.iterdir()}
    assert (len(modes) >= 2, {name: oct(mode) for name, mode in modes.items() if mode & 0o077}) == (True, {})


def allowed_calls() -> set[str]:
    """The system calls that the unit allows, its lines read from top to bottom."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    listed = subprocess.run(["systemd-analyze", "syscall-filter"], capture_output=True, text=True, check=True).stdout
    members: dict[str, list[str]] = {}
    for line in listed.splitlines():
        if line.startswith("@"):
            members[line.strip()] = []
        elif line.startswith("    ") and not line.strip().startswith("#"):
            members[[*members][-1]].append(line.strip())

    def calls_in(name: str) -> set[str]:
        return set().union(*map(calls_in, members[name])) if name.startswith("@") else {name}

    allowed: set[str] = set()
    for given in re.findall(r"^SystemCallFilter=(.+)$", UNIT, re.M):
        named = set().union(*map(calls_in, given.removeprefix("~").split()))
        allowed = allowed - named if given.startswith("~") else allowed | named
    return allowed


def test_engine_when_traced_through_a_run_then_it_makes_no_system_call_that_the_unit_forbids(
    confined: Confined, trainer: Trainer
) -> None:
    # Not marked: no machine should get an init system for this, and without one there is nothing to compare with.
    allowed = allowed_calls()
    # -D: the engine keeps its own pid, for signals.
    engine = confined("strace", "-D", "-f", "-c", "-o", "../state/calls")
    counted = engine.store.parent / "calls"
    engine.start()

    restart_one(engine, trainer())
    engine.signal(signal.SIGHUP)
    wait_until(lambda: len(engine.events("playbooks_loaded")) == 2, "the playbooks are loaded anew", 60)
    assert engine.terminate() == 0
    wait_until(lambda: counted.exists() and "total" in counted.read_text(), "strace has counted", 30)

    used = {line.split()[-1] for line in counted.read_text().splitlines()[2:-2]}
    assert ({"fdatasync", "sendto", "accept4", "openat"} <= used, used - allowed) == (True, set())
