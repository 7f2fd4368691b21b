"""A real containerd of one's own: below one folder, without network, image pulls or anything left behind.

A folder → a running ``containerd`` with tasks made of Debian's static busybox, in any control group. A task ends by
itself after two minutes, so that even a killed test run leaves nothing.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import uuid
from pathlib import Path

from realparts.process import Process

RUNS_S = 120

_CONFIG = """\
version = 2
root = "{folder}/root"
state = "{folder}/state"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = "{folder}/c.sock"
"""


def missing() -> str:
    """Why no containerd can be started here, "" when one can."""
    if os.geteuid() != 0:
        return "a private containerd needs root"
    absent = [name for name in ("containerd", "ctr", "runc", "busybox") if shutil.which(name) is None]
    return f"{', '.join(absent)} not installed (Debian: docker.io, busybox-static)" if absent else ""


class Containerd:
    """One containerd; a context manager that ends it and its tasks.

    Args:
        folder: its path must be short: a socket's may have no more than 107 bytes.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cgroup_root = f"remediator-test-{uuid.uuid4().hex[:10]}"
        """Its tasks' control groups stand below a folder of this name, where nobody else's are."""
        self._tasks: list[str] = []
        config = folder / "config.toml"
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(_CONFIG.format(folder=folder))
        bin_folder = folder / "rootfs/bin"
        bin_folder.mkdir(parents=True)
        shutil.copy(os.path.realpath(str(shutil.which("busybox"))), bin_folder / "busybox")
        (bin_folder / "sleep").symlink_to("busybox")
        for name in ("proc", "sys", "dev", "tmp", "run"):
            (folder / "rootfs" / name).mkdir()
        self._process = Process(["containerd", "--config", str(config)], folder, is_up=self._answers)

    def __enter__(self) -> Containerd:
        self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        for task in self._tasks:
            self._ctr("task", "rm", "--force", task)
            self._ctr("container", "rm", task)
        self._process.stop()
        for root in (Path("/sys/fs/cgroup"), *Path("/sys/fs/cgroup").iterdir()):
            for group in sorted((root / self.cgroup_root).rglob("*/"), reverse=True):
                if group.is_dir():
                    group.rmdir()
            for name in (self.cgroup_root, "default"):  # the second is ctr's own, and may hold somebody else's tasks
                with contextlib.suppress(OSError):
                    (root / name).rmdir()

    def run(self, task: str, *, cgroup: str = "") -> int:
        """Start a task that sleeps; its pid.

        Args:
            task: its id.
            cgroup: its group below ``cgroup_root``; "": where ``ctr`` puts it.
        """
        where = ["--cgroup", f"/{self.cgroup_root}/{cgroup}"] if cgroup else []
        rootfs = str(self.folder / "rootfs")
        self._tasks.append(task)
        self._ctr("run", "--detach", "--rootfs", *where, rootfs, task, "/bin/sleep", str(RUNS_S)).check_returncode()
        lines = self._ctr("task", "ls").stdout.splitlines()
        return next(int(line.split()[1]) for line in lines if line.split()[0] == task)

    def _answers(self) -> bool:
        return self._ctr("version").returncode == 0

    def _ctr(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = ["ctr", "--address", str(self.folder / "c.sock"), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)
