"""Scenarios are chosen, played, and told of: a line for each file, and what differs where one failed.

Takes → gives: what was asked for → ``Result``s in the order of files and lines, told on stdout as they come; or as a
map for ``--json``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remediator.actions import LOOKING
from remediator.cli.meter import Meter
from remediator.cli.scenario_filter import Fits
from remediator.cli.scenario_jobs import Chosen, n_cpus, play
from remediator.cli.scenario_text import is_unmatched, place, print_failure, summary, trail
from remediator.cli.terminal import complain, console, say
from remediator.core.scenario import Expectation, Happening, Line, TestFile
from remediator.engine.playtest import Result
from remediator.errors import PlaybookError
from remediator.loading.scenarios import load_tests

EXIT_FAILED = 1
EXIT_UNPLAYABLE = 2
"""Something stands in the way of playing at all: the same code as wrong usage."""

LOGS_SHOWN = 3
"""Failed scenarios that are told with their audit log: one wrong `hold` makes all of a file fail, each a page long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a person wants to have played.

    Attributes:
        paths: test files and folders.
        fits: which scenarios, by file and name; None = all.
        jobs: processes; None = as many as there are CPUs.
        is_quiet: nothing is told: it is printed as JSON afterwards.
    """

    paths: tuple[Path, ...]
    fits: Fits | None = None
    jobs: int | None = None
    is_verbose: bool = False
    is_fail_fast: bool = False
    is_quiet: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What came of it.

    Attributes:
        files: those that could be read.
        problems: of test files; with any, nothing was played.
        results: in the order of files and lines; not all of them, where the first failure was to be the end.
    """

    files: Sequence[TestFile]
    problems: Sequence[PlaybookError] = ()
    results: Sequence[Result] = ()

    @property
    def exit_code(self) -> int:
        """0, ``EXIT_FAILED`` or ``EXIT_UNPLAYABLE``."""
        if self.problems or not self.results or any(map(is_unplayable, self.results)):
            return EXIT_UNPLAYABLE
        return 0 if all(result.is_ok for result in self.results) else EXIT_FAILED

    def data(self) -> dict[str, Any]:
        """For ``--json``."""
        n_failed = sum(not result.is_ok for result in self.results)
        return {
            "problems": [
                {"file": one.file, "line": one.line, "column": one.column, "message": one.message}
                for one in self.problems
            ],
            "passed": len(self.results) - n_failed,
            "failed": n_failed,
            "scenarios": [_result_data(result) for result in self.results],
        }


def play_tests(asked: Asked) -> Done:
    """Read the test files, and play what fits; every problem, or how it went, is told."""
    loaded = load_tests(asked.paths, actions=LOOKING)
    if loaded.problems:
        for problem in loaded.problems if not asked.is_quiet else ():
            say(problem.located(), "red")
        return Done(files=loaded.files, problems=loaded.problems)
    chosen = _choose(loaded.files, asked.fits)
    if not chosen:
        complain(f"none of {_scenarios(sum(len(file.scenarios) for file in loaded.files))} fits -k")
        return Done(files=loaded.files)
    return Done(files=loaded.files, results=_play_and_tell(chosen, asked))


def is_unplayable(result: Result) -> bool:
    """Whether it could not even be begun: its file, or a file that it names, is wrong."""
    return bool(result.problem) and not result.events


def _choose(files: Iterable[TestFile], fits: Fits | None) -> list[Chosen]:
    """The scenarios that fit; files without any are left out."""
    found = []
    for file in files:
        names = [scenario.name for scenario in file.scenarios]
        places = [n for n, name in enumerate(names) if fits is None or fits(f"{file.file} {name}")]
        if places:
            found.append(Chosen(file=file, places=tuple(places)))
    return found


