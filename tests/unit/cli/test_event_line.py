"""What ``audit list`` says of each kind of event."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from remediator.cli.event_line import about
from remediator.core.event import Event, EventType

RUN = "1f0c9a52-8d57-5b0e-9d52-6f3c2b1a0d4e"
TARGET = "docker:gpu-07/trainer-0"
COOLDOWN = {"rule": "cooldown", "reason": "cooldown"}
NONE = {"rule": "protect", "reason": "none"}


@pytest.mark.parametrize(
    ("kind", "fields", "text"),
    [
        pytest.param(
            "attempt_started",
            {"run_id": RUN, "playbook": "leak", "target": TARGET, "data": {"action": "docker.restart", "step": "s.a"}},
            f"docker.restart {TARGET}  1f0c9a52",
            id="an act names its target",
        ),
        pytest.param(
            "attempt_finished",
            {"run_id": RUN, "target": TARGET, "outcome": "succeeded", "data": {"action": "docker.stop"}},
            f"docker.stop {TARGET}: succeeded  1f0c9a52",
            id="an act's end has its outcome",
        ),
        pytest.param(
            "attempt_finished",
            {"outcome": "failed", "data": {"action": "noop", "reason": "transient"}},
            "noop: failed (transient)",
            id="a failure has its reason",
        ),
        pytest.param(
            "attempt_started",
            {"data": {"step": "message.escalate", "action": "notify.send", "params": {"to": ["oncall", "ops"]}}},
            "message → oncall, ops",
            id="a message says to whom",
        ),
        pytest.param(
            "attempt_finished",
            {"outcome": "succeeded", "data": {"step": "message.escalate", "action": "notify.send", "reason": "none"}},
            "message escalate: succeeded",
            id="a message's end, which has no receivers",
        ),
        pytest.param(
            "verdict_given",
            {"data": {"word": "wait", "reasons": [COOLDOWN, COOLDOWN, NONE, {"reason": "paused"}, {"reason": "x"}]}},
            "wait: cooldown, paused",
            id="a verdict has its first reasons, each once",
        ),
        pytest.param("verdict_given", {"data": {"word": "allow", "reasons": [NONE]}}, "allow", id="allowed"),
        pytest.param(
            "delivery_received",
            {"data": {"source": "10.0.0.1", "n_firing": 2, "n_resolved": 1, "n_bad": 0}},
            "2 firing, 1 resolved from 10.0.0.1",
            id="a delivery is counted",
        ),
        pytest.param(
            "episode_opened", {"fingerprint": "c8d2", "data": {"labels": {"alertname": "Leak"}}}, "Leak", id="an alert"
        ),
        pytest.param(
            "episode_ended", {"fingerprint": "c8d2", "data": {"reason": "expired"}}, "c8d2: expired", id="its end"
        ),
        pytest.param("alert_unmatched", {"fingerprint": "c8d2"}, "c8d2", id="an alert that nothing matches"),
        pytest.param(
            "subject_adopted",
            {"playbook": "leak", "data": {"per": {"host": "gpu-07"}}},
            "host=gpu-07  leak",
            id="a subject has its per values",
        ),
        pytest.param(
            "run_finished",
            {"run_id": RUN, "playbook": "leak", "outcome": "refused", "data": {"reason": "protected"}},
            "refused (protected)  leak  1f0c9a52",
            id="a run's end",
        ),
        pytest.param("playbooks_rejected", {"data": {"n_problems": 1}}, "1 problem", id="playbooks refused"),
        pytest.param(
            "playbooks_loaded",
            {"actor": "mia", "data": {"playbooks": {"a": "1", "b": "2"}, "mode": "enforce", "n_adopted": 3}},
            "2 playbooks, enforce, 3 adopted  by mia",
            id="playbooks loaded by a person",
        ),
        pytest.param(
            "turn_waited", {"data": {"waits_for": ["cooldown:cooldown"]}}, "for the cooldown", id="a turn that waits"
        ),
        pytest.param(
            "turn_waited", {"data": {"waits_for": ["moon:full_moon"]}}, "for full moon", id="a reason not known"
        ),
        pytest.param(
            "verdict_given",
            {"data": {"word": "allow", "asks": True, "reasons": []}},
            "allow, people are asked",
            id="a verdict before people are asked",
        ),
        pytest.param(
            "verification_looked",
            {"data": {"step": "", "checks": [{"seen": "not_met", "detail": "a is 1"}, {"seen": "", "detail": ""}]}},
            "a is 1",
            id="a look",
        ),
        pytest.param(
            "verification_finished",
            {"outcome": "failed", "data": {"step": "steps.checkpoint", "detail": "age is 5000"}},
            "checkpoint: failed: age is 5000",
            id="a step that was looked at",
        ),
        pytest.param("rung_climbed", {"data": {"from": 1, "to": 2, "detail": "a is 1"}}, "1 → 2: a is 1", id="a rung"),
        pytest.param(
            "approval_asked", {"data": {"key": "rung.2", "ask": ["oncall"]}}, "rung 2 → oncall", id="a question"
        ),
        pytest.param("approval_asked", {"data": {"key": "rung.0", "ask": ["oncall"]}}, "oncall", id="a plain question"),
        pytest.param(
            "approval_denied",
            {"actor": "mia", "data": {"key": "steps.drain", "reason": "not now"}},
            "drain: not now  by mia",
            id="a no",
        ),
        pytest.param(
            "breaker_tripped", {"data": {"breaker": "site", "detail": "3 of 2"}}, "site: 3 of 2", id="a breaker"
        ),
        pytest.param(
            "breaker_reset",
            {"actor": "mia", "data": {"breaker": "site", "reason": "known"}},
            "site: known  by mia",
            id="a reset",
        ),
        pytest.param(
            "lease_opened",
            {"target": TARGET, "data": {"action": "docker.limit", "when": "resolved", "at_most": "12h"}},
            f"docker.limit {TARGET}: at most 12h",
            id="a lease",
        ),
        pytest.param(
            "lease_opened",
            {"target": TARGET, "data": {"action": "kube.cordon", "when": "never", "at_most": "12h"}},
            f"kube.cordon {TARGET}: until it is taken back by hand",
            id="a lease that only a person ends",
        ),
        pytest.param(
            "lease_closed",
            {"target": TARGET, "data": {"how": "drifted", "detail": f"{TARGET}: cpus is 4"}},
            f"{TARGET}: drifted: cpus is 4",
            id="a lease that others ended",
        ),
        pytest.param(
            "undo_finished",
            {"target": TARGET, "outcome": "failed", "data": {"action": "docker.limit", "detail": "away"}},
            f"docker.limit {TARGET}: failed: away",
            id="an undo",
        ),
        pytest.param(
            "undo_requested",
            {"target": TARGET, "actor": "mia", "data": {"reason": "now"}},
            f"{TARGET}: now  by mia",
            id="a person's undo",
        ),
        pytest.param(
            "note_added", {"actor": "mia", "data": {"text": "PSU swapped"}}, "PSU swapped  by mia", id="a note"
        ),
        pytest.param("paused", {"actor": "mia", "data": {"reason": "work"}}, "work  by mia", id="a pause"),
    ],
)
def test_about_when_an_event_is_listed_then_says_what_happened(kind: str, fields: dict[str, Any], text: str) -> None:
    assert about(Event(type=EventType(kind), at=datetime.now(UTC), **fields)) == text


@pytest.mark.parametrize(
    "data", [{}, {"plan": 1, "labels": 1, "params": 1, "reasons": 1, "playbooks": 1, "checks": 1, "ask": 1}]
)
@pytest.mark.parametrize("kind", EventType)
def test_about_when_the_data_is_of_another_version_then_still_names_the_run(
    kind: EventType, data: dict[str, Any]
) -> None:
    assert about(Event(type=kind, at=datetime.now(UTC), run_id=RUN, data=data)).endswith("1f0c9a52")
