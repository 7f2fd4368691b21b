"""What the engine does by itself beside deliveries and runs: at its start, and then every few seconds.

At the start every run that is not closed and every open lease is looked at: an attempt without an end is looked at
first, and what was due while the engine was away is due now. Later: beats, episodes of which nothing is heard any more,
files that changed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import watchfiles

from remediator.engine.dispatch import Dispatch
from remediator.engine.life import BEAT, Life
from remediator.engine.receive import Intake
from remediator.errors import StoreError
from remediator.store import leases, runs
from remediator.store.engine import Store
from remediator.telemetry import get_logger

log = get_logger(__name__)

STOP_PATIENCE_S = 2.0

RECOVER_EVERY = timedelta(minutes=10)
"""A second net: a wake-up may be lost with a write that was committed and still reported as failed."""

EXPIRE_EVERY = timedelta(minutes=1)

WATCHED = (".yaml", ".yml")


def recover(store: Store, dispatch: Dispatch) -> int:
    """Let every run that is not closed be looked at, oldest first, and whatever is to be taken back some time.

    Returns:
        How many runs.
    """
    with store.read() as conn:
        left, lent = runs.not_closed(conn), leases.stacks(conn)
    for one in (*left, *lent):
        dispatch.wake(one)
    return len(left)


class Keeper:
    """One thread that beats and expires; a second that watches the playbook files."""

    def __init__(
        self,
        life: Life,
        intake: Intake,
        store: Store,
        dispatch: Dispatch,
        *,
        watched: Sequence[Path],
        on_change: Callable[[], object],
        on_beat: Callable[[], object],
        note_bug: Callable[[str], None],
    ) -> None:
        self._life = life
        self._intake = intake
        self._store = store
        self._dispatch = dispatch
        self._watched = watched
        self._on_change = on_change
        self._on_beat = on_beat
        self._note_bug = note_bug
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start the threads."""
        works = [("keeper", self._keep), *([("watcher", self._watch)] if self._watched else [])]
        for name, work in works:
            thread = threading.Thread(target=work, name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        """End them; the watcher looks up only every few seconds, and nothing of it has to be finished."""
        self._stop.set()
        for thread in self._threads:
            thread.join(STOP_PATIENCE_S)

    def _keep(self) -> None:
        n_beats = 0
        while not self._stop.wait(BEAT.total_seconds()):
            n_beats += 1
            if n_beats % (RECOVER_EVERY // BEAT) == 0:
                self._recover()
            try:
                self._life.beat()
                self._on_beat()
                if n_beats % (EXPIRE_EVERY // BEAT) == 0:
                    self._intake.expire()
            except StoreError as error:
                log.warning("store away", problem=str(error))
            except Exception:
                log.exception("unexpected error in the keeper")
                self._note_bug("keeper")

    def _recover(self) -> None:
        try:
            recover(self._store, self._dispatch)
        except StoreError as error:
            log.warning("store away", problem=str(error))

    def _watch(self) -> None:
        folders = sorted({path if path.is_dir() else path.parent for path in self._watched if path.exists()})
        changes = watchfiles.watch(
            *folders,
            watch_filter=lambda _change, path: path.endswith(WATCHED),
            stop_event=self._stop,
            debounce=500,
            raise_interrupt=False,
            ignore_permission_denied=True,
        )
        try:
            for _ in changes:
                self._changed()
        except Exception:
            log.exception("playbook files are not watched any more")
            self._note_bug("watcher")

    def _changed(self) -> None:
        try:
            self._on_change()
        except StoreError as error:
            log.warning("store away, playbooks not loaded", problem=str(error))
