"""``check`` and ``schema`` on files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from ruamel.yaml import YAML

from remediator.cli import cli

GOOD = """\
playbook: try
match: [alertname = X]
per: [host]
steps: [{action: noop}]
escalate: {to: [oncall]}
"""
ONCALL = '[notify.oncall]\nurls = ["json://localhost"]\n'
BAD = """\
playbook: bad
match: [alertname == X]
stepz: []
---
playbook: worse
match: [alertname = X]
steps: [{action: docker.explode}]
"""


def check(*arguments: str, **environment: str) -> Result:
    """``remediator check …``."""
    return CliRunner().invoke(cli, ["check", *arguments], env=environment)


@pytest.fixture
def playbooks(site: Path) -> Path:
    """The settings' default folder, with one good playbook."""
    folder = site / "playbooks"
    folder.mkdir()
    (folder / "good.yaml").write_text(GOOD)
    (site / "remediator.toml").write_text(ONCALL)
    return folder


def test_check_when_all_is_right_then_says_so_and_ends_with_0(playbooks: Path) -> None:
    result = check()

    assert (result.exit_code, result.output) == (0, "ok: 1 playbook in 1 file\n")


def test_check_when_something_is_odd_then_advises_and_ends_with_0(playbooks: Path) -> None:
    (playbooks / "good.yaml").write_text(GOOD.replace("escalate: {to: [oncall]}\n", ""))

    result = check()

    place, *text, page, summary = result.stdout.splitlines()
    assert (result.exit_code, summary) == (0, "ok: 1 playbook in 1 file, 1 piece of advice")
    assert place == "playbooks/good.yaml:1:1: [no-escalation]"
    assert text[0].startswith("    playbook try: nobody is told")
    assert page == "    see docs/lint/no-escalation.md"
    assert max(map(len, result.stdout.splitlines())) <= 80
    (advice,) = json.loads(check("--json").stdout)["advice"]
    assert advice.pop("message").startswith("playbook try: nobody is told")
    assert advice == {
        "code": "no-escalation",
        "file": "playbooks/good.yaml",
        "line": 1,
        "column": 1,
        "page": "docs/lint/no-escalation.md",
    }


def test_check_when_strict_then_advice_ends_with_1_and_what_is_allowed_does_not(playbooks: Path) -> None:
    odd = GOOD.replace("escalate: {to: [oncall]}\n", "")
    (playbooks / "good.yaml").write_text(odd)

    assert (check("--strict").exit_code, check("--strict", "--json").exit_code) == (1, 1)

    (playbooks / "good.yaml").write_text(f"# remediator: allow no-escalation a toy\n{odd}")

    assert (check("--strict").exit_code, check("--strict").output) == (0, "ok: 1 playbook in 1 file\n")


def test_check_when_a_comment_allows_without_a_reason_then_it_is_a_problem(playbooks: Path) -> None:
    (playbooks / "good.yaml").write_text(f"{GOOD}# remediator: allow no-escalation\n")

    result = check()

    assert result.exit_code == 1
    assert result.stdout.splitlines()[0].startswith("playbooks/good.yaml:6:1: say why: ")


RULES = "groups: [{name: a, rules: [{alert: Y, expr: 'max by (hostname) (up) == 0'}]}]\n"


def test_check_when_given_rules_then_says_which_playbook_none_of_them_triggers(playbooks: Path, site: Path) -> None:
    (site / "rules.yml").write_text(RULES)

    result = check("--rules", "rules.yml")

    lines = result.stdout.splitlines()
    assert (result.exit_code, lines[0]) == (0, "playbooks/good.yaml:2:9: [no-rule-triggers]")
    assert lines[-1] == "ok: 1 playbook in 1 file, held against 1 alert rule, 1 piece of advice"

    (site / "rules.yml").write_text(RULES.replace("alert: Y", "alert: X"))

    assert check("--rules", "*.yml", "--strict").output == "ok: 1 playbook in 1 file, held against 1 alert rule\n"


