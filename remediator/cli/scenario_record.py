"""``remediator test --record``: write an incident down as a test.

Takes the store's file, opened read-only, whether an engine runs or not → a test file, or its text on stdout.

Must never: write over a file, or to the store.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from remediator.app import load_playbooks, story_workshop
from remediator.cli.invocation import Invocation
from remediator.cli.store_options import reading
from remediator.cli.terminal import complain, say
from remediator.engine.recording import Recording, record_run
from remediator.errors import RequestError
from remediator.loading.scenario_write import write_test
from remediator.telemetry import configure_logging

EXIT_OTHERWISE = 1
"""It is written, and does not come out as it was."""


def record(
    invocation: Invocation,
    run: str,
    paths: Sequence[Path],
    *,
    out: Path | None,
    is_disguised: bool,
    store_url: str | None,
) -> int:
    """Write it; the exit code.

    Args:
        paths: playbooks to play it with, instead of the settings'.
        out: None = stdout.

    Raises:
        RequestError: there is no such run, or it cannot be told; or ``out`` is there already.
        PlaybooksRefusedError, SettingsError, StoreError: as they say.
    """
    configure_logging(level="critical", log_format="text")
    settings = invocation.settings_of_here()
    if out is not None and out.exists():
        raise RequestError(f"{out} is there already; nothing is written over it", http_status=409)
    loaded = load_playbooks(settings, paths, takes_any_message=True)
    with reading(invocation, store_url or settings.store_url) as conn:
        made = record_run(
            conn, run, settings, loaded, story_workshop(), is_disguised=is_disguised, now=datetime.now(UTC)
        )
    text = write_test(made.file, out.parent if out is not None else Path(), _comments(made, run, is_disguised))
    if out is None:
        for line in text.splitlines():
            say(line)
    else:
        try:
            with out.open("x", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise RequestError(f"{out} cannot be written: {error.strerror}") from error
        say(f"written: {out}; play it: remediator test {out}")
    for note in made.notes if out is not None else ():
        complain(note)
    return 0 if made.is_as_it_was else EXIT_OTHERWISE


def _comments(made: Recording, run: str, is_disguised: bool) -> list[str]:
    of = "an incident, under other names" if is_disguised else f"run {run}"
    return [f"Recorded from {of}, by remediator test --record.", *made.notes]
