"""The engine's facade as a recording double, for tests of the web: there the engine is the neighbour."""

from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from remediator.settings import Settings
from remediator.telemetry import Metrics


@dataclass
class RecordingApp:
    """Answers with what a test sets, or raises it; keeps every call."""

    settings: Settings
    metrics: Metrics = field(default_factory=Metrics)
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    rejected: list[tuple[Any, ...]] = field(default_factory=list)
    answers: dict[str, Any] = field(default_factory=dict)

    def _call(self, name: str, *args: Any, default: Any) -> Any:
        self.calls.append((name, *args))
        answer = self.answers.get(name, default)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def start(self) -> None:
        self.calls.append(("start",))

    def stop(self) -> None:
        self.calls.append(("stop",))

    def submit(self, raw: Any) -> Future[Any]:
        committed: Future[Any] = Future()
        committed.set_result(
            self._call("submit", raw, default=SimpleNamespace(delivery_id=7, n_alerts=2, n_bad_alerts=1))
        )
        return committed

    def reject(self, source: str, received_at: Any, http_status: int, problem: str, n_bytes: int) -> Future[None]:
        self.rejected.append((source, http_status, problem, n_bytes))
        recorded: Future[None] = Future()
        recorded.set_result(None)
        return recorded

    def readiness(self) -> Any:
        return self._call("readiness", default=SimpleNamespace(is_ready=True, checks={"store": "ok"}))

    def reload(self, actor: str) -> dict[str, Any]:
        return self._call("reload", actor, default={"ok": True, "playbooks": 3, "adopted": 0, "problems": []})

    def pause(self, actor: str, reason: str) -> dict[str, Any]:
        return self._call("pause", actor, reason, default={"paused": True})

    def resume(self, actor: str, reason: str) -> dict[str, Any]:
        return self._call("resume", actor, reason, default={"paused": False})

    def breakers(self) -> list[dict[str, Any]]:
        return self._call("breakers", default=[{"name": "site"}])

    def reset_breaker(self, name: str, actor: str, reason: str) -> dict[str, Any]:
        return self._call("reset_breaker", name, actor, reason, default={"breaker": name})

    def status(self) -> dict[str, Any]:
        return self._call("status", default={"mode": "enforce"})

    def runs(self, limit: int, state: str) -> list[dict[str, Any]]:
        return self._call("runs", limit, state, default=[{"run_id": "r1"}])

    def run(self, run_id: str) -> dict[str, Any]:
        return self._call("run", run_id, default={"run_id": run_id})

    def cancel(self, run_id: str, actor: str, reason: str) -> dict[str, Any]:
        return self._call("cancel", run_id, actor, reason, default={"run_id": run_id})

    def settle(self, run_id: str, happened: bool, actor: str, reason: str) -> dict[str, Any]:
        return self._call("settle", run_id, happened, actor, reason, default={"run_id": run_id})

    def undo(self, run_id: str, step: str, actor: str, reason: str) -> dict[str, Any]:
        return self._call("undo", run_id, step, actor, reason, default={"run_id": run_id})

    def leases(self, limit: int, *, is_all: bool) -> list[dict[str, Any]]:
        return self._call("leases", limit, is_all, default=[{"lease_id": "l1"}])

    def approve(self, run_id: str, actor: str, reason: str, question: int = 0) -> dict[str, Any]:
        said = {"run_id": run_id, "question": 7, "key": "rung.0", "answer": "given", "by": actor}
        return self._call("approve", run_id, actor, reason, question, default=said)

    def deny(self, run_id: str, actor: str, reason: str, question: int = 0) -> dict[str, Any]:
        said = {"run_id": run_id, "question": 7, "key": "rung.0", "answer": "denied", "by": actor}
        return self._call("deny", run_id, actor, reason, question, default=said)

    def note(self, run_id: str, actor: str, text: str) -> dict[str, Any]:
        return self._call("note", run_id, actor, text, default={"run_id": run_id, "noted_by": actor})

    def question(self, run_id: str) -> Any:
        return self._call("question", run_id, default=None)

    def run_by_hand(self, playbook: str, labels: Any, annotations: Any, actor: str) -> dict[str, Any]:
        return self._call("run_by_hand", playbook, labels, annotations, actor, default={"run_id": "r9"})

    def dry_run(self, body: bytes) -> dict[str, Any]:
        return self._call("dry_run", body, default={"alerts": []})
