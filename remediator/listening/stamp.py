"""Whether a file is another one than it was: what the files of tokens and of TLS are looked at by, at each call."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

Stamp: TypeAlias = tuple[int, int, int, int] | None
"""(device, inode, size, time in ns): Kubernetes swaps a symlink, editors write a new file, others write in place. None:
it cannot be seen."""


def stamp_of(file: Path) -> Stamp:
    """What changes with its content."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
