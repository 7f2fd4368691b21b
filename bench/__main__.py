"""``python -m bench``: runs the benchmarks one after the other, shows them, writes the results.

A whole run writes ``RESULTS.md`` and ``results.json`` here; a quick or partial one is for looking, and writes nothing
but what ``--json`` and ``--report`` ask for. ``GPU.md`` is the report of the GPU benchmarks alone.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT / "tests"))

import click  # noqa: E402  # the real parts of the tests are found only now
from rich.console import Console  # noqa: E402
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: E402

from bench import (  # noqa: E402
    answers,
    exporter,
    gpu_alerts,
    machine,
    matching,
    memory,
    reaction,
    recovery,
    replay,
    report,
    scenarios,
)
from bench.result import Section  # noqa: E402
from bench.session import Session  # noqa: E402

_MODULES = (answers, matching, reaction, memory, recovery, replay, scenarios, exporter, gpu_alerts)
BENCHMARKS = {each.NAME: each.measure for each in _MODULES}

WIDTH = 80


@click.command()
@click.option("--quick", is_flag=True, help="A fraction of the work, to see that it runs: no results.")
@click.option("--only", multiple=True, type=click.Choice(list(BENCHMARKS)), help="This benchmark alone; repeatable.")
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path, dir_okay=False), help="Write the figures here too."
)
@click.option(
    "--report", "report_file", type=click.Path(path_type=Path, dir_okay=False), help="Write the tables here too."
)
def main(quick: bool, only: tuple[str, ...], json_file: Path | None, report_file: Path | None) -> None:
    """Measure the engine on this machine."""
    # Settings of the shell that runs this must not reach the engines that are measured.
    for name in [name for name in os.environ if name.startswith("REMEDIATOR_") and "_TEST_" not in name]:
        del os.environ[name]
    os.environ["PYTHONPATH"] = f"{ROOT}{os.pathsep}{ROOT / 'tests'}"
    console = Console(highlight=False, markup=False, width=WIDTH)
    names = [name for name in BENCHMARKS if not only or name in only]
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=os.environ.get("REMEDIATOR_TEST_DIR")))
    try:
        facts = machine.facts(folder)
        sections = _measure(console, folder, names, is_quick=quick)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report.show(console, facts, sections)
    if json_file is not None:
        json_file.write_text(report.as_json(facts, sections) + "\n")
    if report_file is not None:
        options = [*(["--quick"] if quick else []), *(f"--only {name}" for name in only)]
        written_by = f'`make bench BENCH="{" ".join(options)}"`' if options else "`make bench`"
        report.write_results(report_file, facts, sections, written_by)
    if quick or only:
        console.print("\nA quick or partial run: RESULTS.md stays as it was.", style="dim")
        return
    in_json = "`make bench` from one run; the figures as JSON are in `results.json`"
    report.write_results(HERE / "RESULTS.md", facts, sections, in_json)
    (HERE / "results.json").write_text(report.as_json(facts, sections) + "\n")
    console.print(f"\nWritten: {HERE / 'RESULTS.md'}, {HERE / 'results.json'}", style="dim")


def _measure(console: Console, folder: Path, names: list[str], *, is_quick: bool) -> list[Section]:
    began = time.monotonic()
    columns = (
        BarColumn(12),
        TextColumn("{task.completed} of {task.total}"),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=len(names))
        sections = []
        for name in names:

            def say(what: str, name: str = name) -> None:
                progress.update(task, description=f"{name}: {what}")
                if not console.is_terminal:
                    console.print(f"{time.monotonic() - began:6.0f} s  {name}: {what}")

            sections.append(BENCHMARKS[name](Session(folder=folder, is_quick=is_quick, say=say)))
            progress.advance(task)
    return sections


if __name__ == "__main__":
    main()
