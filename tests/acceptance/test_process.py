"""The engine as a process: how it starts, refuses to, takes new playbooks, loses its disk, and stops."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from acceptance.conftest import EngineFactory
from acceptance.delivery import delivery
from acceptance.engine import ATTEMPT_TIMEOUT, RESTART, Engine
from acceptance.storm import Storm
from acceptance.story import DockerStarts
from conftest_docker import Trainer
from realparts.docker_engine import DockerEngine, stubborn
from realparts.process import wait_until

BROKEN = """
playbook: broken
match: [alertname == Leak]
steps:
  - {action: docker.restrat}
"""

WITHIN_S = 60.0
"""For what happens in well under a second when nobody else uses the machine."""


def leak(container: str, **more: str) -> dict[str, str]:
    return {"alertname": "Leak", "hostname": "gpu-07", "container_name": container} | more


def outcomes(engine: Engine) -> list[str]:
    return [run["outcome"] for run in engine.runs()]


def metrics(page: str) -> dict[tuple[str, ...], float]:
    """Values by name and label values, these in the order of their words."""
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def reload_is_ok(engine: Engine) -> float:
    return metrics(engine.metrics())[("remediator_playbook_reload_ok",)]


# -- stopping


@pytest.mark.docker
def test_stop_when_terminated_under_load_then_all_answers_are_kept_and_the_act_under_way_is_taken_up(
    engine_factory: EngineFactory, docker_engine: DockerEngine, docker_starts: DockerStarts, trainer: Trainer
) -> None:
    box = trainer(stubborn(8))
    playbook = RESTART.replace("stop_timeout: 1s", "stop_timeout: 30s").replace(ATTEMPT_TIMEOUT, "60s")
    engine = engine_factory({"restart.yaml": playbook}, docker_url=docker_engine.url, settings='shutdown_grace = "1s"')
    engine.start()
    storm = Storm(engine, (), seed=1)
    began = time.time()
    with storm.posting():
        assert engine.deliver(delivery(leak(box))) == 200
        wait_until(lambda: len(engine.events("attempt_started")) == 1, "the restart has begun", WITHIN_S)
        wait_until(lambda: len(storm.answered) > 50, "there is load", WITHIN_S)
        assert engine.terminate() == 0
    assert storm.lost() == set()
    assert set(storm.refused) <= {503}
    assert [event["data"]["left_running"] for event in engine.events("engine_stopped")] == [1]
    assert engine.events("attempt_finished") == []

    engine.start()
    wait_until(lambda: outcomes(engine) == ["succeeded"], "the restart is taken up", 120)
    assert len(docker_starts.of(box, after=began)) == 1
    assert engine.command("audit", "verify").code == 0


@pytest.mark.docker
def test_stop_when_the_act_under_way_ends_within_the_grace_then_it_is_finished_first(
    engine_factory: EngineFactory, docker_engine: DockerEngine, trainer: Trainer
) -> None:
    box = trainer(stubborn(2))
    playbook = RESTART.replace("stop_timeout: 1s", "stop_timeout: 30s").replace(ATTEMPT_TIMEOUT, "60s")
    engine = engine_factory({"restart.yaml": playbook}, docker_url=docker_engine.url, settings='shutdown_grace = "60s"')
    engine.start()
    assert engine.deliver(delivery(leak(box))) == 200
    wait_until(lambda: len(engine.events("attempt_started")) == 1, "the restart has begun", WITHIN_S)
    assert engine.terminate() == 0
    assert [event["outcome"] for event in engine.events("attempt_finished")][:1] == ["succeeded"]
    assert [event["data"]["left_running"] for event in engine.events("engine_stopped")] == [0]


# -- starting


def test_start_when_another_engine_has_the_store_then_refused_with_its_pid(engine_factory: EngineFactory) -> None:
    first = engine_factory({"restart.yaml": RESTART})
    first.start()
    second = engine_factory({"restart.yaml": RESTART}, store=first.store)
    code, complaint = second.refuses_to_start()
    assert (code, f"process {first.pid}" in complaint) == (3, True), complaint
    assert first.is_ready()


def test_start_when_playbooks_are_broken_then_every_problem_is_said(engine_factory: EngineFactory) -> None:
    engine = engine_factory({"a.yaml": BROKEN, "b.yaml": "playbook: no-match\nsteps: [{action: noop}]\nstep: []\n"})
    code, complaint = engine.refuses_to_start()
    places = set(re.findall(r"([ab]\.yaml):\d+:\d+", complaint))
    assert (code, places) == (1, {"a.yaml", "b.yaml"}), complaint
    for word in ("alertname == Leak", "docker.restrat", "docker.restart"):
        assert word in complaint
    assert "Traceback" not in complaint


def test_start_when_others_could_call_and_no_token_is_set_then_refused(engine_factory: EngineFactory) -> None:
    engine = engine_factory({"restart.yaml": RESTART}, with_tokens=False, listen="0.0.0.0")
    code, complaint = engine.refuses_to_start()
    assert (code, "no token is configured" in complaint, "Traceback" in complaint) == (2, True, False), complaint


# -- new playbooks

RELOADS: dict[str, Callable[[Engine], object]] = {
    "SIGHUP": lambda engine: engine.signal(signal.SIGHUP),
    "POST": lambda engine: engine.ask("POST", "/-/reload", "operate"),
    "the file's change": lambda engine: None,
}


@pytest.mark.parametrize("how", RELOADS)
def test_reload_when_a_file_is_bad_then_the_old_set_stays_and_shows_and_a_good_one_is_taken(
    how: str, engine_factory: EngineFactory
) -> None:
    is_watched = how == "the file's change"
    engine = engine_factory({"restart.yaml": RESTART}, settings=f"watch_playbooks = {str(is_watched).lower()}")
    engine.start()

    engine.write_playbook(BROKEN, "more.yaml")
    RELOADS[how](engine)
    wait_until(lambda: "more.yaml:3" in engine.checks()["playbooks"], "the problem shows", WITHIN_S)
    assert engine.is_ready()
    assert reload_is_ok(engine) == 0
    assert engine.get("/api/v1/status")["playbooks"] == ["restart"]

    engine.write_playbook(RESTART.replace("playbook: restart", "playbook: second"), "more.yaml")
    RELOADS[how](engine)
    wait_until(lambda: engine.checks()["playbooks"] == "ok", "the good one is taken", WITHIN_S)
    assert reload_is_ok(engine) == 1
    assert sorted(engine.get("/api/v1/status")["playbooks"]) == ["restart", "second"]


def test_reload_when_asked_over_http_then_answers_with_the_problems(engine_factory: EngineFactory) -> None:
    engine = engine_factory({"restart.yaml": RESTART}, settings="watch_playbooks = false")
    engine.start()
    engine.write_playbook(BROKEN, "more.yaml")
    answer = engine.ask("POST", "/-/reload", "operate")
    assert (answer.status_code, len(answer.json()["problems"])) == (422, 2)
    assert engine.ask("POST", "/-/reload", "deliver").status_code == 403


# -- the disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, with 3 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a small disk: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """A file that takes all that is free."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as opened:
        try:
            while opened.write(b"x" * 4096):
                pass
        except OSError:
            pass
    return ballast


