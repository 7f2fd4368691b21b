"""Loading playbook tests: what they become, what is refused, and where."""

from __future__ import annotations

import json
import os
import random
import re
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from remediator.actions import REGISTRY
from remediator.core.action import looking_half
from remediator.core.scenario import (
    BEGINS,
    Deed,
    Expectation,
    Fails,
    Kind,
    Nothing,
    Person,
    Posts,
    Restarts,
    Says,
    Scenario,
    Sees,
    TestFile,
    Word,
    World,
)
from remediator.errors import PlaybookError
from remediator.loading.document import MAX_BYTES, Document, read_documents
from remediator.loading.scenario_format import EXPECTED, VERBS
from remediator.loading.scenarios import LoadedTests, load_tests

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests/data"
ERRORS = YAML(typ="safe", pure=True).load((DATA / "test_file_errors.yaml").read_text("utf-8"))
ACTIONS = {name: looking_half(action) for name, action in REGISTRY.items()}
MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)

HEAD = "playbooks: [p.yaml]\nalerts: {leak: {labels: {alertname: Leak}}, hot: {labels: {alertname: Hot}}}\n"

Load = Callable[[str], LoadedTests]


@pytest.fixture
def load_text(tmp_path: Path) -> Load:
    (tmp_path / "p.yaml").touch()
    (tmp_path / "recorded.json").write_text('{"version": "4", "alerts": []}')
    (tmp_path / "other.json").write_text('{"a": 1}')

    def load_it(text: str) -> LoadedTests:
        file = tmp_path / "x.test.yaml"
        file.write_text(text, "utf-8")
        return load_tests([file], actions=ACTIONS)

    return load_it


def one_file(loaded: LoadedTests) -> TestFile:
    assert [problem.located() for problem in loaded.problems] == []
    (file,) = loaded.files
    return file


def scenario_of(load_text: Load, story: str, expect: str = "[]", head: str = HEAD) -> Scenario:
    (scenario,) = one_file(load_text(text_of(story, expect, head))).scenarios
    return scenario


def text_of(story: str, expect: str = "[]", head: str = HEAD) -> str:
    return f"{head}scenarios:\n  - name: a\n    story: {story}\n    expect: {expect}\n"


def says(loaded: LoadedTests) -> list[str]:
    return [problem.message for problem in loaded.problems]


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in ERRORS])
def test_load_when_a_test_file_is_wrong_then_says_where_and_what_to_write(
    row: Mapping[str, Any], load_text: Load
) -> None:
    loaded = load_text(row["text"])
    assert [
        {"at": f"{problem.line}:{problem.column}", "error": type(problem).__name__, "says": problem.message}
        for problem in loaded.problems
    ] == row["problems"]
    assert loaded.files == ()  # what is wrong is not played


