"""The registry, what params accept, and what a look says about an unclear attempt."""

from __future__ import annotations

import types
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from ruamel.yaml import YAML

from remediator import actions
from remediator.actions import REGISTRY
from remediator.clients.fake import FakeWorld
from remediator.clients.ports import Clients, ContainerState
from remediator.core.action import Change, Standing, State
from remediator.errors import TransientActionError
from remediator.testing import assert_action_contract, assert_auditable

EFFECTS = YAML(typ="safe").load(Path(__file__).parents[2] / "data" / "docker_effects.yaml")
CONTAINER = {"container": "trainer-0", "host": "gpu-07"}
NEEDED = {"docker.signal": {"signal": "SIGUSR1"}, "docker.limit": {"cpus": "0.5"}}

DISRUPTIVE = {"docker.restart", "docker.stop", "docker.signal"}
IDEMPOTENT = {"alertmanager.silence", "docker.limit", "docker.stop", "docker.start", "noop"}


def test_registry_when_imported_then_it_holds_each_action_under_its_name() -> None:
    assert list(REGISTRY) == [
        "alertmanager.silence",
        "docker.limit", "docker.restart", "docker.signal", "docker.start", "docker.stop", "noop", "notify.send",
    ]  # fmt: skip
    assert [action.name for action in REGISTRY.values()] == list(REGISTRY)


def test_registry_when_asked_what_is_disruptive_then_it_agrees_with_the_format() -> None:
    assert {name for name, action in REGISTRY.items() if action.is_disruptive} == DISRUPTIVE
    assert {name for name, action in REGISTRY.items() if action.is_idempotent} == IDEMPOTENT
    assert {name for name, action in REGISTRY.items() if action.is_message} == {"notify.send"}


def test_action_of_when_a_module_holds_none_then_it_fails_loudly() -> None:
    with pytest.raises(TypeError, match=r"remediator\.actions\.empty must define one action class, it defines 0"):
        actions._action_of(types.ModuleType("remediator.actions.empty"))


def test_action_of_when_the_name_does_not_fit_the_file_then_it_fails_loudly() -> None:
    module = types.ModuleType("remediator.actions.docker_boot")
    exec("class Boot:\n    name = 'docker.reboot'\n    def apply(self): ...", module.__dict__)
    module.Boot.__module__ = module.__name__
    with pytest.raises(TypeError, match=r"'docker\.reboot' belongs in docker_reboot\.py"):
        actions._action_of(module)


def state(container_id: str, process: str, start: int, status: str = "") -> State:
    is_up = process == "up"
    return {
        "id": container_id * 64,
        "name": "trainer-0",
        "status": status or ("running" if is_up else "exited"),
        "pid": 4_000 + start if is_up else 0,
        "started_at": f"2026-01-01T00:00:0{start}.000000000Z" if start else "",
        "owner": "",
    }


@pytest.mark.parametrize(
    ("name", "row"),
    [pytest.param(name, row, id=f"{name}: {row['id']}") for name, rows in EFFECTS.items() for row in rows],
)
def test_effect_when_an_attempt_gave_no_answer_then_the_look_says_what_the_table_says(name: str, row: Any) -> None:
    params = REGISTRY[name].params_model.model_validate({**CONTAINER, **NEEDED.get(name, {})})
    now = state(*row["now"], status=row.get("status", ""))
    assert REGISTRY[name].effect(params, state(*row["before"]), now).value == row["effect"]


@pytest.mark.parametrize("status", ["created", "running", "paused", "restarting", "exited", "dead"])
@pytest.mark.parametrize(
    ("name", "changes_nothing"),
    [
        ("docker.start", {"running"}),
        ("docker.stop", {"created", "exited", "dead"}),
        ("docker.restart", set()),
        ("docker.signal", set()),
    ],
)
def test_would_change_when_the_container_is_so_already_then_nobody_need_be_asked(
    name: str, changes_nothing: set[str], status: str
) -> None:
    params = REGISTRY[name].params_model.model_validate({**CONTAINER, **NEEDED.get(name, {})})
    now = state("a", "up" if status in ("running", "paused") else "down", 1, status)
    assert REGISTRY[name].would_change(params, now) is (status not in changes_nothing)


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("1.5", "1.5"),
        (1.5, "1.5"),
        (2, "2"),
        ("0.01", "0.01"),
        ("0.125", "0.125"),
        ("9999", "9999"),
        ("01.50", "1.50"),
    ],
)
def test_cpus_when_written_as_a_number_then_they_come_back_from_the_audit(written: object, kept: str) -> None:
    model = REGISTRY["docker.limit"].params_model
    params = model.model_validate({**CONTAINER, "cpus": written})
    dumped = params.model_dump(mode="json", exclude_none=True)
    assert_auditable(dumped)
    assert (dumped["cpus"], model.model_validate(dumped)) == (kept, params)


