"""What the Docker engine of this host calls its containers.

A container's id → its name, from memory; a thread of its own asks the engine. So an engine that hangs or is away costs
those who ask nothing, and never a name that is known: it is kept until the engine says otherwise. Read-only.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from remediator.clients.ports import DockerReader
from remediator.errors import ActionError, TargetNotFoundError
from remediator.telemetry import get_logger

LOOK_AGAIN_S: Final = 30.0
"""Between two questions about a container, and after one that the engine did not answer: a rename shows within a
minute, at a question of some milliseconds for each container."""

FIRST_LOOK_S: Final = 0.25
"""A new container's first asker waits so long for the name, so that its series do not begin under another label. The
engine answers in milliseconds; once one took longer nobody waits until it has answered again."""

_FORGET_S: Final = 300.0
"""Of a container that nobody asks about: its processes have ended."""

_log = get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class _Known:
    """What is known of one container; ``is_looked``: the engine has answered once."""

    asked_at_s: float
    due_at_s: float
    name: str = ""
    is_looked: bool = False


class DockerNames:
    """Names of one Docker engine's containers. Thread-safe; the thread starts with the first question.

    Args:
        docker: the engine of this host.
        look_again_s: see ``LOOK_AGAIN_S``.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        docker: DockerReader,
        *,
        look_again_s: float = LOOK_AGAIN_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._docker = docker
        self._look_again_s = look_again_s
        self._clock = clock
        self._changed = threading.Condition()
        self._known: dict[str, _Known] = {}
        self._asks_from_s = clock()
        self._is_slow = False
        self._is_stopped = False
        self._thread: threading.Thread | None = None

    def of(self, container_id: str) -> str:
        """The container's name, "" where it is not (yet) known. Returns at once, but for ``FIRST_LOOK_S``."""
        with self._changed:
            now_s = self._clock()
            if container_id not in self._known:
                self._known[container_id] = _Known(asked_at_s=now_s, due_at_s=now_s)
                self._start()
                self._changed.notify_all()
            known = self._known[container_id]
            known.asked_at_s = now_s
            if not self._changed.wait_for(lambda: known.is_looked or self._is_slow, FIRST_LOOK_S):
                self._is_slow = True
                self._changed.notify_all()  # let the others go, too
            return known.name

    def stop(self) -> None:
        """Ask nothing more. A question that is under way is not waited for: it may take half a minute."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def _start(self) -> None:
        if self._thread is None and not self._is_stopped:
            self._thread = threading.Thread(target=self._run, name="docker-names", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        problem = ""
        while (container_id := self._next()) is not None:
            was, problem = problem, self._look(container_id)
            if problem and not was:
                _log.warning("the Docker engine gives no names; those that are known stay", problem=problem)
            elif was and not problem:
                _log.info("the Docker engine gives names again")

    def _next(self) -> str | None:
        """Waits until a container is to be asked about; None at the end."""
        with self._changed:
            while not self._is_stopped:
                now_s = self._clock()
                self._known = {i: known for i, known in self._known.items() if now_s - known.asked_at_s < _FORGET_S}
                first = min(self._known, key=lambda i: self._known[i].due_at_s, default=None)
                wait_s = None if first is None else max(self._known[first].due_at_s, self._asks_from_s) - now_s
                if wait_s is not None and wait_s <= 0:
                    return first
                self._changed.wait(wait_s)
            return None

    def _look(self, container_id: str) -> str:
        """Asks the engine about one container and keeps the answer; gives what was wrong, "" for nothing."""
        name: str | None = None
        problem = ""
        try:
            state = self._docker.inspect(container_id)
            # The engine takes a name for an id, and anybody may name a container like another's id.
            name = state.name if state.id == container_id else ""
        except TargetNotFoundError:
            name = ""  # another engine's: containerd's, Podman's
        except ActionError as error:
            problem = str(error)
        except Exception as error:  # noqa: BLE001  # without this thread no name would ever be learnt again
            problem = f"unexpected {type(error).__name__}: {error}"
        with self._changed:
            now_s = self._clock()
            if problem:
                self._asks_from_s = now_s + self._look_again_s
            self._is_slow = bool(problem)
            known = self._known.get(container_id)
            if known is not None:
                known.due_at_s = now_s + self._look_again_s
                known.is_looked = known.is_looked or not problem
                known.name = known.name if name is None else name
            self._changed.notify_all()
        return problem
