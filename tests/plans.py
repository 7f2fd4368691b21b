"""Plans and runs for unit tests, with all that a test does not care about filled in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from remediator.core.action import UndoWhen
from remediator.core.lease import Lease
from remediator.core.move import Situation
from remediator.core.outcome import Outcome
from remediator.core.plan import Plan, PlannedStep, Undo
from remediator.core.playbook import GuardRules, OnFailure
from remediator.core.policy import Limit, Mode
from remediator.core.retry import RetryPolicy
from remediator.core.run import Attempt, Run, StepState
from remediator.errors import Reason

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)

LABELS = {"alertname": "GPUMemoryLeakSlope", "hostname": "gpu-07", "container_name": "trainer-0"}


def a_step(name: str = "restart", **more: Any) -> PlannedStep:
    is_message = more.get("is_message", False)
    given: dict[str, Any] = {
        "key": f"steps.{name}",
        "action": "notify.send" if is_message else "docker.restart",
        "describes": "tell ml-platform" if is_message else "restart container trainer-0 on gpu-07",
        "params": {},
        "timeout": timedelta(minutes=5),
        "retry": RetryPolicy.default(),
        "on_failure": OnFailure.CONTINUE if is_message else OnFailure.STOP,
        "is_disruptive": not is_message,
        "is_idempotent": False,
        "is_message": is_message,
    }
    return PlannedStep(**(given | more))


def a_plan(**more: Any) -> Plan:
    given: dict[str, Any] = {
        "run_id": "11111111-2222-5333-8444-555555555555",
        "subject_id": "subject",
        "playbook": "restart-on-leak",
        "playbook_sha256": "0" * 64,
        "case": "",
        "mode": Mode.ENFORCE,
        "owner": "",
        "per": {"container_name": "trainer-0", "host": "gpu-07"},
        "per_key": "key",
        "fingerprint": "f1",
        "hold": timedelta(0),
        "stop_on_resolve": False,
        "latched": False,
        "is_by_hand": False,
        "guard": GuardRules(
            cooldown=timedelta(minutes=30),
            max_runs=Limit(count=3, per=timedelta(hours=24)),
            tell_after=timedelta(hours=1),
        ),
        "steps": (a_step(),),
        "verify": (),
        "resolved": (),
        "report_to": ("ml-platform",),
        "escalate_to": ("oncall",),
        "context": {
            "labels": LABELS,
            "run": {"id": "11111111-2222-5333-8444-555555555555", "url": "https://remediator.example/runs/1"},
        },
    }
    return Plan(**(given | more))


def a_run(plan: Plan | None = None, **more: Any) -> Run:
    return Run(**({"plan": plan or a_plan(), "n_events": 1, "created_at": NOW} | more))


def an_attempt(number: int = 1, **more: Any) -> Attempt:
    given: dict[str, Any] = {
        "number": number,
        "started_at": NOW,
        "timeout": timedelta(minutes=5),
        "before": {},
        "targets": ("docker:gpu-07/trainer-0",),
    }
    return Attempt(**(given | more))


def ended(outcome: Outcome, reason: Reason = Reason.NONE, detail: str = "", *, attempts: int = 1) -> StepState:
    """A step that has ended, after so many attempts; those before the last failed transiently."""
    last = an_attempt(
        attempts, outcome=outcome, reason=reason, detail=detail, has_changed=outcome is Outcome.SUCCEEDED,
        finished_at=NOW,
    )  # fmt: skip
    before = [an_attempt(number, outcome=Outcome.FAILED, retry_at=NOW) for number in range(1, attempts)]
    tried = (*before, last) if attempts else ()
    return StepState(attempts=tried, outcome=outcome, reason=reason, detail=detail, ended_at=NOW)


def a_situation(**more: Any) -> Situation:
    given: dict[str, Any] = {
        "now": NOW,
        "is_open": True,
        "close_reason": "",
        "opened_at": NOW,
        "closed_at": None,
        "opener_fires": True,
        "last_word_at": NOW,
        "n_alerts": 1,
        "mode": Mode.ENFORCE,
        "up_since": NOW - timedelta(days=1),
    }
    return Situation(**(given | more))


def an_undo(**more: Any) -> Undo:
    given: dict[str, Any] = {"when": UndoWhen.RESOLVED, "after": timedelta(minutes=10), "at_most": timedelta(hours=12)}
    return Undo(**(given | more))


def a_lease(name: str = "a", **more: Any) -> Lease:
    given: dict[str, Any] = {
        "id": name,
        "run_id": f"run-{name}",
        "playbook": "cap",
        "per_key": "key",
        "step": "steps.cap",
        "action": "docker.limit",
        "target": "docker:gpu-07/trainer-0",
        "params": {},
        "before": {"cpus": 4},
        "left": {"cpus": 2},
        "undo": an_undo(),
        "prometheus": "",
        "timeout": timedelta(minutes=5),
        "is_by_hand": False,
        "is_latched": False,
        "opened_at": NOW,
    }
    return Lease(**(given | more))
