"""Who did not answer is not asked by everybody."""

from __future__ import annotations

from datetime import timedelta

from plans import NOW, a_plan
from remediator.core.guard import AskedTargets, RuleAnswer, Word
from remediator.engine.reserve import Away
from remediator.errors import Reason

SILENCE = AskedTargets(
    asked_at=NOW,
    by_step={},
    problem=RuleAnswer(rule="targets", word=Word.WAIT, reason=Reason.UNREACHABLE, detail="no answer", lifts_at=NOW),
)
ANSWER = AskedTargets(asked_at=NOW, by_step={})


class World:
    """A host that answers as it is told, and a clock."""

    def __init__(self) -> None:
        self.moment, self.n_asked, self.answer = NOW, 0, SILENCE

    def look(self) -> AskedTargets:
        self.n_asked += 1
        return self.answer


def ask(away: Away, world: World) -> str:
    asked = away.ask(a_plan().acts, lambda: world.moment, world.look)
    return asked.problem.reason.value if asked.problem is not None else "answered"


def test_ask_when_a_host_has_just_not_answered_then_it_is_not_asked_again_for_a_while() -> None:
    away, world = Away(), World()
    said = [ask(away, world) for _ in range(50)]
    assert (set(said), world.n_asked) == ({"unreachable"}, 1)


def test_ask_when_it_may_answer_again_then_one_look_finds_out_and_all_are_told() -> None:
    away, world = Away(), World()
    ask(away, world)
    world.moment += timedelta(seconds=11)
    ask(away, world)
    ask(away, world)
    assert world.n_asked == 2
    world.moment += timedelta(seconds=11)
    world.answer = ANSWER
    assert [ask(away, world) for _ in range(3)] == ["answered"] * 3
