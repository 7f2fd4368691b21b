"""Playbook tests and replays are decided by the engine itself: each stage of the flow is written once."""

from __future__ import annotations

import ast
import contextlib
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
import structlog

from remediator.actions import LOOKING
from remediator.app import App, StoryApp, story_workshop
from remediator.core.decode import decode
from remediator.core.guard import judge
from remediator.core.lease import next_lease_move
from remediator.core.match import PlaybookIndex
from remediator.core.move import next_move
from remediator.core.plan import make_plan
from remediator.core.verification import after_look, conclude
from remediator.engine.execute import Executor
from remediator.engine.leases import Leases
from remediator.engine.pipeline import Pipeline
from remediator.engine.playtest import Result, play_file
from remediator.engine.receive import Receiver
from remediator.engine.record import Recorder
from remediator.engine.reserve import Reserver
from remediator.engine.verify import Verifier
from remediator.loading.scenarios import load_tests

ROOT = Path(__file__).parents[2]
ENGINE = ROOT / "remediator" / "engine"
TELL_STORIES = ("playtest.py", "replay.py", "hindsight.py", "recording.py", "cast.py", "coverage.py", "difference.py")
"""What plays, replays or records on the engine, and what reads its logs and answers."""

STAGES: dict[str, Callable[..., Any]] = {
    "receive": Receiver.submit,
    "decode": decode,
    "match": PlaybookIndex.match,
    "plan": make_plan,
    "advance": Pipeline.advance,
    "advance leases": Leases.advance,
    "what comes next": next_move,
    "what comes next for leases": next_lease_move,
    "reserve": Reserver.reserve,
    "guard": judge,
    "execute": Executor.attempt,
    "look after a crash": Executor.look,
    "verify": Verifier.look,
    "verify one look": after_look,
    "verify in the end": conclude,
    "record": Recorder.append,
}
ROWS = [pytest.param(stage, id=name) for name, stage in STAGES.items()]

STORY = """
playbooks: [p.yaml]
alerts: {hot: {labels: {alertname: Hot, hostname: gpu-07, container_name: trainer-0}}}
world: {docker: {gpu-07: {trainer-0: {}}}}
scenarios:
  - name: all that can come
    story:
      - {at: 0s, fires: hot, sees: {temp_c: 60}}
      - {at: 0s, restarts: engine, during: docker.limit}
      - {at: 1h, resolves: hot}
    expect:
      - {at: 0s, does: docker.limit}
      - {at: 1m, ends: succeeded}
      - {at: 1h10m, undoes: docker.limit}
"""

PLAYBOOK = """
playbook: p
match: [alertname = Hot]
per: [host, container_name]
steps: [{action: docker.limit, params: {container: "{{ labels.container_name }}", cpus: 1}}]
verify: [{name: temp_c, query: temp, below: 80, settle: 1m}]
"""


@pytest.fixture(autouse=True)
def _without_its_log() -> Iterator[None]:
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**before)


def play(folder: Path) -> Result:
    (folder / "p.yaml").write_text(PLAYBOOK)
    (folder / "p.test.yaml").write_text(STORY)
    loaded = load_tests([folder / "p.test.yaml"], actions=LOOKING)
    (folder / "scratch").mkdir()
    return next(iter(play_file(loaded.files[0], loaded.files[0].scenarios, story_workshop(), folder / "scratch")))


def functions(path: Path) -> Iterator[str]:
    """``name`` and ``Class.name`` of all that a module defines."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ClassDef):
            yield from (f"{node.name}.{one.name}" for one in node.body if isinstance(one, ast.FunctionDef))
        elif isinstance(node, ast.Module):
            yield from (one.name for one in node.body if isinstance(one, ast.FunctionDef))


def test_stories_when_one_is_played_then_every_stage_of_the_flow_runs(tmp_path: Path) -> None:
    called: set[CodeType] = set()

    def note(frame: FrameType, event: str, _arg: object) -> None:
        if event == "call":
            called.add(frame.f_code)

    sys.setprofile(note)
    try:
        result = play(tmp_path)
    finally:
        sys.setprofile(None)
    assert (result.problem, [line for line in result.lines if not line.is_ok]) == ("", [])
    assert [name for name, stage in STAGES.items() if stage.__code__ not in called] == []


@pytest.mark.parametrize("stage", ROWS)
def test_stories_when_a_stage_of_the_flow_is_broken_then_they_fail(
    stage: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_args: Any, **_kwargs: Any) -> Any:
        raise RuntimeError("broken")

    monkeypatch.setattr(stage, "__code__", broken.__code__)
    with contextlib.suppress(RuntimeError):  # that it shows is as good
        assert not play(tmp_path).is_ok


def test_flow_when_its_stages_are_looked_for_then_each_is_defined_once() -> None:
    names = {stage.__qualname__.rpartition(".")[2] for stage in STAGES.values()} - {"look", "submit", "append"}
    known = {f"{stage.__module__}:{stage.__qualname__}" for stage in STAGES.values()}
    found = {
        f"{'.'.join(path.relative_to(ROOT).with_suffix('').parts)}:{function}"
        for part in ("core", "engine")
        for path in (ROOT / "remediator" / part).rglob("*.py")
        for function in functions(path)
        if function.rpartition(".")[2] in names
    }
    assert found == {name for name in known if name.rpartition(".")[2].rpartition(":")[2] in names}


@pytest.mark.parametrize("module", TELL_STORIES)
def test_what_tells_stories_when_it_is_read_then_it_decides_nothing(module: str) -> None:
    deciders = {"judge", "next_move", "next_lease_move", "after_look", "conclude", "Pipeline", "Reserver", "Executor"}
    deciders |= {"Verifier", "Leases", "Intake", "Receiver"}
    tree = ast.parse((ENGINE / module).read_text("utf-8"))
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for name in node.names}
    assert imported & deciders == set()


def test_stories_when_an_engine_is_built_for_them_then_it_is_the_one_that_runs_in_production() -> None:
    tree = ast.parse((ROOT / "remediator" / "app.py").read_text("utf-8"))
    names = {
        node.name: {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
    }
    assert App.__name__ in names["build_app"]
    assert all(StoryApp.__name__ in names[builder] for builder in ("story_workshop", "replay_deliveries"))
    # It adds what stories ask of it, and does nothing in another way.
    assert StoryApp.__bases__ == (App,)
    assert [name for name in vars(StoryApp) if hasattr(App, name) and not name.startswith("__")] == []