def test_check_when_prometheus_adds_a_label_then_its_lack_in_the_rules_is_none(playbooks: Path, site: Path) -> None:
    (site / "rules.yml").write_text(RULES.replace("alert: Y", "alert: X"))
    (playbooks / "good.yaml").write_text(GOOD.replace("X]", "X, site = north]"))

    assert "[no-rule-triggers]" in check("--rules", "rules.yml").stdout
    assert "advice" not in check("--rules", "rules.yml", "--external-label", "site").stdout


def test_check_when_a_rule_file_is_bad_then_it_is_a_problem_with_its_place(playbooks: Path, site: Path) -> None:
    (site / "rules.yml").write_text("groups:\n  - name: a\n    rules:\n      - alert: X\n")

    result = check("--rules", "rules.yml")

    assert (result.exit_code, result.stdout.splitlines()[0]) == (1, "rules.yml:4:9: `expr` is missing")


def test_check_when_a_hold_cannot_ask_then_advises_until_the_settings_name_an_alertmanager(
    playbooks: Path, site: Path
) -> None:
    (playbooks / "good.yaml").write_text(f"{GOOD}hold: 2m\n")

    advised = check()
    (site / "remediator.toml").write_text(f'{ONCALL}[alertmanager]\nurls = ["http://alertmanager:9093"]\n')

    assert advised.exit_code == 0
    assert advised.stdout.splitlines()[0] == "playbooks/good.yaml:6:1: [hold-needs-api]"
    assert check().output == "ok: 1 playbook in 1 file\n"


def test_check_when_files_are_wrong_then_prints_every_problem_with_its_place(playbooks: Path) -> None:
    (playbooks / "bad.yaml").write_text(BAD)

    result = check()

    lines = result.stdout.splitlines()
    assert result.exit_code == 1
    lines = [line for line in lines if "[no-escalation]" not in line and not line.startswith(" ")]
    assert [line.partition(": ")[0] for line in lines[:-1]] == sorted(line.partition(": ")[0] for line in lines[:-1])
    assert {line.split(":")[1] for line in lines[:-1]} >= {"2", "3", "7"}
    assert all(line.startswith("playbooks/bad.yaml:") for line in lines[:-1])
    assert lines[-1] == f"{len(lines) - 1} problems"


def test_check_when_given_paths_then_reads_these_alone(playbooks: Path, site: Path) -> None:
    (playbooks / "bad.yaml").write_text(BAD)

    assert check("playbooks/good.yaml").output == "ok: 1 playbook in 1 file\n"


def test_check_when_a_path_is_not_there_then_it_is_a_problem() -> None:
    result = check("nowhere")

    assert result.exit_code == 1
    assert "nowhere" in result.stdout


def test_check_when_settings_are_wrong_then_prints_all_of_them(site: Path) -> None:
    (site / "remediator.toml").write_text('listen = "everywhere"\nlistn = "x"\n')

    result = check()

    assert (result.exit_code, result.stdout.splitlines()[-1]) == (1, "2 problems")
    assert "remediator.toml:2: listn: is no setting; did you mean listen?" in result.stdout


@pytest.mark.parametrize(
    ("toml", "place"),
    [
        pytest.param('\nlistn = "x"\n', ("remediator.toml", 2, 0), id="a key"),
        pytest.param("\nlisten = \n", ("remediator.toml", 2, 10), id="no TOML"),
        pytest.param("tls_client_ca = 'ca.pem'", ("remediator.toml", 1, 0), id="a contradiction"),
    ],
)
def test_check_when_asked_for_json_then_gives_places_in_the_settings_apart(
    toml: str, place: tuple[str, int, int], site: Path
) -> None:
    (site / "remediator.toml").write_text(toml)

    (problem,) = json.loads(check("--json").stdout)["problems"]

    assert (problem["file"], problem["line"], problem["column"]) == place
    assert "remediator.toml" not in problem["message"]


