"""What the timeline of an incident says of each kind of event."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from plans import NOW, a_plan, a_step
from remediator.core.event import Event, EventType, RecordedEvent
from remediator.core.incident import Entry, Tone, timeline
from remediator.core.plan import Runs, pack_plan
from remediator.core.run import MessageKind

RUN = "1f0c9a52-8d57-5b0e-9d52-6f3c2b1a0d4e"
TARGET = "docker:gpu-07/trainer-0"
COOLDOWN = {
    "rule": "cooldown",
    "word": "wait",
    "reason": "cooldown",
    "detail": "last acted 5m ago",
    "lifts_at": "2026-03-01T12:25:00.000000Z",
}
BREAKER = {"rule": "breaker", "word": "wait", "reason": "breaker", "detail": "3 targets changed", "trips": "site"}
PLAN = pack_plan(
    a_plan(
        hold=timedelta(minutes=10),
        steps=(
            a_step(describes="cap it", rung=1),
            a_step("more", describes="cap it more", rung=2),
            a_step("never", describes="not this", rung=2, runs=Runs.NO),
        ),
    )
)


def recorded(kind: str, seq: int = 1, **fields: Any) -> RecordedEvent:
    event = Event(**{"type": EventType(kind), "at": NOW + timedelta(seconds=seq), "run_id": RUN, "n": seq, **fields})
    return RecordedEvent(seq=seq, prev_hash="", hash="", event=event)


def entry(kind: str, **fields: Any) -> Entry:
    [found] = timeline([recorded(kind, **fields)])
    return found


@pytest.mark.parametrize(
    ("kind", "fields", "text", "more", "tone"),
    [
        ("episode_opened", {}, "the alert is heard of: it fires", [], "plain"),
        ("episode_ended", {"data": {"reason": "resolved"}}, "the alert was resolved", [], "plain"),
        (
            "episode_ended",
            {"data": {"reason": "expired"}},
            "nothing was heard of the alert for too long: it expired, which is not resolved",
            [],
            "plain",
        ),
        ("alert_unmatched", {}, "no playbook matched it", [], "bad"),
        (
            "alert_ignored",
            {"playbook": "xid", "data": {"case": "follows", "detail": "its cause has an alert"}},
            "xid (case follows) leaves such alerts alone: its cause has an alert",
            [],
            "plain",
        ),
        (
            "plan_made",
            {"data": {"plan": PLAN}},
            "planned, after holding for 10m:",
            ["rung 1: cap it", "rung 2: cap it more"],
            "plain",
        ),
        ("plan_refused", {"data": {"detail": "no label x"}}, "refused: no plan could be made", ["no label x"], "bad"),
        (
            "turn_waited",
            {"data": {"waits_for": ["turn:silenced"]}},
            "waits for the end of a silence on its alert",
            [],
            "waits",
        ),
        ("verdict_given", {"data": {"word": "allow", "rung": 0}}, "the guard allows it", [], "plain"),
        (
            "verdict_given",
            {"data": {"word": "allow", "rung": 2, "asks": True}},
            "the guard allows rung 2, once people say yes",
            [],
            "plain",
        ),
        (
            "verdict_given",
            {"data": {"word": "wait", "waits_for": ["cooldown:cooldown"], "reasons": [COOLDOWN]}},
            "waits for the cooldown",
            ["wait cooldown: last acted 5m ago, until 2026-03-01 12:25:00"],
            "waits",
        ),
        (
            "verdict_given",
            {"data": {"word": "wait", "waits_for": ["breaker:breaker"], "reasons": [BREAKER], "tripped": ["site"]}},
            "waits for a person to reset a breaker",
            ["wait breaker: 3 targets changed", "it tripped breaker site"],
            "waits",
        ),
        (
            "verdict_given",
            {"data": {"word": "refuse", "reasons": [{**COOLDOWN, "word": "refuse", "lifts_at": ""}]}},
            "the guard refuses it",
            ["refuse cooldown: last acted 5m ago"],
            "bad",
        ),
        (
            "approval_asked",
            {"data": {"key": "rung.2", "ask": ["oncall", "ops"], "expires_ms": 1_800_000}},
            "asks oncall, ops whether it may do rung 2, within 30m",
            [],
            "waits",
        ),
        (
            "approval_given",
            {"actor": "mia", "data": {"key": "rung.0", "reason": "go"}},
            "mia said yes to it: go",
            [],
            "good",
        ),
        (
            "approval_denied",
            {"actor": "mia", "data": {"key": "steps.drain", "reason": "no"}},
            "mia said no to step drain: no",
            [],
            "bad",
        ),
        (
            "step_skipped",
            {"outcome": "skipped", "data": {"step": "steps.stop", "detail": "its `if` is false"}},
            "step stop is not done: its `if` is false",
            [],
            "plain",
        ),
        (
            "step_skipped",
            {"outcome": "skipped", "data": {"step": "message.escalate", "detail": "told a moment ago"}},
            "tells nobody that it ended without a fix: told a moment ago",
            [],
            "plain",
        ),
        (
            "attempt_started",
            {"data": {"step": "steps.restart", "attempt": 2, "describes": "restart it"}},
            "restart it, attempt 2: began, and has no end",
            [],
            "waits",
        ),
        (
            "verification_looked",
            {"data": {"step": "", "checks": [{"detail": "a is 1, must be below 2"}]}},
            "looked whether it helps",
            ["a is 1, must be below 2"],
            "plain",
        ),
        (
            "verification_finished",
            {"outcome": "failed", "data": {"step": "", "detail": "a is 3"}},
            "it did NOT help",
            ["a is 3"],
            "bad",
        ),
        (
            "verification_finished",
            {"outcome": "unknown", "data": {"step": "steps.check", "detail": "a has no value"}},
            "nobody knows whether step check did what it should",
            ["a has no value"],
            "bad",
        ),
        ("rung_climbed", {"data": {"from": 1, "to": 2}}, "rung 1 did not help: goes on with rung 2", [], "plain"),
        (
            "subject_closed",
            {"playbook": "restart", "data": {"reason": "resolved"}},
            "nothing of it fires any more for restart (resolved)",
            [],
            "plain",
        ),
        (
            "subject_closed",
            {"playbook": "restart", "data": {"reason": "done"}},
            "the run by hand of playbook restart is over",
            [],
            "plain",
        ),
        (
            "lease_opened",
            {"target": TARGET, "data": {"action": "docker.limit", "when": "resolved", "at_most": "12h"}},
            f"changed for a time: docker.limit on {TARGET}, until it is resolved, at most 12h",
            [],
            "plain",
        ),
        (
            "lease_opened",
            {
                "target": TARGET,
                "data": {
                    "action": "alertmanager.silence",
                    "when": "resolved",
                    "at_most": "12h",
                    "ends_at": "2026-03-01T12:45:00.218870Z",
                },
            },
            f"changed for a time: alertmanager.silence on {TARGET}, until it is resolved, at most 12h; it ends by"
            " itself at 2026-03-01 12:45:00 UTC",
            [],
            "plain",
        ),
        (
            "lease_kept",
            {"target": TARGET, "data": {"detail": f"{TARGET}: it still fires"}},
            f"the change is kept: {TARGET}: it still fires",
            [],
            "bad",
        ),
        (
            "lease_closed",
            {"target": TARGET, "data": {"how": "drifted", "detail": f"{TARGET}: cpus is 4"}},
            f"{TARGET}: others changed it, nothing was restored",
            ["cpus is 4"],
            "bad",
        ),
        ("lease_closed", {"target": TARGET, "data": {"how": "undone"}}, f"{TARGET}: taken back", [], "good"),
        (
            "undo_requested",
            {"target": TARGET, "actor": "mia", "data": {"reason": "quiet now"}},
            f"mia asked to take back what it changed on {TARGET}: quiet now",
            [],
            "plain",
        ),
        (
            "undo_finished",
            {"target": TARGET, "outcome": "failed", "data": {"action": "docker.limit", "detail": "away"}},
            f"takes back docker.limit on {TARGET}: failed",
            ["away"],
            "bad",
        ),
        ("note_added", {"actor": "mia", "data": {"text": "PSU\nswapped"}}, "mia notes: PSU swapped", [], "plain"),
        (
            "cancel_requested",
            {"actor": "mia", "data": {"reason": "no"}},
            "mia asked for its end: no",
            [],
            "plain",
        ),
        (
            "run_finished",
            {"outcome": "refused", "data": {"reason": "denied", "detail": "mia said no: no"}},
            "the run ended: denied",
            ["mia said no: no"],
            "bad",
        ),
        (
            "run_finished",
            {"outcome": "succeeded", "data": {"reason": "none", "detail": "all steps were done"}},
            "the run ended: done",
            ["all steps were done"],
            "good",
        ),
    ],
)
def test_timeline_when_an_event_is_told_then_says_what_happened(
    kind: str, fields: dict[str, Any], text: str, more: list[str], tone: str
) -> None:
    found = entry(kind, **fields)
    assert (found.text, list(found.more), found.tone.value) == (text, more, tone)


def test_timeline_when_an_attempt_has_ended_then_it_is_one_entry_at_its_start() -> None:
    started = {"step": "steps.restart", "attempt": 1, "describes": "restart it"}
    finished = {"step": "steps.restart", "attempt": 1, "detail": "away", "duration_ms": 65_000,
                "retry_at": "2026-03-01T12:05:00.000000Z"}  # fmt: skip
    found = timeline(
        [
            recorded("attempt_started", 1, data=started),
            recorded("note_added", 2, data={"text": "hm"}),
            recorded("attempt_finished", 3, outcome="failed", data=finished),
        ]
    )

    attempt, note = found
    assert (attempt.text, attempt.more) == ("restart it: failed, took 1m5s", ("away", "tried again at 12:05:00"))
    assert (attempt.seqs, attempt.tone, note.seqs) == ((1, 3), Tone.BAD, (2,))


def test_timeline_when_a_look_is_the_last_then_its_end_tells_of_it() -> None:
    looked, ended = {"step": "", "checks": []}, {"step": "", "detail": "a is 1"}
    found = timeline(
        [
            recorded("verification_looked", 1, data=looked),
            recorded("verification_looked", 2, data=looked),
            recorded("verification_finished", 3, outcome="succeeded", data=ended),
        ]
    )
    assert [one.seqs for one in found] == [(1,), (2, 3)]


def test_timeline_when_a_lease_was_taken_back_then_each_try_is_one_entry() -> None:
    lease = {"lease_id": "77", "action": "docker.limit"}
    found = timeline(
        [
            recorded("undo_started", 1, target=TARGET, data=lease),
            recorded("undo_finished", 2, target=TARGET, outcome="failed", data={**lease, "detail": "away"}),
            recorded("undo_started", 3, target=TARGET, data=lease),
            recorded("undo_finished", 4, target=TARGET, outcome="succeeded", data=lease),
            recorded("lease_closed", 5, target=TARGET, data={"lease_id": "77", "how": "undone"}),
            recorded("lease_closed", 6, target=TARGET, data={"lease_id": "76", "how": "undone"}),
            recorded("undo_started", 7, target=TARGET, data={"lease_id": "75"}),
        ]
    )
    assert [(one.text, one.seqs) for one in found] == [
        (f"takes back docker.limit on {TARGET}: failed", (1, 2)),
        (f"takes back docker.limit on {TARGET}: succeeded", (3, 4, 5)),
        (f"{TARGET}: taken back", (6,)),
        (f"takes back {TARGET}: began, and has no end", (7,)),
    ]


@pytest.mark.parametrize("kind", MessageKind)
def test_timeline_when_people_were_told_then_says_whom_and_of_what(kind: MessageKind) -> None:
    data = {"step": f"message.{kind.value}", "attempt": 1, "params": {"to": ["oncall"]}}
    found = timeline(
        [
            recorded("attempt_started", 1, data=data),
            recorded("attempt_finished", 2, outcome="succeeded", data={**data, "params": {}}),
        ]
    )
    assert found[0].text.startswith("tells oncall ")
    assert found[0].text.endswith(": succeeded")
    assert "message" not in found[0].text


@pytest.mark.parametrize("data", [{}, {"plan": 1, "params": 1, "ask": 1, "key": 1, "per": 1, "lifts_at": 1}])
@pytest.mark.parametrize("kind", EventType)
def test_timeline_when_the_data_is_of_another_version_then_still_has_an_entry(
    kind: EventType, data: dict[str, Any]
) -> None:
    found = entry(kind.value, data=data)
    assert found.text.strip()
    assert found.text.isprintable()
