"""The engine with a notifier whose bug tells everything that it knows: each message ends in an error that nobody
foresaw, and whose text holds every line of the file in ``TOLD_SECRETS``. Takes the command line of ``remediator``.
"""

from __future__ import annotations

import os
from pathlib import Path

from remediator.cli import main
from remediator.clients.notifier import AppriseNotifier


def send(self: AppriseNotifier, to: str, *, title: str, body: str, timeout_s: float) -> None:
    raise KeyError(Path(os.environ["TOLD_SECRETS"]).read_text())


AppriseNotifier.send = send  # type: ignore[method-assign]

if __name__ == "__main__":
    main()
