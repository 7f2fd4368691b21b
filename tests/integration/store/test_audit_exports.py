"""Somebody with an export in their hands changes it. Both verifiers find every change of what is covered, and no other.

The engine's own verifier and ``docs/verify_audit.py`` share no code. Each manipulation says at which line the first
misfit is, and which events were replaced by others that fit: those are found with a head that was kept elsewhere and
that covers them, and only then.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import rfc8785
from click.testing import CliRunner
from hypothesis import example, given, settings
from hypothesis import strategies as st

from remediator.cli import cli
from remediator.core.event import Event, EventType
from remediator.store import audit
from second_verifier import FILE, second

N = 15
"""Events of the log that is forged: enough for a first, a last and some between."""

N_FLIPPED = 200
"""Events of the log whose bits are flipped."""

FLIP_EVERY = int(os.environ.get("REMEDIATOR_TEST_FLIP_EVERY", "2999"))
"""Each so-many-th bit of the export is flipped; odd, so that all eight of a byte have their turn. Below 1,000 on all
cores. 1: every one of nearly a million, for more than an hour on two."""

IS_SHORT = FLIP_EVERY > 1000

Head = tuple[int, str]
Lines = list[bytes]


def write_log(log_id: str, n: int) -> Lines:
    """The export of a log of n events of all types."""
    previous, lines = hashlib.sha256(log_id.encode()).hexdigest(), []
    types = list(EventType)
    for seq in range(1, n + 1):
        event = Event(
            type=types[seq % len(types)],
            at=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=17 * seq),
            run_id=f"1f0c9a52-8d57-5b0e-9d52-6f3c2b1a{seq % 7:04d}",
            n=seq,
            delivery_id=seq,
            playbook="restart-on-leak",
            target="docker:gpu-07/trainer-0",
            outcome="failed",
            fingerprint="0a1b2c3d4e5f6071",
            data={"é": [seq, True], "\U0001f600": "\x1b", "\ufb33": {"detail": 'said "no"'}},
        )
        body = audit.canonical_body(seq, previous, event)
        previous = audit.chain_hash(previous, body)
        lines.append(audit.export_line({"body": body.decode(), "hash": previous}))
    return lines


LOG = write_log("a log", N)
FLIPPED = write_log("a log", N_FLIPPED)


def head_of(line: bytes) -> Head:
    row = json.loads(line)
    return json.loads(row["body"])["seq"], row["hash"]


def line_of(fields: dict[str, Any], body: bytes | None = None) -> bytes:
    """An event that fits by itself: its own hash is right."""
    body = rfc8785.dumps(fields) if body is None else body
    return audit.export_line({"body": body.decode(), "hash": audit.chain_hash(fields["prev_hash"], body)})


def fields_of(line: bytes) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(json.loads(line)["body"])
    return fields


# -- what somebody does, and what must be found


@dataclass(frozen=True, slots=True, kw_only=True)
class Forged:
    """A changed export.

    Attributes:
        content: the file.
        bad: the line of the first misfit that shows without a head; None when none does.
        others: seqs of lines before it that fit and are not the events that were there.
        n_left: events in the file, where nothing else is bad.
    """

    content: bytes
    bad: int | None
    others: range = range(0)
    n_left: int = N

    def bad_with(self, head: Head) -> int | None:
        """What a head of the true log adds."""
        if head[0] in self.others and (self.bad is None or head[0] < self.bad):
            return head[0]
        if self.bad is not None:
            return self.bad
        return self.n_left + 1 if head[0] > self.n_left else None


def of_lines(lines: Iterable[bytes], bad: int | None, **more: Any) -> Forged:
    return Forged(content=b"".join(lines), bad=bad, **more)


def untouched(k: int) -> Forged:
    return of_lines(LOG, None)


def edit_field(k: int) -> Forged:
    return of_lines([*LOG[: k - 1], LOG[k - 1].replace(b"failed", b"succeeded"), *LOG[k:]], k)


def edit_with_own_hash(k: int) -> Forged:
    line = line_of({**fields_of(LOG[k - 1]), "outcome": "succeeded"})
    return of_lines([*LOG[: k - 1], line, *LOG[k:]], k + 1 if k < N else None, others=range(k, k + 1))


def edit_hash(k: int) -> Forged:
    row = json.loads(LOG[k - 1])
    return of_lines([*LOG[: k - 1], audit.export_line({**row, "hash": row["hash"].upper() + "A"}), *LOG[k:]], k)


def delete(k: int) -> Forged:
    return of_lines([*LOG[: k - 1], *LOG[k:]], k if k < N else None, n_left=N - 1)


def insert_with_own_hash(k: int) -> Forged:
    line = line_of({**fields_of(LOG[k - 1]), "actor": "forged"})
    return of_lines([*LOG[: k - 1], line, *LOG[k - 1 :]], k + 1, others=range(k, k + 1))


def swap_with_next(k: int) -> Forged:
    at = min(k, N - 1)
    return of_lines([*LOG[: at - 1], LOG[at], LOG[at - 1], *LOG[at + 1 :]], at)


def swap_with_last(k: int) -> Forged:
    at = min(k, N - 1)
    return of_lines([*LOG[: at - 1], LOG[-1], *LOG[at:-1], LOG[at - 1]], at)


def duplicate(k: int) -> Forged:
    return of_lines([*LOG[:k], LOG[k - 1], *LOG[k:]], k + 1)


def repeat_at_the_end(k: int) -> Forged:
    return of_lines([*LOG, LOG[k - 1]], N + 1)


def cut_from(k: int) -> Forged:
    return of_lines(LOG[: k - 1], None, n_left=k - 1)


def cut_inside(k: int) -> Forged:
    return of_lines([*LOG[: k - 1], LOG[k - 1][: 40 + k]], k)


def rewrite_from(k: int) -> Forged:
    lines, previous = LOG[: k - 1], None
    for line in LOG[k - 1 :]:
        fields = fields_of(line) | {"actor": "nobody"}
        lines = [*lines, line_of(fields if previous is None else fields | {"prev_hash": previous})]
        previous = head_of(lines[-1])[1]
    return of_lines(lines, None, others=range(k, N + 1))


def rewrite_and_cut(k: int) -> Forged:
    whole = rewrite_from(k).content.splitlines(keepends=True)
    return of_lines(whole[:k], None, others=range(k, k + 1), n_left=k)


def another_log(k: int) -> Forged:
    return of_lines(write_log("another log", N), None, others=range(1, N + 1))


def its_end_from_another_log(k: int) -> Forged:
    lines = [*LOG[: k - 1], *write_log("another log", N)[k - 1 :]]
    return of_lines(lines, k if k > 1 else None, others=range(1, N + 1) if k == 1 else range(0))


def other_bytes(k: int) -> Forged:
    fields = fields_of(LOG[k - 1])
    return of_lines([*LOG[: k - 1], line_of(fields, json.dumps(fields).encode()), *LOG[k:]], k)


def order_of_code_points(k: int) -> Forged:
    """What sorts keys by code point, not by UTF-16 units, is not RFC 8785."""
    fields = fields_of(LOG[k - 1])
    text = json.dumps(fields, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()
    return of_lines([*LOG[: k - 1], line_of(fields, text), *LOG[k:]], k)


def key_twice_in_body(k: int) -> Forged:
    fields = fields_of(LOG[k - 1])
    body = rfc8785.dumps(fields).replace(b'"episode_id":""', b'"episode_id":"","episode_id":""')
    return of_lines([*LOG[: k - 1], line_of(fields, body), *LOG[k:]], k)


def value_of_no_event(written: bytes, k: int) -> Forged:
    fields = fields_of(LOG[k - 1])
    body = rfc8785.dumps(fields).replace(b'"episode_id":""', b'"episode_id":' + written)
    return of_lines([*LOG[: k - 1], line_of(fields, body), *LOG[k:]], k)


def instead_of_line(line: bytes, k: int) -> Forged:
    return of_lines([*LOG[: k - 1], line, *LOG[k:]], k)


def into_line(added: bytes, k: int) -> Forged:
    """Behind the opening brace."""
    return of_lines([*LOG[: k - 1], b"{" + added + LOG[k - 1][1:], *LOG[k:]], k)


def behind_line(added: bytes, k: int) -> Forged:
    return of_lines([*LOG[: k - 1], LOG[k - 1][:-1] + added + b"\n", *LOG[k:]], k)


def appended(added: bytes, k: int) -> Forged:
    return of_lines([*LOG, added], N + 1)


def before_all(added: bytes, k: int) -> Forged:
    return of_lines([added, *LOG], 1)


def no_newline_between(k: int) -> Forged:
    at = min(k, N - 1)
    return of_lines([*LOG[: at - 1], LOG[at - 1][:-1], *LOG[at:]], at)


def in_encoding(name: str, k: int) -> Forged:
    return of_lines([b"".join(LOG).decode().encode(name, "replace")], 1)


def no_last_newline(k: int) -> Forged:
    return of_lines([*LOG[:-1], LOG[-1][:-1]], None)


def line_ends_of_dos(k: int) -> Forged:
    return of_lines([line.replace(b"\n", b"\r\n") for line in LOG], None)


def written_otherwise(k: int) -> Forged:
    """White space, escapes and the order of the two keys around a body are not covered: the body is the same text."""
    row = json.loads(LOG[k - 1])
    line = json.dumps({"hash": row["hash"], "body": row["body"]}, indent=None).encode() + b" \n"
    return of_lines([*LOG[: k - 1], line, *LOG[k:]], None)


NULL, HALF, BIG, MINUS = b"null", b"0.5", b"9007199254740992", b"-0"
DEEP = b"[" * 100_000 + b"\n"

FORGERIES: dict[str, Callable[[int], Forged]] = {
    "nothing": untouched,
    "a field edited": edit_field,
    "a field edited, its own hash right": edit_with_own_hash,
    "a hash edited": edit_hash,
    "an event deleted": delete,
    "an event inserted, its own hash right": insert_with_own_hash,
    "two neighbours swapped": swap_with_next,
    "an event and the last swapped": swap_with_last,
    "an event twice": duplicate,
    "an event again at the end": repeat_at_the_end,
    "the end cut off": cut_from,
    "the end cut off inside a line": cut_inside,
    "written anew from here on": rewrite_from,
    "written anew here, the rest cut off": rewrite_and_cut,
    "the log of another engine": another_log,
    "the end of another log": its_end_from_another_log,
    "the same event in other bytes": other_bytes,
    "keys in the order of code points": order_of_code_points,
    "a key twice in a body": key_twice_in_body,
    "a null in a body": partial(value_of_no_event, NULL),
    "a fraction in a body": partial(value_of_no_event, HALF),
    "a number that JSON readers round": partial(value_of_no_event, BIG),
    "a negative zero": partial(value_of_no_event, MINUS),
    "a key twice around a body": partial(into_line, b'"hash":"","'[:-1]),
    "a key more around a body": partial(into_line, b'"more":1,'),
    "garbage behind a line": partial(behind_line, b"garbage"),
    "a zero byte behind a line": partial(behind_line, b"\0"),
    "an empty line between": partial(instead_of_line, b"\n"),
    "a list instead of a line": partial(instead_of_line, b'[["body","{}"],["hash",""]]\n'),
    "a number instead of a line": partial(instead_of_line, b"1\n"),
    "a body that is a number": partial(instead_of_line, b'{"body":1,"hash":""}\n'),
    "a body without a hash": partial(instead_of_line, b'{"body":"{}"}\n'),
    "half a surrogate pair": partial(instead_of_line, b'{"body":"\\ud800","hash":""}\n'),
    "brackets without end": partial(instead_of_line, DEEP),
    "bytes that are no text": partial(instead_of_line, b"\xff\xfe\n"),
    "garbage at the end": partial(appended, b"garbage\n"),
    "an empty line at the end": partial(appended, b"\n"),
    "an empty object at the end": partial(appended, b"{}"),
    "a byte order mark": partial(before_all, b"\xef\xbb\xbf"),
    "an empty line at the beginning": partial(before_all, b"\n"),
    "two lines made one": no_newline_between,
    "UTF-16": partial(in_encoding, "utf-16"),
    "Latin-1": partial(in_encoding, "latin-1"),
    "no newline at the end": no_last_newline,
    "the line ends of DOS": line_ends_of_dos,
    "white space, escapes and order around a body": written_otherwise,
}


def both(content: bytes, head: Head | None) -> list[tuple[int, str, int | None]]:
    """Seq and hash of the last event that fits, and the first that does not, as the engine and the second say it."""
    lines = content.splitlines(keepends=True) if b"\r" not in content else split(content)
    found = audit.verify(lines, head)
    bad = found.first_bad_seq
    assert found.ok == (bad is None)
    seq, digest, second_bad, _ = second.verify(second.of_export(lines), head=head)
    return [(found.head_seq, found.head_hash, bad), (seq, digest, second_bad)]


def split(content: bytes) -> Lines:
    """As a file gives its lines: only LF ends one."""
    lines = [line + b"\n" for line in content.split(b"\n")]
    return [*lines[:-1], lines[-1][:-1]] if lines[-1] != b"\n" else lines[:-1]


heads = st.none() | st.integers(1, N).map(lambda seq: head_of(LOG[seq - 1]))


@settings(max_examples=1500, deadline=None)
@given(what=st.sampled_from(sorted(FORGERIES)), k=st.integers(1, N), head=heads)
def test_verifiers_when_an_export_was_changed_then_both_name_the_line(what: str, k: int, head: Head | None) -> None:
    forged = FORGERIES[what](k)

    expected = forged.bad if head is None else forged.bad_with(head)

    found = both(forged.content, head)
    assert [bad for _, _, bad in found] == [expected, expected]
    assert found[0] == found[1]


@pytest.mark.parametrize("what", FORGERIES)
def test_verifiers_when_an_export_was_changed_then_both_name_it_with_the_last_head(what: str) -> None:
    head = head_of(LOG[-1])
    for k in (1, 2, N - 1, N):
        forged = FORGERIES[what](k)
        assert [bad for _, _, bad in both(forged.content, head)] == [forged.bad_with(head)] * 2, k


@pytest.mark.parametrize(
    ("head", "bad"),
    [
        pytest.param(head_of(write_log("another log", N)[6]), 7, id="the head of another log"),
        pytest.param(head_of(write_log("a log", N + 3)[-1]), N + 1, id="a head that comes after the end"),
        pytest.param((N, "0" * 64), N, id="a head whose hash is wrong"),
        pytest.param(head_of(LOG[0]), None, id="the oldest head"),
    ],
)
def test_verifiers_when_the_head_does_not_fit_the_whole_export_then_both_say_where(head: Head, bad: int | None) -> None:
    assert [found for _, _, found in both(b"".join(LOG), head)] == [bad, bad]


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
values = st.recursive(
    st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(data=st.lists(st.dictionaries(texts, values, max_size=4), min_size=1, max_size=4))
@example(data=[{"\ufb33": 1, "\U0001f600": 2, "\x7f": "\u2028\x85\r"}])
def test_verifiers_when_nobody_changed_the_log_then_raise_no_alarm(data: list[dict[str, Any]]) -> None:
    previous, lines = "0" * 64, []
    for seq, each in enumerate(data, start=1):
        event = Event(type=EventType.PLAN_MADE, at=datetime(2026, 1, 1, tzinfo=UTC), target="é\n", data=each)
        body = audit.canonical_body(seq, previous, event)
        previous = audit.chain_hash(previous, body)
        lines.append(audit.export_line({"body": body.decode(), "hash": previous}))

    found = both(b"".join(lines), (len(data), previous))

    assert found == [(len(data), previous, None)] * 2


# -- the two commands


def commands_say(file: Path, head: Head | None) -> list[tuple[int, str]]:
    """Exit codes and stdout of ``remediator audit verify`` and of the second verifier."""
    options = [] if head is None else ["--head", f"{head[0]}:{head[1]}"]
    ours = CliRunner().invoke(cli, ["audit", "verify", str(file), *options])
    theirs = subprocess.run(
        [sys.executable, "-I", str(FILE), str(file), *options], capture_output=True, text=True, timeout=60
    )
    assert theirs.stderr == ""
    return [(ours.exit_code, ours.stdout), (theirs.returncode, theirs.stdout)]


NO_WHOLE_EXPORT = 3
"""The engine's command calls a file, whose first line is not that of a whole export, no export at all."""


