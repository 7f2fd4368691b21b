"""The files below ``deploy/``, judged by the programs that read them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from remediator.settings import load_settings

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
RULES = [DEPLOY / "prometheus" / "remediator-rules.yml", *sorted((DEPLOY / "prometheus").glob("gpu-*.yml"))]
RULE_TESTS = sorted((DEPLOY / "prometheus" / "tests").glob("*.yml"))
COMPOSE = DEPLOY / "docker" / "compose.yaml"
DOCKERFILE = (DEPLOY / "docker" / "Dockerfile").read_text()

FindTool = Callable[[str], Path]


def run(*command: str | Path) -> str:
    """What the program says, asserted to end with 0."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.alertmanager
def test_rules_when_checked_by_promtool_then_they_are_valid(find_tool: FindTool) -> None:
    said = run(find_tool("promtool"), "check", "rules", *RULES)
    assert (said.count("SUCCESS"), len(RULES) > 1) == (len(RULES), True)


@pytest.mark.alertmanager
@pytest.mark.parametrize("file", RULE_TESTS, ids=lambda path: path.stem)
def test_rules_when_tested_by_promtool_then_they_fire_as_written(file: Path, find_tool: FindTool) -> None:
    assert "SUCCESS" in run(find_tool("promtool"), "test", "rules", file)


@pytest.mark.alertmanager
def test_prometheus_config_when_checked_by_promtool_then_it_is_valid(find_tool: FindTool) -> None:
    # Syntax only: its token file is on the site's machine.
    said = run(find_tool("promtool"), "check", "config", "--syntax-only", DEPLOY / "prometheus" / "prometheus.yml")
    assert "SUCCESS" in said


@pytest.mark.alertmanager
def test_alertmanager_config_when_checked_by_amtool_then_it_is_valid(find_tool: FindTool) -> None:
    assert "SUCCESS" in run(find_tool("amtool"), "check-config", DEPLOY / "alertmanager" / "alertmanager.yml")


@pytest.mark.alertmanager
@pytest.mark.parametrize(
    ("alert", "receivers"),
    [
        pytest.param("GPUMemoryLeakSlope", "remediator,people", id="a GPU alert goes to the engine and to people"),
        pytest.param("Watchdog", "remediator", id="the alert that always fires goes to the engine and to nobody else"),
        pytest.param("RemediatorStoreDown", "people", id="an alert about the engine never goes through the engine"),
    ],
)
def test_alertmanager_config_when_an_alert_is_routed_then_it_reaches(
    alert: str, receivers: str, find_tool: FindTool
) -> None:
    config = DEPLOY / "alertmanager" / "alertmanager.yml"
    run(
        find_tool("amtool"), "config", "routes", "test",
        f"--config.file={config}", f"--verify.receivers={receivers}", f"alertname={alert}",
    )  # fmt: skip


def test_alertmanager_config_when_it_sends_to_the_engine_then_no_alert_can_be_lost_on_the_way() -> None:
    config = YAML(typ="safe").load(DEPLOY / "alertmanager" / "alertmanager.yml")
    webhook = next(each for each in config["receivers"] if each["name"] == "remediator")["webhook_configs"][0]
    assert (
        webhook["url"].endswith("/api/v1/alertmanager"),
        webhook["send_resolved"],
        webhook["max_alerts"],
        webhook["http_config"]["follow_redirects"],
    ) == (True, True, 0, False)


@pytest.mark.parametrize(
    "file", [DEPLOY / "remediator.toml", DEPLOY / "dev" / "remediator.toml"], ids=["the example", "make serve"]
)
def test_settings_file_when_loaded_then_every_key_is_known(file: Path) -> None:
    assert load_settings(file, environ={}).docker.hosts != {}


@pytest.mark.parametrize("name", ["remediator.service", "remediator-exporter.service"])
def test_systemd_unit_when_verified_then_systemd_finds_nothing_wrong(name: str, tmp_path: Path) -> None:
    # Not marked `system`: no machine should get an init system for the sake of this.
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    unit = (DEPLOY / "systemd" / name).read_text()
    # It wants the program to be there.
    assert "/opt/remediator/bin/remediator" in unit
    copy = tmp_path / name
    copy.write_text(unit.replace("/opt/remediator/bin/remediator", "/bin/true"))
    assert run("systemd-analyze", "verify", copy) == ""


@pytest.mark.parametrize(("name", "most"), [("remediator.service", 17), ("remediator-exporter.service", 24)])
def test_systemd_unit_when_systemd_judges_it_then_little_is_open_to_it(name: str, most: int) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    # 0 is nothing at all, 100 everything; 14 by systemd 252, and others count a little differently. What is left is
    # what it lives by: sockets, the network, docker's group; of the exporter (21) the driver's devices, everybody's
    # /proc, and to be root, though without his capabilities.
    run("systemd-analyze", "security", "--offline=true", f"--threshold={most}", DEPLOY / "systemd" / name)


def test_dockerfile_when_read_then_what_it_copies_exists() -> None:
    copied = [word for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.M) for word in line.split()[:-1]]
    assert (len(copied) >= 5, [path for path in copied if not (ROOT / path).exists()]) == (True, [])


def test_dockerfile_when_read_then_it_runs_the_engine_alone_and_not_as_root() -> None:
    joined = DOCKERFILE.replace("\\\n", " ")
    steps = [line.split(maxsplit=1) for line in joined.splitlines() if line.strip() and not line.startswith("#")]
    users = [rest for word, rest in steps if word == "USER"]
    last = dict(steps)
    assert (users, last["ENTRYPOINT"], "[dev]" in DOCKERFILE) == (["10095"], '["remediator"]', False)


def test_compose_file_when_read_then_it_is_one() -> None:
    run(sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE)


def test_compose_file_when_read_then_the_engine_has_no_docker_socket_of_its_own() -> None:
    services = YAML(typ="safe").load(COMPOSE)["services"]
    with_socket = [name for name, service in services.items() if "docker.sock" in str(service.get("volumes"))]
    assert with_socket == ["docker-socket-proxy"]


@pytest.mark.parametrize("name", ["remediator", "docker-socket-proxy"])
def test_compose_file_when_read_then_each_service_has_the_least_rights(name: str) -> None:
    service = YAML(typ="safe").load(COMPOSE)["services"][name]
    shown = {key: service.get(key) for key in ("read_only", "cap_drop", "security_opt", "privileged", "pids_limit")}
    assert shown == {
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "privileged": None,
        "pids_limit": 512,
    }


def test_compose_file_when_read_then_the_proxy_is_reached_by_the_engine_alone() -> None:
    compose = YAML(typ="safe").load(COMPOSE)
    proxy = compose["services"]["docker-socket-proxy"]
    on_its_network = [
        name for name, service in compose["services"].items() if set(service["networks"]) & set(proxy["networks"])
    ]
    assert (on_its_network, proxy.get("ports"), [compose["networks"][name] for name in proxy["networks"]]) == (
        ["remediator", "docker-socket-proxy"],
        None,
        [{"internal": True}],
    )
