"""``remediator test``: play the tests of playbooks, and show where what happened is not what was expected.

Takes → gives: ``*.test.yaml`` files → a line for each file, expected and happened side by side where they differ, an
exit code. ``scenario_jobs`` plays, ``scenario_text`` says how it went, ``scenario_junit`` says it to CI systems,
``scenario_coverage`` what nothing reached, ``scenario_watch`` does it again at each change.

Must never: touch a real neighbour, or call a scenario good that was not played to its end.
"""

from __future__ import annotations

from pathlib import Path

import click

from remediator.cli.invocation import Invocation
from remediator.cli.scenario_filter import parse_filter
from remediator.cli.store_options import store_option
from remediator.cli.terminal import complain, json_option, print_json
from remediator.errors import UnreachableError


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path), metavar="[PATH]...")
@click.option("-k", "wanted", metavar="EXPR", help="Play the scenarios whose file or name fits this alone.")
@click.option("-v", "--verbose", is_flag=True, help="A line for each scenario.")
@click.option("-x", "--fail-fast", is_flag=True, help="End at the first scenario that fails.")
@click.option(
    "--jobs", type=click.IntRange(min=1), metavar="N", help="Processes.  [default: as many as there are CPUs]"
)
@click.option("--coverage", "shows_coverage", is_flag=True, help="List what of the playbooks no scenario reached.")
@click.option(
    "--fail-under", type=click.FloatRange(0, 100), metavar="N", help="Fail where less than N % of them was reached."
)
@click.option("--junit", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write JUnit XML.")
@click.option("--watch", "is_watching", is_flag=True, help="Play again what a change to the files concerns.")
@click.option("--log", "has_log", is_flag=True, help="Print the engine's own log to stderr; in one process.")
@click.option("--record", "recorded", metavar="RUN", help="Write down what a run did as a test, instead of playing.")
@click.option("--anonymise", is_flag=True, help="With --record: under other names of hosts, containers, people.")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="With --record: where; else stdout."
)
@store_option
@json_option
@click.pass_context
def test(
    ctx: click.Context,
    paths: tuple[Path, ...],
    wanted: str | None,
    verbose: bool,
    fail_fast: bool,
    jobs: int | None,
    shows_coverage: bool,
    fail_under: float | None,
    junit: Path | None,
    is_watching: bool,
    has_log: bool,
    recorded: str | None,
    anonymise: bool,
    out: Path | None,
    store_url: str | None,
    as_json: bool,
) -> None:
    """Play the tests of playbooks: what happens in a story against what is expected.

    PATHs are test files, and folders of which every *.test.yaml is played, also in the folders below; without any, the
    playbook folders of the settings. The real engine plays them, on a world in memory and a clock that is moved:
    nothing is touched.

    -k takes texts with and, or, not and brackets; words side by side are one text:

    \b
      remediator test -k 'restarts once and not (leak or "and")'

    --record takes an incident from the audit, the engine running or not, and writes it as a test of the playbooks that
    it was about. There PATHs are these playbooks, where they are not those of the settings.

    Exit code 0: everything went as expected; 1: a scenario failed, or --fail-under was missed; 2: wrong usage, or a
    file that cannot be played. Ctrl-C ends --watch with 0. --record: 1 where what it wrote does not pass as it is.
    """
    invocation: Invocation = ctx.obj
    if recorded is not None:
        if any((wanted, verbose, fail_fast, jobs, shows_coverage, fail_under, junit, is_watching, has_log, as_json)):
            raise click.UsageError("--record goes with PATH, --out, --anonymise and --store alone")
        from remediator.cli.scenario_record import record

        ctx.exit(record(invocation, recorded, paths, out=out, is_disguised=anonymise, store_url=store_url))
    if anonymise or out is not None:
        raise click.UsageError("--anonymise and --out go with --record")
    if is_watching and (as_json or junit or shows_coverage or fail_under is not None):
        raise click.UsageError("--watch goes without --json, --junit, --coverage and --fail-under")
    try:
        fits = parse_filter(wanted) if wanted is not None else None
    except ValueError as error:
        raise click.UsageError(f"-k {wanted!r}: {error}") from error
    searched = paths or invocation.settings_of_here().playbooks
    # Only now: these load everything, and wrong usage is said at once.
    from remediator.cli.scenario_coverage import coverage_data, coverage_of, print_coverage
    from remediator.cli.scenario_junit import junit_xml
    from remediator.cli.scenario_report import EXIT_FAILED, Asked, play_tests
    from remediator.cli.scenario_watch import watch
    from remediator.telemetry import configure_logging

    configure_logging(level="info" if has_log else "critical", log_format="text")
    asked = Asked(
        paths=tuple(searched),
        fits=fits,
        jobs=1 if has_log else jobs,
        is_verbose=verbose,
        is_fail_fast=fail_fast,
        is_quiet=as_json,
    )
    if is_watching:
        watch(asked, lambda asked: play_tests(asked).files)
        return
    done = play_tests(asked)
    code, data = done.exit_code, done.data() if as_json else {}
    if junit is not None:
        try:
            junit.write_bytes(junit_xml(done.results))
        except OSError as error:
            raise UnreachableError(f"cannot write {junit}: {error.strerror}") from error
    if (shows_coverage or fail_under is not None) and not done.problems:
        coverage = coverage_of(done.files, done.results, asked.paths)
        data["coverage"] = coverage_data(coverage)
        if not as_json:
            print_coverage(coverage)
        if fail_under is not None and coverage.pct < fail_under:
            complain(f"the coverage of {coverage.pct:.1f} % is below {fail_under:g} %")
            code = code or EXIT_FAILED
    if as_json:
        print_json(data)
    ctx.exit(code)
