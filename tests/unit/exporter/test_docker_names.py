"""The names that a Docker engine gives its containers, asked for in a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from structlog.testing import capture_logs

from realparts.process import wait_until
from remediator.clients.ports import ContainerState, CpuLimit
from remediator.errors import AccessDeniedError, TargetNotFoundError, TransientActionError
from remediator.exporter import docker_names
from remediator.exporter.docker_names import DockerNames

ID = "a1" * 32
OTHER = "b2" * 32
SOON_S = 20.0


class Engine:
    """A Docker engine: what it would answer, what it was asked, and whether it hangs."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.problem: Exception | None = None
        self.asked: list[str] = []
        self.answers = threading.Event()
        self.answers.set()
        self.id = ""

    def inspect(self, container: str) -> ContainerState:
        self.asked.append(container)
        assert self.answers.wait(60)
        if self.problem is not None:
            raise self.problem
        if container not in self.names:
            raise TargetNotFoundError(f"{container}: none", target="docker:here")
        return ContainerState(
            id=self.id or container,
            name=self.names[container],
            status="running",
            pid=1,
            started_at="",
            finished_at="",
            exit_code=0,
            labels={},
            stop_timeout_s=None,
            removes_itself=False,
            cpu=CpuLimit(),
            is_engine=False,
        )

    def version(self) -> str:
        raise AssertionError("nobody needs it")


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine()
    yield engine
    engine.answers.set()


@contextmanager
def names_of(
    engine: Engine, look_again_s: float = 1000.0, clock: Callable[[], float] = time.monotonic
) -> Iterator[DockerNames]:
    names = DockerNames(engine, look_again_s=look_again_s, clock=clock)
    yield names
    engine.answers.set()
    names.stop()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first asker waits as long as a loaded machine may take for a thread's turn."""
    monkeypatch.setattr(docker_names, "FIRST_LOOK_S", SOON_S)


@pytest.mark.usefixtures("patient")
def test_of_when_a_container_is_new_then_the_first_answer_has_its_name(engine: Engine) -> None:
    engine.names[ID] = "trainer-7"
    with names_of(engine) as names:
        assert names.of(ID) == "trainer-7"


@pytest.mark.usefixtures("patient")
def test_of_when_asked_again_then_the_engine_is_not(engine: Engine) -> None:
    engine.names[ID] = "trainer-7"
    with names_of(engine) as names:
        assert [names.of(ID) for _ in range(50)] == ["trainer-7"] * 50
    assert engine.asked == [ID]


@pytest.mark.usefixtures("patient")
def test_of_when_it_is_another_engines_container_then_has_no_name(engine: Engine) -> None:
    with names_of(engine) as names:
        assert names.of(ID) == ""
    assert engine.asked == [ID]


@pytest.mark.usefixtures("patient")
def test_of_when_a_container_is_named_like_the_id_then_its_name_is_not_taken(engine: Engine) -> None:
    engine.names[ID] = "impostor"
    engine.id = OTHER
    with names_of(engine) as names:
        assert names.of(ID) == ""


@pytest.mark.usefixtures("patient")
def test_of_when_the_container_is_renamed_then_says_so_at_the_next_look(engine: Engine) -> None:
    engine.names[ID] = "trainer-7"
    with names_of(engine, look_again_s=0.02) as names:
        assert names.of(ID) == "trainer-7"
        engine.names[ID] = "trainer-8"
        wait_until(lambda: names.of(ID) == "trainer-8", "the new name is known", SOON_S)


@pytest.mark.usefixtures("patient")
def test_of_when_the_container_is_gone_from_the_engine_then_has_no_name(engine: Engine) -> None:
    engine.names[ID] = "trainer-7"
    with names_of(engine, look_again_s=0.02) as names:
        assert names.of(ID) == "trainer-7"
        engine.names.clear()
        wait_until(lambda: names.of(ID) == "", "the name is given up", SOON_S)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(
    "problem",
    [
        pytest.param(TransientActionError("cannot be reached", target="docker:here"), id="away"),
        pytest.param(AccessDeniedError("does not let us in", target="docker:here"), id="does not let us"),
        pytest.param(ZeroDivisionError("a bug"), id="a bug in what asks it"),
    ],
)
def test_of_when_the_engine_goes_away_and_comes_back_then_keeps_the_name_and_tells_once(
    engine: Engine, problem: Exception
) -> None:
    engine.names[ID] = "trainer-7"
    with capture_logs() as logs, names_of(engine, look_again_s=0.02) as names:
        assert names.of(ID) == "trainer-7"
        engine.problem = problem
        n_asked = len(engine.asked)
        wait_until(lambda: len(engine.asked) > n_asked + 3, "it was asked in vain", SOON_S)
        assert names.of(ID) == "trainer-7"
        engine.names[ID] = "trainer-8"
        engine.problem = None
        wait_until(lambda: names.of(ID) == "trainer-8", "the engine is asked again", SOON_S)
        wait_until(lambda: len(logs) >= 2, "both are told", SOON_S)
    assert [log["log_level"] for log in logs] == ["warning", "info"]
    assert str(problem) in logs[0]["problem"]


