"""One door under atheris, which bends inputs until they reach code that none reached before.

To be the first to import the doors, and so all of remediator: atheris watches only what it has seen being imported.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import atheris

# Their branches guide it. None of them may be imported before this.
with atheris.instrument_imports(include=["remediator", "ruamel.yaml", "jinja2", "tomllib", "json"]):
    from fuzz.doors import Door

MOST_CPU_S = 20.0
"""Of one input of a few KiB, in this thread: a busy machine does not spend it. Watched code costs ten times as much."""

HANGS_S = 120
"""By the clock, for what never comes back."""

MOST_MIB = 2048
"""Of the process: the caches of templates and regular expressions are full by then."""


class TooSlow(Exception):
    """One input took too much CPU time."""


def within_cpu(check: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """The check, which fails besides where it takes too long."""

    def checked(data: bytes) -> None:
        before = time.thread_time()
        check(data)
        spent = time.thread_time() - before
        if spent > MOST_CPU_S:
            raise TooSlow(f"{spent:.1f} s of CPU for {len(data)} bytes")

    return checked


def bending(bend: Callable[[bytes, int], bytes | None]) -> Callable[[bytes, int, int], bytes]:
    """libFuzzer's way to change an input: within its format three times of four, else by its bytes."""

    def bent(data: bytes, max_size: int, seed: int) -> bytes:
        changed = bend(data, seed) if seed % 4 else None
        return atheris.Mutate(data, max_size) if changed is None or len(changed) > max_size else changed

    return bent


def fuzz(door: Door, *, runs: int, seconds: int, seed: int, found: Path, scratch: Path) -> None:
    """Go on until something is found, or runs or seconds are over, and end the process, without any tidying up.

    It exits 0 where nothing is found; else the input is in ``found``, and why on stderr and stdout.

    Args:
        runs, seconds: 0 = no limit. The corpus is tried in any case.
        seed: 0 = another one each time.
        scratch: an empty folder, for the corpus and what is added to it.
    """
    for name, data in door.corpus().items():
        (scratch / name).write_bytes(data)
    arguments = [
        *([f"-runs={runs}"] if runs else []),
        f"-max_total_time={seconds}",
        f"-seed={seed}",
        f"-max_len={door.max_len}",
        f"-timeout={HANGS_S}",
        f"-rss_limit_mb={MOST_MIB}",
        f"-dict={door.words}",
        f"-artifact_prefix={found}/{door.name}-",
        "-print_final_stats=1",
        str(scratch),
    ]
    options = {"custom_mutator": bending(door.bend)} if door.bend else {}
    atheris.Setup([sys.argv[0], *arguments], within_cpu(door.check), **options)
    atheris.Fuzz()