@pytest.mark.parametrize(
    "written",
    ["", "0", 0, "0.009", "-1", -1, "1,5", "1.2345", "1e3", "10000", "50%", "nan", float("inf"), True, None, [1], "１"],
)
def test_cpus_when_written_in_another_way_then_they_are_refused_with_what_to_write(written: object) -> None:
    with pytest.raises(ValidationError, match=r"write 0\.01 or more"):
        REGISTRY["docker.limit"].params_model.model_validate({**CONTAINER, "cpus": written})


@pytest.mark.parametrize(
    ("text", "kept"),
    [("SIGUSR1", "SIGUSR1"), ("usr1", "SIGUSR1"), ("USR2", "SIGUSR2"), ("10", "10"), (10, "10"), ("KILL", "SIGKILL"),
     ("RTMIN+3", "SIGRTMIN+3"), ("64", "64")],
)  # fmt: skip
def test_signal_when_written_in_a_known_way_then_it_is_kept_in_one(text: object, kept: str) -> None:
    params = REGISTRY["docker.signal"].params_model.model_validate({**CONTAINER, "signal": text})
    assert params.model_dump()["signal"] == kept


@pytest.mark.parametrize("text", ["", "0", "65", "-9", "SIGNOPE", "USR1; reboot", "$(id)", True, None, 1.5, "９"])
def test_signal_when_written_in_another_way_then_it_is_refused_with_what_to_write(text: object) -> None:
    with pytest.raises(ValidationError, match="as in SIGUSR1"):
        REGISTRY["docker.signal"].params_model.model_validate({**CONTAINER, "signal": text})


@pytest.mark.parametrize(("text", "seconds"), [("5m", 300), ("1s", 1), ("1h30m", 5_400), (timedelta(seconds=90), 90)])
def test_stop_timeout_when_written_as_a_duration_then_it_comes_back_from_the_audit(text: object, seconds: int) -> None:
    model = REGISTRY["docker.restart"].params_model
    params = model.model_validate({**CONTAINER, "stop_timeout": text})
    dumped = params.model_dump(mode="json", exclude_none=True)
    assert_auditable(dumped)
    assert model.model_validate(dumped) == params
    assert REGISTRY["docker.restart"].min_timeout(params) == timedelta(seconds=seconds + 30)


@pytest.mark.parametrize("text", ["-1", "-1s", "0s", "500ms", "1500ms", "300", 300, 1.5, True, "for ever", "5 m"])
def test_stop_timeout_when_written_in_another_way_then_it_is_refused(text: object) -> None:
    with pytest.raises(ValidationError, match="stop_timeout"):
        REGISTRY["docker.restart"].params_model.model_validate({**CONTAINER, "stop_timeout": text})


def test_stop_timeout_when_left_out_then_the_step_needs_a_minute_and_a_half() -> None:
    params = REGISTRY["docker.restart"].params_model.model_validate(CONTAINER)
    assert REGISTRY["docker.restart"].min_timeout(params) == timedelta(seconds=90)


@pytest.mark.parametrize(
    "name",
    ["", "a; touch x", "$(id)", "../../etc", "-rf", "trainer 0", "trainer\n", "/trainer-0", "trainer-０", "a" * 129,
     "a?force=1", "a/../b", "{{ labels.x }}"],
)  # fmt: skip
def test_container_when_it_is_no_container_name_then_it_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="container"):
        REGISTRY["docker.restart"].params_model.model_validate({**CONTAINER, "container": name})


@pytest.mark.parametrize("name", REGISTRY)
def test_params_when_a_key_is_unknown_then_it_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        REGISTRY[name].params_model.model_validate({"no_such_param": "x"})


