"""A real Docker engine of one's own: below one folder, without network, image pulls or anything left behind.

A folder → a running ``dockerd`` on a Unix socket in it, with an image made of Debian's static busybox; and containers
that leak, write checkpoints or are slow to stop. Ends by pid what it started, containers included, and nothing else.

As a program, in ``tests/``: ``python -m realparts.docker_engine start DIR`` prints the engine's URL and leaves it
running, and ``python -m realparts.docker_engine stop DIR`` ends it and removes the folder.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Literal

import docker
import docker.errors
import docker.models.containers
import requests

from realparts.process import wait_until

IMAGE = "localhost/busybox:1"

MADE_HERE = "remediator.test"
"""Label on every container that this module makes."""

START_TIMEOUT_S = 60.0
"""Up in 3 s on an idle machine; the first start on a slow disk under load takes ten times as long."""

IDLE = "trap 'exit 0' TERM; while :; do sleep 0.1; done"
"""Runs, and stops when asked."""

LEAKING = "trap 'exit 0' TERM; while :; do x=$x$(head -c 262144 /dev/zero | tr '\\0' x); sleep 0.1; done"
"""Its memory grows by a megabyte or two a second, until it is restarted."""

CHECKPOINTING = "trap 'date +%s >/tmp/checkpoint' USR1; trap 'exit 0' TERM; while :; do sleep 0.1; done"
"""Writes ``/tmp/checkpoint`` on SIGUSR1."""

ENDING = "exit 3"
"""Ends at once, with exit code 3."""


READ_CGROUP = (
    "cat /sys/fs/cgroup/cpu.max 2>/dev/null"
    " || cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us /sys/fs/cgroup/cpu/cpu.cfs_period_us"
)
"""Version 2, else 1. Both say the quota first."""


def stubborn(seconds: float) -> str:
    """A script that takes so long to stop after SIGTERM."""
    return f"trap 'sleep {seconds}; exit 0' TERM; while :; do sleep 0.1; done"


def missing() -> str:
    """Why no private engine can be started here, "" when one can."""
    if os.geteuid() != 0:
        return "a private Docker engine needs root; or set REMEDIATOR_TEST_DOCKER_HOST"
    absent = [name for name in ("dockerd", "containerd", "runc") if shutil.which(name) is None]
    if absent:
        return f"{', '.join(absent)} not installed (Debian: docker.io); or set REMEDIATOR_TEST_DOCKER_HOST"
    return "" if _busybox() else "busybox is not installed (Debian: busybox-static)"


class DockerEngine:
    """A reachable Docker engine with the busybox image.

    Args:
        url: where it listens.
        folder: of a private one; None for an engine that was there before.
    """

    def __init__(self, url: str, folder: Path | None = None) -> None:
        self.url = url
        self.folder = folder
        self.client = docker.DockerClient(base_url=url, timeout=60)
        if not self.client.images.list(name=IMAGE):
            repository, _, tag = IMAGE.rpartition(":")
            self.client.api.import_image_from_data(_image(), repository=repository, tag=tag)

    def run(
        self,
        name: str,
        script: str = IDLE,
        *,
        labels: Mapping[str, str] | None = None,
        stop_timeout_s: int | None = None,
        network: Literal["none", "host"] = "none",
        removes_itself: bool = False,
        restart_policy: Literal["no", "always"] = "no",
        volumes: Mapping[str, str] | None = None,
        limits: Mapping[str, Any] | None = None,
        starts: bool = True,
    ) -> docker.models.containers.Container:
        """Make and start a container.

        Args:
            script: shell script that it runs.
            volumes: folder outside → folder inside, writable.
            limits: as docker-py calls them (``nano_cpus``, ``cpu_quota``, ``mem_limit``).
            starts: whether it is started too.
        """
        api = self.client.api
        made = api.create_container(  # the client's own run() has no stop time-out
            IMAGE,
            ["/bin/sh", "-c", script],
            name=name,
            labels={MADE_HERE: "1", **(labels or {})},
            stop_timeout=stop_timeout_s,
            volumes=list((volumes or {}).values()),
            host_config=api.create_host_config(
                network_mode=network,
                auto_remove=removes_itself,
                restart_policy={"Name": restart_policy},
                **(limits or {}),
                binds={outside: {"bind": inside, "mode": "rw"} for outside, inside in (volumes or {}).items()},
            ),
        )
        container = self.client.containers.get(made["Id"])
        if starts:
            container.start()
            container.reload()
        return container

    def cpu_cgroup(self, name: str) -> tuple[int | None, int]:
        """CPU quota (None = no limit) and period that the kernel holds a running container to, in microseconds."""
        container = self.client.containers.get(name)
        said: list[str] = []

        def is_read() -> bool:  # Docker loses what a short exec prints, now and then
            said[:] = container.exec_run(["sh", "-c", READ_CGROUP]).output.decode().split()
            return len(said) == 2

        wait_until(is_read, f"the cgroup of {name} is read", 60)
        return None if said[0] in ("max", "-1") else int(said[0]), int(said[1])

    def remove(self, *names: str) -> None:
        """Remove containers, by force; those that are gone, or going by themselves, are no error."""
        for name in names:
            try:
                self.client.containers.get(name).remove(force=True)
            except docker.errors.APIError as error:
                if error.status_code not in (404, 409):
                    raise

    @property
    def pid(self) -> int:
        """Of a private engine's dockerd."""
        assert self.folder is not None, "this engine is not ours"
        return int((self.folder / "pid").read_text())

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """A private engine that accepts connections and says nothing (SIGSTOP)."""
        pid = self.pid
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def close(self) -> None:
        """Give up our connections; the engine stays."""
        self.client.close()


