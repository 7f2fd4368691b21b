"""A program with the rights that ``deploy/systemd/remediator.service`` leaves it, on a machine without systemd.

    sandbox.py --user UID --writable FOLDER [--keep PATH]… -- COMMAND…

Replaces itself by the command, with the same pid: as that user and group, without any capability and without a way to
gain one; the whole tree read-only but for the one folder and an empty ``/tmp``; ``/root`` and ``/home`` empty but for
what is kept, which is where a developer's Python and this project may lie. Needs root, and a mount namespace of its
own: ``unshare --mount --propagation private python sandbox.py …``.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path

HIDDEN = ("/root", "/home", "/tmp")
"""Empty for the program (ProtectHome, PrivateTmp)."""

KERNELS = re.compile(r"/(proc|sys|dev)(/.*)?")
"""Left as they are: what systemd does to them needs a systemd."""

_MS_REMOUNT_BIND_RDONLY = 32 | 4096 | 1


def _mount(*arguments: str | Path) -> None:
    subprocess.run(["mount", *map(str, arguments)], check=True)


def _mounted() -> list[str]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line.split(" ")[4].replace("\\040", " ") for line in lines]


def _make_read_only(place: str) -> None:
    # Not mount(8): it looks the file system's own options up, and asks for some that may not be changed.
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"none", place.encode(), None, _MS_REMOUNT_BIND_RDONLY, None) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), place)


def confine(writable: Path, keep: list[Path]) -> None:
    """Make this mount namespace what the program is to see."""
    staged = Path("/mnt")
    _mount("-t", "tmpfs", "tmpfs", staged)
    kept = [*keep, writable]
    for number, path in enumerate(kept):
        (staged / str(number)).mkdir()
        _mount("--rbind", path, staged / str(number))
    for place in HIDDEN:
        _mount("-t", "tmpfs", "-o", "mode=1777" if place == "/tmp" else "mode=755", "tmpfs", place)
    for number, path in enumerate(kept):
        path.mkdir(parents=True, exist_ok=True)
        _mount("--rbind", staged / str(number), path)
    subprocess.run(["umount", "--recursive", "--lazy", staged], check=True)
    for place in _mounted():
        if place not in ("/tmp", str(writable)) and not KERNELS.fullmatch(place):
            with contextlib.suppress(FileNotFoundError):  # it lies below what was hidden
                _make_read_only(place)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--user", type=int, required=True)
    parser.add_argument("--writable", type=Path, required=True)
    parser.add_argument("--keep", type=Path, action="append", default=[])
    parser.add_argument("command", nargs="+")
    given = parser.parse_args()
    here = os.getcwd()
    confine(given.writable, given.keep)
    os.chdir(here)  # what lies there now, not what lay there before
    user = str(given.user)
    os.execvp(
        "setpriv",
        [
            *("setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--no-new-privs", "--pdeathsig", "KILL"),
            *("--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=-all", "--", *given.command),
        ],
    )


def sandboxed(command: list[str], *, user: int, writable: Path, keep: list[Path]) -> list[str]:
    """The command line that runs ``command`` so."""
    kept = [word for path in keep for word in ("--keep", str(path))]
    return [
        *("unshare", "--mount", "--propagation", "private", sys.executable, __file__),
        *("--user", str(user), "--writable", str(writable), *kept, "--", *command),
    ]


if __name__ == "__main__":
    main()
