"""One engine per file: an OS lock beside the database, which goes with the process that holds it, however it ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from remediator.errors import StoreInUseError, StoreUnavailableError


class StoreLock:
    """Holds ``<file>.lock`` from its making until ``release``. The file holds the holder's pid, for people."""

    def __init__(self, path: Path) -> None:
        """Take the lock.

        Args:
            path: of the database.

        Raises:
            StoreInUseError: another engine holds it.
            StoreUnavailableError: the lock file cannot be written.
        """
        lock_path = path.with_name(path.name + ".lock")
        try:
            self._fd = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreUnavailableError(f"Cannot open {lock_path}: {error.strerror}") from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = _pid(self._fd)
            os.close(self._fd)
            holder = f"process {pid}" if pid else "another process"
            raise StoreInUseError(
                f"{path} is in use by {holder}: one engine per store; stop it first", pid=pid
            ) from None
        except OSError as error:
            os.close(self._fd)
            raise StoreUnavailableError(f"Cannot lock {lock_path}: {error.strerror}") from error
        self._write(f"{os.getpid()}\n")

    def release(self) -> None:
        """Let go. The file stays: deleting it would let two engines lock two files of one name."""
        if self._fd < 0:
            return
        self._write("")
        os.close(self._fd)
        self._fd = -1

    def _write(self, text: str) -> None:
        # The pid is a service to people: a full disk must not keep an engine from starting or stopping for it.
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, text.encode(), 0)
        except OSError:
            return


def _pid(fd: int) -> int:
    text = os.pread(fd, 32, 0).strip()
    return int(text) if text.isdigit() else 0