def test_load_when_a_test_file_has_every_key_then_each_is_read() -> None:
    file = one_file(load_tests([DATA / "playtest/whole.test.yaml"], actions=ACTIONS))
    assert file.paths == (DATA / "playtest/restart-container-on-leak.yaml", DATA / "playtest/../playtest")
    assert file.begins == datetime(2026, 3, 29, 1, 59, 30, 500_000, UTC)
    assert file.settings["docker"] == {"hosts": {"gpu-09": {"url": "unix:///var/run/docker.sock"}}}
    assert file.group["external_url"] == "http://alertmanager:9093"
    assert file.alerts["leak"].labels == {"alertname": "Leak", "err_code": "79", "note": "{{ labels.x }}"}
    assert file.alerts["leak"].generator_url == "http://prometheus:9090/graph"
    container = {"status": "running", "labels": {"tier": "1"}, "stop_timeout": "90s", "cpus": "1.5"}
    docker = {"gpu-07": {"trainer-0": container, "trainer-1": {}}, "gpu-08": "away"}
    assert file.world == World(docker=docker, alertmanager="back")
    (scenario,) = file.scenarios
    assert scenario.world.docker == {"gpu-07": {"trainer-1": "gone"}, "gpu-08": "back", "gpu-09": "away"}
    assert scenario.world.alertmanager == {"leak": "silenced"}
    assert scenario.never == ("docker.stop", "docker.signal")
    whats = [event.what for event in scenario.story]
    assert whats[:1] == [Says(word=Word.FIRES, alerts=("leak", "hot"), copies=2, truncated=12)]
    assert scenario.story[0].sees == (
        Sees(name="ratio", values=(0.5,)),
        Sees(name="age", values=(1.0, -25.0)),
        Sees(name="up", values=Nothing.NOTHING),
        Sees(name="fleet gpus", values=(64.0,)),
    )
    assert scenario.story[1].what is None
    assert scenario.story[1].sees == (
        Sees(name="ratio", values=Nothing.AWAY),
        Sees(name="temp_c", values=(88.0,), alert="hot"),
        Sees(name="ratio", values=Nothing.NOTHING, alert="hot"),
    )
    assert whats[2:7] == [
        Says(word=Word.REPEATS, alerts=("leak",), late=30 * SECOND),
        Fails(action="docker.restart", how="timeout_after_effect", times=3),
        Fails(action="notify.send", how="permanent"),
        Restarts(down=5 * MINUTE),
        Restarts(during="docker.restart"),
    ]
    assert whats[7:16] == [
        Person(deed=Deed.APPROVES, name="alice", reason="go ahead", playbook="x", alert="leak"),
        Person(deed=Deed.DENIES, name="bob"),
        Person(deed=Deed.PAUSES, name="alice"),
        Person(deed=Deed.RESUMES, name="alice", reason="over"),
        Person(deed=Deed.CANCELS, name="alice"),
        Person(deed=Deed.SETTLES, name="alice", has_happened=True),
        Person(deed=Deed.SETTLES, name="alice", has_happened=False),
        Person(deed=Deed.UNDOES, name="alice"),
        Person(deed=Deed.RESETS, name="alice", breaker="site"),
    ]
    away = {"gpu-07": {"trainer-0": "replaced", "trainer-2": {"status": "exited"}}, "gpu-08": "away"}
    assert whats[16] == World(docker=away)
    assert whats[18:] == [
        Posts(file="recorded.json", body=(DATA / "playtest/recorded.json").read_bytes()),
        Says(word=Word.RESOLVES, alerts=("leak", "hot"), late=MINUTE),
    ]
    first = scenario.expect[0]
    assert (first.at, first.within, first.kind, first.value) == (timedelta(0), MINUTE, Kind.DOES, "docker.restart")
    assert first.details == {
        "target": "docker:gpu-07/trainer-0",
        "params": {"container": "trainer-0", "stop_timeout": "5m"},
        "attempts": 2,
        "outcome": "unknown",
    }
    assert [(one.kind.value, one.value, dict(one.details)) for one in scenario.expect[1:]] == [
        ("undoes", "docker.limit", {"target": "docker:gpu-07/trainer-0", "outcome": "failed"}),
        ("rung", "2", {"playbook": "x", "case": "y", "alert": "leak"}),
        ("waits", "cooldown", {}),
        ("refuses", "protected", {"says": "prod"}),
        ("asks", "oncall", {}),
        ("asks", "boss", {}),
        ("tells", "oncall", {"about": "escalate", "says": "FAILED"}),
        ("ends", "refused", {}),
        ("refuses", "max_runs", {"case": "z"}),  # an end refused, with its reason, is just that
        ("ends", "succeeded", {"reason": "none"}),
    ]


def test_load_when_the_format_has_a_verb_then_the_whole_file_uses_it() -> None:
    text = (DATA / "playtest/whole.test.yaml").read_text("utf-8")
    keys = {*VERBS, *EXPECTED, *(key for of in (*VERBS.values(), *EXPECTED.values()) for key in of)}
    assert [key for key in sorted(keys) if not re.search(rf"[{{ ]{key}: ", text)] == []


