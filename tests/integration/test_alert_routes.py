"""The shipped Alertmanager configuration: who hears of what, and what mutes what, by amtool and real Alertmanagers."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from acceptance.engine import Engine
from conftest_realparts import need_alertmanager
from realparts.alertmanager import VERSIONS, Alertmanager, pushed
from realparts.loopback import WebhookReceiver
from realparts.process import wait_until
from remediator.app import load_playbooks
from remediator.cli.finding import Level
from remediator.cli.sender_config import judge_sender
from remediator.core.matcher import Matcher, parse_matcher
from remediator.settings import load_settings

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "deploy" / "alertmanager" / "alertmanager.yml"
CONFIG: dict[str, Any] = YAML(typ="safe").load(FILE)
TABLE: dict[str, Any] = YAML(typ="safe").load(ROOT / "tests" / "data" / "alert_routes.yaml")
Labels = dict[str, str]


def shipped() -> set[tuple[str, str]]:
    """Name and severity of every alert that a shipped rule makes."""
    files = [YAML(typ="safe").load(file) for file in (ROOT / "deploy" / "prometheus").glob("*.yml")]
    groups = [group for file in files for group in file.get("groups", [])]
    return {
        (rule["alert"], rule["labels"]["severity"]) for group in groups for rule in group["rules"] if "alert" in rule
    }


SHIPPED = sorted(shipped())


# -- routes


def receivers_of(name: str, severity: str) -> str:
    """The receivers that an alert shall reach, as the table has it."""
    for row in TABLE["routes"]:
        if re.fullmatch(row["alertname"], name) and re.fullmatch(row["severity"], severity):
            return str(row["receivers"])
    raise AssertionError(f"no row of the table is about {name} with severity {severity}")


@pytest.mark.alertmanager
@pytest.mark.parametrize(("name", "severity"), SHIPPED)
def test_routes_when_a_shipped_alert_fires_then_it_reaches(
    name: str, severity: str, find_tool: Callable[[str], Path]
) -> None:
    done = subprocess.run(
        [
            str(find_tool("amtool")), "config", "routes", "test", f"--config.file={FILE}",
            f"--verify.receivers={receivers_of(name, severity)}", f"alertname={name}", f"severity={severity}",
        ],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_routes_when_the_engine_judges_them_then_it_finds_nothing_wrong() -> None:
    # As Alertmanager's API shows it: without anchors.
    findings = list(judge_sender("am", json.dumps(CONFIG), ("http://127.0.0.1:9095",), timedelta(hours=9)))
    assert [(finding.level, finding.text) for finding in findings if finding.level is not Level.OK] == []


# -- what mutes what


def alertmanager_config(inhibit_rules: list[Any], receiver_url: str = "http://127.0.0.1:9/") -> dict[str, Any]:
    """The shipped configuration, at once and without its token."""
    config: dict[str, Any] = deepcopy(CONFIG)
    for route in (config["route"], *config["route"]["routes"]):
        route |= {"group_wait": "0s", "group_interval": "1s"}
    (webhook,) = next(each for each in config["receivers"] if each["name"] == "remediator")["webhook_configs"]
    webhook |= {"url": receiver_url, "http_config": {"follow_redirects": False}}
    return config | {"inhibit_rules": inhibit_rules}


@pytest.fixture
def alertmanager(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Alertmanager]:
    need_alertmanager(request.param)
    running = Alertmanager(
        tmp_path / "alertmanager", alertmanager_config(CONFIG["inhibit_rules"]), version=request.param
    )
    running.start()
    yield running
    running.kill()


@pytest.mark.alertmanager
@pytest.mark.parametrize("alertmanager", VERSIONS, indirect=True)
def test_inhibition_when_alerts_fire_together_then_these_are_muted(alertmanager: Alertmanager) -> None:
    """All rows of the table at once; each in a cluster of its own, since every rule asks for an equal cluster."""
    now = datetime.now(UTC)
    rows = TABLE["inhibition"]
    sent = [
        alert | {"cluster": str(number)} for number, row in enumerate(rows) for alert in (*row["heard"], *row["muted"])
    ]
    alertmanager.post(*(pushed(labels, None, now, now + timedelta(hours=1)) for labels in sent))
    expected = {row["id"]: (_said(row["heard"]), _said(row["muted"])) for row in rows}

    def seen() -> dict[str, tuple[list[str], list[str]]]:
        listed = alertmanager.alerts()
        return {
            row["id"]: (
                _said(_of(listed, number, is_muted=False)),
                _said(_of(listed, number, is_muted=True)),
            )
            for number, row in enumerate(rows)
        }

    try:
        wait_until(lambda: seen() == expected, "alerts are muted as the table says", 30)
    except TimeoutError:
        assert seen() == expected


def _of(listed: list[dict[str, Any]], number: int, *, is_muted: bool) -> list[Labels]:
    return [
        {name: value for name, value in alert["labels"].items() if name != "cluster"}
        for alert in listed
        if alert["labels"]["cluster"] == str(number) and bool(alert["status"]["inhibitedBy"]) is is_muted
    ]


def _said(alerts: list[Labels]) -> list[str]:
    return sorted(",".join(f"{name}={value}" for name, value in sorted(labels.items())) for labels in alerts)


def acted_on() -> list[tuple[str, str]]:
    """Every shipped alert about which a shipped playbook does more than tell somebody."""
    loaded = load_playbooks(load_settings(None, environ={}), [ROOT / "playbooks"], takes_any_message=True)
    acting = [
        (*playbook.match, *case.match)
        for playbook in loaded.playbook_set.playbooks
        for case in playbook.cases
        if case.ignore is None and any(step.action != "notify.send" for step in case.steps)
    ]
    return [
        (name, severity)
        for name, severity in SHIPPED
        if any(may_match(matchers, {"alertname": name, "severity": severity}) for matchers in acting)
    ]


def may_match(matchers: Iterable[Matcher], labels: Labels) -> bool:
    """Whether an alert with these labels, and others, could match."""
    return all(matcher.matches(labels) for matcher in matchers if matcher.label in labels)


@pytest.mark.parametrize(("name", "severity"), acted_on())
def test_inhibition_when_a_playbook_acts_on_an_alert_then_nothing_can_mute_it(name: str, severity: str) -> None:
    # Muted, its run would wait, and its `resolved` would never be delivered, so that nothing would be taken back.
    alert = {"alertname": name, "severity": severity}
    targets = [[parse_matcher(text) for text in rule["target_matchers"]] for rule in CONFIG["inhibit_rules"]]
    assert [matchers for matchers in targets if may_match(matchers, alert)] == []


def test_inhibition_when_it_names_an_alert_then_a_shipped_rule_makes_it() -> None:
    # A name that is written otherwise mutes nothing, or lets the wrong one through, and nobody sees why.
    matchers = [
        parse_matcher(text)
        for rule in CONFIG["inhibit_rules"]
        for text in (*rule["source_matchers"], *rule["target_matchers"])
    ]
    named = {name for matcher in matchers if matcher.label == "alertname" for name in matcher.value.split("|")}
    assert named - {"GPU.*"} <= {name for name, _ in SHIPPED}


def test_inhibition_when_playbooks_are_read_then_some_act() -> None:
    assert {"GPUHot", "GPUMemoryLeakSlope"} <= {name for name, _ in acted_on()}


OF_A_SITE = {
    "source_matchers": ['alertname = "GPUHot"', 'severity = "critical"'],
    "target_matchers": ['alertname = "GPUHot"', 'severity = "warning"'],
    "equal": ["UUID"],
}

COOL = """
playbook: cool
match: [alertname = GPUHot]
per: [UUID]
hold: 2s
steps: [{action: notify.send, params: {to: [people], title: "{{ labels.UUID }}", body: is hot}}]
escalate: {to: [people]}
"""


@pytest.mark.alertmanager
@pytest.mark.parametrize(
    ("inhibit_rules", "n_ended"),
    [
        pytest.param(CONFIG["inhibit_rules"], 2, id="with the shipped rules both alerts are told to be over"),
        pytest.param([OF_A_SITE], 1, id="where a site mutes the warning nobody is told that it is over"),
    ],
)
def test_run_when_its_warning_is_joined_by_the_worse_word_then_acts_exactly_once(
    inhibit_rules: list[Any], n_ended: int, tmp_path: Path, webhook_receiver: WebhookReceiver
) -> None:
    need_alertmanager("0.25")
    engine = Engine(
        tmp_path / "engine", {"cool.yaml": COOL}, notify_url=f"json://{webhook_receiver.address}/", with_tokens=False
    )
    alertmanager = Alertmanager(tmp_path / "am", alertmanager_config(inhibit_rules, engine.webhook))
    with engine.config.open("a") as config:
        config.write(f'[alertmanager]\nurls = ["{alertmanager.url}"]\nreceiver = "remediator"\n')
    hot = {"alertname": "GPUHot", "hostname": "gpu-07", "UUID": "GPU-1"}
    alertmanager.start()
    try:
        engine.start()
        alertmanager.push(hot | {"severity": "warning"})
        wait_until(lambda: len(engine.runs()) == 1, "the warning has made a run, which holds", 30)
        alertmanager.push(hot | {"severity": "critical"})
        wait_until(lambda: engine.runs()[0]["outcome"] == "succeeded", "the run has acted", 60)
        alertmanager.resolve(hot | {"severity": "warning"})
        # Another alert of the group: when that is delivered, what was to be said of the others was said.
        alertmanager.push(hot | {"severity": "critical", "UUID": "GPU-2"})
        wait_until(lambda: len(engine.runs()) == 2, "the group was delivered again", 30)
        alertmanager.resolve(hot | {"severity": "critical"})
        wait_until(lambda: len(engine.events("episode_ended")) >= n_ended, "what was delivered is over", 30)
        acted = [event for event in engine.events("attempt_started") if event["run_id"] == engine.runs()[0]["run_id"]]
        assert (len(acted), len(engine.events("episode_ended"))) == (1, n_ended)
    finally:
        engine.kill()
        alertmanager.kill()