@pytest.mark.docker
def test_disk_when_full_then_503_and_no_act_and_all_goes_on_by_itself_when_there_is_room(
    engine_factory: EngineFactory,
    docker_engine: DockerEngine,
    docker_starts: DockerStarts,
    trainer: Trainer,
    small_disk: Path,
) -> None:
    box = trainer()
    held = RESTART.replace("guard:", "hold: 4s\nguard:")
    engine = engine_factory({"restart.yaml": held}, docker_url=docker_engine.url, store=small_disk / "r.db")
    engine.start()
    began = time.time()
    assert engine.deliver(delivery(leak(box))) == 200
    wait_until(lambda: len(engine.runs()) == 1, "the run is planned", WITHIN_S)
    ballast = fill(small_disk)
    big = delivery(leak(box, padding="x" * 200_000))  # what a written-back WAL has room for is not enough

    def is_full() -> bool:
        ballast.open("ab").close()
        return engine.deliver(big) == 503 and engine.ask("GET", "/readyz", "").status_code == 503

    wait_until(is_full, "nothing more is taken", WITHIN_S)
    wait_until(
        lambda: any("store away" in line for line in engine.log_lines()),
        "the run's turn came and was put off",
        WITHIN_S,
    )
    n_events = engine.query("SELECT count(*) FROM audit")[0][0]
    time.sleep(3)
    assert engine.query("SELECT count(*) FROM audit")[0][0] == n_events
    assert "disk is full" in engine.checks()["store"]
    assert len(docker_starts.of(box, after=began)) <= len(engine.events("attempt_started"))

    ballast.unlink()
    wait_until(engine.is_ready, "it is ready again", WITHIN_S)
    assert engine.deliver(delivery(leak(box))) == 200
    wait_until(lambda: outcomes(engine) == ["succeeded"], "the container is restarted", 120)
    assert len(docker_starts.of(box, after=began)) == 1
    assert engine.command("audit", "verify").code == 0