def test_load_when_it_is_the_specifications_example_then_is_read_with_its_lines() -> None:
    file = one_file(load_tests([DATA / "playtest/restart-container-on-leak.test.yaml"], actions=ACTIONS))
    (scenario,) = file.scenarios
    assert (file.begins, scenario.line, scenario.never) == (BEGINS, 7, ("docker.stop",))
    assert [(event.line, event.at) for event in scenario.story] == [
        (9, timedelta(0)),
        (10, 13 * MINUTE),
        (11, 13 * MINUTE),
        (12, 15 * MINUTE),
        (13, 60 * MINUTE),
        (14, 120 * MINUTE),
    ]
    assert scenario.expect[1] == Expectation(
        at=13 * MINUTE,
        within=MINUTE,
        kind=Kind.DOES,
        value="docker.restart",
        details={"target": "docker:gpu-07/trainer-0", "attempts": 2},
        line=18,
    )


# -- times -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "at", "within"),
    [
        ("0", timedelta(0), MINUTE),
        ("0m", timedelta(0), MINUTE),
        ("0s", timedelta(0), SECOND),
        ("21m", 21 * MINUTE, MINUTE),
        ("21m0s", 21 * MINUTE, SECOND),
        ("90s", 90 * SECOND, SECOND),
        ("2h", 120 * MINUTE, MINUTE),
        ("366d", timedelta(days=366), MINUTE),
        ("3000ms", 3 * SECOND, SECOND),
    ],
)
def test_expectation_when_its_time_has_seconds_then_that_second_is_meant_else_the_minute(
    written: str, at: timedelta, within: timedelta, load_text: Load
) -> None:
    (expected,) = scenario_of(load_text, "[{at: 0s, fires: leak}]", f"[{{at: {written}, ends: failed}}]").expect
    assert (expected.at, expected.within) == (at, within)


def test_story_when_two_entries_are_at_one_time_then_stay_in_their_order(load_text: Load) -> None:
    story = "[{at: 60s, fires: leak}, {at: 1m, resolves: leak}, {at: 1m, fires: leak}]"
    assert [event.what.word for event in scenario_of(load_text, story).story if isinstance(event.what, Says)] == [
        Word.FIRES,
        Word.RESOLVES,
        Word.FIRES,
    ]


# -- what alerts can do ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("story", "problem"),
    [
        ("[{at: 0s, fires: leak}, {at: 5m, resolves: leak}, {at: 6m, repeats: leak, late: 2m}]", ""),
        ("[{at: 0s, fires: leak}, {at: 5m, resolves: leak}, {at: 6m, repeats: leak, late: 1m}]", "does not fire 1m"),
        ("[{at: 0s, fires: leak}, {at: 5m, resolves: leak}, {at: 6m, repeats: leak}]", "does not fire at this time"),
        ("[{at: 0s, fires: leak, late: 1h}, {at: 0s, repeats: leak, late: 30m}]", ""),
        ("[{at: 0s, delivers: hot.json}, {at: 1m, repeats: hot}, {at: 2m, resolves: hot}]", ""),
        ("[{at: 0s, delivers: hot.json}, {at: 1m, repeats: leak}]", "leak does not fire"),
        ("[{at: 0s, fires: leak}, {at: 1m, changes: {alertmanager: {leak: gone}}}, {at: 2m, fires: leak}]", ""),
        (
            "[{at: 0s, fires: leak}, {at: 1m, changes: {alertmanager: {leak: silenced}}}, {at: 2m, fires: leak}]",
            "fires",
        ),
    ],
)
def test_story_when_an_alert_is_told_of_then_is_held_against_what_was_told_before(
    story: str, problem: str, load_text: Load, tmp_path: Path
) -> None:
    (tmp_path / "hot.json").write_text(
        '{"version": "4", "alerts": [{"status": "firing", "labels": {"alertname": "Hot"}}]}'
    )
    head = 'settings: {alertmanager: {urls: ["http://am:9093"]}}\n' + HEAD
    found = says(load_text(text_of(story, head=head)))
    assert len(found) == bool(problem)
    assert problem in "".join(found)