def start(folder: Path, *, outlives_parent: bool = False) -> DockerEngine:
    """A private engine below ``folder``, which is made; one that runs there already is used.

    Args:
        folder: its path must be short: a socket's may have no more than 107 bytes.
        outlives_parent: else it is stopped, and the folder removed, when this process ends in whatever way.

    Raises:
        RuntimeError: it does not come up; with the end of its log.
    """
    folder.mkdir(parents=True, exist_ok=True)
    url = f"unix://{folder / 'docker.sock'}"
    if not _alive(_pid_of(folder / "pid")):
        (folder / "pid").unlink(missing_ok=True)
        _forget_containerd(folder)
        with (folder / "dockerd.log").open("ab") as log:
            daemon = _started(
                folder,
                [
                    "dockerd",
                    f"--data-root={folder / 'data'}",
                    f"--exec-root={folder / 'exec'}",
                    f"--pidfile={folder / 'pid'}",
                    f"--host={url}",
                    "--iptables=false",
                    "--bridge=none",
                ],
                log,
            )
        is_watched = len(_STARTED[folder]) > 1
        if not outlives_parent and not is_watched:
            watch = [sys.executable, "-m", "realparts.docker_engine", "watch", str(folder)]
            _started(folder, watch, None, working_folder=Path(__file__).parents[1])
        deadline = time.monotonic() + START_TIMEOUT_S
        while not _answers(url):
            if daemon.poll() is not None or time.monotonic() > deadline:
                end_of_log = "\n".join((folder / "dockerd.log").read_text(errors="replace").splitlines()[-20:])
                raise RuntimeError(f"dockerd did not come up:\n{end_of_log}")
            time.sleep(0.1)
    return DockerEngine(url, folder)


def stop(folder: Path) -> None:
    """End the private engine below ``folder`` with all its containers, and remove the folder."""
    pid = _pid_of(folder / "pid")
    if _alive(pid):
        os.kill(pid, signal.SIGCONT)
        _remove_all_containers(f"unix://{folder / 'docker.sock'}")
    kill(folder, signal.SIGTERM)
    # What a killed engine leaves: its shims, with a container's first process below each, and its containerd.
    left = _processes(lambda line: f"{folder}/" in line and "containerd" in line)
    for child in [child for parent in left for child in _children(parent)]:
        _kill(child, signal.SIGKILL)
    for parent in left:
        _kill(parent, signal.SIGKILL)
    for mount in reversed(_mounts_below(folder)):
        subprocess.run(["umount", "-l", mount], check=False)
    shutil.rmtree(folder, ignore_errors=True)
    for child in _STARTED.pop(folder, []):
        child.wait(10)