def test_of_when_the_engine_hangs_then_waits_once_and_no_more(engine: Engine) -> None:
    engine.answers.clear()
    with names_of(engine) as names:
        assert names.of(ID) == ""
        began_s = time.monotonic()
        ids = [f"{i:064x}" for i in range(2000)]
        assert {names.of(container_id) for container_id in [ID, *ids]} == {""}
        # 2,000 waits would be more than eight minutes.
        assert time.monotonic() - began_s < 60
    assert engine.asked == [ID]


@pytest.mark.usefixtures("patient")
def test_of_when_the_engine_is_away_then_is_left_alone_for_a_while_and_nobody_waits(engine: Engine) -> None:
    now_s = 0.0
    engine.names = {f"{i:064x}": f"trainer-{i}" for i in range(5)}
    ids = list(engine.names)
    engine.problem = TransientActionError("cannot be reached", target="docker:here")
    with names_of(engine, look_again_s=30, clock=lambda: now_s) as names:
        began_s = time.monotonic()
        assert [names.of(ids[0]), names.of(ids[1])] == ["", ""]
        now_s = 29.0
        assert names.of(ids[2]) == ""
        assert len(engine.asked) == 1
        now_s = 31.0
        assert names.of(ids[3]) == ""
        assert time.monotonic() - began_s < SOON_S / 2  # not even as long as one that waits for a first answer
        wait_until(lambda: len(engine.asked) == 2, "the engine is tried again", SOON_S)
        engine.problem = None
        now_s = 62.0
        assert names.of(ids[4]) == ""  # wakes the thread; who was known to be away is not waited for
        wait_until(lambda: names.of(ids[4]) == "trainer-4", "the engine is asked again", SOON_S)
        assert [names.of(container_id) for container_id in ids] == list(engine.names.values())
    assert len(engine.asked) == 7


@pytest.mark.usefixtures("patient")
def test_of_when_the_engine_is_back_then_the_first_answer_has_the_name_again(engine: Engine) -> None:
    engine.names = {ID: "trainer-7", OTHER: "trainer-8"}
    engine.problem = TransientActionError("cannot be reached", target="docker:here")
    with names_of(engine, look_again_s=0.02) as names:
        assert names.of(ID) == ""
        engine.problem = None
        wait_until(lambda: names.of(ID) == "trainer-7", "the engine is asked again", SOON_S)
        assert names.of(OTHER) == "trainer-8"


def test_stop_when_the_thread_waits_then_it_ends(engine: Engine) -> None:
    engine.names[ID] = "trainer-7"
    others = set(threading.enumerate())
    with names_of(engine) as names:
        names.of(ID)
        (own,) = {thread for thread in threading.enumerate() if thread.name == "docker-names"} - others
    own.join(SOON_S)
    assert not own.is_alive()


@pytest.mark.usefixtures("patient")
def test_of_when_nobody_asked_about_a_container_for_long_then_the_engine_is_not_either(engine: Engine) -> None:
    now_s = 0.0
    engine.names = {ID: "trainer-7", OTHER: "trainer-8"}
    with names_of(engine, look_again_s=30, clock=lambda: now_s) as names:
        names.of(ID)
        now_s = 1000.0
        names.of(OTHER)
    assert engine.asked == [ID, OTHER]


@pytest.mark.usefixtures("patient")
def test_of_when_a_container_is_asked_about_now_and_then_then_is_not_forgotten(engine: Engine) -> None:
    now_s = 0.0
    engine.names = {ID: "trainer-7", OTHER: "trainer-8"}
    with names_of(engine, clock=lambda: now_s) as names:
        names.of(ID)
        now_s = 200.0
        names.of(ID)
        now_s = 400.0
        names.of(OTHER)
        names.of(ID)
    assert engine.asked == [ID, OTHER]