@pytest.mark.system
def test_disk_when_read_only_then_refuses_to_start_and_says_what_to_look_at(
    engine_factory: EngineFactory, small_disk: Path
) -> None:
    engine = engine_factory({"restart.yaml": RESTART}, store=small_disk / "r.db")
    engine.start()
    assert engine.terminate() == 0
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    engine.stderr.write_text("")
    engine.was_up = False
    code, complaint = engine.refuses_to_start()
    assert (code, "Read-only" in complaint or "read-only" in complaint, "Traceback" in complaint) == (3, True, False)
    assert engine.command("audit", "verify").code == 0, "what is there can still be read"


# -- what it answers and writes


def test_webhook_when_its_address_is_nearly_right_then_never_redirects(engine_factory: EngineFactory) -> None:
    engine = engine_factory({"restart.yaml": RESTART})
    engine.start()
    body = delivery(leak("x"))
    asked = {
        f"{method} {path}": engine.ask(method, path, role, data=body).status_code
        for method in ("POST", "GET", "PUT")
        for path in (
            "/api/v1/alertmanager", "/api/v1/alertmanager/", "//api/v1/alertmanager", "/api/v1//alertmanager",
            "/api/v1/alertmanager/x", "/api/v1/../v1/alertmanager", "/API/V1/ALERTMANAGER", "/api/v1", "/",
        )
        for role in ("deliver", "view", "")
    }  # fmt: skip
    assert {what: status for what, status in asked.items() if 300 <= status < 400 or status >= 500} == {}
    assert engine.ask("POST", "/api/v1/alertmanager", "deliver", data=body).status_code == 200


@pytest.mark.docker
@pytest.mark.alertmanager
def test_metrics_when_scraped_after_work_then_they_parse_and_promtool_has_nothing_to_say(
    engine_factory: EngineFactory,
    docker_engine: DockerEngine,
    trainer: Trainer,
    find_tool: Callable[[str], Path],
) -> None:
    engine = engine_factory({"restart.yaml": RESTART}, docker_url=docker_engine.url)
    engine.start()
    assert engine.deliver(delivery(leak(trainer()), {"alertname": "Unknown"})) == 200
    assert engine.deliver(b"no JSON") == 400
    wait_until(lambda: outcomes(engine) == ["succeeded"], "the container is restarted", WITHIN_S)
    # A metric follows its commit, which is seen a moment earlier.
    run_ended = ("remediator_runs_total", "restart", "succeeded")
    wait_until(lambda: run_ended in metrics(engine.metrics()), "the run's end is counted", WITHIN_S)
    page = engine.metrics()
    values = metrics(page)
    assert values["remediator_deliveries_total", "200"] == 1
    assert values["remediator_deliveries_total", "400"] == 1
    assert values["remediator_alerts_total", "firing"] == 2
    assert values["remediator_unmatched_alerts_total",] == 1
    assert values[run_ended] == 1
    assert values["remediator_attempts_total", "docker.restart", "succeeded"] == 1
    assert values["remediator_store_ok",] == 1
    checked = subprocess.run(
        [str(find_tool("promtool")), "check", "metrics"], input=page, capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