def kill(folder: Path, how: signal.Signals = signal.SIGKILL) -> None:
    """End the dockerd of a private engine and wait until it is gone. After SIGKILL its containers run on."""
    pid = _pid_of(folder / "pid")
    if _alive(pid):
        _kill(pid, how)
        _wait_gone(pid, 20) or _kill(pid, signal.SIGKILL)
        _wait_gone(pid, 5)
    (folder / "pid").unlink(missing_ok=True)


def _forget_containerd(folder: Path) -> None:
    """See that a new dockerd starts a containerd of its own.

    A killed dockerd takes its own along, but not at once; and the next one takes a process that is going, or that ended
    and was not reaped, for one that runs, and waits for it in vain.
    """
    pid_file = folder / "exec/containerd/containerd.pid"
    for pid in _processes(lambda line: line.startswith("containerd ") and f"{folder}/exec/containerd/" in line):
        _kill(pid, signal.SIGKILL)
        _wait_gone(pid, 20)
    if (pid := _pid_of(pid_file)) > 0:
        _wait_gone(pid, 20)
    pid_file.unlink(missing_ok=True)


_STARTED: dict[Path, list[subprocess.Popen[bytes]]] = {}
"""Our own children, to be waited for."""


def _started(
    folder: Path, command: list[str], log: IO[bytes] | None, *, working_folder: Path | None = None
) -> subprocess.Popen[bytes]:
    child = subprocess.Popen(
        command,
        cwd=working_folder,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,  # Ctrl-C is for the test run, which then stops it in order
    )
    _STARTED.setdefault(folder, []).append(child)
    return child


def _remove_all_containers(url: str) -> None:
    gone = (docker.errors.DockerException, requests.exceptions.RequestException)
    with contextlib.suppress(*gone), contextlib.closing(docker.DockerClient(base_url=url, timeout=30)) as client:
        for container in client.containers.list(all=True):
            container.remove(force=True)


def _busybox() -> str:
    return shutil.which("busybox") or ""


def _image() -> bytes:
    """A root file system of busybox and its applets, as tar."""
    applets = subprocess.run([_busybox(), "--list"], check=True, capture_output=True, text=True).stdout.split()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for folder in ("bin", "etc", "tmp", "proc", "sys", "dev"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(entry)
        tar.add(os.path.realpath(_busybox()), "bin/busybox")
        for applet in applets:
            if applet != "busybox":
                entry = tarfile.TarInfo(f"bin/{applet}")
                entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
                tar.addfile(entry)
    return packed.getvalue()


def _answers(url: str) -> bool:
    """Whether the engine is up. By hand: docker-py leaves a socket open where nobody listens yet."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(5)
        probe.connect(url.removeprefix("unix://"))
        probe.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
        return b" 200 OK" in probe.recv(100)
    return False


def _pid_of(file: Path) -> int:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return 0


def _alive(pid: int) -> bool:
    """Whether a thread of the process runs; one that has ended and waits to be reaped does not.

    Not its first thread alone: that one may have ended while another still holds the sockets open.
    """
    states = []
    for thread in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):
            states.append(thread.read_text().rpartition(")")[2].split()[0])
    return any(state != "Z" for state in states)


def _wait_gone(pid: int, within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while _alive(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    return True


def _kill(pid: int, how: signal.Signals) -> None:
    if pid > 0:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, how)


def _processes(is_ours: Callable[[str], bool]) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                if is_ours((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")):
                    found.append(int(folder.name))
    return found


def _children(parent: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(stat.parent.name))
    return found


def _mounts_below(folder: Path) -> list[str]:
    places = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    return [place for place in places if place.startswith(f"{folder}/")]


def _watch(folder: Path) -> None:
    """Stop the engine when the process that started us is gone; end when the engine is."""
    parent = os.getppid()
    deadline = time.monotonic() + START_TIMEOUT_S
    while os.getppid() == parent:
        if _alive(_pid_of(folder / "pid")):
            deadline = time.monotonic() + START_TIMEOUT_S  # tests kill it and start it again
        elif not folder.exists() or time.monotonic() > deadline:
            return
        time.sleep(1)
    stop(folder)


def main(arguments: list[str]) -> int:
    match arguments:
        case ["start", folder]:
            with contextlib.closing(start(Path(folder).resolve(), outlives_parent=True)) as engine:
                print(engine.url)
        case ["stop", folder]:
            stop(Path(folder).resolve())
        case ["watch", folder]:
            _watch(Path(folder))
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
