"""Commands that read a file, given any file: an exit code of the list, words, and never a traceback."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fuzz.doors import DOORS, EXPORT, ROOT
from remediator.cli import cli

Command = Callable[[Path], list[str]]

# Name → door, arguments, exit codes: all that there may be, and all that there must be among the examples.
COMMANDS: dict[str, tuple[str, Command, set[int], set[int]]] = {
    # 1 where it is no delivery, or one of its alerts is none.
    "plan": ("decode", lambda file: ["plan", str(file)], {0, 1}, {0, 1}),
    "check": ("playbook", lambda file: ["check", str(file)], {0, 1}, {0, 1}),
    "audit verify": ("export", lambda file: ["audit", "verify", str(file)], {0, 1, 3}, {0, 1, 3}),
    # With settings that are right by chance there is no database.
    "audit --config": ("settings", lambda file: ["--config", str(file), "audit", "list"], {2, 3}, {2, 3}),
    "audit --store": ("export", lambda file: ["audit", "verify", "--store", f"sqlite:///{file}"], {3}, {3}),
}


def bent(door: str) -> st.SearchStrategy[bytes]:
    """Any bytes; or a good file of the door's corpus with a part of it replaced."""
    places = st.floats(0, 1)

    def splice(seed: bytes, one: float, other: float, middle: bytes) -> bytes:
        begin, end = sorted((round(one * len(seed)), round(other * len(seed))))
        return seed[:begin] + middle + seed[end:]

    seeds = st.sampled_from([*DOORS[door].corpus().values()])
    return st.binary(max_size=200) | st.builds(splice, seeds, places, places, st.binary(max_size=20))


@pytest.fixture(autouse=True)
def shipped(site: Path) -> None:
    """The playbooks of the project, and whom they tell."""
    (site / "remediator.toml").write_text(
        f"playbooks = [{str(ROOT / 'playbooks')!r}]\n"
        "[fleets.gpu_containers]\nkind = 'container'\nsize = 100\n"
        "[notify]\noncall.urls = ['json://localhost']\nml-platform.urls = ['json://localhost']\n"
    )


STEERS = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Categories of characters that are no text: controls, formats, halves of pairs, ends of lines and paragraphs."""


def check_ending(result: Result, codes: set[int]) -> None:
    said = result.stdout + result.stderr
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    assert result.exit_code in codes, said
    assert "Traceback" not in said
    assert said.strip()
    # Nothing that a file says steers the terminal.
    assert {char for char in said if unicodedata.category(char) in STEERS} <= {"\n"}


@pytest.mark.parametrize("name", COMMANDS)
def test_command_when_its_file_holds_anything_then_it_ends_with_a_code_of_the_list(name: str, tmp_path: Path) -> None:
    door, command, may, must = COMMANDS[name]
    file = tmp_path / "some file"
    seen = set()

    @settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
    @given(bent(door))
    @example(b"")
    @example(b"\0")
    @example(b"\x1b[2J\xff")
    @example(b"[" * 5000)
    @example(next(iter(DOORS[door].corpus().values())))
    def judge(data: bytes) -> None:
        file.write_bytes(data)
        result = CliRunner().invoke(cli, command(file))
        seen.add(result.exit_code)
        check_ending(result, may)

    judge()
    assert seen >= must


@pytest.mark.parametrize("name", sorted({*COMMANDS} - {"check"}))  # which takes folders
def test_command_when_its_file_is_a_folder_then_it_says_so(name: str, tmp_path: Path) -> None:
    _, command, _, _ = COMMANDS[name]

    result = CliRunner().invoke(cli, command(tmp_path))

    check_ending(result, {1, 2, 3})


def test_audit_verify_when_the_export_is_whole_then_0_and_when_a_byte_differs_then_not(tmp_path: Path) -> None:
    file = tmp_path / "export.jsonl"
    file.write_bytes(b"".join(EXPORT))
    assert CliRunner().invoke(cli, ["audit", "verify", str(file)]).exit_code == 0

    file.write_bytes(b"".join(EXPORT).replace(b"mia", b"eve", 1))
    assert CliRunner().invoke(cli, ["audit", "verify", str(file)]).exit_code == 1
