"""Conditions, asked: the Prometheus of a plan and ``Condition``s → one ``Reading`` each.

Used by verification, ``guard.require``, fleet sizes and ``undo.require``. It must never hold up a worker longer than
``ASK_S``, and never raise: what is not known is a reading that says why, and what it means is ``core.condition``'s to
say.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from datetime import UTC, datetime

from remediator.clients.ports import PrometheusReader
from remediator.core.condition import Condition, Reading
from remediator.core.units import cut
from remediator.errors import ActionError, InvalidTargetError
from remediator.telemetry import Metrics, get_logger, redact

log = get_logger(__name__)

ASK_S = 10.0
"""For all conditions of one question; a client's own deadlines lie within it."""

SLOW_S = 1.0
"""A failure that took longer cost a worker that time. One that came at once, as from a closed port, costs nothing."""

REST_S = 5.0
"""A server that failed so slowly is not asked again before: thousands of waiting runs must not stand in line for it,
while other runs need the workers. Below the 15 s between two looks, so that each look of a run is a question."""

ANY_TIME = datetime.min.replace(tzinfo=UTC)
"""What a Prometheus gives may change at any time; only who tells a story knows better."""

PROBE_EVERY_S = 60.0

PROBE = "vector(1)"
"""Costs a Prometheus nothing."""

_DETAIL = 300


@dataclass(slots=True, kw_only=True)
class _Server:
    """One Prometheus and what is known of it.

    Attributes:
        is_ok: it answered when it was last asked; true before the first time.
        why: what was wrong when it was last waited for in vain.
        late: questions that nobody waits for any more.
        rests_until, probe_at: by the monotonic clock; not asked, and not probed, before.
    """

    name: str
    reader: PrometheusReader
    is_ok: bool = True
    why: str = ""
    late: tuple[Future[Reading], ...] = ()
    rests_until: float = 0.0
    probe_at: float = 0.0


class Conditions:
    """Asks the configured Prometheus servers. Thread-safe.

    Args:
        prometheus: server by name.
        metrics: where it shows which servers answer; None in a dry run.
        is_alone: asks in the caller's thread: for readers in memory, which answer at once.

    Attributes:
        steady_until: what any condition gives does not change before; None = never again.
    """

    def __init__(
        self, prometheus: Mapping[str, PrometheusReader], metrics: Metrics | None = None, *, is_alone: bool = False
    ) -> None:
        self._is_alone = is_alone
        self._servers = {name: _Server(name=name, reader=reader) for name, reader in prometheus.items()}
        self._metrics = metrics
        self._lock = threading.Lock()
        self.steady_until: datetime | None = ANY_TIME

    def ask(self, server: str, conditions: Sequence[Condition]) -> tuple[Reading, ...]:
        """What each condition's query gives now. All are asked at the same time; raises nothing.

        Args:
            server: the name of a Prometheus, ``plan.prometheus``.

        Returns:
            A reading for each condition, in their order, within ``ASK_S``.
        """
        if not conditions:
            return ()
        asked = self._servers.get(server)
        why = self._why_unknown(server) if asked is None else self._why_not_now(asked)
        if asked is None or why:
            return (Reading(problem=why),) * len(conditions)
        questions = [self._ask_apart(asked, condition.query, condition.name) for condition in conditions]
        wait(questions, timeout=ASK_S)
        late = tuple(question for question in questions if not question.done())
        why = f"Prometheus {server} has not answered within {ASK_S:.0f} s"
        if late:
            self._let_rest(asked, why, late)
            self._note(asked, why)
        return tuple(Reading(problem=why) if question in late else question.result() for question in questions)

    def probe(self) -> None:
        """Ask each server, once a minute and without waiting: the metric would else speak of the last run's time."""
        now = time.monotonic()
        for server in self._servers.values():
            with self._lock:
                if now < server.probe_at:
                    continue
                server.probe_at = now + PROBE_EVERY_S
            self._ask_apart(server, PROBE, "probe")

    def _why_unknown(self, server: str) -> str:
        names = ", ".join(sorted(self._servers))
        if not names:
            return "no Prometheus is configured; add prometheus.servers.NAME.url to the settings"
        if not server:
            return f"which Prometheus to ask is not known: the alert's cluster is none of {names}"
        return f"no Prometheus is called {server!r} in the settings (configured: {names})"

    def _why_not_now(self, server: _Server) -> str:
        """Why it is not asked at this moment, "" when it is."""
        with self._lock:
            server.late = tuple(question for question in server.late if not question.done())
            return server.why if server.late or time.monotonic() < server.rests_until else ""

    def _ask_apart(self, server: _Server, query: str, name: str) -> Future[Reading]:
        """Ask in a thread that nobody has to wait for, neither for its answer nor at the end of the process."""
        future: Future[Reading] = Future()

        def ask() -> None:
            future.set_result(self._ask(server, query, name))

        if self._is_alone:
            ask()
        else:
            threading.Thread(target=ask, name="prometheus-question", daemon=True).start()
        return future

    def _ask(self, server: _Server, query: str, name: str) -> Reading:
        begun = time.monotonic()
        try:
            reading = Reading(values=server.reader.query(query, name=name))
        except InvalidTargetError as error:  # an answer all the same
            reading = Reading(problem=_text(error))
        except ActionError as error:
            problem = _text(error)
            self._note(server, problem)
            if time.monotonic() - begun > SLOW_S:
                self._let_rest(server, problem)
            return Reading(problem=problem)
        except Exception:
            log.exception("unexpected error while asking a Prometheus", server=server.name, query=query)
            if self._metrics is not None:
                self._metrics.unexpected_errors.labels("conditions").inc()
            problem = f"an unexpected error while asking Prometheus {server.name}; the engine's log has it"
            self._note(server, problem)
            return Reading(problem=problem)
        self._note(server, "")
        return reading

    def silent(self) -> list[str]:
        """Names of the servers that did not answer when they were last asked."""
        with self._lock:
            return [server.name for server in self._servers.values() if not server.is_ok]

    def _let_rest(self, server: _Server, why: str, late: tuple[Future[Reading], ...] = ()) -> None:
        if self._is_alone:  # a reader in memory is never slow: what took time was this machine, at something else
            return
        with self._lock:
            server.late += late
            server.why = why
            server.rests_until = time.monotonic() + REST_S

    def _note(self, server: _Server, problem: str) -> None:
        """Show whether it answered; log it where that has changed. A dry run says it in its own words."""
        if self._metrics is None:
            return
        with self._lock:
            has_changed = server.is_ok is bool(problem)
            server.is_ok = not problem
        self._metrics.prometheus_ok.labels(server.name).set(not problem)
        if has_changed and problem:
            log.warning("a Prometheus gave no answer", server=server.name, problem=problem)
        elif has_changed:
            log.info("a Prometheus answers again", server=server.name)


def _text(error: ActionError) -> str:
    return cut(redact(str(error)), _DETAIL)
