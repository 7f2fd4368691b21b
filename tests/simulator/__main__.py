"""The simulator on the command line. In the folder of the project, with ``PYTHONPATH=tests``:

    python -m simulator stories                                     what there is
    python -m simulator serve leak-fast --port 9400 --speed 60      over HTTP, a minute each second
    python -m simulator backfill cluster --days 30 --into data      the last 30 days, for a Prometheus
    python -m simulator series overheat --step 30s --duration 2h    as input of ``promtool test rules``

A scenario is a story's name or a file. Ends with 1 and says why when it cannot be done.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import time
from pathlib import Path

from remediator.core.units import parse_duration
from simulator import backfill
from simulator.live import Simulator
from simulator.scenario import STORIES, Scenario, ScenarioError, load
from simulator.scrape import SOURCES


def _duration(text: str) -> float:
    try:
        return parse_duration(text).total_seconds()
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _sources(text: str) -> list[str]:
    wanted = text.split(",")
    if unknown := [one for one in wanted if one not in SOURCES]:
        raise argparse.ArgumentTypeError(f"there is no source {unknown[0]!r}; there are {', '.join(SOURCES)}")
    return wanted


def _arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m simulator", description="A GPU cluster that is not there.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("stories", help="list the scenarios that come with it")
    serve = commands.add_parser("serve", help="serve a scenario's pages over HTTP")
    serve.add_argument("--port", type=int, default=9400)
    serve.add_argument("--host", default="127.0.0.1")
    serve.add_argument("--speed", type=float, default=1.0, help="seconds of the story per second")
    serve.add_argument("--at", type=_duration, default=0.0, metavar="DURATION", help="begin so far into the story")
    fill = commands.add_parser("backfill", help="write the last days into a Prometheus' data folder")
    fill.add_argument("--days", type=float, help="default: as long as the story is")
    fill.add_argument("--step", type=_duration, default=60.0, metavar="DURATION", help="between two scrapes")
    fill.add_argument("--end", type=int, metavar="UNIX", help="default: now")
    fill.add_argument("--into", type=Path, required=True, metavar="TSDB_DIR")
    series = commands.add_parser("series", help="print input_series for promtool test rules")
    series.add_argument("--step", type=_duration, default=60.0, metavar="DURATION")
    series.add_argument("--duration", type=_duration, metavar="DURATION", help="default: the story's")
    series.add_argument("--at", type=_duration, default=0.0, metavar="DURATION", help="begin so far into the story")
    for one in (serve, fill, series):
        one.add_argument("scenario", help="a story's name, or a file")
        one.add_argument("--sources", type=_sources, metavar="SOURCES", help=f"of {','.join(SOURCES)}")
    return parser.parse_args(words)


def main(words: list[str]) -> int:
    """Does what the words ask; gives the exit code."""
    asked = _arguments(words)
    try:
        if asked.command == "stories":
            for path in sorted(STORIES.glob("*.yaml")):
                print(f"{path.stem:<18} {load(path).about}")
            return 0
        scenario = load(asked.scenario)
        if asked.command == "serve":
            return _serve(Simulator(scenario, at_s=asked.at, speed=asked.speed, sources=asked.sources), asked)
        if asked.command == "backfill":
            return _backfill(scenario, asked)
        found = backfill.series(
            scenario,
            step_s=int(asked.step),
            duration_s=asked.duration or scenario.duration,
            sources=asked.sources,
            at_s=asked.at,
        )
        print(json.dumps([{"series": name, "values": values} for name, values in found], indent=1))
    except (ScenarioError, backfill.BackfillError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _serve(simulator: Simulator, asked: argparse.Namespace) -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with simulator.serve(asked.port, asked.host) as address:
        print(f"{simulator.cluster.scenario.name} at http://{address}/ (Ctrl-C ends it)", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()
    return 0


def _backfill(scenario: Scenario, asked: argparse.Namespace) -> int:
    end_s = asked.end or int(time.time())
    length_s = scenario.duration if asked.days is None else asked.days * 86400
    began = time.monotonic()
    done = backfill.write(
        scenario,
        asked.into,
        start_s=int(end_s - length_s),
        end_s=end_s,
        step_s=int(asked.step),
        sources=asked.sources,
        say=lambda words: print(f"{time.monotonic() - began:6.1f} s  {words}", file=sys.stderr),
    )
    print(
        f"{done.n_samples:,} samples of {done.n_series} series in {done.n_blocks} blocks,"
        f" in {time.monotonic() - began:.0f} s. Show gaps as gaps:"
        f" prometheus --storage.tsdb.path={asked.into} --query.lookback-delta={backfill.lookback(int(asked.step))}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
