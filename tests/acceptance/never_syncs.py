"""The engine with its disk's promise broken: it commits without syncing. Takes the command line of ``remediator``.

A control: an engine killed by a signal loses nothing so, since the kernel still has what it wrote. Only the order of
its system calls shows it.
"""

from __future__ import annotations

from remediator.cli import main
from remediator.store import connection

connection.WRITER_PRAGMAS["synchronous"] = 0  # type: ignore[index]

if __name__ == "__main__":
    main()
