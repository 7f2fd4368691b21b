"""The examples for CI systems and pre-commit: what reads them finds nothing wrong, and what they run is real."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from check_jsonschema import main as check_jsonschema
from click.testing import CliRunner, Result
from ruamel.yaml import YAML

from pages import blocks_of, parse
from remediator.cli import cli

ROOT = Path(__file__).resolve().parents[2]
CI = ROOT / "deploy" / "ci"
GITHUB = CI / "github-actions.yml"
GITLAB = CI / "gitlab-ci.yml"
MATCHERS = CI / "github-problems.json"
HOOKS = ROOT / ".pre-commit-hooks.yaml"
HOWTO = ROOT / "docs" / "howto" / "check-playbooks-in-ci.md"


def read(file: Path) -> Any:
    """A YAML file, as YAML 1.2 has it: ``on`` is text."""
    return YAML(typ="safe", pure=True).load(file.read_text("utf-8"))


def scripts() -> Iterator[tuple[str, str]]:
    """Every script of an example, with the example's name."""
    for step in read(GITHUB)["jobs"]["playbooks"]["steps"]:
        if "run" in step:
            yield GITHUB.name, step["run"]
    job = read(GITLAB)["playbooks"]
    for line in (*job["before_script"], *job["script"]):
        yield GITLAB.name, line


def commands() -> Iterator[tuple[str, str]]:
    """Every call of our own command in an example, without what a shell does with its exit code."""
    for name, script in scripts():
        for line in script.splitlines():
            if call := re.match(r" *remediator (.+?)(?: \|\|.*)?$", line):
                yield name, call[1]
    for hook in read(HOOKS):
        yield HOOKS.name, hook["entry"].removeprefix("remediator ")


CALLS = [pytest.param(call, id=f"{name}: {call}") for name, call in commands()]


@pytest.mark.parametrize(
    ("file", "options"),
    [
        pytest.param(GITHUB, ["vendor.github-workflows"], id="GitHub Actions"),
        pytest.param(GITLAB, ["vendor.gitlab-ci", "--data-transform", "gitlab-ci"], id="GitLab CI"),
    ],
)
def test_example_when_checked_against_its_vendors_schema_then_is_valid(file: Path, options: list[str]) -> None:
    done = CliRunner().invoke(check_jsonschema, ["--builtin-schema", *options, str(file)])
    assert (done.exit_code, done.output) == (0, "ok -- validation done\n")


@pytest.mark.parametrize("call", CALLS)
def test_command_when_an_example_runs_it_then_it_parses(call: str) -> None:
    parse(shlex.split(call))


def test_examples_when_read_then_both_check_and_test_and_keep_the_report() -> None:
    calls = list(commands())
    assert [(name, call.split()[0]) for name, call in calls] == [
        *((GITHUB.name, word) for word in ("check", "test")),
        *((GITLAB.name, word) for word in ("check", "test")),
        *((HOOKS.name, word) for word in ("check", "test")),
    ]
    # The same in both, and in the page that explains it.
    ours = [call for name, call in calls if name == GITHUB.name]
    assert [call for name, call in calls if name == GITLAB.name] == ours
    page = [line.removeprefix("remediator ") for line in HOWTO.read_text("utf-8").splitlines() if "remediator " in line]
    assert [line for line in page if line.startswith(("check -", "test -"))] == ours
    (report,) = re.findall(r"--junit (\S+)", ours[1])
    uploads = [
        step["with"]["path"] for step in read(GITHUB)["jobs"]["playbooks"]["steps"] if "path" in step.get("with", {})
    ]
    assert (uploads[-1], read(GITLAB)["playbooks"]["artifacts"]["reports"]["junit"]) == (report, report)


def test_examples_when_read_then_no_variable_of_theirs_is_taken_for_a_setting() -> None:
    texts = [GITHUB.read_text("utf-8"), GITLAB.read_text("utf-8")]
    assert [re.findall(r"REMEDIATOR_\w+", text) for text in texts] == [[], []]
    assert all("ENGINE_VERSION" in text for text in texts)


