"""What ``alertmanager.silence`` takes and says, and how it tells whose silence stands there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from remediator.actions import REGISTRY
from remediator.clients.fake import FakeWorld
from remediator.core.action import Standing
from remediator.core.outcome import Effect
from remediator.core.scenario import Failure
from remediator.errors import ActionError, InvalidTargetError, TransientActionError, UnknownEffectError

ACTION: Any = REGISTRY["alertmanager.silence"]
ONE, TWO = "http://am-1:9093", "http://am-2:9093"
TIMEOUT = timedelta(minutes=1)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def params(**more: Any) -> Any:
    given = {"duration": "2h", "labels": {"alertname": "GPUHot"}, "run": "playbook a, run 1", **more}
    return ACTION.params_model.model_validate(given)


@pytest.fixture
def world() -> FakeWorld:
    world = FakeWorld(lambda: NOW)
    world.add_alertmanager(ONE)
    world.add_alertmanager(TWO)
    return world


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        pytest.param("duration", "13h", "write 1m to 12h", id="longer than a shift"),
        pytest.param("duration", "59s", "write 1m to 12h", id="over before it is seen"),
        pytest.param("duration", 120, "a number and a unit", id="a bare number"),
        pytest.param("duration", "2 hours", "2 hours", id="no duration"),
        pytest.param("labels", {}, "at least 1", id="no label, which would mute everything"),
        pytest.param("labels", {"alertname": ""}, "at least 1 character", id="an empty value, which asks for absence"),
        pytest.param("labels", {"": "x"}, "at least 1 character", id="no name"),
        pytest.param("labels", ["alertname=~.*"], "valid dictionary", id="a matcher"),
        pytest.param("run", "", "at least 1 character", id="nobody to blame"),
    ],
)
def test_params_when_they_cannot_be_then_refused(field: str, value: Any, says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        params(**{field: value})


def test_describe_when_asked_then_one_line_says_what_and_how_long() -> None:
    labels = {"hostname": "gpu-07", "alertname": "GPU\nHot"}
    assert ACTION.describe(params(labels=labels)) == r'silence alertname="GPU\nHot", hostname="gpu-07" for 2h'
    assert len(ACTION.describe(params(labels={f"label_{n}": "x" * 50 for n in range(50)}))) < 250


def test_every_look_and_act_when_no_alertmanager_is_configured_then_says_what_to_set() -> None:
    world = FakeWorld(lambda: NOW)
    none = {"ref": "", "id": "", "status": "none", "ends_at": ""}
    for call in (
        lambda: ACTION.targets(params(), world.read_only()),
        lambda: ACTION.observe(params(), world.read_only()),
        lambda: ACTION.apply(params(), world.clients(), none, TIMEOUT),
    ):
        with pytest.raises(InvalidTargetError, match=r"set alertmanager\.urls"):
            call()


def silence(id_: str, status: str, ends: str) -> dict[str, Any]:
    is_there = status != "none"
    return {
        "ref": f"alertmanager:{id_}" if is_there else "",
        "id": id_ if is_there else "",
        "status": status,
        "ends_at": f"2026-01-01T{ends}Z" if is_there else "",
    }


LEFT = silence("a", "active", "02:00:00.000000")


@pytest.mark.parametrize(
    ("left", "now", "expected"),
    [
        pytest.param(LEFT, LEFT, Standing.AS_LEFT, id="nobody touched it"),
        pytest.param(LEFT, silence("a", "pending", "02:00:00.000000"), Standing.AS_LEFT, id="a clock is behind"),
        pytest.param(LEFT, silence("a", "active", "02:00:00.000999"), Standing.AS_LEFT, id="other digits"),
        pytest.param(LEFT, silence("a", "expired", "02:00:00.000000"), Standing.AS_LEFT, id="it ended in its time"),
        pytest.param(LEFT, silence("a", "ended", "01:00:00.000000"), Standing.REVERTED, id="somebody ended it"),
        pytest.param(LEFT, silence("", "none", ""), Standing.REVERTED, id="Alertmanager has forgotten it"),
        pytest.param(LEFT, silence("a", "active", "03:00:00.000000"), Standing.DRIFTED, id="somebody prolonged it"),
        pytest.param(LEFT, silence("b", "active", "02:00:00.000000"), Standing.DRIFTED, id="it is another one"),
        pytest.param(silence("", "none", ""), silence("", "none", ""), Standing.AS_LEFT, id="there is none, as before"),
        pytest.param(
            silence("", "none", ""), silence("a", "ended", "01:00:00.000000"), Standing.AS_LEFT,
            id="one that ended is none",
        ),
        pytest.param(silence("", "none", ""), LEFT, Standing.DRIFTED, id="there is one, and was none"),
    ],
)  # fmt: skip
def test_standing_when_seen_so_then_says_who_changed_it(left: Any, now: Any, expected: Standing) -> None:
    assert ACTION.standing(left, now) is expected


def test_effect_when_one_of_two_did_not_answer_then_only_what_is_found_is_known(world: FakeWorld) -> None:
    clients, read_only = world.clients(), world.read_only()
    before = ACTION.observe(params(), read_only)
    world.set_away(ONE, is_away=True)
    half = ACTION.observe(params(), read_only)
    assert (half["unasked"], ACTION.effect(params(), before, half)) == ([ONE], Effect.UNCLEAR)
    ACTION.apply(params(), clients, before, TIMEOUT)
    assert ACTION.effect(params(), before, ACTION.observe(params(), read_only)) is Effect.HAPPENED


def test_effect_when_an_old_one_is_forgotten_meanwhile_then_that_is_no_evidence() -> None:
    old = silence("a", "expired", "01:00:00.000000")
    assert ACTION.effect(params(), old, silence("", "none", "")) is Effect.AS_BEFORE


def test_observe_when_nobody_answers_then_transient(world: FakeWorld) -> None:
    for url in (ONE, TWO):
        world.set_away(url, is_away=True)
    with pytest.raises(TransientActionError, match="cannot be reached"):
        ACTION.observe(params(), world.read_only())


@pytest.mark.parametrize(
    ("how", "error", "n_writes"),
    [
        pytest.param(Failure.PERMANENT, InvalidTargetError, 1, id="refused: no other is asked"),
        pytest.param(Failure.UNKNOWN, UnknownEffectError, 1, id="no answer: it may have it, no other is asked"),
        pytest.param(Failure.TRANSIENT, None, 2, id="not sent: the other is asked"),
    ],
)
def test_apply_when_the_first_fails_so_then_the_second_is_asked_only_where_nothing_was_done(
    how: Failure, error: type[ActionError] | None, n_writes: int, world: FakeWorld
) -> None:
    world.fail("alertmanager.silence", how)
    before = ACTION.observe(params(), world.read_only())
    if error is not None:
        with pytest.raises(error):
            ACTION.apply(params(), world.clients(), before, TIMEOUT)
    else:
        assert ACTION.apply(params(), world.clients(), before, TIMEOUT).changed
    assert world.n_writes("alertmanager.silence") == n_writes


def test_apply_when_the_time_is_over_then_nothing_is_sent(world: FakeWorld) -> None:
    before = ACTION.observe(params(), world.read_only())
    with pytest.raises(TransientActionError, match="nothing was sent"):
        ACTION.apply(params(), world.clients(), before, timedelta(seconds=5))
    assert world.writes == []


def test_apply_when_its_silence_has_run_out_then_another_is_made() -> None:
    moment = [NOW]
    world = FakeWorld(lambda: moment[0])
    world.add_alertmanager(ONE)
    ACTION.apply(params(), world.clients(), ACTION.observe(params(), world.read_only()), TIMEOUT)
    moment[0] += timedelta(hours=3)
    before = ACTION.observe(params(), world.read_only())
    assert (before["status"], ACTION.would_change(params(), before)) == ("expired", True)
    assert ACTION.apply(params(), world.clients(), before, TIMEOUT).after["id"] != before["id"]


def test_undo_when_a_first_try_turns_out_to_have_made_one_too_then_both_are_ended() -> None:
    moments = iter(NOW + timedelta(seconds=n) for n in range(1000))
    world = FakeWorld(lambda: next(moments))
    world.add_alertmanager(ONE)
    clients = world.clients()
    before = ACTION.observe(params(), world.read_only())
    ACTION.apply(params(), clients, before, TIMEOUT)
    left = ACTION.apply(params(), clients, before, TIMEOUT).after
    assert ACTION.undo(params(), clients, left, before, TIMEOUT).changed
    assert [one.is_alive for one in world.silences(ONE)] == [False, False]


def test_undo_when_it_cannot_be_seen_that_it_ended_then_unknown(world: FakeWorld) -> None:
    clients = world.clients()
    before = ACTION.observe(params(), world.read_only())
    left = ACTION.apply(params(), clients, before, TIMEOUT).after
    world.fail("alertmanager.expire", Failure.TIMEOUT_AFTER_EFFECT)
    with pytest.raises(UnknownEffectError):
        ACTION.undo(params(), clients, left, before, TIMEOUT)
    assert ACTION.undo(params(), clients, left, before, TIMEOUT).changed is False