def test_story_when_the_engine_is_down_then_the_world_goes_on(load_text: Load) -> None:
    head = HEAD + "world: {docker: {h: {c: {}}}}\n"
    down = "{at: 0s, restarts: engine, down: 5m}"
    assert scenario_of(load_text, f"[{down}, {{at: 1m, changes: {{docker: {{h: {{c: gone}}}}}}}}]", head=head).story
    assert says(load_text(text_of(f"[{down}, {{at: 1m, pauses: alice}}]"))) == ["the engine is down until 5m (line 5)"]


def test_world_when_a_scenario_adds_to_it_then_another_does_not_have_that(load_text: Load) -> None:
    makes = "{at: 0s, changes: {docker: {h: {new: {}}}}}"
    ends = "{at: 1s, changes: {docker: {h: {new: gone}}}}"
    head = HEAD + "world: {docker: {h: {c: {}}}}\n"
    assert says(load_text(text_of(f"[{makes}, {ends}]", head=head))) == []
    both = text_of(f"[{makes}]", head=head) + f"  - name: b\n    story: [{ends}]\n    expect: []\n"
    assert says(load_text(both)) == ["there is no container 'new' on h in this world; there are: c"]


def test_params_when_expected_then_are_as_the_audit_has_them(load_text: Load) -> None:
    expect = (
        "[{at: 0s, does: docker.signal, params: {signal: usr1}}, {at: 0s, does: docker.limit, params: {cpus: 1.5}}]"
    )
    scenario = scenario_of(load_text, "[{at: 0s, fires: leak}]", expect)
    assert [one.details["params"] for one in scenario.expect] == [{"signal": "SIGUSR1"}, {"cpus": "1.5"}]


def test_names_when_a_scenario_is_without_one_then_two_of_them_are_not_of_one_name(load_text: Load) -> None:
    text = HEAD + "scenarios:\n" + 2 * "  - story: [{at: 0s, fires: leak}]\n    expect: []\n"
    assert says(load_text(text)) == ["`name` is missing", "`name` is missing"]


# -- files -------------------------------------------------------------------------------------------------------------