@pytest.mark.parametrize("with_head", [False, True], ids=["without a head", "with a head"])
@pytest.mark.parametrize("what", FORGERIES)
def test_commands_when_an_export_was_changed_then_say_so_by_their_exit_codes(
    what: str, with_head: bool, tmp_path: Path
) -> None:
    forged = FORGERIES[what](7)
    file = tmp_path / "audit.jsonl"
    file.write_bytes(forged.content)
    head = head_of(LOG[-1]) if with_head else None
    bad = forged.bad_with(head) if head is not None else forged.bad

    (our_code, our_words), (their_code, their_words) = commands_say(file, head)

    if bad is None:
        assert (our_code, their_code) == (0, 0)
        assert our_words.splitlines()[:2] == their_words.splitlines()[:2]
    else:
        assert our_code == 1 or (bad == 1 and our_code == NO_WHOLE_EXPORT)
        assert their_code == 1
        assert f"CHANGED: event {bad}: " in their_words


def test_second_verifier_when_read_then_imports_the_standard_library_alone() -> None:
    imported = {
        alias.name
        for node in ast.walk(ast.parse(FILE.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in (node.names if isinstance(node, ast.Import) else [ast.alias(node.module or "")])
    }
    assert imported <= sys.stdlib_module_names
    assert "hashlib" in imported


def test_second_command_when_there_is_nothing_to_read_then_says_so(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", str(FILE), str(tmp_path / "none")], capture_output=True, text=True, timeout=60
    )

    assert (done.returncode, "cannot read" in done.stderr, "Traceback" in done.stderr) == (2, True, False)


@pytest.mark.parametrize("head", ["", "5", "x", "5:abc", f"0:{'0' * 64}", f"-1:{'0' * 64}"])
def test_second_command_when_a_head_is_none_then_says_how_to_write_one_and_raises_no_alarm(
    head: str, tmp_path: Path
) -> None:
    file = tmp_path / "audit.jsonl"
    file.write_bytes(b"".join(LOG))

    done = subprocess.run(
        [sys.executable, "-I", str(FILE), str(file), f"--head={head}"], capture_output=True, text=True, timeout=60
    )

    assert (done.returncode, done.stdout, "write SEQ:HASH" in done.stderr) == (2, "", True)


def test_second_command_when_a_file_is_empty_then_it_is_not_called_intact(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    file.touch()

    done = subprocess.run([sys.executable, "-I", str(FILE), str(file)], capture_output=True, text=True, timeout=60)

    assert (done.returncode, done.stdout, "there is no event" in done.stderr) == (2, "", True)


# -- every bit


def flip(line: bytes, bit: int) -> bytes:
    changed = bytearray(line)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def misses(work: tuple[int, range]) -> list[str]:
    """Flip these bits of a line, one at a time: what the verifiers do not say rightly of the whole export."""
    k, bits = work
    found = []
    for bit in bits:
        content = b"".join([*FLIPPED[: k - 1], flip(FLIPPED[k - 1], bit), *FLIPPED[k:]])
        bads = [bad for _, _, bad in both(content, None)]
        if bads != [k, k]:
            found.append(f"bit {bit} of line {k}: {bads}")
    return found


def every(step: int) -> Iterator[tuple[int, range]]:
    """Each line with those of its bits that are every step-th bit of the file."""
    before = 0
    for k, line in enumerate(FLIPPED, start=1):
        yield k, range(-before % step, 8 * len(line), step)
        before += 8 * len(line)


def test_verifiers_when_nothing_is_flipped_then_both_say_so() -> None:
    assert both(b"".join(FLIPPED), None) == [(*head_of(FLIPPED[-1]), None)] * 2


@pytest.mark.timeout(300 if IS_SHORT else 4 * 3600)
def test_verifiers_when_a_bit_is_flipped_then_both_name_its_line() -> None:
    work = list(every(FLIP_EVERY))
    assert sum(len(bits) for _, bits in work) >= 8 * sum(map(len, FLIPPED)) // FLIP_EVERY
    if IS_SHORT:
        found = [miss for each in work for miss in misses(each)]
    else:
        with ProcessPoolExecutor(initializer=os.nice, initargs=(5,)) as pool:
            found = [miss for each in pool.map(misses, work) for miss in each]
    assert found == []


@pytest.mark.parametrize("k", [1, 2], ids=["the first line", "the second line"])
def test_verifiers_when_any_bit_of_an_early_line_is_flipped_then_both_name_it(k: int) -> None:
    assert misses((k, range(8 * len(FLIPPED[k - 1])))) == []


@pytest.mark.parametrize("k", [3, N_FLIPPED // 2, N_FLIPPED - 1, N_FLIPPED])
def test_verifiers_when_a_newline_is_flipped_then_both_name_its_line(k: int) -> None:
    last = 8 * (len(FLIPPED[k - 1]) - 1)
    assert misses((k, range(last, last + 8))) == []


def test_commands_when_a_bit_is_flipped_then_both_name_its_line(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    pick = random.Random(4)
    for _ in range(25):
        k = pick.randint(2, N_FLIPPED)
        line = flip(FLIPPED[k - 1], pick.randrange(8 * len(FLIPPED[k - 1])))
        file.write_bytes(b"".join([*FLIPPED[: k - 1], line, *FLIPPED[k:]]))
        (our_code, our_words), (their_code, their_words) = commands_say(file, None)
        assert (our_code, their_code) == (1, 1)
        assert f"{k - 1} events before it fit" in our_words
        assert f"CHANGED: event {k}: " in their_words