def test_check_when_a_named_file_is_not_there_then_it_is_a_problem(playbooks: Path, site: Path) -> None:
    (site / "remediator.toml").write_text('[[auth.tokens]]\nname = "am"\nroles = ["deliver"]\nfile = "none"\n')

    result = check()

    assert result.exit_code == 1
    assert "auth.tokens, am: none cannot be read" in result.stdout


def test_check_when_it_is_not_on_the_engines_machine_then_can_leave_out_the_files_of_the_settings(
    playbooks: Path, site: Path
) -> None:
    tokens = '[[auth.tokens]]\nname = "am"\nroles = ["deliver"]\nfile = "token"\n[notify.oncall]\nurls_file = "urls"\n'
    (site / "remediator.toml").write_text(tokens)

    assert (check().exit_code, check("--without-files").output) == (1, "ok: 1 playbook in 1 file\n")


def test_check_when_asked_for_json_then_gives_places_apart(playbooks: Path) -> None:
    (playbooks / "bad.yaml").write_text(BAD)

    result = check("--json")

    told = json.loads(result.stdout)
    assert result.exit_code == 1
    assert told["files"] == ["playbooks/bad.yaml", "playbooks/good.yaml"]
    assert {(problem["file"], problem["line"]) for problem in told["problems"]} >= {("playbooks/bad.yaml", 2)}
    assert all(problem["message"] and problem["column"] for problem in told["problems"])


def test_effective_when_printed_then_is_a_file_that_loads(playbooks: Path, site: Path) -> None:
    printed = check("--effective").stdout
    (site / "again.yaml").write_text(printed)

    documents = list(YAML(typ="safe", pure=True).load_all(printed))
    assert [document["guard"]["cooldown"] for document in documents] == ["0s"]
    assert check("again.yaml").output == "ok: 1 playbook in 1 file\n"


def test_effective_when_asked_for_json_then_is_text_by_name(playbooks: Path) -> None:
    told = json.loads(check("--effective", "--json").stdout)

    assert list(told["effective"]) == told["playbooks"] == ["try"]


@pytest.mark.parametrize("what", ["playbook", "policy"])
def test_schema_when_printed_then_is_a_schema_that_forbids_other_keys(what: str) -> None:
    schema = json.loads(CliRunner().invoke(cli, ["schema", what]).stdout)

    assert schema["additionalProperties"] is False
    assert what in schema["properties"]


def test_check_when_there_is_no_playbook_then_warns_and_ends_with_0(playbooks: Path, site: Path) -> None:
    (playbooks / "good.yaml").unlink()
    (site / "other").mkdir()

    result = check()

    assert (result.exit_code, result.stdout) == (0, "ok: 0 playbooks in 0 files\n")
    assert result.stderr == "remediator: no playbooks found in playbooks\n"
    assert check("other").stderr == "remediator: no playbooks found in other\n"


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["check"], id="check"),
        pytest.param(["plan", "alertname=X"], id="plan"),
        pytest.param(["serve"], id="serve"),
        pytest.param(["audit", "list"], id="audit"),
        pytest.param(["test", "--record", "0b8e06d2"], id="test --record"),
        pytest.param(["doctor"], id="doctor"),
    ],
)
def test_command_when_the_folder_has_no_settings_file_then_says_once_that_defaults_are_used(
    arguments: list[str], playbooks: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMEDIATOR_LISTEN", "127.0.0.1:1")  # where no engine is for doctor to ask
    said = "remediator: no remediator.toml here: defaults are used; --config FILE names another\n"
    (playbooks / "good.yaml").write_text("playbook: 1\n")  # so that serve ends
    (site / "remediator.toml").rename(site / "named.toml")

    assert CliRunner().invoke(cli, arguments).stderr.count(said) == 1
    assert said not in CliRunner().invoke(cli, [*arguments, "--config", "named.toml"]).stderr
