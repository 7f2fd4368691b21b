"""Folders of playbooks that are there to break whoever loads them: bombs, pipes, links in a circle, ten thousand files.

``REMEDIATOR_TEST_PLAYBOOKS`` sets how many files the large folder has: 10000 for the whole of it, which takes a minute.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from acceptance.engine import Engine
from remediator.app import load_playbooks
from remediator.loading import Loaded
from remediator.settings import load_settings

N_FILES = int(os.environ.get("REMEDIATOR_TEST_PLAYBOOKS", "300"))

MEMORY_LIMIT_MB = 200 + 300 * N_FILES / 10_000

QUICK_S = 20.0
"""For what takes well under a second on a quiet machine, and minutes or for ever where a bomb goes off."""

GOOD = """
playbook: {name}
match: [alertname = Leak]
per: [host, container_name]
steps: [{{action: docker.restart, params: {{container: "{{{{ labels.container_name }}}}"}}}}]
escalate: {{to: [people]}}
"""


def load(*paths: Path) -> Loaded:
    """As the engine loads them; fails when it takes too long."""
    people = {"people": {"urls": ["json://127.0.0.1:9/"]}}
    settings = load_settings(None, {}, {"playbooks": [str(path) for path in paths], "notify": people})
    done: list[Loaded] = []
    thread = threading.Thread(target=lambda: done.append(load_playbooks(settings)), daemon=True)
    thread.start()
    thread.join(QUICK_S)
    assert done, f"not loaded after {QUICK_S:g} s"
    return done[0]


def places(loaded: Loaded) -> list[str]:
    return [f"{Path(problem.file).name}:{problem.line}: {problem.message}" for problem in loaded.problems]


def names(loaded: Loaded) -> list[str]:
    return sorted(playbook.name for playbook in loaded.playbook_set.playbooks)


LAUGHS = "".join(f"  {two}: &{two} [{', '.join([f'*{one}'] * 9)}]\n" for one, two in pairwise("abcdefghi"))

BACKTRACKS = """
playbook: x
match: ['a =~ "(a+)+$(a|a|a){999999}"']
steps: [{action: noop}]
"""

PARENTHESES = f"""
playbook: x
match: [a = b]
steps: [{{action: notify.send, params: {{to: [people], title: "{{{{ {"(" * 10_000} }}}}"}}}}]
"""

BOMBS = {
    "a billion laughs": (f"playbook: x\nvars:\n  a: &a [lol, lol]\n{LAUGHS}", "anchors (&a) are not allowed"),
    "an alias of itself": ("playbook: x\nmatch: &m [*m]\n", "anchors (&m) are not allowed"),
    "merge keys": ("playbook: x\nbase: &b {a: 1}\nmatch:\n  <<: *b\n", "anchors (&b) are not allowed"),
    "lists in lists": ("playbook: x\nmatch: " + "[" * 100_000, "nested deeper than 32"),
    "maps in maps": ("playbook: x\nmatch: " + "{a: " * 100_000, "nested deeper than 32"),
    "maps in maps by indentation": (
        "playbook: x\nmatch:\n" + "".join(f"{' ' * n}a:\n" for n in range(1, 1000)),
        "nested deeper than 32",
    ),
    "keys that are lists": ("playbook: x\n? " + "[" * 1000, "nested deeper than 32"),
    "a text of ten megabytes": ("playbook: x\ndescription: " + "x" * 10_000_000, "the file is larger than 1 MiB"),
    "a number of a million digits": ("playbook: x\nmatch: " + "9" * 1_000_000, "a number of more than 15 digits"),
    "thousands of documents": ("x\n---\n" * 5_000, "a document begins with"),
    "a tag of Python": (
        "playbook: !!python/object/apply:os.system [touch PWNED]\n",
        "tags (!!python/object/apply:os.system) are not allowed",
    ),
    "a tag of its own": ("playbook: !x y\n", "tags (!x) are not allowed"),
    "a tag for bytes": ("playbook: !!binary aGVsbG8=\n", "tags (!!binary) are not allowed"),
    "a directive": ("%YAML 9.9\n---\nplaybook: x\n", "not YAML"),
    "a NUL": ("playbook: x\0y\n", "the character U+0000 is not allowed"),
    "a control character": ("playbook: x\x1b[2J\n", "the character U+001B is not allowed"),
    "a key thousands of times": (
        "playbook: x\n" + "a: 1\n" * 10_000,
        "the key `a` stands here twice",
    ),
    "escapes without end": ('playbook: "' + "\\x" * 100_000, "not YAML"),
    "a template of braces": ("playbook: x\nmatch: " + "{{" * 10_000, "nested deeper than 32"),
    "a regexp that backtracks": (BACKTRACKS, "regular expression"),
    "a template of parentheses": (PARENTHESES, "nested deeper than"),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_file_when_it_is_a_bomb_then_refused_in_time_with_its_line_and_the_others_are_read(
    bomb: str, tmp_path: Path
) -> None:
    text, says = BOMBS[bomb]
    (tmp_path / "bomb.yaml").write_text(text)
    (tmp_path / "good.yaml").write_text(GOOD.format(name="good"))
    loaded = load(tmp_path)
    problems = places(loaded)
    assert any(problem.startswith("bomb.yaml:") and says in problem for problem in problems), problems[:5]
    assert not any(problem.startswith("good.yaml:") for problem in problems)
    assert "good" in names(loaded)
    assert max(len(problem) for problem in problems) < 1000, "what is wrong is said in a line or two"


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        os.chdir(path.parent)
        listening.bind(path.name)


ODD: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "a pipe": (a_pipe, ["x.yaml:1: is a pipe or a device, not a file"]),
    "a socket": (a_socket, ["x.yaml:1: cannot be read: No such device or address"]),
    "a device without end": (
        lambda path: path.symlink_to("/dev/zero"),
        ["x.yaml:1: is a pipe or a device, not a file"],
    ),
    "a device that is empty": (
        lambda path: path.symlink_to("/dev/null"),
        ["x.yaml:1: is a pipe or a device, not a file"],
    ),
    "a link to itself": (
        lambda path: path.symlink_to(path.name),
        ["x.yaml:1: cannot be read: Too many levels of symbolic links"],
    ),
    "a link to the folder": (lambda path: path.symlink_to("."), []),
    "a link to nothing": (
        lambda path: path.symlink_to("gone"),
        ["x.yaml:1: cannot be read: No such file or directory"],
    ),
    "a second link to the same file": (lambda path: path.symlink_to("good.yaml"), []),
    "a folder": (lambda path: path.mkdir(), []),
    "a file that fails as it is read": (
        lambda path: path.symlink_to("/proc/self/mem"),
        ["x.yaml:1: cannot be read: Input/output error"],
    ),
}


@pytest.mark.parametrize("odd", ODD)
def test_folder_when_something_odd_is_called_like_a_playbook_then_it_is_named_and_nobody_waits(
    odd: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, says = ODD[odd]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.yaml").write_text(GOOD.format(name="good"))
    make(tmp_path / "x.yaml")
    loaded = load(tmp_path)
    assert (places(loaded), names(loaded)) == (says, ["good"])


def test_folders_when_links_go_in_a_circle_then_said_for_the_one_and_not_followed_below(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "good.yaml").write_text(GOOD.format(name="good"))
    (inside / "again").symlink_to(".")
    assert (names(load(inside)), places(load(inside))) == (["good"], [])
    assert places(load(tmp_path / "a")) == ["a:1: cannot be read: Too many levels of symbolic links"]


def test_file_when_it_may_not_be_read_then_check_names_it(tmp_path: Path) -> None:
    engine = Engine(tmp_path / "engine", {"good.yaml": GOOD.format(name="good"), "x.yaml": GOOD.format(name="x")})
    (engine.playbooks / "x.yaml").chmod(0)
    # root reads everything by its capabilities: without them it is its files' owner and no more.
    without_rights = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    checked = subprocess.run(
        [*without_rights, sys.executable, "-m", "remediator", "check", "--config", str(engine.config)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (checked.returncode, "x.yaml:1:1: cannot be read: Permission denied" in checked.stdout) == (1, True)
    assert "good.yaml:" not in checked.stdout + checked.stderr


def test_file_when_it_is_replaced_again_and_again_then_each_load_sees_one_or_the_other_whole(tmp_path: Path) -> None:
    descriptions = {"long": "x" * 200_000, "short": "y"}
    versions = [f"{GOOD.format(name=name)}description: {text}\n" for name, text in descriptions.items()]
    file = tmp_path / "x.yaml"
    file.write_text(versions[0])
    is_over = threading.Event()

    def replace() -> None:
        number = 0
        while not is_over.is_set():
            number += 1
            (tmp_path / ".new").write_text(versions[number % 2])
            (tmp_path / ".new").rename(file)
            time.sleep(0.001)

    thread = threading.Thread(target=replace)
    thread.start()
    try:
        seen = [load(tmp_path) for _ in range(40)]
    finally:
        is_over.set()
        thread.join()
    assert {tuple(places(loaded)) for loaded in seen} == {()}
    assert {tuple(names(loaded)) for loaded in seen} == {("long",), ("short",)}


@pytest.mark.timeout(600)
def test_folder_when_it_has_thousands_of_files_then_check_names_the_bad_one_and_the_engine_starts(
    tmp_path: Path,
) -> None:
    # An alert each: two for one alert would be advised against.
    files = {f"p{n:05}.yaml": GOOD.format(name=f"p{n}").replace("= Leak", f"= Leak{n}") for n in range(N_FILES)}
    engine = Engine(tmp_path / "engine", files)
    began = time.monotonic()
    assert engine.command("check").code == 0
    print(f"{N_FILES} files checked in {time.monotonic() - began:.1f} s")

    engine.write_playbook("playbook: bad\nmatch: [alertname == x]\nsteps: [{action: noop}]\n", "p00100x.yaml")
    checked = engine.command("check")
    assert (checked.code, "p00100x.yaml:2" in checked.out + checked.err) == (1, True)
    assert [word for word in (checked.out + checked.err).split() if ".yaml:" in word and "p00100x" not in word] == []
    (engine.playbooks / "p00100x.yaml").unlink()

    began = time.monotonic()
    try:
        engine.start()
        memory_mb = int(Path(f"/proc/{engine.pid}/status").read_text().split("VmHWM:")[1].split()[0]) / 1024
        print(f"{N_FILES} files: up after {time.monotonic() - began:.1f} s with {memory_mb:.0f} MB")
        assert len(engine.get("/api/v1/status")["playbooks"]) == N_FILES
        assert memory_mb < MEMORY_LIMIT_MB
    finally:
        engine.kill()