def _play_and_tell(chosen: Sequence[Chosen], asked: Asked) -> list[Result]:
    """Play them, and tell of each file as soon as those before it are told."""
    began = time.monotonic()
    answers: list[dict[int, Result]] = [{} for _ in chosen]
    n_chosen, n_done, n_told, n_logs = sum(len(one.places) for one in chosen), 0, 0, 0
    meter = Meter("scenarios", None if asked.is_quiet else console())
    with closing(play(chosen, asked.jobs or n_cpus())) as played:
        for number, at, result in played:
            answers[number][at] = result
            n_done += 1
            meter.show(n_done, n_chosen)
            while n_told < len(chosen) and len(answers[n_told]) == len(chosen[n_told].places):
                meter.hide()
                n_logs += _tell(chosen[n_told], answers[n_told], asked, n_logs)
                n_told += 1
            if asked.is_fail_fast and not result.is_ok:
                break
    meter.hide()
    for one, found in list(zip(chosen, answers, strict=True))[n_told:]:
        if found:
            n_logs += _tell(one, found, asked, n_logs)
    results = [found[at] for found in answers for at in sorted(found)]
    if not asked.is_quiet:
        _tell_end(results, n_chosen, time.monotonic() - began)
    return results


# -- for people --------------------------------------------------------------------------------------------------------


def _tell(one: Chosen, found: Mapping[int, Result], asked: Asked, n_logs: int) -> int:
    """A file that is through.

    Args:
        n_logs: how many failures were told before.

    Returns:
        How many were told now.
    """
    if asked.is_quiet:
        return 0
    results = [found[at] for at in sorted(found)]
    failed = [result for result in results if not result.is_ok]
    took = f"{sum(result.duration_s for result in results):.2f} s"
    if failed:
        say(f"FAIL  {one.file.file}  {len(failed)} of {_scenarios(len(results))} failed  {took}", "bold red")
    else:
        say(f"ok    {one.file.file}  {_scenarios(len(results))}  {took}", "green")
    for result in results if asked.is_verbose else ():
        word, style = ("ok  ", "") if result.is_ok else ("FAIL", "red")
        remark = "  (no playbook matches what fires)" if is_unmatched(result) else ""
        say(f"      {word}  {result.scenario.name}  {result.duration_s:.2f} s{remark}", style)
    told: set[str] = set()
    for number, result in enumerate(failed, n_logs):
        if not is_unplayable(result):
            say()
            print_failure(result, has_log=asked.is_verbose or number < LOGS_SHOWN)
        elif result.problem not in told:  # the same for each scenario of the file
            told.add(result.problem)
            for line in result.problem.splitlines():
                say(line, "red")
    if failed:
        say()
    return len(failed)


def _tell_end(results: Sequence[Result], n_chosen: int, took_s: float) -> None:
    failed = [result for result in results if not result.is_ok]
    if len(failed) > 1:
        for result in failed:
            say(f"{place(result)}: {result.scenario.name}: {summary(result)}", "red")
        say()
    counts = {"failed": len(failed), "passed": len(results) - len(failed), "not played": n_chosen - len(results)}
    text = ", ".join(f"{n} {what}" for what, n in counts.items() if n)
    say(f"{text} in {took_s:.1f} s", "bold red" if failed else "bold green")


def _scenarios(n: int) -> str:
    return f"{n} scenario{'' if n == 1 else 's'}"


# -- for programs ------------------------------------------------------------------------------------------------------


def _result_data(result: Result) -> dict[str, Any]:
    """A result for ``--json``; times in seconds since the scenario's begin."""
    return {
        "file": result.file.file,
        "line": result.scenario.line,
        "name": result.scenario.name,
        "ok": result.is_ok,
        "problem": result.problem,
        "duration_s": round(result.duration_s, 3),
        "lines": [_line_data(line) for line in result.lines],
        "trail": []
        if result.is_ok
        else [dict(zip(("at", "event", "about"), one, strict=True)) for one in trail(result)],
    }


def _line_data(line: Line) -> dict[str, Any]:
    return {
        "ok": line.is_ok,
        "expected": _side_data(line.expected),
        "happened": _side_data(line.happened),
        "differences": list(line.differences),
        "forbidden": line.forbidden,
    }


def _side_data(side: Expectation | Happening | None) -> dict[str, Any] | None:
    if side is None:
        return None
    told = {
        "at_s": side.at.total_seconds(),
        "kind": side.kind.value,
        "value": side.value,
        "details": dict(side.details),
    }
    if isinstance(side, Expectation):
        told |= {"within_s": side.within.total_seconds(), "line": side.line}
    return told