def test_load_when_given_a_folder_then_reads_the_tests_below_it_and_nothing_hidden(tmp_path: Path) -> None:
    text = text_of("[{at: 0s, fires: leak}]")
    for name in ("b/deep/x.test.yml", "a.test.yaml", "b/y.test.yaml", ".hidden/z.test.yaml", "b/.z.test.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for name in ("p.yaml", "b/p.yaml", "b/deep/p.yaml"):
        (tmp_path / name).touch()
    (tmp_path / "b/round").symlink_to(tmp_path)
    (tmp_path / "same.test.yaml").symlink_to("a.test.yaml")
    loaded = load_tests([tmp_path, tmp_path / "a.test.yaml"], actions=ACTIONS)
    names = ["a.test.yaml", "b/y.test.yaml", "b/deep/x.test.yml"]
    assert [str(path.relative_to(tmp_path)) for path in loaded.paths] == names
    assert [file.file for file in loaded.files] == [str(tmp_path / name) for name in names]
    assert loaded.problems == ()


def test_load_when_a_file_is_named_then_is_read_whatever_it_is_called(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").touch()
    (tmp_path / "cases.txt").write_text(text_of("[{at: 0s, fires: leak}]"))
    assert one_file(load_tests([tmp_path / "cases.txt"], actions=ACTIONS)).paths == (tmp_path / "p.yaml",)


def test_load_when_a_path_is_none_then_says_so_and_reads_the_others(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.test.yaml").write_text(text_of("[{at: 0s, fires: leak}]"))
    os.mkfifo(tmp_path / "pipe")
    paths = [tmp_path / name for name in ("none.test.yaml", "empty", "pipe", "a.test.yaml")]
    loaded = load_tests(paths, actions=ACTIONS)
    assert {problem.located().removeprefix(f"{tmp_path}/") for problem in loaded.problems} == {
        "none.test.yaml:1:1: cannot be read: No such file or directory",
        "empty:1:1: holds no *.test.yaml, nor does a folder below",
        "pipe:1:1: is a pipe or a device, not a file",
    }
    assert len(loaded.files) == 1


def test_load_when_several_files_are_wrong_then_tells_all_of_each_in_order(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").touch()
    for name in ("b", "a"):
        (tmp_path / f"{name}.test.yaml").write_text(text_of("[{at: 1, fires: leek}, {at: 0s, fires: leek}]"))
    places = [
        f"{Path(problem.file).name}:{problem.line}:{problem.column}"
        for problem in load_tests([tmp_path], actions=ACTIONS).problems
    ]
    assert places == ["a.test.yaml:5:14", "a.test.yaml:5:44", "b.test.yaml:5:14", "b.test.yaml:5:44"]


@pytest.mark.parametrize("name", [r'"\0"', "/dev/zero", "../" * 2000 + "x", '"."'])
def test_recorded_body_when_its_path_is_no_file_then_is_a_problem(name: str, load_text: Load) -> None:
    (problem,) = load_text(text_of(f"[{{at: 0s, delivers: {name}}}]")).problems
    assert re.search("cannot be read|not a file", problem.message)


def test_recorded_body_when_larger_than_any_engine_takes_then_is_a_problem(load_text: Load, tmp_path: Path) -> None:
    with (tmp_path / "large.json").open("wb") as stream:
        stream.truncate(16 * 2**20 + 1)
    text = text_of("[{at: 0s, delivers: large.json}]")
    assert says(load_text(text)) == ["large.json is larger than 16 MiB, which no engine takes"]


# -- what is there to break it -----------------------------------------------------------------------------------------

NAMES = [f"n{n}" for n in range(4_000)]
HOSTILE = {
    "ten megabytes": "a" * 10_000_000,
    "nested without end": "[" * 500_000,
    "keys that nobody knows": HEAD + "".join(f"{name}: 1\n" for name in NAMES),
    "as many alerts as names that are none": text_of(
        "[" + ", ".join(f"{{at: 0s, fires: {name}x}}" for name in NAMES) + "]",
        head="playbooks: [p.yaml]\nalerts:\n" + "".join(f"  {name}: {{labels: {{a: {name}}}}}\n" for name in NAMES),
    ),
    "playbooks that are not there": f"playbooks: [{', '.join(NAMES)}]\nscenarios: []\n",
    "one alert named a thousand times": text_of(f"[{{at: 0s, fires: [{'leak, ' * 8_000}]}}]"),
    "one large body, delivered again and again": text_of("[" + "{at: 0s, delivers: large.json}, " * 3_000 + "]"),
}


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in HOSTILE.items()])
def test_load_when_a_file_is_hostile_then_is_read_in_seconds(text: str, load_text: Load, tmp_path: Path) -> None:
    padding = "x" * 4 * 2**20
    (tmp_path / "large.json").write_text(json.dumps({"version": "4", "alerts": [], "padding": padding}))
    loaded: list[LoadedTests] = []
    thread = threading.Thread(target=lambda: loaded.append(load_text(text)), daemon=True)
    thread.start()
    thread.join(60)  # a second on a quiet machine; minutes, where something grows with the square
    assert loaded, "still reading"


KEYS = st.sampled_from(
    [
        *("playbooks", "policies", "settings", "begins", "group", "alerts", "world", "scenarios", "name", "story"),
        *("expect", "never", "at", "sees", "docker", "alertmanager", "labels", "leak", *VERBS, *EXPECTED),
        *(key for of in (*VERBS.values(), *EXPECTED.values()) for key in of),
    ]
)
VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.sampled_from(["0s", "1m", "leak", "engine", ""])
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
ENTRIES = st.lists(st.dictionaries(KEYS, VALUES, max_size=4), max_size=3)
SCENARIOS = st.lists(
    st.fixed_dictionaries({"story": ENTRIES, "expect": ENTRIES}, optional={"world": VALUES}), max_size=2
)


@given(st.dictionaries(KEYS, VALUES, max_size=4), SCENARIOS | VALUES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=80)
def test_load_when_anything_stands_anywhere_then_nothing_is_raised(
    tmp_path: Path, top: dict[str, Any], scenarios: object
) -> None:
    (tmp_path / "x.test.yaml").write_text(json.dumps({**top, "scenarios": scenarios}))
    loaded = load_tests([tmp_path], actions=ACTIONS)
    assert all(isinstance(problem, PlaybookError) and problem.line >= 1 for problem in loaded.problems)
    assert loaded.files or loaded.problems


@given(st.binary(max_size=200))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_load_when_a_test_file_holds_any_bytes_then_nothing_is_raised(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.test.yaml").write_bytes(data)
    assert load_tests([tmp_path], actions=ACTIONS).problems


# -- two readers of YAML -----------------------------------------------------------------------------------------------


def nodes(documents: list[Document]) -> list[list[object]]:
    """Everything that is read of documents. Where a value is missing, it has no place of its own."""
    return [
        [
            document.sha256,
            *(
                (path, node.value, node.text, node.line, node.column, node.start, node.end, node.is_plain)
                if not isinstance(node.value, dict | list | None)
                else (path, type(node.value), node.line, node.column)
                for path, node in document.root.walk()
            ),
        ]
        for document in documents
    ]


def assert_read_alike(text: str) -> bool:
    """Both readers understand a text alike, where both take it; whether they do."""
    quick, problems = read_documents("x", text.encode(), is_quick=True)
    slow, problems_of_slow = read_documents("x", text.encode())
    if problems or problems_of_slow:
        return False
    maps = [n for n, document in enumerate(slow) if isinstance(document.root.value, dict | list)]
    assert [nodes(quick)[n] for n in maps] == [nodes(slow)[n] for n in maps]
    return bool(maps)


FILES = [
    path
    for folder in ("playbooks", "tests/data", "deploy")
    for path in sorted((ROOT / folder).rglob("*.y*ml"))
    if path.stat().st_size < min(MAX_BYTES, 30_000)
]


def test_yaml_when_it_is_one_of_this_projects_files_then_both_readers_understand_it_alike() -> None:
    assert sum(assert_read_alike(path.read_text("utf-8")) for path in FILES) > len(FILES) // 2


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("%YAML 1.1\n---\na: 1\n", id="a directive"),
        pytest.param("a:\tb\n", id="a tab"),
        pytest.param("a: b\x85c: d\n", id="an end of line of YAML 1.1 alone"),
        pytest.param("a: b\u2028c: d\n", id="another"),
        pytest.param("- {&at: 0s}\n", id="an anchor with a colon"),
    ],
)
def test_yaml_when_two_readers_could_read_it_otherwise_then_one_alone_reads_it(text: str) -> None:
    quick, problems = read_documents("x", text.encode(), is_quick=True)
    slow, problems_of_slow = read_documents("x", text.encode())
    assert nodes(quick) == nodes(slow)
    assert [problem.located() for problem in problems] == [problem.located() for problem in problems_of_slow]


PIECES = [
    *"{}[]:,#-?|>'\"&*!%@`\n \\~=",
    *(": ", " #", "- ", "\n  ", "|\n", ">-\n", "''", '""', "\r\n", "é", "\U0001f600", "---\n", "...\n", "? ", "\\x41"),
    *("\\/", "a:b", "{a:1}", "'a':b", '"a":1', ",]", "!!str ", "<<: ", "\\\n", "|2\n", "|+\n", ">+\n", "\n\n", "# c\n"),
]


@pytest.mark.parametrize("seed", range(4))
def test_yaml_when_it_is_broken_somewhere_then_both_readers_understand_what_they_take_alike(seed: int) -> None:
    chance = random.Random(seed)
    texts = [path.read_text("utf-8").splitlines(keepends=True) for path in FILES if "playtest" in str(path)]
    n_alike = 0
    for _ in range(400):
        lines = chance.choice(texts)
        start = chance.randrange(len(lines))
        text = "".join(lines[start : start + chance.randint(1, 8)])
        for _ in range(chance.randint(1, 3)):
            place = chance.randrange(len(text) + 1)
            text = text[:place] + chance.choice(PIECES) + text[place + chance.choice([0, 0, 1]) :]
        n_alike += assert_read_alike(text)
    assert n_alike > 20