def test_examples_when_they_name_a_file_of_the_engine_then_it_is_there() -> None:
    named = {path for _, script in scripts() for path in re.findall(r"\.engine/([\w./-]+)", script)}
    assert named == {"constraints.txt", "deploy/ci/github-problems.json"}
    assert [path for path in named if not (ROOT / path).is_file()] == []


@pytest.mark.parametrize(
    ("code", "says"),
    [
        pytest.param(0, "", id="all is right"),
        pytest.param(1, "::error::A scenario failed, or too little of the playbooks is tested.\n", id="a failure"),
        pytest.param(2, "::error::The tests cannot be played.\n", id="a file that is none"),
    ],
)
def test_github_step_when_the_tests_end_with_a_code_then_ends_with_it_and_says_why(code: int, says: str) -> None:
    (script,) = [script for _, script in scripts() if "case " in script]
    # As GitHub runs a step that names no shell.
    shell = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c"]
    done = subprocess.run([*shell, f"remediator() {{ return {code}; }}\n{script}"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (code, says)


# -- problem matchers --------------------------------------------------------------------------------------------------

SITE = {
    "remediator.toml": '[notify.oncall]\nurls = ["json://localhost"]\n',
    "playbooks/bad.yaml": "playbook: bad\nmatch: [alertname == X]\nsteps: [{action: noop}]\n",
    "playbooks/odd.yaml": "playbook: odd\nmatch: [alertname = Y]\nsteps: [{action: noop}]\n",
}


def matched(owner: str, said: str) -> list[tuple[str, ...]]:
    """Where and what a problem matcher finds in a program's output: file, line, column, message, code."""
    (patterns,) = [
        each["pattern"] for each in json.loads(MATCHERS.read_text("utf-8"))["problemMatcher"] if each["owner"] == owner
    ]
    lines = said.splitlines()
    problems = []
    for n in range(len(lines)):
        problem = {}
        for pattern, line in zip(patterns, lines[n:], strict=False):
            found = re.search(pattern["regexp"], line)
            problem |= {} if found is None else {key: found[at] for key, at in pattern.items() if key != "regexp"}
            if found is None:
                break
        else:
            problems.append(tuple(problem.get(key, "") for key in ("file", "line", "column", "message", "code")))
    return problems


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with settings, a playbook that does not load, and one that is odd."""
    for name, text in SITE.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_problem_matchers_when_a_check_finds_something_then_show_it_at_its_line(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (env,) = [step["env"] for step in read(GITHUB)["jobs"]["playbooks"]["steps"] if step.get("name") == "Check"]
    for name, value in env.items():
        monkeypatch.setenv(name, value)

    said = CliRunner().invoke(cli, ["check", "--without-files", "--strict"]).output

    ((file, line, column, message, code),) = matched("remediator-problems", said)
    assert (file, line, column, code) == ("playbooks/bad.yaml", "2", "9", "")
    assert message.endswith("for equality write a single =")
    ((file, line, column, message, code),) = matched("remediator-advice", said)
    assert (file, line, column, code) == ("playbooks/odd.yaml", "1", "1", "no-escalation")
    assert message.endswith("or set escalate_to in the settings")


# -- pre-commit --------------------------------------------------------------------------------------------------------


def run_hook(
    name: str, changed: list[str], *, with_files: bool | None = None, args: Sequence[str] = ()
) -> Result | None:
    """What pre-commit does with a hook for these changed files, in the folder; None: it skips the hook.

    Source: pre-commit's documentation, "hooks": types by the file's ending, then entry, args, and the files if the hook
    says so.
    """
    (hook,) = [hook for hook in read(HOOKS) if hook["id"] == name]
    files = [file for file in changed if Path(file).suffix.lstrip(".").replace("yml", "yaml") in hook["types_or"]]
    if not files:
        return None
    passed = files if (hook["pass_filenames"] if with_files is None else with_files) else []
    program, *words = shlex.split(hook["entry"])
    assert program == "remediator"
    return CliRunner().invoke(cli, [*words, *args, *passed])


GOOD = """\
playbook: two-stops
match: [alertname = X]
per: [host]
steps:
  - {action: docker.stop, params: {container: a}}
  - {action: docker.stop, params: {container: b}}
escalate: {to: [oncall]}
"""
POLICY = "policy: site\nmax_disruptive_acts: {count: 1, per: 1h}\n"


def test_check_hook_when_a_file_makes_another_one_wrong_then_finds_it_whichever_was_changed(site: Path) -> None:
    for file in (site / "playbooks").iterdir():
        file.unlink()
    (site / "playbooks" / "two.yaml").write_text(GOOD)
    (site / "playbooks" / "site.policy.yaml").write_text(POLICY)

    for changed in ("playbooks/two.yaml", "playbooks/site.policy.yaml"):
        done = run_hook("remediator-check", [changed])
        assert done is not None
        assert (done.exit_code, "more disruptive steps" in done.output) == (1, True)
        # Why the hook is given no files: each of the two is right alone.
        alone = run_hook("remediator-check", [changed], with_files=True)
        assert alone is not None
        assert alone.exit_code == 0


def test_check_hook_when_two_files_hold_one_name_then_finds_it(site: Path) -> None:
    (site / "playbooks" / "bad.yaml").write_text(SITE["playbooks/odd.yaml"])

    done = run_hook("remediator-check", ["playbooks/bad.yaml"])

    assert done is not None
    assert (done.exit_code, "stands already in" in done.output) == (1, True)


def test_check_hook_when_it_is_to_be_strict_then_fails_on_advice(site: Path) -> None:
    (site / "playbooks" / "bad.yaml").unlink()

    mild, strict = (run_hook("remediator-check", ["remediator.toml"], args=args) for args in ((), ("--strict",)))

    assert mild is not None and strict is not None  # noqa: PT018
    assert (mild.exit_code, strict.exit_code) == (0, 1)


TESTED = """\
playbook: tell
match: [alertname = X]
per: [host]
steps: [{action: notify.send, params: {to: [oncall], title: "it is hot"}}]
escalate: {to: [oncall]}
"""
TEST = """\
playbooks: [tell.yaml]
settings: {notify: {oncall: {urls: [json://localhost]}}}
alerts: {hot: {labels: {alertname: X, hostname: a}}}
scenarios:
  - name: tells at once
    story: [{at: 0s, fires: hot}]
    expect:
      - {at: 0m, tells: oncall, says: is hot}
      - {at: 0m, ends: succeeded}
"""


def test_test_hook_when_a_playbook_was_changed_then_plays_its_test(site: Path) -> None:
    for file in (site / "playbooks").iterdir():
        file.unlink()
    playbook = site / "playbooks" / "tell.yaml"
    playbook.write_text(TESTED)
    (site / "playbooks" / "tell.test.yaml").write_text(TEST)
    before = run_hook("remediator-test", ["playbooks/tell.yaml"], args=["--jobs", "1"])
    playbook.write_text(TESTED.replace("it is hot", "all is well"))

    after = run_hook("remediator-test", ["playbooks/tell.yaml"], args=["--jobs", "1"])

    assert before is not None and after is not None  # noqa: PT018
    assert (before.exit_code, after.exit_code) == (0, 1), before.output + after.output


@pytest.mark.parametrize("name", ["remediator-check", "remediator-test"])
def test_hook_when_nothing_of_ours_was_changed_then_is_skipped(name: str) -> None:
    assert run_hook(name, ["README.md", "main.py"]) is None


def test_hooks_when_read_then_have_what_pre_commit_needs() -> None:
    hooks = read(HOOKS)
    assert [hook["id"] for hook in hooks] == ["remediator-check", "remediator-test"]
    for hook in hooks:
        assert {"id", "name", "entry", "language"} <= {*hook}
        assert (hook["language"], hook["pass_filenames"]) == ("python", False)


def test_howto_when_it_shows_hooks_then_they_are_ours() -> None:
    shown = [block.text for block in blocks_of(HOWTO.read_text("utf-8")) if block.language == "yaml"]
    assert {name for text in shown for name in re.findall(r"- id: (\S+)", text)} == {hook["id"] for hook in read(HOOKS)}
