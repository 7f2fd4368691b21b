"""How much room the store takes, and how much it has left. Takes its path → bytes; opens nothing."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from remediator.errors import StoreUnavailableError


def n_bytes_used(path: Path) -> int:
    """The file and its write-ahead log.

    Raises:
        StoreUnavailableError: there is no such file.
    """
    try:
        return sum(os.stat(each).st_size for each in (path, Path(f"{path}-wal")) if each == path or each.exists())
    except OSError as error:
        raise StoreUnavailableError(f"{path} cannot be looked at: {error.strerror}") from error


def n_bytes_free(path: Path) -> int:
    """What the file system that holds it has left for this user.

    Raises:
        StoreUnavailableError: its folder cannot be looked at.
    """
    try:
        return shutil.disk_usage(path.parent).free
    except OSError as error:
        raise StoreUnavailableError(f"{path.parent} cannot be looked at: {error.strerror}") from error
