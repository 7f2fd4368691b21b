"""What people say to a run: yes, no, or a note; each once, in time, and to what is asked."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from remediator.core.event import utc_text
from remediator.core.units import parse_duration
from remediator.engine.people import PauseSwitch
from remediator.errors import RequestError

ASKS = "approval: {ask: [oncall], expires: 30m}"
STEP_ASKS = """
steps:
  - {name: restart, action: docker.restart, params: {container: "{{ labels.container_name }}"}, APPROVAL}
escalate: {to: [oncall]}
""".replace("APPROVAL", ASKS)
RESTARTED = ["docker.restart docker:gpu-07/trainer-0"]


def asking(bench: Any, *, more: str = ASKS, **how: Any) -> str:
    """The id of a run that asks whether it may restart a container."""
    bench.restarts(more, **how).start()
    bench.deliver(bench.fires(bench.leak()))
    row = bench.run()
    assert (row["phase"], bench.acts()) == ("asking", [])
    return row["run_id"]


def said(bench: Any) -> list[tuple[str, str, str]]:
    """What people said, as the audit has it."""
    kinds = ("approval_given", "approval_denied", "note_added")
    return [
        (one.type.value, one.actor, one.data.get("reason") or one.data.get("text"))
        for one in bench.events()
        if one.type.value in kinds
    ]


def refusal(call: Any, *args: Any) -> tuple[int, str]:
    with pytest.raises(RequestError) as caught:
        call(*args)
    return caught.value.http_status, str(caught.value)


@pytest.mark.parametrize(("more", "steps", "key"), [(ASKS, None, "rung.0"), ("", STEP_ASKS, "steps.restart")])
def test_approve_when_a_run_asks_then_it_acts_and_the_audit_says_who_and_why(
    bench: Any, more: str, steps: str | None, key: str
) -> None:
    run_id = asking(bench, more=more, **({"steps": steps} if steps else {}))
    question = bench.run()["question"]

    answer = bench.engine.approve(run_id, "alice", "a quiet hour")
    bench.engine.work()

    assert answer == {"run_id": run_id, "question": question, "key": key, "answer": "given", "by": "alice"}
    assert bench.acts() == RESTARTED
    assert said(bench) == [("approval_given", "alice", "a quiet hour")]
    assert [one.data["key"] for one in bench.events("approval_given")] == [key]


def test_deny_when_a_run_asks_then_it_ends_and_nothing_is_done(bench: Any) -> None:
    run_id = asking(bench)

    bench.engine.deny(run_id[:8], "bob", "the job ends at noon")
    bench.engine.work()

    assert bench.ended() == ("refused", "denied")
    assert bench.acts() == []
    assert said(bench) == [("approval_denied", "bob", "the job ends at noon")]
    assert bench.reserved() == []


def test_run_when_it_asks_then_lists_say_whom_and_until_when(bench: Any) -> None:
    asking(bench)
    (asked,) = bench.events("approval_asked")

    shown = [bench.engine.status()["open_runs"][0], bench.engine.runs(10, "all")[0], bench.run()]

    until = utc_text(asked.at + parse_duration("30m"))
    assert [(row["phase"], row["asks"], row["expires_at"]) for row in shown] == [("asking", ["oncall"], until)] * 3
    assert {row["question"] for row in shown} == {asked.n}


def test_run_when_it_is_answered_then_lists_say_no_more_that_it_asks(bench: Any) -> None:
    run_id = asking(bench)

    bench.engine.deny(run_id, "bob", "no")

    rows = [bench.run()]
    bench.engine.work()
    assert {(*row["asks"], row["question"], row["expires_at"]) for row in [*rows, bench.run()]} == {(0, "")}


@pytest.mark.parametrize(
    ("first", "second", "has_gone_on"),
    [("approve", "approve", True), ("approve", "deny", False), ("deny", "approve", True)],
)
def test_answer_when_there_is_one_already_then_says_whose(
    bench: Any, first: str, second: str, has_gone_on: bool
) -> None:
    run_id = asking(bench)
    getattr(bench.engine, first)(run_id, "alice", "my reason")
    at = utc_text(bench.clock.moment)
    if has_gone_on:
        bench.engine.work()

    status, text = refusal(getattr(bench.engine, second), run_id, "bob", "me too")

    word = {"approve": "approved", "deny": "denied"}[first]
    assert (status, text) == (409, f"run {run_id} was already {word} by alice at {at}: my reason")
    assert len(said(bench)) == 1


def test_answer_when_the_run_asks_nobody_then_409(bench: Any) -> None:
    bench.restarts("hold: 1h").start()
    bench.deliver(bench.fires(bench.leak()))
    run_id = bench.run()["run_id"]

    assert refusal(bench.engine.approve, run_id, "alice", "yes")[0] == 409
    assert "asks nobody" in refusal(bench.engine.deny, run_id, "alice", "no")[1]
    bench.engine.cancel(run_id, "alice", "x")
    bench.engine.work()
    assert "has ended already (cancelled)" in refusal(bench.engine.deny, run_id, "alice", "no")[1]
    assert said(bench) == []


def test_answer_when_there_is_no_such_run_then_404(bench: Any) -> None:
    bench.restarts().start()

    for call in (bench.engine.approve, bench.engine.deny, bench.engine.note):
        assert refusal(call, "0" * 36, "alice", "x")[0] == 404


def test_answer_when_it_has_expired_then_409_whether_the_run_knows_it_yet_or_not(bench: Any) -> None:
    run_id = asking(bench)
    until = bench.run()["expires_at"]
    bench.clock.moment += parse_duration("31m")
    bench.engine._life._alive_at = bench.clock.moment  # it was up all the time

    before = refusal(bench.engine.approve, run_id, "alice", "yes")
    bench.engine.work()
    after = refusal(bench.engine.approve, run_id, "alice", "yes")

    assert before == after == (409, f"run {run_id} asks no more: its question expired at {until}")
    assert bench.ended() == ("expired", "approval_expired")
    assert said(bench) == []


def test_answer_when_the_engine_was_away_then_that_time_does_not_count(bench: Any) -> None:
    run_id = asking(bench)
    until = bench.run()["expires_at"]
    bench.after("10m")
    bench.away("25m")
    bench.deliver(bench.fires(bench.leak()))
    assert bench.run()["expires_at"] > until
    bench.after("15m")

    bench.engine.approve(run_id, "alice", "back again")
    bench.engine.work()

    assert bench.acts() == RESTARTED


def test_answer_when_it_means_another_question_then_409(bench: Any) -> None:
    run_id = asking(bench)
    question = bench.run()["question"]

    status, text = refusal(bench.engine.approve, run_id, "alice", "yes", question + 1)
    bench.engine.approve(run_id, "alice", "yes", question)

    assert (status, text) == (
        409,
        f"run {run_id} does not ask question {question + 1} any more: look at what it asks now",
    )


def test_answer_when_the_run_is_to_end_then_409_says_who_cancelled_it(bench: Any) -> None:
    run_id = asking(bench)
    bench.engine.cancel(run_id, "bob", "wrong machine")

    assert refusal(bench.engine.approve, run_id, "alice", "yes") == (
        409,
        f"run {run_id} is to end: cancelled by bob",
    )


def test_approve_when_the_target_was_replaced_meanwhile_then_it_is_refused_with_what_changed(bench: Any) -> None:
    run_id = asking(bench)
    bench.world.remove_container("gpu-07", "trainer-0")
    bench.world.add_container("gpu-07", "trainer-0")

    bench.engine.approve(run_id, "alice", "yes")
    bench.engine.work()

    assert bench.ended() == ("refused", "target_changed")
    assert bench.acts() == []


def test_answers_when_two_people_give_one_at_once_then_one_counts(bench: Any) -> None:
    run_id = asking(bench)
    together = threading.Barrier(8)
    refused: list[str] = []

    def answer(number: int) -> None:
        act = bench.engine.approve if number % 2 else bench.engine.deny
        together.wait()
        try:
            act(run_id, f"person {number}", "now")
        except RequestError as error:
            refused.append(str(error))

    people = [threading.Thread(target=answer, args=(number,)) for number in range(8)]
    for person in people:
        person.start()
    for person in people:
        person.join()
    bench.engine.work()

    ((kind, who, _),) = said(bench)
    assert len(refused) == 7
    assert all(
        f"was already {'approved' if kind == 'approval_given' else 'denied'} by {who} at" in text for text in refused
    )
    assert bench.acts() == (RESTARTED if kind == "approval_given" else [])


@pytest.mark.parametrize("text", ["two\nlines \x1b[2J\x00 \u202e", "x" * 4000])
def test_note_when_given_then_the_audit_has_it_and_the_run_goes_on_as_before(bench: Any, text: str) -> None:
    run_id = asking(bench)
    bench.engine.note(run_id, "alice", text)
    bench.engine.approve(run_id, "bob", "yes")
    bench.engine.work()
    bench.deliver(bench.resolved(bench.leak()))
    bench.after("1h")
    assert bench.run()["phase"] == "closed"

    answer = bench.engine.note(run_id, "carol", text)
    bench.engine.work()

    assert answer == {"run_id": run_id, "noted_by": "carol"}
    assert [(kind, who, what) for kind, who, what in said(bench) if kind == "note_added"] == [
        ("note_added", "alice", text),
        ("note_added", "carol", text),
    ]
    assert (bench.run()["phase"], bench.acts()) == ("closed", RESTARTED)


def test_pause_file_when_it_came_and_went_between_two_looks_then_those_it_held_are_woken(bench: Any) -> None:
    bench.start()
    file = bench.folder / "BRIEF"
    switch = PauseSwitch(file)
    file.touch()
    with bench.engine._store.read() as conn:
        assert switch(conn) is not None
    file.unlink()
    assert switch.has_file_changed()
    assert not switch.has_file_changed()
