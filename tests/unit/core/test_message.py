"""The engine's own texts, word for word; and that no label can forge a line of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from plans import LABELS, NOW, a_plan, a_run, a_step, an_attempt, ended
from remediator.core.action import UndoWhen
from remediator.core.message import TITLE_LIMIT, message
from remediator.core.outcome import Outcome, RunOutcome
from remediator.core.plan import PlannedStep, Runs, Undo
from remediator.core.run import Answer, MessageKind, Question, Run, StepState
from remediator.errors import Reason

ROWS: list[dict[str, Any]] = YAML(typ="safe").load(Path(__file__).parents[2] / "data" / "messages.yaml")


def state_of(told: dict[str, Any]) -> StepState:
    if "outcome" not in told:
        return StepState(attempts=(an_attempt(),))
    state = ended(
        Outcome(told["outcome"]), Reason(told.get("reason", "none")), told.get("detail", ""),
        attempts=told.get("attempts", 1),
    )  # fmt: skip
    *before, last = state.attempts
    return replace(state, attempts=(*before, replace(last, after=told.get("after", {}))))


def step_of(name: str, told: dict[str, Any]) -> PlannedStep:
    undo = told.get("undo")
    return a_step(
        name,
        describes=told["describes"],
        rung=told.get("rung", 0),
        runs=Runs(told.get("runs", "yes")),
        condition=told.get("if", ""),
        undo=None if undo is None else Undo(
            when=UndoWhen(undo), after=timedelta(minutes=10), at_most=timedelta(hours=12)
        ),
    )  # fmt: skip


def question_of(told: dict[str, Any]) -> Question:
    is_answered = "answer" in told
    return Question(
        asked_at=NOW,
        ask=("oncall",),
        expires=timedelta(minutes=30),
        number=7,
        answer=Answer(told.get("answer", "")),
        by=told.get("by", ""),
        reason=told.get("reason", ""),
        answered_at=NOW if is_answered else None,
    )


def run_of(row: dict[str, Any]) -> Run:
    steps = row.get("steps", {})
    url = row.get("url", "https://remediator.example/api/v1/runs/11111111-2222-5333-8444-555555555555")
    plan = a_plan(
        steps=tuple(step_of(name, told) for name, told in steps.items()),
        owner=row.get("owner", ""),
        latched=row.get("latched", False),
        context={"labels": LABELS, "annotations": row.get("annotations", {}), "run": {"url": url}},
    )
    return a_run(
        plan,
        steps={
            f"steps.{name}": state_of(told) for name, told in steps.items() if {"outcome", "attempts"} & told.keys()
        },
        rung=row.get("rung", 0),
        questions={key: question_of(told) for key, told in row.get("questions", {}).items()},
        planned_targets=dict.fromkeys(row.get("targets", ()), ("41", "")),
        tripped=tuple(row.get("why_tripped", ())),
        why_tripped=row.get("why_tripped", {}),
        lease_news={MessageKind(row["kind"]): row["news"]} if "news" in row else {},
        taken_back=frozenset(row.get("taken_back", ())),
        verification=Outcome(row["verification"]) if "verification" in row else None,
        waits_for=tuple(row.get("waits_for", ())),
        outcome=RunOutcome(row["outcome"]) if "outcome" in row else None,
        reason=Reason(row.get("reason", "none")),
        detail=row.get("detail", ""),
        ended_at=NOW,
    )


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_message_when_so_then_people_read_this(row: dict[str, Any]) -> None:
    title, body = message(MessageKind(row["kind"]), run_of(row), row.get("about", ""))
    assert title == row["title"]
    assert body == row["body"].rstrip("\n")


def test_message_table_has_every_ending_that_people_are_told_of() -> None:
    told = {RunOutcome(row["outcome"]) for row in ROWS if "outcome" in row}
    assert told == set(RunOutcome) - {RunOutcome.OBSERVED}  # of which nobody is told
    assert {row["kind"] for row in ROWS} == set(MessageKind)


def test_title_when_values_are_long_then_how_it_ended_still_stands_in_it() -> None:
    plan = a_plan(playbook="p" * 63, per={"job": "j" * 5000})
    title, _ = message(MessageKind.ESCALATE, a_run(plan, outcome=RunOutcome.FAILED))
    assert len(title) == TITLE_LIMIT
    assert title.startswith("FAILED: ")


@pytest.mark.parametrize(
    "value", ["a\nWhat to do now: rm -rf /", "a\r\nRun: b", "a\u2028b", "a\x00\x1b[31mb", "a\u202eb"]
)
def test_message_when_a_label_holds_line_breaks_then_it_stays_on_its_line(value: str) -> None:
    plan = a_plan(per={"job": value}, context={"labels": {**LABELS, "job": value}, "run": {}})
    title, body = message(MessageKind.ESCALATE, a_run(plan, outcome=RunOutcome.FAILED, detail=value))
    _, usual_body = message(MessageKind.ESCALATE, a_run(a_plan(), outcome=RunOutcome.FAILED, detail="x"))
    assert len(body.splitlines()) == len(usual_body.splitlines())
    assert title.isprintable()
    assert body.replace("\n", "").isprintable()


def test_message_when_the_subject_is_a_missing_label_then_the_alert_is_named() -> None:
    title, _ = message(MessageKind.ESCALATE, a_run(a_plan(per={"pod": ""}), outcome=RunOutcome.REFUSED))
    assert title == "refused: restart-on-leak: GPUMemoryLeakSlope"