@pytest.mark.parametrize("params", [{"to": [], "title": "t"}, {"to": [""], "title": "t"}, {"to": ["a"], "title": ""}])
def test_notify_send_when_nobody_or_nothing_is_named_then_it_is_refused(params: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        REGISTRY["notify.send"].params_model.model_validate(params)


def test_contract_when_an_action_breaks_a_promise_then_it_is_told() -> None:
    class Chatty(type(REGISTRY["noop"])):  # type: ignore[misc]
        """Describes itself at length."""

        def describe(self, params: Any) -> str:
            return "do nothing.\nreally"

    with pytest.raises(AssertionError, match="describe gives one line"):
        assert_action_contract(Chatty(), {}, clients=None, read_only=None)  # type: ignore[arg-type]


def forgets_the_limit(action: Any, *_: object) -> Any:
    return Change(changed=True, before={"nano_cpus": 1}, after={"nano_cpus": 2})


BROKEN = [
    ("standing", lambda self, left, now: Standing.DRIFTED, "after apply the target stands as it was left"),
    ("standing", lambda self, left, now: Standing.AS_LEFT, "the state before is told from"),
    ("undo", forgets_the_limit, "undo brings back what was seen before"),
    ("would_change", lambda self, params, now: False, "would_change says that nothing would be changed"),
    ("default_undo", None, "has undo and standing, no other"),
]


@pytest.mark.parametrize(("name", "broken", "told"), BROKEN, ids=[told for _, _, told in BROKEN])
def test_contract_when_an_undo_breaks_a_promise_then_it_is_told(name: str, broken: Any, told: str) -> None:
    world = FakeWorld(lambda: datetime(2026, 1, 1, tzinfo=UTC))
    world.add_container("gpu-07", "trainer-0")
    action = type("Broken", (type(REGISTRY["docker.limit"]),), {"__doc__": "Broken.", name: broken})()
    with pytest.raises(AssertionError, match=told):
        assert_action_contract(
            action, {**CONTAINER, "cpus": "0.5"}, clients=world.clients(), read_only=world.read_only()
        )


def test_contract_when_an_undo_changes_something_each_time_then_it_is_told() -> None:
    class Restless(type(REGISTRY["docker.limit"])):  # type: ignore[misc]
        """Says that it did something where there was nothing to do."""

        def undo(self, *args: Any) -> Change:
            return replace(super().undo(*args), changed=True)

    world = FakeWorld(lambda: datetime(2026, 1, 1, tzinfo=UTC))
    world.add_container("gpu-07", "trainer-0")
    with pytest.raises(AssertionError, match="undo changes nothing the second time"):
        assert_action_contract(
            Restless(), {**CONTAINER, "cpus": "0.5"}, clients=world.clients(), read_only=world.read_only()
        )


@pytest.mark.parametrize("value", [1.5, None, b"x", 2**53, {1: "x"}, {"x": [None]}, object()])
def test_auditable_when_a_value_cannot_stand_in_the_log_then_it_is_told(value: object) -> None:
    with pytest.raises(AssertionError, match="audit log"):
        assert_auditable(value)


class SlowToLook:
    """A Docker engine in memory whose looks take time."""

    def __init__(self, world: FakeWorld, monotonic: list[float], takes_s: float) -> None:
        self._docker = world.clients().docker("gpu-07")
        self._monotonic = monotonic
        self._takes_s = takes_s

    def inspect(self, container: str) -> ContainerState:
        self._monotonic[0] += self._takes_s
        return self._docker.inspect(container)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._docker, name)


@pytest.mark.parametrize(
    ("name", "left_s"), [("docker.restart", 88), ("docker.stop", 88), ("docker.signal", 88), ("docker.limit", 88)]
)
def test_apply_when_the_look_before_takes_time_then_the_act_gets_what_is_left(
    name: str, left_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, action, params, before = prepared(name, monkeypatch, takes_s=2)
    action.apply(params, world[1], before, timedelta(seconds=90))
    assert [write.args["deadline_s"] for write in world[0].writes] == [str(left_s)]


@pytest.mark.parametrize(
    ("name", "takes_s"), [("docker.restart", 6), ("docker.stop", 6), ("docker.signal", 86), ("docker.limit", 86)]
)
def test_apply_when_the_look_before_took_too_long_then_nothing_is_sent(
    name: str, takes_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, action, params, before = prepared(name, monkeypatch, takes_s=takes_s)
    with pytest.raises(TransientActionError, match="nothing was sent"):
        action.apply(params, world[1], before, timedelta(seconds=90))
    assert world[0].writes == []


def prepared(name: str, monkeypatch: pytest.MonkeyPatch, *, takes_s: float) -> Any:
    monotonic = [1_000.0]
    monkeypatch.setattr("remediator.actions._container.time.monotonic", lambda: monotonic[0])
    world = FakeWorld(lambda: datetime(2026, 1, 1, tzinfo=UTC))
    world.add_container("gpu-07", "trainer-0")
    slow = SlowToLook(world, monotonic, takes_s)
    clients = Clients(dockers={"gpu-07": slow}, notifier=world.clients().notifier)
    params = REGISTRY[name].params_model.model_validate({**CONTAINER, **NEEDED.get(name, {})})
    return (world, clients), REGISTRY[name], params, REGISTRY[name].observe(params, world.read_only())
