"""The charts of docs/gpu: stories of the simulator, judged by the shipped rules, drawn as SVG.

A story → its series → promtool, which evaluates the rules each 15 s and says what each drawn expression and each alert
is at times between → a small SVG. Nothing in a chart is drawn by hand: what a rule does not say is not there.

    PYTHONPATH=tests .venv/bin/python -m simulator.charts [NAME …]
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Literal

from realparts.prometheus import find_program
from realparts.promtool import GPU_RULES, ask
from remediator.core.units import parse_duration
from simulator import backfill
from simulator.scenario import load

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "gpu" / "charts"
STEP_S = 15
"""Between two scrapes, as between two evaluations of the rules."""

Values = dict[int, float]
"""Second of the story → value; without one there, the series was not."""


@dataclass(frozen=True, slots=True)
class Line:
    """One curve: a name and a PromQL expression of one value. Dashed: a ``limit`` in force, or one ``asked`` for."""

    name: str
    expr: str
    kind: Literal["value", "limit", "asked"] = "value"


@dataclass(frozen=True, slots=True)
class Fires:
    """A row below a panel that shows when an alert fires, of what has this label; the panel above is shaded then."""

    alert: str
    severity: str
    label: str = ""
    value: str = ""

    @property
    def expr(self) -> str:
        """1 while it fires."""
        also = f',{self.label}="{self.value}"' if self.label else ""
        return f'max(ALERTS{{alertname="{self.alert}",severity="{self.severity}",alertstate="firing"{also}}})'

    @property
    def name(self) -> str:
        """For the row."""
        of = {"": "", "gpu": f"GPU {self.value}: "}.get(self.label, f"{self.value}: ")
        return f"{of}{self.alert} {self.severity}"


@dataclass(frozen=True, slots=True)
class Panel:
    """Curves over one axis of values: from, to, and a mark each so many."""

    title: str
    axis: tuple[float, float, float]
    lines: tuple[Line, ...]
    fires: tuple[Fires, ...] = ()


@dataclass(frozen=True, slots=True)
class Chart:
    """One picture: so many hours of a story, as these exporters show it, looked at each ``step_s``."""

    name: str
    story: str
    hours: tuple[float, float]
    panels: tuple[Panel, ...]
    sources: tuple[str, ...] = ("dcgm", "node")
    step_s: int = 120

    @property
    def times(self) -> range:
        """Seconds of the story at which a value is drawn."""
        return range(int(self.hours[0] * 3600), int(self.hours[1] * 3600) + 1, self.step_s)


# -- what the rules say


def evaluate(chart: Chart) -> dict[str, Values]:
    """Expression → its values at the chart's times, all rules running since the story began.

    Raises:
        BackfillError: promtool could not play it; with its words.
    """
    exprs = [one.expr for panel in chart.panels for one in (*panel.lines, *panel.fires)]
    series = backfill.series(load(chart.story), step_s=STEP_S, duration_s=chart.times[-1], sources=chart.sources)
    questions = [{"expr": expr, "eval_time": f"{at}s", "exp_samples": []} for at in chart.times for expr in exprs]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "story.json"
        said = ask(find_program("promtool"), file, series, questions, scrape_s=STEP_S, evaluate_s=STEP_S)
    found: dict[str, Values] = {expr: {} for expr in exprs}
    got = re.findall(r'expr: ("(?:[^"\\]|\\.)*"), time: (\S+),\s+exp: nil\s+got: \S*?\{\} (\S+)$', said.stderr, re.M)
    for expr, at, value in got:
        found[json.loads(expr)][int(parse_duration(at).total_seconds())] = float(value)
    if not got or "FAILED" not in said.stderr:
        raise backfill.BackfillError(f"promtool said nothing of {chart.name}: {said.stderr.strip()[-2000:]}")
    return found


# -- how it is drawn

WIDTH, LEFT, RIGHT, HEIGHT, ROW = 760, 46, 14, 150, 18
STYLE = """
text{font:12px system-ui,sans-serif;fill:#333}.t{font-weight:600}.k{text-anchor:end}.m{text-anchor:middle}.b{fill:#fff}
.g{stroke:#8885;stroke-width:.6}.l{fill:none;stroke-width:1.6;stroke-linejoin:round}.d{stroke-dasharray:6 4}
.c0{stroke:#1f6fd0}.c1{stroke:#12906a}.c2{stroke:#9a5bc7}
.d{stroke:#d1373f}.d.e{stroke:#888}
.info{fill:#5b8def}.warning{fill:#e69a19}.critical{fill:#e0404a}.s{opacity:.13}.r{opacity:.55}
@media(prefers-color-scheme:dark){text{fill:#d5d9de}.b{fill:#0d1117}.c0{stroke:#6aa9ff}.c1{stroke:#3fcf9b}
.c2{stroke:#c99bf0}.d{stroke:#ff7b82}.d.e{stroke:#999}.s{opacity:.22}}"""
"""A background of its own, so that it can be read on any page; light or dark as the reader has it."""


def draw(chart: Chart, found: dict[str, Values]) -> str:
    """The chart as SVG."""
    first, last = chart.times[0], chart.times[-1]

    def x(at: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (at - first) / (last - first)

    out: list[str] = []
    top = 6
    for panel in chart.panels:
        rows, plot = len(panel.fires), top + 42
        out.append(f'<text x="6" y="{top + 13}" class="t">{escape(panel.title)}</text>')
        out += _legend(panel.lines, top + 30)
        low, high, mark = panel.axis

        def y(value: float, low: float = low, high: float = high, plot: int = plot) -> float:
            return plot + HEIGHT * (1 - (min(max(value, low), high) - low) / (high - low))

        for number, fires in enumerate(panel.fires):
            row = plot + HEIGHT + 4 + ROW * number
            spans = list(_spans(found[fires.expr], chart))
            for start, end in spans:
                box = f'x="{x(start):.0f}" width="{max(2, x(end) - x(start)):.0f}"'
                out.append(f'<rect {box} y="{plot}" height="{HEIGHT}" class="s {fires.severity}"/>')
                out.append(f'<rect {box} y="{row + 2}" height="{ROW - 4}" class="r {fires.severity}"/>')
            name = fires.name + ("" if spans else " (never)")
            out.append(f'<text x="{LEFT + 4}" y="{row + 13}">{escape(name)}</text>')
        for step in range(round((high - low) / mark) + 1):
            value = low + mark * step
            out.append(f'<path class="g" d="M{LEFT} {y(value):.0f}H{WIDTH - RIGHT}"/>')
            out.append(f'<text x="{LEFT - 6}" y="{y(value) + 4:.0f}" class="k">{value:g}</text>')
        for number, line in enumerate(panel.lines):
            path = "".join(
                "M" + "L".join(f"{x(at):.0f} {y(value):.1f}" for at, value in _bends(piece))
                for piece in _pieces(found[line.expr], chart.step_s)
            )
            out.append(f'<path class="{_class(line, number)}" d="{path}"/>')
        top = plot + HEIGHT + 8 + ROW * rows + 8
    for hour in range(-(-first // 3600), last // 3600 + 1):
        out.append(f'<text x="{x(hour * 3600):.0f}" y="{top + 8}" class="m">{hour} h</text>')
    made = f"Story {chart.story} of tests/simulator, judged by {', '.join(file.name for file in GPU_RULES)}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top + 16}" role="img">'
        f"<title>{escape(chart.panels[0].title)}</title><desc>{made}. Made by python -m simulator.charts.</desc>"
        f'<style>{STYLE}</style><rect width="100%" height="100%" class="b"/>\n' + "\n".join(out) + "\n</svg>\n"
    )


def _legend(lines: Sequence[Line], y: int) -> Iterable[str]:
    at = 6.0
    for number, line in enumerate(lines):
        yield f'<path class="{_class(line, number)}" d="M{at:.0f} {y - 4}h20"/>'
        yield f'<text x="{at + 25:.0f}" y="{y}">{escape(line.name)}</text>'
        at += 25 + 6.4 * len(line.name) + 18  # about what a letter of this size takes


def _class(line: Line, number: int) -> str:
    return {"value": f"l c{number}", "limit": "l d", "asked": "l d e"}[line.kind]


def _spans(values: Values, chart: Chart) -> Iterable[tuple[int, int]]:
    """From when to when it fires: until the first look at which it does not."""
    for piece in _pieces(values, chart.step_s):
        yield piece[0][0], min(piece[-1][0] + chart.step_s, chart.times[-1])


def _pieces(values: Values, step_s: int) -> list[list[tuple[int, float]]]:
    """Values without gaps between them."""
    pieces: list[list[tuple[int, float]]] = []
    for at, value in sorted(values.items()):
        if not pieces or at - pieces[-1][-1][0] > step_s:
            pieces.append([])
        pieces[-1].append((at, value))
    return pieces


def _bends(piece: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """Without the points in the middle of level stretches."""
    return [
        point
        for before, point, after in zip([None, *piece], piece, [*piece[1:], None], strict=False)
        if before is None or after is None or not before[1] == point[1] == after[1]
    ]


# -- which there are


def _gpu(series: str, gpu: int, window: str = "") -> str:
    return f'max(avg_over_time({series}{{gpu="{gpu}"}}[{window}]))' if window else f'max({series}{{gpu="{gpu}"}})'


def _limit_of(workload: str) -> str:
    return f'max(threshold:gpu_memory_used:percent{{severity="warning",workload="{workload}"}})'


def _of_its_limit(gpu: int) -> str:
    return f'100 * max(avg_over_time(gpu:power:watts{{gpu="{gpu}"}}[5m]) / avg_over_time(gpu:power_limit:watts[5m]))'


LEAKING = 'container_name="llama-13b",gpu="2"'

CHARTS = (
    Chart("utilization", "healthy", (0, 4), (
        Panel("Utilisation, mean of 5 minutes, percent", (0, 100, 25), (
            Line("training, GPU 0", _gpu("gpu:utilization:percent", 0, "5m")),
            Line("serving, GPU 6", _gpu("gpu:utilization:percent", 6, "5m")),
            Line("limit", 'max(threshold:gpu_utilization:percent)', "limit"),
        ), (Fires("GPUUtilizationSaturated", "info", "gpu", "0"),)),
    )),
    Chart("memory", "leak-fast", (0, 5), (
        Panel("Memory of the fullest GPU of a job that leaks, percent", (0, 100, 25), (
            Line("in use", "max(workload:gpu_memory_used:percent{workload!=\"\"})"),
            Line("limit in force", 'max(threshold:gpu_memory_used:percent{severity="warning",workload!=""})', "limit"),
            Line("critical", 'max(threshold:gpu_memory_used:percent{severity="critical"})', "limit"),
        ), (Fires("GPUMemoryHigh", "warning"), Fires("GPUMemoryHigh", "critical"))),
    ), ("dcgm", "node", "remediator", "trainer")),
    Chart("leak", "leak-fast", (0, 5), (
        Panel("Memory of GPU 2, which leaks 8 GiB an hour from 1 h on, GiB", (0, 80, 20), (
            Line("in use", _gpu("gpu:memory_used:mib", 2) + " / 1024"),
        ), (
            Fires("GPUMemoryLeakSlope", "warning", "gpu", "2"),
            Fires("GPUMemoryOOMSoon", "critical", "gpu", "2"),
        )),
        Panel("Minutes until it is full", (0, 150, 25), (
            Line("foreseen", f"min(workload:gpu_memory_until_full:seconds{{{LEAKING}}}) / 60"),
            Line("limit of GPUMemoryOOMSoon", "vector(25)", "limit"),
        )),
    ), ("dcgm", "node", "remediator")),
    Chart("sawtooth", "sawtooth", (0, 6), (
        Panel("Memory of GPU 0, batches of 40 minutes, no leak, GiB", (0, 80, 20), (
            Line("in use", _gpu("gpu:memory_used:mib", 0) + " / 1024"),
        ), (Fires("GPUMemoryLeakSlope", "warning", "gpu", "0"),)),
        Panel("Slope, GiB per hour", (-50, 50, 25), (
            Line("asked for: delta over 1 h", 'max(delta(gpu:memory_used:mib{gpu="0"}[1h])) / 1024'),
            Line("of the lower envelope", _gpu("workload:gpu_memory_growth:mib_per_hour", 0) + " / 1024"),
        )),
    ), ("dcgm", "node", "remediator")),
    Chart("ecc", "ecc", (0, 8), (
        Panel("Corrected memory errors since the driver was loaded", (0, 150, 50), (
            *(Line(f"GPU {gpu}", f'max(DCGM_FI_DEV_ECC_SBE_VOL_TOTAL{{gpu="{gpu}"}})') for gpu in (0, 4, 5)),
            Line("10, asked for", "vector(10)", "asked"),
        )),
        Panel("Corrected within an hour", (0, 60, 20), (
            *(Line(f"GPU {gpu}", _gpu("gpu:ecc_correctable:increase1h", gpu)) for gpu in (0, 4, 5)),
            Line("limit", "max(threshold:gpu_ecc_correctable:increase1h)", "limit"),
        ), (
            Fires("GPUECCCorrectableRate", "warning", "gpu", "5"),
            Fires("GPUECCUncorrectable", "critical", "gpu", "2"),
            Fires("GPURowRemapPending", "warning", "gpu", "2"),
        )),
    )),
    Chart("temperature", "overheat", (1.5, 5), (
        Panel("Temperature, degrees Celsius", (20, 100, 20), (
            Line("GPU 5, its fan fails at 2 h", _gpu("gpu:temperature:celsius", 5)),
            Line("GPU 0", _gpu("gpu:temperature:celsius", 0)),
            Line("85, asked for", "vector(85)", "asked"),
        )),
        Panel("Degrees left until it slows down", (0, 60, 20), (
            Line("GPU 5", _gpu("gpu:temperature_margin:celsius", 5)),
            Line("GPU 0", _gpu("gpu:temperature_margin:celsius", 0)),
            Line("limit", "max(threshold:gpu_temperature_margin:celsius)", "limit"),
        ), (Fires("GPUHot", "warning", "gpu", "5"), Fires("GPUHot", "critical", "gpu", "5"))),
    )),
    Chart("power", "power-cap", (0, 4), (
        Panel("Power, percent of the default limit", (50, 100, 10), (
            Line("GPU 0", _gpu("gpu:power:percent_of_default", 0, "5m")),
            Line("GPU 1, capped to 500 W at 1 h 30", _gpu("gpu:power:percent_of_default", 1, "5m")),
            Line("limit", "max(threshold:gpu_power:percent_of_default)", "limit"),
        ), (
            Fires("GPUPowerNearLimit", "info", "gpu", "0"),
            Fires("GPUPowerNearLimit", "info", "gpu", "1"),
            Fires("GPUPowerCapped", "info", "gpu", "1"),
        )),
        Panel("What was asked for: power, percent of the limit that holds", (50, 100, 10), (
            Line("GPU 0", _of_its_limit(0)),
            Line("GPU 1", _of_its_limit(1)),
            Line("90, asked for", "vector(90)", "asked"),
        )),
    )),
    Chart("nvlink", "nvlink-degraded", (1.5, 4.5), (
        Panel("NVLink, percent of what the other GPUs of the job carry", (0, 125, 25), (
            Line("GPU 6, to a fifth at 2 h", _gpu("gpu:nvlink:percent_of_peers", 6, "5m")),
            Line("GPU 2, to a half", _gpu("gpu:nvlink:percent_of_peers", 2, "5m")),
            Line("limit", "max(threshold:gpu_nvlink:percent_of_peers)", "limit"),
        ), (
            Fires("GPUNVLinkBelowPeers", "warning", "gpu", "6"),
            Fires("GPUNVLinkBelowPeers", "warning", "gpu", "2"),
        )),
        Panel("NVLink, GB/s, both directions, mean of 5 minutes", (0, 300, 100), (
            Line("GPU 6", _gpu("gpu:nvlink:bytes_per_second", 6, "5m") + " / 1e9"),
            Line("GPU 0, healthy", _gpu("gpu:nvlink:bytes_per_second", 0, "5m") + " / 1e9"),
            Line("30 % of 900 GB/s, asked for", "vector(270)", "asked"),
        )),
    )),
    Chart("imbalance", "imbalance", (1.5, 4.5), (
        Panel("Utilisation, mean of 5 minutes, percent", (0, 100, 25), (
            Line("GPU 4, waits for data from 2 h on", _gpu("gpu:utilization:percent", 4, "5m")),
            Line("GPU 0", _gpu("gpu:utilization:percent", 0, "5m")),
        )),
        Panel("Busiest less idlest GPU of the job, points", (0, 60, 20), (
            Line("spread", "max(workload:gpu_utilization_spread:percent)"),
            Line("limit", 'max(threshold:gpu_utilization_spread:percent{severity="warning"})', "limit"),
            Line("goal", 'max(threshold:gpu_utilization_spread:percent{severity="goal"})', "asked"),
        ), (Fires("GPUImbalance", "warning"),)),
    )),
    Chart("xid", "xid", (0.5, 5), (
        Panel("Last Xid that the driver told, GPU 1", (0, 80, 20), (
            Line("last Xid", _gpu("DCGM_FI_DEV_XID_ERRORS", 1)),
        ), (Fires("GPUXid", "warning", "err_code", "31"),)),
        Panel("GPUs that are lost", (0, 2, 1), (Line("lost", "sum(gpu:lost:bool)"),), (
            Fires("GPUXid", "critical", "err_code", "74"),
            Fires("GPUXid", "critical", "err_code", "79"),
            Fires("GPULost", "critical"),
        )),
    ), ("dcgm", "smi", "node")),
    Chart("exporters", "exporter-death", (0.5, 3.5), (
        Panel("GPUs of gpu-01 that somebody sees: its exporter dies at 1 h", (0, 8, 2), (
            Line("gpu-01", 'count(gpu:present:info{hostname="gpu-01"}) or vector(0)'),
        ), (Fires("GPUExporterGone", "critical", "hostname", "gpu-01"),)),
        Panel("Power of GPU 0 of gpu-02, watts: its exporter stands still at 2 h", (0, 800, 200), (
            Line("power", 'max(gpu:power:watts{hostname="gpu-02",gpu="0"})'),
        ), (Fires("GPUMetricsFrozen", "warning", "hostname", "gpu-02"),)),
    )),
    Chart("training-stages", "late-stage", (0, 4), (
        Panel("Progress of the training", (0, 1, 0.2), (
            Line("llama-13b", 'max(workload:training_progress:ratio)'),
        )),
        Panel("Memory of its fullest GPU, percent", (80, 100, 5), (
            Line("in use", 'max(workload:gpu_memory_used:percent{workload="ml/llama-13b-0"})'),
            Line("limit in force", _limit_of("ml/llama-13b-0"), "limit"),
        ), (Fires("GPUMemoryHigh", "warning", "workload", "ml/llama-13b-0"),)),
        Panel("The same of a job that reports no progress", (80, 100, 5), (
            Line("in use", 'max(workload:gpu_memory_used:percent{workload="ml/silent-0"})'),
            Line("limit in force", _limit_of("ml/silent-0"), "limit"),
        ), (Fires("GPUMemoryHigh", "warning", "workload", "ml/silent-0"),)),
    ), ("dcgm", "node", "trainer")),
)  # fmt: skip


def main(names: Sequence[str]) -> int:
    """Makes the charts of these names, or all; gives the exit code."""
    if unknown := set(names) - {chart.name for chart in CHARTS}:
        print(
            f"there is no chart {sorted(unknown)[0]}; there are {', '.join(one.name for one in CHARTS)}",
            file=sys.stderr,
        )
        return 1
    FOLDER.mkdir(parents=True, exist_ok=True)
    for chart in CHARTS:
        if not names or chart.name in names:
            (FOLDER / f"{chart.name}.svg").write_text(draw(chart, evaluate(chart)))
            print(FOLDER / f"{chart.name}.svg", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
